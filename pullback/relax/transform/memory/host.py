"""The host function: kernel calls on parameters and on ranges of the arena, and what plan.steps say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.errors import InternalError
from pullback.ir.node import Span
from pullback.relax.transform.memory.values import Block, Step, Steps, Value
from pullback.tir import Box, Buffer, Check, HostCall, KernelCall, PrimFunc, Stmt, Unbox, loop, seq, store
from pullback.tir.in_place import share
from pullback.tir.stmt import heap_buffer

POISON = 0xFF  # NaN in every float type, -1 in signed integers
OUT_OF_MEMORY = "out of memory: there is none left for"
_OTHER_BOX = "what is unboxed is not what was boxed"


@dataclass
class Host:
    """The host function with the kernels and host functions that it calls, directly or not; ``sources`` says for each
    statement which lowered step it is (or None: a copy or poison), ``spans`` where the op of that stands."""

    function: PrimFunc
    kernels: dict[str, PrimFunc]
    inner: dict[str, PrimFunc]
    sources: list[int | None]
    spans: list[Span | None]


def host_function(
    name: str,
    steps: Steps,
    order: list[Step],
    fresh: list[Value],
    arena_bytes: int,
    poison: bool,
    attrs: Mapping[str, Any],
    messages: list[str],
) -> Host:
    """The statements for the steps in this order, a function with these attributes; with ``poison`` dead memory is
    overwritten between them. What checks say is added to ``messages``."""
    return _Writer(name, steps, order, fresh, arena_bytes, poison, attrs, messages).write()


@dataclass
class _Writer:
    name: str
    steps: Steps
    order: list[Step]
    fresh: list[Value]
    arena_bytes: int
    poison: bool
    attrs: Mapping[str, Any]
    messages: list[str]
    kernels: dict[str, PrimFunc] = field(default_factory=dict)
    inner: dict[str, PrimFunc] = field(default_factory=dict)
    statements: list[Stmt] = field(default_factory=list)
    sources: list[int | None] = field(default_factory=list)
    spans: list[Span | None] = field(default_factory=list)

    def write(self) -> Host:
        declared = [*self.steps.inputs, *(v for v, _ in self.steps.constants), *self.fresh]
        is_inner = bool(self.attrs.get("inner"))
        self.heap = heap_buffer("global" if is_inner else "heap") if self.steps.need_heap else None
        self.buffers = {(v.memory.place, v.memory.index): Buffer(v.name, v.shape, v.dtype) for v in declared}
        if self.poison:
            self.fill(Block("arena", self.arena_bytes))
            for value in self.fresh:
                self.fill(value.memory)
        last = {v.memory: k for k, step in enumerate(self.order) for v in step.values}
        for k, step in enumerate(self.order):
            self.step(step)
            if self.poison:
                for block in dict.fromkeys(v.memory for v in step.values):
                    if block.place == "arena" and last[block] == k:
                        self.fill(block)
        params = tuple(self.buffers.values())
        attrs = {"kind": "host"} | dict(self.attrs)
        if self.heap is not None and is_inner:
            params += (self.heap,)
        elif self.heap is not None and self.poison:
            attrs["poison"] = True
        function = PrimFunc(self.name, params, seq(*self.statements), attrs)
        return Host(function, self.kernels, self.inner, self.sources, self.spans)

    def buffer(self, value: Value) -> Buffer:
        block = value.memory
        if block.place == "arena":
            return Buffer(value.name, value.shape, value.dtype, "arena", block.offset)
        return self.buffers[block.place, block.index]

    def step(self, step: Step) -> None:
        self.sources.append(step.source)
        self.spans.append(step.span)
        if step.message is not None:
            self.messages.append(step.message)
            self.statements.append(Check(self.buffer(step.inputs[0]), len(self.messages)))
            return
        if step.boxing:
            self.statements.append(self.boxing(step))
            return
        kept = [v for k, v in enumerate(step.outputs) if k not in step.shared]
        buffers = tuple(self.buffer(v) for v in (*step.inputs, *kept, *step.workspaces))
        if step.control is None:
            self.statements.append(KernelCall(self.kernel(step), buffers))
        else:
            heap = (self.heap,) if step.needs_heap and self.heap is not None else ()
            self.statements.append(HostCall(self.driver(step), (*buffers, *heap)))

    def boxing(self, step: Step) -> Stmt:
        inputs, outputs = (tuple(map(self.buffer, values)) for values in (step.inputs, step.outputs))
        message = f"{OUT_OF_MEMORY} what is kept for the gradient" if step.boxing == "box" else _OTHER_BOX
        self.messages.append(message if step.span is None else f"{message}\n{step.span.caret()}")
        if step.boxing == "unbox":
            return Unbox(inputs[0], outputs, step.kind, len(self.messages))
        assert self.heap is not None
        return Box(outputs[0], inputs, self.heap, step.kind, len(self.messages))

    def driver(self, step: Step) -> str:
        """The name of the host function that runs a branch, a loop or a recursive function."""
        control = step.control
        assert control is not None
        name = control.name + "".join(f"_in_place_{o}_{i}" for o, i in sorted(step.shared.items()))
        driver = control.driver(name, step)
        if driver is not None:
            self.inner[name] = driver
        self.inner |= control.inner
        self.kernels |= control.kernels
        return name

    def kernel(self, step: Step) -> str:
        """The kernel's name; with shared memory, of its in-place variant."""
        function = self.steps.kernels[step.kernel]
        if step.shared:
            suffix = "_".join(f"{o}_{i}" for o, i in sorted(step.shared.items()))
            name = f"{step.kernel}_in_place_{suffix}"
            if name not in self.kernels:
                pairs = {function.buffers[len(step.inputs) + o]: function.buffers[i] for o, i in step.shared.items()}
                function = share(function, name, pairs)
        else:
            name = step.kernel
        self.kernels.setdefault(name, function)
        return name

    def fill(self, block: Block) -> None:
        """Overwrite the block with poison."""
        if block.nbytes == 0:
            return
        name = f"poison_{block.nbytes}"
        if block.place == "arena":
            target = Buffer("dead", (block.nbytes,), "uint8", "arena", block.offset)
        elif block.place == "output":
            target = self.buffers[block.place, block.index]
        else:
            raise InternalError(f"an {block.place} is not to be poisoned")
        bytes_ = Buffer("dead", (block.nbytes,), "uint8")
        body = loop("i", block.nbytes, lambda i: store(bytes_, i, POISON), "vectorized")
        self.kernels[name] = PrimFunc(name, (bytes_,), body)
        self.statements.append(KernelCall(name, (target,)))
        self.sources.append(None)
        self.spans.append(None)
