/* Memory: aligned blocks, with counters that tests and the memory planner's checks read.
 *
 * Very large blocks are mappings of their own: what is freed is no longer the process's, and a block of zeros is not
 * filled. Smaller ones come from malloc, which gives their pages out again: a result of a megabyte, returned by each
 * call, would else take longer to map than to compute.
 */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20) /* of x86-64, and of AArch64 with pages of 4 KiB */

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

/* What a block of so many bytes takes as a mapping; 0 when it is none. */
static size_t mapped_length(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes < PB_MAPPED_BYTES ? 0 : (PB_ALIGNMENT + bytes + page - 1) / page * page;
}

/* Memory for a block and what stands before it, zeros if it is a mapping; NULL when there is none. */
static void *allocate(size_t bytes)
{
    size_t length = mapped_length(bytes);
    void *base = NULL;
    if (length == 0)
        return posix_memalign(&base, PB_ALIGNMENT, PB_ALIGNMENT + bytes) == 0 ? base : NULL;
    base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Fewer faults, fewer misses of the TLB; a kernel without huge pages refuses. What is left over of the last one
     * stays in small pages, so that no page is touched for nothing. */
    madvise(base, length / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return base;
}

void *pb_alloc(size_t bytes)
{
    void *base = bytes > PTRDIFF_MAX / 2 ? NULL : allocate(bytes);
    if (base == NULL) {
        pb_fail(PB_ERROR_MEMORY, "out of memory: could not allocate %zu bytes", bytes);
        return NULL;
    }
    void *block = (char *)base + PB_ALIGNMENT;
    *size_of_block(block) = bytes;
    atomic_fetch_add(&allocation_count, 1);
    raise_peak(atomic_fetch_add(&allocated_bytes, (int64_t)bytes) + (int64_t)bytes);
    return block;
}

void *pb_alloc_zeros(size_t bytes)
{
    void *block = pb_alloc(bytes);
    if (block != NULL && mapped_length(bytes) == 0)
        memset(block, 0, bytes);
#ifdef MADV_POPULATE_WRITE
    else if (block != NULL) /* pages that are read first and written then would take two faults each */
        madvise(size_of_block(block), mapped_length(bytes), MADV_POPULATE_WRITE);
#endif
    return block;
}

void pb_free(void *block)
{
    if (block == NULL)
        return;
    size_t bytes = *size_of_block(block), length = mapped_length(bytes);
    atomic_fetch_sub(&allocated_bytes, (int64_t)bytes);
    if (length != 0)
        munmap(size_of_block(block), length);
    else
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
