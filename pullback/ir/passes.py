"""Passes: functions from module to module, written as small frozen dataclasses whose fields are their options."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback.ir.arguments import sequence, whole
from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, CallError, NameNotFound, UserError
from pullback.ir.module import IRModule
from pullback.ir.pass_context import PassContext, PassInfo

_NONE: Sequence[str] = ()


@dataclass(frozen=True)
class Pass:
    """Base of passes: subclass it, give it fields, and override :meth:`run`. It never changes its argument.

    ``opt_level`` is the level from which on a :class:`Sequential` runs it, ``required`` has the names of passes that
    one runs before it.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Keep(relax.transform.Pass):
        ...     names: tuple[str, ...] = ()
        ...     def run(self, module):
        ...         return pullback.IRModule({name: module[name] for name in self.names})
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> module = pullback.IRModule({"main": relax.Function([a], a + a), "other": relax.Function([a], a)})
        >>> list(Keep(("main",))(module))
        ['main']
    """

    opt_level = 0  # without annotations: some passes have fields of these names
    required = _NONE

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def info(self) -> PassInfo:
        """Level, name and required passes."""
        return PassInfo(self.opt_level, self.name, tuple(self.required))

    def run(self, module: IRModule) -> IRModule:
        raise NotImplementedError(f"{self.name} does not override run")

    def __call__(self, module: IRModule) -> IRModule:
        if not isinstance(module, IRModule):
            hint = "wrap a function with IRModule.from_expr(function)" if hasattr(module, "params") else None
            raise UserError(f"{self.name} works on an IRModule, not on {type(module).__name__}", hint=hint)
        context = PassContext.current()
        if not context.instruments:
            return deep(self.run)(module)
        if not context.before(module, self.info):
            return module
        result = deep(self.run)(module)
        context.after(result, self.info)
        return result


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass that works on one graph function at a time: override :meth:`function`.

    Where the function has branches and loops, they are closed first (``relax.transform.InlineFunctions``), and
    :meth:`function` sees straight code: each region, then the function, in which ``branch`` and ``loop`` are calls of
    ops that it knows nothing of. A pass that looks at them itself says ``straight = False``.

    Examples:
        >>> class Mark(relax.transform.FunctionPass):
        ...     def function(self, function, module):
        ...         return function.with_attr("marked", True)
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> module = Mark()(pullback.IRModule({"main": relax.Function([a], a + a)}))
        >>> module["main"].attrs["marked"]
        True
    """

    straight: ClassVar[bool] = True

    def function(self, function: Any, module: IRModule) -> Any:
        raise NotImplementedError(f"{self.name} does not override function")

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if hasattr(function, "ret_struct_info"):  # a graph function
                result[name] = self.whole(function, module)
        return result

    def whole(self, function: Any, module: IRModule) -> Any:
        """:meth:`function` of a function and, if it is for straight code, of the regions in it."""
        if not self.straight or _over_regions is None:
            return self.function(function, module)
        return _over_regions(function, module, lambda f: self.function(f, module))


_over_regions: Any = None


def set_over_regions(over_regions: Any) -> None:
    """Install ``over_regions(function, module, change)`` (``relax/transform`` does so on import)."""
    global _over_regions
    _over_regions = over_regions


_pass_of_name: Any = None


def set_pass_of_name(find: Any) -> None:
    """Install ``find(name)``, the pass that ``required`` names, or None (``relay/transform`` does so on import)."""
    global _pass_of_name
    _pass_of_name = find


def _required(name: str, by: str) -> Callable[[IRModule], IRModule]:
    found = None if _pass_of_name is None else _pass_of_name(name)
    if found is None:
        hint = "a required pass is named as in relay.transform, such as 'InferType'"
        raise NameNotFound(f"{by} requires the pass {name!r}, which does not exist", hint=hint)
    return found


@dataclass(frozen=True)
class Sequential(Pass):
    """Passes one after another, those that :class:`PassContext` lets run: not above its level, not disabled. What a
    pass requires runs before it. A plain function of modules always runs.

    Args:
        passes: passes, and functions of modules, in the order in which they run.
        opt_level: the level from which on another Sequential runs this one.
        name: what it is called by a PassContext, and when it is printed.
        required: the names of passes that another Sequential runs before this one.
        traceable: accepted as in other packages, without effect.

    Raises:
        ArgumentError: where ``passes`` is no sequence, or has what cannot be called.
        CallError: where ``required`` is no list of names.

    Examples:
        >>> T = relax.transform
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> module = pullback.IRModule({"main": relax.Function([a], relax.op.exp(a * 1.0))})
        >>> tidy = T.Sequential([T.Normalize(), T.Simplify(), T.CanonicalizeBindings()])
        >>> [str(binding.value) for binding in tidy(module)["main"].bindings]
        ['R.exp(a)']
    """

    passes: Sequence[Callable[[IRModule], IRModule]] = ()
    opt_level: int = 0
    name: str = "sequential"
    required: Sequence[str] = ()
    traceable: bool = False

    def __post_init__(self) -> None:
        passes = sequence("passes", () if self.passes is None else self.passes, "write [a, b]")
        for step in passes:
            if not callable(step):
                hint = "passes are made first: Sequential([FoldConstant()])"
                raise ArgumentError(f"{type(step).__name__} is no pass", hint=hint)
        vars(self)["passes"] = passes
        vars(self)["required"] = required_names(self.required)

    def run(self, module: IRModule) -> IRModule:
        context = PassContext.current()
        for step in self.passes:
            if isinstance(step, Pass):
                if not context.enabled(step.info):
                    continue
                for name in step.info.required:
                    module = _required(name, step.name)(module)
            module = step(module)
        return module

    def __str__(self) -> str:
        names = [getattr(step, "name", None) or getattr(step, "__name__", None) or "?" for step in self.passes]
        return (
            f"Run Sequential pass: {self.name} at the optimization level {self.opt_level}. "
            f"The passes will be executed are: [{' '.join(names)}]"
        )


