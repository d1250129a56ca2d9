/* Epoch: gathers the rows of each batch and calls a compiled step on them, again and again, without its caller.
 *
 * The loop returns after a while, so that the caller can show progress and answer signals, and goes on where it was
 * when it is called again. It keeps nothing of its own: all that there is to know of it is in a pb_epoch.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

enum { PARALLEL_BYTES = 65536 }; /* batches from this size on are gathered by all threads */

static int64_t size_of(int32_t dtype)
{
    static const int8_t sizes[PB_DTYPES] = {
        [PB_BOOL] = 1,   [PB_INT8] = 1,   [PB_INT16] = 2,   [PB_INT32] = 4,   [PB_INT64] = 8,
        [PB_UINT8] = 1,  [PB_UINT16] = 2, [PB_UINT32] = 4,  [PB_UINT64] = 8,
        [PB_FLOAT16] = 2, [PB_FLOAT32] = 4, [PB_FLOAT64] = 8, [PB_BFLOAT16] = 2,
    };
    return dtype >= 0 && dtype < PB_DTYPES ? sizes[dtype] : 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define CONVERT(from, to)                   \
    do {                                    \
        const from *in = source;            \
        to *out = destination;              \
        for (int64_t i = 0; i < count; i++) \
            out[i] = (to)in[i];             \
        return;                             \
    } while (0)

#define CONVERT_INTEGERS(to)                          \
    switch (source_dtype) {                           \
    case PB_BOOL:                                     \
    case PB_UINT8: CONVERT(uint8_t, to);              \
    case PB_INT8: CONVERT(int8_t, to);                \
    case PB_UINT16: CONVERT(uint16_t, to);            \
    case PB_INT16: CONVERT(int16_t, to);              \
    case PB_UINT32: CONVERT(uint32_t, to);            \
    case PB_INT32: CONVERT(int32_t, to);              \
    default: return; /* pb_converts() said no */      \
    }

static void copy_row(const void *source, int32_t source_dtype, void *destination, int32_t dtype, int64_t count)
{
    if (source_dtype == dtype) {
        memcpy(destination, source, (size_t)(count * size_of(dtype)));
        return;
    }
    switch (dtype) {
    case PB_INT64: CONVERT_INTEGERS(int64_t)
    case PB_FLOAT32: CONVERT_INTEGERS(float)
    case PB_FLOAT64: CONVERT_INTEGERS(double)
    default: return;
    }
}

int pb_converts(int32_t source_dtype, int32_t dtype)
{
    if (source_dtype == dtype)
        return size_of(dtype) > 0;
    switch (source_dtype) {
    case PB_BOOL:
    case PB_UINT8:
    case PB_INT8:
    case PB_UINT16:
    case PB_INT16: return dtype == PB_INT64 || dtype == PB_FLOAT32 || dtype == PB_FLOAT64;
    case PB_UINT32:
    case PB_INT32: return dtype == PB_INT64 || dtype == PB_FLOAT64;
    default: return 0;
    }
}

/* ---- a batch ------------------------------------------------------------------------------------------------- */

struct gathering {
    const pb_epoch *epoch;
    int64_t first; /* the batch's first row, counted in the epoch's order */
};

static int64_t row_at(const pb_epoch *epoch, int64_t position)
{
    return epoch->order != NULL ? epoch->order[position] : position;
}

static void gather_rows(void *closure, int64_t begin, int64_t end)
{
    const struct gathering *job = closure;
    for (int64_t c = 0; c < job->epoch->column_count; c++) {
        const pb_column *column = &job->epoch->columns[c];
        int64_t source_bytes = column->elements * size_of(column->source_dtype);
        int64_t bytes = column->elements * size_of(column->dtype);
        for (int64_t i = begin; i < end; i++)
            copy_row((const char *)column->source + row_at(job->epoch, job->first + i) * source_bytes,
                     column->source_dtype, (char *)column->batch + i * bytes, column->dtype, column->elements);
    }
}

pb_status pb_epoch_gather(const pb_epoch *epoch)
{
    struct gathering job = {epoch, epoch->first + epoch->done * epoch->batch_rows};
    int64_t bytes = 0;
    if (epoch->done < 0 || epoch->done >= epoch->batches)
        return pb_fail(PB_ERROR_ARGUMENT, "there is no batch %lld: the epoch has %lld", (long long)epoch->done,
                       (long long)epoch->batches);
    for (int64_t c = 0; c < epoch->column_count; c++) {
        const pb_column *column = &epoch->columns[c];
        if (!pb_converts(column->source_dtype, column->dtype))
            return pb_fail(PB_ERROR_ARGUMENT, "column %lld: dtype %d can't become dtype %d", (long long)c,
                           (int)column->source_dtype, (int)column->dtype);
        bytes += epoch->batch_rows * column->elements * size_of(column->dtype);
    }
    for (int64_t i = 0; i < epoch->batch_rows; i++) {
        int64_t row = row_at(epoch, job.first + i);
        if (row < 0 || row >= epoch->rows)
            return pb_fail(PB_ERROR_ARGUMENT, "row %lld is out of range: the data set has %lld rows", (long long)row,
                           (long long)epoch->rows);
    }
    if (bytes < PARALLEL_BYTES)
        gather_rows(&job, 0, epoch->batch_rows);
    else
        pb_parallel_for(gather_rows, &job, epoch->batch_rows);
    return PB_OK;
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

/* A float16, from its bits: sign 1, exponent 5, fraction 10. */
static double float16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = (double)((int64_t)(exponent ? 1024 + fraction : fraction) << (exponent ? exponent : 1)) / (1 << 25);
    if (exponent == 31)
        size = fraction ? NAN : INFINITY;
    return bits >> 15 ? -size : size;
}

static double float_value(const void *address, int32_t dtype)
{
    uint16_t half;
    uint32_t word;
    float single;
    double value;
    switch (dtype) {
    case PB_FLOAT16: memcpy(&half, address, sizeof half); return float16_value(half);
    case PB_BFLOAT16: /* the upper half of a float32 */
        memcpy(&half, address, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof single);
        return single;
    case PB_FLOAT32: memcpy(&single, address, sizeof single); return single;
    default: memcpy(&value, address, sizeof value); return value;
    }
}

static int is_float(int32_t dtype)
{
    return dtype >= PB_FLOAT16 && dtype <= PB_BFLOAT16;
}

/* A batch that counts nothing has the divisor 0 and a loss that is no number. */
static void count_loss(pb_epoch *epoch, double loss, double divisor)
{
    if (divisor == 0)
        return;
    double sum = loss * divisor; /* a statement of its own: never a fused multiply-add */
    epoch->loss = loss;
    epoch->loss_sum += sum;
    epoch->divisor_sum += divisor;
}

pb_status pb_epoch_run(pb_epoch *epoch, const pb_call *call, int64_t nanoseconds)
{
    int64_t start = pb_now_ns();
    if (!is_float(call->loss_dtype) || (call->divisor != NULL && !is_float(call->divisor_dtype)))
        return pb_fail(PB_ERROR_ARGUMENT, "a loss and its divisor are floating-point numbers, not of dtypes %d and %d",
                       (int)call->loss_dtype, (int)call->divisor_dtype);
    epoch->failure = 0;
    while (epoch->done < epoch->batches) {
        pb_status status = pb_epoch_gather(epoch);
        if (status != PB_OK)
            return status;
        epoch->failure = call->function(pb_runtime_get(), call->buffers, call->arena, NULL);
        if (epoch->failure != 0)
            return pb_fail(PB_ERROR_STEP, "the step on batch %lld failed", (long long)epoch->done);
        count_loss(epoch, float_value(call->loss, call->loss_dtype),
                   call->divisor != NULL ? float_value(call->divisor, call->divisor_dtype) : 1);
        epoch->done++;
        if (pb_now_ns() - start >= nanoseconds)
            break;
    }
    return PB_OK;
}
