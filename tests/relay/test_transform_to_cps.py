"""Continuation passing style, there and back, and what partial evaluation makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule, assert_structural_equal
from pullback.ir.errors import ArgumentError, NameNotFound, UserError
from pullback.ir.transform import Sequential
from pullback.relay.infer import infer_expr
from pullback.relay.transform import DeadCodeElimination, InferType, PartialEvaluate, gradient
from pullback.relay.transform.to_cps import to_cps, un_cps
from pullback.relay.ty import FuncType
from pullback.relay.visitor import post_order
from tests.relay.texts import gives, module

PE_DCE = Sequential([PartialEvaluate(), DeadCodeElimination(inline_once=True)])


def there_and_back(mod: IRModule) -> IRModule:
    after = mod.copy()
    after["main"] = un_cps(infer_expr(to_cps(mod["main"], after), after))
    return InferType()(after)


def test_the_type_says_the_style() -> None:
    double = module("def @main[T](%f: fn (T) -> T, %x: T) -> T { %f(%f(%x)) }")["main"]
    made = infer_expr(to_cps(double))
    answer = made.type_params[1]
    t = made.type_params[0]
    k = FuncType((t,), answer)
    assert made.checked_type.arg_types == (FuncType((t, k), answer), t, k)
    assert made.checked_type.ret_type is answer
    back = infer_expr(un_cps(made))
    assert len(back.params) == 2
    assert back.checked_type.ret_type is back.type_params[0]


def test_straight_code_calls_its_continuation_last() -> None:
    made = infer_expr(to_cps(module("def @main(%x: float32) { exp(%x) }")["main"]))
    text = "def @main[R](%x: float32, %k: fn (float32) -> R) -> R { let %y = exp(%x); %k(%y) }"
    assert_structural_equal(made, module(text)["main"])


def test_calls_hand_on_the_rest() -> None:
    mod = module("def @f(%x: float32) -> float32 { exp(%x) } def @main(%x: float32) { add(@f(%x), @f(@f(%x))) }")
    made = infer_expr(to_cps(mod["main"], mod), mod)
    assert list(mod.functions) == ["f", "main", "f_cps"]
    expected = """
    def @f_cps[R](%x: float32, %k: fn (float32) -> R) -> R { let %y = exp(%x); %k(%y) }
    def @main[R](%x: float32, %k: fn (float32) -> R) -> R {
      @f_cps(%x, fn (%a: float32) -> R {
        @f_cps(%x, fn (%b: float32) -> R {
          @f_cps(%b, fn (%c: float32) -> R { let %d = add(%a, %c); %k(%d) })
        })
      })
    }"""
    assert_structural_equal(made, module(expected)["main"])


PROGRAMS = {
    "a branch": "if (less(%x, 1f)) { exp(%x) } else { log(%x) }",
    "after a branch": "let %a = if (less(%x, 1f)) { exp(%x) } else { log(%x) }; let %b = @f(%a); subtract(%b, %a)",
    "recursion": """
      let %p = fn (%n: int32, %y: float32) -> float32 {
        if (less(%n, 1)) { %y } else { multiply(%x, %p(subtract(%n, 1), %y)) }
      };
      %p(3, 2f)""",
    "a match": "match (@half(%x)) { Just(%y) => add(@f(%y), 1f), Nothing => %x }",
    "functions of functions": "let %twice = fn (%g: fn (float32) -> float32) { %g(%g(%x)) }; subtract(%twice(@f), 1f)",
    "functions in data": "let %t = (fn (%y: float32) { @f(%y) }, %x); %t.0(%t.1)",
    "a constructor that is handed on": """
      let %wrap = fn (%g: fn (float32) -> Maybe[float32]) { %g(%x) };
      match (%wrap(Just)) { Just(%y) => %y, Nothing => 0f }""",
    "effects in order": """
      let %r = ref(1f);
      let %f = fn (%y: float32) { let %u = ref_write(%r, add(multiply(ref_read(%r), 3f), %y)); %y };
      let %a = %f(%x);
      let %b = if (less(%x, 1f)) { %f(5f) } else { %f(%f(7f)) };
      add(ref_read(%r), multiply(%a, %b))""",
}
HEAD = """
type Maybe[A] { Nothing, Just(A) }
def @f(%x: float32) -> float32 { if (less(%x, 0f)) { %x } else { @f(subtract(%x, 1f)) } }
def @half(%x: float32) -> Maybe[float32] { if (less(%x, 1f)) { Nothing } else { Just(multiply(%x, 0.5f)) } }
"""


@pytest.mark.parametrize("what", PROGRAMS)
def test_there_and_back_gives_the_same(what: str) -> None:
    before = module(f"{HEAD} def @main(%x: float32) {{ {PROGRAMS[what]} }}")
    after = there_and_back(before)
    for x in (0.25, 2.5):
        assert gives(after, np.float32(x)) == gives(before, np.float32(x))
        assert gives(PE_DCE(after), np.float32(x)) == gives(before, np.float32(x))


def refs_in(function: relay.Function) -> set[str]:
    return {type(n).__name__ for n in post_order(function)} & {"RefCreate", "RefRead", "RefWrite"}


def test_cells_of_functions_that_a_branch_writes_go() -> None:
    before = module("""def @main(%c: bool) -> float32 {
      let %f = ref(fn () { 0f });
      let %u = if (%c) { ref_write(%f, fn () { 1f }) } else { ref_write(%f, fn () { 2f }) };
      ref_read(%f)()
    }""")
    after = PE_DCE(there_and_back(before))
    assert_structural_equal(after["main"], module("def @main(%c: bool) { if (%c) { 1f } else { 2f } }")["main"])


def test_the_gradient_through_a_branch_that_only_running_decides_has_no_cells() -> None:
    text = "def @main(%c: bool, %x: Tensor[(4), float64]) { exp(if (%c) { multiply(%x, %x) } else { %x }) }"
    mod = module(text)
    mod = InferType()(IRModule.from_expr(gradient(mod["main"])))
    after = PE_DCE(there_and_back(mod))
    assert not refs_in(after["main"])
    x = np.array([0.1, -0.5, 1.0, 0.3])
    for c, expected in ((True, 2 * x * np.exp(x * x)), (False, np.exp(x))):
        np.testing.assert_allclose(gives(after, np.bool_(c), x)[1][1], expected)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match="got Constant"):
        to_cps(relay.const(1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="un_cps takes a function in continuation passing style"):
        un_cps(module("def @main(%x: float32) { %x }")["main"])


def test_global_functions_are_to_be_there() -> None:
    mod = module("def @f(%x: float32) -> float32 { %x } def @main(%x: float32) { @f(%x) }")
    with pytest.raises((NameNotFound, UserError), match="f"):
        to_cps(mod["main"])
