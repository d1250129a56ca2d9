"""Random training steps, whose memory is planned in several ways; tensors that outlive later steps; threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pullback
from pullback.relax.training.optimizer import Adam
from tests.driver.models import mlp_trainer_module, step_arguments
from tests.properties.checks import check_graph

COUNT, PER_TEST = 120, 10


@pytest.mark.parametrize("first", range(0, COUNT, PER_TEST))
def test_random_steps(first):
    for seed in range(first, first + PER_TEST):
        check_graph(seed)


@pytest.mark.parametrize("first", range(0, COUNT // 3, PER_TEST))
def test_random_steps_that_draw_random_numbers(first):
    for seed in range(first, first + PER_TEST):
        check_graph(seed, drops=True)


def test_results_and_views_outlive_a_hundred_steps():
    """Losses that are kept, and what was exported of parameters through Trainer, do not change later."""
    executable = pullback.compile(mlp_trainer_module((20, 16, 5), 8, Adam(0.01)))
    adjoint = executable["backbone_loss_adjoint"]
    arguments = step_arguments(executable.module)[: len(adjoint.signature.params)]
    loss, gradients = adjoint(*arguments)
    kept = [loss, *gradients]
    views = [np.from_dlpack(t) for t in kept]
    before = [v.copy() for v in views]
    call = adjoint.bind(arguments)
    others = [call() for _ in range(100)]
    for tensor, view, copy in zip(kept, views, before, strict=True):
        assert tensor.numpy().tobytes() == copy.tobytes() == view.tobytes()
    addresses = {t.data_ptr for results in others for t in results} | {t.data_ptr for t in kept}
    assert len(addresses) == 101 * len(kept), "every result has memory of its own"


def test_two_threads_on_one_machine():
    """Each thread's results are those of its own inputs, also while the other one runs the same function."""
    machine = pullback.VirtualMachine(pullback.compile(mlp_trainer_module((64, 64, 64, 10), 32)))
    arguments = step_arguments(machine.executable.module)[: len(machine["backbone_loss"].signature.params)]
    inputs = [[pullback.tensor(arguments[0].numpy() * s), *arguments[1:]] for s in (1.0, -2.0)]
    expected = [machine["backbone_loss_adjoint"](*i) for i in inputs]
    wanted = [[loss.numpy().tobytes(), *(g.numpy().tobytes() for g in grads)] for loss, grads in expected]
    wrong: list[str] = []

    def hammer(k: int) -> None:
        for repeat in range(150):
            loss, gradients = machine["backbone_loss_adjoint"](*inputs[k])
            found = [loss.numpy().tobytes(), *(g.numpy().tobytes() for g in gradients)]
            if found != wanted[k]:
                wrong.append(f"thread {k}, call {repeat}")

    threads = [threading.Thread(target=hammer, args=(k,)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
