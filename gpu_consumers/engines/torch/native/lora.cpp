// What LoRA adapters add to a matrix product of a step: out += x A B, each row with the A and B of its own adapter.
//
// Rows of one adapter lie together. A tile is a few of them, and reads A and B once for all its rows; what a row gets
// does not depend on its neighbours. Two passes over all tiles, each shared out among torch's CPU threads: x A to
// `inner`, then that times B. As in kernels.cpp, sums are in float and no OpenMP runtime is linked.
//
// A and B lie in blocks of LANES columns, each of which is read from its begin to its end. In bf16 two rows of a block
// lie together, number by number: [columns / LANES, rows / 2, LANES, 2]. So a register holds what processors with
// AVX512_BF16 multiply and add at once, and others take apart with one operation each.
//
// A decode step reads every weight once, from memory: what lies ahead is asked for early, also beyond the end of a block,
// where the next one begins. Without that it takes twice as long.

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "numbers.h"

namespace {

constexpr int TILE = 8;           // most rows of a tile
constexpr int64_t CHUNK = 256;    // outputs of one piece of work
constexpr int AHEAD = 128;        // registers full of weights between what is asked of memory and what is computed
constexpr int TILE_NUMBERS = 4;   // how a tile is told: first row, rows, address of the adapter's weights, rank

// How T is multiplied: DEPTH rows of a matrix at a time, LANES columns of them in a register.
template <typename T>
struct Multiply;

template <>
struct Multiply<float> {
    static constexpr int DEPTH = 1;
    typedef Floats Weights;
    typedef float Value;
    static Floats add(Floats sum, Weights weights, Value value) { return sum + value * weights; }
};

template <>
struct Multiply<bf16> {
    static constexpr int DEPTH = 2;
    typedef FloatBits Weights;
    typedef uint32_t Value;
    static Floats add(Floats sum, Weights weights, Value value) {
#if defined(__AVX512BF16__)
        const __m512i pair = _mm512_set1_epi32(static_cast<int>(value));
        return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                         reinterpret_cast<__m512bh>(weights),
                                                         reinterpret_cast<__m512bh>(pair)));
#else
        const uint32_t first = value << 16, second = value & 0xffff0000u;
        float low, high;
        std::memcpy(&low, &first, sizeof low);
        std::memcpy(&high, &second, sizeof high);
        return sum + low * reinterpret_cast<Floats>(weights << 16) +
               high * reinterpret_cast<Floats>(weights & 0xffff0000u);
#endif
    }
};

template <typename To, typename From>
inline To load(const From* at) {
    To value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// inner[row][0..LANES) = x[row] A for one block of A.
template <typename T, int ROWS>
void shrink(const T* x, int64_t x_stride, const T* a, int64_t inputs, T* inner, int64_t inner_stride) {
    typedef Multiply<T> M;
    constexpr int TURNS = ROWS > 4 ? 1 : ROWS > 2 ? 2 : 4;  // sums a row: enough to hide the latency of an addition
    constexpr int SIZE = LANES * M::DEPTH;
    Floats sums[TURNS][ROWS] = {};
    const int64_t steps = inputs / M::DEPTH;
    int64_t step = 0;
    for (; step + TURNS <= steps; step += TURNS)
#pragma GCC unroll 4
        for (int turn = 0; turn < TURNS; turn++) {
            const auto weights = load<typename M::Weights>(a + (step + turn) * SIZE);
            __builtin_prefetch(a + (step + turn + AHEAD) * SIZE);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++) {
                const auto value = load<typename M::Value>(x + row * x_stride + (step + turn) * M::DEPTH);
                sums[turn][row] = M::add(sums[turn][row], weights, value);
            }
        }
    for (; step < steps; step++)
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++)
            sums[0][row] = M::add(sums[0][row], load<typename M::Weights>(a + step * SIZE),
                                  load<typename M::Value>(x + row * x_stride + step * M::DEPTH));
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 4
        for (int turn = 1; turn < TURNS; turn++) sums[0][row] += sums[turn][row];
        store_floats(sums[0][row], inner + row * inner_stride);
    }
}

// out[row][0..WIDTH * LANES) += inner[row] B for WIDTH blocks of B, which lie `rank` rows apart.
template <typename T, int ROWS, int WIDTH>
inline void expand_blocks(const T* inner, int64_t inner_stride, const T* b, int64_t rank, T* out, int64_t out_stride) {
    typedef Multiply<T> M;
    Floats sums[WIDTH][ROWS];
#pragma GCC unroll 2
    for (int w = 0; w < WIDTH; w++)
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) sums[w][row] = load_floats(out + row * out_stride + w * LANES);
    for (int64_t k = 0; k < rank; k += M::DEPTH)
