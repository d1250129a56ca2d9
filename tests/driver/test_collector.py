"""Collections are rare while a module is compiled, and as frequent as before when it is."""

import gc
import os
import threading

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.driver import collector
from pullback.driver.collector import rare_collections


@pytest.fixture(autouse=True)
def threshold():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_rare_inside():
    with rare_collections():
        assert gc.get_threshold() == (10_000, 10, 10)
        with rare_collections():
            assert gc.get_threshold() == (10_000, 10, 10)
        assert gc.get_threshold() == (10_000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_restored_after_an_error():
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, 50_000])
def test_a_process_that_collects_less_is_left_alone(first):
    gc.set_threshold(first, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)


def test_a_threshold_set_meanwhile_stays():
    with rare_collections():
        gc.set_threshold(5000, 5, 5)
    assert gc.get_threshold() == (5000, 5, 5)


@pytest.fixture
def another_inside():
    """Another thread is inside, until what this gives is called."""
    entered, leave = threading.Event(), threading.Event()

    def other():
        with rare_collections():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)

    def end():
        leave.set()
        thread.join()

    yield end
    end()


def test_the_last_thread_sets_it_back(another_inside):
    with rare_collections():
        pass
    assert gc.get_threshold() == (10_000, 10, 10)
    another_inside()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_while_another_thread_compiles(another_inside):
    child = os.fork()
    if child == 0:
        good = gc.get_threshold() == (700, 10, 10)
        with rare_collections():
            good &= gc.get_threshold() == (10_000, 10, 10)
        os._exit(0 if good and gc.get_threshold() == (700, 10, 10) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_compiling_leaves_it_as_it_was(monkeypatch):
    # How many objects a compilation makes depends on what earlier ones left in memos: this module makes 10,000 or not.
    monkeypatch.setattr(collector, "_OBJECTS", 1_000)
    seen = []
    gc.callbacks.append(lambda phase, info: seen.append(gc.get_threshold()[0]))
    try:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((4, 4), "float32"))
        with builder.function("main", [x]), builder.dataflow():
            y = x
            for _ in range(300):
                y = builder.emit(relax.op.exp(y))
            builder.emit_func_output(builder.emit_output(y))
        seen.clear()
        executable = pullback.compile(builder.get(), "llvm")
        executable["main"](np.ones((4, 4), np.float32))
    finally:
        gc.callbacks.pop()
    assert 1_000 in seen
    assert gc.get_threshold() == (700, 10, 10)
