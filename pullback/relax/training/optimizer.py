"""Optimizers: from parameters to a graph function that updates them.

    >>> optimizer = SGD(0.1).init(list(params))
    >>> mod["SGD"] = optimizer.get_function()         # (params, gradients, optim_states) -> (new params, new states)
    >>> params, optimizer.state = vm["SGD"](params, gradients, optimizer.state)

The formulas are PyTorch's; the states are laid out as in TVM: the step count (int64), scalars, then for each kind of
state one tensor for each parameter. An optimizer of one's own is a subclass that says which states it keeps and how
one parameter changes:

    class SignSGD(Optimizer):
        def __init__(self, lr):
            super().__init__("SignSGD")
            self.lr = float(lr)

        def update(self, step, param, gradient):
            return (param - op.sign(gradient) * self.lr,)

Overriding ``init`` and ``get_function`` themselves works as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Function, Tuple, TupleGetItem, Var, as_relax, const
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, format_info, same_info
from pullback.runtime.tensor import Tensor, tensor, zeros
from pullback.tir.expr import FLOATS


@dataclass(frozen=True)
class Step:
    """What an update may use besides the parameter and its gradient and states."""

    builder: BlockBuilder
    name: str  # of the parameter; variables are named after it
    count: Var  # how many steps were made before this one: int64, ()
    scalars: dict[str, Var]  # the new values of the scalar states

    def emit(self, expr: Expr, suffix: str) -> Var:
        """Bind ``expr`` to a variable named after the parameter."""
        return self.builder.emit(expr, f"{self.name}_{suffix}")


class Optimizer:
    """Base of the optimizers: override :meth:`update` and, for states, ``slots``, ``scalars`` and :meth:`advance`.

    ``init`` sets ``param_list``, ``dtype`` (of scalar states: ``scalar_dtype``, or else float64 when a parameter is
    float64, float32 when none is) and ``state``, the initial states. ``hyperparameters`` are the public attributes of
    number type.
    """

    slots: tuple[str, ...] = ()  # kinds of state that each parameter has, zero at first, shaped like it
    scalars: dict[str, float] = {}  # noqa: RUF012  scalar states and their initial values
    scalar_dtype: str | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Var] | None = None
        self.dtype: str | None = None
        self._state: tuple[Any, ...] | None = None

    # ---- what a subclass says ----------------------------------------------------------------------------------------

    def advance(self, scalars: dict[str, Expr]) -> dict[str, Expr]:
        """The new values of the scalar states."""
        return scalars

    def update(self, step: Step, param: Var, gradient: Var, *slots: Var) -> Sequence[Expr]:
        """The new parameter, then its new states."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither update nor get_function")

    # ---- what users call ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> tuple[Any, ...] | None:
        """The states: a tuple of tensors, first the step count. Set it to what the optimizer function returned."""
        return self._state

    @state.setter
    def state(self, value: Sequence[Any] | None) -> None:
        if value is not None and self._state is not None and len(value) != len(self._state):
            raise ArgumentError(f"{self.name} has {len(self._state)} states, got {len(value)}")
        self._state = None if value is None else tuple(value)

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Learning rate and so on, by name."""
        public = ((k, v) for k, v in vars(self).items() if not k.startswith("_"))
        return {k: v for k, v in public if isinstance(v, (bool, int, float))}

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Take the parameters to optimize and set the initial states; returns the optimizer itself.

        Raises ArgumentError for what is no variable or comes twice, DTypeError for parameters that are not float
        tensors.
        """
        if not isinstance(params, (Var, list, tuple)):
            message = f"{self.name}.init takes variables, the parameters to optimize, got {type(params).__name__}"
            raise ArgumentError(message, hint='such as mod["backbone"].params[1:]')
        self._set_params_and_dtype([params] if isinstance(params, Var) else list(params))
        self._state = None
        self.state = [
            tensor(np.zeros((), np.int64)),
            *(tensor(np.full((), v, self.dtype)) for v in self.scalars.values()),
            *(_zeros(p) for _ in self.slots for p in self.param_list or ()),
        ]
        return self

    def get_function(self) -> Function:
        """The optimizer function, of one dataflow block. Raises UserError before :meth:`init`."""
        self._check_init()
        params: list[Var] = self.param_list  # type: ignore[assignment]
        types = TupleStructInfo(tuple(p.struct_info for p in params))
        scalar = TensorStructInfo((), self.dtype)  # type: ignore[arg-type]
        states = (TensorStructInfo((), "int64"), *[scalar] * len(self.scalars), *types.fields * len(self.slots))
        arguments = [Var("params", types), Var("gradients", types), Var("optim_states", TupleStructInfo(states))]
        builder = BlockBuilder()
        with builder.function(self.name, arguments):
            with builder.dataflow():
                new_params, new_states = self._body(builder, params, *arguments)
                outputs = (
                    builder.emit_output(Tuple(tuple(new_params)), "params_new"),
                    builder.emit_output(Tuple(tuple(new_states)), "optim_states_new"),
                )
            builder.emit_func_output(Tuple(outputs))
        return builder.get()[self.name]

    def _body(
        self, builder: BlockBuilder, params: list[Var], values: Var, gradients: Var, states: Var
    ) -> tuple[list[Expr], list[Expr]]:
        """Emit the update of all parameters; returns the new parameters and the new states."""
        count = builder.emit(TupleGetItem(states, 0), "num_steps")
        new_states: list[Expr] = [builder.emit(op.add(count, const(1, "int64")), "num_steps_new")]
        old = {name: TupleGetItem(states, 1 + i) for i, name in enumerate(self.scalars)}
        scalars = {name: builder.emit(value, name) for name, value in self._advanced(old).items()}
        new_states += scalars.values()
        first_slot, size = len(new_states), len(params)
        new_params: list[Expr] = []
        new_slots: list[list[Expr]] = [[] for _ in self.slots]
        for i, declared in enumerate(params):
            name = declared.name
            step = Step(builder, name, count, scalars)
            param = builder.emit(TupleGetItem(values, i), name)
            gradient = builder.emit(TupleGetItem(gradients, i), f"{name}_grad")
            slots = [
                builder.emit(TupleGetItem(states, first_slot + k * size + i), f"{name}_{slot}")
                for k, slot in enumerate(self.slots)
            ]
            new_param, *new = self._updated(step, param, gradient, *slots)
            new_params.append(builder.emit(new_param, f"{name}_new"))
            for k, value in enumerate(new):
                is_bound = isinstance(value, Var)
                new_slots[k].append(value if is_bound else builder.emit(value, f"{name}_{self.slots[k]}_new"))
        return new_params, new_states + [value for slot in new_slots for value in slot]

    def _advanced(self, old: Mapping[str, Expr]) -> dict[str, Expr]:
        """What :meth:`advance` gives, checked."""
        new = self.advance(dict(old))
        if not isinstance(new, Mapping) or new.keys() != old.keys():
            wanted = ", ".join(old) or "nothing"
            raise UserError(
                f"{type(self).__name__}.advance must return a dict of the new {wanted}, it returned {new!r}"
            )
        return {name: as_relax(new[name]) for name in old}

    def _updated(self, step: Step, param: Var, gradient: Var, *slots: Var) -> list[Expr]:
        """What :meth:`update` gives, checked: the new parameter and the new states, of the types of the old ones."""
        new = self.update(step, param, gradient, *slots)
        names = ["the new parameter", *(f"its new {slot}" for slot in self.slots)]
        wanted = f"({', '.join(names)}{',' if not slots else ''})"
        problem = f"{type(self).__name__}.update must return the tuple {wanted}"
        if not isinstance(new, (tuple, list)):
            given = f"one {'expression' if isinstance(new, Expr) else type(new).__name__}"
            raise UserError(f"{problem}, it returned {given}", hint="write return (new_param,)" if not slots else None)
        if len(new) != len(names):
            raise UserError(f"{problem}, it returned {len(new)} values")
        for name, old, value in zip(names, (param, *slots), new, strict=True):
            if not isinstance(value, Expr):
                raise UserError(f"{problem}; {name} is no expression but {value!r}")
            if not same_info(value.struct_info, old.struct_info):
                types = f"{format_info(old.struct_info)}, it is {format_info(value.struct_info)}"
                raise UserError(f"{type(self).__name__}.update: {name} of {step.name} must be {types}")
        return list(new)

    def _set_params_and_dtype(self, params: list[Var]) -> None:
        """Check the parameters; set ``param_list`` and ``dtype``."""
        seen: set[Var] = set()
        for param in params:
            if not isinstance(param, Var):
                raise ArgumentError(f"{self.name} optimizes variables, got {type(param).__name__} {param!r}")
            info = param.struct_info
            if not isinstance(info, TensorStructInfo) or info.dtype not in FLOATS:
                raise DTypeError(
                    f"{self.name} optimizes float tensors, parameter {param.name} is {format_info(info)}",
                    span=param.span,
                )
            if param in seen:
                raise ArgumentError(f"parameter {param.name} is given to {self.name} twice")
            seen.add(param)
        if not params:
            raise ArgumentError(f"{self.name} has no parameter to optimize")
        self.param_list = params
        self.dtype = self.scalar_dtype or ("float64" if any(p.dtype == "float64" for p in params) else "float32")

    def _check_init(self) -> None:
        if self.param_list is None or self._state is None:
            raise UserError(f"{self.name} has no parameters yet", hint="call init(params) before get_function()")

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.hyperparameters.items())})"


