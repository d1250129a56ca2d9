"""The evaluator: the meaning of programs of relay, over NumPy. The oracle of all executors."""

from pullback.relay.evaluate.interpreter import Interpreter
from pullback.relay.evaluate.values import Closure, ConstructorValue, RefValue

__all__ = ["Closure", "ConstructorValue", "Interpreter", "RefValue"]
