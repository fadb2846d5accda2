// What a decode step does between its matrix products, each as one pass over the data, on all of torch's CPU threads.
//
// Written for the compiler's vectorizer: plain loops over contiguous numbers, arithmetic in float whatever the storage.
// The threads are those of the OpenMP runtime that torch has loaded: nothing here links one of its own, so both agree
// on how many there are. NaN and infinity go through every function as arithmetic has it: a caller looks for them.

#include <cstdint>
#include <cstring>

#include "exp.h"
#include "numbers.h"

namespace {

// Rotates queries and keys of qkv [tokens, query_heads + 2 * key_heads, dim] in place, by cos and sin of
// [tokens, query_heads + key_heads, dim] (see rotary.py), and writes keys and values to their places in memory.
template <typename T>
void rotate_and_store(T* qkv, const T* cos, const T* sin, const int64_t* places, T* keys, T* values, int64_t tokens,
                      int64_t query_heads, int64_t key_heads, int64_t dim, int64_t block_tokens) {
    const int64_t turned = query_heads + key_heads, heads = turned + key_heads, half = dim / 2;
#pragma omp parallel for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        const int64_t block = places[token] / block_tokens, offset = places[token] % block_tokens;
        T* row = qkv + token * heads * dim;
        for (int64_t head = 0; head < turned; head++) {
            T *low = row + head * dim, *high = low + half;
            const T* c = cos + (token * turned + head) * dim;
            const T* s = sin + (token * turned + head) * dim;
            for (int64_t d = 0; d < half; d++) {
                const float a = widen(low[d]), b = widen(high[d]);
                narrow(a * widen(c[d]) + b * widen(s[d]), low + d);
                narrow(b * widen(c[half + d]) + a * widen(s[half + d]), high + d);
            }
        }
        for (int64_t head = 0; head < key_heads; head++) {
            const int64_t place = ((block * key_heads + head) * block_tokens + offset) * dim;
            std::memcpy(keys + place, row + (query_heads + head) * dim, dim * sizeof(T));
            std::memcpy(values + place, row + (turned + head) * dim, dim * sizeof(T));
        }
    }
}

// RMS norm of each of the first `normed` heads of qkv [tokens, heads, dim] by itself, in place. weight: [normed, dim].
template <typename T>
void norm_heads(T* qkv, const float* weight, int64_t tokens, int64_t heads, int64_t normed, int64_t dim,
                float epsilon) {
#pragma omp parallel for schedule(static) if (tokens * normed * dim > 16384)
    for (int64_t token = 0; token < tokens; token++)
        for (int64_t head = 0; head < normed; head++) {
            T* row = qkv + (token * heads + head) * dim;
            float squares = 0.0f;
            for (int64_t d = 0; d < dim; d++) squares += widen(row[d]) * widen(row[d]);
            const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + epsilon);
            for (int64_t d = 0; d < dim; d++) narrow(widen(row[d]) * scale * weight[head * dim + d], row + d);
        }
}

// The weight is in float whatever the rows are: rounding it would cost precision where it is a distance from one.
template <typename T>
void rms_norm(const T* x, const float* weight, T* out, int64_t rows, int64_t dim, float epsilon) {
#pragma omp parallel for schedule(static) if (rows * dim > 65536)
    for (int64_t row = 0; row < rows; row++) {
        const T* from = x + row * dim;
        float squares = 0.0f;
        for (int64_t d = 0; d < dim; d++) squares += widen(from[d]) * widen(from[d]);
        const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + epsilon);
        for (int64_t d = 0; d < dim; d++) narrow(widen(from[d]) * scale * weight[d], out + row * dim + d);
    }
}

// silu(gate) * up of [rows, 2 * dim] -> [rows, dim].
template <typename T>
void gated_silu(const T* gate_up, T* out, int64_t rows, int64_t dim) {
#pragma omp parallel for schedule(static) if (rows * dim > 16384)
    for (int64_t row = 0; row < rows; row++) {
        const T* gate = gate_up + row * 2 * dim;
        for (int64_t d = 0; d < dim; d++) {
            const float g = widen(gate[d]), away = g < 0.0f ? g : -g;
            const float e = exp_of(away);  // of minus the absolute value, so that it can't overflow
            const float sigmoid = (g < 0.0f ? e : 1.0f) / (1.0f + e);
            narrow(g * sigmoid * widen(gate[dim + d]), out + row * dim + d);
        }
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                               \
    extern "C" void rotate_and_store_##NAME(T* qkv, const T* cos, const T* sin, const int64_t* places, T* keys,       \
                                            T* values, int64_t tokens, int64_t query_heads, int64_t key_heads,        \
                                            int64_t dim, int64_t block_tokens) {                                      \
        rotate_and_store(qkv, cos, sin, places, keys, values, tokens, query_heads, key_heads, dim, block_tokens);     \
    }                                                                                                                 \
    extern "C" void norm_heads_##NAME(T* qkv, const float* weight, int64_t tokens, int64_t heads, int64_t normed,     \
                                      int64_t dim, float epsilon) {                                                   \
        norm_heads(qkv, weight, tokens, heads, normed, dim, epsilon);                                                 \
    }                                                                                                                 \
    extern "C" void rms_norm_##NAME(const T* x, const float* weight, T* out, int64_t rows, int64_t dim,               \
                                    float epsilon) {                                                                  \
        rms_norm(x, weight, out, rows, dim, epsilon);                                                                 \
    }                                                                                                                 \
    extern "C" void gated_silu_##NAME(const T* gate_up, T* out, int64_t rows, int64_t dim) {                          \
        gated_silu(gate_up, out, rows, dim);                                                                          \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)
