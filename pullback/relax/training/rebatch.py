"""The same trainer module for another number of rows: the last batch of an epoch is commonly a smaller one.

It is derived from ``backbone`` and ``backbone_loss``, which a trainer module holds as they were before any op was
decomposed: each op deduces its types anew, and the gradients are taken anew. So a pass that changed one of these
functions, or the adjoint, after ``SetupTrainer`` would be lost, or sizes that it wrote into them would be wrong.
Digests of the functions as they were (``source`` of the module's record) tell such a module.
"""

from __future__ import annotations

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.relax.analysis import called_functions
from pullback.relax.convention import ADJOINT, BACKBONE, GRADIENT, LOSS, LOSS_SCALE, OUTPUT, PARAMETER
from pullback.relax.expr import Function
from pullback.relax.struct_info import TensorStructInfo, flat_infos, format_info
from pullback.relax.training.adjoint import with_adjoint
from pullback.relax.training.interface import Interface
from pullback.relax.training.setup_trainer import TrainingRecord, source_digests
from pullback.relax.transform import RaiseOps, RebatchInputs
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.mixed_precision import HALF


def rebatched(module: IRModule, interface: Interface, rows: int, trains: bool) -> IRModule:
    """The trainer module for ``rows`` rows; without what training needs, unless ``trains``.

    Raises ShapeError when the model writes its batch size out, and UserError when a pass changed the module.
    """
    result = RaiseOps()(module)
    _check_source(result, interface.record, rows)
    result = _without_adjoint(result)
    for name in (BACKBONE, LOSS):
        result[name] = inline_calls(result[name], result)
    names = [slot.name for slot in interface.inputs + interface.targets if interface.has_rows(slot)]
    result = RebatchInputs(rows, BACKBONE, input_num=0, also=names)(result)
    _check_outputs(module, result, interface, rows)
    result = RebatchInputs(rows, LOSS, input_num=0, also=names)(result)
    if not trains:
        return result
    convention = interface.convention
    has_scale = any(kind == LOSS_SCALE for kind, _ in convention[ADJOINT].takes)
    takes = convention[LOSS].takes
    trained = [takes.index((PARAMETER, i)) for kind, i in convention[ADJOINT].returns if kind == GRADIENT]
    return with_adjoint(result, trained, has_scale, interface.record.precision in HALF)


def _without_adjoint(module: IRModule) -> IRModule:
    """The module without the adjoint and the kernels that are its alone."""
    result = module.copy()
    del result[ADJOINT]
    used = {n for f in result.functions.values() if isinstance(f, Function) for n in called_functions(f)}
    for name in set(called_functions(module[ADJOINT])) - used:
        del result[name]
    return result


def _check_source(module: IRModule, record: TrainingRecord, rows: int) -> None:
    if not record.source:
        raise UserError(
            f"this trainer module does not tell from what it was made, so it cannot be derived for {rows} rows",
            hint="make it with this version's SetupTrainer, or make the batch dimension symbolic",
        )
    if LOSS not in record.source:
        raise UserError(
            f"the loss {record.loss} reads the number of rows when it is made, so it cannot be derived for {rows} rows",
            hint="write it with ops that know it when they run, such as op.mean, or give batches of the declared size",
        )
    for name, digest in source_digests(module).items():
        if digest != record.source[name]:
            raise UserError(
                f"{name} was changed by a pass after SetupTrainer, so it cannot be derived for {rows} rows",
                hint="apply passes to the model, before SetupTrainer; or make the batch dimension symbolic, or give"
                " batches of the declared size",
            )


def _check_outputs(module: IRModule, result: IRModule, interface: Interface, rows: int) -> None:
    """What had a row for each row of the batch has so still."""
    old, new = (flat_infos(m[BACKBONE].ret_struct_info) for m in (module, result))
    for i in interface.convention[BACKBONE].returned(OUTPUT):
        before, after = old[i], new[i]
        assert isinstance(before, TensorStructInfo) and isinstance(after, TensorStructInfo)
        if before.shape and before.shape[0] == interface.batch and after.shape and after.shape[0] != rows:
            raise ShapeError(
                f"{BACKBONE} cannot run on batches of {rows} rows: its output {i} is {format_info(after)} then",
                span=module[BACKBONE].span,
                hint="make the batch dimension symbolic, and use -1 in reshapes",
            )
