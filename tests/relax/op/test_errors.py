"""Calls that do not fit: the class of the error and its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir.errors import ArgumentError, CallError, DTypeError, ShapeError, UserError
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var, const
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.script import from_source


def var(shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


X, Y = var((3, 4)), var((3, 5))
K, B, S = var((3,), "int64"), var((3, 4), "bool"), var(())
I = var((3, 4), "int64")  # noqa: E741
UNKNOWN, SIZE = var(None), tir.Var("n")

SHAPES: dict[str, tuple[Callable[[], Expr], str]] = {
    "slice_scatter shape": (lambda: ops.slice_scatter(X, X, end=1), r"slice_scatter: src must have the shape \(1,"),
    "slice_scatter step": (lambda: ops.slice_scatter(X, X, step=0), "slice_scatter: step must be positive, got 0"),
    "reverse_sequence axes": (lambda: ops.reverse_sequence(X, K, 0, 0), "seq_axis and batch_axis are both 0"),
    "hamming_window": (lambda: ops.hamming_window(0), "hamming_window: window_size must be positive, got 0"),
    "eye_like": (lambda: ops.eye_like(K), "eye_like: x must be a matrix, it has the shape"),
    "median": (lambda: ops.median(var((0,))), "median of no elements"),
    "median of an axis": (lambda: ops.median(var((3, 0)), -1), "median of no elements"),
    "median axis": (lambda: ops.median(X, 2), "median: axis 2 is outside a tensor of rank 2"),
    "topk": (lambda: ops.topk(X, 0), "topk: k must be from 1 to"),
    "searchsorted": (
        lambda: ops.searchsorted(ops.zeros((2, 2, 2), "float32"), X),
        "sorted_sequence must have one axis",
    ),
    "unknown shape": (
        lambda: ops.exp(UNKNOWN),
        r"exp: its argument must be a tensor of known shape, got Tensor\(\(\?\)",
    ),
    "broadcast": (lambda: X + Y, r"add: the shapes \(3, 4\) and \(3, 5\) do not broadcast"),
    "where": (lambda: ops.where(B, Y, Y), r"where: the shapes \(3, 4\) and \(3, 5\) and \(3, 5\) do not broadcast"),
    "axis": (lambda: ops.sum(X, axis=2), "sum: axis 2 is outside a tensor of rank 2"),
    "axis twice": (lambda: ops.mean(X, axis=(0, -2)), r"mean: the axes \(0, -2\) name one axis twice"),
    "empty max": (lambda: ops.max(var((0, 3)), axis=0), "max of no elements: axis 0 has size 0"),
    "empty argmin": (lambda: ops.argmin(var((0, 3))), "argmin of no elements"),
    "matmul": (lambda: ops.matmul(X, Y), r"matmul: the shapes \(3, 4\) and \(3, 5\) do not fit"),
    "matmul of a scalar": (lambda: ops.matmul(X, S), r"must have rank 1 or more, got \(3, 4\) and \(\)"),
    "matmul batch": (
        lambda: ops.matmul(var((2, 3, 4)), var((5, 4, 3))),
        r"the shapes \(2,\) and \(5,\) do not broadcast",
    ),
    "linear": (lambda: ops.linear(X, Y), r"linear: x of shape \(3, 4\) does not fit weight of shape \(3, 5\)"),
    "linear bias": (lambda: ops.linear(X, X, var((4,))), r"linear: bias must have the shape \(3,\), got \(4,\)"),
    "reshape": (lambda: ops.reshape(X, (5, 2)), r"\(3, 4\) and \(5, 2\) differ in their number of elements"),
    "reshape -1": (lambda: ops.reshape(X, (5, -1)), r"\(3, 4\) has 12 elements: no size fits \(5, -1\)"),
    "reshape two -1": (lambda: ops.reshape(X, (-1, -1)), "only one size may be -1"),
    "squeeze": (lambda: ops.squeeze(X, 0), r"squeeze: axis 0 of the shape \(3, 4\) does not have size 1"),
    "permutation": (lambda: ops.permute_dims(X, (0, 0)), r"axes \(0, 0\) is no permutation of the 2 axes"),
    "broadcast_to": (lambda: ops.broadcast_to(X, (3, 5)), r"broadcast_to: the shapes \(3, 4\) and \(3, 5\)"),
    "broadcast_to fewer": (lambda: ops.broadcast_to(X, (4,)), r"\(3, 4\) does not broadcast to \(4,\)"),
    "collapse": (lambda: ops.collapse_sum_to(X, (2, 4)), r"the shapes \(3, 4\) and \(2, 4\) do not broadcast"),
    "collapse more": (lambda: ops.collapse_sum_like(X, var((1, 3, 4))), r"\(3, 4\) is no broadcast of \(1, 3, 4\)"),
    "concat": (lambda: ops.concat([X, Y]), r"concat: the shapes \(3, 4\), \(3, 5\) differ outside axis 0"),
    "stack": (lambda: ops.stack([X, Y]), r"stack: the shapes \(3, 4\), \(3, 5\) differ"),
    "split": (lambda: ops.split(X, 0), "split: the number of sections must be positive, got 0"),
    "split indices": (lambda: ops.split(X, [2, 1]), r"indices must be ascending and not negative, got \(2, 1\)"),
    "slice": (lambda: ops.strided_slice(X, [0], [0], [1, 2]), "strided_slice: 1 axes need as many begins, ends and"),
    "slice stride": (lambda: ops.strided_slice(X, [0], [0], [1], [0]), "a stride cannot be 0"),
    "slice axis twice": (lambda: ops.strided_slice(X, [0, -2], [0, 0], [1, 1]), "name one axis twice"),
    "pad": (lambda: ops.nn.pad(X, (1, 1)), "pad_width must hold before and after of each of the 2 axes"),
    "pad negative": (lambda: ops.nn.pad(X, (1, 1, -1, 0)), "pad_width cannot be negative"),
    "pad reflect": (
        lambda: ops.nn.pad(X, (0, 0, 0, 4), "reflect"),
        "nn.pad: reflect padding of 4 of an axis of size 4: at most 3",
    ),
    "pad circular": (lambda: ops.nn.pad(X, (4, 0, 0, 0), "circular"), "circular padding of 4 of an axis of size 3: at"),
    "pad nothing": (lambda: ops.nn.pad(var((0,)), (1, 0), "replicate"), "an axis of size 0 has nothing to repeat"),
    "dilate": (lambda: ops.nn.dilate(X, (0, 1)), r"nn.dilate: strides must be 2 positive numbers, got \(0, 1\)"),
    "chunk": (lambda: ops.chunk(X, 0), "chunk: the number of chunks must be positive, got 0"),
    "chunk of n": (lambda: ops.chunk(var((SIZE, 2)), 2), "chunk: the size of axis 0 says how many results there are"),
    "unbind": (lambda: ops.unbind(var((0, 2))), "unbind: an axis of size 0 has no slices"),
    "roll": (lambda: ops.roll(X, (1, 2), 0), r"roll: 1 axes need as many shifts, got \(1, 2\)"),
    "roll axis": (lambda: ops.roll(X, 1, 2), "roll: axis 2 is outside a tensor of rank 2"),
    "diagonal": (lambda: ops.diagonal(X, 0, 1, -1), "diagonal: axis1 and axis2 are both axis 1"),
    "diagonal rank": (lambda: ops.diagonal(K), "diagonal: axis 1 is outside a tensor of rank 1"),
    "meshgrid": (lambda: ops.meshgrid([X, X]), r"meshgrid: the tensors must have rank 1, got the shapes \(3, 4\)"),
    "expand": (lambda: ops.expand(X, (-1, 3, 4)), r"expand: a new axis needs a size, got \(-1, 3, 4\)"),
    "expand fewer": (lambda: ops.expand(X, (4,)), r"expand: \(3, 4\) has more axes than \(4,\)"),
    "dynamic slice": (
        lambda: ops.dynamic_strided_slice(K, var((1,), "int64"), K, K),
        "begin must be a constant: the shape of the result depends on its values",
    ),
    "dynamic slice rank": (
        lambda: ops.dynamic_strided_slice(K, const([0, 0], "int64"), K, K),
        r"begin must have the shape \(1,\), got \(2,\)",
    ),
    "pixel shuffle": (
        lambda: ops.nn.pixel_shuffle(var((1, 6, 2, 2)), 2),
        "nn.pixel_shuffle: the channels of x, 6, must be a multiple of 4",
    ),
    "pixel shuffle rank": (lambda: ops.nn.pixel_shuffle(X, 1), r"x must have the axes \(…, C, H, W\), got the shape"),
    "pixel unshuffle": (
        lambda: ops.nn.pixel_unshuffle(var((1, 6, 2, 3)), 2),
        "nn.pixel_unshuffle: the width of x, 3, must be a multiple of 2",
    ),
    "depth_to_space": (
        lambda: ops.nn.depth_to_space(var((1, 6, 2, SIZE)), 0),
        "nn.depth_to_space: block_size must be positive, got 0",
    ),
    "space_to_depth": (
        lambda: ops.nn.space_to_depth(var((1, 6, 2, SIZE)), 2),
        "nn.space_to_depth: the width of x, n, must be a multiple of 2",
    ),
    "ravel": (lambda: ops.ravel_multi_index([K], (2, 3)), "an index for each of the 2 sizes, got 1"),
    "ravel nothing": (
        lambda: ops.ravel_multi_index([K], (0,)),
        "axis 0 has size 0: it has no index",
    ),
    "gather_elements": (
        lambda: ops.gather_elements(X, var((3, 5), "int64")),
        r"gather_elements: indices of shape \(3, 5\) do not fit data of shape \(3, 4\)",
    ),
    "gather_elements axis": (lambda: ops.gather_elements(X, I, 2), "axis 2 is outside a tensor of rank 2"),
    "gather_nd": (
        lambda: ops.gather_nd(X, var((2, 3), "int64")),
        "gather_nd: the last axis of indices names 3 axes, data have 2",
    ),
    "gather_nd batch": (
        lambda: ops.gather_nd(X, var((2, 1), "int64"), 1),
        r"gather_nd: the batch axes of data and indices differ: \(3,\) and \(2,\)",
    ),
    "gather_nd batch_dims": (lambda: ops.gather_nd(X, I, 2), "gather_nd: batch_dims 2 must be 0 … 1"),
    "index_tensor": (lambda: ops.index_tensor(X, [K, K, K]), "data of rank 2 need 1 to 2 indices, got 3"),
    "index_tensor shapes": (
        lambda: ops.index_tensor(X, [K, var((2,), "int64")]),
        r"index_tensor: the shapes \(3,\) and \(2,\) do not broadcast",
    ),
    "scatter_elements": (
        lambda: ops.scatter_elements(X, I, Y),
        r"scatter_elements: updates must have the shape \(3, 4\), got \(3, 5\)",
    ),
    "scatter_nd": (
        lambda: ops.scatter_nd(X, var((2, 1), "int64"), X),
        r"scatter_nd: updates must have the shape \(2, 4\), got \(3, 4\)",
    ),
    "index_put": (
        lambda: ops.index_put(X, [K], Y),
        r"index_put: values of shape \(3, 5\) do not broadcast|the shapes \(3, 5\) and \(3, 4\) do not broadcast",
    ),
    "segments": (
        lambda: ops.segment_reduce(X, var((4,), "int64"), 2),
        r"segments must have the shape \(n,\) of axis 0 of x, or the shape of x, got \(4,\) and \(3, 4\)",
    ),
    "resize": (lambda: ops.image.resize2d(var((1, 2, 3, 4)), (5,)), "image.resize2d: size must be an int or 2 ints"),
    "resize empty": (
        lambda: ops.image.resize1d(var((1, 2, 0)), 5),
        r"\(1, 2, 0\) is empty along its axis W",
    ),
    "rotary": (
        lambda: ops.nn.rotary_embedding(X, var((1, 3)), var((1, 3))),
        "nn.rotary_embedding: cos has 3 angles, x 4 elements",
    ),
    "rotary sin": (
        lambda: ops.nn.rotary_embedding(X, var((1, 2)), var((2, 2))),
        r"cos and sin must have one shape, got \(1, 2\) and \(2, 2\)",
    ),
    "embedding": (lambda: ops.nn.embedding(K, X, 3), "nn.embedding: padding_idx 3 is no row of the 3"),
    "grid": (
        lambda: ops.image.grid_sample(var((2, 1, 3, 4)), var((2, 5, 5, 2))),
        r"grid must have the shape \(N, 2, H, W\) with the data's N, got \(2, 5, 5, 2\)",
    ),
    "affine grid": (
        lambda: ops.image.affine_grid(var((2, 3, 3)), 4),
        r"image.affine_grid: data must have the shape \(N, 2, 3\) or \(N, 3, 4\), got \(2, 3, 3\)",
    ),
    "lp_pool": (
        lambda: ops.nn.lp_pool2d(var((1, 1, 3, 3)), pool_size=4),
        r"nn.lp_pool2d: a window that spans \(4, 4\) is larger than the padded data",
    ),
    "global pool": (lambda: ops.nn.global_avg_pool2d(X), "nn.global_avg_pool2d: data must have rank 4"),
    "tile": (lambda: ops.tile(X, -1), "tile: repeats cannot be negative"),
    "repeat": (lambda: ops.repeat(X, -1), "repeat: repeats cannot be negative"),
    "take": (lambda: ops.take(X, K), "take: a tensor of rank 2 needs an axis"),
    "take of nothing": (lambda: ops.take(var((0, 2)), K, 0), "axis 0 of x has size 0: there is nothing to take"),
    "triangle": (lambda: ops.tril(K), "tril: expected a tensor of rank 2 or more, got rank 1"),
    "full": (lambda: ops.full((2,), X), r"full: fill_value must have shape \(\), got"),
    "full_like": (lambda: ops.full_like(X, X), r"full_like: fill_value must have shape \(\)"),
    "size": (lambda: ops.zeros((-1,)), "a size cannot be negative: -1"),
    "targets": (lambda: ops.nn.nll_loss(X, var((4,), "int64")), r"targets must have the shape \(3,\), got \(4,\)"),
    "weights": (
        lambda: ops.nn.nll_loss(X, K, var((3,))),
        r"nn.nll_loss: weights must have the shape \(4,\), got \(3,\)",
    ),
    "labels": (lambda: ops.nn.cross_entropy_with_logits(X, Y), "predictions and labels must have one shape"),
    "loss": (
        lambda: ops.nn.mse_loss(X, Y),
        r"predictions and targets must have the same shape, got \(3, 4\) and \(3, 5",
    ),
    "loss weight": (lambda: ops.nn.binary_cross_entropy(X, X, Y), r"shapes \(3, 4\) and \(3, 5\) do not broadcast"),
    "loss weight larger": (
        lambda: ops.nn.binary_cross_entropy_with_logits(X, X, var((2, 3, 4))),
        r"a weight of shape \(2, 3, 4\) does not broadcast to \(3, 4\)",
    ),
    "variance": (lambda: ops.nn.gaussian_nll_loss(X, X, Y), r"shapes \(3, 4\) and \(3, 5\) do not broadcast"),
    "einsum": (lambda: ops.einsum([X, Y], "ij,jk"), r"einsum: 'j' has the sizes 4 and 3 \(operand 1\)"),
    "einsum rank": (lambda: ops.einsum([X], "ijk"), "'ijk' of 'ijk' names 3 axes, the operand has rank 2"),
    "einsum without ellipsis": (lambda: ops.einsum([X], "i->i"), "'i' of 'i->i' names 1 axes, the operand has rank 2"),
    "einsum diagonal": (lambda: ops.einsum([X], "ii"), "einsum: 'i' has the sizes 3 and 4"),
    "einsum broadcast": (
        lambda: ops.einsum([X, Y], "i...,i...->i..."),
        "an axis of the ellipsis has the sizes 4 and 5",
    ),
    "einsum diagonal of 1": (lambda: ops.einsum([var((1, 3))], "ii"), r"a diagonal of the shape \(1, 3\) needs equal"),
    "outer": (lambda: ops.outer(X, X), r"outer: x must have rank 1, got \(3, 4\)"),
    "dot": (lambda: ops.dot(var((3,)), var((4,))), r"dot: the shapes \(3,\) and \(4,\) differ"),
    "tensordot": (lambda: ops.tensordot(X, Y, 1), r"\(3, 4\) and \(3, 5\) differ in the summed axes \(1,\) and \(0,\)"),
    "tensordot axes": (lambda: ops.tensordot(X, Y, 3), "tensordot: axes=3 of tensors of rank 2 and 2"),
    "tensordot pairs": (lambda: ops.tensordot(X, X, ((0, 1), (0,))), "axes must be pairs of distinct axes"),
    "norm": (lambda: ops.norm(var((3, 0)), float("inf"), 1), "norm of order inf of no elements: axis 1 has size 0"),
    "norm axis": (lambda: ops.norm(X, axis=2), "norm: axis 2 is outside a tensor of rank 2"),
    "any": (lambda: ops.any(X, axis=2), "any: axis 2 is outside a tensor of rank 2"),
    "cosine": (
        lambda: ops.nn.cosine_embedding_loss(X, X, var((4,))),
        r"nn.cosine_embedding_loss: targets must have the shape \(3,\), got \(4,\)",
    ),
    "cosine rank": (lambda: ops.nn.cosine_embedding_loss(S, S, S), r"x1 must have the shape \(N, D\) or \(D,\), got"),
    "cosine axis": (
        lambda: ops.nn.cosine_similarity(X, X, 2),
        "cosine_similarity: axis 2 is outside a tensor of rank 2",
    ),
    "triplet": (
        lambda: ops.nn.triplet_margin_loss(X, X, Y),
        "anchor and positive and negative must have the same shape",
    ),
    "multi margin": (
        lambda: ops.nn.multi_margin_loss(X, var((4,), "int64")),
        r"must have the shape \(3,\), got \(4,\)",
    ),
    "multi margin rank": (lambda: ops.nn.multi_margin_loss(var((2, 3, 4)), K), r"shape \(N, C\) or \(C,\), got \(2, 3"),
    "multi margin weights": (lambda: ops.nn.multi_margin_loss(X, K, var((3,))), r"shape \(4,\), got \(3,\)"),
    "multilabel": (lambda: ops.nn.multilabel_margin_loss(X, K), r"targets must have the shape \(3, 4\), got \(3,\)"),
    "multilabel rank": (lambda: ops.nn.multilabel_margin_loss(S, S.astype("int64")), r"\(N, C\) or \(C,\), got \(\)"),
    "multilabel soft": (lambda: ops.nn.multilabel_soft_margin_loss(S, S), "must have an axis of classes, got a scalar"),
    "multilabel weights": (
        lambda: ops.nn.multilabel_soft_margin_loss(X, X, var((3,))),
        r"weights must have the shape \(4,\), got \(3,\)",
    ),
    "probabilities": (
        lambda: ops.nn.cross_entropy(X, Y),
        r"nn.cross_entropy: probabilities must have the shape \(3, 4\), got \(3, 5\)",
    ),
    "gamma": (lambda: ops.nn.layer_norm(X, S, S), r"gamma must have the shape \(4,\) of the axes, got \(\)"),
    "rms": (lambda: ops.nn.rms_norm(X, var((3,))), r"weight must have the shape \(4,\) of the axes, got \(3,\)"),
    "prelu": (lambda: ops.nn.prelu(X, var((3,))), r"weight must have the shape \(4,\) or \(1,\), got \(3,\)"),
    "prelu axis": (lambda: ops.nn.prelu(K.astype("float32"), var((3,))), "prelu: axis 1 is outside a tensor of rank 1"),
    "glu": (lambda: ops.nn.glu(Y), "nn.glu: axis -1 must have an even size that is known, got 5"),
    "softmin axis": (lambda: ops.nn.softmin(X, 2), "nn.softmin: axis 2 is outside a tensor of rank 2"),
    "softmax axis": (lambda: ops.nn.softmax(X, 2), "nn.softmax: axis 2 is outside a tensor of rank 2"),
}
DTYPES: dict[str, tuple[Callable[[], Expr], str]] = {
    "reverse_sequence": (lambda: ops.reverse_sequence(X, X), "seq_lengths must have an integer dtype, got float32"),
    "argsort": (lambda: ops.argsort(X, dtype="float32"), "argsort: indices are int32 or int64, not 'float32'"),
    "unary": (lambda: ops.exp(K), "exp: its argument must have a floating-point dtype, got int64"),
    "unary number": (lambda: -B, "negative: its argument must have a numeric dtype, got bool"),
    "unary bool": (lambda: ops.logical_not(X), "logical_not: its argument must have a bool dtype, got float32"),
    "mixed": (lambda: X + var((3, 4), "float64"), "operands must have the same dtype, got float32 and float64"),
    "divide": (lambda: K / K, "divide: the operands must have a floating-point dtype, got int64\nhint: R.floor_divide"),
    "float scalar": (lambda: K * 2.5, "multiply: the Python number 2.5 does not fit the int64 tensor beside it"),
    "bitwise": (lambda: ops.bitwise_and(X, X), "bitwise_and: its argument must have an integer or bool dtype"),
    "shift": (lambda: ops.left_shift(B, B), "left_shift: its argument must have an integer dtype, got bool"),
    "fmod": (lambda: ops.fmod(B, B), "fmod: its argument must have a numeric dtype, got bool"),
    "hypot": (lambda: ops.hypot(K, K), "hypot: its argument must have a floating-point dtype, got int64"),
    "erfinv": (lambda: ops.erfinv(K), "erfinv: its argument must have a floating-point dtype, got int64"),
    "clip": (lambda: ops.clip(K, 0.5, 1), "clip: min=0.5 does not fit the int64 tensor"),
    "astype": (lambda: X.astype("float33"), "astype: unknown dtype 'float33'"),
    "mean": (lambda: ops.mean(K), "mean: its argument must have a floating-point dtype, got int64"),
    "sum": (lambda: ops.sum(B), "sum: its argument must have a numeric dtype, got bool"),
    "condition": (lambda: ops.where(X, X, X), "where: the condition must have a bool dtype, got float32"),
    "indices": (lambda: ops.take(X, X, 0), "take: indices must have an integer dtype, got float32"),
    "gather_nd": (lambda: ops.gather_nd(X, X), "gather_nd: indices must have an integer dtype, got float32"),
    "index_tensor": (
        lambda: ops.index_tensor(X, [S]),
        "index_tensor: an index must have an integer dtype",
    ),
    "scatter_nd": (
        lambda: ops.scatter_elements(X, I, I, 0, "add"),
        "scatter_elements: the operands must have the same dtype, got float32 and int64",
    ),
    "scatter mean": (
        lambda: ops.scatter_elements(I, I, I, 0, "mean"),
        "scatter_elements: the mean is of floating-point numbers, got int64",
    ),
    "resize": (
        lambda: ops.image.resize1d(var((1, 2, 3), "uint8"), 5),
        "image.resize1d: data of method 'linear' must have a floating-point dtype, got uint8",
    ),
    "embedding": (lambda: ops.nn.embedding(X, X), "nn.embedding: indices must have an integer dtype, got float32"),
    "one_hot": (lambda: ops.one_hot(X, 1.0, 0.0, 3), "one_hot: indices must have an integer dtype"),
    "one_hot values": (lambda: ops.one_hot(K, 1.0, 0, 3), "on_value and off_value have different dtypes, float32 and"),
    "concat": (lambda: ops.concat([X, B]), "concat: the operands must have the same dtype, got float32 and bool"),
    "full": (lambda: ops.full((2,), 0.5, "int32"), "full: the Python float 0.5 cannot become int32"),
    "targets": (lambda: ops.nn.nll_loss(X, S), "nn.nll_loss: targets must have an integer dtype, got float32"),
    "relu6": (lambda: ops.nn.relu6(B), "nn.relu6: its argument must have a numeric dtype, got bool"),
    "elu": (lambda: ops.nn.elu(K), "nn.elu: its argument must have a floating-point dtype, got int64"),
    "prelu": (lambda: ops.nn.prelu(X, var((1,), "float64")), "nn.prelu: the operands must have the same dtype, got"),
    "glu": (lambda: ops.nn.glu(K), "nn.glu: its argument must have a floating-point dtype, got int64"),
    "loss": (lambda: ops.nn.l1_loss(X, X.astype("float64")), "nn.l1_loss: the operands must have the same dtype, got"),
    "loss of integers": (lambda: ops.nn.huber_loss(K, K), "predictions must have a floating-point dtype, got int64"),
    "einsum": (
        lambda: ops.einsum([X, K], "ij,i"),
        "einsum: the operands must have the same dtype, got float32 and int64",
    ),
    "einsum of truth": (lambda: ops.einsum([B], "ij"), "einsum: operand 0 must have a numeric dtype, got bool"),
    "outer": (lambda: ops.outer(K, K.astype("float32")), "outer: the operands must have the same dtype"),
    "norm": (lambda: ops.norm(K), "norm: its argument must have a floating-point dtype, got int64"),
    "logsumexp": (lambda: ops.logsumexp(K), "logsumexp: its argument must have a floating-point dtype, got int64"),
    "matmul": (lambda: ops.matmul(X, var((4, 2)), out_dtype="float33"), "unknown dtype 'float33'"),
    "multilabel": (lambda: ops.nn.multilabel_margin_loss(X, X), "targets must have an integer dtype, got float32"),
    "multi margin": (lambda: ops.nn.multi_margin_loss(X, var((3,))), "targets must have an integer dtype, got float32"),
    "cosine": (
        lambda: ops.nn.cosine_embedding_loss(X, X, var((3,), "bool")),
        "targets must have a numeric dtype, got bool",
    ),
    "softmax": (lambda: ops.nn.softmax(K), "nn.softmax: its argument must have a floating-point dtype"),
}
VALUES: dict[str, tuple[Callable[[], Expr], str]] = {
    "reduction": (lambda: ops.nn.nll_loss(X, K, reduction="avg"), "must be one of 'mean', 'sum', 'none', got 'avg'"),
    "take mode": (lambda: ops.take(X, K, 0, "near"), "mode must be one of 'raise', 'fast', 'clip', 'wrap', got 'near'"),
    "pad mode": (
        lambda: ops.nn.pad(K, (1, 1), "mirror"),
        "nn.pad: pad_mode must be one of 'constant', 'reflect', 'replicate', 'circular', got 'mirror'",
    ),
    "concat": (lambda: ops.concat([]), "concat: there must be at least one tensor"),
    "arange": (lambda: ops.arange(0, 5, 0), "arange: the step cannot be 0"),
    "topk result": (lambda: ops.topk(X, ret_type="all"), "one of 'both', 'values', 'indices', got 'all'"),
    "linear_recurrence": (lambda: ops.linear_recurrence(ops.zeros((1,), "float32"), X), "a and b must have one shape"),
    "hardtanh": (lambda: ops.nn.hardtanh(X, 1.0, 1.0), "min_val must be below max_val, got 1.0 and 1.0"),
    "celu": (lambda: ops.nn.celu(X, 0.0), "nn.celu: alpha cannot be 0"),
    "hardshrink": (lambda: ops.nn.hardshrink(X, -1.0), "nn.hardshrink: lambd cannot be negative, got -1.0"),
    "softshrink": (lambda: ops.nn.softshrink(X, -1.0), "nn.softshrink: lambd cannot be negative, got -1.0"),
    "threshold": (lambda: ops.nn.threshold(X, None, 1.0), "nn.threshold: threshold must be a number, got None"),
    "nan_to_num": (lambda: ops.nan_to_num(X, posinf="big"), "nan_to_num: posinf must be a number, got 'big'"),
    "loss": (lambda: ops.nn.mse_loss(X, X, "avg"), "must be one of 'mean', 'sum', 'none', got 'avg'"),
    "kl_div": (lambda: ops.nn.kl_div(X, X, "avg"), "one of 'mean', 'sum', 'none', 'batchmean', got 'avg'"),
    "delta": (lambda: ops.nn.huber_loss(X, X, delta=0.0), "nn.huber_loss: delta must be positive, got 0.0"),
    "beta": (lambda: ops.nn.smooth_l1_loss(X, X, beta=-1.0), "beta cannot be negative, got -1.0"),
    "eps": (lambda: ops.nn.gaussian_nll_loss(X, X, X, eps=0.0), "nn.gaussian_nll_loss: eps must be positive, got 0.0"),
    "einsum operands": (lambda: ops.einsum([X], "ij,jk"), "einsum: 'ij,jk' is for 2 operands, got 1"),
    "einsum of nothing": (lambda: ops.einsum([], ""), "einsum: there must be at least one operand"),
    "einsum result": (lambda: ops.einsum([X], "ij->ik"), "'k' of the result of 'ij->ik' is in no operand"),
    "einsum twice": (lambda: ops.einsum([X], "ij->ii"), "the result of 'ij->ii' names one axis twice"),
    "einsum characters": (lambda: ops.einsum([X], "i1"), "'i1' may hold letters, commas, '...' and '->' only"),
    "einsum string": (lambda: ops.einsum([X], 3), 'subscripts must be a string such as "ij,jk->ik", got 3'),
    "tensordot": (lambda: ops.tensordot(X, X, "all"), "axes must be a number or two lists of axes, got 'all'"),
    "norm": (lambda: ops.norm(X, float("nan")), "norm: ord must be a number, got nan"),
    "multi margin": (lambda: ops.nn.multi_margin_loss(X, K, p=3), "nn.multi_margin_loss: p must be 1 or 2, got 3"),
    "triplet": (lambda: ops.nn.triplet_margin_loss(X, X, X, p=0.0), "triplet_margin_loss: p must be positive, got 0.0"),
    "smoothing": (lambda: ops.nn.cross_entropy(X, K, label_smoothing=1.5), "must be a number from 0 to 1, got 1.5"),
    "ignored": (lambda: ops.nn.cross_entropy(X, X, ignore_index=1), "ignore_index=1 needs targets that are class"),
    "roll": (lambda: ops.roll(X, 1.5), "roll: shifts without an axis must be an int, got 1.5"),
    "meshgrid": (lambda: ops.meshgrid([K], "yx"), "meshgrid: indexing must be 'ij' or 'xy', got 'yx'"),
    "depth_to_space": (
        lambda: ops.nn.depth_to_space(var((1, 4, 2, 2)), 2, mode="RCD"),
        "nn.depth_to_space: mode must be 'DCR' or 'CRD', got 'RCD'",
    ),
    "gather mode": (lambda: ops.gather_elements(X, I, 0, "nearest"), "gather_elements: mode must be one of 'raise'"),
    "scatter reduction": (
        lambda: ops.scatter_nd(X, var((3, 1), "int64"), X, "sum"),
        "scatter_nd: reduction must be one of 'update', 'add', 'mul', 'mean', 'max', 'min', got 'sum'",
    ),
    "index list": (lambda: ops.index_tensor(X, K), "index_tensor: indices must be a list of tensors"),
    "index missing": (lambda: ops.index_put(X, [K]), "index_put: argument 'values' is missing"),
    "resize": (
        lambda: ops.image.resize2d(var((1, 2, 3, 4)), 5, method="bicubic"),
        "image.resize2d: method must be one of 'nearest_neighbor', 'linear', 'cubic', got 'bicubic'",
    ),
    "resize roi": (
        lambda: ops.image.resize1d(var((1, 2, 3)), 5, 0.5),
        r"\(roi\) and its extrapolation_value are not",
    ),
    "grid": (
        lambda: ops.image.grid_sample(var((2, 1, 3, 4)), var((2, 2, 5, 5)), padding_mode="edge"),
        "image.grid_sample: padding_mode must be one of 'zeros', 'border', 'reflection', got 'edge'",
    ),
    "grid of volumes": (
        lambda: ops.image.grid_sample(var((2, 1, 3, 4, 5)), var((2, 3, 5, 5, 5)), "bicubic", "NCDHW"),
        "image.grid_sample: method 'bicubic' is for images of 2 axes, got 3",
    ),
    "lp_pool": (lambda: ops.nn.lp_pool1d(var((1, 1, 3)), 0.0), "norm_type must be positive and finite, got 0.0"),
    "polygamma": (lambda: ops.polygamma(X, -1), "polygamma: n must be from 0 to 20, got -1"),
    "polygamma of a float": (lambda: ops.polygamma(X, 1.0), "polygamma: n must be an int, got 1.0"),
    "clip": (lambda: ops.clip(X, None, 1.0), "clip: min must be a number, got None"),
    "full": (lambda: ops.full((2,), "one"), "full: fill_value must be a number or a tensor of shape"),
    "missing": (lambda: ops.reshape(X), "reshape: argument 'shape' is missing"),
    "unknown": (lambda: ops.sum(X, axes=0), "sum: argument 'axes' does not exist"),
}


def check(build: Callable[[], Expr], kind: type[UserError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        build()
    assert type(caught.value) is kind


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    build, message = SHAPES[name]
    check(build, ShapeError, message)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name: str) -> None:
    build, message = DTYPES[name]
    check(build, DTypeError, message)


@pytest.mark.parametrize("name", VALUES)
def test_attributes(name: str) -> None:
    build, message = VALUES[name]
    check(build, CallError if name in ("missing", "unknown") else UserError, message)


def refuses(call: Expr, params: list[Var], values: list[Any], message: str) -> None:
    """The interpreter and machine code both raise an ArgumentError with the message."""
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call))
    module = builder.get()
    for f in (lambda: evaluate(module, "main", values), lambda: pullback.compile(module).function("main")(*values)):
        with pytest.raises(ArgumentError, match=message):
            f()


@pytest.mark.parametrize("name", ["nn.nll_loss", "nn.cross_entropy"])
@pytest.mark.parametrize("bad", [3, -1, 100, -101])
def test_target_that_is_no_class(name: str, bad: int) -> None:
    p, t = var((2, 3)), Var("t", TensorStructInfo((2,), "int64"))
    message = "a target is neither a class, 0 … C - 1, nor ignore_index"
    refuses(Op.get(name)(p, t), [p, t], [np.zeros((2, 3), np.float32), np.array([0, bad])], message)


@pytest.mark.parametrize("bad", [3, -1, -100])
def test_margin_of_what_is_no_class(bad: int) -> None:
    p, t = var((2, 3)), Var("t", TensorStructInfo((2,), "int64"))
    values = [np.zeros((2, 3), np.float32), np.array([0, bad])]
    refuses(ops.nn.multi_margin_loss(p, t), [p, t], values, "a target is neither a class, 0 … C - 1")


def test_a_label_that_is_no_class() -> None:
    p, t = var((2, 3)), Var("t", TensorStructInfo((2, 3), "int64"))
    values = [np.zeros((2, 3), np.float32), np.array([[0, -1, 9], [1, 3, -1]])]
    refuses(ops.nn.multilabel_margin_loss(p, t), [p, t], values, "an index is outside its axis")


@pytest.mark.parametrize("bad", [3, -4])
def test_index_outside_the_axis(bad: int) -> None:
    x, i = var((2, 3)), Var("i", TensorStructInfo((1,), "int64"))
    values = [np.zeros((2, 3), np.float32), np.array([bad])]
    refuses(ops.take(x, i, 1), [x, i], values, "take: an index is outside the axis")


def _index(shape: tuple[int, ...]) -> Var:
    return Var("i", TensorStructInfo(shape, "int64"))


@pytest.mark.parametrize("mode", ["raise", "fast"])
@pytest.mark.parametrize("bad", [3, -4])
def test_index_outside_data(bad: int, mode: str) -> None:
    x, u = var((3, 3)), Var("u", TensorStructInfo((1, 1), "float32"))
    values: list[Any] = [np.zeros((3, 3), np.float32), np.array([[bad]])]
    update = [np.ones((1, 1), np.float32)]
    i = _index((1, 1))
    message = "an index is outside its axis"
    refuses(ops.gather_elements(x, i, 1, mode), [x, i], values, message)
    refuses(ops.gather_nd(x, i, 0, mode), [x, i], values, message)
    refuses(ops.index_tensor(x, [i, i], mode), [x, i], values, message)
    refuses(ops.scatter_elements(x, i, u, 0, "add", mode), [x, i, u], values + update, message)
    refuses(ops.scatter_nd(x, i, ops.broadcast_to(u, (1, 3)), "max", mode), [x, i, u], values + update, message)
    refuses(ops.index_put(x, [i], u, False, mode), [x, i, u], values + update, message)


CONSTANTS: dict[str, tuple[Callable[[Var], Expr], str]] = {
    "division": (
        lambda x: ops.floor_divide(x, const(0, "int64")),
        "floor_divide: an integer is divided by 0",
    ),
    "a remainder": (lambda x: ops.mod(x, const(np.array([2, 0, 1]))), "mod: an integer is divided by 0"),
    "C's remainder": (lambda x: ops.fmod(x, const(0, "int64")), "fmod: an integer is divided by 0"),
    "Python's operator": (lambda x: x // 0, "floor_divide: an integer is divided by 0"),
    "take": (lambda x: ops.take(x, const(np.array([1, 3])), 0), "take: an index is outside the axis"),
    "gather": (lambda x: ops.gather_nd(x, const(np.array([[-4]]))), "an index is outside its axis"),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("target", ["llvm", "debug"])
@pytest.mark.parametrize("bound", [False, True])
def test_constants_are_looked_at_by_compile(name: str, target: str, bound: bool) -> None:
    build, message = CONSTANTS[name]
    x = Var("x", TensorStructInfo((3,), "int64"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        call = build(x)
        if bound:  # the constant has a name
            call = type(call)(call.op, (call.args[0], builder.emit(call.args[1])), call.attrs)
        builder.emit_func_output(builder.emit(call))
    module = builder.get()
    with pytest.raises(ArgumentError, match=message):
        pullback.compile(module, target)


def test_the_message_shows_the_call() -> None:
    program = """
