"""Functions of functions: derivatives of Python functions of graph values, and what they compute of a batch.

    >>> f = lambda w, x: R.sum(R.tanh(x @ w))
    >>> pullback.grad(f)(w, x)                                  # ∂f/∂w
    >>> pullback.vmap(pullback.grad(f), in_axes=(None, 0))(w, xs)    # of each example

The result of each is called on arrays and nested tuples of arrays. Their types say of what ``f`` is traced; the program
is differentiated, compiled and kept for calls on arrays of these types. They are passes (``Gradient``, ``JVP``,
``VMap``) one after another, so they nest as they like. Called on graph values, they are a part of the function that is
being traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, update_wrapper
from operator import add
from typing import Any

import numpy as np

from pullback.driver import compile
from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.words import explained
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import traced
from pullback.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, as_relax, tuple_get_item
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    flat_infos,
    format_info,
    same_info,
)
from pullback.relax.transform import JVP, Gradient, VMap
from pullback.relax.transform.closed_form import leaves_of
from pullback.relax.transform.gradient import is_differentiable
from pullback.relax.transform.inline_functions import inline_calls
from pullback.runtime.tensor import Tensor, tensor

__all__ = ["Transformed", "grad", "hvp", "jvp", "value_and_grad", "vjp", "vmap"]

Axes = int | None | Sequence[int | None]


class Transformed:
    """What ``grad`` and the like return: a function of arrays. ``module(infos)`` gives its program for arguments of
    these types, and its name there; ``target``: what it is compiled for."""

    __name__: str

    def __init__(
        self, function: Callable[..., Any], build: Callable[[Sequence[StructInfo]], tuple[IRModule, str]], target: Any
    ) -> None:
        self.module, self.target = build, target
        self._compiled: dict[tuple[str, ...], Any] = {}
        update_wrapper(self, function, ("__module__", "__name__", "__qualname__", "__doc__"), ())

    def __call__(self, *arguments: Any) -> Any:
        if _has_graph_values(arguments):
            return self.inlined([as_relax(a) for a in arguments])
        values = [_value(a) for a in arguments]
        infos = [_info(v) for v in values]
        key = tuple(map(format_info, infos))
        if key not in self._compiled:
            module, name = self.module(infos)
            self._compiled[key] = compile(module, self.target).function(name)
        return self._compiled[key](*values)

    def inlined(self, arguments: Sequence[Expr]) -> Expr:
        """What it computes of graph values, as an expression."""
        module, name = self.module([a.struct_info for a in arguments])
        function = inline_calls(module[name], module)
        values: dict[Expr, Expr] = dict(zip(function.params, arguments, strict=True))
        for binding in function.bindings:
            if is_call_tir(binding.value):
                raise ArgumentError(
                    f"{self.__name__} has a kernel, and cannot be a part of another function",
                    hint="call it on arrays, or give the op a gradient rule: relax.op.register_gradient",
                )
            values[binding.var] = _over(binding.value, values)
        return _over(function.body.body, values)


def _over(expr: Any, values: dict[Expr, Expr]) -> Any:
    """An expression with other expressions for its variables."""
    if isinstance(expr, Tuple):
        return Tuple(tuple(_over(f, values) for f in expr.fields))
    if isinstance(expr, TupleGetItem):
        return tuple_get_item(_over(expr.tuple_value, values), expr.index)
    if isinstance(expr, Call):
        arguments = tuple(_over(a, values) for a in expr.args)
        return Call(expr.op, arguments, expr.attrs, expr.sinfo_args, expr.info, span=expr.span)
    return values[expr] if isinstance(expr, Var) else expr


def _has_graph_values(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_graph_values, value))
    return isinstance(value, Expr)


def _value(argument: Any) -> Any:
    """An argument as the compiled function takes it: tuples of tensors, no lists."""
    if isinstance(argument, (tuple, list)) and not all(isinstance(a, (int, float)) for a in argument):
        return tuple(map(_value, argument))
    return argument if isinstance(argument, (np.ndarray, Tensor)) else tensor(argument)


def _info(value: Any) -> StructInfo:
    if isinstance(value, tuple):
        return TupleStructInfo(tuple(map(_info, value)))
    return TensorStructInfo(value.shape, str(value.dtype))


def _traced(function: Callable[..., Any], infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
    """The program of a function, and its name there."""
    if isinstance(function, Transformed):
        return function.module(infos)
    if not callable(function):
        raise ArgumentError(f"a function is needed, got {function!r:.80}", hint="a def or a lambda of graph values")
    module = IRModule()
    module["main"] = traced(function, infos)
    return module, "main"


def _calling(module: IRModule, name: str, pick: Callable[[Expr], Expr]) -> tuple[IRModule, str]:
    """The module with one function more: it gives what ``pick`` takes of the results of another."""
    inner = module[name]
    assert isinstance(inner, Function)
    params = [Var(p.name, p.struct_info) for p in inner.params]
    builder = BlockBuilder(module)
    fresh = module.unique_name("derivative")
    with builder.function(fresh, params):
        result = builder.emit(module.get_global_var(name)(*params))
        builder.emit_func_output(pick(result))
    return builder.get(), fresh


def _names(module: IRModule, name: str, argnums: int | Sequence[int]) -> list[str]:
    """The names of the parameters with these numbers."""
    params = module[name].params
    numbers = argnums if isinstance(argnums, (tuple, list)) else [argnums]
    for number in numbers:
        if not -len(params) <= whole("argnums", number) < len(params):
            hint = "argnums=(0, 1) differentiates with respect to the first two"
            raise ArgumentError(f"argnums {number}: the function takes {len(params)} arguments", hint=hint)
    return [params[number].name for number in numbers]


def _adjoint(
    function: Callable[..., Any], argnums: int | Sequence[int], infos: Sequence[StructInfo]
) -> tuple[IRModule, str]:
    module, name = _traced(function, infos)
    return Gradient(name, _names(module, name, argnums))(module), f"{name}_adjoint"


def _of(argnums: int | Sequence[int], results: Expr) -> Expr:
    """One derivative by itself, several as a tuple."""
    return results if isinstance(argnums, (tuple, list)) else TupleGetItem(results, 0)


@partial(explained, name="pullback.grad")
def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, target: Any = "llvm") -> Transformed:
    """The gradient of ``f``, a Python function of graph values that gives a scalar (or a tuple that begins with one).

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        argnums: the number of the argument with respect to which it is taken, or several: then the gradient is a tuple.
        target: as of :func:`pullback.compile`.

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Raises:
        DifferentiationError: when it is called and ``f`` has no gradient.

    Examples:
        >>> pullback.grad(lambda x: R.sum(x * x))(np.array([1.0, 2.0], "float32"))
        tensor([2., 4.], shape=(2,), dtype=float32)
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        return _calling(*_adjoint(f, argnums, infos), lambda r: _of(argnums, TupleGetItem(r, 1)))

    return Transformed(f, build, target)


