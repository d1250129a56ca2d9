"""Random ops get states: AddRandomState, and what the other passes do with draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import pullback
from pullback.driver import pipeline
from pullback.driver.pipeline import lower_function
from pullback.ir import ArgumentError, IRModule, UserError, assert_structural_equal
from pullback.ir.passes import FunctionPass
from pullback.relax.op_calls import is_call_tir
from pullback.relax.transform import (
    AddRandomState,
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    EliminateCommonSubexpr,
    Gradient,
    LegalizeOps,
    RaiseOps,
)
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from tests.helpers import round_trip


@I.ir_module
class Model:
    @R.function(private=True)
    def half(x: R.Tensor((4, 64), "float32")):
        with R.dataflow():
            y = R.dropout(x, 0.5)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        cls = Model
        with R.dataflow():
            a = cls.half(R.matmul(x, w))
            b = cls.half(R.nn.relu(a))
            c = R.nn.dropout(R.matmul(b, w), 0.25)
            out = R.sum(c[0] * c[0])
            R.output(out)
        return out


def test_sites_are_numbered_in_the_order_of_the_program():
    @I.ir_module
    class Expected:
        @R.function(private=True)
        def half(x: R.Tensor((4, 64), "float32")):
            with R.dataflow():
                y = R.dropout(x, 0.5)
                R.output(y)
            return y

        @R.function
        def main(
            x: R.Tensor((4, 64), "float32"), w: R.Tensor((64, 64), "float32"), random_state: R.Tensor((2,), "uint64")
        ):
            with R.dataflow():
                h = R.matmul(x, w)
                site = R.random.site(random_state, 0)
                a = R.dropout(h, site, 0.5)
                r = R.nn.relu(a)
                site_1 = R.random.site(random_state, 1)
                b = R.dropout(r, site_1, 0.5)
                m = R.matmul(b, w)
                site_2 = R.random.site(random_state, 2)
                c = R.nn.dropout(m, site_2, 0.25)
                first = c[0]
                second = c[0]
                product = first * second
                out = R.sum(product)
                R.output(out)
            return out

    for step in (AddRandomState("main"), AddRandomState(Model.get_global_var("main")), AddRandomState()):
        assert_structural_equal(step(Model), Expected)
    round_trip(Model)
    round_trip(Expected)


def test_calls_that_share_a_draw_have_one_site():
    @I.ir_module
    class Mixed:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), t: R.Tensor((4, 2), "float32")):
            a = R.nn.mixup(R.dropout(x, 0.5), 0.2)
            b = R.nn.mixup(t, 0.2)
            c = R.nn.mixup(t, 0.2, shared="other")
            return a, b, c

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float32"), t: R.Tensor((4, 2), "float32"), random_state: R.Tensor((2,), "uint64")
        ):
            site = R.random.site(random_state, 0)
            d = R.dropout(x, site, 0.5)
            site_1 = R.random.site(random_state, 1)
            a = R.nn.mixup(d, site_1, 0.2)
            b = R.nn.mixup(t, site_1, 0.2)
            site_2 = R.random.site(random_state, 2)
            c = R.nn.mixup(t, site_2, 0.2, shared="other")
            return a, b, c

    assert_structural_equal(AddRandomState()(Mixed), Expected)


def test_functions_that_need_no_state_stay_as_they_are():
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((4,), "float32"), random_state: R.Tensor((2,), "uint64")):
            y = R.dropout(x, random_state, 0.5)
            z = R.nn.dropout(y, 0.5, training=False)
            return z[0]

    assert AddRandomState()(Plain)["main"] is Plain["main"]
    added = AddRandomState()(Model)
    assert AddRandomState()(added)["main"] is added["main"]


def test_the_parameter_gets_a_name_of_its_own():
    @I.ir_module
    class Named:
        @R.function
        def main(random_state: R.Tensor((4,), "float32")):
            y = R.dropout(random_state, 0.5)
            return y

    assert [p.name for p in AddRandomState()(Named)["main"].params] == ["random_state", "random_state_1"]


def test_only_graph_functions_take_a_state():
    legal = LegalizeOps()(DecomposeOpsForInference()(Model))
    kernel = next(name for name in legal if name.startswith("matmul"))
    with pytest.raises(ArgumentError, match="is a kernel of the loop IR"):
        AddRandomState(kernel)(legal)


def test_equal_expressions_are_merged_but_never_two_draws():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), s: R.Tensor((2,), "uint64"), t: R.Tensor((2,), "uint64")):
            with R.dataflow():
                a = R.dropout(x, 0.5)
                b = R.dropout(x, 0.5)
                c = R.dropout(x, s, 0.5)
                d = R.dropout(x, s, 0.5)
                e = R.dropout(x, t, 0.5)
                f = R.dropout(x, 0.5, False)
                g = R.dropout(x, 0.5, False)
                out = R.concat([a, b, c, d, e, f, g])
                R.output(out)
            return out

    values = {b.var.name: b.value for b in EliminateCommonSubexpr()(Before)["main"].bindings}
    assert list(values) == ["a", "b", "c", "e", "f", "out"]
    assert [v.name for v in values["out"].args] == ["a", "b", "c", "c", "e", "f", "f"]


def test_draws_of_one_site_are_one_after_decomposition():
    """The adjoint drops what was dropped: one mask for both."""
    module = Gradient("main", ["x", "w"])(AddRandomState("main")(Model))
    merged = EliminateCommonSubexpr()(DecomposeOpsForTraining()(module))
    drawn = [b.value for b in merged["main_adjoint"].bindings if "bernoulli" in repr(getattr(b.value, "op", ""))]
    assert len(drawn) == 3


def kernels(module: IRModule, name: str) -> list[str]:
    """The names of the kernels that a function calls."""
    lowered, _ = lower_function(module, name, {}, Target("llvm"))
    return [b.value.args[0].name for b in lowered[name].bindings if is_call_tir(b.value)]


def test_masks_are_kernels_and_what_they_drop_is_fused():
    """The bits stay out of the matmuls, and sites share their kernels. Dropping is the end of a matmul, or the
    beginning of the loss or of its gradient."""
    called = kernels(Gradient("main", ["x", "w"])(AddRandomState("main")(Model)), "main_adjoint")
    masks = [name for name in called if "bernoulli" in name]
    assert len(masks) == 3 and len(set(masks)) == 2  # two of p = 1/2, one of 1/4
    dropping = [name for name in called if "where" in name]
    assert sum("matmul" in name for name in dropping) == 2
    assert all("matmul" in name or "sum" in name or "add" in name for name in dropping)
    assert not any("matmul" in name for name in masks)


def values() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((4, 64)).astype(np.float32),
        rng.standard_normal((64, 64)).astype(np.float32),
        np.array([3, 5], np.uint64),
    ]


def adjoint_bits(module: IRModule, target: str = "llvm") -> list[bytes]:
    loss, adjoints = pullback.compile(module, target)["main_adjoint"](*values())
    return [t.numpy().tobytes() for t in (loss, *adjoints)]


@dataclass(frozen=True)
class Nothing(FunctionPass):
    def function(self, function, module):
        return function


def test_the_same_bits_when_masks_are_drawn_again(monkeypatch):
    """Whether the backward part reads the masks, or draws them anew from the same states."""
    module = Gradient("main", ["x", "w"])(AddRandomState("main")(Model))
    saved, draws = adjoint_bits(module), kernels(module, "main_adjoint")
    monkeypatch.setattr(pipeline, "EliminateCommonSubexpr", Nothing)
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    again = kernels(module, "main_adjoint")
    assert sum("bernoulli" in name for name in again) > sum("bernoulli" in name for name in draws)
    assert adjoint_bits(module) == saved


def test_the_same_bits_with_and_without_rematerialization(monkeypatch):
    module = Gradient("main", ["x", "w"])(AddRandomState("main")(Model))
    saved = adjoint_bits(module)
    monkeypatch.setattr(pipeline, "Rematerialize", Nothing)
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    assert adjoint_bits(module) == saved


def test_legalized_and_raised():
    module = Gradient("main", ["x", "w"])(AddRandomState("main")(Model))
    legal = LegalizeOps()(module)
    round_trip(legal)
    assert_structural_equal(RaiseOps()(legal), module)
    assert adjoint_bits(legal) == adjoint_bits(module)
    again = LegalizeOps()(Model)  # what draws without a state stays an op
    assert_structural_equal(AddRandomState()(RaiseOps()(again))["main"], AddRandomState()(Model)["main"])


def test_inference_drops_nothing():
    x, w, _ = values()
    out = pullback.compile(DecomposeOpsForInference()(Model))["main"](x, w)
    np.testing.assert_allclose(out.numpy(), np.square(np.maximum(x @ w, 0) @ w).sum(), rtol=1e-4)


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_without_a_state_nothing_is_computed(target):
    x, w, _ = values()
    with pytest.raises(UserError, match="dropout draws random numbers, and has no state") as caught:
        pullback.compile(Model, target)["main"](x, w)
    assert "AddRandomState" in str(caught.value) and "R.dropout(x, 0.5)" in str(caught.value)


def test_without_a_state_nothing_is_differentiated():
    with pytest.raises(UserError, match=r"nn\.dropout draws random numbers, and has no state") as caught:
        Gradient("main", ["x"])(Model)
    assert "R.nn.dropout(R.matmul(b, w), 0.25)" in str(caught.value)
