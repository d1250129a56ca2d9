"""PyTorch's own samples of its operators, through ours: values and gradients. OP_DB=all takes all samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pullback.relax.op import catalogue
from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.compare import compare
from tests.relax.op.op_db.database import ENTRIES
from tests.relax.op.op_db.table import reasons
from tests.relax.op.op_db.translations import TABLE


@pytest.mark.parametrize("name", TABLE)
def test_entry(name: str) -> None:
    report = compare(name, os.environ.get("OP_DB") == "all")
    assert not report.failures, "\n\n".join(report.failures)
    assert report.compared and report.native
    assert report.called.issuperset(TABLE[name][0]), "the table names ops that no call tries"


def test_there_are_as_many_entries_as_promised() -> None:
    assert len(TABLE) >= 150


def test_what_is_not_in_the_table_has_a_reason() -> None:
    lists = reasons()
    tried = {op for names, _ in TABLE.values() for op in names}
    known = {entry.name for entry in catalogue.entries()}
    assert tried <= known
    assert {n for n in ENTRIES if n not in TABLE} == set(lists["theirs"]), "say why in reasons.txt"
    assert known - tried == set(lists["ours"]), "translate it, or say why not in reasons.txt"


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "value": ("sin", ops.cos),
    "gradient": ("sin", replace(ops.sin, gradient=lambda dy, y, x: (dy * ops.sin(x),))),
    "shape": ("trace", lambda x: ops.sum(ops.diagonal(x), keepdims=True)),
    "rounding in float64": ("exp", lambda x: ops.astype(ops.astype(ops.exp(x), "float32"), x.dtype)),
    "rounding in float32": ("exp", lambda x: ops.exp(x) if x.dtype == "float64" else ops.exp(x) * 1.00001),
    "integers": ("add", lambda x, y, alpha=1: ops.add(x, ops.multiply(y, alpha)) + int(x.dtype == "int64")),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_op_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = WRONG[kind]
    monkeypatch.setitem(TABLE, name, (TABLE[name][0], wrong))
    assert compare(name).failures
