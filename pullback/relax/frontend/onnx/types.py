"""Element types of ONNX: the names that they have here."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import DTypeError

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
CODES = {name: code for code, name in DTYPES.items()}
OTHERS = {
    0: "an undefined type", 8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2",
    26: "int2",
}  # fmt: skip


class UnsupportedType(DTypeError, NotImplementedError):
    """A model has values of a type that no tensor has here."""


def dtype_of(code: int, what: str) -> str:
    """The dtype of an element type's number; UnsupportedType with ``what`` has it, for one that there is not here."""
    name = DTYPES.get(code)
    if name is None:
        found = OTHERS.get(code, f"type {code}")
        raise UnsupportedType(
            f"{what} is {found}: tensors cannot have this type", hint=f"the types are {', '.join(CODES)}"
        )
    return name


def tensor_type(type_proto: Any, what: str) -> tuple[str, list[Any] | None]:
    """dtype and sizes of a TypeProto: an int, a name, or None for a size that is not known."""
    kind = type_proto.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedType(f"{what} is a {(kind or 'value without a type').removesuffix('_type')}, not a tensor")
    tensor = type_proto.tensor_type
    dtype = dtype_of(tensor.elem_type, what)
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, [size_of(d) for d in tensor.shape.dim]


def size_of(dimension: Any) -> Any:
    """A dimension's number, name or None."""
    if dimension.HasField("dim_value"):
        return int(dimension.dim_value)
    return dimension.dim_param or None
