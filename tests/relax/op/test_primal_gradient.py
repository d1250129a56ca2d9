"""Gradient rules in the reference's form: told apart from ours, registered, and read from any op."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import ArgumentError, IRModule, NameNotFound, Op
from pullback.relax.op import register_gradient
from pullback.relax.op.primal_gradient import is_primal
from pullback.relax.transform import JVP, Gradient
from pullback.script import from_source
from pullback.script import relax as R


@pytest.fixture
def restored():
    """Ops whose rules tests replace."""
    from pullback.relax.op import register

    ops = [Op.get(n) for n in ("exp", "multiply", "take", "split")]
    rules = [(op, op.gradient, op.singular) for op in ops]
    yield
    for op, rule, singular in rules:
        object.__setattr__(op, "gradient", rule)
        object.__setattr__(op, "singular", singular)
        register._LEVELS.pop(op.name, None)


def module_of(text: str) -> IRModule:
    return IRModule({"main": from_source(text)})


SQUARE = module_of("@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n    y = R.exp(x)\n    return R.sum(y)\n")
X = np.array([0.1, -0.5, 2.0], "float32")


def adjoints(module: IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    _, found = pullback.compile(Gradient("main")(module)).function("main_adjoint")(*arrays)
    return [a.numpy() for a in found]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (lambda orig_var, orig_call, output_grad, ctx: [], True),
        (lambda var, call, grad, bb: [], True),
        (lambda dy, y, x0, x1: (), False),
        (lambda dy, y, x, *, axis: (), False),
        (lambda orig_var, orig_call, output_grad: [], False),
        (lambda dy, y, *args, **attrs: (), False),
    ],
)
def test_which_form_it_is(rule, expected):
    assert is_primal(rule) is expected


def test_an_annotation_tells_too():
    def rule(a: relax.Var, b: relax.Call, c: relax.Var, d: relax.BlockBuilder):
        return []

    assert is_primal(rule)


@pytest.mark.parametrize("emits", [False, True])
def test_a_rule_of_this_form(restored, emits):
    seen = {}

    @register_gradient("relax.exp")
    def rule(orig_var: relax.Var, orig_call: relax.Call, output_grad: relax.Var, ctx: relax.BlockBuilder):
        seen.update(var=orig_var, call=orig_call, grad=output_grad, ctx=ctx)
        value = R.multiply(output_grad, R.multiply(orig_var, R.const(7.0)))
        return [ctx.emit(value, "emitted") if emits else value]

    np.testing.assert_allclose(adjoints(SQUARE, X)[0], 7 * np.exp(X), rtol=1e-6)
    assert isinstance(seen["var"], relax.Var) and isinstance(seen["grad"], relax.Var)
    assert seen["call"].op is Op.get("exp") and isinstance(seen["ctx"], relax.BlockBuilder)
    names = [b.var.name for b in Gradient("main")(SQUARE)["main_adjoint"].bindings]
    assert ("emitted" in names) is emits
    assert Op.get("exp").get_attr("FPrimalGradient") is rule
    tangent = pullback.compile(JVP("main")(SQUARE)).function("main_jvp")(X, np.ones(3, "float32"))[1]
    value = tangent[0] if isinstance(tangent, (tuple, list)) else tangent
    np.testing.assert_allclose(value.numpy(), 7 * np.exp(X).sum(), rtol=1e-6)


def test_no_grad_in_rules_of_both_forms(restored):
    module = module_of(
        "@R.function\ndef main(x: R.Tensor((3,), 'float32'), y: R.Tensor((3,), 'float32')):\n"
        "    return R.sum(R.multiply(x, y))\n"
    )
    register_gradient(
        "multiply", lambda orig_var, orig_call, output_grad, ctx: [output_grad, R.grad.no_grad(orig_call.args[1])]
    )
    dx, dy = adjoints(module, X, X)
    np.testing.assert_array_equal(dx, np.ones(3))
    np.testing.assert_array_equal(dy, np.zeros(3))
    register_gradient("multiply", lambda dz, z, x, y: (R.grad.no_grad(x), dz))
    dx, dy = adjoints(module, X, X)
    np.testing.assert_array_equal(dx, np.zeros(3))
    np.testing.assert_array_equal(dy, np.ones(3))


def test_several_results(restored):
    module = module_of(
        "@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    t = R.split(x, 2)\n"
        "    return R.sum(R.multiply(t[0], t[1]))\n"
    )
    register_gradient(
        "split",
        lambda orig_var, orig_call, output_grad, ctx: [R.concat([output_grad[0], output_grad[1] * 10.0], axis=0)],
    )
    (dx,) = adjoints(module, np.array([1, 2, 3, 4], "float32"))
    np.testing.assert_array_equal(dx, [3, 4, 10, 20])


def test_levels(restored):
    register_gradient("exp", lambda orig_var, orig_call, output_grad, ctx: [output_grad * 2.0], level=15)
    register_gradient("exp", lambda orig_var, orig_call, output_grad, ctx: [output_grad * 3.0], level=10)
    np.testing.assert_array_equal(adjoints(SQUARE, X)[0], np.full(3, 2.0))
    register_gradient("exp", lambda orig_var, orig_call, output_grad, ctx: [output_grad * 4.0], level=15)
    np.testing.assert_array_equal(adjoints(SQUARE, X)[0], np.full(3, 4.0))


def test_the_number_of_adjoints_has_to_fit(restored):
    register_gradient("exp", lambda orig_var, orig_call, output_grad, ctx: [output_grad, output_grad])
    with pytest.raises(ArgumentError, match="the gradient of exp must give 1 adjoints, a list, it gives 2") as error:
        Gradient("main")(SQUARE)
    assert error.value.hint


def test_any_op_has_its_rule_in_this_form():
    builder = relax.BlockBuilder()
    x, i = relax.Var("x", R.Tensor((5, 2))), relax.Var("i", R.Tensor((3,), "int64"))
    with builder.function("main", [x, i]):
        call = R.take(x, i, axis=0)
        var = builder.emit(call)
        rule = Op.get("relax.take").get_attr("FPrimalGradient")
        dx, di = rule(var, call, R.ones((3, 2), "float32"), builder)
        assert di.op is Op.get("grad.no_grad") and di.args[0] is i
        builder.emit_func_output(builder.emit(dx))
    at = np.array([0, 4, 0])
    result = pullback.compile(builder.get()).function("main")(np.zeros((5, 2), "float32"), at).numpy()
    np.testing.assert_array_equal(result, np.array([[2, 2], [0, 0], [0, 0], [0, 0], [1, 1]]))


def test_what_ops_have_no_rule_or_attribute():
    without = next(op for op in Op.registry.values() if op.gradient is None)
    assert without.get_attr("FPrimalGradient") is None
    with pytest.raises(NameNotFound, match="ops have no attribute 'FNothing'") as error:
        Op.get("exp").get_attr("FNothing")
    assert "FPrimalGradient" in error.value.hint


def test_the_adjoint_of_a_full_sum_is_one_broadcast():
    found = [str(b.value) for b in Gradient("main")(SQUARE)["main_adjoint"].bindings]
    assert [value for value in found if "broadcast" in value or "expand" in value] == [
        "R.broadcast_to(gv_adjoint, (3,))"
    ]
