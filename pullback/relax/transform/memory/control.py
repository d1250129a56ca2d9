"""Branches and loops as steps of a plan: their regions are planned by themselves, and a *driver* runs these.

    R.loop((), (a,), (x,), (w,), body=f, length=n)       loop_1(a, x, w, new_a, y, steps, number, arena):
                                                             copy(a, new_a)
                                                             for k in range(n):
                                                                 number = k
                                                                 f(number, new_a, x[k], w, y[k]; arena)
                                                             steps = n

A region that makes boxes gets a heap, by way of the driver. A loop none of whose results is a handle has no use for the
boxes of a step once that is done, and gives them back.

The driver is a host function of the loop IR. To the plan around it, it is one more kernel: it reads the operands and
the regions' constants, writes the results, and has the regions' arena for a workspace. Carries lie where the results
are wanted, and the body, planned with its carries donated, overwrites them there; a large one that it would have to
copy there has two places instead, which take turns. Rows of xs and ys are pieces of the whole, and nothing is copied.
An initial value that dies here may lie where the result is wanted from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pullback.relax.boxes import is_handle
from pullback.relax.control import BRANCH
from pullback.relax.expr import Call
from pullback.relax.struct_info import TupleStructInfo, as_tuple, fields_of, flat_infos
from pullback.relax.transform.memory.values import Step, copy_kernel, fill_kernel, flatten_info
from pullback.tir import (
    Buffer,
    BufferLoad,
    For,
    HostCall,
    If,
    IntImm,
    KernelCall,
    PrimExpr,
    PrimFunc,
    Release,
    Stmt,
    Stop,
    Var,
    While,
    as_expr,
    maximum,
    select,
    seq,
    store,
)
from pullback.tir.expr import ADDRESS
from pullback.tir.stmt import heap_buffer

if TYPE_CHECKING:
    from pullback.relax.transform.plan_memory import Plan


def _counts(call: Call) -> tuple[int, int, int, int]:
    """How many of the tensors that a loop takes are counts, carries, xs and invariants."""
    counts, carries, xs, invariants = (len(fields_of(a.struct_info)) for a in call.args)
    return counts, carries, xs, invariants


def copied(plan: Plan) -> dict[int, int]:
    """The bytes of each parameter of a region that its host function copies something to, by the parameter's number."""
    numbers = {b: k for k, b in enumerate(plan.host.buffers)}
    statements = zip(getattr(plan.host.body, "stmts", (plan.host.body,)), plan.sources, strict=True)
    copies = [s for s, source in statements if source is None and isinstance(s, KernelCall) and len(s.buffers) == 2]
    found = [(numbers[s.buffers[1]], s.buffers[1]) for s in copies if s.buffers[1] in numbers]
    return {k: b.nbytes for k, b in found}


def _only(buffer: Buffer) -> BufferLoad:
    """The one element of a buffer, which may be that of a scalar's view."""
    return BufferLoad(buffer, (as_expr(0),) * len(buffer.shape))


def carried(call: Call) -> dict[int, int]:
    """What the body of a loop donates: the number of a result -> that of the parameter which it is in the next step."""
    return {k: 1 + k for k in range(_counts(call)[1])}


