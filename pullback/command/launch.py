"""`python -m pullback train … --ranks N --restarts K`: starts ranks, watches them, and starts them again when they die.

The ranks are `python -m pullback train …` without these options, started by the launcher of MPI (one rank: by this
process). A restart goes on from the last checkpoint of the run's folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import IO, Any, TextIO

from pullback.command.hosts import Host, reachable, room
from pullback.command.mpirun import Launcher
from pullback.command.rank_output import Lines, Together
from pullback.command.rank_reports import LAUNCHED, REPORTS, Facts, Reporter, Reports, told
from pullback.ir.errors import UserError

GRACE = 30.0  # seconds in which ranks that are asked to end may still save
_TICK = 0.05
LINGER = 8.0  # seconds in which all ranks have to end when one has
_DRAIN = 2.0  # seconds in which the last output arrives
_LONGEST_WAIT = 60.0  # seconds before a restart
_FRAME = 74 * "-"  # above and below what Open MPI says
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ending:
    """How ranks ended: the code of the launcher, what to say of it, whether starting them again would be in vain, and
    the signal by which the user ended them."""

    code: int
    reason: str
    is_refused: bool = False
    stopped_by: int | None = None


@dataclass
class Ranks:
    """What is started: so many ranks of a program, on this machine or on ``hosts``, by a launcher; one rank on this
    machine needs none."""

    count: int
    launcher: Launcher | None
    hosts: tuple[Host, ...] = ()

    def command(self, program: Sequence[str], environment: dict[str, str]) -> list[str]:
        if self.launcher is None:
            return list(program)
        return self.launcher.command(self.count, self.hosts, program, environment)


class Start:
    """One start of a program on ranks, from its beginning to its end."""

    def __init__(self, ranks: Ranks, program: Sequence[str]) -> None:
        self.ranks, self.program = ranks, program
        self.batch_size: int | None = None  # when the ranks have told it
        self._ended: list[int] = []  # ranks, in the order in which they ended or failed, as far as that is known
        self._failures: list[str] = []  # of ranks, each with its reason
        self._last_words: list[str] = []  # of ranks that others have left alone
        self._is_refused = False
        self._launchers: list[str] = []  # lines of the launcher's own
        self._stopped_by: int | None = None
        self._deadline = float("inf")

    def run(self) -> Ending:
        """Start the ranks, show what they write, and wait until they have ended."""
        with Reports() as reports:
            return self._run(reports)

    def _run(self, reports: Reports) -> Ending:
        environment = os.environ | {LAUNCHED: "1", REPORTS: str(reports.path)}
        command = self.ranks.command(self.program, environment)
        parent = os.getpid()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                start_new_session=True,  # Ctrl-C comes to this process alone, which passes it on
                preexec_fn=lambda: end_with_parent(signal.SIGTERM, parent),
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            with self._signals_to(process):
                self._follow(process, reports)
        finally:
            _end(process)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return self._ending(process.returncode)

    def _follow(self, process: subprocess.Popen[bytes], reports: Reports) -> None:
        """Show the output, and hear the ranks' reports, until the launcher has ended."""
        assert process.stdout is not None and process.stderr is not None
        launcher, size = self.ranks.launcher, self.ranks.count
        label = None if launcher is None else launcher.label
        streams = {process.stdout: _Stream(label, size, sys.stdout), process.stderr: _Stream(label, size, sys.stderr)}
        with selectors.DefaultSelector() as selector:
            open_pipes = set(streams)
            for pipe in streams:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ)
            selector.register(reports.socket, selectors.EVENT_READ)
            ended = float("inf")
            while open_pipes and time.monotonic() < ended + _DRAIN:
                ready = selector.select(_TICK)
                self._see_ends(reports)
                for key, _ in ready:
                    source: Any = key.data or key.fileobj
                    if source is reports.socket:
                        self._accept(reports, selector)
                    elif isinstance(source, Reporter):
                        self._hear([source], selector)
                    elif not self._take(streams[source], source):
                        selector.unregister(source)
                        open_pipes.discard(source)
                for stream in streams.values():
                    stream.shown.flush(time.monotonic())
                if process.poll() is not None:
                    ended = min(ended, time.monotonic())
                elif time.monotonic() > self._deadline:
                    _end(process)
            process.wait()
            self._accept(reports, selector)
            self._see_ends(reports)
            # what ranks have reported is there, though they have ended
            while left := [key.data for key, _ in selector.select(0) if isinstance(key.data, Reporter)]:
                self._hear(left, selector)
        for stream in streams.values():
            self._show(stream, stream.lines.rest())
            stream.shown.flush(float("inf"))
            stream.file.flush()

    def _accept(self, reports: Reports, selector: selectors.BaseSelector) -> None:
        """Hear those who have connected, from now on."""
        while (reporter := reports.accept()) is not None:
            selector.register(reporter.socket, selectors.EVENT_READ, reporter)

    def _see_ends(self, reports: Reports) -> None:
        """Note which ranks of this machine have ended, the first one first."""
        for reporter in reports.ended():
            if reporter.rank is not None:
                self._has_ended(reporter.rank)

    def _hear(self, reporters: Iterable[Reporter], selector: selectors.BaseSelector) -> None:
        """Learn what ranks of this machine report, and which of them have ended."""
        for reporter in reporters:
            facts = reporter.take()
            if facts is None:
                selector.unregister(reporter.socket)
            if reporter.rank is None:
                continue
            for fact in facts or []:
                self._learn(reporter.rank, fact)
            if facts is None:
                self._has_ended(reporter.rank)

    def _has_ended(self, rank: int) -> None:
        """A rank has ended, or will: the others follow."""
        if rank not in self._ended:
            self._ended.append(rank)
        self._deadline = min(self._deadline, time.monotonic() + LINGER)

    def _take(self, stream: _Stream, pipe: IO[bytes]) -> bool:
        """Read what there is; False at the end."""
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self._show(stream, stream.lines.feed(data))
        return bool(data)

    def _show(self, stream: _Stream, lines: Sequence[tuple[int | None, str]]) -> None:
        for rank, text in lines:
            if rank is None or stream.is_of_mpi(rank, text):
                self._launchers.append(text)
            elif (facts := told(text)) is not None:
                self._learn(rank, facts)
            else:
                stream.shown.add(rank, text, time.monotonic())

    def _learn(self, rank: int, facts: Facts) -> None:
        if "failed" in facts:
            self._has_ended(rank)
            self._failures.append(f"rank {rank} failed: {facts['failed']}")
        if "told" in facts:  # by another rank, or by none
            self._has_ended(rank)
            self._last_words.append(facts["told"])
        self.batch_size = facts.get("batch_size") or self.batch_size
        self._is_refused |= bool(facts.get("refused"))

    # ---- signals

    @contextlib.contextmanager
    def _signals_to(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Pass Ctrl-C and SIGTERM on to the launcher; a second one ends all at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            is_first = self._stopped_by is None
            self._stopped_by = number
            self._deadline = time.monotonic() + (GRACE if is_first else 0.0)
            if is_first and process.poll() is None:
                process.send_signal(number)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ---- endings

    def _ending(self, code: int) -> Ending:
        if self._stopped_by is not None:
            return Ending(code, f"stopped by {_signal(self._stopped_by)}", stopped_by=self._stopped_by)
        reason, is_known = self._reason(code)
        if code and not is_known and not self._is_refused:  # nothing is kept back that may explain it
            for line in filter(str.strip, self._launchers):
                print(line, file=sys.stderr)
        return Ending(code, reason, self._is_refused)

    def _reason(self, code: int) -> tuple[str, bool]:
        """Why the ranks ended, and whether that is all that the launcher says."""
        text = " ".join(self._launchers)
        if said := self._failures or self._last_words:
            return said[0], True
        if self.ranks.launcher is None:
            return f"rank 0 {_how(code % 256 << 8 if code >= 0 else -code)}", True
        if found := re.search(r"process rank (\d+) with PID \d+ on node \S+\s+exited on\s+signal (\d+)", text):
            return f"rank {found[1]} {_how(int(found[2]))}", True
        if found := re.search(r"Process name:\s+\[\S+,(\d+)\]\s+Exit code:\s+(\d+)", text):
            return f"rank {found[1]} {_how(int(found[2]) << 8)}", True
        if found := re.search(r"Exit codes:((?: +\[\S+\] [\d,]+)+)", text):  # Hydra's, which ends the others by SIGKILL
            statuses = dict(enumerate(map(int, re.findall(r"\d+(?=,|\s|$)", re.sub(r"\[\S+\]", "", found[1])))))
            failed = [rank for rank, status in statuses.items() if status]
            own = failed if len(failed) == 1 else [rank for rank in self._ended if rank in failed]
            own += [rank for rank in failed if statuses[rank] != signal.SIGKILL]
            if own:
                return f"rank {own[0]} {_how(statuses[own[0]])}", True
            if signal.SIGKILL in statuses.values():
                return f"a rank {_how(signal.SIGKILL)}", True
        if self._ended and time.monotonic() > self._deadline:
            return f"rank {self._ended[0]} ended, and the others did not within {LINGER:g} s", False
        return f"the ranks ended with code {code}", False


def _how(status: int) -> str:
    """What a status of the system's ``wait`` says."""
    number = status & 0x7F
    return f"was killed by {_signal(number)}" if number else f"ended with code {status >> 8}"


class _Stream:
    """Standard output or error of all ranks."""

    def __init__(self, label: re.Pattern[bytes] | None, size: int, file: TextIO) -> None:
        self.file = file
        self.lines = Lines(label)
        self.shown = Together(size, self._print)
        self._framed: set[int] = set()  # ranks in which Open MPI says something

    def is_of_mpi(self, rank: int, text: str) -> bool:
        """Whether a line is what a library of MPI writes when its program calls MPI_Abort, which has said why."""
        if self.file is sys.stdout:
            return False
        if text == _FRAME:
            self._framed ^= {rank}
        return text == _FRAME or rank in self._framed or re.match(r"Abort\(\d+\) on node \d+ ", text) is not None

    def _print(self, text: str) -> None:
        print(text, file=self.file, flush=True)


def end_with_parent(number: int, parent: int | None = None) -> None:
    """Have the system send this process a signal when the one that started it ends, where it can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if parent is not None and os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the launcher, which ends its ranks; and whoever is left of its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} (out of memory?)" if name == "SIGKILL" else name


@dataclass
class Tries:
    """Starts in a row that made no progress: all of them, and those with as many ranks as now."""

    in_vain: int = 0
    of_this_size: int = 0

    def add(self, has_progress: bool) -> None:
        self.in_vain, self.of_this_size = (0, 0) if has_progress else (self.in_vain + 1, self.of_this_size + 1)

    def limit(self, count: int, asked: int) -> int:
        """How many ranks to start at the most after those with ``count``, where ``asked`` are wanted."""
        return count - 1 if self.of_this_size >= 2 else count if self.of_this_size else asked


@dataclass
class Restarts:
    """Starts ranks again until they end well.

    ``most``: how often. ``fewest``: the fewest ranks to go on with. ``program(is_restart)`` is what ranks run,
    ``progress()`` how far they have come (a number that grows), ``place()`` says from where they go on. ``note`` is
    called with what there is to tell. ``first_wait``: seconds before the first restart; it doubles while there is no
    progress. ``hosts_there`` tells which machines answer.

    After two starts with equally many ranks that made no progress fewer are started, and where there may be no fewer
    the job is given up.
    """

    ranks: Ranks
    most: int
    fewest: int
    program: Callable[[bool], Sequence[str]]
    progress: Callable[[], int]
    place: Callable[[], str]
    note: Callable[[str], None]
    first_wait: float = 1.0
    hosts_there: Callable[[Sequence[Host]], tuple[Host, ...]] = reachable
    start: Callable[[Ranks, Sequence[str]], Start] = Start
    _batch_size: int | None = None  # when ranks have told it

    def run(self) -> Ending:
        """The last ending: a good one, or that after which nothing is started any more, and why."""
        ranks, tries = self.ranks, Tries()
        for number in range(self.most + 1):
            before = self.progress()
            start = self.start(ranks, self.program(number > 0))
            ending = start.run()
            self._batch_size = start.batch_size or self._batch_size
            if ending.code == 0 or ending.stopped_by is not None or ending.is_refused or not self.most:
                return ending
            if number == self.most:
                return replace(ending, reason=f"{ending.reason}, after {number} restart{'s' * (number > 1)}")
            tries.add(self.progress() > before)
            hosts = self.hosts_there(self.ranks.hosts)
            limit = tries.limit(ranks.count, self.ranks.count)
            limit = min(limit, room(hosts)) if self.ranks.hosts else limit
            count = most_ranks(limit, self.fewest, self._batch_size)
            if count is None:
                return replace(ending, reason=f"{ending.reason}; {self._why_not(limit, ranks.count, hosts)}")
            if count != ranks.count:
                tries.of_this_size = 0
            ranks = Ranks(count, self.ranks.launcher, hosts)
            seconds = min(_LONGEST_WAIT, self.first_wait * 2 ** max(0, tries.in_vain - 1))
            self.note(f"{ending.reason}; restart {number + 1} of {self.most} in {seconds:g} s {self._with(count)}")
            if (stopped_by := _wait(seconds)) is not None:
                return Ending(ending.code, ending.reason, stopped_by=stopped_by)
        raise AssertionError("the last start has returned")

    def _with(self, count: int) -> str:
        less = f" instead of {self.ranks.count}" if count < self.ranks.count else ""
        return f"with {count} rank{'s' * (count > 1)}{less}, {self.place()}"

    def _why_not(self, limit: int, count: int, hosts: Sequence[Host]) -> str:
        if self.ranks.hosts and room(hosts) < self.fewest:
            answer = ", ".join(map(str, hosts)) or "none"
            return f"of the machines these answer: {answer}, too few for {self.fewest} ranks"
        if limit < self.fewest:
            return f"two starts with {count} rank{'s' * (count > 1)} made no progress: it is given up"
        return f"no number of ranks from {self.fewest} to {limit} divides the batch of {self._batch_size} rows"


def most_ranks(limit: int, fewest: int, batch_size: int | None) -> int | None:
    """The most ranks up to ``limit`` that divide a batch, if its size is known; None where ``fewest`` are too many."""
    fitting = (n for n in range(limit, fewest - 1, -1) if batch_size is None or batch_size % n == 0)
    return next(fitting, None)


def _wait(seconds: float) -> int | None:
    """Wait; returns SIGINT where Ctrl-C ended that."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return int(signal.SIGINT)
    return None
