"""Data that comes batch by batch: the same steps as over arrays, ended in order whatever happens."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax.training import epochs, streams
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import Adam
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of
from tests.relax.training.test_fit import embedding

X, Y = classes(30)  # three batches of eight and one of six
TARGETS = ("debug", "llvm")


def batches(size: int = 8, x: Any = X, y: Any = Y) -> Iterator[tuple[Any, Any]]:
    for k in range(0, len(x), size):
        yield x[k : k + size], y[k : k + size]


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "pullback-reader"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not readers()


class Loader:
    """What can be iterated over again and again, as a DataLoader."""

    def __init__(self, size: int = 8) -> None:
        self.size, self.passes = size, 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return batches(self.size)

    def __len__(self) -> int:
        return -(-30 // self.size)


@pytest.mark.parametrize("target", TARGETS)
def test_batches_train_as_arrays_do(target: str) -> None:
    """Bit for bit, and so do losses, whatever gives them."""
    expected = trainer_of(target, optimizer=Adam(0.01))
    history = expected.fit(X, Y, epochs=2, shuffle=False, validation=(X[:11], Y[:11]), verbose=0)
    forms: list[Callable[[], Any]] = [
        Loader, lambda: batches, lambda: list(batches()), lambda: tuple(batches()),
        lambda: [{"x": x, "targets": y} for x, y in batches()], lambda: [[[x], [y]] for x, y in batches()].__iter__,
        lambda: [({"x": x}, {"targets": y.tolist()}) for x, y in batches()],
    ]  # fmt: skip
    for form in forms:
        trainer = trainer_of(target, optimizer=Adam(0.01))
        found = trainer.fit(form(), epochs=2, validation=lambda: batches(5, X[:11], Y[:11]), verbose=0)
        assert_same(params(trainer), params(expected))
        assert found["loss"] == history["loss"] and found["val_accuracy"] == history["val_accuracy"]
        assert found["val_loss"] == pytest.approx(history["val_loss"], rel=1e-6)
    assert trainer.evaluate(Loader(8)) == expected.evaluate(X, Y, batch_size=8)
    assert trainer.evaluate(batches()).count == 30, "once, a generator will do"


def test_examples_train_as_arrays_do() -> None:
    """In the order that the seed draws."""

    class Examples:
        def __len__(self) -> int:
            return 30

        def __getitem__(self, number: int) -> Any:
            if not 0 <= number < 30:
                raise IndexError(number)
            return X[number], Y[number]

    class Several(Examples):
        def __getitems__(self, numbers: list[int]) -> list[Any]:
            return [{"x": X[n], "targets": Y[n]} for n in numbers]

        def __getitem__(self, number: int) -> Any:
            return {"x": X[number], "targets": Y[number]}

    expected = trainer_of("llvm", optimizer=Adam(0.01))
    expected.fit(X, Y, epochs=2, seed=3, validation=(X[:11], Y[:11]), verbose=0)
    for data in (Examples(), Several(), [(x, y) for x, y in zip(X, Y, strict=True)]):
        trainer = trainer_of("llvm", optimizer=Adam(0.01))
        trainer.fit(data, epochs=2, seed=3, validation=(X[:11], Y[:11]), verbose=0)
        assert_same(params(trainer), params(expected))
        assert trainer.evaluate(data) == expected.evaluate(X, Y)
    trainer.fit(data, drop_last=True, steps_per_epoch=2, batch_size=10, verbose=0)
    assert trainer.steps == 10


def test_batches_by_their_number() -> None:
    """As Keras's Sequence."""
    trainer, expected = trainer_of(), trainer_of()

    class Sequence:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, number: int) -> Any:
            return X[8 * number : 8 * number + 8], Y[8 * number : 8 * number + 8]

    trainer.fit(Sequence(), epochs=2, verbose=0)
    expected.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


@pytest.mark.parametrize("slice_seconds", [0.0, 0.05])
def test_more_batches_than_a_ring_has_room_for(monkeypatch: pytest.MonkeyPatch, slice_seconds: float) -> None:
    """Round and round, with sizes that change, in slices of one step or many."""
    monkeypatch.setattr(epochs, "SLICE_SECONDS", slice_seconds)
    monkeypatch.setattr(streams, "FEW_BATCHES", 3)
    monkeypatch.setattr(streams, "CACHE_BYTES", 0)
    x, y = classes(1000)
    cuts = np.cumsum([0, *([8] * 10), 6, 8, 6, *([8] * 50), 8, 5, *([8] * 20)])
    trainer, expected = trainer_of("llvm"), trainer_of("llvm")
    data = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    found = trainer.fit(data, epochs=3, verbose=0)
    for _ in range(3):
        for batch in data:
            expected.update(*batch)
    assert_same(params(trainer), params(expected))
    assert trainer.steps == 3 * len(data) and len(found["loss"]) == 3


