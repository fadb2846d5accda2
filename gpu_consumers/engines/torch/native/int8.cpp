// y = x W^T + b with W in int8, one scale for each output, for a processor with AVX512-VNNI. Elsewhere this file is empty.
//
// x becomes integers on the way, each row by itself: x = step * v, where v is rounded to whole steps. A step is such
// that three times the row's root mean square is 127 steps. The few numbers beyond have two digits, v = 128 * high + low,
// each of which fits in int8; only the places where some high is not zero are multiplied a second time. A row with a
// step of max |x| / 127 and no second digit, as is usual, loses ten times as much to its rounding: activations of language
// models have a few numbers that are far larger than the rest (Dettmers et al., LLM.int8(), NeurIPS 2022).
//
// Sums are exact, so what comes out for a row does not depend on its neighbours. They are right modulo 2^32 at each moment
// and fit in 32 bits at the end, for up to 65536 inputs.

#ifdef __AVX512VNNI__

#include <cstdint>
#include <memory>
#include <utility>

#include "numbers.h"

namespace {

constexpr int QUAD = 4;                // inputs that one instruction multiplies for each of 16 outputs
constexpr int PANEL = 2 * LANES;       // outputs whose weights lie together
constexpr int MOST_ROWS = 12;          // of a tile: 24 sums, 2 x 64 weights and 4 inputs in 32 registers
constexpr float DEVIATIONS = 3.0f;     // of a row's root mean squares are 127 steps
constexpr float LEAST = 1e-30f;        // a row with nothing larger counts as zeros

typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

// sums[lane] += dot product of the lane's four weights, unsigned, and four inputs, signed. In assembly, since of the
// intrinsic gcc 12 makes copies of all sums.
inline void multiply(Ints& sums, Ints weights, Ints inputs) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(inputs));
}

