"""Checkpoints of several ranks: one file, which all write together and all read, the one that a process alone writes.

Each rank has all of some tensors, as the others do, and of others its *piece*: the bytes from ``rank · piece_bytes`` on
(``runtime/collectives.py``). It writes its pieces, and a fair share of what all have, into one new file, whose header
and places all ranks know; rank 0 puts the header in front, and the file in the place of the old one, when everybody's
part is on disk. The checksum takes SHA-256s of parts of tensors, which the ranks compute each for its share.

All of this is collective: every step is taken by all ranks, and an error of one is raised on all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from pullback.ir.errors import CheckpointError, UserError
from pullback.relax.training.checkpoint_file import OLDER, CheckpointFile, Content, Entry, composed, laid_out
from pullback.relax.training.checkpoint_file import part_digest as digest_of
from pullback.runtime.files import replacing, shown, write_at
from pullback.runtime.ranks import Ranks

T = TypeVar("T")
Digests = dict[tuple[str, int], bytes]  # of parts, by the tensor's name and where they begin in it
_TOKEN_BYTES = 32
_PATIENCE = 2.0  # seconds until a new file's name is known everywhere in a network's file system
_SHARED = "all ranks write and read one file: give a folder that all machines see, of a network's file system"


@dataclass(frozen=True)
class Run:
    """What a rank has of a tensor in memory: bytes from number ``begin`` on. ``piece_bytes``: how many each rank has of
    it, the last ones less; 0 where all ranks have all of it."""

    memory: np.ndarray
    begin: int = 0
    piece_bytes: int = 0

    @staticmethod
    def whole(array: np.ndarray) -> Run:
        """All of a tensor."""
        return Run(_bytes(array))

    @staticmethod
    def piece(array: np.ndarray, elements: int, ranks: Ranks) -> Run:
        """This rank's piece, whose end may be padding, of a tensor of so many elements."""
        memory = _bytes(array)
        begin = min(ranks.rank * memory.size, elements * array.itemsize)
        return Run(memory[: elements * array.itemsize - begin], begin, memory.size)

    def has(self, begin: int, end: int) -> bool:
        return self.begin <= begin and end <= self.begin + self.memory.size

    def bytes(self, begin: int, end: int) -> np.ndarray:
        return self.memory[begin - self.begin : end - self.begin]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


class Together:
    """What all ranks do with one file, step by step; ``done`` is what cannot be done with it when the system says so:
    "written"."""

    def __init__(self, ranks: Ranks, path: str, done: str, hint: str) -> None:
        self.ranks, self._path, self._done, self._hint = ranks, path, done, hint

    def step(self, action: Callable[[], T]) -> list[T]:
        """Do something on all ranks: returns what it gives on each. Where it fails on one, all raise a CheckpointError
        that names the rank; on that rank it is its own error."""
        found: Any = None
        error: UserError | None = None
        try:
            found = action()
        except UserError as own:
            error = own
        except OSError as own:
            error = CheckpointError(f"{shown(self._path)}: cannot be {self._done}: {own.strerror}", hint=self._hint)
            error.__cause__ = own
        outcomes = self.ranks.exchange((found, None if error is None else (error.message, error.hint)))
        if error is not None:
            raise error
        for rank, (_, failure) in enumerate(outcomes):
            if failure is not None:
                raise CheckpointError(f"rank {rank}: {failure[0]}", hint=failure[1])
        return [value for value, _ in outcomes]

    def step_here(self, action: Callable[[], T]) -> T:
        """Do something on all ranks: returns what it gives on this one, which need not be sent."""
        here: list[T] = []
        self.step(lambda: here.append(action()))
        return here[0]

    def step_of_first(self, action: Callable[[], T]) -> T:
        """Do something on rank 0 alone, while the others wait: returns there what it gives."""
        return cast(T, self.step(lambda: action() if self.ranks.is_first else None)[0])


# ---- who answers for what ----------------------------------------------------------------------------------------


