"""The order of a sum: which terms are added to which.

It is a function of the sum's own shape: how many terms it has, along which axes, and how many such sums there are. It
knows nothing of the kernel in which a sum stands, of memory, layouts or the machine. So a value has the same bits
whatever is fused with it, and wherever what it is computed from comes from.

A **reduction** names its terms by axes, outermost first, as its op does. The last axes count as one, until it is at
least 16 long: ``i`` runs along it, and ``o`` along all axes before it.

    lane[l] = 0
    for o: for i = l, l + 64, …, as long as there are 64 terms:
        lane[l] = lane[l] + ((x[o, i] + x[o, i + 16]) + (x[o, i + 32] + x[o, i + 48]))
    then i = l, l + 16, … of what is left:  lane[l] = lane[l] + x[o, i]
    lane[l] = lane[l] + lane[l + 8], of those lane[l] = lane[l] + lane[l + 4], … until one is left

**Products** that the op itself adds up (vecdot, variance) are multiply-adds, from the last of four terms to the first:

        lane[l] = lane[l] + (a₀·b₀ + (a₁·b₁ + (a₂·b₂ + a₃·b₃)))        one:  lane[l] = a·b + lane[l]

each a·b + c rounded once, where the machine can. Products of another op are terms like any other.

Where 16 lanes are a vector that is what memory likes, if ``i`` is innermost; where a kept axis is, each of its vectors
has 16 running sums in the nearest cache, and four loads to one of those. Few long sums are cut into chunks, each such
a sum of its own, and the sums of the chunks are added up as the terms of one.

A **contraction** (a matmul, a convolution) runs through its axes as its op names them, one multiply-add after the
other, because its kernel has a register for every sum. Few long ones are cut into parts, which are added up in pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pullback.te.graph import combine, identity
from pullback.tir import Binary, PrimExpr
from pullback.tir.static import number

MultiplyAdd = Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]

LANES = 16
STEP = 4  # terms of a lane that are added up before they meet it: as many loads at once, one step of its latency

CHUNKS = 64  # at most
CHUNK = 1 << 12  # elements that a chunk has at least, of up to as many sums
SIDE_BY_SIDE = 64  # as a task takes side by side
LEAST = 256  # terms of a chunk, and
MANY = 4  # of many sums as many times their number: they are tasks enough without, unless they are long
FEW = 2048  # sums that make tasks enough


@dataclass(frozen=True)
class Cut:
    """Chunks of ``size``, the last one perhaps smaller, along the inner axis or the outer one."""

    is_inner: bool
    size: int
    count: int


@dataclass(frozen=True)
class Order:
    """The order of a reduction of ``outer · inner`` terms."""

    outer: int
    inner: int
    cut: Cut | None = None

    @staticmethod
    def of(extents: Sequence[int], sums: int) -> Order:
        """The order of each of ``sums`` reductions over axes of these extents."""
        outer = list(extents)
        inner = 1
        while outer and inner < LANES:
            inner *= outer.pop()
        return Order(math.prod(outer), inner, _cut(outer, inner, max(1, sums)))

    @property
    def terms(self) -> int:
        return self.outer * self.inner

    def chunk(self, size: int) -> Order:
        """The order of a chunk of this size."""
        assert self.cut is not None
        return Order(self.outer, size) if self.cut.is_inner else Order(size, self.inner)

    @property
    def of_chunks(self) -> Order:
        """The order in which the sums of the chunks are added up."""
        assert self.cut is not None
        return Order(1, self.cut.count)

    def added(
        self, kind: str, terms: Sequence[PrimExpr], dtype: str, multiply_add: MultiplyAdd | None = None
    ) -> PrimExpr:
        """The whole reduction of these terms (outer axis first) as one expression."""
        lanes: dict[int, PrimExpr] = {}
        for o in range(self.outer):
            for piece in pieces(self.inner):
                for step, lane in itertools.product(range(piece.steps), range(piece.lanes)):
                    places = [number(o * self.inner + piece.at(step, lane, k)) for k in range(piece.terms)]
                    lanes[lane] = met(kind, lanes.get(lane), [terms[k] for k in places], multiply_add)
        for half, count in halves(len(lanes)):
            for lane in range(count):
                lanes[lane] = combine(kind, lanes[lane], lanes[lane + half])
        nothing = identity(kind, dtype)  # once is enough: it tells 0 from -0
        return combine(kind, nothing, lanes[0]) if lanes else nothing


def _cut(outer: Sequence[int], inner: int, sums: int) -> Cut | None:
    """Chunks, where there are few long sums: enough of them for threads, and not too short. They are whole values of
    the outermost axis, if that is long enough."""
    least = max(LEAST, MANY * sums, CHUNK // min(sums, SIDE_BY_SIDE))
    wanted = min(CHUNKS, math.prod(outer) * inner // least, FEW // sums)
    if wanted < 2:
        return None
    step, length = STEP * LANES, math.prod(outer)
    is_inner = length < wanted and inner > step
    if is_inner:  # as many whole ones, for threads, and what is left
        length, size = inner, max(1, inner // (wanted * step)) * step
    elif outer and outer[0] >= wanted:
        size = _even(outer[0], wanted) * math.prod(outer[1:])
    else:
        size = _even(length, min(wanted, length))
    count = -(-length // size)
    return Cut(is_inner, size, count) if count > 1 else None


def _even(extent: int, parts: int) -> int:
    """The size of about as many parts, rather a divisor."""
    least = -(-extent // parts)
    return next((s for s in range(least, min(2 * least, extent)) if extent % s == 0), least)


@dataclass(frozen=True)
class Piece:
    """Steps along the inner axis, from ``first`` on: each of ``lanes`` lanes takes ``terms`` terms 16 apart."""

    steps: int
    first: int
    terms: int
    lanes: int

    def at(self, step: PrimExpr | int, lane: PrimExpr | int, term: int) -> PrimExpr | int:
        """The term's place on the inner axis."""
        return step * (self.terms * LANES) + (self.first + term * LANES) + lane


