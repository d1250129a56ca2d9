"""Rates for each parameter by the ratio of its norm to that of its update, for training with large batches.

Both norms are sums over all elements, and so precede the update of any element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.relax import op
from pullback.relax.expr import Expr, Var
from pullback.relax.training.optimizer.adam import Moments
from pullback.relax.training.optimizer.base import Optimizer, Step, norm, signed
from pullback.relax.training.optimizer.value import Hyperparameter, cast, flag, hyperparameter, is_zero


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling; states (num_steps, v of each parameter):

    λ ← trust_coefficient · ‖p‖ / (‖g‖ + weight_decay · ‖p‖ + eps)       1 where one of the norms is 0
    v ← momentum · v + lr · λ · (g + weight_decay · p)                   with maximize, g ← -g first
    p ← p - v

    Source: You, Gitman & Ginsburg, Large Batch Training of Convolutional Networks, 2017 (arXiv:1708.03888),
    algorithm 1. Biases and scales are commonly left to plain momentum: ``adaptive=False`` in their parameter group
    has λ = 1.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        momentum: how much of the last update's direction is kept.
        weight_decay: how much of the parameter is added to its update.
        trust_coefficient: the ratio of an update's norm to the parameter's.
        eps: what is added to the denominator.
        adaptive: whether the ratio of norms is used.
        maximize: whether the loss is made larger.
    """

    slots = ("v",)

    def __init__(
        self,
        lr: Hyperparameter,
        momentum: Hyperparameter = 0.9,
        weight_decay: Hyperparameter = 0,
        trust_coefficient: Hyperparameter = 0.001,
        eps: Hyperparameter = 0,
        adaptive: bool = True,
        maximize: bool = False,
    ) -> None:
        super().__init__("LARS")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.momentum = hyperparameter("momentum", momentum, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.trust_coefficient = hyperparameter("trust_coefficient", trust_coefficient, 0.0)
        self.eps = hyperparameter("eps", eps, 0.0)
        self.adaptive = flag("adaptive", adaptive)
        self.maximize = flag("maximize", maximize)

    def update(self, step: Step, param: Var, gradient: Var, velocity: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient = signed(step, gradient)
        rate: Expr = step.value("lr", dtype)
        decay = step.value("weight_decay", dtype)
        if self.adaptive:
            size, slope = step.emit(norm(param), "norm"), step.emit(norm(gradient), "grad_norm")
            below = op.add(op.add(slope, op.multiply(decay, size)), step.value("eps", dtype))
            trust = op.divide(op.multiply(step.value("trust_coefficient", dtype), size), below)
            rate = step.emit(op.multiply(rate, _where_both(size, slope, trust)), "rate")
        if not is_zero(step.values["weight_decay"]):
            gradient = step.emit(op.add(gradient, op.multiply(decay, param)), "grad_new")
        kept = op.multiply(step.value("momentum", dtype), velocity)
        new = step.emit(op.add(kept, op.multiply(rate, gradient)), "v_new")
        return op.subtract(param, new), new


class LAMB(Moments):
    """Layer-wise adaptive moments; states as Adam's:

    m, v as Adam's;    u ← (m / (1 - beta1ᵗ)) / (√(v / (1 - beta2ᵗ)) + eps) + weight_decay · p
    p ← p - lr · ‖p‖ / ‖u‖ · u                                           without the ratio where one of the norms is 0

    Source: You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR 2020,
    algorithm 2, with φ the identity. ``adaptive=False`` leaves out the ratio.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the averages of gradients and of their squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its update.
        adaptive: whether the ratio of norms is used.
        maximize: whether the loss is made larger.
    """

    def __init__(
        self,
        lr: Hyperparameter = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-6,
        weight_decay: Hyperparameter = 0,
        adaptive: bool = True,
        maximize: bool = False,
    ) -> None:
        super().__init__("LAMB", lr, betas, eps, weight_decay, maximize)
        self.adaptive = flag("adaptive", adaptive)

    def update(self, step: Step, param: Var, gradient: Var, m: Var, v: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient = signed(step, gradient)
        m, v = self.averages(step, gradient, m, v)
        m_hat, v_hat = self.corrected(step, m, v)
        direction: Expr = op.divide(m_hat, op.add(op.sqrt(v_hat), step.value("eps", dtype)))
        if not is_zero(step.values["weight_decay"]):
            direction = op.add(direction, op.multiply(step.value("weight_decay", dtype), param))
        direction = step.emit(direction, "direction")
        rate: Expr = step.value("lr", dtype)
        if self.adaptive:
            size, length = step.emit(norm(param), "norm"), step.emit(norm(direction), "direction_norm")
            rate = step.emit(op.multiply(rate, _where_both(size, length, op.divide(size, length))), "rate")
        return op.subtract(param, op.multiply(rate, direction)), m, v


def _where_both(first: Expr, second: Expr, value: Expr) -> Expr:
    """The value where both norms are positive, elsewhere 1."""
    zero, one = cast(0.0, value.dtype), cast(1.0, value.dtype)
    return op.where(op.logical_and(op.greater(first, zero), op.greater(second, zero)), value, one)
