"""Constructors and global functions that are handed on become functions."""

from __future__ import annotations

from pullback.relay.transform import EtaExpand
from tests.relay.texts import becomes, stays

HEAD = """
type Maybe[A] { Nothing, Just(A) }
type Flag { Flag }
def @f(%x: float32) -> float32 { exp(%x) }
def @id[A](%x: A) -> A { %x }
def @call[A, B](%g: fn (A) -> B, %x: A) -> B { %g(%x) }
"""
CALLS = HEAD + "def @main(%x: float32) { (Just(%x), @f(%x), @id(%x)) }"


def test_options_have_the_reference_s_defaults() -> None:
    assert (EtaExpand().expand_constructor, EtaExpand().expand_global_var) == (False, False)


def test_calls_stay() -> None:
    stays(EtaExpand(True, True), CALLS)


def test_patterns_stay() -> None:
    text = HEAD + "def @main(%m: Maybe[float32], %x: float32) { match (%m) { Just(%y) => %y, Nothing => %x } }"
    stays(EtaExpand(True, True), text)


def test_constructors() -> None:
    before = HEAD + "def @main(%x: float32) -> Maybe[float32] { @call(Just, %x) }"
    expected = HEAD + "def @main(%x: float32) -> Maybe[float32] { @call(fn [A](%y: A) -> Maybe[A] { Just(%y) }, %x) }"
    becomes(EtaExpand(expand_constructor=True), before, expected)
    stays(EtaExpand(expand_global_var=True), before)


def test_global_functions() -> None:
    before = HEAD + "def @main(%x: float32) -> float32 { @call(@f, %x) }"
    expected = HEAD + "def @main(%x: float32) -> float32 { @call(fn (%y: float32) -> float32 { @f(%y) }, %x) }"
    becomes(EtaExpand(expand_global_var=True), before, expected)


def test_polymorphic_global_functions() -> None:
    before = HEAD + "def @main(%x: float32) -> float32 { @call(@id, %x) }"
    expected = HEAD + "def @main(%x: float32) -> float32 { @call(fn [A](%y: A) -> A { @id(%y) }, %x) }"
    becomes(EtaExpand(expand_global_var=True), before, expected)
