"""Layers over stacked networks as operators of torch, with kernels of our own where the processor computes them.

Every operation here comes in two forms that agree up to rounding: plain torch, which runs on any device and which the
compiler fuses, and a kernel that passes over memory once, for float32 on a CPU (`kernels/*.c`).  `fits` chooses.  Where
the package was installed without a C compiler there are no kernels, and plain torch serves everywhere.  The kernel of
convolutions needs AVX-512 and usual shapes as well (`form_of`); others are left to torch and its gradients.

Activations are `[B, H, W, R, C]`: samples, pixels, stacked networks and their channels, which are innermost.
"""

from morphogen.kernels.blend import blend, blend_backward
from morphogen.kernels.conv import Form, conv, conv_backward, form_of
from morphogen.kernels.native import AVAILABLE, CONVOLVES
from morphogen.kernels.norm import EPS, norm, norm_backward
from morphogen.kernels.perceptron import perceptron, perceptron_backward
from morphogen.kernels.philox import philox
from morphogen.kernels.pool import pool, unpool
from morphogen.kernels.take import deal, innermost, take

__all__ = [
    "AVAILABLE",
    "CONVOLVES",
    "EPS",
    "Form",
    "blend",
    "blend_backward",
    "conv",
    "conv_backward",
    "deal",
    "form_of",
    "innermost",
    "norm",
    "norm_backward",
    "perceptron",
    "perceptron_backward",
    "philox",
    "pool",
    "take",
    "unpool",
]
