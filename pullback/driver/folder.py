"""A folder that is this user's and nobody else's, inside a directory that may be anybody's.

Code that is read from it is run. So what is inside a named directory is left alone: the files are in a folder of their
own, ``pullback-objects-<user>``, which holds a marker. It is used if it is a directory (no symbolic link) of this user
that nobody else can write, and has the marker; it and its files are looked at each time that they are used. A file
counts if it is a regular one of this user that nobody else can write; nothing else is read, replaced or removed.

Where the system has the calls for it, the folder is opened once for each use, and its files are named relative to that:
whoever exchanges a directory on the way to it exchanges nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "of-pullback"
TEMPORARY = re.compile(r"[0-9a-f]{16}\.tmp")  # the name of a file that is being written
_MARKED = b"Compiled code of pullback. This folder may be removed at any time; nothing else belongs in it.\n"
_RELATIVE = {os.open, os.stat, os.access, os.unlink, os.rename, os.utime} <= os.supports_dir_fd and {
    os.listdir,
    os.chmod,
} <= os.supports_fd
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE  # a FIFO does not make its reader wait
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE


class FolderError(OSError):
    """The folder cannot be had, or is not ours; the text goes on after its name."""


def user() -> int | None:
    """The number of the user who runs this process; None where users have no numbers. One that was started with the
    rights of another makes files that are not this user's: it has no folder."""
    return os.getuid() if hasattr(os, "getuid") else None


def _is_ours(info: os.stat_result) -> bool:
    """Whether it is this user's, and nobody else may write it. Where users have no numbers, modes say nothing."""
    return user() is None or (info.st_uid == user() and not info.st_mode & 0o022)


def _is_our_file(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and _is_ours(info)


@dataclass(frozen=True)
class Folder:
    """The folder inside ``directory``."""

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / ("pullback-objects" if user() is None else f"pullback-objects-{user()}")

    def prepare(self) -> None:
        """Make the folder if it is not there. A FolderError says why it cannot be used."""
        try:
            if self.directory.is_symlink():
                raise FolderError(f"is a symbolic link (name the directory itself, {os.path.realpath(self.directory)})")
            if self.directory.exists() and not self.directory.is_dir():
                raise FolderError("is not a directory")
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            with self.opened() as files:
                if not files.can_write():
                    raise FolderError("is not writable")
        except FolderError:
            raise
        except OSError as error:
            raise FolderError(f"can't be used ({error.strerror or error})") from None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Files]:
        """Its files, for one use. A FileNotFoundError when it is not there, a FolderError when it is not ours."""
        descriptor = self._descriptor()
        try:
            files = Files(self.path, descriptor)
            self._check(files)
            yield files
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _descriptor(self) -> int | None:
        if not _RELATIVE:
            return None
        try:
            return os.open(self.path, _READ | os.O_DIRECTORY)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.lexists(self.path):
                raise FolderError(f"has something else in the place of its folder {self.path.name}") from None
            raise

    def _check(self, files: Files) -> None:
        info = files.info()
        if not stat.S_ISDIR(info.st_mode):
            raise FolderError(f"has something else in the place of its folder {self.path.name}")
        if not _is_ours(info):
            other = user() is not None and info.st_uid != user()
            problem = "belongs to another user" if other else "can be written by others"
            raise FolderError(f"holds {self.path.name}, which {problem}")
        if not files.is_marked():
            raise FolderError(f"holds {self.path.name}, which pullback has not made")
        files.close_to_others(info)


class Files:
    """The files of an open folder, by name."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path, self._descriptor = path, descriptor
        self._at: dict[str, Any] = {} if descriptor is None else {"dir_fd": descriptor}

    def read(self, name: str, most: int) -> bytes | None:
        """The content of a file of ours of at most so many bytes; None where there is none."""
        try:
            descriptor = os.open(self._place(name), _READ, **self._at)
        except OSError:
            return None
        try:
            info = os.fstat(descriptor)
            if not _is_our_file(info) or info.st_nlink > 1 or info.st_size > most:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(info.st_size)
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes) -> None:
        """Make the file, or replace one of ours: others see the old one or the new one. An OSError where something else
        has that name."""
        info = self.stat(name)
        if info is not None and not _is_our_file(info):
            raise FileExistsError(errno.EEXIST, "something else has that name", name)
        temporary = os.urandom(8).hex() + ".tmp"
        try:
            self._create(temporary, data)
            here = self._descriptor
            os.replace(self._place(temporary), self._place(name), src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove a file of ours."""
        info = self.stat(name)
        if info is not None and _is_our_file(info):
            with contextlib.suppress(OSError):
                os.unlink(self._place(name), **self._at)

    def used_now(self, name: str) -> None:
        """Set the time of a file."""
        with contextlib.suppress(OSError):
            os.utime(self._place(name), **self._at)

    def stat(self, name: str) -> os.stat_result | None:
        """What is known of a file, not of what a link leads to; None where there is none."""
        try:
            return os.stat(self._place(name), follow_symlinks=False, **self._at)
        except OSError:
            return None

    def ours(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files of ours."""
        for name in self._names():
            info = self.stat(name)
            if name != MARKER and info is not None and _is_our_file(info):
                yield name, info

    def info(self) -> os.stat_result:
        """What is known of the folder."""
        return os.lstat(self._path) if self._descriptor is None else os.fstat(self._descriptor)

    def can_write(self) -> bool:
        return os.access(self._place("."), os.W_OK | os.X_OK, **self._at)

    def is_marked(self) -> bool:
        """Whether pullback has made the folder. An empty one gets the marker now."""
        if self.stat(MARKER) is None and not self._names():
            with contextlib.suppress(FileExistsError):  # another process was faster
                self._create(MARKER, _MARKED)
        info = self.stat(MARKER)
        return info is not None and _is_our_file(info)

    def close_to_others(self, info: os.stat_result) -> None:
        """Give the folder, which is ours, the mode 0700."""
        if user() is not None and info.st_mode & 0o777 != 0o700:
            os.chmod(self._path if self._descriptor is None else self._descriptor, 0o700)

    def _place(self, name: str) -> str:
        return name if self._at else os.path.join(self._path, name)

    def _names(self) -> list[str]:
        return os.listdir(self._path if self._descriptor is None else self._descriptor)

    def _create(self, name: str, data: bytes) -> None:
        with os.fdopen(os.open(self._place(name), _NEW, 0o600, **self._at), "wb") as file:
            file.write(data)
