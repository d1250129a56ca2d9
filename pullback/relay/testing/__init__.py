"""What tests and benchmarks of relay use: models with initial values, types and passes of one expression, checks of
gradients."""

from __future__ import annotations

import collections
import importlib
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, NoAttribute
from pullback.ir.module import IRModule
from pullback.relay.expr import Expr, Function
from pullback.relay.testing import layers  # noqa: F401
from pullback.relay.testing.gradients import check_grad
from pullback.relay.testing.init import Initializer, Xavier, create_workload
from pullback.runtime.tensor import Tensor, tensor

_MODULES = (
    "dcgan", "densenet", "dqn", "init", "lstm", "mlp", "mobilenet", "nat", "resnet", "squeezenet", "synthetic",
    "temp_op_attr", "vgg",
)  # fmt: skip
_ELSEWHERE = {
    "add_nat_definitions": "pullback.relay.testing.nat",
    "count": "pullback.relay.testing.nat",
    "make_nat_value": "pullback.relay.testing.nat",
    "make_nat_expr": "pullback.relay.testing.nat",
    "gradient": "pullback.relay.transform",
    "enabled_targets": "pullback.testing",
    "Prelude": "pullback.relay.prelude",
}


def __getattr__(name: str) -> Any:
    """Models and what needs other parts of relay, loaded on first use."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise NoAttribute(f"there is no relay.testing.{name}")


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> Any:
    """What the pass makes of a function, or of an expression: its types are inferred first.

    >>> run_opt_pass(relay.log(x), relay.transform.ToANormalForm())
    """
    from pullback.ir.passes import Pass
    from pullback.relay.infer import infer_module

    if not isinstance(opt_pass, Pass):
        raise ArgumentError(f"{type(opt_pass).__name__} is no pass", hint="such as relay.transform.InferType()")
    module = IRModule.from_expr(expr)
    if import_prelude:
        from pullback.relay.prelude import Prelude

        Prelude(module)
    main = opt_pass(infer_module(module))["main"]
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr: Any) -> Any:
    """The function or expression with the types of all of its parts.

    >>> run_infer_type(relay.log(x)).checked_type
    """
    from pullback.relay.transform.infer_type import InferType

    return run_opt_pass(expr, InferType())


def run_as_python(expr: Any, mod: Any = None, target: Any = None) -> Any:
    """What the expression gives, computed over NumPy by the executor "debug": a value as executors return them. Its
    global variables and data types are those of ``mod``.

    >>> run_as_python(relay.const(1.0) + relay.const(2.0))
    """
    from pullback.relay.build_module import create_executor

    return create_executor("debug", mod=mod, target=target or "llvm").evaluate(expr)


def rand(dtype: str, *shape: int) -> Tensor:
    """Numbers from 0 to 1, all equally likely.

    >>> rand("float32", 2, 3).shape
    (2, 3)
    """
    return tensor(np.random.rand(*shape).astype(dtype))


def count_ops(expr: Expr) -> collections.Counter[str]:
    """How many calls of each operator an expression has; a call that stands at several places is one.

    >>> count_ops(x + x)["add"]
    1
    """
    from pullback.relay.analysis import post_order_visit
    from pullback.relay.expr import Call
    from pullback.relay.op.registry import Op

    found: collections.Counter[str] = collections.Counter()

    def visit(node: Any) -> None:
        if isinstance(node, Call) and isinstance(node.op, Op):
            found[node.op.name] += 1

    post_order_visit(expr, visit)
    return found


def ctx_list() -> list[tuple[str, Any]]:
    """The targets of this machine, each with its device: the spelling of before 0.8 of ``enabled_targets``."""
    from pullback.testing import enabled_targets

    return enabled_targets()


__all__ = [
    "Initializer",
    "Xavier",
    "check_grad",
    "count_ops",
    "create_workload",
    "ctx_list",
    "rand",
    "run_as_python",
    "run_infer_type",
    "run_opt_pass",
]
