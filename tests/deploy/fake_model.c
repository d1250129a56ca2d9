/* A trainer written by hand, as the exporter writes them: the tests of the exported runtime train it.
 *
 * y = scale (x W + b) for two classes, the squared distance to the one-hot label as the loss, and gradient descent with
 * momentum. Labels of -1 do not count; of others, those that are no class fail the step's check. It has one of
 * everything: several dtypes, an input without rows, a state without elements, bools, a random state.
 */
#define PB_API
#include "../../pullback/deploy/native/one.c"

enum { BATCH = 4, FEATURES = 3, CLASSES = 2 };

/* Results: where they lie. */
enum { OUTPUT_AT = 0, LOSS_AT = 64, DIVISOR_AT = 128, RESULT_BYTES = 192 };

/* ---- tensors ------------------------------------------------------------------------------------------------- */

static const int64_t shape_x[] = {BATCH, FEATURES}, shape_batch[] = {BATCH}, shape_y[] = {BATCH, CLASSES},
                     shape_weight[] = {FEATURES, CLASSES}, shape_bias[] = {CLASSES}, shape_flags[] = {3},
                     shape_empty[] = {0, 3}, shape_none[] = {1};

/* What is kept, in the memory that the program describes. */
struct kept {
    _Alignas(64) float weight[FEATURES * CLASSES];
    _Alignas(64) double bias[CLASSES];
    _Alignas(64) int64_t seen[CLASSES];
    _Alignas(64) uint8_t flags[3];
    _Alignas(64) uint64_t random[2];
    _Alignas(64) int64_t steps;
    _Alignas(64) float weight_v[FEATURES * CLASSES];
    _Alignas(64) double bias_v[CLASSES];
    _Alignas(64) double lr;
};

static const struct kept initial = {
    .weight = {0.5f, -0.25f, 0.125f, 1.0f, -1.5f, 0.75f}, .bias = {0.1, -0.2}, .seen = {3, 4}, .flags = {1, 0, 1},
    .random = {7, 11}, .steps = 5, .weight_v = {0.01f, 0, 0, 0, 0, -0.01f}, .bias_v = {0, 0.001}, .lr = 0.05,
};

enum { WEIGHT, BIAS, SEEN, FLAGS, EMPTY, RANDOM, STEPS, WEIGHT_V, BIAS_V, LR, KEPT };

#define KEPT_AT(member) offsetof(struct kept, member)

static const pb_tensor tensors[] = {
    {"x", NULL, NULL, shape_x, 48, 0, FEATURES, PB_INPUT, PB_FLOAT32, 2, 0, NULL},
    {"scale", NULL, NULL, shape_none, 8, 0, 0, PB_INPUT, PB_FLOAT64, 0, 0, NULL},
    {"labels", NULL, NULL, shape_batch, 32, 0, 1, PB_TARGET, PB_INT64, 1, 1, NULL},
    {"y", NULL, NULL, shape_y, 32, 0, CLASSES, PB_OUTPUT, PB_FLOAT32, 2, 0, NULL},
    {"linear.weight", "param.linear.weight", "'param.linear.weight':float32(3, 2);", shape_weight, 24, KEPT_AT(weight),
     0, PB_PARAMETER, PB_FLOAT32, 2, 0, NULL},
    {"linear.bias", "param.linear.bias", "'param.linear.bias':float64(2,);", shape_bias, 16, KEPT_AT(bias), 0,
     PB_PARAMETER, PB_FLOAT64, 1, 0, NULL},
    {"seen", "state.seen", "'state.seen':int64(2,);", shape_bias, 16, KEPT_AT(seen), 0, PB_STATE, PB_INT64, 1, 0, NULL},
    {"flags", "state.flags", "'state.flags':bool(3,);", shape_flags, 3, KEPT_AT(flags), 0, PB_STATE, PB_BOOL, 1, 0,
     NULL},
    {"empty", "state.empty", "'state.empty':float32(0, 3);", shape_empty, 0, KEPT_AT(random), 0, PB_STATE, PB_FLOAT32,
     2, 0, NULL},
    {"random", "random.random", "'random.random':uint64(2,);", shape_bias, 16, KEPT_AT(random), 0, PB_RANDOM_STATE,
     PB_UINT64, 1, 0, NULL},
    {"num_steps", "optimizer.0", "'optimizer.0':int64(1,);", shape_none, 8, KEPT_AT(steps), 0, PB_OPTIMIZER_STATE,
     PB_INT64, 0, 0, NULL},
    {"linear.weight.v", "optimizer.1", "'optimizer.1':float32(3, 2);", shape_weight, 24, KEPT_AT(weight_v), 0,
     PB_OPTIMIZER_STATE, PB_FLOAT32, 2, 0, NULL},
    {"linear.bias.v", "optimizer.2", "'optimizer.2':float64(2,);", shape_bias, 16, KEPT_AT(bias_v), 0,
     PB_OPTIMIZER_STATE, PB_FLOAT64, 1, 0, NULL},
    {"lr", "optimizer.3", "'optimizer.3':float64(1,);", shape_none, 8, KEPT_AT(lr), 0, PB_OPTIMIZER_STATE, PB_FLOAT64,
     0, 0, NULL},
};

