"""grad, value_and_grad, jvp, vjp, hvp and vmap of Python functions, against PyTorch's torch.func."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, CallError, DifferentiationError
from pullback.relax import const
from pullback.relax import op as R
from tests.conftest import NEEDS_TORCH

torch = pytest.importorskip("torch", reason=NEEDS_TORCH)


@dataclass(frozen=True)
class Case:
    """A function to a scalar of arrays, in both systems; ``integers`` are the arguments that have no derivative."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    integers: tuple[np.ndarray, ...] = ()
    shift: float = 0.0


def mlp(w, v, x, y):
    return R.mean(R.square(R.tanh(x @ w) @ v - y))


def mlp_of_torch(w, v, x, y):
    return ((torch.tanh(x @ w) @ v - y) ** 2).mean()


def cross_entropy(x, labels):
    return R.nn.cross_entropy(x, labels)


def attention(q, k, v):
    weights = R.nn.softmax(R.matmul(q, R.permute_dims(k)) * 0.5, axis=-1)
    return R.sum(R.square(weights @ v))


def attention_of_torch(q, k, v):
    return (torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5) ** 2).sum()


def convolution(image, filters):
    return R.sum(R.nn.max_pool2d(R.nn.silu(R.nn.conv2d(image, filters, padding=1)), pool_size=2, strides=2))


def convolution_of_torch(image, filters):
    f = torch.nn.functional
    return f.max_pool2d(f.silu(f.conv2d(image, filters, padding=1)), 2).sum()


def norms(x, g):
    y = R.nn.layer_norm(x, g, R.zeros_like(g), axes=-1)
    return R.sum(y * R.nn.softmax(x)) + R.std(x)


def norms_of_torch(x, g):
    y = torch.nn.functional.layer_norm(x, g.shape, g)
    return (y * torch.softmax(x, -1)).sum() + x.std(correction=0)


def singular(x):
    safe = R.where(x > 0.0, R.log(x) + R.sqrt(x), const(0.0, "float64"))
    return R.sum(safe * x)


def singular_of_torch(x):
    safe = torch.where(x > 0.0, x, 1.0)  # PyTorch needs the operand to be made safe as well
    return (torch.where(x > 0.0, torch.log(safe) + torch.sqrt(safe), 0.0) * x).sum()


def scattered(x, u, k):
    return R.sum(R.exp(R.scatter_elements(x, k, u, axis=1, reduction="add")) * R.gather_elements(x, k, axis=1)[0, 0])


def scattered_of_torch(x, u, k):
    return (torch.exp(x.scatter_add(1, k, u)) * x.gather(1, k)[0, 0]).sum()


INDICES = np.array([[0, 2, 2], [1, 0, 3]])
CASES = {
    "mlp": Case(mlp, mlp_of_torch, ((3, 5), (5, 2), (4, 3), (4, 2))),
    "cross entropy": Case(cross_entropy, torch.nn.functional.cross_entropy, ((5, 4),), (np.array([0, 3, 1, 1, 2]),)),
    "norms": Case(norms, norms_of_torch, ((3, 4), (4,))),
    "attention": Case(attention, attention_of_torch, ((4, 3), (5, 3), (5, 2))),
    "convolution": Case(convolution, convolution_of_torch, ((1, 2, 6, 6), (3, 2, 3, 3))),
    "cumsum": Case(
        lambda x: R.sum(R.sin(R.cumsum(x, axis=1)) * x), lambda x: (torch.sin(x.cumsum(1)) * x).sum(), ((3, 4),)
    ),
    "logsumexp": Case(
        lambda x: R.logsumexp(R.square(x) - x), lambda x: torch.logsumexp((x * x - x).reshape(-1), 0), ((3, 4),)
    ),
    "gather and scatter": Case(scattered, scattered_of_torch, ((2, 4), (2, 3)), (INDICES,)),
    "where": Case(singular, singular_of_torch, ((6,),)),
    "products": Case(
        lambda x: R.prod(R.power(x, 3.0)) + R.max(x), lambda x: (x**3.0).prod() + x.max(), ((4,),), shift=1.5
    ),
    "sorted": Case(
        lambda x: R.sum(R.topk(x, k=2, axis=-1)[0] * R.sort(x)[:, :2]),
        lambda x: (torch.topk(x, 2).values * torch.sort(x).values[:, :2]).sum(),
        ((3, 5),),
    ),
}


