"""Graph functions as script."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar
from pullback.ir.op import _REQUIRED, Op
from pullback.relax.declared import DECLARED, INPUT, STATE, Declared, as_attribute, declared_of
from pullback.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relax.op_calls import is_call_tir, is_packed
from pullback.relax.struct_info import StructInfo, TensorStructInfo, same_info, symbolic_vars
from pullback.script.printer.control import control_call, inner_function, statement
from pullback.script.printer.layout import Group, Lines, indented
from pullback.script.printer.literals import attribute, constant
from pullback.script.printer.names import Names, identifier
from pullback.script.printer.scalars import ScalarPrinter
from pullback.script.printer.types import info_text, quoted, sequence
from pullback.script.printer.uses import Dead, Uses
from pullback.tir.expr import PrimExpr


class GraphPrinter:
    """Prints one graph function, or a part of one. ``functions`` are the names that ``cls`` has; ``types`` writes the
    type of every variable."""

    def __init__(self, functions: Collection[str] = (), types: bool = False, level: int = 0) -> None:
        self.functions, self.types, self.level = functions, types, level
        self.names = Names()
        self.sizes: dict[int, Any] = {}  # symbolic sizes in the body, in order of mention
        self.mentions_module = False
        self.behind: dict[Var, tuple[Var, ...]] = {}  # what functions inside read around them
        self.forced: dict[Var, str] = {}  # names of variables that are bound later
        self.regions: list[tuple[Lines, list[str]]] = []  # of the lines that are being written
        self.scalars = ScalarPrinter(self.names, self.names.bind)
        self.body_scalars = _NotingScalars(self)

    # -- functions

    def function(self, function: Function, name: str, options: str) -> Lines:
        """``def name(…)`` with its decorator."""
        for param in function.params:
            self.names.bind(param)
        for param in function.params:
            for size in symbolic_vars(param.struct_info):
                if self.names.get(size) is None:
                    self.names.bind(size)
        attrs = dict(function.attrs)
        own = {self.names.get(p): p.name for p in function.params if self.names.get(p) != p.name}
        if own:
            options += f"{', ' if options else ''}names={attribute(own, self.scalars)}"
        if attrs.get("private") is True:
            options = f"private=True{', ' if options else ''}{options}"
            del attrs["private"]
        body = Lines(self.level + 1)
        self.body(function, Uses(function.body, lambda _: True, self.behind), body)
        lines = Lines(self.level)
        lines.add(f"@R.function({options})" if options else "@R.function")
        declared = _declarations(function)
        if declared is not None:
            del attrs[DECLARED]
        params = [
            f"{self.names.get(p)}: {self.param_info(p, d)}"
            for p, d in zip(function.params, declared or (None,) * len(function.params), strict=True)
        ]
        self.header(f"def {name}(", params, function.ret_struct_info, lines)
        with indented(lines):
            self.preamble(lines, attrs)
        lines.extend(body)
        return lines

    def body(self, function: Function, uses: Uses, lines: Lines) -> None:
        """The statements of a function."""
        self.blocks(function.body, uses, lines)
        self.add(lines, lambda: f"return {self.expr(function.body.body)}")

    def header(self, head: str, params: list[str], ret: StructInfo, lines: Lines) -> None:
        """Parameters, one a line where one line is too short, and the return type."""
        tail = f") -> {self.signature_info(ret)}:"
        if len(head) + sum(len(p) + 2 for p in params) + len(tail) <= lines.room:
            lines.add(f"{head}{', '.join(params)}{tail}")
        else:
            lines.spread(Group(head, params, tail), one_per_line=True)

    def preamble(self, lines: Lines, attrs: dict[str, Any]) -> None:
        """Attributes, the module's name, and the symbolic sizes that the body mentions."""
        if attrs:
            lines.add(f"R.func_attr({attribute(attrs, self.body_scalars, self.info)})")
        if self.mentions_module:
            lines.add("cls = Module")
        for size in self.sizes.values():
            lines.add(f"{self.names.get(size)} = T.{size.dtype}()")

    def param_info(self, param: Var, declared: Declared | None) -> str:
        """The annotation of a parameter."""
        text = self.signature_info(param.struct_info)
        if declared is None or declared.kind == INPUT:
            return text
        options = "".join(f", {k}={attribute(v, self.scalars)}" for k, v in declared.options.items())
        name = "State" if declared.kind == STATE else "Param"
        return f"R.{name}{text.removeprefix('R.Tensor').removesuffix(')')}{options})"

    def signature_info(self, info: StructInfo) -> str:
        return info_text(info, self.scalars, quote=True)

    def info(self, info: StructInfo) -> str:
        return info_text(info, self.body_scalars)

    # -- blocks and bindings

    def blocks(self, body: SeqExpr, uses: Uses, lines: Lines) -> None:
        """The bindings of a body."""
        place = 0
        for block in body.blocks:
            self.block(block, lines, uses, place)
            place += len(block.bindings)

    def block(self, block: BindingBlock, lines: Lines, uses: Uses | None = None, place: int = 0) -> None:
        """A block whose first binding has the number ``place`` in its body; without ``uses`` all variables are kept."""
        uses = uses or Uses(SeqExpr((block,), Tuple(())), lambda _: False, self.behind)
        if not isinstance(block, DataflowBlock):
            self.bindings(block, lines, uses, place)
            return
        lines.add("with R.dataflow():")
        with indented(lines):
            self.bindings(block, lines, uses, place)
            outputs = [b.var for b in block.bindings if not isinstance(b.var, DataflowVar)]
            lines.add(f"R.output({', '.join(self.var(v) for v in outputs)})")

    def bindings(self, block: BindingBlock, lines: Lines, uses: Uses, place: int) -> None:
        done = 0
        while done < len(block.bindings):
            done += statement(self, block, done, lines, uses, place + done)

    def binding(self, binding: Binding, lines: Lines, may_take: Dead | None = None) -> None:
        def text() -> str:
            value, info = self.expr(binding.value), deduced(binding.value)
            if isinstance(binding, MatchCast):
                value, info = f"R.match_cast({value}, {self.info(binding.target)})", binding.target
            annotation = self.annotation(binding.var, info)
            return f"{self.name(binding.var, may_take)}{annotation} = {value}"

        self.add(lines, text)

    def name(self, var: Var, may_take: Dead | None) -> str:
        """The name of a variable that is bound now."""
        forced = self.forced.pop(var, None)
        return self.names.give(var, forced) if forced is not None else self.names.bind(var, may_take)

    def add(self, lines: Lines, text: Callable[[], str]) -> None:
        """A line, and before it the regions that it names."""
        self.regions.append((lines, []))
        lines.add(text())
        self.names.taken.difference_update(self.regions.pop()[1])

    def annotation(self, var: Var, found: StructInfo | None) -> str:
        """The type of a variable, where its value does not say it."""
        if self.types or found is None or not same_info(var.struct_info, found):
            return f": {self.info(var.struct_info)}"
        return ""

    # -- expressions

    def var(self, var: Var) -> str:
        return self.names.get(var) or identifier(var.name)

    def expr(self, expr: Any) -> str:
        """An expression on one line."""
        if isinstance(expr, Var):
            return self.var(expr)
        if isinstance(expr, Call):
            return self.call(expr)
        if isinstance(expr, Tuple):
            return sequence([self.expr(f) for f in expr.fields]) if expr.fields else "R.tuple()"
        if isinstance(expr, Constant):
            return constant(expr.data)
        if isinstance(expr, ShapeExpr):
            return f"R.shape([{', '.join(self.body_scalars.size(v) for v in expr.values)}])"
        if isinstance(expr, PrimValue):
            return f"R.prim_value({attribute(expr.value, self.body_scalars)})"
        if isinstance(expr, TupleGetItem):
            if isinstance(expr.tuple_value, Tuple):
                return f"R.TupleGetItem({self.expr(expr.tuple_value)}, {expr.index})"
            return f"{self.expr(expr.tuple_value)}[{expr.index}]"
        if isinstance(expr, GlobalVar):
            return self.global_var(expr)
        if isinstance(expr, Op):
            return f"R.{expr.short}"
        if isinstance(expr, Function):
            return self.region(expr, "region")
        return f'I.opaque("{type(expr).__name__}")'

    def global_var(self, var: GlobalVar) -> str:
        if var.name in self.functions:
            self.mentions_module = True
            return f"cls.{var.name}" if identifier(var.name) == var.name else f"cls[{quoted(var.name)}]"
        info = f", {self.info(var.struct_info)}" if var.struct_info is not None else ""
        return f"I.GlobalVar({quoted(var.name)}{info})"

    def region(self, function: Function, wanted: str) -> str:
        """The name of a function that is written out before the line that names it."""
        lines, names = self.regions[-1]
        name = self.names.unique(wanted)
        inner_function(self, function, name, lines, is_region=True)
        names.append(name)
        return name

    def call(self, call: Call) -> str:
        if isinstance(call.op, Op):
            written = control_call(self, call) if call.op.family in ("control", "recursion") else None
            if written is not None:
                return written
            if is_packed(call) and call.sinfo_args:
                return self.packed_call(call, call.op)
            return self.call_tir(call) if is_call_tir(call) and _plain_call_tir(call) else self.op_call(call, call.op)
        if call.attrs or call.sinfo_args:
            return self.raw_call(call, self.expr(call.op))
        return f"{self.expr(call.op)}({', '.join(self.expr(a) for a in call.args)})"

    def op_call(self, call: Call, op: Op) -> str:
        """``R.op(tensors, attributes that are not the default)``."""
        if not _plain_op_call(call, op):
            return self.raw_call(call, quoted(op.name))
        args = [self.expr(a) for a in call.args]
        items = [f"[{', '.join(args)}]"] if op.signature.variadic else args
        positional = op.signature.variadic or len(args) == len(op.signature.tensors)
        for key, default in op.signature.attrs.items():
            value = call.attrs[key]
            if default is _REQUIRED and positional:
                items.append(attribute(value, self.body_scalars))
            elif default is _REQUIRED or not _same_attribute(value, default):
                items.append(f"{key}={attribute(value, self.body_scalars)}")
        return f"R.{op.short}({', '.join(items)})"

    def packed_call(self, call: Call, op: Op) -> str:
        """The call of a registered function."""
        infos = [self.info(i) for i in call.sinfo_args]
        out = infos[0] if len(infos) == 1 else f"[{', '.join(infos)}]"
        items = [quoted(call.attrs["func"]), *map(self.expr, call.args), f"sinfo_args={out}"]
        return f"R.{op.short}({', '.join(items)})"

    def raw_call(self, call: Call, op: str) -> str:
        """A call that no op builds just so: every part as it is."""
        regions = {k: self.region(v, k) for k, v in call.attrs.items() if isinstance(v, Function)}
        attrs = attribute(call.attrs, self.body_scalars, self.info, regions)
        items = [op, sequence([self.expr(a) for a in call.args]), attrs]
        if call.sinfo_args:
            items.append(f"[{', '.join(map(self.info, call.sinfo_args))}]")
        return f"R.call({', '.join(items)})"

    def call_tir(self, call: Call) -> str:
        infos = [self.info(i) for i in call.sinfo_args]
        out = infos[0] if len(infos) == 1 else f"[{', '.join(infos)}]"
        items = [self.expr(call.args[0]), self.expr(call.args[1]), f"out_sinfo={out}"]
        if len(call.args) == 3:
            items.append(f"tir_vars={self.expr(call.args[2])}")
        if "origin" in call.attrs:
            items.append(f"origin={attribute(call.attrs['origin'], self.body_scalars, self.info)}")
        items += [f"{k}={attribute(v, self.body_scalars, self.info)}" for k, v in call.attrs.items() if k != "origin"]
        return f"R.call_tir{'_with_grad' if 'te_grad_name' in call.attrs else ''}({', '.join(items)})"


