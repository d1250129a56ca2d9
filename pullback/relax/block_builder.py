"""BlockBuilder: writes functions in A-normal form, binding by binding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.words import guided
from pullback.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    as_relax,
)
from pullback.relax.struct_info import StructInfo, TensorStructInfo


@guided
class BlockBuilder:
    """Builds functions and a module of them.

    >>> bb = BlockBuilder()
    >>> x = Var("x", TensorStructInfo((2, 3), "float32"))
    >>> with bb.function("main", [x]):
    ...     with bb.dataflow():
    ...         y = bb.emit(x + x)            # nested calls are flattened, struct info is deduced
    ...         out = bb.emit_output(y * 2.0)
    ...     bb.emit_func_output(out)
    >>> module = bb.get()
    """

    def __init__(self, module: IRModule | None = None) -> None:
        self.module = module.copy() if module is not None else IRModule()
        self._names: dict[str, int] = {}
        self._blocks: list[BindingBlock] = []
        self._bindings: list[Binding] = []
        self._values: dict[Var, Expr] = {}
        self._nested: dict[Expr, Var] = {}  # arguments bound in the open block: an expression used twice is bound once
        self._in_dataflow = False
        self._function: tuple[str, list[Var], dict[str, Any]] | None = None

    # -- names

    def reserve(self, name: str) -> None:
        """Keep a name from being given to a new variable."""
        self._names.setdefault(name, 0)

    def unique(self, name: str) -> str:
        """``name``, or ``name_1``, … when it is taken in this function."""
        if name not in self._names:
            self._names[name] = 0
            return name
        while True:
            self._names[name] += 1
            candidate = f"{name}_{self._names[name]}"
            if candidate not in self._names:
                self._names[candidate] = 0
                return candidate

    # -- bindings

    def normalize(self, expr: Any) -> Expr:
        """``expr`` with every nested argument bound to a variable."""
        expr = as_relax(expr)
        self._bind_nested(expr)
        if isinstance(expr, Call):
            args = tuple([self._atom(a) for a in expr.args])
            if all(map(is_, args, expr.args)):
                return expr
            return Call(expr.op, args, expr.attrs, expr.sinfo_args, expr.info, span=expr.span)
        if isinstance(expr, Tuple):
            fields = tuple(self._atom(f) for f in expr.fields)
            return expr if all(map(is_, fields, expr.fields)) else Tuple(fields, span=expr.span)
        if isinstance(expr, TupleGetItem):
            value = self._atom(expr.tuple_value)
            return expr if value is expr.tuple_value else TupleGetItem(value, expr.index, span=expr.span)
        if isinstance(expr, If):
            condition = self._atom(expr.condition)
            same = condition is expr.condition
            return expr if same else If(condition, expr.then, expr.otherwise, span=expr.span)
        return expr

    def _bind_nested(self, expr: Expr) -> None:
        """Bind all calls inside ``expr``, the innermost first."""
        waiting = _nested_calls(expr)[::-1]
        while waiting:
            inside = [e for e in _nested_calls(waiting[-1]) if e not in self._nested]
            if inside:
                waiting += reversed(inside)
                continue
            call = waiting.pop()
            if call not in self._nested:
                self._nested[call] = self.emit(call)

    def _atom(self, expr: Any) -> Any:
        return self.normalize(expr) if isinstance(expr, Tuple) else self._nested.get(expr, expr)

    def emit(self, expr: Any, name: str | None = None) -> Var:
        """Bind ``expr`` to a new variable of the current block (a DataflowVar inside ``dataflow()``)."""
        value = self.normalize(expr)
        kind = DataflowVar if self._in_dataflow else Var
        return self._bind(kind, value, name or ("lv" if self._in_dataflow else "gv"))

    def bound(self, expr: Expr, name: str | None = None) -> Expr:
        """The variable of the open block that ``expr`` is bound to: a new one at first, then always the same."""
        if expr not in self._nested:
            self._nested[expr] = self.emit(expr, name)
        return self._nested[expr]

    def emit_output(self, expr: Any, name: str | None = None) -> Var:
        """Bind to a variable that is visible after the dataflow block."""
        return self._bind(Var, self.normalize(expr), name or "gv")

    def _bind(self, kind: type[Var], value: Expr, name: str) -> Var:
        var = kind(self.unique(name), value.struct_info, span=value.span)
        self._bindings.append(VarBinding(var, value, span=value.span))
        self._values[var] = value
        return var

    def lookup(self, var: Var) -> Expr | None:
        """The value that :meth:`emit` bound to a variable of this function, or None."""
        return self._values.get(var)

    def current_bindings(self) -> list[Binding]:
        """The bindings of the open block so far."""
        return list(self._bindings)

    def promote(self, var: Var) -> Var:
        """``var`` as a variable that may leave the open dataflow block: an alias, when it is local to the block."""
        return self.emit_output(var, var.name) if isinstance(var, DataflowVar) else var

    def emit_binding(self, binding: Binding) -> Var:
        """Append a binding as it is."""
        self.reserve(binding.var.name)
        self._bindings.append(binding)
        return binding.var

    def match_cast(self, expr: Any, info: StructInfo, name: str | None = None) -> Var:
        """Bind ``expr`` to a variable of the given type, checked when it runs."""
        value = self.normalize(expr)
        kind = DataflowVar if self._in_dataflow else Var
        var = kind(self.unique(name or "lv"), info, span=value.span)
        self._bindings.append(MatchCast(var, value, info, span=value.span))
        return var

    # -- blocks and functions

    def _close_block(self) -> None:
        self._nested = {}
        if self._bindings:
            kind = DataflowBlock if self._in_dataflow else BindingBlock
            self._blocks.append(kind(tuple(self._bindings)))
            self._bindings = []

    @contextlib.contextmanager
    def dataflow(self) -> Iterator[None]:
        """Bindings made inside form one dataflow block."""
        if self._in_dataflow:
            raise UserError("a dataflow block cannot be opened inside a dataflow block")
        self._close_block()
        self._in_dataflow = True
        try:
            yield
        finally:
            self._close_block()
            self._in_dataflow = False

    @contextlib.contextmanager
    def inner(self) -> Iterator[None]:
        """Blocks made inside are those of a branch, or of a function inside the function: :meth:`finish` gives them.
        Names stay unique in the whole function."""
        outer = self._blocks, self._bindings, self._nested, self._in_dataflow
        self._blocks, self._bindings, self._nested, self._in_dataflow = [], [], dict(self._nested), False
        try:
            yield
        finally:
            self._blocks, self._bindings, self._nested, self._in_dataflow = outer

    @contextlib.contextmanager
    def function(
        self, name: str, params: Sequence[Var] | None = None, attrs: dict[str, Any] | None = None
    ) -> Iterator[None]:
        """Bindings made inside form the function ``name``, which :meth:`emit_func_output` ends."""
        if self._function is not None:
            raise UserError(f"function {name} cannot be built inside function {self._function[0]}")
        self.begin([p.name for p in params or ()])
        self._function = (name, list(params or ()), dict(attrs or {}))
        yield
        if self._function is not None:
            self._function = None
            raise UserError(f"function {name} has no output", hint="call emit_func_output before the with block ends")

    def begin(self, names: Sequence[str] = ()) -> None:
        """Start afresh with the names taken."""
        self._names = dict.fromkeys(names, 0)
        self._blocks, self._bindings, self._values, self._nested = [], [], {}, {}

    def emit_func_output(self, output: Any, params: Sequence[Var] | None = None) -> GlobalVar:
        """End the function: it returns ``output``."""
        if self._function is None:
            raise UserError("emit_func_output is used outside a function")
        name, declared, attrs = self._function
        body = self.finish(output)
        self._function = None
        self.module[name] = Function(tuple(params or declared), body, attrs=attrs)
        return self.module.get_global_var(name)

    def finish(self, output: Any) -> SeqExpr:
        """The blocks so far with ``output`` (nested calls are bound first) as a body."""
        result = self.normalize(output)
        if isinstance(result, (Call, TupleGetItem, If)):
            result = self.emit(result)
        self._close_block()
        body = SeqExpr(tuple(self._blocks), result)
        self._blocks = []
        return body

    def get(self) -> IRModule:
        """The module of all functions built."""
        return self.module


def _nested_calls(expr: Any) -> list[Expr]:
    """The operands of an expression that are no atoms, those in tuples too."""
    if isinstance(expr, Tuple):
        parts: tuple[Any, ...] = expr.fields
    elif isinstance(expr, Call):
        parts = expr.args
    elif isinstance(expr, If):
        parts = (expr.condition,)
    else:
        parts = (expr.tuple_value,) if isinstance(expr, TupleGetItem) else ()
    found: list[Expr] = []
    for part in parts:
        if isinstance(part, (Call, TupleGetItem, If, Function)):
            found.append(part)
        elif isinstance(part, Tuple):
            found += _nested_calls(part)
    return found


def var(name: str, shape: Sequence[Any], dtype: str = "float32") -> Var:
    """A tensor variable."""
    return Var(name, TensorStructInfo(shape, dtype))
