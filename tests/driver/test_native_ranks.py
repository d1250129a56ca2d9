"""Compiled functions that several ranks run together: what becomes of them when one of the ranks fails."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.runtime.ranks import RankError, current, run_local
from pullback.script import ir as I
from pullback.script import relax as R

ELEMENTS = 20_000


@pytest.fixture(scope="module")
def total():
    """A compiled function that adds up an array over all ranks."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((20000,), "float32")):
            y = R.ccl.allreduce(x)
            return y

    return pullback.compile(Module, "llvm").function("main")


def test_each_thread_is_its_own_rank(total) -> None:
    def run(rank: int) -> float:
        for _ in range(5):
            result = total(np.full(ELEMENTS, rank + 1, "float32")).numpy()
        assert np.all(result == result[0])
        return float(result[0])

    assert run_local(3, run) == [6, 6, 6]
    assert total(np.ones(ELEMENTS, "float32")).numpy()[0] == 1  # alone again


@pytest.mark.parametrize("how", ["raises", "ends", "says so"])
def test_a_call_ends_when_a_rank_does(total, how: str) -> None:
    found = []

    def run(rank: int) -> None:
        x = np.ones(ELEMENTS, "float32")
        total(x)
        current().barrier()
        if rank == 1:
            if how == "raises":
                raise ValueError("the disk is full")
            if how == "says so":
                current().fail("its data are damaged")
            return
        try:
            while True:
                total(x)
        except RankError as error:
            found.append(error.message)

    if how == "raises":
        with pytest.raises(ValueError, match="the disk is full"):
            run_local(2, run)
    else:
        run_local(2, run)
    assert found == [
        {
            "raises": "rank 1 failed: ValueError: the disk is full",
            "ends": "rank 1 ended, and others wait for it",
            "says so": "rank 1 failed: its data are damaged",
        }[how]
    ]
