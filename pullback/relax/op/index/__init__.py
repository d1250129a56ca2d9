"""Reading and writing where indices say, and what finds indices: sorting, searching."""

from __future__ import annotations

from pullback.relax.op.index import gather, index, ordering, scatter, search, sort  # noqa: F401
