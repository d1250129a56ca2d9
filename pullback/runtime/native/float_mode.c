/* What a thread's CPU does with floating-point numbers besides computing them: how it rounds, and whether subnormal
 * numbers count as zeros. */
#include "internal.h"

PB_API uint64_t pb_float_mode(void)
{
#if defined(__SSE__)
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the flags of what has happened */
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

PB_API void pb_set_float_mode(uint64_t mode)
{
    if (mode == pb_float_mode())
        return;
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr((unsigned)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#endif
}
