"""The kernel of a contraction: the loops of its parts, one part after the other."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.schedule.contraction.emit.lane_tiles import LaneLowering
from pullback.schedule.contraction.emit.lower import Lowering
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import Buffer, Stmt, seq


def kernel(parts: Sequence[tuple[Problem, Blocking]], flat: dict[Buffer, Buffer]) -> Stmt:
    """The loops of all parts, none of which reads what another one writes. ``flat``: inputs of the kernel that have one
    axis in it; filled here."""
    return seq(*((Lowering if b.lane_axis is None else LaneLowering)(p, b, flat).kernel() for p, b in parts))
