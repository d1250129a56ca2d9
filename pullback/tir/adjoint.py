"""The adjoint of a kernel: from the adjoints of its results to those of its inputs.

    def k(x, w, y):                        def k_adjoint(x, w, dy, dx, dw):
        for i in range(4):                     d_y[…] = dy[…]; dx[…] = 0; dw[…] = 0
            y[i] = 0.0                         for i in range(4), backwards:
            for j in range(8):                     for j in range(8), backwards:
                y[i] += x[j] * w[i, j]    →            d = d_y[i]; d_y[i] = 0; d_y[i] += d
                                                       dx[j] += d * w[i, j]; dw[i, j] += d * x[j]
                                                   d_y[i] = 0

Statements are taken in reverse, loops backwards. A store ``b[i] = e`` takes the adjoint of the element, makes it 0, and
adds to the adjoint of each element that ``e`` reads (Griewank & Walther, Evaluating Derivatives, ch. 3 and 4).

The derivatives of ``e`` are those at the values that it read. Where these are in memory that the kernel writes, it is
run once more beforehand. A store that overwrites one (``overwritten.py``) keeps it on a *tape*, with one place for each
iteration of the loops around it; on the way back it is put in its place again. So are conditions, and values that are
bound to names, when they depend on memory that the kernel writes; they are computed again where that is there anyway.
What no derivative asks for is not kept: the kernel above, whose products read only its inputs, is not run again.

A loop is serial where an element may get its adjoint from several iterations: the order of each sum is that of the
program. Where each iteration has elements of its own (``independent.py``), the innermost loop is one of lanes, and the
outermost one is divided among threads. Of stencils each element gathers what it gets (``gathered.py``), and sums that
stand in the way are taken in lanes (``summed.py``). Adjoints of half-precision elements are added up in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pullback.ir.errors import DifferentiationError
from pullback.ir.node import Node
from pullback.tir.checked import inside_choices
from pullback.tir.derivative import DENSE, MASKED, THINNED, contributions
from pullback.tir.equality import Equality
from pullback.tir.expr import (
    Buffer,
    BufferLoad,
    PrimExpr,
    Var,
    as_expr,
    cast,
    const,
    is_float,
    is_half,
)
from pullback.tir.extents import greatest
from pullback.tir.gathered import Part, nest_of, stencil
from pullback.tir.independent import independent
from pullback.tir.lanes import independent_lanes, reads_no_others
from pullback.tir.naming import named
from pullback.tir.overwritten import overwriting
from pullback.tir.polynomial import key
from pullback.tir.stmt import (
    LOOP_KINDS,
    Allocate,
    BufferStore,
    For,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    loop,
    seq,
    store,
)  # fmt: skip
from pullback.tir.summed import summed
from pullback.tir.visitor import Mutator, Substitute, children, distinct, substitute

_FEW_STORES = 4096  # that threads are not worth


def adjoint_kernel(function: PrimFunc, results: int, wanted: Sequence[int], name: str, degree: int = DENSE) -> PrimFunc:
    """The adjoint of a kernel whose last ``results`` buffers are what it computes. Its parameters: the inputs, the
    scalars, the adjoints of the results of float type, then what it computes: the adjoints of the ``wanted`` inputs.
    ``degree``: to which the adjoints of the results may hold zeros for what was not taken (``derivative.py``).

    Raises DifferentiationError where the number of iterations depends on memory that the kernel writes, or, if values
    have to be kept, is not known.
    """
    return _Adjoint(inside_choices(function), results, wanted, degree).kernel(name)


@dataclass
class _Tape:
    """Values kept in the run forwards: those that a store overwrites, or that a condition or a name has."""

    buffer: Buffer
    place: tuple[PrimExpr, ...]


@dataclass
class _Adjoint:
    function: PrimFunc
    results: int
    wanted: Sequence[int]
    degree: int
    tapes: dict[Stmt, _Tape] = field(default_factory=dict)
    sums: dict[Buffer, Buffer] = field(default_factory=dict)  # of adjoints, by the buffer whose they are
    scalars: dict[Var, Buffer] = field(default_factory=dict)  # likewise of names
    padded: list[Buffer] = field(default_factory=list)  # parts of stencils' adjoints, with zeros around them
    again: dict[Var, Var] = field(default_factory=dict)  # names that are given on the way back too: other variables

    def __post_init__(self) -> None:
        buffers = self.function.buffers
        count = len(buffers) - self.results
        self.inputs, self.outputs = buffers[:count], buffers[count:]
        self.body = _Serial().stmt(independent_lanes(self.function.body))
        nodes = list(distinct(self.body))
        self.allocated = [n.buffer for n in nodes if isinstance(n, Allocate)]
        stored = [n.buffer for n in nodes if isinstance(n, BufferStore)]
        self.written = set(stored)
        read = {n.buffer for n in nodes if isinstance(n, BufferLoad)}
        # The results that one statement writes and none reads: no element is used twice, nor overwritten.
        self.simple = {b for b in self.outputs if stored.count(b) == 1 and b not in read}
        self.names: dict[Var, PrimExpr] = {}  # of whole numbers, with their values
        for node in nodes:
            if isinstance(node, Let) and not is_float(node.var.dtype):
                self.names[node.var] = substitute(node.value, self.names)
        self.active = self._active(nodes)
        uses = self._uses(n for n in nodes if isinstance(n, Stmt))
        self.needed = {load.buffer for found in uses.values() for load in found}
        self.needed |= self._rather_kept(self.body, ())
        self.recomputed = {n for n in nodes if isinstance(n, (Let, If)) and self._is_there(n)}
        for node in self.recomputed:
            uses[node] = uses.get(node, []) + loads(_value_of(node))
        self.overwriting = overwriting(self.body, uses, self.names)

    # -- what matters

    def _active(self, nodes: Sequence[Node]) -> set[Buffer | Var]:
        """What depends on a wanted input: buffers and names of float type."""
        active: set[Buffer | Var] = {self.inputs[k] for k in self.wanted}
        while True:
            size = len(active)
            for node in nodes:
                if (
                    isinstance(node, (BufferStore, Let))
                    and is_float(node.value.dtype)
                    and self._moves(node.value, active)
                ):
                    active.add(node.buffer if isinstance(node, BufferStore) else node.var)
            if len(active) == size:
                return active

    @staticmethod
    def _moves(value: PrimExpr, active: set[Buffer | Var]) -> bool:
        return any((n.buffer if isinstance(n, BufferLoad) else n) in active for n in distinct(value) if _is_leaf(n))

    def _uses(self, nodes: Iterable[Stmt]) -> dict[Stmt, list[BufferLoad]]:
        """What derivatives and indices read, of memory that is written, when the way back comes to a statement."""
        uses: dict[Stmt, list[BufferLoad]] = {}
        one = Var("d", "float64")
        for node in nodes:
            read: list[PrimExpr] = []
            if isinstance(node, BufferStore):
                read += node.indices
            if isinstance(node, (BufferStore, Let)) and is_float(node.value.dtype):
                for leaf, part in contributions(node.value, cast(node.value.dtype, one)):
                    if self._sum_of(leaf) is None:
                        continue
                    read.append(part)
                    if isinstance(leaf, BufferLoad):
                        read += leaf.indices
            elif isinstance(node, For) and any(load.buffer in self.written for load in loads(node.extent)):
                raise DifferentiationError(
                    f"the number of iterations over {node.var.name} depends on memory that {self.function.name} writes",
                    span=node.span,
                )
            if found := [load for expr in read for load in loads(expr) if load.buffer in self.written]:
                uses[node] = found
        return uses

    def _is_there(self, node: Let | If) -> bool:
        """Whether a name's value, or a condition, depends on memory that is written, and can be computed again on the
        way back: derivatives read that memory too, and no statement inside overwrites it."""
        read = self._read_again(node)
        return bool(read) and read <= self.needed

    def _read_again(self, node: Let | If) -> set[Buffer]:
        """The memory that is written of which a name's value, or a condition, is computed; none where it is overwritten
        inside."""
        read = {load.buffer for load in loads(_value_of(node))} & self.written
        inside = [node.body] if isinstance(node, Let) else [s for s in (node.then, node.otherwise) if s is not None]
        return set() if any(isinstance(n, BufferStore) and n.buffer in read for n in distinct(*inside)) else read

    def _rather_kept(self, node: Stmt, loops: tuple[For, ...]) -> set[Buffer]:
        """Memory with fewer stores than there are values of a name that is computed of it: that is kept, and the name's
        values are computed again."""
        if isinstance(node, For):
            return self._rather_kept(node.body, (*loops, node))
        found: set[Buffer] = set()
        if isinstance(node, Let):
            more = self._read_again(node) - self.needed
            if more and self._times(loops) > sum(times for b, times in self._stores_made if b in more):
                found |= more
        for child in children(node):
            if isinstance(child, Stmt):
                found |= self._rather_kept(child, loops)
        return found

    @cached_property
    def _stores_made(self) -> list[tuple[Buffer, float]]:
        """Each store's buffer, and about how often it is made."""

        def visit(node: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[Buffer, float]]:
            if isinstance(node, BufferStore):
                yield node.buffer, self._times(loops)
            for child in children(node):
                if isinstance(child, Stmt):
                    yield from visit(child, (*loops, node) if isinstance(node, For) else loops)

        return list(visit(self.body, ()))

    def _times(self, loops: tuple[For, ...]) -> float:
        return math.prod(math.inf if size is None else size for size in self._sizes(loops))

    def _sizes(self, loops: tuple[For, ...]) -> list[int | None]:
        """How long loops around each other are at the most; None where that is not known."""
        extents = {f.var: substitute(f.extent, self.names) for f in loops}
        return [greatest(extents[f.var], {g.var: extents[g.var] for g in loops[:k]}) for k, f in enumerate(loops)]

    def _sum_of(self, leaf: BufferLoad | Var) -> Buffer | None:
        """Where the adjoint of a load or a name is added up; None when it is of no interest."""
        if isinstance(leaf, Var):
            if leaf not in self.active:
                return None
            return self.scalars.setdefault(leaf, Buffer(f"d_{leaf.name}", (1,), _wide(leaf.dtype), "local"))
        if leaf.buffer not in self.active:
            return None
        scope = "local" if leaf.buffer.scope == "local" else "workspace"
        return self.sums.setdefault(
            leaf.buffer, Buffer(f"d_{leaf.buffer.name}", leaf.buffer.shape, _wide(leaf.buffer.dtype), scope)
        )

    # -- the kernel

    def kernel(self, name: str) -> PrimFunc:
        seeds = [Buffer(f"d{b.name}_in", b.shape, b.dtype) for b in self.outputs if is_float(b.dtype)]
        results = [Buffer(f"d{self.inputs[k].name}", self.inputs[k].shape, self.inputs[k].dtype) for k in self.wanted]
        for k, result in zip(self.wanted, results, strict=True):
            if _wide(result.dtype) == result.dtype:
                self.sums[self.inputs[k]] = result
            else:
                self._sum_of(_first(self.inputs[k]))
        back = substitute(self.backward(self.body, ()), self.again)
        forward = self.forward(self.body) if self.tapes or self.needed else None
        begin, floats = [], [b for b in self.outputs if is_float(b.dtype)]
        for output, seed in zip(floats, seeds, strict=True):
            if output in self.sums:
                begin.append(_filled(self.sums[output], seed.__getitem__))
        begin += [_filled(self.sums[self.inputs[k]]) for k in self.wanted]
        begin += [_filled(buffer) for buffer in self.padded]
        end = [
            _filled(result, self.sums[self.inputs[k]].__getitem__)
            for k, result in zip(self.wanted, results, strict=True)
            if self.sums[self.inputs[k]] is not result
        ]
        body = seq(forward, *begin, back, *end)
        scratch = [tape.buffer for tape in self.tapes.values()]
        scratch += [b for b in self.sums.values() if b not in results] + self.padded
        used = {b for n in distinct(body) for b in _buffers_of(n)}
        own = [b for b in (*self.allocated, *self.outputs, *scratch) if b in used]
        renamed = [Buffer(b.name, b.shape, b.dtype, "workspace" if b.scope == "global" else b.scope) for b in own]
        body = _with_buffers(body, dict(zip(own, renamed, strict=True)))
        for buffer in reversed(renamed):
            body = Allocate(buffer, body)
        variables = [p for p in self.function.params if isinstance(p, Var)]
        return PrimFunc(name, (*self.inputs, *seeds, *results, *variables), body)

    # -- forwards, keeping what is overwritten

    def forward(self, node: Stmt, loops: tuple[For, ...] = ()) -> Stmt | None:
        """The statements that the values on the tapes come from, inside so many loops."""
        if isinstance(node, BufferStore):
            if node.buffer not in self._kept:
                return None
            tape = self.tapes.get(node)
            keep = None if tape is None else store(tape.buffer, tape.place, node.buffer[node.indices])
            return seq(keep, node)
        if isinstance(node, Seq):
            parts = [p for p in (self.forward(n, loops) for n in node.stmts) if p is not None]
            return seq(*parts) if parts else None
        if isinstance(node, Allocate):
            return self.forward(node.body, loops)
        if isinstance(node, Prefetch):
            return None
        if isinstance(node, For):
            body = self.forward(node.body, (*loops, node))
            if body is None:
                return None
            kind = _kind(node.var, node.extent, body, len(loops))
            if kind is None and isinstance(body, BufferStore) and reads_no_others((*loops, node), body):
                kind = "vectorized"
            return For(node.var, node.extent, body, kind or "serial")
        tape = self.tapes.get(node)
        if isinstance(node, Let):
            body = self.forward(node.body, loops)
            keep = None if tape is None else store(tape.buffer, tape.place, node.var)
            return None if body is None and keep is None else Let(node.var, node.value, seq(keep, body))
        if isinstance(node, If):
            then, other = (None if s is None else self.forward(s, loops) for s in (node.then, node.otherwise))
            keep = None if tape is None else store(tape.buffer, tape.place, node.condition)
            branch = None if then is None and other is None else If(node.condition, then or Seq(()), other)
            return None if branch is None and keep is None else seq(keep, branch)
        raise DifferentiationError(f"{type(node).__name__} cannot be differentiated", span=node.span)

    @cached_property  # asked for on the way forwards, when all tapes are known
    def _kept(self) -> set[Buffer]:
        """The buffers whose values matter forwards: those on tapes, and all that these are computed from."""
        kept = set(self.needed)
        for statement in self.tapes:
            kept.update(load.buffer for load in loads(_value_of(statement)))
        while True:
            size = len(kept)
            kept.update(
                load.buffer for s in _stores_to(self.body, kept) for load in loads(s) if load.buffer in self.written
            )
            if len(kept) == size:
                return kept

    def tape(self, node: Stmt, dtype: str, loops: tuple[For, ...]) -> BufferLoad:
        """A place on the tape of a statement for each iteration of the loops around it."""
        sizes = []
        for around, size in zip(loops, self._sizes(loops), strict=True):
            if size is None:
                raise DifferentiationError(
                    f"values of {self.function.name} have to be kept for its gradient, but how many iterations there"
                    f" are over {around.var.name} is not known",
                    span=around.span,
                )
            sizes.append(size)
        buffer = Buffer(f"tape{len(self.tapes)}", tuple(sizes) or (1,), dtype, "workspace")
        place = tuple(f.var for f in loops) or (as_expr(0),)
        self.tapes[node] = _Tape(buffer, place)
        return buffer[place]

    # -- backwards

    def backward(self, node: Stmt, loops: tuple[For, ...]) -> Stmt:
        if isinstance(node, Seq):
            return seq(*(self.backward(s, loops) for s in reversed(node.stmts)))
        if isinstance(node, For):
            if (gathering := self.backward_stencil(node, loops)) is not None:
                return gathering
            body = self.backward(node.body, (*loops, node))
            kind = _kind(node.var, node.extent, body, len(loops))
            if kind == "parallel":
                body = _Serial(("parallel",)).stmt(body)
            if kind is not None:
                return For(node.var, node.extent, body, kind)
            if (lanes := summed(replace(node, body=body), loops, self.names)) is not None:
                return lanes
            turn = Var(f"{node.var.name}_turn")
            return For(turn, node.extent, self.bound(node.var, node.extent - 1 - turn, body))
        if isinstance(node, Allocate):
            total = self._sum_of(_first(node.buffer)) if is_float(node.buffer.dtype) else None
            clear = None if total is None else _filled(total)
            return seq(clear, self.backward(node.body, loops))
        if isinstance(node, If):
            condition = node.condition
            if self._is_overwritten(condition) and node not in self.recomputed:
                condition = self.tape(node, "bool", loops)
            then, other = (None if s is None else self.backward(s, loops) for s in (node.then, node.otherwise))
            return If(condition, then or Seq(()), other)
        if isinstance(node, Let):
            return self.backward_let(node, loops)
        if isinstance(node, BufferStore):
            return self.backward_store(node, loops)
        if isinstance(node, Prefetch):
            return Seq(())
        raise DifferentiationError(f"{type(node).__name__} cannot be differentiated", span=node.span)

    def backward_let(self, node: Let, loops: tuple[For, ...]) -> Stmt:
        whole = self.backward(node.body, loops)
        total = self._sum_of(node.var) if is_float(node.var.dtype) else None
        if total is not None:
            d = Var(f"d_{node.var.name}", node.var.dtype)
            spread = Let(d, cast(d.dtype, total[0]), seq(*self.added(node.value, d, MASKED)))
            whole = Allocate(total, seq(store(total, (0,), const(0, total.dtype)), whole, spread))
        if not any(n is node.var for n in distinct(whole)):
            return whole
        value: PrimExpr = node.value
        if self._is_overwritten(value) and node not in self.recomputed:
            value = self.tape(node, value.dtype, loops)
        return self.bound(node.var, value, whole)

    def bound(self, var: Var, value: PrimExpr, body: Stmt) -> Stmt:
        self.again[var] = Var(var.name, var.dtype)
        return Let(var, value, body)

    def backward_store(self, node: BufferStore, loops: tuple[For, ...]) -> Stmt:
        target, place = node.buffer, node.indices
        if any(load.buffer is target for index in place for load in loads(index)):
            raise DifferentiationError(f"{target.name} is stored where it says itself", span=node.span)
        restore = None
        if node in self.overwriting:
            restore = store(target, place, self.tape(node, target.dtype, loops))
        total = self._sum_of(target[place]) if is_float(target.dtype) else None
        if total is None:
            return seq(restore)
        d = Var("d", node.value.dtype)
        stays, degree = self._staying(node, d, loops)
        taken = store(total, place, const(0, total.dtype)) if stays is None else None
        added = self.added(node.value, d, degree, stays)
        return seq(restore, Let(d, cast(d.dtype, total[place]), seq(taken, *added)))

    def backward_stencil(self, node: For, loops: tuple[For, ...]) -> Stmt | None:
        """A loop over the results of a stencil, whose adjoint elements gather what they get; None for any other."""
        nest, body = nest_of(node)
        if not isinstance(body, BufferStore) or body in self.overwriting or not is_float(body.buffer.dtype):
            return None
        total = self._sum_of(body.buffer[body.indices])
        if total is None or any(load.buffer in self.written for index in body.indices for load in loads(index)):
            return None
        d, equal = Var("d", body.value.dtype), Equality()
        stays, degree = self._staying(body, d, (*loops, *nest))
        sums = [(a, self._sum_of(a), part) for a, part in contributions(body.value, d, degree) if a is not stays]
        wanted = [(leaf, buffer, part) for leaf, buffer, part in sums if buffer is not None]
        found = [(leaf, buffer, part) for leaf, buffer, part in wanted if isinstance(leaf, BufferLoad)]
        if len(found) < len(wanted):
            return None
        given = [Part(buffer, leaf.indices, equal(part)) for leaf, buffer, part in found]
        parts = {equal(part): part for *_, part in found}
        whole = stencil(nest, Part(total, body.indices, -1), given, self.names)
        if whole is None:
            return None
        names, values = named(list(parts.values()))
        spread = seq(
            None if stays is not None else store(total, body.indices, const(0, total.dtype)),
            *(
                store(whole.kept[number], whole.place, cast(whole.kept[number].dtype, value))
                for number, value in zip(parts, values, strict=True)
            ),
        )
        for var, shared in reversed(names):
            spread = Let(var, shared, spread)
        spread = Let(d, cast(d.dtype, total[body.indices]), spread)
        kinds = ["serial"] * (len(nest) - 1) + ["vectorized"]
        if len(nest) > 1 and math.prod(whole.extents) >= _FEW_STORES * 2:
            kinds[0] = "parallel"
        for around, kind in zip(reversed(nest), reversed(kinds), strict=True):
            spread = For(around.var, around.extent, spread, kind)
        if len(nest) > 1:
            self.padded += whole.kept.values()
            return seq(spread, whole.gather(kinds))
        result = seq(whole.borders(), spread, whole.gather(kinds))
        for buffer in whole.kept.values():
            result = Allocate(buffer, result)
        return result

    def _staying(self, node: BufferStore, d: Var, loops: tuple[For, ...]) -> tuple[BufferLoad | Var | None, int]:
        """The old value in ``b[i] = b[i] + …``, whose adjoint is the new one's, and the degree of structural zeros."""
        target, place = node.buffer, node.indices
        stays = next((n for n, part in contributions(node.value, d) if part is d and _is_at(n, target, place)), None)
        degree = self.degree if target in self.simple else MASKED
        return stays, THINNED if stays is not None and self._is_summed(place, loops) else degree

    def _is_summed(self, place: tuple[PrimExpr, ...], loops: tuple[For, ...]) -> bool:
        """Whether a place is that of several iterations, which add up there: of a contraction, if they are products."""
        named = {n for index in place for n in distinct(substitute(index, self.names)) if isinstance(n, Var)}
        return any(around.var not in named for around in loops)

    def added(self, value: PrimExpr, d: PrimExpr, degree: int, stays: PrimExpr | None = None) -> list[Stmt]:
        """To the adjoint of what ``value`` reads, its part of ``d``; but not to that of ``stays``, the old value in
        ``b[i] = b[i] + …``, which has ``d`` already."""
        sums = [(leaf, self._sum_of(leaf), part) for leaf, part in contributions(value, d, degree)]
        found = [(leaf, total, part) for leaf, total, part in sums if total is not None and leaf is not stays]
        names, parts = named([part for *_, part in found])
        stores = []
        for (leaf, total, _), part in zip(found, parts, strict=True):
            place = leaf.indices if isinstance(leaf, BufferLoad) else (as_expr(0),)
            stores.append(store(total, place, total[place] + cast(total.dtype, part)))
        body = seq(*stores)
        for var, shared in reversed(names):
            body = Let(var, shared, body)
        return [body] if stores else []

    def _is_overwritten(self, expr: PrimExpr) -> bool:
        return any(load.buffer in self.written for load in loads(expr))


