"""Contractions of training steps: what is counted, and how it is weighed."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.contractions import Calls, _stem, _work
from benchmarks.peak import WRITTEN, Peak
from tests.driver.models import mlp_trainer_module

SLOW = Peak(2, 100.0, 64, {}, {"DRAM": dict.fromkeys(WRITTEN, 10.0)})  # GFLOP/s and GB/s


def test_every_product_of_a_step_is_counted() -> None:
    """Three for each layer: forward, the gradient of the weight, and but for the first that of the input."""
    batch, sizes = 8, (20, 12, 12, 12, 5)
    products = [2 * batch * a * b for a, b in itertools.pairwise(sizes)]
    assert set(_work(mlp_trainer_module()).values()) == set(products)


def test_calls_are_weighed_by_their_flops() -> None:
    """The first call takes twice the time of its FLOPs at the peak, the second that of its bytes."""
    calls = Calls([300_000, 100_000], [0, 40_000], [[6e-6, 4e-6]], [100.0], 0.5)
    assert calls.gflops() == pytest.approx(40.0)
    assert calls.of_peak() == pytest.approx(0.4)
    assert calls.of_roofline(SLOW) == pytest.approx((3 * 0.5 + 1 * 1.0) / 4)


@pytest.mark.parametrize(
    "name", ["fused_matmul_add_3", "fused_matmul_add_3_in_place_0_2_1", "fused_matmul_add_3_in_place_0"]
)
def test_kernels_that_share_memory_are_the_same_contraction(name: str) -> None:
    assert _stem(name) == "fused_matmul_add_3"
