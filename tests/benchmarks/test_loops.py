"""The benchmark of loops: its options, its table, and what it says of sides that differ. No peer is needed."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from benchmarks import loops
from benchmarks.__main__ import app
from benchmarks.harness import Measurement, Side, measure
from benchmarks.numerics import KERNELS


def measurement(name: str, norms: dict[str, list[float]], rounds: dict[str, list[float]]) -> Measurement:
    return Measurement(Side(name, "worker"), results=norms, rounds=rounds, about={"first calls": {"lu": 0.5}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernels", "lu,qr"], "no kernel 'qr'; there are jacobi_2d,"),
        (["--peers", "torch"], "no peer 'torch'; there are jax"),
        (["--sizes", "L"], "--sizes is one of S, M"),
        (["--peers", "", "--peer-python", f"jax={sys.executable}"], "none of --peers"),
    ],
)
def test_options_that_name_nothing_are_refused(arguments, message):
    result = CliRunner().invoke(app, ["loops", *arguments], env={"COLUMNS": "300", "NO_COLOR": "1"})
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_options_reach_the_run(monkeypatch):
    found = []
    monkeypatch.setattr(loops, "run", lambda *arguments: found.append(arguments) or True)
    arguments = ["--kernels", "lu", "--sizes", "S", "--threads", "1", "--peer-python", f"jax={sys.executable}"]
    result = CliRunner().invoke(app, ["loops", *arguments])
    assert result.exit_code == 0, result.output
    ((names, sizes, peers, _, _, threads, _, pythons),) = found
    assert (names, sizes, peers, threads, pythons) == (["lu"], "S", ["jax"], 1, {"jax": sys.executable})


def test_table():
    """Ratios are medians over the rounds; the mean is geometric, over the kernels that both have."""
    ours = measurement("pullback", {}, {"lu": [1e-3, 2e-3, 3e-3], "adi": [2e-3], "rk4": [1e-3]})
    jax = measurement("jax", {}, {"lu": [4e-3, 4e-3, 4e-3], "adi": [1e-3]})
    lu, adi, rk4, mean = loops.rows(["lu", "adi", "rk4"], "S", ours, [jax])
    assert lu == ["LU factorization, in place", "n 60", "2 ms", "4 ms", "0.50", "500 ms", "500 ms"]
    assert adi[2:5] == ["2 ms", "1 ms", "2.00"]
    assert rk4[2:5] == ["1 ms", "", ""]
    assert mean == ["geometric mean", "", "", "", "1.00", "", ""]
    assert len(mean) == len(loops.columns([jax]))


def test_sides_that_differ_are_told(capsys):
    ours = measurement("pullback", {"lu": [1.0, 2.0]}, {})
    assert loops.agrees(measurement("jax", {"lu": [1.0 + 1e-8, 2.0], "adi": [3.0, 4.0]}, {}), ours)
    assert not loops.agrees(measurement("jax", {"lu": [1.0, 2.0 + 1e-4]}, {}), ours)
    assert "compute different things for lu" in " ".join(capsys.readouterr().out.split())


def test_the_worker_computes_values_and_gradients():
    """Norms of the value and the gradients together, of every kernel at small sizes."""
    names = ["lu", "adaptive"]
    (found,) = measure([Side("pullback", "numerics_pullback", (",".join(names), "S"), threads=1)], 1, 0.01)
    assert found.failure is None and not found.failures
    assert set(found.rounds) == set(found.about["first calls"]) == set(names)
    value = KERNELS["lu"].reference("S", KERNELS["lu"].inputs("S"))
    assert found.results["lu"][0] > abs(value)
