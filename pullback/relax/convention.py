"""The convention of a trainer module: what each of its functions takes and returns, as data.

    I.module_attrs({"convention": {
        "backbone": ((("input", 1), ("parameter", 2)), (("output", 1),)),
        "backbone_loss": ((("input", 1), ("parameter", 2), ("target", 1)), (("loss", 1),)),
        "backbone_loss_adjoint": ((("input", 1), ("parameter", 2), ("target", 1)), (("loss", 1), ("gradient", 2))),
        "optimizer": (
            (("parameter", 2), ("gradient", 2), ("optimizer state", 1)), (("parameter", 2), ("optimizer state", 1)),
        ),
    }})

For each function (those too that are made when the module is compiled): what it takes and what it returns, as runs of
values of one kind; tuples count tensor by tensor. A value is a kind and a number: ``("parameter", 1)`` is the same
parameter in all functions. A run counts on from the one before, or from a third entry: ``("parameter", 1, 1)``. Of
parameters that are not trained there are no gradients. A result that is one of a function's own parameters is its new
value.

Only this file says where something stands. Who wants to call a function says what the values are
(:meth:`Roles.arrange`), and who wants to know what a parameter is asks for its kind.

A module without the attribute, written by hand or by an older version, declares the parameters of its backbone by
``R.Param`` and ``R.State`` (``relax/declared.py``), in any order, or has the integers ``param_num`` and ``state_num``:
then inputs come first, then parameters, then states. In either case other functions take targets after these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.declared import DECLARED, INPUT, PARAMETER, STATE, Declared, declared_of
from pullback.relax.expr import Function
from pullback.relax.struct_info import flat_infos

BACKBONE, LOSS, ADJOINT, OPTIMIZER = "backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"
STEP = "__step"  # forward, loss, backward and optimizer as one function, which overwrites what the trainer keeps
DIVISOR = "__divisor"  # what the loss is divided by, unless it adds up: see relax/transform/loss_divisor.py
EVALUATE = "__evaluate"  # loss and prediction of a batch: see relax/training/evaluation.py
OUTPUTS = "__outputs"  # what the model returns in a step that returns it too: see relax/training/observation.py
TRAIN = "train"  # a whole training: see relax/training/join_run.py
ATTRIBUTE = "convention"

TARGET, RANDOM = "target", "random state"
OPTIMIZER_STATE, HYPERPARAMETER, LOSS_SCALE = "optimizer state", "hyperparameter", "loss scale"
BATCH_WEIGHT = "batch weight"  # an optimizer state that the step sets to the divisor of the batch's loss
OUTPUT, LOSS_VALUE, DIVISOR_VALUE, GRADIENT = "output", "loss", "divisor", "gradient"
EPOCHS, ORDER, LOSSES = "epochs", "row order", "epoch losses"  # of a whole training
OF_OPTIMIZER = (
    OPTIMIZER_STATE,
    HYPERPARAMETER,
    LOSS_SCALE,
    BATCH_WEIGHT,
)  # what the optimizer keeps besides the parameters
KEPT = (PARAMETER, STATE, RANDOM, *OF_OPTIMIZER)  # what a trainer keeps, and a step overwrites
KINDS = (INPUT, *KEPT, TARGET, OUTPUT, LOSS_VALUE, DIVISOR_VALUE, GRADIENT, EPOCHS, ORDER, LOSSES)
_OF_A_CALL = (OUTPUT, GRADIENT)  # what the adjoint returns and a step does not

_LONGEST = 1 << 20  # values of a run, in an attribute that people may have written

Value = tuple[str, int]  # the kind, and which of that kind
T = TypeVar("T")


@dataclass(frozen=True)
class Roles:
    """What one function takes and returns, tensor by tensor."""

    takes: tuple[Value, ...]
    returns: tuple[Value, ...]

    def taken(self, *kinds: str) -> tuple[int, ...]:
        """The numbers of the parameters of these kinds (all, if none is given), as they stand."""
        return _numbers(self.takes, kinds)

    def returned(self, *kinds: str) -> tuple[int, ...]:
        """The numbers of the results of these kinds."""
        return _numbers(self.returns, kinds)

    def arrange(self, values: Mapping[Value, T]) -> list[T]:
        """The arguments of a call, from what the values are."""
        return [values[v] for v in self.takes]

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """For each result that is a new value of a parameter, the number of that parameter."""
        places = {v: i for i, v in enumerate(self.takes)}
        return tuple(places[v] for v in self.returns if v in places)


@dataclass(frozen=True)
class Convention:
    """The roles of each function of a module, by its name."""

    functions: dict[str, Roles]

    @staticmethod
    def of(module: IRModule) -> Convention:
        """What the attribute ``convention`` says, or else the older attributes; an ArgumentError when that does not
        fit the functions. A module with neither has the convention of no function."""
        if ATTRIBUTE in module.attrs:
            result = _parsed(module.attrs[ATTRIBUTE])._with_step(adds_up(module))
        elif _declares(module) or ("param_num" in module.attrs and BACKBONE in module):
            result = Convention.made(module, random=_integer(module, "random_state_num"), kinds=_older_kinds(module))
        else:
            return Convention({})
        for name, roles in result.functions.items():
            result._check(name, roles, module.functions.get(name))
        result._check_step()
        return result

    @staticmethod
    def made(
        module: IRModule, random: int = 0, kinds: Mapping[int, str] | None = None, trained: Sequence[int] | None = None
    ) -> Convention:
        """The convention of a module whose attributes, or whose backbone, declare what is a parameter and a state, and
        whose other functions take what the backbone takes, then targets and ``random`` random states. ``kinds``: what
        optimizer states are, by number, where they are not just that; ``trained``: the parameters of which there are
        gradients, if not all. Functions that the module lacks are left out.
        """
        takes, returns = {n: _count(module, n, False) for n in _ALL}, {n: _count(module, n, True) for n in _ALL}
        model = _model(module, takes[BACKBONE])
        params, states = (sum(n for kind, n in model if kind == k) for k in (PARAMETER, STATE))
        loss = [*model, (TARGET, takes[LOSS] - takes[BACKBONE] - random), (RANDOM, random)]
        values = [(LOSS_VALUE, 1), (OUTPUT, returns[LOSS] - 1 - states), (STATE, states)]
        trained = range(params) if trained is None else trained
        gradients = [(GRADIENT, 1, i) for i in trained]
        kept = [(kinds or {}).get(i, OPTIMIZER_STATE) for i in range(takes[OPTIMIZER] - params - len(trained))]
        optimizer = [(kind, len(list(run))) for kind, run in groupby(kept)]
        scale = [run for run in optimizer if run[0] == LOSS_SCALE]
        made = {
            BACKBONE: _roles(model, [(OUTPUT, returns[BACKBONE] - states), (STATE, states)]),
            LOSS: _roles(loss, values),
            ADJOINT: _roles([*loss, *scale], [*values, *gradients]),
            OPTIMIZER: _roles([(PARAMETER, params), *gradients, *optimizer], [(PARAMETER, params), *optimizer]),
        }
        return Convention({name: roles for name, roles in made.items() if name in module})._with_step(adds_up(module))

    def __getitem__(self, name: str) -> Roles:
        if name not in self.functions:
            raise ArgumentError(f"the convention of the module says nothing of the function {name}", hint=_HOW)
        return self.functions[name]

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    @property
    def attribute(self) -> dict[str, Any]:
        """As plain values, which can be printed."""
        return {name: (_runs(roles.takes), _runs(roles.returns)) for name, roles in self.functions.items()}

    @cached_property
    def optimizer_states(self) -> tuple[Value, ...]:
        """What the optimizer keeps, in its order."""
        return tuple(v for v in self[OPTIMIZER].takes if v[0] in OF_OPTIMIZER)

    @cached_property
    def kept(self) -> tuple[Value, ...]:
        """What a trainer keeps: parameters, states, random states, and the optimizer's."""
        first = (v for kind in (PARAMETER, STATE, RANDOM) for v in self[LOSS].takes if v[0] == kind)
        return (*first, *self.optimizer_states)

    def _with_step(self, adds_up: bool) -> Convention:
        """And the roles of the joined step, which takes what the adjoint takes and what the optimizer keeps. It returns
        what the adjoint returns of a whole batch, the loss first, and the divisor of a loss that does not add up, then
        what ``__outputs`` returns, where there is one, and the new values of all that the trainer keeps.
        """
        if ADJOINT not in self or OPTIMIZER not in self or LOSS not in self:
            return self
        takes = [v for v in self[ADJOINT].takes if v[0] not in OF_OPTIMIZER]
        returns = [v for v in self[ADJOINT].returns if v[0] not in (*_OF_A_CALL, *KEPT)]
        divisor: tuple[Value, ...] = () if adds_up else ((DIVISOR_VALUE, 0),)
        outputs = self[OUTPUTS].returns if OUTPUTS in self else ()
        made = {
            STEP: Roles((*takes, *self.optimizer_states), (*returns, *divisor, *outputs, *self.kept)),
            EVALUATE: Roles(self[LOSS].takes, ((LOSS_VALUE, 0), *divisor, (OUTPUT, 0))),
        }
        own = {} if adds_up else {DIVISOR: Roles(self[LOSS].takes, divisor)}
        return Convention(made | own | self.functions)

    @staticmethod
    def _check(name: str, roles: Roles, function: Any) -> None:
        """The function takes and returns as many tensors as the convention says."""
        if not isinstance(function, Function):
            return
        takes, returns = _tensors(function)
        for what, found, wanted in (("takes", takes, roles.takes), ("returns", returns, roles.returns)):
            if found != len(wanted):
                raise ArgumentError(
                    f"{name} {what} {found} tensors, by the convention of its module {len(wanted)}: {_text(wanted)}",
                    span=function.span,
                    hint="a pass that changes what a function takes or returns changes the module attribute"
                    f" {ATTRIBUTE!r} too",
                )

    def _check_step(self) -> None:
        """What the functions of a step take is there, once."""
        if STEP not in self.functions:
            return
        made = set(self[ADJOINT].returns)
        kept = {*self[ADJOINT].takes, *self.optimizer_states}
        for name in (ADJOINT, LOSS, DIVISOR, OPTIMIZER, OUTPUTS, STEP):
            takes = self.functions[name].takes if name in self else ()
            _check_there(f"{name} takes", takes, kept | made if name == OPTIMIZER else kept)
        drawn = {v for v in kept if v[0] == RANDOM}
        outputs = self[OUTPUTS].returns if OUTPUTS in self else ()
        given = made | drawn | {*self[OPTIMIZER].returns, *outputs, (DIVISOR_VALUE, 0)}
        _check_there(f"{STEP} returns", self[STEP].returns, given)


