"""Ranks that a launcher of MPI starts: small jobs of two processes, where there is an MPI. PULLBACK_MPI may name it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path

import pytest

from pullback.command import mpirun
from pullback.ir.errors import UserError
from pullback.runtime import mpi, ranks

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("mpi_program.py")
KINDS = ["reduce", "reduce_pieces", "gather_pieces", "broadcast", "all_to_all"]


def library() -> str | None:
    """The path or name of a library of MPI, which is not loaded: the test's own process is none of a job."""
    found = [os.environ.get("PULLBACK_MPI") or "", *mpi.candidates(None)]
    return next((p for p in found if os.path.isabs(p) and os.path.exists(p)), find_library("mpi"))


@pytest.fixture(scope="module")
def launcher() -> mpirun.Launcher:
    if library() is None:
        pytest.skip("there is no library of MPI")
    try:
        return mpirun.find()
    except UserError as error:
        pytest.skip(error.message)


def start(launcher: mpirun.Launcher, *arguments: str, seconds: float = 60, **variables: str) -> tuple[int, str]:
    """A job of two ranks: its exit status and all that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PULLBACK_NUM_THREADS": "1", **variables}
    command = launcher.command(2, [], [sys.executable, str(PROGRAM), *arguments], environment)
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=seconds, encoding="utf-8", errors="replace",
    )  # fmt: skip
    return done.returncode, done.stdout


def libraries() -> list[str]:
    """All libraries of the MPI that is there: the standard ABI, and the library's own."""
    folder = Path(os.path.realpath(library() or "")).parent
    names = ("libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40")
    return [str(folder / name) for name in names if (folder / name).exists()] or [library() or "none"]


@pytest.mark.parametrize("path", libraries(), ids=os.path.basename)
def test_two_processes(launcher: mpirun.Launcher, path: str) -> None:
    status, text = start(launcher, "all", "reduce", PULLBACK_MPI=path)
    assert status == 0, text
    for rank in range(2):
        assert f"rank {rank} of 2 is done" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_rank_ends_the_job(launcher: mpirun.Launcher, kind: str) -> None:
    status, text = start(launcher, "killed", kind)
    killed = re.search(r"killed at ([\d.]+)", text)
    assert status != 0 and killed is not None and re.search("Killed|signal 9", text), text
    assert time.time() - float(killed[1]) < 10


@pytest.mark.parametrize("kind", ["reduce", "broadcast"])
def test_an_error_of_one_rank_ends_the_job_and_all_say_why(launcher: mpirun.Launcher, kind: str) -> None:
    status, text = start(launcher, "raises", kind)
    assert status != 0
    assert "Traceback" in text
    assert "rank 1 of 2 failed: ValueError: the disk is full" in text
    assert "rank 0 of 2 ends: rank 1 failed: ValueError: the disk is full" in text


@pytest.mark.slow
def test_a_rank_that_says_that_it_failed(launcher: mpirun.Launcher) -> None:
    status, text = start(launcher, "fails", "reduce", seconds=50)
    assert status != 0 and "rank 0 of 2 ends: rank 1 failed: its data are damaged" in text


@pytest.mark.slow
def test_a_rank_that_exits_early_is_missed(launcher: mpirun.Launcher) -> None:
    status, text = start(launcher, "exits", "all_to_all")
    assert status != 0 and "rank 0 of 2 ends: rank 1 ended, and others wait for it" in text


# ---- without a job


def test_one_process_loads_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "launcher", lambda: None)
    monkeypatch.setattr(mpi, "is_begun", lambda: False)
    monkeypatch.setattr(mpi, "started_otherwise", lambda: None)
    monkeypatch.setattr(mpi, "join", lambda started: pytest.fail("there is nothing to join"))
    assert (ranks.start().rank, ranks.start().size) == (0, 1)


def test_threads_that_are_ranks_have_started() -> None:
    assert ranks.run_local(3, lambda rank: ranks.start().rank) == [0, 1, 2]


