"""Transformers beside PyTorch's: layers and stacks, in training and in the form for inference, where PyTorch has a fast
path of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from tests.nn.test_attention_against_torch import Ours, Theirs, causal
from tests.nn.twins import assert_same_start, assert_twins

SIZES = (8, 2, 12)  # d_model, nhead, dim_feedforward
PAD = np.array([[False] * 5, [False, False, False, True, True]])
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")


def torch_options(options: dict[str, Any]) -> dict[str, Any]:
    named = {F.silu: torch.nn.functional.silu}
    return {k: named.get(v, v) if callable(v) else v for k, v in options.items()}


def pair(kind: str, **options: Any) -> tuple[Any, Any]:
    """Ours and PyTorch's, without dropout."""
    options = {"dropout": 0.0, **options}
    return getattr(nn, kind)(*SIZES, **options), getattr(torch.nn, kind)(*SIZES, **torch_options(options))


ENCODER_LAYERS = [
    ({}, (5, 2, 8), {}),
    ({"batch_first": True}, (2, 5, 8), {}),
    ({"batch_first": True, "activation": "gelu"}, (2, 5, 8), {"src_mask": causal(5)}),
    ({"batch_first": True, "norm_first": True, "bias": False}, (2, 5, 8), {"src_mask": causal(5), "is_causal": True}),
    ({"norm_first": True, "activation": F.silu, "layer_norm_eps": 1e-3}, (5, 8), {}),
    ({}, (5, 2, 8), {"src_key_padding_mask": PAD}),
]


@pytest.mark.parametrize(("options", "shape", "masks"), ENCODER_LAYERS)
def test_encoder_layer(options, shape, masks):
    ours, theirs = pair("TransformerEncoderLayer", **options)
    target = "llvm" if options == {"batch_first": True} else "debug"
    assert_twins(Ours(ours, **masks), Theirs(theirs, **masks), shape, target=target)


@pytest.mark.parametrize(
    ("options", "shapes", "masks"),
    [
        ({}, [(5, 2, 8), (4, 2, 8)], {"tgt_mask": causal(5), "memory_key_padding_mask": PAD[:, 1:]}),
        ({"batch_first": True, "norm_first": True}, [(2, 5, 8), (2, 4, 8)], {"tgt_key_padding_mask": PAD}),
        ({"bias": False, "activation": "gelu"}, [(5, 8), (4, 8)], {"memory_mask": causal(5)[:, :4]}),
    ],
)
def test_decoder_layer(options, shapes, masks):
    ours, theirs = pair("TransformerDecoderLayer", **options)
    assert_twins(Ours(ours, **masks), Theirs(theirs, **masks), *shapes)


@pytest.mark.parametrize(
    ("options", "masks", "norm"),
    [
        ({"batch_first": True}, {"mask": causal(5)}, True),
        ({"batch_first": True, "norm_first": True}, {"mask": causal(5), "is_causal": True}, False),
        ({"batch_first": True}, {"src_key_padding_mask": PAD}, False),
    ],
)
def test_encoder(options, masks, norm):
    layers = pair("TransformerEncoderLayer", **options)
    ours = nn.TransformerEncoder(layers[0], 2, nn.LayerNorm(8) if norm else None)
    theirs = torch.nn.TransformerEncoder(
        layers[1], 2, torch.nn.LayerNorm(8) if norm else None, enable_nested_tensor=False
    )
    assert_twins(Ours(ours, **masks), Theirs(theirs, **masks), (2, 5, 8))


def test_decoder():
    layers = pair("TransformerDecoderLayer")
    ours = nn.TransformerDecoder(layers[0], 2, nn.LayerNorm(8))
    theirs = torch.nn.TransformerDecoder(layers[1], 2, torch.nn.LayerNorm(8))
    masks = {"tgt_mask": causal(5), "tgt_key_padding_mask": PAD}
    assert_twins(Ours(ours, **masks), Theirs(theirs, **masks), (5, 2, 8), (4, 2, 8))


