/* Which of a library's programs for x86-64 this CPU can run: what code for x86-64-v3 and x86-64-v4 takes for granted. */
#if defined(__x86_64__) || defined(_M_X64)

#include <cpuid.h>

enum { PB_CPU_AVX2 = 1, PB_CPU_AVX512 = 2 };

/* The vector registers that the operating system saves, one bit for a kind. */
static unsigned saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* A set of PB_CPU_… */
static unsigned pb_cpu_abilities(void)
{
    enum {
        FMA = 1 << 12, MOVBE = 1 << 22, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29, /* leaf 1, ecx */
        BMI1 = 1 << 3, AVX2 = 1 << 5, BMI2 = 1 << 8,                                      /* leaf 7, ebx */
        AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512CD = 1 << 28, AVX512BW = 1 << 30,
        LZCNT = 1 << 5,                                                                   /* leaf 80000001, ecx */
        YMM = 6, ZMM = 0xe6                                                               /* of saved_registers() */
    };
    const unsigned first = FMA | MOVBE | OSXSAVE | AVX | F16C, seventh = BMI1 | AVX2 | BMI2;
    const unsigned wide = AVX512F | AVX512DQ | AVX512CD | AVX512BW | 1u << 31; /* the last is AVX512VL */
    unsigned a, b, c, d, extended = 0;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d))
        extended = c;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first || !(extended & LZCNT))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & seventh) != seventh || (saved_registers() & YMM) != YMM)
        return 0;
    return (b & wide) == wide && (saved_registers() & ZMM) == ZMM ? PB_CPU_AVX2 | PB_CPU_AVX512 : PB_CPU_AVX2;
}

#endif