@dataclass(eq=False)
class Control:
    """A branch or a loop; ``plans`` are those of its regions, ``code`` is the status of a loop that needs too many
    steps."""

    name: str
    call: Call
    plans: dict[str, Plan]
    code: int | None
    kernels: dict[str, PrimFunc] = field(default_factory=dict)

    @staticmethod
    def of(name: str, call: Call, plans: dict[str, Plan], messages: list[str]) -> Control:
        """``messages``: those of the whole function; one is added if the loop may need too many steps."""
        code = None
        if call.op is not BRANCH and _has_limit(call):
            length = call.attrs["length"]
            most = call.attrs["body"].attrs.get("max_steps", length)  # of a loop over segments, as the user wrote it
            most = "its count of steps" if most is None else f"max_steps={most}"
            message = f"the loop did not end within {most}"
            messages.append(message if call.span is None else f"{message}\n{call.span.caret()}")
            code = len(messages)
        kernels = {k: f for p in plans.values() for k, f in p.kernels.items()}
        return Control(name, call, plans, code, kernels)

    @property
    def is_branch(self) -> bool:
        return self.call.op is BRANCH

    @cached_property
    def constants(self) -> list[np.ndarray]:
        """Of all regions, one after another."""
        return [c for plan in self.plans.values() for c in plan.constants]

    @cached_property
    def inner(self) -> dict[str, PrimFunc]:
        """The host functions that the driver calls, directly or not."""
        found = {p.host.name: p.host for p in self.plans.values()}
        return found | {name: f for p in self.plans.values() for name, f in p.inner.items()}

    @property
    def may_fail(self) -> bool:
        return self.code is not None or any(p.may_fail for p in self.plans.values())

    @cached_property
    def needs_heap(self) -> bool:
        """Whether boxes are made in it."""
        return any(p.needs_heap for p in self.plans.values())

    @property
    def gives_back(self) -> bool:
        """Whether boxes that a step makes are not read after it."""
        return self.needs_heap and not self.is_branch and not any(map(is_handle, flat_infos(self.call.struct_info)))

    @cached_property
    def workspaces(self) -> list[Buffer]:
        """Buffers of which the driver gets one each."""
        arena = Buffer("arena", (max(p.arena_bytes for p in self.plans.values()),), "uint8")
        if self.is_branch:
            return [arena]
        flag = [Buffer("goes_on", (), "bool")] if "condition" in self.plans else []
        mark = [Buffer("mark", (), ADDRESS)] if self.gives_back else []
        infos = flatten_info(as_tuple(self.call.struct_info).fields[0])
        places = [Buffer("carry", infos[k].sizes, infos[k].dtype) for k in self.swapped]
        return [arena, Buffer("number", (), "int64"), *mark, *flag, *places]

    @cached_property
    def swapped(self) -> list[int]:
        """The carries that have two places."""
        return [k for k in carried(self.call) if k not in self.plans["body"].donated]

    def may_share(self, output: int, source: int) -> bool:
        """Whether a result may lie where an operand does: a carry where it began."""
        if self.is_branch:
            return False
        counts, carries, _, _ = _counts(self.call)
        return output < carries and source == counts + output

    def driver(self, name: str, step: Step) -> PrimFunc:
        """The host function that takes the step's inputs, those outputs that share no memory with one, its workspaces
        and, if it needs it, the heap."""
        kept = [v for k, v in enumerate(step.outputs) if k not in step.shared]
        params = [Buffer(v.name, v.shape, v.dtype) for v in (*step.inputs, *kept, *step.workspaces)]
        inputs, rest = params[: len(step.inputs)], iter(params[len(step.inputs) :])
        outputs = [inputs[step.shared[k]] if k in step.shared else next(rest) for k in range(len(step.outputs))]
        workspaces = list(rest)
        heap = heap_buffer() if self.needs_heap else None
        params += [] if heap is None else [heap]
        write = self._branch if self.is_branch else self._loop
        body = write(step, inputs, outputs, workspaces, heap)
        numbers = {"inputs": len(inputs), "outputs": tuple(params.index(b) for b in outputs)}
        attrs = {"kind": "host", "inner": True, **numbers}
        return PrimFunc(name, tuple(params), body, attrs)

    # -- branches

    def _branch(
        self, step: Step, inputs: list[Buffer], outputs: list[Buffer], workspaces: list[Buffer], heap: Buffer | None
    ) -> Stmt:
        condition, *rest = inputs
        operands = rest[: len(rest) - len(self.constants)]
        constants = iter(rest[len(operands) :])
        calls = {}
        for name, plan in self.plans.items():
            own = [next(constants) for _ in plan.constants]
            buffers = (*operands, *own, *outputs, *_given(heap, plan))
            calls[name] = HostCall(plan.host.name, buffers, (), workspaces[0])
        return If(_only(condition), calls["then"], calls["otherwise"])

    # -- loops

    def _loop(
        self, step: Step, inputs: list[Buffer], outputs: list[Buffer], workspaces: list[Buffer], heap: Buffer | None
    ) -> Stmt:
        return _Driver(self, step, inputs, outputs, workspaces, heap).write()


