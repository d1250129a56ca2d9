"""Ops of boxes in images, ``R.vision``: which are kept of those that overlap, and what is cut out by them."""

from __future__ import annotations

from pullback.relax.op.namespace import in_package
from pullback.relax.op.vision import detection, regions, roi_align, suppression  # noqa: F401

__getattr__ = in_package("vision")
