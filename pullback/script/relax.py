"""``R``: graph functions. Every registered op is an attribute: ``R.matmul``, ``R.nn.relu``.

    @R.function
    def main(x: R.Tensor(("n", 784), "float32"), w: R.Tensor((784, 10), "float32")) -> R.Tensor(("n", 10), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            out = R.nn.relu(lv)
            R.output(out)
        return out

Names may be assigned again, and if, while and for mean what they mean in Python, computed when the function runs:

    x = a
    while R.abs(x * x - a) > 1e-6:
        x = (x + a / x) * 0.5
    for i in R.range(3):
        x += R.astype(i, "float32")
    if x > 1.0:
        y = R.sqrt(x)
    else:
        y = x

``for x in xs`` goes through the rows of a tensor. Functions inside, ``def f(x: R.Tensor(…)):``, read the variables
around them; they are called, or passed to loops such as ``R.scan``. An if whose condition is a bool of Python, made of
names around the function, chooses its branch when the text is read.

Types and ops work outside scripts too: ``R.Tensor((2, 3))`` is a TensorStructInfo, ``R.add(x, y)`` a call.
"""

from __future__ import annotations

import builtins
import collections.abc as _abc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, overload

import pullback.relax.op  # noqa: F401  registers the ops
from pullback.ir.errors import ScriptError, UserError
from pullback.ir.node import current_span
from pullback.ir.op import Op
from pullback.relax import expr as _expr
from pullback.relax import struct_info as _info
from pullback.relax.boxes import unbox  # noqa: F401
from pullback.relax.control import branch, cond, custom, custom_gradient, fori_loop, loop, scan, while_loop  # noqa: F401
from pullback.relax.declared import PARAMETER, STATE, Annotation, Declared
from pullback.relax.op.call.call_tir import call_tir as _call_tir
from pullback.relax.op.call.call_tir import call_tir_with_grad  # noqa: F401
from pullback.relax.op.call.packed import call_packed as _call_packed
from pullback.relax.op.call.packed import call_pure_packed as _call_pure_packed
from pullback.relax.op.namespace import Namespace, no_op
from pullback.relax.recursion import call_self, recurse, recursive  # noqa: F401
from pullback.script.names import public_names
from pullback.script.sizes import read_shape
from pullback.tir.expr import DTYPES, PrimExpr

_ops = Namespace()
_CONTROL = ("branch", "call_self", "cond", "custom", "custom_gradient", "fori_loop", "loop", "recurse", "recursive",
            "scan", "unbox", "while_loop")  # fmt: skip
_TAKEN = ("const", "dtype", "call_tir_with_grad", *_CONTROL)  # from elsewhere


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _LOWERED:
        return _LOWERED[name]
    try:
        return getattr(_ops, name)
    except AttributeError:
        raise no_op(name, *_own_names()) from None


def _check(value: Any, message: str) -> _expr.Call:
    """Where the bool scalar is false, the call of the function fails with the message."""
    from pullback.relax.transform.lower_to_tir import CHECK

    return _expr.Call(CHECK, (value,), {"message": message})


_LOWERED = {"check": _check}  # what is printed of lowered functions alone: no names for users to write


def _own_names() -> list[str]:
    return public_names(globals(), *_TAKEN)


def __dir__() -> list[str]:
    return sorted({*_own_names(), *dir(_ops)})


# -- types


def Tensor(shape: Any = None, dtype: str = "float32", ndim: int | None = None) -> _info.TensorStructInfo:  # noqa: N802
    """The type of a tensor; sizes are ints, symbolic expressions, or strings such as ``"n"`` and ``"n * 2"``."""
    sizes = None if shape is None else read_shape(shape)
    return _info.TensorStructInfo(sizes, dtype, None if ndim == -1 else ndim, span=current_span())


def Param(  # noqa: N802
    shape: Any, dtype: str = "float32", *, trainable: bool = True, initial: float | None = None
) -> Annotation:
    """The type of a tensor that is a parameter of the model, where a function's parameters are declared:
    ``def backbone(x: R.Tensor((64, 784)), w: R.Param((784, 10)))``.

    ``trainable=False``: a trainer leaves it as it is, computes no gradient for it, and its optimizer keeps nothing.
    ``initial``: the number that its elements begin with in a trainer; by default they are drawn.
    """
    return Annotation(Tensor(shape, dtype), Declared(PARAMETER, trainable, initial))


def State(shape: Any, dtype: str = "float32", *, initial: float | None = None) -> Annotation:  # noqa: N802
    """The type of a tensor that is a state of the model, where a function's parameters are declared. The function
    returns the states' new values last, in the order of the states. ``initial``: the number that its elements begin
    with in a trainer, by default 0.
    """
    return Annotation(Tensor(shape, dtype), Declared(STATE, initial=initial))


