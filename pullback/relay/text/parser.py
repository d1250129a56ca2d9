"""From relay text to modules and expressions: definitions, sections, and the way in.

module     ::= [#[version = "0.0.5"]] { definition } [#[metadata] JSON]
definition ::= def @f [A](%x: t, …) -> t { body } | type T[A] { Cons(t, …), Nil } | extern type T
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, ScriptError, UserError
from pullback.ir.module import IRModule
from pullback.relay import adt
from pullback.relay import expr as relay
from pullback.relay.infer import infer_module
from pullback.relay.text.expressions import Expressions
from pullback.relay.text.saved import metadata
from pullback.relay.text.source import NAMELESS
from pullback.relay.ty import GlobalTypeVar

VERSIONS = ("0.0.5", "0.0.4")
_BEGINS = ("def", "type", "extern")


class _Definitions(Expressions):
    """Reads the definitions of a text. One that has a mistake is left out, and the next one read."""

    def __init__(self, text: str, name: str, module: IRModule | None, meta: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(text, name)
        self.module = IRModule() if module is None else module.copy()
        self._know(self.module)
        self._sections(meta)

    def _know(self, module: IRModule) -> None:
        """Names of a module that the text may use."""
        for name in module.functions:
            self.functions[name] = relay.GlobalVar(name)
        for definition in module.type_definitions.values():
            self.type_names[definition.header.name] = definition.header
            self.constructors.update((c.name, c) for c in definition.constructors)

    def _sections(self, meta: Mapping[str, Sequence[Any]]) -> None:
        """The metadata at the end, and objects that the caller brings."""
        last = self.tokens[-2] if len(self.tokens) > 1 else None
        if last is not None and last.kind == "metadata":
            del self.tokens[-2]
            try:
                table, attrs = metadata(last.value)
                self.module.attrs.update(attrs)
                self.meta.update(table)
            except ScriptError as error:
                where = self.source.span(last.start, last.start + len("#[metadata]"))
                self.mistakes.add(ScriptError(error.message, span=where, hint=error.hint))
        for key, objects in meta.items():
            self.meta[key] = [*self.meta.get(key, ()), *objects]

    def version(self, required: bool) -> None:
        """The version line."""
        if self.token.kind != "version":
            if required:
                hint = f'the text begins with #[version = "{VERSIONS[0]}"]'
                self.mistake(f"expected the version of the text, found {self.token}", self.token, hint)
            return
        token = self.take()
        if token.value not in VERSIONS:
            self.mistake(f"there is no version {token.value!r} of relay text", token, f"the version is {VERSIONS[0]}")

    def definitions(self) -> IRModule:
        """All definitions: data types first, as functions may name them before."""
        starts = [k for k in range(len(self.tokens)) if self._begins(k)]
        if self.token.kind not in ("end", "unknown") and (not starts or self.position < starts[0]):
            hint = "def @f(%x) { … } defines a function, type T { … } a data type; parse_expr reads expressions"
            self.mistake(f"expected a definition, found {self.token}", self.token, hint)
        ends = [*starts[1:], len(self.tokens) - 1]
        types = [(a, b) for a, b in zip(starts, ends, strict=False) if self.tokens[a].text != "def"]
        functions = [(a, b) for a, b in zip(starts, ends, strict=False) if self.tokens[a].text == "def"]
        for start, _ in types:
            self._declare_type(start)
        for start, _ in functions:
            self._declare_function(start)
        for start, end in types:
            self._one(start, end, self._type_definition)
        for start, end in functions:
            self._one(start, end, self._function_definition)
        return self.module

    def _begins(self, k: int) -> bool:
        """Whether a definition begins at a token."""
        token, after, before = self.tokens[k], self.tokens[min(k + 1, len(self.tokens) - 1)], self.tokens[max(k - 1, 0)]
        if token.kind != "word" or token.text not in _BEGINS or after.text == "=":  # type=1 is an attribute
            return False
        return not (token.text == "type" and before.text == "extern")

    def _declare_type(self, start: int) -> None:
        self.position = start
        name = self.after(2 if self.at("extern") else 1)
        if name.kind == "name":
            if name.text in self.type_names:
                self.mistake(f"the data type `{name.text}` is defined twice", name)
            self.type_names[name.text] = GlobalTypeVar(name.text)

    def _declare_function(self, start: int) -> None:
        name = self.tokens[start + 1]
        if name.kind == "global":
            if name.value in self.functions and name.value not in self.module:
                self.mistake(f"the function `{name.text}` is defined twice", name)
            self.functions[name.value] = relay.GlobalVar(name.value)

    def _one(self, start: int, end: int, read: Any) -> None:
        self.position = start
        self.free, self.graph, self.sizes = {}, {}, {}
        try:
            read()
            if self.position < end and self.token.kind != "unknown":
                hint = "a definition ends with the `}` of its body: is there one too many?"
                self.mistake(f"expected a definition, found {self.token}", self.token, hint)
        except ScriptError as error:
            self.stopped(error, start, end)

    def stopped(self, error: ScriptError, start: int, end: int) -> None:
        """Note what ended the reading of these tokens; what is no token has been reported, and may be the cause."""
        if not any(token.kind == "unknown" for token in self.tokens[start:end]):
            self.mistakes.add(error)

    def _type_definition(self) -> None:
        start = self.token
        external = self.accept("extern")
        self.expect("type", "after `extern`")
        name = self.expect_kind("name", "the name of a data type", hint="type List[A] { Cons(A, List[A]), Nil }")
        header = self.type_names[name.text]
        constructors: list[adt.Constructor] = []
        with self.type_vars.inner():
            params = self.type_params()
            if external:
                self.accept(";")
                if self.at("{"):
                    self.fail("an external type has no constructors", hint="leave out the word `extern`")
            else:
                self.expect("{", "before the constructors", hint="type List[A] { Cons(A, List[A]), Nil }")
                constructors = self.listed(lambda: self._constructor(header), "}", "after the constructors")
        self.module[header] = adt.TypeData(header, tuple(params), tuple(constructors), span=self.span(start))

    def _constructor(self, header: GlobalTypeVar) -> adt.Constructor:
        name = self.expect_kind("name", "the name of a constructor")
        inputs = self.listed(self.type, ")", "after the types of the fields") if self.accept("(") else []
        if name.text in self.constructors and self.constructors[name.text].belong_to != header:
            other = self.constructors[name.text].belong_to.name
            self.mistake(f"the constructor `{name.text}` is one of the data type {other} already", name)
        made = adt.Constructor(name.text, tuple(inputs), header, span=self.span(name))
        self.constructors[name.text] = made
        return made

    def _function_definition(self) -> None:
        start = self.take()
        name = self.expect_kind("global", "the name of a function", hint="def @main(%x: float32) { … }")
        function = self.function(start)
        try:
            self.module[name.value] = function
        except UserError as error:
            self.mistake(error.message, name, error.hint)


@deep
def parse(
    source: str,
    source_name: str = NAMELESS,
    init_module: IRModule | None = None,
    init_meta_table: Mapping[str, Sequence[Any]] | None = None,
    *,
    infer_types: bool = True,
) -> IRModule:
    """The module that relay text defines; what ``astext`` writes reads back structurally equal.

    ``source_name`` stands in messages and spans. ``init_module`` has definitions that the text may use: the result is
    a copy of it with the text's added. ``init_meta_table`` has objects for ``meta[key][index]``, after those of the
    text's own section. Types are inferred, as InferType does; with ``infer_types=False`` the module is what the text
    says, no more.

    >>> parse('#[version = "0.0.5"] def @main(%x: float32) { exp(%x) }')
    IRModule(main)

    Raises ScriptError, which lists all mistakes with their places, or what inference finds.
    """
    module = _module(_text(source), source_name, init_module, init_meta_table)
    return infer_module(module) if infer_types else module


@deep
def parse_expr(source: str, source_name: str = NAMELESS, init_module: IRModule | None = None) -> relay.Expr:
    """The expression of a text, such as ``"fn (%x: float32) { exp(%x) }"``; ``free_var %x: float32;`` declares free
    variables. Functions and data types that it names are those of ``init_module``; without one, functions may be any.

    Raises ScriptError, which lists all mistakes with their places.
    """
    return _expression(_text(source), source_name, init_module)


@deep
def fromtext(source: str, source_name: str = NAMELESS) -> Any:
    """What a text with its version line says: a module where it has definitions, otherwise an expression."""
    reader = _Definitions(_text(source), source_name, None, {})
    reader.version(required=True)
    first = reader.token
    if first.kind == "end" or (first.kind == "word" and first.text in _BEGINS):
        return parse(source, source_name)
    reader.mistakes.report()
    return _expression(source, source_name, None)


def _text(source: Any) -> str:
    if not isinstance(source, str):
        raise ArgumentError(f"the text of a program is a string, got {type(source).__name__}")
    return source


def _module(text: str, name: str, module: IRModule | None, meta: Any) -> IRModule:
    reader = _Definitions(text, name, module, meta or {})
    reader.version(required=True)
    result = reader.definitions()
    reader.mistakes.report()
    return result


def _expression(text: str, name: str, module: IRModule | None) -> relay.Expr:
    reader = _Definitions(text, name, module, {})
    reader.open = module is None
    reader.version(required=False)
    try:
        result = reader.body()
        if reader.token.kind not in ("end", "unknown"):
            reader.mistake(f"expected the end of the text, found {reader.token}", reader.token)
    except ScriptError as error:
        reader.stopped(error, 0, len(reader.tokens))
    reader.mistakes.report()
    return result
