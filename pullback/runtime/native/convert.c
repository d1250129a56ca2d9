/* Convert: rows of an array as rows of a tensor, which may be of another dtype; nothing here knows of threads. */
#include "internal.h"

#include "bytes.h"

#if defined(__GNUC__) /* of the compiler: they are there without a C library too */
#define ABSOLUTE(value) __builtin_fabs(value)
#define ABSOLUTE_SINGLE(value) __builtin_fabsf(value)
#define NO_NUMBER __builtin_nan("")
#define INFINITE __builtin_inf()
#else
#include <math.h>
#define ABSOLUTE(value) fabs(value)
#define ABSOLUTE_SINGLE(value) fabsf(value)
#define NO_NUMBER ((double)NAN)
#define INFINITE ((double)INFINITY)
#endif

/* What the values of a dtype are: `digits` binary ones below 2^`exponent`. */
static const struct {
    int8_t size, is_signed, is_float;
    int16_t digits, exponent;
} kinds[PB_DTYPES] = {
    [PB_BOOL] = {1, 0, 0, 1, 1},         [PB_INT8] = {1, 1, 0, 7, 7},      [PB_INT16] = {2, 1, 0, 15, 15},
    [PB_INT32] = {4, 1, 0, 31, 31},      [PB_INT64] = {8, 1, 0, 63, 63},   [PB_UINT8] = {1, 0, 0, 8, 8},
    [PB_UINT16] = {2, 0, 0, 16, 16},     [PB_UINT32] = {4, 0, 0, 32, 32},  [PB_UINT64] = {8, 0, 0, 64, 64},
    [PB_FLOAT16] = {2, 1, 1, 11, 16},    [PB_FLOAT32] = {4, 1, 1, 24, 128},
    [PB_FLOAT64] = {8, 1, 1, 53, 1024},  [PB_BFLOAT16] = {2, 1, 1, 8, 128},
};

static int is_dtype(int32_t dtype)
{
    return dtype >= 0 && dtype < PB_DTYPES;
}

PB_API int64_t pb_dtype_bytes(int32_t dtype)
{
    return is_dtype(dtype) ? kinds[dtype].size : 0;
}

PB_API int pb_is_float(int32_t dtype)
{
    return is_dtype(dtype) && kinds[dtype].is_float;
}

PB_API int pb_always_fits(int32_t source_dtype, int32_t dtype)
{
    if (!is_dtype(source_dtype) || !is_dtype(dtype) || source_dtype == dtype)
        return is_dtype(dtype) && source_dtype == dtype;
    return dtype != PB_BOOL && kinds[source_dtype].digits <= kinds[dtype].digits &&
           kinds[source_dtype].exponent <= kinds[dtype].exponent &&
           kinds[source_dtype].is_signed <= kinds[dtype].is_signed &&
           kinds[source_dtype].is_float <= kinds[dtype].is_float;
}

/* ---- half precision ------------------------------------------------------------------------------------------ */

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A float16, from its bits: sign 1, exponent 5, fraction 10. */
static double float16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    uint64_t word = (uint64_t)(exponent + 1023 - 15) << 52 | (uint64_t)fraction << 42;
    double size;
    memcpy(&size, &word, sizeof size);
    if (exponent == 0)
        size = fraction * 0x1p-24;
    if (exponent == 31)
        size = fraction ? NO_NUMBER : INFINITE;
    return bits >> 15 ? -size : size;
}

/* The nearest float16, of two the even one. */
static uint16_t float16_bits(double value)
{
    uint16_t sign = (uint16_t)(bits_of(value) >> 48 & 0x8000);
    double size = ABSOLUTE(value);
    if (size != size)
        return sign | 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14) /* subnormal: whole steps of 2^-24 are the last bits of this sum */
        return sign | (uint16_t)(bits_of(size + 0x1p28) & 0xffff);
    uint64_t bits = bits_of(size);
    bits = (bits + 0x1ffffffffff + (bits >> 42 & 1)) >> 42;
    return sign | (uint16_t)(bits - ((uint64_t)(1023 - 15) << 10));
}

