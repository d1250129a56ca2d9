/* The runtime of an exported trainer as one translation unit, in which everything is static. */
#ifndef PB_API
#ifdef __GNUC__
#define PB_API static __attribute__((unused)) /* a library uses what its header promises, and that may be less */
#else
#define PB_API static
#endif
#endif

#ifdef PB_WITH_HEAP /* compiled code keeps values whose number only running tells */
#include "heap_blocks.c"
#else
#define PB_NO_HEAP
#endif

#include "instance.h"

#ifdef PB_WITH_HEAP
#include "../../runtime/native/heap.c"
#endif

#include "../../runtime/native/clock.c"
#include "../../runtime/native/convert.c"
#include "../../runtime/native/float_mode.c"
#include "../../runtime/native/thread_pool.c"

#include "call.c"
#include "checkpoint.c"
#include "checkpoint_read.c"
#include "dtypes.c"
#include "evaluate.c"
#include "json.c"
#include "kept.c"
#include "model.c"
#include "order.c"
#include "repr.c"
#include "run.c"
#include "sha256.c"
#include "text.c"

#ifndef PB_NO_FILES
#include "files.c"
#endif
