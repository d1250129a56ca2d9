/* An exported trainer at work: every function of NAME.h is one of these under the library's own name.
 *
 * All memory is the caller's, and given once, to pb_model_init: nothing is allocated later, and nothing is global. A
 * function that can fail returns a pb_status; pb_model_error says why, in words, until the instance's next failure. What
 * fails changes nothing, and the instance can be used again. One call at a time: a second thread that calls into an
 * instance in use, or a callback of its own call, gets PB_ERROR_BUSY, of which pb_model_error does not tell. Pointers
 * must not be NULL where nothing is said of it (PB_ERROR_ARGUMENT).
 *
 * Compiled with PB_NO_THREADS, all runs in the calling thread; with PB_NO_FILES, checkpoints go through functions of the
 * caller's alone. Both together need nothing of a C library but memcpy, memmove, memset, memcmp, strlen and strcmp.
 */
#ifndef PULLBACK_MODEL_H
#define PULLBACK_MODEL_H

#include "program.h"

typedef struct pb_model pb_model;

/* ---- life ---- */

/* How many bytes an instance takes that computes with so many threads; 0 for a number of threads out of range. Its memory
 * must be aligned to PB_ALIGNMENT. */
PB_API size_t pb_model_bytes(const pb_program *program, int threads);

/* Makes an instance in the caller's memory, with the values that the trainer had when it was exported, and starts its
 * threads (threads - 1 of them). `threads`: 1 to PB_MAX_THREADS; 1 with PB_NO_THREADS.
 * PB_ERROR_ARGUMENT: too little memory, or not aligned; *model is NULL then. PB_ERROR_MEMORY: a thread cannot be started. */
PB_API pb_status pb_model_init(const pb_program *program, void *memory, size_t bytes, int threads, pb_model **model);

/* Ends the threads. The memory is the caller's again. NULL is allowed. */
PB_API void pb_model_close(pb_model *model);

/* All that is kept as pb_model_init left it. */
PB_API pb_status pb_model_reset(pb_model *model);

PB_API const char *pb_model_error(const pb_model *model); /* "" if nothing has failed; of NULL: what a NULL is told */
PB_API const char *pb_status_text(pb_status status);      /* such as "an argument is out of range" */

/* ---- training ---- */

/* One step on a batch of program->batch rows: inputs[i] and targets[i] hold those of input and target number i, in C
 * order and their own dtypes, aligned to these. Memory that is aligned to PB_ALIGNMENT is read in place, other is copied.
 * *loss (NULL is allowed) is the loss of the batch. PB_ERROR_STEP: a label, say, is out of range; nothing has changed. */
PB_API pb_status pb_model_step(pb_model *model, const void *const *inputs, const void *const *targets, double *loss);

/* A data set in memory: column i is input i, those of the targets follow. Elements of another dtype are converted batch by
 * batch as Python's fit does: floats are rounded, integers become floats; all else must be the same number. */
typedef struct pb_data_column {
    const void *data; /* `rows` rows in C order */
    int32_t dtype;    /* pb_dtype */
} pb_data_column;

typedef struct pb_run {
    const pb_data_column *columns; /* those of all inputs, then of all targets; without rows, as a loss's weights of
                                      classes, the tensor itself */
    int64_t rows;
    int64_t epochs;     /* 0: `steps` counts */
    int64_t steps;      /* how many steps in all, over as many epochs as that takes; 0: `epochs` counts */
    int32_t in_order;   /* 0: in a new random order in each epoch, the one that Python's fit would take */
    int32_t *order;     /* memory for `rows` numbers; NULL: in_order must be 1 */
    /* After each step (epoch_ended is 0) and each epoch (1); its result, if not 0, ends the run. NULL is allowed.
     * `step` and `epoch`: how many steps were made, and epochs completed, those before the run included. `loss` is that
     * of the step, or the mean of the epoch's rows. */
    int (*progress)(void *context, int64_t step, int64_t epoch, int epoch_ended, double loss);
    void *context;
    double loss;        /* written: the mean loss of the last epoch, or of what of it was done */
    int64_t steps_done; /* written */
} pb_run;

/* Steps on batches of program->batch rows of a data set; the rows that are left at the end of an epoch, fewer than a
 * batch, are not trained on in that epoch. An epoch that is not complete is not counted as one. PB_ERROR_VALUE: a value
 * does not fit its dtype, the message names it; PB_ERROR_STEP as in pb_model_step. What was trained until then stays. */
