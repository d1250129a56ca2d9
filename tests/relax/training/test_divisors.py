"""What a loss is divided by, as its formula says it; batches of which nothing counts; what is around accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import te
from pullback.ir import IRModule, ShapeError
from pullback.relax import BlockBuilder, Expr, TensorStructInfo, Var, const, op
from pullback.relax.convention import DIVISOR_VALUE, LOSS, STEP, Convention
from pullback.relax.interpreter import evaluate
from pullback.relax.op import register_op
from pullback.relax.training import Loss, SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import (
    EMA,
    SGD,
    Accumulate,
    Adam,
    ClipByGlobalNorm,
    ClipByValue,
    DynamicLossScale,
    MomentumSGD,
    Optimizer,
)
from pullback.relax.transform.loss_divisor import GUARDED, loss_divisor
from pullback.script import from_source
from pullback.tir import Var as SizeVar
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of

X, Y = classes(10, dtype="float64")
IGNORED = -100
rng = np.random.default_rng(4)
WEIGHTS = rng.uniform(0.5, 2.0, 10)
NUMBERS = rng.standard_normal((10, 5))


def close(found: Any, expected: Any, rtol: float = 1e-10, atol: float = 1e-13) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


# ---- what a formula says ---------------------------------------------------------------------------------------------


class Formula(Loss):
    """The loss that a function of (predictions, targets, weights) gives."""

    def __init__(self, formula: Callable[..., Expr], reduction: str = "mean") -> None:
        super().__init__("formula", 1, reduction)
        self.formula = formula

    def expression(self, predictions: Var, targets: Var, weights: Var) -> Expr:  # type: ignore[override]
        return self.formula(predictions, targets, weights)


def trainer_module(formula: Callable[..., Expr], dtype: str = "float64", reduction: str = "mean") -> IRModule:
    infos = [TensorStructInfo(s, dtype) for s in ((8, 5), (8, 5), (8,))]
    setup = SetupTrainer(Formula(formula, reduction), SGD(0.1), infos, legalize=False)
    return setup(mlp(8, (3, 5), dtype))


def divisor_of(module: IRModule, weights: np.ndarray) -> tuple[np.ndarray, bool]:
    """The divisor, and whether gradients are known to be 0 where it is."""
    function = loss_divisor(module, Convention.of(module)[LOSS])
    dtype = module["backbone"].params[0].struct_info.dtype
    shapes = [p.struct_info.shape for p in function.params[:-1]]
    values = [np.random.default_rng(1).uniform(0.1, 1, s).astype(dtype) for s in shapes]
    found = evaluate(IRModule({"f": function}), "f", [*values, weights.astype(dtype)])
    return found, function.attrs[GUARDED]


def square(p: Any, t: Any) -> Any:
    return op.square(op.subtract(p, t))


def rows(p: Any, t: Any) -> Any:
    return op.mean(square(p, t), 1)


def weighted(p: Any, t: Any, w: Any) -> Any:
    return op.multiply(rows(p, t), w)


W = np.array([1.0, 0, 2, 3, 0.5, 0, 1, 1])
FORMULAS: dict[str, tuple[Callable[..., Any], float]] = {
    "a mean": (lambda p, t, w: op.mean(square(p, t)), 40),
    "a mean of rows": (lambda p, t, w: op.mean(rows(p, t)), 8),
    "a mean of sums": (lambda p, t, w: op.mean(op.sum(square(p, t), 1)), 8),
    "a mean of weighted rows": (lambda p, t, w: op.mean(weighted(p, t, w)), 8),
    "a mean of a mean": (lambda p, t, w: op.mean(op.mean(square(p, t))), 40),
    "an op": (lambda p, t, w: op.nn.l1_loss(p, t), 40),
    "an op of rows": (lambda p, t, w: op.nn.kl_div(p, t, "batchmean"), 8),
    "a scaled, negative mean": (lambda p, t, w: op.negative(op.multiply(op.mean(rows(p, t)), 0.3)), 8),
    "a mean divided by a number": (lambda p, t, w: op.divide(op.mean(rows(p, t)), 2.0), 8),
    "cast": (lambda p, t, w: op.astype(op.mean(op.astype(rows(p, t), "float32")), "float64"), 8),
    "a quotient": (lambda p, t, w: op.sum(weighted(p, t, w)) / op.sum(w), W.sum()),
    "a quotient of means": (lambda p, t, w: op.mean(weighted(p, t, w)) / op.mean(w), W.sum()),
    "a product with an inverse": (lambda p, t, w: op.multiply(op.sum(weighted(p, t, w)), 1.0 / op.sum(w)), W.sum()),
    "a product of vectors": (lambda p, t, w: op.vecdot(rows(p, t), w) / op.sum(w), W.sum()),
    "a quotient that is never 0 / 0": (
        lambda p, t, w: op.sum(weighted(p, t, w)) / op.maximum(op.sum(w), 1.0), W.sum()),
    "a divisor with a choice": (
        lambda p, t, w: op.sum(weighted(p, t, w)) / op.where(op.sum(w) > 0.0, op.sum(w), const(1.0, "float64")),
        W.sum(),
    ),
    "normalised weights": (lambda p, t, w: op.sum(op.multiply(rows(p, t), w / op.sum(w))), W.sum()),
    "the mean of normalised weights": (lambda p, t, w: op.mean(weighted(p, t, w) / op.mean(w)), W.sum()),
    "a divisor without a gradient": (
        lambda p, t, w: op.sum(weighted(p, t, w)) / op.stop_gradient(op.sum(w)), W.sum()),
    "two of a kind": (
        lambda p, t, w: op.sum(weighted(p, t, w)) / op.sum(w) + op.sum(op.abs(weighted(p, t, w))) / op.sum(w), W.sum()),
    "two means": (lambda p, t, w: op.mean(square(p, t)) + op.mean(rows(p, t)), 40),
    "said": (lambda p, t, w: op.nn.with_divisor(op.sqrt(op.mean(weighted(p, t, w))), op.sum(op.square(w))),
             (W * W).sum()),
    "overlap": (lambda p, t, w: 1.0 - op.sum(weighted(p, t, w)) / op.sum(w), W.sum()),
    "the root of a mean": (lambda p, t, w: op.sqrt(op.mean(square(p, t))), 8),
    "two of different kinds": (lambda p, t, w: op.sum(weighted(p, t, w)) / op.sum(w) + op.mean(rows(p, t)), 8),
    "a sum divided by a number": (lambda p, t, w: op.divide(op.sum(square(p, t)), 8.0), 8),
    "a largest": (lambda p, t, w: op.max(square(p, t)), 8),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str) -> None:
    formula, expected = FORMULAS[name]
    found, _ = divisor_of(trainer_module(formula), W)
    assert found.dtype == np.float64
    close(found, expected)


def repeated(change: Callable[[Any], Any], times: int, value: Any) -> Any:
    for _ in range(times):
        value = change(value)
    return value


def test_long_formulas() -> None:
    """Deep ones, and ones that would be very long if what is used twice were written out."""
    for formula, expected in (
        (lambda p, t, w: repeated(op.negative, 500, op.mean(rows(p, t))), 8),
        (lambda p, t, w: repeated(lambda x: op.mean(square(p, t)) + x, 100, op.mean(rows(p, t))), 40),
        (lambda p, t, w: op.mean(repeated(lambda x: op.multiply(x, x), 80, rows(p, t) / op.sum(w))), 8),
    ):
        close(divisor_of(trainer_module(formula), W)[0], expected)


def test_what_does_not_depend_on_the_batch_changes_nothing() -> None:
    """A penalty on the parameters, written into the model: its second output."""
    x, w = Var("x", TensorStructInfo((8, 3), "float64")), Var("w", TensorStructInfo((3, 5), "float64"))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            outs = [builder.emit_output(e) for e in (op.matmul(x, w), op.sum(op.square(w)))]
        builder.emit_func_output(tuple(outs))

    class Penalised(Loss):
        def expression(self, predictions: Var, penalty: Var, targets: Var, weights: Var) -> Expr:  # type: ignore[override]
            return op.sum(weighted(predictions, targets, weights)) / op.sum(weights) + 0.1 * penalty

    infos = [TensorStructInfo(s, "float64") for s in ((8, 5), (), (8, 5), (8,))]
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    module = SetupTrainer(Penalised("penalised", 2), SGD(0.1), infos, legalize=False)(model)
    close(divisor_of(module, W)[0], W.sum())


def test_sums_add_up_whatever_the_formula() -> None:
    for formula, _ in (FORMULAS["a mean"], FORMULAS["a quotient"]):
        assert (DIVISOR_VALUE, 0) in Convention.of(trainer_module(formula))[STEP].returns
        assert (DIVISOR_VALUE, 0) not in Convention.of(trainer_module(formula, reduction="sum"))[STEP].returns


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_it_is_float32_at_least(dtype: str) -> None:
    """Weights whose sum in half precision is infinite, or rounded to three digits."""
    formula = FORMULAS["a quotient"][0]
    found, guarded = divisor_of(trainer_module(formula, dtype), np.full(8, 10001.0))
    rounded = np.full(8, 10001.0).astype(pullback.runtime.dtype.numpy_dtype(dtype)).astype(np.float64).sum()
    assert found.dtype == np.float32 and not guarded
    close(found, rounded, rtol=1e-6)
    assert divisor_of(trainer_module(FORMULAS["a mean"][0], dtype), W)[0] == 40


def test_an_own_op_says_nothing() -> None:
    """It is loops, so rows count."""

    @register_op("own.sum_of_squares")
    def mean_square(p: Any, t: Any) -> Any:
        axes = [te.reduce_axis(size) for size in p.shape]
        i = tuple(a.var for a in axes)
        return te.compute((), lambda: te.sum((p[i] - t[i]) * (p[i] - t[i]), axes))

    assert divisor_of(trainer_module(lambda p, t, w: mean_square(p, t)), W)[0] == 8


def test_class_losses_see_to_it_that_nothing_counted_gives_no_gradient() -> None:
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    for loss in (CrossEntropyLoss(), CrossEntropyLoss(label_smoothing=0.1)):
        module = SetupTrainer(loss, SGD(0.1), infos, legalize=False)(mlp())
        assert loss_divisor(module, Convention.of(module)[LOSS]).attrs[GUARDED]


def test_one_quotient_among_class_losses() -> None:
    """It divides 0 by 0 where all targets are ignored: the gradient is 0 all the same."""

    class Both(CrossEntropyLoss):
        def expression(self, predictions: Var, targets: Var) -> Expr:  # type: ignore[override]
            counts = op.astype(op.not_equal(targets, const(-100, "int64")), "float32")
            each = op.sum(op.multiply(op.sum(op.square(predictions), 1), counts)) / op.sum(counts)
            return each + op.nn.nll_loss(op.nn.log_softmax(predictions), targets)

    trainer = trainer_of("llvm", Both(), Accumulate(SGD(0.1), 4))
    whole = trainer_of("llvm", Both(), SGD(0.1), mlp(30))
    x, y = classes(30)
    y = np.where(np.arange(30) // 8 == 1, IGNORED, y)
    assert not loss_divisor(trainer.mod, Convention.of(trainer.mod)[LOSS]).attrs[GUARDED]
    for t in (trainer, whole):
        t.fit(x, y, shuffle=False, verbose=0)
    for a, b in zip(params(trainer), params(whole), strict=True):
        close(a, b, rtol=1e-5, atol=1e-6)


def test_with_divisor_takes_scalars() -> None:
    with pytest.raises(ShapeError, match=r"nn.with_divisor: divisor must be a scalar, got shape \(8,\)"):
        trainer_module(lambda p, t, w: op.nn.with_divisor(op.mean(p), w))


# ---- batches of which nothing counts ---------------------------------------------------------------------------------


def ignoring(*numbers: int) -> np.ndarray:
    labels = Y.copy()
    labels[list(numbers)] = IGNORED
    return labels


def weighted_trainer(optimizer: Optimizer, target: str = "llvm", size: int = 4, **options: Any) -> Trainer:
    infos = [TensorStructInfo((size, 5), "float64"), TensorStructInfo((size,), "float64")]
    loss = Formula(FORMULAS["a quotient"][0])
    return trainer_of(target, loss, optimizer, mlp(size, (20, 5), "float64"), targets=infos, **options)


def small(optimizer: Any = None, target: str = "llvm", size: Any = 4, **options: Any) -> Trainer:
    return trainer_of(target, CrossEntropyLoss(), optimizer, mlp(size, dtype="float64"), **options)


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("ignored", [(0, 1, 2, 8), (0, 1, 2, 3), (8, 9), (), (*range(8),)])
def test_ignored_rows(target: str, ignored: tuple[int, ...]) -> None:
    """Loss and accuracy are those of the rows that count, trained and evaluated."""
    kept = [i for i in range(10) if i not in ignored]
    trainer, alone = small(SGD(0.0), target), small(size=len(kept), target=target)
    found, expected = trainer.evaluate(X, ignoring(*ignored)), alone.evaluate(X[kept], Y[kept])
    close([found.loss, found.accuracy], [expected.loss, expected.accuracy])
    history = trainer.fit(X, ignoring(*ignored), verbose=0, validation=(X, ignoring(*ignored)))
    close([history.epochs[0].loss, history.epochs[0].validation_loss], expected.loss)
    assert history.epochs[0].validation_accuracy == found.accuracy


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_nothing_counts_at_all(target: str) -> None:
    """NaN, as PyTorch's loss of one big batch is; nothing is learnt."""
    trainer = small(target=target)
    before = params(trainer)
    found = trainer.evaluate(X, np.full(10, IGNORED))
    assert np.isnan(found.loss) and found.accuracy is None
    with pytest.warns(RuntimeWarning, match="no row of epoch 1 counts, so that its loss is nan: all targets are ign"):
        history = trainer.fit(X, np.full(10, IGNORED), verbose=0)
    assert np.isnan(history.epochs[0].loss)
    assert_same(params(trainer), before)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_a_step_of_nothing_learns_nothing(target: str) -> None:
    """Though the formula divides 0 by 0, in the value and in the gradient."""
    trainer = weighted_trainer(SGD(0.1), target)
    before, weights = params(trainer), np.concatenate([np.zeros(4), WEIGHTS[4:]])
    assert np.isnan(trainer.update(X[:4], [NUMBERS[:4], weights[:4]]).item())
    assert_same(params(trainer), before)
    record = trainer.fit(X, [NUMBERS, weights], shuffle=False, verbose=0).epochs[0]
    assert np.isfinite(record.loss) and all(np.isfinite(p).all() for p in params(trainer))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_class_without_weight(smoothing: float) -> None:
    """A batch of that class only: its weights add up to 0, though no row is ignored."""
    infos = [TensorStructInfo((4,), "int64"), TensorStructInfo((5,), "float64")]
    loss, labels = CrossEntropyLoss(label_smoothing=smoothing), np.full(4, 3)
    trainer = trainer_of("llvm", loss, SGD(0.1), mlp(4, dtype="float64"), targets=infos)
    before = params(trainer)
    trainer.update(X[:4], [labels, np.array([1.0, 1, 1, 0, 1])])
    assert_same(params(trainer), before)


