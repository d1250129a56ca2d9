"""The names that a module of script has for users: what ``dir`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def public_names(names: Mapping[str, Any], *others: str) -> list[str]:
    """Of a module's ``globals()``, what it defines itself, and ``others``, which it takes from elsewhere; not what it
    imports for its own use."""
    home = names["__name__"]
    own = [n for n, v in names.items() if not n.startswith("_") and getattr(v, "__module__", None) == home]
    return sorted({*own, *others})
