"""Transformers: layers of attention and of a network for each place, and stacks of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from pullback.nn.attention import MultiheadAttention
from pullback.nn.container import ModuleList
from pullback.nn.dropout import Dropout
from pullback.nn.init import XavierUniform
from pullback.nn.linear import Linear
from pullback.nn.module import Module
from pullback.nn.normalization import LayerNorm
from pullback.nn.parameter import Parameter
from pullback.relax.struct_info import format_shape
from pullback.runtime.dtype import numpy_dtype

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip

Activation = str | Callable[[Any], Any]


class _Layer(Module):
    """What the layers of encoder and decoder share: self-attention, and linear1, activation, linear2 for each place."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: Activation,
        layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, dtype: str | None, norms: int,
    ) -> None:  # fmt: skip
        attentions = ("self_attn", "multihead_attn")[: norms - 1]
        for name in attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
            self.register_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        for k in range(1, norms + 1):
            self.register_module(f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for k in range(1, norms + 1):
            self.register_module(f"dropout{k}", Dropout(dropout))
        self.activation = _activation(activation)

    def _attend(self, attention: Any, x: Any, memory: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        return attention(x, memory, memory, padding, need_weights=False, attn_mask=mask, is_causal=is_causal)[0]

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, norm: Any, dropout: Any, x: Any, inner: Callable[[Any], Any]) -> Any:
        """x and what is computed of it, with the norm before or after."""
        if self.norm_first:
            return x + dropout(inner(norm(x)))
        return norm(x + dropout(inner(x)))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a network for each place: x + attention(x), then x + linear2(activation(linear1(x))).

    Norms follow each sum, or with ``norm_first`` come before attention and network. ``activation`` is "relu", "gelu", a
    function or a module. Inputs are (L, N, d_model), or with ``batch_first`` (N, L, d_model). Parameters and their
    names are those of ``torch.nn.TransformerEncoderLayer``. Vaswani et al., Attention Is All You Need, 2017; norms
    first: Xiong et al. 2020.

    Args:
        d_model: size of the last axis of inputs and results.
        nhead: heads of attention; they divide d_model.
        dim_feedforward: width of the network behind the attention.
        dropout: the probability of an element to be dropped in steps.
        activation: of the network: "relu", "gelu", a function or a module.
        layer_norm_eps: eps of the norms.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        norm_first: whether norms come before attention and network rather than after the sums.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> layer = nn.TransformerEncoderLayer(16, 4, 64, batch_first=True)
        >>> layer(np.zeros((2, 5, 16), "float32")).shape
        (2, 5, 16)
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, dtype,
            norms=2,
        )  # fmt: skip

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        """In the shape of ``src``. The masks are those of :class:`MultiheadAttention`; ``is_causal``: place i sees the
        places up to i."""
        x = self._residual(
            self.norm1, self.dropout1, src,
            lambda x: self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal),
        )  # fmt: skip
        return self._residual(self.norm2, self.dropout2, x, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, then a network for each place.

    Arguments are those of :class:`TransformerEncoderLayer`; parameters and their names those of
    ``torch.nn.TransformerDecoderLayer``.

    Args:
        d_model: size of the last axis of inputs and results.
        nhead: heads of attention; they divide d_model.
        dim_feedforward: width of the network behind the attention.
        dropout: the probability of an element to be dropped in steps.
        activation: of the network: "relu", "gelu", a function or a module.
        layer_norm_eps: eps of the norms.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        norm_first: whether norms come before attention and network rather than after the sums.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, dtype,
            norms=3,
        )  # fmt: skip

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """In the shape of ``tgt``. ``memory`` is the encoder's output; its masks are those of attention to it."""
        x = self._residual(
            self.norm1, self.dropout1, tgt,
            lambda x: self._attend(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal),
        )  # fmt: skip
        x = self._residual(
            self.norm2, self.dropout2, x,
            lambda x: self._attend(
                self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal
            ),
        )  # fmt: skip
        return self._residual(self.norm3, self.dropout3, x, self._feed_forward)


