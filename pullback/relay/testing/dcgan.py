"""The generator of DCGAN. Radford et al., Unsupervised Representation Learning with Deep Convolutional Generative
Adversarial Networks, 2016."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer, conv2d_transpose


def deconv2d(data: Any, ishape: Any, oshape: Any, kshape: tuple[int, int], name: str, stride: Any = (2, 2)) -> Any:
    """A transposed convolution from images of ishape (C, H, W) to oshape."""
    pad = [(k - 1) // 2 for k in kshape]
    more = [(oshape[i + 1] + 2 * pad[i] - kshape[i]) % stride[i] for i in range(2)]
    window = {"kernel_size": kshape, "strides": stride, "padding": tuple(pad), "output_padding": tuple(more)}
    return conv2d_transpose(data, channels=oshape[0], name=name, **window)


def deconv2d_bn_relu(data: Any, prefix: str, **attrs: Any) -> Any:
    """A transposed convolution, its normalization and relu."""
    found = deconv2d(data, name=f"{prefix}_deconv", **attrs)
    return relay.nn.relu(batch_norm_infer(found, epsilon=1e-5, scale=False, name=f"{prefix}_batch_norm"))


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relay.Function:
    """A function from codes of random_len numbers to images of 64 × 64.

    Raises ArgumentError for other sizes and layouts.
    """
    if tuple(oshape[-2:]) != (64, 64) or layout != "NCHW":
        raise ArgumentError("dcgan makes images of 64 × 64, in the layout NCHW")
    code = relay.var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    body = relay.nn.relu(relay.nn.dense(code, relay.var("dense_weight"), units=4 * 4 * ngf * 8))
    body = relay.reshape(body, newshape=(-1, ngf * 8, 4, 4))
    shape = (ngf * 8, 4, 4)
    for prefix in ("g2", "g3", "g4"):
        larger = (shape[0] // 2, shape[1] * 2, shape[2] * 2)
        body = deconv2d_bn_relu(body, prefix, ishape=shape, oshape=larger, kshape=(4, 4))
        shape = larger
    body = deconv2d(body, shape, oshape[-3:], (4, 4), name="g5_deconv")
    result = relay.tanh(body)
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """The generator as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype))
