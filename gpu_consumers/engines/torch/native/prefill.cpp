// Attention of prefill chunks: many queries of one sequence, each over the tokens up to its own, which lie in blocks of
// memory. Chunks read their own keys there too, so they must have been stored before.
//
// The softmax is taken online (Milakov and Gimelshein, 2018), block by block, so that no scores are kept (Dao et al.,
// FlashAttention, 2022). A piece of work is a tile of queries that share a key-value head; its scores lie key by key, all
// queries of a key side by side, so that maxima and sums run over whole registers, and keys need not be turned around.
// All is computed in float. NaN and infinity go through as arithmetic has it: a caller looks for them.

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exp.h"
#include "numbers.h"
#include "registers.h"

namespace {

constexpr int64_t TILE_QUERIES = 64;
constexpr int64_t TILE_KEYS = 64;
constexpr int CHUNK_NUMBERS = 3;  // how a chunk is told: its first row, its tokens, tokens of its sequence before it
constexpr int MOST_ROWS = 6, MOST_COLUMNS = WIDTH == 8 ? 2 : 4;  // registers of sums: 12 of 16, 24 of 32

// c[ROWS, COLUMNS * WIDTH] = or += a[ROWS, depth] b[depth, COLUMNS * WIDTH]. TURNED: a lies as [depth, rows], `a_stride`
// numbers from one step of depth to the next; otherwise as [rows, depth].
template <int ROWS, int COLUMNS, bool TURNED>
void multiply_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth, float* c,
                   int64_t c_stride, bool onto) {
    Register sums[ROWS][COLUMNS] = {};
    if (onto)
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < COLUMNS; column++)
                sums[row][column] = load_register(c + row * c_stride + column * WIDTH);
    for (int64_t k = 0; k < depth; k++) {
        Register right[COLUMNS];
        for (int column = 0; column < COLUMNS; column++) right[column] = load_register(b + k * b_stride + column * WIDTH);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            const float left = TURNED ? a[k * a_stride + row] : a[row * a_stride + k];
#pragma GCC unroll 8
            for (int column = 0; column < COLUMNS; column++) sums[row][column] += left * right[column];
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            store_register(sums[row][column], c + row * c_stride + column * WIDTH);
}

template <int COLUMNS, bool TURNED>
void multiply_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t depth,
                   float* c, int64_t c_stride, bool onto) {
    const int64_t a_row = TURNED ? 1 : a_stride;
    int64_t row = 0;
    for (; row + MOST_ROWS <= rows; row += MOST_ROWS)
        multiply_tile<MOST_ROWS, COLUMNS, TURNED>(a + row * a_row, a_stride, b, b_stride, depth, c + row * c_stride,
                                                  c_stride, onto);
    for (; row + 2 <= rows; row += 2)
        multiply_tile<2, COLUMNS, TURNED>(a + row * a_row, a_stride, b, b_stride, depth, c + row * c_stride, c_stride,
                                          onto);
    for (; row < rows; row++)
        multiply_tile<1, COLUMNS, TURNED>(a + row * a_row, a_stride, b, b_stride, depth, c + row * c_stride, c_stride,
                                          onto);
}

// c [rows, columns] = or += a b, see `multiply_tile`. columns: a multiple of WIDTH.
template <bool TURNED>
void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t depth,
              int64_t columns, float* c, int64_t c_stride, bool onto) {
    int64_t column = 0;
    for (; column + MOST_COLUMNS * WIDTH <= columns; column += MOST_COLUMNS * WIDTH)
        multiply_rows<MOST_COLUMNS, TURNED>(a, a_stride, b + column, b_stride, rows, depth, c + column, c_stride, onto);
    for (; column < columns; column += WIDTH)
        multiply_rows<1, TURNED>(a, a_stride, b + column, b_stride, rows, depth, c + column, c_stride, onto);
}

// Sizes that all chunks of a step share. group: queries of a token that share a key. depth: numbers of a head, filled up
// with zeros to whole strips.
struct Shape {
    int64_t query_heads, key_heads, group, dim, depth, block_tokens, window;
    float softcap;
};

// A tile of one chunk's queries: query q is head q % group of token first_token + q / group.
template <typename T>
struct Tile {
    const T *queries, *keys, *values;  // of the first token's first head; of the head in block 0
    const int32_t* blocks;
    int64_t row_stride, position, count;  // of `queries`; of the first token in its sequence; queries
    T* out;
};

// What one thread needs to work on a tile; made once. Queries in whole registers: `width` of them.
class Worker {
   public:
    explicit Worker(const Shape& shape)
        : shape_(shape),
          most_((tile_tokens(shape) * shape.group + WIDTH - 1) / WIDTH * WIDTH),
          asked_(most_ * shape.depth),
          mixed_(most_ * shape.depth),
          rows_(TILE_KEYS * shape.depth),
          scores_(TILE_KEYS * most_),
          positions_(most_),
          highest_(most_),
          sums_(most_),
          scales_(most_) {}

