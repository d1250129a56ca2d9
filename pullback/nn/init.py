"""Initial values of parameters: see ``relax/training/initializers.py``."""

from pullback.relax.training.initializers import *  # noqa: F403
from pullback.relax.training.initializers import __all__  # noqa: F401
