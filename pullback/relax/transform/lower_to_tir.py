"""LowerToTir: groups and single ops become calls of scheduled kernels.

    y = cls.fused_matmul_add(x, w, b)        →        y = R.call_tir(cls.fused_matmul_add_1, (x, w, b), …)

Views (reshape and the like) stay: they move no memory. An op whose tensor expression is no single kernel becomes
several calls, and one that is written in loops gets those. Equal kernels are one function. An op's run-time check
becomes a kernel that computes one bool, marked by the attribute ``check`` with the message for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeGuard

from pullback import te
from pullback.ir.errors import InternalError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import Span, span_scope
from pullback.ir.op import Op, Signature
from pullback.ir.passes import Pass
from pullback.relax.boxes import is_boxing
from pullback.relax.expr import Binding, Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.op.distributed.ccl import elements_of, meaning_of
from pullback.relax.op.kernel import has_kernel, kernel_of
from pullback.relax.op_calls import (
    OpCall,
    inner_op,
    is_call_tir,
    is_collective,
    is_packed,
    kernel_name,
    kernel_operands,
    kernel_sizes,
    op_of,
)
from pullback.relax.regions import is_control
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, as_tensor, fields_of, format_info
from pullback.relax.transform.compose import Composer, compose, has_te, is_view
from pullback.relax.transform.fuse_ops import primitive
from pullback.relax.transform.inline_functions import over_regions
from pullback.relax.transform.late_reads import late_reads
from pullback.relax.transform.structure import function_structure, results_of
from pullback.runtime.collectives import LOCAL
from pullback.schedule.choose import Schedule, lowered, recognize, scheduled
from pullback.schedule.group import Group, Machine
from pullback.schedule.split import split
from pullback.tir import Await, Buffer, Collective, PackedCall, PrimFunc
from pullback.tir.checked import checked
from pullback.tir.defined import defined
from pullback.tir.lanes import independent_lanes
from pullback.tir.specialize import specialize
from pullback.tir.stmt import COLLECTIVE
from pullback.tir.workspace import large_locals_lifted

_LATE = 16  # times what the caches hold: after so many bytes nothing is left of a value


@dataclass(frozen=True)
class LowerToTir(Pass):
    """Schedule every group for the machine.

    Args:
        machine: what schedules know of the target; by default one with AVX-512.
        groups: is filled with what each kernel was made of, by name; None where nobody asks.

    Checks: shapes are numbers, composite ops are decomposed, and random ops have a state (an InternalError otherwise).
    Primitive functions go, and so do kernels that nobody calls.
    """

    machine: Machine = field(default_factory=Machine)
    groups: dict[str, Group] | None = None

    def run(self, module: IRModule) -> IRModule:
        result = IRModule({}, module.attrs)
        lowering = _Lowering(module, result, self.machine, {} if self.groups is None else self.groups)
        for name, function in module.items():
            if isinstance(function, Function) and not function.attrs.get("primitive"):
                result[name] = over_regions(function, module, lowering.function)
        return result


@dataclass(frozen=True)
class _Lowered:
    """Tensor expressions as calls of kernels, one after another: the kernel's name, what it reads, what it writes."""

    steps: list[tuple[str, list[te.Tensor], list[te.Tensor]]]
    outputs: list[te.Tensor]


