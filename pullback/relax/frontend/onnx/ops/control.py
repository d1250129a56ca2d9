"""Control flow: If, Loop and Scan.

What is decided by values that are known is decided when the model is imported: an If takes one of its branches, and a
Loop of which a shape changes from step to step is written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax import op
from pullback.relax.control import cond, fori_loop, scan, while_loop
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import Items, Unknown, array, is_given, known
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX

UNROLLED = 1 << 10  # steps of a loop that is written out


@ONNX.register("If")
def if_(condition: Any, *, node: Any) -> Any:
    then, otherwise = node.body("then_branch"), node.body("else_branch")
    if known(condition) is not None:
        return tuple(then() if bool(array(condition).reshape(-1)[0]) else otherwise())
    flag = op.reshape(condition, ()) if rank_of(condition) else condition

    def tensors(body: Any) -> tuple[Any, ...]:
        results = tuple(body())
        if any(isinstance(value, Items) for value in results):  # of which each branch may make another number
            raise Unknown(condition)
        return results

    found = cond(flag, lambda: tensors(then), lambda: tensors(otherwise))
    return tuple(found[k] for k in range(node.results))


# -- Loop


@ONNX.register("Loop")
def loop(trips: Any, condition: Any, *carried: Any, node: Any, **_: Any) -> Any:
    """Carries, and what each step gives stacked."""
    body = node.body("body")
    count, start = _count(trips), _start(condition)
    stacks = len(body.graph.output) - 1 - len(carried)
    if start is False or count == 0:
        if stacks:
            count = 0
        else:
            return carried
    has_items = any(isinstance(value, Items) for value in carried)
    if count is not None and start is not None and _goes_on(body) and not has_items:
        try:
            return _counted(body, count, carried, stacks)
        except (Unknown, UserError) as error:
            if count > UNROLLED:
                raise error
    try:
        if start is None or (count is None and is_given(trips)):
            raise Unknown(trips)
        return _written_out(body, count, carried, stacks)
    except Unknown:
        if stacks and start is None:
            raise Unknown(condition) from None
        if stacks and count is None and is_given(trips):
            raise Unknown(trips) from None
        if stacks:
            raise UserError(
                "how many steps there are depends on data, and so does the size of the results that are stacked"
            ) from None
    if has_items:
        raise UserError("how many steps there are depends on data, and so does the length of a sequence")
    return _while(body, count, trips, condition, carried)


def _count(trips: Any) -> int | None:
    """The greatest number of steps, where it is known."""
    if not is_given(trips):
        return None
    found = known(trips)
    return None if found is None or found.dtype == object else max(int(found.reshape(-1)[0]), 0)


def _start(condition: Any) -> bool | None:
    """Whether there is a first step, where it is known."""
    if not is_given(condition):
        return True
    found = known(condition)
    return None if found is None or found.dtype == object else bool(found.reshape(-1)[0])


def _goes_on(body: Any) -> bool:
    """Whether a body's condition is the one that it was given, or a constant that is true."""
    name = body.graph.output[0].name
    made = {output: n for n in body.graph.node for output in n.output}
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if len(body.names) > 1 and name == body.names[1]:
        return True
    if name in made and made[name].op_type == "Constant":
        values = [a.t for a in made[name].attribute if a.name == "value"]
        return bool(values) and bool(body.replay.attribute_array(values[0]).reshape(-1)[0])
    return any(t.name == name and bool(body.replay.attribute_array(t).reshape(-1)[0]) for t in body.graph.initializer)


def _flag(value: bool) -> Any:
    return const(np.asarray(value))


def _counted(body: Any, count: int, carried: Sequence[Any], stacks: int) -> Any:
    """A loop of a known number of steps."""

    def step(*arguments: Any) -> Any:
        number_of, values = arguments[-1], arguments[:-1]
        results = body(_like_input(body, 0, number_of), _like_input(body, 1, _flag(True)), *values)
        return tuple(results[1 : 1 + len(carried)]), tuple(results[1 + len(carried) :])

    if not stacks:
        found = fori_loop(count, lambda k, *values: step(*values, k)[0], tuple(carried))
        return tuple(found[k] for k in range(len(carried)))
    if count == 0:
        return _written_out(body, 0, carried, stacks)
    found = scan(step, tuple(carried), (const(np.arange(count)),))
    return (*(found[0][k] for k in range(len(carried))), *(found[1][k] for k in range(stacks)))


def _like_input(body: Any, place: int, value: Any) -> Any:
    """A scalar in the shape that an input of the body declares: some are written with one axis."""
    shape = body.graph.input[place].type.tensor_type.shape
    return op.reshape(value, (1,)) if len(shape.dim) == 1 else value


