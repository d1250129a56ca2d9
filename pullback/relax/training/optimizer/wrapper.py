"""Wrappers: optimizers made of another optimizer, which they give other gradients, or whose results they change.

    >>> EMA(Accumulate(ClipByGlobalNorm(AdamW(1e-3), 1.0), 4), 0.999)

They are read from the outside in: this one joins the gradients of four batches, clips what that gives, hands it to
AdamW, and averages the weights after each batch. A wrapper's own states come after those of what it wraps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import BATCH_WEIGHT
from pullback.relax.expr import Expr, Var, const
from pullback.relax.struct_info import TensorStructInfo, as_tensor
from pullback.relax.training.optimizer.base import AVERAGE, AVERAGE_COUNT, Optimizer, Parameter, State
from pullback.relax.training.optimizer.value import (
    Hyperparameter,
    as_scalar,
    cast,
    complement,
    count,
    hyperparameter,
    number,
)
from pullback.tir.expr import is_half


class Wrapper(Optimizer):
    """Base of the wrappers. Those that keep a state show in the name: a checkpoint of the one is none of the other."""

    def __init__(self, optimizer: Optimizer) -> None:
        kind = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            given = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else repr(optimizer)
            raise ArgumentError(
                f"{kind} wraps an optimizer, such as Adam(1e-3), got {given}",
                hint="write ClipByGlobalNorm(Adam(1e-3), 1.0)",
            )
        if type(optimizer).get_function is not Optimizer.get_function or type(optimizer).init is not Optimizer.init:
            message = f"{kind} cannot wrap {type(optimizer).__name__}, which makes its function itself"
            raise ArgumentError(message, hint="override update in place of init and get_function")
        super().__init__(optimizer.name)
        self.optimizer = optimizer

    @property
    def hyperparameters(self) -> dict[str, float | str]:
        """Those of the wrapped optimizer, and its own."""
        return self.optimizer.hyperparameters | super().hyperparameters

    def is_frozen(self, name: str) -> bool:
        return self.optimizer.is_frozen(name)

    def freeze(self, names: Collection[str]) -> None:
        self.optimizer.freeze(names)

    def take_loss(self, adds_up: bool) -> None:
        super().take_loss(adds_up)
        self.optimizer.take_loss(adds_up)

    def take(self, params: list[Var]) -> None:
        super().take(params)
        self.optimizer.take(params)

    def states(self, params: Sequence[Var]) -> list[State]:
        return self.optimizer.states(params) + self._run_time_states() + self.own_states(params)

    def own_states(self, params: Sequence[Var]) -> list[State]:
        """What it keeps itself."""
        return []

    def emit(
        self, builder: BlockBuilder, count: Expr, params: Sequence[Parameter], states: Sequence[Expr]
    ) -> tuple[list[Expr], list[Expr]]:
        declared = [p.declared for p in params]
        first = len(self.optimizer.states(declared))
        own = first + len(self._run_time_states())
        values = self.values_at(builder, count, states[first:own])
        inner, run_time, mine = states[:first], states[first:own], states[own:]
        new, changed, kept = self.wrap(builder, count, params, inner, mine, values)
        return new, [*changed, *run_time, *kept]

    def wrap(
        self,
        builder: BlockBuilder,
        count: Expr,
        params: Sequence[Parameter],
        inner: Sequence[Expr],
        own: Sequence[Expr],
        values: dict[str, Any],
    ) -> tuple[list[Expr], list[Expr], list[Expr]]:
        """Emit the update: the new parameters, the wrapped optimizer's new states, and its own."""
        new, changed = self.optimizer.emit(builder, count, self.clipped(builder, params, values), inner)
        return new, changed, list(own)

    def clipped(self, builder: BlockBuilder, params: Sequence[Parameter], values: dict[str, Any]) -> list[Parameter]:
        """The parameters with other gradients."""
        return list(params)

    def __repr__(self) -> str:
        own = ", ".join(f"{k}={v!r}" for k, v in self._hyperparameters().items())
        return f"{type(self).__name__}({', '.join(filter(None, (repr(self.optimizer), own)))})"


class ClipByValue(Wrapper):
    """Gradients limited to ±max_value, element by element: ``torch.nn.utils.clip_grad_value_``.

    Args:
        optimizer: the optimizer that is wrapped.
        max_value: the greatest absolute value of an element.
    """

    def __init__(self, optimizer: Optimizer, max_value: Hyperparameter) -> None:
        super().__init__(optimizer)
        self.max_value = hyperparameter("max_value", max_value, 0.0)

    def clipped(self, builder: BlockBuilder, params: Sequence[Parameter], values: dict[str, Any]) -> list[Parameter]:
        def limited(p: Parameter) -> Expr:
            most = cast(values["max_value"], p.gradient.dtype)
            return op.maximum(op.minimum(p.gradient, most), op.negative(most))

        return [with_gradient(builder, p, limited(p)) for p in params]


