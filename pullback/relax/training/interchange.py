"""What a trainer keeps, in and out by name: optimizer states, and all of it to and from models of other
frameworks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, suggestion
from pullback.ir.words import guided
from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.placement import Placement
from pullback.relax.training.state_dict import fitting
from pullback.relax.training.step import Values
from pullback.runtime.tensor import Tensor, tensor


@guided
class Interchange:
    """The part of a trainer that exchanges values with others; ``trainer.py`` has the rest."""

    _interface: Interface
    _values: Values
    _placement: Placement
    _whole: Callable[[], Values]
    _keep: Callable[..., None]
    _turn: threading.RLock
    model: Any

    def optimizer_state_dict(self) -> dict[str, Tensor]:
        """The optimizer states by name: copies. ``num_steps`` comes first, then the optimizer's own, such as
        ``m of fc.weight``; of a group of parameters, ``beta1_prod[*.bias]``.

        >>> other.load_optimizer_state_dict(trainer.optimizer_state_dict())

        Returns:
            tensors by name, copies.
        """
        with self._turn:
            pairs = zip(self._named_states(), self._whole().optimizer_states, strict=True)
            return {name: value.copy() for name, value in pairs}

    def load_optimizer_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take optimizer states from a mapping by name; those that it lacks stay as they are.

        Values are arrays, PyTorch tensors, anything with DLPack, and are cast to the states' dtypes.

        Args:
            state_dict: values by name; states that it lacks stay as they are.

        Raises:
            ArgumentError: for names that the optimizer does not have.
            ShapeError, DTypeError: for a value that does not fit: nothing is changed then.
        """
        if not isinstance(state_dict, Mapping):
            message = f"load_optimizer_state_dict takes a dict of arrays by name, got {type(state_dict).__name__}"
            raise ArgumentError(message, hint="trainer.optimizer_state_dict() is one")
        slots = self._named_states()
        unknown = [name for name in state_dict if name not in slots]
        if unknown:
            optimizer = self._interface.record.optimizer or "of this trainer"
            close = suggestion(str(unknown[0]), slots)
            raise ArgumentError(
                f"the optimizer {optimizer} has no state {', '.join(map(repr, unknown))}{close}",
                hint=f"its states are {', '.join(slots)}",
            )
        numbers = {name: i for i, name in enumerate(slots)}
        changed = {
            numbers[name]: tensor(fitting(name, value, static_shape(slots[name]), slots[name].info.dtype))
            for name, value in state_dict.items()
        }
        with self._turn:
            self._keep(optimizer_states=self._placement.of_first(changed))

    def _named_states(self) -> dict[str, Slot]:
        """The optimizer states by name."""
        record, slots = self._interface.record, self._interface.optimizer_states
        labels = record.optimizer_states or tuple(map(str, range(len(slots))))
        groups = record.optimizer_groups or ("",) * len(labels)
        names = [
            f"{label}[{group}]" if group and " of " not in label and not label.endswith(f"[{group}]") else label
            for label, group in zip(labels, groups, strict=True)
        ]
        return dict(zip(names, slots, strict=True))

    def _trainer(self) -> Any:
        """This, as the whole trainer that it is a part of."""
        return self

    def to_torch(self, module: Any, optimizer: Any = None, *, strict: bool = True) -> Any:
        """Write parameters and states into a module of PyTorch that has them under the same names; returns it.

        >>> net = trainer.to_torch(net)
        >>> trainer.to_torch(net, torch.optim.AdamW(net.parameters()))       # training goes on there

        Args:
            module: has parameters of the same names.
            optimizer: a ``torch.optim.SGD``, ``Adam`` or ``AdamW`` over the module's parameters, which gets the states
                and hyperparameters of the trainer's, which is of the same kind: its next steps are the trainer's, but
                for rounding. With ``strict`` False, names that only one side has are left out.
            strict: whether names that only one side has are an error.

        Returns:
            the module.

        Raises:
            ArgumentError: with nothing written, which lists all weights that are missing on either side, have another
                shape, or are tied there and differ here; and for an optimizer of another kind, or over other parameters
                than those that are trained.
        """
        from pullback.relax.frontend.torch.weights import to_torch

        return to_torch(self._trainer(), module, optimizer, strict=strict)

    def from_torch(self, module: Any, optimizer: Any = None, *, strict: bool = True) -> None:
        """Take parameters and states from a module of PyTorch, or from its ``state_dict()``: what :meth:`to_torch`
        writes. Optimizer states stay as they are without an ``optimizer``.

        Args:
            module: a module of PyTorch, or its ``state_dict()``.
            optimizer: a ``torch.optim.SGD``, ``Adam`` or ``AdamW`` over the module's parameters, or its
                ``state_dict()``. Its hyperparameters must be the trainer's; run-time values (``RunTime``) take its.
            strict: whether names that only one side has are an error.

        Raises:
            ArgumentError: with nothing changed, for what does not fit, as :meth:`to_torch` does.
        """
        from pullback.relax.frontend.torch.weights import from_torch

        from_torch(self._trainer(), module, optimizer, strict=strict)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the ONNX file that the model came from (``pullback.from_onnx``) with the trained weights; all other
        bytes are as they were.

        >>> trainer.to_onnx("trained.onnx")

        Args:
            path: of the file.

        Raises:
            ArgumentError: for a trainer of any other model, and as :func:`pullback.relax.frontend.onnx.to_onnx` does.
        """
        self._source_of("to_onnx", "from_onnx").to_onnx(path)

    def to_keras(self, model: Any = None) -> Any:
        """Set the weights of the model of Keras that the model came from (``pullback.from_keras``), or of another
        ``model`` of the same layers; returns it.

        >>> trainer.to_keras().predict(x)

        Args:
            model: of Keras; by default the one that the model came from.

        Returns:
            the model of Keras.

        Raises:
            ArgumentError: for a trainer of any other model, and as :func:`pullback.relax.frontend.keras.to_keras` does.
        """
        return self._source_of("to_keras", "from_keras").to_keras(model)

    def _source_of(self, method: str, importer: str) -> Any:
        """The imported model that has this method."""
        if not hasattr(self.model, method):
            raise ArgumentError(
                f"{method} is for models of pullback.{importer}, and this trainer's model is none of them",
                hint="trainer.export(folder) makes a library of any model",
            )
        return self.model
