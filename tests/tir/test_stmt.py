"""Kernels as nodes: what tells them apart."""

from pullback.tir import Buffer, PrimFunc, Stmt, loop, store
from pullback.tir.visitor import statements, walk


def kernel(name: str, n: int = 8, scale: float = 2.0) -> PrimFunc:
    x, y = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32")
    return PrimFunc(name, (x, y), loop("i", n, lambda i: store(y, i, x[i] * scale)))


def test_a_digest_is_of_what_a_kernel_computes():
    assert kernel("one").digest == kernel("two").digest
    assert len({kernel("k", n, scale).digest for n in (8, 9) for scale in (2.0, 3.0)}) == 4


def test_another_name_is_no_other_kernel():
    known, unknown = kernel("one"), kernel("one")
    digest = known.digest
    for function in (known, unknown):
        renamed = function.renamed("two")
        assert (renamed.name, renamed.body, renamed.params) == ("two", function.body, function.params)
        assert renamed.digest == digest
        assert function.name == "one"


def test_statements_are_found_without_their_expressions():
    body = kernel("k").body
    assert list(statements(body)) == [n for n in walk(body) if isinstance(n, Stmt)]
    assert len(list(statements(body))) == 2 < len(list(walk(body)))
