/* What the runtime's own files share; not its public interface. Include it first: it asks for POSIX and GNU names. */
#ifndef PULLBACK_INTERNAL_H
#define PULLBACK_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "rt.h"

#if defined(__GNUC__)
#define PB_HIDDEN __attribute__((visibility("hidden")))
#else
#define PB_HIDDEN
#endif

/* Keeps a message for pb_last_error() and returns `status`, so that a caller can write `return pb_fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), visibility("hidden")))
#endif
pb_status pb_fail(pb_status status, const char *format, ...);

/* float_mode.c: that of the calling thread, 0 where we know none. */
PB_HIDDEN uint64_t pb_float_mode(void);
PB_HIDDEN void pb_set_float_mode(uint64_t mode);

/* The CPUs that this process may keep busy, 1 to PB_MAX_THREADS. */
PB_HIDDEN int pb_usable_cpus(void);

/* What the control groups of a process allow, rounded up; PB_MAX_THREADS when they set no limit. `membership` is its
 * /proc/self/cgroup, `mount` the folder /sys/fs/cgroup. */
PB_HIDDEN int pb_cgroup_cpus(const char *membership, const char *mount);

#endif
