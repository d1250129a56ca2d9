"""Augmentation: layers that change images at random in training, and leave them as they are in ``predict`` and
``evaluate``.

    net = nn.Sequential(
        nn.aug.Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262)),
        nn.aug.RandomFlip(), nn.aug.RandomCrop(32, padding=4),
        nn.Conv2d(3, 64, 3, padding=1), …
    )

They are part of the compiled step. Each image of a batch draws its own numbers, anew in each step; these follow from
the seed of the trainer alone. Images are (N, …, H, W).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.ir.words import missing_from
from pullback.nn.functional.axes import each, known_sizes
from pullback.nn.module import Module
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.op.image.augment import PAD_MODES
from pullback.relax.struct_info import format_shape

__all__ = [
    "Mixup", "Normalize", "RandomCrop", "RandomFlip", "RandomHorizontalFlip", "RandomShift", "RandomTranslation",
    "RandomVerticalFlip", "mixup",
]  # fmt: skip

_AXES = {"horizontal": (-1,), "vertical": (-2,), "horizontal_and_vertical": (-1, -2)}


def _expect_images(layer: Module, x: Any) -> None:
    if len(x.shape) < 3:
        name, shape = type(layer).__name__, format_shape(x.shape)
        raise ShapeError(f"{name} takes images (N, …, H, W), with the axis N, got {shape}")


class RandomFlip(Module):
    """Images (N, …, H, W) mirrored in training, each with the probability ``p``.

    ``mode``: "horizontal" (left and right change places), "vertical", or "horizontal_and_vertical", where each of both
    is drawn for itself. Raises ArgumentError for another mode or a p that is no probability.

    >>> nn.aug.RandomFlip("horizontal")
    """

    def __init__(self, mode: str = "horizontal", p: float = 0.5) -> None:
        if mode not in _AXES:
            raise ArgumentError(f"mode must be one of {', '.join(_AXES)}, got {mode!r}")
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise ArgumentError(f"p must be a number from 0 to 1, got {p!r}")
        self.mode, self.p = mode, p

    def forward(self, input: Any) -> Any:
        """The images, some of them mirrored."""
        _expect_images(self, input)
        for axis in _AXES[self.mode]:
            input = op.image.random_flip(input, axis=axis, p=float(self.p))
        return input

    def extra_repr(self) -> str:
        return f"{self.mode!r}, p={self.p}"


class RandomHorizontalFlip(RandomFlip):
    """Images (N, …, H, W) whose left and right change places in training, each with the probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__("horizontal", p)


class RandomVerticalFlip(RandomFlip):
    """Images (N, …, H, W) put upside down in training, each with the probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__("vertical", p)


class _Window(Module):
    """What takes windows of padded images: the padding's mode and number."""

    def _pad(self, padding_mode: str, fill: float) -> None:
        if padding_mode not in PAD_MODES:
            raise ArgumentError(f"padding_mode must be one of {', '.join(PAD_MODES)}, got {padding_mode!r}")
        self.padding_mode, self.fill = padding_mode, fill

    def _crop(self, images: Any, size: tuple[int, ...], padding: tuple[int, ...]) -> Any:
        return op.image.random_crop(images, size, padding, self.padding_mode, float(self.fill))


class RandomCrop(_Window):
    """A window of ``size`` at a random place of each padded image in training: (N, …, H, W) → (N, …, *size).

    ``size``: an int, or (height, width). ``padding``: around the images, an int or (height, width); ``padding_mode``
    fills it: "constant" (with ``fill``), "reflect", "replicate" or "circular". In inference the window is in the
    middle, so images of that size stay as they are. Raises ShapeError for a window that has no room.

    >>> nn.aug.RandomCrop(32, padding=4)
    """

    def __init__(self, size: Any, padding: Any = 0, padding_mode: str = "constant", fill: float = 0.0) -> None:
        self.size, self.padding = each("size", size, 2, 1), each("padding", padding, 2)
        self._pad(padding_mode, fill)

    def forward(self, input: Any) -> Any:
        """The windows."""
        _expect_images(self, input)
        return self._crop(input, self.size, self.padding)

    def extra_repr(self) -> str:
        return f"{self.size}, padding={self.padding}, padding_mode={self.padding_mode!r}"


class RandomShift(_Window):
    """Images (N, …, H, W) moved in training by up to ``pixels`` in each direction, an int or (down, across), each
    number equally likely; ``padding_mode`` and ``fill`` as in :class:`RandomCrop` say what comes in at the other side.

    >>> nn.aug.RandomShift(2)
    """

    def __init__(self, pixels: Any, padding_mode: str = "constant", fill: float = 0.0) -> None:
        self.pixels = each("pixels", pixels, 2)
        self._pad(padding_mode, fill)

    def forward(self, input: Any) -> Any:
        """The images, moved."""
        _expect_images(self, input)
        return self._crop(input, known_sizes(input.shape[-2:], "RandomShift"), self.pixels)

    def extra_repr(self) -> str:
        return f"{self.pixels}, padding_mode={self.padding_mode!r}"


