"""Functions of tensors under PyTorch's names, argument order and defaults: ``from pullback.nn import functional as F``.

    >>> def forward(self, x):
    ...     return F.log_softmax(self.fc(F.relu(x)), dim=1)

They build calls of ops (``docs/ops.md``), which have no hidden state; the layers of ``pullback.nn`` call them too. With
arrays outside of a model, they compute at once:

    >>> F.softmax(trainer.predict(x), dim=1)
"""

from __future__ import annotations

from typing import Any

from pullback.ir.words import missing_from
from pullback.nn.functional.activation import *  # noqa: F403
from pullback.nn.functional.attention import *  # noqa: F403
from pullback.nn.functional.convolution import *  # noqa: F403
from pullback.nn.functional.dropout import *  # noqa: F403
from pullback.nn.functional.eager import on_arrays
from pullback.nn.functional.embedding import *  # noqa: F403
from pullback.nn.functional.form import *  # noqa: F403
from pullback.nn.functional.linear import *  # noqa: F403
from pullback.nn.functional.loss import *  # noqa: F403
from pullback.nn.functional.normalization import *  # noqa: F403
from pullback.nn.functional.padding import *  # noqa: F403
from pullback.nn.functional.pooling import *  # noqa: F403
from pullback.nn.functional.tensor import *  # noqa: F403
from pullback.nn.functional.tensor import method
from pullback.nn.functional.vision import *  # noqa: F403

# What the families define, each by its own __all__.
__all__ = [n for n, v in globals().items() if n[0] != "_" and getattr(v, "__module__", "").startswith(f"{__name__}.")]
for _name in ("method", "on_arrays"):
    __all__.remove(_name)
globals().update({_name: on_arrays(globals()[_name]) for _name in __all__})

_missing = missing_from(globals())


def __getattr__(name: str) -> Any:
    """Methods of tensors are functions too."""
    found = None if name.startswith("_") else method(name)
    if found is None:
        return _missing(name)
    return globals().setdefault(name, on_arrays(found))
