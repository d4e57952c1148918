/* Group normalisation, a lower limit and a scale: one pass forward, one back.

   A piece is a sample of some rows, read pixel by pixel.  It is as wide as may be: where it is narrow, each line of memory
   is fetched again for the next piece, and a batch that is normalised as one sample is read line by line, page by page. */

#include "kernels.h"

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_max_threads() 1
#endif

typedef struct {
    Size samples, pixels, rows, channels, groups, stride; /* stride: floats from one pixel of x to the next */
} Shape;

INLINE int is_far(const Shape *s) {
    return s->samples * s->pixels * s->rows * s->channels * (Size)sizeof(float) > FAR;
}

/* Rows of a piece: WIDTH holds their channels, and every thread has a piece. */
static Size rows_of_piece(const Shape *s) {
    const Size most = WIDTH / s->channels, threads = omp_get_max_threads();
    const Size by_width = (s->rows + most - 1) / most, by_threads = (threads + s->samples - 1) / s->samples;
    const Size pieces = by_width > by_threads ? by_width : by_threads;
    return (s->rows + pieces - 1) / pieces;
}

typedef struct {
    Shape shape;
    const float *x, *gain, *bias, *kept, *share, *scale; /* gain, kept, scale: NULL = 1; share: NULL = no mask */
    float *out, *mean, *inverse;
    const float *grad;
    float *push, *sums; /* push: gradient of x, NULL = not needed; sums: [3, samples, rows, channels] */
    float floor, eps;
} Norm;

/* Steps through a piece, pixel by pixel.  The order of every sum is that of the pixels, so that no result of a network
   depends on the networks beside it. */
typedef struct {
    Size lanes, steps, in, out; /* lanes: floats at a time; in, out: floats between two steps */
} Walk;

static Walk walk_of(const Shape *s, Size rows) {
    return (Walk){rows * s->channels, s->pixels, s->stride, s->rows * s->channels};
}

/* Sums over a piece; four steps at a time, or the sums would be read and written more often than x. */
INLINE void sums_of(const float *restrict x, const Walk *w, float *restrict sum) {
    Size p = 0;
    LANES(w->lanes) sum[i] = 0;
    for (; p + 4 <= w->steps; p += 4) {
        const float *restrict a = x + p * w->in, *restrict c = a + w->in;
        const float *restrict d = c + w->in, *restrict e = d + w->in;
        LANES(w->lanes) sum[i] += (a[i] + c[i]) + (d[i] + e[i]);
    }
    for (; p < w->steps; p++)
        LANES(w->lanes) sum[i] += x[p * w->in + i];
}

INLINE void squares_of(const float *restrict x, const Walk *w, const float *restrict centre, float *restrict sum) {
    Size p = 0;
    LANES(w->lanes) sum[i] = 0;
    for (; p + 4 <= w->steps; p += 4) {
        const float *restrict a = x + p * w->in, *restrict c = a + w->in;
        const float *restrict d = c + w->in, *restrict e = d + w->in;
        LANES(w->lanes) {
            const float m = centre[i], f = a[i] - m, g = c[i] - m, h = d[i] - m, l = e[i] - m;
            sum[i] += (f * f + g * g) + (h * h + l * l);
        }
    }
    for (; p < w->steps; p++)
        LANES(w->lanes) {
            const float f = x[p * w->in + i] - centre[i];
            sum[i] += f * f;
        }
}

/* Affine map of the channels of a piece. */
typedef struct {
    float centre[WIDTH], slope[WIDTH], bias[WIDTH], scale[WIDTH];
} Affine;

INLINE void affine_of(const Norm *k, const Walk *w, Size b, Size at, Affine *found) {
    const Shape *s = &k->shape;
    const Size size = s->channels / s->groups;
    for (Size i = 0; i < w->lanes; i++) {
        const Size group = b * s->rows * s->groups + (at + i) / size;
        found->centre[i] = k->kept ? k->mean[group] * k->kept[at + i] : k->mean[group];
        found->slope[i] = k->gain ? k->inverse[group] * k->gain[at + i] : k->inverse[group];
        found->bias[i] = k->bias[at + i];
        found->scale[i] = k->scale ? k->scale[at + i] : 1.0f;
    }
}

/* Sum of a group's channels, times the weight of an element. */
INLINE float group_of(const Norm *k, const float *sums, Size first, Size group) {
    const Size size = k->shape.channels / k->shape.groups;
    float total = 0;
    for (Size i = first; i < first + size; i++) total += sums[i];
    return total * (k->share ? k->share[group] : 1.0f / (float)(size * k->shape.pixels));
}

INLINE void normalise(const Norm *k, Size b, Size first, Size last) {
    const Shape s = k->shape;
    const Walk w = walk_of(&s, last - first);
    const Size size = s.channels / s.groups, at = first * s.channels, group = b * s.rows * s.groups + at / size;
    const float *restrict x = k->x + b * s.pixels * s.stride + at;
    float *restrict out = k->out + b * s.pixels * s.rows * s.channels + at;
    const int far = is_far(&s);
    float sum[WIDTH], to[WIDTH];
    Affine f;

    sums_of(x, &w, sum);
    for (Size i = 0, g = group; i < w.lanes; i += size, g++) k->mean[g] = group_of(k, sum, i, (at + i) / size);
    for (Size i = 0; i < w.lanes; i++) f.centre[i] = k->mean[group + i / size] * (k->kept ? k->kept[at + i] : 1.0f);
    squares_of(x, &w, f.centre, sum);
    for (Size i = 0, g = group; i < w.lanes; i += size, g++)
        k->inverse[g] = 1.0f / sqrtf(group_of(k, sum, i, (at + i) / size) + k->eps);
    affine_of(k, &w, b, at, &f);
    for (Size p = 0; p < w.steps; p++) {
        const float *restrict a = x + p * w.in;
        LANES(w.lanes) {
            const float y = (a[i] - f.centre[i]) * f.slope[i] + f.bias[i];
            to[i] = (y < k->floor ? k->floor : y) * f.scale[i]; /* NaN stays NaN */
        }
        stream(out + p * w.out, to, w.lanes, far);
    }
    fence(far);
}

