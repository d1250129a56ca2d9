"""Types of relay text.

t ::= Tensor[(2, n, ?), float32] | float32 | (t, …) | fn [A](t, …) -> t | ref(t) | A | List[t, …] | _ | meta[…][…]

``_`` is a type that inference is to find; a variable that is said to have it is not declared at all.
"""

from __future__ import annotations

from typing import Any

from pullback import tir
from pullback.ir.errors import ScriptError, UserError, suggestion
from pullback.relay.text.cursor import Cursor
from pullback.relay.text.literals import number
from pullback.relay.text.reference_metadata import NotRead
from pullback.relay.text.scope import Scope
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
)
from pullback.tir.expr import DTYPES

KINDS = {
    "Type": TypeKind.Type, "Shape": TypeKind.ShapeVar, "BaseType": TypeKind.BaseType,
    "Constraint": TypeKind.Constraint, "AdtHandle": TypeKind.AdtHandle, "TypeData": TypeKind.TypeData,
}  # fmt: skip
_SUMS = {"+": "add", "-": "sub", "*": "mul"}
SIZE_FUNCTIONS = ("floordiv", "floormod", "min", "max")


class Types(Cursor):
    """Reads types. Sizes that are names are variables, the same in the whole definition."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.type_vars = Scope()
        self.type_names: dict[str, GlobalTypeVar] = {}
        self.sizes: dict[str, tir.Var] = {}
        self.meta: dict[str, list[Any]] = {}

    def type(self) -> Type:
        """One type."""
        start = self.token
        if self.accept("("):
            return self._tuple_type()
        if self.accept("fn"):
            return self._function_type()
        if start.kind == "meta":
            return self.of_meta(Type, "a type")
        if self.at("ref", "Ref"):
            self.take()
            close = {"(": ")", "[": "]"}.get(self.token.text)
            if close is None:
                self.fail(f"expected `(` after `{start.text}`, found {self.token}", hint="ref(float32) is a type")
            self.take()
            value = self.type()
            self.expect(close, f"after the type of what the {start.text} holds")
            return RefType(value, span=self.span(start))
        if start.kind != "name":
            self.fail(f"expected a type, found {start}", hint="Tensor[(2, 3), float32], float32, (a, b), fn (a) -> b")
        self.take()
        if start.text == "Tensor":
            return self._tensor_type()
        if start.text == "_":
            return IncompleteType(span=self.span(start))
        if start.text in DTYPES:
            return TensorType((), start.text, span=self.span(start))
        return self._named_type()

    def annotation(self, mark: str) -> Type | None:
        """The type after the mark; None where there is no mark, and for ``_``."""
        type_ = self.type() if self.accept(mark) else None
        return None if isinstance(type_, IncompleteType) else type_

    def _tuple_type(self) -> Type:
        start = self.tokens[self.position - 1]
        fields: list[Type] = []
        comma = False
        while not self.accept(")"):
            fields.append(self.type())
            comma = self.accept(",")
            if not comma:
                self.expect(")", "after the fields of a tuple type")
                break
        if len(fields) == 1 and not comma:
            return fields[0]
        return TupleType(tuple(fields), span=self.span(start))

    def _function_type(self) -> Type:
        start = self.tokens[self.position - 1]
        with self.type_vars.inner():
            params = self.type_params()
            self.expect("(", "in a function's type", hint="fn (float32, float32) -> float32")
            args = self.listed(self.type, ")", "after the types of the arguments")
            self.expect("->", "in a function's type", hint="fn (float32, float32) -> float32")
            return FuncType(tuple(args), self.type(), tuple(params), span=self.span(start))

    def _tensor_type(self) -> Type:
        start = self.tokens[self.position - 1]
        example = "Tensor[(2, 3), float32] is a tensor's type, (2,) or (2) a shape of one axis"
        self.expect("[", "after `Tensor`", hint=example)
        self.expect("(", "before the shape", hint=example)
        shape = self.listed(self.size, ")", "after the shape")
        self.expect(",", "between shape and dtype", hint=example)
        name = self.expect_kind("name", "a dtype", hint=example)
        self.expect("]", "after the dtype", hint=example)
        try:
            return TensorType(tuple(shape), name.text, span=self.span(start))
        except UserError as error:
            self.mistake(error.message, name, error.hint)
            return IncompleteType()

    def _named_type(self) -> Type:
        start = self.tokens[self.position - 1]
        head = self.type_vars.bound.get(start.text, self.type_names.get(start.text))
        if head is None:
            known = [*self.type_vars.bound, *self.type_names, *DTYPES, "Tensor"]
            hint = "type parameters stand in brackets: def @f[A](%x: A); `type` defines data types"
            self.mistake(f"there is no type `{start.text}`{suggestion(start.text, known)}", start, hint)
            head = IncompleteType()
        args: list[Type] = []
        applied = self.accept("[")
        if applied:
            args = self.listed(self.type, "]", "after the types")
        if isinstance(head, GlobalTypeVar) or (applied and not isinstance(head, IncompleteType)):
            return TypeCall(head, tuple(args), span=self.span(start))
        return head

    def type_params(self) -> list[TypeVar]:
        """``[A, B: Shape]`` or ``<A, B>``, bound in the scope of type variables; nothing if there are none."""
        close = {"[": "]", "<": ">"}.get(self.token.text)
        if close is None:
            return []
        self.take()
        return self.listed(self._type_param, close, "after the type parameters")

    def _type_param(self) -> TypeVar:
        name = self.expect_kind("name", "the name of a type parameter")
        kind = TypeKind.Type
        if self.accept(":"):
            word = self.expect_kind("name", "a kind", hint=f"the kinds are {', '.join(KINDS)}")
            if word.text not in KINDS:
                known = ", ".join(KINDS)
                self.fail(f"there is no kind `{word.text}`{suggestion(word.text, KINDS)}", word, f"they are {known}")
            kind = KINDS[word.text]
        return self.type_vars.bind(name.text, TypeVar(name.text, kind, span=self.span(name)))

    def listed(self, read: Any, close: str, where: str) -> list[Any]:
        """What ``read`` reads, between commas, up to ``close``; a comma may come last."""
        items: list[Any] = []
        while not self.accept(close):
            items.append(read())
            if not self.accept(","):
                self.expect(close, where)
                break
        return items

    def size(self) -> Any:
        """A size of a shape: a number, ``?``, a name, ``(n + 1)``, ``floordiv(n, 2)``."""
        token = self.token
        if self.accept("?"):
            return AnySize()
        if token.kind == "meta":
            return self.of_meta((tir.PrimExpr, int), "a size")
        value = self._size_expr()
        return value.value if isinstance(value, tir.IntImm) and value.type == "int64" else value

    def _size_expr(self) -> tir.PrimExpr:
        token = self.take()
        if token.text == "-" and self.token.kind == "number":
            return self._size_number(self.take(), negative=True)
        if token.kind == "number":
            return self._size_number(token)
        if token.text == "(":
            a = self._size_expr()
            kind = self.take()
            if kind.text not in _SUMS:
                self.fail(f"expected +, - or * between sizes, found {kind}", kind, hint="(n + 1) is a size")
            b = self._size_expr()
            self.expect(")", "after a size")
            return self._size_binary(_SUMS[kind.text], a, b, token)
        if token.text in SIZE_FUNCTIONS and self.accept("("):
            a = self._size_expr()
            self.expect(",", f"between the arguments of {token.text}")
            b = self._size_expr()
            self.expect(")", f"after the arguments of {token.text}")
            return self._size_binary(token.text, a, b, token)
        if token.kind == "name" and token.text != "_":
            dtype = self.take().text if self.accept(":") else "int64"
            if dtype not in DTYPES:
                self.fail(f"there is no dtype `{dtype}`{suggestion(dtype, DTYPES)}", hint="n: int32 is a size")
            return self.sizes.setdefault(token.text, tir.Var(token.text, dtype))
        self.fail(
            f"expected a size, found {token}", token, hint="sizes are numbers, names, and ? where it is not known"
        )

    def _size_number(self, token: Any, negative: bool = False) -> tir.IntImm:
        read = self.number(token, negative)
        if not isinstance(read.value, int):
            self.fail(f"a size is a whole number, found {token}", token)
        return tir.IntImm(read.value, "int64" if token.text.isdigit() else read.dtype)

    def _size_binary(self, kind: str, a: tir.PrimExpr, b: tir.PrimExpr, token: Any) -> tir.PrimExpr:
        try:
            return tir.expr.Binary(kind, a, b)
        except UserError as error:
            self.fail(error.message, token, error.hint)

    def number(self, token: Any, negative: bool = False) -> Any:
        """The number that a token is."""
        try:
            return number(token.text, negative)
        except ScriptError as error:
            self.fail(error.message, token, error.hint)

    def of_meta(self, kind: Any, what: str) -> Any:
        """The object of the meta table that the next token, ``meta[key][index]``, names."""
        token = self.take()
        key, index = token.value
        entries = self.meta.get(key)
        if entries is None:
            known = ", ".join(self.meta) or "none"
            hint = "#[metadata] ends texts that astext writes with show_meta_data=True; init_meta_table brings objects"
            self.fail(f"the meta table has no entry {key!r}{suggestion(key, self.meta)}; it has: {known}", token, hint)
        if index >= len(entries):
            self.fail(f"meta[{key}] has {len(entries)} objects, there is none at {index}", token)
        if isinstance(entries[index], NotRead):
            hint = (
                "constants and variables of sizes are read from the reference's metadata; init_meta_table brings others"
            )
            self.fail(f"{token.text} is a {entries[index].kind}, which is not read", token, hint)
        if not isinstance(entries[index], kind):
            self.fail(f"{token.text} is no {what.split()[-1]}, it is a {type(entries[index]).__name__}", token)
        return entries[index]
