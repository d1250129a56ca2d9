"""Einstein's sums: products of tensors summed over named axes, and outer, dot and tensordot, which are some of them.

    einsum([x, y], "bij,bjk->ik")   →   permute_dims and reshape to (rows, sum) and (sum, columns), one matmul

An axis has a *label*. A sum is taken apart operand by operand, from left to right: what only one of two operands has
and nobody needs is summed before, then the pair is one matmul with its common axes that are still needed as batch, or a
product by element where nothing is summed.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    normalize_axis,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_dim, format_shape
from pullback.tir.polynomial import same

Labels = tuple[Hashable, ...]


class _Term(NamedTuple):
    """A tensor whose axes have distinct labels."""

    value: Any
    labels: Labels


# -- contraction of labelled tensors


def contract(values: Sequence[Any], labels: Sequence[Labels], output: Labels) -> Any:
    """Σ of the product of the values over all labels that are not in ``output``; an axis of size 1 broadcasts."""
    sizes = _sizes([v.shape for v in values], labels)
    terms = [_simplified(_Term(v, own), sizes) for v, own in zip(values, labels, strict=True)]
    result, *rest = (_summed(t, _needed(terms[:k] + terms[k + 1 :], output)) for k, t in enumerate(terms))
    for k, term in enumerate(rest):
        result = _paired(result, term, _needed(rest[k + 1 :], output))
    return _arranged(_summed(result, set(output)), output)


def _sizes(shapes: Sequence[Sequence[Dim]], labels: Sequence[Labels]) -> dict[Hashable, Dim]:
    """The size of each label: that of its axes, of which some may be 1."""
    sizes: dict[Hashable, Dim] = {}
    for shape, own in zip(shapes, labels, strict=True):
        for label, size in zip(own, shape, strict=True):
            if label not in sizes or (isinstance(sizes[label], int) and sizes[label] == 1):
                sizes[label] = size
    return sizes


def _needed(terms: Sequence[_Term], output: Labels) -> set[Hashable]:
    return set(output).union(*(t.labels for t in terms))


def _simplified(term: _Term, sizes: dict[Hashable, Dim]) -> _Term:
    """The term without axes that only broadcast, and with the diagonal of axes of one label."""
    value, labels = term
    alone = [a for a, label in enumerate(labels) if same(value.shape[a], 1) and not same(sizes[label], 1)]
    if alone:
        value = ops.squeeze(value, alone)
        labels = tuple(label for a, label in enumerate(labels) if a not in alone)
    for label, times in Counter(labels).items():
        for _ in range(times - 1):
            value, labels = _diagonal(value, labels, label)
    return _Term(value, labels)


def _diagonal(value: Any, labels: Labels, label: Hashable) -> tuple[Any, Labels]:
    """The first two axes of a label made one, the last: every (n + 1)-th element of both flattened; for a symbolic n,
    the sum along rows of all but the diagonal masked."""
    first = labels.index(label)
    second = labels.index(label, first + 1)
    others = [a for a in range(len(labels)) if a not in (first, second)]
    n = value.shape[first]
    lead = [value.shape[a] for a in others]
    square = _permuted(value, [*others, first, second])
    if isinstance(n, int):
        flat = ops.reshape(square, (*lead, n * n))
        value = ops.strided_slice(flat, [-1], [0], [n * n], [n + 1])
    else:
        row = ops.arange(0, n, 1, "int64")
        on = ops.equal(ops.expand_dims(row, 0), ops.expand_dims(row, 1))
        value = ops.sum(masked(on, square), -1)
    return value, (*(labels[a] for a in others), label)


def _summed(term: _Term, needed: set[Hashable]) -> _Term:
    """The term summed over the axes that nobody needs."""
    axes = [a for a, label in enumerate(term.labels) if label not in needed]
    if not axes:
        return term
    return _Term(ops.sum(term.value, axes), tuple(label for label in term.labels if label in needed))


def _paired(x: _Term, y: _Term, needed: set[Hashable]) -> _Term:
    """The product of two terms, summed over the labels that nobody needs."""
    x, y = _summed(x, needed.union(y.labels)), _summed(y, needed.union(x.labels))
    common = [label for label in x.labels if label in y.labels]
    batch = [label for label in common if label in needed]
    inner = [label for label in common if label not in needed]
    left = [label for label in x.labels if label not in common]
    right = [label for label in y.labels if label not in common]
    labels = (*batch, *left, *right)
    if not inner:
        a, b = _arranged(x, (*batch, *left)), _arranged(y, (*batch, *right))
        rank = len(labels)
        a = ops.expand_dims(a, list(range(rank - len(right), rank))) if right else a
        b = ops.expand_dims(b, list(range(len(batch), len(batch) + len(left)))) if left else b
        return _Term(a * b, labels)
    size = dict(zip(x.labels, x.value.shape, strict=True)) | dict(zip(y.labels, y.value.shape, strict=True))
    lead, rows, columns = ([size[label] for label in part] for part in (batch, left, right))
    k = _count(size[label] for label in inner)
    a = _reshaped(_arranged(x, (*batch, *left, *inner)), [*lead, _count(rows), k])
    b = _reshaped(_arranged(y, (*batch, *inner, *right)), [*lead, k, _count(columns)])
    return _Term(_reshaped(ops.matmul(a, b), [*lead, *rows, *columns]), labels)


def _count(sizes: Any) -> Dim:
    return math.prod(sizes, start=1)


def _arranged(term: _Term, order: Sequence[Hashable]) -> Any:
    return _permuted(term.value, [term.labels.index(label) for label in order])


def _permuted(value: Any, axes: Sequence[int]) -> Any:
    return value if list(axes) == list(range(len(axes))) else ops.permute_dims(value, list(axes))


def _reshaped(value: Any, shape: Sequence[Dim]) -> Any:
    unchanged = len(shape) == len(value.shape) and all(map(same, shape, value.shape))
    return value if unchanged else ops.reshape(value, tuple(shape))


def _check_contraction(name: str, infos: Sequence[TensorStructInfo], labels: Sequence[Labels]) -> None:
    """The operands are numbers of one dtype, and the axes of a label agree."""
    shapes = [known_shape(name, info, f"operand {k}") for k, info in enumerate(infos)]
    for k, info in enumerate(infos):
        expect_dtype(name, info, "number", f"operand {k}")
    expect_same_dtype(name, *infos)
    sizes = _sizes(shapes, labels)
    for k, (shape, own) in enumerate(zip(shapes, labels, strict=True)):
        for label, size in zip(own, shape, strict=True):
            if not same(size, sizes[label]) and not same(size, 1):
                axis = f"'{label}'" if isinstance(label, str) else "an axis of the ellipsis"
                first, second = format_dim(sizes[label]), format_dim(size)
                raise ShapeError(f"{name}: {axis} has the sizes {first} and {second} (operand {k})")
            if own.count(label) > 1 and not same(size, shape[own.index(label)]):
                raise ShapeError(
                    f"{name}: a diagonal of the shape {format_shape(shape)} needs equal sizes (operand {k})"
                )


# -- einsum


def parse(subscripts: Any, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of the operands' axes and of the result's. The axes of an ellipsis have numbers as labels, counted
    from its end."""
    if not isinstance(subscripts, str):
        raise UserError(f'einsum: subscripts must be a string such as "ij,jk->ik", got {subscripts!r}')
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise UserError(f"einsum: {subscripts!r} is for {len(parts)} operands, got {len(ranks)}")
    labels = [_labels(subscripts, part, rank) for part, rank in zip(parts, ranks, strict=True)]
    hidden = sorted({label for own in labels for label in own if isinstance(label, int)})
    if arrow:
        output = _expanded(subscripts, right, hidden)
        if len(set(output)) != len(output):
            raise UserError(f"einsum: the result of {subscripts!r} names one axis twice")
        unknown = [label for label in output if not any(label in own for own in labels)]
        if unknown:
            raise UserError(f"einsum: {unknown[0]!r} of the result of {subscripts!r} is in no operand")
    else:
        counts = Counter(label for own in labels for label in own if isinstance(label, str))
        output = (*hidden, *sorted(label for label, times in counts.items() if times == 1))
    return labels, output