    static int64_t tile_tokens(const Shape& shape) { return shape.group < TILE_QUERIES ? TILE_QUERIES / shape.group : 1; }

    template <typename T>
    void attend(const Tile<T>& tile) {
        count_ = tile.count;
        width_ = (tile.count + WIDTH - 1) / WIDTH * WIDTH;
        take_queries(tile);
        const int64_t last = tile.position + (tile.count - 1) / shape_.group;  // position
        const int64_t unseen = shape_.window > 0 && tile.position >= shape_.window ? tile.position - shape_.window + 1 : 0;
        for (int64_t begin = unseen, count; begin <= last; begin += count) {
            const int64_t in_block = begin % shape_.block_tokens, room = shape_.block_tokens - in_block;
            count = std::min({last + 1 - begin, room, TILE_KEYS});
            const int64_t place =
                tile.blocks[begin / shape_.block_tokens] * shape_.key_heads * shape_.block_tokens + in_block;
            widen_rows(tile.keys + place * shape_.dim, count);
            multiply<false>(rows_.data(), shape_.depth, asked_.data(), width_, count, shape_.depth, width_,
                            scores_.data(), width_, false);
            weigh(begin, count, tile.position, last);
            widen_rows(tile.values + place * shape_.dim, count);
            multiply<true>(scores_.data(), width_, rows_.data(), shape_.depth, tile.count, count, shape_.depth,
                           mixed_.data(), shape_.depth, true);
        }
        give_answers(tile);
    }

   private:
    template <typename T>
    Strip strip_of(const T* head, int64_t begin) const {
        return begin + STRIP <= shape_.dim ? load_strip(head + begin) : load_strip(head + begin, shape_.dim - begin);
    }

    // asked [depth, width]: queries side by side.
    template <typename T>
    void take_queries(const Tile<T>& tile) {
        for (int64_t begin = 0; begin < shape_.depth; begin += STRIP)
            for (int64_t q = 0; q < width_; q += WIDTH) {
                Register first[WIDTH] = {}, second[WIDTH] = {};
                for (int64_t i = 0; i < WIDTH && q + i < tile.count; i++) {
                    const int64_t token = (q + i) / shape_.group, head = (q + i) % shape_.group;
                    const Strip strip = strip_of(tile.queries + token * tile.row_stride + head * shape_.dim, begin);
                    first[i] = strip.first;
                    second[i] = strip.second;
                }
                transpose(first);
                transpose(second);
                for (int64_t i = 0; i < WIDTH; i++) {
                    store_register(first[i], asked_.data() + (begin + i) * width_ + q);
                    store_register(second[i], asked_.data() + (begin + WIDTH + i) * width_ + q);
                }
            }
        for (int64_t q = 0; q < width_; q++) {
            positions_[q] = static_cast<float>(tile.position + q / shape_.group);
            highest_[q] = -FLT_MAX;
            sums_[q] = 0.0f;
        }
        std::memset(mixed_.data(), 0, tile.count * shape_.depth * sizeof(float));
    }

    // rows [count, depth]
    template <typename T>
    void widen_rows(const T* from, int64_t count) {
        for (int64_t row = 0; row < count; row++)
            for (int64_t begin = 0; begin < shape_.depth; begin += STRIP)
                store_strip(strip_of(from + row * shape_.dim, begin), rows_.data() + row * shape_.depth + begin);
    }

    // scores [count, width] of the keys from position `begin` on become weights, as far as the highest score up to here
    // is known; what was mixed before is scaled to it. first, last: positions of the tile.
    void weigh(int64_t begin, int64_t count, int64_t first, int64_t last) {
        float* scores = scores_.data();
        if (shape_.softcap > 0.0f)
            for (int64_t i = 0; i < count * width_; i++) scores[i] = capped(scores[i], shape_.softcap);
        const bool is_cut = begin + count - 1 > first || (shape_.window > 0 && begin <= last - shape_.window);
        bool has_moved = false;
        for (int64_t q = 0; q < width_; q += WIDTH) {
            if (is_cut) hide(scores + q, begin, count, load_register(positions_.data() + q));
            const Register before = load_register(highest_.data() + q);
            Register highest = before;
            for (int64_t k = 0; k < count; k++) {
                const Register score = load_register(scores + k * width_ + q);
                highest = score > highest ? score : highest;
            }
            Register sum = {};
            for (int64_t k = 0; k < count; k++) {
                const Register weight = exp_of(load_register(scores + k * width_ + q) - highest);
                store_register(weight, scores + k * width_ + q);
                sum += weight;
            }
            const Register scale = exp_of(before - highest);
            store_register(scale, scales_.data() + q);
            store_register(highest, highest_.data() + q);
            store_register(load_register(sums_.data() + q) * scale + sum, sums_.data() + q);
            for (int i = 0; i < WIDTH; i++) has_moved |= before[i] != highest[i];
        }
        if (has_moved) scale_mixed();
    }

