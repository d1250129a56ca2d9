/* Run: steps on batches of a data set, in the order of its rows or a random one, over epochs or a number of steps. */
#include "instance.h"

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

pb_status pb_run_begin(pb_model *model, pb_running *running, pb_run *run)
{
    pb_status status;
    run->loss = pb_not_a_number();
    run->steps_done = 0;
    status = check_run(model, run);
    if (status == PB_OK)
        *running = (pb_running){.run = run, .batches = run->rows / model->program->step.rows};
    return status;
}

static int has_more(const pb_running *running)
{
    const pb_run *run = running->run;
    return run->epochs > 0 ? running->epoch < run->epochs : run->steps_done < run->steps;
}

static pb_status run_batch(pb_model *model, pb_running *running)
{
    const pb_function *step = &model->program->step;
    pb_run *run = running->run;
    pb_random before = model->random;
    pb_status status;
    if (running->batch == 0) {
        running->mean = (pb_mean){0, 0, 0};
        if (!run->in_order)
            pb_random_permutation(&model->random, run->order, (int32_t)run->rows);
    }
    status = pb_take_batch(model, 1, running->batch * step->rows, step->rows, run->in_order ? NULL : run->order);
    if (status == PB_OK)
        status = pb_call_function(model, step, pb_model_steps(model) + 1);
    if (status != PB_OK) {
        if (running->batch == 0)
            model->random = before; /* what fails changes nothing */
    } else {
        running->batch++;
        running->loss = pb_loss_of(model, step);
        run->steps_done++;
        pb_mean_add(&running->mean, model, step);
    }
    run->loss = pb_mean_of(&running->mean, model->program);
    return status;
}

pb_status pb_run_next(pb_model *model, pb_running *running)
{
    if (pb_run_is_at_end_of_epoch(running)) {
        running->event = PB_EPOCH_ENDED;
        running->loss = running->run->loss;
        running->batch = 0;
        running->epoch++;
        model->epochs++;
        return PB_OK;
    }
    running->event = has_more(running) ? PB_STEPPED : PB_RUN_ENDED;
    return running->event == PB_STEPPED ? run_batch(model, running) : PB_OK;
}

int pb_run_is_at_end_of_epoch(const pb_running *running)
{
    return running->batch == running->batches;
}

static pb_status run_all(pb_model *model, pb_run *run)
{
    pb_running running;
    int is_ended = 0; /* by the caller: an epoch that is complete then counts all the same */
    pb_status status = pb_run_begin(model, &running, run);
    while (status == PB_OK && (!is_ended || pb_run_is_at_end_of_epoch(&running))) {
        status = pb_run_next(model, &running);
        if (status != PB_OK || running.event == PB_RUN_ENDED)
            break;
        if (!is_ended && run->progress != NULL)
            is_ended = run->progress(run->context, pb_model_steps(model), model->epochs,
                                     running.event == PB_EPOCH_ENDED, running.loss) != 0;
    }
    return status;
}

pb_status pb_model_run(pb_model *model, pb_run *run)
{
    pb_status status = pb_enter(model, 1);
    if (status == PB_OK && run == NULL)
        status = pb_leave(model, pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the run is NULL")));
    return status != PB_OK ? status : pb_leave(model, run_all(model, run));
}
