"""The fuzzer (fuzz.c) for a few thousand inputs: it finds nothing, and it finds mistakes that are put in."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.deploy import fake, fuzz
from tests.deploy.fake import KEPT, checkpoint, metadata
from tests.deploy.tools import need_program

NATIVE = (Path("pullback", "deploy", "native"), Path("pullback", "runtime", "native"))


def checkpoints() -> list[bytes]:
    """Files that are read, and some that are refused late."""
    kept = {key: np.array(value) for key, value in KEPT.items()}
    texts = metadata(kept)
    half = fake.generator()
    half.permutation(5)
    other = {**kept, "optimizer.0": np.array(2**62 - 1)}
    files = [
        checkpoint(kept),
        checkpoint(kept, {**texts, "random": metadata(kept, half.bit_generator.state)["random"] + " "}),
        checkpoint(kept, {**texts, "epochs": str(2**63 - 1)}),
        checkpoint(other, metadata(other)),
        checkpoint(kept, {**texts, "more": "\x00\x7f\x80é\ud7ff\U0001f600\\'\"\n"}),
        checkpoint(kept, {name: text for name, text in texts.items() if name not in ("loss", "training")}),
        checkpoint({**kept, "state.flags": np.array([1, 2, 0], np.uint8).view(bool)}, texts),
        checkpoint({**kept, "optimizer.3": np.array(np.nan)}, texts),
        checkpoint({**kept, "state.more": np.zeros(2)}, texts),
    ]
    return [b"", *files, files[0][:-1], files[0] + b"\0"]


def calls() -> list[bytes]:
    """Programs as they are, each function with arguments of few bytes, and pairs that belong together."""
    plain = b"\0\x17"  # one thread, the program as it is
    each = [plain + bytes([number]) + fill * 24 for number in range(20) for fill in (b"\2", b"\5", b"\x11")]
    programs = [bytes([0, number, 9, *[2] * 40, 8, *[2] * 20]) for number in range(12)]
    # Writes a checkpoint, steps, and reads it; trains in two threads.
    pairs = [plain + b"\4\1\1\1" + b"\x08" + b"\2" * 8 + b"\x0d\1" + b"\0" * 8 + b"\1\0\1" + b"\x08" + b"\2" * 8]
    pairs += [b"\1\x17" + b"\x09" + b"\2" * 30]
    return [*each, *programs, *pairs]


@pytest.fixture(scope="module")
def clang() -> str:
    path = need_program("clang")
    if not fuzz.has_libfuzzer(path):
        pytest.skip("this clang has no libFuzzer")
    return path


SEEDS = {"checkpoints": checkpoints, "calls": calls}


@pytest.mark.allowance(10)
@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_nothing_is_found(target, tmp_path, clang):
    program = fuzz.build(target, tmp_path, clang)
    seeds = SEEDS[target]()
    outcome = fuzz.run(program, tmp_path, "-runs=4000", "-seed=1", seeds=seeds)
    assert not outcome.findings, outcome.log[-6000:]
    assert outcome.runs >= 4000 and outcome.coverage > 500


# Of a target, what is changed where: none of these may go unnoticed.
MISTAKES = {
    "epochs beyond all counts": ("checkpoints", "checkpoint_read.c", " || *count >= PB_COUNT_END", ""),
    "values taken too early": ("checkpoints", "checkpoint_read.c", "_tensors(reading, 0, ", "_tensors(reading, 1, "),
    "a random state that stays": ("calls", "run.c", "model->random = before;", "(void)before;"),
    "no message": ("calls", "kept.c", 'PB_TEXT("there is no tensor ")', "{0, NULL, 0, 0, 0}"),
    "a row too many": ("calls", "call.c", "i = begin; i < end; i++", "i = begin; i <= end; i++"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name, tmp_path, monkeypatch, clang):
    target, file, right, wrong = MISTAKES[name]
    root = fuzz.HERE.parents[1]
    for folder in NATIVE:
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so"))
    copied = tmp_path / "tests" / "deploy"
    copied.mkdir(parents=True)
    for source in ("fuzz.c", "fake_model.c"):
        shutil.copy(fuzz.HERE / source, copied)
    changed = tmp_path / NATIVE[0] / file
    text = changed.read_text()
    assert text.count(right) == 1
    changed.write_text(text.replace(right, wrong))
    monkeypatch.setattr(fuzz, "HERE", copied)
    outcome = fuzz.run(fuzz.build(target, tmp_path, clang), tmp_path, "-runs=40000", "-seed=1", seeds=SEEDS[target]())
    assert outcome.findings
