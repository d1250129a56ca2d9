"""Optimizers of Keras, with its formulas: where they differ from PyTorch's, in classes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras import ops

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Expr, Var
from pullback.relax.frontend.converters import check_supported
from pullback.relax.frontend.keras.table import KERAS
from pullback.relax.frontend.keras.trace import Trace
from pullback.relax.struct_info import as_tensor
from pullback.relax.training.optimizer import Adadelta as PlainAdadelta
from pullback.relax.training.optimizer import ClipByGlobalNorm, ClipByValue, NAdam, Optimizer
from pullback.relax.training.optimizer import Lion as PlainLion
from pullback.relax.training.optimizer.adam import Moments
from pullback.relax.training.optimizer.base import Now, State, Step, average, powers_left, shrunk
from pullback.relax.training.optimizer.value import Scalar, Schedule, flag, hyperparameter, number

__all__ = ["KerasSchedule", "optimizer_of"]


class KerasSchedule(Schedule):
    """A learning rate schedule of Keras, by its own formula."""

    def __init__(self, schedule: Any) -> None:
        self.name, self._schedule = f"{type(schedule).__name__} {schedule.get_config()}", schedule

    def value(self, step: Expr) -> Scalar:
        trace = Trace()
        found = trace.function(self._schedule, step)
        check_supported(KERAS, trace.missing)
        return op.astype(found, "float64") if isinstance(found, Expr) else float(found)


class _Decoupled(Optimizer):
    """What these share: weight decay shrinks the parameter, p ← (1 - lr·weight_decay)·p, before the step."""

    def __init__(self, name: str, lr: Any, weight_decay: Any) -> None:
        super().__init__(name)
        self.lr = hyperparameter("lr", lr, 0.0)
        self.weight_decay = hyperparameter("weight_decay", weight_decay, 0.0)


class KerasSGD(_Decoupled):
    """v ← momentum·v - lr·g;  p ← p + v, with nesterov p ← p + momentum·v - lr·g;  without momentum p ← p - lr·g."""

    def __init__(self, lr: Any, momentum: float = 0.0, nesterov: bool = False, weight_decay: Any = 0) -> None:
        super().__init__("KerasSGD", lr, weight_decay)
        self.momentum, self.nesterov = number("momentum", momentum, 0.0), flag("nesterov", nesterov)
        self.slots = ("v",) if self.momentum else ()

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype = param.dtype
        descent = step.emit(op.multiply(step.value("lr", dtype), gradient), "descent")
        start = shrunk(step, param)
        if not slots:
            return (op.subtract(start, descent),)
        momentum = step.value("momentum", dtype)
        v = step.emit(op.subtract(op.multiply(momentum, slots[0]), descent), "v_new")
        move = op.subtract(op.multiply(momentum, v), descent) if self.nesterov else v
        return op.add(start, move), v


class KerasAdam(Moments):
    """p ← (1 - lr·weight_decay)·p - lr·√(1 - beta2ᵗ)/(1 - beta1ᵗ)·m/(√v + eps): eps stands beside √v itself."""

    def __init__(
        self, lr: Any, betas: tuple[Any, Any], eps: float, amsgrad: bool = False, weight_decay: Any = 0
    ) -> None:
        super().__init__("KerasAdam", lr, betas, eps, weight_decay, False)
        self.amsgrad = flag("amsgrad", amsgrad)
        if self.amsgrad:
            self.slots = (*self.slots, "v_max")

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        left = powers_left(now.scalars, "beta2_prod")
        rate = now.values["lr"] * op.sqrt(left) / powers_left(now.scalars, "beta1_prod")
        return {**super().prepare(now), "rate": rate}

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype = param.dtype
        m, v, *greatest = slots
        m, v = self.averages(step, gradient, m, v)
        greatest = [step.emit(op.maximum(old, v), "v_max_new") for old in greatest]
        size = op.add(op.sqrt(greatest[0] if greatest else v), step.value("eps", dtype))
        move = op.divide(op.multiply(step.value("rate", dtype), m), size)
        return op.subtract(shrunk(step, param), move), m, v, *greatest


class KerasAdamax(Moments):
    """u ← max(beta2·u, |g|);  p ← (1 - lr·weight_decay)·p - lr/(1 - beta1ᵗ)·m/(u + eps)."""

    slots = ("m", "u")
    scalars = {"beta1_prod": 1.0}  # noqa: RUF012

    def __init__(self, lr: Any, betas: tuple[Any, Any], eps: float, weight_decay: Any = 0) -> None:
        super().__init__("KerasAdamax", lr, betas, eps, weight_decay, False)

    def advance(self, scalars: dict[str, Expr], values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        return {"beta1_prod": scalars["beta1_prod"] * values["beta1"]}

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        return {"rate": now.values["lr"] / powers_left(now.scalars, "beta1_prod")}

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype = param.dtype
        m, u = slots
        m = step.emit(average(step, m, gradient, "beta1"), "m_new")
        u = step.emit(op.maximum(op.multiply(step.value("beta2", dtype), u), op.abs(gradient)), "u_new")
        move = op.divide(op.multiply(step.value("rate", dtype), m), op.add(u, step.value("eps", dtype)))
        return op.subtract(shrunk(step, param), move), m, u


class KerasRMSprop(_Decoupled):
    """s ← rho·s + (1 - rho)·g²;  d ← lr·g/√(s + eps), centered lr·g/√(s - m² + eps);  p ← p - d, with momentum
    v ← momentum·v + d, p ← p - v."""

    def __init__(self, lr: Any, rho: float, momentum: float, eps: float, centered: bool, weight_decay: Any = 0) -> None:
        super().__init__("KerasRMSprop", lr, weight_decay)
        self.rho, self.eps = number("rho", rho, 0.0), number("eps", eps, 0.0)
        self.momentum, self.centered = number("momentum", momentum, 0.0), flag("centered", centered)
        self.slots = ("s", *(("v",) if self.momentum else ()), *(("m",) if self.centered else ()))

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype, old = param.dtype, dict(zip(self.slots, slots, strict=True))
        new = {"s": step.emit(average(step, old["s"], op.multiply(gradient, gradient), "rho"), "s_new")}
        size: Expr = new["s"]
        if self.centered:
            new["m"] = step.emit(average(step, old["m"], gradient, "rho"), "m_new")
            size = op.subtract(size, op.multiply(new["m"], new["m"]))
        move = op.divide(
            op.multiply(step.value("lr", dtype), gradient), op.sqrt(op.add(size, step.value("eps", dtype)))
        )
        if "v" in old:
            kept = op.multiply(step.value("momentum", dtype), old["v"])
            move = new["v"] = step.emit(op.add(kept, move), "v_new")
        return op.subtract(shrunk(step, param), move), *(new[kind] for kind in self.slots)


class KerasAdagrad(_Decoupled):
    """s ← s + g², at first ``initial_accumulator_value``;  p ← p - lr·g/√(s + eps)."""

    slots = ("s",)

    def __init__(self, lr: Any, initial_accumulator_value: float, eps: float, weight_decay: Any = 0) -> None:
        super().__init__("KerasAdagrad", lr, weight_decay)
        self.initial_accumulator_value = number("initial_accumulator_value", initial_accumulator_value, 0.0)
        self.eps = number("eps", eps, 0.0)

    def slots_of(self, param: Var) -> Mapping[str, State]:
        return {"s": State(as_tensor(param.struct_info), self.initial_accumulator_value, param.name)}

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        dtype = param.dtype
        (s,) = slots
        s = step.emit(op.add(s, op.multiply(gradient, gradient)), "s_new")
        size = op.sqrt(op.add(s, step.value("eps", dtype)))
        return op.subtract(shrunk(step, param), op.divide(op.multiply(step.value("lr", dtype), gradient), size)), s


# -- from Keras's objects


def _adam(o: Any, lr: Any, decay: float) -> Optimizer:
    return KerasAdam(lr, (float(o.beta_1), float(o.beta_2)), float(o.epsilon), bool(o.amsgrad), decay)


def _nadam(o: Any, lr: Any, decay: float) -> Optimizer:
    betas = (float(o.beta_1), float(o.beta_2))
    return NAdam(lr, betas, float(o.epsilon), decay, momentum_decay=1.0, decoupled_weight_decay=True)


def _adadelta(o: Any, lr: Any, decay: float) -> Optimizer:
    if decay:
        raise UserError("Adadelta with weight_decay is not taken over", hint="weight_decay=None")
    return PlainAdadelta(lr, float(o.rho), float(o.epsilon))


OPTIMIZERS: dict[str, Callable[[Any, Any, float], Optimizer]] = {
    "SGD": lambda o, lr, decay: KerasSGD(lr, float(o.momentum), bool(o.nesterov), decay),
    "Adam": _adam,
    "AdamW": _adam,
    "Nadam": _nadam,
    "Adamax": lambda o, lr, decay: KerasAdamax(lr, (float(o.beta_1), float(o.beta_2)), float(o.epsilon), decay),
    "RMSprop": lambda o, lr, decay: KerasRMSprop(
        lr, float(o.rho), float(o.momentum), float(o.epsilon), bool(o.centered), decay
    ),
    "Adagrad": lambda o, lr, decay: KerasAdagrad(
        lr, float(o.initial_accumulator_value), float(o.epsilon), decay
    ),
    "Adadelta": _adadelta,
    "Lion": lambda o, lr, decay: PlainLion(lr, (float(o.beta_1), float(o.beta_2)), decay),
}  # fmt: skip


def optimizer_of(model: Any) -> Optimizer:
    """The optimizer with which a model is compiled, with its hyperparameters, and no states."""
    given = getattr(model, "optimizer", None)
    if not getattr(model, "compiled", False) or given is None:
        raise UserError(
            f"the model {model.name} is not compiled with an optimizer",
            hint='model.compile(optimizer=…) in Keras, or give one of pullback\'s: pullback.trainer(net, loss, "adam")',
        )
    kind = type(given).__name__
    if kind not in OPTIMIZERS or not type(given).__module__.startswith("keras."):
        raise UserError(f"the optimizer {kind} is not taken over", hint=f"these are: {', '.join(OPTIMIZERS)}")
    refused = {
        "clipnorm": "global_clipnorm and clipvalue are taken over",
        "use_ema": "optim.EMA(net.optimizer, 0.99) averages weights",
        "loss_scale_factor": 'precision="float16" scales the loss by itself',
        "gradient_accumulation_steps": "optim.Accumulate(net.optimizer, n) does so",
        "_exclude_from_weight_decay": "optim.ParameterGroups gives weights hyperparameters of their own",
    }
    for name, hint in refused.items():
        if getattr(given, name, None):
            raise UserError(f"the optimizer {kind} with {name.strip('_')} is not taken over", hint=hint)
    rate = given._learning_rate
    if hasattr(rate, "get_config") and callable(rate):
        lr: Any = KerasSchedule(rate)
    elif callable(rate) and not hasattr(rate, "dtype"):
        raise UserError("a learning rate that is a function is not taken over", hint="give a number, or a schedule")
    else:
        lr = float(ops.convert_to_numpy(rate))
    found = OPTIMIZERS[kind](given, lr, float(given.weight_decay or 0.0))
    if given.global_clipnorm:
        return ClipByGlobalNorm(found, float(given.global_clipnorm))
    return ClipByValue(found, float(given.clipvalue)) if given.clipvalue else found
