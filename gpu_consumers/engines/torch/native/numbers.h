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

}  // namespace
