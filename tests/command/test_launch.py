"""Launchers of MPI: what they are told, how their output is taken apart, how endings are read, and what a restart does.

What Hydra and Open MPI write was recorded; where one is installed, ranks are started with it for real.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pullback.command import hosts as places
from pullback.command import launch, mpirun
from pullback.command.hosts import Host, hosts_of
from pullback.command.launch import Ending, Ranks, Restarts, Start, most_ranks
from pullback.command.mpirun import HYDRA, OPEN_MPI, Launcher
from pullback.command.rank_output import HOLD, HOLD_FIRST, Lines, Together, named
from pullback.command.rank_reports import LAUNCHED, REPORTS
from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import affinity
from tests.launchers import installed

HYDRAS = Launcher(Path("mpiexec"), HYDRA, 5)
OPEN_MPIS = {version: Launcher(Path("mpirun"), OPEN_MPI, version) for version in (4, 5)}

# ---- output


def cut(data: bytes, seed: int) -> list[bytes]:
    """The bytes in pieces of any size."""
    rng, pieces = random.Random(seed), []
    while data:
        size = rng.randint(1, 12)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def lines_in(data: bytes, launcher: Launcher | None, seed: int) -> list[tuple[int | None, str]]:
    found = Lines(None if launcher is None else launcher.label)
    return [line for piece in cut(data, seed) for line in found.feed(piece)] + found.rest()


HYDRA_TEXT = (
    b"\x1e0\x1fone\n\x1e1\x1fpa\x1e0\x1ftwo\n\x1e1\x1frt\x1e11\x1f\xc3\xa9\x1e1\x1f of one\x1e1\x1f\n"
    b"\n=   BAD TERMINATION\n\x1e11\x1f\n\x1e0\x1funended"
)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_ranks_become_their_lines(seed: int) -> None:
    found = lines_in(HYDRA_TEXT, HYDRAS, seed)
    by_rank = {r: [text for rank, text in found if rank == r] for r in (0, 1, 11, None)}
    assert by_rank == {
        0: ["one", "two", "unended"], 1: ["part of one"], 11: ["é"], None: ["", "=   BAD TERMINATION"]
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_lines_of_open_mpi(seed: int) -> None:
    new = b"[1,0]<stdout>: a b\n[prterun-vm-7@1,12]<stderr>:  c\n----\nprterun noticed\n[1,0]<stdout>: \n"
    assert lines_in(new, OPEN_MPIS[5], seed) == [
        (0, "a b"), (12, " c"), (None, "----"), (None, "prterun noticed"), (0, "")
    ]  # fmt: skip
    assert lines_in(b"[1,0]<stdout>: a\n[1,1]<stderr>:b\n", OPEN_MPIS[4], seed) == [(0, " a"), (1, "b")]


def test_without_a_launcher_all_is_of_rank_0() -> None:
    assert lines_in(b"a\r\n\nb", None, 0) == [(0, "a"), (0, ""), (0, "b")]


def shown(size: int, events: Sequence[tuple[float, int, str]]) -> list[str]:
    """What stands there after ranks wrote lines at some times, and a long time after."""
    found: list[str] = []
    lines = Together(size, found.append)
    for at, rank, text in events:
        lines.flush(at)
        lines.add(rank, text, at)
        lines.flush(at)
    lines.flush(float("inf"))
    return found


def test_what_several_ranks_write_stands_once() -> None:
    assert shown(1, [(0, 0, "a"), (0, 0, "a")]) == ["a", "a"]
    assert shown(3, [(0, 0, "a"), (0.1, 2, "a"), (0.15, 1, "a")]) == ["a"]
    assert shown(3, [(0, 2, "a"), (0.1, 0, "a"), (0.15, 1, "a")]) == ["a"]
    assert shown(3, [(0, 2, "a"), (0.9, 1, "a")]) == ["[ranks 1, 2] a"]
    assert shown(5, [(0, 4, "a"), (0, 1, "b"), (0, 2, "a"), (0, 3, "a")]) == ["[ranks 2-4] a", "[rank 1] b"]
    assert shown(2, [(0, 0, "a"), (2 * HOLD_FIRST, 1, "a")]) == ["a", "[rank 1] a"], "later it is another line"
    assert shown(2, [(0, 1, "a"), (2 * HOLD, 1, "b")]) == ["[rank 1] a", "[rank 1] b"]


def test_lines_of_a_rank_keep_their_order() -> None:
    rng = random.Random(0)
    for _ in range(200):
        size = rng.randint(2, 4)
        events = [(0.1 * i, rng.randrange(size), rng.choice("abc")) for i in range(20)]
        found = shown(size, events)
        for rank in range(size):
            own = [text for _, r, text in events if r == rank]
            seen = iter(line.rpartition("] ")[2] for line in found if rank in ranks_before(line, size))
            assert all(text in seen for text in own), (events, found)


def ranks_before(line: str, size: int) -> set[int]:
    """Who may have written a line: those that stand before it, or else all."""
    found = re.match(r"\[ranks? (.*)\] ", line)
    runs = [run.split("-") for run in found[1].split(", ")] if found else [["0", str(size)]]
    return {rank for run in runs for rank in range(int(run[0]), int(run[-1]) + 1)}


def test_names_of_ranks() -> None:
    assert named({3}) == "rank 3" and named({4, 0, 1, 2, 7}) == "ranks 0-2, 4, 7".replace("2, 4", "2, 4")
    assert named({0, 1}) == "ranks 0, 1" and named({5, 6, 7}) == "ranks 5-7"


# ---- launchers


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


TELLS = {
    "HYDRA build details:\n    Version:      5.0.2": (HYDRA, 5),
    "Intel(R) MPI Library for Linux* OS, Version 2021.19 Build 2025": (HYDRA, 2021),
    "mpirun (Open MPI) 4.1.4\n": (OPEN_MPI, 4),
    "mpirun (Open MPI) 5.0.11\n": (OPEN_MPI, 5),
}


@pytest.mark.parametrize("text", TELLS)
def test_launchers_are_known_by_what_they_say(text: str, tmp_path: Path) -> None:
    path = program(tmp_path, "mpiexec", f"cat <<'E'\n{text}\nE")
    assert mpirun.find(path) == Launcher(path, *TELLS[text])


def test_the_launcher_beside_the_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun.sysconfig, "get_path", lambda _: str(tmp_path / "none"))
    monkeypatch.setattr(mpirun.sys, "executable", str(tmp_path / "none" / "python"))
    open_mpi = program(tmp_path, "a/mpirun", "echo 'mpirun (Open MPI) 5.0.1'")
    program(tmp_path, "b/mpiexec", "exit 1")
    hydra = program(tmp_path, "c/bin/mpiexec", "echo HYDRA; echo Version: 4.2")
    path = f"{tmp_path}/b{os.pathsep}{tmp_path}/a{os.pathsep}/usr/bin{os.pathsep}/bin"
    monkeypatch.setenv("PATH", path)
    assert mpirun.find() == Launcher(open_mpi, OPEN_MPI, 5), "what is no launcher is passed over"
    monkeypatch.setenv("PULLBACK_MPI", str(tmp_path / "c/lib/libmpi.so.12"))
    assert mpirun.find() == Launcher(hydra, HYDRA, 4)
    monkeypatch.delenv("PULLBACK_MPI")
    (tmp_path / "a/mpirun").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/b")
    with pytest.raises(UserError, match=r"no mpiexec, which starts ranks: looked in .*none.*\n.*pullback\[mpi\]"):
        mpirun.find()


def test_what_is_no_launcher(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="--mpirun nowhere: there is no such program"):
        mpirun.find(Path("nowhere"))
    with pytest.raises(ArgumentError, match="is no launcher that is known"):
        mpirun.find(program(tmp_path, "srun", "echo slurm 23.11"))


def test_command_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun.os, "geteuid", lambda: 0)
    hosts = (Host("a", 4), Host("b", 2))
    line = HYDRAS.command(6, hosts, ["python", "x"], {})
    assert line[:1] + line[4:] == ["mpiexec", "-hosts", "a:4,b:2", "-n", "6", "python", "x"]
    assert line[1:4] == ["-prepend-pattern", "\x1e%r\x1f", "-print-all-exitcodes"]
    given = {"PULLBACK_X": "1", "HOME": "/", "PYTHONPATH": "p"}
    old, new = (OPEN_MPIS[v].command(2, hosts, ["python"], given) for v in (4, 5))
    assert "--oversubscribe" in old and "--tag-output" in old and "--map-by" not in old
    assert new[new.index("--output") + 1] == "tag" and "--oversubscribe" not in new
    for line in (old, new):
        text = " ".join(line)
        assert "--host a:4,b:2 --allow-run-as-root -x PULLBACK_X -x PYTHONPATH -n 2 python" in text.replace(
            "-x HOME ", "!"
        )
        assert "--bind-to none" in text
    monkeypatch.setattr(mpirun.os, "geteuid", lambda: 1000)
    assert "--allow-run-as-root" not in OPEN_MPIS[5].command(2, (), ["python"], {})


# ---- hosts

HOSTS = {
    ("a,b", 4): "a:2 b:2",
    ("a,b,c", 4): "a:2 b:1 c:1",
    ("a:3, b", 4): "a:3 b:1",
    ("a:4,b:4", 5): "a:4 b:4",
    ("a,b", 1): "a:1",
    ("a:1,a:2", 3): "a:3",
}


@pytest.mark.parametrize(("text", "ranks"), HOSTS)
def test_hosts(text: str, ranks: int) -> None:
    assert " ".join(map(str, hosts_of(text, ranks, {}))) == HOSTS[text, ranks]


def test_hosts_of_files(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    for name, text in {
        "HYDRA_HOST_FILE": "a:2\n# comment\n\nb:2 # more",
        "OMPI_MCA_orte_default_hostfile": "a slots=2\nb slots=2",
        "PBS_NODEFILE": "a\na\nb\nb\n",
        "I_MPI_HYDRA_HOST_FILE": "a\nb\n",
    }.items():
        file.write_text(text)
        assert hosts_of(None, 4, {name: str(file)}) == (Host("a", 2), Host("b", 2)), name
    assert hosts_of(None, 4, {}) == () and hosts_of("c", 1, {"PBS_NODEFILE": str(file)}) == (Host("c", 1),)
    with pytest.raises(ArgumentError, match="nowhere cannot be read"):
        hosts_of(None, 4, {"PBS_NODEFILE": "nowhere"})


@pytest.mark.parametrize(
    ("text", "message"),
    [("a:2,b:1", "4 ranks do not fit on a:2, b:1, which take 3"), ("a:x", "'a:x' is no host"),
     ("a,,b", "'' is no host"), ("a:0", "'a:0' is no host"), (":3", "':3' is no host")],
)  # fmt: skip
def test_wrong_hosts(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        hosts_of(text, 4, {})


def test_hosts_that_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = program(tmp_path, "shell", 'test "$1 $2" = "up true"')
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", str(shell))
    hosts = [Host("up", 2), Host("down", 1), Host("localhost", 3)]
    assert places.reachable(hosts) == (Host("up", 2), Host("localhost", 3)) and places.reachable([]) == ()


# ---- endings, and what follows

SIGKILLED = "was killed by SIGKILL (out of memory?)"
HYDRA_SAYS = """
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 30199 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
[mpiexec@vm] Exit codes: CODES
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"""
PRTE_KILLED = """--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 0 on node vm exited on
signal 11 (Segmentation fault)."""
PRTE_ENDED = """prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-30189@1,1]
   Exit code:    3"""


@pytest.mark.parametrize(
    ("launcher", "text", "ended", "reason"),
    [
        (
            HYDRAS,
            HYDRA_SAYS.replace("CODES", "[vm] 9,9 [b1] 9,9"),
            [3, 1],
            "rank 3 was killed by SIGKILL (out of memory?)",
        ),
        (HYDRAS, HYDRA_SAYS.replace("CODES", "[vm] 9,9 [b1] 9,9"), [], "a rank was killed by SIGKILL (out of memory?)"),
        (HYDRAS, HYDRA_SAYS.replace("CODES", "[vm] 9,9 [b1] 11,9"), [], "rank 2 was killed by SIGSEGV"),
        (HYDRAS, HYDRA_SAYS.replace("CODES", "[vm] 9,256,9,9"), [], "rank 1 ended with code 1"),
        (HYDRAS, "[mpiexec@vm] Exit codes: [vm:0] 0,9,0", [], f"rank 1 {SIGKILLED}"),
        (HYDRAS, "[mpiexec@vm] Exit codes: [vm] 0,768,0", [0, 1], "rank 1 ended with code 3"),
        (HYDRAS, "", [], "the ranks ended with code 9"),
        (OPEN_MPIS[5], PRTE_KILLED, [], "rank 1 was killed by SIGSEGV"),
        (OPEN_MPIS[5], PRTE_ENDED, [0], "rank 1 ended with code 3"),
    ],
)
def test_reasons(
    launcher: Launcher, text: str, ended: list[int], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = Start(Ranks(4, launcher), [])
    start._ended += ended
    start._launchers += text.splitlines()
    assert start._ending(9).reason == reason
    assert capsys.readouterr().err == "", "all is said by the reason"


def test_what_a_launcher_says_is_shown_where_it_is_not_understood(capsys: pytest.CaptureFixture[str]) -> None:
    start = Start(Ranks(4, HYDRAS), [])
    start._launchers += ["", "[mpiexec@vm] unable to reach host b"]
    assert start._ending(255).reason == "the ranks ended with code 255"
    assert capsys.readouterr().err == "[mpiexec@vm] unable to reach host b\n"


@pytest.mark.parametrize(
    ("limit", "fewest", "batch", "count"),
    [(4, 1, None, 4), (4, 4, None, 4), (3, 4, None, None), (3, 1, 8, 2), (7, 1, 7, 7), (6, 1, 7, 1), (6, 2, 7, None)],
)
def test_the_most_ranks_that_divide_a_batch(limit: int, fewest: int, batch: int | None, count: int | None) -> None:
    assert most_ranks(limit, fewest, batch) == count


class Played:
    """Restarts of a job that is not there: each start is a number of steps that it gets further, and how it ends."""

    def __init__(self, starts: Sequence[tuple[int, int]], ranks: int, fewest: int, most: int = 9, **options: object):
        self.starts, self.steps = list(starts), 0
        self.counts: list[int] = []
        self.notes: list[str] = []
        self.waits: list[float] = []
        hosts = options.pop("hosts", ())
        self.restarts = Restarts(
            Ranks(ranks, None, hosts), most, fewest, lambda is_restart: [str(is_restart)], lambda: self.steps,  # type: ignore[arg-type]
            lambda: f"from step {self.steps}", self.notes.append, start=self.start, **options,  # type: ignore[arg-type]
        )  # fmt: skip
        self.restarts._batch_size = 8

    def start(self, ranks: Ranks, command: Sequence[str]) -> Start:
        assert command == [str(bool(self.counts))]
        self.counts.append(ranks.count)
        steps, code = self.starts.pop(0)
        played = Start(ranks, command)

        def run() -> Ending:
            self.steps += steps
            return Ending(code, "rank 1 was killed")

        played.run = run  # type: ignore[method-assign]
        return played

    def run(self, monkeypatch: pytest.MonkeyPatch) -> Ending:
        monkeypatch.setattr(launch, "_wait", self.waits.append)
        return self.restarts.run()


def test_starts_with_progress_have_as_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Played([(3, 9), (0, 9), (2, 9), (1, 0)], 4, 1)
    assert job.run(monkeypatch).code == 0 and job.counts == [4, 4, 4, 4] and job.waits == [1, 1, 1]
    assert job.notes[0] == "rank 1 was killed; restart 1 of 9 in 1 s with 4 ranks, from step 3"


def test_without_progress_there_are_fewer_ranks_and_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Played([(0, 9)] * 9, 4, 1)
    ending = job.run(monkeypatch)
    assert job.counts == [4, 4, 2, 2, 1, 1] and job.waits == [1, 2, 4, 8, 16], "3 ranks do not divide 8 rows"
    assert ending.reason == "rank 1 was killed; two starts with 1 rank made no progress: it is given up"
    assert "with 2 ranks instead of 4, from step 0" in job.notes[1]
    job = Played([(0, 9)] * 9, 4, 4)
    assert "two starts with 4 ranks made no progress" in job.run(monkeypatch).reason and job.counts == [4, 4]
    job = Played([(0, 9), (0, 9), (0, 9), (5, 9), (0, 0)], 4, 2)
    assert job.run(monkeypatch).code == 0 and job.counts == [4, 4, 2, 2, 4], "with progress all are tried again"


def test_no_number_of_ranks_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Played([(1, 9)] * 9, 4, 3)
    job.restarts._batch_size = 7
    assert job.run(monkeypatch).reason.endswith("no number of ranks from 3 to 4 divides the batch of 7 rows")


def test_restarts_end(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Played([(1, 9)] * 9, 2, 2, most=2)
    assert job.run(monkeypatch).reason == "rank 1 was killed, after 2 restarts" and job.counts == [2, 2, 2]
    job = Played([(1, 9)], 2, 2, most=0)
    assert job.run(monkeypatch).reason == "rank 1 was killed" and not job.notes


def test_machines_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = (Host("a", 2), Host("b", 2))
    there = [hosts[:1], hosts, ()]
    job = Played([(1, 9)] * 9, 4, 2, hosts=hosts, hosts_there=lambda _: there.pop(0))
    ending = job.run(monkeypatch)
    assert job.counts == [2 * 2, 2, 4] and ending.reason.endswith("answer: none, too few for 2 ranks")


# ---- for real


def script(folder: Path, text: str) -> list[str]:
    path = folder / "rank.py"
    own = "import json, os, signal, socket, sys, time\n"
    rank = 'rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)\n'
    path.write_text(own + rank + "import os\n" + text)
    return [sys.executable, "-S", str(path)]


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    return installed()


TELL = f"""
reports = socket.socket(socket.AF_UNIX)
reports.connect(os.environ[{REPORTS!r}])
reports.sendall(json.dumps({{"rank": rank}}).encode() + b"\\n")
"""


def test_ranks_of_a_launcher(tmp_path: Path, launcher: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        f'assert os.environ["{LAUNCHED}"] == "1"\nprint("both"); print("own", rank); print("x" * 200_000 + str(rank))'
    )
    ending = Start(Ranks(2, launcher), script(tmp_path, text)).run()
    assert ending.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(lines) == {"both", "own 0", "[rank 1] own 1", "x" * 200_000 + "0", "[rank 1] " + "x" * 200_000 + "1"}
    assert len(lines) == 5


def test_a_rank_that_is_killed_ends_all(
    tmp_path: Path, launcher: Launcher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once by MPICH and Open MPI; Intel's launcher leaves others alone that have not called MPI_Init."""
    text = TELL + "if rank == 1: time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)"
    monkeypatch.setattr(launch, "LINGER", 1.0)
    begun = time.monotonic()
    ending = Start(Ranks(2, launcher), script(tmp_path, text)).run()
    assert time.monotonic() - begun < 30
    assert ending.code != 0 and not ending.is_refused
    assert ending.reason in (f"rank 1 {SIGKILLED}", "rank 1 ended, and the others did not within 1 s")
    assert capsys.readouterr().err == ""


