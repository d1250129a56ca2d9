"""Every binary kind, cast and intrinsic, for every dtype, in vectors with tails and in scalars."""

import numpy as np
import pytest

from pullback.tir import Buffer, Call, PrimFunc, binary, call, cast, const, loop, select, store
from pullback.tir.arithmetic import numpy_dtype
from pullback.tir.expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    DTYPES,
    FLOATS,
    INTEGERS,
    INTRINSICS,
    LOGIC,
    is_float,
    is_integer,
)
from tests.codegen.conftest import OF_INTEGERS

N = 131  # eight vectors of sixteen and a tail of three


def sample(dtype, seed=0, n=N):
    """Values of a dtype: edge cases first, then random ones of all sizes."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if is_float(dtype):
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan, 1e-41, 7.0, 250.0, -128.6, 3e9, -1e19]
        rest = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
        with np.errstate(over="ignore"):
            values = np.concatenate([edges, rest])[:n].astype(kind)
    else:
        limits = np.iinfo(kind)
        edges = [0, 1, limits.max, limits.min, 2, 3, limits.max - 1, limits.min + 1, 0 if limits.min == 0 else -1]
        values = np.concatenate(
            [
                np.array(edges, kind),
                rng.integers(limits.min, limits.max, n, kind, True),
                rng.integers(0, 20, n).astype(kind),
            ]
        )
        values = rng.permutation(values)[:n]
        values[: len(edges)] = edges
    return values if seed == 0 else rng.permutation(values)


def elementwise(name, inputs, output, scalar, kind="vectorized"):
    """``y[i] = scalar(x0[i], …)``."""
    xs = [Buffer(f"x{i}", (N,), d) for i, d in enumerate(inputs)]
    y = Buffer("y", (N,), output)
    return PrimFunc(name, (*xs, y), loop("i", N, lambda i: store(y, i, scalar(*(x[i] for x in xs))), kind))


def kinds_of(dtype):
    if dtype == "bool":
        return ("eq", "ne", *LOGIC, "bitand", "bitor", "bitxor", "add", "mul", "min", "max")
    if is_float(dtype):
        return ARITHMETIC + COMPARISONS
    return tuple(k for k in ARITHMETIC + COMPARISONS + BITWISE)


@pytest.mark.parametrize("loop_kind", ["vectorized", "serial"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_binary(dtype, loop_kind, native):
    def function(kind):
        result = "bool" if kind in COMPARISONS + LOGIC else dtype
        return elementwise(f"f_{kind}", [dtype, dtype], result, lambda a, b: binary(kind, a, b), loop_kind)

    functions = [function(kind) for kind in kinds_of(dtype)]
    library = native.load(functions)
    a, b = sample(dtype), sample(dtype, seed=1)
    if is_integer(dtype):
        b[20:30] = np.arange(10)  # shifts that are not too far
    for func in functions:
        native.check(func, a, b, np.zeros(N, numpy_dtype(func.params[-1].dtype)), library=library)


DIVISIONS = [(t, d) for t in INTEGERS for d in (0, 1, -1, 2, 7, -3) if d >= 0 or not t.startswith("u")]


@pytest.mark.parametrize(("dtype", "divisor"), DIVISIONS)
def test_division_by_constants(dtype, divisor, native):
    kinds = ("div", "floordiv", "floormod", "truncmod")
    functions = [elementwise(f"f_{k}", [dtype], dtype, lambda a, k=k: binary(k, a, divisor)) for k in kinds]
    library = native.load(functions)
    for func in functions:
        native.check(func, sample(dtype), np.zeros(N, dtype), library=library)


@pytest.mark.parametrize("source", DTYPES)
def test_cast(source, native):
    functions = [elementwise(f"to_{d}", [source], d, lambda a, d=d: cast(d, a)) for d in DTYPES]
    library = native.load(functions)
    for func in functions:
        native.check(func, sample(source), np.zeros(N, numpy_dtype(func.params[-1].dtype)), library=library)


ULP = {"float64": 3, "float32": 2, "float16": 1, "bfloat16": 1}  # the interpreter's own libm is half an ulp off, too
EXACT = {"abs", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite", "fma", "not"}


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_intrinsics(dtype, native):
    names = [n for n in INTRINSICS if n not in OF_INTEGERS]
    results = {n: "bool" if n in ("isnan", "isinf", "isfinite") else dtype for n in names}
    functions = [elementwise(f"f_{n}", [dtype] * INTRINSICS[n], results[n], lambda *a, n=n: call(n, *a)) for n in names]
    library = native.load(functions)
    inputs = [sample(dtype), sample(dtype, seed=1), sample(dtype, seed=2)]
    for name, func in zip(names, functions, strict=True):
        arrays = inputs[: INTRINSICS[name]]
        out = np.zeros(N, numpy_dtype(results[name]))
        native.check(func, *arrays, out, ulp=0 if name in EXACT else ULP[dtype], library=library)


@pytest.mark.parametrize("dtype", ("bool", *INTEGERS))
def test_integer_intrinsics(dtype, native):
    names = ["not"] if dtype == "bool" else ["not", "abs", "floor", "round", "isnan", "isfinite", "fma"]
    for name in names:
        result = "bool" if name in ("isnan", "isfinite") else dtype
        func = elementwise(f"f_{name}", [dtype] * INTRINSICS[name], result, lambda *a, n=name: call(n, *a))
        inputs = [sample(dtype, seed=s) for s in range(INTRINSICS[name])]
        native.check(func, *inputs, np.zeros(N, result))


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_philox(dtype, native):
    """In lanes of different words, blocks and keys, and in scalars."""
    func = elementwise("f", ["uint32"] * 7, dtype, lambda *a: call("philox4x32", *a, dtype=dtype))
    word = np.arange(N, dtype=np.uint32) % (4 if dtype == "uint32" else 2)
    native.check(func, word, *(sample("uint32", seed=s) for s in range(6)), np.zeros(N, dtype))


@pytest.mark.parametrize(
    "a, b", [("float32", "int32"), ("float64", "uint64"), ("float16", "int16"), ("bfloat16", "uint16")]
)
def test_reinterpret(a, b, native):
    func = elementwise("f", [a], b, lambda x: Call("reinterpret", (x,), b))
    (x, bits) = native.check(func, sample(a), np.zeros(N, b))
    assert x.view(b).tolist() == bits.tolist()
    native.check(elementwise("g", [b], a, lambda x: Call("reinterpret", (x,), a)), bits, np.zeros(N, numpy_dtype(a)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_select_and_constants(dtype, native):
    one = const(1, "bool") if dtype == "bool" else 1
    func = elementwise("f", ["bool", dtype], dtype, lambda c, a: select(c, a, one))
    native.check(func, sample("bool"), sample(dtype), np.zeros(N, numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_conversions_are_right_for_all_values(dtype, native):
    every = np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtype))
    x, y, z = Buffer("x", (2**16,), dtype), Buffer("y", (2**16,)), Buffer("z", (2**16,), dtype)
    body = loop("i", 2**16, lambda i: store(y, i, cast("float32", x[i]) * 1.0009765625), "vectorized")
    native.check(PrimFunc("widen", (x, y), body), every, np.zeros(2**16, np.float32))
    wide = np.random.default_rng(0).integers(0, 2**32, 2**16, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        wide[: 2**15] = every.astype(np.float32)[: 2**15] * np.float32(1.0009765625)
    body = loop("i", 2**16, lambda i: store(z, i, cast(dtype, y[i])), "vectorized")
    native.check(PrimFunc("narrow", (y, z), body), wide, np.zeros(2**16, numpy_dtype(dtype)))


@pytest.mark.parametrize("value", [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, -(1 + 2**-8), 3.3e38, 2.0**-133, -0.0])
def test_constants_of_bfloat16_are_the_nearest(native, value):
    """Of two that are as near, the even one."""
    y = Buffer("y", (3,), "bfloat16")
    kernel = PrimFunc("f", (y,), loop("i", 3, lambda i: store(y, i, const(value, "bfloat16"))))
    (result,) = native.check(kernel, np.zeros(3, numpy_dtype("bfloat16")))
    with np.errstate(over="ignore"):
        expected = np.full(3, value).astype("float32").astype(numpy_dtype("bfloat16"))
    assert result.tobytes() == expected.tobytes()
