"""Batches are combined by what their losses are divided by: evaluation, the loss of an epoch, and accumulated gradients
of equal, unequal and empty batches are those of one big batch in PyTorch, for every loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pullback.ir import IRModule
from pullback.relax import BlockBuilder, Expr, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import Loss, Trainer, make_trainer
from pullback.relax.training import loss as losses
from pullback.relax.training.optimizer import SGD, Accumulate

SIZE, INPUTS, CLASSES, PLACES, LABELS = 4, 5, 3, 2, 2
BATCHES = {"equal": 12, "unequal": 10, "empty": 10}  # rows, by four; of the last, the rows 4 to 7 count for nothing
EMPTY = slice(4, 8)
RATE = 0.1
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A loss, what the model does with x·w before it, targets of so many rows, PyTorch's loss of predictions and
    targets, and targets of which the empty rows count for nothing, if there are such."""

    loss: Loss
    torch: Callable[..., torch.Tensor]
    targets: Callable[[np.random.Generator, int], Arrays]
    activation: str = ""
    emptied: Callable[[Arrays], Arrays] | None = None
    leading: int = 0  # the axis of the predictions that is the batch


# ---- the model: linear layers side by side, in both systems ----------------------------------------------------------


def _last(values: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [*values[:-1], function(values[-1])]


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "": (lambda x: x, lambda x: x),
    "sigmoid": (op.sigmoid, torch.sigmoid),
    "softplus": (op.nn.softplus, F.softplus),
    "square": (op.square, torch.square),
    "log_softmax": (lambda x: op.nn.log_softmax(x, -1), lambda x: F.log_softmax(x, -1)),
    "places": (lambda x: op.permute_dims(x, (0, 2, 1)), lambda x: x.permute(0, 2, 1)),
    "times": (
        lambda x: op.nn.log_softmax(op.permute_dims(x, (1, 0, 2)), -1),
        lambda x: F.log_softmax(x.permute(1, 0, 2), -1),
    ),
}


def rows_of(activation: str) -> tuple[int, ...]:
    """The shape of a row of x."""
    return {"places": (PLACES, INPUTS), "times": (6, INPUTS)}.get(activation, (INPUTS,))


def model(rows: int, count: int, activation: str, dtype: str = "float64") -> IRModule:
    x = Var("x", TensorStructInfo((rows, *rows_of(activation)), dtype))
    weights = [Var(f"w{k}", TensorStructInfo((INPUTS, CLASSES), dtype)) for k in range(count)]
    builder = BlockBuilder()
    with builder.function("backbone", [x, *weights]):
        with builder.dataflow():
            values = _last([op.matmul(x, w) for w in weights], ACTIVATIONS[activation][0])
            outs = [builder.emit_output(v) for v in values]
        builder.emit_func_output(Tuple(tuple(outs)) if count > 1 else outs[0])
    return builder.get().with_attrs({"param_num": count, "state_num": 0})


class PerRow(Loss):
    """A loss with a weight for each row: Σ w·l / Σ w, l the mean of a row."""

    def __init__(self, inner: Loss, rows: int = 0) -> None:
        super().__init__("weighted", inner.num_backbone_outputs)
        self.inner, self.rows = inner, rows

    def expression(self, *variables: Var) -> Expr:
        *rest, weights = variables
        each = self.inner.expression(*rest)
        axes = [a for a in range(len(each.shape)) if a != self.rows]
        each = op.mean(each, axes) if axes else each
        return op.divide(op.sum(op.multiply(each, weights)), op.sum(weights))


