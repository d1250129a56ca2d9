"""What was not taken moves nothing, however steep it is there: (what takes) x (what is steep) x (what is between).

Each program takes some elements of f(x). At the others x is a point where f has an infinite derivative, or none. The
oracle is the same program where these elements hold ordinary numbers instead: it takes the same elements, so all its
derivatives, first and second, are the same, and those of what is not taken are 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import te, tir
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, TupleGetItem, Var, const, op
from pullback.relax.interpreter import evaluate
from pullback.relax.op import register_op
from pullback.relax.training.utils import register_te_gradient
from pullback.relax.transform import Gradient
from pullback.script import from_source

SHAPE = (3, 6)
TAKEN = np.array([[1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 0, 1], [1, 1, 0, 0, 1, 0]], bool)

# f, a point where it has no finite derivative, and an interval of ordinary points
STEEP: dict[str, tuple[Callable[[Any], Any], float, tuple[float, float]]] = {
    "log": (op.log, 0.0, (0.5, 2.0)),
    "log of a negative number": (op.log, -1.0, (0.5, 2.0)),
    "log2": (op.log2, 0.0, (0.5, 2.0)),
    "log10": (op.log10, 0.0, (0.5, 2.0)),
    "log1p": (op.log1p, -1.0, (0.5, 2.0)),
    "sqrt": (op.sqrt, 0.0, (0.5, 2.0)),
    "sqrt of a negative number": (op.sqrt, -1.0, (0.5, 2.0)),
    "rsqrt": (op.rsqrt, 0.0, (0.5, 2.0)),
    "reciprocal": (lambda x: op.divide(const(1.0, x.dtype), x), 0.0, (0.5, 2.0)),
    "quotient": (lambda x: x / (x - 1.0), 1.0, (1.5, 2.0)),
    "power": (lambda x: op.power(x, const(0.3, x.dtype)), 0.0, (0.5, 2.0)),
    "exp": (op.exp, 1000.0, (0.5, 2.0)),
    "exp2": (op.exp2, 2000.0, (0.5, 2.0)),
    "expm1": (op.expm1, 1000.0, (0.5, 2.0)),
    "sinh": (op.sinh, 1000.0, (0.5, 2.0)),
    "cosh": (op.cosh, 1000.0, (0.5, 2.0)),
    "square": (op.square, math.inf, (0.5, 2.0)),
    "product": (lambda x: op.sin(x) * op.exp(x), 1000.0, (0.5, 1.0)),
    "asin": (op.asin, 1.0, (-0.5, 0.5)),
    "acos": (op.acos, -1.0, (-0.5, 0.5)),
    "acosh": (op.acosh, 1.0, (1.5, 2.0)),
    "atanh": (op.atanh, 1.0, (-0.5, 0.5)),
    "atan2": (lambda x: op.atan2(x, x * x), 0.0, (0.5, 2.0)),
    "hypot": (lambda x: op.hypot(x, x * 2.0), 0.0, (0.5, 2.0)),
    "erfinv": (op.erfinv, 1.0, (-0.5, 0.5)),
    "lgamma": (op.lgamma, 0.0, (0.5, 2.0)),
    "digamma": (op.digamma, 0.0, (0.5, 2.0)),
    "logit": (op.logit, 1.0, (0.3, 0.6)),
    "xlogy": (lambda x: op.xlogy(x, x - 1.0), 1.0, (1.5, 2.0)),
    "tan of infinity": (op.tan, math.inf, (0.5, 1.0)),
    "sin of infinity": (op.sin, math.inf, (0.5, 1.0)),
    "softplus of NaN": (op.nn.softplus, math.nan, (0.5, 1.0)),
    "gelu of infinity": (op.nn.gelu, math.inf, (0.5, 1.0)),
    "silu of minus infinity": (op.nn.silu, -math.inf, (0.5, 1.0)),
    "norm": (lambda x: op.log(op.norm(x, axis=())), 0.0, (0.5, 2.0)),
    "log of sqrt": (lambda x: op.log(op.sqrt(x)), 0.0, (0.5, 2.0)),
    "sqrt of log": (lambda x: op.sqrt(op.log(x)), 0.0, (1.5, 2.0)),
    "x log x": (lambda x: x * op.log(x), 0.0, (0.5, 2.0)),
    "softmax by hand": (lambda x: op.exp(x) / op.add(op.exp(x), const(1.0, x.dtype)), 1000.0, (0.5, 2.0)),
    "gaussian by hand": (lambda x: op.exp(op.divide(const(-1.0, x.dtype), x * x)), 0.0, (0.5, 2.0)),
    "half precision": (lambda x: op.astype(op.log(op.astype(x, "float16")), x.dtype), 0.0, (0.5, 2.0)),
}

_COLUMNS = [0, 2, 3]


def _of_columns(columns: Sequence[int]) -> np.ndarray:
    taken = np.zeros(SHAPE, bool)
    taken[:, list(columns)] = True
    return taken


def _split(y: Any) -> Any:
    parts = op.split(y, (2, 4), axis=1)
    return op.add(TupleGetItem(parts, 0), op.square(TupleGetItem(parts, 2)))


_ROW = np.arange(6)
_MASK = np.array(TAKEN, np.float64)

# What takes elements of y, and which
TAKES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "where": (lambda y: op.where(const(TAKEN), y, const(0.0, y.dtype)), TAKEN),
    "where a row is valid": (
        lambda y: op.where(const(np.array([[True], [False], [True]])), y, const(0.0, y.dtype)),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "where, of two": (lambda y: op.where(const(TAKEN), y, op.ones_like(y)), TAKEN),
    "slice": (lambda y: op.strided_slice(y, [1], [1], [6], [2]), _of_columns([1, 3, 5])),
    "split": (_split, _of_columns([0, 1, 4, 5])),
    "take": (lambda y: op.take(y, const(np.array([2, 0, 2, 3])), 1), _of_columns(_COLUMNS)),
    "gather_elements": (
        lambda y: op.gather_elements(y, const(np.array([[0, 2, 3]] * 3)), 1),
        _of_columns(_COLUMNS),
    ),
    "gather_nd": (
        lambda y: op.gather_nd(y, const(np.argwhere(TAKEN))),
        TAKEN,
    ),
    "index_tensor": (lambda y: op.index_tensor(y, [const(n) for n in np.nonzero(TAKEN)]), TAKEN),
    "tril": (lambda y: op.tril(y, 1), np.tril(np.ones(SHAPE, bool), 1)),
    "triu": (lambda y: op.triu(y, 1), np.triu(np.ones(SHAPE, bool), 1)),
    "diagonal": (lambda y: op.diagonal(y, 1), np.eye(*SHAPE, k=1, dtype=bool)),
    "slice_scatter": (
        lambda y: op.slice_scatter(y, op.ones((3, 2), y.dtype), axis=1, start=1, end=3),
        _of_columns([0, 3, 4, 5]),
    ),
    "scatter_elements": (
        lambda y: op.scatter_elements(y, const(np.array([[1, 4]] * 3)), op.ones((3, 2), y.dtype), 1),
        _of_columns([0, 2, 3, 5]),
    ),
    "index_put": (
        lambda y: op.index_put(y, [const(n) for n in np.nonzero(~TAKEN)], op.ones((), y.dtype)),
        TAKEN,
    ),
    "segment_reduce": (
        lambda y: op.segment_reduce(y, const(np.array([0, 1, 0, 1, -1, 5])), 2, "add", 1),
        _of_columns([0, 1, 2, 3]),
    ),
    "nll_loss": (
        lambda y: op.nn.nll_loss(y, const(np.array([1, -100, 4])), ignore_index=-100),
        np.array([[0, 1, 0, 0, 0, 0], [0] * 6, [0, 0, 0, 0, 1, 0]], bool),
    ),
    "cross_entropy": (
        lambda y: op.nn.cross_entropy(y, const(np.array([1, -100, 4])), ignore_index=-100),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "smoothed cross_entropy": (
        lambda y: op.nn.cross_entropy(y, const(np.array([1, -100, 4])), label_smoothing=0.1, reduction="sum"),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "softmax, then where": (
        lambda y: op.where(const(np.array([[True], [False], [True]])), op.nn.softmax(y), const(0.0, y.dtype)),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "softmax with a mask": (
        lambda y: op.square(op.nn.softmax(op.where(const(TAKEN), y, const(-math.inf, y.dtype)))),
        TAKEN,
    ),
    "logsumexp with a mask": (
        lambda y: op.logsumexp(op.where(const(TAKEN), y, const(-math.inf, y.dtype)), 1),
        TAKEN,
    ),
    "flip, roll, slice": (
        lambda y: op.strided_slice(op.roll(op.flip(y, 1), 1, 1), [1], [1], [4]),
        _of_columns([5, 4, 3]),
    ),
}

_SHIFT = np.where(TAKEN, 3.0, -3.0)


def _shifted(y: Any) -> Any:
    """Above 1 what is taken, below -1 what is not: -inf if it is that."""
    return y + const(_SHIFT, y.dtype)


def _image(y: Any) -> Any:
    return op.reshape(_shifted(y), (1, 1, *SHAPE))


# What compares y, which is finite or -inf, with something: by its values TAKEN is taken, or some of it.
COMPARES: dict[str, Callable[[Any], Any]] = {
    "relu": lambda y: op.nn.relu(_shifted(y)),
    "relu6": lambda y: op.nn.relu6(_shifted(y)),
    "hardtanh": lambda y: op.nn.hardtanh(_shifted(y), 1.0, 9.0),
    "hardsigmoid": lambda y: op.nn.hardsigmoid(_shifted(y) * 3.0 - 9.0),
    "threshold": lambda y: op.nn.threshold(_shifted(y), 0.5, -1.0),
    "softshrink": lambda y: op.nn.softshrink(op.maximum(_shifted(y), 0.0)),
    "clip": lambda y: op.clip(_shifted(y), 1.0, 9.0),
    "elu": lambda y: op.nn.elu(op.maximum(_shifted(y), 0.0)),
    "maximum": lambda y: op.maximum(_shifted(y), 0.0),
    "minimum": lambda y: op.minimum(-_shifted(y), 0.0),
    "max": lambda y: op.max(_shifted(y), 1),
    "min": lambda y: op.min(-_shifted(y), 0),
    "amax by norm": lambda y: op.norm(op.nn.relu(_shifted(y)), math.inf, 1),
    "max_pool": lambda y: op.nn.max_pool2d(_image(y), (1, 3), strides=(1, 3)),
    "overlapping max_pool": lambda y: op.nn.max_pool2d(_image(y), (1, 3)),
    "global_max_pool": lambda y: op.nn.global_max_pool2d(_image(y)),
    "topk": lambda y: op.topk(_shifted(y), 3, 1, "values"),
    "sort": lambda y: op.strided_slice(op.sort(_shifted(y), 1), [1], [3], [6]),
    "segment max": lambda y: op.segment_reduce(_shifted(y), const(np.array([0, 0, 0, 1, 1, 1])), 2, "max", 1),
    "scatter max": lambda y: op.scatter_elements(
        op.zeros(SHAPE, y.dtype), const(np.tile(np.arange(6), (3, 1))), _shifted(y), 1, "max"
    ),
    "nan_to_num": lambda y: op.nn.relu(op.nan_to_num(_shifted(y))),
    "where of itself": lambda y: op.where(op.greater(_shifted(y), const(0.0, y.dtype)), y, const(0.0, y.dtype)),
}

# What multiplies y, which is finite, by 0. What adds up products has no second derivative where the first is infinite.
MULTIPLIES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "a constant mask": (lambda y: y * const(_MASK, y.dtype), TAKEN),
    "a comparison": (lambda y: y * op.astype(op.greater(const(_MASK), const(0.5, "float64")), y.dtype), TAKEN),
    "a comparison with itself": (
        lambda y: y * op.astype(op.greater(_shifted(y * 0.0), const(0.0, y.dtype)), y.dtype),
        TAKEN,
    ),
    "a masked row of a product": (
        lambda y: op.where(
            const(np.array([[True], [False], [True]])), op.matmul(y, op.ones((6, 2), y.dtype)), const(0.0, y.dtype)
        ),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "ewise_fma": (lambda y: op.ewise_fma(y, const(_MASK, y.dtype), const(1.0, y.dtype)), TAKEN),
}
ADDS_UP: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "matmul": (
        lambda y: op.matmul(y, const(np.diag(np.array([1.0, 0, 2, 0, 3, 1])), y.dtype)),
        _of_columns([0, 2, 4, 5]),
    ),
    "linear": (
        lambda y: op.linear(y, const(np.diag(np.array([1.0, 0, 2, 0, 3, 1])), y.dtype)),
        _of_columns([0, 2, 4, 5]),
    ),
    "vecdot": (lambda y: op.vecdot(y, const(_MASK, y.dtype), 1), TAKEN),
    "einsum": (lambda y: op.einsum([y, const(_MASK, y.dtype)], "ij,ij->"), TAKEN),
    "convolution": (
        lambda y: op.nn.conv1d(op.expand_dims(y, 0), const(np.array([[[1.0]], [[0.0]], [[2.0]]]), y.dtype), groups=3),
        np.broadcast_to([[True], [False], [True]], SHAPE),
    ),
    "a mask of its rows before a product": (
        lambda y: op.matmul(y * const(_MASK, y.dtype), const(np.random.default_rng(3).random((6, 4)), y.dtype)),
        TAKEN,
    ),
}

# What stands between f and what takes: elementwise, or with moved or repeated elements
BETWEEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda y: y,
    "a chain": lambda y: op.tanh(-y * 0.5 + 1.0),
    "a view": lambda y: op.permute_dims(op.reshape(op.permute_dims(y), (6, 3))),
    "a cast": lambda y: op.astype(op.astype(y, "float32"), y.dtype),
    "a concatenation": lambda y: op.strided_slice(op.concat([op.ones_like(y), y, y], 1), [1], [6], [12]),
    "a broadcast": lambda y: op.take(op.broadcast_to(op.expand_dims(y, 0), (2, *SHAPE)), const(np.array(1)), 0),
    "a sum": lambda y: op.sum(op.stack([y, op.zeros_like(y)], 0), 0),
    "a mean": lambda y: op.mean(op.expand_dims(y, 2), 2),
    "a pad": lambda y: op.strided_slice(op.nn.pad(y, ((1, 0), (0, 2))), [0, 1], [1, 0], [4, 6]),
}


def points(name: str, taken: np.ndarray, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """x with what is not taken at the steep point, and at ordinary ones."""
    _, steep, (low, high) = STEEP[name]
    ordinary = np.random.default_rng(5).uniform(low, high, SHAPE)
    return np.where(taken, ordinary, steep).astype(dtype), ordinary.astype(dtype)


def module_of(programs: Sequence[Callable[[Any], Any]], dtype: str = "float64", shape: Any = SHAPE) -> IRModule:
    """``main`` = the sum of cubes of the programs' results, one parameter each, with ``main_adjoint``; ``second`` = a
    sum of weighted adjoints, with ``second_adjoint``."""
    builder = BlockBuilder()
    params = [Var(f"x{k}", TensorStructInfo(shape, dtype)) for k in range(len(programs))]
    with builder.function("main", params):
        with builder.dataflow():
            terms = [builder.emit(op.sum(_curved(f(x)))) for f, x in zip(programs, params, strict=True)]
            total = terms[0]
            for term in terms[1:]:
                total = builder.emit(total + term)
            total = builder.emit_output(total)
        builder.emit_func_output(total)
    module = Gradient("main")(builder.get())
    builder = BlockBuilder(module)
    params = list(module["main_adjoint"].params)
    with builder.function("second", params):
        found = builder.emit(module.get_global_var("main_adjoint")(*params))[1]
        total = builder.emit(op.sum(found[0] * _weights(dtype, shape)))
        for k in range(1, len(params)):
            total = builder.emit(total + op.sum(found[k] * _weights(dtype, shape)))
        builder.emit_func_output(total)
    return Gradient("second")(builder.get())


def _curved(y: Any) -> Any:
    return y * y * 0.5 + y


def _weights(dtype: str, shape: Any) -> Any:
    return const(np.random.default_rng(7).standard_normal(shape), dtype)


def adjoints(module: IRModule, name: str, values: Sequence[np.ndarray], target: str) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        if target == "debug":
            return [np.asarray(a) for a in evaluate(module, f"{name}_adjoint", list(values))[1]]
        return [a.numpy() for a in pullback.compile(module, target).function(f"{name}_adjoint")(*values)[1]]


def check(
    programs: dict[str, tuple[Callable[[Any], Any], str, np.ndarray]],
    targets: Sequence[str] = ("debug",),
    functions: Sequence[str] = ("main", "second"),
) -> None:
    """Programs by name: f and what takes, the key of the steep point, what is taken."""
    pairs = [points(name, taken) for _, name, taken in programs.values()]
    module = module_of([f for f, *_ in programs.values()])
    failures = []
    for target, function in itertools.product(targets, functions):
        found = adjoints(module, function, [steep for steep, _ in pairs], target)
        wanted = adjoints(module, function, [ordinary for _, ordinary in pairs], "debug")
        for label, (_, _, taken), a, b in zip(programs, programs.values(), found, wanted, strict=True):
            assert np.isfinite(b).all() and np.any(b), (label, function)
            if not np.allclose(a, np.where(taken, b, 0.0), rtol=1e-5, atol=1e-6):
                failures.append((target, function, label, a))
    assert not failures, failures


def composed(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for f in functions:
            x = f(x)
        return x

    return run


@pytest.mark.parametrize("takes", TAKES)
def test_what_takes_beside_what_is_steep(takes: str) -> None:
    take, taken = TAKES[takes]
    check({name: (composed(f, take), name, taken) for name, (f, *_) in STEEP.items()})


@pytest.mark.parametrize("between", BETWEEN)
def test_what_is_between(between: str) -> None:
    step = BETWEEN[between]
    check(
        {
            f"{name}, {takes}": (composed(STEEP[name][0], step, TAKES[takes][0]), name, TAKES[takes][1])
            for name in ("log", "sqrt", "reciprocal", "exp")
            for takes in ("where", "slice", "take", "nll_loss", "softmax with a mask")
        }
    )


@pytest.mark.parametrize("compares", COMPARES)
def test_what_loses_a_comparison(compares: str) -> None:
    compare = COMPARES[compares]
    names = ("log", "log2", "log1p", "sqrt", "log of sqrt", "power", "acosh")
    check({name: (composed(STEEP[name][0], compare), name, TAKEN) for name in names})


_FINITE = ("sqrt", "asin", "acos", "acosh", "power", "hypot", "atan2")


@pytest.mark.parametrize("multiplies", MULTIPLIES)
def test_products_with_0(multiplies: str) -> None:
    multiply, taken = MULTIPLIES[multiplies]
    check({name: (composed(STEEP[name][0], multiply), name, taken) for name in _FINITE})


@pytest.mark.parametrize("adds_up", ADDS_UP)
def test_sums_of_products_with_0(adds_up: str) -> None:
    add_up, taken = ADDS_UP[adds_up]
    check({name: (composed(STEEP[name][0], add_up), name, taken) for name in _FINITE}, functions=["main"])


def _diagonal(names: Sequence[str]) -> dict[str, tuple[Callable[[Any], Any], str, np.ndarray]]:
    """Each of the steep ones beside one of what takes, and something between."""
    takes, between = itertools.cycle(TAKES.items()), itertools.cycle(BETWEEN.values())
    return {
        f"{name}, {label}": (composed(STEEP[name][0], next(between), take), name, taken)
        for name, (label, (take, taken)) in zip(names, takes, strict=False)
    }


@pytest.mark.parametrize("part", range(3))
def test_native(part: int) -> None:
    check(_diagonal(list(STEEP)[part::3]), ["llvm"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_other_precisions(dtype: str) -> None:
    names = ["log", "sqrt", "reciprocal", "exp", "rsqrt", "log of sqrt", "square", "gelu of infinity"]
    programs = {n: composed(STEEP[n][0], TAKES["where"][0]) for n in names}
    module = module_of(list(programs.values()), dtype)
    for target in ("llvm", "debug"):
        pairs = [points(n, TAKEN, dtype) for n in names]
        for function in ("main", "second"):
            found = adjoints(module, function, [steep for steep, _ in pairs], target)
            wanted = adjoints(module, function, [ordinary for _, ordinary in pairs], target)
            for name, a, b in zip(names, found, wanted, strict=True):
                expected = np.where(TAKEN, b.astype(np.float64), 0.0)
                np.testing.assert_array_equal(a.astype(np.float64), expected, err_msg=f"{target} {function} {name}")


# -- one by one


def first(program: Callable[..., Any], *values: np.ndarray, target: str = "debug") -> list[np.ndarray]:
    """The adjoints of a sum of the program's result."""
    builder = BlockBuilder()
    params = [Var(f"x{k}", TensorStructInfo(v.shape, v.dtype.name)) for k, v in enumerate(values)]
    floats = [p for p in params if p.dtype.startswith("float")]
    with builder.function("main", params):
        with builder.dataflow():
            total = builder.emit_output(op.sum(program(*params)))
        builder.emit_func_output(total)
    return adjoints(Gradient("main", floats)(builder.get()), "main", values, target)


