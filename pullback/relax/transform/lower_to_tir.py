"""LowerToTir: groups and single ops become calls of scheduled kernels.

    y = cls.fused_matmul_add(x, w, b)        →        y = R.call_tir(cls.fused_matmul_add_1, (x, w, b), …)

Views (reshape and the like) stay: they move no memory. An op whose tensor expression is no single kernel becomes
several calls. Equal kernels are one function. An op's run-time check becomes a kernel that computes one bool, marked by
the attribute ``check`` with the message for the user.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pullback import te
from pullback.ir.errors import InternalError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import structural_digest
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.expr import Binding, Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.call_tir import call_tir
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, format_info
from pullback.relax.transform.compose import Composer, compose, has_te, is_view
from pullback.relax.transform.fuse_ops import primitive
from pullback.schedule.choose import lower, recognize
from pullback.schedule.group import Group, Machine
from pullback.schedule.split import split
from pullback.tir import PrimFunc
from pullback.tir.specialize import specialize


@dataclass(frozen=True)
class LowerToTir(Pass):
    """Schedule every group for the machine."""

    machine: Machine = field(default_factory=Machine)

    def run(self, module: IRModule) -> IRModule:
        result = IRModule({}, module.attrs)
        lowering = _Lowering(module, result, self.machine)
        for name, function in module.items():
            if isinstance(function, Function) and not function.attrs.get("primitive"):
                result[name] = lowering.function(function)
        return result


class _Lowering(ExprMutator):
    def __init__(self, module: IRModule, result: IRModule, machine: Machine) -> None:
        super().__init__()
        self.module, self.result, self.machine = module, result, machine
        self.kernels: dict[bytes, str] = {}
        self.messages: list[str] = []

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value  # type: ignore[attr-defined]
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            callee = self.module[value.op]
            if not (isinstance(callee, Function) and callee.attrs.get("primitive")):
                raise InternalError(f"the call of {value.op.name} should have been inlined")
            self.bind(binding.var, self.group(value.op.name, callee, [self.expr(a) for a in value.args]))
        elif has_te(value) and not is_view(value):
            if value.op.check is not None:
                self.check(value)
            function, arguments = primitive([VarBinding(binding.var, value)], [binding.var])
            name = value.op.short.replace(".", "_")
            self.bind(binding.var, self.group(name, function, [self.expr(a) for a in arguments]))
        elif is_call_tir(value):
            self.bind(binding.var, self.users_kernel(self.expr(value)))
        elif isinstance(value, Call) and not is_view(value):
            raise InternalError(f"{value.op} has no tensor expression, so it cannot be compiled")
        else:
            super().rewrite_binding(binding)

    def users_kernel(self, call: Call) -> Expr:
        """The call of a kernel that the user wrote, bound to the sizes of its arguments."""
        name, values = call.args[0].name, call.args[1].fields  # type: ignore[union-attr]
        shapes = [info.shape for info in (*(v.struct_info for v in values), *call.sinfo_args)]
        scalars = call.args[2].values if len(call.args) > 2 else ()  # type: ignore[union-attr]
        kernel = self.share(name, specialize(self.module[name], shapes, scalars))
        return call_tir(GlobalVar(kernel), call.args[1], call.sinfo_args)  # type: ignore[arg-type]

    def group(self, name: str, function: Function, arguments: list[Expr]) -> Expr:
        """The calls that compute what the primitive function returns."""
        result = function.body.body
        variables = list(result.fields) if isinstance(result, Tuple) else [result]
        composer, outputs = compose(function.bindings, variables)  # type: ignore[arg-type]
        known = {composer.inputs[p]: a for p, a in zip(function.params, arguments, strict=True) if p in composer.inputs}
        values = self.emit(name, composer, outputs, known)
        is_tuple = isinstance(function.ret_struct_info, TupleStructInfo)
        return Tuple(tuple(values)) if is_tuple else values[0]

    def emit(self, name: str, composer: Composer, outputs: list[te.Tensor], known: dict[te.Tensor, Expr]) -> list[Expr]:
        """Bind calls of the kernels for ``outputs``; ``known`` says which value every te input stands for."""
        whole = Group(tuple(composer.inputs.values()), tuple(dict.fromkeys(outputs)), self.machine)
        if any(t.is_placeholder for t in whole.outputs):
            raise InternalError(f"{name} returns one of its inputs")
        if recognize(whole) is not None:
            pieces = [(whole, {t: t for t in (*whole.inputs, *whole.outputs)})]
        else:
            pieces = split(whole.outputs, self.machine)
        values = dict(known)
        for group, original in pieces:
            kernel = self.kernel(name, group)
            infos = [TensorStructInfo(t.shape, t.dtype) for t in group.outputs]
            call = call_tir(GlobalVar(kernel), Tuple(tuple(values[original[t]] for t in group.inputs)), infos)
            result = self.builder.emit(call, name)
            for k, tensor in enumerate(group.outputs):
                item = result if len(infos) == 1 else self.builder.emit(TupleGetItem(result, k), name)
                values[original[tensor]] = item
        return [values[t] for t in outputs]

    def kernel(self, name: str, group: Group) -> str:
        """The name of the group's kernel in the module; equal ones are shared."""
        function = lower(group, name)
        return self.share(name, PrimFunc(name, function.params, function.body, {"scheduled": True}))

    def share(self, name: str, function: PrimFunc) -> str:
        """The name under which an equal kernel is, or now becomes, a function of the module."""
        digest = structural_digest(function)
        if digest not in self.kernels:
            fresh = self.result.unique_name(name)
            self.result[fresh] = PrimFunc(fresh, function.params, function.body, function.attrs)
            self.kernels[digest] = fresh
        return self.kernels[digest]

    def check(self, call: Call) -> None:
        """Bind the op's check, a bool scalar that the host function looks at before it goes on."""
        composer = Composer()
        tensors = [composer.value(a) for a in call.args]
        result = call.op.check(*tensors, **call.attrs)  # type: ignore[union-attr, misc]
        if result is None:
            return
        known = {t: self.expr(e) for e, t in composer.inputs.items()}
        (value,) = self.emit(f"check_{call.op.short.replace('.', '_')}", composer, [result], known)  # type: ignore[union-attr]
        message = call.op.check_message  # type: ignore[union-attr]
        if call.span is not None:
            message += f"\n{call.span.caret()}"
        assert isinstance(value, Var)
        self.builder.emit_output(Call(CHECK, (value,), {"message": message}), "checked")


def _infer_check(value: TensorStructInfo, *, message: str) -> TensorStructInfo:
    if not isinstance(value, TensorStructInfo) or value.dtype != "bool" or value.shape != ():
        raise InternalError(f"a check needs a bool scalar, got {format_info(value)}")
    return value


CHECK = Op("relax.check", Op.get("call_tir").signature, _infer_check)


def is_check(expr: object) -> bool:
    return isinstance(expr, Call) and expr.op is CHECK
