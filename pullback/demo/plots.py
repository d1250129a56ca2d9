"""The demo's picture: how training went, and what the trained model says of some test images."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import UserError

ROWS, COLUMNS = 4, 6
TRAIN_COLOUR, TEST_COLOUR, ACCURACY_COLOUR = "#3b6fb6", "#d9822b", "#2e8b57"
RIGHT_COLOUR, WRONG_COLOUR = "#222222", "#c8102e"


class MatplotlibMissingError(UserError, ImportError):
    """The picture was asked for, but the optional package that draws it is not installed."""


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise a clear error at once, before any training, if the picture could not be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MatplotlibMissingError("the picture needs matplotlib", hint="pip install 'pullback[demo]'") from error


def save_training_picture(
    path: str | Path,
    history: Any,
    images: np.ndarray,
    predicted: np.ndarray,
    labels: np.ndarray,
    class_names: tuple[str, ...],
    title: str,
) -> None:
    """Write a PNG: left the curves over `history.epochs`, right a grid of `images` with predicted and true labels.

    `images` has one row of 784 values (or 28 x 28) an image; the first 24 are shown, wrong predictions in red.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 6.4), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=14, fontweight="bold")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.0, 1.45), wspace=0.02)[0]
    _draw_curves(left, history.epochs)
    _draw_images(right, np.reshape(images, (-1, 28, 28)), predicted, labels, class_names)
    figure.savefig(path, format="png")


def _draw_curves(figure: Any, epochs: list[Any]) -> None:
    loss_axes, accuracy_axes = figure.subplots(2, 1, sharex=True, height_ratios=(1.25, 1.0))
    numbers = list(range(1, len(epochs) + 1))
    _curve(loss_axes, numbers, [record.loss for record in epochs], TRAIN_COLOUR, "training")
    _curve(loss_axes, numbers, [record.validation_loss for record in epochs], TEST_COLOUR, "test")
    loss_axes.set_ylabel("mean loss")
    loss_axes.legend(frameon=False)

    accuracies = [record.validation_accuracy for record in epochs]
    _curve(accuracy_axes, numbers, accuracies, ACCURACY_COLOUR, "test")
    if accuracies and accuracies[-1] is not None:
        accuracy_axes.annotate(
            f"{accuracies[-1]:.2%}", (numbers[-1], accuracies[-1]), xytext=(0, 9), textcoords="offset points",
            ha="center", color=ACCURACY_COLOUR, fontweight="bold",
        )  # fmt: skip
    accuracy_axes.set_ylabel("test accuracy")
    accuracy_axes.set_xlabel("epoch")
    accuracy_axes.set_xticks(_epoch_ticks(len(numbers)))
    accuracy_axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}" if value <= 1 else "")
    accuracy_axes.margins(x=0.08, y=0.25)
    for axes in (loss_axes, accuracy_axes):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Any, numbers: list[int], values: list[float | None], colour: str, label: str) -> None:
    points = [(number, value) for number, value in zip(numbers, values, strict=True) if value is not None]
    if points:
        axes.plot(*zip(*points, strict=True), marker="o", markersize=5, linewidth=2, color=colour, label=label)


def _epoch_ticks(count: int) -> list[int]:
    step = max(1, -(-count // 10))
    return list(range(1, count + 1, step))


def _draw_images(
    figure: Any, images: np.ndarray, predicted: np.ndarray, labels: np.ndarray, class_names: tuple[str, ...]
) -> None:
    grid = figure.subplots(ROWS, COLUMNS)
    for index, axes in enumerate(grid.flat):
        axes.set_axis_off()
        if index >= len(images):
            continue
        axes.imshow(images[index], cmap="gray_r", vmin=0.0)
        guess, truth = int(predicted[index]), int(labels[index])
        if guess == truth:
            axes.set_title(class_names[guess], fontsize=9.5, color=RIGHT_COLOUR, pad=4)
        else:
            wrong = f"{class_names[guess]}\n(is {class_names[truth]})"
            axes.set_title(wrong, fontsize=9.5, color=WRONG_COLOUR, pad=4)
    figure.supxlabel("test images with the predicted class; wrong ones in red", fontsize=10, color="#555555")
