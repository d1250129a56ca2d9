"""Whatever a checkpoint holds, loading it is a CheckpointError or right, and an error leaves the trainer as it was."""

from __future__ import annotations

import base64
import itertools
import json
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from pullback.ir import CheckpointError, IRModule, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.training import Trainer, checkpoint_file, make_trainer
from pullback.relax.training.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    L1Loss,
    Loss,
    MSELoss,
)
from pullback.relax.training.optimizer import EMA, SGD, Adam, DynamicLossScale, MomentumSGD, RunTime
from tests.errors.test_errors import digest
from tests.relax.training.models import mlp

DEEP = 100_000
OLD = base64.b64decode(  # of the version before files recorded what they were trained with
    "GAUAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJmb3JtYXQiOiJwdWxsYmFjay1jaGVja3BvaW50Iiwic3RhdGVzIjoiW10iLCJzdGVw"
    "cyI6IjEiLCJyYW5kb20iOiJ7XCJiaXRfZ2VuZXJhdG9yXCI6IFwiUENHNjRcIiwgXCJzdGF0ZVwiOiB7XCJzdGF0ZVwiOiAyMDc4"
    "MzM1MzI3MTEwNTE2OTg3Mzg1ODc2NDYzNTU2MjQxNDgwOTQsIFwiaW5jXCI6IDE5NDI5MDI4OTQ3OTM2NDcxMjE4MDA4MzU5NjI0"
    "MzU5MzM2ODQ0M30sIFwiaGFzX3VpbnQzMlwiOiAwLCBcInVpbnRlZ2VyXCI6IDB9IiwiaHlwZXJwYXJhbWV0ZXJzIjoie1wibHJc"
    "IjogMC4xLCBcImJldGExXCI6IDAuOSwgXCJiZXRhMlwiOiAwLjk5OSwgXCJlcHNcIjogMWUtMDgsIFwid2VpZ2h0X2RlY2F5XCI6"
    "IDAuMCwgXCJtYXhpbWl6ZVwiOiBmYWxzZSwgXCJhbXNncmFkXCI6IGZhbHNlfSIsInZlcnNpb24iOiIxIiwic2hhMjU2IjoiZGJk"
    "ZmU2NGQwNTYzYjRiMmU1NDZhOTg3NWIyZmFmNzViNmY1N2EwZjIzZmNmNjZjMTg0OWRhZTczMmE4MTA2YiIsInBhcmFtZXRlcnMi"
    "OiJbXCJ3MFwiLCBcImIwXCJdIiwib3B0aW1pemVyIjoiQWRhbSIsImxvc3MiOiJjcm9zc19lbnRyb3B5X2xvc3MiLCJvcHRpbWl6"
    "ZXJfc3RhdGVzIjoiW1wibnVtX3N0ZXBzXCIsIFwiYmV0YTFfcHJvZFwiLCBcImJldGEyX3Byb2RcIiwgXCJtIG9mIHcwXCIsIFwi"
    "bSBvZiBiMFwiLCBcInYgb2YgdzBcIiwgXCJ2IG9mIGIwXCJdIiwiZXBvY2hzIjoiMCJ9LCJvcHRpbWl6ZXIuMCI6eyJkdHlwZSI6"
    "Ikk2NCIsInNoYXBlIjpbXSwiZGF0YV9vZmZzZXRzIjpbMCw4XX0sIm9wdGltaXplci4xIjp7ImR0eXBlIjoiRjY0Iiwic2hhcGUi"
    "OltdLCJkYXRhX29mZnNldHMiOls4LDE2XX0sIm9wdGltaXplci4yIjp7ImR0eXBlIjoiRjY0Iiwic2hhcGUiOltdLCJkYXRhX29m"
    "ZnNldHMiOlsxNiwyNF19LCJvcHRpbWl6ZXIuMyI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMiwyXSwiZGF0YV9vZmZzZXRzIjpb"
    "MjQsNDBdfSwib3B0aW1pemVyLjQiOnsiZHR5cGUiOiJGMzIiLCJzaGFwZSI6WzJdLCJkYXRhX29mZnNldHMiOls0MCw0OF19LCJv"
    "cHRpbWl6ZXIuNSI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMiwyXSwiZGF0YV9vZmZzZXRzIjpbNDgsNjRdfSwib3B0aW1pemVy"
    "LjYiOnsiZHR5cGUiOiJGMzIiLCJzaGFwZSI6WzJdLCJkYXRhX29mZnNldHMiOls2NCw3Ml19LCJwYXJhbS5iMCI6eyJkdHlwZSI6"
    "IkYzMiIsInNoYXBlIjpbMl0sImRhdGFfb2Zmc2V0cyI6WzcyLDgwXX0sInBhcmFtLncwIjp7ImR0eXBlIjoiRjMyIiwic2hhcGUi"
    "OlsyLDJdLCJkYXRhX29mZnNldHMiOls4MCw5Nl19fSAgICAgIAEAAAAAAAAAzczMzMzM7D8rhxbZzvfvP1VYTztQWE+7/fDxO/rw"
    "8buGoAE9h6ABvZNZhjWNWYY1gOy2NnrstjYkCtI4KArSOMzMzD5mZma/yMzMvWRmZj6amRk+MzPzPg=="
)


