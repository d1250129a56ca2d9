"""A rank that is killed ends all, at once and with a message; no checkpoint is lost, and a restart ends as a training
that nobody disturbed, bit for bit. Two ranks, started by a launcher of MPI."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.command import launch
from pullback.command.launch import Ranks, Start
from pullback.command.mpirun import Launcher
from pullback.command.train import BEST, HISTORY, LAST, steps_in
from tests.launchers import environment, installed, python

KILLED = "rank 1 was killed by SIGKILL (out of memory?)"
MOST_SECONDS = 10.0  # from the death of a rank to the end of all

COLLECTIVES = """
import os, signal, sys, threading, time
import numpy as np
from pullback.command.rank_reports import connect
from pullback.runtime import ranks


def die():
    with open("killed", "w") as file:
        file.write(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


connect()
mine = ranks.start()
assert mine.size == 2
kind, whole = sys.argv[1], 100_000
given = {"gather_pieces": whole // 2}.get(kind, whole)
shape = {"reduce_pieces": whole // 2}.get(kind, whole)
arrays, small = [np.ones(given, np.float32)], [np.ones(3, np.float32)]
for step in range(1_000_000_000):
    if step == 20 and mine.rank == 1:
        threading.Timer(0.05, die).start()
    mine.collective(kind, arrays, [(shape,)])
"""


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    return installed()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "_wait", lambda seconds: None)
    return tmp_path


@pytest.mark.parametrize("kind", ["reduce", "reduce_pieces", "gather_pieces", "broadcast", "all_to_all"])
def test_a_rank_is_killed_in_a_collective(kind: str, launcher: Launcher, capfd: pytest.CaptureFixture[str]) -> None:
    Path("collectives.py").write_text(COLLECTIVES)
    ending = Start(Ranks(2, launcher), python("collectives.py", kind)).run()
    assert time.time() - float(Path("killed").read_text()) < MOST_SECONDS
    assert ending.reason == KILLED, capfd.readouterr().err


TRAINING = """
import os, random, signal, threading
import numpy as np
import pullback
from pullback import callbacks, nn, optim
from pullback.runtime import files, ranks


def make(distributed="data", epochs=4, kill="", rank=1):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 20)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    net = nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Dropout(0.25), nn.Linear(33, 2))
    trainer = pullback.trainer(net, "cross_entropy", optim.AdamW(lr=0.01), example=x, distributed=distributed)
    arguments = {"x": x, "y": y, "validation": (x[:30], y[:30]), "epochs": epochs, "batch_size": 16}
    return trainer, arguments | ({"callbacks": [Die(kill, rank)]} if kill else {})


class Die(callbacks.Callback):
    '''Kills a rank in epoch 3, once: when it begins, at some moment in its steps, or in one of its saves.'''

    def __init__(self, when, rank):
        self.when, self.is_mine, self.now = when, ranks.current().rank == rank, False

    def die(self):
        if not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_begin(self, logs):
        if not self.is_mine:
            return
        save, saves = self.trainer.save, []

        def dying(path):
            saves.append(path)
            if self.now and self.when == "save":
                threading.Timer(random.Random().uniform(0, 0.02), self.die).start()
            save(path)

        self.trainer.save = dying

    def on_epoch_begin(self, epoch, logs):
        self.now = self.is_mine and epoch == 3
        if self.now and self.when == "begin":
            self.die()
        if self.now and self.when == "steps":
            threading.Timer(random.Random().uniform(0, 0.02), self.die).start()

    def on_epoch_end(self, epoch, logs):
        if self.now and self.when == "steps":
            self.die()  # if the steps were too quick for it
"""


def train(*arguments: str, code: int = 0) -> Result:
    Path("net.py").write_text(TRAINING)
    result = CliRunner().invoke(app, ["train", "net.py", "--ranks", "2", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def left(run: str) -> tuple[Any, ...]:
    """What a run has left: its checkpoints, read without this package, and its history."""
    found = [safetensors.numpy.load_file(Path(run) / name) for name in (LAST, BEST)]
    with (Path(run) / HISTORY).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {p.name for p in Path(run).iterdir()} == {LAST, BEST, HISTORY}, "nothing half written is left"
    return ({name: value.tobytes() for name, value in tensors.items()} for tensors in found), lines


STAGES = ("data", "zero1", "zero2", "zero3")


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_is_killed_in_a_stage(stage: str, launcher: Launcher) -> None:
    """In the steps of an epoch, and in the saves at its end: each restart goes on from the last whole checkpoint."""
    train("--set", f"distributed={stage}", "--out", "whole")
    whole = [*left("whole")[0]], left("whole")[1]
    for when in ("steps", "save"):
        Path("killed").unlink(missing_ok=True)
        began = time.monotonic()
        result = train("--set", f"distributed={stage}", "--set", f"kill={when}", "--out", when, "--restarts", "1")
        assert f"note: {KILLED}; restart 1 of 1 in 1 s with 2 ranks, from {Path(when) / LAST} (epoch " in result.stderr
        assert ([*left(when)[0]], left(when)[1]) == whole, when
        assert time.monotonic() - began < 240


def test_no_checkpoint_is_lost(launcher: Launcher) -> None:
    """Rank 0 dies, which writes most, and nobody starts it again: the last checkpoint is that of the epoch before."""
    failed = train("--set", "kill=begin", "--set", "rank=0", "--out", "run", code=1)
    assert f"error: {KILLED.replace('1', '0')}\nhint: --resume run goes on, from" in failed.stderr
    assert steps_in(Path("run")) == 12
    train("--resume", "run")
    whole = train("--out", "whole")
    assert "saved in whole" in whole.stdout
    assert [*left("run")[0]] == [*left("whole")[0]] and left("run")[1] == left("whole")[1]


def test_fewer_ranks_go_on(launcher: Launcher) -> None:
    """Two starts in a row die before their first epoch ends, and one rank may go on alone."""
    text = TRAINING.replace('if not os.path.exists("killed"):', "if ranks.current().size > 1:").replace(
        "epoch == 3", "epoch == 1"
    )
    Path("other.py").write_text(text)
    result = CliRunner().invoke(
        app, ["train", "other.py", "--ranks", "2", "--min-ranks", "1", "--restarts", "4", "--set", "kill=begin"]
    )
    assert result.exit_code == 0, result.output
    assert result.stderr.count(f"note: {KILLED}") == 2 and "with 1 rank instead of 2, from the beg" in result.stderr
    assert steps_in(Path("runs/other")) == 24


def test_a_mistake_ends_all_ranks_and_is_told_once(launcher: Launcher) -> None:
    failed = train("--set", "fit.batch_size=15", "--restarts", "3", code=1)
    assert (
        failed.stderr.count("a batch of 15 rows cannot be divided among 2 ranks") == 1 and "note:" not in failed.stderr
    )


def test_a_trainer_of_one_process(launcher: Launcher) -> None:
    Path("alone.py").write_text(TRAINING.replace(", distributed=distributed", ""))
    failed = CliRunner().invoke(app, ["train", "alone.py", "--ranks", "2"])
    assert failed.exit_code == 1 and "a trainer that each of the 2 ranks would train alone" in failed.stderr
    assert os.listdir("runs") == [] if Path("runs").exists() else True
