"""Checkpoints that several ranks write and read together: one file, the same as one process writes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from pullback.ir import CheckpointError, IRModule
from pullback.relax.training import Trainer, checkpoint_file, make_trainer, shared_file
from pullback.relax.training.checkpoint_file import open_checkpoint
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import EMA, Adam
from pullback.relax.training.shared_file import Run, Together, owners
from pullback.runtime import collectives
from pullback.runtime.ranks import Alone, RankError, current, run_local
from tests.pinned.checkpoints import FOLDER
from tests.relax.training.models import classes, mlp
from tests.relax.training.processes import run_processes

METADATA = {
    "format": "pullback-checkpoint", "version": "2", "parameters": "[]", "states": "[]", "optimizer": "", "steps": "0",
    "epochs": "0", "random": json.dumps(np.random.PCG64(0).state), "loss": "Größe \U0001f600 'x'",
}  # fmt: skip
PART = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "PART_BYTES", PART)


def arrays() -> dict[str, np.ndarray]:
    """Of all dtypes; none, one, and many elements."""
    source = np.random.default_rng(0)
    found = {
        f"{dtype}.{shape}": source.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        for dtype in ("bool", "int8", "uint16", "int32", "int64", "float16", ml_dtypes.bfloat16, "float32", "float64")
        for shape in ((), (0, 3), (1,), (7,), (5, 41))
    }
    return {**found, "large": source.standard_normal((37, 29))}


def is_piece(name: str) -> bool:
    return "(5, 41)" in name or "(7,)" in name or name == "large"


def save(path: Path, contents: Mapping[str, np.ndarray], in_pieces: bool = True) -> None:
    ranks, tensors = current(), {}
    for name, array in contents.items():
        run = Run.whole(array)
        if in_pieces and is_piece(name):
            run = Run.piece(collectives.piece(array, ranks.rank, ranks.size), array.size, ranks)
        tensors[name] = array.dtype.name, array.shape, run
    shared_file.save(str(path), tensors, METADATA, ranks)


def load(path: Path, contents: Mapping[str, np.ndarray], in_pieces: bool = True) -> dict[str, np.ndarray]:
    """What a rank reads: pieces have zeros behind the end."""
    ranks, into, runs = current(), {}, {}
    for name, array in contents.items():
        into[name] = np.zeros(array.shape, array.dtype)
        runs[name] = Run.whole(into[name])
        if in_pieces and is_piece(name):
            into[name] = np.zeros(collectives.piece_length(array.size, ranks.size), array.dtype)
            runs[name] = Run.piece(into[name], array.size, ranks)
    with open_checkpoint(str(path), 1 << 20) as file:
        shared_file.load(file, runs, Together(ranks, str(path), "read", "look"))
    return into


def leftovers(path: Path) -> list[str]:
    return [p.name for p in path.parent.iterdir() if p != path]


def sha256_by_hand(path: Path) -> str:
    """The checksum as the format defines it, from what another reader finds in the file."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
        found = hashlib.sha256()
        for key in sorted(metadata):
            if key != "sha256":
                found.update(f"{key!r}={metadata[key]!r};".encode())
    data = path.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:length])
    names = {v: k for k, v in checkpoint_file._CODES.items()}
    dtypes = {code: dtype for dtype, code in names.items()}
    for name in sorted(table.keys() - {"__metadata__"}):
        entry = table[name]
        begin, end = (length + offset for offset in entry["data_offsets"])
        found.update(f"{name!r}:{dtypes[entry['dtype']]}{tuple(entry['shape']) or (1,)};".encode())
        for at in range(begin, end, PART):
            found.update(hashlib.sha256(data[at : min(at + PART, end)]).digest())
    return found.hexdigest()


