/* Memory: aligned blocks, with counters that tests and the memory planner's checks read. */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20) /* of x86-64, and of AArch64 with pages of 4 KiB */
#define LARGE ((size_t)32 << 20)    /* from here on malloc maps each block by itself, and unmaps it when it is freed */

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

/* A large block, such as a step's arena, lies in huge pages where the system has some: a step that goes through all of
 * it would find few of its small pages' addresses where it looked them up last. What is left over of the last huge page
 * stays in small ones, so that no page is touched for nothing. */
static int allocate(void **base, size_t bytes)
{
    size_t alignment = bytes >= LARGE ? HUGE_PAGE : PB_ALIGNMENT;
    int status = posix_memalign(base, alignment, bytes);
#ifdef MADV_HUGEPAGE
    if (status == 0 && bytes >= LARGE)
        (void)madvise(*base, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice: without it all is as before */
#endif
    return status;
}

void *pb_alloc(size_t bytes)
{
    void *base = NULL;
    if (bytes > PTRDIFF_MAX - PB_ALIGNMENT || allocate(&base, PB_ALIGNMENT + bytes) != 0) {
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