TARGETS = pytest.mark.parametrize("target", ["llvm", "debug"])


@TARGETS
def test_where_the_logarithm_is_not_taken(target: str) -> None:
    def f(x: Any) -> Any:
        return op.where(op.greater(x, const(0.0, "float32")), op.log(x), x)

    (dx,) = first(f, np.array([0, 2, -1], np.float32), target=target)
    np.testing.assert_array_equal(dx, np.array([1, 0.5, 1], np.float32))


@TARGETS
def test_exp_that_overflows_is_not_taken(target: str) -> None:
    def f(x: Any) -> Any:
        return op.where(op.less(x, const(80.0, "float32")), op.exp(x), const(0.0, "float32"))

    (dx,) = first(f, np.array([1000, 0, np.inf, np.nan], np.float32), target=target)
    np.testing.assert_array_equal(dx, np.array([0, 1, 0, 0], np.float32))


@TARGETS
def test_a_mask_that_is_a_parameter(target: str) -> None:
    dx, dm = first(lambda x, m: m * op.sqrt(x), np.array([0.0, 4.0]), np.array([0.0, 1.0]), target=target)
    np.testing.assert_array_equal(dx, [0, 0.25])
    np.testing.assert_array_equal(dm, [0, 2])


@TARGETS
def test_what_is_taken_is_as_steep_as_it_is(target: str) -> None:
    taken = const(np.array([True, True, False]))
    (dx,) = first(
        lambda x: op.where(taken, op.sqrt(x), const(0.0, "float64")), np.array([0.0, 4.0, 0.0]), target=target
    )
    np.testing.assert_array_equal(dx, [np.inf, 0.25, 0])


