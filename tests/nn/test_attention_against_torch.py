"""Attention beside PyTorch's: functions, projections, masks of every kind, weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F
from pullback.relax import op
from pullback.target import Target
from tests.nn.twins import assert_same_start, assert_twins

RNG = np.random.default_rng(0)


class Ours(nn.Module):
    """A function, or a module, of inputs and options."""

    def __init__(self, inner: Any, **options: Any) -> None:
        self.inner, self.options = inner, options

    def forward(self, *inputs: Any) -> Any:
        result = self.inner(*inputs, **self.options)
        return tuple(r for r in result if r is not None) if isinstance(result, tuple) else result


class Theirs(torch.nn.Module):
    def __init__(self, inner: Any, **options: Any) -> None:
        super().__init__()
        self.inner = inner
        self.options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}

    forward = Ours.forward


class Named(torch.nn.Module):
    """Inputs after the first three given by name."""

    def __init__(self, inner: Any, *names: str, **options: Any) -> None:
        super().__init__()
        self.inner, self.names, self.options = inner, names, options

    def forward(self, *inputs: Any) -> Any:
        named = dict(zip(self.names, inputs[3:], strict=True))
        return tuple(r for r in self.inner(*inputs[:3], **named, **self.options) if r is not None)


class OursNamed(nn.Module):
    def __init__(self, inner: Any, *names: str, **options: Any) -> None:
        self.inner, self.names, self.options = inner, names, options

    forward = Named.forward


def causal(size: int) -> np.ndarray:
    return np.triu(np.full((size, size), -np.inf), 1)


SEEN = RNG.random((5, 6)) < 0.6
SEEN[:, 0] = True
BIAS = RNG.normal(size=(2, 3, 5, 6))


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)], {}),
        ([(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)], {"is_causal": True, "scale": 0.3}),
        ([(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)], {"attn_mask": SEEN}),
        ([(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)], {"attn_mask": BIAS}),
        ([(2, 4, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4)], {"enable_gqa": True}),
        ([(5, 4), (6, 4), (6, 4)], {"attn_mask": SEEN}),
        ([(2, 5, 4), (2, 6, 4), (2, 6, 4)], {"attn_mask": BIAS[:, 0]}),
        ([(2, 2, 3, 5, 4), (2, 2, 3, 6, 4), (2, 2, 3, 6, 4)], {"attn_mask": BIAS}),
        ([(2, 3, 5, 4)] * 3, {"attn_mask": causal(5)}),
    ],
)
def test_scaled_dot_product_attention(shapes, options):
    target = "llvm" if not options else "debug"
    ours = Ours(F.scaled_dot_product_attention, **options)
    assert_twins(ours, Theirs(torch.nn.functional.scaled_dot_product_attention, **options), *shapes, target=target)


def test_mask_is_an_input():
    call = partial(F.scaled_dot_product_attention), torch.nn.functional.scaled_dot_product_attention
    shapes = [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)]
    assert_twins(Ours(call[0]), Theirs(call[1]), *shapes, SEEN)
    assert_twins(Ours(call[0]), Theirs(call[1]), *shapes, (2, 1, 5, 6))


PAD = np.array([[False] * 6, [False, False, True, False, True, True]])


@pytest.mark.parametrize(
    ("arguments", "shapes", "options"),
    [
        ({}, [(5, 2, 8), (6, 2, 8), (6, 2, 8)], {}),
        ({"batch_first": True}, [(2, 5, 8), (2, 6, 8), (2, 6, 8)], {"average_attn_weights": False}),
        ({"bias": False, "batch_first": True}, [(2, 5, 8), (2, 6, 8), (2, 6, 8)], {"need_weights": False}),
        ({"kdim": 3, "vdim": 5}, [(5, 2, 8), (6, 2, 3), (6, 2, 5)], {"need_weights": False}),
        ({"kdim": 3, "vdim": 5, "bias": False}, [(5, 8), (6, 3), (6, 5)], {}),
        ({"add_bias_kv": True, "add_zero_attn": True}, [(5, 2, 8), (6, 2, 8), (6, 2, 8)], {"attn_mask": ~SEEN}),
        ({"add_zero_attn": True}, [(6, 2, 8)] * 3, {"attn_mask": causal(6), "key_padding_mask": PAD}),
        ({"batch_first": True}, [(2, 5, 8), (2, 6, 8), (2, 6, 8)], {"key_padding_mask": PAD, "need_weights": False}),
        ({}, [(5, 2, 8), (6, 2, 8), (6, 2, 8)], {"attn_mask": RNG.normal(size=(4, 5, 6)), "need_weights": False}),
        ({}, [(6, 8)] * 3, {"attn_mask": causal(6), "is_causal": True, "need_weights": False}),
    ],
)
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
def test_multihead_attention(arguments, shapes, options):
    ours, theirs = nn.MultiheadAttention(8, 2, **arguments), torch.nn.MultiheadAttention(8, 2, **arguments)
    target = "llvm" if arguments == {"batch_first": True} else "debug"
    assert_twins(Ours(ours, **options), Theirs(theirs, **options), *shapes, target=target)


class OursSelf(nn.Module):
    """Self-attention, or the same key and value."""

    def __init__(self, inner: Any, **options: Any) -> None:
        self.inner, self.options = inner, options

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.inner(x, x if y is None else y, x if y is None else y, **self.options)[0]


class TheirsSelf(torch.nn.Module):
    def __init__(self, inner: Any, **options: Any) -> None:
        super().__init__()
        self.inner, self.options = inner, options

    forward = OursSelf.forward


@pytest.mark.parametrize(
    ("shapes", "options"),
    [([(2, 5, 8)], {}), ([(2, 5, 8), (2, 3, 8)], {}), ([(2, 5, 8)], {"attn_mask": causal(5), "need_weights": False})],
)
def test_same_inputs_are_projected_at_once(shapes, options):
    ours, theirs = (n.MultiheadAttention(8, 2, batch_first=True) for n in (nn, torch.nn))
    in_torch = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    assert_twins(OursSelf(ours, **options), TheirsSelf(theirs, **in_torch), *shapes)
    text = str(OursSelf(ours, **options).export(*(np.ones(s, "float64") for s in shapes)))
    assert text.count("R.linear(") == len(shapes) + 1


def test_masks_are_inputs():
    shapes = [(5, 2, 8), (6, 2, 8), (6, 2, 8)]
    for masks in ((PAD, ~SEEN), (np.where(PAD, -np.inf, 0.0), (5, 6))):
        ours, theirs = nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 2)
        names = "key_padding_mask", "attn_mask"
        assert_twins(OursNamed(ours, *names), Named(theirs, *names), *shapes, *masks, training=masks[0].dtype == bool)


def test_dropout():
    """Weights are dropped in training; predictions are those without."""
    options = {"dropout": 0.5, "batch_first": True}
    ours, theirs = nn.MultiheadAttention(8, 2, **options), torch.nn.MultiheadAttention(8, 2, **options)
    assert_twins(Ours(ours), Theirs(theirs), *[(2, 5, 8)] * 3, training=False)
    ours = Ours(F.scaled_dot_product_attention, dropout_p=0.5)
    theirs = Theirs(torch.nn.functional.scaled_dot_product_attention)
    assert_twins(ours, theirs, *[(2, 3, 5, 4)] * 3, training=False)


class Projected(nn.Module):
    """Attention of grouped heads, masked and causal."""

    def __init__(self, dropout: float) -> None:
        self.q, self.kv, self.dropout = nn.Linear(8, 16), nn.Linear(8, 16), dropout
        self.attention = nn.MultiheadAttention(16, 2, dropout, batch_first=True)

    def forward(self, x: Any) -> Any:
        q = self.q(x).reshape(-1, 5, 4, 4).transpose(1, 2)
        k, v = (part.reshape(-1, 5, 2, 4).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        mask = SEEN[:, :5]
        mixed = F.scaled_dot_product_attention(q, k, v, mask, self.dropout, True, 0.4, enable_gqa=True)
        mixed = mixed.transpose(1, 2).reshape(-1, 5, 16)
        return self.attention(mixed, mixed, mixed, attn_mask=~mask, is_causal=True)[0]


def test_steps_with_dropout_compute_what_those_without_do():
    """With a probability at which nothing is dropped, so all but the dropping itself is compared."""
    x = RNG.normal(size=(3, 5, 8)).astype("float32")
    trained = []
    for dropout in (0.0, 1e-12):
        net = Projected(dropout).init_parameters(3)
        trainer = pullback.trainer(net, "mse", pullback.optim.SGD(0.5), example=x, target="debug")
        losses = [float(trainer.update(x, np.ones((3, 5, 16), "float32"))) for _ in range(3)]
        trained.append(losses)
        assert losses[2] < losses[0]
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-5)


def test_rows_that_see_nothing_give_zero():
    nothing = np.zeros((5, 6), bool)
    shapes = [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)]
    ours = Ours(F.scaled_dot_product_attention, attn_mask=nothing)
    arrays = [RNG.normal(size=s) for s in shapes]
    assert (ours(*arrays).numpy() == 0).all()
    attention = Ours(nn.MultiheadAttention(8, 2, dtype="float64"), attn_mask=~nothing)
    _, weights = attention(*[RNG.normal(size=(n, 2, 8)) for n in (5, 6, 6)])
    assert (weights.numpy() == 0).all()


def test_initial_values():
    for options in ({"add_bias_kv": True}, {"kdim": 7, "vdim": 9}, {"bias": False}):
        make = [partial(n.MultiheadAttention, 24, 4, **options) for n in (nn, torch.nn)]
        assert_same_start(*make)


class GPTBlock(nn.Module):
    """Causal attention by the module, by the function in PyTorch's axes, or by the op in its own."""

    def __init__(self, way: str) -> None:
        self.way = way
        if way == "module":
            self.attention = nn.MultiheadAttention(32, 2, batch_first=True)
        else:
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        if self.way == "module":
            return self.attention(x, x, x, attn_mask=causal(x.shape[1]))[0]
        q, k, v = (part.reshape(-1, x.shape[1], 2, 16) for part in self.qkv(x).split(32, -1))
        if self.way == "op":
            mixed = op.nn.attention(q, k, v, causal_mask="TopLeft")
        else:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out(mixed.reshape(-1, x.shape[1], 32))


