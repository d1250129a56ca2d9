"""Recurrent layers whose sequences may have any length.

``torch.export`` computes the types of ``lstm`` and its like by going through the steps, which fixes their number. While
it runs, layers call operators of ours in their place, which say their types by a formula.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pullback.relax.frontend.torch.aten import recurrent

__all__ = ["CONVERTERS", "define", "lengths_free"]

NAMESPACE = "pullback"
_LAYERS = {"lstm": recurrent.lstm, "gru": recurrent.gru, **{f"rnn_{n}": f for n, f in recurrent.PLAIN.items()}}
CONVERTERS: dict[str, Callable[..., Any]] = {f"{NAMESPACE}.{name}": convert for name, convert in _LAYERS.items()}
_REST = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
_libraries: list[Any] = []  # operators live as long as the library that defined them


@contextlib.contextmanager
def lengths_free(torch: Any) -> Iterator[None]:
    """Layers called inside of it are operators of ours, but for packed sequences."""
    functions = {name: getattr(torch._VF, name) for name in _LAYERS}
    try:
        for name, function in functions.items():
            setattr(torch._VF, name, _free(getattr(getattr(torch.ops, NAMESPACE), name), function))
        yield
    finally:
        for name in functions:
            delattr(torch._VF, name)  # what it finds by itself is the function


def _free(operator: Any, function: Any) -> Any:
    def call(input: Any, hx: Any, *rest: Any) -> Any:
        if not isinstance(rest[0], (list, tuple)):  # of a packed sequence, whose third argument is the states
            return function(input, hx, *rest)
        return operator(input, list(hx) if isinstance(hx, (list, tuple)) else hx, list(rest[0]), *rest[1:])

    return call


def define(torch: Any) -> None:
    """Make the operators known to PyTorch."""
    if _libraries:
        return
    library = torch.library.Library(NAMESPACE, "DEF")
    _libraries.append(library)
    for name in _LAYERS:
        states, results = ("Tensor[]", ", Tensor") if name == "lstm" else ("Tensor", "")
        library.define(f"{name}(Tensor input, {states} hx, {_REST}) -> (Tensor, Tensor{results})")

        def types(
            input: Any, hx: Any, params: Any, biases: Any, layers: Any, p: Any, train: Any, both: bool, first: Any
        ) -> tuple[Any, ...]:
            given = hx if isinstance(hx, (list, tuple)) else (hx,)
            output = input.new_empty((*input.shape[:-1], given[0].shape[-1] * (1 + both)))
            return output, *(torch.empty_like(state) for state in given)

        torch.library.register_fake(f"{NAMESPACE}::{name}", types, lib=library)
