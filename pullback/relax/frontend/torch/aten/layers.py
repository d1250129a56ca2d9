"""Layers: what ``torch.nn.functional`` calls."""

from __future__ import annotations

from typing import Any

from pullback.nn import functional as F
from pullback.relax import op
from pullback.relax.frontend.torch.table import ATEN

ATEN.same({"aten.relu": op.nn.relu, "aten.linear": F.linear})


@ATEN.register("aten.conv2d")
def conv2d(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:  # fmt: skip
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
