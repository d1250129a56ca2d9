"""From expressions to the machine's code.

Each function becomes one :class:`Code`; ifs and matches are jumps in it. A node that stands at several places is
computed once in a call of its function. What is sure to be computed at a point is *available* there; a node that
another branch may have computed already is computed only where its register is unset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback import ir
from pullback.ir.errors import CallError, InternalError, UserError
from pullback.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from pullback.relay.evaluate.graph import LEAVES, Uses, children, free_variables
from pullback.relay.evaluate.machine import TAIL, UNSET, Code, Label, Step
from pullback.relay.evaluate.values import Builtin, Closure, Data, RefValue, what_it_is
from pullback.relay.expr import (
    Call,
    Constant,
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
)


class Compiler:
    """One function's code in the making. ``program`` gives constants, operators and global functions as values."""

    def __init__(self, program: Any, uses: Uses, params: Sequence[Var], name: str, outer: Compiler | None) -> None:
        self.program, self.uses, self.name, self.outer = program, uses, name, outer
        self.arity = len(params)
        self.rest: list[Any] = []
        self.steps: list[Step] = []
        self.available: dict[Any, int] = {}  # a node or variable: the register that holds it for sure
        self.log: list[Any] = []  # what became available, in order
        self.registers: dict[Any, int] = {}  # all nodes that some step computes
        self.captures: list[int] = []  # registers of the function around
        self.isolated = False  # nodes of the function around mean something else
        for k, param in enumerate(params):
            self._now(param, k)

    def finish(self, body: Any) -> Code:
        """The code of a function with this body."""
        self.tail(body)
        return Code(self.name, self.arity, self.rest, self.steps)

    # ---- registers

    def _new(self, initial: Any = UNSET) -> int:
        self.rest.append(initial)
        return self.arity + len(self.rest) - 1

    def _now(self, node: Any, register: int) -> int:
        self.available[node] = register
        self.log.append(node)
        return register

    def _register(self, node: Any) -> int:
        """The register of a node that is about to be computed."""
        if node not in self.registers:
            self.registers[node] = self._new()
        return self.registers[node]

    def _forget(self, mark: int) -> None:
        """What became available after the mark is so no longer: a branch ends."""
        for node in self.log[mark:]:
            del self.available[node]
        del self.log[mark:]

    def find(self, node: Any) -> int | None:
        """The register of what is available, here or in a function around; that is captured then."""
        found = self.available.get(node)
        if found is not None or self.outer is None or (self.isolated and not isinstance(node, Var)):
            return found
        around = self.outer.find(node)
        if around is None:
            return None
        self.captures.append(around)
        found = self.available[node] = -len(self.captures)  # for the whole function: it is not in the log
        return found

    # ---- expressions

    def need(self, expr: Any) -> int:
        """The register of the expression's value, which is computed here where it is not available."""
        chain: list[Any] = []
        while isinstance(expr, Let) and self.find(expr) is None:
            chain.append(expr)
            self.bind(expr)
            expr = expr.body
        found = self.find(expr)
        if found is None:
            self._descend(expr)
            found = self._one(expr)
        for let in chain:
            self._now(let, found)
        return found

    def _descend(self, expr: Any) -> None:
        """Compute what the node is sure to need, the innermost first: expressions nest deeper than Python calls."""
        waiting = [(expr, iter(self._parts(expr)))]
        while waiting:
            node, parts = waiting[-1]
            part = next((p for p in parts if self.find(p) is None), None)
            if part is not None:
                waiting.append((part, iter(self._parts(part))))
                continue
            waiting.pop()
            if node is not expr and self.find(node) is None:
                self._one(node)

    def _parts(self, expr: Any) -> Sequence[Any]:
        """What is computed before the node, in this order, wherever the node is: no branches, no functions."""
        if expr in self.registers or not isinstance(expr, (Call, Tuple, TupleGetItem, RefCreate, RefRead, RefWrite)):
            return ()
        parts = children(expr)
        return () if any(isinstance(p, Let) for p in parts) else parts

    def _one(self, expr: Any) -> int:
        """The register of what is not available yet, and no Let."""
        return self._leaf(expr) if isinstance(expr, LEAVES) else self._guarded(expr)

    def need_all(self, exprs: Sequence[Any]) -> list[int]:
        """The registers of several values, computed in this order."""
        return [self.need(e) for e in exprs]

    def bind(self, let: Let) -> None:
        """The value of a Let under its variable."""
        if isinstance(let.value, Function) and self.find(let.value) is None:
            register = self._now(let.variable, self._register(let.variable))  # the function may name itself
            self._make_closure(let.value, register)
            self._now(let.value, register)
        else:
            self._now(let.variable, self.need(let.value))

    def _leaf(self, expr: Any) -> int:
        if isinstance(expr, Var):
            hint = "bind it by let, make it a parameter, or pass binds={var: value} to evaluate"
            raise UserError(f"variable %{expr.name} is not bound", span=expr.span, hint=hint)
        if isinstance(expr, Constant):
            return self._now(expr, self._new(self.program.arrays.constant(expr)))
        if isinstance(expr, GlobalVar):
            register, program = self._register(expr), self.program
            self.steps.append(lambda frame: frame.__setitem__(register, program.global_function(expr)))
            return self._now(expr, register)
        if isinstance(expr, Constructor):
            return self._now(expr, self._new(constructor_function(expr)))
        return self._now(expr, self._new(self.program.operator_function(expr)))

    def _guarded(self, expr: Any) -> int:
        """Compute a node, unless another branch has done so when the program comes here."""
        if expr not in self.registers:
            return self.compute(expr)
        register, over = self.registers[expr], Label()
        self.steps.append(lambda frame: None if frame[register] is UNSET else over)
        self.compute(expr)
        over.at = len(self.steps)
        return register

    def compute(self, expr: Any) -> int:
        """Steps that compute the node into its register."""
        if isinstance(expr, Call):
            self._call(expr)
        elif isinstance(expr, Tuple):
            self._plain(expr, expr.fields, tuple)
        elif isinstance(expr, TupleGetItem):
            self._item(expr)
        elif isinstance(expr, If):
            self._if(expr)
        elif isinstance(expr, Match):
            self._match(expr)
        elif isinstance(expr, Function):
            self._make_closure(expr, self._register(expr))
        elif isinstance(expr, RefCreate):
            self._plain(expr, (expr.value,), lambda values: RefValue(values[0]))
        elif isinstance(expr, RefRead):
            self._plain(expr, (expr.ref,), lambda values: _cell(values[0], expr).value)
        elif isinstance(expr, RefWrite):
            self._plain(expr, (expr.ref, expr.value), lambda values: _write(values, expr))
        else:
            raise InternalError(f"the evaluator does not know {type(expr).__name__}")
        return self._now(expr, self._register(expr))

    def _plain(self, expr: Any, parts: Sequence[Any], function: Callable[[list[Any]], Any]) -> None:
        """A step that computes a function of the values of other expressions."""
        inputs = self.need_all(parts)
        register = self._register(expr)
        if len(inputs) == 1:
            (only,) = inputs

            def step(frame: list[Any]) -> None:
                frame[register] = function([frame[only]])
        elif len(inputs) == 2:
            one, two = inputs

            def step(frame: list[Any]) -> None:
                frame[register] = function([frame[one], frame[two]])
        else:

            def step(frame: list[Any]) -> None:
                frame[register] = function([frame[i] for i in inputs])

        self.steps.append(step)

    def _item(self, expr: TupleGetItem) -> None:
        def item(values: list[Any]) -> Any:
            (value,) = values
            if not isinstance(value, tuple):
                raise UserError(
                    f"field {expr.index} is taken of {what_it_is(value)}, which is no tuple", span=expr.span
                )
            if not 0 <= expr.index < len(value):
                raise UserError(f"a tuple of {len(value)} values has no field {expr.index}", span=expr.span)
            return value[expr.index]

        self._plain(expr, (expr.tuple_value,), item)

    def _call(self, call: Call) -> None:
        if isinstance(call.op, ir.Op):
            self._plain(call, call.args, self.program.operator(call))
        elif isinstance(call.op, Constructor):
            constructor = call.op
            _check_count(constructor.name, len(constructor.inputs), len(call.args), call.span)
            self._plain(call, call.args, lambda values: Data(constructor.tag, values, constructor))
        else:
            self.steps.append(self._invocation(call, self._register(call)))

    def _invocation(self, call: Call, register: int | None) -> Step:
        """The step that calls a function."""
        function, *inputs = self.need_all((call.op, *call.args))
        span = call.span
        return lambda frame: (frame[function], [frame[i] for i in inputs], register, span)

    # ---- branches

    def _jump(self, label: Label) -> None:
        self.steps.append(lambda frame: label)

    def _branch(self, condition: int, expr: If) -> Label:
        """A step that goes on where the condition holds, and to the label else."""
        otherwise, truth, span = Label(), self.program.arrays.truth, expr.span
        self.steps.append(lambda frame: None if truth(frame[condition], span) else otherwise)
        return otherwise

    def _into(self, expr: Any, register: int) -> None:
        """A branch: the value of ``expr`` in the register of the whole."""
        mark = len(self.log)
        found = self.need(expr)
        self.steps.append(lambda frame: frame.__setitem__(register, frame[found]))
        self._forget(mark)

    def _if(self, expr: If) -> None:
        otherwise, end = self._branch(self.need(expr.cond), expr), Label()
        register = self._register(expr)
        self._into(expr.true_branch, register)
        self._jump(end)
        otherwise.at = len(self.steps)
        self._into(expr.false_branch, register)
        end.at = len(self.steps)

    def _match(self, expr: Match) -> None:
        register, end = self._register(expr), Label()

        def branch(rhs: Any) -> None:
            self._into(rhs, register)
            self._jump(end)

        self._clauses(expr, branch)
        end.at = len(self.steps)

    def _clauses(self, expr: Match, branch: Callable[[Any], None]) -> None:
        data = self.need(expr.data)
        for clause in expr.clauses:
            mark, next_one = len(self.log), Label()
            self.steps.append(_test(data, self._pattern(clause.lhs), next_one))
            branch(clause.rhs)
            self._forget(mark)
            next_one.at = len(self.steps)
        self.steps.append(lambda frame: _no_clause(frame[data], expr))

    def _pattern(self, pattern: Pattern) -> Any:
        """A function ``(value, frame)`` that says whether the value matches, and binds variables; None: always."""
        if isinstance(pattern, PatternVar):
            register = self._register(pattern.var)
            self._now(pattern.var, register)

            def bind(value: Any, frame: list[Any]) -> bool:
                frame[register] = value
                return True

            return bind
        if isinstance(pattern, (PatternConstructor, PatternTuple)):
            inner = [(k, self._pattern(p)) for k, p in enumerate(pattern.patterns)]
            tests = [(k, test) for k, test in inner if test is not None]
            if isinstance(pattern, PatternTuple):
                return lambda value, frame: all(test(_fields(value, pattern)[k], frame) for k, test in tests)
            tag, span = pattern.constructor.tag, pattern.span

            def construction(value: Any, frame: list[Any]) -> bool:
                if not isinstance(value, Data):
                    raise UserError(f"{what_it_is(value)} is matched with a constructor", span=span)
                return value.tag == tag and all(test(value.fields[k], frame) for k, test in tests)

            return construction
        return None

    # ---- functions

    def _make_closure(self, function: Function, register: int) -> None:
        """A step that makes the closure of a function."""
        for node in self.uses.shared.get(function, ()):
            if self.find(node) is None and self._is_bound(node):
                self.need(node)
        inner = type(self)(self.program, self.uses, function.params, _name(function), self)
        inner.isolated = function in self.uses.apart
        code = inner.finish(function.body)
        captures = inner.captures
        if not captures:
            closure = Closure(code, [])
            self.steps.append(lambda frame: frame.__setitem__(register, closure))
            return
        itself = [k for k, r in enumerate(reversed(captures)) if r == register]
        order = captures[::-1]

        def step(frame: list[Any]) -> None:
            closure = Closure(code, [frame[r] for r in order])
            for k in itself:
                closure.captured[k] = closure
            frame[register] = closure

        self.steps.append(step)

    def _is_bound(self, node: Any) -> bool:
        """Whether all variables that the node reads have values by now."""
        return all(self.find(var) is not None for var in free_variables(node))

    def tail(self, expr: Any) -> None:
        """Steps that return the value of the expression."""
        while isinstance(expr, Let) and self.find(expr) is None:
            self.bind(expr)
            expr = expr.body
        found = self.find(expr)
        if found is None and isinstance(expr, If) and expr not in self.registers:
            otherwise = self._branch(self.need(expr.cond), expr)
            mark = len(self.log)
            self.tail(expr.true_branch)
            self._forget(mark)
            otherwise.at = len(self.steps)
            self.tail(expr.false_branch)
            self._forget(mark)
        elif found is None and isinstance(expr, Match) and expr not in self.registers:
            self._clauses(expr, self.tail)
        elif found is None and _is_invocation(expr) and expr not in self.registers:
            self.steps.append(self._invocation(expr, TAIL))
        else:
            (register,) = self.need_all((expr,))
            self.steps.append(lambda frame: (frame[register],))


