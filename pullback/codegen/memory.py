"""Loads and stores: the address of an element, and the cheapest access for all lanes at once.

An access whose index does not differ between lanes is a scalar one; stride 1 is a vector one; anything else gathers or
scatters. Lanes that don't count are masked off, except in local memory, whose rows are padded to whole vectors, and
where a mask would be one of the vector registers and the lanes are elements of the buffer for sure: these are loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.codegen.expressions import Expressions
from pullback.codegen.poly import Poly
from pullback.codegen.values import Value, memory_type, suffix
from pullback.ir.errors import InternalError, UserError
from pullback.tir.expr import Buffer, BufferLoad, Call, PrimExpr, is_float, nbytes
from pullback.tir.pairs import PAIR
from pullback.tir.static import is_static, static
from pullback.tir.stmt import BufferStore, Prefetch
from pullback.tir.visitor import walk

_PER_VECTOR = 3  # elements that are sooner written with a mask than one by one
_ZEROS = [f"splat ({kind} 0x0000000000000000)" for kind in ("float", "double")]
STACK_LIMIT = 256 * 1024  # bytes of one local buffer
MOST_VECTORS = 4  # that are loaded and shuffled for elements at known distances


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a buffer lies.

    ``count`` is the number of elements, 0 where it is not known. Of a local buffer those behind the last row count too,
    ``row`` is the padded length of the last axis, and ``lanes`` > 1 when each lane of a vectorized loop has its own
    copy, interleaved.
    """

    pointer: str
    strides: tuple[Poly, ...]
    local: bool = False
    row: int = 0
    lanes: int = 1
    count: int = 0


class Access(NamedTuple):
    """An access for the current lanes: ``kind`` is uniform, contiguous, known (elements at ``offsets``, one for each
    lane that counts) or scattered (a vector of pointers)."""

    kind: str
    pointer: str
    align: int
    unmasked: bool = False  # contiguous, and the lanes that don't count are a row's padding, or part of it
    padding: bool = False  # and may be written too
    readable: bool = False  # contiguous, and the lanes that don't count are elements of the buffer
    moves: bool = True  # to another place in another iteration: no register
    offsets: tuple[int, ...] = ()
    start: Poly | None = None  # known: how many elements into the buffer's memory the pointer is
    room: tuple[int, int] = (0, 0)  # elements before and after the pointer that are the function's own, as far as known
    step: int = 1  # bytes that divide the distance from the buffer's beginning


def padded(extent: int, lanes: int) -> int:
    """The extent rounded up so that whole vectors of ``lanes``, and a power of two of the rest, fit."""
    rest = extent % lanes
    return extent - rest + (1 << (rest - 1).bit_length() if rest else 0)


def _step(offset: Poly, size: int) -> int:
    """Bytes, at most 64, that divide an offset of elements of a size."""
    return math.gcd(64, *(c * size for c in offset.terms.values()))


def _room(memory: Memory, place: int | None, lanes: int) -> tuple[int, int]:
    """Elements of a local buffer before and after a place; nothing where that is not known, or where the vectors of
    its rows are not those of the whole."""
    if place is None or not memory.local or memory.lanes != 1:
        return 0, 0
    whole = len(memory.strides) == 1 or memory.row % lanes == 0
    return (place, memory.count - place) if whole else (0, 0)


