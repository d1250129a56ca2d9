"""LoRA: a model is fine-tuned by low-rank updates of some of its weights, which stay as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter
from pullback.nn.updates import (
    MergedUpdate,
    WeightUpdate,
    freeze_others,
    own_parameters,
    set_frozen,
    updates_in,
)
from pullback.relax.convention import BACKBONE, PARAMETER
from pullback.relax.training import adapters
from pullback.relax.training.adapters import BEGIN, ZEROS, Candidate
from pullback.relax.training.setup_trainer import check_backbone, with_backbone
from pullback.relax.training.subset import matching, patterns
from pullback.relax.transform.low_rank import Update, updates_of

__all__ = ["LoRA"]


@guided
class LoRA:
    """Fine-tuning by low-rank updates: a weight W is used as W + (alpha / rank)·B·A, of which only A and B are trained.
    Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021.

    The parameters of ``fc.weight`` are ``fc.lora_A``, (rank, in), which begins uniform in ±1/√in, and ``fc.lora_B``,
    (out, rank), which begins with zeros: at first the model computes what it did before. One weight has one update: of
    tied weights all places read the same sum, under the weight's first name. Linear layers, products, convolutions
    without groups and embeddings never make a gradient of the weight's size; other uses, such as a recurrent layer's,
    do so for W + s·B·A.

    Args:
        rank: of the update.
        alpha: what the update is multiplied with, divided by the rank.
        targets: patterns of the names of layers or parameters, as of a shell, or the last parts of a name ("query"); in
            one text, | stands between them. Targets are weights of two axes or more: of a linear layer, an embedding, a
            convolution (taken as a matrix, (out, in·kernel)), or a matrix that the model uses in any other way.
        dropout: of the inputs on the way through A and B, in steps.
        rslora: divides by the root of the rank instead (Kalajdzievski 2023).
        fan_in_fan_out: weights are (in, out), as those of a script that multiplies ``x @ w``, and B·A is transposed.
        modules_to_save: patterns of parameters that are trained as they are, such as a new head.

    Raises:
        ArgumentError: for a rank below 1, a dropout out of [0, 1), and targets that are no patterns.

    Examples:
        >>> lora = nn.LoRA(rank=2, alpha=4, targets=["2"])
        >>> tuned = pullback.trainer(net, "cross_entropy", "adamw", example=x, adapt=lora)
        >>> sorted(tuned.trained)
        ['2.lora_A', '2.lora_B']
    """

    def __init__(
        self,
        rank: int = 8,
        alpha: float = 16,
        targets: Sequence[str] | str = (),
        dropout: float = 0.0,
        *,
        rslora: bool = False,
        fan_in_fan_out: bool = False,
        modules_to_save: Sequence[str] | str = (),
    ) -> None:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ArgumentError(f"rank must be an int ≥ 1, got {rank!r}", hint="LoRA(rank=8, alpha=16, targets=…)")
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
            raise ArgumentError(f"alpha must be a number above 0, got {alpha!r}", hint="commonly twice the rank")
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
            raise ArgumentError(f"dropout must be a probability below 1, got {dropout!r}")
        self.rank, self.alpha, self.dropout = int(rank), float(alpha), float(dropout)
        self.targets = adapters.target_patterns(targets)
        self.rslora, self.fan_in_fan_out = bool(rslora), bool(fan_in_fan_out)
        self.modules_to_save = patterns("modules_to_save", modules_to_save)

    @property
    def scale(self) -> float:
        """What B·A is multiplied with."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def __call__(self, model: Any) -> Any:
        """Give the model's targets their updates, and freeze its other parameters but ``modules_to_save``. A module
        gets them in place and is returned; of an IRModule another one is. Trainers that are made later train them.

        Raises ArgumentError for targets that match nothing, match no matrix, are smaller than the rank, or have an
        update already.
        """
        if isinstance(model, Module):
            self._into(model)
            return model
        if isinstance(model, IRModule):
            return self._added(model)
        raise ArgumentError(f"LoRA is for an nn.Module or an IRModule, got {type(model).__name__}")

    def apply(self, model: Any, example: Any = None) -> Any:
        """What ``pullback.trainer(…, adapt=…)`` calls: the model with updates, which need no example."""
        return self(model)

    # ---- modules -----------------------------------------------------------------------------------------------------

    def _into(self, module: Module) -> None:
        known = {id(u.weight) for _, u in updates_in(module)}
        held = own_parameters(module)
        candidates = {key: Candidate(names, p.shape, p.dtype) for key, (p, names) in held.items()}
        found = {c.name for c in adapters.chosen(self.targets, list(candidates.values()), self.rank)}
        weights = [(p, names[0]) for p, names in held.values() if names[0] in found]
        for weight, name in weights:
            if id(weight) in known:
                raise _twice(name)
        freeze_others(module, self._saved([c.name for c in candidates.values()]))
        for weight, name in weights:
            owner, key = _owner(module, name)
            a, b = adapters.shapes(weight.shape, self.rank, self.fan_in_fan_out)
            update = WeightUpdate(
                weight, Parameter(a, init=BEGIN, dtype=weight.dtype), Parameter(b, init=ZEROS, dtype=weight.dtype),
                self.scale, self.dropout, self.fan_in_fan_out,
            )  # fmt: skip
            _attach(owner, key, update)

    def _saved(self, names: Sequence[str]) -> list[str]:
        return matching("modules_to_save", self.modules_to_save, names) if self.modules_to_save else []

    def merge(self, model: Any) -> Any:
        """Of a module: its weights become W + s·B·A, in place, and it has no updates any more, until
        :meth:`unmerge`; trainers that have its values keep theirs. All that was frozen for the updates is trained
        again. Returns the module. Of a trainer: returns ``trainer.merged_state_dict()``, and changes nothing.

        Raises UserError where there are no updates.
        """
        if not isinstance(model, Module):
            if not hasattr(model, "merged_state_dict"):
                raise ArgumentError(f"merge takes an nn.Module or a trainer, got {type(model).__name__}")
            return model.merged_state_dict()
        found = list(updates_in(model))
        if not found:
            raise UserError("the module has no updates to merge", hint="lora(net) gives it some")
        model.init_parameters(keep=True)
        new = [
            adapters.updated(u.weight.numpy(), u.a.numpy(), u.b.numpy(), u.scale, u.transposed) for _, u in found
        ]  # fmt: skip
        for (owner, update), value in zip(found, new, strict=True):
            merged = MergedUpdate(update, _detach(owner, update), update.weight.numpy())
            update.weight.own(value)
            owner._merged_updates = (*owner._merged_updates, merged)
        set_frozen(model, False)
        return model

    def unmerge(self, module: Module) -> Module:
        """Undo :meth:`merge`, in place: the weights are bit for bit what they were, and the updates there again.

        Raises UserError where nothing was merged.
        """
        owners = [owner for owner in module.modules() if owner._merged_updates]
        if not owners:
            raise UserError("the module has no merged updates", hint="lora.merge(net) merges those that it has")
        for owner in owners:
            for merged in owner._merged_updates:
                merged.update.weight.own(merged.before)
                _attach(owner, merged.key, merged.update)
            owner._merged_updates = ()
        set_frozen(module, True)
        return module

    # ---- IRModules ---------------------------------------------------------------------------------------------------

    def _added(self, module: IRModule) -> IRModule:
        module = with_backbone(module)
        roles = check_backbone(module)
        params = [module[BACKBONE].params[i] for i in roles.taken(PARAMETER)]
        known = updates_of(module)
        added = adapters.initial(module)
        candidates = [
            Candidate((p.name,), p.struct_info.shape, p.struct_info.dtype) for p in params if p.name not in added
        ]
        found = adapters.chosen(self.targets, candidates, self.rank)
        for c in found:
            if c.name in {u.weight for u in known}:
                raise _twice(c.name)
        new = [
            Update(c.name, *adapters.named(c.name), self.scale, self.dropout, self.fan_in_fan_out) for c in found
        ]  # fmt: skip
        return adapters.add_updates(module, new, self.rank, self._saved([c.name for c in candidates]))

    def __repr__(self) -> str:
        options = [f"rank={self.rank}", f"alpha={self.alpha:g}", f"targets={list(self.targets)}"]
        options += [f"dropout={self.dropout:g}"] if self.dropout else []
        options += [f"{name}=True" for name in ("rslora", "fan_in_fan_out") if getattr(self, name)]
        options += [f"modules_to_save={list(self.modules_to_save)}"] if self.modules_to_save else []
        return f"LoRA({', '.join(options)})"


def _twice(name: str) -> ArgumentError:
    return ArgumentError(f"{name} has an update already", hint="lora.merge(net) makes it part of the weight")


def _owner(module: Module, name: str) -> tuple[Module, str]:
    """The module that holds a parameter, and its name there."""
    outer, _, key = name.rpartition(".")
    return module.get_submodule(outer), key


def _keys(key: str) -> tuple[str, str]:
    """Under which names the owner of a weight holds A and B."""
    a, b = adapters.named(f".{key}")
    return a.removeprefix("."), b.removeprefix(".")


def _attach(owner: Module, key: str, update: WeightUpdate) -> None:
    """Make an update part of a module. The names of A and B may have dots: they are no attributes."""
    for name, parameter in zip(_keys(key), (update.a, update.b), strict=True):
        owner._parameters[name] = parameter
    owner._weight_updates = (*owner._weight_updates, update)


def _detach(owner: Module, update: WeightUpdate) -> str:
    """Take an update away; returns the weight's name in its owner."""
    key = next(name for name, p in owner._parameters.items() if p is update.weight)
    for name in _keys(key):
        del owner._parameters[name]
    owner._weight_updates = tuple(u for u in owner._weight_updates if u is not update)
    return key
