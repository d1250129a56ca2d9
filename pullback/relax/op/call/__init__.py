"""Calls of what is no op: kernels of the loop IR, tensor expressions, functions by registered name."""

from __future__ import annotations

from pullback.relax.op.call import call_te, call_tir, packed  # noqa: F401
