/* Convolutions of stacked networks, and the gradient of their input. */

#include "conv.h"

#ifdef MORPHOGEN_CONV

static Shape shape_of(const Size *size, Size inputs, Size outputs, Size kernel) {
    Shape s = {size[0], size[1], inputs, outputs, kernel};
    s.parts = outputs < FULL ? FULL / outputs : 1;
    s.vectors = outputs % (2 * FULL) ? 1 : 2;
    s.blocks = outputs < FULL ? 1 : outputs / (FULL * s.vectors);
    s.steps = (kernel * inputs + s.parts - 1) / s.parts;
    s.packed = s.blocks * kernel * s.steps * s.vectors * FULL;
    return s;
}

/* Positions in [outputs, inputs, lines, columns] of the weights of a network in packed order; -1: beyond the end of a
   run.  `turned`: outputs and inputs are swapped, taps reversed.  */
static void find_places(const Shape *s, int turned, int32_t *to) {
    const int one = s->vectors * FULL, taps = s->kernel * s->kernel, parts = s->parts, inputs = s->inputs;
    for (int block = 0; block < s->blocks; block++)
        for (int line = 0; line < s->kernel; line++)
            for (int step = 0; step < s->steps; step++)
                for (int i = 0; i < one; i++) {
                    const int run = step * parts + i % parts, known = run < s->kernel * inputs;
                    const int input = run % inputs, tap = line * s->kernel + run / inputs;
                    const int output = block * one + i / parts;
                    const int place = turned ? (input * s->outputs + output) * taps + taps - 1 - tap
                                             : (output * inputs + input) * taps + tap;
                    *to++ = known ? place : -1;
                }
}

/* Pack the weights of a network. */
void morphogen_conv_weights(const Conv *k, const Shape *s, const int32_t *places, Size network) {
    const float *from = k->weight + network * s->outputs * s->inputs * s->kernel * s->kernel;
    float *to = k->weights + network * s->packed;
    for (Size i = 0; i < s->packed; i++) to[i] = places[i] < 0 ? 0.0f : from[places[i]];
}

/* Unpack the sums of the gradients of all chunks. */
void morphogen_conv_slopes(const Conv *k, Size network) {
    const Shape *s = &k->forth;
    const Size chunk = k->rows * s->packed;
    float *to = k->slopes + network * s->outputs * s->inputs * s->kernel * s->kernel;
    float *sums = k->sums + network * s->packed;
    for (Size c = 1; c < CHUNKS; c++) LANES(s->packed) sums[i] += sums[c * chunk + i];
    for (Size i = 0; i < s->packed; i++)
        if (k->places[i] >= 0) to[k->places[i]] = sums[i];
}

/* Pixels of a side of a plane: as many as a tile reads. */
static Size side_of(const Shape *s, Size side) { return (side < TILE_SIDE ? TILE_SIDE : side) + s->kernel - 1; }

/* Floats of a plane; a last run may read a few floats beyond its end. */
Size morphogen_conv_plane(const Shape *s) {
    const Size pixels = side_of(s, s->height) * side_of(s, s->width);
    return (pixels * s->inputs + 2 * FULL - 1) / FULL * FULL;
}

INLINE void copy_planes(const float *restrict from, Size stride, Size rows, const Shape *s, const Planes *found,
                        float *restrict to, const Size channels) {
    const Size border = s->kernel / 2;
    for (Size y = 0; y < s->height; y++) {
        float *line = to + (y + border) * found->line + border * channels;
        for (Size x = 0; x < s->width; x++, from += stride)
            for (Size r = 0; r < rows; r++)
                memcpy(line + r * found->network + x * channels, from + r * channels, channels * sizeof *from);
    }
}

/* Copy a sample of some networks to planes with borders of 0; without a border nothing is copied. */
Planes morphogen_conv_planes(const Shape *s, const float *from, Size stride, Size rows, float *to) {
    const Size channels = s->inputs;
    const int whole = s->height >= TILE_SIDE && s->width >= TILE_SIDE;
    if (whole && s->kernel == 1 && channels % s->parts == 0)
        return (Planes){from, channels, s->width * stride, stride};
    const Planes found = {to, morphogen_conv_plane(s), side_of(s, s->width) * channels, channels};
    switch (channels) {
        case 1: copy_planes(from, stride, rows, s, &found, to, 1); break;
        case 3: copy_planes(from, stride, rows, s, &found, to, 3); break;
        case 4: copy_planes(from, stride, rows, s, &found, to, 4); break;
        case 8: copy_planes(from, stride, rows, s, &found, to, 8); break;
        case 16: copy_planes(from, stride, rows, s, &found, to, 16); break;
        case 32: copy_planes(from, stride, rows, s, &found, to, 32); break;
        default: copy_planes(from, stride, rows, s, &found, to, channels);
    }
    return found;
}

