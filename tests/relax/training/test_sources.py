"""What fit, evaluate, update and predict take: arrays of every kind, in one form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, ShapeError, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import make_trainer
from pullback.relax.training.loss import BCEWithLogitsLoss, MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.tir import Var as SizeVar
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of

X, Y = classes(30)


def two(rows: Any = 4) -> Any:
    """(a + b) · w and its square; two inputs, two targets for a loss of two outputs."""
    from pullback.relax.training.loss import Loss

    class Both(Loss):
        def __init__(self) -> None:
            super().__init__("both", 2)

        def expression(self, first: Var, second: Var, one: Var, other: Var) -> Any:  # type: ignore[override]
            return self._with_reduction(op.square(first - one) + op.square(second - other))

    a, b, w = (
        Var("a", TensorStructInfo((rows, 3))),
        Var("b", TensorStructInfo((rows, 3))),
        Var("w", TensorStructInfo((3,))),
    )
    builder = BlockBuilder()
    with builder.function("backbone", [a, b, w]):
        with builder.dataflow():
            out = builder.emit(op.multiply(op.add(a, b), w))
            both = builder.emit_output(Tuple((out, op.square(out))))
        builder.emit_func_output(both)
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    info = TensorStructInfo((rows, 3))
    trainer = make_trainer(model, Both(), SGD(0.1), target="debug", targets=[info, info])
    trainer.load_params([np.array([0.5, 1.0, -1.0], "float32")])
    return trainer


A, B = (np.random.default_rng(k).standard_normal((10, 3)).astype("float32") for k in (1, 2))


def test_several_inputs_and_targets_in_every_form() -> None:
    """A list, a tuple, a dict by name; for fit, evaluate, update and predict alike."""
    expected, forms = None, [([A, B], [B, A]), ((A, B), (B, A)), ({"b": B, "a": A}, {"one": B, "other": A})]
    for x, y in forms:
        trainer = two()
        trainer.fit(x, y, epochs=2, seed=1, verbose=0)
        found = [
            trainer.evaluate(x, y).loss, trainer.update(x, y).item(), *np.ravel(trainer.predict(x)[1]).tolist(),
            *params(trainer)[0].tolist(),
        ]  # fmt: skip
        expected = expected or found
        assert found == expected
    assert [r.shape for r in trainer.predict(A, B)] == [(10, 3)] * 2
    together = {"a": A, "b": B, "one": B, "other": A}
    other = two()
    other.fit(together, epochs=2, seed=1, verbose=0)
    other.update(*forms[0])
    assert_same(params(other), params(trainer))
    other.fit([together], verbose=0)
    other.fit(lambda: [((A, B), (B, A))], verbose=0)


def test_lists_series_frames_and_dlpack() -> None:
    pandas = pytest.importorskip("pandas")
    expected = trainer_of("llvm")
    expected.fit(X, Y, seed=1, verbose=0)
    frame = pandas.DataFrame(X, columns=[f"c{k}" for k in range(20)])
    forms: list[tuple[Any, Any]] = [
        (X.tolist(), Y.tolist()), (list(X), list(Y)), (frame, pandas.Series(Y)),
        (frame.astype("float64"), pandas.Series(Y, dtype="int8")), (pullback.tensor(X), pullback.tensor(Y)),
        (memoryview(X), tuple(Y.tolist())), (frame, pandas.Series(Y).astype("float64")),
    ]  # fmt: skip
    for x, y in forms:
        trainer = trainer_of("llvm")
        trainer.fit(x, y, seed=1, verbose=0)
        assert_same(params(trainer), params(expected))
        np.testing.assert_array_equal(trainer.predict(x), expected.predict(X))
        assert trainer.evaluate(x, y) == expected.evaluate(X, Y)


def test_frames_of_several_dtypes() -> None:
    """As get_dummies makes them: floats, integers and bools side by side."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X)
    frame[3], frame[4] = frame[3] > 0, (frame[4] * 10).astype("int16")
    mixed, plain = trainer_of(), trainer_of()
    mixed.fit(frame, Y, seed=1, verbose=0)
    plain.fit(frame.astype("float64").to_numpy(), Y, seed=1, verbose=0)
    assert_same(params(mixed), params(plain))
    frame["city"], frame["sold"] = "Paris", pandas.array([None, *Y[1:]], dtype="Int64")
    with pytest.raises(ArgumentError, match=r"^input x: the columns city, sold hold no plain numbers\n.*get_dummies"):
        mixed.fit(frame, Y)


