"""Whether the driver of a branch or a loop does what the closed call says. Shares no code with what writes drivers.

The driver is executed on symbols, for some conditions and counts: its memory holds names of values, numbers of steps
are numbers, and a region's host function gives names of results for the names that it finds. Which regions were called
on what, what lies where the results are wanted, and the status must be those of the call's definition
(``relax/control.py``), which is written down here once more. Of the iterations of a long loop a few are done, the
first and the last: that the others are like these follows from the driver's text, in which a step's number is only
added to, multiplied and compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.errors import InternalError
from pullback.relax.boxes import is_handle
from pullback.relax.control import BRANCH
from pullback.relax.expr import Call
from pullback.relax.struct_info import StructInfo, TupleStructInfo, as_tensor, as_tuple, fields_of, flat_infos
from pullback.tir.expr import Buffer, BufferLoad, PrimExpr, Var, const, nbytes
from pullback.tir.interpreter import evaluate
from pullback.tir.stmt import (
    BufferStore,
    For,
    HostCall,
    If,
    KernelCall,
    Let,
    PrimFunc,
    Release,
    Seq,
    Stmt,
    Stop,
    While,
)
from pullback.tir.visitor import rewrite, walk

Name = tuple[Any, ...]  # ("given", input, first byte, end), ("number", n), ("result", call, number) or one of
ZEROS: Name = ("zeros",)
MARK: Name = ("mark",)  # of the heap, before any step
EMPTY: Name = ("nothing",)  # in no bytes
_MOST = 16  # iterations of a loop that are all done
_FEW = (0, 1, 2, -2, -1)  # which are done of a longer one
_LONG = 64  # steps of a while, above which it is not driven to its limit


@dataclass(frozen=True)
class Scenario:
    """What the memory says: the condition of a branch, or the count of a loop, and how often its condition is true."""

    chosen: bool = True
    count: int | None = None
    true: int = 0


def verify_driver(
    driver: PrimFunc,
    call: Call,
    plans: Mapping[str, Any],
    code: int | None,
    is_copy: Callable[[PrimFunc], bool],
    kernels: Mapping[str, PrimFunc],
) -> str | None:
    """What is wrong with the driver of a call, whose regions have these plans; None: nothing. ``code``: the status of
    a loop that needs too many steps."""
    outputs = driver.attrs["outputs"]
    for scenario in _scenarios(call):
        machine = _Machine(driver, call, plans, scenario, is_copy, kernels)
        try:
            status = machine.run()
        except InternalError as error:
            return f"{error}, {scenario}"
        definition = _Definition(call, plans, machine, scenario, code)
        if status != definition.status:
            return f"the status is {status} and not {definition.status}, {scenario}"
        if machine.trace != definition.trace:
            return f"its regions are called on other values, {scenario}"
        if status == 0:
            for number, pieces in zip(outputs, definition.results, strict=True):
                for first, end, name in pieces:
                    found = machine.read(driver.buffers[number], first, end) if first < end else name
                    if found != name:
                        return f"{driver.buffers[number].name} holds {found} and not {name}, {scenario}"
    return None


def _scenarios(call: Call) -> Iterator[Scenario]:
    if call.op is BRANCH:
        yield from (Scenario(chosen) for chosen in (True, False))
        return
    length = call.attrs["length"]
    counts: list[int | None] = [None]
    if not isinstance(call.args[0].struct_info, TupleStructInfo):
        counts = [-1, 0, 1, 3] + ([] if length is None else [length, length + 1])
    for count in counts:
        limit = length if count is None else max(0, count)
        if call.attrs["condition"] is None:
            yield Scenario(count=count)
            continue
        for true in dict.fromkeys([0, 1, 3, limit, None if limit is None else limit + 1]):
            if true is not None and true <= _LONG:
                yield Scenario(count=count, true=true)


class _Calls:
    """Numbers of calls of regions: equal ones have the same."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, region: str, inputs: tuple[Name, ...]) -> int:
        return self.numbers.setdefault((region, inputs), len(self.numbers))


def _few(extent: int) -> list[int]:
    """The numbers of the iterations that are done."""
    return list(range(extent)) if extent <= _MOST else [k % extent for k in _FEW]


