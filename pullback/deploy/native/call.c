/* Calls: rows of the caller's become a batch, and compiled functions compute on it. */
#include "instance.h"

#ifndef PB_PARALLEL_BYTES
#define PB_PARALLEL_BYTES 65536 /* tensors of a batch from this size on are gathered by all threads */
#endif

const pb_tensor *pb_kept(const pb_program *program, int32_t number)
{
    return program->tensors + program->input_count + program->target_count + program->output_count + number;
}

int64_t pb_elements(const pb_tensor *tensor)
{
    return tensor->bytes / pb_dtype_bytes(tensor->dtype);
}

int64_t pb_row_bytes(const pb_tensor *tensor)
{
    return tensor->row_elements * pb_dtype_bytes(tensor->dtype);
}

const void *pb_values(const pb_model *model, const pb_tensor *tensor)
{
    return tensor->constant != NULL ? tensor->constant : model->kept + tensor->offset;
}

int64_t pb_aligned(int64_t bytes)
{
    return (bytes + PB_ALIGNMENT - 1) / PB_ALIGNMENT * PB_ALIGNMENT;
}

static int is_aligned(const void *address)
{
    return (uintptr_t)address % PB_ALIGNMENT == 0;
}

/* Of one input or target, in a copy of so many rows. */
static int64_t copied_bytes(const pb_tensor *tensor, int64_t rows)
{
    return pb_aligned(tensor->row_elements > 0 ? rows * pb_row_bytes(tensor) : tensor->bytes);
}

int64_t pb_batch_bytes(const pb_program *program, int64_t rows)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < program->input_count + program->target_count; i++)
        bytes += copied_bytes(&program->tensors[i], rows);
    return bytes;
}

static int32_t count_of(const pb_model *model, int with_targets)
{
    return model->program->input_count + (with_targets ? model->program->target_count : 0);
}

static const char *kind_of(const pb_tensor *tensor)
{
    return tensor->kind == PB_INPUT ? "input " : "target ";
}

/* ---- columns ------------------------------------------------------------------------------------------------- */

pb_status pb_take_columns(pb_model *model, const pb_data_column *columns, int with_targets, int64_t rows)
{
    if (columns == NULL && count_of(model, with_targets) > 0)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("there is no data: the columns are NULL"));
    for (int32_t i = 0; i < count_of(model, with_targets); i++) {
        const pb_tensor *tensor = &model->program->tensors[i];
        int64_t widest = 8 * (tensor->row_elements > 0 ? tensor->row_elements : 1);
        if (columns[i].data == NULL && rows > 0)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT(kind_of(tensor)), PB_TEXT(tensor->name),
                             PB_TEXT(" is NULL"));
        if (columns[i].dtype < 0 || columns[i].dtype >= PB_DTYPES)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT(kind_of(tensor)), PB_TEXT(tensor->name),
                             PB_TEXT(": there is no dtype "), PB_INTEGER(columns[i].dtype));
        if (rows > PTRDIFF_MAX / widest)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_INTEGER(rows), PB_TEXT(" rows do not fit in memory"));
        model->columns[i] = columns[i];
    }
    return PB_OK;
}

/* ---- gathering ----------------------------------------------------------------------------------------------- */

struct gathering {
    const pb_data_column *column;
    const pb_tensor *tensor;
    char *to;
    int64_t first;
    const int32_t *order; /* NULL: as they are */
#ifdef PB_NO_THREADS
    int misfits;
#else
    _Atomic int misfits;
#endif
};

static int64_t row_at(const struct gathering *job, int64_t place)
{
    return job->order != NULL ? job->order[job->first + place] : job->first + place;
}

/* Elements of what is converted in one go: a row, or a tensor without rows. */
static int64_t elements_of(const pb_tensor *tensor)
{
    return tensor->row_elements > 0 ? tensor->row_elements : pb_elements(tensor);
}

static const char *source_row(const struct gathering *job, int64_t row)
{
    return (const char *)job->column->data + row * elements_of(job->tensor) * pb_dtype_bytes(job->column->dtype);
}

static void gather_rows(void *closure, int64_t begin, int64_t end)
{
    struct gathering *job = closure;
    int64_t elements = elements_of(job->tensor), bytes = elements * pb_dtype_bytes(job->tensor->dtype);
    for (int64_t i = begin; i < end; i++)
        if (job->column->dtype == job->tensor->dtype)
            memcpy(job->to + i * bytes, source_row(job, row_at(job, i)), (size_t)bytes);
        else if (pb_convert(source_row(job, row_at(job, i)), job->column->dtype, job->to + i * bytes,
                            job->tensor->dtype, elements))
            job->misfits = 1;
}

/* Names the first value that doesn't fit. */
static pb_status refuse_misfit(pb_model *model, const struct gathering *job, int64_t rows)
{
    const pb_tensor *tensor = job->tensor;
    int32_t dtype = job->column->dtype;
    double to; /* as large as any element */
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < elements_of(tensor); k++) {
            const char *value = source_row(job, row_at(job, i)) + k * pb_dtype_bytes(dtype);
            if (pb_convert(value, dtype, &to, tensor->dtype, 1))
                return pb_refuse(model, PB_ERROR_VALUE, PB_TEXT(kind_of(tensor)), PB_TEXT(tensor->name),
                                 PB_TEXT(": row "), PB_INTEGER(tensor->row_elements > 0 ? row_at(job, i) : 0),
                                 PB_TEXT(", element "), PB_INTEGER(k), PB_TEXT(" is the "),
                                 PB_TEXT(pb_dtype_name(dtype)), PB_TEXT(" "), PB_REAL(pb_real_at(value, dtype)),
                                 PB_TEXT(", which "), PB_TEXT(pb_dtype_name(tensor->dtype)),
                                 PB_TEXT(" does not hold"));
        }
    return pb_refuse(model, PB_ERROR_VALUE, PB_TEXT(kind_of(tensor)), PB_TEXT(tensor->name),
                     PB_TEXT(": a value did not fit, and was changed meanwhile"));
}

