"""relay's operators of networks against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import PullbackError
from pullback.relay import op
from pullback.relay.expr import Function, as_expr, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import IncompleteType, TensorType
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
X = normal(2, 4, 7, 6)
SPACE = {1: "W", 2: "HW", 3: "DHW"}
SIZES = {1: (2, 4, 9), 2: (2, 4, 7, 6), 3: (1, 4, 5, 4, 6)}


def _to(layout: str, rank: int) -> tuple[int, ...]:
    """The order of axes that makes a tensor of the layout of one in NC…."""
    return tuple(("NC" + SPACE[rank]).index(c) for c in layout)


def _conv(rank: int, groups: int = 1, out: int = 6, layout: str = "", kernel: str = "", **attrs: Any) -> Case:
    layout, kernel = layout or "NC" + SPACE[rank], kernel or "OI" + SPACE[rank]
    data, weight = normal(*SIZES[rank]), normal(out, 4 // groups, *(3,) * rank)
    places = tuple(("OI" + SPACE[rank]).index(c) for c in kernel)
    pads = attrs.get("padding", 0)

    def expect(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        conv = getattr(F, f"conv{rank}d")
        x, w = (torch.from_numpy(np.ascontiguousarray(a)) for a in (x, w))
        x, w = x.permute(*np.argsort(_to(layout, rank))), w.permute(*np.argsort(places))
        around = pads
        if isinstance(pads, tuple) and len(pads) == 2 * rank:
            x = F.pad(x, [n for i in reversed(range(rank)) for n in (pads[i], pads[i + rank])])
            around = 0
        stride, dilation = attrs.get("strides", 1), attrs.get("dilation", 1)
        return conv(x, w, None, stride, around, dilation, groups).permute(*_to(layout, rank)).contiguous().numpy()

    given = dict(attrs)
    if layout != "NC" + SPACE[rank]:
        given["data_layout"] = layout
    if kernel != "OI" + SPACE[rank]:
        given["kernel_layout"] = kernel
    if groups > 1:
        given["groups"] = groups
    arrays = [data.transpose(_to(layout, rank)), weight.transpose(places)]
    return Case(f"nn.conv{rank}d", arrays, expect, attrs=given, tolerance=1e-4)


def _conv_transpose(rank: int, groups: int = 1, out: int = 6, **attrs: Any) -> Case:
    def expect(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        conv = getattr(F, f"conv_transpose{rank}d")
        names = {"strides": "stride", "padding": "padding", "output_padding": "output_padding", "dilation": "dilation"}
        given = {names[k]: v for k, v in attrs.items() if k in names}
        return torch_of(lambda a, b: conv(a, b, None, groups=groups, **given))(x, w)

    arrays = [normal(*SIZES[rank]), normal(4, out // groups, *(3,) * rank)]
    given = attrs | ({"groups": groups} if groups > 1 else {})
    return Case(f"nn.conv{rank}d_transpose", arrays, expect, attrs=given, tolerance=1e-4)


def _depthwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return torch_of(lambda a, b: F.conv2d(a, b.reshape(12, 1, 3, 3), None, 1, 1, 1, 4))(x, w)


def _pool(name: str, rank: int, expect: Any, layout: str = "", **attrs: Any) -> Case:
    layout = layout or "NC" + SPACE[rank]

    def laid_out(x: np.ndarray) -> np.ndarray:
        standard = torch.from_numpy(np.ascontiguousarray(x)).permute(*np.argsort(_to(layout, rank)))
        return expect(standard).permute(*_to(layout, rank)).contiguous().numpy()

    given = attrs if layout == "NC" + SPACE[rank] else attrs | {"layout": layout}
    return Case(f"nn.{name}{rank}d", [normal(*SIZES[rank]).transpose(_to(layout, rank))], laid_out, attrs=given)


def _pools() -> list[Case]:
    cases = []
    for rank in (1, 2, 3):
        largest, mean = getattr(F, f"max_pool{rank}d"), getattr(F, f"avg_pool{rank}d")
        last = "N" + SPACE[rank] + "C"
        window = {"pool_size": 2, "strides": 2}
        cases += [
            _pool("max_pool", rank, lambda x, f=largest: f(x, 2, 2), **window),
            _pool("max_pool", rank, lambda x, f=largest: f(x, 3, 2, 1), pool_size=3, strides=2, padding=1),
            _pool("max_pool", rank, lambda x, f=largest: f(x, 2, 2, ceil_mode=True), **window, ceil_mode=True),
            _pool("max_pool", rank, lambda x, f=largest: f(x, 2, 1, 0, 2), pool_size=2, dilation=2),
            _pool("max_pool", rank, lambda x, f=largest: f(x, 2, 2), last, **window),
            _pool("avg_pool", rank, lambda x, f=mean: f(x, 2, 2), **window),
            _pool(
                "avg_pool",
                rank,
                lambda x, f=mean: f(x, 3, 2, 1, count_include_pad=True),
                pool_size=3,
                strides=2,
                padding=1,
                count_include_pad=True,
            ),
            _pool(
                "avg_pool",
                rank,
                lambda x, f=mean: f(x, 3, 2, 1, count_include_pad=False),
                pool_size=3,
                strides=2,
                padding=(1,) * (2 * rank),
            ),
            _pool("avg_pool", rank, lambda x, f=mean: f(x, 2, 2), last, **window),
            _pool("global_avg_pool", rank, lambda x, r=rank: getattr(F, f"adaptive_avg_pool{r}d")(x, 1)),
            _pool("global_max_pool", rank, lambda x, r=rank: getattr(F, f"adaptive_max_pool{r}d")(x, 1), last),
            _pool(
                "adaptive_avg_pool", rank, lambda x, r=rank: getattr(F, f"adaptive_avg_pool{r}d")(x, 3), output_size=3
            ),
            _pool(
                "adaptive_max_pool", rank, lambda x, r=rank: getattr(F, f"adaptive_max_pool{r}d")(x, 3), output_size=3
            ),
            _pool("adaptive_max_pool", rank, lambda x: x),
            _pool(
                "adaptive_max_pool",
                rank,
                lambda x, r=rank: getattr(F, f"adaptive_max_pool{r}d")(x, 2),
                last,
                output_size=2,
            ),
        ]
    return cases


def _batch_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray, m: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    g, b, mean, variance = (a.reshape(shape) for a in (g, b, m, v))
    return [(x - mean) / np.sqrt(variance + 1e-5) * g + b, m, v]


def _norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def _group_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    normal = _norm(x.reshape(x.shape[0], 2, -1), (2,)).reshape(x.shape)
    return normal * g.reshape(1, -1, 1, 1) + b.reshape(1, -1, 1, 1)


def _lrn(x: np.ndarray) -> np.ndarray:
    total = np.zeros_like(x)
    for c in range(x.shape[1]):
        total[:, c] = (x[:, max(0, c - 1) : c + 2] ** 2).sum(1)
    return x / (2 + 0.1 / 3 * total) ** 0.75


def _nll(reduction: str) -> Any:
    return torch_of(lambda p, t, w: F.nll_loss(p, t.long(), w, reduction=reduction, ignore_index=-1))


def _adjoint(forward: Any, wanted: int) -> Any:
    """PyTorch's gradient of ``forward(x, w)`` by one of them, as a function of the result's adjoint."""

    def adjoint(grad: np.ndarray, *args: np.ndarray) -> np.ndarray:
        tensors = [torch.from_numpy(a).requires_grad_() for a in args]
        return torch.autograd.grad(forward(*tensors), tensors[wanted], torch.from_numpy(grad))[0].numpy()

    return adjoint


WEIGHT = normal(6, 2, 3, 3)
CHANNELS = [normal(4), normal(4)]
LOGITS, LABELS = normal(5, 3), np.array([0, 2, -1, 1, 0], "int32")

CASES = [
    Case("nn.dense", [normal(3, 4), normal(5, 4)], lambda x, w: x @ w.T),
    Case("nn.dense", [normal(2, 3, 4), normal(5, 4)], lambda x, w: x @ w.T, attrs={"units": 5}),
    Case(
        "nn.dense",
        [integers(-9, 9, 3, 4, dtype="int8"), integers(-9, 9, 5, 4, dtype="int8")],
        lambda x, w: x.astype("int32") @ w.T.astype("int32"),
        attrs={"out_dtype": "int32"},
    ),
    Case("nn.matmul", [normal(3, 4), normal(4, 5)], lambda a, b: a @ b),
    Case(
        "nn.batch_matmul", [integers(-9, 9, 2, 3, 4), integers(-9, 9, 1, 5, 4)], lambda a, b: a @ b.transpose(0, 2, 1)
    ),
    Case(
        "nn.conv2d",
        [integers(-9, 9, 2, 4, 6, 6, dtype="int8"), integers(-9, 9, 3, 4, 3, 3, dtype="int8")],
        lambda x, w: torch_of(lambda a, b: F.conv2d(a.double(), b.double()))(x, w).astype("int32"),
        attrs={"out_dtype": "int32"},
    ),
    Case(
        "nn.matmul",
        [normal(4, 3), normal(5, 4)],
        lambda a, b: a.T @ b.T,
        attrs={"transpose_a": True, "transpose_b": True},
    ),
    Case("nn.matmul", [normal(2, 3, 4), normal(5, 4)], lambda a, b: a @ b.T, attrs={"transpose_b": True}),
    Case("nn.batch_matmul", [normal(2, 3, 4), normal(2, 5, 4)], lambda a, b: a @ b.transpose(0, 2, 1)),
    Case("nn.batch_matmul", [normal(1, 3, 4), normal(2, 5, 4)], lambda a, b: a @ b.transpose(0, 2, 1)),
    Case(
        "nn.batch_matmul",
        [normal(2, 4, 3), normal(2, 4, 5)],
        lambda a, b: a.transpose(0, 2, 1) @ b,
        attrs={"transpose_a": True, "transpose_b": False},
    ),
    Case("nn.bias_add", [X, normal(4)], lambda x, b: x + b.reshape(4, 1, 1)),
    Case("nn.bias_add", [X, normal(6)], lambda x, b: x + b, attrs={"axis": -1}),
    Case("nn.relu", [X], lambda x: np.maximum(x, 0)),
    Case("nn.relu", [integers(-9, 9, 5)], lambda x: np.maximum(x, 0)),
    Case("nn.leaky_relu", [X], lambda x: np.where(x > 0, x, np.float32(0.25) * x)),
    Case("nn.leaky_relu", [X], lambda x: np.where(x > 0, x, np.float32(0.1) * x), attrs={"alpha": 0.1}),
    Case("nn.prelu", [X, normal(4)], lambda x, a: np.where(x > 0, x, a.reshape(4, 1, 1) * x)),
    Case("nn.prelu", [X, normal(6)], lambda x, a: np.where(x > 0, x, a * x), attrs={"axis": 3}),
    Case("nn.softmax", [X], torch_of(lambda x: F.softmax(x, -1))),
    Case("nn.softmax", [X], torch_of(lambda x: F.softmax(x, 1)), attrs={"axis": 1}),
    Case("nn.fast_softmax", [X], torch_of(lambda x: F.softmax(x, -1))),
    Case("nn.log_softmax", [X], torch_of(lambda x: F.log_softmax(x, -1))),
    Case("nn.batch_flatten", [X], lambda x: x.reshape(2, -1)),
    Case("nn.pad", [normal(3, 4)], lambda x: np.pad(x, ((1, 0), (2, 3))), attrs={"pad_width": ((1, 0), (2, 3))}),
    Case(
        "nn.pad",
        [normal(3, 4)],
        lambda x: np.pad(x, ((1, 0), (0, 3)), constant_values=5),
        lambda x: op.nn.pad(x, [[1, 0], [0, 3]], 5.0),
    ),
    Case(
        "nn.pad",
        [normal(3, 4), normal()],
        lambda x, v: np.pad(x, ((1, 0), (0, 3)), constant_values=v),
        lambda x, v: op.nn.pad(x, [[1, 0], [0, 3]], v),
    ),
    Case(
        "nn.pad", [normal(3, 4)], lambda x: np.pad(x[:, :3], ((1, 0), (0, 0))), attrs={"pad_width": ((1, 0), (0, -1))}
    ),
    Case(
        "nn.pad",
        [normal(3, 4)],
        lambda x: np.pad(x, ((1, 0), (2, 3)), "reflect"),
        attrs={"pad_width": ((1, 0), (2, 3)), "pad_mode": "reflect"},
    ),
    Case(
        "nn.pad",
        [normal(3, 4)],
        lambda x: np.pad(x, ((1, 0), (2, 3)), "edge"),
        attrs={"pad_width": ((1, 0), (2, 3)), "pad_mode": "edge"},
    ),
    Case(
        "nn.mirror_pad",
        [normal(3, 4)],
        lambda x: np.pad(x, ((1, 2), (0, 3)), "symmetric"),
        attrs={"pad_width": ((1, 2), (0, 3))},
    ),
    Case(
        "nn.mirror_pad",
        [normal(3, 4)],
        lambda x: np.pad(x, ((1, 2), (0, 3)), "reflect"),
        attrs={"pad_width": ((1, 2), (0, 3)), "mode": "REFLECT"},
    ),
    Case(
        "nn.dilate",
        [normal(2, 3)],
        lambda x: np.array([[x[0, 0], 7, x[0, 1], 7, x[0, 2]], [7] * 5, [x[1, 0], 7, x[1, 1], 7, x[1, 2]]], "float32"),
        attrs={"strides": (2, 2), "dilation_value": 7.0},
    ),
    Case("nn.dropout", [X], lambda x: x),
    Case("nn.dropout", [X], lambda x: (x, np.ones_like(x)), op.nn.dropout_raw, attrs={"rate": 0.1}),
    Case("nn.l2_normalize", [X], lambda x: x / np.sqrt((x**2).sum(1, keepdims=True)), attrs={"eps": 1e-9, "axis": [1]}),
    Case("nn.l2_normalize", [X], lambda x: x / np.sqrt((x**2).sum()), attrs={"eps": 1e-9}),
    *(_conv(r) for r in (1, 2, 3)),
    *(_conv(r, strides=2, padding=1) for r in (1, 2, 3)),
    _conv(2, dilation=2, padding=(2, 1)),
    _conv(2, padding=(0, 1, 2, 3)),
    _conv(1, padding=(0, 2)),
    _conv(3, padding=(0, 1, 1, 2, 1, 0)),
    _conv(2, groups=2, channels=6, kernel_size=(3, 3)),
    _conv(2, groups=4, out=8),
    _conv(2, layout="NHWC", kernel="HWIO"),
    _conv(1, layout="NWC", kernel="WIO"),
    _conv(3, layout="NDHWC", kernel="DHWIO"),
    _conv(2, groups=4, out=4, layout="NHWC", kernel="HWOI", channels=4, kernel_size=(3, 3), padding=(1, 1)),
    Case("nn.conv2d", [normal(2, 4, 6, 6), normal(4, 3, 3, 3)], _depthwise, attrs={"groups": 4, "padding": 1}),
    Case(
        "nn.conv2d",
        [normal(2, 6, 6, 4), normal(3, 3, 4, 3)],
        lambda x, w: _depthwise(x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1)).transpose(0, 2, 3, 1),
        attrs={
            "groups": 4,
            "padding": 1,
            "channels": 12,
            "kernel_size": 3,
            "data_layout": "NHWC",
            "kernel_layout": "HWOI",
        },
        tolerance=1e-4,
    ),
    *(_conv_transpose(r) for r in (1, 2, 3)),
    *(_conv_transpose(r, strides=2, padding=1, output_padding=1) for r in (1, 2, 3)),
    _conv_transpose(2, groups=2, channels=6, kernel_size=3, dilation=2),
    Case(
        "nn.conv2d_backward_weight",
        [normal(2, 6, 4, 3), X],
        lambda grad, x: _adjoint(lambda a, w: F.conv2d(a, w, None, 2, 1, 1, 2), 1)(grad, x, WEIGHT),
        attrs={"strides": 2, "padding": 1, "groups": 2, "kernel_size": (3, 3), "channels": 6},
        tolerance=1e-4,
    ),
    Case(
        "nn.max_pool2d_grad",
        [normal(2, 4, 4, 3), X],
        _adjoint(lambda a: F.max_pool2d(a, 3, 2, 1), 0),
        attrs={"pool_size": 3, "strides": 2, "padding": 1},
    ),
    Case(
        "nn.avg_pool2d_grad",
        [normal(2, 4, 4, 3), X],
        _adjoint(lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), 0),
        attrs={"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
    ),
    *_pools(),
    Case(
        "nn.avg_pool2d",
        [integers(0, 99, 2, 4, 7, 6)],
        lambda x: np.trunc(torch_of(lambda a: F.avg_pool2d(a.double(), 2, 2))(x)).astype("int32"),
        attrs={"pool_size": 2, "strides": 2},
    ),
    Case(
        "nn.max_pool2d",
        [integers(0, 99, 2, 4, 7, 6, dtype="uint8")],
        lambda x: torch_of(lambda a: F.max_pool2d(a.double(), 2, 2))(x).astype("uint8"),
        attrs={"pool_size": 2, "strides": 2},
    ),
    Case("nn.batch_norm", [X, normal(4), normal(4), normal(4), uniform(0.5, 2, 4)], _batch_norm),
    Case(
        "nn.batch_norm",
        [normal(2, 3, 4), normal(4), normal(4), normal(4), uniform(0.5, 2, 4)],
        lambda x, g, b, m, v: [(x - m) / np.sqrt(v + 0.1), m, v],
        attrs={"axis": -1, "epsilon": 0.1, "center": False, "scale": False},
    ),
    Case("nn.layer_norm", [normal(3, 4), *CHANNELS], lambda x, g, b: _norm(x, (1,)) * g + b, tolerance=1e-4),
    Case(
        "nn.layer_norm",
        [normal(2, 4, 5), *CHANNELS],
        lambda x, g, b: _norm(x, (1,)) * g.reshape(4, 1) + b.reshape(4, 1),
        attrs={"axis": 1},
        tolerance=1e-4,
    ),
    Case(
        "nn.instance_norm",
        [X, *CHANNELS],
        lambda x, g, b: _norm(x, (2, 3)) * g.reshape(4, 1, 1) + b.reshape(4, 1, 1),
        tolerance=1e-4,
    ),
    Case(
        "nn.instance_norm",
        [normal(2, 5, 4), *CHANNELS],
        lambda x, g, b: _norm(x, (1,)) * g + b,
        attrs={"axis": 2},
        tolerance=1e-4,
    ),
    Case("nn.group_norm", [X, *CHANNELS], _group_norm, attrs={"num_groups": 2}, tolerance=1e-4),
    Case("nn.lrn", [X], _lrn, attrs={"size": 3, "alpha": 0.1}),
    Case(
        "nn.cross_entropy",
        [uniform(0.1, 1, 5, 3), uniform(0, 1, 5, 3)],
        lambda p, t: -(np.log(p) * t).sum() / np.float32(5),
    ),
    Case(
        "nn.cross_entropy_with_logits", [normal(5, 3), uniform(0, 1, 5, 3)], lambda p, t: -(p * t).sum() / np.float32(5)
    ),
    *(
        Case("nn.nll_loss", [LOGITS, LABELS, uniform(0.5, 1, 3)], _nll(r), attrs={"reduction": r, "ignore_index": -1})
        for r in ("mean", "sum", "none")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


@pytest.mark.parametrize("loose", [every, first])
@pytest.mark.parametrize("case", [c for c in CASES if c.dynamic], ids=str)
def test_unknown_sizes(case: Case, loose: Any) -> None:
    check_unknown_sizes(case, loose)


UNKNOWN = AnySize()


@pytest.mark.parametrize(
    ("call", "shapes", "result"),
    [
        (op.nn.dense, [(UNKNOWN, 4), (5, 4)], (UNKNOWN, 5)),
        (op.nn.dense, [(2, UNKNOWN), (5, 4)], (2, 5)),
        (op.nn.batch_matmul, [(UNKNOWN, 3, 4), (UNKNOWN, 5, 4)], (UNKNOWN, 3, 5)),
        (op.nn.batch_matmul, [(UNKNOWN, 3, 4), (7, 5, UNKNOWN)], (7, 3, 5)),
        (op.nn.conv2d, [(UNKNOWN, 3, 8, 8), (5, 3, 3, 3)], (UNKNOWN, 5, 6, 6)),
        (op.nn.conv2d, [(1, 3, UNKNOWN, 8), (5, 3, 3, 3)], (1, 5, UNKNOWN, 6)),
        (
            lambda x, w: op.nn.conv2d_transpose(x, w, strides=2),
            [(UNKNOWN, 3, 8, 8), (3, 5, 2, 2)],
            (UNKNOWN, 5, 16, 16),
        ),
        (lambda x, w: op.nn.max_pool2d(x, 2, 2), [(UNKNOWN, 3, 8, 9), ()], (UNKNOWN, 3, 4, 4)),
        (lambda x, w: op.nn.avg_pool2d(x, 2, 2, ceil_mode=True), [(1, 3, UNKNOWN, 9), ()], (1, 3, UNKNOWN, 5)),
        (lambda x, w: op.nn.global_avg_pool2d(x), [(UNKNOWN, 3, UNKNOWN, 9), ()], (UNKNOWN, 3, 1, 1)),
        (lambda x, w: op.nn.adaptive_avg_pool2d(x, (2, 3)), [(UNKNOWN, 3, UNKNOWN, 9), ()], (UNKNOWN, 3, 2, 3)),
        (lambda x, w: op.nn.batch_flatten(x), [(UNKNOWN, 3, 4), ()], (UNKNOWN, 12)),
        (lambda x, w: op.nn.softmax(x), [(UNKNOWN, 3), ()], (UNKNOWN, 3)),
        (lambda x, w: op.nn.pad(x, ((0, 0), (1, 1))), [(UNKNOWN, 3), ()], (UNKNOWN, 5)),
        (lambda x, w: op.nn.bias_add(x, w), [(UNKNOWN, 3), (3,)], (UNKNOWN, 3)),
    ],
)
def test_type(call: Any, shapes: Any, result: Any) -> None:
    x, w = var("x", TensorType(shapes[0])), var("w", TensorType(shapes[1]))
    assert run_infer_type(as_expr(call(x, w))).checked_type.shape == result


@pytest.mark.parametrize(
    ("call", "shape", "weights"),
    [
        (lambda x, w: op.nn.dense(x, w, units=5), (3, 4), [(5, 4)]),
        (lambda x, w: op.nn.matmul(x, w, units=5), (3, 4), [(4, 5)]),
        (lambda x, w: op.nn.matmul(x, w, units=5, transpose_b=True), (3, 4), [(5, 4)]),
        (lambda x, w: op.nn.conv1d(x, w, channels=6, kernel_size=3), (2, 4, 9), [(6, 4, 3)]),
        (lambda x, w: op.nn.conv2d(x, w, channels=6, kernel_size=(3, 5)), (2, 4, 9, 9), [(6, 4, 3, 5)]),
        (lambda x, w: op.nn.conv2d(x, w, channels=6, kernel_size=3, groups=2), (2, 4, 9, 9), [(6, 2, 3, 3)]),
        (lambda x, w: op.nn.conv2d(x, w, channels=8, kernel_size=3, groups=4), (2, 4, 9, 9), [(4, 2, 3, 3)]),
        (
            lambda x, w: op.nn.conv2d(x, w, channels=6, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO"),
            (2, 9, 9, 4),
            [(3, 3, 4, 6)],
        ),
        (
            lambda x, w: op.nn.conv2d(x, w, channels=6, kernel_size=3, data_layout="NCHW2c", kernel_layout="OIHW4i2o"),
            (2, 2, 9, 9, 2),
            [(3, 1, 3, 3, 4, 2)],
        ),
        (lambda x, w: op.nn.conv3d(x, w, channels=6, kernel_size=3), (2, 4, 9, 9, 9), [(6, 4, 3, 3, 3)]),
        (lambda x, w: op.nn.conv2d_transpose(x, w, channels=6, kernel_size=3), (2, 4, 9, 9), [(4, 6, 3, 3)]),
        (lambda x, w: op.nn.bias_add(x, w), (2, 4, 9), [(4,)]),
        (lambda x, w: op.nn.bias_add(x, w, axis=-1), (2, 4, 9), [(9,)]),
        (lambda x, w: op.nn.prelu(x, w), (2, 4, 9), [(4,)]),
        (lambda x, *w: op.nn.batch_norm(x, *w)[0], (2, 4, 9), [(4,)] * 4),
        (lambda x, *w: op.nn.layer_norm(x, *w), (2, 4, 9), [(9,)] * 2),
        (lambda x, *w: op.nn.group_norm(x, *w, num_groups=2), (2, 4, 9), [(4,)] * 2),
        (lambda x, *w: op.nn.instance_norm(x, *w), (2, 4, 9), [(4,)] * 2),
    ],
)
def test_types_of_weights(call: Any, shape: Any, weights: Any) -> None:
    x = var("x", shape=shape)
    parameters = [var(f"w{i}", IncompleteType()) for i in range(len(weights))]
    typed = run_infer_type(Function([x, *parameters], as_expr(call(x, *parameters))))
    assert [p.checked_type.shape for p in typed.params[1:]] == weights


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: op.nn.dense(x, op.zeros((5, 3), "float32")), "nn.dense: data has 6 inputs, weight 3"),
        (lambda x: op.nn.dense(x, op.zeros((5, 6), "float32"), units=4), "units is 4, but weight is (5, 6)"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 4, 3, 3), "float32"), channels=4), "channels is 4"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 4, 3, 3), "float32"), kernel_size=5), "kernel_size is [5, 5]"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 3, 3, 3), "float32")), "3 channels"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 4, 3, 3), "float32"), padding=(1, 2, 3)), "padding must be 1, 2 or 4"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 4, 3, 3), "float32"), strides=(1, 2, 3)), "strides must be 1 or 2"),
        (lambda x: op.nn.conv2d(x, op.zeros((5, 4, 3, 3), "float32"), kernel_layout="OIH"), "kernel_layout names"),
        (lambda x: op.nn.bias_add(x, op.zeros((3,), "float32")), "axis 1 has 4 elements, the vector 3"),
        (lambda x: op.nn.bias_add(x, op.zeros((4, 1), "float32")), "bias must have one axis"),
        (lambda x: op.nn.softmax(x, axis=9), "9"),
        (lambda x: op.nn.pad(x, ((1, 1),)), "data has 4 axes, pad_width 1 pairs"),
        (lambda x: op.nn.pad(x, ((1, 1),), pad_mode="wrap"), "pad_mode must be"),
        (lambda x: op.nn.mirror_pad(x, ((1, 1),), mode="WRAP"), "mode must be"),
        (lambda x: op.nn.lrn(x, size=4), "size must be odd"),
        (lambda x: op.nn.cross_entropy(x, x), "(N, classes)"),
        (lambda x: op.nn.batch_norm(x, *[op.zeros((3,), "float32")] * 4)[0], "nn.batch_norm"),
        (lambda x: op.nn.gelu(x), "there is no relay.nn.gelu"),
    ],
)
def test_errors(call: Any, words: str) -> None:
    x = var("x", shape=(2, 4, 7, 6))
    with pytest.raises(PullbackError) as raised:
        run_infer_type(Function([x], as_expr(call(x))))
    assert words in str(raised.value)


def test_attributes_as_printed() -> None:
    x, w = var("x", shape=(1, 3, 8, 8)), var("w", shape=(5, 3, 3, 3))
    attrs = op.nn.conv2d(x, w, padding=(1, 1), kernel_size=3, channels=5).attrs
    assert attrs.padding == (1, 1, 1, 1) and attrs.kernel_size == (3, 3) and attrs.strides == (1, 1)
    assert attrs.data_layout == "NCHW" and attrs.out_dtype == "" and attrs.channels == 5
    assert op.nn.max_pool2d(x, 2, 2).attrs.pool_size == (2, 2)
    assert op.nn.pad(x, ((0, 0),) * 4).args[1].data.numpy() == 0
    assert op.sum(x, axis=1).attrs == {"axis": (1,), "keepdims": False, "exclude": False}
    assert op.clip(x, const(0.0), 6).attrs == {"a_min": 0.0, "a_max": 6.0}
