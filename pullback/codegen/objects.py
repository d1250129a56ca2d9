"""Many texts to object code, with the help of other processes when there is enough to do, or too little memory.

LLVM compiles one module at a time in a process: llvmlite holds one lock. So workers are processes, which get LLVM IR as
text and give object code back; what they give is what this process would. They are no children of ``multiprocessing``:
no program of a user needs an ``if __name__ == "__main__"``.

LLVM ends its process when memory does. So this process compiles what it has plenty of memory for; the rest, and very
large texts, go to workers, which the system ends first. A worker that ends is replaced once, by one that has nothing
else to do; if that ends too, there is an error.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from pullback.codegen import headroom, host, worker
from pullback.codegen.compile import compile_object, needs_strength_reduction
from pullback.ir.forks import in_child, renewed
from pullback.runtime.library import get_num_threads
from pullback.target import Target

WORTH_IT = 200_000  # characters of text: about a sixth of a second of LLVM, and a worker takes a tenth to start
MOST_WORKERS = 3  # one process makes no more text than a few compile
USERS = 2  # threads of a worker: one's text lies ready while it works on the other's
LARGE = 5_000_000  # characters of one text: half a GiB of memory
SILENCE = 30.0  # seconds in which a worker that has a text takes no processor time: it hangs

Done = Callable[[int, bytes], None]


class CompilerDied(Exception):
    """There is no object code of the text of that ``number``: who was to make it is gone, or cannot be had."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number


def compile_objects(texts: Iterable[str], target: Target, done: Done | None = None) -> list[bytes]:
    """The object code of each text. Texts are asked for one by one, and compiled while later ones are being made.

    ``done(number, code)`` is called as soon as the text of that number is compiled, by any thread. Raises CompilerDied.
    """
    work = _Work(target, done)
    try:
        for text in texts:
            work.add(text)
        return work.finished()
    finally:
        work.stop()


class _Work:
    """The texts of one call, and who compiles them."""

    def __init__(self, target: Target, done: Done | None) -> None:
        self.target, self.done = target, done
        self.texts: list[str] = []
        self.made: dict[int, bytes] = {}  # by this thread
        self.given: dict[int, Future[bytes]] = {}  # to threads that ask workers
        self.asked: dict[int, _Helper] = {}  # at this moment, by thread
        self.characters = 0
        self.workers = min(get_num_threads() - 1, MOST_WORKERS) if _can_start() else 0
        self.threads: ThreadPoolExecutor | None = None
        self.stopped = False

    def add(self, text: str) -> None:
        number = len(self.texts)
        self.texts.append(text)
        self.characters += len(text)
        if not _fits_here(text):
            self.give(number)
        elif self.workers == 0:
            self.make(number)
        elif self.characters > WORTH_IT:
            for k in range(number + 1):
                if k not in self.given:
                    self.give(k)

    def finished(self) -> list[bytes]:
        """The workers take texts from the front, this process takes what they have not begun from the back."""
        for k in reversed(range(len(self.texts))):
            is_free = k not in self.made and (k not in self.given or self.given[k].cancel())
            if is_free and _fits_here(self.texts[k]):
                self.make(k)
            elif is_free:
                self.give(k)
        return [self.made[k] if k in self.made else self.answer(k) for k in range(len(self.texts))]

    def stop(self) -> None:
        """No more is compiled. Who still does, as there was an error or an interrupt, is ended."""
        self.stopped = True
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)
        for helper in list(self.asked.values()):
            helper.process.kill()

    def make(self, number: int) -> None:
        """Compile a text in this thread."""
        self.made[number] = self.kept(number, compile_object(self.texts[number], self.target))

    def give(self, number: int) -> None:
        """Leave a text to a thread that asks a worker; to :meth:`answer` where the system gives no more threads."""
        self.given.pop(number, None)
        with contextlib.suppress(RuntimeError):
            self.threads = self.threads or ThreadPoolExecutor(USERS * max(1, self.workers), "pullback-compile")
            self.given[number] = self.threads.submit(self.elsewhere, number)

    def answer(self, number: int) -> bytes:
        """The code of a text that was given away. Workers that hang meanwhile are ended."""
        if number not in self.given:
            return self.elsewhere(number)
        used: dict[_Helper, float | None] = {}
        while True:
            try:
                return self.given[number].result(SILENCE)
            except NotYet:
                now = {helper: helper.processor_seconds() for helper in set(self.asked.values())}
                for helper, seconds in now.items():
                    if seconds is not None and used.get(helper) == seconds:
                        helper.process.kill()
                used = now

    def elsewhere(self, number: int) -> bytes:
        """Object code from a worker; from this process where Python does not work there, or LLVM refuses the text."""
        text, problem = self.texts[number], None
        for start, leave in ((_idle.take, _idle.give_back), (_Helper, _Helper.end)) if _can_start() else ():
            try:
                helper = start()
            except OSError:  # the system gives no more processes
                break
            self.asked[threading.get_ident()] = helper
            try:
                answer = helper.compile(text, self.target)
            except (OSError, EOFError, ValueError):
                problem = helper.ending()
            except BaseException:
                helper.end()
                raise
            else:
                leave(helper)
                return self.kept(number, compile_object(text, self.target) if answer is None else answer)
            finally:
                del self.asked[threading.get_ident()]
            if self.stopped:
                raise CompilerDied(number, "it was interrupted")
        left = headroom.memory_left()
        if problem is None and left is not None and left < headroom.needed(len(text)):
            problem = f"there is not enough memory: {left >> 20} MiB are left"
        if problem is not None:
            raise CompilerDied(number, problem)
        return self.kept(number, compile_object(text, self.target))

    def kept(self, number: int, code: bytes) -> bytes:
        if self.done is not None:
            self.done(number, code)
        return code