class _Lowering(ExprMutator):
    def __init__(self, module: IRModule, result: IRModule, machine: Machine, groups: dict[str, Group]) -> None:
        super().__init__()
        self.module, self.result, self.machine, self.groups = module, result, machine, groups
        self.kernels: dict[bytes, str] = {}
        self.lowered: dict[Hashable, tuple[list[te.Tensor | None], _Lowered]] = {}
        self.messages: list[str] = []
        self.late: dict[Var, set[int]] = {}

    def function(self, function: Function) -> Function:
        self.late = late_reads(function, self.machine.cached_bytes, _LATE * self.machine.cached_bytes)
        return super().function(function)

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            callee = self.module[value.op]
            if not (isinstance(callee, Function) and callee.attrs.get("primitive")):
                raise InternalError(f"the call of {value.op.name} should have been inlined")
            self.bind(binding.var, self.group(value.op.name, callee, value.args, binding.var))
        elif has_te(value) and not is_view(value):
            if value.op.check is not None:
                self.check(value, value.op.check)
            function, arguments = primitive([VarBinding(binding.var, value)], [binding.var])
            name = value.op.short.replace(".", "_")
            self.bind(binding.var, self.group(name, function, arguments, binding.var))
        elif has_kernel(value):
            with span_scope(value.span):
                self.bind(binding.var, self.ops_kernel(self.expr(value)))
        elif is_call_tir(value):
            with span_scope(value.span):
                self.bind(binding.var, self.users_kernel(self.expr(value)))
        elif is_collective(value):
            with span_scope(value.span):
                self.bind(binding.var, self.collective(self.expr(value)))
        elif is_packed(value):
            with span_scope(value.span):
                self.bind(binding.var, self.registered(self.expr(value)))
        elif isinstance(value, Call) and not (is_view(value) or is_control(value) or is_boxing(value)):
            raise InternalError(f"{value.op} has no tensor expression, so it cannot be compiled")
        else:
            super().rewrite_binding(binding)

    def ops_kernel(self, call: Call) -> Expr:
        """The call of an op that is written as a kernel."""
        name = op_of(call).short.replace(".", "_")
        infos = fields_of(call.struct_info)
        return call_tir(GlobalVar(self.share(name, kernel_of(call, name))), Tuple(call.args), infos)

    def users_kernel(self, call: Call) -> Expr:
        """The call of a kernel that the user wrote, bound to the sizes of its arguments."""
        name, values = kernel_name(call), kernel_operands(call)
        infos = (*(v.struct_info for v in values), *call.sinfo_args)
        shapes = [as_tensor(info).static_shape for info in infos]
        kernel = specialize(self.module[name], shapes, kernel_sizes(call))
        kernel, accesses = checked(defined(kernel, kernel.buffers[len(values) :]))
        kernel = replace(kernel, body=large_locals_lifted(independent_lanes(kernel.body)))
        results_and_flags = (*call.sinfo_args, *(TensorStructInfo((), "bool") for _ in accesses))
        result = call_tir(GlobalVar(self.share(name, kernel)), call.args[1], results_and_flags)
        if not accesses:
            return result
        whole = self.builder.emit(result, name)
        (*results,) = (self.builder.emit(TupleGetItem(whole, k), name) for k in range(len(call.sinfo_args)))
        for k, access in enumerate(accesses, len(call.sinfo_args)):
            self.expect(self.builder.emit(TupleGetItem(whole, k), access.flag.name), access.text)
        return results[0] if len(results) == 1 else Tuple(tuple(results))

    def registered(self, call: Call) -> Expr:
        """The call of a registered function: a kernel that says in a flag whether it could do it."""
        func = call.attrs["func"]
        inputs, outputs = _buffers("x", [a.struct_info for a in call.args]), _buffers("y", call.sinfo_args)
        flag = Buffer("done", (), "bool")
        name = "packed_" + "".join(c if c.isalnum() else "_" for c in func)
        kernel = PrimFunc(name, (*inputs, *outputs, flag), PackedCall(func, tuple(inputs), tuple(outputs), flag))
        infos = (*call.sinfo_args, TensorStructInfo((), "bool"))
        whole = self.builder.emit(call_tir(GlobalVar(self.share(name, kernel)), Tuple(call.args), infos), name)
        (*results,) = (self.builder.emit(TupleGetItem(whole, k), name) for k in range(len(outputs)))
        done = self.builder.emit(TupleGetItem(whole, len(outputs)), "done")
        self.expect(done, f"the function {func!r} failed")
        return results[0] if len(results) == 1 else Tuple(tuple(results))

    def collective(self, call: Call) -> Expr:
        """What ranks compute together: a kernel that begins it, and one that waits for it, which the planner puts as
        far apart as it can. What sends nothing is one kernel."""
        meaning, elements = meaning_of(call), elements_of(call)
        infos = list(fields_of(call.struct_info))
        given, received = _buffers("x", [a.struct_info for a in call.args]), _buffers("y", infos)
        collective = partial(
            Collective, meaning.kind, tuple(given), tuple(received), elements=elements,
            reduction=meaning.reduction, root=meaning.root, shards=meaning.shards, ranks=meaning.ranks,
        )  # fmt: skip
        name = f"ccl_{meaning.kind}"
        if meaning.kind in LOCAL:
            kernel = PrimFunc(name, (*given, *received), collective(ticket=None), {COLLECTIVE: "whole"})
            results = self.called(name, kernel, call.args, infos)
            return results[0] if len(results) == 1 else Tuple(tuple(results))
        ticket, targets = (
            Buffer("ticket", (), "int64"),
            [Buffer(f"z{k}", b.shape, b.dtype) for k, b in enumerate(received)],
        )
        start = PrimFunc(f"{name}_start", (*given, *received, ticket), collective(ticket=ticket), {COLLECTIVE: "start"})
        *sent, issued = self.called(start.name, start, call.args, [*infos, TensorStructInfo((), "int64")])
        wait = PrimFunc(
            f"{name}_wait", (ticket, *given, *received, *targets),
            Await(ticket, tuple(given), tuple(received), tuple(targets)), {COLLECTIVE: "wait", "scheduled": True},
        )  # fmt: skip
        results = self.called(wait.name, wait, (issued, *call.args, *sent), infos)
        return results[0] if len(results) == 1 else Tuple(tuple(results))

    def called(self, name: str, kernel: PrimFunc, arguments: Sequence[Expr], infos: Sequence[StructInfo]) -> list[Expr]:
        """The results of a kernel's call."""
        value = call_tir(GlobalVar(self.share(name, kernel)), Tuple(tuple(arguments)), tuple(infos))
        whole = self.builder.emit(value, name)
        if len(infos) == 1:
            return [whole]
        return [self.builder.emit(TupleGetItem(whole, k), name) for k in range(len(infos))]

    def group(self, name: str, function: Function, arguments: Sequence[Expr], var: Var) -> Expr:
        """The calls that compute what the primitive function returns; functions that do the same are lowered once."""
        late = frozenset(self.late.get(var, ()))
        key = function_structure(function), late
        if key not in self.lowered:
            composer, outputs = compose(function.bindings, results_of(function))
            params = [composer.inputs.get(p) for p in function.params]
            self.lowered[key] = params, self.lower(name, composer, outputs, {outputs[k] for k in late})
        params, lowered = self.lowered[key]
        known = {p: self.expr(a) for p, a in zip(params, arguments, strict=True) if p is not None}
        with span_scope(main_span(function.bindings)):
            values = self.emit(name, lowered, known)
        is_tuple = isinstance(function.ret_struct_info, TupleStructInfo)
        return Tuple(tuple(values)) if is_tuple else values[0]

    def lower(self, name: str, composer: Composer, outputs: list[te.Tensor], late: Collection[te.Tensor]) -> _Lowered:
        """The kernels for ``outputs``, of which some are read ``late``."""
        distinct = tuple(dict.fromkeys(outputs))
        numbers = frozenset(k for k, t in enumerate(distinct) if t in late)
        whole = Group(tuple(composer.inputs.values()), distinct, self.machine, late=numbers)
        if any(t.is_placeholder for t in whole.outputs):
            raise InternalError(f"{name} returns one of its inputs")
        schedule = recognize(whole)
        if schedule is not None:
            pieces = [(whole, schedule, {t: t for t in (*whole.inputs, *whole.outputs)})]
        else:
            pieces = []
            for group, original in split(whole.outputs, self.machine):
                numbers = frozenset(k for k, t in enumerate(group.outputs) if original[t] in late)
                group = replace(group, late=numbers)
                pieces.append((group, scheduled(group), original))
        steps = []
        for group, schedule, original in pieces:
            kernel = self.kernel(name, group, schedule)
            steps.append((kernel, [original[t] for t in group.inputs], [original[t] for t in group.outputs]))
        return _Lowered(steps, outputs)

    def emit(self, name: str, lowered: _Lowered, known: dict[te.Tensor, Expr]) -> list[Expr]:
        """Bind calls of the kernels; ``known`` says which value every te input stands for."""
        values = dict(known)
        for kernel, inputs, outputs in lowered.steps:
            infos = [TensorStructInfo(t.shape, t.dtype) for t in outputs]
            call = call_tir(GlobalVar(kernel), Tuple(tuple(values[t] for t in inputs)), infos)
            result = self.builder.emit(call, name)
            for k, tensor in enumerate(outputs):
                values[tensor] = result if len(infos) == 1 else self.builder.emit(TupleGetItem(result, k), name)
        return [values[t] for t in lowered.outputs]

    def kernel(self, name: str, group: Group, schedule: Schedule) -> str:
        """The name of the group's kernel in the module; equal ones are shared."""
        function = lowered(schedule, name)
        shared = self.share(name, PrimFunc(name, function.params, function.body, {**function.attrs, "scheduled": True}))
        self.groups.setdefault(shared, group)
        return shared

    def share(self, name: str, function: PrimFunc) -> str:
        """The name under which an equal kernel is, or now becomes, a function of the module."""
        digest = function.digest
        if digest not in self.kernels:
            fresh = self.result.unique_name(name)
            self.result[fresh] = function.renamed(fresh)
            self.kernels[digest] = fresh
        return self.kernels[digest]

    def check(self, call: OpCall, rule: Callable[..., Any]) -> None:
        """Bind the op's check, a bool scalar that the host function looks at before it goes on."""
        composer = Composer()
        tensors = [composer.value(a) for a in call.args]
        result = rule(*tensors, **call.attrs)
        if result is None:
            return
        known = {t: self.expr(e) for e, t in composer.inputs.items()}
        name = f"check_{call.op.short.replace('.', '_')}"
        (value,) = self.emit(name, self.lower(name, composer, [result], ()), known)
        message = inner_op(call).check_message
        if call.span is not None:
            message += f"\n{call.span.caret()}"
        self.expect(value, message)

    def expect(self, value: Expr, message: str) -> None:
        """Bind a look at a bool scalar: where it is false, the call fails with the message."""
        assert isinstance(value, Var)
        self.builder.emit_output(Call(CHECK, (value,), {"message": message}), "checked")


def _buffers(prefix: str, infos: Sequence[StructInfo]) -> list[Buffer]:
    """A buffer for each of these tensors."""
    return [Buffer(f"{prefix}{k}", i.sizes, i.dtype) for k, i in enumerate(map(as_tensor, infos))]


def main_span(bindings: Iterable[Binding]) -> Span | None:
    """The place of the op to which a kernel of these bindings is ascribed: the first product of matrices, convolution
    or attention, else the first op whose place is known."""
    found = None
    for binding in bindings:
        call = binding.value
        if isinstance(call, Call) and call.span is not None:
            if isinstance(call.op, Op) and call.op.precision == "low":
                return call.span
            found = found or call.span
    return found


def _infer_check(value: TensorStructInfo, *, message: str) -> TensorStructInfo:
    if not isinstance(value, TensorStructInfo) or value.dtype != "bool" or value.shape != ():
        raise InternalError(f"a check needs a bool scalar, got {format_info(value)}")
    return value


CHECK = Op("relax.check", Signature.parse("value | message"), _infer_check)


def is_check(expr: object) -> TypeGuard[OpCall]:
    return isinstance(expr, Call) and expr.op is CHECK
