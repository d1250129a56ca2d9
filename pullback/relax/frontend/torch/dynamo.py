"""``torch.compile(model, backend="pullback")``: PyTorch captures graphs, pullback differentiates and compiles them.

    >>> model = torch.compile(net, backend="pullback")
    >>> loss = F.cross_entropy(model(x), y)
    >>> loss.backward()                     # both directions are native code of pullback
    >>> optimizer.step()                    # PyTorch's own

PyTorch finds the backend by an entry point of the installed package, or when this package was imported. A graph is
compiled at its first call, again for inputs of other shapes. One that cannot be compiled runs in PyTorch, and a warning
says why.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.forks import renewed
from pullback.relax.frontend.torch.captured import numbers
from pullback.relax.frontend.torch.compiled import Compiled

__all__ = ["NotCompiled", "backend", "register"]

NAME = "pullback"
_OPTIONS = {"target": "llvm", "fallback": True}


class NotCompiled(UserWarning):
    """A graph runs in PyTorch, since it could not be compiled."""


def backend(graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any) -> Any:
    """What ``torch.compile`` calls with each graph that it captured; returns a function of the graph's inputs.

    ``options``, of torch.compile: "target", as of :func:`pullback.compile`; with "fallback" False, what cannot be
    compiled is an error instead of a warning.

    >>> torch.compile(net, backend="pullback", options={"fallback": False})

    Raises ArgumentError for other options.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ArgumentError(
                f'the backend "pullback" has no option {name!r}{suggestion(name, _OPTIONS)}', hint=f"it has {known}"
            )
    return _Graph(graph, **{**_OPTIONS, **given})


class _Graph:
    """A captured graph, with what was compiled of it so far."""

    def __init__(self, graph: Any, target: Any, fallback: bool) -> None:
        self.graph, self.target, self.fallback = graph, target, fallback
        self._numbers = tuple(numbers(graph))
        self._compiled: dict[Any, Compiled | None] = {}
        self._lock = threading.RLock()
        renewed(self, "_lock")

    def __call__(self, *inputs: Any) -> Any:
        compiled = self.compiled(inputs)
        return self.graph(*inputs) if compiled is None else compiled(*inputs)

    def compiled(self, inputs: Sequence[Any]) -> Compiled | None:
        """What is compiled for inputs like these; None where they are left to PyTorch."""
        import torch

        key = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), *map(_kind, inputs))
        key += tuple(inputs[k].item() for k in self._numbers)
        if key not in self._compiled:
            with self._lock:
                if key not in self._compiled:
                    self._compiled[key] = self._make(inputs)
        return self._compiled[key]

    def _make(self, inputs: Sequence[Any]) -> Compiled | None:
        import torch

        needs_gradients = torch.is_grad_enabled()  # inference_mode(False) sets it
        try:
            with torch.inference_mode(False), torch.set_grad_enabled(needs_gradients):
                return Compiled(self.graph, inputs, self.target)
        except Exception as error:
            if not self.fallback:
                raise
            _warn(error)
            return None


def _kind(value: Any) -> Any:
    """What a graph is compiled anew for."""
    if not hasattr(value, "requires_grad"):
        return type(value), value
    return value.shape, value.stride(), value.requires_grad, value.is_leaf


_warned: set[str] = set()


def _warn(error: Exception) -> None:
    """Say once why a graph runs in PyTorch."""
    lines = str(error).strip().splitlines() or [""]
    told = "\n".join(lines) if isinstance(error, UserError) else f"{type(error).__name__}: {lines[0]}"
    if told in _warned:
        return
    _warned.add(told)
    warnings.warn(f'a graph of torch.compile(backend="pullback") runs in PyTorch: {told}', NotCompiled, stacklevel=4)


def register() -> None:
    """Make the name "pullback" known to ``torch.compile``; where it is already, nothing happens."""
    from torch._dynamo.backends import registry

    if NAME not in registry._BACKENDS:  # else by the entry point
        registry.register_backend(backend, name=NAME)
