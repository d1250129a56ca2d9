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
    is_half,
    is_signed,
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


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a dtype's name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


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


def maximum(a: Any, b: Any) -> Any:
    """The larger; of floats NaN if either is, and the first of two zeros."""
    return _extremum(a, b, np.maximum, np.greater_equal)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; of floats NaN if either is, and the first of two zeros."""
    return _extremum(a, b, np.minimum, np.less_equal)


def _extremum(a: Any, b: Any, plain: Callable[..., Any], first: Callable[..., Any]) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "iub":
        return plain(a, b)
    return np.where(first(a, b) | (a != a), a, b)[()]


def power(x: Any, y: Any) -> Any:
    """xʸ. NumPy takes a square root where y is one 1/2: of -∞ that is NaN, of -0 -0."""
    root = (y == 0.5) & ((x == 0) | np.isinf(x))
    return np.where(root, np.abs(x), np.power(x, y))[()]


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "min": minimum, "max": maximum,
    "and": np.logical_and, "or": np.logical_or, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "floordiv": np.floor_divide,
    "floormod": np.remainder, "truncmod": np.fmod, "div": np.divide,
}  # fmt: skip


def binary(kind: str, dtype: str, a: Any, b: Any) -> Any:
    """A Binary on NumPy values of one dtype."""
    if dtype == "bool":
        function = {"sub": np.logical_xor}.get(kind, _BINARY[kind])
        return function(a, b)
    if is_half(dtype) and kind in ("floordiv", "floormod", "truncmod"):
        return binary(kind, "float32", np.float32(a), np.float32(b)).astype(numpy_dtype(dtype))
    if kind == "div" and not is_float(dtype):
        quotient = np.floor_divide(a, b)
        if is_signed(dtype):
            quotient = quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(quotient.dtype)
        return quotient
    return _BINARY[kind](a, b)


def convert(value: Any, source: str, target: str) -> Any:
    """A Cast: floats saturate to integers and NaN gives 0; half types are rounded once."""
    value, dtype = np.asarray(value), numpy_dtype(target)
    if target == "bool":
        return (value != 0)[()]
    if is_float(source) and not is_float(target):
        limits, wide = np.iinfo(dtype), value.astype(np.float64)
        inside = (wide > float(limits.min) - 1.0) & (wide < float(limits.max) + 1.0)
        result = np.where(inside, wide, 0.0).astype(dtype)
        result = np.where(wide >= float(limits.max), limits.max, result)
        result = np.where(wide <= float(limits.min), limits.min, result)
        return np.where(np.isnan(wide), 0, result).astype(dtype)[()]
    if is_half(target):
        value = _round_to_odd(value) if source == "float64" else value.astype(np.float32)
    return value.astype(dtype)[()]


def _round_to_odd(value: np.ndarray) -> np.ndarray:
    """float32 from float64, truncated, the last bit set when inexact; rounding that again is rounding once."""
    near = value.astype(np.float32)
    word = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(value))
    return np.where(near != value, word | 1, word).astype(np.uint32).view(np.float32)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of floats evaluated in float64 and rounded to the arguments' dtype."""

    def evaluate(*args: Any) -> Any:
        dtype = np.asarray(args[0]).dtype
        result = function(*(np.asarray(a).astype(np.float64) for a in args))
        return convert(result, "float64", str(dtype)) if dtype != np.float64 else result

    return evaluate


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_INTRINSICS: dict[str, Callable[..., Any]] = {
    **{name: _wide(getattr(np, name)) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: _wide(getattr(np, "arc" + name[1:])) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2": _wide(np.arctan2), "pow": _wide(power), "erf": _wide(_erf), "erfc": _wide(_erfc),
    "sqrt": np.sqrt, "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite,
    "multiply_no_nan": lambda a, b: np.where((a == 0) | (b == 0), np.asarray(a).dtype.type(0), a * b)[()],
    "xdivy": lambda a, b: np.where(a == 0, np.asarray(a).dtype.type(0), a / b)[()],
}  # fmt: skip


def intrinsic(name: str, dtype: str, *args: Any) -> Any:
    """A Call on NumPy values; ``dtype`` is that of the first argument."""
    if name == "not":
        return np.logical_not(args[0]) if dtype == "bool" else np.invert(args[0])
    if not is_float(dtype):
        return _integer_intrinsic(name, dtype, *args)
    if name == "fma":
        return fma(*args)
    if name == "rsqrt":
        if is_half(dtype):
            return intrinsic(name, "float32", np.float32(args[0])).astype(numpy_dtype(dtype))
        return np.asarray(args[0]).dtype.type(1) / np.sqrt(args[0])
    return _INTRINSICS[name](*args)


def _integer_intrinsic(name: str, dtype: str, *args: Any) -> Any:
    if name in ("isnan", "isinf", "isfinite"):
        return np.full(np.shape(args[0]), name == "isfinite")[()]
    if name == "fma":
        return args[0] * args[1] + args[2]
    if name in ("floor", "ceil", "round", "trunc"):
        return args[0]
    if name == "abs":
        return np.abs(args[0])
    raise InternalError(f"{name} is not defined on {dtype}: cast to a float first")


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once, by error-free transformations in float64."""
    dtype = np.asarray(a).dtype
    x, y, z = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    if dtype != np.float64:  # the product is exact
        total = _odd_sum(x * y, z)
        return convert(total, "float64", "float32") if dtype == np.float32 else convert(total, "float64", str(dtype))
    plain = x * y + z
    product, low = _two_product(x, y)
    high, mid = _two_sum(product, _two_sum(z, low)[0])
    exact = high + _odd_sum(mid, _two_sum(z, low)[1])
    large = np.maximum(np.abs(product), np.abs(z))
    trusted = np.isfinite(plain) & (large < 1e300) & (np.abs(product) > 1e-290)
    return np.where(trusted, exact, plain)[()]


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(s, e)``: the rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(p, e)``: the rounded product and its error (Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = (_halves(v) for v in (a, b))
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b rounded to odd: truncated, the last bit set when inexact."""
    total, error = _two_sum(a, b)
    word = np.asarray(total).view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (word & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, word + toward, word).view(np.float64)
