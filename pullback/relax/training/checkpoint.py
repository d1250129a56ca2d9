"""Checkpoints: everything a trainer needs to go on, in one safetensors file.

Tensors are called ``param.<name>``, ``state.<name>``, ``random.<name>`` and ``optimizer.<number>``, so other tools can
read the parameters. The metadata holds the format and its version, the optimizer, the random generator, counters, and
a SHA-256 of all of it, tensors included: a flipped bit is found. Files are replaced in one step, so a crash leaves the
old one or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors.numpy

from pullback.ir.errors import CheckpointError
from pullback.relax.struct_info import format_shape
from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.step import Values
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.tensor import Tensor, tensor

FORMAT, VERSION = "pullback-checkpoint", "1"
_PREFIX = {"parameter": "param.", "state": "state.", "random state": "random.", "optimizer state": "optimizer."}
_CODES = {  # safetensors' names of element types
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


class Checkpoints:
    """The part of a trainer that saves and loads."""

    _interface: Interface
    _values: Values
    _generator: np.random.Generator
    _epochs: int
    _turn: threading.RLock

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, states, random and optimizer states, random generator and counters to a file, in one step.

        A file of that name is replaced; a crash at any moment leaves either the old file or the new one. Raises
        CheckpointError when the file cannot be written.
        """
        self._values.check_complete(self._interface)
        with self._turn:  # these views keep what they see: a step in another thread goes on with copies
            tensors = {_key(s): np.asarray(v) for s, v in zip(self._interface.kept, self._values.all, strict=True)}
        record = self._interface.record
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": json.dumps([slot.name for slot in self._interface.params]),
            "states": json.dumps([slot.name for slot in self._interface.states]),
            "optimizer": record.optimizer,
            "optimizer_states": json.dumps(record.optimizer_states),
            "hyperparameters": json.dumps(record.hyperparameters),
            "loss": record.loss,
            "random": json.dumps(self._generator.bit_generator.state),
            "steps": str(int(tensors["optimizer.0"])),
            "epochs": str(self._epochs),
        }
        metadata["sha256"] = _digest(tensors, metadata)
        try:
            write_atomically(Path(path), safetensors.numpy.save(tensors, metadata))
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be written: {error.strerror}") from error

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that :meth:`save` wrote.

        Hyperparameters are those of this trainer's optimizer, not the file's, but for run-time values, which are
        states. Raises CheckpointError, with the trainer as it was, when the file is missing, truncated, damaged, of
        another kind, or was made by another model or optimizer.
        """
        path = Path(path)
        tensors, metadata = _read(path)
        try:
            epochs = int(metadata["epochs"])
            self._check_origin(path, metadata)
        except (KeyError, ValueError) as error:
            _refuse(path, f"its metadata is damaged ({error})", error)
        loaded = _take(path, self._interface, tensors)
        generator = _generator(path, metadata)
        rest = iter(loaded)
        values = Values(*(tuple(itertools.islice(rest, len(group))) for group in self._values.groups))
        self._values, self._generator, self._epochs = values, generator, epochs

    def _check_origin(self, path: Path, metadata: Mapping[str, str]) -> None:
        """The file's optimizer, parameters and states are this trainer's, in this order."""
        expected = self._interface.record.optimizer
        if expected and metadata["optimizer"] not in ("", expected):
            raise CheckpointError(
                f"{path}: was saved with the optimizer {metadata['optimizer']}, this trainer has {expected}",
                hint="make the trainer with the same optimizer, or load the parameters alone with load_params(…)",
            )
        for kind, slots in (("parameters", self._interface.params), ("states", self._interface.states)):
            names, found = [slot.name for slot in slots], json.loads(metadata[kind])
            if names != found:
                raise CheckpointError(
                    f"{path}: the model has the {kind} {', '.join(names) or 'none'},"
                    f" the file holds {', '.join(found) or 'none'}",
                    hint="load it into a trainer of the model that it was saved from",
                )

        self._check_optimizer_states(path, json.loads(metadata.get("optimizer_states", "[]")))

    def _check_optimizer_states(self, path: Path, found: list[str]) -> None:
        """The optimizer keeps what the file's kept, in this order: parameter groups and options change it."""
        names = self._interface.record.optimizer_states
        for i, (mine, other) in enumerate(itertools.zip_longest(names, found, fillvalue="missing")):
            if names and found and mine != other:
                raise CheckpointError(
                    f"{path}: optimizer state {i} is {mine} in this trainer, {other} in the file",
                    hint="make the trainer with the same optimizer, its options and groups too, or load the parameters"
                    " alone with load_params(…)",
                )


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file's contents in one step that survives a crash of the process or of the machine.

    They are written to a hidden file beside it first, which is locked as long as it is in use: what a killed process
    left behind is known by its missing lock, and removed here.
    """
    folder = path.resolve().parent
    _remove_leftovers(folder, path.name)
    handle, temporary = _locked_file(folder, path.name)
    with os.fdopen(handle, "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked_file(folder: Path, name: str) -> tuple[int, str]:
    """A new file ``.<name>.<eight characters>.tmp``, locked: its descriptor and path."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".tmp")
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)  # before it was locked, another process took it for a leftover


