/* Philox 4x32-10 (Salmon et al. 2011). */

#include "kernels.h"

WIDE static void philox(Size count, const int64_t *restrict counter, const int64_t *restrict key,
                        int64_t *restrict out) {
    for (Size n = 0; n < count; n++) {
        uint32_t a = counter[4 * n], b = counter[4 * n + 1], c = counter[4 * n + 2], d = counter[4 * n + 3];
        uint32_t low = key[2 * n], high = key[2 * n + 1];
        for (int round = 0; round < 10; round++, low += 0x9E3779B9u, high += 0xBB67AE85u) {
            const uint64_t p = (uint64_t)a * 0xD2511F53u, q = (uint64_t)c * 0xCD9E8D57u;
            a = (uint32_t)(q >> 32) ^ b ^ low, b = (uint32_t)q;
            c = (uint32_t)(p >> 32) ^ d ^ high, d = (uint32_t)p;
        }
        out[4 * n] = a, out[4 * n + 1] = b, out[4 * n + 2] = c, out[4 * n + 3] = d;
    }
}

#define PART 4096 /* counters per thread at a time */

PyObject *morphogen_philox(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Size n[4];
    if (!morphogen_numbers(args, given, 4, n)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (n[0] > 2 * PART)
    for (Size first = 0; first < n[0]; first += PART) {
        const Size count = n[0] - first < PART ? n[0] - first : PART;
        philox(count, (int64_t *)n[1] + 4 * first, (int64_t *)n[2] + 2 * first, (int64_t *)n[3] + 4 * first);
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
