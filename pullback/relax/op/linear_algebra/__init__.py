"""Products of matrices, and sums of products over named axes."""

from __future__ import annotations

from pullback.relax.op.linear_algebra import einsum, matmul  # noqa: F401
