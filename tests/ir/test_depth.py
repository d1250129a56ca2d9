"""Functions that recurse get the stack that they need, and the process keeps its settings."""

import contextvars
import os
import sys
import threading

import pytest

from pullback.ir.depth import MOST_CALLS, deep, on_large_stack
from pullback.ir.errors import UserError


def levels(n):
    return 0 if n == 0 else 1 + levels(n - 1)


def test_more_calls_than_python_allows():
    before = sys.getrecursionlimit(), threading.stack_size()
    assert deep(levels)(50_000) == 50_000
    assert (sys.getrecursionlimit(), threading.stack_size()) == before


def test_what_is_shallow_stays_in_its_thread():
    assert deep(threading.current_thread)() is threading.current_thread()


def test_calls_by_way_of_c_have_room():
    """Each level is a generator and a tuple: these take the C stack, which would end the process."""

    def nested(n):
        return () if n == 0 else tuple(nested(n - 1) for _ in range(1))

    value = deep(nested)(30_000)
    for _ in range(29_999):
        (value,) = value
    assert value == ((),)


def test_endless_recursion_is_an_error_and_leaves_the_process_as_it_was():
    def endless():
        return endless()

    before = sys.getrecursionlimit()
    with pytest.raises(UserError, match=f"nested too deeply: it takes more than {MOST_CALLS}"):
        deep(endless)()
    assert sys.getrecursionlimit() == before


def test_a_large_stack_is_not_opened_inside_another():
    @deep
    def outer(n):
        return outer(n - 1) if n else on_large_stack(threading.current_thread)

    assert outer(5_000).name == "pullback-large-stack"
    assert threading.active_count() < 5


def test_context_variables_and_errors_go_through():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    assert on_large_stack(variable.get) == 7

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        on_large_stack(fail)


def test_the_limit_is_not_lowered_under_a_call_that_is_deeper():
    """One thread is on a large stack; a call that another began before goes deep meanwhile, and ends after it."""
    before, found = sys.getrecursionlimit(), []
    begun, raised, deeper, lowered = (threading.Event() for _ in range(4))

    def below(n):
        if n:
            return 1 + below(n - 1)
        deeper.set()
        assert lowered.wait(60)
        return levels(10)

    @deep
    def goes_deep():
        begun.set()
        assert raised.wait(60)
        return below(5_000)

    def large():
        raised.set()
        assert deeper.wait(60)

    other = threading.Thread(target=lambda: found.append(goes_deep()))
    other.start()
    assert begun.wait(60)
    on_large_stack(large)
    lowered.set()
    other.join()
    assert found == [5_010]
    assert sys.getrecursionlimit() == before


def test_threads_do_so_at_the_same_time():
    before = sys.getrecursionlimit()
    found = []
    threads = [threading.Thread(target=lambda: found.append(deep(levels)(20_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [20_000] * 4
    assert sys.getrecursionlimit() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forks_child_has_pythons_limit_and_a_free_lock():
    limit, started, done = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def wait():
        started.set()
        done.wait(60)

    thread = threading.Thread(target=lambda: on_large_stack(wait))
    thread.start()
    started.wait(60)
    child = os.fork()
    if child == 0:
        right = sys.getrecursionlimit() == limit and deep(levels)(20_000) == 20_000
        os._exit(0 if right and sys.getrecursionlimit() == limit else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
