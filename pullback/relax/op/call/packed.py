"""Calls of functions by registered name: ``R.call_packed`` and ``R.call_pure_packed``.

    @pullback.register_func("my.scale")
    def scale(x):
        return 2 * x.numpy()

    y = R.call_pure_packed("my.scale", x, sinfo_args=R.Tensor((3,), "float32"))

The function is found by its name when the call runs, in the interpreter and in native code. Pure calls may be merged
and left out; those of ``call_packed`` stay, in their order. ``register_packed_gradient`` gives a function a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import DifferentiationError, ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Call, as_relax
from pullback.relax.op.primal_gradient import PrimalRule, Written, is_primal
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, format_info

_HINT = 'write R.call_pure_packed("my.function", x, sinfo_args=R.Tensor((3,), "float32"))'
_GRADIENTS: dict[str, Callable[..., Any]] = {}


def _infer(*args: Any, **attrs: Any) -> StructInfo:
    raise UserError("the call of a registered function needs sinfo_args", hint=_HINT)


def _gradient(dy: Any, y: Any, *args: Any, func: str) -> Sequence[Any]:
    rule = _GRADIENTS.get(func)
    if rule is None:
        raise DifferentiationError(
            f"the function {func!r} has no gradient",
            hint=f"register one: relax.op.register_packed_gradient({func!r}, rule), or stop it by R.stop_gradient",
        )
    if isinstance(rule, PrimalRule):
        outs = [d.struct_info for d in dy] if isinstance(dy, list) else [dy.struct_info]
        return rule.adjoints(Written(), dy, y, Call(Op.get("call_pure_packed"), args, {"func": func}, tuple(outs)))
    return rule(dy, y, *args)


for _name, _doc in {
    "call_packed": "What a registered function gives; the call has effects, and stays where it is.",
    "call_pure_packed": "What a registered function gives, which depends on its arguments alone.",
}.items():
    define(_name, "args* | func", infer=_infer, gradient=_gradient, zeros="makes", family="packed", doc=_doc)


def _call(op: str, func: Any, args: Sequence[Any], sinfo_args: Any) -> Call:
    if not isinstance(func, str) or not func:
        raise UserError(f"{op} takes the name of a registered function, not {func!r:.80}", hint=_HINT)
    infos = list(sinfo_args) if isinstance(sinfo_args, (list, tuple)) else [sinfo_args]
    infos = list(infos[0].fields) if len(infos) == 1 and isinstance(infos[0], TupleStructInfo) else infos
    if not all(isinstance(i, TensorStructInfo) and i.shape is not None for i in infos):
        given = ", ".join(format_info(i) if isinstance(i, StructInfo) else repr(i) for i in infos)
        raise ShapeError(f"{op}: sinfo_args must be tensors of known shape, got {given}", hint=_HINT)
    values = tuple(as_relax(a) for a in args)
    for value in values:
        info = value.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            message = f"{op}: an argument of {func!r} must be a tensor of known shape, got {format_info(info)}"
            raise ShapeError(message, span=value.span, hint="numbers become tensors by R.const(value)")
    return Call(Op.get(op), values, {"func": func}, tuple(infos))


def call_packed(func: str, *args: Any, sinfo_args: Any = None) -> Call:
    """Call the function that is registered under the name ``func`` on tensors; ``sinfo_args`` is the type of what it
    gives, or a list of types. The call stays even where nobody reads what it gives."""
    return _call("call_packed", func, args, sinfo_args)


def call_pure_packed(func: str, *args: Any, sinfo_args: Any = None) -> Call:
    """:func:`call_packed` of a function that only computes: where nobody reads the result, it is not called, and of two
    equal calls one is left."""
    return _call("call_pure_packed", func, args, sinfo_args)


def register_packed_gradient(name: str, rule: Callable[..., Any] | None = None) -> Any:
    """Give a registered function a gradient: ``rule(dy, y, *arguments)`` returns an adjoint, or None, for each
    argument, written in ops; for several results dy is a list. The reference's form ``rule(orig_var, orig_call,
    output_grad, ctx)`` is taken too, told apart as by ``register_gradient``. Also a decorator; a later rule replaces an
    earlier one.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        known = PrimalRule(Op.get("call_pure_packed"), function) if is_primal(function) else function
        _GRADIENTS[name] = known
        return function

    return register if rule is None else register(rule)