def _remove_leftovers(folder: Path, name: str) -> None:
    """Remove the files for saving under this name that nobody has locked."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[a-z0-9_]{{8}}\.tmp")  # as tempfile.mkstemp names them
    for path in [p for p in folder.iterdir() if pattern.fullmatch(p.name)]:
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _key(slot: Slot) -> str:
    return _PREFIX[slot.kind] + slot.name


def _digest(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """SHA-256 of names, types and bytes of the tensors, and of the metadata but ``sha256`` itself."""
    digest = hashlib.sha256()
    for key in sorted(metadata.keys() - {"sha256"}):
        digest.update(f"{key!r}={metadata[key]!r};".encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name!r}:{array.dtype.name}{array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and the metadata of a file that is whole and of our format."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    metadata = _metadata(path, data)
    try:
        tensors = {name: _array(part) for name, part in safetensors.deserialize(data)}
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        _refuse(path, f"it is truncated or damaged ({error})", error)
    if _digest(tensors, metadata) != metadata.get("sha256"):
        _refuse(path, "its contents do not match their SHA-256")
    return tensors, metadata


def _metadata(path: Path, data: bytes) -> dict[str, str]:
    """The metadata of a safetensors file: eight bytes of length, then a JSON header."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        message = f"it has {len(data)} bytes, too few for its header: it is truncated, or no checkpoint"
        _refuse(path, message)
    try:
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        kind, version = metadata["format"], metadata["version"]
    except (ValueError, KeyError, TypeError) as error:
        _refuse(path, "it is no checkpoint of pullback, or its header is damaged", error)
    if kind != FORMAT or version != VERSION:
        _refuse(path, f"expected format {FORMAT} version {VERSION}, got {kind} version {version}")
    return metadata


def _refuse(path: Path, problem: str, cause: Exception | None = None) -> NoReturn:
    hint = "load a file that trainer.save(…) wrote; a damaged one cannot be mended, go back to an older one"
    raise CheckpointError(f"{path}: {problem}", hint=hint) from cause


def _array(part: Mapping[str, Any]) -> np.ndarray:
    names = {code: name for name, code in _CODES.items()}
    return np.frombuffer(part["data"], numpy_dtype(names[part["dtype"]])).reshape(part["shape"])


def _take(path: Path, interface: Interface, tensors: dict[str, np.ndarray]) -> list[Tensor]:
    """A tensor for everything that the trainer keeps, of its shape and dtype."""
    wanted = {_key(slot): slot for slot in interface.kept}
    missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or extra:
        parts = [f"it lacks {', '.join(missing)}"] if missing else []
        parts += [f"it holds {', '.join(extra)}, which this trainer does not have"] if extra else []
        _refuse(path, " and ".join(parts))
    for key, slot in wanted.items():
        shape, dtype, array = static_shape(slot), slot.info.dtype, tensors[key]
        if array.shape != shape or array.dtype.name != dtype:
            raise CheckpointError(
                f"{path}: {slot} is {format_shape(shape)} {dtype} in this trainer,"
                f" {format_shape(array.shape)} {array.dtype.name} in the file",
                hint="load it into a trainer of the model that it was saved from",
            )
    return [tensor(tensors[k], copy=True) for k in wanted]


def _generator(path: Path, metadata: Mapping[str, str]) -> np.random.Generator:
    """The random generator in the state that was saved."""
    generator = np.random.Generator(np.random.PCG64())
    try:
        generator.bit_generator.state = json.loads(metadata["random"])
    except (ValueError, KeyError, TypeError) as error:
        _refuse(path, f"its random generator cannot be restored ({error})", error)
    return generator
