/* The extension module. */

#include "kernels.h"

int morphogen_numbers(PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted, Size *found) {
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "takes %zd numbers, was given %zd", wanted, given);
        return 0;
    }
    for (Py_ssize_t i = 0; i < given; i++) found[i] = PyLong_AsSsize_t(args[i]);
    return !PyErr_Occurred();
}

int morphogen_lanes(PyObject *blocks, Size networks, Size channels, Lane *found) {
    Size n = 0;
    for (Py_ssize_t i = 0; i + 2 < PyTuple_Size(blocks); i += 3) {
        float *at = PyLong_AsVoidPtr(PyTuple_GetItem(blocks, i));
        const Size count = PyLong_AsSsize_t(PyTuple_GetItem(blocks, i + 1));
        const Size stride = PyLong_AsSsize_t(PyTuple_GetItem(blocks, i + 2));
        for (Size j = 0; j < count && n < networks; j++) found[n++] = (Lane){at + j * channels, stride};
    }
    return !PyErr_Occurred();
}

int morphogen_within(const int64_t *numbers, Size count, Size end) {
    for (Size i = 0; i < count; i++)
        if (numbers[i] < 0 || numbers[i] >= end) {
            PyErr_Format(PyExc_IndexError, "%lld is out of range; want 0 to %zd", (long long)numbers[i], end - 1);
            return 0;
        }
    return 1;
}

#define FAST(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
#define METHOD(name) FAST(#name, morphogen_##name)

#ifdef MORPHOGEN_CONV
static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

static PyObject *conv(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return (has_avx512() ? morphogen_conv : morphogen_conv_avx2)(self, args, given);
}

static PyObject *conv_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return (has_avx512() ? morphogen_conv_backward : morphogen_conv_backward_avx2)(self, args, given);
}
#endif

/* Return True if this processor runs the convolutions. */
static PyObject *convolves(PyObject *self, PyObject *nothing) {
#ifdef MORPHOGEN_CONV
    __builtin_cpu_init();
    if (has_avx512() || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) Py_RETURN_TRUE;
#endif
    Py_RETURN_FALSE;
}

static PyMethodDef methods[] = {
#ifdef MORPHOGEN_CONV
    FAST("conv", conv), FAST("conv_backward", conv_backward),
#endif
    METHOD(sums), METHOD(attention), METHOD(attention_backward),
    METHOD(standardise), METHOD(standardise_backward),
    {"convolves", convolves, METH_NOARGS, NULL},
    METHOD(norm),  METHOD(norm_backward),  METHOD(pool),
    METHOD(blend), METHOD(blend_backward), METHOD(pool_backward),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Kernels of `morphogen.kernels`.", -1, methods};

#define VERSION 3 /* of the arguments of all kernels; `native.py` expects it */

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *made = PyModule_Create(&module);
    if (made) PyModule_AddIntMacro(made, VERSION);
    return made;
}