def per_row(each: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    each = each.flatten(1).mean(1) if each.ndim > 1 else each
    return (each * weights).sum() / weights.sum()


# ---- the losses ------------------------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.standard_normal((rows, CLASSES))]


def shares(rng: np.random.Generator, rows: int) -> Arrays:
    values = rng.uniform(0.1, 1, (rows, CLASSES))
    return [values / values.sum(1, keepdims=True)]


def signs(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.choice([-1.0, 1.0], (rows, CLASSES))]


def counts(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.integers(0, 6, (rows, CLASSES)).astype(float)]


def labels(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.integers(0, CLASSES, rows)]


def label_lists(rng: np.random.Generator, rows: int) -> Arrays:
    return [np.stack([np.arange(rows) % CLASSES, np.full(rows, -1), np.zeros(rows, int)], 1)]


def one_sign(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.choice([-1, 1], rows)]


def sequences(rng: np.random.Generator, rows: int) -> Arrays:
    return [rng.integers(1, CLASSES, (rows, LABELS)), rng.integers(5, 7, rows), rng.integers(1, LABELS + 1, rows)]


def nothing(rng: np.random.Generator, rows: int) -> Arrays:
    return []


def some_ignored(ignored: int, dims: tuple[int, ...] = ()) -> Callable[[np.random.Generator, int], Arrays]:
    def make(rng: np.random.Generator, rows: int) -> Arrays:
        values = rng.integers(0, CLASSES, (rows, *dims))
        values[rng.random(values.shape) < 0.4] = ignored
        values[0] = CLASSES - 1 if ignored != CLASSES - 1 else 0  # somebody counts
        return [values]

    return make


def ignore_rows(ignored: int) -> Callable[[Arrays], Arrays]:
    def emptied(targets: Arrays) -> Arrays:
        values = targets[0].copy()
        values[EMPTY] = ignored
        return [values, *targets[1:]]

    return emptied


def no_weight(targets: Arrays) -> Arrays:
    weights = targets[-1].copy()
    weights[EMPTY] = 0
    return [*targets[:-1], weights]


CLASS_WEIGHTS = np.array([0.5, 2.0, 1.25])


def class_weighted(make: Callable[..., Arrays]) -> Callable[[np.random.Generator, int], Arrays]:
    return lambda rng, rows: [*make(rng, rows), CLASS_WEIGHTS]


def cosine(a: torch.Tensor, b: torch.Tensor, t: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.cosine_embedding_loss(a, b, t, reduction=reduction)


def hinge(p: torch.Tensor, t: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    each = torch.clamp(1 - p * t, min=0)
    return each if reduction == "none" else each.mean()


def ranking(a: torch.Tensor, b: torch.Tensor, t: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.margin_ranking_loss(a, b, t, 0.5, reduction=reduction)


def gaussian(p: torch.Tensor, v: torch.Tensor, t: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.gaussian_nll_loss(p, t, v, reduction=reduction)


def ctc(p: torch.Tensor, *t: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.ctc_loss(p, *t, reduction=reduction)


PLAIN: dict[str, tuple[Callable[[str], Loss], Callable[..., torch.Tensor], Callable[..., Arrays], str]] = {
    "l1": (losses.L1Loss, F.l1_loss, numbers, ""),
    "mse": (losses.MSELoss, F.mse_loss, numbers, ""),
    "smooth l1": (losses.SmoothL1Loss, F.smooth_l1_loss, numbers, ""),
    "huber": (losses.HuberLoss, F.huber_loss, numbers, ""),
    "bce": (losses.BCELoss, F.binary_cross_entropy, shares, "sigmoid"),
    "bce logits": (losses.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits, shares, ""),
    "kl": (losses.KLDivLoss, F.kl_div, shares, "log_softmax"),
    "poisson": (losses.PoissonNLLLoss, F.poisson_nll_loss, counts, ""),
    "gaussian": (losses.GaussianNLLLoss, gaussian, numbers, "softplus"),
    "cross entropy": (losses.CrossEntropyLoss, F.cross_entropy, labels, ""),
    "probabilities": (losses.CategoricalCrossEntropyLoss, F.cross_entropy, shares, ""),
    "nll": (losses.NLLLoss, F.nll_loss, labels, "log_softmax"),
    "multi margin": (losses.MultiMarginLoss, F.multi_margin_loss, labels, ""),
    "multilabel margin": (losses.MultiLabelMarginLoss, F.multilabel_margin_loss, label_lists, ""),
    "multilabel soft margin": (losses.MultiLabelSoftMarginLoss, F.multilabel_soft_margin_loss, shares, ""),
    "hinge": (losses.HingeLoss, hinge, signs, ""),
    "soft margin": (losses.SoftMarginLoss, F.soft_margin_loss, signs, ""),
    "hinge embedding": (losses.HingeEmbeddingLoss, F.hinge_embedding_loss, signs, "square"),
    "ranking": (lambda reduction: losses.MarginRankingLoss(reduction, 0.5), ranking, signs, ""),
    "cosine": (losses.CosineEmbeddingLoss, cosine, one_sign, ""),
    "triplet": (losses.TripletMarginLoss, F.triplet_margin_loss, nothing, ""),
    "ctc": (losses.CTCLoss, ctc, sequences, "times"),
}


def _per_row_case(name: str) -> Case:
    make, reference, targets, activation = PLAIN[name]
    return Case(
        PerRow(make("none")),
        lambda *values: per_row(reference(*values[:-1], reduction="none"), values[-1]),
        lambda rng, rows: [*targets(rng, rows), rng.uniform(0.5, 3, rows)],
        activation, no_weight,
    )  # fmt: skip


def entropy(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda p, t, w=None: F.cross_entropy(p, t, w, **options)


CASES = {
    **{n: Case(make("mean"), reference, targets, a) for n, (make, reference, targets, a) in PLAIN.items()},
    **{f"{n}, summed": Case(PLAIN[n][0]("sum"), lambda *v, f=PLAIN[n][1]: f(*v, reduction="sum"), *PLAIN[n][2:])
       for n in ("mse", "cross entropy", "ctc")},
    **{f"{n}, weights per row": _per_row_case(n) for n in PLAIN},
    "kl of rows": Case(
        losses.KLDivLoss("batchmean"), lambda p, t: F.kl_div(p, t, reduction="batchmean"), shares, "log_softmax"
    ),
    "bce, weights": Case(
        losses.BCELoss(weight=CLASS_WEIGHTS),
        lambda p, t: F.binary_cross_entropy(p, t, torch.tensor(CLASS_WEIGHTS)), shares, "sigmoid",
    ),
    "bce logits, weights": Case(
        losses.BCEWithLogitsLoss(weight=CLASS_WEIGHTS, pos_weight=CLASS_WEIGHTS[::-1]),
        lambda p, t: F.binary_cross_entropy_with_logits(
            p, t, torch.tensor(CLASS_WEIGHTS), pos_weight=torch.tensor(CLASS_WEIGHTS[::-1].copy())), shares,
    ),
    "cross entropy, ignoring": Case(
        losses.CrossEntropyLoss(), entropy(), some_ignored(-100), emptied=ignore_rows(-100)
    ),
    "cross entropy, ignoring a class": Case(
        losses.CrossEntropyLoss(ignore_index=2), entropy(ignore_index=2), some_ignored(2), emptied=ignore_rows(2)
    ),
    "cross entropy of places, ignoring": Case(
        losses.CrossEntropyLoss(), entropy(), some_ignored(-100, (PLACES,)), "places", ignore_rows(-100)
    ),
    "cross entropy, smoothed, ignoring": Case(
        losses.CrossEntropyLoss(label_smoothing=0.2), entropy(label_smoothing=0.2), some_ignored(-100),
        emptied=ignore_rows(-100),
    ),
    "cross entropy, class weights": Case(
        losses.CrossEntropyLoss(), entropy(), class_weighted(labels)
    ),
    "cross entropy of places, class weights, ignoring": Case(
        losses.CrossEntropyLoss(ignore_index=-1), entropy(ignore_index=-1),
        class_weighted(some_ignored(-1, (PLACES,))), "places", ignore_rows(-1),
    ),
    "cross entropy, smoothed, class weights, ignoring": Case(
        losses.CrossEntropyLoss(label_smoothing=0.2), entropy(label_smoothing=0.2),
        class_weighted(some_ignored(-100)), emptied=ignore_rows(-100),
    ),
    "nll, class weights, ignoring": Case(
        losses.NLLLoss(ignore_index=-1), lambda p, t, w: F.nll_loss(p, t, w, ignore_index=-1),
        class_weighted(some_ignored(-1)), "log_softmax", ignore_rows(-1),
    ),
    "probabilities, class weights, smoothed": Case(
        losses.CrossEntropyLoss(label_smoothing=0.2), entropy(label_smoothing=0.2), class_weighted(shares)
    ),
    "one-hot, ignoring": Case(
        losses.CategoricalCrossEntropyLoss(ignore_index=2),
        lambda p, t: F.cross_entropy(p, t.argmax(1), ignore_index=2),
        lambda rng, rows: [np.eye(CLASSES)[some_ignored(2)(rng, rows)[0]]],
        emptied=lambda targets: [np.where((np.arange(len(targets[0])) // 4 == 1)[:, None], [0.0, 0, 1], targets[0])],
    ),
    "multi margin, class weights": Case(
        losses.MultiMarginLoss(), lambda p, t, w: F.multi_margin_loss(p, t, weight=w), class_weighted(labels)
    ),
    "multilabel soft margin, class weights": Case(
        losses.MultiLabelSoftMarginLoss(), lambda p, t, w: F.multilabel_soft_margin_loss(p, t, w),
        class_weighted(shares),
    ),
}  # fmt: skip


def test_every_loss_is_here() -> None:
    every = {v for v in vars(losses).values() if isinstance(v, type) and issubclass(v, Loss)}
    assert every - {Loss, losses.FunctionLoss} == {type(case.loss) for case in CASES.values()} - {PerRow}


# ---- the comparison --------------------------------------------------------------------------------------------------


def made(case: Case, optimizer: Any, target: str, targets: Arrays) -> Trainer:
    shared = case.loss.shared_targets
    infos = [
        TensorStructInfo(t.shape if t is CLASS_WEIGHTS and shared else (SIZE, *t.shape[1:]), t.dtype.name)
        for t in targets
    ]
    module = model(SIZE, case.loss.num_backbone_outputs, case.activation)
    return make_trainer(module, case.loss, optimizer, target=target, targets=infos)


def big_batch(case: Case, x: np.ndarray, params: Arrays, targets: Arrays) -> tuple[float, Arrays]:
    """PyTorch's loss of all rows, and the parameters after one step."""
    weights = [torch.tensor(p, requires_grad=True) for p in params]
    values = _last([torch.tensor(x) @ w for w in weights], ACTIVATIONS[case.activation][1])
    loss = case.torch(*values, *(torch.tensor(t) for t in targets))
    loss.backward()
    return loss.item(), [(w - RATE * w.grad).detach().numpy() for w in weights]


def data_of(case: Case, batches: str) -> tuple[np.ndarray, Arrays]:
    rng, rows = np.random.default_rng(3), BATCHES[batches]
    x, targets = rng.standard_normal((rows, *rows_of(case.activation))), case.targets(rng, rows)
    return x, targets if batches != "empty" else case.emptied(targets)  # type: ignore[misc]


def check(case: Case, batches: str, target: str) -> None:
    x, targets = data_of(case, batches)
    trainer = made(case, Accumulate(SGD(RATE), 3), target, targets)
    params = [value.numpy().copy() for value in trainer.params.values()]
    loss, expected = big_batch(case, x, params, targets)
    per_row = len(x) if case.loss.reduction == "sum" else 1  # of sums, the mean over the rows is told
    for validation in (None, (x, targets)):
        assert trainer.evaluate(x, targets).loss * per_row == pytest.approx(loss, rel=1e-12)
        record = trainer.fit(x, targets, shuffle=False, verbose=0, validation=validation).epochs[0]
        assert record.loss * per_row == pytest.approx(loss, rel=1e-12)
        for value, wanted in zip(trainer.params.values(), expected, strict=True):
            np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-10, atol=1e-12)
        if validation is None:
            params = [value.numpy().copy() for value in trainer.params.values()]
            loss, expected = big_batch(case, x, params, targets)
    assert record.validation_loss == trainer.evaluate(x, targets).loss


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of PyTorch's kl_div
@pytest.mark.parametrize(
    ("name", "batches"), [(n, b) for n, case in CASES.items() for b in BATCHES if b != "empty" or case.emptied]
)
def test_batches_are_one_big_batch(name: str, batches: str) -> None:
    check(CASES[name], batches, "debug")


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("cross entropy", "mse, w", "kl of", "ctc, w"))])
def test_compiled_batches_are_one_big_batch(name: str) -> None:
    check(CASES[name], "unequal" if CASES[name].emptied is None else "empty", "llvm")
