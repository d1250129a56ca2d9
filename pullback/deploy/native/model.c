/* Model: an instance in its caller's memory, from its first moment to its last, and its steps and predictions. */
#include "instance.h"

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Where the parts of an instance lie, from its beginning: all that says so. */
struct layout {
    size_t pool, kept, batch, results, columns, at, buffers, arena, arena_bytes, end;
    int is_too_large; /* for this machine's addresses */
};

/* Appends a part; returns where it begins. */
static size_t part(struct layout *layout, int64_t bytes)
{
    size_t begin = layout->end;
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)(PTRDIFF_MAX - PB_ALIGNMENT) - begin) {
        layout->is_too_large = 1;
        return begin;
    }
    layout->end = (begin + (size_t)bytes + PB_ALIGNMENT - 1) / PB_ALIGNMENT * PB_ALIGNMENT;
    return begin;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct layout layout_of(const pb_program *program, int threads)
{
    const pb_function *functions[] = {&program->step, &program->predict, &program->predict_one, &program->evaluate,
                                      &program->evaluate_one};
    int64_t columns = program->input_count + program->target_count, rows = program->batch, buffers = 1;
    struct layout layout = {0};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i]->entry != NULL) {
            rows = larger(rows, functions[i]->rows);
            buffers = larger(buffers, functions[i]->buffer_count);
        }
    part(&layout, sizeof(struct pb_model));
    layout.pool = part(&layout, (int64_t)pb_pool_bytes(threads));
    layout.kept = part(&layout, program->kept_bytes);
    layout.batch = part(&layout, larger(program->batch_bytes, pb_batch_bytes(program, rows)));
    layout.results = part(&layout, program->result_bytes);
    layout.columns = part(&layout, columns * (int64_t)sizeof(pb_data_column));
    layout.at = part(&layout, columns * (int64_t)sizeof(void *));
    layout.buffers = part(&layout, buffers * (int64_t)sizeof(void *));
    layout.arena = part(&layout, larger(program->arena_bytes, pb_checkpoint_arena_bytes(program)));
    layout.arena_bytes = layout.end - layout.arena;
    return layout;
}

static int is_number_of_threads(int threads)
{
#ifdef PB_NO_THREADS
    return threads == 1;
#else
    return threads >= 1 && threads <= PB_MAX_THREADS;
#endif
}

