"""Operators without a converter as the operators that PyTorch composes them of.

Programs keep their operators whole: convolutions, norms, attention and recurrent layers are ops here too. Only those
that the table lacks are taken apart, by PyTorch's own decompositions, until each has a line there, or none of its parts
has a decomposition.
"""

from __future__ import annotations

import warnings
from collections.abc import Container
from typing import Any

from pullback.relax.frontend.torch.replay import is_operator, keys_of
from pullback.relax.frontend.torch.table import ATEN

__all__ = ["taken_apart"]

ROUNDS = 8  # of decompositions: parts may have to be taken apart again


def taken_apart(program: Any, own: Container[str] = ()) -> Any:
    """The exported program with each operator taken apart that has no converter, in the table or by a name in ``own``,
    and for which PyTorch has a decomposition. One that the table refuses stays, so that an error names what the user
    called."""
    import torch

    known: Any = None
    for _ in range(ROUNDS):
        missing = {n.target for n in program.graph.nodes if is_operator(n) and not _is_known(n.target, own)}
        if not missing:
            break
        known = torch.export.default_decompositions() if known is None else known
        rules = {target: known[target] for target in missing if target in known}
        if not rules:
            break
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # of PyTorch's own calls
            program = program.run_decompositions(rules)
    return program


def _is_known(target: Any, own: Container[str]) -> bool:
    keys = keys_of(target)
    return any(key in own for key in keys) or ATEN.find(*keys) is not None
