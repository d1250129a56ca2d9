"""Optimizers under PyTorch's names and defaults: ``from pullback import optim``.

    >>> optim.AdamW(lr=3e-4, weight_decay=0.1)
    >>> optim.ClipByGlobalNorm(optim.SGD(lr=optim.OneCycleLR(0.1, 1000), momentum=0.9), 1.0)

A learning rate is a number, a schedule, or ``RunTime(0.1)``, which can be set between steps. What an optimizer is, and
how to write one, says ``pullback.relax.training.optimizer``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pullback.ir.words import explained, missing_from
from pullback.relax.training import lr_schedule
from pullback.relax.training.optimizer import (
    EMA,
    LAMB,
    LARS,
    Accumulate,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    ClipByGlobalNorm,
    ClipByValue,
    DynamicLossScale,
    Lion,
    MomentumSGD,
    NAdam,
    Optimizer,
    ParameterGroups,
    RAdam,
    RMSprop,
    RunTime,
    Schedule,
)
from pullback.relax.training.optimizer import SGD as PlainSGD  # noqa: N811


@partial(explained, name="SGD")
def SGD(  # noqa: N802  a class in PyTorch
    lr: Any = 1e-3,
    momentum: Any = 0.0,
    dampening: Any = 0.0,
    weight_decay: Any = 0.0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
) -> Optimizer:
    """Stochastic gradient descent, with momentum where it is not 0: ``torch.optim.SGD``.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        momentum: how much of the last update's direction is kept.
        dampening: the gradient counts 1 - dampening.
        weight_decay: how much of the parameter is added to its gradient (L2).
        nesterov: whether the gradient is that at the place to which the momentum leads.
        maximize: whether the loss is made larger.

    Returns:
        a plain SGD, or a MomentumSGD.

    Examples:
        >>> optim.SGD(lr=0.1)
        SGD(lr=0.1, weight_decay=0.0, maximize=False)
        >>> type(optim.SGD(lr=0.1, momentum=0.9)).__name__
        'MomentumSGD'
    """
    if isinstance(momentum, (int, float)) and momentum == 0 and not nesterov:
        return PlainSGD(lr, weight_decay, maximize)
    return MomentumSGD(lr, momentum, dampening, weight_decay, nesterov, maximize)


BY_NAME = {
    "sgd": lambda: SGD(1e-2), "adam": Adam, "adamw": AdamW, "nadam": NAdam, "radam": RAdam, "adamax": Adamax,
    "rmsprop": RMSprop, "adagrad": Adagrad, "adadelta": Adadelta, "adafactor": Adafactor, "lion": Lion,
    "lamb": lambda: LAMB(1e-3),
}  # fmt: skip  # optimizers with their default arguments

_SCHEDULES = [name for name in lr_schedule.__all__ if name != "Schedule"]
globals().update({name: getattr(lr_schedule, name) for name in _SCHEDULES})

__all__ = [
    "EMA", "LAMB", "LARS", "SGD", "Accumulate", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "ClipByGlobalNorm", "ClipByValue", "DynamicLossScale", "Lion", "MomentumSGD", "NAdam", "Optimizer",
    "ParameterGroups", "RAdam", "RMSprop", "RunTime", "Schedule", "lr_schedule", *_SCHEDULES,
]  # fmt: skip

__getattr__ = missing_from(globals())
