"""What ``pytest --quick`` chooses, and how it says what that took."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import quick
from tests.conftest import NEEDS_TORCH
from tests.mutants import rooms

TESTS = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "ALLOWANCE", 1.0)


@dataclass(eq=False)
class Item:
    """What of a collected test matters for the choice."""

    nodeid: str
    marks: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(args=self.marks[name]) if name in self.marks else None


def cases(name: str, *sizes: int, **marks: tuple[float, ...]) -> list[Item]:
    """A case for each combination of parameters, of which there are so many of each."""
    return [Item(f"{name}[{'-'.join(map(str, at))}]", marks) for at in itertools.product(*map(range, sizes))]


def chosen(items: list[Item], costs: dict[str, float]) -> list[Item]:
    found = quick.choose(items, costs)  # type: ignore[arg-type]
    return [item for item in items if item in found]  # type: ignore[comparison-overlap]


def test_as_many_cases_run_as_fit() -> None:
    cheap, dear, new = cases("a.py::cheap", 40), cases("a.py::dear", 40), cases("a.py::new", 80)
    too_dear = cases("a.py::too_dear", 3)
    found = chosen([*cheap, *dear, *new, *too_dear], {"a.py::cheap": 0.025, "a.py::dear": 0.3, "a.py::too_dear": 1.1})
    counts = {
        name: sum(quick.function_of(i.nodeid) == f"a.py::{name}" for i in found) for name in ("cheap", "dear", "new")
    }
    assert counts == {"cheap": 40, "dear": 3, "new": 20}
    assert not set(too_dear) & set(found)


def test_a_file_has_a_case_at_least() -> None:
    items = cases("a.py::f", 4) + cases("a.py::g", 4) + cases("b.py::h", 4) + cases("a.py::i", 4, slow=())
    found = chosen(items, {"a.py::f": 9.0, "a.py::g": 8.0, "b.py::h": 0.1, "a.py::i": 7.0})
    assert [quick.function_of(item.nodeid) for item in found] == ["a.py::g", *["b.py::h"] * 4]


def test_marks_change_the_choice() -> None:
    items = cases("a.py::slow", 9, slow=()) + cases("a.py::more", 99, allowance=(7.0,)) + cases("a.py::f", 1)
    found = chosen(items, {"a.py::more": 0.5})
    assert [quick.function_of(item.nodeid) for item in found] == [*["a.py::more"] * 14, "a.py::f"]


def test_every_value_of_a_parameter_comes_before_others_come_again() -> None:
    items = cases("a.py::f", 30, 7)
    found = chosen(items, {"a.py::f": 1 / 45})
    assert len(found) == 45
    values = [item.nodeid.partition("[")[2][:-1].split("-") for item in found]
    assert {int(first) for first, _ in values} == set(range(30))
    assert {int(second) for _, second in values} == set(range(7))


def test_the_choice_of_a_file_depends_on_nothing_else() -> None:
    costs = {"a.py::f": 0.1, "b.py::g": 0.1}
    a, b = cases("a.py::f", 100), cases("b.py::g", 100)
    both = {item.nodeid for item in chosen([*a, *b], costs)}
    assert both == {item.nodeid for item in chosen(a[::-1], costs) + chosen(b, costs)} and len(both) == 20


def test_every_room_has_tests() -> None:
    """Some of each file of tests are chosen, so each room has some in `make test`: PyTorch need not be there."""
    package = TESTS.parent / "pullback"
    for file in package.rglob("*.py"):
        paths = [
            TESTS.parent / path
            for path in rooms.tests_of(file.relative_to(package).as_posix()).partition(" -k ")[0].split()
        ]
        files = [f for path in paths for f in ([path] if path.suffix else path.glob("test_*.py"))]
        assert any(f.exists() and not f.name.endswith(NEEDS_TORCH) for f in files), file


def test_single_dear_cases_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "costs.txt"
    items = [*cases("tests/test_quick.py::f", 20), *cases("tests/test_quick.py::g", 2)]
    seconds = {item.nodeid: 0.05 for item in items} | {
        items[4].nodeid: 6.0,
        items[20].nodeid: 2.0,
        items[21].nodeid: 4.0,
    }
    quick.write_costs(seconds, path)
    costs = quick.read_costs(path)
    assert costs == {"tests/test_quick.py::f": 0.05, items[4].nodeid: 6.0, "tests/test_quick.py::g": 3.0}
    assert chosen(items, costs) == items[:4] + items[5:20]


def test_every_op_is_tried() -> None:
    """With one of the backends at least, each of which has a share."""
    some, every = tried_ops("--quick"), tried_ops()
    assert len(some) < len(every)
    for kind in (0, 1):  # ops, backends
        assert {names[kind] for names in some} == {names[kind] for names in every}


def tried_ops(*options: str) -> list[tuple[str, str]]:
    """Ops and backends that a process of its own collects: in this one, other tests may have defined ops."""
    command = [sys.executable, "-m", "pytest", *options, "--collect-only", "-q", "tests/relax/op/test_values.py"]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True)
    return re.findall(r"::test_backend_agrees_with_the_meaning\[(.+)-(\w+)\]", done.stdout)


def test_costs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.txt"
    here, layers, gone = "tests/test_quick.py", "tests/test_layers.py", "tests/no_such_test.py"
    quick.write_costs({f"{here}::f[a b]": 0.25, f"{here}::f[c]": 0.75, f"{layers}::h": 0.75, f"{gone}::f": 3.0}, path)
    assert quick.read_costs(path) == {f"{here}::f": 0.5, f"{layers}::h": 0.75, f"{gone}::f": 3.0}
    quick.write_costs({f"{here}::k[a b]": 3.0, f"{here}::k[c]": 0.75, f"{here}::g": 0.001}, path)  # a run of one file
    assert quick.read_costs(path) == {f"{here}::k": 0.75, f"{here}::k[a b]": 3.0, f"{layers}::h": 0.75}
    assert quick.read_costs(tmp_path / "missing") == {}


def test_the_summary_says_what_grew() -> None:
    costs = {"a.py::f": 1.0, "a.py::g": 1.0}
    assert (
        quick.summary({"a.py::f[0]": 1.0, "a.py::f[1]": 2.0}, costs) == "quick tests: 3 s of processor time, of 340 s"
    )
    text = quick.summary({"a.py::f[0]": 100.0, "a.py::f[1]": 200.0, "a.py::g": 150.0}, costs)
    assert text.splitlines()[0].startswith("quick tests: 450 s of processor time, of 340 s: ")
    assert text.splitlines()[1:] == ["  +298.0 s a.py::f", "  +149.0 s a.py::g"]
