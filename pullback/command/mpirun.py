"""The launchers of MPI: which one there is, and how each is told what to start.

MPICH's ``mpiexec`` and Intel's are Hydra, Open MPI's ``mpirun`` is another. All of them are asked for ranks that are
bound to no CPU (:mod:`pullback.runtime.affinity` shares those) and for output in which each piece names its rank.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pullback.command.hosts import Host
from pullback.ir.environment import variable
from pullback.ir.errors import ArgumentError, UserError

NAMES = ("mpiexec", "mpirun")
HYDRA, OPEN_MPI = "MPICH's or Intel's", "Open MPI's"
_HYDRA_LABEL = "\x1e%r\x1f"  # no text has these characters
_INSTALL = "pip install 'pullback[mpi]' brings one; --mpirun PATH names another"


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks: its ``family`` is HYDRA or OPEN_MPI."""

    program: Path
    family: str
    version: int

    @property
    def label(self) -> re.Pattern[bytes]:
        """What stands before each piece of a rank's output; its group is the rank."""
        if self.family == HYDRA:
            return re.compile(rb"\x1e(\d+)\x1f")
        space = rb" ?" if self.version >= 5 else rb""
        return re.compile(rb"\[(?:[^\]\s@,]*@)?\d+,(\d+)\]<std(?:out|err)>:" + space)

    def command(
        self, ranks: int, hosts: Sequence[Host], program: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """The command line that starts a program on so many ranks, which get the variables of ``environment``."""
        started = [str(self.program)]
        if self.family == HYDRA:
            started += ["-prepend-pattern", _HYDRA_LABEL, "-print-all-exitcodes"]
            started += ["-hosts", ",".join(map(str, hosts))] if hosts else []
        else:
            started += ["--bind-to", "none"]
            started += (
                ["--map-by", ":OVERSUBSCRIBE", "--output", "tag"]
                if self.version >= 5
                else ["--oversubscribe", "--tag-output", "--mca", "mpi_yield_when_idle", "1"]
            )
            started += ["--host", ",".join(map(str, hosts))] if hosts else []
            if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in containers
                started.append("--allow-run-as-root")
            for name in sorted(environment):  # Hydra hands all variables to other machines
                if name.startswith("PULLBACK_") or name in ("PYTHONPATH", "PYTHONUNBUFFERED"):
                    started += ["-x", name]
        return [*started, "-n", str(ranks), *program]


def find(given: Path | None = None) -> Launcher:
    """The launcher at a path; or else one beside the library of PULLBACK_MPI, of this Python, or of PATH.

    Raises ArgumentError for a path that is no launcher, UserError where there is none.
    """
    if given is not None:
        program = Path(shutil.which(given) or given)
        if not program.is_file():
            raise ArgumentError(f"--mpirun {given}: there is no such program", hint=_INSTALL)
        found = _recognized(program)
        if found is None:
            hint = "the mpiexec or mpirun of MPICH, Intel MPI or Open MPI; under Slurm start ranks by srun itself"
            raise ArgumentError(f"--mpirun {given} is no launcher that is known", hint=hint)
        return found
    for folder in _folders():
        for name in NAMES:
            program = folder / name
            if program.is_file() and os.access(program, os.X_OK) and (found := _recognized(program)):
                return found
    raise UserError(f"there is no mpiexec, which starts ranks: looked in {_looked_in()}", hint=_INSTALL)


def _folders() -> list[Path]:
    library = variable("PULLBACK_MPI")
    beside = [Path(library).parent.parent / "bin"] if library else []
    own = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    return list(dict.fromkeys([*beside, *own, *(Path(p) for p in os.get_exec_path() if p)]))


def _looked_in() -> str:
    folders = [str(folder) for folder in _folders()]
    return ", ".join(folders[:3]) + (f" and the other {len(folders) - 3} folders of PATH" if len(folders) > 3 else "")


def _recognized(program: Path) -> Launcher | None:
    """The launcher that a program is, by what it says of itself."""
    try:
        done = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = done.stdout.decode("utf-8", "replace")
    if found := re.search(r"\(Open MPI\) (\d+)", told):
        return Launcher(program, OPEN_MPI, int(found[1]))
    if "HYDRA" in told or "Intel(R) MPI Library" in told:
        version = re.search(r"Version:?\s+(\d+)", told)
        return Launcher(program, HYDRA, int(version[1]) if version else 0)
    return None
