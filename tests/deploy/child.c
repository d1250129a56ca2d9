/* A process that saves a checkpoint while something goes wrong, or that counts allocations. */
#define _GNU_SOURCE
#include "fake_model.c"

#include <dlfcn.h>

static char memory[1 << 16] __attribute__((aligned(64)));

typedef void begin_function(int, int, int);
typedef int end_function(void);
typedef long allocations_function(void);
typedef const char *names_function(void);

static int stop(void *context, int64_t number, int64_t epoch, int epoch_ended, double loss)
{
    (void)context, (void)number, (void)epoch, (void)epoch_ended, (void)loss;
    return 0;
}

static int nowhere(void *context, const void *bytes, size_t count)
{
    (void)context, (void)bytes, (void)count;
    return 0;
}

/* All that an instance does; returns how many of the calls failed. */
static int do_everything(pb_model *model, const char *path)
{
    static float x[11 * FEATURES], y[11 * CLASSES], parameters[FEATURES * CLASSES + CLASSES];
    static int64_t labels[11], written;
    static double scale = 1, loss, accuracy;
    static int32_t order[11];
    const void *inputs[] = {x, &scale}, *targets[] = {labels}, *wrong[] = {NULL, &scale};
    const pb_data_column columns[] = {{x, PB_FLOAT32}, {&scale, PB_FLOAT64}, {labels, PB_INT64}};
    void *found[] = {y};
    pb_run run = {.columns = columns, .rows = 11, .epochs = 3, .order = order, .progress = stop};
    int failed = 0;
    failed += pb_model_step(model, inputs, targets, &loss) != PB_OK;
    failed += pb_model_step(model, wrong, targets, &loss) != PB_ERROR_ARGUMENT;
    failed += pb_model_run(model, &run) != PB_OK;
    failed += pb_model_predict(model, inputs, 11, found) != PB_OK;
    failed += pb_model_evaluate(model, columns, 11, &loss, &accuracy) != PB_OK;
    failed += pb_model_get_parameters(model, parameters, 8) != PB_OK;
    failed += pb_model_set_parameters(model, parameters, 8) != PB_OK;
    failed += pb_model_add_parameters(model, parameters, 8, 0.5) != PB_OK;
    failed += pb_model_set_hyperparameter(model, "lr", 0.25) != PB_OK;
    failed += pb_model_set_hyperparameter(model, "lr", -1) != PB_ERROR_ARGUMENT;
    failed += pb_model_seed(model, 5) != PB_OK;
    failed += pb_model_write(model, nowhere, NULL, &written) != PB_OK;
    failed += pb_model_save(model, path) != PB_OK;
    failed += pb_model_load(model, path) != PB_OK;
    failed += pb_model_load(model, "/nonexistent") != PB_ERROR_FILE;
    failed += pb_model_reset(model) != PB_OK;
    return failed;
}

/* child PATH STEPS CALL MANNER ERRNO: saves after so many steps, or loads if there are -1, with a fault at a call; prints
 * the status, how many calls there were and which, and what went wrong.
 * child PATH: prints how many calls failed and how many allocations there were. */
int main(int count, char **arguments)
{
    begin_function *begin = (begin_function *)(uintptr_t)dlsym(RTLD_DEFAULT, "faults_begin");
    end_function *end = (end_function *)(uintptr_t)dlsym(RTLD_DEFAULT, "faults_end");
    allocations_function *allocations = (allocations_function *)(uintptr_t)dlsym(RTLD_DEFAULT, "faults_allocations");
    names_function *names = (names_function *)(uintptr_t)dlsym(RTLD_DEFAULT, "faults_names");
    static float x[BATCH * FEATURES];
    static int64_t labels[BATCH];
    static double scale = 1;
    const void *inputs[] = {x, &scale}, *targets[] = {labels};
    pb_model *model;
    pb_status status;
    if (pb_model_init(&standard, memory, sizeof memory, 2, &model) != PB_OK)
        return 3;
    if (count == 2) {
        int failed;
        begin(-1, 0, 0);
        failed = do_everything(model, arguments[1]);
        end();
        printf("%d %ld\n", failed, allocations());
        return 0;
    }
    for (int i = 0; i < atoi(arguments[2]); i++)
        pb_model_step(model, inputs, targets, NULL);
    begin(atoi(arguments[3]), atoi(arguments[4]), atoi(arguments[5]));
    status = atoi(arguments[2]) < 0 ? pb_model_load(model, arguments[1]) : pb_model_save(model, arguments[1]);
    count = end();
    printf("%d %d %s\n%s\n", (int)status, count, names(), pb_model_error(model));
    pb_model_close(model);
    return 0;
}
