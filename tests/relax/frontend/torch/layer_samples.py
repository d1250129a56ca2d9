"""Calls of layers, losses and what else ``torch.nn.functional`` has: at least one for each operator, corners among
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from tests.relax.frontend.torch.aten_programs import B, I, P, R, Sample, U, aten, case

SAMPLES: dict[str, list[Sample]] = {}


def add(name: str, *samples: Sample) -> None:
    assert name not in SAMPLES, name
    SAMPLES[name] = list(samples)


def weighted(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda *tensors: f(*tensors, **options)


_rows, _weights = torch.tensor(P(4, 5)), torch.tensor(P(5))  # what has no derivative in PyTorch is part of the program
_moved, _spread = torch.tensor(R(3)), torch.tensor(P(3))


# -- convolutions

for _rank, _conv, _transposed in (
    (1, F.conv1d, F.conv_transpose1d), (2, F.conv2d, F.conv_transpose2d), (3, F.conv3d, F.conv_transpose3d),
):  # fmt: skip
    _size = (7, 6, 5)[:_rank]
    _taps = (3, 2, 3)[:_rank]
    add(
        f"conv{_rank}d",
        case(_conv, R(2, 4, *_size), R(6, 4, *_taps), R(6), batch=False),
        case(weighted(_conv, stride=2, padding=1, groups=2), R(2, 4, *_size), R(6, 2, *_taps), R(6)),
        case(weighted(_conv, padding="same", dilation=2), R(1, 2, *_size), R(3, 2, *(3,) * _rank)),
        case(weighted(_conv, padding="valid"), R(2, *_size), R(3, 2, *_taps), R(3)),
    )
    add(
        f"conv_transpose{_rank}d",
        case(_transposed, R(2, 4, *_size), R(4, 3, *_taps), R(3)),
        case(
            weighted(_transposed, stride=2, padding=1, output_padding=1, groups=2, dilation=2), R(1, 4, *_size[:_rank]),
            R(4, 3, *_taps),
        ),
    )  # fmt: skip
_zeros, _ones, _twos = [0, 0], [1, 1], [2, 2]
add(
    "convolution",
    case(
        lambda x, w, b: aten.convolution(x, w, b, [2], [1], _ones, False, _zeros, 2), R(2, 4, 6, 5), R(6, 2, 3, 3), R(6)
    ),
    case(lambda x, w: aten.convolution(x, w, None, _twos, _ones, _ones, True, _ones, 1), R(2, 4, 3, 3), R(4, 2, 3, 3)),
)  # fmt: skip
add("linear", case(F.linear, R(2, 3, 4), R(5, 4), R(5)), case(F.linear, R(4), R(5, 4)))
add("bilinear", case(F.bilinear, R(3, 4), R(3, 2), R(5, 4, 2), R(5)))

# -- attention, embeddings, dropout

_heads = [torch.tensor(R(*shape, dtype="float32")) for shape in ((18, 6), (18,), (6, 6), (6,))]
_native_attention = aten._native_multi_head_attention.default
_q, _k, _v = R(2, 3, 4, 6), R(2, 3, 5, 6), R(2, 3, 5, 6)
add(
    "scaled_dot_product_attention",
    case(F.scaled_dot_product_attention, _q, _k, _v, rtol=1e-7),
    case(
        weighted(F.scaled_dot_product_attention, is_causal=True, scale=0.3), R(2, 3, 4, 6), R(2, 3, 4, 6), R(2, 3, 4, 5)
    ),
    case(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), _q, _k, _v, R(2, 1, 4, 5), rtol=1e-7),
    case(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), _q, _k, _v,
        np.tril(np.ones((4, 5), bool)), rtol=1e-7,
    ),
    case(weighted(F.scaled_dot_product_attention, enable_gqa=True), R(2, 4, 4, 6), R(2, 2, 5, 6), R(2, 2, 5, 6)),
    case(F.scaled_dot_product_attention, R(2, 4, 6), R(2, 5, 6), R(2, 5, 6), rtol=1e-7),
)  # fmt: skip
add(
    "embedding",
    case(lambda i, w: F.embedding(i, w), I(2, 3, low=0, high=5), R(5, 4)),
    case(lambda i, w: F.embedding(i, w, padding_idx=2), I(4, low=0, high=5), R(5, 4)),
)
add(
    "embedding_bag",
    *(case(weighted(F.embedding_bag, mode=mode), I(2, 3, low=0, high=5), R(5, 4)) for mode in ("sum", "mean", "max")),
    case(lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"), I(6, low=0, high=5), R(5, 4), np.array([0, 2, 2])),
)
add("dropout", case(lambda x: F.dropout(x, 0.4, training=False), R(2, 3)), case(lambda x: F.dropout(x, 0.0), R(2, 3)))
add("native_dropout", case(lambda x: aten.native_dropout(x, 0.5, True), R(2, 3), drawn=True),
    case(lambda x: aten.native_dropout(x, 0.0, True), R(2, 3)))  # fmt: skip
add("feature_dropout", case(lambda x: F.dropout2d(x, 0.5), R(2, 3, 4, 4), drawn=True))
add("alpha_dropout", case(lambda x: F.alpha_dropout(x, 0.5, training=True), R(2, 3), drawn=True))
add("feature_alpha_dropout", case(lambda x: F.feature_alpha_dropout(x, 0.5, training=True), R(2, 3, 4), drawn=True))
add(
    "_weight_norm",
    case(aten._weight_norm, R(3, 4), R(3, 1)),
    case(lambda v, g: aten._weight_norm(v, g, 1), R(3, 4), R(1, 4)),
)
add("_weight_norm_interface", case(aten._weight_norm_interface, R(3, 4), R(3, 1)))

# -- norms

_x = R(4, 3, 5)
add(
    "batch_norm",
    case(lambda x, w, b: F.batch_norm(x, _moved, _spread, w, b), _x, R(3), R(3)),
    case(lambda x, w: F.batch_norm(x, None, None, w, training=True), _x, R(3)),
)
for _training in (True, False):
    add(
        f"_native_batch_norm_legit_functional {_training}",
        case(
            lambda x, w, b, t=_training: [
                aten._native_batch_norm_legit_functional(x, w, b, _moved, _spread, t, 0.1, 1e-5)[k] for k in (0, 3, 4)
            ],
            _x, R(3), R(3),
        ),
    )  # fmt: skip
add(
    "_native_batch_norm_legit_functional saved",
    case(lambda x: aten._native_batch_norm_legit_functional(x, None, None, _moved, _spread, True, 0.1, 1e-5)[:3], _x),
)
add(
    "_native_batch_norm_legit_no_training",
    case(lambda x, w: aten._native_batch_norm_legit_no_training(x, w, None, _moved, _spread, 0.1, 1e-5)[0], _x, R(3)),
)
add("_native_batch_norm_legit.no_stats",
    case(lambda x, w, b: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5), _x, R(3), R(3)))  # fmt: skip
add("instance_norm", case(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), _x, R(3), R(3)),
    case(lambda x: F.instance_norm(x, _moved, _spread, use_input_stats=False), _x))  # fmt: skip
add("layer_norm", case(lambda x, w, b: F.layer_norm(x, (5,), w, b), _x, R(5), R(5)),
    case(lambda x: F.layer_norm(x, (3, 5), eps=0.1), _x, batch=True))  # fmt: skip
add("native_layer_norm", case(lambda x, w, b: aten.native_layer_norm(x, [5], w, b, 1e-5), _x, R(5), R(5)))
add("group_norm", case(lambda x, w, b: F.group_norm(x, 2, w, b), R(3, 4, 5), R(4), R(4)),
    case(lambda x: F.group_norm(x, 4), R(3, 4)))  # fmt: skip
add(
    "native_group_norm", case(lambda x, w, b: aten.native_group_norm(x, w, b, 3, 4, 5, 2, 1e-5), R(3, 4, 5), R(4), R(4))
)
add("rms_norm", case(lambda x, w: F.rms_norm(x, (5,), w), _x, R(5)), case(lambda x: F.rms_norm(x, (3, 5), eps=0.1), _x))

# -- pooling

for _rank, _shape in ((1, (2, 3, 9)), (2, (2, 3, 8, 7)), (3, (1, 2, 6, 5, 7))):
    _max, _avg = getattr(F, f"max_pool{_rank}d"), getattr(F, f"avg_pool{_rank}d")
    add(
        f"max_pool{_rank}d",
        case(weighted(_max, kernel_size=2), R(*_shape)),
        case(weighted(_max, kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=True), R(*_shape)),
    )
    _with = getattr(aten, f"max_pool{_rank}d_with_indices")
    add(
        f"max_pool{_rank}d_with_indices",
        case(lambda x, f=_with: f(x, [2]), R(*_shape)),
        case(lambda x, f=_with: f(x, [3], [2], [1]), R(*_shape)),
    )
    add(
        f"avg_pool{_rank}d",
        case(weighted(_avg, kernel_size=2), R(*_shape)),
        case(weighted(_avg, kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), R(*_shape)),
    )
    _size = (3, 2, 4)[:_rank]
    _mean, _most = getattr(F, f"adaptive_avg_pool{_rank}d"), getattr(F, f"adaptive_max_pool{_rank}d")
    add(f"adaptive_avg_pool{_rank}d", case(weighted(_mean, output_size=_size), R(*_shape)),
        case(weighted(_mean, output_size=1), R(*_shape)))  # fmt: skip
    add(f"adaptive_max_pool{_rank}d", case(weighted(_most, output_size=_size), R(*_shape)))
add("max_unpool2d", case(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), R(2, 3, 4, 6)))

# -- recurrent layers


def _recurrent(kind: str, gates: int, layers: int = 1, both: bool = False, projected: int = 0) -> list[np.ndarray]:
    """Weights of a layer of 3 inputs and 4 states."""
    found, size = [], projected or 4
    for k in range(layers):
        for _ in range(1 + both):
            found += [R(4 * gates, 3 if k == 0 else size * (1 + both)), R(4 * gates, size), R(4 * gates), R(4 * gates)]
            found += [R(projected, 4)] if projected else []
    return found


def _layer(f: Callable[..., Any], states: int, layers: int, both: bool, first: bool) -> Callable[..., Any]:
    def run(x: Any, *rest: Any) -> Any:
        hx, weights = list(rest[:states]), list(rest[states:])
        return f(x, hx if states == 2 else hx[0], weights, True, layers, 0.0, False, both, first)

    return run


for _name, _gates, _states in (("lstm", 4, 2), ("gru", 3, 1), ("rnn_tanh", 1, 1), ("rnn_relu", 1, 1)):
    _f = getattr(aten, _name).input
    add(
        _name,
        case(
            _layer(_f, _states, 1, False, True), R(2, 5, 3), *(R(1, 2, 4) for _ in range(_states)),
            *_recurrent(_name, _gates),
        ),
        case(
            _layer(_f, _states, 2, True, False), R(5, 2, 3), *(R(4, 2, 4) for _ in range(_states)),
            *_recurrent(_name, _gates, 2, True),
        ),
    )  # fmt: skip
add(
    "lstm projected",
    case(
        _layer(aten.lstm.input, 2, 1, False, True), R(2, 5, 3), R(1, 2, 2), R(1, 2, 4),
        *_recurrent("lstm", 4, projected=2),
    ),
)  # fmt: skip
add("lstm_cell", case(lambda x, h, c, *w: aten.lstm_cell(x, [h, c], *w), R(2, 3), R(2, 4), R(2, 4), *_recurrent("", 4)))
add("gru_cell", case(aten.gru_cell, R(2, 3), R(2, 4), *_recurrent("", 3)))
add("rnn_tanh_cell", case(aten.rnn_tanh_cell, R(2, 3), R(2, 4), *_recurrent("", 1)[:2]))
add("rnn_relu_cell", case(aten.rnn_relu_cell, R(2, 3), R(2, 4), *_recurrent("", 1)))

# -- losses

_signs = np.where(B(4, 5), 1.0, -1.0)
_either = torch.tensor(_signs)
for _name, _f in (("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss)):
    add(_name, *(case(weighted(_f, reduction=r), R(4, 5), _signs * 0.7) for r in ("none", "mean", "sum")))
add(
    "soft_margin_loss",
    *(case(lambda x, r=r: F.soft_margin_loss(x, _either, reduction=r), R(4, 5)) for r in ("none", "mean")),
)
add("smooth_l1_loss", case(weighted(F.smooth_l1_loss, beta=0.5), R(4, 5), R(4, 5)))
add("huber_loss", case(weighted(F.huber_loss, delta=0.5, reduction="sum"), R(4, 5), R(4, 5)))
add("hinge_embedding_loss", case(weighted(F.hinge_embedding_loss, margin=0.5), R(4, 5), _signs))
add("margin_ranking_loss", case(weighted(F.margin_ranking_loss, margin=0.2), R(4), R(4), _signs[:, 0]))
add("cosine_embedding_loss", case(weighted(F.cosine_embedding_loss, margin=0.2), R(4, 5), R(4, 5), _signs[:, 0]))
add("triplet_margin_loss", case(weighted(F.triplet_margin_loss, swap=True), R(4, 5), R(4, 5), R(4, 5)))
_labels = I(4, low=0, high=5)
add(
    "cross_entropy_loss",
    *(case(weighted(F.cross_entropy, reduction=r), R(4, 5), _labels) for r in ("none", "mean", "sum")),
    case(lambda x, y: F.cross_entropy(x, y, _weights, ignore_index=2, label_smoothing=0.1), R(4, 5), _labels),
    case(F.cross_entropy, R(4, 5), P(4, 5)),
    case(F.cross_entropy, R(4, 5, 3), I(4, 3, low=0, high=5)),
)
add(
    "nll_loss_nd",
    case(lambda x, y: F.nll_loss(x, y, _weights, ignore_index=1), R(4, 5), _labels),
    case(F.nll_loss, R(4, 5, 2, 3), I(4, 2, 3, low=0, high=5)),
)
add("nll_loss_forward",
    *(case(lambda x, y, r=r: aten.nll_loss_forward(x, y, _weights, r, 1), R(4, 5), _labels) for r in (0, 1, 2)),
    case(lambda x, y: aten.nll_loss_forward(x, y, None, 1, 1), R(4, 5), _labels))  # fmt: skip
add("binary_cross_entropy", case(lambda p, t: F.binary_cross_entropy(p, t, _rows), P(4, 5) / 4, P(4, 5) / 4))
add(
    "binary_cross_entropy_with_logits",
    case(lambda p, t: F.binary_cross_entropy_with_logits(p, t, _rows, pos_weight=_weights), R(4, 5), P(4, 5) / 4),
)  # fmt: skip
add(
    "kl_div",
    case(weighted(F.kl_div, reduction="sum"), R(4, 5), P(4, 5)),
    case(weighted(F.kl_div, reduction="batchmean", log_target=True), R(4, 5), R(4, 5)),
)
add("poisson_nll_loss", case(weighted(F.poisson_nll_loss, full=True), R(4, 5), P(4, 5)))
add("multi_margin_loss", case(lambda x, y: F.multi_margin_loss(x, y, 2, 0.7, _weights), R(4, 5), _labels))
_several = np.array([[1, 3, -1, 0, 0], [0, -1, 2, 2, 2], [4, 2, 0, 1, 3], [-1, 0, 0, 0, 0]])
add("multilabel_margin_loss", case(F.multilabel_margin_loss, R(4, 5), _several))
add("cosine_similarity", case(weighted(F.cosine_similarity, dim=-1), R(4, 5), R(4, 5)))

# -- resizing, sampling, padding

for _mode, _shape, _corners in (
    ("nearest", (2, 3, 5), (None,)), ("nearest", (2, 3, 5, 4), (None,)), ("nearest", (1, 2, 3, 4, 2), (None,)),
    ("linear", (2, 3, 5), (True, False)), ("bilinear", (2, 3, 5, 4), (True, False)),
    ("bicubic", (2, 3, 5, 4), (True, False)), ("trilinear", (1, 2, 3, 4, 2), (True, False)),
    ("nearest-exact", (2, 3, 5, 4), (None,)),
):  # fmt: skip
    _out = (7, 6, 3)[: len(_shape) - 2]
    add(
        f"upsample {_mode} {len(_shape) - 2}",
        *(case(weighted(F.interpolate, size=_out, mode=_mode, align_corners=c), R(*_shape)) for c in _corners),
        *(case(weighted(F.interpolate, scale_factor=2.0, mode=_mode, align_corners=c), R(*_shape)) for c in _corners),
        case(weighted(F.interpolate, scale_factor=1.7, mode=_mode, align_corners=_corners[-1]), R(*_shape)),
    )  # fmt: skip
add("upsample_nearest2d plain", case(lambda x: aten.upsample_nearest2d(x, [7, 6]), R(2, 3, 5, 4)))
add("upsample_bilinear2d plain", case(lambda x: aten.upsample_bilinear2d(x, [7, 6], True), R(2, 3, 5, 4)))
for _mode, _padding, _corner in (
    ("bilinear", "zeros", True),
    ("nearest", "border", False),
    ("bicubic", "reflection", False),
):
    add(
        f"grid_sampler {_mode}",
        case(weighted(F.grid_sample, mode=_mode, padding_mode=_padding, align_corners=_corner), R(2, 3, 5, 4),
             U(2, 3, 3, 2) * 1.1, rtol=1e-7),
    )  # fmt: skip
add("affine_grid_generator", case(lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), R(2, 2, 3)))
add(
    "pad",
    *(
        case(weighted(F.pad, pad=(2, 1, 1, 0), mode=m), R(2, 3, 4, 5))
        for m in ("constant", "reflect", "replicate", "circular")
    ),
    case(weighted(F.pad, pad=(-1, 2), value=3.0), R(2, 3, 4)),
)  # fmt: skip
add("constant_pad_nd", case(lambda x: aten.constant_pad_nd(x, [1, -1, 0, 2], 1.5), R(2, 3, 4)))
for _rank in (1, 2, 3):
    _around = [1, 2, 1, 1, 0, 1][: 2 * _rank]
    for _name in ("reflection", "replication"):
        _pad = getattr(aten, f"{_name}_pad{_rank}d")
        add(f"{_name}_pad{_rank}d", case(lambda x, f=_pad, w=tuple(_around): f(x, w), R(2, 3, *(3, 4, 5)[:_rank])))
add("pixel_shuffle", case(lambda x: F.pixel_shuffle(x, 2), R(2, 8, 3, 2)))
add("pixel_unshuffle", case(lambda x: F.pixel_unshuffle(x, 2), R(2, 2, 4, 6)))
add("channel_shuffle", case(lambda x: F.channel_shuffle(x, 3), R(2, 6, 4, 2)))
add("im2col", case(lambda x: F.unfold(x, 2, 1, 1, 2), R(2, 3, 4, 5)))
add("col2im", case(lambda x: F.fold(x, (4, 5), 2, 1, 1, 2), R(2, 12, 9)))


# -- operators that torch.export takes apart, or that have no derivative: called as they stand

AS_WRITTEN: dict[str, list[Sample]] = {
    "multilabel_margin_loss_forward": [  # which PyTorch's own decomposition computes otherwise than its kernel
        case(lambda x, y, k=k: aten.multilabel_margin_loss_forward.default(x, y, 1)[k], R(4, 5), _several)
        for k in (0, 1)
    ],
    "ctc_loss": [
        case(
            lambda x, y: aten.ctc_loss.IntList(aten._log_softmax.default(x, 2, False), y, [6, 5], [3, 2], 0, 1, False),
            R(6, 2, 5),
            I(2, 3, low=1, high=5), rtol=1e-7,
        )
    ],
    "_native_multi_head_attention": [
        case(
            lambda x, m=mask, k=kind: _native_attention(x, x, x, 6, 2, *_heads, m, True, True, k),
            R(2, 4, 6, dtype="float32"),
        )
        for mask, kind in ((None, None), (torch.tensor(B(2, 4)) & (torch.arange(4) > 0), 1))
    ],
}  # fmt: skip
