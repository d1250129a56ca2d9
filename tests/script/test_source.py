"""Where the parser finds source text: files, notebook cells, doctests; and where there is none."""

from __future__ import annotations

import doctest
import linecache
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import pullback
from pullback.ir import ScriptError

PROGRAM = """\
from pullback.script import ir as I, relax as R, tir as T

@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        y = R.add(x, x)
        return y

    @T.prim_func
    def k(A: T.Buffer((2,), "float32")):
        A[0] = 1.0

@R.function
def lone(x: R.Tensor((2, 3), "float32")):
    é = R.add(x, x); y = R.add(é, x)
    return y
"""


def run(text: str, file: str) -> dict[str, object]:
    names: dict[str, object] = {"__name__": "cell"}
    exec(compile(text, file, "exec"), names)
    return names


def python(*args: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(Path(pullback.__file__).parents[1])}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=env)


def test_a_notebook_cell() -> None:
    """Notebooks put a cell's text in linecache under a made-up file name."""
    file = "<ipython-input-1-abc>"
    linecache.cache[file] = (len(PROGRAM), None, PROGRAM.splitlines(True), file)
    names = run(PROGRAM, file)
    assert list(names["Net"]) == ["main", "k"]  # type: ignore[call-overload]
    second = list(names["lone"].bindings)[1].value.span  # type: ignore[attr-defined]
    line = PROGRAM.splitlines()[second.line - 1]
    assert line[second.column : second.end_column] == "R.add(é, x)"


def test_a_cell_with_magic_in_it() -> None:
    file = "<ipython-input-2-abc>"
    shown = "%matplotlib inline\n" + PROGRAM.replace(
        "@R.function\ndef lone", "if True:\n  @R.function\n  def lone"
    ).replace("\n    é", "\n      é").replace("\n    return y\n", "\n      return y\n")
    linecache.cache[file] = (len(shown), None, shown.splitlines(True), file)
    names = run(shown.replace("%matplotlib inline", "pass"), file)
    span = list(names["lone"].bindings)[1].value.span  # type: ignore[attr-defined]
    line = shown.splitlines()[span.line - 1]
    assert line[span.column : span.end_column] == "R.add(é, x)"


def test_a_doctest() -> None:
    module = types.ModuleType("documented")
    module.__doc__ = """
    >>> from pullback.script import relax as R
    >>> @R.function
    ... def f(x: R.Tensor((2, 3), "float32")):
    ...     y = R.add(x, x)
    ...     return y
    >>> f.show(header=False)
    @R.function
    def f(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        y = R.add(x, x)
        return y
    <BLANKLINE>
    """
    result = doctest.testmod(module)
    assert (result.failed, result.attempted) == (0, 3)


def test_a_file_that_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    for count in (2, 5):
        text = "\n" * count + PROGRAM.replace("(2, 3)", f"({count}, 3)")
        path.write_text(text, encoding="utf-8")
        assert run(text, str(path))["lone"].ret_struct_info.shape == (count, 3)  # type: ignore[attr-defined]


def test_no_source_text() -> None:
    with pytest.raises(ScriptError) as caught:
        run(PROGRAM.partition("@R.function\ndef lone")[0], "<generated>")
    assert str(caught.value) == (
        "the source text of Net is not available (it was defined in <generated>)\n"
        "hint: the parser reads source text, which python -c, exec and some consoles do not keep: put the program in a "
        "file or a notebook cell, or pass its text to pullback.script.from_source"
    )


def test_python_dash_c() -> None:
    code = PROGRAM.replace("é", "z")
    result = python("-c", code)
    if sys.version_info < (3, 13):  # newer ones keep the text
        assert result.returncode != 0 and "pullback.script.from_source" in result.stderr
    else:
        assert result.returncode == 0


def test_a_traceback_is_short(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(PROGRAM.replace("R.add(x, x)\n", "R.add(x, oops)\n"), encoding="utf-8")
    result = python(str(path))
    assert "the name 'oops' is not defined" in result.stderr
    assert result.stderr.count("  File ") < 8
