"""The evaluator: programs of relay over NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, CallError, DTypeError, ShapeError, UserError, suggestion
from pullback.ir.forks import renewed
from pullback.ir.module import GlobalVar, IRModule
from pullback.relay.evaluate.arrays import NumPyArrays
from pullback.relay.evaluate.compiler import Compiler
from pullback.relay.evaluate.graph import Uses, free_variables
from pullback.relay.evaluate.machine import Code, run
from pullback.relay.evaluate.values import (
    Builtin,
    Closure,
    ConstructorValue,
    Data,
    RefValue,
    converted,
    is_function,
    shown,
)
from pullback.relay.expr import Call, Function, Var
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import FuncType, RefType, TensorType, TupleType
from pullback.runtime.container import ADT
from pullback.runtime.tensor import Tensor, tensor


class CallableFunction:
    """A function value for callers: positional arguments come first, the others are given by their names."""

    def __init__(
        self, interpreter: Interpreter, make: Callable[[], Any], function: Function | None = None, name: str = ""
    ) -> None:
        self.interpreter, self._make, self.function = interpreter, make, function
        self.params = None if function is None else function.params
        self.name = name or "the function"

    @cached_property
    def closure(self) -> Any:
        """The function inside the evaluator."""
        return self._make()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.params is None:
            if kwargs:
                names = ", ".join(kwargs)
                raise CallError(f"{self.name} takes positional arguments only, got {names}")
            values = [self.interpreter.taken(str(k), None, a) for k, a in enumerate(args)]
        else:
            given = arranged(self.name, [p.name for p in self.params], args, kwargs)
            taken = self.interpreter.taken
            values = [taken(p.name, p.type_annotation, v) for p, v in zip(self.params, given, strict=True)]
        return self.interpreter.shown(self._run(values))

    def _run(self, values: Sequence[Any]) -> Any:
        return run(self.closure, values)

    def __repr__(self) -> str:
        return f"<{self.name} of an executor>"


class Interpreter:
    """Evaluates expressions of a module.

    >>> x = relay.var("x", shape=(3,))
    >>> Interpreter().function(relay.Function([x], x + x))(np.ones(3, "float32"))
    tensor([2., 2., 2.], shape=(3,), dtype=float32)
    """

    compiler: type[Compiler] = Compiler
    callable: type[CallableFunction] = CallableFunction

    def __init__(self, module: IRModule | None = None, arrays: Any = None) -> None:
        self.module = IRModule() if module is None else module
        self.arrays = NumPyArrays() if arrays is None else arrays
        self._globals: dict[str, Closure] = {}
        self._lock = threading.RLock()
        renewed(self, "_lock")

    # ---- what the compiler asks

    def operator(self, call: Call) -> Callable[[Sequence[Any]], Any]:
        """A function of the values of an operator's arguments."""
        return self.arrays.operator(call.op, call.attrs, call.span)

    def operator_function(self, op: Any) -> Builtin:
        """An operator as a function value, with its attributes at their defaults."""
        return Builtin(op.name, self.operator(Call(op, ())), op.num_inputs)

    def global_function(self, name: GlobalVar) -> Closure:
        """The function of the module; its code is written when it is first needed."""
        found = self._globals.get(name.name)
        if found is None:
            with self._lock:
                function = self.module[name]
                if not isinstance(function, Function):
                    raise UserError(f"@{name.name} is no function of relay: {type(function).__name__}")
                named = function.attrs.get("global_symbol", f"@{name.name}")
                found = self._globals.setdefault(name.name, Closure(self.code(function, named), []))
        return found

    @deep
    def code(self, function: Function, name: str = "the function") -> Code:
        """The machine's code of a function without free variables."""
        return self.compiler(self, Uses(function), function.params, name, None).finish(function.body)

    # ---- what callers ask

    def value(self, expr: Any, binds: Mapping[Var, Any] | None = None) -> Any:
        """The value of an expression; ``binds`` are those of its free variables."""
        binds = dict(binds or {})
        for var in binds:
            if not isinstance(var, Var):
                raise ArgumentError(f"binds maps variables to values, got {type(var).__name__}", hint="{x: array}")
        function = Function(tuple(binds), expr)
        values = [self.taken(var.name, var.type_annotation, value) for var, value in binds.items()]
        return self.shown(run(Closure(self.code(function), []), values))

    def function(self, function: Function | GlobalVar) -> CallableFunction:
        """A Python function that calls the function."""
        if isinstance(function, GlobalVar):
            made, name = self.module[function], f"@{function.name}"
            return self.callable(self, lambda: self.global_function(function), made, name)
        free = free_variables(function)
        if free:
            names = ", ".join(f"%{v.name}" for v in free)
            hint = "make them parameters, or pass binds={var: value}"
            raise UserError(f"the function has free variables: {names}", span=function.span, hint=hint)
        return self.callable(self, lambda: Closure(self.code(function), []), function)

    def shown(self, value: Any) -> Any:
        """A value for callers."""
        return shown(value, self.arrays, lambda function: self.callable(self, lambda: function))

    def taken(self, name: str, declared: Any, given: Any) -> Any:
        """A value that a caller passes for a parameter of the declared type, where there is one."""
        if isinstance(given, CallableFunction):
            return given.closure
        if is_function(given):
            return given
        if isinstance(given, RefValue):
            inner = declared.value if isinstance(declared, RefType) else None
            return RefValue(self.taken(name, inner, given.value))
        if isinstance(given, ConstructorValue):
            field = f"{name}'s field"
            return converted(given, lambda d: Data(d.tag, (), d.constructor), lambda v: self.taken(field, None, v))
        if isinstance(declared, TupleType):
            if not isinstance(given, (tuple, list)) or len(given) != len(declared.fields):
                what = f"{len(given)} values" if isinstance(given, (tuple, list)) else type(given).__name__
                raise ArgumentError(f"%{name} must be a tuple of {len(declared.fields)} values, got {what}")
            pairs = enumerate(zip(declared.fields, given, strict=True))
            return tuple(self.taken(f"{name}.{k}", field, value) for k, (field, value) in pairs)
        if isinstance(given, (tuple, ADT)) and not isinstance(declared, TensorType):
            return tuple(self.taken(f"{name}.{k}", None, value) for k, value in enumerate(given))
        if isinstance(declared, (FuncType, RefType)):
            kind = "a function" if isinstance(declared, FuncType) else "a reference"
            raise ArgumentError(f"%{name} must be {kind}, got {type(given).__name__}")
        return self.arrays.taken(checked(name, declared, given))