#pragma GCC unroll 2
        for (int w = 0; w < WIDTH; w++) {
            const auto weights = load<typename M::Weights>(b + (w * rank + k) * LANES);
            __builtin_prefetch(b + (w * rank + k + AHEAD * M::DEPTH) * LANES);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++)
                sums[w][row] = M::add(sums[w][row], weights, load<typename M::Value>(inner + row * inner_stride + k));
        }
#pragma GCC unroll 2
    for (int w = 0; w < WIDTH; w++)
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) store_floats(sums[w][row], out + row * out_stride + w * LANES);
}

// out[row][0..count) += inner[row] B, where B begins with the block of the first of these columns.
template <typename T, int ROWS>
void expand(const T* inner, int64_t inner_stride, const T* b, int64_t rank, int64_t count, T* out, int64_t out_stride) {
    int64_t begin = 0;
    for (; begin + 2 * LANES <= count; begin += 2 * LANES)
        expand_blocks<T, ROWS, 2>(inner, inner_stride, b + begin * rank, rank, out + begin, out_stride);
    if (begin < count)
        expand_blocks<T, ROWS, 1>(inner, inner_stride, b + begin * rank, rank, out + begin, out_stride);
}

// The version for so many rows, where F is a template over their number.
#define FOR_ROWS(F, T, ROWS, ...)            \
    switch (ROWS) {                          \
        case 1: F<T, 1>(__VA_ARGS__); break; \
        case 2: F<T, 2>(__VA_ARGS__); break; \
        case 3: F<T, 3>(__VA_ARGS__); break; \
        case 4: F<T, 4>(__VA_ARGS__); break; \
        case 5: F<T, 5>(__VA_ARGS__); break; \
        case 6: F<T, 6>(__VA_ARGS__); break; \
        case 7: F<T, 7>(__VA_ARGS__); break; \
        default: F<T, TILE>(__VA_ARGS__);    \
    }

struct Tile {
    int64_t begin, rows, address, rank;
    explicit Tile(const int64_t* at) : begin(at[0]), rows(at[1]), address(at[2]), rank(at[3]) {}
};

// x [rows, x_stride], out [rows, out_stride]. tiles: [count, TILE_NUMBERS]. At its address, `offset` numbers for each
// unit of rank further on, an adapter has A [inputs, spans * rank], then for each span B [rank, span's outputs].
// spans: [span_count, 2], where each begins in `out` and how many outputs it has, a multiple of LANES.
// inner: [rows, inner_stride].
template <typename T>
void add_lora(const T* x, int64_t x_stride, T* out, int64_t out_stride, int64_t inputs, int64_t offset,
              const int64_t* tiles, int64_t count, const int64_t* spans, int64_t span_count, T* inner,
              int64_t inner_stride) {
    int64_t highest = 0, pieces = 0;
    for (int64_t t = 0; t < count; t++) highest = std::max(highest, Tile(tiles + t * TILE_NUMBERS).rank);
    for (int64_t s = 0; s < span_count; s++) pieces += (spans[2 * s + 1] + CHUNK - 1) / CHUNK;
    const int64_t blocks = span_count * highest / LANES;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t item = 0; item < count * blocks; item++) {
            const Tile tile(tiles + item / blocks * TILE_NUMBERS);
            const int64_t column = item % blocks * LANES, columns = span_count * tile.rank;
            if (column >= columns) continue;
            const T* a = reinterpret_cast<const T*>(tile.address) + offset * tile.rank + column * inputs;
            FOR_ROWS(shrink, T, tile.rows, x + tile.begin * x_stride, x_stride, a, inputs,
                     inner + tile.begin * inner_stride + column, inner_stride)
        }
#pragma omp for schedule(static)
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
            const T* b = reinterpret_cast<const T*>(tile.address) +
                         (offset + span_count * inputs + before + begin) * tile.rank;
            FOR_ROWS(expand, T, tile.rows, inner + tile.begin * inner_stride + span * tile.rank, inner_stride, b,
                     tile.rank, std::min(CHUNK, outputs - begin),
                     out + tile.begin * out_stride + spans[2 * span] + begin, out_stride)
        }
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                               \
    extern "C" void add_lora_##NAME(const T* x, int64_t x_stride, T* out, int64_t out_stride, int64_t inputs,         \
                                    int64_t offset, const int64_t* tiles, int64_t count, const int64_t* spans,        \
                                    int64_t span_count, T* inner, int64_t inner_stride) {                             \
        add_lora(x, x_stride, out, out_stride, inputs, offset, tiles, count, spans, span_count, inner, inner_stride); \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)
