"""What programs for the reference use to write models by hand: ``relax.testing.nn``."""

from pullback.relax.testing import nn

__all__ = ["nn"]