def test_a_generator_may_use_one_buffer_again() -> None:
    def reusing() -> Iterator[Any]:
        x, y = np.zeros((8, 20), np.float32), np.zeros(8, np.int64)
        for k in (0, 8, 16):
            x[:], y[:] = X[k : k + 8], Y[k : k + 8]
            yield x, y
            x[:], y[:] = np.nan, -1

    trainer, expected = trainer_of("llvm"), trainer_of("llvm")
    trainer.fit(reusing, epochs=2, verbose=0)
    expected.fit(X[:24], Y[:24], epochs=2, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


def test_a_generator_goes_on_from_epoch_to_epoch() -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield from batches(8, X[:24], Y[:24])

    trainer, expected = trainer_of("llvm"), trainer_of("llvm")
    generator = endless()
    trainer.fit(generator, epochs=3, steps_per_epoch=4, verbose=0)
    expected.fit(X[:24], Y[:24], epochs=4, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))
    trainer.fit(generator, steps_per_epoch=3, verbose=0)
    expected.fit(X[:24], Y[:24], shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


def test_a_loader_begins_anew_after_its_end() -> None:
    loader, trainer = Loader(), trainer_of()
    trainer.fit(loader, epochs=5, steps_per_epoch=3, verbose=0)  # 15 batches of four a pass
    assert trainer.steps == 15 and loader.passes == 4
    trainer.fit(X, Y, epochs=2, steps_per_epoch=2, verbose=0)
    assert trainer.steps == 19
    assert trainer.evaluate(X, Y, steps=2).count == 16 and trainer.evaluate(loader, steps=3).count == 24


def test_drop_last_leaves_smaller_batches_out() -> None:
    trainer = trainer_of()
    trainer.fit(Loader(), drop_last=True, verbose=0)
    assert trainer.steps == 3


def test_several_inputs_and_shared_targets() -> None:
    """Class weights that come with each batch are those of the batch."""
    from pullback.relax import TensorStructInfo
    from pullback.relax.training.loss import CrossEntropyLoss

    infos = [TensorStructInfo((8,), "int64"), TensorStructInfo((5,))]
    trainer, expected = (trainer_of(loss=CrossEntropyLoss(), targets=infos) for _ in range(2))
    weights = np.random.default_rng(0).random((4, 5)).astype(np.float32)
    given = [(x, [y, weights[k // 2]]) for k, (x, y) in enumerate(batches(8, X[:24], Y[:24]))]
    trainer.fit(given, epochs=2, verbose=0)
    for _ in range(2):
        for batch in given:
            expected.update(*batch)
    assert_same(params(trainer), params(expected))


def test_batches_are_cast() -> None:
    trainer, expected = trainer_of(), trainer_of()
    with pytest.MonkeyPatch.context() as patch:
        from pullback.relax.training import values

        patch.setattr(values, "_said", set())
        with pytest.warns(UserWarning, match="input x: float64 is rounded to float32"):
            trainer.fit([(x.astype(np.float64) * 1.1, y.astype(np.uint8)) for x, y in batches()], verbose=0)
    expected.fit((X.astype(np.float64) * 1.1).astype(np.float32), Y, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


def test_torch_datasets_and_loaders() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    expected = trainer_of("llvm")
    expected.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    for given in (loader, data, torch.utils.data.Subset(data, range(30))):
        trainer = trainer_of("llvm")
        trainer.fit(given, epochs=2, shuffle=False, validation=loader, verbose=0)
        assert_same(params(trainer), params(expected))
    workers = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
    trainer = trainer_of("llvm")
    trainer.fit(workers, epochs=2, verbose=0)
    assert_same(params(trainer), params(expected))


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [1, 3, 40])
def test_the_users_exception_ends_fit(target: str, place: int) -> None:
    """All batches before it are trained on; its traceback shows the user's line."""
    x, y = classes(400)

    def failing() -> Iterator[Any]:
        for number, batch in enumerate(batches(8, x, y)):
            if number == place:
                raise OSError("the disk is gone")
            yield batch

    trainer, expected = trainer_of(target, optimizer=Adam(0.01)), trainer_of(target, optimizer=Adam(0.01))
    with pytest.raises(OSError, match="the disk is gone") as caught:
        trainer.fit(failing, verbose=0)
    assert "failing" in [entry.name for entry in caught.traceback]
    assert trainer.steps == place and trainer.epochs == 0
    expected.fit(x[: 8 * place], y[: 8 * place], shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))
    trainer.fit(X, Y, verbose=0)


def test_a_step_that_fails_ends_the_thread() -> None:
    tokens = np.random.default_rng(0).integers(0, 10, (400, 3))
    tokens[333, 1] = 10
    y = np.ones((400, 5), np.float32)
    trainer = trainer_of("llvm", MSELoss(), Adam(0.1), embedding())
    with pytest.raises(ArgumentError, match=r"^step 84: .*take"):
        trainer.fit(lambda: batches(4, tokens, y), epochs=3, verbose=0)
    assert trainer.steps == 83 and not readers(), "while the traceback is kept"


def test_ctrl_c_while_waiting_for_a_batch() -> None:
    """The last complete step is kept, and nothing hangs, even where the iterator does."""
    import signal

    held = threading.Event()

    def slow() -> Iterator[Any]:
        yield from batches(8, X[:24], Y[:24])
        threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
        held.wait(60)

    trainer = trainer_of("llvm")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(slow, verbose=0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert trainer.steps == 3
    held.set()
    for thread in readers():
        thread.join(10)


def test_callbacks_that_stop_end_the_thread() -> None:
    from pullback.callbacks import LambdaCallback

    trainer = trainer_of("llvm")

    def endless() -> Iterator[Any]:
        while True:
            yield X[:8], Y[:8]

    def stop(*_: Any) -> None:
        trainer.stop_training = True

    trainer.fit(
        endless(), steps_per_epoch=1_000_000, epochs=2, callbacks=[LambdaCallback(on_batch_end=stop)], verbose=0
    )
    assert 0 < trainer.steps < 1_000_000


def test_slow_data_is_waited_for() -> None:
    def slow() -> Iterator[Any]:
        for batch in batches():
            time.sleep(0.02)
            yield batch

    trainer, expected = trainer_of("llvm"), trainer_of("llvm")
    trainer.fit(slow, epochs=2, verbose=0)
    expected.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    assert_same(params(trainer), params(expected))


FORKING = """
import os, threading
from tests.relax.training.models import classes, params, trainer_of

x, y = classes(400)
def batches():
    for k in range(0, 400, 8):
        yield x[k:k + 8], y[k:k + 8]

busy, alone = trainer_of("llvm"), trainer_of("llvm")
alone.fit(batches, epochs=3, verbose=0)
running = threading.Thread(target=busy.fit, args=(batches,), kwargs=dict(epochs=200, verbose=0))
running.start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        own = trainer_of("llvm")
        own.fit(batches, epochs=3, verbose=0)
        os._exit(0 if all((a == b).all() for a, b in zip(params(own), params(alone))) else 1)
    assert os.waitpid(child, 0)[1] == 0
running.join()
assert busy.epochs == 200
print("done")
"""


def test_a_child_forked_during_a_fit_over_batches() -> None:
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


# ---- what is refused -------------------------------------------------------------------------------------------------


def misshapen() -> Iterator[Any]:
    yield X[:8], Y[:8]
    yield X[:8, :7], Y[:8]


def too_large() -> Iterator[Any]:
    yield X[:8], Y[:8]
    yield X[:8].astype(np.float64) * 1e300, Y[:8]


def weighted_once() -> Iterator[Any]:
    yield X[:8], Y[:8]
    yield X[:8], Y[:8], np.ones(8)


def ending() -> Iterator[Any]:
    yield X[:8], Y[:8]


def mislabelled() -> Iterator[Any]:
    yield X[:8], Y[:8]
    yield X[:8], np.where(np.arange(8) == 3, 5, Y[:8])


REFUSED: list[tuple[str, Callable[[Any], Any], type[Exception], str, int]] = [
    ("shape", lambda t: t.fit(misshapen), ShapeError, r"^batch 2: input x must have shape \(rows, 20\)", 1),
    ("value", lambda t: t.fit(too_large), DTypeError, r"input x must be float32, got float64 .* at index \(", 1),
    ("label", lambda t: t.fit(mislabelled), ArgumentError, r"^step 2: the targets .* 0 to 4, got 5 at .*\(3,\)", 1),
    ("weights", lambda t: t.fit(weighted_once), ArgumentError, "^batch 2: some batches have weights", 1),
    ("ends", lambda t: t.fit(ending(), steps_per_epoch=3), ArgumentError, "ended after 1 of the epoch's 3 batches", 1),
    ("short", lambda t: t.fit(Loader(), steps_per_epoch=5), ArgumentError, "is 5, but there are 4 batches", 0),
    ("short function", lambda t: t.fit(ending, steps_per_epoch=2), ArgumentError, "ended after 1 of the epoch's 2", 1),
    ("once", lambda t: t.fit(ending(), epochs=2), ArgumentError, "can be read only once, but it is to be read 2", 0),
    ("once, twice", lambda t: t.fit(iter([]), verbose=0), ArgumentError, "is empty: it gave no batch", 0),
    ("empty", lambda t: t.fit([].__iter__), ArgumentError, "is empty: it gave no batch", 0),
    ("no rows", lambda t: t.fit(lambda: batches(8, X[:0], Y[:0])), ArgumentError, "is empty", 0),
    ("an empty batch", lambda t: t.fit(lambda: [(X[:0], Y[:0])]), ArgumentError, "^batch 1: a batch has 0 rows", 0),
    ("x alone", lambda t: t.fit(lambda: [X]), ArgumentError, "got ndarray alone", 0),
    ("names", lambda t: t.fit(lambda: [{"a": X, "targets": Y}]), ArgumentError, "the names are: x, targets", 0),
    ("a name", lambda t: t.fit(lambda: [{"x": X}]), ArgumentError, "targets is missing", 0),
    ("ragged", lambda t: t.fit(lambda: [([[1.0] * 20, [2.0]], Y[:2])]), ShapeError, "input x: .* differ in length", 0),
    ("rows", lambda t: t.fit(lambda: [(X[:8], Y[:7])]), ArgumentError, "^batch 1: .*same number of rows: x has 8", 0),
    ("examples", lambda t: t.fit(lambda: zip(X, Y, strict=True)), ArgumentError, "gives single examples, input x", 0),
    ("size", lambda t: t.fit(batches, batch_size=8), ArgumentError, "batch_size is for arrays", 0),
    ("split", lambda t: t.fit(batches, validation_split=0.1), ArgumentError, "validation_split is for arrays", 0),
    ("balanced", lambda t: t.fit(batches, class_weight="balanced"), ArgumentError, "has to see all targets", 0),
    ("more weights", lambda t: t.fit(batches, sample_weight=np.ones(30)), ArgumentError, "is for arrays", 0),
    ("y too", lambda t: t.fit(Loader(), Y), ArgumentError, "x is a Loader, which gives its targets itself", 0),
    ("a number", lambda t: t.fit(object()), ArgumentError, "expected data, got object", 0),
    ("function", lambda t: t.fit(lambda: 3), ArgumentError, "the function returned int, which gives no batches", 0),
    ("exchanged", lambda t: t.fit(lambda: [(Y, X)]), ShapeError, "were x and y exchanged", 0),
    ("validation", lambda t: t.fit(X, Y, epochs=2, validation=ending()), ArgumentError, "can be read only once", 0),
    ("steps", lambda t: t.fit(X, Y, steps_per_epoch=5), ArgumentError, "is 5, but 30 rows in batches of 8 are 4", 0),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message", "steps"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_bad_batches(call: Any, error: type[UserError], message: str, steps: int) -> None:
    """What is seen at once changes nothing; what comes later leaves the last complete step."""
    trainer, expected = trainer_of(), trainer_of()
    generator = trainer._generator.bit_generator.state
    with pytest.raises(error, match=message):
        call(trainer)
    assert trainer.steps == steps and trainer.epochs == 0
    if steps:
        expected.fit(X[:8], Y[:8], shuffle=False, verbose=0)
    else:
        assert trainer._generator.bit_generator.state == generator
    assert_same(params(trainer), params(expected))


def test_each_epoch_needs_batches() -> None:
    """What looks as if it could be read again, and cannot."""
    generator = batches()

    class Once:
        def __iter__(self) -> Iterator[Any]:
            return generator

    trainer = trainer_of()
    with pytest.raises(ArgumentError, match="can be read only once: another epoch got no batch"):
        trainer.fit(Once(), epochs=2, verbose=0)
    assert trainer.epochs == 1 and trainer.steps == 4


def test_nan_is_found_in_batches() -> None:
    bad = X.copy()
    bad[19, 3] = np.nan
    trainer = trainer_of(model=mlp(8))
    with pytest.raises(UserError, match=r"step 3 is nan: input x holds NaN in row 3 of the batch, at index \(3,\)"):
        trainer.fit(lambda: batches(8, bad, Y), detect_nan=True, verbose=0)
    assert trainer.steps == 2
    with pytest.raises(UserError, match=r"input x holds NaN in row 19, at index \(3,\)"):
        trainer.fit(bad, Y, detect_nan=True, verbose=0)
