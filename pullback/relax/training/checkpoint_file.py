"""The format of checkpoints: what a file must be before any of it is believed.

A checkpoint is a safetensors file: eight bytes of length, a JSON header, tensors one after the other. Anybody may have
written it, so everything is checked by the schema here: the header's size, every name, shape, dtype and place, and
every entry of the metadata with its type and range. What does not fit is a CheckpointError. Tensors are read last, into
memory whose size the trainer states, and a SHA-256 of names, types, bytes and metadata finds flipped bits. Of a
tensor's bytes it takes the SHA-256s of parts of 1 MiB, so that several processes can compute it together; in files of
version 1 it takes the bytes themselves.

The reader of the package safetensors is not used: it maps the file, so a file that becomes shorter meanwhile ends the
process (SIGBUS); of two equal keys it takes the last; it takes headers of 100 MB; and it has no bfloat16 for NumPy.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, NoReturn, TypeVar

import numpy as np

from pullback.ir.errors import CheckpointError
from pullback.relax.struct_info import format_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.files import open_regular, shown
from pullback.runtime.tensor import Tensor

FORMAT, VERSION, OLDER = "pullback-checkpoint", "2", "1"
PART_BYTES = 1 << 20
_LENGTH_BYTES = 8
_MOST_AXES = 64
_CODES = {  # safetensors' names of element types
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_NAMES = {dtype: code for code, dtype in _CODES.items()}


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in a file, counted from the end of the header, and what it is."""

    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} {self.dtype}"

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Where the parts of which the checksum takes a SHA-256 begin and end in the tensor."""
        return [(k, min(k + PART_BYTES, self.nbytes)) for k in range(0, self.nbytes, PART_BYTES)]


@dataclass(frozen=True)
class Record:
    """The metadata of a checkpoint, each entry of its type and in its range."""

    parameters: tuple[str, ...]
    states: tuple[str, ...]
    optimizer: str
    random: Mapping[str, Any]
    epochs: int
    steps: int
    optimizer_states: tuple[str, ...] = ()
    hyperparameters: Mapping[str, Any] | None = None
    loss: str = ""
    training: Mapping[str, Any] | None = None  # what the file was trained with; not in older files
    position: Mapping[str, Any] | None = None  # of one that was saved within an epoch: see position.py


class TensorFile:
    """An open safetensors file whose header is whole and fits the schema; its tensors are not read yet.

    ``what`` it is called in errors, also as one ``of_ours``; ``hint`` says what its reader should do.
    """

    what = of_ours = "safetensors file"
    hint = "load a file that trainer.save_adapter(…) wrote, or one of PEFT's"

    def __init__(self, path: str, file: BufferedReader, longest_header: int) -> None:
        self.path, self._file = path, file
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
            self.refuse(f"it has {size} bytes, too few for its header: it is truncated, or no {self.what}")
        if length > longest_header:
            self.refuse(f"its header has {length} bytes, a {self.what} of this trainer has no {longest_header}")
        self._first = _LENGTH_BYTES + length
        try:
            self.header = file.read(length)
            header = _mapping(_json(self.header.decode()))
            self.metadata = {key: _text(value) for key, value in _mapping(header.pop("__metadata__", {})).items()}
            self.check_format()
        except (ValueError, KeyError) as error:
            self.refuse(f"it is no {self.of_ours}, or its header is damaged", error)
        self.tensors = self._tensors(header, size - self._first)

    def check_format(self) -> None:
        """Refuse metadata of another format; a KeyError or ValueError where they are none of any."""

    def refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        """Raise the CheckpointError for a file that is damaged or of another kind."""
        raise CheckpointError(f"{shown(self.path)}: {problem}", hint=self.hint) from cause

    def _tensors(self, header: dict[str, Any], size: int) -> dict[str, Entry]:
        """The table of tensors, which lie one after the other and fill the file."""
        try:
            found = {name: _entry(value) for name, value in header.items()}
        except ValueError as error:
            self.refuse(f"it is truncated or damaged ({error})", error)
        end = 0
        for name, entry in sorted(found.items(), key=lambda item: (item[1].begin, item[1].end)):
            if entry.begin != end:
                self.refuse(
                    f"it is truncated or damaged ({shown(name)} does not begin where the tensor before it ends)"
                )
            end = entry.end
        if end != size:
            self.refuse(f"it is truncated or damaged ({end} bytes of tensors are announced, {size} follow the header)")
        return found

    def read(self, wanted: Mapping[str, Tensor]) -> None:
        """Read tensors into the memory given for them, which has the types that the file states."""
        for name, into in wanted.items():
            entry = self.tensors[name]
            self.read_bytes(entry, 0, np.asarray(into).reshape(-1).view(np.uint8))

    def read_bytes(self, entry: Entry, first: int, into: np.ndarray) -> None:
        """Read a tensor's bytes from number ``first`` on into memory of as many bytes."""
        self._file.seek(self._first + entry.begin + first)
        if self._file.readinto(into.data) != len(into):
            self.refuse("it is truncated: it became shorter while it was read")