def _labels(subscripts: str, part: str, rank: int) -> Labels:
    letters = len(part.replace("...", ""))
    hidden = rank - letters
    if hidden < 0 or (hidden > 0 and "..." not in part):
        raise ShapeError(f"einsum: {part!r} of {subscripts!r} names {letters} axes, the operand has rank {rank}")
    return _expanded(subscripts, part, range(-hidden, 0))


def _expanded(subscripts: str, part: str, hidden: Sequence[int]) -> Labels:
    """The letters of a part, with numbers in place of the ellipsis."""
    before, ellipsis, after = part.partition("...")
    if any(c not in string.ascii_letters for c in before + after):
        raise UserError(f"einsum: {subscripts!r} may hold letters, commas, '...' and '->' only")
    return (*before, *(hidden if ellipsis else ()), *after)


def _einsum_check(*operands: TensorStructInfo, subscripts: str) -> None:
    if not operands:
        raise UserError("einsum: there must be at least one operand")
    ranks = [len(known_shape("einsum", info, f"operand {k}")) for k, info in enumerate(operands)]
    _check_contraction("einsum", operands, parse(subscripts, ranks)[0])


def _einsum(*operands: Any, subscripts: str, **_: Any) -> Any:
    return contract(operands, *parse(subscripts, [len(x.shape) for x in operands]))


