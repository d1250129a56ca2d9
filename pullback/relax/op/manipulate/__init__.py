"""Tensors made of nothing, and the same elements in other places: reshaped, joined, cut, padded."""

from __future__ import annotations

from pullback.relax.op.manipulate import create, join, layout, pad, rearrange, shape  # noqa: F401
