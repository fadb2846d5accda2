// y = x W^T + b with W in int8, one scale for each output, on a processor with AVX512-VNNI. Elsewhere this is empty.
//
// x becomes integers on the way, each row by itself: x = step * v, rounded to whole steps, and 127 steps are three times
// the row's root mean square. The few numbers beyond have two digits, v = 128 * high + low, each of them an int8: only
// where some `high` is not 0 the weights are multiplied a second time. The usual step, max |x| / 127, needs no second
// digit, but activations have a few numbers that are far larger than the rest (Dettmers et al., LLM.int8(), NeurIPS
// 2022): it costs SmolLM2-135M 4% of its perplexity where this costs 0.2%, beside the 0.4% of the weights.
//
// Sums of integers are exact, so what comes out for a row does not depend on its neighbours. With up to 65536 inputs
// they fit in 32 bits: if there are second digits, the root mean square of v is 43 at most.

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
typedef int8_t Bytes __attribute__((vector_size(LANES)));

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
    std::unique_ptr<float[]> steps;         // [rows]; NaN where x is not finite, and v is 0 there

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

// LANES inputs of a row from `begin` on, with zeros behind the last.
template <typename T>
inline Floats inputs_from(const T* x, int64_t begin, int64_t inputs) {
    if (begin + LANES <= inputs) return load_floats(x + begin);
    T rest[LANES] = {};
    std::memcpy(rest, x + begin, (inputs - begin) * sizeof(T));
    return load_floats(rest);
}

// Of one row: the step, 0 or NaN. NaN has larger bits than infinity, and that has larger ones than numbers.
template <typename T>
float step_of(const T* x, int64_t inputs) {
    Ints most = {};
    Floats squares = {};
    for (int64_t begin = 0; begin < inputs; begin += LANES) {
        const Floats values = inputs_from(x, begin, inputs);
        const Ints bits = reinterpret_cast<Ints>(values) & 0x7fffffff;
        most = bits > most ? bits : most;
        squares += values * values;
    }
    int32_t bits = 0;
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; lane++) {
        bits = most[lane] > bits ? most[lane] : bits;
        sum += squares[lane];
    }
    if (bits >= 0x7f800000) return __builtin_nanf("");
    float largest;
    std::memcpy(&largest, &bits, sizeof largest);
    if (largest < LEAST) return 0.0f;
    const float usual = DEVIATIONS * __builtin_sqrtf(sum / static_cast<float>(inputs));
    const float reach = usual < largest ? usual : largest;
    return (reach > largest / 127.0f ? reach : largest / 127.0f) / 127.0f;  // two digits reach 127 * 127 steps
}

// To the nearest, ties to even. For |value| < 2^22: the sum's last bit is worth 1.
inline Ints rounded(Floats values) {
    const Floats shift = 12582912.0f - Floats{};
    return reinterpret_cast<Ints>(values + shift) - reinterpret_cast<Ints>(shift);
}

template <typename T>
void quantize(const T* x, int64_t inputs, int64_t row, Quantized& to) {
    const int64_t first = row / to.tile_rows * to.tile_rows, rows = to.rows_of_tile(first);
    const float step = to.steps[row] = step_of(x, inputs);
    const bool has_numbers = step > 0.0f;  // else v is 0
    const float inverse = has_numbers ? 1.0f / step : 0.0f;
    int32_t* low = to.low.get() + first * to.quads + row - first;
    Second* second = to.second.get() + row * to.quads;
    Ints sums = {};
    int32_t seconds = 0;
    for (int64_t begin = 0; begin < inputs; begin += LANES) {
        const Ints value = has_numbers ? rounded(inputs_from(x, begin, inputs) * inverse) : Ints{};
        const Ints high = ((value > 127) | (value < -127)) & ((value + 64) >> 7);
        const Bytes lows = __builtin_convertvector(value - (high << 7), Bytes);
        const Bytes highs = __builtin_convertvector(high, Bytes);
        sums += value;
        int32_t digits[2][LANES / QUAD];
        std::memcpy(digits[0], &lows, sizeof lows);
        std::memcpy(digits[1], &highs, sizeof highs);
        const int64_t from = begin / QUAD, quads = to.quads - from < LANES / QUAD ? to.quads - from : LANES / QUAD;
        for (int64_t quad = 0; quad < quads; quad++) {
            low[(from + quad) * rows] = digits[0][quad];
            if (digits[1][quad] != 0) second[seconds++] = {static_cast<int32_t>(from + quad), digits[1][quad]};
        }
    }
    int32_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
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
inline void finish(const int32_t* sums, int32_t excess, float step, const float* scales, const T* bias,
                   const T* residual, T* out, int64_t count) {
    float values[PANEL];
    for (int64_t i = 0; i < count; i++) values[i] = static_cast<float>(sums[i] - excess) * (step * scales[i]);
    if (bias != nullptr)
        for (int64_t i = 0; i < count; i++) values[i] += widen(bias[i]);
    if (residual != nullptr)
        for (int64_t i = 0; i < count; i++) values[i] += widen(residual[i]);
    for (int64_t i = 0; i < count; i++) narrow(values[i], out + i);
}

// W, b and what is added: one scale for each output. bias: [outputs] or null. residual: [rows, outputs] or null.
// weights: [panels][quads][PANEL][QUAD], each plus 128, and 128 behind the last output and input.
// scales: [panels * PANEL].
template <typename T>
struct Product {
    const uint8_t* weights;
    const float* scales;
    const T *bias, *residual;
    T* out;
    int64_t outputs;
};

// All rows of the outputs from `begin` on that a panel holds.
template <typename T>
void multiply_panel(const Quantized& x, const Product<T>& w, int64_t begin) {
    const uint8_t* panel = w.weights + begin * x.quads * QUAD;
    const int64_t count = w.outputs - begin < PANEL ? w.outputs - begin : PANEL;
    const T* bias = w.bias == nullptr ? nullptr : w.bias + begin;
    alignas(64) int32_t sums[MOST_ROWS * PANEL];
    for (int64_t first = 0; first < x.rows; first += x.tile_rows) {
        const int64_t rows = x.rows_of_tile(first);
        tile_of(rows, std::make_integer_sequence<int, MOST_ROWS>())(x, first, panel, sums);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = first + i, at = row * w.outputs + begin;
            const T* residual = w.residual == nullptr ? nullptr : w.residual + at;
            const auto finish_row = [&](int64_t width) {
                finish(sums + i * PANEL, x.excess[row], x.steps[row], w.scales + begin, bias, residual, w.out + at,
                       width);
            };
            if (count == PANEL)  // a constant, for the compiler
                finish_row(PANEL);
            else
                finish_row(count);
        }
    }
}

template <typename T>
void int8_linear(const T* x, int64_t rows, int64_t inputs, const Product<T>& w) {
    Quantized quantized(rows, inputs);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) quantize(x + row * inputs, inputs, row, quantized);
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < w.outputs; begin += PANEL) multiply_panel(quantized, w, begin);
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                              \
    extern "C" void int8_linear_##NAME(const T* x, const uint8_t* weights, const float* scales, const T* bias,       \
                                       const T* residual, T* out, int64_t rows, int64_t inputs, int64_t outputs) {   \
        int8_linear(x, rows, inputs, Product<T>{weights, scales, bias, residual, out, outputs});                     \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)

#endif  // __AVX512VNNI__