def _written_out(body: Any, count: int | None, carried: Sequence[Any], stacks: int) -> Any:
    """The steps one after another; Unknown where a condition depends on data."""
    values, k, goes_on = list(carried), 0, True
    rows: list[list[Any]] = [[] for _ in range(stacks)]
    while goes_on and (count is None or k < count):
        if k >= UNROLLED:
            raise UserError(f"a loop of more than {UNROLLED} steps whose shapes change is not written out")
        results = body(_like_input(body, 0, const(k)), _like_input(body, 1, _flag(True)), *values)
        values, k = results[1 : 1 + len(values)], k + 1
        for row, value in zip(rows, results[1 + len(values) :], strict=True):
            row.append(value)
        if count is None or k < count:
            goes_on = bool(array(results[0]).reshape(-1)[0])
    return (*values, *(_stacked(body, place, row, len(values)) for place, row in enumerate(rows)))


def _stacked(body: Any, place: int, rows: Sequence[Any], carries: int) -> Any:
    if rows:
        if any(shape_of(r) != shape_of(rows[0]) for r in rows):
            raise ShapeError("the results of a loop's steps differ in shape: they cannot be stacked")
        return op.stack(list(rows), 0)
    from pullback.relax.frontend.onnx.types import tensor_type

    dtype, sizes = tensor_type(body.graph.output[1 + carries + place].type, "a loop's result")
    if sizes is None or not all(isinstance(s, int) for s in sizes):
        raise UserError("a loop without steps gives results of no known shape")
    return op.zeros((0, *sizes), dtype)


def _while(body: Any, count: int | None, trips: Any, condition: Any, carried: Sequence[Any]) -> Any:
    """A loop whose number of steps depends on data."""
    most = None if not is_given(trips) else const(count) if count is not None else op.reshape(trips, ())
    first = _flag(True) if not is_given(condition) else op.reshape(condition, ())

    def asked(k: Any, flag: Any, *values: Any) -> Any:
        return flag if most is None else op.logical_and(flag, op.less(k, most))

    def step(k: Any, flag: Any, *values: Any) -> Any:
        results = body(_like_input(body, 0, k), _like_input(body, 1, flag), *values)
        return (op.add(k, const(1)), op.reshape(results[0], ()), *results[1:])

    found = while_loop(asked, step, (const(0), first, *carried), max_steps=count or None)
    return tuple(found[2 + k] for k in range(len(carried)))


# -- Scan


@ONNX.register("Scan-9")
def scan_(
    *values: Any, num_scan_inputs: int, scan_input_axes: Any = None, scan_input_directions: Any = None,
    scan_output_axes: Any = None, scan_output_directions: Any = None, node: Any,
) -> Any:  # fmt: skip
    body = node.body("body")
    states, arrays = values[: len(values) - num_scan_inputs], values[len(values) - num_scan_inputs :]
    stacks = len(body.graph.output) - len(states)
    axes = list(scan_input_axes or [0] * num_scan_inputs)
    backward = list(scan_input_directions or [0] * num_scan_inputs)
    rows = [
        _reversed(_moved(x, axis_of(a, rank_of(x)), 0), r)
        for x, a, r in zip(arrays, axes, backward, strict=True)
    ]  # fmt: skip

    def step(*arguments: Any) -> Any:
        results = body(*arguments)
        return tuple(results[: len(states)]), tuple(results[len(states) :])

    found = scan(step, tuple(states), tuple(rows))
    outputs = [found[1][k] for k in range(stacks)]
    turned = [_reversed(y, r) for y, r in zip(outputs, scan_output_directions or [0] * stacks, strict=True)]
    placed = [
        _moved(y, 0, axis_of(a, rank_of(y))) for y, a in zip(turned, scan_output_axes or [0] * stacks, strict=True)
    ]
    return (*(found[0][k] for k in range(len(states))), *placed)


def _reversed(x: Any, is_reversed: int) -> Any:
    return op.flip(x, 0) if is_reversed else x


def _moved(x: Any, source: int, place: int) -> Any:
    """x with an axis moved to another place."""
    if source == place:
        return x
    order = [a for a in range(rank_of(x)) if a != source]
    order.insert(place, source)
    return op.permute_dims(x, order)


@ONNX.register("Scan")
def scan_8(lengths: Any, *values: Any, num_scan_inputs: int, directions: Any = None, node: Any) -> Any:
    """Version 8, with a batch in front: each of its rows is scanned by itself."""
    if is_given(lengths):
        raise UserError("Scan of version 8 with sequence_lens is not converted")
    body = node.body("body")
    states = values[: len(values) - num_scan_inputs]
    (batch,) = {shape_of(v)[0] for v in values}
    if not isinstance(batch, int):
        raise UserError("Scan of version 8 needs a batch of a known size")
    backward = list(directions or [0] * num_scan_inputs)
    results: list[Any] = []

    def step(*arguments: Any) -> Any:
        found = body(*arguments)
        return tuple(found[: len(states)]), tuple(found[len(states) :])

    for n in range(batch):
        row = [op.take(v, const(n), 0) for v in values]
        given = [_reversed(x, r) for x, r in zip(row[len(states) :], backward, strict=True)]
        found = scan(step, tuple(row[: len(states)]), tuple(given))
        stacks = len(body.graph.output) - len(states)
        results.append([*(found[0][k] for k in range(len(states))), *(found[1][k] for k in range(stacks))])
    return tuple(op.stack(list(parts), 0) for parts in zip(*results, strict=True))