def test_modules_and_functions_come_to_the_kernels_of_the_op():
    """No softmax, no transposes: a step has the kernels of a model that calls the op on what a projection gives."""
    kernels = {}
    for way in ("op", "module", "function"):
        example = np.ones((3, 16, 32), "float32")
        trainer = pullback.trainer(GPTBlock(way), "mse", "sgd", example=example, target="debug")
        kernels[way] = sorted(plan_function(prepare(trainer.mod), "__step", {"n": 3}, Target("llvm")).kernels)
    assert kernels["op"] == kernels["module"] == kernels["function"]
    assert any("attention" in name for name in kernels["op"])


def test_errors():
    x = np.ones((2, 5, 8), "float32")
    with pytest.raises(ArgumentError, match="embed_dim must be a multiple of num_heads, got 8 and 3"):
        nn.MultiheadAttention(8, 3)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    with pytest.raises(ShapeError, match=r"key must have the shape \(N, length, 8\)"):
        Ours(attention).export(x, x[..., :4], x)
    with pytest.raises(ShapeError, match=r"attn_mask must have the shape \(5, 5\)"):
        Ours(attention, attn_mask=causal(4)).export(x, x, x)
    with pytest.raises(ShapeError, match="key_padding_mask must have the shape"):
        Ours(attention, key_padding_mask=PAD).export(x, x, x)
    with pytest.raises(DTypeError, match="attn_mask must be bools or floats, got int64"):
        Ours(attention, attn_mask=np.ones((5, 5), "int64")).export(x, x, x)
    q, k = np.ones((2, 4, 5, 8), "float32"), np.ones((2, 2, 5, 8), "float32")
    with pytest.raises(ShapeError, match="query has 4 heads, key 2"):
        Ours(F.scaled_dot_product_attention).export(q, k, k)
    with pytest.raises(ShapeError, match="must have the axes"):
        Ours(F.scaled_dot_product_attention).export(q, x, x)


@pytest.mark.parametrize("heads", [1, 4, 6])
def test_alibi(heads):
    """The slopes as the paper's authors compute them, and the bias below the diagonal."""

    def slopes(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(np.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    near = 2 ** int(np.floor(np.log2(heads)))
    expected = slopes(near) + slopes(2 * near)[0::2][: heads - near]
    bias = F.alibi_bias(heads, 5)
    assert bias.shape == (heads, 5, 5)
    assert bias.dtype == np.float32
    for h in range(heads):
        for i in range(5):
            np.testing.assert_allclose(bias[h, i, : i + 1], -expected[h] * (i - np.arange(i + 1)), rtol=1e-6)
    shapes = [(2, heads, 5, 4)] * 3
    double = F.alibi_bias(heads, 5, "float64")
    ours = Ours(F.scaled_dot_product_attention, attn_mask=double)
    assert_twins(ours, Theirs(torch.nn.functional.scaled_dot_product_attention, attn_mask=double), *shapes)
