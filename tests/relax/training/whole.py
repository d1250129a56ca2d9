"""A convolutional network with all that a training may have: batch norm, dropout, a frozen filter, groups, warm-up then
cosine, clipping, accumulation, averages. Its ten losses are pinned as PyTorch computes them."""

from __future__ import annotations

import numpy as np

import pullback
from pullback.relax.training import Trainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.lr_schedule import CosineAnnealingLR, LinearLR, SequentialLR
from pullback.relax.training.optimizer import EMA, Accumulate, AdamW, ClipByGlobalNorm, ParameterGroups
from pullback.script import ir as I
from pullback.script import relax as R

SEED, P, STEPS, EVERY, DECAY, NORM, RATE = 21, 0.25, 10, 2, 0.6, 0.5, 0.1

LOSSES = [  # of PyTorch 2.13: test_whole_against_torch.py
    4.951323494674578, 5.553942601586897, 6.246092218062849, 2.892333868249126, 4.494066310484886,
    4.193361811555888, 7.010126528058812, 14.211987320823333, 8.602477327715357, 4.162778580191003,
]  # fmt: skip
AVERAGED_LOSS = 3.6336913653657312  # of the last batch, by the averages and the moving statistics, after the ten steps


@I.ir_module
class Network:
    I.module_attrs({"param_num": 5, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor((6, 3, 8, 8), "float64"), stem: R.Tensor((4, 3, 1, 1), "float64"),
        w: R.Tensor((8, 4, 3, 3), "float64"), gamma: R.Tensor((8,), "float64"), beta: R.Tensor((8,), "float64"),
        v: R.Tensor((128, 5), "float64"), mean: R.Tensor((8,), "float64"), variance: R.Tensor((8,), "float64"),
    ):  # fmt: skip
        with R.dataflow():
            h = R.nn.conv2d(R.nn.conv2d(x, stem), w, padding=1)
            n = R.nn.batch_norm(h, gamma, beta, mean, variance)
            pooled = R.nn.max_pool2d(R.nn.relu(n[0]), (2, 2), (2, 2))
            out = R.matmul(R.reshape(R.dropout(pooled, P), (6, 128)), v)
            new_mean = n[1]
            new_variance = n[2]
            R.output(out, new_mean, new_variance)
        return (out, new_mean, new_variance)


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(5)
    return [(generator.standard_normal((6, 3, 8, 8)), generator.integers(0, 5, 6)) for _ in range(STEPS)]


def trainer_of(target: str) -> Trainer:
    rate = SequentialLR([LinearLR(RATE, 0.1, 1.0, 2), CosineAnnealingLR(RATE, 4)], [2])
    rules = {"stem": {"frozen": True}, "?*a": {"weight_decay": 0.0, "lr": RATE / 2}}
    clipped = ClipByGlobalNorm(ParameterGroups(AdamW(rate, weight_decay=0.1), rules), NORM)
    optimizer = Accumulate(EMA(clipped, DECAY), EVERY)
    trainer = pullback.trainer(Network, CrossEntropyLoss(), optimizer, seed=SEED, target=target)
    generator = np.random.default_rng(6)
    values = {name: value.numpy() for name, value in trainer.params.items() if value.ndim > 1}
    trainer.load_params({name: 0.3 * generator.standard_normal(value.shape) for name, value in values.items()})
    return trainer
