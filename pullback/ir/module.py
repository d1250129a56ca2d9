"""A module: functions of both IRs by name, and attributes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, NoReturn

from pullback.ir.arguments import mapping
from pullback.ir.errors import CallError, NameNotFound, UserError
from pullback.ir.node import Closed, Node, script_of
from pullback.ir.words import guided

GLOBAL_SYMBOL = "global_symbol"  # the attribute of a function that is its name outside of the module: no structure


@dataclass(frozen=True, eq=False)
class GlobalVar(Node):
    """The name of a function in a module; ``struct_info`` is the function's type when it is known.

    Calling it builds a call of the graph function. Two of one name are equal.

    Args:
        name: the function's name.
        struct_info: its type, a FuncStructInfo; None where that is not known.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.
    """

    name: str
    struct_info: Any = field(default=None, compare=False, repr=False)

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> Any:
        """A call of the graph function (relax registers how)."""
        if _call_global is None:
            raise UserError("import pullback.relax before calling a GlobalVar")
        return _call_global(self, args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalVar) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("GlobalVar", self.name))


@dataclass(frozen=True, eq=False)
class TypeName(Node):
    """The name of a data type of a module; names compare."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeName) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("TypeName", self.name))


_call_global = None


def set_call_global(function: Any) -> None:
    global _call_global
    _call_global = function


_import_from_std = None


def set_import_from_std(function: Any) -> None:
    """Install what ``import_from_std`` of modules does (``relay/shown.py`` does so on import)."""
    global _import_from_std
    _import_from_std = function


