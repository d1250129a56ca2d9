"""Old names work and warn, at the user's line; what should be gone by this version is gone."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import types
import warnings
from dataclasses import dataclass

import pytest

import pullback
from pullback.ir.deprecation import (
    PullbackDeprecationWarning,
    deprecated,
    deprecated_argument,
    deprecated_names,
    version_number,
)
from pullback.ir.errors import CallError, InternalError, NoAttribute
from pullback.ir.words import explained, missing_from
from tests.docs.blocks import ROOT

AGED = deprecated(since="0.2", use="double", removed_in="0.4")


def line() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def only(caught: pytest.WarningsRecorder) -> str:
    """The one warning's message, which blames this file."""
    assert [(w.category, w.filename) for w in caught] == [(PullbackDeprecationWarning, __file__)]
    return str(caught[0].message)


def test_a_function_works_and_warns_at_its_caller() -> None:
    @AGED
    def twice(x: int) -> int:
        """2·x."""
        return 2 * x

    with pytest.warns(PullbackDeprecationWarning) as caught:
        assert (twice(21), line()) == (42, caught[0].lineno)
    assert only(caught) == "twice() is deprecated since 0.2, and will be removed in 0.4: use double"
    assert inspect.getdoc(twice) == "2·x.\n\nDeprecated:\n    0.2: Will be removed in 0.4: use double."
    assert list(inspect.signature(twice).parameters) == ["x"]


def test_a_class_warns_when_it_is_made_and_derived_from() -> None:
    @AGED
    @dataclass(frozen=True)
    class Point:
        x: int

    with pytest.warns(PullbackDeprecationWarning) as caught:
        assert (Point(3).x, line()) == (3, caught[0].lineno)
    assert only(caught).startswith("Point() is deprecated")
    with pytest.warns(PullbackDeprecationWarning) as caught:

        class Pixel(Point):
            pass

    assert only(caught).startswith("Point, which Pixel derives from, is deprecated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pixel(4).x == 4  # its definition has warned


def test_an_argument_goes_to_its_new_name() -> None:
    @deprecated_argument("rate", since="0.2", use="lr", removed_in="0.4")
    @explained
    def step(lr: float) -> float:
        return lr

    with pytest.warns(PullbackDeprecationWarning) as caught:
        assert (step(rate=0.5), line()) == (0.5, caught[0].lineno)
    assert only(caught).startswith("the argument rate of step() is deprecated")
    assert "``rate``. Will be removed in 0.4: use lr." in (step.__doc__ or "")
    for both in (lambda: step(0.1, rate=0.5), lambda: step(lr=0.1, rate=0.5)):
        with pytest.warns(PullbackDeprecationWarning), pytest.raises(CallError, match="lr is given twice"):
            both()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step(0.5) == step(lr=0.5) == 0.5


def test_an_argument_without_a_successor_is_passed_on() -> None:
    @deprecated_argument("slow", since="0.2", use="nothing, it has no effect", removed_in="0.4")
    def step(lr: float, slow: bool = False) -> tuple[float, bool]:
        return lr, slow

    with pytest.warns(PullbackDeprecationWarning, match="use nothing"):
        assert step(0.5, slow=True) == (0.5, True)


def test_a_modules_old_name_is_the_new_one() -> None:
    module = types.ModuleType("module")
    module.__dict__.update(double=abs, __all__=["double"])
    module.__dict__["__getattr__"] = deprecated_names(module.__dict__, {"twice": AGED}, missing_from(module.__dict__))
    with pytest.warns(PullbackDeprecationWarning) as caught:
        assert module.twice is abs
    assert only(caught).startswith("module.twice is deprecated")
    with pytest.raises(NoAttribute, match="did you mean double"):
        module.duble  # noqa: B018
    module.__dict__["__getattr__"] = deprecated_names(module.__dict__, {"twice": AGED})
    with pytest.raises(AttributeError, match="module 'module' has no attribute 'duble'"):
        module.duble  # noqa: B018


def test_mistakes_of_the_author() -> None:
    with pytest.raises(InternalError, match="no time to change"):
        deprecated(since="0.10", use="double", removed_in="0.9")
    with pytest.raises(InternalError, match="neither a parameter rate nor lr"):
        deprecated_argument("rate", since="0.2", use="lr", removed_in="0.4")(lambda x: x)


@pytest.mark.parametrize(("flags", "shown"), [([], 1), (["-W", "ignore"], 0)])
def test_users_see_it_in_their_modules_too(flags: list[str], shown: int, tmp_path) -> None:
    (tmp_path / "library.py").write_text(
        "from pullback.ir.deprecation import deprecated\n"
        "@deprecated(since='0.2', use='new', removed_in='0.4')\ndef old(): pass\n"
        "def call():\n    for _ in range(3):\n        old()\n"
    )
    command = [sys.executable, *flags, "-c", "import library; library.call()"]
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.count("library.py:6: PullbackDeprecationWarning: old() is deprecated") == shown


def overdue(text: str, now: str) -> list[int]:
    """The lines of what a version removes that is not after ``now``."""
    keywords = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.keyword) and n.arg == "removed_in"]
    return [
        k.value.lineno
        for k in keywords
        if isinstance(k.value, ast.Constant) and version_number(k.value.value) <= version_number(now)
    ]


def test_what_is_due_is_found() -> None:
    text = "@deprecated(since='0.2', use='new', removed_in='0.10')\ndef old(): pass"
    assert [overdue(text, now) for now in ("0.9.1", "0.10", "0.10.1", "1.0")] == [[], [1], [1], [1]]


def test_what_should_be_gone_is_gone() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "pullback").rglob("*.py"))}
    found = {path: overdue(text, pullback.__version__) for path, text in texts.items() if "removed_in" in text}
    assert found and not any(found.values())
