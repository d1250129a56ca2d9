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
from pullback.relay.frontend import from_pytorch
from pullback.relay.transform import FuseOps, gradient
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


def tensors(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(17)
    return [rng.normal(size=s) for s in shapes]


OPS: list[tuple[str, dict[str, Any], list[tuple[int, ...]], Callable[..., torch.Tensor]]] = [
    ("nn.dense", {}, [(3, 4), (5, 4)], F.linear),
    ("nn.matmul", {"transpose_a": True}, [(4, 3), (4, 5)], lambda a, b: a.T @ b),
    ("nn.batch_matmul", {}, [(2, 3, 4), (2, 5, 4)], lambda a, b: a @ b.transpose(1, 2)),
    ("nn.conv1d", {"kernel_size": 3, "channels": 4}, [(2, 3, 7), (4, 3, 3)], F.conv1d),
    ("nn.conv2d", {"kernel_size": (3, 3), "channels": 6, "groups": 3, "strides": (2, 2), "padding": (1, 1)},
     [(2, 3, 7, 6), (6, 1, 3, 3)], lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=3)),
    ("nn.conv2d_transpose",
     {"kernel_size": (3, 3), "channels": 2, "strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)},
     [(1, 3, 4, 4), (3, 2, 3, 3)], lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)),
    ("nn.conv3d", {"kernel_size": (2, 2, 2), "channels": 2}, [(1, 2, 3, 3, 3), (2, 2, 2, 2, 2)], F.conv3d),
    ("nn.max_pool2d", {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}, [(1, 2, 7, 7)],
     lambda x: F.max_pool2d(x, 3, 2, 1)),
    ("nn.avg_pool2d", {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "count_include_pad": True},
     [(1, 2, 7, 7)], lambda x: F.avg_pool2d(x, 3, 2, 1)),
    ("nn.global_avg_pool2d", {}, [(2, 3, 4, 5)], lambda x: x.mean((2, 3), keepdim=True)),
    ("nn.adaptive_avg_pool2d", {"output_size": (3, 2)}, [(1, 2, 7, 5)], lambda x: F.adaptive_avg_pool2d(x, (3, 2))),
    ("nn.softmax", {"axis": 1}, [(2, 3, 4)], lambda x: F.softmax(x, 1)),
    ("nn.log_softmax", {}, [(2, 3)], lambda x: F.log_softmax(x, -1)),
    ("nn.layer_norm", {}, [(3, 4), (4,), (4,)], lambda x, g, b: F.layer_norm(x, (4,), g, b)),
    ("nn.group_norm", {"num_groups": 2}, [(2, 4, 3), (4,), (4,)], lambda x, g, b: F.group_norm(x, 2, g, b)),
    ("nn.instance_norm", {}, [(2, 3, 4), (3,), (3,)], lambda x, g, b: F.instance_norm(x, weight=g, bias=b)),
    ("nn.prelu", {}, [(2, 3, 4), (3,)], F.prelu),
    ("nn.leaky_relu", {"alpha": 0.2}, [(2, 3)], lambda x: F.leaky_relu(x, 0.2)),
    ("nn.l2_normalize", {"eps": 1e-12, "axis": [1]}, [(2, 3)], lambda x: F.normalize(x, dim=1)),
    ("nn.lrn", {"size": 3, "alpha": 0.1, "bias": 2.0}, [(1, 5, 2, 2)],
     lambda x: F.local_response_norm(x, 3, 0.1, 0.75, 2.0)),
    ("nn.pad", {"pad_width": ((1, 2), (0, 1))}, [(2, 3)], lambda x: F.pad(x, (0, 1, 1, 2))),
    ("image.resize2d", {"size": (5, 7), "coordinate_transformation_mode": "half_pixel"}, [(1, 2, 3, 4)],
     lambda x: F.interpolate(x, (5, 7), mode="bilinear")),
    ("image.grid_sample", {}, [(1, 2, 4, 5), (1, 2, 3, 3)],
     lambda x, g: F.grid_sample(x, g.permute(0, 2, 3, 1), align_corners=True)),
    ("max", {"axis": 1}, [(3, 4)], lambda x: x.amax(1)),
    ("prod", {"axis": 1}, [(3, 4)], lambda x: x.prod(1)),
    ("variance", {"axis": 0, "unbiased": True}, [(3, 4)], lambda x: x.var(0)),
    ("mean", {"axis": (0, 2), "keepdims": True}, [(2, 3, 4)], lambda x: x.mean((0, 2), keepdim=True)),
    ("cumsum", {"axis": 1}, [(2, 3)], lambda x: x.cumsum(1)),
    ("sort", {"axis": 1}, [(2, 5)], lambda x: x.sort(1).values),
    ("topk", {"k": 2, "ret_type": "values"}, [(2, 5)], lambda x: x.topk(2).values),
    ("clip", {"a_min": -0.5, "a_max": 0.7}, [(3, 4)], lambda x: x.clamp(-0.5, 0.7)),
    ("strided_slice", {"begin": (0, 1), "end": (3, 4), "strides": (2, 1)}, [(3, 4)], lambda x: x[0:3:2, 1:4]),
    ("transpose", {"axes": (2, 0, 1)}, [(2, 3, 4)], lambda x: x.permute(2, 0, 1)),
    ("power", {}, [(2, 3), (2, 3)], lambda x, y: torch.pow(x, y)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs", "shapes", "theirs"), OPS, ids=[c[0] for c in OPS])
def test_operators(name: str, attrs: dict[str, Any], shapes: list[Any], theirs: Callable[..., torch.Tensor]) -> None:
    values = tensors(*shapes)
    if name == "power":
        values[0] = np.abs(values[0]) + 0.1
    params = [var(f"p{k}", shape=s, dtype=DTYPE) for k, s in enumerate(shapes)]
    result = op(name, *params, **attrs)
    loss = op("sum", op("sin", result))
    compare(run(gradient(Function(tuple(params), loss)), *values), lambda *xs: theirs(*xs).sin().sum(), values)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.last = torch.nn.Linear(4 * 3 * 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return F.log_softmax(self.last(h.flatten(1)), -1)


@pytest.mark.parametrize(("mode", "fused"), [("first_order", False), ("higher_order", False), ("higher_order", True)])
def test_an_imported_model(mode: str, fused: bool) -> None:
    """All adjoints of a traced model, also of one whose operators are fused."""
    torch.manual_seed(0)
    model = Network().eval()
    x = torch.randn(2, 2, 6, 6, requires_grad=True)
    mod, weights = from_pytorch(torch.jit.trace(model, x.detach()), [("x", (2, 2, 6, 6))])
    mod = FuseOps(2)(mod) if fused else mod
    names = [p.name_hint for p in mod["main"].params]
    values = [x.detach().numpy() if n == "x" else weights[n].numpy() for n in names]
    _, adjoints = run(gradient(mod["main"], mod, mode), *values, mod=mod)
    model(x).sum().backward()
    found = dict(zip(names, adjoints, strict=True))
    np.testing.assert_allclose(found["x"], x.grad.numpy(), rtol=1e-4, atol=1e-5)
    for name, parameter in model.named_parameters():
        wanted = parameter.grad.numpy()
        same = [a for n, a in found.items() if a.shape == wanted.shape and np.allclose(a, wanted, rtol=1e-4, atol=1e-5)]
        assert same, name
