"""``T``: loop functions.

    @T.prim_func
    def double(A: T.Buffer((4, "n"), "float32"), B: T.Buffer((4, "n"), "float32"), n: T.int64):
        for i, j in T.grid(4, n):
            x: T.float32 = A[i, j]
            B[i, j] = x + x

All intrinsics of the loop IR are here by name (``T.exp``, ``T.fma``, …); ``+``, ``//``, ``and``, ``not`` and the like
are written as in Python.

Kernels with blocks, as TVM prints them, are read as the loops that they mean:

    @T.prim_func
    def row_sums(a: T.handle, B: T.Buffer((4,), "float32")):
        A = T.match_buffer(a, (4, 8), "float32")
        for i, k in T.grid(4, 8):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, overload

from pullback.ir.errors import NoAttribute, ScriptError, ShapeError, UserError, suggestion
from pullback.script.names import public_names
from pullback.script.sizes import read_shape
from pullback.tir import expr as _expr
from pullback.tir import stmt as _stmt


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NoAttribute(f"there is no T.{name}{suggestion(name, __dir__(), _WORDS, 'T.')}")


def __dir__() -> list[str]:
    return public_names(
        globals(), "Binary", "Buffer", "Cast", "Select", "Var", "call", "cast", "fma", "let", "max", "min", "select"
    )


_WORDS = {
    "allocate": "write T.alloc_buffer(shape, dtype)",
    "decl_buffer": "write T.alloc_buffer(shape, dtype)",
    "vectorize": "write T.vectorized(n)",
    "thread_binding": "write T.parallel(n)",
    "range": "write range(n)",
    "sum": "add up in a loop, into an element of a buffer",
    "abs_": "write T.abs",
    "fabs": "write T.abs",
    "sigmoid": "write 1.0 / (1.0 + T.exp(-x))",
    "relu": "write T.max(x, 0.0)",
}


# -- dtypes


class DType:
    """``T.int64``: as an annotation a scalar's dtype; called, a constant, a conversion, or a new variable."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any = None) -> _expr.PrimExpr:
        if value is None:
            return _expr.Var("v", self.name)
        if isinstance(value, _expr.PrimExpr):
            return _expr.cast(self.name, value)
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, float) and not _expr.is_float(self.name):
            raise ScriptError(f"T.{self.name}({value!r}): the constant is not an integer", hint="round it: T.int32(2)")
        return _expr.const(value, self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"T.{self.name}"


float16, bfloat16, float32, float64 = (DType(d) for d in _expr.FLOATS)
int8, int16, int32, int64, uint8, uint16, uint32, uint64 = (DType(d) for d in _expr.INTEGERS)
bool = DType("bool")

# -- expressions

Var = _expr.Var
min, max = _expr.minimum, _expr.maximum
select, call = _expr.select, _expr.call
if_then_else = _expr.select  # TVM's name


def cast(value: Any, dtype: Any) -> _expr.PrimExpr:
    """A scalar as another dtype: ``T.cast(x, "int32")``, as TVM has it, or ``T.cast("int32", x)``, as it is printed."""
    if isinstance(value, (str, DType)):
        value, dtype = dtype, value
    if not isinstance(dtype, (str, DType)):
        raise ScriptError("T.cast takes a scalar and the name of a dtype", hint='write T.cast(x, "int32")')
    if str(dtype) not in _expr.DTYPES:
        raise ScriptError(f"T.cast: there is no dtype {dtype!r}", hint="one of " + ", ".join(_expr.DTYPES))
    return _expr.cast(str(dtype), value)


def _intrinsic(name: str, arity: int) -> Callable[..., _expr.PrimExpr]:
    def intrinsic(*args: Any) -> _expr.PrimExpr:
        if len(args) != arity:
            hint = f"write T.{name}({', '.join('abc'[:arity])}): scalars of one dtype"
            raise ScriptError(f"T.{name} takes {arity} argument{'s' * (arity > 1)}, got {len(args)}", hint=hint)
        return _expr.call(name, *_weak(args))

    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = f"The intrinsic ``{name}`` of the loop IR."
    return intrinsic


def _weak(args: tuple[Any, ...]) -> list[_expr.PrimExpr]:
    """Python numbers take the dtype of the first expression beside them."""
    dtype = next((a.dtype for a in args if isinstance(a, _expr.PrimExpr)), None)
    return [_expr.as_expr(a, dtype) for a in args]


globals().update({
    name: _intrinsic(name, arity) for name, arity in _expr.INTRINSICS.items() if name not in ("not", "reinterpret")
})  # fmt: skip


def truncmod(a: Any, b: Any) -> _expr.PrimExpr:
    """The remainder with the sign of ``a``."""
    return _expr.binary("truncmod", a, b)


def reinterpret(dtype: Any, value: Any) -> _expr.PrimExpr:
    """The same bits as another dtype."""
    return _expr.call("reinterpret", value, dtype=str(dtype))


def Binary(kind: str, a: Any, b: Any) -> _expr.Binary:  # noqa: N802
    """The node as given: constants are not folded."""
    return _expr.Binary(kind, _expr.as_expr(a), _expr.as_expr(b))


def Select(condition: Any, a: Any, b: Any) -> _expr.Select:  # noqa: N802
    """The node as given: a constant condition is kept."""
    return _expr.Select(_expr.as_expr(condition), _expr.as_expr(a), _expr.as_expr(b))


def Cast(dtype: Any, value: Any) -> _expr.Cast:  # noqa: N802
    """The node as given: needless conversions are kept."""
    return _expr.Cast(str(dtype), _expr.as_expr(value))


# -- buffers

UNNAMED = ""  # the name of a buffer until the parser knows what it is assigned to


def Buffer(shape: Any, dtype: Any = "float32", scope: str = "global", offset: int = 0) -> _expr.Buffer:  # noqa: N802
    """A buffer: the annotation of a parameter."""
    sizes = read_shape(shape)
    for size in sizes:
        if isinstance(size, _expr.PrimExpr):
            good = size.dtype in _expr.INTEGERS
        else:
            good = isinstance(size, int) and 0 <= size < 2**63
        if not good:
            raise ShapeError(
                f"a size of a buffer must be an int ≥ 0 or a symbolic int64 expression, not {size!r}",
                hint='sizes are whole numbers, or names of symbolic sizes: T.Buffer(("n", 4), "float32")',
            )
    return _expr.Buffer(UNNAMED, sizes, str(dtype), scope, offset)


def arena_buffer(shape: Any, dtype: Any = "float32", offset: int = 0) -> _expr.Buffer:
    """A buffer in the arena of a host function, ``offset`` bytes from its start."""
    return Buffer(shape, dtype, "arena", offset)


@dataclass(frozen=True)
class Allocation:
    """What ``T.alloc_buffer`` gives: the parser makes it live until the end of the block."""

    buffer: _expr.Buffer


def alloc_buffer(shape: Any, dtype: Any = "float32", scope: str = "local") -> Allocation:
    """``acc = T.alloc_buffer((8, 48))``: scratch memory for the rest of the block. It holds zeros."""
    buffer = Buffer(shape, dtype, scope)
    if scope == "local" and not all(isinstance(s, (int, _expr.IntImm)) for s in buffer.shape):
        raise ShapeError(
            "the shape of a local buffer must be constant",
            hint="local memory has a size that is known: a number for each axis, or a buffer that is a parameter",
        )
    return Allocation(buffer)


# -- loops


@dataclass(frozen=True)
class Loop:
    """What a ``for`` statement goes over: one loop for each extent, all of one kind."""

    extents: tuple[Any, ...]
    kind: str
    dtype: str | None = None
    start: Any = 0


def serial(*bounds: Any, dtype: str | None = None) -> Loop:
    """``for i in T.serial(n)``, the same as ``range(n)``; ``T.serial(a, b)`` counts from ``a`` to ``b - 1``."""
    return _loop("serial", bounds, dtype)


def parallel(*bounds: Any, dtype: str | None = None) -> Loop:
    """Iterations are independent tasks."""
    return _loop("parallel", bounds, dtype)


def vectorized(*bounds: Any, dtype: str | None = None) -> Loop:
    """Iterations are lanes, executed statement by statement."""
    return _loop("vectorized", bounds, dtype)


def unrolled(*bounds: Any, dtype: str | None = None) -> Loop:
    """Iterations are written out; the extent is constant."""
    return _loop("unrolled", bounds, dtype)


def grid(*extents: Any) -> Loop:
    """``for i, j in T.grid(m, n)``: nested serial loops."""
    return Loop(tuple(_expr.as_expr(e) for e in extents), "serial")


def _loop(kind: str, bounds: tuple[Any, ...], dtype: str | None) -> Loop:
    if len(bounds) not in (1, 2):
        raise ScriptError(
            f"a loop takes (extent) or (start, stop), got {len(bounds)} arguments",
            hint="loops step by 1: multiply the variable inside the loop",
        )
    start = bounds[0] if len(bounds) == 2 else 0
    extent = _expr.as_expr(bounds[-1])
    return Loop((extent if isinstance(start, int) and start == 0 else extent - start,), kind, dtype, start)


unroll = unrolled  # TVM's name

# -- blocks, as TVM has them


@dataclass(frozen=True)
class Axis:
    """What ``T.axis.spatial`` and the like give: the parser makes the name stand for the value. Of an axis of a sum
    (``is_reduced``), what ``T.init`` says is done at ``start``."""

    value: _expr.PrimExpr
    is_reduced: builtins.bool = False
    start: Any = 0


class _Axes:
    """``T.axis``: what the axes of a block are."""

    def spatial(self, dom: Any, binding: Any) -> Axis:
        """``vi = T.axis.spatial(128, i)``: an axis of the result."""
        return Axis(_expr.as_expr(binding))

    def reduce(self, dom: Any, binding: Any) -> Axis:
        """``vk = T.axis.reduce(128, k)``: an axis of a sum, that starts at 0, or at ``dom[0]`` of a pair."""
        start = dom[0] if isinstance(dom, (tuple, list)) else 0
        return Axis(_expr.as_expr(binding), True, start)

    S = scan = opaque = spatial
    R = reduce

    def remap(self, kinds: str, bindings: Any) -> list[Axis]:
        """``vi, vk = T.axis.remap("SR", [i, k])``: several axes, a letter for each: S of the result, R of a sum."""
        values = list(bindings) if isinstance(bindings, (tuple, list)) else [bindings]
        if not isinstance(kinds, str) or len(kinds) != len(values) or not set(kinds) <= set("SR"):
            message = f"T.axis.remap takes a letter, S or R, for each of the {len(values)} variables, not {kinds!r}"
            raise ScriptError(message, hint='write vi, vk = T.axis.remap("SR", [i, k])')
        return [Axis(_expr.as_expr(v), kind == "R") for kind, v in zip(kinds, values, strict=True)]


axis = _Axes()


class _Handle:
    """``a: T.handle``: a parameter that ``T.match_buffer`` says the type of."""

    def __call__(self, *_: Any) -> _Handle:
        return self

    def __repr__(self) -> str:
        return "T.handle"


handle = _Handle()


@dataclass(frozen=True)
class Handle:
    """A parameter of type ``T.handle``."""

    name: str


@dataclass(frozen=True)
class Match:
    """What ``T.match_buffer`` gives: the parser makes the parameter a buffer."""

    handle: Handle
    buffer: _expr.Buffer


def match_buffer(param: Any, shape: Any, dtype: Any = "float32", **options: Any) -> Match:
    """``A = T.match_buffer(a, (8, 4), "float32")``: the parameter ``a: T.handle`` is this buffer. Other options must be
    those of a dense buffer of its own."""
    if not isinstance(param, Handle):
        raise ScriptError("T.match_buffer takes a parameter a: T.handle", hint="a T.Buffer is used as it is")
    usual = {"elem_offset": 0, "scope": "global", "strides": None, "data": None}
    odd = next(
        (k for k, v in options.items() if k in usual and v is not usual[k] and v not in (usual[k], [], ())), None
    )
    if odd is not None:
        hint = "elements lie in row-major order, without gaps: leave it out"
        raise ScriptError(f"T.match_buffer: {odd}={options[odd]!r} cannot be had", hint=hint)
    return Match(param, Buffer(shape, dtype))


_IN_BLOCK = "it stands in a block of @T.prim_func: with T.block(name):"


def block(name: str = "") -> NoReturn:
    """``with T.block("C"):`` a statement in the axes that ``T.axis`` names."""
    raise UserError("T.block() means something only inside @T.prim_func", hint='write with T.block("C"): in a function')


def init() -> NoReturn:
    """``with T.init():`` what a block does before the first step of its sums."""
    raise UserError("T.init() means something only inside a block", hint=_IN_BLOCK)


def reads(*regions: Any) -> NoReturn:
    """What a block reads: it is found out, and passed over here."""
    raise UserError("T.reads() means something only inside a block", hint=_IN_BLOCK)


def writes(*regions: Any) -> NoReturn:
    """What a block writes: it is found out, and passed over here."""
    raise UserError("T.writes() means something only inside a block", hint=_IN_BLOCK)


def block_attr(attrs: Any) -> NoReturn:
    """Notes for schedules: passed over."""
    raise UserError("T.block_attr() means something only inside a block", hint=_IN_BLOCK)


def where(predicate: Any) -> NoReturn:
    """``T.where(i * 32 + j < 100)``: the block does nothing where this does not hold."""
    raise UserError("T.where() means something only inside a block", hint=_IN_BLOCK)


def evaluate(value: Any) -> None:
    """A value that nothing is done with: no statement."""


# -- statements


def let(value: Any) -> _expr.PrimExpr:
    """``x = T.let(e)``: the value of ``e``, named for the rest of the block."""
    return _expr.as_expr(value)


def prefetch(element: _expr.BufferLoad, kind: str = "read") -> _stmt.Prefetch:
    """``T.prefetch(x[i, j], "write")``: a hint that the element is read, or written, soon. Nothing changes."""
    if not isinstance(element, _expr.BufferLoad) or kind not in _stmt.PREFETCH_KINDS:
        kinds = " or ".join(map(repr, _stmt.PREFETCH_KINDS))
        raise ScriptError(
            f"T.prefetch takes an element of a buffer, then {kinds}", hint='write T.prefetch(A[i], "read")'
        )
    return _stmt.Prefetch(element.buffer, element.indices, kind)


def packed(name: str, inputs: Any, outputs: Any, flag: _expr.Buffer) -> _stmt.PackedCall:
    """``T.packed("my.function", [A], [B], done)``: run a registered function, which reads the inputs and fills the
    outputs; ``done`` says whether it did. It is all of a kernel."""
    message = "T.packed takes the name of a function, a list of buffers to read, one to fill, and a bool buffer"
    if not isinstance(name, str) or not all(isinstance(part, (list, tuple)) for part in (inputs, outputs)):
        raise ScriptError(message, hint='write T.packed("my.function", [A], [B], done)')
    _check_buffers(message, *inputs, *outputs, flag)
    return _stmt.PackedCall(name, tuple(inputs), tuple(outputs), flag)


def collective(kind: str, given: Any, received: Any, ticket: Any, elements: Any, **options: Any) -> _stmt.Collective:
    """``T.collective("reduce", [A], [B], ticket, [64])``: begin what ranks compute together
    (``runtime/collectives.py``); ``ticket`` is a buffer of one int64, or None. It is all of a kernel."""
    message = "T.collective takes a kind, buffers that are given, buffers that are received, and a ticket"
    if not isinstance(kind, str) or not all(isinstance(part, (list, tuple)) for part in (given, received, elements)):
        raise ScriptError(message, hint='write T.collective("reduce", [A], [B], ticket, [64])')
    _check_buffers(message, *given, *received, *([] if ticket is None else [ticket]))
    return _stmt.Collective(kind, tuple(given), tuple(received), ticket, tuple(elements), **options)


def wait(ticket: _expr.Buffer, given: Any, received: Any, targets: Any) -> _stmt.Await:
    """``T.wait(ticket, [A], [B], [C])``: wait for a collective that was given A, and copy what B received to C."""
    message = "T.wait takes a ticket and three lists of buffers"
    if not all(isinstance(part, (list, tuple)) for part in (given, received, targets)):
        raise ScriptError(message, hint="write T.wait(ticket, [A], [B], [C])")
    _check_buffers(message, ticket, *given, *received, *targets)
    return _stmt.Await(ticket, tuple(given), tuple(received), tuple(targets))


def kernel(name: str, *buffers: _expr.Buffer) -> _stmt.KernelCall:
    """Host functions: run the kernel of that name on the buffers."""
    if not isinstance(name, str) or not all(isinstance(b, _expr.Buffer) for b in buffers):
        raise ScriptError("T.kernel takes the kernel's name as a string, then buffers")
    return _stmt.KernelCall(name, buffers)


@dataclass(frozen=True)
class Piece:
    """What ``T.piece`` gives: an argument of ``T.host``."""

    buffer: _expr.Buffer
    number: _expr.PrimExpr


def piece(buffer: _expr.Buffer, number: Any) -> Piece:
    """``T.piece(A, k)``: of a buffer cut into pieces as large as what the callee takes, that of this number."""
    if not isinstance(buffer, _expr.Buffer):
        raise ScriptError("T.piece takes a buffer, then the number of a piece of it")
    return Piece(buffer, _expr.as_expr(number))


def host(name: str, *buffers: Any, arena: _expr.Buffer | None = None) -> _stmt.HostCall:
    """Host functions: run the host function of that name on the buffers, or pieces of them; stop with its status if
    that is not 0. ``arena``: a buffer with its memory."""
    is_arena = arena is None or isinstance(arena, _expr.Buffer)
    if not isinstance(name, str) or not is_arena or not all(isinstance(b, (_expr.Buffer, Piece)) for b in buffers):
        raise ScriptError("T.host takes the host function's name as a string, buffers or T.piece(…), then arena=buffer")
    given = tuple(b.buffer if isinstance(b, Piece) else b for b in buffers)
    rows = tuple(b.number if isinstance(b, Piece) else _expr.as_expr(0) for b in buffers)
    return _stmt.HostCall(name, given, rows if any(isinstance(b, Piece) for b in buffers) else (), arena)


def box(handle: _expr.Buffer, *fields: _expr.Buffer, heap: _expr.Buffer, kind: int, code: int) -> _stmt.Box:
    """Host functions: copy the fields to new memory of the heap and store its address in the handle; stop with the
    status ``code`` where there is none. ``kind``: a number that says what the fields are."""
    _check_buffers("T.box takes a handle, then buffers, heap=buffer, kind=1 and code=1", handle, *fields, heap)
    return _stmt.Box(handle, fields, heap, *_numbers("T.box", kind, code))


def unbox(handle: _expr.Buffer, *fields: _expr.Buffer, kind: int, code: int) -> _stmt.Unbox:
    """Host functions: copy what ``T.box`` has put where the handle says to the fields; zeros where the handle is 0.
    Stop with the status ``code`` where that was of another kind."""
    _check_buffers("T.unbox takes a handle, then buffers, kind=1 and code=1", handle, *fields)
    return _stmt.Unbox(handle, fields, *_numbers("T.unbox", kind, code))


def release(heap: _expr.Buffer, mark: _expr.Buffer) -> _stmt.Release:
    """Host functions: take the heap back to where its first number was that in ``mark``."""
    _check_buffers("T.release takes a heap, then a buffer with a mark", heap, mark)
    return _stmt.Release(heap, mark)


def recur(
    name: str, *buffers: _expr.Buffer, heap: _expr.Buffer, nbytes: int, most: int, too_deep: int, code: int
) -> _stmt.Recur:
    """Host functions: run the host function of that name one call deeper, on ``nbytes`` of the heap; stop with
    ``too_deep`` after ``most`` calls, with ``code`` where there is no memory."""
    message = "T.recur takes a host function's name, then buffers, heap=, nbytes=, most=, too_deep= and code="
    if not isinstance(name, str):
        raise ScriptError(message)
    _check_buffers(message, *buffers, heap)
    return _stmt.Recur(name, buffers, heap, nbytes, most, too_deep, code)


def _check_buffers(message: str, *buffers: Any) -> None:
    if not all(isinstance(b, _expr.Buffer) for b in buffers):
        raise ScriptError(message)


def _numbers(name: str, *values: Any) -> list[int]:
    if not all(type(v) is int and -(2**63) <= v < 2**63 for v in values):
        raise ScriptError(f"{name} takes whole numbers for kind and code")
    return list(values)


def stop(code: int) -> _stmt.Stop:
    """Host functions: stop with the status ``code``."""
    if not isinstance(code, int) or isinstance(code, builtins.bool):
        raise ScriptError("T.stop takes a status code, a whole number")
    return _stmt.Stop(code)


def check(flag: _expr.Buffer, code: int) -> _stmt.Check:
    """Host functions: stop with the status ``code`` when ``flag[0]`` is false."""
    if not isinstance(flag, _expr.Buffer) or not isinstance(code, int):
        raise ScriptError("T.check takes a buffer of one bool, then a status code")
    return _stmt.Check(flag, code)


def scope() -> NoReturn:
    """``with T.scope():`` ends the life of the values and buffers named inside it."""
    raise UserError("T.scope() means something only inside @T.prim_func", hint="write with T.scope(): in a function")


def func_attr(attrs: Mapping[str, Any]) -> NoReturn:
    """Attributes of the function."""
    raise UserError("T.func_attr() means something only inside @T.prim_func")


class PrimFuncDecorator(Protocol):
    """``T.prim_func(…)``, of options."""

    def __call__(self, func: Callable[..., Any]) -> _stmt.PrimFunc: ...


@overload
def prim_func(func: Callable[..., Any]) -> _stmt.PrimFunc: ...
@overload
def prim_func(func: None = None, *, private: builtins.bool = False, name: str | None = None) -> PrimFuncDecorator: ...
def prim_func(func: Any = None, *, private: builtins.bool = False, name: str | None = None) -> Any:
    """Decorator: the loop function that the Python function's source describes (options as in ``R.function``)."""
    from pullback.script.parser.entry import decorate

    frame = sys._getframe(1)
    options = {"private": private, "name": name}
    if func is None:
        return lambda f: decorate(prim_func, f, frame, options)
    return decorate(prim_func, func, frame, options)
