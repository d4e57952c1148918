/* Copies of chosen rows of activations. */

#include "kernels.h"

typedef struct {
    Size pixels, rows, channels, count; /* pixels: of all samples */
    const float *x;
    const int64_t *chosen; /* [count] */
    Lane *out;             /* [count] */
} Take;

INLINE void copy_rows(const Take *k, Size p, const Size channels) {
    const float *from = k->x + p * k->rows * channels;
    for (Size n = 0; n < k->count; n++)
        memcpy(k->out[n].at + p * k->out[n].stride, from + k->chosen[n] * channels, channels * sizeof *from);
}

BY_CHANNELS(copy_rows, Take)

PyObject *morphogen_take(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[6];
    if (!morphogen_numbers(args, given - 1, 6, n)) return NULL;
    if (!morphogen_within((int64_t *)n[5], n[3], n[1])) return NULL;
    Lane *out = PyMem_Malloc((n[3] + 1) * sizeof *out);
    if (!out) return PyErr_NoMemory();
    const Take k = {n[0], n[1], n[2], n[3], (float *)n[4], (int64_t *)n[5], out};
    if (morphogen_lanes(args[6], k.count, k.channels, out)) {
        Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.pixels * k.count * k.channels > SMALL)
        for (Size p = 0; p < k.pixels; p++) copy_rows_of(&k, p);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(out);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}
