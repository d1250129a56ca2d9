"""Data of other dtypes: cast batch by batch by one rule, told once, never as a whole; what does not fit is named."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pullback.ir import DTypeError
from pullback.ir.errors import UserError
from pullback.relax.training import values
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of
from tests.relax.training.test_fit import embedding

X, Y = classes(30)
TARGETS = ("debug", "llvm")
WIDE = X.astype(np.float64) * 1.1


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_said", set())


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16, "int32", "int64", "uint8", ">f8"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype_trains_as_its_cast(dtype: Any, target: str) -> None:
    if dtype == ">f8":
        with pytest.raises(DTypeError, match="not in this machine's byte order"):
            trainer_of(target).fit(X.astype(dtype), Y)
        return
    x = (WIDE * 10 + 50).astype(dtype)
    given, expected = trainer_of(target, optimizer=SGD(1e-4)), trainer_of(target, optimizer=SGD(1e-4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given.fit(x, Y.astype(np.float64), seed=1, validation=(x, Y), verbose=0)
        np.testing.assert_array_equal(given.predict(x), given.predict(x.astype(np.float32)))
        assert given.evaluate(x, Y) == given.evaluate(x.astype(np.float32), Y)
        loss = given.update(x[:8], Y[:8]).item()
    expected.fit(x.astype(np.float32), Y, seed=1, verbose=0)
    assert loss == expected.update(x.astype(np.float32)[:8], Y[:8]).item()
    assert_same(params(given), params(expected))


def test_half_precision_models_take_float32() -> None:
    trainer = trainer_of(model=mlp(8, dtype="float16"))
    with pytest.warns(UserWarning, match="float32 is rounded to float16"):
        trainer.fit(X, Y, verbose=0)
    with pytest.raises(DTypeError, match=r"input x must be float16, got float32 .* to inf at index \(2, 5\)"):
        trainer.predict(np.where(np.arange(600).reshape(30, 20) == 45, np.float32(1e5), X))


def test_it_is_said_once_where_it_was_asked_for() -> None:
    trainer = trainer_of()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            trainer.fit(WIDE, Y, epochs=2, validation=(WIDE, Y), verbose=0)
            trainer.update(WIDE, Y)
            trainer.predict(WIDE)
    (said,) = caught
    assert said.filename == __file__ and said.category is UserWarning
    assert str(said.message) == "input x: float64 is rounded to float32, as it is read; cast=False refuses that"


def test_nothing_is_said_of_what_is_not_rounded() -> None:
    trainer = trainer_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit(X.tolist(), Y.tolist(), verbose=0)
        trainer.fit(X, Y.astype(np.float64), verbose=0)
        trainer.fit((X * 10).astype(np.int64), Y.astype(np.int8), verbose=0)
        trainer.fit(X.astype(np.float16), Y, verbose=0)


@pytest.mark.parametrize("call", ["fit", "evaluate", "update", "predict"])
def test_cast_false_refuses_what_changes(call: str) -> None:
    trainer = trainer_of()
    before = params(trainer)
    given = (WIDE[:8],) if call == "predict" else (WIDE[:8], Y[:8])
    message = r"input x must be float32, got float64 whose values would change: .* to .* at index \(0, 0\)"
    with pytest.raises(DTypeError, match=message):
        getattr(trainer, call)(*given, cast=False)
    exact = X[:8].astype(np.float64)
    getattr(trainer, call)(exact, *given[1:], cast=False)
    if call in ("evaluate", "predict"):
        assert_same(before, params(trainer))
    with pytest.raises(DTypeError, match="whose values would change"):
        trainer.load_params({"b0": np.full(16, 0.1)})


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5, 2.0**63, -1e300])
def test_labels_that_are_no_labels(value: float) -> None:
    """Seen before anything changes: the order of rows is not drawn."""
    trainer = trainer_of()
    before, generator = params(trainer), trainer._generator.bit_generator.state
    y = Y.astype(np.float64)
    y[17] = value
    with pytest.raises(DTypeError, match=r"the targets must be int64, got float64 .* at index \(17,\)"):
        trainer.fit(X, y, verbose=0)
    assert_same(before, params(trainer))
    assert trainer._generator.bit_generator.state == generator


def test_tokens_of_a_wider_integer() -> None:
    trainer = trainer_of("debug", MSELoss(), SGD(0.1), embedding())
    tokens = np.random.default_rng(0).integers(0, 10, (8, 3)).astype(np.uint64)
    trainer.fit(tokens, np.ones((8, 5)), verbose=0)
    tokens[5, 2] = 2**63
    with pytest.raises(DTypeError, match=r"input tokens must be int64, got uint64 .*9223372036854775808.* \(5, 2\)"):
        trainer.fit(tokens, np.ones((8, 5)), verbose=0)


@pytest.mark.parametrize("target", TARGETS)
def test_a_float_that_is_too_large_is_found_when_it_is_read(target: str) -> None:
    """Before the step on its batch: the last complete one is kept."""
    x = WIDE.copy()
    x[18, 3] = 1e300
    trainer, expected = trainer_of(target), trainer_of(target)
    with pytest.raises(DTypeError, match=r"input x must be float32, got float64 .*: 1e\+300 to inf at index \(18, 3\)"):
        trainer.fit(x, Y, shuffle=False, verbose=0)
    assert trainer.steps == 2
    expected.fit(x[:16], Y[:16], shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))
    with pytest.raises(DTypeError, match=r"at index \(18, 3\)"):
        trainer.evaluate(x, Y)
    trainer.fit(np.where(np.arange(30)[:, None] == 18, np.inf, WIDE)[:16], Y[:16], verbose=0)


def test_views_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other row, columns, axes in another order: gathered as they lie."""
    big = np.random.default_rng(1).standard_normal((60, 20))
    views = [big[::2], np.asfortranarray(big[:30]), big[:30, ::-1], big[29::-1]]
    for view in views:
        given, expected = trainer_of("llvm"), trainer_of("llvm")
        data = given._source(view, Y)
        assert data._arrays[0] is view
        with monkeypatch.context() as patch:
            patch.setattr(np, "require", None)
            given.fit(view, Y, seed=1, verbose=0)
        expected.fit(np.ascontiguousarray(view, np.float32), Y, seed=1, verbose=0)
        assert_same(params(given), params(expected))