class ClipByGlobalNorm(Wrapper):
    """Gradients scaled by min(1, max_norm / (‖g‖ + 1e-6)), ‖g‖ the norm over all trained parameters:
    ``torch.nn.utils.clip_grad_norm_``. ``norm_type`` is the p of the p-norm; ``float("inf")`` takes the greatest
    absolute value.

    Args:
        optimizer: the optimizer that is wrapped.
        max_norm: the greatest norm.
        norm_type: the p of the p-norm; ``float("inf")`` takes the greatest absolute value.

    Examples:
        >>> optimizer = optim.ClipByGlobalNorm(optim.SGD(lr=0.1, momentum=0.9), 1.0)
    """

    def __init__(self, optimizer: Optimizer, max_norm: Hyperparameter, norm_type: float = 2.0) -> None:
        super().__init__(optimizer)
        self.max_norm = hyperparameter("max_norm", max_norm, 0.0)
        self.norm_type = (
            math.inf if isinstance(norm_type, float) and norm_type == math.inf else number("norm_type", norm_type)
        )
        if self.norm_type <= 0:
            raise ArgumentError(f"norm_type must be positive, got {norm_type!r}")

    def clipped(self, builder: BlockBuilder, params: Sequence[Parameter], values: dict[str, Any]) -> list[Parameter]:
        gradients = [builder.emit(p.gradient, f"{p.declared.name}_grad") for p in params]
        total = builder.emit(self._norm(gradients), "grad_norm")
        scale = as_scalar(values["max_norm"]) / (total + 1e-6)
        scale = builder.emit(op.minimum(scale, as_scalar(1.0)), "grad_scale")
        pairs = zip(params, gradients, strict=True)
        return [with_gradient(builder, p, op.multiply(cast(scale, g.dtype), g)) for p, g in pairs]

    def _norm(self, gradients: Sequence[Expr]) -> Expr:
        """The norm of all elements of all gradients, a float64 scalar."""
        if self.norm_type == math.inf:
            parts = [cast(op.max(op.abs(g)), "float64") for g in gradients]
            total = parts[0]
            for part in parts[1:]:
                total = op.maximum(total, part)
            return total
        powers = [op.multiply(g, g) if self.norm_type == 2 else self._power(op.abs(g)) for g in gradients]
        sums = [cast(op.sum(power), "float64") for power in powers]
        total = sums[0]
        for part in sums[1:]:
            total = op.add(total, part)
        return op.sqrt(total) if self.norm_type == 2 else op.power(total, as_scalar(1 / self.norm_type))

    def _power(self, size: Expr) -> Expr:
        return size if self.norm_type == 1 else op.power(size, cast(self.norm_type, size.dtype))


class Accumulate(Wrapper):
    """One step of the wrapped optimizer for ``every`` batches, with the gradient that the loss of all their rows has.

    Calls in between add to sums, one for each parameter (in float32 of half precision), and change no parameter and no
    state of the wrapped optimizer, whose step count (that of its schedules) is the number of its own steps.

    A batch weighs as much as its loss's divisor (how many rows or elements it counts, or the sum of their weights):
    Σ divisor·gradient / Σ divisor, so batches may differ in size, and one that counts nothing weighs 0. Where none
    counts, the gradient is 0. Gradients of a loss that is a sum add up. A trainer's step puts the divisor of the batch
    in the state ``divisor``; by itself, the optimizer function takes what it is given there, 1 at first.

    Args:
        optimizer: the optimizer that is wrapped.
        every: batches for a step.

    Examples:
        >>> optimizer = optim.Accumulate(optim.Adam(1e-3), every=4)
    """

    def __init__(self, optimizer: Optimizer, every: int) -> None:
        super().__init__(optimizer)
        self.name = f"Accumulate({optimizer.name})"
        self.every = count("every", every)

    def own_states(self, params: Sequence[Var]) -> list[State]:
        infos = [TensorStructInfo(p.shape, "float32" if is_half(p.dtype) else p.dtype) for p in params]
        sums = [State(info, owner=p.name, name="grad_sum") for p, info in zip(params, infos, strict=True)]
        if self._loss_adds_up:
            return sums
        scalar = TensorStructInfo((), "float64")
        return [State(scalar, 1.0, name="divisor", role=BATCH_WEIGHT), State(scalar, name="divisor_sum"), *sums]

    def wrap(
        self,
        builder: BlockBuilder,
        count: Expr,
        params: Sequence[Parameter],
        inner: Sequence[Expr],
        own: Sequence[Expr],
        values: dict[str, Any],
    ) -> tuple[list[Expr], list[Expr], list[Expr]]:
        every = const(self.every, "int64")
        is_last = builder.emit(op.equal(op.mod(count, every), const(self.every - 1, "int64")), "is_last")
        divisors, old_sums = own[: -len(params)], own[-len(params) :]
        weight = total_weight = None
        if divisors:
            weight = builder.emit(divisors[0], "divisor")
            total_weight = builder.emit(op.add(divisors[1], weight), "divisor_sum")
        given: list[Parameter] = []
        sums: list[Expr] = []
        for parameter, old in zip(params, old_sums, strict=True):
            name, dtype = parameter.declared.name, old.dtype
            gradient = parameter.gradient if weight is None else op.multiply(parameter.gradient, cast(weight, dtype))
            total = builder.emit(op.add(old, gradient), f"{name}_grad_sum")
            mean = total if total_weight is None else op.divide(total, cast(_not_zero(total_weight), dtype))
            given.append(with_gradient(builder, parameter, mean))
            sums.append(builder.emit(op.where(is_last, cast(0.0, dtype), total), f"{name}_grad_sum_new"))
        kept: list[Expr] = []
        if total_weight is not None:
            zero = cast(0.0, "float64")
            kept = [divisors[0], builder.emit(op.where(is_last, zero, total_weight), "divisor_sum_new")]
            states = self.optimizer.states([p.declared for p in params])
            inner = [total_weight if s.role == BATCH_WEIGHT else v for s, v in zip(states, inner, strict=True)]
        made = builder.emit(op.floor_divide(count, every), "num_steps_inner")
        new, changed = self.optimizer.emit(builder, made, given, inner)

        def on_last(value: Expr, old: Expr) -> Expr:
            return old if value is old else builder.emit(op.where(is_last, value, old))

        values_old = [p.value for p in params]
        return list(map(on_last, new, values_old)), list(map(on_last, changed, inner)), kept + sums