def arguments(case: Case, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    floats = [rng.standard_normal(s) * (0.3 if case.shift else 1.0) + case.shift for s in case.shapes]
    if case.ours is singular:
        floats[0][:2] = [0.0, -1.0]
    return [*floats, *case.integers]


def of_torch(values: Any) -> list[Any]:
    return [torch.from_numpy(np.asarray(v)) for v in values]


def flat(value: Any) -> list[np.ndarray]:
    return [v for part in value for v in flat(part)] if isinstance(value, (tuple, list)) else [value.numpy()]


def assert_close(got: Any, expected: Any, tolerance: float = 1e-9) -> None:
    for a, b in zip(flat(got), flat(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


TARGETS = pytest.mark.parametrize("target", ["llvm", "debug"])
FUNCTIONS = pytest.mark.parametrize("name", CASES)


@TARGETS
@FUNCTIONS
def test_gradients(name, target):
    case = CASES[name]
    values, numbers = arguments(case), tuple(range(len(case.shapes)))
    got = pullback.value_and_grad(case.ours, numbers, target)(*values)
    gradients, value = torch.func.grad_and_value(case.theirs, numbers)(*of_torch(values))
    assert_close(got, (value, gradients))
    assert_close(pullback.grad(case.ours, target=target)(*values), gradients[0])


@TARGETS
@FUNCTIONS
def test_tangents(name, target):
    case = CASES[name]
    values, directions = arguments(case), arguments(case, 1)[: len(case.shapes)]
    got = pullback.jvp(case.ours, target=target)(*values, *directions)
    fixed = of_torch(case.integers)
    expected = torch.func.jvp(
        lambda *floats: case.theirs(*floats, *fixed),
        tuple(of_torch(values[: len(directions)])),
        tuple(of_torch(directions)),
    )
    assert_close(got, expected)


@TARGETS
@FUNCTIONS
def test_adjoints(name, target):
    """vjp of the function beside another result, and an integer."""
    case = CASES[name]
    values, count = arguments(case), len(case.shapes)
    given = (arguments(case, 1)[0], np.float64(0.7))
    got = pullback.vjp(lambda *a: (R.sin(a[0]), (R.shape_to_tensor([3]), case.ours(*a))), target=target)(*values, given)
    fixed = of_torch(case.integers)
    value, pull = torch.func.vjp(lambda *a: (torch.sin(a[0]), case.theirs(*a, *fixed)), *of_torch(values[:count]))
    (sine, (three, scalar)), adjoints = got
    assert_close((sine, scalar, adjoints), (*value, pull(tuple(of_torch(given)))))
    assert three.numpy().tolist() == [3]


@TARGETS
@FUNCTIONS
def test_hessian_times_vector(name, target):
    case = CASES[name]
    values, vector = arguments(case), arguments(case, 1)[0]
    got = pullback.hvp(case.ours, target=target)(*values, vector)
    rest = of_torch(values[1:])
    gradient = torch.func.grad(lambda x: case.theirs(x, *rest))
    x, v = of_torch([values[0], vector])
    expected = torch.autograd.functional.vjp(gradient, x, v)[1]  # the Hessian is symmetric
    assert_close(got, expected)


@TARGETS
@FUNCTIONS
def test_gradients_of_each_example(name, target):
    """vmap of grad, and of the function: the first argument has the axis, and another one does not."""
    case = CASES[name]
    values = arguments(case)
    batch = np.stack([arguments(case, seed)[0] for seed in range(3)])
    axes = (0, *[None] * (len(values) - 1))
    given = [batch, *values[1:]]
    assert_close(
        pullback.vmap(pullback.grad(case.ours), axes, target=target)(*given),
        torch.func.vmap(torch.func.grad(case.theirs), axes)(*of_torch(given)),
    )
    assert_close(
        pullback.vmap(case.ours, axes, target=target)(*given), torch.func.vmap(case.theirs, axes)(*of_torch(given))
    )


@FUNCTIONS
def test_a_gradient_of_a_batch(name):
    """grad of vmap: the sum over a batch is differentiated with respect to what examples have in common."""
    case = CASES[name]
    values = arguments(case)
    last = len(case.shapes) - 1
    batch = np.stack([arguments(case, seed)[last] for seed in range(3)])
    axes = tuple(0 if k == last else None for k in range(len(values)))
    given = [*values[:last], batch, *values[last + 1 :]]
    whole = pullback.vmap(case.ours, axes)
    got = pullback.grad(lambda *a: R.sum(whole(*a)))(*given)
    expected = torch.func.grad(lambda *a: torch.func.vmap(case.theirs, axes)(*a).sum(), 0)(*of_torch(given))
    assert_close(got, expected)


def test_a_loop_by_hand():
    """Newton's iteration for a root: an if and a while, of each element and along a direction."""

    def root(a):
        (x,) = R.while_loop(lambda x: R.abs(x * x - a) > 1e-12, lambda x: ((x + a / x) * 0.5,), (a,), max_steps=60)
        return x

    a = np.array([0.25, 2.0, 9.0])
    roots = pullback.vmap(root, target="debug")(a)
    np.testing.assert_allclose(roots.numpy(), np.sqrt(a), rtol=1e-9)
    _, slopes = pullback.vmap(pullback.jvp(root), target="debug")(a, np.ones(3))
    np.testing.assert_allclose(slopes.numpy(), 0.5 / np.sqrt(a), rtol=1e-6)


# -- the face


def test_higher_orders():
    def cube(x):
        return x * x * x

    twice = pullback.grad(pullback.grad(cube))
    np.testing.assert_allclose(twice(np.float64(2.0)).numpy(), 12.0)
    np.testing.assert_allclose(pullback.grad(twice)(np.float64(2.0)).numpy(), 6.0)
    np.testing.assert_allclose(pullback.vmap(twice)(np.array([1.0, 2.0])).numpy(), [6.0, 12.0])


def test_functions_of_tuples_and_functions_of_nn():
    def loss(parameters, x):
        w, (b,) = parameters
        return nn.functional.mse_loss(nn.functional.relu(x @ w + b), x)

    w, b, x = np.eye(3) * 0.5, np.ones(3), np.arange(12.0).reshape(4, 3)
    value, (dw, (db,)) = pullback.value_and_grad(loss)((w, (b,)), x)
    leaves = [torch.from_numpy(v).requires_grad_() for v in (w, b)]
    expected = torch.nn.functional.mse_loss(
        torch.relu(torch.from_numpy(x) @ leaves[0] + leaves[1]), torch.from_numpy(x)
    )
    expected.backward()
    assert_close((value, dw, db), (expected.detach(), leaves[0].grad, leaves[1].grad))


def test_inside_of_other_functions_and_of_a_model():
    """A penalty on the gradient: a function that is differentiated is a part of one that is."""

    def energy(x):
        return R.sum(R.square(x) * R.sin(x))

    def penalty(x):
        return R.sum(R.square(pullback.grad(energy)(x)))

    x = np.linspace(-1, 2, 5)
    slope = 2 * x * np.sin(x) + x * x * np.cos(x)
    curve = 2 * np.sin(x) + 4 * x * np.cos(x) - x * x * np.sin(x)
    np.testing.assert_allclose(pullback.grad(penalty)(x).numpy(), 2 * slope * curve)

    class Model(nn.Module):
        def forward(self, x):
            return pullback.grad(energy)(x)

    np.testing.assert_allclose(Model()(x.astype("float32")).numpy(), slope, rtol=1e-5)


def test_jacobians_by_rows_and_by_columns():
    def f(x):
        return R.sin(x[:2]) * R.sum(x)

    x = np.array([0.3, -1.0, 2.0])
    expected = np.diag(np.cos(x))[:2] * x.sum() + np.sin(x[:2])[:, None]
    rows = pullback.vmap(lambda x, dy: pullback.vjp(f, 0)(x, dy)[1], in_axes=(None, 0))(x, np.eye(2))
    columns = pullback.vmap(lambda x, dx: pullback.jvp(f)(x, dx)[1], in_axes=(None, 0), out_axes=1)(x, np.eye(3))
    np.testing.assert_allclose(rows.numpy(), expected)
    np.testing.assert_allclose(columns.numpy(), expected)


def test_it_is_traced_once_for_arguments_of_one_type():
    traces = []

    def f(x):
        traces.append(x.shape)
        return R.sum(x)

    gradient = pullback.grad(f)
    for shape in ((2,), (2,), (3,), (2,)):
        np.testing.assert_array_equal(gradient(np.zeros(shape)).numpy(), np.ones(shape))
    assert traces == [(2,), (3,)]
    assert gradient.__name__ == "f"


def pooled(image, rois):
    return R.sum(R.vision.roi_align(image, rois, pooled_size=1, spatial_scale=1.0))


def test_errors():
    with pytest.raises(DifferentiationError, match="the target of a gradient must be a floating-point scalar"):
        pullback.grad(lambda x: x)(np.zeros(3))
    with pytest.raises(ArgumentError, match="argnums 2: the function takes 1 arguments"):
        pullback.grad(lambda x: R.sum(x), argnums=2)(np.zeros(3))
    with pytest.raises(ArgumentError, match=r"arguments differ in the size of the batch: \[2, 3\]"):
        pullback.vmap(lambda x, y: x)(np.zeros(3), np.zeros(2))
    with pytest.raises(ArgumentError, match="has no axis 1"):
        pullback.vmap(lambda x: x, in_axes=1)(np.zeros(3))
    with pytest.raises(ArgumentError, match="in_axes has 1 entries for 2 arguments"):
        pullback.vmap(lambda x, y: x, in_axes=(0,))(np.zeros(3), np.zeros(3))
    with pytest.raises(CallError, match="argument 'argnum' does not exist"):
        pullback.grad(lambda x: x, argnum=1)
    with pytest.raises(ArgumentError, match=r"the adjoint is Tensor\(\(2,\), float64\), and"):
        pullback.vjp(lambda x: x)(np.zeros(3), np.zeros(2))
    with pytest.raises(ArgumentError, match="the adjoint of the result is missing"):
        pullback.vjp(lambda: R.zeros((2,)))()
    with pytest.raises(ArgumentError, match="a function is needed"):
        pullback.grad(3)(np.zeros(3))
    with pytest.raises(ArgumentError, match="has a kernel, and cannot be a part of another function"):
        pullback.grad(lambda x, r: R.sum(pullback.grad(pooled)(x, r)))(np.zeros((1, 1, 4, 4)), np.ones((1, 5)))
