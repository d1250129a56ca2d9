"""What a contraction computes: its loop axes, its two factors, and the elementwise work that follows.

    anchor[o…] = Σ_{k…} a[f(o, k)] · b[g(o, k)]          f, g affine; matmuls and convolutions of any kind

A factor reads an input of the group, or a stage before the sum (padding, a normalisation, …) that is computed where it
is needed. Axes of size 1 are dropped, axes whose index is divided (the channels of a grouped convolution) are split,
and neighbours that both factors treat as one are merged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pullback.schedule.affine import Affine, affine
from pullback.schedule.contraction.figures import BlockingFigures, blocking_figures
from pullback.schedule.cost import NANOSECONDS_PER_FMA
from pullback.schedule.group import Group
from pullback.te.graph import body_expr, loads_of, reads_once, stages, summed_product
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import Binary, Cast, IntImm, PrimExpr, Select, Var, as_expr, const
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute, walk


@dataclass(frozen=True, eq=False)
class Factor:
    """``cast(dtype, source[reads])``, over the loop axes."""

    dtype: str
    source: Tensor  # an input of the group, or a stage that is computed where it is needed
    reads: tuple[PrimExpr, ...]
    strides: Mapping[Var, int]  # elements of the source, row by row, from one value of an axis to the next
    windows: tuple[Affine, ...] | None  # the places of ``source`` that are read, unless axes were merged
    steps: tuple[tuple[int, int], ...]  # (s, r): place u of an axis of the source is its index s·u + r
    extents: Mapping[Var, int]
    is_view: bool = False  # of an input: computing an element is reading it

    @staticmethod
    def of(
        dtype: str,
        source: Tensor,
        indices: Sequence[Affine],
        extents: Mapping[Var, int],
        steps: Sequence[tuple[int, int]] | None = None,
        is_view: bool = False,
    ) -> Factor:
        strides: dict[Var, int] = {}
        stride = 1
        for index, size in reversed(list(zip(indices, source.shape, strict=True))):
            for v, c in index.terms.items():
                strides[v] = strides.get(v, 0) + c * stride
            stride *= int(size)
        steps = tuple(steps) if steps is not None else ((1, 0),) * len(indices)
        windows = tuple(_place(index, *step) for index, step in zip(indices, steps, strict=True))
        return Factor(dtype, source, tuple(i.expr() for i in indices), strides, windows, steps, extents, is_view)

    @property
    def axes(self) -> Collection[Var]:
        return self.strides.keys()

    @property
    def is_input(self) -> bool:
        return self.source.is_placeholder or self.is_view

    def window(self, d: int) -> Affine:
        """The places that are read along axis ``d`` of the source, of a factor whose axes were not merged."""
        assert self.windows is not None
        return self.windows[d]

    @cached_property
    def is_window(self) -> bool:
        """Whether places are read again and again as axes move together, as a convolution reads its data."""
        return self.windows is not None and any(overlaps(index, self.extents) for index in self.windows)

    def continues(self, outer: Var, inner: Var, extent: int) -> bool:
        """Whether ``outer`` goes on in memory where ``inner`` ends (or the factor depends on neither)."""
        if outer not in self.axes and inner not in self.axes:
            return True
        if outer not in self.axes or inner not in self.axes or not self.is_input or self.is_window:
            return False
        return self.strides[outer] == extent * self.strides[inner]

    def merged(self, outer: Var, inner: Var, merged: Var, both: Mapping[Var, PrimExpr]) -> Factor:
        if inner not in self.axes:
            return self
        strides = {v: s for v, s in self.strides.items() if v not in both} | {merged: self.strides[inner]}
        reads = tuple(substitute(r, both) for r in self.reads)
        return Factor(self.dtype, self.source, reads, strides, None, self.steps, self.extents, self.is_view)


@dataclass(frozen=True, eq=False)
class Problem:
    """A contraction in terms of loop axes; ``place`` says what the anchor's own axes are."""

    group: Group
    anchor: Tensor
    factors: tuple[Factor, Factor]
    outputs: tuple[Var, ...]  # loop axes of the result, in the order of memory
    reduced: tuple[Var, ...]  # loop axes of the sum, outermost first
    extents: Mapping[Var, int]
    place: Mapping[Var, PrimExpr]  # the anchor's own axes
    terms: int = 1  # 0 when the sum is empty

    @property
    def work(self) -> int:
        """FMAs."""
        return math.prod(self.extents.values())

    @property
    def nanoseconds(self) -> float:
        """About what one thread takes: for the question whether more are worth it."""
        return self.work * NANOSECONDS_PER_FMA

    @cached_property
    def figures(self) -> BlockingFigures:
        """What is assumed of the machine."""
        return blocking_figures(self.group.machine)

    @cached_property
    def lanes(self) -> int:
        """Elements of a vector of sums."""
        return max(1, self.group.machine.vector_bytes // max(4, nbytes(self.anchor.dtype)))

    @cached_property
    def depth(self) -> int:
        """Terms of each sum."""
        return math.prod(self.extents[v] for v in self.reduced)

    @cached_property
    def has_gaps(self) -> bool:
        """Whether neighbouring results lie apart in memory, as those of one phase of a strided gradient do."""
        places = (affine(e, self.extents) for e in self.place.values())
        return any(p is not None and p.terms.get(self.outputs[-1], 1) != 1 for p in places)

    @cached_property
    def before(self) -> frozenset[Tensor]:
        """The stages that the sum is computed from."""
        return frozenset(_ancestors(self.anchor))

    @cached_property
    def merged(self) -> Problem:
        """Neighbouring axes of the result as one, where in every factor the outer one goes on where the inner one
        ends; but not those of a batch, which only number tasks, where vectors lie along others."""
        problem = self
        for k in range(len(self.outputs) - 2, -1, -1):
            outer, inner = problem.outputs[k : k + 2]
            is_last = k + 2 == len(problem.outputs)
            if is_last or not all(outer in f.axes and inner in f.axes for f in problem.factors):
                problem = problem._joined(outer, inner)
        return problem

    @cached_property
    def with_long_sum(self) -> Problem:
        """Likewise neighbouring axes of the sum."""
        problem = self
        for k in range(len(self.reduced) - 2, -1, -1):
            problem = problem._joined(*problem.reduced[k : k + 2])
        return problem

    def _joined(self, outer: Var, inner: Var) -> Problem:
        """Two neighbouring axes as one, if in every factor one goes on where the other one ends."""
        extents, (a, b) = dict(self.extents), self.factors
        if not all(f.continues(outer, inner, extents[inner]) for f in (a, b)):
            return self
        one = Var(f"{outer.name}_{inner.name}")
        both = {outer: one // extents[inner], inner: one % extents[inner]}
        extents[one] = extents.pop(outer) * extents.pop(inner)
        outputs, reduced = (
            tuple(one if v is outer else v for v in axes if v is not inner) for axes in (self.outputs, self.reduced)
        )
        factors = a.merged(outer, inner, one, both), b.merged(outer, inner, one, both)
        place = {axis: substitute(e, both) for axis, e in self.place.items()}
        return replace(self, factors=factors, outputs=outputs, reduced=reduced, extents=extents, place=place)

    @staticmethod
    def of(group: Group) -> Problem | None:
        """The contraction that a group is, if it is one, its axes as they are."""
        if "problem" not in group.known:
            group.known["problem"] = Problem._of(group)
        problem: Problem | None = group.known["problem"]
        return problem

    @staticmethod
    def _of(group: Group) -> Problem | None:
        if len(group.reductions) != 1:
            return None
        anchor = group.reductions[0]
        product = summed_product(anchor)
        sizes = _known_sizes(anchor)
        if product is None or sizes is None or not _is_epilogue(group, anchor):
            return None
        if reads_once(anchor) and not group.fallback:
            return None  # each product has elements of its own: a reduction
        first, second = (_source(f, group.fallback) for f in (product.a, product.b))
        if first is None or second is None:
            return None
        place, extents = _loop_axes(sizes, [*first[2], *second[2]])
        a, b = _factor(*first, place, extents), _factor(*second, place, extents)
        if a is None or b is None or not any(sizes[v] > 1 for v in anchor.axes):
            return None
        outputs = tuple(v for axis in anchor.axes for v in _variables(place[axis]))
        reduced = tuple(v for axis in sizes if axis not in anchor.axes for v in _variables(place[axis]))
        return Problem(group, anchor, (a, b), outputs, reduced, extents, place)


def _known_sizes(anchor: Tensor) -> dict[Var, int] | None:
    """Of the axes of the result and of the sum, if all are known and none is empty."""
    assert isinstance(anchor.body, Reduce)
    sizes = [*zip(anchor.axes, anchor.shape, strict=True), *((a.var, a.extent) for a in anchor.body.axes)]
    known = {v: size for v, size in sizes if isinstance(size, int) and size > 0}
    return known if len(known) == len(sizes) else None


def _is_epilogue(group: Group, anchor: Tensor) -> bool:
    """Whether what follows the anchor is elementwise in its shape, all outputs included."""
    before, after = set(_ancestors(anchor)), {anchor}
    for stage in group.stages:
        if stage in before:
            if stage in group.outputs:
                return False
            continue
        dependent = [load for load in loads_of(stage) if load.tensor in after]
        if dependent:
            after.add(stage)
            if stage.shape != anchor.shape or any(not _is_own(load, stage) for load in dependent):
                return False
    return all(o.shape == anchor.shape for o in group.outputs)


def _is_own(load: TensorLoad, stage: Tensor) -> bool:
    """Whether a stage reads the element at its own place; along an axis of size 1 that is at 0."""
    axes = zip(load.indices, stage.axes, stage.shape, strict=True)
    return all(index is axis or (size == 1 and getattr(index, "value", None) == 0) for index, axis, size in axes)


def zero_unless(source: Tensor) -> tuple[PrimExpr, PrimExpr]:
    """(condition, value) of a stage whose element is the value where the condition holds, and 0 elsewhere."""
    body = body_expr(source)
    if isinstance(body, Select) and getattr(body.b, "value", None) == 0:
        return body.condition, body.a
    return const(True, "bool"), body


def _is_uniform(stage: Tensor) -> bool:
    """Whether a stage is computed in the same way wherever it is not zero. One that concatenates tensors or repeats
    elements is better kept in memory: tasks would compute the place of each element again, and where windows overlap
    several times (a convolution of 96 channels of 64 x 64, 32 of them concatenated, 64 upsampled: 16 ms, so 7)."""
    condition, value = zero_unless(stage)
    selects = [n for n in walk(value) if isinstance(n, Select) and not reads_tensors(n.condition)]
    if any(reads_tensors(n.a) and reads_tensors(n.b) for n in selects):
        return False  # the place decides which element is taken
    taken = [n for n in walk(value) if isinstance(n, TensorLoad)]
    is_whole = isinstance(condition, IntImm)  # else a stride may have left zeros between the elements
    return not (is_whole and any(_divides(index) for load in taken for index in load.indices))


def reads_tensors(expr: PrimExpr) -> bool:
    return any(isinstance(n, TensorLoad) for n in walk(expr))


def _divides(index: PrimExpr) -> bool:
    return any(isinstance(n, Binary) and n.kind in ("floordiv", "floormod") for n in walk(index))


def _ancestors(tensor: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    for load in loads_of(tensor):
        if not load.tensor.is_placeholder:
            found += [load.tensor, *_ancestors(load.tensor)]
    return found


def _source(factor: PrimExpr, fallback: bool) -> tuple[str, Tensor, tuple[PrimExpr, ...]] | None:
    """(dtype, tensor, indices) of a factor; stages that only move elements are looked through. What is better kept in
    memory is a source for the last resort only."""
    inner = factor.value if isinstance(factor, Cast) else factor
    while isinstance(inner, TensorLoad) and not inner.tensor.is_placeholder:
        body = body_expr(inner.tensor)
        if not isinstance(body, TensorLoad):
            break
        inner = substitute(body, dict(zip(inner.tensor.axes, inner.indices, strict=True)))
    if not isinstance(inner, TensorLoad) or any(isinstance(n, TensorLoad) for i in inner.indices for n in walk(i)):
        return None
    if not inner.indices:  # a scalar that is repeated: a reduction multiplies by it
        return None
    if not fallback and not all(map(_is_uniform, stages([inner.tensor]))):
        return None
    return factor.dtype, inner.tensor, inner.indices


def _loop_axes(sizes: Mapping[Var, int], indices: Iterable[PrimExpr]) -> tuple[dict[Var, PrimExpr], dict[Var, int]]:
    """What each axis is in terms of loop axes, and their extents."""
    divisors: dict[Var, int] = {}
    for index in indices:
        for node in walk(index):
            if isinstance(node, Binary) and node.kind in ("floordiv", "floormod") and isinstance(node.a, Var):
                divisor = getattr(node.b, "value", 0)
                if node.a in sizes and 1 < divisor < sizes[node.a] and sizes[node.a] % divisor == 0:
                    divisors.setdefault(node.a, divisor)
    place: dict[Var, PrimExpr] = {}
    extents: dict[Var, int] = {}
    for axis, size in sizes.items():
        if size == 1:
            place[axis] = as_expr(0)
        elif axis in divisors:
            outer, inner, divisor = Var(f"{axis.name}_outer"), Var(f"{axis.name}_inner"), divisors[axis]
            extents[outer], extents[inner] = size // divisor, divisor
            place[axis] = outer * divisor + inner
        else:
            place[axis], extents[axis] = axis, size
    return place, extents


def _factor(
    dtype: str, source: Tensor, indices: tuple[PrimExpr, ...], place: Mapping[Var, PrimExpr], extents: Mapping[Var, int]
) -> Factor | None:
    found = [index for i in indices if (index := affine(substitute(i, place), extents)) is not None]
    if len(found) < len(indices):
        return None
    for index, size in zip(found, source.shape, strict=True):
        low, high = index.range(extents)
        if low < 0 or high >= int(size):
            return None  # only a stage that nobody should have built reads outside its source
    return Factor.of(dtype, source, found, extents)


def _place(index: Affine, step: int, first: int) -> Affine:
    """``(index - first) / step``."""
    return Affine({v: c // step for v, c in index.terms.items()}, (index.const - first) // step)


def conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """The conditions that a condition is the conjunction of."""
    if isinstance(condition, Binary) and condition.kind == "and":
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def overlaps(index: Affine, extents: Mapping[Var, int]) -> bool:
    """Whether an index takes a value at several values of its axes."""
    reach = 0
    for v, c in sorted(index.terms.items(), key=lambda term: abs(term[1])):
        if reach >= abs(c):
            return True
        reach += abs(c) * (extents[v] - 1)
    return False


def _variables(expr: PrimExpr) -> list[Var]:
    return [n for n in walk(expr) if isinstance(n, Var)]
