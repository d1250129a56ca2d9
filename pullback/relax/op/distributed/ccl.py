"""Collectives: what the ranks of a training compute together (``runtime/collectives.py``), ``R.ccl`` in scripts.

    total = R.ccl.allreduce(x)                          Σ over the ranks of their x, on every rank
    part = R.ccl.reduce_scatter(x, num_workers=4)       the rank's quarter of the rows of that
    whole = R.ccl.allgather(part, num_workers=4)        the rows of all ranks, in their order

Every rank runs the same program. What a loss is differentiated by is then one program over all ranks, whose loss is the
sum of the ranks' own. So the adjoint of a sum over ranks is the sum of the adjoints, that of joined rows the rank's own
rows of the sum, and so on: all of it collectives again.

``reduce``, ``reduce_pieces`` and ``gather_pieces`` take several tensors at once, a *bucket*, which are sent together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import DifferentiationError, ShapeError, UserError
from pullback.ir.op import Op, alias, define
from pullback.relax.expr import Call, const
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_member,
    known_shape,
    normalize_axis,
    specialize,
)
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo, as_int, as_tensor, fields_of
from pullback.runtime.collectives import REDUCTIONS, piece_length
from pullback.runtime.ranks import current
from pullback.tir.expr import as_expr


@dataclass(frozen=True)
class Meaning:
    """A call as a collective: its kind, and for how many ranks it is."""

    kind: str
    reduction: str = "sum"
    root: int = 0
    shards: int = 1
    ranks: int = 0


def meaning_of(call: Call) -> Meaning:
    """The collective that a call of this family is."""
    assert isinstance(call.op, Op)
    name, attrs = call.op.short.removeprefix("ccl."), call.attrs
    kind = {
        "allreduce": "reduce", "reduce_scatter": "reduce_pieces", "allgather": "gather_pieces",
    }.get(name, name)  # fmt: skip
    return Meaning(
        kind, attrs.get("op_type", "sum"), attrs.get("root", 0), attrs.get("shards", 1), attrs.get("num_workers", 0)
    )


def elements_of(call: Call) -> tuple[int, ...]:
    """The elements of each whole array of a call: what it reduces, or gives whole."""
    kind = meaning_of(call).kind
    infos = fields_of(call.struct_info)
    if kind in ("reduce_pieces", "piece"):
        shards = call.attrs.get("shards", 1)
        infos = tuple(a.struct_info for a in call.args[::shards])
    return tuple(math.prod(map(as_int, as_tensor(i).sizes)) for i in infos)


def _run(kind: str, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]], **options: Any) -> Any:
    found = current().collective(kind, [np.asarray(a) for a in arrays], shapes, **options)
    results = [a.reshape(s) for a, s in zip(found, shapes, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _expect_workers(name: str, value: Any) -> None:
    expect_int(f"ccl.{name}", "num_workers", value)
    if value < 1:
        raise UserError(f"ccl.{name}: num_workers must be at least 1, got {value}", hint="it is the number of ranks")


def _expect_reduction(name: str, op_type: Any) -> None:
    expect_member(f"ccl.{name}", "op_type", op_type, REDUCTIONS)


def _rows(name: str, info: TensorStructInfo, num_workers: int) -> tuple[Dim, ...]:
    """The shape with as many rows as one of ``num_workers`` ranks has."""
    _expect_workers(name, num_workers)
    shape = known_shape(f"ccl.{name}", info)
    if not shape:
        raise ShapeError(f"ccl.{name}: a scalar has no rows", hint=f"ccl.{name} divides the first axis among the ranks")
    if isinstance(shape[0], int):
        if shape[0] % num_workers:
            raise ShapeError(
                f"ccl.{name}: {shape[0]} rows cannot be divided evenly among {num_workers} ranks",
                hint="give as many rows as a multiple of the number of ranks, or use ccl.piece",
            )
        return (shape[0] // num_workers, *shape[1:])
    return (as_expr(shape[0]) // num_workers, *shape[1:])


def _only_sum(name: str, op_type: str) -> None:
    if op_type != "sum":
        hint = "only sums and averages over ranks are differentiated; R.grad.no_grad keeps others out of the gradient"
        raise DifferentiationError(f"ccl.{name} with op_type={op_type!r} has no gradient", hint=hint)


# -- one tensor


class Allreduce(Op):  # as users call it: an average is an op of its own
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, attrs = self.signature.bind(self.short, args, kwargs)
        if attrs["op_type"] == "avg":
            return ops.ccl.avg(*tensors)
        return super().__call__(*tensors, **attrs)


def _allreduce_infer(x: TensorStructInfo, *, op_type: str, in_group: bool) -> TensorStructInfo:
    expect_member("ccl.allreduce", "op_type", op_type, (*REDUCTIONS, "avg"))
    known_shape("ccl.allreduce", x)
    return TensorStructInfo(x.shape, x.dtype)


def _allreduce_gradient(dy: Any, y: Any, x: Any, *, op_type: str, in_group: bool) -> tuple[Any]:
    _only_sum("allreduce", op_type)
    return (ops.ccl.allreduce(dy),)


_common: dict[str, Any] = {"family": "ccl", "zeros": "mixes", "precision": "full"}

_allreduce = define(
    "ccl.allreduce",
    "x | op_type='sum', in_group=True",
    infer=_allreduce_infer,
    numpy=lambda x, *, op_type, in_group: _run("reduce", [x], [x.shape], reduction=op_type),
    gradient=_allreduce_gradient,
    doc='The sum over all ranks of their x, on every rank; op_type: "sum", "prod", "min", "max" or "avg". The order\n'
    "of additions depends on the number of ranks alone. in_group is for TVM's sake: all ranks are one group.",
    **_common,
)
specialize(_allreduce, Allreduce)


def _average_infer(x: TensorStructInfo) -> TensorStructInfo:
    known_shape("ccl.avg", x)
    expect_dtype("ccl.avg", x, "float")
    return TensorStructInfo(x.shape, x.dtype)


composite(
    "ccl.avg",
    "x",
    infer=_average_infer,
    decompose=lambda x, *, training: ops.divide(ops.ccl.allreduce(x), ops.ccl.allreduce(const(1.0, x.dtype))),
    numpy=lambda x: (_run("reduce", [x], [x.shape]) / x.dtype.type(current().size)).astype(x.dtype),
    gradient=lambda dy, y, x: (ops.ccl.avg(dy),),
    doc="The mean over all ranks of their x.",
    te=None,
    **_common,
)


def _allgather_infer(x: TensorStructInfo, *, num_workers: int, in_group: bool) -> TensorStructInfo:
    _expect_workers("allgather", num_workers)
    shape = known_shape("ccl.allgather", x)
    if not shape:
        raise ShapeError("ccl.allgather: a scalar has no rows", hint="R.reshape(x, (1,)) makes it one row")
    rows = shape[0] * num_workers if isinstance(shape[0], int) else as_expr(shape[0]) * num_workers
    return TensorStructInfo((rows, *shape[1:]), x.dtype)


define(
    "ccl.allgather",
    "x | num_workers, in_group=True",
    infer=_allgather_infer,
    numpy=lambda x, *, num_workers, in_group: _run(
        "gather_pieces", [x], [(x.shape[0] * num_workers, *x.shape[1:])], ranks=num_workers
    ),
    gradient=lambda dy, y, x, *, num_workers, in_group: (ops.ccl.reduce_scatter(dy, num_workers),),
    doc="The rows of all num_workers ranks, one rank's after another's.",
    **_common,
)
alias("ccl.all_gather", "ccl.allgather")


def _reduce_scatter_infer(x: TensorStructInfo, *, num_workers: int, op_type: str) -> TensorStructInfo:
    _expect_reduction("reduce_scatter", op_type)
    return TensorStructInfo(_rows("reduce_scatter", x, num_workers), x.dtype)


def _reduce_scatter_gradient(dy: Any, y: Any, x: Any, *, num_workers: int, op_type: str) -> tuple[Any]:
    _only_sum("reduce_scatter", op_type)
    return (ops.ccl.allgather(dy, num_workers),)


define(
    "ccl.reduce_scatter",
    "x | num_workers, op_type='sum'",
    infer=_reduce_scatter_infer,
    numpy=lambda x, *, num_workers, op_type: _run(
        "reduce_pieces", [x], [(x.shape[0] // num_workers, *x.shape[1:])], ranks=num_workers, reduction=op_type
    ),
    gradient=_reduce_scatter_gradient,
    doc="The rank's rows of the sum over all num_workers ranks of their x: part r of rank r, cut along the first axis.",
    **_common,
)


def _broadcast_infer(x: TensorStructInfo, *, root: int) -> TensorStructInfo:
    expect_int("ccl.broadcast", "root", root)
    if root < 0:
        raise UserError(f"ccl.broadcast: root must be a rank, got {root}", hint="ranks are numbered from 0")
    known_shape("ccl.broadcast", x)
    return TensorStructInfo(x.shape, x.dtype)


def _broadcast_gradient(dy: Any, y: Any, x: Any, *, root: int) -> tuple[Any]:
    is_root = ops.equal(ops.ccl.rank(), const(root, "int64"))
    return (ops.where(is_root, ops.ccl.allreduce(dy), const(0, x.dtype)),)


define(
    "ccl.broadcast",
    "x | root=0",
    infer=_broadcast_infer,
    numpy=lambda x, *, root: _run("broadcast", [x], [x.shape], root=root),
    gradient=_broadcast_gradient,
    doc="What x is on the rank root, on every rank.",
    **_common,
)
alias("ccl.broadcast_from_worker0", "ccl.broadcast")


def _all_to_all_infer(x: TensorStructInfo, *, num_workers: int) -> TensorStructInfo:
    _rows("all_to_all", x, num_workers)
    return TensorStructInfo(x.shape, x.dtype)


define(
    "ccl.all_to_all",
    "x | num_workers",
    infer=_all_to_all_infer,
    numpy=lambda x, *, num_workers: _run("all_to_all", [x], [x.shape], ranks=num_workers),
    gradient=lambda dy, y, x, *, num_workers: (ops.ccl.all_to_all(dy, num_workers),),
    doc="x is cut along its first axis into a part for each rank; rank r has the parts r of all ranks, in their order.",
    **_common,
)


def _scatter_infer(x: TensorStructInfo, *, num_workers: int, axis: int) -> TensorStructInfo:
    name = "scatter_from_worker0"
    shape = list(known_shape(f"ccl.{name}", x))
    at = normalize_axis(f"ccl.{name}", axis, len(shape))
    (shape[at],) = _rows(name, TensorStructInfo((shape[at],), x.dtype), num_workers)
    return TensorStructInfo(shape, x.dtype)


def _scatter_decomposed(x: Any, *, training: bool, num_workers: int, axis: int) -> Any:
    """What rank 0 has, of which each rank takes its part."""
    at = normalize_axis("ccl.scatter_from_worker0", axis, len(x.shape))
    order = [at, *(a for a in range(len(x.shape)) if a != at)]
    first = ops.permute_dims(x, order) if at else x
    whole = ops.ccl.broadcast(first)
    part = ops.reshape(ops.ccl.piece(whole, num_workers), _rows("scatter_from_worker0", whole.struct_info, num_workers))
    return ops.permute_dims(part, [order.index(a) for a in range(len(order))]) if at else part


def _scatter_numpy(x: np.ndarray, *, num_workers: int, axis: int) -> np.ndarray:
    whole = _run("broadcast", [x], [x.shape], ranks=num_workers)
    return np.split(whole, num_workers, axis)[current().rank]


composite(
    "ccl.scatter_from_worker0",
    "x | num_workers, axis=0",
    infer=_scatter_infer,
    numpy=_scatter_numpy,
    decompose=_scatter_decomposed,
    te=None,
    doc="The rank's part of what x is on rank 0, cut along the axis into num_workers parts.",
    **_common,
)

# -- pieces


def _piece_infer(x: TensorStructInfo, *, num_workers: int) -> TensorStructInfo:
    _expect_workers("piece", num_workers)
    return TensorStructInfo((_piece_of(x, num_workers),), x.dtype)


def _piece_of(x: TensorStructInfo, num_workers: int) -> Dim:
    shape = known_shape("ccl.piece", x)
    if x.is_static:
        return piece_length(math.prod(map(as_int, shape)), num_workers)
    count: Any = as_expr(1)
    for size in shape:
        count = count * as_expr(size)
    return (count + (num_workers - 1)) // num_workers


def _piece_gradient(dy: Any, y: Any, x: Any, *, num_workers: int) -> tuple[Any]:
    """The rank's own elements; the others are zeros."""
    shape = x.struct_info.shape
    length, count = dy.struct_info.shape[0], math.prod(shape)
    first = ops.multiply(ops.ccl.rank(), const(length, "int64"))
    place = ops.subtract(ops.arange(0, count, 1, dtype="int64"), first)
    inside = ops.logical_and(ops.greater_equal(place, const(0, "int64")), ops.less(place, const(length, "int64")))
    near = ops.minimum(ops.maximum(place, const(0, "int64")), const(length - 1, "int64"))
    return (ops.reshape(ops.where(inside, ops.take(dy, near, axis=0), const(0, x.dtype)), shape),)


