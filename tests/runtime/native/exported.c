/* What an exported library has of the C runtime, in one file as there; compiled with PB_API as a static one's. */
#include "thread_pool.c"

#include "clock.c"
#include "convert.c"
#include "float_mode.c"
