"""The base of the optimizers: states, the optimizer function, and what a subclass says."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, CallError, DTypeError, ShapeError, UserError
from pullback.ir.words import guided
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import HYPERPARAMETER, OF_OPTIMIZER
from pullback.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, as_relax, const
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, as_tensor, as_tuple, format_info, same_info
from pullback.relax.training.optimizer.value import RunTime, Scalar, Schedule, as_scalar, cast, complement, is_zero
from pullback.runtime.tensor import Tensor, tensor, zeros
from pullback.tir.expr import FLOATS, is_half

AVERAGE, AVERAGE_COUNT = "average", "average count"  # roles of states, besides the kinds of relax/convention.py


@dataclass(frozen=True)
class State:
    """One tensor that an optimizer keeps besides the step count."""

    info: TensorStructInfo
    initial: float = 0.0
    owner: str = ""  # the parameter that it belongs to
    name: str = ""
    role: str = ""  # for the trainer, which finds it by role and owner, or by role and run-time value
    run_time: RunTime | None = None
    group: str = ""  # the pattern of its group of parameters, where there are several

    @property
    def label(self) -> str:
        """``m of w0``, or ``beta1_prod``."""
        return f"{self.name} of {self.owner}" if self.owner else self.name

    def tensor(self) -> Tensor:
        """The initial value."""
        if not self.info.is_static:
            raise ShapeError(
                f"a state for parameter {self.owner} needs a shape that is known, got {format_info(self.info)}",
                span=self.info.span,
            )
        shape, dtype = self.info.static_shape, self.info.dtype
        if not self.initial:
            return zeros(shape, dtype)
        return tensor(np.broadcast_to(const(self.initial, dtype).data, shape))


@dataclass(frozen=True)
class Parameter:
    """A parameter in the optimizer function: as it was declared, its value, and its gradient."""

    declared: Var
    value: Expr
    gradient: Expr


@dataclass(frozen=True)
class Now:
    """What all parameters share in a step."""

    builder: BlockBuilder
    count: Expr  # how many steps were made before this one: int64, ()
    scalars: Mapping[str, Expr]  # the new values of the scalar states
    values: Mapping[str, Any]  # hyperparameters, and what prepare gave: numbers, or float64 scalars

    def value(self, name: str, dtype: str) -> Expr:
        """A value as a scalar of ``dtype``."""
        if name not in self.values:
            known = ", ".join(self.values) or "none"
            raise UserError(
                f"a step has no value {name!r}; its values are: {known}",
                hint="they are the hyperparameters and what prepare returns: an override adds to super().prepare(now)",
            )
        return cast(self.values[name], dtype)


@dataclass(frozen=True)
class Step(Now):
    """What an update may use besides the parameter and its gradient and states."""

    name: str  # of the parameter; variables are named after it
    dtype: str  # in which the parameter was declared
    scalars_of: dict[tuple[str, str], Expr]  # values as scalars of a dtype, which all parameters share

    def value(self, name: str, dtype: str) -> Expr:
        """A value as a scalar of ``dtype``, emitted once for all parameters."""
        if (name, dtype) not in self.scalars_of:
            value = super().value(name, dtype)
            self.scalars_of[name, dtype] = self.builder.emit(value, name) if isinstance(value, Call) else value
        return self.scalars_of[name, dtype]

    def emit(self, expr: Expr, suffix: str) -> Var:
        """Bind ``expr`` to a variable named after the parameter."""
        return self.builder.emit(expr, f"{self.name}_{suffix}")


class Optimizer:
    """Base of the optimizers: override :meth:`update` and, for states, ``slots``, ``scalars`` and :meth:`advance`.

    ``init`` sets ``param_list``, ``dtype`` (of scalar states: ``scalar_dtype``, or else float64 when a parameter is
    float64, float32 when none is) and ``state``, the initial states. ``hyperparameters`` are the public attributes of
    number type, and those that are schedules or run-time values (as text): their values are ``step.values`` in
    :meth:`update`. States lie in this order: step count, scalars, run-time values, then each kind of slot.
    """

    slots: tuple[str, ...] = ()  # kinds of state that each parameter has, zero at first, shaped like it
    scalars: dict[str, float] = {}  # noqa: RUF012  scalar states and their initial values
    scalar_dtype: str | None = None
    _made_with: inspect.BoundArguments | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        _check_no_parameters(cls.__name__, args[:1])
        made = super().__new__(cls)
        with contextlib.suppress(TypeError):  # a call that __init__ refuses, or a copy
            made._made_with = inspect.signature(cls).bind(*args, **kwargs)
        return made

    def __init_subclass__(cls) -> None:
        guided(cls)

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Var] | None = None
        self.dtype: str | None = None
        self._state: tuple[Any, ...] | None = None
        self._loss_adds_up = False
        self._frozen: frozenset[str] = frozenset()

    # ---- what a subclass says ----------------------------------------------------------------------------------------

    def slots_of(self, param: Var) -> Mapping[str, State]:
        """The states that a parameter has, by kind; by default one for each of ``slots``, zeros shaped like it."""
        return dict.fromkeys(self.slots, State(as_tensor(param.struct_info), owner=param.name))

    def advance(self, scalars: dict[str, Expr], values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        """The new values of the scalar states; ``values`` are the hyperparameters."""
        return scalars

    def prepare(self, now: Now) -> Mapping[str, Scalar]:
        """Scalars that all parameters need, computed once a step: they join ``step.values``."""
        return {}

    def update(self, step: Step, param: Var, gradient: Var, *slots: Any, **named: Any) -> Sequence[Expr]:
        """The new parameter, then its new states. What is kept in half precision is computed in float32: the arguments
        are float32 then, and the results are rounded once."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither update nor get_function")

    # ---- what users call ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> tuple[Any, ...] | None:
        """The states: a tuple of tensors, first the step count. Set it to what the optimizer function returned."""
        return self._state

    @state.setter
    def state(self, value: Sequence[Any] | None) -> None:
        if value is not None and self._state is not None and len(value) != len(self._state):
            raise ArgumentError(
                f"{self.name} has {len(self._state)} states, got {len(value)}",
                hint="its states are the step count, then those of each parameter, as init makes them",
            )
        self._state = None if value is None else tuple(value)

    @property
    def hyperparameters(self) -> dict[str, float | str]:
        """Learning rate and so on, by name."""
        return {k: repr(v) if isinstance(v, (Schedule, RunTime)) else v for k, v in self._hyperparameters().items()}

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Take the parameters to optimize and set the initial states; returns the optimizer itself.

        Raises ArgumentError for what is no variable or comes twice, DTypeError for parameters that are not float
        tensors.
        """
        if not isinstance(params, (Var, list, tuple)):
            message = f"{self.name}.init takes variables, the parameters to optimize, got {type(params).__name__}"
            raise ArgumentError(message, hint='such as mod["backbone"].params[1:]')
        self.take([params] if isinstance(params, Var) else list(params))
        self._state = None
        self.state = [tensor(np.zeros((), np.int64)), *(s.tensor() for s in self.states(self._trained()))]
        return self

    def get_function(self) -> Function:
        """The optimizer function, of one dataflow block. Raises UserError before :meth:`init`.

        It returns frozen parameters as they are, and does not look at their gradients.
        """
        if self.param_list is None or self._state is None:
            raise UserError(f"{self.name} has no parameters yet", hint="call init(params) before get_function()")
        types = TupleStructInfo(tuple(p.struct_info for p in self.param_list))
        states = TupleStructInfo((TensorStructInfo((), "int64"), *(s.info for s in self.states(self._trained()))))
        arguments = [Var("params", types), Var("gradients", types), Var("optim_states", states)]
        builder = BlockBuilder()
        with builder.function(self.name, arguments):
            with builder.dataflow():
                outputs = self._outputs(builder, self.param_list, *arguments)
            builder.emit_func_output(Tuple(outputs))
        return builder.get()[self.name]

    def _outputs(
        self, builder: BlockBuilder, params: Sequence[Var], values: Var, gradients: Var, states: Var
    ) -> tuple[Expr, ...]:
        """Emit the update of all parameters; returns the tuples of new parameters and of new states."""
        count = builder.emit(TupleGetItem(states, 0), "num_steps")
        new_count = builder.emit(op.add(count, const(1, "int64")), "num_steps_new")
        places = [i for i, p in enumerate(params) if not self.is_frozen(p.name)]
        trained = []
        for i in places:
            value, gradient = (_widened(builder, TupleGetItem(of, i)) for of in (values, gradients))
            trained.append(Parameter(params[i], value, gradient))
        kept = [TupleGetItem(states, i) for i in range(1, len(as_tuple(states.struct_info).fields))]
        old = [_widened(builder, state) for state in kept]
        new_values, changed = self.emit(builder, count, trained, old)
        pairs = zip(places, new_values, strict=True)
        replaced = {i: _narrowed(builder, value, params[i].dtype) for i, value in pairs}
        new_states = [
            before if value is wide else _narrowed(builder, value, before.dtype)
            for before, wide, value in zip(kept, old, changed, strict=True)
        ]
        results = [replaced[i] if i in replaced else TupleGetItem(values, i) for i in range(len(params))]
        return (
            builder.emit_output(Tuple(tuple(results)), "params_new"),
            builder.emit_output(Tuple((new_count, *new_states)), "optim_states_new"),
        )

    # ---- what wrappers override or call ------------------------------------------------------------------------------

    def is_frozen(self, name: str) -> bool:
        """Whether a parameter of this name is left as it is."""
        return name in self._frozen

    def freeze(self, names: Collection[str]) -> None:
        """Leave the parameters of these names as they are; before :meth:`init`. Raises UserError where a subclass
        writes the optimizer function itself, which may not know of it."""
        if names and type(self).get_function is not Optimizer.get_function:
            raise UserError(
                f"{type(self).__name__} makes its function itself, so it cannot freeze {', '.join(names)}",
                hint="override update in place of init and get_function",
            )
        self._frozen = frozenset(names)

    def take_loss(self, adds_up: bool) -> None:
        """Take to heart, before :meth:`init`, whether the loss is a sum over the batch: those of batches add up."""
        self._loss_adds_up = adds_up

    def take(self, params: list[Var]) -> None:
        """Check the parameters; set ``param_list`` and ``dtype``."""
        seen: set[Var] = set()
        for param in params:
            if not isinstance(param, Var):
                raise ArgumentError(
                    f"{self.name} optimizes variables, got {type(param).__name__} {param!r}",
                    hint="init takes the relax.Var parameters of the adjoint; values are given to the trainer",
                )
            info = param.struct_info
            if not isinstance(info, TensorStructInfo) or info.dtype not in FLOATS:
                raise DTypeError(
                    f"{self.name} optimizes float tensors, parameter {param.name} is {format_info(info)}",
                    span=param.span,
                    hint="integers have no gradient: make it an input or a state of the model",
                )
            if param in seen:
                raise ArgumentError(
                    f"parameter {param.name} is given to {self.name} twice", hint="give each parameter once"
                )
            seen.add(param)
        if not params:
            raise ArgumentError(
                f"{self.name} has no parameter to optimize",
                hint="param_num of the module says how many parameters there are",
            )
        self.param_list = params
        self.dtype = self.scalar_dtype or ("float64" if any(p.dtype == "float64" for p in params) else "float32")

    def _trained(self) -> list[Var]:
        return [p for p in self.param_list or () if not self.is_frozen(p.name)]

    def states(self, params: Sequence[Var]) -> list[State]:
        """What is kept for these parameters, all of them trained, besides the step count."""
        assert self.dtype is not None  # since init took the parameters
        scalar = TensorStructInfo((), self.dtype)
        result = [State(scalar, initial, name=name) for name, initial in self.scalars.items()]
        result += self._run_time_states()
        slots = [self.slots_of(p) for p in params]
        return result + [replace(of[kind], name=kind) for kind in _kinds(slots) for of in slots if kind in of]

    def _hyperparameters(self) -> dict[str, Any]:
        public = ((k, v) for k, v in vars(self).items() if not k.startswith("_"))
        return {k: v for k, v in public if isinstance(v, (bool, int, float, Schedule, RunTime))}

    def _run_time_states(self) -> list[State]:
        """A state for each hyperparameter that is a run-time value."""
        values = [v for v in self._hyperparameters().values() if isinstance(v, RunTime)]
        scalar = TensorStructInfo((), "float64")
        return [State(scalar, v.initial, name=v.name, role=HYPERPARAMETER, run_time=v) for v in values]

    def values_at(self, builder: BlockBuilder, count: Expr, states: Sequence[Expr]) -> dict[str, Any]:
        """The hyperparameters in a step, given the states of the run-time values."""
        kept = iter(states)
        values: dict[str, Any] = {}
        for name, given in self._hyperparameters().items():
            if isinstance(given, RunTime):
                values[name] = builder.emit(next(kept), name)
            elif isinstance(given, Schedule):
                value = given.value(count)
                values[name] = builder.emit(value, name) if isinstance(value, Expr) else value
            else:
                values[name] = given
        return values

    def emit(
        self, builder: BlockBuilder, count: Expr, params: Sequence[Parameter], states: Sequence[Expr]
    ) -> tuple[list[Expr], list[Expr]]:
        """Emit the update of parameters, given the number of steps made and what :meth:`states` says; returns the new
        parameters and the new states.
        """
        first_value = len(self.scalars)
        first_slot = first_value + len(self._run_time_states())
        values = self.values_at(builder, count, states[first_value:first_slot])
        old = dict(zip(self.scalars, states, strict=False))
        scalars = {n: builder.emit(value, n) for n, value in self._advanced(old, values).items()}
        now = Now(builder, count, scalars, values)
        prepared = {n: builder.emit(v, n) if isinstance(v, Expr) else v for n, v in self.prepare(now).items()}
        slots = [self.slots_of(p.declared) for p in params]
        kinds = _kinds(slots)
        places = [(kind, i) for kind in kinds for i, of in enumerate(slots) if kind in of]
        old_slots = dict(zip(places, states[first_slot:], strict=True))
        new_params: list[Expr] = []
        new_slots: dict[tuple[str, int], Expr] = {}
        shared: dict[tuple[str, str], Expr] = {}
        for i, parameter in enumerate(params):
            name = parameter.declared.name
            step = Step(builder, count, scalars, values | prepared, name, parameter.declared.dtype, shared)
            param = _bound(builder, parameter.value, name)
            gradient = _bound(builder, parameter.gradient, f"{name}_grad")
            mine = {kind: builder.emit(old_slots[kind, i], f"{name}_{kind}") for kind in slots[i]}
            new_param, *new = self._updated(step, param, gradient, mine)
            new_params.append(builder.emit(new_param, f"{name}_new"))
            for kind, value in zip(mine, new, strict=True):
                new_slots[kind, i] = _bound(builder, value, f"{name}_{kind}_new")
        kept = [*scalars.values(), *states[first_value:first_slot]]
        return new_params, kept + [new_slots[place] for place in places]

    def _advanced(self, old: Mapping[str, Expr], values: Mapping[str, Any]) -> dict[str, Expr]:
        """What :meth:`advance` gives, checked."""
        new = self.advance(dict(old), values)
        if not isinstance(new, Mapping) or new.keys() != old.keys():
            wanted = ", ".join(old) or "nothing"
            raise UserError(
                f"{type(self).__name__}.advance must return a dict of the new {wanted}, it returned {new!r}"
            )
        return {name: as_relax(new[name]) for name in old}

    def _updated(self, step: Step, param: Var, gradient: Var, slots: Mapping[str, Var]) -> list[Expr]:
        """What :meth:`update` gives, checked: the new parameter and the new states, of the types of the old ones."""
        new = self.update(step, param, gradient, *slots.values())
        names = ["the new parameter", *(f"its new {slot}" for slot in slots)]
        wanted = f"({', '.join(names)}{',' if not slots else ''})"
        problem = f"{type(self).__name__}.update must return the tuple {wanted}"
        if not isinstance(new, (tuple, list)):
            given = f"one {'expression' if isinstance(new, Expr) else type(new).__name__}"
            raise UserError(f"{problem}, it returned {given}", hint="write return (new_param,)" if not slots else None)
        if len(new) != len(names):
            raise UserError(f"{problem}, it returned {len(new)} values")
        for name, old, value in zip(names, (param, *slots.values()), new, strict=True):
            if not isinstance(value, Expr):
                raise UserError(f"{problem}; {name} is no expression but {value!r}")
            if not same_info(value.struct_info, old.struct_info):
                types = f"{format_info(old.struct_info)}, it is {format_info(value.struct_info)}"
                raise UserError(f"{type(self).__name__}.update: {name} of {step.name} must be {types}")
        return list(new)

    # ---- what the trainer asks ---------------------------------------------------------------------------------------

    @property
    def roles(self) -> dict[str, Any]:
        """What a trainer has to know of the states, after :meth:`init`: ``optimizer_states`` are their names,
        ``optimizer_groups`` the patterns of their groups, if there are several. Of those, ``run_time`` maps the names
        of run-time values to the numbers of the states that hold them and to their bounds, ``averages`` parameters to
        theirs, and "" to how many were averaged.
        """
        run_time: dict[str, dict[str, Any]] = {}
        averages: dict[str, int] = {}
        states = self.states(self._trained()) if self.param_list else []
        for i, state in enumerate(states, 1):
            if state.run_time is not None:
                value = state.run_time
                entry = run_time.setdefault(value.name, {"states": (), "least": value.least, "below": value.below})
                entry["states"] += (i,)
            elif state.role in (AVERAGE, AVERAGE_COUNT):
                averages[state.owner] = i  # the count is owned by nobody
        labels = ("num_steps", *(state.label for state in states))
        groups = ("", *(state.group for state in states))
        return {
            "optimizer_states": labels,
            "optimizer_groups": groups if any(groups) else (),
            "run_time": run_time,
            "averages": averages,
        }

    @property
    def state_kinds(self) -> dict[int, str]:
        """After :meth:`init`, the kinds of states that have one of their own (``relax/convention.py``), by number."""
        states = self.states(self._trained()) if self.param_list else []
        return {i: state.role for i, state in enumerate(states, 1) if state.role in OF_OPTIMIZER}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._hyperparameters().items())})"


def _check_no_parameters(name: str, first: Sequence[Any]) -> None:
    """PyTorch's optimizers are given the parameters; ours get them from the trainer."""
    if any(isinstance(value, (Iterator, list)) for value in first):
        raise CallError(
            f"{name}(): an optimizer is not given the parameters of a model",
            hint=f"leave them out, {name}(lr=1e-3): the trainer gives it those with requires_grad",
        )