# ---- one file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_pieces", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_any_number_of_ranks_writes_and_reads_the_same_file(size: int, in_pieces: bool, path: Path) -> None:
    contents = arrays()
    save(path, contents, in_pieces=False)
    alone = path.read_bytes()
    path.unlink()
    run_local(size, lambda rank: save(path, contents, in_pieces))
    assert path.read_bytes() == alone and not leftovers(path)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {**METADATA, "sha256": sha256_by_hand(path)}
    plain = {name: a for name, a in contents.items() if a.dtype != ml_dtypes.bfloat16}
    found = safetensors.numpy.load_file(path)
    for name, array in plain.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    for readers in (1, 2, 5):
        for rank, read in enumerate(run_local(readers, lambda _: load(path, contents, in_pieces))):
            for name, array in contents.items():
                expected = collectives.piece(array, rank, readers) if in_pieces and is_piece(name) else array
                np.testing.assert_array_equal(read[name], expected)


def test_tensors_are_aligned(path: Path) -> None:
    save(path, arrays())
    length = int.from_bytes(path.read_bytes()[:8], "little")
    assert length % 8 == 0
    with open_checkpoint(str(path), 1 << 20) as file:
        for name, entry in file.tensors.items():
            assert entry.begin % arrays()[name].itemsize == 0, name


def test_shares_are_fair() -> None:
    """No rank answers for more than its share of what all have, and one part; of pieces for what it holds, and one."""
    types = {f"w{i}": ("float32", (1000 * (i + 1),)) for i in range(9)} | {"p": ("float64", (10_000,))}
    entries = checkpoint_file.laid_out(types)
    for size in (1, 2, 3, 8, 100):
        piece = 8 * collectives.piece_length(10_000, size)
        found = owners(entries, {"p": piece}, size)
        whole = sum(e.nbytes for name, e in entries.items() if name != "p")
        for rank in range(size):
            own = {
                name: sum(end - begin for r, (begin, end) in zip(ranks, entries[name].parts, strict=True) if r == rank)
                for name, ranks in found.items()
            }
            assert own.pop("p") <= piece + PART
            assert sum(own.values()) <= whole / size + PART * (1 + len(own))
        assert {r for ranks in found.values() for r in ranks} == set(range(size))


# ---- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
def test_damage_anywhere_is_found_on_all_ranks(size: int, path: Path) -> None:
    contents = arrays()
    save(path, contents)
    data = path.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    messages: list[list[str]] = []
    for place in [*range(length, len(data), 301), len(data) - 1]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])

        def attempt(rank: int) -> str:
            with pytest.raises(CheckpointError) as error:
                load(path, contents)
            return error.value.message

        messages.append(run_local(size, attempt))
    assert all("its contents do not match their SHA-256" in m for found in messages for m in found)


