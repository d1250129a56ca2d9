"""Random numbers, and dropout.

What these ops draw is a function of a *state* and of the element's row-major number, by Philox4x32-10: the same for
every backend, number of threads, and moment of computing. A state is a uint64 tensor (seed, place); the states of
different places give independent numbers. ``random.site`` makes of one state those of several sites: with the number of
steps as place, each site draws anew in each step.

An op that is called without a state takes a hidden one. Such a call is a draw of its own, and can be neither computed
nor merged with another until ``AddRandomState`` hands it the state of its site; trainers see to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Constant, Expr, ShapeExpr, Tuple
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    specialize,
    wide,
    widened,
    zero_gradient,
)
from pullback.relax.op.index.gather import checked_rows
from pullback.relax.op.manipulate.shape import sizes
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.op_calls import no_state
from pullback.relax.struct_info import (
    TensorStructInfo,
    TupleStructInfo,
    format_info,
    format_shape,
    same_info,
    same_shape,
)
from pullback.runtime.dtype import numpy_dtype
from pullback.te.random import Shard, bits, bits_array
from pullback.tir.expr import FLOATS, INTEGERS

STATE = TensorStructInfo((2,), "uint64")
STEPS, SITES = 2**40, 2**24  # a place is the number of a step, and above it that of a site

A_STATE = Ints((2,), 0, 2**62, "uint64")


class Random(Op):  # as users call it: the state may be left out
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        at = self.signature.tensors.index("state")
        given = len(args) > at and isinstance(args[at], (Expr, np.ndarray)) and not isinstance(args[at], ShapeExpr)
        if not given and len(args) >= at:
            args = (*args[:at], kwargs.pop("state", None), *args[at:])
        return super().__call__(*args, **kwargs)


def check_state(name: str, state: TensorStructInfo | None) -> None:
    if state is not None and not same_info(state, STATE):
        hint = 'it holds (seed, place): np.array([0, 0], "uint64")'
        raise ShapeError(f"{name}: the state must be {format_info(STATE)}, got {format_info(state)}", hint=hint)


def expect_probability(name: str, argument: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UserError(f"{name}: {argument} must be a number from 0 to 1, got {value!r}")


# -- the state of a site


def _site_infer(state: TensorStructInfo, *, number: int) -> TensorStructInfo:
    check_state("random.site", state)
    expect_int("random.site", "number", number)
    if not 0 <= number < SITES:
        raise UserError(f"random.site: number must be ≥ 0 and below {SITES}, got {number}")
    return STATE


def _site_te(state: te.Tensor, *, number: int) -> te.Tensor:
    offset = tir.const(number * STEPS, "uint64")
    return te.compute((2,), lambda i: state[i] + tir.select(i.equal(1), offset, tir.const(0, "uint64")), "site")


def _offset(number: int) -> np.ndarray:
    return np.array([0, number * STEPS], np.uint64)


def _site_decomposed(state: Any, *, training: bool, number: int) -> Any:
    """A sum with an array, which a kernel takes as an argument: so equal layers share their kernels."""
    return ops.add(state, Constant(_offset(number)))


define(
    "random.site",
    "state | number",
    infer=_site_infer,
    te=_site_te,
    numpy=lambda state, *, number: state + _offset(number),
    decompose=_site_decomposed,
    gradient=zero_gradient,
    family="random",
    doc="The state of the site with that number: (seed, place + 2⁴⁰·number), for places below 2⁴⁰.",
    samples=[sample(A_STATE, number=0), sample(A_STATE, number=3)],
)

# -- numbers of a shape


@dataclass(frozen=True)
class Draw:
    """How the elements of an op are made of one random integer each, a ``word`` of uint32 or uint64: ``scalar`` of an
    expression, and ``numpy`` of an array. All take the op's attributes but for the shape."""

    name: str
    check: Callable[..., None]
    dtype: Callable[..., str]
    word: Callable[..., str]
    scalar: Callable[..., Any]
    numpy: Callable[..., Any]

    def info(self, shape: Any, **kw: Any) -> TensorStructInfo:
        """The type of what is drawn; raises a UserError for attributes that are not the op's."""
        self.check(**kw)
        return TensorStructInfo(sizes(shape), self.dtype(**kw))

    def tensor(self, state: te.Tensor, shape: Any, shard: Shard | None = None, **kw: Any) -> te.Tensor:
        """What is drawn of the shape, or a shard of that shape."""
        drawn, dtype = bits(state, sizes(shape), self.word(**kw), shard), self.dtype(**kw)
        return te.compute(
            drawn.shape, lambda *i: tir.cast(dtype, self.scalar(drawn[i], **kw)), self.name.split(".")[-1]
        )

    def array(self, state: np.ndarray, shape: Any, shard: Shard | None = None, **kw: Any) -> np.ndarray:
        """The same over NumPy."""
        shape = shape if isinstance(shape, (tuple, list)) else (shape,)
        drawn = bits_array(state, shape, self.word(**kw), shard)
        return np.asarray(self.numpy(drawn, **kw)).astype(numpy_dtype(self.dtype(**kw)))


