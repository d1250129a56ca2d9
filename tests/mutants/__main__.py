"""Runs mutants: ``python -m tests.mutants --help``. Prints what became of each, and how many were killed."""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.changes import changes, parses
from tests.mutants.rooms import tests_of
from tests.mutants.run import ROOT, SECONDS, caught, house
from tests.mutants.table import TABLE

Job = tuple[
    str, str, str, str, str
]  # a file of the package, its changed text, tests, what is changed, why nothing fails


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="of the table, those whose text holds the word")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="N changes drawn at random, not the table")
    parser.add_argument("--room", default="", help="draw from this folder of the package, such as relax/op")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in which a test must fail")
    arguments = parser.parse_args()
    jobs = drawn(arguments.room, arguments.drawn, arguments.seed) if arguments.drawn else listed(arguments.only)

    def run(job: Job) -> bool:
        file, text, tests, change, equal = job
        start = time.monotonic()
        with house() as folder:
            (folder / "pullback" / file).write_text(text)
            result, how = caught(folder, shlex.split(tests), arguments.seconds)
        if result == "survived" and equal:
            result, how = "equal", equal
        print(f"{result:9} {time.monotonic() - start:4.0f} s  {change}" + (f"   ({how})" if how else ""), flush=True)
        return result != "survived"

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(run, jobs))
    print(f"{sum(results)} of {len(results)} killed")
    return 0 if all(results) else 1


def listed(word: str) -> list[Job]:
    """The mutants of the table that hold the word."""
    chosen = [m for m in TABLE if word in f"{m} {m.tests}"]
    return [
        (m.file, m.applied((ROOT / "pullback" / m.file).read_text()), m.tests, str(m), m.equal) for m in chosen
    ]  # fmt: skip


def drawn(room: str, count: int, seed: int) -> list[Job]:
    """Changes drawn at random from the room's files."""
    rng, jobs = random.Random(seed), list[Job]()
    texts = {
        f.relative_to(ROOT / "pullback").as_posix(): f.read_text() for f in (ROOT / "pullback" / room).rglob("*.py")
    }
    found = [c for file, text in sorted(texts.items()) for c in changes(file, text)]
    while found and len(jobs) < count:
        change = found.pop(rng.randrange(len(found)))
        text = texts[change.file]
        if parses(change.applied(text)):
            what = f"{change.file}:{change.line}: {change.shown(text)}"
            jobs.append((change.file, change.applied(text), tests_of(change.file), what, ""))
    return jobs


if __name__ == "__main__":
    sys.exit(main())
