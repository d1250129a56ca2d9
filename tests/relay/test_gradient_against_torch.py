"""Gradients of small models against PyTorch's, in float64, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Function, GlobalVar, If, Tuple, TupleGetItem, Var, call_op, const, var
from pullback.relay.transform import gradient
from pullback.relay.ty import TensorType
from tests.relay.differences import run

DTYPE = "float64"
Built = tuple[Any, Callable[..., torch.Tensor], list[tuple[int, ...]]]


def op(name: str, *args: Any, **attrs: Any) -> Any:
    return call_op(name, *args, **attrs)


def perceptron(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
    hidden = op("nn.relu", op("nn.bias_add", op("nn.dense", x, w1), b1))
    logits = op("nn.bias_add", op("nn.dense", hidden, w2), b2)
    return op("nn.cross_entropy_with_logits", op("nn.log_softmax", logits), op("nn.softmax", y))


def torch_perceptron(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
    logits = F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)
    return -(F.log_softmax(logits, -1) * F.softmax(y, -1)).sum() / x.shape[0]


def convolutional(x: Any, w: Any, scale: Any, shift: Any, dense: Any) -> Any:
    h = op("nn.conv2d", x, w, channels=4, kernel_size=(3, 3), padding=(1, 1), strides=(2, 2))
    mean, variance = op("mean", h, axis=(0, 2, 3), keepdims=True), op("variance", h, axis=(0, 2, 3), keepdims=True)
    h = (h - mean) * op("rsqrt", variance + const(1e-5, DTYPE)) * scale + shift
    h = op("nn.max_pool2d", op("nn.leaky_relu", h, alpha=0.1), pool_size=(2, 2), strides=(2, 2))
    h = op("nn.dense", op("nn.batch_flatten", h), dense)
    return op("mean", op("nn.softmax", h) * h)


def torch_convolutional(x: Any, w: Any, scale: Any, shift: Any, dense: Any) -> Any:
    h = F.conv2d(x, w, padding=1, stride=2)
    h = F.batch_norm(h, None, None, training=True) * scale + shift
    h = F.max_pool2d(F.leaky_relu(h, 0.1), 2).flatten(1)
    h = F.linear(h, dense)
    return (F.softmax(h, -1) * h).mean()


def attention(q: Any, k: Any, v: Any, gamma: Any, beta: Any) -> Any:
    scores = op("nn.batch_matmul", q, k) * const(0.5, DTYPE)
    mixed = op("nn.batch_matmul", op("nn.softmax", scores), v, transpose_b=False)
    return op("sum", op("tanh", op("nn.layer_norm", mixed + q, gamma, beta)))


def torch_attention(q: Any, k: Any, v: Any, gamma: Any, beta: Any) -> Any:
    mixed = F.softmax(q @ k.transpose(1, 2) * 0.5, -1) @ v
    return torch.tanh(F.layer_norm(mixed + q, (4,), gamma, beta)).sum()


MODELS: dict[str, tuple[Any, Any, list[tuple[int, ...]]]] = {
    "perceptron": (perceptron, torch_perceptron, [(5, 4), (6, 4), (6,), (3, 6), (3,), (5, 3)]),
    "convolutional": (
        convolutional, torch_convolutional, [(2, 3, 8, 8), (4, 3, 3, 3), (4, 1, 1), (4, 1, 1), (3, 16)],
    ),
    "attention": (attention, torch_attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4), (4,), (4,)]),
}  # fmt: skip


def compare(found: Any, model: Callable[..., torch.Tensor], values: list[np.ndarray]) -> None:
    tensors = [torch.tensor(v, requires_grad=True) for v in values]
    loss = model(*tensors)
    loss.backward()
    value, adjoints = found
    np.testing.assert_allclose(value, loss.detach().numpy(), rtol=1e-9)
    for adjoint, tensor in zip(adjoints, tensors, strict=True):
        np.testing.assert_allclose(adjoint, tensor.grad.numpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
def test_models(name: str, mode: str) -> None:
    ours, theirs, shapes = MODELS[name]
    params = [var(f"p{k}", shape=s, dtype=DTYPE) for k, s in enumerate(shapes)]
    rng = np.random.default_rng(11)
    values = [rng.normal(size=s) for s in shapes]
    compare(run(gradient(Function(tuple(params), ours(*params)), mode=mode), *values), theirs, values)


def lstm_step(x: Any, h: Any, c: Any, w: Any) -> tuple[Any, Any]:
    gates = op("split", op("nn.dense", op("concatenate", Tuple((x, h)), axis=1), w), 4, axis=1)
    i, f, o = (op("sigmoid", gates[k]) for k in (0, 1, 2))
    c = f * c + i * op("tanh", gates[3])
    return o * op("tanh", c), c


def test_an_lstm_whose_steps_are_a_recursion() -> None:
    """As many steps as the input has rows: a global function that calls itself."""
    rows, width, size = 4, 2, 3
    state = TensorType((1, size), DTYPE)
    xs, w = var("xs", shape=(rows, 1, width), dtype=DTYPE), var("w", shape=(4 * size, width + size), dtype=DTYPE)
    t, h, c = var("t", "int32"), Var("h", state), Var("c", state)
    x = op("take", xs, t, axis=0)
    new_h, new_c = lstm_step(x, h, c, w)
    again = Call(GlobalVar("steps"), (xs, w, t + const(1, "int32"), new_h, new_c))
    stop = op("equal", t, const(rows, "int32"))
    mod = IRModule({"steps": Function((xs, w, t, h, c), If(stop, Tuple((h, c)), again))})
    a, b = var("xs", shape=(rows, 1, width), dtype=DTYPE), var("w", shape=(4 * size, width + size), dtype=DTYPE)
    zeros = const(np.zeros((1, size)))
    last = Call(GlobalVar("steps"), (a, b, const(0, "int32"), zeros, zeros))
    loss = op("sum", TupleGetItem(last, 0) * TupleGetItem(last, 1))

    def theirs(xs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(1, size, dtype=torch.float64)
        for x in xs:
            gates = F.linear(torch.cat([x, h], 1), w).chunk(4, 1)
            c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[3].tanh()
            h = gates[2].sigmoid() * c.tanh()
        return (h * c).sum()

    rng = np.random.default_rng(2)
    values = [rng.normal(size=(rows, 1, width)), rng.normal(size=(4 * size, width + size))]
    compare(run(gradient(Function((a, b), loss), mod), *values, mod=mod), theirs, values)


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "sigmoid", "sqrt", "log", "erf", "atan", "rsqrt"])
def test_second_derivatives(name: str) -> None:
    x, y = var("x", shape=(4,), dtype=DTYPE), var("y", shape=(4,), dtype=DTYPE)
    first = gradient(Function((x,), op(name, x)))
    slope = TupleGetItem(TupleGetItem(Call(first, (y,)), 1), 0)
    values = np.array([0.4, 0.7, 1.2, 2.5])
    found = run(gradient(Function((y,), slope)), values)
    tensor = torch.tensor(values, requires_grad=True)
    (dx,) = torch.autograd.grad(getattr(torch, name)(tensor).sum(), tensor, create_graph=True)
    (ddx,) = torch.autograd.grad(dx.sum(), tensor)
    np.testing.assert_allclose(found[0], dx.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(found[1][0], ddx.numpy(), rtol=1e-7, atol=1e-12)
