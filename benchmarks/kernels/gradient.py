"""The gradient of a kernel's argument as a graph function: alone, or as the backward pass of a training step has it.

The forward pass of a step keeps the statistics of its norms, and the backward pass reads them. (So does PyTorch's
autograd.) Where a case says so, its function is cut there: `saved` computes from the arguments what the forward pass
keeps, and `main` takes that after the arguments and the gradient of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.kernels.case import Case, Shape, size


def gradient_module(case: Case) -> Any:
    """A module with `main`, (arguments…, dy, saved…) -> gradient; and `saved`, (arguments…) -> (saved…), if any are."""
    from pullback import relax

    assert case.wrt is not None, f"{case.label} is no gradient"
    params = variables([f"x{k}" for k in range(len(case.shapes))], case.shapes)
    (dy,) = variables(["dy"], [case.out_shape])
    builder = relax.BlockBuilder()
    with builder.function("product", [*params, dy]):
        with builder.dataflow():
            total = relax.op.sum(relax.op.multiply(case.relax(relax.op, *params), dy))
            out = builder.emit_output(total)
        builder.emit_func_output(out)
    module = relax.transform.Gradient("product", require_grads=[params[case.wrt]])(builder.get())
    adjoint = module["product_adjoint"]
    gradient = adjoint.body.body.fields[1].fields[0]
    kept = statistics_of(adjoint, gradient, size(case.shapes[case.wrt])) if case.saves else []
    builder = relax.BlockBuilder()
    if kept:
        _emit(builder, "saved", adjoint, adjoint.params[:-1], [], kept)
    _emit(builder, "main", adjoint, adjoint.params, kept, [gradient])
    return builder.get()


def statistics_of(adjoint: Any, gradient: Any, whole: int) -> list[Any]:
    """What ``gradient`` reads of values that have fewer elements than the ``whole`` array and follow from the arguments
    without dy, the last parameter."""
    from pullback.relax.analysis import used_vars

    *arguments, dy = adjoint.params
    bindings = list(adjoint.bindings)

    def depending(on: set[Any]) -> set[Any]:
        for binding in bindings:
            if not on.isdisjoint(used_vars(binding.value)):
                on.add(binding.var)
        return on

    early, needed, kept = depending(set(arguments)) - depending({dy}), {gradient}, []
    for binding in reversed(bindings):
        if binding.var not in needed:
            continue
        if binding.var in early and size(binding.var.struct_info.shape) < whole:
            kept.append(binding.var)
        else:
            needed.update(used_vars(binding.value))
    return kept[::-1]


def _emit(
    builder: Any, name: str, function: Any, params: Sequence[Any], given: Sequence[Any], results: Sequence[Any]
) -> None:
    """A function of ``params`` and of the ``given`` values, which computes ``results`` as ``function`` does."""
    from pullback import relax
    from pullback.relax.mutator import emit_body
    from pullback.relax.transform.dead_code_elimination import remove_dead_bindings

    own = [*params, *given]
    known = set(given)
    others = relax.DataflowBlock(tuple(b for b in function.bindings if b.var not in known))
    part = remove_dead_bindings(relax.Function(own, relax.SeqExpr((others,), relax.Tuple(results))))
    fresh = variables([v.name for v in own], [v.struct_info.shape for v in own])
    with builder.function(name, fresh):
        with builder.dataflow():
            found = emit_body(part, dict(zip(own, fresh, strict=True)), builder)
            outputs = [builder.emit_output(value) for value in found.fields]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))


def variables(names: Sequence[str], shapes: Sequence[Shape]) -> list[Any]:
    from pullback import relax

    pairs = zip(names, shapes, strict=True)
    return [relax.Var(name, relax.TensorStructInfo(shape, "float32")) for name, shape in pairs]
