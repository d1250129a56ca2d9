"""The same trainer module for another number of rows: the last batch of an epoch is commonly a smaller one."""

from __future__ import annotations

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relax.convention import ADJOINT, BACKBONE, LOSS, LOSS_SCALE, PARAMETER
from pullback.relax.training.adjoint import with_adjoint
from pullback.relax.training.interface import Interface
from pullback.relax.transform import RaiseOps, RebatchInputs
from pullback.relax.transform.mixed_precision import HALF


def rebatched(module: IRModule, interface: Interface, rows: int, trains: bool) -> IRModule:
    """The trainer module for ``rows`` rows; without what training needs, unless ``trains``.

    The gradients are derived anew, so an adjoint that another pass changed cannot be rebatched: that is an error.
    Raises ShapeError when the model writes its batch size out.
    """
    module = RaiseOps()(module)
    names = [slot.name for slot in interface.inputs + interface.targets if interface.has_rows(slot)]
    result = module.copy()
    for name in (BACKBONE, LOSS):
        result = RebatchInputs(rows, name, input_num=0, also=names)(result)
    if not trains:
        del result[ADJOINT]
        return result
    convention = interface.convention
    has_scale = any(kind == LOSS_SCALE for kind, _ in convention[ADJOINT].takes)
    parts = convention[LOSS].taken(PARAMETER), has_scale, interface.record.precision in HALF
    derived = RaiseOps()(with_adjoint(module, *parts))  # as the module was: it resolves aliases on its way
    if not structural_equal(derived[ADJOINT], module[ADJOINT]):
        raise UserError(
            f"{ADJOINT} was changed by a pass after SetupTrainer, so it cannot be derived for {rows} rows",
            hint="make the batch dimension symbolic, or give fit a number of rows that the batch size divides",
        )
    return with_adjoint(result, *parts)