class RandomTranslation(_Window):
    """Images (N, …, H, W) moved in training by up to a fraction of their height and width, in whole pixels.

    ``height_factor``, ``width_factor``: a number of 0 … 1 for both directions, or (lower, upper) with -1 ≤ lower ≤ 0 ≤
    upper ≤ 1: how far up or left (negative) and how far down or right. ``padding_mode`` and ``fill`` as in
    :class:`RandomCrop`. Keras's RandomTranslation.

    >>> nn.aug.RandomTranslation(0.1, 0.1)
    """

    def __init__(
        self, height_factor: Any, width_factor: Any, padding_mode: str = "constant", fill: float = 0.0
    ) -> None:
        self.factors = (_limits("height_factor", height_factor), _limits("width_factor", width_factor))
        self._pad(padding_mode, fill)

    def forward(self, input: Any) -> Any:
        """The images, moved."""
        _expect_images(self, input)
        size = known_sizes(input.shape[-2:], "RandomTranslation")
        before = tuple(round(upper * n) for (_, upper), n in zip(self.factors, size, strict=True))
        after = tuple(round(-lower * n) for (lower, _), n in zip(self.factors, size, strict=True))
        return self._crop(input, size, (*before, *after))

    def extra_repr(self) -> str:
        return f"{self.factors[0]}, {self.factors[1]}, padding_mode={self.padding_mode!r}"


def _limits(name: str, factor: Any) -> tuple[float, float]:
    pair = tuple(factor) if isinstance(factor, (tuple, list)) else (factor,)
    numbers = all(isinstance(f, (int, float)) and not isinstance(f, bool) for f in pair)
    if numbers and len(pair) == 1 and 0 <= pair[0] <= 1:
        return (-float(pair[0]), float(pair[0]))
    if numbers and len(pair) == 2 and -1 <= pair[0] <= 0 <= pair[1] <= 1:
        return (float(pair[0]), float(pair[1]))
    raise ArgumentError(f"{name} must be a number from 0 to 1, or (lower, upper) around 0, got {factor!r}")


def mixup(input: Any, alpha: float = 0.2) -> Any:
    """Each row of a batch (N, …) of floats mixed in training with its partner, that of the same number from the end:
    s·x[n] + (1 - s)·x[N - 1 - n], with a share s for each row from the distribution Beta(alpha, alpha).

    Calls with the same ``alpha`` mix alike, so the loss mixes the targets as the model does its inputs
    (:class:`Mixup`). In ``predict`` and ``evaluate`` nothing is mixed. Zhang et al., mixup, ICLR 2018.

    >>> def loss(logits, labels):
    ...     return F.cross_entropy(logits, nn.aug.mixup(F.one_hot(labels, 10).float()))
    """
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
        raise ArgumentError(f"mixup: alpha must be a positive, finite number, got {alpha!r}")
    return op.nn.mixup(input, alpha=float(alpha), shared=f"mixup {float(alpha)}")


class Mixup(Module):
    """Each row of a batch (N, …) of floats mixed in training with another one: :func:`mixup` of the inputs. The loss
    has to mix the targets with the same function.

    >>> net = nn.Sequential(nn.aug.Mixup(0.2), nn.Flatten(), nn.Linear(784, 10))
    >>> def loss(logits, labels):
    ...     return F.cross_entropy(logits, nn.aug.mixup(F.one_hot(labels, 10).float(), 0.2))
    >>> trainer = pullback.trainer(net, loss, "adam", example=x_train, targets=y_train)
    """

    def __init__(self, alpha: float = 0.2) -> None:
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
            raise ArgumentError(f"alpha must be a positive, finite number, got {alpha!r}")
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """The mixed rows."""
        return mixup(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Normalize(Module):
    """(x - mean) / std, in training and in inference.

    ``mean``, ``std``: a number, or one for each position of ``axis``, by default the channels of (N, C, …). Raises
    ArgumentError for a std that is 0 or a mean that is no number.

    >>> nn.aug.Normalize(0.2860, 0.3530)
    """

    def __init__(self, mean: Any, std: Any, axis: int = 1) -> None:
        self.mean, self.std, self.axis = _numbers("mean", mean), _numbers("std", std), axis
        if not (self.std > 0).all():
            raise ArgumentError(f"std must be above 0, got {std!r}")
        if len({v.size for v in (self.mean, self.std)} - {1}) > 1:
            raise ArgumentError(f"mean and std must have as many numbers, got {self.mean.size} and {self.std.size}")

    def forward(self, input: Any) -> Any:
        """The input, normalised."""
        rank = len(input.shape)
        if not -rank <= self.axis < rank:
            raise ShapeError(f"Normalize: axis {self.axis} is outside a tensor of rank {rank}")
        after = rank - 1 - self.axis % rank
        count = max(self.mean.size, self.std.size)
        if count > 1 and input.shape[self.axis] != count:
            raise ShapeError(f"Normalize: axis {self.axis} of {format_shape(input.shape)} must have size {count}")

        def along(values: np.ndarray) -> Any:
            return const(values.reshape(values.shape if values.ndim == 0 else (-1, *(1,) * after)), input.dtype)

        return (input - along(self.mean)) / along(self.std)

    def extra_repr(self) -> str:
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number, or one for each channel, got {value!r}") from None
    if array.ndim > 1 or array.size == 0 or not np.isfinite(array).all():
        raise ArgumentError(f"{name} must be a number, or one for each channel, got {value!r}")
    return array


__getattr__ = missing_from(globals())
