"""The object cache: compiled code on disk, by key, shared by all processes of a user.

An entry is one file of the cache's folder (``folder.py``): magic, the SHA-256 of key and content, the content. Files
appear by rename, so readers see whole entries or none; whatever is wrong with an entry counts as its absence.
``PULLBACK_CACHE=off`` turns the cache off.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy

from pullback import codegen
from pullback.driver.folder import TEMPORARY, Files, Folder, FolderError
from pullback.ir.errors import UserError
from pullback.ir.forks import in_child, renewed
from pullback.runtime.files import user_cache

_MAGIC = b"pullback object 2\n"
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size
_ENDING = ".obj"
_ENTRY = re.compile(f"[0-9a-f]{{64}}\\{_ENDING}")
_STALE_SECONDS = 3600.0  # a temporary file older than this was left by a writer that died
DEFAULT_LIMIT = 1 << 30
MOST_ENTRIES = 1 << 14  # each process that adds one looks at all of them: a quarter of a second
_SOURCES = (".py", ".c", ".h")
_STARTED = time.time()
_WORDS = {"1": True, "on": True, "true": True, "yes": True, "0": False, "off": False, "false": False, "no": False}


class ObjectCache:
    """Bytes by key in a folder of at most ``limit_bytes`` and ``limit_entries``; the least recently used go first.

    The folder is one of its own in ``directory``, belongs to this user and is closed to others: code in it is run.
    Where it cannot be had, one in a private temporary directory serves this process.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        limit_bytes: int = DEFAULT_LIMIT,
        limit_entries: int = MOST_ENTRIES,
    ) -> None:
        self.limit_bytes, self.limit_entries = limit_bytes, limit_entries
        self.enabled = is_on()
        self._lock = threading.Lock()
        renewed(self, "_lock")
        self._held: tuple[int, int] | None = None  # bytes and number of all entries, as far as known
        self.folder = Folder(Path(directory) if directory is not None else default_directory())
        if self.enabled:
            self._open()

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self.folder.path

    def get(self, key: str) -> bytes | None:
        """What was put under the key, or None."""
        if not self.enabled:
            return None
        name = _name(key)
        try:
            with self.folder.opened() as files:
                data = files.read(name, self.limit_bytes)
                if data is None:
                    return None
                content = data[_HEADER:]
                if data[:_HEADER] != _MAGIC + _digest(key, content):
                    files.remove(name)
                    return None
                files.used_now(name)
                return content
        except OSError:
            return None

    def put(self, key: str, content: bytes) -> None:
        """Keep the content under the key; if the cache cannot be written, nothing is stored."""
        if not self.enabled:
            return
        data = _MAGIC + _digest(key, content) + content
        if len(data) > self.limit_bytes:
            return
        for attempt in range(2):
            try:
                with self.folder.opened() as files:
                    files.write(_name(key), data)
                    self._evict(files, len(data))
                return
            except (FileNotFoundError, FolderError):  # somebody removed the folder, or exchanged it
                if attempt == 0:
                    self._open()
            except OSError:
                return

    @contextlib.contextmanager
    def in_turn(self, key: str) -> Iterator[None]:
        """Who makes what belongs under the key does so in this block, one process after another: all but the first
        find it there. (Of keys that share a file, too.) Where files cannot be locked, nobody waits."""
        with contextlib.ExitStack() as stack:
            if self.enabled:
                # Where there are no locks of files, there are no ranks.
                with contextlib.suppress(OSError, ImportError):
                    import fcntl

                    file = open(self.directory / f"turn-{_name(key)[:2]}", "wb")  # noqa: SIM115
                    stack.enter_context(file)
                    fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            yield

    def size(self) -> tuple[int, int]:
        """How many entries there are, and how many bytes they take."""
        try:
            with self.folder.opened() as files:
                sizes = [size for _, size, _ in self._entries(files)]
        except OSError:
            return 0, 0
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove every entry."""
        try:
            with self.folder.opened() as files:
                for name, _, _ in self._entries(files):
                    files.remove(name)
        except OSError:
            return
        self._held = (0, 0)

    # ---- entries

    def _entries(self, files: Files) -> Iterator[tuple[str, int, float]]:
        """Name, size and time of last use of every entry. What a writer left that died is removed."""
        for name, info in files.ours():
            if _ENTRY.fullmatch(name):
                yield name, info.st_size, info.st_mtime
            elif TEMPORARY.fullmatch(name) and info.st_mtime < time.time() - _STALE_SECONDS:
                files.remove(name)

    def _evict(self, files: Files, added: int) -> None:
        """Bring the folder below its limit, with some room to spare."""
        with self._lock:
            if self._held is not None and self._fits(self._held[0] + added, self._held[1] + 1):
                self._held = self._held[0] + added, self._held[1] + 1
                return
            entries = sorted(self._entries(files), key=lambda e: e[2])
            size, count = sum(size for _, size, _ in entries), len(entries)
            if not self._fits(size, count):
                for name, bytes_, _ in entries:
                    files.remove(name)
                    size, count = size - bytes_, count - 1
                    if self._fits(size / 0.9, count / 0.9):
                        break
            self._held = size, count

    def _fits(self, size: float, entries: float) -> bool:
        return size <= self.limit_bytes and entries <= self.limit_entries

    # ---- the folder

    def _open(self) -> None:
        """Make the folder; if it can't be had, or others could write it, use a temporary one and say so."""
        try:
            self.folder.prepare()
        except FolderError as problem:
            _warn(f"pullback's object cache {self.folder.directory} {problem}: compiled code is kept for this process "
                  f"only (set PULLBACK_CACHE_DIR, or PULLBACK_CACHE=off for no cache)")  # fmt: skip
            self.folder = Folder(_private_directory(os.getpid()))
            try:
                self.folder.prepare()
            except FolderError:  # nothing that this process makes is this user's alone
                self.enabled = False


