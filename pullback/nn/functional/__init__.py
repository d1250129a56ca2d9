"""Functions of tensors under PyTorch's names, argument order and defaults: ``from pullback.nn import functional as F``.

    >>> def forward(self, x):
    ...     return F.log_softmax(self.fc(F.relu(x)), dim=1)

They build calls of ops (``docs/ops.md``), which have no hidden state; the layers of ``pullback.nn`` call them too.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.nn.functional.linear import bilinear, linear

__all__ = ["bilinear", "linear"]

__getattr__ = missing_from(globals())
