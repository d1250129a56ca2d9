"""Programs that are nested ten thousand levels deep go all the way: built, printed, read, interpreted, compiled."""

import numpy as np
import pytest

import pullback
from pullback import relax, te
from pullback.ir import ShapeError, UserError, assert_structural_equal, structural_equal, structural_hash
from pullback.relax import op
from pullback.relax.analysis import post_order_visit, used_vars
from pullback.relax.op import register_op
from pullback.script import from_source

LEVELS = 10_000
X = np.linspace(-1, 1, 4, dtype="float32")


def module(make):
    """The sum of what ``make`` computes of x: a function of one parameter."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.sum(make(x)))
        builder.emit_func_output(out)
    return builder.get()


def added(x, levels=LEVELS):
    y = x
    for _ in range(levels):
        y = y + x
    return y


def run(module, target, name="main"):
    return pullback.compile(module, target).function(name)(X)


def test_operators_without_emit():
    nested = module(added)
    assert len(list(nested["main"].bindings)) == LEVELS + 1
    text = nested.script()
    assert_structural_equal(from_source(text), nested)
    assert structural_hash(from_source(text)) == structural_hash(nested)
    exact = (LEVELS + 1) * X
    np.testing.assert_allclose(run(nested, "debug").numpy(), exact.sum(), atol=1)
    np.testing.assert_allclose(run(nested, "llvm").numpy(), exact.sum(), atol=1)


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_the_gradient_of_operators_without_emit(target):
    adjoint = relax.transform.Gradient("main")(module(lambda x: added(x, 2000)))
    np.testing.assert_array_equal(run(adjoint, target, "main_adjoint")[1][0].numpy(), np.full(4, 2001, "float32"))


def test_an_operand_that_is_used_twice_at_each_level_is_bound_once():
    def doubled(x):
        for _ in range(100):
            x = (x + x) * 0.5
        return x

    shared = module(doubled)
    assert len(list(shared["main"].bindings)) == 201
    expr = doubled(relax.Var("x", relax.TensorStructInfo((4,), "float32")))
    assert len(list(used_vars(expr))) == 2
    visited = []
    post_order_visit(relax.Tuple((relax.const(1.0),)), visited.append)
    assert [type(v).__name__ for v in visited] == ["Constant", "Tuple"]


@pytest.mark.parametrize("body", ["x" + " + x" * LEVELS, "-" * 800 + "x", "x" + " ** x" * 800])
def test_nested_text(body):
    text = f"@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    y = {body}\n    return y"
    function = from_source(text)
    assert_structural_equal(from_source(function.script()), function)


@pytest.mark.parametrize(
    "body", ["-" * LEVELS + "x", "(" * LEVELS + "x" + ")" * LEVELS, "R.exp(" * 500 + "x" + ")" * 500]
)
def test_text_that_pythons_parser_does_not_take(body):
    with pytest.raises(UserError, match=r"nest(.|\n)*hint: give intermediate results names"):
        from_source(f"@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    y = {body}\n    return y")


def test_a_python_function_that_calls_itself_for_ever():
    def endless(x):
        return endless(x)

    with pytest.raises(UserError, match=r"raised RecursionError(.|\n)*<script"):
        from_source("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return f(x)", extra_vars={"f": endless})


def kernel(body):
    lines = "\n".join(f"            {line}" for line in body)
    return from_source(f"""
@I.ir_module
class M:
    @T.prim_func
    def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
{lines}
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_tir(M.k, (x,), R.Tensor((4,), "float32"))
        return R.sum(y)
""")


NAMES = 1500
KERNELS = {
    "expression": (["B[i] = A[i]" + " + A[i]" * LEVELS], LEVELS + 1),
    "names": (["v0 = A[i]", *(f"v{k} = v{k - 1} + A[i]" for k in range(1, NAMES)), f"B[i] = v{NAMES - 1}"], NAMES),
    "statements": (["B[i] = A[i]", *["B[i] = B[i] + A[i]"] * NAMES], NAMES + 1),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    lines, factor = KERNELS[name]
    deep_module = kernel(lines)
    assert structural_hash(deep_module) == structural_hash(kernel(lines))
    assert structural_equal(deep_module, kernel(lines))
    assert deep_module.script()
    for target in ("llvm", "debug"):
        np.testing.assert_allclose(run(deep_module, target).numpy(), factor * X.sum(), atol=1e-2)


def test_the_gradient_of_many_names_in_a_kernel():
    adjoint = relax.transform.Gradient("main")(kernel(KERNELS["names"][0]))
    np.testing.assert_array_equal(run(adjoint, "llvm", "main_adjoint")[1][0].numpy(), np.full(4, NAMES, "float32"))


@pytest.mark.parametrize("shape", ["one expression", "many stages"])
def test_tensor_expressions(shape):
    def element(x, i):
        for _ in range(LEVELS if shape == "one expression" else 1):
            x = x * 1.0 + a[i]
        return x

    a = te.placeholder((4,), "float32", "a")
    result = te.compute((4,), lambda i: element(a[i], i))
    for _ in range(0 if shape == "one expression" else LEVELS - 1):
        before = result
        result = te.compute((4,), lambda i, t=before: element(t[i], i))
    found = te.interpreter.evaluate([result], {a: X})[0]
    np.testing.assert_allclose(found, (LEVELS + 1) * X, rtol=1e-3)


def test_an_own_op_that_is_one_long_expression():
    levels = 2000

    @register_op("own.test_depth")
    def long(x):
        def element(i):
            e = x[i]
            for _ in range(levels):
                e = e + x[i]
            return e

        return te.compute(x.shape, element)

    forward = module(long)
    adjoint = relax.transform.Gradient("main")(forward)
    for target in ("llvm", "debug"):
        np.testing.assert_allclose(run(forward, target).numpy(), (levels + 1) * X.sum(), atol=1e-2)
        np.testing.assert_array_equal(run(adjoint, target, "main_adjoint")[1][0].numpy(), np.full(4, levels + 1, "f4"))


@pytest.mark.parametrize("sections", [2**64, 2**31, 10**8])
def test_too_many_results(sections):
    x = relax.Var("x", relax.TensorStructInfo((4, 6), "float32"))
    with pytest.raises(ShapeError, match=f"split: {sections} results are too many"):
        op.split(x, sections, axis=1)
    wide = relax.Var("x", relax.TensorStructInfo((4, 2**40), "float32"))
    for call in (lambda: op.unbind(wide, axis=1), lambda: op.chunk(wide, 10**8, axis=1)):
        with pytest.raises(ShapeError, match="results are too many"):
            call()


def test_an_unrolled_loop_that_is_too_long():
    looped = kernel(["for j in T.unrolled(100000000):", "    B[i] = A[i]"])
    with pytest.raises(ShapeError, match=r"unrolled loop over j writes its body 100000000 times(.|\n)*serial"):
        pullback.compile(looped)
