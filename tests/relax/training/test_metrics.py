"""Metrics against scikit-learn, over batches and ignored targets; functions of one's own; what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from pullback.ir import ArgumentError, UserError
from pullback.relax import TensorStructInfo
from pullback.relax.training.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HingeLoss,
    L1Loss,
    MSELoss,
    MultiMarginLoss,
    NLLLoss,
    SoftMarginLoss,
)
from pullback.relax.training.metrics import NAMES, Metric, Metrics, Reading, Running
from pullback.relax.training.metrics.named import named_metric
from tests.relax.training.models import classes, mlp, params, trainer_of

GENERATOR = np.random.default_rng(0)
CLASSES = Reading("classes", "logits", ignored=-100)
BINARY = Reading("binary", "logits")
VALUES = Reading("values")


def measured(reading: Reading, names: Any, outputs: Any, targets: Any, cuts: tuple[int, ...] = (7, 20)) -> Any:
    """The metrics of rows that come in batches."""
    running = Running(Metrics(reading, tuple(named_metric(name, reading) for name in names)))
    for out, target in zip(np.split(outputs, cuts), np.split(targets, cuts), strict=True):
        running.update([target], out)
    return running.results()


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("count", [2, 5])
def test_classes_against_scikit_learn(count: int) -> None:
    logits = GENERATOR.standard_normal((60, count))
    labels = GENERATOR.integers(0, count, 60)
    logits[np.arange(60), labels] += 0.7
    found, p = logits.argmax(1), softmax(logits)
    score = p[:, 1] if count == 2 else p
    binary = {"average": "binary" if count == 2 else "macro", "zero_division": 0}
    expected = {
        "accuracy": sk.accuracy_score(labels, found),
        "balanced_accuracy": sk.balanced_accuracy_score(labels, found),
        "precision": sk.precision_score(labels, found, **binary),
        "recall": sk.recall_score(labels, found, **binary),
        "f1": sk.f1_score(labels, found, **binary),
        "iou": sk.jaccard_score(labels, found, **binary),
        **{f"f1_{a}": sk.f1_score(labels, found, average=a) for a in ("macro", "micro", "weighted")},
        **{f"iou_{a}": sk.jaccard_score(labels, found, average=a) for a in ("macro", "micro", "weighted")},
        **{f"recall_{a}": sk.recall_score(labels, found, average=a) for a in ("macro", "micro", "weighted")},
        **{f"precision_{a}": sk.precision_score(labels, found, average=a) for a in ("macro", "micro", "weighted")},
        "mcc": sk.matthews_corrcoef(labels, found),
        "kappa": sk.cohen_kappa_score(labels, found),
        "auc": sk.roc_auc_score(labels, score, multi_class="ovr"),
        "average_precision": sk.average_precision_score(labels, score),
        "perplexity": np.exp(sk.log_loss(labels, p)),
        "top1": sk.accuracy_score(labels, found),
        "top2": 1.0 if count == 2 else sk.top_k_accuracy_score(labels, logits, k=2),
    }
    assert {n for n, named in NAMES.items() if "classes" in named.kinds} <= expected.keys()
    assert measured(CLASSES, expected, logits, labels) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(60,), (60, 1), (60, 3)])
def test_binary_predictions_against_scikit_learn(shape: tuple[int, ...]) -> None:
    logits = GENERATOR.standard_normal(shape)
    labels = (logits + GENERATOR.standard_normal(shape) > 0.3).astype(np.float32)
    y, z = (a.reshape(60) if len(shape) == 1 or shape[1] == 1 else a for a in (labels.astype(int), logits))
    found, p = (z > 0).astype(int), 1 / (1 + np.exp(-z))
    several = y.ndim == 2
    average = {"average": "macro"} if several else {}
    columns = [(y[:, k], found[:, k]) for k in range(3)] if several else [(y, found)]
    expected = {
        "accuracy": (y == found).mean(),
        "balanced_accuracy": np.mean([sk.balanced_accuracy_score(*pair) for pair in columns]),
        "precision": sk.precision_score(y, found, **average),
        "recall": sk.recall_score(y, found, **average),
        "f1": sk.f1_score(y, found, **average),
        "iou": sk.jaccard_score(y, found, **average),
        "f1_micro": sk.f1_score(y.ravel(), found.ravel()),
        "auc": sk.roc_auc_score(y, p),
        "average_precision": sk.average_precision_score(y, p),
        "mse": np.mean((p - y) ** 2),
    }
    if several:
        expected["f1_weighted"] = sk.f1_score(y, found, average="weighted")
    else:
        expected |= {"mcc": sk.matthews_corrcoef(y, found), "kappa": sk.cohen_kappa_score(y, found)}
    assert measured(BINARY, expected, logits, labels) == pytest.approx(expected, rel=1e-12)
    of_probabilities = Reading("binary", "probabilities")
    again = measured(of_probabilities, expected, 1 / (1 + np.exp(-logits)), labels)
    assert again == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(60,), (60, 1), (60, 3)])
def test_numbers_against_scikit_learn(shape: tuple[int, ...]) -> None:
    y = GENERATOR.standard_normal(shape) + 1e4  # far from zero: sums of squares would cancel
    found = y + 0.5 * GENERATOR.standard_normal(shape)
    expected = {
        "mae": sk.mean_absolute_error(y, found), "mse": sk.mean_squared_error(y, found),
        "rmse": np.sqrt(sk.mean_squared_error(y, found)), "r2": sk.r2_score(y, found),
        "mape": sk.mean_absolute_percentage_error(y, found), "max_error": np.abs(y - found).max(),
    }  # fmt: skip
    assert {n for n, named in NAMES.items() if "values" in named.kinds} == expected.keys()
    assert measured(VALUES, expected, found, y) == pytest.approx(expected, rel=1e-9)
    constant = np.full(shape, 3.0)
    for given in (constant, found):
        expected = {"r2": sk.r2_score(constant, given)}
        assert measured(VALUES, ["r2"], given, constant) == pytest.approx(expected)
    assert np.isnan(measured(VALUES, ["r2"], found[:1], y[:1], ())["r2"])


def test_pixels_and_ignored_targets() -> None:
    """Classes are the second axis; a target that is ignored is in no metric."""
    logits = GENERATOR.standard_normal((12, 4, 3, 2))
    labels = GENERATOR.integers(0, 4, (12, 3, 2))
    labels[GENERATOR.random(labels.shape) < 0.3] = -100
    flat, y = logits.transpose(0, 2, 3, 1).reshape(-1, 4), labels.reshape(-1)
    flat, y = flat[y != -100], y[y != -100]
    expected = {
        "accuracy": sk.accuracy_score(y, flat.argmax(1)),
        "f1": sk.f1_score(y, flat.argmax(1), average="macro"),
        "top2": sk.top_k_accuracy_score(y, flat, k=2),
        "perplexity": np.exp(sk.log_loss(y, softmax(flat))),
        "auc": sk.roc_auc_score(y, softmax(flat), multi_class="ovr"),
    }
    assert measured(CLASSES, expected, logits, labels, (5, 6)) == pytest.approx(expected, rel=1e-12)
    nothing = measured(CLASSES, expected, logits, np.full_like(labels, -100), (5, 6))
    assert all(np.isnan(v) for v in nothing.values())


def test_classes_that_do_not_occur() -> None:
    logits = np.array([[5.0, 0, 0], [5, 0, 0], [0, 5, 0], [0, 5, 0]])
    labels = np.array([0, 0, 1, 0])
    found = measured(CLASSES, ["f1", "balanced_accuracy", "precision", "recall"], logits, labels, (2,))
    y = logits.argmax(1)
    assert found["f1"] == pytest.approx(sk.f1_score(labels, y, average="macro"))
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, y))
    assert found["recall"] == pytest.approx(sk.recall_score(labels, y, average="macro"))
    assert np.isnan(measured(BINARY, ["auc"], np.ones(4), np.ones(4), (2,))["auc"])
    assert measured(BINARY, ["f1"], -np.ones(4), np.zeros(4), (2,)) == {"f1": 0.0}


def test_predictions_that_are_no_numbers_are_not_right() -> None:
    logits = np.full((4, 3), np.nan)
    assert measured(CLASSES, ["top2"], logits, np.zeros(4, np.int64), (2,)) == {"top2": 0.0}
    assert np.isnan(measured(CLASSES, ["perplexity"], logits, np.zeros(4, np.int64), (2,))["perplexity"])
    ties = np.zeros((4, 4))
    assert measured(CLASSES, ["top2"], ties, np.arange(4), (2,)) == {"top2": 0.5}, "a constant is not always right"


# ---- with a trainer ------------------------------------------------------------------------------------------------

X, Y = classes(30)  # three batches of eight and one of six
NUMBERS = np.random.default_rng(1).standard_normal((30, 5)).astype(np.float32)


def test_evaluate_takes_metrics() -> None:
    trainer = trainer_of("llvm")
    logits = np.concatenate([trainer.predict(X[k : k + 8]).numpy() for k in range(0, 30, 8)])
    found = trainer.evaluate(
        X,
        Y,
        metrics=[
            "f1",
            sk.matthews_corrcoef,
            ("kappa", sk.cohen_kappa_score),
            {"weighted": partial(sk.f1_score, average="weighted")},
            Metric(sk.log_loss, needs="probabilities"),
            Metric(lambda y, outputs: outputs.shape == (30, 5) and np.abs(outputs - logits).max(), "apart", "outputs"),
        ],
    )
    y = logits.argmax(1)
    assert list(found.metrics) == ["accuracy", "f1", "matthews_corrcoef", "kappa", "weighted", "log_loss", "apart"]
    assert found.accuracy == found["accuracy"] == (y == Y).mean()
    assert found["f1"] == pytest.approx(sk.f1_score(Y, y, average="macro"))
    assert found["matthews_corrcoef"] == sk.matthews_corrcoef(Y, y)
    assert found["kappa"] == sk.cohen_kappa_score(Y, y)
    assert found["weighted"] == sk.f1_score(Y, y, average="weighted")
    assert found["loss"] == found.loss
    assert found["log_loss"] == pytest.approx(found.loss, rel=1e-5)
    assert found["apart"] < 1e-5
    assert repr(found).startswith(f"Evaluation(loss={found.loss:.6g}, accuracy=") and repr(found).endswith("count=30)")
    with pytest.raises(KeyError, match="there is no metric 'F2'; there are: loss, accuracy, f1"):
        found["F2"]


def test_one_hot_targets_are_class_indices_to_functions() -> None:
    trainer = trainer_of(targets="one-hot")
    found = trainer.evaluate(X, np.eye(5, dtype=np.float32)[Y], metrics=[sk.accuracy_score, "f1"])
    labels = trainer_of().evaluate(X, Y, metrics=[sk.accuracy_score, "f1"])
    assert found.metrics == pytest.approx(labels.metrics)


def test_losses_say_how_predictions_are_read() -> None:
    labels = (NUMBERS > 0).astype(np.float32)
    logits = trainer_of(loss=BCEWithLogitsLoss())
    found = logits.evaluate(X, labels, metrics=["f1", "auc", sk.accuracy_score])
    outputs = np.concatenate([logits.predict(X[k : k + 8]).numpy() for k in range(0, 30, 8)])
    assert found.accuracy == ((outputs > 0) == labels).mean()
    assert found["accuracy_score"] == sk.accuracy_score(labels, outputs > 0)
    assert found["auc"] == pytest.approx(sk.roc_auc_score(labels, outputs))
    for loss in (SoftMarginLoss(), HingeLoss()):
        signs = trainer_of(loss=loss).evaluate(X, 2 * labels - 1, metrics=["f1", "auc"])
        assert signs["f1"] == pytest.approx(found["f1"]) and signs["auc"] == pytest.approx(found["auc"])
    nll = trainer_of(loss=NLLLoss()).evaluate(X, Y, metrics=["perplexity"])
    assert nll["perplexity"] == pytest.approx(np.exp(nll.loss), rel=1e-5)
    assert trainer_of(loss=BCELoss()).evaluate(X, labels).accuracy is not None
    of_numbers = trainer_of(loss=MSELoss()).evaluate(X, NUMBERS, metrics=["r2", "mse", sk.mean_absolute_error, "mae"])
    assert of_numbers.accuracy is None
    assert of_numbers["mse"] == pytest.approx(of_numbers.loss, rel=1e-5)
    assert of_numbers["mae"] == pytest.approx(of_numbers["mean_absolute_error"])


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_metrics_of_training_rows_are_those_of_the_steps(target: str) -> None:
    """Each row counts as it was predicted before its batch was trained on; training itself is what it was."""
    trainer, plain, stepped = (trainer_of(target) for _ in range(3))
    tail = trainer_of(target, model=mlp(6))
    history = trainer.fit(X, Y, epochs=2, shuffle=False, train_metrics=True, metrics=["top2", _weighted], verbose=0)
    plain.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    for a, b in zip(params(trainer), params(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    logits = []
    for k in (0, 8, 16):
        logits.append(stepped.predict(X[k : k + 8]).numpy())
        stepped.update(X[k : k + 8], Y[k : k + 8])
    tail._values = stepped._values.copy()
    logits.append(tail.predict(X[24:]).numpy())
    y = np.concatenate(logits)
    assert history["accuracy"][0] == (y.argmax(1) == Y).mean()
    assert history["top2"][0] == pytest.approx(sk.top_k_accuracy_score(Y, y, k=2))
    assert history["_weighted"][0] == pytest.approx(_weighted(Y, y.argmax(1)))
    assert history["loss"] == pytest.approx(plain.history["loss"], rel=1e-6)
    assert trainer.steps == 8


def _weighted(y: Any, found: Any) -> Any:
    return sk.f1_score(y, found, average="weighted", zero_division=0)


def test_validation_and_training_are_apart() -> None:
    history = trainer_of("llvm").fit(
        X, Y, validation=(X[:11], Y[:11]), metrics="f1", train_metrics=True, detect_nan=True, verbose=0
    )
    assert history.keys() == ["loss", "accuracy", "f1", "val_loss", "val_accuracy", "val_f1"]
    only = trainer_of("llvm").fit(X, Y, validation=(X[:11], Y[:11]), metrics=["f1"], verbose=0)
    assert only.keys() == ["loss", "val_loss", "val_accuracy", "val_f1"]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("recal", r"there is no metric 'recal': did you mean recall\?; those of this trainer's loss are: accuracy, "),
        (["acc"], r"no metric 'acc': did you mean accuracy\?"),
        (["roc_auc"], r"did you mean auc\?"),
        (["mae"], "the metric mae is for binary labels and numbers, and the loss for classes"),
        (["f1", "f1"], "the metric f1 is given twice"),
        (3, "metrics must be a list of names and functions, got int"),
        ([3], r"a metric is a function f\(y_true, y_pred\), got 3"),
        ([lambda y, p: 0], "a metric needs a name"),
        ({"one": lambda y: 0}, r"a metric is called as f\(y_true, y_pred\), and <lambda> takes \(y\)"),
        ([MSELoss()], r"a metric is a function f\(y_true, y_pred\), got MSELoss"),
        ([sk.accuracy_score, sk.accuracy_score], "accuracy_score is given twice"),
        ({"bad": lambda y, p: "x"}, "the metric bad must return a number, it returned str"),
        ({"bad": lambda y, p: np.ones(2)}, "the metric bad must return a number, it returned ndarray"),
    ],
)
def test_bad_metrics(metrics: Any, message: str) -> None:
    trainer = trainer_of()
    with pytest.raises(ArgumentError, match=message):
        trainer.evaluate(X, Y, metrics=metrics)


def test_metrics_that_do_not_fit_the_loss() -> None:
    numbers, margins = trainer_of(loss=L1Loss()), trainer_of(loss=MultiMarginLoss())
    with pytest.raises(ArgumentError, match="f1 is for classes and binary labels, and the loss for numbers"):
        numbers.evaluate(X, NUMBERS, metrics=["f1"])
    with pytest.raises(ArgumentError, match="needs classes, and the loss is for numbers"):
        numbers.evaluate(X, NUMBERS, metrics=[Metric(sk.f1_score, needs="classes")])
    with pytest.raises(ArgumentError, match="auc needs probabilities, and this loss takes margins"):
        margins.evaluate(X, Y, metrics=["auc"])
    with pytest.raises(ArgumentError, match="needs of a metric must be one of 'classes'"):
        Metric(sk.f1_score, needs="scores")
    with pytest.raises(ArgumentError, match="train_metrics=True measures nothing"):
        numbers.fit(X, NUMBERS, train_metrics=True)
    with pytest.raises(ArgumentError, match="there are no rows on which r2 could be measured"):
        numbers.fit(X, NUMBERS, metrics=["r2"])
    classes = trainer_of()
    with pytest.raises(ArgumentError, match=r"no rows on which accuracy(.|\n)*validation="):
        classes.fit(X, Y, metrics=["accuracy"])  # without a word it would be missing from the history
    assert numbers.steps == classes.steps == 0


def test_class_weights_are_no_targets_of_metrics() -> None:
    infos = [TensorStructInfo((8,), "int64"), TensorStructInfo((5,))]
    trainer = trainer_of(loss=CrossEntropyLoss(), targets=infos)
    weights = np.array([1, 2, 3, 4, 5], np.float32)
    assert trainer.evaluate(X, [Y, weights], metrics=["f1"])["f1"] == trainer_of().evaluate(X, Y, metrics=["f1"])["f1"]


def test_an_error_in_a_function_comes_out() -> None:
    def failing(y: Any, found: Any) -> float:
        raise RuntimeError("mine")

    trainer = trainer_of()
    with pytest.raises(RuntimeError, match="mine"):
        trainer.fit(X, Y, validation=(X, Y), metrics=[failing], verbose=0)
    assert trainer.steps == 4
    with pytest.raises(UserError):
        trainer.fit(X, Y, metrics=["nothing"])
