"""The package where the system lacks what Linux has: modules and functions of Windows and macOS only, no C runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pullback.runtime import library

ROOT = Path(__file__).parents[1]
OTHERS_FIRST = """
import asyncio, multiprocessing.pool, platform, subprocess, tempfile  # what is not ours may use what Linux has
import filelock, llvmlite.binding, ml_dtypes, numpy.random, platformdirs, safetensors.numpy
import rich.console, rich.progress, rich.table, typer.testing, importlib, os, pkgutil, sys
"""
WITHOUT = """
for name in ("fcntl", "resource", "pwd", "grp", "termios", "posix"):
    sys.modules[name] = None
for name in (
    "chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getuid", "killpg",
    "mkfifo", "register_at_fork", "sched_getaffinity", "setsid", "sysconf", "uname", "wait3", "waitid", "O_CLOEXEC",
    "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC",
):
    delattr(os, name)
import signal
for name in ("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "alarm", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
os.supports_dir_fd.clear(), os.supports_fd.clear(), os.supports_follow_symlinks.clear()
"""
EVERY_MODULE = """
import pullback
for module in pkgutil.walk_packages(pullback.__path__, "pullback."):
    needs_keras = module.name.startswith("pullback.relax.frontend.keras.")
    if not needs_keras and not module.name.endswith((".__main__", ".data", ".native", ".libpullback_rt")):
        importlib.import_module(module.name)
"""
TRAINING = """
import numpy as np
from pullback.demo.mlp import MLP
from pullback.training.loss import CrossEntropyLoss
from pullback.training.optimizer import SGD
trainer = pullback.trainer(MLP, CrossEntropyLoss(), SGD(0.1))
x, y = np.ones((64, 784), "float32"), np.zeros(64, "int64")
before = trainer.update(x, y).item()
for _ in range(2):
    trainer.save(sys.argv[1])
after = trainer.update(x, y).item()
trainer.load(sys.argv[1])
assert after < before and trainer.update(x, y).item() == after
assert os.listdir(os.path.dirname(sys.argv[1])) == [os.path.basename(sys.argv[1])]
"""


def run(program: str, tmp_path: Path) -> str:
    (tmp_path / "saved").mkdir()
    command = [sys.executable, "-c", program, str(tmp_path / "saved" / "model.safetensors")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_what_only_linux_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step, a save and a load too: the functions are asked for where they are used."""
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    run(OTHERS_FIRST + WITHOUT + EVERY_MODULE + TRAINING, tmp_path)
    assert list((tmp_path / "cache").rglob("*.obj"))


def test_without_the_runtime(tmp_path: Path) -> None:
    """Everything can be imported; what needs the runtime says how to get it."""
    program = OTHERS_FIRST + EVERY_MODULE + "\n".join([
        "from pathlib import Path",
        "from pullback.runtime import library",
        "assert not library.library.__dict__, 'the runtime was loaded by an import'",
        "library.NATIVE_DIRECTORY = Path(sys.argv[1])",
        "from pullback.demo.mlp import MLP",
        "print(MLP.script())",
        "try: pullback.tensor([1.0])",
        "except ImportError as error: print(error)",
    ])  # fmt: skip
    out = run(program, tmp_path)
    assert "def backbone" in out and "pullback's C runtime is missing" in out and "Build it with" in out


def test_on_windows_the_runtime_says_that_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="does not run on Windows yet: use Linux, macOS or WSL"):
        library.load(library.NATIVE_DIRECTORY / "libpullback_rt.dll")


def test_a_function_that_the_runtime_lacks() -> None:
    with pytest.raises(AttributeError, match="the C runtime has no function 'pb_nothing'"):
        library.library.pb_nothing  # noqa: B018
