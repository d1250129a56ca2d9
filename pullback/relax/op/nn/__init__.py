"""Ops of neural networks, ``R.nn``; its losses are in ``relax/op/loss``, its padding in ``relax/op/manipulate``."""

from __future__ import annotations

from pullback.relax.op.namespace import in_package
from pullback.relax.op.nn import (  # noqa: F401
    activation,
    attention,
    average_pool,
    batch_norm,
    convolution,
    convolution_form,
    embedding,
    form,
    max_pool,
    moments,
    norm_pool,
    normalization,
    pixel,
    pooling,
    softmax,
    sync_batch_norm,
    window,
)

__getattr__ = in_package("nn")
