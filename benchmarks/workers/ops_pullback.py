"""Pullback's side of single ops: a graph function each. Times are those of its kernels, from the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.kernels.ops import OpCase, out_gradient
from benchmarks.workers.kernels_pullback import load
from benchmarks.workers.protocol import Cases, Timed, serve, told


def prepare(labels: str) -> Cases:
    return told([OpCase.of(label) for label in labels.split(",")], timed)


def timed(case: OpCase) -> Timed:
    import pullback
    from pullback import relax

    arguments = case.arguments()
    module, arrays = module_of(case, arguments)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(0))
    bound = machine.bind("main", [pullback.nd.array(array) for array in arrays])
    results = [r.numpy().astype(np.float64) for r in _flat(bound())]
    return Timed(lambda: bound.profile().total * 1e-6, results[0] if case.kind == "forward" else results[1])


def module_of(case: OpCase, arguments: list[Any]) -> tuple[Any, list[np.ndarray]]:
    """A module with the function ``main``: (value,) or (value, adjoints…), and the arrays that it takes."""
    from pullback import relax
    from pullback.relax.interpreter import value_info

    def variables(arrays: list[Any]) -> list[Any]:
        return [relax.Var(f"x{k}", value_info(a)) if isinstance(a, np.ndarray) else a for k, a in enumerate(arrays)]

    def tensors(values: list[Any]) -> list[Any]:
        return [v for v, a in zip(values, arguments, strict=False) if isinstance(a, np.ndarray)] + values[
            len(arguments) :
        ]

    builder, given = relax.BlockBuilder(), variables(arguments)
    if case.kind == "forward":
        with builder.function("main", tensors(given)):
            values = _flat(case.row.ours(relax.op, *given))
            builder.emit_func_output(relax.Tuple(tuple(builder.emit(v) for v in values)))
        return builder.get(), tensors(arguments)
    value = _flat(case.row.ours(relax.op, *given))[0]
    dy = out_gradient(value.shape)
    given.append(relax.Var("dy", value_info(dy)))
    with builder.function("product", tensors(given)):
        value = builder.emit(_flat(case.row.ours(relax.op, *given[:-1]))[0])
        cast = value if value.dtype == "float32" else relax.op.astype(value, "float32")
        builder.emit_func_output(relax.Tuple((relax.op.sum(relax.op.multiply(cast, given[-1])), value)))
    wanted = [given[k] for k in case.wanted()]
    module = relax.transform.Gradient("product", require_grads=wanted)(builder.get())
    builder, given = relax.BlockBuilder(module), variables([*arguments, dy])
    with builder.function("main", tensors(given)):
        both = builder.emit(relax.Call(module.get_global_var("product_adjoint"), tuple(tensors(given))))
        adjoints = [builder.emit(both[1][k]) for k in range(len(wanted))]
        builder.emit_func_output(relax.Tuple((builder.emit(both[0][1]), *adjoints)))
    return builder.get(), tensors([*arguments, dy])


def _flat(value: Any) -> list[Any]:
    from pullback.relax.expr import Expr
    from pullback.relax.struct_info import TupleStructInfo

    if isinstance(value, Expr):
        return list(value) if isinstance(value.struct_info, TupleStructInfo) else [value]
    return list(value) if isinstance(value, (list, tuple)) else [value]


if __name__ == "__main__":
    serve(load, prepare)
