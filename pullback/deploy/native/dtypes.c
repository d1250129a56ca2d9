/* Element types: their names, those in checkpoints too, and numbers of any of them. */
#include "instance.h"

static const struct {
    const char *name, *code;
} dtypes[PB_DTYPES] = {
    [PB_BOOL] = {"bool", "BOOL"},        [PB_INT8] = {"int8", "I8"},        [PB_INT16] = {"int16", "I16"},
    [PB_INT32] = {"int32", "I32"},       [PB_INT64] = {"int64", "I64"},     [PB_UINT8] = {"uint8", "U8"},
    [PB_UINT16] = {"uint16", "U16"},     [PB_UINT32] = {"uint32", "U32"},   [PB_UINT64] = {"uint64", "U64"},
    [PB_FLOAT16] = {"float16", "F16"},   [PB_FLOAT32] = {"float32", "F32"}, [PB_FLOAT64] = {"float64", "F64"},
    [PB_BFLOAT16] = {"bfloat16", "BF16"},
};

const char *pb_dtype_name(int32_t dtype)
{
    return dtypes[dtype].name;
}

const char *pb_dtype_code(int32_t dtype)
{
    return dtypes[dtype].code;
}

int pb_convert(const void *source, int32_t source_dtype, void *to, int32_t dtype, int64_t count)
{
    pb_misfit misfit;
    int64_t stride = pb_dtype_bytes(source_dtype);
    pb_column column = {source, to, count, count * stride, &count, &stride, 1, source_dtype, dtype, 0};
    return pb_copy_rows(&column, 0, 1, &misfit) != PB_OK;
}

double pb_real_at(const void *address, int32_t dtype)
{
    double value = 0;
    float single;
    if (dtype == PB_FLOAT32) { /* as most losses and scores are: without the stack that conversions take */
        memcpy(&single, address, sizeof single);
        return single;
    }
    pb_convert(address, dtype, &value, PB_FLOAT64, 1);
    return value;
}

double pb_not_a_number(void)
{
    static const uint64_t bits = 0x7ff8000000000000;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int pb_is_finite(double value)
{
    return value - value == 0;
}