def trainer_of(optimizer: Any = None, loss: Any = None, act: Any = None, **options: Any) -> Trainer:
    model = mlp(sizes=(2, 2)) if act is None else activated(act)
    return make_trainer(model, loss or CrossEntropyLoss(), optimizer or SGD(0.1), target="debug", **options)


def activated(act: Any) -> IRModule:
    """The network ``mlp(sizes=(2, 2))`` with an op between matmul and bias."""
    infos = [TensorStructInfo(shape, "float32") for shape in ((8, 2), (2, 2), (2,))]
    x, w, b = (Var(name, info) for name, info in zip(("x", "w0", "b0"), infos, strict=True))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, b]):
        with builder.dataflow():
            out = builder.emit_output(op.add(act(op.matmul(x, w)), b))
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 2, "state_num": 0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def rewrite(path: Path, change: Callable[[dict[str, np.ndarray], dict[str, str]], Any]) -> None:
    """Change a checkpoint and give it a right checksum again."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(path)
    change(tensors, metadata)
    metadata["sha256"] = checkpoint_file.digest(tensors, metadata)
    path.write_bytes(safetensors.numpy.save(tensors, metadata))


def assert_refused(trainer: Trainer, path: Path, message: str | None = None, **options: Any) -> None:
    before = digest(trainer)
    with pytest.raises(CheckpointError, match=message):
        trainer.load(path, **options)
    assert digest(trainer) == before


def generator(**changes: Any) -> Callable[[Any, dict[str, str]], None]:
    """A change of the random generator's state."""

    def change(_: Any, metadata: dict[str, str]) -> None:
        state = json.loads(metadata["random"])
        for name, value in changes.items():
            if name in ("state", "inc"):
                state["state"][name] = value
            else:
                state[name] = value
        metadata["random"] = json.dumps(state)

    return change


def scalar(name: str, value: Any) -> Callable[[dict[str, np.ndarray], Any], None]:
    return lambda tensors, _: tensors.update({name: np.array(value, tensors[name].dtype)})


NESTED = "[" * DEEP + "]" * DEEP
VALUES = (
    "",
    "null",
    "[",
    "{}",
    "[]",
    "7",
    "-7",
    "1.5",
    "NaN",
    '"w0"',
    "[null]",
    '["w0", "w0"]',
    '["w0", 1]',
    "9" * 5000,
    NESTED,
)
KEYS = ("parameters", "states", "optimizer_states", "hyperparameters", "training", "random", "steps", "epochs")


