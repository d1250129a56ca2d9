"""Models with batch norm beside PyTorch: losses, moving statistics, inference and evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback.relax import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.make import make_trainer
from pullback.relax.training.optimizer import SGD, Adam
from tests.relax.training.test_batch_norm import BATCH, CLASSES, HIDDEN, INPUTS, STATES, data, model


def pytorch(trainer: Trainer) -> torch.nn.Sequential:
    """The same model in PyTorch, with the trainer's parameters."""
    layers = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN, bias=False),
        torch.nn.BatchNorm1d(HIDDEN),
        torch.nn.ReLU(),
        torch.nn.BatchNorm1d(HIDDEN, momentum=0.3),
        torch.nn.Linear(HIDDEN, CLASSES),
    ).double()
    params = {name: torch.tensor(np.array(value)) for name, value in trainer.params.items()}
    order = ("w0", "gamma0", "beta0", "gamma1", "beta1", "w1", "b")
    with torch.no_grad():
        for parameter, name in zip(layers.parameters(), order, strict=True):
            parameter.copy_(params[name].T if params[name].ndim > 1 else params[name])
    return layers


@pytest.mark.parametrize(("target", "legalize"), [("llvm", False), ("llvm", True), ("debug", False)])
def test_ten_steps_and_inference_as_in_pytorch(target: str, legalize: bool) -> None:
    x, y = data()
    infos = [TensorStructInfo((BATCH, CLASSES), "float64"), TensorStructInfo((BATCH,), "int64")]
    module = SetupTrainer(CrossEntropyLoss(), Adam(0.05), infos, legalize)(model())
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, target), pullback.cpu()))
    trainer.xavier_uniform_init_params(seed=1)
    trainer.init_states()
    layers = pytorch(trainer)
    optimizer = torch.optim.Adam(layers.parameters(), 0.05)
    inputs, labels = torch.tensor(x), torch.tensor(y)
    for _ in range(10):
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(layers(inputs), labels)
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(trainer.update(x, y).item(), expected.item(), rtol=1e-9)
    moving = [s for layer in (layers[1], layers[3]) for s in (layer.running_mean, layer.running_var)]
    for name, value in zip(STATES, moving, strict=True):
        np.testing.assert_allclose(trainer.states[name].numpy(), value.numpy(), rtol=1e-9)
    before = {name: value.numpy() for name, value in trainer.states.items()}
    prediction = trainer.predict(x)
    np.testing.assert_allclose(prediction.numpy(), layers.eval()(inputs).detach().numpy(), rtol=1e-8, atol=1e-12)
    for name, value in trainer.states.items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_evaluation_takes_the_moving_statistics() -> None:
    x, y = data(25)  # two batches, and five rows left
    trainer = make_trainer(model(), CrossEntropyLoss(), SGD(0.1), seed=3)
    trainer.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    layers = pytorch(trainer).eval()
    for layer, names in ((layers[1], STATES[:2]), (layers[3], STATES[2:])):
        for buffer, name in zip((layer.running_mean, layer.running_var), names, strict=True):
            buffer.copy_(torch.tensor(np.array(trainer.states[name])))
    expected = torch.nn.functional.cross_entropy(layers(torch.tensor(x)), torch.tensor(y)).item()
    result = trainer.evaluate(x, y)
    np.testing.assert_allclose(result.loss, expected, rtol=1e-9)
