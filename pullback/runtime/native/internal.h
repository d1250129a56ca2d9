/* What the runtime's own files share; not its public interface. Include it first: it asks for POSIX and GNU names. */
#ifndef PULLBACK_INTERNAL_H
#define PULLBACK_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "rt.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden) /* an attribute would draw a warning where PB_API is static */
#endif

/* Keeps a message for pb_last_error() and returns `status`, so that a caller can write `return pb_fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
pb_status pb_fail(pb_status status, const char *format, ...);

/* float_mode.c: that of the calling thread, 0 where we know none. */
PB_API uint64_t pb_float_mode(void);
PB_API void pb_set_float_mode(uint64_t mode);

/* convert.c. Bytes of an element; 0 where there is no such dtype. */
PB_API int64_t pb_dtype_bytes(int32_t dtype);
PB_API int pb_is_float(int32_t dtype);

/* One element of a floating-point dtype. */
PB_API double pb_float_value(const void *address, int32_t dtype);

PB_API int64_t pb_shape_elements(const pb_column *column); /* of a row, by its shape */

/* Whether a column's dtypes are known and its shape is that of its rows: PB_ERROR_ARGUMENT if not. */
PB_API pb_status pb_check_column(const pb_column *column);

/* Copies a row to `destination`; returns whether any of its elements doesn't fit. */
PB_API int pb_copy_row(const pb_column *column, int64_t row, char *destination);

/* Which element of a row is the first that doesn't fit; -1 when all do. */
PB_API int64_t pb_first_misfit(const pb_column *column, int64_t row);

/* What a pool's table has of heap.c; with PB_NO_HEAP, an exported library whose code has no use for a heap, nothing. */
#ifdef PB_NO_HEAP
#define PB_HEAP_FUNCTIONS NULL, NULL
#else
#define PB_HEAP_FUNCTIONS pb_heap_grow, pb_heap_shrink
#endif

/* The CPUs that this process may keep busy, 1 to PB_MAX_THREADS. */
int pb_usable_cpus(void);

/* What the control groups of a process allow, rounded up; PB_MAX_THREADS when they set no limit. `membership` is its
 * /proc/self/cgroup, `mount` the folder /sys/fs/cgroup. */
int pb_cgroup_cpus(const char *membership, const char *mount);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
