"""Many texts to object code, with the help of other processes when there is enough to do.

LLVM compiles one module at a time in a process: llvmlite holds one lock. So workers are processes, which get LLVM IR as
text and give object code back; what they give is what this process would. They are no children of ``multiprocessing``:
no program of a user needs an ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from pullback.codegen import host, worker
from pullback.codegen.compile import compile_object
from pullback.runtime.library import get_num_threads
from pullback.target import Target

WORTH_IT = 200_000  # characters of text: about a sixth of a second of LLVM, and a worker takes a tenth to start
MOST_WORKERS = 3  # one process makes no more text than a few compile
USERS = 2  # threads of a worker: one's text lies ready while it works on the other's


def compile_objects(texts: Iterable[str], target: Target) -> list[bytes]:
    """The object code of each text. Texts are asked for one by one, and compiled while later ones are being made."""
    made: list[str] = []
    results: list[Future[bytes] | None] = []
    helpers, characters = None, 0
    count = min(get_num_threads() - 1, MOST_WORKERS) if _can_start() else 0
    try:
        for text in texts:
            made.append(text)
            results.append(None)
            characters += len(text)
            if characters > WORTH_IT and count > 0:
                helpers = helpers or ThreadPoolExecutor(USERS * count, "pullback-compile")
                for k, known in enumerate(results):
                    results[k] = known or helpers.submit(_compiled_elsewhere, made[k], target)
        # The workers take texts from the front, this process takes what they have not begun from the back.
        own = {
            k: compile_object(made[k], target)
            for k in reversed(range(len(made)))
            if (future := results[k]) is None or future.cancel()
        }
        return [own[k] if k in own else results[k].result() for k in range(len(made))]  # type: ignore[union-attr]
    finally:
        if helpers is not None:
            helpers.shutdown(wait=False, cancel_futures=True)


def _can_start() -> bool:
    """Whether another Python can be run: not inside a frozen program, or one that embeds Python."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _compiled_elsewhere(text: str, target: Target) -> bytes:
    """Object code from a worker; from this process where a worker fails, which then tells why."""
    helper = _idle.take()
    try:
        answer = helper.compile(text, target)
    except (OSError, EOFError, ValueError):
        helper.end()
        answer = None
    else:
        _idle.give_back(helper)
    return compile_object(text, target) if answer is None else answer


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
        request = {"triple": host.whole_triple(target.triple), "options": options}
        with self._asking:
            worker.send(self._requests.fileno(), request, text.encode())
            self._waiting.acquire()
        try:
            header, answer = worker.receive(self._answers.fileno())
        finally:
            self._waiting.release()
        return answer if header["ok"] else None

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
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

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
        """In a fork's child: the workers are those of its parent, and so was who held the lock."""
        self._lock, self._helpers = threading.Lock(), []

    def _end(self) -> None:
        with self._lock:
            for helper in self._helpers:
                helper.end()


_idle = _Idle()
