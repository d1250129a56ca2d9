"""Layers, models and losses under PyTorch's names: ``from pullback import nn``."""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.nn import aug, functional, init, utils
from pullback.nn.activation import *  # noqa: F403
from pullback.nn.adapter import *  # noqa: F403
from pullback.nn.attention import *  # noqa: F403
from pullback.nn.container import *  # noqa: F403
from pullback.nn.convolution import *  # noqa: F403
from pullback.nn.dropout import *  # noqa: F403
from pullback.nn.embedding import *  # noqa: F403
from pullback.nn.linear import *  # noqa: F403
from pullback.nn.lora import *  # noqa: F403
from pullback.nn.loss import *  # noqa: F403
from pullback.nn.module import *  # noqa: F403
from pullback.nn.normalization import *  # noqa: F403
from pullback.nn.padding import *  # noqa: F403
from pullback.nn.parameter import *  # noqa: F403
from pullback.nn.pooling import *  # noqa: F403
from pullback.nn.position import *  # noqa: F403
from pullback.nn.recurrent import *  # noqa: F403
from pullback.nn.shape import *  # noqa: F403
from pullback.nn.transformer import *  # noqa: F403
from pullback.nn.vision import *  # noqa: F403

# What the families define, each by its own __all__; some losses are those of relax.training.
FAMILIES = (f"{__name__}.", "pullback.relax.training.loss.")
__all__ = [n for n, v in globals().items() if n[0] != "_" and getattr(v, "__module__", "").startswith(FAMILIES)]
__all__ += ["aug", "functional", "init", "utils"]

__getattr__ = missing_from(globals())
