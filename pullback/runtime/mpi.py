"""The MPI job that this process belongs to: which library of MPI there is, and joining the job with it.

A library is used through its functions' addresses; nothing was compiled against it. Three kinds of handles are known:
those of the standard ABI (MPI 5), of MPICH and those with its ABI (Intel MPI, MVAPICH, Cray), and of Open MPI.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pullback.ir.environment import variable
from pullback.ir.errors import UserError
from pullback.runtime.engine import Engine

INSTALL = "pip install 'pullback[mpi]' brings MPICH; PULLBACK_MPI=PATH names the library of another MPI"

_HYDRA = ("libmpi.so.12", "libmpi_abi.so.1", "libmpi.12.dylib", "libmpi_abi.1.dylib")  # mpi4py takes the first too
_OPEN_MPI = ("libmpi.so.40", "libmpi.40.dylib")
_LONGEST_VERSION = 8192
_STATUS_BYTES = 256  # more than any MPI_Status has


@dataclass(frozen=True)
class Launcher:
    """What started this process: its name, how many ranks it says there are and which one this is (None: it does not),
    and the libraries that know it."""

    name: str
    size: int | None
    rank: int | None
    libraries: tuple[str, ...]


def launcher(environment: Mapping[str, str] = os.environ) -> Launcher | None:
    """The launcher of MPI that started this process as one of its ranks, by the variables that it sets.

    >>> launcher({"PMI_RANK": "0", "PMI_SIZE": "4"}).size
    4
    """
    ranks = (environment.get(n) for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"))
    rank = next((int(text) for text in ranks if text), None)
    if "OMPI_COMM_WORLD_RANK" in environment:
        return Launcher("Open MPI's mpirun", int(environment.get("OMPI_COMM_WORLD_SIZE") or 1), rank, _OPEN_MPI)
    slurm = environment.get("SLURM_STEP_NUM_TASKS")
    if "PMI_RANK" in environment or "PMI_FD" in environment:
        size = environment.get("PMI_SIZE") or slurm
        return Launcher("srun" if slurm else "mpiexec", int(size) if size else None, rank, _HYDRA)
    if "PMIX_RANK" in environment:
        return Launcher("srun" if slurm else "mpirun", int(slurm) if slurm else None, rank, (*_OPEN_MPI, *_HYDRA))
    return None


def started_otherwise(environment: Mapping[str, str] = os.environ) -> str | None:
    """What started several processes without MPI, such as "torchrun started 4 processes"."""
    if int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        return f"srun started {environment['SLURM_STEP_NUM_TASKS']} processes"
    if "TORCHELASTIC_RUN_ID" in environment and int(environment.get("WORLD_SIZE") or 1) > 1:
        return f"torchrun started {environment['WORLD_SIZE']} processes"
    return None


HOW_TO_START = "start them by `mpirun -n 4 python train.py`, under Slurm by `srun --mpi=pmi2 python train.py`"


# ---- libraries


@dataclass(frozen=True)
class Flavour:
    """How a library of MPI passes handles and constants."""

    name: str
    world: int | str  # a handle, or the symbol whose address is one
    byte: int | str
    any_source: int
    no_status: int
    errors_return: int | str
    serialized: int
    multiple: int


ABI = Flavour("the standard ABI", 0x101, 0x247, -1, 0, 0x143, 2048, 4096)
MPICH = Flavour("MPICH", 0x44000000, 0x4C00010D, -2, 1, 0x54000001, 2, 3)
OPEN_MPI = Flavour("Open MPI", "ompi_mpi_comm_world", "ompi_mpi_byte", -1, 0, "ompi_mpi_errors_return", 2, 3)


class _Functions(ctypes.Structure):
    """``pb_mpi`` of rt.h."""

    _fields_ = (
        ("isend", ctypes.c_void_p),
        ("irecv", ctypes.c_void_p),
        ("test", ctypes.c_void_p),
        ("iprobe", ctypes.c_void_p),
        ("recv", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("error_string", ctypes.c_void_p),
        ("communicator", ctypes.c_void_p),
        ("byte", ctypes.c_void_p),
        ("no_status", ctypes.c_void_p),
        ("any_source", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
    )


class Library:
    """A library of MPI, loaded from a path, or by its name from where the system has it.

    Raises OSError when it cannot be loaded, UserError when it is no MPI whose handles are known.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # Open MPI's plugins look for its symbols
        self.version = self._version()
        self.flavour = self._flavour()

    def __str__(self) -> str:
        return f"{self.version} ({self.path})"

    def _version(self) -> str:
        text, length = ctypes.create_string_buffer(_LONGEST_VERSION + 1), ctypes.c_int()
        try:
            self._library.MPI_Get_library_version(text, ctypes.byref(length))
        except AttributeError:
            raise UserError(f"{self.path} is no library of MPI 3 or newer", hint=INSTALL) from None
        words = text.value.decode("utf-8", "replace").split("\n")[0].replace(":", " ").replace("\t", " ").split()
        return " ".join(words)[:80] or "an MPI"

    def _flavour(self) -> Flavour:
        if "mpi_abi" in os.path.basename(os.path.realpath(self.path)):
            return ABI
        if hasattr(self._library, "ompi_mpi_comm_world"):
            return OPEN_MPI
        if any(name in self.version for name in ("MPICH", "Intel", "MVAPICH", "CRAY")):
            return MPICH
        hint = "MPICH, Intel MPI, MVAPICH, Open MPI and what has the standard ABI (libmpi_abi.so) are known"
        raise UserError(f"the handles of this MPI are not known: {self}", hint=hint)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns an error code."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise UserError(f"{name} returned the error {code}: {self}")

    def asked(self, name: str, *arguments: object) -> int:
        """The int that a function writes to its last argument."""
        found = ctypes.c_int()
        self.call(name, *arguments, ctypes.byref(found))
        return found.value

    def handle(self, value: int | str) -> ctypes.c_void_p:
        if isinstance(value, str):
            return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self._library, value)))
        return ctypes.c_void_p(value)

    def functions(self, communicator: ctypes.c_void_p, rank: int, size: int) -> _Functions:
        names = ("MPI_Isend", "MPI_Irecv", "MPI_Test", "MPI_Iprobe", "MPI_Recv", "MPI_Cancel", "MPI_Error_string")
        addresses = [ctypes.cast(getattr(self._library, name), ctypes.c_void_p) for name in names]
        flavour = self.flavour
        return _Functions(
            *addresses, communicator, self.handle(flavour.byte), flavour.no_status, flavour.any_source, rank, size
        )


