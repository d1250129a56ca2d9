"""Training a model that drops: what is drawn follows from the seed and the step, and only training draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir import CheckpointError, IRModule, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.convention import RANDOM, Convention
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import SGD, Adam
from pullback.relax.transform import DecomposeOpsForInference
from pullback.runtime import get_num_threads, set_num_threads
from tests.helpers import round_trip
from tests.relax.training.models import classes

SIZES = (20, 64, 5)


def dropping(batch: Any = 8, p: float = 0.5) -> IRModule:
    """A perceptron of two layers, with dropout before each."""
    infos = [(batch, SIZES[0]), SIZES[:2], SIZES[1:2], SIZES[1:]]
    names = ("x", "w0", "b0", "w1")
    x, w0, b0, w1 = (Var(n, TensorStructInfo(s, "float32")) for n, s in zip(names, infos, strict=True))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w0, b0, w1]):
        with builder.dataflow():
            h = builder.emit(op.nn.relu(op.add(op.matmul(op.dropout(x, p / 2), w0), b0)))
            out = builder.emit_output(op.matmul(op.nn.dropout(h, p)[0], w1), "out")
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 3, "state_num": 0})


def make(batch: Any = 8, seed: int = 1, **options: Any) -> Trainer:
    return pullback.trainer(dropping(batch), CrossEntropyLoss(), Adam(1e-2), seed=seed, **options)


X, Y = classes(28)


def steps(trainer: Trainer, count: int = 3) -> list[float]:
    """The losses of some steps on the same batch."""
    return [float(trainer.update(X[:8], Y[:8])) for _ in range(count)]


def params(trainer: Trainer) -> bytes:
    return b"".join(t.numpy().tobytes() for t in trainer.export_params().values())


def test_a_seed_says_what_is_dropped():
    first = make()
    losses = steps(first)
    assert losses == steps(make())
    assert losses != steps(make(seed=2))
    assert len(set(np.round(losses, 6))) == 3
    again = make(seed=5)
    again.load_params(make().params)
    assert steps(again)[0] != losses[0]  # the same parameters, other numbers
    again = make(seed=5)
    again.load_params(make().params)
    again.seed(1)
    assert steps(again) == losses
    again = make(seed=5)
    again.seed(2**70 + 3)
    assert steps(again)


def test_each_step_drops_anew():
    """With a learning rate of almost nothing, losses differ by what is dropped alone."""
    trainer = pullback.trainer(dropping(), CrossEntropyLoss(), SGD(1e-30), seed=0)
    assert len(set(steps(trainer, 5))) == 5


def test_predict_and_evaluate_drop_nothing():
    trainer = make()
    steps(trainer)
    w0, b0, w1 = (t.numpy() for t in trainer.params.values())
    expected = np.maximum(X[:8] @ w0 + b0, 0) @ w1
    np.testing.assert_allclose(trainer.predict(X[:8]).numpy(), expected, rtol=1e-4, atol=1e-5)
    log = expected - np.log(np.exp(expected).sum(1, keepdims=True))
    found = trainer.evaluate(X[:8], Y[:8])
    np.testing.assert_allclose(found.loss, -log[np.arange(8), Y[:8]].mean(), rtol=1e-4)
    assert trainer.evaluate(X[:8], Y[:8]) == found
    losses = steps(trainer)
    other = make()
    steps(other)
    assert steps(other) == losses  # neither has counted a step


def test_native_and_interpreted_steps_drop_the_same():
    native, slow = make(), make(target="debug")
    np.testing.assert_allclose(steps(native), steps(slow), rtol=1e-5)
    assert native._values.random[0].numpy().tolist() == slow._values.random[0].numpy().tolist() == [1, 3]


def test_any_number_of_threads():
    before, found = get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            trainer = make(tir.Var("n"))
            trainer.fit(X, Y, epochs=2, batch_size=8, verbose=0)
            found.append(params(trainer))
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    """Its random numbers too, with batches of another size at the end of each epoch."""
    whole, first, second = make(), make(), make(seed=9)
    whole.fit(X, Y, epochs=4, verbose=0)
    first.fit(X, Y, epochs=2, verbose=0)
    first.save(tmp_path / "half.safetensors")
    second.load(tmp_path / "half.safetensors")
    second.fit(X, Y, epochs=2, verbose=0)
    assert params(second) == params(whole)
    assert steps(second) == steps(whole)


def test_a_checkpoint_of_the_model_without_dropout_is_refused(tmp_path):
    plain = pullback.trainer(DecomposeOpsForInference()(dropping()), CrossEntropyLoss(), Adam(1e-2))
    plain.save(tmp_path / "plain.safetensors")
    with pytest.raises(CheckpointError, match=r"whose network is 5 ops"):
        make().load(tmp_path / "plain.safetensors")


def test_fit_with_a_seed_can_be_repeated():
    first, second = make(), make(seed=3)
    second.load_params(first.params)
    for trainer in (first, second):
        trainer.fit(X, Y, epochs=2, seed=11, verbose=0)
    assert params(first) == params(second)


def test_a_failed_step_draws_nothing():
    trainer, other = make(), make()
    steps(trainer), steps(other)
    with pytest.raises(UserError):
        trainer.update(X[:8], Y[:8] + 100)
    assert steps(trainer) == steps(other)


def test_detect_nan_takes_the_step_back():
    trainer = make()
    steps(trainer)
    bad = X.copy()
    bad[3] = np.inf  # not all of which is dropped
    before = trainer._values.random[0].numpy().tolist()
    with pytest.raises(UserError, match="the loss of step"):
        trainer.fit(bad[:8], Y[:8], shuffle=False, detect_nan=True, verbose=0)
    assert trainer._values.random[0].numpy().tolist() == before


def test_the_module_of_the_trainer():
    """The random state is the last parameter of loss and adjoint, and no state of the model."""
    model = dropping()
    infos = [TensorStructInfo((8, 5), "float32"), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), Adam(1e-2), infos, legalize=False)(model)
    assert [p.name for p in module["backbone"].params] == ["x", "w0", "b0", "w1"]
    for name in ("backbone_loss", "backbone_loss_adjoint"):
        assert [p.name for p in module[name].params] == ["x", "w0", "b0", "w1", "targets", "random_state"]
    assert module.attrs["state_num"] == 0
    roles = Convention.of(module)
    assert roles["backbone_loss"].taken(RANDOM) == roles["backbone_loss_adjoint"].taken(RANDOM) == (5,)
    text = round_trip(module)
    assert "R.random.site(random_state, 1)" in text
    plain = SetupTrainer(CrossEntropyLoss(), Adam(1e-2), infos)(DecomposeOpsForInference()(model))
    assert Convention.of(plain)["backbone_loss"].taken(RANDOM) == ()


def test_the_random_state_counts_as_a_state():
    trainer = make()
    steps(trainer)
    for name in ("__step", "backbone_loss_adjoint"):
        assert trainer.vm.executable.memory(name).categories["states"] == 16
    assert trainer.vm.executable.memory("backbone").categories["states"] == 0


def test_the_longer_ways_to_a_trainer():
    """Legalised, with a virtual machine; and the older form, seeded before it is built. Both drop as the short way."""
    infos = [TensorStructInfo((8, 5), "float32"), TensorStructInfo((8,), "int64")]
    setup = SetupTrainer(CrossEntropyLoss(), Adam(1e-2), infos)
    module = setup(dropping())
    machine = pullback.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(), profile=True)
    trainer = Trainer(module, machine, pullback.cpu())
    older = Trainer(dropping(), 3, setup)
    older.seed(1)
    older.build("llvm")
    short = make()
    trainer.seed(1)
    for other in (trainer, older):
        other.load_params(short.params)
    losses = steps(short)
    assert steps(trainer) == losses and steps(older) == losses
    state = trainer._values.random[0].numpy().tolist()
    for report in (trainer.profile_adjoint(X[:8], Y[:8]), trainer.profile_step(X[:8], Y[:8])):
        assert "bernoulli" in str(report)
    assert trainer._values.random[0].numpy().tolist() == state


def test_without_a_seed_trainers_differ():
    infos = [TensorStructInfo((8, 5), "float32"), TensorStructInfo((8,), "int64")]
    setup = SetupTrainer(CrossEntropyLoss(), Adam(1e-2), infos)
    states = [Trainer(dropping(), 3, setup).build("debug")._values.random[0].numpy().tolist() for _ in range(2)]
    assert states[0] != states[1] and states[0][1] == states[1][1] == 0


def test_noise_is_drawn_in_training_alone():
    """A draw that has no form for inference: predict says so, steps are made."""
    x, w = Var("x", TensorStructInfo((8, 20), "float32")), Var("w", TensorStructInfo((20, 5), "float32"))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        out = builder.emit(op.add(op.matmul(x, w), op.random.normal((8, 5), 0.0, 0.1)))
        builder.emit_func_output(out)
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    trainer = pullback.trainer(model, CrossEntropyLoss(), Adam(1e-2))
    assert steps(trainer)[0] != steps(trainer)[0]
    with pytest.raises(UserError, match=r"random\.normal draws random numbers, and has no state"):
        trainer.predict(X[:8])
