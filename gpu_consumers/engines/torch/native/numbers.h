// Numbers as they are stored, and as they are computed with: in float, whatever the storage.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;  // floats that the widest registers hold

struct bf16 {
    uint16_t bits;
};

inline float widen(float x) { return x; }

inline float widen(bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline void narrow(float value, float* to) { *to = value; }

// To the nearest, ties to even, as torch rounds; a NaN stays one.
inline void narrow(float value, bf16* to) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u;
    to->bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// LANES numbers side by side, in as many registers as they take on this processor.
typedef float Floats __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t FloatBits __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t Halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

template <typename To, typename From>
inline To as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline Floats load_floats(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

inline Floats load_floats(const bf16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return as<Floats>(__builtin_convertvector(halves, FloatBits) << 16);
}

inline void store_floats(Floats values, float* to) { std::memcpy(to, &values, sizeof values); }

// The bits of a bf16 in the upper half, rounded as `narrow` does.
inline FloatBits bf16_bits(Floats values) {
    const FloatBits bits = as<FloatBits>(values);
    const FloatBits nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : nearest;
}

inline void store_floats(Floats values, bf16* to) {
    const Halves halves = __builtin_convertvector(bf16_bits(values) >> 16, Halves);
    std::memcpy(to, &halves, sizeof halves);
}

// STRIP numbers of a row. Which of them lies where is the storage's affair, and the same for all rows of one type: what
// meets lane by lane belongs together.
constexpr int STRIP = 2 * LANES;
struct Strip {
    Floats first, second;
};

inline Strip load_strip(const float* from) {
    Strip strip;
    std::memcpy(&strip, from, sizeof strip);
    return strip;
}

// The even ones and the odd ones: two of them are one word, and a bf16 is the upper half of a float.
inline Strip load_strip(const bf16* from) {
    FloatBits words;
    std::memcpy(&words, from, sizeof words);
    return {as<Floats>(words << 16), as<Floats>(words & 0xffff0000u)};
}

inline void store_strip(Strip strip, float* to) { std::memcpy(to, &strip, sizeof strip); }

inline void store_strip(Strip strip, bf16* to) {
    const FloatBits words = (bf16_bits(strip.first) >> 16) | (bf16_bits(strip.second) & 0xffff0000u);
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

// The sums of four, side by side: what they have in common is added up at once.
inline void store_sums(Floats a, Floats b, Floats c, Floats d, float* to) {
    const Floats ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                      __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const Floats cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                      __builtin_shufflevector(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    Floats sums = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                  __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    sums += __builtin_shufflevector(sums, sums, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    sums += __builtin_shufflevector(sums, sums, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    const float four[] = {sums[0], sums[4], sums[8], sums[12]};
    std::memcpy(to, four, sizeof four);
}

}  // namespace