def candidates(started: Launcher | None) -> list[str]:
    """Paths of libraries of MPI that exist, and names that the system may find, the best first: what the process has
    loaded already, then what knows the launcher."""
    names = started.libraries if started is not None else (*_HYDRA, *_OPEN_MPI)
    paths = [str(folder / name) for folder in _folders() for name in names]
    return list(dict.fromkeys([*loaded(), *filter(os.path.exists, paths), *names]))


def find(started: Launcher | None) -> Library:
    """PULLBACK_MPI, or else the first of the candidates that can be loaded.

    Raises UserError where there is none.
    """
    given = variable("PULLBACK_MPI")
    if given:
        try:
            return Library(given)
        except OSError as error:
            raise UserError(f"PULLBACK_MPI={given} cannot be loaded: {error}", hint="the path of libmpi.so") from None
    refused = []
    for path in candidates(started):
        try:
            return Library(path)
        except OSError as error:
            refused += [str(error)] if os.path.isabs(path) else []  # else the system just has none
    who = f"{started.name} started this process" if started is not None else "this process is to be one of several"
    why = f" that can be loaded: {'; '.join(refused)}" if refused else ""
    raise UserError(f"{who}, but there is no library of MPI for it{why}", hint=INSTALL)


def loaded() -> list[str]:
    """The libraries of MPI that this process has in memory, as mpi4py loads one."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # not Linux
        return []
    paths = dict.fromkeys(fields[5] for line in lines if len(fields := line.split(maxsplit=5)) > 5)
    return [path for path in paths if os.path.basename(path).startswith(("libmpi.so", "libmpi_abi.so"))]


def is_begun() -> bool:
    """Whether this program has begun MPI, as the import of mpi4py does."""
    return any(Library(path).asked("MPI_Initialized") for path in loaded())


def _folders() -> Iterator[Path]:
    """Where libraries may be: of this Python's packages, and beside the launcher."""
    yield Path(sysconfig.get_path("data")) / "lib"
    yield Path(sys.prefix) / "lib"
    for program in (_launcher_program(), shutil.which("mpiexec"), shutil.which("mpirun")):
        if program is not None:
            yield Path(program).resolve().parent.parent / "lib"


def _launcher_program() -> str | None:
    """The program that started this one, if it can be seen and is a launcher."""
    process = os.getppid()
    for _ in range(4):
        try:
            program = os.readlink(f"/proc/{process}/exe")
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return None
        if os.path.basename(program).startswith(("hydra_pmi_proxy", "mpiexec", "mpirun", "orte", "prte", "prun")):
            return program
    return None


# ---- the job


class Job:
    """This process in an MPI job: a communicator of our own, and the engine over it."""

    def __init__(self, library: Library, started: Launcher | None) -> None:
        self.library = library
        self.owns_mpi = not library.asked("MPI_Initialized")
        flavour = library.flavour
        if self.owns_mpi:
            threads = library.asked("MPI_Init_thread", None, None, flavour.multiple)
        else:
            threads = library.asked("MPI_Query_thread")
        if threads < flavour.serialized:
            how = "was built" if self.owns_mpi else "was started by this program"
            raise UserError(
                f"MPI {how} without threads, and a thread sends while others compute: {library}",
                hint="initialize it with MPI_THREAD_MULTIPLE, as mpi4py does by itself"
                if not self.owns_mpi
                else INSTALL,
            )
        world = library.handle(flavour.world)
        size = library.asked("MPI_Comm_size", world)
        if started is not None and started.size is not None and started.size > 1 and size == 1:
            raise UserError(
                f"{started.name} started {started.size} processes, and this MPI knows of one: {library}",
                hint="launcher and library belong to different MPIs: take the mpiexec of that one, or set PULLBACK_MPI "
                "to the library of this one",
            )
        self._communicator = ctypes.c_void_p(0)  # MPICH writes an int to half of it
        library.call("MPI_Comm_dup", world, ctypes.byref(self._communicator))
        # an error of MPI is mostly the death of another rank, which whoever started them can see: this one waits for it
        library.call("MPI_Comm_set_errhandler", self._communicator, library.handle(flavour.errors_return))
        rank = library.asked("MPI_Comm_rank", self._communicator)
        self.engine = Engine.over_mpi(library.functions(self._communicator, rank, size))

    def abort(self, code: int) -> None:
        """End all processes of the job, this one too."""
        self.library.call("MPI_Abort", self.library.handle(self.library.flavour.world), code)

    def end(self) -> None:
        """End MPI where we began it. All ranks do so, or those fail that wait for this one."""
        self.engine.leave()
        self.engine.close()
        if self.owns_mpi and not self.library.asked("MPI_Finalized"):
            self.library.call("MPI_Finalize")


def join(started: Launcher | None) -> Job:
    """Join the job that the launcher, or this program, started. All ranks do so."""
    return Job(find(started), started)
