"""Checkpoints damaged at every class of bytes, with the old checksum or a right one."""

from __future__ import annotations

import functools
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from pullback.ir import CheckpointError
from pullback.relax.training import checkpoint_file
from tests.errors.test_errors import digest
from tests.hostile.oracle import Finding, outcome

JUNK: list[Any] = [
    None, True, 0, -1, 7, 1.5, float("nan"), float("inf"), 2**31, 2**63, 2**64, 10**300, "", "x", "0", "-7", "1e3", "∞",
    "param.w", [], {}, [[]], [None], ["w", "w"], {"a": {"b": []}}, "\u0000", "é" * 100, "x" * 10_000,
]  # fmt: skip


@functools.cache
def trainer() -> Any:
    from tests.errors.models import classifier_trainer

    return classifier_trainer()


@functools.cache
def whole(folder: Path) -> bytes:
    trainer().save(folder / "whole")
    return (folder / "whole").read_bytes()


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: Any, data: bytes, r: random.Random) -> bytes:
    text = json.dumps(header, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data


def damaged_bytes(data: bytes, r: random.Random) -> bytes:
    """A change of bytes somewhere in the length, the header or the tensors."""
    length = 8 + struct.unpack("<Q", data[:8])[0]
    first, last = r.choice([(0, 8), (8, length), (8, length), (length, len(data)), (0, len(data))])
    for _ in range(r.choice([1, 1, 1, 2, 10])):
        place, size = r.randrange(first, last), r.choice([1, 1, 2, 8, 64])
        forms = [
            data[:place] + bytes([data[place] ^ 1 << r.randrange(8)]) + data[place + 1 :],
            data[:place] + bytes(r.randrange(256) for _ in range(size)) + data[place + size :],
            data[:place]
            + r.choice([b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"9", b"-", b"e9", b" "])
            + data[place:],
            data[:place] + data[place + size :],
            data[:place] + data[place : place + size] * r.choice([2, 3, 1000]) + data[place + size :],
            data[:place],
            data + data[:place],
            data[:place] + b"[" * 50_000 + data[place:],
            data[:8] + data[length:] + data[8:length],
        ]
        data = r.choice(forms)
        if len(data) <= last:
            break
    return data


def changed_value(value: Any, r: random.Random) -> Any:
    """The value with one of its parts exchanged for anything."""
    if isinstance(value, dict) and value and r.random() < 0.9:
        key = r.choice(list(value))
        kind = r.random()
        if kind < 0.7:
            return {**value, key: changed_value(value[key], r)}
        if kind < 0.8:
            return {k: v for k, v in value.items() if k != key}
        return {**value, r.choice(["more", "", "param.w", key + " "]): r.choice(JUNK)}
    if isinstance(value, list) and value and r.random() < 0.8:
        place = r.randrange(len(value))
        return [*value[:place], changed_value(value[place], r), *value[place + 1 :]]
    if isinstance(value, str) and value[:1] in ("[", "{") and r.random() < 0.8:
        return json.dumps(changed_value(json.loads(value), r))
    return r.choice(JUNK)


def rewritten(path: Path, r: random.Random) -> None:
    """Another value somewhere in the metadata or a tensor, and a right checksum."""
    tensors = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    if r.random() < 0.6:
        key = r.choice(list(metadata))
        value = changed_value(metadata[key], r)
        metadata[key] = value if isinstance(value, str) else json.dumps(value)
        if r.random() < 0.1:
            del metadata[key]
    else:
        name = r.choice(list(tensors))
        array = tensors[name]
        forms = [
            lambda: array.astype(r.choice(["float16", "float64", "int64", "bool", "uint8"])), lambda: array[None],
            lambda: array.reshape(-1)[:0], lambda: np.full_like(array, r.choice([-1, 7, 2**31 - 1])),
            lambda: np.zeros((0, 2**20), array.dtype), lambda: array.reshape(-1),
        ]  # fmt: skip
        tensors[name] = np.ascontiguousarray(r.choice(forms)())
        if r.random() < 0.2:
            tensors[r.choice(["more", "param.", "optimizer.99", "param.w "])] = tensors.pop(name)
    with np.errstate(all="ignore"):
        metadata["sha256"] = checkpoint_file.digest(tensors, metadata)
        path.write_bytes(safetensors.numpy.save(tensors, metadata))


def case(r: random.Random, folder: Path) -> None:
    subject, path = trainer(), folder / "damaged"
    data = whole(folder)
    before, kind = digest(subject), r.choice(["bytes", "header", "contents"])
    path.write_bytes(data)
    if kind == "bytes":
        path.write_bytes(damaged_bytes(data, r))
    elif kind == "header":
        header, tensors = parts(data)
        path.write_bytes(joined(changed_value(header, r), tensors, r))
    else:
        rewritten(path, r)
    is_whole = path.read_bytes() == data
    options = r.choice([{}, {}, {"strict": False}, {"params_only": True}])
    what = f"load({kind}, {options})"
    _, error = outcome(what, lambda: subject.load(path, **options))
    try:
        if error is None:
            check_loaded(what, path, options)
        elif is_whole:
            raise Finding(f"{what}: refused, though it is whole: {error}")
        elif not isinstance(error, CheckpointError):
            raise Finding(f"{what}: {type(error).__name__} in place of a CheckpointError: {error}")
        elif digest(subject) != before:
            raise Finding(f"{what}: the trainer was changed by a failed load")
    finally:
        subject.load(folder / "whole")


def check_loaded(what: str, path: Path, options: dict[str, bool]) -> None:
    """The trainer holds what an independent reader finds in the file."""
    subject, tensors = trainer(), safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    if checkpoint_file.digest(tensors, metadata) != metadata["sha256"]:
        raise Finding(f"{what}: taken with a wrong checksum")
    for name, value in subject.params.items():
        if value.numpy().tobytes() != tensors[f"param.{name}"].tobytes():
            raise Finding(f"{what}: parameter {name} is not that of the file")
    if not options.get("params_only"):
        if subject.steps < 0 or subject.epochs < 0 or subject.steps != int(tensors["optimizer.0"]):
            raise Finding(f"{what}: {subject.steps} steps, {subject.epochs} epochs")
        for i, value in enumerate(subject.optimizer_states):
            if value.numpy().tobytes() != tensors[f"optimizer.{i}"].tobytes():
                raise Finding(f"{what}: optimizer state {i} is not that of the file")
        json.loads(metadata["random"])