@pytest.mark.parametrize("key", [*KEYS, "format", "version"])
def test_every_entry_of_the_metadata_with_every_kind_of_value(key: str, path: Path) -> None:
    trainer = trainer_of()
    trainer.save(path)
    whole = path.read_bytes()
    with safetensors.safe_open(path, "numpy") as file:
        given = file.metadata()[key]
    for value in VALUES:
        path.write_bytes(whole)
        rewrite(path, lambda _, metadata, v=value: metadata.update({key: v}))
        if value == given or (key, value) in (("states", "[]"), ("optimizer_states", "[]"), ("epochs", "7")):
            trainer.load(path)  # that is what it may hold, or held before these were recorded
        elif key in ("hyperparameters", "training") and value == "{}":
            trainer.load(path)
        else:
            assert_refused(trainer, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (generator(state=2**128), "its random generator cannot be restored"),
        (generator(state=-1), "its random generator cannot be restored"),
        (generator(state=10**4000), "its random generator cannot be restored"),
        (generator(inc=2**200 + 1), "its random generator cannot be restored"),
        (generator(inc=2), "its increment must be odd"),
        (generator(state=True), "an integer was expected, not a truth value"),
        (generator(state=1.0), "an integer was expected, not a number"),
        (generator(has_uint32=2), "its random generator cannot be restored"),
        (generator(uinteger=2**32), "its random generator cannot be restored"),
        (generator(uinteger=None), "an integer was expected, not null"),
        (generator(more=1), "it is no state of PCG64"),
        (scalar("optimizer.0", -7), "count|steps"),
        (lambda t, m: (scalar("optimizer.0", -7)(t, m), m.update(steps="-7")), "a number ≥ 0 was expected"),
        (scalar("optimizer.0", 3), "it was saved after 3 steps, its metadata says 0"),
        (lambda t, m: m.update(epochs="01"), "a number ≥ 0 was expected"),
        (lambda t, m: m.update(epochs=str(2**63)), "it must be from 0"),
        (lambda t, m: m.update(epochs="١"), "a number ≥ 0 was expected"),
        (lambda t, m: t.update({"param.w0": t["param.w0"].astype("float64")}), "float64 in the file"),
        (lambda t, m: t.update({"optimizer.0": np.zeros((), "float32")}), "optimizer state 0 is .* int64 in this"),
    ],
)  # fmt: skip
def test_values_out_of_range(change: Any, message: str, path: Path) -> None:
    trainer = trainer_of()
    trainer.save(path)
    rewrite(path, change)
    assert_refused(trainer, path, message)


@pytest.mark.parametrize(
    ("optimizer", "state", "value", "message"),
    [
        (Adam(RunTime(0.1)), "lr", np.nan, "lr must be a finite number"),
        (Adam(RunTime(0.1)), "lr", -1.0, "lr must be a finite number ≥ 0"),
        (MomentumSGD(0.1, RunTime(0.9)), "momentum", np.inf, "momentum must be a finite number"),
        (DynamicLossScale(SGD(0.1)), "loss_scale", np.nan, "its loss scale is nan"),
        (DynamicLossScale(SGD(0.1)), "loss_scale", -2.0, "its loss scale is -2.0"),
        (DynamicLossScale(SGD(0.1)), "num_finite", -1, "num_finite, a count, is -1"),
        (EMA(SGD(0.1), 0.9), "num_averaged", -1, "num_averaged, a count, is -1"),
    ],
)
def test_optimizer_states_out_of_range(optimizer: Any, state: str, value: Any, message: str, path: Path) -> None:
    trainer = trainer_of(optimizer)
    trainer.save(path)
    labels = trainer._interface.record.optimizer_states
    rewrite(path, scalar(f"optimizer.{labels.index(state)}", value))
    assert_refused(trainer, path, message)


def raw(header: str | bytes, data: bytes = b"") -> bytes:
    encoded = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


META = '"__metadata__": {"format": "pullback-checkpoint", "version": "1"}'


def table(*lines: str, data: int = 0) -> bytes:
    """A file of our format with these lines in its header, and so many bytes of data."""
    return raw("{" + ", ".join([META, *lines]) + "}", bytes(data))


def line(name: str = "param.w0", dtype: str = '"F32"', shape: str = "[1]", offsets: str = "[0, 4]") -> str:
    return f'"{name}": {{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}}}'


HEADERS = [
    raw(NESTED),
    raw('{"__metadata__": ' + '{"a": ' * DEEP + "1" + "}" * DEEP + "}"),
    raw("null"),
    raw("[1, 2]"),
    raw("{}"),
    raw('{"__metadata__": null}'),
    raw('{"__metadata__": {"format": 1, "version": "1"}}'),
    raw('{"__metadata__": {"format": "pullback-checkpoint", "version": ["1"]}}'),
    table(META),
    raw(b"\xff\xfe{\x00}\x00"),
    raw(("{" + META + "}").encode("utf-16")),
    table('"param.w0": 7'),
    table('"param.w0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 1}', data=4),
    table(line(dtype='"F33"'), data=4),
    table(line(dtype='["F32"]'), data=4),
    table(line(shape="[-1]", offsets="[0, -4]")),
    table(line(shape="[true]"), data=4),
    table(line(shape="[1e0]"), data=4),
    table(line(shape=f"[{2**62}, 4]", offsets="[0, 0]")),
    table(line(shape=f"[0, {2**70}]", offsets="[0, 0]")),
    table(line(shape=str([0] * 65), offsets="[0, 0]")),
    table(line(shape=str([1] * 40)), data=4),
    table(line(shape="[" + "9" * 5000 + "]"), data=4),
    table(line(offsets="[4, 8]"), data=8),
    table(line(offsets="[0, 4, 8]"), data=8),
    table(line("param.w0"), line("param.b0"), data=4),
    table(line("param.w0"), line("param.w0"), data=4),
    struct.pack("<Q", 2**64 - 1) + b"{}",
    struct.pack("<Q", 2**63) + b"{}",
    b"\x80\x05\x95",  # a pickle
]


