"""A function's gradient against numeric derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relay.expr import Function
from pullback.relay.ty import TensorType


def _drawn(type_: Any, scale: float, mean: float) -> np.ndarray:
    if not isinstance(type_, TensorType):
        raise ArgumentError("check_grad draws tensors only", hint="give inputs=[…], an array for each parameter")
    return np.asarray(mean + scale * np.random.randn(*type_.concrete_shape)).astype(type_.dtype)


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value).astype("float64")


def check_grad(
    func: Function,
    inputs: Sequence[np.ndarray] | None = None,
    test_inputs: Sequence[np.ndarray] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[tuple[Any, Any]] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradient of ``func`` with the differences of its values at two points ``eps`` on either side.

    ``inputs`` are the arrays at which that is done (by default drawn from a normal distribution of the mean and the
    standard deviation ``scale``, 10 · eps where it is not given), ``test_inputs`` those of them that are varied, by
    default all. They should be float64: differences of float32 are coarse. An AssertionError names what differs by more
    than ``atol + rtol · |numeric|``.

    >>> check_grad(relay.Function([x], relay.sigmoid(x)))
    """
    from pullback.relay.build_module import create_executor
    from pullback.relay.testing import run_infer_type
    from pullback.relay.transform import gradient
    from pullback.testing import enabled_targets

    forward = run_infer_type(func)
    backward = run_infer_type(gradient(forward, mode=mode))
    scale = 10 * eps if scale is None else scale
    if inputs is None:
        inputs = [_drawn(p.checked_type, scale, mean) for p in forward.params]
    inputs = [np.asarray(x) for x in inputs]
    varied = range(len(inputs)) if test_inputs is None else _places(inputs, test_inputs)
    for target, device in enabled_targets() if target_devices is None else target_devices:
        run = create_executor(executor_kind, device=device, target=target).evaluate(forward)
        _, adjoints = create_executor(executor_kind, device=device, target=target).evaluate(backward)(*inputs)
        for place in varied:
            numeric = _differences(run, inputs, place, eps)
            np.testing.assert_allclose(_array(adjoints[place]), numeric, atol=atol, rtol=rtol)


def _places(inputs: Sequence[np.ndarray], test_inputs: Sequence[np.ndarray]) -> list[int]:
    """Where the inputs stand that are to be tested: they are the same arrays."""
    found = [i for test in test_inputs for i, x in enumerate(inputs) if x is test]
    if not found or len(found) < len(test_inputs):
        raise ArgumentError("check_grad: test_inputs must be arrays of inputs, one at least", hint="the same objects")
    return found


def _differences(run: Any, inputs: Sequence[np.ndarray], place: int, eps: float) -> np.ndarray:
    x = inputs[place]
    result = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        values = []
        for step in (eps, -eps):
            moved = x.copy()
            moved[i] += step
            values.append(_array(run(*inputs[:place], moved, *inputs[place + 1 :])))
        result[i] = np.sum((values[0] - values[1]) / (2 * eps))
    return result
