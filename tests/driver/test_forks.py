"""A fork's child uses what another thread of its parent was just using: it does not hang, and finds whole values."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.driver.cache import ObjectCache
from pullback.ir import IRModule, forks
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.training import Trainer, make_trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD, Adam, RunTime
from tests.relax.training.models import classes, trainer_of

X, Y = classes(30)
SECONDS = 60.0  # for what takes less than one


def child_of(work: Callable[[], Any]) -> None:
    """Fork, and run the work in the child; it has to end well, and soon."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
            return
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Another thread that does the work again and again."""
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def everything(trainer: Trainer, folder: Path) -> None:
    """What a child may want of a trainer."""
    trainer.update(X[:8], Y[:8])
    trainer.fit(X, Y, verbose=0)
    trainer.evaluate(X, Y)
    trainer.predict(X[:8])
    trainer.seed(3)
    trainer.save(folder / f"{os.getpid()}")
    trainer.load(folder / f"{os.getpid()}")
    trainer.export_params()
    trainer.set_hyperparameter("lr", 0.1)
    np.asarray(trainer.params["w0"])
    other = trainer_of("llvm", model=None)
    other.update(X[:8], Y[:8])


_numbers = itertools.count()


def compiled_anew() -> None:
    """A function that no cache holds."""
    x = Var("x", TensorStructInfo((5,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            number = float(next(_numbers)) + os.getpid() / 1e7
            out = builder.emit_output(op.sin(op.add(x, number)))
        builder.emit_func_output(out)
    pullback.compile(builder.get(), "llvm").function("main")(np.ones(5, "float32"))


@functools.cache
def shared(target: str) -> Trainer:
    trainer = trainer_of(target, optimizer=Adam(RunTime(0.01)))
    trainer.fit(X, Y, verbose=0)
    trainer.evaluate(X, Y)
    return trainer


WORK: dict[str, Callable[[Trainer, Path], Any]] = {
    "update": lambda trainer, _: trainer.update(X[:8], Y[:8]),
    "fit": lambda trainer, _: trainer.fit(X, Y, epochs=20, verbose=0),
    "evaluate": lambda trainer, _: trainer.evaluate(X, Y),
    "predict": lambda trainer, _: trainer.predict(X[:8]),
    "save": lambda trainer, folder: trainer.save(folder / "parent"),
    "export": lambda trainer, _: [np.asarray(v) for v in trainer.export_params().values()],
    "draw": lambda trainer, _: trainer._generator.permutation(100_000),
    "compile": lambda _, __: compiled_anew(),
    "set up": lambda _, __: trainer_of("llvm").update(X[:8], Y[:8]),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_a_child_uses_what_another_thread_uses(work: str, target: str, tmp_path: Path) -> None:
    trainer = shared(target)
    with meanwhile(lambda: WORK[work](trainer, tmp_path)):
        for k in range(4):
            time.sleep(0.003 * k)
            child_of(lambda: everything(trainer, tmp_path))


def test_a_child_compiles_while_another_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    with meanwhile(compiled_anew):
        for _ in range(8):
            child_of(lambda: [compiled_anew() for _ in range(2)])


def equal_weights(size: int) -> IRModule:
    """sum of x · w: each step adds the same to all elements of w."""
    x, w = Var("x", TensorStructInfo((1, size), "float32")), Var("w", TensorStructInfo((size,), "float32"))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(op.multiply(x, w))
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


@pytest.mark.parametrize(("target", "size"), [("llvm", 1 << 22), ("debug", 1 << 16)])
def test_a_child_never_sees_half_a_step(target: str, size: int) -> None:
    trainer = make_trainer(equal_weights(size), MSELoss("sum"), SGD(0.1), target=target, init="zeros")
    x, y = np.ones((1, size), "float32"), np.ones((1, size), "float32")
    trainer.update(x, y)

    def check() -> None:
        steps, values = trainer.steps, trainer.params["w"].numpy()
        assert (values == values[0]).all(), "values of two steps"
        trainer.update(x, y)
        assert trainer.steps == steps + 1

    with meanwhile(lambda: trainer.update(x, y)):
        for k in range(10):
            time.sleep(0.002 * k)
            child_of(check)


def test_a_fork_inside_a_signal_handler() -> None:
    """The thread that forks may itself be in the middle of anything: it goes on in the child too."""
    trainer, children = shared("llvm"), []

    def handler(*_: object) -> None:
        children.append(os.fork())

    parent, before = os.getpid(), signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.15, lambda: os.kill(parent, signal.SIGUSR1))
    try:
        timer.start()
        trainer.fit(X, Y, epochs=200, verbose=0)
        while not children:
            trainer.update(X[:8], Y[:8])
        trainer.update(X[:8], Y[:8])
    except BaseException:
        if os.getpid() == parent:
            raise
        traceback.print_exc()
        os._exit(1)
    finally:
        if os.getpid() == parent:
            signal.signal(signal.SIGUSR1, before)
    if os.getpid() != parent:
        os._exit(0)
    timer.join()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]


def test_children_of_several_threads() -> None:
    trainer = shared("llvm")
    failures: list[BaseException] = []

    def fork() -> None:
        try:
            for _ in range(5):
                child_of(lambda: trainer.update(X[:8], Y[:8]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fork) for _ in range(3)]
    with meanwhile(lambda: trainer.update(X[:8], Y[:8])):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_a_child_of_a_child() -> None:
    trainer = shared("llvm")

    def twice() -> None:
        with meanwhile(lambda: trainer.update(X[:8], Y[:8])):
            child_of(lambda: trainer.update(X[:8], Y[:8]))

    with meanwhile(lambda: trainer.update(X[:8], Y[:8])):
        child_of(twice)


# ---- the mechanism ---------------------------------------------------------------------------------------------------


class Holder:
    def __init__(self) -> None:
        self.lock, self.again, self.generator = threading.Lock(), threading.RLock(), np.random.default_rng(1)
        forks.renewed(self, "lock", "again", "generator")


def test_locks_of_others_are_new_and_ones_own_stay() -> None:
    held, own = Holder(), Holder()

    def hold() -> None:
        with held.lock, held.again, held.generator.bit_generator.lock:
            ready.set()
            done.wait()

    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    expected = np.random.default_rng(1).integers(100, size=5)

    def check() -> None:
        assert held.lock.acquire(timeout=5) and held.again.acquire(timeout=5)
        np.testing.assert_array_equal(held.generator.integers(100, size=5), expected)
        assert own.again._is_owned()  # type: ignore[attr-defined]

    with own.again:
        child_of(check)
    done.set()
    thread.join()
    assert held.lock.acquire(timeout=5), "the parent's are as they were"


def test_holders_are_not_kept_alive() -> None:
    import gc
    import weakref

    holder = Holder()
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_a_cached_property_that_another_thread_computes() -> None:
    from pullback.relax.training.step import Values

    first, second = (Values((), (), (), ()) for _ in range(2))
    ready, done = threading.Event(), threading.Event()

    class Slow(tuple):
        def __iter__(self) -> Any:
            ready.set()
            done.wait()
            return iter(())

    object.__setattr__(first, "params", Slow())
    thread = threading.Thread(target=lambda: first.all)
    thread.start()
    ready.wait()
    child_of(lambda: second.all)
    done.set()
    thread.join()


def test_a_cache_of_ones_own(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    with meanwhile(lambda: cache.put("key", bytes(1000))):
        for _ in range(10):
            child_of(lambda: cache.put("other", b"value"))
    assert cache.get("other") == b"value"


# ---- multiprocessing -------------------------------------------------------------------------------------------------


def trained(queue: Any) -> None:
    trainer = trainer_of("llvm")
    queue.put(float(trainer.update(X[:8], Y[:8])))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str) -> None:
    trainer = shared("llvm")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    with meanwhile(lambda: trainer.update(X[:8], Y[:8])):
        processes = [context.Process(target=trained, args=(queue,)) for _ in range(2)]
        for process in processes:
            process.start()
        found = [queue.get(timeout=SECONDS) for _ in processes]
        for process in processes:
            process.join(SECONDS)
            assert process.exitcode == 0
    expected: Any = multiprocessing.get_context("fork").SimpleQueue()
    trained(expected)
    assert set(found) == {expected.get()}


# ---- nothing is forgotten --------------------------------------------------------------------------------------------


def test_every_lock_is_registered() -> None:
    """A module that makes a lock says what becomes of it in a child; nobody registers with the system by himself."""
    package = Path(pullback.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name == "forks.py":
            continue
        assert "register_at_fork" not in text, path
        if re.search(r"threading\.(Lock|RLock|Condition|Event|Semaphore|Barrier)\(", text):
            assert "pullback.ir.forks" in text or "Forks wait" in text, path
