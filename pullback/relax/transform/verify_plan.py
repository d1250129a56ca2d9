"""VerifyPlan: whether a memory plan computes what the lowered function says. Shares no code with the planner.

The host function is executed on symbols: memory holds, for each range of bytes, the name of the value that was last
written there. Each statement has to be a step of the function, each kernel has to find the values that the function
passes to it, and in the end the results have to be where the caller looks for them. So whatever overlaps, is dropped,
comes in the wrong order or is overwritten too early is found, whatever the planner's reasons were.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.ir.node import Node, structure
from pullback.relax.boxes import BOX, NULL, UNBOX, kind_of
from pullback.relax.expr import Call, Constant, Function, Tuple, TupleGetItem
from pullback.relax.op_calls import is_call_tir, kernel_name, op_of
from pullback.relax.regions import is_control, regions
from pullback.relax.struct_info import StructInfo, TupleStructInfo, as_tensor, fields_of
from pullback.relax.transform.compose import is_view
from pullback.relax.transform.lower_to_tir import is_check
from pullback.relax.transform.memory.control import Control
from pullback.relax.transform.memory.recursion import Recursion, SelfCall
from pullback.relax.transform.memory.values import nested_as
from pullback.relax.transform.plan_memory import Plan, flatten_info
from pullback.relax.transform.verify_control import verify_driver
from pullback.relax.transform.verify_recursion import verify_recursion
from pullback.tir.access_order import reads_come_first
from pullback.tir.expr import ADDRESS, Binary, Buffer, BufferLoad, IntImm, PrimExpr, Var, nbytes
from pullback.tir.polynomial import same
from pullback.tir.stmt import (
    Allocate,
    Box,
    BufferStore,
    Check,
    For,
    HostCall,
    KernelCall,
    Let,
    PrimFunc,
    Recur,
    Seq,
    Stop,
    Unbox,
)
from pullback.tir.visitor import substitute, walk

Name = tuple[Any, ...]  # of a value: ("input", number), ("constant", dtype, shape, bytes) or ("call", number, output)


class PlanError(InternalError):
    """A memory plan that would compute something else."""


@dataclass(frozen=True)
class _Call:
    """A kernel call of the lowered function, (``message``) one of its checks, (``control``) a branch or a loop, or
    (``boxing``) a box or unbox."""

    kernel: str
    inputs: tuple[Name, ...]
    outputs: int
    message: str | None = None
    control: Any = None
    boxing: str = ""
    boxed: tuple[StructInfo, ...] = ()  # what is in the box


def verify_plan(
    plan: Plan,
    function: Function,
    module: IRModule,
    donate: Mapping[int, int] | None = None,
    deep: bool = False,
    around: Mapping[str, Recursion] | None = None,
) -> None:
    """Raise a PlanError unless the plan is right. ``deep``: go through the iterations of kernels that work in place
    too, which takes time in proportion to the elements they touch. ``around``: the recursive functions that the
    function is a region of, by their labels."""
    wanted = _Dataflow(function, plan.controls)
    machine = _Machine(plan, wanted, module, dict(donate or {}), deep, around or {})
    machine.run()
    machine.check_end()
    for source, control in plan.controls.items():
        for name, region in regions(wanted.calls[source].control):
            own = control.plans[name]  # what a body overwrites of its carries is right if the driver is
            inner = dict(around or {})
            if isinstance(control, Recursion):
                inner[control.call.attrs["label"]] = control
            verify_plan(own, region, module, own.donated, deep, inner)


class _Dataflow:
    """What the lowered function computes: its calls and checks in order, and the names of its results."""

    def __init__(self, function: Function, controls: Mapping[int, Control | Recursion | SelfCall]) -> None:
        self.env: dict[Any, Any] = {}
        self.controls = controls
        self.calls: list[_Call] = []
        count = 0
        for param in function.params:
            self.env[param], count = _number(param.struct_info, count)
        self.inputs = count
        for binding in function.bindings:
            self.env[binding.var] = self.value(binding.value)
        self.results: list[Name] = _flat(self.tree(function.body.body))

    def value(self, expr: Any) -> Any:
        if is_view(expr):
            return self.tree(expr.args[0])
        if is_check(expr):
            self.calls.append(_Call("", (self.tree(expr.args[0]),), 0, expr.attrs["message"]))
            return ("checked",)
        number = len(self.calls)
        if is_control(expr):
            constants = self.controls[number].constants if number in self.controls else ()
            inputs = [name for a in expr.args for name in _flat(self.tree(a))] + [_constant(c) for c in constants]
            count = len(flatten_info(expr.struct_info))
            self.calls.append(_Call("", tuple(inputs), count, control=expr))
            return nested_as(expr.struct_info, iter([("call", number, k) for k in range(count)]))
        if isinstance(expr, Call) and expr.op is NULL:
            return _constant(np.zeros(as_tensor(expr.struct_info).static_shape, ADDRESS))
        if isinstance(expr, Call) and expr.op in (BOX, UNBOX):
            count = len(flatten_info(expr.struct_info))
            boxed = tuple(a.struct_info for a in expr.args) if expr.op is BOX else fields_of(expr.struct_info)
            self.calls.append(_Call("", tuple(map(self.tree, expr.args)), count, boxing=op_of(expr).short, boxed=boxed))
            return nested_as(expr.struct_info, iter([("call", number, k) for k in range(count)]))
        if not is_call_tir(expr):
            return self.tree(expr)
        count = len(expr.sinfo_args)
        self.calls.append(_Call(kernel_name(expr), tuple(_flat(self.tree(expr.args[1]))), count))
        names = [("call", number, k) for k in range(count)]
        return names[0] if count == 1 else names

    def tree(self, expr: Any) -> Any:
        if isinstance(expr, Constant):
            return _constant(expr.data)
        if isinstance(expr, Tuple):
            return [self.tree(f) for f in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self.tree(expr.tuple_value)[expr.index]
        return self.env[expr]


@dataclass(frozen=True)
class _Range:
    """Bytes of the arena (``where`` None) or of a parameter of the host function."""

    where: Buffer | None
    first: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        return self.where is other.where and self.first < other.end and other.first < self.end


class _Held:
    """What one memory holds: the names of values at ranges that do not overlap, in order."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []
        self.names: list[Name] = []

    def get(self, place: _Range) -> Name | None:
        """The value that lies exactly there."""
        k = bisect_left(self.firsts, place.first)
        found = k < len(self.firsts) and (self.firsts[k], self.ends[k]) == (place.first, place.end)
        return self.names[k] if found else None

    def put(self, place: _Range, name: Name | None) -> None:
        """The value, or nothing, in the place of all that lies there."""
        begin, end = bisect_right(self.ends, place.first), bisect_left(self.firsts, place.end)
        new = [name] if name is not None and place.first < place.end else []
        self.firsts[begin:end] = [place.first] * len(new)
        self.ends[begin:end] = [place.end] * len(new)
        self.names[begin:end] = new


