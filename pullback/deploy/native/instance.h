/* An instance from within: what the files of an exported trainer share. */
#ifndef PULLBACK_INSTANCE_H
#define PULLBACK_INSTANCE_H

#include "../../runtime/native/thread_pool.h"

#include "../../runtime/native/bytes.h"
#include "model.h"
#include "text.h"

#ifndef PB_NO_THREADS
#include <stdatomic.h>
#endif

/* Counts of steps and epochs are less: no training gets there, so they can be increased. */
#define PB_COUNT_END ((int64_t)1 << 62)

/* NumPy's PCG64: words are high, low. */
typedef struct pb_random {
    uint64_t state[2], increment[2];
    uint32_t has_word, word; /* the upper half of a number whose lower half was given */
} pb_random;

/* What is missing for values that belong together. */
typedef enum pb_lacks {
    PB_LACKS_NOTHING,
    PB_LACKS_ALL,  /* none are part of the library, and none were read yet */
    PB_LACKS_UNITY /* a checkpoint that changed while it was read has left a mixture */
} pb_lacks;

struct pb_model {
    const pb_program *program;
    struct pb_pool *pool;
    const pb_runtime *runtime;
    char *kept, *batch, *results, *arena;
    size_t arena_bytes;
    pb_data_column *columns; /* where the inputs and targets of a call come from, */
    void **at;               /* and where those of the batch lie */
    void **buffers;          /* of the function that is called */
    pb_random random;
    int64_t epochs;
    pb_lacks lacks;
#ifdef PB_NO_THREADS
    int busy;
#else
    atomic_flag busy;
#endif
    pb_text error;
    char error_buffer[512];
};

/* ---- model.c ---- */

/* A call begins: PB_ERROR_ARGUMENT for NULL, PB_ERROR_BUSY, and PB_ERROR_STATE where it needs values and there are none
 * that belong together. After PB_OK, pb_leave() ends it; it returns the status given. */
PB_INNER pb_status pb_enter(pb_model *model, int needs_values);
PB_INNER pb_status pb_leave(pb_model *model, pb_status status);

/* Keeps a message for pb_model_error() and returns the status. */
PB_INNER pb_status pb_refuse_parts(pb_model *model, pb_status status, const pb_part *parts);
#define pb_refuse(model, status, ...) pb_refuse_parts(model, status, (const pb_part[]){__VA_ARGS__, {0, NULL, 0, 0, 0}})

/* A step on the columns that were taken last, and predictions for rows of columns. */
PB_INNER pb_status pb_step_on_taken(pb_model *model, double *loss);
PB_INNER pb_status pb_predict_columns(pb_model *model, const pb_data_column *columns, int64_t rows,
                                      void *const *outputs);

/* Makes all that is kept as the program has it. */
PB_INNER void pb_set_initial(pb_model *model);

/* ---- dtypes.c ---- */

PB_INNER const char *pb_dtype_name(int32_t dtype);
PB_INNER const char *pb_dtype_code(int32_t dtype); /* in checkpoints */

/* Elements of another dtype, by the rules of pb_data_column; returns whether any of them doesn't fit. */
PB_INNER int pb_convert(const void *source, int32_t source_dtype, void *to, int32_t dtype, int64_t count);
PB_INNER double pb_real_at(const void *address, int32_t dtype);
PB_INNER double pb_not_a_number(void);
PB_INNER int pb_is_finite(double value);

/* ---- call.c: compiled functions on batches of rows ---- */

PB_INNER const pb_tensor *pb_kept(const pb_program *program, int32_t number);
PB_INNER int64_t pb_elements(const pb_tensor *tensor);

/* The values of a kept tensor, to be read: those of the instance, or the program's constant. */
PB_INNER const void *pb_values(const pb_model *model, const pb_tensor *tensor);
PB_INNER int64_t pb_aligned(int64_t bytes); /* rounded up to PB_ALIGNMENT */

/* Bytes of a row of a batch's tensor; 0 of one without rows. */
PB_INNER int64_t pb_row_bytes(const pb_tensor *tensor);

/* Bytes of copies of all inputs and targets of so many rows. */
PB_INNER int64_t pb_batch_bytes(const pb_program *program, int64_t rows);

/* Whether the columns are such that `rows` of them may be read: of all inputs, and of the targets if they are
 * wanted. */
PB_INNER pb_status pb_take_columns(pb_model *model, const pb_data_column *columns, int with_targets, int64_t rows);

/* Makes rows of the columns the batch: those from `first` on, or the ones which `order` has there. */
PB_INNER pb_status pb_take_batch(pb_model *model, int with_targets, int64_t first, int64_t rows, const int32_t *order);

/* Calls a function on the batch. PB_ERROR_STEP: one of its checks failed; the message names the number of the step, if
 * it is not 0. */
PB_INNER pb_status pb_call_function(pb_model *model, const pb_function *function, int64_t step);

/* The one of two functions, for several rows and for one, that is to be called when so many are left. */
PB_INNER const pb_function *pb_function_of(const pb_function *several, const pb_function *one, int64_t left);

/* Whether these two are enough for so many rows; `what` they do is for the message. */
PB_INNER pb_status pb_check_rows(pb_model *model, const pb_function *several, const pb_function *one, int64_t rows,
                                 const char *what);

/* The mean loss of several batches. */
typedef struct pb_mean {
    double sum, divisor;
    int64_t rows;
} pb_mean;

