"""The choice of ``pytest --quick``, which ``make test`` runs: a part of every file that takes a few minutes in all.

Each test function gets an allowance of processor time, and runs as many of its cases as fit in it by ``costs.txt``.
That file says what one case takes on average; functions that it does not list are new, or all of their cases fit. It
also lists single cases that take much longer than others of their function, and are left out. Of what is left those
cases come first that bring a new value of a parameter, then those whose name has the least checksum: so the
choice is the same everywhere, and a new case hardly changes it. A function of which not even one case fits runs only in
the whole suite, but of each file at least the cheapest function has a case.

Who adds a test need not do anything. Two marks change the choice: ``@pytest.mark.slow`` leaves a function to the whole
suite, ``@pytest.mark.allowance(20)`` gives it another allowance in seconds.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

COSTS = Path(__file__).with_name("costs.txt")
ALLOWANCE = 0.28  # seconds of processor time for the chosen cases of one function
DEAR = 1.0  # seconds of a single case that is left out where others of its function take less
UNLISTED = 0.05  # seconds of a case of a function that costs.txt does not list
BUDGET = 340.0  # seconds of processor time for all that is chosen: under three minutes on two cores

HEAD = """\
# Seconds of processor time that one case of a test function takes on average, where not all cases may fit in its
# allowance, and that single cases take which are left out. `make costs` writes this file, and quick.py reads it.
"""


def function_of(nodeid: str) -> str:
    """``tests/test_x.py::test_f`` of ``tests/test_x.py::test_f[case]``."""
    return nodeid.partition("[")[0]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def choose(items: Iterable[pytest.Item], costs: Mapping[str, float]) -> set[pytest.Item]:
    """The tests that are run, of all that were collected; ``costs`` has seconds by function or case."""
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        function = function_of(item.nodeid)
        is_dear = item.nodeid != function and item.nodeid in costs
        if not is_dear and item.get_closest_marker("slow") is None:
            functions[function].append(item)
    files: dict[str, list[str]] = defaultdict(list)
    for function in functions:
        files[file_of(function)].append(function)
    chosen: set[pytest.Item] = set()
    for names in files.values():
        counts = {name: int(_allowance(functions[name][0]) / costs.get(name, UNLISTED)) for name in names}
        if not any(counts.values()):
            counts[min(names, key=lambda name: (costs.get(name, UNLISTED), name))] = 1
        for name, count in counts.items():
            cases = functions[name]
            chosen.update(cases if count >= len(cases) else _in_order(cases)[:count])
    return chosen


def _allowance(item: pytest.Item) -> float:
    mark = item.get_closest_marker("allowance")
    return ALLOWANCE if mark is None else float(mark.args[0])


def _in_order(cases: Iterable[pytest.Item]) -> list[pytest.Item]:
    """By checksum, but those first that bring a new value of a parameter: a new word at that place of the name."""
    first, second, known = [], [], set()
    for case in sorted(cases, key=lambda case: zlib.crc32(case.nodeid.encode())):
        words = set(enumerate(case.nodeid.partition("[")[2].removesuffix("]").split("-")))
        (second if words <= known else first).append(case)
        known |= words
    return first + second


def read_costs(path: Path = COSTS) -> dict[str, float]:
    """Seconds by function or case."""
    costs, file = {}, ""
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("  "):
            seconds, name = line.split(maxsplit=1)
            costs[f"{file}::{name}"] = float(seconds)
        elif not line.startswith("#"):
            file = line
    return costs


def write_costs(measured: Mapping[str, float], path: Path = COSTS) -> None:
    """Writes what cases took; of files none of which ran, what the file said before, if they still exist."""
    ran = {file_of(case) for case in measured}
    root = COSTS.parent.parent
    costs = {n: s for n, s in read_costs(path).items() if file_of(n) not in ran and (root / file_of(n)).exists()}
    functions: dict[str, list[str]] = defaultdict(list)
    for case in measured:
        functions[function_of(case)].append(case)
    for function, cases in functions.items():
        usual = [case for case in cases if measured[case] < DEAR] or cases
        seconds = sum(measured[case] for case in usual) / len(usual)
        if len(usual) * max(seconds, UNLISTED) > ALLOWANCE / 2:
            costs[function] = max(seconds, 0.001)
        costs |= {case: measured[case] for case in set(cases) - set(usual)}
    text, file = HEAD, ""
    for name in sorted(costs):
        if file != file_of(name):
            file = file_of(name)
            text += f"{file}\n"
        text += f"  {costs[name]:.2g} {name.removeprefix(f'{file}::')}\n"
    path.write_text(text)


def summary(measured: Mapping[str, float], costs: Mapping[str, float]) -> str:
    """What the tests took; where that is more than the budget, which functions take more than their costs say."""
    total = sum(measured.values())
    text = f"quick tests: {total:.0f} s of processor time, of {BUDGET:.0f} s"
    if total <= BUDGET:
        return text
    more: dict[str, float] = defaultdict(float)
    for case, seconds in measured.items():
        function = function_of(case)
        more[function] += seconds - costs.get(function, UNLISTED)
    most = sorted(more, key=more.__getitem__, reverse=True)[:10]
    return "\n".join(
        [
            f"{text}: on a slower machine, or because tests grew. `make costs` measures them anew; these took more:",
            *(f"  {more[name]:+.1f} s {name}" for name in most),
        ]
    )
