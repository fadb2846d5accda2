// Rows of numbers, a register at a time, as wide as this processor has them.

#pragma once

#include <cstdint>
#include <cstring>

#include "numbers.h"

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;  // floats in a register
#define WIDTH_IS_16
#elif defined(__AVX2__)
constexpr int WIDTH = 8;
#define WIDTH_IS_8
#else
constexpr int WIDTH = 4;
#endif

typedef float Register __attribute__((vector_size(WIDTH * sizeof(float))));
typedef uint32_t Words __attribute__((vector_size(WIDTH * sizeof(uint32_t))));
typedef int32_t Lanes __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef float Quad __attribute__((vector_size(4 * sizeof(float))));

inline Register load_register(const float* from) {
    Register values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

inline void store_register(Register values, float* to) { std::memcpy(to, &values, sizeof values); }

// STRIP numbers of a row. Which of them lies where is the storage's affair, and the same for all rows of one type: what
// meets lane by lane belongs together.
constexpr int STRIP = 2 * WIDTH;
struct Strip {
    Register first, second;
};

inline Strip load_strip(const float* from) {
    Strip strip;
    std::memcpy(&strip, from, sizeof strip);
    return strip;
}

// The even ones and the odd ones: two of them are one word, and a bf16 is the upper half of a float.
inline Strip load_strip(const bf16* from) {
    Words words;
    std::memcpy(&words, from, sizeof words);
    return {as<Register>(words << 16), as<Register>(words & 0xffff0000u)};
}

inline void store_strip(Strip strip, float* to) { std::memcpy(to, &strip, sizeof strip); }

inline void store_strip(Strip strip, bf16* to) {
    const Words words =
        (bf16_bits(as<Words>(strip.first)) >> 16) | (bf16_bits(as<Words>(strip.second)) & 0xffff0000u);
    std::memcpy(to, &words, sizeof words);
}

// The first `count` numbers, and zeros.
template <typename T>
inline Strip load_strip(const T* from, int64_t count) {
    T some[STRIP] = {};
    std::memcpy(some, from, count * sizeof(T));
    return load_strip(some);
}

template <typename T>
inline void store_strip(Strip strip, T* to, int64_t count) {
    T some[STRIP];
    store_strip(strip, some);
    std::memcpy(to, some, count * sizeof(T));
}

// Two registers dealt out in turn, as a pack of cards cut in half: the lower halves of both, and the upper ones.
// Not __builtin_shufflevector, which GCC has from version 12 on.
inline Register deal_lower(Register a, Register b) {
#if defined(WIDTH_IS_16)
    return __builtin_shuffle(a, b, Lanes{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
#elif defined(WIDTH_IS_8)
    return __builtin_shuffle(a, b, Lanes{0, 8, 1, 9, 2, 10, 3, 11});
#else
    return __builtin_shuffle(a, b, Lanes{0, 4, 1, 5});
#endif
}

inline Register deal_upper(Register a, Register b) {
#if defined(WIDTH_IS_16)
    return __builtin_shuffle(a, b, Lanes{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
#elif defined(WIDTH_IS_8)
    return __builtin_shuffle(a, b, Lanes{4, 12, 5, 13, 6, 14, 7, 15});
#else
    return __builtin_shuffle(a, b, Lanes{2, 6, 3, 7});
#endif
}

// The sum of each of four, side by side in `to`. Halves are added up while they are dealt out.
inline void store_sums(Register a, Register b, Register c, Register d, float* to) {
    const Register ac = deal_lower(a, c) + deal_upper(a, c), bd = deal_lower(b, d) + deal_upper(b, d);
    const Register dealt = deal_lower(ac, bd) + deal_upper(ac, bd);  // a b c d a b c d ...
    Quad quads[WIDTH / 4];
    std::memcpy(quads, &dealt, sizeof dealt);
    for (int i = 1; i < WIDTH / 4; i++) quads[0] += quads[i];
    std::memcpy(to, &quads[0], sizeof quads[0]);
}

// Rows become columns: all of them dealt out as often as it takes for the first to have been everywhere.
inline void transpose(Register rows[WIDTH]) {
    for (int turn = 1; turn < WIDTH; turn *= 2) {
        Register dealt[WIDTH];
#pragma GCC unroll 8
        for (int i = 0; i < WIDTH / 2; i++) {
            dealt[2 * i] = deal_lower(rows[i], rows[i + WIDTH / 2]);
            dealt[2 * i + 1] = deal_upper(rows[i], rows[i + WIDTH / 2]);
        }
        std::memcpy(rows, dealt, sizeof dealt);
    }
}

}  // namespace
