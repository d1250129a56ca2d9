/* Epoch: gathers the rows of each batch and calls a compiled step on them, again and again, without its caller.
 *
 * The loop returns after a while, so that the caller can show progress and answer signals, and goes on where it was
 * when it is called again. It keeps nothing of its own: all that there is to know of it is in a pb_epoch.
 */
#include "internal.h"

#include <time.h>

enum {
    PARALLEL_BYTES = 65536,     /* batches from this size on are gathered by all threads */
    PAUSE_NANOSECONDS = 1000000, /* between two looks at what another thread has done */
};

/* Says why a column makes no sense. */
static pb_status refuse_column(const pb_column *column, int64_t number)
{
    for (int k = 0; k < 2; k++) {
        int32_t dtype = k == 0 ? column->dtype : column->source_dtype;
        if (pb_dtype_bytes(dtype) == 0)
            return pb_fail(PB_ERROR_ARGUMENT, "column %lld: there is no dtype %d", (long long)number, (int)dtype);
    }
    return pb_fail(PB_ERROR_ARGUMENT, "column %lld: a row has %lld elements, its shape %lld", (long long)number,
                   (long long)column->elements, (long long)pb_shape_elements(column));
}

/* ---- a batch ------------------------------------------------------------------------------------------------- */

struct gathering {
    pb_epoch *epoch;
    int64_t first; /* the batch's first row, counted in the epoch's order */
    int misfits;
};

static int64_t row_at(const pb_epoch *epoch, int64_t position)
{
    return epoch->order != NULL ? epoch->order[position] : position % epoch->rows;
}

static void gather_rows(void *closure, int64_t begin, int64_t end)
{
    struct gathering *job = closure;
    int misfits = 0;
    for (int64_t c = 0; c < job->epoch->column_count; c++) {
        const pb_column *column = &job->epoch->columns[c];
        int64_t bytes = column->elements * pb_dtype_bytes(column->dtype);
        for (int64_t i = begin; i < end; i++)
            misfits |= pb_copy_row(column, row_at(job->epoch, job->first + i), (char *)column->batch + i * bytes);
    }
    if (misfits)
        __atomic_store_n(&job->misfits, 1, __ATOMIC_RELAXED);
}

/* Says which value of the batch is the first that doesn't fit. */
static pb_status refuse_misfit(pb_epoch *epoch, int64_t first)
{
    for (int64_t i = 0; i < epoch->batch_rows; i++)
        for (int64_t c = 0; c < epoch->column_count; c++) {
            int64_t row = row_at(epoch, first + i), element = pb_first_misfit(&epoch->columns[c], row);
            if (element >= 0) {
                epoch->misfit = (pb_misfit){c, row, element};
                return pb_fail(PB_ERROR_VALUE, "a value of row %lld does not fit", (long long)row);
            }
        }
    return pb_fail(PB_ERROR_VALUE, "a value does not fit"); /* somebody changed it meanwhile */
}

pb_status pb_epoch_gather(pb_epoch *epoch)
{
    struct gathering job = {epoch, epoch->first + epoch->done * epoch->batch_rows, 0};
    int64_t bytes = 0, batches = __atomic_load_n(&epoch->batches, __ATOMIC_ACQUIRE);
    if (epoch->done < 0 || epoch->done >= batches)
        return pb_fail(PB_ERROR_ARGUMENT, "there is no batch %lld: the epoch has %lld", (long long)epoch->done,
                       (long long)batches);
    if (epoch->rows < 1)
        return pb_fail(PB_ERROR_ARGUMENT, "the data set has %lld rows", (long long)epoch->rows);
    for (int64_t c = 0; c < epoch->column_count; c++) {
        const pb_column *column = &epoch->columns[c];
        if (pb_check_column(column) != PB_OK)
            return refuse_column(column, c);
        bytes += epoch->batch_rows * column->elements * pb_dtype_bytes(column->dtype);
    }
    for (int64_t i = 0; epoch->order != NULL && i < epoch->batch_rows; i++) {
        int64_t row = row_at(epoch, job.first + i);
        if (row < 0 || row >= epoch->rows)
            return pb_fail(PB_ERROR_ARGUMENT, "row %lld is out of range: the data set has %lld rows", (long long)row,
                           (long long)epoch->rows);
    }
    if (bytes < PARALLEL_BYTES)
        gather_rows(&job, 0, epoch->batch_rows);
    else
        pb_parallel_for(gather_rows, &job, epoch->batch_rows);
    return job.misfits ? refuse_misfit(epoch, job.first) : PB_OK;
}

/* ---- batches that come while the loop runs ------------------------------------------------------------------- */

void pb_epoch_extend(pb_epoch *epoch, int64_t batches)
{
    __atomic_fetch_add(&epoch->batches, batches, __ATOMIC_RELEASE);
}

int64_t pb_epoch_done(const pb_epoch *epoch)
{
    return __atomic_load_n(&epoch->done, __ATOMIC_ACQUIRE);
}

int64_t pb_epoch_wait(const pb_epoch *epoch, int64_t done, int64_t nanoseconds)
{
    const struct timespec pause = {0, PAUSE_NANOSECONDS};
    int64_t start = pb_now_ns();
    while (pb_epoch_done(epoch) < done && pb_epoch_done(epoch) < __atomic_load_n(&epoch->batches, __ATOMIC_ACQUIRE) &&
           pb_now_ns() - start < nanoseconds)
        nanosleep(&pause, NULL);
    return pb_epoch_done(epoch);
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

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
    if (!pb_is_float(call->loss_dtype) || (call->divisor != NULL && !pb_is_float(call->divisor_dtype)))
        return pb_fail(PB_ERROR_ARGUMENT, "a loss and its divisor are floating-point numbers, not of dtypes %d and %d",
                       (int)call->loss_dtype, (int)call->divisor_dtype);
    epoch->failure = 0;
    while (epoch->done < __atomic_load_n(&epoch->batches, __ATOMIC_ACQUIRE)) {
        pb_status status = pb_epoch_gather(epoch);
        if (status != PB_OK)
            return status;
        epoch->failure = call->function(call->runtime, call->buffers, call->arena, NULL);
        if (call->runtime->ranks != NULL && pb_ranks_failure(call->runtime->ranks) != NULL)
            return pb_fail(PB_ERROR_RANKS, "%s", pb_ranks_failure(call->runtime->ranks));
        if (epoch->failure != 0)
            return pb_fail(PB_ERROR_STEP, "the step on batch %lld failed", (long long)epoch->done);
        count_loss(epoch, pb_float_value(call->loss, call->loss_dtype),
                   call->divisor != NULL ? pb_float_value(call->divisor, call->divisor_dtype) : 1);
        __atomic_store_n(&epoch->done, epoch->done + 1, __ATOMIC_RELEASE);
        if (epoch->done == epoch->until || pb_now_ns() - start >= nanoseconds)
            break;
    }
    return PB_OK;
}
