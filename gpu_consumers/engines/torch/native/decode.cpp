// Attention of decodes: one query for each sequence, over keys and values in blocks of memory.
//
// A step reads all keys and values once, so memory is the limit: a number is widened once for all queries that share it,
// sums stay in registers, and the block that comes next is asked for early. All sums are in float. NaN and infinity go
// through as arithmetic has it: a caller looks for them.

#include <cstdint>
#include <cstring>
#include <vector>

#include "exp.h"
#include "numbers.h"
#include "registers.h"

namespace {

constexpr int64_t MOST_AT_ONCE = WIDTH == 8 ? 2 : 4;  // queries whose sums stay in registers, beside two strips of values

// What one task of `attend` works on: the queries that share a key-value head, and the blocks of their sequence.
// keys, values: those of the head in block 0. length: of the sequence from blocks[0] on, of which `skipped` tokens are
// behind the window. stride: of rows of scores, at least the length. softcap: of the scores, 0 for none.
template <typename T>
struct Attention {
    const T *keys, *values;
    const int32_t* blocks;
    int64_t group, dim, block_tokens, block_stride, length, skipped, stride;
    float softcap;

    int64_t strips() const { return (dim + STRIP - 1) / STRIP; }

    // Strip `number` of a row of `dim` numbers. WHOLE: dim is a multiple of STRIP.
    template <bool WHOLE>
    Strip strip_of(const T* row, int64_t number) const {
        const int64_t begin = number * STRIP;
        return WHOLE || begin + STRIP <= dim ? load_strip(row + begin) : load_strip(row + begin, dim - begin);
    }

    // Calls visit(first token, rows, how many, rows that will be wanted soon) for each block of `memory`; behind the
    // last one, those of the first block of `next` will be wanted.
    template <typename Visit>
    void each_block(const T* memory, const T* next, Visit visit) const {
        const T* rows = memory + blocks[0] * block_stride;
        for (int64_t begin = 0, i = 1; begin < length; begin += block_tokens, i++) {
            const int64_t left = length - begin;
            const T* soon = left > block_tokens ? memory + blocks[i] * block_stride : next + blocks[0] * block_stride;
            visit(begin, rows, left < block_tokens ? left : block_tokens, soon);
            rows = soon;
        }
    }

