"""What is timed: every side computes the same, shown on tiny models and kernels."""

from __future__ import annotations

import pytest

from benchmarks.kernels.case import Case, Convolution, MatMul, with_gradients
from benchmarks.kernels.elementwise import CHANNELS, FORMS, Elementwise
from benchmarks.kernels.gradient import gradient_module
from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.models.chargpt import CharGPT
from benchmarks.models.lenet import LeNet
from benchmarks.models.mlp import MLP
from benchmarks.models.recurrent import GRU, LSTM
from benchmarks.models.resnet20 import ResNet20
from benchmarks.workers import kernels_numpy, kernels_pullback, kernels_torch, model_pullback, model_torch

STEPS = 4
TINY: tuple[Model, ...] = (
    MLP(sizes=(7, 5, 3), batch=4),
    LeNet(channels=(2, 3), widths=(8, 6), batch=3),
    ResNet20(width=2, blocks=1, size=8, batch=3),
    CharGPT(layers=1, width=6, heads=2, length=5, batch=2, vocabulary=7),
    LSTM(length=5, batch=3, inputs=4, hidden=6),
    GRU(length=5, batch=3, inputs=4, hidden=6),
)


@pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)
def test_same_training_as_torch(model: Model) -> None:
    eager = model_torch.step_of(model, "eager")
    expected = [eager() for _ in range(STEPS)]
    ours = model_pullback.trainer_step(model, legalize=False)
    assert [ours() for _ in range(STEPS)] == pytest.approx(expected, rel=1e-4)


def test_flops_agree_with_torch() -> None:
    """PyTorch counts what its ops cost, but for attention, of which it counts what lies above the diagonal too."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    for model in MODELS.values():
        if isinstance(model, CharGPT):
            continue
        step = model_torch.step_of(model, "eager")
        with FlopCounterMode(display=False) as counter, torch.backends.mkldnn.flags(enabled=False):
            step()  # whose LSTM is one op, of which PyTorch counts nothing
        assert counter.get_total_flops() == model.flops(), model.name


def test_a_backward_kernel_reads_what_the_forward_pass_keeps() -> None:
    """Values of each row or channel, for norms; nothing where none is kept, and nothing as large as an array."""
    kept = {}
    for name, form in FORMS.items():
        if form.wrt is not None:
            case = Elementwise(form.wrt, name, "L2", 2)
            functions = gradient_module(case).functions
            kept[name] = [p.struct_info.shape for p in functions["main"].params[len(case.shapes) + 1 :]]
            assert ("saved" in functions) == bool(kept[name])
    rows, channels = (2, 1), (1, CHANNELS, 1, 1)
    assert kept.pop("layer norm, backward") == [rows] * 3
    assert kept.pop("batch norm, backward") == [channels] * 3
    assert set(map(tuple, kept.values())) == {()}


KERNELS: list[Case] = [
    *with_gradients(MatMul(None, 3, 5, 4), MatMul(None, 3, 5, 4, True, True), MatMul(None, 3, 5, 4, True, False, 2)),
    *(Elementwise(form.wrt, name, "L2", 2) for name, form in FORMS.items()),
]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.label)
def test_same_kernel_as_torch(case: Case) -> None:
    expected = kernels_torch.timed(case)
    ours = kernels_pullback.timed(case)
    assert ours.norms == pytest.approx(expected.norms, rel=1e-4)
    assert ours.seconds() > 0
    if isinstance(case, MatMul) and case.wrt is None:
        assert kernels_numpy.timed(case).norms == pytest.approx(expected.norms, rel=1e-4)


@pytest.mark.parametrize("wrt", [None, 0, 1])
def test_same_convolution_as_torch(wrt: int | None) -> None:
    case = Convolution(wrt, 2, 4, 9, 8, 6, 3, 3, stride=2, padding=2, dilation=2, groups=2)
    assert kernels_pullback.timed(case).norms == pytest.approx(kernels_torch.timed(case).norms, rel=1e-4)
