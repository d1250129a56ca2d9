"""Calls of functions of tensor expressions: ``BlockBuilder.call_te`` and ``emit_te``.

    y = bb.emit_te(lambda a, b: te.compute(a.shape, lambda i: a[i] + b[i]), x, w)

The function is called once, on placeholders of the arguments' types. What it returns becomes a private kernel of the
builder's module, of plain loops, which ``R.call_tir`` calls. Equal kernels are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback import te
from pullback.ir.errors import ArgumentError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.block_builder import set_te_calls
from pullback.relax.expr import Call, Expr, PrimValue, ShapeExpr, Tuple
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, format_info
from pullback.te.naive import naive_kernel
from pullback.tir import For, Let, PrimFunc, Var, as_expr
from pullback.tir.visitor import distinct

_HINT = "it returns what te.compute gives, or a tuple of that"


def call_te(
    module: IRModule,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str | None = None,
    te_grad_name: str | None = None,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> Call:
    """The call of the kernel that computes ``function(*args, **kwargs)``; ``module`` gets the kernel.

    Tensors in the arguments, in lists, tuples and dicts too, become placeholders, shapes lists of sizes, and scalars of
    the host what they hold. ``name`` is the kernel's, by default the function's.
    """
    placeholders: list[tuple[Expr, te.Tensor]] = []
    values = [_tensors(a, placeholders) for a in args]
    named = {k: _tensors(v, placeholders) for k, v in kwargs.items()}
    own: str = getattr(function, "__name__", "kernel")
    wanted = name or own
    wanted = wanted if wanted.isidentifier() else "kernel"  # of a lambda
    result = function(*values, **named)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    if not outputs or not all(isinstance(t, te.Tensor) for t in outputs):
        raise ArgumentError(f"call_te: {wanted} must return tensor expressions, it returned {result!r:.80}", hint=_HINT)
    inputs = [tensor for _, tensor in placeholders]
    kernel = naive_kernel(wanted, inputs, outputs)
    sizes = _sizes_apart(kernel)
    attrs = {"private": True}
    kernel = PrimFunc(wanted, (*kernel.params, *sizes), kernel.body, attrs)
    infos = [TensorStructInfo(t.shape, t.dtype) for t in outputs]
    operands = Tuple(tuple(expr for expr, _ in placeholders))
    out = infos[0] if not isinstance(result, (tuple, list)) else infos
    callee = GlobalVar(_added(module, kernel))
    return call_tir(callee, operands, out, sizes or None, None, te_grad_name, te_grad_kwargs)


def _tensors(value: Any, found: list[tuple[Expr, te.Tensor]]) -> Any:
    """An argument as the function takes it; ``found`` gets the tensors in it."""
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(v, found) for v in value)
    if isinstance(value, Mapping):
        return {k: _tensors(v, found) for k, v in value.items()}
    if isinstance(value, PrimValue):
        return value.value
    if isinstance(value, ShapeExpr):
        return list(value.values)
    if not isinstance(value, Expr):
        return value
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        return [_tensors(value[i], found) for i in range(len(info.fields))]
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        message = f"call_te: an argument must be a tensor of known shape, got {format_info(info)}"
        raise ArgumentError(message, span=value.span, hint="R.match_cast(x, R.Tensor((n, 4))) gives it a shape")
    name = getattr(value, "name", None) or chr(ord("A") + len(found) % 26)
    tensor = te.placeholder(info.shape, info.dtype, _fresh(name, [t.name for _, t in found]))
    found.append((value, tensor))
    return tensor


def _fresh(name: str, taken: list[str]) -> str:
    """A name that no other parameter has."""
    candidates = (name, *(f"{name}_{k}" for k in range(1, len(taken) + 2)))
    return next(n for n in candidates if n not in taken)


def _sizes_apart(kernel: PrimFunc) -> tuple[Var, ...]:
    """The symbolic sizes that the kernel reads and no buffer of it has as one of its sizes."""
    known = {size for buffer in kernel.buffers for size in buffer.shape if isinstance(size, Var)}
    parts = list(distinct(kernel.body, *(as_expr(size) for buffer in kernel.buffers for size in buffer.shape)))
    bound = {part.var for part in parts if isinstance(part, (For, Let))}
    read = dict.fromkeys(part for part in parts if isinstance(part, Var))
    return tuple(v for v in read if v not in known | bound)


def _added(module: IRModule, kernel: PrimFunc) -> str:
    """The name of the kernel in the module: of one that it has already, or a fresh one."""
    for name, other in module.items():
        if isinstance(other, PrimFunc) and other.digest == kernel.digest:
            return name
    name = module.unique_name(kernel.name)
    module[name] = kernel.renamed(name)
    return name


set_te_calls(call_te)