DRAWS: dict[str, Draw] = {}  # by the op's name


def _draw(
    name: str,
    attrs: str,
    *,
    check: Callable[..., None],
    dtype: Callable[..., str],
    word: Callable[..., str],
    scalar: Callable[..., Any],
    numpy: Callable[..., Any],
    **rules: Any,
) -> Op:
    """An op that draws: see :class:`Draw`."""
    draw = DRAWS[name] = Draw(name, check, dtype, word, scalar, numpy)

    def infer(state: TensorStructInfo | None = None, *, shape: Any, **kw: Any) -> TensorStructInfo:
        check_state(name, state)
        return draw.info(shape, **kw)

    def build(state: te.Tensor | None = None, *, shape: Any, **kw: Any) -> te.Tensor:
        if state is None:
            raise no_state(name)
        return draw.tensor(state, shape, **kw)

    def run(state: np.ndarray | None = None, *, shape: Any, **kw: Any) -> np.ndarray:
        if state is None:
            raise no_state(name)
        return draw.array(state, shape, **kw)

    signature = f"state? | shape, {attrs}"
    op = define(name, signature, infer=infer, te=build, numpy=run, gradient=zero_gradient, family="random", **rules)
    return specialize(op, Random)


def _expect(name: str, dtype: Any, known: tuple[str, ...], kind: str) -> None:
    if dtype not in known:
        raise DTypeError(f"{name}: dtype must be {kind}: {', '.join(known)}; got {dtype!r}")


_draw(
    "random.bits",
    "dtype='uint32'",
    check=lambda *, dtype: _expect("random.bits", dtype, ("uint32", "uint64"), "one of"),
    dtype=lambda *, dtype: dtype,
    word=lambda *, dtype: dtype,
    scalar=lambda x, *, dtype: x,
    numpy=lambda x, *, dtype: x,
    doc="Random integers: all values of uint32, or uint64, are equally likely.",
    samples=[
        sample(A_STATE, shape=(3, 5)),
        sample(A_STATE, shape=(130,)),
        sample(A_STATE, shape=(2, 128)),
        sample(A_STATE, shape=()),
        sample(A_STATE, shape=(0, 2)),
        sample(A_STATE, shape=(37,), dtype="uint64"),
    ],
)

_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # bits of a fraction that is exact


def _check_floats(name: str, dtype: Any, **numbers: Any) -> None:
    _expect(name, dtype, FLOATS, "a floating-point type")
    for argument, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UserError(f"{name}: {argument} must be a finite number, got {value!r}", hint="such as 1.0")


def _float_word(*, dtype: str, **_: Any) -> str:
    return "uint64" if dtype == "float64" else "uint32"


def _uniform_scalar(x: tir.PrimExpr, *, low: float, high: float, dtype: str) -> tir.PrimExpr:
    digits, kind = _DIGITS[dtype], wide(dtype)
    unit = tir.cast(kind, x >> (64 if dtype == "float64" else 32) - digits) * 2.0**-digits
    return unit if (low, high) == (0, 1) else unit * (high - low) + tir.const(low, kind)


def _uniform(x: np.ndarray, *, low: float, high: float, dtype: str) -> np.ndarray:
    digits, kind = _DIGITS[dtype], numpy_dtype(wide(dtype)).type
    unit = (x >> x.dtype.type(8 * x.itemsize - digits)).astype(kind) * kind(2.0**-digits)
    return unit * kind(high - low) + kind(low)