@pytest.mark.parametrize(
    ("options", "shapes", "masks"),
    [
        ({}, [(4, 2, 8), (5, 2, 8)], {"tgt_mask": causal(5)}),
        ({"batch_first": True, "norm_first": True}, [(2, 4, 8), (2, 5, 8)], {"tgt_mask": causal(5)}),
        ({"bias": False, "activation": "gelu"}, [(4, 8), (5, 8)], {}),
    ],
)
def test_transformer(options, shapes, masks):
    options = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 12,
               "dropout": 0.0, **options}  # fmt: skip
    ours, theirs = nn.Transformer(**options), torch.nn.Transformer(**options)
    assert_twins(Ours(ours, **masks), Theirs(theirs, **masks), *shapes)


def test_causal_masks_are_pytorchs():
    mine = nn.Transformer.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(mine, torch.nn.Transformer.generate_square_subsequent_mask(4).numpy())
    layer = nn.TransformerEncoderLayer(*SIZES, dropout=0.0, batch_first=True)
    example = np.ones((2, 5, 8), "float32")
    for given in ({"src_mask": causal(5)}, {"src_mask": causal(5) < 0}, {"is_causal": True}):
        text = str(Ours(layer, **given).export(example))
        assert 'causal_mask="TopLeft"' in text
        assert "inf" not in text


def test_dropout_is_for_training():
    options = {"dropout": 0.5, "batch_first": True}
    ours, theirs = pair("TransformerEncoderLayer", **options)
    assert_twins(ours, theirs, (2, 5, 8), training=False)
    example = np.ones((3, 5, 8), "float32")
    trainer = pullback.trainer(nn.TransformerEncoderLayer(*SIZES, **options), "mse", "sgd", example=example,
                               target="debug")  # fmt: skip
    target = np.zeros_like(example)
    assert trainer.update(example, target) != trainer.evaluate(example, target).loss


def test_copies_start_equal_and_are_trained_apart():
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(*SIZES, dropout=0.0, batch_first=True), 3)
    net.init_parameters(5)
    assert len(list(net.parameters())) == 3 * 12

    def values() -> list[np.ndarray]:
        return [layer.linear1.weight.numpy() for layer in net.layers]

    one, *others = values()
    assert all((one == other).all() for other in others)
    net.init_parameters(6)
    assert (values()[0] != one).any()
    assert (values()[2] == values()[0]).all()
    example = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    trainer = pullback.trainer(net, "mse", "sgd", example=example, target="debug")
    trainer.update(example, np.zeros_like(example))
    assert (values()[2] != values()[0]).any()
    net.init_parameters(0, {"*weight": "kaiming_uniform"})
    assert (values()[2] != values()[0]).any()
    taken = nn.TransformerEncoderLayer(*SIZES)
    taken.init_parameters(7)
    stack = nn.TransformerEncoder(taken, 2)
    assert (stack.layers[1].linear1.weight.numpy() == taken.linear1.weight.numpy()).all()


def test_initial_values():
    layers = [lambda n=n: n.TransformerDecoderLayer(16, 2, 24) for n in (nn, torch.nn)]
    assert_same_start(*layers)
    assert_same_start(*[lambda n=n: n.Transformer(16, 2, 2, 1, 24) for n in (nn, torch.nn)])


def test_layers_of_ones_own():
    class Scale(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(np.full((), 2.0, "float32"))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    stack = nn.TransformerEncoder(Scale(), 3)
    assert stack(np.ones((1, 2), "float32")).numpy().tolist() == [[8.0, 8.0]]
    whole = nn.Transformer(4, 1, custom_encoder=Scale(), num_decoder_layers=1, dim_feedforward=4)
    assert "encoder.scale" in whole.state_dict()


def test_errors():
    with pytest.raises(ArgumentError, match='activation must be "relu", "gelu", a function or a module'):
        nn.TransformerEncoderLayer(8, 2, activation="silu")
    with pytest.raises(ArgumentError, match="got the class TransformerEncoderLayer"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer, 2)
    with pytest.raises(ShapeError, match="the last size of tgt must be 8"):
        nn.Transformer(8, 2, 1, 1, 8).export(np.ones((4, 2, 8), "float32"), np.ones((4, 2, 6), "float32"))
    with pytest.raises(ShapeError, match="attn_mask must have the shape"):
        Ours(nn.TransformerEncoderLayer(8, 2), src_mask=causal(3)).export(np.ones((4, 2, 8), "float32"))
