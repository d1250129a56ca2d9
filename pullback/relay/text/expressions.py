"""Expressions and patterns of relay text.

body       ::= { %0 = e ; | let %x: t = e ; | free_var %x: t ; | e ; } e
e          ::= operand { (* / + - < > <= >= == !=) operand }     products first, comparisons last
operand    ::= - operand | atom { <t, …> (e, …, name=v, …) | . index }
atom       ::= %x | %0 | @f | operator | Constructor | number | True | (body) | (e,) | (e, e) | { body }
             | fn [A](%x: t, …, name=v) -> t { body } | if (body) { body } else { body }
             | match (e) { p => body, … } | ref(e) | ref_read(e) | ref_write(e, e) | meta[…][…]
p          ::= _ | %x: t | Constructor | Constructor(p, …) | (p, …)
"""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import NameNotFound, UserError, near, suggestion
from pullback.ir.node import Span
from pullback.ir.op import is_required
from pullback.relay import adt
from pullback.relay import expr as relay
from pullback.relay.attrs import Attrs
from pullback.relay.op import registry
from pullback.relay.text.attributes import Attributes
from pullback.relay.text.scope import Scope
from pullback.relay.text.tokens import Token
from pullback.relay.ty import Type
from pullback.runtime.tensor import tensor

INFIX = {
    "*": (12, "multiply"), "/": (12, "divide"), "+": (10, "add"), "-": (10, "subtract"), "<": (8, "less"),
    ">": (8, "greater"), "<=": (8, "less_equal"), ">=": (8, "greater_equal"), "==": (7, "equal"),
    "!=": (7, "not_equal"),
}  # fmt: skip
_IN_TYPES = (",", "?", ":", "+", "-", "*", "->", "fn", "ref")
_BLOCK_ENDS = ("}", ")", "]", ",")


