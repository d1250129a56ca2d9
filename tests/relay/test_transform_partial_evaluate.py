"""Partial evaluation: exact results, straight code from gradients, effects and cells, and that it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule, assert_structural_equal
from pullback.ir.transform import Sequential
from pullback.relay.expr import Call, Function, GlobalVar, If, Let, Var
from pullback.relay.transform import DeadCodeElimination, InferType, PartialEvaluate, gradient
from pullback.relay.visitor import post_order
from tests.relay.differences import differences
from tests.relay.texts import becomes, gives, module, stays

PE = PartialEvaluate()
PE_DCE = Sequential([PE, DeadCodeElimination(inline_once=True)])
F64 = relay.scalar_type("float64")


def with_std(text: str, *files: str) -> IRModule:
    mod = module(text) if not files else IRModule()
    for name in files:
        mod.import_from_std(name)
    return mod if not files else InferType()(relay.parse('#[version = "0.0.5"]\n' + text, init_module=mod))


def main_becomes(text: str, expected: str, *files: str) -> None:
    """Check what ``main`` becomes in a module with files of the standard library."""
    after, wanted = PE_DCE(with_std(text, *files)), with_std(expected, *files)
    assert_structural_equal(after["main"], wanted["main"])


def kinds(function: Any) -> set[str]:
    """The kinds of expressions, and the operators, that a function consists of."""
    nodes = list(post_order(function.body))
    return {n.name if hasattr(n, "num_inputs") else type(n).__name__ for n in nodes} - {"Var", "Call", "Constant"}


# ---- what is known


def test_the_result_is_in_a_normal_form() -> None:
    before = "def @main(%x: float32) { %0 = exp(%x); add(multiply(%0, %0), 1f) }"
    expected = """def @main(%x: float32) {
      let %a = exp(%x);
      let %b = multiply(%a, %a);
      let %c = add(%b, 1f);
      %c
    }"""
    becomes(PE, before, expected)


def test_cells_give_what_was_written() -> None:
    before = """def @main(%d: float32) {
      let %r = ref(%d);
      let %x = ref_write(%r, multiply(ref_read(%r), ref_read(%r)));
      ref_read(%r)
    }"""
    becomes(PE_DCE, before, "def @main(%d: float32) { multiply(%d, %d) }")


def test_calls_become_bodies() -> None:
    before = """
    def @square(%x: float32) -> float32 { multiply(%x, %x) }
    def @main(%x: float32) {
      let %twice = fn (%f: fn (float32) -> float32, %y: float32) { %f(%f(%y)) };
      %twice(@square, %x)
    }"""
    expected = """
    def @square(%x: float32) -> float32 { multiply(%x, %x) }
    def @main(%x: float32) { let %a = multiply(%x, %x); multiply(%a, %a) }"""
    becomes(PE_DCE, before, expected)


def test_tuples_and_branches_that_are_known() -> None:
    before = """def @main(%x: float32) {
      let %t = (%x, fn (%y: float32) { exp(%y) }, True);
      if (%t.2) { %t.1(%t.0) } else { %x }
    }"""
    becomes(PE_DCE, before, "def @main(%x: float32) { exp(%x) }")


def test_operators_of_constants_are_computed() -> None:
    becomes(PE_DCE, "def @main() { add(multiply(3, 4), 5) }", "def @main() { 17 }")
    large = 'def @main() { add(zeros(shape=[100, 100], dtype="float32"), 1f) }'
    assert "zeros" in kinds(PE(module(large))["main"])


def test_a_recursion_on_a_known_number() -> None:
    before = """def @main() {
      let %f = fn (%x: int32) -> int32 { if (equal(%x, 0)) { 0 } else { add(%x, %f(subtract(%x, 1))) } };
      %f(10)
    }"""
    becomes(PE_DCE, before, "def @main() { 55 }")


def test_a_loop_that_counts_up_to_a_bound() -> None:
    before = """def @main(%x: float32) {
      let %loop = fn (%i: int32, %s: float32) -> float32 {
        if (less(%i, 3)) { %loop(add(%i, 1), multiply(%s, %x)) } else { %s }
      };
      %loop(0, %x)
    }"""
    becomes(PE_DCE, before, "def @main(%x: float32) { multiply(multiply(multiply(%x, %x), %x), %x) }")


# ---- data


def test_data_is_taken_apart() -> None:
    main_becomes("def @main[T](%x: T) -> T { @hd(Cons(%x, Nil)) }", "def @main[T](%x: T) -> T { %x }", "prelude.rly")


def test_a_function_over_a_known_list() -> None:
    before = "def @f(%x: float32) -> float32 { exp(%x) } def @main(%x: float32) { @map(@f, Cons(%x, Cons(0f, Nil))) }"
    after = PE_DCE(with_std(before, "prelude.rly"))
    expected = """def @f(%x: float32) -> float32 { exp(%x) }
    def @main(%x: float32) { Cons(exp(%x), Cons(1f, Nil)) }"""
    assert_structural_equal(after["main"], with_std(expected, "prelude.rly")["main"])


def nat(n: int) -> str:
    return "Z" if n == 0 else f"S({nat(n - 1)})"


def test_natural_numbers() -> None:
    expected = f"def @main() {{ {nat(6)} }}"
    main_becomes(f"def @main() {{ @nat_double({nat(3)}) }}", expected, "nat.rly")
    main_becomes(f"def @main() {{ @nat_add({nat(2)}, {nat(4)}) }}", expected, "nat.rly")


def test_arguments_that_become_less_in_turns() -> None:
    diff = """def @diff(%x: nat, %y: nat) -> nat {
      match (%x) {
        Z => %y,
        S(%xp) => match (%y) { Z => %x, S(%yp) => @diff(%yp, %xp) }
      }
    }"""
    main_becomes(f"{diff} def @main() {{ @diff({nat(7)}, {nat(3)}) }}", f"{diff} def @main() {{ {nat(4)} }}", "nat.rly")


def test_a_match_that_only_running_decides() -> None:
    text = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      let %r = ref(%x);
      let %u = match (%m) { Just(%y) => ref_write(%r, %y), Nothing => () };
      ref_read(%r)
    }"""
    expected = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) { match (%m) { Just(%y) => %y, Nothing => %x } }"""
    becomes(PE_DCE, text, expected)


def test_inside_a_clause_the_data_is_known() -> None:
    before = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      match (%m) {
        Just(%y) => match (%m) { Just(%z) => add(%z, %y), Nothing => %x },
        Nothing => match (%m) { Just(%z) => %z, Nothing => %x }
      }
    }"""
    expected = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) { match (%m) { Just(%y) => add(%y, %y), Nothing => %x } }"""
    becomes(PE_DCE, before, expected)


# ---- gradients


def gradient_of(function: Function) -> IRModule:
    return InferType()(IRModule.from_expr(gradient(InferType()(IRModule.from_expr(function))["main"])))


@pytest.mark.parametrize("ignore_impurity", [True, False])
def test_the_gradient_of_a_square_is_straight_code(ignore_impurity: bool) -> None:
    d = relay.var("d", shape=(10, 10))
    step = Sequential([PE, DeadCodeElimination(True, ignore_impurity)])
    after = step(gradient_of(Function((d,), d * d)))
    expected = """def @main(%d: Tensor[(10, 10), float32]) {
      let %x = multiply(%d, %d);
      let %one = ones_like(%x);
      %0 = add(zeros_like(%d), collapse_sum_like(multiply(%one, %d), %d));
      (%x, (add(%0, collapse_sum_like(multiply(%one, %d), %d)),))
    }"""
    assert_structural_equal(after["main"], module(expected)["main"])
    assert kinds(after["main"]) <= {
        "Let", "Tuple", "Op", "zeros_like", "ones_like", "multiply", "collapse_sum_like", "add",
    }  # fmt: skip


def straight(function: Function, *args: np.ndarray) -> IRModule:
    """The evaluated gradient, which is straight code and gives what the gradient gives and differences say."""
    before = gradient_of(function)
    after = PE_DCE(before)
    assert not kinds(after["main"]) & {"Function", "RefCreate", "RefRead", "RefWrite", "GlobalVar", "If", "Match"}
    found, wanted = gives(after, *args), gives(before, *args)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    value = InferType()(IRModule.from_expr(function))
    for one, other, slope in zip(found[1], wanted[1], differences(lambda *a: gives(value, *a), args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_allclose(one, slope, rtol=1e-4, atol=1e-6)
    return after


def test_the_gradient_of_straight_code() -> None:
    x, y = relay.var("x", shape=(3,), dtype="float64"), relay.var("y", shape=(2, 3), dtype="float64")
    h = relay.tanh(x * y)
    straight(Function((x, y), relay.sum(h * h + relay.exp(x))), np.array([0.1, -0.4, 0.7]), np.ones((2, 3)) * 0.3)


def test_the_gradient_of_a_recursion_that_is_known() -> None:
    x, power, n, y = Var("x", F64), Var("power"), Var("n", relay.scalar_type("int32")), Var("y", F64)
    again = y * Call(power, (n - relay.const(1), y))
    body = Function((n, y), If(relay.equal(n, relay.const(0)), relay.exp(y), again), F64)
    straight(Function((x,), Let(power, body, Call(power, (relay.const(4), x)))), np.array(1.3))


def test_the_gradient_of_branches_that_are_known() -> None:
    x, f, c = Var("x", F64), Var("f"), Var("c", relay.scalar_type("bool"))
    y = Var("y", F64)
    choose = Function((c, y), If(c, relay.exp(y), relay.log(y)))
    body = Call(f, (relay.const(True), x)) * Call(f, (relay.const(False), x))
    straight(Function((x,), Let(f, choose, body)), np.array(1.7))


def test_the_gradient_of_cells() -> None:
    x, r, u = Var("x", F64), Var("r"), Var("u")
    body = Let(u, relay.RefWrite(r, relay.RefRead(r) * relay.RefRead(r)), relay.RefRead(r) * relay.exp(x))
    straight(Function((x,), Let(r, relay.RefCreate(x), body)), np.array(0.6))


def test_gradients_of_gradients() -> None:
    x = Var("x", F64)
    cube = InferType()(IRModule.from_expr(Function((x,), x * x * x)))["main"]
    first = relay.transform.gradient(cube)
    y = Var("y", F64)
    derivative = Function((y,), relay.TupleGetItem(relay.TupleGetItem(Call(first, (y,)), 1), 0))
    after = straight(derivative, np.array(1.5))
    np.testing.assert_allclose(gives(after, np.float64(1.5))[1][0], 9)


def test_the_size_of_a_gradient_grows_with_the_program() -> None:
    sizes = []
    for depth in (20, 40):
        x = Var("x", F64)
        body: Any = x
        for _ in range(depth):
            body = relay.tanh(body)
        sizes.append(len(list(post_order(PE(gradient_of(Function((x,), body)))["main"]))))
    assert sizes[1] < 2.1 * sizes[0]


def test_a_branch_that_only_running_decides_hands_on_the_contents_of_cells() -> None:
    before = """def @main(%c: bool, %x: float32) {
      let %r = ref(%x);
      let %add = fn (%y: float32) { ref_write(%r, add(ref_read(%r), %y)) };
      let %u = if (%c) { %add(%x) } else { () };
      let %v = %add(1f);
      (ref_read(%r), %x)
    }"""
    expected = "def @main(%c: bool, %x: float32) { (add(if (%c) { add(%x, %x) } else { %x }, 1f), %x) }"
    becomes(PE_DCE, before, expected)


def test_several_cells_of_one_branch_are_fields_of_its_result() -> None:
    before = """def @main(%c: bool, %x: float32) {
      let %r = ref(%x);
      let %s = ref(1f);
      let %u = if (%c) { let %v = ref_write(%r, 2f); ref_write(%s, exp(%x)) } else { () };
      (ref_read(%r), ref_read(%s))
    }"""
    after = PE_DCE(module(before))
    assert not kinds(after["main"]) & {"RefCreate", "RefRead", "RefWrite"}
    for c in (True, False):
        assert gives(after, np.bool_(c), np.float32(3)) == gives(module(before), np.bool_(c), np.float32(3))


# ---- effects

STAYING = {
    "a cell of the caller": "let %a = ref_read(%q); let %u = ref_write(%q, 2f); let %b = add(%a, %x); %b",
    "calls of a parameter": "let %a = %f(%q); let %b = %f(%q); let %c = subtract(%b, %a); %c",
    "a call whose result nobody uses": "let %a = %f(%q); %x",
    "a write that only running decides": "let %u = if (%c) { let %v = ref_write(%q, 1f); () } else { () }; %x",
    "a cell that is handed on": "let %r = ref(%x); let %a = %f(%r); let %b = ref_read(%r); %b",
}


@pytest.mark.parametrize("what", STAYING)
def test_effects_that_are_not_known_stay(what: str) -> None:
    head = "def @main(%q: ref(float32), %f: fn (ref(float32)) -> float32, %c: bool, %x: float32)"
    after = PE(module(f"{head} {{ {STAYING[what]} }}"))
    expected = STAYING[what].replace("let %u = if (%c) { let %v = ref_write(%q, 1f); () } else { () };", "")
    if expected == STAYING[what]:
        assert_structural_equal(after, module(f"{head} {{ {STAYING[what]} }}"))
    else:
        assert "RefWrite" in kinds(after["main"])


def test_what_was_read_before_an_unknown_call_is_read_again_after_it() -> None:
    text = """def @main(%q: ref(float32), %f: fn () -> ()) {
      let %a = ref_read(%q);
      let %u = %f();
      let %b = ref_read(%q);
      let %c = subtract(%a, %b);
      %c
    }"""
    stays(PE, text)


def test_a_cell_that_nobody_else_knows_survives_an_unknown_call() -> None:
    before = """def @main(%f: fn () -> (), %x: float32) {
      let %r = ref(%x);
      let %u = %f();
      ref_read(%r)
    }"""
    becomes(PE, before, "def @main(%f: fn () -> (), %x: float32) { let %u = %f(); %x }")


RUNS = {  # programs in which ``@do`` and ``@start``, as far as they remain, call what they are given
    "a function that is handed on writes": """
      let %r = ref(%x);
      let %set = fn () { ref_write(%r, add(ref_read(%r), 1f)) };
      let %u = @do(%set, %c);
      ref_read(%r)""",
    "it writes to a cell that a known function reads": """
      let %r = ref(%x);
      let %set = fn () { ref_write(%r, 7f) };
      let %get = fn () { ref_read(%r) };
      let %a = %get();
      let %u = @do(%set, %c);
      add(multiply(%a, 10f), %get())""",
    "a function reads before and after an unknown call inside it": """
      let %r = ref(%x);
      let %set = fn () { ref_write(%r, add(ref_read(%r), 1f)) };
      let %both = fn () {
        let %a = ref_read(%r);
        let %u = @do(%set, %c);
        ref_write(%r, add(multiply(ref_read(%r), 10f), %a))
      };
      let %v = @do(%both, %c);
      ref_read(%r)""",
    "a function that is handed on beside another one calls it by way of a cell": """
      let %r = ref(%x);
      let %q = ref(fn () { () });
      let %set = fn () { ref_write(%r, add(ref_read(%r), 1f)) };
      let %both = fn () {
        let %a = ref_read(%r);
        let %u = ref_read(%q)();
        ref_write(%r, add(multiply(ref_read(%r), 10f), %a))
      };
      let %v = @start(%q, %set, %both, %c);
      ref_read(%r)""",
    "a cell in a cell": """
      let %r = ref(%x);
      let %outer = ref(%r);
      let %set = fn () { ref_write(ref_read(%outer), 5f) };
      let %u = @do(%set, %c);
      let %other = ref(1f);
      let %v = ref_write(%outer, %other);
      let %w = @do(%set, %c);
      add(multiply(ref_read(%r), 10f), ref_read(%other))""",
    "two names of one cell": """
      let %r = ref(%x);
      let %s = ref(2f);
      let %t = if (%c) { %r } else { %s };
      let %u = ref_write(%t, 9f);
      add(multiply(ref_read(%r), 100f), ref_read(%s))""",
    "a function that a cell holds, by a branch": """
      let %r = ref(%x);
      let %f = ref(fn () { ref_write(%r, 3f) });
      let %u = if (%c) { ref_write(%f, fn () { ref_write(%r, 4f) }) } else { () };
      let %v = ref_read(%f)();
      ref_read(%r)""",
    "a function that calls itself by way of a cell": """
      let %n = ref(3f);
      let %f = ref(fn (%y: float32) -> float32 { %y });
      let %g = fn (%y: float32) -> float32 {
        if (less(ref_read(%n), 0.5f)) { %y } else {
          let %u = ref_write(%n, subtract(ref_read(%n), 1f));
          multiply(ref_read(%f)(%y), 2f)
        }
      };
      let %u = ref_write(%f, %g);
      %g(%x)""",
}


@pytest.mark.parametrize("what", RUNS)
def test_programs_give_what_they_gave(what: str) -> None:
    do = "def @do(%f: fn () -> (), %c: bool) -> () { if (%c) { %f() } else { let %u = %f(); @do(%f, True) } }"
    start = """def @start(%q: ref(fn () -> ()), %set: fn () -> (), %both: fn () -> (), %c: bool) -> () {
      if (%c) { let %u = ref_write(%q, %set); %both() } else { @start(%q, %set, %both, True) }
    }"""
    before = module(f"{do} {start} def @main(%c: bool, %x: float32) {{ {RUNS[what]} }}")
    for after in (PE(before), PE_DCE(before)):
        for c in (True, False):
            args = np.bool_(c), np.float32(2)
            assert gives(after, *args) == gives(before, *args)


# ---- recursion that does not end, or not for sure


def test_a_loop_without_an_end_stays_a_call() -> None:
    before = "def @loop[T](%x: T) -> T { @loop(%x) } def @main() -> int32 { @loop(1) }"
    assert_structural_equal(PE_DCE(module(before))["main"], module(before)["main"])


def test_arguments_that_change_places_for_ever() -> None:
    loop = "def @loop(%x: nat, %y: nat) -> nat { @loop(%y, %x) }"
    text = f"{loop} def @main() {{ @loop({nat(1)}, {nat(2)}) }}"
    main_becomes(text, text, "nat.rly")


ENDLESS = {
    "a number that grows": "def @f(%n: int32) -> int32 { @f(add(%n, 1)) } def @main() { @f(0) }",
    "a list that grows": "def @f(%l: List[int32]) -> int32 { @f(Cons(1, %l)) } def @main() { @f(Nil) }",
    "a continuation that grows": """
      def @f(%k: fn (int32) -> int32) -> int32 { @f(fn (%x: int32) { %k(add(%x, 1)) }) }
      def @main() { @f(fn (%x: int32) { %x }) }""",
    "functions that make one another": """
      def @f(%x: int32) -> fn (int32) -> int32 { fn (%y: int32) -> int32 { @f(%x)(add(%y, %x)) } }
      def @main(%x: int32) { @f(%x) }""",
    "a number that grows, twice": """
      def @f(%n: int32) -> int32 { add(@f(add(%n, 1)), @f(add(%n, 2))) }
      def @main() { @f(0) }""",
    "a number that grows until a parameter says": """
      def @f(%n: int32, %m: int32) -> int32 { if (less(%n, %m)) { @f(add(%n, 1), %m) } else { %n } }
      def @main(%m: int32) { @f(0, %m) }""",
}


@pytest.mark.parametrize("what", ENDLESS)
def test_it_ends(what: str) -> None:
    after = PE(with_std(ENDLESS[what], "prelude.rly"))
    assert "GlobalVar" in kinds(after["main"])


def test_a_recursion_that_a_parameter_ends_is_left() -> None:
    text = """def @main(%n: int32, %x: float32) {
      let %f = fn (%k: int32, %y: float32) -> float32 {
        if (less(%k, 1)) { %y } else { %f(subtract(%k, 1), multiply(%y, %x)) }
      };
      %f(%n, %x)
    }"""
    before = module(text)
    after = PE(before)
    for n in range(4):
        assert gives(after, np.int32(n), np.float32(3)) == gives(before, np.int32(n), np.float32(3))


def test_functions_that_are_one_operator_stay_as_they_are() -> None:
    x, y, z = (Var(n, relay.scalar_type("float32")) for n in "xyz")
    fused = Function((y,), relay.exp(y + y)).with_attr("Primitive", 1)
    mod = IRModule({"main": Function((x,), Call(fused, (x,))), "f": Function((z,), z + z).with_attr("Compiler", "c")})
    mod["g"] = Function((w := Var("w", relay.scalar_type("float32")),), Call(GlobalVar("f"), (w,)))
    after = PE_DCE(InferType()(mod))
    assert after["main"].body.op.attrs.Primitive == 1
    assert after["g"].body.op == GlobalVar("f")


def test_types_of_polymorphic_functions_do_not_remain() -> None:
    before = """
    def @twice[A](%f: fn (A) -> A, %x: A) -> A { let %g = fn (%y: A) -> A { %f(%y) }; %g(%g(%x)) }
    def @main(%f: fn (float32) -> float32, %x: float32) { @twice(%f, %x) }"""
    after = PE_DCE(module(before))
    assert not relay.analysis.free_type_vars(after["main"])


def test_arrays_in_and_out() -> None:
    before = module(
        "def @main(%x: Tensor[(3), float32]) { let %f = fn (%y: Tensor[(3), float32]) { exp(%y) }; %f(%x) }"
    )
    x = np.array([0.0, 1.0, 2.0], "float32")
    np.testing.assert_allclose(gives(PE(before), x), np.exp(x), rtol=1e-6)


def test_calls_of_functions_that_are_one_operator_are_no_effects() -> None:
    x, y = Var("x", relay.scalar_type("float32")), Var("y", relay.scalar_type("float32"))
    fused = Function((y,), relay.exp(y + y)).with_attr("Primitive", 1)
    after = PE(InferType()(IRModule.from_expr(Function((x,), Let(Var("u"), Call(fused, (x,)), x)))))
    assert after["main"].body is after["main"].params[0]
