/* Blending the seeds of a slot into the features: one pass forward, one back.

   At most one seed changes a row: it adds its delta, or the row times the tanh of its delta.  */

#include "kernels.h"

typedef struct {
    Size samples, pixels, rows, channels, seeds;
    const int64_t *source; /* [rows], seed that is blended into a row; seeds = no seed */
    const int64_t *seed_row;  /* [seeds], the row of a seed */
    const float *factor;  /* [seeds], or [samples, seeds] */
    Size apart;           /* floats from the factors of one sample to those of the next; 0 = the same for all */
    const float *features;
    float *out;        /* forward: features; backward: gradient of the input features, NULL = equal to `grad` */
    const float *grad; /* backward */
    const int64_t *gates; /* [gated], backward: seeds with a gate */
    float *sums;          /* backward: [samples, gated, channels], gradient times delta */
    Size gated;
    Size height, width; /* of features that are pooled 2x2 afterwards; 0 = no pooling */
    uint8_t *argmax;    /* position in the pool, from `largest` */
    Lane *deltas;      /* [seeds] */
    Lane *tanh_delta;      /* [seeds], tanh of the delta of a seed that multiplies; NULL = it adds */
    Lane *grads;      /* [seeds], backward: the gradient of every delta */
} Blend;

/* Rational function, exact to a few units in the last source; constant beyond the limits. */
INLINE float tanh_of(float x) {
    float near = x > 7.90531110763549805f ? 7.90531110763549805f : x;
    near = near < -7.90531110763549805f ? -7.90531110763549805f : near; /* NaN stays NaN */
    const float s = near * near;
    float above = -2.76076847742355e-16f, below = 1.19825839466702e-06f;
    above = above * s + 2.00018790482477e-13f;
    above = above * s + -8.60467152213735e-11f;
    above = above * s + 5.12229709037114e-08f;
    above = above * s + 1.48572235717979e-05f;
    above = above * s + 6.37261928875436e-04f;
    above = above * s + 4.89352455891786e-03f;
    below = below * s + 1.18534705686654e-04f;
    below = below * s + 2.26843463243900e-03f;
    below = below * s + 4.89352518554385e-03f;
    return near * above / below;
}

#define PIECE (1 << 14) /* floats of features per piece */

INLINE int is_far(const Blend *k) {
    return k->samples * k->pixels * k->rows * k->channels * (Size)sizeof(float) > FAR;
}

/* Blend pixels [first, last) into `own`, row by row, so that branches are taken once per row. */
INLINE void blend_piece(const Blend *k, Size b, Size first, Size last, float *restrict own, const Size channels) {
    const Size wide = k->rows * channels;
    const float *factor = k->factor + b * k->apart;
    for (Size n = 0; n < k->seeds; n++) {
        const Lane delta = k->deltas[n], tanh_delta = k->tanh_delta[n];
        for (Size p = first; tanh_delta.at && p < last; p++) {
            const float *restrict from = delta.at + p * delta.stride;
            float *restrict to = tanh_delta.at + p * tanh_delta.stride;
            LANES(channels) to[i] = tanh_of(from[i]);
        }
    }
    memcpy(own, k->features + first * wide, (last - first) * wide * sizeof(float));
    for (Size r = 0; r < k->rows; r++) {
        const Size seed = k->source[r];
        if (seed >= k->seeds) continue;
        const int multiplies = k->tanh_delta[seed].at != NULL;
        const Lane delta = multiplies ? k->tanh_delta[seed] : k->deltas[seed];
        const float share = factor[seed];
        for (Size p = first; p < last; p++) {
            const float *restrict from = delta.at + p * delta.stride;
            float *restrict to = own + (p - first) * wide + r * channels;
            LANES(channels) to[i] += share * (multiplies ? from[i] * to[i] : from[i]);
        }
    }
}

/* Gradient of the delta of one seed, from `grad` of pixels [first, last). */
INLINE void push_seed(const Blend *k, Size b, Size n, Size first, Size last, const float *grad, const Size channels) {
    const Size wide = k->rows * channels, row = k->seed_row[n] * channels;
    const float share = k->factor[b * k->apart + n];
    const Lane push = k->grads[n], tanh_delta = k->tanh_delta[n];
    for (Size p = first; p < last; p++) {
        const float *restrict from = grad + (p - first) * wide + row;
        float *restrict to = push.at + p * push.stride;
        if (tanh_delta.at) {
            const float *restrict base = k->features + p * wide + row;
            const float *restrict slope = tanh_delta.at + p * tanh_delta.stride;
            LANES(channels) to[i] = share * from[i] * base[i] * (1.0f - slope[i] * slope[i]);
        } else
            LANES(channels) to[i] = share * from[i];
    }
}

