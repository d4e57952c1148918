/* Causal attention of short rows of tokens with narrow heads.  One head of one sample is one piece of work. */

#include "kernels.h"

#define TOKENS 128 /* of a sample, at most */
#define HEAD 32    /* features of a head, at most */
#define LANE 16    /* queries that are computed together, and floats of a vector */
#define STRIDE (TOKENS + LANE) /* floats from one row of a table to the next: no power of two, which would crowd a cache */

typedef struct {
    Size samples, tokens, heads, size, networks;
    const float *qkv;        /* [samples, tokens, 3, heads, size], those of a network side by side */
    const int64_t *reach;    /* [networks], tokens back that a token sees; NULL: all */
    float *out, *logs;       /* [samples, tokens, heads, size]; logarithms of sums [samples, heads, tokens] */
    const float *grad;       /* like out */
    float *back;             /* like qkv */
} Attention;

typedef float Vector __attribute__((vector_size(LANE * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t Integers __attribute__((vector_size(LANE * sizeof(float)), aligned(sizeof(float)), may_alias));

#define AT(from) (*(Vector *)(from))
#define KEEP(mask, x) ((Vector)((Integers)(x) & (mask))) /* 0 elsewhere, also in place of a NaN */
#define SELECT(mask, yes, no) ((Vector)(((Integers)(yes) & (mask)) | ((Integers)(no) & ~(mask))))

static const Integers LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* e^x of x <= 0, up to rounding; a NaN stays one. */
INLINE void exponential(Vector *x) {
    const Vector limit = {0}, bounded = SELECT(*x < limit - 87.0f, limit - 87.0f, *x);
    const Vector shifted = bounded * 1.44269504f + 12582912.0f, whole = shifted - 12582912.0f;
    const Vector rest = (bounded - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Vector y = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    *x = y * (Vector)(((Integers)shifted - 0x4B400000 + 127) << 23);
}

/* Copy the features of all tokens into columns [size, STRIDE], padded by 0 to whole vectors. */
INLINE void turn(const Attention *k, const float *from, Size step, float *columns, Size size) {
    const Size padded = (k->tokens + LANE - 1) / LANE * LANE;
    for (Size c = 0; c < size; c++) {
        for (Size t = 0; t < k->tokens; t++) columns[c * STRIDE + t] = from[t * step + c];
        for (Size t = k->tokens; t < padded; t++) columns[c * STRIDE + t] = 0.0f;
    }
}

/* Copy the features of all tokens into rows of `width`, padded by 0. */
INLINE void pad(const Attention *k, const float *from, Size step, float *rows, Size size, Size width) {
    for (Size t = 0; t < k->tokens; t++)
        for (Size c = 0; c < width; c++) rows[t * width + c] = c < size ? from[t * step + c] : 0.0f;
}

/* Write columns of a vector of tokens as rows, `count` of them. */
INLINE void write_rows(const Vector *columns, float *to, Size step, Size count, Size size) {
    float table[HEAD * LANE];
    for (Size c = 0; c < size; c++) AT(table + c * LANE) = columns[c];
    for (Size t = 0; t < count; t++)
        for (Size c = 0; c < size; c++) to[t * step + c] = table[c * LANE + t];
}

/* Products of a row with columns. */
#define PRODUCTS(found, row, columns)                                                                                  \
    Vector found = {0};                                                                                                \
    for (Size c = 0; c < size; c++) found += (row)[c] * AT((columns) + c * STRIDE)

/* Sum of rows [first, end), each with a weight. */
INLINE void mix(const float *weights, const float *rows, Size first, Size end, float *to, Size size, Size width) {
    float found[HEAD];
    for (Size half = 0; half < width; half += LANE) {
        Vector a = {0}, b = {0}, c = {0}, d = {0};
        const float *row = rows + half;
        Size t = first;
        for (; t + 4 <= end; t += 4) {
            a += weights[t] * AT(row + t * width);
            b += weights[t + 1] * AT(row + (t + 1) * width);
            c += weights[t + 2] * AT(row + (t + 2) * width);
            d += weights[t + 3] * AT(row + (t + 3) * width);
        }
        for (; t < end; t++) a += weights[t] * AT(row + t * width);
        AT(found + half) = (a + b) + (c + d);
    }
    for (Size c = 0; c < size; c++) to[c] = found[c];
}

/* Tokens back that are in reach of every token of a sample. */
INLINE Size reach_of(const Attention *k, Size sample) {
    const int64_t reach = k->reach ? k->reach[sample / (k->samples / k->networks)] : k->tokens;
    return reach < 0 ? 0 : reach < k->tokens ? reach : k->tokens;
}

/* Queries of a vector that see key j: the signs of two distances.  Joined comparisons are compiled lane by lane. */
#define BEHIND(j) (LANE_NUMBERS - (int32_t)((j) - first))
#define VISIBLE(j) (~((BEHIND(j) | ((int32_t)reach - BEHIND(j))) >> 31))

/* A query is a lane: no sum or maximum over keys crosses lanes. */
INLINE void attend(const Attention *k, Size work, Size size) {
    const Size sample = work / k->heads, head = work % k->heads, part = k->heads * size, step = 3 * part;
    const float *queries = k->qkv + sample * k->tokens * step + head * size;
    const float *keys = queries + part, *values = keys + part;
    const Size reach = reach_of(k, sample);
    const float scale = 1.0f / sqrtf((float)size);
    float columns[HEAD * STRIDE], scores[TOKENS * LANE], tops[LANE], sums[LANE];
    turn(k, queries, step, columns, size);
    for (Size first = 0; first < k->tokens; first += LANE) {
        const Size end = first + LANE < k->tokens ? first + LANE : k->tokens, begin = first > reach ? first - reach : 0;
        const Vector none = {0}, lowest = none - INFINITY;
        Vector top = lowest, sum = none, mean[HEAD];
        for (Size j = begin; j < end; j++) {
            PRODUCTS(score, keys + j * step, columns + first);
            const Integers visible = VISIBLE(j);
            const Vector seen = SELECT(visible, score, lowest);
            AT(scores + j * LANE) = score;
            top = SELECT(seen > top, seen, top);
        }
        for (Size c = 0; c < size; c++) mean[c] = none;
        for (Size j = begin; j < end; j++) {
            const Integers visible = VISIBLE(j);
            Vector share = (AT(scores + j * LANE) - top) * scale;
            exponential(&share);
            sum += KEEP(visible, share);
            for (Size c = 0; c < size; c++) mean[c] += KEEP(visible, values[j * step + c] * share);
        }
        for (Size c = 0; c < size; c++) mean[c] /= sum;
        write_rows(mean, k->out + (sample * k->tokens + first) * part + head * size, part, end - first, size);
        AT(tops) = top * scale;
        AT(sums) = sum;
        for (Size t = first; t < end; t++) k->logs[work * k->tokens + t] = tops[t - first] + logf(sums[t - first]);
    }
}

INLINE void attend_back(const Attention *k, Size work, Size size) {
    const Size sample = work / k->heads, head = work % k->heads, part = k->heads * size, step = 3 * part;
    const Size width = (size + LANE - 1) / LANE * LANE, here = sample * k->tokens * part + head * size;
    const float *queries = k->qkv + sample * k->tokens * step + head * size;
    const float *keys = queries + part, *values = keys + part;
    float *back = k->back + sample * k->tokens * step + head * size;
    const Size reach = reach_of(k, sample);
    const float scale = 1.0f / sqrtf((float)size);
    float query_columns[HEAD * STRIDE], grad_columns[HEAD * STRIDE], out_columns[HEAD * STRIDE], logs[STRIDE] = {0};
    float query_rows[HEAD * TOKENS], grad_rows[HEAD * TOKENS], shares[TOKENS * STRIDE], slopes[TOKENS * STRIDE];
    turn(k, queries, step, query_columns, size);
    turn(k, k->grad + here, part, grad_columns, size);
    turn(k, k->out + here, part, out_columns, size);
    pad(k, queries, step, query_rows, size, width);
    pad(k, k->grad + here, part, grad_rows, size, width);
    memcpy(logs, k->logs + work * k->tokens, k->tokens * sizeof *logs);
    for (Size first = 0; first < k->tokens; first += LANE) {
        const Size end = first + LANE < k->tokens ? first + LANE : k->tokens, begin = first > reach ? first - reach : 0;
        const Vector none = {0};
        Vector mean = none, query_grad[HEAD];
        for (Size c = 0; c < size; c++) {
            mean += AT(grad_columns + c * STRIDE + first) * AT(out_columns + c * STRIDE + first);
            query_grad[c] = none;
        }
        for (Size j = begin; j < end; j++) {
            const Integers visible = VISIBLE(j);
            PRODUCTS(score, keys + j * step, query_columns + first);
            PRODUCTS(slope, values + j * step, grad_columns + first);
            Vector share = score * scale - AT(logs + first);
            exponential(&share);
            slope = share * (slope - mean) * scale;
            AT(shares + j * STRIDE + first) = KEEP(visible, share);
            AT(slopes + j * STRIDE + first) = KEEP(visible, slope);
            for (Size c = 0; c < size; c++) query_grad[c] += KEEP(visible, keys[j * step + c] * slope);
        }
        write_rows(query_grad, back + first * step, step, end - first, size);
    }
    for (Size j = 0; j < k->tokens; j++) {
        const Size end = j + reach + 1 < k->tokens ? j + reach + 1 : k->tokens; /* of the queries that see the key */
        mix(slopes + j * STRIDE, query_rows, j, end, back + j * step + part, size, width);
        mix(shares + j * STRIDE, grad_rows, j, end, back + j * step + 2 * part, size, width);
    }
}

/* Variants in which usual sizes of heads are constants: sums stay in registers. */
#define BY_SIZE(work)                                                                                                  \
    WIDE static void work##_of(const Attention *k, Size at) {                                                          \
        switch (k->size) {                                                                                             \
            case 6: work(k, at, 6); break;                                                                             \
            case 8: work(k, at, 8); break;                                                                             \
            case 12: work(k, at, 12); break;                                                                           \
            case 16: work(k, at, 16); break;                                                                           \
            default: work(k, at, k->size);                                                                             \
        }                                                                                                              \
    }

BY_SIZE(attend)
BY_SIZE(attend_back)

static PyObject *run(PyObject *const *args, Py_ssize_t given, void (*work)(const Attention *, Size)) {
    Size n[11];
    if (!morphogen_numbers(args, given, 11, n)) return NULL;
    const Attention k = {n[0], n[1], n[2], n[3], n[4], (float *)n[5], (int64_t *)n[6], (float *)n[7], (float *)n[8],
                         (float *)n[9], (float *)n[10]};
    if (k.tokens > TOKENS || k.size > HEAD) {
        PyErr_Format(PyExc_ValueError, "%zd tokens, heads of %zd; want at most %d, %d", k.tokens, k.size, TOKENS, HEAD);
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
