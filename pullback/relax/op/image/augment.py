"""Augmentation: data changed at random in training, each row in its own way, and as they are in inference."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.expr import const
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_holds,
    expect_member,
    in_wide,
    known_shape,
    narrowed,
    normalize_axes,
    specialize,
    widened,
)
from pullback.relax.op.manipulate.shape import sizes
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL, paddings
from pullback.relax.op.random.draw import A_STATE, Random, check_state, expect_probability, limit
from pullback.relax.op.sample import Ints, sample
from pullback.relax.op_calls import no_state
from pullback.relax.struct_info import Dim, TensorStructInfo, dim, format_info, format_shape, same_shape
from pullback.te.random import bits_array

PAD_MODES = ("constant", "reflect", "replicate", "circular")

# -- image.crop


def _crop_infer(data: TensorStructInfo, offsets: TensorStructInfo, *, size: Any) -> TensorStructInfo:
    shape, own, wanted = known_shape("image.crop", data, "data"), known_shape("image.crop", offsets), sizes(size)
    if not 1 <= len(wanted) < len(shape):
        raise ShapeError(f"image.crop: data of rank {len(shape)} have no axes for the size {format_shape(wanted)}")
    if offsets.dtype != "int64" or not same_shape(own, (shape[0], len(wanted))):
        expected = format_info(TensorStructInfo((shape[0], len(wanted)), "int64"))
        raise ShapeError(f"image.crop: offsets must be {expected}, got {format_info(offsets)}")
    return TensorStructInfo((*shape[: len(shape) - len(wanted)], *wanted), data.dtype)


def _crop_te(data: te.Tensor, offsets: te.Tensor, *, size: Any) -> te.Tensor:
    wanted = sizes(size)
    lead = data.ndim - len(wanted)
    zero = tir.const(False if data.dtype == "bool" else 0, data.dtype)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        if 0 in data.shape:
            return zero
        index, conditions = [], []
        for k, m in enumerate(wanted):
            n = tir.as_expr(data.shape[lead + k])
            begin = tir.maximum(
                tir.minimum(offsets[i[0], k], n), 0 - tir.as_expr(m)
            )  # beyond that there are no elements
            place = begin + i[lead + k]
            conditions.append((place >= 0) & (place < n))
            index.append(tir.maximum(tir.minimum(place, n - 1), 0))
        return tir.select(functools.reduce(operator.and_, conditions), data[(*i[:lead], *index)], zero)

    return te.compute((*data.shape[:lead], *wanted), element, "crop")


def _crop(data: np.ndarray, offsets: np.ndarray, *, size: Any) -> np.ndarray:
    wanted = size if isinstance(size, (tuple, list)) else (size,)
    lead = data.ndim - len(wanted)
    result = np.zeros((*data.shape[:lead], *wanted), data.dtype)
    for row, image, begins in zip(result, data, offsets.tolist(), strict=True):
        places = [
            (max(-b, 0), min(n - b, m)) for b, n, m in zip(begins, data.shape[lead:], wanted, strict=True)
        ]  # of the result, which lie in the data
        if all(first < last for first, last in places):
            to = tuple(slice(first, last) for first, last in places)
            of = tuple(slice(first + b, last + b) for (first, last), b in zip(places, begins, strict=True))
            row[(..., *to)] = image[(..., *of)]
    return result


define(
    "image.crop",
    "data, offsets | size",
    infer=_crop_infer,
    te=_crop_te,
    numpy=_crop,
    gradient=lambda dy, y, data, offsets, *, size: (
        ops.image.crop(dy, ops.negative(offsets), data.shape[len(data.shape) - len(sizes(size)) :]),
        None,
    ),
    precision="same",
    zeros="makes",
    family="augment",
    doc="A window of the given size, a number for each of the last axes, of each image: y[n, …, i, j] =\n"
    "data[n, …, i + offsets[n, 0], j + offsets[n, 1]], zeros outside data. offsets: int64, (N, axes).",
    samples=[
        sample((3, 2, 5, 6), Ints((3, 2), 0, 3), size=(3, 4)),
        sample((3, 2, 5, 6), Ints((3, 2), -3, 4), size=(5, 6)),
        sample((4, 7), Ints((4, 1), -8, 9), size=(5,)),
        sample((2, 1, 3, 4, 2), Ints((2, 3), -1, 2), size=(2, 5, 2)),
        sample(Ints((2, 3, 4), 0, 9, "uint8"), Ints((2, 2), -2, 3), size=(4, 4)),
        sample((0, 2, 3, 3), Ints((0, 2), 0, 1), size=(2, 2)),
    ],
)

# -- flips


def _flip_infer(
    data: TensorStructInfo, state: TensorStructInfo | None = None, *, axis: Any, p: Any, training: bool
) -> TensorStructInfo:
    op = "image.random_flip"
    shape = known_shape(op, data, "data")
    check_state(op, state)
    expect_probability(op, "p", p)
    if not shape or 0 in normalize_axes(op, axis, len(shape)):
        raise ShapeError(f"{op}: the first axis counts the images, and is not flipped", hint="axis=-1 is the width")
    return data


def _flipped(data: Any, state: Any = None, *, training: bool, axis: Any, p: float) -> Any:
    if not training:
        return data
    if state is None:
        raise no_state("image.random_flip")
    rank = len(data.shape)
    chosen = ops.random.bernoulli(state, (data.shape[0], *(1,) * (rank - 1)), p)
    return ops.where(chosen, ops.flip(data, axis), data)


def _flipped_array(data: np.ndarray, state: Any = None, *, training: bool, axis: Any, p: float) -> np.ndarray:
    if not training:
        return data
    if state is None:
        raise no_state("image.random_flip")
    chosen = bits_array(state, data.shape[:1]).astype(np.uint64) < np.uint64(limit(p))
    return np.where(chosen.reshape(-1, *(1,) * (data.ndim - 1)), np.flip(data, axis), data)


specialize(
    composite(
        "image.random_flip",
        "data, state? | axis=-1, p=0.5, training=True",
        infer=_flip_infer,
        decompose=_flipped,
        numpy=_flipped_array,
        precision="same",
        family="augment",
        doc="In training, the order along an axis (or axes) reversed of each image, with the probability p; in\n"
        "inference, data. The first axis counts the images.",
        samples=[
            sample((6, 2, 3, 4), A_STATE),
            sample((5, 3, 4), A_STATE, axis=(1, 2), p=0.7),
            sample((4, 3), A_STATE, p=1.0),
            sample(Ints((4, 3, 2), 0, 9, "uint8"), A_STATE, axis=1),
            sample((3, 4), training=False),
            sample((0, 4), A_STATE),
        ],
    ),
    Random,
)

# -- windows


def _room(data: Sequence[Dim], size: Sequence[Any], padding: Any) -> list[tuple[int, int, int]]:
    """Of each of the last axes: the padding before and after, and how many places a window has."""
    op = "image.random_crop"
    if not 1 <= len(size) <= len(SPATIAL) or len(size) >= len(data):
        raise ShapeError(f"{op}: data of rank {len(data)} have no axes for the size {format_shape(size)}")
    own: Sequence[Any] = data[len(data) - len(size) :]
    if not all(isinstance(s, int) for s in (*own, *size)):
        raise ShapeError(f"{op}: the sizes of images must be known, got {format_shape(data)}")
    before, after = paddings(op, padding, len(size))
    room = [(b, a, n + b + a - m + 1) for n, m, b, a in zip(own, size, before, after, strict=True)]
    if any(m < 1 for m in size) or any(places < 1 for _, _, places in room):
        padded = format_shape(n + b + a for n, b, a in zip(own, before, after, strict=True))
        raise ShapeError(f"{op}: a window of {format_shape(size)} has no room in padded images of {padded}")
    return room


def _middle(own: Sequence[Any], size: Sequence[Any], room: Sequence[tuple[int, int, int]]) -> list[int]:
    """Where the window in the middle of an image begins in the padded one."""
    each = zip(own, size, room, strict=True)
    return [min(max(b + (n - m) // 2, 0), places - 1) for n, m, (b, _, places) in each]


def _random_crop_infer(
    data: TensorStructInfo, state: TensorStructInfo | None = None, *, size: Any, padding: Any, pad_mode: str,
    pad_value: float, training: bool,
) -> TensorStructInfo:  # fmt: skip
    op = "image.random_crop"
    shape, wanted = known_shape(op, data, "data"), sizes(size)
    check_state(op, state)
    expect_member(op, "pad_mode", pad_mode, PAD_MODES)
    expect_holds(op, "pad_value", pad_value, data.dtype)
    _room(shape, wanted, padding)
    return TensorStructInfo((*shape[: len(shape) - len(wanted)], *wanted), data.dtype)


def _random_crop(
    data: Any, state: Any = None, *, training: bool, size: Any, padding: Any, pad_mode: str, pad_value: float
) -> Any:
    wanted, lead = sizes(size), len(data.shape) - len(sizes(size))
    room = _room(data.shape, wanted, padding)
    widths = [(0, 0)] * lead + [(b, a) for b, a, _ in room]
    if not training:
        if wanted == data.shape[lead:]:
            return data
        begins = _middle(data.shape[lead:], wanted, room)
        ends = [b + dim(m) for b, m in zip(begins, wanted, strict=True)]
        padded = ops.nn.pad(data, widths, pad_mode, pad_value)
        return ops.strided_slice(padded, list(range(lead, len(data.shape))), begins, ends)
    if state is None:
        raise no_state("image.random_crop")
    words = ops.astype(ops.random.bits(state, (data.shape[0], len(wanted))), "uint64")
    by_zeros = pad_mode == "constant" and pad_value == 0
    offsets = []
    for k, (before, _, places) in enumerate(room):
        word = ops.strided_slice(words, [1], [k], [k + 1])
        offsets.append(ops.astype(ops.right_shift(word * places, 32), "int64") - (before if by_zeros else 0))
    if not by_zeros:
        data = ops.nn.pad(data, widths, pad_mode, pad_value)
    return ops.image.crop(data, ops.concat(offsets, 1) if len(offsets) > 1 else offsets[0], wanted)


def _random_crop_array(
    data: np.ndarray, state: Any = None, *, training: bool, size: Any, padding: Any, pad_mode: str, pad_value: float
) -> np.ndarray:
    wanted, lead = sizes(size), data.ndim - len(sizes(size))
    room = _room(data.shape, wanted, padding)
    widths = tuple(w for pair in [(0, 0)] * lead + [(b, a) for b, a, _ in room] for w in pair)
    padded = ops.nn.pad.numpy(data, pad_width=widths, pad_mode=pad_mode, pad_value=pad_value)
    places = np.array([places for _, _, places in room], np.uint64)
    if training and state is None:
        raise no_state("image.random_crop")
    if training:
        words = bits_array(state, (data.shape[0], len(wanted))).astype(np.uint64)
        offsets = (words * places >> np.uint64(32)).astype(np.int64)
    else:
        offsets = np.tile(_middle(data.shape[lead:], wanted, room), (data.shape[0], 1))
    return _crop(padded, offsets, size=wanted)


specialize(
    composite(
        "image.random_crop",
        "data, state? | size, padding=0, pad_mode='constant', pad_value=0.0, training=True",
        infer=_random_crop_infer,
        decompose=_random_crop,
        numpy=_random_crop_array,
        precision="same",
        zeros="makes",
        family="augment",
        doc="In training, a window of the given size, a number for each of the last axes, of each padded image: all\n"
        "places are equally likely. In inference, the window in the middle of the image: all of it where the size is\n"
        "its own. padding: an int, one for each axis, or before all and then after all; pad_mode as in nn.pad.",
        samples=[
            sample((5, 2, 6, 5), A_STATE, size=(6, 5), padding=2),
            sample((5, 2, 6, 5), A_STATE, size=(4, 3)),
            sample((4, 1, 4, 5), A_STATE, size=(4, 4), padding=(1, 0, 2, 1), pad_mode="reflect"),
            sample((4, 7), A_STATE, size=(7,), padding=3, pad_value=1.5),
            sample(Ints((4, 3, 2, 3), 0, 9, "uint8"), A_STATE, size=(2, 3), padding=1),
            sample((3, 2, 4, 4), size=(4, 4), padding=1, training=False),
            sample((3, 2, 4, 5), size=(2, 2), training=False),
            sample((3, 4, 5), size=(3, 7), padding=(0, 2, 0, 1), training=False),
            sample((0, 4, 4), A_STATE, size=(4, 4), padding=1),
        ],
    ),
    Random,
)

# -- mixup

_CELLS = 12  # bits of a random word that say between which two quantiles a share lies; the others say where


@functools.lru_cache(maxsize=64)
def beta_quantiles(alpha: float) -> np.ndarray:
    """2¹² + 1 quantiles of the distribution Beta(alpha, alpha), from 0 to 1.

    Its density is integrated up to ½, over w = xᵉ with e = min(alpha, 1), so that it has no pole: the other half is the
    mirror image.
    """
    e = min(alpha, 1.0)
    w = np.linspace(0.0, 0.5**e, (1 << 15) + 1)
    x = w ** (1.0 / e)
    with np.errstate(divide="ignore"):
        logarithm = (alpha - 1.0) * np.log1p(-x) + (0.0 if alpha <= 1 else (alpha - e) * np.log(x))
    density = np.exp(logarithm - logarithm.max())
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    lower = np.interp(np.linspace(0.0, below[-1], (1 << _CELLS - 1) + 1), below, w) ** (1.0 / e)
    if alpha > 1:  # the least quantile is 0: in its place where the first cell begins that has the tail's mean
        tail = density * (x <= lower[1])
        lower[0] = max(2.0 * float((tail * x).sum() / tail.sum()) - lower[1], 0.0)
    lower[-1] = 0.5
    return np.concatenate([lower, 1.0 - lower[-2::-1]])


def _mixup_infer(
    data: TensorStructInfo, state: TensorStructInfo | None = None, *, alpha: float, shared: str, training: bool
) -> TensorStructInfo:
    op = "nn.mixup"
    shape = known_shape(op, data, "data")
    check_state(op, state)
    expect_dtype(op, data, "float", "data")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
        raise UserError(f"{op}: alpha must be a positive, finite number, got {alpha!r}")
    if not isinstance(shared, str) or not shared:
        raise UserError(f"{op}: shared must be a name, got {shared!r}")
    if not shape:
        raise ShapeError(f"{op}: a scalar has no rows")
    return data


def _mixed(data: Any, state: Any = None, *, training: bool, alpha: float, shared: str) -> Any:
    if not training:
        return data
    if state is None:
        raise no_state("nn.mixup")
    x, rank = widened(data), len(data.shape)
    words, rest = ops.random.bits(state, (data.shape[0],)), 32 - _CELLS
    cell = ops.astype(ops.right_shift(words, rest), "int64")
    place = ops.astype(ops.bitwise_and(words, (1 << rest) - 1), x.dtype) * 2.0**-rest
    quantiles = const(beta_quantiles(float(alpha)), x.dtype)
    low, high = ops.take(quantiles, cell, 0, "clip"), ops.take(quantiles, cell + 1, 0, "clip")
    share = ops.reshape(low + place * (high - low), (data.shape[0], *(1,) * (rank - 1)))
    return narrowed(share * x + (1.0 - share) * ops.flip(x, 0), data.dtype)


def _mixed_array(data: np.ndarray, state: Any = None, *, training: bool, alpha: float, shared: str) -> np.ndarray:
    if not training:
        return data
    if state is None:
        raise no_state("nn.mixup")
    kind, rest = data.dtype.type, 32 - _CELLS
    words, quantiles = bits_array(state, data.shape[:1]), beta_quantiles(float(alpha)).astype(data.dtype)
    cell, place = words >> np.uint32(rest), (words & np.uint32((1 << rest) - 1)).astype(data.dtype) * kind(2.0**-rest)
    share = quantiles[cell] + place * (quantiles[cell + 1] - quantiles[cell])
    share = share.reshape(-1, *(1,) * (data.ndim - 1))
    return share * data + (kind(1) - share) * data[::-1]


specialize(
    composite(
        "nn.mixup",
        "data, state? | alpha=0.2, shared='mixup', training=True",
        infer=_mixup_infer,
        decompose=_mixed,
        te=None,
        numpy=in_wide(_mixed_array),
        precision="same",
        family="augment",
        doc="In training, each row mixed with its partner, that of the same number from the end: s·data[n] +\n"
        "(1 - s)·data[N - 1 - n], with a share s for each row from the distribution Beta(alpha, alpha), by its 2¹²\n"
        "quantiles; in inference, data. Calls with the same ``shared`` mix alike: inputs in the model, targets in the\n"
        "loss. Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.",
        samples=[
            sample((6, 3), A_STATE),
            sample((5, 2, 4), A_STATE, alpha=1.0),
            sample((7,), A_STATE, alpha=3.0, shared="other"),
            sample((3, 4), training=False),
            sample((0, 4), A_STATE),
        ],
    ),
    Random,
)
