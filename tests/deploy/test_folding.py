"""Libraries of trainers whose frozen layers are folded into the code (``fold_frozen``): a pretrained body with batch
norms and a head that is trained, against Python's trainer and the library that folds nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pullback
from pullback import nn, optim
from pullback.cli import app
from pullback.deploy.folding import folded_values
from pullback.deploy.functions import Planned, plan_functions
from pullback.ir.errors import UserError
from pullback.target import Target
from pullback.tir.expr import Call
from pullback.tir.visitor import walk
from tests.deploy.exported import Instance, Refused, kept
from tests.deploy.fake import ARGUMENT, CHECKPOINT
from tests.deploy.models import BATCH, batches
from tests.deploy.tools import need_zig

X = np.random.default_rng(0).standard_normal((10 * BATCH, 2, 12, 12)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 4, len(X))
FROZEN = [
    "0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias", "0.4.weight", "0.5.weight", "0.5.bias",
    "0.1.running_mean", "0.1.running_var", "0.1.num_batches_tracked",
    "0.5.running_mean", "0.5.running_var", "0.5.num_batches_tracked",
]  # fmt: skip


def pretrained() -> tuple[Any, Any]:
    """A body whose statistics and scales are none that layers begin with, and a new head."""
    body = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(),
    )  # fmt: skip
    first = pullback.trainer(nn.Sequential(body, nn.Linear(256, 4)), "cross_entropy", optim.Adam(lr=1e-2), example=X)
    first.fit(X, Y, epochs=2, batch_size=BATCH, verbose=0)
    return body, nn.Linear(256, 4)


def tuned(freeze: bool = True, **options: Any) -> Any:
    """A trainer of the head."""
    body, head = pretrained()
    body.freeze() if freeze else body.requires_grad_(False)
    made = {"seed": 1, "example": X} | options
    return pullback.trainer(nn.Sequential(body, head), "cross_entropy", optim.Adam(lr=1e-2), **made)


def exported(trainer: Any, folder: Path, name: str, **options: Any) -> Any:
    return trainer.export(folder / name, name=name, batch_size=BATCH, **options)


def steps(given: Any, data: list[list[np.ndarray]] | None = None) -> list[float]:
    """The losses of ten steps of an instance or a trainer."""
    step = given.step if isinstance(given, Instance) else lambda *batch: float(np.asarray(given.update(*batch)))
    return [step(*batch) for batch in data or batches([X, Y])]


# ---- what it computes


@pytest.mark.parametrize("threads", [1, 2])
def test_ten_steps_are_those_of_the_trainer(threads: int, tmp_path: Path) -> None:
    trainer = tuned()
    folded = Instance(exported(trainer, tmp_path, "folded", fold_frozen=True).folder, threads)
    plain = Instance(exported(trainer, tmp_path, "plain").folder, threads)
    with folded, plain:
        found, whole, expected = steps(folded), steps(plain), steps(trainer)
        assert whole == expected and expected[-1] != expected[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(plain.get(name), np.asarray(value))
            tolerance = 0 if name in FROZEN else 1e-5
            np.testing.assert_allclose(folded.get(name), np.asarray(value), rtol=tolerance, atol=tolerance)
        rows = 2 * BATCH + 5  # whole batches, and rows one by one
        np.testing.assert_allclose(folded.predict(X[:rows])[0], np.asarray(trainer.predict(X[:rows])), atol=1e-4)
        score = trainer.evaluate(X[:rows], Y[:rows])
        assert folded.evaluate(X[:rows], Y[:rows]) == pytest.approx((score.loss, score.accuracy), rel=1e-5)
        run, history = folded.run(X, Y, epochs=1), trainer.fit(X, Y, epochs=1, batch_size=BATCH, verbose=0)
        assert run.loss == pytest.approx(history["loss"][0], rel=1e-5)


def test_statistics_that_move_are_no_constants(tmp_path: Path) -> None:
    """Without a gradient alone, batch norms take the statistics of the batch, and keep them."""
    trainer = tuned(freeze=False)
    made = exported(trainer, tmp_path, "moving", fold_frozen=True)
    assert made.manifest["folded"] == [n for n in FROZEN if "running" not in n and "tracked" not in n]
    with Instance(made.folder) as instance:
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-5)
        for name, value in trainer.states.items():
            np.testing.assert_allclose(instance.get(name), np.asarray(value), rtol=1e-5)


def test_layers_that_are_frozen_behind_trained_ones(tmp_path: Path) -> None:
    """Gradients go through the folded layers."""
    layers = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(600, 4)]
    net = nn.Sequential(nn.Conv2d(2, 2, 1), *layers)
    first = pullback.trainer(net, "cross_entropy", "adam", example=X)
    first.fit(X, Y, epochs=1, batch_size=BATCH, verbose=0)
    for layer in layers:
        layer.freeze()
    trainer = pullback.trainer(net, "cross_entropy", optim.SGD(lr=0.05, momentum=0.9), example=X)
    made = exported(trainer, tmp_path, "adapter", fold_frozen=True)
    assert [t["name"] for t in made.manifest["kept"] if t["kind"] == "parameter"][:2] == ["0.weight", "0.bias"]
    assert not {"0.weight", "0.bias"} & set(made.manifest["folded"])
    with Instance(made.folder) as instance:
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-5)
        np.testing.assert_allclose(instance.get("0.weight"), np.asarray(trainer.params["0.weight"]), rtol=1e-4)


def test_parameters_that_a_group_freezes(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4))
    x = X.reshape(len(X), -1)[:, :8].copy()
    optimizer = optim.ParameterGroups(optim.AdamW(lr=1e-2), {"0.*": {"frozen": True}})
    trainer = pullback.trainer(net, "cross_entropy", optimizer, example=x)
    made = exported(trainer, tmp_path, "groups", fold_frozen=True)
    assert made.manifest["folded"] == ["0.weight", "0.bias"]
    with Instance(made.folder) as instance:
        data = batches([x, Y])
        np.testing.assert_allclose(steps(instance, data), steps(trainer, data), rtol=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision: str, tmp_path: Path) -> None:
    """Weights of half precision take no scale; they are cast when they are exported."""
    trainer = tuned(precision=precision)
    with Instance(exported(trainer, tmp_path, "half", fold_frozen=True).folder) as instance:
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-2)


def test_a_library_that_only_predicts(tmp_path: Path) -> None:
    trainer = tuned()
    made = exported(trainer, tmp_path, "predicts", fold_frozen=True, functions="predict")
    with Instance(made.folder) as instance:
        np.testing.assert_allclose(instance.predict(X[:BATCH])[0], np.asarray(trainer.predict(X[:BATCH])), atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the library is for x86-64")
def test_each_cpu_of_a_platform_has_its_constants(tmp_path: Path) -> None:
    need_zig()
    trainer = tuned()
    made = trainer.export(tmp_path / "any", "x86-64", "any", batch_size=BATCH, fold_frozen=True)
    with Instance(made.folder) as instance:
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-5)


# ---- what it takes


def plans(trainer: Any, folds: bool) -> dict[str, Planned]:
    constants = folded_values(trainer) if folds else {}
    return plan_functions(trainer, Target("llvm"), BATCH, {}, ("step", "predict"), constants)


def roots(planned: Planned) -> list[str]:
    """The kernels that compute square roots."""
    found = []
    for name, kernel in planned.kernels.items():
        calls = {n.name for n in walk(kernel.body) if isinstance(n, Call)}
        found += [name] if calls & {"sqrt", "rsqrt"} else []
    return found


def test_no_batch_norm_is_left() -> None:
    trainer = tuned()
    plain, folded = plans(trainer, False), plans(trainer, True)
    assert len(roots(plain["predict"])) == 2 and not roots(folded["predict"])
    assert len(roots(plain["step"])) == len(roots(folded["step"])) + 2  # those that are left are Adam's
    assert len(folded["step"].kernels) == len(plain["step"].kernels) - 2
    first, pool, second, head = folded["predict"].kernels
    assert first.startswith("fused_conv2d_add_relu") and second.startswith("fused_conv2d_add_relu")
    assert (pool, head) == ("nn_max_pool2d", "linear")


def test_weights_lie_as_kernels_read_them() -> None:
    """No convolution copies its weight, or transforms it."""
    plain, folded = (plans(tuned(), folds)["predict"] for folds in (False, True))
    shapes = {(8, 2, 3, 3), (16, 8, 3, 3)}
    assert shapes <= {b.shape for kernel in plain.kernels.values() for b in kernel.buffers}
    assert not shapes & {b.shape for name, kernel in folded.kernels.items() if "packed" in name for b in kernel.buffers}
    assert any("packed" in name for name in folded.kernels)


@pytest.mark.parametrize("folds", [False, True])
def test_frozen_layers_cost_no_gradient_and_no_optimizer_state(folds: bool, tmp_path: Path) -> None:
    trainer = tuned()
    step = plans(trainer, folds)["step"]
    assert not [name for name in step.kernels if "conv2d_weight" in name or "conv2d_transpose" in name]
    assert sum("conv2d" in name for name in step.kernels) == 2
    manifest = exported(trainer, tmp_path, "states", fold_frozen=folds).manifest
    sizes = [t["shape"] for t in manifest["kept"] if t["kind"] == "optimizer state"]
    assert [s for s in sizes if s] == [[4, 256], [4], [4, 256], [4]]


def test_an_instance_is_smaller(tmp_path: Path) -> None:
    trainer = tuned()
    plain, folded = (exported(trainer, tmp_path, f"m{k}", fold_frozen=bool(k)) for k in range(2))
    values = {**trainer.params, **trainer.states}
    count = sum(np.asarray(values[name]).nbytes for name in FROZEN)
    assert folded.manifest["folded"] == FROZEN and plain.manifest["folded"] == []
    assert plain.manifest["constants"] == 0 and folded.manifest["constants"] > count
    head = sum(np.asarray(values[name]).nbytes for name in ("1.weight", "1.bias"))
    assert (folded.manifest["memory"]["parameters"], folded.manifest["memory"]["states"]) == (head, 0)
    assert folded.instance_bytes + count <= plain.instance_bytes
    with Instance(plain.folder) as first, Instance(folded.folder) as second:
        assert second.memory.size + count <= first.memory.size
    listed = (folded.folder / "m1.h").read_text()
    assert listed.count(", constant\n") == len(FROZEN)


# ---- values


def test_constants_are_read_and_not_set(tmp_path: Path) -> None:
    trainer = tuned()
    with Instance(exported(trainer, tmp_path, "constants", fold_frozen=True).folder) as instance:
        assert instance.number("parameter_count") == 4 * 256 + 4
        for name in FROZEN:
            np.testing.assert_array_equal(instance.get(name), np.asarray(trainer.value_of(name)))
            with pytest.raises(Refused, match=f"{name} cannot be set: it is a constant of the library") as refused:
                instance.set(name, np.asarray(trainer.value_of(name)))
            assert refused.value.status == ARGUMENT
        head = np.ones((4, 256), np.float32)
        instance.set("1.weight", head)
        np.testing.assert_array_equal(instance.get("1.weight"), head)


def test_checkpoints_of_the_device_go_on_in_python(tmp_path: Path) -> None:
    trainer, other = tuned(), tuned(seed=7)
    with Instance(exported(trainer, tmp_path, "device", fold_frozen=True).folder) as instance:
        instance.run(X, Y, epochs=2)
        instance.save(tmp_path / "device.safetensors")
        other.load(tmp_path / "device.safetensors")
        assert (other.steps, other.epochs) == (20, 2)
        before = kept(trainer_file(trainer, tmp_path))
        after = kept(tmp_path / "device.safetensors")
        changed = {key.partition(".")[2] for key in before if key.startswith("p") and before[key] != after[key]}
        assert changed == {"1.weight", "1.bias"} and before.keys() == after.keys()
        for name, value in other.state_dict().items():
            np.testing.assert_array_equal(instance.get(name), np.asarray(value))
        expected = other.fit(X, Y, epochs=1, batch_size=BATCH, verbose=0)["loss"][0]
        assert instance.run(X, Y, epochs=1).loss == pytest.approx(expected, rel=1e-5)


def trainer_file(trainer: Any, folder: Path) -> Path:
    trainer.save(folder / "python.safetensors")
    return folder / "python.safetensors"


def test_a_newer_head_of_python_goes_on_on_the_device(tmp_path: Path) -> None:
    trainer = tuned()
    with Instance(exported(trainer, tmp_path, "newer", fold_frozen=True).folder) as instance:
        trainer.fit(X, Y, epochs=2, batch_size=BATCH, verbose=0)
        instance.load(trainer_file(trainer, tmp_path))
        np.testing.assert_array_equal(instance.get("1.weight"), np.asarray(trainer.params["1.weight"]))
        assert instance.number("steps") == 20
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-5)


def test_other_frozen_values_are_refused(tmp_path: Path) -> None:
    """A body that was trained on, or a running mean that differs in its last bit."""
    trainer = tuned()
    with Instance(exported(trainer, tmp_path, "refuses", fold_frozen=True).folder) as instance:
        instance.step(*batches([X, Y])[0])
        instance.save(tmp_path / "before.safetensors")
        for name in ("0.4.weight", "0.5.running_mean"):
            values = {n: np.asarray(v).copy() for n, v in trainer.state_dict().items()}
            values[name].reshape(-1)[-1] = np.nextafter(values[name].reshape(-1)[-1], np.float32(9))
            other = tuned()
            other.load_state_dict(values)
            with pytest.raises(Refused, match=f"{name} has other values in the checkpoint") as refused:
                instance.load(trainer_file(other, tmp_path))
            assert refused.value.status == CHECKPOINT and "export it again" in refused.value.message
        instance.save(tmp_path / "after.safetensors")
        assert kept(tmp_path / "after.safetensors") == kept(tmp_path / "before.safetensors")


def test_libraries_that_fold_and_those_that_do_not_read_the_same_files(tmp_path: Path) -> None:
    trainer = tuned()
    made = [exported(trainer, tmp_path, f"f{k}", fold_frozen=bool(k)).folder for k in range(2)]
    with Instance(made[0]) as plain, Instance(made[1]) as folded:
        for writer, reader in ((plain, folded), (folded, plain)):
            steps(writer)
            writer.save(tmp_path / "file.safetensors")
            reader.load(tmp_path / "file.safetensors")
            reader.save(tmp_path / "again.safetensors")
            assert (tmp_path / "file.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_without_embedded_weights_the_head_comes_from_a_file(tmp_path: Path) -> None:
    trainer = tuned()
    made = exported(trainer, tmp_path, "bare", fold_frozen=True, embed=False)
    with Instance(made.folder) as instance:
        with pytest.raises(Refused, match="there are no values yet"):
            instance.step(*batches([X, Y])[0])
        instance.load(made.folder / "bare.safetensors")
        np.testing.assert_allclose(steps(instance), steps(trainer), rtol=1e-5)


# ---- how it is asked for


def test_nothing_to_fold_is_an_error(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(8, 4))
    trainer = pullback.trainer(net, "mse", "adam", example=np.zeros((4, 8), np.float32))
    with pytest.raises(UserError, match="there is nothing to fold") as refused:
        exported(trainer, tmp_path, "nothing", fold_frozen=True)
    assert "freeze" in str(refused.value.hint) and not (tmp_path / "nothing").exists()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(
        "import numpy as np, pullback\nfrom pullback import nn\n\n\ndef make():\n"
        "    net = nn.Sequential(nn.Linear(8, 8).freeze(), nn.ReLU(), nn.Linear(8, 4))\n"
        "    x, y = np.zeros((16, 8), 'float32'), np.zeros(16, 'int64')\n"
        "    return pullback.trainer(net, 'cross_entropy', 'sgd', example=x), x, y\n"
    )
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["build", "net.py:make", "--name", "tuned", "--out", "made", "--fold-frozen"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "made" / "manifest.json").read_text())["folded"] == ["0.weight", "0.bias"]