# ---- predict ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [SizeVar("n", "int64"), 8])
def test_predict_in_batches(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes are compiled at the most, for any number of rows."""
    from pullback.driver import executable

    trainer = trainer_of("llvm", model=mlp(rows))
    expected = trainer.predict(X).numpy()
    sizes: list[Any] = []
    compiled = executable.compile_function
    monkeypatch.setattr(executable, "compile_function", lambda *a: (sizes.append(a[1]), compiled(*a))[1])
    for size, most in ((7, 2), (10, 1), (30, 0), (100, 0)):
        sizes.clear()
        found = trainer.predict(X, batch_size=size)
        assert isinstance(found, pullback.Tensor) and len(sizes) <= most
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(trainer.predict(X[:0], batch_size=size).shape, (0, 5))
    np.testing.assert_allclose(trainer.predict(X.tolist(), batch_size=7), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(trainer.predict(X[0:1], batch_size=7), expected[:1], rtol=1e-5, atol=1e-6)


def test_predict_in_batches_of_several_inputs_and_outputs() -> None:
    trainer = two()
    whole = trainer.predict(A, B)
    for given in ((A, B), ([A, B],), ({"a": A, "b": B},)):
        for found, expected in zip(trainer.predict(*given, batch_size=3), whole, strict=True):
            np.testing.assert_array_equal(found, expected)
    ints = (A * 4).astype(np.int64), (B * 4).astype(np.int16)
    for found, expected in zip(trainer.predict(*ints, batch_size=4), trainer.predict(*ints), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_predict_over_data() -> None:
    """The targets of batches and examples are not read."""
    trainer = trainer_of()
    expected = trainer.predict(X).numpy()
    bad = np.full(8, "x")
    forms: list[Any] = [
        lambda: ((X[k : k + 8], bad) for k in range(0, 30, 8)), [(x, None) for x in X],
        lambda: (X[k : k + 8] for k in range(0, 30, 8)), lambda: ({"x": X[k : k + 8]} for k in range(0, 30, 8)),
        lambda: ({"x": X[k : k + 8], "targets": bad} for k in range(0, 30, 8)),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_allclose(trainer.predict(form), expected, rtol=1e-5, atol=1e-6)
    several = two()
    for found, whole in zip(
        several.predict(lambda: [([A[:4], B[:4]], 1), ([A[4:], B[4:]], 1)]), several.predict(A, B), strict=True
    ):
        np.testing.assert_array_equal(found, whole)


def test_large_inputs_are_predicted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from pullback.relax.training import feeding

    trainer = trainer_of("llvm")
    expected = trainer.predict(X).numpy()
    monkeypatch.setattr(feeding, "_ONE_GO", 1000)
    monkeypatch.setattr(trainer, "_arguments", None)
    np.testing.assert_allclose(trainer.predict(X), expected, rtol=1e-5, atol=1e-6)


def test_outputs_without_rows_cannot_be_joined() -> None:
    x, w = Var("x", TensorStructInfo((8, 3))), Var("w", TensorStructInfo((3,)))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            out = builder.emit(op.multiply(x, w))
            both = builder.emit_output(Tuple((out, op.sum(out))))
        builder.emit_func_output(both)
    trainer = make_trainer(
        builder.get().with_attrs({"param_num": 1, "state_num": 0}), MSELoss(), SGD(0.1), target="debug"
    )
    assert trainer.predict(A)[1].shape == ()
    with pytest.raises(ArgumentError, match="output 1 has no row for each of a batch's 4 rows"):
        trainer.predict(A, batch_size=4)


# ---- what is refused -------------------------------------------------------------------------------------------------


class Batches:
    def __iter__(self) -> Iterator[Any]:
        return iter([(X, Y)])


REFUSED: list[tuple[str, Callable[[Any], Any], type[UserError], str]] = [
    ("no targets", lambda t: t.fit(X), ArgumentError, r"the targets are missing: x is an array, .*\n.*fit\(x, y\)"),
    ("no targets of lists", lambda t: t.fit(X.tolist()), ArgumentError, "the targets are missing"),
    ("no targets of a dict", lambda t: t.fit({"x": X}), ArgumentError, "the targets are missing"),
    ("no targets to evaluate", lambda t: t.evaluate([X]), ArgumentError, "the targets are missing"),
    ("exchanged", lambda t: t.fit(Y, X), ShapeError, r"input x must have shape \(rows, 20\), got \(30,\)\n.*exchanged"),
    ("one-hot", lambda t: t.fit(X, np.eye(5)[Y]), ShapeError, r"got \(30, 5\)\n.*argmax\(-1\).*targets=\"one-hot\""),
    ("column", lambda t: t.fit(X, Y[:, None]), ShapeError, r"got \(30, 1\)\n.*labels in a column: array.reshape\(-1\)"),
    ("ragged", lambda t: t.fit([[1.0, 2.0], [3.0]], [0, 1]), ShapeError, "input x: .*: row 1 has 1, row 0 has 2"),
    ("unknown name", lambda t: t.fit({"z": X}, Y), ArgumentError, "there is no input z; the names are: x"),
    ("missing name", lambda t: t.fit({}, Y), ArgumentError, "x is missing; the names are: x"),
    ("unknown target", lambda t: t.fit(X, {"target": Y}), ArgumentError, r"no target target; .*\n.*mean targets"),
    ("names of update", lambda t: t.update({"z": X}, Y), ArgumentError, "there is no input z"),
    ("names of predict", lambda t: t.predict({"z": X}), ArgumentError, "there is no input z"),
    ("too many", lambda t: t.fit([X, X], Y), ArgumentError, r"the model takes 1 input \(x\), got 2"),
    ("an array too many", lambda t: t.predict(X, X), ArgumentError, r"the model takes 1 input \(x\), got 2"),
    ("rows", lambda t: t.fit(X, Y[:9]), ArgumentError, "same number of rows: x has 30, targets has 9"),
    ("cast", lambda t: t.fit(X, Y, cast="no"), ArgumentError, "cast must be True or False, got 'no'"),
    ("size", lambda t: t.predict(X, batch_size=0), ArgumentError, "batch_size must be an int ≥ 1, got 0"),
    ("steps", lambda t: t.fit(X, Y, steps_per_epoch=0), ArgumentError, "steps_per_epoch must be an int ≥ 1, got 0"),
    ("both", lambda t: t.fit(Batches(), Y), ArgumentError, "x is a Batches, which gives its targets itself"),
    ("text", lambda t: t.fit("data.csv"), ArgumentError, "the targets are missing"),
    ("shape to predict", lambda t: t.predict(X[:, :3], batch_size=4), ShapeError, r"input x must have shape \(8, 20\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_bad_data_changes_nothing(call: Any, error: type[UserError], message: str) -> None:
    trainer = trainer_of()
    before, generator = params(trainer), trainer._generator.bit_generator.state
    with pytest.raises(error, match=message):
        call(trainer)
    assert_same(before, params(trainer))
    assert trainer.steps == 0 and trainer._generator.bit_generator.state == generator


def test_a_column_for_a_column() -> None:
    """(rows, 1) and (rows,) are different types, whichever the model declares."""
    trainer = trainer_of(loss=BCEWithLogitsLoss(), model=mlp(8, (20, 1)))
    with pytest.raises(ShapeError, match=r"must have shape \(rows, 1\), got \(30,\)\n.*array\[:, None\]"):
        trainer.fit(X, (Y > 2).astype(np.float32))
    trainer.fit(X, (Y > 2)[:, None], verbose=0)