def _check_there(what: str, values: Sequence[Value], found: Collection[Value]) -> None:
    seen: set[Value] = set()
    for value in values:
        if value in seen or value not in found:
            problem = "twice" if value in seen else "which nothing gives"
            message = f"by the module attribute {ATTRIBUTE!r}, {what} {value[0]} number {value[1]}, {problem}"
            raise ArgumentError(message, hint=_HOW)
        seen.add(value)


_ALL = (BACKBONE, LOSS, ADJOINT, OPTIMIZER)


def declarations(module: IRModule) -> tuple[Declared, ...] | None:
    """What the parameters of a module's backbone are declared to be; None where nothing is. An ArgumentError where the
    attributes ``param_num`` and ``state_num`` say something else."""
    backbone = module.functions.get(BACKBONE)
    found = declared_of(backbone) if isinstance(backbone, Function) else None
    for key, kind, name in (("param_num", PARAMETER, "R.Param"), ("state_num", STATE, "R.State")):
        counted = sum(d.kind == kind for d in found or ())
        if found is not None and key in module.attrs and _integer(module, key) != counted:
            assert backbone is not None
            raise ArgumentError(
                f"the module attribute {key!r} is {module.attrs[key]}, but {counted} of the parameters of {BACKBONE}"
                f" are declared as {name}",
                span=backbone.span,
                hint=f"leave the attribute out: {name} says it, or declare none by R.Param and R.State",
            )
    return found