PB_API pb_status pb_model_run(pb_model *model, pb_run *run);

/* ---- using what was learnt ---- */

/* The model's outputs for any number of rows: outputs[i] gets those of output i, in C order and its own dtype. */
PB_API pb_status pb_model_predict(pb_model *model, const void *const *inputs, int64_t rows, void *const *outputs);

/* The mean loss of any number of rows, as Python's evaluate computes it, and the share of right classes: NaN where
 * nothing counts, and of a loss without classes. Both may be NULL. Elements are converted as in pb_model_run. */
PB_API pb_status pb_model_evaluate(pb_model *model, const pb_data_column *columns, int64_t rows, double *loss,
                                   double *accuracy);

/* ---- what is kept ---- */

/* The number of a parameter, state, random or optimizer state by its name; -1 when there is none. */
PB_API int32_t pb_model_find(const pb_model *model, const char *name);

/* What is known of kept tensor `number`; NULL when there is none. */
PB_API const pb_tensor *pb_model_tensor(const pb_model *model, int32_t number);

/* Copies all elements of a kept tensor out, or in; `bytes` must be those of the tensor. What is constant cannot be
 * set (PB_ERROR_ARGUMENT). */
PB_API pb_status pb_model_get(pb_model *model, int32_t number, void *values, size_t bytes);
PB_API pb_status pb_model_set(pb_model *model, int32_t number, const void *values, size_t bytes);

/* All parameters but constant ones, one after the other as float32, converted where they are of another dtype: how many
 * there are, all out, all in, and each increased by `scale` times a delta's. For federated training. */
PB_API int64_t pb_model_parameter_count(const pb_model *model);
PB_API pb_status pb_model_get_parameters(pb_model *model, float *values, int64_t count);
PB_API pb_status pb_model_set_parameters(pb_model *model, const float *values, int64_t count);
PB_API pb_status pb_model_add_parameters(pb_model *model, const float *delta, int64_t count, double scale);

/* A run-time value of the optimizer, such as "lr". PB_ERROR_ARGUMENT: there is none of that name, or the value is out of
 * its bounds (the message tells them). */
PB_API pb_status pb_model_get_hyperparameter(pb_model *model, const char *name, double *value);
PB_API pb_status pb_model_set_hyperparameter(pb_model *model, const char *name, double value);

PB_API int64_t pb_model_steps(const pb_model *model);  /* that were made, those in Python included */
PB_API int64_t pb_model_epochs(const pb_model *model); /* that were completed */

/* Random numbers begin anew: those of the model (dropout) and of the order of rows, as trainer.seed(seed) does. */
PB_API pb_status pb_model_seed(pb_model *model, uint64_t seed);

/* ---- checkpoints: Python's own format, which trainer.load reads, and which trainer.save writes ---- */

/* Bytes of a checkpoint of this trainer are at most so many. */
PB_API int64_t pb_model_checkpoint_bytes(const pb_model *model);

/* The bytes of a checkpoint one after the other to the caller's function, which returns 0 or ends it with PB_ERROR_FILE.
 * *written (NULL is allowed): how many bytes it has. */
typedef int (*pb_write)(void *context, const void *bytes, size_t count);
PB_API pb_status pb_model_write(pb_model *model, pb_write write, void *context, int64_t *written);

/* Reads `count` bytes from `offset` on of a checkpoint of `size` bytes; the function returns 0, or ends it with
 * PB_ERROR_FILE. PB_ERROR_CHECKPOINT: it is none, is damaged, or another trainer's: nothing has changed. All of
 * it is read twice, at first to be checked: if it is not the same the second time, the values are a mixture, and all calls
 * return PB_ERROR_STATE but pb_model_reset and those that read another. */
typedef int (*pb_read)(void *context, int64_t offset, void *bytes, size_t count);
PB_API pb_status pb_model_read(pb_model *model, pb_read read, void *context, int64_t size);

#ifndef PB_NO_FILES
/* To and from a file. It is written beside under another name (path.tmp), synchronised, and renamed: whatever happens,
 * a crash and a full disk included, the path holds the checkpoint before or the new one. PB_ERROR_FILE: with the system's words. */
PB_API pb_status pb_model_save(pb_model *model, const char *path);
PB_API pb_status pb_model_load(pb_model *model, const char *path);
#endif

#endif
