"""The functions of an exported trainer: planned for one target, as loop IR that becomes one object.

step          forward, loss, backward and optimizer for a batch: it overwrites what the trainer keeps
predict       the model's outputs, in the form for inference, for a batch; predict_one for a single row
evaluate      loss and first output; evaluate_one for a single row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pullback import codegen
from pullback.deploy import packed
from pullback.deploy.folding import folded
from pullback.deploy.targets import FUNCTIONS
from pullback.driver.artifact import Layout
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.errors import ArgumentError, CompileError, UserError
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import (
    BACKBONE,
    DIVISOR_VALUE,
    EVALUATE,
    LOSS_VALUE,
    OUTPUT,
    STEP,
    Convention,
    Roles,
    Value,
)
from pullback.relax.expr import Function, Tuple, TupleGetItem, Var
from pullback.relax.struct_info import TupleStructInfo, symbolic_vars
from pullback.relax.training.program import Program
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.pack_constants import PackConstants
from pullback.target import Target
from pullback.tir.expr import Var as Size
from pullback.tir.stmt import PrimFunc

PREDICT = "__predict"


@dataclass(frozen=True)
class Planned:
    """One function: how it is called, what its parameters and fresh results are, and its loop IR."""

    layout: Layout
    takes: tuple[tuple[str, int], ...]
    returns: tuple[tuple[str, int], ...]  # of the results in layout.fresh
    constants: tuple[np.ndarray, ...]
    rows: int
    host: PrimFunc
    kernels: Mapping[str, PrimFunc]
    inner: Mapping[str, PrimFunc]  # host functions that the first one calls
    needs_heap: bool  # it keeps values whose number only running tells


def plan_functions(
    trainer: Trainer,
    target: Target,
    batch: int,
    sizes: Mapping[str, int],
    names: tuple[str, ...] = FUNCTIONS,
    constants: Mapping[Value, np.ndarray] | None = None,
) -> dict[str, Planned]:
    """Plan the named functions of a trainer for a target; ``sizes`` are those of symbolic axes but the batch.
    ``constants``: values that are folded into the functions.

    Raises ArgumentError where a size is missing, and what compiling raises.
    """
    found: dict[str, Planned] = {}
    for name in names:
        rows = 1 if name.endswith("_one") else batch
        program = _program(trainer, rows, batch)
        convention = program.interface.convention
        if name == "step":
            module, function, roles = program.module, STEP, convention[STEP]
        elif name.startswith("evaluate"):
            module, function, roles = program.inference_module, EVALUATE, convention[EVALUATE]
        else:
            module, roles = with_prediction(program.inference_module)
            function = PREDICT
        module, bound = prepare(module), _bound(program, rows, sizes)
        _check_sizes(module[function], bound)
        if constants:
            module, roles = folded(module, function, roles, bound, constants)
        found[name] = _planned(module, function, roles, rows, bound, target, bool(constants))
    return found


def _program(trainer: Trainer, rows: int, batch: int) -> Program:
    """The trainer's program for so many rows, of which another number than it was made for may not be possible."""
    program = trainer._programs.of(rows)
    try:
        _ = program.module if rows == batch else program.inference_module
    except UserError as error:
        hint = error.hint
        if rows == 1 != batch:
            hint = 'the model writes its batch size out; functions=("step", "predict", "evaluate") take whole batches'
        raise type(error)(error.message, span=error.span, hint=hint) from error
    return program


def object_code(functions: Mapping[str, Planned], target: Target, symbol: str, library: str) -> bytes:
    """One object with all functions of a library, each under ``symbol.format(name)``."""
    hosts = {symbol.format(name): (f.host, f.kernels, f.inner) for name, f in functions.items()}
    try:
        return codegen.compile_object(packed.in_library(codegen.emit_library(hosts, target), library), target)
    except MemoryError:
        raise CompileError("there is not enough memory to compile the library") from None


def _planned(
    module: IRModule, name: str, roles: Roles, rows: int, sizes: Mapping[str, int], target: Target, packs: bool
) -> Planned:  # fmt: skip
    plan = plan_function(module, name, dict(sizes), target, late=(PackConstants(),) if packs else ())
    layout = Layout.of(plan)
    returns = tuple(roles.returns[k] for k in layout.fresh)
    wrong = [kind for kind, _ in returns if kind not in (LOSS_VALUE, DIVISOR_VALUE, OUTPUT)]
    if wrong:
        raise ArgumentError(f"{name} returns a {wrong[0]} that takes no value's place")
    return Planned(
        layout, roles.takes, returns, tuple(plan.constants), rows, plan.host, plan.kernels, plan.inner, plan.needs_heap
    )


def _check_sizes(function: Function, sizes: Mapping[str, int]) -> None:
    missing = sorted({v.name for v in symbolic_vars(function.struct_info)} - sizes.keys())
    if missing:
        raise ArgumentError(
            f"an exported library has fixed sizes, and {', '.join(missing)} is not given",
            hint=f"export(…, sizes={{{missing[0]!r}: 64}})",
        )


def _bound(program: Program, rows: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """All symbolic sizes by name, the batch's too."""
    batch = program.interface.batch
    return {**sizes, batch.name: rows} if isinstance(batch, Size) else dict(sizes)


def with_prediction(module: IRModule) -> tuple[IRModule, Roles]:
    """The module with ``__predict``, which returns the outputs of the backbone without its states, and its roles."""
    convention, backbone = Convention.of(module), module[BACKBONE]
    roles = convention[BACKBONE]
    result = module.copy()
    params = tuple(Var(p.name, p.struct_info, span=p.span) for p in backbone.params)
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        value = builder.emit(result.get_global_var(BACKBONE)(*params))
        outputs = [
            builder.emit_output(TupleGetItem(value, i) if isinstance(value.struct_info, TupleStructInfo) else value)
            for i in roles.returned(OUTPUT)
        ]
    body = builder.finish(Tuple(tuple(outputs)))
    result[PREDICT] = Function(params, body, body.struct_info, {"private": True}, span=backbone.span)
    return result, Roles(roles.takes, tuple(roles.returns[i] for i in roles.returned(OUTPUT)))
