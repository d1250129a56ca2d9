"""Updates of a module's weights, as they are part of its exported function: what ``LoRA`` makes (``nn/lora.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pullback.nn.parameter import Parameter
from pullback.relax.expr import Function, Var
from pullback.relax.transform.low_rank import LowRank, Update, with_updates

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


def updates_in(module: Module) -> Iterator[tuple[Module, WeightUpdate]]:
    """The updates of a module and of all below it, and who holds them."""
    return ((owner, update) for owner in module.modules() for update in owner.weight_updates)


def named_updates(module: Module) -> tuple[Update, ...]:
    """The updates by the names of their parameters."""
    names = {id(p): name for name, p in module.named_parameters()}
    return tuple(
        Update(names[id(u.weight)], names[id(u.a)], names[id(u.b)], u.scale, u.dropout, u.transposed)
        for _, u in updates_in(module)
    )


def updated(function: Function, module: Module, variables: Mapping[int, Var]) -> Function:
    """A traced function with the module's updates; ``variables``: what its parameters are there, by identity."""
    found = [
        LowRank(variables[id(u.weight)], variables[id(u.a)], variables[id(u.b)], u.scale, u.dropout, u.transposed)
        for _, u in updates_in(module)
    ]
    return with_updates(function, found)