def _not_zero(total: Expr) -> Expr:
    """What a sum is divided by that is 0 where the total is."""
    return op.where(op.equal(total, as_scalar(0.0)), as_scalar(1.0), total)


class EMA(Wrapper):
    """Keeps an exponential moving average of each trained parameter: a ← decay · a + (1 - decay) · p, a ← p in the
    first step, as ``torch.optim.swa_utils.AveragedModel`` with ``get_ema_avg_fn(decay)``.

    Training does not look at the averages. ``trainer.predict(…, averaged=True)`` and ``evaluate(…, averaged=True)``
    take them in place of the parameters, and ``trainer.averages`` gives them.

    Args:
        optimizer: the optimizer that is wrapped.
        decay: of the average.

    Examples:
        >>> averaging = pullback.trainer(net, "cross_entropy", optim.EMA(optim.Adam(), decay=0.99), example=x)
        >>> averaging.predict(x, averaged=True).shape
        (64, 4)
    """

    def __init__(self, optimizer: Optimizer, decay: Hyperparameter = 0.999) -> None:
        super().__init__(optimizer)
        self.name = f"EMA({optimizer.name})"
        if any(isinstance(part, EMA) for part in layers(optimizer)):
            raise ArgumentError("an optimizer keeps one average of each parameter: EMA is in EMA")
        self.decay = hyperparameter("decay", decay, 0.0)
        if isinstance(self.decay, float) and self.decay > 1:
            raise ArgumentError(f"decay must be at most 1, got {decay!r}")

    def own_states(self, params: Sequence[Var]) -> list[State]:
        made = State(TensorStructInfo((), "int64"), name="num_averaged", role=AVERAGE_COUNT)
        return [made, *(State(as_tensor(p.struct_info), owner=p.name, name="average", role=AVERAGE) for p in params)]

    def wrap(
        self,
        builder: BlockBuilder,
        count: Expr,
        params: Sequence[Parameter],
        inner: Sequence[Expr],
        own: Sequence[Expr],
        values: dict[str, Any],
    ) -> tuple[list[Expr], list[Expr], list[Expr]]:
        new, changed = self.optimizer.emit(builder, count, params, inner)
        made, *old = own
        is_first = builder.emit(op.equal(made, const(0, "int64")), "is_first")
        kept: list[Expr] = [builder.emit(op.add(made, const(1, "int64")), "num_averaged_new")]
        for parameter, value, average in zip(params, new, old, strict=True):
            dtype = average.dtype
            decay, rest = cast(values["decay"], dtype), cast(complement(values["decay"]), dtype)
            mixed = op.add(op.multiply(decay, average), op.multiply(rest, value))
            kept.append(builder.emit(op.where(is_first, value, mixed), f"{parameter.declared.name}_average_new"))
        return new, changed, kept


def with_gradient(builder: BlockBuilder, parameter: Parameter, gradient: Expr) -> Parameter:
    name = f"{parameter.declared.name}_grad"
    return Parameter(parameter.declared, parameter.value, builder.emit(gradient, name))


def layers(optimizer: Optimizer) -> list[Optimizer]:
    """An optimizer, what it wraps, and so on."""
    return [optimizer, *(layers(optimizer.optimizer) if isinstance(optimizer, Wrapper) else ())]