def _declares(module: IRModule) -> bool:
    backbone = module.functions.get(BACKBONE)
    return isinstance(backbone, Function) and DECLARED in backbone.attrs


def _model(module: IRModule, count: int) -> list[tuple[str, int]]:
    """What the backbone takes, ``count`` tensors, as runs of kinds."""
    found = declarations(module)
    if found is not None:
        return [(kind, len(list(run))) for kind, run in groupby(d.kind for d in found)]
    params, states = _integer(module, "param_num"), _integer(module, "state_num")
    return [(INPUT, count - params - states), (PARAMETER, params), (STATE, states)]


def is_trainer_module(module: IRModule) -> bool:
    """Whether SetupTrainer made the module (or somebody with the same names and attributes)."""
    known = ATTRIBUTE in module.attrs or all(k in module.attrs for k in ("param_num", "state_num", "input_num"))
    return known and all(isinstance(module.functions.get(n), Function) for n in (ADJOINT, OPTIMIZER))


def attributes_without(module: IRModule, name: str, bound: Sequence[bool]) -> dict[str, Any]:
    """The attributes of a module, one of whose functions no longer takes the parameters that are ``bound``."""
    convention = Convention.of(module)
    if name not in convention:
        return {}
    infos = [flat_infos(p.struct_info) for p in module[name].params]
    gone = [is_bound for is_bound, flat in zip(bound, infos, strict=True) for _ in flat]
    takes = tuple(v for v, is_gone in zip(convention[name].takes, gone, strict=True) if not is_gone)
    if ATTRIBUTE in module.attrs or is_trainer_module(module):
        functions = {**convention.functions, name: Roles(takes, convention[name].returns)}
        return {ATTRIBUTE: Convention(functions).attribute}
    kinds = [kind for kind, _ in takes]
    return {"param_num": kinds.count(PARAMETER), "state_num": kinds.count(STATE)}


