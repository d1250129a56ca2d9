/* What is kept: parameters, states, random and optimizer states, run-time values and counters, read and set. */
#include "instance.h"

enum { SOME = 64 }; /* elements that are converted at a time */

static void *values_of(const pb_model *model, int32_t number)
{
    return model->kept + pb_kept(model->program, number)->offset;
}

/* Whether it is one of the parameters that are read and set as one array. */
static int is_parameter(const pb_tensor *tensor)
{
    return tensor->kind == PB_PARAMETER && tensor->constant == NULL;
}

int32_t pb_model_find(const pb_model *model, const char *name)
{
    if (model != NULL && name != NULL)
        for (int32_t i = 0; i < model->program->kept_count; i++)
            if (strcmp(pb_kept(model->program, i)->name, name) == 0)
                return i;
    return -1;
}

const pb_tensor *pb_model_tensor(const pb_model *model, int32_t number)
{
    return model != NULL && number >= 0 && number < model->program->kept_count ? pb_kept(model->program, number) : NULL;
}

int64_t pb_model_steps(const pb_model *model)
{
    int64_t steps = 0;
    if (model != NULL)
        memcpy(&steps, values_of(model, model->program->steps), sizeof steps);
    return steps;
}

int64_t pb_model_epochs(const pb_model *model)
{
    return model == NULL ? 0 : model->epochs;
}

/* ---- what values may be -------------------------------------------------------------------------------------- */

static int is_within(const pb_hyperparameter *entry, double value)
{
    return pb_is_finite(value) && value >= entry->least && value < entry->below;
}

static pb_status refuse_hyperparameter(pb_model *model, pb_status status, const pb_hyperparameter *entry, double value)
{
    int has_least = pb_is_finite(entry->least), has_below = pb_is_finite(entry->below);
    return pb_refuse(model, status, PB_TEXT(entry->name), PB_TEXT(" must be a finite number"),
                     PB_TEXT(has_least ? " >= " : ""), {has_least ? 'r' : 't', "", 0, 0, entry->least},
                     PB_TEXT(has_least && has_below ? " and" : ""),
                     PB_TEXT(has_below ? " < " : ""),
                     {has_below ? 'r' : 't', "", 0, 0, entry->below}, PB_TEXT(", got "), PB_REAL(value));
}

static int is_one_of(const pb_hyperparameter *entry, int32_t number)
{
    for (int32_t i = 0; i < entry->count; i++)
        if (entry->kept[i] == number)
            return 1;
    return 0;
}

/* An optimizer's state that is one number: a count, a loss scale, or a run-time value. */
static pb_status check_scalar(pb_model *model, int32_t number, const void *bytes, pb_status status)
{
    const pb_tensor *tensor = pb_kept(model->program, number);
    double value = pb_real_at(bytes, tensor->dtype);
    int is_count = strlen(tensor->name) >= 4 && memcmp(tensor->name, "num_", 4) == 0;
    if (is_count && !(value >= 0 && value < (double)PB_COUNT_END))
        return pb_refuse(model, status, PB_TEXT("the optimizer state "), PB_TEXT(tensor->name),
                         PB_TEXT(", a count, is "), PB_REAL(value), PB_TEXT(": it must be >= 0 and less than 2^62"));
    if (strcmp(tensor->name, "loss_scale") == 0 && !(value >= 0))
        return pb_refuse(model, status, PB_TEXT("the loss scale is "), PB_REAL(value));
    for (int32_t i = 0; i < model->program->hyperparameter_count; i++) {
        const pb_hyperparameter *entry = &model->program->hyperparameters[i];
        if (is_one_of(entry, number) && !is_within(entry, value))
            return refuse_hyperparameter(model, status, entry, value);
    }
    return PB_OK;
}

pb_status pb_check_values(pb_model *model, int32_t number, const void *bytes, size_t count, pb_status status)
{
    const pb_tensor *tensor = pb_kept(model->program, number);
    const unsigned char *flags = bytes;
    for (size_t i = 0; i < count && tensor->dtype == PB_BOOL; i++)
        if (flags[i] > 1)
            return pb_refuse(model, status, PB_TEXT(tensor->name),
                             PB_TEXT(" holds a byte that is neither true nor false: "), PB_INTEGER(flags[i]));
    if (tensor->kind == PB_OPTIMIZER_STATE && tensor->rank == 0)
        return check_scalar(model, number, bytes, status);
    return PB_OK;
}

/* ---- one tensor ---------------------------------------------------------------------------------------------- */

