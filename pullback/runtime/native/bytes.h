/* The six functions that all of the runtime uses: of the C library where there is one, or else of whoever links. */
#ifndef PULLBACK_BYTES_H
#define PULLBACK_BYTES_H

#ifdef __has_include
#if !__has_include(<string.h>)
#define PB_NO_STRING_H
#endif
#endif

#ifdef PB_NO_STRING_H
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
int memcmp(const void *a, const void *b, size_t count);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
#else
#include <string.h>
#endif

#endif
