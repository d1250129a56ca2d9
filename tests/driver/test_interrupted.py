"""Compilation that ends early: by an interrupt, a kill, or the end of memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts with & ignores it
import numpy as np
from pullback import codegen, runtime
from pullback.codegen import objects
from pullback.driver import native
from tests.driver.models import mlp_trainer_module, step_arguments
import pullback
from pullback import relax

stop_after, threads, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
runtime.set_num_threads(threads)
objects.WORTH_IT = 0
compile_objects, count = codegen.compile_objects, [0, 0]

def stopping(texts, target, done):
    def counted(number, code):
        done(number, code)
        count[0] += 1
        if count[0] == stop_after:
            os.kill(os.getpid(), getattr(signal, how))

    texts = list(texts)
    count[1] = len(texts)
    return compile_objects(texts, target, counted)

codegen.compile_objects = stopping
module = mlp_trainer_module()
tensors = step_arguments(module)
try:
    bound = relax.VirtualMachine(pullback.compile(module)).bind("__step", tensors)
    bound()
    print(count[1], float(tensors[1].numpy().sum()))
except KeyboardInterrupt:
    print(count[1], "interrupted")
"""


def run(directory, stop_after: int, threads: int = 1, how: str = "SIGKILL") -> tuple[int, str]:
    """The status of the program, and what it says: how many texts it had to compile, and a result."""
    environment = os.environ | {"PULLBACK_CACHE_DIR": str(directory), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", PROGRAM, str(stop_after), str(threads), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.strip()


def test_a_process_that_is_killed_goes_on_where_it_was(tmp_path):
    whole, expected = run(tmp_path / "whole", 0)[1].split()
    assert run(tmp_path / "c", 4) == (-9, "")
    assert run(tmp_path / "c", 3) == (-9, "")
    assert run(tmp_path / "c", 0) == (0, f"{int(whole) - 7} {expected}")
    assert run(tmp_path / "c", 0) == (0, f"0 {expected}"), "now it is all there"


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupt(tmp_path, threads):
    status, said = run(tmp_path / "c", 4, threads, "SIGINT")
    assert status == 0 and said.endswith("interrupted")
    whole = int(said.split()[0])
    status, said = run(tmp_path / "c", 0, threads)
    left, _ = said.split()
    assert status == 0 and int(left) <= whole - 4
    if threads == 1:
        assert int(left) == whole - 4


LIMITED = """
import resource, sys
import numpy as np
import pullback
from tests.driver.models import mlp_trainer_module, step_arguments
from pullback import relax

module = mlp_trainer_module()
tensors = step_arguments(module)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = size + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    relax.VirtualMachine(pullback.compile(module)).bind("__step", tensors)()
    print("done")
except pullback.ir.CompileError as error:
    print("CompileError", "hint: raise the limit" in str(error))
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the size of a process is not known")
@pytest.mark.parametrize("mebibytes", [0, 20, 150])
def test_memory_that_ends_is_an_error(tmp_path, mebibytes):
    """And not the end of the process, wherever it ends."""
    environment = os.environ | {"PULLBACK_CACHE": "off", "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", LIMITED, str(mebibytes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    said = done.stdout.strip()
    assert done.returncode == 0 and said in ("done", "CompileError True", "MemoryError"), (done.returncode, done.stderr)
    assert mebibytes > 0 or said == "CompileError True"
