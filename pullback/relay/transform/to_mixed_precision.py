"""ToMixedPrecision: contractions in half precision, what follows too where it may be.

    nn.relu(nn.dense(%x, %w))    →    %0 = nn.dense(cast(%x, "float16"), cast(%w, "float16"), out_dtype="float32");
                                      nn.relu(cast(%0, "float16"))

Each op is of one of three kinds: *always* computed in half precision, *follow* its arguments, or *never*.
``relay.op.register_mixed_precision_conversion(name, rule)`` changes that: ``rule(call, dtype)`` returns the kind, the
dtype that sums are taken in, and that of the result. The option ``relay.ToMixedPrecision.keep_orig_output_dtype`` casts
the result of the program back.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.optional import all_known
from pullback.ir.pass_context import PassContext, register_option
from pullback.relay.adt import Clause, Match
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    call_op,
)
from pullback.relay.op.meaning import result_type
from pullback.relay.op.registry import Op
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import same_call
from pullback.relay.ty import TensorType, TupleType, Type
from pullback.relay.type_visitor import same_or
from pullback.relay.visitor import ExprMutator, children, post_order

ALWAYS, FOLLOW, NEVER = 0, 1, 2
KEEP_RESULT = register_option("relay.ToMixedPrecision.keep_orig_output_dtype", bool)

_ALWAYS = {
    *(f"nn.conv{d}d{kind}" for d in (1, 2, 3) for kind in ("", "_transpose")),
    "nn.dense", "nn.matmul", "nn.batch_matmul",
}  # fmt: skip
_FOLLOW = {
    # What moves elements or makes them.
    "nn.pad", "nn.batch_flatten", "concatenate", "zeros", "ones", "split", "squeeze", "stack", "transpose",
    "expand_dims", "reshape", "dyn.reshape", "broadcast_to", "broadcast_to_like", "dyn.broadcast_to", "repeat",
    "strided_slice", "dyn.strided_slice", "take", "gather", "gather_nd", "argwhere", "where", "tile", "dyn.tile",
    "scatter_elements", "scatter_nd", "full", "dyn.full", "nn.depth_to_space", "nn.space_to_depth", "zeros_like",
    "ones_like", "full_like", "reshape_like", "layout_transform", "reverse", "copy", "cast", "cast_like", "shape_of",
    # Comparison, arithmetic, and activations whose values stay in a narrow range.
    "less", "greater", "less_equal", "greater_equal", "add", "subtract", "multiply", "divide", "negative", "abs",
    "nn.bias_add", "nn.batch_norm", "sqrt", "max", "min", "maximum", "minimum", "argmax", "argmin", "nn.relu",
    "nn.leaky_relu", "nn.prelu", "nn.dropout", "sigmoid", "tanh", "fast_tanh", "fast_exp", "fast_erf", "clip",
    # Pools of few elements.
    *(f"nn.{kind}_pool{d}d" for kind in ("max", "avg", "global_max", "adaptive_max") for d in (1, 2, 3)),
    "image.resize1d", "image.resize2d", "image.resize3d", "nn.upsampling",
}  # fmt: skip
_NEVER = {
    # What is much larger than its arguments, what sums up many elements, and what counts.
    "exp", "power", "log", "nn.cross_entropy", "nn.cross_entropy_with_logits", "nn.nll_loss", "nn.softmax",
    "nn.log_softmax", "nn.l2_normalize", "erf", "arange", "dyn.arange", "sum", "prod", "mean", "variance",
    "nn.layer_norm", "nn.group_norm", "nn.instance_norm", "rsqrt",
    *(f"nn.{kind}_avg_pool{d}d" for kind in ("global", "adaptive") for d in (1, 2, 3)),
}  # fmt: skip

_KEPT = (Function, If, Match, RefCreate, RefRead, RefWrite)  # what has the type that it had


@dataclass(frozen=True)
class ToMixedPrecision(FunctionPass):
    """Compute in ``mixed_precision_type``, float16 or bfloat16, what can be.

    ``missing_op_mode`` says what happens to an op of no known kind, which is never computed so: 0 it is a UserError, 1
    a warning, 2 nothing.

    Checks: raises ArgumentError for another type or mode. The result of a function that others call keeps its type.
    """

    mixed_precision_type: str = "float16"
    missing_op_mode: int = 1

    typed = True
    required = ("InferType",)

    def __post_init__(self) -> None:
        if self.mixed_precision_type not in ("float16", "bfloat16"):
            hint = "half-precision types are float16 and bfloat16"
            raise ArgumentError(f"mixed_precision_type cannot be {self.mixed_precision_type!r}", hint=hint)
        if self.missing_op_mode not in (0, 1, 2):
            raise ArgumentError(f"missing_op_mode must be 0, 1 or 2, got {self.missing_op_mode!r}")

    def function(self, function: Function, module: IRModule) -> Function:
        called = {node.name for f in module.functions.values() for node in post_order(f) if isinstance(node, GlobalVar)}
        kept = any(f is function and name in called for name, f in module.items())
        kept = kept or PassContext.current().option(KEEP_RESULT, False)
        return _Mixed(self.mixed_precision_type, self.missing_op_mode).program(function, kept)


class _Mixed(ExprMutator):
    """What is rewritten is known with its type: ``types`` has those of new expressions."""

    def __init__(self, dtype: str, missing: int) -> None:
        super().__init__()
        self.dtype, self.missing = dtype, missing
        self.types: dict[Any, Type] = {}
        self.casts: dict[Any, Expr] = {}
        self.warned: set[str] = set()

    def program(self, function: Function, kept: bool) -> Function:
        """The function of a module; its result has the old type if that is to be kept."""
        body = self.before(function.body) if kept else self.visit(function.body)
        return function if body is function.body else function.replace(body=body, ret_type=None)

    def before(self, expr: Expr) -> Expr:
        """The rewritten expression with the type that it had."""
        return self.as_before(self.visit(expr), expr.checked_type)

    def as_before(self, expr: Expr, wanted: Type) -> Expr:
        found = self.type_of(expr)
        if isinstance(wanted, TensorType) and isinstance(found, TensorType):
            return expr if found.dtype == wanted.dtype else self.cast(expr, wanted.dtype)
        if isinstance(wanted, TupleType) and found != wanted:
            items = (
                expr.fields if isinstance(expr, Tuple) else [TupleGetItem(expr, i) for i in range(len(wanted.fields))]
            )
            if isinstance(found, TupleType):
                self.types.update(zip(items, found.fields, strict=True))
            return Tuple(tuple(self.as_before(item, w) for item, w in zip(items, wanted.fields, strict=True)))
        return expr

    def type_of(self, expr: Expr) -> Type | None:
        """The type of a rewritten expression: of one that is unchanged, the inferred one."""
        if expr in self.types:
            return self.types[expr]
        if isinstance(expr, Tuple):
            fields = all_known(self.type_of(field) for field in expr.fields)
            return None if fields is None else TupleType(fields)
        if isinstance(expr, TupleGetItem):
            of = self.type_of(expr.tuple_value)
            return of.fields[expr.index] if isinstance(of, TupleType) else None
        if isinstance(expr, Let):
            return self.type_of(expr.body)
        return expr.checked_type_

    def cast(self, expr: Expr, dtype: str) -> Expr:
        """A tensor of floats in another dtype, cast once; others as they are."""
        known = self.type_of(expr)
        if isinstance(known, TupleType):
            return self.cast_fields(expr, known, dtype)
        if not isinstance(known, TensorType) or known.dtype == dtype or "float" not in known.dtype:
            return expr
        key = (expr, dtype)
        if key not in self.casts:
            cast = self.casts[key] = call_op("cast", expr, dtype)
            self.types[cast] = TensorType(known.shape, dtype)
            self.casts[cast, known.dtype] = expr
        return self.casts[key]

    def cast_fields(self, expr: Expr, known: TupleType, dtype: str) -> Expr:
        items = expr.fields if isinstance(expr, Tuple) else [TupleGetItem(expr, i) for i in range(len(known.fields))]
        self.types.update(zip(items, known.fields, strict=True))
        fields = tuple(self.cast(item, dtype) for item in items)
        same = all(a is b for a, b in zip(fields, items, strict=True))
        return expr if same else Tuple(fields, span=expr.span)

    # What functions take and return, branches give, and cells and data types hold, keeps its type.

    def visit(self, expr: Any) -> Any:
        new = super().visit(expr)
        if new is not expr and isinstance(new, _KEPT):
            self.types.setdefault(new, expr.checked_type)
        return new

    def visit_function(self, function: Function) -> Expr:
        body = self.before(function.body)
        return function if body is function.body else function.replace(body=body)

    def visit_if(self, if_: If) -> Expr:
        parts = (self.visit(if_.cond), self.before(if_.true_branch), self.before(if_.false_branch))
        return if_ if same_or(children(if_), parts) is not parts else If(*parts, span=if_.span)

    def visit_ref_create(self, create: RefCreate) -> Expr:
        value = self.before(create.value)
        return create if value is create.value else RefCreate(value, span=create.span)

    def visit_ref_write(self, write: RefWrite) -> Expr:
        ref, value = self.visit(write.ref), self.before(write.value)
        return write if ref is write.ref and value is write.value else RefWrite(ref, value, span=write.span)

    def visit_clause(self, clause: Clause) -> Clause:
        rhs = self.before(clause.rhs)
        return clause if rhs is clause.rhs else Clause(clause.lhs, rhs, span=clause.span)

    def visit_match(self, match: Match) -> Expr:
        data = self.before(match.data)
        clauses = same_or(match.clauses, tuple(self.visit_clause(c) for c in match.clauses))
        same = data is match.data and clauses is match.clauses
        return match if same else Match(data, clauses, match.complete, span=match.span)

    def visit_let(self, let: Let) -> Expr:
        value = self.visit(let.value)
        if value is not let.value and let.variable not in self.memo_map:
            variable = Var(let.variable.name, span=let.variable.span)
            known = self.type_of(value)
            if known is not None:
                self.types[variable] = known
            self.memo_map[let.variable] = variable
        return super().visit_let(let)

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op):
            op, given = self.visit(call.op), [self.before(arg) for arg in call.args]
            same = op is call.op and all(a is b for a, b in zip(given, call.args, strict=True))
            new = call if same else Call(op, given, call.attrs, call.type_args, span=call.span)
            self.types[new] = call.checked_type
            return new
        args = [self.visit(arg) for arg in call.args]
        kind, summed, result = self.kind(call)
        if kind != NEVER and not all(self.may_be_half(arg, kind == FOLLOW) for arg in args):
            kind = NEVER
        args = [self.widened(arg) if kind == NEVER else self.cast(arg, self.dtype) for arg in args]
        attrs = {} if kind == NEVER else _with_dtype(call, summed)
        if not attrs and all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        new = same_call(call, args, **attrs)
        types = all_known(self.type_of(arg) for arg in args)
        if types is not None:
            self.types[new] = result_type(new.op, types, new.attrs)
        return new if kind == NEVER or summed == result else self.cast(new, result)

    def widened(self, arg: Expr) -> Expr:
        """An argument with float32 in place of the half precision that this pass brought in."""
        return self.cast(arg, "float32") if arg.checked_type_ is None or arg in self.types else arg

    def kind(self, call: Call) -> tuple[int, str, str]:
        """The kind of a call, the dtype in which it sums up, and that of its result."""
        rule = call.op.get_attr("FTVMMixedPrecisionConversionType")
        if rule is not None:
            kind, summed, result = rule(call, self.dtype)
            return int(kind), str(summed), str(result)
        name = call.op.name
        if name in _ALWAYS:
            return ALWAYS, "float32", self.dtype
        if name in _FOLLOW:
            return FOLLOW, self.dtype, self.dtype
        if name not in _NEVER:
            self.missed(call)
        return NEVER, "float32", "float32"

    def missed(self, call: Call) -> None:
        name = call.op.name
        message = f"ToMixedPrecision knows nothing of {name}: it is computed in float32"
        hint = "relay.op.register_mixed_precision_conversion says what may be done with it"
        if self.missing == 0:
            raise UserError(message, span=call.span, hint=hint)
        if self.missing == 1 and name not in self.warned:
            self.warned.add(name)
            warnings.warn(message, stacklevel=2)

    def may_be_half(self, arg: Expr, only_if_it_is: bool) -> bool:
        """Whether an argument can be had in half precision: it is float32, or it is that already, or a variable or
        constant, which are cast for nothing; or it holds no floats."""
        known = self.type_of(arg)
        dtypes = _dtypes(known)
        if dtypes is None:
            return False
        if only_if_it_is and not isinstance(arg, (Var, Constant)):
            return all(dtype == self.dtype or "float" not in dtype for dtype in dtypes)
        return all(dtype in ("float32", self.dtype) or "float" not in dtype for dtype in dtypes)


def _dtypes(type_: Type | None) -> list[str] | None:
    """The dtypes of a tensor, or of all tensors of a tuple; None where there are others than tensors."""
    if isinstance(type_, TensorType):
        return [type_.dtype]
    if not isinstance(type_, TupleType):
        return None
    found = all_known(_dtypes(field) for field in type_.fields)
    return None if found is None else [dtype for each in found for dtype in each]


def _with_dtype(call: Call, dtype: str) -> dict[str, str]:
    """The attributes that say the dtype of the result, where that is one of floats."""
    found = {}
    for name in ("out_dtype", "dtype"):
        given = call.attrs.get(name)
        if given is not None and (given == "" or "float" in given):
            found[name] = dtype
    return found
