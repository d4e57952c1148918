/* Max pooling 2x2. */

#include "kernels.h"

typedef struct {
    Size samples, height, width, wide; /* wide: rows * channels */
    const float *x;
    float *out;
    uint8_t *argmax;
} Pool;

INLINE void pool(const Pool *k, Size b, Size line) {
    const Size half = k->width / 2, lines = k->height / 2, step = k->wide;
    const float *x = k->x + (b * k->height + 2 * line) * k->width * step;
    for (Size j = 0; j < half; j++) {
        const Size to = ((b * lines + line) * half + j) * step;
        const float *a = x + 2 * j * step, *c = a + k->width * step;
        largest(a, a + step, c, c + step, k->out + to, k->argmax + to, step);
    }
}

WIDE static void pool_line(const Pool *k, Size b, Size line) { pool(k, b, line); }

/* `out` is the incoming gradient, `x` the result. */
INLINE void unpool(const Pool *k, Size b, Size line) {
    const Size half = k->width / 2, lines = k->height / 2, step = k->wide;
    const int far = k->samples * k->height * k->width * step * (Size)sizeof(float) > FAR;
    float *x = (float *)k->x + (b * k->height + 2 * line) * k->width * step;
    float own[4][TILE];
    for (Size j = 0; j < half; j++)
        for (Size first = 0; first < step; first += TILE) {
            const Size from = ((b * lines + line) * half + j) * step + first;
            const Size count = step - first < TILE ? step - first : TILE;
            unpool_row(k->out + from, k->argmax + from, own[0], own[1], own[2], own[3], count);
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
    Pool k = {n[3], n[4], n[5], n[6], (float *)n[0], (float *)n[1], (uint8_t *)n[2]};
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
