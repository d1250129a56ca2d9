"""Weights and optimizer states, from a trainer to PyTorch and back.

    trained here:      trainer.to_torch(net, torch_optimizer)       PyTorch goes on
    trained there:     trainer.from_torch(net, torch_optimizer)     the trainer goes on

Tensors have the same names and shapes on both sides. Optimizers keep the same values under other names:

    torch.optim        here                        states there           here
    SGD                SGD, MomentumSGD            momentum_buffer        v of …
    Adam, AdamW        Adam, AdamW                 exp_avg                m of …
                                                   exp_avg_sq             v of …
                                                   max_exp_avg_sq         v_max of …
                                                   step                   num_steps, beta1_prod = β₁ᵗ, beta2_prod = β₂ᵗ

PyTorch counts the steps of each parameter, a trainer those of all; where those differ, the states cannot be taken.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relax.frontend.torch.shared import as_torch
from pullback.relax.struct_info import format_shape
from pullback.relax.training.trainer import Trainer

__all__ = ["from_torch", "optimizer_state", "state_dict", "to_torch"]


def state_dict(trainer: Trainer) -> dict[str, Any]:
    """The trainer's parameters and states as tensors of PyTorch, by name, for ``load_state_dict`` or ``torch.save``:
    copies, which later steps do not change. Low-rank updates are part of their weights."""
    return {name: as_torch(value) for name, value in trainer.merged_state_dict().items()}


def to_torch(trainer: Trainer, module: Any, optimizer: Any = None, *, strict: bool = True) -> Any:
    """See :meth:`Trainer.to_torch`."""
    import torch

    module = _module(module)
    theirs, needed = _tensors_of(module)
    values = state_dict(trainer)
    lines = _differences(values, theirs, needed, strict, trainer, "the module")
    shared = [name for name in theirs if name in values]
    _check(lines or _ties(shared, lambda name: _memory(theirs[name]), values, "in PyTorch"), "nothing was written")
    states = None if optimizer is None else optimizer_state(trainer, module, optimizer)
    with torch.no_grad():
        for name, tensor in theirs.items():
            if name in values:
                tensor.copy_(values[name])
    if optimizer is not None:
        optimizer.load_state_dict(states)
    return module


def from_torch(trainer: Trainer, module: Any, optimizer: Any = None, *, strict: bool = True) -> None:
    """See :meth:`Trainer.from_torch`."""
    if isinstance(module, Mapping):
        theirs = {name: value for name, value in module.items() if hasattr(value, "shape")}
        needed = set(theirs)
    else:
        theirs, needed = _tensors_of(_module(module))
    known = trainer.state_dict()
    lines = _differences(known, theirs, needed, strict, trainer, "PyTorch")
    shared = [name for name in theirs if name in known]
    _check(lines or _ties(shared, lambda name: _canonical(trainer, name), theirs, "here"), "nothing was loaded")
    states = None if optimizer is None else _states_from(trainer, module, theirs, optimizer)
    trainer.load_state_dict({name: value for name, value in theirs.items() if name in known}, strict=False)
    if states is not None:
        trainer.load_optimizer_state_dict(states[0])
        for name, value in states[1].items():
            trainer.set_hyperparameter(name, value)


# ---- names and shapes ------------------------------------------------------------------------------------------------


def _module(module: Any) -> Any:
    """The module, without what torch.compile wraps around it."""
    module = getattr(module, "_orig_mod", module)
    if not hasattr(module, "named_parameters") or not hasattr(module, "named_buffers"):
        raise ArgumentError(
            f"expected a torch.nn.Module, got {type(module).__name__}",
            hint="trainer.to_torch(net, optimizer): the module comes first",
        )
    return module


def _tensors_of(module: Any) -> tuple[dict[str, Any], set[str]]:
    """Parameters and buffers by all of their names; and the names that a state dict has."""
    found = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    return found, {name for name in module.state_dict() if name in found}


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], needed: set[str], strict: bool, trainer: Trainer, there: str
) -> list[str]:
    """A line for each kind of weights that do not fit: missing ones, foreign ones, other shapes."""
    lines = []
    there_by_one = {_canonical(trainer, name) for name in theirs}
    missing = [name for name in ours if _canonical(trainer, name) not in there_by_one]
    foreign = [name for name in theirs if name in needed and name not in ours]
    if strict and missing:
        lines.append(f"{there} lacks {', '.join(missing)}")
    if strict and foreign:
        lines.append(f"the trainer lacks {', '.join(foreign)}")
    lines += [
        f"{name} is {format_shape(tuple(ours[name].shape))} here, {format_shape(tuple(theirs[name].shape))} there"
        for name in theirs
        if name in ours and tuple(ours[name].shape) != tuple(theirs[name].shape)
    ]
    return lines


def _ties(shared: Sequence[str], tensor_of: Callable[[str], Any], values: Mapping[str, Any], where: str) -> list[str]:
    """A line for each two names of one tensor, where the values are to go, that have different values."""
    lines: list[str] = []
    first: dict[Any, str] = {}
    for name in shared:
        before = first.setdefault(tensor_of(name), name)
        if before != name and not np.array_equal(_array(values[before]), _array(values[name])):
            lines.append(f"{before} and {name} are one tensor {where}, and two that differ on the other side")
    return lines


def _memory(value: Any) -> Any:
    return (value.data_ptr(), tuple(value.shape)) if value.numel() else id(value)


def _array(value: Any) -> np.ndarray:
    value = value.detach() if hasattr(value, "detach") else value
    value = value.float() if str(value.dtype).endswith("bfloat16") and hasattr(value, "float") else value
    return np.asarray(value)


def _check(lines: Sequence[str], outcome: str) -> None:
    if lines:
        raise ArgumentError(
            f"the weights of the trainer and of PyTorch do not fit, {outcome}:\n  " + "\n  ".join(lines),
            hint="strict=False leaves out what only one side has",
        )


# ---- optimizers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """How an optimizer of PyTorch is called here, and what its values are called."""

    names: tuple[str, ...]
    slots: Mapping[str, str]  # a parameter's states there: here
    hyperparameters: tuple[str, ...]


_OF_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")
_SLOTS_OF_ADAM = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_max"}
_KINDS = {
    "SGD": _Kind(
        ("SGD", "MomentumSGD"),
        {"momentum_buffer": "v"},
        ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    ),
    "Adam": _Kind(("Adam",), _SLOTS_OF_ADAM, _OF_ADAM),
    "AdamW": _Kind(("AdamW",), _SLOTS_OF_ADAM, _OF_ADAM),
}
_DEFAULTS = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}  # of our SGD, which has no such hyperparameters


def _kind_of(trainer: Trainer, name: str | None) -> _Kind:
    """What the trainer's optimizer is in PyTorch. ``name``: of the class of PyTorch's, where that is known."""
    ours = trainer._interface.record.optimizer
    plain = ours[len("EMA(") : -1] if ours.startswith("EMA(") else ours
    found = next((kind for kind, entry in _KINDS.items() if plain in entry.names), None)
    if found is None:
        raise ArgumentError(
            f"states of the optimizer {ours or 'of this trainer'} have no counterpart in PyTorch",
            hint="those of SGD, Adam and AdamW do; weights alone go with trainer.to_torch(module)",
        )
    if name is not None and name != found:
        raise ArgumentError(
            f"the trainer's optimizer is {ours}, that of PyTorch {name}", hint=f"it is to be a torch.optim.{found}"
        )
    return _KINDS[found]


def optimizer_state(trainer: Trainer, module: Any, optimizer: Any) -> dict[str, Any]:
    """What ``optimizer.load_state_dict`` takes to go on where the trainer is; ``optimizer`` is one of PyTorch over the
    module's parameters. Raises ArgumentError as :meth:`Trainer.to_torch` does."""
    import torch

    kind = _kind_of(trainer, type(optimizer).__name__)
    module = _module(module)
    names = {id(p): _canonical(trainer, name) for name, p in module.named_parameters()}
    result, states = optimizer.state_dict(), trainer.optimizer_state_dict()
    steps, trained = int(states["num_steps"].item()), trainer.trained
    numbered: dict[Any, str] = {}
    lines: list[str] = []
    for held, group in zip(optimizer.param_groups, result["param_groups"], strict=True):
        members = [(k, p, names.get(id(p), "")) for k, p in zip(group["params"], held["params"], strict=True)]
        lines += [f"a parameter of shape {tuple(p.shape)} is none of the module" for _, p, name in members if not name]
        lines += [
            f"{name} is frozen here, and would be trained there"
            for _, p, name in members
            if name and name not in trained and p.requires_grad
        ]
        own = [(k, name) for k, _, name in members if name in trained]
        numbered |= dict(own)
        lines += _set_hyperparameters(trainer, kind, group, [name for _, name in own])
    lines += [f"{name} is trained here, and not by that optimizer" for name in trained if name not in numbered.values()]
    if lines:
        raise ArgumentError(
            "the trainer's optimizer and that of PyTorch do not fit, nothing was written:\n  " + "\n  ".join(lines),
            hint="torch.optim.…([p for p in net.parameters() if p.requires_grad]) trains what is not frozen",
        )
    result["state"] = {}
    for k, name in numbered.items() if steps else ():
        own_states = {
            there: as_torch(states[f"{here} of {name}"])
            for there, here in kind.slots.items()
            if f"{here} of {name}" in states
        }
        if not own_states:
            continue
        if "exp_avg" in own_states:
            own_states["step"] = torch.tensor(float(steps), dtype=torch.float32)
        result["state"][k] = own_states
    return result


