"""``relax.optimizer``: the optimizers under the reference's name, with its formulas.

They are those of ``relax.training.optimizer``, but for one: :class:`MomentumSGD` dampens the first step too.
"""

from __future__ import annotations

from typing import Any

from pullback.relax.training import optimizer as _optimizer
from pullback.relax.training.optimizer import *  # noqa: F403
from pullback.relax.training.optimizer.sgd import MomentumSGD as _MomentumSGD


class MomentumSGD(_MomentumSGD):  # type: ignore[no-redef]  # in place of the one that * imports
    """Gradient descent with momentum, as the reference has it; states (num_steps, v of each parameter):

    g ← g + weight_decay · p                       with maximize, g ← -g first
    v ← momentum · v + (1 - dampening) · g         v is 0 before the first step
    p ← p - lr · v                                 with nesterov p ← p - lr · (g + momentum · v)

    ``relax.training.optimizer.MomentumSGD`` and ``optim.SGD`` are PyTorch's, where v ← g in the first step, and without
    momentum: the two differ where dampening is not 0.
    """

    _whole_first = False


def __getattr__(name: str) -> Any:
    return getattr(_optimizer, name)


__all__ = sorted(_optimizer.__all__)
