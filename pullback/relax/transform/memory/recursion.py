"""Recursive functions as steps of a plan.

    R.recurse((a, w), function=f, label="f")        recurse_1(a, w, y; heap):
                                                        T.recur("recurse_1_function", a, w, y, heap=heap, …)

    f has the plan of a region, and in it R.call_self((b, w), "f", …) is a step that runs recurse_1, too.

The *driver* ``recurse_1`` counts calls, and gives each an arena of its own: memory of the heap, last in, first out.
Constants are operands that all calls hand on. Which there are is found out before the function is planned, as its calls
of itself have all of them for inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax.boxes import NULL
from pullback.relax.expr import Call, Constant, Function, Tuple, TupleGetItem
from pullback.relax.recursion import MAX_DEPTH, SELF
from pullback.relax.regions import regions
from pullback.relax.struct_info import as_tensor
from pullback.relax.transform.memory.host import OUT_OF_MEMORY
from pullback.relax.transform.memory.values import Step, constant_key
from pullback.tir import Buffer, HostCall, PrimFunc, Recur
from pullback.tir.expr import ADDRESS
from pullback.tir.stmt import heap_buffer
from pullback.tir.visitor import walk

if TYPE_CHECKING:
    from pullback.relax.transform.plan_memory import Plan

STACK_BYTES = 4 << 20  # of the machine's stack, which all calls of recursive functions may take
_FRAME_BYTES = 256  # of a host function, at the most, but for the pointers that it hands on


@dataclass(eq=False)
class Recursion:
    """The first call of a recursive function; ``too_deep`` and ``no_memory`` are the status codes of all of them."""

    name: str
    call: Call
    constants: list[np.ndarray]
    too_deep: int
    no_memory: int
    most: int = field(init=False)  # calls inside of one another
    plan: Plan = field(init=False)
    whole: PrimFunc = field(init=False)  # the driver

    @staticmethod
    def of(name: str, call: Call, around: Mapping[str, Recursion], messages: list[str]) -> Recursion:
        """``around``: the recursive functions that this one is in, by their labels. ``messages``: those of the whole
        function, to which two are added."""
        place = "" if call.span is None else f"\n{call.span.caret()}"
        label = call.attrs["label"]
        messages.append("")  # which says how many
        messages.append(f"{OUT_OF_MEMORY} the calls of {label}{place}")
        found = {constant_key(data): data for data in _constants(call.attrs["function"], around)}
        return Recursion(name, call, list(found.values()), len(messages) - 1, len(messages))

    def finish(self, plan: Plan) -> None:
        """Take the plan of the function, and write the driver."""
        self.plan = plan
        numbers = {constant_key(data): k for k, data in enumerate(self.constants)}
        operands = [Buffer("operand", i.sizes, i.dtype) for i in plan.inputs]
        constants = [Buffer("constant", data.shape, data.dtype.name) for data in self.constants]
        results = [Buffer("result", i.sizes, i.dtype) for i in plan.outputs]
        heap = heap_buffer()
        own = (constants[numbers[constant_key(data)]] for data in plan.constants)
        buffers = (*operands, *own, *(results[k] for k in plan.fresh), *([heap] if plan.needs_heap else []))
        params = (*operands, *constants, *results, heap)
        inputs = len(operands) + len(constants)
        attrs = {"inputs": inputs, "outputs": tuple(range(inputs, inputs + len(results)))}
        body = Recur(plan.host.name, buffers, heap, plan.arena_bytes, 1, self.too_deep, self.no_memory)
        self.whole = PrimFunc(self.name, params, body, {"kind": "host", "inner": True, **attrs})
        self.most = self.as_many_as_fit(self.stack_bytes(self.whole, set()))
        self.whole = replace(self.whole, body=replace(body, most=self.most))
        place = "" if self.call.span is None else f"\n{self.call.span.caret()}"
        message = f"the recursion of {self.call.attrs['label']} did not end within max_depth={self.most} calls"
        plan.messages[self.too_deep - 1] = message + place
        self.complete(plan)

    def complete(self, plan: Plan) -> bool:
        """Make the driver known to those plans of regions inside that call it; whether this is one."""
        inside = [c for c in plan.controls.values() if not isinstance(c, SelfCall)]
        calls = any(isinstance(c, SelfCall) and c.recursion is self for c in plan.controls.values())
        found = [self.complete(p) for c in inside for p in c.plans.values()]
        if calls or any(found):
            plan.inner.update(self.inner)
        return calls or any(found)

    def as_many_as_fit(self, size: int) -> int:
        """How many calls there may be inside of one another, each of which takes ``size`` bytes of the machine's stack.
        Raises a UserError where that are fewer than the user wants."""
        wanted = self.call.attrs["max_depth"]
        if wanted is not None and wanted * size > STACK_BYTES:
            raise UserError(
                f"max_depth={wanted} calls of {self.call.attrs['label']} inside of one another may take"
                f" {wanted * size >> 10} KiB of the stack, and {STACK_BYTES >> 10} KiB are allowed",
                span=self.call.span,
                hint=f'as many as fit: R.func_attr({{"max_depth": {STACK_BYTES // size}}}) in the function',
            )
        return wanted or min(MAX_DEPTH, STACK_BYTES // size)

    def stack_bytes(self, host: PrimFunc, entered: set[str]) -> int:
        """What a host function takes of the stack, with those that it calls up to the next call of a recursive one."""
        calls = [n for n in walk(host.body) if isinstance(n, (HostCall, Recur))]
        pointers = max((len(n.buffers) for n in calls), default=0)
        deeper = [0]
        for callee in {n.name for n in calls} - entered:
            function = self.inner.get(callee)
            if function is not None and not isinstance(function.body, Recur):
                deeper.append(self.stack_bytes(function, {*entered, callee}))
        return _FRAME_BYTES + 8 * pointers + max(deeper)

    # -- as a step

    @property
    def plans(self) -> dict[str, Plan]:
        return {"function": self.plan}

    @property
    def kernels(self) -> dict[str, PrimFunc]:
        return self.plan.kernels

    @property
    def inner(self) -> dict[str, PrimFunc]:
        """The host functions of all calls."""
        return {self.name: self.whole, self.plan.host.name: self.plan.host, **self.plan.inner}

    may_fail = needs_heap = True

    @cached_property
    def workspaces(self) -> list[Buffer]:
        return []

    def may_share(self, output: int, source: int) -> bool:
        return False

    def driver(self, name: str, step: Step) -> PrimFunc:
        return self.whole


@dataclass(eq=False)
class SelfCall:
    """A recursive function's call of itself, as a step: it runs the driver, which is written when the function has been
    planned."""

    recursion: Recursion
    call: Call

    @property
    def name(self) -> str:
        return self.recursion.name

    @property
    def constants(self) -> list[np.ndarray]:
        return self.recursion.constants

    may_fail = needs_heap = True

    @cached_property
    def plans(self) -> dict[str, Plan]:
        return {}

    @cached_property
    def kernels(self) -> dict[str, PrimFunc]:
        return {}

    @cached_property
    def inner(self) -> dict[str, PrimFunc]:
        return {}

    @cached_property
    def workspaces(self) -> list[Buffer]:
        return []

    def may_share(self, output: int, source: int) -> bool:
        return False

    def driver(self, name: str, step: Step) -> None:
        """There is none yet."""
        return


def _constants(function: Function, around: Mapping[str, Recursion]) -> Iterator[np.ndarray]:
    """The constants in a lowered function, and in its regions, and those that calls of functions around it take."""
    yield from _in(function.body.body)
    for binding in function.bindings:
        value: Any = binding.value
        if isinstance(value, Call):
            if value.op is NULL:
                yield np.zeros(as_tensor(value.struct_info).static_shape, ADDRESS)
            if value.op is SELF and value.attrs["label"] in around:
                yield from around[value.attrs["label"]].constants
            for argument in value.args:
                yield from _in(argument)
            for _, region in regions(value):
                yield from _constants(region, around)
        else:
            yield from _in(value)


def _in(expr: Any) -> Iterator[np.ndarray]:
    if isinstance(expr, Constant):
        yield expr.data
    elif isinstance(expr, Tuple):
        for field_ in expr.fields:
            yield from _in(field_)
    elif isinstance(expr, TupleGetItem):
        yield from _in(expr.tuple_value)
