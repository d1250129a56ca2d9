"""Trainers of models that are fine-tuned by what is added to them: merged weights, and files of what was added alone.

A file is a safetensors file of the parameters that are trained, of those of updates, and of the states that steps
change. Its metadata say what the updates are. Files of the library PEFT are read too.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import safetensors.numpy

from pullback.ir.errors import UserError
from pullback.relax.struct_info import format_shape
from pullback.relax.training.adapters import BOTTLENECKS, merged, moving_states, remove_updates
from pullback.relax.training.checkpoint_file import TensorFile, open_file
from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.optimizer import SGD
from pullback.relax.training.placement import Placement
from pullback.relax.training.shared_file import on_first
from pullback.relax.training.subset import trained_by
from pullback.relax.transform.low_rank import as_attribute, updates_of
from pullback.runtime.files import path_of, shown, write_atomically
from pullback.runtime.tensor import Tensor

FORMAT = "pullback-adapter"
_PEFT = re.compile(r"^base_model\.model\.(.*\.lora_[AB])(?:\.default)?\.weight$")


class FineTuning:
    """The part of a trainer that knows what was added to its model."""

    _interface: Interface
    _placement: Placement
    _turn: threading.RLock
    _setup: Any
    mod: Any
    vm: Any
    device: Any
    state_dict: Any
    load_state_dict: Any
    value_of: Any

    def merged_state_dict(self) -> dict[str, Tensor]:
        """Parameters and states by name, copies, in which low-rank updates (``nn.LoRA``) are part of the weights: the
        names of the model before it had any, and its predictions now, up to rounding. Without updates it is
        ``state_dict()``.

        >>> torch_net.load_state_dict({n: torch.from_dlpack(t) for n, t in trainer.merged_state_dict().items()})

        Returns:
            tensors by name, copies.

        Raises:
            UserError: for a model with adapters behind layers, which are no part of any weight.
        """
        if BOTTLENECKS in self.mod.attrs:
            layers = ", ".join(self.mod.attrs[BOTTLENECKS])
            raise UserError(
                f"the adapters behind {layers} cannot be part of a weight",
                hint="trainer.state_dict() has them; updates of nn.LoRA can be merged",
            )
        values = self.state_dict()
        aliases: Mapping[str, str] = self.mod.attrs.get("aliases", {})
        own = {name: value for name, value in values.items() if name not in aliases}
        result = merged(own, updates_of(self.mod))
        return result | {name: result[first].copy() for name, first in aliases.items()}

    def save_adapter(self, path: str | os.PathLike[str]) -> None:
        """Write what was added to the model, and what else is trained, to a safetensors file: parameters that are
        trained, those of updates, and states that steps change, as running statistics. All else is the model's before.

        Of several ranks, all save, and rank 0 writes.

        Args:
            path: of the file.

        Raises:
            CheckpointError: when the file cannot be written.
        """
        file = path_of(path, '"adapter.safetensors"')
        names = self._added_names()
        with self._turn:
            tensors = {name: np.asarray(self.value_of(name)) for name in names}
        metadata = {"format": FORMAT, "version": "1", "low_rank": json.dumps(as_attribute(updates_of(self.mod)))}
        on_first(
            self._placement.ranks,
            file,
            lambda: write_atomically(file, safetensors.numpy.save(tensors, metadata)),
        )

    def load_adapter(self, path: str | os.PathLike[str]) -> None:
        """Take what :meth:`save_adapter` wrote for a model with the same updates, or what PEFT wrote
        (``adapter_model.safetensors``; LoRA of linear layers and convolutions). The optimizer's states stay.

        Args:
            path: of the file.

        Raises:
            CheckpointError: with nothing changed, for a file that is damaged, or of other updates.
        """
        file = path_of(path, '"adapter.safetensors"')
        slots = {s.name: s for s in (*self._interface.params, *self._interface.states)}
        longest = (1 << 20) + sum(1024 + 256 * len(name) for name in slots)
        with open_file(file, longest, TensorFile) as found:
            wanted = self._wanted(found, slots)
            values = {name: Tensor(found.tensors[key].shape, found.tensors[key].dtype) for key, name in wanted.items()}
            found.read({key: values[name] for key, name in wanted.items()})
        shaped = {n: np.asarray(v).reshape(static_shape(slots[n])) for n, v in values.items()}
        self.load_state_dict(shaped, strict=False)

    def _added_names(self) -> list[str]:
        """The names of what an adapter's file holds, as they stand in the model."""
        pairs = {name for u in updates_of(self.mod) for name in (u.a, u.b)}
        chosen = {*trained_by(self._interface), *pairs, *moving_states(self.mod)}
        return [s.name for s in (*self._interface.params, *self._interface.states) if s.name in chosen]

    def _wanted(self, file: TensorFile, slots: Mapping[str, Slot]) -> dict[str, str]:
        """The names in a file, and what they are called here."""
        found = {_own_name(key): key for key in file.tensors}
        missing = [name for name in self._added_names() if name not in found]
        odd = [key for name, key in found.items() if name not in slots]
        is_ours = file.metadata.get("format") == FORMAT
        if odd or (missing and is_ours) or not found:
            problem = f"the trainer has no {odd[0]}" if odd else f"it lacks {missing[0]}" if found else "it is empty"
            file.refuse(f"it is the adapter of another model: {problem}")
        for name, key in found.items():
            entry, shape = file.tensors[key], static_shape(slots[name])
            same = entry.shape == shape or (not is_ours and math.prod(entry.shape) == math.prod(shape))
            if not same or ("float" not in entry.dtype and entry.dtype != slots[name].info.dtype):
                file.refuse(f"{shown(name)} is {entry} there, {format_shape(shape)} {slots[name].info.dtype} here")
        if is_ours:
            self._check_updates(file)
        return {key: name for name, key in found.items()}

    def _check_updates(self, file: TensorFile) -> None:
        """Refuse a file of updates that are other ones: A and B would mean something else."""
        mine = {w: [s, t] for w, (_, _, s, _, t) in as_attribute(updates_of(self.mod)).items()}
        try:
            theirs = {str(w): [s, t] for w, (_, _, s, _, t) in json.loads(file.metadata["low_rank"]).items()}
        except (KeyError, ValueError, AttributeError, TypeError, RecursionError) as error:
            file.refuse("its metadata is damaged (low_rank)", error)
        for name in {*mine, *theirs}:
            if mine.get(name) != theirs.get(name):
                scale = [entry[0] if entry else "none" for entry in (theirs.get(name), mine.get(name))]
                file.refuse(f"the update of {shown(name)} has the scale {scale[0]} there, {scale[1]} here")

    def without_updates(self) -> Any:
        """A trainer of the model as it was before its updates, with merged weights: for predictions and losses. Its
        optimizer is plain SGD.

        Returns:
            the trainer.

        Raises:
            UserError: when the trainer, as the copy of another, does not hold what it was made from.
        """
        if self._setup is None:
            raise UserError(
                "updates cannot be taken out: the trainer does not know its model, only the finished module",
                hint="export from the trainer itself, not from a copy of it",
            )
        model, setup = self._setup
        model, setup = remove_updates(model), replace(setup, optimizer=SGD(1.0), trainable=None, distributed=None)
        make: Any = type(self)  # the class of the whole trainer
        result = make(model, int(model.attrs["param_num"]), setup)
        result.build("debug" if self.vm.executable.target is None else self.vm.executable.target, self.device)
        result.load_state_dict(self.merged_state_dict())
        return result


def _own_name(key: str) -> str:
    """The name here of a tensor in a file: PEFT's names have its wrapper's around them."""
    found = _PEFT.match(key)
    return found.group(1) if found else key
