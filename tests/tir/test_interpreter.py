"""The interpreter against plain NumPy and plain Python: the oracle of generated code must be right itself."""

from fractions import Fraction

import numpy as np
import pytest

from pullback.ir.errors import InternalError
from pullback.tir import (
    Allocate,
    Buffer,
    Call,
    For,
    If,
    Let,
    PrimFunc,
    Var,
    binary,
    cast,
    fma,
    loop,
    select,
    seq,
    store,
)
from pullback.tir.arithmetic import convert
from pullback.tir.arithmetic import fma as exact_fma
from pullback.tir.interpreter import evaluate, run

rng = np.random.default_rng(1)


def test_matmul():
    a, b, c = Buffer("A", (5, 7)), Buffer("B", (7, 9)), Buffer("C", (5, 9))
    acc = Buffer("acc", (9,), "float32", "local")
    body = loop("i", 5, lambda i: Allocate(acc, seq(
        loop("j", 9, lambda j: store(acc, j, 0.0), "vectorized"),
        loop("k", 7, lambda k: loop("j", 9, lambda j: store(acc, j, fma(a[i, k], b[k, j], acc[j])), "vectorized")),
        loop("j", 9, lambda j: store(c, (i, j), acc[j]), "vectorized"))), "parallel")  # fmt: skip
    x, y, z = rng.normal(size=(5, 7)).astype("f"), rng.normal(size=(7, 9)).astype("f"), np.zeros((5, 9), "f")
    assert run(PrimFunc("matmul", (a, b, c), body), [x, y, z]) == 0
    np.testing.assert_allclose(z, x @ y, rtol=1e-5)


def test_vectorized_is_statement_by_statement():
    """The first statement for all lanes, then the second: a local buffer has the lanes' values."""
    x, y = Buffer("x", (6,)), Buffer("y", (6,))
    body = loop("i", 6, lambda i: seq(store(y, i, x[i]), store(x, i, y[5 - i])), "vectorized")
    a, b = np.arange(6, dtype="f"), np.zeros(6, "f")
    run(PrimFunc("reverse", (x, y), body), [a, b])
    assert a.tolist() == [5, 4, 3, 2, 1, 0]


def test_masks_nest_and_ragged_extents():
    x, y = Buffer("x", (4, 4)), Buffer("y", (4, 4))
    body = loop("i", 4, lambda i: loop("j", i + 1, lambda j: If(
        x[i, j] > 0.0, If(x[i, j] > 1.0, store(y, (i, j), 2.0), store(y, (i, j), 1.0)), store(y, (i, j), -1.0)),
        "vectorized"), "parallel")  # fmt: skip
    a, b = rng.normal(size=(4, 4)).astype("f"), np.zeros((4, 4), "f")
    run(PrimFunc("f", (x, y), body), [a, b])
    np.testing.assert_array_equal(b, np.tril(np.where(a > 1, 2, np.where(a > 0, 1, -1))))


def test_local_buffers_belong_to_their_iteration():
    y = Buffer("y", (3, 4))
    own = Buffer("own", (2,), "float32", "local")
    body = loop("i", 3, lambda i: loop("j", 4, lambda j: Allocate(own, seq(
        store(own, 1, cast("float32", i * 10 + j)), store(y, (i, j), own[1]))), "vectorized"), "parallel")  # fmt: skip
    out = np.zeros((3, 4), "f")
    run(PrimFunc("f", (y,), body), [out])
    np.testing.assert_array_equal(out, np.arange(3)[:, None] * 10 + np.arange(4))


def test_undefined_contents_are_poison():
    y, own = Buffer("y", (1,)), Buffer("own", (1,), "float32", "local")
    out = np.zeros(1, "f")
    run(PrimFunc("f", (y,), Allocate(own, store(y, 0, own[0]))), [out])
    assert np.isnan(out[0])


def test_workspace_is_shared_by_tasks():
    x, y, w = Buffer("x", (5,)), Buffer("y", (5,)), Buffer("w", (5,), "float32", "workspace")
    body = Allocate(w, seq(loop("i", 5, lambda i: store(w, i, x[i] * 2.0), "parallel"),
                           loop("i", 5, lambda i: store(y, i, w[4 - i]), "parallel")))  # fmt: skip
    a, out = np.arange(5, dtype="f"), np.zeros(5, "f")
    run(PrimFunc("f", (x, y), body), [a, out])
    assert out.tolist() == [8, 6, 4, 2, 0]


def test_symbolic_sizes():
    n = Var("n")
    x, y = Buffer("x", (n, 2)), Buffer("y", (n,))
    func = PrimFunc("f", (x, y, n), loop("i", n, lambda i: store(y, i, x[i, 0] + x[i, 1]), "vectorized"))
    for size in (0, 1, 5):
        a, out = rng.normal(size=(size, 2)).astype("f"), np.zeros(size, "f")
        run(func, [a, out, size])
        np.testing.assert_array_equal(out, a.sum(1))


def test_let_and_serial():
    x, t = Buffer("x", (6,), "int64"), Var("t")
    body = loop("i", 4, lambda i: Let(t, x[i] + x[i + 1], store(x, i + 2, t)))
    out = np.array([0, 1, 0, 0, 0, 0])
    run(PrimFunc("fibonacci", (x,), body), [out])
    assert out.tolist() == [0, 1, 1, 2, 3, 5]


