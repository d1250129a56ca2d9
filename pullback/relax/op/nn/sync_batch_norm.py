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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.batch_norm import Form, OfBatch, check_values, define_batch_norm, of_rows
from pullback.relax.op.nn.moments import Moments
from pullback.relax.op.reduction.reduce import count
from pullback.relax.op.sample import Floats, sample
from pullback.runtime.ranks import current


@dataclass(frozen=True)
class _OfRanks(OfBatch):
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

    def correction(self, name: str) -> Any:
        if self.num_workers == 1:
            check_values(name, count(self.x.shape, self.axes))
        return self.count / (self.count - 1.0)

    def summed(self, *sums: Any) -> list[Any]:
        """Sums of one element for each channel, added up over ranks, in one message."""
        c = self.channels
        total = ops.ccl.allreduce(ops.concat([ops.reshape(s, (c,)) for s in sums], axis=0), "sum")
        parts = [ops.strided_slice(total, [0], [k * c], [(k + 1) * c]) for k in range(len(sums))]
        return [ops.reshape(part, s.shape) for part, s in zip(parts, sums, strict=True)]


def _of_ranks(data: Any, form: Form) -> _OfRanks:
    own = of_rows(data, form)
    return _OfRanks(own.x, own.axes, form.epsilon, own, form.num_workers)


def _of_array(name: str, x: np.ndarray, axes: tuple[int, ...], form: Form) -> tuple[np.ndarray, ...]:
    own = np.mean(x, axes), np.var(x, axes), [math.prod(x.shape[a] for a in axes)]
    message, c = np.concatenate(own, dtype=np.float64), x.shape[form.axis]
    shape = (form.num_workers, 2 * c + 1)
    (found,) = current().collective("gather_pieces", [message], [shape], ranks=form.num_workers)
    counts = found[:, 2 * c :]
    n = counts.sum()
    if form.unbiased:
        check_values(name, int(n))
    mean = (found[:, :c] * (counts / n)).sum(0)
    variance = ((found[:, c : 2 * c] + (found[:, :c] - mean) ** 2) * (counts / n)).sum(0).astype(x.dtype)
    return mean.astype(x.dtype), variance, variance * x.dtype.type(n / (n - 1) if form.unbiased else 1)


define_batch_norm(
    "nn.sync_batch_norm",
    "num_workers, ",
    of_batch=_of_ranks,
    of_array=_of_array,
    te=None,
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
