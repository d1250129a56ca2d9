"""relay's standard library: files of relay text in ``std/``.

mod = IRModule()
p = Prelude(mod)                # adds prelude.rly: lists, options, trees, map, foldl, …
List, Cons, Nil = p.get_type("List")
mod.import_from_std("nat.rly")  # nat, Z, S, nat_add, …
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from pullback.ir.errors import ArgumentError, NoAttribute, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relay.adt import Constructor, TypeData
from pullback.relay.expr import Function, GlobalVar, Tuple
from pullback.relay.text.parser import parse
from pullback.relay.ty import GlobalTypeVar

PRELUDE, NAT, GRADIENT = "prelude.rly", "nat.rly", "gradient.rly"
_FILES = {PRELUDE: (), NAT: (PRELUDE,), GRADIENT: ()}  # with those that they need
_OLD_NAMES = {
    "l": "List", "list": "List", "cons": "Cons", "nil": "Nil", "optional": "Option", "option": "Option",
    "some": "Some", "none": "None", "tree": "Tree", "rose": "Rose", "z": "Z", "s": "S", "double": "nat_double",
    "add": "nat_add",
}  # fmt: skip


@functools.cache
def standard(name: str) -> IRModule:
    """The module of a file of the standard library, with those of the files that it needs."""
    if name not in _FILES:
        hint = f"there are: {', '.join(_FILES)}"
        raise ArgumentError(f"the standard library has no {name!r}{suggestion(str(name), _FILES)}", hint=hint)
    folder = resources.files("pullback.relay").joinpath("std")  # not imported: relay.std is an operator
    text = folder.joinpath(name).read_text(encoding="utf-8")
    module = IRModule()
    for needed in _FILES[name]:
        module.update(standard(needed))
    return parse(text, f"<std>/{name}", init_module=module)


def import_from_std(module: IRModule, name: str) -> None:
    """Add to the module what a file of the standard library defines, and what that needs.

    What the module has already stays, such as a function that a pass has changed. Raises UserError where it has
    something else of the same name: a function of another type, a data type with other constructors.
    """
    added = standard(name)
    for header, definition in added.type_definitions.items():
        own = module.type_definitions.get(header)
        if own is not None and not structural_equal(own, definition):
            hint = f"rename one of them; {name} has: {definition}"
            raise UserError(f"the module has a data type {header.name} of its own, {name} another", hint=hint)
    for key, function in added.functions.items():
        if key in module and not structural_equal(_signature(module[key]), _signature(function)):
            raise UserError(f"the module has a function @{key} of its own, {name} another", hint="rename yours")
    for header, definition in added.type_definitions.items():
        if header not in module.type_definitions:
            module[header] = definition
    for key, function in added.functions.items():
        if key not in module:
            module[key] = function


def _signature(function: Any) -> Any:
    """The function without what it computes."""
    return function.replace(body=Tuple(()), attrs={}) if isinstance(function, Function) else function


class Prelude:
    """The names of ``prelude.rly``, which is added to the module: ``p.map``, ``p.List``, ``p.Cons``; of ``nat.rly``
    too, once the module has it. The older names of data types are known: ``p.l``, ``p.cons``, ``p.nil``, ``p.nat``.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        import_from_std(self.mod, PRELUDE)

    def get_type(self, name: str) -> tuple[Any, ...]:
        """The data type of that name, followed by its constructors: ``List, Cons, Nil = p.get_type("List")``."""
        return self.mod.get_type(name)

    def get_ctor(self, type_name: str, constructor: str) -> Constructor:
        """The constructor of that name in a data type: ``p.get_ctor("List", "Cons")``."""
        definition = self.mod[self.mod.get_global_type_var(type_name)]
        for found in definition.constructors:
            if found.name == constructor:
                return found
        known = [c.name for c in definition.constructors]
        message = f"{type_name} has no constructor {constructor!r}{suggestion(constructor, known)}"
        raise NoAttribute(message, hint=f"it has {', '.join(known) or 'none'}")

    def get_global_var(self, name: str) -> GlobalVar:
        """The name of a function of the module: ``p.get_global_var("map")``."""
        return GlobalVar(self.mod.get_global_var(name).name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "mod":
            raise AttributeError(name)
        known = self._known()
        found = known.get(name, known.get(_OLD_NAMES.get(name, name)))
        if found is None:
            hint = "p.mod.import_from_std('nat.rly') adds nat, Z, S and functions of them"
            raise NoAttribute(f"the prelude has no {name!r}{suggestion(name, known)}", hint=hint)
        return found

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._known()]

    def _known(self) -> dict[str, GlobalVar | GlobalTypeVar | Constructor]:
        found: dict[str, Any] = {}
        for header, definition in self.mod.type_definitions.items():
            if isinstance(definition, TypeData):
                found |= {c.name: c for c in definition.constructors}
            found[header.name] = header
        return found | {name: self.mod.get_global_var(name) for name in self.mod.functions}
