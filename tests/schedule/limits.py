"""Other limits of the blocking of contractions, so that small problems are blocked as large ones are."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any

import pytest

from pullback.schedule import contraction, group
from pullback.schedule.contraction import figures

MODULES = (
    group,
    *(importlib.import_module(m.name) for m in pkgutil.walk_packages(contraction.__path__, f"{contraction.__name__}.")),
)


FIGURES = {f.name for f in dataclasses.fields(figures.BlockingFigures)}


def limit(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Replace figures of all machines, and names in all modules that read them. What is known of a group already stays
    known: take a new one."""
    for name, value in values.items():
        if name in FIGURES:
            monkeypatch.setattr(figures, "FIGURES", dataclasses.replace(figures.FIGURES, **{name: value}))
            continue
        having = [module for module in MODULES if hasattr(module, name)]
        assert having, f"no module of contractions has a {name}"
        for module in having:
            monkeypatch.setattr(module, name, value)
