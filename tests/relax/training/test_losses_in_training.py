"""Every loss in a trainer: types of targets, whole and partial batches, the interpreter's and the compiled step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import Loss, Trainer, make_trainer
from pullback.relax.training import loss as losses
from pullback.relax.training.optimizer import SGD

ROWS, INPUTS, OUTPUTS = 10, 4, 3  # two batches of four and one of two
rng = np.random.default_rng(6)
X = rng.standard_normal((ROWS, INPUTS))
NUMBERS, PROBABILITIES = rng.standard_normal((ROWS, OUTPUTS)), rng.uniform(0, 1, (ROWS, OUTPUTS))
SIGNS, CLASSES = rng.choice([-1.0, 1.0], (ROWS, OUTPUTS)), rng.integers(0, OUTPUTS, ROWS)


def model(count: int, activation: Callable[[Any], Any] | None) -> IRModule:
    """``count`` linear layers side by side, the last with the activation."""
    x = Var("x", TensorStructInfo((4, INPUTS), "float64"))
    weights = [Var(f"w{k}", TensorStructInfo((INPUTS, OUTPUTS), "float64")) for k in range(count)]
    builder = BlockBuilder()
    with builder.function("backbone", [x, *weights]):
        with builder.dataflow():
            values = [op.matmul(x, w) for w in weights]
            values[-1] = activation(values[-1]) if activation else values[-1]
            outs = [builder.emit_output(v) for v in values]
        builder.emit_func_output(Tuple(tuple(outs)) if count > 1 else outs[0])
    return builder.get().with_attrs({"param_num": count, "state_num": 0})


CASES: dict[str, tuple[Loss, Callable[[Any], Any] | None, Any]] = {
    "l1": (losses.L1Loss(), None, NUMBERS),
    "mse": (losses.MSELoss(), None, NUMBERS),
    "smooth l1": (losses.SmoothL1Loss(), None, NUMBERS),
    "huber": (losses.HuberLoss(), None, NUMBERS),
    "bce": (losses.BCELoss(weight=[1.0, 2.0, 0.5]), op.sigmoid, PROBABILITIES),
    "bce logits": (losses.BCEWithLogitsLoss(pos_weight=[1.0, 2.0, 0.5]), None, PROBABILITIES),
    "cross entropy": (losses.CrossEntropyLoss(label_smoothing=0.1), None, CLASSES),
    "cross entropy ignoring": (losses.CrossEntropyLoss("sum", 1, 0.1), None, CLASSES),
    "one-hot": (losses.CategoricalCrossEntropyLoss(label_smoothing=0.1), None, np.eye(OUTPUTS)[CLASSES]),
    "nll": (losses.NLLLoss(), op.nn.log_softmax, CLASSES),
    "kl": (losses.KLDivLoss(), op.nn.log_softmax, PROBABILITIES),
    "kl of rows": (losses.KLDivLoss("batchmean"), op.nn.log_softmax, PROBABILITIES),
    "multi margin": (losses.MultiMarginLoss(), None, CLASSES),
    "multilabel margin": (losses.MultiLabelMarginLoss(), None, np.stack([CLASSES, CLASSES * 0 - 1, CLASSES], 1)),
    "multilabel soft margin": (losses.MultiLabelSoftMarginLoss(), None, PROBABILITIES),
    "hinge": (losses.HingeLoss(), None, SIGNS),
    "soft margin": (losses.SoftMarginLoss(), None, SIGNS),
    "hinge embedding": (losses.HingeEmbeddingLoss(), op.square, SIGNS),
    "ranking": (losses.MarginRankingLoss(margin=0.5), None, SIGNS),
    "cosine": (losses.CosineEmbeddingLoss(), None, SIGNS[:, 0].astype("int64")),
    "triplet": (losses.TripletMarginLoss(), None, []),
    "poisson": (losses.PoissonNLLLoss(), None, np.floor(PROBABILITIES * 5)),
    "gaussian": (losses.GaussianNLLLoss(), op.nn.softplus, NUMBERS),
}


def trainer_of(name: str, target: str) -> Trainer:
    loss, activation, _ = CASES[name]
    return make_trainer(model(loss.num_backbone_outputs, activation), loss, SGD(0.05), target=target)


@pytest.mark.parametrize("name", CASES)
def test_two_epochs(name: str) -> None:
    """The loss falls, and compiled code ends with the interpreter's weights."""
    trainers = [trainer_of(name, target) for target in ("debug", "llvm")]
    for trainer in trainers:
        history = trainer.fit(X, CASES[name][2], epochs=2, shuffle=False, verbose=0)
        first, second = (record.loss for record in history.epochs)
        assert second < first
    for a, b in zip(*(t.params.values() for t in trainers), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["mse", "triplet", "cosine", "gaussian"])
def test_one_update_and_evaluation(name: str) -> None:
    targets = CASES[name][2]
    trainer = trainer_of(name, "llvm")
    before = trainer.evaluate(X, targets).loss
    trainer.update(X[:4], targets[:4])
    assert trainer.evaluate(X, targets).loss != before


def test_every_loss_is_trained() -> None:
    every = {v for v in vars(losses).values() if isinstance(v, type) and issubclass(v, Loss)}
    assert every - {Loss, losses.FunctionLoss} == {type(case[0]) for case in CASES.values()} | {losses.CTCLoss}


def test_ctc() -> None:
    """Three targets, and predictions whose second axis is that of the batch."""
    sequences, labels = rng.standard_normal((ROWS, 7, INPUTS)), rng.integers(1, OUTPUTS, (ROWS, 3))
    targets = [labels, rng.integers(5, 8, ROWS), rng.integers(0, 3, ROWS)]
    x, w = (Var(n, TensorStructInfo(s, "float64")) for n, s in (("x", (4, 7, INPUTS)), ("w", (INPUTS, OUTPUTS))))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            logs = builder.emit_output(op.nn.log_softmax(op.permute_dims(op.matmul(x, w), (1, 0, 2))))
        builder.emit_func_output(logs)
    module = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    infos = [TensorStructInfo((4, *t.shape[1:]), "int64") for t in targets]
    trainers = [
        make_trainer(module, losses.CTCLoss(), SGD(0.05), targets=infos, target=target) for target in ("debug", "llvm")
    ]
    for trainer in trainers:
        first, second = (r.loss for r in trainer.fit(sequences, targets, epochs=2, shuffle=False, verbose=0).epochs)
        assert second < first
    weights = [trainer.params["w"].numpy() for trainer in trainers]
    np.testing.assert_allclose(*weights, rtol=1e-12, atol=1e-14)


def test_ctc_needs_the_types_of_its_targets() -> None:
    with pytest.raises(ArgumentError, match="predictions do not say how many labels a row has"):
        losses.CTCLoss().default_targets(TensorStructInfo((5, 4, 3), "float32"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.CrossEntropyLoss(label_smoothing=2), "label_smoothing must be from 0 to 1, got 2"),
        (lambda: losses.CrossEntropyLoss(label_smoothing="some"), "label_smoothing must be a number, got 'some'"),
        (lambda: losses.NLLLoss(ignore_index=None), "ignore_index must be an int, got None"),
        (lambda: losses.BCELoss(weight="heavy"), "weight must be a number or an array of numbers, got 'heavy'"),
        (lambda: losses.MSELoss("batchmean"), "reduction must be one of 'mean', 'sum', 'none', got 'batchmean'"),
        (lambda: losses.KLDivLoss("rows"), "must be one of 'mean', 'sum', 'none', 'batchmean', got 'rows'"),
    ],
)
def test_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()
