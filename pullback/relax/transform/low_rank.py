"""Low-rank updates of weights: W + s·B·A in the place of W (Hu et al., LoRA, 2021).

    y = R.linear(x, w)          →          y = R.linear(x, w) + s * R.linear(R.linear(dropout(x), a), b)

So do products from either side, with a transposed weight too, convolutions without groups, and lookups of rows. There
the gradient of what is added never has the size of the weight. Any other use reads the sum W + s·B·A, which is computed
once, at the beginning; its gradient has the size of the weight.

One weight has one update, whatever uses it: of tied weights, all places read the same sum.

A module says which updates its backbone has by the attribute ``low_rank``:

    I.module_attrs({"low_rank": {"fc.weight": ("fc.lora_A", "fc.lora_B", 2.0, 0.0, False)}})

The parameter fc.weight is used as W + 2.0·B·A, where fc.lora_A and fc.lora_B are A and B; then come the dropout, and
whether it is (B·A)ᵀ that is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import Span, span_scope
from pullback.ir.op import Op
from pullback.relax import op
from pullback.relax.expr import Binding, Call, Expr, Function, MatchCast, TupleGetItem, Var, const
from pullback.relax.mutator import ExprMutator, ExprVisitor
from pullback.relax.op_calls import is_op, op_of

LOW_RANK = "low_rank"  # the module attribute

_CONVOLUTIONS = {"nn.conv1d": "NCW OIW", "nn.conv2d": "NCHW OIHW", "nn.conv3d": "NCDHW OIDHW"}


@dataclass(frozen=True)
class LowRank:
    """The update of one weight of a function, taken as a matrix: its first axis by all others.

    ``a``, (rank, columns), and ``b``, (rows, rank), are parameters too: W + scale·B·A. With ``transposed`` they are
    (rank, rows) and (columns, rank): W + scale·(B·A)ᵀ, for weights that are (inputs, outputs). ``dropout``: the
    probability with which elements of the product's input are dropped on the way through A and B.
    """

    weight: Var
    a: Var
    b: Var
    scale: float
    dropout: float = 0.0
    transposed: bool = False

    def left(self) -> tuple[Var, bool]:
        """P of W + scale·P·Q: (rows, rank), and whether the parameter is its transpose."""
        return (self.a, True) if self.transposed else (self.b, False)

    def right(self) -> tuple[Var, bool]:
        """Q: (rank, columns)."""
        return (self.b, True) if self.transposed else (self.a, False)


def with_updates(function: Function, updates: Iterable[LowRank]) -> Function:
    """The function with updates of its parameters, which are parameters of it already. A UserError for a dropout of
    what is no input of a product."""
    known = {update.weight: update for update in updates}
    if not known:
        return function
    uses = _Uses(known)
    uses.visit_function(function)
    return _Update(known, uses).function(function)


def without_updates(function: Function, names: Iterable[str]) -> Function:
    """The function as it was before :func:`with_updates`; ``names``: those of the parameters a and b. They stay
    parameters."""
    gone = set(names)
    return _Undo({p for p in function.params if p.name in gone}).function(function)


@dataclass(frozen=True)
class Update:
    """An entry of the module attribute: names of parameters, and what :class:`LowRank` says of the rest."""

    weight: str
    a: str
    b: str
    scale: float
    dropout: float = 0.0
    transposed: bool = False


def updates_of(module: IRModule) -> tuple[Update, ...]:
    """The updates that a model or trainer module says it has."""
    found = module.attrs.get(LOW_RANK, {})
    try:
        return tuple(
            Update(str(w), str(a), str(b), float(s), float(d), bool(t)) for w, (a, b, s, d, t) in found.items()
        )
    except (AttributeError, TypeError, ValueError) as error:
        hint = "pullback.nn.LoRA writes it: weight: (a, b, scale, dropout, transposed)"
        raise ArgumentError(f"the module attribute {LOW_RANK!r} is none of updates: {error}", hint=hint) from None


def as_attribute(updates: Iterable[Update]) -> dict[str, tuple[str, str, float, float, bool]]:
    """As plain values, which can be printed."""
    return {u.weight: (u.a, u.b, u.scale, u.dropout, u.transposed) for u in updates}


# ---- which uses are cheap


@dataclass(frozen=True)
class _Use:
    """A use that needs no sum: the weight is argument ``place`` of a product (``kind``), perhaps transposed."""

    kind: str
    place: int
    update: LowRank
    is_transposed: bool


class _Uses(ExprVisitor):
    """What reads the weights: ``views`` are variables that are a weight or its transpose, ``summed`` the weights of
    which something reads the sum."""

    def __init__(self, updates: Mapping[Var, LowRank]) -> None:
        self.views: dict[Expr, tuple[LowRank, bool]] = {w: (u, False) for w, u in updates.items()}
        self.summed: dict[Var, None] = {}

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Var) and value in self.views and not isinstance(binding, MatchCast):
            self.views[binding.var] = self.views[value]
            return
        if isinstance(value, Call) and is_op(value, "permute_dims") and value.args[0] in self.views:
            update, is_transposed = self.views[value.args[0]]
            if len(update.weight.shape) == 2 and _swaps(value.attrs["axes"]):
                self.views[binding.var] = update, not is_transposed
                return
        self.visit_expr(value)

    def visit_call(self, call: Call) -> None:
        use = self.use(call)
        if isinstance(call.op, Expr):
            self.visit_expr(call.op)
        for place, argument in enumerate(call.args):
            if use is None or place != use.place:
                self._reads(argument, call.span)

    def visit_var(self, var: Var) -> None:
        self._reads(var, None)

    visit_dataflow_var = visit_var

    def _reads(self, argument: Any, span: Span | None) -> None:
        if not isinstance(argument, Var):
            self.visit_expr(argument)
            return
        if argument not in self.views:
            return
        update = self.views[argument][0]
        if update.dropout:
            raise UserError(
                f"the weight {update.weight.name} has an update with dropout, but is used as no weight of a product,"
                " whose input would be dropped",
                span=span,
                hint="LoRA(…, dropout=0.0), or narrower targets",
            )
        self.summed[update.weight] = None

    def use(self, call: Call) -> _Use | None:
        """How a call uses a weight without its sum, if it does."""
        kind = call.op.short if isinstance(call.op, Op) else ""
        places = {"linear": (1,), "matmul": (1, 0), "nn.embedding": (1,), "take": (0,)}.get(kind, ())
        places = (1,) if kind in _CONVOLUTIONS else places
        for place in places:
            found = self.views.get(call.args[place])
            if found is not None and _FITS.get(kind, _fits_convolution)(call, *found):
                return _Use(kind, place, *found)
        return None


def _swaps(axes: Any) -> bool:
    return axes is None or [int(axis) % 2 for axis in axes] == [1, 0]


def _is_matrix(update: LowRank) -> bool:
    return len(update.weight.shape) == 2


def _fits_convolution(call: Call, update: LowRank, is_transposed: bool) -> bool:
    attrs = call.attrs
    layouts = f"{attrs['data_layout']} {attrs['kernel_layout']}"
    return (
        layouts == _CONVOLUTIONS[op_of(call).short]
        and attrs["groups"] == 1
        and attrs.get("out_layout") in (None, "", attrs["data_layout"])
        and not attrs.get("out_dtype")
        and not is_transposed
    )


_FITS: dict[str, Callable[[Call, LowRank, bool], bool]] = {
    "linear": lambda call, update, is_transposed: _is_matrix(update),
    "matmul": lambda call, update, is_transposed: _is_matrix(update) and not call.attrs.get("out_dtype"),
    "nn.embedding": lambda call, update, is_transposed: (
        _is_matrix(update)
        and not is_transposed
        and (call.attrs["padding_idx"] is None or call.attrs["padding_idx"] >= 0)
    ),
    "take": lambda call, update, is_transposed: (
        _is_matrix(update) and not is_transposed and call.attrs["axis"] in (0, -2)
    ),
}


# ---- there and back


class _Update(ExprMutator):
    def __init__(self, updates: Mapping[Var, LowRank], uses: _Uses) -> None:
        super().__init__()
        self.updates, self.uses = updates, uses

    def function(self, function: Function) -> Function:
        self.before = False
        return super().function(function)

    def block(self, block: Any) -> None:
        if not self.before:
            self.before = True
            for weight in self.uses.summed:
                self.env[weight] = self.builder.emit_output(_sum(self.updates[weight]), f"{weight.name}_updated")
        super().block(block)

    def expr(self, expr: Any) -> Any:
        use = self.uses.use(expr) if isinstance(expr, Call) else None
        if use is None:
            return super().expr(expr)
        args = [self.expr(a) for k, a in enumerate(expr.args) if k != use.place]
        with span_scope(expr.span):
            whole = self._whole(expr, use, args)
            return op.add(whole, _added(expr, use, args[0]))

    def _whole(self, call: Call, use: _Use, args: list[Any]) -> Expr:
        """The call itself, by the weight without its update."""
        weight = use.update.weight
        if not use.is_transposed:
            given = (*args[: use.place], weight, *args[use.place :])
            return Call(call.op, given, call.attrs, call.sinfo_args, span=call.span)
        if use.kind == "matmul" and use.place == 0:
            return op.matmul(op.permute_dims(weight), args[0])
        product = op.matmul(args[0], weight) if use.kind == "linear" else op.linear(args[0], weight)
        return op.add(product, args[1]) if len(args) > 1 else product


def _added(call: Call, use: _Use, x: Any) -> Expr:
    """What the update adds to the call's result: scaled where it is small, on the way from one factor to the other."""
    update = use.update
    left, right = update.left(), update.right()
    if use.kind in ("take", "nn.embedding"):
        table = _matrix(left)
        args = (table, x) if use.kind == "take" else (x, table)
        added = _times(_scaled(Call(call.op, args, call.attrs), update), right)
        return added if call.attrs.get("padding_idx") is None else _without_padding(added, x, call.attrs["padding_idx"])
    x = op.dropout(x, p=update.dropout) if update.dropout else x
    if use.kind in _CONVOLUTIONS:
        rows, *others = update.weight.shape
        convolution = getattr(op.nn, use.kind.removeprefix("nn."))
        inner = _scaled(Call(call.op, (x, op.reshape(_matrix(right), (-1, *others))), call.attrs), update)
        return convolution(inner, op.reshape(_matrix(left), (rows, -1, *(1 for _ in others[1:]))))
    if use.is_transposed:  # (P·Q)ᵀ = Qᵀ·Pᵀ
        left, right = (right[0], not right[1]), (left[0], not left[1])
    if use.kind == "linear":  # x·(P·Q)ᵀ
        return _times(_scaled(_times(x, (right[0], not right[1])), update), (left[0], not left[1]))
    if use.place == 0:
        return op.matmul(_matrix(left), _scaled(op.matmul(_matrix(right), x), update))
    return _times(_scaled(_times(x, left), update), right)