def checked(name: str, declared: Any, given: Any) -> Any:
    """A tensor or array that fits the declared type; Python's numbers and lists take its dtype.

    Raises DTypeError or ShapeError.
    """
    if not isinstance(given, (Tensor, np.ndarray)):
        python = isinstance(given, (bool, int, float, list))
        given = tensor(given, declared.dtype if isinstance(declared, TensorType) and python else None)
    if isinstance(declared, TensorType):
        dtype = given.dtype if isinstance(given.dtype, str) else given.dtype.name
        if dtype != declared.dtype:
            hint = f'convert it: array.astype("{declared.dtype}")'
            raise DTypeError(f"%{name} must have dtype {declared.dtype}, got {dtype}", hint=hint)
        if given.shape != declared.shape and not fits(declared.shape, given.shape):
            sizes = ", ".join("?" if isinstance(s, AnySize) else str(s) for s in declared.shape)
            hint = "the parameter's type says so: relay.Any() in it takes any size"
            raise ShapeError(f"%{name} must have shape ({sizes}), got {tuple(given.shape)}", hint=hint)
    return given


def fits(declared: Sequence[Any], given: Sequence[int]) -> bool:
    """Whether sizes are what is declared, as far as that is known."""
    if len(declared) != len(given):
        return False
    return all(not isinstance(d, int) or d == g for d, g in zip(declared, given, strict=True))


def arranged(name: str, params: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in the order of the parameters.

    Raises CallError where some are missing, too many, unknown or given twice.
    """
    signature = f"its parameters are {', '.join(params) or 'none'}"
    if len(args) > len(params):
        raise CallError(f"{name} takes {len(params)} arguments, got {len(args)}", hint=signature)
    rest = params[len(args) :]
    unknown = [k for k in kwargs if k not in rest]
    if unknown:
        twice = unknown[0] in params
        what = "is given twice" if twice else f"is no parameter{suggestion(unknown[0], params)}"
        raise CallError(f"{name}: {unknown[0]} {what}", hint=signature)
    missing = [p for p in rest if p not in kwargs]
    if missing:
        raise CallError(f"{name} lacks the arguments {', '.join(missing)}", hint=signature)
    return [*args, *(kwargs[p] for p in rest)]
