"""Operators that the table lacks, taken apart by PyTorch into those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pullback.relax.frontend import UnsupportedOps  # noqa: E402
from pullback.relax.frontend.torch import ATEN  # noqa: E402
from pullback.relax.frontend.torch.decompose import taken_apart  # noqa: E402
from pullback.relax.frontend.torch.program import TorchModel  # noqa: E402
from tests.relax.frontend.torch.aten_programs import P, R, Sample, case, compare, exported  # noqa: E402

LACKING = {  # operators that there is no converter for, and that PyTorch has a decomposition of
    "quantile": case(lambda x: torch.quantile(x, 0.3), R(7)),
    "linalg_matrix_norm": case(torch.linalg.matrix_norm, R(3, 3)),
    "vander": case(lambda x: torch.vander(x.detach()), P(3)),
    "trapezoid": case(torch.trapezoid, R(4)),
    "block_diag": case(torch.block_diag, R(2, 2), R(1, 2)),
    "special_ndtr": case(torch.special.ndtr, R(4)),
    "special_entr": case(torch.special.entr, P(4)),
}


def _apart(samples: Sequence[Sample]) -> Any:
    model = TorchModel(taken_apart(exported(samples).run_decompositions({})))
    model.graph = model.program.graph
    return model


def test_operators_without_a_converter_are_taken_apart() -> None:
    assert not any(ATEN.find(f"aten.{name}") for name in LACKING)
    found = compare({name: [sample] for name, sample in LACKING.items()}, model_of=_apart)
    assert not found & set(LACKING)


def test_the_others_stay_whole() -> None:
    program = exported([case(lambda x: torch.vander(torch.softmax(x, 0)), P(3))]).run_decompositions({})
    names = {str(n.target) for n in taken_apart(program).graph.nodes}
    assert "aten.softmax.int" in names
    assert not any("vander" in name for name in names)


def test_a_program_that_lacks_nothing_is_the_same() -> None:
    program = exported([case(torch.tanh, R(3))]).run_decompositions({})
    assert taken_apart(program) is program
    lacking = exported([case(torch.vander, P(3))]).run_decompositions({})
    assert taken_apart(lacking, ["aten.vander"]) is lacking  # converted by the user


def test_what_has_no_decomposition_is_still_named() -> None:
    program = exported([case(lambda x: torch.mode(x)[0], R(3))]).run_decompositions({})
    with pytest.raises(UnsupportedOps) as caught:
        TorchModel(taken_apart(program))
    assert caught.value.names == ("aten.mode.default",)
