"""Dead code goes, effects stay, and what is used once may be written where it is used."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.relay.expr import Let
from pullback.relay.transform import DeadCodeElimination
from tests.relay.texts import becomes, gives, module, stays

DCE, INLINE, IMPURE = DeadCodeElimination(), DeadCodeElimination(True), DeadCodeElimination(ignore_impurity=True)


def test_options_have_the_reference_s_names_and_defaults() -> None:
    assert (DCE.inline_once, DCE.ignore_impurity) == (False, False)
    assert DeadCodeElimination(inline_once=True, ignore_impurity=True) != DCE


def test_values_that_nobody_uses_go() -> None:
    before = """def @main(%x: float32) {
      let %a = exp(%x);
      let %b = add(%a, %a);
      let %c = log(%x);
      %c
    }"""
    becomes(DCE, before, "def @main(%x: float32) { let %c = log(%x); %c }")


def test_lets_inside_values_go_too() -> None:
    before = "def @main(%x: float32, %y: float32) { let %a = { let %b = %x; %b }; %y }"
    becomes(DCE, before, "def @main(%x: float32, %y: float32) { %y }")
    becomes(DCE, "def @main() { add({ let %e = 1f; 3f }, 2f) }", "def @main() { add(3f, 2f) }")


def test_functions_that_nobody_calls_go_recursive_ones_too() -> None:
    before = """def @main(%x: float32) {
      let %f = fn (%n: int32, %d: float32) -> float32 {
        if (equal(%n, 0)) { %d } else { %f(subtract(%n, 1), log(%d)) }
      };
      let %g = fn (%y: float32) { %f(3, %y) };
      %x
    }"""
    becomes(DCE, before, "def @main(%x: float32) { %x }")


@pytest.mark.parametrize("step", [DCE, INLINE, IMPURE])
def test_functions_that_call_themselves_stay(step: DeadCodeElimination) -> None:
    text = """def @main(%x: float32) {
      let %f = fn (%n: int32, %d: float32) -> float32 {
        if (equal(%n, 0)) { %d } else { %f(subtract(%n, 1), log(%d)) }
      };
      %f(2, 10000f)
    }"""
    stays(step, text)


EFFECTS = {
    "a write to a cell of the caller": "let %u = ref_write(%r, 1f);",
    "a call of a parameter": "let %u = %f();",
    "a write in a branch": "let %u = if (less(%x, 0f)) { ref_write(%r, 1f) } else { () };",
    "a call of a function that writes": "let %g = fn () { ref_write(%r, 2f) }; let %u = %g();",
    "a call of a global function that writes": "let %u = @set(%r);",
    "a call of one that calls one that writes": "let %u = @twice(%r);",
    "a write in a clause": "let %u = match (%x) { %y => ref_write(%r, %y) };",
    "a write inside an operand": "let %u = add(%x, { let %w = ref_write(%r, 1f); %x });",
    "a write by a chosen function": "let %g = if (less(%x, 0f)) { %f } else { fn () { %x } }; let %u = %g();",
}


@pytest.mark.parametrize("what", EFFECTS)
def test_effects_stay(what: str) -> None:
    text = f"""
    def @set(%c: ref(float32)) -> () {{ ref_write(%c, add(ref_read(%c), 1f)) }}
    def @twice(%c: ref(float32)) -> () {{ let %u = @set(%c); @set(%c) }}
    def @main(%r: ref(float32), %f: fn () -> float32, %x: float32) {{ {EFFECTS[what]} %x }}"""
    stays(DCE, text)
    if "%g" not in EFFECTS[what]:
        stays(INLINE, text)
    after = IMPURE(module(text))["main"]
    assert after.body is after.params[2]  # %x


def test_reads_and_new_cells_that_nobody_uses_go() -> None:
    before = """def @main(%r: ref(float32), %x: float32) {
      let %a = ref_read(%r);
      let %c = ref(%a);
      %x
    }"""
    becomes(DCE, before, "def @main(%r: ref(float32), %x: float32) { %x }")


def test_pure_calls_of_functions_go() -> None:
    before = """
    def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
    def @odd(%n: int32) -> bool { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
    def @main(%x: float32) { let %e = @even(4); let %g = fn () { %x }; let %u = %g(); %x }"""
    after = DCE(module(before))
    assert not isinstance(after["main"].body, Let)
    assert set(after.functions) == {"even", "odd", "main"}  # functions of the module stay


def test_cells_that_nobody_reads_go_with_their_writes() -> None:
    before = """def @main(%c: bool, %x: float32) {
      let %r = ref(%x);
      let %u = ref_write(%r, exp(%x));
      let %f = fn () { ref_write(%r, %x) };
      let %v = if (%c) { %f() } else { () };
      let %w = %f();
      exp(%x)
    }"""
    becomes(DCE, before, "def @main(%c: bool, %x: float32) { exp(%x) }")


def test_what_is_written_to_such_a_cell_keeps_its_effects() -> None:
    before = """def @main(%q: ref(float32), %f: fn () -> float32) {
      let %r = ref(0f);
      let %u = ref_write(%r, %f());
      ref_read(%q)
    }"""
    expected = """def @main(%q: ref(float32), %f: fn () -> float32) {
      let %u = { let %v = %f(); () };
      ref_read(%q)
    }"""
    becomes(DCE, before, expected)


ESCAPES = {
    "read": "let %u = ref_write(%r, 2f); ref_read(%r)",
    "read through another name": "let %s = %r; let %u = ref_write(%r, 2f); ref_read(%s)",
    "handed on": "let %u = ref_write(%r, 2f); %f(%r)",
    "in a tuple": "let %t = (%r, 1f); let %u = ref_write(%r, 2f); ref_read(%t.0)",
    "read by a function": "let %g = fn () { ref_read(%r) }; let %u = ref_write(%r, 2f); %g()",
    "read by what is written to it": "let %s = ref(0f); let %u = ref_write(%s, ref_read(%r)); ref_read(%s)",
}


@pytest.mark.parametrize("what", ESCAPES)
def test_cells_that_are_read_stay(what: str) -> None:
    text = f"def @main(%f: fn (ref(float32)) -> float32) {{ let %r = ref(1f); {ESCAPES[what]} }}"
    stays(DCE, text)


def test_values_that_are_used_once_are_written_there() -> None:
    before = """def @main(%x: float32) {
      let %a = exp(%x);
      let %b = log(%a);
      let %c = add(%b, %x);
      let %d = (%c, %c);
      %d
    }"""
    expected = "def @main(%x: float32) { let %c = add(log(exp(%x)), %x); (%c, %c) }"
    becomes(INLINE, before, expected)


def test_a_use_by_dead_code_does_not_count() -> None:
    before = """def @main(%x: float32) {
      let %a = exp(%x);
      let %dead = add(%a, %a);
      multiply(%a, %x)
    }"""
    becomes(INLINE, before, "def @main(%x: float32) { multiply(exp(%x), %x) }")


def test_values_are_not_written_into_functions_that_would_compute_them_again() -> None:
    before = """def @main(%x: float32) {
      let %y = exp(%x);
      let %one = 1f;
      let %g = fn (%z: float32) { add(add(%z, %one), %y) };
      add(%g(%x), %g(%y))
    }"""
    expected = """def @main(%x: float32) {
      let %y = exp(%x);
      let %g = fn (%z: float32) { add(add(%z, 1f), %y) };
      add(%g(%x), %g(%y))
    }"""
    becomes(INLINE, before, expected)


def test_reads_are_not_moved_past_writes() -> None:
    text = """def @main(%r: ref(float32)) {
      let %old = ref_read(%r);
      let %u = ref_write(%r, 5f);
      multiply(%old, 2f)
    }"""
    stays(INLINE, text)
    stays(DeadCodeElimination(inline_once=True, ignore_impurity=True), text.replace("multiply(%old, 2f)", "(%old, %u)"))


def test_a_pure_value_moves_past_effects() -> None:
    before = """def @main(%r: ref(float32), %x: float32) {
      let %size = exp(%x);
      let %u = ref_write(%r, %x);
      log(%size)
    }"""
    expected = "def @main(%r: ref(float32), %x: float32) { let %u = ref_write(%r, %x); log(exp(%x)) }"
    becomes(INLINE, before, expected)


def test_long_chains_and_doubling_graphs() -> None:
    lines = "\n".join(f"let %v{k + 1} = add(%v{k}, %v{k});" for k in range(400))
    before = f"def @main(%v0: float32) {{ {lines} %v400 }}"
    stays(DCE, before)
    stays(INLINE, f"def @main(%v0: float32) {{ {lines} (%v400, %v400) }}")
    assert gives(INLINE(module(before)), np.float32(0)) == 0
