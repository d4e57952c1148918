/* Gradients of convolutions: of the weights, and of the input.  */

#include "conv.h"

#ifdef MORPHOGEN_CONV

#if FULL == 16
#define SUMS 24 /* sums held in registers at once */
#else
#define SUMS 12
#endif

/* Factors of every product of a run. */
INLINE Vector outputs_of(const float *grad, const int parts) {
    if (parts == 1) return *(const Loose *)grad;
#if FULL == 16
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i often = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    if (parts == 2) return (Vector)_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(grad)));
    return (Vector)_mm512_permutexvar_ps(often, _mm512_castps128_ps512(_mm_loadu_ps(grad)));
#else
    const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
    return (Vector)_mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(grad)), twice);
#endif
}

/* Add the products of one pixel. */
INLINE void add_pixel(Vector *sum, const Planes *in, const float *run, const float *grad, const int lines,
                      const int count, const int parts, const int vectors) {
    const Vector one = outputs_of(grad, parts), two = vectors > 1 ? outputs_of(grad + FULL, 1) : one;
#pragma GCC unroll 24
    for (int j = 0; j < lines * count; j++) {
        const Vector own = repeated(run + j / count * in->line + j % count * parts, parts);
        sum[j * vectors] += own * one;
        if (vectors > 1) sum[j * vectors + 1] += own * two;
    }
}

/* Add to `sums` the gradient of `lines` lines of the weights, `count` vectors of the run that begins at `x`.

   Few sums would wait for each other: then some pixels are added up apart.  */
INLINE void gather(const Shape *s, const Planes *in, const float *x, const Planes *out, const float *grad, float *sums,
                   const int lines, const int count, const int parts, const int vectors) {
    const int all = lines * count * vectors, apart = all >= 8 ? 1 : all >= 4 ? 2 : 4;
    const Size even = s->width / apart * apart;
    Vector sum[SUMS];
#pragma GCC unroll 24
    for (int i = 0; i < apart * all; i++) sum[i] = (Vector){0};
    for (Size y = 0; y < s->height; y++) {
        const float *run = x + y * in->line, *g = grad + y * out->line;
        for (Size column = 0; column < even; column += apart)
#pragma GCC unroll 4
            for (int a = 0; a < apart; a++)
                add_pixel(sum + a * all, in, run + (column + a) * in->pixel, g + (column + a) * out->pixel, lines,
                          count, parts, vectors);
        for (Size column = even; column < s->width; column++)
            add_pixel(sum, in, run + column * in->pixel, g + column * out->pixel, lines, count, parts, vectors);
    }
#pragma GCC unroll 24
    for (int i = 0; i < all; i++) {
        float *to = sums + (i / (count * vectors) * s->steps * vectors + i % (count * vectors)) * FULL;
        Vector total = *(const Vector *)to;
#pragma GCC unroll 4
        for (int a = 0; a < apart; a++) total += sum[a * all + i];
        *(Vector *)to = total;
    }
}

#define WHOLE(n)                                                                                                       \
    case n:                                                                                                            \
        if (3 * n * vectors > SUMS) break;                                                                             \
        gather(s, in, x, out, grad, sums, 3, n, parts, vectors);                                                       \
        return;
#define PART(n)                                                                                                        \
    case n:                                                                                                            \
        if (n * vectors <= SUMS) gather(s, in, run, out, grad, own, 1, n, parts, vectors);                             \
        break;

/* Gradient of a block of the weights of one network. */
INLINE void gather_block(const Shape *s, const Planes *in, const float *x, const Planes *out, const float *grad,
                         float *sums, const int parts, const int vectors) {
    if (s->kernel == 3)
        switch (s->steps) { WHOLE(1) WHOLE(2) WHOLE(3) WHOLE(4) WHOLE(5) WHOLE(6) WHOLE(8) }
    for (Size line = 0; line < s->kernel; line++)
        for (Size step = 0, count; step < s->steps; step += count) {
            const float *run = x + line * in->line + step * parts;
            float *own = sums + (line * s->steps + step) * vectors * FULL;
            const Size left = s->steps - step, most = SUMS / vectors;
            count = left >= most ? most : left >= 12 ? 12 : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            switch (count) { PART(1) PART(2) PART(4) PART(6) PART(8) PART(12) PART(24) }
        }
}

/* Add the gradients of the weights of some networks from one sample. */
static void gather_planes(const Shape *s, Planes in, Planes out, float *sums, Size rows) {
    for (Size n = 0; n < rows * s->blocks; n++, sums += s->packed / s->blocks) {
        const float *x = in.at + n / s->blocks * in.network;
        const float *grad = out.at + n / s->blocks * out.network + n % s->blocks * s->vectors * FULL;
        switch (s->parts * s->vectors) {
#if FULL == 16
            case 4: gather_block(s, &in, x, &out, grad, sums, 4, 1); break;
#endif
            case 2:
                if (s->parts == 2) gather_block(s, &in, x, &out, grad, sums, 2, 1);
                else gather_block(s, &in, x, &out, grad, sums, 1, 2);
                break;
            default: gather_block(s, &in, x, &out, grad, sums, 1, 1);
        }
    }
}

/* One sample of the networks from `first` on. */
static void backward_sample(const Conv *k, Size b, Size first, Size rows, float *sums, float *own) {
    const Shape *s = &k->forth;
    const Size pixels = s->height * s->width, wide = k->rows * s->outputs, narrow = k->rows * s->inputs;
    const float *from = k->x + b * pixels * k->stride + first * s->inputs;
    const float *grad = k->grad + b * pixels * wide + first * s->outputs;
    const Planes in = morphogen_conv_planes(s, from, k->stride, rows, own);
    Planes out = morphogen_conv_planes(&k->back, grad, wide, rows, own + k->bundle * morphogen_conv_plane(s));
    float *push = k->push + b * pixels * narrow + first * s->inputs;
    if (k->push) morphogen_convolve(&k->back, out, k->weights + first * k->back.packed, push, narrow, rows);
    out.at += s->kernel / 2 * (out.line + out.pixel);
    gather_planes(s, in, out, sums, rows);
}

static void backward(const Conv *k) {
    const Size bundles = (k->rows + k->bundle - 1) / k->bundle, packed = k->forth.packed;
#pragma omp parallel num_threads(k->threads)
    {
        float *own = scratch_of(k);
        memset(own, 0, k->room * sizeof *own);
#pragma omp for schedule(static)
        for (Size r = 0; r < (k->push ? k->rows : 0); r++) morphogen_conv_weights(k, &k->back, k->turned, r);
#pragma omp for schedule(static)
        for (Size task = 0; task < CHUNKS * bundles; task++) {
            const Size chunk = task / bundles, first = task % bundles * k->bundle, left = k->rows - first;
            const Size rows = left < k->bundle ? left : k->bundle, end = (chunk + 1) * k->samples / CHUNKS;
            float *sums = k->sums + (chunk * k->rows + first) * packed;
            memset(sums, 0, rows * packed * sizeof *sums);
            for (Size b = chunk * k->samples / CHUNKS; b < end; b++) backward_sample(k, b, first, rows, sums, own);
        }
#pragma omp for schedule(static)
        for (Size r = 0; r < k->rows; r++) morphogen_conv_slopes(k, r);
    }
}

PyObject *morphogen_conv_backward(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return morphogen_convolved(args, given, backward);
}

#endif
