"""Deep structures: functions that recurse get as much stack as an expression of ten thousand levels takes.

Python allows a thousand nested calls, and merely to allow more ends a process whose C stack runs out. So what finds its
stack too small runs again in a thread whose stack is large, with a limit that this stack can hold. Programs that are
not nested deeply pay nothing.
"""

from __future__ import annotations

import contextlib
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
_trying = 0  # calls on stacks of the usual size
_tries = threading.local()  # of this thread, as count
_old_limit: int | None = None  # while Python's limit is raised
_on_large_stack = contextvars.ContextVar("pullback_on_large_stack", default=False)


def deep(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: what raises a RecursionError is done again on a large stack. The function must bear to be called
    twice. A UserError says so when that is not enough."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if _on_large_stack.get():
            return function(*args, **kwargs)
        if _begin_to_try():
            try:
                return function(*args, **kwargs)
            except RecursionError:
                pass
            finally:
                _end_to_try()
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


# Python's limit of nested calls is one for all threads. While it is raised, calls on a usual stack would not be stopped
# in time: so these go to a large stack at once. And it must not be lowered while a call of another thread that began
# before is deeper than that: Python would end the process. So it is lowered when all of these have come back.


def _begin_to_try() -> bool:
    """Whether a call may be tried on a stack of the usual size."""
    global _trying
    with _lock:
        if _old_limit is not None:
            return False
        _trying += 1
        _tries.count = getattr(_tries, "count", 0) + 1
    return True


def _end_to_try() -> None:
    global _trying
    with _lock:
        _trying -= 1
        _tries.count -= 1
        _lower_limit()


@contextmanager
def _many_calls() -> Iterator[None]:
    """Python's limit of nested calls is raised while at least one large stack is in use."""
    global _running, _old_limit
    with _lock:
        if _old_limit is None:
            _old_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_old_limit, MOST_CALLS))
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            _lower_limit()


def _lower_limit() -> None:
    """Set Python's limit back when nobody needs it any more."""
    global _old_limit
    if _old_limit is not None and not _running and _trying == getattr(_tries, "count", 0):
        with contextlib.suppress(RecursionError):  # this thread is deeper than that itself: the next one does it
            sys.setrecursionlimit(_old_limit)
            _old_limit = None


def _in_child() -> None:
    """A fork's child has the one thread that forked: on a large stack or not, and inside calls that it tries."""
    global _lock, _running, _trying
    _lock = threading.Lock()
    _running, _trying = int(_on_large_stack.get()), getattr(_tries, "count", 0)
    _lower_limit()


in_child(_in_child)
