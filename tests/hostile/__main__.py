"""``python -m tests.hostile --minutes 20``: new wrong inputs until the time is over.

Each family's cases run in a process of their own, whose memory and whose time for one case are limited. A finding is
printed with the command that repeats it. The exit code is 1 when there are any.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

FAMILIES = ("arrays", "arguments", "checkpoints", "caches", "moved", "texts", "commands")
CASES_OF_A_PROCESS = {"commands": 10, "caches": 50, "moved": 20}
MEMORY_BYTES = 12 << 30
SECONDS_OF_A_CASE = 120.0


@dataclass(frozen=True)
class Found:
    family: str
    seed: int
    problem: str

    @property
    def command(self) -> str:
        return f"python -m tests.hostile --family {self.family} --seed {self.seed} --count 1"


def of_family(family: str) -> Any:
    """Its function ``case``."""
    return import_module(f"tests.hostile.{family}").case


def work(family: str, first: int, count: int) -> None:
    """In the child: cases by seed. It says which one it begins, and what was wrong with it."""
    from tests.hostile.oracle import Finding

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    elsewhere = os.environ.get("TESTS_HOSTILE_FOLDER")  # of families that test this very program
    case = runpy.run_path(f"{elsewhere}/{family}.py")["case"] if elsewhere else of_family(family)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            print(f"begin {seed}", flush=True)
            try:
                case(random.Random(f"{family} {seed}"), Path(folder))
            except Finding as finding:
                print(f"found {seed} {str(finding)!r}", flush=True)
            except BaseException as error:
                print(f"found {seed} {f'the case itself: {type(error).__name__}: {error}'!r}", flush=True)
    print("end", flush=True)


def run(family: str, first: int, count: int) -> Iterator[Found | int]:
    """Run cases in a child: yields findings, and the number of cases that are done."""
    command = [sys.executable, "-m", "tests.hostile", "--work", family, str(first), str(count)]
    environment = os.environ | {"PYTHONFAULTHANDLER": ""}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True, env=environment
    )
    assert child.stdout is not None
    current, done, ended = first, 0, False
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(SECONDS_OF_A_CASE):
                yield Found(family, current, f"hangs: more than {SECONDS_OF_A_CASE:.0f} seconds")
                break
            line = child.stdout.readline()
            if not line:
                break
            kind, _, rest = line.strip().partition(" ")
            if kind == "begin":
                current, done = int(rest), done + 1
            elif kind == "found":
                seed, _, problem = rest.partition(" ")
                yield Found(family, int(seed), problem)
            elif kind == "end":
                ended = True
    if not ended and child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    status = child.wait()
    child.stdout.close()
    if not ended and status != -signal.SIGKILL:
        yield Found(family, current, f"the process ended with status {status}")
    yield done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; by default another one each time")
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--count", type=int, default=None, help="how many cases of each family, in place of minutes")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        family, first, count = options.work
        work(family, int(first), int(count))
        return 0
    families = options.family or FAMILIES
    first = int(time.time()) * 1000 if options.seed is None else options.seed
    seeds, found, cases = dict.fromkeys(families, first), [], Counter[str]()
    end = time.monotonic() + 60 * options.minutes
    while True:
        for family in families:
            count = options.count or CASES_OF_A_PROCESS.get(family, 200)
            for result in run(family, seeds[family], count):
                if isinstance(result, int):
                    seeds[family] += max(1, result)
                    cases[family] += result
                    continue
                found.append(result)
                print(f"{result.family}: {result.problem}\n    {result.command}", flush=True)
            if options.count is None and time.monotonic() >= end:
                break
        if options.count is not None or time.monotonic() >= end:
            break
    total = ", ".join(f"{count} {family}" for family, count in cases.items())
    print(f"{sum(cases.values())} cases ({total}): {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