class SGD(Optimizer):
    """Gradient descent, ``torch.optim.SGD`` without momentum; states (num_steps,):

    g ← g + weight_decay · p;    p ← p - lr · g
    """

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr = _number("lr", lr, 0.0)
        self.weight_decay = _number("weight_decay", weight_decay, 0.0)

    def update(self, step: Step, param: Var, gradient: Var) -> Sequence[Expr]:  # type: ignore[override]
        gradient = decayed(step, param, gradient, self.weight_decay)
        return (op.subtract(param, op.multiply(const(self.lr, param.dtype), gradient)),)


class MomentumSGD(Optimizer):
    """Gradient descent with momentum, ``torch.optim.SGD``; states (num_steps, v of each parameter):

    g ← g + weight_decay · p
    v ← momentum · v + (1 - dampening) · g         in the first step v ← g, without dampening, as in PyTorch
    p ← p - lr · v                                 with nesterov p ← p - lr · (g + momentum · v)
    """

    slots = ("v",)

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr = _number("lr", lr, 0.0)
        self.momentum = _number("momentum", momentum, 0.0)
        self.dampening = _number("dampening", dampening)
        self.weight_decay = _number("weight_decay", weight_decay, 0.0)
        self.nesterov = bool(nesterov)

    def update(self, step: Step, param: Var, gradient: Var, velocity: Var) -> Sequence[Expr]:  # type: ignore[override]
        dtype = param.dtype
        momentum = const(self.momentum, dtype)
        gradient = decayed(step, param, gradient, self.weight_decay)
        addend: Expr = gradient
        if self.dampening:
            is_first = op.equal(step.count, const(0, "int64"))
            factor = op.where(is_first, const(1.0, dtype), const(complement(self.dampening), dtype))
            addend = op.multiply(factor, gradient)
        new = step.emit(op.add(op.multiply(momentum, velocity), addend), "v_new")
        nesterov = op.add(gradient, op.multiply(momentum, new))
        direction = step.emit(nesterov, "grad_nesterov") if self.nesterov else new
        return op.subtract(param, op.multiply(const(self.lr, dtype), direction)), new