WIDE static void normalise_piece(const Norm *k, Size b, Size first, Size last) { normalise(k, b, first, last); }

/* Per channel: sums of the gradient, of gradient times centred x, and of gradient times the value before the scale. */
INLINE void slopes_of(const Norm *k, const float *restrict x, const float *restrict grad, const Walk *w, const Affine *f,
                      float *restrict level, float *restrict tilt, float *restrict above) {
    LANES(w->lanes) level[i] = tilt[i] = above[i] = 0;
    for (Size p = 0; p < w->steps; p++) {
        const float *restrict a = x + p * w->in, *restrict g = grad + p * w->out;
        LANES(w->lanes) {
            const float off = a[i] - f->centre[i], y = off * f->slope[i] + f->bias[i];
            const float own = y <= k->floor ? 0.0f : g[i] * f->scale[i];
            level[i] += own;
            tilt[i] += own * off;
            above[i] += g[i] * (y < k->floor ? k->floor : y);
        }
    }
}

INLINE void turn_back(const Norm *k, Size b, Size first, Size last) {
    const Shape s = k->shape;
    const Walk w = walk_of(&s, last - first);
    const Size size = s.channels / s.groups, at = first * s.channels, step = s.rows * s.channels;
    const float *restrict x = k->x + b * s.pixels * s.stride + at;
    const float *restrict grad = k->grad + b * s.pixels * step + at;
    const int far = is_far(&s);
    float level[WIDTH], tilt[WIDTH], above[WIDTH], flat[WIDTH], lean[WIDTH], to[WIDTH];
    Affine f;

    affine_of(k, &w, b, at, &f);
    slopes_of(k, x, grad, &w, &f, level, tilt, above);
    float *sums = k->sums + b * step + at;
    for (Size i = 0; i < w.lanes; i++) {
        sums[i] = k->inverse[(b * step + at + i) / size] * tilt[i];
        sums[s.samples * step + i] = level[i];
        sums[2 * s.samples * step + i] = above[i];
    }
    if (!k->push) return;
    for (Size i = 0; k->gain && i < w.lanes; i++) level[i] *= k->gain[at + i], tilt[i] *= k->gain[at + i];
    for (Size i = 0; i < w.lanes; i += size) {
        const float inverse = k->inverse[(b * step + at + i) / size];
        const float down = -inverse * group_of(k, level, i, (at + i) / size);
        const float aside = -inverse * group_of(k, tilt, i, (at + i) / size) * inverse * inverse;
        for (Size j = i; j < i + size; j++) {
            flat[j] = k->kept ? down * k->kept[at + j] : down;
            lean[j] = k->kept ? aside * k->kept[at + j] : aside;
        }
    }
    float *restrict push = k->push + b * s.pixels * step + at;
    for (Size p = 0; p < w.steps; p++) {
        const float *restrict a = x + p * w.in, *restrict g = grad + p * w.out;
        LANES(w.lanes) {
            const float off = a[i] - f.centre[i], y = off * f.slope[i] + f.bias[i];
            const float own = y <= k->floor ? 0.0f : g[i] * f.scale[i];
            to[i] = own * f.slope[i] + flat[i] + off * lean[i];
        }
        stream(push + p * w.out, to, w.lanes, far);
    }
    fence(far);
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

/* Set the addresses of the statistics: the mean, then 1 / deviation. */
static void point(Norm *k, Size found) {
    k->mean = (float *)found;
    k->inverse = k->mean + k->shape.samples * k->shape.rows * k->shape.groups;
}

PyObject *morphogen_norm(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[14];
    if (given != 16) return PyErr_Format(PyExc_TypeError, "takes 16 arguments, was given %zd", given);
    const double floor = PyFloat_AsDouble(args[14]), eps = PyFloat_AsDouble(args[15]);
    if (!morphogen_numbers(args, 14, 14, n)) return NULL;
    Norm k = {.shape = {n[8], n[9], n[10], n[11], n[12], n[13]}, .floor = (float)floor, .eps = (float)eps};
    k.x = (float *)n[0], k.gain = (float *)n[1], k.bias = (float *)n[2], k.kept = (float *)n[3];
    k.share = (float *)n[4], k.scale = (float *)n[5], k.out = (float *)n[6];
    point(&k, n[7]);
    Py_BEGIN_ALLOW_THREADS;
    run_norm(&k, normalise_piece);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_norm_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[16];
    if (given != 17) return PyErr_Format(PyExc_TypeError, "takes 17 arguments, was given %zd", given);
    const double floor = PyFloat_AsDouble(args[16]);
    if (!morphogen_numbers(args, 16, 16, n)) return NULL;
    Norm k = {.shape = {n[10], n[11], n[12], n[13], n[14], n[15]}, .floor = (float)floor};
    k.grad = (float *)n[0], k.x = (float *)n[1], k.gain = (float *)n[2], k.bias = (float *)n[3];
    k.kept = (float *)n[4], k.share = (float *)n[5], k.scale = (float *)n[6];
    k.push = (float *)n[8], k.sums = (float *)n[9];
    point(&k, n[7]);
    Py_BEGIN_ALLOW_THREADS;
    run_norm(&k, turn_back_piece);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
