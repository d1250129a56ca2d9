"""Random numbers, ``R.random``, and dropout."""

from __future__ import annotations

from pullback.relax.op.namespace import in_package
from pullback.relax.op.random import draw  # noqa: F401

__getattr__ = in_package("random")
