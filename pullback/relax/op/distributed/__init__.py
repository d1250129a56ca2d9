"""What the ranks of a training compute together, ``R.ccl``, and a rank's part of what all draw."""

from __future__ import annotations

from pullback.relax.op.distributed import ccl, shard  # noqa: F401
