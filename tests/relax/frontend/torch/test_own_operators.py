"""Operators that users define, and what is said of those that cannot be converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pullback.ir.errors import ArgumentError, InternalError, UserError  # noqa: E402
from pullback.relax import op  # noqa: E402
from pullback.relax.frontend import UnsupportedOps, register_converter  # noqa: E402
from pullback.relax.frontend.torch import ATEN  # noqa: E402
from pullback.relax.frontend.torch.program import TorchModel  # noqa: E402
from tests.relax.frontend.torch.aten_programs import R, case, compare  # noqa: E402


@pytest.fixture(autouse=True)
def _table_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds goes with it."""
    monkeypatch.setattr(ATEN, "_table", dict(ATEN._table))


@pytest.fixture(scope="module")
def scaled_relu() -> Iterator[Any]:
    """``pullback_tests::scaled_relu(x, scale)``: an operator with a gradient."""

    @torch.library.custom_op("pullback_tests::scaled_relu", mutates_args=())
    def scaled_relu(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x.clamp(min=0.0) * scale

    @scaled_relu.register_fake
    def _(x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.empty_like(x)

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * (x > 0) * ctx.scale, None

    def setup(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    scaled_relu.register_autograd(backward, setup_context=setup)
    yield scaled_relu


class _Calls(torch.nn.Module):
    def __init__(self, *functions: Any) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor) -> Any:
        return tuple(f(x) for f in self.functions)


def model_of(*functions: Any) -> TorchModel:
    return TorchModel(torch.export.export(_Calls(*functions), (torch.ones(3, 4),)))


def test_an_operator_of_the_user_is_converted_as_he_says(scaled_relu: Any) -> None:
    @register_converter("torch", "pullback_tests.scaled_relu")
    def convert(x: Any, scale: float) -> Any:
        return op.nn.relu(x) * scale

    samples = [case(lambda x: scaled_relu(x, 2.5), R(2, 3)), case(lambda x: scaled_relu(x, -1.0), R(3))]
    assert "scaled_relu" in compare({"scaled_relu": samples})


def test_a_converter_of_the_user_comes_before_that_of_the_table() -> None:
    calls = []

    @register_converter("torch", "aten.tanh")
    def convert(x: Any) -> Any:
        calls.append(x)
        return op.tanh(x)

    compare({"tanh": [case(torch.tanh, R(2, 3))]})
    assert len(calls) == 1


def test_all_missing_operators_are_named_with_their_places(scaled_relu: Any) -> None:
    def spectrum(x: Any) -> Any:
        return torch.fft.rfft(x).abs()

    with pytest.raises(UnsupportedOps) as caught:
        model_of(spectrum, lambda x: scaled_relu(x, 1.0), lambda x: scaled_relu(x, 2.0), torch.sin)
    error = caught.value
    assert error.names == ("aten.fft_rfft.default", "pullback_tests.scaled_relu.default")
    assert "2 operators of the torch model cannot be converted" in error.message
    assert "aten.fft_rfft.default (there are no complex numbers here)" in error.message
    places = [line for line in error.message.splitlines() if "scaled_relu" in line]
    assert len(places) == 1
    assert places[0].count("test_own_operators.py") == 1  # both calls are of one line
    assert 'register_converter("torch", "aten.fft_rfft.default")' in str(error.hint)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.nonzero(x), "the size of its result depends on the data"),
        (lambda x: torch.as_strided(x, (2, 2), (1, 2)), "it asks how a tensor lies in memory"),
        (lambda x: torch.masked_select(x, x > 0), "the size of its result depends on the data"),
    ],
)
def test_the_reason_is_told(function: Any, reason: str) -> None:
    with pytest.raises(UnsupportedOps, match=reason):
        model_of(function)


@pytest.mark.parametrize("result", [lambda x: op.astype(x, "float64"), lambda x: op.expand_dims(x, 0)])
def test_a_converter_of_another_type_is_found_where_it_stands(scaled_relu: Any, result: Any) -> None:
    register_converter("torch", "pullback_tests.scaled_relu")(lambda x, scale: result(x))
    model = model_of(lambda x: scaled_relu(x, 1.0))
    with pytest.raises(InternalError, match=r"pullback_tests\.scaled_relu\.default"):
        model.export(*model.example)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.ops.aten.index_put(x, [x > 0], torch.ones(12)), "by a mask cannot be converted"),
        (
            lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 1]), 0, output_size=4),
            "a size that depends on the data",
        ),
    ],
)
def test_what_depends_on_the_data_is_refused_at_its_place(function: Any, message: str) -> None:
    model = model_of(function)
    with pytest.raises(UserError, match=message) as caught:
        model.export(*model.example)
    assert caught.value.span is not None and "test_own_operators.py" in str(caught.value.span)


def test_unknown_sources_are_named() -> None:
    with pytest.raises(ArgumentError, match="no source 'tensorflow'") as caught:
        register_converter("tensorflow", "Relu")
    assert "torch, onnx, keras" in str(caught.value.hint)


def test_a_second_line_of_the_table_for_one_operator_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"there is a converter of aten\.tanh already"):
        ATEN.same({"aten.tanh": op.tanh})