@pytest.mark.parametrize("contents", HEADERS, ids=itertools.count())
def test_headers(contents: bytes, path: Path) -> None:
    path.write_bytes(contents)
    assert_refused(trainer_of(), path, "no checkpoint|damaged")
    assert_refused(trainer_of(), path, "no checkpoint|damaged", params_only=True)


def test_large_files_are_not_read(path: Path) -> None:
    """A sparse file of a terabyte, whose header may announce anything."""
    trainer = trainer_of()
    trainer.save(path)
    for header in (
        struct.pack("<Q", 2**39) + b"{",
        table(line(dtype='"U8"', shape=f"[{2**39}]", offsets=f"[0, {2**39}]")),
    ):
        path.write_bytes(header)
        os.truncate(path, len(header) + 2**39)
        assert_refused(trainer, path, "its header has 549755813888 bytes|its metadata is damaged")


# ---- what was trained with what --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"loss": MSELoss()}, {"loss": L1Loss()}, "whose loss is mse_loss, this trainer's is l1_loss"),
        ({"loss": MSELoss()}, {"loss": MSELoss("sum")}, "whose loss's reduction is mean, this trainer's is sum"),
        ({"loss": HuberLoss()}, {"loss": HuberLoss(delta=2.0)}, "whose loss's delta is 1.0, this trainer's is 2.0"),
        (
            {"loss": CrossEntropyLoss(label_smoothing=0.1)},
            {},
            "whose loss's label_smoothing is 0.1, this trainer's is 0.0",
        ),
        (
            {"loss": BCEWithLogitsLoss(weight=[1.0, 2.0])},
            {"loss": BCEWithLogitsLoss(weight=[1.0, 3.0])},
            "whose loss's weight is float32",
        ),
        ({"act": op.tanh}, {"act": op.sin}, "whose network is .* ops, .*, this trainer's is .* ops,"),
    ],
)
def test_another_training(first: Any, second: Any, message: str, path: Path) -> None:
    saved, trainer = trainer_of(Adam(0.1), seed=1, **first), trainer_of(Adam(0.1), seed=2, **second)
    saved.save(path)
    assert_refused(trainer, path, message)
    trainer.load(path, params_only=True)
    np.testing.assert_array_equal(trainer.params["w0"], saved.params["w0"])
    trainer = trainer_of(Adam(0.1), seed=2, **second)
    trainer.load(path, strict=False)
    assert digest(trainer) == digest(saved)


def test_another_loss_of_the_users(path: Path) -> None:
    class Own(Loss):
        def __init__(self, power: float) -> None:
            super().__init__("own", 1)
            self.power = power

        def expression(self, predictions: Any, targets: Any) -> Any:
            return op.mean(op.power(op.abs(op.subtract(predictions, targets)), op.full_like(targets, self.power)))

    trainer_of(loss=Own(2.0)).save(path)
    trainer_of(loss=Own(2.0)).load(path)
    assert_refused(trainer_of(loss=Own(3.0)), path, "whose loss's power is 2.0, this trainer's is 3.0")


def test_another_batch_size_is_the_same_network(path: Path) -> None:
    small, large = (
        make_trainer(mlp(batch=n, sizes=(2, 2)), CrossEntropyLoss(), SGD(0.1), target="debug") for n in (4, 8)
    )
    small.save(path)
    large.load(path)
    assert digest(small) == digest(large)


def test_parameters_alone_leave_the_rest(path: Path) -> None:
    saved, trainer = trainer_of(Adam(0.1), seed=1), trainer_of(SGD(0.1), seed=2)
    saved.fit(np.ones((8, 2), "float32"), np.zeros(8, "int64"), epochs=3, verbose=0)
    saved.save(path)
    kept = trainer._generator.bit_generator.state
    assert_refused(trainer, path, "was saved with the optimizer Adam")
    trainer.load(path, params_only=True)
    for name, value in saved.params.items():
        np.testing.assert_array_equal(trainer.params[name], value)
    assert (trainer.steps, trainer.epochs, trainer._generator.bit_generator.state) == (0, 0, kept)


