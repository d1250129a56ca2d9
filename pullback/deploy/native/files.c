/* Files: checkpoints saved and loaded. A file is replaced in one step that survives a crash of the process or the
 * machine.
 *
 * The new contents go to path.tmp, which is locked as long as it is in use. What a killed process left behind is known
 * by its missing lock, and removed.
 */
#include "instance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Notes what a function of the system has just said. */
static pb_status refuse_file(pb_model *model, const char *path, const char *what)
{
    const char *words = strerror(errno);
    return pb_refuse(model, PB_ERROR_FILE, PB_PATH(path), PB_TEXT(": cannot be "), PB_TEXT(what),
                     PB_TEXT(": "), PB_TEXT(words));
}

#ifdef _WIN32

#include <io.h>
#include <windows.h>

enum { LONGEST_PATH = 4096 };

/* The file that a path names; the caller's own words for it are good enough. */
static int follow(const char *path, char *target)
{
    if (strlen(path) >= LONGEST_PATH) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(target, path);
    return 0;
}

/* A file that somebody has open cannot be removed. */
static int create(const char *temporary, const char *target)
{
    int file;
    (void)target;
    _unlink(temporary);
    file = _open(temporary, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY, _S_IREAD | _S_IWRITE);
    return file;
}

static int64_t write_some(int file, const void *bytes, size_t count)
{
    return _write(file, bytes, count > 1 << 30 ? 1 << 30 : (unsigned)count);
}

static int synchronize(int file)
{
    return _commit(file);
}