class _Machine:
    """Memory that holds names of values."""

    def __init__(
        self,
        plan: Plan,
        wanted: _Dataflow,
        module: IRModule,
        donate: dict[int, int],
        deep: bool,
        around: Mapping[str, Recursion],
    ) -> None:
        self.around = around
        self.plan, self.wanted, self.module, self.donate, self.deep = plan, wanted, module, donate, deep
        self.memory: dict[Buffer | None, _Held] = {}  # of each parameter, and of the arena
        self.done: set[int] = set()
        self.parameters = plan.host.buffers
        self.known_parameters = frozenset(self.parameters)
        self.statements = plan.host.body.stmts if isinstance(plan.host.body, Seq) else (plan.host.body,)
        checks = [k for k, s in enumerate(self.statements) if self.may_fail(s)]
        self.last_check = checks[-1] if checks else -1
        self.now = -1
        self.first_output = wanted.inputs + len(plan.constants)
        self.may_write = {*self.parameters[self.first_output :], *(self.parameters[i] for i in donate.values())}
        self.proven: dict[tuple[str, str], list[Buffer]] = {}
        names = [("input", k) for k in range(wanted.inputs)] + [_constant(c) for c in plan.constants]
        own_heap = int(plan.needs_heap and bool(plan.host.attrs.get("inner")))
        expected = self.first_output + len(plan.fresh) + own_heap
        self.require(len(self.parameters) == expected, "the buffers are not those of the plan")
        for buffer, name in zip(self.parameters, names, strict=False):
            self.held(self.range(buffer)).put(self.range(buffer), name)

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            self.fail(message)

    def fail(self, message: str) -> NoReturn:
        at = f", statement {self.now}" if 0 <= self.now < len(self.statements) else ""
        raise PlanError(f"the memory plan of {self.plan.host.name} is wrong{at}: {message}")

    # -- memory

    def held(self, place: _Range) -> _Held:
        """What is held in the memory of which the place is a part."""
        return self.memory.setdefault(place.where, _Held())

    def range(self, buffer: Buffer) -> _Range:
        size = buffer.nbytes
        if buffer.scope != "arena":
            self.require(buffer in self.known_parameters, f"{buffer.name} is no parameter")
            return _Range(buffer, 0, size)
        inside = buffer.offset >= 0 and buffer.offset + size <= self.plan.arena_bytes
        self.require(inside, f"{buffer.name} lies outside the arena")
        self.require(buffer.offset % 64 == 0, f"{buffer.name} is not aligned to 64 bytes")
        return _Range(None, buffer.offset, buffer.offset + size)

    def read(self, buffer: Buffer, name: Name) -> None:
        place = self.range(buffer)
        if place.first < place.end:
            found = self.held(place).get(place)
            self.require(found == name, f"{buffer.name} holds {_show(found)} where {_show(name)} is read")

    def write(self, buffer: Buffer, name: Name | None) -> None:
        """``name`` None: something that nobody may read."""
        place = self.range(buffer)
        if place.where is not None:
            self.require(place.where in self.may_write, f"{buffer.name} is written, and it was not donated")
            early = self.now <= self.last_check and place.where not in self.parameters[self.first_output :]
            self.require(not early, f"the donated {buffer.name} is overwritten before the last check")
        self.held(place).put(place, name)

    # -- statements

    def run(self) -> None:
        self.require(len(self.plan.sources) == len(self.statements), "there is not one source for each statement")
        for self.now, (statement, source) in enumerate(zip(self.statements, self.plan.sources, strict=True)):  # noqa: B020
            if source is None:
                self.helper(statement)
                continue
            self.require(0 <= source < len(self.wanted.calls), "the function has no such step")
            self.require(source not in self.done, f"step {source} happens twice")
            self.done.add(source)
            call = self.wanted.calls[source]
            if isinstance(statement, Check):
                self.check(statement, call)
            elif isinstance(statement, HostCall):
                self.control(statement, call, source)
            elif isinstance(statement, (Box, Unbox)):
                self.boxing(statement, call, source)
            elif isinstance(statement, KernelCall):
                self.kernel(statement, call, source)
            else:
                self.fail("neither a kernel call nor a check")
        self.now = -1

    def may_fail(self, statement: Any) -> bool:
        """Whether the statement may end the function."""
        if isinstance(statement, HostCall):
            driver = self.plan.inner.get(statement.name)
            if driver is None:
                self.fail(f"there is no host function {statement.name}")
            return any(
                isinstance(n, (Box, Check, Recur, Stop, Unbox))
                for f in _reached(driver, self.plan.inner)
                for n in walk(f.body)
            )
        return isinstance(statement, (Box, Check, Unbox))

    def heap(self, buffer: Buffer) -> None:
        """What is taken for the heap."""
        is_inner = bool(self.plan.host.attrs.get("inner"))
        is_heap = buffer is self.parameters[-1] if is_inner else buffer.scope == "heap"
        self.require(self.plan.needs_heap and is_heap, f"{buffer.name} is not the heap")

    def boxing(self, statement: Box | Unbox, call: _Call, source: int) -> None:
        """Copies to a new box, or from one: what was boxed, the types say."""
        kind = "box" if isinstance(statement, Box) else "unbox"
        self.require(call.boxing == kind, f"a {kind} where the function has none")
        same = len(statement.fields) == len(call.boxed) and statement.kind == kind_of(call.boxed)
        self.require(same, f"the {kind} is of another kind")
        for buffer, info in zip(statement.fields, call.boxed, strict=True):
            (held,) = flatten_info(info)
            self.require(buffer.nbytes == math.prod(held.sizes) * nbytes(held.dtype), f"{buffer.name} does not fit")
        inputs, outputs = statement.fields, (statement.handle,)
        if isinstance(statement, Box):
            self.heap(statement.heap)
        else:
            inputs, outputs = outputs, inputs
        for buffer, name in zip(inputs, call.inputs, strict=True):
            self.read(buffer, name)
        for k, buffer in enumerate(outputs):
            others = [*inputs, *outputs[:k], *outputs[k + 1 :]]
            apart = not any(self.range(buffer).overlaps(self.range(other)) for other in others)
            self.require(apart, f"{buffer.name} overlaps with what the {kind} reads or writes")
            self.write(buffer, ("call", source, k))

    def check(self, statement: Check, call: _Call) -> None:
        self.require(call.message is not None, "a check where the function calls a kernel")
        self.require(self.plan.messages[statement.code - 1] == call.message, "the check has another message")
        self.read(statement.buffer, call.inputs[0])

    def control(self, statement: HostCall, call: _Call, source: int) -> None:
        """A branch, a loop or a recursive function, which is one call to what is around it."""
        self.require(call.control is not None, "a host function where the function calls none")
        self.require(source in self.plan.controls, "a branch or a loop without plans")
        driver = self.plan.inner[statement.name]
        self.require(statement.rows == (), "the operands of a step are whole buffers")
        self.arguments(statement, driver)
        outputs, control = tuple(driver.attrs["outputs"]), self.plan.controls[source]
        count = len(call.inputs)
        distinct = len(set(outputs)) == len(outputs) == call.outputs and driver.attrs["inputs"] == count
        self.require(distinct, f"{driver.name} has not the operands and results of its step")
        if isinstance(control, Control):
            wrong = verify_driver(driver, call.control, control.plans, control.code, _is_copy, self.plan.kernels)
        else:
            wrong = verify_recursion(driver, call.control, control, self.around, self.plan.messages)
        self.require(wrong is None, f"{driver.name}: {wrong}")
        buffers = statement.buffers
        if control.needs_heap:
            self.heap(buffers[-1])
            buffers = buffers[:-1]
        for buffer, name in zip(statement.buffers, call.inputs, strict=False):
            self.read(buffer, name)
        self.disjoint(buffers, call, set(outputs))
        for k, buffer in enumerate(buffers[count:], count):
            if k not in outputs:
                self.write(buffer, None)  # a workspace
        for k, number in enumerate(outputs):
            self.write(buffers[number], ("call", source, k))

    def kernel(self, statement: KernelCall, call: _Call, source: int) -> None:
        self.require(call.message is None, "a kernel call where the function has a check")
        kernel = self.plan.kernels.get(statement.name)
        self.require(kernel is not None, f"there is no kernel {statement.name}")
        assert kernel is not None
        self.arguments(statement, kernel)
        outputs = self.outputs(call, kernel)
        place = dict(zip(kernel.buffers, statement.buffers, strict=True))
        for buffer, name in zip(kernel.buffers, call.inputs, strict=False):
            self.read(place[buffer], name)
        self.disjoint(statement.buffers, call, {kernel.buffers.index(b) for b in outputs})
        for buffer in kernel.buffers[len(call.inputs) :]:
            if buffer not in outputs:
                self.write(place[buffer], None)  # a workspace
        for k, buffer in enumerate(outputs):
            self.write(place[buffer], ("call", source, k))

    def arguments(self, statement: KernelCall | HostCall, kernel: PrimFunc) -> None:
        self.require(
            len(statement.buffers) == len(kernel.buffers), f"{kernel.name} takes {len(kernel.buffers)} buffers"
        )
        for given, taken in zip(statement.buffers, kernel.buffers, strict=True):
            same = given.dtype == taken.dtype and given.nbytes == taken.nbytes
            self.require(same, f"{given.name} is not what {kernel.name} takes")

    def disjoint(self, buffers: Sequence[Buffer], call: _Call, written: set[int]) -> None:
        """Buffers of a kernel never overlap, but those it only reads."""
        ranges = [self.range(b) for b in buffers]
        changed = written | set(range(len(call.inputs), len(ranges)))
        for i in changed:
            for j, other in enumerate(ranges):
                names = f"{buffers[i].name} and {buffers[j].name}"
                self.require(i == j or not ranges[i].overlaps(other), f"{names} overlap")

    def outputs(self, call: _Call, kernel: PrimFunc) -> list[Buffer]:
        """The kernel's buffer for each output, inputs among them when it works in place: proven to be the function's
        kernel but for that."""
        key = (call.kernel, kernel.name)
        if key not in self.proven:
            original = self.module[call.kernel]
            count = len(call.inputs)
            pairs = _same_kernel(original, kernel, count)
            self.require(pairs is not None, f"{kernel.name} does not compute what {call.kernel} does")
            assert pairs is not None
            outputs = [pairs[b] for b in original.buffers[count : count + call.outputs]]
            for buffer in (b for b in outputs if b in kernel.buffers[:count]):
                self.require(bool(original.attrs.get("scheduled")), f"{call.kernel} may not work in place")
                safe = reads_come_first(kernel, buffer) if self.deep else None
                self.require(safe is not False, f"{kernel.name} reads what it has written to {buffer.name}")
            self.proven[key] = outputs
        return self.proven[key]

    def helper(self, statement: Any) -> None:
        """A copy, or a fill of dead memory."""
        self.require(isinstance(statement, KernelCall), "a check that the function does not have")
        kernel = self.plan.kernels.get(statement.name)
        self.require(kernel is not None, f"there is no kernel {statement.name}")
        assert kernel is not None
        if len(kernel.buffers) == 1 and not any(isinstance(n, BufferLoad) for n in walk(kernel.body)):
            self.write(statement.buffers[0], None)
            return
        self.require(_is_copy(kernel), f"{kernel.name} is neither a step of the function nor a copy")
        self.arguments(statement, kernel)
        source, target = statement.buffers
        name = self.held(self.range(source)).get(self.range(source))
        empty = source.nbytes == 0
        self.require(name is not None or empty, f"{source.name} holds nothing that could be copied")
        self.require(not self.range(source).overlaps(self.range(target)), f"{source.name} and {target.name} overlap")
        self.write(target, name)

    def check_end(self) -> None:
        missing = sorted(set(range(len(self.wanted.calls))) - self.done)
        self.require(not missing, f"steps {missing} of the function are missing")
        places = {k: self.parameters[self.first_output + p] for p, k in enumerate(self.plan.fresh)}
        self.require(self.plan.donated == self.donate, "other inputs are donated than the function says")
        places |= {k: self.parameters[i] for k, i in self.donate.items()}
        for k, name in enumerate(self.wanted.results):
            self.require(k in places, f"result {k} is written nowhere")
            self.read(places[k], name)