def _without_padding(rows: Any, indices: Any, padding: int) -> Expr:
    """Rows of which those of the index ``padding`` get no gradient."""
    info = indices.struct_info
    kept = op.expand_dims(op.not_equal(indices, const(padding, info.dtype)), [info.ndim])
    return op.where(kept, rows, op.stop_gradient(rows))


def _matrix(factor: tuple[Var, bool]) -> Expr:
    variable, is_transposed = factor
    return op.permute_dims(variable) if is_transposed else variable


def _times(x: Any, factor: tuple[Var, bool]) -> Expr:
    """x · factor."""
    variable, is_transposed = factor
    return op.linear(x, variable) if is_transposed else op.matmul(x, variable)


def _scaled(value: Any, update: LowRank) -> Expr:
    return value if update.scale == 1 else op.multiply(value, const(update.scale, value.struct_info.dtype))


def _sum(update: LowRank) -> Expr:
    product = op.matmul(_matrix(update.left()), _matrix(update.right()))
    shape = update.weight.shape
    product = _scaled(product if len(shape) == 2 else op.reshape(product, shape), update)
    return op.add(update.weight, product)


class _Undo(ExprMutator):
    """What is made of nothing but updates is zero, and a sum with it what it was before."""

    def __init__(self, zeros: set[Var]) -> None:
        super().__init__()
        self.zeros = zeros

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        found = [a for a in getattr(value, "args", ()) if isinstance(a, Var) and a in self.zeros]
        if not found or isinstance(value, TupleGetItem):
            super().rewrite_binding(binding)
        elif is_op(value, "add") and len(found) == 1:
            self.bind(binding.var, self.expr(next(a for a in value.args if a is not found[0])))
        else:
            self.zeros.add(binding.var)