/* Sums of adjacent pairs of both. */
INLINE Vector halved(Vector a, Vector b) {
#if FULL == 16
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#else
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
}

/* Pixels of the output, `across` of them in a line; the first reads from `at`.  `below`: floats from a pixel to the one
   below it. */
INLINE void tile(const Shape *s, const Planes *in, const float *at, const float *restrict weight, float *restrict out,
                 Size below, Size stride, const int across, const int parts, const int vectors) {
    const int count = FULL / vectors;
    const Size pixel = in->pixel, down = in->line - (across - 1) * pixel;
    Vector sum[FULL];
#pragma GCC unroll 16
    for (int t = 0; t < FULL; t++) sum[t] = (Vector){0};
    for (Size line = 0; line < s->kernel; line++)
        for (Size step = 0; step < s->steps; step++, weight += vectors * FULL) {
            const Vector one = *(const Vector *)weight, two = vectors > 1 ? *(const Vector *)(weight + FULL) : one;
            const float *run = at + line * in->line + step * parts;
#pragma GCC unroll 16
            for (int t = 0; t < count; t++) {
                const Vector x = repeated(run, parts);
                sum[t * vectors] += x * one;
                if (vectors > 1) sum[t * vectors + 1] += x * two;
                run += (t + 1) % across ? pixel : down;
            }
        }
#pragma GCC unroll 16
    for (int t = 0; t < count; t += parts) {
        Vector all = parts > 1 ? halved(sum[t], sum[t + 1]) : sum[t * vectors];
        if (parts == 4) all = halved(all, halved(sum[t + 2], sum[t + 3]));
        for (int i = 0; i < parts; i++) {
            float *to = out + (t + i) / across * below + (t + i) % across * stride;
            memcpy(to, (float *)&all + i * FULL / parts, sizeof all / parts);
            if (vectors > 1) *(Loose *)(to + FULL) = sum[t * vectors + 1];
        }
    }
}

/* Networks side by side: networks that share a line of the cache are written one after the other.  The last tiles of a
   side lie at its end: pixels that two of them cover are computed twice, alike.  Of a tile that is larger than the image
   only the pixels of the image are written.  */
INLINE void convolve(const Shape *s, Planes in, const float *weights, float *out, Size stride, Size rows,
                     const int across, const int parts, const int vectors) {
    const Size down = FULL / vectors / across, band = s->outputs < FULL ? down : s->height;
    const Size low = s->height > down ? s->height - down : 0, right = s->width > across ? s->width - across : 0;
    const Size one = s->outputs / s->blocks;
    const int fits = s->height >= down && s->width >= across;
    float spare[FULL * FULL];
    for (Size top = 0; top < s->height; top += band)
        for (Size n = 0; n < rows * s->blocks; n++) {
            const float *plane = in.at + n / s->blocks * in.network, *weight = weights + n * (s->packed / s->blocks);
            float *own = out + n * one;
            for (Size row = top; row < top + band && row < s->height; row += down) {
                const Size y = row < low ? row : low;
                for (Size column = 0; column < s->width; column += across) {
                    const Size x = column < right ? column : right;
                    float *to = own + (y * s->width + x) * stride;
                    tile(s, &in, plane + y * in.line + x * in.pixel, weight, fits ? to : spare,
                         fits ? s->width * stride : across * one, fits ? stride : one, across, parts, vectors);
                    for (Size i = 0; !fits && i < FULL / vectors; i++)
                        if (y + i / across < s->height && x + i % across < s->width)
                            memcpy(to + (i / across * s->width + i % across) * stride, spare + i * one,
                                   one * sizeof *spare);
                }
            }
        }
}

#define ACROSS(parts, vectors)                                                                                         \
    do {                                                                                                               \
        if (s->width % (FULL / vectors) == 0)                                                                          \
            convolve(s, in, weights, out, stride, rows, FULL / vectors, parts, vectors);                               \
        else if (FULL / vectors > 8 && s->width % 8 == 0)                                                              \
            convolve(s, in, weights, out, stride, rows, 8, parts, vectors);                                            \
        else                                                                                                           \
            convolve(s, in, weights, out, stride, rows, 4, parts, vectors);                                            \
    } while (0)

