"""Tensor expressions as plain serial loops: one loop nest a stage, every stage in memory. Slow, and easy to read."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.te.graph import Lower, better, body_expr, combine, identity, stages
from pullback.te.tensor import Reduce, Tensor
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    IntImm,
    Let,
    PrimExpr,
    PrimFunc,
    Stmt,
    Var,
    as_expr,
    const,
    select,
    seq,
    store,
)
from pullback.tir.visitor import substitute


def naive_kernel(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc:
    """A kernel with parameters (inputs…, outputs…) that computes the outputs stage by stage."""
    params = [Buffer(_identifier(t.name), t.shape, t.dtype) for t in inputs]
    buffers = dict(zip(inputs, params, strict=True))
    results = [Buffer(f"out_{t.name}" if len(outputs) > 1 else "out", t.shape, t.dtype) for t in outputs]
    order, scratch = stages(outputs), []
    copies = []
    for tensor, result in zip(outputs, results, strict=True):
        if tensor in buffers:  # the same tensor twice, or an input
            copies.append((buffers[tensor], result))
        else:
            buffers[tensor] = result
    for stage in order:
        if stage not in buffers:
            buffers[stage] = Buffer(_identifier(stage.name), stage.shape, stage.dtype, "workspace")
            scratch.append(buffers[stage])
    lower = Lower({t: b.__getitem__ for t, b in buffers.items()})
    body = seq(*(_stage(s, buffers[s], lower) for s in order), *(_copy(a, b) for a, b in copies))
    for buffer in reversed(scratch):
        body = Allocate(buffer, body)
    return PrimFunc(name, (*params, *results), body)


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _nest(axes: Sequence[Var], shape: Sequence[int | PrimExpr], body: Stmt) -> Stmt:
    """Serial loops over the axes around a body; an axis of one element is 0 in it."""
    extents = [(axis, as_expr(extent)) for axis, extent in zip(axes, shape, strict=True)]
    single = {axis: as_expr(0) for axis, extent in extents if isinstance(extent, IntImm) and extent.value == 1}
    body = substitute(body, single) if single else body
    for axis, extent in reversed(extents):
        if axis not in single:
            body = For(axis, extent, body)
    return body


def _copy(source: Buffer, target: Buffer) -> Stmt:
    axes = [Var(f"i{k}") for k in range(len(source.shape))]
    return _nest(axes, source.shape, store(target, axes, source[tuple(axes)]))


def _stage(stage: Tensor, target: Buffer, lower: Lower) -> Stmt:
    value = lower.expr(body_expr(stage))
    if not isinstance(stage.body, Reduce):
        return _nest(stage.axes, stage.shape, store(target, stage.axes, value))
    kind, extents = stage.body.kind, [a.extent for a in stage.body.axes]
    variables = [a.var for a in stage.body.axes]
    if kind.startswith("arg"):
        return _nest(stage.axes, stage.shape, _argument_reduction(stage.body, stage.axes, target, value))
    start = store(target, stage.axes, identity(kind, stage.dtype))
    step = store(target, stage.axes, combine(kind, target[tuple(stage.axes)], value))
    return _nest(stage.axes, stage.shape, seq(start, _nest(variables, extents, step)))


def _argument_reduction(reduce: Reduce, axes: Sequence[Var], target: Buffer, value: PrimExpr) -> Stmt:
    """The index of the best value: the best so far is kept in a local buffer."""
    axis = reduce.axes[0]
    best = Buffer("best", (1,), value.dtype, "local")
    new, wins = Var("value", value.dtype), Var("wins", "bool")
    step = Let(
        new,
        value,
        Let(
            wins,
            better(reduce.kind, new, best[0], axis.var.equal(0)),
            seq(
                store(target, axes, select(wins, axis.var, target[tuple(axes)])),
                store(best, 0, select(wins, new, best[0])),
            ),
        ),
    )
    begin = seq(store(best, 0, const(0, value.dtype)), store(target, axes, as_expr(0)))
    return Allocate(best, seq(begin, _nest([axis.var], [axis.extent], step)))