def functions_for_inference(module: IRModule) -> list[str]:
    """Of a trainer module, the functions that predict: they take the form for inference when they are compiled."""
    is_set_up = LOSS in module and (ATTRIBUTE in module.attrs or "input_num" in module.attrs)
    return [n for n in (BACKBONE, EVALUATE) if is_set_up and isinstance(module.functions.get(n), Function)]


def _numbers(values: Sequence[Value], kinds: Sequence[str]) -> tuple[int, ...]:
    return tuple(i for i, (kind, _) in enumerate(values) if not kinds or kind in kinds)


def _roles(takes: Iterable[tuple[Any, ...]], returns: Iterable[tuple[Any, ...]]) -> Roles:
    """From runs of kinds."""
    return Roles(_values(takes), _values(returns))


def _values(runs: Iterable[tuple[Any, ...]]) -> tuple[Value, ...]:
    next_of: dict[str, int] = {}
    result: list[Value] = []
    for kind, length, *begins in runs:
        if length > _LONGEST:
            raise ValueError(f"a run of {length} values")
        first = begins[0] if begins else next_of.get(kind, 0)
        result += [(kind, i) for i in range(first, first + length)]
        next_of[kind] = first + length
    return tuple(result)


def _runs(values: Sequence[Value]) -> tuple[tuple[Any, ...], ...]:
    next_of: dict[str, int] = {}
    result: list[list[Any]] = []
    for kind, number in values:
        if number != next_of.get(kind, 0):
            result.append([kind, 1, number])
        elif result and result[-1][0] == kind:
            result[-1][1] += 1
        else:
            result.append([kind, 1])
        next_of[kind] = number + 1
    return tuple(map(tuple, result))


def _text(values: Sequence[Value]) -> str:
    runs = [(kind, len(list(run))) for kind, run in groupby(kind for kind, _ in values)]
    return ", ".join(f"{n} × {kind}" if n > 1 else kind for kind, n in runs) or "none"


def _tensors(function: Function) -> tuple[int, int]:
    """How many tensors a function takes, and returns."""
    return sum(len(flat_infos(p.struct_info)) for p in function.params), len(flat_infos(function.ret_struct_info))


def _count(module: IRModule, name: str, returned: bool) -> int:
    function = module.functions.get(name)
    return _tensors(function)[returned] if isinstance(function, Function) else 0


def _integer(module: IRModule, key: str) -> int:
    value = module.attrs.get(key, 0)
    return int(getattr(value, "value", value))


def adds_up(module: IRModule) -> bool:
    """Whether the loss is a sum over the batch: by the record that SetupTrainer leaves."""
    record = module.attrs.get("training")
    return isinstance(record, Mapping) and record.get("reduction") == "sum"


def _older_kinds(module: IRModule) -> dict[int, str]:
    """Of the optimizer states, in a module of an older version: the number of the loss scale was an attribute."""
    number = module.attrs.get("loss_scale_state")
    return {} if number is None else {int(number): LOSS_SCALE}


def _parsed(attribute: Any) -> Convention:
    """From the attribute, which people may have written."""
    try:
        result = {
            str(name): _roles(*([(str(kind), *map(int, numbers)) for kind, *numbers in r] for r in (takes, returns)))
            for name, (takes, returns) in attribute.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        message = f"the module attribute {ATTRIBUTE!r} maps functions to what they take and return, as runs of (kind,"
        raise ArgumentError(f"{message} count): {error}", hint=_HOW) from None
    unknown = {kind for r in result.values() for kind, _ in (*r.takes, *r.returns)} - set(KINDS)
    if unknown:
        kinds = ", ".join(KINDS)
        message = f"the module attribute {ATTRIBUTE!r} has the unknown kind {min(unknown)!r}; there are: {kinds}"
        raise ArgumentError(message, hint=_HOW)
    return Convention(result)


_HOW = "SetupTrainer writes it; modules without it are read by param_num and state_num"
