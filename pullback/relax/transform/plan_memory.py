"""PlanMemory: where every value of a lowered function lives, and the host function that runs its kernels.

    lv = R.call_tir(cls.k1, (x,), …)                  host(x, out):
    y = R.call_tir(cls.k2, (lv, x), …)       →            k1(x, arena+0)
    return y                                              k2(arena+0, x, out)

A value lives in an input, a constant, an output (results are written where the caller wants them), or the arena, where
ranges are shared by values that do not live at the same time. With ``donate`` an output takes over the memory of an
input: in place when it is proven safe, else through the arena and a copy at the end, so that every check and every
read comes before the first overwriting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.relax.expr import Constant, Function, Tuple, TupleGetItem, Var
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.transform.compose import is_view
from pullback.relax.transform.lower_to_tir import is_check
from pullback.tir import Buffer, Check, KernelCall, PrimFunc, Stmt, loop, seq, store
from pullback.tir.expr import nbytes
from pullback.tir.in_place import may_share, share
from pullback.tir.workspace import lift_workspaces

ALIGNMENT = 64


@dataclass(eq=False)
class Value:
    """One block of memory: a tensor of the plan. ``place`` is decided by the planner."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    place: str = "arena"  # input | constant | output | arena
    index: int = -1  # of the input, constant or output
    offset: int = 0  # in the arena

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * nbytes(self.dtype)


@dataclass(eq=False)
class Step:
    """A kernel call on values, or (``message`` set) a look at a check's bool."""

    kernel: str
    inputs: list[Value]
    outputs: list[Value]
    workspaces: list[Value] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)  # output number -> input number with the same memory
    message: str | None = None


@dataclass
class Plan:
    """What is needed to run a function: kernels, the host function, and the layout of its buffer list.

    The buffers of the host function are the flattened inputs, the constants, then the outputs in ``fresh`` (numbers of
    flattened results); ``donated`` maps the other results to the inputs whose memory they take.
    """

    host: PrimFunc
    kernels: dict[str, PrimFunc]
    inputs: list[TensorStructInfo]
    outputs: list[TensorStructInfo]
    constants: list[np.ndarray]
    fresh: list[int]
    donated: dict[int, int]
    arena_bytes: int
    steps: list[str]
    messages: list[str]


def flatten_info(info: StructInfo) -> list[TensorStructInfo]:
    """The tensors in a type, depth first."""
    if isinstance(info, TupleStructInfo):
        return [t for f in info.fields for t in flatten_info(f)]
    if isinstance(info, TensorStructInfo) and info.is_static:
        return [info]
    raise InternalError(f"memory can be planned for tensors of static shape only, not for {info}")


def plan_memory(name: str, function: Function, module: IRModule, donate: Mapping[int, int] | None = None) -> Plan:
    """Plan a function that LowerToTir has lowered; ``donate`` maps flattened results to flattened inputs."""
    return _Planner(name, function, module, dict(donate or {})).plan()