_draw(
    "random.uniform",
    "low=0.0, high=1.0, dtype='float32'",
    check=lambda *, dtype, **numbers: _check_floats("random.uniform", dtype, **numbers),
    dtype=lambda *, dtype, **_: dtype,
    word=_float_word,
    scalar=_uniform_scalar,
    numpy=_uniform,
    doc="Numbers from low to high, all equally likely: low + u·(high - low), with u a multiple of 2⁻ⁿ in [0, 1), for\n"
    "the n digits of the dtype (24 of float32). The sum is rounded, so that high itself can come out.",
    samples=[
        sample(A_STATE, shape=(3, 17)),
        sample(A_STATE, shape=(129,), low=-2.0, high=3.0),
        *(sample(A_STATE, shape=(70,), dtype=d) for d in ("float64", "float16", "bfloat16")),
    ],
)


def _normal_scalar(x: tir.PrimExpr, *, mean: float, std: float, dtype: str) -> tir.PrimExpr:
    kind = wide(dtype)
    high, low = (tir.cast(kind, tir.cast("uint32", half)) for half in (x >> 32, x))
    radius = tir.call("sqrt", tir.call("log", (high + 1.0) * 2.0**-32) * -2.0)
    return radius * tir.call("cos", low * (2 * math.pi * 2.0**-32)) * std + tir.const(mean, kind)


def _normal(x: np.ndarray, *, mean: float, std: float, dtype: str) -> np.ndarray:
    kind = numpy_dtype(wide(dtype)).type
    high, low = (half.astype(np.uint32).astype(kind) for half in (x >> np.uint64(32), x & np.uint64(2**32 - 1)))
    radius = np.sqrt(np.log((high + kind(1)) * kind(2.0**-32)) * kind(-2))
    return radius * np.cos(low * kind(2 * math.pi * 2.0**-32)) * kind(std) + kind(mean)


_draw(
    "random.normal",
    "mean=0.0, std=1.0, dtype='float32'",
    check=lambda *, dtype, **numbers: _check_floats("random.normal", dtype, **numbers),
    dtype=lambda *, dtype, **_: dtype,
    word=lambda **_: "uint64",
    scalar=_normal_scalar,
    numpy=_normal,
    doc="Numbers of the normal distribution, mean + std·√(-2 ln u)·cos 2πv with u in (0, 1] and v in [0, 1), both of\n"
    "32 bits. Box & Muller, A Note on the Generation of Random Normal Deviates, 1958.",
    samples=[
        sample(A_STATE, shape=(3, 17)),
        sample(A_STATE, shape=(129,), mean=-2.0, std=3.0),
        *(sample(A_STATE, shape=(70,), dtype=d) for d in ("float64", "float16", "bfloat16")),
    ],
)


def limit(p: float) -> int:
    """How many of the 2³² integers are below the probability."""
    return round(p * 2**32)


_draw(
    "random.bernoulli",
    "p=0.5",
    check=lambda *, p: expect_probability("random.bernoulli", "p", p),
    dtype=lambda *, p: "bool",
    word=lambda *, p: "uint32",
    scalar=lambda x, *, p: x < tir.const(limit(p), "uint32") if limit(p) < 2**32 else tir.const(True, "bool"),
    numpy=lambda x, *, p: x.astype(np.uint64) < np.uint64(limit(p)),
    doc="Truth values, each true with the probability p (to 32 bits).",
    samples=[sample(A_STATE, shape=(3, 17)), *(sample(A_STATE, shape=(129,), p=p) for p in (0.0, 0.9, 1.0))],
)


def _check_randint(*, low: Any, high: Any, dtype: Any) -> None:
    name = "random.randint"
    _expect(name, dtype, INTEGERS, "an integer type")
    limits = np.iinfo(dtype)
    for argument, value in ("low", low), ("high", high):
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{name}: {argument} must be an int, got {value!r}")
    if not limits.min <= low < high <= int(limits.max) + 1:
        raise UserError(
            f"{name}: low must be below high, and the numbers between them in {dtype}: got {low} and {high}"
        )


def _randint_word(*, low: int, high: int, dtype: str) -> str:
    return "uint32" if high - low <= 2**32 else "uint64"


def _randint_scalar(x: tir.PrimExpr, *, low: int, high: int, dtype: str) -> tir.PrimExpr:
    span = high - low
    if span <= 2**32:
        x = (tir.cast("uint64", x) * tir.const(span, "uint64")) >> 32
    elif span < 2**64:
        x = x % tir.const(span, "uint64")
    return tir.cast(dtype, x) + tir.const(low, dtype)


