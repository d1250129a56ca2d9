/* Heap: memory for what compiled code keeps while it runs, in blocks that double.
 *
 * An exported library says where blocks come from: HEAP_ALLOCATE(bytes), aligned to PB_ALIGNMENT, and HEAP_FREE(block).
 */
#include "internal.h"

#include <string.h>

#ifndef HEAP_ALLOCATE
#define HEAP_ALLOCATE pb_alloc
#define HEAP_FREE pb_free
#endif

#define FIRST_BLOCK ((int64_t)4 << 10)
#define LARGEST_BLOCK ((int64_t)64 << 20) /* unless a single piece of memory is larger */

/* The beginning of a block; what it holds begins after PB_ALIGNMENT bytes. */
struct heap_block {
    int64_t bytes;    /* with this */
    int64_t previous; /* the block before; 0: none */
    int64_t top;      /* of the heap when the block was made */
};

static struct heap_block *newest_block(const pb_heap *heap)
{
    return (struct heap_block *)(uintptr_t)heap->block;
}

/* A new block with room for so many bytes; whether there is memory for one. */
static int add_block(pb_heap *heap, int64_t bytes)
{
    const struct heap_block *last = newest_block(heap);
    int64_t wanted = last == NULL ? FIRST_BLOCK : 2 * last->bytes;
    int64_t least = bytes + PB_ALIGNMENT;
    wanted = wanted > LARGEST_BLOCK ? LARGEST_BLOCK : wanted;
    wanted = wanted < least ? least : wanted;
    struct heap_block *block = HEAP_ALLOCATE((size_t)wanted);
    if (block == NULL && wanted > least) {
        wanted = least;
        block = HEAP_ALLOCATE((size_t)wanted);
    }
    if (block == NULL)
        return 0;
    *block = (struct heap_block){wanted, heap->block, heap->top};
    heap->block = (int64_t)(uintptr_t)block;
    heap->top = heap->block + PB_ALIGNMENT;
    heap->end = heap->block + wanted;
    return 1;
}

PB_API void *pb_heap_grow(const pb_runtime *runtime, pb_heap *heap, int64_t bytes)
{
    (void)runtime;
    if (bytes < 0 || bytes > PTRDIFF_MAX / 2)
        return NULL;
    bytes = (bytes + PB_ALIGNMENT - (bytes > 0)) / PB_ALIGNMENT * PB_ALIGNMENT; /* what is empty has an address, too */
    if (bytes > heap->end - heap->top && !add_block(heap, bytes))
        return NULL;
    int64_t begin = heap->top;
    heap->top += bytes;
    return (void *)(uintptr_t)begin;
}

static void poison(const pb_heap *heap, int64_t begin, int64_t end)
{
    if (heap->poisons)
        memset((void *)(uintptr_t)begin, 0xFF, (size_t)(end - begin));
}

PB_API void pb_heap_shrink(const pb_runtime *runtime, pb_heap *heap, int64_t mark)
{
    (void)runtime;
    while (heap->block != 0 && !(heap->block < mark && mark <= heap->end)) {
        struct heap_block *block = newest_block(heap);
        poison(heap, heap->block + PB_ALIGNMENT, heap->end);
        heap->top = block->top;
        heap->block = block->previous;
        heap->end = heap->block == 0 ? 0 : heap->block + newest_block(heap)->bytes;
        HEAP_FREE(block);
    }
    if (heap->block != 0) {
        poison(heap, mark, heap->top);
        heap->top = mark;
    }
}