def owners(entries: Mapping[str, Entry], piece_bytes: Mapping[str, int], ranks: int) -> dict[str, list[int]]:
    """The rank that answers for each part of each tensor: of one that is held in pieces, whoever has the part's first
    byte; of all others together, each has about as many bytes, in the order of the file."""
    total = sum(e.nbytes for name, e in entries.items() if not piece_bytes.get(name))
    found: dict[str, list[int]] = {}
    done = 0
    for name, entry in entries.items():
        if piece_bytes.get(name):
            found[name] = [begin // piece_bytes[name] for begin, _ in entry.parts]
        else:
            found[name] = [(done + begin) * ranks // total for begin, _ in entry.parts]
            done += entry.nbytes
    return found


def _own_parts(
    entries: Mapping[str, Entry], piece_bytes: Mapping[str, int], ranks: Ranks
) -> list[tuple[str, int, int]]:
    """This rank's parts: the tensor's name, and where they begin and end in it."""
    return [
        (name, begin, end)
        for name, owner_of in owners(entries, piece_bytes, ranks.size).items()
        for owner, (begin, end) in zip(owner_of, entries[name].parts, strict=True)
        if owner == ranks.rank
    ]


def _sha256(metadata: Mapping[str, str], entries: Mapping[str, Entry], found: list[Digests]) -> str:
    """The checksum, given what the ranks know of the parts."""
    digests = {place: digest for each in found for place, digest in each.items()}
    content = Content(metadata)
    for name in sorted(entries):
        content.announce(name, entries[name])
        for begin, _ in entries[name].parts:
            content.add_digest(digests[name, begin])
    return content.hexdigest()


# ---- writing -----------------------------------------------------------------------------------------------------


def save(
    path: str, tensors: Mapping[str, tuple[str, tuple[int, ...], Run]], metadata: Mapping[str, str], ranks: Ranks
) -> None:
    """Write a checkpoint: dtype, shape and what this rank has of each tensor; the metadata, but for ``sha256``, are
    rank 0's. Raises CheckpointError on all ranks, with the old file as it was, when one cannot write its part, or sees
    another file system."""
    together = Together(ranks, path, "written", "the folder must exist and be writable")
    entries = laid_out({name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()})
    runs = {name: run for name, (_, _, run) in tensors.items()}
    piece_bytes = {name: run.piece_bytes for name, run in runs.items()}
    metadata = ranks.broadcast(dict(metadata))
    header = composed({**metadata, "sha256": "0" * 64}, entries)
    _check_agreement(together, path, header)
    own = _own_parts(entries, piece_bytes, ranks)
    descriptor = -1
    token = secrets.token_bytes(_TOKEN_BYTES)

    def begin() -> tuple[str, bytes]:
        nonlocal descriptor
        descriptor, temporary = stack.enter_context(replacing(path))
        # It has its full length at once, and nobody opens it for reading: clients of network file systems write the
        # bytes that they are given then, not whole pages with what they believe of the rest.
        os.ftruncate(descriptor, len(header) + sum(e.nbytes for e in entries.values()))
        if ranks.size > 1:
            write_at(descriptor, 0, token)
            os.fsync(descriptor)  # others look for it
        return temporary, token

    def write() -> Digests:
        with _opened(descriptor, temporary, path, token, ranks) as file:
            for name, first, last in _spans(own, runs):
                write_at(file, len(header) + entries[name].begin + first, runs[name].bytes(first, last).data)
            return {
                (n, first): digest_of(runs[n].bytes(first, last)) for n, first, last in own if runs[n].has(first, last)
            }

    def read() -> Digests:
        """The digests of parts of which several ranks have written something."""
        with open(temporary, "rb", buffering=0) as file:
            return {
                (n, first): digest_of(_read(file.fileno(), len(header) + entries[n].begin + first, last - first))
                for n, first, last in own
                if not runs[n].has(first, last)
            }

    def finish() -> None:
        write_at(descriptor, 0, composed({**metadata, "sha256": _sha256(metadata, entries, found)}, entries))
        stack.close()

    with contextlib.ExitStack() as stack:
        temporary, token = together.step_of_first(begin)
        found = together.step(write)
        if any(piece_bytes.values()):
            found += together.step(read)
        together.step_of_first(finish)


def _check_agreement(together: Together, path: str, header: bytes) -> None:
    """All ranks save the same under the same name."""
    ranks = together.ranks
    ranks.agree("the path of the checkpoint", path)
    ranks.agree("the digest of the checkpoint's names, shapes and dtypes", hashlib.sha256(header).hexdigest()[:16])


def _spans(own: list[tuple[str, int, int]], runs: Mapping[str, Run]) -> list[tuple[str, int, int]]:
    """What a rank writes: its pieces, and of what all have its parts; those that lie side by side at once."""
    spans = [(n, run.begin, run.begin + run.memory.size) for n, run in runs.items() if run.piece_bytes]
    for name, begin, end in own:
        if runs[name].piece_bytes:
            continue
        if spans and spans[-1][0] == name and spans[-1][2] == begin:
            spans[-1] = name, spans[-1][1], end
        else:
            spans.append((name, begin, end))
    return spans


@contextlib.contextmanager
def _opened(descriptor: int, temporary: str, path: str, token: bytes, ranks: Ranks) -> Any:
    """The new file, for this rank's part of it, which is on disk when the block ends; rank 0's is its own."""
    if ranks.is_first:
        yield descriptor
        return
    _check_seen(temporary, path, token, ranks)
    own = os.open(temporary, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    try:
        yield own
        os.fsync(own)
    finally:
        os.close(own)


def _check_seen(temporary: str, path: str, token: bytes, ranks: Ranks) -> None:
    """This rank sees the file that rank 0 has made."""
    ends = time.monotonic() + _PATIENCE
    while not os.path.exists(temporary) and time.monotonic() < ends:
        time.sleep(0.05)
    try:
        with open(temporary, "rb", buffering=0) as file:
            is_seen = file.read(len(token)) == token
    except FileNotFoundError:
        is_seen = False
    if not is_seen:
        raise CheckpointError(
            f"{shown(path)}: rank {ranks.rank} does not see the file that rank 0 is writing in"
            f" {shown(os.path.dirname(temporary))}: its folder of that name is another one",
            hint=_SHARED,
        )


def _read(descriptor: int, offset: int, count: int) -> np.ndarray:
    """Bytes at a place of a file."""
    found = np.empty(count, np.uint8)
    os.lseek(descriptor, offset, os.SEEK_SET)
    left = found.data
    while left:
        data = os.read(descriptor, len(left))
        if not data:
            raise OSError(0, "it became shorter while it was written")
        left[: len(data)] = data
        left = left[len(data) :]
    return found


# ---- reading -----------------------------------------------------------------------------------------------------


def load(file: CheckpointFile, wanted: Mapping[str, Run], together: Together) -> None:
    """Read what this rank wants of tensors into its memory, which has the types that the file states, and check with
    the others that all of the file is as it was written. Raises CheckpointError on all ranks when it is not."""
    ranks = together.ranks
    _check_same_file(file, together)
    piece_bytes = {name: run.piece_bytes for name, run in wanted.items()}
    own = _own_parts(file.tensors, piece_bytes, ranks)
    passing = np.empty(max((end - begin for _, begin, end in own), default=0), np.uint8)

    def read() -> Digests:
        digests: Digests = {}
        seen: dict[str, list[tuple[int, int]]] = {}
        for name, begin, end in own if file.metadata["version"] != OLDER else ():
            run = wanted.get(name)
            if run is not None and run.has(begin, end):
                memory = run.bytes(begin, end)
                seen.setdefault(name, []).append((begin, end))
            else:
                memory = passing[: end - begin]
            file.read_bytes(file.tensors[name], begin, memory)
            digests[name, begin] = digest_of(memory)  # while it is in the cache
        for name, run in wanted.items():
            for begin, end in _gaps(run, seen.get(name, [])):
                file.read_bytes(file.tensors[name], begin, run.bytes(begin, end))
        return digests

    found = together.step(read)
    if file.metadata["version"] == OLDER:  # its checksum cannot be divided
        together.step_of_first(lambda: file.read({}))
    else:
        together.step(lambda: file.check_sha256(_sha256(file.metadata, file.tensors, found)))
    together.step(lambda: file.check_bools({name: run.memory for name, run in wanted.items()}))


def _gaps(run: Run, seen: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What there is of a run between bytes that were read, which come in their order."""
    last = run.begin
    for begin, end in [*seen, (run.begin + run.memory.size,) * 2]:
        if last < begin:
            yield last, begin
        last = end


def _check_same_file(file: CheckpointFile, together: Together) -> None:
    """All ranks have opened the same file."""
    found = together.ranks.exchange(hashlib.sha256(file.header).digest())
    other = next((r for r, v in enumerate(found) if v != found[0]), None)
    if other is not None:
        raise CheckpointError(
            f"{shown(file.path)}: rank {other} sees another file of this name than rank 0", hint=_SHARED
        )


# ---- files of rank 0 ---------------------------------------------------------------------------------------------


def on_first(ranks: Ranks, path: str | Path, action: Callable[[], T]) -> T:
    """Do something with files that are rank 0's alone, such as removing old ones; an error is raised on all ranks."""
    return Together(ranks, str(path), "written", "the folder must exist and be writable").step_of_first(action)
