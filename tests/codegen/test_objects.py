"""Compilation in several processes: the same objects, whoever makes them, and whatever happens to the workers."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest

from pullback.codegen import CompilerDied, compile_object, compile_objects, emit_kernel, headroom, objects
from pullback.ir.errors import InternalError
from pullback.runtime import get_num_threads, set_num_threads
from pullback.target import Target
from pullback.tir import Buffer, PrimFunc, loop, seq, store

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


# ---- processes that die, hang, or are not allowed to live


def worker_that(deed: str, times: int, tmp_path: Path) -> str:
    """A worker that does something else with its first request, so many times; then it works."""
    return f"""
import os, resource, runpy, select, signal, sys, json
sys.path[:] = json.loads(sys.argv[2])
count = {str(tmp_path / "count")!r}
with open(count, "a") as file:
    file.write("x")
if os.path.getsize(count) <= {times}:
    select.select([0], [], [])
    {deed}
runpy.run_path(sys.argv[1], run_name='__main__')
"""


@pytest.fixture
def here(monkeypatch):
    """What is compiled in this process."""
    compiled: list[str] = []
    monkeypatch.setattr(objects, "compile_object", lambda t, target: compiled.append(t) or compile_object(t, target))
    return compiled


@pytest.fixture
def no_memory(monkeypatch, here):
    """This process has none left for LLVM; the list tells what it compiles all the same."""
    monkeypatch.setattr(headroom, "memory_left", lambda: headroom.LEAST - 1)
    return here


@pytest.mark.parametrize("threads", [1, 3])
def test_what_memory_is_scarce_for_is_compiled_elsewhere(no_memory, threads):
    set_num_threads(threads)
    assert compile_objects(map(text, range(6)), TARGET) == [compile_object(text(k), TARGET) for k in range(6)]
    assert not no_memory


def test_a_very_large_text_is_compiled_elsewhere(here, monkeypatch):
    monkeypatch.setattr(objects, "LARGE", len(text(10)) - 1)
    set_num_threads(1)
    assert compile_objects([text(1), text(10)], TARGET) == [compile_object(text(k), TARGET) for k in (1, 10)]
    assert here == [text(1)]


def test_an_error_where_there_is_neither_memory_nor_another_process(no_memory, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(CompilerDied, match="there is not enough memory: 47 MiB are left") as error:
        compile_objects([text(1)], TARGET)
    assert error.value.number == 0 and not no_memory


def test_processes_that_cannot_be_started(no_memory, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(CompilerDied, match="not enough memory"):
        compile_objects([text(1)], TARGET)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setattr(objects, "WORTH_IT", 0)
    assert compile_objects([text(1)], TARGET) == [compile_object(text(1), TARGET)]


def test_threads_that_cannot_be_started(no_memory, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert compile_objects([text(1), text(2)], TARGET) == [compile_object(text(k), TARGET) for k in (1, 2)]
    assert not no_memory


@pytest.mark.parametrize("deed, name", [
    ("os.abort()", "SIGABRT, as when memory ends"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, as when memory ends"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ("os._exit(7)", "status 7"),
])  # fmt: skip
def test_a_text_on_which_every_worker_dies(helped, here, monkeypatch, tmp_path, deed, name):
    """Two of them: then it is an error, and no third attempt of this process, which would die as well."""
    monkeypatch.setattr(objects, "_fits_here", lambda text: False)
    monkeypatch.setattr(objects, "_RUN", worker_that(deed, 99, tmp_path))
    with pytest.raises(CompilerDied, match=f"^the process that compiles it was ended by {name}$") as error:
        compile_objects([text(1)], TARGET)
    assert error.value.number == 0 and not here
    assert (tmp_path / "count").read_text() == "xx"


NO_MEMORY = """
import json, resource, runpy, sys
sys.path[:] = json.loads(sys.argv[2])
import llvmlite.binding as llvm
emit = llvm.TargetMachine.emit_object

def emitted(machine, module, eaten=[]):
    resource.setrlimit(resource.RLIMIT_AS, (0, resource.RLIM_INFINITY))
    for size in (1 << 20, 1 << 16, 1 << 12):
        try:
            while True:
                eaten.append(bytes(size))
        except MemoryError:
            pass
    return emit(machine, module)