def test_a_rank_that_fails_ends_all(
    tmp_path: Path, launcher: Launcher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TELL + "if rank == 1: sys.exit('no such thing')\ntime.sleep(60)"
    monkeypatch.setattr(launch, "LINGER", 1.0)
    begun = time.monotonic()
    ending = Start(Ranks(2, launcher), script(tmp_path, text)).run()
    assert time.monotonic() - begun < 30 and ending.code
    assert re.fullmatch(r"rank 1 ended(, and the others did not within 1 s| with code 1)", ending.reason)
    assert "[rank 1] no such thing" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_a_rank(number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are passed on: the rank may still save."""
    text = f"""
def handle(number, frame):
    print("saved after", number); sys.exit(7)
signal.signal({int(number)}, handle)
os.kill(os.getppid(), {int(number)})
time.sleep(60)"""
    ending = Start(Ranks(1, None), script(tmp_path, text)).run()
    assert ending.code == 7 and ending.stopped_by == number
    assert capsys.readouterr().out == f"saved after {int(number)}\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.2)
    monkeypatch.setattr(launch.subprocess.Popen, "terminate", lambda self: None)  # as if it did not hear that either
    wait = subprocess.Popen.wait
    monkeypatch.setattr(launch.subprocess.Popen, "wait", lambda self, timeout=None: wait(self, timeout and 0.2))
    text = "signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    ending = Start(Ranks(1, None), script(tmp_path, text)).run()
    assert ending.stopped_by == signal.SIGINT and ending.code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells processes that their parent has ended")
def test_ranks_end_with_who_started_them(tmp_path: Path) -> None:
    inner = script(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()) + ' '); time.sleep(60)")
    outer = f"from pullback.command.launch import Ranks, Start; Start(Ranks(1, None), {inner!r}).run()"
    with subprocess.Popen([sys.executable, "-c", outer]) as process:
        pid = ""
        while not pid.endswith(" "):
            time.sleep(0.02)
            pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
        process.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _is_alive(int(pid)):
        time.sleep(0.02)
    assert not _is_alive(int(pid))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- CPUs


def machine(monkeypatch: pytest.MonkeyPatch, sockets: int, cores: int, threads: int) -> list[int]:
    """A machine whose hardware threads are numbered as Linux does: the first of every core, then the second."""
    total = sockets * cores
    monkeypatch.setattr(affinity, "_core", lambda cpu: (cpu % total // cores, cpu % total % cores))
    return list(range(total * threads))


def test_shares_are_neighbours_and_whole_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = machine(monkeypatch, sockets=2, cores=4, threads=2)
    shares = [affinity.share(cpus, number, 4) for number in range(4)]
    assert shares == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15)]
    assert [affinity.share(cpus, number, 3) for number in range(3)] == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13)]
    assert [len(affinity.share(cpus, number, 16)) for number in range(16)] == [1] * 16, "threads where cores are few"
    assert affinity.share(cpus, 3, 17) == ()
    assert affinity.share([1, 5, 9], 1, 2) == (5,), "of what a container has"


class Peers:
    """Ranks of which this is one, on machines where each may run on some CPUs."""

    def __init__(self, rank: int, where: Sequence[tuple[str, tuple[int, ...], bool]]) -> None:
        self.rank, self.size, self.where = rank, len(where), list(where)

    def exchange(self, value: tuple[str, tuple[int, ...], bool]) -> list[tuple[str, tuple[int, ...], bool]]:
        self.where[self.rank] = value
        return self.where


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the process is bound to, and how many threads it gets; nothing is changed."""
    done: list[object] = []
    machine(monkeypatch, 1, 8, 1)
    monkeypatch.setattr(affinity, "_allowed", lambda: tuple(range(8)))
    monkeypatch.setattr(affinity.socket, "gethostname", lambda: "a")
    monkeypatch.setattr(affinity, "_bind", done.append)
    monkeypatch.setattr(affinity, "get_num_threads", lambda: 8)
    monkeypatch.setattr(affinity, "set_num_threads", done.append)
    monkeypatch.delenv("PULLBACK_NUM_THREADS", raising=False)
    return done


def test_ranks_of_a_machine_share_its_cpus(bound: list[object]) -> None:
    all8 = tuple(range(8))
    others = [("b", all8, False), ("a", all8, False), ("b", all8, False), ("a", all8, False)]
    assert affinity.share_cpus(Peers(3, others)) == (4, 5, 6, 7)  # type: ignore[arg-type]
    assert bound == [(4, 5, 6, 7), 4]


def test_what_a_launcher_or_the_user_has_bound_stays(bound: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    all8 = tuple(range(8))
    assert affinity.share_cpus(Peers(0, [("a", (), False), ("a", (6, 7), False)])) == all8  # type: ignore[arg-type]
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "2")
    assert affinity.share_cpus(Peers(0, [("a", (), False), ("a", all8, True)])) == all8  # type: ignore[arg-type]
    assert bound == []


def test_more_ranks_than_cpus(bound: list[object]) -> None:
    all8 = tuple(range(8))
    affinity.share_cpus(Peers(8, [("a", all8, False)] * 9))  # type: ignore[arg-type]
    assert bound == [1]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes")
def test_all_threads_are_bound() -> None:
    text = """
import os, threading, time
from pullback.runtime import affinity
from tests.launchers import installed
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
first = min(os.sched_getaffinity(0))
affinity._bind([first])
print(all(os.sched_getaffinity(int(t)) == {first} for t in os.listdir("/proc/self/task")))
os._exit(0)"""
    done = subprocess.run([sys.executable, "-u", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