def regularized(step: Step, param: Expr, gradient: Var) -> Var:
    """The gradient to descend along: that of the loss, negated to ``maximize``, with L2 ``weight_decay``."""
    return decayed(step, param, signed(step, gradient))


def signed(step: Step, gradient: Var) -> Var:
    """The gradient, negated to ``maximize``."""
    return step.emit(op.negative(gradient), "grad_neg") if step.values.get("maximize") else gradient


def decayed(step: Step, param: Expr, gradient: Var) -> Var:
    """The gradient with L2 weight decay."""
    if _no_decay(step):
        return gradient
    return step.emit(op.add(op.multiply(step.value("weight_decay", param.dtype), param), gradient), "grad_new")


def shrunk(step: Step, param: Var) -> Var:
    """The parameter with decoupled weight decay: (1 - lr · weight_decay) · p."""
    if _no_decay(step):
        return param
    factor = 1.0 - step.values["lr"] * step.values["weight_decay"]
    return step.emit(op.multiply(param, cast(factor, param.dtype)), "decayed")


def average(step: Step, old: Expr, new: Expr, weight: str) -> Expr:
    """weight · old + (1 - weight) · new, with the value of that name."""
    kept = step.values[weight]
    return op.add(op.multiply(cast(kept, old.dtype), old), op.multiply(cast(complement(kept), old.dtype), new))