def _name(key: str) -> str:
    """Of the file of an entry."""
    return hashlib.sha256(key.encode()).hexdigest() + _ENDING


def _digest(key: str, content: bytes) -> bytes:
    """What an entry must have in front: an entry in another's place, or of another key, is damaged."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + content).digest()


def is_on() -> bool:
    """Whether the environment wants a cache."""
    text = os.environ.get("PULLBACK_CACHE", "").strip() or "1"
    if text.lower() not in _WORDS:
        hint = "0, off, false or no turns the object cache off"
        raise UserError(f"PULLBACK_CACHE must be on or off, not {text!r}", hint=hint)
    return _WORDS[text.lower()]


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
    """The directory that the environment names for compiled code: the cache has a folder of its own in it."""
    chosen = os.environ.get("PULLBACK_CACHE_DIR")
    if chosen:
        whole = os.path.expanduser(chosen)
        if whole.startswith("~"):
            message = f"PULLBACK_CACHE_DIR is {chosen!r}, and there is no home directory {Path(whole).parts[0]}"
            raise UserError(message, hint="write the whole path")
        return Path(os.path.abspath(whole))
    return user_cache() / "objects"


@functools.cache
def _warn(message: str) -> None:
    """Once per process."""
    warnings.warn(message, RuntimeWarning, stacklevel=5)


@functools.cache
def compiler_fingerprint() -> str:
    """A digest of what turns a module into code: this package's own source, and the versions of what it uses.

    A file that is younger than this process may not be what was imported: then nobody finds what this process makes.
    """
    digest = hashlib.sha256(repr(sorted(versions().items())).encode())
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = sorted(_sources(root))
    for file in files:
        with open(file, "rb", buffering=0) as source:
            if os.fstat(source.fileno()).st_ctime > _STARTED:
                digest.update(os.urandom(32))
            digest.update(f"{file.removeprefix(root)}\n".encode() + hashlib.sha256(source.read()).digest())
    if not files:  # of a package without sources nobody knows what it is
        digest.update(os.urandom(32))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Of what the compiler uses and is run by."""
    return {
        "llvmlite": codegen.LLVMLITE_VERSION,
        "LLVM": codegen.LLVM_VERSION,
        "numpy": numpy.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "python": sys.version,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }


def _sources(root: str) -> Iterator[str]:
    """All of the package's sources, whatever they are for: none can be forgotten."""
    for directory, _, names in os.walk(root):
        yield from (os.path.join(directory, name) for name in names if name.endswith(_SOURCES))


def object_cache() -> ObjectCache:
    """The cache of this process, for what the environment says at this moment."""
    return _cache_for(is_on(), default_directory())


@functools.cache
def _cache_for(enabled: bool, directory: Path) -> ObjectCache:
    return ObjectCache(directory)


in_child(_cache_for.cache_clear)  # it opens its own: another thread may have held the lock of this one
