"""Ways to write graph functions besides the script: ``from pullback.relax.frontend import nn``."""

from __future__ import annotations

from pullback.relax.frontend import nn

__all__ = ["nn"]
