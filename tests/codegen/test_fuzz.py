"""Random expressions and random loop nests, natively and by the interpreter."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.tir import Buffer, IntImm, PrimFunc, binary, call, cast, loop, select, store
from pullback.tir.expr import COMPARISONS

N = 37
INTEGER_KINDS = ("add", "sub", "mul", "div", "floordiv", "floormod", "truncmod", "min", "max", "bitand", "bitxor",
                 "shl", "shr")  # fmt: skip
FLOAT_KINDS = ("add", "sub", "mul", "div", "min", "max")


@st.composite
def expressions(draw, dtype, depth=4):
    """A function from the loads and the loop variable to an expression of the dtype."""
    leaf = depth == 0 or draw(st.integers(0, 5)) == 0
    if leaf:
        choice = draw(st.integers(0, 3))
        if choice == 0:
            value = draw(st.integers(-3, 9))
            return lambda x, y, i: cast(dtype, IntImm(value, "int64"))
        if choice == 1:
            return lambda x, y, i: cast(dtype, i)
        return (lambda x, y, i: x) if choice == 2 else (lambda x, y, i: y)
    choice = draw(st.integers(0, 6))
    a, b = draw(expressions(dtype, depth - 1)), draw(expressions(dtype, depth - 1))
    if choice == 0:
        c, d = draw(expressions(dtype, depth - 1)), draw(expressions(dtype, depth - 1))
        kind = draw(st.sampled_from(COMPARISONS))
        return lambda x, y, i: select(binary(kind, a(x, y, i), b(x, y, i)), c(x, y, i), d(x, y, i))
    if choice == 1 and dtype != "float16":
        return lambda x, y, i: call("fma", a(x, y, i), b(x, y, i), a(x, y, i))
    kind = draw(st.sampled_from(INTEGER_KINDS if "int" in dtype else FLOAT_KINDS))
    return lambda x, y, i: binary(kind, a(x, y, i), b(x, y, i))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["int8", "int32", "uint32", "int64", "float32", "float64", "float16"]),
       kind=st.sampled_from(["vectorized", "serial", "parallel"]), seed=st.integers(0, 1000))  # fmt: skip
def test_random_expressions(native, data, dtype, kind, seed):
    function = data.draw(expressions(dtype))
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-5 if dtype[0] != "u" else 0, 60, N).astype(dtype) for _ in range(2)]
    if dtype == "float16":  # keep products finite, so that no rounding of huge ones differs
        inputs = [v / np.float16(64) for v in inputs]
    x, y, z = Buffer("x", (N,), dtype), Buffer("y", (N,), dtype), Buffer("z", (N,), dtype)
    func = PrimFunc("f", (x, y, z), loop("i", N, lambda i: store(z, i, function(x[i], y[N - 1 - i], i)), kind))
    native.check(func, *inputs, np.zeros(N, dtype))


@st.composite
def index_expressions(draw, depth=3):
    """A function from two loop variables to index arithmetic."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        value = draw(st.integers(-2, 12))
        return draw(st.sampled_from([lambda i, j: i, lambda i, j: j, lambda i, j: j, lambda i, j: IntImm(value)]))
    a, b = draw(index_expressions(depth - 1)), draw(index_expressions(depth - 1))
    kind = draw(st.sampled_from(["add", "sub", "mul", "floordiv", "floormod", "min", "max", "select"]))
    divisor = draw(st.sampled_from([1, 2, 3, 8, 16, 32, 48]))
    if kind in ("floordiv", "floormod"):
        return lambda i, j: binary(kind, a(i, j), divisor)
    if kind == "select":
        return lambda i, j: select(a(i, j) < b(i, j), a(i, j), b(i, j) + divisor)
    return lambda i, j: binary(kind, a(i, j), b(i, j))


@settings(max_examples=80, deadline=None)
@given(
    index=index_expressions(),
    extent=st.sampled_from([5, 16, 33, 64, 100]),
    modulus=st.sampled_from([7, 16, 64, 100]),
    outer=st.sampled_from(["serial", "unrolled", "parallel"]),
)
def test_random_indices(native, index, extent, modulus, outer):
    x, y, z = Buffer("x", (modulus,)), Buffer("y", (3, extent)), Buffer("z", (3, extent), "int64")
    body = loop(
        "i", 3, lambda i: loop("j", extent, lambda j: store(y, (i, j), x[index(i, j) % modulus]), "vectorized"), outer
    )
    values = loop("i", 3, lambda i: loop("j", extent, lambda j: store(z, (i, j), index(i, j)), "vectorized"), outer)
    data = np.arange(modulus, dtype=np.float32)
    native.check(PrimFunc("f", (x, y), body), data, np.zeros((3, extent), np.float32))
    native.check(PrimFunc("g", (z,), values), np.zeros((3, extent), np.int64))
