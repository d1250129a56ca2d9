"""Models of PyTorch: modules, exported programs, fx graphs, traced and scripted modules."""

from __future__ import annotations

import contextlib
import importlib.util

from pullback.relax.frontend.torch import aten  # fills the table
from pullback.relax.frontend.torch.exporting import from_torch
from pullback.relax.frontend.torch.program import TorchModel
from pullback.relax.frontend.torch.reference import from_exported_program, from_fx, from_pytorch
from pullback.relax.frontend.torch.table import ATEN

__all__ = ["ATEN", "TorchModel", "aten", "from_exported_program", "from_fx", "from_pytorch", "from_torch"]

if importlib.util.find_spec("torch") is not None:  # tables need no PyTorch
    from pullback.relax.frontend.torch.dynamo import register

    with contextlib.suppress(ImportError, AttributeError):  # a PyTorch that is not whole: from_torch says so
        register()
