"""What a trainer module takes: its inputs, parameters, states, targets, random and optimizer states, by name and
type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.ir.module import IRModule
from pullback.relax.convention import (
    ADJOINT,
    BACKBONE,
    INPUT,
    LOSS,
    OF_OPTIMIZER,
    OPTIMIZER,
    OPTIMIZER_STATE,
    PARAMETER,
    RANDOM,
    STATE,
    TARGET,
    Convention,
)
from pullback.relax.expr import Function, Var
from pullback.relax.struct_info import (
    Dim,
    TensorStructInfo,
    TupleStructInfo,
    as_int,
    as_tensor,
    flat_infos,
    format_info,
)
from pullback.relax.training.setup_trainer import TrainingRecord
from pullback.relax.transform.distributed import Distributed, held_as_pieces
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.polynomial import same

_HOW = "make the module with relax.training.SetupTrainer(loss, optimizer, loss_args)(model)"


@dataclass(frozen=True)
class Slot:
    """One tensor that a trainer module takes."""

    kind: str  # of relax/convention.py; all that the optimizer keeps is an "optimizer state"
    name: str
    info: TensorStructInfo

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        return numpy_dtype(self.info.dtype)

    def __str__(self) -> str:
        return f"the {self.name}" if self.name in (self.kind, f"{self.kind}s") else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Interface:
    """The tensors of a trainer module in the order in which its functions take them, and the record of its making."""

    inputs: tuple[Slot, ...]
    params: tuple[Slot, ...]
    states: tuple[Slot, ...]
    targets: tuple[Slot, ...]
    random: tuple[Slot, ...]  # the random state, of a model that draws
    optimizer_states: tuple[Slot, ...]
    prediction: TensorStructInfo  # the type of the first output
    record: TrainingRecord
    convention: Convention
    distributed: Distributed | None = None  # over which ranks, and how
    pieces: frozenset[int] = frozenset()  # of what is kept, the numbers of what a rank holds a piece of

    @staticmethod
    def of(module: IRModule) -> Interface:
        """The interface of a trainer module; an ArgumentError when it is none."""
        missing = [name for name in (BACKBONE, LOSS, ADJOINT, OPTIMIZER) if name not in module]
        keys = ("input_num", "param_num", "state_num", "optim_state")
        missing += [f"the attribute {key}" for key in keys if key not in module.attrs]
        if missing:
            raise ArgumentError(f"this is no trainer module: it lacks {', '.join(missing)}", hint=_HOW)
        convention, loss, optimizer = Convention.of(module), module[LOSS], module[OPTIMIZER]

        def slots(kind: str) -> tuple[Slot, ...]:
            return tuple(_slot(kind, loss.params[i]) for i in convention[LOSS].taken(kind))

        kept = [info for p in optimizer.params for info in flat_infos(p.struct_info)]
        places = convention[OPTIMIZER].taken(*OF_OPTIMIZER)
        pieces = held_as_pieces(module)
        return Interface(
            slots(INPUT),
            slots(PARAMETER),
            slots(STATE),
            slots(TARGET),
            slots(RANDOM),
            tuple(Slot(OPTIMIZER_STATE, str(k), as_tensor(kept[i])) for k, i in enumerate(places)),
            _first_output(module[BACKBONE]),
            _record(module.attrs.get("training", {})),
            convention,
            Distributed.of(module),
            frozenset(i for i, value in enumerate(convention.kept) if value in pieces),
        )

    @property
    def kept(self) -> tuple[Slot, ...]:
        """What a step changes: parameters, states, random and optimizer states."""
        return self.params + self.states + self.random + self.optimizer_states

    @cached_property
    def batch(self) -> Dim | None:
        """The leading size of the first input, commonly the number of rows; None when it has none."""
        shape = self.inputs[0].info.shape if self.inputs else None
        return shape[0] if shape else None

    def has_rows(self, slot: Slot) -> bool:
        """Whether the tensor's leading axis is the batch."""
        shape, batch = slot.info.shape, self.batch
        if not shape or batch is None or slot.name in self.record.shared_targets:
            return False
        return same(shape[0], batch)

    def rows_of(self, value: Any) -> int | None:
        """How many rows a value for the first input has; None when it does not have the declared shape but for that."""
        declared = self.inputs[0].info.shape or ()
        try:
            shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        except (TypeError, ValueError):  # a shape that is none, lists of different lengths
            return None
        if shape == declared:  # what almost every step of a training meets
            return None if self.batch is None else as_int(self.batch)
        fits = len(shape) == len(declared) > 0 and all(map(same, shape[1:], declared[1:]))
        return shape[0] if fits else None

    def with_rows(self, rows: int) -> Interface:
        """The interface for another number of rows."""

        def resized(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
            return tuple(
                Slot(s.kind, s.name, TensorStructInfo((rows, *s.info.sizes[1:]), s.info.dtype))
                if self.has_rows(s)
                else s
                for s in slots
            )

        return replace(self, inputs=resized(self.inputs), targets=resized(self.targets))


def _record(attribute: Any) -> TrainingRecord:
    """The record in a module attribute, which people may have written."""
    try:
        return TrainingRecord(**attribute)
    except TypeError as error:
        raise ArgumentError(f"the module attribute 'training' is no record of a training: {error}", hint=_HOW) from None


def _first_output(backbone: Function) -> TensorStructInfo:
    info = backbone.ret_struct_info
    return as_tensor(info.fields[0] if isinstance(info, TupleStructInfo) else info)


def _slot(kind: str, var: Var) -> Slot:
    info = var.struct_info
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        message = f"{kind} {var.name} must be a tensor of known shape, it is {format_info(info)}"
        raise ShapeError(message, span=var.span)
    return Slot(kind, var.name, info)