class Expressions(Attributes):
    """Reads expressions. Names that are not known are reported, and stand for variables of their own."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.locals = Scope()
        self.free: dict[str, relay.Var] = {}
        self.graph: dict[int, relay.Expr] = {}
        self.functions: dict[str, relay.GlobalVar] = {}
        self.constructors: dict[str, adt.Constructor] = {}
        self.open = False  # whether functions may be named that the text does not define

    # ---------------------------------------------------------------- blocks

    def block(self) -> relay.Expr:
        """``{ body }``"""
        self.expect("{", "before the body")
        with self.locals.inner():
            body = self.body()
        self.expect("}", "after the body", hint="let %x = …; ends in a semicolon, the body's result does not")
        return body

    def body(self) -> relay.Expr:
        """Bindings, and the result."""
        bindings: list[tuple[relay.Var, relay.Expr, Span]] = []
        while True:
            start = self.token
            if self.accept("let"):
                bindings.append((*self._let(), self.span(start)))
            elif start.kind == "graph" and self.after().text == "=":
                self.take()
                self.take()
                self.graph[start.value] = self.expression()
                self._semicolon(f"after the value of {start.text}")
            elif self.accept("free_var"):
                self._free_var()
            else:
                result = self.expression()
                if not self.at(";"):
                    break
                bindings.append((relay.Var(""), result, self.span(start)))
                semicolon = self.take()
                if self.token.text in _BLOCK_ENDS or self.token.kind == "end":
                    self.fail("a body ends in its result, without a semicolon", semicolon, hint="leave out this one")
        for var, value, span in reversed(bindings):
            result = relay.Let(var, value, result, span=span)
        return result

    def _semicolon(self, where: str) -> None:
        if not self.accept(";"):
            before = self.tokens[self.position - 1]
            self.mistake(f"expected `;` {where}, found {self.token}", before)
            if self.token.kind not in ("local", "graph", "word", "name", "global"):
                self.fail(f"expected `;` {where}, found {self.token}", before)

    def _let(self) -> tuple[relay.Var, relay.Expr]:
        name = self.expect_kind("local", "a variable after `let`", hint="let %x = …;")
        annotation = self.annotation(":")
        self.expect("=", "after the variable of a let", hint="let %x: float32 = …;")
        var = relay.Var(name.value, annotation, span=self.span(name, name))
        if self.at("fn", "{"):  # a function may name itself
            self.locals.bind(name.value, var)
        value = self.expression()
        self.locals.bind(name.value, var)
        self._semicolon(f"after the value of {name.text}")
        return var, value

    def _free_var(self) -> None:
        name = self.expect_kind("local", "a variable after `free_var`")
        annotation = self.annotation(":")
        self.free[name.value] = relay.Var(name.value, annotation, span=self.span(name, name))
        self._semicolon(f"after {name.text}")

    # ----------------------------------------------------------- expressions

    def expression(self, least: int = 0) -> relay.Expr:
        """Operands and the infix operators between them that bind at least so strongly."""
        start = self.token
        left = self._operand()
        while self.token.kind == "mark" and self.token.text in INFIX:
            mark = self.token
            strength, name = INFIX[mark.text]
            if strength < least:
                break
            self.take()
            right = self.expression(strength + 1)
            left = relay.Call(self._operator(name, mark), (left, right), span=self.span(start))
        return left

    def _operand(self) -> relay.Expr:
        start, minuses = self.token, 0
        while self.accept("-"):
            minuses += 1
        first = self.token
        if minuses and first.kind == "number":
            return self._applied(self._constant(self.take(), negative=minuses % 2 == 1), start)
        value = self._applied(self._atom(), first)
        for _ in range(minuses):
            value = relay.Call(self._operator("negative", start), (value,), span=self.span(start))
        return value

    def _applied(self, value: Any, start: Token) -> Any:
        """What stands after an atom: calls and fields."""
        while True:
            if self.at("("):
                value = self._call(value, (), start)
            elif self.at("<") and self.token.start == self.tokens[self.position - 1].end and self._at_type_args():
                self.take()
                type_args = self.listed(self.type, ">", "after the types")
                if not self.at("("):
                    self.fail(f"expected `(` after the types of a call, found {self.token}")
                value = self._call(value, tuple(type_args), start)
            elif self.at(".") and self.after().text.isdecimal():
                value = self._complete(value, start)
                self.take()
                value = relay.TupleGetItem(value, int(self.take().text), span=self.span(start))
            else:
                return self._complete(value, start)

    def _complete(self, value: Any, start: Token) -> Any:
        """A constructor without fields is a call of it, where it is written by its name."""
        if isinstance(value, adt.Constructor) and not value.inputs and start.kind == "name":
            return relay.Call(value, (), span=self.span(start))
        return value

    def _at_type_args(self) -> bool:
        """Whether the types of a call follow, and no comparison: ``@f<float32>(%x)``."""
        depth, k = 0, 0
        while True:
            token = self.after(k)
            k += 1
            if token.text in ("<", "[", "("):
                depth += 1
            elif token.text in (">", "]", ")"):
                depth -= 1
                if depth == 0:
                    return token.text == ">" and self.after(k).text == "("
            elif token.kind not in ("name", "number", "meta") and token.text not in _IN_TYPES:
                return False

    def _atom(self) -> Any:
        token = self.token
        if token.kind == "number":
            return self._constant(self.take())
        if token.kind in ("local", "graph", "global", "name"):
            return getattr(self, f"_{token.kind}")()
        if token.kind == "meta":
            return self.of_meta((relay.Expr, registry.Op), "an expression")
        if self.at("True", "False"):
            return relay.Constant(tensor(self.take().text == "True"), span=self.span(token))
        if self.accept("("):
            return self._bracketed_expr(token)
        if self.at("{"):
            return self.block()
        read = _AFTER_WORD.get(token.text) if token.kind == "word" else None
        if read is None:
            hint = (
                "expressions are %x, 1f, add(%x, %y), (a, b), fn (%x) { … }, if (c) { … } else { … }, match (e) { … }"
            )
            self.fail(f"expected an expression, found {token}", hint=hint)
        self.take()
        return read(self, token)

    def _constant(self, token: Token, negative: bool = False) -> relay.Constant:
        return relay.Constant(tensor(self.number(token, negative).array), span=self.span(token))

    def _local(self) -> relay.Expr:
        token = self.take()
        var = self.locals.bound.get(token.value, self.free.get(token.value))
        if var is None:
            known = [f"%{name}" for name in (*self.locals.bound, *self.free)]
            close = near(token.text, known)
            hint = f"did you mean {close[0]}?" if close else f"bound here are: {', '.join(known[-12:]) or 'none'}"
            self.mistake(f"there is no variable `{token.text}`", token, hint)
            var = self.free[token.value] = relay.Var(token.value)
        return var

    def _graph(self) -> relay.Expr:
        token = self.take()
        if token.value not in self.graph:
            self.mistake(f"there is no value `{token.text}`", token, f"write {token.text} = …; before it is used")
            self.graph[token.value] = relay.Var(f"v{token.value}")
        return self.graph[token.value]

    def _global(self) -> relay.Expr:
        token = self.take()
        if token.value not in self.functions and not self.open:
            known = [f"@{name}" for name in self.functions]
            hint = f"there are: {', '.join(known) or 'none'}; mod.import_from_std brings those of the prelude"
            self.mistake(f"there is no function `{token.text}`{suggestion(token.text, known)}", token, hint)
        return relay.GlobalVar(token.value, span=self.span(token))

    def _name(self) -> Any:
        token = self.take()
        constructor = self.constructors.get(token.text)
        return self._operator(token.text, token) if constructor is None else constructor

    def _operator(self, name: str, token: Token) -> Any:
        try:
            return registry.get(name)
        except NameNotFound as error:
            if name == token.text:
                known = [*registry.Op.registry, *self.constructors]
                message = f"there is no operator or constructor `{name}`{suggestion(name, known)}"
                hint = f"a variable is written %{name}, a function of the module @{name}"
                self.mistake(message, token, hint)
            else:
                self.mistake(f"`{token.text}` is the operator {name}: {error.message}", token, error.hint)
            return relay.Var(name)

    def _bracketed_expr(self, start: Token) -> relay.Expr:
        fields: list[relay.Expr] = []
        comma = False
        while not self.accept(")"):
            with self.locals.inner():
                fields.append(self.body())
            comma = self.accept(",")
            if not comma:
                self.expect(")", "after an expression in parentheses")
                break
        if len(fields) == 1 and not comma:
            return fields[0]
        return relay.Tuple(tuple(fields), span=self.span(start))

    # ----------------------------------------------------------------- calls

    def _call(self, callee: Any, type_args: tuple[Type, ...], start: Token) -> relay.Expr:
        self.take()
        args: list[relay.Expr] = []
        attrs: dict[str, tuple[Token, Any]] | Attrs = {}
        while not self.accept(")"):
            if self.at_attribute():
                attrs = self.attributes(")")
                break
            if self.token.kind == "meta" and self.after().text == ")" and self._at_meta_attrs():
                attrs = self.of_meta(Attrs, "the attributes of a call")
                continue
            with self.locals.inner():
                args.append(self.body())
            if not self.accept(","):
                self.expect(")", "after the arguments of a call")
                break
        span = self.span(start)
        if isinstance(callee, registry.Op):
            attrs = self._attrs_of_op(callee, args, attrs, start)
        elif not isinstance(attrs, Attrs):
            attrs = Attrs({name: value for name, (_, value) in attrs.items()})
        return relay.Call(callee, tuple(args), attrs, type_args, span=span)

    def _at_meta_attrs(self) -> bool:
        key, index = self.token.value
        entries = self.meta.get(key, [])
        return index < len(entries) and isinstance(entries[index], Attrs)

    def _attrs_of_op(self, op: Any, args: list[relay.Expr], given: Any, start: Token) -> Attrs:
        """The op's attributes: those given, in the op's own form (3 may be (3,)), and the defaults of the others."""
        signature, count = op.signature, len(args)
        good = len(self.mistakes.found)
        last = self.tokens[self.position - 1]
        if not signature.takes(count):
            few = len(signature.tensors) - len(signature.optional)
            most = len(signature.tensors)
            wanted = f"{few}" if few == most else f"{few} to {most}"
            message = f"{op.name} takes {wanted} argument{'s' * (wanted != '1')}, got {count}"
            self.mistake(message, start, f"{op.name}({signature})", last)
        if isinstance(given, Attrs):
            return given
        for name, (token, _) in given.items():
            if name not in signature.attrs:
                hint = f"{op.name}({signature})"
                if name in signature.tensors:
                    hint += "; what is no attribute is given by its place"
                known = suggestion(name, signature.attrs)
                self.mistake(f"{op.name} has no attribute `{name}`{known}", token, hint)
        values: dict[str, Any] = {}
        for name, default in signature.attrs.items():
            value = given[name][1] if name in given else default
            if is_required(default) and name not in given:
                self.mistake(f"{op.name} needs the attribute `{name}`", start, f"{op.name}({signature})", last)
                continue
            values[name] = value
        if op.adapt is not None and len(self.mistakes.found) == good:
            try:
                adapted = op.adapt(list(args), values)
            except UserError as error:
                self.mistake(error.message, start, error.hint, last)
            else:
                values = adapted[1] if isinstance(adapted, tuple) else values
        return Attrs(values)

    # -------------------------------------------- what begins with a word

    def function(self, start: Token) -> relay.Function:
        """``[A](%x: t, name=v) -> t { body }``, after ``fn`` or a definition's name."""
        with self.locals.inner(), self.type_vars.inner():
            type_params = self.type_params()
            self.expect("(", "before the parameters", hint="fn (%x: Tensor[(2, 3), float32]) { … }")
            params: list[relay.Var] = []
            attrs: dict[str, Any] = {}
            while not self.accept(")"):
                if self.at_attribute():
                    attrs = {name: value for name, (_, value) in self.attributes(")").items()}
                    break
                params.append(self._param(params))
                if not self.accept(","):
                    self.expect(")", "after the parameters")
                    break
            result = self.annotation("->")
            body = self.block()
        return relay.Function(tuple(params), body, result, tuple(type_params), Attrs(attrs), span=self.span(start))

    def _param(self, others: list[relay.Var]) -> relay.Var:
        name = self.expect_kind("local", "a parameter", hint="parameters are written %x or %x: float32")
        if any(other.name == name.value for other in others):
            self.mistake(f"two parameters have the name `{name.text}`", name)
        annotation = self.annotation(":")
        var = relay.Var(name.value, annotation, span=self.span(name, name))
        return self.locals.bind(name.value, var)

    def _if(self, start: Token) -> relay.Expr:
        self.expect("(", "after `if`", hint="if (%c) { … } else { … }")
        with self.locals.inner():
            condition = self.body()
        self.expect(")", "after the condition")
        then = self.block()
        self.expect("else", "after the first branch", hint="an if is a value: it needs both branches")
        other = self._if(self.take()) if self.at("if") else self.block()
        return relay.If(condition, then, other, span=self.span(start))

    def _ref(self, start: Token) -> relay.Expr:
        return relay.RefCreate(*self._operands_of(start, 1), span=self.span(start))

    def _ref_read(self, start: Token) -> relay.Expr:
        return relay.RefRead(*self._operands_of(start, 1), span=self.span(start))

    def _ref_write(self, start: Token) -> relay.Expr:
        return relay.RefWrite(*self._operands_of(start, 2), span=self.span(start))

    def _operands_of(self, word: Token, count: int) -> list[relay.Expr]:
        self.expect("(", f"after `{word.text}`")
        args = self.listed(self._inner_body, ")", f"after the arguments of {word.text}")
        if len(args) != count:
            self.fail(f"{word.text} takes {count} argument{'s' * (count > 1)}, got {len(args)}", word)
        return args

    def _inner_body(self) -> relay.Expr:
        with self.locals.inner():
            return self.body()

    def _match(self, start: Token) -> relay.Expr:
        complete = not self.accept("?")
        first = self.token
        data = self._applied(self._atom(), first)
        self.expect("{", "before the clauses", hint="match (%x) { Cons(%h, %t) => …, Nil => … }")
        clauses = self.listed(self._clause, "}", "after a clause")
        return adt.Match(data, tuple(clauses), complete, span=self.span(start))

    def _clause(self) -> adt.Clause:
        start = self.token
        with self.locals.inner():
            pattern = self._pattern()
            self.expect("=>", "after a pattern")
            return adt.Clause(pattern, self.body(), span=self.span(start))

    def _pattern(self) -> adt.Pattern:
        token = self.take()
        if token.text == "_":
            return adt.PatternWildcard(span=self.span(token))
        if token.kind == "local":
            annotation = self.annotation(":")
            var = relay.Var(token.value, annotation, span=self.span(token, token))
            return adt.PatternVar(self.locals.bind(token.value, var), span=self.span(token))
        if token.text == "(":
            fields = self.listed(self._pattern, ")", "after the patterns")
            return adt.PatternTuple(tuple(fields), span=self.span(token))
        if token.kind == "name":
            fields = self.listed(self._pattern, ")", "after the patterns") if self.accept("(") else []
            return self._constructor_pattern(token, fields)
        self.fail(f"expected a pattern, found {token}", token, hint="patterns are _, %x, Cons(%h, %t) and (%a, %b)")

    def _constructor_pattern(self, token: Token, fields: list[adt.Pattern]) -> adt.Pattern:
        constructor = self.constructors.get(token.text)
        if constructor is None:
            known = suggestion(token.text, self.constructors)
            hint = f"a variable is written %{token.text}; constructors are those of the module's data types"
            self.mistake(f"there is no constructor `{token.text}`{known}", token, hint)
            return adt.PatternWildcard()
        if fields and len(fields) != len(constructor.inputs):
            message = f"{token.text} has {len(constructor.inputs)} fields, the pattern {len(fields)}"
            self.mistake(message, token, "_ matches a field that is not needed", self.tokens[self.position - 1])
        return adt.PatternConstructor(constructor, tuple(fields), span=self.span(token))


_AFTER_WORD: dict[str, Any] = {
    "fn": Expressions.function, "if": Expressions._if, "match": Expressions._match, "ref": Expressions._ref,
    "ref_read": Expressions._ref_read, "ref_write": Expressions._ref_write,
}  # fmt: skip
