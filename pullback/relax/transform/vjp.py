"""The adjoints of a function's parameters as a function of its parameters, its results and their adjoints.

    def f(x):                          def f_vjp(x, y, y_adjoint):
        y = R.tanh(R.multiply(x, 2))       lv = R.multiply(y, y)
        return y                   →       …
                                           return (x_adjoint,)

Of the forward computation there is what the adjoints read and no result gives. ``SplitGradient`` saves that instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relax.expr import Function, Var
from pullback.relax.transform.gradient import prepared
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.relax.transform.kernel_gradients import KernelGradients
from pullback.relax.transform.region_writer import RegionWriter
from pullback.relax.transform.roots import is_differentiable
from pullback.relax.transform.split_gradient import Differentiated


@dataclass(frozen=True)
class VJP:
    """``function`` takes (parameters…, results…, adjoints…), tuples among the results flattened: the adjoints are those
    of the results with the numbers ``seeded``. It returns adjoints in one tuple, of the parameters with the numbers
    ``required``, tuples among them flattened too. ``module`` has the kernels that it calls."""

    function: Function
    module: IRModule
    required: tuple[int, ...]
    seeded: tuple[int, ...]


def vjp(module: IRModule, name: str) -> VJP:
    """The vector-Jacobian product of a graph function of the module, for all of its parameters that hold floats.

    Raises DifferentiationError where ops without a gradient lie on the way, and listing all of them.
    """
    function = module[name]
    required = tuple(k for k, p in enumerate(function.params) if is_differentiable(p.struct_info))
    work = module.copy()
    closed = over_regions(inline_calls(function, module), module, prepared)
    differentiated = Differentiated.of(name, closed, required, None, KernelGradients(work))
    joint = differentiated.joint(work)
    writer = RegionWriter()
    for param in joint.params:
        writer.stand_in(param)
    for result in joint.results:
        if isinstance(result, Var) and result not in writer.env:
            writer.stand_in(result)
        else:
            writer.param(result, "result")
    for number in differentiated.seeded:
        writer.stand_in(joint.seeds[number])
    with writer.builder.dataflow():
        adjoints = writer.outputs(writer.write(joint, joint.adjoints))
    return VJP(writer.function(adjoints, {}), work, required, differentiated.seeded)
