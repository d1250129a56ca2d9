"""The elementary functions' accuracy: native code and, without LLVM, the expansions themselves."""

import math

import numpy as np
import pytest

from pullback.codegen.compile import compile_assembly
from pullback.codegen.module import emit_module
from pullback.target import Target
from pullback.tir import Buffer, PrimFunc, call, loop, store
from pullback.tir.expr import binary
from pullback.tir.interpreter import evaluate
from pullback.tir.math import expand

NAMES = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "sin", "cos", "tan"]
NAMES += ["erfc", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"]
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    2.0,
    88.72,
    88.73,
    -87.4,
    -103.9,
    -104.1,
    709.7,
    709.8,
    -745.1,
]


def reference(name, x):
    """The function in long double, or in double where the argument is float32 and erf has no better one."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        if name in ("erf", "erfc"):
            return np.array([getattr(math, name)(float(v)) for v in x], np.longdouble)
        return getattr(
            np,
            {
                "asin": "arcsin",
                "acos": "arccos",
                "atan": "arctan",
                "asinh": "arcsinh",
                "acosh": "arccosh",
                "atanh": "arctanh",
            }.get(name, name),
        )(wide)


def arguments(dtype, n=20000):
    """Dense where the functions bend, random bits elsewhere, and the edges."""
    rng = np.random.default_rng(3)
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    bits = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), n, np.uint64)
    parts = [EDGES, [tiny, -tiny, 3 * tiny, huge, -huge, np.finfo(dtype).tiny], rng.uniform(-1.2, 1.2, n),
             rng.uniform(-20, 20, n), rng.uniform(-110, 100, n), 1 + rng.uniform(-0.5, 0.5, n)]  # fmt: skip
    with np.errstate(over="ignore"):
        x = np.concatenate([np.asarray(p, np.float64) for p in parts]).astype(dtype)
    return np.concatenate([x, bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)])


def assert_ulp(name, x, y, bound):
    assert_close(x, reference(name, x), y, bound)


def assert_close(x, want, y, bound):
    with np.errstate(all="ignore"):
        rounded = want.astype(x.dtype)
        error = np.abs(y.astype(np.longdouble) - want) / np.abs(np.spacing(rounded)).astype(np.longdouble)
        good = (y == rounded) | (np.isnan(y) & np.isnan(rounded)) | (error <= bound)
    signs = np.isnan(y) | (np.signbit(y) == np.signbit(rounded))
    bad = np.flatnonzero(~(good & signs))
    assert bad.size == 0, [(x[i], y[i], rounded[i], float(error[i])) for i in bad[:5]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native(dtype, native):
    x = arguments(dtype)
    a, b = Buffer("a", x.shape, dtype), Buffer("b", x.shape, dtype)
    functions = [
        PrimFunc(f"f_{name}", (a, b), loop("i", x.size, lambda i, n=name: store(b, i, call(n, a[i])), "vectorized"))
        for name in NAMES
    ]
    library = native.load(functions)
    for name, func in zip(NAMES, functions, strict=True):
        y = np.zeros_like(x)
        native.call(library, func, (x, y))
        assert_ulp(name, x, y, 2)


def pairs(dtype):
    """Random bits, small numbers, whole ones, and the edges with each other."""
    x = arguments(dtype, 20000)
    rng = np.random.default_rng(4)
    edges = np.array([*EDGES, 3.0, -3.0, -0.5, 1e-40, 3e38, 2.0**30, -7.0, 0.1], dtype)
    whole = rng.integers(-40, 40, (2, 20000)).astype(dtype)
    near = rng.uniform(-9, 9, (2, 20000)).astype(dtype)
    with np.errstate(all="ignore"):
        multiple = (near[1] * whole[1]).astype(dtype)  # quotients that are nearly integers
    parts = [(x, rng.permutation(x)), (whole[0], whole[1]), near, (near[0], whole[0]), (multiple, near[1])]
    parts.append(tuple(np.meshgrid(edges, edges)))
    return [np.concatenate([np.ravel(p[k]) for p in parts]) for k in (0, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native_of_two(dtype, native):
    """Power and atan2 to 2 ulp, the remainder exactly."""
    x, y = pairs(dtype)
    a, b, c = (Buffer(n, x.shape, dtype) for n in "abc")
    bodies = {"pow": lambda p, q: call("pow", p, q), "atan2": lambda p, q: call("atan2", p, q),
              "fmod": lambda p, q: binary("truncmod", p, q)}  # fmt: skip
    functions = [
        PrimFunc(f"f_{n}", (a, b, c), loop("i", x.size, lambda i, f=f: store(c, i, f(a[i], b[i])), "vectorized"))
        for n, f in bodies.items()
    ]
    library = native.load(functions)
    for name, func in zip(bodies, functions, strict=True):
        z = np.zeros_like(x)
        native.call(library, func, (x, y, z))
        with np.errstate(all="ignore"):
            wide = x.astype(np.longdouble), y.astype(np.longdouble)
            want = {"pow": np.power, "atan2": np.arctan2, "fmod": np.fmod}[name](*(wide if name != "fmod" else (x, y)))
        assert_close(x, want, z, 0 if name == "fmod" else 2)


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_expansion(name, dtype, fma):
    expansion = expand(name, dtype, fma)
    if expansion is None:
        assert dtype == "float64"
        return
    x = arguments(dtype)
    if expansion.rare is not None:
        (var,) = expansion.rare.params
        x = x[~evaluate(expansion.rare.body, {var: x})]
    (var,) = expansion.value.params
    assert_ulp(name, x, evaluate(expansion.value.body, {var: x}), 2)


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_parts_are_scaled_to_the_same_bits(name, dtype, fma):
    """Whether a CPU has an instruction for m · 2ⁿ, the results are equal, subnormal ones and those at the ends too."""
    expansion = expand(name, dtype, fma)
    x = arguments(dtype)
    m, n = (evaluate(part.body, {part.params[0]: x}) for part in expansion.parts)
    (var,) = expansion.value.params
    finite = np.isfinite(n)
    with np.errstate(all="ignore"):
        scaled = np.ldexp(m[finite], n[finite].astype(np.int32))
    np.testing.assert_array_equal(scaled, evaluate(expansion.value.body, {var: x})[finite])
    assert np.isnan(x[~finite]).all()


@pytest.mark.parametrize(("cpu", "count"), [("emeraldrapids", 2), ("haswell", 0)])
def test_scaling_is_an_instruction_where_there_is_one(cpu, count):
    a, b = Buffer("a", (32,)), Buffer("b", (32,))
    func = PrimFunc("f", (a, b), loop("i", 32, lambda i: store(b, i, call("exp", a[i])), "vectorized"))
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert compile_assembly(emit_module([func], target), target).count("vscalefps") == count


def test_rare_arguments_in_some_lanes(native):
    """Large angles take libm's way; the lanes beside them keep the fast one's bits."""
    x = np.linspace(-3, 3, 48).astype(np.float32)
    a, b = Buffer("a", (48,)), Buffer("b", (48,))
    func = PrimFunc("f", (a, b), loop("i", 48, lambda i: store(b, i, call("sin", a[i])), "vectorized"))
    library = native.load([func])
    plain, mixed = np.zeros_like(x), np.zeros_like(x)
    native.call(library, func, (x, plain))
    x[[3, 20, 21]] = [1e10, -3e38, np.inf]
    native.call(library, func, (x, mixed))
    assert_ulp("sin", x, mixed, 1)
    changed = np.flatnonzero(plain != mixed)
    assert changed.tolist() == [3, 20, 21]


def test_scalar_and_vector_agree(native):
    x = arguments("float32", 500)
    a, b = Buffer("a", x.shape), Buffer("b", x.shape)
    for name in NAMES:
        results = []
        for kind in ("serial", "vectorized"):
            func = PrimFunc("f", (a, b), loop("i", x.size, lambda i, n=name: store(b, i, call(n, a[i])), kind))
            y = np.zeros_like(x)
            native(func, x, y)
            results.append(y)
        assert results[0].tobytes() == results[1].tobytes() or np.array_equal(*results, equal_nan=True)


@pytest.mark.parametrize("fma", [True, False])
def test_log10_of_powers_of_ten(fma):
    """Those that float32 holds exactly."""
    log10 = expand("log10", "float32", fma).value
    x = (10.0 ** np.arange(11)).astype(np.float32)
    assert np.array_equal(evaluate(log10.body, {log10.params[0]: x}), np.arange(11))
