"""Loops: calls that take functions.

    R.while_loop(condition, body, (a, b))         while condition(a, b): a, b = body(a, b)
    R.fori_loop(n, body, (a, b))                  for i in range(n): a, b = body(i, a, b)
    R.scan(body, (a, b), (x, y))                  for k in range(len(x)): (a, b), (z[k],) = body(a, b, x[k], y[k])

The *carries* keep their types from step to step. ``condition`` and ``body`` are functions of the module (``cls.body``),
variables that functions are bound to, or, outside of scripts, Python functions of graph values. They may read the
variables around them.

Outside of scripts ``R.cond(condition, then, otherwise, operands)`` builds an ``If``.

    R.custom_gradient(function, adjoint, (x, y))  function(x, y), whose gradient is adjoint(x, y, dz)

``adjoint`` takes the operands, and an adjoint for each result that has floats; it gives one for each operand that has
floats. Both functions read nothing but their parameters.

Three ops more are what loops and ``If`` become (``InlineFunctions``). Their functions, the *regions*, are attributes,
and read nothing but their parameters, all of which are tensors:

    R.branch(c, (x, y), then=f, otherwise=g)                         f(x, y) or g(x, y): a tuple of tensors
    R.loop(count, carries, xs, invariants, body=f, condition=g, length=n, reverse=False)
    R.custom((x, y), function=f, adjoint=g)                          f(x, y); without an adjoint it is a call

``loop`` is all three loops. In step k, from 0 on (with ``reverse``, from the last one down to 0), it computes

    carries, ys[k] = f(k, *carries, *(x[k] for x in xs), *invariants)

for ``count`` steps (an int64 scalar; an empty tuple: ``length`` steps), or until ``g(k, *carries, *invariants)``, asked
before each step, is false. Its result is ``(carries, ys, steps)``. ``xs`` and ``ys`` have ``length`` rows, of which
``ys`` has zeros where there was no step. ``length`` None: nobody knows, so there are no xs and no ys. To need more than
``length`` steps is an error when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pullback.ir.errors import ArgumentError, CallError, ShapeError, UserError
from pullback.ir.module import GlobalVar
from pullback.ir.node import current_span
from pullback.ir.op import define
from pullback.relax.block_builder import current_builder
from pullback.relax.expr import Call, Expr, Function, If, PrimValue, Tuple, Var, as_relax, check_condition
from pullback.relax.matching import bind_sizes, match_info
from pullback.relax.struct_info import (
    Dim,
    FuncStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_tensor,
    dim,
    format_info,
    same_info,
    same_shape,
)
from pullback.tir.expr import FLOATS, PrimExpr

STEP = TensorStructInfo((), "int64")  # of a step's number


# -- types


def called(name: str, what: str, function: StructInfo, given: Sequence[StructInfo]) -> StructInfo:
    """The type of what a function gives for arguments of these types."""
    if not isinstance(function, FuncStructInfo):
        hint = "a function is cls.name with a declared return type, or one that is defined in the function"
        raise UserError(f"{name}: {what} must be a function, got {format_info(function)}", hint=hint)
    if len(function.params) != len(given):
        raise ArgumentError(
            f"{name}: {what} takes {len(function.params)} arguments, and is called with {len(given)}",
            hint=f"it is called with {', '.join(map(format_info, given)) or 'none'}",
        )
    sizes: dict[Any, Dim] = {}
    for k, (wanted, info) in enumerate(zip(function.params, given, strict=True)):
        if not match_info(wanted, info, sizes):
            raise ShapeError(
                f"{name}: argument {k} of {what} is declared {format_info(wanted)}, and gets {format_info(info)}",
                hint=f"it is called with {', '.join(map(format_info, given))}: declare these types",
            )
    return bind_sizes(function.ret, sizes)


def _fields(name: str, what: str, info: StructInfo) -> tuple[StructInfo, ...]:
    if not isinstance(info, TupleStructInfo):
        raise UserError(f"{name}: {what} must be a tuple, got {format_info(info)}", hint="of one value: (x,)")
    return info.fields


def _kept(name: str, before: Sequence[StructInfo], after: StructInfo) -> None:
    """Raise, listing all of them, unless the carries have the types that they had."""
    found = _fields(name, "what body gives", after)
    if len(found) != len(before):
        raise ShapeError(
            f"{name}: body gives {len(found)} carries and gets {len(before)}", hint="it gives a tuple of all of them"
        )
    changed = [
        f"carry {k} begins as {format_info(b)}, and body gives {format_info(a)}"
        for k, (b, a) in enumerate(zip(before, found, strict=True))
        if not same_info(b, a)
    ]
    if changed:
        hint = "a carry keeps its type from step to step: begin with it, or convert with R.astype"
        raise ShapeError(f"{name}: {'; '.join(changed)}", hint=hint)


def _infer_while(
    condition: StructInfo, body: StructInfo, carries: StructInfo, *, max_steps: Any, checkpoint_every: Any
) -> StructInfo:
    before = _fields("while_loop", "carries", carries)
    check_condition(called("while_loop", "condition", condition, before), "the condition of while_loop", current_span())
    _kept("while_loop", before, called("while_loop", "body", body, before))
    check_number("while_loop", "max_steps", max_steps)
    _check_segment("while_loop", checkpoint_every)
    return carries


def _infer_fori(
    count: StructInfo, body: StructInfo, carries: StructInfo, *, max_steps: Any, checkpoint_every: Any
) -> StructInfo:
    if not isinstance(count, PrimStructInfo) and not same_info(count, STEP):
        hint = 'it is an int, a symbolic size, or an int64 scalar: R.astype(n, "int64")'
        raise UserError(f"fori_loop: count must be a number of steps, got {format_info(count)}", hint=hint)
    before = _fields("fori_loop", "carries", carries)
    _kept("fori_loop", before, called("fori_loop", "body", body, (STEP, *before)))
    check_number("fori_loop", "max_steps", max_steps)
    _check_segment("fori_loop", checkpoint_every)
    return carries


def _infer_scan(
    body: StructInfo, carries: StructInfo, xs: StructInfo, *, length: Any, reverse: bool, checkpoint_every: Any
) -> StructInfo:
    before, arrays = _fields("scan", "carries", carries), _fields("scan", "xs", xs)
    rows = scan_length(arrays, length)
    result = _fields("scan", "what body gives", called("scan", "body", body, (*before, *map(row, arrays))))
    if len(result) != 2:
        raise ShapeError(f"scan: body gives {len(result)} values", hint="it gives (carries, ys): two tuples")
    _kept("scan", before, result[0])
    _check_segment("scan", checkpoint_every)
    return TupleStructInfo(
        (carries, TupleStructInfo(tuple(stacked(i, rows) for i in _fields("scan", "ys", result[1]))))
    )


def scan_length(xs: Sequence[StructInfo], length: Any) -> Dim:
    """How many rows the arrays have, or ``length`` where there are none."""
    rows = None if length is None else dim(length)
    for k, info in enumerate(xs):
        if not isinstance(info, TensorStructInfo) or not info.shape:
            raise ShapeError(f"scan: xs[{k}] has no rows: it is {format_info(info)}", hint="xs are tensors")
        rows = info.shape[0] if rows is None else rows
        if not same_shape((rows,), info.shape[:1]):
            found = ", ".join(format_info(i) for i in xs)
            raise ShapeError(f"scan: xs differ in length: {found}", hint="the first size of all xs is the same")
    if rows is None:
        raise CallError("scan: without xs nothing says how many steps there are", hint="give length=…, or xs")
    return rows


def row(info: StructInfo) -> StructInfo:
    """The type of one row of an array."""
    return TensorStructInfo(as_tensor(info).sizes[1:], as_tensor(info).dtype)


def stacked(info: StructInfo, rows: Dim) -> StructInfo:
    """The type of so many values, one after another."""
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise ShapeError(f"scan: {format_info(info)} cannot be stacked", hint="ys are tensors of known shape")
    return TensorStructInfo((rows, *info.shape), info.dtype)


def _infer_branch(condition: StructInfo, operands: StructInfo, *, then: Function, otherwise: Function) -> StructInfo:
    check_condition(condition, "the condition of branch", current_span())
    given = _fields("branch", "operands", operands)
    result = called("branch", "then", then.struct_info, given)
    other = called("branch", "otherwise", otherwise.struct_info, given)
    if not same_info(result, other):
        raise ShapeError(f"branch: then gives {format_info(result)}, otherwise {format_info(other)}")
    return result


def _infer_loop(
    count: StructInfo,
    carries: StructInfo,
    xs: StructInfo,
    invariants: StructInfo,
    *,
    body: Function,
    condition: Function | None,
    length: Any,
    reverse: bool,
    checkpoint: Any,
) -> StructInfo:
    before, constant = _fields("loop", "carries", carries), _fields("loop", "invariants", invariants)
    arrays = _fields("loop", "xs", xs)
    if condition is not None:
        asked = called("loop", "condition", condition.struct_info, (STEP, *before, *constant))
        check_condition(asked, "the condition of loop", current_span())
    given = (STEP, *before, *map(row, arrays), *constant)
    result = _fields("loop", "what body gives", called("loop", "body", body.struct_info, given))
    _kept("loop", before, result[0])
    ys = _fields("loop", "ys", result[1])
    if length is None and (ys or arrays):
        raise ShapeError("loop: xs and ys need a length")
    if length is not None and arrays:
        scan_length(arrays, length)
    stacks = TupleStructInfo(tuple(stacked(i, dim(length)) for i in ys))
    return TupleStructInfo((carries, stacks, STEP))


def _infer_custom_gradient(function: StructInfo, adjoint: StructInfo, operands: StructInfo) -> StructInfo:
    name = "custom_gradient"
    given = _fields(name, "operands", operands)
    _only_tensors(name, "operands", given)
    result = called(name, "function", function, given)
    results = result.fields if isinstance(result, TupleStructInfo) else (result,)
    _only_tensors(name, "results of function", results)
    found = called(name, "adjoint", adjoint, (*given, *with_floats(results)))
    adjoints = found.fields if isinstance(found, TupleStructInfo) else (found,)
    wanted = with_floats(given)
    if len(adjoints) != len(wanted) or not all(same_info(a, w) for a, w in zip(adjoints, wanted, strict=True)):
        raise ShapeError(
            f"{name}: adjoint must give {', '.join(map(format_info, wanted))}, and gives"
            f" {', '.join(map(format_info, adjoints))}",
            hint="it gives an adjoint, of the operand's type, for each operand that has floats",
        )
    return result


def _only_tensors(name: str, what: str, infos: Sequence[StructInfo]) -> None:
    for k, info in enumerate(infos):
        if not isinstance(info, TensorStructInfo):
            message = f"{name}: {what} must be tensors, number {k} is {format_info(info)}"
            raise UserError(message, hint="the items of a tuple are operands, or results, of their own")


def with_floats(infos: Sequence[StructInfo]) -> list[StructInfo]:
    """Those of the types that have floats, and so adjoints."""
    return [i for i in infos if isinstance(i, TensorStructInfo) and i.dtype in FLOATS]


def _infer_custom(operands: StructInfo, *, function: Function, adjoint: Function | None) -> StructInfo:
    given = _fields("custom", "operands", operands)
    result = called("custom", "function", function.struct_info, given)
    if adjoint is not None:
        seeds = with_floats(_fields("custom", "results", result))
        found = called("custom", "adjoint", adjoint.struct_info, (*given, *seeds))
        if not same_info(found, TupleStructInfo(tuple(with_floats(given)))):
            raise ShapeError(f"custom: adjoint gives {format_info(found)} for {format_info(operands)}")
    return result


def _custom_gradient(dy: Sequence[Expr], y: Expr, operands: Tuple, *, function: Function, adjoint: Function) -> Any:
    """The adjoint's call, which is written out before anything else is done with it."""
    seeds = [d for d in dy if d.dtype in FLOATS]
    call = Call(CUSTOM, (Tuple((*operands.fields, *seeds)),), {"function": adjoint, "adjoint": None})
    found = iter(call)
    return ([next(found) if x.dtype in FLOATS else None for x in operands.fields],)


