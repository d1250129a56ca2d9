/* Threads that call into exported trainers, for the thread sanitizer: two instances at once, each with a pool of three
 * threads, compute what one alone does; of two threads in one instance, one is told that it is busy. */
#define PB_PARALLEL_BYTES 1
#include "fake_model.c"

enum { ROWS = 37, ROUNDS = 40, POOL_THREADS = 3, INSTANCE = 1 << 16, FILE_BYTES = 1 << 13 };

struct caller {
    _Alignas(64) char memory[INSTANCE];
    pb_model *model;
    char file[FILE_BYTES];
    size_t written;
    int failures;
};

static float x[ROWS * FEATURES];
static int64_t labels[ROWS];
static const double scale = 0.5;
static const pb_data_column columns[] = {{x, PB_FLOAT32}, {&scale, PB_FLOAT64}, {labels, PB_INT64}};
static struct caller alone, both[2];

static int write_to(void *context, const void *bytes, size_t count)
{
    struct caller *self = context;
    if (count > sizeof self->file - self->written)
        return 1;
    memcpy(self->file + self->written, bytes, count);
    self->written += count;
    return 0;
}

static int read_from(void *context, int64_t offset, void *bytes, size_t count)
{
    memcpy(bytes, ((struct caller *)context)->file + offset, count);
    return 0;
}

static void expect(struct caller *self, int holds, const char *what)
{
    if (!holds)
        fprintf(stderr, "failed: %s: %s\n", what, pb_model_error(self->model));
    self->failures += !holds;
}

#define EXPECT(condition) expect(self, condition, #condition)

static void *train(void *argument)
{
    struct caller *self = argument;
    int32_t order[ROWS];
    float y[ROWS * CLASSES];
    double loss, accuracy;
    const void *const inputs[] = {x, &scale}, *const targets[] = {labels};
    void *const outputs[] = {y};
    EXPECT(pb_model_init(&standard, self->memory, sizeof self->memory, POOL_THREADS, &self->model) == PB_OK);
    for (int i = 0; i < ROUNDS; i++) {
        pb_run run = {.columns = columns, .rows = ROWS, .epochs = 1, .order = order};
        EXPECT(pb_model_run(self->model, &run) == PB_OK && pb_model_step(self->model, inputs, targets, &loss) == PB_OK);
        EXPECT(pb_model_predict(self->model, inputs, ROWS, outputs) == PB_OK);
        EXPECT(pb_model_evaluate(self->model, columns, ROWS, &loss, &accuracy) == PB_OK);
        self->written = 0;
        EXPECT(pb_model_write(self->model, write_to, self, NULL) == PB_OK);
        EXPECT(pb_model_read(self->model, read_from, self, (int64_t)self->written) == PB_OK);
    }
    pb_model_close(self->model);
    return NULL;
}

/* ---- two threads in one instance ---- */

static _Atomic int is_running, was_refused;

static int wait_for_refusal(void *context, int64_t step, int64_t epoch, int epoch_ended, double loss)
{
    (void)context, (void)step, (void)epoch, (void)epoch_ended, (void)loss;
    is_running = 1;
    while (!was_refused)
        sched_yield();
    return 0;
}

static void *call_into(void *argument)
{
    struct caller *self = argument;
    const void *const inputs[] = {x, &scale}, *const targets[] = {labels};
    while (!is_running)
        sched_yield();
    EXPECT(pb_model_step(self->model, inputs, targets, NULL) == PB_ERROR_BUSY);
    EXPECT(pb_model_reset(self->model) == PB_ERROR_BUSY && pb_model_save(self->model, "never") == PB_ERROR_BUSY);
    was_refused = 1;
    return NULL;
}

/* Steps as often as it can, without waiting; returns how often that was. */
static void *step_often(void *argument)
{
    pb_model *model = argument;
    const void *const inputs[] = {x, &scale}, *const targets[] = {labels};
    intptr_t steps = 0;
    for (int i = 0; i < 20 * ROUNDS; i++)
        steps += pb_model_step(model, inputs, targets, NULL) == PB_OK;
    return (void *)steps;
}

static int share_one(struct caller *self)
{
    pthread_t other;
    void *steps_of_other;
    int64_t before;
    intptr_t steps;
    pb_run run = {.columns = columns, .rows = ROWS, .epochs = 1, .in_order = 1, .progress = wait_for_refusal};
    self->failures = 0;
    EXPECT(pb_model_init(&standard, self->memory, sizeof self->memory, POOL_THREADS, &self->model) == PB_OK);
    EXPECT(pthread_create(&other, NULL, call_into, self) == 0);
    EXPECT(pb_model_run(self->model, &run) == PB_OK && run.steps_done == ROWS / BATCH);
    pthread_join(other, NULL);
    before = pb_model_steps(self->model);
    EXPECT(pthread_create(&other, NULL, step_often, self->model) == 0);
    steps = (intptr_t)step_often(self->model);
    pthread_join(other, &steps_of_other);
    steps += (intptr_t)steps_of_other; /* one of them may have had all */
    EXPECT(pb_model_steps(self->model) - before == steps && steps > 0);
    pb_model_close(self->model);
    return self->failures;
}

int main(void)
{
    pthread_t threads[2];
    int failures = 0;
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % 3 - 1;
        for (int f = 0; f < FEATURES; f++)
            x[i * FEATURES + f] = (float)((i * 7 + f * 5) % 11) / 8 - 0.5f;
    }
    train(&alone);
    for (int i = 0; i < 2; i++)
        failures += pthread_create(&threads[i], NULL, train, &both[i]) != 0;
    for (int i = 0; i < 2 && failures == 0; i++) {
        pthread_join(threads[i], NULL);
        failures += both[i].failures + (both[i].written != alone.written);
        failures += memcmp(both[i].file, alone.file, alone.written) != 0;
    }
    failures += alone.failures + share_one(&alone);
    printf("%s\n", failures == 0 ? "all is well" : "something failed");
    return failures != 0;
}
