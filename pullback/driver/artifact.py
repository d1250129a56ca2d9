"""Artifacts: what running a compiled function takes, as one block of bytes for the cache.

8 bytes    length of the header
header     JSON: the layout, constants as (dtype, shape), lengths of the objects
constants  their bytes, one after another
objects    object code: the host function's, and one object for each kernel

What is read is looked at before it is used: bytes that are no artifact, or that of a function with another signature,
are a ValueError, whatever they are.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from pullback.driver.pipeline import donations
from pullback.ir.errors import PullbackError
from pullback.relax.expr import Function
from pullback.relax.matching import bind_sizes
from pullback.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    flat_infos,
    symbolic_vars,
)
from pullback.relax.transform.plan_memory import Place, Plan
from pullback.runtime.dtype import numpy_dtype
from pullback.tir import Collective, PrimFunc
from pullback.tir.expr import nbytes
from pullback.tir.static import static


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of a tensor that a function takes or gives."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * nbytes(self.dtype)

    def __str__(self) -> str:
        return f"Tensor({self.shape}, {self.dtype})"


@dataclass(frozen=True)
class Layout:
    """How a host function is called: see :class:`Plan`, whose run-time part this is."""

    entry: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    fresh: tuple[int, ...]
    donated: tuple[tuple[int, int], ...]  # number of the result, number of the input
    arena_bytes: int
    steps: tuple[str, ...]
    messages: tuple[str, ...]
    places: tuple[Place, ...]
    timeline: tuple[str, ...]
    ranks: int  # for how many it was compiled; 0: for any number
    sent: str  # what ranks compute together, in its order: the same on all of them; "" where that is nothing

    @staticmethod
    def of(plan: Plan) -> Layout:
        return Layout(
            plan.host.name, _types(plan.inputs), _types(plan.outputs), tuple(plan.fresh),
            tuple(sorted(plan.donated.items())), plan.arena_bytes, tuple(plan.steps), tuple(plan.messages),
            tuple(plan.places), tuple(plan.timeline), *_together(plan),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Artifact:
    """A layout with its constants and objects, which are linked with each other."""

    layout: Layout
    constants: tuple[np.ndarray, ...]
    objects: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        kinds = [(c.dtype.name, c.shape) for c in self.constants]
        layout = asdict(self.layout) | {"places": [astuple(p) for p in self.layout.places]}
        lengths = [len(code) for code in self.objects]
        header = json.dumps({"layout": layout, "constants": kinds, "objects": lengths}).encode()
        constants = (c.tobytes() for c in self.constants)
        return b"".join([len(header).to_bytes(8, "little"), header, *constants, *self.objects])

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """The inverse of :meth:`to_bytes`. Raises ValueError for anything else."""
        try:
            end = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:end])
            constants = []
            for dtype, shape in header["constants"]:
                kind = TensorType(_sizes(shape), dtype)
                constants.append(np.frombuffer(data, numpy_dtype(dtype), math.prod(shape), end).reshape(shape))
                end += kind.nbytes
            ends = list(itertools.accumulate(header["objects"], initial=end))
            if ends != sorted(ends) or ends[-1] != len(data):
                raise ValueError("the lengths are not those of the objects")
            objects = tuple(data[first:last] for first, last in itertools.pairwise(ends))
            return Artifact(_layout(header["layout"]), tuple(constants), objects)
        except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, PullbackError) as error:
            raise ValueError(f"no artifact: {error}") from None

    def check(self, name: str, function: Function, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless this is how the function of that name is called, for these symbolic sizes."""
        layout = self.layout
        bound = {v: sizes[v.name] for v in symbolic_vars(function.struct_info) if v.name in sizes}
        inputs = [t for p in function.params for t in flat_infos(bind_sizes(p.struct_info, bound))]
        outputs = flat_infos(bind_sizes(function.ret_struct_info, bound))
        donated = donations(function)
        fits = (
            layout.entry == name
            and len(inputs) == len(layout.inputs)
            and all(map(_is_type, layout.inputs, inputs))
            and len(outputs) == len(layout.outputs)
            and all(map(_is_type, layout.outputs, outputs))
            and dict(layout.donated) == donated
            and layout.fresh == tuple(k for k in range(len(outputs)) if k not in donated)
        )
        if not fits:
            raise ValueError(f"the artifact is not that of {name}")


def _is_type(kind: TensorType, info: StructInfo) -> bool:
    """Whether a tensor of that kind has the type, as far as it is known."""
    if isinstance(info, ShapeStructInfo):  # sizes are numbers of their own
        return kind.dtype == "int64" and kind.shape == (len(info.values),)
    if isinstance(info, PrimStructInfo):
        return kind.dtype == info.dtype and kind.shape == ()
    if not isinstance(info, TensorStructInfo) or kind.dtype != info.dtype or info.ndim not in (-1, len(kind.shape)):
        return False
    return all(a == b for a, b in zip(kind.shape, info.shape or kind.shape, strict=True) if isinstance(b, int))


def _together(plan: Plan) -> tuple[int, str]:
    """For how many ranks a function is, and a digest of what they compute together, in order."""
    bodies = [kernel.body for name in plan.steps if isinstance((kernel := plan.kernels.get(name)), PrimFunc)]
    found = [b for b in bodies if isinstance(b, Collective)]
    inner = [k.body for k in plan.kernels.values() if isinstance(k.body, Collective)]
    sizes = {b.ranks for b in inner} - {0}
    lines = [f"{b.kind} {b.reduction} {b.root} {b.shards} {b.elements} {b.received[0].dtype}" for b in found or inner]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else ""
    return max(sizes, default=0), digest


def _types(infos: list[TensorStructInfo]) -> tuple[TensorType, ...]:
    return tuple(TensorType(static(i.sizes), i.dtype) for i in infos)


def _layout(fields: dict[str, Any]) -> Layout:
    sequences: dict[str, Any] = {
        k: tuple(TensorType(_sizes(t["shape"]), str(t["dtype"])) for t in fields[k]) for k in ("inputs", "outputs")
    }
    sequences |= {k: tuple(map(str, fields[k])) for k in ("steps", "messages", "timeline")}
    sequences |= {"fresh": _sizes(fields["fresh"]), "places": tuple(Place(*p) for p in fields["places"])}
    donated = tuple((k, i) for k, i in map(_sizes, fields["donated"]))
    arena_bytes, ranks = _sizes([fields["arena_bytes"], fields["ranks"]])
    return Layout(
        str(fields["entry"]), **sequences, donated=donated, arena_bytes=arena_bytes, ranks=ranks,
        sent=str(fields["sent"]),
    )  # fmt: skip


def _sizes(numbers: list[Any]) -> tuple[int, ...]:
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"{numbers!r} are no sizes")
    return tuple(numbers)
