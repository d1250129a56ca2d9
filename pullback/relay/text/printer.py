"""From relay's nodes to text.

In graph form each call whose value another expression uses is a line of its own, ``%0 = …;``, the first time it is
met: its number stands for it afterwards. Variables, constants, functions of the module, operators and constructors
stand where they are used; so does what a body gives, and the value of a ``let``, if nothing else uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.ir.node import Span, structural_equal
from pullback.ir.op import Op
from pullback.relay import adt
from pullback.relay import expr as relay
from pullback.relay.attrs import Attrs, frozen
from pullback.relay.text.literals import float_text, quoted, scalar_text
from pullback.relay.text.meta import OMITTED, MetaTable
from pullback.relay.text.names import Names, begun_by_letter, written
from pullback.relay.text.source import NAMELESS
from pullback.relay.text.tokens import WORDS, is_plain
from pullback.relay.text.type_printer import TypePrinter
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import GlobalTypeVar, Type
from pullback.relay.visitor import children, post_order
from pullback.tir.expr import PrimExpr

VERSION = '#[version = "0.0.5"]'
_INLINE = (relay.Var, relay.Constant, relay.GlobalVar, adt.Constructor, Op)
_ANNOTATED = (
    relay.Constant, relay.Call, relay.Var, relay.Function, relay.Tuple, relay.TupleGetItem,
)  # fmt: skip
Annotate = Callable[[Any], str]


@deep
def astext(node: Any, show_meta_data: bool = True, annotate: Annotate | None = None) -> str:
    """The module, expression, type or pattern as relay text, with the version line first.

    What inference found stands in comments, ``/* ty=… */``, and so do the layers of an imported model, or the places in
    a text that has a name, that expressions come from, ``/* span=… */``. ``annotate(expr)`` writes something else
    behind expressions. Large constants are ``meta[relay.Constant][0]``; ``show_meta_data`` writes them at the end.
    ``parse`` reads the text of a module back structurally equal, ``parse_expr`` that of an expression.
    """
    printer = _Printer(annotate)
    text = printer.whole(node)
    attrs = node.attrs if isinstance(node, IRModule) else {}
    section = printer.meta.section(attrs) if show_meta_data else OMITTED + "\n" if printer.meta.table else ""
    return f"{VERSION}\n{text}" + (f"\n{section}" if section else "")


@deep
def pretty_print(node: Any) -> str:
    """The text for people: without version line and metadata."""
    return _Printer(None).whole(node)


class _Printer:
    """Writes nodes. ``lines`` are those of the block that is being written."""

    def __init__(self, annotate: Annotate | None) -> None:
        self.annotate = annotate
        self.meta = MetaTable()
        self.types = TypePrinter(self.meta)
        self.inferred = TypePrinter(MetaTable())  # of comments, which are not read back
        self.inferred.type_vars = self.types.type_vars
        self.names = Names()
        self.numbers = 0
        self.depth = 0
        self.lines: list[str] = []
        self._start()

    def _start(self, root: Any = None) -> None:
        """Begin a definition: nodes are not shared between definitions."""
        self.known: dict[int, str] = {}
        self.commented: set[int] = set()
        self.uses: Counter[int] = Counter() if root is None else _uses(root)
        self.types.forget_sizes()

    def whole(self, node: Any) -> str:
        """The text of a node."""
        if isinstance(node, IRModule):
            return self._module(node)
        if isinstance(node, adt.TypeData):
            return self._type_data(node)
        if isinstance(node, (adt.Constructor, GlobalTypeVar)):
            return node.name
        if isinstance(node, Type):
            return self.types.type(node)
        if isinstance(node, adt.Pattern):
            return self._pattern(node)
        if isinstance(node, adt.Clause):
            self._start(node.rhs)
            return self._clause(node)
        self._start(node)
        result = self.expr(node, last=True)
        return "\n".join([*self.lines, result])

    # --------------------------------------------------------------- modules

    def _module(self, module: IRModule) -> str:
        self.types.taken.update(name.name for name in module.type_definitions)
        parts = [self._type_data(definition) for definition in module.type_definitions.values()]
        for name, function in module.functions.items():
            self._start(function)
            mark = f"def {written('@', name)}"
            if isinstance(function, relay.Function):
                parts.append(self._function(mark, function))
            else:
                text = str(function).replace("*/", "* /")
                parts.append(f"/* {mark}: a {type(function).__name__}, which relay text has no form for\n{text}\n*/")
        return "\n\n".join(parts) + "\n" if parts else ""

    def _type_data(self, data: adt.TypeData) -> str:
        with self.types.binding(data.type_vars) as params:
            head = f"type {data.header.name}{params}"
            if not data.constructors:
                return f"extern {head}"
            return "\n".join([f"{head} {{", *(f"  {self._declared(c)}," for c in data.constructors), "}"])

    def _declared(self, constructor: adt.Constructor) -> str:
        inputs = ", ".join(self.types.type(t) for t in constructor.inputs)
        return f"{constructor.name}({inputs})" if constructor.inputs else constructor.name

    # --------------------------------------------------------------- layout

    @property
    def margin(self) -> str:
        return "  " * self.depth

    def _line(self, text: str) -> None:
        self.lines.append(f"{self.margin}{text}")

    def _block(self, expr: Any) -> str:
        """The expression's lines between braces."""
        return self._between("{", lambda: self.expr(expr, last=True), "}")

    def _between(self, opening: str, write: Callable[[], str], closing: str) -> str:
        outer, self.lines = self.lines, []
        self.depth += 1
        self._line(write())
        lines, self.lines = self.lines, outer
        self.depth -= 1
        return "\n".join([opening, *lines, f"{self.margin}{closing}"])

    # ---------------------------------------------------------- expressions

    def expr(self, expr: Any, last: bool = False) -> str:
        """What stands for the expression where it is used; lines before it go to ``lines``. ``last``: it may stand
        here itself, as nothing comes between."""
        if id(expr) in self.known:
            return self.known[id(expr)]
        if isinstance(expr, relay.Var):
            declared = self._declare(expr)
            self._line(f"free_var {declared};")
            return self.known[id(expr)]
        inline = isinstance(expr, _INLINE) or (last and self.uses[id(expr)] <= 1)
        if isinstance(expr, relay.Let) and not inline:
            text = self._between("(", lambda: self._let(expr), ")")
        else:
            text = self._text(expr)
        text += self._comment(expr)
        if inline:
            if isinstance(expr, _INLINE):
                self.known[id(expr)] = text
            return text
        number = f"%{self.numbers}"
        self.numbers += 1
        self.known[id(expr)] = number
        self._line(f"{number} = {text};")
        return number

    def _text(self, expr: Any) -> str:
        write = _WRITERS.get(type(expr))
        if write is None:
            if isinstance(expr, Op):
                return expr.name
            raise InternalError(f"relay text has no form for {type(expr).__name__}")
        return write(self, expr)

    def _declare(self, var: relay.Var) -> str:
        """A variable where it is bound."""
        name = written("%", self.names.unique(begun_by_letter(var.name, "v")))
        self.known[id(var)] = name
        annotation = f": {self.types.type(var.type_annotation)}" if var.type_annotation is not None else ""
        return name + annotation + self._comment(var)

    def _comment(self, expr: Any) -> str:
        if id(expr) in self.commented or not isinstance(expr, relay.Expr):
            return ""
        self.commented.add(id(expr))
        if self.annotate is not None:
            return str(self.annotate(expr) or "")
        if not isinstance(expr, _ANNOTATED):
            return ""
        parts = []
        if expr.checked_type_ is not None:
            parts.append(f"ty={self.inferred.type(expr.checked_type_)}")
        if expr.span is not None and _is_shown(expr.span):
            span, column = expr.span, expr.span.column + (expr.span.text is not None)  # of text, as messages count
            parts.append(f"span={span.file}:{span.line}:{column}".replace("*/", "* /"))
        return f" /* {' '.join(parts)} */" if parts else ""

    def _constant(self, constant: relay.Constant) -> str:
        data = constant.data
        text = scalar_text(data.numpy(), data.dtype) if data.shape == () else None
        return text or self.meta.reference(constant)

    def _tuple(self, expr: relay.Tuple) -> str:
        fields = [self.expr(f) for f in expr.fields]
        return f"({', '.join(fields)}{',' * (len(fields) == 1)})"

    def _item(self, expr: relay.TupleGetItem) -> str:
        value = self.expr(expr.tuple_value)
        inner = f"({value})" if isinstance(expr.tuple_value, relay.Constant) else value  # 1.0 would be a number
        return f"{inner}.{expr.index}"

    def _call(self, call: relay.Call) -> str:
        args = [self.expr(a) for a in call.args]
        is_constructor = isinstance(call.op, adt.Constructor)
        callee = call.op.name if is_constructor else self.expr(call.op)
        inferred = isinstance(call.op, Op) or call.checked_type_ is not None  # again, when the text is read
        types = "" if inferred else ", ".join(self.types.type(t) for t in call.type_args)
        args += self._attrs(call.attrs, call.op)
        if is_constructor and not (call.op.inputs or args or types):
            return callee
        return f"{callee}{f'<{types}>' if types else ''}({', '.join(args)})"

    def _constructor(self, constructor: adt.Constructor) -> str:
        """A constructor that is not called; one without fields would read as a call."""
        return constructor.name if constructor.inputs else self.meta.reference(constructor)

    def _let(self, let: relay.Let) -> str:
        body: Any = let
        while isinstance(body, relay.Let) and (
            body is let or (self.uses[id(body)] <= 1 and id(body) not in self.known)
        ):
            declared = self._declare(body.variable)
            value = self._let_value(body)
            self._line(f"let {declared} = {value};")
            body = body.body
        return self.expr(body, last=True)

    def _let_value(self, let: relay.Let) -> str:
        value = let.value
        if id(value) not in self.known:
            if isinstance(value, relay.Let) and self.uses[id(value)] <= 1:
                return self._between("(", lambda: self._let(value), ")")
            if isinstance(value, relay.Function) and self.uses[id(value)] > 1 and id(let.variable) in _uses(value):
                return self._between("{", lambda: self.expr(value), "}")  # its number is for where its name is known
        return self.expr(value, last=True)

    def _if(self, expr: relay.If) -> str:
        condition = self.expr(expr.cond)
        return f"if ({condition}) {self._block(expr.true_branch)} else {self._block(expr.false_branch)}"

    def _fn(self, function: relay.Function) -> str:
        return self._function("fn ", function)

    def _function(self, mark: str, function: relay.Function) -> str:
        with self.types.binding(function.type_params) as type_params:
            params = [self._declare(p) for p in function.params]
            params += [f"{_key(name)}={self._value(value)}" for name, value in function.attrs.items()]
            result = f"-> {self.types.type(function.ret_type)} " if function.ret_type is not None else ""
            return f"{mark}{type_params}({', '.join(params)}) {result}{self._block(function.body)}"

    def _ref(self, expr: relay.RefCreate) -> str:
        return f"ref({self.expr(expr.value)})"

    def _ref_read(self, expr: relay.RefRead) -> str:
        return f"ref_read({self.expr(expr.ref)})"

    def _ref_write(self, expr: relay.RefWrite) -> str:
        return f"ref_write({self.expr(expr.ref)}, {self.expr(expr.value)})"

    def _match(self, match: adt.Match) -> str:
        data = self.expr(match.data)
        self.depth += 1
        clauses = [f"{self.margin}{self._clause(c)}," for c in match.clauses]
        self.depth -= 1
        return "\n".join([f"match{'' if match.complete else '?'} ({data}) {{", *clauses, f"{self.margin}}}"])

    def _clause(self, clause: adt.Clause) -> str:
        return f"{self._pattern(clause.lhs)} => {self._block(clause.rhs)}"

    def _pattern(self, pattern: adt.Pattern) -> str:
        if isinstance(pattern, adt.PatternWildcard):
            return "_"
        if isinstance(pattern, adt.PatternVar):
            return self._declare(pattern.var)
        assert isinstance(pattern, (adt.PatternTuple, adt.PatternConstructor))
        fields = ", ".join(self._pattern(p) for p in pattern.patterns)
        if isinstance(pattern, adt.PatternTuple):
            return f"({fields})"
        return f"{pattern.constructor.name}({fields})" if pattern.patterns else pattern.constructor.name

    # ------------------------------------------------------------ attributes

    def _attrs(self, attrs: Mapping[str, Any], op: Any) -> list[str]:
        """Attributes that are not as an operator has them by default, in its order."""
        if not isinstance(op, Op):
            return [f"{_key(name)}={self._value(value)}" for name, value in attrs.items()]
        defaults, shown = op.signature.attrs, getattr(op, "shown", ())
        order = [*(n for n in defaults if n in attrs), *(n for n in attrs if n not in defaults)]
        return [
            f"{_key(name)}={self._value(attrs[name])}"
            for name in order
            if name in shown or name not in defaults or not structural_equal(attrs[name], frozen(defaults[name]))
        ]

    def _value(self, value: Any) -> str:
        if isinstance(value, str):
            return quoted(value)
        if value is None or isinstance(value, (bool, int)):
            return str(value)
        if isinstance(value, float):
            return f"{float_text(value)}f"
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(self._value(v) for v in value)}]"
        if isinstance(value, Attrs):
            return f"{{{', '.join(f'{quoted(name)}={self._value(v)}' for name, v in value.items())}}}"
        if isinstance(value, (AnySize, PrimExpr)):
            return self.types.size(value, explicit=True)
        return self.meta.reference(value)


def _uses(root: Any) -> Counter[int]:
    """For each node below ``root``, by identity, how many places use it."""
    return Counter(id(child) for node in post_order(root) for child in children(node))


def _key(name: str) -> str:
    return name if is_plain(name) and "/" not in name and "::" not in name and name not in WORDS else quoted(name)


def _is_shown(span: Span) -> bool:
    """Whether the span names a layer of an imported model, or a text that has a name: not the user's Python source, and
    no text that was only a string."""
    return not span.file.endswith((".py", ".pyi")) and not span.file.startswith("<") and span.file != NAMELESS


_WRITERS: dict[type, Callable[[_Printer, Any], str]] = {
    relay.Constant: _Printer._constant, relay.Tuple: _Printer._tuple, relay.TupleGetItem: _Printer._item,
    relay.Call: _Printer._call, relay.Let: _Printer._let, relay.If: _Printer._if, relay.Function: _Printer._fn,
    relay.RefCreate: _Printer._ref, relay.RefRead: _Printer._ref_read, relay.RefWrite: _Printer._ref_write,
    relay.GlobalVar: lambda _, var: written("@", var.name), adt.Match: _Printer._match,
    adt.Constructor: _Printer._constructor,
}  # fmt: skip
