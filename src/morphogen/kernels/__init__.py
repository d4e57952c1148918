"""Layers over stacked networks as operators of torch, with kernels of our own where the processor computes them.

Every operation here comes in two forms that agree up to rounding: plain torch, which runs on any device and which the
compiler fuses, and a kernel that passes over memory once, for float32 on a CPU (`kernels/*.c`).  `fits` chooses.  Where
the package was installed without a C compiler there are no kernels, and plain torch serves everywhere.  The kernel of
convolutions needs AVX-512 and usual shapes as well (`form_of`); others are left to torch and its gradients.

Activations are `[B, H, W, R, C]`: samples, pixels, stacked networks and their channels, which are innermost.
"""

from morphogen.kernels.blend import blend, blend_backward
from morphogen.kernels.conv import Form, conv, conv_backward, form_of
from morphogen.kernels.native import AVAILABLE, CAN_CONVOLVE
from morphogen.kernels.norm import EPS, norm, norm_backward
from morphogen.kernels.perceptron import perceptron, perceptron_backward
from morphogen.kernels.philox import philox
from morphogen.kernels.pool import pool, pool_backward
from morphogen.kernels.take import channels_innermost, take_row_blocks, take_rows

__all__ = [
    "AVAILABLE",
    "CAN_CONVOLVE",
    "EPS",
    "Form",
    "blend",
    "blend_backward",
    "channels_innermost",
    "conv",
    "conv_backward",
    "form_of",
    "norm",
    "norm_backward",
    "perceptron",
    "perceptron_backward",
    "philox",
    "pool",
    "pool_backward",
    "take_row_blocks",
    "take_rows",
]
