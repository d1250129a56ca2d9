"""Artifacts: what running a compiled function takes, as one block of bytes for the cache.

8 bytes    length of the header
header     JSON: the layout, constants as (dtype, shape), lengths of the objects
constants  their bytes, one after another
objects    object code: the host function's, and one object for each kernel
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.plan_memory import Place, Plan
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import nbytes


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

    @staticmethod
    def of(plan: Plan) -> Layout:
        return Layout(
            plan.host.name, _types(plan.inputs), _types(plan.outputs), tuple(plan.fresh),
            tuple(sorted(plan.donated.items())), plan.arena_bytes, tuple(plan.steps), tuple(plan.messages),
            tuple(plan.places), tuple(plan.timeline),
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
        """The inverse of :meth:`to_bytes`; the cache has verified the bytes."""
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        constants = []
        for dtype, shape in header["constants"]:
            kind = TensorType(tuple(shape), dtype)
            constants.append(np.frombuffer(data, numpy_dtype(dtype), math.prod(shape), end).reshape(shape))
            end += kind.nbytes
        ends = list(itertools.accumulate(header["objects"], initial=end))
        objects = tuple(data[first:last] for first, last in itertools.pairwise(ends))
        return Artifact(_layout(header["layout"]), tuple(constants), objects)


def _types(infos: list[TensorStructInfo]) -> tuple[TensorType, ...]:
    return tuple(TensorType(tuple(i.shape), i.dtype) for i in infos)  # type: ignore[arg-type]


def _layout(fields: dict[str, Any]) -> Layout:
    types = {k: tuple(TensorType(tuple(t["shape"]), t["dtype"]) for t in fields[k]) for k in ("inputs", "outputs")}
    sequences = {k: tuple(fields[k]) for k in ("fresh", "steps", "messages", "timeline")}
    sequences["places"] = tuple(Place(*p) for p in fields["places"])
    donated = tuple((k, i) for k, i in fields["donated"])
    return Layout(fields["entry"], **types, **sequences, donated=donated, arena_bytes=fields["arena_bytes"])
