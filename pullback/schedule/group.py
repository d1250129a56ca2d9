"""A group: the tensor expressions that one kernel computes, and facts about them that schedules ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pullback.ir.digest import structural_digest
from pullback.schedule.tuning import Choices
from pullback.te.graph import nodes_inlined, read_counts, stages
from pullback.te.orient import orient
from pullback.te.tensor import Tensor, TensorLoad
from pullback.tir import Buffer, BufferLoad, Call, PrimExpr, PrimFunc, Stmt, fma, pairs
from pullback.tir.caches import LINE
from pullback.tir.expr import is_float, nbytes
from pullback.tir.figures import FEW_REGISTERS, Figures
from pullback.tir.visitor import Mutator, walk

NOMINAL_BYTES = Figures.second_bytes
LONGEST_ELEMENT = 1500  # nodes of an element with the stages before it written out


@dataclass(frozen=True)
class Machine(Figures):
    """What a schedule needs to know of the target: what its vectors are, and the figures of its cores.

    Args:
        vector_bytes: Of a vector.
        registers: Vector registers.
        without: Schedules switched off by name, to see their worth.
        fma: Whether the multiply-add is an instruction, fused or relaxed, and not a call of libm in every lane.
        choices: What was measured to be better than the analytical choice.
        pair_dot: Whether the products of pairs of bfloat16 are an instruction, and a gain.
        vectors: Whether a vector is one register, and not several of one number each.

    The other fields are those of :class:`~pullback.tir.figures.Figures`, by keyword.
    """

    vector_bytes: int = 64
    registers: int = 32
    without: tuple[str, ...] = ()
    fma: bool = True
    choices: Choices = field(default_factory=Choices)
    pair_dot: bool = False
    vectors: bool = True

    @property
    def nominal(self) -> Machine:
        """The machine whose caches decide in which order sums are taken: of all that differ from it in these alone, the
        same one. So bits don't depend on them."""
        return self if self.second_bytes == NOMINAL_BYTES else replace(self, second_bytes=NOMINAL_BYTES)

    def pass_caches(self, outputs: Iterable[Buffer]) -> bool:
        """Whether no cache could hold a kernel's outputs until they are read, as far as their sizes are known."""
        return sum(map(bytes_of, outputs)) >= self.cached_bytes

    @property
    def has_few_registers(self) -> bool:
        """Whether a register tile is so small that its loads take about as long as its multiply-adds."""
        return self.registers <= FEW_REGISTERS

    @property
    def has_narrow_vectors(self) -> bool:
        """Whether a vector is less than a line of memory."""
        return self.vector_bytes < LINE

    def multiply_add_ns(self, lanes: int) -> float:
        """Nanoseconds of one core for each multiply-add, in whole vectors of so many lanes: its peak."""
        instructions = (1 if self.fma else 2) * (1 if self.vectors else lanes)
        return self.vector_fma_ns * instructions / lanes

    def multiply_add(self, a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
        """``a·b + c``; of floats rounded once where that costs nothing (of half types it never calls libm). Of pairs
        of bfloat16 it is the sum of two products."""
        if a.dtype == pairs.DTYPE and c.dtype == "float32":
            return pairs.pair_dot(a, b, c)
        fused = is_float(c.dtype) and (self.fma or nbytes(c.dtype) == 2)
        return fma(a, b, c) if fused else a * b + c


@dataclass(frozen=True, eq=False)
class Group:
    """``outputs`` computed from placeholders ``inputs`` (in the order of the kernel's parameters).

    ``fallback``: take any schedule that is correct; otherwise one that would be a bad choice declines. ``of_stages``:
    what schedules found out about stages alone, for other groups that have the same ones. ``late``: the numbers of
    outputs that are read so late that no cache holds them until then, however small they are.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    machine: Machine = field(default_factory=Machine)
    fallback: bool = False
    of_stages: dict[object, Any] = field(default_factory=dict)
    late: frozenset[int] = frozenset()

    @cached_property
    def oriented(self) -> Group:
        """The group with its stages in the order of axes in which the outputs lie in memory."""
        outputs = orient(self.outputs)
        same = all(a is b for a, b in zip(outputs, self.outputs, strict=True))
        return self if same else replace(self, outputs=outputs)

    @cached_property
    def nominal(self) -> Group:
        """The group on the nominal machine."""
        machine = self.machine.nominal
        return self if machine is self.machine else replace(self, machine=machine)

    @cached_property
    def known(self) -> dict[object, Any]:
        """What schedules found out about it, for those that ask again."""
        return {}

    @cached_property
    def digest(self) -> bytes:
        """What the group computes, the same in every process."""
        return structural_digest((self.inputs, self.outputs))

    @cached_property
    def stages(self) -> list[Tensor]:
        return stages(self.outputs)

    @cached_property
    def longest_element(self) -> int:
        """How many nodes the longest element has, with the stages before it written out in it. Where nothing is
        reduced, a stage that is read at the point where it is computed has a name."""
        inlined = nodes_inlined(self.stages, lambda stage, _: stage.is_reduction)
        if self.reductions:
            return max(inlined.values(), default=0)
        return max((s.nodes + sum(_as_read(s, load, inlined) for load in s.loads) for s in self.stages), default=0)

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

    def function(
        self,
        name: str,
        body: Stmt,
        renamed: Mapping[Buffer, Buffer] | None = None,
        in_order: bool = False,
        late_alone: bool = False,
    ) -> PrimFunc:
        """The kernel with parameters (inputs…, outputs…), some of them in another shape of the same memory.

        ``in_order``: elements of an output are written as they follow one another in memory, or in whole lines. Then
        outputs that no cache could hold together until they are read, the large ones of them, are written past the
        caches (attribute ``streamed``, numbers of parameters): their lines are not read before they are written.
        ``late_alone``: only those that are read late, as the kernel does not wait for memory, but those that read the
        others would.
        """
        body = body if self.machine.fma else _Unfused().stmt(body)
        params = [(renamed or {}).get(b, b) for b in (self.buffers[t] for t in (*self.inputs, *self.outputs))]
        loaded = {n.buffer for n in walk(body) if isinstance(n, BufferLoad)} if in_order else set()
        asked = sorted(self.late) if late_alone else range(len(self.outputs))
        outputs = params[len(self.inputs) :]
        largest = max(map(bytes_of, outputs), default=0)
        passing = in_order and self.machine.pass_caches(outputs)
        large = [n for n in asked if 2 * bytes_of(outputs[n]) >= largest] if passing else []
        streamed = tuple(len(self.inputs) + n for n in large if outputs[n] not in loaded)
        return PrimFunc(name, tuple(params), body, {"streamed": streamed} if streamed else {})


class _Unfused(Mutator):
    """Multiply-adds of floats as a multiplication and an addition, for machines that have no such instruction."""

    def _expr(self, node: PrimExpr) -> PrimExpr:
        new = super()._expr(node)
        if isinstance(new, Call) and new.name == "fma" and nbytes(new.dtype) > 2:
            return new.args[0] * new.args[1] + new.args[2]
        return new


def bytes_of(buffer: Buffer) -> int:
    """Of what is known of its shape."""
    return math.prod(s for s in buffer.shape if isinstance(s, int)) * nbytes(buffer.dtype)


def _as_read(stage: Tensor, load: TensorLoad, inlined: Mapping[Tensor, int]) -> int:
    """How many nodes a stage writes for what it reads."""
    here = load.tensor.shape == stage.shape and same_axes(load.indices, stage.axes)
    return 1 if here else inlined.get(load.tensor, 1)


def same_axes(indices: Sequence[object], axes: Sequence[object]) -> bool:
    """Whether the indices are exactly these variables."""
    return len(indices) == len(axes) and all(i is a for i, a in zip(indices, axes, strict=True))