def test_a_bool_that_is_none_is_refused_on_all_ranks(path: Path) -> None:
    """The rank that holds it finds it; its checksum is right."""
    contents = {"bool.(7,)": np.array([0, 1, 0, 1, 0, 1, 7], np.uint8).view(bool)}
    save(path, contents)

    def attempt(rank: int) -> str:
        with pytest.raises(CheckpointError) as error:
            load(path, contents)
        return error.value.message

    first, last = run_local(2, attempt)
    assert last.endswith("bool.(7,) holds a byte that is neither true nor false")
    assert first == f"rank 1: {last}"


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has a function of the file system fail at its n-th call on a rank."""

    def fail(owner: Any, name: str, rank: int, call: int) -> None:
        original, seen = getattr(owner, name), []

        def function(*arguments: Any, **more: Any) -> Any:
            if current().rank == rank and current().size > 1:
                seen.append(name)
                if len(seen) == call:
                    raise OSError(28, "No space left on device")
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, function)

    return fail


PLACES: list[tuple[Any, str, int, int]] = [
    *((shared_file, "write_at", 0, call) for call in (1, 2, 5)),
    *((shared_file, "write_at", 2, call) for call in (1, 3)),
    *((os, "fsync", 0, call) for call in (1, 2)),
    (os, "fsync", 1, 1),
    (os, "replace", 0, 1),
    (os, "ftruncate", 0, 1),
    (shared_file, "_read", 1, 1),
]


@pytest.mark.parametrize(("owner", "name", "rank", "call"), PLACES, ids=str)
def test_an_error_of_one_rank_is_raised_on_all(
    owner: Any, name: str, rank: int, call: int, path: Path, failing: Callable[..., None]
) -> None:
    save(path, arrays())
    old = path.read_bytes()
    failing(owner, name, rank, call)

    def attempt(_: int) -> str:
        with pytest.raises(CheckpointError) as error:
            save(path, {name: array[::-1].copy() if array.ndim else array for name, array in arrays().items()})
        return error.value.message

    messages = run_local(3, attempt)
    own = f"{path}: cannot be written: No space left on device"
    assert messages == [own if r == rank else f"rank {rank}: {own}" for r in range(3)]
    assert path.read_bytes() == old and not leftovers(path)
    run_local(3, lambda _: save(path, arrays()))
    assert path.read_bytes() == old


def test_ranks_that_save_different_things(path: Path) -> None:
    with pytest.raises(RankError, match=r"the path of the checkpoint is .*0' on rank 0 and .*1' on rank 1"):
        run_local(2, lambda rank: save(path.with_name(f"file{rank}"), arrays()))
    with pytest.raises(RankError, match="the digest of the checkpoint's names, shapes and dtypes is"):
        run_local(2, lambda rank: save(path, {"w": np.zeros(3 + rank)}))
    assert not list(path.parent.iterdir())


def test_ranks_that_read_different_files(path: Path) -> None:
    save(path, {"w": np.zeros(3)})
    save(path.with_name("other"), {"w": np.zeros(3)}, in_pieces=False)
    assert path.read_bytes() == path.with_name("other").read_bytes()
    save(path.with_name("other"), {"w": np.ones(3)})

    def attempt(rank: int) -> None:
        with pytest.raises(CheckpointError, match="rank 1 sees another file of this name than rank 0"):
            load(path if rank == 0 else path.with_name("other"), {"w": np.zeros(3)})

    run_local(2, attempt)


# ---- processes -----------------------------------------------------------------------------------------------------


def save_in(rank: int, folder: str, name: str) -> None:
    os.chdir(f"{folder}/{rank}")
    shared_file.save(
        name, {"w": ("float32", (100_000,), Run.whole(np.arange(100_000, dtype="float32")))}, METADATA, current()
    )


def test_ranks_that_are_processes(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"{rank}").mkdir()
    assert run_processes(3, save_in, str(tmp_path), "../model") == [("returned", None)] * 3
    np.testing.assert_array_equal(
        safetensors.numpy.load_file(tmp_path / "model")["w"], np.arange(100_000, dtype="float32")
    )


@pytest.mark.parametrize("what", ["nothing", "another file"])
def test_a_folder_that_is_not_shared(what: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 sees its own disk under that name, as on another machine."""
    save(path, arrays())
    old, check = path.read_bytes(), shared_file._check_seen

    def check_elsewhere(temporary: str, *others: Any) -> None:
        elsewhere = path.parent / "elsewhere"
        if what == "another file":
            elsewhere.write_bytes(b"x" * 100)
        check(str(elsewhere) if current().rank == 1 else temporary, *others)

    monkeypatch.setattr(shared_file, "_check_seen", check_elsewhere)
    monkeypatch.setattr(shared_file, "_PATIENCE", 0.1)

    def attempt(_: int) -> tuple[str, str]:
        with pytest.raises(CheckpointError) as error:
            save(path, arrays())
        return error.value.message, str(error.value.hint)

    first, second, third = run_local(3, attempt)
    assert second[0].startswith(f"{path}: rank 1 does not see the file that rank 0 is writing in {path.parent}")
    assert "of a network's file system" in second[1] and first == third == (f"rank 1: {second[0]}", second[1])
    (path.parent / "elsewhere").unlink(missing_ok=True)
    assert path.read_bytes() == old and not leftovers(path)


def save_and_die(rank: int, path: str, where: int) -> None:
    if rank == 1:
        calls = iter(range(1000))

        def dying(original: Callable[..., Any], *arguments: Any) -> Any:
            if next(calls) == where:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        for name in ("write_at", "digest_of", "_read"):
            setattr(shared_file, name, partial(dying, getattr(shared_file, name)))
    length = collectives.piece_length(700_001, 3)
    piece = np.full(length, rank, "float32")
    tensors = {"w": ("float32", (700_001,), Run.piece(piece, 700_001, current()))}
    shared_file.save(path, tensors, METADATA, current())


