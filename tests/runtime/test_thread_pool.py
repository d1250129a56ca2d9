"""The thread pool, called as compiled code calls it, from Python threads and across forks. Its C test goes deeper."""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import get_num_threads, runtime_table, set_num_threads

Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Next = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Next))


class Table(ctypes.Structure):
    """The ``pb_runtime`` of rt.h."""

    _fields_ = (
        ("abi", ctypes.c_int64),
        ("parallel_for", ctypes.CFUNCTYPE(None, ctypes.c_void_p, Task, ctypes.c_void_p, ctypes.c_int64)),
        ("now_ns", ctypes.CFUNCTYPE(ctypes.c_int64)),
        ("parallel_share", ctypes.CFUNCTYPE(None, ctypes.c_void_p, Work, ctypes.c_void_p, ctypes.c_int64)),
    )


ADDRESS = runtime_table()
TABLE = Table.from_address(ADDRESS)


@pytest.fixture(autouse=True)
def same_threads_after():
    before = get_num_threads()
    yield
    set_num_threads(before)


def visits(count):
    """How often a job visits each of ``count`` items."""
    seen = np.zeros(max(count, 0), np.int64)

    def task(_, begin, end):
        seen[begin:end] += 1

    TABLE.parallel_for(ADDRESS, Task(task), None, count)
    return seen


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 7, 8, 13, 1000])
def test_each_item_is_visited_once(threads, count):
    set_num_threads(threads)
    assert get_num_threads() == threads
    for _ in range(5):
        assert (visits(count) == 1).all()


def ranges_of(share):
    """What a thread gets of a job, as long as it asks."""
    spot = (ctypes.c_int64 * 2)()
    while share[0](ctypes.cast(share, ctypes.c_void_p), spot):
        yield spot[0], spot[1]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 7, 8, 13, 1000])
def test_each_thread_begins_once_and_gets_its_share(threads, count):
    set_num_threads(threads)
    for _ in range(5):
        seen, began, sizes = np.zeros(max(count, 0), np.int64), [], []

        def work(_, share, seen=seen, began=began, sizes=sizes):
            began.append(threading.get_ident())
            for begin, end in ranges_of(share):
                sizes.append(end - begin)
                seen[begin:end] += 1

        TABLE.parallel_share(ADDRESS, Work(work), None, count)
        assert (seen == 1).all()
        assert all(size > 0 for size in sizes)
        assert len(began) == len(set(began)) <= min(threads, max(count, 0))


