"""Random ops: how their numbers are distributed, that states tell them apart, and what dropout does with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import DTypeError, IRModule, ShapeError, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.relax.op.namespace import ops
from pullback.relax.transform import Gradient
from pullback.runtime import get_num_threads, set_num_threads
from pullback.script import relax as R

STATE = TensorStructInfo((2,), "uint64")
N = 200_000
SIGMAS = 5.0  # that a share or a mean may be off: less than once in a million


def state(seed: int = 0, place: int = 0) -> np.ndarray:
    return np.array([seed, place], np.uint64)


def module_of(build: Any, *infos: TensorStructInfo) -> IRModule:
    """``main(x0, x1, …, state)`` = what ``build`` makes of these variables."""
    params = [*(Var(f"x{k}", info) for k, info in enumerate(infos)), Var("state", STATE)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(build(*params)))
    return builder.get()


def draw(build: Any, seed: int = 0, place: int = 0) -> np.ndarray:
    """The numbers that an op draws, by native code and by the interpreter: the same."""
    module = module_of(build)
    native, slow = (pullback.compile(module, t)["main"](state(seed, place)).numpy() for t in ("llvm", "debug"))
    if native.dtype.kind == "f" and "normal" in build.__code__.co_names:
        np.testing.assert_allclose(native, slow, rtol=1e-5, atol=1e-6)  # log and cos are those of either
    else:
        np.testing.assert_array_equal(native, slow)
    return native


def assert_share(found: np.ndarray, p: float) -> None:
    """A share of trues that is p, but for chance."""
    assert abs(found.mean() - p) <= SIGMAS * math.sqrt(max(p * (1 - p), 1e-12) / found.size)


def assert_even(numbers: np.ndarray, kinds: int) -> None:
    """Numbers from 0 to kinds - 1, equally often but for chance: χ² of kinds - 1 degrees of freedom."""
    counts, expected = np.bincount(numbers, minlength=kinds), numbers.size / kinds
    assert len(counts) == kinds
    chi = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi - (kinds - 1)) <= 6 * math.sqrt(2 * (kinds - 1))


def test_uniform():
    x = draw(lambda s: ops.random.uniform(s, (N,)))
    assert x.min() >= 0 and x.max() < 1
    assert_even((x * 64).astype(int), 64)
    assert_even((x * 2**12 % 1 * 64).astype(int), 64)  # lower digits
    y = draw(lambda s: ops.random.uniform(s, (N,), -2.0, 6.0, dtype="float64"))
    assert y.min() >= -2 and y.max() < 6
    assert_even(((y + 2) * 8).astype(int), 64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_uniform_of_a_half_type_stays_below_one(dtype):
    x = draw(lambda s: ops.random.uniform(s, (N,), dtype=dtype)).astype(np.float64)
    assert x.min() == 0 and x.max() < 1
    assert_even((x * 64).astype(int), 64)


def test_normal():
    x = draw(lambda s: ops.random.normal(s, (N,), 3.0, 2.0)).astype(np.float64)
    z = (x - 3) / 2
    for power, (moment, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], 1):  # of z, z², z³, z⁴
        assert abs((z**power).mean() - moment) <= SIGMAS * math.sqrt(variance / N)
    below = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
    assert_even((below * 64).astype(int).clip(0, 63), 64)
    assert np.isfinite(z).all() and 4 < np.abs(z).max() < 6.8


@pytest.mark.parametrize("p", [0.0, 0.001, 0.25, 0.5, 0.999, 1.0])
def test_bernoulli(p):
    x = draw(lambda s: ops.random.bernoulli(s, (N,), p))
    assert x.dtype == np.bool_
    assert_share(x, p)


@pytest.mark.parametrize("low, high, dtype", [(-3, 10, "int64"), (0, 256, "uint8"), (5, 6, "int32")])
def test_randint(low, high, dtype):
    x = draw(lambda s: ops.random.randint(s, (N,), low, high, dtype))
    assert x.dtype == dtype
    assert_even(x.astype(np.int64) - low, high - low)


@pytest.mark.parametrize("low, high", [(-(2**63), 2**63), (-(2**40), 3 * 2**40)])
def test_randint_of_many_numbers(low, high):
    x = draw(lambda s: ops.random.randint(s, (N,), low, high))
    assert low <= int(x.min()) and int(x.max()) < high
    share = (x.astype(np.float64) - low) / (high - low)
    assert_even((share * 64).astype(int).clip(0, 63), 64)


def test_permutation():
    """Each number once, at any place equally often."""
    x = draw(lambda s: ops.random.permutation(s, 5000, "int32"))
    assert x.dtype == "int32" and sorted(x) == list(range(5000))
    function = pullback.compile(module_of(lambda s: ops.random.permutation(s, 4)))["main"]
    found = np.array([function(state(place=k)).numpy() for k in range(2000)])
    for place in range(4):
        assert_even(found[:, place], 4)
    orders = np.unique(found, axis=0, return_counts=True)[1]
    assert len(orders) == 24 and abs(((orders - 2000 / 24) ** 2 / (2000 / 24)).sum() - 23) <= 6 * math.sqrt(46)


def test_multinomial_from_uniform():
    """Each place as often as its probability says."""
    prob = np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]], np.float32)
    u = draw(lambda s: ops.random.uniform(s, (N, 1)))
    rows = (np.arange(N) % 2).reshape(N, 1)
    params = [Var(n, TensorStructInfo(a.shape, a.dtype.name)) for n, a in zip("pur", (prob, u, rows), strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(ops.multinomial_from_uniform(*params)))
    for target in ("debug", "llvm"):
        found = pullback.compile(builder.get(), target)["main"](prob, u, rows).numpy()
        for row in range(2):
            for place in range(4):
                assert_share(found[rows == row] == place, float(prob[row, place]))


def test_bits_differ_by_half_from_those_of_any_other_state():
    """Neighbouring seeds, steps and sites, and neighbouring elements."""
    states = [state(), state(1), state(2**63), state(0, 1), state(0, 2**39), state(0, 2**40), state(0, 5 * 2**40)]
    drawn = [pullback.compile(module_of(lambda s: ops.random.bits(s, (N,))))["main"](s).numpy() for s in states]
    drawn += [np.roll(drawn[0], k) for k in (1, 16, 64)]
    for k, a in enumerate(drawn):
        for b in drawn[:k]:
            assert_share(np.unpackbits((a ^ b).view(np.uint8)), 0.5)


def test_sites_are_states_of_their_own():
    found = pullback.compile(module_of(lambda s: ops.random.site(s, 3)))["main"](state(7, 11)).numpy()
    assert found.tolist() == [7, 11 + 3 * 2**40]


def test_same_numbers_in_any_shape_and_with_any_threads():
    """What an element draws follows from its row-major number."""
    flat = draw(lambda s: ops.random.bits(s, (N,)), 5)
    np.testing.assert_array_equal(draw(lambda s: ops.random.bits(s, (N // 100, 100)), 5).ravel(), flat)
    np.testing.assert_array_equal(draw(lambda s: ops.random.bits(s, (1000,)), 5), flat[:1000])
    function, before = pullback.compile(module_of(lambda s: ops.random.bits(s, (N,))))["main"], get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            np.testing.assert_array_equal(function(state(5)).numpy(), flat)
    finally:
        set_num_threads(before)


# -- dropout


def dropped(x: np.ndarray, p: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Output and mask, by native code and by the interpreter: the same."""
    module = module_of(lambda v, s: ops.nn.dropout(v, s, p), TensorStructInfo(x.shape, x.dtype.name))
    native, slow = (pullback.compile(module, t)["main"](x, state(seed)) for t in ("llvm", "debug"))
    for a, b in zip(native, slow, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    return native[0].numpy(), native[1].numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout(p, dtype):
    x = np.random.default_rng(0).standard_normal((500, 100)).astype(dtype)
    y, mask = dropped(x, p)
    assert y.dtype == mask.dtype == dtype and set(np.unique(mask)) <= {0, 1}
    assert_share(mask == 0, p)
    scaled = (x.astype(np.float64) / (1 - p) if p < 1 else np.zeros_like(x)).astype(dtype)
    np.testing.assert_allclose(y[mask == 1], scaled[mask == 1], rtol=2e-3 if dtype == "float16" else 1e-6)
    assert not y[mask == 0].any()


def test_what_is_dropped_is_zero_even_of_what_is_no_number():
    x = np.full((100,), np.nan, np.float32)
    x[::2] = np.inf
    y, mask = dropped(x, 0.5)
    assert not y[mask == 0].any() and not np.isfinite(y[mask == 1]).any()


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_the_gradient_drops_the_same_elements(target):
    """dx = mask · dy / (1 - p), and the gradient of that drops them too."""
    info = TensorStructInfo((30, 70), "float64")
    module = module_of(lambda x, w, s: ops.sum(ops.square(ops.dropout(x, s, 0.3)) * w), info, info)
    module = Gradient("main", ["x0"])(module)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((30, 70)), rng.standard_normal((30, 70))
    w[0, 0] = np.inf
    _, (dx,) = pullback.compile(module, target)["main_adjoint"](x, w, state(3))
    _, mask = dropped(x, 0.3, 3)
    with np.errstate(invalid="ignore"):
        expected = np.where(mask == 1, 2 * x * w / 0.7**2, 0.0)
    np.testing.assert_allclose(dx.numpy(), expected, rtol=1e-12)


def test_without_training_nothing_is_drawn():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    infos = TensorStructInfo((2, 3), "float32")
    module = module_of(lambda v, s: ops.nn.dropout(v, 0.5, training=False), infos)
    for target in ("llvm", "debug"):
        y, mask = pullback.compile(module, target)["main"](x, state())
        np.testing.assert_array_equal(y.numpy(), x)
        np.testing.assert_array_equal(mask.numpy(), np.ones_like(x))


def test_ways_to_hand_over_the_state():
    x, s = Var("x", TensorStructInfo((4,), "float32")), Var("s", STATE)
    for call in (
        R.nn.dropout(x, s, 0.1), R.nn.dropout(x, s, rate=0.1), R.nn.dropout(x, 0.1, state=s),
        R.nn.dropout(data=x, rate=0.1, state=s),
    ):  # fmt: skip
        assert call.args == (x, s) and call.attrs["rate"] == 0.1
    for call in (R.nn.dropout(x, 0.1), R.nn.dropout(x, rate=0.1), R.dropout(x, 0.1, False)):
        assert call.args == (x,)
    constant = R.random.uniform(state(), (3, 4))
    assert len(constant.args) == 1 and constant.attrs["shape"] == (3, 4)
    assert R.random.uniform((3, 4), -1.0).attrs["low"] == -1.0


@pytest.mark.parametrize(
    "build, kind, message",
    [
        (lambda x, s: R.nn.dropout(x, 1.5), UserError, "nn.dropout: rate must be a number from 0 to 1, got 1.5"),
        (lambda x, s: R.dropout(x, True), UserError, "dropout: p must be a number from 0 to 1, got True"),
        (lambda x, s: R.dropout(x, 0.5, 1), UserError, "dropout: training must be True or False, got 1"),
        (lambda x, s: R.dropout(s, 0.5), DTypeError, "dropout: its argument must have a floating-point dtype"),
        (lambda x, s: R.dropout(x, x, 0.5), ShapeError, r"dropout: the state must be Tensor\(\(2,\), uint64\)"),
        (lambda x, s: R.random.bits(s, (3,), "int32"), DTypeError, "random.bits: dtype must be one of"),
        (lambda x, s: R.random.uniform(s, (3,), dtype="int32"), DTypeError, "random.uniform: dtype must be a float"),
        (lambda x, s: R.random.uniform(s, (3,), 0.0, math.inf), UserError, "high must be a finite number, got inf"),
        (lambda x, s: R.random.normal(s, (-3,)), ShapeError, "-3"),
        (lambda x, s: R.random.bernoulli(s, (3,), -0.1), UserError, "random.bernoulli: p must be a number from 0 to 1"),
        (lambda x, s: R.random.randint(s, (3,), 5, 5), UserError, "random.randint: low must be below high"),
        (lambda x, s: R.random.randint(s, (3,), 0, 300, "int8"), UserError, "the numbers between them in int8"),
        (lambda x, s: R.random.randint(s, (3,), 0.0, 5), UserError, "random.randint: low must be an int, got 0.0"),
        (lambda x, s: R.random.shuffle(x), ShapeError, "random.shuffle: words must be a vector of uint64, got Tensor"),
        (lambda x, s: R.random.permutation(s, -3), UserError, "random.permutation: n cannot be negative, got -3"),
        (
            lambda x, s: R.random.permutation(s, 3, "int8"),
            DTypeError,
            "permutation: dtype must be one of: int32",
        ),
        (lambda x, s: R.multinomial_from_uniform(x, x, s), ShapeError, r"prob must have the shape \(rows, numbers\)"),
        (
            lambda x, s: R.multinomial_from_uniform(R.reshape(x, (2, 2)), x, s),
            ShapeError,
            r"must have one shape \(n, 1\), got \(4,\) and \(2,\)",
        ),
        (lambda x, s: R.multinomial_from_uniform(x, x, x), DTypeError, "sample_indices must have an integer dtype"),
        (lambda x, s: R.random.site(s, -1), UserError, "random.site: number must be ≥ 0"),
    ],
)
def test_errors(build, kind, message):
    with pytest.raises(kind, match=message):
        build(Var("x", TensorStructInfo((4,), "float32")), Var("s", STATE))