/* Afterwards, whether it failed or not, *file may be closed: then it is -1. */
static int replace(int *file, const char *temporary, const char *target)
{
    int failed = _close(*file) != 0;
    *file = -1;
    if (failed)
        return -1;
    if (MoveFileExA(temporary, target, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
        return 0;
    errno = EACCES;
    return -1;
}

static void give_up(int file, const char *temporary)
{
    int problem = errno;
    if (file >= 0)
        _close(file);
    _unlink(temporary);
    errno = problem;
}

static int open_for_reading(const char *path, int64_t *size)
{
    int file = _open(path, _O_RDONLY | _O_BINARY);
    struct _stat64 found;
    if (file >= 0 && (_fstat64(file, &found) != 0 || !(found.st_mode & _S_IFREG))) {
        _close(file);
        errno = EINVAL;
        return -1;
    }
    *size = file >= 0 ? found.st_size : 0;
    return file;
}

static int64_t read_some(int file, int64_t offset, void *bytes, size_t count)
{
    if (_lseeki64(file, offset, SEEK_SET) != offset)
        return -1;
    return _read(file, bytes, count > 1 << 30 ? 1 << 30 : (unsigned)count);
}

static void close_file(int file)
{
    _close(file);
}

#else

#include <limits.h>
#include <sys/file.h>
#include <unistd.h>

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

#ifdef PATH_MAX
enum { LONGEST_PATH = PATH_MAX };
#else
enum { LONGEST_PATH = 4096 };
#endif

/* The file that a path names, of a symbolic link the one that it leads to; there need not be one. */
static int follow(const char *path, char *target)
{
    if (realpath(path, target) != NULL)
        return 0;
    if (errno != ENOENT)
        return -1;
    if (strlen(path) >= LONGEST_PATH) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(target, path);
    return 0;
}

/* Whether the open file is still the one of that name. */
static int is_named(int file, const char *name)
{
    struct stat own, named;
    return fstat(file, &own) == 0 && lstat(name, &named) == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

/* Locks a file; -1 when somebody else has it. A file system without locks is taken as it is. */
static int lock(int file)
{
    while (flock(file, LOCK_EX | LOCK_NB) != 0)
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? -1 : 0;
    return 0;
}

/* Removes what a killed process left behind; -1 when it is in use, or no file that is written so. */
static int remove_leftover(const char *temporary)
{
    int file = open(temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), failed;
    if (file < 0)
        return errno == ENOENT ? 0 : errno == ELOOP ? unlink(temporary) : -1;
    failed = lock(file) != 0;
    if (failed)
        errno = EBUSY;
    else if (is_named(file, temporary))
        failed = unlink(temporary) != 0;
    close(file);
    return failed ? -1 : 0;
}

/* Gives the new file the mode of the old one, if there is one and it may be replaced. */
static int make_alike(int file, const char *target)
{
    struct stat old;
    if (stat(target, &old) != 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISREG(old.st_mode)) {
        errno = S_ISDIR(old.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    return access(target, W_OK) != 0 ? -1 : fchmod(file, old.st_mode & 0777);
}

static void give_up(int file, const char *temporary)
{
    int problem = errno;
    unlink(temporary);
    close(file);
    errno = problem;
}

enum { MOST_TRIES = 1000 }; /* to be the one that writes */

/* A new file of this name, locked: its descriptor. */
static int create(const char *temporary, const char *target)
{
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        int file = open(temporary, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0) {
            if (errno != EEXIST || remove_leftover(temporary) != 0)
                return -1;
            continue;
        }
        if (lock(file) == 0 && is_named(file, temporary)) {
            if (make_alike(file, target) == 0)
                return file;
            give_up(file, temporary);
            return -1;
        }
        close(file); /* before it was locked, another process took it for a leftover */
    }
    errno = EBUSY;
    return -1;
}

static int64_t write_some(int file, const void *bytes, size_t count)
{
    return write(file, bytes, count > SSIZE_MAX ? SSIZE_MAX : count);
}

static int synchronize(int file)
{
#ifdef F_FULLFSYNC
    if (fcntl(file, F_FULLFSYNC) == 0) /* fsync leaves it in the disk's own memory there */
        return 0;
#endif
    return fsync(file);
}

/* Has the change of names survive a crash of the machine, where folders can be synchronised. */
static void synchronize_folder(const char *target)
{
    char folder[LONGEST_PATH];
    const char *slash = strrchr(target, '/');
    size_t length = slash == NULL ? 0 : slash == target ? 1 : (size_t)(slash - target);
    int file;
    memcpy(folder, target, length);
    strcpy(folder + length, length == 0 ? "." : "");
    file = open(folder, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        fsync(file);
        close(file);
    }
}

static int replace(int *file, const char *temporary, const char *target)
{
    if (rename(temporary, target) != 0)
        return -1;
    close(*file); /* not before: it is locked so long */
    synchronize_folder(target);
    return 0;
}

static int open_for_reading(const char *path, int64_t *size)
{
    struct stat found;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), problem = 0;
    if (file < 0)
        return -1;
    if (fstat(file, &found) != 0)
        problem = errno;
    else if (!S_ISREG(found.st_mode))
        problem = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
    if (problem != 0) {
        close(file);
        errno = problem;
        return -1;
    }
    *size = found.st_size;
    return file;
}

static int64_t read_some(int file, int64_t offset, void *bytes, size_t count)
{
    return pread(file, bytes, count > SSIZE_MAX ? SSIZE_MAX : count, (off_t)offset);
}

static void close_file(int file)
{
    close(file);
}

#endif

/* ---- saving ---------------------------------------------------------------------------------------------------- */

/* Returns 0 or errno. */
static int write_file(void *context, const void *bytes, size_t count)
{
    const int *file = context;
    for (const char *next = bytes; count > 0;) {
        int64_t written = write_some(*file, next, count);
        if (written == 0)
            errno = EIO;
        if (written <= 0 && errno != EINTR)
            return errno;
        next += written > 0 ? written : 0;
        count -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static pb_status save_as(pb_model *model, const char *path)
{
    char target[LONGEST_PATH + 1], temporary[LONGEST_PATH + sizeof ".tmp"];
    int file;
    pb_status status;
    if (path == NULL || *path == '\0')
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the path is "), PB_TEXT(path == NULL ? "NULL" : "empty"));
    if (follow(path, target) != 0)
        return refuse_file(model, path, "written");
    strcpy(temporary, target);
    strcat(temporary, ".tmp");
    file = create(temporary, target);
    if (file < 0)
        return refuse_file(model, path, "written");
    errno = 0;
    status = pb_write_checkpoint(model, write_file, &file, NULL);
    if (status == PB_ERROR_FILE || (status == PB_OK && synchronize(file) != 0))
        status = refuse_file(model, path, "written");
    if (status != PB_OK) {
        give_up(file, temporary);
        return status;
    }
    if (replace(&file, temporary, target) != 0) {
        status = refuse_file(model, path, "written");
        give_up(file, temporary);
    }
    return status;
}

pb_status pb_model_save(pb_model *model, const char *path)
{
    pb_status status = pb_enter(model, 1);
    return status != PB_OK ? status : pb_leave(model, save_as(model, path));
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

/* Returns 0 or errno; -1 when the file has become shorter. */
static int read_file(void *context, int64_t offset, void *bytes, size_t count)
{
    const int *file = context;
    for (char *next = bytes; count > 0;) {
        int64_t some = read_some(*file, offset, next, count);
        if (some < 0 && errno != EINTR)
            return errno;
        if (some == 0) {
            errno = 0;
            return -1;
        }
        next += some > 0 ? some : 0;
        offset += some > 0 ? some : 0;
        count -= some > 0 ? (size_t)some : 0;
    }
    return 0;
}

static pb_status load_from(pb_model *model, const char *path)
{
    int64_t size;
    int file;
    pb_status status;
    if (path == NULL || *path == '\0')
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the path is "), PB_TEXT(path == NULL ? "NULL" : "empty"));
    file = open_for_reading(path, &size);
    if (file < 0)
        return refuse_file(model, path, "read");
    status = pb_read_checkpoint(model, read_file, &file, size);
    if (status == PB_ERROR_FILE && errno == 0)
        status = pb_refuse(model, PB_ERROR_CHECKPOINT,
                           PB_TEXT("the checkpoint is truncated: it became shorter while it was read"));
    else if (status == PB_ERROR_FILE)
        status = refuse_file(model, path, "read");
    close_file(file);
    return status;
}

pb_status pb_model_load(pb_model *model, const char *path)
{
    pb_status status = pb_enter(model, 0);
    return status != PB_OK ? status : pb_leave(model, load_from(model, path));
}