def _randint(x: np.ndarray, *, low: int, high: int, dtype: str) -> np.ndarray:
    span, kind = high - low, np.dtype(dtype).type
    if span <= 2**32:
        x = (x.astype(np.uint64) * np.uint64(span)) >> np.uint64(32)
    elif span < 2**64:
        x = x % np.uint64(span)
    return x.astype(dtype) + kind(low)


_draw(
    "random.randint",
    "low, high, dtype='int64'",
    check=_check_randint,
    dtype=lambda *, dtype, **_: dtype,
    word=_randint_word,
    scalar=_randint_scalar,
    numpy=_randint,
    doc="Integers from low to high - 1, equally likely but for 2⁻³² of high - low: ⌊x·(high - low) / 2³²⌋ + low of\n"
    "random integers x. Beyond 2³² numbers they are x mod (high - low), with x of 64 bits.",
    samples=[
        sample(A_STATE, shape=(3, 17), low=-5, high=9),
        sample(A_STATE, shape=(129,), low=0, high=2, dtype="uint8"),
        sample(A_STATE, shape=(70,), low=-(2**63), high=2**63),
        sample(A_STATE, shape=(70,), low=-(2**40), high=2**41),
        sample(A_STATE, shape=(70,), low=0, high=2**32, dtype="uint32"),
    ],
)

# -- orders, and places drawn by their weights


def _check_permutation(state: TensorStructInfo | None, n: Any, dtype: Any) -> TensorStructInfo:
    check_state("random.permutation", state)
    _expect("random.permutation", dtype, ("int32", "int64"), "one of")
    if isinstance(n, int) and (isinstance(n, bool) or n < 0):
        raise UserError(f"random.permutation: n cannot be negative, got {n!r}")
    return TensorStructInfo(sizes(n), dtype)


def _shuffle_infer(words: TensorStructInfo, *, dtype: str) -> TensorStructInfo:
    shape = known_shape("random.shuffle", words, "words")
    if len(shape) != 1 or words.dtype != "uint64":
        raise ShapeError(f"random.shuffle: words must be a vector of uint64, got {format_info(words)}")
    _expect("random.shuffle", dtype, ("int32", "int64"), "one of")
    return TensorStructInfo(shape, dtype)


def _shuffle_kernel(inputs: Sequence[tir.Buffer], outputs: Sequence[tir.Buffer], *, dtype: str) -> tir.Stmt:
    (words,), (out,) = inputs, outputs

    def step(i: tir.PrimExpr) -> tir.Stmt:
        unit = tir.cast("float64", tir.cast("int64", words[i] >> 11)) * 2.0**-53
        j = tir.Var("j")
        place = tir.minimum(tir.cast("int64", unit * tir.cast("float64", i + 1)), i)
        return tir.Let(j, place, tir.seq(tir.store(out, (i,), out[j]), tir.store(out, (j,), tir.cast(dtype, i))))

    return tir.loop("i", words.shape[0], step)


def _shuffle(words: np.ndarray, *, dtype: str) -> np.ndarray:
    counts = np.arange(1, len(words) + 1, dtype=np.float64)
    result = np.arange(len(words), dtype=dtype)
    for i, j in enumerate(((words >> np.uint64(11)).astype(np.float64) * 2.0**-53 * counts).astype(np.int64)):
        result[i], result[j] = result[j], i
    return result


define(
    "random.shuffle",
    "words | dtype='int64'",
    infer=_shuffle_infer,
    kernel=_shuffle_kernel,
    numpy=_shuffle,
    gradient=zero_gradient,
    family="random",
    doc="The numbers from 0 to n - 1 in an order that n random integers of 64 bits decide: each number i takes the\n"
    "place j = ⌊u·(i + 1)⌋ of those so far, for u in [0, 1), and what was there goes to place i. Durstenfeld,\n"
    "Algorithm 235: Random permutation, 1964.",
    samples=[sample(Ints((9,), 0, 2**63, "uint64")), sample(Ints((200,), 0, 2**63, "uint64"), dtype="int32")],
)