/* A bfloat16 is the upper half of a float32. */
static double bfloat16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static uint16_t bfloat16_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)(bits >> 16 & 0x8000) | 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- elements ------------------------------------------------------------------------------------------------ */

/* Elements are converted a block at a time, by way of the widest dtype: integers (of uint64, its bits) or doubles. */
#ifndef PB_CONVERT_BLOCK
#define PB_CONVERT_BLOCK 256 /* elements at a time; two blocks of so many wide ones lie on the stack */
#endif

enum { BLOCK = PB_CONVERT_BLOCK };

typedef union wide_block {
    int64_t integers[BLOCK];
    double floats[BLOCK];
} wide_block;

static double same(double value)
{
    return value;
}

#define LOAD(from, member, meaning)                                                \
    do {                                                                           \
        from value;                                                                \
        if (stride == (int64_t)sizeof value)                                       \
            for (int64_t i = 0; i < count; i++) {                                  \
                memcpy(&value, source + i * (int64_t)sizeof value, sizeof value);  \
                to->member[i] = meaning(value);                                    \
            }                                                                      \
        else                                                                       \
            for (int64_t i = 0; i < count; i++) {                                  \
                memcpy(&value, source + i * stride, sizeof value);                 \
                to->member[i] = meaning(value);                                    \
            }                                                                      \
        return;                                                                    \
    } while (0)

/* `count` elements, `stride` bytes from one to the next. */
static void load(wide_block *to, const char *source, int64_t stride, int32_t dtype, int64_t count)
{
    switch (dtype) {
    case PB_BOOL:
    case PB_UINT8: LOAD(uint8_t, integers, (int64_t));
    case PB_INT8: LOAD(int8_t, integers, (int64_t));
    case PB_UINT16: LOAD(uint16_t, integers, (int64_t));
    case PB_INT16: LOAD(int16_t, integers, (int64_t));
    case PB_UINT32: LOAD(uint32_t, integers, (int64_t));
    case PB_INT32: LOAD(int32_t, integers, (int64_t));
    case PB_UINT64:
    case PB_INT64: LOAD(int64_t, integers, (int64_t));
    case PB_FLOAT16: LOAD(uint16_t, floats, float16_value);
    case PB_BFLOAT16: LOAD(uint16_t, floats, bfloat16_value);
    case PB_FLOAT32: LOAD(float, floats, same);
    default: LOAD(double, floats, same);
    }
}

PB_API double pb_float_value(const void *address, int32_t dtype)
{
    wide_block value;
    load(&value, address, pb_dtype_bytes(dtype), dtype, 1);
    return value.floats[0];
}

/* `low` and `high` are the limits of a signed source, `unsigned_high` that of uint64. */
#define STORE_INTEGERS(to, low, high, unsigned_high)                                              \
    do {                                                                                          \
        to *out = destination;                                                                    \
        if (source_dtype == PB_UINT64)                                                            \
            for (int64_t i = 0; i < count; i++) {                                                 \
                misfits |= (uint64_t)from->integers[i] > (unsigned_high);                         \
                out[i] = (to)from->integers[i];                                                   \
            }                                                                                     \
        else if (!kinds[source_dtype].is_float)                                                   \
            for (int64_t i = 0; i < count; i++) {                                                 \
                misfits |= (from->integers[i] < (low)) | (from->integers[i] > (high));            \
                out[i] = (to)from->integers[i];                                                   \
            }                                                                                     \
        else                                                                                      \
            for (int64_t i = 0; i < count; i++) {                                                 \
                double value = from->floats[i];                                                   \
                int inside = value >= (double)(low) && value <= (double)(unsigned_high) &&        \
                             value < (kinds[dtype].digits < 64 ? 0x1p63 : 0x1p64);                \
                to whole = inside ? (to)value : 0;                                                \
                misfits |= !inside | ((double)whole != value);                                    \
                out[i] = whole;                                                                   \
            }                                                                                     \
        return misfits;                                                                           \
    } while (0)

