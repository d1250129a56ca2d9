/* The C runtime of pullback: threads, memory and time for compiled code, shared by the JIT and by exported programs.
 *
 * Plain C11 and POSIX threads; no Python. Every public name starts with pb_ or PB_. A function that can fail returns a
 * pb_status, and pb_last_error() says why, for the calling thread. Build it from the single file one.c:
 *
 *     cc -O2 -std=c11 -fPIC -shared -pthread one.c -o libpullback_rt.so
 */
#ifndef PULLBACK_RT_H
#define PULLBACK_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef PB_API
#define PB_API /* `static` in an exported library, which has what it uses of the runtime in one file of its own */
#endif

#define PB_ABI 5 /* changes whenever pb_runtime does */
#define PB_MAX_THREADS 256
#define PB_ALIGNMENT 64 /* of every block from pb_alloc, in bytes */
#define PB_MAPPED_BYTES (32 << 20) /* a block of at least so many is a mapping of its own */

/* ---- status.c: how a call reports failure -------------------------------------------------------------------- */

typedef enum pb_status {
    PB_OK = 0,
    PB_ERROR_ARGUMENT = 1,    /* an argument out of range */
    PB_ERROR_MEMORY = 2,      /* not enough memory */
    PB_ERROR_ENVIRONMENT = 3, /* an environment variable that can't be understood */
    PB_ERROR_STATE = 4,       /* a call that is not allowed at this point */
    PB_ERROR_STEP = 5,        /* a compiled function refused its arguments' values */
    PB_ERROR_VALUE = 6,       /* a value that a dtype does not hold */
    PB_ERROR_BUSY = 7,        /* another thread is in a call of the same instance */
    PB_ERROR_FILE = 8,        /* a file cannot be read or written */
    PB_ERROR_CHECKPOINT = 9,  /* what is read is no checkpoint, is damaged, or another trainer's */
    PB_ERROR_RANKS = 10       /* another rank failed: pb_ranks_failure */
} pb_status;

/* Why the last failing call of this thread failed; "" if none has. Valid until this thread's next failure. */
const char *pb_last_error(void);

/* ---- memory.c: aligned blocks, counted ----------------------------------------------------------------------- */

/* A block of at least `bytes` bytes, aligned to PB_ALIGNMENT, contents undefined; NULL when there is no memory. */
void *pb_alloc(size_t bytes);

/* The same, filled with zeros. */
void *pb_alloc_zeros(size_t bytes);

/* So many of these, of so many bytes each. PB_ERROR_MEMORY: there is no memory for all of them, and no block is left. */
int pb_alloc_all_zeros(size_t count, const size_t *bytes, void **blocks);

/* Gives a block back; NULL is allowed. The last few of them are kept for pb_alloc: see pb_keep_at_most. */
void pb_free(void *block);

/* How many bytes of freed blocks are kept; a sixteenth of the machine's memory if nobody asks. 0 keeps none. */
void pb_keep_at_most(int64_t bytes);

int64_t pb_allocation_count(void); /* blocks made since the start */
int64_t pb_allocated_bytes(void);  /* bytes asked for and not yet freed */
int64_t pb_peak_bytes(void);       /* the largest value pb_allocated_bytes() has had */

/* ---- clock.c ------------------------------------------------------------------------------------------------- */

/* A monotonic clock, in nanoseconds from an arbitrary origin; 0 when compiled with PB_NO_THREADS. */
PB_API int64_t pb_now_ns(void);

/* ---- thread_pool.c: what compiled code gets ------------------------------------------------------------------ */

/* Does the items [begin, end) of a job. Must not care how a job is cut into ranges, nor on which thread it runs. */
typedef void (*pb_task)(void *closure, int64_t begin, int64_t end);

/* What a thread gets of a job: as long as `next` returns 1, `range` is what it is to do next. */
typedef struct pb_share {
    int32_t (*next)(struct pb_share *share, int64_t range[2]);
} pb_share;

/* Does all that its share gives it; before, whatever each thread that takes part does for itself. */
typedef void (*pb_work)(void *closure, pb_share *share);

