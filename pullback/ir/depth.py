"""Deep structures: functions that recurse get as much stack as an expression of ten thousand levels takes.

Python allows a thousand nested calls, and merely to allow more ends a process whose C stack runs out. So what finds its
stack too small runs again in a thread whose stack is large, with a limit that this stack can hold. Programs that are
not nested deeply pay nothing.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from pullback.ir.errors import UserError
from pullback.ir.forks import in_child

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

STACK_BYTES = 1 << 29  # of address space: only what is used takes memory
MOST_CALLS = 150_000  # nested ones that this stack has room for: 3.5 KB each, where those that go by way of C take 1 KB

_lock = threading.Lock()  # for the two settings of the process below
_running = 0  # large stacks
_old_limit = 0
_on_large_stack = contextvars.ContextVar("pullback_on_large_stack", default=False)


def deep(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: what raises a RecursionError is done again on a large stack. The function must bear to be called
    twice. A UserError says so when that is not enough."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if _on_large_stack.get():
                raise
        return on_large_stack(function, *args, **kwargs)

    return call


def on_large_stack(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """The function's result, computed in a thread with a large stack, or in this one where it has one already."""
    if _on_large_stack.get():
        return function(*args, **kwargs)
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _on_large_stack.set(True)
        try:
            results.append(function(*args, **kwargs))
        except BaseException as error:
            errors.append(error)

    with _many_calls():
        thread = _start(functools.partial(contextvars.copy_context().run, run))
        thread.join()
    if results:
        return results[0]
    error = errors.pop()
    if isinstance(error, RecursionError):
        raise _too_deep() from None
    try:
        raise error
    finally:
        del error  # else it and this frame would keep one another


def _too_deep() -> UserError:
    hint = "give intermediate results names, each on a line of its own; a Python function must not call itself for ever"
    return UserError(f"this is nested too deeply: it takes more than {MOST_CALLS} nested calls", hint=hint)


def _start(run: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=run, name="pullback-large-stack", daemon=True)
    with _lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:  # no such stack can be had
            raise MemoryError(f"this is nested so deeply that it takes a stack of {STACK_BYTES >> 20} MiB") from None
        finally:
            threading.stack_size(usual)
    return thread


@contextmanager
def _many_calls() -> Iterator[None]:
    """Python's limit of nested calls is raised while at least one large stack is in use."""
    global _running, _old_limit
    with _lock:
        if _running == 0:
            _old_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_old_limit, MOST_CALLS))
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                sys.setrecursionlimit(_old_limit)


def _in_child() -> None:
    """A fork's child has the one thread that forked: on a large stack or not."""
    global _lock, _running
    _lock = threading.Lock()
    here = int(_on_large_stack.get())
    if _running and not here:
        sys.setrecursionlimit(_old_limit)
    _running = here


in_child(_in_child)