static pb_status gather(pb_model *model, struct gathering *job, int64_t rows)
{
    if (rows * elements_of(job->tensor) * pb_dtype_bytes(job->tensor->dtype) < PB_PARALLEL_BYTES)
        gather_rows(job, 0, rows);
    else
        model->runtime->parallel_for(model->runtime, gather_rows, job, rows);
    return job->misfits ? refuse_misfit(model, job, rows) : PB_OK;
}

pb_status pb_take_batch(pb_model *model, int with_targets, int64_t first, int64_t rows, const int32_t *order)
{
    char *copy = model->batch;
    pb_status status = PB_OK;
    for (int32_t i = 0; i < count_of(model, with_targets) && status == PB_OK; i++) {
        const pb_tensor *tensor = &model->program->tensors[i];
        const pb_data_column *column = &model->columns[i];
        int has_rows = tensor->row_elements > 0;
        struct gathering job = {.column = column, .tensor = tensor, .to = copy, .first = has_rows ? first : 0,
                                .order = has_rows ? order : NULL};
        const char *source = source_row(&job, job.first);
        if (column->dtype == tensor->dtype && job.order == NULL && is_aligned(source)) {
            model->at[i] = (void *)(uintptr_t)source;
        } else {
            model->at[i] = copy;
            status = gather(model, &job, has_rows ? rows : 1);
        }
        copy += copied_bytes(tensor, rows);
    }
    return status;
}

/* ---- functions ----------------------------------------------------------------------------------------------- */

static void *address_of(const pb_model *model, const pb_function *function, pb_buffer buffer)
{
    switch ((pb_place)buffer.place) {
    case PB_AT_KEPT: return model->kept + pb_kept(model->program, (int32_t)buffer.number)->offset;
    case PB_AT_INPUT: return model->at[buffer.number];
    case PB_AT_TARGET: return model->at[model->program->input_count + buffer.number];
    case PB_AT_CONSTANT: return (void *)(uintptr_t)function->constants[buffer.number];
    default: return model->results + buffer.number;
    }
}

/* "step 12: ", of the steps of a run. */
static pb_status refuse_call(pb_model *model, int64_t step, const char *message, int32_t failure)
{
    pb_part number = PB_INTEGER(failure), none = PB_TEXT(""), of_step = PB_INTEGER(step);
    return pb_refuse(model, PB_ERROR_STEP, PB_TEXT(step > 0 ? "step " : ""), step > 0 ? of_step : none,
                     PB_TEXT(step > 0 ? ": " : ""), PB_TEXT(message), failure != 0 ? number : none);
}

pb_status pb_call_function(pb_model *model, const pb_function *function, int64_t step)
{
    int32_t failure;
    for (int64_t i = 0; i < function->buffer_count; i++)
        model->buffers[i] = address_of(model, function, function->buffers[i]);
    failure = function->entry(model->runtime, model->buffers, model->arena, NULL);
    if (failure > 0 && failure <= function->message_count)
        return refuse_call(model, step, function->messages[failure - 1], 0);
    return failure == 0 ? PB_OK : refuse_call(model, step, "a compiled function returned ", failure);
}

const pb_function *pb_function_of(const pb_function *several, const pb_function *one, int64_t left)
{
    return several->entry != NULL && left >= several->rows ? several : one;
}

pb_status pb_check_rows(pb_model *model, const pb_function *several, const pb_function *one, int64_t rows,
                        const char *what)
{
    if (several->entry == NULL && one->entry == NULL)
        return pb_refuse(model, PB_ERROR_STATE, PB_TEXT("the library "), PB_TEXT(model->program->name),
                         PB_TEXT(" was made without code that "), PB_TEXT(what));
    if (rows < 0)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the number of rows must not be negative, got "),
                         PB_INTEGER(rows));
    if (one->entry == NULL && rows % several->rows != 0)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the library "), PB_TEXT(what), PB_TEXT(" "),
                         PB_INTEGER(several->rows), PB_TEXT(" rows at a time: the number of rows must be a multiple"
                         " of that, got "), PB_INTEGER(rows));
    return PB_OK;
}

/* ---- losses -------------------------------------------------------------------------------------------------- */

double pb_loss_of(const pb_model *model, const pb_function *function)
{
    if (function->loss < 0)
        return pb_not_a_number();
    return pb_real_at(model->results + function->loss, (int32_t)function->loss_dtype);
}

void pb_mean_add(pb_mean *mean, const pb_model *model, const pb_function *function)
{
    double divisor = function->divisor < 0
                         ? 1
                         : pb_real_at(model->results + function->divisor, (int32_t)function->divisor_dtype);
    mean->rows += function->rows;
    if (divisor != 0) { /* a batch that counts nothing has no loss */
        double sum = pb_loss_of(model, function) * divisor; /* a statement of its own: never a fused multiply-add */
        mean->sum += sum;
        mean->divisor += divisor;
    }
}

double pb_mean_of(const pb_mean *mean, const pb_program *program)
{
    double divisor = program->adds_up ? (double)mean->rows : mean->divisor;
    return divisor != 0 ? mean->sum / divisor : pb_not_a_number();
}
