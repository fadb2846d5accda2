// What softmax and the gates are made of. Plain enough for the compiler to run it on as many numbers as a register holds.

#pragma once

#include <cstdint>
#include <cstring>

#include "registers.h"

namespace {

// exp(x) for x <= 0, to two units in the last place: 2^n times a polynomial of the rest.
inline float exp_of(float x) {
    float bounded = x < -87.0f ? -87.0f : x;
    float n = __builtin_rintf(bounded * 1.44269504f);  // GCC 12 vectorizes this, and not roundevenf
    float r = bounded - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666657f + r * (0.0416657336f + r * (0.00833336077f + r * 0.00139320828f)))));
    int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &exponent, sizeof scale);
    return p * scale;
}

inline Register exp_of(Register values) {
    float lanes[WIDTH];
    store_register(values, lanes);
    for (int lane = 0; lane < WIDTH; lane++) lanes[lane] = exp_of(lanes[lane]);  // becomes one vector
    return load_register(lanes);
}

// cap * tanh(x / cap), which bounds x softly.
inline float capped(float x, float cap) {
    const float away = x < 0.0f ? x : -x;
    const float e = exp_of(2.0f * away / cap);  // of minus the absolute value, so that it can't overflow
    const float bound = cap * (1.0f - e) / (1.0f + e);
    return x < 0.0f ? -bound : bound;
}

}  // namespace