static const int32_t sorted[KEPT] = {STEPS, WEIGHT_V, BIAS_V, LR, BIAS, WEIGHT, RANDOM, EMPTY, FLAGS, SEEN};

/* ---- functions: what a compiler makes of a model -------------------------------------------------------------- */

static const _Alignas(64) double momentum = 0.9;
static const void *const constants[] = {&momentum};

struct linear {
    const float *x, *weight;
    const double *scale, *bias;
    float *y;
};

static void linear_rows(void *closure, int64_t begin, int64_t end)
{
    const struct linear *layer = closure;
    for (int64_t row = begin; row < end; row++)
        for (int c = 0; c < CLASSES; c++) {
            double sum = layer->bias[c];
            for (int f = 0; f < FEATURES; f++)
                sum += (double)layer->x[row * FEATURES + f] * (double)layer->weight[f * CLASSES + c];
            layer->y[row * CLASSES + c] = (float)(*layer->scale * sum);
        }
}

/* buffers: x, scale, labels, weight, bias, y, loss, divisor */
static int32_t evaluate_rows(const pb_runtime *runtime, void *const *buffers, int64_t rows)
{
    struct linear layer = {.x = buffers[0], .scale = buffers[1], .weight = buffers[3], .bias = buffers[4],
                           .y = buffers[5]};
    const int64_t *labels = buffers[2];
    float *loss = buffers[6], *divisor = buffers[7];
    double sum = 0, count = 0;
    for (int64_t row = 0; row < rows; row++)
        if (labels[row] != -1 && (labels[row] < 0 || labels[row] >= CLASSES))
            return 2;
    runtime->parallel_for(runtime, linear_rows, &layer, rows);
    for (int64_t row = 0; row < rows; row++)
        for (int c = 0; c < CLASSES && labels[row] != -1; c++) {
            double error = (double)layer.y[row * CLASSES + c] - (labels[row] == c);
            sum += error * error;
            count += c == 0;
        }
    *loss = (float)(sum / count);
    *divisor = (float)count;
    return 0;
}

/* buffers: those above, then seen, flags, random, steps, weight_v, bias_v, lr, momentum */
static int32_t step_batch(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    const float *x = buffers[0], *y = buffers[5];
    const double *scale = buffers[1], *lr = buffers[14], *kept_back = buffers[15];
    const int64_t *labels = buffers[2];
    float *weight = buffers[3], *weight_v = buffers[12], *weight_gradient = arena;
    double *bias = buffers[4], *bias_v = buffers[13], bias_gradient[CLASSES] = {0};
    int32_t failure = evaluate_rows(runtime, buffers, BATCH);
    (void)trace;
    if (failure != 0)
        return failure;
    memset(weight_gradient, 0, sizeof(float) * FEATURES * CLASSES);
    for (int row = 0; row < BATCH; row++)
        for (int c = 0; c < CLASSES && labels[row] != -1; c++) {
            double error = 2 * ((double)y[row * CLASSES + c] - (labels[row] == c)) * *scale / *(float *)buffers[7];
            for (int f = 0; f < FEATURES; f++)
                weight_gradient[f * CLASSES + c] += (float)(error * (double)x[row * FEATURES + f]);
            bias_gradient[c] += error;
            ((uint64_t *)buffers[8])[c] += labels[row] == c; /* it may hold any number */
        }
    for (int i = 0; i < FEATURES * CLASSES; i++) {
        weight_v[i] = (float)(*kept_back * (double)weight_v[i] + (double)weight_gradient[i]);
        weight[i] -= (float)(*lr * (double)weight_v[i]);
    }
    for (int c = 0; c < CLASSES; c++) {
        bias_v[c] = *kept_back * bias_v[c] + bias_gradient[c];
        bias[c] -= *lr * bias_v[c];
    }
    ((uint8_t *)buffers[9])[1] ^= 1;
    ((uint64_t *)buffers[10])[1]++;
    ++*(int64_t *)buffers[11];
    return 0;
}

