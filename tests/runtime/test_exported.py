"""The part of the C runtime that exported libraries have: static, in one file, with threads and without."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pullback.runtime import library

FOLDER = Path(__file__).parent / "native"
FLAGS = [
    "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wstrict-prototypes", "-Werror",
    "-DPB_API=static __attribute__((unused))", f"-I{library.NATIVE_DIRECTORY}",
]  # fmt: skip
MODES = {"threads": ["-pthread"], "alone": ["-DPB_NO_THREADS"]}
OF_THE_LANGUAGE = {"memcpy", "memmove", "memset", "memcmp"}  # a compiler may call these whatever it compiles
OF_THREADS = {"pthread.h", "stdatomic.h", "sched.h", "signal.h", "time.h"}


def compiled(source, output, *flags):
    command = [os.environ.get("CC", "cc"), *FLAGS, *flags, source, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    return output


def symbols(path, which):
    done = subprocess.run(["nm", "-g", which, path], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_the_program(tmp_path, mode, level):
    program = compiled(FOLDER / "test_exported.c", tmp_path / "test_exported", level, *MODES[mode])
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("exported runtime: all tests passed\n", "", 0)


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is missing: it lists the symbols of an object")
@pytest.mark.parametrize("mode", MODES)
def test_no_symbol_is_exported(tmp_path, mode):
    """Not optimized, so that what nobody calls is there too."""
    built = compiled(FOLDER / "exported.c", tmp_path / "exported.o", "-c", "-O0", "-fno-stack-protector", *MODES[mode])
    assert symbols(built, "--defined-only") == set()
    needed = symbols(built, "--undefined-only")
    assert not {name for name in needed if name.startswith("pb_")}
    assert needed & OF_THE_LANGUAGE
    if mode == "alone":
        assert needed <= OF_THE_LANGUAGE


@pytest.mark.parametrize("mode", MODES)
def test_headers(mode):
    """Without threads, no header of them is asked for: a microcontroller has none."""
    command = [os.environ.get("CC", "cc"), *FLAGS, *MODES[mode], "-M", FOLDER / "exported.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {Path(word).name for word in done.stdout.split()} & OF_THREADS
    assert found == (OF_THREADS if mode == "threads" else set())
