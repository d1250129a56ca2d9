"""What fine-tuning adds to a module, as it is part of its exported function: updates of weights, which ``LoRA`` makes
(``nn/lora.py``), and adapters behind layers (``nn/adapter.py``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.nn.parameter import Parameter
from pullback.relax.expr import Function, Var
from pullback.relax.training.adapters import BOTTLENECKS, FROZEN_FOR
from pullback.relax.training.adapters import updated as updated_weight
from pullback.relax.transform.insert_adapters import LayerAdapter, with_adapters
from pullback.relax.transform.low_rank import LOW_RANK, LowRank, Update, as_attribute, with_updates

if TYPE_CHECKING:
    from pullback.nn.module import Module


@dataclass(frozen=True, eq=False)
class WeightUpdate:
    """W + scale·B·A in the place of a module's parameter: see :class:`LowRank`."""

    weight: Parameter
    a: Parameter
    b: Parameter
    scale: float
    dropout: float
    transposed: bool


@dataclass(frozen=True, eq=False)
class MergedUpdate:
    """An update that is part of its weight: what the weight is called in its module, and was before."""

    update: WeightUpdate
    key: str
    before: np.ndarray


@dataclass(frozen=True, eq=False)
class Bottleneck:
    """An adapter behind the module that holds it; ``parts`` are its parameters, as :class:`LayerAdapter` has them."""

    parts: tuple[Parameter, Parameter, Parameter, Parameter]
    activation: str
    axis: int


def updates_in(module: Module) -> Iterator[tuple[Module, WeightUpdate]]:
    """The updates of a module and of all below it, and who holds them."""
    return ((owner, update) for owner in module.modules() for update in owner._weight_updates)


def named_updates(module: Module) -> tuple[Update, ...]:
    """The updates by the names of their parameters."""
    names = {id(p): name for name, p in module.named_parameters()}
    return tuple(
        Update(names[id(u.weight)], names[id(u.a)], names[id(u.b)], u.scale, u.dropout, u.transposed)
        for _, u in updates_in(module)
    )


def bottlenecks_in(module: Module) -> Iterator[tuple[str, Bottleneck]]:
    """The adapters behind layers, by the names of these."""
    return ((name, inner._layer_adapter) for name, inner in module.named_modules() if inner._layer_adapter is not None)


def attributes(module: Module) -> dict[str, Any]:
    """The module attributes that say what was added."""
    names = {id(p): name for name, p in module.named_parameters()}
    updates = as_attribute(named_updates(module))
    adapters = {layer: tuple(names[id(p)] for p in one.parts) for layer, one in bottlenecks_in(module)}
    frozen = tuple(name for name, p in module.named_parameters() if p.frozen_by_update and not p.requires_grad)
    found = {LOW_RANK: updates, BOTTLENECKS: adapters, FROZEN_FOR: frozen}
    return {key: value for key, value in found.items() if value}


def updated(function: Function, module: Module, variables: Mapping[int, Var], states: int) -> Function:
    """A traced function with all that was added to the module; ``variables``: what its parameters are there, by
    identity; ``states``: how many of its results, the last ones, are new values of states."""
    updates = [
        LowRank(variables[id(u.weight)], variables[id(u.a)], variables[id(u.b)], u.scale, u.dropout, u.transposed)
        for _, u in updates_in(module)
    ]
    behind = [
        LayerAdapter.made_of(layer, [variables[id(p)] for p in one.parts], one.activation, one.axis)
        for layer, one in bottlenecks_in(module)
    ]
    return with_updates(with_adapters(function, behind, states), updates)


def merged_values(module: Module) -> dict[str, np.ndarray]:
    """The values of parameters and persistent buffers under all of their names, without those that were added: updates
    are part of their weights.

    Raises UserError for a module with adapters behind layers, which are no part of any weight.
    """
    behind = [name for name, _ in bottlenecks_in(module)]
    if behind:
        raise UserError(
            f"the adapters behind {', '.join(behind)} cannot be part of a weight",
            hint="trainer.state_dict() has them; updates of nn.LoRA can be merged",
        )
    module.init_parameters(keep=True)
    found = list(updates_in(module))
    added = {id(p) for _, u in found for p in (u.a, u.b)}
    changed = {
        id(u.weight): updated_weight(u.weight.numpy(), u.a.numpy(), u.b.numpy(), u.scale, u.transposed)
        for _, u in found
    }  # fmt: skip
    variables = {name: v for name, v in module._variables() if id(v) not in added}
    return {name: changed[id(v)] if id(v) in changed else v.numpy() for name, v in variables.items()}


# ---- what is trained


def own_parameters(module: Module) -> dict[int, tuple[Parameter, tuple[str, ...]]]:
    """The parameters that were not added, with all of their names, by identity."""
    added = {id(p) for _, u in updates_in(module) for p in (u.a, u.b)}
    added |= {id(p) for _, one in bottlenecks_in(module) for p in one.parts}
    found: dict[int, tuple[Parameter, tuple[str, ...]]] = {}
    for name, variable in module._variables():
        if isinstance(variable, Parameter) and id(variable) not in added:
            _, names = found.get(id(variable), (variable, ()))
            found[id(variable)] = variable, (*names, name)
    return found


def freeze_others(module: Module, saved: Collection[str]) -> None:
    """Have no parameter trained but those that were added, and those named ``saved``."""
    for parameter, names in own_parameters(module).values():
        if names[0] in saved:
            parameter.requires_grad |= parameter.frozen_by_update
            parameter.frozen_by_update = False
        elif parameter.requires_grad:
            parameter.requires_grad, parameter.frozen_by_update = False, True


def set_frozen(module: Module, frozen: bool) -> None:
    """Have what :func:`freeze_others` froze trained again, or not."""
    for parameter in module.parameters():
        if parameter.frozen_by_update:
            parameter.requires_grad = not frozen
