"""The evaluator's language: scopes, sharing, depth, data types, and mistakes at run time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule
from pullback.ir.errors import CallError, UserError
from pullback.ir.node import Span, span_scope
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from pullback.relay.evaluate.graph import Uses, postorder
from pullback.relay.expr import call_op
from pullback.relay.ty import GlobalTypeVar, TensorType, TypeVar
from tests.relay.programs import COUNT, W, X, check, matrix

KINDS = ("debug", "vm")
ONE = relay.const(1)


@pytest.fixture(params=KINDS)
def executor(request):
    return relay.create_executor(request.param)


class TestDepth:
    def test_calls_in_tail_position_take_no_room(self):
        n, total, loop = relay.var("n", COUNT), relay.var("total", COUNT), relay.var("loop")
        body = relay.If(call_op("less", n, ONE), total, loop(n - ONE, total + n))
        program = relay.Let(loop, relay.Function([n, total], body), loop(relay.const(3000), relay.const(0)))
        assert relay.create_executor().evaluate(program).item() == 3000 * 3001 // 2

    def test_calls_inside_of_one_another(self):
        n, f = relay.var("n", COUNT), relay.var("f")
        body = relay.If(call_op("less", n, ONE), relay.const(0), ONE + f(n - ONE))
        program = relay.Let(f, relay.Function([n], body), f(relay.const(5000)))
        assert relay.create_executor().evaluate(program).item() == 5000

    def test_a_recursion_without_an_end_is_an_error(self, monkeypatch):
        monkeypatch.setattr("pullback.relay.evaluate.machine.MOST_CALLS", 500)
        n, f = relay.var("n", COUNT), relay.var("f")
        program = relay.Let(f, relay.Function([n], ONE + f(n)), f(ONE))
        with pytest.raises(UserError, match="did not end within 500 calls"):
            relay.create_executor().evaluate(program)

    @pytest.mark.parametrize("kind", [*KINDS, "graph"])
    def test_nested_expressions(self, kind):
        x = relay.var("x", shape=(2,))
        y = x
        for _ in range(3000):
            y = -y
        check(relay.create_executor(kind).evaluate(relay.Function([x], y))(np.ones(2, "float32")), np.ones(2))

    def test_chains_of_lets(self, executor):
        x = relay.var("x", shape=(2,))
        names = [x, *(relay.var(f"y{k}") for k in range(3000))]
        body = names[-1]
        for before, name in reversed(list(itertools.pairwise(names))):
            body = relay.Let(name, -before, body)
        check(executor.evaluate(relay.Function([x], body))(np.ones(2, "float32")), np.ones(2))

    def test_branches_inside_of_branches(self, executor):
        n = relay.var("n", COUNT)
        body = relay.const(-1)
        for k in reversed(range(300)):
            body = relay.If(call_op("equal", n, relay.const(k)), relay.const(2 * k), body)
        function = executor.evaluate(relay.Function([n], body))
        assert [function(np.int32(k)).item() for k in (0, 7, 299, 300)] == [0, 14, 598, -1]


class TestSharing:
    """A node at several places is computed once: a cell that is made there shows it."""

    def test_in_one_function(self, executor):
        cell = relay.RefCreate(relay.const(1.0))
        write = relay.RefWrite(cell, relay.const(5.0))
        program = relay.Let(relay.var("_"), write, relay.RefRead(cell))
        assert executor.evaluate(program).item() == 5.0

    def test_by_a_function_and_the_one_around_it(self, executor):
        cell, f = relay.RefCreate(relay.const(1.0)), relay.var("f")
        write = relay.RefWrite(cell, relay.const(5.0))
        body = relay.Let(relay.var("_"), write, relay.Tuple([f(), relay.RefRead(cell)]))
        program = relay.Let(f, relay.Function([], relay.RefRead(cell)), body)
        check(executor.evaluate(program), (np.float32(5), np.float32(5)))

    def test_anew_in_each_call(self, executor):
        f = relay.var("f")
        cell = relay.RefCreate(relay.const(1.0))
        write = relay.RefWrite(cell, relay.RefRead(cell) + relay.const(1.0))
        counted = relay.Let(relay.var("_"), write, relay.RefRead(cell))
        program = relay.Let(f, relay.Function([], counted), relay.Tuple([f(), f()]))
        check(executor.evaluate(program), (np.float32(2), np.float32(2)))

    def test_by_branches_and_what_follows(self, executor):
        b, log, x = relay.var("b", TensorType((), "bool")), relay.var("log"), matrix("x")
        counted = relay.Let(
            relay.var("_"), relay.RefWrite(log, relay.RefRead(log) + relay.const(1.0)), x + relay.RefRead(log)
        )
        total = relay.var("total")
        body = relay.Let(total, relay.If(b, counted * x, x) + counted, relay.Tuple([total, relay.RefRead(log)]))
        function = executor.evaluate(relay.Function([b, x], relay.Let(log, relay.RefCreate(relay.const(0.0)), body)))
        for chosen in (True, False):
            expected = ((X + 1) * X if chosen else X) + X + 1
            check(function(chosen, X), (expected, np.float32(1)))

    def test_only_in_the_branch_that_is_taken(self, executor):
        b, f, n = relay.var("b", TensorType((), "bool")), relay.var("f"), relay.var("n", COUNT)
        endless = f(n)
        either = relay.If(b, relay.If(b, n, endless), endless)
        program = relay.Let(f, relay.Function([n], f(n)), either)
        m = relay.var("m", COUNT)
        function = executor.evaluate(relay.Function([b, m], relay.Let(n, m, program)))
        assert function(True, np.int32(3)).item() == 3

    def test_parameters_that_two_functions_have(self, executor):
        """A loss that takes its model's parameters for its own and calls the model."""
        x, w = matrix("x"), matrix("w")
        model = relay.Function([x, w], x * w)
        loss = relay.Function([x, w], model(w, x + x) - model(x, w) + x * w)
        check(executor.evaluate(loss)(X, W), W * 2 * X)


