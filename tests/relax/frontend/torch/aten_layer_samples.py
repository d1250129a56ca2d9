"""Calls of ATen's layers that are core operators, and of derivatives that a backward pass has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.relax.frontend.torch.aten_programs import B, I, P, R, Sample, U, aten, case

F = torch.nn.functional


def saved(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The result, and what a backward pass needs: PyTorch has no derivatives of that."""
    return values[0], *(v.detach() for v in values[1:])


LAYERS: dict[str, list[Sample]] = {
    "relu": [case(aten.relu, R(2, 3)), case(aten.relu, I(4))],
    "convolution": [
        case(
            lambda x, w, b: aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
            R(2, 3, 5, 5),
            R(4, 3, 3, 3),
            R(4),
        ),
        case(lambda x, w: aten.convolution(x, w, None, [2], [0], [2], False, [0], 2), R(2, 4, 9), R(6, 2, 3)),
        case(
            lambda x, w, b: aten.convolution(x, w, b, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
            R(2, 3, 4, 4),
            R(3, 2, 3, 3),
            R(2),
        ),
        case(
            lambda x, w: aten.convolution(x, w, None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1),
            R(1, 2, 3, 3, 3),
            R(2, 2, 2, 2, 2),
        ),
    ],
    "avg_pool1d": [
        case(lambda x: aten.avg_pool1d(x, [2]), R(2, 3, 6)),
        case(lambda x: aten.avg_pool1d(x, [3], [2], [1], True, False), R(2, 3, 6)),
    ],
    "avg_pool2d": [
        case(lambda x: aten.avg_pool2d(x, [2, 2]), R(1, 2, 4, 4)),
        case(lambda x: aten.avg_pool2d(x, [3, 2], [2, 1], [1, 0], True, False), R(1, 2, 6, 5)),
        case(lambda x: aten.avg_pool2d(x, [2, 2], [2, 2], [0, 0], False, True, 3), R(1, 2, 4, 4)),
    ],
    "avg_pool3d": [case(lambda x: aten.avg_pool3d(x, [2, 2, 2]), R(1, 2, 4, 4, 2))],
    "adaptive_avg_pool1d": [case(lambda x: aten.adaptive_avg_pool1d(x, [3]), R(2, 3, 7))],
    "_adaptive_avg_pool2d": [
        case(lambda x: aten._adaptive_avg_pool2d(x, [1, 1]), R(2, 3, 4, 5)),
        case(lambda x: aten._adaptive_avg_pool2d(x, [3, 2]), R(2, 3, 4, 5)),
    ],
    "_adaptive_avg_pool3d": [case(lambda x: aten._adaptive_avg_pool3d(x, [2, 1, 2]), R(1, 2, 4, 3, 5))],
    "max_pool2d_with_indices": [
        case(lambda x: aten.max_pool2d_with_indices(x, [2, 2]), R(2, 2, 4, 4)),
        case(lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]), R(1, 2, 6, 5)),
        case(lambda x: aten.max_pool2d_with_indices(x, [2, 2], [1, 1], [0, 0], [2, 2], True), R(1, 2, 6, 5)),
    ],
    "max_pool3d_with_indices": [case(lambda x: aten.max_pool3d_with_indices(x, [2, 2, 2]), R(1, 2, 4, 4, 2))],
    "native_layer_norm": [
        case(lambda x, w, b: saved(aten.native_layer_norm(x, [4], w, b, 1e-5)), R(3, 4), R(4), R(4)),
        case(lambda x: saved(aten.native_layer_norm(x, [2, 3], None, None, 1e-3)), R(2, 2, 3)),
    ],
    "native_group_norm": [
        case(lambda x, w, b: saved(aten.native_group_norm(x, w, b, 2, 4, 9, 2, 1e-5)), R(2, 4, 3, 3), R(4), R(4))
    ],
    "_native_batch_norm_legit": [
        case(
            lambda x, w, b: saved(aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)),
            R(3, 4, 2),
            R(4),
            R(4),
        )
    ],
    "_native_batch_norm_legit_no_training": [
        case(
            lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(x, w, b, m.detach(), v.detach(), 0.1, 1e-5)[
                0
            ],
            R(3, 4, 2),
            R(4),
            R(4),
            R(4),
            P(4),
        )
    ],
    "native_dropout": [
        case(lambda x: aten.native_dropout(x, 0.5, True), R(3, 4), drawn=True),
        case(lambda x: aten.native_dropout(x, 0.0, True), R(3, 4)),
    ],
    "embedding": [
        case(aten.embedding, R(5, 3), I(2, 4, low=0, high=5)),
        case(lambda w, i: aten.embedding(w, i, 2), R(5, 3), I(4, low=0, high=5)),
    ],
    "_embedding_bag": [
        case(
            lambda w, i, o: aten._embedding_bag(w, i, o, False, 0)[0], R(5, 3), I(6, low=0, high=5), np.array([0, 2, 3])
        ),
        case(lambda w, i, o: aten._embedding_bag(w, i, o, False, 1)[0], R(5, 3), I(6, low=0, high=5), np.array([0, 4])),
    ],
    "constant_pad_nd": [
        case(lambda x: aten.constant_pad_nd(x, [1, 2], 0.5), R(2, 3)),
        case(lambda x: aten.constant_pad_nd(x, [1, 0, 2, 1]), R(2, 3)),
        case(lambda x: aten.constant_pad_nd(x, [-1, 1]), R(2, 3)),
    ],
    "reflection_pad1d": [case(lambda x: aten.reflection_pad1d(x, [1, 2]), R(2, 2, 4))],
    "reflection_pad2d": [case(lambda x: aten.reflection_pad2d(x, [1, 2, 1, 0]), R(2, 2, 4, 4))],
    "reflection_pad3d": [case(lambda x: aten.reflection_pad3d(x, [1, 0, 1, 0, 0, 1]), R(1, 2, 3, 3, 3))],
    "replication_pad2d": [case(lambda x: aten.replication_pad2d(x, [1, 2, 1, 0]), R(2, 2, 4, 4))],
    "replication_pad3d": [case(lambda x: aten.replication_pad3d(x, [1, 0, 1, 0, 0, 2]), R(1, 2, 3, 3, 3))],
    "col2im": [case(lambda x: aten.col2im(x, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), R(1, 8, 12))],
    "grid_sampler_2d": [
        case(lambda x, g, m=m, p=p, c=c: aten.grid_sampler_2d(x, g, m, p, c), R(1, 2, 4, 5), U(1, 3, 3, 2))
        for m, p, c in ((0, 0, False), (0, 1, True), (1, 0, False), (0, 2, False))
    ],
    "upsample_bilinear2d": [
        case(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), R(1, 2, 3, 4)),
        case(lambda x: F.interpolate(x, size=(5, 3), mode="bilinear", align_corners=True), R(1, 2, 3, 4)),
    ],
    "upsample_nearest2d": [case(lambda x: F.interpolate(x, scale_factor=2), R(1, 2, 3, 4))],
}

