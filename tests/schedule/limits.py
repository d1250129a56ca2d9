"""Other limits of the blocking of contractions, so that small problems take the ways of large ones."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from pullback.schedule import contraction, group

MODULES = (
    group,
    *(importlib.import_module(m.name) for m in pkgutil.walk_packages(contraction.__path__, f"{contraction.__name__}.")),
)


def limit(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Replace names in all modules that read them. What is known of a group already stays known: take a new one."""
    for name, value in values.items():
        having = [module for module in MODULES if hasattr(module, name)]
        assert having, f"no module of contractions has a {name}"
        for module in having:
            monkeypatch.setattr(module, name, value)