@R.function
def main(x: R.Tensor((3,), "int64")):
    y = R.add(x, x)
    z = R.mod(y, R.const(0, "int64"))
    return z
"""
    with pytest.raises(ArgumentError) as caught:
        pullback.compile(from_source(program, file="model.py"))
    assert str(caught.value) == (
        "mod: an integer is divided by 0\n  --> model.py:5:9\n"
        '    z = R.mod(y, R.const(0, "int64"))\n        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\nhint: y is the constant 0'
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda x: ops.floor_divide(x, const(np.array([1, -1, 2]))),
        lambda x: ops.floor_divide(x, x),
        lambda x: ops.floor_divide(ops.astype(x, "float32"), const(0.0)),
        lambda x: ops.take(x, const(np.array([1, -3])), 0),
        lambda x: ops.take(x, const(np.array([7])), 0, "clip"),
        lambda x: ops.take(x, x, 0),
    ],
)
def test_constants_that_do_are_let_through(build: Callable[[Var], Expr]) -> None:
    x = Var("x", TensorStructInfo((3,), "int64"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(x)))
    pullback.compile(builder.get())


def test_dynamic_slice_at_constants_is_a_slice() -> None:
    positions = (const(np.array(v, np.int64)) for v in ([2, -1], [0, -9], [-1, -2]))
    call = ops.dynamic_strided_slice(X, *positions)
    assert call.op is ops.strided_slice and call.struct_info.shape == (2, 2)
    builder = BlockBuilder()
    with builder.function("main", [X]):
        builder.emit_func_output(builder.emit(call))
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(evaluate(builder.get(), "main", [value]), value[2:0:-1, -1:-9:-2])
