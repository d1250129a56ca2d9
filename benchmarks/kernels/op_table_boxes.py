"""More rows of `op_table.py`: labels of sequences, boxes and regions of images, small integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels.op_table import Row, floats, matrix, pictures, rows, state, unit
from pullback.relax.op.sample import Bools, Floats, Ints

# ---- sequences -------------------------------------------------------------------------------------------------------


def lengths(n: int) -> tuple[int, int, int]:
    """Times, rows and labels, of about n numbers of 32 classes."""
    times = 16 if n < 10_000 else 100 if n < 1_000_000 else 400
    return times, max(1, n // (32 * times)), times // 4


def sequences(n: int) -> list[Any]:
    times, count, most = lengths(n)
    return [floats((times, count, 32)), *labelled(n), Ints((count,), times, times + 1), Ints((count,), most, most + 1)]


def labelled(n: int) -> list[Any]:
    _, count, most = lengths(n)
    return [Ints((count, most), 1, 32)]


def few_classes(n: int) -> list[Any]:
    return [floats((n // 32, 32)), Ints((n // 32, 32), -1, 32)]


def _halves(length: int) -> Any:
    return np.array([0, length // 2, length])


SEQUENCES: dict[str, Row] = {
    "nn.attention_var_len": Row(
        lambda n: [floats((1, min(4096, max(2, n // 128)), 4, 32))] * 3,
        lambda o, q, k, v: o.nn.attention_var_len(q, k, v, _halves(q.shape[1]), causal_mask="TopLeft"),
    ),
    "nn.ctc_loss": Row(
        sequences,
        lambda o, x, *rest: o.nn.ctc_loss(o.nn.log_softmax(x), *rest),
        lambda t, x, *rest: t.nn.functional.ctc_loss(x.log_softmax(-1), *rest),
    ),
    "nn.ctc_states": Row(
        lambda n: [sequences(n)[1], *sequences(n)[2:]],
        lambda o, x, i, k: o.nn.ctc_states(x, i, k, (400, 32)),
    ),
    "nn.ctc_alphas": Row(
        lambda n: [floats((8, 33)), floats((n // 264, 8, 33)), Ints((8, 33), 0, 9)],
        lambda o, s, x, i: o.nn.ctc_alphas(s, x, i),
    ),
    "nn.multilabel_margin_loss": Row(
        few_classes,
        lambda o, x, i: o.nn.multilabel_margin_loss(x, i),
        lambda t, x, i: t.nn.functional.multilabel_margin_loss(x, i),
    ),
    "nn.multilabel_soft_margin_loss": Row(
        lambda n: [floats(matrix(n)), unit(matrix(n))],
        lambda o, x, y: o.nn.multilabel_soft_margin_loss(x, y),
        lambda t, x, y: t.nn.functional.multilabel_soft_margin_loss(x, y),
        1,
    ),
    "multinomial_from_uniform": Row(
        lambda n: [unit(matrix(n)), unit((matrix(n)[0], 1)), Ints((matrix(n)[0], 1), 0, matrix(n)[0])],
        lambda o, p, u, i: o.multinomial_from_uniform(p, u, i),
        lambda t, p, u, i: (p.cumsum(1)[i[:, 0]] <= u).sum(1, keepdim=True).clamp_max(p.shape[1] - 1),
    ),
    "random.permutation": Row(
        lambda n: [state(), n], lambda o, s, n: o.random.permutation(s, n), lambda t, s, n: t.randperm(n)
    ),
    "random.shuffle": Row(lambda n: [Ints((n,), 0, 2**63, "uint64")], lambda o, x: o.random.shuffle(x)),
    "median": Row(rows, lambda o, x: o.median(x, 1)[0], lambda t, x: x.median(1)[0]),
}

# ---- layouts and integers --------------------------------------------------------------------------------------------


def stepped() -> list[Any]:
    """A scale and a zero point."""
    return [unit((1,)), Ints((1,), -3, 4, "int32")]


LAYOUTS: dict[str, Row] = {
    "layout_transform": Row(
        pictures(),
        lambda o, x: o.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)),
        lambda t, x: x.unflatten(1, (-1, 4)).permute(0, 1, 3, 4, 2).contiguous(),
    ),
    "quantize": Row(
        lambda n: [floats(matrix(n)), *stepped()],
        lambda o, x, s, z: o.quantize(x, s, z),
        lambda t, x, s, z: ((x / s).round() + z).clamp(-128, 127).to(t.int8),
    ),
    "dequantize": Row(
        lambda n: [Ints(matrix(n), -128, 128, "int8"), *stepped()],
        lambda o, x, s, z: o.dequantize(x, s, z),
        lambda t, x, s, z: (x - z).to(t.float32) * s,
    ),
}

# ---- boxes -----------------------------------------------------------------------------------------------------------


def crowd(n: int) -> tuple[int, int]:
    """Rows, and boxes in each, which are compared with each other."""
    count = min(1000, n // 6)
    return max(1, n // (6 * count)), count


def candidates(scores: bool) -> Callable[[int], list[Any]]:
    def arguments(n: int) -> list[Any]:
        shape = crowd(n)
        return [unit((*shape, 4)), *([unit(shape)] if scores else []), Ints(shape, 0, 9), Bools(shape)]

    return arguments


def regions(given: bool) -> Callable[[int], list[Any]]:
    """Two images of 16 channels, and rois of 7 × 7 bins."""

    def arguments(n: int) -> list[Any]:
        count = max(1, n // (16 * 49))
        batches = [Ints((count,), 0, 2)] if given else []
        return [floats((2, 16, 56, 56)), *batches, Floats((count, 5), 0.0, 1.0)]

    return arguments


BOXES: dict[str, Row] = {
    "vision.multibox_transform_loc": Row(
        lambda n: [floats((1, 21, n // 25)), floats((1, n // 25 * 4)), unit((1, n // 25, 4))],
        lambda o, c, x, a: o.vision.multibox_transform_loc(c, x, a),
    ),
    "vision.get_valid_counts": Row(lambda n: [unit((1, n // 6, 6))], lambda o, x: o.vision.get_valid_counts(x, 0.5)[1]),
    "vision.non_max_suppression": Row(
        lambda n: [unit((*crowd(n), 6)), Ints(crowd(n)[:1], 0, crowd(n)[1], "int32"), Ints(crowd(n), 0, 9, "int32")],
        lambda o, x, k, i: o.vision.non_max_suppression(x, k, i, id_index=-1, return_indices=False),
    ),
    "vision.all_class_non_max_suppression": Row(
        lambda n: [unit((*crowd(n), 4)), unit((crowd(n)[0], 2, crowd(n)[1]))],
        lambda o, x, s: o.vision.all_class_non_max_suppression(x, s, 100, 0.5, 0.1, "tensorflow")[1],
    ),
    "vision.suppress": Row(candidates(False), lambda o, *args: o.vision.suppress(*args)),
    "vision.soft_suppress": Row(candidates(True), lambda o, *args: o.vision.soft_suppress(*args, max_output_size=100)),
    "vision.roi_align": Row(regions(False), lambda o, x, r: o.vision.roi_align(x, r, 7, 56.0, 2)),
    "vision.roi_average": Row(regions(True), lambda o, x, b, r: o.vision.roi_average(x, b, r, 7, 56.0, 2)),
    "vision.roi_samples": Row(regions(True), lambda o, x, b, r: o.vision.roi_samples(x, b, r, 7, 56.0, 2)),
    "vision.roi_pool": Row(regions(False), lambda o, x, r: o.vision.roi_pool(x, r, 7, 56.0)),
    "vision.roi_maxima": Row(regions(True), lambda o, x, b, r: o.vision.roi_maxima(x, b, r, 7, 56.0)),
    "vision.roi_batches": Row(lambda n: [Floats((n // 5, 5), 0.0, 1.0)], lambda o, r: o.vision.roi_batches(r, 2)),
}


ROWS = SEQUENCES | LAYOUTS | BOXES