size_t pb_model_bytes(const pb_program *program, int threads)
{
    struct layout layout;
    if (program == NULL || !is_number_of_threads(threads))
        return 0;
    layout = layout_of(program, threads);
    return layout.is_too_large ? 0 : layout.end;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static void set_idle(pb_model *model)
{
#ifdef PB_NO_THREADS
    model->busy = 0;
#else
    atomic_flag_clear_explicit(&model->busy, memory_order_release);
#endif
}

void pb_set_initial(pb_model *model)
{
    const pb_program *program = model->program;
    int64_t given = program->initial == NULL ? 0 : program->initial_bytes;
    if (given > 0)
        memcpy(model->kept, program->initial, (size_t)given);
    memset(model->kept + given, 0, (size_t)(program->kept_bytes - given));
    for (int i = 0; i < 2; i++) {
        model->random.state[i] = program->random_state[i];
        model->random.increment[i] = program->random_increment[i];
    }
    model->random.has_word = program->random_has_word;
    model->random.word = program->random_word;
    model->epochs = program->epochs;
    model->lacks = program->initial == NULL ? PB_LACKS_ALL : PB_LACKS_NOTHING;
}

pb_status pb_model_init(const pb_program *program, void *memory, size_t bytes, int threads, pb_model **model)
{
    struct layout layout;
    pb_model *made = memory;
    char *begin = memory;
    pb_status status;
    if (model == NULL)
        return PB_ERROR_ARGUMENT;
    *model = NULL;
    if (memory == NULL || (uintptr_t)memory % PB_ALIGNMENT != 0 || pb_model_bytes(program, threads) == 0 ||
        bytes < pb_model_bytes(program, threads))
        return PB_ERROR_ARGUMENT;
    layout = layout_of(program, threads);
    memset(made, 0, sizeof *made);
    made->program = program;
    made->pool = (struct pb_pool *)(void *)(begin + layout.pool);
    made->kept = begin + layout.kept;
    made->batch = begin + layout.batch;
    made->results = begin + layout.results;
    made->columns = (pb_data_column *)(void *)(begin + layout.columns);
    made->at = (void **)(void *)(begin + layout.at);
    made->buffers = (void **)(void *)(begin + layout.buffers);
    made->arena = begin + layout.arena;
    made->arena_bytes = layout.arena_bytes;
    made->error = (pb_text){made->error_buffer, sizeof made->error_buffer, 0, 0};
    set_idle(made);
    memset(made->results, 0, layout.columns - layout.results);
    memset(made->arena, 0, layout.arena_bytes);
    pb_set_initial(made);
    status = pb_pool_init(made->pool, threads);
    if (status == PB_OK)
        status = pb_pool_start(made->pool);
    if (status != PB_OK) {
        pb_pool_close(made->pool);
        return status;
    }
    made->runtime = pb_pool_runtime(made->pool);
    *model = made;
    return PB_OK;
}

void pb_model_close(pb_model *model)
{
    if (model != NULL)
        pb_pool_close(model->pool);
}

pb_status pb_model_reset(pb_model *model)
{
    pb_status status = pb_enter(model, 0);
    if (status != PB_OK)
        return status;
    pb_set_initial(model);
    return pb_leave(model, PB_OK);
}

/* ---- calls and errors ---------------------------------------------------------------------------------------- */

pb_status pb_enter(pb_model *model, int needs_values)
{
    if (model == NULL)
        return PB_ERROR_ARGUMENT;
#ifdef PB_NO_THREADS
    if (model->busy)
        return PB_ERROR_BUSY;
    model->busy = 1;
#else
    if (atomic_flag_test_and_set_explicit(&model->busy, memory_order_acquire))
        return PB_ERROR_BUSY;
#endif
    if (needs_values && model->lacks == PB_LACKS_ALL)
        return pb_leave(model, pb_refuse(model, PB_ERROR_STATE,
                                         PB_TEXT("there are no values yet: no weights are part of the library; read a"
                                                 " checkpoint first")));
    if (needs_values && model->lacks == PB_LACKS_UNITY)
        return pb_leave(model, pb_refuse(model, PB_ERROR_STATE,
                                         PB_TEXT("the values are a mixture: a checkpoint changed, or could no longer be"
                                                 " read, while they were overwritten; read a whole one, or reset")));
    return PB_OK;
}

pb_status pb_leave(pb_model *model, pb_status status)
{
    set_idle(model);
    return status;
}

pb_status pb_refuse_parts(pb_model *model, pb_status status, const pb_part *parts)
{
    model->error.length = 0;
    model->error.is_cut = 0;
    pb_text_add_parts(&model->error, parts);
    if (model->error.is_cut)
        memcpy(model->error_buffer + sizeof model->error_buffer - 4, "...", 4);
    return status;
}

const char *pb_model_error(const pb_model *model)
{
    return model == NULL ? "the instance is NULL: it has not been made" : model->error_buffer;
}

const char *pb_status_text(pb_status status)
{
    static const char *const texts[] = {
        [PB_OK] = "all is well",
        [PB_ERROR_ARGUMENT] = "an argument is out of range",
        [PB_ERROR_MEMORY] = "not enough memory",
        [PB_ERROR_ENVIRONMENT] = "an environment variable cannot be understood",
        [PB_ERROR_STATE] = "a call that is not allowed at this point",
        [PB_ERROR_STEP] = "a compiled function refused its arguments' values",
        [PB_ERROR_VALUE] = "a value that its dtype does not hold",
        [PB_ERROR_BUSY] = "another thread is in a call of the same instance",
        [PB_ERROR_FILE] = "a file cannot be read or written",
        [PB_ERROR_CHECKPOINT] = "no checkpoint, a damaged one, or another trainer's",
    };
    return (size_t)status < sizeof texts / sizeof *texts ? texts[status] : "an unknown status";
}

/* ---- steps and predictions ----------------------------------------------------------------------------------- */

/* Makes the caller's tensors of one kind columns of their own dtypes. */
static pb_status take_tensors(pb_model *model, const void *const *tensors, int32_t first, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const pb_tensor *tensor = &model->program->tensors[first + i];
        if (tensors == NULL || tensors[i] == NULL)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT(tensor->kind == PB_INPUT ? "input " : "target "),
                             PB_TEXT(tensor->name), PB_TEXT(" is NULL"));
        model->columns[first + i] = (pb_data_column){tensors[i], tensor->dtype};
    }
    return PB_OK;
}

