"""The meaning of the loop IR, slowly, over NumPy: the oracle of generated code.

Parallel and vectorized loops become axes of the arrays that hold values, newest first, so that older values broadcast;
a condition that differs along them becomes a mask. Serial loops are Python loops. Local buffers have the axes of the
loops around them and begin as NaN. An index out of bounds is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.depth import deep, on_large_stack
from pullback.ir.errors import InternalError
from pullback.ir.node import Node, remembered
from pullback.runtime import packed
from pullback.runtime.ranks import current
from pullback.tir import pairs, philox
from pullback.tir.arithmetic import binary, convert, intrinsic, numpy_dtype
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    Var,
    is_float,
    nbytes,
)
from pullback.tir.static import is_static
from pullback.tir.stmt import (
    DEPTH,
    Allocate,
    Await,
    Box,
    BufferStore,
    Check,
    Collective,
    For,
    HostCall,
    If,
    KernelCall,
    Let,
    PackedCall,
    Prefetch,
    PrimFunc,
    Recur,
    Release,
    Seq,
    Stmt,
    Stop,
    Unbox,
    While,
)
from pullback.tir.visitor import children, walk

Boxes = dict[int, tuple[int, list[np.ndarray]]]  # their kinds and contents, by addresses


def run(
    func: PrimFunc,
    arguments: Sequence[Any],
    kernels: Mapping[str, PrimFunc] | None = None,
    arena: np.ndarray | None = None,
    boxes: Boxes | None = None,
) -> int:
    """Run a function on one argument per parameter: arrays, which it writes into, and numbers.

    ``kernels`` are the functions that a host function calls, ``arena`` is its memory; by default it gets its own.
    ``boxes``: those on the heap that it gets, by their addresses, which are numbers in the order of their making. Gives
    the status: 0, or the code of a failed Check.
    """
    frame = _Frame(func, arguments, kernels or {}, arena, boxes)
    return on_large_stack(frame.run) if _is_deep(func) else frame.run()


@deep
def evaluate(expr: PrimExpr, values: Mapping[Var, Any]) -> np.ndarray:
    """The value of an expression without loads; arrays of equal shape as variables are evaluated element by element."""
    shape = np.broadcast_shapes(*(np.shape(v) for v in values.values()))
    frame = _Frame(PrimFunc("", (), Seq(())), (), {})
    frame.shape = shape
    frame.env = {var: np.asarray(value, numpy_dtype(var.dtype)) for var, value in values.items()}
    with np.errstate(all="ignore"):
        return np.broadcast_to(frame.expr(expr), shape)


@remembered
def _is_deep(func: PrimFunc) -> bool:
    """Whether statements and expressions are nested more than a few dozen levels: a run writes as it goes, so it cannot
    begin again when the stack proves too small."""
    level: list[Node] = [func.body]
    for _ in range(50):
        level = list({id(child): child for node in level for child in children(node)}.values())
    return bool(level)


class _Stop(Exception):
    """A host function ends with a status."""


class _Frame:
    """One call of a function. ``shape`` is that of the axes of the open parallel and vectorized loops."""

    def __init__(
        self,
        func: PrimFunc,
        arguments: Sequence[Any],
        kernels: Mapping[str, PrimFunc],
        arena: np.ndarray | None = None,
        boxes: Boxes | None = None,
    ) -> None:
        if len(arguments) != len(func.params):
            raise InternalError(f"{func.name} takes {len(func.params)} arguments, got {len(arguments)}")
        self.func, self.kernels = func, kernels
        self.boxes = {} if boxes is None else boxes
        self.env: dict[Var, Any] = {}
        self.arrays: dict[Buffer, np.ndarray] = {}
        self.shape: tuple[int, ...] = ()
        self.mask: np.ndarray | None = None
        self.memo: dict[int, Any] = {}
        for param, argument in zip(func.params, arguments, strict=True):
            if isinstance(param, Var):
                self.env[param] = numpy_dtype(param.dtype).type(argument)
            else:  # a shape that is a variable takes the array's size
                for size, given in zip(param.shape, argument.shape, strict=False):
                    if isinstance(size, Var):
                        self.env.setdefault(size, np.int64(given))
        for param, argument in zip(func.params, arguments, strict=True):
            if isinstance(param, Buffer):
                self._bind(param, argument)
        self._arena(arena)
        own = {b for n in walk(func.body) for b in _buffers(n) if b.scope == "heap"}
        self.arrays |= {b: np.zeros(self._shape(b), numpy_dtype(b.dtype)) for b in own}

    def _bind(self, buffer: Buffer, array: np.ndarray) -> None:
        shape = self._shape(buffer)
        if array.shape != shape or array.dtype != numpy_dtype(buffer.dtype):
            expected = f"{buffer.dtype}{list(shape)}"
            raise InternalError(f"{self.func.name}: {buffer.name} is {expected}, got {array.dtype}{list(array.shape)}")
        self.arrays[buffer] = array

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(int(s if isinstance(s, int) else self.expr(s)) for s in buffer.shape)

    def _arena(self, block: np.ndarray | None) -> None:
        """One block of memory for the buffers of scope arena, each at its offset."""
        used = {b for n in walk(self.func.body) for b in _buffers(n) if b.scope == "arena"}
        sizes = {b: math.prod(self._shape(b)) for b in used}
        size = max((b.offset + sizes[b] * nbytes(b.dtype) for b in used), default=0)
        block = np.full(size, 0xFF, np.uint8) if block is None else block
        if block.size < size:
            raise InternalError(f"{self.func.name} needs an arena of {size} bytes, got {block.size}")
        for b in used:
            flat = np.frombuffer(block, numpy_dtype(b.dtype), sizes[b], b.offset)
            self.arrays[b] = flat.reshape(self._shape(b))

    def run(self) -> int:
        try:
            with np.errstate(all="ignore"):
                self.stmt(self.func.body)
        except _Stop as stop:
            return stop.args[0]
        return 0

    # ---- statements

    def stmt(self, node: Stmt) -> None:
        self.memo = {}
        method: Callable[[Any], None] | None = getattr(self, "stmt_" + type(node).__name__.lower(), None)
        if method is None:
            raise InternalError(f"unknown statement {type(node).__name__}")
        method(node)

    def stmt_seq(self, node: Seq) -> None:
        for part in node.stmts:
            self.stmt(part)

    def stmt_let(self, node: Let) -> None:
        self.env[node.var] = self.expr(node.value)
        self.stmt(node.body)

    def stmt_allocate(self, node: Allocate) -> None:
        buffer = node.buffer
        axes = self.shape if buffer.scope == "local" else ()
        dtype = numpy_dtype(buffer.dtype)
        garbage = math.nan if is_float(buffer.dtype) else True if buffer.dtype == "bool" else np.iinfo(dtype).max
        shape = axes + self._shape(buffer)
        try:
            self.arrays[buffer] = np.full(shape, garbage, dtype)
        except (MemoryError, ValueError):
            count = math.prod(shape) * dtype.itemsize
            raise MemoryError(f"out of memory: could not allocate {count} bytes for {buffer.name}") from None
        self.stmt(node.body)

    def stmt_if(self, node: If) -> None:
        condition = self.expr(node.condition)
        if np.ndim(condition) == 0:
            taken = node.then if condition else node.otherwise
            if taken is not None:
                self.stmt(taken)
            return
        self._masked(condition, node.then)
        if node.otherwise is not None:
            self._masked(~condition, node.otherwise)

    def _masked(self, condition: np.ndarray, body: Stmt) -> None:
        outer = self.mask
        self.mask = condition if outer is None else condition & outer
        if np.any(self.mask):
            self.stmt(body)
        self.mask = outer

    def stmt_for(self, node: For) -> None:
        extents = self.expr(node.extent)
        if self.mask is not None and np.ndim(extents):
            extents = np.where(self.mask, extents, 0)
        extent = int(np.max(extents, initial=0))
        if extent <= 0:
            return
        kind = numpy_dtype(node.var.dtype)
        if node.kind in ("serial", "unrolled"):
            for i in range(extent):
                self.env[node.var] = kind.type(i)
                self._iteration(node, extents)
            return
        outer = self.shape
        self.shape = (extent, *outer)
        self.env[node.var] = np.arange(extent, dtype=kind).reshape((extent, *(1 for _ in outer)))
        self._iteration(node, extents)
        self.shape = outer

    def _iteration(self, node: For, extents: Any) -> None:
        """The body; masked when the extent itself differs along the axes."""
        if np.ndim(extents):
            self._masked(self.env[node.var] < extents, node.body)
        else:
            self.stmt(node.body)

    def stmt_bufferstore(self, node: BufferStore) -> None:
        value = self.expr(node.value)
        array, index = self._place(node.buffer, node.indices)
        if self.shape:
            value = np.broadcast_to(value, self.shape)
            index = tuple(np.broadcast_to(i, self.shape) for i in index)
            if self.mask is not None:
                chosen = np.broadcast_to(self.mask, self.shape)
                value, index = value[chosen], tuple(i[chosen] for i in index)
            if not index:
                value = value.flat[-1]  # one element for all: the last one stays
        array[index] = value

    def stmt_prefetch(self, node: Prefetch) -> None:
        """Nothing: memory has no caches here."""

    def stmt_kernelcall(self, node: KernelCall) -> None:
        kernel = self.kernels.get(node.name)
        if kernel is None:
            raise InternalError(f"there is no kernel {node.name!r}")
        buffers, scalars = iter(node.buffers), iter(node.scalars)
        args = [
            self._piece(next(buffers), 0, p) if isinstance(p, Buffer) else self.expr(next(scalars))
            for p in kernel.params
        ]
        run(kernel, args)

    def stmt_packedcall(self, node: PackedCall) -> None:
        kinds = [(self.arrays[b].shape, b.dtype) for b in node.outputs]
        results = packed.call(node.name, [self.arrays[b] for b in node.inputs], kinds)
        for buffer, result in zip(node.outputs, results, strict=True):
            self.arrays[buffer][...] = result
        self.arrays[node.flag][...] = True

    def stmt_collective(self, node: Collective) -> None:
        shapes = [self.arrays[b].shape for b in node.received]
        found = current().collective(
            node.kind, [self.arrays[b] for b in node.given], shapes, reduction=node.reduction, root=node.root,
            shards=node.shards, ranks=node.ranks,
        )  # fmt: skip
        for buffer, array in zip(node.received, found, strict=True):
            self.arrays[buffer][...] = array.reshape(self.arrays[buffer].shape)
        if node.ticket is not None:
            self.arrays[node.ticket][...] = 0

    def stmt_await(self, node: Await) -> None:
        for source, target in zip(node.received, node.targets, strict=True):
            self.arrays[target][...] = self.arrays[source]

    def _piece(self, buffer: Buffer, number: Any, param: Buffer) -> np.ndarray:
        """The piece of that number of a buffer that is cut into some as large as the parameter."""
        array = self.arrays[buffer]
        if not is_static(param.shape):
            return array
        count = math.prod(param.shape)
        begin = int(number) * count
        if begin < 0 or begin + count > array.size:
            raise InternalError(f"{self.func.name}: {buffer.name} has no piece {number} of {count} elements")
        return array.reshape(-1)[begin : begin + count].reshape(param.shape)

    def stmt_hostcall(self, node: HostCall) -> None:
        callee = self.kernels.get(node.name)
        if callee is None:
            raise InternalError(f"there is no host function {node.name!r}")
        rows = [self.expr(r) for r in node.rows] or [0] * len(node.buffers)
        args = [self._piece(b, r, p) for b, r, p in zip(node.buffers, rows, callee.buffers, strict=True)]
        arena = None if node.arena is None else self.arrays[node.arena].reshape(-1).view(np.uint8)
        status = run(callee, args, self.kernels, arena, self.boxes)
        if status:
            raise _Stop(status)

    def stmt_while(self, node: While) -> None:
        self.memo = {}
        while self.expr(node.condition):
            self.stmt(node.body)
            self.memo = {}

    def stmt_stop(self, node: Stop) -> None:
        raise _Stop(node.code)

    def stmt_check(self, node: Check) -> None:
        if not self.arrays[node.buffer].flat[0]:
            raise _Stop(node.code)

    # ---- boxes

    def stmt_box(self, node: Box) -> None:
        heap = self.arrays[node.heap]
        heap[0] += 1
        fields = [self.arrays[b].reshape(-1).view(np.uint8).copy() for b in node.fields]
        self.boxes[int(heap[0])] = (node.kind, fields)
        self.arrays[node.handle].flat[0] = heap[0]

    def stmt_unbox(self, node: Unbox) -> None:
        address = int(self.arrays[node.handle].flat[0])
        if address and address not in self.boxes:
            raise InternalError(f"{self.func.name}: {node.handle.name} holds {address}, where there is no box")
        kind, fields = self.boxes[address] if address else (node.kind, [])
        if kind != node.kind:
            raise _Stop(node.code)
        for k, buffer in enumerate(node.fields):
            flat = self.arrays[buffer].reshape(-1).view(np.uint8)
            flat[:] = fields[k] if address else 0

    def stmt_recur(self, node: Recur) -> None:
        heap = self.arrays[node.heap]
        if heap[DEPTH] >= node.most:
            raise _Stop(node.too_deep)
        heap[DEPTH] += 1
        arguments = [self.arrays[b] for b in node.buffers]
        status = run(self.kernels[node.name], arguments, self.kernels, np.full(node.nbytes, 0xFF, np.uint8), self.boxes)
        if status:
            raise _Stop(status)
        heap[DEPTH] -= 1

    def stmt_release(self, node: Release) -> None:
        heap, mark = self.arrays[node.heap], int(self.arrays[node.mark].flat[0])
        for address in range(mark + 1, int(heap[0]) + 1):
            del self.boxes[address]
        heap[0] = mark

    # ---- memory

    def _place(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[np.ndarray, tuple[Any, ...]]:
        """The array of a buffer, and the index into it of the current axes' elements."""
        if buffer not in self.arrays:
            raise InternalError(f"the buffer {buffer.name} is not a parameter and not allocated here")
        array = self.arrays[buffer]
        own = array.ndim - len(indices)  # axes of the loops around the allocation: the last ones of the shape
        depth = len(self.shape)
        lead = [
            np.arange(array.shape[a]).reshape([-1 if i == depth - own + a else 1 for i in range(depth)])
            for a in range(own)
        ]
        index = []
        for i, size in zip(indices, array.shape[own:], strict=True):
            value = self.expr(i)
            outside = (value < 0) | (value >= size)
            if self.mask is not None:
                outside = outside & self.mask
                value = np.where(self.mask, value, 0)
            if np.any(outside):
                raise InternalError(f"{self.func.name}: index {np.max(value)} of {buffer.name}, which has {size} there")
            index.append(value)
        return array, (*lead, *index)

    def _load(self, node: BufferLoad) -> Any:
        array, index = self._place(node.buffer, node.indices)
        if array.size == 0:
            return np.zeros(self.shape, array.dtype)
        return array[index]

    # ---- expressions

    def expr(self, node: PrimExpr) -> Any:
        known = self.memo.get(id(node))
        if known is None:
            known = self.memo[id(node)] = self._expr(node)
        return known

    def _expr(self, node: PrimExpr) -> Any:
        if isinstance(node, Var):
            if node not in self.env:
                raise InternalError(f"the variable {node.name} is not bound here")
            return self.env[node]
        if isinstance(node, (IntImm, FloatImm)):
            return np.asarray(node.value).astype(numpy_dtype(node.dtype))[()]
        if isinstance(node, Binary):
            return binary(node.kind, node.a.dtype, self.expr(node.a), self.expr(node.b))
        if isinstance(node, Select):
            return np.where(self.expr(node.condition), self.expr(node.a), self.expr(node.b))[()]
        if isinstance(node, Cast):
            return convert(self.expr(node.value), node.value.dtype, node.type)
        if isinstance(node, Call):
            args = [self.expr(a) for a in node.args]
            if node.name == "reinterpret":
                return np.asarray(args[0]).view(numpy_dtype(node.type))[()]
            if node.name == philox.INTRINSIC:
                return philox.philox4x32(node.type, *args)
            if node.name in (pairs.PAIR, pairs.DOT):
                return pairs.evaluate(node.name, *args)
            return intrinsic(node.name, node.args[0].dtype, *args)
        if isinstance(node, BufferLoad):
            return self._load(node)
        raise InternalError(f"unknown expression {type(node).__name__}")


def _buffers(node: Any) -> list[Buffer]:
    """The buffers that a node names itself."""
    if isinstance(node, KernelCall):
        return list(node.buffers)
    if isinstance(node, Recur):
        return [*node.buffers, node.heap]
    if isinstance(node, HostCall):
        return [*node.buffers, *([] if node.arena is None else [node.arena])]
    if isinstance(node, (Box, Unbox)):
        return [node.handle, *node.fields, *([node.heap] if isinstance(node, Box) else [])]
    if isinstance(node, Release):
        return [node.heap, node.mark]
    if isinstance(node, PackedCall):
        return [*node.inputs, *node.outputs, node.flag]
    if isinstance(node, Collective):
        return [*node.given, *node.received, *([] if node.ticket is None else [node.ticket])]
    if isinstance(node, Await):
        return [node.ticket, *node.given, *node.received, *node.targets]
    return [node.buffer] if isinstance(node, (BufferLoad, BufferStore, Check)) else []


# ---- scalar meaning
