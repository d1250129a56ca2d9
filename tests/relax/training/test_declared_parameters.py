"""Models whose parameters and states are declared as types, in any order: they train as NumPy does, and to the last bit
as the model with inputs, parameters and states in the usual order."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.convention import ADJOINT, OPTIMIZER, Convention
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD, Adam
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R

RNG = np.random.default_rng(5)
X = RNG.normal(size=(11, 4)).astype("float32")
Z = RNG.normal(size=(11, 3)).astype("float32")
Y = RNG.normal(size=(11, 3)).astype("float32")


@I.ir_module
class Declared:
    @R.function
    def backbone(
        mean: R.State((4,), initial=0.5),
        w: R.Param((4, 3)),
        x: R.Tensor((4, 4), "float32"),
        b: R.Param((3,), trainable=False, initial=2.0),
        seen: R.State((), "int64"),
        z: R.Tensor((4, 3), "float32"),
        scale: R.Param((3,), initial=0.25),
    ):
        with R.dataflow():
            y = (R.matmul(x - mean, w) + b + z) * scale
            new_mean = mean * 0.75 + R.mean(x, axis=0) * 0.25
            more = seen + R.const(1, "int64")
            R.output(y, new_mean, more)
        return (y, new_mean, more)


@I.ir_module
class Usual:
    I.module_attrs({"param_num": 3, "state_num": 2, "frozen": ("b",)})

    @R.function
    def backbone(
        x: R.Tensor((4, 4), "float32"),
        z: R.Tensor((4, 3), "float32"),
        w: R.Tensor((4, 3), "float32"),
        b: R.Tensor((3,), "float32"),
        scale: R.Tensor((3,), "float32"),
        mean: R.Tensor((4,), "float32"),
        seen: R.Tensor((), "int64"),
    ):
        with R.dataflow():
            y = (R.matmul(x - mean, w) + b + z) * scale
            new_mean = mean * 0.75 + R.mean(x, axis=0) * 0.25
            more = seen + R.const(1, "int64")
            R.output(y, new_mean, more)
        return (y, new_mean, more)


VALUES = {"w": RNG.normal(size=(4, 3)).astype("float32")}
USUAL = VALUES | {"b": np.full(3, 2, "float32"), "scale": np.full(3, 0.25, "float32")}


def trainers(target="debug", optimizer=Adam):
    declared = pullback.trainer(Declared, "mse", optimizer(0.1), target=target, seed=3)
    usual = pullback.trainer(Usual, "mse", optimizer(0.1), target=target, seed=3)
    declared.load_params(VALUES)
    usual.load_params(USUAL)
    usual.load_states({"mean": np.full(4, 0.5, "float32")})
    return declared, usual


def values(of):
    return {name: value.numpy() for name, value in of.state_dict().items()}


def assert_same(one, other):
    a, b = values(one), values(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], name)
    for left, right in zip(one.optimizer_states, other.optimizer_states, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())


def test_steps_are_those_of_numpy():
    made = pullback.trainer(Declared, "mse", SGD(0.1), target="debug")
    made.load_params(VALUES)
    mean, w, b, scale = np.full(4, 0.5), VALUES["w"].astype(float), 2.0, np.full(3, 0.25)
    for k in range(3):
        x, z, y = (a[4 * (k % 2) : 4 * (k % 2) + 4].astype(float) for a in (X, Z, Y))
        linear = (x - mean) @ w + b + z
        error = linear * scale - y
        loss = made.update([x, z], y).item()
        np.testing.assert_allclose(loss, (error**2).mean(), rtol=1e-5)
        d = 2 * error / error.size
        w, scale = w - 0.1 * (x - mean).T @ (d * scale), scale - 0.1 * (d * linear).sum(0)
        mean = 0.75 * mean + 0.25 * x.mean(0)
    found = values(made)
    assert found["seen"] == 3 and (found["b"] == 2).all()
    for name, wanted in {"w": w, "scale": scale, "mean": mean}.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_the_order_of_parameters_changes_no_bit(target, tmp_path):
    declared, usual = trainers(target)
    assert declared._interface.record.optimizer_states == usual._interface.record.optimizer_states
    for one in (declared, usual):
        one.fit([X, Z], Y, epochs=2, verbose=0)  # 4 + 4 + 3 rows
        one.fit([X, Z], Y, batch_size=5, sample_weight=np.linspace(0.5, 2, 11), verbose=0)
        one.update([X[:4], Z[:4]], Y[:4])
    assert_same(declared, usual)
    np.testing.assert_array_equal(declared.predict(X, Z).numpy(), usual.predict(X, Z).numpy())
    assert repr(declared.evaluate([X, Z], Y)) == repr(usual.evaluate([X, Z], Y))
    other = copy.deepcopy(declared)
    declared.update([X, Z], Y)
    other.update([X, Z], Y)
    assert_same(declared, other)
    declared.save(tmp_path / "file")
    again = trainers(target)[0]
    again.load(tmp_path / "file")
    assert_same(declared, again)


def test_the_trainer_module_is_printed_and_read_back():
    declared, _ = trainers()
    assert "mean: R.State((4,)" in declared.mod.script()
    again = from_source(declared.mod.script())
    pullback.ir.assert_structural_equal(again, declared.mod)
    assert Convention.of(again) == Convention.of(declared.mod)


def test_what_is_not_trainable_costs_neither_gradient_nor_state():
    declared, _ = trainers()
    convention = Convention.of(declared.mod)
    assert [v for v in convention[ADJOINT].returns if v[0] == "gradient"] == [("gradient", 0), ("gradient", 2)]
    assert [v for v in convention[OPTIMIZER].takes if v[0] == "gradient"] == [("gradient", 0), ("gradient", 2)]
    assert len(declared.mod[OPTIMIZER].params[1].struct_info.fields) == 2
    labels = declared._interface.record.optimizer_states
    assert not any(label.endswith(" b") for label in labels)
    assert sum(label.endswith((" w", " scale")) for label in labels) == 4


def test_all_ways_to_make_a_trainer_begin_as_declared():
    info = TensorStructInfo((4, 3), "float32")
    setup = SetupTrainer(MSELoss(), SGD(0.1), [info, info])
    module = setup(Declared)
    vm = pullback.relax.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu())
    for made in (
        Trainer(module, vm),
        Trainer(Declared, 3, setup).build("debug"),
        pullback.trainer(Declared, "mse", "sgd", target="debug"),
        pullback.trainer(Declared, "mse", "sgd", target="debug", init="zeros"),
    ):
        found = values(made)
        assert (found["mean"] == 0.5).all() and (found["b"] == 2).all() and (found["scale"] == 0.25).all()
        assert found["seen"] == 0
    assert found["w"].any() == 0
    made = pullback.trainer(Declared, "mse", "sgd", target="debug", init={"scale": "ones"})
    assert (values(made)["scale"] == 1).all()  # what the caller says counts
    assert values(made)["w"].any()
    made.zero_init_states()
    assert not values(made)["mean"].any()
    made.init_states()
    assert (values(made)["mean"] == 0.5).all()
    assert Trainer(module, vm, None, False)._values.params == (None,) * 3


def test_mistakes_are_told():
    text = Declared.script()
    wrong = text.replace('seen: R.State((), "int64")', 'seen: R.State((4,), "float32")').replace(
        'R.add(seen, R.const(1, "int64"))', "seen"
    )
    swapped = wrong.replace("return (y, new_mean, more)", "return (y, more)")
    swapped = swapped.replace(', R.Tensor((4,), "float32"), R.Tensor((), "int64")', ', R.Tensor((4,), "float32")')
    with pytest.raises(ArgumentError, match="2 updated states"):
        pullback.trainer(from_source(swapped), "mse", "sgd", target="debug")
    order = text.replace("return (y, new_mean, more)", "return (y, more, new_mean)").replace(
        'R.Tensor((4,), "float32"), R.Tensor((), "int64")', 'R.Tensor((), "int64"), R.Tensor((4,), "float32")'
    )
    with pytest.raises(ShapeError, match="state mean is"):
        pullback.trainer(from_source(order), "mse", "sgd", target="debug")
    none = text.replace("R.Param(", "R.State(").replace(", trainable=False", "")
    with pytest.raises(ArgumentError, match="there is nothing to train"):
        pullback.trainer(from_source(none), "mse", "sgd", target="debug")
    frozen = Declared.with_attr("frozen", ("w", "scale"))
    with pytest.raises(ArgumentError, match="all parameters are frozen"):
        pullback.trainer(frozen, "mse", "sgd", target="debug")
