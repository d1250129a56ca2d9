"""What happens in the middle of a fit: Ctrl-C, handlers that train, other threads, forks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from pullback.relax.training import Trainer, epochs, progress
from pullback.relax.training.optimizer import Adam, MomentumSGD
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of

X, Y = classes(30)  # three batches of eight and one of six
TARGETS = ("debug", "llvm")


class SoManySteps:
    """Makes ``fit`` come back to Python after each step, and calls ``then`` after that many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int, then: Callable[[], None]) -> None:
        monkeypatch.setattr(epochs, "SLICE_SECONDS", 0.0)
        monkeypatch.setattr(progress.Progress, "advance", lambda *_: self.advance())
        self.left, self.then = steps, then

    def advance(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.then()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_the_native_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real signal, while a thousand steps run at a time: what is left is that very step."""
    x, y = classes(3003)
    interrupted, reference = trainer_of("llvm", optimizer=Adam(1e-4)), trainer_of("llvm", optimizer=Adam(1e-4))
    interrupted.fit(x, y, seed=1, verbose=0)
    over = Event()

    def press() -> None:  # again and again: Python loses a KeyboardInterrupt that strikes inside a __del__
        while not over.wait(0.2):
            signal.raise_signal(signal.SIGINT)

    keys = Thread(target=press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts with & ignores it
    keys.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            interrupted.fit(x, y, epochs=1_000_000, verbose=0)
        finally:
            over.set()
    keys.join()
    signal.signal(signal.SIGINT, before)
    reference.fit(x, y, seed=1, verbose=0)
    if interrupted.steps > reference.steps:
        SoManySteps(monkeypatch, interrupted.steps - reference.steps, interrupt)
        with pytest.raises(KeyboardInterrupt):
            reference.fit(x, y, epochs=1_000_000, verbose=0)
    assert interrupted.steps == reference.steps
    assert_same(params(interrupted), params(reference))


def test_a_fit_within_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a signal's handler trains, evaluates and saves: it meets complete steps, and leaves them."""
    kept = []
    for target in TARGETS:
        trainer = trainer_of(target, optimizer=MomentumSGD(0.02, 0.9))
        found = []

        def inner(trainer: Trainer = trainer, found: list[Any] = found) -> None:
            found.append(trainer.evaluate(X, Y))
            trainer.fit(X[:20], Y[:20], shuffle=False, verbose=0)

        SoManySteps(monkeypatch, 2, inner)
        trainer.fit(X, Y, epochs=2, shuffle=False, verbose=0)
        assert trainer.steps == 2 * 4 + 3 and len(found) == 1
        kept.append(params(trainer))
        monkeypatch.undo()
    for native, interpreted in zip(*kept, strict=True):
        np.testing.assert_allclose(native, interpreted, rtol=1e-5, atol=1e-6)


HANDLING = """
import signal
from tests.relax.training.models import classes, trainer_of

x, y = classes(3003)
trainer, handled = trainer_of("llvm"), []

def handler(*_):
    trainer.fit(x[:16], y[:16], verbose=0)
    trainer.update(x[:8], y[:8])
    handled.append(trainer.evaluate(x, y))

signal.signal(signal.SIGALRM, handler)
trainer.fit(x, y, verbose=0)
while len(handled) < 5:
    before, count = trainer.steps, len(handled)
    signal.setitimer(signal.ITIMER_REAL, 0.06)
    trainer.fit(x, y, epochs=100, verbose=0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert trainer.steps == before + 100 * 376 + 3 * (len(handled) - count)
print("done")
"""


def test_a_handler_that_trains() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLING], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_what_others_see_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that somebody looks at between two slices stays as it is."""
    trainer, seen = trainer_of("llvm"), []
    SoManySteps(monkeypatch, 2, lambda: seen.append(np.asarray(trainer._values.params[0])))
    plain = trainer_of("llvm")
    trainer.fit(X, Y, shuffle=False, verbose=0)
    monkeypatch.undo()
    plain.fit(X, Y, shuffle=False, verbose=0)
    assert_same(params(trainer), params(plain))
    before = trainer_of("llvm")
    before.fit(X[:16], Y[:16], shuffle=False, verbose=0)
    assert_same(seen, params(before)[:1])


def test_trainers_in_two_threads() -> None:
    """Each as if it were alone, the thread pool's contention included."""
    alone, together = trainer_of("llvm"), [trainer_of("llvm") for _ in range(3)]
    x, y = classes(1000)
    alone.fit(x, y, epochs=10, seed=4, verbose=0)
    threads = [Thread(target=t.fit, args=(x, y), kwargs={"epochs": 10, "seed": 4, "verbose": 0}) for t in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trainer in together:
        assert_same(params(trainer), params(alone))


def test_threads_share_a_trainer(tmp_path: Path) -> None:
    """They take turns: as many steps as in one thread, on the same batch, give the same bits; nobody sees half a step.

    Adam's step count and powers of beta, written by one step, tell whether what another thread saw belongs together.
    """
    shared, alone = (trainer_of("llvm", optimizer=Adam(1e-3), model=mlp(30)) for _ in range(2))
    failures: list[Any] = []

    def train() -> None:
        shared.fit(X, Y, epochs=2000, shuffle=False, verbose=0)

    def update() -> None:
        for _ in range(500):
            shared.update(X, Y)

    def look() -> None:
        for k in range(50):
            steps, power = (s.item() for s in shared.optimizer_states[:2])
            if not np.isclose(power, 0.9**steps, rtol=1e-3, atol=1e-30):
                failures.append((steps, power))
            shared.evaluate(X, Y)
            shared.save(tmp_path / "model.safetensors")
            read = trainer_of("llvm", optimizer=Adam(1e-3), model=mlp(30)) if k == 25 else None
            if read is not None:
                read.load(tmp_path / "model.safetensors")

    threads = [Thread(target=task) for task in (train, train, update, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone.fit(X, Y, epochs=4500, shuffle=False, verbose=0)
    assert not failures and shared.steps == alone.steps == 4500
    assert_same(params(shared), params(alone))


FORKING = """
import os, threading
from tests.relax.training.models import classes, params, trainer_of

x, y = classes(500)
busy, alone = trainer_of("llvm"), trainer_of("llvm")
alone.fit(x, y, epochs=3, seed=1, verbose=0)
running = threading.Thread(target=busy.fit, args=(x, y), kwargs=dict(epochs=300, verbose=0))
running.start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        own = trainer_of("llvm")
        own.fit(x, y, epochs=3, seed=1, verbose=0)
        os._exit(0 if all((a == b).all() for a, b in zip(params(own), params(alone))) else 1)
    assert os.waitpid(child, 0)[1] == 0
running.join()
assert busy.epochs == 300
print("done")
"""


def test_a_child_forked_during_a_fit_trains() -> None:
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_ctrl_c_leaves_the_last_complete_step(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    interrupted, reference = trainer_of("llvm"), trainer_of("llvm")
    SoManySteps(monkeypatch, steps + 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    monkeypatch.undo()
    assert interrupted.steps == steps + 1
    rows = [(k, k + 8) for k in (0, 8, 16, 24)] * 2
    for first, last in rows[: steps + 1]:
        reference.update(X[first:last], Y[first:last])
    assert_same(params(interrupted), params(reference))
    interrupted.fit(X, Y, verbose=0)
