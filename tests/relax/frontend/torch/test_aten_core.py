"""The core operators of ATen, all of them: converted, with samples, or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

torch = pytest.importorskip("torch")

from pullback.relax.frontend.torch import ATEN  # noqa: E402
from tests.relax.frontend.torch.aten_layer_samples import DERIVATIVES, LAYERS  # noqa: E402
from tests.relax.frontend.torch.aten_programs import Sample, compare, groups  # noqa: E402
from tests.relax.frontend.torch.aten_samples import SAMPLES  # noqa: E402

CORE_OF_2_13 = 164


@pytest.mark.parametrize("named", groups(LAYERS))
def test_layers_are_those_of_pytorch(named: Mapping[str, Sequence[Sample]]) -> None:
    assert set(named) <= compare(named)


@pytest.mark.parametrize("named", groups(DERIVATIVES))
def test_derivatives_are_those_of_pytorch(named: Mapping[str, Sequence[Sample]]) -> None:
    assert set(named) <= compare(named)


def _core() -> dict[str, list[str]]:
    """The names of core operators, each with its overloads."""
    found: dict[str, list[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::"):
            continue
        name, _, overload = full.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, name), overload or "default", None)
        if operator is not None and torch.Tag.core in operator.tags:
            found.setdefault(name, []).append(f"aten.{name}.{overload or 'default'}")
    return found


def _mutates(overload: str) -> bool:
    """Whether it writes into an argument: exported programs have none of these."""
    _, name, which = overload.split(".")
    return getattr(getattr(torch.ops.aten, name), which)._schema.is_mutable


def test_every_core_operator_is_in_the_table() -> None:
    core = _core()
    if torch.__version__.startswith("2.13"):
        assert len(core) == CORE_OF_2_13
    missing = [o for name, overloads in core.items() for o in overloads
               if ATEN.find(o, f"aten.{name}") is None and not _mutates(o)]  # fmt: skip
    assert not missing
    refused = {name for name in core if (found := ATEN.find(f"aten.{name}")) is not None and found.function is None}
    assert len(core) - len(refused) >= 150
    assert all(ATEN.find(f"aten.{name}").reason for name in refused)  # type: ignore[union-attr]


#: core operators that a program has as it is exported only in other forms, or whose values nothing promises
WITHOUT_SAMPLES = {"_local_scalar_dense", "sym_numel"}


def test_every_core_operator_that_is_converted_has_samples() -> None:
    converted = {name for name in _core() if (found := ATEN.find(f"aten.{name}")) is None or found.function is not None}
    assert converted - {*SAMPLES, *LAYERS, *DERIVATIVES} == WITHOUT_SAMPLES
