"""PartialEvaluate: what is known before the program runs is computed; what is left is straight code, as far as can be.

    let %r = ref(%d);
    let %f = fn (%y) { multiply(%y, !%r) };   →    let %x = multiply(%d, %d);
    %f(!%r)                                        %x

Values are constants, tuples, data, functions and cells as far as they are known (``static_values.py``). A call of a
known function is replaced by its body, an ``If`` on a known condition and a ``Match`` of known data by one of their
sides, a read of a cell by what was written to it. Operators of small constants are computed.

What remains is in A-normal form, effects in their order. Functions and cells remain only where code that is left needs
them. What may have been written to cells by code that is not known is forgotten: at the call of an unknown function all
that such code can reach, after a branch that only running decides what its sides wrote. Cells that nobody else can
reach become results of that branch.

Recursion goes on while it is sure to end (``static_values.py``); else a call remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.depth import on_large_stack
from pullback.ir.errors import InternalError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.optional import all_known
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    bound_by,
)
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from pullback.relay.op.meaning import result_type, type_of_value, value
from pullback.relay.transform.infra import FunctionPass, optimizable
from pullback.relay.transform.left_over import Copy, Renamed
from pullback.relay.transform.purity import Effect, Purity
from pullback.relay.transform.residual import Agenda, Binding, Block, Branches, build_if
from pullback.relay.transform.static_values import (
    CLOCK,
    MOST_STEPS,
    Activation,
    Cell,
    Data,
    Env,
    Fields,
    Known,
    Value,
    same,
)
from pullback.relay.transform.to_anf import is_primitive, to_anf
from pullback.relay.ty import TensorType, TupleType, Type

MOST_ELEMENTS = 1024  # of a constant that is computed here
MOST_CALLS = 30_000  # that are replaced by bodies in one function of the module
MOST_NESTED = 3  # functions that are left, of the same code, one inside the other


@dataclass(frozen=True)
class PartialEvaluate(FunctionPass):
    """The functions of a module, with all computed that is known.

    Checks: effects stay, in their order. Recursion ends where it is not known to get smaller: a call remains there.
    Fused functions stay as they are.
    """

    opt_level = 1

    def run(self, module: IRModule) -> IRModule:
        from pullback.relay.infer import infer_module

        program = _Program(module)
        result = module.copy()
        for name, function in module.items():
            if optimizable(function) and not is_primitive(function):
                result[name] = _evaluated(program, program.functions[name])
        return infer_module(result)


def _evaluated(program: _Program, expr: Any) -> Any:
    """On a large stack from the beginning: foreign functions, which compute constants, do not report its end."""
    return on_large_stack(_Evaluator(program).whole, expr)


def partial_evaluate(expr: Any, module: IRModule | None = None) -> Any:
    """One expression or function, partially evaluated. ``module`` has the global functions that it calls."""
    program = _Program(module or IRModule())
    expr = to_anf(expr)
    program.purity.of(expr)
    return _evaluated(program, expr)


class _Program:
    """The functions of a module in A-normal form, and what they do."""

    def __init__(self, module: IRModule) -> None:
        self.module = module.copy()
        self.functions: dict[str, Function] = {}
        for name, function in module.items():
            if isinstance(function, Function):
                self.functions[name] = self.module[name] = to_anf(function) if optimizable(function) else function
        self.purity = Purity(self.module)

    def evaluated(self, name: str) -> Function | None:
        """The global function whose calls may be replaced by its body."""
        function = self.functions.get(name)
        return None if function is None or not optimizable(function) or is_primitive(function) else function


class _Evaluator:
    def __init__(self, program: _Program) -> None:
        self.program, self.purity = program, program.purity
        self.agenda = Agenda()
        self.block = Block(self.agenda)
        self.store: dict[Cell, Value] = {}  # of cells whose contents are known
        self.active: dict[Function, Activation] = {}
        self.branches = 0  # that only running decides, and bodies of functions that are left
        self.leaving: list[Function] = []  # functions whose code is being made, one inside the other
        self.calls = self.steps = 0

    def whole(self, expr: Any) -> Any:
        """A function of the module, or an expression."""
        if not isinstance(expr, Function):
            result = self.evaluate(expr, Env()).atom()
            self.agenda.drain()
            return self.block.build(result)
        env = Env()
        for param in expr.params:
            env.values[param] = Value(param)
        self.active[expr] = Activation.first(0, [env.values[p] for p in expr.params], self.branches)
        result = self.evaluate(expr.body, env).atom()
        self.agenda.drain()
        return expr.replace(body=self.block.build(result))

    # ---- places

    def bind(self, name: str, make: Callable[[], Any], span: Any, effect: bool = False) -> Binding:
        return self.block.bind(name, make, span, effect)

    @contextmanager
    def _inside(self, block: Block, store: dict[Cell, Value]) -> Iterator[None]:
        """What is evaluated here belongs to the block, and finds that store; only running tells whether it is."""
        outside = self.block, self.store
        self.block, self.store = block, store
        self.branches += 1
        try:
            yield
        finally:
            self.block, self.store = outside
            self.branches -= 1

    def _forget(self) -> None:
        """Code that is not known may have written to every cell that it can reach."""
        self.agenda.drain()
        here = self.block.function  # what reaches cells of a function around is not known yet
        kept = {c: content for c, content in self.store.items() if not c.escaped and c.function is here}
        self.store = kept

    # ---- expressions

    def evaluate(self, expr: Any, env: Env, name: str = "x") -> Value:
        """The value of an expression, whose binding would have that name."""
        while isinstance(expr, Let):
            env.values[expr.variable] = self.evaluate(expr.value, env, expr.variable.name)
            expr = expr.body
        if isinstance(expr, Var):
            return env.find(expr) or Value(expr)
        for kind, case in _CASES.items():
            if isinstance(expr, kind):
                return case(self, expr, env, name)
        raise InternalError(f"partial evaluation does not know {type(expr).__name__}")

    def _constant(self, expr: Constant, env: Env, name: str) -> Value:
        return Value(expr, expr)

    def _callee(self, expr: Any, env: Env, name: str) -> Value:
        return Value(expr, expr)

    def _global(self, expr: GlobalVar, env: Env, name: str) -> Value:
        function = self.program.evaluated(expr.name)
        return Value(expr, None if function is None else Known(function, Env()))

    def _function(self, expr: Function, env: Env, name: str) -> Value:
        if is_primitive(expr):
            return Value(self.bind(name, lambda: Copy(expr, env).visit(expr), expr.span))
        known = Known(expr, env, next(CLOCK))
        return Value(self.bind(name, lambda: self._left(known), expr.span), known)

    def _left(self, known: Known) -> Any:
        """The code of a function that is left: it may be called at any time, and with anything."""
        function, env = known.function, Env(known.env)
        if self.leaving.count(function) >= MOST_NESTED or self.calls >= MOST_CALLS:
            return Copy(function, known.env).visit(function)  # functions that make one another would do so for ever
        self.calls += 1
        params = self._parameters(function, env)
        body, outside = Block(self.agenda), self.active
        args = [env.values[p] for p in function.params]
        self.active = {**outside, function: Activation.first(known.time, args, self.branches)}
        self.leaving.append(function)
        with self._inside(body, {}), self.agenda.apart():
            result = self.evaluate(function.body, env).atom()
            self.agenda.drain()
        self.leaving.pop()
        self.active = outside
        ret_type = env.type(function.ret_type)
        return lambda: function.replace(params=params, body=body.build(result), ret_type=ret_type)

    def _parameters(self, function: Function, env: Env) -> tuple[Var, ...]:
        """New parameters, which ``env`` knows."""
        params = tuple(Var(p.name, env.type(p.type_annotation), span=p.span) for p in function.params)
        env.values.update((old, Value(new)) for old, new in zip(function.params, params, strict=True))
        return params

    def _tuple(self, expr: Tuple, env: Env, name: str) -> Value:
        return self._fields([self.evaluate(f, env) for f in expr.fields], name, expr.span)

    def _fields(self, values: Sequence[Value], name: str, span: Any) -> Value:
        fields = Fields(tuple(values))
        return Value(self.bind(name, lambda: Tuple(tuple(v.atom() for v in fields.values), span=span), span), fields)

    def _item(self, expr: TupleGetItem, env: Env, name: str) -> Value:
        return self._field(self.evaluate(expr.tuple_value, env), expr.index, name, expr.span)

    def _field(self, of: Value, index: int, name: str, span: Any) -> Value:
        if isinstance(of.static, Fields):
            return of.static.values[index]
        return Value(self.bind(name, lambda: TupleGetItem(of.atom(), index, span=span), span))

    # ---- cells

    def _create(self, expr: RefCreate, env: Env, name: str) -> Value:
        content = self.evaluate(expr.value, env)
        cell = Cell(self.block.function, writes=[])

        def make() -> Expr:
            for write in cell.writes:
                write.need()
            return RefCreate(content.atom(), span=expr.span)

        cell.binding = self.bind(name, make, expr.span)
        self.store[cell] = content
        return Value(cell.binding, cell)

    def _read(self, expr: RefRead, env: Env, name: str) -> Value:
        ref = self.evaluate(expr.ref, env)
        if ref.static in self.store:
            return self.store[ref.static]
        found = Value(self.bind(name, lambda: RefRead(ref.atom(), span=expr.span), expr.span))
        if isinstance(ref.static, Cell):
            self.store[ref.static] = found
        return found

    def _write(self, expr: RefWrite, env: Env, name: str) -> Value:
        ref, content = self.evaluate(expr.ref, env), self.evaluate(expr.value, env)
        cell = ref.static

        def make() -> Expr:
            return RefWrite(ref.atom(), content.atom(), span=expr.span)

        if isinstance(cell, Cell):
            write = self.bind(name, make, expr.span)
            if cell.function is not self.block.function:  # at any time
                ref.atom()
            cell.writes.append(write)
            if cell.escaped:
                write.need()
            self.store[cell] = content
        else:
            self.bind(name, make, expr.span, effect=True)
            self._forget()
        return self._fields([], name, expr.span)

    # ---- calls

    def _call(self, expr: Call, env: Env, name: str) -> Value:
        callee = self.evaluate(expr.op, env)
        args = [self.evaluate(a, env) for a in expr.args]
        static = callee.static
        if isinstance(static, Op):
            return self._operator(expr, static, args, env, name)
        if isinstance(static, Constructor):
            data = Data(static, tuple(args))
            types = env.all_types(expr.type_args)

            def make() -> Expr:
                return Call(static, tuple(v.atom() for v in data.values), expr.attrs, types, span=expr.span)

            return Value(self.bind(name, make, expr.span), data)
        if isinstance(static, Known) and len(args) == len(static.function.params):
            found = self._body(static, args, expr, env, name)
            if found is not None:
                return found
        return self._left_call(expr, callee, args, env, name)

    def _body(self, known: Known, args: Sequence[Value], expr: Call, env: Env, name: str) -> Value | None:
        """The value of a function's body, in place of its call; None where the call is to stay."""
        function, around = known.function, self.active.get(known.function)
        begin = Activation.first if around is None else around.next
        begun = begin(known.time, args, self.branches)
        if begun is None or self.calls >= MOST_CALLS or self.steps >= MOST_STEPS:
            return None
        self.calls += 1
        self.steps += begun.steps > 0
        inner = Env(known.env)
        inner.values.update(zip(function.params, args, strict=True))
        given = env.all_types(expr.type_args)
        for i, variable in enumerate(function.type_params):
            inner.types[variable] = given[i] if len(given) == len(function.type_params) else None
        self.active[function] = begun
        try:
            return self.evaluate(function.body, inner, name)
        finally:
            if around is None:
                del self.active[function]
            else:
                self.active[function] = around

    def _left_call(self, expr: Call, callee: Value, args: Sequence[Value], env: Env, name: str) -> Value:
        types = env.all_types(expr.type_args)

        def make() -> Expr:
            op = callee.atom()
            return Call(op, tuple(a.atom() for a in args), expr.attrs, types, span=expr.span)

        known = callee.static.function if isinstance(callee.static, Known) else expr.op
        effect = self.purity.of_call(callee.code if isinstance(callee.code, GlobalVar) else known)
        found = Value(self.bind(name, make, expr.span, effect is Effect.WRITES))
        if effect is Effect.WRITES:
            self._forget()
        return found

    def _operator(self, expr: Call, op: Any, args: Sequence[Value], env: Env, name: str) -> Value:
        known = _constants(args)
        if known and not op.stateful:
            found = self._computed(op, known, expr, name)
            if found is not None:
                return found
        types = env.all_types(expr.type_args)

        def make() -> Expr:
            return Call(op, tuple(a.atom() for a in args), expr.attrs, types, span=expr.span)

        return Value(self.bind(name, make, expr.span, effect=op.stateful))

    def _computed(self, op: Any, args: Sequence[Any], expr: Call, name: str) -> Value | None:
        """The result of an operator of constants; None where it is large, or type inference is to report an error."""
        types = [type_of_value(a) for a in args]
        try:
            if op.lower is None or not _is_small(result_type(op, types, expr.attrs)):
                return None
            found = value(op, args, types, expr.attrs)
        except UserError:
            return None
        return self._of_arrays(found, name, expr.span)

    def _of_arrays(self, found: Any, name: str, span: Any) -> Value:
        if isinstance(found, (tuple, list)):
            return self._fields([self._of_arrays(f, name, span) for f in found], name, span)
        constant = const(np.asarray(found))
        return Value(constant, constant)

    # ---- branches

    def _if(self, expr: If, env: Env, name: str) -> Value:
        cond = self.evaluate(expr.cond, env)
        if isinstance(cond.static, Constant):
            taken = expr.true_branch if bool(cond.static.data.numpy()) else expr.false_branch
            return self.evaluate(taken, env, name)
        sides = [lambda side=side: self.evaluate(side, Env(env)) for side in (expr.true_branch, expr.false_branch)]
        return self._branch(sides, lambda: build_if(cond.atom(), expr.span), name, expr.span)

    def _branch(self, sides: Sequence[Callable[[], Value]], make: Callable[[], Any], name: str, span: Any) -> Value:
        """The value of what only running decides between. Each side is evaluated on its own."""
        before = self.store
        results, stores, blocks = [], [], []
        for side in sides:
            blocks.append(Block(self.agenda, self.block.function))
            with self._inside(blocks[-1], dict(before)):
                results.append(side())
                stores.append(self.store)
        branches = Branches(self.block, span, name, blocks, make)
        joined = self._join(branches, results, name)
        self.store = {}
        for cell in before:
            contents = all_known(store.get(cell) for store in stores)
            if contents is not None:
                self.store[cell] = self._join(branches, contents, name)
        return joined

    def _join(self, branches: Branches, values: Sequence[Value], name: str) -> Value:
        """The value that is one of these, by the branch that is taken."""
        first = values[0]
        if _are_one(values):
            return first
        if isinstance(first.static, Fields):
            size = len(first.static.values)
            if all(isinstance(v.static, Fields) and len(v.static.values) == size for v in values):
                parts = zip(*(v.static.values for v in values), strict=True)
                return self._fields([self._join(branches, p, name) for p in parts], name, branches.variable.span)
        return Value(branches.slot(name, lambda: [v.atom() for v in values]))

    def _match(self, expr: Match, env: Env, name: str) -> Value:
        data = self.evaluate(expr.data, env)
        undecided: list[Clause] = []
        for clause in expr.clauses:
            inner = Env(env)
            fits = self._fits(clause.lhs, data, inner)
            if fits is True and not undecided:
                return self.evaluate(clause.rhs, inner, name)
            if fits is not False:
                undecided.append(clause)
            if fits is True:
                break
        if not undecided:
            undecided = list(expr.clauses)  # an error when the program runs
        if any(bound_by(clause.lhs) for clause in undecided):
            data.atom()  # its cells can be reached by the variables of patterns, which are not known to be these
        complete = expr.complete and len(undecided) == len(expr.clauses)
        fresh = [Renamed(clause, env) for clause in undecided]
        sides = [lambda c=c: self.evaluate(c.clause.rhs, c.env) for c in fresh]
        for renamed in fresh:
            self._refine(expr.data, data, renamed)

        def make() -> Any:
            atom = data.atom()

            def build(bodies: list[Expr]) -> Expr:
                built = zip(fresh, bodies, strict=True)
                clauses = tuple(Clause(c.pattern, body, span=c.clause.span) for c, body in built)
                return Match(atom, clauses, complete, span=expr.span)

            return build

        return self._branch(sides, make, name, expr.span)

    def _fits(self, pattern: Pattern, of: Value, env: Env) -> bool | None:
        """Whether a value matches; None where only running tells. Variables of the pattern are bound in ``env``."""
        if isinstance(pattern, PatternWildcard):
            return True
        if isinstance(pattern, PatternVar):
            env.values[pattern.var] = of
            return True
        if isinstance(pattern, PatternTuple):
            fields = [self._field(of, i, "x", pattern.span) for i in range(len(pattern.patterns))]
            return self._all_fit(pattern.patterns, fields, env)
        assert isinstance(pattern, PatternConstructor)
        if not isinstance(of.static, Data):
            return None
        if of.static.constructor != pattern.constructor:
            return False
        return not pattern.patterns or self._all_fit(pattern.patterns, of.static.values, env)

    def _all_fit(self, patterns: Sequence[Pattern], values: Sequence[Value], env: Env) -> bool | None:
        found = [self._fits(p, v, env) for p, v in zip(patterns, values, strict=True)]
        return False if False in found else None if None in found else True

    def _refine(self, expr: Any, data: Value, renamed: Renamed) -> None:
        """Inside a clause it is known what constructor made the data."""
        found = renamed.value(renamed.pattern, data.code)
        if isinstance(expr, Var) and data.static is None and found is not None:
            renamed.env.values[expr] = found


