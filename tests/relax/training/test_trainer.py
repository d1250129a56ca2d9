"""Trainer: the reference's methods, the older forms, and that an error leaves the trainer as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, DTypeError, IRModule, ShapeError, UserError
from pullback.relax import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer, make_trainer
from pullback.relax.training.loss import CrossEntropyLoss, L1Loss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD
from pullback.runtime.library import library
from pullback.tir import Var as SizeVar
from tests.relax.training.models import SIZES, classes, mlp, with_state

X, Y = classes(8)
INFOS = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
TARGETS = ("debug", "llvm")


def compiled(module: IRModule, target: str, profile: bool = False) -> pullback.VirtualMachine:
    return pullback.VirtualMachine(pullback.compile(module, target), pullback.cpu(), profile=profile)


def trainer_of(target: str = "llvm", optimizer: Any = None, profile: bool = False) -> Trainer:
    setup = SetupTrainer(CrossEntropyLoss(), optimizer or Adam(0.01), INFOS, legalize=target != "debug")
    module = setup(mlp())
    trainer = Trainer(module, compiled(module, target, profile), pullback.cpu())
    trainer.xavier_uniform_init_params(seed=1)
    return trainer


def state_trainer(target: str = "llvm") -> Trainer:
    module = SetupTrainer(MSELoss(), SGD(0.1), [TensorStructInfo((4, 2))] * 2)(with_state())
    return Trainer(module, compiled(module, target), pullback.cpu())


def everything(trainer: Trainer) -> list[np.ndarray]:
    """All that a trainer keeps, as arrays."""
    kept = [*trainer.params.values(), *trainer.states.values(), *trainer.optimizer_states]
    return [tensor.numpy() for tensor in kept]


def assert_unchanged(trainer: Trainer, before: list[np.ndarray]) -> None:
    for old, new in zip(before, everything(trainer), strict=True):
        np.testing.assert_array_equal(old, new)


# ---- the reference's methods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_training_lowers_the_loss(target: str) -> None:
    trainer = trainer_of(target)
    losses = [trainer.update(X, Y).item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0] and trainer.steps == 30
    found = trainer.predict(X)
    assert found.shape == (8, 5) and found.dtype == "float32"


def test_initialization() -> None:
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.1), INFOS)(mlp())
    trainer = Trainer(module, compiled(module, "debug"), pullback.cpu())
    assert all((p.numpy() == 0).all() for p in trainer.params.values())
    trainer.xaiver_uniform_init_params()
    for name, param in trainer.export_params().items():
        values = param.numpy()
        if values.ndim == 1:
            assert (values == 0).all(), "biases begin as zeros"
        else:
            bound = np.sqrt(6 / sum(values.shape))
            assert 0.8 * bound < np.abs(values).max() <= bound, name
    trainer.zero_init_params()
    assert all((p.numpy() == 0).all() for p in trainer.params.values())
    trainer.xavier_uniform_init_params(seed=5)
    first = everything(trainer)
    trainer.xavier_uniform_init_params(seed=5)
    assert_unchanged(trainer, first)


def test_numpys_seed_has_its_usual_effect() -> None:
    trainer = trainer_of("debug")
    np.random.seed(3)
    trainer.xavier_uniform_init_params()
    first = everything(trainer)
    np.random.seed(3)
    trainer.xavier_uniform_init_params()
    assert_unchanged(trainer, first)


def test_nothing_runs_without_values() -> None:
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.1), INFOS)(mlp())
    trainer = Trainer(module, compiled(module, "debug"), pullback.cpu(), zero_init_param_state=False)
    for run in (lambda: trainer.update(X, Y), lambda: trainer.predict(X), trainer.export_params):
        with pytest.raises(UserError, match="parameter w0 has no value yet"):
            run()
    trainer.load_params({"w0": np.ones((20, 16))})
    with pytest.raises(UserError, match="parameter b0 has no value yet"):
        trainer.update(X, Y)


@pytest.mark.parametrize("target", TARGETS)
def test_states_follow_each_step(target: str) -> None:
    trainer = state_trainer(target)
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    trainer.load_params([w])
    trainer.load_states({"calls": 5})
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    assert trainer.predict(x).shape == (4, 2), "updated states are not returned"
    assert trainer.states["calls"].item() == 5, "and predict changes none"
    loss = trainer.update(x, y).item()
    np.testing.assert_allclose(loss, ((x @ w) ** 2).mean(), rtol=1e-6)
    assert trainer.export_states()["calls"].item() == 6
    np.testing.assert_allclose(trainer.states["seen"].numpy(), (x @ w).sum(0), rtol=1e-6)
    np.testing.assert_allclose(trainer.params["w"].numpy(), w - 0.1 * x.T @ (x @ w) / 4, rtol=1e-5)
    trainer.load_states([np.int64(1), [3.0, 4.0]])
    assert trainer.states["seen"].numpy().tolist() == [3, 4]
    trainer.zero_init_states()
    assert trainer.states["calls"].item() == 0


def test_load_params_by_list_and_by_name() -> None:
    trainer = trainer_of("debug")
    values = {name: param.numpy() + 1 for name, param in trainer.params.items()}
    trainer.load_params(list(values.values()))
    for name, value in values.items():
        np.testing.assert_array_equal(trainer.params[name].numpy(), value)
    trainer.load_params({"b1": np.zeros(12), "w2": pullback.tensor(np.ones((12, 5), np.float32))})
    assert (trainer.params["b1"].numpy() == 0).all() and (trainer.params["w2"].numpy() == 1).all()
    np.testing.assert_array_equal(trainer.params["w0"].numpy(), values["w0"])


def test_what_is_loaded_is_copied() -> None:
    trainer = trainer_of()
    mine = np.full((5,), 0.25, np.float32)
    trainer.load_params({"b2": mine})
    trainer.update(X, Y)
    assert (mine == 0.25).all() and (trainer.params["b2"].numpy() != 0.25).all()


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_returned_survives_later_steps(target: str) -> None:
    trainer = trainer_of(target)
    losses, values, exported, views = [], [], [], []
    for _ in range(5):
        loss, params = trainer.update(X, Y), trainer.params
        losses.append(loss)
        values.append(loss.item())
        exported.append(params)
        views.append(np.asarray(params["w0"]))
    assert [loss.item() for loss in losses] == values and len(set(values)) == 5
    assert len({params["b2"].numpy().tobytes() for params in exported}) == 5
    assert len({view.tobytes() for view in views}) == 5


def test_a_pinned_parameter_is_not_overwritten() -> None:
    trainer = trainer_of()
    trainer.update(X, Y)
    view = np.asarray(trainer._values.params[0])  # whoever gets hold of one
    before = view.copy()
    trainer.update(X, Y)
    np.testing.assert_array_equal(view, before)
    assert (trainer.params["w0"].numpy() != before).any()


def test_a_step_allocates_nothing() -> None:
    trainer = trainer_of()
    x, y = pullback.tensor(X), pullback.tensor(Y)
    for _ in range(3):
        trainer.update(x, y)
    before = library.pb_allocation_count()
    for _ in range(20):
        trainer.update(x, y)
    assert library.pb_allocation_count() - before <= 1  # losses share a slab: a new one once in 1,024 steps


def test_backends_and_legalization_agree() -> None:
    results = []
    for target, legalize in (("debug", False), ("debug", True), ("llvm", False), ("llvm", True)):
        module = SetupTrainer(CrossEntropyLoss(), Adam(0.01), INFOS, legalize)(mlp())
        trainer = Trainer(module, compiled(module, target), pullback.cpu())
        trainer.xavier_uniform_init_params(seed=1)
        results.append([trainer.update(X, Y).item() for _ in range(5)])
    np.testing.assert_allclose(results[1:], [results[0]] * 3, rtol=1e-5)
    assert results[2] == results[3], "legalized or not, it is the same executable"


def test_several_inputs_and_targets() -> None:
    from pullback.relax import BlockBuilder, Var, op

    a, b, w = (Var(n, TensorStructInfo((4, 2))) for n in "abw")
    builder = BlockBuilder()
    with builder.function("backbone", [a, b, w]):
        with builder.dataflow():
            out = builder.emit_output(op.multiply(op.add(a, b), w))
        builder.emit_func_output(out)
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    trainer = make_trainer(model, L1Loss(), SGD(0.1), target="debug", init="zeros")
    one = np.ones((4, 2), np.float32)
    assert trainer.update([one, one], one).item() == 1
    assert trainer.update((one, one), [one]).item() == pytest.approx(1 - 2 * 0.1 * 2 / 8)
    with pytest.raises(ArgumentError, match=r"the model takes 2 inputs \(a, b\), got 1"):
        trainer.update(one, one)


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_batch(target: str) -> None:
    trainer = make_trainer(mlp(SizeVar("n", "int64")), CrossEntropyLoss("sum"), SGD(0.01), target=target, seed=1)
    fixed = {
        rows: make_trainer(mlp(rows), CrossEntropyLoss("sum"), SGD(0.01), target=target, seed=1) for rows in (3, 8)
    }
    for rows in (3, 8):
        fixed[rows].load_params(trainer.params)
        np.testing.assert_allclose(trainer.predict(X[:rows]).numpy(), fixed[rows].predict(X[:rows]).numpy(), rtol=1e-6)
        assert trainer.update(X[:rows], Y[:rows]).item() == pytest.approx(fixed[rows].update(X[:rows], Y[:rows]).item())
    with pytest.raises(ShapeError, match=r"the targets must have shape \(n,\)"):
        trainer.update(X[:3], Y[:4])


# ---- older forms -----------------------------------------------------------------------------------------------------


def test_the_tutorials_older_form() -> None:
    model = IRModule({"predict": mlp()["backbone"]})  # the older name, and no attributes
    labels = TensorStructInfo((8, 5), "int64")
    trainer = Trainer(model, 6, SetupTrainer(CrossEntropyLoss("sum"), SGD(0.01, weight_decay=0.01), [INFOS[0], labels]))
    with pytest.raises(UserError, match="not built yet"):
        trainer.predict(X)
    assert repr(trainer) == "Trainer(not built)"
    assert trainer.build(target="llvm", device=pullback.cpu(0)) is trainer
    trainer.xaiver_uniform_init_params()
    one_hot = np.eye(5, dtype=np.float32)[Y]  # floats for an int64 target: no value changes
    losses = [trainer.update_params(X, one_hot).numpy() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert list(trainer.export_params()) == ["w0", "b0", "w1", "b1", "w2", "b2"]
    assert "optimizer: SGD; steps: 5" in repr(trainer)


def test_every_way_understands_the_older_name() -> None:
    older = IRModule({"predict": mlp()["backbone"]}, mlp().attrs)
    trainers = (
        make_trainer(older, CrossEntropyLoss(), SGD(0.1), target="debug", seed=1),
        make_trainer(mlp(), CrossEntropyLoss(), SGD(0.1), target="debug", seed=1),
        Trainer(older, 6, SetupTrainer(CrossEntropyLoss(), SGD(0.1), INFOS)).build("debug"),
    )
    trainers[2].load_params(trainers[0].params)
    first, *others = [trainer.update(X, Y).item() for trainer in trainers]
    assert others == pytest.approx([first, first], rel=1e-6)


def test_errors_of_the_constructor() -> None:
    setup = SetupTrainer(CrossEntropyLoss(), SGD(0.1), INFOS, legalize=False)
    module = setup(mlp())
    executable = pullback.compile(module, "debug")
    machine = compiled(module, "debug")
    for arguments, message in (
        ((mlp(), 7, setup), "told 7 parameters, but the model's attribute 'param_num' is 6"),
        ((mlp(), machine, setup), "param_num must be an int, got VirtualMachine"),
        ((module, executable), r"needs a VirtualMachine, got Executable\nhint: make it with VirtualMachine"),
        ((module, pullback.cpu(), machine), "expected a Device"),
        ((module, machine, "cpu"), "expected a Device, got 'cpu'"),
        ((module, compiled(mlp(), "debug")), "does not hold this trainer module: it lacks backbone_loss"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Trainer(*arguments)


def test_building_twice_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to build"):
        trainer_of("debug").build()


# ---- profiles --------------------------------------------------------------------------------------------------------


def test_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of()
    before = everything(trainer)
    for run in (trainer.profile_adjoint, trainer.profile_step):
        report = run([X], [Y])
        assert str(report) in capsys.readouterr().out
    assert_unchanged(trainer, before)
    assert trainer_of(profile=True).profile_step([X], [Y]).calls


# ---- the short way ---------------------------------------------------------------------------------------------------


def test_make_trainer_deduces_targets() -> None:
    def target(*args: Any, **options: Any) -> TensorStructInfo:
        return make_trainer(*args, target="debug", **options)._interface.targets[0].info

    assert target(mlp(), CrossEntropyLoss(), SGD(0.1)) == TensorStructInfo((8,), "int64")
    assert target(mlp(), MSELoss(), SGD(0.1)) == TensorStructInfo((8, 5))
    assert target(mlp(), CrossEntropyLoss(), SGD(0.1), targets="one-hot") == TensorStructInfo((8, 5))
    assert target(mlp(), CrossEntropyLoss(), SGD(0.1), targets=TensorStructInfo((8,), "int32")).dtype == "int32"
    made = pullback.trainer(mlp(), CrossEntropyLoss(), SGD(0.1), target="debug")
    assert made._interface.targets[0].info == TensorStructInfo((8,), "int64")


def test_make_trainer_is_deterministic() -> None:
    first, second = (make_trainer(mlp(), CrossEntropyLoss(), Adam(0.01), seed=4, target="debug") for _ in range(2))
    assert_unchanged(first, everything(second))
    assert (
        make_trainer(mlp(), CrossEntropyLoss(), SGD(0.1), init="zeros", target="debug").params["w0"].numpy() == 0
    ).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"init": "kaiming"}, "'kaiming' is no initializer"), ({"targets": "indices"}, "targets must be a struct info")],
)
def test_make_trainer_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make_trainer(mlp(), CrossEntropyLoss(), SGD(0.1), target="debug", **options)


def test_a_module_that_is_no_trainer_module() -> None:
    with pytest.raises(
        ArgumentError, match="no trainer module: it lacks backbone_loss, backbone_loss_adjoint, optimizer"
    ):
        Trainer(mlp(), compiled(mlp(), "debug"), pullback.cpu())


# ---- bad input -------------------------------------------------------------------------------------------------------

BAD_LABELS = np.where(np.arange(8) == 3, 5, Y)
BAD_CALLS: list[tuple[str, Callable[[Trainer], Any], type[Exception], str]] = [
    ("rows", lambda t: t.update(X[:4], Y), ShapeError, r"the targets must have shape \(4,\), got \(8,\)"),
    ("no rows", lambda t: t.update(X[:0], Y[:0]), ArgumentError, "input x has 0 rows: a step needs at least one"),
    ("columns", lambda t: t.update(X[:, :3], Y), ShapeError, r"input x must have shape \(8, 20\), got \(8, 3\)"),
    ("rank", lambda t: t.update(X, Y[:, None]), ShapeError, r"the targets must have shape \(8,\), got \(8, 1\)"),
    ("order", lambda t: t.update(Y, X), ShapeError, r"input x must have shape"),
    (
        "lossy",
        lambda t: t.update(X.astype(np.float64) + 1e-9, Y, cast=False),
        DTypeError,
        "input x must be float32, got float64 whose",
    ),
    ("fraction", lambda t: t.update(X, Y + 0.5), DTypeError, "the targets must be int64, got float64 whose values"),
    ("nan label", lambda t: t.update(X, np.full(8, np.nan)), DTypeError, "the targets must be int64"),
    ("text", lambda t: t.update(np.array(["a"] * 8), Y), DTypeError, "elements of dtype"),
    ("class", lambda t: t.update(X, BAD_LABELS), ArgumentError, "must hold classes from 0 to 4"),
    ("negative class", lambda t: t.update(X, -1 - Y), ArgumentError, "must hold classes from 0 to 4"),
    ("no target", lambda t: t.update(X, []), ArgumentError, r"the model takes 1 target \(targets\), got 0"),
    ("two inputs", lambda t: t.update([X, X], Y), ArgumentError, r"the model takes 1 input \(x\), got 2"),
    ("predict nothing", lambda t: t.predict(), ArgumentError, r"the model takes 1 input \(x\), got 0"),
    ("predict shape", lambda t: t.predict(X.T), ShapeError, r"input x must have shape \(8, 20\), got \(20, 8\)"),
    (
        "unknown name",
        lambda t: t.load_params({"b0": np.ones(16), "w9": 1}),
        ArgumentError,
        "no parameter w9; the parameters",
    ),
    (
        "too few",
        lambda t: t.load_params([np.ones((20, 16))]),
        ArgumentError,
        r"expected 6 parameters \(w0, .*\), got 1",
    ),
    (
        "second is wrong",
        lambda t: t.load_params({"b0": np.ones(16), "b1": np.ones(13)}),
        ShapeError,
        "parameter b1 must have",
    ),
    ("wrong order", lambda t: t.load_params(list(t.params.values())[::-1]), ShapeError, "parameter w0 must have shape"),
    ("lossy parameter", lambda t: t.load_params({"b1": np.full(12, 0.1)}), DTypeError, "parameter b1 must be float32"),
    ("no container", lambda t: t.load_params(np.ones(3)), ArgumentError, "expected a list or a dict of parameters"),
    ("no state", lambda t: t.load_states({"mean": 1}), ArgumentError, "there is no state mean; the states are: none"),
    ("states", lambda t: t.load_states([1]), ArgumentError, r"expected 0 states \(none\), got 1"),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("call", "error", "message"), [c[1:] for c in BAD_CALLS], ids=[c[0] for c in BAD_CALLS])
def test_bad_calls_change_nothing(
    call: Callable[[Trainer], Any], error: type[Exception], message: str, target: str
) -> None:
    trainer = trainer_of(target, MomentumSGD(0.1, 0.9))
    trainer.update(X, Y)
    before = everything(trainer)
    with pytest.raises(error, match=message):
        call(trainer)
    assert_unchanged(trainer, before)
    trainer.update(X, Y)
    assert trainer.steps == 2, "and the trainer goes on"


@pytest.mark.parametrize(
    "value",
    [Y.astype(np.int32), Y.astype(np.uint8), Y.astype(np.float64), Y.tolist(), pullback.tensor(Y.astype(np.int8))],
    ids=["int32", "uint8", "float64", "list", "tensor"],
)
def test_casts_that_change_no_value(value: Any) -> None:
    expected = trainer_of("debug").update(X, Y).item()
    given = [value] if isinstance(value, list) else value
    assert trainer_of("debug").update(X.astype(np.float64), given).item() == expected


def test_exact_casts_at_the_ends_of_the_ranges() -> None:
    from pullback.relax.training.interface import Slot
    from pullback.relax.training.values import as_tensor

    def cast(value: Any, dtype: str) -> np.ndarray:
        return as_tensor(value, Slot("input", "x", TensorStructInfo((), dtype))).numpy()

    assert cast(np.uint8(255), "float32") == 255
    assert cast(np.int64(2**60), "float64") == 2.0**60
    assert np.isnan(cast(np.float64("nan"), "float32")) and np.isinf(cast(np.float64("inf"), "float16"))
    assert cast(np.float64(-(2**63)), "int64") == -(2**63)
    assert cast(True, "float32") == 1 and cast(np.float32(1), "bool") and cast(0.1, "float32") == np.float32(0.1)
    for value, dtype in [
        (np.int64(2**63 - 1), "float64"), (np.float64(2**63), "int64"), (np.float32(2**31), "int32"),
        (np.float64(-1), "uint8"), (np.int64(-1), "uint64"), (np.float64("inf"), "int32"), (np.float32(2), "bool"),
        (np.int64(300), "uint8"), (np.float64(1e300), "float32"), (0.5, "int64"),
    ]:  # fmt: skip
        with pytest.raises(DTypeError, match="whose values would change"):
            cast(value, dtype)


def test_sizes_match_the_reference_model() -> None:
    assert [p.shape for p in trainer_of("debug").params.values()][::2] == list(itertools.pairwise(SIZES))
