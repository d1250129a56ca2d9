"""ONNX's backend tests: by the interpreter, and a tenth of them compiled."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

pytest.importorskip("onnx")

from tests.relax.frontend.onnx import backend

PARTS = 40
NATIVE = 4


def part(k: int, parts: int, of: int = 1) -> Iterator[backend.Case]:
    """The tests of a part: those whose names have the checksum k; of these one in ``of``."""
    for name, case in backend.cases().items():
        checksum = zlib.crc32(name.encode())
        if checksum % parts == k and checksum // parts % of == 0:
            yield case


@pytest.mark.allowance(4)
@pytest.mark.parametrize("k", range(PARTS))
def test_results_and_refusals(k):
    expected = backend.failing()
    found = {case.name: (expected.get(case.name, ""), backend.outcome(case)) for case in part(k, PARTS)}
    assert found
    changed = {name: outcomes for name, outcomes in found.items() if outcomes[0] != outcomes[1]}
    assert not changed, "python -m tests.relax.frontend.onnx.backend writes failing.txt anew"


@pytest.mark.allowance(3)
@pytest.mark.parametrize("k", range(NATIVE))
def test_compiled(k):
    passing = [case for case in part(k, NATIVE, of=10) if case.name not in backend.failing()]
    found = {case.name: backend.outcome(case, native=True) for case in passing}
    assert found and not any(found.values()), {name: why for name, why in found.items() if why}


def test_share_of_those_that_pass():
    """At least 95 % of the tests of types that there are here, and none gives other numbers without a word."""
    failing = backend.failing()
    kept = [name for name in backend.cases() if not backend.is_outside(failing.get(name, ""))]
    failed = [name for name in kept if name in failing]
    assert set(failing) <= set(backend.cases())
    assert len(failed) <= 0.05 * len(kept)
    assert not [name for name, reason in failing.items() if reason.startswith("wrong")]
