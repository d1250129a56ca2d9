"""The errors' older names: everything that pullback raises on purpose is a ``TVMError``."""

from pullback.ir.errors import InternalError, PullbackError, ScriptError

TVMError = PullbackError
DiagnosticError = ScriptError  # text that is no program

__all__ = ["DiagnosticError", "InternalError", "TVMError"]