/* As elements of an integer dtype, or bools; returns whether any of them doesn't fit. */
static int store_integers(const wide_block *from, int32_t source_dtype, void *destination, int32_t dtype, int64_t count)
{
    int misfits = 0;
    switch (dtype) {
    case PB_BOOL: STORE_INTEGERS(uint8_t, 0, 1, 1u);
    case PB_INT8: STORE_INTEGERS(int8_t, INT8_MIN, INT8_MAX, (uint64_t)INT8_MAX);
    case PB_INT16: STORE_INTEGERS(int16_t, INT16_MIN, INT16_MAX, (uint64_t)INT16_MAX);
    case PB_INT32: STORE_INTEGERS(int32_t, INT32_MIN, INT32_MAX, (uint64_t)INT32_MAX);
    case PB_INT64: STORE_INTEGERS(int64_t, INT64_MIN, INT64_MAX, (uint64_t)INT64_MAX);
    case PB_UINT8: STORE_INTEGERS(uint8_t, 0, UINT8_MAX, (uint64_t)UINT8_MAX);
    case PB_UINT16: STORE_INTEGERS(uint16_t, 0, UINT16_MAX, (uint64_t)UINT16_MAX);
    case PB_UINT32: STORE_INTEGERS(uint32_t, 0, UINT32_MAX, (uint64_t)UINT32_MAX);
    default: STORE_INTEGERS(uint64_t, 0, INT64_MAX, UINT64_MAX);
    }
}

#define STORE_FLOATS(to, of_signed, of_unsigned, of_float)                  \
    do {                                                                    \
        to *out = destination;                                              \
        if (source_dtype == PB_UINT64)                                      \
            for (int64_t i = 0; i < count; i++)                             \
                out[i] = of_unsigned((uint64_t)from->integers[i]);          \
        else if (!kinds[source_dtype].is_float)                             \
            for (int64_t i = 0; i < count; i++)                             \
                out[i] = of_signed(from->integers[i]);                      \
        else                                                                \
            for (int64_t i = 0; i < count; i++)                             \
                out[i] = of_float(from->floats[i]);                         \
    } while (0)

#define BFLOAT16(value) bfloat16_bits((float)(value))
#define FLOAT16(value) float16_bits((double)(float)(value))

/* As elements of a floating-point dtype, rounded; returns whether a number became infinite or, if they are to be
 * `exact`, another one. */
static int store_floats(const wide_block *from, int32_t source_dtype, void *destination, int32_t dtype, int64_t count,
                        int exact)
{
    wide_block back;
    int misfits = 0;
    switch (dtype) {
    case PB_FLOAT16: STORE_FLOATS(uint16_t, FLOAT16, FLOAT16, float16_bits); break;
    case PB_BFLOAT16: STORE_FLOATS(uint16_t, BFLOAT16, BFLOAT16, BFLOAT16); break;
    case PB_FLOAT32: STORE_FLOATS(float, (float), (float), (float)); break;
    default: STORE_FLOATS(double, (double), (double), (double)); break;
    }
    if (pb_always_fits(source_dtype, dtype))
        return 0;
    load(&back, destination, pb_dtype_bytes(dtype), dtype, count);
    if (kinds[source_dtype].is_float)
        for (int64_t i = 0; i < count; i++) {
            double value = from->floats[i], now = back.floats[i];
            misfits |= exact ? (now != value) & (value == value)
                             : (ABSOLUTE(now) == INFINITE) & (ABSOLUTE(value) != INFINITE);
        }
    else
        for (int64_t i = 0; i < count; i++) {
            double now = back.floats[i];
            int within = source_dtype == PB_UINT64 ? now < 0x1p64 : now >= -0x1p63 && now < 0x1p63;
            int64_t whole = !within ? 0 : source_dtype == PB_UINT64 ? (int64_t)(uint64_t)now : (int64_t)now;
            misfits |= exact ? !within | (whole != from->integers[i]) : ABSOLUTE(now) == INFINITE;
        }
    return misfits;
}

