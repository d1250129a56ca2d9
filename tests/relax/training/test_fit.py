"""fit and evaluate: exact means, partial batches, order and resumption, labels, progress."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.driver import executable
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir import ArgumentError, DTypeError, IRModule, ShapeError, UserError, assert_structural_equal
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.training import SetupTrainer, Trainer, epochs, make_trainer, progress
from pullback.relax.training.evaluation import evaluation
from pullback.relax.training.initialize import generator
from pullback.relax.training.loss import CategoricalCrossEntropyLoss, CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD
from pullback.relax.training.setup_trainer import ADJOINT, OPTIMIZER
from pullback.runtime.library import library
from pullback.script import from_source
from pullback.target import Target
from pullback.tir import Var as SizeVar
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of, with_state

X, Y = classes(30)  # three batches of eight and one of six
TARGETS = ("debug", "llvm")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_evaluation_is_exact(target: str, reduction: str) -> None:
    trainer = trainer_of(target, CrossEntropyLoss(reduction))
    whole = trainer_of(target, CrossEntropyLoss(), model=mlp(30))
    whole.load_params(trainer.params)
    logits = whole.predict(X).numpy()
    found = trainer.evaluate(X, Y)
    assert found.count == 30
    assert found.accuracy == (logits.argmax(1) == Y).mean()
    expected = -(logits - np.log(np.exp(logits).sum(1, keepdims=True)))[np.arange(30), Y].mean()
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert trainer.evaluate(X, Y, batch_size=7).loss == pytest.approx(found.loss, rel=1e-5)
    assert trainer.evaluate(X[:3], Y[:3]).count == 3, "fewer rows than a batch"


@pytest.mark.parametrize("target", TARGETS)
def test_an_epoch_is_its_updates(target: str) -> None:
    """Without shuffling, fit does what update does on each batch, the last one of six rows included."""
    fitted, stepped = trainer_of(target, optimizer=Adam(0.01)), trainer_of(target, optimizer=Adam(0.01))
    tail = trainer_of(target, optimizer=Adam(0.01), model=mlp(6))
    losses = [stepped.update(X[k : k + 8], Y[k : k + 8]).item() for k in (0, 8, 16)]
    tail._values = stepped._values.copy()
    losses.append(tail.update(X[24:], Y[24:]).item())
    record = fitted.fit(X, Y, shuffle=False, verbose=0).epochs[0]
    assert record.loss == pytest.approx(np.dot(losses, [8, 8, 8, 6]) / 30, rel=1e-12)
    assert_same(params(fitted), params(tail))
    assert fitted.steps == 4 and fitted.epochs == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_shuffled_epoch_is_its_updates(target: str, reduction: str) -> None:
    """The same bits as a loop in Python gives, in the order that the seed draws; the loss as its loop adds it up."""
    loss = CrossEntropyLoss(reduction)
    fitted, stepped = trainer_of(target, loss, Adam(0.01)), trainer_of(target, loss, Adam(0.01))
    tail = trainer_of(target, loss, Adam(0.01), mlp(6))
    order, total = generator(5).permutation(30), 0.0
    for k in range(0, 24, 8):
        rows = order[k : k + 8]
        total += stepped.update(X[rows], Y[rows]).item() * (8 if reduction == "mean" else 1)
    tail._values = stepped._values.copy()
    total += tail.update(X[order[24:]], Y[order[24:]]).item() * (6 if reduction == "mean" else 1)
    assert fitted.fit(X, Y, seed=5, verbose=0).epochs[0].loss == total / 30
    assert_same(params(fitted), params(tail))


def test_slices_of_time_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    sliced, plain = trainer_of("llvm"), trainer_of("llvm")
    histories = [plain.fit(X, Y, epochs=3, seed=1, verbose=0)]
    monkeypatch.setattr(epochs, "SLICE_SECONDS", 0.0)
    histories.append(sliced.fit(X, Y, epochs=3, seed=1, verbose=0))
    assert_same(params(sliced), params(plain))
    assert len({tuple(record.loss for record in history.epochs) for history in histories}) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_images_and_labels_of_uint8(target: str) -> None:
    """They train as their float32 and int64 copies do, and no such copy of the whole data set is made."""
    images = np.random.default_rng(0).integers(0, 256, (30, 20), np.uint8)
    labels = Y.astype(np.uint8)
    small, large = trainer_of(target, optimizer=SGD(1e-4)), trainer_of(target, optimizer=SGD(1e-4))
    small.fit(images, labels, seed=1, verbose=0)
    large.fit(images.astype(np.float32), Y, seed=1, verbose=0)
    assert_same(params(small), params(large))
    assert small.evaluate(images, labels) == large.evaluate(images.astype(np.float32), Y)
    part = images[::2]
    assert small._source(part, labels[::2])._arrays[0] is part
    assert small._source(images, labels)._arrays[0] is images


def embedding(rows: int = 4) -> IRModule:
    """Looks three rows of a table up for each example."""
    tokens, table = Var("tokens", TensorStructInfo((rows, 3), "int64")), Var("table", TensorStructInfo((10, 5)))
    builder = BlockBuilder()
    with builder.function("backbone", [tokens, table]):
        with builder.dataflow():
            out = builder.emit_output(op.sum(op.take(table, tokens, 0), 1), "out")
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [0, 9, 13])
def test_a_step_that_fails_is_named_and_changes_nothing(target: str, place: int) -> None:
    failing, reference = (trainer_of(target, MSELoss(), Adam(0.1), embedding()) for _ in range(2))
    tokens = np.random.default_rng(0).integers(0, 10, (14, 3))
    tokens[place, 1] = 10
    y = np.ones((14, 5), np.float32)
    complete = place // 4
    with pytest.raises(ArgumentError, match=rf"^step {complete + 1}: .*take"):
        failing.fit(tokens, y, shuffle=False, verbose=0)
    assert failing.steps == complete and failing.epochs == 0
    if complete:
        reference.fit(tokens[: 4 * complete], y[: 4 * complete], shuffle=False, verbose=0)
    assert_same(params(failing), params(reference))
    failing.fit(tokens[: place or 1] % 10, y[: place or 1], verbose=0)


def test_everything_is_compiled_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("llvm")
    compiled: list[str] = []
    compile_function = executable.compile_function

    def recorded(module: IRModule, name: str, *rest: Any) -> Any:
        compiled.append(name)
        return compile_function(module, name, *rest)

    def first_step(*_: Any) -> None:
        assert compiled == ["__step", "__step", "__evaluate", "__evaluate"]

    monkeypatch.setattr(executable, "compile_function", recorded)
    monkeypatch.setattr(progress.Progress, "advance", first_step)
    trainer.fit(X, Y, validation=(X[:11], Y[:11]), verbose=0)
    assert len(compiled) == 4, "for batches of 8, 6 and 3 rows: no more, no less"


def test_evaluation_runs_the_model_once() -> None:
    setup = SetupTrainer(CrossEntropyLoss(), SGD(0.1), [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")])
    module = evaluation(setup(mlp()))
    assert ADJOINT not in module and OPTIMIZER not in module
    prepared = prepare(module)
    both, loss = (plan_function(prepared, name, {}, Target("llvm")) for name in ("__evaluate", "backbone_loss"))
    assert len(both.outputs) == 3 and len(both.steps) == len(loss.steps) + 1, "and counts the targets"


def test_other_batch_sizes() -> None:
    fitted, other = trainer_of(), trainer_of(model=mlp(10))
    fitted.fit(X, Y, batch_size=10, seed=1, verbose=0)
    other.fit(X, Y, seed=1, verbose=0)
    assert_same(params(fitted), params(other))


def test_symbolic_batches() -> None:
    symbolic, fixed = trainer_of("llvm", model=mlp(SizeVar("n", "int64"))), trainer_of("llvm")
    for trainer in (symbolic, fixed):
        trainer.fit(X, Y, batch_size=8, seed=1, verbose=0)
    for a, b in zip(params(symbolic), params(fixed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert symbolic.evaluate(X, Y).accuracy == fixed.evaluate(X, Y).accuracy


def test_order_of_rows() -> None:
    first, second, third = trainer_of(), trainer_of(), trainer_of()
    first.fit(X, Y, seed=7, verbose=0)
    second.fit(X, Y, seed=7, verbose=0)
    third.fit(X, Y, seed=8, verbose=0)
    assert_same(params(first), params(second))
    assert (params(first)[0] != params(third)[0]).any()


@pytest.mark.parametrize("target", TARGETS)
def test_legalized_trainers_take_other_sizes_too(target: str) -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.05), infos)(mlp())
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, target), pullback.cpu()))
    plain = trainer_of(target)
    trainer.load_params(plain.params)
    for t in (trainer, plain):
        t.fit(X[:14], Y[:14], seed=1, verbose=0)
    for a, b in zip(params(trainer), params(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_learning_and_history() -> None:
    trainer = trainer_of("llvm", optimizer=MomentumSGD(0.02, 0.9))
    x, y = classes(200)
    history = trainer.fit(x[:150], y[:150], epochs=15, validation=(x[150:], y[150:]), verbose=0)
    assert [record.epoch for record in history.epochs] == list(range(1, 16))
    assert history.epochs[-1].loss < 0.2 * history.epochs[0].loss
    last = history.epochs[-1]
    found = trainer.evaluate(x[150:], y[150:])
    assert (last.validation_loss, last.validation_accuracy) == (found.loss, found.accuracy)
    assert last.seconds > 0
    assert f"epoch 15: loss {last.loss:.4f}, val_loss" in repr(history)


def test_regression_has_no_accuracy() -> None:
    trainer = trainer_of(loss=MSELoss())
    y = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    trainer.fit(X, y, verbose=0)
    assert trainer.evaluate(X, y).accuracy is None


@pytest.mark.parametrize("loss", [CrossEntropyLoss("sum"), CategoricalCrossEntropyLoss()])
def test_one_hot_targets(loss: Any) -> None:
    trainer = trainer_of(loss=loss, targets="one-hot")
    labels = trainer_of(loss=CrossEntropyLoss(loss.reduction))
    found, expected = trainer.evaluate(X, np.eye(5)[Y]), labels.evaluate(X, Y)
    assert found.accuracy == expected.accuracy
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)


def test_ignored_rows_do_not_count() -> None:
    trainer = trainer_of(loss=CrossEntropyLoss("sum", ignore_index=-1))
    y = np.where(np.arange(30) % 3 == 0, -1, Y)
    kept = np.arange(30) % 3 != 0
    assert trainer.evaluate(X, y).accuracy == trainer.evaluate(X[kept], Y[kept]).accuracy


def test_class_weights_are_given_once() -> None:
    infos = [TensorStructInfo((5,), "int64"), TensorStructInfo((5,))]  # as many classes as rows
    trainer = trainer_of(loss=CrossEntropyLoss("sum"), model=mlp(5), targets=infos)
    plain = trainer_of(loss=CrossEntropyLoss("sum"), model=mlp(5))
    weights = np.full(5, 2.0, np.float32)
    found = trainer.evaluate(X[:12], [Y[:12], weights])
    assert found.loss == pytest.approx(2 * plain.evaluate(X[:12], Y[:12]).loss, rel=1e-6)
    trainer.fit(X[:12], [Y[:12], weights], verbose=0)


def test_states_go_through_partial_batches() -> None:
    trainer = make_trainer(with_state(), MSELoss(), SGD(0.1), target="debug")
    x = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    trainer.fit(x, np.zeros((10, 2)), epochs=2, verbose=0)
    assert trainer.states["calls"].item() == 6
    trainer.evaluate(x, np.zeros((10, 2)))
    assert trainer.states["calls"].item() == 6


def test_a_step_of_fit_allocates_nothing() -> None:
    trainer = trainer_of("llvm")
    x, y = classes(64 * 8)
    counts = []
    for _ in range(3):
        trainer.fit(x, y, verbose=0)
        counts.append(library.pb_allocation_count())
    assert counts[2] - counts[1] < 16, "the buffers of a data set, but nothing for each of the 64 steps"


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.fit(X, ["a"] * 30), DTypeError, "^the targets: .*elements of dtype"),
        (lambda t: t.fit("x", Y), ArgumentError, "^input x: expected a number, lists or an array, got a str"),
        (lambda t: t.fit(X, None), ArgumentError, "^the targets are missing: x is an array, so y is needed too"),
        (lambda t: t.fit((row for row in X), Y), ArgumentError, r"^input x: .* got a generator\n.*np\.stack"),
        (lambda t: t.evaluate(X, iter(Y)), ArgumentError, "^the targets: .* got a iterator"),
        (lambda t: t.fit(X, np.int64(3)), ShapeError, r"the targets must have shape \(rows,\), got \(\)"),
        (lambda t: t.fit(X, Y, seed="now"), ArgumentError, "a seed must be an int ≥ 0, got 'now'"),
        (lambda t: t.fit(X, Y[:9]), ArgumentError, "same number of rows: x has 30, targets has 9"),
        (lambda t: t.fit(X[:0], Y[:0]), ArgumentError, "the data set is empty"),
        (lambda t: t.fit(X[:, :3], Y), ShapeError, r"input x must have shape \(rows, 20\), got \(30, 3\)"),
        (lambda t: t.fit(X, Y[:, None]), ShapeError, r"the targets must have shape \(rows,\), got \(30, 1\)"),
        (lambda t: t.fit(X + 1e-9, Y.astype(float) + 0.5), DTypeError, "the targets must be int64"),
        (lambda t: t.fit(X.astype("float64") * 1.1, Y, cast=False), DTypeError, "input x must be float32, got float64"),
        (lambda t: t.fit(X, Y + 1), ArgumentError, "classes from 0 to 4, got 5 at index"),
        (lambda t: t.fit(X, np.where(np.arange(30) == 4, -3, Y)), ArgumentError, r"got -3 at index \(4,\)"),
        (lambda t: t.fit(X, Y, epochs=0), ArgumentError, "epochs must be an int ≥ 1, got 0"),
        (lambda t: t.fit(X, Y, batch_size=2.0), ArgumentError, "batch_size must be an int ≥ 1, got 2.0"),
        (
            lambda t: t.fit(X, Y, validation=X),
            ArgumentError,
            r"validation must be a pair \(inputs, targets\), or what gives",
        ),
        (lambda t: t.fit(X, Y, validation=(X, Y[:3])), ArgumentError, "same number of rows"),
        (lambda t: t.evaluate(X, Y + 1), ArgumentError, "classes from 0 to 4"),
    ],
)
def test_bad_data_changes_nothing(call: Any, error: type[Exception], message: str) -> None:
    trainer = trainer_of()
    before = params(trainer)
    with pytest.raises(error, match=message):
        call(trainer)
    assert_same(before, params(trainer))
    assert trainer.steps == 0


def reshaping(batch: int = 8) -> IRModule:
    """A model that writes its batch size out."""
    x, w = Var("x", TensorStructInfo((batch, 20))), Var("w", TensorStructInfo((20, 5)))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(op.reshape(x, (batch, 20)), w))
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


def test_a_hard_coded_batch_size_fails_before_the_first_step() -> None:
    trainer = trainer_of(model=reshaping())
    with pytest.raises(ShapeError, match="backbone cannot run on batches of 6 rows"):
        trainer.fit(X, Y, verbose=0)
    assert trainer.steps == 0
    trainer.fit(X[:24], Y[:24], verbose=0)


def test_a_changed_adjoint_is_not_rederived() -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.05), infos, legalize=False)(mlp())
    doubled = SetupTrainer(CrossEntropyLoss("sum"), SGD(0.05), infos, legalize=False)(mlp())
    module["backbone_loss_adjoint"] = doubled["backbone_loss_adjoint"]
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu()))
    with pytest.raises(UserError, match="backbone_loss_adjoint was changed by a pass"):
        trainer.fit(X, Y, verbose=0)


@pytest.mark.parametrize("legalize", [False, True])
def test_a_module_read_from_text_trains_alike(legalize: bool) -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(ignore_index=3), Adam(0.05), infos, legalize)(mlp())
    read = from_source(module.script())
    assert_structural_equal(read, module)
    kept = []
    for m in (module, read):
        trainer = Trainer(m, pullback.VirtualMachine(pullback.compile(m, "debug"), pullback.cpu()))
        trainer.xavier_uniform_init_params(seed=1)
        trainer.fit(X[:14], Y[:14], seed=1, verbose=0)
        kept.append([*params(trainer), *(s.numpy() for s in trainer.optimizer_states)])
        assert trainer.evaluate(X[:8], Y[:8]).accuracy is not None and "optimizer: Adam" in repr(trainer)
    assert_same(*kept)


def test_a_module_without_a_record() -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.05), infos, legalize=False)(mlp())
    machine = pullback.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu())
    trainer = Trainer(module.without_attr("training"), machine)
    with pytest.raises(UserError, match="does not tell how its loss reduces"):
        trainer.fit(X, Y)
    trainer.update(X[:8], Y[:8])
    for damaged in ({"lost": 1}, 3):
        with pytest.raises(ArgumentError, match="attribute 'training' is no record"):
            Trainer(module.with_attr("training", damaged), machine)


def test_progress_draws_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    trainer_of().fit(X, Y, epochs=2)
    shown = capsys.readouterr().out
    assert "epoch 1: loss" in shown and "epoch 2: loss" in shown
    monkeypatch.delenv("FORCE_COLOR")
    trainer_of().fit(X, Y)
    assert re.fullmatch(r"epoch 1: loss \S+, \S+ s\n", capsys.readouterr().out), "a line elsewhere"
    trainer_of().fit(X, Y, verbose=0)
    assert capsys.readouterr().out == ""


def test_progress_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there is a terminal to draw on."""
    monkeypatch.setitem(sys.modules, "rich", None)
    trainer_of().fit(X, Y)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(UserError, match="needs the package rich"):
        trainer_of().fit(X, Y)
    trainer_of().fit(X, Y, verbose=0)