def list_type() -> tuple[IRModule, Constructor, Constructor]:
    module, header, a = IRModule(), GlobalTypeVar("List"), TypeVar("a")
    cons, nil = Constructor("Cons", [a, header(a)], header), Constructor("Nil", [], header)
    module[header] = TypeData(header, [a], [cons, nil])
    return module, cons, nil


def built(constructors, values):
    cons, nil = constructors
    result = nil()
    for value in reversed(values):
        result = cons(relay.const(float(value)), result)
    return result


class TestDataTypes:
    @pytest.fixture(params=KINDS)
    def parts(self, request):
        module, cons, nil = list_type()
        total, f = relay.GlobalVar("total"), relay.var("f")
        items, head, rest = relay.var("items"), relay.var("head"), relay.var("rest")
        clauses = [
            Clause(PatternConstructor(cons, [PatternVar(head), PatternVar(rest)]), head + total(rest)),
            Clause(PatternConstructor(nil, []), relay.const(0.0)),
        ]
        module["total"] = relay.Function([items], Match(items, clauses))
        mapped = relay.GlobalVar("mapped")
        items, head, rest = relay.var("items"), relay.var("head"), relay.var("rest")
        clauses = [
            Clause(PatternConstructor(cons, [PatternVar(head), PatternVar(rest)]), cons(f(head), mapped(f, rest))),
            Clause(PatternWildcard(), nil()),
        ]
        module["mapped"] = relay.Function([f, items], Match(items, clauses))
        return module, relay.create_executor(request.param, module), (cons, nil)

    def test_recursion_over_a_list(self, parts):
        module, executor, constructors = parts
        x = relay.var("x", shape=())
        squared = module.get_global_var("mapped")(relay.Function([x], x * x), built(constructors, [1, 2, 3]))
        assert executor.evaluate(module.get_global_var("total")(squared)).item() == 14.0

    def test_a_list_for_callers(self, parts):
        _, executor, constructors = parts
        result = executor.evaluate(built(constructors, [4, 5]))
        assert (result.tag, result.constructor, len(result.fields)) == (0, constructors[0], 2)
        assert result.fields[0].item() == 4.0
        assert result.fields[1].fields[1].tag == 1
        assert repr(result.fields[1].fields[1]) == "Nil()"

    def test_a_list_of_callers(self, parts):
        module, executor, constructors = parts
        given = executor.evaluate(built(constructors, range(1500)))
        assert executor.evaluate(module.get_global_var("total"))(given).item() == sum(range(1500))

    def test_constructors_and_operators_are_functions(self, parts):
        _, executor, (cons, nil) = parts
        f = relay.var("f")
        pair = relay.Function([f], f(relay.const(2.0), nil()))
        assert executor.evaluate(pair(cons)).fields[0].item() == 2.0
        twice = relay.Function([f], f(relay.const(2.0), relay.const(3.0)))
        assert executor.evaluate(twice(relay.op.get("multiply"))).item() == 6.0

    def test_patterns_inside_of_patterns(self, parts):
        _, executor, (cons, nil) = parts
        a, b, data = relay.var("a"), relay.var("b"), relay.var("data")
        second = PatternConstructor(
            cons, [PatternWildcard(), PatternConstructor(cons, [PatternVar(a), PatternWildcard()])]
        )
        clauses = [
            Clause(PatternTuple([second, PatternVar(b)]), a * b),
            Clause(PatternTuple([PatternWildcard(), PatternVar(b)]), -b),
        ]
        function = relay.Function([data], Match(data, clauses))
        for values, expected in (([1, 7, 3], 70.0), ([1], -10.0)):
            argument = relay.Tuple([built((cons, nil), values), relay.const(10.0)])
            assert executor.evaluate(function(argument)).item() == expected

    def test_a_value_that_no_clause_takes(self, parts):
        _, executor, (cons, nil) = parts
        items = relay.var("items")
        function = relay.Function([items], Match(items, [Clause(PatternConstructor(nil, []), ONE)], False))
        with pytest.raises(UserError, match="no clause of the match takes a value of constructor Cons"):
            executor.evaluate(function(built((cons, nil), [1])))


