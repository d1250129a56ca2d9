"""`python -m pullback train`: what is trained, resumed, changed by --set, and left in the folder of a run."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.command.train import BEST, HISTORY, LAST
from pullback.relax.training.trainer import Trainer

NET = """
import numpy as np
import pullback
from pullback import nn, optim
from pullback.script import ir as I, relax as R


class Net(nn.Module):
    def __init__(self, width=4):
        self.hidden, self.out = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


@I.ir_module
class Script:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return x @ w


def data(rows=32, seed=0, validation=True):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3), np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return (x, y, x[:8], y[:8]) if validation else (x, y)


def make(lr=0.1, width=4, optimizer=None, arguments=False):
    x, y = data(validation=False)
    trainer = pullback.trainer(Net(width), "cross_entropy", optim.SGD(lr=lr), example=x)
    given = {"batch_size": 16, "epochs": 2}
    return (trainer, {"x": x, "y": y, **given}) if arguments else (trainer, x, y, given)


def wrong():
    return 7


def fails():
    raise KeyError("column")


number = 7
"""
CONFIG = """
loss = "cross_entropy"

[model]
name = "net.py:Net"
width = 5

[optimizer]
name = "sgd"
lr = 0.1

[data]
name = "net.py:data"
rows = 16

[fit]
epochs = 2
batch_size = 8
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "c.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def history(run: str) -> list[dict[str, str]]:
    with (Path(run) / HISTORY).open(newline="") as file:
        return list(csv.DictReader(file))


def contents(file: Path | str) -> dict[str, bytes]:
    """The tensors of a checkpoint by name, read without this package."""
    return {name: value.tobytes() for name, value in safetensors.numpy.load_file(file).items()}


def params(file: Path) -> bytes:
    return b"".join(data for name, data in sorted(contents(file).items()) if name.startswith("param."))


def test_a_configuration(folder: Path) -> None:
    result = call("c.toml")
    assert "saved in runs/c\n" in result.output and result.output.count("epoch ") == 2, result.output
    assert {p.name for p in Path("runs/c").iterdir()} == {LAST, BEST, HISTORY}
    rows = history("runs/c")
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"]) and 0 <= float(rows[0]["val_accuracy"]) <= 1


def test_a_function_and_its_settings(folder: Path) -> None:
    call("net.py:make", "--out", "a")
    call("net.py", "--set", "lr=0.1", "--set", "arguments=true", "--out", "b")
    assert params(Path("a") / LAST) == params(Path("b") / LAST) and len(history("a")) == 2
    call("net.py", "--set", "lr=0.2", "--set", "fit.epochs=1", "--set", "output.monitor=loss")
    assert len(history("runs/net")) == 1 and params(Path("runs/net") / LAST) != params(Path("a") / LAST)


def test_it_goes_on_as_if_it_had_never_stopped(folder: Path) -> None:
    call("c.toml", "--epochs", "4", "--out", "whole")
    call("c.toml", "--epochs", "2", "--out", "parts")
    done = call("c.toml", "--resume", "parts", "--epochs", "4")
    assert "saved in parts\n" in done.output and [row["epoch"] for row in history("parts")] == ["1", "2", "3", "4"]
    assert contents("parts/last.safetensors") == contents("whole/last.safetensors")
    assert contents("parts/best.safetensors") == contents("whole/best.safetensors")
    assert "4 epochs are done already" in call("c.toml", "--resume", "parts", "--epochs", "4").output
    call("c.toml", "--resume", str(Path("parts") / LAST), "--epochs", "5", "--out", "elsewhere")
    assert [row["epoch"] for row in history("elsewhere")] == ["5"] and len(history("parts")) == 4


