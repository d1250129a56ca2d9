"""Tuned choices: kept, found again, part of the key of compiled code, and used; a file that is of no use is named."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pullback
from pullback.cli import app
from pullback.driver import tune as tuning
from pullback.driver import tuned
from pullback.driver.folder import MARKER
from pullback.driver.native import function_key
from pullback.driver.pipeline import prepare
from pullback.driver.tune import FEWEST_ROUNDS, Tuned, contractions, least_gain, tune
from pullback.driver.tuned import forget_choices, store_choices, tuned_choices, tuned_file
from pullback.schedule.contraction.plan.alternatives import other_tiles
from pullback.schedule.tuning import Choice, Choices
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target

HOST = Target("llvm")
CHOICE = Choice(((0, 3),), 16, (3, 16))
PROGRAM = """
from pullback.script import ir as I
from pullback.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor(("n", 20), "float32"), b: R.Tensor((20, 30), "float32")):
        return R.matmul(a, b)

    @R.function
    def nothing(a: R.Tensor((3,), "float32")):
        return R.exp(a)
"""


@I.ir_module
class Module:
    @R.function
    def main(
        a: R.Tensor((50, 40), "float32"),
        b: R.Tensor((40, 70), "float32"),
        x: R.Tensor((2, 6, 10, 10), "float32"),
        w: R.Tensor((8, 6, 3, 3), "float32"),
    ):
        with R.dataflow():
            c = R.nn.relu(R.matmul(a, b))
            y = R.nn.conv2d(x, w, padding=1)
            R.output(c, y)
        return c, y


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PULLBACK_TUNED", raising=False)
    return tmp_path / "cache"


def stored() -> dict[str, Choice]:
    return dict(tuned_choices(HOST).by_key)


def test_choices_are_kept_per_target(directory, monkeypatch):
    assert stored() == {}
    other = Choice((), 8, (1, 1, 8))
    path = store_choices(HOST, {"k/0": CHOICE, "m/0": other})
    assert path == tuned_file(HOST) and path.parent.parent == directory
    assert stored() == {"k/0": CHOICE, "m/0": other}
    store_choices(HOST, {"k/0": None, "m/0": CHOICE})
    assert stored() == {"m/0": CHOICE}
    assert not tuned_choices(Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"))
    assert {p.name for p in path.parent.iterdir()} == {path.name, MARKER}
    monkeypatch.setenv("PULLBACK_TUNED", "0")
    assert stored() == {}


def test_the_variable_is_0_or_1(monkeypatch):
    monkeypatch.setenv("PULLBACK_TUNED", "yes")
    with pytest.raises(pullback.ir.UserError, match="PULLBACK_TUNED must be 0 or 1, not 'yes'"):
        tuned_choices(HOST)


@pytest.mark.parametrize(("change", "problem"), [
    (lambda text: text[:-20], "Expecting|Unterminated|delimiter"),
    (lambda text: "[]", "it does not hold tuned choices"),
    (lambda text: text.replace('"format": 1', '"format": 0'), "it does not hold tuned choices"),
    (lambda text: text.replace('"target": "llvm', '"target": "LLVM'), "they are for another target"),
    (lambda text: text.replace('"compiler": "', '"compiler": "0'), "they were made by another version"),
    (lambda text: text.replace('"columns": 16', '"columns": -16'), "is no choice"),
    (lambda text: text.replace('"columns"', '"colums"'), "is no choice"),
])  # fmt: skip
def test_a_file_that_is_of_no_use_is_named_and_left_alone(change, problem):
    path = store_choices(HOST, {"k/0": CHOICE})
    path.write_text(change(path.read_text()))
    with pytest.warns(RuntimeWarning, match=f"{path.name} are not used, kernels have their default tiles: .*{problem}"):
        assert stored() == {}
    store_choices(HOST, {"m/0": CHOICE})  # tuning again mends it
    assert stored() == {"m/0": CHOICE}


def test_choices_are_part_of_the_key_of_compiled_code(monkeypatch):
    module = prepare(Module)
    before = function_key(module, "main", {}, HOST)
    store_choices(HOST, {"k/0": CHOICE})
    after = function_key(module, "main", {}, HOST)
    store_choices(HOST, {"k/0": Choice(((0, 2),), 16, (2, 16))})
    assert len({before, after, function_key(module, "main", {}, HOST)}) == 3
    monkeypatch.setenv("PULLBACK_TUNED", "0")
    assert function_key(module, "main", {}, HOST) == before


def test_a_choice_is_used_and_changes_no_bit():
    rng = np.random.default_rng(0)
    module = prepare(Module)
    arrays = [rng.standard_normal(p.struct_info.shape, np.float32) for p in module["main"].params]

    def run() -> tuple[list[bytes], int]:
        function = pullback.compile(Module)["main"]
        return [t.numpy().tobytes() for t in function(*arrays)], function.native().layout.arena_bytes

    def kernels() -> str:
        from pullback.driver.pipeline import lower_function

        return lower_function(module, "main", {}, HOST)[0].script()

    expected, text = run(), kernels()
    found = contractions(module, "main", {}, HOST)
    assert len(found) == 2
    choices = {Choices.key(s.group.digest, 0): other_tiles(*s.parts[0])[0] for s in found.values()}
    store_choices(HOST, choices)
    assert kernels() != text and run()[0] == expected[0]
    assert contractions(module, "main", {}, HOST).keys() == found.keys()  # the default is what tuning starts from
    for name, schedule in contractions(module, "main", {}, HOST).items():
        assert schedule.parts[0][1].tile == found[name].parts[0][1].tile


def test_tuning_says_what_it_found():
    results = list(tune(prepare(Module), "main", {}, HOST, rounds=7, seconds=0.0))
    assert len(results) == 2
    for result in results:
        assert result.gain >= 1 and result.flops > 0
        assert result.is_kept or result.best == result.default


def measured(monkeypatch: pytest.MonkeyPatch, rounds: int, seconds: Any) -> list[Tuned]:
    """What tuning finds where the call that it measures as its ``number``-th takes ``seconds(call, number)``; the
    default is call 0."""
    numbers = itertools.count()
    monkeypatch.setattr(tuning._Tuning, "_call", lambda self, choices: Call(choices))
    monkeypatch.setattr(tuning, "_seconds", lambda call, repeat: seconds(call.choices, next(numbers)))
    return list(tune(prepare(Module), "main", {}, HOST, rounds, seconds=0.0))


class Call:
    """In place of a kernel: what it is made of."""

    def __init__(self, choices: Mapping[str, Choice]) -> None:
        self.choices = choices

    def __call__(self) -> None:
        """It computes nothing."""


def test_a_gain_in_every_round_is_kept(monkeypatch):
    results = measured(monkeypatch, 7, lambda choices, number: (1.0 if choices else 1.2) + 0.01 * (number % 3))
    assert all(t.is_kept and t.least > 1.1 and t.gain == pytest.approx(1.2, rel=0.02) for t in results)


def test_a_gain_that_is_noise_is_not_kept(monkeypatch):
    rng = np.random.default_rng(0)
    results = measured(monkeypatch, 15, lambda choices, number: float(np.exp(rng.normal(0.0, 0.5))))
    assert not any(t.is_kept for t in results) and all(t.best == t.default for t in results)


def test_too_few_rounds_keep_nothing(monkeypatch):
    """18.74 times as fast in the only round: another program had the CPU meanwhile."""
    for rounds in (1, FEWEST_ROUNDS - 1):
        results = measured(monkeypatch, rounds, lambda choices, number: 1.0 if choices else 18.74)
        assert not any(t.is_kept for t in results) and all(t.least == 0.0 for t in results)


def test_a_gain_that_is_certain_and_small_is_not_kept(monkeypatch):
    assert not any(t.is_kept for t in measured(monkeypatch, 15, lambda choices, number: 1.0 if choices else 1.02))


@pytest.mark.parametrize("rounds", [7, 11, 15, 31])
def test_the_bound_is_wrong_as_seldom_as_it_says(rounds):
    """It lies above the median of any distribution in at most one case of a hundred, and near it for many rounds."""
    rng = np.random.default_rng(rounds)
    for draw in (lambda: rng.normal(1.0, 0.1, rounds), lambda: np.exp(np.tanh(rng.standard_cauchy(rounds)))):
        bounds = np.array([least_gain(draw()) for _ in range(4000)])
        assert np.mean(bounds > 1.0) < 0.015
    assert least_gain([1.5] * rounds) == 1.5


def test_reset(directory):
    store_choices(HOST, {"k/0": CHOICE, "m/0": CHOICE})
    assert forget_choices(HOST) == 2 and stored() == {} and not tuned_file(HOST).exists()
    assert forget_choices(HOST) == 0
    tuned_file(HOST).write_text("damaged")
    assert forget_choices(HOST) == 0 and not tuned_file(HOST).exists()
    done = CliRunner().invoke(app, ["tune", "--reset"])
    assert done.exit_code == 0 and done.output == "forgot the tiles of 0 kernels\n"


def test_reset_leaves_what_is_not_ours(directory, tmp_path):
    store_choices(HOST, {"k/0": CHOICE})
    tuned_file(HOST).unlink()
    (tmp_path / "theirs").write_text("x")
    tuned_file(HOST).symlink_to(tmp_path / "theirs")
    done = CliRunner().invoke(app, ["tune", "--reset"])
    assert done.exit_code == 1 and "can't be removed" in done.output and (tmp_path / "theirs").exists()


def test_command(tmp_path, directory):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)

    def call(*options: str):
        return CliRunner().invoke(app, ["tune", str(file), *options])

    few = call("--size", "n=8", "--rounds", "1")
    assert few.exit_code == 0 and "nothing is kept: 1 rounds cannot tell a gain from noise, 7 can" in few.output
    assert not tuned_file(HOST).exists()
    done = call("--size", "n=8", "--rounds", "7")
    assert done.exit_code == 0, done.output
    assert "matmul" in done.output and "beyond noise: kept in" in done.output and tuned_file(HOST).exists()
    assert json.loads(tuned_file(HOST).read_text())["target"] == HOST.key
    for options, message in (
        ((), "main has the symbolic sizes n; got none\nhint: write --size n=64"),
        (("--function", "nothing"), "nothing has no contraction: there is nothing to tune"),
        (("--function", "other"), "the executable has no function 'other'"),
    ):
        failed = call(*options)
        assert failed.exit_code == 1 and f"error: {message}" in failed.output
    missing = CliRunner().invoke(app, ["tune"])
    assert missing.exit_code == 2 and "name a file" in missing.output


def test_the_file_is_read_once(monkeypatch):
    store_choices(HOST, {"k/0": CHOICE})
    first = tuned_choices(HOST)
    monkeypatch.setattr(tuned, "_parse", lambda *_: pytest.fail("read again"))
    assert tuned_choices(HOST) is first
