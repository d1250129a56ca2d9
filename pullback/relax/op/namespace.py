"""Dotted names of ops as attributes: ``R.nn.relu`` is the op ``relax.nn.relu``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pullback.ir.errors import NoAttribute, suggestion
from pullback.ir.foreign import OPS
from pullback.ir.op import Op


def no_op(name: str, *others: str) -> NoAttribute:
    """The error of a name after ``R.`` that is no op; ``others`` are known there too."""
    known = [op.short for op in Op.registry.values() if not op.name.startswith(("relax.grad.", "relax.batch."))]
    known += [alias.removeprefix("relax.") for alias in Op.aliases]
    return NoAttribute(f"there is no R.{name}{suggestion(name, [*known, *others], OPS, 'R.')}")


class Namespace:
    """The ops whose names begin with ``prefix.``; all ops when the prefix is empty."""

    def __init__(self, prefix: str = "") -> None:
        self._start = f"relax.{prefix}." if prefix else "relax."

    def __getattr__(self, name: str) -> Any:
        op = Op.find(self._start + name)
        if op is not None:
            return op
        inner = self._start + name + "."
        if any(full.startswith(inner) for full in Op.registry):
            return Namespace(inner.removeprefix("relax.").rstrip("."))
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_op((self._start + name).removeprefix("relax."))

    def __dir__(self) -> list[str]:
        names = [full.removeprefix(self._start) for full in Op.registry if full.startswith(self._start)]
        return sorted({name.partition(".")[0] for name in names})


ops = Namespace()  # how gradient rules name ops of other files: looked up when the rule runs


def in_package(prefix: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of the package ``relax.op.<prefix>``, whose files are loaded: ``from pullback.relax.op.nn
    import relu`` gives the op, and so does ``import attention``, which is a file there too."""
    package = vars(sys.modules[f"{__package__}.{prefix}"])
    package.update({name: op for name in package if (op := Op.find(f"relax.{prefix}.{name}")) is not None})
    return Namespace(prefix).__getattr__
