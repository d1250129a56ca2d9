"""Gradients of kernels of the loop IR: against numeric differences, interpreted and native, first and second order."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DifferentiationError
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Constant
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient
from pullback.script import from_source
from pullback.tir import derivative
from pullback.tir.expr import INTRINSICS

PROGRAMS = {  # kernels of x (4, 5), w (5,), indices i (4,) of 0 to 3, and the result y (4, 5)
    "elementwise": """
    for a in T.parallel(4):
        for b in T.vectorized(5):
            y[a, b] = T.exp(x[a, b]) * w[b] + T.tanh(x[a, b]) / (w[b] * w[b] + 1.0)
""",
    "a sum of products, accumulated in the result": """
    for a in range(4):
        for b in range(5):
            y[a, b] = 0.0
            for k in range(5):
                y[a, b] = y[a, b] + x[a, k] * w[(k + b) % 5]
""",
    "the result is read again after it is written": """
    for a in range(4):
        for b in range(5):
            y[a, b] = x[a, b] * w[b]
        for b in range(5):
            y[a, b] = y[a, b] * y[a, (b + 1) % 5]
""",
    "hints": """
    for a in range(4):
        T.prefetch(x[a, 0], "read")
        for b in range(5):
            T.prefetch(y[a, b], "write")
            y[a, b] = x[a, b] * x[a, b] * w[b]
            y[a, b] = y[a, b] * y[a, b]
""",
    "running product": """
    for a in range(4):
        for b in range(5):
            y[a, b] = x[a, b] + 2.0
            if b > 0:
                y[a, b] = y[a, b] * y[a, b - 1]
""",
    "the largest": """
    m = T.alloc_buffer((1,), "float64")
    for a in range(4):
        m[0] = x[a, 0]
        for b in range(4):
            m[0] = T.max(m[0], x[a, b + 1])
        for b in range(5):
            y[a, b] = x[a, b] * m[0] * w[b]
""",
    "softmax in a local buffer": """
    for a in T.parallel(4):
        e = T.alloc_buffer((5,), "float64")
        total = T.alloc_buffer((1,), "float64")
        total[0] = 0.0
        for b in range(5):
            e[b] = T.exp(x[a, b])
            total[0] = total[0] + e[b]
        for b in range(5):
            y[a, b] = e[b] / total[0] * w[b]
""",
    "gathered rows": """
    for a in range(4):
        for b in range(5):
            y[a, b] = x[i[a], b] * x[i[a], b] * w[b]
""",
    "scattered rows": """
    for a in range(4):
        for b in range(5):
            y[a, b] = w[b]
    for a in range(4):
        for b in range(5):
            y[i[a], b] = y[i[a], b] + x[a, b] * w[b] * w[b]
""",
    "scattered rows that overwrite each other": """
    for a in range(4):
        for b in range(5):
            y[a, b] = w[b] * w[b]
    for a in range(4):
        for b in range(5):
            y[i[a], b] = x[a, b] * x[a, b]
""",
    "a branch on a value": """
    for a in range(4):
        for b in range(5):
            if x[a, b] > 0.1:
                y[a, b] = x[a, b] * x[a, b] * w[b]
            else:
                y[a, b] = T.sin(x[a, b])
""",
    "a branch on what is overwritten": """
    s = T.alloc_buffer((1,), "float64")
    for a in range(4):
        s[0] = w[a]
        for b in range(5):
            if s[0] > 0.0:
                s[0] = s[0] * x[a, b]
            else:
                s[0] = s[0] + x[a, b] * x[a, b]
            y[a, b] = s[0]
""",
    "names": """
    for a in range(4):
        for b in range(5):
            p: T.float64 = x[a, b] * w[b]
            q: T.float64 = T.exp(p) + p
            y[a, b] = p * q
""",
    "a name for what is overwritten": """
    s = T.alloc_buffer((1,), "float64")
    for a in range(4):
        s[0] = 1.0
        for b in range(5):
            before: T.float64 = s[0]
            s[0] = before * x[a, b] + w[b]
            y[a, b] = before * s[0]
""",
    "a triangle": """
    for a in range(4):
        for b in range(5):
            y[a, b] = 1.0
        for b in range(a + 1):
            y[a, b] = y[a, b] * x[a, b] * w[b]
            y[a, b] = y[a, b] * y[a, 0]
""",
    "intrinsics of two arguments": """
    for a in range(4):
        for b in range(5):
            y[a, b] = T.pow(x[a, b] * x[a, b] + 0.5, w[b]) + T.atan2(x[a, b], w[b]) + T.fma(x[a, b], w[b], x[a, b])
""",
    "lanes, statement by statement": """
    t = T.alloc_buffer((5,), "float64")
    for a in range(4):
        for b in T.vectorized(5):
            t[b] = x[a, b] * w[b]
            y[a, b] = t[b] * t[4 - b]
""",
    "another precision on the way": """
    for a in range(4):
        for b in range(5):
            y[a, b] = T.cast("float64", T.cast("float64", x[a, b]) * w[b]) * 2.0
""",
}
SOURCE = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((4, 5), "float64"), w: T.Buffer((5,), "float64"), i: T.Buffer((4,), "int64"),
               y: T.Buffer((4, 5), "float64")):
{body}
    @R.function
    def main(x: R.Tensor((4, 5), "float64"), w: R.Tensor((5,), "float64"), i: R.Tensor((4,), "int64"),
             c: R.Tensor((4, 5), "float64")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, w, i), out_sinfo=R.Tensor((4, 5), "float64"))
        z = R.sum(R.multiply(y, c))
        return z
"""
REQUIRED = ["x", "w", "c"]
rng = np.random.default_rng(3)
VALUES = [rng.standard_normal((4, 5)), rng.standard_normal(5), np.array([2, 0, 2, 1]), rng.standard_normal((4, 5))]
WAYS = [rng.standard_normal(v.shape) if v.dtype.kind == "f" else None for v in VALUES]