static pb_status check_tensor(pb_model *model, int32_t number, const void *values, size_t bytes)
{
    const pb_tensor *tensor = pb_model_tensor(model, number);
    if (tensor == NULL)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("there is no tensor "), PB_INTEGER(number),
                         PB_TEXT(": they are numbered from 0 to "), PB_INTEGER(model->program->kept_count - 1));
    if ((uint64_t)tensor->bytes != bytes)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT(tensor->name), PB_TEXT(" has "), PB_INTEGER(tensor->bytes),
                         PB_TEXT(" bytes, not "), PB_INTEGER((int64_t)bytes));
    if (values == NULL && bytes > 0)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the memory for "), PB_TEXT(tensor->name),
                         PB_TEXT(" is NULL"));
    return PB_OK;
}

pb_status pb_model_get(pb_model *model, int32_t number, void *values, size_t bytes)
{
    pb_status status = pb_enter(model, 1);
    if (status != PB_OK)
        return status;
    status = check_tensor(model, number, values, bytes);
    if (status == PB_OK && bytes > 0)
        memcpy(values, pb_values(model, pb_kept(model->program, number)), bytes);
    return pb_leave(model, status);
}

pb_status pb_model_set(pb_model *model, int32_t number, const void *values, size_t bytes)
{
    pb_status status = pb_enter(model, 1);
    if (status != PB_OK)
        return status;
    status = check_tensor(model, number, values, bytes);
    if (status == PB_OK && pb_kept(model->program, number)->constant != NULL)
        status = pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT(pb_kept(model->program, number)->name),
                           PB_TEXT(" cannot be set: it is a constant of the library, which was exported with fold_frozen;"
                                   " export it without, or with other values"));
    if (status == PB_OK)
        status = pb_check_values(model, number, values, bytes, PB_ERROR_VALUE);
    if (status == PB_OK && bytes > 0)
        memcpy(values_of(model, number), values, bytes);
    return pb_leave(model, status);
}

/* ---- all parameters ------------------------------------------------------------------------------------------ */

int64_t pb_model_parameter_count(const pb_model *model)
{
    int64_t count = 0;
    for (int32_t i = 0; model != NULL && i < model->program->kept_count; i++)
        if (is_parameter(pb_kept(model->program, i)))
            count += pb_elements(pb_kept(model->program, i));
    return count;
}

static pb_status enter_parameters(pb_model *model, const float *values, int64_t count)
{
    pb_status status = pb_enter(model, 1);
    int64_t expected = pb_model_parameter_count(model);
    if (status == PB_OK && count != expected)
        return pb_leave(model, pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the parameters have "),
                                         PB_INTEGER(expected), PB_TEXT(" elements, not "), PB_INTEGER(count)));
    if (status == PB_OK && values == NULL && count > 0)
        return pb_leave(model, pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the memory for the parameters is NULL")));
    return status;
}

pb_status pb_model_get_parameters(pb_model *model, float *values, int64_t count)
{
    pb_status status = enter_parameters(model, values, count);
    if (status != PB_OK)
        return status;
    for (int32_t i = 0; i < model->program->kept_count; i++) {
        const pb_tensor *tensor = pb_kept(model->program, i);
        if (!is_parameter(tensor))
            continue;
        if (tensor->dtype == PB_FLOAT32)
            memcpy(values, values_of(model, i), (size_t)tensor->bytes);
        else
            pb_convert(values_of(model, i), tensor->dtype, values, PB_FLOAT32, pb_elements(tensor));
        values += pb_elements(tensor);
    }
    return pb_leave(model, PB_OK);
}

/* A block of new values: `scale` 0 for those given, else the old ones and `scale` times the given. Returns whether one
 * doesn't fit. */
static int new_values(const pb_tensor *tensor, const char *old, const float *given, double scale, int64_t count,
                      void *to)
{
    double values[SOME];
    int overflows = 0;
    if (scale == 0)
        return pb_convert(given, PB_FLOAT32, to, tensor->dtype, count);
    pb_convert(old, tensor->dtype, values, PB_FLOAT64, count);
    for (int64_t i = 0; i < count; i++) {
        double change = scale * (double)given[i]; /* a statement of its own: never a fused multiply-add */
        int was_finite = pb_is_finite(values[i]) && pb_is_finite((double)given[i]);
        values[i] += change;
        overflows |= was_finite && !pb_is_finite(values[i]);
    }
    return pb_convert(values, PB_FLOAT64, to, tensor->dtype, count) || overflows;
}

