"""Collections are rare while a module is compiled, and as frequent as before when it is."""

import gc
import os
import threading

import numpy as np
import pytest

import pullback
from pullback import driver
from pullback.driver import native
from pullback.driver.collector import rare_collections
from pullback.relax.training import Trainer, setup_trainer
from tests.driver.models import mlp_trainer_module


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


@pytest.fixture
def seen(monkeypatch):
    """The threshold in each place where a trainer is set up, a module compiled, and a function made native.

    When a collection comes depends on what memos hold, so what is asked is the threshold itself.
    """
    thresholds = {}

    def watch(module, name):
        original = getattr(module, name)

        def watched(*args):
            thresholds[name] = gc.get_threshold()[0]
            return original(*args)

        monkeypatch.setattr(module, name, watched)

    watch(setup_trainer, "check_backbone")
    watch(driver, "prepare")
    watch(native, "function_key")
    return thresholds


def test_compiling_leaves_it_as_it_was(seen):
    module = mlp_trainer_module((3, 2), batch=4)
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module), pullback.cpu()))
    trainer.zero_init_params()
    trainer.update(np.ones((4, 3), np.float32), np.zeros(4, np.int64))
    assert seen == dict.fromkeys(["check_backbone", "prepare", "function_key"], 10_000)
    assert gc.get_threshold() == (700, 10, 10)
