"""The table of Keras: its layers, ``layers.LSTM``, and its operations, ``ops.Matmul``: the classes behind keras.ops.

A converter is called with a :class:`Call` and then what Keras calls the layer or operation with: graph values for
tensors, plain values for the rest. Attributes of the layer or operation are attributes of the call.

    @KERAS.register("ops.Softmax")
    def softmax(c, x):
        return op.nn.softmax(x, c.axis)

A layer that has no line of its own is converted by its ``call``, which is made of operations; :func:`by_call` says so
of one that is known to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.relax import op
from pullback.relax.expr import Expr, as_relax
from pullback.relax.frontend.converters import Converters
from pullback.tir.expr import FLOATS

HEAD = """# Layers and operations of Keras

Written by `python -m pullback converters keras --markdown`; a test compares it with the table of conversions.
`layers.X` is `keras.layers.X`, `ops.X` the class behind a function of `keras.ops`. Other layers, those of yours too,
are converted if their `call` is made of operations that are. How to: [from_keras](../howto/from_keras.md). What is
missing is added by [`register_converter`](../../pullback/relax/frontend/converters.py).

Results are Keras's, and gradients too, within the rounding of their dtype. Random numbers have the same distribution
and other bits.
"""

KERAS = Converters("keras", HEAD)


class Call:
    """A call of a layer or an operation (``source``) while a model is traced. ``wanted``: the types of the results as
    Keras says them: the dtype of the first is ``dtype``."""

    def __init__(self, source: Any, trace: Any, wanted: Callable[[], list[tuple[Any, str]]]) -> None:
        self.source, self.trace, self._wanted = source, trace, wanted

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @property
    def dtype(self) -> str:
        """The dtype of the (first) result."""
        return self._wanted()[0][1]

    @property
    def compute_dtype(self) -> str:
        """The dtype in which a layer computes."""
        return str(self.source.compute_dtype)

    def weight(self, value: Any) -> Any:
        """A weight of the layer, ``c.kernel``, as a graph value in the dtype of the computation; None where there is
        none."""
        return self.trace.unwrapped(value)

    def assign(self, variable: Any, value: Any) -> None:
        """Give a weight that is not trained another value from this step on."""
        self.trace.assign(variable, value)

    def run(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """What another layer, or function of Keras tensors, gives for graph values."""
        return self.trace.run(layer, args, kwargs)

    def activation(self, function: Any, x: Any) -> Any:
        """What an activation of Keras, or None, gives for a graph value."""
        return x if function is None else self.run(function, x)

    def cast(self, x: Any, dtype: str | None = None) -> Any:
        """``x`` (a number too) in a dtype, by default that of the result."""
        return cast(x, dtype or self.dtype)

    def common(self, *values: Any) -> list[Any]:
        """Values in the dtype to which Keras promotes them."""
        dtype = self.trace.common_dtype(values)
        return [cast(value, dtype) for value in values]


def cast(x: Any, dtype: str) -> Any:
    """A graph value or a number in a dtype."""
    if not isinstance(x, Expr):
        return op.astype(as_relax(x), dtype) if hasattr(x, "dtype") else _number(x, dtype)
    return x if x.dtype == dtype else op.astype(x, dtype)


def _number(x: Any, dtype: str) -> Any:
    from pullback.relax.expr import const

    return const(x, dtype)


def same(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Operations that have no attributes, and are functions of one tensor here as they are."""
    for name, function in functions.items():
        KERAS.register(name)(_same(function))


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    def convert(c: Call, x: Any) -> Any:
        return c.cast(function(as_float(c, x)))

    return convert


def as_float(c: Call, x: Any) -> Any:
    """``x``, of integers and truth values in the dtype of the result: what a function of real numbers is of them."""
    return x if x.dtype in FLOATS else c.cast(x)


def by_call(*names: str) -> None:
    """Layers whose ``call`` is made of operations that are converted."""
    for name in names:
        KERAS.register(name)(run_call)


def run_call(c: Call, *args: Any, **kwargs: Any) -> Any:
    """What a layer's own ``call`` computes."""
    return c.trace.unwrapped(c.trace.by_call(c.source, args, kwargs))
