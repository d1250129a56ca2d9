"""Parameters as bytes: names and tensors.

    8 bytes    "PBPARAM1"
    8 bytes    length of the header, little-endian
    header     JSON: a list of [name, dtype, shape]
    tensors    their bytes in this order, each from a multiple of 64 on
    32 bytes   SHA-256 of all that comes before

What is read is looked at before it is used, whoever wrote it; nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, CheckpointError
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.tensor import Tensor, tensor

_MAGIC = b"PBPARAM1"
_ALIGNMENT = 64
_MOST_AXES = 64


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """The parameters, tensors or arrays by name, as bytes.

    >>> load_param_dict(save_param_dict({"w": np.ones(3, "float32")}))["w"].shape
    (3,)
    """
    entries, arrays = [], []
    for name, value in params.items():
        if not isinstance(name, str):
            raise ArgumentError(f"a parameter's name is a string, got {name!r:.40}")
        held = tensor(value.data if _is_constant(value) else value)
        entries.append([name, held.dtype, list(held.shape)])
        arrays.append(np.asarray(held))
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    parts = [_MAGIC, len(header).to_bytes(8, "little"), header]
    at = sum(map(len, parts))
    for array in arrays:
        data = array.tobytes()
        parts += [b"\0" * (-at % _ALIGNMENT), data]
        at += -at % _ALIGNMENT + len(data)
    whole = b"".join(parts)
    return bytearray(whole + hashlib.sha256(whole).digest())


def _is_constant(value: Any) -> bool:
    """Whether it is a constant of relay: what has a tensor."""
    return not isinstance(value, (np.ndarray, Tensor)) and isinstance(getattr(value, "data", None), Tensor)


def load_param_dict(param_bytes: bytes) -> dict[str, Tensor]:
    """The parameters that :func:`save_param_dict` made bytes of.

    Raises CheckpointError where the bytes are something else, or damaged.
    """
    if not isinstance(param_bytes, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"parameters are loaded from bytes, not from {type(param_bytes).__name__}")
    data = bytes(param_bytes)
    if data[: len(_MAGIC)] != _MAGIC:
        hint = "relay.save_param_dict(params) writes them; those of other systems have another form"
        raise CheckpointError("these bytes are no parameters", hint=hint)
    if len(data) < 48 or hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise CheckpointError("the parameters are damaged: their checksum is another", hint="copy them again")
    first = 16 + int.from_bytes(data[8:16], "little")
    if first > len(data) - 32:
        raise CheckpointError("the parameters are damaged: their header is longer than they are")
    try:
        entries = json.loads(data[16:first].decode())
    except (ValueError, RecursionError):
        raise CheckpointError("the parameters are damaged: their header is no JSON") from None
    found: dict[str, Tensor] = {}
    at = first
    for entry in entries if isinstance(entries, list) else [None]:
        name, dtype, shape = _checked(entry)
        at += -at % _ALIGNMENT
        count = math.prod(shape)
        end = at + count * NUMPY_DTYPES[dtype].itemsize
        if end > len(data) - 32 or name in found:
            raise CheckpointError(f"the parameters are damaged at {name!r:.80}")
        array = np.frombuffer(data, NUMPY_DTYPES[dtype], count, at).reshape(shape)
        found[name] = tensor(array, copy=True)
        at = end
    if at != len(data) - 32:
        raise CheckpointError("the parameters are damaged: there is more than the header says")
    return found


def _checked(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    """An entry of the header."""
    fits = isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and isinstance(entry[2], list)
    sizes = entry[2] if fits else []
    fits = fits and len(sizes) <= _MOST_AXES and all(type(s) is int and 0 <= s < 2**48 for s in sizes)
    if not fits or not isinstance(entry[1], str) or entry[1] not in NUMPY_DTYPES:
        raise CheckpointError(f"the parameters are damaged: {entry!r:.80} is no name, dtype and shape")
    return entry[0], entry[1], tuple(sizes)
