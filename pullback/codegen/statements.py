"""Statements of the loop IR in generated code: loops of every kind, conditions, local buffers, parallel tasks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from pullback.codegen.collective import await_collective, start_collective
from pullback.codegen.expressions import Lanes
from pullback.codegen.memory import padded
from pullback.codegen.neighbours import NeighbourStores
from pullback.codegen.packed import packed_call
from pullback.codegen.poly import Poly, lane_number
from pullback.codegen.values import Value
from pullback.ir.errors import InternalError, UserError
from pullback.ir.node import remembered
from pullback.tir.caches import LINE
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    IntImm,
    PrimExpr,
    Select,
    Var,
    const,
    is_float,
    is_half,
    nbytes,
)
from pullback.tir.math import expand, is_chain
from pullback.tir.ranges import LARGEST_SIZE
from pullback.tir.static import static
from pullback.tir.stmt import (
    Allocate,
    Await,
    Box,
    BufferStore,
    Collective,
    For,
    HostCall,
    If,
    KernelCall,
    Let,
    PackedCall,
    Prefetch,
    Recur,
    Release,
    Seq,
    Stmt,
    Unbox,
    store,
)
from pullback.tir.visitor import children, statements, walk

FEW_CHUNKS = 4  # vectors of a loop that are written out: of a brief body, or one whose indices become numbers
BRIEF = 256  # nodes of a body without branches, above which the loop around it is a small part
TERMS = ((64, 4, 2), (16, 2, 1))  # a loop of so many terms: so many in each step, of large tiles and of others
SIDE_BY_SIDE = 4  # vectors of a loop whose instructions wait for one another
Outliner = Callable[["Statements", For], None]
Chunk = tuple[int, int, int]  # first iteration, lanes, lanes that count


class Statements(NeighbourStores):
    """Emits statements into one function. ``outline`` is called for parallel loops."""

    def __init__(self, *args: Any, outline: Outliner | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.outline = outline

    def stmt(self, node: Stmt) -> None:
        method = getattr(self, "stmt_" + type(node).__name__.lower(), None)
        if method is None:
            raise InternalError(f"{type(node).__name__} is not a statement of a kernel")
        method(node)

    def stmt_seq(self, node: Seq) -> None:
        for part in node.stmts:
            self.stmt(part)

    def stmt_bufferstore(self, node: BufferStore) -> None:
        self.store(node)

    def stmt_prefetch(self, node: Prefetch) -> None:
        self.prefetch(node)

    def stmt_collective(self, node: Collective) -> None:
        start_collective(self, node)

    def stmt_await(self, node: Await) -> None:
        await_collective(self, node)

    def stmt_packedcall(self, node: PackedCall) -> None:
        packed_call(self, node)

    def stmt_allocate(self, node: Allocate) -> None:
        with self.allocated(node.buffer):
            self.clear_padding(node.buffer)
            self.stmt(node.body)

    def clear_padding(self, buffer: Buffer) -> None:
        """Zeros behind the rows of a local buffer. The last vector of a row is computed with as a whole, and what lies
        behind the row thrown away; but that may be subnormal, and Intel's cores multiply such numbers a hundred times
        slower. Where rows are registers, the stores are dead."""
        memory, lanes = self.memory[buffer], self.target.lanes(buffer.dtype)
        if memory.lanes > 1 or not is_float(buffer.dtype) or not self.target.abilities.masks:
            return
        if not buffer.shape:
            return
        sizes = static(buffer.shape)
        rows = math.prod(sizes[:-1])
        whole = Buffer(f"{buffer.name}_padding", (rows, memory.row), buffer.dtype, "local")
        self.memory[whole] = dataclasses.replace(memory, strides=(Poly.of(memory.row), Poly.of(1)))
        row, lane = Var("row"), Var("lane")

        def clear(first: int, width: int) -> For:
            return For(lane, IntImm(width), store(whole, (row, lane + first), const(0, buffer.dtype)), "vectorized")

        if memory.row > sizes[-1]:
            width = memory.row % lanes or lanes
            fits = rows * memory.row <= self.target.registers * lanes
            kind = "unrolled" if fits else "serial"
            self.stmt(For(row, IntImm(rows), clear(memory.row - width, width), kind))
        if memory.count > rows * memory.row:
            with self.bound(row, Poly.of(rows - 1)):
                self.stmt(clear(memory.row, memory.count - rows * memory.row))
        del self.memory[whole]

    def stmt_let(self, node: Let) -> None:
        value = self.poly(node.value) if node.var.dtype == "int64" else self.value(node.value)
        with self.bound(node.var, value):
            self.stmt(node.body)

    # ---- conditions

    def stmt_if(self, node: If) -> None:
        condition = self.value(node.condition)
        if condition.const is not None:
            taken = node.then if condition.const else node.otherwise
            if taken is not None:
                self.stmt(taken)
            return
        if condition.lanes > 1:
            self._masked(condition, node.then)
            if node.otherwise is not None:
                inverse = self.call("not", [condition])
                assert inverse is not None
                self._masked(inverse, node.otherwise)
            return
        then, after = self.builder.label("then"), self.builder.label("endif")
        otherwise = self.builder.label("else") if node.otherwise is not None else after
        self.builder.branch_if(condition.ref, then, otherwise)
        self._branch(then, node.then, after)
        if node.otherwise is not None:
            self._branch(otherwise, node.otherwise, after)
        self.builder.start(after)
        self.written(*stored_buffers(node))

    def _branch(self, label: str, body: Stmt, after: str) -> None:
        self.builder.start(label)
        self.forget()
        with self.builder.scope():
            self.stmt(body)
        self.builder.branch(after)

    def _masked(self, condition: Value, body: Stmt) -> None:
        """``body`` for the lanes where the condition holds, if there are any."""
        outer = self.inside
        mask = Value(self.builder.pure(f"freeze {condition.typed}"), "bool", condition.lanes)
        if outer.mask is not None:
            mask = self.binary("and", mask, outer.mask)
        some = self.builder.pure(f"call i1 @llvm.vector.reduce.or.v{mask.lanes}i1({mask.typed})")
        self.lanes = Lanes(outer.count, outer.atom, mask)
        self.forget()
        with self.builder.when(some):
            self.stmt(body)
        self.lanes = outer
        self.written(*stored_buffers(body))

    # ---- loops

    def stmt_for(self, node: For) -> None:
        extent = self.poly(node.extent)
        if extent.const is not None and extent.const <= 0:
            return
        if node.kind == "unrolled":
            if extent.const is None:
                hint = "make it a serial loop, or its extent a number"
                raise UserError(
                    f"the unrolled loop over {node.var.name} has a symbolic extent", span=node.span, hint=hint
                )
            self._iterations(node, Poly.of(0), extent.const, self._fills_registers(node))
        elif node.kind == "vectorized":
            if self.lanes is not None:
                hint = "make one of the two a serial loop"
                raise UserError(
                    f"the vectorized loop over {node.var.name} is inside another one", span=node.span, hint=hint
                )
            self._vectorized(node, extent)
        elif node.kind == "parallel":
            self._parallel(node, extent)
        elif extent.const == 1:
            with self.bound(node.var, Poly.of(0)):
                self.stmt(node.body)
        else:
            self._serial(node, extent)

    def _parallel(self, node: For, extent: Poly) -> None:
        if self.lanes is not None or self.outline is None:
            message = f"the parallel loop over {node.var.name} is inside a parallel or vectorized loop"
            raise UserError(message, span=node.span, hint="make one of the two a serial loop")
        if extent.const == 1:
            with self.bound(node.var, Poly.of(0)):
                self.stmt(node.body)
            return
        self.outline(self, node)
        self.written(*stored_buffers(node.body))

    def _serial(self, node: For, extent: Poly) -> None:
        if extent.varies:
            raise InternalError(f"the extent of the loop over {node.var.name} differs between lanes")
        together = self._terms_of_a_step(node, extent)
        whole = self.quotient(extent, together) if together > 1 else extent
        done = whole.scaled(together)
        self.counted("0", whole, node.body, lambda i: self._iterations(node, i.scaled(together), together, apart=True))
        rest = (extent - done).const
        if rest is not None:
            self._iterations(node, done, rest, apart=True)
        else:
            self.counted(self.scalar(done), extent, node.body, lambda i: self._iterations(node, i, 1))

    def _iterations(self, node: For, first: Poly, count: int, apart: bool = False) -> None:
        """So many iterations of a loop, one after the other; ``apart``, each loads for itself what it needs."""
        for i in range(count):
            if apart and i:
                self._forget_loads()
            with self.bound(node.var, first + Poly.of(i)):
                self.stmt(node.body)

    def _terms_of_a_step(self, node: For, extent: Poly) -> int:
        """How many iterations are one step of a loop that adds terms to a tile of sums by fused multiply-adds:
        counting, comparing and branching are a sixth of the instructions of a term of a dozen sums, and where two
        threads share a core, instructions are what they share.

        Rows of several whole vectors only. In rows of one vector, what is common to a row's sums is used once, and LLVM
        puts the sum where it was: from the second term on, sums go from register to register, and into memory."""
        body = node.body
        if not (isinstance(body, For) and body.kind == "vectorized" and isinstance(body.extent, IntImm)):
            return 1
        width = self.width(body)
        whole, rest = divmod(body.extent.value, width)
        sums = _unrolled_size(body) * whole
        if width == 1 or whole < 2 or rest or 2 * sums < self.target.registers or not self._is_tile(body):
            return 1
        if not any(isinstance(n, Call) and n.name == "fma" for n in walk(body)):
            return 1
        is_large = 8 * sums >= 5 * self.target.registers  # others are mostly ends of rows, and only more code
        most = extent.range[1] if extent.range is not None else TERMS[0][0]
        return next((large if is_large else small for length, large, small in TERMS if most >= length), 1)

    def counted(self, begin: str, extent: Poly, body: Stmt, emit: Callable[[Poly], None]) -> None:
        """A run-time loop: ``emit`` writes the ``body`` for i from ``begin`` to ``extent``."""
        bounds = extent.range
        changed = stored_buffers(body)
        end = self.scalar(extent)
        with self.builder.counting(begin, end, guard=begin != "0" or bounds is None or bounds[0] < 1) as index:
            atom = self.atom(index, (0, bounds[1] - 1) if bounds is not None and bounds[1] > 0 else (0, LARGEST_SIZE))
            self.written(*changed)
            emit(Poly.of(atom))
        self.written(*changed)

    # ---- vectorized loops

    def _vectorized(self, node: For, extent: Poly) -> None:
        width = self.width(node)
        if extent.const is None:
            self._vectorized_dynamic(node, extent, width)
            return
        full, chunks = extent.const // width, self.chunks(extent.const, width)
        if 1 < len(chunks) <= 2 * self.target.registers and self._is_tile(node) and not _is_map(node):
            if _unrolled_size(node.body) > len(chunks):
                self._interleaved(node, node.body, chunks)
                return
        elif full > 1 and not (len(chunks) <= FEW_CHUNKS and (_bends(node) or _is_brief(node.body))):
            self._lanes_loop(node, Poly.of(full), width)
            chunks = chunks[full:]
        self.is_alone = len(chunks) == 1 and full <= 1
        for chunk in chunks:
            self._constant_chunk(node, node.body, chunk)
        self.is_alone = False

    def _interleaved(self, node: For, body: Stmt, chunks: list[Chunk]) -> None:
        """Statement by statement, each for all chunks: what is shared along the lanes is live for a short time only."""
        if isinstance(body, Seq):
            for part in body.stmts:
                self._interleaved(node, part, chunks)
        elif isinstance(body, For) and body.kind == "unrolled" and (times := self.poly(body.extent).const) is not None:
            for i in range(times):
                with self.bound(body.var, Poly.of(i)):
                    self._interleaved(node, body.body, chunks)
        else:
            for chunk in chunks:
                self._constant_chunk(node, body, chunk)

    def _constant_chunk(self, node: For, body: Stmt, chunk: Chunk) -> None:
        start, lanes, active = chunk
        mask = self.constant_mask(active, lanes) if active < lanes else None
        self._chunk(node, body, Poly.of(start), lanes, mask, active)

    def _vectorized_dynamic(self, node: For, extent: Poly, width: int) -> None:
        full = self.quotient(extent, width)
        self._lanes_loop(node, full, width)
        done = full.scaled(width)
        rest = self.scalar(extent - done)
        masked = self.target.abilities.masks
        some = self.builder.pure(f"icmp sgt i64 {rest}, 0")
        changed = stored_buffers(node.body)
        with self.builder.when(some):
            if masked and width > 1:
                self._chunk(node, node.body, done, width, self.lane_mask(rest, width), None)
            else:
                with self.builder.counting("0", rest, guard=False) as index:
                    self.written(*changed)
                    with self.bound(node.var, done + Poly.of(self.atom(index, (0, LARGEST_SIZE)))):
                        self.stmt(node.body)
        self.written(*changed)

    def _lanes_loop(self, node: For, full: Poly, width: int) -> None:
        """A run-time loop over whole vectors."""
        if width == 1:
            self.counted("0", full, node.body, lambda i: self._iterations(node, i, 1))
            return
        done = Poly.of(0)
        together = self._together(node.body)
        if together > 1 and (full.const is None or full.const >= together):
            sets = self.quotient(full, together)
            self._vectors(node, done, sets, width * together)
            done = sets.scaled(together)
        if full.const is None or done.const != full.const:
            self._vectors(node, done, full, width)

    def _together(self, body: Stmt) -> int:
        """How many vectors of a loop are one step of it. Those of an elementary function, a chain of twenty
        instructions or more that wait for one another, are some side by side: one chain alone leaves half of the units
        idle. What is written past the caches is whole lines."""
        if not _is_straight(body):
            return 1
        if _is_chain(body):
            return SIDE_BY_SIDE
        passes_caches = any(b in self.streamed for b in stored_buffers(body))
        return max(1, LINE // self.target.vector_bytes) if passes_caches else 1

    def _vectors(self, node: For, begin: Poly, end: Poly, width: int) -> None:
        """The vectors of so many lanes from one number to another."""
        lane = lane_number(width)
        self.lanes = Lanes(width, lane)

        def vector(number: Poly) -> None:
            with self.bound(node.var, number.scaled(width) + Poly.of(lane)):
                self._of_lanes(node.body)

        self.counted(self.scalar(begin), end, node.body, vector)
        self.lanes = None

    def quotient(self, poly: Poly, divisor: int) -> Poly:
        """Of a polynomial that is not negative and does not differ between lanes."""
        if poly.const is not None:
            return Poly.of(poly.const // divisor)
        whole, bounds = self.op("sdiv", "int64", *map(self.poly_value, (poly, Poly.of(divisor)))), poly.range
        return Poly.of(
            self.atom(whole.ref, (0, max(0, bounds[1]) // divisor) if bounds is not None else (0, LARGEST_SIZE))
        )

    def _chunk(self, node: For, body: Stmt, start: Poly, lanes: int, mask: Value | None, active: int | None) -> None:
        """One vector of iterations, beginning at ``start``."""
        if lanes == 1:
            with self.bound(node.var, start):
                self.stmt(body)
            return
        lane = lane_number(lanes)
        self.lanes = Lanes(lanes, lane, mask, active if mask is not None else None)
        with self.bound(node.var, start + Poly.of(lane)):
            self._of_lanes(body)
        self.lanes = None

    def _of_lanes(self, body: Stmt) -> None:
        """The body of a vectorized loop, for the current lanes."""
        if _is_written_out(body):
            with self.holding():
                self.stmt(body)
        else:
            self.stmt(body)

    def chunks(self, extent: int, width: int) -> list[Chunk]:
        """``(start, lanes, lanes that count)`` of whole vectors and then of the rest: one masked vector, or, where the
        CPU has no masks, vectors of falling powers of two."""
        result = [(start, width, width) for start in range(0, extent - extent % width, width)]
        start = extent - extent % width
        while start < extent:
            rest = extent - start
            lanes = padded(rest, width) if self.target.abilities.masks else 1 << (rest.bit_length() - 1)
            result.append((start, lanes, min(rest, lanes)))
            start += lanes
        return result

    def width(self, node: For) -> int:
        """Lanes of a vectorized loop: a vector register of the widest element that its body computes with."""
        return self.target.vector_bytes // max(_element_sizes(node.body), default=4)

    def _fills_registers(self, node: For) -> bool:
        """Whether each iteration adds to one tile of sums beside which there is only room for what one term needs."""
        body = node.body
        while isinstance(body, For) and body.kind == "unrolled":
            body = body.body
        if not (isinstance(body, For) and body.kind == "vectorized" and self._is_tile(body)):
            return False
        stores = [n for n in walk(body) if isinstance(n, BufferStore) and not _is_in(n.indices, node.var)]
        sums = [n.buffer for n in stores if n.buffer in self.memory and self.memory[n.buffer].local]
        most = self.target.registers * 3 // 4
        return any(most <= self.memory[n].count // self.target.lanes(n.dtype) <= self.target.registers for n in sums)

    def _forget_loads(self) -> None:
        """What follows loads for itself what it needs, when it needs it. Left to itself, LLVM loads all that several
        terms need at once, has no registers for it, and puts it back into memory. The fence is no instruction."""
        self.builder.effect('fence syncscope("singlethread") seq_cst')
        self.written(*self.memory)

    def _is_tile(self, node: For) -> bool:
        """Whether the body keeps values of this loop's lanes in a local buffer of an outer scope: registers."""
        known = [self.memory.get(buffer) for buffer in _buffers_along(node)]
        return any(memory is not None and memory.local for memory in known)


