/* Run: steps on batches of a data set, in the order of its rows or a random one, over epochs or a number of steps. */
#include "instance.h"

/* What is known of a run while it goes on. */
struct progress {
    pb_run *run;
    int64_t batches; /* of an epoch */
    pb_mean mean;    /* of the epoch so far */
    int is_ended;    /* by the caller */
};

static pb_status check_run(pb_model *model, const pb_run *run)
{
    const pb_program *program = model->program;
    if (program->step.entry == NULL)
        return pb_refuse(model, PB_ERROR_STATE, PB_TEXT("the library "), PB_TEXT(program->name),
                         PB_TEXT(" was made without code that trains"));
    if (run->rows < program->step.rows)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("a step takes "), PB_INTEGER(program->step.rows),
                         PB_TEXT(" rows: the data set must have so many at least, not "), PB_INTEGER(run->rows));
    if (run->epochs < 0 || run->steps < 0 || (run->epochs > 0) == (run->steps > 0))
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("one of epochs and steps must be a positive number, the"
                         " other 0, got "), PB_INTEGER(run->epochs), PB_TEXT(" and "), PB_INTEGER(run->steps));
    if (!run->in_order && run->order == NULL)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("there is no memory for the order of rows: give order, for"
                         " as many numbers as there are rows, or set in_order"));
    if (!run->in_order && run->rows > INT32_MAX)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("a random order takes up to "), PB_INTEGER(INT32_MAX),
                         PB_TEXT(" rows, got "), PB_INTEGER(run->rows));
    return pb_take_columns(model, run->columns, 1, run->rows);
}

static int has_more(const struct progress *progress, int64_t epoch)
{
    const pb_run *run = progress->run;
    return !progress->is_ended && (run->epochs > 0 ? epoch < run->epochs : run->steps_done < run->steps);
}

static void report(pb_model *model, struct progress *progress, int epoch_ended, double loss)
{
    const pb_run *run = progress->run;
    if (run->progress == NULL)
        return;
    if (run->progress(run->context, pb_model_steps(model), model->epochs, epoch_ended, loss) != 0)
        progress->is_ended = 1;
}

static pb_status run_batch(pb_model *model, struct progress *progress, int64_t batch)
{
    const pb_function *step = &model->program->step;
    pb_run *run = progress->run;
    pb_status status = pb_take_batch(model, 1, batch * step->rows, step->rows, run->in_order ? NULL : run->order);
    if (status == PB_OK)
        status = pb_call_function(model, step, pb_model_steps(model) + 1);
    if (status != PB_OK)
        return status;
    run->steps_done++;
    pb_mean_add(&progress->mean, model, step);
    report(model, progress, 0, pb_loss_of(model, step));
    return PB_OK;
}

/* Steps until the epoch is complete, the steps are made, or the caller ends it. */
static pb_status run_epoch(pb_model *model, struct progress *progress)
{
    pb_random before = model->random;
    pb_run *run = progress->run;
    pb_status status = PB_OK;
    int64_t batch = 0;
    progress->mean = (pb_mean){0, 0, 0};
    if (!run->in_order)
        pb_random_permutation(&model->random, run->order, (int32_t)run->rows);
    while (batch < progress->batches && status == PB_OK && has_more(progress, 0)) {
        status = run_batch(model, progress, batch);
        batch += status == PB_OK;
    }
    if (batch == 0)
        model->random = before; /* what fails changes nothing */
    run->loss = pb_mean_of(&progress->mean, model->program);
    if (batch == progress->batches) {
        model->epochs++;
        if (!progress->is_ended)
            report(model, progress, 1, run->loss);
    }
    return status;
}

static pb_status run_all(pb_model *model, pb_run *run)
{
    struct progress progress = {.run = run};
    pb_status status;
    run->loss = pb_not_a_number();
    run->steps_done = 0;
    status = check_run(model, run);
    if (status != PB_OK)
        return status;
    progress.batches = run->rows / model->program->step.rows;
    for (int64_t epoch = 0; status == PB_OK && has_more(&progress, epoch); epoch++)
        status = run_epoch(model, &progress);
    return status;
}

pb_status pb_model_run(pb_model *model, pb_run *run)
{
    pb_status status = pb_enter(model, 1);
    if (status == PB_OK && run == NULL)
        status = pb_leave(model, pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the run is NULL")));
    return status != PB_OK ? status : pb_leave(model, run_all(model, run));
}
