"""From modules to executables."""

from __future__ import annotations

from functools import partial
from typing import Any

from pullback.driver.collector import rare_collections
from pullback.driver.executable import Executable
from pullback.driver.pipeline import joined, prepare
from pullback.ir.environment import check_environment
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.words import explained
from pullback.relax.analysis import check_well_formed
from pullback.relax.expr import Function
from pullback.relax.struct_info import TensorStructInfo, flat_infos
from pullback.relax.transform.check_constants import check_constants
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.target import Target
from pullback.tir.scopes import check_scopes
from pullback.tir.stmt import PrimFunc


@rare_collections()
@partial(explained, name="pullback.compile")
def compile(module: IRModule | Function, target: Any = "llvm") -> Executable:
    """Compile a module for a target.

    A trainer module gets a private function ``__step`` that joins adjoint and optimizer.

    Args:
        module: an IRModule, or one graph function.
        target: ``"llvm"`` (this machine), a Target, or ``"debug"`` (the interpreter).

    Returns:
        an Executable: ``executable["name"](*args)`` calls a function.

    Raises:
        UserError: when the module is not well-formed.
        ArgumentError: when an op cannot take the values of a constant.
        TargetError: when the target does not exist.

    Examples:
        >>> executable = pullback.compile(net.export(x))
        >>> logits = executable["backbone"](x, *net.state_dict().values())
        >>> logits.shape
        (64, 4)
    """
    check_environment()
    if isinstance(module, Function):
        module = IRModule.from_expr(module)
    if not isinstance(module, IRModule):
        hint = "@I.ir_module above a class makes one of it; so do pullback.script.from_source and BlockBuilder.get()"
        raise UserError(f"compile takes an IRModule, not {type(module).__name__}", hint=hint)
    check_well_formed(module)
    for kernel in RaiseOps()(module).functions.values():  # those that are an op's may hold its sizes
        if isinstance(kernel, PrimFunc):
            check_scopes(kernel)
    check_constants(module)
    for name, function in module.items():
        if isinstance(function, Function):
            _check_shapes_known(name, function)
    if isinstance(target, str) and target == "debug":
        return Executable(joined(module), None)
    return Executable(prepare(module), Target(target))


def _check_shapes_known(name: str, function: Function) -> None:
    """Parameters need shapes, symbolic ones at least: a UserError names the first without."""
    for param in function.params:
        for info in flat_infos(param.struct_info):
            if isinstance(info, TensorStructInfo) and info.shape is None:
                raise UserError(
                    f"{name}: parameter {param.name} has no shape",
                    span=param.span,
                    hint='symbolic sizes will do: R.Tensor(("n", "m"), "float32")',
                )


build = compile

__all__ = ["Executable", "build", "compile"]
