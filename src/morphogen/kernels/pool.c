/* Max pooling 2x2. */

#include "kernels.h"

typedef struct {
    Size samples, height, width, wide; /* wide: rows * channels */
    const float *x;
    float *out;
    int32_t *winner;
} Pool;

INLINE void pool(const Pool *k, Size b, Size line) {
    const Size half = k->width / 2, lines = k->height / 2, step = k->wide;
    const float *x = k->x + (b * k->height + 2 * line) * k->width * step;
    for (Size j = 0; j < half; j++) {
        const Size to = ((b * lines + line) * half + j) * step;
        const float *restrict a = x + 2 * j * step, *restrict c = a + step;
        const float *restrict d = a + k->width * step, *restrict e = d + step;
        float *restrict out = k->out + to;
        int32_t *restrict winner = k->winner + to;
        LANES(step) {
            const float f = a[i], g = c[i], h = d[i], l = e[i];
            const int32_t one = (g > f) | (g != g); /* the first of the largest, or the last that is no number */
            const float top = one ? g : f;
            const int32_t two = (h > top) | (h != h);
            const float left = two ? h : top;
            const int32_t three = (l > left) | (l != l);
            const float best = three ? l : left;
            const int32_t place = three ? 3 : two ? 2 : one;
            out[i] = best;
            winner[i] = place;
        }
    }
}

WIDE static void pool_line(const Pool *k, Size b, Size line) { pool(k, b, line); }

#define TILE 512 /* floats that are worked on at a time */

/* `out` is the gradient that came, `x` what is written. */
INLINE void unpool(const Pool *k, Size b, Size line) {
    const Size half = k->width / 2, lines = k->height / 2, step = k->wide;
    const int far = k->samples * k->height * k->width * step * (Size)sizeof(float) > FAR;
    float *x = (float *)k->x + (b * k->height + 2 * line) * k->width * step;
    float own[4][TILE];
    for (Size j = 0; j < half; j++)
        for (Size first = 0; first < step; first += TILE) {
            const Size from = ((b * lines + line) * half + j) * step + first, count = step - first < TILE ? step - first : TILE;
            const float *restrict grad = k->out + from;
            const int32_t *restrict winner = k->winner + from;
            LANES(count) {
                for (int32_t place = 0; place < 4; place++) own[place][i] = winner[i] == place ? grad[i] : 0.0f;
            }
            float *to = x + 2 * j * step + first;
            stream(to, own[0], count, far), stream(to + step, own[1], count, far);
            to += k->width * step;
            stream(to, own[2], count, far), stream(to + step, own[3], count, far);
        }
    fence(far);
}

WIDE static void unpool_line(const Pool *k, Size b, Size line) { unpool(k, b, line); }

static void run_pool(const Pool *k, void (*work)(const Pool *, Size, Size)) {
    const Size lines = k->height / 2, total = k->samples * lines;
#pragma omp parallel for schedule(static) if (total * 2 * k->width * k->wide > SMALL)
    for (Size n = 0; n < total; n++) work(k, n / lines, n % lines);
}

static PyObject *pooled(PyObject *const *args, Py_ssize_t given, void (*work)(const Pool *, Size, Size)) {
    Size n[7];
    if (!morphogen_numbers(args, given, 7, n)) return NULL;
    Pool k = {n[3], n[4], n[5], n[6], (float *)n[0], (float *)n[1], (int32_t *)n[2]};
    Py_BEGIN_ALLOW_THREADS;
    run_pool(&k, work);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_pool(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return pooled(args, given, pool_line);
}

PyObject *morphogen_pool_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return pooled(args, given, unpool_line);
}
