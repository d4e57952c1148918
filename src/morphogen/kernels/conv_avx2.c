/* Convolutions of stacked networks and their gradients in vectors of 8, for processors without AVX-512. */

#define FULL 8

#include "conv.c"
#include "conv_backward.c"
