"""relay's operators. Importing this package registers them all; one file a family."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import NoAttribute, suggestion
from pullback.relay.op import (  # noqa: F401
    convolution,
    create,
    dense,
    elementwise,
    index,
    loss,
    normalization,
    order,
    pool,
    reduce,
    shape,
)
from pullback.relay.op.gradients import register_gradients
from pullback.relay.op.registry import Op, OpPattern, get

__all__ = ["Op", "OpPattern", "get"]

register_gradients()
