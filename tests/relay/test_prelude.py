"""The standard library: what its functions compute, against lists of Python."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest

import pullback
from pullback import ir, relay
from pullback.relay import ty
from pullback.relay.infer import infer_module
from pullback.relay.prelude import Prelude, standard
from pullback.relay.testing.nat import add_nat_definitions, count, make_nat_expr, make_nat_value
from pullback.relay.text import parse_expr

VALUES = ([], [3], [1, 2], [5, -1, 4, 4, 0])


@pytest.fixture(scope="module")
def prelude() -> Prelude:
    module = ir.IRModule()
    found = Prelude(module)
    add_nat_definitions(found)
    module.import_from_std("gradient.rly")
    return found


def listed(values: list) -> str:
    """Text of a list."""
    return reduce(lambda rest, v: f"Cons({v}, {rest})", reversed(values), "Nil")


def run(prelude: Prelude, text: str) -> object:
    """The value of an expression, in Python's terms."""
    expr = parse_expr(text, init_module=prelude.mod)
    return plain(relay.create_executor("debug", prelude.mod).evaluate(expr))


def plain(value: object) -> object:
    """Lists for lists, tuples for tuples, numbers for scalars, (name, fields…) for other data."""
    name = getattr(getattr(value, "constructor", None), "name", None)
    if name == "Nil":
        return []
    if name == "Cons":
        found = []
        while value.constructor.name == "Cons":
            head, value = value.fields
            found.append(plain(head))
        return found
    if name is not None:
        return (name, *map(plain, value.fields))
    if hasattr(value, "numpy"):
        return value.numpy().item()
    return tuple(map(plain, value))


def test_every_function_has_a_type(prelude):
    module = infer_module(prelude.mod)
    for name, function in module.items():
        assert isinstance(function.checked_type, ty.FuncType), name


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_lists(prelude, values):
    xs = listed(values)
    assert run(prelude, xs) == values
    assert run(prelude, f"@map(fn (%x: int32) {{ %x * 2 }}, {xs})") == [2 * v for v in values]
    assert run(prelude, f"@length({xs})") == len(values)
    assert run(prelude, f"@sum({xs})") == sum(values)
    assert run(prelude, f"@rev({xs})") == values[::-1]
    assert run(prelude, f"@concat({xs}, {listed([7, 8])})") == [*values, 7, 8]
    assert run(prelude, f"@filter(fn (%x: int32) {{ %x > 2 }}, {xs})") == [v for v in values if v > 2]
    assert run(prelude, f"@zip({xs}, {listed([1, 2])})") == list(zip(values, [1, 2], strict=False))
    minus = "fn (%a: int32, %b: int32) { %a - %b }"
    assert run(prelude, f"@foldl({minus}, 10, {xs})") == reduce(lambda a, b: a - b, values, 10)
    assert run(prelude, f"@foldr({minus}, 10, {xs})") == reduce(lambda acc, v: v - acc, values[::-1], 10)


@pytest.mark.parametrize("values", [v for v in VALUES if v], ids=str)
def test_lists_that_are_not_empty(prelude, values):
    xs = listed(values)
    assert run(prelude, f"@hd({xs})") == values[0]
    assert run(prelude, f"@tl({xs})") == values[1:]
    minus = "fn (%a: int32, %b: int32) { %a - %b }"
    assert run(prelude, f"@foldr1({minus}, {xs})") == reduce(lambda acc, v: v - acc, values[::-1])
    for i in range(len(values)):
        changed = [*values[:i], 9, *values[i + 1 :]]
        nat = reduce(lambda n, _: f"S({n})", range(i), "Z")
        assert run(prelude, f"@nth({xs}, {i})") == values[i]
        assert run(prelude, f"@nat_nth({xs}, {nat})") == values[i]
        assert run(prelude, f"@update({xs}, {i}, 9)") == changed
        assert run(prelude, f"@nat_update({xs}, {nat}, 9)") == changed


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_maps_with_a_state(prelude, values):
    step = "fn (%acc: int32, %x: int32) { (%acc + %x, %acc * %x) }"

    def accumulated(order: list[int]) -> tuple[int, list[int]]:
        state, found = 1, []
        for v in order:
            state, result = state + v, state * v
            found.insert(0, result)
        return state, found

    assert run(prelude, f"@map_accumr({step}, 1, {listed(values)})") == accumulated(values[::-1])
    assert run(prelude, f"@map_accuml({step}, 1, {listed(values)})") == accumulated(values)


def test_unfolding(prelude):
    down = "fn (%n: int32) { if (%n < 1) { None } else { Some((%n - 1, %n * 10)) } }"
    assert run(prelude, f"@unfoldr({down}, 4)") == [40, 30, 20, 10]
    assert run(prelude, f"@unfoldl({down}, 4)") == [10, 20, 30, 40]


def test_trees(prelude):
    tree = "Rose(1, Cons(Rose(2, Nil), Cons(Rose(3, Cons(Rose(4, Nil), Nil)), Nil)))"
    assert run(prelude, f"@size({tree})") == 4
    doubled = ("Rose", 2, [("Rose", 4, []), ("Rose", 6, [("Rose", 8, [])])])
    assert run(prelude, f"@tmap(fn (%x: int32) {{ %x * 2 }}, {tree})") == doubled


