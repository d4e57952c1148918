/* Two linear layers with a SiLU between them, of many small networks. */

#include "kernels.h"

typedef struct {
    Size samples, rows, inputs, hidden, outputs;
    const float *x, *w1, *b1, *w2, *b2; /* b1: NULL = 0 */
    float *z, *out;                     /* [samples, rows, hidden], before the SiLU; [samples, rows, outputs] */
    const float *grad;
    float *g1, *gb1, *g2, *gb2; /* gradients of the parameters */
} Perceptron;

INLINE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

INLINE void think(const Perceptron *k, Size r) {
    const float *w1 = k->w1 + r * k->hidden * k->inputs, *w2 = k->w2 + r * k->outputs * k->hidden;
    for (Size b = 0; b < k->samples; b++) {
        const Size at = b * k->rows + r;
        const float *x = k->x + at * k->inputs;
        float *out = k->out + at * k->outputs;
        for (Size o = 0; o < k->outputs; o++) out[o] = k->b2[r * k->outputs + o];
        for (Size h = 0; h < k->hidden; h++) {
            float z = k->b1 ? k->b1[r * k->hidden + h] : 0.0f;
            for (Size i = 0; i < k->inputs; i++) z += w1[h * k->inputs + i] * x[i];
            k->z[at * k->hidden + h] = z;
            const float y = z * sigmoid(z);
            for (Size o = 0; o < k->outputs; o++) out[o] += w2[o * k->hidden + h] * y;
        }
    }
}

INLINE void rethink(const Perceptron *k, Size r) {
    const float *w2 = k->w2 + r * k->outputs * k->hidden;
    float *g1 = k->g1 + r * k->hidden * k->inputs, *g2 = k->g2 + r * k->outputs * k->hidden;
    float *gb1 = k->gb1 + r * k->hidden, *gb2 = k->gb2 + r * k->outputs;
    for (Size i = 0; i < k->hidden * k->inputs; i++) g1[i] = 0;
    for (Size i = 0; i < k->outputs * k->hidden; i++) g2[i] = 0;
    for (Size i = 0; i < k->hidden; i++) gb1[i] = 0;
    for (Size i = 0; i < k->outputs; i++) gb2[i] = 0;
    for (Size b = 0; b < k->samples; b++) {
        const Size at = b * k->rows + r;
        const float *x = k->x + at * k->inputs, *grad = k->grad + at * k->outputs;
        for (Size o = 0; o < k->outputs; o++) gb2[o] += grad[o];
        for (Size h = 0; h < k->hidden; h++) {
            const float z = k->z[at * k->hidden + h], s = sigmoid(z);
            float back = 0;
            for (Size o = 0; o < k->outputs; o++) {
                back += grad[o] * w2[o * k->hidden + h];
                g2[o * k->hidden + h] += grad[o] * z * s;
            }
            back *= s * (1.0f + z * (1.0f - s));
            gb1[h] += back;
            for (Size i = 0; i < k->inputs; i++) g1[h * k->inputs + i] += back * x[i];
        }
    }
}

WIDE static void think_of(const Perceptron *k, Size r) { think(k, r); }
WIDE static void rethink_of(const Perceptron *k, Size r) { rethink(k, r); }

static PyObject *run(PyObject *const *args, Py_ssize_t given, void (*work)(const Perceptron *, Size)) {
    Size n[17];
    if (!morphogen_numbers(args, given, 17, n)) return NULL;
    Perceptron k = {n[0], n[1], n[2], n[3], n[4]};
    k.x = (float *)n[5], k.w1 = (float *)n[6], k.b1 = (float *)n[7], k.w2 = (float *)n[8], k.b2 = (float *)n[9];
    k.z = (float *)n[10], k.out = (float *)n[11], k.grad = (float *)n[12];
    k.g1 = (float *)n[13], k.gb1 = (float *)n[14], k.g2 = (float *)n[15], k.gb2 = (float *)n[16];
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.samples * k.rows * k.inputs * k.hidden > SMALL)
    for (Size r = 0; r < k.rows; r++) work(&k, r);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_perceptron(PyObject *self, PyObject *const *args, Py_ssize_t given) { return run(args, given, think_of); }

PyObject *morphogen_perceptron_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return run(args, given, rethink_of);
}
