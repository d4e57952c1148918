/* Group normalisation, a lower limit and a scale: one pass forward, one back.

   A piece is a sample of a few rows, small enough to stay in the cache from its first read to its last write.  */

#include "kernels.h"

#define PIECE (384 << 10) /* bytes of a piece, about */

typedef struct {
    Size samples, pixels, rows, channels, groups, stride; /* stride: floats from one pixel of x to the next */
} Shape;

/* Rows that are worked on at a time. */
static Size rows_of_piece(const Shape *shape) {
    Size wide = PIECE / (Size)sizeof(float) / shape->pixels;
    wide = wide > WIDTH ? WIDTH : wide;
    Size rows = wide / shape->channels;
    return rows < 1 ? 1 : rows;
}

typedef struct {
    Shape shape;
    const float *x, *gain, *bias, *kept, *share, *scale; /* gain, kept, scale: NULL = 1 */
    float *out, *mean, *inverse;
    const float *grad;
    float *push, *sums; /* push: NULL = not asked for; sums: [3, samples, rows, channels] */
    float floor, eps;
} Norm;

INLINE void normalise(const Norm *k, Size b, Size first, Size last) {
    const Shape s = k->shape;
    const Size wide = (last - first) * s.channels, size = s.channels / s.groups, at = first * s.channels;
    const Size step = s.rows * s.channels;
    const float *restrict x = k->x + b * s.pixels * s.stride + at;
    float *restrict out = k->out + b * s.pixels * step + at;
    float sum[WIDTH], centre[WIDTH], slope[WIDTH], bias[WIDTH], scale[WIDTH];
    Size p = 0;

    memset(sum, 0, sizeof sum);
    for (; p + 4 <= s.pixels; p += 4) {
        const float *restrict a = x + p * s.stride, *restrict c = a + s.stride;
        const float *restrict d = c + s.stride, *restrict e = d + s.stride;
        for (Size i = 0; i < wide; i++) sum[i] += (a[i] + c[i]) + (d[i] + e[i]);
    }
    for (; p < s.pixels; p++)
        for (Size i = 0; i < wide; i++) sum[i] += x[p * s.stride + i];
    for (Size i = 0; i < wide; i += size) {
        const Size group = (at + i) / size;
        float total = 0;
        for (Size j = i; j < i + size; j++) total += sum[j];
        total *= k->share[group];
        k->mean[b * s.rows * s.groups + group] = total;
        for (Size j = i; j < i + size; j++) centre[j] = k->kept ? total * k->kept[at + j] : total;
    }

    memset(sum, 0, sizeof sum);
    for (p = 0; p + 4 <= s.pixels; p += 4) {
        const float *restrict a = x + p * s.stride, *restrict c = a + s.stride;
        const float *restrict d = c + s.stride, *restrict e = d + s.stride;
        for (Size i = 0; i < wide; i++) {
            const float m = centre[i], f = a[i] - m, g = c[i] - m, h = d[i] - m, l = e[i] - m;
            sum[i] += (f * f + g * g) + (h * h + l * l);
        }
    }
    for (; p < s.pixels; p++)
        for (Size i = 0; i < wide; i++) {
            const float f = x[p * s.stride + i] - centre[i];
            sum[i] += f * f;
        }
    for (Size i = 0; i < wide; i += size) {
        const Size group = (at + i) / size;
        float total = 0;
        for (Size j = i; j < i + size; j++) total += sum[j];
        const float inverse = 1.0f / sqrtf(total * k->share[group] + k->eps);
        k->inverse[b * s.rows * s.groups + group] = inverse;
        for (Size j = i; j < i + size; j++) slope[j] = k->gain ? inverse * k->gain[at + j] : inverse;
    }

    for (Size i = 0; i < wide; i++) bias[i] = k->bias[at + i];
    for (Size i = 0; i < wide; i++) scale[i] = k->scale ? k->scale[at + i] : 1.0f;
    for (p = 0; p < s.pixels; p++) {
        const float *restrict a = x + p * s.stride;
        float *restrict to = out + p * step;
        for (Size i = 0; i < wide; i++) {
            const float y = (a[i] - centre[i]) * slope[i] + bias[i];
            to[i] = (y < k->floor ? k->floor : y) * scale[i]; /* what is not a number stays so */
        }
    }
}

WIDE static void normalise_piece(const Norm *k, Size b, Size first, Size last) { normalise(k, b, first, last); }

