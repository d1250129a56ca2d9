"""Weights of rows and of classes: the loss is Σ w·l / Σ w·d, whatever the batches; PyTorch's where it is installed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import SetupTrainer, Trainer, loss, make_trainer
from pullback.relax.training.optimizer import SGD, Accumulate, Adam
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of

X, Y = classes(30)
RNG = np.random.default_rng(5)
W = RNG.random(30)


def weighted(trainer: Trainer, x: Any, y: Any, w: Any, **options: Any) -> float:
    return trainer.evaluate(x, y, sample_weight=w, **options).loss


def test_plain_programs_stay_as_they_are() -> None:
    """Nothing is compiled for weights that nobody gives, and a weight of 1 changes nothing but rounding."""
    plain, ones = trainer_of("llvm"), trainer_of("llvm")
    plain.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    assert plain._weighted is None
    ones.fit(X, Y, epochs=2, shuffle=False, sample_weight=np.ones(30), verbose=0)
    for a, b in zip(params(plain), params(ones), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert weighted(ones, X, Y, np.ones(30)) == pytest.approx(ones.evaluate(X, Y).loss, rel=1e-6)


def test_integer_weights_are_repeated_rows() -> None:
    trainer = trainer_of()
    times = RNG.integers(0, 4, 30)
    expected = trainer.evaluate(np.repeat(X, times, 0), np.repeat(Y, times)).loss
    for size in (7, 8, 30):
        assert weighted(trainer, X, Y, times, batch_size=size) == pytest.approx(expected, rel=1e-5)


def test_rows_of_no_weight_train_as_if_they_were_not_there() -> None:
    """A batch of no weight at all has a gradient of 0, and counts for nothing in the epoch's loss."""
    trainer, expected = trainer_of("llvm"), trainer_of("llvm")
    w = np.r_[np.ones(8), np.zeros(8), np.ones(8)]
    found = trainer.fit(X[:24], Y[:24], sample_weight=w, shuffle=False, verbose=0)
    first = expected.update(X[:8], Y[:8]).item()
    expected.update(X[16:24], Y[16:24])
    for a, b in zip(params(trainer), params(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert np.isfinite(found["loss"][0]) and first > 0
    with pytest.warns(RuntimeWarning, match="no row of epoch 2 counts"):
        trainer.fit(X, Y, sample_weight=np.zeros(30), verbose=0)
    for a, b in zip(params(trainer), params(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_batches_bring_their_weights() -> None:
    def batches(with_names: bool) -> Any:
        for k in range(0, 30, 8):
            x, y, w = X[k : k + 8], Y[k : k + 8], W[k : k + 8]
            yield {"x": x, "targets": y, "sample_weight": w} if with_names else (x, y, w)

    expected = trainer_of("llvm", optimizer=Adam(0.01))
    history = expected.fit(X, Y, epochs=2, shuffle=False, sample_weight=W, validation=(X, Y, W), verbose=0)
    for with_names in (False, True):
        trainer = trainer_of("llvm", optimizer=Adam(0.01))
        given = lambda with_names=with_names: batches(with_names)  # noqa: E731
        found = trainer.fit(given, epochs=2, validation=given, verbose=0)
        assert_same(params(trainer), params(expected))
        assert found["loss"] == history["loss"] and found["val_loss"] == history["val_loss"]
    rows = list(zip(X, Y, W, strict=True))
    trainer = trainer_of("llvm", optimizer=Adam(0.01))
    trainer.fit(rows, epochs=2, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


def test_accumulated_batches_weigh_as_their_rows_do() -> None:
    """Four batches of different weight give the step of all of them at once."""
    trainer = trainer_of("llvm", optimizer=Accumulate(SGD(0.1), 4))
    whole = trainer_of("llvm", optimizer=SGD(0.1), model=mlp(32))
    whole.load_params(trainer.params)
    x, y = classes(32)
    w = np.random.default_rng(1).random(32) * np.repeat([0.0, 1.0, 5.0, 0.1], 8)
    trainer.fit(x, y, sample_weight=w, shuffle=False, verbose=0)
    whole.fit(x, y, sample_weight=w, shuffle=False, verbose=0)
    for a, b in zip(params(trainer), params(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_sums() -> None:
    """Σ w·l, and the mean of an epoch is over its rows, as without weights."""
    total, mean = trainer_of(loss=loss.CrossEntropyLoss("sum")), trainer_of()
    assert weighted(total, X, Y, W) == pytest.approx(weighted(mean, X, Y, W) * W.sum() / 30, rel=1e-5)
    assert weighted(total, X, Y, 2 * W) == pytest.approx(2 * weighted(total, X, Y, W), rel=1e-6)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision: str) -> None:
    trainer, single = trainer_of("llvm", precision=precision), trainer_of("llvm")
    found = trainer.fit(X, Y, sample_weight=W, shuffle=False, verbose=0)["loss"]
    expected = single.fit(X, Y, sample_weight=W, shuffle=False, verbose=0)["loss"]
    np.testing.assert_allclose(found, expected, rtol=2e-2)


def test_models_that_draw_and_keep_states() -> None:
    """Random numbers and states go on from steps without weights to steps with them."""
    from tests.relax.training.models import with_state

    trainer = make_trainer(with_state(), loss.MSELoss(), SGD(0.1), target="debug")
    x, y = RNG.standard_normal((10, 3)).astype(np.float32), np.zeros((10, 2), np.float32)
    trainer.fit(x, y, verbose=0)
    trainer.fit(x, y, sample_weight=np.ones(10), verbose=0)
    assert trainer.states["calls"].item() == 6 and trainer.steps == 6


# ---- class_weight and validation_split -------------------------------------------------------------------------------


def test_class_weights_are_weights_of_rows() -> None:
    given = {0: 2.0, np.int64(3): 0.5}
    table = np.array([2, 1, 1, 0.5, 1])
    by_class, by_row = trainer_of("llvm"), trainer_of("llvm")
    by_class.fit(X, Y, epochs=2, shuffle=False, class_weight=given, validation=(X, Y), verbose=0)
    history = by_row.fit(X, Y, epochs=2, shuffle=False, sample_weight=table[Y], validation=(X, Y), verbose=0)
    assert_same(params(by_class), params(by_row))
    assert history["val_loss"][-1] == by_row.evaluate(X, Y).loss, "validation rows weigh 1"
    batched, both = trainer_of("llvm"), trainer_of("llvm")
    batched.fit([(X[k : k + 8], Y[k : k + 8]) for k in range(0, 30, 8)], epochs=2, class_weight=given, verbose=0)
    assert_same(params(batched), params(by_row))
    both.fit(X, Y, sample_weight=W, class_weight=given, shuffle=False, verbose=0)
    expected = trainer_of("llvm")
    expected.fit(X, Y, sample_weight=W * table[Y], shuffle=False, verbose=0)
    assert_same(params(both), params(expected))


def test_balanced_is_scikit_learns() -> None:
    """rows / (classes that occur · rows of the class); ignored targets are not counted."""
    from pullback.relax.training.weights import class_weights

    trainer = trainer_of(loss=loss.CrossEntropyLoss(ignore_index=-1))
    labels = np.array([0, 0, 0, 1, 2, 2, -1])
    found = class_weights("balanced", labels, trainer._interface, None)
    np.testing.assert_allclose(found, [2 / 3, 2 / 3, 2 / 3, 2, 1, 1, 1])
    one_hot = trainer_of(loss=loss.CrossEntropyLoss(), targets="one-hot")
    np.testing.assert_allclose(class_weights("balanced", np.eye(5)[labels[:6]], one_hot._interface, None), found[:6])
    binary = trainer_of(loss=loss.BCEWithLogitsLoss(), model=mlp(8, (20, 1)))
    y = np.array([[0.0], [1.0], [1.0], [1.0]])
    np.testing.assert_allclose(class_weights("balanced", y, binary._interface, None), [2, 2 / 3, 2 / 3, 2 / 3])
    np.testing.assert_allclose(class_weights({1: 3.0}, y, binary._interface, None), [1, 3, 3, 3])


def test_the_last_rows_validate() -> None:
    """floor(rows · (1 - split)) rows are trained on, as in Keras, before any shuffling."""
    split, apart = trainer_of("llvm"), trainer_of("llvm")
    found = split.fit(X, Y, epochs=2, seed=1, validation_split=0.3, sample_weight=W, class_weight="balanced", verbose=0)
    balance = 21 / (len(np.unique(Y[:21])) * np.bincount(Y[:21], minlength=5)[Y[:21]])
    expected = apart.fit(
        X[:21], Y[:21], epochs=2, seed=1, sample_weight=W[:21] * balance, validation=(X[21:], Y[21:], W[21:]), verbose=0
    )
    assert_same(params(split), params(apart))
    assert found["val_loss"] == expected["val_loss"]


# ---- what is refused -------------------------------------------------------------------------------------------------


def nan_at(place: int, value: float = np.nan) -> np.ndarray:
    return np.where(np.arange(30) == place, value, W)


REFUSED: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("length", lambda t: t.fit(X, Y, sample_weight=W[:9]), ArgumentError, r"for each row, \(30,\), got .*\(9,\)"),
    ("column", lambda t: t.fit(X, Y, sample_weight=W[:, None]), ArgumentError, r"shape \(30, 1\)\n.*weights.ravel\(\)"),
    ("negative", lambda t: t.fit(X, Y, sample_weight=nan_at(4, -1.0)), ArgumentError, "got -1.0 for row 4"),
    ("nan", lambda t: t.evaluate(X, Y, sample_weight=nan_at(7)), ArgumentError, "finite .*, got nan for row 7"),
    ("infinite", lambda t: t.fit(X, Y, sample_weight=nan_at(7, np.inf)), ArgumentError, "got inf for row 7"),
    ("text", lambda t: t.fit(X, Y, sample_weight=["a"] * 30), ArgumentError, "weights must be numbers, got list"),
    ("validation", lambda t: t.fit(X, Y, validation=(X, Y, W[:3])), ArgumentError, "one weight for each row"),
    ("class", lambda t: t.fit(X, Y, class_weight={5: 1.0}), ArgumentError, "the class 5, but classes are from 0 to 4"),
    ("class name", lambda t: t.fit(X, Y, class_weight={"a": 1.0}), ArgumentError, "must be classes, .*, got 'a'"),
    ("class weight", lambda t: t.fit(X, Y, class_weight={1: -1.0}), ArgumentError, "got -1.0 for class 1"),
    ("no dict", lambda t: t.fit(X, Y, class_weight=[1, 2]), ArgumentError, 'must be a dict or "balanced", got'),
    ("word", lambda t: t.fit(X, Y, class_weight="even"), ArgumentError, 'must be a dict or "balanced", got \'even\''),
    ("split", lambda t: t.fit(X, Y, validation_split=1), ArgumentError, "a fraction from 0 to below 1, got 1"),
    ("small split", lambda t: t.fit(X[:2], Y[:2], validation_split=0.6), ArgumentError, "leaves 0 rows to train on"),
    ("two", lambda t: t.fit(X, Y, validation_split=0.1, validation=(X, Y)), ArgumentError, "there are both validation"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_bad_weights_change_nothing(call: Any, error: type[UserError], message: str) -> None:
    trainer = trainer_of()
    before, generator = params(trainer), trainer._generator.bit_generator.state
    with pytest.raises(error, match=message):
        call(trainer)
    assert_same(before, params(trainer))
    assert trainer.steps == 0 and trainer._generator.bit_generator.state == generator


class OwnLoss(loss.Loss):
    """Reduces by itself."""

    def __init__(self) -> None:
        super().__init__("own", 1)

    def expression(self, predictions: Var, targets: Var) -> Any:  # type: ignore[override]
        return op.mean(op.square(predictions - targets))


class RowLoss(OwnLoss):
    """Leaves the reduction to the base class."""

    def expression(self, predictions: Var, targets: Var) -> Any:  # type: ignore[override]
        return self._with_reduction(op.mean(op.square(predictions - targets), 1))


class WholeLoss(OwnLoss):
    def __call__(self, *args: Any) -> Any:
        return loss.MSELoss()(*args)


def test_losses_of_ones_own() -> None:
    y = RNG.standard_normal((30, 5)).astype(np.float32)
    trainer = trainer_of(loss=RowLoss())
    assert weighted(trainer, X, y, W) == pytest.approx(weighted(trainer_of(loss=loss.MSELoss()), X, y, W), rel=1e-5)
    for own, message in ((OwnLoss(), "has no loss for each of them"), (WholeLoss(), "makes its loss function itself")):
        trainer = trainer_of(loss=own)
        with pytest.raises(UserError, match=message):
            trainer.fit(X, y, sample_weight=W, verbose=0)
        trainer.fit(X, y, verbose=0)


def test_trainers_that_do_not_know_their_loss() -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = SetupTrainer(loss.CrossEntropyLoss(), SGD(0.05), infos)(mlp())
    finished = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu()))
    with pytest.raises(UserError, match="does not know its loss"):
        finished.evaluate(X, Y, sample_weight=W)
    trainer = trainer_of()
    for copied in (copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))):
        with pytest.raises(UserError, match="a copy knows it where weights were used"):
            copied.fit(X, Y, sample_weight=W, verbose=0)
    expected = weighted(trainer, X, Y, W)
    for copied in (copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))):
        assert weighted(copied, X, Y, W) == expected
        copied.fit(X, Y, sample_weight=W, verbose=0)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def affine(shape: tuple[Any, ...], outputs: int, gaussian: bool = False) -> Any:
    """x · w along the second axis, which is replaced by ``outputs``; with a second output, x's squares."""
    x, w = Var("x", TensorStructInfo(shape)), Var("w", TensorStructInfo((shape[1], outputs)))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            moved = x if len(shape) == 2 else builder.emit(op.permute_dims(x, (0, *range(2, len(shape)), 1)))
            out = builder.emit(op.matmul(moved, w))
            out = (
                out
                if len(shape) == 2
                else builder.emit(op.permute_dims(out, (0, len(shape) - 1, *range(1, len(shape) - 1))))
            )
            result = builder.emit_output(Tuple((out, op.square(out) + 0.5)) if gaussian else out)
        builder.emit_func_output(result)
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


LOGITS, TOKENS = RNG.standard_normal((20, 6)).astype("float32"), RNG.standard_normal((20, 6, 3)).astype("float32")
CLASSES, MANY = RNG.integers(0, 4, 20), RNG.integers(0, 4, (20, 3))
FLOATS = RNG.standard_normal((20, 4)).astype("float32")
CLASS_WEIGHTS = np.array([1, 0.2, 3, 0.7], "float32")
ROWS = RNG.random(20) * (RNG.random(20) < 0.8)


def rows_mean(values: Any, counts: Any, w: Any) -> Any:
    """Σ w·l / Σ w·d, terms of a row in one column."""
    w = w.reshape(-1, *(1 for _ in values.shape[1:]))
    return (values * w).sum() / (counts * w).sum()


def cross_entropy_counts(torch: Any, targets: Any, ignored: int, weights: Any = None) -> Any:
    kept = (targets != ignored).double()
    return kept if weights is None else kept * weights.double()[targets.clamp(min=0)]


def case(name: str) -> tuple[Any, Any, Any, Callable[[Any, Any, Any], Any]]:
    """Ours, data, and PyTorch's unreduced loss with what each term counts."""
    import torch
    from torch.nn import functional as F

    t = torch.from_numpy
    ignoring = np.where(RNG.random(20) < 0.3, 2, CLASSES)
    if name == "cross entropy":
        return (
            loss.CrossEntropyLoss(),
            LOGITS,
            CLASSES,
            lambda p, y, w: rows_mean(F.cross_entropy(p, y, reduction="none"), torch.ones(20), w),
        )
    if name == "ignored and class weights":
        cw = t(CLASS_WEIGHTS).double()
        return (
            loss.CrossEntropyLoss(ignore_index=2),
            LOGITS,
            [ignoring, CLASS_WEIGHTS],
            lambda p, y, w: rows_mean(
                F.cross_entropy(p, y[0], cw, ignore_index=2, reduction="none"),
                cross_entropy_counts(torch, y[0], 2, cw),
                w,
            ),
        )
    if name == "smoothed":
        return (
            loss.CrossEntropyLoss(label_smoothing=0.2, ignore_index=2),
            LOGITS,
            ignoring,
            lambda p, y, w: rows_mean(
                F.cross_entropy(p, y, ignore_index=2, label_smoothing=0.2, reduction="none"),
                cross_entropy_counts(torch, y, 2),
                w,
            ),
        )
    if name == "tokens":
        return (
            loss.CrossEntropyLoss(ignore_index=1),
            TOKENS,
            MANY,
            lambda p, y, w: rows_mean(
                F.cross_entropy(p, y, ignore_index=1, reduction="none"), cross_entropy_counts(torch, y, 1), w
            ),
        )
    if name == "probabilities":
        q = np.abs(FLOATS) / np.abs(FLOATS).sum(1, keepdims=True)
        return (
            loss.CategoricalCrossEntropyLoss(),
            LOGITS,
            q,
            lambda p, y, w: rows_mean(F.cross_entropy(p, y, reduction="none"), torch.ones(20), w),
        )
    if name == "one-hot, ignored":
        return (
            loss.CategoricalCrossEntropyLoss(ignore_index=2),
            LOGITS,
            np.eye(4, dtype="float32")[ignoring],
            lambda p, y, w: rows_mean(
                F.cross_entropy(p, y.argmax(1), ignore_index=2, reduction="none"),
                cross_entropy_counts(torch, y.argmax(1), 2),
                w,
            ),
        )
    if name == "mse":
        return loss.MSELoss(), LOGITS, FLOATS, lambda p, y, w: rows_mean((p - y) ** 2, torch.ones(20, 4), w)
    if name == "bce":
        labels = (FLOATS > 0).astype("float32")
        return (
            loss.BCEWithLogitsLoss(pos_weight=CLASS_WEIGHTS),
            LOGITS,
            labels,
            lambda p, y, w: rows_mean(
                F.binary_cross_entropy_with_logits(p, y, pos_weight=t(CLASS_WEIGHTS).double(), reduction="none"),
                torch.ones(20, 4),
                w,
            ),
        )
    if name == "kl":
        q = (np.abs(FLOATS) / np.abs(FLOATS).sum(1, keepdims=True)).astype("float32")
        return (
            loss.KLDivLoss("batchmean"),
            LOGITS,
            q,
            lambda p, y, w: rows_mean(F.kl_div(p, y, reduction="none").sum(1), torch.ones(20), w),
        )
    assert name == "gaussian"
    return (
        loss.GaussianNLLLoss(),
        LOGITS,
        FLOATS,
        lambda p, y, w: rows_mean(F.gaussian_nll_loss(p, y, p**2 + 0.5, reduction="none"), torch.ones(20, 4), w),
    )


CASES = ["cross entropy", "ignored and class weights", "smoothed", "tokens", "probabilities", "one-hot, ignored", "mse",
         "bce", "kl", "gaussian"]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_losses_and_steps_are_pytorchs(name: str) -> None:
    """Two epochs of plain gradient descent, all rows in one batch; and the loss in batches of 6."""
    torch = pytest.importorskip("torch")
    ours, x, y, theirs = case(name)
    several = isinstance(y, list)
    model = affine(x.shape, 4, name == "gaussian")
    options = {"targets": [TensorStructInfo(a.shape, a.dtype.name) for a in y]} if several else {}
    trainer = make_trainer(model, ours, SGD(0.1), target="debug", seed=1, **options)
    w = torch.from_numpy(params(trainer)[0]).double().requires_grad_()
    given = torch.from_numpy(x).double()
    targets = [torch.from_numpy(a) for a in (y if several else [y])]
    targets = [a.double() if a.is_floating_point() else a for a in targets]
    rows = torch.from_numpy(ROWS)
    for _ in range(2):
        prediction = given @ w if x.ndim == 2 else torch.einsum("ncl,co->nol", given, w)
        value = theirs(prediction, targets if several else targets[0], rows)
        (gradient,) = torch.autograd.grad(value, w)
        assert weighted(trainer, x, y, ROWS, batch_size=6) == pytest.approx(value.item(), rel=2e-5)
        found = trainer.fit(x, y, sample_weight=ROWS, shuffle=False, verbose=0)
        assert found["loss"][0] == pytest.approx(value.item(), rel=2e-5)
        w = (w - 0.1 * gradient).detach().requires_grad_()
        np.testing.assert_allclose(params(trainer)[0], w.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_ctc_divides_by_lengths_first() -> None:
    torch = pytest.importorskip("torch")
    from pullback.relax.training.weights import Weighted

    scores = RNG.standard_normal((7, 3, 5)).astype("float32")
    labels, times, lengths = RNG.integers(1, 5, (3, 4)), np.array([7, 6, 7]), np.array([2, 3, 1])
    rows = np.array([0.5, 2.0, 0.0], "float32")
    given = [scores - np.log(np.exp(scores).sum(2, keepdims=True)), labels, times, lengths]
    wrapped = Weighted(loss.CTCLoss())
    infos = [TensorStructInfo(a.shape, a.dtype.name) for a in given]
    function = wrapped(*infos, wrapped.weight_info(*infos))
    module = pullback.ir.IRModule({"main": function})
    found = pullback.compile(module, "debug").function("main")(*given, rows).item()
    each = torch.nn.functional.ctc_loss(
        torch.from_numpy(given[0]), *(torch.from_numpy(a) for a in given[1:]), reduction="none"
    ) / torch.from_numpy(lengths)
    assert found == pytest.approx((each.numpy() * rows).sum() / rows.sum(), rel=1e-5)
