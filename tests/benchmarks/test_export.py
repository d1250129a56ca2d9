"""Peers of exported libraries: options, what a missing package says, which losses fail a side. No peer is needed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import export, report
from benchmarks.__main__ import app
from benchmarks.harness import Measurement, Side, measure
from benchmarks.models import MODELS
from benchmarks.workers import export_litert, export_ort, protocol

LOSSES = [4.0, 3.0, 2.0]
ABSENT = ("pullback-no-such-package==1.0", "numpy==2.0")


def measurement(losses: list[float], **about: object) -> Measurement:
    side = Side("mlp litert", "worker")
    return Measurement(
        side, about=about, results={"step": losses}, rounds={"step": [2e-3, 4e-3]}, quick={"step": [1e-3]}
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "litert,tflite"], "no peer 'tflite'; there are litert, ort-training"),
        (["--models", "resnet20"], "no model 'resnet20'; there are mlp, lenet"),
        (["--peers", "litert", "--peer-python", f"ort-training={sys.executable}"], "none of --peers 'litert'"),
        (["--peers", "litert", "--peer-python", "litert=/no/such/python"], "there is no such program"),
    ],
)
def test_options_that_name_nothing_are_refused(arguments, message):
    result = CliRunner().invoke(app, ["export", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_options_reach_the_sides(monkeypatch):
    found = []
    monkeypatch.setattr(export, "run", lambda *arguments: found.append(arguments) or True)
    peers = ["--peers", "litert,ort-training", "--peer-python", f"litert={sys.executable}"]
    result = CliRunner().invoke(app, ["export", "--models", "mlp", "--threads", "1", *peers])
    assert result.exit_code == 0, result.output
    ((models, _, _, threads, _, names, pythons),) = found
    assert (models, threads, names, pythons) == (["mlp"], 1, ["litert", "ort-training"], {"litert": sys.executable})


def test_a_peer_has_its_own_python():
    library, litert, ort = export.sides_beside("mlp", ["litert", "ort-training"], {"litert": "/its/python"}, 2)
    assert (library.worker, library.arguments, library.python) == ("export_pullback", ("mlp", "step"), sys.executable)
    assert (litert.worker, litert.python) == ("export_litert", "/its/python")
    assert (ort.worker, ort.python, ort.threads) == ("export_ort", sys.executable, 2)
    assert export.sides_beside("mlp", [], {}, 2) == []


@pytest.mark.parametrize("worker", [export_litert, export_ort])
def test_a_missing_package_says_what_to_install(worker, monkeypatch):
    monkeypatch.setattr(worker, "PACKAGES", ABSENT)
    with pytest.raises(ImportError, match=r"lacks pullback-no-such-package: pip install pullback-no-such-package==1.0"):
        worker.load()
    protocol.need("numpy==1.0")  # any version will do: the table's JSON says which one it was


def test_losses_that_differ_fail_the_peer():
    library = measurement(LOSSES)
    near = measurement([loss * (1 + 5e-5) for loss in LOSSES], **{"same optimizer": True})
    assert export.losses_agree(near, library) and near.failure is None
    far = measurement([4.0, 3.0, 2.001], **{"same optimizer": True})
    assert not export.losses_agree(far, library)
    assert far.failure == "its loss of step 3 is 2.001, the library's is 2"


def test_another_optimizer_has_the_same_first_loss():
    library = measurement(LOSSES)
    assert export.losses_agree(measurement([4.0, 9.0, 9.0], **{"same optimizer": False}), library)
    assert not export.losses_agree(measurement([4.1, 3.0, 2.0], **{"same optimizer": False}), library)


def test_rows_of_peers():
    about = {"optimizer": "sgd", "library bytes": 3 << 20, "model bytes": 2048}
    library = measurement(LOSSES)
    library.rounds["step"] = [1e-3, 1e-3]
    row = export.row_beside(measurement(LOSSES, **about), library)
    assert row == ["mlp litert", "sgd", "3 ms", "1 ms", "3.00", "3.0 MiB", "2 KiB", ""]
    failed = Measurement(
        Side("lenet litert", "worker"), failure="NotImplementedError: LiteRT has no kernel of MaxPoolGrad"
    )
    assert export.row_beside(failed, library)[1] == "LiteRT has no kernel of MaxPoolGrad"
    assert len(export.row_beside(failed, library)) == len(export.COLUMNS)


def test_sizes():
    assert [report.size(count) for count in (512, 204_800, 1 << 20, 21_249_000)] == [
        "0 KiB",
        "200 KiB",
        "1.0 MiB",
        "20.3 MiB",
    ]


def test_a_step_of_the_library_is_the_trainers():
    """What the peers' losses are compared with, against NumPy; and the sizes that are shown beside theirs."""
    (found,) = measure([Side("library", "export_pullback", ("mlp", "step"), threads=1)], 1, 0.01)
    assert found.failure is None
    np.testing.assert_allclose(found.results["step"], mlp_losses(len(found.results["step"])), rtol=1e-5)
    weights = sum(array.nbytes for array in MODELS["mlp"].parameters().values())
    assert found.about["whole bytes"] - found.about["library bytes"] == pytest.approx(weights, abs=8192)
    assert found.about["model bytes"] > weights


def mlp_losses(count: int) -> list[float]:
    """Losses of the benchmark's perceptron, trained by hand in float64."""
    model = MODELS["mlp"]
    x, labels = model.data()
    weights = [p.astype(np.float64) for name, p in model.parameters().items() if name.endswith("weight")]
    biases = [p.astype(np.float64) for name, p in model.parameters().items() if name.endswith("bias")]
    rate, decay, losses = model.optimizer.learning_rate, model.optimizer.weight_decay, []
    for _ in range(count):
        inputs = [x.astype(np.float64)]
        for w, b in zip(weights, biases, strict=True):
            inputs.append(inputs[-1] @ w + b if len(inputs) == len(weights) else np.maximum(inputs[-1] @ w + b, 0))
        logits = inputs.pop()
        shifted = logits - logits.max(1, keepdims=True)
        chances = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        losses.append(-np.log(chances[np.arange(len(labels)), labels]).sum())
        gradient = chances - np.eye(chances.shape[1])[labels]
        for layer in reversed(range(len(weights))):
            below = (gradient @ weights[layer].T) * (inputs[layer] > 0)
            for values, g in ((weights, inputs[layer].T @ gradient), (biases, gradient.sum(0))):
                values[layer] = values[layer] - rate * (g + decay * values[layer])
            gradient = below
    return losses