def test_functions_of_functions(prelude):
    assert run(prelude, "@id(3)") == 3
    twice, minus = "fn (%x: int32) { %x * 2 }", "fn (%x: int32, %y: int32) { %x - %y }"
    assert run(prelude, f"@compose({twice}, fn (%x: int32) {{ %x + 1 }})(5)") == 12
    assert run(prelude, f"@flip({minus})(1, 5)") == 4
    for n in range(4):
        assert run(prelude, f"@iterate({twice}, {n})(3)") == 3 * 2**n
        nat = reduce(lambda m, _: f"S({m})", range(n), "Z")
        assert run(prelude, f"@nat_iterate({twice}, {nat})(3)") == 3 * 2**n


def test_nats(prelude):
    executor = relay.create_executor("debug", prelude.mod)
    for a, b in itertools.product(range(4), repeat=2):
        total = prelude.nat_add(make_nat_expr(prelude, a), make_nat_expr(prelude, b))
        assert count(prelude, executor.evaluate(total)) == a + b
    double = executor.evaluate(prelude.nat_double)
    for n in (0, 1, 6):
        assert count(prelude, make_nat_value(prelude, n)) == n
        assert count(prelude, double(make_nat_value(prelude, n))) == 2 * n


def test_gradient_cells(prelude):
    """Sums and products leave out what is zero or one, and are right in every case."""
    cells = {"Raw(2f)": 2.0, "Zero(fn () { 0f })": 0.0, "One(fn () { 1f })": 1.0}
    for (left, a), (right, b) in itertools.product(cells.items(), repeat=2):
        for name, op, value in (("Add", "add", a + b), ("Multiply", "multiply", a * b)):
            both = f"fn (%a: float32, %b: float32) {{ {op}(%a, %b) }}"
            assert run(prelude, f"@FromGradCell(@{name}GradCell({both}, {left}, {right}))") == value
    never = "fn (%a: float32, %b: float32) { @hd(Nil) }"
    assert run(prelude, f"@FromGradCell(@AddGradCell({never}, Zero(fn () {{ 0f }}), Raw(2f)))") == 2.0


def test_long_lists(prelude):
    """A fold from the left takes no stack."""
    down = "fn (%n: int32) { if (%n < 1) { None } else { Some((%n - 1, %n)) } }"
    assert run(prelude, f"@length(@unfoldr({down}, 20000))") == 20000


def test_names(prelude):
    header, cons, nil = prelude.get_type("List")
    assert (header, cons, nil) == (prelude.List, prelude.Cons, prelude.Nil) == (prelude.l, prelude.cons, prelude.nil)
    assert prelude.get_ctor("List", "Cons") is cons and prelude.get_ctor("Tree", "Rose") is prelude.rose
    assert prelude.get_global_var("map") == prelude.map == relay.GlobalVar("map")
    assert prelude.nat == ty.GlobalTypeVar("nat") and prelude.z.name == "Z" and prelude.s.name == "S"
    assert prelude.mod.get_type("nat") == (prelude.nat, prelude.z, prelude.s)
    assert {"map", "Cons", "List"} <= set(dir(prelude))
    with pytest.raises(ir.NoAttribute, match="did you mean foldl"):
        _ = prelude.foldll
    with pytest.raises(ir.NoAttribute, match="did you mean Cons"):
        prelude.get_ctor("List", "Con")
    with pytest.raises(ir.NameNotFound, match="Lisp"):
        prelude.get_type("Lisp")


def test_calls_in_python(prelude):
    xs = prelude.cons(relay.const(2), prelude.cons(relay.const(3), prelude.nil()))
    squared = prelude.map(relay.Function([x := relay.var("x", "int32")], x * x), xs)
    assert plain(relay.create_executor("debug", prelude.mod).evaluate(squared)) == [4, 9]


def test_importing_twice_changes_nothing():
    module = ir.IRModule()
    Prelude(module)
    first = dict(module.functions)
    module.import_from_std("nat.rly")
    Prelude(module)
    assert {n: module[n] for n in first} == first
    assert "nat_add" in module


def test_nat_brings_the_prelude():
    module = ir.IRModule()
    module.import_from_std("nat.rly")
    assert "hd" in module and "nat_nth" in module
    assert standard("nat.rly").functions.keys() == module.functions.keys()


def test_what_a_pass_has_changed_stays():
    module = ir.IRModule()
    Prelude(module)
    old = module["id"]
    module["id"] = changed = old.with_attr("Inline", 1)
    Prelude(module)
    assert module["id"] is changed


def test_names_that_mean_something_else_are_refused():
    module = ir.IRModule({"map": relay.Function((x := relay.var("x", "float32"),), x)})
    with pytest.raises(ir.UserError, match="@map of its own"):
        Prelude(module)
    module = ir.IRModule()
    header = ty.GlobalTypeVar("List")
    module[header] = relay.TypeData(header, (), ())
    with pytest.raises(ir.UserError, match="data type List of its own"):
        Prelude(module)
    assert not module.functions
    with pytest.raises(ir.ArgumentError, match=r"did you mean prelude\.rly"):
        module.import_from_std("prelud.rly")


def test_numbers_in_lists_may_be_tensors(prelude):
    xs = np.arange(6, dtype="float32").reshape(2, 3)
    x = relay.var("x", shape=(2, 3))
    body = prelude.foldl(
        relay.Function([a := relay.var("a", shape=(2, 3)), b := relay.var("b", shape=(2, 3))], a + b), x,
        prelude.cons(x, prelude.cons(x, prelude.nil())),
    )  # fmt: skip
    found = relay.create_executor("debug", prelude.mod).evaluate(relay.Function([x], body))(pullback.tensor(xs))
    np.testing.assert_array_equal(found.numpy(), 3 * xs)