class TransformerEncoder(Module):
    """``num_layers`` copies of a layer, each with parameters of its own, and a norm at the end, if one is given.

    As in PyTorch the copies begin with equal values; ``init={"*weight": "xavier_uniform"}`` draws each by itself.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: copies.
        norm: a module at the end.
        enable_nested_tensor: accepted as in PyTorch, without effect.
        mask_check: accepted as in PyTorch, without effect.

    Examples:
        >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 64), num_layers=2)
        >>> encoder(np.zeros((5, 2, 16), "float32")).shape
        (5, 2, 16)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        self.layers, self.num_layers = _copies(encoder_layer, num_layers), num_layers
        self.norm = norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Any:
        """In the shape of ``src``; the masks are given to each layer."""
        given = {"src_mask": mask, "src_key_padding_mask": src_key_padding_mask, "is_causal": is_causal}
        for layer in self.layers:
            src = layer(src, **_without_none(given))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """``num_layers`` copies of a layer, each with parameters of its own, and a norm at the end, if one is given.

    As in PyTorch the copies begin with equal values.

    Args:
        decoder_layer: the layer that is copied.
        num_layers: copies.
        norm: a module at the end.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers, self.num_layers = _copies(decoder_layer, num_layers), num_layers
        self.norm = norm

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """In the shape of ``tgt``; memory and masks are given to each layer."""
        given = {
            "tgt_mask": tgt_mask, "memory_mask": memory_mask, "tgt_key_padding_mask": tgt_key_padding_mask,
            "memory_key_padding_mask": memory_key_padding_mask, "tgt_is_causal": tgt_is_causal,
            "memory_is_causal": memory_is_causal or None,
        }  # fmt: skip
        for layer in self.layers:
            tgt = layer(tgt, memory, **_without_none(given))
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder: ``forward(src, tgt)`` gives the decoder's output, in the shape of ``tgt``.

    Arguments, parameters and their names are those of ``torch.nn.Transformer``; matrices are drawn by xavier_uniform.
    Vaswani et al., Attention Is All You Need, 2017.

    Args:
        d_model: size of the last axis of inputs and results.
        nhead: heads of attention; they divide d_model.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: width of the network behind the attention.
        dropout: the probability of an element to be dropped in steps.
        activation: of the network: "relu", "gelu", a function or a module.
        custom_encoder: a module in the encoder's place.
        custom_decoder: a module in the decoder's place.
        layer_norm_eps: eps of the norms.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        norm_first: whether norms come before attention and network rather than after the sums.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        options: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
        )  # fmt: skip
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            layer: Module = TransformerEncoderLayer(*options, dtype=dtype)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            layer = TransformerDecoderLayer(*options, dtype=dtype)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, norm)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                parameter.init = XavierUniform()

    def forward(
        self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None,
        src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """Of ``src`` (S, N, d_model) and ``tgt`` (T, N, d_model), or with ``batch_first`` (N, S, d_model) and
        (N, T, d_model)."""
        for label, x in (("src", src), ("tgt", tgt)):
            if x.shape[-1] != self.d_model:
                raise ShapeError(f"the last size of {label} must be {self.d_model}, got {format_shape(x.shape)}")
        given = {"src_key_padding_mask": src_key_padding_mask, "is_causal": src_is_causal}
        memory = self.encoder(src, mask=src_mask, **given)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, *, dtype: str = "float32") -> np.ndarray:
        """The causal mask, an array (sz, sz): 0 up to the diagonal, -inf above it."""
        return np.triu(np.full((sz, sz), -np.inf), 1).astype(numpy_dtype(dtype))


class _AsIn:
    """An initializer: the value that another parameter has."""

    def __init__(self, source: Parameter) -> None:
        self.source = source

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return self.source.numpy()


def _copies(layer: Module, count: int) -> ModuleList:
    """Copies of a layer, which begin with equal values."""
    if not isinstance(layer, Module):
        given = f"the class {layer.__name__}" if isinstance(layer, type) else type(layer).__name__
        raise ArgumentError(f"a stack takes a layer, got {given}", hint="such as nn.TransformerEncoderLayer(64, 4)")
    copies = [copy.deepcopy(layer) for _ in range(count)]
    for other in copies[1:]:
        for first, later in zip(copies[0].parameters(), other.parameters(), strict=True):
            if not later.has_value:
                later.init = _AsIn(first)
    return ModuleList(copies)


def _without_none(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _activation(activation: Any) -> Any:
    named = {"relu": F.relu, "gelu": F.gelu}
    if isinstance(activation, str) and activation in named:
        return named[activation]
    if not callable(activation):
        raise ArgumentError(
            f'activation must be "relu", "gelu", a function or a module, got {activation!r}',
            hint="others are functions of nn.functional: activation=F.silu",
        )
    return activation