def Tuple(*fields: Any) -> _info.TupleStructInfo:  # noqa: N802
    """The type of a tuple."""
    if len(fields) == 1 and isinstance(fields[0], (list, builtins.tuple)):
        fields = builtins.tuple(fields[0])
    return _info.TupleStructInfo(_infos(fields))


def Shape(values: Sequence[Any]) -> _info.ShapeStructInfo:  # noqa: N802
    """The type of a shape."""
    return _info.ShapeStructInfo(builtins.tuple(_info.dim(v) for v in read_shape(values)))


def Prim(dtype: str = "int64") -> _info.PrimStructInfo:  # noqa: N802
    """The type of a scalar of the host."""
    return _info.PrimStructInfo(dtype_name(dtype))


def Object() -> _info.ObjectStructInfo:  # noqa: N802
    """The type of anything."""
    return _info.ObjectStructInfo()


def Callable(params: Sequence[Any] = (), ret: Any = None) -> _info.FuncStructInfo:  # noqa: N802
    """The type of a function."""
    return _info.FuncStructInfo(_infos(params), Object() if ret is None else as_info(ret))


def as_info(value: Any) -> _info.StructInfo:
    """A type, from a type or from its constructor without parentheses (``R.Object``)."""
    if value in (Tensor, Tuple, Prim, Object, Callable):
        value = value()
    if isinstance(value, Annotation) or value in (Param, State):
        kind = "R.State" if value is State or getattr(value, "declared", None) == STATE else "R.Param"
        hint = "elsewhere a parameter or state is a tensor like others: R.Tensor"
        raise ScriptError(f"{kind} declares a parameter of a function of its own, and stands nowhere else", hint=hint)
    if not isinstance(value, _info.StructInfo):
        hint = "types are R.Tensor, R.Tuple, R.Shape, R.Prim, R.Object and R.Callable"
        raise ScriptError(f"expected a type such as R.Tensor((64, 10), 'float32'), not {value!r:.80}", hint=hint)
    return value


def _infos(values: Sequence[Any]) -> builtins.tuple[_info.StructInfo, ...]:
    return builtins.tuple(as_info(v) for v in values)


def dtype_name(value: Any) -> str:
    """A dtype's name, checked."""
    name = str(value)
    if name not in DTYPES:
        raise ScriptError(f"unknown dtype {name!r}", hint=f"the dtypes are {', '.join(DTYPES)}")
    return name


dtype = dtype_name

# -- values

const = _expr.const


def tuple(*fields: Any) -> _expr.Tuple:
    """A tuple: ``R.tuple(a, b)``; in scripts ``(a, b)`` is the same."""
    return _expr.Tuple(fields)


def shape(values: Sequence[Any]) -> _expr.ShapeExpr:
    """A shape as a value."""
    return _expr.ShapeExpr(read_shape(values))


def prim_value(value: Any) -> _expr.PrimValue:
    """A scalar of the host as a value."""
    return _expr.PrimValue(value)


def TupleGetItem(value: _expr.Expr, index: int) -> _expr.TupleGetItem:  # noqa: N802
    """``value[index]``, kept as written even when ``value`` is an explicit tuple."""
    return _expr.TupleGetItem(_expr.as_relax(value), index)


