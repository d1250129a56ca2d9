"""Every operator has a sample; the reference's names find them; users add their own."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pullback import IRModule, relax, relay, te, tir
from pullback.ir import assert_structural_equal
from pullback.ir.errors import ArgumentError, CallError, NameNotFound, PullbackError
from pullback.relay import op
from pullback.relay.expr import Call, Function, TupleGetItem, TupleWrapper, const, var
from pullback.relay.op import Op, OpPattern
from pullback.relay.op.gradients import RULES
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import TensorType
from tests.relay.differences import run
from tests.relay.op_cases import Case

FILES = ("elementwise", "shape", "index", "nn", "image", "values")
RANDOM = {"threefry_generate", "threefry_split", "uniform", "normal", "multinomial"}


def _cases() -> list[Case]:
    return [case for name in FILES for case in importlib.import_module(f"tests.relay.test_ops_{name}").CASES]


def test_every_operator_has_a_sample() -> None:
    pytest.importorskip("torch")
    sampled = {case.op for case in _cases()} | {f"random.{name}" for name in RANDOM}
    own = {name for name in Op.registry if not name.startswith(("relax.", "own."))}
    assert own - sampled == set()


def test_calls_read_back() -> None:
    """The text of every sample means the same again."""
    pytest.importorskip("torch")
    for case in _cases():
        function = case.function()
        assert_structural_equal(relay.parse_expr(relay.astext(function)), function)


def test_every_rule_of_a_gradient_has_an_operator() -> None:
    assert [name for name in RULES if name not in Op.registry] == []


@pytest.mark.parametrize("name", sorted(n for n in Op.registry if not n.startswith(("relax.", "own."))))
def test_an_operator_explains_itself(name: str) -> None:
    found = op.get(name)
    assert found.name == name and str(found) == name
    assert found.get_attr("TOpPattern") in range(9)
    assert found.lower or found.static or found.numpy


# Names that programs for the reference's release 0.18 use
NAMES = """abs acos acosh add adv_index all any arange argmax argmin argsort argwhere asin asinh atan atanh bitwise_and
bitwise_not bitwise_or bitwise_xor broadcast_to broadcast_to_like cast cast_like ceil clip collapse_sum_like
collapse_sum_to concatenate copy cos cosh cumprod cumsum device_copy divide einsum equal erf exp expand_dims
fixed_point_multiply floor floor_divide floor_mod full full_like gather gather_nd greater greater_equal
invert_permutation isfinite isinf isnan layout_transform left_shift less less_equal log log10 log2 logical_and
logical_not logical_or logical_xor logsumexp matrix_set_diag max maximum mean mean_std mean_variance meshgrid min
minimum mod multiply ndarray_size negative not_equal one_hot ones ones_like power prod repeat reshape reshape_like
reverse reverse_reshape reverse_sequence right_shift round rsqrt scatter_elements scatter_nd searchsorted segment_sum
sequence_mask shape_of sigmoid sign sin sinh slice_like sort sparse_to_dense split sqrt squeeze stack std strided_set
strided_slice subtract sum take tan tanh tile topk transpose trilu trunc trunc_divide trunc_mod unique unravel_index
variance where zeros zeros_like
nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.adaptive_max_pool1d nn.adaptive_max_pool2d
nn.adaptive_max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_flatten nn.batch_matmul nn.batch_norm
nn.batch_to_space_nd nn.bias_add nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d
nn.conv3d_transpose nn.cross_entropy nn.cross_entropy_with_logits nn.dense nn.depth_to_space nn.dilate nn.dropout
nn.dropout_raw nn.fast_softmax nn.fifo_buffer nn.global_avg_pool1d nn.global_avg_pool2d nn.global_avg_pool3d
nn.global_max_pool1d nn.global_max_pool2d nn.global_max_pool3d nn.group_norm nn.instance_norm nn.l2_normalize
nn.layer_norm nn.leaky_relu nn.log_softmax nn.lrn nn.matmul nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.mirror_pad
nn.nll_loss nn.pad nn.prelu nn.relu nn.softmax nn.space_to_batch_nd nn.space_to_depth nn.sparse_dense nn.upsampling
nn.upsampling3d
image.affine_grid image.crop_and_resize image.dilation2d image.grid_sample image.resize1d image.resize2d image.resize3d
vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_prior vision.multibox_transform_loc
vision.non_max_suppression vision.roi_align vision.roi_pool
random.multinomial random.normal random.threefry_generate random.threefry_key random.threefry_split random.uniform
annotation.on_device annotation.stop_fusion annotation.checkpoint
dft stft sliding_window reinterpret sparse_reshape sparse_fill_empty_rows nn.avg_pool2d_grad nn.max_pool2d_grad
nn.conv2d_backward_weight
op.transform.reshape op.tensor.add op.reduce.sum op.reduce.logsumexp op.algorithm.topk op.nn.dense op.op.get
op.op.register op.dyn.reshape op.dyn.nn.pad op.dyn.image.resize2d op.register_gradient op.OpPattern op.register_pattern
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_reference(name: str) -> None:
    found: Any = relay
    for part in name.split("."):
        found = getattr(found, part)
        assert part in dir(found) or found is not None
    assert callable(found)


def test_the_standard_library_hides_no_operator() -> None:
    relay.prelude.Prelude(IRModule())
    assert relay.std is op.std