@pytest.mark.parametrize("where", [0, 2])
def test_a_rank_that_is_killed_leaves_the_old_file(where: int, path: Path) -> None:
    save(path, {"w": np.zeros(3)})
    old = path.read_bytes()
    outcomes = run_processes(3, save_and_die, str(path), where)
    assert [kind for kind, _ in outcomes] == ["raised", "ended", "raised"]
    assert all("RankError: rank 1 failed" in text for kind, text in outcomes if kind == "raised")
    assert path.read_bytes() == old and not leftovers(path)
    assert run_processes(3, save_and_die, str(path), -1) == [("returned", None)] * 3
    found = safetensors.numpy.load_file(path)["w"]
    np.testing.assert_array_equal(found, np.repeat([0, 1, 2], 233_334)[:700_001])


# ---- trainers ------------------------------------------------------------------------------------------------------

X, Y = classes(30)


def trainer_of(seed: int = 1, distributed: str | None = None) -> Trainer:
    module: IRModule = mlp()
    made = EMA(Adam(0.01), 0.9)
    return make_trainer(module, CrossEntropyLoss(), made, target="debug", seed=seed, distributed=distributed)


def everything(trainer: Trainer) -> list[np.ndarray]:
    return [np.array(v) for v in trainer._values.all]


def test_trainers(path: Path) -> None:
    """What whole trainers save together is what one saves."""
    one = trainer_of()
    one.fit(X, Y, epochs=2, verbose=0)
    one.save(path)
    alone = path.read_bytes()
    path.unlink()

    def save(_: int) -> None:
        trainer = trainer_of()
        trainer.fit(X, Y, epochs=2, verbose=0)
        trainer.save(path)

    run_local(3, save)
    assert path.read_bytes() == alone

    def load(rank: int) -> Trainer:
        trainer = trainer_of(seed=rank + 5)
        trainer.load(path)
        return trainer

    for trainer in run_local(2, load):
        assert trainer.epochs == 2 and trainer._generator.bit_generator.state == one._generator.bit_generator.state
        assert all(np.array_equal(a, b) for a, b in zip(everything(trainer), everything(one), strict=True))


@pytest.mark.parametrize("version", ["2", "1"])
def test_trainers_that_hold_pieces(version: str, path: Path) -> None:
    """Optimizer states and parameters in pieces: saved by 3 ranks, read by one, 2 and 4; older files too."""
    one = trainer_of()
    one.fit(X, Y, epochs=1, verbose=0)
    one.save(path)
    alone, expected = path.read_bytes(), everything(one)
    if version == "2":

        def save(_: int) -> None:
            trainer = trainer_of(9, "zero3")
            trainer.load(path)
            current().barrier()
            trainer.save(path)

        run_local(3, save)
        assert path.read_bytes() == alone
    else:
        contents = safetensors.numpy.load_file(path)
        with safetensors.safe_open(path, "numpy") as file:
            metadata = {**file.metadata(), "version": "1"}
        metadata["sha256"] = checkpoint_file.digest(contents, metadata)
        path.write_bytes(safetensors.numpy.save(contents, metadata))

    def load(_: int) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
        trainer = trainer_of(9, "zero3")
        trainer.load(path)
        values = [np.array(v) for v in trainer._whole().all]
        return values, [v.shape for v in trainer._values.all]

    for size in (1, 2, 4):
        for found, shapes in run_local(size, load):
            for slot, a, b in zip(one._interface.kept, found, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=str(slot))
            assert sum(s != b.shape for s, b in zip(shapes, expected, strict=True)) > (20 if size > 1 else -1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    def refused(rank: int) -> None:
        with pytest.raises(CheckpointError, match="do not match their SHA-256"):
            load(rank)

    run_local(3, refused)


def test_older_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pinned.checkpoints import TRAINERS

    def load(_: int) -> list[np.ndarray]:
        trainer = TRAINERS["momentum"]()
        trainer.load(FOLDER / "momentum.safetensors")
        return everything(trainer)

    expected = load(0)
    for found in run_local(2, load):
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_alone_nothing_is_exchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(current()) is Alone
    opened: list[Any] = []
    monkeypatch.setattr(shared_file, "_check_seen", lambda *_: opened.append(1))
    save(path, arrays())
    assert not opened