/* Gradients of all deltas. */
INLINE void push_piece(const Blend *k, Size b, Size first, Size last, const float *grad, const Size channels) {
    const Size wide = k->rows * channels;
    for (Size n = 0; n < k->seeds; n++) push_seed(k, b, n, first, last, grad, channels);
    for (Size g = 0; g < k->gated; g++) {
        const Size n = k->gates[g];
        float *restrict to = k->sums + (b * k->gated + g) * channels;
        for (Size p = first; p < last; p++) {
            const float *restrict from = grad + (p - first) * wide + k->seed_row[n] * channels;
            const float *restrict delta = k->deltas[n].at + p * k->deltas[n].stride;
            LANES(channels) to[i] += from[i] * delta[i];
        }
    }
}

/* Gradient of the input features. */
INLINE void pull_piece(const Blend *k, Size b, Size first, Size last, float *own, const Size channels) {
    const Size wide = k->rows * channels;
    for (Size r = 0; r < k->rows; r++) {
        const Size seed = k->source[r];
        if (seed >= k->seeds || !k->tanh_delta[seed].at) continue;
        const Lane tanh_delta = k->tanh_delta[seed];
        const float share = k->factor[b * k->apart + seed];
        for (Size p = first; p < last; p++) {
            const float *restrict slope = tanh_delta.at + p * tanh_delta.stride;
            float *restrict to = own + (p - first) * wide + r * channels;
            LANES(channels) to[i] += share * (to[i] * slope[i]);
        }
    }
}

/* Blend a sample, piece by piece. */
INLINE void blend_rows(const Blend *k, Size b, const Size channels) {
    const Size wide = k->rows * channels, end = (b + 1) * k->pixels, many = wide < PIECE ? PIECE / wide : 1;
    const int far = is_far(k);
    float piece[PIECE];
    for (Size first = b * k->pixels; first < end; first += many) {
        const Size last = first + many < end ? first + many : end;
        float *own = wide > PIECE ? k->out + first * wide : piece;
        blend_piece(k, b, first, last, own, channels);
        if (own == piece) stream(k->out + first * wide, own, (last - first) * wide, far);
    }
    fence(far);
}

INLINE void push_rows(const Blend *k, Size b, const Size channels) {
    const Size wide = k->rows * channels, end = (b + 1) * k->pixels, many = wide < PIECE ? PIECE / wide : 1;
    const int far = is_far(k);
    float piece[PIECE];
    for (Size i = 0; i < k->gated * channels; i++) k->sums[b * k->gated * channels + i] = 0;
    for (Size first = b * k->pixels; first < end; first += many) {
        const Size last = first + many < end ? first + many : end;
        push_piece(k, b, first, last, k->grad + first * wide, channels);
        if (!k->out) continue;
        float *own = wide > PIECE ? k->out + first * wide : piece;
        memcpy(own, k->grad + first * wide, (last - first) * wide * sizeof(float));
        pull_piece(k, b, first, last, own, channels);
        if (own == piece) stream(k->out + first * wide, own, (last - first) * wide, far);
    }
    fence(far);
}

/* Blend and pool a sample: pieces of two lines. */
INLINE void blend_pooled(const Blend *k, Size b, const Size channels) {
    const Size wide = k->rows * channels, most = PIECE / (4 * wide) * 2;
    float piece[PIECE];
    for (Size line = 0; line < k->height; line += 2)
        for (Size column = 0; column < k->width; column += most) {
            const Size many = k->width - column < most ? k->width - column : most;
            const Size first = b * k->pixels + line * k->width + column, below = first + k->width;
            float *lower = piece + many * wide;
            blend_piece(k, b, first, first + many, piece, channels);
            blend_piece(k, b, below, below + many, lower, channels);
            Size to = (b * k->pixels / 4 + (line / 2 * k->width + column) / 2) * wide;
            for (Size j = 0; j < many; j += 2, to += wide) {
                const float *above = piece + j * wide, *under = lower + j * wide;
                largest(above, above + wide, under, under + wide, k->out + to, k->argmax + to, wide);
            }
        }
}