def _reached(host: PrimFunc, inner: Mapping[str, PrimFunc]) -> list[PrimFunc]:
    """A host function, and those that it calls, directly or not."""
    found = {host.name: host}
    stack = [host]
    while stack:
        for node in walk(stack.pop().body):
            if isinstance(node, (HostCall, Recur)) and node.name not in found and node.name in inner:
                found[node.name] = inner[node.name]
                stack.append(inner[node.name])
    return list(found.values())


def _same_kernel(original: PrimFunc, kernel: PrimFunc, inputs: int) -> dict[Buffer, Buffer] | None:
    """The buffer of ``kernel`` for each of ``original`` when both compute the same, where outputs may be inputs, and
    workspaces are parameters; else None."""
    if original is kernel:
        return {b: b for b in kernel.buffers}
    pairs: dict[Any, Any] = dict(zip(original.buffers[:inputs], kernel.buffers[:inputs], strict=True))
    if not _same(original.body, kernel.body, pairs):
        return None
    rest = [b for b in kernel.buffers[inputs:] if b not in pairs.values()]
    for buffer in original.buffers[inputs:]:  # those that are never touched: empty ones
        if buffer not in pairs:
            if not rest:
                return None
            pairs[buffer] = rest.pop(0)
    outputs = [pairs[b] for b in original.buffers[inputs:]]
    distinct = len(set(outputs)) == len(outputs) and all(b in kernel.buffers for b in outputs)
    return pairs if distinct and not rest else None


