"""Layers over stacked networks as operators of torch, with compiled kernels for float32 on a CPU.

For authors of layers in `nets`; nothing above `nets` needs this package.  Every operation has two forms that agree
up to rounding: plain torch, which runs on any device and which the compiler fuses, and a C kernel (`kernels/*.c`) that
passes over memory once.  `native.has_kernel` chooses per call.  Without a C compiler the package installs without
kernels, and plain torch computes everything.  Convolutions also need AVX-512 and usual shapes (`form_of`).

- `conv`, `conv_backward`, `torch_conv`, `form_of`, `Form`: convolutions that keep height and width
- `norm`, `norm_backward`, `EPS`: group normalisation with channel mask, lower limit and scale
- `standardise`, `standardise_backward`: layer normalisation without gain and shift
- `attention`, `attention_backward`: causal attention, where `can_attend` says so
- `perceptron`, `perceptron_backward`: two linear layers with a SiLU between them
- `pool`, `pool_backward`: max pooling 2x2
- `blend`, `blend_backward`: seeds blended into the features of their hosts
- `take_rows`, `take_row_blocks`, `channels_innermost`: copies that change rows or the order of axes
- `column_sums`: sums in an order that does not depend on the networks side by side
- `philox`: counter-based random words, the base of `state.rng`
- `statistics_dtype`: dtype of sums over features
- `one_thread`: a context in which a CPU computes on one thread
- `AVAILABLE`, `CAN_CONVOLVE`: are there kernels, and kernels of convolutions, on this machine?
- `native`: loading of the extension, the calling convention of kernels, axes, `AutogradFunction`

Activations are `[B, H, W, R, C]`: samples, pixels, stacked networks and their channels, which are innermost.  Loads
torch, and nothing else of the project; gradients are explicit functions here and become autograd in `nets.ops`.
"""

from morphogen.kernels.attention import attention, attention_backward, can_attend
from morphogen.kernels.blend import blend, blend_backward
from morphogen.kernels.conv import Form, conv, conv_backward, form_of, torch_conv
from morphogen.kernels.native import AVAILABLE, CAN_CONVOLVE, statistics_dtype
from morphogen.kernels.norm import EPS, norm, norm_backward
from morphogen.kernels.perceptron import perceptron, perceptron_backward
from morphogen.kernels.philox import philox
from morphogen.kernels.standardise import standardise, standardise_backward
from morphogen.kernels.sums import column_sums
from morphogen.kernels.take import channels_innermost, pool, pool_backward, take_row_blocks, take_rows
from morphogen.kernels.threads import one_thread

__all__ = ["AVAILABLE", "CAN_CONVOLVE", "EPS", "Form", "blend", "blend_backward", "channels_innermost", "column_sums"]
__all__ += [
    "conv",
    "conv_backward",
    "form_of",
    "norm",
    "norm_backward",
    "one_thread",
    "perceptron",
    "perceptron_backward",
]
__all__ += ["attention", "attention_backward", "can_attend"]
__all__ += ["standardise", "standardise_backward"]
__all__ += ["philox", "pool", "pool_backward", "statistics_dtype", "take_row_blocks", "take_rows", "torch_conv"]
