"""A group: the tensor expressions that one kernel computes, and the choice of the schedule that lowers it.

Schedules are tried from the most particular to the most general; each either recognizes the group or declines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pullback.ir.errors import InternalError
from pullback.te.graph import read_counts, stages
from pullback.te.tensor import Tensor
from pullback.tir import Buffer, PrimFunc, Stmt


@dataclass(frozen=True)
class Machine:
    """What a schedule needs to know of the target."""

    vector_bytes: int = 64
    registers: int = 32


@dataclass(frozen=True, eq=False)
class Group:
    """``outputs`` computed from placeholders ``inputs`` (in the order of the kernel's parameters).

    ``fallback``: take any schedule that is correct; otherwise one that would be a bad choice declines.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    machine: Machine = field(default_factory=Machine)
    fallback: bool = False

    @cached_property
    def stages(self) -> list[Tensor]:
        return stages(self.outputs)

    @cached_property
    def reductions(self) -> list[Tensor]:
        return [s for s in self.stages if s.is_reduction]

    @cached_property
    def reads(self) -> dict[Tensor, int]:
        return read_counts(self.stages)

    @cached_property
    def readers(self) -> dict[Tensor, list[Tensor]]:
        """The stages that read each tensor."""
        result: dict[Tensor, list[Tensor]] = {}
        for stage in self.stages:
            for tensor in dict.fromkeys(load.tensor for load in stage.loads):
                result.setdefault(tensor, []).append(stage)
        return result

    @cached_property
    def buffers(self) -> dict[Tensor, Buffer]:
        """The kernel's parameters: a buffer for every input and output."""
        names: dict[str, int] = {}
        result = {}
        for tensor in (*self.inputs, *self.outputs):
            base = "".join(c if c.isalnum() or c == "_" else "_" for c in tensor.name) or "t"
            count = names[base] = names.get(base, -1) + 1
            result[tensor] = Buffer(f"{base}_{count}" if count else base, tensor.shape, tensor.dtype)
        return result

    def function(self, name: str, body: Stmt, renamed: Mapping[Buffer, Buffer] | None = None) -> PrimFunc:
        """The kernel with parameters (inputs…, outputs…), some of them in another shape of the same memory."""
        params = [self.buffers[t] for t in (*self.inputs, *self.outputs)]
        return PrimFunc(name, tuple((renamed or {}).get(b, b) for b in params), body)


def recognize(group: Group) -> object | None:
    """The schedule for the group, or None when it is no single kernel."""
    from pullback.schedule.contraction import Contraction
    from pullback.schedule.elementwise import Elementwise
    from pullback.schedule.reduction import Reduction

    for kind in (Elementwise, Contraction, Reduction):
        schedule = kind.recognize(group)
        if schedule is not None:
            return schedule
    return None


def lower(group: Group, name: str) -> PrimFunc:
    """The kernel of a group that :func:`recognize` accepts."""
    schedule = recognize(group)
    if schedule is None:
        listed = ", ".join(s.name for s in group.stages)
        raise InternalError(f"no schedule for the group {listed}")
    return schedule.lower(name)  # type: ignore[attr-defined]


def same_axes(indices: Sequence[object], axes: Sequence[object]) -> bool:
    """Whether the indices are exactly these variables."""
    return len(indices) == len(axes) and all(i is a for i, a in zip(indices, axes, strict=True))