class _Planner:
    def __init__(self, name: str, function: Function, module: IRModule, donate: dict[int, int]) -> None:
        self.name, self.function, self.module, self.donate = name, function, module, donate
        self.env: dict[Var, Any] = {}
        self.inputs: list[Value] = []
        self.constants: dict[bytes, tuple[Value, np.ndarray]] = {}
        self.steps: list[Step] = []
        self.kernels: dict[str, PrimFunc] = {}
        self.messages: list[str] = []

    def plan(self) -> Plan:
        for param in self.function.params:
            self.env[param] = self.input_tree(param.name, param.struct_info)
        for binding in self.function.bindings:
            self.env[binding.var] = self.value(binding)
        results = _leaves(self.tree(self.function.body.body))
        fresh, donated = self.place_results(results)
        arena_bytes = self.assign_offsets()
        host = self.host(fresh)
        outputs = flatten_info(self.function.ret_struct_info)
        return Plan(
            host, self.kernels, [TensorStructInfo(v.shape, v.dtype) for v in self.inputs], outputs,
            [array for _, array in self.constants.values()], [k for k, _ in fresh], donated, arena_bytes,
            [s.kernel for s in self.steps if s.message is None], self.messages,
        )  # fmt: skip

    # -- values and steps

    def input_tree(self, name: str, info: StructInfo) -> Any:
        if isinstance(info, TupleStructInfo):
            return [self.input_tree(f"{name}_{k}", f) for k, f in enumerate(info.fields)]
        (tensor,) = flatten_info(info)
        value = Value(name, tensor.shape, tensor.dtype, "input", len(self.inputs))  # type: ignore[arg-type]
        self.inputs.append(value)
        return value

    def tree(self, expr: Any) -> Any:
        """The values that an atom, a tuple or an item of one stands for."""
        if isinstance(expr, Var):
            return self.env[expr]
        if isinstance(expr, Constant):
            return self.constant(expr.data)
        if isinstance(expr, Tuple):
            return [self.tree(f) for f in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self.tree(expr.tuple_value)[expr.index]
        raise InternalError(f"{type(expr).__name__} cannot be planned")

    def constant(self, data: np.ndarray) -> Value:
        key = f"{data.dtype}{data.shape}".encode() + data.tobytes()
        if key not in self.constants:
            value = Value("constant", data.shape, data.dtype.name, "constant", len(self.constants))
            self.constants[key] = (value, data)
        return self.constants[key][0]

    def value(self, binding: Any) -> Any:
        """The values of a binding; kernel calls are recorded as steps."""
        expr = binding.value
        if is_check(expr):
            flag = self.tree(expr.args[0])
            self.steps.append(Step("check", [flag], [], message=expr.attrs["message"]))
            return flag
        if is_view(expr):
            return self.tree(expr.args[0])
        if not is_call_tir(expr):
            return self.tree(expr)
        outputs = [Value(binding.var.name, i.shape, i.dtype) for i in expr.sinfo_args]
        step = Step(expr.args[0].name, _leaves(self.tree(expr.args[1])), outputs)
        self.add_kernel(step)
        self.steps.append(step)
        return outputs[0] if len(outputs) == 1 else outputs

    def add_kernel(self, step: Step) -> None:
        function, workspaces = lift_workspaces(self.module[step.kernel])
        self.kernels[step.kernel] = function
        step.workspaces = [Value(b.name, b.shape, b.dtype) for b in workspaces]  # type: ignore[arg-type]

    # -- results and donation

    def place_results(self, results: list[Value]) -> tuple[list[tuple[int, Value]], dict[int, int]]:
        """Decide where every result is written; the fresh ones and the donated inputs."""
        fresh: list[tuple[int, Value]] = []
        copies: list[tuple[Value, Value]] = []
        taken: set[Value] = set()
        wants = {k: self.donate[k] for k in range(len(results)) if k in self.donate}
        for k, value in enumerate(results):
            if k in wants:
                continue
            target = Value(f"result_{k}", value.shape, value.dtype, "output", len(fresh))
            if value.place == "arena" and value not in taken and self.producer(value) is not None:
                value.place, value.index = "output", len(fresh)
                taken.add(value)
                target = value
            else:
                copies.append((value, target))
            fresh.append((k, target))
        self.place_donated(results, wants, taken, copies)
        for source, target in copies:
            self.copy(source, target)
        return fresh, wants

    def place_donated(
        self, results: list[Value], wants: dict[int, int], taken: set[Value], copies: list[tuple[Value, Value]]
    ) -> None:
        """In place where safe; else copied at the end, all sources being saved from being overwritten first."""
        late: list[tuple[Value, Value]] = []
        for k, i in wants.items():
            value, source = results[k], self.inputs[i]
            if value is source:
                continue
            if value.place == "arena" and value not in taken and self.can_overwrite(value, source, results):
                step = self.producer(value)
                assert step is not None
                if source in step.inputs:
                    step.shared[step.outputs.index(value)] = step.inputs.index(source)
                value.place, value.index = "input", i
                taken.add(value)
            else:
                late.append((value, source))
        donated = {self.inputs[i] for i in wants.values()}
        for value, target in late:
            if value.place == "input" and self.inputs[value.index] in donated:
                saved = Value("saved", value.shape, value.dtype)
                self.copy(value, saved)
                value = saved
            copies.append((value, target))

    def producer(self, value: Value) -> Step | None:
        return next((s for s in self.steps if value in s.outputs), None)

    def can_overwrite(self, value: Value, source: Value, results: Sequence[Value]) -> bool:
        """The proof: after ``value`` is written nobody reads ``source``, its own kernel only where it writes, no check
        is still to come, and no other result is the old ``source``."""
        step = self.producer(value)
        if step is None or value.shape != source.shape or source in results:
            return False
        at = self.steps.index(step)
        if any(source in s.inputs or s.message is not None for s in self.steps[at + 1 :]):
            return False
        function = self.kernels[step.kernel]
        if source in step.inputs and not function.attrs.get("scheduled"):
            return False  # a user's kernel may write an element twice, and read it in between
        target = function.buffers[len(step.inputs) + step.outputs.index(value)]
        reads = [b for b, v in zip(function.buffers, step.inputs, strict=False) if v is source]
        if len(reads) > 1:
            return False
        return all(may_share(function, b, target) for b in reads)

    def copy(self, source: Value, target: Value) -> None:
        name = f"copy_{source.dtype}_{'x'.join(map(str, source.shape)) or 'scalar'}"
        count = int(np.prod(source.shape, dtype=np.int64))
        a, b = Buffer("source", (count,), source.dtype), Buffer("target", (count,), source.dtype)
        self.kernels[name] = PrimFunc(name, (a, b), loop("i", count, lambda i: store(b, i, a[i]), "vectorized"))
        self.steps.append(Step(name, [source], [target]))

    # -- the arena

    def assign_offsets(self) -> int:
        """Offsets for all values in the arena, largest first, each at the lowest free place; the arena's size."""
        live: dict[Value, tuple[int, int]] = {}
        for k, step in enumerate(self.steps):
            for value in (*step.inputs, *step.outputs, *step.workspaces):
                if value.place == "arena":
                    first, _ = live.get(value, (k, k))
                    live[value] = (first, k)
        placed: list[Value] = []
        size = 0
        for value in sorted(live, key=lambda v: -v.nbytes):
            start, end = live[value]
            others = [p for p in placed if live[p][0] <= end and start <= live[p][1]]
            offset = 0
            for other in sorted(others, key=lambda p: p.offset):
                if offset + value.nbytes <= other.offset:
                    break
                offset = max(offset, _aligned(other.offset + max(1, other.nbytes)))
            value.offset = offset
            placed.append(value)
            size = max(size, _aligned(offset + value.nbytes))
        return size

    # -- the host function

    def host(self, fresh: list[tuple[int, Value]]) -> PrimFunc:
        buffers: dict[tuple[str, int], Buffer] = {}
        order = [*self.inputs, *(v for v, _ in self.constants.values()), *(v for _, v in fresh)]
        for value in order:
            buffers[value.place, value.index] = Buffer(value.name, value.shape, value.dtype)

        def buffer(value: Value) -> Buffer:
            if value.place == "arena":
                return Buffer(value.name, value.shape, value.dtype, "arena", value.offset)
            return buffers[value.place, value.index]

        statements: list[Stmt] = []
        for step in self.steps:
            if step.message is not None:
                self.messages.append(step.message)
                statements.append(Check(buffer(step.inputs[0]), len(self.messages)))
                continue
            name = self.shared_kernel(step)
            kept = [v for k, v in enumerate(step.outputs) if k not in step.shared]
            values = [*step.inputs, *kept, *step.workspaces]
            statements.append(KernelCall(name, tuple(buffer(v) for v in values)))
        params = tuple(buffers[v.place, v.index] for v in order)
        self.kernels = {s.name: self.kernels[s.name] for s in statements if isinstance(s, KernelCall)}
        return PrimFunc(self.name, params, seq(*statements), {"kind": "host"})

    def shared_kernel(self, step: Step) -> str:
        """The kernel's name; with shared memory, of its in-place variant."""
        if not step.shared:
            return step.kernel
        function = self.kernels[step.kernel]
        suffix = "_".join(f"{o}_{i}" for o, i in sorted(step.shared.items()))
        name = f"{step.kernel}_in_place_{suffix}"
        pairs = {function.buffers[len(step.inputs) + o]: function.buffers[i] for o, i in step.shared.items()}
        self.kernels[name] = share(function, name, pairs)
        return name


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _leaves(tree: Any) -> list[Value]:
    if isinstance(tree, list):
        return [v for part in tree for v in _leaves(part)]
    return [tree]
