"""Every op says everything that is known of it."""

import importlib

import pytest

from pullback import relax, script
from pullback.ir.op import Op
from pullback.relax.op.sample import Domain, Sample
from tests.samples import all_ops


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_definition_is_complete(op: Op) -> None:
    for rule in ("infer", "numpy"):
        assert getattr(op, rule) is not None, f"{op.short} has no {rule} rule"
    assert op.te or op.kernel or op.decompose, (
        f"{op.short} can't be compiled: it has neither te nor kernel nor decompose"
    )
    assert not (op.te and op.kernel), f"{op.short} has a tensor expression and loops: which one is meant?"
    assert op.gradient or op.decompose or op.kernel, f"{op.short} has no gradient: no rule, no parts, no loops"
    assert op.doc.strip(), f"{op.short} has no documentation"
    assert op.family, f"{op.short} belongs to no family"
    assert isinstance(op.samples, Domain) or all(isinstance(s, Sample) for s in op.samples)
    assert op.samples, f"{op.short} has no samples"
    assert bool(op.check or op.constant_check) == bool(op.check_message), f"{op.short}: a check needs a message"


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_documentation_shows_the_signature(op: Op) -> None:
    first = op.__doc__.splitlines()[0]
    assert first.startswith(f"{op.short}(") and all(name in first for name in op.signature.attrs)


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_each_op_is_an_attribute(op: Op) -> None:
    """Of the package and of R, and ``from pullback.relax.op.nn import attention`` gives it too: a file of the package
    may have the op's name."""
    for found in (relax.op, script.relax):
        for part in op.short.split("."):
            found = getattr(found, part)
        assert found is op
    package, _, name = f"pullback.relax.op.{op.short}".rpartition(".")
    assert getattr(importlib.import_module(package), name) is op