_CASES: dict[type, Any] = {
    Call: _Evaluator._call,
    Constant: _Evaluator._constant,
    Tuple: _Evaluator._tuple,
    TupleGetItem: _Evaluator._item,
    Function: _Evaluator._function,
    If: _Evaluator._if,
    Match: _Evaluator._match,
    RefCreate: _Evaluator._create,
    RefRead: _Evaluator._read,
    RefWrite: _Evaluator._write,
    GlobalVar: _Evaluator._global,
    Op: _Evaluator._callee,
    Constructor: _Evaluator._callee,
}


def _are_one(values: Sequence[Value]) -> bool:
    """Whether all sides of a branch give one value, which was there before it."""
    first = values[0]
    if len(values) == 1:  # made inside, for all that is known
        return isinstance(first.code, (Constant, GlobalVar))
    return all(same(first, v) for v in values)


def _constants(values: Sequence[Value]) -> list[Any] | None:
    """The arrays of constants and of tuples of them; None where one is no constant."""
    found: list[Any] = []
    for known in values:
        if isinstance(known.static, Constant):
            found.append(known.static.data.numpy())
        elif isinstance(known.static, Fields):
            inner = _constants(known.static.values)
            if inner is None:
                return None
            found.append(tuple(inner))
        else:
            return None
    return found


def _is_small(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_small, type_.fields))
    return isinstance(type_, TensorType) and type_.is_concrete and np.prod(type_.shape, dtype=int) <= MOST_ELEMENTS