#define COPY(type)                                                              \
    for (int64_t i = 0; i < count; i++)                                         \
        memcpy((char *)destination + i * (int64_t)sizeof(type), source + i * stride, sizeof(type))

/* Elements of one size, as they are. */
static void copy(const char *source, int64_t stride, void *destination, int64_t size, int64_t count)
{
    if (stride == size)
        memcpy(destination, source, (size_t)(count * size));
    else
        switch (size) {
        case 1: COPY(uint8_t); break;
        case 2: COPY(uint16_t); break;
        case 4: COPY(uint32_t); break;
        default: COPY(uint64_t);
        }
}

#if defined(__clang__) && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__))
#define LANES 8 /* vectors by hand: clang makes none where code is to be small (of GCC's, some are slower than loops) */
#define VECTOR(type) __attribute__((vector_size(LANES * sizeof(type)))) type
#endif

#ifdef LANES
#define CONVERT_VECTORS(from, to)                                           \
    for (; count - i >= LANES; i += LANES) {                                \
        VECTOR(from) values;                                                \
        VECTOR(to) converted;                                               \
        memcpy(&values, source + i * (int64_t)sizeof(from), sizeof values); \
        converted = __builtin_convertvector(values, VECTOR(to));            \
        memcpy(out + i, &converted, sizeof converted);                      \
    }
#else
#define CONVERT_VECTORS(from, to)
#endif

#define CONVERT(from, to)                                                 \
    do {                                                                  \
        to *out = destination;                                            \
        from value;                                                       \
        int64_t i = 0;                                                    \
        CONVERT_VECTORS(from, to)                                         \
        for (; i < count; i++) {                                          \
            memcpy(&value, source + i * (int64_t)sizeof value, sizeof value); \
            out[i] = (to)value;                                           \
        }                                                                 \
        return 1;                                                         \
    } while (0)

#define PAIR(from, to) ((from) * PB_DTYPES + (to))

/* What data sets often hold, in one loop without a block; returns whether that was it. */
static int convert_common(const char *source, int32_t source_dtype, void *destination, int32_t dtype, int64_t count)
{
    switch (PAIR(source_dtype, dtype)) {
    case PAIR(PB_BOOL, PB_FLOAT32):
    case PAIR(PB_UINT8, PB_FLOAT32): CONVERT(uint8_t, float);
    case PAIR(PB_INT8, PB_FLOAT32): CONVERT(int8_t, float);
    case PAIR(PB_UINT16, PB_FLOAT32): CONVERT(uint16_t, float);
    case PAIR(PB_INT16, PB_FLOAT32): CONVERT(int16_t, float);
    case PAIR(PB_UINT8, PB_INT64): CONVERT(uint8_t, int64_t);
    case PAIR(PB_INT32, PB_INT64): CONVERT(int32_t, int64_t);
    case PAIR(PB_FLOAT32, PB_FLOAT64): CONVERT(float, double);
    default: return 0;
    }
}

/* float64 to float32, the commonest that rounds. */
static int round_doubles(const char *source, float *out, int64_t count)
{
    int misfits = 0;
    int64_t i = 0;
#ifdef LANES
    const int64_t size = INT64_MAX, infinite = (int64_t)2047 << 52; /* bits of |value| */
    VECTOR(int64_t) grown = {0};
    for (; count - i >= LANES; i += LANES) {
        VECTOR(double) values, back;
        VECTOR(float) rounded;
        memcpy(&values, source + i * (int64_t)sizeof(double), sizeof values);
        rounded = __builtin_convertvector(values, VECTOR(float));
        back = __builtin_convertvector(rounded, VECTOR(double));
        grown |= (((VECTOR(int64_t))back & size) == infinite) & (((VECTOR(int64_t))values & size) != infinite);
        memcpy(out + i, &rounded, sizeof rounded);
    }
    for (int lane = 0; lane < LANES; lane++)
        misfits |= grown[lane] != 0;
#endif
    for (; i < count; i++) {
        double value;
        memcpy(&value, source + i * (int64_t)sizeof value, sizeof value);
        out[i] = (float)value;
        misfits |= (ABSOLUTE_SINGLE(out[i]) == (float)INFINITE) & (ABSOLUTE(value) != INFINITE);
    }
    return misfits;
}

