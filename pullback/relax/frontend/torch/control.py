"""Branches and loops of PyTorch: ``torch.cond``, ``while_loop`` and ``scan`` are branches and loops here.

A converter is called with ``run`` and the arguments of the node. ``run(module, *inputs)`` computes a branch or a body,
which is a graph of its own: a tuple of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.nn.trace import active_trace
from pullback.relax import control, op
from pullback.relax.expr import Expr, const
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir.expr import FLOATS

Run = Callable[..., tuple[Any, ...]]


def of(node: Any) -> Callable[..., Any] | None:
    """The converter of a node that calls a higher-order operator, or None."""
    if not any(base.__name__ == "HigherOrderOperator" for base in type(node.target).__mro__):
        return None
    return HIGHER.get(node.target.__name__)


def _condition(value: Any) -> Any:
    """A bool scalar: PyTorch takes any tensor of one element."""
    if not isinstance(value, Expr):
        raise UserError(
            "torch.cond is given a condition that depends on sizes alone",
            hint="an if of Python chooses by sizes that are fixed: dynamic_shapes says which are not",
        )
    scalar = op.reshape(value, ()) if isinstance(value.struct_info, TensorStructInfo) and value.shape else value
    return scalar if value.dtype == "bool" else op.not_equal(scalar, const(0, value.dtype))


def _fields(value: Any, count: int | None = None) -> tuple[Any, ...]:
    return tuple(value) if count is None else tuple(value[k] for k in range(count))


def cond(run: Run, condition: Any, then: Any, otherwise: Any, operands: Sequence[Any]) -> Any:
    """torch.cond(condition, then, otherwise, operands): a tuple of tensors."""
    tensors = [x for x in operands if isinstance(x, Expr)]

    def branch(module: Any) -> Callable[..., Any]:
        def computed(*values: Any) -> Any:
            found = iter(values)
            return run(module, *(next(found) if isinstance(x, Expr) else x for x in operands))

        return computed

    return _fields(_bound(control.cond(_condition(condition), branch(then), branch(otherwise), tensors)))


def while_loop(run: Run, condition: Any, body: Any, carries: Sequence[Any], others: Sequence[Any]) -> Any:
    """torch.while_loop(condition, body, carries): the carries, a tuple. ``others``: what the functions read besides."""
    found = control.while_loop(
        lambda *values: _condition(run(condition, *values, *others)[0]),
        lambda *values: run(body, *values, *others),
        tuple(_tensor(c) for c in carries),
    )
    return _fields(_bound(found))


def scan(run: Run, body: Any, carries: Sequence[Any], xs: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    """torch's scan(body, carries, xs) along the first axis: the last carries, then the results of all steps."""
    count = len(carries)

    def step(*values: Any) -> tuple[Any, Any]:
        results = run(body, *values, *others)
        return results[:count], results[count:]

    found = _bound(control.scan(step, tuple(_tensor(c) for c in carries), tuple(xs)))
    return (*_fields(found[0]), *_fields(found[1]))


def _tensor(value: Any) -> Any:
    return value if isinstance(value, Expr) else const(value, "int64" if isinstance(value, int) else "float32")


def _bound(value: Any) -> Any:
    """The value, computed once: several results are taken of it."""
    return active_trace().bind(value, "found")


def with_gradient(run: Run, enabled: bool, module: Any, *inputs: Any) -> tuple[Any, ...]:
    """What is computed inside of torch.no_grad() or enable_grad()."""
    results = run(module, *inputs)
    return results if enabled else tuple(op.grad.no_grad(r) if r.dtype in FLOATS else r for r in results)


def with_autocast(
    run: Run, device: str, dtype: Any, enabled: bool, cache: bool, module: Any, *inputs: Any
) -> tuple[Any, ...]:  # fmt: skip
    """What is computed inside of torch.autocast(…, enabled=False)."""
    if enabled:
        raise UserError(
            "torch.autocast inside of a model cannot be converted",
            hint='export the model without it, and train with pullback.trainer(…, precision="bfloat16")',
        )
    return run(module, *inputs)


def checkpointed(run: Run, module: Any, *inputs: Any, **options: Any) -> tuple[Any, ...]:
    """What torch.utils.checkpoint computes again: what is kept for the gradient is chosen here."""
    return run(module, *inputs)


HIGHER: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "wrap_with_set_grad_enabled": with_gradient,
    "wrap_with_autocast": with_autocast,
    "wrap_activation_checkpoint": checkpointed,
    "tag_activation_checkpoint": checkpointed,
}