static int32_t evaluate_batch(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    (void)arena, (void)trace;
    return evaluate_rows(runtime, buffers, BATCH);
}

static int32_t evaluate_row(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    (void)arena, (void)trace;
    return evaluate_rows(runtime, buffers, 1);
}

/* buffers: x, scale, weight, bias, y */
static int32_t predict_rows(const pb_runtime *runtime, void *const *buffers, int64_t rows)
{
    struct linear layer = {.x = buffers[0], .scale = buffers[1], .weight = buffers[2], .bias = buffers[3],
                           .y = buffers[4]};
    runtime->parallel_for(runtime, linear_rows, &layer, rows);
    return 0;
}

static int32_t predict_batch(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    (void)arena, (void)trace;
    return predict_rows(runtime, buffers, BATCH);
}

static int32_t predict_row(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    (void)arena, (void)trace;
    return predict_rows(runtime, buffers, 1);
}

static const pb_buffer step_buffers[] = {
    {PB_AT_INPUT, 0}, {PB_AT_INPUT, 1}, {PB_AT_TARGET, 0}, {PB_AT_KEPT, WEIGHT}, {PB_AT_KEPT, BIAS},
    {PB_AT_RESULT, OUTPUT_AT}, {PB_AT_RESULT, LOSS_AT}, {PB_AT_RESULT, DIVISOR_AT}, {PB_AT_KEPT, SEEN},
    {PB_AT_KEPT, FLAGS}, {PB_AT_KEPT, RANDOM}, {PB_AT_KEPT, STEPS}, {PB_AT_KEPT, WEIGHT_V}, {PB_AT_KEPT, BIAS_V},
    {PB_AT_KEPT, LR}, {PB_AT_CONSTANT, 0},
};
static const pb_buffer predict_buffers[] = {
    {PB_AT_INPUT, 0}, {PB_AT_INPUT, 1}, {PB_AT_KEPT, WEIGHT}, {PB_AT_KEPT, BIAS}, {PB_AT_RESULT, OUTPUT_AT},
};
static const char *const messages[] = {"x holds a NaN", "a label is no class: they are from 0 to 1, or -1"};
static const int64_t outputs[] = {OUTPUT_AT};

#define FUNCTION(entry, buffers, count, rows) \
    {entry, buffers, count, constants, messages, 2, rows, LOSS_AT, DIVISOR_AT, PB_FLOAT32, PB_FLOAT32, outputs}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static const int32_t lr_is_kept_at[] = {LR};
static const pb_hyperparameter hyperparameters[] = {{"lr", lr_is_kept_at, 1, 0.0, 10.0}};

#define TRAINING "{\"loss\": \"SquaredDistance\", \"network\": \"0123\"}"

static const pb_entry_text metadata[] = {
    {"format", "pullback-checkpoint", 1, 0},
    {"hyperparameters", "{\"lr\": 0.05, \"momentum\": 0.9, \"name\": \"it's \\\"M\\\"\"}", 0, 1},
    {"loss", "Gr\xc3\xb6\xc3\x9f" "e\\'s", 1, 1},
    {"optimizer", "MomentumSGD", 1, 0},
    {"optimizer_states", "[\"num_steps\", \"v of linear.weight\", \"v of linear.bias\", \"lr\"]", 1, 1},
    {"parameters", "[\"linear.weight\", \"linear.bias\"]", 1, 0},
    {"states", "[\"seen\", \"flags\", \"empty\"]", 1, 0},
    {"training", TRAINING, 1, 1},
    {"version", "2", 1, 0},
};
static pb_entry_text other_metadata[sizeof metadata / sizeof *metadata];