def _declarations(function: Function) -> tuple[Declared, ...] | None:
    """What the parameters are declared to be, where annotations say just that; else it is printed as an attribute."""
    try:
        found = declared_of(function)
    except UserError:
        return None
    if found is None or all(d.kind == INPUT for d in found) or function.attrs[DECLARED] != as_attribute(found):
        return None
    pairs = zip(found, function.params, strict=True)
    are_tensors = all(d.kind == INPUT or getattr(p.struct_info, "shape", None) is not None for d, p in pairs)
    return found if are_tensors else None


class _NotingScalars(ScalarPrinter):
    """Scalars in the body: the sizes that they mention are noted, to be declared at its top."""

    def __init__(self, printer: GraphPrinter) -> None:
        super().__init__(printer.names, printer.names.bind)
        self.printer = printer

    def name(self, symbol: Any) -> str:
        self.printer.sizes.setdefault(id(symbol), symbol)
        return super().name(symbol)


def deduced(value: Any) -> StructInfo | None:
    """The type that the parser will find for a value, or None when it will find none."""
    if not isinstance(value, Call) or value.sinfo_args:
        return getattr(value, "struct_info", None)
    try:
        return Call(value.op, value.args, value.attrs).struct_info
    except UserError:
        return None


def _plain_call_tir(call: Call) -> bool:
    origin = call.attrs.get("origin", {"": None})
    well_formed = len(call.args) in (2, 3) and isinstance(call.args[0], GlobalVar) and isinstance(call.args[1], Tuple)
    shaped = len(call.args) == 2 or isinstance(call.args[2], ShapeExpr)
    known = (
        set(call.attrs) in (set(), {"origin"}, {"te_grad_name", "te_grad_kwargs"})
        and bool(origin)
        and bool(call.sinfo_args)
    )
    return well_formed and shaped and known


def _plain_op_call(call: Call, op: Op) -> bool:
    """Whether calling the op on these arguments builds this very call."""
    count, signature = len(call.args), op.signature
    fits = signature.variadic or len(signature.tensors) - len(signature.optional) <= count <= len(signature.tensors)
    tensors = all(isinstance(a.struct_info, TensorStructInfo) for a in call.args)
    attrs = set(call.attrs) == set(signature.attrs) and all(map(_canonical, call.attrs.values()))
    return fits and tensors and attrs and not call.sinfo_args


def _canonical(value: Any) -> bool:
    """Whether an attribute is in the form that ops store."""
    if isinstance(value, tuple):
        return all(map(_canonical, value))
    return value is None or isinstance(value, PrimExpr) or type(value) in (bool, int, float, str)


def _same_attribute(value: Any, default: Any) -> bool:
    if isinstance(default, list | tuple):
        return isinstance(value, tuple) and repr(value) == repr(tuple(default))
    return type(value) is type(default) and repr(value) == repr(default)