define(
    "ccl.piece",
    "x | num_workers",
    infer=_piece_infer,
    numpy=lambda x, *, num_workers: _run("piece", [x], [(piece_length(x.size, num_workers),)], ranks=num_workers),
    gradient=_piece_gradient,
    doc="The rank's piece of x: elements r·c to (r + 1)·c of rank r in row-major order, c = ⌈N / num_workers⌉ of N\n"
    "elements; zeros behind the last one. Nothing is sent.",
    **_common,
)


def _is_bucket(name: str, args: Sequence[TensorStructInfo], shards: int) -> None:
    if not args or len(args) % shards:
        message = f"ccl.{name} takes {shards} tensors for each result, got {len(args)}"
        raise UserError(message, hint="all shards of the first, then all of the second")
    if len({a.dtype for a in args}) > 1:
        kinds = ", ".join(sorted({a.dtype for a in args}))
        raise UserError(
            f"ccl.{name}: the tensors of a bucket have one dtype, got {kinds}", hint="send others by themselves"
        )


def _tuple(infos: Sequence[TensorStructInfo]) -> Any:
    return infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))


def _reduce_infer(*args: TensorStructInfo, op_type: str, shards: int) -> Any:
    _expect_reduction("reduce", op_type)
    _is_bucket("reduce", args, shards)
    return _tuple([TensorStructInfo(a.shape, a.dtype) for a in args[::shards]])