static const pb_program standard = {
    .name = "fake", .target = "host", .tensors = tensors, .input_count = 2, .target_count = 1, .output_count = 1,
    .kept_count = KEPT, .kept_bytes = sizeof(struct kept), .result_bytes = RESULT_BYTES, .batch_bytes = 192,
    .arena_bytes = 64, .initial = &initial, .initial_bytes = KEPT_AT(lr) + 8, .batch = BATCH, .classes = 1,
    .has_ignored = 1, .ignored = -1, .steps = STEPS,
    .step = FUNCTION(step_batch, step_buffers, 16, BATCH),
    .predict = FUNCTION(predict_batch, predict_buffers, 5, BATCH),
    .predict_one = FUNCTION(predict_row, predict_buffers, 5, 1),
    .evaluate = FUNCTION(evaluate_batch, step_buffers, 8, BATCH),
    .evaluate_one = FUNCTION(evaluate_row, step_buffers, 8, 1),
    .hyperparameters = hyperparameters, .hyperparameter_count = 1,
    .metadata = metadata, .metadata_count = sizeof metadata / sizeof *metadata, .sorted = sorted,
    .header_bytes = 4096, .random_state = {0x2b8f4147f50a92d4, 0xaf441c641d9641aa},
    .random_increment = {0xc4751896ce8acebf, 0x66887f5ac070d959}, .random_has_word = 1, .random_word = 3751883479u,
    .epochs = 2,
};
static pb_program changed;

/* ---- another, which finds its scores among the inputs, to be compared with labels of any shape and dtype ------------ */

static const int64_t shape_scores[] = {2, 3, 5}, shape_places[] = {2, 5};
static pb_tensor scored_tensors[] = {
    {"scores", NULL, NULL, shape_scores, 0, 0, 15, PB_INPUT, 0, 3, 0, NULL},
    {"wanted", NULL, NULL, shape_scores, 0, 0, 15, PB_TARGET, 0, 3, 0, NULL},
    {"found", NULL, NULL, shape_scores, 0, 0, 15, PB_OUTPUT, 0, 3, 0, NULL},
    {"num_steps", "optimizer.0", "'optimizer.0':int64(1,);", shape_none, 8, 0, 0, PB_OPTIMIZER_STATE, PB_INT64, 0, 0,
     NULL},
};

static int32_t copy_scores(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    (void)runtime, (void)arena, (void)trace;
    memcpy(buffers[1], buffers[0], (size_t)scored_tensors[0].bytes);
    *(float *)buffers[2] = 0.25f;
    return 0;
}

static const int32_t only_tensor[] = {0};
static const pb_buffer scored_buffers[] = {{PB_AT_INPUT, 0}, {PB_AT_RESULT, 0}, {PB_AT_RESULT, 256}};

/* `dtype` is that of the scores, `label_dtype` of the labels; -1: numbers for each class, of the scores' dtype. */
const pb_program *fake_scores(int dtype, int label_dtype);
const pb_program *fake_scores(int dtype, int label_dtype)
{
    static const int64_t no_steps = 0;
    pb_tensor *target = &scored_tensors[1];
    scored_tensors[0].dtype = scored_tensors[2].dtype = (uint8_t)dtype;
    scored_tensors[0].bytes = scored_tensors[2].bytes = 30 * pb_dtype_bytes(dtype);
    *target = (pb_tensor){"wanted", NULL, NULL, label_dtype < 0 ? shape_scores : shape_places, 0, 0,
                          label_dtype < 0 ? 15 : 5, PB_TARGET, (uint8_t)(label_dtype < 0 ? dtype : label_dtype),
                          label_dtype < 0 ? 3 : 2, label_dtype >= 0, NULL};
    target->bytes = 2 * target->row_elements * pb_dtype_bytes(target->dtype);
    changed = standard;
    changed.tensors = scored_tensors;
    changed.input_count = changed.kept_count = 1;
    changed.kept_bytes = 64;
    changed.initial = &no_steps;
    changed.initial_bytes = sizeof no_steps;
    changed.result_bytes = 320;
    changed.batch = 2;
    changed.steps = 0;
    changed.sorted = only_tensor;
    changed.hyperparameter_count = 0;
    changed.evaluate = (pb_function){copy_scores, scored_buffers, 3, NULL, NULL, 0, 2, 256, -1, PB_FLOAT32, 0, outputs};
    changed.step.entry = changed.predict.entry = changed.predict_one.entry = changed.evaluate_one.entry = NULL;
    return &changed;
}

/* ---- the program as it is, and changed ------------------------------------------------------------------------------ */

