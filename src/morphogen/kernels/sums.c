/* Sums over the middle axis, in an order that does not depend on the number of columns. */

#include "kernels.h"

#define BLOCK 16 /* rows that are added up before their sum is added: errors stay small */

typedef struct {
    Size sets, rows, columns;
    const float *x;
    float *out;
} Sums;

WIDE static void add_rows(const Sums *k, Size set) {
    float block[WIDTH];
    for (Size at = 0; at < k->columns; at += WIDTH) {
        const Size lanes = k->columns - at < WIDTH ? k->columns - at : WIDTH;
        const float *from = k->x + set * k->rows * k->columns + at;
        float *restrict to = k->out + set * k->columns + at;
        LANES(lanes) to[i] = 0;
        for (Size first = 0; first < k->rows; first += BLOCK) {
            const Size last = first + BLOCK < k->rows ? first + BLOCK : k->rows;
            LANES(lanes) block[i] = 0;
            for (Size row = first; row < last; row++) {
                const float *restrict x = from + row * k->columns;
                LANES(lanes) block[i] += x[i];
            }
            LANES(lanes) to[i] += block[i];
        }
    }
}

PyObject *morphogen_sums(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[5];
    if (!morphogen_numbers(args, given, 5, n)) return NULL;
    const Sums k = {n[0], n[1], n[2], (float *)n[3], (float *)n[4]};
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.sets * k.rows * k.columns > SMALL)
    for (Size set = 0; set < k.sets; set++) add_rows(&k, set);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
