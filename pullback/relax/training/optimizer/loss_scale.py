"""Dynamic loss scaling: float16 gradients below 6e-8 would be zeros, so the loss is multiplied before it is
differentiated, and the gradients are divided again (Micikevicius et al., Mixed Precision Training, 2018).

The scale is a state of the optimizer: the joined step reads it for the adjoint, and a checkpoint holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import LOSS_SCALE
from pullback.relax.expr import Expr, Var, const
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training.optimizer.base import Optimizer, Parameter, State
from pullback.relax.training.optimizer.value import count as int_from
from pullback.relax.training.optimizer.value import number
from pullback.relax.training.optimizer.wrapper import Wrapper, layers, with_gradient


class DynamicLossScale(Wrapper):
    """Leaves out the steps in which a gradient is not finite, and finds a scale with which few are:
    ``torch.amp.GradScaler``, with its arguments.

    Such a step changes no parameter and no state of the wrapped optimizer, whose step count (that of its schedules) is
    the number of its own steps; the scale is multiplied by ``backoff_factor``. After ``growth_interval`` finite steps
    in a row it is multiplied by ``growth_factor``. States of the model, such as running statistics, change in any case.

    ``SetupTrainer(…, precision="float16")`` wraps its optimizer so, unless it is wrapped already.

    Args:
        optimizer: the optimizer that is wrapped.
        init_scale: the first scale.
        growth_factor: by what the scale is multiplied after ``growth_interval`` finite steps in a row.
        backoff_factor: by what it is multiplied after a step that is not finite.
        growth_interval: finite steps in a row.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        super().__init__(optimizer)
        self.name = f"DynamicLossScale({optimizer.name})"
        if any(isinstance(part, DynamicLossScale) for part in layers(optimizer)):
            raise ArgumentError(
                "an optimizer has one loss scale: DynamicLossScale is in DynamicLossScale",
                hint="wrap once, outermost: DynamicLossScale(SGD(0.1))",
            )
        self.init_scale = number("init_scale", init_scale)
        self.growth_factor = number("growth_factor", growth_factor)
        self.backoff_factor = number("backoff_factor", backoff_factor)
        self.growth_interval = int_from("growth_interval", growth_interval)
        if self.init_scale <= 0:
            raise ArgumentError(f"init_scale must be positive, got {init_scale!r}")
        if self.growth_factor <= 1:
            raise ArgumentError(
                f"growth_factor must be more than 1, got {growth_factor!r}", hint="the scale grows by it: such as 2.0"
            )
        if not 0 < self.backoff_factor < 1:
            raise ArgumentError(f"backoff_factor must be between 0 and 1, got {backoff_factor!r}")

    def own_states(self, params: Sequence[Var]) -> list[State]:
        number_of_steps = TensorStructInfo((), "int64")
        return [
            State(TensorStructInfo((), "float32"), self.init_scale, name="loss_scale", role=LOSS_SCALE),
            State(number_of_steps, name="num_finite"),  # in a row, since the scale changed
            State(number_of_steps, name="num_skipped"),
        ]

    def wrap(
        self,
        builder: BlockBuilder,
        count: Expr,
        params: Sequence[Parameter],
        inner: Sequence[Expr],
        own: Sequence[Expr],
        values: dict[str, Any],
    ) -> tuple[list[Expr], list[Expr], list[Expr]]:
        scale, in_a_row, skipped = own
        given = [with_gradient(builder, p, p.gradient) for p in params]
        is_finite = self._all_finite(builder, given)
        made = builder.emit(op.subtract(count, skipped), "num_steps_inner")
        new, changed = self.optimizer.emit(builder, made, given, inner)

        def if_finite(value: Expr, old: Expr) -> Expr:
            return old if value is old else builder.emit(op.where(is_finite, value, old))

        one, none = const(1, "int64"), const(0, "int64")
        longer = builder.emit(op.add(in_a_row, one), "num_finite_longer")
        grows = builder.emit(op.equal(longer, const(self.growth_interval, "int64")), "grows")
        larger = builder.emit(op.multiply(scale, const(self.growth_factor, "float32")), "loss_scale_larger")
        larger = op.where(op.logical_and(grows, op.isfinite(larger)), larger, scale)
        smaller = op.multiply(scale, const(self.backoff_factor, "float32"))
        kept: list[Expr] = [
            builder.emit(op.where(is_finite, larger, smaller), "loss_scale_new"),
            builder.emit(op.where(op.logical_and(is_finite, op.logical_not(grows)), longer, none), "num_finite_new"),
            builder.emit(op.where(is_finite, skipped, op.add(skipped, one)), "num_skipped_new"),
        ]
        old_params = [p.value for p in params]
        return list(map(if_finite, new, old_params)), list(map(if_finite, changed, inner)), kept

    @staticmethod
    def _all_finite(builder: BlockBuilder, params: Sequence[Parameter]) -> Expr:
        each = [builder.emit(op.all(op.isfinite(p.gradient)), f"{p.declared.name}_grad_finite") for p in params]
        total: Expr = each[0]
        for finite in each[1:]:
            total = op.logical_and(total, finite)
        return builder.emit(total, "is_finite")