@remembered
def _buffers_along(node: For) -> tuple[Buffer, ...]:
    """Buffers of an outer scope of which a loop's iterations read or write different elements."""
    own = {n.buffer for n in statements(node.body) if isinstance(n, Allocate)}
    accesses = [n for n in walk(node.body) if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in own]
    return tuple({n.buffer: None for n in accesses if _is_in(n.indices, node.var)})


@remembered
def stored_buffers(node: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement writes, or hands to kernels."""
    found: dict[Buffer, None] = {}
    for n in statements(node):
        if isinstance(n, BufferStore):
            found[n.buffer] = None
        elif isinstance(n, Recur):
            found.update(dict.fromkeys((*n.buffers, n.heap)))
        elif isinstance(n, (KernelCall, HostCall)):
            found.update(dict.fromkeys(n.buffers))
        elif isinstance(n, Collective):
            found.update(dict.fromkeys((*n.received, *([] if n.ticket is None else [n.ticket]))))
        elif isinstance(n, Await):
            found.update(dict.fromkeys((*n.received, *n.targets)))
        elif isinstance(n, PackedCall):
            found.update(dict.fromkeys((*n.outputs, n.flag)))
        elif isinstance(n, Box):
            found |= {n.handle: None, n.heap: None}
        elif isinstance(n, Unbox):
            found.update(dict.fromkeys(n.fields))
        elif isinstance(n, Release):
            found[n.heap] = None
    return tuple(found)


def _is_in(indices: Iterable[PrimExpr], var: Var) -> bool:
    return any(n is var for index in indices for n in walk(index))


@remembered
def _bends(node: For) -> bool:
    """Whether an index divides the loop's variable or bounds it: known numbers, where the vector's first lane is."""
    kinds = ("floordiv", "floormod", "min", "max")
    inner = [n for n in walk(node.body) if isinstance(n, Binary) and n.kind in kinds and n.dtype == "int64"]
    return any(m is node.var for n in inner for m in walk(n))


@remembered
def _is_straight(body: Stmt) -> bool:
    """Whether there are no branches and loops in it."""
    return all(isinstance(n, (Seq, Let, BufferStore)) for n in statements(body))


@remembered
def _is_written_out(body: Stmt) -> bool:
    """Whether it becomes a straight line of instructions."""
    return not any(isinstance(n, If) or (isinstance(n, For) and n.kind != "unrolled") for n in statements(body))


@remembered
def _is_brief(body: Stmt) -> bool:
    """Whether it is straight, and so short that a loop around it would be a large part."""
    return _is_straight(body) and sum(1 for _ in islice(walk(body), BRIEF + 1)) <= BRIEF


@remembered
def _is_chain(body: Stmt) -> bool:
    """Whether a body without branches and loops computes elementary functions, whatever the arguments by the same
    instructions."""
    if not _is_straight(body):
        return False
    calls = [n for n in walk(body) if isinstance(n, Call) and expand(n.name, _wide(n.dtype)) is not None]
    return bool(calls) and all(is_chain(n.name, n.dtype) for n in calls)


@remembered
def _is_map(node: For) -> bool:
    """Whether it computes elementary functions of one buffer for another."""
    nodes = list(walk(node.body))
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)}
    return _is_chain(node.body) and read.isdisjoint(n.buffer for n in nodes if isinstance(n, BufferStore))


def _wide(dtype: str) -> str:
    return "float32" if is_half(dtype) else dtype


@remembered
def _unrolled_size(node: Stmt) -> int:
    """The largest number of copies that unrolled loops make of a statement inside."""
    own = (
        node.extent.value
        if isinstance(node, For) and node.kind == "unrolled" and isinstance(node.extent, IntImm)
        else 1
    )
    return own * max((_unrolled_size(c) for c in children(node) if isinstance(c, Stmt)), default=1)


@remembered
def _element_sizes(node: Stmt | PrimExpr) -> frozenset[int]:
    """Bytes of the elements that a statement loads, stores and computes, apart from its indices."""
    sizes: set[int] = set()
    stack: list = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, BufferLoad):
            sizes.add(_computed_size(current.dtype))
            continue
        if isinstance(current, BufferStore):
            sizes.add(_computed_size(current.buffer.dtype))
            stack.append(current.value)
            continue
        computes = isinstance(current, (Binary, Select, Cast, Call))
        if computes and current.dtype not in ("int64", "bool"):  # int64 is mostly index arithmetic
            sizes.add(_computed_size(current.dtype))
        stack.extend(children(current))
    return frozenset(sizes)


def _computed_size(dtype: str) -> int:
    return 4 if is_half(dtype) else nbytes(dtype)
