/* An exported trainer as data: what the code generator's functions take, where everything lies, what is saved.
 *
 * NAME.c, which is generated, holds one pb_program for each CPU that the library has code for; model.c does with it what
 * NAME.h promises. Nothing here is known to users of an exported library.
 */
#ifndef PULLBACK_PROGRAM_H
#define PULLBACK_PROGRAM_H

#include "../../runtime/native/rt.h"

/* What a tensor is, for the trainer. */
typedef enum pb_kind {
    PB_INPUT, PB_TARGET, PB_OUTPUT,                             /* of a batch */
    PB_PARAMETER, PB_STATE, PB_RANDOM_STATE, PB_OPTIMIZER_STATE /* kept: saved, and overwritten by steps */
} pb_kind;

typedef struct pb_tensor {
    const char *name;     /* "0.weight"; of optimizer states "0.weight.m", say, or "lr"; of others as in Python */
    const char *key;      /* in checkpoints: "param.0.weight", "optimizer.3"; NULL for inputs, targets, outputs */
    const char *announced; /* what the checksum takes before its bytes: "'param.0.weight':float32(128, 784);" */
    const int64_t *shape; /* of a batch's tensors, that of one batch of the step */
    int64_t bytes;        /* of all elements */
    int64_t offset;       /* of kept tensors: from the first of them; aligned to PB_ALIGNMENT */
    int64_t row_elements; /* of a batch's tensors: elements of a row; 0 where the leading axis is not the batch */
    uint8_t kind;         /* pb_kind */
    uint8_t dtype;        /* pb_dtype */
    uint8_t rank;
    uint8_t is_label;     /* a target that holds class numbers, of which `accuracy` can be told */
    const void *constant; /* of what is folded into the functions: its values, which are in no instance; else NULL */
} pb_tensor;

/* Where one of the buffers of a compiled function lies. */
typedef enum pb_place {
    PB_AT_KEPT,     /* number: of the kept tensor */
    PB_AT_INPUT,    /* number: of the input */
    PB_AT_TARGET,   /* number: of the target */
    PB_AT_CONSTANT, /* number: of the function's constant */
    PB_AT_RESULT    /* number: offset in the instance's memory for results */
} pb_place;

typedef struct pb_buffer {
    int64_t place; /* pb_place */
    int64_t number;
} pb_buffer;

typedef int32_t (*pb_entry)(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace);

/* A compiled function for a number of rows. A status of k > 0 means that check k - 1 failed, before anything was written. */
typedef struct pb_function {
    pb_entry entry;               /* NULL: the library was made without it */
    const pb_buffer *buffers;
    int64_t buffer_count;
    const void *const *constants; /* aligned to PB_ALIGNMENT */
    const char *const *messages;  /* of its checks */
    int64_t message_count;
    int64_t rows;
    int64_t loss;       /* offset of the loss among the results; -1: none */
    int64_t divisor;    /* of what the loss is divided by; -1: it adds up, or there is none */
    int64_t loss_dtype; /* pb_dtype */
    int64_t divisor_dtype;
    const int64_t *outputs; /* offsets of the model's outputs among the results; NULL: none */
} pb_function;

/* Bounds of a run-time value of the optimizer, such as the learning rate. */
typedef struct pb_hyperparameter {
    const char *name;
    const int32_t *kept; /* numbers of the kept tensors (scalars) that hold it */
    int32_t count;
    double least, below; /* least <= value < below; infinity where there is no bound */
} pb_hyperparameter;

/* One entry of a checkpoint's metadata that is the same in all checkpoints of this trainer, as raw text (not JSON). */
typedef struct pb_entry_text {
    const char *name, *text;
    int32_t must_match; /* 1: a file with another text was made by another training; 0: any text will do */
    int32_t optional;   /* 1: older files lack it */
} pb_entry_text;

typedef struct pb_program {
    const char *name;     /* of the library */
    const char *target;   /* as Python's Target, for manifest and messages */
    const pb_tensor *tensors; /* inputs, targets, outputs, then what is kept in the order of the checkpoint's slots */
    int32_t input_count, target_count, output_count, kept_count;

    int64_t kept_bytes;   /* of all kept tensors but the constant ones, with their alignment */
    int64_t result_bytes; /* of results that are no kept tensor's new value: the largest of all functions */
    int64_t batch_bytes;  /* of a copy of the inputs and targets of a batch of the step, each aligned */
    int64_t arena_bytes;  /* the largest of all functions */
    const void *initial;  /* the first initial_bytes of what is kept; the rest begins as zeros. NULL: none is embedded */
    int64_t initial_bytes;

    int64_t batch;        /* rows of a step */
    int32_t classes;      /* axis of the classes in output 0; -1: the loss has none */
    int32_t has_ignored;  /* whether targets equal to `ignored` do not count */
    int64_t ignored;
    int32_t steps;        /* number of the kept tensor, an int64 scalar, that counts the optimizer's steps */
    int32_t adds_up;      /* whether the loss is a sum over the rows: the mean divides by them */

    pb_function step, predict, predict_one, evaluate, evaluate_one; /* the _one are for a single row */

    const pb_hyperparameter *hyperparameters;
    int32_t hyperparameter_count;

    const pb_entry_text *metadata; /* sorted by name; those of format and version among them, but not "random", "epochs",
                                      "steps" and "sha256", which change */
    int32_t metadata_count;
    const int32_t *sorted;  /* the kept tensors' numbers in the order of their keys, as Python sorts them */
    int64_t header_bytes;   /* a checkpoint's header is never longer than this */

    /* The trainer's random generator (NumPy's PCG64) when it was exported, and how many epochs it had trained. */
    uint64_t random_state[2], random_increment[2]; /* high word, low word */
    uint32_t random_has_word, random_word;
    int64_t epochs;
} pb_program;

#endif
