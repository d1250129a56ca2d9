"""Activations as modules: the functions of ``nn.functional``, with their arguments at construction."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.nn import functional as F
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter, shape_of
from pullback.relax.training.initializers import Constant

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax",
    "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Activation(Module):
    """One whose text names its arguments."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))


class _InPlace(_Activation):
    """One without other arguments than ``inplace``, which makes no difference: values never change."""

    def __init__(self, inplace: bool = False) -> None:
        pass


class ReLU(_InPlace):
    """max(x, 0).

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Examples:
        >>> nn.ReLU()(np.array([-2.0, 3.0], "float32")).numpy().tolist()
        [0.0, 3.0]
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.relu(input)


class ReLU6(_InPlace):
    """min(max(x, 0), 6).

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.relu6(input)


class SELU(_InPlace):
    """1.0507·elu(x, 1.67326): Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.selu(input)


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6.

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.hardsigmoid(input)


class Hardswish(_InPlace):
    """x·relu6(x + 3) / 6.

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.hardswish(input)


class Mish(_InPlace):
    """x·tanh(log(1 + eˣ)).

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.mish(input)


class SiLU(_InPlace):
    """x·sigmoid(x), also called swish.

    Args:
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.silu(input)


class Sigmoid(_Activation):
    """1 / (1 + e⁻ˣ)."""

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.sigmoid(input)


class Tanh(_Activation):
    """The hyperbolic tangent."""

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.tanh(input)


class LogSigmoid(_Activation):
    """log(sigmoid(x)), without overflow."""

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.logsigmoid(input)


class Softsign(_Activation):
    """x / (1 + |x|)."""

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.softsign(input)


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.tanhshrink(input)


class ELU(_Activation):
    """x where x > 0, else alpha·(eˣ - 1).

    Args:
        alpha: the result tends to -alpha.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.elu(input, self.alpha)


class CELU(_Activation):
    """x where x > 0, else alpha·(e^(x/alpha) - 1).

    Args:
        alpha: the result tends to -alpha.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.celu(input, self.alpha)


class GELU(_Activation):
    """x·Φ(x), Φ being the normal distribution; with ``approximate="tanh"`` its approximation by tanh.

    Args:
        approximate: "none", or "tanh" for the approximation by tanh.

    Examples:
        >>> nn.GELU()(np.array([-10.0, 0.0, 10.0], "float32"))
        tensor([-0.,  0., 10.], shape=(3,), dtype=float32)
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.gelu(input, self.approximate)


class GLU(_Activation):
    """a·sigmoid(b) for the halves a and b along an axis of even size.

    Args:
        dim: the axis; negative ones count from the end.
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """(…, 2n, …) → (…, n, …)."""
        return F.glu(input, self.dim)


class Hardshrink(_Activation):
    """x where |x| > lambd, else 0.

    Args:
        lambd: the threshold, at least 0.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Activation):
    """x moved by lambd towards 0, and 0 where |x| ≤ lambd.

    Args:
        lambd: the threshold, at least 0.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.softshrink(input, self.lambd)


class Hardtanh(_Activation):
    """min(max(x, min_val), max_val).

    Args:
        min_val: the least result.
        max_val: the greatest result.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.hardtanh(input, self.min_val, self.max_val)


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope·x.

    Args:
        negative_slope: the slope below 0.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Examples:
        >>> nn.LeakyReLU(0.1)(np.array([-2.0, 3.0], "float32")).numpy().tolist()
        [-0.20000000298023224, 3.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.leaky_relu(input, self.negative_slope)


class RReLU(_Activation):
    """x where x > 0, else slope·x: steps draw a slope from [lower, upper) for each element, ``predict`` takes their
    mean. Xu et al., Empirical Evaluation of Rectified Activations, 2015.

    Args:
        lower: the least slope.
        upper: the slope below which all are drawn.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower, self.upper = lower, upper

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.rrelu(input, self.lower, self.upper, training=True)


class PReLU(_Activation):
    """x where x > 0, else weight·x: a ``weight`` for all elements, or one for each of num_parameters channels (axis 1).
    It begins as ``init``. He et al., Delving Deep into Rectifiers, 2015.

    Args:
        num_parameters: 1, or the number of channels.
        init: what the slope begins as.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> nn.PReLU()(np.array([-2.0, 3.0], "float32")).numpy().tolist()
        [-0.5, 3.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: str | None = None) -> None:
        self.num_parameters = num_parameters
        self.weight = Parameter(shape_of(num_parameters), init=Constant(init), dtype=dtype)

    def forward(self, input: Any) -> Any:
        """(N, C, …), or with one weight any shape."""
        return F.prelu(input, self.weight)


class Softplus(_Activation):
    """log(1 + e^(beta·x)) / beta, and x where beta·x > threshold.

    Args:
        beta: the larger, the closer to relu.
        threshold: of beta·x, above which the result is x.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.softplus(input, self.beta, self.threshold)


class Threshold(_Activation):
    """x where x > threshold, else value.

    Args:
        threshold: above which x stays.
        value: the result elsewhere.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.threshold(input, self.threshold, self.value)


class Softmax(_Activation):
    """exp(x) / Σ exp(x) along the axis ``dim``; of one or two axes by default the last one.

    Args:
        dim: the axis; negative ones count from the end.

    Examples:
        >>> nn.Softmax(dim=1)(np.zeros((1, 4), "float32")).numpy().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.softmax(input, self.dim)


class LogSoftmax(_Activation):
    """log softmax along the axis ``dim``; of one or two axes by default the last one.

    Args:
        dim: the axis; negative ones count from the end.
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.log_softmax(input, self.dim)


class Softmin(_Activation):
    """softmax(-x) along the axis ``dim``; of one or two axes by default the last one.

    Args:
        dim: the axis; negative ones count from the end.
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Of any shape."""
        return F.softmin(input, self.dim)


class Softmax2d(_Activation):
    """softmax over the channels of images."""

    def forward(self, input: Any) -> Any:
        """(N, C, H, W) or (C, H, W)."""
        if len(input.shape) not in (3, 4):
            raise ShapeError(f"Softmax2d takes (N, C, H, W) or (C, H, W), got {len(input.shape)} axes")
        return F.softmax(input, -3)