/* Compiled code calls the runtime through this table alone; no address of the runtime is baked into it. Its functions
 * get the table, by which they know the pool of threads that it belongs to.
 *
 * parallel_for covers [0, count) once with calls of `task` on the pool's threads, the caller among them; returns when
 * all are done. All threads compute as the caller's would: with its rounding, and with subnormal numbers as zeros where
 * it has them so. Runs as one call on the calling thread when there is one thread or one item, when it is called from
 * inside a task of any pool, or while another thread runs a job of the pool.
 *
 * parallel_share does the same with one call of `work` on each thread that takes part.
 *
 * grow gives more memory of a heap, and shrink takes back what it gave since a mark: see pb_heap. Both are NULL where
 * compiled code has no use for a heap.
 *
 * start begins a collective of the ranks that the table belongs to, and returns its ticket. The arrays stay as they are,
 * and nobody looks at those that are received, until wait returns for that ticket. The descriptor is copied. All ranks
 * start the same collectives in the same order. Where the ranks have failed (pb_ranks_failure), both return at once.
 * Without ranks (NULL) a process is alone: it is rank 0 of 1. Both are NULL in exported libraries.
 */
struct pb_heap;
struct pb_ranks;
struct pb_collective;
typedef struct pb_runtime {
    int64_t abi; /* PB_ABI */
    void (*parallel_for)(const struct pb_runtime *runtime, pb_task task, void *closure, int64_t count);
    int64_t (*now_ns)(void);
    void (*parallel_share)(const struct pb_runtime *runtime, pb_work work, void *closure, int64_t count);
    void *(*grow)(const struct pb_runtime *runtime, struct pb_heap *heap, int64_t bytes);
    void (*shrink)(const struct pb_runtime *runtime, struct pb_heap *heap, int64_t mark);
    struct pb_ranks *ranks;
    int64_t (*start)(const struct pb_runtime *runtime, const struct pb_collective *collective);
    void (*wait)(const struct pb_runtime *runtime, int64_t ticket);
} pb_runtime;

/* ---- ranks.c: what several processes compute together -------------------------------------------------------- */

/* What runtime/collectives.py defines, under the same names and in the same order. */
typedef enum pb_collective_kind {
    PB_REDUCE, PB_REDUCE_PIECES, PB_GATHER_PIECES, PB_BROADCAST, PB_ALL_TO_ALL, PB_PIECE, PB_RANK
} pb_collective_kind;
typedef enum pb_reduction { PB_SUM, PB_PROD, PB_MIN, PB_MAX } pb_reduction;

/* `count` arrays of one dtype, each of so many `elements` as a whole; pieces have ceil(elements / ranks). A rank gives
 * `count * shards` arrays (all shards of the first array, then all of the second) and receives `count`. `elements` of
 * PB_RANK is {1}, and it receives an int64. */
typedef struct pb_collective {
    int32_t kind;      /* pb_collective_kind */
    int32_t reduction; /* pb_reduction */
    int32_t dtype;     /* pb_dtype */
    int32_t root;      /* of a broadcast */
    int32_t shards;    /* of a reduction, else 1 */
    int32_t count;
    int32_t ranks;     /* how many there have to be; 0: any number */
    const int64_t *elements;
    const void *const *given;
    void *const *received;
} pb_collective;

/* The functions `start` and `wait` of every table. */
int64_t pb_collective_start(const pb_runtime *runtime, const pb_collective *collective);
void pb_collective_wait(const pb_runtime *runtime, int64_t ticket);

/* A collective that was recorded; times are those of pb_now_ns(). */
typedef struct pb_flight {
    int64_t started; /* when start was called */
    int64_t done;    /* when its arrays were there; 0: they are not yet */
    int64_t waited;  /* nanoseconds that its rank spent in start and in wait */
    int64_t bytes;   /* of its whole arrays */
    int64_t sent;    /* bytes, to other ranks */
    int64_t kind;    /* pb_collective_kind */
} pb_flight;

/* Records in `flights`, as long as there is `room`, the collectives that the table's rank starts from now on, until it is
 * called again. Returns how many have been started since it was called last; what sends nothing is none of them. */
int64_t pb_collectives_record(const pb_runtime *runtime, pb_flight *flights, int64_t room);

/* Nanoseconds that the table's rank has spent in start and in wait. */
int64_t pb_collectives_waited(const pb_runtime *runtime);

/* One of several ranks. It belongs to one thread, which makes all calls but pb_ranks_fail and pb_ranks_failure. */
typedef struct pb_ranks pb_ranks;

/* Ranks that are threads of this process: as many handles. */
pb_status pb_ranks_local(int32_t size, pb_ranks **handles);

