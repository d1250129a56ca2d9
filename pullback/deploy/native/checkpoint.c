/* Checkpoint: Python's own files, written and read. */
#include "instance.h"

int64_t pb_checkpoint_arena_bytes(const pb_program *program)
{
    return program->header_bytes;
}