def test_detect_nan_passes_over_them() -> None:
    trainer = weighted_trainer(SGD(0.1))
    weights = np.concatenate([np.zeros(4), WEIGHTS[4:]])
    trainer.fit(X, [NUMBERS, weights], shuffle=False, verbose=0, detect_nan=True)
    assert trainer.steps == 3


def test_the_bar_shows_the_last_loss_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[float] = []
    monkeypatch.setattr("pullback.relax.training.epochs.SLICE_SECONDS", 0.0)
    monkeypatch.setattr(
        "pullback.relax.training.progress.Progress.advance", lambda self, rows, loss: shown.append(loss)
    )
    small().fit(X, ignoring(4, 5, 6, 7), shuffle=False)
    assert len(shown) == 3 and shown[0] == shown[1] and np.isfinite(shown).all()


def test_a_symbolic_batch() -> None:
    trainer, fixed = (small(Accumulate(SGD(0.1), 3), size=size) for size in (SizeVar("n", "int64"), 4))
    for t in (trainer, fixed):
        t.fit(X, ignoring(0, 9), batch_size=4, shuffle=False, verbose=0)
    for a, b in zip(params(trainer), params(fixed), strict=True):
        close(a, b)
    close(trainer.evaluate(X, ignoring(1)).loss, fixed.evaluate(X, ignoring(1)).loss)
    plain = trainer_of("llvm", MSELoss(), Accumulate(SGD(0.1), 3), mlp(SizeVar("n", "int64"), dtype="float64"))
    whole = trainer_of("llvm", MSELoss(), SGD(0.1), mlp(10, dtype="float64"))
    for t in (plain, whole):
        t.fit(X, NUMBERS, batch_size=10 if t is whole else 4, shuffle=False, verbose=0)
    for a, b in zip(params(plain), params(whole), strict=True):
        close(a, b)