def test_the_best_epoch_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rate that is too large the loss goes up: the first epoch stays the best, also when the run is resumed."""
    call("c.toml", "--epochs", "1", "--out", "run", "--set", "optimizer.lr=0.01", "--set", "fit.shuffle=false")
    first = contents("run/last.safetensors")
    assert contents("run/best.safetensors") == first
    call("c.toml", "--resume", "run", "--epochs", "3", "--set", "optimizer.lr=50.0")
    values = [float(row["val_loss"]) for row in history("run")]
    assert values[0] == min(values) and contents("run/best.safetensors") == first


def test_an_earlier_training_is_not_overwritten(folder: Path) -> None:
    call("c.toml", "--epochs", "1")
    before = (Path("runs/c") / LAST).read_bytes()
    failed = call("c.toml", "--epochs", "1", code=1)
    assert "runs/c has last.safetensors, best.safetensors, history.csv of an earlier training" in failed.output
    assert "--overwrite replaces them" in failed.output and (Path("runs/c") / LAST).read_bytes() == before
    call("c.toml", "--epochs", "1", "--overwrite", "--set", "model.width=6")
    assert (Path("runs/c") / LAST).read_bytes() != before and len(history("runs/c")) == 1


def test_control_c_saves_what_was_trained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Trainer._steps

    def interrupted(self: Trainer, *arguments: Any) -> Any:
        if self.epochs == 1:  # in the second epoch, after a step
            self.update(np.ones((8, 3), np.float32), np.ones(8, np.int64))
            raise KeyboardInterrupt
        return steps(self, *arguments)

    monkeypatch.setattr(Trainer, "_steps", interrupted)
    result = call("c.toml", "--out", "run", code=130)
    assert "interrupted: --resume run goes on\n" in result.stderr and len(history("run")) == 1
    assert contents("run/last.safetensors") != contents("run/best.safetensors")
    monkeypatch.setattr(Trainer, "_steps", steps)
    call("c.toml", "--resume", "run")
    assert [row["epoch"] for row in history("run")] == ["1", "2"]


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")
def test_control_c_in_a_shell(folder: Path) -> None:
    command = [sys.executable, "-m", "pullback", "train", "c.toml", "--out", "run"]
    with subprocess.Popen(
        [*command, "--epochs", "1000000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a background job ignores
    ) as process:  # fmt: skip
        while not (folder / "run" / HISTORY).exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        errors = process.stderr.read().decode()
    assert process.returncode == 130 and errors == "interrupted: --resume run goes on\n"
    with safetensors.safe_open("run/last.safetensors", "numpy") as file:
        done = int(file.metadata()["epochs"])
    call("c.toml", "--resume", "run", "--epochs", str(done + 1))
    epochs = [int(row["epoch"]) for row in history("run")]
    assert epochs == sorted(set(epochs)) and epochs[-1] == done + 1 >= 2
    assert len(epochs) >= done  # the signal may come when an epoch is done, and not written down yet


def test_control_c_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pullback.command.train.job_of", interrupted)
    assert call("c.toml", code=130).output == ""


def test_a_step_that_fails_loses_nothing(folder: Path) -> None:
    call("net.py", "--out", "run", "--epochs", "1")
    text = NET.replace("y = (x[:, 0] > 0).astype(np.int64)", "y = np.full(rows, 9)")
    (folder / "bad.py").write_text(text)
    failed = call("bad.py", "--resume", "run", code=1)
    assert "error: " in failed.output and len(history("run")) == 1


SETTINGS = {
    "optimizer.learning_rate=1": "[optimizer]: SGD(): argument 'learning_rate' does not exist\nhint: did you mean lr?",
    "optimizer.lr=fast": "[optimizer]: ",
    "optimiser.lr=1": "there is no section 'optimiser': did you mean optimizer?\nhint: the sections are model, loss",
    "optimizer": "--set takes NAME=VALUE, got 'optimizer'",
    "optimizer=adam": "--set optimizer names no setting",
    "optimizer.lr.x=1": "--set optimizer.lr.x: optimizer.lr is 0.1, which has no settings",
    "optimizer.name=adan": "optimizer: there is no 'adan': did you mean",
    "optimizer.name=7": "optimizer: there is no 7",
    "loss.name=cross_entropi": "loss: there is no 'cross_entropi': did you mean cross_entropy?",
    "loss.smoothing=1": "[loss]: CrossEntropyLoss(): argument 'smoothing' does not exist",
    "model.depth=2": "model: Net(): argument 'depth' does not exist\nhint: its arguments are (width=4)",
    "model.name=net.py:Nett": "model: net.py defines no 'Nett': did you mean Net?; it has: ",
    "model.name=nets.py:Net": "model: there is no file nets.py\nhint: . has: net.py",
    "model.name=Net": "model must be FILE.py:NAME, got 'Net'",
    "model.name=net.py:number": "model: net.py:number is a int",
    "model.width=many": "model: a size must be an int ≥ 0, got 'many'",
    "model.name=net.py:wrong": "model: wrong(): argument 'width' does not exist",
    "data.name=net.py:wrong": "[data]: wrong(): argument 'rows' does not exist",
    "data.row=3": "[data]: data(): argument 'row' does not exist\nhint: did you mean rows?",
    "fit.epoch=3": "[fit] has no setting 'epoch'\nhint: did you mean epochs?",
    "fit.batchsize=3": "[fit] has no setting 'batchsize'\nhint: did you mean batch_size?",
    "fit.epochs=0": "fit.epochs must be an int ≥ 1, got 0",
    "fit.batch_size=all": "batch_size must be an int ≥ 1, got 'all'",
    "trainer.presicion=bfloat16": "[trainer] has no setting 'presicion'\nhint: did you mean precision?",
    "trainer.precision=int8": "[trainer]: ",
    "callbacks.EarlyStoping.x=1": "callbacks.EarlyStoping: there is no 'EarlyStoping': did you mean EarlyStopping?",
    "callbacks.EarlyStopping.patients=1": "[callbacks.EarlyStopping]: EarlyStopping(): argument 'patients' does not",
    "callbacks.EarlyStopping=1": "callbacks.EarlyStopping must be a table, got 1",
    "output.monitor=val_acuracy": "there will be no 'val_acuracy'; there will be: loss, val_loss, val_accuracy: did",
    "output.monitor=7": "monitor must be the name of a metric, got 7",
    "output.path=x": "[output] has no setting 'path'\nhint: it has: folder, monitor, mode, every_steps",
    "output.mode=most": 'mode must be "auto", "min" or "max", got \'most\'',
    "output.every_steps=0": "output.every_steps must be an int ≥ 1, got 0",
    "output.folder=7": "output.folder must be a path, got 7",
}


@pytest.mark.parametrize("text", SETTINGS)
def test_wrong_settings(text: str) -> None:
    failed = call("c.toml", "--set", text, code=1)
    assert failed.stderr.startswith("error: ") and SETTINGS[text] in failed.stderr
    assert not Path("runs/c/last.safetensors").exists()


def test_a_callback_of_a_configuration() -> None:
    Path("c.toml").write_text(CONFIG + "[callbacks.EarlyStopping]\npatience = 2\nmonitor = 'val_accuracy'\n")
    call("c.toml", "--epochs", "40", "--set", "fit.metrics=['f1']", "--set", "callbacks.EarlyStopping.min_delta=1.0")
    assert len(history("runs/c")) == 3 and "val_f1" in history("runs/c")[0]


def test_a_monitor_of_the_best_epoch() -> None:
    call("c.toml", "--epochs", "3", "--set", "output.monitor=loss", "--set", "output.mode=max")
    first = call("c.toml", "--epochs", "1", "--out", "one") and contents("one/last.safetensors")
    assert contents("runs/c/best.safetensors") == first != contents("runs/c/last.safetensors")


SOURCES = {
    ("none.toml",): "there is no file none.toml",
    ("none.py:make",): "there is no file none.py",
    ("net.py:mak",): "net.py has no function 'mak': did you mean make?; it has: data, make, wrong, fails",
    ("net.py:number",): "net.py: number is a int, not a function",
    (
        "net.py:wrong",
    ): "net.py: wrong returned an object of type int, not a trainer and its data\nhint: return (trainer, x, y), or",
    ("net.py:data",): "net.py: data returned a tuple of ndarray, ndarray, ndarray, ndarray, not a trainer and its data",
    ("net.py:fails",): "net.py, line ",
    ("net.py", "--set", "rate=1"): "net.py: make(): argument 'rate' does not exist",
    ("net.py", "--set", "optimizer.lr=1"): "--set optimizer.lr: there is no section 'optimizer'",
    ("net.txt",): "net.txt is neither CONFIG.toml nor FILE.py:make",
    ("c.toml", "--resume", "nowhere"): "there is no checkpoint nowhere",
    ("c.toml", "--resume", "."): ". has no last.safetensors",
    ("c.toml", "--resume", "net.py"): "net.py: it ",
    ("broken.toml",): "broken.toml is not TOML",
    ("short.toml",): "short.toml lacks loss, optimizer, data",
    ("odd.toml",): "fit must be a table, got 3",
    ("other.toml",): "there is no section 'modell': did you mean model?",
}


@pytest.mark.parametrize("arguments", SOURCES, ids=" ".join)
def test_wrong_sources(arguments: tuple[str, ...]) -> None:
    files = {"net.txt": NET, "broken.toml": "[model", "short.toml": 'model = "net.py:Net"', "odd.toml": "fit = 3",
             "other.toml": "[modell]"}  # fmt: skip
    for name, text in files.items():
        Path(name).write_text(text)
    failed = call(*arguments, code=1)
    assert failed.stderr.startswith("error: ") and SOURCES[arguments] in failed.stderr


def test_usage() -> None:
    assert call(code=2) and call("c.toml", "--epochs", "0", code=2) and call("c.toml", "--epochs", "x", code=2)


# ---- data


def configured(data: str, model: str = "net.py:Script", loss: str = "cross_entropy") -> None:
    Path("d.toml").write_text(f'model = "{model}"\nloss = "{loss}"\noptimizer = "sgd"\n[data]\n{data}\n')


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 3), np.float32), rng.integers(0, 2, 12)
    np.save("x.npy", x), np.save("y.npy", y)
    np.savez("d.npz", x=x, y=y, x_val=x[:4], y_val=y[:4], more=y)
    np.savez("keras.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    rows = [["a", "b", "kind", "c"], *([*map(str, r[:2]), str(k), str(r[2])] for r, k in zip(x, y, strict=True))]
    Path("t.csv").write_text("\n".join(map(";".join, rows)))
    return {"x": x, "y": y}


DATA = {
    "files": 'x = "x.npy"\ny = "y.npy"',
    "archive": 'file = "d.npz"',
    "names": 'file = "d.npz"\ny = "more"',
    "names of others": 'file = "keras.npz"',
    "table": 'csv = "t.csv"\ntarget = "kind"\ndelimiter = ";"\nvalidation_csv = "t.csv"',
}


def test_all_kinds_of_data_give_the_same(arrays: dict[str, np.ndarray]) -> None:
    trained = {}
    for name, text in DATA.items():
        configured(text)
        call("d.toml", "--out", name)
        trained[params(Path(name) / LAST)] = name
        assert ("val_loss" in history(name)[0]) == (name != "files")
    assert len(trained) == 1


def test_a_table_of_numbers(arrays: dict[str, np.ndarray]) -> None:
    """The target of a regression has an axis for it, as the model's output."""
    configured('csv = "t.csv"\ntarget = ["c", "b"]\ncolumns = ["a", "b", "c"]\ndelimiter = ";"', loss="mse")
    call("d.toml", "--epochs", "3")
    losses = [float(row["loss"]) for row in history("runs/d")]
    assert losses == sorted(losses, reverse=True)


