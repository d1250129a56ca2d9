/* What the runtime uses of string.h, for compilers without a C library; whoever links has the functions. */
#ifndef PULLBACK_STRING_H
#define PULLBACK_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
int memcmp(const void *a, const void *b, size_t count);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);

#endif
