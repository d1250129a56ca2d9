"""Reductions over axes, norms, and running sums."""

from __future__ import annotations

from pullback.relax.op.reduction import norm, reduce, scan  # noqa: F401
