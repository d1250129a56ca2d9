"""Which parameters of a model are trained: a subset by name, and another one later.

What is not trained has no gradient and no state of the optimizer, and what only its gradient would read is not kept
until then. The model says what it freezes (the module attribute ``frozen``, ``R.Param(…, trainable=False)``); of the
rest, ``SetupTrainer(…, trainable=["head.*"])`` takes what one of the patterns matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.convention import ADJOINT, BACKBONE, GRADIENT, declarations
from pullback.relax.declared import PARAMETER, with_declared
from pullback.runtime.tensor import Tensor

if TYPE_CHECKING:  # they know SetupTrainer, which asks here
    from pullback.relax.training.interface import Interface
    from pullback.relax.training.step import Values

FROZEN = "frozen"  # module attribute: names of parameters that the model does not train


def patterns(what: str, given: Any) -> tuple[str, ...]:
    """Patterns of names, of one or several; an ArgumentError for what is none."""
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, (list, tuple, set, frozenset)) or not all(isinstance(p, str) for p in found):
        message = f"{what} must be patterns of parameter names, got {given!r:.80}"
        raise ArgumentError(message, hint='as of a shell: ["head.*", "*.bias"]')
    return tuple(found)


def matching(what: str, given: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that one of the patterns matches; an ArgumentError for a pattern that matches none."""
    for pattern in given:
        if not any(fnmatchcase(name, pattern) for name in names):
            message = f"{what}: no parameter matches {pattern!r}; the parameters are: {', '.join(names)}"
            raise ArgumentError(message, hint="patterns are those of a shell: 'layer1.*', '*_b'")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in given)]


def frozen_by(module: IRModule, names: Sequence[str]) -> tuple[str, ...]:
    """Of the parameters, those that the model freezes. An ArgumentError where the attribute names others."""
    attribute = tuple(module.attrs.get(FROZEN, ()))
    unknown = [str(name) for name in attribute if name not in names]
    if unknown:
        raise ArgumentError(f"frozen: there is no parameter {', '.join(unknown)}; they are: {', '.join(names)}")
    declared = declarations(module) or ()
    pairs = zip(module[BACKBONE].params, declared, strict=False)
    off = {p.name for p, d in pairs if d.kind == PARAMETER and not d.trainable}
    return tuple(name for name in names if name in off or name in attribute)


def not_trained(module: IRModule, names: Sequence[str], trainable: Any = None) -> tuple[str, ...]:
    """The names of parameters that are not trained. An ArgumentError where nothing is left, or where ``trainable``
    asks for what the model freezes."""
    frozen = frozen_by(module, names)
    if trainable is not None:
        for pattern in patterns("trainable", trainable):
            if set(matching("trainable", [pattern], names)) <= set(frozen):
                message = f"trainable: {pattern!r} matches only what the model freezes: {', '.join(frozen)}"
                raise ArgumentError(message, hint="requires_grad_(True) of the layer, or trainable=True of R.Param")
        chosen = matching("trainable", patterns("trainable", trainable), names)
        frozen = tuple(name for name in names if name in frozen or name not in chosen)
    if len(frozen) == len(names):
        hint = "leave one trained: requires_grad=True, or trainable=True of R.Param"
        raise ArgumentError("all parameters are frozen", hint=hint)
    return frozen


def trained_by(interface: Interface) -> tuple[str, ...]:
    """The names of the parameters that a trainer module trains."""
    found = {i for kind, i in interface.convention[ADJOINT].returns if kind == GRADIENT}
    return tuple(slot.name for i, slot in enumerate(interface.params) if i in found)


def with_frozen(module: IRModule, names: Sequence[str]) -> IRModule:
    """The model, freezing just these parameters."""
    result = IRModule(module.functions, {k: v for k, v in module.attrs.items() if k != FROZEN})
    declared = declarations(module)
    if declared is None:
        return result.with_attr(FROZEN, tuple(names)) if names else result
    backbone = module[BACKBONE]
    pairs = zip(backbone.params, declared, strict=True)
    changed = [replace(d, trainable=p.name not in names) if d.kind == PARAMETER else d for p, d in pairs]
    result[BACKBONE] = with_declared(backbone, changed)
    return result


def carried(old: Interface, values: Values, new: Interface, initial: Sequence[Tensor]) -> Values:
    """A trainer's values for the same model with another subset. Optimizer states that both have stay; those of
    parameters that were not trained are ``initial``, averages of these the parameters themselves."""
    known = dict(zip(_state_keys(old), values.optimizer_states, strict=True))
    states = [known.get(key, first) for key, first in zip(_state_keys(new), initial, strict=True)]
    params = {slot.name: value for slot, value in zip(new.params, values.params, strict=True)}
    for name, place in new.record.averages.items():
        value = params.get(name)
        if name not in old.record.averages and value is not None:
            states[place] = value.copy()
    return replace(values, optimizer_states=tuple(states))


def _state_keys(interface: Interface) -> list[tuple[str, str]]:
    """What each optimizer state is: its label, and the group of parameters that it belongs to."""
    record: Mapping[str, Any] = vars(interface.record)
    return list(zip_longest(record["optimizer_states"], record["optimizer_groups"], fillvalue=""))
