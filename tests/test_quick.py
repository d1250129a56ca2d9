"""What ``pytest --quick`` chooses, and how it says what that took."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from tests import quick
from tests.conftest import NEEDS_TORCH
from tests.mutants import rooms

TESTS = Path(__file__).resolve().parent


@dataclass(eq=False)
class Item:
    """What of a collected test matters for the choice."""

    nodeid: str
    marks: dict[str, tuple[float, ...]] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)

    @property
    def callspec(self) -> SimpleNamespace:
        return SimpleNamespace(indices=self.indices)

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(args=self.marks[name]) if name in self.marks else None


def cases(name: str, *sizes: int, **marks: tuple[float, ...]) -> list[Item]:
    """A case for each combination of parameters, of which there are so many of each."""
    return [
        Item(f"{name}[{'-'.join(map(str, at))}]", marks, {f"p{i}": n for i, n in enumerate(at)})
        for at in itertools.product(*map(range, sizes))
    ]


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
    assert counts == {"cheap": 40, "dear": 3, "new": 50}
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
    assert {item.indices["p0"] for item in found} == set(range(30))
    assert {item.indices["p1"] for item in found} == set(range(7))


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


def test_costs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.txt"
    here, layers = "tests/test_quick.py", "tests/test_layers.py"
    gone = {"tests/no_such_test.py::f": [3.0]}
    quick.write_costs({f"{here}::f": [1.0, 2.0], f"{here}::g": [0.001], f"{layers}::h": [0.25], **gone}, path)
    assert quick.read_costs(path) == {f"{here}::f": 1.5, f"{layers}::h": 0.25, "tests/no_such_test.py::f": 3.0}
    quick.write_costs({f"{here}::k": [0.5]}, path)  # a run of one file
    assert quick.read_costs(path) == {f"{here}::k": 0.5, f"{layers}::h": 0.25}
    assert quick.read_costs(tmp_path / "missing") == {}


def test_the_summary_says_what_grew() -> None:
    costs = {"a.py::f": 1.0}
    assert quick.summary({"a.py::f": [1.0, 2.0]}, costs) == "quick tests: 3 s of processor time, of 340 s"
    text = quick.summary({"a.py::f": [100.0, 200.0], "a.py::g": [150.0]}, costs)
    assert text.splitlines()[0].startswith("quick tests: 450 s of processor time, of 340 s: ")
    assert text.splitlines()[1:] == ["  +298.0 s a.py::f", "  +150.0 s a.py::g"]
