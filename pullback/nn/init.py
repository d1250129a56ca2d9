"""Initial values of parameters: distributions, by name and by pattern, and PyTorch's functions for single parameters.

    >>> init = {"*.weight": "kaiming_normal", "emb*": nn.init.Normal(0.02)}
    >>> pullback.trainer(net, "mse", "adam", example=x, init=init)
    >>> nn.init.orthogonal_(net.fc.weight)

PyTorch's functions, with a trailing underscore, say how a parameter begins: its value is drawn when it is first needed,
with the seed of the trainer, and a value that it has is given up. With ``generator``, NumPy's, the value is drawn at
once, and the trainer keeps it. All return the parameter. They raise ShapeError for a shape that the distribution is not
for, and ArgumentError for what is no parameter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.ir.words import missing_from
from pullback.nn.parameter import Variable
from pullback.relax.training.initializers import (
    Constant,
    Dirac,
    Eye,
    Initializer,
    KaimingNormal,
    KaimingUniform,
    LecunNormal,
    LecunUniform,
    Normal,
    Ones,
    Orthogonal,
    Sparse,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
    XavierNormal,
    XavierUniform,
    Zeros,
    calculate_gain,
)

__all__ = [
    "Constant", "Dirac", "Eye", "Initializer", "KaimingNormal", "KaimingUniform", "LecunNormal", "LecunUniform",
    "Normal", "Ones", "Orthogonal", "Sparse", "TruncatedNormal", "Uniform", "VarianceScaling", "XavierNormal",
    "XavierUniform", "Zeros", "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_",
    "zeros_",
]  # fmt: skip


def _begins(tensor: Any, init: Initializer, generator: Any = None) -> Any:
    """Let a parameter begin by ``init``."""
    if not isinstance(tensor, Variable):
        raise ArgumentError(
            f"an nn.Parameter or nn.Buffer begins in a way, got {type(tensor).__name__}",
            hint="nn.init.normal_(layer.weight), not its data or value",
        )
    if generator is not None and not isinstance(generator, np.random.Generator):
        raise ArgumentError(
            f"generator must be NumPy's, got {type(generator).__name__}", hint="np.random.default_rng(0)"
        )
    if isinstance(init, Dirac) or not _takes_rank(init, tensor.ndim):
        init(np.random.default_rng(0), tensor.shape)  # raises a ShapeError now, not in a trainer
    tensor.begin(init)
    if generator is not None:
        tensor.draw(generator)
    return tensor


def _takes_rank(init: Initializer, rank: int) -> bool:
    try:
        init(np.random.default_rng(0), (1,) * rank)
    except ShapeError:
        return False
    return True


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: np.random.Generator | None = None) -> Any:
    """Uniform between a and b.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        a: the least value.
        b: below which all values are.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, Uniform(a, b), generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: np.random.Generator | None = None) -> Any:
    """Normal with mean and standard deviation.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        mean: the mean.
        std: the standard deviation.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, Normal(std, mean), generator)


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: np.random.Generator | None = None,
) -> Any:  # fmt: skip
    """Normal, given that it lies between a and b.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        mean: the mean.
        std: the standard deviation.
        a: the least value.
        b: the greatest value.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, TruncatedNormal(std, mean, a, b), generator)


def constant_(tensor: Any, val: float) -> Any:
    """All elements are val.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        val: of all elements.

    Returns:
        the parameter.
    """
    return _begins(tensor, Constant(val))


def ones_(tensor: Any) -> Any:
    """All elements are 1.

    Args:
        tensor: an nn.Parameter or nn.Buffer.

    Returns:
        the parameter.
    """
    return _begins(tensor, Ones())


def zeros_(tensor: Any) -> Any:
    """All elements are 0.

    Args:
        tensor: an nn.Parameter or nn.Buffer.

    Returns:
        the parameter.
    """
    return _begins(tensor, Zeros())


def eye_(tensor: Any) -> Any:
    """Ones on the diagonal of a matrix.

    Args:
        tensor: an nn.Parameter or nn.Buffer.

    Returns:
        the parameter.
    """
    return _begins(tensor, Eye())


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """A convolution's weight that returns its input.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        groups: groups of outputs, in each of which the input is returned.

    Returns:
        the parameter.
    """
    return _begins(tensor, Dirac(groups))


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: np.random.Generator | None = None) -> Any:
    """Uniform in ±gain·√(6 / (fan_in + fan_out)).

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        gain: the factor, as of ``calculate_gain``.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, XavierUniform(gain), generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: np.random.Generator | None = None) -> Any:
    """Normal with std = gain·√(2 / (fan_in + fan_out)).

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        gain: the factor, as of ``calculate_gain``.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, XavierNormal(gain), generator)


def kaiming_uniform_(
    tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: np.random.Generator | None = None,
) -> Any:  # fmt: skip
    """Uniform in ±gain·√(3 / fan).

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        a: the slope of "leaky_relu".
        mode: "fan_in" or "fan_out".
        nonlinearity: that of :func:`calculate_gain`.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, KaimingUniform(a, mode, nonlinearity), generator)


def kaiming_normal_(
    tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: np.random.Generator | None = None,
) -> Any:  # fmt: skip
    """Normal with std = gain / √fan.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        a: the slope of "leaky_relu".
        mode: "fan_in" or "fan_out".
        nonlinearity: that of :func:`calculate_gain`.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.

    Examples:
        >>> layer = nn.Linear(16, 4)
        >>> nn.init.kaiming_normal_(layer.weight, nonlinearity="relu") is layer.weight
        True
    """
    return _begins(tensor, KaimingNormal(a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1.0, generator: np.random.Generator | None = None) -> Any:
    """A (semi-)orthogonal matrix times gain.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        gain: the factor, as of ``calculate_gain``.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, Orthogonal(gain), generator)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: np.random.Generator | None = None) -> Any:
    """A matrix in each of whose columns a fraction is 0.

    Args:
        tensor: an nn.Parameter or nn.Buffer.
        sparsity: the fraction of zeros in each column, rounded up.
        std: of the other elements.
        generator: draws the values at once; by default they are drawn when they are first needed, with the trainer's
            seed.

    Returns:
        the parameter.
    """
    return _begins(tensor, Sparse(sparsity, std), generator)


__getattr__ = missing_from(globals())
