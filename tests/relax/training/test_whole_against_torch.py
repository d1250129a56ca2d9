"""PyTorch's losses of the network in whole.py: those that are pinned."""

from __future__ import annotations

import numpy as np
import torch

from pullback.relax.op.random.draw import STEPS as STEPS_OF_A_SITE
from pullback.te.random import bits_array
from tests.relax.training.whole import AVERAGED_LOSS, DECAY, EVERY, LOSSES, NORM, RATE, SEED, P, batches, trainer_of

functional, schedulers, swa = torch.nn.functional, torch.optim.lr_scheduler, torch.optim.swa_utils


class Network(torch.nn.Module):
    def __init__(self, values: dict[str, np.ndarray]) -> None:
        super().__init__()
        for name, value in values.items():
            setattr(self, name, torch.nn.Parameter(torch.tensor(value)))
        self.register_buffer("mean", torch.zeros(8, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(8, dtype=torch.float64))
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.conv2d(functional.conv2d(x, self.stem), self.w, padding=1)
        h = functional.batch_norm(h, self.mean, self.variance, self.gamma, self.beta, self.training, 0.1)
        h = functional.max_pool2d(torch.relu(h), 2)
        if self.training:  # what our dropout draws
            drawn = bits_array(np.array([SEED, self.step], np.uint64), h.shape)
            assert self.step < STEPS_OF_A_SITE
            h = h * torch.tensor((drawn < (1 - P) * 2**32) / (1 - P))
        return h.reshape(6, 128) @ self.v


def test_losses_are_those_that_are_pinned() -> None:
    trainer = trainer_of("llvm")
    model = Network({name: value.numpy() for name, value in trainer.params.items()})
    model.stem.requires_grad_(False)
    groups = [
        {"params": [model.w, model.v], "lr": RATE},
        {"params": [model.gamma, model.beta], "lr": RATE / 2, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.1)
    warm, cosine = schedulers.LinearLR(optimizer, 0.1, 1.0, 2), schedulers.CosineAnnealingLR(optimizer, 4)
    scheduler = schedulers.SequentialLR(optimizer, [warm, cosine], [2])
    averages = swa.AveragedModel(model, avg_fn=swa.get_ema_avg_fn(DECAY))
    found, pairs = [], [(torch.tensor(x), torch.tensor(y)) for x, y in batches()]
    for model.step, (x, y) in enumerate(pairs):
        loss = functional.cross_entropy(model(x), y)
        found.append(loss.item())
        (loss / EVERY).backward()
        if (model.step + 1) % EVERY == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
            optimizer.param_groups[1]["lr"] = RATE / 2  # this group has a rate of its own
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            averages.update_parameters(model)
    np.testing.assert_allclose(found, LOSSES, rtol=1e-9)
    averaged = averages.module.eval()
    averaged.mean.copy_(model.mean)
    averaged.variance.copy_(model.variance)
    np.testing.assert_allclose(functional.cross_entropy(averaged(pairs[-1][0]), pairs[-1][1]).item(), AVERAGED_LOSS)
