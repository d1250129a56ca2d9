"""Branches and loops as steps of a plan: their regions are planned by themselves, and a *driver* runs these.

    R.loop((), (a,), (x,), (w,), body=f, length=n)       loop_1(a, x, w, new_a, y, steps, number, arena):
                                                             copy(a, new_a)
                                                             for k in range(n):
                                                                 number = k
                                                                 f(number, new_a, x[k], w, y[k]; arena)
                                                             steps = n

The driver is a host function of the loop IR. To the plan around it, it is one more kernel: it reads the operands and
the regions' constants, writes the results, and has the regions' arena for a workspace. Carries lie where the results
are wanted, and the body, planned with its carries donated, overwrites them there. Rows of xs and ys are pieces of the
whole, and nothing is copied. An initial value that dies here may lie there from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.relax.control import BRANCH
from pullback.relax.expr import Call
from pullback.relax.struct_info import TupleStructInfo
from pullback.relax.transform.memory.values import Step, copy_kernel, fill_kernel
from pullback.tir import (
    Buffer,
    BufferLoad,
    For,
    HostCall,
    If,
    KernelCall,
    PrimExpr,
    PrimFunc,
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

if TYPE_CHECKING:
    from pullback.relax.transform.plan_memory import Plan


def _counts(call: Call) -> tuple[int, int, int, int]:
    """How many of the tensors that a loop takes are counts, carries, xs and invariants."""
    sizes = [len(a.struct_info.fields) if isinstance(a.struct_info, TupleStructInfo) else 1 for a in call.args]
    return tuple(sizes)  # type: ignore[return-value]


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
            most = "its count of steps" if length is None else f"max_steps={length}"
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
    def workspaces(self) -> list[Buffer]:
        """Buffers of which the driver gets one each."""
        arena = Buffer("arena", (max(p.arena_bytes for p in self.plans.values()),), "uint8")
        if self.is_branch:
            return [arena]
        flag = [Buffer("goes_on", (), "bool")] if "condition" in self.plans else []
        return [arena, Buffer("number", (), "int64"), *flag]

    def may_share(self, output: int, source: int) -> bool:
        """Whether a result may lie where an operand does: a carry where it began."""
        if self.is_branch:
            return False
        counts, carries, _, _ = _counts(self.call)
        return output < carries and source == counts + output

    def driver(self, name: str, step: Step) -> PrimFunc:
        """The host function that takes the step's inputs, those outputs that share no memory with one, and its
        workspaces."""
        kept = [v for k, v in enumerate(step.outputs) if k not in step.shared]
        params = [Buffer(v.name, v.shape, v.dtype) for v in (*step.inputs, *kept, *step.workspaces)]
        inputs, rest = params[: len(step.inputs)], iter(params[len(step.inputs) :])
        outputs = [inputs[step.shared[k]] if k in step.shared else next(rest) for k in range(len(step.outputs))]
        workspaces = list(rest)
        write = self._branch if self.is_branch else self._loop
        body = write(step, inputs, outputs, workspaces)
        numbers = {"inputs": len(inputs), "outputs": tuple(params.index(b) for b in outputs)}
        attrs = {"kind": "host", "inner": True, **numbers}
        return PrimFunc(name, tuple(params), body, attrs)

    # -- branches

    def _branch(self, step: Step, inputs: list[Buffer], outputs: list[Buffer], workspaces: list[Buffer]) -> Stmt:
        condition, *rest = inputs
        operands = rest[: len(rest) - len(self.constants)]
        constants = iter(rest[len(operands) :])
        calls = {}
        for name, plan in self.plans.items():
            own = [next(constants) for _ in plan.constants]
            calls[name] = HostCall(plan.host.name, (*operands, *own, *outputs), (), workspaces[0])
        return If(BufferLoad(condition, ()), calls["then"], calls["otherwise"])

    # -- loops

    def _loop(self, step: Step, inputs: list[Buffer], outputs: list[Buffer], workspaces: list[Buffer]) -> Stmt:
        counts, carry_count, x_count, invariant_count = _counts(self.call)
        rest = iter(inputs)
        (count,) = [next(rest) for _ in range(counts)] or [None]
        initial = [next(rest) for _ in range(carry_count)]
        xs = [next(rest) for _ in range(x_count)]
        invariants = [next(rest) for _ in range(invariant_count)]
        constants = {name: [next(rest) for _ in plan.constants] for name, plan in self.plans.items()}
        carries, ys, steps = outputs[:carry_count], outputs[carry_count:-1], outputs[-1]
        arena, number, *flag = workspaces
        length, is_reverse = self.call.attrs["length"], self.call.attrs["reverse"]
        limit = maximum(BufferLoad(count, ()), 0) if count is not None else None if length is None else as_expr(length)

        begin: list[Stmt] = []
        if count is not None and length is not None:
            assert self.code is not None
            begin.append(If(BufferLoad(count, ()) > length, Stop(self.code)))
        for value, source, target in zip(step.outputs, initial, carries, strict=False):
            if source is not target:
                begin.append(self._kernel(copy_kernel(value), source, target))
        if _is_open_ended(self.call):
            values = step.outputs[carry_count:-1]
            begin += [self._kernel(fill_kernel(v), b) for v, b in zip(values, ys, strict=True)]

        def call(name: str, at: Any, results: list[Buffer]) -> Stmt:
            whole = (*invariants, *constants[name])
            taken = xs if name == "body" else []
            rows = [0, *(0 for _ in carries), *(at for _ in taken), *(0 for _ in whole), *(at for _ in results)]
            if name == "condition":
                rows = []
            return HostCall(
                self.plans[name].host.name, (number, *carries, *taken, *whole, *results), tuple(rows), arena
            )

        if not flag:
            k = Var("k")
            assert limit is not None
            at: PrimExpr = limit - 1 - k if is_reverse else as_expr(k)
            body = seq(store(number, (), at), call("body", at, ys))
            return seq(*begin, For(k, limit, body), store(steps, (), limit))
        done, now = BufferLoad(steps, ()), BufferLoad(number, ())
        goes_on = BufferLoad(flag[0], ())
        following: PrimExpr = done
        if is_reverse:
            assert limit is not None
            following = select(done < limit, limit - 1 - done, limit)
        ask = seq(store(number, (), following), call("condition", None, flag))
        body = seq(call("body", now, ys), store(steps, (), done + 1), ask)
        again = goes_on if limit is None else goes_on & (done < limit)
        end = If(goes_on, Stop(self.code)) if self.code is not None else None
        return seq(*begin, store(steps, (), 0), ask, While(again, body), end)

    def _kernel(self, kernel: PrimFunc, *buffers: Buffer) -> Stmt:
        self.kernels[kernel.name] = kernel
        return KernelCall(kernel.name, buffers)


def _has_limit(call: Call) -> bool:
    """Whether the loop may need more steps than it may take."""
    is_counted = not isinstance(call.args[0].struct_info, TupleStructInfo)
    asked = call.attrs["condition"] is not None
    return (asked or is_counted) if call.attrs["length"] is not None else (asked and is_counted)


def _is_open_ended(call: Call) -> bool:
    """Whether it is only known when it runs how many steps there are."""
    return call.attrs["condition"] is not None or not isinstance(call.args[0].struct_info, TupleStructInfo)