/* What an MPI library has: its functions, and handles as it passes them. */
typedef struct pb_mpi {
    int (*isend)(const void *, int, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void *, int, int, void *, void **);
    int (*test)(void **, int *, void *);
    int (*iprobe)(int, int, void *, int *, void *);
    int (*recv)(void *, int, void *, int, int, void *, void *);
    int (*cancel)(void **);
    int (*error_string)(int, char *, int *);
    void *communicator; /* used for nothing else; errors are returned */
    void *byte;         /* the datatype MPI_BYTE */
    void *no_status;    /* MPI_STATUS_IGNORE */
    int32_t any_source; /* MPI_ANY_SOURCE */
    int32_t rank, size;
} pb_mpi;

/* This process as one of an MPI job, whose library runs until the handle is closed. */
pb_status pb_ranks_over_mpi(const pb_mpi *mpi, pb_ranks **handle);

/* The table of compiled code that belongs to a rank. */
const pb_runtime *pb_ranks_table(const pb_ranks *ranks);
int32_t pb_ranks_rank(const pb_ranks *ranks);
int32_t pb_ranks_size(const pb_ranks *ranks);

/* How long `wait` waits while nothing moves, until the ranks fail. 600 s if nobody asks. */
void pb_ranks_set_timeout(pb_ranks *ranks, int64_t nanoseconds);

/* As the table's `wait`, but for so long at the most: whether it returned, or would. */
int32_t pb_ranks_wait(pb_ranks *ranks, int64_t ticket, int64_t nanoseconds);

/* This rank failed: it says so to all others, and all that they have started ends, as does all that it has. */
void pb_ranks_fail(pb_ranks *ranks, const char *text);

/* This rank starts nothing more, and finishes nothing that is in progress: others that wait for it fail. */
void pb_ranks_leave(pb_ranks *ranks);

/* Why the ranks failed, naming the rank that did first; NULL while they have not. Then what was received is undefined. */
const char *pb_ranks_failure(const pb_ranks *ranks);

void pb_ranks_close(pb_ranks *ranks);

/* ---- heap.c: memory whose size only running tells ------------------------------------------------------------ */

/* What a call of compiled code keeps until it ends, last in, first out. It lies on the stack of the function that it
 * belongs to, which begins with zeros and shrinks it to 0 before it returns. One thread at a time uses it.
 *
 * Its fields are numbers of 64 bits on all machines; addresses are such numbers. `top` is a mark: whoever remembers it
 * can shrink the heap to what it was. */
typedef struct pb_heap {
    int64_t top;     /* where the next memory begins; 0: there is none yet */
    int64_t end;     /* of the newest block */
    int64_t block;   /* the newest one */
    int64_t poisons; /* whether what is given back is filled with 0xFF bytes */
    int64_t unused[4];
} pb_heap;

#ifndef PB_NO_HEAP
/* So many bytes, aligned to PB_ALIGNMENT; NULL when there is no memory. */
PB_API void *pb_heap_grow(const pb_runtime *runtime, pb_heap *heap, int64_t bytes);

/* Takes back all that grow gave since `top` was this mark; 0: all that it ever gave. */
PB_API void pb_heap_shrink(const pb_runtime *runtime, pb_heap *heap, int64_t mark);
#endif

/* ---- process_pool.c: the pool that all of a process shares --------------------------------------------------- */

/* The table of the process's pool. Safe in the child of a fork, unless the fork happens inside a task. */
const pb_runtime *pb_runtime_get(void);

/* The same functions for C, which needs no table. */
void pb_parallel_for(pb_task task, void *closure, int64_t count);
void pb_parallel_share(pb_work work, void *closure, int64_t count);

/* The threads of a job, 1 to PB_MAX_THREADS; at first PULLBACK_NUM_THREADS, or else the CPUs this process may use:
 * those of its affinity, or fewer when its control groups (a container's, say) have a quota. */
int pb_get_num_threads(void);

/* Waits for the job in progress; an error inside a task. The new threads start with the next job. */
pb_status pb_set_num_threads(int threads);

/* PB_ERROR_ENVIRONMENT when PULLBACK_NUM_THREADS is set to something that isn't a number of threads. */
pb_status pb_check_environment(void);

/* Ends the pool's threads (before dlclose, say). A later job starts them again. An error inside a task. */
pb_status pb_shutdown(void);

/* How long the calling thread has had a processor, in nanoseconds: a clock that stands still while others have it. */
int64_t pb_thread_ns(void);

/* ---- convert.c: rows of an array as those of a tensor -------------------------------------------------------- */

typedef enum pb_dtype {
    PB_BOOL, PB_INT8, PB_INT16, PB_INT32, PB_INT64, PB_UINT8, PB_UINT16, PB_UINT32, PB_UINT64,
    PB_FLOAT16, PB_FLOAT32, PB_FLOAT64, PB_BFLOAT16,
    PB_DTYPES /* how many there are */
} pb_dtype;

