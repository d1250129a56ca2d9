"""Environment variables are checked in one place, and the command line tells every mistake without a traceback."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pullback
from pullback.cli import app
from pullback.ir import UserError
from pullback.ir.environment import VARIABLES, check_environment, switch, variable

WRONG = {
    "PULLBACK_DEBUG": ["9", "all", "-1", "1.0"],
    "PULLBACK_POISON": ["yes", "2", "true"],
    "PULLBACK_VERIFY": ["on"],
    "PULLBACK_TUNED": ["x"],
    "PULLBACK_OFFLINE": ["yes"],
    "PULLBACK_NUM_THREADS": ["many", "0", "-1", "1.5", "257", "100000", "1e3"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_values_that_are_not_allowed(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=rf"{name} must be .*, not '{value}'(.|\n)*hint: set it to"):
        check_environment()


@pytest.mark.parametrize(
    ("name", "value"), [("PULLBACK_DEBUG", "3"), ("PULLBACK_NUM_THREADS", " 8 "), ("PULLBACK_POISON", "")]
)
def test_values_that_are(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    check_environment()
    assert variable(name, "0") == (value.strip() or "0")


def test_switches(monkeypatch):
    monkeypatch.setenv("PULLBACK_POISON", "1")
    monkeypatch.delenv("PULLBACK_VERIFY", raising=False)
    assert switch("PULLBACK_POISON") and not switch("PULLBACK_VERIFY") and switch("PULLBACK_TUNED", "1")


def test_a_name_that_does_not_exist_is_a_warning(monkeypatch):
    monkeypatch.setenv("PULLBACK_NUM_THREAD", "3")
    with pytest.warns(RuntimeWarning, match="PULLBACK_NUM_THREAD is not read: did you mean PULLBACK_NUM_THREADS"):
        check_environment()
    monkeypatch.delenv("PULLBACK_NUM_THREAD")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment()


def test_every_variable_that_the_package_reads_is_in_the_table():
    texts = [p.read_text() for p in Path(pullback.__file__).parent.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'"(PULLBACK_[A-Z_]+[A-Z])"', text)}
    assert found - set(VARIABLES) == set()


@pytest.mark.parametrize("name", sorted(WRONG))
def test_an_import_does_not_look_at_them(name):
    variables = os.environ | {name: WRONG[name][0]}
    command = [sys.executable, "-c", "import pullback"]
    assert subprocess.run(command, env=variables, capture_output=True, check=False).returncode == 0


FILES = {
    "syntax": (b"def f(:\n", "line 1 is not Python"),
    "noise": (bytes(range(256)), "is not Python"),
    "zeros": (b"\0\0\0", "is not Python"),
    "latin": (b"x = '\xe9'\n", "is not Python"),
    "empty": (b"", "defines no module"),
    "no module": (b"x = 1\n", "defines no module"),
    "raises": (b"import pullback\n1 / 0\n", "line 2, raised ZeroDivisionError"),
    "value": (b"int('x')\n", "line 1, raised ValueError"),
    "exits": (b"raise SystemExit(3)\n", "raised SystemExit"),
    "user error": (b"from pullback import relax\nrelax.op.add(1)\n", "argument 'y' is missing"),
    "imports nothing": (b"import no_such_module\n", "raised ModuleNotFoundError"),
}


@pytest.mark.parametrize("command", ["show", "tune"])
@pytest.mark.parametrize("name", FILES)
def test_files_of_the_command_line(name, command, tmp_path):
    content, message = FILES[name]
    path = tmp_path / "file.py"
    path.write_bytes(content)
    result = CliRunner().invoke(app, [command, str(path)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)  # not what Python would print a traceback of
    assert message in result.output and "hint: " in result.output


@pytest.mark.parametrize("arguments", [
    ["show", "missing.py"], ["show", "."], ["show"], ["tune", "."], ["nonsense"], ["demo", "--epochs", "0"],
    ["demo", "--threads", "0"], ["demo", "--threads", "many"], ["ops", "--no"], ["show", "--size", "n", "missing.py"],
])  # fmt: skip
def test_arguments_of_the_command_line(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("threads", ["257", "100000"])
def test_too_many_threads_of_the_demo(threads, tmp_path):
    result = CliRunner().invoke(app, ["demo", "--threads", threads, "--picture", str(tmp_path / "p.png")])
    assert result.exit_code == 1 and f"must be from 1 to 256, got {threads}" in result.output


def test_a_wrong_variable_is_one_line_of_the_command(monkeypatch):
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "many")
    result = CliRunner().invoke(app, ["ops", "--summary"])
    assert result.exit_code == 1 and "PULLBACK_NUM_THREADS must be" in result.output
