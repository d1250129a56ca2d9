"""The page of ONNX's operators is the table, and what its definition of status says."""

from __future__ import annotations

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from pullback.relax.frontend.onnx import catalogue  # noqa: E402
from tests.relax.frontend.onnx import backend  # noqa: E402  it needs onnx

PAGE = Path(__file__).resolve().parents[4] / "docs" / "frontends" / "onnx.md"


@pytest.mark.skipif(onnx.__version__.split(".")[:2] != ["1", "23"], reason="the page is that of onnx 1.23")
def test_page(request):
    failing = backend.failing()
    outside = sum(map(backend.is_outside, failing.values()))
    text = catalogue.markdown(len(backend.cases()), failing.items(), outside)
    if request.config.getoption("--update-golden"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "pytest tests/relax/frontend/onnx/test_page.py --update-golden"


def test_every_operator_has_a_status():
    counts = catalogue.counts()
    assert counts["converted"] > 180
    assert counts["by its definition"] > 10
    assert set(counts) <= {"converted", "by its definition", "refused", "not converted"}
