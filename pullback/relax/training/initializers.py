"""Initial values of parameters: distributions, by name and by pattern of parameter names.

    >>> pullback.trainer(net, loss, optimizer, example=x, init={"*.weight": "kaiming_normal", "emb*": Normal(0.02)})

An initializer is called with NumPy's generator and a shape, and returns an array. The *fans* of a weight (outputs,
inputs, kernel…) are PyTorch's: inputs and outputs, each times the number of kernel positions. A weight of a script
module that is multiplied as ``R.matmul(x, w)`` is (inputs, outputs): there ``mode="fan_out"`` counts the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol

import numpy as np

from pullback.ir.arguments import number
from pullback.ir.errors import ArgumentError, ShapeError, suggestion
from pullback.relax import op
from pullback.runtime.dtype import numpy_dtype


class Initializer(Protocol):
    """Draws an array of a shape; raises ShapeError for one that it is not for."""

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray: ...


class _Distribution:
    """An initializer whose text names its arguments, which are its attributes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _expect_numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        number(name, value)


def _expect_std(std: Any) -> None:
    _expect_numbers(std=std)
    if std < 0:
        raise ArgumentError(f"std must be ≥ 0, got {std!r}", hint="Normal(std, mean)")


# -- elements by themselves


class Constant(_Distribution):
    """All elements are one value.

    Args:
        value: of all elements.
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value, np.float64)


class Zeros(Constant):
    """All elements are 0."""

    def __init__(self) -> None:
        super().__init__(0.0)


class Ones(Constant):
    """All elements are 1."""

    def __init__(self) -> None:
        super().__init__(1.0)


class Uniform(_Distribution):
    """Uniform between ``low`` and ``high``.

    Args:
        low: the least value.
        high: below which all values are.
    """

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        _expect_numbers(low=low, high=high)
        if low > high:
            raise ArgumentError(f"low must be at most high, got {low!r} and {high!r}")
        self.low, self.high = low, high

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return generator.uniform(self.low, self.high, shape)


class Normal(_Distribution):
    """Normal with the standard deviation ``std`` and the mean ``mean``.

    Args:
        std: the standard deviation.
        mean: the mean.
    """

    def __init__(self, std: float = 1.0, mean: float = 0.0) -> None:
        _expect_std(std)
        _expect_numbers(mean=mean)
        self.std, self.mean = std, mean

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return generator.normal(self.mean, self.std, shape)


class TruncatedNormal(_Distribution):
    """Normal with ``std`` and ``mean``, given that it lies between ``a`` and ``b``, as PyTorch's ``trunc_normal_``: by
    the inverse of the distribution function.

    Args:
        std: the standard deviation.
        mean: the mean.
        a: the least value.
        b: the greatest value.
    """

    def __init__(self, std: float = 1.0, mean: float = 0.0, a: float = -2.0, b: float = 2.0) -> None:
        _expect_std(std)
        _expect_numbers(mean=mean, a=a, b=b)
        if std == 0 or not a < b:
            raise ArgumentError(f"std must be positive and a below b, got std={std!r}, a={a!r}, b={b!r}")
        self.std, self.mean, self.a, self.b = std, mean, a, b

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        low, high = (math.erf((bound - self.mean) / (self.std * math.sqrt(2))) for bound in (self.a, self.b))
        standard = op.erfinv.numpy(generator.uniform(low, high, shape))
        return np.clip(standard * (self.std * math.sqrt(2)) + self.mean, self.a, self.b)


# -- by the fans


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """fan_in and fan_out of a weight (outputs, inputs, kernel…); a ShapeError for a rank below two."""
    if len(shape) < 2:
        raise ShapeError(f"a tensor of shape {shape} has no fans", hint="an initializer with fans takes weights")
    positions = math.prod(shape[2:])
    return shape[1] * positions, shape[0] * positions


_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("truncated_normal", "untruncated_normal", "uniform")
_OF_TRUNCATED = 0.87962566103423978  # the standard deviation of a normal variable between -2 and 2


def _expect_one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ArgumentError(f"{name} must be one of {', '.join(known)}, got {value!r}")


class VarianceScaling(_Distribution):
    """Mean 0 and variance scale / n, where n is fan_in, fan_out or their mean. Keras's.

    Args:
        scale: of the variance.
        mode: "fan_in", "fan_out" or "fan_avg", their mean.
        distribution: "truncated_normal" (between ±2 standard deviations of the normal one), "untruncated_normal" or
            "uniform".
    """

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal") -> None:
        _expect_numbers(scale=scale)
        if scale <= 0:
            raise ArgumentError(f"scale must be positive, got {scale!r}")
        _expect_one_of("mode", mode, _MODES)
        _expect_one_of("distribution", distribution, _DISTRIBUTIONS)
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        fan_in, fan_out = fans(shape)
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        std = math.sqrt(self.scale / max(1, n))
        if self.distribution == "uniform":
            return generator.uniform(-math.sqrt(3) * std, math.sqrt(3) * std, shape)
        if self.distribution == "untruncated_normal":
            return generator.normal(0.0, std, shape)
        whole = std / _OF_TRUNCATED
        return TruncatedNormal(whole, 0.0, -2 * whole, 2 * whole)(generator, shape)


class _Xavier(_Distribution):
    distribution: ClassVar[str]

    def __init__(self, gain: float = 1.0) -> None:
        _expect_numbers(gain=gain)
        self.gain = gain

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return self.gain * VarianceScaling(1.0, "fan_avg", self.distribution)(generator, shape)


class XavierUniform(_Xavier):
    """Uniform in ±gain·√(6 / (fan_in + fan_out)). Glorot & Bengio, Understanding the difficulty of training deep
    feedforward neural networks, 2010.

    Args:
        gain: the factor, as of ``calculate_gain``.
    """

    distribution = "uniform"


class XavierNormal(_Xavier):
    """Normal with std = gain·√(2 / (fan_in + fan_out)). Glorot & Bengio 2010.

    Args:
        gain: the factor, as of ``calculate_gain``.
    """

    distribution = "untruncated_normal"


class _Kaiming(_Distribution):
    distribution: ClassVar[str]

    def __init__(self, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
        _expect_one_of("mode", mode, _MODES[:2])
        calculate_gain(nonlinearity, a)
        self.a, self.mode, self.nonlinearity = a, mode, nonlinearity

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        gain = calculate_gain(self.nonlinearity, self.a)
        return gain * VarianceScaling(1.0, self.mode, self.distribution)(generator, shape)


class KaimingUniform(_Kaiming):
    """Uniform in ±gain·√(3 / fan), with fan_in or fan_out (``mode``) and the gain of ``nonlinearity``, of which ``a``
    is the slope of "leaky_relu". He et al., Delving Deep into Rectifiers, 2015. PyTorch's layers begin with a = √5.

    Args:
        a: the slope of "leaky_relu".
        mode: "fan_in" or "fan_out".
        nonlinearity: that of :func:`calculate_gain`.
    """

    distribution = "uniform"


class KaimingNormal(_Kaiming):
    """Normal with std = gain / √fan, with fan_in or fan_out (``mode``) and the gain of ``nonlinearity``, of which ``a``
    is the slope of "leaky_relu". He et al. 2015.

    Args:
        a: the slope of "leaky_relu".
        mode: "fan_in" or "fan_out".
        nonlinearity: that of :func:`calculate_gain`.
    """

    distribution = "untruncated_normal"


class LecunNormal(VarianceScaling):
    """Truncated normal with the variance 1 / fan_in. LeCun et al., Efficient BackProp, 1998."""

    def __init__(self) -> None:
        super().__init__(1.0, "fan_in", "truncated_normal")


class LecunUniform(VarianceScaling):
    """Uniform in ±√(3 / fan_in). LeCun et al., Efficient BackProp, 1998."""

    def __init__(self) -> None:
        super().__init__(1.0, "fan_in", "uniform")


_GAINS = {"sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2.0), "selu": 3 / 4, "linear": 1.0}
_GAINS |= {f"conv{kind}{n}d": 1.0 for kind in ("", "_transpose") for n in (1, 2, 3)}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before ``nonlinearity`` are larger than those of a linear layer, PyTorch's: 1 for
    "linear", "sigmoid" and convolutions, 5/3 for "tanh", √2 for "relu", √(2 / (1 + param²)) for "leaky_relu" (param,
    its slope, is 0.01 by default), 3/4 for "selu".

    Args:
        nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv1d" and the like.
        param: the slope of "leaky_relu", 0.01 by default.

    Returns:
        the factor.

    Examples:
        >>> nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        _expect_numbers(slope=slope)
        return math.sqrt(2.0 / (1.0 + slope**2))
    _expect_one_of("nonlinearity", nonlinearity, (*_GAINS, "leaky_relu"))
    return _GAINS[nonlinearity]


# -- of a certain structure


class Orthogonal(_Distribution):
    """A (semi-)orthogonal matrix times ``gain``, of the first axis and all others together: its rows, or its columns if
    those are fewer, are orthonormal. Saxe et al., Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks, 2014.

    Args:
        gain: the factor, as of ``calculate_gain``.
    """

    def __init__(self, gain: float = 1.0) -> None:
        _expect_numbers(gain=gain)
        self.gain = gain

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) < 2:
            raise ShapeError(f"a tensor of shape {shape} is no matrix", hint="Orthogonal takes two or more axes")
        rows, columns = shape[0], math.prod(shape[1:])
        q, r = np.linalg.qr(generator.normal(size=(max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diag(r))  # so that every orthogonal matrix is as likely
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


class Sparse(_Distribution):
    """A matrix in each of whose columns the fraction ``sparsity`` (rounded up) is 0, and others are normal with
    ``std``. Martens, Deep learning via Hessian-free optimization, 2010.

    Args:
        sparsity: the fraction of zeros in each column, rounded up.
        std: of the other elements.
    """

    def __init__(self, sparsity: float, std: float = 0.01) -> None:
        _expect_std(std)
        _expect_numbers(sparsity=sparsity)
        if not 0 <= sparsity <= 1:
            raise ArgumentError(f"sparsity must be from 0 to 1, got {sparsity!r}")
        self.sparsity, self.std = sparsity, std

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        _expect_matrix("Sparse", shape)
        values = generator.normal(0.0, self.std, shape)
        zeros = math.ceil(self.sparsity * shape[0])
        order = generator.permuted(np.broadcast_to(np.arange(shape[0])[:, None], shape), axis=0)
        values[order < zeros] = 0
        return values


class Eye(_Distribution):
    """A matrix with ones on its diagonal, and zeros elsewhere."""

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        _expect_matrix("Eye", shape)
        rows, columns = shape
        return np.eye(rows, columns)


class Dirac(_Distribution):
    """A convolution's weight (outputs, inputs, kernel…) that returns its input, as far as there are channels, in each
    of ``groups`` groups of outputs. Its kernel has 1, 2 or 3 axes.

    Args:
        groups: groups of outputs, in each of which the input is returned.
    """

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) not in (3, 4, 5):
            raise ShapeError(f"a tensor of shape {shape} is no convolution's weight", hint="Dirac takes 3 to 5 axes")
        if isinstance(self.groups, bool) or not isinstance(self.groups, int) or self.groups < 1:
            raise ArgumentError(f"groups must be an int ≥ 1, got {self.groups!r}")
        if shape[0] % self.groups:
            raise ShapeError(f"{self.groups} groups do not divide {shape[0]} outputs")
        values, size = np.zeros(shape), shape[0] // self.groups
        middle = tuple(n // 2 for n in shape[2:])
        for output in range(shape[0]):
            if output % size < shape[1]:
                values[output, output % size][middle] = 1
        return values


def _expect_matrix(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ShapeError(f"a tensor of shape {shape} is no matrix", hint=f"{name} takes two axes")


# -- by name and by pattern

_NAMES: dict[str, Callable[[], Initializer]] = {
    "zeros": Zeros, "ones": Ones, "uniform": Uniform, "normal": Normal, "truncated_normal": TruncatedNormal,
    "xavier": XavierUniform, "xavier_uniform": XavierUniform, "xavier_normal": XavierNormal,
    "kaiming_uniform": KaimingUniform, "kaiming_normal": KaimingNormal,
    "glorot_uniform": XavierUniform, "glorot_normal": lambda: VarianceScaling(1.0, "fan_avg"),
    "he_uniform": KaimingUniform, "he_normal": lambda: VarianceScaling(2.0, "fan_in"),
    "lecun_uniform": LecunUniform, "lecun_normal": LecunNormal, "variance_scaling": VarianceScaling,
    "orthogonal": Orthogonal, "eye": Eye, "identity": Eye, "dirac": Dirac,
}  # fmt: skip  # glorot_normal and he_normal are Keras's, which are truncated


def initializer(init: Any) -> Initializer:
    """An initializer from one, its name, a number (all elements) or None (zeros)."""
    if init is None:
        return Constant(0.0)
    if isinstance(init, (int, float)) and not isinstance(init, bool):
        return Constant(float(init))
    if isinstance(init, str) and init in _NAMES:
        return _NAMES[init]()
    if isinstance(init, type):
        try:
            return init()
        except TypeError as error:
            raise ArgumentError(
                f"{init.__name__} needs arguments: {error}", hint="give an object, not its class"
            ) from None
    if callable(init):
        return init
    meant = suggestion(init, _NAMES) if isinstance(init, str) else ""
    raise ArgumentError(f"{init!r} is no initializer{meant}", hint=f"their names are {', '.join(_NAMES)}")


def by_pattern(init: Any) -> Mapping[str, Initializer]:
    """Initializers by pattern of names: a mapping, or one initializer for all."""
    if isinstance(init, Mapping):
        return {pattern: initializer(one) for pattern, one in init.items()}
    return {"*": initializer(init)}


def match(patterns: Mapping[str, Initializer], names: Sequence[str]) -> dict[str, Initializer]:
    """For each name the initializer of the first pattern that matches it, as in ``fnmatch``; an ArgumentError for a
    pattern that matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(
                f"init: no parameter matches {pattern!r}; the parameters are: {', '.join(names)}",
                hint="patterns are those of a shell: 'body.*', '*.weight'",
            )
    found = {name: next((p for p in patterns if fnmatchcase(name, p)), None) for name in names}
    return {name: patterns[pattern] for name, pattern in found.items() if pattern is not None}


def drawn(chosen: Mapping[str, Initializer], seed: int, types: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of these types, drawn by name. Those of rank 0 and 1 are left out under an initializer that needs fans."""
    values = {}
    for place, (name, info) in enumerate(types.items()):
        if name in chosen:
            generator = np.random.Generator(np.random.PCG64([seed, place]))
            try:
                array = np.asarray(chosen[name](generator, info.shape), np.float64)
            except ShapeError as error:
                if len(info.shape) > 1:
                    raise ShapeError(f"{name}: {error.message}", hint=error.hint) from None
                continue
            values[name] = array.astype(numpy_dtype(info.dtype))
    return values


__all__ = [
    "Constant", "Dirac", "Eye", "Initializer", "KaimingNormal", "KaimingUniform", "LecunNormal", "LecunUniform",
    "Normal", "Ones", "Orthogonal", "Sparse", "TruncatedNormal", "Uniform", "VarianceScaling", "XavierNormal",
    "XavierUniform", "Zeros", "calculate_gain", "fans", "initializer",
]  # fmt: skip