specialize(
    composite(
        "random.permutation",
        "state? | n, dtype='int64'",
        te=None,
        infer=lambda state=None, *, n, dtype: _check_permutation(state, n, dtype),
        decompose=lambda state=None, *, n, dtype: ops.random.shuffle(_words(state, n), dtype),
        numpy=lambda state=None, *, n, dtype: _shuffle(bits_array(_given(state), (n,), "uint64"), dtype=dtype),
        gradient=zero_gradient,
        family="random",
        doc="The numbers from 0 to n - 1 in a random order, as random.shuffle finds it. PyTorch's randperm.",
        samples=[sample(A_STATE, n=9), sample(A_STATE, n=200, dtype="int32"), sample(A_STATE, n=0)],
    ),
    Random,
)


def _given(state: Any) -> Any:
    if state is None:
        raise no_state("random.permutation")
    return state


def _words(state: Any, n: Any) -> Any:
    return ops.random.bits(_given(state), (n,), "uint64")


def _multinomial_expect(
    prob: TensorStructInfo, uniform_sample: TensorStructInfo, sample_indices: TensorStructInfo, *, dtype: str
) -> None:
    name = "multinomial_from_uniform"
    shape, own = known_shape(name, prob, "prob"), known_shape(name, uniform_sample, "uniform_sample")
    expect_dtype(name, prob, "float", "prob")
    expect_same_dtype(name, prob, uniform_sample)
    expect_dtype(name, sample_indices, "integer", "sample_indices")
    _expect(name, dtype, INTEGERS, "an integer type")
    if len(shape) != 2 or shape[1] == 0:
        raise ShapeError(f"{name}: prob must have the shape (rows, numbers), got {format_shape(shape)}")
    indices = known_shape(name, sample_indices, "sample_indices")
    if len(own) != 2 or not same_shape(own, (own[0], 1)) or not same_shape(indices, own):
        listed = f"{format_shape(own)} and {format_shape(indices)}"
        raise ShapeError(f"{name}: uniform_sample and sample_indices must have one shape (n, 1), got {listed}")


def _multinomial(prob: Any, uniform_sample: Any, sample_indices: Any, *, dtype: str) -> Any:
    rows = ops.reshape(sample_indices, (sample_indices.shape[0],))
    sums = ops.take(ops.cumsum(widened(prob), 1), rows, 0)
    below = ops.less_equal(sums, widened(uniform_sample))
    last = ops.full((), prob.shape[1] - 1, "int64")
    return ops.astype(ops.minimum(ops.sum(ops.astype(below, "int64"), 1, True), last), dtype)


def _multinomial_array(
    prob: np.ndarray, uniform_sample: np.ndarray, sample_indices: np.ndarray, *, dtype: str
) -> np.ndarray:
    rows = checked_rows(sample_indices[:, 0], len(prob), "raise")
    sums = np.cumsum(prob, 1, dtype=wide(prob.dtype.name))[rows]
    found = [np.searchsorted(s, u, "right") for s, u in zip(sums, uniform_sample[:, 0], strict=True)]
    return np.minimum(found, prob.shape[1] - 1).reshape(-1, 1).astype(dtype)


composite(
    "multinomial_from_uniform",
    "prob, uniform_sample, sample_indices | dtype='int64'",
    te=None,
    expect=_multinomial_expect,
    decompose=_multinomial,
    numpy=_multinomial_array,
    gradient=zero_gradient,
    family="random",
    doc="For each number u of uniform_sample, (n, 1), the first place at which the sum of the probabilities up to it\n"
    "is more than u, in the row of prob, (rows, numbers), that sample_indices, (n, 1), names; the last place where\n"
    "there is none. With numbers from [0, 1) each place is drawn with its probability.",
    samples=[
        sample(Floats((2, 4), 0.1, 0.25), Floats((5, 1), 0.0, 1.0), Ints((5, 1), 0, 2)),
        sample(Floats((3, 70), 0.0, 0.03), Floats((4, 1), 0.0, 1.0), Ints((4, 1), -3, 3, "int32"), dtype="int32"),
        sample([[0.25, 0.5, 0.25]], [[0.0], [0.25], [0.75], [1.0]], Ints((4, 1), 0, 1)),
        sample(Floats((2, 1), 1.0, 1.1), Floats((0, 1), 0.0, 1.0), Ints((0, 1), 0, 2)),
    ],
)

# -- dropout