/* Goes through all parameters twice: whether all new values fit, and then to set them. */
static pb_status change_parameters(pb_model *model, const float *given, double scale)
{
    double block[SOME]; /* as large as elements of any dtype */
    for (int pass = 0; pass < 2; pass++) {
        const float *next = given;
        for (int32_t i = 0; i < model->program->kept_count; i++) {
            const pb_tensor *tensor = pb_kept(model->program, i);
            int64_t bytes = pb_dtype_bytes(tensor->dtype), elements = pb_elements(tensor);
            for (int64_t done = 0; is_parameter(tensor) && done < elements; done += SOME) {
                int64_t some = elements - done < SOME ? elements - done : SOME;
                char *old = (char *)values_of(model, i) + done * bytes;
                if (new_values(tensor, old, next, scale, some, block))
                    return pb_refuse(model, PB_ERROR_VALUE, PB_TEXT("a new value of parameter "), PB_TEXT(tensor->name),
                                     PB_TEXT(", among elements "), PB_INTEGER(done), PB_TEXT(" to "),
                                     PB_INTEGER(done + some - 1), PB_TEXT(", is none that "),
                                     PB_TEXT(pb_dtype_name(tensor->dtype)), PB_TEXT(" holds"));
                if (pass == 1)
                    memcpy(old, block, (size_t)(some * bytes));
                next += some;
            }
        }
    }
    return PB_OK;
}

pb_status pb_model_set_parameters(pb_model *model, const float *values, int64_t count)
{
    pb_status status = enter_parameters(model, values, count);
    return status != PB_OK ? status : pb_leave(model, change_parameters(model, values, 0));
}

pb_status pb_model_add_parameters(pb_model *model, const float *delta, int64_t count, double scale)
{
    pb_status status = enter_parameters(model, delta, count);
    if (status != PB_OK)
        return status;
    if (!pb_is_finite(scale))
        status = pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the scale must be a finite number, got "),
                           PB_REAL(scale));
    else if (scale != 0)
        status = change_parameters(model, delta, scale);
    return pb_leave(model, status);
}

/* ---- run-time values ----------------------------------------------------------------------------------------- */

static const pb_hyperparameter *find_hyperparameter(pb_model *model, const char *name)
{
    const pb_program *program = model->program;
    for (int32_t i = 0; name != NULL && i < program->hyperparameter_count; i++)
        if (strcmp(program->hyperparameters[i].name, name) == 0)
            return &program->hyperparameters[i];
    pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the optimizer has no run-time value "),
              PB_QUOTED(name == NULL ? "NULL" : name, strlen(name == NULL ? "NULL" : name)), PB_TEXT("; it has: "),
              PB_TEXT(program->hyperparameter_count > 0 ? program->hyperparameters[0].name : "none"),
              PB_TEXT(program->hyperparameter_count > 1 ? " and others" : ""));
    return NULL;
}

pb_status pb_model_get_hyperparameter(pb_model *model, const char *name, double *value)
{
    const pb_hyperparameter *entry;
    pb_status status = pb_enter(model, 1);
    if (status != PB_OK)
        return status;
    if ((entry = find_hyperparameter(model, name)) == NULL)
        return pb_leave(model, PB_ERROR_ARGUMENT);
    if (value == NULL)
        return pb_leave(model, pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the memory for "), PB_TEXT(entry->name),
                                         PB_TEXT(" is NULL")));
    *value = pb_real_at(values_of(model, entry->kept[0]), pb_kept(model->program, entry->kept[0])->dtype);
    return pb_leave(model, PB_OK);
}

static pb_status set_hyperparameter(pb_model *model, const pb_hyperparameter *entry, double value)
{
    double rounded;
    if (!is_within(entry, value))
        return refuse_hyperparameter(model, PB_ERROR_ARGUMENT, entry, value);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < entry->count; i++) {
            int32_t dtype = pb_kept(model->program, entry->kept[i])->dtype;
            if (pb_convert(&value, PB_FLOAT64, &rounded, dtype, 1) || !is_within(entry, pb_real_at(&rounded, dtype)))
                return refuse_hyperparameter(model, PB_ERROR_ARGUMENT, entry, value);
            if (pass == 1)
                memcpy(values_of(model, entry->kept[i]), &rounded, (size_t)pb_dtype_bytes(dtype));
        }
    return PB_OK;
}

pb_status pb_model_set_hyperparameter(pb_model *model, const char *name, double value)
{
    const pb_hyperparameter *entry;
    pb_status status = pb_enter(model, 1);
    if (status != PB_OK)
        return status;
    entry = find_hyperparameter(model, name);
    return pb_leave(model, entry == NULL ? PB_ERROR_ARGUMENT : set_hyperparameter(model, entry, value));
}

/* ---- random numbers ------------------------------------------------------------------------------------------ */

pb_status pb_model_seed(pb_model *model, uint64_t seed)
{
    pb_status status = pb_enter(model, 1);
    const uint64_t state[2] = {seed, 0};
    if (status != PB_OK)
        return status;
    pb_random_seed(&model->random, seed);
    for (int32_t i = 0; i < model->program->kept_count; i++)
        if (pb_kept(model->program, i)->kind == PB_RANDOM_STATE)
            memcpy(values_of(model, i), state, sizeof state);
    return pb_leave(model, PB_OK);
}
