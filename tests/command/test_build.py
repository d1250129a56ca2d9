"""`python -m pullback build` and `targets`: libraries of trainers, and what is told when there can be none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.deploy.targets import PLATFORMS
from tests.command.test_train import NET
from tests.deploy.exported import Instance, Refused, kept

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "deploy" / "train.py"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with net.py, in which commands run."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*arguments: str) -> str:
    """The two lines of a command that ends with 1, the second a hint; it has written nothing."""
    before = sorted(Path.cwd().rglob("*"))
    lines = call(*arguments, code=1).stderr.strip().splitlines()
    assert lines[0].startswith("error: ") and len(lines) == 2 and lines[1].startswith("hint: "), lines
    assert sorted(p for p in Path.cwd().rglob("*") if "__pycache__" not in p.parts) == before
    return " ".join(lines)


def test_the_example(folder: Path) -> None:
    text = call("build", f"{EXAMPLE}:make", "--out", "dist", "--name", "digits", "--batch-size", "16").output
    assert "digits for host" in text and "libdigits.a" in text and text.endswith("written to dist\n")
    with Instance(folder / "dist") as native:
        assert native.manifest["batch"] == 16 and native.number("steps") == 0
        loss = native.step(np.zeros((16, 64), np.float32), np.zeros(16, np.int64))
        assert 1 < loss < 4


def test_it_begins_with_a_checkpoint(folder: Path) -> None:
    call("train", "net.py:make", "--out", "run")
    call("build", "net.py:make", "--checkpoint", "run", "--name", "first")
    with Instance(folder / "dist") as native:
        assert native.number("steps") == 4 and native.number("epochs") == 2
        native.save(folder / "native.safetensors")
    assert kept(folder / "native.safetensors") == kept(folder / "run" / "last.safetensors")


def test_settings_and_options(folder: Path) -> None:
    call("build", "net.py:make", "--set", "width=7", "--batch-size", "5", "--no-embed", "--out", "out/deep")
    manifest = json.loads((folder / "out" / "deep" / "manifest.json").read_text())
    assert manifest["name"] == "net" and manifest["batch"] == 5 and manifest["weights"] == "net.safetensors"
    assert {t["name"]: t["shape"] for t in manifest["kept"]}["hidden.weight"] == [7, 3]
    with Instance(folder / "out" / "deep") as native:
        with pytest.raises(Refused, match="4: there are no values yet"):
            native.predict(np.zeros((1, 3), np.float32))
        native.load(folder / "out" / "deep" / "net.safetensors")
        native.predict(np.zeros((1, 3), np.float32))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--target", "arm7"), "there is no platform 'arm7': did you mean armv7? hint: they are host, x86-64"),
        (("--name", "a-b"), "the name of a library must be one of C, got 'a-b'"),
        (("--name", "class"), "class has a meaning in C"),
        (("--name", "copy"), "the runtime has a copy of its own"),
        (("--size", "t=3"), "the trainer has no symbolic size 't'"),
        (("--size", "t"), "--size"),
        (("--out", "."), "is no folder that an export has made"),
        (("--checkpoint", "net.py"), "net.py"),
        (("--checkpoint", "nowhere"), "nowhere"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], problem: str) -> None:
    assert problem in refused("build", "net.py:make", *arguments)


def test_a_batch_is_at_least_one_row() -> None:
    assert "--batch-size" in call("build", "net.py:make", "--batch-size", "0", code=2).stderr


def test_without_any_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("pullback.deploy.toolchain._zig", lambda: None)
    assert 'needs a C compiler, and there is none hint: pip install "pullback[deploy]"' in refused(
        "build", "net.py:make"
    )
    assert "a C compiler for Linux on 64-bit RISC-V" in refused("build", "net.py:make", "--target", "riscv64")
    text = call("targets").output
    assert text.count("none: ") == len(PLATFORMS) and 'none: pip install "pullback[deploy]"' in text


def test_targets_lists_all_platforms_and_their_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "my-cc -O1")
    lines = {line.split()[0]: line for line in call("targets").output.splitlines() if line.strip()}
    assert lines.keys() >= PLATFORMS.keys()
    for name, platform in PLATFORMS.items():
        assert platform.about in lines[name]
    assert lines["host"].rstrip().endswith("my-cc -O1")


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    assert "error: no-such-cc cannot be run" in call("build", "net.py:make", code=1).stderr
    assert [p.name for p in folder.iterdir() if p.name != "__pycache__"] == ["net.py"]


def test_other_machines(folder: Path) -> None:
    """An object for another CPU, from the package ziglang; `make cross` runs such libraries."""
    if not shutil.which("zig") and subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True,
                                                  check=False).returncode:  # fmt: skip
        pytest.skip("there is no zig")
    call("build", "net.py:make", "--target", "aarch64", "--name", "net")
    header = (folder / "dist" / "libnet.so").read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and header[18] == 183  # EM_AARCH64
