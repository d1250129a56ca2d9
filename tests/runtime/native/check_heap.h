/* What both test programs ask of the heap that a table has. */
#include <stdlib.h>
#include <string.h>

/* Memory that holds a number, byte by byte. */
static unsigned char *filled_piece(const pb_runtime *runtime, pb_heap *heap, int64_t bytes, int number)
{
    unsigned char *piece = runtime->grow(runtime, heap, bytes);
    CHECK(piece != NULL && (uintptr_t)piece % PB_ALIGNMENT == 0);
    memset(piece, number, (size_t)bytes);
    return piece;
}

static int holds(const unsigned char *piece, int64_t bytes, int number)
{
    for (int64_t i = 0; i < bytes; i++)
        if (piece[i] != number)
            return 0;
    return 1;
}

/* Many pieces of all sizes, given back to marks on the way and to nothing at the end. */
static void check_heap(const pb_runtime *runtime)
{
    enum { PIECES = 200 };
    static const int64_t sizes[] = {1, 64, 65, 0, 3000, 5000, 100000, 8};
    pb_heap heap;
    unsigned char *pieces[PIECES];
    int64_t marks[PIECES];
    memset(&heap, 0, sizeof heap);
    CHECK(sizeof heap == 64);
    runtime->shrink(runtime, &heap, 0);
    CHECK(runtime->grow(runtime, &heap, 0) != NULL);
    runtime->shrink(runtime, &heap, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++) {
            marks[i] = heap.top;
            pieces[i] = filled_piece(runtime, &heap, sizes[i % 8], i);
        }
        for (int i = PIECES; i-- > 0;) {
            for (int k = i; k >= 0 && k > i - 20; k--)
                CHECK(holds(pieces[k], sizes[k % 8], k));
            runtime->shrink(runtime, &heap, marks[i]);
            CHECK(heap.top == marks[i]);
        }
        CHECK(heap.top == 0 && heap.block == 0 && heap.end == 0);
        filled_piece(runtime, &heap, 10, 1);
        filled_piece(runtime, &heap, 100000, 1);
        runtime->shrink(runtime, &heap, 0);
        CHECK(heap.top == 0 && heap.block == 0);
    }
    int64_t mark = heap.top;
    CHECK(runtime->grow(runtime, &heap, -1) == NULL && runtime->grow(runtime, &heap, INT64_MAX) == NULL);
    CHECK(heap.top == mark);
    heap.poisons = 1;
    pieces[0] = filled_piece(runtime, &heap, 64, 1);
    mark = heap.top;
    pieces[1] = filled_piece(runtime, &heap, 64, 2);
    runtime->shrink(runtime, &heap, mark);
    CHECK(holds(pieces[0], 64, 1) && holds(pieces[1], 64, 0xFF));
    runtime->shrink(runtime, &heap, 0);
}