def _same(a: Any, b: Any, pairs: dict[Any, Any]) -> bool:
    """Whether two trees are equal when buffers and variables of the first are replaced as ``pairs`` says."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(_same(x, y, pairs) for x, y in zip(a, b, strict=True))
    if not isinstance(a, Node):
        return bool(a == b) or (a != a and b != b)
    if isinstance(a, Buffer) and a not in pairs:
        pairs[a] = b
        return a.dtype == b.dtype and a.shape == b.shape
    if isinstance(a, (Buffer, Var)):
        return pairs.setdefault(a, b) is b
    if isinstance(a, Allocate) and a.buffer.scope == "workspace":
        return _same(a.body, b, pairs)
    return type(a) is type(b) and all(_same(value, getattr(b, name), pairs) for name, value in structure(a))


def _is_copy(kernel: PrimFunc) -> bool:
    """``for i in range(n): target[i] = source[i]`` over all elements, in blocks or not."""
    loops, body = [], kernel.body
    while isinstance(body, (For, Let)):
        if isinstance(body, For):
            loops.append(body)
        body = body.body if isinstance(body, For) else substitute(body.body, {body.var: body.value})
    if len(kernel.buffers) != 2 or not isinstance(body, BufferStore) or not isinstance(body.value, BufferLoad):
        return False
    (source, target), load = kernel.buffers, body.value
    if not (
        body.buffer is target and load.buffer is source and source.shape == target.shape and len(source.shape) == 1
    ):
        return False
    return same(body.indices[0], load.indices[0]) and _covers(loops, body.indices[0], source.shape[0])


def _covers(loops: list[For], index: PrimExpr, count: int | PrimExpr) -> bool:
    """Whether the index takes all values from 0 on below ``count``: as a loop's variable, or block by block."""
    if not loops:
        return same(count, 1) and same(index, 0)
    if len(loops) == 1:
        return same(loops[0].extent, count) and same(index, loops[0].var)
    outer, inner = loops[0], loops[-1]
    size = inner.extent.b if isinstance(inner.extent, Binary) else inner.extent
    begin = outer.var * size
    if len(loops) > 2 or not same(index, begin + inner.var):
        return False
    if isinstance(inner.extent, IntImm):
        return same(outer.extent * size, count)
    is_rest = isinstance(inner.extent, Binary) and inner.extent.kind == "min" and same(inner.extent.a, count - begin)
    if not (isinstance(outer.extent, IntImm) and isinstance(size, IntImm) and isinstance(count, int)):
        return False
    return is_rest and outer.extent.value * size.value >= count


def _number(info: StructInfo, count: int) -> tuple[Any, int]:
    """Names of the inputs in a parameter, and how many there are up to it."""
    if not isinstance(info, TupleStructInfo):
        return ("input", count), count + 1
    parts = []
    for part in info.fields:
        name, count = _number(part, count)
        parts.append(name)
    return parts, count


def _flat(tree: Any) -> list[Name]:
    return [name for part in tree for name in _flat(part)] if isinstance(tree, list) else [tree]


def _constant(data: np.ndarray) -> Name:
    return ("constant", data.dtype.name, data.shape, data.tobytes())


def _show(name: Name | None) -> str:
    if name is None:
        return "no value"
    return {"input": "input {1}", "constant": "a constant", "call": "output {2} of step {1}"}[name[0]].format(*name)
