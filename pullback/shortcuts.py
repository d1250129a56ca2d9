"""Short names of packages: ``from pullback.training import Trainer`` imports from ``pullback.relax.training``.

A module has one copy whatever name it is imported by.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SHORTCUTS = {
    "pullback.contrib.graph_runtime": "pullback.contrib.graph_executor",
    "pullback.runtime.relax_vm": "pullback.runtime.vm",
    "pullback.testing.utils": "pullback.testing",
    "pullback.frontend": "pullback.relax.frontend",
    "pullback.callbacks": "pullback.relax.training.callbacks",
    "pullback.training": "pullback.relax.training",
    "pullback.transform": "pullback.relax.transform",
    "pullback.op": "pullback.relax.op",
    "pullback.relax.optimizer": "pullback.relax.training.relax_optimizer",
    "pullback.relax.vm": "pullback.driver.vm_face",
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        short = next((s for s in SHORTCUTS if name == s or name.startswith(f"{s}.")), None)
        if short is None:
            return None
        spec = ModuleSpec(name, self)
        spec.loader_state = SHORTCUTS[short] + name.removeprefix(short)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """The module ran when it was imported by its own name; it keeps its own spec."""
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make the short names importable. Modules that are loaded get theirs at once: an import would set an attribute of
    the package, where ``relax.op.sort`` is an op."""
    for short, own in SHORTCUTS.items():
        loaded = {n: m for n, m in sys.modules.items() if n == own or n.startswith(f"{own}.")}
        sys.modules.update({short + name.removeprefix(own): module for name, module in loaded.items()})
    sys.meta_path.insert(0, _Finder())
