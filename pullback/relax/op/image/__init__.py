"""Ops of images, ``R.image``: resizing, sampling at given places, augmentation."""

from __future__ import annotations

from pullback.relax.op.image import augment, grid_sample, resize  # noqa: F401
from pullback.relax.op.namespace import in_package

__getattr__ = in_package("image")
