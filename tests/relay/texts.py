"""Programs as relay text, for tests of passes: what a pass makes of them, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback import relay
from pullback.ir import IRModule, assert_structural_equal
from pullback.relay.transform import InferType
from tests.relay.differences import arrays

Step = Callable[[IRModule], IRModule]


def module(text: str) -> IRModule:
    """The module of a text, with types; what stands before the first ``def`` or ``type`` is the body of ``main``."""
    return InferType()(relay.parse('#[version = "0.0.5"]\n' + text))


def becomes(step: Step, before: str, expected: str) -> IRModule:
    """Check that the pass makes ``expected`` of ``before``, exactly."""
    given = module(before)
    functions = dict(given.functions)
    after = step(given)
    assert dict(given.functions) == functions  # a pass changes nothing
    assert_structural_equal(InferType()(after), module(expected))
    return after


def stays(step: Step, text: str) -> None:
    becomes(step, text, text)


def gives(mod: IRModule, *args: Any) -> Any:
    """What ``main`` gives over NumPy."""
    return arrays(relay.create_executor("debug", mod).evaluate()(*args))
