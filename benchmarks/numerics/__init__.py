"""Numeric kernels with loops, of the kind that NPBench collects: sizes, inputs, what they compute.

A family of kernels is a file: ``stencils``, ``solvers``, ``particles`` and ``dynamics`` hold the meaning in NumPy, and
beside each are the same kernels for a library: ``stencils_pullback``, ``stencils_jax`` and so on, a function of the
sizes for each kernel. Those of the references import NumPy alone: a peer's Python may lack our packages.
"""

from __future__ import annotations

from benchmarks.numerics import dynamics, particles, solvers, stencils
from benchmarks.numerics.kernel import Kernel

FAMILIES = ("stencils", "solvers", "particles", "dynamics")
KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for family in (stencils, solvers, particles, dynamics) for kernel in family.KERNELS
}
