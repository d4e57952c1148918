/* Convolutions of stacked networks: shared by forward and backward, and compiled twice, for processors with AVX-512 and
   for others with AVX2 (conv_avx2.c).

   Every network is processed as a plane: its pixels in adjacent memory, with a border of 0 as wide as the kernel
   needs.  The inputs of an output in one line of the kernel are adjacent there: a run.  A vector
   of 16 holds 16 products: one of a run for each of 16 outputs, or two for each of 8, or four for each of 4, which are
   added up at the end.  One of 8 holds half as many.  */

#ifndef MORPHOGEN_CONV_H
#define MORPHOGEN_CONV_H

#include "kernels.h"

#ifdef MORPHOGEN_CONV

#include <immintrin.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#ifndef FULL
#define FULL 16 /* floats of a vector */
#endif

#if FULL == 16
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma")
#else
#pragma GCC target("avx2,fma")
#define morphogen_conv morphogen_conv_avx2
#define morphogen_conv_backward morphogen_conv_backward_avx2
#define morphogen_convolved morphogen_convolved_avx2
#define morphogen_conv_weights morphogen_conv_weights_avx2
#define morphogen_conv_slopes morphogen_conv_slopes_avx2
#define morphogen_conv_planes morphogen_conv_planes_avx2
#define morphogen_conv_plane morphogen_conv_plane_avx2
#define morphogen_convolve morphogen_convolve_avx2
#endif

#define CHUNKS 8          /* parts of the samples with separate sums of the gradients of weights */
#define TILE_SIDE 4       /* pixels of a side that a tile reads where the image has fewer */
#define BUNDLE 256        /* channels of networks processed together, about */
#define BYTES (2048 << 10) /* of their planes, at most */

typedef float Vector __attribute__((vector_size(FULL * sizeof(float)), may_alias));
typedef float Loose __attribute__((vector_size(FULL * sizeof(float)), aligned(sizeof(float)), may_alias));

/* From `inputs` to `outputs` channels of every network. */
typedef struct {
    Size height, width, inputs, outputs, kernel;
    Size parts, vectors, blocks; /* products of an output in a vector; vectors of a pixel at a time; how many times */
    Size steps, packed;          /* vectors of a run; floats of the weights of a network */
} Shape;

/* Planes of some networks.  The address of a pixel is that of the first line and column of its kernel. */
typedef struct {
    const float *at;
    Size network, line, pixel; /* floats from one to the next */
} Planes;

typedef struct {
    Shape forth, back; /* back: from the gradient of the output to that of the input */
    Size samples, rows, stride, bundle, threads;
    const float *x, *weight, *grad;
    float *out, *push, *slopes;      /* push: gradient of x, NULL = not needed; slopes: the gradient of the weights */
    float *weights, *sums, *scratch; /* packed [rows, packed]; [CHUNKS, rows, packed]; [threads, room] */
    Size room;
    int32_t *places, *turned; /* of packed weights among the given ones */
} Conv;

/* Repeat `parts` floats of a run for all outputs of a vector. */
INLINE Vector repeated(const float *run, const int parts) {
    double two;
#if FULL == 16
    if (parts == 1) return (Vector)_mm512_set1_ps(*run);
    if (parts == 4) return (Vector)_mm512_broadcast_f32x4(_mm_loadu_ps(run));
    memcpy(&two, run, sizeof two);
    return (Vector)_mm512_set1_pd(two);
#else
    if (parts == 1) return (Vector)_mm256_set1_ps(*run);
    memcpy(&two, run, sizeof two);
    return (Vector)_mm256_set1_pd(two);
#endif
}

/* Functions of conv.c for both directions, documented there. */
PyObject *morphogen_convolved(PyObject *const *args, Py_ssize_t given, void (*work)(const Conv *));
void morphogen_conv_weights(const Conv *k, const Shape *s, const int32_t *places, Size network);
void morphogen_conv_slopes(const Conv *k, Size network);
Planes morphogen_conv_planes(const Shape *s, const float *from, Size stride, Size rows, float *to);
Size morphogen_conv_plane(const Shape *s);
void morphogen_convolve(const Shape *s, Planes in, const float *weights, float *out, Size stride, Size rows);

INLINE float *scratch_of(const Conv *k) {
#ifdef _OPENMP
    return k->scratch + omp_get_thread_num() * k->room;
#else
    return k->scratch;
#endif
}

#endif
#endif