def call_tir(
    func: Any,
    args: Any = (),
    out_sinfo: Any = None,
    tir_vars: Any = None,
    origin: Mapping[str, Any] | None = None,
    te_grad_name: str | None = None,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> _expr.Call:
    """Call a kernel of the module; ``origin`` says which op and attributes it was made from, ``te_grad_name`` which
    registered gradient it has."""
    return _call_tir(func, args, out_sinfo, tir_vars, origin, te_grad_name, te_grad_kwargs)


def call_packed(func: str, *args: Any, sinfo_args: Any = None) -> _expr.Call:
    """Call the registered function of that name on tensors; ``sinfo_args``: the type of what it gives, or several. The
    call stays even where nobody reads what it gives."""
    return _call_packed(func, *args, sinfo_args=sinfo_args)


def call_pure_packed(func: str, *args: Any, sinfo_args: Any = None) -> _expr.Call:
    """:func:`call_packed` of a function that only computes."""
    return _call_pure_packed(func, *args, sinfo_args=sinfo_args)


def ExternFunc(name: str) -> str:  # noqa: N802
    """The name of a registered function."""
    return name


def call(op: str, args: Sequence[Any], attrs: Mapping[str, Any], sinfo_args: Sequence[Any] = ()) -> _expr.Call:
    """A call just as given, with no defaults filled in: what the printer writes for calls no op builds."""
    operands = _expr.Tuple(builtins.tuple(args)).fields
    return _expr.Call(Op.get(op), operands, attrs, _infos(sinfo_args))


# -- what only the parser understands


@dataclass(frozen=True)
class MatchCast:
    """What ``R.match_cast`` gives: the parser binds it to a variable."""

    value: Any
    info: _info.StructInfo


def match_cast(value: Any, struct_info: Any) -> MatchCast:
    """``y = R.match_cast(x, R.Tensor((m, 4)))``: ``x`` with that type, checked when it runs; new sizes are bound."""
    return MatchCast(value, as_info(struct_info))


def dataflow() -> NoReturn:
    """``with R.dataflow():`` opens a block without side effects; ``R.output`` ends it."""
    hint = "write with R.dataflow(): in a function; outside of scripts BlockBuilder has dataflow()"
    raise UserError("R.dataflow() means something only inside @R.function, after with", hint=hint)


def output(*variables: Any) -> NoReturn:
    """The variables of a dataflow block that are visible after it."""
    hint = "it is the last line of a block, R.output(y); outside of scripts BlockBuilder has emit_output(y)"
    raise UserError("R.output() means something only inside a dataflow block of @R.function", hint=hint)


@dataclass(frozen=True)
class Range:
    """What ``R.range`` gives: the parser makes a loop of the for around it."""

    start: Any
    stop: Any
    options: Mapping[str, Any]


def range(*bounds: Any, max_steps: int | None = None, checkpoint_every: int | None = None) -> Range:
    """``for i in R.range(n)`` and ``for i in R.range(start, stop)``: ints, symbolic sizes, or int64 scalars.

    ``max_steps`` says how large a count may be that is known only when it runs; for the gradient, ``checkpoint_every``
    saves every k-th step and computes the others again.
    """
    if len(bounds) not in (1, 2):
        hint = "a loop steps by 1: multiply the variable inside of it"
        raise ScriptError(f"R.range takes (stop) or (start, stop), got {len(bounds)} arguments", hint=hint)
    for bound in bounds:
        if isinstance(bound, bool) or not isinstance(bound, (int, PrimExpr, _expr.Expr)):
            hint = "it is an int, a symbolic size, or an int64 scalar"
            raise ScriptError(f"R.range: {bound!r:.80} is no number of steps", hint=hint)
    options = {"max_steps": max_steps, "checkpoint_every": checkpoint_every}
    return Range(0 if len(bounds) == 1 else bounds[0], bounds[-1], options)


@dataclass(frozen=True)
class Rows:
    """What ``R.rows`` gives."""

    arrays: builtins.tuple[Any, ...]


def rows(*arrays: Any) -> Rows:
    """``for x, y in R.rows(xs, ys)``: the rows of tensors whose first sizes are equal, one of each a step."""
    return Rows(arrays)


def loop_attr(attrs: Mapping[str, Any]) -> NoReturn:
    """Options of a loop: ``R.loop_attr({"max_steps": 100})`` as the first line of its body."""
    hint = "it is the first line of a while or for in a function; R.while_loop takes max_steps=…"
    raise UserError("R.loop_attr() means something only inside a loop of @R.function", hint=hint)


def region(func: Any) -> NoReturn:
    """Decorator of a function inside a graph function: no value, but a part of the calls of ``R.branch`` and ``R.loop``
    that name it."""
    hint = "write it above a def in a function; outside of scripts R.branch and R.loop take Functions"
    raise UserError("@R.region means something only inside @R.function", hint=hint)


def func_attr(attrs: Mapping[str, Any]) -> NoReturn:
    """Attributes of the function."""
    hint = "it is a line of its own in a function; outside of scripts functions have with_attr(key, value)"
    raise UserError("R.func_attr() means something only inside @R.function", hint=hint)


class FunctionDecorator(Protocol):
    """``R.function(…)``, of options."""

    def __call__(self, func: _abc.Callable[..., Any]) -> _expr.Function: ...


@overload
def function(func: _abc.Callable[..., Any]) -> _expr.Function: ...
@overload
def function(
    func: None = None,
    *,
    private: bool = False,
    pure: bool = True,
    name: str | None = None,
    names: Mapping[str, str] | None = None,
) -> FunctionDecorator: ...
def function(
    func: Any = None,
    *,
    private: bool = False,
    pure: bool = True,
    name: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Any:
    """Decorator: the graph function that the Python function's source describes.

    Inside a class with ``@I.ir_module`` it becomes a function of the module: ``private`` ones are not called from
    outside, and ``name`` is the name in the module when it cannot be a Python name. ``names`` gives parameters names
    that cannot be Python names: ``names={"layer_weight": "layer.weight"}``. ``pure=False`` is how the reference wants
    it said that calls have effects; here they are seen in the body.
    """
    from pullback.script.parser.entry import decorate

    frame = sys._getframe(1)
    options = {"private": private, "name": name, "names": names}
    if func is None:
        return lambda f: decorate(function, f, frame, options)
    return decorate(function, func, frame, options)
