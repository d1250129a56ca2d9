"""``call_tir``: calling a kernel of the loop IR from a graph function, destination passing hidden.

    y = R.call_tir(cls.kernel, (x, w), out_sinfo=R.Tensor((m, n), "float32"))

runs ``kernel(x, w, y)`` on a fresh ``y``. ``LegalizeOps`` records in the attribute ``origin`` which op and attributes
the kernel came from, so that nothing is lost. ``call_tir_with_grad`` names the gradient that the kernel has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.arguments import mapping
from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar
from pullback.ir.op import define
from pullback.relax.expr import Call, Expr, ShapeExpr, Tuple, as_relax
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo


def _infer(*args: Any, **attrs: Any) -> StructInfo:
    raise UserError("R.call_tir needs out_sinfo")


call_tir_op = define(
    "call_tir", "func, args, tir_vars? | origin=None", infer=_infer, zeros="makes", family="call_tir", doc=__doc__
)


def _checked_origin(origin: Any) -> dict[str, Any]:
    """The op that a kernel was made of, and its attributes: LegalizeOps writes them, and people may change texts."""
    found = dict(mapping("origin", origin))
    if set(found) != {"op", "attrs"} or not isinstance(found["op"], str) or not isinstance(found["attrs"], Mapping):
        hint = "LegalizeOps writes it, and RaiseOps reads it: leave it as it is, or out"
        raise UserError('origin must be {"op": the name of an op, "attrs": its attributes}', hint=hint)
    return found


def call_tir(
    func: GlobalVar,
    args: Expr | Sequence[Any],
    out_sinfo: StructInfo | Sequence[StructInfo] | None,
    tir_vars: ShapeExpr | Sequence[Any] | None = None,
    origin: Mapping[str, Any] | None = None,
    te_grad_name: str | None = None,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> Call:
    """Call the PrimFunc ``func`` on tensors ``args``; it writes results of type ``out_sinfo`` (one, or several).

    It is differentiated by its loops, or, with ``te_grad_name``, by the function that was registered under that name
    (``register_te_gradient``), which is also given ``te_grad_kwargs``.
    """
    if not isinstance(func, GlobalVar):
        raise UserError(f"R.call_tir calls a function of the module, written cls.name, not {func!r}")
    values = args if isinstance(args, Tuple) else as_relax(list(args) if not isinstance(args, Expr) else [args])
    given: Any = out_sinfo.fields if isinstance(out_sinfo, TupleStructInfo) else out_sinfo
    infos = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not all(isinstance(i, TensorStructInfo) for i in infos):
        hint = 'write R.call_tir(cls.kernel, (x, w), R.Tensor((64, 10), "float32"))'
        raise UserError("out_sinfo of R.call_tir must be R.Tensor(…) or a sequence of them", hint=hint)
    operands: tuple[Any, ...] = (func, values)
    if tir_vars is not None:
        operands += (tir_vars if isinstance(tir_vars, ShapeExpr) else ShapeExpr(tuple(tir_vars)),)
    attrs: dict[str, Any] = {"origin": _checked_origin(origin)} if origin else {}
    if te_grad_name is not None:
        attrs |= {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
    return Call(call_tir_op, operands, attrs, infos)


def call_tir_with_grad(
    gvar: GlobalVar,
    args: Expr | Sequence[Any],
    out_sinfo: StructInfo | Sequence[StructInfo],
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: ShapeExpr | Sequence[Any] | None = None,
) -> Call:
    """:func:`call_tir` of a kernel whose gradient was registered under ``te_grad_name``."""
    return call_tir(gvar, args, out_sinfo, tir_vars, None, te_grad_name, te_grad_kwargs)