class Adam(Optimizer):
    """``torch.optim.Adam`` (weight decay is L2); states (num_steps, beta1ᵗ, beta2ᵗ, m of each parameter, v of each):

    g ← g + weight_decay · p
    m ← beta1 · m + (1 - beta1) · g
    v ← beta2 · v + (1 - beta2) · g²
    p ← p - lr · (m / (1 - beta1ᵗ)) / (√(v / (1 - beta2ᵗ)) + eps)

    The powers are float64, as in PyTorch: 1 - 0.999 in float32 is wrong by 5e-5, and all first steps with it.
    """

    slots = ("m", "v")
    scalars = {"beta1_prod": 1.0, "beta2_prod": 1.0}  # noqa: RUF012
    scalar_dtype = "float64"

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0
    ) -> None:
        super().__init__("Adam")
        self.lr = _number("lr", lr, 0.0)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ArgumentError(f"betas must be a pair of numbers, got {betas!r}")
        self.beta1, self.beta2 = (_number(f"betas[{i}]", beta, 0.0) for i, beta in enumerate(betas))
        self.eps = _number("eps", eps, 0.0)
        self.weight_decay = _number("weight_decay", weight_decay, 0.0)
        if max(self.beta1, self.beta2) >= 1:
            raise ArgumentError(f"betas must be less than 1, got {betas!r}")

    def advance(self, scalars: dict[str, Expr]) -> dict[str, Expr]:
        betas = {"beta1_prod": self.beta1, "beta2_prod": self.beta2}
        return {k: op.multiply(scalars[k], const(beta, self.dtype)) for k, beta in betas.items()}

    def update(self, step: Step, param: Var, gradient: Var, m: Var, v: Var) -> Sequence[Expr]:  # type: ignore[override]
        dtype = param.dtype
        gradient = decayed(step, param, gradient, self.weight_decay)
        m = step.emit(_average(m, gradient, self.beta1, dtype), "m_new")
        v = step.emit(_average(v, op.multiply(gradient, gradient), self.beta2, dtype), "v_new")
        m_hat = step.emit(op.divide(m, self._correction(step, "beta1_prod", dtype)), "m_hat")
        v_hat = step.emit(op.divide(v, self._correction(step, "beta2_prod", dtype)), "v_hat")
        direction = op.divide(m_hat, op.add(op.sqrt(v_hat), const(self.eps, dtype)))
        return op.subtract(param, op.multiply(const(self.lr, dtype), direction)), m, v

    def _correction(self, step: Step, scalar: str, dtype: str) -> Expr:
        """1 - betaᵗ in the parameter's dtype."""
        correction = op.subtract(const(1.0, self.dtype), step.scalars[scalar])
        return correction if self.dtype == dtype else op.astype(correction, dtype)


