"""SetupTrainer: the module it makes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, DTypeError, IRModule, NameNotFound, ShapeError, assert_structural_equal
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op, transform
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.training import SetupTrainer, Trainer, make_trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from tests.relax.training.models import mlp, with_state

PAIR = [TensorStructInfo((2, 2), "float64")] * 2


@I.ir_module
class Backbone:
    I.module_attrs({"param_num": 1, "state_num": 1})

    @R.function
    def backbone(x: R.Tensor((2, 2), "float64"), y: R.Tensor((2, 2), "float64"), z: R.Tensor((2, 2), "float64")):
        with R.dataflow():
            x1 = x + y
            z1 = z + R.const(1, "float64")
            R.output(x1, z1)
        return x1, z1


@I.ir_module
class Expected:
    @R.function
    def backbone_loss(
        x: R.Tensor((2, 2), "float64"),
        y: R.Tensor((2, 2), "float64"),
        z: R.Tensor((2, 2), "float64"),
        targets: R.Tensor((2, 2), "float64"),
    ):
        with R.dataflow():
            x1 = R.add(x, y)
            z1 = R.add(z, R.const(1, "float64"))
            lv = R.subtract(x1, targets)
            lv1 = R.multiply(lv, lv)
            gv = R.sum(lv1)
            R.output(z1, gv)
        return (gv, z1)

    @R.function
    def optimizer(
        params: R.Tuple(R.Tensor((2, 2), "float64")),
        gradients: R.Tuple(R.Tensor((2, 2), "float64")),
        optim_states: R.Tuple(R.Tensor((), "int64"), R.Tensor((2, 2), "float64")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            y = params[0]
            y_grad = gradients[0]
            y_v = optim_states[1]
            lv = R.multiply(R.const(0.2, "float64"), y_v)
            y_v_new = R.add(lv, y_grad)
            lv1 = R.multiply(R.const(0.1, "float64"), y_v_new)
            y_new = R.subtract(y, lv1)
            params_new = (y_new,)
            optim_states_new = (num_steps_new, y_v_new)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)


def test_module() -> None:
    module = SetupTrainer(MSELoss("sum"), MomentumSGD(0.1, 0.2), PAIR, legalize=False)(Backbone)
    check_well_formed(module)
    assert list(module) == ["backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"]
    assert_structural_equal(module["backbone"], Backbone["backbone"])
    assert_structural_equal(module["backbone_loss"], Expected["backbone_loss"])
    assert_structural_equal(module["optimizer"], Expected["optimizer"])
    assert list(Backbone) == ["backbone"] and "input_num" not in Backbone.attrs, "the model itself is unchanged"


def test_attributes() -> None:
    module = SetupTrainer(MSELoss("sum"), MomentumSGD(0.1, 0.2), PAIR)(Backbone)
    record = dict(module.attrs["training"])
    assert record.pop("source").keys() == {"backbone", "backbone_loss", "backbone_loss_adjoint"}
    assert record == {
        "loss": "mse_loss", "reduction": "sum", "outputs": 1, "classification": False, "ignore_index": None,
        "shared_targets": (), "optimizer": "MomentumSGD",
        "hyperparameters": {"lr": 0.1, "momentum": 0.2, "dampening": 0, "weight_decay": 0, "nesterov": False,
                            "maximize": False},
        "initial": {}, "declared": {}, "optimizer_states": ("num_steps", "v of y"), "optimizer_groups": (),
            "run_time": {}, "averages": {},
        "precision": "float32", "loss_options": {}, "network": module.attrs["training"]["network"],
    }  # fmt: skip
    assert module.attrs["training"]["network"].startswith("2 ops, ")
    numbers = {k: v for k, v in module.attrs.items() if k not in ("optim_state", "training", "convention")}
    assert numbers == {"param_num": 1, "state_num": 1, "input_num": 1, "flush_subnormals": True}
    assert module.attrs["optim_states"] is module.attrs["optim_state"] is module.get_attr("optim_states")
    count, velocity = module.attrs["optim_state"]
    assert count.item() == 0 and velocity.shape == (2, 2)
    with pytest.raises(KeyError):
        module.attrs["nothing"]


def test_adjoint() -> None:
    module = SetupTrainer(MSELoss("sum"), SGD(0.1), PAIR, legalize=False)(Backbone)
    x, y, z, t = np.random.default_rng(0).standard_normal((4, 2, 2))
    (loss, state), (gradient,) = evaluate(module, "backbone_loss_adjoint", (x, y, z, t))
    np.testing.assert_allclose(loss, ((x + y - t) ** 2).sum())
    np.testing.assert_allclose(state, z + 1)
    np.testing.assert_allclose(gradient, 2 * (x + y - t))


def test_legalized_is_the_same_module() -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    plain = SetupTrainer(CrossEntropyLoss(), Adam(0.1), infos, legalize=False)(mlp())
    lowered = SetupTrainer(CrossEntropyLoss(), Adam(0.1), infos)(mlp())
    assert len(lowered) > len(plain)
    raised = transform.RaiseOps()(lowered)
    for name, function in plain.items():
        assert_structural_equal(raised[name], function)


def test_the_older_name_of_the_backbone() -> None:
    module = mlp()
    older = IRModule({"predict": module["backbone"]}, module.attrs)
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    assert "backbone_loss_adjoint" in SetupTrainer(CrossEntropyLoss(), SGD(0.1), infos)(older)


def changed(**attrs: Any) -> IRModule:
    return with_state().with_attrs(attrs)


def without(*keys: str) -> IRModule:
    return IRModule(with_state().functions, {k: v for k, v in with_state().attrs.items() if k not in keys})


def wrong_states() -> IRModule:
    function = with_state()["backbone"]
    out, calls, seen = function.body.body.fields
    body = type(function.body)(function.body.blocks, Tuple((out, seen, calls)))
    return IRModule({"backbone": type(function)(function.params, body)}, with_state().attrs)


INFOS = [TensorStructInfo((4, 2))] * 2


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (IRModule({"main": with_state()["backbone"]}), NameNotFound, "a model needs a function 'backbone'.*has: main"),
        (without("param_num"), ArgumentError, "needs the integer module attribute 'param_num'"),
        (without("state_num"), ArgumentError, "needs the integer module attribute 'state_num'"),
        (changed(param_num="1"), ArgumentError, "'param_num' must be an integer ≥ 0, it is '1'"),
        (changed(param_num=True), ArgumentError, "'param_num' must be an integer ≥ 0, it is True"),
        (changed(param_num=-1), ArgumentError, "'param_num' must be an integer ≥ 0, it is -1"),
        (changed(param_num=0), ArgumentError, "nothing to train"),
        (changed(param_num=3), ArgumentError, r"has 4 parameters, but param_num \+ state_num = 3 \+ 2"),
        (changed(param_num=1, state_num=1), DTypeError, "parameter calls must be a float tensor"),
        (changed(param_num=1, state_num=3), ArgumentError, "must return a prediction and 3 updated states"),
        (wrong_states(), ShapeError, "state calls is Tensor.*updated value Tensor"),
        (mlp(4, (3, 2)).with_attrs({"param_num": 1, "state_num": 1}), ArgumentError, "must return a prediction and 1"),
    ],
)
def test_errors_of_the_model(module: IRModule, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SetupTrainer(MSELoss(), SGD(0.1), INFOS)(module)


@pytest.mark.parametrize(
    ("loss", "infos", "error", "message"),
    [
        (MSELoss("none"), INFOS, ShapeError, "the loss must be one floating-point scalar"),
        (MSELoss(), [TensorStructInfo((5, 2))] * 2, ShapeError, "output 0 of the backbone"),
        (MSELoss(), INFOS[:1], ArgumentError, "got 1 of them"),
    ],
)
def test_errors_of_the_loss(loss: Any, infos: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SetupTrainer(loss, SGD(0.1), infos)(with_state())


@pytest.mark.parametrize(
    ("loss", "optimizer", "infos", "message"),
    [
        (MSELoss, SGD(0.1), INFOS, r"loss must be a Loss, .* got the class MSELoss\nhint: make one of it: MSELoss\(\)"),
        (
            MSELoss(),
            Adam,
            INFOS,
            r"optimizer must be an? Optimizer, .* got the class Adam\nhint: make one of it: Adam\(…\)",
        ),
        (SGD(0.1), MSELoss(), INFOS, r"loss must be a Loss, .* got SGD\(.*\)\nhint: the loss comes first"),
        ("mse", SGD(0.1), INFOS, "loss must be a Loss, such as loss.CrossEntropyLoss.*, got 'mse'"),
        (MSELoss(), "adam", INFOS, "got 'adam'"),
        (MSELoss(), None, INFOS, "got None"),
        (MSELoss(), SGD(0.1), INFOS[0], r"loss_args must be a list of types, .*TensorStructInfo\nhint: write a list"),
    ],
)
def test_errors_of_the_arguments(loss: Any, optimizer: Any, infos: Any, message: str) -> None:
    """They are found when the pass is made, before it meets a module."""
    with pytest.raises(ArgumentError, match=message):
        SetupTrainer(loss, optimizer, infos)
    if infos is INFOS:
        with pytest.raises(ArgumentError, match=message):
            make_trainer(with_state(), loss, optimizer)


def python_function(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (python_function, r"not function\nhint: write the function 'backbone' into a class with @I.ir_module"),
        (with_state()["backbone"], r'not Function\nhint: wrap it: IRModule\(\{"backbone": function\}'),
        (SGD, "not the class SGD"),
        (None, "not NoneType"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    setup = SetupTrainer(MSELoss(), SGD(0.1), INFOS)
    for refused in (
        lambda: setup(model),
        lambda: make_trainer(model, MSELoss(), SGD(0.1)),
        lambda: Trainer(model, 1, setup),
    ):
        with pytest.raises(ArgumentError, match=f"a model is an IRModule with a function 'backbone', {message}"):
            refused()


@pytest.mark.parametrize("names", [("layer1.weight", "layer1.bias"), ("w é", "w\u00b2"), ("R", "def")])
def test_names_are_the_same_in_text_and_checkpoints(names: tuple[str, str], tmp_path: Path) -> None:
    x, w, b = (Var(n, TensorStructInfo(s)) for n, s in (("x", (4, 3)), (names[0], (3, 2)), (names[1], (2,))))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, b]):
        builder.emit_func_output(builder.emit(op.add(op.matmul(x, w), b)))
    model = builder.get().with_attrs({"param_num": 2, "state_num": 0})
    module = SetupTrainer(MSELoss(), Adam(0.1), INFOS)(model)
    again = from_source(module.script())
    first, second = (Trainer(m, pullback.VirtualMachine(pullback.compile(m, "debug"))) for m in (module, again))
    first.xavier_uniform_init_params(0)
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    assert list(second.params) == list(names)
    one = np.ones((5, 3), "float32")
    np.testing.assert_array_equal(first.predict(one).numpy(), second.predict(one).numpy())