class TestMistakes:
    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda x: x(x), CallError, r"a tensor of shape \(2, 3\) .*is called, which is no function"),
            (lambda x: relay.RefRead(x), UserError, "is used as a reference"),
            (lambda x: relay.TupleGetItem(x, 0), UserError, "field 0 is taken of a tensor .*, which is no tuple"),
            (lambda x: relay.TupleGetItem(relay.Tuple([x]), 1), UserError, "a tuple of 1 values has no field 1"),
            (lambda x: relay.If(x, x, x), UserError, "the condition of an if is a tensor .*, not one bool"),
            (lambda x: relay.Function([x], x)(x, x), CallError, "the function takes 1 arguments, got 2"),
            (lambda x: x + relay.RefCreate(x), UserError, "add takes tensors, got a reference|got a reference"),
            (lambda x: relay.reshape(x, (4,)), UserError, "reshape"),
        ],
    )
    def test_a_message_says_what_and_where(self, executor, make, error, message):
        x, y = relay.var("x"), relay.var("y")
        with span_scope(Span("model.py", 3, text="something")):
            body = make(y)
        with pytest.raises(error, match=f"(?s){message}.*model.py:3"):
            executor.evaluate(relay.Function([x], relay.Let(y, x, body)))(X)

    def test_variables_without_a_value(self, executor):
        x = matrix("x")
        with pytest.raises(UserError, match="variable %x is not bound"):
            executor.evaluate(x + x)
        with pytest.raises(UserError, match="variable %x is not bound"):
            executor.evaluate(relay.Function([], x))


def test_uses_are_linear_in_the_graph():
    x = matrix("x")
    y = x
    for _ in range(2000):
        y = y + y
    assert len(postorder(relay.Function([x], y))) == 2002
    assert len(Uses(relay.Function([x], y)).parents[y]) == 1


class TestRegions:
    """How much of a program is native code, and where it is cut."""

    @pytest.fixture
    def regions(self, monkeypatch):
        from pullback.relay.evaluate import regions

        made = []
        original = regions.Region.__init__

        def noted(self, outputs, inputs, *args, whole=False, **options):
            original(self, outputs, inputs, *args, whole=whole, **options)
            if not whole:
                made.append((len(outputs), len(inputs)))

        monkeypatch.setattr(regions.Region, "__init__", noted)
        return made

    def test_what_nothing_interrupts_is_one(self, regions):
        f, x, w, a, b = relay.var("f"), matrix("x"), matrix("w"), relay.var("a"), relay.var("b")
        body = relay.Let(a, relay.exp(x) * w, relay.Let(b, relay.tanh(a) + x, f(relay.Tuple([b, b * w]), b)))
        p, q = relay.var("p"), relay.var("q")
        program = relay.Function([f, x, w], body)
        second = relay.Function([p, q], relay.TupleGetItem(p, 1))
        executor = relay.create_executor("vm")
        grown = np.tanh(np.exp(X) * W) + X
        check(executor.evaluate(program)(executor.evaluate(second), X, W), grown * W)
        assert regions == [(2, 2)]

    def test_a_cell_comes_between(self, regions):
        f, x, cell, a = relay.var("f"), matrix("x"), relay.var("cell"), relay.var("a")
        write = relay.RefWrite(cell, relay.exp(relay.RefRead(cell)))
        after = relay.Tuple([relay.RefRead(cell) * x, a])
        body = relay.Let(a, relay.RefRead(cell) + x, relay.Let(relay.var("_"), write, after))
        program = relay.Function([f, x], relay.Let(cell, relay.RefCreate(x), body))
        executor = relay.create_executor("vm")
        u = relay.var("u")
        result = executor.evaluate(program)(executor.evaluate(relay.Function([u], u)), X)
        check(result, (np.exp(X) * X, X + X))  # a is what the cell held before the write, though it is computed later
        assert len(regions) == 2