    // Starts to read `count` rows: blocks lie anywhere, so the processor can't guess the next one.
    void fetch(const T* rows, int64_t count) const {
        const char* begin = reinterpret_cast<const char*>(rows);
        const char* end = reinterpret_cast<const char*>(rows + count * dim);
        for (const char* line = begin; line < end; line += 64) __builtin_prefetch(line);
    }
};

// Scores of `KEYS` keys for GROUP queries: a key is widened once for all of them. asked: [GROUP, strips] queries.
template <int GROUP, int KEYS, bool WHOLE, typename T>
inline __attribute__((always_inline)) void score_some(const Attention<T>& task, const Strip* asked, const T* keys, float* scores) {
    const int64_t strips = task.strips();
    Register sums[GROUP][4] = {};
    for (int64_t s = 0; s < strips; s++)
        for (int k = 0; k < KEYS; k++) {
            const Strip key = task.template strip_of<WHOLE>(keys + k * task.dim, s);
            for (int g = 0; g < GROUP; g++)
                sums[g][k] += asked[g * strips + s].first * key.first + asked[g * strips + s].second * key.second;
        }
    for (int g = 0; g < GROUP; g++)
        store_sums(sums[g][0], sums[g][1], sums[g][2], sums[g][3], scores + g * task.stride);
}

// Strips `first` to `first` + STRIPS of the sum of the values weighted by weights[g, t], for GROUP queries: all of it
// stays in registers. mixed: [GROUP, strips].
template <int GROUP, int STRIPS, bool WHOLE, typename T>
void mix(const Attention<T>& task, const float* weights, int64_t first, Strip* mixed) {
    Strip sums[GROUP][STRIPS] = {};
    task.each_block(task.values, task.values, [&](int64_t begin, const T* rows, int64_t count, const T* soon) {
        for (int64_t t = 0; t < count; t++) {
            if (first == 0) task.fetch(soon + t * task.dim, 1);
            for (int s = 0; s < STRIPS; s++) {
                const Strip value = task.template strip_of<WHOLE>(rows + t * task.dim, first + s);
                for (int g = 0; g < GROUP; g++) {
                    const float weight = weights[g * task.stride + begin + t];
                    sums[g][s].first += weight * value.first;
                    sums[g][s].second += weight * value.second;
                }
            }
        }
    });
    for (int g = 0; g < GROUP; g++)
        for (int s = 0; s < STRIPS; s++) mixed[g * task.strips() + first + s] = sums[g][s];
}

// The compiler does not vectorize this by itself: it would have to know that there is no NaN. Where there is one, the
// highest may be any, and the sum is NaN anyway.
inline float highest_of(const float* row, int64_t length) {
    float highest = row[0];
    int64_t t = 0;
    if (length >= STRIP) {
        Strip most = load_strip(row);
        for (t = STRIP; t + STRIP <= length; t += STRIP) {
            const Strip next = load_strip(row + t);
            most.first = next.first > most.first ? next.first : most.first;
            most.second = next.second > most.second ? next.second : most.second;
        }
        for (int i = 0; i < WIDTH; i++) {
            highest = most.first[i] > highest ? most.first[i] : highest;
            highest = most.second[i] > highest ? most.second[i] : highest;
        }
    }
    for (; t < length; t++) highest = row[t] > highest ? row[t] : highest;
    return highest;
}

// A row of scores becomes weights that add up to 1, and those of skipped tokens 0.
inline void softmax(float* row, int64_t length, int64_t skipped, float softcap) {
    if (softcap > 0.0f)
        for (int64_t t = skipped; t < length; t++) row[t] = capped(row[t], softcap);
    const float highest = highest_of(row + skipped, length - skipped);
    float sum = 0.0f;
    for (int64_t t = 0; t < skipped; t++) row[t] = 0.0f;
    for (int64_t t = skipped; t < length; t++) {
        row[t] = exp_of(row[t] - highest);
        sum += row[t];
    }
    const float scale = 1.0f / sum;
    for (int64_t t = skipped; t < length; t++) row[t] *= scale;
}

// Attention of GROUP queries [GROUP, dim] -> out, the same. asked: room for [GROUP, strips]; scores: for [GROUP, stride].
template <int GROUP, bool WHOLE, typename T>
void attend_some(const Attention<T>& task, const T* queries, T* out, Strip* asked, float* scores) {
    const int64_t strips = task.strips(), dim = task.dim;
    for (int64_t g = 0; g < GROUP; g++)
        for (int64_t s = 0; s < strips; s++) asked[g * strips + s] = task.template strip_of<WHOLE>(queries + g * dim, s);
    task.each_block(task.keys, task.values, [&](int64_t begin, const T* rows, int64_t count, const T* soon) {
        int64_t t = 0;
        for (; t + 4 <= count; t += 4) {
            task.fetch(soon + t * dim, 4);
            score_some<GROUP, 4, WHOLE>(task, asked, rows + t * dim, scores + begin + t);
        }
        for (; t < count; t++) score_some<GROUP, 1, WHOLE>(task, asked, rows + t * dim, scores + begin + t);
    });
    for (int64_t g = 0; g < GROUP; g++) softmax(scores + g * task.stride, task.length, task.skipped, task.softcap);
    Strip* mixed = asked;  // the queries are no longer needed
    int64_t first = 0;
    for (; first + 2 <= strips; first += 2) mix<GROUP, 2, WHOLE>(task, scores, first, mixed);
    for (; first < strips; first++) mix<GROUP, 1, WHOLE>(task, scores, first, mixed);
    for (int64_t g = 0; g < GROUP; g++)
        for (int64_t s = 0; s < strips; s++) {
            const int64_t begin = g * dim + s * STRIP, left = dim - s * STRIP;
            if (left >= STRIP) store_strip(mixed[g * strips + s], out + begin);
            else store_strip(mixed[g * strips + s], out + begin, left);
        }
}

template <bool WHOLE, typename T>
auto attend_for(int64_t group) {
    switch (group) {
        case 1: return attend_some<1, WHOLE, T>;
        case 2: return attend_some<2, WHOLE, T>;
        case 3: return attend_some<3, WHOLE, T>;
        default: return attend_some<4, WHOLE, T>;
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
    const int64_t at_once = group < MOST_AT_ONCE ? group : MOST_AT_ONCE;
#pragma omp parallel
    {
        std::vector<float> scores;
        std::vector<Strip> asked(at_once * ((dim + STRIP - 1) / STRIP));
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * key_heads; item++) {
            const int64_t row = item / key_heads, head = item % key_heads;
            const int64_t first = window > 0 && lengths[row] > window ? lengths[row] - window : 0;
            const int64_t unseen = first / block_tokens;  // blocks
            const int64_t length = lengths[row] - unseen * block_tokens;
            const Attention<T> task = {
                keys + head * head_stride, values + head * head_stride, blocks + row * columns + unseen,
                group, dim, block_tokens, key_heads * head_stride,
                length, first % block_tokens, length + 3,  // four scores are written at once
                softcap,
            };
            scores.resize(at_once * task.stride);
            const T* asks = queries + row * row_stride + head * group * dim;
            T* answers = out + (row * query_heads + head * group) * dim;
            for (int64_t g = 0; g < group; g += at_once) {
                const int64_t some = group - g < at_once ? group - g : at_once;
                const auto attend_to = dim % STRIP ? attend_for<false, T>(some) : attend_for<true, T>(some);
                attend_to(task, asks + g * dim, answers + g * dim, asked.data(), scores.data());
            }
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
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)
