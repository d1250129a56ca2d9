"""Copies of inputs of half types in the type that they are multiplied as, made once before the tasks begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.schedule.coalesce import ravel
from pullback.schedule.contraction.problem.problem import Factor
from pullback.schedule.contraction.problem.widen import cast_input
from pullback.schedule.elementwise import nest
from pullback.schedule.group import Group
from pullback.te.graph import Lower
from pullback.te.tensor import Tensor
from pullback.tir import Buffer, PrimExpr, Stmt, Var, store


@dataclass(frozen=True, eq=False)
class WidenedCopy:
    """A copy of all that lies in an input. Both have one axis, the order of memory: any shape is long vectors."""

    buffer: Buffer
    source: Tensor
    given: Tensor  # the input
    narrow: Buffer  # and where it lies

    @staticmethod
    def of(group: Group, factor: Factor, flat: dict[Buffer, Buffer]) -> WidenedCopy:
        """``flat``: what stands for inputs of the kernel; filled here."""
        source = factor.source
        given, size = cast_input(source), math.prod(int(n) for n in source.shape)
        assert given is not None
        memory = group.buffers[given]
        narrow = flat.setdefault(memory, Buffer(memory.name, (size,), memory.dtype))
        return WidenedCopy(Buffer("wide", (size,), factor.dtype, "workspace"), source, given, narrow)

    def read(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        return self.buffer[ravel(indices, self.source.shape)]

    def copy(self, threads: bool) -> Stmt:
        i = Var("i")
        value = Lower({self.given: lambda _: self.narrow[i]}).element(self.source, self.source.axes)
        return nest([i], [*self.buffer.shape], store(self.buffer, i, value), threads)