class _Definition:
    """What the call means: the regions that are called, and the pieces of the results, with their names."""

    def __init__(
        self,
        call: Call,
        plans: Mapping[str, Any],
        machine: _Machine,
        scenario: Scenario,
        code: int | None,
    ) -> None:
        self.plans, self.calls, self.scenario = plans, machine.calls, scenario
        self.steps, params = machine.steps, machine.driver.buffers
        self.trace: list[int] = []
        self.status = 0
        self.results: list[list[tuple[int, int, Name]]] = []
        whole = [("given", k, 0, b.nbytes) for k, b in enumerate(params)]
        groups, at = [], 0
        for a in call.args:
            count = len(a.struct_info.fields) if isinstance(a.struct_info, TupleStructInfo) else 1
            groups.append(range(at, at + count))
            at += count
        self.constants: dict[str, list[Name]] = {}
        for name, plan in plans.items():
            self.constants[name] = list(whole[at : at + len(plan.constants)])
            at += len(plan.constants)
        if call.op is BRANCH:
            operands = [whole[k] for k in groups[1]]
            found = self.region("then" if scenario.chosen else "otherwise", operands)
            sizes = [_info_bytes(i) for i in as_tuple(call.struct_info).fields]
            self.results = [[(0, size, name)] for size, name in zip(sizes, found, strict=True)]
        else:
            self.loop(call, code, groups, whole)

    def region(self, name: str, inputs: list[Name]) -> list[Name]:
        params = self.plans[name].host.buffers
        given = zip((*inputs, *self.constants[name]), params, strict=False)
        number = self.calls.of(name, tuple(n if p.nbytes else EMPTY for n, p in given))
        self.trace.append(number)
        return [("result", number, k) for k in range(len(self.plans[name].outputs))]

    def loop(self, call: Call, code: int | None, groups: list[range], whole: list[Any]) -> None:
        _, carry_numbers, x_numbers, invariant_numbers = groups
        length, is_reverse = call.attrs["length"], call.attrs["reverse"]
        carry_infos, y_infos, _ = map(fields_of, as_tuple(call.struct_info).fields)
        ys = [_info_bytes(i) // max(1, length) for i in y_infos]
        carries: list[Name] = [whole[k] for k in carry_numbers]
        invariants = [whole[k] for k in invariant_numbers]
        limit = length if self.scenario.count is None else max(0, self.scenario.count)
        if length is not None and limit > length:
            self.status = code or -1
            return
        rows: dict[int, list[Name]] = {}
        asked, steps, goes_on = 0, 0, True
        has_condition = call.attrs["condition"] is not None
        steps_done: Iterable[int] = itertools.count() if limit is None else range(max(0, limit))
        if not has_condition and limit > _MOST:
            steps_done = self.some_steps(limit, is_reverse)
        for j in steps_done:
            k = limit - 1 - j if is_reverse else j
            if has_condition:
                self.region("condition", [("number", k), *carries, *invariants])
                goes_on, asked = asked < self.scenario.true, asked + 1
                if not goes_on:
                    break
            taken = []
            for n in x_numbers:
                size = whole[n][3] // length
                taken.append(("given", n, k * size, (k + 1) * size))
            found = self.region("body", [("number", k), *carries, *taken, *invariants])
            carries, rows[k] = found[: len(carries)], found[len(carries) :]
            steps += 1
        else:
            if has_condition:
                self.region("condition", [("number", limit), *carries, *invariants])
                if asked < self.scenario.true:
                    self.status = code or -1
        self.results = [[(0, _info_bytes(i), name)] for i, name in zip(carry_infos, carries, strict=True)]
        all_done = has_condition or max(0, limit) <= _MOST
        for n, size in enumerate(ys):
            done = [(k * size, (k + 1) * size, rows[k][n]) for k in rows]
            rest = [k for k in _few(length) if k not in rows and (all_done or k >= limit)]
            self.results.append(done + [(k * size, (k + 1) * size, ZEROS) for k in rest])
        self.results.append([(0, 8, ("number", steps if has_condition else max(0, limit)))])

    def some_steps(self, limit: int, is_reverse: bool) -> list[int]:
        """The steps that the driver has done of a long loop, if these are the first and the last, in order."""
        done = [limit - 1 - k if is_reverse else k for k in self.steps]
        gaps = [k for k, (a, b) in enumerate(itertools.pairwise(done)) if b != a + 1]
        is_some = done[:3] == [0, 1, 2] and done[-2:] == [limit - 2, limit - 1]
        return done if is_some and len(gaps) <= 1 and done == sorted(done) else list(range(limit))


@dataclass
class _Memory:
    """What a parameter of the driver holds: pieces that do not overlap, once something has been written."""

    pieces: list[tuple[int, int, Name]] = field(default_factory=list)

    def get(self, first: int, end: int) -> Name | None:
        for begin, last, name in self.pieces:
            if (begin, last) == (first, end) or (name == ZEROS and begin <= first and end <= last):
                return name
        return None

    def put(self, first: int, end: int, name: Name) -> None:
        kept: list[tuple[int, int, Name]] = []
        for piece in self.pieces:
            if piece[1] <= first or end <= piece[0]:
                kept.append(piece)
            elif piece[2] == ZEROS:
                kept += [(a, b, ZEROS) for a, b in ((piece[0], first), (end, piece[1])) if a < b]
        self.pieces = [*kept, (first, end, name)]


class _Stopped(Exception):
    pass


class _Machine:
    """Executes a driver on names."""

    def __init__(
        self,
        driver: PrimFunc,
        call: Call,
        plans: Mapping[str, Any],
        scenario: Scenario,
        is_copy: Callable[[PrimFunc], bool],
        kernels: Mapping[str, PrimFunc],
    ) -> None:
        self.heap = driver.buffers[-1] if any(p.needs_heap for p in plans.values()) else None
        self.gives_handles = any(map(is_handle, flat_infos(call.struct_info)))
        self.driver, self.scenario, self.is_copy, self.kernels = driver, scenario, is_copy, kernels
        self.regions = {plan.host.name: (name, plan) for name, plan in plans.items()}
        self.calls = _Calls()
        self.trace: list[int] = []
        self.steps: list[int] = []  # numbers of those that the body has done
        self.asked = 0
        self.env: dict[Var, int] = {}
        self.outputs = {driver.buffers[k] for k in driver.attrs["outputs"]}
        self.inputs = driver.attrs["inputs"]
        self.numbers = {b: k for k, b in enumerate(driver.buffers)}
        self.memory: dict[Buffer, _Memory] = {}
        for buffer, k in self.numbers.items():
            given = k < self.inputs
            self.memory[buffer] = _Memory([(0, buffer.nbytes, ("given", k, 0, buffer.nbytes))] if given else [])

    def run(self) -> int:
        try:
            self.stmt(self.driver.body)
        except _Stopped as stopped:
            return stopped.args[0]
        return 0

    # -- memory

    def read(self, buffer: Buffer, first: int, end: int) -> Name | None:
        if first < 0 or end > buffer.nbytes:
            raise InternalError(f"what lies beside {buffer.name} is read")
        found = self.memory[buffer].get(first, end)
        if found is None and self.numbers[buffer] < self.inputs and buffer not in self.outputs:
            return ("given", self.numbers[buffer], first, end)  # a part of an input that nobody overwrites
        return found

    def write(self, buffer: Buffer, first: int, end: int, name: Name) -> None:
        if self.numbers[buffer] < self.inputs and buffer not in self.outputs:
            raise InternalError(f"{buffer.name} is overwritten")
        if first < 0 or end > buffer.nbytes:
            raise InternalError(f"what lies beside {buffer.name} is overwritten")
        self.memory[buffer].put(first, end, name)

    def number(self, expr: PrimExpr) -> Any:
        """The value of an expression of numbers and of what lies in memory."""

        def known(node: PrimExpr) -> PrimExpr | None:
            if isinstance(node, Var):
                return const(self.env[node], node.dtype)
            if not isinstance(node, BufferLoad):
                return None
            if node.buffer.nbytes != nbytes(node.buffer.dtype):
                raise InternalError(f"an element of {node.buffer.name} decides what is done")
            return const(self.scalar(node.buffer), node.dtype)

        return evaluate(rewrite(expr, known), {}).item()

    def scalar(self, buffer: Buffer) -> Any:
        name = self.read(buffer, 0, buffer.nbytes)
        if name is not None and name[0] == "number":
            return name[1]
        if name == ("given", 0, 0, buffer.nbytes):  # the condition of a branch, or a count
            return self.scenario.chosen if self.scenario.count is None else self.scenario.count
        raise InternalError(f"{buffer.name} holds {name} where a number is read")

    # -- statements

    def stmt(self, node: Stmt | None) -> None:
        if isinstance(node, Seq):
            for part in node.stmts:
                self.stmt(part)
        elif isinstance(node, If):
            self.stmt(node.then if self.number(node.condition) else node.otherwise)
        elif isinstance(node, For):
            for k in _few(max(0, self.number(node.extent))):
                self.env[node.var] = k
                self.stmt(node.body)
        elif isinstance(node, While):
            while self.number(node.condition):
                self.stmt(node.body)
        elif isinstance(node, BufferStore) and not node.indices:
            marks = isinstance(node.value, BufferLoad) and node.value.buffer is self.heap
            name = self.marked(node.value) if marks else ("number", self.number(node.value))
            self.write(node.buffer, 0, node.buffer.nbytes, name)
        elif isinstance(node, Release):
            self.release(node)
        elif isinstance(node, Stop):
            raise _Stopped(node.code)
        elif isinstance(node, KernelCall):
            self.kernel(node)
        elif isinstance(node, HostCall):
            self.region(node)
        elif node is not None:
            raise InternalError(f"a driver has no {type(node).__name__}")

    def marked(self, value: Any) -> Name:
        """The mark of the heap, before any step has been done."""
        if self.trace or getattr(value.indices[0], "value", None) != 0:
            raise InternalError("the heap is marked too late, or by what is no mark")
        return MARK

    def release(self, node: Release) -> None:
        if node.heap is not self.heap or self.read(node.mark, 0, node.mark.nbytes) != MARK:
            raise InternalError("what is given back is not what the heap has grown by")
        if self.gives_handles:
            raise InternalError("boxes are given back that are still read")

    def kernel(self, node: KernelCall) -> None:
        """A copy of a whole, or zeros everywhere."""
        kernel, size = self.kernels[node.name], node.buffers[-1].nbytes
        if kernel.buffers[-1].nbytes != size:
            raise InternalError(f"{node.name} takes something else")
        name: Name | None = ZEROS
        if len(node.buffers) > 1:
            if not self.is_copy(kernel) or node.buffers[0] is node.buffers[1]:
                raise InternalError(f"{node.name} is no copy")
            name = self.read(node.buffers[0], 0, size)
        elif not _stores_zeros(kernel):
            raise InternalError(f"{node.name} fills with something else than zeros")
        if size and name is None:
            raise InternalError(f"{node.buffers[0].name} holds nothing")
        self.write(node.buffers[-1], 0, size, name or ZEROS)

    def region(self, node: HostCall) -> None:
        name, plan = self.regions[node.name]
        params = plan.host.buffers
        rows = [self.number(r) for r in node.rows] or [0] * len(params)
        places: list[tuple[Buffer, int, int]]
        places = [(b, r * p.nbytes, (r + 1) * p.nbytes) for b, r, p in zip(node.buffers, rows, params, strict=True)]
        first_output = len(params) - len(plan.fresh) - int(plan.needs_heap)
        if plan.needs_heap and (node.buffers[-1] is not self.heap or rows[-1] != 0):
            raise InternalError(f"{name} gets no heap")
        read = [self.read(*place) if place[1] < place[2] else EMPTY for place in places[:first_output]]
        given = [name for name in read if name is not None]
        if len(given) < len(read):
            raise InternalError(f"{name} reads what nobody wrote")
        written = plan.donated | {r: first_output + p for p, r in enumerate(plan.fresh)}
        for i in written.values():
            if any(j != i and _overlap(places[i], places[j]) for j in range(len(places))):
                raise InternalError(f"{name} overwrites what it reads")
        self.arena(node, plan)
        if name == "body":
            self.steps.append(given[0][1] if given[0] and given[0][0] == "number" else -1)
        number = self.calls.of(name, tuple(given))
        self.trace.append(number)
        for r, i in written.items():
            result: Name = ("result", number, r)
            if name == "condition":
                result, self.asked = ("number", self.asked < self.scenario.true), self.asked + 1
            buffer, begin, end = places[i]
            self.write(buffer, begin, end, result)

    def arena(self, node: HostCall, plan: Any) -> None:
        arena = node.arena
        if arena is None or arena in node.buffers or arena in self.outputs or self.numbers[arena] < self.inputs:
            raise InternalError(f"{node.name} has no memory of its own")
        if arena.nbytes < plan.arena_bytes:
            raise InternalError(f"{node.name} has too little memory")


def _stores_zeros(kernel: PrimFunc) -> bool:
    """Whether a kernel reads nothing, and all that it stores are zeros."""
    nodes = list(walk(kernel.body))
    named: dict[PrimExpr, PrimExpr] = {n.var: n.value for n in nodes if isinstance(n, Let)}
    stored = [named.get(n.value, n.value) for n in nodes if isinstance(n, BufferStore)]
    reads = any(isinstance(n, BufferLoad) for n in nodes)
    return not reads and all(getattr(value, "value", None) == 0 for value in stored)


def _overlap(a: tuple[Buffer, int, int], b: tuple[Buffer, int, int]) -> bool:
    return a[0] is b[0] and a[1] < b[2] and b[1] < a[2]


def _info_bytes(info: StructInfo) -> int:
    tensor = as_tensor(info)
    return math.prod(tensor.static_shape) * nbytes(tensor.dtype)