def module_of(body: str) -> IRModule:
    return from_source(SOURCE.format(body="\n".join(f"    {line}" for line in body.strip("\n").split("\n"))))


def moved(step: float) -> list[np.ndarray]:
    return [v if w is None else v + step * w for v, w in zip(VALUES, WAYS, strict=True)]


def along(module: IRModule, name: str) -> float:
    """The derivative of a function along WAYS, by differences."""
    h = 1e-5
    at = {k: float(evaluate(module, name, moved(k * h))) for k in (-2, -1, 1, 2)}
    return (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h)


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_first_and_second_derivatives(body: str) -> None:
    ways = [w for w in WAYS if w is not None]
    module = Gradient("main", REQUIRED)(module_of(body))
    adjoints = pullback.compile(module)["main_adjoint"](*VALUES)[1]
    total = sum(float((a.numpy() * w).sum()) for a, w in zip(adjoints, ways, strict=True))
    np.testing.assert_allclose(total, along(module, "main"), rtol=1e-7, atol=1e-7)
    for a, b in zip(adjoints, evaluate(module, "main_adjoint", VALUES)[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-12, atol=1e-12)

    builder = BlockBuilder(module)
    params = module["main_adjoint"].params
    with builder.function("second", params):
        found = builder.emit(module.get_global_var("main_adjoint")(*params))[1]
        terms = [ops.sum(found[k] * Constant(w)) for k, w in enumerate(ways)]
        builder.emit_func_output(terms[0] + terms[1] + terms[2])
    twice = Gradient("second", REQUIRED)(builder.get())
    adjoints = pullback.compile(twice)["second_adjoint"](*VALUES)[1]
    total = sum(float((a.numpy() * w).sum()) for a, w in zip(adjoints, ways, strict=True))
    np.testing.assert_allclose(total, along(twice, "second"), rtol=1e-6, atol=1e-6)


def test_what_is_not_asked_for_is_not_kept() -> None:
    """A sum of products reads only its inputs: its adjoint neither runs it again nor keeps a value."""
    module = Gradient("main", ["x", "w"])(module_of(PROGRAMS["a sum of products, accumulated in the result"]))
    assert "tape" not in module.script()
    module = Gradient("main", ["x", "w"])(module_of(PROGRAMS["running product"]))
    assert "tape" in module.script()


def test_two_results_and_one_that_is_not_used() -> None:
    module = from_source("""
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32"), z: T.Buffer((3,), "float32"),
               n: T.Buffer((3,), "int32")):
        for a in range(3):
            y[a] = x[a] * x[a]
            z[a] = y[a] * x[a]
            n[a] = T.cast("int32", a)
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Module
        r = R.call_tir(cls.kernel, (x,), out_sinfo=[R.Tensor((3,), "float32"), R.Tensor((3,), "float32"),
                                                   R.Tensor((3,), "int32")])
        z = R.sum(r[1])
        return z
""")
    x = np.array([1.0, 2.0, -3.0], np.float32)
    ((dx,),) = pullback.compile(Gradient("main")(module))["main_adjoint"](x)[1:]
    np.testing.assert_allclose(dx.numpy(), 3 * x * x, rtol=1e-6)


def test_half_precision_is_added_up_in_float32() -> None:
    module = from_source("""
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((1,), "float16"), y: T.Buffer((4096,), "float16")):
        for a in range(4096):
            y[a] = x[0]
    @R.function
    def main(x: R.Tensor((1,), "float16")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((4096,), "float16"))
        z = R.sum(y)
        return z
""")
    ((dx,),) = pullback.compile(Gradient("main")(module))["main_adjoint"](np.ones(1, np.float16))[1:]
    assert dx.numpy() == 4096  # 1 + 2048 is 2048 in float16


def test_symbolic_sizes() -> None:
    module = from_source("""
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer(("n", 3), "float64"), y: T.Buffer(("n", 3), "float64")):
        n = T.int64()
        for a in range(n):
            for b in range(3):
                y[a, b] = x[a, b] * x[a, 0]
    @R.function
    def main(x: R.Tensor(("n", 3), "float64")):
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((n, 3), "float64"))
        z = R.sum(y)
        return z
""")
    machine = pullback.compile(Gradient("main")(module))
    for n in (1, 4):
        x = rng.standard_normal((n, 3))
        ((dx,),) = machine["main_adjoint"](x)[1:]
        expected = np.repeat(x[:, :1], 3, 1)
        expected[:, 0] = x.sum(1) + x[:, 0]
        np.testing.assert_allclose(dx.numpy(), expected, rtol=1e-12)


REFUSED = {
    "the number of iterations over b depends on memory that kernel writes": """
    n = T.alloc_buffer((1,), "int64")
    n[0] = 2
    for a in range(4):
        for b in range(n[0]):
            y[a, b] = x[a, b]
""",
    "y is stored where it says itself": """
    n = T.alloc_buffer((2,), "int64")
    n[0] = 1
    n[n[0]] = 0
    for a in range(4):
        for b in range(5):
            y[a, b] = x[n[1], b]
""",
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(DifferentiationError) as error:
        Gradient("main", REQUIRED)(module_of(REFUSED[message]))
    assert message.replace("y is", "n is") in str(error.value)


def test_every_intrinsic_has_a_derivative_or_is_known_to_have_none() -> None:
    without = {"isnan", "isinf", "isfinite", "not", "reinterpret", "pair", "pair_dot"}  # of bits, or not to numbers
    assert {*derivative._OF_ONE, *derivative._OF_SEVERAL, *derivative._STEPS, *without} == set(INTRINSICS)
