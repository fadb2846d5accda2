// What LoRA adapters add to a matrix product of a step: out += x A B, each row with the A and B of its own adapter.
//
// Rows of one adapter lie together. A tile is a few of them, and reads A and B once for all its rows; what a row gets
// does not depend on its neighbours. Two passes over all tiles, each shared out among torch's CPU threads: x A to
// `inner`, then that times B. As in kernels.cpp, arithmetic is in float and no OpenMP runtime is linked.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "numbers.h"

namespace {

constexpr int TILE = 8;            // most rows of a tile
constexpr int STRIP = 2 * LANES;   // outputs at a time: a cache line of bf16 of each row of B
constexpr int64_t CHUNK = 256;     // outputs of one piece of work
constexpr int TILE_NUMBERS = 4;    // how a tile is told: first row, rows, address of the adapter's weights, rank

struct Tile {
    int64_t begin, rows, address, rank;
    explicit Tile(const int64_t* at) : begin(at[0]), rows(at[1]), address(at[2]), rank(at[3]) {}
};

typedef float Floats __attribute__((vector_size(4 * LANES)));

inline Floats load(const float* at) {
    Floats value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline Floats load(const bf16* at) {
    typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
    typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
    Halves bits;
    std::memcpy(&bits, at, sizeof bits);
    return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}

template <typename T>
inline void store(Floats value, T* to) {
#pragma GCC unroll 16
    for (int lane = 0; lane < LANES; lane++) narrow(value[lane], to + lane);
}

// inner[row][0..LANES) = x[row] A for LANES columns of A, whose rows lie `stride` apart.
template <typename T, int ROWS>
void shrink(const T* x, int64_t x_stride, const T* a, int64_t stride, int64_t inputs, float* inner,
            int64_t inner_stride) {
    constexpr int TURNS = ROWS > 4 ? 1 : ROWS > 2 ? 2 : 4;  // sums a row: enough to hide the latency of an addition
    Floats sums[TURNS][ROWS] = {};
    for (int64_t i = 0; i + TURNS <= inputs; i += TURNS)
#pragma GCC unroll 4
        for (int turn = 0; turn < TURNS; turn++) {
            const Floats weights = load(a + (i + turn) * stride);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++) sums[turn][row] += widen(x[row * x_stride + i + turn]) * weights;
        }
    for (int64_t i = inputs / TURNS * TURNS; i < inputs; i++)
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) sums[0][row] += widen(x[row * x_stride + i]) * load(a + i * stride);
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 4
        for (int turn = 1; turn < TURNS; turn++) sums[0][row] += sums[turn][row];
        std::memcpy(inner + row * inner_stride, &sums[0][row], sizeof(Floats));
    }
}

// out[row][0..count) += inner[row] B for `count` columns of B [rank, stride].
template <typename T, int ROWS>
void expand(const float* inner, int64_t inner_stride, const T* b, int64_t stride, int64_t rank, int64_t count, T* out,
            int64_t out_stride) {
    int64_t begin = 0;
    for (; begin + STRIP <= count; begin += STRIP) {
        Floats low[ROWS], high[ROWS];
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            low[row] = load(out + row * out_stride + begin);
            high[row] = load(out + row * out_stride + begin + LANES);
        }
        for (int64_t k = 0; k < rank; k++) {
            const Floats one = load(b + k * stride + begin), two = load(b + k * stride + begin + LANES);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++) {
                const float value = inner[row * inner_stride + k];
                low[row] += value * one;
                high[row] += value * two;
            }
        }
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            store(low[row], out + row * out_stride + begin);
            store(high[row], out + row * out_stride + begin + LANES);
        }
    }
    for (; begin < count; begin++)
        for (int row = 0; row < ROWS; row++) {
            float sum = widen(out[row * out_stride + begin]);
            for (int64_t k = 0; k < rank; k++) sum += inner[row * inner_stride + k] * widen(b[k * stride + begin]);
            narrow(sum, out + row * out_stride + begin);
        }
}

// The version for so many rows, where F is a template over their number.
#define FOR_ROWS(F, T, ROWS, ...)                    \
    switch (ROWS) {                                  \
        case 1: F<T, 1>(__VA_ARGS__); break;         \
        case 2: F<T, 2>(__VA_ARGS__); break;         \
        case 3: F<T, 3>(__VA_ARGS__); break;         \
        case 4: F<T, 4>(__VA_ARGS__); break;         \
        case 5: F<T, 5>(__VA_ARGS__); break;         \
        case 6: F<T, 6>(__VA_ARGS__); break;         \
        case 7: F<T, 7>(__VA_ARGS__); break;         \
        default: F<T, TILE>(__VA_ARGS__);            \
    }

// x [rows, x_stride], out [rows, out_stride]. tiles: [count, TILE_NUMBERS]. At its address, `offset` numbers for each
// unit of rank further on, an adapter has A [inputs, spans * rank], then for each span B [rank, span's outputs].
// spans: [span_count, 2], where each begins in `out` and how many outputs it has. inner: [rows, inner_stride] floats.
template <typename T>
void add_lora(const T* x, int64_t x_stride, T* out, int64_t out_stride, const int64_t* tiles, int64_t count,
              int64_t inputs, int64_t offset, const int64_t* spans, int64_t span_count, float* inner,
              int64_t inner_stride) {
    int64_t highest = 0;
    for (int64_t t = 0; t < count; t++) highest = std::max(highest, Tile(tiles + t * TILE_NUMBERS).rank);
    const int64_t blocks = span_count * highest / LANES;
    int64_t pieces = 0;
    for (int64_t s = 0; s < span_count; s++) pieces += (spans[2 * s + 1] + CHUNK - 1) / CHUNK;
#pragma omp parallel
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * blocks; item++) {
            const Tile tile(tiles + item / blocks * TILE_NUMBERS);
            const int64_t column = item % blocks * LANES, columns = span_count * tile.rank;
            if (column >= columns) continue;
            const T* a = reinterpret_cast<const T*>(tile.address) + offset * tile.rank + column;
            FOR_ROWS(shrink, T, tile.rows, x + tile.begin * x_stride, x_stride, a, columns, inputs,
                     inner + tile.begin * inner_stride + column, inner_stride)
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * pieces; item++) {
            const Tile tile(tiles + item / pieces * TILE_NUMBERS);
            int64_t piece = item % pieces, span = 0, before = 0;  // before: outputs of the spans before it
            for (;; span++) {
                const int64_t own = (spans[2 * span + 1] + CHUNK - 1) / CHUNK;
                if (piece < own) break;
                piece -= own;
                before += spans[2 * span + 1];
            }
            const int64_t outputs = spans[2 * span + 1], begin = piece * CHUNK;
            const int64_t width = outputs - begin < CHUNK ? outputs - begin : CHUNK;
            const T* b = reinterpret_cast<const T*>(tile.address) + (offset + span_count * inputs + before) * tile.rank;
            FOR_ROWS(expand, T, tile.rows, inner + tile.begin * inner_stride + span * tile.rank, inner_stride,
                     b + begin, outputs, tile.rank, width,
                     out + tile.begin * out_stride + spans[2 * span] + begin, out_stride)
        }
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                              \
    extern "C" void add_lora_##NAME(const T* x, int64_t x_stride, T* out, int64_t out_stride, const int64_t* tiles,  \
                                    int64_t count, int64_t inputs, int64_t offset, const int64_t* spans,             \
                                    int64_t span_count, float* inner, int64_t inner_stride) {                        \
        add_lora(x, x_stride, out, out_stride, tiles, count, inputs, offset, spans, span_count, inner, inner_stride); \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)