WRONG_DATA = {
    "": "[data] does not say where the data are",
    'file = "d.npz"\ncsv = "t.csv"': "[data] says where the data are by file, csv",
    'x = "x.npy"': "[data] has x and no y",
    'x = "z.npy"\ny = "y.npy"': "data.x: there is no file z.npy\nhint: . has: x.npy, y.npy",
    'x = "sub/z.npy"\ny = "y.npy"': "there is no folder sub; paths are relative to the configuration",
    'x = "t.csv"\ny = "y.npy"': "data.x: t.csv is no .npy file",
    'x = "d.npz"\ny = "y.npy"': 'data.x: d.npz holds several arrays\nhint: file = "d.npz"',
    'x = 3\ny = "y.npy"': "data.x must be a path, got 3",
    'file = "t.csv"': "data.file: t.csv cannot be read",
    'file = "x.npy"': "data.file: x.npy cannot be read: it holds one array",
    'file = "d.npz"\ny = "labels"': "data.file: d.npz has no array 'labels'; it has: x, y, x_val, y_val, more",
    'file = "d.npz"\nlabels = "y"': "[data] has no setting 'labels'",
    'csv = "t.csv"\ndelimiter = ";"': "[data] has csv and no target",
    'csv = "t.csv"\ntarget = "kin"\ndelimiter = ";"': "has no column 'kin': did you mean kind?; it has: a, b, kind, c",
    'csv = "words.csv"\ntarget = "kind"': "words.csv, row 2, kind is 'cat'",
    'csv = "ragged.csv"\ntarget = "b"': "ragged.csv, row 1 has 1 cells, the heading 2",
    'csv = "empty.csv"\ntarget = "b"': "empty.csv has no",
    'csv = "t.csv"\ntarget = "kind"\ndelimiter = ";;"': "data.delimiter must be one character",
    'name = "net.py:wrong"': "data: net.py:wrong returned a int\nhint: return (x, y)",
    'name = "net.py:fails"': "net.py, line ",
}


