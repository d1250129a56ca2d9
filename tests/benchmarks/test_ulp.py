"""Elementary functions in float32 keep within two ulps on four million inputs; the benchmark takes all there are."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ulp

STRIDE = (1 << 32) // ulp.CHUNK - 1  # odd, so that the last bits are all there


@pytest.mark.parametrize("name", ulp.REFERENCES)
def test_within_two_ulps(name: str) -> None:
    with np.errstate(all="ignore"):
        *_, (done, worst) = ulp._measured(name, STRIDE)
    assert done == 1 and worst.count >= ulp.CHUNK
    assert worst.ulps <= ulp.BAR and worst.wrong == 0, f"{name}: {worst.ulps:.2f} ulp at {worst.at!r}"


def test_what_is_wrong_is_seen() -> None:
    x = np.array([1.0, 2.0, np.inf, np.nan], np.float32)
    worst = ulp.Worst()
    with np.errstate(invalid="ignore"):
        ulp._compare(worst, x, x + np.array([0, 1e-6, 0, 0], np.float32), x.astype(np.float64))
        assert worst.wrong == 0 and worst.at == 2.0 and worst.ulps == pytest.approx(4)
        ulp._compare(worst, x, np.zeros(4, np.float32), x.astype(np.float64))
    assert worst.wrong == 2
