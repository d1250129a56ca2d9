"""Checkpoints: resumption bit for bit, atomic replacement, and files that are refused with the trainer unchanged."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from pullback.ir import CheckpointError, UserError
from pullback.relax.training import Trainer, checkpoint_file, make_trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD
from tests.relax.training.models import classes, mlp, with_state

X, Y = classes(30)
REPOSITORY = Path(__file__).parents[3]


def trainer_of(optimizer: Any = None, target: str = "debug", seed: int = 1, **model: Any) -> Trainer:
    return make_trainer(mlp(**model), CrossEntropyLoss(), optimizer or Adam(0.01), target=target, seed=seed)


def everything(trainer: Trainer) -> list[np.ndarray]:
    kept = [*trainer.params.values(), *trainer.states.values(), *trainer.optimizer_states]
    return [np.asarray(trainer.epochs), *(tensor.numpy() for tensor in kept)]


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


# ---- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("optimizer", [SGD(0.05), MomentumSGD(0.02, 0.9), Adam(0.01)], ids=lambda o: o.name)
def test_fit_resumes_bit_for_bit(optimizer: Any, target: str, path: Path) -> None:
    whole, first, second = (trainer_of(optimizer, target, seed) for seed in (1, 1, 9))
    whole.fit(X, Y, epochs=4, verbose=0)
    first.fit(X, Y, epochs=2, verbose=0)
    first.save(path)
    second.load(path)
    assert second.steps == 8 and second.epochs == 2
    history = second.fit(X, Y, epochs=2, verbose=0)
    assert [record.epoch for record in history.epochs] == [3, 4]
    assert_same(everything(whole), everything(second))


def test_updates_resume_at_any_step(path: Path) -> None:
    whole, first, second = (trainer_of(target="llvm", seed=seed) for seed in (1, 1, 9))
    batches = [(X[k : k + 8], Y[k : k + 8]) for k in (0, 8, 16, 0, 16)]
    for batch in batches:
        whole.update(*batch)
    for batch in batches[:3]:
        first.update(*batch)
    first.save(path)
    second.load(path)
    for batch in batches[3:]:
        second.update(*batch)
    assert_same(everything(whole), everything(second))


def test_states_are_saved(path: Path) -> None:
    first, second = (make_trainer(with_state(), MSELoss(), SGD(0.1), target="debug") for _ in range(2))
    first.load_states([np.int64(7), [1.5, 2.5]])
    first.save(path)
    second.load(path)
    assert_same(everything(first), everything(second))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(dtype: str, path: Path) -> None:
    first, second = trainer_of(seed=1, dtype=dtype), trainer_of(seed=2, dtype=dtype)
    first.save(path)
    second.load(path)
    assert_same(everything(first), everything(second))
    assert second.params["w0"].dtype == dtype


def test_another_learning_rate_may_go_on(path: Path) -> None:
    trainer_of(Adam(0.01)).save(path)
    trainer_of(Adam(0.001)).load(path)


def test_other_tools_read_the_parameters(path: Path) -> None:
    trainer = trainer_of()
    trainer.save(path)
    arrays = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(arrays["param.w0"], trainer.params["w0"].numpy())
    assert arrays["optimizer.0"] == 0


def test_file_mode_and_leftovers(path: Path) -> None:
    previous = os.umask(0o027)
    try:
        trainer_of().save(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_killed_processes_left_behind_is_removed(path: Path) -> None:
    names = (".model.safetensors.abc_1234.tmp", ".model.safetensors.locked00.tmp")
    others = (
        ".model.safetensors.ab.tmp",
        ".model.safetensors.abcd1234.tmpx",
        ".other.safetensors.abcd1234.tmp",
        "x.tmp",
    )
    for name in (*names, *others):
        (path.parent / name).write_bytes(b"left")
    with (path.parent / names[1]).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a save that is under way
        trainer_of().save(path)
    assert {p.name for p in path.parent.iterdir()} == {path.name, names[1], *others}
    trainer_of().save(path)
    assert {p.name for p in path.parent.iterdir()} == {path.name, *others}


def test_threads_may_save_under_one_name(path: Path) -> None:
    trainers = [trainer_of(seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda k: trainers[k % 4].save(path), range(40)):
            pass
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    trainer_of().load(path)


def test_a_failed_save_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of()
    trainer.save(path)
    old = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    trainer.update(X[:8], Y[:8])
    with pytest.raises(CheckpointError, match="cannot be written: No space left"):
        trainer.save(path)
    assert path.read_bytes() == old and [p.name for p in path.parent.iterdir()] == [path.name]


def test_nothing_to_save() -> None:
    trainer = trainer_of()
    trainer._values = trainer._values.with_params({0: None})  # type: ignore[dict-item]
    with pytest.raises(UserError, match="parameter w0 has no value yet"):
        trainer.save("never-written")
    assert not Path("never-written").exists()


SAVING = """
import sys
from tests.relax.training.test_checkpoint import trainer_of
trainer = trainer_of(sizes=(64, 256, 5))
print("ready", flush=True)
while True:
    for version in range(2):
        trainer.load_params({k: v.numpy() * 0 + version for k, v in trainer.params.items()})
        trainer.save(sys.argv[1])
