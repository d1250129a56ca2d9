"""Batch norm over the rows of all ranks. With n_r values, mean m_r and variance v_r of a channel on rank r, N = Σ n_r:

    mean = Σ n_r/N · m_r        variance = Σ n_r/N · (v_r + (m_r - mean)²)

(Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979). All ranks
combine the same numbers in the same order, so they have the same statistics to the last bit. Forwards a rank sends one
message, its means, variances and count; backwards another, the sums of which dx has the mean.

The adjoint is that of the sum of all ranks' losses. So the loss of a rank weighs as much as its adjoint says when it
comes here: a weight of ranks has to be a factor of the loss, not of gradients afterwards. The adjoints of parameters
are a rank's own share of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax.expr import Tuple
from pullback.relax.op.family import composite, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.batch_norm import (
    adjoints_in_inference,
    adjoints_in_training,
    check_arguments,
    check_values,
    moved,
    normalized,
    statistics,
)
from pullback.relax.op.nn.moments import Moments, split_axes, spread_array
from pullback.relax.op.reduction.reduce import count
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.runtime.ranks import current

NAME = "nn.sync_batch_norm"


def _infer(
    *infos: TensorStructInfo, num_workers: int, axis: int, epsilon: float, center: bool, scale: bool, momentum: float,
    training: bool, unbiased: bool,
) -> TupleStructInfo:  # fmt: skip
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
        raise UserError(f"{NAME}: num_workers must be an int of at least 1, got {num_workers!r}")
    return check_arguments(NAME, *infos, axis=axis, epsilon=epsilon, momentum=momentum)


@dataclass(frozen=True)
class _OfRanks(Moments):
    """Moments of the values of all ranks, of those of each."""

    own: Moments
    num_workers: int

    @property
    def channels(self) -> Any:
        return count(self.own.mean.shape, range(len(self.own.mean.shape)))

    @cached_property
    def gathered(self) -> tuple[Any, Any, Any]:
        """The ranks' means and variances, (ranks, channels), and counts, (ranks, 1)."""
        c, own = self.channels, self.own
        n = ops.full((1,), count(self.x.shape, self.axes), self.x.dtype)
        message = ops.concat([ops.reshape(own.mean, (c,)), ops.reshape(own.variance, (c,)), n], axis=0)
        found = ops.ccl.allgather(ops.reshape(message, (1, 2 * c + 1)), self.num_workers)
        means, variances, counts = (
            ops.strided_slice(found, [1], [b], [e]) for b, e in ((0, c), (c, 2 * c), (2 * c, 2 * c + 1))
        )
        return means, variances, counts

    @cached_property
    def counted(self) -> Any:
        return ops.sum(self.gathered[2], [0], True)

    @cached_property
    def count(self) -> Any:
        """The number of values of a channel, a scalar."""
        return ops.reshape(self.counted, ())

    def combined(self, values: Any) -> Any:
        """The mean over all values, of means over each rank's: (1, channels)."""
        return ops.sum(values * (self.gathered[2] / self.counted), [0], True)

    @cached_property
    def row(self) -> Any:
        return self.combined(self.gathered[0])

    @cached_property
    def mean(self) -> Any:
        return ops.reshape(self.row, self.own.mean.shape)

    @cached_property
    def variance(self) -> Any:
        means, variances, _ = self.gathered
        return ops.reshape(self.combined(variances + ops.square(means - self.row)), self.own.mean.shape)

    def correction(self, unbiased: bool) -> Any:
        """N / (N - 1): from the biased variance of N values to the unbiased one, if that is asked for."""
        if not unbiased:
            return 1.0
        if self.num_workers == 1:
            check_values(count(self.x.shape, self.axes), NAME)
        return self.count / (self.count - 1.0)

    def summed(self, *sums: Any) -> list[Any]:
        """Sums of one element for each channel, added up over ranks, in one message."""
        c = self.channels
        total = ops.ccl.allreduce(ops.concat([ops.reshape(s, (c,)) for s in sums], axis=0), "sum")
        parts = [ops.strided_slice(total, [0], [k * c], [(k + 1) * c]) for k in range(len(sums))]
        return [ops.reshape(part, s.shape) for part, s in zip(parts, sums, strict=True)]


def _of_ranks(data: Any, axis: int, epsilon: float, num_workers: int) -> _OfRanks:
    own = statistics(data, axis, epsilon)
    return _OfRanks(own.x, own.axes, epsilon, own, num_workers)