def _name(function: Function) -> str:
    return str(function.attrs.get("global_symbol", "the function"))


def _is_invocation(expr: Any) -> bool:
    return isinstance(expr, Call) and not isinstance(expr.op, (ir.Op, Constructor))


def _test(data: int, matches: Any, next_one: Label) -> Step:
    if matches is None:
        return lambda frame: None
    return lambda frame: None if matches(frame[data], frame) else next_one


def _fields(value: Any, pattern: PatternTuple) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) != len(pattern.patterns):
        wanted = len(pattern.patterns)
        raise UserError(f"{what_it_is(value)} is matched with a tuple of {wanted} patterns", span=pattern.span)
    return value


def _no_clause(value: Any, expr: Match) -> Any:
    hint = "add a clause for it, or one with the pattern _"
    raise UserError(f"no clause of the match takes {what_it_is(value)}", span=expr.span, hint=hint)


def _cell(value: Any, expr: Any) -> RefValue:
    if not isinstance(value, RefValue):
        raise UserError(f"{what_it_is(value)} is used as a reference", span=expr.span, hint="relay.RefCreate makes one")
    return value


def _write(values: list[Any], expr: RefWrite) -> tuple[()]:
    _cell(values[0], expr).value = values[1]
    return ()


def _check_count(name: str, expected: int, given: int, span: Any) -> None:
    if expected != given:
        raise CallError(f"{name} takes {expected} arguments, got {given}", span=span)


def constructor_function(constructor: Constructor) -> Builtin:
    """A constructor as a function value."""

    def make(values: Sequence[Any]) -> Data:
        return Data(constructor.tag, values, constructor)

    return Builtin(constructor.name, make, len(constructor.inputs))
