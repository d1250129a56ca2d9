"""Keys of compiled code: digests of all that it depends on.

A function's key is made before any pass, from the part of the module that is compiled: the same :func:`part` is what
the pipeline gets. Of the package's own ops the name is enough, since the compiler's fingerprint holds their rules. What
another op means is asked of it: its tensor expressions or loops for the arguments that it gets are in the key, so it
does not matter where its function is written, or what that calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pullback import te
from pullback.driver.cache import compiler_fingerprint
from pullback.driver.options import Options
from pullback.driver.pipeline import whole_function
from pullback.ir.digest import structural_digest
from pullback.ir.errors import InternalError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op, all_packaged, is_packaged
from pullback.relax.analysis import called_functions, post_order_visit
from pullback.relax.expr import Call, Expr, Function, Tuple
from pullback.relax.op.kernel import kernel_of
from pullback.relax.op_calls import inner_op, is_op_call, lacks_state
from pullback.relax.struct_info import TensorStructInfo, symbolic_vars
from pullback.relax.transform.checkpoints import is_copy
from pullback.relax.transform.compose import looks_at_values, stand_ins
from pullback.relax.transform.decompose_ops import DecomposeOpsForTraining
from pullback.relax.transform.distributed import DISTRIBUTED
from pullback.relax.transform.structure import once
from pullback.target import Target
from pullback.tir.checked import checked
from pullback.tir.stmt import FLUSH_SUBNORMALS, PrimFunc


def part(module: IRModule, name: str) -> IRModule:
    """What of a prepared module a function is compiled from: the functions that it reaches, by name, and the attributes
    that count."""
    reached: dict[str, Any] = {}
    stack = [name]
    while stack:
        current = stack.pop()
        if current not in reached:
            reached[current] = module[current]
            stack.extend(called_functions(module[current]) if isinstance(module[current], Function) else ())
    attrs = {k: v for k, v in module.attrs.items() if k in (FLUSH_SUBNORMALS, DISTRIBUTED)}
    return IRModule({n: reached[n] for n in sorted(reached)}, attrs)


def function_key(
    module: IRModule, name: str, sizes: dict[str, int], target: Target, options: Options | None = None
) -> str:
    """The key of a function before any pass: what it is made of, and the places that its messages show."""
    reached = part(module, name)
    function: Function = reached[name]
    values = [sizes.get(v.name) for v in symbolic_vars(function.struct_info)]  # names of sizes do not count elsewhere
    names = [p.name for p in function.params]  # a report of memory shows them
    options = options or Options.of(target)
    digest = hashlib.sha256(f"function {compiler_fingerprint()} {target.key} {options.key}\n".encode())
    digest.update(f"{name!r} {values} {sorted(sizes.items())} {names}\n".encode())
    digest.update(structural_digest(reached))
    for part_name, part_function in reached.items():
        copies = [k for k, b in enumerate(getattr(part_function, "bindings", ())) if is_copy(b.var)]
        if copies:  # names are no structure, but these are kept apart from what they are copies of
            digest.update(f"{part_name!r} {copies}\n".encode())
    is_checked = once(_is_checked)
    calls = _calls(reached)
    for call in calls:
        if call.span and is_checked(call):
            digest.update(call.span.caret().encode())
    for kernel in reached.functions.values():
        if isinstance(kernel, PrimFunc):
            for access in checked(kernel)[1]:
                digest.update(access.text.encode())
    if not all_packaged() or not all(map(is_packaged, {inner_op(c) for c in calls if isinstance(c.op, Op)})):
        for meaning in _meanings(reached, name, sizes):
            digest.update(meaning)
    return digest.hexdigest()


def object_key(symbol: str, target: Target) -> str:
    """The key of the object code of a kernel or host function whose symbol says what it computes."""
    return f"object {compiler_fingerprint()} {target.key} {symbol}"


def _calls(module: IRModule) -> list[Call]:
    """The calls in the graph functions of a module."""
    found: list[Call] = []
    for function in module.functions.values():
        if isinstance(function, Function):
            post_order_visit(function, lambda node: found.append(node) if isinstance(node, Call) else None)
    return found


def _meanings(module: IRModule, name: str, sizes: dict[str, int]) -> Iterator[bytes]:
    """Digests of what a function says once its ops are primitive, and of what those mean that are not the package's."""
    whole = DecomposeOpsForTraining()(IRModule({name: whole_function(module, name, sizes)}))
    yield structural_digest(whole)
    for call in _calls(whole):
        if isinstance(call.op, Op) and not is_packaged(inner_op(call)):
            yield _meaning(call, call.op)


def _meaning(call: Call, op: Op) -> bytes:
    """A digest of the tensor expressions, the loops and the check of a call."""
    parts: list[Any] = []
    if op.te is not None:
        inputs = tuple(map(_stand_in, call.args))
        results = op.te(*inputs, **call.attrs)
        parts.append((inputs, tuple(results) if isinstance(results, (list, tuple)) else results))
    elif op.kernel is not None:
        parts.append(kernel_of(call, "kernel"))
    if op.check is not None:
        tensors = stand_ins(call)
        parts.append((tensors, op.check(*tensors, **call.attrs), inner_op(call).check_message))
    return structural_digest(parts)


def _stand_in(argument: Expr | GlobalVar) -> Any:
    """A placeholder for each tensor of an argument."""
    if isinstance(argument, Tuple):
        return tuple(map(_stand_in, argument.fields))
    info = argument.struct_info
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise InternalError(f"an op is called on {info}, whose shape is not known")
    return te.placeholder(info.shape, info.dtype)


def _is_checked(call: Call) -> bool:
    """Whether a call, or one of those it is made of, checks values as it runs: its message shows the call's place."""
    if not is_op_call(call):
        return False
    if call.op.family == "control":  # it may need too many steps
        return True
    if call.op.check is not None or call.op.decompose is None or lacks_state(call):
        return call.op.check is not None and (
            (call.op.family != "batch" and is_packaged(call.op)) or looks_at_values(call)
        )
    parts: list[Call] = []
    try:
        form = call.op.decompose(*call.args, **{"training": True, **call.attrs})
    except UserError:  # the pass that decomposes it will say where
        return False
    post_order_visit(form, lambda node: parts.append(node) if isinstance(node, Call) else None)
    return any(_is_checked(part) for part in dict.fromkeys(parts))
