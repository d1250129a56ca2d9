"""Every mistake in ``programs/`` gets exactly the message beside it, and leaves trainers and the process as they were.

A program makes one mistake, which its first line names: at its top level, or in its function ``mistake``. With a
function ``setup``, whose trainer is passed to ``mistake``, all of the trainer's state has to be the same afterwards. A
``folder`` that ``mistake`` asks for is an empty one. A line ``# environment: NAME=value`` runs the program in a process
of its own. ``pytest --update-golden tests/errors`` writes the messages: read them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pullback.ir import UserError
from tests.errors.models import counting_trainer

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def load(path: Path) -> ModuleType:
    """The program as a fresh module; what goes wrong at its top level is raised here."""
    spec = importlib.util.spec_from_file_location(f"error_program_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(trainer: Any) -> str:
    """All that a trainer keeps: parameters, states, optimizer and random states, counters, random generator."""
    found = hashlib.sha256()
    others = dict(enumerate(trainer.optimizer_states)), dict(enumerate(trainer._values.random))
    groups = trainer.export_params(), trainer.export_states(), *others
    for name, value in (item for group in groups for item in group.items()):
        array = np.asarray(value)
        found.update(f"{name} {array.dtype} {array.shape};".encode() + array.tobytes())
    generator = trainer._generator.bit_generator.state
    found.update(f"{trainer.steps} {trainer.epochs} {generator}".encode())
    return found.hexdigest()


def error_of(path: Path, folder: Path) -> BaseException:
    """What the program raises; asserts that its trainer did not change."""
    try:
        module = load(path)
    except Exception as error:
        return error
    arguments: dict[str, Any] = {"folder": folder}
    if hasattr(module, "setup"):
        trainer = arguments["trainer"] = module.setup()
        assert trainer.steps > 0, "the trainer has to have made a step: fresh states could hide a change"
        before = digest(trainer)
    wanted = inspect.signature(module.mistake).parameters
    assert ("trainer" in wanted) == ("trainer" in arguments), "setup() returns the trainer that mistake(trainer) takes"
    try:
        module.mistake(**{name: arguments[name] for name in wanted})
    except Exception as error:
        if "trainer" in arguments:
            assert digest(trainer) == before, "the mistake changed the trainer"
        return error
    pytest.fail(f"{path.name} raises nothing")


def error_of_process(path: Path, environment: str) -> str:
    """The same for a program that needs a process of its own: the last error of its traceback."""
    name, _, value = environment.partition("=")
    root = str(Path(__file__).parents[2])
    variables = os.environ | {name: value, "PYTHONPATH": root}
    result = subprocess.run([sys.executable, str(path)], env=variables, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, f"it ended with {result.returncode}:\n{result.stderr}"
    _, found, message = result.stderr.rpartition("pullback.ir.errors.")
    assert found, result.stderr
    kind, _, rest = message.partition(": ")
    return f"{kind}\n{rest}"


def in_general(text: str, path: Path, folder: Path) -> str:
    """The message without what differs from machine to machine."""
    for place, name in (path, "<program>"), (folder, "<folder>"), (Path(__file__).with_name("models.py"), "<models>"):
        text = text.replace(str(place), name)
    return text.strip("\n") + "\n"


@pytest.mark.allowance(6)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_message(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment = re.search(r"(?m)^# environment: (\S+)$", path.read_text())
    if environment is not None:
        text = error_of_process(path, environment[1])
    else:
        error = error_of(path, tmp_path)
        assert isinstance(error, (UserError, MemoryError)) and str(error), repr(error)
        text = f"{type(error).__name__}\n{error}"
    golden, text = path.with_suffix(".txt"), in_general(text, path, tmp_path)
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert golden.exists(), f"{golden.name} is missing: run pytest with --update-golden, and read it"
    assert text == golden.read_text(), "the message changed: look, then run pytest with --update-golden"


def test_every_message_has_its_program() -> None:
    folder = Path(__file__).parent / "programs"
    assert {p.stem for p in folder.glob("*.txt")} == {p.stem for p in PROGRAMS}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_first_line_names_the_mistake(path: Path) -> None:
    assert re.match(r"# \S", path.read_text())


def changes(trainer: Any) -> Iterator[str]:
    """Small changes to each part of a trainer; gives the name of each when it is made."""
    weights = np.asarray(trainer.params["w"]).copy()
    weights[2, 1] = np.nextafter(weights[2, 1], np.float32(9))
    trainer.load_params({"w": weights})
    yield "a parameter"
    trainer.load_states({"calls": np.asarray(trainer.states["calls"]) + 1})
    yield "a state"
    trainer._values.optimizer_states[0].copyfrom(np.array(5))
    yield "an optimizer state"
    trainer._generator.random()
    yield "the random generator"
    trainer._epochs += 1
    yield "a counter"


def test_the_digest_sees_every_part_of_a_trainer() -> None:
    trainer = counting_trainer()
    known = [digest(trainer)]
    assert digest(trainer) == known[0]
    for change in changes(trainer):
        assert digest(trainer) not in known, change
        known.append(digest(trainer))


WITHOUT_HINT = {  # programs whose message says all that there is to say, and why
    "compile_recursion_too_deep": "a check as it runs has words that are compiled into the program",
    "unbox_another_box": "a check as it runs has words that are compiled into the program",
    "fit_step": "a check of values as they run has the op's words, compiled into the program",
    "index_take_outside": "a check of values as they run has the op's words, compiled into the program",
    "nn_ctc_loss_label": "a check of values as they run has the op's words, compiled into the program",
    "nn_nll_loss_label": "a check of values as they run has the op's words, compiled into the program",
    "vision_roi_align_batch": "a check of values as they run has the op's words, compiled into the program",
    "tensor_huge": "a MemoryError, as NumPy has it",
}


def test_every_message_says_how_to_mend_it() -> None:
    folder = Path(__file__).parent / "programs"
    without = {p.stem for p in folder.glob("*.txt") if "hint: " not in p.read_text()}
    assert without == set(WITHOUT_HINT)
