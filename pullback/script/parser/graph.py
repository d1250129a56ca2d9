"""Graph functions: from the syntax tree of ``@R.function`` to a relax Function in A-normal form."""

from __future__ import annotations

import ast
from typing import Any

from pullback.ir.errors import ScriptError, ShapeError, suggestion
from pullback.ir.module import GlobalVar
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.declared import Annotation, new_declarations
from pullback.relax.expr import (
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    as_relax,
)
from pullback.relax.struct_info import (
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    format_info,
    same_info,
)
from pullback.script import relax as R
from pullback.script.environment import Environment
from pullback.script.parser.evaluator import Evaluator, describe
from pullback.script.parser.function import FunctionParser, is_docstring
from pullback.script.parser.scope import assigned_names
from pullback.script.sizes import sizes_scope
from pullback.script.source import Source

PLACES = (
    "R.where chooses by element, R.slice_scatter, R.scatter_elements and R.index_put give a tensor with other elements"
)


class GraphEvaluator(Evaluator):
    """Python calls, but with an error where the result of R.match_cast is used without a name."""

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if any(isinstance(a, R.MatchCast) for a in [*args, *kwargs.values()]):
            hint = "write y = R.match_cast(…) first, then use y"
            raise self.source.error(node, "the result of R.match_cast needs a name", hint)
        return super().call(node, function, args, kwargs)