@TARGETS
def test_what_is_no_structural_zero_stays_no_number(target: str) -> None:
    """exp(log(x)) is x: its derivative at 0 is 1, which 0·∞ does not tell."""
    for f in (lambda x: op.exp(op.log(x)), lambda x: op.square(op.sqrt(x)), lambda x: x / op.sqrt(x)):
        (dx,) = first(f, np.array([0.0, 4.0]), target=target)
        assert np.isnan(dx[0]) and np.isfinite(dx[1])


def test_ordinary_gradients_are_the_textbook_s() -> None:
    """No zero is structural: neither behind ones, nor behind an activation that lets everything through."""
    module = from_source("""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32"), w: R.Tensor((3, 4), "float32"), c: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.matmul(R.sigmoid(x), w)
            b = R.nn.gelu(R.add(a, c))
            d = R.sum(R.log(R.exp(x) + R.sqrt(x)))
            z = R.sum(R.multiply(b, R.tanh(b))) + d
            R.output(z)
        return z
""")
    text = Gradient("main")(module)["main_adjoint"].script()
    assert "no_nan" not in text and "xdivy" not in text


@TARGETS
def test_an_adjoint_that_is_0_by_accident_has_a_derivative(target: str) -> None:
    """d²/dx du of u·log(x) is 1/x where u is 0, too."""
    taken = const(np.array([True, True, False, True]))

    def program(both: Any) -> Any:
        x, u = (op.squeeze(op.strided_slice(both, [0], [k], [k + 1]), 0) for k in range(2))
        return op.where(taken, u * op.log(x) + u * u * op.exp(x) * 0.5, const(0.0, "float64"))

    values = np.array([[2.0, 0.5, 0.0, 4.0], [0.0, 3.0, 0.0, 0.0]])
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((2, 4), "float64"))
    with builder.function("main", [x]):
        builder.emit_func_output(op.sum(program(x)))
    module = Gradient("main")(builder.get())
    builder = BlockBuilder(module)
    x = Var("x", TensorStructInfo((2, 4), "float64"))
    weights = np.array([[1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 0.125, 2.0]])
    with builder.function("second", [x]):
        found = builder.emit(module.get_global_var("main_adjoint")(x))[1]
        builder.emit_func_output(op.sum(found[0] * const(weights)))
    (found,) = adjoints(Gradient("second")(builder.get()), "second", [values], target)
    (x, u), (a, b), is_taken = values, weights, np.array([1, 1, 0, 1], bool)
    with np.errstate(all="ignore"):
        by_x = a * (-u / x**2 + u * u * np.exp(x) * 0.5) + b * (1 / x + u * np.exp(x))
        by_u = a * (1 / x + u * np.exp(x)) + b * np.exp(x)
    np.testing.assert_allclose(found, np.where(is_taken, [by_x, by_u], 0.0), rtol=1e-12)


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_two_ops(dtype: str, target: str) -> None:
    """0·∞ and 0·NaN are 0, whichever comes first, and so is 0 / y; all else is as IEEE 754 has it."""
    numbers = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]
    x, y = map(np.array, zip(*itertools.product(numbers, numbers), strict=True))
    builder = BlockBuilder()
    params = [Var(name, TensorStructInfo(x.shape, "float64")) for name in "xy"]
    with builder.function("main", params):
        a, b = (op.astype(p, dtype) for p in params)
        results = [op.astype(f(a, b), "float64") for f in (op.multiply_no_nan, op.xdivy)]
        builder.emit_func_output(Tuple(results))
    with np.errstate(all="ignore"):
        found = [
            r if isinstance(r, np.ndarray) else r.numpy() for r in pullback.compile(builder.get(), target)["main"](x, y)
        ]
        expected = [np.where((x == 0) | (y == 0), 0.0, x * y), np.where(x == 0, 0.0, x / y)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2)


