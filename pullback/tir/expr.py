"""Scalar expressions of the loop IR: the whole grammar.

    e ::= Var | IntImm | FloatImm
        | Binary(kind, e, e)        arithmetic, comparison, logic
        | Select(condition, e, e)   both sides are evaluated
        | Cast(dtype, e)
        | Call(name, e…)            a pure scalar intrinsic: exp, sqrt, fma, …
        | BufferLoad(buffer, e…)

Every expression has a ``dtype``; operands of a Binary have equal dtypes (Python scalars are weak: they take the
other side's). Integer arithmetic wraps; float arithmetic is IEEE with NaN kept by ``min``/``max``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pullback.ir.arguments import sequence
from pullback.ir.at_run_time import AtRunTime
from pullback.ir.errors import DTypeError, InternalError, ShapeError, UserError
from pullback.ir.node import Node, Symbol, made_quickly

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "floormod", "truncmod", "min", "max")
LOGIC = ("and", "or")  # on bool
BITWISE = ("bitand", "bitor", "bitxor", "shl", "shr")  # on integers; shr is arithmetic for signed types
KINDS = ARITHMETIC + COMPARISONS + LOGIC + BITWISE
_ON_NUMBERS = frozenset(("div", "floordiv", "floormod", "truncmod", "shl", "shr"))
_KINDS, _TO_BOOL = frozenset(KINDS), frozenset(COMPARISONS + LOGIC)

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
HANDLE = "handle"  # of the graph IR: where boxed values lie. In loops it is a number of type ADDRESS
ADDRESS = "int64"

# Intrinsics with the number of arguments; the result has the first argument's dtype unless said otherwise.
INTRINSICS = {
    "abs": 1, "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sqrt": 1, "rsqrt": 1,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1,
    "acosh": 1, "atanh": 1, "erf": 1, "erfc": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "pow": 2,
    "atan2": 2, "isnan": 1, "isinf": 1, "isfinite": 1,  # -> bool
    "not": 1,  # logical on bool, bitwise on integers
    "fma": 3,  # a * b + c, rounded once
    "multiply_no_nan": 2,  # a * b, 0 where either is 0
    "xdivy": 2,  # a / b, 0 where a is 0
    "reinterpret": 1,  # same bits as another dtype of the same width (the Call's own dtype)
    "philox4x32": 7,  # random bits of the Call's own dtype, uint32 or uint64: see philox.py
    "pair": 2,  # two bfloat16 in one uint32: see pairs.py
    "pair_dot": 3,  # the products of two pairs added to a float32
}  # fmt: skip
_ON_FLOATS = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "pow", "atan2", "multiply_no_nan",
    "xdivy",
))  # fmt: skip
_ALIKE = ("pow", "atan2", "fma", "multiply_no_nan", "xdivy")
OPERANDS = {"pair": ("bfloat16", "bfloat16"), "pair_dot": ("uint32", "uint32", "float32")}  # of the particular ones
RESULTS = {"isnan": "bool", "isinf": "bool", "isfinite": "bool", "pair": "uint32", "pair_dot": "float32"}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_half(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16")


def is_integer(dtype: str) -> bool:
    return dtype in INTEGERS


def is_signed(dtype: str) -> bool:
    return dtype in ("int8", "int16", "int32", "int64")


@functools.cache
def bits(dtype: str) -> int:
    """Width of an element in memory, in bits (bool takes a byte)."""
    if dtype == "bool":
        return 8
    if dtype == HANDLE:
        return bits(ADDRESS)
    return 16 if dtype == "bfloat16" else int(dtype.lstrip("uintfloa"))


def nbytes(dtype: str) -> int:
    return bits(dtype) // 8


@made_quickly
@dataclass(frozen=True, eq=False)
class PrimExpr(AtRunTime, Node):
    """Base of scalar expressions; ``==`` is identity, comparisons are methods :meth:`equal` etc."""

    described = "a symbolic scalar"
    to_choose = "T.select(condition, a, b) chooses, a & b and a | b combine conditions; a script has if"
    to_convert = "T.cast(dtype, x) converts it; T has the functions of math, such as T.exp(x)"
    to_count = to_change = "a scalar has no elements"

    @property
    def dtype(self) -> str:
        raise NotImplementedError

    def __add__(self, other: Any) -> PrimExpr:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> PrimExpr:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> PrimExpr:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> PrimExpr:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> PrimExpr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> PrimExpr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return binary("floordiv", other, self)

    def __mod__(self, other: Any) -> PrimExpr:
        return binary("floormod", self, other)

    def __rmod__(self, other: Any) -> PrimExpr:
        return binary("floormod", other, self)

    def __pow__(self, other: Any) -> PrimExpr:
        other = as_expr(other, self.dtype)
        if not is_float(self.dtype) or other.dtype != self.dtype:
            hint = "convert them: T.cast('float32', …)"
            raise DTypeError(f"a power is of two floats of one dtype, not {self.dtype} and {other.dtype}", hint=hint)
        return call("pow", self, other)

    def __neg__(self) -> PrimExpr:
        # 0 - x would turn -0.0 into +0.0
        return binary("mul", self, -1) if is_float(self.dtype) else binary("sub", 0, self)

    def __lt__(self, other: Any) -> PrimExpr:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> PrimExpr:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> PrimExpr:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> PrimExpr:
        return binary("ge", self, other)

    def equal(self, other: Any) -> PrimExpr:
        return binary("eq", self, other)

    def not_equal(self, other: Any) -> PrimExpr:
        return binary("ne", self, other)

    def __and__(self, other: Any) -> PrimExpr:
        return binary("and" if self.dtype == "bool" else "bitand", self, other)

    def __or__(self, other: Any) -> PrimExpr:
        return binary("or" if self.dtype == "bool" else "bitor", self, other)

    def __xor__(self, other: Any) -> PrimExpr:
        return binary("bitxor", self, other)

    def __lshift__(self, other: Any) -> PrimExpr:
        return binary("shl", self, other)

    def __rshift__(self, other: Any) -> PrimExpr:
        return binary("shr", self, other)

    def __invert__(self) -> PrimExpr:
        return call("not", self)

    def astype(self, dtype: str) -> PrimExpr:
        return cast(dtype, self)


@made_quickly
@dataclass(frozen=True, eq=False)
class Var(PrimExpr, Symbol):
    """A scalar variable: a name plus identity (loop variables, symbolic sizes, let-bound values)."""

    name: str = field(compare=False)
    type: str = "int64"

    def __post_init__(self) -> None:
        _known(self.type)

    @property
    def dtype(self) -> str:
        return self.type


@made_quickly
@dataclass(frozen=True, eq=False)
class IntImm(PrimExpr):
    """An integer or bool constant."""

    value: int
    type: str = "int64"

    def __post_init__(self) -> None:
        if self.type == "int64" and type(self.value) is int:
            return
        if self.type != "bool" and not is_integer(self.type):
            raise DTypeError(f"an integer constant needs an integer or bool dtype, not {self.type}")
        object.__setattr__(self, "value", int(self.value))

    @property
    def dtype(self) -> str:
        return self.type

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


@made_quickly
@dataclass(frozen=True, eq=False)
class FloatImm(PrimExpr):
    """A floating-point constant (its value is rounded to ``type`` by whoever evaluates it)."""

    value: float
    type: str = "float32"

    def __post_init__(self) -> None:
        if not is_float(self.type):
            raise DTypeError(f"a floating-point constant needs a float dtype, not {self.type}")
        object.__setattr__(self, "value", float(self.value))

    @property
    def dtype(self) -> str:
        return self.type

    def __float__(self) -> float:
        return self.value


@made_quickly
@dataclass(frozen=True, eq=False)
class Binary(PrimExpr):
    kind: str
    a: PrimExpr
    b: PrimExpr

    def __post_init__(self) -> None:
        kind, dtype, other = self.kind, self.a.dtype, self.b.dtype
        if kind not in _KINDS:
            raise InternalError(f"unknown binary kind {kind!r}")
        if dtype != other:
            raise DTypeError(f"{kind} of {dtype} and {other}: cast one side", hint='T.cast("float32", value) converts')
        if kind in LOGIC and dtype != "bool":
            raise DTypeError(f"logical {kind} needs bool, not {dtype}", hint="compare it with something: x != 0.0")
        if dtype == "bool" and kind in _ON_NUMBERS:
            raise DTypeError(f"{kind} needs numbers, not bool", hint='convert them: T.cast("int32", value)')
        if kind in BITWISE and not (is_integer(dtype) or dtype == "bool"):
            raise DTypeError(f"{kind} needs integers, not {dtype}", hint='convert them: T.cast("int32", value)')
        # Kept: asked of a deep expression at each of its nodes, it would be looked for down to the leaves each time.
        self.__dict__["_dtype"] = "bool" if kind in _TO_BOOL else dtype

    @property
    def dtype(self) -> str:
        return self.__dict__["_dtype"]


@made_quickly
@dataclass(frozen=True, eq=False)
class Select(PrimExpr):
    """``a`` where ``condition`` holds, else ``b``; both are evaluated."""

    condition: PrimExpr
    a: PrimExpr
    b: PrimExpr

    def __post_init__(self) -> None:
        dtype = self.a.dtype
        if self.condition.dtype != "bool" or dtype != self.b.dtype:
            raise DTypeError(
                f"select({self.condition.dtype}, {dtype}, {self.b.dtype})",
                hint="the condition must be bool, and both values of one dtype",
            )
        self.__dict__["_dtype"] = dtype

    @property
    def dtype(self) -> str:
        return self.__dict__["_dtype"]


@made_quickly
@dataclass(frozen=True, eq=False)
class Cast(PrimExpr):
    """Conversion of value. Float to integer truncates and saturates (NaN gives 0); to bool is ``!= 0``."""

    type: str
    value: PrimExpr

    def __post_init__(self) -> None:
        _known(self.type)

    @property
    def dtype(self) -> str:
        return self.type


@made_quickly
@dataclass(frozen=True, eq=False)
class Call(PrimExpr):
    """A pure scalar intrinsic of :data:`INTRINSICS`."""

    name: str
    args: tuple[PrimExpr, ...]
    type: str

    def __post_init__(self) -> None:
        if INTRINSICS.get(self.name) != len(self.args):
            raise InternalError(f"unknown intrinsic {self.name} with {len(self.args)} arguments")
        if self.name in _ON_FLOATS and self.args[0].dtype not in FLOATS:
            hint = 'convert it: T.cast("float32", value)'
            raise DTypeError(f"{self.name} needs floats, not {self.args[0].dtype}", hint=hint)
        if self.name == "not" and self.args[0].dtype in FLOATS:
            hint = "compare it with something: x != 0.0"
            raise DTypeError(f"not needs bool or integers, not {self.args[0].dtype}", hint=hint)
        given = tuple(a.dtype for a in self.args)
        if self.name in _ALIKE and len(set(given)) > 1:
            hint = 'convert the arguments: T.cast("float32", value)'
            raise DTypeError(f"{self.name} takes arguments of one dtype, got {', '.join(given)}", hint=hint)
        if given != OPERANDS.get(self.name, given):
            raise DTypeError(
                f"{self.name} takes {', '.join(OPERANDS[self.name])}, got {', '.join(given)}",
                hint='convert the arguments: T.cast("int32", value)',
            )

    @property
    def dtype(self) -> str:
        return self.type


@made_quickly
@dataclass(frozen=True, eq=False)
class Buffer(Symbol):
    """A dense row-major array in memory: a name plus identity.

    ``scope``: ``global`` (a parameter's memory), ``local`` (registers or stack of one task), ``workspace`` (scratch
    memory shared by the tasks of a kernel: the planner gives it a place in the arena), ``arena`` (at byte ``offset``),
    ``heap`` (a host function's own heap, see ``tir/stmt.py``).
    """

    name: str = field(compare=False)
    shape: tuple[PrimExpr | int, ...]
    dtype: str = "float32"
    scope: str = "global"
    offset: int = 0

    def __post_init__(self) -> None:
        _known(self.dtype)
        scopes = ("global", "local", "workspace", "arena", "heap")
        if not isinstance(self.scope, str) or self.scope not in scopes:
            raise UserError(f"unknown scope {self.scope!r}", hint=f"the scopes are {', '.join(scopes)}")
        shape = tuple(int(s) if isinstance(s, IntImm) else s for s in sequence("shape", self.shape))
        object.__setattr__(self, "shape", shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a buffer of which it is known that its sizes are numbers."""
        sizes = tuple([s for s in self.shape if isinstance(s, int)])
        if len(sizes) < len(self.shape):
            raise InternalError(f"the sizes of {self.name} are not numbers: whoever reads them checks that first")
        return sizes

    @property
    def nbytes(self) -> int:
        """The bytes of a buffer of static shape."""
        return math.prod(self.static_shape) * nbytes(self.dtype)

    def __getitem__(self, indices: Any) -> BufferLoad:
        indices = indices if isinstance(indices, tuple) else (indices,)
        return BufferLoad(self, tuple(as_expr(i) for i in indices))

    def __iter__(self) -> NoReturn:
        raise UserError(
            f"the buffer {self.name} cannot be gone through", hint="loop over its indices: for i in range(n)"
        )


def check_indices(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
    """Raise unless there is one integer for each axis."""
    if len(indices) != len(buffer.shape):
        hint = "an element is read and written by one index for each axis"
        raise ShapeError(f"{buffer.name} has rank {len(buffer.shape)}, got {len(indices)} indices", hint=hint)
    for index in indices:
        if index.dtype not in INTEGERS:
            hint = "convert it: T.cast('int64', …)"
            raise DTypeError(f"an index of {buffer.name} must be an integer, got {index.dtype}", hint=hint)


@made_quickly
@dataclass(frozen=True, eq=False)
class BufferLoad(PrimExpr):
    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        check_indices(self.buffer, self.indices)

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


def _known(dtype: str) -> None:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise DTypeError(f"unknown dtype {dtype!r}", hint=f"the dtypes are {', '.join(DTYPES)}")


def const(value: Any, dtype: str) -> PrimExpr:
    """A constant of the dtype. A DTypeError when a finite number would become an infinity, or another one 0, or an
    integer does not fit."""
    if not is_float(dtype):
        return _whole(int(value), dtype)
    number = float(value)
    if not holds(dtype, number):
        raise out_of_range(value, dtype)
    return FloatImm(number, dtype)


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer dtype."""
    width = bits(dtype)
    return (-(1 << width - 1), (1 << width - 1) - 1) if is_signed(dtype) else (0, (1 << width) - 1)


def _whole(value: int, dtype: str) -> IntImm:
    if is_integer(dtype):
        low, high = limits(dtype)
        if not low <= value <= high:
            shown = value if abs(value) < 1 << 100 else f"a number of {value.bit_length()} bits"
            raise DTypeError(f"{shown} does not fit in {dtype}", hint=f"{dtype} holds {low} … {high}")
    return IntImm(value, dtype)


# Of the floats, the digits of the significand and the largest exponent.
_FORMATS = {"float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)}


def float_range(dtype: str) -> tuple[float, float]:
    """The bounds between which a number must be, not on them, to become neither 0 nor an infinity of a float type."""
    digits, exponent = _FORMATS[dtype]
    if dtype == "float64":
        return 0.0, math.inf
    return 2.0 ** (1 - exponent - digits), (2.0 - 2.0**-digits) * 2.0**exponent


def holds(dtype: str, number: float) -> bool:
    """Whether a float type has a number that is as good as this one: not 0 or an infinity in its place."""
    least, most = float_range(dtype)
    return number == 0 or not math.isfinite(number) or least < abs(number) < most


def out_of_range(number: Any, dtype: str) -> DTypeError:
    """The error about a number that a float type does not hold."""
    becomes = "an infinity" if abs(number) > 1 else "0"
    most = math.nextafter(float_range(dtype)[1], 0.0)
    least = 2.0 * float_range(dtype)[0]
    hint = f"{dtype} holds numbers from {least:.1e} to {most:.1e}: compute in a wider type, such as float32"
    hint += ', or write float("inf")' if abs(number) > 1 else ""
    return DTypeError(f"the number {number!r} would be {becomes} in {dtype}", hint=hint)


def as_expr(value: Any, dtype: str | None = None) -> PrimExpr:
    """A PrimExpr from a Python number; without ``dtype`` ints are int64, floats float32. Bools are refused: they
    are what Python's ``==`` gives."""
    if isinstance(value, PrimExpr):
        return value
    if type(value) is int and dtype in (None, "int64"):
        return IntImm(value) if -(1 << 63) <= value < 1 << 63 else _whole(value, "int64")
    if isinstance(value, bool):
        hint = f"a.equal(b) and a.not_equal(b) compare values; a constant is T.bool({value})"
        raise DTypeError(f"{value} is no scalar: in Python, == and != compare expressions as objects", hint=hint)
    if isinstance(value, type):
        raise DTypeError(f"not a scalar: the class {value.__name__}", hint="make one of it: T.float32(1.5)")
    if isinstance(value, int) or (hasattr(value, "__index__") and not isinstance(value, float)):
        return const(int(value), dtype or "int64")
    if isinstance(value, float) or hasattr(value, "__float__"):
        if dtype is not None and not is_float(dtype):
            hint = "convert the other side: T.cast('float32', …)"
            raise DTypeError(f"the Python float {value!r} cannot become {dtype}", hint=hint)
        return const(float(value), dtype or "float32")
    if isinstance(value, Buffer):
        hint = f"its elements are scalars: {value.name}[{', '.join('ijklmn'[: len(value.shape)]) or '()'}]"
        raise DTypeError(f"the buffer {value.name} is no scalar", hint=hint)
    hint = "scalars are numbers, loop variables, elements of buffers, and what T makes of them"
    raise DTypeError(f"not a scalar: {value!r:.80}", hint=hint)


def _fold(kind: str, a: int, b: int) -> int | bool | None:
    """Integer constant folding, used for sizes and indices; None for what has to wrap, or has no value."""
    if kind in ("floordiv", "floormod") and b == 0:
        return None
    table = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "floordiv": lambda: a // b,
        "floormod": lambda: a % b, "min": lambda: min(a, b), "max": lambda: max(a, b), "eq": lambda: a == b,
        "ne": lambda: a != b, "lt": lambda: a < b, "le": lambda: a <= b, "gt": lambda: a > b, "ge": lambda: a >= b,
    }  # fmt: skip
    result = table[kind]() if kind in table else None
    return result if result is None or -(1 << 63) <= result < 1 << 63 else None


def binary(kind: str, a: Any, b: Any) -> PrimExpr:
    """``a kind b`` with weak Python scalars; folds int64 constants and the neutral elements of + and * on int64."""
    if not isinstance(a, PrimExpr):
        a = as_expr(a, b.dtype if isinstance(b, PrimExpr) else None)
    if not isinstance(b, PrimExpr):
        b = as_expr(b, a.dtype)
    if a.dtype == "int64" and b.dtype == "int64":
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            folded = _fold(kind, a.value, b.value)
            if folded is not None:
                return IntImm(folded, "bool" if kind in COMPARISONS else "int64")
        if kind == "add" and isinstance(a, IntImm) and a.value == 0:
            return b
        if kind in ("add", "sub") and isinstance(b, IntImm) and b.value == 0:
            return a
        if kind in ("mul", "floordiv") and isinstance(b, IntImm) and b.value == 1:
            return a
        if kind == "mul" and isinstance(a, IntImm) and a.value == 1:
            return b
        if kind == "mul" and any(isinstance(x, IntImm) and x.value == 0 for x in (a, b)):
            return IntImm(0)
        if kind == "floormod" and isinstance(b, IntImm) and b.value == 1:
            return IntImm(0)
    return Binary(kind, a, b)


def call(name: str, *args: Any, dtype: str | None = None) -> PrimExpr:
    """An intrinsic call; its dtype is that of RESULTS, or the first argument's."""
    exprs = tuple(as_expr(a) for a in args)
    return Call(name, exprs, dtype or RESULTS.get(name) or exprs[0].dtype)


def cast(dtype: str, value: Any) -> PrimExpr:
    value = as_expr(value)
    if value.dtype == dtype:
        return value
    if isinstance(value, IntImm) and (is_float(dtype) or dtype == "int64"):
        return const(value.value, dtype)
    return Cast(dtype, value)


def select(condition: PrimExpr, a: Any, b: Any) -> PrimExpr:
    """``a`` if condition else ``b``, Python scalars weak."""
    condition = as_expr(condition)
    if not isinstance(a, PrimExpr):
        a = as_expr(a, b.dtype if isinstance(b, PrimExpr) else None)
    if not isinstance(b, PrimExpr):
        b = as_expr(b, a.dtype)
    if isinstance(condition, IntImm):
        return a if condition.value else b
    return Select(condition, a, b)


def minimum(a: Any, b: Any) -> PrimExpr:
    return binary("min", a, b)


def maximum(a: Any, b: Any) -> PrimExpr:
    return binary("max", a, b)


def fma(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """``a * b + c`` rounded once."""
    return call("fma", a, b, c)