@pytest.mark.parametrize(
    ("environment", "name", "size", "rank"),
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9"}, "mpiexec", 4, 1),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "0"}, "Open MPI's mpirun", 8, 0),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "SLURM_STEP_NUM_TASKS": "2"}, "srun", 2, 0),
        ({"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "16"}, "srun", 16, 3),
        ({"PMIX_RANK": "3"}, "mpirun", None, 3),
        ({"PMI_FD": "9", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, "srun", 6, 5),
        ({"PMI_FD": "9"}, "mpiexec", None, None),
    ],
)
def test_launchers_are_known_by_their_variables(
    environment: dict[str, str], name: str, size: int | None, rank: int | None
) -> None:
    found = mpi.launcher(environment)
    assert found is not None and (found.name, found.size, found.rank) == (name, size, rank)


def test_a_batch_script_is_no_rank() -> None:
    environment = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    assert mpi.launcher(environment) is None and mpi.started_otherwise(environment) is None


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "RANK": "0"}, "torchrun started 4 processes"),
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, "srun started 3 processes"),
    ],
)
def test_processes_without_mpi_are_refused(
    environment: dict[str, str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mpi.started_otherwise(environment) == what
    monkeypatch.setattr(mpi, "launcher", lambda: None)
    monkeypatch.setattr(mpi, "is_begun", lambda: False)
    monkeypatch.setattr(mpi, "started_otherwise", lambda: what)
    with pytest.raises(UserError, match=f"{what}, which do not know each other") as info:
        ranks.start()
    assert info.value.hint is not None and "mpirun -n 4 python train.py" in info.value.hint


def test_a_launcher_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULLBACK_MPI", raising=False)
    monkeypatch.setattr(mpi, "loaded", list)
    with pytest.raises(UserError, match="mpiexec started this process, but there is no library of MPI for it") as info:
        mpi.find(mpi.Launcher("mpiexec", 2, None, ("libmpi_of_nobody.so",)))
    assert info.value.hint is not None and "pip install 'pullback[mpi]'" in info.value.hint


def test_a_path_that_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libmpi.so").write_text("no library")
    monkeypatch.setenv("PULLBACK_MPI", str(tmp_path / "libmpi.so"))
    with pytest.raises(UserError, match=r"PULLBACK_MPI=.* cannot be loaded"):
        mpi.find(None)


def test_a_library_that_is_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    from pullback.runtime.library import LIBRARY_NAME, NATIVE_DIRECTORY

    monkeypatch.setenv("PULLBACK_MPI", str(NATIVE_DIRECTORY / LIBRARY_NAME))
    with pytest.raises(UserError, match="is no library of MPI 3 or newer"):
        mpi.find(None)


def test_launcher_and_library_of_two_mpis(launcher: mpirun.Launcher) -> None:
    """A process that believes in a launcher of three which its library does not know."""
    program = "from pullback.runtime import mpi; mpi.join(mpi.Launcher('mpirun', 3, None, ()))"
    path = library() or ""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PULLBACK_MPI": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=60, encoding="utf-8"
    )
    assert done.returncode != 0
    assert "mpirun started 3 processes, and this MPI knows of one" in done.stderr and path in done.stderr


def test_mpi4py_and_ours_share_one_mpi(launcher: mpirun.Launcher) -> None:
    pytest.importorskip("mpi4py")
    program = (
        "from mpi4py import MPI; from pullback.runtime import ranks; mine = ranks.start(); "
        "assert mine.exchange(mine.rank) == MPI.COMM_WORLD.allgather(mine.rank) == [0, 1]; print('both')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = launcher.command(2, [], [sys.executable, "-c", program], environment)
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, encoding="utf-8")
    assert done.returncode == 0 and done.stdout.count("both") == 2, done.stdout + done.stderr


def test_a_forked_child_is_alone() -> None:
    def run(rank: int) -> int:
        child = os.fork()
        if child == 0:
            os._exit(0 if ranks.current().size == 1 else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert ranks.run_local(2, run) == [0, 0]
