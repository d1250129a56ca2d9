"""A lowered function as steps over values, and the blocks of memory that values live in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.ir.node import Span
from pullback.relax.expr import Constant, Function, Tuple, TupleGetItem, Var
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.transform.compose import is_view
from pullback.relax.transform.lower_to_tir import is_check
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.group import Group
from pullback.tir import PrimFunc
from pullback.tir.expr import Buffer, nbytes
from pullback.tir.workspace import lift_workspaces


@dataclass(eq=False)
class Block:
    """A piece of memory, and the values that live in it one after another.

    ``place``: ``input``, ``constant`` or ``output`` (``index`` says which one), or ``arena`` (at ``offset``).
    """

    place: str
    nbytes: int
    index: int = -1
    offset: int = 0


@dataclass(eq=False)
class Value:
    """A tensor of the plan. ``block`` is decided by the planner; ``step`` computes it (None: an input, a constant)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    block: Block | None = None
    step: Step | None = None

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * nbytes(self.dtype)

    @property
    def memory(self) -> Block:
        if self.block is None:
            raise InternalError(f"no memory has been planned for {self.name}")
        return self.block


@dataclass(eq=False)
class Step:
    """A kernel call on values, or (``message`` set) a look at a check's bool. ``source`` is its number in the lowered
    function, ``span`` where its op stands; None for a copy that the planner adds."""

    kernel: str
    inputs: list[Value]
    outputs: list[Value]
    workspaces: list[Value] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)  # output number -> input number with the same memory
    message: str | None = None
    source: int | None = None
    span: Span | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.inputs, *self.outputs, *self.workspaces)


@dataclass(eq=False)
class Steps:
    """All of a lowered function: ``results`` are the flattened values that it returns."""

    inputs: list[Value]
    constants: list[tuple[Value, np.ndarray]]
    steps: list[Step]
    results: list[Value]
    kernels: dict[str, PrimFunc]

    @cached_property
    def checks(self) -> list[Step]:
        return [s for s in self.steps if s.message is not None]

    @cached_property
    def readers(self) -> dict[Value, list[Step]]:
        """The steps that read each value."""
        result: dict[Value, list[Step]] = {}
        for step in self.steps:
            for value in dict.fromkeys(step.inputs):
                result.setdefault(value, []).append(step)
        return result

    @cached_property
    def returned(self) -> set[Value]:
        return set(self.results)

    def add_copy(self, source: Value, target: Value) -> Step:
        """The step, not yet among ``steps``, that copies a value."""
        name = f"copy_{source.dtype}_{'x'.join(map(str, source.shape)) or 'scalar'}"
        count = int(np.prod(source.shape, dtype=np.int64))
        a = te.placeholder((count,), source.dtype, "source")
        b = te.compute((count,), lambda i: a[i], "target")
        self.kernels[name] = Elementwise(Group((a,), (b,))).lower(name)
        return Step(name, [source], [target])


def flatten_info(info: StructInfo) -> list[TensorStructInfo]:
    """The tensors in a type, depth first."""
    if isinstance(info, TupleStructInfo):
        return [t for f in info.fields for t in flatten_info(f)]
    if isinstance(info, TensorStructInfo) and info.is_static:
        return [info]
    raise InternalError(f"memory can be planned for tensors of static shape only, not for {info}")


def read_steps(function: Function, module: IRModule) -> Steps:
    """The steps of a function that LowerToTir has lowered, in its order."""
    return _Reader(module).read(function)


class _Reader:
    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.env: dict[Var, Any] = {}
        self.constants: dict[bytes, tuple[Value, np.ndarray]] = {}
        self.workspaces: dict[str, list[Buffer]] = {}  # of each kernel
        self.result = Steps([], [], [], [], {})

    def read(self, function: Function) -> Steps:
        for param in function.params:
            self.env[param] = self.input_tree(param.name, param.struct_info)
        for binding in function.bindings:
            self.env[binding.var] = self.value(binding)
        self.result.results = list(_leaves(self.tree(function.body.body)))
        self.result.constants = list(self.constants.values())
        return self.result

    def input_tree(self, name: str, info: StructInfo) -> Any:
        if isinstance(info, TupleStructInfo):
            return [self.input_tree(f"{name}_{k}", f) for k, f in enumerate(info.fields)]
        (tensor,) = flatten_info(info)
        value = Value(name, tensor.shape, tensor.dtype)  # type: ignore[arg-type]
        value.block = Block("input", value.nbytes, len(self.result.inputs))
        self.result.inputs.append(value)
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
            value = Value("constant", data.shape, data.dtype.name)
            value.block = Block("constant", value.nbytes, len(self.constants))
            self.constants[key] = (value, data)
        return self.constants[key][0]

    def value(self, binding: Any) -> Any:
        """The values of a binding; kernel calls are recorded as steps."""
        expr, steps = binding.value, self.result.steps
        if is_check(expr):
            flag = self.tree(expr.args[0])
            steps.append(Step("check", [flag], [], message=expr.attrs["message"], source=len(steps)))
            return flag
        if is_view(expr):
            return self.tree(expr.args[0])
        if not is_call_tir(expr):
            return self.tree(expr)
        outputs = [Value(binding.var.name, i.shape, i.dtype) for i in expr.sinfo_args]
        inputs = list(_leaves(self.tree(expr.args[1])))
        step = Step(expr.args[0].name, inputs, outputs, source=len(steps), span=expr.span)
        for output in outputs:
            output.step = step
        self.add_kernel(step)
        steps.append(step)
        return outputs[0] if len(outputs) == 1 else outputs

    def add_kernel(self, step: Step) -> None:
        if step.kernel not in self.result.kernels:
            self.result.kernels[step.kernel], self.workspaces[step.kernel] = lift_workspaces(self.module[step.kernel])
        step.workspaces = [Value(b.name, b.shape, b.dtype) for b in self.workspaces[step.kernel]]  # type: ignore[arg-type]


def _leaves(tree: Any) -> Iterator[Value]:
    if isinstance(tree, list):
        for part in tree:
            yield from _leaves(part)
    else:
        yield tree