class GraphFunctionParser(FunctionParser):
    """Reads one ``@R.function``: first :meth:`signature`, then :meth:`parse`."""

    kind = "@R.function"
    hints = {  # noqa: RUF012
        ast.If: "choose values with R.where(condition, a, b); a choice known at compile time belongs outside",
        ast.For: "write the steps out, or build them with a Python function that the script calls",
        ast.While: "write the steps out, or build them with a Python function that the script calls",
        ast.FunctionDef: "make it a function of the module and call it as cls.name(…)",
        ast.AugAssign: "a name stands for one value: assign the result to a new name",
        ast.With: "the blocks of a graph function are: with R.dataflow():",
        ast.AnnAssign: "give it a value: name: type = value",
        ast.Pass: "a graph function returns a value",
    }

    def __init__(
        self, source: Source, node: ast.FunctionDef, environment: Environment, options: dict[str, Any]
    ) -> None:
        super().__init__(source, node, environment, options)
        self.params: list[Var] = []
        self.annotated: dict[str, Any] = {}  # the attribute that annotations are
        self.own_names: dict[str, str] = dict(options.get("names") or {})  # of parameters, by what the text calls them
        self.declared: StructInfo | None = None
        self.builder = BlockBuilder()
        self.bound: set[Var] = set()
        self.outputs: set[str] = set()  # of the open dataflow block
        self.in_dataflow = False

    def make_evaluator(self) -> Evaluator:
        return GraphEvaluator(self.source, self.scope)

    # -- signature

    def signature(self) -> StructInfo | None:
        """Read parameters and return type; the function's type, or None when it declares no return type."""
        annotations: list[Any] = []
        with sizes_scope(self.scope.sizes):
            for arg in self.arguments():
                if arg.annotation is None:
                    hint = f'write {arg.arg}: R.Tensor((64, 784), "float32")'
                    raise self.source.error(arg, f"parameter {arg.arg!r} has no type", hint)
                annotations.append(self.annotation(arg.annotation))
                info = getattr(annotations[-1], "info", annotations[-1])
                span = self.source.span(arg)
                var = Var(self.own_names.get(arg.arg, arg.arg), info, span=span)
                self.scope.define(arg.arg, var, span)
                self.params.append(var)
            if self.node.returns is not None:
                self.declared = self.struct_info(self.node.returns)
        self.annotated = new_declarations(annotations)
        self.attrs |= self.annotated
        if self.declared is None:
            return None
        return R.Callable([p.struct_info for p in self.params], self.declared)

    def annotation(self, node: ast.expr) -> StructInfo | Annotation:
        """What a parameter is annotated with: a type, or R.Param or R.State with one."""
        value = self.eval_annotation(node)
        with self.evaluator.blame(node):
            return value if isinstance(value, Annotation) else R.as_info(value)

    def struct_info(self, node: ast.expr) -> StructInfo:
        value = self.eval_annotation(node)
        with self.evaluator.blame(node):
            return R.as_info(value)

    def check_declarations(self) -> None:
        """Raise where R.func_attr says something else than the annotations."""
        if any(self.attrs[key] != value for key, value in self.annotated.items()):
            raise ScriptError(
                f"R.func_attr and the annotations of {self.node.name} declare its parameters differently",
                span=self.span,
                hint="leave the attribute out: R.Param and R.State write it",
            )

    # -- body

    def parse(self) -> Function:
        """The function; :meth:`signature` was called before."""
        self.enter_body()
        self.builder.begin([*(p.name for p in self.params), *self.scope.assigned])
        self.bound = set(self.params)
        with sizes_scope(self.scope.sizes):
            result: Expr | None = None
            for statement in self.node.body:
                if result is not None:
                    hint = "return once, at the end; return several values as a tuple"
                    raise self.source.error(statement, "there is a statement after the return", hint)
                if isinstance(statement, ast.Return):
                    result = self.returned(statement)
                else:
                    self.statement(statement)
            if result is None:
                message = f"function {self.node.name} returns nothing"
                raise ScriptError(message, span=self.span, hint="end it with return and a value")
            with self.evaluator.blame(self.node.body[-1]):
                body = self.builder.finish(result)
                if self.declared is not None and not same_info(self.declared, body.struct_info):
                    found, declared = format_info(body.struct_info), format_info(self.declared)
                    raise ShapeError(
                        f"the function returns {found} but declares {declared}",
                        hint="change what stands after ->, or leave it out",
                    )
            self.check_declarations()
            return Function(tuple(self.params), body, self.declared, self.attrs, span=self.span)

    def returned(self, node: ast.Return) -> Expr:
        if node.value is None:
            raise self.source.error(node, "return needs a value", "return an empty tuple with: return R.tuple()")
        value = self.eval(node.value)
        with self.evaluator.blame(node.value):
            if isinstance(value, R.MatchCast):
                raise ScriptError("the result of R.match_cast needs a name", hint="bind it, then return the name")
            return self.graph_value(value)

    def statement(self, node: ast.stmt) -> None:
        if is_docstring(node):
            return
        if isinstance(node, ast.Assign):
            self.assignment(node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.annotated_assignment(node)
        elif isinstance(node, ast.With):
            self.dataflow(node)
        elif isinstance(node, ast.Expr):
            self.expression(node)
        elif isinstance(node, ast.Return):
            raise self.source.error(node, "return stands inside a dataflow block", "move it after the block")
        else:
            raise self.unsupported(node)

    def expression(self, node: ast.Expr) -> None:
        """A statement that is an expression: attributes, or a Python call for its effect."""
        call = node.value
        if self.is_call_of(call, R.func_attr):
            self.add_attrs(call)  # type: ignore[arg-type]
        elif self.is_call_of(call, R.output):
            hint = "a return stands after the block, not in it"
            raise self.source.error(node, "R.output must be the last statement of a dataflow block", hint)
        else:
            self.eval(call)
            hint = "assign it to a name, or delete the line"
            raise self.source.error(node, "the value of this expression is not used", hint)

    def dataflow(self, node: ast.With) -> None:
        """``with R.dataflow():``."""
        item = node.items[0]
        if len(node.items) != 1 or item.optional_vars or not self.is_call_of(item.context_expr, R.dataflow):
            raise self.unsupported(node)
        if self.in_dataflow:
            raise self.source.error(node, "a dataflow block stands inside a dataflow block", "end the first one before")
        body, last = node.body, node.body[-1]
        output = last.value if isinstance(last, ast.Expr) and self.is_call_of(last.value, R.output) else None
        self.outputs = self.output_names(node, output) if output is not None else set()  # type: ignore[arg-type]
        self.in_dataflow = True
        before = set(self.scope.levels[-1])
        with self.builder.dataflow():
            for statement in body[:-1] if output is not None else body:
                self.statement(statement)
        self.in_dataflow = False
        for name, entry in list(self.scope.levels[-1].items()):
            if name not in before and isinstance(entry.value, DataflowVar):
                self.scope.close(name)

    def output_names(self, block: ast.With, call: ast.Call) -> set[str]:
        bound = set(assigned_names(block.body))
        for arg in [*call.args, *call.keywords]:
            if not isinstance(arg, ast.Name):
                raise self.source.error(arg, "R.output takes names of variables")
            if arg.id not in bound:
                hint = "R.output names variables that the block assigns; others are visible anyway"
                raise self.source.error(arg, f"{arg.id!r} is not assigned in this dataflow block", hint)
        return {arg.id for arg in call.args}  # type: ignore[attr-defined]

    # -- assignments

    def assignment(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self.source.error(node, "several assignments on one line", "write one name = value a line")
        target = node.targets[0]
        if isinstance(target, ast.Tuple | ast.List):
            self.unpack(target, node.value)
            return
        if not isinstance(target, ast.Name):
            raise self.source.error(target, "only names can be assigned; values are never changed in place", PLACES)
        size = self.new_scalar(target.id, node.value)
        if size is not None:
            self.scope.define(target.id, size, self.source.span(target))
        else:
            self.bind(target, node.value, self.eval(node.value), None)

    def annotated_assignment(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.source.error(
                node.target, "only names can be assigned; values are never changed in place", PLACES
            )
        info = self.struct_info(node.annotation)
        self.bind(node.target, node.value, self.eval(node.value), info)  # type: ignore[arg-type]

    def bind(self, target: ast.Name, node: ast.expr, value: Any, info: StructInfo | None) -> None:
        """Give ``target`` its value: graph values become bindings, Python values just get the name."""
        with self.evaluator.blame(node):
            if isinstance(value, R.MatchCast):
                expr = self.builder.normalize(self.graph_value(value.value))
                var = self.variable(target, info or value.info)
                self.builder.emit_binding(MatchCast(var, expr, value.info))
            elif info is not None or is_graph_value(value):
                expr = self.builder.normalize(self.graph_value(value))
                if info is not None and not fits(expr.struct_info, info):
                    found = format_info(expr.struct_info)
                    hint = "change the annotation, or use R.match_cast when the type is known only at run time"
                    raise ShapeError(f"{target.id} is declared {format_info(info)} but is {found}", hint=hint)
                var = self.variable(target, info or expr.struct_info)
                self.builder.emit_binding(VarBinding(var, expr))
            else:
                self.scope.define(target.id, value, self.source.span(target))

    def variable(self, target: ast.Name, info: StructInfo) -> Var:
        """The new variable of a binding, visible from here on."""
        kind = DataflowVar if self.in_dataflow and target.id not in self.outputs else Var
        span = self.source.span(target)
        var = kind(target.id, info, span=span)
        self.scope.define(target.id, var, span)
        self.bound.add(var)
        return var

    def unpack(self, target: ast.Tuple | ast.List, node: ast.expr) -> None:
        """``a, b = value``: the items of a tuple."""
        value = self.eval(node)
        if isinstance(value, Expr) and not isinstance(value, Tuple):
            with self.evaluator.blame(node):
                if not isinstance(value.struct_info, TupleStructInfo):
                    hint = "R.split and R.unbind make a tuple of a tensor"
                    raise ScriptError(f"cannot unpack {format_info(value.struct_info)}: it is no tuple", hint=hint)
                whole = value if isinstance(value, Var) else self.builder.emit(value)
                self.bound.add(whole)
                items: list[Any] = [TupleGetItem(whole, i) for i in range(len(value.struct_info.fields))]
        elif isinstance(value, Tuple | tuple | list):
            items = list(value.fields if isinstance(value, Tuple) else value)
        else:
            raise self.source.error(node, f"cannot unpack {describe(value)}", "only tuples are unpacked: a, b = (x, y)")
        if len(items) != len(target.elts):
            hint = "each item has a name; _ may be the name of several"
            raise self.source.error(target, f"{len(target.elts)} names for a tuple of {len(items)}", hint)
        for name, item in zip(target.elts, items, strict=True):
            if not isinstance(name, ast.Name):
                hint = "write a, b, c = …; an inner tuple on a line of its own"
                raise self.source.error(name, "a tuple is unpacked to plain names", hint)
            self.bind(name, node, item, None)

    # -- values

    def graph_value(self, value: Any) -> Expr:
        """A graph value from what an expression gave, all of whose variables belong to this function."""
        if isinstance(value, Function):
            raise ScriptError("a function is not a value here", hint="make it a function of the module: cls.name(…)")
        expr = as_relax(value)
        for var in used_vars(expr):
            if var not in self.bound:
                hint = "pass its value as a parameter"
                raise ScriptError(f"the variable {var.name!r} belongs to another function", hint=hint)
        return expr


def is_graph_value(value: Any) -> bool:
    """Whether an assigned value is a value of the graph, not of Python."""
    if isinstance(value, tuple | list):
        return any(is_graph_value(v) for v in value)
    return isinstance(value, Expr) and not isinstance(value, GlobalVar | Function)


def fits(found: StructInfo, declared: StructInfo) -> bool:
    """Whether a value of the type ``found`` may be declared ``declared``: the same, or less precise."""
    if isinstance(declared, ObjectStructInfo) or same_info(found, declared):
        return True
    if isinstance(declared, TensorStructInfo) and isinstance(found, TensorStructInfo):
        return declared.dtype == found.dtype and declared.shape is None and declared.ndim in (-1, found.ndim)
    if isinstance(declared, TupleStructInfo) and isinstance(found, TupleStructInfo):
        same_length = len(declared.fields) == len(found.fields)
        return same_length and all(map(fits, found.fields, declared.fields))
    return False


class ModuleNames:
    """The module's own name inside its functions: ``cls = Module``, then ``cls.name`` is a GlobalVar."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._types: dict[str, StructInfo | None] = {}
        self._untyped: set[str] = set()

    def declare(self, name: str, info: StructInfo | None, needs_type: bool = False) -> None:
        """A function of the module; graph functions without a return type cannot be called before they are read."""
        self._types[name] = info
        if needs_type:
            self._untyped.add(name)
        else:
            self._untyped.discard(name)

    def __getitem__(self, name: str) -> GlobalVar:
        if not isinstance(name, str):
            raise ScriptError(f"functions of {self._name} are named by strings, not {name!r}")
        if name not in self._types:
            hint = f"its functions are {', '.join(self._types) or 'none'}"
            raise ScriptError(f"{self._name} has no function {name!r}{suggestion(name, list(self._types))}", hint=hint)
        if name in self._untyped:
            raise ScriptError(
                f"{name} is called before its definition and has no return type",
                hint=f"declare what it returns, def {name}(…) -> R.Tensor(…), or define it earlier",
            )
        return GlobalVar(name, self._types[name])

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __repr__(self) -> str:
        return f"module {self._name}"
