// What a decode step does between its matrix products, each as one pass over the data, on all of torch's CPU threads.
//
// Written for the compiler's vectorizer: plain loops over contiguous numbers, arithmetic in float whatever the storage.
// The threads are those of the OpenMP runtime that torch has loaded: nothing here links one of its own, so both agree
// on how many there are. NaN and infinity go through every function as arithmetic has it: a caller looks for them.

#include <cstdint>
#include <cstring>
#include <vector>

#include "numbers.h"

namespace {

constexpr int MAX_GROUP = 64;  // query heads that may share a key-value head

// exp(x) for x <= 0, to two units in the last place: 2^n times a polynomial of the rest.
inline float exp_of(float x) {
    float bounded = x < -87.0f ? -87.0f : x;
    float n = __builtin_roundevenf(bounded * 1.44269504f);
    float r = bounded - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666657f + r * (0.0416657336f + r * (0.00833336077f + r * 0.00139320828f)))));
    int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &exponent, sizeof scale);
    return p * scale;
}

// cap * tanh(x / cap), which bounds x softly.
inline float capped(float x, float cap) {
    const float away = x < 0.0f ? x : -x;
    const float e = exp_of(2.0f * away / cap);  // of minus the absolute value, so that it can't overflow
    const float bound = cap * (1.0f - e) / (1.0f + e);
    return x < 0.0f ? -bound : bound;
}

// Attention of one key-value head's queries over one sequence, but for its first `skipped` tokens. DIM, GROUP: head
// size and queries, 0 where only the arguments know them. softcap: of the scores, 0 for none. scratch: [group, length]
// and [group, dim] floats.
template <typename T, int DIM, int GROUP>
void attend_one(const T* queries, int64_t any_group, int64_t any_dim, const T* keys, const T* values,
                const int32_t* blocks, int64_t block_tokens, int64_t block_stride, int64_t length, int64_t skipped,
                float softcap, T* out, float* scratch) {
    const int64_t dim = DIM ? DIM : any_dim, group = GROUP ? GROUP : any_group;
    float* scores = scratch;
    float* asked = scratch + group * length;
    for (int64_t i = 0; i < group * dim; i++) asked[i] = widen(queries[i]);
    for (int64_t begin = 0; begin < length; begin += block_tokens) {
        const T* block = keys + blocks[begin / block_tokens] * block_stride;
        const int64_t count = length - begin < block_tokens ? length - begin : block_tokens;
        for (int64_t t = 0; t < count; t++) {
            const T* key = block + t * dim;
            float sums[GROUP ? GROUP : MAX_GROUP];
            for (int64_t g = 0; g < group; g++) sums[g] = 0.0f;
            if (DIM && GROUP) {  // known sizes: the sums stay in registers, and a key is widened once
                float parts[GROUP ? GROUP : 1][LANES] = {};
                for (int d = 0; d < DIM; d += LANES)
                    for (int g = 0; g < GROUP; g++)
#pragma omp simd
                        for (int lane = 0; lane < LANES; lane++)
                            parts[g][lane] += asked[g * DIM + d + lane] * widen(key[d + lane]);
                for (int g = 0; g < GROUP; g++)
                    for (int lane = 0; lane < LANES; lane++) sums[g] += parts[g][lane];
            } else {
                for (int64_t g = 0; g < group; g++)
                    for (int64_t d = 0; d < dim; d++) sums[g] += asked[g * dim + d] * widen(key[d]);
            }
            for (int64_t g = 0; g < group; g++) scores[g * length + begin + t] = sums[g];
        }
    }
    for (int64_t g = 0; g < group; g++) {
        float* row = scores + g * length;
        if (softcap > 0.0f)
            for (int64_t t = skipped; t < length; t++) row[t] = capped(row[t], softcap);
        float highest = row[skipped];
        for (int64_t t = skipped + 1; t < length; t++) highest = row[t] > highest ? row[t] : highest;
        float sum = 0.0f;
        for (int64_t t = 0; t < skipped; t++) row[t] = 0.0f;
        for (int64_t t = skipped; t < length; t++) {
            row[t] = exp_of(row[t] - highest);
            sum += row[t];
        }
        const float scale = 1.0f / sum;
        for (int64_t t = skipped; t < length; t++) row[t] *= scale;
    }
    float* mixed = asked;  // the queries are no longer needed
    for (int64_t i = 0; i < group * dim; i++) mixed[i] = 0.0f;
    for (int64_t begin = 0; begin < length; begin += block_tokens) {
        const T* block = values + blocks[begin / block_tokens] * block_stride;
        const int64_t count = length - begin < block_tokens ? length - begin : block_tokens;
        const float* row = scores + begin;
        for (int64_t d = 0; d < dim; d += LANES) {  // a strip of the head at a time, its sums in registers
            const int64_t width = dim - d < LANES ? dim - d : LANES;
            for (int64_t g = 0; g < group; g++) {
                float sums[LANES] = {};
                if (width == LANES)
                    for (int64_t t = 0; t < count; t++)
#pragma omp simd
                        for (int lane = 0; lane < LANES; lane++)
                            sums[lane] += row[g * length + t] * widen(block[t * dim + d + lane]);
                else
                    for (int64_t t = 0; t < count; t++)
                        for (int64_t lane = 0; lane < width; lane++)
                            sums[lane] += row[g * length + t] * widen(block[t * dim + d + lane]);
                for (int64_t lane = 0; lane < width; lane++) mixed[g * dim + d + lane] += sums[lane];
            }
        }
    }
    for (int64_t i = 0; i < group * dim; i++) narrow(mixed[i], out + i);
}