# -- losses, attention, dropout


@TARGETS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bad", [-np.inf, np.inf, np.nan])
def test_cross_entropy_with_rows_that_do_not_count(bad: float, weighted: bool, target: str) -> None:
    """A row that is ignored, and one whose class has weight 0, as if they were not there."""
    labels = np.array([0, -100, 2, 1])
    class_weights = const(np.array([1.0, 0.0 if weighted else 1.0, 2.0]))
    logits = np.random.default_rng(1).standard_normal((4, 3))
    counted = np.array([True, False, True, not weighted])

    def loss(x: Any, rows: np.ndarray) -> Any:
        return op.nn.cross_entropy(x, const(rows), class_weights)

    wrong = np.where(counted[:, None], logits, bad)
    (dx,) = first(lambda x: loss(x, labels), wrong, target=target)
    (few,) = first(lambda x: loss(x, labels[counted]), logits[counted])
    np.testing.assert_allclose(dx[counted], few, rtol=1e-12)
    np.testing.assert_array_equal(dx[~counted], 0.0)


@TARGETS
def test_probabilities_of_0_and_logits_of_minus_infinity(target: str) -> None:
    logits = np.array([[1.0, -np.inf, 0.5], [0.2, 0.1, -np.inf]])
    targets = const(np.array([[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]]))
    (dx,) = first(lambda x: op.nn.cross_entropy(x, targets, reduction="sum"), logits, target=target)
    with np.errstate(all="ignore"):
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(dx, p - targets.data, rtol=1e-12, atol=1e-15)


