"""Compilation in several processes: the same objects, whoever makes them, and whatever happens to the workers."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter

import pytest

from pullback.codegen import compile_object, compile_objects, emit_kernel, objects
from pullback.ir.errors import InternalError
from pullback.runtime import get_num_threads, set_num_threads
from pullback.target import Target
from pullback.tir import Buffer, PrimFunc, loop, store

TARGET = Target("llvm")


@pytest.fixture(autouse=True)
def three_threads():
    before = get_num_threads()
    set_num_threads(3)
    yield
    set_num_threads(before)
    objects._idle._end()


def text(number: int) -> str:
    x = Buffer("x", (100,), "float32")
    kernel = PrimFunc("k", (x,), loop("i", 100, lambda i: store(x, i, x[i] * float(number)), "vectorized"))
    return emit_kernel(kernel, TARGET, f"kernel.{number}")


@pytest.fixture
def helped(monkeypatch):
    """Workers are worth it for the first text already; the list tells which texts a worker got."""
    monkeypatch.setattr(objects, "WORTH_IT", 0)
    given, compile_text = [], objects._Helper.compile
    monkeypatch.setattr(
        objects._Helper, "compile", lambda self, t, target: given.append(t) or compile_text(self, t, target)
    )
    return given


def test_the_same_objects(helped):
    texts = [text(k) for k in range(24)]
    expected = [compile_object(t, TARGET) for t in texts]
    for _ in range(2):
        assert compile_objects(iter(texts), TARGET) == expected
    assert helped, "workers took part"
    alive = Counter(helper for helper in objects._idle._helpers if helper.process.poll() is None)
    assert set(alive.values()) == {objects.USERS}, "each may be used as often as before"
    helped.clear()
    set_num_threads(1)
    assert compile_objects(texts, TARGET) == expected and not helped
    assert compile_objects([], TARGET) == []


def test_little_work_starts_nothing(monkeypatch):
    monkeypatch.setattr(objects, "_Helper", None)
    assert compile_objects([text(1)], TARGET) == [compile_object(text(1), TARGET)]
    monkeypatch.setattr(objects, "WORTH_IT", 0)
    monkeypatch.setattr(sys, "executable", "")
    assert compile_objects([text(1)], TARGET) == [compile_object(text(1), TARGET)], "Python inside another program"


def test_dead_workers_are_replaced(helped):
    expected = [compile_object(text(k), TARGET) for k in range(9)]
    for kill in (signal.SIGKILL, signal.SIGSTOP):
        compile_objects(map(text, range(9)), TARGET)
        for helper in set(objects._idle._helpers):
            os.kill(helper.process.pid, signal.SIGKILL)
            if kill == signal.SIGKILL:
                helper.process.wait()  # else it dies while it is asked, perhaps
        assert compile_objects(map(text, range(9)), TARGET) == expected


def test_a_worker_that_ends_while_it_works(helped, monkeypatch):
    monkeypatch.setattr(objects, "_RUN", "import os; os.read(0, 10)")
    assert compile_objects(map(text, range(5)), TARGET) == [compile_object(text(k), TARGET) for k in range(5)]


TWO_AT_ONCE = """
import json, sys; sys.path[:] = json.loads(sys.argv[2])
from pullback.codegen import worker
for _, content in [worker.receive(0), worker.receive(0)]:
    worker.send(1, {"ok": True}, content)
"""


def test_a_text_lies_ready_while_a_worker_has_another(monkeypatch):
    """This one reads two before it answers, each to whom gave it."""
    monkeypatch.setattr(objects, "_RUN", TWO_AT_ONCE)
    helper, answers = objects._Helper(), {}

    def ask(text: str) -> None:
        answers[text] = helper.compile(text, TARGET)

    users = [threading.Thread(target=ask, args=(name,), daemon=True) for name in ("first", "second")]
    for user in users:
        user.start()
    for user in users:
        user.join(timeout=60)
    helper.end()
    assert answers == {"first": b"first", "second": b"second"}


def test_malformed_text_is_our_error(helped):
    with pytest.raises(InternalError, match="not well-formed"):
        compile_objects([text(1), "nonsense", text(2)], TARGET)
    assert len(compile_objects([text(1), text(2)], TARGET)) == 2


def test_an_error_while_texts_are_made(helped):
    def texts():
        yield text(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_objects(texts(), TARGET)


PROGRAM = """
import os
from pullback.codegen import objects
from pullback.runtime import set_num_threads
objects.WORTH_IT = 0
set_num_threads(3)
import numpy as np
import pullback
from pullback.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((30, 20), "float32"), w: R.Tensor((20, 10), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a)
            R.output(b)
        return b

print("once")  # no worker runs this file
x, w = np.ones((30, 20), "float32"), np.ones((20, 10), "float32")
print(float(pullback.compile(Module, "llvm").function("main")(x, w)[0, 0].item()))
child = os.fork()
if child == 0:
    os.environ["PULLBACK_CACHE"] = "0"
    ok = pullback.compile(Module, "llvm").function("main")(x, w).numpy().sum() > 0
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert pullback.compile(Module, "llvm").function("main")(x, w).shape == (30, 10)
"""


def test_a_program_without_a_main_guard(tmp_path):
    """Neither workers nor a fork's child disturb it, and nothing is left when it ends."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "PULLBACK_CACHE": "0", "PYTHONPATH": os.getcwd()}
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "program.py"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("once\n0.10000000149011612\n", "", 0)


FORKING = """
import os, threading
from pullback.codegen import compile_object, load_object
from tests.codegen.test_objects import TARGET, text

texts = [text(k) for k in range(8)]
compile_text = lambda t: compile_object(t, TARGET)
expected, going = list(map(compile_text, texts)), True

def keep_busy():
    while going:
        for code in map(compile_text, texts):
            load_object(code)

others = [threading.Thread(target=keep_busy) for _ in range(2)]
for other in others:
    other.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        load_object(code := compile_text(texts[0])).address("kernel.0")
        os._exit(0 if code == expected[0] else 1)
    assert os.waitpid(child, 0)[1] == 0
going = False
print("done")
"""


def test_fork_while_other_threads_compile():
    """LLVM's locks, and llvmlite's, are free in the child, and what they guard is whole."""
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
