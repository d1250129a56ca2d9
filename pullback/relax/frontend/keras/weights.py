"""Weights on their way back to Keras."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ArgumentError, NameNotFound, ShapeError
from pullback.nn.module import Module
from pullback.nn.updates import merged_values

__all__ = ["to_keras"]


def to_keras(source: Any, model: Any = None) -> Any:
    """Set the weights of a model of Keras to those of an imported one, and return it: parameters and states, such as
    the moving statistics of batch norm.

    ``source``: what ``from_keras`` returned, or a trainer of it. ``model``: by default the model that was imported; or
    another one of the same layers, such as the ``keras.models.clone_model`` of it.

    >>> trainer.fit(x, y, epochs=3)
    >>> to_keras(trainer).predict(x)          # Keras's own predict, with what was trained

    All of it is checked before anything is set. Raises NameNotFound and ShapeError for a model of other weights,
    ArgumentError for a source that is no imported model.
    """
    from pullback.relax.frontend.keras.model import KerasModel, weights_of

    net = source if isinstance(source, Module) else getattr(source, "model", None)
    if not isinstance(net, KerasModel):
        kind = type(net if net is not None else source).__name__
        raise ArgumentError(f"to_keras takes what from_keras returned, or a trainer of it, got {kind}")
    chosen = net.source if model is None else model
    variables = {name: variable for name, variable, _ in weights_of(chosen)}
    missing, extra = sorted(set(net.held) - set(variables)), sorted(set(variables) - set(net.held))
    if len(missing) == len(extra) == len(net.held) or (missing and len(variables) == len(net.held)):
        variables = dict(zip(net.held, variables.values(), strict=True))  # layers of other names, in the same order
    elif missing or extra:
        what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)} more"
        raise NameNotFound(f"the model {chosen.name} {what}", hint="it must have the layers of the imported model")
    values = merged_values(net)
    for name, variable in variables.items():
        if tuple(variable.shape) != values[name].shape:
            raise ShapeError(
                f"{variable.path} of the model {chosen.name} has the shape {tuple(variable.shape)},"
                f" and {name} the shape {values[name].shape}"
            )
    for name, variable in variables.items():
        variable.assign(values[name])
    return chosen