def test_parameters_alone_are_checked_too(path: Path) -> None:
    trainer_of(Adam(0.1)).save(path)
    data = bytearray(path.read_bytes())
    for place in (len(data) - 1, len(data) - 60):
        damaged = data.copy()
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert_refused(trainer_of(), path, "do not match their SHA-256", params_only=True)


def test_files_without_a_record_still_load(path: Path) -> None:
    path.write_bytes(OLD)
    trainer = trainer_of(Adam(0.1), seed=3)
    trainer.load(path)
    assert trainer.steps == 1
    np.testing.assert_allclose(trainer.params["b0"], [0.4, -0.9], rtol=1e-6)
    assert_refused(
        trainer_of(Adam(0.1), MSELoss()), path, "whose loss is cross_entropy_loss, this trainer's is mse_loss"
    )


@pytest.mark.parametrize("option", ["strict", "params_only"])
def test_options_are_truth_values(option: str, path: Path) -> None:
    trainer = trainer_of()
    trainer.save(path)
    with pytest.raises(UserError, match=f"{option} must be True or False, got 'no'"):
        trainer.load(path, **{option: "no"})


# ---- paths -----------------------------------------------------------------------------------------------------------


class Named:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __fspath__(self) -> Any:
        return self.name


WRONG = (
    None,
    7,
    1.5,
    True,
    [],
    {},
    object(),
    np.array("x"),
    "",
    b"",
    "a\0b",
    b"a\0b",
    "\ud800",
    Named(7),
    Named("a\0"),
)


@pytest.mark.parametrize("value", WRONG, ids=itertools.count())
def test_what_is_no_path(value: Any, tmp_path: Path) -> None:
    trainer = trainer_of()
    for call in (trainer.save, trainer.load):
        with pytest.raises(UserError, match="path"):
            call(value)


def test_an_open_file_is_no_path(path: Path) -> None:
    trainer = trainer_of()
    for mode, call in (("wb", trainer.save), ("rb", trainer.load)):
        with path.open(mode) as file, pytest.raises(UserError, match="not the open file"):
            call(file)


def test_paths_of_every_kind(path: Path) -> None:
    for given in (str(path), os.fsencode(path), path, Named(str(path)), Named(os.fsencode(path))):
        first, second = trainer_of(seed=1), trainer_of(seed=2)
        first.save(given)
        second.load(given)
        assert digest(first) == digest(second)
        path.unlink()


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "x", "y" * 1_000_000])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    trainer = trainer_of()
    for call in (trainer.save, trainer.load):
        with pytest.raises(CheckpointError, match=r"cannot be (read|written)") as error:
            call(tmp_path / name)
        assert len(str(error.value)) < 1000


def test_the_longest_names(tmp_path: Path) -> None:
    trainer = trainer_of()
    for name in ("x" * 255, "é" * 127):
        trainer.save(tmp_path / name)
        trainer.load(tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", ["fifo", "/dev/null", "/dev/full", "/dev/zero", "folder"])
def test_what_is_no_regular_file(kind: str, tmp_path: Path) -> None:
    trainer = trainer_of()
    path = Path(kind) if kind.startswith("/") else tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    before = os.stat(path)
    for call in (trainer.save, trainer.load):
        with pytest.raises(CheckpointError, match="Is a"):
            call(path)
    after = os.stat(path)
    assert (before.st_mode, before.st_ino, before.st_rdev) == (after.st_mode, after.st_ino, after.st_rdev)


def test_two_parameters_of_one_name(path: Path) -> None:
    trainer = trainer_of()
    interface = trainer._interface
    twice = (interface.params[0], interface.params[0])
    object.__setattr__(interface, "params", twice)
    with pytest.raises(CheckpointError, match="more than one parameter called w0"):
        trainer.save(path)
    assert not path.exists()


def test_loading_while_others_train(path: Path) -> None:
    """Another thread's step sees all of a file or nothing of it."""
    trainer = trainer_of(seed=1)
    x, y = np.ones((8, 2), "float32"), np.zeros(8, "int64")
    trainer.save(path)
    stop = threading.Event()
    failures: list[BaseException] = []

    def train() -> None:
        try:
            while not stop.is_set():
                trainer.update(x, y)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    for _ in range(20):
        trainer.load(path)
    stop.set()
    thread.join()
    assert not failures
    trainer.load(path)
    assert digest(trainer) == digest(trainer_of(seed=1))
