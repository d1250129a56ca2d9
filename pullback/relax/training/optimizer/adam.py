"""Adam and its kin: averages of gradients and of their squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.training.optimizer.base import (
    Now,
    Optimizer,
    Step,
    average,
    powers_left,
    regularized,
    shrunk,
    signed,
    steps_made,
)
from pullback.relax.training.optimizer.value import (
    Hyperparameter,
    Scalar,
    as_scalar,
    complement,
    flag,
    hyperparameter,
    momenta,
)


class Moments(Optimizer):
    """What Adam and its kin share: two averages of weights beta1, beta2, and the products of those in float64.

    Products in float64, as in PyTorch: 1 - 0.999 in float32 is wrong by 5e-5, and all first steps with it.
    """

    slots: tuple[str, ...] = ("m", "v")
    scalars = {"beta1_prod": 1.0, "beta2_prod": 1.0}  # noqa: RUF012
    scalar_dtype = "float64"

    def __init__(self, name: str, lr: Any, betas: Any, eps: Any, weight_decay: Any, maximize: Any) -> None:
        super().__init__(name)
        self.lr = hyperparameter("lr", lr, 0.0)
        self.beta1, self.beta2 = momenta(betas)
        self.eps = hyperparameter("eps", eps, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)
        self.maximize = flag("maximize", maximize)

    def advance(self, scalars: dict[str, Expr], values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        betas = {"beta1_prod": values["beta1"], "beta2_prod": values["beta2"]}
        return {k: op.multiply(scalars[k], as_scalar(beta)) for k, beta in betas.items()}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        return _corrections(now, *now.scalars)

    def averages(self, step: Step, gradient: Expr, m: Expr, v: Expr) -> tuple[Var, Var]:
        """The new averages of the gradients and of their squares."""
        m_new = step.emit(average(step, m, gradient, "beta1"), "m_new")
        return m_new, step.emit(average(step, v, op.multiply(gradient, gradient), "beta2"), "v_new")

    def corrected(self, step: Step, m: Expr, v: Expr) -> tuple[Var, Var]:
        """The averages over the gradients so far alone: the zeros from which they began taken out."""
        m_hat = step.emit(op.multiply(m, step.value("beta1_prod_correction", m.dtype)), "m_hat")
        return m_hat, step.emit(op.multiply(v, step.value("beta2_prod_correction", v.dtype)), "v_hat")


def _corrections(now: Now, *products: str) -> dict[str, Scalar]:
    """For each product of momenta βᵗ, 1 / (1 - βᵗ): a factor, as division by a scalar would take a core longer than all
    else there is to an element."""
    return {f"{name}_correction": op.divide(as_scalar(1.0), powers_left(now.scalars, name)) for name in products}


class Adam(Moments):
    """``torch.optim.Adam`` (weight decay is L2); states (num_steps, beta1ᵗ, beta2ᵗ, m of each parameter, v of each):

    g ← g + weight_decay · p                                     with maximize, g ← -g first
    m ← beta1 · m + (1 - beta1) · g
    v ← beta2 · v + (1 - beta2) · g²
    p ← p - lr · (m / (1 - beta1ᵗ)) / (√(v / (1 - beta2ᵗ)) + eps)

    With amsgrad, the greatest v so far, a state v_max of each parameter, takes the place of v in the last line.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the averages of gradients and of their squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        amsgrad: whether the greatest average of squares so far is taken.
        maximize: whether the loss is made larger.

    Examples:
        >>> trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=1e-3), example=x)
    """

    decoupled = False  # weight decay shrinks the parameter, and is no part of the gradient

    def __init__(
        self,
        lr: Hyperparameter = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(type(self).__name__, lr, betas, eps, weight_decay, maximize)
        self.amsgrad = flag("amsgrad", amsgrad)
        if self.amsgrad:
            self.slots = (*self.slots, "v_max")

    def update(self, step: Step, param: Var, gradient: Var, m: Var, v: Var, *greatest: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient, param = descent(step, param, gradient, self.decoupled)
        m, v = self.averages(step, gradient, m, v)
        greatest = tuple(step.emit(op.maximum(old, v), "v_max_new") for old in greatest)
        m_hat, v_hat = self.corrected(step, m, greatest[0] if greatest else v)
        direction = op.divide(m_hat, op.add(op.sqrt(v_hat), step.value("eps", dtype)))
        return op.subtract(param, op.multiply(step.value("lr", dtype), direction)), m, v, *greatest


class AdamW(Adam):
    """``torch.optim.AdamW``: Adam with decoupled weight decay, p ← (1 - lr · weight_decay) · p before the step.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the average in the update and of the average that is kept.
        eps: what is added to the denominator.
        weight_decay: how much the parameter shrinks in a step, in units of lr (decoupled from the gradient).
        amsgrad: whether the greatest average of squares so far is taken.
        maximize: whether the loss is made larger.

    Examples:
        >>> optim.AdamW(lr=optim.CosineAnnealingLR(3e-4, 1000), weight_decay=0.1)
        AdamW(lr=CosineAnnealingLR(lr=0.0003, T_max=1000, eta_min=0.0), beta1=0.9, beta2=0.999, ...)
    """

    decoupled = True

    def __init__(
        self,
        lr: Hyperparameter = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, amsgrad, maximize)


class NAdam(Moments):
    """``torch.optim.NAdam``, Adam with Nesterov's momentum; states (num_steps, μ₁⋯μₜ, beta2ᵗ, m …, v …):

    μₜ = beta1 · (1 - 0.96^(t · momentum_decay) / 2)
    p ← p - lr · ((1 - μₜ) / (1 - μ₁⋯μₜ) · g + μₜ₊₁ / (1 - μ₁⋯μₜ₊₁) · m) / (√(v / (1 - beta2ᵗ)) + eps)

    Weight decay is L2, or with ``decoupled_weight_decay`` that of AdamW.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the averages of gradients and of their squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        momentum_decay: of the formula.
        decoupled_weight_decay: whether weight decay is AdamW's rather than L2.
        maximize: whether the loss is made larger.
    """

    scalars = {"mu_prod": 1.0, "beta2_prod": 1.0}  # noqa: RUF012

    def __init__(
        self,
        lr: Hyperparameter = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 0,
        momentum_decay: Hyperparameter = 4e-3,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__("NAdam", lr, betas, eps, weight_decay, maximize)
        self.momentum_decay = hyperparameter("momentum_decay", momentum_decay, 0.0)
        self.decoupled_weight_decay = flag("decoupled_weight_decay", decoupled_weight_decay)

    def advance(self, scalars: dict[str, Expr], values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        beta2 = op.multiply(scalars["beta2_prod"], as_scalar(values["beta2"]))
        return {"mu_prod": op.multiply(scalars["mu_prod"], values["mu"]), "beta2_prod": beta2}

    def values_at(self, builder: BlockBuilder, count: Expr, states: Sequence[Expr]) -> dict[str, Any]:
        values = super().values_at(builder, count, states)

        def mu(t: Expr) -> Expr:
            half = 0.5 * op.power(as_scalar(0.96), t * values["momentum_decay"])
            return builder.emit(as_scalar(values["beta1"]) * (1.0 - half), "mu")

        return values | {"mu": mu(steps_made(count)), "mu_next": mu(steps_made(count, 2.0))}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        mu, mu_next, product, lr = now.values["mu"], now.values["mu_next"], now.scalars["mu_prod"], now.values["lr"]
        return _corrections(now, "beta2_prod") | {
            "of_gradient": lr * (1.0 - mu) / (1.0 - product),
            "of_average": lr * mu_next / (1.0 - product * mu_next),
        }

    def update(self, step: Step, param: Var, gradient: Var, m: Var, v: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient, param = descent(step, param, gradient, self.decoupled_weight_decay)
        m, v = self.averages(step, gradient, m, v)
        v_hat = step.emit(op.multiply(v, step.value("beta2_prod_correction", dtype)), "v_hat")
        ahead = op.add(
            op.multiply(step.value("of_gradient", dtype), gradient), op.multiply(step.value("of_average", dtype), m)
        )
        return op.subtract(param, op.divide(ahead, op.add(op.sqrt(v_hat), step.value("eps", dtype)))), m, v


class RAdam(Moments):
    """``torch.optim.RAdam``, Adam with rectified variance; states as Adam's:

    ρ∞ = 2 / (1 - beta2) - 1;    ρ = ρ∞ - 2t · beta2ᵗ / (1 - beta2ᵗ)
    r = √((ρ - 4)(ρ - 2) ρ∞ / ((ρ∞ - 4)(ρ∞ - 2) ρ))
    p ← p - lr · m / (1 - beta1ᵗ) · r · √(1 - beta2ᵗ) / (√v + eps)          where ρ > 5
    p ← p - lr · m / (1 - beta1ᵗ)                                           elsewhere

    Weight decay is L2, or with ``decoupled_weight_decay`` that of AdamW.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the averages of gradients and of their squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        decoupled_weight_decay: whether weight decay is AdamW's rather than L2.
        maximize: whether the loss is made larger.
    """

    def __init__(
        self,
        lr: Hyperparameter = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__("RAdam", lr, betas, eps, weight_decay, maximize)
        self.decoupled_weight_decay = flag("decoupled_weight_decay", decoupled_weight_decay)

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        left = powers_left(now.scalars, "beta2_prod")
        rho_inf = 2.0 / complement(now.values["beta2"]) - 1.0
        rho = rho_inf - 2.0 * steps_made(now.count) * now.scalars["beta2_prod"] / left
        rho = now.builder.emit(rho, "rho")
        rectified = op.greater(rho, as_scalar(5.0))
        safe = op.where(rectified, rho, as_scalar(6.0))  # no root of a negative number where it is not taken
        square = (safe - 4.0) * (safe - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * safe)
        rate = now.values["lr"] / powers_left(now.scalars, "beta1_prod")
        return {"rectified": rectified, "rate": rate, "adaptive_rate": rate * op.sqrt(square) * op.sqrt(left)}

    def update(self, step: Step, param: Var, gradient: Var, m: Var, v: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient, param = descent(step, param, gradient, self.decoupled_weight_decay)
        m, v = self.averages(step, gradient, m, v)
        adaptive = op.divide(step.value("adaptive_rate", dtype), op.add(op.sqrt(v), step.value("eps", dtype)))
        rate = op.where(step.values["rectified"], adaptive, step.value("rate", dtype))
        return op.subtract(param, op.multiply(rate, m)), m, v


class Adamax(Moments):
    """``torch.optim.Adamax``, Adam with the maximum norm (weight decay is L2); states (num_steps, beta1ᵗ, m …, u …):

    u ← max(beta2 · u, |g| + eps);    p ← p - lr / (1 - beta1ᵗ) · m / u

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        betas: (beta1, beta2), the decay of the averages of gradients and of their squares.
        eps: what is added to the denominator.
        weight_decay: how much of the parameter is added to its gradient (L2).
        maximize: whether the loss is made larger.
    """

    slots = ("m", "u")
    scalars = {"beta1_prod": 1.0}  # noqa: RUF012

    def __init__(
        self,
        lr: Hyperparameter = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Hyperparameter = 1e-8,
        weight_decay: Hyperparameter = 0,
        maximize: bool = False,
    ) -> None:
        super().__init__("Adamax", lr, betas, eps, weight_decay, maximize)

    def advance(self, scalars: dict[str, Expr], values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        return {"beta1_prod": op.multiply(scalars["beta1_prod"], as_scalar(values["beta1"]))}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        return {"rate": now.values["lr"] / powers_left(now.scalars, "beta1_prod")}

    def update(self, step: Step, param: Var, gradient: Var, m: Var, u: Var) -> Sequence[Expr]:
        dtype = param.dtype
        gradient = regularized(step, param, gradient)
        m = step.emit(average(step, m, gradient, "beta1"), "m_new")
        size = op.add(op.abs(gradient), step.value("eps", dtype))
        u = step.emit(op.maximum(op.multiply(step.value("beta2", dtype), u), size), "u_new")
        return op.subtract(param, op.multiply(step.value("rate", dtype), op.divide(m, u))), m, u


def descent(step: Step, param: Var, gradient: Var, decoupled: bool) -> tuple[Var, Var]:
    """Gradient and parameter after weight decay: L2, or ``decoupled``."""
    if not decoupled:
        return regularized(step, param, gradient), param
    return signed(step, gradient), shrunk(step, param)