class _Driver:
    """Writes the driver of a loop.

    A carry that the body does not overwrite has two places that take turns: *even* steps read the first and write the
    second, *odd* ones the other way round. So the loop takes two steps at a time.
    """

    def __init__(
        self,
        control: Control,
        step: Step,
        inputs: list[Buffer],
        outputs: list[Buffer],
        workspaces: list[Buffer],
        heap: Buffer | None,
    ) -> None:
        self.control, self.call, self.values, self.heap = control, control.call, step.outputs, heap
        counts, carries, xs, invariants = _counts(self.call)
        rest = iter(inputs)
        self.count = next(rest) if counts else None
        self.initial = [next(rest) for _ in range(carries)]
        self.xs = [next(rest) for _ in range(xs)]
        self.invariants = [next(rest) for _ in range(invariants)]
        self.constants = {name: [next(rest) for _ in plan.constants] for name, plan in control.plans.items()}
        self.carries, self.ys, self.steps = outputs[:carries], outputs[carries:-1], outputs[-1]
        rest = iter(workspaces)
        self.arena, self.number = next(rest), next(rest)
        self.mark = next(rest) if control.gives_back else None
        self.flag = next(rest) if "condition" in control.plans else None
        self.length, self.is_reverse = self.call.attrs["length"], self.call.attrs["reverse"]
        given = _only(self.count) if self.count is not None else None
        self.limit = maximum(given, 0) if given is not None else None if self.length is None else as_expr(self.length)
        others = dict(zip(control.swapped, rest, strict=True))
        is_odd = self.is_static and self.length % 2 == 1  # then the last step is an even one, which writes the second
        self.first = [others[k] if k in others and is_odd else c for k, c in enumerate(self.carries)]
        self.second = [c if is_odd else others.get(k, c) for k, c in enumerate(self.carries)]

    @property
    def is_static(self) -> bool:
        """Whether the number of steps is known."""
        return not _is_open_ended(self.call)

    def write(self) -> Stmt:
        loop = self.asking() if self.flag is not None else self.counting()
        return seq(*self.begin(), loop, *self.end())

    # -- before and after the steps

    def begin(self) -> list[Stmt]:
        """A count that is too large, the carries' initial values, and zeros where there may be no step."""
        found: list[Stmt] = []
        if self.mark is not None and self.heap is not None:
            found.append(store(self.mark, (), BufferLoad(self.heap, (as_expr(0),))))
        if self.count is not None and self.length is not None:
            assert self.control.code is not None
            found.append(If(_only(self.count) > self.length, Stop(self.control.code)))
        for value, source, target in zip(self.values, self.initial, self.first, strict=False):
            if source is not target:
                found.append(self.kernel(copy_kernel(value), source, target))
        if not self.is_static:
            values = self.values[len(self.carries) : -1]
            found += [self.kernel(fill_kernel(v), b) for v, b in zip(values, self.ys, strict=True)]
        return found

    def end(self) -> list[Stmt]:
        """Carries where the results are wanted, after an odd number of steps."""
        moved = [
            self.kernel(copy_kernel(value), place, wanted)
            for value, place, wanted in zip(self.values, self.second, self.carries, strict=False)
            if place is not wanted
        ]
        if self.is_static or not moved:
            return []
        return [If((BufferLoad(self.steps, ()) % 2).equal(1), seq(*moved))]

    def kernel(self, kernel: PrimFunc, *buffers: Buffer) -> Stmt:
        self.control.kernels[kernel.name] = kernel
        return KernelCall(kernel.name, buffers)

    # -- steps

    def body(self, at: PrimExpr, is_even: bool) -> Stmt:
        """A step; ``at``: the number of the rows that it reads and writes."""
        read, written = (self.first, self.second) if is_even else (self.second, self.first)
        whole = (*self.invariants, *self.constants["body"])
        fresh = [written[k] for k in self.control.swapped]
        buffers = (self.number, *read, *self.xs, *whole, *fresh, *self.ys)
        pieces = {len(read) + 1 + k for k in range(len(self.xs))} | set(
            range(len(buffers) - len(self.ys), len(buffers))
        )
        buffers += _given(self.heap, self.control.plans["body"])
        rows = tuple(at if k in pieces else as_expr(0) for k in range(len(buffers)))
        call = HostCall(self.control.plans["body"].host.name, buffers, rows if pieces else (), self.arena)
        return seq(call, Release(self.heap, self.mark)) if self.mark is not None and self.heap is not None else call

    def counting(self) -> Stmt:
        """So many steps."""
        limit = self.limit
        assert limit is not None

        def step(k: PrimExpr, is_even: bool) -> Stmt:
            at = limit - 1 - k if self.is_reverse else k
            return seq(store(self.number, (), at), self.body(at, is_even))

        k = Var("k")
        if not self.control.swapped:
            return seq(For(k, limit, step(k, True)), store(self.steps, (), limit))
        two = For(k, limit // 2, seq(step(k * 2, True), step(k * 2 + 1, False)))
        last = If((limit % 2).equal(1), step(limit - 1, True))
        if isinstance(limit, IntImm):
            return seq(two, last.then if limit.value % 2 else None, store(self.steps, (), limit))
        return seq(two, last, store(self.steps, (), limit))

    def asking(self) -> Stmt:
        """Steps until the condition is false."""
        flag, limit = self.flag, self.limit
        assert flag is not None
        done, now, goes_on = BufferLoad(self.steps, ()), BufferLoad(self.number, ()), BufferLoad(flag, ())
        following: PrimExpr = done
        if self.is_reverse:
            assert limit is not None
            following = select(done < limit, limit - 1 - done, limit)
        name = self.control.plans["condition"].host.name

        def ask(carries: list[Buffer]) -> Stmt:
            buffers = (self.number, *carries, *self.invariants, *self.constants["condition"], flag)
            buffers += _given(self.heap, self.control.plans["condition"])
            return seq(store(self.number, (), following), HostCall(name, buffers, (), self.arena))

        def step(is_even: bool) -> Stmt:
            after = self.second if is_even else self.first
            return seq(self.body(now, is_even), store(self.steps, (), done + 1), ask(after))

        again = goes_on if limit is None else goes_on & (done < limit)
        steps = seq(step(True), If(again, step(False))) if self.control.swapped else step(True)
        end = If(goes_on, Stop(self.control.code)) if self.control.code is not None else None
        return seq(store(self.steps, (), 0), ask(self.first), While(again, steps), end)


def _given(heap: Buffer | None, region: Plan) -> tuple[Buffer, ...]:
    """What a region takes of the heap."""
    return (heap,) if heap is not None and region.needs_heap else ()


def _has_limit(call: Call) -> bool:
    """Whether the loop may need more steps than it may take."""
    is_counted = not isinstance(call.args[0].struct_info, TupleStructInfo)
    asked = call.attrs["condition"] is not None
    return (asked or is_counted) if call.attrs["length"] is not None else (asked and is_counted)


def _is_open_ended(call: Call) -> bool:
    """Whether it is only known when it runs how many steps there are."""
    return call.attrs["condition"] is not None or not isinstance(call.args[0].struct_info, TupleStructInfo)
