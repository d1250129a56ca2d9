"""Norms beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, NoAttribute, ShapeError
from pullback.nn import functional as F
from tests.nn.twins import assert_same_start, assert_twins

IMAGES, VOLUMES = (3, 4, 5, 2), (2, 4, 3, 2, 2)


def _moved(theirs):
    """With statistics and parameters unlike those at first."""
    for number, value in enumerate([*theirs.parameters(), *theirs.buffers()]):
        if value.is_floating_point():
            value.data = torch.rand(value.shape, generator=torch.Generator().manual_seed(number)) + 0.5
        else:
            value.data = torch.tensor(3)
    return theirs


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("BatchNorm1d", {}, (5, 4)),
        ("BatchNorm1d", {"momentum": 0.3, "eps": 1e-3}, (3, 4, 5)),
        ("BatchNorm1d", {"momentum": None}, (3, 4, 2)),
        ("BatchNorm2d", {}, IMAGES),
        ("BatchNorm2d", {"affine": False}, IMAGES),
        ("BatchNorm2d", {"track_running_stats": False}, IMAGES),
        ("BatchNorm2d", {"momentum": None, "affine": False}, IMAGES),
        ("BatchNorm3d", {}, VOLUMES),
        ("BatchNorm3d", {"affine": False, "track_running_stats": False}, VOLUMES),
        ("BatchNorm3d", {"momentum": 1}, VOLUMES),
        ("InstanceNorm1d", {}, (3, 4, 5)),
        ("InstanceNorm1d", {"affine": True}, (4, 5)),
        ("InstanceNorm1d", {"track_running_stats": True}, (3, 4, 5)),
        ("InstanceNorm2d", {"affine": True, "track_running_stats": True, "momentum": 0.3}, IMAGES),
        ("InstanceNorm2d", {"eps": 1e-2}, (4, 5, 3)),
        ("InstanceNorm2d", {"track_running_stats": True}, (4, 5, 3)),
        ("InstanceNorm3d", {}, VOLUMES),
        ("InstanceNorm3d", {"affine": True, "track_running_stats": True}, VOLUMES),
        ("InstanceNorm3d", {"affine": True}, VOLUMES[1:]),
    ],
)
def test_statistics(name, options, shape):
    features = 4
    assert_twins(getattr(nn, name)(features, **options), _moved(getattr(torch.nn, name)(features, **options)), shape)


@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [
        ("LayerNorm", (5,), (2, 3, 5)),
        ("LayerNorm", ([3, 5], 1e-2), (2, 3, 5)),
        ("LayerNorm", ((3, 5), 1e-5, False), (2, 3, 5)),
        ("LayerNorm", (5, 1e-5, True, False), (4, 5)),
        ("RMSNorm", (5,), (2, 3, 5)),
        ("RMSNorm", ((3, 5), 1e-2), (2, 3, 5)),
        ("RMSNorm", ([5], 1e-2, False), (2, 3, 5)),
        ("GroupNorm", (2, 6), (3, 6, 4)),
        ("GroupNorm", (3, 6, 1e-2), (3, 6)),
        ("GroupNorm", (6, 6, 1e-5, False), (2, 6, 3, 2)),
        ("LocalResponseNorm", (2,), (2, 5, 3)),
        ("LocalResponseNorm", (5, 0.1, 0.5, 2.0), (2, 4, 3, 2)),
        ("LocalResponseNorm", (3, 1.0), (1, 4, 3, 2, 2)),
    ],
)
def test_norm(name, args, shape):
    assert_twins(getattr(nn, name)(*args), _moved(getattr(torch.nn, name)(*args)), shape)


def test_compiled():
    several = lambda nn: nn.Sequential(  # noqa: E731
        nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True), nn.GroupNorm(2, 4),
        nn.LocalResponseNorm(3, 0.1), nn.BatchNorm2d(4, momentum=None), nn.LayerNorm(6), nn.RMSNorm([5, 6], 1e-3),
    )  # fmt: skip
    assert_twins(several(nn), several(torch.nn), (3, 4, 5, 6), target="llvm", tolerance=1e-8)


def test_initial_values():
    assert_same_start(lambda: nn.BatchNorm2d(40), lambda: torch.nn.BatchNorm2d(40))
    assert_same_start(
        lambda: nn.InstanceNorm1d(40, affine=True, track_running_stats=True),
        lambda: torch.nn.InstanceNorm1d(40, affine=True, track_running_stats=True),
    )
    assert_same_start(lambda: nn.LayerNorm((4, 5)), lambda: torch.nn.LayerNorm((4, 5)))
    assert_same_start(lambda: nn.GroupNorm(2, 40), lambda: torch.nn.GroupNorm(2, 40))
    assert_same_start(lambda: nn.RMSNorm(40), lambda: torch.nn.RMSNorm(40))


class _Call(nn.Module):
    def __init__(self, function):
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.normalize(x),
        lambda F, x: F.normalize(x, p=1, dim=-1),
        lambda F, x: F.normalize(x, p=3.0, dim=(1, 2), eps=1e-2),
        lambda F, x: F.layer_norm(x, [4]) + F.rms_norm(x, (3, 4)) + F.group_norm(x, 3) + F.instance_norm(x, eps=0.1),
        lambda F, x: F.batch_norm(x, None, None, training=True),
    ],
)
def test_functions(call):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    found = _Call(lambda x: call(F, x))(x)
    np.testing.assert_allclose(found.numpy(), call(torch.nn.functional, torch.tensor(x)).numpy(), rtol=1e-9, atol=1e-12)


def test_normalize_of_zeros():
    x = np.zeros((2, 3))
    np.testing.assert_array_equal(_Call(F.normalize)(x).numpy(), x)


def test_running_statistics_of_a_function():
    """As in PyTorch, F.batch_norm changes the buffers that it is given."""

    class Ours(nn.Module):
        def __init__(self):
            self.mean, self.var = nn.Buffer((3,)), nn.Buffer((3,), init="ones")
            self.weight = nn.Parameter((3,), init="ones")

        def forward(self, x):
            y = F.batch_norm(x, self.mean, self.var, self.weight, training=True, momentum=0.2)
            return F.batch_norm(y, self.mean, self.var) + self.mean  # what they are by now

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("var", torch.ones(3))
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            batch_norm = torch.nn.functional.batch_norm
            y = batch_norm(x, self.mean, self.var, self.weight, training=self.training, momentum=0.2)
            mean, var = self.mean.clone(), self.var.clone()  # PyTorch's gradient ends at statistics
            return batch_norm(y, mean, var) + mean

    assert_twins(Ours(), Theirs(), (4, 3), training=False)
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    ours, theirs = Ours(), Theirs()
    trainer = pullback.trainer(ours, "mse", pullback.optim.SGD(0.0), example=x)
    trainer.update(x, x)
    theirs(torch.tensor(x))
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(trainer.state_dict()[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


def test_batches_are_counted_in_steps_only():
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    net = nn.BatchNorm1d(3, momentum=None)
    trainer = pullback.trainer(net, "mse", "sgd", example=x)
    before = trainer.predict(x).numpy()
    np.testing.assert_allclose(before, x, rtol=1e-4)  # the running statistics are 0 and 1
    trainer.evaluate(x, x)
    assert net.num_batches_tracked.numpy() == 0
    for _ in range(3):
        trainer.update(x, x)
    assert net.num_batches_tracked.numpy() == 3
    np.testing.assert_allclose(net.running_mean.numpy(), x.mean(0), rtol=1e-4, atol=1e-6)
    state = trainer.state_dict()
    expected = trainer.predict(x).numpy()
    trainer.load_state_dict(state | {"num_batches_tracked": np.int64(77)})
    np.testing.assert_array_equal(trainer.predict(x).numpy(), expected)
    assert net.num_batches_tracked.numpy() == 77
    assert {n: v.numpy().tolist() for n, v in trainer.state_dict().items() if n != "num_batches_tracked"} == {
        n: v.numpy().tolist() for n, v in state.items() if n != "num_batches_tracked"
    }


@pytest.mark.parametrize(
    ("make", "shape", "error", "message"),
    [
        (lambda: nn.BatchNorm2d(4), (2, 4), ShapeError, r"BatchNorm2d takes \(N, C, H, W\), got 2 axes"),
        (lambda: nn.BatchNorm1d(4), (2, 3), ShapeError, "BatchNorm1d of 4 channels is given 3"),
        (lambda: nn.InstanceNorm1d(4), (2, 3, 5), ShapeError, "InstanceNorm1d of 4 channels is given 3"),
        (lambda: nn.InstanceNorm2d(3), (2, 3, 1, 1), ShapeError, "more than one value for each channel"),
        (lambda: nn.LayerNorm(4), (2, 3), ShapeError, r"layer_norm: the last axes must have the sizes \(4,\)"),
        (lambda: nn.RMSNorm((2, 3)), (3,), ShapeError, "rms_norm: the last axes must have the sizes"),
        (lambda: nn.GroupNorm(4, 6), (2, 6), ArgumentError, "num_groups must divide num_channels, got 4 and 6"),
        (lambda: nn.LocalResponseNorm(0), (2, 3, 4), ArgumentError, "size must be an int ≥ 1, got 0"),
        (lambda: nn.BatchNorm1d("4"), (2, 3), ArgumentError, "a size must be an int"),
        (lambda: _Call(lambda x: F.batch_norm(x, None, None)), (2, 3), ArgumentError, "needs running_mean"),
        (
            lambda: _Call(lambda x: F.batch_norm(x, x[0], x[0], training=True)),
            (2, 3),
            ArgumentError,
            "must be a buffer",
        ),
        (lambda: nn.SyncBatchNorm(4), (2, 4), NoAttribute, "did you mean BatchNorm2d"),
    ],
)
def test_bad_arguments(make, shape, error, message):
    with pytest.raises(error, match=message):
        make()(np.zeros(shape, "float32"))
