"""Checkpoints: everything a trainer needs to go on, in one safetensors file.

Tensors are called ``param.<name>``, ``state.<name>``, ``random.<name>`` and ``optimizer.<number>``, so other tools can
read the parameters. The metadata holds the format and its version, what was trained with which loss and optimizer, the
random generator and counters, and a SHA-256 of all of it, tensors included: a flipped bit is found. Files are replaced
in one step, so a crash leaves the old one or the new one. What a file has to be is said in ``checkpoint_file.py``, how
several ranks share one in ``shared_file.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, CheckpointError
from pullback.ir.words import guided
from pullback.relax.convention import LOSS_SCALE, OF_OPTIMIZER, OPTIMIZER_STATE
from pullback.relax.struct_info import format_shape
from pullback.relax.training import shared_file
from pullback.relax.training.checkpoint_file import FORMAT, VERSION, CheckpointFile, Record, open_checkpoint
from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.optimizer.value import number
from pullback.relax.training.placement import PIECE, Placement
from pullback.relax.training.position import Position
from pullback.relax.training.shared_file import Run, Together
from pullback.relax.training.step import Values
from pullback.runtime.files import path_of, shown
from pullback.runtime.tensor import Tensor, tensor, zeros

_PREFIX = {"parameter": "param.", "state": "state.", "random state": "random.", "optimizer state": "optimizer."}
_ON_PURPOSE = "load(…, strict=False) takes its values in spite of that, load(…, params_only=True) parameters and states"
_LATER = {"divisor": 1.0, "divisor_sum": 0.0}  # Accumulate's states that older files lack, between two of its steps
_SAME_MODEL = "load it into a trainer of the model that it was saved from"


@guided
class Checkpoints:
    """The part of a trainer that saves and loads."""

    _interface: Interface
    _values: Values
    _generator: np.random.Generator
    _epochs: int
    _position: Position | None  # while an epoch runs, and after one that was interrupted
    _turn: threading.RLock

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, states, random and optimizer states, random generator and counters to a file, in one step.

        A file of that name is replaced, and its mode kept; a crash at any moment, or a full disk, leaves the old file
        or the new one. A symbolic link is followed: what it names is replaced. Of several ranks, all save: each writes
        its part of one file, which one process can load, and any number of ranks; all must see the folder.

        Args:
            path: of the file.

        Raises:
            CheckpointError: on all ranks, when the file cannot be written, or is no regular file.
            ArgumentError: for what is no path.

        Examples:
            >>> trainer.save("model.safetensors")
            >>> trainer.load("model.safetensors")
        """
        file = path_of(path)
        self._values.check_complete(self._interface)
        with self._turn:  # these views keep what they see: a step in another thread goes on with copies
            values, generator, epochs = self._values.all, self._generator.bit_generator.state, self._epochs
            position = self._position
            arrays = {s: np.asarray(v) for s, v in zip(self._interface.kept, values, strict=True)}
        _check_distinct(file, self._interface.kept)
        placement = Placement.of(self._interface)
        tensors = {key_of(s): (s.info.dtype, static_shape(s), _run(a, s, placement)) for s, a in arrays.items()}
        steps = int(arrays[self._interface.optimizer_states[0]])
        metadata = {
            **fixed_metadata(self._interface),
            "random": json.dumps(generator),
            "steps": str(steps),
            "epochs": str(epochs),
        }
        if position is not None and position.steps == steps:  # nobody has trained since
            metadata["position"] = position.text()
        shared_file.save(file, tensors, metadata, placement.ranks)

    def load(self, path: str | os.PathLike[str], *, strict: bool = True, params_only: bool = False) -> None:
        """Go on from a file that :meth:`save` wrote.

        Hyperparameters are those of this trainer's optimizer, not the file's, but for run-time values, which are
        states. A file that was trained with another loss, or with another network of the same parameters, is refused,
        unless ``strict`` is False. (Files of versions that did not record them are taken, and so is another precision.)
        Of older versions, a file of ``Accumulate`` is taken when it was saved between two steps of the optimizer.
        ``params_only`` takes parameters and states alone, whatever they were trained with: the optimizer's states,
        counters and random numbers stay. Of a file that was saved in the middle of an epoch, ``fit(…, resume=path)``
        goes on there, any other training with a new epoch.

        Of several ranks, all load: each reads what it holds, and they share the work of the checksum.

        Args:
            path: of the file.
            strict: whether a file that was trained with another loss, or with another network of the same parameters,
                is refused.
            params_only: takes parameters and states alone, whatever they were trained with: the optimizer's states,
                counters and random numbers stay.

        Raises:
            CheckpointError: on all ranks, with the trainer as it was, when the file is missing, truncated, damaged, of
                another kind, or was made by another model or optimizer.
            ArgumentError: for what is no path.
        """
        for name, value in (("strict", strict), ("params_only", params_only)):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name} must be True or False, got {value!r}")
        self._load(path_of(path), strict, params_only)

    def _load(
        self, file: str, strict: bool = True, params_only: bool = False,
        check: Callable[[Record], None] = lambda record: None,
    ) -> Record:  # fmt: skip
        """As ``load``; returns what the file's metadata say. ``check`` may refuse them."""
        interface, placement = self._interface, Placement.of(self._interface)
        groups: tuple[tuple[Slot, ...], ...] = (interface.params, interface.states)
        groups += () if params_only else (interface.random, interface.optimizer_states)
        together = Together(placement.ranks, file, "read", "check the path, and that the file may be read")
        with contextlib.ExitStack() as stack:

            def opened() -> CheckpointFile:
                checkpoint = stack.enter_context(open_checkpoint(file, _longest_header(interface)))
                _check_names(checkpoint, interface)
                if not params_only:
                    _check_optimizer(checkpoint, interface)
                if strict and not params_only:
                    _check_identity(checkpoint, interface)
                check(checkpoint.record)
                return checkpoint

            checkpoint = together.step_here(opened)
            later = {} if params_only else _later_states(checkpoint, interface)
            wanted = dict(_keys_in_file(groups, later))
            together.step(lambda: _check_types(checkpoint, wanted, all_of_them=not params_only))
            tensors = {key: _empty(slot, placement) for key, slot in wanted.items()}
            runs = {key: _run(np.asarray(tensors[key]), slot, placement) for key, slot in wanted.items()}
            shared_file.load(checkpoint, runs, together)
            read = iter(tensors.values())
            loaded = [tuple(later[s] if s in later else next(read) for s in group) for group in groups]
            record = checkpoint.record

            def check_states() -> None:
                _check_optimizer_states(checkpoint, interface, loaded[-1])
                if later:
                    _check_between_steps(checkpoint, interface, loaded[-1])

            if not params_only:
                together.step(check_states)
                generator = np.random.Generator(np.random.PCG64())
                generator.bit_generator.state = record.random
        with self._turn:
            if params_only:
                params, states = loaded
                self._values = replace(self._values, params=params, states=states)
            else:
                self._values, self._generator, self._epochs = Values(*loaded), generator, record.epochs
            self._position = None
        return record