llvm.TargetMachine.emit_object = emitted
runpy.run_path(sys.argv[1], run_name='__main__')
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the size of a process is not known")
def test_llvm_without_memory(here, monkeypatch):
    """LLVM itself ends the worker: the process that asked gets an error, and lives."""
    x = Buffer("x", (500,), "float32")
    many = PrimFunc("k", (x,), seq(*(store(x, i, x[i] * float(i)) for i in range(500))))
    monkeypatch.setattr(objects, "_RUN", NO_MEMORY)
    monkeypatch.setattr(objects, "_fits_here", lambda text: False)
    with pytest.raises(CompilerDied, match="was ended by SIGABRT, as when memory ends"):
        compile_objects([emit_kernel(many, TARGET, "k")], TARGET)
    assert not here


@pytest.mark.parametrize("deed", ["os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"])
def test_a_worker_that_dies_once_is_replaced(helped, here, monkeypatch, tmp_path, deed):
    monkeypatch.setattr(objects, "_fits_here", lambda text: False)
    monkeypatch.setattr(objects, "_RUN", worker_that(deed, 1, tmp_path))
    assert compile_objects([text(1)], TARGET) == [compile_object(text(1), TARGET)]
    assert not here and (tmp_path / "count").read_text() == "xx"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system does not tell processor times")
def test_a_worker_that_hangs_is_replaced(helped, here, monkeypatch, tmp_path):
    monkeypatch.setattr(objects, "_fits_here", lambda text: False)
    monkeypatch.setattr(objects, "SILENCE", 0.3)
    monkeypatch.setattr(objects, "_RUN", worker_that("os.kill(os.getpid(), signal.SIGSTOP)", 1, tmp_path))
    assert compile_objects([text(1)], TARGET) == [compile_object(text(1), TARGET)]
    assert not here and (tmp_path / "count").read_text() == "xx"


def test_the_system_ends_workers_first(helped):
    compile_objects([text(1), text(2)], TARGET)
    helper = objects._Helper()
    try:
        helper.compile(text(1), TARGET)
        assert Path(f"/proc/{helper.process.pid}/oom_score_adj").read_text() == "1000\n"
    finally:
        helper.end()


@pytest.mark.parametrize("threads, characters", [(1, 0), (3, 0), (3, 1 << 30)])
def test_each_object_is_given_as_soon_as_it_is_there(monkeypatch, threads, characters):
    """Before the next text is asked for, where one thread does everything."""
    monkeypatch.setattr(objects, "WORTH_IT", characters)
    set_num_threads(threads)
    done: dict[int, bytes] = {}
    seen = []

    def texts():
        for k in range(6):
            seen.append(len(done))
            yield text(k)

    codes = compile_objects(texts(), TARGET, done.__setitem__)
    assert done == dict(enumerate(codes)) and codes == [compile_object(text(k), TARGET) for k in range(6)]
    if threads == 1:
        assert seen == [0, 1, 2, 3, 4, 5]


def test_what_was_done_before_an_error_is_kept(helped):
    done: dict[int, bytes] = {}
    before = threading.Event()

    def texts():
        yield text(1)
        assert before.wait(60)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_objects(texts(), TARGET, lambda k, code: (done.__setitem__(k, code), before.set()))
    assert done == {0: compile_object(text(1), TARGET)}


INTERRUPTED = """
import os, signal, sys, threading
from pullback.codegen import compile_objects, objects
from pullback.runtime import set_num_threads
from tests.codegen.test_objects import TARGET, text
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts with & ignores it
set_num_threads(3)
objects.WORTH_IT = 0
objects._fits_here = lambda text: False
objects._RUN = "import os, signal; os.read(0, 1); print('ready', file=open(os.environ['FIFO'], 'w')); signal.pause()"
try:
    compile_objects([text(1), text(2)], TARGET)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_workers_that_hang(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    environment = {**os.environ, "FIFO": str(tmp_path / "fifo")}
    run = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, text=True) as process:
        with open(tmp_path / "fifo") as fifo:
            assert fifo.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("interrupted\n", None) and process.returncode == 0


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
