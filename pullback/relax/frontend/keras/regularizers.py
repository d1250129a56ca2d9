"""Regularizers: what a weight, or the output of a layer, adds to the loss."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op


def regularization(regularizer: Any, x: Any, trace: Any) -> Any:
    """The term that a regularizer of Keras computes of a graph value, a scalar.

    One that the user wrote is called, and must be made of keras.ops.
    """
    kind = type(regularizer)
    if kind.__module__.startswith("keras.") and kind.__name__ in ("L1", "L2", "L1L2"):
        l1, l2 = (float(getattr(regularizer, name, 0.0) or 0.0) for name in ("l1", "l2"))
        terms = [op.sum(op.abs(x)) * l1] if l1 or not l2 else []
        terms += [op.sum(op.square(x)) * l2] if l2 else []
        return sum(terms[1:], terms[0])
    try:
        return trace.run(regularizer, (x,), {})
    except UserError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise UserError(
            f"the regularizer {getattr(regularizer, '__name__', kind.__name__)} cannot be traced: {error}",
            hint="it must be made of keras.ops; L1, L2 and L1L2 are converted as they are",
        ) from error
