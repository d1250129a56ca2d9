/* Clock: monotonic time for profiles and for the thread pool's spinning. */
#include "internal.h"

#ifdef PB_NO_THREADS

PB_API int64_t pb_now_ns(void)
{
    return 0;
}

#else

#include <time.h>

PB_API int64_t pb_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#endif