INLINE void push_pooled(const Blend *k, Size b, const Size channels) {
    const Size wide = k->rows * channels, most = PIECE / (4 * wide) * 2;
    const int far = is_far(k);
    float piece[PIECE];
    for (Size i = 0; i < k->gated * channels; i++) k->sums[b * k->gated * channels + i] = 0;
    for (Size line = 0; line < k->height; line += 2)
        for (Size column = 0; column < k->width; column += most) {
            const Size many = k->width - column < most ? k->width - column : most;
            const Size first = b * k->pixels + line * k->width + column, below = first + k->width;
            float *lower = piece + many * wide;
            Size from = (b * k->pixels / 4 + (line / 2 * k->width + column) / 2) * wide;
            for (Size j = 0; j < many; j += 2, from += wide) {
                float *above = piece + j * wide, *under = lower + j * wide;
                unpool_row(k->grad + from, k->argmax + from, above, above + wide, under, under + wide, wide);
            }
            push_piece(k, b, first, first + many, piece, channels);
            push_piece(k, b, below, below + many, lower, channels);
            pull_piece(k, b, first, first + many, piece, channels);
            pull_piece(k, b, below, below + many, lower, channels);
            stream(k->out + first * wide, piece, many * wide, far);
            stream(k->out + below * wide, lower, many * wide, far);
        }
    fence(far);
}

BY_CHANNELS(blend_rows, Blend)
BY_CHANNELS(push_rows, Blend)
BY_CHANNELS(blend_pooled, Blend)
BY_CHANNELS(push_pooled, Blend)

static void run(const Blend *k, void (*work)(const Blend *, Size)) {
#pragma omp parallel for schedule(static) if (k->samples * k->pixels * k->rows * k->channels > SMALL)
    for (Size b = 0; b < k->samples; b++) work(k, b);
}

/* Read the spans of seeds that multiply, (first, last + 1); 0 after an error. */
static int multiplied(PyObject *spans, float *tanh_delta, const Blend *k) {
    Size m = 0;
    for (Size n = 0; n < k->seeds; n++) k->tanh_delta[n] = (Lane){NULL, 0};
    for (Py_ssize_t i = 0; i + 1 < PyTuple_Size(spans); i += 2) {
        const Size first = PyLong_AsSsize_t(PyTuple_GetItem(spans, i));
        const Size last = PyLong_AsSsize_t(PyTuple_GetItem(spans, i + 1));
        for (Size n = first; n < last && n < k->seeds; n++) k->tanh_delta[n].at = tanh_delta + m++ * k->channels;
    }
    for (Size n = 0; n < k->seeds; n++) k->tanh_delta[n].stride = m * k->channels;
    return !PyErr_Occurred();
}

static PyObject *blended(Blend *k, PyObject *const *tuples, float *tanh_delta, void (*work)(const Blend *, Size)) {
    Lane *all = PyMem_Calloc(3 * k->seeds + 1, sizeof(Lane));
    if (!all) return PyErr_NoMemory();
    k->deltas = all, k->tanh_delta = all + k->seeds, k->grads = all + 2 * k->seeds;
    const int ready = morphogen_lanes(tuples[0], k->seeds, k->channels, k->deltas) &&
                      multiplied(tuples[1], tanh_delta, k) &&
                      morphogen_lanes(tuples[2], k->seeds, k->channels, k->grads);
    if (ready) {
        Py_BEGIN_ALLOW_THREADS;
        run(k, work);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(all);
    if (!ready) return NULL;
    Py_RETURN_NONE;
}

static int blend_of(PyObject *const *args, Py_ssize_t given, Blend *k, float **tanh_delta) {
    Size n[19];
    if (!morphogen_numbers(args, given - 3, 19, n)) return 0;
    *k = (Blend){n[0], n[1], n[2], n[3], n[4], (int64_t *)n[5], (int64_t *)n[6], (float *)n[7], n[8]};
    k->features = (float *)n[9], k->out = (float *)n[10], k->grad = (float *)n[11];
    k->gates = (int64_t *)n[12], k->gated = n[13], k->sums = (float *)n[14];
    if (!morphogen_within(k->source, k->rows, k->seeds + 1)) return 0;
    if (!morphogen_within(k->seed_row, k->seeds, k->rows)) return 0;
    if (!morphogen_within(k->gates, k->gated, k->seeds)) return 0;
    *tanh_delta = (float *)n[15], k->height = n[16], k->width = n[17], k->argmax = (uint8_t *)n[18];
    return 1;
}

PyObject *morphogen_blend(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Blend k;
    float *tanh_delta;
    if (!blend_of(args, given, &k, &tanh_delta)) return NULL;
    return blended(&k, args + 19, tanh_delta, k.width ? blend_pooled_of : blend_rows_of);
}

PyObject *morphogen_blend_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Blend k;
    float *tanh_delta;
    if (!blend_of(args, given, &k, &tanh_delta)) return NULL;
    return blended(&k, args + 19, tanh_delta, k.width ? push_pooled_of : push_rows_of);
}
