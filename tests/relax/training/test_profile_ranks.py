"""The profile of a step that several ranks run together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.command import mpirun
from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime.ranks import run_local
from pullback.runtime.report import Report
from tests.relax.op.test_ccl import module_of

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 6)).astype("float32"), rng.integers(0, 3, 12)
SIZES = (6 * 5, 5, 5 * 3, 3)  # of the parameters


def trainer_of(distributed: Any) -> Any:
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return pullback.trainer(net, "cross_entropy", "adam", example=X, seed=0, distributed=distributed)


def profiled(ranks: int, distributed: Any = "data") -> list[Report]:
    return run_local(ranks, lambda rank: trainer_of(distributed).profile_step(X, Y))


def sizes_of(report: Report) -> dict[str, int]:
    """The bytes of a step's collectives, by name."""
    sizes: dict[str, int] = {}
    for time in report.collectives:
        sizes[time.name] = sizes.get(time.name, 0) + time.bytes
    return sizes


@pytest.mark.parametrize(
    ("stage", "sizes"),
    [
        ("data", {"allreduce": 4 * sum(SIZES) + 8}),  # the gradients, the loss and its divisor
        ("zero1", {"allreduce": 4 * sum(SIZES) + 8, "gather": 4 * sum(SIZES)}),
        ("zero2", {"allreduce": 8, "reduce-scatter": 4 * sum(SIZES), "gather": 4 * sum(SIZES)}),
    ],
)
def test_what_is_sent_by_stage(stage, sizes):
    for report in profiled(2, stage):
        assert len(report.ranks) == 2
        for own in report.ranks:
            assert sizes_of(own) == sizes and all(t.sent > 0 for t in own.collectives)


def test_parameters_in_pieces_are_gathered():
    (report, _) = profiled(2, "zero3")
    sizes = sizes_of(report)
    assert sizes["gather"] >= 4 * sum(SIZES) and sizes["reduce-scatter"] == 4 * sum(SIZES)


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_have_one_report_which_the_first_prints(ranks, capsys):
    reports = profiled(ranks)
    assert all(report == reports[0] for report in reports)
    text = capsys.readouterr().out
    assert text.count("with the call") == 1 and f"rank 0 of {ranks}" in text
    assert "µs in flight" in text and text.rstrip().splitlines()[-1].startswith(str(ranks - 1))
    assert [c.name for c in reports[0].ranks[1].calls] == [c.name for c in reports[0].calls]
    assert all(own.ranks == () and own.wall >= own.total for own in reports[0].ranks)


def test_collectives_are_in_flight_from_a_kernel_that_starts_them_to_one_that_waits(tmp_path):
    report = profiled(2)[0]
    report.chrome_trace(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    for rank in (0, 1):
        own = [e for e in events if e["pid"] == rank]
        starts, waits = ([e for e in own if e["name"].startswith(f"ccl_reduce_{of}")] for of in ("start", "wait"))
        flights = sorted((e for e in own if e["tid"] > 0), key=lambda e: e["ts"])
        assert len(flights) == len(starts) == len(waits) == 3
        for flight, start in zip(flights, starts, strict=True):
            assert start["ts"] <= flight["ts"] <= start["ts"] + start["dur"]
        ends = sorted(w["ts"] + w["dur"] for w in waits)
        assert all(f["ts"] + f["dur"] <= e for f, e in zip(sorted(flights, key=_end), ends, strict=True))
    # nobody has a sum before everybody started it
    for number in range(3):
        several = [own.collectives[number] for own in report.ranks]
        begins = [own.begin for own in report.ranks]
        last = max(b + t.begin for b, t in zip(begins, several, strict=True))
        assert all(b + t.end >= last - 1e-3 for b, t in zip(begins, several, strict=True))


def _end(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


def test_nothing_is_updated_and_the_summary_has_times(capsys):
    def run(rank: int) -> Any:
        trainer = trainer_of("zero2")
        before = trainer.export_params()
        trainer.profile_step(X, Y)
        after = trainer.export_params()
        capsys.readouterr()
        summary = trainer.summary()
        same = all(np.array_equal(before[n].numpy(), after[n].numpy()) for n in before)
        return same, trainer.steps, [row.share is None for row in summary.rows].count(False)

    found = run_local(2, run)
    assert [(same, steps) for same, steps, _ in found] == [(True, 0)] * 2
    assert all(shares >= 2 for _, _, shares in found)


def test_processes_of_an_mpi_job(tmp_path):
    try:
        launcher = mpirun.find()
    except UserError as error:
        pytest.skip(str(error))
    program = Path(__file__).parent / "profile_ranks_program.py"
    line = launcher.command(2, [], [sys.executable, str(program), str(tmp_path)], {})
    root = Path(pullback.__file__).parent.parent
    done = subprocess.run(line, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{k}.json").read_text()) for k in (0, 1))
    assert (first.pop("rank"), second.pop("rank")) == (0, 1)
    for said in (first, second):
        assert said.pop("waited") > 0.0
    assert first == second
    assert done.stdout.count("with the call") == 1 and "µs in flight" in done.stdout
    assert [{name for name, _, _ in own} for own in first["collectives"]] == [
        {"allreduce", "reduce-scatter", "gather"}
    ] * 2
    assert all(waited > 0 for waited in first["told"])
    assert (tmp_path / "trace0.json").read_text() == (tmp_path / "trace1.json").read_text()


def test_of_the_adjoint_each_rank_has_its_own_and_the_first_prints(capsys):
    reports = run_local(2, lambda rank: trainer_of("data").profile_adjoint(X, Y))
    assert all(report.calls and not report.ranks for report in reports)
    assert capsys.readouterr().out.count("with the call") == 1


def test_a_rank_whose_step_fails_ends_the_profile_of_all():
    labels = Y.copy()
    labels[8] = 7  # a row of the second rank
    with pytest.raises(ArgumentError, match="a target is neither a class"):
        run_local(2, lambda rank: trainer_of("data").profile_step(X, labels))


def test_one_rank_has_a_report_without_ranks():
    report = trainer_of("data").profile_step(X, Y)
    assert report.ranks == () and report.collectives == () and report.hidden is None


def test_more_collectives_than_there_was_room_for():
    from pullback.relax.op.namespace import ops

    count = 300

    def chain(x: Any) -> Any:
        for _ in range(count):
            x = ops.multiply(ops.ccl.allreduce(x), pullback.relax.const(0.5, "float32"))
        return x

    executable = pullback.compile(module_of(chain, (3,)), "llvm")
    x = pullback.tensor(np.ones(3, "float32"))
    for report in run_local(2, lambda rank: executable.function("main").profile(x, runs=2, together=True)):
        assert [len(own.collectives) for own in report.ranks] == [count] * 2
        assert {t.bytes for t in report.collectives} == {12}


def test_without_the_others_a_rank_tells_of_itself():
    from pullback.relax.op.namespace import ops

    executable = pullback.compile(module_of(lambda x: ops.ccl.allreduce(x), (3,)), "llvm")
    reports = run_local(2, lambda rank: executable.function("main").profile(pullback.tensor(np.ones(3, "float32"))))
    assert all(len(r.collectives) == 1 and r.ranks == () for r in reports)
