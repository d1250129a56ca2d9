"""What of PyTorch's is which op of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pullback.relax.op.namespace import ops

Translation = Callable[..., Any]
REASONS = Path(__file__).with_name("reasons.txt")


class Skip(Exception):
    """A call that our op cannot express; the message says why."""


TABLE: dict[str, tuple[tuple[str, ...], Translation]] = {}
"""Of an entry of op_db: the ops of ours that it tries, and the call, as a function of PyTorch's arguments."""


def translate(ours: str, *theirs: str) -> Callable[[Translation], Translation]:
    """Decorates the translation of entries of op_db, which calls these ops (names, separated by commas)."""

    def keep(function: Translation) -> Translation:
        for name in theirs:
            assert name not in TABLE, name
            TABLE[name] = (tuple(ours.split(", ")), function)
        return function

    return keep


def reasons() -> dict[str, dict[str, str]]:
    """The lists of ``reasons.txt``: why entries of op_db, and ops of ours, are not in the table."""
    lists: dict[str, dict[str, str]] = {}
    for line in REASONS.read_text().splitlines():
        if line.startswith("["):
            lists[line.strip("[]")] = current = {}
        elif line and not line.startswith("#"):
            names, _, reason = line.partition(": ")
            for name in names.split():
                assert name not in current and reason, line
                current[name] = reason
    return lists


# ---- what translations share -----------------------------------------------------------------------------------------

_RANK = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` -> ``"float32"``."""
    name = str(dtype).removeprefix("torch.")
    if name not in _RANK:
        raise Skip(f"the dtype {name}")
    return name


def promoted(*values: Any) -> list[Any]:
    """Tensors in the wider of their dtypes: ours never promotes."""
    dtypes = {v.dtype for v in values if hasattr(v, "struct_info")}
    if len(dtypes) < 2:
        return list(values)
    wide = max(dtypes, key=_RANK.index)
    return [ops.astype(v, wide) if hasattr(v, "struct_info") and v.dtype != wide else v for v in values]
