"""relay's operators of images, boxes and blocks against PyTorch and NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Function, as_expr, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from tests.relay.op_cases import (
    Case,
    check_unknown_sizes,
    check_value,
    every,
    first,
    integers,
    normal,
    torch_of,
    uniform,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional
IMAGE = normal(2, 3, 6, 8)


def _resized(size: Any, mode: str, align: Any = None) -> Any:
    return torch_of(lambda x: F.interpolate(x, size, mode=mode, align_corners=align))


def _last(function: Any) -> Any:
    """A function of images whose channels are last."""
    return lambda x: np.ascontiguousarray(function(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1))


def _crops(x: np.ndarray, boxes: np.ndarray, numbers: np.ndarray, size: tuple[int, int], outside: float) -> np.ndarray:
    """Bilinear samples, one by one: x is (N, C, H, W)."""
    _, channels, height, width = x.shape
    result = np.empty((len(boxes), channels, *size), "float32")
    for b, i, j in itertools.product(range(len(boxes)), range(size[0]), range(size[1])):
        y0, x0, y1, x1 = boxes[b]
        rows, columns = size
        y = (
            y0 * (height - 1) + i * (y1 - y0) * (height - 1) / (rows - 1)
            if rows > 1
            else 0.5 * (y0 + y1) * (height - 1)
        )
        z = (
            x0 * (width - 1) + j * (x1 - x0) * (width - 1) / (columns - 1)
            if columns > 1
            else 0.5 * (x0 + x1) * (width - 1)
        )
        if not (0 <= y <= height - 1 and 0 <= z <= width - 1):
            result[b, :, i, j] = outside
            continue
        low_y, low_z = int(np.floor(y)), int(np.floor(z))
        high_y, high_z = min(low_y + 1, height - 1), min(low_z + 1, width - 1)
        image = x[numbers[b]]
        top = image[:, low_y, low_z] * (1 - (z - low_z)) + image[:, low_y, high_z] * (z - low_z)
        bottom = image[:, high_y, low_z] * (1 - (z - low_z)) + image[:, high_y, high_z] * (z - low_z)
        result[b, :, i, j] = top * (1 - (y - low_y)) + bottom * (y - low_y)
    return result


def _dilation(x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    _, height, width = w.shape
    rows = (x.shape[2] - (height - 1) * dilation - 1) // stride + 1
    columns = (x.shape[3] - (width - 1) * dilation - 1) // stride + 1
    result = np.empty((*x.shape[:2], rows, columns), "float32")
    for i, j in itertools.product(range(rows), range(columns)):
        window = x[:, :, i * stride :, j * stride :][:, :, : (height - 1) * dilation + 1 : dilation]
        window = window[:, :, :, : (width - 1) * dilation + 1 : dilation]
        result[:, :, i, j] = (window + w).max((2, 3))
    return result


def _depth_to_space(x: np.ndarray, mode: str) -> np.ndarray:
    n, c, h, w = x.shape
    if mode == "DCR":
        return x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)
    return x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)


def _space_to_depth(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def _space_to_batch(x: np.ndarray) -> np.ndarray:
    """Blocks of 2 × 3 of x (N, 4, 5, C) with a column on the right."""
    x = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=2)
    return np.concatenate([x[:, i::2, j::3] for i in range(2) for j in range(3)])


def _batch_to_space(x: np.ndarray) -> np.ndarray:
    """Its inverse: 6 examples to one, without the last column."""
    n, h, w, c = x.shape
    result = np.empty((n // 6, 2 * h, 3 * w, c), x.dtype)
    for k in range(6):
        result[:, k // 3 :: 2, k % 3 :: 3] = x[k * (n // 6) : (k + 1) * (n // 6)]
    return result[:, :, :-1]


def _grid(x: np.ndarray) -> np.ndarray:
    found = F.affine_grid(torch.from_numpy(x), [len(x), 1, 3, 4], align_corners=True)
    return found.permute(0, 3, 1, 2).contiguous().numpy()


def _sampled(**attrs: Any) -> Any:
    def sample(x: Any, grid: Any) -> Any:
        return F.grid_sample(x, grid.permute(0, 2, 3, 1), **attrs)

    return torch_of(sample)


def _priors(x: np.ndarray) -> np.ndarray:
    height, width = x.shape[2:]
    rows = []
    for i, j in itertools.product(range(height), range(width)):
        y, z = (i + 0.5) / height, (j + 0.5) / width
        for size, ratio in ((0.5, 1), (0.25, 1), (0.5, 2)):
            w, h = size * height / width * ratio**0.5 / 2, size / ratio**0.5 / 2
            rows.append([z - w, y - h, z + w, y + h])
    return np.array(rows, "float32")[None]


def _locations(scores: np.ndarray, offsets: np.ndarray, anchors: np.ndarray) -> list[np.ndarray]:
    batch, _, count = scores.shape
    found, counts = np.full((batch, count, 6), -1, "float32"), np.zeros(batch, "int32")
    for b, a in itertools.product(range(batch), range(count)):
        kind = int(scores[b, 1:, a].argmax())
        if scores[b, 1 + kind, a] < 0.4:
            continue
        x0, y0, x1, y1 = anchors[0, a]
        dx, dy, dw, dh = offsets[b, 4 * a : 4 * a + 4]
        w, h = x1 - x0, y1 - y0
        x, y = dx * 0.1 * w + (x0 + x1) / 2, dy * 0.1 * h + (y0 + y1) / 2
        w, h = np.exp(dw * 0.2) * w / 2, np.exp(dh * 0.2) * h / 2
        box = np.clip([x - w, y - h, x + w, y + h], 0, 1)
        found[b, counts[b]] = [kind, scores[b, 1 + kind, a], *box]
        counts[b] += 1
    return [found, counts]


BOXES = np.array([[[0, 0.9, 0, 0, 4, 4], [0, 0.8, 0, 0, 4, 3], [1, 0.7, 0, 0, 4, 4], [0, 0.1, 5, 5, 9, 9]]], "float32")


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    inner = np.prod(np.maximum(0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])))
    return inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner)


def _kept(rows: np.ndarray, threshold: float = 0.5) -> list[int]:
    found: list[int] = []
    for i in np.argsort(-rows[:, 1], kind="stable"):
        if not any(rows[i, 0] == rows[j, 0] and _overlap(rows[i, 2:], rows[j, 2:]) >= threshold for j in found):
            found.append(int(i))
    return found


def _suppressed(rows: np.ndarray, count: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    kept = _kept(rows[0])
    found = np.full((1, rows.shape[1]), -1, "int32")
    found[0, : len(kept)] = kept
    return [found, np.array([[len(kept)]], "int32")]


def _valid(rows: np.ndarray) -> list[np.ndarray]:
    good = np.flatnonzero(rows[0, :, 1] > 0.5)
    data, places = np.full_like(rows, -1), np.full((1, rows.shape[1]), -1, "int32")
    data[0, : len(good)], places[0, : len(good)] = rows[0, good], good
    return [np.array([len(good)], "int32"), data, places]


def _each_class(boxes: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    found = []
    for c in range(scores.shape[1]):
        rows = np.concatenate([np.full((len(boxes[0]), 1), c), scores[0, c][:, None], boxes[0]], 1)
        found += [[0, c, i] for i in _kept(rows) if rows[i, 1] > 0.15][:2]
    places = np.full((scores.shape[1] * 2, 3), -1, "int64")
    places[: len(found)] = found
    return [places, np.array([len(found)], "int64")]


def _roi_pool(x: np.ndarray, rois: np.ndarray) -> np.ndarray:
    result = np.zeros((len(rois), x.shape[1], 2, 2), "float32")
    for k, (b, *corners) in enumerate(rois):
        x0, y0, x1, y1 = (int(np.floor(c + 0.5)) for c in corners)
        h, w = max(y1 - y0 + 1, 1) / 2, max(x1 - x0 + 1, 1) / 2
        for i, j in itertools.product(range(2), range(2)):
            rows = slice(y0 + int(np.floor(i * h)), y0 + int(np.ceil((i + 1) * h)))
            columns = slice(x0 + int(np.floor(j * w)), x0 + int(np.ceil((j + 1) * w)))
            result[k, :, i, j] = x[int(b), :, rows, columns].max((1, 2))
    return result


def _roi_align(x: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """One sample in the middle of each of 2 × 2 bins."""
    result = np.zeros((len(rois), x.shape[1], 2, 2), "float32")
    for k, (b, x0, y0, x1, y1) in enumerate(rois):
        for i, j in itertools.product(range(2), range(2)):
            y, z = y0 + (i + 0.5) * (y1 - y0) / 2, x0 + (j + 0.5) * (x1 - x0) / 2
            low_y, low_z = int(y), int(z)
            image = x[int(b), :, low_y : low_y + 2, low_z : low_z + 2]
            weights = np.outer([1 - (y - low_y), y - low_y], [1 - (z - low_z), z - low_z])
            result[k, :, i, j] = (image * weights).sum((1, 2))
    return result


def _complex(z: np.ndarray) -> list[np.ndarray]:
    return [z.real.astype("float32"), z.imag.astype("float32")]


ROIS = np.array([[0, 1, 1, 4, 3], [1, 0, 2, 5, 4]], "float32")
CROPS = np.array([[0.0, 0.0, 1.0, 1.0], [0.2, 0.6, 0.7, 0.1], [-0.2, 0.5, 1.3, 0.9]], "float32")
NUMBERS = np.array([1, 0, 1], "int32")
SPARSE = [np.array([1.5, -2.0, 3.0, 0.5], "float32"), np.array([0, 3, 1, 2], "int32"), np.array([0, 2, 2, 4], "int32")]
DENSE = np.zeros((3, 4), "float32")
DENSE[0, 0], DENSE[0, 3], DENSE[2, 1], DENSE[2, 2] = SPARSE[0]

CASES = [
    Case("image.resize1d", [normal(2, 3, 7)], _resized(4, "linear", False), attrs={"size": 4}),
    Case("image.resize2d", [IMAGE], _resized((4, 5), "bilinear", False), attrs={"size": (4, 5)}),
    Case(
        "image.resize2d",
        [IMAGE],
        _resized((9, 11), "bilinear", True),
        attrs={"size": (9, 11), "coordinate_transformation_mode": "align_corners"},
    ),
    Case(
        "image.resize2d",
        [IMAGE],
        _resized((12, 4), "nearest"),
        attrs={"size": (12, 4), "method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"},
    ),
    Case(
        "image.resize2d",
        [IMAGE],
        _resized((9, 11), "bicubic", False),
        attrs={"size": (9, 11), "method": "cubic", "cubic_alpha": -0.75},
        tolerance=1e-4,
    ),
    Case(
        "image.resize2d",
        [normal(2, 6, 8, 3)],
        _last(_resized((4, 5), "bilinear", False)),
        attrs={"size": (4, 5), "layout": "NHWC"},
    ),
    Case("image.resize3d", [normal(1, 2, 3, 4, 5)], _resized((4, 3, 6), "trilinear", False), attrs={"size": (4, 3, 6)}),
    Case("nn.upsampling", [IMAGE], lambda x: x.repeat(2, 2).repeat(3, 3), attrs={"scale_h": 2, "scale_w": 3}),
    Case(
        "nn.upsampling",
        [IMAGE],
        _resized((12, 16), "bilinear", True),
        attrs={"scale_h": 2, "scale_w": 2, "method": "bilinear", "align_corners": True},
    ),
    Case(
        "nn.upsampling",
        [normal(2, 6, 8, 3)],
        lambda x: x.repeat(2, 1).repeat(2, 2),
        attrs={"scale_h": 2, "scale_w": 2, "layout": "NHWC"},
    ),
    Case(
        "nn.upsampling3d",
        [normal(1, 2, 3, 2, 2)],
        lambda x: x.repeat(2, 2).repeat(2, 3).repeat(2, 4),
        attrs={"scale_d": 2, "scale_h": 2, "scale_w": 2, "coordinate_transformation_mode": "asymmetric"},
    ),
    Case(
        "nn.upsampling3d",
        [normal(1, 2, 3, 2, 2)],
        _resized((6, 4, 4), "trilinear", False),
        attrs={"scale_d": 2, "scale_h": 2, "scale_w": 2, "method": "trilinear"},
    ),
    Case("image.affine_grid", [normal(2, 2, 3)], _grid, attrs={"target_shape": (3, 4)}),
    Case("image.grid_sample", [IMAGE, uniform(-1.3, 1.3, 2, 2, 4, 5)], _sampled(align_corners=True)),
    Case(
        "image.grid_sample",
        [IMAGE, uniform(-1.3, 1.3, 2, 2, 4, 5)],
        _sampled(align_corners=False, padding_mode="border", mode="nearest"),
        attrs={"method": "nearest", "padding_mode": "border", "align_corners": False},
    ),
    Case(
        "image.crop_and_resize",
        [IMAGE, CROPS, NUMBERS],
        lambda x, b, n: _crops(x, b, n, (3, 5), 7.0),
        attrs={"crop_size": (3, 5), "extrapolation_value": 7.0},
        tolerance=1e-4,
    ),
    Case(
        "image.crop_and_resize",
        [IMAGE.transpose(0, 2, 3, 1), CROPS, NUMBERS],
        lambda x, b, n: _crops(x.transpose(0, 3, 1, 2), b, n, (1, 4), 0.0).transpose(0, 2, 3, 1),
        attrs={"crop_size": (1, 4), "layout": "NHWC"},
        tolerance=1e-4,
    ),
    Case("image.dilation2d", [IMAGE, normal(3, 2, 3)], lambda x, w: _dilation(x, w, 1, 0, 1)),
    Case(
        "image.dilation2d",
        [IMAGE, normal(3, 3, 3)],
        lambda x, w: _dilation(x, w, 2, 1, 2),
        attrs={"strides": 2, "padding": 1, "dilations": 2},
    ),
    Case("nn.depth_to_space", [normal(2, 8, 3, 2)], lambda x: _depth_to_space(x, "DCR"), attrs={"block_size": 2}),
    Case(
        "nn.depth_to_space",
        [normal(2, 8, 3, 2)],
        lambda x: _depth_to_space(x, "CRD"),
        attrs={"block_size": 2, "mode": "CRD"},
    ),
    Case("nn.space_to_depth", [IMAGE], _space_to_depth, attrs={"block_size": 2}),
    Case(
        "nn.space_to_batch_nd",
        [normal(2, 4, 5, 3)],
        _space_to_batch,
        attrs={"block_shape": [2, 3], "paddings": [[0, 0], [0, 1]], "pad_value": 2},
    ),
    Case(
        "nn.batch_to_space_nd",
        [normal(12, 2, 2, 3)],
        _batch_to_space,
        attrs={"block_shape": [2, 3], "crops": [[0, 0], [0, 1]]},
    ),
    Case(
        "nn.fifo_buffer",
        [normal(2, 1, 3), normal(2, 4, 3)],
        lambda x, b: np.concatenate([b, x], 1)[:, 1:],
        attrs={"axis": 1},
    ),
    Case("nn.sparse_dense", [normal(2, 4), *SPARSE], lambda x, *s: x @ DENSE.T),
    Case(
        "nn.sparse_dense",
        [normal(2, 4), *SPARSE],
        lambda x, *s: DENSE @ x.T,
        lambda x, *s: op.nn.sparse_dense(x, s, sparse_lhs=True),
    ),
    Case(
        "sparse_reshape",
        [np.array([[0, 1, 2], [1, 0, 3]]), np.array([2, 2, 4]), np.array([4, -1])],
        lambda i, s, n: [np.array([[1, 2], [2, 3]]), np.array([4, 4])],
    ),
    Case(
        "sparse_fill_empty_rows",
        [np.array([[0, 1], [2, 0], [2, 3]]), np.array([5, 6, 7], "int32"), np.array([4, 5]), np.array([9], "int32")],
        lambda *a: [
            np.array([[0, 1], [1, 0], [2, 0], [2, 3], [3, 0]]),
            np.array([5, 9, 6, 7, 9], "int32"),
            np.array([False, True, False, True]),
        ],
    ),
    Case(
        "sliding_window",
        [normal(2, 3, 6, 7)],
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))[:, :, ::2, ::3],
        attrs={"axis": 2, "window_shape": [2, 3], "strides": [2, 3]},
    ),
    Case(
        "dft",
        [normal(2, 6), normal(2, 6)],
        lambda r, i: _complex(np.fft.fft(r + 1j * i)),
    ),
    Case("dft", [normal(3, 5), normal(3, 5)], lambda r, i: _complex(np.fft.ifft(r + 1j * i)), attrs={"inverse": True}),
    Case(
        "stft",
        [normal(2, 20), uniform(0.5, 1, 6)],
        torch_of(
            lambda x, w: torch.view_as_real(
                torch.stft(x, 8, 3, 6, w, center=False, normalized=True, onesided=True, return_complex=True)
            )
        ),
        lambda x, w: op.stft(x, 8, 3, 6, w, normalized=True),
        tolerance=1e-4,
    ),
    Case(
        "stft",
        [normal(2, 20)],
        torch_of(
            lambda x: torch.view_as_real(
                torch.stft(x, 8, window=torch.ones(8), center=False, onesided=False, return_complex=True)
            )
        ),
        lambda x: op.stft(x, 8, onesided=False),
        tolerance=1e-4,
    ),
    Case("reinterpret", [normal(3, 4)], lambda x: x.view("int32"), attrs={"dtype": "int32"}),
    Case("vision.multibox_prior", [IMAGE], _priors, attrs={"sizes": (0.5, 0.25), "ratios": (1, 2)}),
    Case(
        "vision.multibox_transform_loc",
        [uniform(0, 1, 2, 3, 5), normal(2, 20), np.sort(uniform(0, 1, 1, 5, 2, 2), 2).reshape(1, 5, 4)],
        _locations,
        attrs={"threshold": 0.4},
    ),
    Case("vision.get_valid_counts", [BOXES], _valid, attrs={"score_threshold": 0.5}),
    Case(
        "vision.non_max_suppression",
        [BOXES, np.array([4], "int32"), np.arange(4, dtype="int32")[None]],
        _suppressed,
    ),
    Case(
        "vision.all_class_non_max_suppression",
        [BOXES[..., 2:], uniform(0, 1, 1, 2, 4)],
        _each_class,
        attrs={"max_output_boxes_per_class": 2, "iou_threshold": 0.5, "score_threshold": 0.15},
    ),
    Case("vision.roi_pool", [IMAGE, ROIS], _roi_pool, attrs={"pooled_size": 2, "spatial_scale": 1.0}),
    Case(
        "vision.roi_align",
        [IMAGE, ROIS],
        _roi_align,
        attrs={"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 1},
    ),
    *(
        Case(name, [integers(0, 9, 3)], lambda x: x, attrs=attrs)
        for name, attrs in (
            ("annotation.stop_fusion", {}),
            ("annotation.checkpoint", {}),
            ("annotation.compiler_begin", {"compiler": "c"}),
            ("annotation.compiler_end", {"compiler": "c"}),
            ("annotation.cast_hint", {"dtype": "int8"}),
            ("on_device", {"device": "cpu"}),
            ("device_copy", {"src_device": "cpu", "dst_device": "cpu"}),
        )
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


@pytest.mark.parametrize("loose", [every, first])
@pytest.mark.parametrize("case", [c for c in CASES if c.dynamic], ids=str)
def test_unknown_sizes(case: Case, loose: Any) -> None:
    check_unknown_sizes(case, loose)


def test_type() -> None:
    x = var("x", TensorType((AnySize(), 3, 8, AnySize())))
    for call, shape in (
        (op.image.resize2d(x, (4, 5)), (AnySize(), 3, 4, 5)),
        (op.nn.upsampling(x, 2, 2), (AnySize(), 3, 16, AnySize())),
        (op.nn.space_to_depth(x, 2), (AnySize(), 12, 4, AnySize())),
    ):
        assert run_infer_type(call).checked_type.shape == shape


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: op.image.resize2d(x, (4, 5), roi=[0.0, 0, 1, 1]), "a roi is not supported"),
        (lambda x: op.image.resize2d(x, (4, 5, 6)), "size must be 1 or 2"),
        (lambda x: op.nn.space_to_batch_nd(x, [4], [[0, 0]]), "no multiples of [4]"),
        (lambda x: op.nn.batch_to_space_nd(x, [4], [[0, 0]]), "no multiple of 4"),
        (lambda x: op.nn.sparse_dense(x, [x, x, x]), "CSR"),
        (lambda x: op.image.crop_and_resize(x, const(CROPS), const(NUMBERS), (2, 2), method="cubic"), "bilinear"),
    ],
)
def test_errors(call: Any, words: str) -> None:
    x = var("x", shape=(2, 3, 6, 8))
    with pytest.raises(PullbackError) as raised:
        run_infer_type(Function([x], as_expr(call(x))))
    assert words in str(raised.value)
