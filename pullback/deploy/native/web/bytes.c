/* The functions of a C library that the runtime and compiled code call. Blocks are moved by WebAssembly's own
 * instructions, which the compiler makes of these builtins. */
void *memcpy(void *to, const void *from, size_t count)
{
    return __builtin_memcpy(to, from, count);
}

void *memmove(void *to, const void *from, size_t count)
{
    return __builtin_memmove(to, from, count);
}

void *memset(void *to, int byte, size_t count)
{
    return __builtin_memset(to, byte, count);
}

int memcmp(const void *a, const void *b, size_t count)
{
    const unsigned char *one = a, *other = b;
    for (size_t i = 0; i < count; i++)
        if (one[i] != other[i])
            return one[i] < other[i] ? -1 : 1;
    return 0;
}

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length] != 0)
        length++;
    return length;
}

int strcmp(const char *a, const char *b)
{
    while (*a != 0 && *a == *b) {
        a++;
        b++;
    }
    return (unsigned char)*a < (unsigned char)*b ? -1 : *a != *b;
}
