/* Fuzzing of an exported trainer, with clang's libFuzzer: checkpoints that anybody may have written (FUZZ_CHECKPOINTS),
 * or else calls of model.h with whatever arguments. A property that does not hold ends the process by abort().
 *
 * The memory of a call is a block of its own size, between the guards of the sanitizer; the instance lies between
 * guards that are poisoned, and compared with what they were.
 */
#define PB_PARALLEL_BYTES 1
#include "fake_model.c"

#include <math.h>
#include <sanitizer/asan_interface.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GUARD = 1024, LARGEST = 1 << 16 };

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                              \
        }                                                                         \
    } while (0)

/* ---- instances ------------------------------------------------------------------------------------------------- */

struct guarded {
    _Alignas(64) char memory[GUARD + LARGEST + GUARD]; /* the instance between two guards */
    size_t bytes;
    pb_model *model;
};

static void begin(struct guarded *self, const pb_program *program, int threads)
{
    char *memory = self->memory + GUARD;
    self->bytes = pb_model_bytes(program, threads);
    CHECK(self->bytes > 0 && self->bytes <= LARGEST);
    memset(self->memory, 0xa5, GUARD + self->bytes + GUARD); /* what is not written is not zero */
    ASAN_POISON_MEMORY_REGION(self->memory, GUARD);
    ASAN_POISON_MEMORY_REGION(memory + self->bytes, GUARD);
    CHECK(pb_model_init(program, memory, self->bytes, threads, &self->model) == PB_OK);
}

static void end(struct guarded *self)
{
    const char *behind = self->memory + GUARD + self->bytes;
    pb_model_close(self->model);
    ASAN_UNPOISON_MEMORY_REGION(self->memory, sizeof self->memory);
    for (int i = 0; i < GUARD; i++)
        CHECK((uint8_t)self->memory[i] == 0xa5 && (uint8_t)behind[i] == 0xa5);
}

/* All that a call may change of an instance, as far as a later one can tell. */
struct state {
    char kept[sizeof(struct kept)];
    pb_random random;
    int64_t epochs;
    pb_lacks lacks;
};

static void take_state(const pb_model *model, struct state *state)
{
    memset(state, 0, sizeof *state);
    CHECK(model->program->kept_bytes <= (int64_t)sizeof state->kept);
    memcpy(state->kept, model->kept, (size_t)model->program->kept_bytes);
    state->random = model->random;
    state->epochs = model->epochs;
    state->lacks = model->lacks;
}

