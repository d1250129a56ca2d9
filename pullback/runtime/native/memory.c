/* Memory: aligned blocks, with counters that tests and the memory planner's checks read. */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int64_t allocation_count;
static _Atomic int64_t allocated_bytes;
static _Atomic int64_t peak_bytes;

/* A block's size stands in the PB_ALIGNMENT bytes before it. */
static size_t *size_of_block(void *block)
{
    return (size_t *)((char *)block - PB_ALIGNMENT);
}

static void raise_peak(int64_t bytes)
{
    int64_t peak = atomic_load(&peak_bytes);
    while (bytes > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, bytes))
        ;
}

void *pb_alloc(size_t bytes)
{
    void *base = NULL;
    if (bytes > PTRDIFF_MAX - PB_ALIGNMENT || posix_memalign(&base, PB_ALIGNMENT, PB_ALIGNMENT + bytes) != 0) {
        pb_fail(PB_ERROR_MEMORY, "out of memory: could not allocate %zu bytes", bytes);
        return NULL;
    }
    void *block = (char *)base + PB_ALIGNMENT;
    *size_of_block(block) = bytes;
    atomic_fetch_add(&allocation_count, 1);
    raise_peak(atomic_fetch_add(&allocated_bytes, (int64_t)bytes) + (int64_t)bytes);
    return block;
}

void pb_free(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub(&allocated_bytes, (int64_t)*size_of_block(block));
    free(size_of_block(block));
}

int64_t pb_allocation_count(void)
{
    return atomic_load(&allocation_count);
}

int64_t pb_allocated_bytes(void)
{
    return atomic_load(&allocated_bytes);
}

int64_t pb_peak_bytes(void)
{
    return atomic_load(&peak_bytes);
}
