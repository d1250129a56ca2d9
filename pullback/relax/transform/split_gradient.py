"""SplitGradient: the gradient of a function as two functions, between whose calls anything may happen.

    def f(x, w):                     def f_forward(x, w):                   def f_backward(x, w, y, y_adjoint):
        y = R.tanh(R.matmul(x, w))       y = R.tanh(R.matmul(x, w))             t = R.multiply(y, y)
        return y                 →       return (y,)                            …
                                                                                return (x_adjoint, w_adjoint)

``Gradient`` needs a scalar, whose adjoint is 1; here the adjoints of the results are parameters, so what follows the
function, and its own gradient, may be somebody else's. What the second function reads of the first one's values is a
minimal cut (``saved_values.py``): parameters and results are there anyway, and what is elementwise is computed again.
Both parts are simplified as one program first, so a mean and a variance that both need are computed once, and saved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import ArgumentError, DifferentiationError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import called_functions
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Function, Tuple, Var
from pullback.relax.mutator import copy_with_new_vars, emit_body
from pullback.relax.struct_info import StructInfo, format_info, has_adjoint
from pullback.relax.transform.canonicalize_bindings import CanonicalizeBindings
from pullback.relax.transform.decompose_ops import DecomposeOpsForTraining
from pullback.relax.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relax.transform.gradient import ReverseSweep, prepared, required_indices, tidied
from pullback.relax.transform.inline_custom_gradients import inline_custom_gradients
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.relax.transform.joint_region import Joint, JoinTwins, leaves
from pullback.relax.transform.kernel_gradients import KernelGradients
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.refuse_gradient import refuse_what_has_no_gradient
from pullback.relax.transform.region_writer import RegionWriter
from pullback.relax.transform.roots import Roots
from pullback.relax.transform.saved_values import saved_values
from pullback.relax.transform.share_prefixes import SharePrefixes
from pullback.relax.transform.simplify import Simplify
from pullback.relax.transform.structural_zeros import DENSE

SEEDED, KEPT = "seeded", "kept"  # attributes of the second function
PARAMETER, RESULT, SAVED = "parameter", "result", "saved"  # where a value that it keeps comes from


@guided
@dataclass(frozen=True)
class SplitGradient(Pass):
    """Add ``<f>_forward``, which returns ``(results…, saved…)``, and ``<f>_backward``, which takes
    ``(kept…, adjoints of results…)`` and returns the adjoints of parameters. Tuples among the results are flattened.

    ``func_name``: the function, a name or a GlobalVar. ``require_grads``: parameters of it (or one, or names), default
    all. ``seeded``: the numbers of the results whose adjoints ``<f>_backward`` takes, by default all floats that move
    with one of these parameters. ``overwritten``: names of parameters that may be something else by the time of the
    second call, whose values are saved where they are needed.

    Attributes of ``<f>_backward`` say what it takes: ``kept``, a tuple of ``("parameter", number)``, ``("result",
    number)`` and ``("saved", number)``, and ``seeded``, the numbers of the results whose adjoints follow.

    Args:
        func_name: the function, a name or a GlobalVar.
        require_grads: parameters of it (or one, or names), by default all.
        seeded: the numbers of the results whose adjoints ``<f>_backward`` takes, by default all floats that move with
            one of these parameters.
        overwritten: names of parameters that may be something else by the time of the second call, whose values are
            saved where they are needed.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32")):
        ...     return R.tanh(a)
        >>> module = relax.transform.SplitGradient("main")(pullback.IRModule({"main": main}))
        >>> vm = relax.VirtualMachine(pullback.compile(module))
        >>> module["main_backward"].attrs["kept"]
        (('result', 0),)
        >>> (value,) = vm["main_forward"](np.zeros(3, "float32"))
        >>> vm["main_backward"](value, np.ones(3, "float32"))
        (tensor([1., 1., 1.], shape=(3,), dtype=float32),)

    Checks: raises DifferentiationError for a required parameter or a seeded result that is no float, and, listing all
    of them, when ops without a gradient lie between. The function itself stays.
    """

    func_name: str | GlobalVar
    require_grads: Var | str | Sequence[Var | str] | None = None
    seeded: Sequence[int] | None = None
    overwritten: Sequence[str] = ()

    def run(self, module: IRModule) -> IRModule:
        names = set(map(str, sequence("overwritten", self.overwritten)))
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        raised = RaiseOps()(module)  # a legalised op has the op's gradient
        function = raised[name]
        if not isinstance(function, Function):
            raise DifferentiationError(
                f"{name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        unknown = sorted(names - {p.name for p in function.params})
        if unknown:
            known = ", ".join(p.name for p in function.params)
            raise ArgumentError(f"overwritten: {name} has no parameter {unknown[0]}", hint=f"it has {known}")
        required = required_indices(name, function, self.require_grads)
        closed = over_regions(inline_calls(function, raised), raised, prepared)
        result = module.copy()
        differentiated = Differentiated.of(name, closed, required, self.seeded, KernelGradients(result))
        joint = differentiated.joint(result)
        overwritten = {p for p in joint.params if p.name in names}
        forward, backward = _split(joint, differentiated.seeded, overwritten)
        for kernel in set(result) - {*module, *called_functions(forward), *called_functions(backward)}:
            del result[kernel]
        result[f"{name}_forward"], result[f"{name}_backward"] = forward, backward
        return result


@dataclass(frozen=True)
class Differentiated:
    """A function of parameters and seeds that returns results and adjoints, all in one tuple."""

    function: Function
    params: int
    results: int
    seeded: tuple[int, ...]

    @staticmethod
    def of(
        name: str, function: Function, required: Sequence[int], seeded: Sequence[int] | None, kernels: KernelGradients
    ) -> Differentiated:
        function = copy_with_new_vars(function)
        params = [function.params[i] for i in required]
        bits = {p: 1 << k for k, p in enumerate(params)}
        builder = BlockBuilder()
        builder.begin([p.name for p in function.params])
        with builder.dataflow():
            body = emit_body(function, {p: p for p in function.params}, builder)
            forward, results = builder.current_bindings(), leaves(body)
            numbers = _seeded(name, results, Roots(bits, forward), seeded)
            targets = Tuple(tuple(results[k] for k in numbers))
            refuse_what_has_no_gradient(forward, targets, dict.fromkeys(params, 1), kernels)
            sweep, seeds = ReverseSweep(builder, forward, bits, kernels), []
            for k in numbers:
                label = getattr(results[k], "name", "result")
                seeds.append(Var(builder.unique(f"{label}_adjoint"), results[k].struct_info))
                sweep.zeros.degrees[seeds[-1]] = DENSE
                sweep.accumulate(results[k], seeds[-1])
            sweep.run()
            outputs: list[Expr] = [builder.emit_output(r, getattr(r, "name", "result")) for r in results]
            outputs += [sweep.final(p) for p in params]
        joined = Function((*function.params, *seeds), builder.finish(Tuple(tuple(outputs))), None, {})
        joined = JoinTwins(sweep.twins).function(joined) if sweep.twins else joined
        return Differentiated(joined, len(function.params), len(results), numbers)

    def joint(self, module: IRModule) -> Joint:
        """Its bindings, simplified. ``module``: where the kernels are that it calls."""
        kernels = {n: f for n, f in module.items() if not isinstance(f, Function)}
        name = "joint"
        function = inline_custom_gradients(inline_calls(self.function, module), module)
        function = over_regions(function, module, tidied)
        work = IRModule({**kernels, name: function})
        for step in (
            DecomposeOpsForTraining(), CanonicalizeBindings(), SharePrefixes(), Simplify(), CanonicalizeBindings(),
            EliminateCommonSubexpr(),
        ):  # fmt: skip
            work = step(work)
        function = work[name]
        seeds = dict(zip(self.seeded, function.params[self.params :], strict=True))
        values = leaves(function.body.body)
        results, adjoints = values[: self.results], values[self.results :]
        params = list(function.params[: self.params])
        return Joint(params, results, seeds, adjoints, [DENSE] * len(adjoints), list(function.bindings), {})


def _seeded(name: str, results: Sequence[Expr], roots: Roots, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """The numbers of the results whose adjoints are given."""
    if wanted is None:
        return tuple(k for k, r in enumerate(results) if has_adjoint(r.struct_info) and roots.of(r))
    numbers = tuple(whole("seeded", k) for k in sequence("seeded", wanted))
    for k in numbers:
        if not 0 <= k < len(results):
            raise DifferentiationError(
                f"seeded {k} is outside the {len(results)} results of {name}", hint="results are counted from 0"
            )
        info: StructInfo = results[k].struct_info
        if not has_adjoint(info):
            raise DifferentiationError(
                f"result {k} of {name} has no adjoint: it is {format_info(info)}",
                hint="only floating-point tensors have gradients",
            )
    if len(set(numbers)) < len(numbers):
        raise DifferentiationError(f"seeded names a result of {name} twice: {numbers}", hint="name each result once")
    return numbers


def _split(joint: Joint, seeded: Sequence[int], overwritten: Collection[Var]) -> tuple[Function, Function]:
    """The function that gives results and saved values, and the one that gives adjoints."""
    there: dict[Any, tuple[str, int]] = {r: (RESULT, k) for k, r in reversed(list(enumerate(joint.results)))}
    there |= {p: (PARAMETER, k) for k, p in enumerate(joint.params)}
    there = {value: place for value, place in there.items() if value not in overwritten}
    read = joint.in_order(saved_values(joint, set(there), {}))
    own = [v for v in read if v not in there]
    there |= {v: (SAVED, k) for k, v in enumerate(own)}

    forward = RegionWriter()
    for param in joint.params:
        forward.stand_in(param)
    with forward.builder.dataflow():
        values = forward.outputs(forward.write(joint, [*joint.results, *own]))

    backward = RegionWriter()
    for value in (*read, *joint.seeds.values()):
        backward.stand_in(value)
    with backward.builder.dataflow():
        adjoints = backward.outputs(backward.write(joint, joint.adjoints))
    attrs = {KEPT: tuple(there[v] for v in read), SEEDED: tuple(seeded)}
    return forward.function(values, {}), backward.function(adjoints, attrs)