pb_status pb_step_on_taken(pb_model *model, double *loss)
{
    const pb_program *program = model->program;
    pb_status status;
    if (program->step.entry == NULL)
        return pb_refuse(model, PB_ERROR_STATE, PB_TEXT("the library "), PB_TEXT(program->name),
                         PB_TEXT(" was made without code that trains"));
    status = pb_take_batch(model, 1, 0, program->step.rows, NULL);
    if (status == PB_OK)
        status = pb_call_function(model, &program->step, 0);
    if (status == PB_OK && loss != NULL)
        *loss = pb_loss_of(model, &program->step);
    return status;
}

static pb_status step_on(pb_model *model, const void *const *inputs, const void *const *targets, double *loss)
{
    const pb_program *program = model->program;
    pb_status status = take_tensors(model, inputs, 0, program->input_count);
    if (status == PB_OK)
        status = take_tensors(model, targets, program->input_count, program->target_count);
    return status != PB_OK ? status : pb_step_on_taken(model, loss);
}

pb_status pb_model_step(pb_model *model, const void *const *inputs, const void *const *targets, double *loss)
{
    pb_status status = pb_enter(model, 1);
    return status != PB_OK ? status : pb_leave(model, step_on(model, inputs, targets, loss));
}

/* Whether the caller's memory for outputs takes those of so many rows. */
static pb_status check_outputs(pb_model *model, void *const *outputs, int64_t rows)
{
    const pb_program *program = model->program;
    for (int32_t i = 0; i < program->output_count && rows > 0; i++) {
        const pb_tensor *output = &program->tensors[program->input_count + program->target_count + i];
        const pb_function *function = pb_function_of(&program->predict, &program->predict_one, rows);
        if (outputs == NULL || outputs[i] == NULL)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("output "), PB_TEXT(output->name), PB_TEXT(" is NULL"));
        if (output->row_elements == 0 && rows != function->rows)
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("output "), PB_TEXT(output->name),
                             PB_TEXT(" has no row for each row of the inputs, so those of several batches cannot be"
                                     " joined: predict "), PB_INTEGER(function->rows), PB_TEXT(" rows, not "),
                             PB_INTEGER(rows));
        if (output->row_elements > 0 && rows > PTRDIFF_MAX / pb_row_bytes(output))
            return pb_refuse(model, PB_ERROR_ARGUMENT, PB_INTEGER(rows), PB_TEXT(" rows do not fit in memory"));
    }
    return PB_OK;
}

static void copy_outputs(const pb_model *model, const pb_function *function, int64_t first, void *const *outputs)
{
    const pb_program *program = model->program;
    for (int32_t i = 0; i < program->output_count; i++) {
        const pb_tensor *output = &program->tensors[program->input_count + program->target_count + i];
        int64_t row = pb_row_bytes(output), bytes = row > 0 ? function->rows * row : output->bytes;
        memcpy((char *)outputs[i] + first * row, model->results + function->outputs[i], (size_t)bytes);
    }
}

pb_status pb_predict_columns(pb_model *model, const pb_data_column *columns, int64_t rows, void *const *outputs)
{
    const pb_program *program = model->program;
    pb_status status = pb_check_rows(model, &program->predict, &program->predict_one, rows, "predicts");
    if (status == PB_OK)
        status = pb_take_columns(model, columns, 0, rows);
    if (status == PB_OK)
        status = check_outputs(model, outputs, rows);
    for (int64_t done = 0; done < rows && status == PB_OK;) {
        const pb_function *function = pb_function_of(&program->predict, &program->predict_one, rows - done);
        status = pb_take_batch(model, 0, done, function->rows, NULL);
        if (status == PB_OK)
            status = pb_call_function(model, function, 0);
        if (status == PB_OK)
            copy_outputs(model, function, done, outputs);
        done += function->rows;
    }
    return status;
}

static pb_status predict_all(pb_model *model, const void *const *inputs, int64_t rows, void *const *outputs)
{
    pb_status status = take_tensors(model, inputs, 0, model->program->input_count);
    return status != PB_OK ? status : pb_predict_columns(model, model->columns, rows, outputs);
}

pb_status pb_model_predict(pb_model *model, const void *const *inputs, int64_t rows, void *const *outputs)
{
    pb_status status = pb_enter(model, 1);
    return status != PB_OK ? status : pb_leave(model, predict_all(model, inputs, rows, outputs));
}
