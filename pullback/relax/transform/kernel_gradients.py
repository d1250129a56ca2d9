"""Adjoints of what has no gradient rule: kernels of the loop IR, and ops that are only loops or a tensor expression.

    y = R.call_tir(cls.kernel, (x, w), out_sinfo=R.Tensor((m, n), "float32"))
        →
    dx, dw = R.call_tir(cls.kernel_adjoint, (x, w, y_adjoint), out_sinfo=[R.Tensor(…), R.Tensor(…)])

``tir/adjoint.py`` writes the adjoint kernels, of the kernel itself or of the op's plain loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pullback import te
from pullback.ir.errors import DifferentiationError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, Tuple, TupleGetItem
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.op.kernel import loops_of
from pullback.relax.op.register import te_gradient
from pullback.relax.op_calls import is_call_tir, kernel_name, kernel_operands, kernel_sizes, op_of
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, fields_of, format_info, has_adjoint
from pullback.te.naive import naive_kernel
from pullback.tir import PrimFunc
from pullback.tir.adjoint import adjoint_kernel
from pullback.tir.derivative import DENSE
from pullback.tir.expr import Select
from pullback.tir.guard import guard_products
from pullback.tir.visitor import distinct


class KernelGradients:
    """Adds adjoint kernels to a module as they are asked for."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.known: dict[tuple[Any, ...], PrimFunc] = {}
        self.names: dict[PrimFunc, str] = {}  # in the module

    def adjoints(
        self, builder: BlockBuilder, call: Call, dy: Any, active: Sequence[bool], degree: int = DENSE
    ) -> list[Expr | None]:
        """The adjoints of the arguments: of a kernel's tensors as a list of them. ``active``: which are wanted;
        ``degree``: to which dy holds structural zeros."""
        if "te_grad_name" in call.attrs:
            return self.registered(builder, call, dy, degree)
        arguments, wanted = operands(call), _wanted(call, active)
        if not wanted:
            return [None] * len(arguments)
        infos = fields_of(call.struct_info)
        dys = dy if isinstance(call.struct_info, TupleStructInfo) else [dy]
        seeds = [d for d, info in zip(dys, infos, strict=True) if has_adjoint(info)]
        outs = [arguments[k].struct_info for k in wanted]
        sizes = kernel_sizes(call) if is_call_tir(call) and len(call.args) > 2 else None
        kernel = GlobalVar(self.kernel(call, wanted, degree))
        result = builder.emit(call_tir(kernel, Tuple((*arguments, *seeds)), outs, sizes), f"{kernel.name}_result")
        parts = [result] if len(wanted) == 1 else [TupleGetItem(result, k) for k in range(len(wanted))]
        found: list[Expr | None] = [None] * len(arguments)
        for k, part in zip(wanted, parts, strict=True):
            found[k] = part
        return found

    def registered(self, builder: BlockBuilder, call: Call, dy: Any, degree: int) -> list[Expr | None]:
        """The adjoints that the user's function of tensor expressions gives."""
        name, arguments = call.attrs["te_grad_name"], operands(call)
        dys = list(dy) if isinstance(call.struct_info, TupleStructInfo) else [dy]
        values = [*dys, *arguments]
        inputs = [te.placeholder(v.struct_info.shape, v.dtype, f"x{k}") for k, v in enumerate(values)]
        seed = inputs[: len(dys)] if isinstance(call.struct_info, TupleStructInfo) else inputs[0]
        result = te_gradient(name)(seed, *inputs[len(dys) :], **call.attrs["te_grad_kwargs"])
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        wanted = [(a.shape, a.dtype) for a in arguments]
        if [(t.shape, t.dtype) for t in found] != wanted:
            given = ", ".join(format_info(TensorStructInfo(t.shape, t.dtype)) for t in found)
            types = ", ".join(format_info(a.struct_info) for a in arguments)
            raise DifferentiationError(f"the gradient {name} must give {types}, it gives {given}", span=call.span)
        kernel = self.module.unique_name(name)
        written = naive_kernel(kernel, inputs, found)
        chooses = any(isinstance(node, Select) for node in distinct(written))
        guarded = guard_products(written, written.buffers[: len(dys)]) if degree != DENSE or chooses else written
        self.module[kernel] = guarded
        call = call_tir(GlobalVar(kernel), Tuple(tuple(values)), [a.struct_info for a in arguments])
        adjoints = builder.emit(call, f"{kernel}_result")
        return [adjoints] if len(found) == 1 else [TupleGetItem(adjoints, k) for k in range(len(found))]

    def refusal(self, call: Call, active: Sequence[bool]) -> str | None:
        """Why the call has no adjoint; None when it has one."""
        if "te_grad_name" in call.attrs:
            return None
        try:
            self.adjoint(call, _wanted(call, active), DENSE)
        except DifferentiationError as error:
            return error.message
        return None

    def kernel(self, call: Call, wanted: Sequence[int], degree: int) -> str:
        """The name of the adjoint kernel in the module."""
        function = self.adjoint(call, wanted, degree)
        if function not in self.names:
            self.names[function] = self.module.unique_name(function.name)
            self.module[self.names[function]] = replace(function, name=self.names[function])
        return self.names[function]

    def adjoint(self, call: Call, wanted: Sequence[int], degree: int) -> PrimFunc:
        """The adjoint kernel of a call."""
        key = (kernel_name(call) if is_call_tir(call) else call, degree, *wanted)
        if key not in self.known:
            if is_call_tir(call):
                function = self.module[kernel_name(call)]
            else:
                function = loops_of(call, op_of(call).short.replace(".", "_"))
            assert isinstance(function, PrimFunc)
            results = len(fields_of(call.struct_info))
            self.known[key] = adjoint_kernel(function, results, wanted, f"{function.name}_adjoint", degree)
        return self.known[key]


def operands(call: Call) -> list[Expr]:
    """The tensors that a kernel, or an op, is called on."""
    return list(kernel_operands(call) if is_call_tir(call) else call.args)


def _wanted(call: Call, active: Sequence[bool]) -> list[int]:
    values = zip(operands(call), active, strict=True)
    return [k for k, (value, is_active) in enumerate(values) if is_active and has_adjoint(value.struct_info)]
