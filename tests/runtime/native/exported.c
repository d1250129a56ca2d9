/* What an exported library has of the C runtime, in one file as there; compiled with PB_API as a static one's. */
#ifdef PB_NO_THREADS /* and so without memory from a system */
#define PB_NO_HEAP
#else
#include "../../../pullback/deploy/native/heap_blocks.c"
#endif

#include "thread_pool.c"

#ifndef PB_NO_HEAP
#include "heap.c"
#endif

#include "clock.c"
#include "convert.c"
#include "float_mode.c"
