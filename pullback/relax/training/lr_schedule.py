"""Learning-rate schedules, computed in the graph from the number of the step.

    >>> SGD(SequentialLR([LinearLR(0.1, total_iters=100), CosineAnnealingLR(0.1, T_max=900)], milestones=[100]))

Names, arguments and formulas are those of ``torch.optim.lr_scheduler``; the first argument is the rate that PyTorch
takes from the optimizer. Step t = 0 is the first; PyTorch's numbers are these when ``scheduler.step()`` follows every
``optimizer.step()``. PyTorch computes each rate from the one before; here it is the closed form, in float64: the two
differ by rounding. Any hyperparameter can be given a schedule, not only the rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.expr import Expr, const
from pullback.relax.training.optimizer.value import (
    LambdaLR,
    Scalar,
    Schedule,
    as_scalar,
    count,
    flag,
    hyperparameter,
    number,
)

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LambdaLR", "LinearLR",
    "MultiStepLR", "OneCycleLR", "PolynomialLR", "Schedule", "SequentialLR", "StepLR",
]  # fmt: skip


class ConstantLR(Schedule):
    """lr · factor in the first ``total_iters`` steps, then lr. With the default factor, lr throughout.

    Args:
        lr: the learning rate: a number, a schedule, or ``RunTime``.
        factor: of lr in the first steps.
        total_iters: how many steps that are.
    """

    def __init__(self, lr: float, factor: float = 1.0, total_iters: int = 5) -> None:
        self.lr, self.factor = number("lr", lr, 0.0), number("factor", factor, 0.0)
        self.total_iters = count("total_iters", total_iters, 0)

    def value(self, step: Expr) -> Scalar:
        if self.factor == 1:
            return self.lr
        return op.where(step < _int(self.total_iters), as_scalar(self.lr * self.factor), as_scalar(self.lr))


class StepLR(Schedule):
    """After t steps, lr · gamma^⌊t / step_size⌋.

    Args:
        lr: the first rate.
        step_size: steps between reductions.
        gamma: the factor of each.

    Examples:
        >>> optimizer = optim.SGD(lr=optim.StepLR(0.1, step_size=30))
    """

    def __init__(self, lr: float, step_size: int, gamma: float = 0.1) -> None:
        self.lr, self.step_size = number("lr", lr, 0.0), count("step_size", step_size)
        self.gamma = number("gamma", gamma, 0.0)

    def value(self, step: Expr) -> Scalar:
        return self.lr * _power(self.gamma, _float(step // _int(self.step_size)))


class MultiStepLR(Schedule):
    """After t steps, lr · gamma^(how many of the milestones are ≤ t).

    Args:
        lr: the first rate.
        milestones: the steps at which it is multiplied.
        gamma: the factor.
    """

    def __init__(self, lr: float, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.lr, self.gamma = number("lr", lr, 0.0), number("gamma", gamma, 0.0)
        self.milestones = _counts("milestones", milestones)

    def value(self, step: Expr) -> Scalar:
        rates = [self.lr]
        for _ in self.milestones:
            rates.append(rates[-1] * self.gamma)
        return _chosen(step, sorted(self.milestones), rates)


class ExponentialLR(Schedule):
    """After t steps, lr · gamma^t.

    Args:
        lr: the first rate.
        gamma: the factor of each step.
    """

    def __init__(self, lr: float, gamma: float) -> None:
        self.lr, self.gamma = number("lr", lr, 0.0), number("gamma", gamma, 0.0)

    def value(self, step: Expr) -> Scalar:
        return self.lr * _power(self.gamma, _float(step))


class PolynomialLR(Schedule):
    """After t steps, lr · (1 - min(t, total_iters) / total_iters)^power.

    Args:
        lr: the first rate.
        total_iters: steps until 0.
        power: of the polynomial.
    """

    def __init__(self, lr: float, total_iters: int = 5, power: float = 1.0) -> None:
        self.lr, self.power = number("lr", lr, 0.0), number("power", power, 0.0)
        self.total_iters = count("total_iters", total_iters)

    def value(self, step: Expr) -> Scalar:
        left = 1.0 - _clipped(step, self.total_iters) / float(self.total_iters)
        return self.lr * (left if self.power == 1 else op.power(left, as_scalar(self.power)))


class LinearLR(Schedule):
    """Linear warm-up: lr · start_factor, and so on in ``total_iters`` equal steps to lr · end_factor, then that.

    Args:
        lr: the rate of which factors are taken.
        start_factor: of the first rate.
        end_factor: of the last rate.
        total_iters: steps from one to the other.

    Examples:
        >>> optimizer = optim.SGD(lr=optim.LinearLR(0.1, start_factor=0.01, total_iters=500))
    """

    def __init__(self, lr: float, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5) -> None:
        self.lr, self.start_factor = number("lr", lr, 0.0), number("start_factor", start_factor, 0.0)
        self.end_factor, self.total_iters = number("end_factor", end_factor, 0.0), count("total_iters", total_iters)

    def value(self, step: Expr) -> Scalar:
        rise = self.end_factor - self.start_factor
        return self.lr * (self.start_factor + rise * _clipped(step, self.total_iters) / float(self.total_iters))


class CosineAnnealingLR(Schedule):
    """After t steps, eta_min + (lr - eta_min) · (1 + cos(π t / T_max)) / 2.

    As in PyTorch, the rate rises again after ``T_max`` steps: end there, or put the schedule in a
    :class:`SequentialLR`.

    Args:
        lr: the first rate.
        T_max: steps from lr to eta_min.
        eta_min: the least rate.

    Examples:
        >>> optimizer = optim.SGD(lr=optim.CosineAnnealingLR(0.1, 1000))
    """

    def __init__(self, lr: float, T_max: int, eta_min: float = 0.0) -> None:
        self.lr, self.T_max, self.eta_min = number("lr", lr, 0.0), count("T_max", T_max), number("eta_min", eta_min)

    def value(self, step: Expr) -> Scalar:
        return _cosine(self.lr, self.eta_min, _float(step) / float(self.T_max))


class CosineAnnealingWarmRestarts(Schedule):
    """The cosine's fall from lr to eta_min, again and again: in T_0 steps, then in T_0 · T_mult, T_0 · T_mult², …

    Source: Loshchilov & Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017, eq. 5.

    Args:
        lr: the first rate of each fall.
        T_0: steps of the first fall.
        T_mult: how many times longer each fall is than the one before.
        eta_min: the least rate.
    """

    def __init__(self, lr: float, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        self.lr, self.eta_min = number("lr", lr, 0.0), number("eta_min", eta_min)
        self.T_0, self.T_mult = count("T_0", T_0), count("T_mult", T_mult)

    def value(self, step: Expr) -> Scalar:
        if self.T_mult == 1:
            return _cosine(self.lr, self.eta_min, _float(step % _int(self.T_0)) / float(self.T_0))
        ratio, first, t = float(self.T_mult), float(self.T_0), _float(step)

        def start(cycle: Expr) -> Expr:  # a power of an integer, of which rounding leaves the integer
            return first * (op.round(_power(ratio, cycle)) - 1.0) / (ratio - 1.0)

        cycle = op.floor(op.log(t / first * (ratio - 1.0) + 1.0) / math.log(ratio))
        cycle = op.where(start(cycle + 1.0) <= t, cycle + 1.0, cycle)  # the logarithm may be off by its rounding
        cycle = op.where(start(cycle) > t, cycle - 1.0, cycle)
        return _cosine(self.lr, self.eta_min, (t - start(cycle)) / (first * op.round(_power(ratio, cycle))))


class OneCycleLR(Schedule):
    """Up from max_lr / div_factor to max_lr in ``pct_start`` of ``total_steps``, then down to the first rate /
    final_div_factor, along a cosine or ("linear") lines; with ``three_phase`` down to the first rate in as many steps
    as up, then on down. After the last step, the last rate (where PyTorch raises an error).

    Source: Smith & Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.
    PyTorch's ``cycle_momentum`` is left to a schedule of its own for the optimizer's momentum.

    Args:
        max_lr: the greatest rate.
        total_steps: steps of the whole cycle.
        pct_start: the part of them that goes up.
        anneal_strategy: "cos" or "linear".
        div_factor: max_lr over the first rate.
        final_div_factor: the first rate over the last.
        three_phase: whether it goes down to the first rate in as many steps as up, then on down.

    Examples:
        >>> optimizer = optim.SGD(lr=optim.OneCycleLR(0.1, total_steps=1000), momentum=0.9)
    """

    def __init__(
        self,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        self.max_lr, self.total_steps = number("max_lr", max_lr, 0.0), count("total_steps", total_steps, 2)
        self.pct_start = number("pct_start", pct_start, 0.0)
        if self.pct_start > 1:
            raise ArgumentError(f"pct_start must be at most 1, got {pct_start!r}")
        if not isinstance(anneal_strategy, str) or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f'anneal_strategy must be "cos" or "linear", got {anneal_strategy!r}')
        self.anneal_strategy = anneal_strategy
        self.div_factor = _positive("div_factor", div_factor)
        self.final_div_factor = _positive("final_div_factor", final_div_factor)
        self.three_phase = flag("three_phase", three_phase)
        ends = [end for end, _, _ in self._phases()]
        if any(a >= b for a, b in zip([0.0, *ends], ends, strict=False)):
            raise ArgumentError(
                f"the phases of {self!r} end at the steps {', '.join(f'{end:g}' for end in ends)}: each needs one step",
                hint="take more total_steps, or another pct_start",
            )

    def _phases(self) -> list[tuple[float, float, float]]:
        """Each phase's last step, and the rates between which it goes."""
        first = self.max_lr / self.div_factor
        last, up = first / self.final_div_factor, float(self.pct_start * self.total_steps)
        rising = (up - 1, first, self.max_lr)
        if self.three_phase:
            return [rising, (2 * up - 2, self.max_lr, first), (self.total_steps - 1.0, first, last)]
        return [rising, (self.total_steps - 1.0, self.max_lr, last)]

    def value(self, step: Expr) -> Scalar:
        t, phases = _float(step), self._phases()
        begins = [0.0, *(end for end, _, _ in phases)]
        result: Any = None
        for begin, (end, low, high) in reversed(list(zip(begins, phases, strict=False))):
            share = op.minimum((t - begin) / (end - begin), as_scalar(1.0))
            if self.anneal_strategy == "cos":
                rate = high + (low - high) / 2.0 * (1.0 + op.cos(math.pi * share))
            else:
                rate = (high - low) * share + low
            result = rate if result is None else op.where(t <= as_scalar(end), rate, result)
        return result


