/* Memory: aligned blocks, with counters that tests and the memory planner's checks read.
 *
 * Very large blocks are mappings of their own, so that what is freed is no longer the process's. Smaller ones come
 * from malloc. Either way the system may have to map and clear the pages of a new block, which takes longer than to
 * compute what will stand there. So the last few blocks that were freed are kept, for a program that calls a function
 * again and again, and drops each result. What is kept never makes the process larger than it has been.
 */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20) /* of x86-64, and of AArch64 with pages of 4 KiB */
#define KEPT_BLOCKS 16
#define KEPT_BLOCK_MIN ((size_t)32 << 10) /* smaller ones malloc keeps itself */
#define KEPT_PART 16 /* of the machine's memory, at the most, unless the program says otherwise */

static _Atomic int64_t allocation_count;
static _Atomic int64_t allocated_bytes;
static _Atomic int64_t peak_bytes;

static _Atomic(void *) kept[KEPT_BLOCKS];
static _Atomic int64_t kept_bytes;
static _Atomic int64_t kept_bytes_max = -1; /* not asked for yet */

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

static void release(void *block)
{
    if (block == NULL)
        return;
    size_t length = mapped_length(*size_of_block(block));
    if (length != 0)
        munmap(size_of_block(block), length);
    else
        free(size_of_block(block));
}

/* The block of a slot, now the caller's, or NULL. A slot is emptied before its block is looked at, so that no other
 * thread frees it meanwhile; and there is no lock that a fork could leave behind. */
static void *take_kept(int slot)
{
    if (atomic_load_explicit(&kept[slot], memory_order_relaxed) == NULL)
        return NULL;
    void *block = atomic_exchange(&kept[slot], NULL);
    if (block != NULL)
        atomic_fetch_sub(&kept_bytes, (int64_t)*size_of_block(block));
    return block;
}

/* Puts a block into a slot. Returns the one that was there, now the caller's, or NULL. */
static void *put_kept(int slot, void *block)
{
    atomic_fetch_add(&kept_bytes, (int64_t)*size_of_block(block));
    void *other = atomic_exchange(&kept[slot], block);
    if (other != NULL)
        atomic_fetch_sub(&kept_bytes, (int64_t)*size_of_block(other));
    return other;
}

/* Releases kept blocks, the oldest first, until they have at most `limit` bytes. */
static void shrink(int64_t limit)
{
    for (int slot = KEPT_BLOCKS - 1; slot >= 0 && atomic_load(&kept_bytes) > limit; slot--)
        release(take_kept(slot));
}

static int64_t most_kept(void)
{
    int64_t most = atomic_load(&kept_bytes_max);
    if (most < 0) {
        int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
        int64_t found = pages > 0 ? pages / KEPT_PART * bytes : 0;
        if (atomic_compare_exchange_strong(&kept_bytes_max, &most, found)) /* else another thread has set it: to most */
            most = found;
    }
    return most;
}

/* Keeps a freed block. The youngest is in the first slot; the blocks before a free slot move up by one. */
static void keep(void *block)
{
    for (int slot = 0; slot < KEPT_BLOCKS && block != NULL; slot++)
        block = put_kept(slot, block);
    release(block);
    shrink(most_kept());
}

/* A kept block of exactly so many bytes, or NULL. */
static void *find(size_t bytes)
{
    for (int slot = 0; slot < KEPT_BLOCKS; slot++) {
        void *block = take_kept(slot);
        if (block != NULL && *size_of_block(block) == bytes)
            return block;
        if (block != NULL)
            release(put_kept(slot, block));
    }
    return NULL;
}

static void *new_block(size_t bytes)
{
    /* what is kept and what is used are together never more than has been used */
    int64_t room = atomic_load(&peak_bytes) - atomic_load(&allocated_bytes) - (int64_t)bytes;
    shrink(room > 0 ? room : 0);
    void *base = allocate(bytes);
    if (base == NULL)
        return NULL;
    void *block = (char *)base + PB_ALIGNMENT;
    *size_of_block(block) = bytes;
    return block;
}

/* As pb_alloc; `*fresh` is whether no block before had this memory. */
static void *new_or_kept(size_t bytes, int *fresh)
{
    void *block = NULL;
    if (bytes >= KEPT_BLOCK_MIN)
        block = find(bytes);
    *fresh = block == NULL;
    if (block == NULL && bytes <= PTRDIFF_MAX / 2)
        block = new_block(bytes);
    if (block == NULL) {
        pb_fail(PB_ERROR_MEMORY, "out of memory: could not allocate %zu bytes", bytes);
        return NULL;
    }
    atomic_fetch_add(&allocation_count, 1);
    raise_peak(atomic_fetch_add(&allocated_bytes, (int64_t)bytes) + (int64_t)bytes);
    return block;
}

void *pb_alloc(size_t bytes)
{
    int fresh;
    return new_or_kept(bytes, &fresh);
}

void *pb_alloc_zeros(size_t bytes)
{
    int fresh;
    void *block = new_or_kept(bytes, &fresh);
    if (block != NULL && !(fresh && mapped_length(bytes) != 0)) /* a new mapping is zeros */
        memset(block, 0, bytes);
#ifdef MADV_POPULATE_WRITE
    else if (block != NULL) /* pages that are read first and written then would take two faults each */
        madvise(size_of_block(block), mapped_length(bytes), MADV_POPULATE_WRITE);
#endif
    return block;
}

int pb_alloc_all_zeros(size_t count, const size_t *bytes, void **blocks)
{
    for (size_t k = 0; k < count; k++) {
        blocks[k] = pb_alloc_zeros(bytes[k]);
        if (blocks[k] == NULL) {
            while (k > 0)
                pb_free(blocks[--k]);
            return PB_ERROR_MEMORY;
        }
    }
    return PB_OK;
}

void pb_free(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub(&allocated_bytes, (int64_t)*size_of_block(block));
    if (*size_of_block(block) < KEPT_BLOCK_MIN)
        release(block);
    else
        keep(block);
}

void pb_keep_at_most(int64_t bytes)
{
    atomic_store(&kept_bytes_max, bytes > 0 ? bytes : 0);
    shrink(most_kept());
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
