/* Runtime table: the one door through which compiled code reaches this library. */
#include "internal.h"

const pb_runtime *pb_runtime_get(void)
{
    static const pb_runtime runtime = {PB_ABI, pb_parallel_for, pb_now_ns, pb_parallel_share};
    return &runtime;
}
