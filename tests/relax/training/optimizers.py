"""Running an optimizer function by itself, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import pullback
from pullback.ir import IRModule
from pullback.relax import TensorStructInfo, Var
from pullback.relax.training.optimizer import Optimizer

SHAPES = ((3, 4), (4,), (), (2, 3, 5))
NAMES = ("w", "b", "scale", "kernel")


def variables(shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: str = "float64") -> list[Var]:
    return [Var(n, TensorStructInfo(s, dtype)) for n, s in zip(NAMES, shapes, strict=False)]


def values_and_gradients(steps: int, dtype: str = "float64", shapes: Any = SHAPES) -> tuple[list[Any], list[list[Any]]]:
    """Initial parameters, and the gradients of each step."""
    generator = np.random.default_rng(4)

    def draw() -> list[Any]:
        return [np.asarray(generator.standard_normal(s), dtype) for s in shapes]

    return draw(), [draw() for _ in range(steps)]


def run(
    optimizer: Optimizer, values: Sequence[Any], gradients: Sequence[Sequence[Any]], target: str = "llvm"
) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Parameters and states after each step."""
    step = stepper(optimizer, values, target)
    for given in gradients:
        yield step(given)


def stepper(optimizer: Optimizer, values: Sequence[Any], target: str = "llvm") -> Callable[[Sequence[Any]], Any]:
    shapes, dtype = [v.shape for v in values], values[0].dtype.name
    optimizer.init(variables(shapes, dtype))
    vm = pullback.VirtualMachine(pullback.compile(IRModule({"step": optimizer.get_function()}), target))
    held: Any = tuple(pullback.tensor(v) for v in values)

    def step(gradients: Sequence[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        nonlocal held
        held, optimizer.state = vm["step"](held, tuple(gradients), optimizer.state)
        return [p.numpy() for p in held], [s.numpy() for s in optimizer.state]

    return step