def check_number(
    name: str, what: str, value: Any, hint: str = "leave it out where there is no such number", span: Any = None
) -> None:
    """Raise an ArgumentError for a limit that is no number of steps or calls; None is none."""
    if value is not None and (type(value) is not int or value < 1):
        message = f"{name}: {what} must be a whole number, at least 1, got {value!r}"
        raise ArgumentError(message, span=span, hint=hint)


def _check_segment(name: str, value: Any) -> None:
    if value is not True:
        check_number(name, "checkpoint_every", value)


WHILE = define(
    "while_loop", "condition, body, carries | max_steps=None, checkpoint_every=None", infer=_infer_while,
    family="control", doc="The carries after ``while condition(*carries): carries = body(*carries)``.",
)  # fmt: skip
FORI = define(
    "fori_loop", "count, body, carries | max_steps=None, checkpoint_every=None", infer=_infer_fori,
    family="control", doc="The carries after ``for i in range(count): carries = body(i, *carries)``.",
)  # fmt: skip
SCAN = define(
    "scan", "body, carries, xs | length=None, reverse=False, checkpoint_every=None", infer=_infer_scan,
    family="control", doc="The carries, and the ys stacked, after ``carries, y = body(*carries, *x)`` for each row.",
)  # fmt: skip
BRANCH = define(
    "branch", "condition, operands | then, otherwise", infer=_infer_branch,
    family="control", doc="What a closed ``If`` is: ``then(*operands)`` or ``otherwise(*operands)``.",
)  # fmt: skip
LOOP = define(
    "loop", "count, carries, xs, invariants | body, condition=None, length=None, reverse=False, checkpoint=None",
    infer=_infer_loop, family="control", doc="What closed loops are: see the text of the module.",
)  # fmt: skip
CUSTOM_GRADIENT = define(
    "custom_gradient", "function, adjoint, operands", infer=_infer_custom_gradient,
    family="control", doc="``function(*operands)``, whose gradient is ``adjoint``.",
)  # fmt: skip
CUSTOM = define(
    "custom", "operands | function, adjoint=None", infer=_infer_custom, gradient=_custom_gradient, zeros="makes",
    singular=True, family="control", doc="What a closed ``custom_gradient`` is.",
)  # fmt: skip