@partial(explained, name="pullback.value_and_grad")
def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, target: Any = "llvm") -> Transformed:
    """``(what f gives, its gradient)``, as :func:`grad` takes it.

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        argnums: the number of the argument, or several: then the gradient is a tuple.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Examples:
        >>> value, gradient = pullback.value_and_grad(lambda x: R.sum(x * x))(np.array([1.0, 2.0], "float32"))
        >>> float(value)
        5.0
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        def pick(result: Expr) -> Expr:
            return Tuple((TupleGetItem(result, 0), _of(argnums, TupleGetItem(result, 1))))

        return _calling(*_adjoint(f, argnums, infos), pick)

    return Transformed(f, build, target)


@partial(explained, name="pullback.jvp")
def jvp(f: Callable[..., Any], argnums: int | Sequence[int] | None = None, target: Any = "llvm") -> Transformed:
    """The derivative of ``f`` along a direction, in forward mode: it takes the arguments of ``f``, then tangents, and
    returns ``(what f gives, its tangent)``.

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        argnums: the numbers of the arguments that have tangents; by default all that have floats.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Examples:
        >>> value, tangent = pullback.jvp(lambda x: x * x)(np.float32(3), np.float32(1))
        >>> float(value), float(tangent)
        (9.0, 6.0)
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        if argnums is None:  # those after which there are as many as have tangents
            left = (n for n in range(len(infos)) if n + len(_with_floats(infos[:n])) >= len(infos))
            count = next(left, len(infos))
        else:
            count = len(infos) - len(_sequence(argnums))
        module, name = _traced(f, infos[:count])
        names = None if argnums is None else _names(module, name, argnums)
        return JVP(name, names)(module), f"{name}_jvp"

    return Transformed(f, build, target)


