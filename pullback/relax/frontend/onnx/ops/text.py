"""Counts of sequences of tokens, and what there is not here: strings and optional values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import static
from pullback.relax.frontend.onnx.ops.shapes import rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX

_STRINGS = "tensors cannot have strings"
_SEQUENCES = "values are tensors, not sequences of them"
_OPTIONAL = "values are tensors, which are always there"
ONNX.refuse(
    {
        **dict.fromkeys(("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch"), _STRINGS),
        **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), _OPTIONAL),
        "ImageDecoder": "files of images are read before a model is run",
        **dict.fromkeys(
            ("ai.onnx.ml.CategoryMapper", "ai.onnx.ml.DictVectorizer", "ai.onnx.ml.CastMap"), _STRINGS
        ),
        "ai.onnx.ml.ZipMap": _SEQUENCES,
        **dict.fromkeys(
            ("ai.onnx.ml.TreeEnsemble", "ai.onnx.ml.TreeEnsembleClassifier", "ai.onnx.ml.TreeEnsembleRegressor"),
            "trees have no gradient",
        ),
    }
)  # fmt: skip


@ONNX.register("TfIdfVectorizer")
def tf_idf_vectorizer(
    x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Any,
    ngram_indexes: Any, pool_int64s: Any = None, pool_strings: Any = None, weights: Any = None,
) -> Any:  # fmt: skip
    """How often each of the pool's n-grams occurs in each row, with up to so many tokens left out between two."""
    if pool_int64s is None:
        raise UserError(f"the pool has strings: {_STRINGS}")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ArgumentError(f"mode={mode!r} is not known")
    rows = op.expand_dims(x, 0) if rank_of(x) == 1 else x
    (length,) = static(shape_of(rows)[1:], "the number of tokens")
    counts = _counts(rows, length, _grams(pool_int64s, ngram_counts), min_gram_length, max_gram_length, max_skip_count)
    width = max(ngram_indexes) + 1
    places = np.zeros((len(ngram_indexes), width), np.float32)
    places[np.arange(len(ngram_indexes)), ngram_indexes] = 1
    factors = np.ones(len(ngram_indexes), np.float32) if weights is None else np.asarray(weights, np.float32)
    if mode == "IDF":
        counts = op.astype(op.greater(counts, const(0.0)), "float32")
    found = op.matmul(counts, const(places if mode == "TF" else places * factors[:, None]))
    return op.squeeze(found, [0]) if rank_of(x) == 1 else found


def _grams(pool: Any, starts: Any) -> list[tuple[int, ...]]:
    """The n-grams of a pool: those of one token first."""
    ends = [*starts[1:], len(pool)]
    found: list[tuple[int, ...]] = []
    for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        found += [tuple(pool[k : k + n]) for k in range(start, end, n)]
    return found


def _counts(x: Any, length: int, grams: list[tuple[int, ...]], least: int, most: int, skips: int) -> Any:
    """How often each n-gram occurs in each row: (rows, n-grams), float32."""
    columns: dict[tuple[int, ...], Any] = {}
    zero = op.zeros((shape_of(x)[0], 1), "float32")
    for n in {len(g) for g in grams}:
        chosen = [g for g in grams if len(g) == n]
        total: Any = None
        for apart in range(1, (skips if n > 1 else 0) + 2):
            windows = length - (n - 1) * apart
            if windows < 1 or not least <= n <= most:
                continue
            places = np.arange(windows)[:, None] + np.arange(n)[None] * apart
            found = op.expand_dims(op.take(x, const(places), 1), 2)  # (rows, windows, 1, n)
            hits = op.all(op.equal(found, const(np.asarray(chosen), x.struct_info.dtype)), 3)
            part = op.sum(op.astype(hits, "float32"), 1)
            total = part if total is None else op.add(total, part)
        for k, gram in enumerate(chosen):
            columns[gram] = zero if total is None else op.strided_slice(total, [1], [k], [k + 1])
    return op.concat([columns[g] for g in grams], 1)
