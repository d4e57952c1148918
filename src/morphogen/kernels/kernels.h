/* Shared by the kernels.

   Activations are float [samples, pixels, rows, channels].  Work is cut by sample, so no result depends on the number
   of threads; sums over samples are left to the caller, as one partial sum per sample.  */

#ifndef MORPHOGEN_KERNELS_H
#define MORPHOGEN_KERNELS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MORPHOGEN_CONV /* convolutions can be built */
#endif

#define INLINE static inline __attribute__((always_inline))
#define LANES(count) _Pragma("omp simd") for (Size i = 0; i < (count); i++)
#define WIDTH 512       /* largest number of channels of a piece */
#define SMALL (1 << 15) /* elements below which one thread computes everything */

typedef Py_ssize_t Size;

/* Variant of a function in which usual numbers of channels are constants: a row is a few instructions. */
#define BY_CHANNELS(work, Task)                                                                                        \
    WIDE static void work##_of(const Task *k, Size at) {                                                               \
        switch (k->channels) {                                                                                         \
            case 4: work(k, at, 4); break;                                                                             \
            case 8: work(k, at, 8); break;                                                                             \
            case 16: work(k, at, 16); break;                                                                           \
            case 32: work(k, at, 32); break;                                                                           \
            default: work(k, at, k->channels);                                                                         \
        }                                                                                                              \
    }

#define FAR ((Size)12 << 20) /* bytes of a result beyond which it is written past the cache, where it would not stay */

#define LINE ((Size)64) /* bytes of a line of the cache */

/* Write past the cache, which otherwise reads a line before it is written; `fence` ends it.  Whole lines only: a part of
   one costs more than the whole. */
INLINE void stream(float *restrict to, const float *restrict from, Size count, int far) {
#ifdef __SSE__
    if (far && (uintptr_t)to % LINE == 0 && count % (LINE / (Size)sizeof *to) == 0) {
        for (Size i = 0; i < count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
        return;
    }
#endif
    memcpy(to, from, count * sizeof *to);
}

INLINE void fence(int far) {
#ifdef __SSE__
    if (far) _mm_sfence();
#endif
}

#define TILE 512 /* floats pooled at a time */

/* Largest of every four and its position: the first of equals, or the last NaN. */
INLINE void largest(const float *restrict a, const float *restrict b, const float *restrict c, const float *restrict d,
                    float *restrict out, uint8_t *restrict argmax, Size count) {
    int32_t places[TILE]; /* as wide as the floats, so that one instruction serves many */
    for (Size first = 0; first < count; first += TILE) {
        const Size many = count - first < TILE ? count - first : TILE;
        LANES(many) {
            const float e = a[first + i], f = b[first + i], g = c[first + i], h = d[first + i];
            const int32_t one = (f > e) | (f != f);
            const float top = one ? f : e;
            const int32_t two = (g > top) | (g != g);
            const float left = two ? g : top;
            const int32_t three = (h > left) | (h != h);
            out[first + i] = three ? h : left;
            places[i] = three ? 3 : two ? 2 : one;
        }
        LANES(many) argmax[first + i] = (uint8_t)places[i];
    }
}

/* Gradient at the position of the largest; 0 elsewhere. */
INLINE void unpool_row(const float *restrict grad, const uint8_t *restrict argmax, float *restrict a, float *restrict b,
                       float *restrict c, float *restrict d, Size count) {
    int32_t places[TILE];
    for (Size first = 0; first < count; first += TILE) {
        const Size many = count - first < TILE ? count - first : TILE;
        LANES(many) places[i] = argmax[first + i];
        LANES(many) {
            const float g = grad[first + i];
            a[first + i] = places[i] == 0 ? g : 0.0f;
            b[first + i] = places[i] == 1 ? g : 0.0f;
            c[first + i] = places[i] == 2 ? g : 0.0f;
            d[first + i] = places[i] == 3 ? g : 0.0f;
        }
    }
}

/* Activations of one network in memory. */
typedef struct {
    float *at;   /* of the first pixel of the first sample; NULL = none */
    Size stride; /* floats from one pixel to the next */
} Lane;

/* Read lanes of networks from blocks (address, networks, stride); 0 after an error. */
int morphogen_lanes(PyObject *blocks, Size networks, Size channels, Lane *found);

/* Check that all numbers lie in [0, end); else 0 and an IndexError. */
int morphogen_within(const int64_t *numbers, Size count, Size end);

/* Read integers and addresses in order; 0 after an error. */
int morphogen_numbers(PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted, Size *found);

PyObject *morphogen_norm(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_norm_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_conv(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_conv_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_conv_avx2(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_conv_backward_avx2(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_sums(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_pool(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_pool_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_innermost(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_take(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_standardise(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_standardise_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_attention(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_attention_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_blend(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *morphogen_blend_backward(PyObject *self, PyObject *const *args, Py_ssize_t given);

#endif
