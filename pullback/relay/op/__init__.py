"""relay's operators. Importing this package registers them all; one file a family."""

from pullback.relay.op import elementwise, gradients  # noqa: F401
from pullback.relay.op.registry import Op, OpPattern, get

__all__ = ["Op", "OpPattern", "get"]
