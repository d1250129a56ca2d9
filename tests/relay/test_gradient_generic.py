"""Operators without a rule of their own: the gradient of what they mean in the graph IR, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.op.gradients import RULES
from tests.relay.differences import apart, between, check_gradient, indices, normal, program

SAMPLES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("power", [between(0.5, 2, 2, 3), normal(3)], {}),
    ("maximum", [apart(2, 3), apart(2, 3) + 0.1], {}),
    ("minimum", [apart(2, 3), apart(3) + 0.1], {}),
    ("rsqrt", [between(0.5, 2, 2, 3)], {}),
    ("prod", [between(0.5, 2, 2, 3)], {"axis": 1}),
    ("min", [apart(2, 3)], {"axis": 0}),
    ("fast_exp", [normal(2, 3)], {}),
    ("fast_tanh", [normal(2, 3)], {}),
    ("split", [normal(2, 6)], {"indices_or_sections": (1, 4), "axis": 1}),
    ("meshgrid", [[normal(2), normal(3)]], {}),
    ("repeat", [normal(2, 3)], {"repeats": 2, "axis": 1}),
    ("tile", [normal(2, 3)], {"reps": (2, 1, 2)}),
    ("reverse", [normal(2, 3)], {"axis": 1}),
    ("reverse_sequence", [normal(3, 4), indices(4, 4)], {"seq_axis": 0, "batch_axis": 1}),
    ("broadcast_to", [normal(2, 1)], {"shape": (4, 2, 3)}),
    ("broadcast_to_like", [normal(2, 1), normal(4, 2, 3)], {}),
    ("full_like", [normal(2, 3), normal()], {}),
    ("layout_transform", [normal(1, 4, 2, 2)], {"src_layout": "NCHW", "dst_layout": "NCHW2c"}),
    ("slice_like", [normal(4, 5), normal(2, 3)], {}),
    ("gather", [normal(3, 4), indices(3, 2, 4)], {"axis": 0}),
    ("scatter_elements", [normal(3, 4), indices(3, 1, 4), normal(1, 4)], {"axis": 0, "reduction": "add"}),
    ("scatter_nd", [normal(4, 3), np.array([[0, 2]], "int32"), normal(2, 3)], {"mode": "add"}),
    ("scatter_nd", [normal(4, 3), np.array([[0, 2]], "int32"), normal(2, 3)], {"mode": "update"}),
    ("sequence_mask", [normal(3, 2), np.array([1, 3], "int32")], {}),
    ("cumsum", [normal(2, 3)], {"axis": 1}),
    ("cumprod", [between(0.5, 2, 2, 3)], {"axis": 1}),
    ("sort", [apart(2, 5)], {"axis": 1}),
    ("topk", [apart(2, 5)], {"k": 2, "ret_type": "values"}),
    ("topk", [apart(2, 5)], {"k": 2}),
    ("einsum", [[normal(2, 3), normal(3, 4)]], {"equation": "ij,jk->ik"}),
    ("nn.conv1d", [normal(2, 3, 6), normal(4, 3, 3)], {"kernel_size": 3, "channels": 4, "padding": 1}),
    ("nn.conv3d", [normal(1, 2, 3, 3, 3), normal(2, 2, 2, 2, 2)], {"kernel_size": (2, 2, 2), "channels": 2}),
    ("nn.conv2d_transpose", [normal(1, 3, 3, 3), normal(3, 2, 2, 2)],
     {"kernel_size": (2, 2), "channels": 2, "strides": (2, 2)}),
    ("nn.max_pool1d", [apart(1, 2, 6)], {"pool_size": 2, "strides": 2}),
    ("nn.avg_pool3d", [normal(1, 1, 2, 4, 4)], {"pool_size": (2, 2, 2), "strides": (2, 2, 2)}),
    ("nn.adaptive_avg_pool2d", [normal(1, 2, 5, 4)], {"output_size": (2, 3)}),
    ("nn.adaptive_max_pool2d", [apart(1, 2, 5, 4)], {"output_size": (2, 3)}),
    ("nn.global_max_pool2d", [apart(1, 2, 3, 4)], {}),
    ("nn.layer_norm", [normal(2, 4), normal(4), normal(4)], {}),
    ("nn.group_norm", [normal(2, 4, 3), normal(4), normal(4)], {"num_groups": 2}),
    ("nn.instance_norm", [normal(2, 3, 4), normal(3), normal(3)], {}),
    ("nn.l2_normalize", [normal(2, 4)], {"eps": 1e-3, "axis": [1]}),
    ("nn.lrn", [normal(1, 6, 2, 2)], {"size": 3, "alpha": 0.1}),
    ("nn.leaky_relu", [apart(2, 3)], {"alpha": 0.1}),
    ("nn.prelu", [apart(2, 3, 4), between(0.1, 0.5, 3)], {}),
    ("nn.fast_softmax", [normal(2, 3)], {}),
    ("nn.pad", [normal(2, 3), normal()], {"pad_width": ((1, 0), (0, 2))}),
    ("nn.mirror_pad", [normal(3, 4)], {"pad_width": ((1, 1), (0, 2)), "mode": "REFLECT"}),
    ("nn.upsampling", [normal(1, 2, 2, 3)], {"scale_h": 2, "scale_w": 2}),
    ("nn.depth_to_space", [normal(1, 4, 2, 3)], {"block_size": 2}),
    ("nn.space_to_depth", [normal(1, 1, 4, 2)], {"block_size": 2}),
    ("nn.dilate", [normal(2, 3)], {"strides": (1, 2)}),
    ("nn.nll_loss", [normal(3, 4), indices(4, 3), between(0.5, 1, 4)], {}),
    ("nn.batch_norm", [normal(3, 2, 2), normal(2), normal(2), normal(2), between(0.5, 2, 2)], {}),
    ("image.resize2d", [normal(1, 2, 3, 4)], {"size": (5, 6)}),
    ("image.affine_grid", [normal(1, 2, 3)], {"target_shape": (2, 3)}),
    ("image.grid_sample", [normal(1, 2, 4, 4), between(-0.9, 0.9, 1, 2, 3, 3)], {}),
    ("relax.nn.gelu", [normal(2, 3)], {}),
    ("relax.nn.silu", [normal(2, 3)], {}),
    ("relax.concat", [[normal(2, 3), normal(2, 1)]], {"axis": 1}),
    ("vision.roi_align", [normal(1, 2, 6, 6), np.array([[0, 0.3, 0.4, 3.7, 4.2]])],
     {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "attrs"), SAMPLES, ids=[f"{k}-{name}" for k, (name, _, _) in enumerate(SAMPLES)]
)
def test_the_gradient_is_the_derivative(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    function, values = program(name, args, attrs)
    assert name not in RULES
    check_gradient(function, values)
