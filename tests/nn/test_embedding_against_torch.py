"""Tables of vectors and distances beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn import functional as F
from tests.nn.twins import assert_same_start, assert_twins

source = np.random.default_rng(0)
INDICES = source.integers(0, 7, (3, 4))
LINE = source.integers(0, 7, 9)


@pytest.mark.parametrize(
    ("args", "indices"),
    [((7, 5), INDICES), ((7, 2, 3), LINE), ((7, 1, -4), INDICES.astype("int32")), ((7, 3), np.array(6))],
)
def test_embedding(args, indices):
    assert_twins(nn.Embedding(*args), torch.nn.Embedding(*args), indices, target="llvm")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_bags(mode, padding):
    """Of one size, and with offsets, also of empty bags and such that hold padding alone."""
    options = {"mode": mode, "padding_idx": padding}
    make = lambda **more: (nn.EmbeddingBag(7, 3, **options, **more), torch.nn.EmbeddingBag(7, 3, **options, **more))  # noqa: E731
    rows = np.array([[0, 2, 5, 1], [2, 2, 2, 2], [6, 4, 3, 0], [6, 6, 6, 6]])
    assert_twins(*make(), rows)
    assert_twins(*make(), np.array([0, 2, 5, 1, 2, 6, 4, 3]), np.array([0, 4, 5, 5, 6]))
    assert_twins(*make(include_last_offset=True), np.array([0, 2, 5, 1, 2, 6]), np.array([0, 2, 4, 6]))


@pytest.mark.parametrize("padding", [None, 2])
def test_bags_with_weights(padding):
    options = {"mode": "sum", "padding_idx": padding}

    class Bag(nn.Module):
        def __init__(self):
            self.bag = nn.EmbeddingBag(7, 3, **options)

        def forward(self, indices, *rest):
            return self.bag(indices, None if len(rest) == 1 else rest[0], rest[-1])

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(7, 3, **options)

        forward = Bag.forward

    assert_twins(Bag(), Theirs(), INDICES, (3, 4))
    assert_twins(Bag(), Theirs(), LINE, np.array([0, 3, 4]), (9,))


def test_bags_compiled():
    assert_twins(nn.EmbeddingBag(7, 3), torch.nn.EmbeddingBag(7, 3), LINE, np.array([0, 2, 2]), target="llvm")
    options = {"mode": "max", "padding_idx": 0}
    assert_twins(nn.EmbeddingBag(7, 3, **options), torch.nn.EmbeddingBag(7, 3, **options), INDICES, target="llvm")


def test_initial_values():
    assert_same_start(lambda: nn.Embedding(30, 20), lambda: torch.nn.Embedding(30, 20))
    assert_same_start(lambda: nn.Embedding(30, 20, 4), lambda: torch.nn.Embedding(30, 20, 4))
    assert_same_start(lambda: nn.EmbeddingBag(30, 20), lambda: torch.nn.EmbeddingBag(30, 20))
    for layer in nn.Embedding(5, 3, 1), nn.Embedding(5, 3, -4), nn.EmbeddingBag(5, 3, padding_idx=1):
        values = layer.init_parameters(3).weight.numpy()
        assert (values[1] == 0).all()
        assert (values[[0, 2, 3, 4]] != 0).all()


def test_padding_stays():
    """In training too."""
    net = nn.Sequential(nn.Embedding(5, 3, 0), nn.Lambda(lambda x: x.sum(axis=1)))
    x = np.array([[0, 1, 2], [3, 4, 0]])
    trainer = pullback.trainer(net, "mse", pullback.optim.SGD(0.5), example=x)
    before = trainer.state_dict()["0.weight"].numpy()
    trainer.update(x, np.ones((2, 3), "float32"))
    after = trainer.state_dict()["0.weight"].numpy()
    assert (after[0] == 0).all()
    assert (after[1:] != before[1:]).all()
    with pytest.raises(UserError, match="index"):
        trainer.predict(np.array([[0, 1, 5]]))


def test_from_pretrained():
    values = source.normal(size=(6, 4)).astype("float32")
    for cls in nn.Embedding, nn.EmbeddingBag:
        layer = cls.from_pretrained(values)
        np.testing.assert_array_equal(layer.weight.numpy(), values)
        assert not layer.weight.requires_grad
        assert cls.from_pretrained(torch.tensor(values), freeze=False, padding_idx=2).weight.requires_grad
    rows = np.array([[1, 2], [5, 0]])
    np.testing.assert_array_equal(nn.Embedding.from_pretrained(values)(rows).numpy(), values[rows])
    np.testing.assert_allclose(
        nn.EmbeddingBag.from_pretrained(values, mode="max")(rows).numpy(), values[rows].max(1), rtol=1e-6
    )
    with pytest.raises(ShapeError, match=r"embeddings must have the shape \(rows, size\), got \(4,\)"):
        nn.Embedding.from_pretrained(values[0])


@pytest.mark.parametrize(("args", "shape"), [((), (3, 4)), ((2,), (2, 3, 4)), ((0, 1e-3), (3, 4))])
def test_cosine_similarity(args, shape):
    assert_twins(nn.CosineSimilarity(*args), torch.nn.CosineSimilarity(*args), shape, shape)


@pytest.mark.parametrize(
    ("args", "shapes"),
    [((), [(3, 4), (3, 4)]), ((1.0, 1e-3, True), [(2, 3, 4), (1, 4)]), ((3.5,), [(4,), (4,)]), ((2,), [(3, 4), (4,)])],
)
def test_pairwise_distance(args, shapes):
    assert_twins(nn.PairwiseDistance(*args), torch.nn.PairwiseDistance(*args), *shapes)


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, float("inf")])
def test_cdist(p):
    class Theirs(torch.nn.Module):
        def forward(self, a, b):
            return torch.cdist(a, b, p)

    assert_twins(nn.Lambda(lambda a, b: F.cdist(a, b, p)), Theirs(), (2, 3, 4), (2, 5, 4), tolerance=1e-7)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Embedding(5, 3, max_norm=1.0), ArgumentError, "max_norm is not supported"),
        (lambda: nn.Embedding(5, 3, scale_grad_by_freq=True), ArgumentError, "scale_grad_by_freq is not supported"),
        (lambda: nn.Embedding(5, 3, 5), ArgumentError, "padding_idx must be one of the 5 rows, got 5"),
        (lambda: nn.Embedding(-5, 3), ArgumentError, "a size must be an int ≥ 0"),
        (
            lambda: nn.Embedding(5, 3, _weight=np.zeros((5, 4))),
            ShapeError,
            r"must have the shape \(5, 3\), got \(5, 4\)",
        ),
        (lambda: nn.EmbeddingBag(5, 3, mode="prod"), ArgumentError, "mode must be one of sum, mean, max, got 'prod'"),
        (lambda: nn.EmbeddingBag(5, 3)(np.zeros(4, "int64")), ShapeError, r"takes \(bags, N\), or \(N,\) with offsets"),
        (lambda: nn.EmbeddingBag(5, 3)(INDICES, LINE), ShapeError, r"takes \(N,\) with offsets, got 2 axes"),
        (
            lambda: nn.EmbeddingBag(5, 3)(LINE, np.zeros(1, "int64"), np.ones(9)),
            ArgumentError,
            'per_sample_weights are for mode "sum"',
        ),
        (lambda: nn.Embedding(5, 3)(np.zeros((2, 2), "float32")), UserError, "indices"),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