def _dropout_check(
    name: str, data: TensorStructInfo, state: TensorStructInfo | None, argument: str, p: Any
) -> TensorStructInfo:
    known_shape(name, data)
    expect_dtype(name, data, "float")
    check_state(name, state)
    expect_probability(name, argument, p)
    return data


def _dropped(name: str, data: Any, state: Any, p: float) -> tuple[Any, Any]:
    """The result and the mask (bool). The mask comes first: what it is drawn with is a kernel of its own where the
    multiplication can be joined with what makes ``data``."""
    if state is None:
        raise no_state(name)
    keep = ops.random.bernoulli(state, data.shape, 1.0 - p)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    value = ops.multiply(data if data.dtype == wide(data.dtype) else ops.astype(data, wide(data.dtype)), scale)
    return masked(keep, value if value.dtype == data.dtype else ops.astype(value, data.dtype)), keep


def _dropout_decomposed(data: Any, state: Any = None, *, training: bool, rate: float) -> Any:
    if not training:
        return Tuple((data, ops.ones_like(data)))
    value, keep = _dropped("nn.dropout", data, state, rate)
    return Tuple((value, ops.astype(keep, data.dtype)))


def _dropped_arrays(name: str, data: np.ndarray, state: np.ndarray | None, p: float) -> tuple[np.ndarray, np.ndarray]:
    if state is None:
        raise no_state(name)
    keep = bits_array(state, data.shape).astype(np.uint64) < np.uint64(limit(1.0 - p))
    scaled = in_wide(lambda x: x * x.dtype.type(1.0 / (1.0 - p) if p < 1 else 0.0))(data)
    return np.where(keep, scaled, data.dtype.type(0)), keep.astype(data.dtype)


def _dropout(data: np.ndarray, state: Any = None, *, rate: float, training: bool) -> tuple[np.ndarray, np.ndarray]:
    return _dropped_arrays("nn.dropout", data, state, rate) if training else (data, np.ones_like(data))


def _dropout_adjoint(name: str, dy: Any, state: Any, p: float, training: bool) -> tuple[Any, ...]:
    """The same site drops the same elements of the adjoint."""
    if state is None:
        if training:
            raise no_state(name)
        return (dy,)
    return ops.dropout(dy, state, p, training), None


specialize(
    composite(
        "nn.dropout",
        "data, state? | rate=0.5, training=True",
        infer=lambda data, state=None, *, rate, training: TupleStructInfo(
            (_dropout_check("nn.dropout", data, state, "rate", rate),) * 2
        ),
        decompose=_dropout_decomposed,
        numpy=_dropout,
        gradient=lambda adjoints, y, data, state=None, *, rate, training: _dropout_adjoint(
            "nn.dropout", adjoints[0], state, rate, training
        ),
        precision="same",
        zeros="makes",
        family="random",
        doc="(output, mask): in training, each element is 0 with the probability rate, else data / (1 - rate); the\n"
        "mask is 0 there, and else 1. In inference, (data, ones). The gradient drops the same elements. Srivastava\n"
        "et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 15, 2014.",
        samples=[
            sample((3, 17), A_STATE, rate=0.3),
            sample((129,), A_STATE),
            sample((2, 3, 64), A_STATE, rate=0.9),
            sample((4, 5), A_STATE, rate=1.0),
            sample((4, 5), A_STATE, rate=0.0),
            sample((4, 5), training=False),
            sample((0, 5), A_STATE),
        ],
    ),
    Random,
)

specialize(
    composite(
        "dropout",
        "data, state? | p=0.5, training=True",
        infer=lambda data, state=None, *, p, training: _dropout_check("dropout", data, state, "p", p),
        decompose=lambda data, state=None, *, p, training: _dropped("dropout", data, state, p)[0] if training else data,
        numpy=lambda data, state=None, *, p, training: (
            _dropped_arrays("dropout", data, state, p)[0] if training else data
        ),
        gradient=lambda dy, y, data, state=None, *, p, training: _dropout_adjoint("dropout", dy, state, p, training),
        precision="same",
        zeros="makes",
        family="random",
        doc="nn.dropout(data, p)[0]: PyTorch's dropout.",
        samples=[sample((3, 17), A_STATE, p=0.3), sample((129,), A_STATE), sample((5,), training=False)],
    ),
    Random,
)
