/* The runtime of an exported function as one translation unit, in which everything is static. */
#ifndef PB_API
#ifdef __GNUC__
#define PB_API static __attribute__((unused))
#else
#define PB_API static
#endif
#endif

#ifdef PB_WITH_HEAP /* compiled code keeps values whose number only running tells */
#include "heap_blocks.c"
#else
#define PB_NO_HEAP
#endif

#include "../../runtime/native/internal.h"

#ifdef PB_WITH_HEAP
#include "../../runtime/native/heap.c"
#endif

#include "../../runtime/native/clock.c"
#include "../../runtime/native/convert.c"
#include "../../runtime/native/float_mode.c"
#include "../../runtime/native/thread_pool.c"

#include "function.c"