def _adjoints(dy: Any) -> list[Any]:
    return list(dy) if isinstance(dy, (list, tuple)) else [dy]


def _results(value: Any, count: int) -> list[Any]:
    return [value] if count == 1 else [value[k] for k in range(count)]


def _reduce_gradient(dy: Any, y: Any, *args: Any, op_type: str, shards: int) -> tuple[Any, ...]:
    _only_sum("reduce", op_type)
    given = _adjoints(dy)
    totals = _results(ops.ccl.reduce(given), len(given))
    return tuple(t for t in totals for _ in range(shards))


define(
    "ccl.reduce",
    "args* | op_type='sum', shards=1",
    infer=_reduce_infer,
    numpy=lambda *args, op_type, shards: _run(
        "reduce", args, [a.shape for a in args[::shards]], reduction=op_type, shards=shards
    ),
    gradient=_reduce_gradient,
    doc="Several tensors summed over all ranks, as ccl.allreduce does each. With shards = k, k tensors in a row are\n"
    "what as many ranks would have given for one.",
    **_common,
)


def _reduce_pieces_infer(*args: TensorStructInfo, num_workers: int, op_type: str, shards: int) -> Any:
    _expect_reduction("reduce_pieces", op_type)
    _expect_workers("reduce_pieces", num_workers)
    _is_bucket("reduce_pieces", args, shards)
    return _tuple([TensorStructInfo((_piece_of(a, num_workers),), a.dtype) for a in args[::shards]])


