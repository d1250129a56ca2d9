"""From modules of relay to what runs: executors, and libraries with their graph and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, NameNotFound, suggestion
from pullback.ir.module import IRModule
from pullback.relay.backend.interpreter import Executor, InterpreterExecutor, check_device
from pullback.relay.evaluate import Interpreter
from pullback.relay.evaluate.interpreter import checked
from pullback.relay.evaluate.regions import NativeInterpreter
from pullback.relay.expr import Constant, Function, Let, as_expr
from pullback.runtime.registry import register_func
from pullback.runtime.tensor import tensor
from pullback.target import Target

KINDS = ("debug", "graph", "vm", "aot")


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
    ctx: Any = None,
) -> Executor:
    """An executor: ``create_executor("vm", mod).evaluate()(array)``.

    ``kind``: "debug" evaluates over NumPy, the whole language; "vm" as well, with native code for what is dataflow;
    "graph" and "aot" compile all to native code, and refuse what is no dataflow. ``params`` are values of parameters of
    ``main``, by name. ``ctx`` is the older name of ``device``.

    Raises ArgumentError for an unknown kind, TargetError for a target or device that is not there.
    """
    if kind not in KINDS:
        hint = f"the kinds are {', '.join(KINDS)}"
        raise ArgumentError(f"there is no executor {kind!r}{suggestion(str(kind), KINDS)}", hint=hint)
    target = Target(target)
    check_device(device if device is not None else ctx, target)
    mod = IRModule() if mod is None else mod
    if params:
        mod = mod.copy()
        mod["main"] = bind_params_by_name(mod["main"], params)
    if kind == "vm":
        return InterpreterExecutor(mod, NativeInterpreter(mod, target))
    return InterpreterExecutor(mod, Interpreter(mod))


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """``func`` with constants for the parameters of these names, which it does not take any more.

    Values are tensors, arrays, or constants of relay. Raises NameNotFound where there is no such parameter, ShapeError
    or DTypeError where a value does not fit.
    """
    by_name = {p.name: p for p in func.params}
    unknown = [name for name in params if name not in by_name]
    if unknown:
        hint = f"its parameters are {', '.join(by_name) or 'none'}"
        message = f"the function has no parameter {unknown[0]!r}{suggestion(unknown[0], by_name)}"
        raise NameNotFound(message, span=func.span, hint=hint)
    body = func.body
    values = {}
    for name, given in params.items():
        given = given.data if isinstance(given, Constant) else given
        values[by_name[name]] = Constant(tensor(checked(name, by_name[name].type_annotation, given)))
    for var, constant in reversed(values.items()):
        body = Let(var, constant, body)
    return func.replace(params=tuple(p for p in func.params if p not in values), body=as_expr(body))


@register_func("relay.build_module.BindParamsByName", override=True)
def _bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    return bind_params_by_name(func, params)
