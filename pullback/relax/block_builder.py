"""BlockBuilder: writes functions in A-normal form, binding by binding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
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
    nested_calls,
    recording,
)
from pullback.relax.struct_info import StructInfo, TensorStructInfo

_te_calls: Any = None  # how functions of tensor expressions are called: the hook of set_te_calls


def set_te_calls(function: Any) -> None:
    """Install what :meth:`BlockBuilder.call_te` does (``relax/op`` does so on import)."""
    global _te_calls
    _te_calls = function


@dataclass
class _Level:
    """A body that is being written: its blocks, and the open one."""

    blocks: list[BindingBlock] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    nested: dict[Expr, Var] = field(default_factory=dict)  # what the open block binds: what is used twice is bound once
    in_dataflow: bool = False
    made: set[Expr] | None = None  # the calls that a Python function has built, whose body this is


_current: ContextVar[BlockBuilder | None] = ContextVar("pullback_builder", default=None)


def current_builder() -> BlockBuilder:
    """The builder of the function that is being built, or a new one."""
    return _current.get() or BlockBuilder()


def open_builder(what: str) -> BlockBuilder:
    """The builder of the function that is being built; a UserError says that ``what`` asks for one."""
    builder = _current.get()
    if builder is None:
        raise UserError(f"{what} is called where no function is built", hint="call it in what becomes a graph function")
    return builder


@guided
class BlockBuilder:
    """Builds functions and a module of them.

    Args:
        module: what the functions are added to, a copy of it; by default an empty module.

    Examples:
        >>> bb = relax.BlockBuilder()
        >>> a = relax.Var("a", relax.TensorStructInfo((2, 3), "float32"))
        >>> with bb.function("main", [a]):
        ...     with bb.dataflow():
        ...         b = bb.emit(a + a)            # nested calls are flattened, struct info is deduced
        ...         out = bb.emit_output(relax.op.sum(b * 2.0))
        ...     main = bb.emit_func_output(out)
        >>> module = bb.get()
        >>> [f"{b.var.name} = {b.value}" for b in module[main].bindings]
        ['lv = R.add(a, a)', 'lv_1 = R.multiply(lv, R.const(2.0, "float32"))', 'gv = R.sum(lv_1)']
    """

    def __init__(self, module: IRModule | None = None) -> None:
        self.module = module.copy() if module is not None else IRModule()
        self._names: dict[str, int] = {}
        self._values: dict[Var, Expr] = {}
        self._levels = [_Level()]  # the function's body, and of those inside that are open the innermost last
        self._function: tuple[str, list[Var], dict[str, Any]] | None = None

    @property
    def _level(self) -> _Level:
        return self._levels[-1]

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder of the function that is being built, if there is one."""
        return _current.get()

    # -- names

    def reserve(self, name: str) -> None:
        """Keep a name from being given to a new variable.

        Args:
            name: of a variable.
        """
        self._names.setdefault(name, 0)

    def unique(self, name: str) -> str:
        """``name``, or ``name_1``, … when it is taken in this function.

        Args:
            name: of a variable.

        Returns:
            A name that is free, and taken from now on.
        """
        if name not in self._names:
            self._names[name] = 0
            return name
        while True:
            self._names[name] += 1
            candidate = f"{name}_{self._names[name]}"
            if candidate not in self._names:
                self._names[candidate] = 0
                return candidate

    get_unique_name = unique  # another name of the reference's

    # -- bindings

    def normalize(self, expr: Any) -> Expr:
        """``expr`` with every nested argument bound to a variable.

        Args:
            expr: an expression, a number, an array, or a tuple of such.

        Returns:
            An expression whose operands are variables or constants.
        """
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
        waiting = nested_calls(expr)[::-1]
        while waiting:
            inside = [e for e in nested_calls(waiting[-1]) if e not in self._level.nested]
            if inside:
                waiting += reversed(inside)
                continue
            call = waiting.pop()
            if call not in self._level.nested:
                self._bind_where_made(call)

    def _bind_where_made(self, call: Expr) -> None:
        """Bind a nested call: one that was made before a Python function began to run, outside of what that makes."""
        inner: list[_Level] = []
        while self._levels[-1].made is not None and call not in self._levels[-1].made and isinstance(call, (Call, If)):
            inner.append(self._levels.pop())
        var = self._level.nested[call] if call in self._level.nested else self.emit(call)
        while True:
            self._level.nested[call] = var
            if not inner:
                return
            self._levels.append(inner.pop())

    def _atom(self, expr: Any) -> Any:
        return self.normalize(expr) if isinstance(expr, Tuple) else self._level.nested.get(expr, expr)

    def emit(self, expr: Any, name: str | None = None) -> Var:
        """Bind ``expr`` to a new variable of the current block (a DataflowVar inside ``dataflow()``).

        Args:
            expr: the value, in which calls may be nested.
            name: of the variable, with a number where it is taken; by default "lv" in a dataflow block, "gv" outside.

        Returns:
            The variable.

        Raises:
            UserError: for what cannot be a graph value.
        """
        value = self.normalize(expr)
        kind = DataflowVar if self._level.in_dataflow else Var
        return self._bind(kind, value, name or ("lv" if self._level.in_dataflow else "gv"))

    def bound(self, expr: Expr, name: str | None = None) -> Expr:
        """The variable of the open block that ``expr`` is bound to: a new one at first, then always the same.

        Args:
            expr: the value.
            name: of a new variable.

        Returns:
            The variable.
        """
        if expr not in self._level.nested:
            self._level.nested[expr] = self.emit(expr, name)
        return self._level.nested[expr]

    def emit_output(self, expr: Any, name: str | None = None) -> Var:
        """Bind to a variable that is visible after the dataflow block.

        Args:
            expr: the value, in which calls may be nested.
            name: of the variable, with a number where it is taken; by default "gv".

        Returns:
            The variable.
        """
        return self._bind(Var, self.normalize(expr), name or "gv")

    def _bind(self, kind: type[Var], value: Expr, name: str) -> Var:
        var = kind(self.unique(name), value.struct_info, span=value.span)
        self._level.bindings.append(VarBinding(var, value, span=value.span))
        self._values[var] = value
        return var

    def lookup(self, var: Var) -> Expr | None:
        """The value that :meth:`emit` bound to a variable of this function.

        Args:
            var: a variable.

        Returns:
            The value; None of a parameter, or of a variable of another function.
        """
        return self._values.get(var)

    def current_bindings(self) -> list[Binding]:
        """The bindings of the open block so far.

        Returns:
            A list of them, in order.
        """
        return list(self._level.bindings)

    def promote(self, var: Var) -> Var:
        """``var`` as a variable that may leave the open dataflow block: an alias, when it is local to the block.

        Args:
            var: a variable.

        Returns:
            A Var that is no DataflowVar.
        """
        return self.emit_output(var, var.name) if isinstance(var, DataflowVar) else var

    def as_output(self, value: Expr, name: str | None = None) -> Expr:
        """A value, in the same tuples, under variables that may leave the open dataflow block.

        Args:
            value: an expression, or nested tuples of them.
            name: of new variables.

        Returns:
            A variable, or nested tuples of variables.
        """
        if isinstance(value, Tuple):
            return Tuple(tuple(self.as_output(f, name) for f in value.fields))
        return self.promote(value) if isinstance(value, Var) else self.emit_output(value, name)

    def emit_binding(self, binding: Binding) -> Var:
        """Append a binding as it is.

        Args:
            binding: whose value is in A-normal form.

        Returns:
            Its variable.
        """
        self.reserve(binding.var.name)
        self._level.bindings.append(binding)
        return binding.var

    def match_cast(self, expr: Any, info: StructInfo, name: str | None = None) -> Var:
        """Bind ``expr`` to a variable of the given type, checked when it runs.

        Args:
            expr: the value.
            info: the type; symbolic sizes that are new in it take the value's.
            name: of the variable, with a number where it is taken; by default "lv".

        Returns:
            The variable.
        """
        value = self.normalize(expr)
        kind = DataflowVar if self._level.in_dataflow else Var
        var = kind(self.unique(name or "lv"), info, span=value.span)
        self._level.bindings.append(MatchCast(var, value, info, span=value.span))
        return var

    def call_te(
        self, func: Callable[..., Any], *args: Any, primfunc_name_hint: str | None = None, **kwargs: Any
    ) -> Any:
        """A call of the kernel that a function of tensor expressions describes, which becomes a private function of
        the module.

        The function gets a placeholder for each tensor in the arguments, in lists, tuples and dicts too; a shape is a
        list of sizes for it.

        Args:
            func: returns a tensor expression, or several.
            args: its arguments.
            primfunc_name_hint: the kernel's name, by default the function's.
            kwargs: its arguments by keyword.

        Returns:
            The call, of the type of what ``func`` returned; several are a tuple.

        Raises:
            ArgumentError: where an argument has no known shape, or something else is returned.

        Examples:
            >>> from pullback import te
            >>> bb = relax.BlockBuilder()
            >>> a = relax.Var("a", R.Tensor((3,), "float32"))
            >>> with bb.function("main", [a]):
            ...     twice = bb.call_te(lambda t: te.compute((3,), lambda i: t[i] * 2.0), a, primfunc_name_hint="twice")
            ...     main = bb.emit_func_output(bb.emit(twice))
            >>> list(bb.get())
            ['twice', 'main']
        """
        return _te_calls(self.module, func, args, kwargs, primfunc_name_hint)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        primfunc_name_hint: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """:meth:`call_te` of a function that has a registered gradient.

        Args:
            func: returns a tensor expression, or several.
            args: its arguments.
            te_grad_name: the name under which ``relax.training.utils.register_te_gradient`` has the gradient.
            te_grad_kwargs: what the gradient also gets, by keyword.
            primfunc_name_hint: the kernel's name, by default the function's.
            kwargs: its arguments by keyword.

        Returns:
            The call.
        """
        return _te_calls(self.module, func, args, kwargs, primfunc_name_hint, te_grad_name, te_grad_kwargs)

    def emit_te(
        self, func: Callable[..., Any], *args: Any, primfunc_name_hint: str | None = None, **kwargs: Any
    ) -> Var:
        """:meth:`call_te`, bound to a new variable.

        Args:
            func: returns a tensor expression, or several.
            args: its arguments.
            primfunc_name_hint: the kernel's name, by default the function's.
            kwargs: its arguments by keyword.

        Returns:
            The variable.
        """
        return self.emit(self.call_te(func, *args, primfunc_name_hint=primfunc_name_hint, **kwargs))

    def emit_te_with_grad(self, func: Callable[..., Any], *args: Any, te_grad_name: str, **kwargs: Any) -> Var:
        """:meth:`call_te_with_grad`, bound to a new variable.

        Args:
            func: returns a tensor expression, or several.
            args: its arguments.
            te_grad_name: the name under which the gradient is registered.
            kwargs: its arguments by keyword, and the others of :meth:`call_te_with_grad`.

        Returns:
            The variable.
        """
        return self.emit(self.call_te_with_grad(func, *args, te_grad_name=te_grad_name, **kwargs))

    def add_func(self, func: Any, func_name: str) -> GlobalVar:
        """Add a function of either IR to the module, under a fresh name made of ``func_name``.

        Args:
            func: a graph function or a kernel.
            func_name: its name, with a number where it is taken.

        Returns:
            The function's GlobalVar, by which others call it.
        """
        return self.module.add_func(func, func_name)

    def update_func(self, gv: GlobalVar, updated_func: Any) -> None:
        """Replace a function of the module.

        Args:
            gv: what :meth:`add_func` returned.
            updated_func: the function in its place.
        """
        self.module.update_func(gv, updated_func)

    # -- blocks and functions

    def _close_block(self) -> None:
        self._level.nested = {}
        if self._level.bindings:
            kind = DataflowBlock if self._level.in_dataflow else BindingBlock
            self._level.blocks.append(kind(tuple(self._level.bindings)))
            self._level.bindings = []

    @contextlib.contextmanager
    def dataflow(self) -> Iterator[None]:
        """Bindings made inside form one dataflow block.

        Returns:
            A context manager.

        Raises:
            UserError: inside another dataflow block.
        """
        if self._level.in_dataflow:
            raise UserError("a dataflow block cannot be opened inside a dataflow block")
        self._close_block()
        self._level.in_dataflow = True
        try:
            yield
        finally:
            self._close_block()
            self._level.in_dataflow = False

    @contextlib.contextmanager
    def inner(self, made: set[Expr] | None = None) -> Iterator[None]:
        """Blocks made inside are those of a branch, or of a function inside the function: :meth:`finish` gives them.
        Names stay unique in the whole function.

        Args:
            made: a set that all calls go into that are built inside; those that were built before are bound outside.

        Returns:
            A context manager.
        """
        self._levels.append(_Level(nested=dict(self._level.nested), made=made))
        try:
            yield
        finally:
            self._levels.pop()

    @contextlib.contextmanager
    def function(
        self,
        name: str,
        params: Sequence[Var] | None = None,
        attrs: dict[str, Any] | None = None,
        *,
        private: bool = False,
        pure: bool = True,
    ) -> Iterator[None]:
        """Bindings made inside form the function ``name``, which :meth:`emit_func_output` ends.

        Args:
            name: in the module.
            params: the parameters, unless :meth:`emit_func_output` gets them.
            attrs: the function's attributes, by name.
            private: whether it is not called from outside the module.
            pure: False is how the reference wants it said that calls have effects: here they are seen in the body.

        Returns:
            A context manager.

        Raises:
            UserError: inside another function, and at the end of the block where the function has no output.
        """
        if self._function is not None:
            raise UserError(f"function {name} cannot be built inside function {self._function[0]}")
        self.begin([p.name for p in params or ()])
        self._function = (name, list(params or ()), {**(attrs or {}), **({"private": True} if private else {})})
        with self.opened():
            yield
        if self._function is not None:
            self._function = None
            raise UserError(f"function {name} has no output", hint="call emit_func_output before the with block ends")

    def begin(self, names: Sequence[str] = ()) -> None:
        """Start afresh with the names taken.

        Args:
            names: which new variables do not get.
        """
        self._names = dict.fromkeys(names, 0)
        self._values, self._levels = {}, [_Level()]

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Python functions that become graph functions inside, as those of ``R.scan``, are built by this builder.

        Returns:
            A context manager.
        """
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def traced(self, function: Callable[..., Any], params: Sequence[Var]) -> Function:
        """The function that a Python function computes of these variables; it may read all that is built outside.

        Args:
            function: takes a graph value for each parameter, and returns one, or tuples of them.
            params: the parameters.

        Returns:
            The graph function.
        """
        made: set[Expr] = set()
        for param in params:
            self.reserve(param.name)
        with self.inner(made), recording(made):
            body = self.finish(as_relax(function(*params)))
        return Function(tuple(params), body)

    def emit_func_output(self, output: Any, params: Sequence[Var] | None = None) -> GlobalVar:
        """End the function: it returns ``output``.

        Args:
            output: a graph value, or nested tuples of them.
            params: the parameters, unless :meth:`function` got them.

        Returns:
            The function's GlobalVar.

        Raises:
            UserError: outside a function.
        """
        if self._function is None:
            raise UserError("emit_func_output is used outside a function")
        name, declared, attrs = self._function
        body = self.finish(output)
        self._function = None
        self.module[name] = Function(tuple(params or declared), body, attrs=attrs)
        return self.module.get_global_var(name)

    def finish(self, output: Any) -> SeqExpr:
        """The blocks so far with ``output`` (nested calls are bound first) as a body.

        Args:
            output: a graph value, or nested tuples of them.

        Returns:
            The body of a function or a branch.
        """
        result = self.normalize(output)
        if isinstance(result, (Call, TupleGetItem, If)):
            result = self.emit(result)
        self._close_block()
        body = SeqExpr(tuple(self._level.blocks), result)
        self._level.blocks = []
        return body

    def get(self) -> IRModule:
        """The module of all functions built.

        Returns:
            The module itself, to which the builder goes on adding.
        """
        return self.module

    finalize = get  # another name of the reference's


def var(name: str, shape: Sequence[Any], dtype: str = "float32") -> Var:
    """A tensor variable."""
    return Var(name, TensorStructInfo(shape, dtype))
