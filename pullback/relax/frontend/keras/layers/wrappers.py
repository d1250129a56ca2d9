"""Layers around layers."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.frontend.keras.table import KERAS, Call


@KERAS.register("layers.Bidirectional")
def bidirectional(c: Call, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None) -> Any:
    half = 0 if initial_state is None else len(initial_state) // 2
    states = (None, None) if initial_state is None else (initial_state[:half], initial_state[half:])
    found = []
    for layer, state in zip((c.forward_layer, c.backward_layer), states, strict=True):
        kwargs = {"training": training} if layer._call_has_training_arg else {}
        kwargs |= {"mask": mask} if mask is not None else {}
        kwargs |= {"initial_state": list(state)} if state is not None else {}
        found.append(c.run(layer, sequences, **kwargs))
    ends: tuple[Any, ...] = ()
    if c.return_state:
        ends = (*found[0][1:], *found[1][1:])
        found = [f[0] for f in found]
    y, reverse = found
    reverse = op.flip(reverse, 1) if c.return_sequences else reverse
    merged = {
        "concat": lambda: op.concat([y, reverse], -1), "sum": lambda: y + reverse, "ave": lambda: (y + reverse) / 2.0,
        "mul": lambda: y * reverse, None: lambda: (y, reverse),
    }[c.merge_mode]()  # fmt: skip
    if not c.return_state:
        return merged
    return (*merged, *ends) if c.merge_mode is None else (merged, *ends)


@KERAS.register("layers.TimeDistributed")
def time_distributed(c: Call, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """The layer of all steps at once, as rows of one batch."""
    if any(v.trainable is False and v.name.startswith("moving") for v in c.layer.weights):
        raise UserError("TimeDistributed of batch normalisation is not converted", hint="normalise over all steps")
    steps, rest = inputs.shape[1], tuple(inputs.shape[2:])
    kwargs = {"training": training} if c.layer._call_has_training_arg else {}
    if mask is not None and c.layer._call_has_mask_arg:
        kwargs["mask"] = op.reshape(mask, (-1, *mask.shape[2:]))
    found = c.run(c.layer, op.reshape(inputs, (inputs.shape[0] * steps, *rest)), **kwargs)
    return op.reshape(found, (inputs.shape[0], steps, *found.shape[1:]))
