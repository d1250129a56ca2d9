/* The runtime of an exported trainer as one translation unit, in which everything is static. */
#ifndef PB_API
#ifdef __GNUC__
#define PB_API static __attribute__((unused)) /* a library uses what its header promises, and that may be less */
#else
#define PB_API static
#endif
#endif

#include "instance.h"

#include "../../runtime/native/clock.c"
#include "../../runtime/native/convert.c"
#include "../../runtime/native/float_mode.c"
#include "../../runtime/native/thread_pool.c"

#include "call.c"
#include "checkpoint.c"
#include "dtypes.c"
#include "evaluate.c"
#include "kept.c"
#include "model.c"
#include "order.c"
#include "run.c"
#include "text.c"