template <typename T, int DIM>
auto attend_for_group(int64_t group) {
    switch (group) {
        case 1: return attend_one<T, DIM, 1>;
        case 2: return attend_one<T, DIM, 2>;
        case 3: return attend_one<T, DIM, 3>;
        case 4: return attend_one<T, DIM, 4>;
        case 5: return attend_one<T, DIM, 5>;
        case 6: return attend_one<T, DIM, 6>;
        case 7: return attend_one<T, DIM, 7>;
        case 8: return attend_one<T, DIM, 8>;
        default: return attend_one<T, DIM, 0>;
    }
}

// One query a sequence. queries: [count, row_stride] of which the first query_heads * dim are theirs, scaled and
// rotated. keys, values: [blocks, key_heads, block_tokens, dim]. blocks: [count, columns]. out: [count, query_heads * dim].
// window: how many of the newest tokens are attended to, 0 for all.
template <typename T>
void attend(const T* queries, int64_t row_stride, const T* keys, const T* values, const int32_t* blocks,
            const int32_t* lengths, T* out, int64_t count, int64_t columns, int64_t query_heads, int64_t key_heads,
            int64_t dim, int64_t block_tokens, int64_t window, float softcap) {
    const int64_t group = query_heads / key_heads, head_stride = block_tokens * dim;
    const auto one = dim == 64 ? attend_for_group<T, 64>(group)
                   : dim == 128 ? attend_for_group<T, 128>(group)
                                : attend_one<T, 0, 0>;
#pragma omp parallel
    {
        std::vector<float> scratch;
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * key_heads; item++) {
            const int64_t row = item / key_heads, head = item % key_heads;
            const int64_t first = window > 0 && lengths[row] > window ? lengths[row] - window : 0;
            const int64_t unseen = first / block_tokens;  // blocks
            const int64_t length = lengths[row] - unseen * block_tokens;
            scratch.resize(group * (length + dim));
            one(queries + row * row_stride + head * group * dim, group, dim, keys + head * head_stride,
                values + head * head_stride, blocks + row * columns + unseen, block_tokens, key_heads * head_stride,
                length, first % block_tokens, softcap, out + (row * query_heads + head * group) * dim, scratch.data());
        }
    }
}

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
    extern "C" void attend_##NAME(const T* queries, int64_t row_stride, const T* keys, const T* values,               \
                                  const int32_t* blocks, const int32_t* lengths, T* out, int64_t count,               \
                                  int64_t columns, int64_t query_heads, int64_t key_heads, int64_t dim,               \
                                  int64_t block_tokens, int64_t window, float softcap) {                              \
        attend(queries, row_stride, keys, values, blocks, lengths, out, count, columns, query_heads, key_heads, dim,  \
               block_tokens, window, softcap);                                                                        \
    }                                                                                                                 \
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
