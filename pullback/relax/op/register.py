"""What users add: ops of their own, gradient rules of their own.

    @register_op("own.swish", samples=[(4, 5)])
    def swish(x, *, beta=1.0):
        '''x / (1 + exp(-beta·x)).'''
        return te.compute(x.shape, lambda *i: x[i] / (tir.call("exp", x[i] * -beta) + 1.0))

``R.own.swish(x, beta=2.0)`` then is an op as any other: fused, scheduled, interpreted, and differentiated, by its
loops unless there is a rule. :func:`register_gradient` gives one to an op that exists, :func:`register_te_gradient` to
kernels that are called by ``R.call_tir_with_grad``.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import ArgumentError, NameNotFound, UserError, suggestion
from pullback.ir.op import PRECISIONS, Op, define
from pullback.relax.op.family import known_shape
from pullback.relax.op.primal_gradient import PrimalRule, is_primal
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.op.sample import Sample, sample
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.te.checked import checked
from pullback.te.interpreter import evaluate

_Function = Callable[..., Any]


def register_op(
    name: str,
    *,
    gradient: _Function | None = None,
    numpy: _Function | None = None,
    precision: str = "full",
    samples: Sequence[Any] = (),
) -> Callable[[_Function], Op]:
    """Make a function of tensor expressions an op.

    Its positional arguments are the tensors, its keyword-only ones the attributes with their defaults; it returns a
    tensor expression, or a tuple of several. Type and shape of the result are those of the expression, and its meaning
    in the interpreter too, unless ``numpy(*arrays, **attributes)`` is given. ``gradient(dy, y, *arguments,
    **attributes)`` returns an adjoint (or None) for each tensor, written in ops; without it the expression's loops are
    differentiated. ``precision``: what mixed precision does with it, "full", "same" or "low" (see ``ir/op.py``).
    ``samples``: shapes, or what ``relax.op.sample`` makes, on which the op can be tested.

    An index that lies outside its axis, where no ``tir.select`` leaves it out, is an ArgumentError when the op runs.

    Raises ArgumentError when the function takes ``*args`` or ``**kwargs``, or an op has that name already, or there is
    no such ``precision``.
    """
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ArgumentError(f"register_op: precision must be one of {known}, got {precision!r}")

    def register(function: _Function) -> Op:
        if f"relax.{name}" in Op.registry:
            raise ArgumentError(f"there is an op {name} already", hint="to change its gradient, use register_gradient")
        message = f"{name}: an index is outside its axis (tir.select leaves out what lies outside)"

        def safe(*tensors: te.Tensor, **attrs: Any) -> tuple[list[te.Tensor], list[te.Tensor]]:
            return checked(_listed(name, function(*tensors, **attrs)))

        def build(*tensors: te.Tensor, **attrs: Any) -> Any:
            results = safe(*tensors, **attrs)[0]
            return results[0] if len(results) == 1 else tuple(results)

        def check(*tensors: te.Tensor, **attrs: Any) -> te.Tensor | None:
            conditions = [all_of(c) for c in safe(*tensors, **attrs)[1]]
            if len(conditions) < 2:
                return conditions[0] if conditions else None
            return te.compute((), lambda: functools.reduce(operator.and_, (c[()] for c in conditions)), "check")

        def infer(*infos: TensorStructInfo, **attrs: Any) -> StructInfo:
            shapes = [known_shape(name, info) for info in infos]
            inputs = [te.placeholder(s, i.dtype, f"x{k}") for k, (s, i) in enumerate(zip(shapes, infos, strict=True))]
            results = [TensorStructInfo(t.shape, t.dtype) for t in _listed(name, function(*inputs, **attrs))]
            return results[0] if len(results) == 1 else TupleStructInfo(tuple(results))

        def meaning(*arrays: np.ndarray, **attrs: Any) -> Any:
            inputs = [te.placeholder(a.shape, a.dtype.name, f"x{k}") for k, a in enumerate(arrays)]
            outputs, conditions = safe(*inputs, **attrs)
            feeds = dict(zip(inputs, arrays, strict=True))
            if not all(c.all() for c in evaluate(conditions, feeds)):
                raise ArgumentError(message)
            values = evaluate(outputs, feeds)
            return values[0] if len(values) == 1 else tuple(values)

        return define(
            name,
            _signature(name, function),
            infer=infer,
            te=build,
            numpy=numpy or meaning,
            gradient=gradient,
            check=check,
            check_message=message,
            precision=precision,
            singular=True,  # it is not known that it has no poles
            family="own",
            doc=inspect.getdoc(function) or f"{name}, an op of the user's.",
            samples=[s if isinstance(s, Sample) else sample(s) for s in samples],
        )

    return register


def _listed(name: str, result: Any) -> list[te.Tensor]:
    tensors = list(result) if isinstance(result, (tuple, list)) else [result]
    if not tensors or not all(isinstance(t, te.Tensor) for t in tensors):
        raise UserError(f"{name} must return a tensor expression or a tuple of them, it returned {result!r}")
    return tensors


def _signature(name: str, function: _Function) -> str:
    """The op's signature, from the function's."""
    tensors, attrs = [], []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ArgumentError(f"{name}: the function of an op must name its arguments, {parameter} names none")
        if parameter.kind is not parameter.KEYWORD_ONLY:
            tensors.append(parameter.name)
        elif parameter.default is parameter.empty:
            attrs.append(parameter.name)
        else:
            attrs.append(f"{parameter.name}={parameter.default!r}")
    return f"{', '.join(tensors)} | {', '.join(attrs)}" if attrs else ", ".join(tensors)


def register_gradient(name: str, rule: _Function | None = None, level: int = 10) -> Any:
    """Give an op another gradient rule: ``rule(dy, y, *arguments, **attributes)`` returns an adjoint, or None, for each
    tensor argument, written in ops (``pullback.relax.op``) and linear in dy: ``JVP`` transposes it. Also a decorator.
    It holds for functions that are differentiated from then on.

    The reference's form is taken too: ``rule(orig_var, orig_call, output_grad, ctx)`` gets the variable, the call it is
    bound to, its adjoint and the builder, and returns a list of adjoints, ``R.grad.no_grad(x)`` for what has none. A
    rule is of this form if it has four parameters and the second one is named ``orig_call`` or ``call``, or annotated
    as ``relax.Call``; any other is of the first form.

    A later rule replaces an earlier one, unless that was registered with a higher ``level``.

    Raises NameNotFound when there is no such op.
    """
    op = Op.get(name)

    def register(function: _Function) -> _Function:
        if level >= _LEVELS.get(op.name, level):
            _LEVELS[op.name] = level
            object.__setattr__(op, "gradient", PrimalRule(op, function) if is_primal(function) else function)
            object.__setattr__(op, "singular", True)  # it is not known that it has no poles
        return function

    return register if rule is None else register(rule)


_LEVELS: dict[str, int] = {}  # of rules that were registered, by the op's name


_TE_GRADIENTS: dict[str, _Function] = {}


def register_te_gradient(te_grad_name: str, te_grad_func: _Function | None = None) -> Any:
    """Name a gradient that ``R.call_tir_with_grad`` can ask for: ``te_grad_func(output_grad, *arguments, **kwargs)``
    takes tensor expressions (for several results a list of their adjoints) and returns one for the adjoint of each
    argument, or the only one by itself. Also a decorator. A later one of that name replaces it."""

    def register(function: _Function) -> _Function:
        _TE_GRADIENTS[te_grad_name] = function
        return function

    return register if te_grad_func is None else register(te_grad_func)


def te_gradient(name: str) -> _Function:
    """The gradient that was registered under a name. Raises NameNotFound."""
    if name not in _TE_GRADIENTS:
        raise NameNotFound(
            f"call_tir_with_grad: there is no gradient {name!r}{suggestion(name, _TE_GRADIENTS)}",
            hint="register it with relax.training.utils.register_te_gradient",
        )
    return _TE_GRADIENTS[name]
