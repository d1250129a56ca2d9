"""Initial values of parameters, by their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relay.expr import Function
from pullback.relay.ty import TensorType
from pullback.runtime.tensor import Tensor, tensor


class Initializer:
    """Fills an array by what its name ends in: gamma and var with ones, beta, bias and mean with zeros, weight with
    what a subclass says."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        """Fill ``arr``, the value of the parameter ``desc``. Raises ArgumentError for a name of another kind."""
        constants = {"bias": 0.0, "gamma": 1.0, "beta": 0.0, "mean": 0.0, "var": 1.0}
        for end, value in constants.items():
            if desc.endswith(end):
                arr[...] = value
                return
        if not desc.endswith("weight"):
            known = ", ".join(["weight", *constants])
            raise ArgumentError(f"no initial value is known for the parameter {desc!r}", hint=f"names end in {known}")
        self._init_weight(desc, arr)

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        raise NotImplementedError


class Xavier(Initializer):
    """Uniform weights whose variance is magnitude / 3 / factor: of a weight (outputs, inputs, window…) the factor is
    the number of terms of a sum ("in"), of the results that an element goes to ("out"), or their mean ("avg"). Glorot
    & Bengio, Understanding the Difficulty of Training Deep Feedforward Neural Networks, 2010."""

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        if rnd_type not in ("uniform", "gaussian"):
            raise ArgumentError(f"rnd_type must be 'uniform' or 'gaussian', got {rnd_type!r}")
        if factor_type not in ("avg", "in", "out"):
            raise ArgumentError(f"factor_type must be 'avg', 'in' or 'out', got {factor_type!r}")
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        if arr.ndim < 2:
            raise ArgumentError(f"Xavier: the weight {name!r} must have two axes or more, got {arr.ndim}")
        window = float(np.prod(arr.shape[2:]))
        ends = {"in": arr.shape[1] * window, "out": arr.shape[0] * window}
        ends["avg"] = (ends["in"] + ends["out"]) / 2
        factor = window if "depthwise" in name else ends[self.factor_type]
        scale = np.sqrt(self.magnitude / factor)
        if self.rnd_type == "uniform":
            arr[...] = np.random.uniform(-scale, scale, size=arr.shape)
        else:
            arr[...] = np.random.normal(0, scale, size=arr.shape)


class Constant(Initializer):
    """Weights that are one number."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def _init_weight(self, name: str, arr: np.ndarray) -> None:
        arr[...] = self.value


def create_workload(
    net: Function, initializer: Initializer | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, Tensor]]:
    """A module whose main is ``net``, with types, and values of its parameters by name: all but ``data``, and those
    whose sizes are not known. NumPy's generator gets the seed.

    >>> mod, params = create_workload(net)
    """
    from pullback.relay.infer import infer_module

    mod = infer_module(IRModule.from_expr(net))
    initializer = initializer or Xavier()
    np.random.seed(seed)
    params = {}
    for param in mod["main"].params:
        type_ = param.checked_type
        if param.name_hint == "data" or not isinstance(type_, TensorType) or not type_.is_concrete:
            continue
        value = np.zeros(type_.shape, type_.dtype)
        initializer(param.name_hint, value)
        params[param.name_hint] = tensor(value)
    return mod, params
