"""The machine's side of single kernels: the time in which loops in C do as many multiply-adds, or move as many bytes
where the kernel's are (`peak.c`), whichever is longer. It is measured in the same rounds as the kernels, so that what
slows the machine meanwhile slows both."""

from __future__ import annotations

import functools
import os

import numpy as np

from benchmarks.kernels.case import Case
from benchmarks.peak import Watch, cache_bytes, stream_like
from benchmarks.workers.protocol import Cases, Timed, chosen_cases, serve


def load() -> dict[str, str]:
    return {}  # compiled here


def prepare(suite: str, first: str, last: str) -> Cases:
    return chosen_cases(suite, first, last, timed)


def timed(case: Case) -> Timed:
    level, stream = stream_like(case.read, case.written, _threads(), cache_bytes())

    def seconds() -> float:
        arithmetic = case.flops / _watch().gflops() if case.flops else 0.0
        return 1e-9 * max(arithmetic, (case.read + case.written) / _watch().bandwidth(level, stream))

    return Timed(seconds, np.zeros(1))


@functools.cache
def _watch() -> Watch:
    return Watch(_threads())


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


if __name__ == "__main__":
    serve(load, prepare)