def fixed_metadata(interface: Interface) -> dict[str, str]:
    """The metadata that all checkpoints of a trainer have in common."""
    record = interface.record
    return {
        "format": FORMAT,
        "version": VERSION,
        "parameters": json.dumps([slot.name for slot in interface.params]),
        "states": json.dumps([slot.name for slot in interface.states]),
        "optimizer": record.optimizer,
        "optimizer_states": json.dumps(record.optimizer_states),
        "hyperparameters": json.dumps(record.hyperparameters),
        "loss": record.loss,
        "training": json.dumps(record.identity),
    }


def key_of(slot: Slot) -> str:
    """The name of a tensor in a checkpoint."""
    return _PREFIX[slot.kind] + slot.name


def _run(array: np.ndarray, slot: Slot, placement: Placement) -> Run:
    """What this rank has of a tensor."""
    if placement.kind(slot) == PIECE:
        return Run.piece(array, math.prod(static_shape(slot)), placement.ranks)
    return Run.whole(array)


def _empty(slot: Slot, placement: Placement) -> Tensor:
    """Room for what this rank has of a tensor; zeros where padding may be."""
    made = zeros if placement.kind(slot) == PIECE else Tensor
    return made(placement.shape(slot), slot.info.dtype)


def _keys_in_file(groups: Iterable[tuple[Slot, ...]], later: Mapping[Slot, Tensor]) -> Iterator[tuple[str, Slot]]:
    """The name in the file of each slot that it holds: optimizer states are numbered without those that came later."""
    for group in groups:
        missing = 0
        for slot in group:
            if slot in later:
                missing += 1
            elif slot.kind == OPTIMIZER_STATE:
                yield _PREFIX[slot.kind] + str(int(slot.name) - missing), slot
            else:
                yield key_of(slot), slot


def _later_states(file: CheckpointFile, interface: Interface) -> dict[Slot, Tensor]:
    """Initial values of this trainer's optimizer states that a file of an older version does not have."""
    mine, found = interface.record.optimizer_states, file.record.optimizer_states
    if not found or mine == found or tuple(name for name in mine if name not in _LATER) != found:
        return {}
    pairs = zip(mine, interface.optimizer_states, strict=True)
    return {slot: tensor(_LATER[name], slot.info.dtype) for name, slot in pairs if name in _LATER}


def _longest_header(interface: Interface) -> int:
    """More than the header of a checkpoint of this trainer takes: nobody has to read a larger one."""
    names = sum(len(slot.name) for slot in interface.kept)
    return (1 << 20) + 1024 * len(interface.kept) + 256 * names


def _check_distinct(path: str, slots: Sequence[Slot]) -> None:
    """What is saved has names of its own."""
    seen: set[str] = set()
    for slot in slots:
        if key_of(slot) in seen:
            raise CheckpointError(
                f"{shown(path)}: cannot be written: the model has more than one {slot.kind} called {slot.name}",
                hint="give each a name of its own",
            )
        seen.add(key_of(slot))


