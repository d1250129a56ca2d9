"""The attribute ``global_symbol``: functions of a module carry their names."""

from __future__ import annotations

import pytest

from pullback import relax
from pullback.ir import IRModule, structural_equal, structural_hash
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import L1Loss, MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.relax.training.utils import append_loss
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * 2.0

    @T.prim_func(private=True)
    def hidden(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((), "float32"):
        return R.sum(x)

    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")):
        return R.sum(x)

    @R.function(name="a name")
    def odd(x: R.Tensor((4,), "float32")):
        R.func_attr({"other": 1})
        return R.sum(x)


def symbols(module: IRModule) -> dict[str, str | None]:
    return {name: f.attrs.get("global_symbol") for name, f in module.items()}


def test_public_functions_of_a_module_carry_their_names():
    assert symbols(Module) == {"double": "double", "hidden": None, "main": "main", "inner": None, "a name": "a name"}


def test_a_function_alone_carries_its_name_and_prints_it():
    @R.function
    def alone(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    assert alone.attrs == {"global_symbol": "alone"}
    assert "def alone(" in alone.script() and "global_symbol" not in alone.script()
    assert from_source(alone.script()).attrs == alone.attrs


def test_a_module_of_one_function_calls_it_main():
    @R.function
    def alone(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    assert symbols(IRModule.from_expr(alone)) == {"main": "main"}
    assert symbols(IRModule({"main": alone})) == {"main": "alone"}, "as it is given"


def test_a_builder_gives_names_and_private_ones_none():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,)))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.exp(x)))
    with builder.function("inner", [x], private=True):
        builder.emit_func_output(builder.emit(R.exp(x)))
    with builder.function("own", [x], {"global_symbol": "elsewhere"}):
        builder.emit_func_output(builder.emit(R.exp(x)))
    assert symbols(builder.get()) == {"main": "main", "inner": None, "own": "elsewhere"}


def test_what_differs_is_printed_and_read_back():
    text = Module.with_attr("k", 1).script()
    assert "global_symbol" not in text
    assert symbols(from_source(text)) == symbols(Module)
    other = Module.copy()
    other["main"] = other["main"].with_attr("global_symbol", "elsewhere")
    assert 'R.func_attr({"global_symbol": "elsewhere"})' in other.script()
    assert symbols(from_source(other.script())) == symbols(other)


def test_the_name_is_no_structure():
    main = Module["main"]
    other = main.with_attr("global_symbol", "other")
    assert structural_equal(main, other) and structural_hash(main) == structural_hash(other)
    assert not structural_equal(main, main.with_attr("k", 1))
    kernel = Module["double"]
    assert kernel.renamed("other").attrs["global_symbol"] == "other"
    assert kernel.digest == kernel.renamed("other").digest == Module["double"].renamed("x").digest


@pytest.mark.parametrize("pass_", [relax.transform.Gradient("main"), relax.transform.JVP("main")])
def test_derivatives_carry_names_of_their_own(pass_):
    module = pass_(Module)
    assert all(symbol in (name, None) for name, symbol in symbols(module).items())
    new = set(module) - set(Module)
    assert new and all(symbols(module)[name] == name for name in new)


def test_training_functions_carry_their_names():
    x = R.Tensor((4, 2))
    assert L1Loss()(x, x).attrs["global_symbol"] == "l1_loss"
    assert SGD(0.1).init([relax.Var("x", x)]).get_function().attrs["global_symbol"] == "SGD"

    @I.ir_module
    class Model:
        I.module_attrs({"param_num": 1, "state_num": 0})

        @R.function
        def backbone(x: R.Tensor((4, 2)), w: R.Tensor((2, 2))):
            y = R.matmul(x, w)
            return y

    assert IRModule({"loss": append_loss(Model["backbone"], L1Loss()(x, x))})["loss"].attrs["global_symbol"] == "loss"
    module = SetupTrainer(MSELoss(), SGD(0.1), [R.Tensor((4, 2)), R.Tensor((4, 2))])(Model)
    assert all(symbol in (name, None) for name, symbol in symbols(module).items()), symbols(module)
    assert {"backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"} <= set(
        filter(None, symbols(module).values())
    )
