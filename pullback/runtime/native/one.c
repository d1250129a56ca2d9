/* The whole runtime as one translation unit: compile this file alone. */
#include "internal.h"

#include "clock.c"
#include "convert.c"
#include "cpus.c"
#include "epoch.c"
#include "float_mode.c"
#include "heap.c"
#include "memory.c"
#include "process_pool.c"
#include "ranks.c"
#include "status.c"
#include "thread_pool.c"
