"""Ops that go element by element: of one tensor, of two that broadcast; special functions; quantization."""

from __future__ import annotations

from pullback.relax.op.elementwise import binary, quantize, special, unary  # noqa: F401