/* A sample of some networks. */
void morphogen_convolve(const Shape *s, Planes in, const float *weights, float *out, Size stride, Size rows) {
    switch (s->parts * s->vectors) {
#if FULL == 16
        case 4: ACROSS(4, 1); break;
#endif
        case 2: if (s->parts == 2) ACROSS(2, 1); else ACROSS(1, 2); break;
        default: ACROSS(1, 1);
    }
}

static void forward(const Conv *k) {
    const Shape *s = &k->forth;
    const Size bundles = (k->rows + k->bundle - 1) / k->bundle, wide = k->rows * s->outputs;
    const Size pixels = s->height * s->width;
#pragma omp parallel num_threads(k->threads)
    {
        float *own = scratch_of(k);
        memset(own, 0, k->room * sizeof *own);
#pragma omp for schedule(static)
        for (Size r = 0; r < k->rows; r++) morphogen_conv_weights(k, s, k->places, r);
#pragma omp for schedule(static)
        for (Size task = 0; task < k->samples * bundles; task++) {
            const Size b = task / bundles, first = task % bundles * k->bundle, left = k->rows - first;
            const Size rows = left < k->bundle ? left : k->bundle;
            const float *from = k->x + b * pixels * k->stride + first * s->inputs;
            const Planes in = morphogen_conv_planes(s, from, k->stride, rows, own);
            float *out = k->out + b * pixels * wide + first * s->outputs;
            morphogen_convolve(s, in, k->weights + first * s->packed, out, wide, rows);
        }
    }
}

/* Read sizes and addresses, allocate scratch memory; 0 after an error. */
static int conv_of(PyObject *const *args, Py_ssize_t given, Conv *k) {
    Size n[14];
    if (!morphogen_numbers(args, given, 14, n)) return 0;
    *k = (Conv){.samples = n[0], .rows = n[3], .stride = n[7], .x = (float *)n[8], .weight = (float *)n[9]};
    k->out = (float *)n[10], k->grad = (float *)n[11], k->push = (float *)n[12], k->slopes = (float *)n[13];
    k->forth = shape_of(n + 1, n[4], n[5], n[6]);
    if (k->grad) k->back = shape_of(n + 1, n[5], k->push ? n[4] : FULL, n[6]);
    const Size plane = morphogen_conv_plane(&k->forth) + (k->grad ? morphogen_conv_plane(&k->back) : 0);
    const Size least = n[4] < n[5] ? n[4] : n[5], most = BYTES / (Size)sizeof(float) / plane;
    Size many = BUNDLE / least < most ? BUNDLE / least : most;
    many = many < 1 ? 1 : many > k->rows ? k->rows : many;
    const Size bundles = (k->rows + many - 1) / many;
    k->bundle = (k->rows + bundles - 1) / bundles, k->room = k->bundle * plane, k->threads = 1;
#ifdef _OPENMP
    if (k->samples * n[1] * n[2] * k->rows * n[5] > SMALL) k->threads = omp_get_max_threads();
#endif
    const Size weights = k->rows * (k->back.packed > k->forth.packed ? k->back.packed : k->forth.packed);
    const Size sums = k->grad ? CHUNKS * k->rows * k->forth.packed : 0;
    const Size places = k->forth.packed + k->back.packed;
    k->weights = aligned_alloc(64, (weights + sums + k->threads * k->room + places) * sizeof(float));
    if (!k->weights) return PyErr_NoMemory(), 0;
    k->sums = k->weights + weights, k->scratch = k->sums + sums;
    k->places = (int32_t *)(k->scratch + k->threads * k->room), k->turned = k->places + k->forth.packed;
    find_places(&k->forth, 0, k->places), find_places(&k->back, 1, k->turned);
    return 1;
}

PyObject *morphogen_convolved(PyObject *const *args, Py_ssize_t given, void (*work)(const Conv *)) {
    Conv k;
    if (!conv_of(args, given, &k)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    work(&k);
    Py_END_ALLOW_THREADS;
    free(k.weights);
    Py_RETURN_NONE;
}

PyObject *morphogen_conv(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    return morphogen_convolved(args, given, forward);
}

#endif