@pytest.mark.parametrize("legalize", [False, True])
def test_a_module_read_from_text(legalize: bool) -> None:
    """The divisor follows from the functions, so it need not be written down."""
    infos = [TensorStructInfo((4, 5), "float64"), TensorStructInfo((4,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), Accumulate(SGD(0.1), 3), infos, legalize)(mlp(4, dtype="float64"))
    losses, kept = [], []
    for m in (module, from_source(module.script())):
        trainer = Trainer(m, pullback.VirtualMachine(pullback.compile(m, "debug"), pullback.cpu()))
        trainer.xavier_uniform_init_params(seed=1)
        losses.append(trainer.fit(X, ignoring(0, 1, 2), shuffle=False, verbose=0).epochs[0].loss)
        kept.append(params(trainer))
    whole = small(SGD(0.1), size=10)
    whole.xavier_uniform_init_params(seed=1)
    loss = whole.fit(X, ignoring(0, 1, 2), shuffle=False, verbose=0).epochs[0].loss
    assert losses[0] == losses[1] == pytest.approx(loss, rel=1e-12)
    assert_same(*kept)
    for a, b in zip(kept[0], params(whole), strict=True):
        close(a, b)


# ---- accumulation ----------------------------------------------------------------------------------------------------


def compare(small_batches: Trainer, whole: Trainer, targets: Any, epochs: int = 3, rtol: float = 1e-9) -> None:
    """So many windows of micro-batches are so many steps on all rows."""
    whole.load_params(small_batches.params)
    for trainer in (small_batches, whole):
        trainer.fit(X, targets, epochs=epochs, shuffle=False, verbose=0)
    for a, b in zip(params(small_batches), params(whole), strict=True):
        close(a, b, rtol=rtol, atol=1e-9)


OPTIMIZERS: dict[str, tuple[Callable[[], Optimizer], Callable[[], Optimizer]]] = {
    "adam": (lambda: Accumulate(Adam(0.01), 3), lambda: Adam(0.01)),
    "clipped": (
        lambda: Accumulate(ClipByGlobalNorm(MomentumSGD(0.1, 0.9), 0.05), 3),
        lambda: ClipByGlobalNorm(MomentumSGD(0.1, 0.9), 0.05),
    ),
    "averaged": (lambda: Accumulate(EMA(ClipByValue(SGD(0.1), 0.01), 0.5), 3),
                 lambda: EMA(ClipByValue(SGD(0.1), 0.01), 0.5)),
    "scaled inside": (lambda: Accumulate(DynamicLossScale(SGD(0.1), 2.0**10), 3), lambda: SGD(0.1)),
    "scaled outside": (lambda: DynamicLossScale(Accumulate(SGD(0.1), 3), 2.0**10), lambda: SGD(0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_wrapped_sees_one_big_batch(name: str) -> None:
    accumulated, plain = OPTIMIZERS[name]
    compare(small(accumulated()), small(plain(), size=10), ignoring(0, 1, 4, 5, 6, 7))
    weights = np.concatenate([WEIGHTS[:4], np.zeros(4), WEIGHTS[8:]])  # 0 / 0 in the second of three
    compare(weighted_trainer(accumulated()), weighted_trainer(plain(), size=10), [NUMBERS, weights])


def test_accumulation_of_accumulation() -> None:
    """Six micro-batches of two rows, in threes, in twos: the second three counts other rows."""
    trainer, whole = small(Accumulate(Accumulate(SGD(0.1), 2), 3), size=2), small(SGD(0.1), size=10)
    labels = ignoring(0, 1, 2, 3, 4)
    whole.load_params(trainer.params)
    whole.update(X, labels)
    for k in (0, 2, 4, 6, 8):
        trainer.update(X[k : k + 2], labels[k : k + 2])
    trainer.update(X[:2], np.full(2, IGNORED))
    for a, b in zip(params(trainer), params(whole), strict=True):
        close(a, b)


def test_a_window_of_nothing() -> None:
    """Its gradient is 0, and the next window begins anew."""
    trainer, before = small(Accumulate(SGD(0.1), 2)), params(small())
    for _ in range(2):
        trainer.update(X[:4], np.full(4, IGNORED))
    assert_same(params(trainer), before)
    whole = small(SGD(0.1), size=8)
    whole.update(X[:8], Y[:8])
    for k in (0, 4):
        trainer.update(X[k : k + 4], Y[k : k + 4])
    for a, b in zip(params(trainer), params(whole), strict=True):
        close(a, b)


def test_float16_with_its_loss_scale() -> None:
    """Small batches are one big one up to half precision's rounding; an empty one neither skips a step nor scales."""
    x, y = classes(40)
    y = np.where(np.arange(40) // 8 % 5 == 2, IGNORED, y)  # the third of five
    trainer = trainer_of("llvm", optimizer=Accumulate(SGD(0.05), 5), precision="float16")
    whole = trainer_of("llvm", optimizer=SGD(0.05), model=mlp(40), precision="float16")
    exact = trainer_of("llvm", optimizer=SGD(0.05), model=mlp(40))
    for t in (trainer, whole, exact):
        t.fit(x, y, epochs=4, shuffle=False, verbose=0)
        assert t is exact or t.loss_scale == 2.0**16
    names = trainer.mod.attrs["training"]["optimizer_states"]
    assert trainer.optimizer_states[names.index("num_skipped")].item() == 0
    for a, b, c in zip(params(trainer), params(whole), params(exact), strict=True):
        close(a, c, rtol=0, atol=2e-4)
        close(b, c, rtol=0, atol=2e-4)


def test_a_skipped_batch_weighs_nothing() -> None:
    """Gradients that are not finite are left out of the window, with their divisor: it gets the next batch instead."""
    x, y = classes(24, dtype="float32")
    trainer = trainer_of("llvm", optimizer=DynamicLossScale(Accumulate(SGD(0.05), 2), 2.0**15), precision="float16")
    whole = trainer_of("llvm", optimizer=SGD(0.05), model=mlp(16), precision="float16")
    labels = np.where(np.arange(24) % 8 < 3, IGNORED, y)
    trainer.update(x[:8], y[:8] * 0 + y[:8])
    trainer.update(np.where(x[8:16] > 0, np.float32(60000), x[8:16]), labels[8:16])  # overflows
    assert trainer.loss_scale == 2.0**14
    trainer.update(x[16:], labels[16:])
    whole.update(np.concatenate([x[:8], x[16:]]), np.concatenate([y[:8], labels[16:]]))
    for a, b in zip(params(trainer), params(whole), strict=True):
        close(a, b, rtol=0, atol=1e-4)


def test_half_precision_parameters_sum_in_float32() -> None:
    """What many counted elements add up to is beyond 65504, their mean is not."""
    infos = [TensorStructInfo((4, 5), "float16")]
    trainer = trainer_of("llvm", MSELoss(), Accumulate(SGD(0.01), 16), mlp(4, (20, 5), "float16"), targets=infos)
    assert {s.dtype for s in trainer.optimizer_states if s.shape == (20, 5)} == {"float32"}
    w, b = params(trainer)
    x, y = np.full((64, 20), 3, "float16"), np.full((64, 5), 200, "float16")
    step = 0.01 * 2 / 5 * (x[:1].astype("float64") @ w + b - y[:1])
    trainer.fit(x, y, verbose=0)
    close(params(trainer)[0], w - 3 * step, rtol=2e-3)


def test_the_optimizer_function_by_itself() -> None:
    """As long as nobody says otherwise, batches weigh alike; the state ``divisor`` says otherwise."""
    w = Var("w", TensorStructInfo((3,), "float64"))
    optimizer = Accumulate(SGD(1.0), 2).init(w)
    module = IRModule({"f": optimizer.get_function()})
    values, states = (np.zeros(3),), tuple(s.numpy() for s in optimizer.state or ())
    for divisor, gradient in ((1.0, 2.0), (1.0, 4.0), (3.0, 2.0), (1.0, 4.0)):
        states = (states[0], np.array(divisor), *states[2:])
        values, states = evaluate(module, "f", (values, (np.full(3, gradient),), states))
    close(values[0], np.full(3, -3.0 - (3 * 2.0 + 4.0) / 4))


def test_sums_add_up() -> None:
    trainer = trainer_of("llvm", CrossEntropyLoss("sum"), Accumulate(SGD(0.01), 3), mlp(4, dtype="float64"))
    whole = trainer_of("llvm", CrossEntropyLoss("sum"), SGD(0.01), mlp(10, dtype="float64"))
    compare(trainer, whole, ignoring(0, 1, 2, 3))
    assert "divisor" not in trainer.mod.attrs["training"]["optimizer_states"]