def _einsum_array(*operands: np.ndarray, subscripts: str) -> np.ndarray:
    """NumPy's einsum, with an explicit result: it takes numbers in place of letters."""
    labels, output = parse(subscripts, [x.ndim for x in operands])
    numbers = {label: k for k, label in enumerate(dict.fromkeys(label for own in labels for label in own))}
    sizes = _sizes([x.shape for x in operands], labels)
    arguments: list[Any] = []
    for x, own in zip(operands, labels, strict=True):
        kept = [a for a, label in enumerate(own) if x.shape[a] == sizes[label]]
        arguments += [x.reshape([x.shape[a] for a in kept]), [numbers[own[a]] for a in kept]]
    return np.asarray(np.einsum(*arguments, [numbers[label] for label in output]), operands[0].dtype)


composite(
    "einsum",
    "operands* | subscripts",
    expect=_einsum_check,
    decompose=_einsum,
    numpy=in_wide(_einsum_array),
    precision="low",
    family="matmul",
    doc='The product of tensors, summed over the axes whose letters the result does not have: "ij,jk->ik" is matmul.\n'
    "Without '->' the result has the letters that occur once, in alphabetical order. A letter twice in one operand\n"
    "takes its diagonal; '...' stands for axes that broadcast. Pairs are taken from left to right. NumPy's einsum.",
    samples=[
        sample((3, 4), (4, 5), subscripts="ij,jk->ik"),
        sample((3, 4), (4, 5), subscripts="ij, jk"),
        sample((2, 3, 4), (2, 4, 5), subscripts="bij,bjk->bik"),
        sample((2, 3, 4), (2, 4, 5), subscripts="bij,bjk->kbi"),
        sample((2, 3, 4, 5), (2, 6, 4, 5), subscripts="bqhd,bkhd->bhqk"),
        sample((3, 4), subscripts="ij->ji"),
        sample((3, 4), subscripts="ij->"),
        sample((3, 4, 2), subscripts="ijk->k"),
        sample((3, 3), subscripts="ii"),
        sample((3, 3), subscripts="ii->i"),
        sample((2, 3, 2, 3), subscripts="ijij->ji"),
        sample((3, 3, 3), (3,), subscripts="iii,i->i"),
        sample((3,), (4,), subscripts="i,j->ij"),
        sample((3,), (3,), subscripts="i,i"),
        sample((3,), (3,), subscripts="i,i->i"),
        sample((3, 4), (3, 4), subscripts="ij,ij->i"),
        sample((3, 4), (5,), subscripts="ij,k->k"),
        sample((2, 3, 4), (5, 3), (4, 6), subscripts="bij,ki,jl->bkl"),
        sample((3,), (3,), (3,), subscripts="i,i,i->"),
        sample((2, 3), (3, 4), (4, 5), (5, 2), subscripts="ab,bc,cd,da->"),
        sample((2, 5, 3, 4), (5, 4, 2), subscripts="...ij,...jk->...ik"),
        sample((5, 3, 4), (2, 1, 4, 2), subscripts="...ij,...jk"),
        sample((3, 4, 2), subscripts="i...->...i"),
        sample((2, 3, 4), subscripts="...i->i"),
        sample((1, 4), (3, 4), subscripts="ij,ij->ij"),
        sample((0, 4), (4, 3), subscripts="ij,jk->ik"),
        sample((3, 0), (0, 2), subscripts="ij,jk->ik"),
        sample((), (3,), subscripts=",i->i"),
        sample(Ints((3, 4), -9, 9), Ints((4, 2), -9, 9), subscripts="ij,jk->ik"),
    ],
)

# -- outer, dot, tensordot


def _vectors_check(name: str) -> Any:
    def check(x: TensorStructInfo, y: TensorStructInfo) -> None:
        for label, info in (("x", x), ("y", y)):
            shape = known_shape(name, info, label)
            if len(shape) != 1:
                raise ShapeError(f"{name}: {label} must have rank 1, got {format_shape(shape)}")
            expect_dtype(name, info, "number", label)
        expect_same_dtype(name, x, y)
        if name == "dot" and not same(x.sizes[0], y.sizes[0]):
            raise ShapeError(f"dot: the shapes {format_shape(x.shape)} and {format_shape(y.shape)} differ")

    return check


