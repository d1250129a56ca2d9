"""Convolutional networks in float64 beside PyTorch: the loss, and the adjoints of all parameters and of the images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pullback
from pullback.ir import IRModule
from pullback.relax import BlockBuilder, Expr, TensorStructInfo, Var
from pullback.relax.op.namespace import ops
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip

functional = torch.nn.functional


@I.ir_module
class LeNet:
    """LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition (1998), figure 2, with
    max pooling and relu."""

    @R.function
    def main(
        x: R.Tensor(("n", 1, 28, 28), "float64"),
        w1: R.Tensor((6, 1, 5, 5), "float64"),
        b1: R.Tensor((6, 1, 1), "float64"),
        w2: R.Tensor((16, 6, 5, 5), "float64"),
        b2: R.Tensor((16, 1, 1), "float64"),
        w3: R.Tensor((120, 400), "float64"),
        b3: R.Tensor((120,), "float64"),
        w4: R.Tensor((84, 120), "float64"),
        b4: R.Tensor((84,), "float64"),
        w5: R.Tensor((10, 84), "float64"),
        b5: R.Tensor((10,), "float64"),
        labels: R.Tensor(("n",), "int64"),
    ):
        with R.dataflow():
            c1 = R.nn.relu(R.nn.conv2d(x, w1, padding=2) + b1)
            s2 = R.nn.max_pool2d(c1, pool_size=[2, 2], strides=[2, 2])
            c3 = R.nn.relu(R.nn.conv2d(s2, w2) + b2)
            s4 = R.nn.avg_pool2d(c3, pool_size=2, strides=2)
            f5 = R.nn.relu(R.linear(R.reshape(s4, (-1, 400)), w3, b3))
            f6 = R.nn.relu(R.linear(f5, w4, b4))
            loss = R.nn.cross_entropy(R.linear(f6, w5, b5), labels)
            R.output(loss)
        return loss


def lenet(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, w4: Any, b4: Any, w5: Any, b5: Any, t: Any):
    s2 = functional.max_pool2d(functional.relu(functional.conv2d(x, w1, padding=2) + b1), 2)
    s4 = functional.avg_pool2d(functional.relu(functional.conv2d(s2, w2) + b2), 2)
    f6 = functional.relu(functional.linear(functional.relu(functional.linear(s4.flatten(1), w3, b3)), w4, b4))
    return functional.cross_entropy(functional.linear(f6, w5, b5), t)


def values_of(module: IRModule, batch: int, classes: int) -> list[np.ndarray]:
    """Random images, parameters of a scale that keeps the values near 1, and class labels."""
    rng = np.random.default_rng(0)
    result = []
    for param in module["main"].params:
        shape = [s if isinstance(s, int) else batch for s in param.shape]
        if param.dtype == "int64":
            result.append(rng.integers(0, classes, shape))
        else:
            fan_in = max(1, int(np.prod(shape[1:]))) if len(shape) in (2, 4) else 4
            result.append(rng.standard_normal(shape) * (1.0 if param.name == "x" else fan_in**-0.5))
    return result


def compare(module: IRModule, theirs: Callable[..., torch.Tensor], batch: int, classes: int) -> None:
    values = values_of(module, batch, classes)
    tensors = [torch.tensor(v, requires_grad=v.dtype == np.float64) for v in values]
    expected = theirs(*tensors)
    expected.backward()
    floats = [p for p in module["main"].params if p.dtype == "float64"]
    loss, adjoints = pullback.compile(Gradient("main", floats)(module)).function("main_adjoint")(*values)
    np.testing.assert_allclose(loss.numpy(), expected.detach().numpy(), rtol=1e-9)
    for param, adjoint, tensor in zip(floats, adjoints, tensors, strict=False):
        np.testing.assert_allclose(adjoint.numpy(), tensor.grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=param.name)


def test_lenet() -> None:
    round_trip(LeNet)
    round_trip(Gradient("main", [p for p in LeNet["main"].params if p.dtype == "float64"])(LeNet))
    for batch in (1, 3):
        compare(LeNet, lenet, batch, 10)


STAGES = ((8, 1), (8, 1), (16, 2))  # channels and stride of each residual block


def resnet() -> IRModule:
    """A small residual network (He, Zhang, Ren, Sun 2015) with biases in the place of batch norm: a stem with
    overlapping max pooling, blocks of two 3x3 convolutions, 1x1 projections where the shape changes, global pooling."""
    x, labels = Var("x", TensorStructInfo((2, 3, 24, 24), "float64")), Var("labels", TensorStructInfo((2,), "int64"))
    params: list[Var] = []

    def parameter(*shape: int) -> Var:
        params.append(Var(f"p{len(params)}", TensorStructInfo(shape, "float64")))
        return params[-1]

    def convolution(value: Expr, inputs: int, outputs: int, kernel: int, stride: int = 1) -> Expr:
        weight, bias = parameter(outputs, inputs, kernel, kernel), parameter(outputs, 1, 1)
        return ops.nn.conv2d(value, weight, strides=stride, padding=kernel // 2) + bias

    value: Expr = ops.nn.max_pool2d(ops.nn.relu(convolution(x, 3, 8, 5, 2)), 3, 2, 1)
    channels = 8
    for outputs, stride in STAGES:
        inner = ops.nn.relu(convolution(value, channels, outputs, 3, stride))
        inner = convolution(inner, outputs, outputs, 3)
        changes = stride > 1 or outputs != channels
        shortcut = convolution(value, channels, outputs, 1, stride) if changes else value
        value, channels = ops.nn.relu(inner + shortcut), outputs
    features = ops.squeeze(ops.nn.adaptive_avg_pool2d(value, 1), [2, 3])
    logits = ops.linear(features, parameter(5, channels), parameter(5))
    builder = BlockBuilder()
    with builder.function("main", [x, *params, labels]), builder.dataflow():
        out = builder.emit_output(ops.nn.cross_entropy(logits, labels))
        builder.emit_func_output(out)
    return builder.get()


def torch_resnet(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    params, labels = iter(rest[:-1]), rest[-1]

    def convolution(value: torch.Tensor, kernel: int, stride: int = 1) -> torch.Tensor:
        return functional.conv2d(value, next(params), stride=stride, padding=kernel // 2) + next(params)

    value = functional.max_pool2d(functional.relu(convolution(x, 5, 2)), 3, 2, 1)
    for outputs, stride in STAGES:
        inner = convolution(functional.relu(convolution(value, 3, stride)), 3)
        shortcut = convolution(value, 1, stride) if stride > 1 or outputs != value.shape[1] else value
        value = functional.relu(inner + shortcut)
    logits = functional.linear(functional.adaptive_avg_pool2d(value, 1).flatten(1), next(params), next(params))
    return functional.cross_entropy(logits, labels)


def test_resnet() -> None:
    module = resnet()
    compare(module, torch_resnet, 2, 5)
