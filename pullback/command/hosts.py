"""The machines that ranks are started on: those that the user or a scheduler names, and which of them answer."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pullback.ir.errors import ArgumentError

FILES = (  # variables by which launchers are told of a file with hosts, as the MPI operator of Kubernetes does
    "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
    "PBS_NODEFILE",
)  # fmt: skip
SHELLS = ("HYDRA_LAUNCHER_EXEC", "OMPI_MCA_plm_rsh_agent")  # by which launchers reach other machines
_SECONDS = 10  # in which a machine has to answer


@dataclass(frozen=True)
class Host:
    """A machine, and how many ranks run on it."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def hosts_of(text: str | None, ranks: int, environment: Mapping[str, str] = os.environ) -> tuple[Host, ...]:
    """The hosts of ``a,b`` or ``a:4,b:2``, or else of the file that the environment names; none for this machine alone.

    Ranks are divided evenly among hosts without a number. Raises ArgumentError where the hosts cannot take the ranks.
    """
    if text is not None:
        given = [_host(part.strip(), f"--hosts {text}") for part in text.split(",")]
    else:
        file = next((environment[name] for name in FILES if environment.get(name)), None)
        given = [] if file is None else _hosts_of_file(Path(file))
    merged: dict[str, int] = {}
    for name, slots in given:  # PBS names a machine once for each of its ranks
        merged[name] = merged.get(name, 0) + slots
    unknown = [name for name, slots in merged.items() if not slots]
    left = max(0, ranks - sum(merged.values()))
    for number, name in enumerate(unknown):
        merged[name] = left // len(unknown) + (number < left % len(unknown))
    hosts = tuple(Host(name, slots) for name, slots in merged.items() if slots)
    if hosts and room(hosts) < ranks:
        raise ArgumentError(
            f"{ranks} ranks do not fit on {', '.join(map(str, hosts))}, which {'take' if len(hosts) > 1 else 'takes'}"
            f" {room(hosts)}",
            hint="--hosts a:4,b:4 says how many each machine takes",
        )
    return hosts


def room(hosts: Sequence[Host]) -> int:
    """How many ranks the hosts take."""
    return sum(host.slots for host in hosts)


def reachable(hosts: Sequence[Host], answers: Callable[[str], bool] | None = None) -> tuple[Host, ...]:
    """Those of the hosts that answer within some seconds."""
    with concurrent.futures.ThreadPoolExecutor(max(1, min(64, len(hosts)))) as pool:
        there = list(pool.map(answers or _answers, [host.name for host in hosts]))
    return tuple(host for host, is_there in zip(hosts, there, strict=True) if is_there)


def _answers(name: str) -> bool:
    if name in ("localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()):
        return True
    shell = next((os.environ[name] for name in SHELLS if os.environ.get(name)), "ssh")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SECONDS}"] if Path(shell).name == "ssh" else []
    try:
        done = subprocess.run(
            [shell, *options, name, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * _SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _hosts_of_file(path: Path) -> list[tuple[str, int]]:
    """``host``, ``host:4`` (Hydra) or ``host slots=4`` (Open MPI) in each line; PBS has a line for each rank."""
    try:
        lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"the file of hosts {path} cannot be read: {error}") from None
    found = []
    for line in filter(None, lines):
        name, *options = line.split()
        slots = next((o.partition("=")[2] for o in options if o.startswith("slots=")), None)
        found.append(_host(name if slots is None else f"{name}:{slots}", f"the file of hosts {path}"))
    repeated = len({name for name, _ in found}) < len(found)
    return [(name, slots or int(repeated)) for name, slots in found]


def _host(text: str, where: str) -> tuple[str, int]:
    """A name and a number of ranks, 0 where there is none."""
    name, colon, number = text.partition(":")
    if not name or (colon and not (number.isdigit() and int(number) > 0)):
        raise ArgumentError(f"{where}: {text!r} is no host", hint="such as --hosts a,b or --hosts a:4,b:4")
    return name, int(number) if colon else 0
