"""What differs between steps of training and ``predict``."""

from __future__ import annotations

from typing import Any

from pullback.relax import op

__all__ = ["in_train_phase"]


def in_train_phase(x: Any, alt: Any) -> Any:
    """``x`` in steps of training, ``alt`` in ``predict`` and ``evaluate``: two tensors of one shape and dtype.

    For layers of one's own that differ as dropout does; Keras's ``backend.in_train_phase``.

    >>> def forward(self, x):
    ...     return F.in_train_phase(x + 0.1 * R.random.normal(shape=x.shape), x)  # noise in training

    Args:
        x: taken in steps of training.
        alt: taken otherwise.

    Returns:
        one of the two.
    """
    return op.nn.in_train_phase(x, alt)
