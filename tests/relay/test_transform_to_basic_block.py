"""Basic block normal form: what several blocks use is bound around them, and nothing else is."""

from __future__ import annotations

import numpy as np

from pullback.relay.transform import ToBasicBlockNormalForm
from tests.relay.texts import becomes, gives, module, stays


def test_what_both_branches_use_is_bound_before_them() -> None:
    before = "def @main(%c: bool, %x: float32) { %0 = exp(%x); if (%c) { %0 } else { multiply(%0, exp(%x)) } }"
    expected = """def @main(%c: bool, %x: float32) {
      let %a = exp(%x);
      if (%c) { %a } else { multiply(%a, exp(%x)) }
    }"""
    becomes(ToBasicBlockNormalForm(), before, expected)


def test_straight_code_stays_a_graph() -> None:
    stays(ToBasicBlockNormalForm(), "def @main(%x: float32) { %0 = exp(%x); add(multiply(%0, %0), %0) }")


def test_each_value_is_bound_in_the_innermost_block_around_its_uses() -> None:
    before = """def @main(%c: bool, %d: bool, %y: float32, %z: float32) {
      %0 = add(%z, %z);
      if (%c) {
        %1 = add(%y, %y);
        if (%d) { add(%0, %1) } else { add(3f, %1) }
      } else {
        if (%d) { %0 } else { 1f }
      }
    }"""
    expected = """def @main(%c: bool, %d: bool, %y: float32, %z: float32) {
      let %a = add(%z, %z);
      if (%c) {
        let %b = add(%y, %y);
        if (%d) { add(%a, %b) } else { add(3f, %b) }
      } else {
        if (%d) { %a } else { 1f }
      }
    }"""
    after = becomes(ToBasicBlockNormalForm(), before, expected)
    for c in (True, False):
        for d in (True, False):
            args = (np.bool_(c), np.bool_(d), np.float32(2), np.float32(5))
            assert gives(after, *args) == gives(module(before), *args)


def test_a_condition_that_a_branch_uses_too() -> None:
    before = """def @main(%x: float32) {
      %0 = less(%x, 0f);
      %1 = exp(%x);
      if (%0) { (%1, %0) } else { (%x, %0) }
    }"""
    expected = """def @main(%x: float32) {
      let %c = less(%x, 0f);
      if (%c) { (exp(%x), %c) } else { (%x, %c) }
    }"""
    becomes(ToBasicBlockNormalForm(), before, expected)


def test_what_a_function_shares_with_the_code_around_it() -> None:
    before = """def @main(%x: float32) {
      %0 = exp(%x);
      %1 = fn (%y: float32) { add(%y, %0) };
      add(%1(%x), %0)
    }"""
    expected = """def @main(%x: float32) {
      let %a = exp(%x);
      add(fn (%y: float32) { add(%y, %a) }(%x), %a)
    }"""
    becomes(ToBasicBlockNormalForm(), before, expected)


def test_clauses_are_blocks() -> None:
    before = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      %0 = exp(%x);
      match (%m) { Just(%y) => add(%y, %0), Nothing => %0 }
    }"""
    expected = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      let %a = exp(%x);
      match (%m) { Just(%y) => add(%y, %a), Nothing => %a }
    }"""
    becomes(ToBasicBlockNormalForm(), before, expected)


def test_lets_stay_where_they_are() -> None:
    text = """def @main(%x: float32) {
      let %r = ref(%x);
      let %u = ref_write(%r, exp(%x));
      let %y = ref_read(%r);
      add(%y, %y)
    }"""
    stays(ToBasicBlockNormalForm(), text)