class SequentialLR(Schedule):
    """One schedule after the other: the next begins, at its own step 0, at each of the ``milestones``.

    Numbers and functions of the step are schedules too.

    Args:
        schedules: schedules, numbers or functions of the step.
        milestones: the steps at which the next one begins.

    Examples:
        >>> warm_up = optim.LinearLR(0.1, total_iters=100)
        >>> optimizer = optim.SGD(lr=optim.SequentialLR([warm_up, optim.CosineAnnealingLR(0.1, 900)], [100]))
    """

    def __init__(self, schedules: Sequence[Any], milestones: Sequence[int]) -> None:
        if not isinstance(schedules, (list, tuple)) or not schedules:
            raise ArgumentError(f"schedules must be a list of at least one schedule, got {schedules!r}")
        self.schedules = [_schedule(i, s) for i, s in enumerate(schedules)]
        self.milestones = _counts("milestones", milestones)
        if len(self.milestones) != len(self.schedules) - 1 or sorted(self.milestones) != self.milestones:
            raise ArgumentError(
                f"{len(self.schedules)} schedules need {len(self.schedules) - 1} milestones in rising order,"
                f" got {self.milestones}"
            )

    def value(self, step: Expr) -> Scalar:
        begins = [0, *self.milestones]
        rates = [
            s.value(step if begin == 0 else op.maximum(step - _int(begin), _int(0)))
            for s, begin in zip(self.schedules, begins, strict=True)
        ]
        return _chosen(step, self.milestones, rates)


