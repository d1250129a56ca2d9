"""MixedPrecision: float32 arithmetic that half precision is good enough for, in half precision.

    def f(x, w, b):                      def f(x, w, b):
        y = R.matmul(x, w)                   x_bf16 = R.astype(x, "bfloat16")
        z = R.nn.relu(y + b)                 w_bf16 = R.astype(w, "bfloat16")
        u = R.matmul(z, w)         →         y = R.matmul(x_bf16, w_bf16)
        return R.sum(u + b)                  b_bf16 = R.astype(b, "bfloat16")
                                             z = R.nn.relu(R.add(y, b_bf16))
                                             u = R.matmul(z, w_bf16)
                                             u_f32 = R.astype(u, "float32")
                                             return R.sum(R.add(u_f32, b))

Each op says what becomes of its float32 operands (``Op.precision``). Those that follow their operands do so where the
result is wanted in half precision after all, as z is; what only float32 comes of is computed in float32. What a
dataflow block, and so the function, gives to others has the type that it had before, and so have parameters: the
adjoint of the cast of a weight is float32 again. Values of other dtypes are left alone. An op stays in float32 where
one of its constants, such as 1e-8 in float16, would become 0 or an infinity.

Composite ops are not taken apart: each says for itself what it needs, and batch norm has to stay one op (its constants
depend on the batch size). Kernels of the loop IR are called on what they were written for.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.analysis import used_vars
from pullback.relax.constants import lost_numbers
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    Tuple,
    Var,
    tuple_get_item,
)
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, same_shape
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.runtime.dtype import numpy_dtype

HALF = {"bfloat16": "bf16", "float16": "f16"}  # the types, and how variables are named that have been cast to them
_SINGLE = "float32"


@dataclass(frozen=True)
class MixedPrecision(Pass):
    """Compute in half precision what tolerates it, and all else in float32.

    In branches and loops, what a region takes and gives stays float32.

    Args:
        func_name: the function, a name or a GlobalVar, with what it calls inlined; by default all public functions.
        dtype: "bfloat16", or "float16", whose gradients need a loss scale (a trainer has one).

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((8, 8), "float32"), b: R.Tensor((8, 8), "float32")):
        ...     return R.matmul(a, b)
        >>> module = relax.transform.MixedPrecision()(pullback.IRModule({"main": main}))
        >>> for binding in module["main"].bindings:
        ...     print(binding.var.name, "=", binding.value)
        a_bf16 = R.astype(a, "bfloat16")
        b_bf16 = R.astype(b, "bfloat16")
        gv_bf16 = R.matmul(a_bf16, b_bf16)
        gv_bf16_f32 = R.astype(gv_bf16, "float32")
        gv = gv_bf16_f32

    Checks: raises ArgumentError when there is no such dtype, or the function is a kernel. Parameters, results and
    values of other dtypes keep their types.
    """

    func_name: str | GlobalVar | None = None
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in HALF:
            known = " or ".join(map(repr, HALF))
            raise ArgumentError(
                f"MixedPrecision: dtype must be {known}, got {self.dtype!r}",
                hint="float32 is what is computed without the pass",
            )

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if name is not None and not isinstance(module[name], Function):
            raise ArgumentError(
                f"{self.name}: {name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        result = module.copy()
        for key, function in module.items():
            is_public = isinstance(function, Function) and not function.attrs.get("private")
            if key == name or (name is None and is_public):
                result[key] = over_regions(inline_calls(function, module), module, self._mixed)
        return result

    def _mixed(self, function: Function) -> Function:
        trial = _Mix(self.dtype, frozenset())
        trial.function(function)
        return remove_dead_bindings(_Mix(self.dtype, _wide(function, trial.halves)).function(function))


def to_mixed_precision(out_dtype: str = _SINGLE, fp16_input_names: Sequence[str] | None = None) -> MixedPrecision:
    """All public functions in float16, as ``ToMixedPrecision`` of the reference system makes them.

        y = R.matmul(x, w)        →        y = R.astype(R.matmul(x_f16, w_f16), "float32")

    Args:
        out_dtype: what products are summed in: always "float32" here.
        fp16_input_names: parameters that would become float16 there; here they are declared so, and it is None.

    Returns:
        The pass, with ``dtype="float16"``.

    Raises:
        ArgumentError: for another ``out_dtype``, and for ``fp16_input_names``.

    Checks: see MixedPrecision.
    """
    if out_dtype != _SINGLE:
        raise ArgumentError(
            f"ToMixedPrecision: products are summed in float32, out_dtype={out_dtype!r} is not supported"
        )
    if fp16_input_names:
        hint = 'declare them with the dtype "float16"'
        raise ArgumentError(
            "ToMixedPrecision: fp16_input_names is not supported: parameters keep their types", hint=hint
        )
    return MixedPrecision(dtype="float16")


def _wide(function: Function, halves: Set[Var]) -> set[Var]:
    """Of ``halves``, values that could be had in half precision, those that follow their operands and that nobody wants
    so: neither an op that is computed from half precision, nor one whose own result is wanted so."""
    wanted: set[Var] = set()
    found: set[Var] = set()
    for binding in reversed(list(function.bindings)):
        var, value = binding.var, binding.value
        precision = value.op.precision if isinstance(value, Call) and isinstance(value.op, Op) else "full"
        if precision == "low":
            wanted.update(used_vars(value))
        elif precision == "data":
            wanted.update(used_vars(value.args[0]))
        elif precision == "same" and var in halves and var not in wanted:
            found.add(var)
        elif var in halves and var in wanted:  # what follows its operands; an alias, a tuple, a part of one
            wanted.update(used_vars(value))
    return found


class _Mix(ExprMutator):
    """``env`` gives for a variable what it has become, perhaps in half precision; the variable itself still has the
    type that was given. ``wide``: variables whose ops do not follow their operands."""

    def __init__(self, dtype: str, wide: Set[Var]) -> None:
        super().__init__()
        self.dtype, self.wide = dtype, wide
        self.halves: set[Var] = set()  # what has become half precision
        self.known: dict[tuple[Expr, str], Expr] = {}  # a variable in another type

    def block(self, block: Any) -> None:
        self.known = {}  # what was cast in a dataflow block is not seen outside
        super().block(block)

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            self.env[binding.var] = self.builder.match_cast(self.as_given(binding.value), binding.target)
            return
        with span_scope(binding.span):
            wide = binding.var in self.wide
            self.bind(binding.var, self.with_operands(binding.value, "full") if wide else self.expr(binding.value))

    def bind(self, var: Var, value: Expr) -> None:
        """A variable that others see has the given type; within the block, its half-precision value is used."""
        same = _same_dtypes(value.struct_info, var.struct_info)
        if not same:
            self.halves.add(var)
        if same or isinstance(var, DataflowVar):
            super().bind(var, value)
            return
        half = self.builder.emit(value, f"{var.name}_{HALF[self.dtype]}")
        self.env[var] = self.builder.emit_output(self.restored(half, var.struct_info), var.name)
        self.known[self.env[var], self.dtype] = half

    def expr(self, expr: Any) -> Any:
        if not isinstance(expr, Call):
            return super().expr(expr)
        return self.with_operands(expr, expr.op.precision if isinstance(expr.op, Op) else "full")

    def with_operands(self, call: Any, precision: str) -> Expr:
        """The call on operands of the types that the precision asks for."""
        args = self.operands(call, precision)
        if all(new is old for new, old in zip(args, call.args, strict=True)):
            return call
        return Call(call.op, args, call.attrs, call.sinfo_args, span=call.span)

    def operands(self, call: Call, precision: str) -> tuple[Any, ...]:
        if precision == "full" or any(self.is_lost(a, precision) for a in call.args):
            return tuple(map(self.as_given, call.args))
        news = [self.expr(a) for a in call.args]
        if precision == "data":
            return (news[0], *map(self.as_given, call.args[1:]))
        free = [i for i, a in enumerate(call.args) if _is_single(a)]
        dtype = self.dtype if precision == "low" else self.common([news[i] for i in free], call.struct_info)
        return tuple(self.cast(new, dtype) if i in free else new for i, new in enumerate(news))

    def common(self, operands: Sequence[Expr], result: Any) -> str:
        """The widest dtype of those operands that are as large as the result: a bias takes the type of what it is added
        to. Of all, when none is."""
        shape = result.shape if isinstance(result, TensorStructInfo) else None
        large = [o.dtype for o in operands if shape is not None and same_shape(o.shape, shape)]
        return _SINGLE if _SINGLE in (large or [o.dtype for o in operands]) else self.dtype

    def is_lost(self, arg: Any, precision: str) -> bool:
        """Whether an operand is a constant that half precision does not hold. Of the factors of products, which are
        sums of many, elements may become 0."""
        if precision == "data" or not _is_single(arg) or not isinstance(arg, Constant):
            return False
        lost = lost_numbers(arg.data, _rounded(arg.data, self.dtype))
        return bool(np.any(np.abs(lost) > 1) if precision == "low" else lost.size)

    # -- casts

    def as_given(self, expr: Any) -> Any:
        """An operand of the type that it has in the function as it was given."""
        return self.restored(self.expr(expr), expr.struct_info) if isinstance(expr, Expr) else expr

    def restored(self, value: Any, info: Any) -> Any:
        if isinstance(info, TensorStructInfo) and isinstance(value.struct_info, TensorStructInfo):
            return self.cast(value, info.dtype)
        if not isinstance(info, TupleStructInfo) or _same_dtypes(value.struct_info, info):
            return value
        fields = [tuple_get_item(value, i) for i in range(len(info.fields))]
        fields = [f if isinstance(value, Tuple) else self.builder.emit(f) for f in fields]
        return Tuple(tuple(self.restored(f, i) for f, i in zip(fields, info.fields, strict=True)))

    def cast(self, value: Any, dtype: str) -> Expr:
        """A tensor of another type; each value is cast once."""
        if value.struct_info.dtype == dtype:
            return value
        if isinstance(value, Constant):
            return Constant(_rounded(value.data, dtype), span=value.span)
        if (value, dtype) not in self.known:
            name = f"{value.name}_{HALF.get(dtype, 'f32')}"
            self.known[value, dtype] = self.builder.emit(Op.get("astype")(value, dtype), name)
        return self.known[value, dtype]


def _rounded(data: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return data.astype(numpy_dtype(dtype))


def _is_single(expr: Any) -> bool:
    info = expr.struct_info if isinstance(expr, Expr) else None
    return isinstance(info, TensorStructInfo) and info.dtype == _SINGLE


def _same_dtypes(a: Any, b: Any) -> bool:
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return all(map(_same_dtypes, a.fields, b.fields))
    return not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo) or a.dtype == b.dtype
