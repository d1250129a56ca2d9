"""The machine's side of single kernels: the time in which loops in C do as many multiply-adds (`peak.c`), measured in
the same rounds as the kernels, so that what slows the machine meanwhile slows both."""

from __future__ import annotations

import functools
import os

import numpy as np

from benchmarks.kernels.case import Case
from benchmarks.peak import Watch
from benchmarks.workers.protocol import Cases, Timed, chosen_cases, serve


def load() -> dict[str, str]:
    return {}  # compiled here


def prepare(suite: str, first: str, last: str) -> Cases:
    return chosen_cases(suite, first, last, timed)


def timed(case: Case) -> Timed:
    return Timed(lambda: 1e-9 * case.flops / _watch().gflops(), np.zeros(1))


@functools.cache
def _watch() -> Watch:
    return Watch(int(os.environ["OMP_NUM_THREADS"]))


if __name__ == "__main__":
    serve(load, prepare)
