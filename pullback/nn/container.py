"""Containers of modules and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter

__all__ = ["Lambda", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _checked(value: Any, container: Module) -> Module:
    """``value``, unless it is no module, or a layer that the container holds already: the two would share weights."""
    kind = type(container).__name__
    if not isinstance(value, Module):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        hint = "a function is wrapped in nn.Lambda(function)"
        if isinstance(value, type) and issubclass(value, Module):
            hint = f"make one of it: {value.__name__}()"
        elif isinstance(value, (list, tuple)):
            hint = f"write the layers one after the other: nn.{kind}(*layers)"
        elif type(value).__module__.partition(".")[0] in ("torch", "keras"):
            given, hint = f"a {given} of another library", "pullback.nn has PyTorch's layers under the same names"
        raise ArgumentError(f"{kind} holds modules, got {given}", hint=hint)
    if any(value is held for held in container.children()) and next(value.parameters(), None) is not None:
        raise ArgumentError(
            f"{kind} is given the same {type(value).__name__} twice, so both places would share its parameters",
            hint="make one for each place: [nn.Linear(8, 8) for _ in range(3)]; a forward may call one several times",
        )
    return value


class _InOrder(Module):
    """What Sequential and ModuleList have in common: members in an order, as in a list."""

    def append(self, module: Module) -> Any:
        """Put a module at the end; returns the container."""
        self.register_module(str(len(self)), _checked(module, self))
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Put modules at the end; returns the container."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the place ``index``; returns the container, whose modules are numbered anew."""
        members = list(self.children())
        members.insert(index, _checked(module, self))
        self._number(members)
        return self

    def pop(self, index: int = -1) -> Module:
        """Take a module out and return it; those that stay are numbered anew."""
        found: Module = list(self.children())[index]
        del self[index]
        return found

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __setitem__(self, index: int, module: Module) -> None:
        name = list(self._modules)[index]
        self.register_module(name, module if module is self._modules[name] else _checked(module, self))

    def __delitem__(self, index: int | slice) -> None:
        members = list(self.children())
        del members[index]
        self._number(members)

    def _number(self, members: Iterable[Module]) -> None:
        self._modules.clear()
        self._modules.update({str(i): module for i, module in enumerate(members)})


class Sequential(_InOrder):
    """Modules one after the other: each takes what the one before returns.

    Takes modules, or one mapping from names to modules; ``net[-1] = nn.Linear(128, 5)`` puts another in a place.

    Args:
        modules: the modules, or one mapping from names to modules.

    Raises:
        ArgumentError: for a layer with parameters that comes twice.

    Examples:
        >>> net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
        >>> net[-1] = nn.Linear(32, 5)          # another head
        >>> net(x).shape
        (64, 5)
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named: Iterable[tuple[str, Any]] = modules[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(modules))
        for name, module in named:
            self.register_module(name, _checked(module, self))

    def forward(self, *inputs: Any) -> Any:
        """The results of the last module."""
        result: Any = inputs[0] if len(inputs) == 1 else inputs
        for number, module in enumerate(self.children()):
            result = module(*inputs) if number == 0 else module(result)
        return result

    def __getitem__(self, index: Any) -> Any:
        members = list(self._modules.items())
        if isinstance(index, slice):
            chosen: dict[str, Any] = dict(members[index])
            return Sequential(chosen)
        return members[index][1]


class ModuleList(_InOrder):
    """A list of modules, which its parent trains too.

    Args:
        modules: the modules, in order.

    Examples:
        >>> blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        >>> len(blocks), sum(1 for _ in blocks.parameters())
        (3, 6)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        members = list(self.children())
        return ModuleList(members[index]) if isinstance(index, slice) else members[index]


class ModuleDict(Module):
    """Modules by name, which its parent trains too.

    Args:
        modules: the modules by name.

    Examples:
        >>> heads = nn.ModuleDict({"class": nn.Linear(64, 10), "box": nn.Linear(64, 4)})
        >>> heads["box"].out_features
        4
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Take the modules of a mapping."""
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        return self.get_submodule(name)

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, _checked(module, self))

    def __delitem__(self, name: str) -> None:
        self.get_submodule(name)  # a NameNotFound where there is none
        del self._modules[name]

    def pop(self, name: str) -> Module:
        """Take a module out and return it."""
        found = self[name]
        del self[name]
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return list(self.children())

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return list(self.named_children())


class ParameterList(Module):
    """A list of parameters, which its parent trains too.

    Args:
        parameters: the parameters, in order.
    """

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        for parameter in parameters:
            self.append(parameter)

    def append(self, parameter: Parameter) -> ParameterList:
        """Put a parameter at the end; returns the list."""
        self.register_parameter(str(len(self)), parameter)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._parameters)

    def __getitem__(self, index: int) -> Any:
        return getattr(self, list(self._parameters)[index])


class ParameterDict(Module):
    """Parameters by name, which its parent trains too.

    Args:
        parameters: the parameters by name.
    """

    def __init__(self, parameters: Mapping[str, Parameter] | None = None) -> None:
        for name, parameter in (parameters or {}).items():
            self.register_parameter(name, parameter)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, parameter: Parameter) -> None:
        self.register_parameter(name, parameter)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return [(name, self[name]) for name in self._parameters]


class Lambda(Module):
    """A function of tensors as a module.

    Args:
        function: takes graph values and returns them.

    Examples:
        >>> half = nn.Sequential(nn.Linear(16, 4), nn.Lambda(lambda x: x * 0.5))
        >>> half(x).shape
        (64, 4)
    """

    def __init__(self, function: Any) -> None:
        if not callable(function):
            raise ArgumentError(f"Lambda takes a function, got {type(function).__name__}")
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        """What the function returns."""
        return self.function(*inputs)