static pb_tensor other_tensors[sizeof tensors / sizeof *tensors];

const pb_program *fake_program(void);
const pb_program *fake_program(void)
{
    return &standard;
}

/* Another program, the same but for what is named; it is valid until the next call. */
const pb_program *fake_program_with(const char *change);
const pb_program *fake_program_with(const char *change)
{
    static char long_name[1000];
    static const int64_t shape_large[] = {700, 3}, shape_of_parts[] = {200000, 3};
    pb_tensor *last_kept = &other_tensors[4 + LR];
    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(other_tensors, tensors, sizeof tensors);
    memcpy(other_metadata, metadata, sizeof metadata);
    changed = standard;
    changed.tensors = other_tensors;
    changed.metadata = other_metadata;
    if (strcmp(change, "no single rows") == 0)
        changed.predict_one.entry = changed.evaluate_one.entry = NULL;
    else if (strcmp(change, "single rows") == 0)
        changed.predict.entry = changed.evaluate.entry = NULL;
    else if (strcmp(change, "no functions") == 0)
        changed.step.entry = changed.predict.entry = changed.predict_one.entry = changed.evaluate.entry =
            changed.evaluate_one.entry = NULL;
    else if (strcmp(change, "constants") == 0) {
        static const int32_t constant[] = {WEIGHT, FLAGS};
        for (size_t i = 0; i < sizeof constant / sizeof *constant; i++) {
            pb_tensor *tensor = &other_tensors[4 + constant[i]];
            tensor->constant = (const char *)&initial + tensor->offset;
            tensor->offset = PTRDIFF_MAX; /* it has no place in an instance */
        }
        changed.step.entry = changed.predict.entry = changed.predict_one.entry = changed.evaluate.entry =
            changed.evaluate_one.entry = NULL; /* which would take them from there */
    } else if (strcmp(change, "no values") == 0)
        changed.initial = NULL;
    else if (strcmp(change, "adds up") == 0) {
        changed.adds_up = 1;
        changed.step.divisor = changed.evaluate.divisor = changed.evaluate_one.divisor = -1;
    } else if (strcmp(change, "no classes") == 0)
        changed.classes = -1;
    else if (strcmp(change, "another loss") == 0)
        other_metadata[2].text = "Other";
    else if (strcmp(change, "a loss of two lines") == 0)
        other_metadata[2].text = "one\ntwo\x01\t\"\x7f";
    else if (strcmp(change, "an unknown character") == 0)
        other_metadata[2].text = "\xcd\xb8";
    else if (strcmp(change, "an output without rows") == 0) {
        other_tensors[3].row_elements = 0;
        changed.classes = -1; /* a label for each row needs scores for each */
    } else if (strcmp(change, "a state of several parts") == 0) {
        other_tensors[4 + EMPTY].shape = shape_of_parts;
        other_tensors[4 + EMPTY].bytes = 2400000;
        other_tensors[4 + EMPTY].offset = sizeof(struct kept);
        other_tensors[4 + EMPTY].announced = "'state.empty':float32(200000, 3);";
        changed.kept_bytes += 2400000;
    } else if (strcmp(change, "a large state") == 0 || strcmp(change, "a large constant") == 0) {
        static const float large_constant[2100] = {1, 2, 3};
        other_tensors[4 + EMPTY].shape = shape_large;
        other_tensors[4 + EMPTY].bytes = 8400;
        other_tensors[4 + EMPTY].offset = sizeof(struct kept);
        other_tensors[4 + EMPTY].announced = "'state.empty':float32(700, 3);";
        changed.kept_bytes += 8448;
        if (strcmp(change, "a large constant") == 0)
            other_tensors[4 + EMPTY].constant = large_constant;
    } else if (strcmp(change, "a long name") == 0)
        other_tensors[0].name = long_name;
    else if (strcmp(change, "a loss scale") == 0) {
        changed.hyperparameter_count = 0;
        last_kept->name = "loss_scale";
    } else if (strcmp(change, "a rate of single precision") == 0) {
        last_kept->dtype = PB_FLOAT32;
        last_kept->bytes = 4;
    } else if (strcmp(change, "a small header") == 0)
        changed.header_bytes = 800;
    else if (strcmp(change, "huge") == 0)
        changed.arena_bytes = INT64_MAX - 64;
    else
        return NULL;
    return &changed;
}
