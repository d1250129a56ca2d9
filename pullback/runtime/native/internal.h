/* What the runtime's own files share; not its public interface. Include it first: it asks for POSIX and GNU names. */
#ifndef PULLBACK_INTERNAL_H
#define PULLBACK_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "rt.h"

/* Keeps a message for pb_last_error() and returns `status`, so that a caller can write `return pb_fail(...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), visibility("hidden")))
#endif
pb_status pb_fail(pb_status status, const char *format, ...);

#endif
