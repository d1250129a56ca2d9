"""When a step's collectives start and are awaited: what lies between hides what is sent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.driver.pipeline import plan_function, prepare
from pullback.relax.convention import STEP
from pullback.relax.training.distribution import DataParallel, Mesh, ZeRO
from pullback.relax.transform.memory.collectives import IN_FLIGHT
from pullback.relax.transform.plan_memory import Plan
from pullback.target import Target

LAYERS, WIDTH = 5, 64


def plan_of(stage: int, optimizer: object = None) -> Plan:
    """The step of a deep network, each weight a bucket of its own."""
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    trainer = pullback.trainer(
        nn.Sequential(*layers), "mse", optimizer or optim.AdamW(1e-2), example=np.zeros((8, WIDTH), np.float32),
        target="debug",
    )  # fmt: skip
    module = DataParallel(Mesh(data=2), bucket_bytes=4 * WIDTH * WIDTH)(trainer.mod)
    module = ZeRO(stage)(module) if stage else module
    return plan_function(prepare(module), STEP, {"n": 8}, Target("llvm"))


def starts_of(plan: Plan, kind: str) -> list[int]:
    return [k for k, name in enumerate(plan.timeline) if name.startswith(f"ccl_{kind}_start")]


def waits_of(plan: Plan) -> list[int]:
    return [k for k, name in enumerate(plan.timeline) if name.startswith("ccl_") and "_wait" in name]


@pytest.mark.parametrize(("stage", "kinds"), [(0, 1), (1, 2), (2, 3), (3, 3)])
def test_few_are_in_flight(stage: int, kinds: int) -> None:
    plan = plan_of(stage)
    starts = [k for kind in ("reduce", "reduce_pieces", "gather_pieces") for k in starts_of(plan, kind)]
    flying = most = 0
    for k in range(len(plan.timeline)):
        flying += (k in starts) - (k in waits_of(plan))
        most = max(most, flying)
    assert flying == 0 and 1 <= most <= kinds * IN_FLIGHT


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_are_sent_while_others_are_computed(stage: int) -> None:
    """After all but the last gradient is sent, the next one is computed before anything is awaited."""
    plan = plan_of(stage)
    starts = starts_of(plan, "reduce" if stage < 2 else "reduce_pieces")[-LAYERS:]
    products = [k for k, name in enumerate(plan.timeline) if "matmul" in name]
    for first, second in pairwise(starts):
        assert any(first < p < second for p in products)
    last = products[-1]
    sent_before = sum(s < last for s in starts)
    assert sent_before == LAYERS - 1


def test_updates_come_with_the_gradients() -> None:
    """So a gradient takes memory until the next two are there: the arena of data parallel stays below all gradients."""
    assert plan_of(0).arena_bytes < 4 * 4 * WIDTH * WIDTH + 8 * 8 * 4 * WIDTH * 4
    clipped = plan_of(0, optim.ClipByGlobalNorm(optim.AdamW(1e-2), 1.0))
    pieces = plan_of(2, optim.ClipByGlobalNorm(optim.AdamW(1e-2), 1.0))
    assert pieces.arena_bytes < clipped.arena_bytes  # the norm needs all: whole ones, or pieces


def test_parameters_are_gathered_just_in_time() -> None:
    """Each weight is gathered for its layer and again for its adjoint, and no more than a few are there at a time."""
    plan = plan_of(3)
    assert len(starts_of(plan, "gather_pieces")) == 2 * LAYERS - 1
    whole = [p for p in plan.places if p.nbytes == 4 * WIDTH * WIDTH and "gather_pieces" in p.name]
    alive = [sum(p.first <= k <= p.last for p in whole) for k in range(len(plan.timeline))]
    assert 0 < max(alive) <= 2 * IN_FLIGHT + 1  # as they arrive, and where they are read


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_order_does_not_depend_on_addresses(stage: int) -> None:
    """Ranks plan for themselves, and have to send in the same order."""
    first = plan_of(stage).timeline
    kept = [object() for _ in range(1000)]  # later objects lie elsewhere
    assert plan_of(stage).timeline == first and len(kept) == 1000
