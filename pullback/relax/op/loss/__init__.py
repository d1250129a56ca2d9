"""Losses, ``R.nn``: of single elements, of classes, by margins, of sequences."""

from __future__ import annotations

from pullback.relax.op.loss import cross_entropy, ctc, margin, pointwise  # noqa: F401
