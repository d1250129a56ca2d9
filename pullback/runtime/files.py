"""Files of the user's: paths checked, whole regular files read, and contents replaced in one step."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import platformdirs
from filelock import lock_descriptor  # not later: it registers what forks do, and none may begin meanwhile

from pullback.ir.errors import ArgumentError

_LONGEST_STEM = 200  # bytes of a name that go into that of a temporary file; most file systems allow 255
_LONGEST_SHOWN = 500  # characters
_MOST_AT_ONCE = 1 << 30  # bytes: systems write less than 2 GiB in a call
_BINARY = getattr(os, "O_BINARY", 0)  # Windows
_READ = os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0)  # a FIFO is refused, not waited for
_REPLACES_OPEN_FILES = os.name == "posix"


def user_cache() -> Path:
    """The system's directory for what may be made or fetched again: on Linux ``$XDG_CACHE_HOME/pullback``, or
    ``~/.cache/pullback``; one that cannot exist when there is no home."""
    directory = platformdirs.user_cache_path("pullback", appauthor=False)
    return directory if directory.is_absolute() else Path("/nonexistent/pullback")


def path_of(value: Any, example: str = '"model.safetensors"') -> str:
    """What a user gives as a path (str, bytes or os.PathLike), as text; an ArgumentError when it is none."""
    try:
        path = os.fsdecode(os.fspath(value))
        os.fsencode(path)
    except TypeError:
        hint = f"give the name of the file, such as {example}"
        if hasattr(value, "read") or hasattr(value, "write"):
            hint = f"give the name of the file, such as {example}, not the open file"
        raise ArgumentError(f"expected a path, got {type(value).__name__}", hint=hint) from None
    except UnicodeError:
        raise ArgumentError(f"{value!r} is no path: the file system cannot encode it") from None
    if not path or "\0" in path:
        problem = "it holds a zero byte" if path else "it is empty"
        raise ArgumentError(f"{value!r} is no path: {problem}", hint=f"give the name of a file, such as {example}")
    return path


def shown(path: str) -> str:
    """A path as messages show it: a very long one without its middle."""
    return path if len(path) <= _LONGEST_SHOWN else f"{path[:80]}…{path[-80:]}"


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, opened for reading; an OSError when it is anything else, such as a folder or a device."""
    file = os.fdopen(os.open(path, _READ), "rb")
    try:
        _check_regular(os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file's contents in one step: see :func:`replacing`."""
    with replacing(path) as (descriptor, _):
        write_at(descriptor, 0, data)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """A new file, its descriptor and path, which replaces one when the block ends, in one step that survives a crash of
    the process or of the machine; an exception, an OSError at the end too, leaves the old file as it was, and nothing
    beside it.

    The new file lies hidden beside the old one, and is locked as long as it is in use: what a killed process left
    behind is known by its missing lock, and removed here. A symbolic link is followed, and stays: the file that it
    names is replaced. The new file has the mode of the old one, and its owner where that is allowed.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    old = _existing(target)
    stem = _stem(name)
    _remove_leftovers(folder, stem)
    descriptor, temporary = _locked_file(folder, stem, 0o666 if old is None else 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        try:
            yield descriptor, temporary
            if old is not None:
                _make_alike(file.fileno(), old)
            os.fsync(file.fileno())
            if not _REPLACES_OPEN_FILES:
                file.close()
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    _sync_folder(folder)


def write_at(descriptor: int, offset: int, data: bytes | memoryview) -> None:
    """Write all bytes to a place of a file."""
    left = memoryview(data)
    os.lseek(descriptor, offset, os.SEEK_SET)
    while left:
        left = left[os.write(descriptor, left[:_MOST_AT_ONCE]) :]


def _existing(path: str) -> os.stat_result | None:
    """What is known of the file that is to be replaced; None where there is none, an OSError for what is no file that
    the user may write."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    _check_regular(found)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return found


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        kind = "FIFO" if stat.S_ISFIFO(found.st_mode) else "socket" if stat.S_ISSOCK(found.st_mode) else "device"
        raise OSError(errno.EINVAL, f"Is a {kind}, not a regular file")


def _make_alike(descriptor: int, old: os.stat_result) -> None:
    """Give a new file the owner and mode of the old one, where the system has them. Where it cannot have the owner, it
    is this user's."""
    if hasattr(os, "geteuid") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _stem(name: str) -> str:
    """A file's name; of a long one a digest, so that there is room for an ending."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST_STEM else hashlib.sha256(encoded).hexdigest()


def _locked_file(folder: str, stem: str, mode: int) -> tuple[int, str]:
    """A new file ``.<stem>.<eight characters>.tmp``, locked where the file system can: its descriptor and path."""
    while True:
        temporary = os.path.join(folder, f".{stem}.{secrets.token_hex(4)}.tmp")
        try:
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _BINARY, mode)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # a file system without locks: what a killed process leaves behind stays
            lock_descriptor(descriptor)
        if os.path.exists(temporary):
            return descriptor, temporary
        os.close(descriptor)  # before it was locked, another process took it for a leftover


def _remove_leftovers(folder: str, stem: str) -> None:
    """Remove the files for writing under this name that nobody has locked."""
    pattern = re.compile(rf"\.{re.escape(stem)}\.[a-z0-9_]{{8}}\.tmp", re.DOTALL)  # as _locked_file names them
    names: list[str] = []
    with contextlib.suppress(OSError):  # a folder may be written to and not be listed
        names = [name for name in os.listdir(folder) if pattern.fullmatch(name)]
    for path in (os.path.join(folder, name) for name in names):
        with contextlib.suppress(OSError), open_regular(path) as file:
            if lock_descriptor(file.fileno(), blocking=False):
                os.unlink(path)


def _sync_folder(folder: str) -> None:
    """Have the change of names survive a crash of the machine, where folders can be opened and synchronised."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
