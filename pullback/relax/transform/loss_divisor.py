"""What the loss of a trainer module is divided by, read off its formula.

    loss = Σ over the batch / divisor

So losses of batches, micro-batches or ranks are combined as Σ divisor·loss / Σ divisor, which is the loss of one big
batch, and gradients likewise. A batch that counts nothing has the divisor 0.

    R.mean(x)                                     how many elements x has
    R.nn.nll_loss(p, t, w)                        the sum of the weights of what counts: an op says it itself
    R.sum(w·l) / R.sum(w)                         R.sum(w); of R.maximum(R.sum(w), 1) too
    R.sum(l·(w / R.sum(w)))                       the same
    R.nn.with_divisor(loss, d)                    d, whatever the formula
    -loss, 0.5·loss, loss + λ·|w|²                that of the loss: what does not depend on the batch changes nothing
    loss1 + loss2                                 that of both, where they have the same

Where a formula says nothing, such as the root of a mean, it is the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.ir.op import Op
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import INPUT, LOSS, LOSS_VALUE, PARAMETER, TARGET, Roles
from pullback.relax.expr import Call, Constant, Expr, Function, Tuple, Var, const
from pullback.relax.mutator import Emitter
from pullback.relax.op.family import wide, widened
from pullback.relax.op.namespace import ops
from pullback.relax.op_calls import is_op, lacks_state
from pullback.relax.struct_info import Dim, TensorStructInfo, as_tensor
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.inline_functions import inline_calls

GUARDED = "guarded"
_ALIKE = ("negative", "astype", "reshape", "squeeze", "flatten", "grad.no_grad")
_LIMITED = ("maximum", "clip", "where", "grad.no_grad")  # what keeps a divisor from being 0, or from being learnt
_MOST_FACTORS = 64  # of a product that is read


def loss_divisor(module: IRModule, roles: Roles) -> Function:
    """The divisor of ``backbone_loss``, as a function of the same parameters: a scalar, float32 at least.

    ``roles``: what ``backbone_loss`` takes and returns. The attribute ``guarded`` says that gradients are 0 where the
    divisor is, of themselves: other formulas may then divide 0 by 0.
    """
    loss = inline_calls(module[LOSS], module)
    data, learnt = ([loss.params[i] for i in roles.taken(*kinds)] for kinds in ((INPUT, TARGET), (PARAMETER,)))
    formula = _Formula(loss, data, learnt)
    body, number = loss.body.body, roles.returned(LOSS_VALUE)[0]
    result = body.fields[number] if isinstance(body, Tuple) else body
    divisor: Any = formula.divisor(result)
    if divisor is None or _is_one(divisor):
        divisor = _rows([loss.params[i] for i in roles.taken(INPUT)])
    fresh = {p: Var(p.name, p.struct_info, span=p.span) for p in loss.params}
    builder = BlockBuilder()
    builder.begin([p.name for p in loss.params])
    with builder.dataflow():
        emitter = Emitter(builder, fresh, flatten=True)
        for block in loss.body.blocks:
            emitter.block(block)
        value = emitter.expr(_scalar(divisor, wide(result.dtype)))
        output = builder.emit_output(value, "divisor")
    attrs = {"private": True, GUARDED: formula.guarded or not isinstance(divisor, Expr)}
    function = Function(tuple(fresh.values()), builder.finish(output), None, attrs, span=loss.span)
    return remove_dead_bindings(function)


def is_number(function: Function) -> bool:
    """Whether a divisor depends on nothing that differs between batches of one size."""
    data = set(function.params)
    for binding in function.bindings:
        reads = set(used_vars(binding.value))
        if not data.isdisjoint(reads) and not is_op(binding.value, "shape_of"):
            data.add(binding.var)
    return data.isdisjoint(used_vars(function.body.body))


def _is_one(divisor: Any) -> bool:
    """Whether it is the divisor of what adds up."""
    return isinstance(divisor, int) and divisor == 1


def _rows(inputs: Sequence[Var]) -> Dim:
    """The leading size of the first input; 1 if there is none."""
    shape = as_tensor(inputs[0].struct_info).shape if inputs else None
    return shape[0] if shape else 1


def _scalar(divisor: Dim | Expr, dtype: str) -> Expr:
    """A divisor as a scalar of a float type."""
    if not isinstance(divisor, Expr):
        return const(float(divisor), dtype) if isinstance(divisor, int) else ops.full((), divisor, dtype)
    return divisor if divisor.dtype == dtype else ops.astype(divisor, dtype)


class _Formula:
    """A loss function as a formula over the variables ``data``, which differ from batch to batch, and ``learnt``."""

    def __init__(self, loss: Function, data: Sequence[Var], learnt: Sequence[Var]) -> None:
        self._values = {b.var: b.value for b in loss.bindings}
        self._data, self._learnt = (self._closure(variables) for variables in (data, learnt))
        self._same: dict[tuple[int, int], tuple[bool, Call, Call]] = {}
        self.guarded = True  # whether the ops that are means see to it that nothing counted gives gradients of 0

    def _closure(self, variables: Sequence[Var]) -> set[Var]:
        """These variables, and all that are computed from them."""
        result = set(variables)
        for var, value in self._values.items():
            if not result.isdisjoint(used_vars(value)):
                result.add(var)
        return result

    def varies(self, expr: Expr) -> bool:
        """Whether an expression depends on the batch."""
        return not self._data.isdisjoint(used_vars(expr))

    def divisor(self, expr: Expr) -> Dim | Expr | None:
        """That of a scalar that varies; None when it is not known, 1 of what adds up."""
        call: Any = self._value(expr)
        while (operand := self._operand(call)) is not None:
            call = self._value(operand)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return None
        name, args = call.op.short, call.args
        if call.op.divisor is not None:
            self.guarded &= name != "nn.with_divisor"
            factors = self._factors(args[0]) if name in ("sum", "mean") else []
            return self._product(call.op.divisor(*args, **call.attrs), factors)
        if name in ("add", "subtract"):
            first, *others = map(self.divisor, self._terms(call))
            return first if all(self._is_proportional(first, other) for other in others) else None
        if name == "divide":
            own = self.divisor(args[0]) if self.varies(args[0]) else 1
            return self._product(1 if own is None else own, [self._unlimited(args[1])])
        if name == "multiply":
            for factor, other in (args, reversed(args)):
                inverse = self._value(factor)
                if is_op(inverse, "divide") and not self.varies(inverse.args[0]):
                    return self.divisor(ops.divide(other, inverse.args[1]))
        if call.op.decompose is not None and not lacks_state(call):
            return self.divisor(call.op.decompose(*args, **{"training": True, **call.attrs}))
        return None

    def _operand(self, call: Any) -> Expr | None:
        """The operand whose divisor a call has, if there is one: what does not vary changes nothing."""
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return None
        name, args = call.op.short, call.args
        if name in _ALIKE or (name in ("sum", "mean") and _is_scalar(args[0])):
            return args[0]
        if name not in ("add", "subtract", "multiply", "divide") or all(map(self.varies, args)):
            return None
        return None if name == "divide" and self.varies(args[1]) else next(filter(self.varies, args), None)

    def _terms(self, call: Call) -> list[Expr]:
        """The terms of sums of sums that vary."""
        result: list[Expr] = []
        stack: list[Expr] = [call]
        while stack:
            term = self._value(stack.pop())
            if is_op(term, "add") or is_op(term, "subtract"):
                stack += filter(self.varies, reversed(term.args))
            else:
                result.append(term)
        return result

    def _product(self, divisor: Dim | Expr, more: Sequence[Expr]) -> Dim | Expr:
        """A divisor times those that a formula names: it may then divide 0 by 0."""
        for factor in map(widened, more):
            self.guarded = False
            divisor = factor if _is_one(divisor) else ops.multiply(factor, _scalar(divisor, factor.dtype))
        return divisor

    def _factors(self, terms: Expr) -> list[Expr]:
        """The scalars of the data by which all terms of a sum are divided: weights may be, before they are used."""
        factors: list[Expr] = []
        stack = [terms]
        for _ in range(_MOST_FACTORS):
            if not stack:
                return factors
            value = self._value(stack.pop())
            name = value.op.short if isinstance(value, Call) and isinstance(value.op, Op) else ""
            if name in (*_ALIKE, "multiply"):
                stack += value.args[:2] if name == "multiply" else value.args[:1]
            elif name == "divide":
                stack.append(value.args[0])
                by = value.args[1]
                if _is_scalar(by) and self.varies(by) and self._learnt.isdisjoint(used_vars(by)):
                    factors.append(self._unlimited(by))
        return []

    def _unlimited(self, expr: Expr) -> Expr:
        """A divisor without what keeps it from being 0: a greatest of it and 1, say."""
        value = self._value(expr)
        while isinstance(value, Call) and isinstance(value.op, Op) and value.op.short in _LIMITED:
            operands = value.args[-2:] if value.op.short == "where" else value.args
            varying = [a for a in operands if self.varies(a)]
            if len(varying) != 1:
                return expr
            expr, value = varying[0], self._value(varying[0])
        if is_op(value, "sum") or is_op(value, "mean"):  # in half precision, it is rounded, and infinite beyond 65504
            return value.op(widened(value.args[0]), **value.attrs)
        return expr

    def _is_proportional(self, a: Any, b: Any) -> bool:
        """Whether two divisors weigh batches alike: both are sizes, or they are the same."""
        if isinstance(a, Expr) or isinstance(b, Expr):
            return self._is_same(a, b)
        return a is not None and b is not None and _is_one(a) == _is_one(b)

    def _is_same(self, a: Any, b: Any) -> bool:
        """Whether two expressions compute the same."""
        a, b = self._value(a), self._value(b)
        if a is b or not (isinstance(a, Call) and isinstance(b, Call)):
            return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and structural_equal(a, b))
        if (id(a), id(b)) not in self._same:
            alike = a.op is b.op and len(a.args) == len(b.args) and structural_equal(a.attrs, b.attrs)
            same = alike and not lacks_state(a) and all(map(self._is_same, a.args, b.args))
            self._same[id(a), id(b)] = same, a, b  # which keeps them alive, and their ids theirs
        return self._same[id(a), id(b)][0]

    def _value(self, expr: Any) -> Any:
        """What a variable stands for."""
        while isinstance(expr, Var) and expr in self._values:
            expr = self._values[expr]
        return expr


def _is_scalar(expr: Expr) -> bool:
    info = expr.struct_info
    return isinstance(info, TensorStructInfo) and info.shape == ()
