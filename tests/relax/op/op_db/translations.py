"""Importing this fills the table."""

from __future__ import annotations

from tests.relax.op.op_db import (  # noqa: F401
    elementwise,
    indexing,
    linear,
    losses,
    networks,
    reductions,
    shapes,
)
from tests.relax.op.op_db.table import TABLE

__all__ = ["TABLE"]
