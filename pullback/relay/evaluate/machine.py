"""The machine that runs code: a list of steps over a frame of registers, with a stack of its own.

Calls inside of calls need no stack of Python's, so recursion is as deep as memory allows; a call in tail position
replaces the frame of its caller, so a loop written as recursion takes none at all.

A step is a function of the frame. It returns None to go on, a :class:`Label` to go there, ``(value,)`` to return, or
``(function, arguments, register, span)`` to call; register ``TAIL`` says that the result is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import CallError, UserError
from pullback.relay.evaluate.values import Builtin, Closure, what_it_is

TAIL = None
MOST_CALLS = 1_000_000  # inside of one another
UNSET = type("Unset", (), {"__repr__": lambda self: "UNSET"})()  # in registers whose value is not computed yet


class Label:
    """A place in code."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


Step = Callable[[list[Any]], Any]


class Code:
    """A function's steps. A frame has the arguments first, then ``rest``, and the captured values backwards at the end:
    the k-th is at ``-1 - k``."""

    __slots__ = ("arity", "captures", "name", "rest", "steps")

    def __init__(self, name: str, arity: int, rest: list[Any], steps: list[Step]) -> None:
        self.name, self.arity, self.rest, self.steps = name, arity, rest, steps


def run(function: Any, arguments: Sequence[Any], span: Any = None) -> Any:
    """What the function gives."""
    stack: list[tuple[list[Step], int, list[Any], int]] = []
    steps: list[Step] = []  # of no function: the first action calls one
    frame: list[Any] = []
    at = 0
    register: Any
    action: Any = (function, arguments, TAIL, span)
    while True:
        if action is None:
            pass
        elif action.__class__ is Label:
            at = action.at
        elif len(action) == 1:
            if not stack:
                return action[0]
            steps, at, frame, register = stack.pop()
            frame[register] = action[0]
        else:
            function, arguments, register, span = action
            if function.__class__ is Closure:
                code = function.code
                if len(arguments) != code.arity:
                    raise _wrong_count(code, len(arguments), span)
                if register is not TAIL:
                    stack.append((steps, at, frame, register))
                    if len(stack) > MOST_CALLS:
                        raise _too_deep(span)
                frame = [*arguments, *code.rest, *function.captured]
                steps, at = code.steps, 0
            elif function.__class__ is Builtin:
                function.check(len(arguments), span)
                value = function.function(arguments)
                if register is TAIL:
                    action = (value,)
                    continue
                frame[register] = value
            else:
                raise CallError(f"{what_it_is(function)} is called, which is no function", span=span)
        action = steps[at](frame)
        at += 1


def _wrong_count(code: Code, count: int, span: Any) -> CallError:
    return CallError(f"{code.name} takes {code.arity} arguments, got {count}", span=span)


def _too_deep(span: Any) -> UserError:
    hint = "a call in tail position needs no room: pass the result so far as an argument"
    return UserError(f"the recursion did not end within {MOST_CALLS} calls inside of one another", span=span, hint=hint)