/* The loss of the function called last. */
PB_INNER double pb_loss_of(const pb_model *model, const pb_function *function);
PB_INNER void pb_mean_add(pb_mean *mean, const pb_model *model, const pb_function *function);
PB_INNER double pb_mean_of(const pb_mean *mean, const pb_program *program);

/* ---- run.c: a run, one step or end of an epoch at a time ---- */

typedef struct pb_running {
    pb_run *run;
    int64_t batches, batch; /* of an epoch, and those of it that are done */
    int64_t epoch;          /* how many this run has completed */
    pb_mean mean;           /* of the epoch so far */
    double loss;            /* of the step, or the mean of the epoch */
    enum { PB_RUN_ENDED, PB_STEPPED, PB_EPOCH_ENDED } event; /* what came last */
} pb_running;

/* Checks the run, takes its columns, and leaves `running` before the first step. */
PB_INNER pb_status pb_run_begin(pb_model *model, pb_running *running, pb_run *run);

/* Does what comes next: running->event says what it was. Whoever ends a run early calls it once more at the end of an
 * epoch, for that to count. */
PB_INNER pb_status pb_run_next(pb_model *model, pb_running *running);
PB_INNER int pb_run_is_at_end_of_epoch(const pb_running *running);

/* ---- kept.c ---- */

/* Whether `bytes`, a part of the tensor's or all of a scalar's, may be its values: bools are 0 or 1, counts from 0 to
 * PB_COUNT_END - 1, run-time values within their bounds. `status` is that of the refusal. */
PB_INNER pb_status pb_check_values(pb_model *model, int32_t number, const void *bytes, size_t count, pb_status status);

/* ---- order.c: NumPy's random generator ---- */

PB_INNER void pb_random_seed(pb_random *random, uint64_t seed);
PB_INNER uint64_t pb_random_next(pb_random *random);
PB_INNER void pb_random_permutation(pb_random *random, int32_t *order, int32_t count);

/* ---- sha256.c, repr.c ---- */

typedef struct pb_sha256 {
    uint32_t state[8];
    uint64_t length; /* so far, in bytes */
    uint8_t block[64];
} pb_sha256;

PB_INNER void pb_sha256_begin(pb_sha256 *digest);
PB_INNER void pb_sha256_add(pb_sha256 *digest, const void *bytes, size_t count);
PB_INNER void pb_sha256_end(pb_sha256 *digest, uint8_t bytes[32]);
PB_INNER void pb_sha256_end_text(pb_sha256 *digest, char hexadecimal[65]);

/* Adds the repr of a text in UTF-8 that is known to be one; returns 0, or a character whose repr is not known here. */
PB_INNER int32_t pb_sha256_add_repr(pb_sha256 *digest, const char *text, size_t length);

/* Whether Python's repr shows a character as it is; -1: not known here. */
PB_INNER int pb_is_printable(int32_t code);

/* ---- json.c: each returns whether it found what it says, or else the text is none that is expected ---- */

typedef struct pb_json {
    char *at, *end;
} pb_json;

typedef struct pb_span {
    char *start;
    size_t length;
} pb_span;

PB_INNER int pb_json_take(pb_json *json, char character);
PB_INNER int pb_json_is_at_end(pb_json *json);
PB_INNER int pb_json_text(pb_json *json, pb_span *text);         /* decoded to UTF-8 */
PB_INNER int pb_json_wide(pb_json *json, uint64_t number[2]);    /* an integer >= 0 of 128 bits; words are high, low */
PB_INNER int pb_json_integer(pb_json *json, int64_t *number);    /* one of 63 bits */
PB_INNER int pb_span_is(const pb_span *span, const char *text);

/* The next character of a text in UTF-8, whose encoding may be that of half of a pair; -1 when there is none. */
PB_INNER int32_t pb_code_point(const char **at, const char *end);

/* ---- checkpoint.c, checkpoint_read.c ---- */

/* The checksum of a checkpoint: of its metadata and, after what announces each, its tensors. Of a tensor it takes the
 * SHA-256s of parts of PB_PART_BYTES, the last one shorter, so that several can compute it together; in files of
 * version 1, the bytes themselves. */
enum { PB_PART_BYTES = 1 << 20 };

typedef struct pb_checksum {
    pb_sha256 all, part;
    int32_t in_parts;
} pb_checksum;

PB_INNER void pb_checksum_begin(pb_checksum *checksum, int32_t in_parts);

/* Adds one entry of the metadata. PB_ERROR_CHECKPOINT: with a character whose repr is not known here. */
PB_INNER pb_status pb_checksum_entry(pb_model *model, pb_checksum *checksum, const char *name, size_t name_length,
                                     const char *text, size_t length);

/* Adds a tensor: what announces it, all of its bytes, one run of them after the other, and the end of the last part. */
PB_INNER void pb_checksum_announce(pb_checksum *checksum, const pb_tensor *tensor);
PB_INNER void pb_checksum_add(pb_checksum *checksum, const void *bytes, size_t count);
PB_INNER void pb_checksum_end_tensor(pb_checksum *checksum);
PB_INNER void pb_checksum_end(pb_checksum *checksum, char hexadecimal[65]);

/* What reading and writing take of the arena. */
PB_INNER int64_t pb_checkpoint_arena_bytes(const pb_program *program);

/* pb_model_write and pb_model_read within a call that has begun. */
PB_INNER pb_status pb_write_checkpoint(pb_model *model, pb_write write, void *context, int64_t *written);
PB_INNER pb_status pb_read_checkpoint(pb_model *model, pb_read read, void *context, int64_t size);

#endif