def _fits_here(text: str) -> bool:
    """Whether this process has so much memory that LLVM may take what it needs for the text."""
    left = headroom.memory_left()
    return len(text) <= LARGE and (left is None or left >= headroom.MANY * headroom.needed(len(text)))


def _can_start() -> bool:
    """Whether another Python can be run and waited for: not inside a frozen program, or one that embeds Python."""
    return os.name == "posix" and bool(sys.executable) and not getattr(sys, "frozen", False)


_RUN = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[2]); runpy.run_path(sys.argv[1], run_name='__main__')"
)


class _Helper:
    """A worker process, and unbuffered pipes to it and back.

    Several threads may use it, which follow each other hand over hand: one gives its text while the one before waits
    for its answer. So the worker goes on at once, and not when this process's interpreter, which is busy making texts,
    lets a thread have its turn (5 ms each time).
    """

    def __init__(self) -> None:
        command = [sys.executable, "-c", _RUN, worker.__file__, json.dumps([p for p in sys.path if p])]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout
        self._asking, self._waiting = threading.Lock(), threading.Lock()

    def compile(self, text: str, target: Target) -> bytes | None:
        """The object code, or None when LLVM refuses the text; an OSError or EOFError when the worker is gone."""
        options = host.machine_options(target.triple, target.cpu, target.features)
        kept = needs_strength_reduction(target)
        request = {"triple": host.whole_triple(target.triple), "options": options, "strength_reduction": kept}
        with self._asking:
            worker.send(self._requests.fileno(), request, text.encode())
            self._waiting.acquire()
        try:
            header, answer = worker.receive(self._answers.fileno())
        finally:
            self._waiting.release()
        return answer if header["ok"] else None

    def ending(self) -> str | None:
        """Stop the worker, which does not answer, and say what ended it; None where it ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # it has closed its pipe: the rest takes no time
        self.end()
        status = self.process.returncode
        if status in (0, 1):
            return None
        name = next((s.name for s in signal.Signals if s == -status), f"status {status}")
        cause = ", as when memory ends" if name in ("SIGABRT", "SIGKILL") else ""
        return f"the process that compiles it was ended by {name}{cause}"

    def processor_seconds(self) -> float | None:
        """The processor time that the worker has taken; None where the system does not say."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as file:
                user, system = file.read().rpartition(b")")[2].split()[11:13]
        except (OSError, ValueError):
            return None
        return float(user) + float(system)

    def end(self) -> None:
        """Stop the worker; its pipes are closed when no thread uses them."""
        self.process.kill()
        with self._asking, self._waiting:
            if not self._requests.closed:
                self.process.communicate()


class _Idle:
    """Workers that may be given work, each as often as further threads may use it. They are this process's: a fork's
    child starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []
        atexit.register(self._end)
        renewed(self, "_lock")
        in_child(self._forget)

    def take(self) -> _Helper:
        """One that was given back, or a new one."""
        with self._lock:
            while self._helpers:
                helper = self._helpers.pop()
                if helper.process.poll() is None:
                    return helper
            helper = _Helper()
            self._helpers += [helper] * (USERS - 1)
            return helper

    def give_back(self, helper: _Helper) -> None:
        with self._lock:
            self._helpers.append(helper)

    def _forget(self) -> None:
        """In a fork's child: the workers are those of its parent."""
        self._helpers = []

    def _end(self) -> None:
        with self._lock:
            for helper in self._helpers:
                helper.end()


_idle = _Idle()
