"""Dtypes of PyTorch: the names that they have here."""

from __future__ import annotations

from typing import Any

NUMBERED = {  # c10::ScalarType, by which schemas write the dtypes that are defaults
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool",
    15: "bfloat16",
}  # fmt: skip


def name_of(dtype: Any) -> str:
    """The name of a dtype of PyTorch: ``torch.float32`` is "float32"."""
    return str(dtype).partition(".")[2]