def powers_left(scalars: Mapping[str, Expr], name: str) -> Expr:
    """1 - βᵗ, given the product of all β so far, a scalar state."""
    return op.subtract(as_scalar(1.0), scalars[name])


def steps_made(count: Expr, more: float = 1.0) -> Expr:
    """The number of the step, from 1, as a float64 scalar."""
    return op.add(op.astype(count, "float64"), as_scalar(more))


def norm(value: Expr) -> Expr:
    """The Euclidean norm of all elements, a scalar of the dtype."""
    return op.sqrt(op.sum(op.multiply(value, value)))


def _widened(builder: BlockBuilder, value: Expr) -> Expr:
    """A value in the type in which it is computed: half precision in float32."""
    return builder.emit(op.astype(value, "float32")) if is_half(value.dtype) else value


def _narrowed(builder: BlockBuilder, value: Expr, dtype: str) -> Expr:
    return value if value.dtype == dtype else builder.emit(op.astype(value, dtype))


def _no_decay(step: Step) -> bool:
    return is_zero(step.values.get("weight_decay", 0.0))


def _bound(builder: BlockBuilder, value: Expr, name: str) -> Var:
    return value if isinstance(value, Var) else builder.emit(value, name)


def _kinds(slots: Sequence[Mapping[str, State]]) -> list[str]:
    """All kinds of slots, in the order in which they first come."""
    return list(dict.fromkeys(kind for of in slots for kind in of))
