"""Passes over the kernels of a module, each over one function of this room.

    module = Specialize("k", [(8, 4), (8, 4)])(module)
    module = AdjointKernel("k")(module)                      # and the module has k_adjoint

The compiler calls the functions themselves, for the kernels that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pullback.ir.errors import ArgumentError, NameNotFound, suggestion
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.tir.adjoint import adjoint_kernel
from pullback.tir.checked import checked
from pullback.tir.defined import defined
from pullback.tir.expr import Buffer, is_float
from pullback.tir.lanes import independent_lanes
from pullback.tir.specialize import specialize
from pullback.tir.stmt import BufferStore, PrimFunc
from pullback.tir.visitor import statements
from pullback.tir.workspace import lift_workspaces

__all__ = ["AdjointKernel", "CheckAccesses", "DefineOutputs", "IndependentLanes", "LiftWorkspaces", "Specialize"]


@dataclass(frozen=True)
class KernelPass(Pass):
    """A pass that works on one kernel at a time: override :meth:`kernel`."""

    def kernel(self, kernel: PrimFunc) -> PrimFunc:
        raise NotImplementedError(f"{self.name} does not override kernel")

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if isinstance(function, PrimFunc):
                result[name] = self.kernel(function)
        return result


@dataclass(frozen=True)
class DefineOutputs(KernelPass):
    """Outputs and local buffers of which a kernel may read or give what it did not write are filled with zeros.

        for i in range(4): y[i] = x[i]        y has 8 elements    →    for i in range(8): y[i] = 0; for i in range(4): …

    Checks: sizes have to be numbers (:class:`Specialize`). The outputs are the parameters that it stores to.
    """

    def kernel(self, kernel: PrimFunc) -> PrimFunc:
        return defined(kernel, _outputs(kernel))


@dataclass(frozen=True)
class CheckAccesses(KernelPass):
    """Accesses that are not proven to lie inside of their buffers are checked, and a flag for each is an output more.

        out[i] = x[idx[i]]          →          ok[()] = True; …
                                               if not (0 <= idx[i] and idx[i] < 4): ok[()] = False
                                               out[i] = x[max(min(idx[i], 3), 0)]

    Checks: calls of the kernel do not know of the flags, so it is for kernels that are compiled by themselves.
    """

    def kernel(self, kernel: PrimFunc) -> PrimFunc:
        return checked(kernel)[0]


@dataclass(frozen=True)
class IndependentLanes(KernelPass):
    """Vectorized loops whose lanes read what others write become several loops, whose lanes do not.

        for b in vectorized(n):                      for b in vectorized(n): t[b] = x[b] * w[b]
            t[b] = x[b] * w[b]                 →     for b in vectorized(n): y[b] = t[b] * t[n - 1 - b]
            y[b] = t[b] * t[n - 1 - b]

    Checks: a ShapeError where values of lanes have to be kept and it is not known how many there are.
    """

    def kernel(self, kernel: PrimFunc) -> PrimFunc:
        body = independent_lanes(kernel.body)
        return kernel if body is kernel.body else replace(kernel, body=body)


@dataclass(frozen=True)
class LiftWorkspaces(KernelPass):
    """Scratch memory that a kernel asks for becomes its last parameters; the attribute ``workspaces`` counts them.

        def k(A, B):                                def k(A, B, panels):
            panels = T.alloc_buffer(…, "workspace")     …
            …                               →

    Checks: calls of the kernel do not know of these parameters: in the pipeline it is the planner that lifts them.
    """

    def kernel(self, kernel: PrimFunc) -> PrimFunc:
        return lift_workspaces(kernel)[0]


@dataclass(frozen=True)
class Specialize(Pass):
    """A kernel with symbolic sizes becomes one for buffers of these shapes, one for each, and these scalars.

        def k(A: T.Buffer((n, 4)), B: T.Buffer((n, 4))):  for i in range(n): …
            →
        def k(A: T.Buffer((8, 4)), B: T.Buffer((8, 4))):  for i in range(8): …

    Checks: a ShapeError where shapes or their number do not fit the parameters, a NameNotFound for an unknown kernel.
    """

    func_name: str
    shapes: Sequence[Sequence[int]]
    scalars: Sequence[int] = ()

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        kernel = _kernel_of(module, self.func_name)
        result[self.func_name] = specialize(kernel, [tuple(shape) for shape in self.shapes], list(self.scalars))
        return result


@dataclass(frozen=True)
class AdjointKernel(Pass):
    """Add ``<k>_adjoint``, which gives the adjoints of a kernel's inputs for those of its results.

        def k(x, y):                           def k_adjoint(x, dy, dx):
            for i in range(4):        →            dx[…] = 0
                y[i] = x[i] * x[i]                 for i in range(4): dx[i] += dy[i] * (2 * x[i])

    ``func_name``: the kernel. ``wanted``: the inputs that get an adjoint, by number or name, default all floats.

    Checks: the results are the buffers that it stores to, and have to be the last ones; a DifferentiationError where
    the number of iterations depends on memory that the kernel writes.
    """

    func_name: str
    wanted: Sequence[int | str] | None = None

    def run(self, module: IRModule) -> IRModule:
        kernel = _kernel_of(module, self.func_name)
        outputs = _outputs(kernel)
        inputs = kernel.buffers[: len(kernel.buffers) - len(outputs)]
        if any(output in inputs for output in outputs):
            hint = "parameters are what it reads, then what it writes"
            raise ArgumentError(f"{kernel.name} writes to a buffer before its last ones", span=kernel.span, hint=hint)
        name = module.unique_name(f"{self.func_name}_adjoint")
        result = module.copy()
        result[name] = adjoint_kernel(kernel, len(outputs), self._numbers(inputs), name)
        return result

    def _numbers(self, inputs: Sequence[Buffer]) -> list[int]:
        """The wanted inputs."""
        if self.wanted is None:
            return [k for k, buffer in enumerate(inputs) if is_float(buffer.dtype)]
        names = [buffer.name for buffer in inputs]
        numbers = [names.index(w) if w in names else w for w in self.wanted]
        for number in numbers:
            if not isinstance(number, int) or not 0 <= number < len(inputs):
                hint = f"the inputs are {', '.join(names)}"
                raise ArgumentError(f"{self.func_name} has no input {number!r}", hint=hint)
        return [number for number in numbers if isinstance(number, int)]


def _kernel_of(module: IRModule, name: str) -> PrimFunc:
    kernels = [known for known, function in module.items() if isinstance(function, PrimFunc)]
    if name not in kernels:
        hint = f"the kernels are {', '.join(kernels) or 'none'}"
        raise NameNotFound(f"the module has no kernel {name!r}{suggestion(name, kernels)}", hint=hint)
    kernel: PrimFunc = module[name]
    return kernel


def _outputs(kernel: PrimFunc) -> list[Buffer]:
    """The parameters that the kernel stores to."""
    stored = {s.buffer for s in statements(kernel.body) if isinstance(s, BufferStore)}
    return [buffer for buffer in kernel.buffers if buffer in stored]