@dataclass(frozen=True)
class ModulePass(Pass):
    """A pass of a plain function of modules: :func:`module_pass` makes it.

    Args:
        function: takes an IRModule, or one and the PassContext, and returns an IRModule.
        opt_level: the level from which on a Sequential runs it.
        name: what it is called by a PassContext, and when it is printed.
        required: the names of passes that a Sequential runs before it.
        traceable: accepted as in other packages, without effect.

    Raises:
        UserError: when it runs, and the function does not return an IRModule.

    Examples:
        >>> keep = relax.transform.ModulePass(lambda module: module, name="Keep")
        >>> module = pullback.IRModule()
        >>> keep(module) is module
        True
    """

    function: Callable[..., IRModule] = field(repr=False)
    opt_level: int = 0
    name: str = ""
    required: tuple[str, ...] = ()
    traceable: bool = False

    def run(self, module: IRModule) -> IRModule:
        result = self.function(module, PassContext.current()) if _takes(self.function, 2) else self.function(module)
        if not isinstance(result, IRModule):
            hint = "return the module that it makes"
            raise UserError(f"pass {self.name} must return an IRModule, got {type(result).__name__}", hint=hint)
        return result

    def __str__(self) -> str:
        return f"Run Module pass: {self.name} at the optimization level {self.opt_level}"


def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """A pass of a function ``f(module)`` or ``f(module, context)``; or of a class, whose objects are passes then, by
    their method ``transform_module(module, context)``.

    Args:
        pass_func: the function or class; without it the result is a decorator.
        opt_level: the level from which on a Sequential runs it: by default 0, if ``pass_func`` is given; a decorator
            has to say it.
        name: what it is called by a PassContext, and when it is printed; by default the function's or class's name.
        required: the names of passes that a Sequential runs before it.
        traceable: accepted as in other packages, without effect.

    Returns:
        The pass, or the class of passes; without ``pass_func`` a decorator that gives it.

    Raises:
        ArgumentError: for a decorator without ``opt_level``, and for one that is no int.
        CallError: where ``required`` is no list of names, ``pass_func`` cannot be called, or the class has no
            ``transform_module``.

    Examples:
        >>> @relax.transform.module_pass(opt_level=2)
        ... def without_attributes(module, context):
        ...     return pullback.IRModule(module.functions)
        >>> dict(without_attributes(pullback.IRModule({}, {"author": "me"})).attrs)
        {}
        >>> print(without_attributes)
        Run Module pass: without_attributes at the optimization level 2
    """
    required = required_names(required)
    if pass_func is None and opt_level is None:
        raise ArgumentError("Please provide opt_level for the module pass", hint="@module_pass(opt_level=0)")
    level = 0 if opt_level is None else whole("opt_level", opt_level)

    def make(given: Any) -> Any:
        shown: str = name or getattr(given, "__name__", None) or type(given).__name__
        if inspect.isclass(given):
            return pass_of_class(given, ModulePass, "transform_module", (level, shown, required, traceable))
        if not callable(given):
            raise CallError("pass_func must be a callable for Module pass", hint="give it a function of modules")
        return ModulePass(given, level, shown, required, traceable)

    return make if pass_func is None else make(pass_func)


def required_names(required: Any) -> tuple[str, ...]:
    """The names in ``required``; a CallError where it is no list of strings."""
    if required is None:
        return ()
    if not isinstance(required, (list, tuple)) or not all(isinstance(name, str) for name in required):
        raise CallError("Required is expected to be the type of list/tuple", hint='of names: ["InferType"]')
    return tuple(required)


def pass_of_class(written: type[Any], kind: type[Pass], method: str, options: tuple[Any, ...]) -> type[Pass]:
    """The class of passes whose objects run a method of ``written``'s, and have its attributes otherwise."""
    if not callable(getattr(written, method, None)):
        raise CallError(f"class {written.__name__} has no method {method}", hint=f"def {method}(self, …)")

    begin = vars(kind)["__init__"]

    def __init__(self: Pass, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        inner = written(*args, **kwargs)
        begin(self, getattr(inner, method), *options)
        vars(self)["_inner"] = inner

    def __getattr__(self: Pass, attribute: str) -> Any:  # noqa: N807
        inner = vars(self).get("_inner")
        if inner is None or attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(inner, attribute)

    functools.update_wrapper(__init__, written.__init__)
    members = {"__init__": __init__, "__getattr__": __getattr__}
    made = type(written.__name__, (kind,), members)
    made.__qualname__, made.__doc__, made.__module__ = written.__qualname__, written.__doc__, written.__module__
    return made


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # of a built-in function without a signature
        return False
    return True


@dataclass(frozen=True)
class PrintIR(Pass):
    """Prints the module to the standard error stream, under ``header``, and returns it.

    Args:
        header: stands above the module.
        show_meta_data: accepted as in other packages, without effect.
    """

    header: str = ""
    show_meta_data: bool = False

    def run(self, module: IRModule) -> IRModule:
        print(f"PrintIR({self.header}):\n{module}", file=sys.stderr)
        return module