@TARGETS
def test_labels_that_ctc_does_not_read(target: str) -> None:
    p = np.random.default_rng(2).uniform(0.1, 0.5, (5, 1, 4))
    p[:, :, 3] = 0.0
    numbers = [const(np.array(v)) for v in ([[1, 2]], [5], [2])]
    (dp,) = first(lambda x: op.nn.ctc_loss(op.log(x), *numbers), p, target=target)
    assert np.isfinite(dp).all() and np.all(dp[:, :, 3] == 0) and np.any(dp)


@TARGETS
def test_keys_that_attention_masks(target: str) -> None:
    rng = np.random.default_rng(4)
    q, k = rng.uniform(0.5, 1.0, (1, 3, 2, 2)), rng.uniform(0.5, 1.0, (1, 4, 2, 2))
    k[:, 3] = 0.0
    bias = const(np.array([0.0, 0.0, 0.0, -np.inf]))

    def f(q: Any, k: Any) -> Any:
        return op.square(op.nn.attention(op.sqrt(q), op.sqrt(k), op.sqrt(k), bias))

    dq, dk = first(f, q, k, target=target)
    few_q, few_k = first(lambda q, k: op.square(op.nn.attention(op.sqrt(q), op.sqrt(k), op.sqrt(k))), q, k[:, :3])
    np.testing.assert_allclose(dq, few_q, rtol=1e-9)
    np.testing.assert_allclose(dk[:, :3], few_k, rtol=1e-9)
    np.testing.assert_array_equal(dk[:, 3], 0.0)


