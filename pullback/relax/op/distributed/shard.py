"""random.shard: a rank's part of what all ranks draw together.

What one process would draw for the whole batch, each rank draws for its rows, whatever their number is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import CallError, ShapeError, UserError, suggestion
from pullback.ir.op import Op, define, is_required
from pullback.relax.op.family import normalize_axis, zero_gradient
from pullback.relax.op.manipulate.shape import sizes
from pullback.relax.op.random.draw import A_STATE, DRAWS, Draw, check_state
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_info, same_info
from pullback.te.random import Shard

NAME = "random.shard"
RANK = TensorStructInfo((), "int64")


def _drawn(draw: Any, attrs: Sequence[tuple[str, Any]]) -> tuple[Draw, dict[str, Any]]:
    """What draws, and all of its attributes but for the shape."""
    if draw not in DRAWS:
        known = ", ".join(sorted(DRAWS))
        raise UserError(f"{NAME}: draw must be one of {known}; got {draw!r}{suggestion(str(draw), DRAWS)}")
    given = dict(attrs)
    declared = {name: default for name, default in Op.get(draw).signature.attrs.items() if name != "shape"}
    unknown = [name for name in given if name not in declared]
    missing = [name for name, default in declared.items() if is_required(default) and name not in given]
    if unknown or missing:
        what = f"has no attribute {unknown[0]!r}" if unknown else f"lacks the attribute {missing[0]!r}"
        hint = f"attrs are pairs, {', '.join(f'({n!r}, …)' for n in declared)}"
        raise CallError(f"{NAME}: {draw} {what}", hint=hint)
    return DRAWS[draw], declared | given


def _infer(
    state: TensorStructInfo, rank: TensorStructInfo, *, draw: str, shape: Any, num_workers: int, axis: int, attrs: Any
) -> TensorStructInfo:
    found, kw = _drawn(draw, attrs)
    check_state(NAME, state)
    if not same_info(rank, RANK):
        hint = "R.ccl.rank() gives it"
        raise ShapeError(f"{NAME}: rank must be {format_info(RANK)}, got {format_info(rank)}", hint=hint)
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
        raise UserError(f"{NAME}: num_workers must be an int of at least 1, got {num_workers!r}")
    info = found.info(shape, **kw)
    normalize_axis(NAME, axis, len(sizes(shape)))
    return info


def _shard(rank: Any, shape: Any, num_workers: int, axis: int) -> Shard:
    return Shard(rank, num_workers, normalize_axis(NAME, axis, len(shape)))


def _te(
    state: te.Tensor, rank: te.Tensor, *, draw: str, shape: Any, num_workers: int, axis: int, attrs: Any
) -> te.Tensor:
    found, kw = _drawn(draw, attrs)
    own = sizes(shape)
    return found.tensor(state, own, _shard(rank[()], own, num_workers, axis), **kw)


def _numpy(
    state: np.ndarray, rank: np.ndarray, *, draw: str, shape: Any, num_workers: int, axis: int, attrs: Any
) -> np.ndarray:
    found, kw = _drawn(draw, attrs)
    own = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return found.array(state, own, _shard(int(rank), own, num_workers, axis), **kw)


define(
    NAME,
    "state, rank | draw, shape, num_workers, axis=0, attrs=()",
    infer=_infer,
    te=_te,
    numpy=_numpy,
    gradient=zero_gradient,
    family="random",
    doc="The part number ``rank`` (int64, from 0) of what the op ``draw`` draws from the state for a shape that is\n"
    "num_workers times as large along the axis; ``shape`` is that of the part. attrs: pairs of names and values, the\n"
    'other attributes of the op: R.random.shard(state, rank, "random.bernoulli", (8, 64), 4, attrs=(("p", 0.9),)).',
    samples=[
        sample(A_STATE, Ints((), 0, 3), draw="random.bernoulli", shape=(4, 64), num_workers=3, attrs=(("p", 0.3),)),
        sample(A_STATE, Ints((), 0, 4), draw="random.uniform", shape=(5, 7), num_workers=4),
        sample(A_STATE, Ints((), 0, 2), draw="random.normal", shape=(3, 4, 5), num_workers=2, axis=1),
        sample(A_STATE, Ints((), 0, 2), draw="random.bits", shape=(70, 2), num_workers=2, axis=-1),
        sample(
            A_STATE, Ints((), 0, 2), draw="random.randint", shape=(64,), num_workers=2, attrs=(("low", -5), ("high", 9))
        ),
        sample(
            A_STATE, Ints((), 0, 9), draw="random.uniform", shape=(6, 16), num_workers=9, attrs=(("dtype", "float64"),)
        ),
        sample(A_STATE, Ints((), 0, 2), draw="random.bits", shape=(0, 3), num_workers=2),
    ],
)
