"""Branches and loops of PyTorch become branches and loops: values, gradients, and what surrounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import pullback
from pullback import optim
from pullback.relax.frontend import UnsupportedOps
from pullback.relax.frontend.torch import from_torch


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.inner(x).sin(), lambda x: x.cos() * 0.5, (x,))


class Nested(nn.Module):
    """A branch inside of a branch, and two results."""

    def forward(self, x, y):
        def both(x, y):
            inner = torch.cond(y.mean() > 0, lambda y: y * 2, lambda y: y + 1, (y,))
            return x + inner, x * inner

        return torch.cond(x.sum() > 0, both, lambda x, y: (x - y, x.clone()), (x, y))


class Newton(nn.Module):
    """Square roots, to a precision: how many steps it takes depends on the data."""

    def forward(self, a):
        def is_rough(steps, x):
            return torch.logical_and(steps < 20, (x * x - a).abs().max() > 1e-6)

        def step(steps, x):
            return steps + 1, (x + a / x) * 0.5

        steps, x = while_loop(is_rough, step, (torch.zeros((), dtype=torch.int64), a + 1.0))
        return steps, x


class Running(nn.Module):
    """A recurrence along the first axis, whose parameter is read by every step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4) * 0.5)

    def forward(self, x):
        def step(state, row, weight):
            state = torch.tanh(state @ weight + row)
            return state, state * 2

        last, rows = scan(lambda s, r: step(s, r, self.weight), torch.zeros(x.shape[1:]), x, dim=0)
        return last, rows


class Quiet(nn.Module):
    """A part without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        with torch.no_grad():
            kept = x * self.scale
        return x * self.scale + kept


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def compare(net: nn.Module, *inputs: np.ndarray, dynamic_shapes: Any = None) -> Any:
    model = from_torch(net, tuple(map(torch.from_numpy, inputs)), dynamic_shapes=dynamic_shapes)
    wanted = net(*map(torch.from_numpy, inputs))
    found = model(*inputs)
    pairs = zip(
        found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    )
    for mine, theirs in pairs:
        np.testing.assert_allclose(np.asarray(mine), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    return model


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(sign: float) -> None:
    compare(Branch(), np.abs(numbers(3, 4)) * np.float32(sign))
    for other in (1.0, -1.0):
        compare(Nested(), np.abs(numbers(3, 4)) * np.float32(sign), np.abs(numbers(3, 4)) * np.float32(other))


def test_a_branch_is_a_branch_of_the_program() -> None:
    model = from_torch(Branch(), torch.ones(2, 4))
    assert "if " in str(model.export(*model.example))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_through_a_branch(sign: float) -> None:
    torch.manual_seed(0)
    net, x, y = Branch(), np.abs(numbers(3, 4)) * np.float32(sign), np.zeros((3, 4), "float32")
    trainer = pullback.trainer(from_torch(net, torch.from_numpy(x)), "mse", optim.SGD(lr=0.5))
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(torch.from_numpy(x)), torch.from_numpy(y))
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        np.testing.assert_allclose(float(trainer.update(x, y)), loss.item(), rtol=1e-5)


def test_while_loops() -> None:
    for scale in (1.0, 100.0):
        compare(Newton(), (np.abs(numbers(5)) + 0.5).astype("float32") * np.float32(scale))


def test_a_loop_whose_condition_reads_what_is_carried_too() -> None:
    class Halved(nn.Module):
        def forward(self, x):
            y = x + 1.0
            (z,) = while_loop(lambda z: z.abs().max() > 1.0, lambda z: (z * 0.5 + y * 0.0,), (y,))
            return z

    compare(Halved(), numbers(4) * 10)


def test_scans() -> None:
    compare(Running(), numbers(5, 2, 4), dynamic_shapes=())


def test_gradients_through_a_scan() -> None:
    net, x = Running(), numbers(5, 2, 4)
    model = from_torch(net, torch.from_numpy(x), dynamic_shapes=(), outputs="output.1")
    trainer = pullback.trainer(model, "mse", optim.SGD(lr=0.5))
    weight, y = torch.eye(4) * 0.5, torch.from_numpy(numbers(5, 2, 4)[::-1].copy())
    weight.requires_grad_(True)
    for _ in range(3):
        state, rows = torch.zeros(2, 4), []
        for row in torch.from_numpy(x):
            state = torch.tanh(state @ weight + row)
            rows.append(state * 2)
        loss = nn.functional.mse_loss(torch.stack(rows), y)
        (gradient,) = torch.autograd.grad(loss, weight)
        weight = (weight - 0.5 * gradient).detach().requires_grad_(True)
        np.testing.assert_allclose(float(trainer.update(x, y.numpy())), loss.item(), rtol=1e-5)


def test_what_no_grad_computes_has_no_gradient() -> None:
    net, x, y = Quiet(), numbers(3, 2), numbers(3, 2)
    trainer = pullback.trainer(from_torch(net, torch.from_numpy(x)), "mse", optim.SGD(lr=0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(float(trainer.update(x, y)), loss.item(), rtol=1e-5)


def test_operators_inside_of_a_branch_are_looked_up_too() -> None:
    class Strange(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: torch.special.bessel_j0(x), lambda x: x + 1, (x,))

    with pytest.raises(UnsupportedOps, match="special_bessel_j0"):
        from_torch(Strange(), torch.zeros(2, 3))


class Straight(torch.autograd.Function):
    """Rounds, and hands the adjoint on."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, dy):
        return dy


def test_a_gradient_of_ones_own_is_reported() -> None:
    class Rounded(nn.Module):
        def forward(self, x):
            return Straight.apply(x)

    with pytest.warns(UserWarning, match="uses Straight, a torch.autograd.Function"):
        model = from_torch(Rounded(), torch.zeros(2, 2))
    np.testing.assert_array_equal(np.asarray(model(np.float32([[0.6, 1.2]]))), [[1.0, 1.0]])
    assert torch.autograd.Function.apply.__func__ is Straight.apply.__func__  # as it was


def test_autocast_casts() -> None:
    class Mixed(nn.Module):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return (x @ x.T).float()

    compare(Mixed(), numbers(3, 4))