# -- calls


def while_loop(
    condition: Any,
    body: Any,
    carries: Sequence[Any],
    max_steps: int | None = None,
    checkpoint_every: int | bool | None = None,
) -> Call:
    """``while condition(*carries): carries = body(*carries)``; the carries, a tuple.

    ``condition`` gives a bool scalar, ``body`` a tuple of as many values as there are carries, of the same types.
    ``max_steps``: to need more is an error when it runs, and what a gradient saves of each step has its place in memory
    beforehand; without it, that memory grows while it runs. ``checkpoint_every``: for the gradient, the carries of
    every k-th step are saved and what lies between is computed again; True takes the square root of ``max_steps``
    for k.

    Raises ShapeError where a carry changes its type, UserError where the condition is no bool scalar.

    >>> def newton(a):
    ...     x, = R.while_loop(lambda x: R.abs(x * x - a) > 1e-6, lambda x: ((x + a / x) * 0.5,), (a,))
    ...     return x
    """
    values = values_of(carries)
    infos = [f.struct_info for f in values.fields]
    functions = (_function("condition", condition, infos), _function("body", body, infos))
    return Call(WHILE, (*functions, values), {"max_steps": max_steps, "checkpoint_every": checkpoint_every})


def fori_loop(
    count: Any,
    body: Any,
    carries: Sequence[Any],
    max_steps: int | None = None,
    checkpoint_every: int | bool | None = None,
) -> Call:
    """``for i in range(count): carries = body(i, *carries)``; the carries, a tuple.

    ``count``: an int, a symbolic size, or an int64 scalar that is known when it runs; of such a one, ``max_steps`` says
    how large it may be. ``i`` is an int64 scalar.

    Raises as :func:`while_loop` does.
    """
    if isinstance(count, bool) or (isinstance(count, int) and count < 0):
        raise ArgumentError(f"fori_loop: count must be a number of steps, got {count!r}", hint="it is 0 or more")
    number = PrimValue(count) if isinstance(count, (int, PrimExpr)) else as_relax(count)
    values = values_of(carries)
    infos = [STEP, *(f.struct_info for f in values.fields)]
    attrs = {"max_steps": max_steps, "checkpoint_every": checkpoint_every}
    return Call(FORI, (number, _function("body", body, infos), values), attrs)


