// Numbers as they are stored, and as they are computed with: in float, whatever the storage.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;  // numbers side by side in what Python lays out for a kernel

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

// LANES of them, in as many registers as that takes on this processor.
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

// Of the bits of floats: those of a bf16 in the upper half, rounded as `narrow` does.
template <typename Bits>
inline Bits bf16_bits(Bits bits) {
    const Bits nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : nearest;
}

inline void store_floats(Floats values, bf16* to) {
    const Halves halves = __builtin_convertvector(bf16_bits(as<FloatBits>(values)) >> 16, Halves);
    std::memcpy(to, &halves, sizeof halves);
}

}  // namespace
