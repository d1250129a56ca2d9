"""relay's operators. Importing this package registers them all; one file a family."""

from pullback.relay.op import create, elementwise, index, reduce, shape  # noqa: F401
from pullback.relay.op.gradients import register_gradients
from pullback.relay.op.registry import Op, OpPattern, get

__all__ = ["Op", "OpPattern", "get"]

register_gradients()
