"""``relay.backend.aot``: see :mod:`pullback.relay.aot`."""

from pullback.relay.aot import AotFunction, compile

__all__ = ["AotFunction", "compile"]
