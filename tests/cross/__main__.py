"""Compiles the programs for other machines, runs them in emulators, and compares with the interpreter.

    python -m tests.cross                        all machines
    python -m tests.cross sse2 neon --only conv  some of them, and the programs whose names contain "conv"

It takes zig (``pip install ziglang``), qemu-user and node; so this is no part of the test suite: ``make cross``.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pullback import codegen
from pullback.driver.pipeline import plan_function, prepare
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from tests.cross.programs import Program, all_programs
from tests.cross.targets import MACHINES, Machine, ToolMissing, link, run, runner, zig

DTYPES = ("float32",)
NOT_RUN = "not run"  # qemu 7.2 fails at some conversions of RISC-V's vectors, which says nothing about our code


@dataclass(frozen=True)
class Compiled:
    """A program's plan and object code; ``error`` says why there is none."""

    program: Program
    plan: Plan | None
    code: bytes
    error: str = ""


def compiled(program: Program, number: int, target: Target) -> Compiled:
    try:
        plan = plan_function(prepare(program.module), program.function, {}, target)
        plan.host = replace(plan.host, name=f"program_{number}")
        text = codegen.emit_module([*plan.functions.values(), plan.host], target)
        return Compiled(program, plan, codegen.compile_object(text, target))
    except Exception as error:
        return Compiled(program, None, b"", f"{type(error).__name__}: {error}")


def buffers(done: Compiled) -> list[np.ndarray]:
    """Inputs, constants, and memory for fresh results, filled with NaNs."""
    assert done.plan is not None
    fresh = []
    for k in done.plan.fresh:
        info = done.plan.outputs[k]
        empty = np.empty(info.shape, numpy_dtype(info.dtype))  # type: ignore[arg-type]
        fresh.append(np.frombuffer(b"\xff" * empty.nbytes, empty.dtype).reshape(empty.shape))
    return [*done.program.arguments, *done.plan.constants, *fresh]


def request(index: int, done: Compiled) -> bytes:
    """The call in the form that the harness reads."""
    assert done.plan is not None
    arrays = buffers(done)
    parts = [struct.pack("<qqq", index, max(64, done.plan.arena_bytes), len(arrays))]
    for array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        parts += [struct.pack("<q", len(data)), data]
    return b"".join(parts)


def verdict(done: Compiled, answer: memoryview, status: int) -> str:
    """What is wrong with the buffers that came back; "" when nothing is."""
    if status == -1:
        return "memory beside a buffer was overwritten"
    if status:
        return f"status {status}"
    assert done.plan is not None
    arrays, at = [], 0
    for array in buffers(done):
        arrays.append(np.frombuffer(answer[at : at + array.nbytes], array.dtype).reshape(array.shape))
        at += array.nbytes
    first = len(done.program.arguments) + len(done.plan.constants)
    got = [*arrays[first:], *(arrays[i] for _, i in sorted(done.plan.donated.items()))]
    try:
        for number, (a, b) in enumerate(zip(got, done.program.expected, strict=True)):
            done.program.check(number, a, b)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def failures(machine: Machine, programs: Sequence[Program]) -> list[tuple[str, str]]:
    """(program, what is wrong) for each that is wrong on the machine."""
    target = Target(machine.spec)
    everything = [compiled(p, k, target) for k, p in enumerate(programs)]
    wrong = [(c.program.name, c.error) for c in everything if c.error]
    good = [(k, c) for k, c in enumerate(everything) if not c.error]
    with tempfile.TemporaryDirectory() as folder:
        program = link(machine, [c.code for _, c in good], [f"program_{k}" for k, _ in good], Path(folder))
        rest = [(i, c) for i, (_, c) in enumerate(good)]
        while rest:
            output, problem = run(machine, program, struct.pack("<q", len(rest)) + b"".join(request(*r) for r in rest))
            verdicts = list(answers([c for _, c in rest], memoryview(output)))
            wrong += [(done.program.name, bad) for (_, done), bad in zip(rest, verdicts, strict=False) if bad]
            if len(verdicts) < len(rest):
                what = f"{NOT_RUN}, an error of the emulator: " if "Assertion" in problem else "the program stopped: "
                wrong.append((rest[len(verdicts)][1].program.name, what + " ".join(problem.split())))
            rest = rest[len(verdicts) + 1 :]
    return wrong


def answers(called: Sequence[Compiled], answer: memoryview) -> Iterator[str]:
    """The verdicts of the programs that were done."""
    at = 0
    for done in called:
        size = 8 + sum(b.nbytes for b in buffers(done))
        if at + size > len(answer):
            return
        (status,) = struct.unpack_from("<q", answer, at)
        yield verdict(done, answer[at + 8 : at + size], status)
        at += size


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cross", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("machines", nargs="*", help=f"of {', '.join(MACHINES)}; all if none is named")
    parser.add_argument("--only", default="", help="programs whose names contain this text")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="dtypes of the samples of ops")
    options = parser.parse_args()
    unknown = [m for m in options.machines if m not in MACHINES]
    if unknown:
        parser.error(f"there is no machine {unknown[0]!r}; there are {', '.join(MACHINES)}")
    names = options.machines or list(MACHINES)
    try:
        zig()
        for name in names:
            runner(MACHINES[name])
    except ToolMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    programs = [p for p in all_programs(options.dtypes.split(",")) if options.only in p.name]
    count = 0
    for name in names:
        start = time.perf_counter()
        found = failures(MACHINES[name], programs)
        count += sum(not problem.startswith(NOT_RUN) for _, problem in found)
        good = len(programs) - len(found)
        print(f"{name}: {good} of {len(programs)} programs are right ({time.perf_counter() - start:.0f} s)", flush=True)
        for program, problem in found:
            print(f"  {program}: {problem}", flush=True)
    return 1 if count or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
