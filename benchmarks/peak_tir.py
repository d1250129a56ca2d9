"""How fast this machine can multiply and add: a kernel of the loop IR that does nothing else.

The benchmarks divide by this number. Run as a program, it prints GFLOP/s of one thread for this kernel, and, where
there is a C compiler, for the same loop in C.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from pullback.codegen import compile_object, emit_module, load_object
from pullback.target import Target
from pullback.tir import Allocate, Buffer, PrimFunc, Var, fma, loop, seq, store

CHAINS = 12  # independent accumulators: enough to hide the latency of two FMA units


def peak_kernel(lanes: int, registers: int) -> PrimFunc:
    """``acc = acc * a + b`` on vectors of float32 that stay in registers, ``n`` times; flops: 2 * lanes * chains * n.

    Parameters: ``start`` and ``out`` of ``chains * lanes`` elements, the factors (2 elements), ``n``.
    """
    chains = min(CHAINS, registers - 4)
    start, out = Buffer("start", (chains, lanes)), Buffer("out", (chains, lanes))
    factors, n = Buffer("factors", (2,)), Var("n")
    acc = Buffer("acc", (chains, lanes), "float32", "local")

    def each(value):
        return loop("r", chains, lambda r: loop("v", lanes, lambda v: value(r, v), "vectorized"), "unrolled")

    body = Allocate(acc, seq(
        each(lambda r, v: store(acc, (r, v), start[r, v])),
        loop("i", n, lambda i: each(lambda r, v: store(acc, (r, v), fma(acc[r, v], factors[0], factors[1])))),
        each(lambda r, v: store(out, (r, v), acc[r, v])),
    ))  # fmt: skip
    return PrimFunc("peak", (start, out, factors, n), body)


def measure(address: int, lanes: int, chains: int, n: int = 2_000_000, rounds: int = 9) -> float:
    """GFLOP/s of the best of some calls of a compiled peak kernel."""
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(address)
    start, out = np.ones((chains, lanes), np.float32), np.zeros((chains, lanes), np.float32)
    factors = np.array([0.5, 0.25], np.float32)
    pointers = [a.ctypes.data for a in (start, out, factors)]
    best = float("inf")
    for _ in range(rounds):
        before = time.perf_counter()
        function(None, *pointers, n)
        best = min(best, time.perf_counter() - before)
    np.testing.assert_allclose(out, 0.5)
    return 2e-9 * lanes * chains * n / best


_C = """
typedef float vec __attribute__((vector_size({size}), aligned(4)));
void peak(void *rt, const float *start, float *out, const float *factors, long n) {{
    vec acc[{chains}], a = factors[0] - (vec){{0}}, b = factors[1] - (vec){{0}};
    for (int r = 0; r < {chains}; r++) acc[r] = ((const vec *)start)[r];
    for (long i = 0; i < n; i++)
        for (int r = 0; r < {chains}; r++) acc[r] = acc[r] * a + b;
    for (int r = 0; r < {chains}; r++) ((vec *)out)[r] = acc[r];
}}
"""


def c_peak(lanes: int, chains: int) -> float | None:
    """GFLOP/s of the same loop through the C compiler, or None without one."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        source, library = Path(directory, "peak.c"), Path(directory, "peak.so")
        source.write_text(_C.format(size=4 * lanes, chains=chains))
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-funroll-loops", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
        return measure(ctypes.cast(loaded.peak, ctypes.c_void_p).value or 0, lanes, chains)


def compare() -> tuple[float, float | None]:
    """GFLOP/s of one thread for the loop IR's kernel and for the same loop in C (None without a C compiler)."""
    target = Target("llvm")
    lanes = target.lanes("float32")
    kernel = peak_kernel(lanes, target.registers)
    chains = kernel.params[0].shape[0]
    library = load_object(compile_object(emit_module([kernel], target), target))
    return measure(library.address("peak"), lanes, chains), c_peak(lanes, chains)


def main() -> None:
    ours, theirs = compare()
    print(f"loop IR {ours:7.1f} GFLOP/s")
    if theirs is not None:
        print(f"C       {theirs:7.1f} GFLOP/s ({100 * ours / theirs:.1f} %)")


if __name__ == "__main__":
    main()
