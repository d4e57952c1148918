/* Rows of features with mean 0 and variance 1. */

#include "kernels.h"

#define LANE 8 /* floats that are added side by side: the order of a sum depends on the size of a row alone */

typedef float Vector __attribute__((vector_size(LANE * sizeof(float)), aligned(sizeof(float)), may_alias));

#define AT(from) (*(Vector *)(from))

typedef struct {
    Size rows, size;
    const float *x, *grad; /* backward: x is standardised */
    float *out, *mean, *inverse;
    float eps;
} Rows;

INLINE float total(Vector x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

WIDE static void standardise(const Rows *k, Size row) {
    const Size size = k->size, whole = size / LANE * LANE;
    const float *x = k->x + row * size;
    float *out = k->out + row * size;
    Vector sums = {0}, squares = {0};
    for (Size i = 0; i < whole; i += LANE) sums += AT(x + i);
    float sum = total(sums), square = 0.0f;
    for (Size i = whole; i < size; i++) sum += x[i];
    const float mean = sum / (float)size;
    for (Size i = 0; i < whole; i += LANE) squares += (AT(x + i) - mean) * (AT(x + i) - mean);
    for (Size i = whole; i < size; i++) square += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / sqrtf((total(squares) + square) / (float)size + k->eps);
    LANES(size) out[i] = (x[i] - mean) * inverse;
    k->mean[row] = mean, k->inverse[row] = inverse;
}

WIDE static void standardise_back(const Rows *k, Size row) {
    const Size size = k->size, whole = size / LANE * LANE;
    const float *x = k->x + row * size, *grad = k->grad + row * size;
    float *out = k->out + row * size;
    Vector sums = {0}, products = {0};
    for (Size i = 0; i < whole; i += LANE) sums += AT(grad + i), products += AT(grad + i) * AT(x + i);
    float sum = total(sums), product = total(products);
    for (Size i = whole; i < size; i++) sum += grad[i], product += grad[i] * x[i];
    const float level = sum / (float)size, tilt = product / (float)size, inverse = k->inverse[row];
    LANES(size) out[i] = (grad[i] - level - x[i] * tilt) * inverse;
}

static PyObject *run(PyObject *const *args, Py_ssize_t given, void (*work)(const Rows *, Size)) {
    Size n[7];
    if (given != 8) return PyErr_Format(PyExc_TypeError, "takes 8 arguments, was given %zd", given);
    const double eps = PyFloat_AsDouble(args[7]);
    if (!morphogen_numbers(args, 7, 7, n)) return NULL;
    const Rows k = {n[0], n[1], (float *)n[2], (float *)n[3], (float *)n[4], (float *)n[5], (float *)n[6], (float)eps};
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.rows * k.size > SMALL)
    for (Size row = 0; row < k.rows; row++) work(&k, row);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_standardise(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return run(args, given, standardise);
}

PyObject *morphogen_standardise_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return run(args, given, standardise_back);
}