# -- derivatives: their own are not compared, as PyTorch has not all of them

_POOL = np.arange(32.0).reshape(1, 2, 4, 4)[..., ::-1] % 7.3


def _taken(function: Callable[..., Any], *inputs: np.ndarray, **options: Any) -> Sample:
    return case(lambda *tensors: function(*(t.detach() for t in tensors)), *inputs, **options)


DERIVATIVES: dict[str, list[Sample]] = {
    f"{name}_backward": [_taken(getattr(aten, f"{name}_backward"), R(2, 3), R(2, 3))]
    for name in ("gelu", "silu", "mish", "hardswish")
}
DERIVATIVES |= {
    "gelu_backward": [
        _taken(aten.gelu_backward, R(2, 3), R(2, 3)),
        _taken(lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), R(2, 3), R(2, 3)),
    ],
    "hardsigmoid_backward": [_taken(aten.hardsigmoid_backward, R(2, 3), R(2, 3), rtol=1e-7)],  # float32(1/6) there
    "sigmoid_backward": [_taken(aten.sigmoid_backward, R(2, 3), U(2, 3))],
    "tanh_backward": [_taken(aten.tanh_backward, R(2, 3), U(2, 3))],
    "threshold_backward": [_taken(lambda g, x: aten.threshold_backward(g, x, 0), R(6), R(6))],
    "hardtanh_backward": [_taken(lambda g, x: aten.hardtanh_backward(g, x, -1, 1), R(6), R(6))],
    "softplus_backward": [_taken(lambda g, x: aten.softplus_backward(g, x, 2, 1), R(6), R(6))],
    "leaky_relu_backward": [_taken(lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False), R(6), R(6))],
    "elu_backward": [
        _taken(lambda g, x: aten.elu_backward(g, 0.5, 2.0, 1.5, False, x), R(6), R(6)),
        _taken(lambda g, x: aten.elu_backward(g, 0.5, 2.0, 1.5, True, aten.elu(x, 0.5, 2.0, 1.5)), R(6), R(6)),
    ],
    "glu_backward": [_taken(lambda g, x: aten.glu_backward(g, x, -1), R(2, 2), R(2, 4))],
    "log_sigmoid_backward": [
        _taken(lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]), R(6), R(6))
    ],
    "_prelu_kernel_backward": [_taken(aten._prelu_kernel_backward, R(2, 3), R(2, 3), P(1, 3))],
    "_softmax_backward_data": [
        _taken(lambda g, x: aten._softmax_backward_data(g, torch.softmax(x, 1), 1, torch.float64), R(2, 3), R(2, 3))
    ],
    "_log_softmax_backward_data": [
        _taken(
            lambda g, x: aten._log_softmax_backward_data(g, torch.log_softmax(x, 1), 1, torch.float64), R(2, 3), R(2, 3)
        )
    ],
    "native_dropout_backward": [case(lambda g, m: aten.native_dropout_backward(g.detach(), m, 2.0), R(2, 3), B(2, 3))],
    "select_backward": [_taken(lambda g: aten.select_backward(g, [2, 3], 0, 1), R(3))],
    "slice_backward": [_taken(lambda g: aten.slice_backward(g, [2, 5], 1, 0, 9, 2), R(2, 3))],
    "embedding_dense_backward": [
        case(
            lambda g, i, k=k: aten.embedding_dense_backward(g.detach(), i, 5, k, False),
            R(2, 4, 3), I(2, 4, low=0, high=5),
        )
        for k in (-1, 2)
    ],
    "_adaptive_avg_pool2d_backward": [_taken(aten._adaptive_avg_pool2d_backward, R(1, 2, 3, 2), R(1, 2, 5, 4))],
    "avg_pool2d_backward": [
        _taken(
            lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
            R(1, 2, 2, 2), R(1, 2, 4, 4),
        )
    ],
    "max_pool2d_with_indices_backward": [
        _taken(
            lambda g, x: aten.max_pool2d_with_indices_backward(
                g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, aten.max_pool2d_with_indices(x, [2, 2])[1]
            ),
            R(1, 2, 2, 2), _POOL,
        )
    ],
    "convolution_backward": [
        _taken(
            lambda g, x, w: aten.convolution_backward(
                g, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
            ),
            R(2, 4, 5, 5), R(2, 3, 5, 5), R(4, 3, 3, 3),
        ),
        _taken(
            lambda g, x, w: aten.convolution_backward(
                g, x, w, [2], [2], [1], [1], True, [1], 1, [False, True, True]
            )[1:],
            R(2, 2, 8), R(2, 3, 4), R(3, 2, 3),
        ),
    ],
    "native_layer_norm_backward": [
        _taken(
            lambda g, x, w, b: aten.native_layer_norm_backward(
                g, x, [4], *aten.native_layer_norm(x, [4], w, b, 1e-5)[1:], w, b, [True, True, True]
            ),
            R(3, 4), R(3, 4), R(4), R(4),
        ),
        _taken(
            lambda g, x: aten.native_layer_norm_backward(
                g, x, [2, 2], *aten.native_layer_norm(x, [2, 2], None, None, 1e-5)[1:], None, None, [True, False, False]
            )[0],
            R(3, 2, 2), R(3, 2, 2),
        ),
    ],
    "native_group_norm_backward": [
        _taken(
            lambda g, x, w, b: aten.native_group_norm_backward(
                g, x, *aten.native_group_norm(x, w, b, 2, 4, 9, 2, 1e-5)[1:], w, 2, 4, 9, 2, [True, True, True]
            ),
            R(2, 4, 3, 3), R(2, 4, 3, 3), R(4), R(4),
        )
    ],
    "native_batch_norm_backward": [
        _taken(
            lambda g, x, w, b: aten.native_batch_norm_backward(
                g, x, w, None, None, *aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)[1:], True, 1e-5,
                [True, True, True],
            ),
            R(3, 4, 2), R(3, 4, 2), R(4), R(4),
        ),
        _taken(
            lambda g, x, w, m, v: aten.native_batch_norm_backward(
                g, x, w, m, v, None, None, False, 1e-5, [True, True, True]
            ),
            R(3, 4, 2), R(3, 4, 2), R(4), R(4), P(4),
        ),
    ],
    "nll_loss_backward": [
        case(
            lambda g, x, t: aten.nll_loss_backward(
                g.detach(), x.detach(), t, None, 1, -100, torch.tensor(3.0, dtype=torch.float64)
            ),
            R(), R(3, 4), I(3, low=0, high=4),
        )
    ],
    "mse_loss_backward": [_taken(lambda g, x, y: aten.mse_loss_backward(g, x, y, 1), R(), R(2, 3), R(2, 3))],
    "reflection_pad2d_backward": [
        _taken(lambda g, x: aten.reflection_pad2d_backward(g, x, [1, 2, 1, 0]), R(1, 2, 5, 7), R(1, 2, 4, 4))
    ],
}  # fmt: skip
