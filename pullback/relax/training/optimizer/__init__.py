"""Optimizers: from parameters to a graph function that updates them.

    >>> optimizer = SGD(0.1).init(list(params))
    >>> mod["SGD"] = optimizer.get_function()         # (params, gradients, optim_states) -> (new params, new states)
    >>> params, optimizer.state = vm["SGD"](params, gradients, optimizer.state)

The formulas are PyTorch's; the states are laid out as in TVM: the step count (int64), scalars, then for each kind of
state one tensor for each parameter. A hyperparameter is a number, a schedule of ``training.lr_schedule``, a function of
the step, or a ``RunTime`` value. Wrappers change what an optimizer is given or what becomes of its results:

    >>> EMA(ClipByGlobalNorm(ParameterGroups(AdamW(1e-3), {"*bias": {"weight_decay": 0}}), 1.0), 0.999)

An optimizer of one's own is a subclass that says which states it keeps and how one parameter changes:

    class SignSGD(Optimizer):
        def __init__(self, lr):
            super().__init__("SignSGD")
            self.lr = hyperparameter("lr", lr, 0.0)

        def update(self, step, param, gradient):
            return (param - op.sign(gradient) * step.value("lr", param.dtype),)

Overriding ``init`` and ``get_function`` themselves works as well.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.relax.training.optimizer.adam import Adam, Adamax, AdamW, NAdam, RAdam
from pullback.relax.training.optimizer.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from pullback.relax.training.optimizer.base import Now, Optimizer, State, Step
from pullback.relax.training.optimizer.groups import ParameterGroups
from pullback.relax.training.optimizer.layerwise import LAMB, LARS
from pullback.relax.training.optimizer.loss_scale import DynamicLossScale
from pullback.relax.training.optimizer.sgd import SGD, Lion, MomentumSGD
from pullback.relax.training.optimizer.value import RunTime, Schedule, hyperparameter
from pullback.relax.training.optimizer.wrapper import EMA, Accumulate, ClipByGlobalNorm, ClipByValue, Wrapper

__all__ = [
    "EMA", "LAMB", "LARS", "SGD", "Accumulate", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax",
    "ClipByGlobalNorm", "ClipByValue", "DynamicLossScale", "Lion", "MomentumSGD", "NAdam", "Now", "Optimizer",
    "ParameterGroups", "RAdam", "RMSprop", "RunTime", "Schedule", "State", "Step", "Wrapper", "hyperparameter",
]  # fmt: skip

__getattr__ = missing_from(globals())
