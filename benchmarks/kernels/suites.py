"""The kernels of each benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np

from benchmarks.kernels.case import Case, Convolution, MatMul, with_gradients
from benchmarks.kernels.elementwise import elementwise_cases
from benchmarks.models import MODELS
from benchmarks.models.resnet20 import ResNet20

RANDOM_COUNT = 200
GEMM = tuple(MatMul(None, 512, 512, 512, a, b) for a in (False, True) for b in (False, True))
ODD_GEMM = MatMul(None, 509, 383, 517)


def _resnet20() -> Iterator[Convolution]:
    """The different convolutions of ResNet-20 at batch 64."""
    model = MODELS["resnet20"]
    assert isinstance(model, ResNet20)
    for c in dict.fromkeys(conv._replace(name="") for conv in model.convs()):
        size = c.size * c.stride
        yield Convolution(
            None, model.batch, c.inputs, size, size, c.outputs, c.kernel, c.kernel, c.stride, c.kernel // 2
        )


LENET = (Convolution(None, 64, 1, 28, 28, 6, 5, 5, padding=2), Convolution(None, 64, 6, 14, 14, 16, 5, 5))
OTHERS = (
    Convolution(None, 8, 3, 112, 112, 32, 7, 7, 2, 3),
    Convolution(None, 8, 64, 56, 56, 64, 3, 3, padding=1),
    Convolution(None, 8, 64, 56, 56, 256, 1, 1),
    Convolution(None, 8, 256, 56, 56, 64, 1, 1),
    Convolution(None, 8, 128, 28, 28, 128, 3, 3, padding=1),
    Convolution(None, 8, 256, 14, 14, 256, 3, 3, padding=1),
    Convolution(None, 8, 512, 7, 7, 512, 3, 3, padding=1),
    Convolution(None, 8, 96, 28, 28, 96, 3, 3, padding=1, groups=96),
    Convolution(None, 8, 64, 28, 28, 64, 3, 3, padding=1, groups=4),
    Convolution(None, 8, 32, 28, 28, 32, 3, 3, padding=2, dilation=2),
    Convolution(None, 8, 48, 27, 31, 40, 5, 3, padding=1),
    Convolution(None, 1, 64, 56, 56, 64, 3, 3, padding=1),
)


def random_case(generator: np.random.Generator) -> Case:
    """A contraction drawn at random, of about a million to a billion multiply-adds: matmuls of odd, round, skinny,
    batched and transposed shapes, and convolutions of odd sizes, strided, dilated, grouped, and of few channels."""

    def between(low: int, high: int) -> int:
        """Small numbers as often as large ones."""
        return int(np.exp(generator.uniform(np.log(low), np.log(high + 1))))

    def chance(probability: float) -> bool:
        return bool(generator.random() < probability)

    while True:
        if chance(0.5):
            m, n, k = (between(1, 24) if chance(0.2) else between(16, 1024) for _ in range(3))
            if chance(0.25):  # those of models are round, and lines powers of two apart compete for the sets of caches
                m, n, k = (-(-size // 128) * 128 for size in (m, n, k))
            case: Case = MatMul(None, m, n, k, chance(0.5), chance(0.5), between(2, 32) if chance(0.3) else 0)
        else:
            few, kernel = chance(0.2), int(generator.choice([1, 3, 3, 3, 5, 7]))
            groups = between(2, 16) if chance(0.2) else 1
            ci, co = (groups * (between(1, 4) if few else between(4, max(4, 128 // groups))) for _ in range(2))
            h, w = between(7, 64), between(7, 64)
            dilation = 2 if chance(0.15) and kernel > 1 and 2 * kernel < min(h, w) else 1
            stride, padding = (2 if chance(0.25) else 1), kernel // 2 * dilation if chance(0.7) else 0
            case = Convolution(
                None, between(1, 32), ci, h, w, co, kernel, kernel, stride, padding, dilation, groups
            )  # fmt: skip
        if min(case.out_shape) > 0 and 2e6 < case.flops < 2e9:
            return case


def random_cases() -> list[Case]:
    generator = np.random.default_rng(2024)
    found: dict[str, Case] = {}  # round sizes come twice
    while len(found) < RANDOM_COUNT:
        case = random_case(generator)
        found.setdefault(case.label, case)
    return with_gradients(*found.values())


def neighbours(case: Case, *names: str) -> list[Case]:
    """The case, and each that differs by one in one dimension."""
    known = {f.name for f in fields(case)}
    assert known.issuperset(names)
    return [case, *(replace(case, **{n: getattr(case, n) + step}) for n in names for step in (-1, 1))]


def sensitivity_cases() -> list[list[Case]]:
    """Shapes of the benchmarks with their neighbours: one more or less in a dimension must not cost much."""
    matmuls = (GEMM[0], MatMul(None, 64, 128, 784), MatMul(None, 1024, 1152, 384))
    convs = [c for c in _resnet20() if c.stride == 1 and c.kh == 3][1:]
    groups = [neighbours(case, "m", "n", "k") for case in matmuls]
    return groups + [neighbours(case, "n", "ci", "h", "w", "co") for case in (*convs, LENET[1])]


SUITES: dict[str, Callable[[], list[Case]]] = {
    "gemm": lambda: [*GEMM, ODD_GEMM],
    "conv": lambda: with_gradients(*_resnet20(), *LENET, *OTHERS),
    "elementwise": lambda: list(elementwise_cases()),
    "random": random_cases,
    "sensitivity": lambda: [case for group in sensitivity_cases() for case in group],
}
