"""LegalizeOps: graph ops become calls of loop-IR kernels.

    y = R.matmul(x, w)        →        y = R.call_tir(cls.matmul, (x, w), out_sinfo=R.Tensor(…), origin=…)

The kernels are the plain loops of the ops' tensor expressions, or an op's own. Nothing is lost: ``origin`` keeps the op
and its attributes, so that :class:`RaiseOps` brings the ops back and the compiler schedules them as if never lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.expr import Call, Expr, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.op.kernel import loops_of
from pullback.relax.op_calls import lacks_state, op_of
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.transform.eliminate_common_subexpr import attrs_key
from pullback.relax.transform.inline_functions import over_regions
from pullback.tir.stmt import PrimFunc


@dataclass(frozen=True)
class LegalizeOps(Pass):
    """Lower every op that has a tensor expression, or loops of its own, to a kernel of the module; random ops only when
    they have a state. Ops that are only what they decompose to stay.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((2, 3), "float32"), b: R.Tensor((3, 4), "float32")):
        ...     return R.matmul(a, b)
        >>> module = relax.transform.LegalizeOps()(pullback.IRModule({"main": main}))
        >>> list(module), type(module["matmul"]).__name__
        (['main', 'matmul'], 'PrimFunc')

    Checks: a call keeps its type. RaiseOps undoes it, as long as nobody changes the kernel.
    """

    def run(self, module: IRModule) -> IRModule:
        lowering = _Legalize(module.copy())
        for name, function in module.items():
            if isinstance(function, Function):
                lowering.module[name] = over_regions(function, module, lowering.function)
        return lowering.module


class _Legalize(ExprMutator):
    def __init__(self, module: IRModule) -> None:
        super().__init__()
        self.module = module
        self.kernels: dict[object, str] = {}

    def rewrite_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op) or lacks_state(call) or (call.op.te is None and call.op.kernel is None):
            return call
        name = self.kernel(call)
        out = call.struct_info
        outs = out.fields if isinstance(out, TupleStructInfo) else (out,)
        origin = {"op": call.op.name, "attrs": dict(call.attrs)}
        return call_tir(self.module.get_global_var(name), call.args, outs, origin=origin)

    def kernel(self, call: Call) -> str:
        """The name of the kernel for this op on operands of these types, made on first use."""
        key = _key(call)
        if key not in self.kernels:
            name = self.module.unique_name(op_of(call).short.replace(".", "_"))
            self.module[name] = kernel = loops_of(call, name)
            self.kernels[key] = name
            _made[kernel] = key
        return self.kernels[key]


_made: WeakKeyDictionary[PrimFunc, object] = WeakKeyDictionary()  # kernels, and what they were made of


def is_lowered(call: Call, kernel: PrimFunc) -> bool:
    """Whether a kernel is what LegalizeOps makes of a call, and not what somebody made of that."""
    return _made.get(kernel) == _key(call) or loops_of(call, kernel.name).digest == kernel.digest


def _key(call: Call) -> object:
    """What the kernel of a call depends on."""
    infos = tuple([_by_name(a.struct_info) for a in call.args])
    return call.op.name, infos, attrs_key(call.attrs)


def _by_name(info: StructInfo) -> object:
    """A type of which symbolic sizes count by name: functions with sizes of the same names share kernels."""
    return (info.dtype, info.shape) if isinstance(info, TensorStructInfo) and info.is_static else repr(info)
