"""Values of attributes in relay text.

v ::= 1 | -1.5f | True | None | "text" | [v, …] | {"key"=v, …} | ? | a size's name | meta[…][…]
"""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import suggestion
from pullback.relay.attrs import Attrs
from pullback.relay.text.tokens import Token
from pullback.relay.text.types import SIZE_FUNCTIONS, Types
from pullback.relay.ty import Any as AnySize

CONSTANTS = {"True": True, "False": False, "None": None, "nullptr": None}


class Attributes(Types):
    """Reads attributes: ``name=value`` after the arguments of a call or the parameters of a function."""

    def at_attribute(self) -> bool:
        """Whether an attribute begins here."""
        return self.token.kind in ("name", "string", "word") and self.after().text == "="

    def attributes(self, close: str) -> dict[str, tuple[Token, Any]]:
        """Attributes up to ``close``, each with the token of its name."""
        found: dict[str, tuple[Token, Any]] = {}
        while not self.accept(close):
            if not self.at_attribute():
                self.fail(f"expected name=value, found {self.token}", hint="attributes come last: add(%x, %y, axis=1)")
            name = self.take()
            self.take()
            if name.value in found:
                self.mistake(f"attribute {name.value!r} is given twice", name)
            found[name.value] = name, self.value()
            if not self.accept(","):
                self.expect(close, "after the attributes")
                break
        return found

    def value(self) -> Any:
        """The value of an attribute."""
        token = self.token
        if token.kind == "number" or (self.at("-") and self.after().kind == "number"):
            negative = self.accept("-")
            token = self.take()
            if token.text.isdigit():
                return -int(token.text) if negative else int(token.text)  # of any size
            return self.number(token, negative).value
        if token.kind == "string":
            return self.take().value
        if token.kind == "meta":
            return self.of_meta(object, "an attribute")
        if self.accept("["):
            return tuple(self.listed(self.value, "]", "after the values of a list"))
        if self.accept("{"):
            return Attrs({name: value for name, (_, value) in self.attributes("}").items()})
        if self.accept("?"):
            return AnySize()
        if token.text in CONSTANTS:
            return CONSTANTS[self.take().text]
        if self.at("("):
            return self.size() if self._sum_in_brackets() else self._bracketed()
        if token.kind == "name" and (
            token.text in self.sizes
            or self.after().text == ":"
            or (token.text in SIZE_FUNCTIONS and self.after().text == "(")
        ):
            return self.size()
        if token.kind == "name":
            known = [*CONSTANTS, *self.sizes]
            hint = f'strings stand in quotes: "{token.text}"'
            self.fail(f"`{token.text}` is no value{suggestion(token.text, known)}", hint=hint)
        self.fail(
            f"expected the value of an attribute, found {token}", hint='such as 1, 0.5f, "text", [1, 2], True, None'
        )

    def _sum_in_brackets(self) -> bool:
        """Whether what stands in parentheses is an expression of sizes."""
        depth, k = 0, 0
        while True:
            text = self.after(k).text
            depth += (text == "(") - (text == ")")
            if depth == 0 or self.after(k).kind == "end":
                return False
            if text in ("+", "*") or (text == "-" and self.after(k - 1).text not in ("(", ",")):
                return True
            k += 1

    def _bracketed(self) -> Any:
        """``(v)`` or ``(v, v)``."""
        self.take()
        values: list[Any] = []
        comma = False
        while not self.accept(")"):
            values.append(self.value())
            comma = self.accept(",")
            if not comma:
                self.expect(")", "after the value")
                break
        return values[0] if len(values) == 1 and not comma else tuple(values)
