"""Attention as tensor expressions: what the op means, and what the schedule recognizes.

Layouts: query (B, S, N, H), key (B, T, M, H), value (B, T, M, V), bias broadcastable to (B, N, S, T), result
(B, S, N, V). Head n reads the key and value head n // (N / M). All is computed in ``dtype``, the accumulator's.

    x[b, n, i, j] = scale · Σ_h query·key (+ bias), -inf where j > i + offset
    e = exp(x - max_j x);   result = (Σ_j e·value) / Σ_j e
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.te.tensor import Tensor, compute, max, reduce_axis, sum
from pullback.tir.expr import PrimExpr, as_expr, call, cast, const, maximum, select
from pullback.tir.polynomial import same

LOWEST = {"float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}  # finite


@dataclass(frozen=True, eq=False)
class Attention:
    """The operands and options: ``offset`` None is no mask, a number masks what lies above that diagonal."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    scale: PrimExpr
    offset: int | PrimExpr | None
    dtype: str

    @property
    def group(self) -> int | PrimExpr:
        """The number of query heads that share a key head."""
        return heads_per_key(self.query.shape[2], self.key.shape[2])

    @property
    def scores_shape(self) -> tuple[int | PrimExpr, ...]:
        batch, rows, heads, _ = self.query.shape
        return batch, heads, rows, self.key.shape[1]

    def read(self, tensor: Tensor, *indices: PrimExpr) -> PrimExpr:
        return cast(self.dtype, tensor[indices])

    def logits(self) -> Tensor:
        """x: products, scaled, biased, masked."""
        h = reduce_axis(self.query.shape[3], "h")
        products = compute(
            self.scores_shape,
            lambda b, n, i, j: sum(
                self.read(self.query, b, i, n, h.var) * self.read(self.key, b, j, n // self.group, h.var), h
            ),
            "scores",
        )
        return compute(self.scores_shape, lambda *at: self.logit(products[at], at), "logits")

    def logit(self, product: PrimExpr, at: Sequence[PrimExpr]) -> PrimExpr:
        """The logit at (b, n, i, j), from the product there."""
        return self.finish(product * self.scale, at)

    def finish(self, x: PrimExpr, at: Sequence[PrimExpr]) -> PrimExpr:
        """Bias and mask added to a scaled product."""
        if self.bias is not None:
            own = at[len(at) - self.bias.ndim :]
            place = [as_expr(0) if s == 1 else i for s, i in zip(self.bias.shape, own, strict=True)]
            x = x + self.read(self.bias, *place)
        if self.offset is not None:
            x = select(at[3] <= at[2] + self.offset, x, const(-math.inf, self.dtype))
        return x

    def weights(self) -> tuple[Tensor, Tensor]:
        """e and Σ_j e. The largest logit is taken as finite, so that a row of -inf gives zeros."""
        x = self.logits()
        k, m = reduce_axis(x.shape[3], "k"), reduce_axis(x.shape[3], "k")
        lowest = const(LOWEST[self.dtype], self.dtype)
        peak = compute(x.shape[:3], lambda b, n, i: max(x[b, n, i, k.var], k), "peak")
        e = compute(x.shape, lambda b, n, i, j: call("exp", x[b, n, i, j] - maximum(peak[b, n, i], lowest)), "e")
        return e, compute(x.shape[:3], lambda b, n, i: sum(e[b, n, i, m.var], m), "total")

    def forward(self) -> Tensor:
        """The result; 0 for a row whose logits are all -inf."""
        e, total = self.weights()
        batch, rows, heads, _ = self.query.shape
        shape, k = (batch, rows, heads, self.value.shape[3]), reduce_axis(self.key.shape[1], "k")
        context = compute(
            shape,
            lambda b, i, n, h: sum(e[b, n, i, k.var] * self.read(self.value, b, k.var, n // self.group, h), k),
            "context",
        )
        return compute(
            shape,
            lambda b, i, n, h: cast(self.value.dtype, context[b, i, n, h] / nonzero(total[b, n, i])),
            "attention",
        )

    def backward(self, dy: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The adjoints of query, key and value.

        With p = e / Σ e:  dvalue = Σ_i p·dy,  dx = p·(Σ_v dy·value - Σ_v dy·out),
        dquery = scale·Σ_j dx·key,  dkey = scale·Σ_i dx·query;  those of key and value summed over the heads of a group.
        """
        e, total = self.weights()
        p = compute(e.shape, lambda b, n, i, j: e[b, n, i, j] / nonzero(total[b, n, i]), "p")
        v, w = reduce_axis(self.value.shape[3], "v"), reduce_axis(self.value.shape[3], "v")
        dp = compute(
            e.shape,
            lambda b, n, i, j: sum(
                self.read(self.value, b, j, n // self.group, v.var) * self.read(dy, b, i, n, v.var), v
            ),
            "dp",
        )
        dot = compute(
            e.shape[:3],
            lambda b, n, i: sum(self.read(dy, b, i, n, w.var) * self.read(out, b, i, n, w.var), w),
            "dot",
        )
        dx = compute(
            e.shape,
            lambda b, n, i, j: p[b, n, i, j] * (dp[b, n, i, j] - dot[b, n, i]) * self.scale,
            "dx",
        )
        j = reduce_axis(self.key.shape[1], "j")
        dq = compute(
            self.query.shape,
            lambda b, i, n, h: sum(dx[b, n, i, j.var] * self.read(self.key, b, j.var, n // self.group, h), j),
            "dquery",
        )
        dk = self._over_rows(dx, self.query, self.key, "dkey")
        dv = self._over_rows(p, dy, self.value, "dvalue")
        return _cast(dq, self.query.dtype), _cast(dk, self.key.dtype), _cast(dv, self.value.dtype)

    def _over_rows(self, factor: Tensor, rows: Tensor, like: Tensor, name: str) -> Tensor:
        """Σ over the heads g of a group and the rows i of factor[b, n, i, j] · rows[b, i, n, h]."""
        g, i = reduce_axis(self.group, "g"), reduce_axis(self.query.shape[1], "i")

        def element(b: PrimExpr, j: PrimExpr, m: PrimExpr, h: PrimExpr) -> object:
            n = m if self.group == 1 else m * self.group + g.var
            product = factor[b, n, i.var, j] * self.read(rows, b, i.var, n, h)
            return sum(product, i if self.group == 1 else (g, i))

        return compute(like.shape, element, name)


def heads_per_key(heads: int | PrimExpr, keys: int | PrimExpr) -> int | PrimExpr:
    """How many query heads share a key head; a symbolic number of heads is one and the same on both sides."""
    return 1 if same(heads, keys) else heads // keys


def nonzero(total: PrimExpr) -> PrimExpr:
    """A divisor for what is 0 where the total is 0."""
    return select(total.equal(0.0), 1.0, total)


def _cast(x: Tensor, dtype: str) -> Tensor:
    return x if x.dtype == dtype else compute(x.shape, lambda *i: cast(dtype, x[i]), "cast")
