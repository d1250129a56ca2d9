/* Blocks for the heaps of compiled code (heap.c), from malloc, which aligns to less than these are. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HEAP_ALIGNMENT = 64 }; /* PB_ALIGNMENT, of a header that comes later */

/* Where malloc's block begins stands right before ours. */
static void *heap_allocate(size_t bytes)
{
    char *base = bytes <= PTRDIFF_MAX - HEAP_ALIGNMENT ? malloc(bytes + HEAP_ALIGNMENT) : NULL;
    if (base == NULL)
        return NULL;
    char *block = base + HEAP_ALIGNMENT - (uintptr_t)base % HEAP_ALIGNMENT;
    memcpy(block - sizeof base, &base, sizeof base);
    return block;
}

static void heap_free(void *block)
{
    char *base;
    memcpy(&base, (char *)block - sizeof base, sizeof base);
    free(base);
}

#define HEAP_ALLOCATE heap_allocate
#define HEAP_FREE heap_free