class _Serial(Mutator):
    """Loops of some kinds become serial ones."""

    def __init__(self, kinds: Sequence[str] = LOOP_KINDS) -> None:
        super().__init__()
        self.kinds = kinds

    def stmt(self, node: Stmt) -> Stmt:
        node = super().stmt(node)
        return replace(node, kind="serial") if isinstance(node, For) and node.kind in self.kinds else node


def _kind(var: Var, extent: PrimExpr, body: Stmt, depth: int) -> str | None:
    """How a loop inside ``depth`` others runs if its iterations are independent; None if they may not be."""
    if not independent(var, body):
        return None
    if not any(isinstance(n, For) for n in distinct(body)):
        return "vectorized"
    many = _stores(For(var, extent, body)) >= _FEW_STORES
    return "parallel" if depth == 0 and many else "serial"


def _stores(node: Stmt) -> int:
    """About how many stores the statement makes; a loop of unknown length makes many."""
    if isinstance(node, For):
        return _stores(node.body) * (greatest(node.extent, {}) or _FEW_STORES)
    parts = [c for c in children(node) if isinstance(c, Stmt)]
    return isinstance(node, BufferStore) + sum(map(_stores, parts))


def _is_at(leaf: PrimExpr, buffer: Buffer, place: tuple[PrimExpr, ...]) -> bool:
    """Whether a leaf is a load of this element."""
    return (
        isinstance(leaf, BufferLoad) and leaf.buffer is buffer and list(map(key, leaf.indices)) == list(map(key, place))
    )


