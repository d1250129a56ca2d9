/* What the runtime uses of math.h, for compilers without a C library. */
#ifndef PULLBACK_MATH_H
#define PULLBACK_MATH_H

#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define fabs(value) __builtin_fabs(value)
#define fabsf(value) __builtin_fabsf(value)

#endif