def test_namespaces_are_modules() -> None:
    from pullback.relay.op.nn import dense
    from pullback.relay.op.transform import reshape

    from pullback.relay.op import nn, transform

    assert nn.dense is dense is op.get("nn.dense")
    assert transform.reshape is reshape is op.reshape
    assert {"dense", "conv2d", "dropout_raw"} <= set(dir(nn))
    assert "relu" not in dir(op.transform) and "exp" in dir(op)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match=r"there is no relay\.nn\.dens: did you mean dense\?"):
        _ = op.nn.dens
    with pytest.raises(NameNotFound, match=r"there is no relay operator 'nn\.lstm'"):
        op.get("nn.lstm")


def test_calls_with_wrong_arguments() -> None:
    x = var("x", shape=(2, 3))
    with pytest.raises(CallError, match=r"nn\.dense: argument 'weight' is missing"):
        op.nn.dense(x)
    with pytest.raises(CallError, match="argument 'unit' does not exist"):
        op.nn.dense(x, x, unit=3)
    with pytest.raises(CallError, match=r"softmax takes \(data, axis=-1\), got 3 arguments"):
        op.nn.softmax(x, 1, 2)


def test_make_is_the_call_of_the_program() -> None:
    x = var("x", shape=(2, 3))
    call = op.get("nn.dropout").make([x])
    assert isinstance(call, Call) and call.attrs == {"rate": 0.5}
    assert isinstance(op.nn.dropout(x), TupleGetItem)
    with pytest.raises(CallError, match="there is no attribute 'p'"):
        op.get("nn.dropout").make([x], {"p": 0.5})
    with pytest.raises(CallError, match="attribute 'newshape' is missing"):
        op.get("reshape").make([x])


def test_several_results() -> None:
    x = var("x", shape=(2, 6))
    parts = op.split(x, 3, axis=1)
    assert isinstance(parts, TupleWrapper) and len(parts) == 3
    assert len(op.split(x, (1, 2, 4), axis=1)) == 4
    assert len(op.topk(x, 2)) == 2 and isinstance(op.topk(x, 2, ret_type="values"), Call)
    assert len(op.unique(x)) == 4 and len(op.unique(x, return_counts=True)) == 5


# -- operators of users


@pytest.fixture
def own() -> Any:
    """A name of an operator that is gone after the test."""
    yield "own.swish"
    Op.registry.pop("own.swish", None)


def test_an_operator_of_a_user(own: str) -> None:
    op.register(own, "x / (1 + exp(-x))")
    found = op.get(own)
    found.set_num_inputs(1).add_argument("data", "Tensor", "the tensor").add_type_rel("Identity").set_support_level(3)
    op.register_pattern(own, OpPattern.ELEMWISE)
    op.register_stateful(own, False)
    assert found.num_inputs == 1 and found.signature.tensors == ("data",) and found.support_level == 3
    assert found.get_attr("TOpPattern") == OpPattern.ELEMWISE and found.get_attr("TOpIsStateful") is False
    assert found.description == "x / (1 + exp(-x))"

    x = var("x", shape=(2, 3))
    typed = run_infer_type(Function([x], Call(found, [x])))
    assert typed.body.checked_type == TensorType((2, 3))
    data = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    with pytest.raises(PullbackError, match=r"own\.swish"):
        run(typed, data)

    @op.register_lower(own)
    def lower(data: Any) -> Any:
        return relax.op.multiply(data, relax.op.sigmoid(data))

    again = run_infer_type(Function([x], found(x)))
    np.testing.assert_allclose(run(again, data), data / (1 + np.exp(-data)), rtol=1e-5)


def test_a_compute_of_a_user(own: str) -> None:
    op.register(own)

    @op.register_compute(own)
    def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
        (x,) = inputs
        return [te.compute(x.shape, lambda *i: x[i] / (tir.call("exp", -x[i]) + 1.0))]

    op.get(own).set_num_inputs(1)
    x = var("x", shape=(2, 3))
    data = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    np.testing.assert_allclose(
        run(run_infer_type(Function([x], op.get(own)(x))), data), data / (1 + np.exp(-data)), rtol=1e-5
    )


def test_a_type_relation_of_a_user(own: str) -> None:
    op.register(own)
    op.get(own).add_type_rel("own", lambda types, attrs: TensorType((types[0].shape[0], 7), types[0].dtype))
    x = var("x", shape=(2, 3))
    assert run_infer_type(Call(op.get(own), [x])).checked_type == TensorType((2, 7))
    with pytest.raises(NameNotFound, match="no type relation 'Concat'"):
        op.get(own).add_type_rel("Concat")


def test_broadcast_relation(own: str) -> None:
    op.register(own)
    op.get(own).set_num_inputs(2).add_type_rel("Broadcast")
    call = Call(op.get(own), [var("x", shape=(2, 1)), var("y", shape=(3,))])
    assert run_infer_type(call).checked_type == TensorType((2, 3))


def test_names_are_taken_once() -> None:
    with pytest.raises(ArgumentError, match="there is a relay operator 'add' already"):
        op.register("add")


def test_notes(own: str) -> None:
    op.register(own)

    @op.register_legalize(own)
    def legalize(attrs: Any, inputs: Any, types: Any) -> Any:
        return None

    assert op.get(own).get_attr("FTVMLegalize") is legalize
    assert op.get(own).has_attr("FTVMLegalize") and not op.get(own).has_attr("FTVMStrategy")
    op.get(own).reset_attr("FTVMLegalize")
    assert op.get(own).get_attr("FTVMLegalize") is None


def test_expressions_have_operators() -> None:
    x, y = var("x", shape=(3,)), var("y", shape=(3,))
    for expr, name in ((x + y, "add"), (x < y, "less"), (-x, "negative"), (const(1.0) - x, "subtract")):
        assert expr.op is op.get(name)
