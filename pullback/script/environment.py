"""The Python names that a script may use: those visible where it was defined."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import Any


class Environment:
    """Layers of names; an inner layer hides the outer ones. ``hints`` say how to write names that are not here."""

    def __init__(self, *layers: Mapping[str, Any], hints: Mapping[str, str] = MappingProxyType({})) -> None:
        self.layers, self.hints = layers, hints

    def child(self, layer: Mapping[str, Any], hints: Mapping[str, str] | None = None) -> Environment:
        """This environment with one more, innermost layer."""
        return Environment(layer, *self.layers, hints=self.hints if hints is None else hints)

    def __contains__(self, name: str) -> bool:
        return any(name in layer for layer in self.layers)

    def __getitem__(self, name: str) -> Any:
        for layer in self.layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer in self.layers for name in layer))

    @staticmethod
    def of_text(extra_vars: Mapping[str, Any] | None) -> Environment:
        """What text without a definition site sees: I, R, T, the caller's extra names, and builtins."""
        from pullback.script import ir, relax, tir

        return Environment(dict(extra_vars or {}), {"I": ir, "R": relax, "T": tir}, vars(builtins))

    @staticmethod
    def of_frame(frame: FrameType) -> Environment:
        """What the code running in ``frame`` sees."""
        return Environment(dict(frame.f_locals), frame.f_globals, vars(builtins))

    def with_closure(self, function: Callable[..., Any]) -> Environment:
        """This environment, with the variables that ``function`` closes over in front."""
        return self.child(closure_of(function))


def closure_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of a Python function's closure cells that are set."""
    names = function.__code__.co_freevars
    values = {}
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # assigned later than the function was made
            continue
    return values
