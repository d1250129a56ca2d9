"""``relax.vm``: the names that older programs look for there."""

from pullback.driver import compile as build
from pullback.runtime.vm import VirtualMachine

__all__ = ["VirtualMachine", "build"]
