"""`python -m pullback train … --restarts N`: a training that is killed goes on from its last checkpoint, and ends with
the very values and history of one that nobody disturbed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.command import launch
from pullback.command.train import BEST, HISTORY, LAST, place_in, steps_in
from tests.command.test_train import CONFIG, NET
from tests.launchers import environment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ranks are started on POSIX systems")

DEATHS = """

import os, signal
from pullback import callbacks
from pullback.runtime import files


def die(once="died"):
    if not os.path.exists(once):
        open(once, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


class Die(callbacks.Callback):
    '''Kills its process: when an epoch begins, when its first checkpoint (the best) or its second (the last) is to be
    saved, or when that has been written and not put in its place, or else after a step; once, or always.'''

    def __init__(self, epoch, when="begin", always=False):
        self.epoch, self.when, self.saves = epoch, when, 0
        self.die = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if always else die

    def on_train_begin(self, logs):
        save, replace = self.trainer.save, os.replace

        def dying_save(path):
            self.saves += self.now
            if self.now and (self.when, self.saves) in (("best", 1), ("last", 2)):
                self.die()
            save(path)

        def dying_replace(source, target):
            if self.now and self.when == "replace":
                self.die()
            replace(source, target)

        self.trainer.save, files.os.replace = dying_save, dying_replace
        self.now = False

    every_n_steps = 1

    def on_steps(self, step, logs):
        if self.when == "step" and step == self.epoch:
            self.die()

    def on_epoch_begin(self, epoch, logs):
        self.now = epoch == self.epoch
        if self.now and self.when == "begin":
            self.die()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET + DEATHS)
    (tmp_path / "c.toml").write_text(CONFIG.replace("epochs = 2", "epochs = 4"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(launch, "_wait", lambda seconds: None)
    return tmp_path


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def dying(**arguments: object) -> str:
    """The configuration with a callback that kills."""
    lines = "\n".join(
        f"{name} = {str(value).lower() if value is True else repr(value)}" for name, value in arguments.items()
    )
    Path("d.toml").write_text(Path("c.toml").read_text() + f'[callbacks."net.py:Die"]\n{lines}\n')
    return "d.toml"


def left(run: str) -> tuple[dict[str, bytes], dict[str, bytes], list[dict[str, str]]]:
    """What a run has left: its checkpoints, read without this package, and its history but for seconds."""
    files = [safetensors.numpy.load_file(Path(run) / name) for name in (LAST, BEST)]
    with (Path(run) / HISTORY).open(newline="") as file:
        lines = [{k: v for k, v in line.items() if k != "seconds"} for line in csv.DictReader(file)]
    last, best = ({name: value.tobytes() for name, value in found.items()} for found in files)
    assert {p.name for p in Path(run).iterdir()} == {LAST, BEST, HISTORY}, "nothing half written is left"
    return last, best, lines


@pytest.fixture
def undisturbed(folder: Path) -> tuple[dict[str, bytes], dict[str, bytes], list[dict[str, str]]]:
    call("c.toml", "--out", "whole")
    return left("whole")


@pytest.mark.parametrize("when", ["begin", "best", "last", "replace"])
def test_a_restart_ends_as_if_nothing_had_happened(when: str, undisturbed: object) -> None:
    result = call(dying(epoch=3, when=when), "--out", "parts", "--restarts", "2")
    assert left("parts") == undisturbed
    place = Path("parts") / LAST
    assert (
        "note: rank 0 was killed by SIGKILL (out of memory?); restart 1 of 2 in 1 s with 1 rank, "
        f"from {place} (epoch 2, step 4)\n"
    ) in result.stderr
    assert result.stdout.count("epoch 2:") == 1 and result.stdout.endswith("saved in parts\n")
    assert place_in(Path("parts")) == f"{place} (epoch 4, step 8)" and steps_in(Path("parts")) == 8


def test_it_goes_on_within_an_epoch(undisturbed: object) -> None:
    result = call(dying(epoch=4, when="step"), "--out", "parts", "--restarts", "1", "--set", "output.every_steps=3")
    assert left("parts") == undisturbed
    assert f"from {Path('parts') / LAST} (epoch 1, step 3)\n" in result.stderr, "the second of two steps is made again"


def test_before_the_first_checkpoint_it_begins_again(undisturbed: object) -> None:
    result = call(dying(epoch=1), "--out", "parts", "--restarts", "1")
    assert left("parts") == undisturbed and "with 1 rank, from the beginning\n" in result.stderr
    Path("died").unlink()
    call("c.toml", "--out", "parts", "--set", "optimizer.lr=0.3", "--overwrite")
    result = call("d.toml", "--out", "parts", "--restarts", "1", "--overwrite")
    assert left("parts") == undisturbed, "what was there before is no checkpoint of this training"
    assert "with 1 rank, from the beginning\n" in result.stderr


def test_it_goes_on_from_what_it_resumed(undisturbed: object) -> None:
    call("c.toml", "--out", "begun", "--epochs", "1")
    call(dying(epoch=2), "--resume", str(Path("begun") / LAST), "--out", "parts", "--restarts", "1")
    last, _, lines = left("parts")
    assert last == undisturbed[0] and [line["epoch"] for line in lines] == ["2", "3", "4"]  # type: ignore[index]


def test_without_progress_it_is_given_up() -> None:
    failed = call(dying(epoch=3, always=True), "--out", "run", "--restarts", "7", code=1)
    assert failed.stderr.count("note: ") == 2 and "restart 2 of 7" in failed.stderr
    assert (
        "error: rank 0 was killed by SIGKILL (out of memory?); two starts with 1 rank made no progress" in failed.stderr
    )
    assert f"hint: --resume run goes on, from {Path('run') / LAST} (epoch 2, step 4)" in failed.stderr


def test_mistakes_are_not_repeated() -> None:
    failed = call("c.toml", "--restarts", "3", "--set", "optimizer.lr=fast", code=1)
    assert failed.stderr.startswith("error: [optimizer]: ") and failed.stderr.count("error: ") == 1
    failed = call("c.toml", "--restarts", "3", "--set", "output.folder=7", code=1)
    assert failed.stderr.startswith("error: output.folder must be a path")
    failed = call("none.toml", "--ranks", "1", code=1)
    assert failed.stderr.startswith("error: there is no file none.toml")
    call("c.toml", "--out", "run", "--epochs", "1")
    assert "of an earlier training" in call("c.toml", "--out", "run", "--ranks", "1", code=1).stderr


def test_continue(undisturbed: object) -> None:
    for epochs in ("1", "1", "3", "4"):
        result = call("c.toml", "--continue", "--epochs", epochs, "--out", "parts")
    assert left("parts") == undisturbed and "saved in parts" in result.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: signal.Signals, code: int, folder: Path) -> None:
    """Ctrl-C and a scheduler's SIGTERM save the last step, and nothing is started again."""
    command = [sys.executable, "-m", "pullback", "train", "c.toml", "--out", "run", "--restarts", "5"]
    with subprocess.Popen(
        [*command, "--epochs", "1000000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a background job ignores
    ) as process:  # fmt: skip
        while not (folder / "run" / LAST).exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        assert process.stderr is not None
        errors = process.stderr.read()
    assert process.returncode == code and errors == "interrupted: --resume run goes on\n"
    done = steps_in(Path("run"))
    call("c.toml", "--resume", "run", "--epochs", str(done // 2 + 2))
    assert steps_in(Path("run")) > done > 0


USAGE = {
    ("--min-ranks", "1"): "--min-ranks needs --ranks",
    ("--hosts", "a"): "--hosts needs --ranks",
    ("--mpirun", "mpiexec"): "--mpirun needs --ranks",
    ("--resume", "run", "--continue"): "--resume and --continue: one of them",
    ("--ranks", "0"): "--ranks",
    ("--restarts", "-1"): "--restarts",
}


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_usage(arguments: tuple[str, ...]) -> None:
    assert USAGE[arguments] in " ".join(call("c.toml", *arguments, code=2).stderr.replace("│", "").split())


def test_what_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--min-ranks 3 is more than --ranks 2" in call("c.toml", "--ranks", "2", "--min-ranks", "3", code=1).stderr
    failed = call("c.toml", "--ranks", "2", "--mpirun", "nowhere", code=1)
    assert "--mpirun nowhere: there is no such program" in failed.stderr
    assert "4 ranks do not fit on a:1" in call("c.toml", "--ranks", "4", "--hosts", "a:1", code=1).stderr
    monkeypatch.setenv("PMI_RANK", "0")
    assert "this process is one already" in call("c.toml", "--ranks", "2", code=1).stderr