@partial(explained, name="pullback.vjp")
def vjp(f: Callable[..., Any], argnums: int | Sequence[int] | None = None, target: Any = "llvm") -> Transformed:
    """The product of a vector with the Jacobian of ``f``, in reverse mode: it takes the arguments of ``f``, then the
    adjoint of what ``f`` gives (a tuple where that is one, in which integers have no adjoint), and returns
    ``(what f gives, the adjoints of the arguments)``.

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        argnums: the number of the argument whose adjoint is wanted, or several: then there is a tuple of them; by
            default all that have floats.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Raises:
        ArgumentError: when it is called and the adjoint has not the types of the results.

    Examples:
        >>> a, b = np.float32(3), np.float32(5)
        >>> value, (da, db) = pullback.vjp(lambda a, b: a * b)(a, b, np.float32(1))
        >>> float(da), float(db)
        (5.0, 3.0)
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        if not infos:
            raise ArgumentError("vjp: the adjoint of the result is missing", hint="it is the last argument")
        module, name = _traced(f, infos[:-1])
        wanted = tuple(k for k, i in enumerate(infos[:-1]) if is_differentiable(i)) if argnums is None else argnums
        module, name = _against(module, name, infos[-1])
        module = Gradient(name, _names(module, name, wanted))(module)

        def pick(result: Expr) -> Expr:
            return Tuple((TupleGetItem(TupleGetItem(result, 0), 1), _of(wanted, TupleGetItem(result, 1))))

        return _calling(module, f"{name}_adjoint", pick)

    return Transformed(f, build, target)


def _against(module: IRModule, name: str, given: StructInfo) -> tuple[IRModule, str]:
    """The module with a function of one parameter more, the adjoint of a result: it gives their inner product, and
    the result."""
    inner = module[name]
    assert isinstance(inner, Function)
    params = [Var(p.name, p.struct_info) for p in inner.params]
    seed = Var("adjoint", given)
    wanted = TupleStructInfo(tuple(_with_floats(flat_infos(inner.ret_struct_info))))
    if not wanted.fields or not same_info(TupleStructInfo(tuple(flat_infos(given))), wanted):
        raise ArgumentError(
            f"vjp: the adjoint is {format_info(given)}, and the function gives {format_info(inner.ret_struct_info)}",
            hint="the last argument is an adjoint for each result that has floats",
        )
    builder = BlockBuilder(module)
    fresh = module.unique_name("product")
    with builder.function(fresh, [*params, seed]):
        result = builder.emit(module.get_global_var(name)(*params))
        floats = [y for y in leaves_of(result) if is_differentiable(y.struct_info)]
        pairs = zip(floats, leaves_of(seed), strict=True)
        terms = [builder.emit(op.astype(op.sum(y * dy), floats[0].dtype)) for y, dy in pairs]
        builder.emit_func_output(Tuple((builder.emit(reduce(add, terms)), result)))
    return builder.get(), fresh


@partial(explained, name="pullback.hvp")
def hvp(f: Callable[..., Any], argnums: int | Sequence[int] = 0, target: Any = "llvm") -> Transformed:
    """The product of the Hessian of ``f``, which gives a scalar, with a vector: it takes the arguments of ``f``, then a
    vector for each of ``argnums``. No Hessian is computed: it is the tangent of the gradient.

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        argnums: the number of the argument, or several: then there is a vector for each.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Examples:
        >>> one = np.ones(2, "float32")
        >>> pullback.hvp(lambda x: R.sum(x * x * x))(np.array([1.0, 2.0], "float32"), one)
        tensor([ 6., 12.], shape=(2,), dtype=float32)
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        count = len(_sequence(argnums))
        module, name = _calling(*_adjoint(f, argnums, infos[:-count]), lambda r: _of(argnums, TupleGetItem(r, 1)))
        module = JVP(name, _names(module, name, argnums))(module)
        return _calling(module, f"{name}_jvp", lambda r: TupleGetItem(r, 1))

    return Transformed(f, build, target)


@partial(explained, name="pullback.vmap")
def vmap(f: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, target: Any = "llvm") -> Transformed:
    """``f`` of each element of a batch.

    Args:
        f: a Python function of graph values: it computes with ops, operators and methods of tensors.
        in_axes: which axis of each argument the batch is along, one number for all, or one or None for each: None is
            the same for all elements.
        out_axes: the same of the results, which all have that axis.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).

    Returns:
        a function of arrays, which is compiled for the types that it is called with.

    Raises:
        ArgumentError: when it is called and arguments differ in how many elements they have.

    Examples:
        >>> distance = pullback.vmap(lambda a, b: R.sum(R.abs(a - b)), in_axes=(0, None))
        >>> distance(x, x[0]).shape
        (64,)
    """

    def build(infos: Sequence[StructInfo]) -> tuple[IRModule, str]:
        axes: list[int | None] = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * len(infos)
        if len(axes) != len(infos):
            raise ArgumentError(f"vmap: in_axes has {len(axes)} entries for {len(infos)} arguments")
        sizes: set[Dim] = set()
        inner = [info if axis is None else _element(info, axis, sizes) for info, axis in zip(infos, axes, strict=True)]
        if len(sizes) > 1:
            raise ArgumentError(f"vmap: arguments differ in the size of the batch: {sorted(sizes)}", hint="in_axes")
        module, name = _traced(f, inner)
        size: Any = next(iter(sizes), None)  # VMap refuses a symbolic one
        return VMap(name, axes, out_axes, size)(module), f"{name}_vmap"

    return Transformed(f, build, target)


def _element(info: StructInfo, axis: int, sizes: set[Dim]) -> StructInfo:
    """The type of one element of a batch along an axis, whose size is noted."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(_element(f, axis, sizes) for f in info.fields))
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise ArgumentError(f"vmap: {format_info(info)} has no axes", hint="in_axes=None: all elements have it")
    shape = list(info.shape)
    if not -len(shape) <= whole("in_axes", axis) < len(shape):
        raise ArgumentError(
            f"vmap: {format_info(info)} has no axis {axis}", hint="in_axes says which axis is the batch"
        )
    sizes.add(shape.pop(axis))
    return TensorStructInfo(shape, info.dtype)


def _sequence(argnums: int | Sequence[int]) -> Sequence[int]:
    return argnums if isinstance(argnums, Sequence) else [argnums]


def _with_floats(infos: Sequence[StructInfo]) -> list[StructInfo]:
    return [i for i in infos if is_differentiable(i)]