MEMORY = """
import resource, sys, warnings
import numpy as np
from tests.relax.training.models import trainer_of

dtype, path = sys.argv[1:]
rows = 400_000
x = np.memmap(path, dtype, "r", shape=(rows, 20) if dtype != "float16" else (rows, 20))
y = np.zeros(rows, np.uint8)
trainer = trainer_of("llvm")
trainer.fit(x[:16], y[:16], verbose=0)

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

import threading
peak, over = [anonymous()], threading.Event()
def watch():
    while not over.wait(0.002):
        peak[0] = max(peak[0], anonymous())
before, watching = anonymous(), threading.Thread(target=watch)
watching.start()
trainer.fit(x, y, batch_size=8, steps_per_epoch=2000, shuffle=True, verbose=0)
trainer.evaluate(x, y, batch_size=8, steps=500)
trainer.predict(x[:2000], batch_size=1000)
over.set()
watching.join()
print(peak[0] - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_memory_maps_take_no_memory(dtype: str, tmp_path: Path) -> None:
    """64 MB of float64, 16 MB of float16: what is held meanwhile is little more than the order of the rows."""
    path = tmp_path / "x"
    with open(path, "wb") as file:
        for _ in range(4):
            np.random.default_rng(0).standard_normal((100_000, 20)).astype(dtype).tofile(file)
    run = [sys.executable, "-W", "ignore", "-c", MEMORY, dtype, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 14 << 20, "the order alone is 3.2 MB, and made of two arrays"


@pytest.mark.parametrize("call", ["predict", "fit", "update", "evaluate"])
def test_masked_arrays_and_lists_that_hold_themselves_are_refused(call: str) -> None:
    trainer, endless = trainer_of("debug"), []
    endless.append(endless)
    for wrong, match in ((np.ma.masked_greater(X, 0.5), "no mask"), (endless, "")):
        with pytest.raises(UserError, match=match):
            trainer.predict(wrong) if call == "predict" else getattr(trainer, call)(wrong, Y)