def _filled(buffer: Buffer, value: Callable[[tuple[PrimExpr, ...]], PrimExpr] | None = None) -> Stmt:
    """Every element of a buffer; 0 where nothing else is said."""
    zero = const(0, buffer.dtype)
    many = math.prod(s if isinstance(s, int) else _FEW_STORES for s in buffer.shape) >= _FEW_STORES

    def nest(indices: tuple[PrimExpr, ...]) -> Stmt:
        if len(indices) == len(buffer.shape):
            return store(buffer, indices, zero if value is None else cast(buffer.dtype, value(indices)))
        k, last = len(indices), len(buffer.shape) - 1
        kind = "vectorized" if k == last else "parallel" if k == 0 and many else "serial"
        return loop(f"i{k}", buffer.shape[k], lambda i: nest((*indices, i)), kind)

    return nest(())


def _stores_to(node: Stmt, buffers: set[Buffer]) -> list[Stmt]:
    """The stores to the buffers; names and conditions around them count, since what they read decides."""
    found = [n for n in distinct(node) if isinstance(n, BufferStore) and n.buffer in buffers]
    around = [n for n in distinct(node) if isinstance(n, (Let, If)) and any(s in found for s in distinct(n))]
    exprs: list = [n.value if isinstance(n, Let) else n.condition for n in around]
    return [*found, *exprs]


def _with_buffers(node: Stmt, buffers: dict[Buffer, Buffer]) -> Stmt:
    return Substitute(buffers=buffers).stmt(node)


def _buffers_of(node: object) -> list[Buffer]:
    buffer = getattr(node, "buffer", None)
    return [buffer] if isinstance(buffer, Buffer) else []


def _first(buffer: Buffer) -> BufferLoad:
    """Any element, to ask where the adjoints of the buffer are."""
    return buffer[tuple(as_expr(0) for _ in buffer.shape)]


def loads(node: Node) -> list[BufferLoad]:
    return [n for n in distinct(node) if isinstance(n, BufferLoad)]


def _is_leaf(node: object) -> bool:
    return isinstance(node, (BufferLoad, Var))


def _value_of(node: Stmt) -> PrimExpr:
    """Of a store or a name its value, of an If its condition."""
    assert isinstance(node, (If, Let, BufferStore))
    return node.condition if isinstance(node, If) else node.value


def _wide(dtype: str) -> str:
    return "float32" if is_half(dtype) else dtype
