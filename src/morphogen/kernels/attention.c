/* Causal attention of short rows of tokens with narrow heads.  One head of one sample is one piece of work. */

#include "kernels.h"

#define TOKENS 128 /* of a sample, at most */
#define STRIDE (TOKENS + 16) /* floats from one row of a table to the next: no power of two, which would crowd a cache */
#define PIECE 16   /* floats of a vector; the rows of queries, keys and values are padded to one or two of them */

typedef struct {
    Size samples, tokens, heads, size;
    const float *qkv;        /* [samples, tokens, 3, heads, size] */
    float *out, *logs;       /* [samples, tokens, heads, size]; logarithms of sums [samples, heads, tokens] */
    const float *grad;       /* like out */
    float *back;             /* like qkv */
} Attention;

/* e^x of x <= 0, up to rounding; a NaN stays one. */
INLINE float exponential(float x) {
    const float bounded = x < -87.0f ? -87.0f : x, shifted = bounded * 1.44269504f + 12582912.0f;
    const float whole = shifted - 12582912.0f, rest = (bounded - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    union {
        float number;
        int32_t bits;
    } power = {.number = shifted};
    power.bits = (power.bits - 0x4B400000 + 127) << 23;
    return y * power.number;
}

INLINE Size rounded(Size count) { return (count + PIECE - 1) / PIECE * PIECE; }

/* Copy a row of all tokens, padded by 0, and in columns if `turned`. */
INLINE void load(const Attention *k, const float *from, Size step, float *rows, float *turned, Size width) {
    for (Size j = 0; j < k->tokens; j++)
        for (Size c = 0; c < width; c++) rows[j * width + c] = c < k->size ? from[j * step + c] : 0.0f;
    if (turned)
        for (Size c = 0; c < k->size; c++) {
            for (Size j = 0; j < k->tokens; j++) turned[c * STRIDE + j] = from[j * step + c];
            for (Size j = k->tokens; j < rounded(k->tokens); j++) turned[c * STRIDE + j] = 0.0f;
        }
}

typedef float Vector __attribute__((vector_size(PIECE * sizeof(float)), aligned(sizeof(float)), may_alias));

#define AT(from) (*(const Vector *)(from))

INLINE float total(const float *x) {
    float y[PIECE / 2];
    LANES(PIECE / 2) y[i] = x[i] + x[i + PIECE / 2];
    LANES(PIECE / 4) y[i] += y[i + PIECE / 4];
    return (y[0] + y[2]) + (y[1] + y[3]);
}

INLINE float larger(float x, float y) { return x > y ? x : y; }

INLINE float greatest(const float *x) {
    float y[PIECE / 2];
    LANES(PIECE / 2) y[i] = larger(x[i], x[i + PIECE / 2]);
    LANES(PIECE / 4) y[i] = larger(y[i], y[i + PIECE / 4]);
    return larger(larger(y[0], y[2]), larger(y[1], y[3]));
}

/* Products of a row with the first `count` columns. */
INLINE void products(const Attention *k, const float *row, const float *columns, Size count, float *found) {
    for (Size first = 0; first < count; first += PIECE) {
        Vector sums = {0};
        for (Size c = 0; c < k->size; c++) sums += row[c] * AT(columns + c * STRIDE + first);
        *(Vector *)(found + first) = sums;
    }
}

/* Sum of rows [first, end), each with a weight; weights lie `step` apart. */
INLINE void mix(const float *weights, Size step, const float *rows, Size first, Size end, Size width, float *found) {
    for (Size half = 0; half < width; half += PIECE) {
        Vector a = {0}, b = {0}, c = {0}, d = {0};
        const float *row = rows + half;
        Size j = first;
        for (; j + 4 <= end; j += 4) {
            a += weights[j * step] * AT(row + j * width);
            b += weights[(j + 1) * step] * AT(row + (j + 1) * width);
            c += weights[(j + 2) * step] * AT(row + (j + 2) * width);
            d += weights[(j + 3) * step] * AT(row + (j + 3) * width);
        }
        for (; j < end; j++) a += weights[j * step] * AT(row + j * width);
        *(Vector *)(found + half) = (a + b) + (c + d);
    }
}

INLINE void attend(const Attention *k, Size work, Size width) {
    const Size sample = work / k->heads, head = work % k->heads, step = 3 * k->heads * k->size;
    const float *queries = k->qkv + sample * k->tokens * step + head * k->size;
    const float *keys = queries + k->heads * k->size, *values = keys + k->heads * k->size;
    const float scale = 1.0f / sqrtf((float)k->size);
    float turned[2 * PIECE * STRIDE], rows[2 * PIECE * TOKENS], scores[TOKENS], found[2 * PIECE];
    load(k, keys, step, rows, turned, width);
    load(k, values, step, rows, NULL, width);
    for (Size t = 0; t < k->tokens; t++) {
        const Size count = rounded(t + 1);
        float tops[PIECE], sums[PIECE] = {0};
        products(k, queries + t * step, turned, count, scores);
        LANES(PIECE) tops[i] = -INFINITY;
        for (Size first = 0; first < count; first += PIECE)
            LANES(PIECE) {
                scores[first + i] = first + i <= t ? scores[first + i] : -INFINITY;
                tops[i] = larger(scores[first + i], tops[i]);
            }
        const float top = greatest(tops);
        for (Size first = 0; first < count; first += PIECE)
            LANES(PIECE) {
                const float share = exponential((scores[first + i] - top) * scale);
                scores[first + i] = first + i <= t ? share : 0.0f;
                sums[i] += scores[first + i];
            }
        const float sum = total(sums), inverse = 1.0f / sum;
        mix(scores, 1, rows, 0, t + 1, width, found);
        float *out = k->out + ((sample * k->tokens + t) * k->heads + head) * k->size;
        for (Size c = 0; c < k->size; c++) out[c] = found[c] * inverse;
        k->logs[work * k->tokens + t] = top * scale + logf(sum);
    }
}

INLINE void attend_back(const Attention *k, Size work, Size width) {
    const Size sample = work / k->heads, head = work % k->heads, part = k->heads * k->size, step = 3 * part;
    const float *queries = k->qkv + sample * k->tokens * step + head * k->size;
    const float *keys = queries + part, *values = keys + part;
    const float *out = k->out + sample * k->tokens * part + head * k->size;
    const float *grad = k->grad + sample * k->tokens * part + head * k->size, *logs = k->logs + work * k->tokens;
    float *back = k->back + sample * k->tokens * step + head * k->size;
    const float scale = 1.0f / sqrtf((float)k->size);
    float q[2 * PIECE * TOKENS], rows[2 * PIECE * TOKENS], g[2 * PIECE * TOKENS];
    float key_columns[2 * PIECE * STRIDE], value_columns[2 * PIECE * STRIDE], found[2 * PIECE];
    float shares[TOKENS * STRIDE], slopes[TOKENS * STRIDE];
    load(k, queries, step, q, NULL, width);
    load(k, grad, part, g, NULL, width);
    load(k, values, step, rows, value_columns, width);
    load(k, keys, step, rows, key_columns, width);
    for (Size t = 0; t < k->tokens; t++) {
        const Size count = rounded(t + 1);
        float *share = shares + t * STRIDE, *slope = slopes + t * STRIDE, mean = 0.0f;
        for (Size c = 0; c < k->size; c++) mean += grad[t * part + c] * out[t * part + c];
        products(k, q + t * width, key_columns, count, share);
        products(k, g + t * width, value_columns, count, slope);
        LANES(count) {
            const float own = exponential(share[i] * scale - logs[t]);
            share[i] = i <= t ? own : 0.0f;
            slope[i] = i <= t ? own * (slope[i] - mean) * scale : 0.0f;
        }
        mix(slope, 1, rows, 0, t + 1, width, found);
        for (Size c = 0; c < k->size; c++) back[t * step + c] = found[c];
    }
    for (Size j = 0; j < k->tokens; j++) {
        mix(slopes + j, STRIDE, q, j, k->tokens, width, found);
        for (Size c = 0; c < k->size; c++) back[j * step + part + c] = found[c];
        mix(shares + j, STRIDE, g, j, k->tokens, width, found);
        for (Size c = 0; c < k->size; c++) back[j * step + 2 * part + c] = found[c];
    }
}

/* Variants for heads of one vector and of two. */
WIDE static void attend_of(const Attention *k, Size at) {
    if (k->size <= PIECE) attend(k, at, PIECE);
    else attend(k, at, 2 * PIECE);
}

WIDE static void attend_back_of(const Attention *k, Size at) {
    if (k->size <= PIECE) attend_back(k, at, PIECE);
    else attend_back(k, at, 2 * PIECE);
}

static PyObject *run(PyObject *const *args, Py_ssize_t given, void (*work)(const Attention *, Size)) {
    Size n[9];
    if (!morphogen_numbers(args, given, 9, n)) return NULL;
    const Attention k = {n[0], n[1], n[2], n[3], (float *)n[4], (float *)n[5], (float *)n[6], (float *)n[7], (float *)n[8]};
    if (k.tokens > TOKENS || k.size > 2 * PIECE) {
        PyErr_Format(PyExc_ValueError, "%zd tokens, heads of %zd; want at most %d, %d", k.tokens, k.size, TOKENS, 2 * PIECE);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for schedule(static) if (k.samples * k.heads * k.tokens * k.size > SMALL)
    for (Size at = 0; at < k.samples * k.heads; at++) work(&k, at);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *morphogen_attention(PyObject *self, PyObject *const *args, Py_ssize_t given) { return run(args, given, attend_of); }

PyObject *morphogen_attention_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return run(args, given, attend_back_of);
}
