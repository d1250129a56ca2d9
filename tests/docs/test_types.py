"""Programs have no type errors for who uses mypy: the pages' and those in script, in mypy's strictest mode."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, python_text

PAGES = ("README.md", "docs/quickstart.md", "docs/tutorial.md")
SCRIPTS = Path(__file__).with_name("typed_scripts.py")
PLUGIN = "[mypy]\nplugins = pullback.mypy_plugin\n"


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy on files with a configuration; returns its messages by file name and line."""
    folder = tmp_path_factory.mktemp("mypy")

    def run(configuration: str, *files: Path, options: tuple[str, ...] = ()) -> dict[tuple[str, int], list[str]]:
        config = folder / "mypy.ini"
        config.write_text(configuration, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", f"--config-file={config}", f"--cache-dir={folder / 'cache'}"]
        command += ["--follow-imports=silent", "--hide-error-context", *options, *map(str, files)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        found: dict[tuple[str, int], list[str]] = {}
        for path, line, message in re.findall(r"^(.+?):(\d+): (?:error|note): (.*)$", done.stdout, re.MULTILINE):
            found.setdefault((Path(path).name, int(line)), []).append(message)
        return found

    return run


def test_programs_of_the_pages(mypy, tmp_path):
    programs = []
    for page in PAGES:
        program = tmp_path / f"{Path(page).stem.lower()}.py"
        program.write_text(python_text((ROOT / page).read_text(encoding="utf-8")), encoding="utf-8")
        programs.append(program)
    assert mypy(PLUGIN, *programs) == {}


def test_modules_and_functions_in_script(mypy):
    """They are what they become, and mistakes outside of scripts are found."""
    text = SCRIPTS.read_text(encoding="utf-8").splitlines()
    wanted = {k: line.partition("  # error: ")[2] for k, line in enumerate(text, 1) if "  # error: " in line}
    found = mypy(PLUGIN, SCRIPTS, options=("--strict",))
    assert {line for _, line in found} == set(wanted)
    for (_, line), messages in found.items():
        assert wanted[line] in messages[0]
    assert len(wanted) == 5


def test_without_the_plugin_scripts_have_false_errors(mypy):
    """What the plugin is for; if mypy needs it no more, it may go."""
    messages = [m for found in mypy("[mypy]\n", SCRIPTS).values() for m in found]
    assert any(m.startswith("Invalid type comment or annotation") for m in messages)