@guided
class IRModule:
    """Functions by name, in the order of definition, with module attributes.

    ``mod["name"]`` reads, ``mod["name"] = function`` writes; names may be strings or :class:`GlobalVar`. A graph
    function that is not private gets the name as its attribute ``global_symbol``, unless it has one. Passes never
    change a module in place: they work on :meth:`copy`. Programs of relay define data types as well:
    ``mod[name] = definition`` and ``mod[name]`` with a ``GlobalTypeVar``.

    Args:
        functions: by name, or by GlobalVar.
        attrs: the module's attributes.
        type_definitions: data types of relay.
    """

    def __init__(
        self,
        functions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        type_definitions: Mapping[Any, Any] | None = None,
    ) -> None:
        self.functions: dict[str, Any] = {}
        self.type_definitions: dict[TypeName, Any] = (
            {} if type_definitions is None else dict(mapping("type_definitions", type_definitions))
        )
        attrs = {} if attrs is None else mapping("attrs", attrs)
        self.attrs: dict[str, Any] = copy.copy(attrs) if isinstance(attrs, dict) else dict(attrs)
        for name, function in ({} if functions is None else mapping("functions", functions)).items():
            self[name] = function

    @staticmethod
    def from_expr(
        function: Any, functions: Mapping[Any, Any] | None = None, type_defs: Mapping[Any, Any] | None = None
    ) -> IRModule:
        """A module with the function ``main``, and with ``functions`` and data types beside it. An expression of relay
        that is no function becomes one of its free variables."""
        whole = getattr(function, "as_function", None)
        main = whole() if whole is not None else function
        if hasattr(main, "named") and GLOBAL_SYMBOL in main.attrs:  # it is known by the module's name for it
            main = main.with_attr(GLOBAL_SYMBOL, "main")
        return IRModule({**(functions or {}), "main": main}, None, type_defs)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        hint = "compile it: pullback.compile(module).function(name)(…), or train it: pullback.trainer(module, …)"
        raise CallError("a module is a program, it is not called itself", hint=hint)

    def __getitem__(self, name: str | GlobalVar | TypeName) -> Any:
        if isinstance(name, TypeName):
            return self._type_definition(name)
        key = _key(name)
        if key not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise NameNotFound(
                f"the module has no function {key!r}; it has: {known}", hint="module['name'] takes one of these names"
            )
        return self.functions[key]

    def _type_definition(self, name: TypeName) -> Any:
        if name not in self.type_definitions:
            known = ", ".join(n.name for n in self.type_definitions) or "none"
            raise NameNotFound(
                f"the module defines no data type {name.name!r}; it has: {known}",
                hint="module[name] = TypeData(name, …) defines one; import_from_std brings those of the prelude",
            )
        return self.type_definitions[name]

    def __setitem__(self, name: str | GlobalVar | TypeName, function: Any) -> None:
        if isinstance(name, TypeName):
            self.type_definitions[name] = function
            return
        key = _key(name)
        if not isinstance(key, str) or not key or not key.isprintable():
            hint = "it is how the function is called: a string such as 'main'"
            raise UserError(f"the name of a function must be printable and not empty, got {key!r}", hint=hint)
        if not isinstance(function, Node):
            hint = "functions come from @R.function, @T.prim_func or a BlockBuilder"
            raise UserError(f"{key} of a module must be a function, got {type(function).__name__}", hint=hint)
        named = getattr(function, "named", None)
        self.functions[key] = function if named is None else named(key)

    def __delitem__(self, name: str | GlobalVar) -> None:
        del self.functions[_key(name)]

    def __contains__(self, name: str | GlobalVar) -> bool:
        return _key(name) in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def items(self) -> list[tuple[str, Any]]:
        return list(self.functions.items())

    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar of an existing function."""
        function = self[name]
        kind = getattr(function, "global_var", GlobalVar)  # of a function of relay it is an expression of relay
        return kind(name, getattr(function, "struct_info", None))

    def get_global_type_var(self, name: str) -> TypeName:
        """The name of an existing data type."""
        found = next((known for known in self.type_definitions if known.name == name), None)
        return self._type_definition(TypeName(name)) if found is None else found

    def get_type(self, name: str) -> tuple[Any, ...]:
        """The name of a data type, followed by its constructors."""
        header = self.get_global_type_var(name)
        return header, *self._type_definition(header).constructors

    def get_global_type_vars(self) -> list[TypeName]:
        return list(self.type_definitions)

    def get_global_vars(self) -> list[GlobalVar]:
        return [self.get_global_var(n) for n in self.functions]

    def unique_name(self, name: str) -> str:
        """``name``, or ``name_1``, ``name_2``, … when it is taken."""
        if name not in self.functions:
            return name
        k = 1
        while f"{name}_{k}" in self.functions:
            k += 1
        return f"{name}_{k}"

    def add_func(self, function: Any, name: str) -> GlobalVar:
        """Add under a fresh name made from ``name``."""
        fresh = self.unique_name(name)
        self[fresh] = function
        return self.get_global_var(fresh)

    def update_func(self, var: str | GlobalVar, function: Any) -> None:
        self[var] = function

    def update(self, other: IRModule | Mapping[Any, Any]) -> None:
        for name, function in (other.functions if isinstance(other, IRModule) else other).items():
            self[name] = function
        self.type_definitions.update(getattr(other, "type_definitions", {}))

    def copy(self) -> IRModule:
        return IRModule(self.functions, self.attrs, self.type_definitions)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> IRModule:
        """A module with attributes of its own, of the same functions, which do not change."""
        result = memo[id(self)] = IRModule(self.functions, None, self.type_definitions)
        result.attrs = copy.deepcopy(self.attrs, memo)
        return result

    def with_attr(self, key: str, value: Any) -> IRModule:
        return self.with_attrs({key: value})

    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """A copy with the attributes added."""
        result = self.copy()
        result.attrs.update(attrs)
        return result

    def without_attr(self, key: str) -> IRModule:
        """A copy without the attribute."""
        result = self.copy()
        result.attrs.pop(key, None)
        return result

    def get_attr(self, key: str, default: Any = None) -> Any:
        return self.attrs.get(key, default)

    def structural_items(self) -> list[tuple[str, Any]]:
        items: list[tuple[str, Any]] = [("functions", {name: Closed(f) for name, f in self.functions.items()})]
        if self.type_definitions:
            types = {name.name: Closed(definition) for name, definition in self.type_definitions.items()}
            items.append(("type_definitions", types))
        return [*items, ("attrs", self.attrs)]

    def _language(self) -> Any:
        """How programs are written whose functions or data types say so themselves (``text_of`` of their class)."""
        parts = (*self.functions.values(), *self.type_definitions.values())
        return next((part.text_of for part in parts if hasattr(part, "text_of")), None)

    def script(self, **options: Any) -> str:
        """The module as text of its language: script, or relay text."""
        text_of = self._language()
        return script_of(self, **options) if text_of is None else text_of(self, **options)

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """A module of relay as relay text, with the version line first; other modules as :meth:`script`."""
        text_of = self._language()
        return self.script() if text_of is None else text_of(self, show_meta_data=show_meta_data, annotate=annotate)

    def import_from_std(self, name: str) -> None:
        """Add what a file of relay's standard library defines, such as ``"prelude.rly"``, and what that needs."""
        if _import_from_std is None:
            raise UserError("the standard library is that of relay", hint="import pullback.relay first")
        _import_from_std(self, name)

    def show(self, **options: Any) -> None:
        print(self.script(**options))

    def _repr_html_(self) -> str:
        """In a notebook: the functions' scripts, in colours, which fold."""
        if self._language() is not None:
            return f"<pre>{escape(str(self))}</pre>"
        return f"<pre>{escape(repr(self))}</pre>" if Node._page is None else Node._page(self)

    def __str__(self) -> str:
        text_of = self._language()
        if text_of is not None:
            return str(text_of(self, to_read=True))
        return self.script() if Node._printer is not None else repr(self)

    def __repr__(self) -> str:
        return f"IRModule({', '.join(self.functions)})"


def without_symbol(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a function without its name outside of the module: what counts as structure."""
    return {k: v for k, v in attrs.items() if k != GLOBAL_SYMBOL}


def own_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a function that hold of another one made of it, which has another name."""
    return {k: v for k, v in attrs.items() if k not in (GLOBAL_SYMBOL, "private")}


def _key(name: str | GlobalVar) -> str:
    if not isinstance(name, (str, GlobalVar)):
        raise NameNotFound(f"a function's name is a string, got {name!r:.80}", hint="module['name'] takes a name")
    return name.name if isinstance(name, GlobalVar) else name
