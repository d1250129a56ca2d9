"""Values of a module's parameters: drawn by pattern, and handed to a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import ShapeError
from pullback.relax.training.initialize import generator
from pullback.relax.training.initializers import by_pattern, match

if TYPE_CHECKING:
    from pullback.nn.module import Module


def draw(module: Module, seed: int, init: Any, keep: bool) -> None:
    """Draw values: see :meth:`Module.init_parameters`. Each tensor has a generator of its own, made of the seed and its
    place in the module, so a pattern for one leaves the values of the others as they are."""
    generator(seed)  # an ArgumentError for what is no seed
    names = [name for name, _ in module.named_parameters()]
    chosen = {} if init is None else match(by_pattern(init), names)
    for place, (name, variable) in enumerate((*module.named_parameters(), *module.named_buffers())):
        found = chosen.get(name) if place < len(names) else None
        if found is None and keep and variable.has_value:
            continue
        source = np.random.Generator(np.random.PCG64([seed, place]))
        try:
            variable.draw(source, found)
        except ShapeError as error:
            if found is None or variable.ndim > 1:
                raise ShapeError(f"{name}: {error.message}", hint=error.hint) from None
            if not (keep and variable.has_value):
                variable.draw(source)
