"""Steps over ranks: jobs answer as one, models are the same in both libraries, tables say what was measured."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pullback
from benchmarks import scale
from benchmarks.__main__ import app
from benchmarks.harness import Measurement, Side, measure
from benchmarks.jobs import LEAST_STEPS, Job, RunningJob, joined
from benchmarks.scale_models import LEARNING_RATE, MODELS, char_gpt, initial, mlp
from pullback import nn, optim
from pullback.command.mpirun import HYDRA, Launcher
from pullback.command.mpirun import find as find_launcher
from pullback.ir.errors import UserError

LAUNCHER = Launcher(Path("mpiexec"), HYDRA, 5)

WORKER = """\
import os, sys, time
from benchmarks.workers.protocol import serve

rank, made = int(os.environ["RANK"]), [0]

def step():
    made[0] += 1
    time.sleep(0.002 * (1 + rank))
    return float(rank)

def prepare(*arguments):
    if arguments[-1:] == ("dies",) and rank == 1:
        raise ValueError("no room on rank 1")
    if arguments[-1:] == ("dies",):
        time.sleep(60)
    return {"step": step}

sys.argv = [sys.argv[0], *sys.argv[3:]]  # without -m and the module
serve(lambda: {"none": "1"}, prepare, tell=lambda: {"rank": rank, "steps": made})
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python that runs a worker which needs nothing, whatever it is asked to run."""
    program, worker = tmp_path / "python", tmp_path / "worker.py"
    worker.write_text(WORKER)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {worker} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


# ---- jobs


def test_ranks_answer_as_one(python):
    job = Job("two", "none", python=python, threads=1, ranks=2)
    (found,) = measure([job], 2, 0.05, start=RunningJob, tell=True)
    assert found.failure is None
    assert found.results["step"] == [0.5] * 10  # the mean of the ranks' losses
    assert [about["rank"] for about in found.about["ranks"]] == [0, 1]
    assert len(found.rounds["step"]) == 2


def test_ranks_make_equally_many_steps(python, tmp_path):
    job = Job("two", "none", python=python, threads=1, ranks=2)
    with RunningJob(job, tmp_path / "cache") as running:
        running.answer()
        running.ask(do="build")
        answer = running.ask(do="round", case="step", seconds=0.05)
        told = running.ask(do="tell")["about"]["ranks"]
        assert answer["steps"] >= LEAST_STEPS
        assert told[0]["steps"] == told[1]["steps"] == [10 + (1 + LEAST_STEPS) + (1 + answer["steps"])]


def test_a_rank_that_dies_ends_the_job_and_is_told(python):
    begun = time.monotonic()
    (found,) = measure([Job("two", "none", ("dies",), python, 1, ranks=2)], 1, 0.01, start=RunningJob)
    assert found.failure == "ValueError: no room on rank 1"
    assert time.monotonic() - begun < 50  # the other one would sleep for longer


def test_answers_joined():
    answers: list[dict[str, Any]] = [
        {"median_seconds": 2.0, "memory_bytes": 10, "idle_processor_seconds": 1.0, "steps": 5},
        {"median_seconds": 3.0, "memory_bytes": 7, "idle_processor_seconds": 0.5, "steps": 5},
    ]
    assert joined(answers) == {"median_seconds": 3.0, "memory_bytes": 10, "idle_processor_seconds": 1.5, "steps": 5}
    built = [{"results": {"step": losses}, "about": {"rank": r}} for r, losses in ((1, [4.0, 2.0]), (0, [2.0, 1.0]))]
    assert joined(built) == {"results": {"step": [3.0, 1.5]}, "about": {"ranks": [{"rank": 0}, {"rank": 1}]}}


# ---- models


def small_gpt(package: Any) -> Any:
    return char_gpt(package, layers=2, width=16, heads=2, length=12, characters=9)


def small_mlp(package: Any) -> Any:
    return mlp(package, (20, 8, 10))


@pytest.mark.parametrize("make", [small_mlp, small_gpt])
def test_models_are_the_same_in_both_libraries(make):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    if make is small_gpt:
        x, y = rng.integers(0, 9, (4, 12)), rng.integers(0, 9, (4, 12))
    else:
        x, y = rng.random((4, 20), dtype=np.float32), rng.integers(0, 10, 4)
    theirs, ours = make(torch.nn), make(nn)
    values = initial(theirs)
    for name, value in initial(ours).items():
        np.testing.assert_array_equal(value, values[name])
    assert len(values) == len(list(ours.parameters()))
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    ours.load_state_dict(values)
    adam = torch.optim.Adam(theirs.parameters(), lr=LEARNING_RATE)
    trainer = pullback.trainer(ours, "cross_entropy", optim.Adam(lr=LEARNING_RATE), example=x, targets=y)
    for _ in range(5):
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        adam.step()
        assert trainer.update(x, y).item() == pytest.approx(loss.item(), rel=1e-5)


def test_batches():
    x, y = MODELS["mlp"].data()
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((512, 784), np.float32, (512,), np.int64)
    x, y = MODELS["chargpt"].data()
    assert x.shape == y.shape == (4, 256)
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])  # the next character


# ---- sides


def test_sides():
    found = scale.sides_of("mlp", ["zero1"], ["torch-fsdp"], 4, LAUNCHER, 2, {"torch-fsdp": "/its/python"})
    assert [(s.name, s.worker, s.arguments, s.python, s.threads, s.ranks, s.launcher) for s in found] == [
        ("zero1", "scale_pullback", ("mlp", "zero1", "profile"), sys.executable, 2, 4, LAUNCHER),
        ("torch-fsdp", "scale_torch", ("mlp", "fsdp"), "/its/python", 2, 4, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "mlp,lenet"], "no model 'lenet'; there are mlp, chargpt, wide"),
        (["--stages", "zero4"], "no stage 'zero4'; there are data, zero1, zero2, zero3"),
        (["--peers", "horovod"], "no peer 'horovod'; there are torch-ddp, torch-zero1, torch-fsdp, torch-fsdp-keep"),
        (["--mpirun", "/no/such/mpiexec"], "--mpirun /no/such/mpiexec: there is no such program"),
    ],
)
def test_options_that_name_nothing_are_refused(arguments, message):
    result = CliRunner().invoke(app, ["scale", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2 and message in " ".join(result.output.split())


@pytest.mark.slow
def test_steps_of_two_ranks_over_mpi():
    """The whole way: started by mpiexec, losses of one process with the same batch, what is told of the side."""
    try:
        launcher = find_launcher()
    except UserError as error:
        pytest.skip(error.message)
    sides = [scale.side_of("mlp", "zero1", 2, launcher, 1, told) for told in ("profile", "memory")]
    profiled, told = measure(sides, 0, 0.0, start=RunningJob, tell=True)
    assert (profiled.failure, told.failure) == (None, None)
    model = MODELS["mlp"]
    x, y = model.data()
    net = model.net(nn)
    net.load_state_dict(initial(net))
    alone = pullback.trainer(net, "cross_entropy", optim.Adam(lr=LEARNING_RATE), example=x, targets=y)
    losses = [alone.update(x, y).item() for _ in range(11)]
    assert profiled.results["step"] == pytest.approx(losses[1:], rel=1e-5)  # one step is made before
    for rank in profiled.about["ranks"]:  # half of the gradients, half of their sums, then half of the parameters
        assert rank["profile"]["sent"] == pytest.approx(1.5 * 4 * 118_282, rel=0.01)
    assert scale.formula(told, 2, gradients=False) == pytest.approx(4 * 118_282 * 2, rel=1e-3)


# ---- tables


def side(name: str, *rounds: float, **about: Any) -> Measurement:
    return Measurement(Side(name, "w"), first_seconds=1.0, rounds={"step": list(rounds)}, about=about)


def test_ratios_are_of_the_same_rounds():
    ours = [side("data", 1.0, 4.0, 9.0), side("zero3", 3.0, 8.0, 6.0)]
    theirs = [side("torch-ddp", 2.0, 4.0, 3.0), side("torch-fsdp", 6.0, 8.0, 24.0)]
    assert scale.ratios_of(ours, theirs) == {"data / torch-ddp": 1.0, "zero3 / torch-fsdp": 0.5}
    assert scale.ratios_of(ours, theirs[1:]) == {"zero3 / torch-fsdp": 0.5}
    table = scale.step_table("t", [*ours, *theirs], theirs)
    assert table.columns[3:5] == ["/ torch-ddp", "/ torch-fsdp"]
    assert table.rows[1][:5] == ["zero3", "6 s", "3 - 8 s", "2.00", "0.50"]


def test_a_side_that_failed_has_a_row():
    failed = Measurement(Side("torch-fsdp", "w"), failure="RuntimeError: no gloo")
    assert scale.step_table("t", [failed], [failed]).rows == [["torch-fsdp", "RuntimeError: no gloo", "", "", "", ""]]
    assert scale.memory_rows([failed], 2)[0][:2] == ["torch-fsdp", "RuntimeError: no gloo"]


def test_communication_is_the_mean_of_ranks():
    ranks = [
        {"profile": {"seconds": s, "in flight": f, "waited": w, "collectives": 3, "sent": 2048}}
        for s, f, w in ((0.010, 0.006, 0.001), (0.012, 0.002, 0.001))
    ]
    table = scale.communication_table("t", [side("data", 1.0, ranks=ranks)])
    assert table.rows == [["data", "11 ms", "4 ms", "1 ms", "75%", "3", "2 KiB"]]
    assert scale.hidden({"in flight": 0.0, "waited": 0.0}) == 0.0
    assert scale.hidden({"in flight": 1.0, "waited": 1.1}) == 0.0  # who waits sees it a little late


@pytest.mark.parametrize(
    ("stage", "without", "all_"),
    [("data", 1200, 1600), ("zero1", 667, 1067), ("zero2", 667, 801), ("zero3", 401, 535)],
)
def test_formula_of_zero(stage, without, all_):
    """Rajbhandari et al., ZeRO, 2020: of 100 parameters in float32, with Adam, on 3 ranks."""
    m = side(stage, ranks=[{"memory": {"whole": {"parameters": 400, "optimizer states": 800}}}])
    assert (scale.formula(m, 3, gradients=False), scale.formula(m, 3, gradients=True)) == (without, all_)


def test_memory_rows_and_verdict():
    def of(parameters: int, states: int, arena: int, held: int) -> Measurement:
        planned = {"parameters": parameters, "optimizer states": states, "inputs": 10**6, "arena": arena}
        memory = {"planned": planned, "whole": {"parameters": 4000, "optimizer states": 8000}, "held": held}
        return side("zero1", ranks=[{"memory": memory}, {"memory": memory | {"held": held - 50}}])

    good = of(4000, 4000, 4400, 12500)
    assert scale.memory_rows([good], 2) == [
        ["zero1", "4,000", "4,000", "8,000", "4,400", "12,400", "12,500", "1.03"],
    ]
    assert scale.memory_is_close(good, 2, is_bare=True)
    assert not scale.memory_is_close(of(4000, 4000, 4400, 14000), 2, is_bare=True)  # more than planned
    assert not scale.memory_is_close(of(4000, 8000, 4400, 16400), 2, is_bare=False)  # states that are not divided
    full = of(4000, 4000, 6000, 14000)  # activations, or gradients twice
    assert scale.memory_is_close(full, 2, is_bare=False) and not scale.memory_is_close(full, 2, is_bare=True)
