"""What code depends on besides the module and the target: read from the environment once for each function."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pullback.driver.debug import poison, switched_off
from pullback.driver.tuned import tuned_choices
from pullback.schedule.group import Machine
from pullback.schedule.tuning import Choices
from pullback.target import Target


@dataclass(frozen=True)
class Options:
    """``without``: schedules to do without; ``poison``: dead memory is filled with NaN; ``choices``: what was tuned."""

    without: tuple[str, ...]
    poison: bool
    choices: Choices

    @staticmethod
    def of(target: Target) -> Options:
        """What the environment says at this moment."""
        return Options(switched_off(), poison(), tuned_choices(target))

    @property
    def key(self) -> str:
        """All of it, for keys of compiled code."""
        choices = {key: choice.to_json() for key, choice in sorted(self.choices.by_key.items())}
        digest = hashlib.sha256(json.dumps(choices).encode()).hexdigest()
        return f"{self.without} {self.poison} {digest}"

    def machine(self, target: Target) -> Machine:
        """What schedules know of the target."""
        abilities = target.abilities
        fma = abilities.fma or abilities.relaxed_fma
        registers = target.registers if fma else target.registers - 1  # one holds the products
        known = (self.without, fma, self.choices, abilities.fast_pair_dot, abilities.vectors)
        return Machine(target.vector_bytes, registers, *known, **vars(abilities.figures))