def _set_hyperparameters(trainer: Trainer, kind: _Kind, group: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Give a group of PyTorch's the hyperparameters of its members here; a line for each in which these differ. What
    follows a schedule here stays as it is there."""
    lines = []
    given = [_hyperparameters(trainer, kind, name) for name in names]
    for key in kind.hyperparameters:
        values = {repr(of[key]): of[key] for of in given if not isinstance(of[key], str)}
        if len(values) > 1:
            lines.append(f"{key} of {', '.join(names)} is {' and '.join(values)} here: they are to be several groups")
        for value in values.values():
            group[key] = value
    return lines


def _canonical(trainer: Trainer, name: str) -> str:
    """The name of a parameter in the trainer, of one that is held under several."""
    return trainer.mod.attrs.get("aliases", {}).get(name, name)


def _hyperparameters(trainer: Trainer, kind: _Kind, name: str) -> dict[str, Any]:
    """The hyperparameters of a parameter under PyTorch's names; those that follow a schedule are text."""
    found, pattern = trainer.hyperparameters, _pattern(trainer, name)

    def value(key: str) -> Any:
        return found.get(f"{key}[{pattern}]", found.get(key, _DEFAULTS.get(key)))

    result = {key: value(key) for key in kind.hyperparameters if key != "betas"}
    return result | ({"betas": _betas(trainer, pattern)} if "betas" in kind.hyperparameters else {})


def _betas(trainer: Trainer, pattern: str | None) -> tuple[float, float] | str:
    """The momenta of a group; text where one of them follows a schedule."""
    found = trainer.hyperparameters
    own = found.get(f"betas[{pattern}]")  # as text: it is no number
    if isinstance(own, str):
        try:
            beta1, beta2 = map(float, ast.literal_eval(own))
            return beta1, beta2
        except (ValueError, TypeError):
            return own
    first, second = found["beta1"], found["beta2"]
    return first if isinstance(first, str) else second if isinstance(second, str) else (first, second)


def _pattern(trainer: Trainer, name: str) -> str | None:
    """The pattern of the group of parameters that one belongs to, if there are groups."""
    patterns = dict.fromkeys(key.partition("[")[2][:-1] for key in trainer.hyperparameters if key.endswith("]"))
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _states_from(
    trainer: Trainer, module: Any, theirs: Mapping[str, Any], optimizer: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """The trainer's optimizer states, and run-time values, from an optimizer of PyTorch or its state dict."""
    is_dict = isinstance(optimizer, Mapping)
    kind = _kind_of(trainer, None if is_dict else type(optimizer).__name__)
    held = optimizer if is_dict else optimizer.state_dict()
    if not {"state", "param_groups"} <= set(held):
        raise ArgumentError(
            "expected a torch.optim.Optimizer or its state_dict(), which has state and param_groups",
            hint="optimizer.state_dict() is one",
        )
    names = _names_of(trainer, module, theirs, optimizer, held)
    run_time: dict[str, float] = {}
    lines: list[str] = []
    for group in held["param_groups"]:
        for k in group["params"]:
            lines += _other_hyperparameters(trainer, kind, group, names[k], run_time)
    states = {names[k]: state for k, state in held["state"].items() if state}
    lines += [f"{name} has states there, and is not trained here" for name in states if name not in trainer.trained]
    new = _taken(trainer, kind, held["param_groups"], names, states, lines)
    if lines:
        unique = list(dict.fromkeys(lines))
        raise ArgumentError(
            "the trainer's optimizer and that of PyTorch do not fit, nothing was loaded:\n  " + "\n  ".join(unique),
            hint="make the trainer with the same hyperparameters, or with RunTime(…), which takes PyTorch's",
        )
    return new, run_time


def _names_of(trainer: Trainer, module: Any, theirs: Any, optimizer: Any, held: Any) -> dict[Any, str]:
    """The names of the parameters that an optimizer numbers."""
    numbers = [k for group in held["param_groups"] for k in group["params"]]
    given = [name for group in held["param_groups"] for name in group.get("param_names", ())]
    if len(given) == len(numbers):  # it was made of named parameters
        found = given
    elif not isinstance(module, Mapping) and not isinstance(optimizer, Mapping):
        names = {id(p): name for name, p in _module(module).named_parameters()}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        foreign = [tuple(p.shape) for p in parameters if id(p) not in names]
        if foreign:
            shapes = ", ".join(map(str, foreign))
            raise ArgumentError(f"the optimizer has parameters that are none of the module, of shapes {shapes}")
        found = [names[id(p)] for p in parameters]
    else:  # in the order of the module
        slots = {slot.name for slot in trainer._interface.params}
        if isinstance(module, Mapping):
            known = [name for name in theirs if name in slots]
            orders = [known, [name for name in known if name in trainer.trained]]
        else:
            named = dict(_module(module).named_parameters())
            orders = [list(named), [name for name, p in named.items() if p.requires_grad]]
        found = next((order for order in orders if len(order) == len(numbers)), [])
        numbers.sort()
        if not found:
            raise ArgumentError(
                f"the optimizer's state dict numbers {len(numbers)} parameters, the module has {len(orders[0])}",
                hint="give the optimizer itself, or make it of net.named_parameters()",
            )
    return {k: _canonical(trainer, name) for k, name in zip(numbers, found, strict=True)}


def _other_hyperparameters(
    trainer: Trainer, kind: _Kind, group: Mapping[str, Any], name: str, run_time: dict[str, float]
) -> list[str]:
    """A line for each hyperparameter of a parameter that is another one there; those that can be set are noted."""
    lines = []
    ours, pattern = _hyperparameters(trainer, kind, name), _pattern(trainer, name)
    settable = trainer._interface.record.run_time
    for key in kind.hyperparameters:
        if key not in group:
            lines.append(f"{key} is not told in PyTorch's state dict: it is that of another optimizer")
            continue
        theirs = tuple(map(float, group[key])) if key == "betas" else group[key]
        theirs = theirs if isinstance(theirs, (bool, tuple)) else float(theirs)
        name_here = f"{key}[{pattern}]" if f"{key}[{pattern}]" in settable else key
        if name_here in settable and not isinstance(theirs, tuple):  # beta1 and beta2 can be set, betas cannot
            if run_time.setdefault(name_here, theirs) != theirs:
                lines.append(f"{key} is {run_time[name_here]} and {theirs} there, one run-time value here")
        elif not isinstance(ours[key], str) and ours[key] != theirs:
            lines.append(f"{key} is {ours[key]} here, {theirs} there")
    return lines


def _taken(
    trainer: Trainer, kind: _Kind, groups: Any, names: Mapping[Any, str], states: Mapping[str, Any], lines: list[str]
) -> dict[str, Any]:
    """The trainer's states by name. ``lines`` gets what does not fit."""
    known = trainer.optimizer_state_dict()
    trained = [name for name in trainer.trained if any(f"{here} of {name}" in known for here in kind.slots.values())]
    new: dict[str, Any] = {}
    for name in trained:
        for there, here in kind.slots.items():
            label = f"{here} of {name}"
            if label not in known:
                continue
            value = states.get(name, {}).get(there)
            new[label] = np.zeros(known[label].shape) if value is None else value
            if value is not None and tuple(value.shape) != tuple(known[label].shape):
                lines.append(f"{there} of {name} is {tuple(value.shape)}, here {known[label].shape}")
    steps = {name: int(states[name]["step"]) if name in states else 0 for name in trained if _counts(kind)}
    if len(set(steps.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in steps.items())
        lines.append(f"parameters were updated different numbers of times, which a trainer does not count: {counts}")
    if steps:
        count = next(iter(steps.values()))
        new["num_steps"] = np.array(count, np.int64)
        new |= _products(trainer, known, count, lines)
    elif trained:
        new |= _momentum_steps(trainer, trained, states, lines)
    return new


def _counts(kind: _Kind) -> bool:
    return "exp_avg" in kind.slots


def _products(trainer: Trainer, known: Mapping[str, Any], count: int, lines: list[str]) -> dict[str, Any]:
    """The products of momenta after so many steps."""
    found = {}
    for label in known:
        name, _, group = label.partition("_prod")
        if name not in ("beta1", "beta2") or "_prod" not in label:
            continue
        betas = _betas(trainer, group[1:-1])
        if isinstance(betas, str):
            lines.append(f"the momenta are {betas} here, whose product is not known")
        else:
            found[label] = np.array(betas[name == "beta2"] ** count)
    return found


def _momentum_steps(
    trainer: Trainer, trained: Sequence[str], states: Mapping[str, Any], lines: list[str]
) -> dict[str, Any]:
    """The number of steps where PyTorch does not count them: it tells the first one, which is not dampened."""
    moving = [name for name in trained if states.get(name, {}).get("momentum_buffer") is not None]
    if moving and len(moving) < len(trained) and trainer.hyperparameters.get("dampening"):
        still = ", ".join(name for name in trained if name not in moving)
        lines.append(f"{still} had no step yet, others had, which a trainer does not tell apart")
    return {"num_steps": np.array(max(trainer.steps, 1) if moving else 0, np.int64)}