@pytest.mark.parametrize("body, message", [
    (lambda x: store(x, 4, 1.0), "index 4 of x, which has 4"),
    (lambda x: store(x, -1, 1.0), "index -1 of x"),
    (lambda x: loop("i", 5, lambda i: store(x, 0, x[i]), "vectorized"), "index 4 of x"),
    (lambda x: loop("i", 5, lambda i: store(x, 0, select(i < 4, x[i], 0.0)), "vectorized"), "index 4 of x"),
    (lambda x: store(Buffer("other", (1,)), 0, 1.0), "buffer other is not a parameter"),
    (lambda x: store(x, Var("loose"), 1.0), "loose is not bound"),
])  # fmt: skip
def test_mistakes_of_kernels_are_found(body, message):
    x = Buffer("x", (4,))
    with pytest.raises(InternalError, match=message):
        run(PrimFunc("f", (x,), body(x)), [np.zeros(4, "f")])


@pytest.mark.parametrize("arguments, message", [
    ([], "takes 1 arguments, got 0"), ([np.zeros(5, "f")], r"x is float32\[4\], got float32\[5\]"),
    ([np.zeros(4)], r"got float64\[4\]"),
])  # fmt: skip
def test_arguments_are_checked(arguments, message):
    x = Buffer("x", (4,))
    with pytest.raises(InternalError, match=message):
        run(PrimFunc("f", (x,), store(x, 0, 1.0)), arguments)


def test_masked_loads_may_be_out_of_bounds():
    x, y = Buffer("x", (3,)), Buffer("y", (6,))
    body = loop("i", 6, lambda i: If((i >= 2) & (i < 5), store(y, i, x[i - 2])), "vectorized")
    out = np.zeros(6, "f")
    run(PrimFunc("f", (x, y), body), [np.ones(3, "f"), out])
    assert out.tolist() == [0, 0, 1, 1, 1, 0]


# ---- scalars

A, B = Var("a", "int32"), Var("b", "int32")


def values(kind, a, b, dtype="int32"):
    x, y = Var("x", dtype), Var("y", dtype)
    return evaluate(binary(kind, x, y), {x: np.array(a, dtype), y: np.array(b, dtype)}).tolist()


def test_integer_division():
    a, b = [7, -7, 7, -7, 5, -(2**31), 0], [2, 2, -2, -2, 0, -1, 3]
    assert values("floordiv", a, b) == [3, -4, -4, 3, 0, -(2**31), 0]
    assert values("floormod", a, b) == [1, 1, -1, -1, 0, 0, 0]
    assert values("div", a, b) == [3, -3, -3, 3, 0, -(2**31), 0]
    assert values("truncmod", a, b) == [1, -1, 1, -1, 0, 0, 0]


def test_shifts():
    assert values("shl", [1, 1, -1, 3], [4, 32, 40, 31]) == [16, 0, 0, -(2**31)]
    assert values("shr", [-8, -8, 8, -1], [1, 35, 35, 0]) == [-4, -1, 0, -1]


def test_nan_wins():
    nan = float("nan")
    assert np.isnan(values("min", [nan, 1], [1, nan], "float32")).all()
    assert np.isnan(values("max", [nan, 1], [1, nan], "float64")).all()


@pytest.mark.parametrize("target, expected", [
    ("int8", [127, -128, 0, 2, -2, 0]), ("uint8", [255, 0, 0, 2, 0, 0]),
    ("int32", [2**31 - 1, -(2**31), 0, 2, -2, 0]), ("int64", [2**63 - 1, -(2**63), 0, 2, -2, 0]),
    ("uint64", [2**64 - 1, 0, 0, 2, 0, 0]), ("bool", [True, True, True, True, True, False]),
])  # fmt: skip
def test_casts_saturate(target, expected):
    with np.errstate(all="ignore"):
        assert convert(np.array([1e30, -1e30, np.nan, 2.9, -2.9, -0.0]), "float64", target).tolist() == expected


def test_cast_to_half_rounds_once():
    """1 + 2**-11 + 2**-40 is above the midpoint of two float16 neighbours; float32 would lose the last bit."""
    assert convert(np.float64(1 + 2**-11 + 2**-40), "float64", "float16") == np.float16(1 + 2**-10)
    assert convert(np.float64(1 + 2**-11), "float64", "float16") == np.float16(1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(dtype):
    n = 2000
    a, b = (rng.normal(size=n).astype(dtype) for _ in range(2))
    c = (-(a * b) * (1 + rng.integers(-3, 3, n) * np.finfo(dtype).eps)).astype(dtype)
    c[::3] = rng.normal(size=len(c[::3])) * 1e-3
    for x, y, z, got in zip(a, b, c, exact_fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        nearest = np.dtype(dtype).type(float(exact)) if dtype == "float64" else _round32(exact)
        assert got == nearest


def _round32(exact):
    near = np.float32(float(exact))
    neighbours = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    return min(neighbours, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1))


def test_reinterpret():
    x = Var("x", "float32")
    assert evaluate(Call("reinterpret", (x,), "int32"), {x: [1.0, -0.0]}).tolist() == [0x3F800000, -(2**31)]


def test_zero_extent_loops():
    x = Buffer("x", (1,))
    for kind in ("serial", "parallel", "vectorized", "unrolled"):
        run(PrimFunc("f", (x,), For(Var("i"), 0, store(x, 5, 1.0), kind)), [np.zeros(1, "f")])
