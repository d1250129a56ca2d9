"""Gradient descent, with momentum, and by the sign of momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.relax import op
from pullback.relax.expr import Expr, Var, const
from pullback.relax.training.optimizer.base import Optimizer, Step, average, regularized, shrunk, signed
from pullback.relax.training.optimizer.value import (
    Hyperparameter,
    cast,
    complement,
    flag,
    hyperparameter,
    is_zero,
    momenta,
)


class SGD(Optimizer):
    """Gradient descent, ``torch.optim.SGD`` without momentum; states (num_steps,):

    g ← g + weight_decay · p;    p ← p - lr · g                  with maximize, g ← -g first
    """

    def __init__(self, lr: Hyperparameter, weight_decay: Hyperparameter = 0, maximize: bool = False) -> None:
        super().__init__("SGD")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.maximize = flag("maximize", maximize)

    def update(self, step: Step, param: Var, gradient: Var) -> Sequence[Expr]:
        gradient = regularized(step, param, gradient)
        return (op.subtract(param, op.multiply(step.value("lr", param.dtype), gradient)),)


class MomentumSGD(Optimizer):
    """Gradient descent with momentum, ``torch.optim.SGD``; states (num_steps, v of each parameter):

    g ← g + weight_decay · p                       with maximize, g ← -g first
    v ← momentum · v + (1 - dampening) · g         in the first step, and without momentum, v ← g, as in PyTorch
    p ← p - lr · v                                 with nesterov p ← p - lr · (g + momentum · v)

    ``relax.optimizer.MomentumSGD`` is the reference's, which begins with v = 0 and dampens the first step too.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        momentum: how much of the last update's direction is kept.
        dampening: the gradient counts 1 - dampening.
        weight_decay: how much of the parameter is added to its gradient (L2).
        nesterov: whether the gradient is that at the place to which the momentum leads.
        maximize: whether the loss is made larger.
    """

    slots = ("v",)
    _whole_first = True  # whether v ← g in the first step

    def __init__(
        self,
        lr: Hyperparameter,
        momentum: Hyperparameter,
        dampening: Hyperparameter = 0,
        weight_decay: Hyperparameter = 0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.momentum = hyperparameter("momentum", momentum, 0.0)
        self.dampening = hyperparameter("dampening", dampening)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.nesterov = flag("nesterov", nesterov)
        self.maximize = flag("maximize", maximize)

    def update(self, step: Step, param: Var, gradient: Var, velocity: Var) -> Sequence[Expr]:
        dtype = param.dtype
        momentum, dampening = step.value("momentum", dtype), step.values["dampening"]
        gradient = regularized(step, param, gradient)
        addend: Expr = gradient
        if not self._whole_first:
            if not is_zero(dampening):
                addend = op.multiply(cast(complement(dampening), dtype), gradient)
        elif not is_zero(dampening) and not is_zero(step.values["momentum"]):
            is_whole = op.equal(step.count, const(0, "int64"))
            if isinstance(momentum, Var):  # it may be 0 in some steps
                is_whole = op.logical_or(is_whole, op.equal(momentum, const(0.0, dtype)))
            factor = op.where(is_whole, const(1.0, dtype), cast(complement(dampening), dtype))
            addend = op.multiply(factor, gradient)
        new = step.emit(op.add(op.multiply(momentum, velocity), addend), "v_new")
        nesterov = op.add(gradient, op.multiply(momentum, new))
        direction = step.emit(nesterov, "grad_nesterov") if self.nesterov else new
        return op.subtract(param, op.multiply(step.value("lr", dtype), direction)), new


class Lion(Optimizer):
    """Evolved sign momentum; states (num_steps, m of each parameter):

    p ← p - lr · (sign(beta1 · m + (1 - beta1) · g) + weight_decay · p)          with maximize, g ← -g first
    m ← beta2 · m + (1 - beta2) · g

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023, Program 1.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the average in the update and of the average that is kept.
        weight_decay: how much the parameter shrinks in a step, in units of lr (decoupled from the gradient).
        maximize: whether the loss is made larger.

    Examples:
        >>> optim.Lion(lr=1e-4).hyperparameters["lr"]
        0.0001
    """

    slots = ("m",)

    def __init__(
        self,
        lr: Hyperparameter = 1e-4,
        betas: tuple[Any, Any] = (0.9, 0.99),
        weight_decay: Hyperparameter = 0,
        maximize: bool = False,
    ) -> None:
        super().__init__("Lion")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.beta1, self.beta2 = momenta(betas)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.maximize = flag("maximize", maximize)

    def update(self, step: Step, param: Var, gradient: Var, m: Var) -> Sequence[Expr]:
        gradient = signed(step, gradient)
        direction = step.emit(op.sign(average(step, m, gradient, "beta1")), "direction")
        new = op.subtract(shrunk(step, param), op.multiply(step.value("lr", param.dtype), direction))
        return new, average(step, m, gradient, "beta2")