def test_progress_without_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    trainer_of().fit(X, Y)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    trainer = trainer_of()
    with pytest.warns(RuntimeWarning, match="cannot be shown: I/O operation on closed file; training goes on without"):
        trainer.fit(X, Y, epochs=2)
    assert trainer.epochs == 2


def test_an_ignored_class_is_right_nowhere() -> None:
    """A target that is ignored does not count, even where the prediction is that very class."""
    trainer = trainer_of(loss=CrossEntropyLoss(ignore_index=1))
    trainer.fit(X, Y, epochs=2, seed=1, verbose=0)
    predicted = np.concatenate([trainer.predict(X[k : k + 8]).numpy().argmax(1) for k in range(0, 24, 8)])
    ignored = np.where(predicted == predicted[0], 1, Y[:24])  # a class that is predicted
    ignored[:4] = 1
    counted = ignored != 1
    found = trainer.evaluate(X[:24], ignored)
    assert found.accuracy == (predicted == ignored)[counted].mean()
    assert (
        trainer.evaluate(X[:8], np.where(predicted[:8] == 1, predicted[:8], 0)).accuracy
        == ((predicted[:8] == 0) & (predicted[:8] != 1)).sum() / (predicted[:8] != 1).sum()
    )
    everywhere = trainer_of(loss=CrossEntropyLoss(ignore_index=int(predicted[0])), model=mlp(8))
    everywhere.load_params([p.numpy() for p in trainer.params.values()])
    rows = np.flatnonzero(predicted[:8] == predicted[0])
    labels = np.full(8, (int(predicted[0]) + 1) % 5)
    labels[rows] = predicted[0]
    assert everywhere.evaluate(X[:8], labels).accuracy == (predicted[:8] == labels)[labels != predicted[0]].mean()
