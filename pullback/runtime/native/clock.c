/* Clock: monotonic time for profiles and for the thread pool's spinning. */
#include "internal.h"

#include <time.h>

int64_t pb_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
