"""Dropout as layers: what is dropped in steps follows from the trainer's seed; ``predict`` drops nothing."""

from __future__ import annotations

from typing import Any

from pullback.nn import functional as F
from pullback.nn.functional.dropout import probability
from pullback.nn.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """``inplace`` makes no difference: values never change."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        probability(p)
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """In steps each element is 0 with the probability ``p``, and else x / (1 - p). Srivastava et al., Dropout: A Simple
    Way to Prevent Neural Networks from Overfitting, 2014.

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Examples:
        >>> net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 4))
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.dropout(input, self.p)


class Dropout1d(_Dropout):
    """In steps each channel of each row is 0 with the probability ``p``, and else x / (1 - p).

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """(N, C, L) or (C, L)."""
        return F.dropout1d(input, self.p)


class Dropout2d(_Dropout):
    """In steps each channel of each row is 0 with the probability ``p``, and else x / (1 - p). Tompson et al.,
    Efficient Object Localization Using Convolutional Networks, 2015.

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """(N, C, H, W), or (N, C, L)."""
        return F.dropout2d(input, self.p)


class Dropout3d(_Dropout):
    """In steps each channel of each row is 0 with the probability ``p``, and else x / (1 - p).

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """(N, C, D, H, W) or (C, D, H, W)."""
        return F.dropout3d(input, self.p)


class AlphaDropout(_Dropout):
    """Dropout for networks of SELU, which keeps mean 0 and variance 1: in steps each element takes with the probability
    ``p`` the value that selu tends to. Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.alpha_dropout(input, self.p, training=True)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels.

    Args:
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """(N, C, …)."""
        return F.feature_alpha_dropout(input, self.p, training=True)
