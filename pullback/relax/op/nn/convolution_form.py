"""The form ⟨y, conv(x, w)⟩: what convolution, its transpose and the gradient of its weight have in common.

Attributes, windows, tensor expressions and the NumPy meaning of each of the three derivatives; names as in
convolution.py, where the ops are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import (
    SPATIAL,
    Axis,
    Layout,
    canonical,
    data_layout,
    last_axes,
    layout,
    numbers,
    paddings,
    running,
    tap_extents,
    under,
)
from pullback.relax.struct_info import Dim
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.polynomial import at_most

# -- the attributes


@dataclass(frozen=True)
class Form:
    """A convolution of x with w to y: attributes, checked, that the three ops share."""

    op: str
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    x: Layout
    w: Layout
    y: Layout

    @staticmethod
    def of(op: str, rank: int, transposed: bool, attrs: dict[str, Any]) -> Form:
        """From the attributes of a call; of the transpose, the data are y and the result is x."""
        before, after = paddings(op, attrs["padding"], rank)
        groups = numbers(op, "groups", attrs["groups"], 1)[0]
        data = data_layout(op, "data_layout", attrs["data_layout"], rank)
        out = data_layout(op, "out_layout", attrs["out_layout"] or data.letters, rank)
        kernel = layout(op, "kernel_layout", attrs["kernel_layout"], "OI" + SPATIAL[rank])
        return Form(
            op,
            numbers(op, "strides", attrs["strides"], rank),
            before,
            after,
            numbers(op, "dilation", attrs["dilation"], rank),
            groups,
            out if transposed else data,
            Layout(swapped(kernel.letters), kernel.standard) if transposed else kernel,
            data if transposed else out,
        )

    @property
    def rank(self) -> int:
        return len(self.strides)

    def axes(self, sizes: Sequence[Dim], kernel: Sequence[int]) -> list[Axis]:
        """The windows along each spatial axis of an x of these sizes."""
        each = zip(sizes, kernel, self.strides, self.before, self.after, self.dilation, strict=True)
        return [Axis(*values) for values in each]

    def back(self, sizes: Sequence[Dim], kernel: Sequence[int], extra: Sequence[Dim]) -> list[Axis]:
        """The same for a y of these sizes: x is the smallest that gives it, and larger by ``extra``."""
        least = self.axes([0] * self.rank, kernel)
        grown = [
            canonical((n - 1) * a.stride + a.reach + 1 - a.before - a.after + e)
            for n, a, e in zip(sizes, least, extra, strict=True)
        ]
        return self.axes(grown, kernel)

    # -- the three ops, on expressions

    def _common(self) -> dict[str, Any]:
        padding = self.before if self.before == self.after else (*self.before, *self.after)
        return {"strides": self.strides, "padding": padding, "dilation": self.dilation, "groups": self.groups}

    def _layouts(self) -> dict[str, str]:
        return {"data_layout": self.x.letters, "kernel_layout": self.w.letters, "out_layout": self.y.letters}

    def y_of(self, x: Any, w: Any) -> Any:
        """The convolution."""
        return getattr(ops.nn, f"conv{self.rank}d")(x, w, **self._common(), **self._layouts())

    def x_of(self, y: Any, w: Any, sizes: Sequence[Dim]) -> Any:
        """The derivative by x, whose spatial sizes are given."""
        axes = self.axes(sizes, self.w.to_standard(w.shape)[2:])
        return getattr(ops.nn, f"conv{self.rank}d_transpose")(
            y,
            w,
            **self._common(),
            output_padding=tuple(canonical((a.padded - a.reach - 1) % a.stride) for a in axes),
            data_layout=self.y.letters,
            kernel_layout=swapped(self.w.letters),
            out_layout=self.x.letters,
        )

    def w_of(self, x: Any, y: Any, kernel: Sequence[int]) -> Any:
        """The derivative by w, whose spatial sizes are given."""
        op = getattr(ops.grad, f"conv{self.rank}d_weight")
        return op(x, y, kernel_size=tuple(kernel), **self._common(), **self._layouts())


def swapped(letters: str) -> str:
    """A kernel layout as the transpose sees it: what goes in comes out."""
    return letters.translate(str.maketrans("IO", "OI"))


# -- tensor expressions


def _running(extents: dict[str, Dim]) -> tuple[list[tir.PrimExpr], list[te.ReduceAxis]]:
    """:func:`running`, with at least one axis: a product of matrices has one, be it of extent 1."""
    indices, axes = running(extents)
    if axes:
        return indices, axes
    last = list(extents)[-1]
    axis = te.reduce_axis(extents[last], last)
    return [*indices[:-1], axis.var], [axis]


def _first_channel(channel: tir.PrimExpr, groups: int, own: int, other: int) -> tir.PrimExpr:
    """The first channel of a channel's group on the other side; ``own`` and ``other`` are channels a group."""
    if groups == 1:
        return tir.as_expr(0)
    return (channel if own == 1 else channel // own) * other


def _in_group(channel: tir.PrimExpr, groups: int, own: int) -> tir.PrimExpr:
    """The number of a channel in its group."""
    if groups == 1:
        return channel
    return tir.as_expr(0) if own == 1 else channel % own


def _padded(x: te.Tensor, form: Form) -> te.Tensor:
    if not any(form.before + form.after):
        return x
    pairs = [(0, 0), (0, 0), *zip(form.before, form.after, strict=True)]
    return ops.nn.pad.te(x, pad_width=form.x.from_standard(pairs), pad_mode="constant", pad_value=0)


def y_te(x: te.Tensor, w: te.Tensor, form: Form, kind: str) -> te.Tensor:
    """out[n, co, p…] = Σ padded[n, g·Ig + ci, p·stride + k·dilation…] · w[co, ci, k…]."""
    batch, _, *sizes = form.x.to_standard(x.shape)
    outputs, inputs, *kernel = form.w.to_standard(w.shape)
    axes, padded = form.axes(sizes, kernel), _padded(x, form)
    (*ks, ci), summed = _running({**tap_extents(kernel), "ci": inputs})

    def element(*i: tir.PrimExpr) -> te.Reduce:
        n, co, *at = form.y.to_standard(i)
        channel = _first_channel(co, form.groups, outputs // form.groups, inputs) + ci
        taps = [p * a.stride + k * a.dilation for p, k, a in zip(at, ks, axes, strict=True)]
        left = padded[form.x.from_standard([n, channel, *taps])]
        right = w[form.w.from_standard([co, ci, *ks])]
        return te.sum(tir.cast(kind, left) * tir.cast(kind, right), summed)

    shape = form.y.from_standard([batch, outputs, *(a.positions for a in axes)])
    return te.compute(shape, element, f"conv{form.rank}d")


def _spread(y: te.Tensor, form: Form, axes: Sequence[Axis]) -> tuple[te.Tensor, list[int]]:
    """y with stride - 1 zeros between its elements and zeros around them, so that the element of y under tap k of the
    window at x is ``spread[x + reach - k·dilation + first]``; and ``first``, which is 0 but where y is only cut."""
    sizes = form.y.to_standard(y.shape)[2:]
    steps = [1 if at_most(n, 1) else a.stride for n, a in zip(sizes, axes, strict=True)]
    before = [a.reach - a.before for a in axes]
    lengths = [canonical(a.size + a.reach) for a in axes]
    spans = [canonical((n - 1) * s + 1) for n, s in zip(sizes, steps, strict=True)]
    within = [at_most(t - b, n) for b, t, n in zip(before, lengths, spans, strict=True)]
    if all(s == 1 and b <= 0 and inside for s, b, inside in zip(steps, before, within, strict=True)):
        return y, [-b for b in before]

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        n, c, *at = form.y.to_standard(i)
        hits: list[tir.PrimExpr] = []
        index = []
        for e, size, step, first, span, inside in zip(at, sizes, steps, before, spans, within, strict=True):
            source = (e - first) // step
            if first > 0:
                hits.append(e >= first)
            if not inside:
                hits.append(e < first + span)
            if step > 1:
                hits.append(((e - first) % step).equal(0))
            low = tir.maximum(source, 0) if first > 0 else source
            index.append(low if inside else tir.minimum(low, size - 1))
        condition = hits[0]
        for hit in hits[1:]:
            condition = condition & hit
        return tir.select(condition, y[form.y.from_standard([n, c, *index])], tir.const(0, y.dtype))

    batch, channels = form.y.to_standard(y.shape)[:2]
    return te.compute(form.y.from_standard([batch, channels, *lengths]), element, "spread"), [0] * len(axes)


def x_te(y: te.Tensor, w: te.Tensor, form: Form, extra: Sequence[Dim], kind: str) -> te.Tensor:
    """out[n, ci, p…] = Σ spread[n, g·Og + co, p + reach - k·dilation…] · w[g·Og + co, ci, k…]."""
    batch, _, *sizes = form.y.to_standard(y.shape)
    outputs, inputs, *kernel = form.w.to_standard(w.shape)
    axes = form.back(sizes, kernel, extra)
    spread, firsts = _spread(y, form, axes)
    per_group = outputs // form.groups
    (*ks, co), summed = _running({**tap_extents(kernel), "co": per_group})

    def element(*i: tir.PrimExpr) -> te.Reduce:
        n, ci, *at = form.x.to_standard(i)
        channel = _first_channel(ci, form.groups, inputs, per_group) + co
        taps = [p + (a.taps - 1 - k) * a.dilation + first for p, k, a, first in zip(at, ks, axes, firsts, strict=True)]
        left = spread[form.y.from_standard([n, channel, *taps])]
        right = w[form.w.from_standard([channel, _in_group(ci, form.groups, inputs), *ks])]
        return te.sum(tir.cast(kind, left) * tir.cast(kind, right), summed)

    shape = form.x.from_standard([batch, inputs * form.groups, *(a.size for a in axes)])
    return te.compute(shape, element, f"conv{form.rank}d_transpose")


def w_te(x: te.Tensor, y: te.Tensor, form: Form, kernel: Sequence[int], kind: str) -> te.Tensor:
    """out[co, ci, k…] = Σ padded[n, g·Ig + ci, p·stride + k·dilation…] · y[n, co, p…]."""
    batch, inputs, *sizes = form.x.to_standard(x.shape)
    outputs = form.y.to_standard(y.shape)[1]
    axes, padded, per_group = form.axes(sizes, kernel), _padded(x, form), inputs // form.groups
    places = {c.lower(): a.positions for c, a in zip(SPATIAL[form.rank], axes, strict=True)}
    (n, *at), summed = _running({"n": batch, **places})

    def element(*i: tir.PrimExpr) -> te.Reduce:
        co, ci, *ks = form.w.to_standard(i)
        channel = _first_channel(co, form.groups, outputs // form.groups, per_group) + ci
        taps = [p * a.stride + k * a.dilation for p, k, a in zip(at, ks, axes, strict=True)]
        left = padded[form.x.from_standard([n, channel, *taps])]
        right = y[form.y.from_standard([n, co, *at])]
        return te.sum(tir.cast(kind, left) * tir.cast(kind, right), summed)

    return te.compute(form.w.from_standard([outputs, per_group, *kernel]), element, f"conv{form.rank}d_weight")


# -- the meaning: a product of matrices for each tap of the kernel


def _by_group(x: np.ndarray, axes: Layout, groups: int, kind: str) -> np.ndarray:
    """Data as (batch, group, channel, spatial…)."""
    x = axes.standard_array(x).astype(numpy_dtype(kind))
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _kernel_by_group(w: np.ndarray, form: Form, kind: str) -> np.ndarray:
    """The kernel as (group, output, input, spatial…)."""
    w = form.w.standard_array(w).astype(numpy_dtype(kind))
    return w.reshape(form.groups, w.shape[0] // form.groups, *w.shape[1:])


def _zeros_around(x: np.ndarray, form: Form) -> np.ndarray:
    return np.pad(x, [(0, 0)] * 3 + list(zip(form.before, form.after, strict=True)))


def _joined(x: np.ndarray) -> np.ndarray:
    """(batch, group, channel, …) as (batch, channel, …)."""
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])


def y_array(x: np.ndarray, w: np.ndarray, form: Form, kind: str) -> np.ndarray:
    weight = _kernel_by_group(w, form, kind)
    data = _by_group(x, form.x, form.groups, kind)
    axes, data = form.axes(data.shape[3:], weight.shape[3:]), _zeros_around(data, form)
    total = np.zeros((*data.shape[:2], weight.shape[1], *(a.positions for a in axes)), data.dtype)
    for tap in np.ndindex(*weight.shape[3:]):
        total += np.einsum("ngi...,goi->ngo...", data[under(tap, axes)], weight[last_axes(tap)])
    return form.y.own_array(_joined(total))


def x_array(y: np.ndarray, w: np.ndarray, form: Form, extra: Sequence[int], kind: str) -> np.ndarray:
    weight = _kernel_by_group(w, form, kind)
    data = _by_group(y, form.y, form.groups, kind)
    axes = form.back(data.shape[3:], weight.shape[3:], extra)
    total = np.zeros((*data.shape[:2], weight.shape[2], *(a.size + a.before + a.after for a in axes)), data.dtype)
    for tap in np.ndindex(*weight.shape[3:]):
        total[under(tap, axes)] += np.einsum("ngo...,goi->ngi...", data, weight[last_axes(tap)])
    inner = last_axes(slice(a.before, a.before + a.size) for a in axes)
    return form.x.own_array(_joined(total[inner]))


def w_array(x: np.ndarray, y: np.ndarray, form: Form, kernel: Sequence[int], kind: str) -> np.ndarray:
    data, dy = _by_group(x, form.x, form.groups, kind), _by_group(y, form.y, form.groups, kind)
    axes, data = form.axes(data.shape[3:], kernel), _zeros_around(data, form)
    total = np.zeros((form.groups, dy.shape[2], data.shape[2], *kernel), data.dtype)
    dy = dy.reshape(*dy.shape[:3], math.prod(dy.shape[3:]))
    for tap in np.ndindex(*kernel):
        patch = data[under(tap, axes)]
        total[last_axes(tap)] = np.einsum("ngip,ngop->goi", patch.reshape(*patch.shape[:3], dy.shape[3]), dy)
    return form.w.own_array(total.reshape(-1, *total.shape[2:]))