/* `count` elements, `stride` bytes from one to the next, to C order; returns whether any of them doesn't fit. */
static int convert(const pb_column *column, const char *source, int64_t stride, char *destination, int64_t count)
{
    int32_t source_dtype = column->source_dtype, dtype = column->dtype;
    int64_t size = pb_dtype_bytes(dtype);
    int contiguous = stride == pb_dtype_bytes(source_dtype), misfits = 0;
    wide_block between;
    if (source_dtype == dtype) {
        copy(source, stride, destination, size, count);
        return 0;
    }
    if (contiguous && convert_common(source, source_dtype, destination, dtype, count))
        return 0;
    if (contiguous && source_dtype == PB_FLOAT64 && dtype == PB_FLOAT32 && !column->exact)
        return round_doubles(source, (float *)destination, count);
    for (int64_t done = 0; done < count; done += BLOCK) {
        int64_t some = count - done < BLOCK ? count - done : BLOCK;
        void *to = destination + done * size;
        load(&between, source + done * stride, stride, source_dtype, some);
        misfits |= kinds[dtype].is_float ? store_floats(&between, source_dtype, to, dtype, some, column->exact)
                                         : store_integers(&between, source_dtype, to, dtype, some);
    }
    return misfits;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* From an axis of a row on; `source` advances along the axes before. */
static int convert_axes(const pb_column *column, int32_t axis, const char *source, char **destination)
{
    int64_t count = column->shape[axis], stride = column->strides[axis];
    int misfits = 0;
    if (axis == column->rank - 1) {
        misfits = convert(column, source, stride, *destination, count);
        *destination += count * pb_dtype_bytes(column->dtype);
        return misfits;
    }
    for (int64_t i = 0; i < count; i++)
        misfits |= convert_axes(column, axis + 1, source + i * stride, destination);
    return misfits;
}

PB_API int pb_copy_row(const pb_column *column, int64_t row, char *destination)
{
    return convert_axes(column, 0, (const char *)column->source + row * column->row_stride, &destination);
}

PB_API int64_t pb_first_misfit(const pb_column *column, int64_t row)
{
    const char *source = (const char *)column->source + row * column->row_stride;
    uint64_t element;
    for (int64_t i = 0; i < column->elements; i++) {
        int64_t rest = i, offset = 0;
        for (int32_t axis = column->rank - 1; axis >= 0; axis--) {
            offset += rest % column->shape[axis] * column->strides[axis];
            rest /= column->shape[axis];
        }
        if (convert(column, source + offset, pb_dtype_bytes(column->source_dtype), (char *)&element, 1))
            return i;
    }
    return -1;
}

PB_API int64_t pb_shape_elements(const pb_column *column)
{
    int64_t elements = 1;
    for (int32_t axis = 0; axis < column->rank; axis++)
        elements *= column->shape[axis];
    return elements;
}

PB_API pb_status pb_check_column(const pb_column *column)
{
    int is_known = is_dtype(column->source_dtype) && is_dtype(column->dtype) && column->rank >= 1;
    return is_known && pb_shape_elements(column) == column->elements ? PB_OK : PB_ERROR_ARGUMENT;
}

PB_API pb_status pb_copy_rows(const pb_column *column, int64_t first, int64_t count, pb_misfit *misfit)
{
    int64_t bytes = column->elements * pb_dtype_bytes(column->dtype);
    if (pb_check_column(column) != PB_OK)
        return PB_ERROR_ARGUMENT;
    for (int64_t i = 0; i < count; i++)
        if (pb_copy_row(column, first + i, (char *)column->batch + i * bytes)) {
            *misfit = (pb_misfit){0, first + i, pb_first_misfit(column, first + i)};
            return PB_ERROR_VALUE;
        }
    return PB_OK;
}
