/* Combine: equal arrays of several ranks added up, element by element, in the one order of runtime/collectives.py. */
#include "ranks.h"

#include <string.h>

enum {
    BLOCK_BYTES = 2048, /* that go through the tree at a time, in the first cache */
    MOST_LEVELS = 20,   /* of a tree: of a million leaves */
};

/* ---- two arrays ---------------------------------------------------------------------------------------------- */

typedef void (*combine_two)(const void *left, const void *right, void *result, int64_t count);

/* result[i] = expression of a and b; the result is no part of either. */
#define DEFINE(name, type, expression)                                                                \
    static void name(const void *left, const void *right, void *result, int64_t count)                \
    {                                                                                                 \
        const type *restrict x = left, *restrict y = right;                                           \
        type *restrict z = result;                                                                    \
        for (int64_t i = 0; i < count; i++) {                                                         \
            type a = x[i], b = y[i];                                                                  \
            z[i] = (type)(expression);                                                                \
        }                                                                                             \
    }

/* Sums and products of integers wrap around, of signed ones too: computed without signs, and wide enough that C doesn't
 * make signed ints of them. */
#define DEFINE_WRAPPING(bits, wide)                                      \
    DEFINE(sum_##bits, uint##bits##_t, (wide)a + (wide)b)                \
    DEFINE(prod_##bits, uint##bits##_t, (wide)a * (wide)b)               \
    DEFINE(min_int##bits, int##bits##_t, a < b ? a : b)                  \
    DEFINE(max_int##bits, int##bits##_t, a > b ? a : b)                  \
    DEFINE(min_uint##bits, uint##bits##_t, a < b ? a : b)                \
    DEFINE(max_uint##bits, uint##bits##_t, a > b ? a : b)

DEFINE_WRAPPING(8, uint32_t)
DEFINE_WRAPPING(16, uint32_t)
DEFINE_WRAPPING(32, uint32_t)
DEFINE_WRAPPING(64, uint64_t)

DEFINE(either, uint8_t, a | b)
DEFINE(both, uint8_t, a & b)

/* What is no number stays so, whichever it is. */
#define DEFINE_FLOATING(name, type)                       \
    DEFINE(sum_##name, type, a + b)                       \
    DEFINE(prod_##name, type, a * b)                       \
    DEFINE(min_##name, type, a < b || a != a ? a : b)     \
    DEFINE(max_##name, type, a > b || a != a ? a : b)

DEFINE_FLOATING(float32, float)
DEFINE_FLOATING(float64, double)

/* Half precision is computed as float32 and rounded. Without branches, so that loops become vectors; and right also
 * where the CPU takes subnormal numbers for zeros. */
static inline float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The bits of one where a condition is 1, else of the other: gcc would make branches of it to avoid a sum. */
static inline uint32_t choose(int condition, uint32_t one, uint32_t other)
{
    uint32_t mask = -(uint32_t)condition;
    return (one & mask) | (other & ~mask);
}

static inline float from_float16(uint16_t half)
{
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    uint32_t normal = (exponent + 112) << 23 | fraction << 13, special = 0x7f800000u | fraction << 13;
    uint32_t small = as_bits((float)(int32_t)fraction * 0x1p-24f);
    uint32_t size = choose(exponent == 0, small, choose(exponent == 31, special, normal));
    return as_float((uint32_t)(half >> 15) << 31 | size);
}

static inline uint16_t to_float16(float value)
{
    uint32_t bits = as_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = ((size + 0xfffu + (size >> 13 & 1)) >> 13) - (112u << 10);
    uint32_t small = as_bits(as_float(size) + 0.5f) - as_bits(0.5f); /* its last bits are steps of 2^-24 */
    uint32_t half = choose(size < 0x38800000u, small, normal);
    half = choose(size >= 0x477ff000u, 0x7c00u, half); /* from 65520 on */
    half = choose(size > 0x7f800000u, 0x7e00u, half);
    return (uint16_t)(sign | half);
}

static inline float from_bfloat16(uint16_t half)
{
    return as_float((uint32_t)half << 16);
}

static inline uint16_t to_bfloat16(float value)
{
    uint32_t bits = as_bits(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)choose((bits & 0x7fffffffu) > 0x7f800000u, (bits >> 16 & 0x8000u) | 0x7fc0u, rounded);
}

/* Of -0 and 0, which are equal, NumPy takes the first in float16 and the second in all other dtypes. */
#define DEFINE_HALF(name)                                                                \
    DEFINE(sum_##name, uint16_t, to_##name(from_##name(a) + from_##name(b)))                       \
    DEFINE(prod_##name, uint16_t, to_##name(from_##name(a) * from_##name(b)))                      \
    DEFINE(min_##name, uint16_t, is_first_##name(from_##name(a), from_##name(b)) ? a : b)          \
    DEFINE(max_##name, uint16_t, is_first_##name(-from_##name(a), -from_##name(b)) ? a : b)

static inline int is_first_float16(float a, float b)
{
    return (a <= b) | (a != a);
}

static inline int is_first_bfloat16(float a, float b)
{
    return (a < b) | (a != a);
}

DEFINE_HALF(float16)
DEFINE_HALF(bfloat16)

static const combine_two functions[PB_DTYPES][PB_MAX + 1] = {
    [PB_BOOL] = {either, both, both, either},
    [PB_INT8] = {sum_8, prod_8, min_int8, max_int8},
    [PB_INT16] = {sum_16, prod_16, min_int16, max_int16},
    [PB_INT32] = {sum_32, prod_32, min_int32, max_int32},
    [PB_INT64] = {sum_64, prod_64, min_int64, max_int64},
    [PB_UINT8] = {sum_8, prod_8, min_uint8, max_uint8},
    [PB_UINT16] = {sum_16, prod_16, min_uint16, max_uint16},
    [PB_UINT32] = {sum_32, prod_32, min_uint32, max_uint32},
    [PB_UINT64] = {sum_64, prod_64, min_uint64, max_uint64},
    [PB_FLOAT16] = {sum_float16, prod_float16, min_float16, max_float16},
    [PB_FLOAT32] = {sum_float32, prod_float32, min_float32, max_float32},
    [PB_FLOAT64] = {sum_float64, prod_float64, min_float64, max_float64},
    [PB_BFLOAT16] = {sum_bfloat16, prod_bfloat16, min_bfloat16, max_bfloat16},
};

/* ---- the tree ------------------------------------------------------------------------------------------------ */

struct tree {
    combine_two combine;
    const char *const *leaves;
    int64_t offset, count; /* of the block: where it begins in each leaf, and its size */
    _Alignas(PB_ALIGNMENT) char values[MOST_LEVELS][2][BLOCK_BYTES];
};

/* The sum of the leaves [first, end), at `result` unless it is a leaf; returns where it is. Pairs of neighbours, then
 * pairs of these, are the same as: as many leaves on the left as are a power of 2, and all others on the right. */
static const char *sum_of(struct tree *tree, int64_t first, int64_t end, char *result, int level)
{
    int64_t half = 1;
    if (end - first == 1)
        return tree->leaves[first] + tree->offset;
    while (2 * half < end - first)
        half *= 2;
    const char *left = sum_of(tree, first, first + half, tree->values[level][0], level + 1);
    const char *right = sum_of(tree, first + half, end, tree->values[level][1], level + 1);
    tree->combine(left, right, result, tree->count);
    return result;
}

void pb_combine(int32_t dtype, int32_t reduction, const char *const *leaves, int64_t count, char *result,
                int64_t elements)
{
    struct tree tree;
    int64_t size = pb_dtype_bytes(dtype), block = BLOCK_BYTES / size;
    if (count == 1) {
        memcpy(result, leaves[0], (size_t)(elements * size));
        return;
    }
    tree.combine = functions[dtype][reduction];
    tree.leaves = leaves;
    for (int64_t done = 0; done < elements; done += block) {
        tree.offset = done * size;
        tree.count = elements - done < block ? elements - done : block;
        sum_of(&tree, 0, count, result + tree.offset, 0);
    }
}
