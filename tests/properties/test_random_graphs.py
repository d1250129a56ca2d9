"""600 random graphs: the native adjoint against PyTorch in float64 where it is installed, and always against the
interpreter and, along a random direction, against differences of the loss."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import plan_function, prepare
from pullback.relax.transform import Gradient
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from pullback.tir.interpreter import run
from tests.properties.random_graphs import Graph, Maker

PER_TEST = 20
TORCH = importlib.util.find_spec("torch") is not None


def close(value: np.ndarray, expected: np.ndarray, what: str, tolerance: float = 1e-9) -> None:
    if not expected.size:
        assert value.shape == expected.shape, what
        return
    error = np.abs(value - expected).max() / (1 + np.abs(expected).max())
    assert error <= tolerance, f"{what}: relative error {error:.2e}"


def against_torch(graph: Graph, loss: np.ndarray, gradients: list[np.ndarray], seed: int) -> None:
    import torch

    tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in graph.inputs]
    expected = graph.torch_loss(torch, tensors)
    if expected.requires_grad:  # else no operation of the graph has a derivative
        expected.backward()
    close(loss, expected.detach().numpy(), f"loss of graph {seed}")
    for k, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        reference = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        close(gradient, reference, f"adjoint {k} of graph {seed}")


def against_differences(graph: Graph, gradients: list[np.ndarray], seed: int) -> None:
    """(f(x + h·d) - f(x - h·d)) / 2h is the product of the gradient and d; kinks near x are stepped around by the
    median over several directions."""
    machine = pullback.compile(graph.module, "debug")["main"]
    rng, h, errors = np.random.default_rng(seed), 1e-6, []
    for _ in range(3):
        direction = [rng.standard_normal(a.shape) for a in graph.inputs]
        up, down = (
            float(machine(*(a + s * h * d for a, d in zip(graph.inputs, direction, strict=True)))) for s in (1, -1)
        )
        expected = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
        errors.append(abs((up - down) / (2 * h) - expected) / (1 + abs(expected)))
    assert np.median(errors) < 1e-5, f"graph {seed}: differences disagree by {errors}"


@pytest.mark.parametrize("first", range(0, 600, PER_TEST))
def test_adjoints(first):
    torch = None
    if TORCH:
        import torch
    for seed in range(first, first + PER_TEST):
        graph = Maker(seed, torch).make()
        module = Gradient("main")(graph.module)
        loss, gradients = pullback.compile(module)["main_adjoint"](*graph.inputs)
        arrays = [g.numpy() for g in gradients]
        if TORCH:
            against_torch(graph, loss.numpy(), arrays, seed)
        if seed % 5 == 0 or not TORCH:
            slow_loss, slow = pullback.compile(module, "debug")["main_adjoint"](*graph.inputs)
            close(loss.numpy(), slow_loss.numpy(), f"loss of graph {seed}")
            for k, (a, b) in enumerate(zip(arrays, slow, strict=True)):
                close(a, b.numpy(), f"adjoint {k} of graph {seed}")
            if not graph.rounds:
                against_differences(graph, arrays, seed)


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_kernels_stay_inside_their_buffers(first):
    """The loop interpreter refuses an index outside; machine code would not."""
    for seed in range(first, first + 40):
        module = Gradient("main")(Maker(seed, None).make().module)
        for kernel in plan_function(prepare(module), "main_adjoint", {}, Target("llvm")).kernels.values():
            run(kernel, [np.zeros(b.shape, numpy_dtype(b.dtype)) for b in kernel.buffers])
