/* Choosing rows. */

#include "kernels.h"

typedef struct {
    Size pixels, rows, channels, count; /* pixels: of all samples */
    const float *x;
    const int64_t *chosen; /* [count] */
    float *out;
} Take;

INLINE void copy_rows(const Take *k, Size p, const Size channels) {
    const float *from = k->x + p * k->rows * channels;
    float *to = k->out + p * k->count * channels;
    for (Size n = 0; n < k->count; n++) memcpy(to + n * channels, from + k->chosen[n] * channels, channels * sizeof *to);
}

BY_CHANNELS(copy_rows, Take)

PyObject *morphogen_take(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[7];
    if (!morphogen_numbers(args, given, 7, n)) return NULL;
    const Take k = {n[0], n[1], n[2], n[3], (float *)n[4], (int64_t *)n[5], (float *)n[6]};
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.pixels * k.count * k.channels > SMALL)
    for (Size p = 0; p < k.pixels; p++) copy_rows_of(&k, p);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