inline Ints load(const uint8_t* at) {
    Ints value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline Ints all(int32_t value) { return value - Ints{}; }

inline void multiply_both(Ints& near, Ints& far, Ints near_weights, Ints far_weights, Ints inputs) {
    multiply(near, near_weights, inputs);
    multiply(far, far_weights, inputs);
}

inline void store_both(const Ints& near, const Ints& far, int32_t* to) {
    std::memcpy(to, &near, sizeof near);
    std::memcpy(to + LANES, &far, sizeof far);
}

// A place in a row where numbers need a second digit: which four, and these digits.
struct Second {
    int32_t quad, digits;
};

// The rows of x as integers. Tiles of up to 12 rows lie one after another; in a tile, quads of the rows alternate.
struct Quantized {
    int64_t rows, quads, tile_rows;
    std::unique_ptr<int32_t[]> low;         // [tiles][quads][rows of the tile]: first digits
    std::unique_ptr<Second[]> second;       // [rows][quads], of which `seconds` are there
    std::unique_ptr<int32_t[]> seconds;     // [rows]
    std::unique_ptr<int32_t[]> excess;      // [rows]: what the 128 that is added to each weight makes of a sum
    std::unique_ptr<float[]> steps;         // [rows]; NaN where x is not finite

    Quantized(int64_t rows, int64_t inputs) : rows(rows), quads((inputs + QUAD - 1) / QUAD) {
        const int64_t tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
        tile_rows = (rows + tiles - 1) / tiles;
        low.reset(new int32_t[rows * quads]);
        second.reset(new Second[rows * quads]);
        seconds.reset(new int32_t[rows]);
        excess.reset(new int32_t[rows]);
        steps.reset(new float[rows]);
    }

    int64_t rows_of_tile(int64_t first) const { return rows - first < tile_rows ? rows - first : tile_rows; }
};

// Of one row: the step, or NaN. most: the bits of the largest |x|, by which NaN is above infinity and that above numbers.
template <typename T>
float step_of(const T* x, int64_t inputs) {
    int32_t most = 0;
    float squares = 0.0f;
    for (int64_t i = 0; i < inputs; i++) {
        const float value = widen(x[i]);
        int32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
        squares += value * value;
    }
    if (most >= 0x7f800000) return __builtin_nanf("");
    float largest;
    std::memcpy(&largest, &most, sizeof largest);
    if (largest < LEAST) return 0.0f;
    const float usual = DEVIATIONS * __builtin_sqrtf(squares / static_cast<float>(inputs));
    const float reach = usual < largest ? usual : largest;
    return (reach > largest / 127.0f ? reach : largest / 127.0f) / 127.0f;  // two digits reach 127 * 127 steps
}

template <typename T>
void quantize(const T* x, int64_t inputs, int64_t row, Quantized& to) {
    const int64_t first = row / to.tile_rows * to.tile_rows, rows = to.rows_of_tile(first);
    const float step = to.steps[row] = step_of(x, inputs);
    const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    int32_t* low = to.low.get() + first * to.quads + row - first;
    Second* second = to.second.get() + row * to.quads;
    int32_t sum = 0, seconds = 0;
    for (int64_t begin = 0; begin < inputs; begin += LANES * QUAD) {
        const int64_t count = inputs - begin < LANES * QUAD ? inputs - begin : LANES * QUAD;
        int8_t lows[LANES * QUAD] = {}, highs[LANES * QUAD] = {};
        int32_t beyond = 0;
        for (int64_t i = 0; i < count; i++) {
            // A row that is not finite has zeros here, whatever its numbers times zero are.
            const float scaled = inverse > 0.0f ? widen(x[begin + i]) * inverse : 0.0f;
            const int32_t value = static_cast<int32_t>(__builtin_roundevenf(scaled));
            const int32_t high = value > 127 || value < -127 ? (value + 64) >> 7 : 0;
            highs[i] = static_cast<int8_t>(high);
            lows[i] = static_cast<int8_t>(value - 128 * high);
            beyond |= high;
            sum += value;
        }
        const int64_t quads = (count + QUAD - 1) / QUAD, from = begin / QUAD;
        for (int64_t quad = 0; quad < quads; quad++)
            std::memcpy(low + (from + quad) * rows, lows + QUAD * quad, QUAD);
        if (beyond == 0) continue;
        for (int64_t quad = 0; quad < quads; quad++) {
            int32_t digits;
            std::memcpy(&digits, highs + QUAD * quad, QUAD);
            if (digits != 0) second[seconds++] = {static_cast<int32_t>(from + quad), digits};
        }
    }
    to.seconds[row] = seconds;
    to.excess[row] = 128 * sum;
}

// Sums of a row's second digits, times 128, with a panel's weights [quads][PANEL][QUAD] -> sums [PANEL].
inline void multiply_second(const Quantized& x, int64_t row, const uint8_t* weights, int32_t* to) {
    const Second *second = x.second.get() + row * x.quads, *end = second + x.seconds[row];
    Ints near = {}, far = {};
    for (; second < end; second++) {
        const uint8_t* at = weights + second->quad * PANEL * QUAD;
        multiply_both(near, far, load(at), load(at + LANES * QUAD), all(second->digits));
    }
    for (int lane = 0; lane < LANES; lane++) {
        to[lane] += near[lane] << 7;
        to[LANES + lane] += far[lane] << 7;
    }
}

// Sums of a tile's rows, from row `first` on, with a panel's weights -> sums [rows][PANEL]. The rows are a pack, not a
// loop: then gcc keeps their sums in registers.
template <int... ROW>
void multiply_tile(const Quantized& x, int64_t first, const uint8_t* weights, int32_t* to) {
    constexpr int ROWS = sizeof...(ROW);
    Ints near[ROWS] = {}, far[ROWS] = {};
    const int32_t *low = x.low.get() + first * x.quads, *end = low + ROWS * x.quads;
    for (const uint8_t* at = weights; low < end; low += ROWS, at += PANEL * QUAD) {
        const Ints near_weights = load(at), far_weights = load(at + LANES * QUAD);
        (multiply_both(near[ROW], far[ROW], near_weights, far_weights, all(low[ROW])), ...);
    }
    (store_both(near[ROW], far[ROW], to + ROW * PANEL), ...);
    for (int row = 0; row < ROWS; row++)  // last, when the weights are in the cache
        if (x.seconds[first + row] != 0) multiply_second(x, first + row, weights, to + row * PANEL);
}

using Tile = void (*)(const Quantized&, int64_t, const uint8_t*, int32_t*);

template <int... ROW>
constexpr Tile tile(std::integer_sequence<int, ROW...>) {
    return multiply_tile<ROW...>;
}

template <int... LAST>
Tile tile_of(int64_t rows, std::integer_sequence<int, LAST...>) {
    static constexpr Tile TILES[] = {tile(std::make_integer_sequence<int, LAST + 1>())...};
    return TILES[rows - 1];
}

// One row of a tile's sums -> out: scaled, and with what is to be added. bias, residual: may be null.
template <typename T>
inline void finish(const int32_t* sums, int32_t excess, float step, const float* scales, const T* bias, const T* residual,
                   T* out, int64_t count) {
    float values[PANEL];
    for (int64_t i = 0; i < count; i++) values[i] = static_cast<float>(sums[i] - excess) * (step * scales[i]);
    if (bias != nullptr)
        for (int64_t i = 0; i < count; i++) values[i] += widen(bias[i]);
    if (residual != nullptr)
        for (int64_t i = 0; i < count; i++) values[i] += widen(residual[i]);
    for (int64_t i = 0; i < count; i++) narrow(values[i], out + i);
}

// x: [rows, inputs]. weights: [panels][quads][PANEL][QUAD], each plus 128; zeros (128) behind the last output and input.
// scales: [panels * PANEL]. bias: [outputs] or null. residual: [rows, outputs] or null. out: [rows, outputs].
template <typename T>
void int8_linear(const T* x, const uint8_t* weights, const float* scales, const T* bias, const T* residual, T* out,
                 int64_t rows, int64_t inputs, int64_t outputs) {
    Quantized quantized(rows, inputs);
    const int64_t panel_bytes = quantized.quads * PANEL * QUAD;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) quantize(x + row * inputs, inputs, row, quantized);
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < outputs; begin += PANEL) {
            const uint8_t* panel = weights + begin / PANEL * panel_bytes;
            const int64_t count = outputs - begin < PANEL ? outputs - begin : PANEL;
            for (int64_t first = 0; first < rows; first += quantized.tile_rows) {
                alignas(64) int32_t sums[MOST_ROWS * PANEL];
                const int64_t tile = quantized.rows_of_tile(first);
                tile_of(tile, std::make_integer_sequence<int, MOST_ROWS>())(quantized, first, panel, sums);
                for (int64_t row = first; row < first + tile; row++) {
                    const int64_t at = row * outputs + begin;
                    const T* added = residual == nullptr ? nullptr : residual + at;
                    const T* shifted = bias == nullptr ? nullptr : bias + begin;
                    const int32_t* sum = sums + (row - first) * PANEL;
                    if (count == PANEL)  // a constant, for the compiler
                        finish(sum, quantized.excess[row], quantized.steps[row], scales + begin, shifted, added, out + at, PANEL);
                    else
                        finish(sum, quantized.excess[row], quantized.steps[row], scales + begin, shifted, added, out + at, count);
                }
            }
        }
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                              \
    extern "C" void int8_linear_##NAME(const T* x, const uint8_t* weights, const float* scales, const T* bias,       \
                                       const T* residual, T* out, int64_t rows, int64_t inputs, int64_t outputs) {   \
        int8_linear(x, weights, scales, bias, residual, out, rows, inputs, outputs);                                 \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)

#endif  // __AVX512VNNI__