def _decomposed(
    data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, num_workers: int, axis: int, epsilon: float,
    center: bool, scale: bool, momentum: float, training: bool, unbiased: bool,
) -> Any:  # fmt: skip
    if not training:
        return ops.nn.batch_norm(
            data, gamma, beta, moving_mean, moving_var, axis, epsilon, center, scale, momentum, False, unbiased
        )
    m = _of_ranks(data, axis, epsilon, num_workers)
    out = normalized(m, data, gamma, beta, axis=axis, center=center, scale=scale)
    return Tuple((out, *moved(m, moving_mean, moving_var, momentum, m.correction(unbiased))))


def _gradient(
    adjoints: Sequence[Any], y: Any, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *,
    num_workers: int, axis: int, epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
    unbiased: bool,
) -> tuple[Any, ...]:  # fmt: skip
    form: dict[str, Any] = {"axis": axis, "center": center, "scale": scale}
    if not training:
        return adjoints_in_inference(adjoints, data, gamma, (moving_mean, moving_var), epsilon=epsilon, **form)
    m = _of_ranks(data, axis, epsilon, num_workers)
    return adjoints_in_training(
        m, adjoints, data, gamma, momentum=momentum, n=m.count, correction=lambda: m.correction(unbiased),
        summed=m.summed, **form,
    )  # fmt: skip


def _array(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, moving_mean: np.ndarray, moving_var: np.ndarray, *,
    num_workers: int, axis: int, epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
    unbiased: bool,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    kind, kept = np.dtype(wide(data.dtype.name)).type, moving_mean.dtype
    x, others = data.astype(kind), tuple(split_axes(data, axis)[1])
    mean, variance = moving_mean.astype(kind), moving_var.astype(kind)
    if training:
        own = np.mean(x, others), np.var(x, others), [math.prod(x.shape[a] for a in others)]
        message, c = np.concatenate(own, dtype=np.float64), len(mean)
        (found,) = current().collective("gather_pieces", [message], [(num_workers, 2 * c + 1)], ranks=num_workers)
        counts = found[:, 2 * c :]
        n = counts.sum()
        if unbiased:
            check_values(int(n), NAME)
        batch = (found[:, :c] * (counts / n)).sum(0)
        spread = ((found[:, c : 2 * c] + (found[:, :c] - batch) ** 2) * (counts / n)).sum(0)
        batch, spread = batch.astype(kind), spread.astype(kind)
        news = batch, spread * kind(n / (n - 1) if unbiased else 1)
        keep, take = kind(1.0 - momentum), kind(momentum)
        moving_mean, moving_var = (keep * old + take * new for old, new in zip((mean, variance), news, strict=True))
        mean, variance = batch, spread
    y = (x - spread_array(mean, x, axis)) / np.sqrt(spread_array(variance, x, axis) + kind(epsilon))
    y = y * spread_array(gamma, x, axis) if scale else y
    y = y + spread_array(beta, x, axis) if center else y
    return y.astype(data.dtype), moving_mean.astype(kept), moving_var.astype(kept)


composite(
    NAME,
    "data, gamma, beta, moving_mean, moving_var | num_workers, axis=1, epsilon=1e-05, center=True, scale=True,"
    " momentum=0.1, training=True, unbiased=True",
    te=None,
    infer=_infer,
    decompose=_decomposed,
    numpy=_array,
    gradient=_gradient,
    initial={"gamma": 1.0, "moving_var": 1.0},
    precision="data",
    zeros="mixes",
    family="normalisation",
    doc="nn.batch_norm over the rows of num_workers ranks: in training, mean and variance are those of all ranks'\n"
    "rows, whose numbers may differ, and so are the moving statistics. All ranks have to call it. The\n"
    "adjoint of data is that of the sum of the ranks' results; those of gamma and beta are a rank's share. In\n"
    "inference it is nn.batch_norm. PyTorch's SyncBatchNorm.",
    samples=[  # in training it is a collective: tests/relax/op/test_sync_batch_norm.py
        sample((3, 17), (17,), (17,), (17,), Floats((17,), 0.5, 2.0), num_workers=1, axis=-1, training=False),
        sample((2, 3, 4), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), num_workers=4, training=False),
        sample((1, 3, 1), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), num_workers=2, training=False, center=False),
    ],
)
