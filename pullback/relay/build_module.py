"""From modules of relay to what runs: executors, and libraries with their graph and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.pass_context import PassContext
from pullback.relay.backend import options
from pullback.relay.backend.executor_factory import ExecutorFactory, Library
from pullback.relay.backend.graph import GraphExecutor, lowered
from pullback.relay.backend.interpreter import Executor, InterpreterExecutor, check_device
from pullback.relay.backend.vm import VMExecutor, check_host
from pullback.relay.evaluate import Interpreter
from pullback.relay.evaluate.interpreter import checked
from pullback.relay.expr import Constant, Function, Var
from pullback.relay.visitor import bind
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
        return VMExecutor(mod, device if device is not None else ctx, target)
    if kind in ("graph", "aot"):
        return GraphExecutor(mod, target, kind)
    return InterpreterExecutor(mod, Interpreter(mod))


def build(
    ir_mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> ExecutorFactory:
    """Compile ``main`` of a module, or a function: a library with its graph and parameters.

    ``params`` are values of parameters, by name, which the result keeps beside the code; names that the function does
    not have are left out. The result is one object, and unpacks into three:

    >>> lib = relay.build(mod, target="llvm", params=params)
    >>> module = graph_executor.GraphModule(lib["default"](pullback.cpu()))
    >>> graph, lib, params = relay.build(mod, "llvm", params=params)

    Raises NotDataflow for a function that is no dataflow: it names the first construct that is none.
    """
    if workspace_memory_pools is not None or constant_memory_pools is not None:
        raise ArgumentError("memory pools are those of other runtimes: memory is planned when a function is compiled")
    chosen = options.Executor(executor)
    options.Runtime(runtime)
    check_host(target, target_host)
    if isinstance(ir_mod, Function):
        ir_mod = IRModule.from_expr(ir_mod)
    if not isinstance(ir_mod, IRModule):
        hint = "IRModule.from_expr(function) makes one of a function"
        raise ArgumentError(f"build takes a module or a function, not {type(ir_mod).__name__}", hint=hint)
    function, graph = lowered(ir_mod["main"], ir_mod, "build")
    known = {p.name: p.type_annotation for p in function.params}
    values = {name: tensor(_value(name, known[name], v)) for name, v in (params or {}).items() if name in known}
    whole = ir_mod.copy()
    whole["main"] = function
    factory = ExecutorFactory(graph, Target("llvm" if target is None else target), values, mod_name, whole)
    factory.executor = chosen
    return factory


class BuildModule:
    """A build in steps: ``build``, then ``get_json``, ``get_module`` and ``get_params``."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._factory: ExecutorFactory | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values of parameters, by name, for the next build."""
        self._params.update(params)

    def build(
        self,
        mod: IRModule | Function,
        target: Any = None,
        target_host: Any = None,
        executor: Any = None,
        runtime: Any = None,
        params: Mapping[str, Any] | None = None,
        mod_name: str = "default",
    ) -> tuple[str, Library, dict[str, Any]]:
        """The graph, the library and the parameters: see :func:`build`."""
        self.set_params(params or {})
        made = build(mod, target, target_host, executor, runtime, params=self._params, mod_name=mod_name)
        self._factory = made
        return made.get_graph_json(), made.get_lib(), made.get_params()

    def optimize(
        self, mod: IRModule | Function, target: Any = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict[str, Any]]:
        """See :func:`optimize`."""
        return optimize(mod, target, {**self._params, **(params or {})})

    def _built(self) -> ExecutorFactory:
        if self._factory is None:
            raise UserError("nothing is built yet", hint="call build(mod, target) first")
        return self._factory

    def get_json(self) -> str:
        """The graph."""
        return self._built().get_graph_json()

    get_graph_json = get_json

    def get_module(self) -> Library:
        """The library."""
        return self._built().get_lib()

    def get_params(self) -> dict[str, Any]:
        """The parameters that have values."""
        return self._built().get_params()


def build_config(
    opt_level: int = 2, required_pass: Any = None, disabled_pass: Any = None, trace: Any = None
) -> PassContext:
    """The older name of :class:`pullback.transform.PassContext`."""
    if trace is not None:
        hint = "PassContext(instruments=[…]) tells of passes"
        raise ArgumentError("trace is no option of a pass context", hint=hint)
    return PassContext(opt_level=opt_level, required_pass=required_pass, disabled_pass=disabled_pass)


def optimize(
    mod: IRModule | Function, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The module after relay's optimizations (``transform.standard_passes``, those of the context's level), and the
    parameters that are no constants in it: those of ``params`` become such."""
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod.copy()
    Target("llvm" if target is None else target)
    if params:
        module["main"] = bind_params_by_name(module["main"], params)
    from pullback.relay.transform import standard_passes

    return standard_passes()(module), {}


def _value(name: str, declared: Any, given: Any) -> Any:
    return checked(name, declared, given.data if isinstance(given, Constant) else given)


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """``func`` with constants for the parameters of these names, which it does not take any more.

    Values are tensors, arrays, or constants of relay; names that the function does not have are left out. Raises
    ArgumentError where two parameters have the name, ShapeError or DTypeError where a value does not fit.
    """
    by_name: dict[str, list[Var]] = {}
    for param in func.params:
        by_name.setdefault(param.name, []).append(param)
    values = {}
    for name, given in params.items():
        found = by_name.get(name, [])
        if len(found) > 1:
            raise ArgumentError(f"{len(found)} parameters of the function are called {name!r}", span=func.span)
        if found:
            values[found[0]] = Constant(tensor(_value(name, found[0].type_annotation, given)))
    return bind(func, values)