def scan(
    body: Any,
    carries: Sequence[Any],
    xs: Sequence[Any],
    length: Any = None,
    reverse: bool = False,
    checkpoint_every: int | bool | None = None,
) -> Call:
    """``carries, y = body(*carries, *x)`` for each row x of ``xs``; ``(carries, ys)`` with the y of all steps stacked.

    ``body`` gives two tuples, carries and ys; without stacked outputs the second is ``()``. ``xs`` are tensors with the
    same first size; without any, ``length`` is the number of steps. ``reverse`` begins with the last row.

    Raises ShapeError where xs differ in length, or a carry changes its type.
    """
    values, arrays = values_of(carries), values_of(xs)
    infos = [f.struct_info for f in values.fields]
    rows = [f.struct_info for f in arrays.fields]
    scan_length(rows, length)
    function = _function("body", body, [*infos, *map(row, rows)])
    attrs = {"length": None if length is None else dim(length), "reverse": bool(reverse)}
    return Call(SCAN, (function, values, arrays), {**attrs, "checkpoint_every": checkpoint_every})


def cond(condition: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> If:
    """``then(*operands)`` where the bool scalar ``condition`` is true, else ``otherwise(*operands)``; only one of them
    is computed. Both are functions, and give values of one type.

    Raises UserError where the condition is no bool scalar, ShapeError where the branches differ in type.

    >>> y = R.cond(R.sum(x) > 0.0, lambda x: R.sqrt(x), lambda x: x * 0.5, (x,))
    """
    fields = values_of(operands).fields
    bodies = []
    for what, function in (("then", then), ("otherwise", otherwise)):
        run = function if not isinstance(function, (GlobalVar, Expr)) else partial(_call, function)
        _check_function(what, run)
        bodies.append(current_builder().traced(partial(run, *fields), ()).body)
    return If(as_relax(condition), *bodies)


def _call(function: Any, *arguments: Expr) -> Call:
    return Call(function, arguments)


def custom_gradient(function: Any, adjoint: Any, operands: Sequence[Any]) -> Call:
    """``function(*operands)``, which is differentiated by ``adjoint``.

    ``adjoint(*operands, *dys)`` takes an adjoint for each result of ``function`` that has floats, and gives one for
    each operand that has floats: a tuple of them, or the only one by itself. A gradient's gradient is that of
    ``adjoint``, and a tangent its transpose. Both functions read nothing but their parameters.

    Raises ShapeError where ``adjoint`` takes or gives other types, UserError where a function reads a variable around
    it.

    >>> y = R.custom_gradient(lambda x: R.round(x), lambda x, dy: dy, (x,))    # straight through
    """
    values = values_of(operands)
    infos = [f.struct_info for f in values.fields]
    function = _function("function", function, infos)
    result = called("custom_gradient", "function", function.struct_info, infos)
    seeds = with_floats(result.fields if isinstance(result, TupleStructInfo) else (result,))
    return Call(CUSTOM_GRADIENT, (function, _function("adjoint", adjoint, [*infos, *seeds]), values))


def custom(operands: Sequence[Any], function: Function, adjoint: Function | None = None) -> Call:
    """The closed form of :func:`custom_gradient`."""
    return Call(CUSTOM, (values_of(operands),), {"function": function, "adjoint": adjoint})


def branch(condition: Any, operands: Sequence[Any], then: Function, otherwise: Function) -> Call:
    """``then(*operands)`` where the bool scalar is true, else ``otherwise(*operands)``: the closed form of ``If``."""
    return Call(BRANCH, (as_relax(condition), values_of(operands)), {"then": then, "otherwise": otherwise})


def loop(
    count: Any,
    carries: Sequence[Any],
    xs: Sequence[Any],
    invariants: Sequence[Any],
    body: Function,
    condition: Function | None = None,
    length: Any = None,
    reverse: bool = False,
    checkpoint: int | bool | None = None,
) -> Call:
    """The closed form of loops: ``(carries, ys, steps)``. ``count`` None: ``length`` steps."""
    number = Tuple(()) if count is None else as_relax(count)
    attrs = {"body": body, "condition": condition, "length": None if length is None else dim(length)}
    attrs |= {"reverse": bool(reverse), "checkpoint": checkpoint}
    return Call(LOOP, (number, values_of(carries), values_of(xs), values_of(invariants)), attrs)


def given_to_region(op: Any, name: str, infos: Sequence[StructInfo]) -> list[StructInfo]:
    """The types of what a region of a closed call is called with, where the call's arguments have these types. The
    adjoint of ``custom`` gets seeds of the results after that."""
    operands = list(_fields(op.short, "operands", infos[-1]))
    if op is not LOOP:
        return operands
    carries, xs = (_fields("loop", "carries and xs", i) for i in infos[1:3])
    return [STEP, *carries, *(map(row, xs) if name == "body" else ()), *operands]


def values_of(values: Any) -> Tuple:
    """A tuple of graph values; a single one is refused, as it would be taken for the tuple."""
    if isinstance(values, Expr) and isinstance(values.struct_info, TupleStructInfo):
        return values if isinstance(values, Tuple) else Tuple(tuple(values))
    if isinstance(values, Expr) or not isinstance(values, (tuple, list)):
        raise ArgumentError(f"carries and xs are tuples of graph values, got {type(values).__name__}", hint="(x,)")
    return Tuple(tuple(values))


def _function(what: str, function: Any, infos: Sequence[StructInfo]) -> Any:
    """A function as a graph value; a Python function is called on variables of these types."""
    if isinstance(function, (GlobalVar, Expr)):
        return function
    _check_function(what, function)
    return traced(function, infos)


def _check_function(what: str, function: Any) -> None:
    if not callable(function):
        raise ArgumentError(f"{what} must be a function, got {function!r:.80}", hint="cls.name, or a def or a lambda")


def traced(function: Callable[..., Any], infos: Sequence[StructInfo]) -> Function:
    """The graph function that a Python function computes of variables of these types."""
    bound = len(function.args) if isinstance(function, partial) else 0
    code = getattr(function.func if isinstance(function, partial) else function, "__code__", None)
    names = list(code.co_varnames[bound : code.co_argcount]) if code is not None else []
    names += [f"arg_{k}" for k in range(len(names), len(infos))]
    builder = current_builder()
    params = [Var(builder.unique(name), info) for name, info in zip(names, infos, strict=False)]
    return builder.traced(function, params)
