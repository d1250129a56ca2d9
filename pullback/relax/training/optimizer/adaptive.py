"""Rates for each element by the size of its gradients: Adagrad and what followed it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.expr import Expr, Var
from pullback.relax.struct_info import TensorStructInfo, as_tensor
from pullback.relax.training.optimizer.base import (
    Now,
    Optimizer,
    State,
    Step,
    average,
    norm,
    regularized,
    shrunk,
    signed,
    steps_made,
)
from pullback.relax.training.optimizer.value import (
    Hyperparameter,
    Scalar,
    as_scalar,
    cast,
    flag,
    hyperparameter,
    is_zero,
    number,
    pair,
)
from pullback.runtime.dtype import numpy_dtype


class RMSprop(Optimizer):
    """``torch.optim.RMSprop``; states (num_steps, s of each parameter, with momentum v …, when centered m …):

    g ← g + weight_decay · p                                     with maximize, g ← -g first
    s ← alpha · s + (1 - alpha) · g²
    d ← g / (√s + eps)                                           centered: √(s - m²), m the average of g
    p ← p - lr · d                                               with momentum v ← momentum · v + d, p ← p - lr · v

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        alpha: the decay of the average of squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        momentum: how much of the last update's direction is kept.
        centered: whether the average of gradients is taken off.
        maximize: whether the loss is made larger.

    Examples:
        >>> optimizer = optim.RMSprop(lr=1e-2, momentum=0.9)
    """

    def __init__(
        self,
        lr: Hyperparameter = 1e-2,
        alpha: Hyperparameter = 0.99,
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 0,
        momentum: Hyperparameter = 0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__("RMSprop")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.alpha = hyperparameter("alpha", alpha, 0.0)
        self.eps = hyperparameter("eps", eps, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.momentum = hyperparameter("momentum", momentum, 0.0)
        self.centered = flag("centered", centered)
        self.maximize = flag("maximize", maximize)
        self.slots = ("s", *(("v",) if self.momentum else ()), *(("m",) if self.centered else ()))

    def update(self, step: Step, param: Var, gradient: Var, s: Var, *slots: Var) -> Sequence[Expr]:
        dtype, old = param.dtype, dict(zip(self.slots[1:], slots, strict=True))
        gradient = regularized(step, param, gradient)
        new = {"s": step.emit(average(step, s, op.multiply(gradient, gradient), "alpha"), "s_new")}
        variance: Expr = new["s"]
        if self.centered:
            m = new["m"] = step.emit(average(step, old["m"], gradient, "alpha"), "m_new")
            variance = op.subtract(variance, op.multiply(m, m))
        direction: Expr = op.divide(gradient, op.add(op.sqrt(variance), step.value("eps", dtype)))
        if "v" in old:
            kept = op.multiply(step.value("momentum", dtype), old["v"])
            direction = new["v"] = step.emit(op.add(kept, direction), "v_new")
        value = op.subtract(param, op.multiply(step.value("lr", dtype), direction))
        return value, *(new[kind] for kind in self.slots)


class Adagrad(Optimizer):
    """``torch.optim.Adagrad``; states (num_steps, s of each parameter, at first ``initial_accumulator_value``):

    g ← g + weight_decay · p                                     with maximize, g ← -g first
    s ← s + g²;    p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps)

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        lr_decay: how fast lr falls with the steps.
        weight_decay: how much of the parameter is added to its gradient (L2).
        initial_accumulator_value: what s begins as.
        eps: what is added to the denominator.
        maximize: whether the loss is made larger.
    """

    slots = ("s",)

    def __init__(
        self,
        lr: Hyperparameter = 1e-2,
        lr_decay: Hyperparameter = 0,
        weight_decay: Hyperparameter = 0,
        initial_accumulator_value: float = 0,
        eps: Hyperparameter = 1e-10,
        maximize: bool = False,
    ) -> None:
        super().__init__("Adagrad")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.lr_decay = hyperparameter("lr_decay", lr_decay, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.initial_accumulator_value = number("initial_accumulator_value", initial_accumulator_value, 0.0)
        self.eps = hyperparameter("eps", eps, 0.0)
        self.maximize = flag("maximize", maximize)

    def slots_of(self, param: Var) -> Mapping[str, State]:
        return {"s": State(as_tensor(param.struct_info), self.initial_accumulator_value, param.name)}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        lr, decay = now.values["lr"], now.values["lr_decay"]
        return {"rate": lr if is_zero(decay) else lr / (1.0 + steps_made(now.count, 0.0) * decay)}

    def update(self, step: Step, param: Var, gradient: Var, s: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient = regularized(step, param, gradient)
        s = step.emit(op.add(s, op.multiply(gradient, gradient)), "s_new")
        direction = op.divide(gradient, op.add(op.sqrt(s), step.value("eps", dtype)))
        return op.subtract(param, op.multiply(step.value("rate", dtype), direction)), s


class Adadelta(Optimizer):
    """``torch.optim.Adadelta``; states (num_steps, s of each parameter, u of each parameter):

    g ← g + weight_decay · p                                     with maximize, g ← -g first
    s ← rho · s + (1 - rho) · g²
    d ← √(u + eps) / √(s + eps) · g
    u ← rho · u + (1 - rho) · d²;    p ← p - lr · d

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        rho: the decay of both averages.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        maximize: whether the loss is made larger.
    """

    slots = ("s", "u")

    def __init__(
        self,
        lr: Hyperparameter = 1.0,
        rho: Hyperparameter = 0.9,
        eps: Hyperparameter = 1e-6,
        weight_decay: Hyperparameter = 0,
        maximize: bool = False,
    ) -> None:
        super().__init__("Adadelta")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.rho = hyperparameter("rho", rho, 0.0)
        if isinstance(self.rho, float) and self.rho > 1:
            raise ArgumentError(f"rho must be at most 1, got {rho!r}")
        self.eps = hyperparameter("eps", eps, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.maximize = flag("maximize", maximize)

    def update(self, step: Step, param: Var, gradient: Var, s: Var, u: Var) -> Sequence[Expr]:
        dtype = param.dtype
        eps = step.value("eps", dtype)
        gradient = regularized(step, param, gradient)
        s = step.emit(average(step, s, op.multiply(gradient, gradient), "rho"), "s_new")
        sizes = op.divide(op.sqrt(op.add(u, eps)), op.sqrt(op.add(s, eps)))
        delta = step.emit(op.multiply(sizes, gradient), "delta")
        u = step.emit(average(step, u, op.multiply(delta, delta), "rho"), "u_new")
        return op.subtract(param, op.multiply(step.value("lr", dtype), delta)), s, u


class Adafactor(Optimizer):
    """``torch.optim.Adafactor``; states (num_steps, r and c of each matrix, s of each other parameter):

    w ← t^beta2_decay;    α ← max(eps2, RMS(p)) · min(lr, 1 / √t)         RMS(x) is ‖x‖ / √(number of elements)
    p ← (1 - lr · weight_decay) · p                                      with maximize, g ← -g first
    r ← (1 - w) · r + w · mean over columns of g²;    c ← the same, over rows
    s ← r c / max(mean of r, eps1)                                        of vectors and scalars: (1 - w) · s + w · g²
    u ← g / max(√s, eps1);    p ← p - α · u / max(1, RMS(u) / d)

    r is of shape (…, n, 1), c of shape (…, 1, m): so the state of a matrix is far smaller than the matrix. ``eps`` is
    (eps1, eps2); None stands for the least step of the parameter's dtype. Source: Shazeer & Stern, Adafactor: Adaptive
    Learning Rates with Sublinear Memory Cost, ICML 2018, algorithms 4 and 5, with PyTorch's places for eps1.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        beta2_decay: w is t^beta2_decay.
        eps: (eps1, eps2); None stands for the least step of the parameter's dtype.
        d: the greatest root mean square of an update.
        weight_decay: how much the parameter shrinks in a step, in units of lr (decoupled from the gradient).
        maximize: whether the loss is made larger.
    """

    def __init__(
        self,
        lr: Hyperparameter = 1e-2,
        beta2_decay: Hyperparameter = -0.8,
        eps: tuple[Any, Any] = (None, 1e-3),
        d: Hyperparameter = 1.0,
        weight_decay: Hyperparameter = 0,
        maximize: bool = False,
    ) -> None:
        super().__init__("Adafactor")
        self.lr = hyperparameter("lr", lr, 0.0)
        self.beta2_decay = hyperparameter("beta2_decay", beta2_decay)
        if isinstance(self.beta2_decay, float) and self.beta2_decay > 0:
            raise ArgumentError(f"beta2_decay must be at most 0, got {beta2_decay!r}")
        eps1, eps2 = pair("eps", eps)
        self.eps1 = None if eps1 is None else number("eps[0]", eps1, 0.0)
        self.eps2 = number("eps[1]", eps2, 0.0)
        self.d = hyperparameter("d", d, 1.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.maximize = flag("maximize", maximize)

    def slots_of(self, param: Var) -> Mapping[str, State]:
        shape, dtype = param.shape, param.dtype
        shapes = {"r": (*shape[:-1], 1), "c": (*shape[:-2], 1, shape[-1])} if len(shape) > 1 else {"s": shape}
        return {k: State(TensorStructInfo(v, dtype), owner=param.name) for k, v in shapes.items()}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        t = steps_made(now.count)
        return {
            "weight": op.power(t, as_scalar(now.values["beta2_decay"])),
            "rate": op.minimum(as_scalar(now.values["lr"]), 1.0 / op.sqrt(t)),
        }

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype = param.dtype
        eps1 = float(ml_dtypes.finfo(numpy_dtype(step.dtype)).eps) if self.eps1 is None else self.eps1
        root = math.sqrt(math.prod(param.shape))
        gradient = signed(step, gradient)
        square = step.emit(op.multiply(gradient, gradient), "square")
        terms = [square] if len(slots) == 1 else [op.mean(square, axis, keepdims=True) for axis in (-1, -2)]
        weight = step.value("weight", dtype)
        new = [
            step.emit(old + weight * (term - old), f"{kind}_new")
            for kind, old, term in zip("s" if len(slots) == 1 else "rc", slots, terms, strict=True)
        ]
        variance: Expr = new[0]
        if len(new) == 2:
            mean = op.maximum(op.mean(new[0], -2, keepdims=True), cast(eps1, dtype))
            variance = op.divide(op.multiply(*new), mean)
        deviation = op.maximum(op.sqrt(variance), cast(eps1, dtype))  # eps1² may be too small for the dtype
        update = step.emit(op.divide(gradient, deviation), "raw")
        size = op.maximum(cast(self.eps2, dtype), op.divide(norm(param), cast(root, dtype)))
        excess = op.divide(norm(update), cast(root * step.values["d"], dtype))
        factor = op.divide(op.multiply(size, step.value("rate", dtype)), op.maximum(cast(1.0, dtype), excess))
        return op.subtract(shrunk(step, param), op.multiply(step.emit(factor, "factor"), update)), *new
