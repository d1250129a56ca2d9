"""Graph normal form: values move to their uses unless order or cost forbids it."""

from __future__ import annotations

import numpy as np

from pullback import relay
from pullback.ir import IRModule
from pullback.relay.expr import Expr, Function, Let, Var
from pullback.relay.transform import ToGraphNormalForm
from tests.relay.texts import becomes, gives, stays


def test_values_become_nodes_of_a_graph() -> None:
    before = """def @main(%x: float32) {
      let %a = exp(%x);
      let %b = multiply(%a, %a);
      let %c = add(%b, %a);
      (%c, %b)
    }"""
    expected = """def @main(%x: float32) {
      %0 = exp(%x);
      %1 = multiply(%0, %0);
      (add(%1, %0), %1)
    }"""
    becomes(ToGraphNormalForm(), before, expected)


def test_effects_keep_their_lets() -> None:
    before = """def @main(%x: float32) {
      let %y = exp(%x);
      let %r = ref(%y);
      let %old = ref_read(%r);
      let %z = multiply(%old, %y);
      let %u = ref_write(%r, %z);
      let %new = ref_read(%r);
      add(%old, %new)
    }"""
    expected = """def @main(%x: float32) {
      %0 = exp(%x);
      let %r = ref(%0);
      let %old = ref_read(%r);
      let %u = ref_write(%r, multiply(%old, %0));
      let %new = ref_read(%r);
      add(%old, %new)
    }"""
    after = becomes(ToGraphNormalForm(), before, expected)
    np.testing.assert_allclose(gives(after, np.float32(0)), 2)


def test_calls_of_functions_with_effects_keep_theirs() -> None:
    text = """
    def @bump(%r: ref(float32)) -> float32 { let %u = ref_write(%r, add(ref_read(%r), 1f)); ref_read(%r) }
    def @main(%r: ref(float32)) {
      let %a = @bump(%r);
      let %b = @bump(%r);
      subtract(%a, multiply(%b, %b))
    }"""
    stays(ToGraphNormalForm(), text)


def test_calls_of_pure_functions_move() -> None:
    before = """
    def @f(%x: float32) -> float32 { if (less(%x, 0f)) { %x } else { @f(subtract(%x, 1f)) } }
    def @main(%x: float32) { let %a = @f(%x); let %b = exp(%x); add(%b, %a) }"""
    expected = """
    def @f(%x: float32) -> float32 { if (less(%x, 0f)) { %x } else { @f(subtract(%x, 1f)) } }
    def @main(%x: float32) { add(exp(%x), @f(%x)) }"""
    becomes(ToGraphNormalForm(), before, expected)


def test_calls_of_parameters_stay() -> None:
    text = "def @main(%f: fn () -> float32, %x: float32) { let %a = %f(); let %b = %f(); subtract(%b, %a) }"
    stays(ToGraphNormalForm(), text)


def test_what_a_function_uses_is_not_computed_at_each_call() -> None:
    before = """def @main(%x: float32) {
      let %y = exp(%x);
      let %one = 1f;
      fn (%z: float32) { add(add(%z, %one), %y) }
    }"""
    expected = """def @main(%x: float32) {
      let %y = exp(%x);
      fn (%z: float32) { add(add(%z, 1f), %y) }
    }"""
    becomes(ToGraphNormalForm(), before, expected)


def test_functions_that_call_themselves_stay() -> None:
    text = """def @main(%n: int32) {
      let %f = fn (%k: int32) -> int32 { if (less(%k, 1)) { 0 } else { %f(subtract(%k, 1)) } };
      %f(%n)
    }"""
    stays(ToGraphNormalForm(), text)


def test_long_chains() -> None:
    x = Var("x", relay.scalar_type("float32"))
    names = [Var("v") for _ in range(5000)]
    body: Expr = names[-1]
    for k in reversed(range(5000)):
        last = names[k - 1] if k else x
        body = Let(names[k], last + last, body)
    after = ToGraphNormalForm()(IRModule.from_expr(Function((x,), body)))["main"]
    assert not isinstance(after.body, Let)