def _chosen(step: Expr, milestones: Sequence[int], rates: Sequence[Scalar]) -> Expr:
    """The rate after the last of the milestones that are ≤ the step."""
    result = as_scalar(rates[0])
    for milestone, rate in zip(milestones, rates[1:], strict=True):
        result = op.where(step >= _int(milestone), as_scalar(rate), result)
    return result


def _cosine(high: float, low: float, share: Expr) -> Expr:
    return low + (high - low) * (1.0 + op.cos(math.pi * share)) / 2.0


def _power(base: float, exponent: Expr) -> Expr:
    return op.power(as_scalar(base), exponent)


def _float(step: Expr) -> Expr:
    return op.astype(step, "float64")


def _int(value: int) -> Expr:
    return const(value, "int64")


def _clipped(step: Expr, most: int) -> Expr:
    """min(step, most), in float64."""
    return _float(op.minimum(step, _int(most)))


def _positive(name: str, value: Any) -> float:
    result = number(name, value, 0.0)
    if not result:
        raise ArgumentError(f"{name} must be positive, got {value!r}")
    return result


def _counts(name: str, values: Any) -> list[int]:
    if not isinstance(values, (list, tuple, np.ndarray)) or (isinstance(values, np.ndarray) and values.ndim == 0):
        raise ArgumentError(f"{name} must be a list of steps, got {values!r}")
    return [count(f"{name}[{i}]", value, 0) for i, value in enumerate(values)]


def _schedule(index: int, given: Any) -> Schedule:
    value = hyperparameter(f"schedules[{index}]", given)
    if isinstance(value, Schedule):
        return value
    if isinstance(value, float):
        return ConstantLR(value)
    raise ArgumentError(f"schedules[{index}] must be a schedule, a number or a function of the step, got {value!r}")