@pytest.mark.parametrize("count", [33, 39, 47, 63])
def test_a_thread_begins_with_half_of_an_even_share(count):
    """In some of five tries: where a thread is late, others have begun with its share."""
    set_num_threads(2)
    began = []

    def work(_, share):
        ranges = list(ranges_of(share))
        if threading.get_ident() == caller:
            began.append(ranges[0])

    caller = threading.get_ident()
    for _ in range(5):
        TABLE.parallel_share(ADDRESS, Work(work), None, count)
    assert all(end <= count // 4 + 2 for begin, end in began if begin == 0)
    assert any(begin == 0 and count // 4 <= end for begin, end in began)


@pytest.mark.parametrize("threads", [2, 3])
def test_ranges_are_contiguous_and_of_half_of_what_is_left_at_the_most(threads):
    set_num_threads(threads)
    ranges = []
    TABLE.parallel_for(ADDRESS, Task(lambda _, begin, end: ranges.append((begin, end))), None, 1001)
    ranges.sort()
    assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == 1001
    share, piece = 1001 // threads, 1001 // (16 * threads)
    assert all(piece <= end - begin <= share // 2 + piece for begin, end in ranges)


def test_closure_and_clock():
    value = ctypes.c_int64(41)

    def task(closure, begin, end):
        ctypes.c_int64.from_address(closure).value += end - begin

    set_num_threads(1)
    TABLE.parallel_for(ADDRESS, Task(task), ctypes.addressof(value), 1)
    assert value.value == 42
    assert 0 < TABLE.now_ns() <= TABLE.now_ns()


def test_nested_jobs_run_inline():
    set_num_threads(3)
    seen = np.zeros((20, 10), np.int64)

    def outer(_, begin, end):
        for i in range(begin, end):

            def inner(_, first, last, row=seen[i]):
                row[first:last] += 1

            TABLE.parallel_for(ADDRESS, Task(inner), None, 10)

    TABLE.parallel_for(ADDRESS, Task(outer), None, 20)
    assert (seen == 1).all()


def test_two_python_threads():
    set_num_threads(2)
    failures = []

    def run():
        for _ in range(100):
            if not (visits(50) == 1).all():
                failures.append(1)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_pool_cannot_change_inside_a_task():
    set_num_threads(2)
    caught = []

    def task(_, begin, end):
        try:
            set_num_threads(1)
        except UserError as error:
            caught.append(str(error))

    TABLE.parallel_for(ADDRESS, Task(task), None, 2)
    assert set(caught) == {"the thread pool can't be changed from inside one of its tasks"}
    assert get_num_threads() == 2


@pytest.mark.parametrize("threads", [0, -1, 257, 2**40, -(2**40)])
def test_numbers_of_threads_out_of_range(threads):
    with pytest.raises(ArgumentError, match="the number of threads must be from 1 to 256"):
        set_num_threads(threads)


@pytest.mark.parametrize("threads", [True, 1.0, "2", None])
def test_numbers_of_threads_that_are_no_ints(threads):
    with pytest.raises(ArgumentError, match="the number of threads must be an int"):
        set_num_threads(threads)


def run_python(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def test_the_environment_sets_the_number():
    program = "import pullback.runtime as r; print(r.get_num_threads())"
    assert run_python(program, PULLBACK_NUM_THREADS="3").stdout == "3\n"
    found = int(run_python(program, PULLBACK_NUM_THREADS="").stdout)
    assert 1 <= found <= len(os.sched_getaffinity(0)), "fewer where a container has a quota"
    done = run_python(
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n" + program, PULLBACK_NUM_THREADS=""
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize("value", ["0", "two", "300", "-2", "1.5"])
def test_an_environment_that_makes_no_sense(value):
    done = run_python("import pullback; pullback.runtime.runtime_table()", PULLBACK_NUM_THREADS=value)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        "pullback.ir.errors.UserError: PULLBACK_NUM_THREADS must be a whole number from 1 to 256, "
        f'got "{value}"; mend it or unset it'
    )
    assert run_python("import pullback", PULLBACK_NUM_THREADS=value).returncode == 0


# The task is machine code, as in compiled functions: CPython may hang in a fork's child if a thread that is not its own
# was just entering or leaving Python.
FORKING = """
import os, threading
import numpy as np
from pullback import codegen
from pullback.target import Target
from test_thread_pool import ADDRESS, TABLE, Task, set_num_threads

library = codegen.load_object(codegen.compile_object('''
define void @visit(ptr %seen, i64 %begin, i64 %end) {
    br label %loop
loop:
    %i = phi i64 [ %begin, %0 ], [ %next, %loop ]
    %place = getelementptr i64, ptr %seen, i64 %i
    %before = load i64, ptr %place
    %after = add i64 %before, 1
    store i64 %after, ptr %place
    %next = add i64 %i, 1
    %more = icmp slt i64 %next, %end
    br i1 %more, label %loop, label %done
done:
    ret void
}
''', Target("llvm")))
visit = Task(library.address("visit"))

def visits(count):
    seen = np.zeros(count, np.int64)
    TABLE.parallel_for(ADDRESS, visit, seen.ctypes.data, count)
    return seen

set_num_threads(3)
assert (visits(100) == 1).all()
running, jobs = True, 0

def keep_busy():
    global jobs
    while running:
        visits(10000)
        jobs += 1

other = threading.Thread(target=keep_busy)
other.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if all((visits(10000) == 1).all() for _ in range(10)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (visits(10000) == 1).all()
running = False
other.join()
print("done" if jobs else "the other thread did nothing")
"""


def test_fork_while_another_thread_uses_the_pool():
    done = run_python(FORKING, PYTHONPATH=os.path.dirname(__file__))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
