"""The object cache: compiled code on disk, by key, shared by all processes of a user.

An entry is one file: magic, the SHA-256 of the content, the content. Files appear by rename, so readers see whole
entries or none; whatever is wrong with an entry counts as its absence. ``PULLBACK_CACHE=0`` turns the cache off.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy

from pullback import codegen

_MAGIC = b"pullback object 1\n"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_ENDING = ".obj"
_TEMPORARY = ".tmp"
_STALE_SECONDS = 3600.0  # a temporary file older than this was left by a writer that died
DEFAULT_LIMIT = 1 << 30
MOST_ENTRIES = 1 << 14  # each process that adds one looks at all of them: a quarter of a second
# What decides the code that a module becomes.
_ROOMS = ("codegen", "driver", "ir", "relax", "schedule", "te", "tir")


class ObjectCache:
    """Bytes by key in a directory of at most ``limit_bytes`` and ``limit_entries``; the least recently used go first.

    The directory belongs to this user and is closed to others: code in it is run. Without a directory that can be
    written, a private temporary one serves this process.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        limit_bytes: int = DEFAULT_LIMIT,
        limit_entries: int = MOST_ENTRIES,
    ) -> None:
        self.limit_bytes, self.limit_entries = limit_bytes, limit_entries
        self.enabled = os.environ.get("PULLBACK_CACHE", "1") != "0"
        self._lock = threading.Lock()
        self._held: tuple[int, int] | None = None  # bytes and number of all entries, as far as known
        self.directory = Path(directory) if directory is not None else default_directory()
        if self.enabled:
            self._open()

    def get(self, key: str) -> bytes | None:
        """What was put under the key, or None."""
        if not self.enabled:
            return None
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[_HEADER:]
        if data[:_HEADER] != _MAGIC + hashlib.sha256(content).digest():
            self._remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep the content under the key; a cache that can't be written forgets."""
        if not self.enabled:
            return
        data = _MAGIC + hashlib.sha256(content).digest() + content
        if len(data) > self.limit_bytes:
            return
        path = self._path(key)
        for attempt in range(2):
            try:
                self._write(path, data)
                break
            except FileNotFoundError:  # somebody removed the directory
                if attempt == 0:
                    self._open()
                    path = self._path(key)
            except OSError:
                return
        self._evict(len(data))

    def clear(self) -> None:
        """Remove every entry."""
        for path, _, _ in self._entries():
            self._remove(path)
        self._held = (0, 0)

    # ---- files

    def _path(self, key: str) -> Path:
        return self.directory / (hashlib.sha256(key.encode()).hexdigest() + _ENDING)

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(suffix=_TEMPORARY, dir=self.directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def _entries(self) -> Iterator[tuple[Path, int, float]]:
        """Path, size and time of last use of every entry."""
        try:
            found = list(os.scandir(self.directory))
        except OSError:
            return
        for item in found:
            with contextlib.suppress(OSError):
                info = item.stat(follow_symlinks=False)
                if item.name.endswith(_ENDING) and stat.S_ISREG(info.st_mode):
                    yield Path(item.path), info.st_size, info.st_mtime
                elif item.name.endswith(_TEMPORARY) and info.st_mtime < time.time() - _STALE_SECONDS:
                    self._remove(Path(item.path))

    def _evict(self, added: int) -> None:
        """Bring the directory below its limit, with some room to spare."""
        with self._lock:
            if self._held is not None and self._fits(self._held[0] + added, self._held[1] + 1):
                self._held = self._held[0] + added, self._held[1] + 1
                return
            entries = sorted(self._entries(), key=lambda e: e[2])
            size, count = sum(size for _, size, _ in entries), len(entries)
            if not self._fits(size, count):
                for path, bytes_, _ in entries:
                    self._remove(path)
                    size, count = size - bytes_, count - 1
                    if self._fits(size / 0.9, count / 0.9):
                        break
            self._held = size, count

    def _fits(self, size: float, entries: float) -> bool:
        return size <= self.limit_bytes and entries <= self.limit_entries

    # ---- the directory

    def _open(self) -> None:
        """Make the directory; if that can't be, or others could write it, use a temporary one and say so."""
        problem = _prepare(self.directory)
        if problem is None:
            return
        _warn(f"pullback's object cache {self.directory} {problem}: compiled code is kept for this process only "
              f"(set PULLBACK_CACHE_DIR, or PULLBACK_CACHE=0 for no cache)")  # fmt: skip
        self.directory = _private_directory(os.getpid())


@functools.cache
def _private_directory(process: int) -> Path:
    """A temporary directory for one process, removed when it ends."""
    directory = tempfile.mkdtemp(prefix="pullback-objects-")

    def discard() -> None:
        if os.getpid() == process:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(discard)
    return Path(directory)


def default_directory() -> Path:
    """Where compiled code is kept, from the environment."""
    chosen = os.environ.get("PULLBACK_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "pullback" / "objects"
    try:
        return Path.home() / ".cache" / "pullback" / "objects"
    except RuntimeError:  # no home
        return Path("/nonexistent/pullback/objects")


def _prepare(directory: Path) -> str | None:
    """Create the directory with mode 0700; what is wrong with it, if it can't be used."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = os.stat(directory)
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            return "belongs to another user"
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(directory, 0o700)
        if not os.access(directory, os.W_OK | os.X_OK):
            return "is not writable"
    except OSError as error:
        return f"can't be used ({error.strerror})"
    return None


@functools.cache
def _warn(message: str) -> None:
    """Once per process."""
    warnings.warn(message, RuntimeWarning, stacklevel=5)


@functools.cache
def compiler_fingerprint() -> str:
    """A digest of what turns a module into code: this package's own source, and the versions of what it uses."""
    digest = hashlib.sha256(f"llvmlite {codegen.LLVMLITE_VERSION}\nnumpy {numpy.__version__}\n".encode())
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for file in sorted([os.path.join(root, "target.py"), *_sources(root)]):
        digest.update(f"{file.removeprefix(root)}\n".encode())
        with open(file, "rb", buffering=0) as source:
            digest.update(hashlib.sha256(source.read()).digest())
    return digest.hexdigest()


def _sources(root: str) -> Iterator[str]:
    for room in _ROOMS:
        for directory, _, names in os.walk(os.path.join(root, room)):
            yield from (os.path.join(directory, name) for name in names if name.endswith(".py"))


def object_cache() -> ObjectCache:
    """The cache of this process, for what the environment says at this moment."""
    names = ("PULLBACK_CACHE", "PULLBACK_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    return _cache_for(tuple(os.environ.get(name) for name in names))


@functools.cache
def _cache_for(environment: tuple[str | None, ...]) -> ObjectCache:
    return ObjectCache()


if hasattr(os, "register_at_fork"):  # a fork's child opens its own: another thread may have held the lock of this one
    os.register_at_fork(after_in_child=_cache_for.cache_clear)