@pytest.mark.parametrize("text", WRONG_DATA)
def test_wrong_data(text: str, arrays: dict[str, np.ndarray]) -> None:
    Path("words.csv").write_text("a,kind\n1,2\n2,cat\n")
    Path("ragged.csv").write_text("a,b\n1\n")
    Path("empty.csv").write_text("")
    configured(text)
    failed = call("d.toml", code=1)
    assert failed.stderr.startswith("error: ") and WRONG_DATA[text] in failed.stderr


def test_values_of_settings() -> None:
    from pullback.command.configuration import setting

    texts = ["a.b=1e-4", "a=true", "a=[1, 2]", 'a="x"', "a=x", "a=x=y", "a=", "a.b={c = 1}"]
    values = [1e-4, True, [1, 2], "x", "x", "x=y", "", {"c": 1}]
    assert [setting(text)[1] for text in texts] == values and json.dumps(values)


def test_tables_with_names_are_made() -> None:
    Path("d.toml").write_text(
        CONFIG.replace("lr = 0.1", 'momentum = 0.9\n[optimizer.lr]\nname = "StepLR"\nlr = 0.1\nstep_size = 3')
    )
    call("d.toml", "--epochs", "1")
    failed = call("d.toml", "--overwrite", "--set", "optimizer.lr.step=3", code=1)
    assert "[optimizer.lr]: StepLR(): argument 'step' does not exist" in failed.stderr