    // Of WIDTH queries: tokens behind their own, and those out of the window. FLT_MAX, unlike infinity, can be taken from
    // itself: where all of a tile is hidden, what it leaves is scaled away by the first score that counts.
    void hide(float* scores, int64_t begin, int64_t count, Register positions) const {
        for (int64_t k = 0; k < count; k++) {
            const float position = static_cast<float>(begin + k);
            Register score = load_register(scores + k * width_);
            score = position > positions ? -FLT_MAX - Register{} : score;
            if (shape_.window > 0)
                score = position <= positions - static_cast<float>(shape_.window) ? -FLT_MAX - Register{} : score;
            store_register(score, scores + k * width_);
        }
    }

    void scale_mixed() {
        for (int64_t q = 0; q < count_; q++) {
            float* mixed = mixed_.data() + q * shape_.depth;
            for (int64_t d = 0; d < shape_.depth; d++) mixed[d] *= scales_[q];
        }
    }

    template <typename T>
    void give_answers(const Tile<T>& tile) const {
        for (int64_t q = 0; q < tile.count; q++) {
            const int64_t token = q / shape_.group, head = q % shape_.group;
            T* out = tile.out + (token * shape_.query_heads + head) * shape_.dim;
            const float* mixed = mixed_.data() + q * shape_.depth;
            const float scale = 1.0f / sums_[q];
            for (int64_t begin = 0; begin < shape_.depth; begin += STRIP) {
                Strip strip = {load_register(mixed + begin) * scale, load_register(mixed + begin + WIDTH) * scale};
                const int64_t left = shape_.dim - begin;
                if (left >= STRIP) store_strip(strip, out + begin);
                else store_strip(strip, out + begin, left);
            }
        }
    }

    const Shape shape_;
    const int64_t most_;
    int64_t count_ = 0, width_ = 0;
    std::vector<float> asked_, mixed_, rows_, scores_, positions_, highest_, sums_, scales_;
};

// qkv: [rows, row_stride], of which the first query_heads * dim of a row are its queries, scaled and rotated. keys, values:
// [blocks, key_heads, block_tokens, dim]. blocks: [count, columns]. chunks: [count, CHUNK_NUMBERS].
// out: [rows, query_heads * dim], of which the rows of the chunks are written.
template <typename T>
void attend_chunks(const T* qkv, int64_t row_stride, const T* keys, const T* values, const int32_t* blocks,
                   const int64_t* chunks, T* out, int64_t count, int64_t columns, const Shape& shape) {
    const int64_t tile_tokens = Worker::tile_tokens(shape);
    std::vector<Tile<T>> tiles;
    for (int64_t chunk = 0; chunk < count; chunk++) {
        const int64_t* told = chunks + chunk * CHUNK_NUMBERS;
        const int64_t row = told[0], tokens = told[1], start = told[2];
        // The last tile of a chunk has the most keys: begun first, it is not what others have to wait for.
        for (int64_t token = (tokens - 1) / tile_tokens * tile_tokens; token >= 0; token -= tile_tokens)
            for (int64_t head = 0; head < shape.key_heads; head++) {
                const int64_t some = tokens - token < tile_tokens ? tokens - token : tile_tokens;
                const int64_t own = head * shape.group * shape.dim, place = head * shape.block_tokens * shape.dim;
                tiles.push_back({
                    qkv + (row + token) * row_stride + own, keys + place, values + place, blocks + chunk * columns,
                    row_stride, start + token, some * shape.group,
                    out + (row + token) * shape.query_heads * shape.dim + own,
                });
            }
    }
#pragma omp parallel
    {
        Worker worker(shape);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < static_cast<int64_t>(tiles.size()); i++) worker.attend(tiles[i]);
    }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                               \
    extern "C" void attend_chunks_##NAME(const T* qkv, int64_t row_stride, const T* keys, const T* values,            \
                                         const int32_t* blocks, const int64_t* chunks, T* out, int64_t count,         \
                                         int64_t columns, int64_t query_heads, int64_t key_heads, int64_t dim,        \
                                         int64_t block_tokens, int64_t window, float softcap) {                       \
        const int64_t depth = (dim + STRIP - 1) / STRIP * STRIP;                                                      \
        const Shape shape = {query_heads, key_heads, query_heads / key_heads, dim, depth, block_tokens, window,       \
                             softcap};                                                                                \
        attend_chunks(qkv, row_stride, keys, values, blocks, chunks, out, count, columns, shape);                     \
    }

EXPORT(bfloat16, bf16)
EXPORT(float32, float)