def _check_names(file: CheckpointFile, interface: Interface) -> None:
    """The file's parameters and states are this trainer's, in this order."""
    record = file.record
    for kind, slots, found in (
        ("parameters", interface.params, record.parameters),
        ("states", interface.states, record.states),
    ):
        names = tuple(slot.name for slot in slots)
        if names != found:
            raise CheckpointError(
                f"{shown(file.path)}: the model has the {kind} {', '.join(names) or 'none'},"
                f" the file holds {shown(', '.join(found)) or 'none'}",
                hint=_SAME_MODEL,
            )


def _check_optimizer(file: CheckpointFile, interface: Interface) -> None:
    """The file's optimizer is this trainer's, and keeps the same in the same order: its groups and options count."""
    record, expected = file.record, interface.record.optimizer
    if expected and record.optimizer not in ("", expected):
        raise CheckpointError(
            f"{shown(file.path)}: was saved with the optimizer {shown(record.optimizer)}, this trainer has {expected}",
            hint="make the trainer with the same optimizer, or load parameters and states alone with"
            " load(…, params_only=True)",
        )
    names, found = interface.record.optimizer_states, record.optimizer_states
    if _later_states(file, interface):
        return
    for i, (mine, other) in enumerate(itertools.zip_longest(names, found, fillvalue="missing")):
        if names and found and mine != other:
            raise CheckpointError(
                f"{shown(file.path)}: optimizer state {i} is {mine} in this trainer, {shown(other)} in the file",
                hint="make the trainer with the same optimizer, its options and groups too, or load parameters and"
                " states alone with load(…, params_only=True)",
            )


def _check_identity(file: CheckpointFile, interface: Interface) -> None:
    """The file was trained with what this trainer trains with, as far as both tell."""
    mine: dict[str, Any] = json.loads(json.dumps(interface.record.identity))
    found = file.record.training or ({"loss": file.record.loss} if file.record.loss else {})
    for name, value in mine.items():
        other = found.get(name, value)
        if value != other and "" not in (value, other):
            here, there = (shown(str(v)) for v in (value, other))
            raise CheckpointError(
                f"{shown(file.path)}: was saved by a trainer whose {name} is {there}, this trainer's is {here}",
                hint=_ON_PURPOSE,
            )


def _check_types(file: CheckpointFile, wanted: Mapping[str, Slot], all_of_them: bool) -> None:
    """The file holds a tensor for everything that is wanted, of its shape and dtype, and maybe no others."""
    missing = sorted(wanted.keys() - file.tensors.keys())
    extra = sorted(file.tensors.keys() - wanted.keys()) if all_of_them else []
    if missing or extra:
        parts = [f"it lacks {shown(', '.join(missing))}"] if missing else []
        parts += [f"it holds {shown(', '.join(extra))}, which this trainer does not have"] if extra else []
        file.refuse(" and ".join(parts))
    for key, slot in wanted.items():
        shape, dtype, entry = static_shape(slot), slot.info.dtype, file.tensors[key]
        if entry.shape != shape or entry.dtype != dtype:
            raise CheckpointError(
                f"{shown(file.path)}: {slot} is {format_shape(shape)} {dtype} in this trainer, {entry} in the file",
                hint=_SAME_MODEL,
            )


def _check_between_steps(file: CheckpointFile, interface: Interface, states: Sequence[Tensor]) -> None:
    """Sums of gradients are 0: those of an older version do not say how much they weigh."""
    for label, state in zip(interface.record.optimizer_states, states, strict=True):
        if label.startswith("grad_sum") and np.asarray(state).any():
            raise CheckpointError(
                f"{shown(file.path)}: was saved by an older version between two batches whose gradients are accumulated"
                f" ({label} is not 0)",
                hint="load a file that was saved after a step of the optimizer, or parameters and states alone with"
                " load(…, params_only=True)",
            )


def _check_optimizer_states(file: CheckpointFile, interface: Interface, states: Sequence[Tensor]) -> None:
    """Counts are no less than 0, run-time values within their bounds, a loss scale is no less than 0."""
    steps, record = states[0].item(), interface.record
    if steps != file.record.steps:
        file.refuse(f"it was saved after {steps} steps, its metadata says {file.record.steps}")
    for label, state in zip(record.optimizer_states, states, strict=False):
        if label.startswith("num_") and state.item() < 0:
            file.refuse(f"its optimizer state {label}, a count, is {state.item()}")
    for name, entry in record.run_time.items():
        for value in (float(states[i].item()) for i in entry["states"]):
            try:
                number(name, value, entry["least"], entry["below"])
            except ArgumentError as error:
                file.refuse(error.message, error)
    kinds = (kind for kind, _ in interface.convention.kept if kind in OF_OPTIMIZER)
    for scale in (float(state.item()) for kind, state in zip(kinds, states, strict=True) if kind == LOSS_SCALE):
        if not scale >= 0.0:
            file.refuse(f"its loss scale is {scale}")
