"""Layers whose parameters are variables named after them: ``conv0_weight``, ``bn0_gamma``."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError


def _parameter(given: Any, name: str | None, kind: str) -> Any:
    if given is None and name is None:
        raise ArgumentError(f"a layer needs a name, or its {kind}", hint='write name="conv0"')
    return relay.var(f"{name}_{kind}") if given is None else given


def batch_norm_infer(
    data: Any,
    gamma: Any = None,
    beta: Any = None,
    moving_mean: Any = None,
    moving_var: Any = None,
    name: str | None = None,
    **attrs: Any,
) -> Any:
    """The first result of ``nn.batch_norm``."""
    given = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    parameters = {kind: _parameter(value, name, kind) for kind, value in given.items()}
    return relay.nn.batch_norm(data, **parameters, **attrs)[0]


def conv1d(data: Any, weight: Any = None, name: str | None = None, **attrs: Any) -> Any:
    """``nn.conv1d``; channels and kernel_size give the weight its shape."""
    return relay.nn.conv1d(data, _parameter(weight, name, "weight"), **attrs)


def conv2d(data: Any, weight: Any = None, name: str | None = None, **attrs: Any) -> Any:
    """``nn.conv2d``; channels and kernel_size give the weight its shape."""
    return relay.nn.conv2d(data, _parameter(weight, name, "weight"), **attrs)


def conv3d(data: Any, weight: Any = None, name: str | None = None, **attrs: Any) -> Any:
    """``nn.conv3d``; channels and kernel_size give the weight its shape."""
    return relay.nn.conv3d(data, _parameter(weight, name, "weight"), **attrs)


def conv2d_transpose(data: Any, weight: Any = None, name: str | None = None, **attrs: Any) -> Any:
    """``nn.conv2d_transpose``; channels and kernel_size give the weight its shape."""
    return relay.nn.conv2d_transpose(data, _parameter(weight, name, "weight"), **attrs)


def dense_without_bias(data: Any, weight: Any = None, units: int | None = None, name: str | None = None) -> Any:
    """``nn.dense``."""
    return relay.nn.dense(data, _parameter(weight, name, "weight"), units)


def dense_add_bias(
    data: Any, weight: Any = None, bias: Any = None, units: int | None = None, name: str | None = None, **attrs: Any
) -> Any:
    """``nn.dense`` and ``nn.bias_add``."""
    product = relay.nn.dense(data, _parameter(weight, name, "weight"), units, **attrs)
    return relay.nn.bias_add(product, _parameter(bias, name, "bias"), axis=-1)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The layout of a convolution's weight that goes with that of its data."""
    layouts = {
        "NCHW": ("OIHW", "OIHW"),
        "NHWC": ("HWIO", "HWOI"),
        "NCDHW": ("OIDHW", "OIDHW"),
        "NDHWC": ("DHWIO", "DHWOI"),
    }
    if data_layout not in layouts:
        raise ArgumentError(f"there is no kernel layout for {data_layout!r}", hint=f"known are {', '.join(layouts)}")
    return layouts[data_layout][is_depthwise]
