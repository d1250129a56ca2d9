/* Preloaded: counts the calls with which a file is replaced, and ends or refuses one of them; counts allocations. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTHING, END_BEFORE, END_AFTER, FAIL, HALF };

static int counting, calls, chosen, manner, problem;
static long allocations;
static char names[256]; /* the first letter of each call but fsync ('s') and fchmod ('m') */

/* The call number `number` from now on: the process ends before or after it, or it fails with an errno. HALF: of the
 * bytes that it should write, half are written, and then the process ends. */
void faults_begin(int number, int how, int with_errno)
{
    calls = 0;
    chosen = number;
    manner = how;
    problem = with_errno;
    allocations = 0;
    names[0] = '\0';
    counting = 1;
}

int faults_end(void)
{
    counting = 0;
    return calls;
}

const char *faults_names(void)
{
    return names;
}

long faults_allocations(void)
{
    return allocations;
}

/* Whether this call is to fail. */
static int fails(char name)
{
    if (counting && calls < (int)sizeof names - 1) {
        names[calls] = name;
        names[calls + 1] = '\0';
    }
    if (!counting || ++calls != chosen)
        return 0;
    if (manner == END_BEFORE)
        _exit(42);
    errno = problem;
    return manner == FAIL;
}

static void after(void)
{
    if (counting && calls == chosen && manner == END_AFTER)
        _exit(42);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

#define WRAPPED(letter, name, parameters, arguments) \
    int name parameters                              \
    {                                                \
        int result;                                  \
        if (fails(letter))                           \
            return -1;                               \
        result = REAL(name) arguments;               \
        after();                                     \
        return result;                               \
    }

WRAPPED('s', fsync, (int file), (file))
WRAPPED('r', rename, (const char *from, const char *to), (from, to))
WRAPPED('u', unlink, (const char *path), (path))
WRAPPED('m', fchmod, (int file, mode_t mode), (file, mode))
WRAPPED('c', close, (int file), (file))

/* HALF: the file has become shorter. */
ssize_t pread(int file, void *bytes, size_t count, off_t offset)
{
    ssize_t result;
    if (fails('p'))
        return -1;
    if (counting && calls == chosen && manner == HALF)
        return 0;
    result = REAL(pread)(file, bytes, counting && count > 600 ? count / 2 : count, offset);
    after();
    return result;
}

ssize_t write(int file, const void *bytes, size_t count)
{
    ssize_t result;
    if (fails('w'))
        return -1;
    if (counting && calls == chosen && manner == HALF) {
        REAL(write)(file, bytes, count / 2);
        _exit(42);
    }
    result = REAL(write)(file, bytes, counting && count > 600 ? count / 2 : count); /* short writes are allowed */
    after();
    return result;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;
    int result;
    va_start(more, flags);
    mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (fails('o'))
        return -1;
    result = REAL(open)(path, flags, mode);
    after();
    return result;
}

/* ---- allocations: glibc's own functions under other names ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t bytes)
{
    allocations += counting;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations += counting;
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    allocations += counting;
    return __libc_realloc(block, bytes);
}