"""


def test_kill_9_leaves_the_old_or_the_new_file(path: Path) -> None:
    big = trainer_of(sizes=(64, 256, 5))
    generator = np.random.default_rng(0)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, env=dict(os.environ)
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        while not path.exists() and process.poll() is None:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.03))
        assert process.poll() is None, "it saves until it is killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        big.load(path)
        values = {float(v) for p in big.params.values() for v in np.unique(p.numpy())}
        assert values in ({0.0}, {1.0}), "one version, whole"
    big.save(path)
    assert [p.name for p in path.parent.iterdir()] == [path.name], "the next save cleans up"


# ---- what is refused -------------------------------------------------------------------------------------------------


def assert_refused(trainer: Trainer, path: Path, message: str) -> None:
    before, state = everything(trainer), trainer._generator.bit_generator.state
    with pytest.raises(CheckpointError, match=message):
        trainer.load(path)
    assert_same(before, everything(trainer))
    assert trainer._generator.bit_generator.state == state


def small() -> Trainer:
    return trainer_of(SGD(0.1), sizes=(2, 2))


def test_every_flipped_bit_is_found(path: Path) -> None:
    trainer = small()
    trainer.save(path)
    data = bytearray(path.read_bytes())
    target = trainer_of(SGD(0.1), sizes=(2, 2), seed=5)
    before = everything(target)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            target.load(path)
            pytest.fail(f"bit {bit} of {8 * len(data)} was flipped, and nobody noticed")
        data[bit // 8] ^= 1 << bit % 8
    assert_same(before, everything(target))
    path.write_bytes(data)
    target.load(path)
    assert_same(everything(trainer), everything(target))


def test_every_truncation_is_found(path: Path) -> None:
    small().save(path)
    data = path.read_bytes()
    target = trainer_of(SGD(0.1), sizes=(2, 2), seed=5)
    for length in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:length])
        assert_refused(target, path, "truncated|damaged")
    path.write_bytes(data + b"\0")
    assert_refused(target, path, "truncated or damaged")


def rewritten(path: Path, change: Callable[[dict[str, np.ndarray], dict[str, str]], None]) -> None:
    """Change a checkpoint and give it a right checksum again."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(path)
    change(tensors, metadata)
    metadata["sha256"] = checkpoint_file.digest(tensors, metadata)
    path.write_bytes(safetensors.numpy.save(tensors, metadata))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m: m.update(version="3"), "expected format pullback-checkpoint version 2, got .* version 3"),
        (lambda t, m: t.pop("param.b0"), "it lacks param.b0"),
        (lambda t, m: t.update(extra=np.ones(2)), "it holds extra, which this trainer does not have"),
        (lambda t, m: m.update(random="{}"), "its random generator cannot be restored"),
        (lambda t, m: m.update(random='{"bit_generator": "MT19937"}'), "its random generator cannot be restored"),
        (lambda t, m: m.update(epochs="many"), "its metadata is damaged"),
        (lambda t, m: m.pop("parameters"), "its metadata is damaged"),
        (lambda t, m: m.update(states="[1"), "its metadata is damaged"),
    ],
)
def test_other_contents(change: Any, message: str, path: Path) -> None:
    small().save(path)
    rewritten(path, change)
    assert_refused(small(), path, message)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (trainer_of(Adam(0.1), sizes=(2, 2)), "saved with the optimizer Adam, this trainer has SGD"),
        (
            trainer_of(SGD(0.1), sizes=(2, 3)),
            r"parameter w0 is \(2, 2\) float32 in this trainer, \(2, 3\) float32 in the",
        ),
        (trainer_of(SGD(0.1), sizes=(2, 2), dtype="float64"), r"\(2, 2\) float32 in this trainer, \(2, 2\) float64 in"),
        (trainer_of(SGD(0.1), sizes=(2, 2, 2)), "the model has the parameters w0, b0, the file holds w0, b0, w1, b1"),
    ],
    ids=["optimizer", "shape", "dtype", "names"],
)
def test_other_trainers(saved: Trainer, message: str, path: Path) -> None:
    saved.save(path)
    assert_refused(small(), path, message)


def test_foreign_files(path: Path, tmp_path: Path) -> None:
    assert_refused(small(), path, "cannot be read: No such file")
    assert_refused(small(), tmp_path, "cannot be read: Is a directory")
    path.write_bytes(b"")
    assert_refused(small(), path, "too few for its header")
    path.write_text("not a checkpoint, but longer than eight bytes")
    assert_refused(small(), path, "too few for its header")
    path.write_bytes(safetensors.numpy.save({"param.w0": np.ones(3)}))
    assert_refused(small(), path, "no checkpoint of pullback")
    path.write_bytes(safetensors.numpy.save({"param.w0": np.ones(3)}, {"format": "pt", "version": "1"}))
    assert_refused(small(), path, "expected format pullback-checkpoint version 2, got pt version 1")