INLINE void turn_back(const Norm *k, Size b, Size first, Size last) {
    const Shape s = k->shape;
    const Size wide = (last - first) * s.channels, size = s.channels / s.groups, at = first * s.channels;
    const Size step = s.rows * s.channels;
    const float *restrict x = k->x + b * s.pixels * s.stride + at;
    const float *restrict grad = k->grad + b * s.pixels * step + at;
    float level[WIDTH], tilt[WIDTH], gone[WIDTH], centre[WIDTH], slope[WIDTH], bias[WIDTH], scale[WIDTH];
    float flat[WIDTH], lean[WIDTH];

    for (Size i = 0; i < wide; i++) {
        const Size group = b * s.rows * s.groups + (at + i) / size;
        centre[i] = k->kept ? k->mean[group] * k->kept[at + i] : k->mean[group];
        slope[i] = k->gain ? k->inverse[group] * k->gain[at + i] : k->inverse[group];
        bias[i] = k->bias[at + i];
        scale[i] = k->scale ? k->scale[at + i] : 1.0f;
    }
    memset(level, 0, sizeof level);
    memset(tilt, 0, sizeof tilt);
    memset(gone, 0, sizeof gone);
    for (Size p = 0; p < s.pixels; p++) {
        const float *restrict a = x + p * s.stride, *restrict g = grad + p * step;
        for (Size i = 0; i < wide; i++) {
            const float off = a[i] - centre[i], y = off * slope[i] + bias[i];
            const float own = y <= k->floor ? 0.0f : g[i] * scale[i];
            level[i] += own;
            tilt[i] += own * off;
            gone[i] += g[i] * (y < k->floor ? k->floor : y);
        }
    }
    const Size all = s.samples * step;
    for (Size i = 0; i < wide; i += size) {
        const Size group = (at + i) / size;
        const float inverse = k->inverse[b * s.rows * s.groups + group];
        float down = 0, aside = 0;
        for (Size j = i; j < i + size; j++) {
            const float gain = k->gain ? k->gain[at + j] : 1.0f;
            down += level[j] * gain;
            aside += tilt[j] * gain;
            float *sums = k->sums + b * step + at + j;
            sums[0] = inverse * tilt[j];
            sums[all] = level[j];
            sums[2 * all] = gone[j];
        }
        down *= -inverse * k->share[group];
        aside *= -inverse * k->share[group] * inverse * inverse;
        for (Size j = i; j < i + size; j++) {
            const float kept = k->kept ? k->kept[at + j] : 1.0f;
            flat[j] = down * kept;
            lean[j] = aside * kept;
        }
    }
    if (!k->push) return;
    float *restrict push = k->push + b * s.pixels * step + at;
    for (Size p = 0; p < s.pixels; p++) {
        const float *restrict a = x + p * s.stride, *restrict g = grad + p * step;
        float *restrict to = push + p * step;
        for (Size i = 0; i < wide; i++) {
            const float off = a[i] - centre[i], y = off * slope[i] + bias[i];
            const float own = y <= k->floor ? 0.0f : g[i] * scale[i];
            to[i] = own * slope[i] + flat[i] + off * lean[i];
        }
    }
}

WIDE static void turn_back_piece(const Norm *k, Size b, Size first, Size last) { turn_back(k, b, first, last); }

static void run_norm(const Norm *k, void (*piece)(const Norm *, Size, Size, Size)) {
    const Shape s = k->shape;
    const Size rows = rows_of_piece(&s), pieces = (s.rows + rows - 1) / rows, total = s.samples * pieces;
#pragma omp parallel for schedule(static) if (s.samples * s.pixels * s.rows * s.channels > SMALL)
    for (Size n = 0; n < total; n++) {
        const Size first = n % pieces * rows, last = first + rows;
        piece(k, n / pieces, first, last < s.rows ? last : s.rows);
    }
}

PyObject *morphogen_norm(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[15];
    if (given != 17) return PyErr_Format(PyExc_TypeError, "takes 17 arguments, was given %zd", given);
    const double floor = PyFloat_AsDouble(args[15]), eps = PyFloat_AsDouble(args[16]);
    if (!morphogen_numbers(args, 15, 15, n)) return NULL;
    Norm k = {.shape = {n[9], n[10], n[11], n[12], n[13], n[14]}, .floor = (float)floor, .eps = (float)eps};
    k.x = (float *)n[0], k.gain = (float *)n[1], k.bias = (float *)n[2], k.kept = (float *)n[3];
    k.share = (float *)n[4], k.scale = (float *)n[5];
    k.out = (float *)n[6], k.mean = (float *)n[7], k.inverse = (float *)n[8];
    Py_BEGIN_ALLOW_THREADS;
    run_norm(&k, normalise_piece);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_norm_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[17];
    if (given != 18) return PyErr_Format(PyExc_TypeError, "takes 18 arguments, was given %zd", given);
    const double floor = PyFloat_AsDouble(args[17]);
    if (!morphogen_numbers(args, 17, 17, n)) return NULL;
    Norm k = {.shape = {n[11], n[12], n[13], n[14], n[15], n[16]}, .floor = (float)floor};
    k.grad = (float *)n[0], k.x = (float *)n[1], k.gain = (float *)n[2], k.bias = (float *)n[3];
    k.kept = (float *)n[4], k.share = (float *)n[5], k.scale = (float *)n[6];
    k.mean = (float *)n[7], k.inverse = (float *)n[8], k.push = (float *)n[9], k.sums = (float *)n[10];
    Py_BEGIN_ALLOW_THREADS;
    run_norm(&k, turn_back_piece);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