def decayed(step: Step, param: Var, gradient: Var, weight_decay: float) -> Var:
    """The gradient with L2 weight decay."""
    if not weight_decay:
        return gradient
    return step.emit(op.add(op.multiply(const(weight_decay, param.dtype), param), gradient), "grad_new")


def _average(old: Expr, new: Expr, beta: float, dtype: str) -> Expr:
    """beta · old + (1 - beta) · new."""
    return op.add(op.multiply(const(beta, dtype), old), op.multiply(const(complement(beta), dtype), new))


def complement(value: float) -> float:
    """1 - value, as exact as the decimal digits that the user wrote: 1 - 0.9 is 0.1."""
    return float(1 - Decimal(str(value)))


def _number(name: str, value: Any, least: float | None = None) -> float:
    """A hyperparameter as a float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number, got {value!r}") from None
    if not np.isfinite(number) or (least is not None and number < least):
        bound = "" if least is None else f" ≥ {least:g}"
        raise ArgumentError(f"{name} must be a finite number{bound}, got {value!r}")
    return number


def _zeros(param: Var) -> Tensor:
    """The initial state of a parameter."""
    info: TensorStructInfo = param.struct_info  # type: ignore[assignment]
    if not info.is_static:
        raise ShapeError(
            f"a state for parameter {param.name} needs a shape that is known, got {format_info(info)}", span=param.span
        )
    return zeros(info.shape, info.dtype)  # type: ignore[arg-type]