def _reduce_pieces_gradient(
    dy: Any, y: Any, *args: Any, num_workers: int, op_type: str, shards: int
) -> tuple[Any, ...]:
    _only_sum("reduce_pieces", op_type)
    given = _adjoints(dy)
    shapes = tuple(tuple(a.struct_info.shape) for a in args[::shards])
    wholes = _results(ops.ccl.gather_pieces(given, num_workers, shapes), len(given))
    return tuple(w for w in wholes for _ in range(shards))


define(
    "ccl.reduce_pieces",
    "args* | num_workers, op_type='sum', shards=1",
    infer=_reduce_pieces_infer,
    numpy=lambda *args, num_workers, op_type, shards: _run(
        "reduce_pieces", args, [(piece_length(a.size, num_workers),) for a in args[::shards]], reduction=op_type,
        shards=shards, ranks=num_workers,
    ),
    gradient=_reduce_pieces_gradient,
    doc="The rank's pieces (ccl.piece) of several tensors summed over all num_workers ranks: ccl.reduce, of which\n"
    "each rank has its part alone.",
    **_common,
)  # fmt: skip


def _gather_pieces_infer(*args: TensorStructInfo, num_workers: int, shapes: Any) -> Any:
    _expect_workers("gather_pieces", num_workers)
    _is_bucket("gather_pieces", args, 1)
    if not isinstance(shapes, (list, tuple)) or len(shapes) != len(args):
        hint = "ccl.gather_pieces([p], 4, [(10, 3)])"
        raise UserError(f"ccl.gather_pieces takes a shape for each of {len(args)} pieces, got {shapes!r}", hint=hint)
    found = [TensorStructInfo(tuple(s), a.dtype) for s, a in zip(shapes, args, strict=True)]
    for piece, whole in zip(args, found, strict=True):
        length = _piece_of(whole, num_workers)
        if piece.shape is not None and isinstance(length, int) and tuple(piece.shape) != (length,):
            raise ShapeError(
                f"ccl.gather_pieces: a piece of {whole.shape} on {num_workers} ranks has the shape ({length},),"
                f" got {piece.shape}",
                hint="ccl.piece and ccl.reduce_pieces give pieces",
            )
    return _tuple(found)


def _gather_pieces_gradient(dy: Any, y: Any, *args: Any, num_workers: int, shapes: Any) -> tuple[Any, ...]:
    given = _adjoints(dy)
    return tuple(_results(ops.ccl.reduce_pieces(given, num_workers), len(given)))


define(
    "ccl.gather_pieces",
    "args* | num_workers, shapes",
    infer=_gather_pieces_infer,
    numpy=lambda *args, num_workers, shapes: _run("gather_pieces", args, [tuple(s) for s in shapes], ranks=num_workers),
    gradient=_gather_pieces_gradient,
    doc="The tensors of these shapes, on every rank, of which the num_workers ranks have the pieces.",
    **_common,
)

# -- which rank


define(
    "ccl.rank",
    "| ",
    infer=lambda: TensorStructInfo((), "int64"),
    numpy=lambda: _run("rank", [], [()]),
    gradient=lambda dy, y: (),
    doc="The number of the rank that computes this, an int64 scalar.",
    **_common,
)