/* One array of the data set, and the tensor into which the rows of a batch are copied.
 *
 * A value of another dtype is converted: floats are rounded to floats, integers too; all else must be the same number.
 * What becomes infinite, and with `exact` whatever changes, does not fit.
 */
typedef struct pb_column {
    const void *source;     /* row 0 of the array */
    void *batch;            /* batch_rows rows in C order, aligned for their dtype */
    int64_t elements;       /* of a row */
    int64_t row_stride;     /* bytes from one row of the array to the next */
    const int64_t *shape;   /* of a row, `rank` sizes */
    const int64_t *strides; /* bytes from one element to the next along each of its axes */
    int32_t rank;           /* at least 1 */
    int32_t source_dtype;   /* pb_dtype */
    int32_t dtype;          /* of the tensor */
    int32_t exact;
} pb_column;

/* The first value of some rows that does not fit. */
typedef struct pb_misfit {
    int64_t column;
    int64_t row;     /* of the array */
    int64_t element; /* of the row */
} pb_misfit;

/* Whether each value of the one pb_dtype is a value of the other. */
PB_API int pb_always_fits(int32_t source_dtype, int32_t dtype);

/* Copies the rows from `first` on to the tensor's first rows, in the calling thread. PB_ERROR_VALUE: `misfit` has the
 * value that does not fit. PB_ERROR_ARGUMENT: there is no such dtype, or a row has not as many elements as its shape
 * says. pb_last_error() tells nothing of either. */
PB_API pb_status pb_copy_rows(const pb_column *column, int64_t first, int64_t count, pb_misfit *misfit);

/* ---- epoch.c: a compiled step on each batch of a data set ---------------------------------------------------- */

/* Batches of equally many rows, and how far a loop over them has come. */
typedef struct pb_epoch {
    const pb_column *columns;
    int64_t column_count;
    int64_t rows;         /* of the data set */
    const int64_t *order; /* its row numbers in the order of their use; NULL: as they are, again and again */
    int64_t first;        /* where in the order the first batch begins */
    int64_t batch_rows;
    int64_t batches;      /* as pb_epoch_extend() left them */
    int64_t done;         /* batches, so far: another thread asks pb_epoch_done() */
    double loss;          /* of the last one whose divisor was not 0 */
    double loss_sum;      /* of all those so far, each times its divisor */
    double divisor_sum;
    int32_t failure;      /* what the function returned, if it was not 0 */
    pb_misfit misfit;     /* why a gather returned PB_ERROR_VALUE */
    int64_t until;        /* pb_epoch_run() returns when so many batches are done; 0: for no such number */
} pb_epoch;

/* A compiled function and what it is called with. */
typedef struct pb_call {
    int32_t (*function)(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace);
    const pb_runtime *runtime; /* of the calling thread */
    void *const *buffers;
    void *arena;
    const void *loss;      /* one of the buffers: a number that the function writes */
    const void *divisor;   /* another: what the loss is a sum over the batch divided by; NULL: 1 */
    int32_t loss_dtype;    /* pb_dtype, a floating-point one */
    int32_t divisor_dtype; /* the same */
} pb_call;

/* Copies the rows of batch number `done` into the batch's tensors. */
pb_status pb_epoch_gather(pb_epoch *epoch);

/* Adds batches, whose rows are there: another thread may do so while pb_epoch_run() goes on. */
void pb_epoch_extend(pb_epoch *epoch, int64_t batches);

/* How many batches are done; the rows of these are free for others. */
int64_t pb_epoch_done(const pb_epoch *epoch);

/* Sleeps until so many batches are done, or all there are, or so many nanoseconds have passed; returns how many are. */
int64_t pb_epoch_wait(const pb_epoch *epoch, int64_t done, int64_t nanoseconds);

/* Gathers a batch and calls the function on it, until all are done, or as many as the epoch says, or so many nanoseconds
 * have passed; at least once if any is left. To be called again while done < batches. PB_ERROR_STEP when the function
 * fails: batch number `done` is the one that it refused, and `failure` says why. PB_ERROR_RANKS: the ranks failed
 * meanwhile. Other threads must leave the epoch, the tensors and the arena alone.
 */
pb_status pb_epoch_run(pb_epoch *epoch, const pb_call *call, int64_t nanoseconds);

#ifdef __cplusplus
}
#endif

#endif