static int is_same_state(const struct state *a, const struct state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- checkpoints in memory --------------------------------------------------------------------------------------- */

/* A file: reading and writing fail in call number `fails_at`, and in number `changes_at` it reads something else. */
struct file {
    uint8_t *bytes;
    int64_t size, most;
    int calls, fails_at, changes_at;
};

static int write_to(void *context, const void *bytes, size_t count)
{
    struct file *file = context;
    if (++file->calls == file->fails_at)
        return 5;
    CHECK(count <= (size_t)(file->most - file->size));
    memcpy(file->bytes + file->size, bytes, count);
    file->size += (int64_t)count;
    return 0;
}

static int read_from(void *context, int64_t offset, void *bytes, size_t count)
{
    struct file *file = context;
    if (++file->calls == file->fails_at)
        return 5;
    if (offset < 0 || offset > file->size || count > (size_t)(file->size - offset))
        return -1;
    memcpy(bytes, file->bytes + offset, count);
    if (file->calls == file->changes_at && count > 0)
        ((uint8_t *)bytes)[count / 2] ^= 1;
    return 0;
}

static uint64_t random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

#ifdef FUZZ_CHECKPOINTS
/* ---- the loader -------------------------------------------------------------------------------------------------- */

static struct guarded first, second, third;

static pb_status read_file_of(pb_model *model, const uint8_t *bytes, size_t size)
{
    struct file file = {.bytes = (uint8_t *)(uintptr_t)bytes, .size = (int64_t)size};
    return pb_model_read(model, read_from, &file, (int64_t)size);
}

/* Writes to `bytes`, of `most`; returns the size. */
static size_t write_file_of(pb_model *model, uint8_t *bytes, size_t most)
{
    struct file file = {.bytes = bytes, .most = (int64_t)most};
    int64_t written = -1;
    CHECK(pb_model_write(model, write_to, &file, &written) == PB_OK);
    CHECK(written == file.size && written <= pb_model_checkpoint_bytes(model));
    return (size_t)written;
}

/* Two epochs in a random order. */
static void train(pb_model *model)
{
    static const float x[9 * FEATURES] = {1, 2, 3, -1, 0.5f};
    static const int64_t labels[9] = {0, 1, 1, -1, 0};
    static const double scale = 0.5;
    const pb_data_column columns[] = {{x, PB_FLOAT32}, {&scale, PB_FLOAT64}, {labels, PB_INT64}};
    int32_t order[9];
    pb_run run = {.columns = columns, .rows = 9, .epochs = 2, .order = order};
    int64_t steps = pb_model_steps(model), epochs = pb_model_epochs(model);
    CHECK(pb_model_run(model, &run) == PB_OK && run.steps_done == 4);
    CHECK(pb_model_steps(model) - steps == 4 && pb_model_epochs(model) - epochs == 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[LARGEST], again[LARGEST];
    struct state before, read, copy;
    pb_status status;
    begin(&first, &standard, 1);
    begin(&second, &standard, 1);
    train(first.model);
    take_state(first.model, &before);
    status = read_file_of(first.model, data, size);
    take_state(first.model, &read);
    if (status != PB_OK) {
        CHECK(status == PB_ERROR_CHECKPOINT && *pb_model_error(first.model) != '\0');
        CHECK(is_same_state(&before, &read));
    } else {
        size_t written = write_file_of(first.model, bytes, sizeof bytes);
        CHECK(read_file_of(second.model, bytes, written) == PB_OK);
        take_state(second.model, &copy);
        CHECK(is_same_state(&read, &copy));
        CHECK(write_file_of(second.model, again, sizeof again) == written && memcmp(bytes, again, written) == 0);
        train(second.model);
    }
    train(first.model);
    take_state(first.model, &read);
    take_state(second.model, &copy);
    CHECK(status != PB_OK || is_same_state(&read, &copy));
    end(&first);
    end(&second);
    return 0;
}

/* Gives a file the checksum of what it holds, if it is one in all else. */
static void seal(uint8_t *data, size_t size)
{
    static const char name[] = "\"sha256\":\"";
    struct file file = {.bytes = data, .size = (int64_t)size};
    struct reading reading = {.read = read_from, .context = &file, .size = (int64_t)size, .other = -1};
    pb_checksum checksum;
    char hexadecimal[65];
    pb_status bad = PB_OK;
    begin(&third, &standard, 1);
    reading.model = third.model;
    divide_arena(&standard, &reading);
    memset(reading.begins, -1, KEPT * sizeof *reading.begins);
    if (read_header(&reading) == PB_OK && parse_header(&reading) && check_metadata(&reading) == PB_OK &&
        check_tensors(&reading) == PB_OK) {
        pb_status status;
        pb_checksum_begin(&checksum, reading.in_parts);
        status = digest_metadata(&reading, &checksum);
        for (int32_t i = 0; i < KEPT && status == PB_OK; i++)
            status = read_tensor(&reading, sorted[i], 0, &checksum, &bad);
        pb_checksum_end(&checksum, hexadecimal);
        for (int64_t at = 8; at + (int64_t)sizeof name + 64 < reading.first && status == PB_OK; at++)
            if (memcmp(data + at, name, sizeof name - 1) == 0)
                memcpy(data + at + sizeof name - 1, hexadecimal, 64);
    }
    end(&third);
}

/* Puts another number where one stands in the header; returns the new length. */
static size_t change_number(char *header, size_t length, size_t most, uint64_t *random)
{
    static const char *const numbers[] = {
        "0", "1", "2", "3", "4", "8", "16", "24", "64", "-1", "00", "1e3", "4294967295", "4294967296",
        "4611686018427387904", "9223372036854775807", "9223372036854775808", "18446744073709551616",
        "340282366920938463463374607431768211455", "340282366920938463463374607431768211456",
    };
    const char *number = numbers[random_number(random) % (sizeof numbers / sizeof *numbers)];
    size_t start = length == 0 ? 0 : random_number(random) % length, end, count = strlen(number);
    while (start < length && (header[start] < '0' || header[start] > '9'))
        start++;
    for (end = start; end < length && header[end] >= '0' && header[end] <= '9';)
        end++;
    if (start == length || length - (end - start) + count > most)
        return length;
    memmove(header + start + count, header + end, length - end);
    memcpy(header + start, number, count);
    return length - (end - start) + count;
}

static int64_t any_count(uint64_t *random)
{
    uint64_t word = random_number(random) << 33 | random_number(random) << 2;
    return (int64_t)((random_number(random) % 4 == 0 ? INT64_MAX - word % 8 : word) >> random_number(random) % 4 * 16);
}

/* The checkpoint of an instance to a file of `most` bytes; returns its size, or `size` if it does not fit. */
static size_t replace_by(pb_model *model, uint8_t *data, size_t size, size_t most)
{
    static uint8_t bytes[LARGEST];
    size_t written = write_file_of(model, bytes, sizeof bytes);
    if (written > most)
        return size;
    memcpy(data, bytes, written);
    return written;
}

/* Counts are in the metadata and in a tensor: both change together. Of a file that is none, a new one is made. */
static size_t change_counts(uint8_t *data, size_t size, size_t most, uint64_t *random)
{
    int64_t steps = any_count(random);
    begin(&third, &standard, 1);
    if (read_file_of(third.model, data, size) == PB_OK) {
        memcpy(third.model->kept + KEPT_AT(steps), &steps, sizeof steps);
        third.model->epochs = any_count(random);
    }
    size = replace_by(third.model, data, size, most);
    end(&third);
    return size;
}

/* Mutates all of it, the header, or the tensors; most files then get the length and checksum that belong to them. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    static uint8_t tensors[LARGEST];
    uint64_t random = seed;
    size_t header = 0, rest;
    int manner = (int)(random_number(&random) % 8);
    if (size < 9 || manner == 1)
        return change_counts(data, size, most, &random);
    if (manner == 0)
        return LLVMFuzzerMutate(data, size, most);
    for (int i = 0; i < 4; i++)
        header |= (size_t)data[i] << 8 * i;
    header = header > size - 8 ? size - 8 : header;
    rest = size - 8 - header;
    if (rest > sizeof tensors)
        return LLVMFuzzerMutate(data, size, most);
    if (manner < 4 && rest > 0) {
        LLVMFuzzerMutate(data + 8 + header, rest, rest);
    } else {
        memcpy(tensors, data + 8 + header, rest);
        if (manner < 6)
            header = change_number((char *)data + 8, header, most - 8 - rest, &random);
        else
            header = LLVMFuzzerMutate(data + 8, header, most - 8 - rest);
        memcpy(data + 8 + header, tensors, rest);
        for (int i = 0; i < 8; i++)
            data[i] = (uint8_t)((uint64_t)header >> 8 * i);
    }
    if (random_number(&random) % 8 != 0)
        seal(data, 8 + header + rest);
    return 8 + header + rest;
}

#else
/* ---- calls: the input tells which, and their arguments ----------------------------------------------------------- */

static const uint8_t *input, *input_end;

static uint8_t take_byte(void)
{
    return input < input_end ? *input++ : 0;
}

static int draw(int count)
{
    return take_byte() % count;
}

static uint64_t take_word(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | take_byte();
    return word;
}

static double take_number(void)
{
    static const double numbers[] = {
        0, -0.0, 1, -1, 0.5, 2, 3, 9.999, 10, 127, 128, 255, 256, 2147483648.0, 1e19, -1e19, 3e38, 1e39, 1e308, 4e-324,
        1e-45, 65504, 65520, INFINITY, -INFINITY, NAN,
    };
    uint64_t word;
    double number;
    int which = draw(2 + sizeof numbers / sizeof *numbers);
    if (which < (int)(sizeof numbers / sizeof *numbers))
        return numbers[which];
    word = take_word();
    memcpy(&number, &word, sizeof number);
    return number;
}

static int64_t take_integer(void)
{
    static const int64_t integers[] = {INT64_MIN, -1, INT64_MAX, INT32_MAX, INT32_MIN, (int64_t)1 << 62};
    int which = draw(32);
    return which < 6 ? integers[which] : which - 6;
}

/* ---- memory of a call ---- */

enum { MOST_BLOCKS = 64, MOST_ROWS = 24 };

static void *blocks[MOST_BLOCKS];
static int block_count;

/* Aligned to PB_ALIGNMENT, and no byte longer. */
static void *block(size_t bytes)
{
    CHECK(block_count < MOST_BLOCKS && posix_memalign(&blocks[block_count], PB_ALIGNMENT, bytes) == 0);
    return blocks[block_count++];
}

static void free_blocks(void)
{
    while (block_count > 0)
        free(blocks[--block_count]);
}

/* Elements of any dtype, and of any value: NULL now and then, or aligned to nothing. */
static void *take_elements(int32_t dtype, int64_t count)
{
    int manner = draw(16), shift = manner == 1 ? 1 + draw(8) : 0, width = (int)pb_dtype_bytes(dtype), filling = draw(4);
    size_t bytes = (size_t)count * (size_t)width;
    uint64_t random = take_byte();
    char *values;
    if (manner == 0)
        return NULL;
    values = (char *)block(bytes + (size_t)shift) + shift;
    for (int64_t i = 0; i < count; i++) {
        double number = filling == 0 ? 0 : filling == 1 ? (double)(random_number(&random) % 3) - 1 : take_number();
        double element = 0; /* as large as any */
        pb_convert(&number, PB_FLOAT64, &element, dtype, 1);
        memcpy(values + i * width, &element, (size_t)width);
    }
    for (size_t i = 0; filling == 3 && i < bytes; i++)
        values[i] = (char)random_number(&random);
    return values;
}

static const char *take_name(const pb_program *program)
{
    char *name;
    int which = draw(8);
    size_t length = (size_t)take_byte();
    if (which == 0)
        return NULL;
    if (which < 4)
        return which < 3 ? "lr" : "";
    if (which < 6)
        return pb_kept(program, (int32_t)length % program->kept_count)->name;
    length *= which == 6 ? 1 : 16;
    name = block(length + 1);
    for (size_t i = 0; i < length; i++)
        if ((name[i] = (char)take_byte()) == '\0')
            name[i] = (char)(i % 255 + 1);
    name[length] = '\0';
    return name;
}

static const pb_tensor *batch_tensor(const pb_program *program, int32_t number)
{
    return &program->tensors[number];
}

static int64_t elements_for(const pb_tensor *tensor, int64_t rows)
{
    return tensor->row_elements > 0 ? tensor->row_elements * rows : pb_elements(tensor);
}

/* How many rows a call is told to have; so many the memory has: none where the number is one that is refused. */
static int64_t take_rows(int64_t *in_memory)
{
    int64_t rows = draw(8) == 0 ? take_integer() : draw(MOST_ROWS + 1);
    if (rows > MOST_ROWS && rows < INT64_MAX)
        rows = MOST_ROWS;
    *in_memory = rows < 0 || rows > MOST_ROWS ? 0 : rows;
    return rows;
}

/* Tensors of the batch from number `first` on. */
static const void *const *take_tensor_list(const pb_program *program, int32_t begin, int32_t count, int64_t rows)
{
    const void **list = block(sizeof *list * (size_t)count);
    if (draw(32) == 1)
        return NULL;
    for (int32_t i = 0; i < count; i++) {
        const pb_tensor *tensor = batch_tensor(program, begin + i);
        list[i] = take_elements(tensor->dtype, elements_for(tensor, rows));
    }
    return list;
}

static const pb_data_column *take_data(const pb_program *program, int64_t rows)
{
    int32_t count = program->input_count + program->target_count;
    pb_data_column *columns = block(sizeof *columns * (size_t)count);
    if (draw(32) == 1)
        return NULL;
    for (int32_t i = 0; i < count; i++) {
        const pb_tensor *tensor = batch_tensor(program, i);
        int32_t dtype = draw(3) == 0 ? draw(PB_DTYPES) : tensor->dtype;
        columns[i] = (pb_data_column){take_elements(dtype, elements_for(tensor, rows)), dtype};
        if (draw(16) == 1)
            columns[i].dtype = (int32_t[]){-1, PB_DTYPES, INT32_MAX, INT32_MIN}[draw(4)];
    }
    return columns;
}

/* ---- calls ---- */

/* What a call may have changed although it failed: nothing, but what its documentation names. */
enum allowed { NOTHING, WHEN_OK, ANYTHING };

static uint8_t saved[LARGEST];
static int64_t saved_bytes;

static double *take_place(void)
{
    double *place = draw(8) == 0 ? NULL : block(sizeof *place);
    if (place != NULL)
        *place = 0.125;
    return place;
}

static pb_status call_step(pb_model *model)
{
    const pb_program *program = model->program;
    const void *const *inputs = take_tensor_list(program, 0, program->input_count, program->batch);
    const void *const *targets = take_tensor_list(program, program->input_count, program->target_count, program->batch);
    double *loss = take_place();
    pb_status status = pb_model_step(model, inputs, targets, loss);
    CHECK(status == PB_OK || loss == NULL || *loss == 0.125);
    return status;
}

struct progress {
    pb_model *model;
    int left;
};

/* Calls of the instance in its own run are refused, and change nothing. */
static int progress(void *context, int64_t step, int64_t epoch, int epoch_ended, double loss)
{
    struct progress *self = context;
    struct state before, after;
    double value = 0;
    (void)loss;
    CHECK(step >= 0 && epoch >= 0 && (epoch_ended == 0 || epoch_ended == 1));
    take_state(self->model, &before);
    CHECK(pb_model_reset(self->model) == PB_ERROR_BUSY && pb_model_seed(self->model, 1) == PB_ERROR_BUSY);
    CHECK(pb_model_run(self->model, NULL) == PB_ERROR_BUSY);
    CHECK(pb_model_set_hyperparameter(self->model, "lr", 1) == PB_ERROR_BUSY);
    CHECK(pb_model_set_parameters(self->model, NULL, 0) == PB_ERROR_BUSY);
    CHECK(pb_model_get(self->model, 0, &value, sizeof value) == PB_ERROR_BUSY);
    CHECK(pb_model_read(self->model, NULL, NULL, 0) == PB_ERROR_BUSY);
    take_state(self->model, &after);
    CHECK(is_same_state(&before, &after));
    return --self->left < 0 ? -7 : 0;
}

static pb_status call_run(pb_model *model, enum allowed *allowed)
{
    const pb_program *program = model->program;
    int64_t in_memory;
    struct progress context = {model, draw(12)};
    pb_run run = {.rows = take_rows(&in_memory), .context = &context};
    struct state before, after;
    pb_status status;
    run.columns = take_data(program, in_memory);
    run.epochs = draw(2) ? draw(4) : take_integer();
    run.steps = run.epochs > 0 && draw(8) != 0 ? 0 : draw(2) ? draw(8) : take_integer();
    run.in_order = draw(3) == 0;
    run.order = draw(8) == 0 ? NULL : block((size_t)in_memory * sizeof *run.order);
    run.progress = draw(2) || run.epochs > 4 || run.steps > 16 ? progress : NULL;
    take_state(model, &before);
    status = pb_model_run(model, &run);
    take_state(model, &after);
    if (status != PB_OK && run.steps_done > 0)
        *allowed = ANYTHING; /* what was trained stays */
    CHECK(status != PB_OK || run.steps_done > 0);
    CHECK(pb_model_steps(model) >= 0 && after.epochs >= before.epochs);
    return status;
}

static pb_status call_predict(pb_model *model)
{
    const pb_program *program = model->program;
    int64_t in_memory, rows = take_rows(&in_memory);
    const void *const *inputs = take_tensor_list(program, 0, program->input_count, in_memory);
    void **outputs = (void **)(uintptr_t)take_tensor_list(program, program->input_count + program->target_count,
                                                          program->output_count, in_memory);
    return pb_model_predict(model, inputs, rows, outputs);
}

static pb_status call_evaluate(pb_model *model)
{
    int64_t in_memory, rows = take_rows(&in_memory);
    const pb_data_column *columns = take_data(model->program, in_memory);
    double *loss = take_place(), *accuracy = take_place();
    pb_status status = pb_model_evaluate(model, columns, rows, loss, accuracy);
    CHECK(status == PB_OK || ((loss == NULL || *loss == 0.125) && (accuracy == NULL || *accuracy == 0.125)));
    CHECK(status != PB_OK || accuracy == NULL || *accuracy != *accuracy || (*accuracy >= 0 && *accuracy <= 1));
    return status;
}

/* `bytes` that are not the tensor's are refused before any are read. */
static pb_status call_get_or_set(pb_model *model, int sets)
{
    int32_t number = draw(16) == 0 ? (int32_t)take_integer() : draw(16);
    const pb_tensor *tensor = pb_model_tensor(model, number);
    size_t own = tensor == NULL ? 0 : (size_t)tensor->bytes, bytes = draw(8) == 0 ? (size_t)take_integer() : own;
    void *values = take_elements(tensor == NULL ? PB_UINT8 : tensor->dtype, tensor == NULL ? 0 : pb_elements(tensor));
    pb_status status = sets ? pb_model_set(model, number, values, bytes) : pb_model_get(model, number, values, bytes);
    CHECK(status != PB_OK || (tensor != NULL && bytes == own));
    return status;
}

static pb_status call_parameters(pb_model *model, int which)
{
    int64_t count = pb_model_parameter_count(model), given = draw(8) == 0 ? take_integer() : count;
    float *values = draw(16) == 0 ? NULL : block((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count && values != NULL; i++)
        values[i] = (float)take_number();
    if (which == 0)
        return pb_model_get_parameters(model, values, given);
    return which == 1 ? pb_model_set_parameters(model, values, given)
                      : pb_model_add_parameters(model, values, given, take_number());
}

static pb_status call_write(pb_model *model)
{
    struct file file = {.bytes = saved, .most = sizeof saved, .fails_at = draw(4) == 0 ? 1 + draw(16) : 0};
    int64_t written = -5;
    pb_status status = pb_model_write(model, draw(16) == 0 ? NULL : write_to, &file, draw(4) == 0 ? NULL : &written);
    saved_bytes = status == PB_OK ? file.size : saved_bytes;
    CHECK(status == PB_OK || written == -5);
    return status;
}

static pb_status call_read(pb_model *model, enum allowed *allowed)
{
    uint8_t *bytes = block((size_t)saved_bytes);
    struct file file = {.bytes = bytes, .size = saved_bytes};
    int64_t size = draw(8) == 0 ? take_integer() : saved_bytes, place = (int64_t)(take_word() >> 1);
    pb_status status;
    memcpy(bytes, saved, (size_t)saved_bytes);
    if (draw(4) == 0 && saved_bytes > 0)
        bytes[place % saved_bytes] ^= (uint8_t)(1 << draw(8));
    if (draw(2))
        *(draw(2) ? &file.fails_at : &file.changes_at) = 1 + draw(32);
    status = pb_model_read(model, draw(16) == 0 ? NULL : read_from, &file, size);
    if (status == PB_ERROR_CHECKPOINT && model->lacks == PB_LACKS_UNITY && (file.fails_at > 0 || file.changes_at > 0))
        *allowed = ANYTHING; /* it changed while it was read */
    return status;
}

static pb_status call_file(pb_model *model, int saves)
{
    static char long_path[3 * LONGEST_PATH];
    const char *const paths[] = {NULL, "", "/", "/nonexistent/file", "/dev/null", "/dev/null/file", long_path};
    const char *path = paths[draw(7)];
    memset(long_path, 'p', (size_t)LONGEST_PATH - 8 + (size_t)draw(16));
    if (path == long_path || path == paths[4])
        saves = 0; /* the one may exist, the other must not be replaced */
    return saves ? pb_model_save(model, path) : pb_model_load(model, path);
}

/* Memory that is too small or not aligned, and numbers of threads: nothing of it is written. */
static void call_init(const pb_program *program)
{
    pb_model *made = (pb_model *)(void *)saved;
    int threads = (int[]){1, 0, -1, 257, INT32_MAX, INT32_MIN, 2}[draw(7)];
    size_t needed = pb_model_bytes(program, threads), bytes = (size_t)take_word() % (pb_model_bytes(program, 1) + 1);
    char *memory = block(bytes + 64);
    int is_aligned = draw(2);
    CHECK((needed > 0) == (threads == 1 || threads == 2));
    if (is_aligned && bytes >= needed)
        return;
    CHECK(pb_model_init(program, draw(4) == 0 ? NULL : memory + !is_aligned, bytes, threads, &made) ==
          PB_ERROR_ARGUMENT);
    CHECK(made == NULL && pb_model_init(program, memory, bytes, threads, NULL) == PB_ERROR_ARGUMENT);
}

/* An instance that is NULL. */
static void call_without(void)
{
    double value;
    pb_run run = {.epochs = 1};
    CHECK(pb_model_step(NULL, NULL, NULL, &value) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_run(NULL, &run) == PB_ERROR_ARGUMENT && pb_model_seed(NULL, 1) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_predict(NULL, NULL, 1, NULL) == PB_ERROR_ARGUMENT && pb_model_reset(NULL) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_evaluate(NULL, NULL, 1, &value, &value) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_find(NULL, "lr") == -1 && pb_model_tensor(NULL, 0) == NULL);
    CHECK(pb_model_get(NULL, 0, &value, sizeof value) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_set(NULL, 0, &value, sizeof value) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_parameter_count(NULL) == 0 && pb_model_get_parameters(NULL, NULL, 0) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_set_parameters(NULL, NULL, 0) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_add_parameters(NULL, NULL, 0, 1) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_get_hyperparameter(NULL, "lr", &value) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_set_hyperparameter(NULL, "lr", 1) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_steps(NULL) == 0 && pb_model_epochs(NULL) == 0 && pb_model_checkpoint_bytes(NULL) == 0);
    CHECK(pb_model_write(NULL, write_to, NULL, NULL) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_read(NULL, read_from, NULL, 0) == PB_ERROR_ARGUMENT);
    CHECK(pb_model_save(NULL, "path") == PB_ERROR_ARGUMENT && pb_model_load(NULL, "path") == PB_ERROR_ARGUMENT);
    CHECK(*pb_model_error(NULL) != '\0' && *pb_status_text((pb_status)take_byte()) != '\0');
    pb_model_close(NULL);
}

static pb_status call_one(pb_model *model, enum allowed *allowed)
{
    int which = draw(20);
    double *place;
    *allowed = which < 8 ? NOTHING : WHEN_OK;
    switch (which) {
    case 0: return call_predict(model);
    case 1: return call_evaluate(model);
    case 2: return call_get_or_set(model, 0);
    case 3: return call_parameters(model, 0);
    case 4: return call_write(model);
    case 5: return call_file(model, 1);
    case 6:
        place = take_place();
        return pb_model_get_hyperparameter(model, take_name(model->program), place);
    case 7:
        call_without();
        call_init(model->program);
        CHECK(pb_model_find(model, take_name(model->program)) < model->program->kept_count);
        return PB_OK;
    case 8: return call_step(model);
    case 9: return call_run(model, allowed);
    case 10: return call_get_or_set(model, 1);
    case 11: return call_parameters(model, 1);
    case 12: return call_parameters(model, 2);
    case 13: return call_read(model, allowed);
    case 14: return call_file(model, 0);
    case 15: {
        const char *name = take_name(model->program);
        return pb_model_set_hyperparameter(model, name, take_number());
    }
    case 16: return pb_model_seed(model, take_word());
    case 17: return draw(4) == 0 ? pb_model_reset(model) : PB_OK;
    case 18: return pb_model_run(model, NULL);
    default: return call_step(model);
    }
}

/* A step on a batch in which all is right. */
static void check_that_it_steps(pb_model *model)
{
    static const _Alignas(64) float x[64];
    static const _Alignas(64) int64_t labels[64];
    static const _Alignas(64) double scale = 1;
    const void *const inputs[] = {x, &scale}, *const targets[] = {labels};
    int is_ready = model->lacks == PB_LACKS_NOTHING && model->program->step.entry != NULL;
    int64_t steps = pb_model_steps(model);
    CHECK(pb_model_step(model, inputs, targets, NULL) == (is_ready ? PB_OK : PB_ERROR_STATE));
    CHECK(pb_model_steps(model) == steps + is_ready);
}

static const pb_program *take_program(void)
{
    static const char *const changes[] = {"no single rows", "single rows", "no functions", "no values", "adds up",
                                          "no classes", "an output without rows", "a long name", "a loss scale",
                                          "a rate of single precision", "constants"};
    int which = draw(24);
    if (which >= 13)
        return &standard;
    return which < 11 ? fake_program_with(changes[which]) : fake_scores(draw(PB_DTYPES), draw(9) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct guarded instance;
    int threads;
    input = data;
    input_end = data + size;
    threads = 1 + (draw(64) == 1);
    begin(&instance, take_program(), threads);
    saved_bytes = 0;
    while (input < input_end) {
        pb_model *model = instance.model;
        struct state before, after;
        enum allowed allowed;
        pb_status status;
        take_state(model, &before);
        model->error_buffer[0] = '\0';
        status = call_one(model, &allowed);
        take_state(model, &after);
        CHECK((unsigned)status <= PB_ERROR_CHECKPOINT && status != PB_ERROR_BUSY && status != PB_ERROR_MEMORY);
        CHECK(status == PB_OK || (*pb_model_error(model) != '\0' && strlen(pb_model_error(model)) < 512));
        CHECK(allowed == ANYTHING || (allowed == WHEN_OK && status == PB_OK) || is_same_state(&before, &after));
        free_blocks();
    }
    check_that_it_steps(instance.model);
    CHECK(pb_model_reset(instance.model) == PB_OK);
    check_that_it_steps(instance.model);
    end(&instance);
    return 0;
}
#endif