class MemoryAccess(Expressions):
    """Adds buffers to :class:`Expressions`."""

    def __init__(self, *args: Any, streamed: Collection[Buffer] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.streamed = streamed  # buffers whose whole vectors are stored past the caches
        self.memory: dict[Buffer, Memory] = {}
        self._versions: dict[Buffer, int] = {}
        self._masks: dict[str, str] = {}  # of loads that are zero in the lanes that don't count
        self._cleared: tuple[str, Buffer, int, int] | None = None  # where zeros were stored last, when, how many

    # ---- buffers

    def bind_buffer(self, buffer: Buffer, pointer: str) -> None:
        """The elements of the buffer start at ``pointer``, dense and row-major."""
        count = math.prod(buffer.shape) if is_static(buffer.shape) else 0
        strides: list[Poly] = []
        stride = Poly.of(1)
        for size in reversed(buffer.shape):
            strides.append(stride)
            stride = stride * self.poly(size)
        self.memory[buffer] = Memory(pointer, tuple(reversed(strides)), count=count)

    def adopt(self, buffer: Buffer, memory: Memory, pointer: str) -> None:
        """A buffer of the function that this one was cut out of is at ``pointer``."""
        if memory.local:
            self.memory[buffer] = dataclasses.replace(memory, pointer=pointer)
        else:
            self.bind_buffer(buffer, pointer)

    @contextlib.contextmanager
    def allocated(self, buffer: Buffer) -> Iterator[None]:
        """A local buffer exists inside: memory in the frame; registers, where all its indices are constant."""
        memory = self.local_memory(buffer)
        pointer = self.builder.alloca(memory.count, memory_type(buffer.dtype))
        with self.placed(buffer, dataclasses.replace(memory, pointer=pointer)):
            self.written(buffer)
            yield

    @contextlib.contextmanager
    def placed(self, buffer: Buffer, memory: Memory) -> Iterator[None]:
        """Inside, the buffer is there."""
        outer = self.memory.get(buffer)
        self.memory[buffer] = memory
        yield
        if outer is None:
            del self.memory[buffer]
        else:
            self.memory[buffer] = outer

    def local_memory(self, buffer: Buffer) -> Memory:
        """How a local buffer lies in memory, wherever that is."""
        if buffer.scope != "local":
            message = f"buffer {buffer.name} of scope {buffer.scope} is allocated inside a kernel"
            raise InternalError(f"{message}: workspace buffers must have become parameters")
        sizes = buffer.shape
        if not is_static(sizes):
            raise InternalError(f"the local buffer {buffer.name} has a symbolic shape")
        lanes = self.lanes.count if self.lanes is not None else 1
        row = padded(sizes[-1], self.target.lanes(buffer.dtype)) if sizes and lanes == 1 else math.prod(sizes[-1:])
        strides, stride = [], lanes
        for size in reversed([*sizes[:-1], row] if sizes else []):
            strides.append(Poly.of(stride))
            stride *= size
        count = max(stride, 1)
        if count * nbytes(buffer.dtype) > STACK_LIMIT:
            needed = count * nbytes(buffer.dtype)
            message = (
                f"the local buffer {buffer.name} of a task or a lane needs {needed} bytes: {STACK_LIMIT} are allowed"
            )
            hint = "allocate one for all before the parallel or vectorized loop, with an axis for it"
            raise UserError(message, span=buffer.span, hint=hint)
        count += self._behind(buffer, count)
        return Memory("", tuple(reversed(strides)), True, row, lanes, count)

    def _behind(self, buffer: Buffer, count: int) -> int:
        """Elements behind the last row of a local buffer in memory, so that a vector which begins in it can be loaded
        as a whole."""
        lanes = self.target.lanes(buffer.dtype)
        in_memory = len(buffer.shape) > 1 and count > lanes * self.target.registers
        return lanes if in_memory and self.lanes is None and self._wants_whole_vectors(buffer) else 0

    def _wants_whole_vectors(self, buffer: Buffer) -> bool:
        """Whether a mask would take one of the registers that sums are in: of vectors, as of AVX2."""
        abilities = self.target.abilities
        return abilities.masks and not abilities.small_masks and is_float(buffer.dtype)

    def written(self, *buffers: Buffer) -> None:
        """What was loaded from the buffers before is out of date."""
        for buffer in buffers:
            self._versions[buffer] = self.builder.tick()
        self.forget()

    # ---- addresses

    def _flat(self, memory: Memory, polys: Sequence[Poly]) -> Poly:
        """How many elements into its memory a place of a buffer is."""
        flat = Poly.of(self.inside.atom) if memory.lanes > 1 else Poly()
        for index, stride in zip(polys, memory.strides, strict=True):
            flat = flat + index * stride
        return flat

    def _memory(self, buffer: Buffer) -> Memory:
        if buffer not in self.memory:
            raise InternalError(f"the buffer {buffer.name} is not a parameter and not allocated here")
        return self.memory[buffer]

    def access(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Access:
        """How to get at these elements; known until the block ends in which their address was computed."""
        memory, polys = self._memory(buffer), [self.poly(i) for i in indices]
        key = buffer, memory.pointer, self.lanes, *[frozenset(p.terms.items()) for p in polys]
        known = self.builder.known(key)
        if known is None:
            known = self.builder.remember(key, self._access(memory, buffer, polys))
        return known

    def _access(self, memory: Memory, buffer: Buffer, polys: list[Poly]) -> Access:
        flat = self._flat(memory, polys)
        size, element = nbytes(buffer.dtype), memory_type(buffer.dtype)
        if not flat.varies:
            pointer, align = self._pointer(memory, element, size, flat)
            return Access("uniform", pointer, align)
        if not flat.irregular:
            stride, rest = flat.split_lane()
            if stride.const == 1:
                pointer, align = self._pointer(memory, element, size, rest)
                padding, readable = self._padding(memory, buffer, polys), self._is_within(buffer, rest, polys)
                step = _step(rest, size)
                return Access("contiguous", pointer, align, *padding, readable, moves=rest.const is None, step=step)
        known = flat.split_values(self.inside.count)
        if known is not None and (self.inside.mask is None or self.inside.active is not None):
            pointer, _ = self._pointer(memory, element, size, known[0])
            room = _room(memory, known[0].const, self.inside.count)
            offsets = tuple(known[1][: self.inside.active])
            return Access("known", pointer, size, offsets=offsets, start=known[0], room=room)
        text = f"getelementptr {element}, ptr {memory.pointer}, {self.vector(flat).typed}"
        return Access("scattered", self.builder.pure(text), size)

    def _pointer(self, memory: Memory, element: str, size: int, offset: Poly) -> tuple[str, int]:
        """The address of an element and its alignment; a constant part of the offset is added last."""
        terms, const = offset.split_const()
        pointer = memory.pointer
        if terms.terms:
            pointer = self.builder.pure(f"getelementptr {element}, ptr {pointer}, i64 {self.scalar(terms)}")
        if const:
            kind = self._constant_step(terms, const)
            pointer = self.builder.pure(f"{kind} {element}, ptr {pointer}, i64 {const}")
        return pointer, _step(offset, size) if memory.local else size

    def _constant_step(self, terms: Poly, const: int) -> str:
        """The instruction that adds a constant to an address. In WebAssembly it is part of the load or store where the
        sum does not wrap around: where the address before is not one in front of the buffer."""
        folds = self.target.is_wasm and const > 0 and terms.is_natural
        return "getelementptr nuw" if folds else "getelementptr"

    def _padding(self, memory: Memory, buffer: Buffer, polys: list[Poly]) -> tuple[bool, bool]:
        """Whether lanes that don't count may be read, and written, in a contiguous access: a local row's padding."""
        if not memory.local:
            return False, False
        if memory.lanes > 1:
            return True, True
        if any(p.varies for p in polys[:-1]):
            return False, False
        base = polys[-1].split_lane()[1].range
        if base is None or base[0] < 0 or base[1] + self.inside.count > memory.row:
            return False, False
        active = self.inside.active
        return True, active is not None and base[0] + active >= static(buffer.shape)[-1]

    def _is_within(self, buffer: Buffer, first: Poly, polys: list[Poly]) -> bool:
        """Whether all lanes from an element on surely are elements of the buffer, where that is of use: whatever the
        place of the element, or since the row in which the lanes that count lie is so long."""
        memory, lanes = self.memory[buffer], self.inside.count
        if memory.lanes > 1 or not self._wants_whole_vectors(buffer):
            return False
        if first.within(0, memory.count - lanes):
            return True
        row, is_along = buffer.shape[-1], self.inside.active is not None and not any(p.varies for p in polys[:-1])
        return is_along and isinstance(row, int) and polys[-1].split_lane()[1].within(0, row - lanes)

    # ---- loads

    def load(self, node: BufferLoad) -> Value:
        """The element, or a vector of the lanes' elements (zero in lanes that don't count)."""
        buffer, dtype = node.buffer, node.buffer.dtype
        access = self.access(buffer, node.indices)
        version = self._versions.get(buffer, 0)
        if access.kind == "uniform":
            text = f"load {memory_type(dtype)}, ptr {access.pointer}, align {access.align}"
            return self.from_memory(self.builder.pure(text, version), dtype, 1)
        lanes, mask = self.inside.count, self.inside.mask
        vector = memory_type(dtype, lanes)
        if access.kind == "known":
            return self.from_memory(self._load_known(access, memory_type(dtype), version), dtype, lanes)
        if access.kind == "contiguous" and (mask is None or access.unmasked or access.readable):
            text = f"load {vector}, ptr {access.pointer}, align {access.align}"
        elif (
            access.kind == "contiguous" and (nbytes(dtype) < 4 or lanes * nbytes(dtype) <= 16) and (cut := self._cut())
        ):
            part = memory_type(dtype, cut)
            some = self.builder.pure(f"load {part}, ptr {access.pointer}, align {access.align}", version)
            picks = [min(k, cut) for k in range(lanes)]  # beyond the part, a zero
            return self.from_memory(self._shuffled(part, some, "zeroinitializer", picks), dtype, lanes)
        else:
            flags = self._mask_operand(lanes)
            kind = suffix("uint8" if dtype == "bool" else dtype, lanes)
            if access.kind == "contiguous":
                operand = f"ptr align {access.align} {access.pointer}"
                text = f"call {vector} @llvm.masked.load.{kind}.p0({operand}, {flags}, {vector} zeroinitializer)"
            else:
                operand = f"<{lanes} x ptr> align {access.align} {access.pointer}"
                kind = f"{kind}.v{lanes}p0"
                text = f"call {vector} @llvm.masked.gather.{kind}({operand}, {flags}, {vector} zeroinitializer)"
            loaded = self.builder.pure(text, version)
            if mask is not None:
                self._masks[loaded] = mask.ref
            return self.from_memory(loaded, dtype, lanes)
        return self.from_memory(self.builder.pure(text, version), dtype, lanes)

    def load_both(self, low: PrimExpr, high: PrimExpr) -> Value | None:
        if not (isinstance(low, BufferLoad) and isinstance(high, BufferLoad) and low.buffer is high.buffer):
            return None
        if not self.target.abilities.pair_dot:  # the lower half may come second in memory
            return None
        memory = self._memory(low.buffer)
        first, second = (self._flat(memory, [self.poly(i) for i in x.indices]) for x in (low, high))
        if (second - first).const != 1 or first.irregular:
            return None
        stride, rest = first.split_lane()
        if first.varies and stride.const != 2:
            return None
        pointer, _ = self._pointer(memory, memory_type(low.buffer.dtype), 2, rest)
        lanes, mask = self.inside.count if first.varies else 1, self.inside.mask if first.varies else None
        vector, version = memory_type("uint32", lanes), self._versions.get(low.buffer, 0)
        text = f"load {vector}, ptr {pointer}, align 2"
        if mask is not None:
            operands = f"ptr align 2 {pointer}, {self._mask_operand(lanes)}, {vector} zeroinitializer"
            text = f"call {vector} @llvm.masked.load.{suffix('uint32', lanes)}.p0({operands})"
        return Value(self.builder.pure(text, version), "uint32", lanes)

    def place_of_pair(self, node: PrimExpr) -> str | None:
        abilities = self.target.abilities
        parts = node.args if isinstance(node, Call) and node.name == PAIR else (node,)
        loads = [n for n in parts if isinstance(n, BufferLoad)]
        if not (abilities.pair_dot and abilities.assembler and len(loads) == len(parts)):
            return None
        memory, size = self._memory(loads[0].buffer), nbytes(loads[0].buffer.dtype)
        flats = [self._flat(memory, [self.poly(i) for i in n.indices]) for n in loads]
        whole = size * len(loads) == 4 and all(n.buffer is loads[0].buffer for n in loads)
        if not whole or flats[0].varies or (flats[-1] - flats[0]).const != len(loads) - 1:
            return None
        return self._pointer(memory, memory_type(loads[0].buffer.dtype), size, flats[0])[0]

    def _load_known(self, access: Access, element: str, version: int) -> str:
        """Elements at known distances: vectors and shuffles where few vectors hold them all, else one by one."""
        lanes, low = self.inside.count, min(access.offsets)
        low -= (access.room[0] + low) % lanes if sum(access.room) >= lanes else 0  # the vectors that were stored
        offsets = [k - low for k in access.offsets]
        offsets += [offsets[0]] * (lanes - len(offsets))
        span = max(offsets) + 1
        if low + -(-span // lanes) * lanes <= access.room[1]:
            span = -(-span // lanes) * lanes
        size = min(lanes, 1 << (span.bit_length() - 1))
        if size == 1 or -(-span // size) > MOST_VECTORS:
            return self._load_each(access, element, version)
        vector, starts = f"<{size} x {element}>", [min(k, span - size) for k in range(0, span, size)]
        loaded = [  # the last one ends at the last element
            self.builder.pure(
                f"load {vector}, ptr {self._shifted(access.pointer, element, low + start)}, align {access.align}",
                version,
            )
            for start in starts
        ]
        if size == lanes and len(loaded) <= 2:
            picks = [k if k < size else size + k - starts[1] for k in offsets]
            return self._shuffled(vector, loaded[0], loaded[-1], picks)
        result = ""
        for number, (start, some) in enumerate(zip(starts, loaded, strict=True)):
            part = some
            if size < lanes:
                part = self._shuffled(vector, part, part, [max(0, min(k - start, size - 1)) for k in offsets])
                picks = list(range(lanes, 2 * lanes))
            else:
                picks = [lanes + max(0, min(k - start, size - 1)) for k in offsets]
            held = [number > 0 and k < number * size for k in offsets]  # by the vectors before
            picks = [lane if h else p for lane, (h, p) in enumerate(zip(held, picks, strict=True))]
            result = self._shuffled(f"<{lanes} x {element}>", result or part, part, picks)
        return result

    def _load_each(self, access: Access, element: str, version: int) -> str:
        vector, result = f"<{self.inside.count} x {element}>", "zeroinitializer"
        for k, offset in enumerate(access.offsets):
            place = self._shifted(access.pointer, element, offset)
            scalar = self.builder.pure(f"load {element}, ptr {place}, align {access.align}", version)
            result = self.builder.pure(f"insertelement {vector} {result}, {element} {scalar}, i64 {k}")
        return result

    def _shifted(self, pointer: str, element: str, offset: int) -> str:
        return self.builder.pure(f"getelementptr {element}, ptr {pointer}, i64 {offset}") if offset else pointer

    def _shuffled(self, vector: str, a: str, b: str, picks: Sequence[int]) -> str:
        indices = ", ".join(f"i32 {p}" for p in picks)
        return self.builder.pure(f"shufflevector {vector} {a}, {vector} {b}, <{len(picks)} x i32> <{indices}>")

    def _cut(self) -> int | None:
        """How many lanes count, where these are moved as a shorter vector, in a few pieces: without registers of masks
        there are none for small elements, and a masked store takes as long as ten others (6.4 ns on znver3, pieces
        1.1)."""
        return None if self.target.abilities.small_masks else self.inside.active

    def _mask_operand(self, lanes: int) -> str:
        mask = self.inside.mask
        return f"<{lanes} x i1> splat (i1 true)" if mask is None else self.splat(mask, lanes).typed

    # ---- stores

    def store(self, node: BufferStore) -> None:
        buffer, value = node.buffer, self.value(node.value)
        known = self.memory.get(buffer)  # a host function finds its buffers when it reads or writes them
        if self.target.is_wasm and known is not None and known.local and _adds_to(buffer, node.value):
            value = self._in_order(value)
        access = self.access(buffer, node.indices)
        if access.kind == "uniform" and value.lanes == 1:
            value = self.to_memory(value)
            self.builder.effect(f"store {value.typed}, ptr {access.pointer}, align {access.align}")
        else:
            value = self.splat(value, self.inside.count)
            self._store_lanes(buffer, access, value)
        self.written(buffer)
        if value.ref in _ZEROS and self.inside.mask is None and access.kind == "contiguous":
            self._cleared = access.pointer, buffer, self._versions[buffer], value.lanes

    def _in_order(self, value: Value) -> Value:
        """A vector of sums that is computed before what follows. LLVM puts an operation of WebAssembly where its result
        is used: of several terms, all sums came last, and engines had no registers for what they are computed from.
        Fences do not count there, as there are no threads. The assembly is empty."""
        is_register = self.target.abilities.vectors and value.lanes * nbytes(value.dtype) == self.target.vector_bytes
        if not is_register or value.dtype not in ("float32", "float64"):
            return value
        kept = self.builder.fresh(f'call {value.type} asm sideeffect "", "=r,0"({value.typed})')
        return Value(kept, value.dtype, value.lanes)

    def _store_lanes(self, buffer: Buffer, access: Access, value: Value) -> None:
        dtype = buffer.dtype
        lanes, mask = self.inside.count, self.inside.mask
        vector, kind = memory_type(dtype, lanes), suffix("uint8" if dtype == "bool" else dtype, lanes)
        value = self.to_memory(value)
        if access.kind == "contiguous":
            is_cheap = self.inside.active is not None or self.target.abilities.small_masks
            may_blend = access.unmasked and not (access.moves and is_cheap)
            is_blended = mask is not None and not (access.padding or self._is_over_zeros(buffer, access, value))
            if is_blended and may_blend:  # so that it stays a register
                assert mask is not None
                old = self.builder.fresh(f"load {vector}, ptr {access.pointer}, align {access.align}")
                value = self.select(mask, value, Value(old, value.dtype, lanes))
            size = self.target.vector_bytes
            # a part of a vector past the caches would throw out the line of its neighbours
            is_whole = mask is None and lanes * nbytes(dtype) % size == 0 == access.step % size
            if is_whole and buffer in self.streamed:
                self._stream(value, self.memory[buffer].pointer, access, size)
                return
            if mask is None or may_blend or access.padding:
                self.builder.effect(f"store {value.typed}, ptr {access.pointer}, align {access.align}")
                return
            if (cut := self._cut()) is not None:
                part = memory_type(dtype, cut)
                some = self._shuffled(value.type, value.ref, "poison", range(cut))
                self.builder.effect(f"store {part} {some}, ptr {access.pointer}, align {access.align}")
                return
            operands = f"{value.typed}, ptr align {access.align} {access.pointer}, {self._mask_operand(lanes)}"
            self.builder.effect(f"call void @llvm.masked.store.{kind}.p0({operands})")
            return
        if access.kind == "known":
            self._store_known(buffer, access, value, kind)
            return
        pointer = access.pointer
        if access.kind == "uniform":  # all lanes write one element: the last one that counts wins
            first = self.builder.pure(f"insertelement <{lanes} x ptr> poison, ptr {pointer}, i64 0")
            zeros = f"<{lanes} x i32> zeroinitializer"
            pointer = self.builder.pure(f"shufflevector <{lanes} x ptr> {first}, <{lanes} x ptr> poison, {zeros}")
        operands = f"{value.typed}, <{lanes} x ptr> align {access.align} {pointer}, {self._mask_operand(lanes)}"
        self.builder.effect(f"call void @llvm.masked.scatter.{kind}.v{lanes}p0({operands})")

    def _store_known(self, buffer: Buffer, access: Access, value: Value, kind: str) -> None:
        """Elements at known distances: in a few vectors of which only these are written, where masks cost nothing, else
        one by one."""
        element, low, lanes = memory_type(buffer.dtype), min(access.offsets), value.lanes
        if self._is_one_by_one(access, lanes):
            for number, offset in enumerate(access.offsets):
                place = self._shifted(access.pointer, element, offset)
                scalar = self.builder.pure(f"extractelement {value.typed}, i64 {number}")
                self.builder.effect(f"store {element} {scalar}, ptr {place}, align {access.align}")
            return
        numbers = {k: n for n, k in enumerate(access.offsets)}
        for start in range(low, max(access.offsets) + 1, lanes):
            own = [numbers.get(k) for k in range(start, start + lanes)]
            spread = self._shuffled(value.type, value.ref, "poison", [0 if n is None else n for n in own])
            flags = ", ".join(f"i1 {'false' if n is None else 'true'}" for n in own)
            place = self._shifted(access.pointer, element, start)
            operands = f"{value.type} {spread}, ptr align {access.align} {place}, <{lanes} x i1> <{flags}>"
            self.builder.effect(f"call void @llvm.masked.store.{kind}.p0({operands})")

    def _is_one_by_one(self, access: Access, lanes: int) -> bool:
        """Whether elements at known distances had better be stored each by itself."""
        vectors = -(-(max(access.offsets) - min(access.offsets) + 1) // lanes)
        return not self.target.abilities.small_masks or _PER_VECTOR * vectors > len(set(access.offsets))

    def prefetch(self, node: Prefetch) -> None:
        access = self.access(node.buffer, node.indices)
        if node.buffer in self.streamed or access.kind not in ("uniform", "contiguous"):
            return  # what goes past the caches; what has no one place
        self.builder.shared.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        near, data = 3, 1
        flags = f"i32 {int(node.kind == 'write')}, i32 {near}, i32 {data}"
        self.builder.effect(f"call void @llvm.prefetch.p0(ptr {access.pointer}, {flags})")

    def _is_over_zeros(self, buffer: Buffer, access: Access, value: Value) -> bool:
        """Whether lanes that don't count are zeros in a vector and in memory."""
        is_cleared = self._cleared == (access.pointer, buffer, self._versions.get(buffer, 0), value.lanes)
        return is_cleared and self.inside.mask is not None and self._masks.get(value.ref) == self.inside.mask.ref

    def _stream(self, value: Value, base: str, access: Access, size: int) -> None:
        """Store a vector past the caches: where the buffer is aligned, which is known at run time only."""
        address = self.builder.pure(f"ptrtoint ptr {base} to i64")
        rest = self.builder.pure(f"and i64 {address}, {size - 1}")
        aligned = self.builder.pure(f"icmp eq i64 {rest}, 0")
        store = f"store {value.typed}, ptr {access.pointer}, align"
        past, through, after = (self.builder.label(stem) for stem in ("past", "through", "stored"))
        self.builder.branch_if(aligned, past, through)
        self.builder.start(past)
        once = self.builder.shared.define("!0", "!0 = !{i32 1}")
        self.builder.effect(f"{store} {size}, !nontemporal {once}")
        self.builder.branch(after)
        self.builder.start(through)
        self.builder.effect(f"{store} {access.align}")
        self.builder.branch(after)
        self.builder.start(after)

    def finish(self) -> None:
        """The end of a function: whoever hears of it sees all that it has stored."""
        if self.streamed:
            self.builder.shared.declare("llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
            self.builder.effect("call void @llvm.x86.sse.sfence()")
        self.builder.effect("ret void")

    def lane_mask(self, active: str, lanes: int) -> Value:
        """The mask of the lanes below a number that is known at run time only (an i64 operand)."""
        limit = self.cast(Value(active, "int64"), "int32")
        return self.compare("lt", self.iota(lanes, "int32"), limit)

    def constant_mask(self, active: int, lanes: int) -> Value:
        bits = ", ".join(f"i1 {'true' if i < active else 'false'}" for i in range(lanes))
        return Value(f"<{bits}>", "bool", lanes)


def _adds_to(buffer: Buffer, value: PrimExpr) -> bool:
    """Whether what is stored in a buffer is computed from what was there."""
    return any(isinstance(n, BufferLoad) and n.buffer is buffer for n in walk(value))