@TARGETS
def test_what_dropout_drops(target: str) -> None:
    state = const(np.array([3, 7], np.uint64))
    (dx,) = first(lambda x: op.dropout(op.sqrt(x), state), np.zeros(200), target=target)
    assert not np.isnan(dx).any() and set(dx) == {0.0, np.inf}


# -- ops of the user's, kernels


@TARGETS
def test_own_ops(target: str) -> None:
    names = []

    def own(name: str, function: Any) -> Any:
        names.append(f"relax.own.zeros_{name}")
        return register_op(f"own.zeros_{name}")(function)

    try:
        chosen = own(
            "select", lambda x: te.compute(x.shape, lambda i: tir.select(x[i] > 0, tir.call("log", x[i]), x[i]))
        )

        def shifted(x: Any) -> Any:
            t = te.compute(x.shape, lambda i: tir.call("sqrt", x[i]))
            return te.compute((2,), lambda i: t[i + 1])

        part = own("part", shifted)

        def masked(x: Any, m: Any) -> Any:
            t = te.compute(x.shape, lambda i: tir.call("sqrt", x[i]))
            return te.compute(x.shape, lambda i: t[i] * m[i])

        mask = own("mask", masked)
        largest = own(
            "max", lambda x: te.compute(x.shape, lambda i: tir.maximum(tir.call("log", x[i]), tir.const(0.0, x.dtype)))
        )
        log = own("log", lambda x: te.compute(x.shape, lambda i: tir.call("log", x[i])))
        identity = own("same", lambda x: te.compute(x.shape, lambda i: tir.call("exp", tir.call("log", x[i]))))
        exp = register_op("own.zeros_exp", gradient=lambda dy, y, x: (dy * y,))(
            lambda x: te.compute(x.shape, lambda i: tir.call("exp", x[i]))
        )
        names.append("relax.own.zeros_exp")

        x = np.array([0.0, 4.0, 2.0])
        positive = lambda v, y: op.where(op.greater(v, const(0.0, "float64")), y, v)  # noqa: E731
        np.testing.assert_allclose(first(chosen, x, target=target)[0], [1, 0.25, 0.5])
        np.testing.assert_allclose(first(part, x, target=target)[0], [0, 0.25, 0.5**1.5])
        np.testing.assert_allclose(first(mask, x, np.array([0.0, 1, 2]), target=target)[0], [0, 0.25, 0.5**0.5])
        np.testing.assert_allclose(first(largest, x, target=target)[0], [0, 0.25, 0.5])
        np.testing.assert_allclose(first(lambda v: positive(v, log(v)), x, target=target)[0], [1, 0.25, 0.5])
        np.testing.assert_allclose(first(lambda v: positive(v, identity(v)), x, target=target)[0], [1, 1, 1])
        assert np.isnan(first(identity, x, target=target)[0][0])
        less = lambda v: op.where(op.less(v, const(80.0, "float64")), exp(v), v)  # noqa: E731
        np.testing.assert_allclose(first(less, np.array([1000.0, 0.0]), target=target)[0], [1, 1])
        twice = module_of([lambda v: positive(v, log(v))], shape=(3,))
        found, wanted = (
            adjoints(module_of([f], shape=(3,)) if f else twice, "second", [x], target)[0]
            for f in (None, lambda v: positive(v, op.log(v)))
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    finally:
        for name in names:
            Op.registry.pop(name, None)


KERNELS = {  # of x (3,) = (0, 4, 2) and the mask m (3,) = (0, 1, 2), with dx, where y is weighted by (1, 1, 1)
    "if": (
        "        if m[i] > 0.0:\n            y[i] = T.log(x[i])\n        else:\n            y[i] = x[i]",
        [1, 0.25, 0.5],
    ),
    "select": ("        y[i] = T.select(m[i] > 0.0, T.sqrt(x[i]), x[i])", [1, 0.25, 0.5**1.5]),
    "max": ("        y[i] = T.max(T.log(x[i]), 0.0)", [0, 0.25, 0.5]),
    "a product with a mask": ("        y[i] = m[i] * T.sqrt(x[i])", [0, 0.25, 0.5**0.5]),
    "a buffer between": (
        "        t[i] = T.sqrt(x[i])\n    for i in range(3):\n        y[i] = T.select(m[i] > 0.0, t[i] * x[i], x[i])",
        [1, 3, 1.5 * 2**0.5],
    ),
    "what is overwritten": (
        "        y[i] = T.log(x[i])\n    for i in range(3):\n        if m[i] < 0.5:\n            y[i] = x[i]",
        [1, 0.25, 0.5],
    ),
    "a name": (
        "        v: T.float64 = T.sqrt(x[i])\n        y[i] = T.select(m[i] > 0.0, v, x[i])",
        [1, 0.25, 0.5**1.5],
    ),
    "a sum with a mask": (
        "        y[i] = 0.0\n    for i in range(3):\n        y[0] = y[0] + T.sqrt(x[i]) * m[i]",
        [0, 0.25, 0.5**0.5],
    ),
    "power": ("        y[i] = T.select(m[i] > 0.0, T.pow(x[i], 0.5), 0.0)", [0, 0.25, 0.5**1.5]),
    "quotient": ("        y[i] = T.select(m[i] > 0.0, 1.0 / x[i], 0.0)", [0, -1 / 16, -0.25]),
}
KERNEL = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((3,), "float64"), m: T.Buffer((3,), "float64"), y: T.Buffer((3,), "float64")):
{scratch}
        for i in range(3):
{body}
    @R.function
    def main(x: R.Tensor((3,), "float64"), m: R.Tensor((3,), "float64")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, m), out_sinfo=R.Tensor((3,), "float64"))
        z = R.sum(y)
        return z
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels(kernel: str) -> None:
    """First order at the steep point; second order as at an ordinary one."""
    body, expected = KERNELS[kernel]
    scratch = '        t = T.alloc_buffer((3,), "float64", scope="workspace")' if "t[" in body else ""
    source = KERNEL.format(body="\n".join(f"    {line}" for line in body.split("\n")), scratch=scratch)
    module = from_source(source)
    module = Gradient("main", "x")(module)
    x, m = np.array([0.0, 4.0, 2.0]), np.array([0.0, 1.0, 2.0])
    for target in ("llvm", "debug"):
        np.testing.assert_allclose(adjoints(module, "main", [x, m], target)[0], expected, rtol=1e-12)
    builder = BlockBuilder(module)
    params = list(module["main_adjoint"].params)
    with builder.function("second", params):
        found = builder.emit(module.get_global_var("main_adjoint")(*params))[1]
        builder.emit_func_output(op.sum(found[0] * const(np.array([2.0, 3.0, 5.0]))))
    module = Gradient("second", "x")(builder.get())
    ordinary = np.array([0.5, 4.0, 2.0])
    wanted = adjoints(module, "second", [ordinary, m], "debug")[0]
    assert np.isfinite(wanted).all() and wanted[0] == 0
    for target in ("llvm", "debug"):
        np.testing.assert_allclose(adjoints(module, "second", [x, m], target)[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("way", ["where", "select"])
def test_gradients_of_tensor_expressions(way: str) -> None:
    @register_te_gradient("zeros_grad")
    def zeros_grad(dy: Any, x: Any) -> Any:
        if way == "where":
            return te.compute(x.shape, lambda i: dy[i] / x[i] + dy[i] * tir.call("log", x[i]))
        kept = te.compute(x.shape, lambda i: tir.select(x[i] > 0, dy[i], 0.0))
        return te.compute(x.shape, lambda i: kept[i] * (1.0 / x[i]) + kept[i] * tir.call("log", x[i]))

    module = from_source(
        """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def log(x: T.Buffer((3,), "float64"), y: T.Buffer((3,), "float64")):
        for i in range(3):
            y[i] = T.log(x[i])
    @R.function
    def main(x: R.Tensor((3,), "float64")):
        cls = Module
        y = R.call_tir_with_grad(cls.log, (x,), out_sinfo=R.Tensor((3,), "float64"), te_grad_name="zeros_grad")
        z = R.sum(%s)
        return z
"""
        % ("R.where(R.greater(x, R.const(0.0, 'float64')), y, x)" if way == "where" else "y")
    )
    module = Gradient("main")(module)
    x = np.array([0.0, 4.0, 2.0])
    expected = [1.0 if way == "where" else 0.0, 0.25 + np.log(4), 0.5 + np.log(2)]
    for target in ("llvm", "debug"):
        np.testing.assert_allclose(adjoints(module, "main", [x], target)[0], expected, rtol=1e-12)
