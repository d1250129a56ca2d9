"""Digests of generated kernels, on machines that do not depend on the host: what a change of a schedule must not touch.

A digest is that of a kernel's printed loops. ``kernel_digests.txt`` holds those of all kernels of a training step of
the benchmarks' models and of contractions drawn at random, for each machine of :data:`MACHINES`:

    avx2 mlp
      2f0c4b6f1f0b add
      …

``pytest --update-golden tests/schedule/test_kernel_digests.py`` writes the file. To see what changed, print kernels
before and after, and compare:

    python -m tests.schedule.kernel_digests avx2 mlp
"""

from __future__ import annotations

import functools
import hashlib
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from benchmarks.kernels.case import Case
from benchmarks.kernels.suites import random_case
from benchmarks.models import MODELS
from benchmarks.workers.kernels_pullback import module_of as module_of_case
from benchmarks.workers.relax_module import module_of, setup
from pullback import relax
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir.module import IRModule
from pullback.relax.training.step import STEP
from pullback.schedule.group import Machine
from pullback.target import Target
from pullback.tir import PrimFunc

FILE = Path(__file__).with_name("kernel_digests.txt")

MACHINES = {
    "avx2": Machine(vector_bytes=32, registers=16, cached_bytes=16 << 20, second_bytes=512 << 10),
    "avx512": Machine(vector_bytes=64, registers=32, cached_bytes=4 << 20, second_bytes=2 << 20),
    "neon": Machine(vector_bytes=16, registers=32, cached_bytes=8 << 20, second_bytes=512 << 10),
}
PAIRS = "avx512 bfloat16"  # dots of pairs are instructions
MIXED = {name: model for name, model in MODELS.items() if name in ("lenet", "chargpt")}
FLOAT32 = {name: model for name, model in MODELS.items() if name in ("mlp", "lenet", "resnet20", "chargpt")}

RANDOM_COUNT, RANDOM_GROUP = 300, 10
RANDOM = tuple(f"random {first}" for first in range(0, RANDOM_COUNT, RANDOM_GROUP))

SECTIONS = (
    *((machine, part) for machine in MACHINES for part in (*FLOAT32, *RANDOM)),
    *((PAIRS, part) for part in MIXED),
)
Digests = dict[str, str]  # by kernel


@dataclass(frozen=True)
class _Options:
    """In place of the driver's: a machine that is given."""

    described: Machine

    def machine(self, target: Target) -> Machine:
        return self.described


def texts(machine: str, part: str) -> dict[str, str]:
    """The printed kernels of a section: of a model's training step, or of some random contractions."""
    if machine == PAIRS:
        return _of_model(part, replace(MACHINES["avx512"], pair_dot=True), "bfloat16")
    if part in FLOAT32:
        return _of_model(part, MACHINES[machine], None)
    first = int(part.removeprefix("random "))
    found: dict[str, str] = {}
    for number, case in enumerate(random_cases()[first : first + RANDOM_GROUP], first):
        kernels = _kernels(prepare(module_of_case(case)), "main", MACHINES[machine])
        found |= {f"{number}: {case.label}: {name}": text for name, text in kernels.items()}
    return found


def digests(machine: str, part: str) -> Digests:
    """Of each kernel of a section."""
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts(machine, part).items()}


@functools.cache
def random_cases() -> list[Case]:
    """Contractions and gradients of such, as many of each kind."""
    generator = np.random.default_rng(2024)
    return [replace(random_case(generator), wrt=(None, 0, 1)[n % 3]) for n in range(RANDOM_COUNT)]


def _of_model(name: str, machine: Machine, precision: str | None) -> dict[str, str]:
    model = MODELS[name]
    return _kernels(prepare(setup(model, relax, precision=precision)(module_of(model, relax))), STEP, machine)


def _kernels(module: IRModule, function: str, machine: Machine) -> dict[str, str]:
    options: Any = _Options(machine)
    lowered, _ = lower_function(module, function, {}, Target("llvm"), options=options)
    return {name: str(kernel) for name, kernel in lowered.items() if isinstance(kernel, PrimFunc)}


def read() -> dict[tuple[str, str], Digests]:
    """The file, by section."""
    found: dict[tuple[str, str], Digests] = {}
    known = {" ".join(section): section for section in SECTIONS}
    own: Digests = {}
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        if line.startswith("  "):
            digest, name = line.split(maxsplit=1)
            own[name] = digest
        else:
            own = found.setdefault(known.get(line, (line, "")), {})
    return found


def write(section: tuple[str, str], own: Mapping[str, str]) -> None:
    """Replaces a section of the file; those that nobody asks for any more go."""
    with FileLock(Path(tempfile.gettempdir()) / "kernel_digests.lock"):  # of several workers
        found = {**read(), section: own}
        lines = []
        for known in (s for s in SECTIONS if s in found):
            lines += [" ".join(known), *(f"  {digest} {name}" for name, digest in found[known].items())]
        FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for kernel, text in texts(*sys.argv[1:]).items():
        print(f"# {kernel}\n{text}")
