"""Random numbers: functions of a key. The same key gives the same numbers, on every machine and executor.

A key has the reference's form, ten words of 64 bits of which word 3 is the seed. Numbers are those of the graph IR's
generator (Philox), with the seed and the count of draws, word 7, as its state: not the reference's numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import relax
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Constant, Expr, call_op, const
from pullback.relay.op.registry import define
from pullback.relay.op.rules import cast, dtype_name, ints, rank_of, shape_of
from pullback.relay.ty import TensorType, TupleType, Type

_WORDS, _SEED, _DRAWS = 10, 3, 7
_KEY = TensorType((_WORDS,), "uint64")


def threefry_key(seed: int) -> Constant:
    """The key of a seed, an int."""
    words = np.zeros(_WORDS, "uint64")
    words[_SEED], words[8] = np.uint64(seed % 2**64), np.uint64(1 << 63)
    return const(words)


def _state(key: Any) -> Any:
    """(seed, place) of the graph IR's generator."""
    return ops.concat([_word(key, _SEED), _word(key, _DRAWS)], 0)


def _word(key: Any, k: int) -> Any:
    return ops.strided_slice(key, [0], [k], [k + 1])


def _with_word(key: Any, k: int, word: Any) -> Any:
    before, after = ops.strided_slice(key, [0], [0], [k]), ops.strided_slice(key, [0], [k + 1], [_WORDS])
    return ops.concat([before, word, after], 0)


def _next(key: Any) -> Any:
    return _with_word(key, _DRAWS, ops.add(_word(key, _DRAWS), relax.const(np.array([1], "uint64"))))


def _drawn(dtype: str | None = None) -> Any:
    def relation(types: list[Type], attrs: Attrs) -> Type:
        return TupleType((_KEY, TensorType(attrs["out_shape"], dtype or attrs["out_dtype"])))

    return relation


define(
    "random.threefry_generate",
    "key | out_shape",
    lambda key, *, out_shape: (_next(key), ops.random.bits(_state(key), out_shape, "uint64")),
    adapt=lambda args, attrs: (args, {"out_shape": ints("shape", attrs["out_shape"])}),
    relation=_drawn("uint64"),
    returns=2,
    shown=("out_shape",),
    doc="(the next key, random words of 64 bits).",
)


def threefry_generate(key: Any, shape: Any) -> Any:
    """The next key, and random uint64 words of the shape.

    >>> key, words = threefry_generate(threefry_key(0), (4,))
    """
    return call_op("random.threefry_generate", key, out_shape=shape)


def _split(key: Any) -> Any:
    words = ops.random.bits(ops.random.site(_state(key), 1), (2,), "uint64")
    fresh = _with_word(key, _DRAWS, relax.const(np.array([0], "uint64")))
    return tuple(_with_word(fresh, _SEED, ops.strided_slice(words, [0], [i], [i + 1])) for i in range(2))


define(
    "random.threefry_split",
    "key",
    _split,
    relation=lambda types, attrs: TupleType((_KEY, _KEY)),
    returns=2,
    doc="Two keys, whose numbers are independent.",
)


def _scaled(numbers: Any, factor: Any, offset: Any) -> Any:
    return ops.add(ops.multiply(numbers, factor), offset)


def _uniform(key: Any, low: Any, high: Any, *, out_shape: Any, out_dtype: str) -> Any:
    numbers = ops.random.uniform(_state(key), out_shape, dtype=out_dtype)
    low, high = cast(low, out_dtype), cast(high, out_dtype)
    return _next(key), _scaled(numbers, ops.subtract(high, low), low)


def _normal(key: Any, mean: Any, scale: Any, *, out_shape: Any, out_dtype: str) -> Any:
    numbers = ops.random.normal(_state(key), out_shape, dtype=out_dtype)
    return _next(key), _scaled(numbers, cast(scale, out_dtype), cast(mean, out_dtype))


for _name, _lower, _doc in (
    ("uniform", _uniform, "(the next key, numbers from low to high, all equally likely)."),
    ("normal", _normal, "(the next key, numbers of the normal distribution of the mean and standard deviation)."),
):
    define(
        f"random.{_name}",
        "key, " + {"uniform": "low, high", "normal": "mean, scale"}[_name] + " | out_shape, out_dtype='float32'",
        _lower,
        relation=_drawn(),
        returns=2,
        shown=("out_shape", "out_dtype"),
        doc=_doc,
    )


def _pair(name: str, key: Any, shape: Any, dtype: Any, values: Any) -> Any:
    dtype = dtype_name(dtype) or "float32"
    given = [v if isinstance(v, Expr) else const(float(v), dtype) for v in values]
    return call_op(f"random.{name}", key, *given, out_shape=ints("shape", shape), out_dtype=dtype)


def uniform(key: Any, shape: Any, dtype: str = "float32", low: Any = 0.0, high: Any = 1.0) -> Any:
    """The next key, and numbers from low to high of the shape; low and high may be tensors that broadcast to it."""
    return _pair("uniform", key, shape, dtype, (low, high))


def normal(key: Any, shape: Any, dtype: str = "float32", mean: Any = 0.0, scale: Any = 1.0) -> Any:
    """The next key, and numbers of the normal distribution of the shape; mean and scale may be tensors."""
    return _pair("normal", key, shape, dtype, (mean, scale))


def _multinomial(key: Any, probs: Any, *, num_samples: int) -> Any:
    """The first place at which the sum of the probabilities up to it is more than a uniform number."""
    lines = ops.reshape(probs, (-1, shape_of(probs)[-1]))
    count = shape_of(lines)[0]
    sums = ops.cumsum(lines, axis=1)
    total = ops.sum(lines, axis=1, keepdims=True)
    numbers = ops.multiply(
        ops.random.uniform(_state(key), (count, num_samples), dtype="float32"), cast(total, "float32")
    )
    found = ops.searchsorted(cast(sums, "float32"), numbers, right=True, dtype="int32")
    last = relax.const(np.int32(shape_of(probs)[-1] - 1))
    shape = (num_samples,) if rank_of(probs) == 1 else (*shape_of(probs)[:-1], num_samples)
    return _next(key), ops.reshape(ops.minimum(found, last), shape)


define(
    "random.multinomial",
    "key, probs | num_samples=1",
    _multinomial,
    relation=lambda types, attrs: TupleType((_KEY, TensorType((*types[1].shape[:-1], attrs["num_samples"]), "int32"))),
    returns=2,
    doc="(the next key, places along the last axis of probs, each drawn with its probability).",
)