composite(
    "outer",
    "x, y",
    expect=_vectors_check("outer"),
    decompose=lambda x, y, **_: contract([x, y], [("i",), ("j",)], ("i", "j")),
    numpy=in_wide(np.outer),
    precision="low",
    family="matmul",
    doc="x[i] · y[j] of two vectors.",
    samples=[
        sample((3,), (4,)),
        sample((1,), (17,)),
        sample((33,), (2,)),
        sample((0,), (3,)),
        sample(Ints((3,), -5, 5), Ints((2,), -5, 5)),
    ],
)
composite(
    "dot",
    "x, y",
    expect=_vectors_check("dot"),
    decompose=lambda x, y, **_: ops.matmul(x, y),
    numpy=in_wide(np.dot),
    precision="low",
    family="matmul",
    doc="Σᵢ x[i] · y[i] of two vectors.",
    samples=[
        sample((3,), (3,)),
        sample((129,), (129,)),
        sample((1,), (1,)),
        sample((0,), (0,)),
        sample(Ints((3,), -5, 5), Ints((3,), -5, 5)),
    ],
)


def _summed_axes(x: Any, y: Any, axes: Any) -> tuple[list[int], list[int]]:
    """The axes of x and of y that are summed in pairs, counted from the front."""
    m, n = len(x.shape), len(y.shape)
    if isinstance(axes, int) and not isinstance(axes, bool):
        if not 0 <= axes <= min(m, n):
            raise ShapeError(f"tensordot: axes={axes} of tensors of rank {m} and {n}")
        return list(range(m - axes, m)), list(range(axes))
    if not isinstance(axes, (list, tuple)) or len(axes) != 2:
        raise UserError(f"tensordot: axes must be a number or two lists of axes, got {axes!r}")
    first, second = (a if isinstance(a, (list, tuple)) else (a,) for a in axes)
    left = [normalize_axis("tensordot", a, m) for a in first]
    right = [normalize_axis("tensordot", a, n) for a in second]
    if len(left) != len(right) or len({*left}) != len(left) or len({*right}) != len(right):
        raise ShapeError(f"tensordot: axes must be pairs of distinct axes, got {axes!r}")
    return left, right


def _tensordot_labels(x: Any, y: Any, axes: Any) -> tuple[list[Labels], Labels]:
    left, right = _summed_axes(x, y, axes)
    own = [f"x{a}" for a in range(len(x.shape))]
    other = [own[left[right.index(a)]] if a in right else f"y{a}" for a in range(len(y.shape))]
    output = [label for a, label in enumerate(own) if a not in left]
    return [tuple(own), tuple(other)], (*output, *(label for a, label in enumerate(other) if a not in right))


def _tensordot_check(x: TensorStructInfo, y: TensorStructInfo, *, axes: Any) -> None:
    a, b = known_shape("tensordot", x, "x"), known_shape("tensordot", y, "y")
    left, right = _summed_axes(x, y, axes)
    if not all(same(a[i], b[j]) for i, j in zip(left, right, strict=True)):
        raise ShapeError(
            f"tensordot: the shapes {format_shape(a)} and {format_shape(b)} differ in the summed axes"
            f" {tuple(left)} and {tuple(right)}"
        )
    _check_contraction("tensordot", (x, y), _tensordot_labels(x, y, axes)[0])


composite(
    "tensordot",
    "x, y | axes=2",
    expect=_tensordot_check,
    decompose=lambda x, y, *, axes, **_: contract([x, y], *_tensordot_labels(x, y, axes)),
    numpy=in_wide(lambda x, y, axes: np.tensordot(x, y, axes)),
    precision="low",
    family="matmul",
    doc="Σ x · y over the last ``axes`` axes of x and the first of y, or over the pairs of axes of two lists;\n"
    "the result has the other axes of x, then those of y. NumPy's tensordot.",
    samples=[
        sample((2, 3, 4), (3, 4, 5)),
        sample((3, 4), (4, 5), axes=1),
        sample((3,), (4, 2), axes=0),
        sample((2, 3, 4), (4, 5, 2), axes=((0, 2), (2, 0))),
        sample((2, 3), (5, 3), axes=((-1,), (1,))),
        sample((2, 3), (2, 3), axes=2),
        sample((0, 3), (3, 2), axes=1),
    ],
)
