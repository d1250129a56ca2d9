"""The commands of the command line that say something of the installation, and the demo."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import pullback
from pullback import demo
from pullback.cli import app
from pullback.demo import fashion_mnist
from pullback.driver.cache import object_cache
from pullback.driver.folder import MARKER
from pullback.ir.errors import UserError
from pullback.runtime import library
from pullback.script import from_source

MODEL = """
from pullback.script import ir as I, relax as R

@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, "m"), "float32")):
        return R.nn.relu(x @ w)
"""


def call(*arguments: str, code: int = 0, **options: str) -> Result:
    """The command's result; it ends with this code, and never with a traceback."""
    result = CliRunner().invoke(app, [*arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PULLBACK_CACHE", raising=False)
    return tmp_path / "cache"


def test_version() -> None:
    assert call("--version").output == f"pullback {pullback.__version__}\n"
    assert metadata.version("pullback") == pullback.__version__


# ---- info


def information() -> dict[str, str]:
    lines = [line.strip() for line in call("info").stdout.splitlines()]
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines if "  " in line)


def test_info(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_cache().put("key", bytes(10**6))
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "2")
    found = information()
    assert found["pullback"] == f"{pullback.__version__}, in {Path(pullback.__file__).parent}"
    assert "vectors of" in found["CPU features"] and found["runtime library"].endswith(f", ABI {library.ABI}")
    assert found["cache"] == f"{object_cache().directory}: 1 entry, 1.0 MB"
    assert f"numpy {np.__version__}" in found["uses"] and "PULLBACK_NUM_THREADS=2" in found["environment"]
    assert found["tuned kernels"].startswith("none")


def test_info_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(package: str) -> str:
        if package == "matplotlib":
            raise metadata.PackageNotFoundError(package)
        return "1.2.3" if package == "pooch" else real(package)

    monkeypatch.setattr(metadata, "version", version)
    assert information()["extra demo"] == "matplotlib missing, pooch 1.2.3 (pip install 'pullback[demo]')"
    monkeypatch.setattr(metadata, "version", lambda package: "1.2.3")
    assert information()["extra demo"] == "matplotlib 1.2.3, pooch 1.2.3"


def test_info_where_something_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "library", library._OnFirstUse())
    monkeypatch.setattr(library, "NATIVE_DIRECTORY", tmp_path)
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    found = information()
    assert "C runtime is missing" in found["runtime library"] and found["threads"] == "none without the runtime library"
    assert found["cache"] == "off (PULLBACK_CACHE)"


# ---- cache


def test_the_cache_is_shown_and_cleared(directory: Path) -> None:
    for key in ("a", "b"):
        object_cache().put(key, bytes(600_000))
    folder = object_cache().directory
    others = {MARKER, "tuned-x-123456789012.json", "report.txt"}
    for name in others - {MARKER}:
        (folder / name).write_text("x")
    assert call("cache").output == f"{folder}: 2 entries, 1.2 MB, of 1,074 MB at the most\n"
    assert "remove 2 entries, 1.2 MB?" in call("cache", "clear", code=1, input="n\n").output
    assert object_cache().get("a") is not None
    call("cache", "clear", code=1, input="")  # nobody answers
    assert object_cache().get("a") is not None
    assert call("cache", "clear", input="y\n").output.endswith("removed 2 entries, 1.2 MB\n")
    assert {p.name for p in folder.iterdir()} == others
    object_cache().put("c", b"")
    assert call("cache", "clear", "--yes").output == "removed 1 entry, 0.0 MB\n"
    assert call("cache").output.startswith(f"{folder}: 0 entries, 0.0 MB")


def test_a_cache_that_is_off_or_gone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_cache()
    shutil.rmtree(directory)
    assert "0 entries" in call("cache").output
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    assert call("cache").output.endswith("it is off: PULLBACK_CACHE\n")
    monkeypatch.setenv("PULLBACK_CACHE", "perhaps")
    assert "error: PULLBACK_CACHE must be on or off" in call("cache", code=1).output


# ---- show


def test_show_memory_names_the_sizes(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    assert "main" in from_source(call("show", str(file)).stdout)
    failed = call("show", str(file), "--memory", code=1)
    assert failed.output == "error: main has the symbolic sizes m, n; got none\nhint: write --size m=64 --size n=64\n"
    assert "got m, x" in call("show", str(file), "--memory", "--size", "m=1", "--size", "x=1", code=1).output
    table = call("show", str(file), "--memory", "--size", "n=64", "--size", "m=2").stdout
    assert re.search(r"inputs +792\n", table) and re.search(r"together +[\d,]+\n", table)


def test_notes_do_not_mix_with_the_module(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        MODEL
        + "import numpy as np, pullback\npullback.compile(Model)['main'](np.ones((1, 3), 'f4'), np.ones((3, 1), 'f4'))"
    )
    result = call("show", str(file))
    assert result.stderr.startswith(f"note: {file} was read up to line 10") and "main" in from_source(result.stdout)


def test_show_of_a_script_that_trains_prints_the_module_alone(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import numpy as np, pullback\nfrom pullback import nn\n"
        "trainer = pullback.trainer(nn.Linear(3, 2), 'mse', 'sgd', example=np.ones((4, 3), 'f4'))\n"
        "trainer.fit(np.ones((8, 3), 'f4'), np.ones((8, 2), 'f4'), epochs=3)\nprint('trained')\n"
    )
    result = call("show", str(file))
    assert "backbone_loss_adjoint" in from_source(result.stdout) and "read up to line 4" in result.stderr


def test_output_that_nobody_reads(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    command = [sys.executable, "-m", "pullback", "show", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


# ---- demo


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The pictures that the demo is asked for; it does not train."""
    asked: list[object] = []
    monkeypatch.setattr(demo, "main", lambda epochs, picture, threads: asked.append(picture))
    return asked


def test_the_picture_of_the_demo(trained: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.plots, "can_draw", lambda: True)
    call("demo")
    call("demo", "--no-picture")
    call("demo", "--picture", "other.png")
    assert trained == [Path("fashion_mnist.png"), None, Path("other.png")]
    assert "one of them" in call("demo", "--picture", "other.png", "--no-picture", code=2).output


def test_the_demo_trains_without_matplotlib(trained: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.plots, "can_draw", lambda: False)
    assert (
        call("demo").stderr == "note: there will be no picture, which needs matplotlib: pip install 'pullback[demo]'\n"
    )
    assert call("demo", "--no-picture").stderr == "" and trained == [None, None]


def test_the_demo_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((128, 784), np.float32), rng.integers(0, 10, 128)
    data = fashion_mnist.FashionMNIST(x, y, x[:64], y[:64], fashion_mnist.CLASS_NAMES, "noise", whole=False)
    monkeypatch.setattr(fashion_mnist, "load", lambda: data)
    monkeypatch.chdir(tmp_path)
    output = call("demo", "--epochs", "2", "--no-picture").stdout
    assert "Data: noise" in output and "test accuracy: " in output and not list(tmp_path.glob("*.png"))


# ---- mistakes


@pytest.mark.parametrize(
    "error", [UserError("m", hint="h"), OSError(2, "No such file"), MemoryError("m"), ImportError("m")]
)
def test_errors_are_a_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(demo, "main", fail)
    assert call("demo", "--no-picture", code=1).stderr == f"error: {error}\n"
