"""`python -m pullback simulate`: tables, files, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.scale.step import STAGES
from tests.command.test_train import NET

NETWORK = ("--network", "10Gb/10us")
CONFIG = """
model = "net.py:Net"
loss = "cross_entropy"
optimizer = { name = "adam", lr = 1e-3 }
data = "net.py:data"
fit = { batch_size = 16 }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with net.py, in which commands run."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def found(*arguments: str) -> list[dict]:
    return json.loads(call(*arguments, "--json").output)["predictions"]


def test_a_table() -> None:
    text = call("net.py:make", "--ranks", "2,8", *NETWORK, "--stages", "data,zero1").output
    assert "Net: 16 rows together" in text or "Net: 8 rows a rank" in text
    rows = [line.split()[:2] for line in text.splitlines() if line.strip().startswith(STAGES)]
    assert rows == [["data", "2"], ["data", "8"], ["zero1", "2"], ["zero1", "8"]]


def test_a_saved_step_tells_of_any_ranks(folder: Path) -> None:
    call("train.toml", "--ranks", "2-8", *NETWORK, "--rows", "40", "--stages", "data", "--save", "step.json")
    predictions = found("step.json", "--ranks", "2-4096", *NETWORK, "--stages", "data")
    assert [p["ranks"] for p in predictions] == [2**k for k in range(1, 13)]
    assert {p["rows"] for p in predictions} == {40}  # of 32 rows
    assert all(p["memory"]["parameters"] == 4 * (3 * 4 + 4 + 4 * 2 + 2) for p in predictions)


def test_a_batch_is_divided() -> None:
    predictions = found("net.py:make", "--ranks", "2,4", *NETWORK, "--batch", "8", "--stages", "data")
    assert [p["rows"] for p in predictions] == [4, 2]


def test_a_slower_network_takes_longer() -> None:
    call("net.py:make", "--ranks", "4", "--network", "1Gb/1us", "--stages", "data", "--save", "step.json")
    slow = ("1Gb/100us", "--slowest", "3")
    asked = (("1Gb/1us",), slow[:1], slow, (*slow, "--jitter", "50%"))
    same = ("step.json", "--ranks", "4", "--stages", "data", "--network")
    times = [found(*same, *options)[0]["seconds"] for options in asked]
    assert times == sorted(times) and times[1] > times[0] + 9e-5
    near = found(
        "step.json", "--ranks", "4", "--network", "1Gb/1ms", "--stages", "data", "--ranks-per-node", "4", "--local",
        "10Gb/1us",
    )  # fmt: skip
    assert near[0]["seconds"] < 5e-4


def test_a_picture(folder: Path) -> None:
    text = call("net.py:make", "--ranks", "2,4", *NETWORK, "--rows", "8", "--picture", "p.svg").output
    assert text.endswith("picture: p.svg\n")
    root = ElementTree.parse(folder / "p.svg").getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 4


def test_threads_are_those_of_before() -> None:
    from pullback.runtime.library import get_num_threads

    before = get_num_threads()
    predictions = json.loads(
        call("net.py:make", "--ranks", "2", *NETWORK, "--threads", "3", "--stages", "data", "--json").output
    )
    assert predictions["step"]["threads"] == 3 and get_num_threads() == before


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("net.py:make", "--ranks", "3"),
            "a batch of 16 rows does not divide among 3 ranks hint: --rows says how many",
        ),
        (("net.py:make", "--ranks", "1"), "ranks are numbers ≥ 2, got '1' hint: such as 8"),
        (("net.py:make", "--ranks", "2", "--stages", "zero"), "there is no stage 'zero'"),
        (("net.py:make", "--ranks", "2", "--network", "fast"), "a network is BANDWIDTH/LATENCY, got 'fast' hint: such"),
        (("net.py:make", "--ranks", "2", "--bucket", "4Mb"), "a size is a number of bytes, got '4Mb'"),
        (("net.py:make", "--ranks", "2", "--jitter", "x"), "a share is a number such as 5% or 0.05, got 'x'"),
        (("none.py:make", "--ranks", "2"), "there is no file none.py hint:"),
        (("net.py:make", "--ranks", "2", "--network", "here", "--local", "1Gb/1us"), "--network here is one node"),
        (("bad.json", "--ranks", "2"), "bad.json is no measured step"),
        (("step.json", "--ranks", "8"), "step.json tells of 4 ranks, not of 8 hint: measure with --rows"),
        (("net.py:make", "--ranks", "2,4", "--save", "two.json"), "--save keeps one step, but 2 were measured"),
        (("step.json", "--ranks", "4", "--rows", "3"), "--rows changes nothing of a step that was measured"),
        (
            ("step.json", "--ranks", "4", "--stages", "zero1"),
            "Net was not measured in stage 'zero1' hint: it was in data",
        ),
    ],
)
def test_what_is_refused(folder: Path, arguments: tuple[str, ...], problem: str) -> None:
    (folder / "bad.json").write_text("[]")
    if arguments[0] == "step.json":
        call("net.py:make", "--ranks", "4", *NETWORK, "--stages", "data", "--save", "step.json")
    network = () if "--network" in arguments else NETWORK
    lines = call(*arguments, *network, code=1).stderr.strip().splitlines()
    assert lines[0].startswith("error: ") and len(lines) == 2 and lines[1].startswith("hint: "), lines
    assert problem in " ".join(lines), lines


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rows", "8", "--batch", "16"),
        ("--json", "--picture", "p.svg"),
        ("--json", "--check"),
        ("--rows", "0"),
        ("--slowest", "0.5"),
    ],
)
def test_options_that_do_not_fit(arguments: tuple[str, ...]) -> None:
    call("net.py:make", "--ranks", "2", *NETWORK, *arguments, code=2)


def test_ranks_of_this_machine() -> None:
    """A network that is measured, and ranks that run: what they take is beside what was predicted."""
    text = call(
        "net.py:make", "--ranks", "2", "--network", "here", "--threads", "1", "--stages", "data,zero3", "--check"
    ).output
    rows = [line.split() for line in text.splitlines() if line.strip().startswith(STAGES)]
    assert [r[:2] for r in rows] == 2 * [["data", "2"], ["zero3", "2"]]
    assert all(len(r) == 5 and all(float(n) > 0 for n in r[2:]) for r in rows[2:])


def test_data_that_comes_in_batches(folder: Path) -> None:
    """The first batch, repeated to as many rows as a rank has."""
    more = "\n\ndef loader():\n    x, y = data(validation=False)\n    t, *_ = make()\n    return t, [(x[:5], y[:5])]\n"
    (folder / "net.py").write_text(NET + more)
    (prediction,) = found("net.py:loader", "--ranks", "2", *NETWORK, "--rows", "7", "--stages", "data")
    assert prediction["rows"] == 7 and np.isfinite(prediction["seconds"])
