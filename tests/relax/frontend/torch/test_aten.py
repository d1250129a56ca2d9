"""ATen's operators against PyTorch: see aten_programs.py for how, aten_samples.py for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

torch = pytest.importorskip("torch")

from pullback.relax.frontend.torch import ATEN  # noqa: E402
from tests.relax.frontend.torch.aten_programs import AsWritten, I, Sample, case, compare, groups, native  # noqa: E402
from tests.relax.frontend.torch.aten_samples import SAMPLES, WRITTEN  # noqa: E402


@pytest.mark.parametrize("named", groups(SAMPLES))
def test_values_and_gradients_are_those_of_pytorch(named: Mapping[str, Sequence[Sample]]) -> None:
    assert set(named) <= compare(named)


@pytest.mark.parametrize("named", groups(WRITTEN))
def test_operators_that_export_takes_apart(named: Mapping[str, Sequence[Sample]]) -> None:
    assert set(named) <= compare(named, model_of=AsWritten)


def test_every_sample_is_of_an_operator_in_the_table() -> None:
    known = {c.name.split(".")[1] for c in ATEN if c.function is not None}
    assert {*SAMPLES, *WRITTEN} <= known


NATIVE = (  # of each kind one or two, in machine code: the other tests run the interpreter
    "add", "div", "where", "clamp", "_softmax", "sum", "var", "max", "view", "slice", "index", "index_put",
    "scatter_add", "masked_scatter", "sort", "cumsum", "cummax", "baddbmm", "_to_copy", "linspace",
)  # fmt: skip


@pytest.mark.parametrize("named", groups({name: SAMPLES[name] for name in NATIVE}, 5))
def test_machine_code_gives_the_same(named: Mapping[str, Sequence[Sample]]) -> None:
    assert set(named) <= compare(named, native)


def test_another_default_dtype_is_that_of_numbers() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        samples = [case(lambda x: x / 3, I(4)), case(lambda x: x * 0.5 + torch.zeros(4), I(4))]
        assert "div" in compare({"div": samples})
    finally:
        torch.set_default_dtype(before)
