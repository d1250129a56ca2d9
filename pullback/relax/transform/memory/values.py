"""A lowered function as steps over values, and the blocks of memory that values live in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback import te
from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.ir.node import Span
from pullback.relax.boxes import BOX, NULL, UNBOX, kind_of
from pullback.relax.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from pullback.relax.op_calls import is_call_tir, kernel_name
from pullback.relax.regions import is_control
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, as_tensor, fields_of
from pullback.relax.transform.compose import is_view
from pullback.relax.transform.lower_to_tir import is_check
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.group import Group
from pullback.tir import PrimFunc, const
from pullback.tir.expr import ADDRESS, HANDLE, Buffer, nbytes
from pullback.tir.workspace import lift_workspaces

if TYPE_CHECKING:
    from pullback.relax.transform.memory.control import Control
    from pullback.relax.transform.memory.recursion import Recursion, SelfCall


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
    """A kernel call on values, (``message`` set) a look at a check's bool, (``control`` set) a branch, a loop or a call
    of a recursive function, or (``boxing`` set) one of ``box`` and ``unbox``: values are copied to new memory, or from
    there, where ``kind`` says what they are. ``source`` is its number in the lowered function, ``span`` where its op
    stands; None for a copy that the planner adds."""

    kernel: str
    inputs: list[Value]
    outputs: list[Value]
    workspaces: list[Value] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)  # output number -> input number with the same memory
    message: str | None = None
    source: int | None = None
    span: Span | None = None
    control: Control | Recursion | SelfCall | None = None
    boxing: str = ""
    kind: int = 0

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.inputs, *self.outputs, *self.workspaces)

    @property
    def may_fail(self) -> bool:
        """Whether it may end the function with a status."""
        if self.control is not None:
            return self.control.may_fail
        return self.message is not None or bool(self.boxing)

    @property
    def needs_heap(self) -> bool:
        """Whether it makes boxes."""
        return self.boxing == "box" or (self.control is not None and self.control.needs_heap)


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
        """The steps that may end the function, before which it must not have changed anything."""
        return [s for s in self.steps if s.may_fail]

    @cached_property
    def need_heap(self) -> bool:
        return any(s.needs_heap for s in self.steps)

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
        kernel = copy_kernel(source)
        self.kernels[kernel.name] = kernel
        return Step(kernel.name, [source], [target])


def copy_kernel(value: Value) -> PrimFunc:
    """The kernel that copies such a value."""
    a = te.placeholder((math.prod(value.shape),), value.dtype, "source")
    b = te.compute(a.shape, lambda i: a[i], "target")
    return Elementwise(Group((a,), (b,))).lower(f"copy_{_kind(value)}")


def fill_kernel(value: Value) -> PrimFunc:
    """The kernel that fills such a value with zeros."""
    zero = const(False if value.dtype == "bool" else 0, value.dtype)
    b = te.compute((math.prod(value.shape),), lambda i: zero, "target")
    return Elementwise(Group((), (b,))).lower(f"zeros_{_kind(value)}")


def _kind(value: Value) -> str:
    return f"{value.dtype}_{'x'.join(map(str, value.shape)) or 'scalar'}"


def flatten_info(info: StructInfo) -> list[TensorStructInfo]:
    """The tensors in a type, depth first, as they are in memory: a handle is an address."""
    if isinstance(info, TupleStructInfo):
        return [t for f in info.fields for t in flatten_info(f)]
    if isinstance(info, TensorStructInfo) and info.is_static:
        return [info if info.dtype != HANDLE else TensorStructInfo(info.shape, ADDRESS)]
    raise InternalError(f"memory can be planned for tensors of static shape only, not for {info}")


def constant_key(data: np.ndarray) -> bytes:
    """The same for constants that are one."""
    return f"{data.dtype}{data.shape}".encode() + data.tobytes()


def read_steps(function: Function, module: IRModule, make_control: Callable[[Call], Any]) -> Steps:
    """The steps of a function that LowerToTir has lowered, in its order; ``make_control`` plans branches and loops."""
    return _Reader(module, make_control).read(function)


class _Reader:
    def __init__(self, module: IRModule, make_control: Callable[[Call], Any]) -> None:
        self.module, self.make_control = module, make_control
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
        value = Value(name, tensor.static_shape, tensor.dtype)
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
        key = constant_key(data)
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
        if is_control(expr):
            return self.control(binding)
        if isinstance(expr, Call) and expr.op is NULL:
            return self.constant(np.zeros(as_tensor(expr.struct_info).static_shape, ADDRESS))
        if isinstance(expr, Call) and expr.op in (BOX, UNBOX):
            return self.boxing(binding)
        if not is_call_tir(expr):
            return self.tree(expr)
        outputs = [Value(binding.var.name, i.static_shape, i.dtype) for i in map(as_tensor, expr.sinfo_args)]
        inputs = list(_leaves(self.tree(expr.args[1])))
        step = Step(kernel_name(expr), inputs, outputs, source=len(steps), span=expr.span)
        for output in outputs:
            output.step = step
        self.add_kernel(step)
        steps.append(step)
        return outputs[0] if len(outputs) == 1 else outputs

    def control(self, binding: Any) -> Any:
        """The values of a branch or a loop, which is a step."""
        call, steps = binding.value, self.result.steps
        control = self.make_control(call)
        inputs = [v for a in call.args for v in _leaves(self.tree(a))] + [self.constant(c) for c in control.constants]
        outputs = [Value(binding.var.name, i.static_shape, i.dtype) for i in flatten_info(call.struct_info)]
        workspaces = [Value(b.name, b.static_shape, b.dtype) for b in control.workspaces]
        step = Step(control.name, inputs, outputs, workspaces, source=len(steps), span=call.span, control=control)
        for output in outputs:
            output.step = step
        steps.append(step)
        return nested_as(call.struct_info, iter(outputs))

    def boxing(self, binding: Any) -> Any:
        call, steps = binding.value, self.result.steps
        outputs = [Value(binding.var.name, i.static_shape, i.dtype) for i in flatten_info(call.struct_info)]
        inputs = [self.tree(a) for a in call.args]
        boxed = [a.struct_info for a in call.args] if call.op is BOX else fields_of(call.struct_info)
        step = Step(call.op.short, inputs, outputs, source=len(steps), span=call.span, boxing=call.op.short)
        step.kind = kind_of(boxed)
        for output in outputs:
            output.step = step
        steps.append(step)
        return nested_as(call.struct_info, iter(outputs))

    def add_kernel(self, step: Step) -> None:
        if step.kernel not in self.result.kernels:
            self.result.kernels[step.kernel], self.workspaces[step.kernel] = lift_workspaces(self.module[step.kernel])
        step.workspaces = [Value(b.name, b.static_shape, b.dtype) for b in self.workspaces[step.kernel]]


def nested_as(info: StructInfo, values: Iterator[Any]) -> Any:
    """The values in lists that are nested as the tuples of a type."""
    if isinstance(info, TupleStructInfo):
        return [nested_as(f, values) for f in info.fields]
    return next(values)


def _leaves(tree: Any) -> Iterator[Value]:
    if isinstance(tree, list):
        for part in tree:
            yield from _leaves(part)
    else:
        yield tree
