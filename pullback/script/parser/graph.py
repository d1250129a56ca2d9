"""Graph functions: from the syntax tree of ``@R.function`` to a relax Function in A-normal form."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ScriptError, ShapeError, UserError, suggestion
from pullback.ir.module import GlobalVar
from pullback.ir.node import Span
from pullback.relax.analysis import ATOMS, used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.declared import Annotation, new_declarations
from pullback.relax.expr import (
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    SeqExpr,
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
from pullback.script.parser.branches import if_statement
from pullback.script.parser.closures import inner_function
from pullback.script.parser.evaluator import Evaluator, describe
from pullback.script.parser.flow import CONTROL, NOTHING, Flow, Live
from pullback.script.parser.function import FunctionParser, is_docstring
from pullback.script.parser.graph_scope import GraphScope, Level
from pullback.script.parser.repeats import for_statement, while_statement
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


@dataclass
class Block:
    """A dataflow block that is being read: for each of its outputs, the last of its statements that assigns it."""

    last: dict[str, ast.stmt]
    statement: ast.stmt | None = None


class GraphFunctionParser(FunctionParser):
    """Reads one ``@R.function``: first :meth:`signature`, then :meth:`parse`.

    ``branches`` reads if statements, ``repeats`` loops, and ``closures`` functions inside the function.
    """

    kind = "@R.function"
    scope: GraphScope
    hints = {  # noqa: RUF012
        ast.With: "the blocks of a graph function are: with R.dataflow():",
        ast.AnnAssign: "give it a value: name: type = value",
        ast.Pass: "leave it out: every statement assigns something",
        ast.Break: "make it a part of the condition: while R.logical_and(go_on, condition)",
        ast.Continue: "put the rest of the body into an if",
        ast.Delete: "just do not use the name any more",
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
        self.flow = Flow(self.known, self.scope.behind)
        self.block: Block | None = None  # the open dataflow block
        self.no_return: str | None = None  # where the statement stands, if nothing can return from there
        self.unbound: set[ast.stmt] = set()  # assignments that end a branch: they only say what its results are

    def make_scope(self, environment: Environment) -> GraphScope:
        return GraphScope(environment)

    def make_evaluator(self) -> Evaluator:
        return GraphEvaluator(self.source, self.scope)

    # -- signature

    def signature(self) -> StructInfo | None:
        """Read parameters and return type; the function's type, or None when it declares no return type."""
        annotations: list[Any] = []
        with sizes_scope(self.scope.sizes):
            for arg in self.arguments(self.node):
                annotations.append(self.annotation(arg))
                var = self.parameter(arg, self.own_names.get(arg.arg), annotations[-1])
                self.scope.define(arg.arg, var, var.span)
                self.params.append(var)
            if self.node.returns is not None:
                self.declared = self.struct_info(self.node.returns)
        self.annotated = new_declarations(annotations)
        self.attrs |= self.annotated
        if self.declared is None:
            return None
        return R.Callable([p.struct_info for p in self.params], self.declared)

    def parameter(
        self, arg: ast.arg, name: str | None = None, annotation: StructInfo | Annotation | None = None
    ) -> Var:
        """The variable of a parameter, of the type that its annotation says."""
        if annotation is None:
            annotation = self.annotation(arg)
        if isinstance(annotation, Annotation) and arg not in self.node.args.args:
            hint = "write R.Tensor(…): the parameters of the outer function are those of the model"
            raise self.source.error(arg, "a function inside has no R.Param and no R.State", hint)
        info = annotation.info if isinstance(annotation, Annotation) else annotation
        return Var(arg.arg if name is None else name, info, span=self.source.span(arg))

    def annotation(self, arg: ast.arg) -> StructInfo | Annotation:
        """What a parameter is annotated with: a type, or R.Param or R.State with one."""
        if arg.annotation is None:
            hint = f'write {arg.arg}: R.Tensor((64, 784), "float32")'
            raise self.source.error(arg, f"parameter {arg.arg!r} has no type", hint)
        value = self.eval_annotation(arg.annotation)
        with self.evaluator.blame(arg.annotation):
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
            body = self.function_body(self.node, self.declared)
            self.check_declarations()
            return self.made(self.params, body, self.declared, self.span)

    def made(self, params: Sequence[Var], body: SeqExpr, declared: StructInfo | None, span: Span | None) -> Function:
        """A function that has been read; what it returns is as ``declared``, or as its body says."""
        if declared is None:
            return Function(tuple(params), body, attrs=self.attrs, span=span)
        return Function(tuple(params), body, declared, self.attrs, span=span)

    def function_body(self, node: ast.FunctionDef, declared: StructInfo | None) -> SeqExpr:
        """The body of this function or of one inside it."""
        result = self.statements(node.body, NOTHING)
        if result is None:
            message = f"function {node.name} returns nothing"
            span = self.source.span_of_name(node)
            raise ScriptError(message, span=span, hint="end it with return and a value")
        with self.evaluator.blame(node.body[-1]):
            body = self.builder.finish(result)
            if declared is not None and not same_info(declared, body.struct_info):
                raise ShapeError(
                    f"the function returns {format_info(body.struct_info)} but declares {format_info(declared)}",
                    hint="change what stands after ->, or leave it out",
                )
        return body

    def statements(self, body: Sequence[ast.stmt], out: Live) -> Expr | None:
        """Read statements, after which the names ``out`` are read; what they return, if they do."""
        result: Expr | None = None
        has_control = any(isinstance(s, (*CONTROL, ast.With)) for s in body)
        live = self.flow.after(body, out) if has_control else [out] * len(body)
        for statement, after in zip(body, live, strict=True):
            if result is not None:
                hint = "return once, at the end; return several values as a tuple"
                raise self.source.error(statement, "there is a statement after the return", hint)
            result = self.statement(statement, after)
            if result is not None and isinstance(statement, ast.If) and self.known(statement.test) is not None:
                break  # Python chose the branch that returns: the rest is never reached
        return result

    def known(self, test: ast.expr) -> bool | None:
        """Whether a condition is true that is known now: one of names around the function, without calls."""
        parts = list(ast.walk(test))
        own = self.scope.assigned | {a.arg for a in self.node.args.args} | self.scope.sizes.by_name.keys()
        if any(isinstance(p, ast.Call) or (isinstance(p, ast.Name) and p.id in own) for p in parts):
            return None
        if any(isinstance(p, ast.Name) and self.scope.own(p.id) is not None for p in parts):
            return None
        with contextlib.suppress(UserError):
            value = self.eval(test)
            return bool(value) if isinstance(value, bool | np.bool_) else None
        return None

    @contextlib.contextmanager
    def inside(self, no_return: str | None, is_function: bool = False, assigned: Iterable[str] = ()) -> Iterator[Level]:
        """Read a body inside of this one: of a branch, of a loop, or of a function."""
        outer = self.block, self.bound, self.no_return
        self.block, self.bound, self.no_return = None, set(self.bound), no_return
        level = self.scope.enter(is_function, assigned)
        try:
            with self.builder.inner():
                yield level
        finally:
            self.scope.levels.pop()
            self.block, self.bound, self.no_return = outer

    def returned(self, node: ast.Return) -> Expr:
        if self.no_return is not None:
            hint = "move it after the block" if "block" in self.no_return else "assign a name, and return it after it"
            raise self.source.error(node, f"return stands inside {self.no_return}", hint)
        if node.value is None:
            raise self.source.error(node, "return needs a value", "return an empty tuple with: return R.tuple()")
        value = self.eval(node.value)
        with self.evaluator.blame(node.value):
            if isinstance(value, R.MatchCast):
                raise ScriptError("the result of R.match_cast needs a name", hint="bind it, then return the name")
            return self.graph_value(value)

    def statement(self, node: ast.stmt, live: Live) -> Expr | None:
        """Read a statement, after which the names ``live`` are read; what it returns, if it does."""
        if is_docstring(node):
            return None
        if isinstance(node, ast.Return):
            return self.returned(node)
        if isinstance(node, ast.If):
            return if_statement(self, node, live)
        if isinstance(node, ast.Assign):
            self.assignment(node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.annotated_assignment(node)
        elif isinstance(node, ast.AugAssign):
            self.augmented_assignment(node)
        elif isinstance(node, ast.With):
            self.dataflow(node, live)
        elif isinstance(node, ast.While):
            while_statement(self, node, live)
        elif isinstance(node, ast.For):
            for_statement(self, node, live)
        elif isinstance(node, ast.FunctionDef):
            inner_function(self, node)
        elif isinstance(node, ast.Expr):
            self.expression(node)
        else:
            raise self.unsupported(node)
        return None

    def expression(self, node: ast.Expr) -> None:
        """A statement that is an expression: attributes, or a Python call for its effect."""
        call = node.value
        if self.is_call_of(call, R.func_attr):
            self.add_attrs(call)
        elif self.is_call_of(call, R.output):
            hint = "a return stands after the block, not in it"
            raise self.source.error(node, "R.output must be the last statement of a dataflow block", hint)
        elif self.is_call_of(call, R.loop_attr):
            raise self.source.error(node, "R.loop_attr must be the first statement of a loop", "move it up")
        else:
            self.eval(call)
            hint = "assign it to a name, or delete the line"
            raise self.source.error(node, "the value of this expression is not used", hint)

    def dataflow(self, node: ast.With, live: Live) -> None:
        """``with R.dataflow():``."""
        item = node.items[0]
        if len(node.items) != 1 or item.optional_vars or not self.is_call_of(item.context_expr, R.dataflow):
            raise self.unsupported(node)
        if self.block is not None:
            raise self.source.error(node, "a dataflow block stands inside a dataflow block", "end the first one before")
        body, last = node.body, node.body[-1]
        value = last.value if isinstance(last, ast.Expr) else None
        output = value if value is not None and self.is_call_of(value, R.output) else None
        after = self.flow.after(body, live)
        self.block = Block(self.output_names(node, output) if output is not None else {})
        no_return, self.no_return = self.no_return, self.no_return or "a dataflow block"
        with self.builder.dataflow():
            for statement, later in zip(body if output is None else body[:-1], after, strict=False):
                self.block.statement = statement
                self.statement(statement, later)
        self.block, self.no_return = None, no_return
        for name, entry in list(self.scope.levels[-1].items()):
            if isinstance(entry.value, DataflowVar):
                self.scope.close(name)

    def output_names(self, block: ast.With, call: ast.Call) -> dict[str, ast.stmt]:
        """The last statement that assigns each of the outputs."""
        last = {name: statement for statement in block.body for name in assigned_names([statement])}
        outputs = {}
        for arg in [*call.args, *call.keywords]:
            if not isinstance(arg, ast.Name):
                raise self.source.error(arg, "R.output takes names of variables")
            if arg.id not in last:
                hint = "R.output names variables that the block assigns; others are visible anyway"
                raise self.source.error(arg, f"{arg.id!r} is not assigned in this dataflow block", hint)
            outputs[arg.id] = last[arg.id]
        return outputs

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
            return
        value = self.eval(node.value)
        if node in self.unbound and is_graph_value(value):
            with self.evaluator.blame(node.value):
                value = self.normalized(value)
            if isinstance(value, (*ATOMS, Tuple)):
                self.scope.define(target.id, value, self.source.span(target))
                return
        self.bind(target, node.value, value, None)

    def augmented_assignment(self, node: ast.AugAssign) -> None:
        """``x += value`` is ``x = x + value``."""
        if not isinstance(node.target, ast.Name):
            message = "only names can be assigned; values are never changed in place"
            raise self.source.error(node.target, message, PLACES)
        old = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
        self.bind(node.target, value, self.eval(value), None)

    def annotated_assignment(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.source.error(
                node.target, "only names can be assigned; values are never changed in place", PLACES
            )
        if node.value is None:
            hint = "an annotation stands where the name gets its value"
            raise self.source.error(node, f"{node.target.id!r} is annotated, and has no value", hint)
        info = self.struct_info(node.annotation)
        self.bind(node.target, node.value, self.eval(node.value), info)

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
        return self.named(target.id, info, self.source.span(target))

    def named(self, name: str, info: StructInfo, span: Span | None) -> Var:
        is_output = self.block is None or self.block.last.get(name) is self.block.statement
        var = (Var if is_output else DataflowVar)(name, info, span=span)
        self.scope.define(name, var, span)
        self.bound.add(var)
        return var

    def hidden(self, value: Expr, name: str | None = None) -> Var:
        """A variable without a name in the text."""
        if name is None:
            var = self.builder.emit(value)
        else:
            value = self.builder.normalize(value)
            kind = Var if self.block is None else DataflowVar
            var = kind(name, value.struct_info, span=value.span)
            self.builder.emit_binding(VarBinding(var, value, span=value.span))
        self.bound.add(var)
        return var

    def unpack(self, target: ast.Tuple | ast.List, node: ast.expr) -> None:
        """``a, b = value`` and ``a, (b, c) = value``: the items of a tuple."""
        self.unpack_value(target, node, self.eval(node))

    def unpack_value(self, target: ast.Tuple | ast.List, node: ast.expr, value: Any) -> None:
        if isinstance(value, Expr) and not isinstance(value, Tuple):
            with self.evaluator.blame(node):
                if not isinstance(value.struct_info, TupleStructInfo):
                    hint = "R.split and R.unbind make a tuple of a tensor"
                    raise ScriptError(f"cannot unpack {format_info(value.struct_info)}: it is no tuple", hint=hint)
                whole = value if isinstance(value, Var) else self.hidden(value)
                items: list[Any] = [TupleGetItem(whole, i) for i in range(len(value.struct_info.fields))]
        elif isinstance(value, Tuple | tuple | list):
            items = list(value.fields if isinstance(value, Tuple) else value)
        else:
            raise self.source.error(node, f"cannot unpack {describe(value)}", "only tuples are unpacked: a, b = (x, y)")
        if len(items) != len(target.elts):
            hint = "each item has a name; _ may be the name of several"
            raise self.source.error(target, f"{len(target.elts)} names for a tuple of {len(items)}", hint)
        for name, item in zip(target.elts, items, strict=True):
            if isinstance(name, ast.Tuple | ast.List):
                self.unpack_value(name, node, item)
            elif isinstance(name, ast.Name):
                self.bind(name, node, item, None)
            else:
                raise self.source.error(name, "a tuple is unpacked to plain names", "write a, b, c = …")

    # -- values

    def normalized(self, value: Any) -> Expr:
        """A graph value whose nested calls are bound."""
        expr = self.builder.normalize(self.graph_value(value))
        self.bound.update(used_vars(expr))
        return expr

    def atom(self, value: Any) -> Expr:
        """A graph value as what an argument may be."""
        whole = self.normalized(Tuple((self.graph_value(value),)))
        assert isinstance(whole, Tuple)
        return whole.fields[0]

    def graph_value(self, value: Any) -> Expr:
        """A graph value from what an expression gave, all of whose variables belong to this function."""
        if isinstance(value, Function):
            hint = "define it inside of the function, with def, or make it a function of the module: cls.name(…)"
            raise ScriptError("a function is not a value here", hint=hint)
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
        if name.startswith("__") and name not in vars(self).get("_types", ()):  # such as a trainer module's __step
            raise AttributeError(name)
        return self[name]

    def __repr__(self) -> str:
        return f"module {self._name}"