def pieces(inner: int) -> Iterator[Piece]:
    """The inner axis: four terms of each lane at a time, then one, then one of the lanes that are left."""
    steps, rest = divmod(inner, STEP * LANES)
    vectors, lanes = divmod(rest, LANES)
    if steps:
        yield Piece(steps, 0, STEP, LANES)
    if vectors:
        yield Piece(vectors, inner - rest, 1, LANES)
    if lanes:
        yield Piece(1, inner - lanes, 1, lanes)


def halves(lanes: int) -> Iterator[tuple[int, int]]:
    """``(half, count)``: the first ``count`` lanes take up those that are ``half`` further, until one is left."""
    half = LANES // 2
    while half:
        if lanes > half:
            yield half, lanes - half
            lanes = half
        half //= 2


def met(
    kind: str, before: PrimExpr | None, terms: Sequence[PrimExpr], multiply_add: MultiplyAdd | None = None
) -> PrimExpr:
    """A lane after its next terms; ``multiply_add``: of these as products."""
    if multiply_add is not None:
        if before is not None and len(terms) == 1:
            return _fused(terms, before, multiply_add)
        own = _fused(terms[:-1], terms[-1], multiply_add)
    else:
        own = tree(kind, terms)
    return own if before is None else combine(kind, before, own)


def _fused(products: Sequence[PrimExpr], total: PrimExpr, multiply_add: MultiplyAdd) -> PrimExpr:
    """The last product is added first. (One with a factor 1 is that no more.)"""
    for term in reversed(products):
        total = multiply_add(term.a, term.b, total) if isinstance(term, Binary) and term.kind == "mul" else total + term
    return total


def tree(kind: str, values: Sequence[PrimExpr]) -> PrimExpr:
    """The values combined in pairs: (0 1) (2 3), and what is left over last."""
    while len(values) > 1:
        pairs = [combine(kind, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]