class CheckpointFile(TensorFile):
    """An open checkpoint whose header is whole and fits the schema; its tensors are not read yet."""

    what, of_ours = "checkpoint", "checkpoint of pullback"
    hint = "load a file that trainer.save(…) wrote; a damaged one cannot be mended, go back to an older one"

    def __init__(self, path: str, file: BufferedReader, longest_header: int) -> None:
        super().__init__(path, file, longest_header)
        self.record = self._record()

    def check_format(self) -> None:
        kind, version = self.metadata["format"], self.metadata["version"]
        if kind != FORMAT or version not in (VERSION, OLDER):
            self.refuse(f"expected format {FORMAT} version {VERSION}, got {shown(kind)} version {shown(version)}")

    def _record(self) -> Record:
        values: dict[str, Any] = {}
        for name, (read, problem) in _SCHEMA.items():
            if name in self.metadata:
                try:
                    values[name] = read(self.metadata[name])
                except ValueError as error:
                    self.refuse(f"{problem} ({name}: {error})", error)
            elif name not in _OPTIONAL:
                self.refuse(f"its metadata is damaged ({name} is missing)")
        return Record(**values)

    def read(self, wanted: Mapping[str, Tensor]) -> None:
        """Read tensors into the memory given for them, and check that all of the file is as it was written.

        The memory has the types that the file states. The other tensors are read past.
        """
        memory = {name: np.asarray(into).reshape(-1).view(np.uint8) for name, into in wanted.items()}
        content = Content(self.metadata)
        for name in sorted(self.tensors):
            content.announce(name, self.tensors[name])
            for part in self.parts(name, memory.get(name)):
                content.add(part)
        self.check_sha256(content.hexdigest())
        self.check_bools(memory)

    def parts(self, name: str, memory: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """A tensor's bytes, part by part; they are left in the memory for all of them, if there is any."""
        entry = self.tensors[name]
        held = np.empty(min(entry.nbytes, PART_BYTES), np.uint8) if memory is None else memory
        for begin, end in entry.parts:
            part = held[: end - begin] if memory is None else held[begin:end]
            self.read_bytes(entry, begin, part)
            yield part

    def check_sha256(self, found: str) -> None:
        """Refuse the file unless this is what its contents should have."""
        if found != self.metadata.get("sha256"):
            self.refuse("its contents do not match their SHA-256")

    def check_bools(self, read: Mapping[str, np.ndarray]) -> None:
        """Refuse bytes, of tensors by name, that are neither True nor False where a bool has to be."""
        for name, memory in read.items():
            if self.tensors[name].dtype == "bool" and (memory > 1).any():
                self.refuse(f"{shown(name)} holds a byte that is neither true nor false")


FileKind = TypeVar("FileKind", bound=TensorFile)


@contextmanager
def open_file(path: str, longest_header: int, kind: type[FileKind]) -> Iterator[FileKind]:
    """A file of tensors, open for reading. Raises CheckpointError when there is none that fits the schema, or when it
    cannot be read."""
    try:
        with open_regular(path) as file:
            yield kind(path, file, longest_header)
    except OSError as error:
        message = f"{shown(path)}: cannot be read: {error.strerror}"
        raise CheckpointError(message, hint="check the path, and that the file may be read") from error


def open_checkpoint(path: str, longest_header: int) -> AbstractContextManager[CheckpointFile]:
    """A checkpoint, open for reading: see :func:`open_file`."""
    return open_file(path, longest_header, CheckpointFile)


def laid_out(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Entry]:
    """The places of tensors of these dtypes and shapes in a file: those of wide elements first, so that all are
    aligned, then by name."""
    entries: dict[str, Entry] = {}
    end, sizes = 0, {name: numpy_dtype(dtype).itemsize for name, (dtype, _) in types.items()}
    for name in sorted(types, key=lambda name: (-sizes[name], name)):
        dtype, shape = types[name]
        begin, end = end, end + math.prod(shape) * sizes[name]
        entries[name] = Entry(shape, dtype, begin, end)
    return entries


def composed(metadata: Mapping[str, str], entries: Mapping[str, Entry]) -> bytes:
    """What stands in a file before its tensors, which are as aligned there as :func:`laid_out` has them: what exported
    libraries write too."""
    table = {
        name: {"dtype": _NAMES[e.dtype], "shape": list(e.shape), "data_offsets": [e.begin, e.end]}
        for name, e in entries.items()
    }
    texts = {key: metadata[key] for key in sorted(metadata, key=lambda key: (key == "sha256", key))}
    header = json.dumps({"__metadata__": texts, **table}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header


class Content:
    """The SHA-256 of a checkpoint's contents: first of the metadata but ``sha256`` itself; then tensors are to come by
    name, each announced, with the parts of its bytes or what :func:`part_digest` says of them."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._digest = hashlib.sha256()
        self._in_parts = metadata.get("version") != OLDER
        for key in sorted(metadata.keys() - {"sha256"}):
            self._digest.update(f"{key!r}={metadata[key]!r};".encode())

    def announce(self, name: str, entry: Entry) -> None:
        self._digest.update(announced(name, entry.dtype, entry.shape))

    def add(self, part: np.ndarray) -> None:
        self._digest.update(part_digest(part) if self._in_parts else part.data)

    def add_digest(self, digest: bytes) -> None:
        """A part of which the digest alone is known here; not for version 1."""
        assert self._in_parts
        self._digest.update(digest)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def part_digest(part: np.ndarray) -> bytes:
    """What a checksum takes of a part of a tensor."""
    return hashlib.sha256(part.data).digest()


def digest(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """The checksum of a file of this metadata and these tensors, by the version that the metadata say."""
    content = Content(metadata)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        entry = Entry(array.shape, array.dtype.name, 0, array.nbytes)
        content.announce(name, entry)
        for begin, end in entry.parts:
            content.add(array.reshape(-1).view(np.uint8)[begin:end])
    return content.hexdigest()


def announced(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """What the digest takes before the bytes of a tensor."""
    return f"{name!r}:{dtype}{shape or (1,)};".encode()  # a scalar is not told from a vector of one


# ---- the schema: each function takes what JSON gives, and raises a ValueError that says what is wrong ----------------


def _json(text: str) -> Any:
    """A JSON value in which no key comes twice."""
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"an object was expected, not {_kind(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text was expected, not {_kind(value)}")
    return value


def _integer(value: Any, bits: int = 63) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"an integer was expected, not {_kind(value)}")
    if not 0 <= value < 2**bits:
        raise ValueError(f"it must be from 0 to 2^{bits} - 1")
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _entry(value: Any) -> Entry:
    """One line of the table of tensors."""
    entry = _mapping(value)
    if entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("a tensor has a dtype, a shape and data_offsets, and nothing else")
    code, shape, offsets = _text(entry["dtype"]), entry["shape"], entry["data_offsets"]
    if code not in _CODES:
        raise ValueError("a tensor's dtype is unknown")
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        raise ValueError(f"a shape is a list of at most {_MOST_AXES} sizes")
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise ValueError("data_offsets are two numbers")
    sizes, (begin, end) = tuple(map(_integer, shape)), map(_integer, offsets)
    if end - begin != math.prod(sizes) * numpy_dtype(_CODES[code]).itemsize:
        raise ValueError(f"a tensor of shape {format_shape(sizes)} does not take {end - begin} bytes")
    return Entry(sizes, _CODES[code], begin, end)


def _number(text: str) -> int:
    """A counter, which is written without sign, space or leading zero."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or str(int(text)) != text:
        raise ValueError("a number ≥ 0 was expected")
    return _integer(int(text))


def _names(text: str) -> tuple[str, ...]:
    names = _texts(text)
    if len(set(names)) < len(names):
        raise ValueError("a name comes twice")
    return names


def _texts(text: str) -> tuple[str, ...]:
    values = _json(text)
    if not isinstance(values, list):
        raise ValueError(f"a list was expected, not {_kind(values)}")
    return tuple(map(_text, values))


def _plain(text: str) -> dict[str, Any]:
    """Numbers, texts, truth values and nulls, or lists of them, by name."""
    values = _mapping(_json(text))
    for value in itertools.chain.from_iterable(v if isinstance(v, list) else [v] for v in values.values()):
        if isinstance(value, (dict, list)):
            raise ValueError("an entry is nested too deeply")
    return values


def _generator(text: str) -> dict[str, Any]:
    """The state of NumPy's generator PCG64."""
    value = _mapping(_json(text))
    if value.keys() != {"bit_generator", "state", "has_uint32", "uinteger"} or value["bit_generator"] != "PCG64":
        raise ValueError("it is no state of PCG64")
    numbers = _mapping(value["state"])
    if numbers.keys() != {"state", "inc"}:
        raise ValueError("it is no state of PCG64")
    _integer(numbers["state"], 128), _integer(value["has_uint32"], 1), _integer(value["uinteger"], 32)
    if _integer(numbers["inc"], 128) % 2 == 0:
        raise ValueError("its increment must be odd")
    return value


def _position(text: str) -> dict[str, Any]:
    """How far an epoch has come."""
    value = _mapping(_json(text))
    if value.keys() != {"random", "fit", "closed", "open"}:
        raise ValueError("it is no position in an epoch")
    for name, setting in _mapping(value["fit"]).items():
        if setting is not None and not isinstance(setting, (bool, int)):
            raise ValueError(f"{name} is {_kind(setting)}")
    for name in ("closed", "open"):
        sums = value[name]
        if not isinstance(sums, list) or len(sums) != 4 or not all(isinstance(v, float) for v in sums[:2]):
            raise ValueError(f"{name} is no list of two sums and two counts")
        _integer(sums[2]), _integer(sums[3])
    return {**value, "random": _generator(json.dumps(value["random"]))}


_DAMAGED = "its metadata is damaged"
_SCHEMA: dict[str, tuple[Callable[[str], Any], str]] = {
    "parameters": (_names, _DAMAGED),
    "states": (_names, _DAMAGED),
    "optimizer": (str, _DAMAGED),
    "random": (_generator, "its random generator cannot be restored"),
    "epochs": (_number, _DAMAGED),
    "steps": (_number, _DAMAGED),
    "optimizer_states": (_texts, _DAMAGED),
    "hyperparameters": (_plain, _DAMAGED),
    "loss": (str, _DAMAGED),
    "training": (_plain, _DAMAGED),
    "position": (_position, _DAMAGED),
}
_OPTIONAL = ("optimizer_states", "hyperparameters", "loss", "training", "position")
