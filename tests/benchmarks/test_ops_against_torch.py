"""What `python -m benchmarks ops` times: both sides compute the same."""

from __future__ import annotations

import pytest

from benchmarks.kernels.ops import NONE, OpCase, cases
from benchmarks.ops import RANDOM
from benchmarks.workers import ops_pullback, ops_torch

LAST = {case.op: case for case in cases([], ["1e3"])}  # the gradient, or else the value


@pytest.mark.parametrize("case", LAST.values(), ids=lambda case: case.label)
def test_same_op_as_torch(case: OpCase) -> None:
    ours, theirs = ops_pullback.timed(case), ops_torch.timed(case)
    if isinstance(theirs, str):
        assert theirs == NONE
    elif not case.op.startswith(RANDOM):
        assert ours.norms == pytest.approx(theirs.norms, rel=1e-4, abs=1e-6)
    assert ours.seconds() > 0
