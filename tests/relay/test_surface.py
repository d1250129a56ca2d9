"""Every name of the surface is there, where programs for the reference look for it.

What the names do has tests of their own, one file a subject; here nothing may be missing.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import pullback as tvm
from pullback.ir.errors import ArgumentError

SURFACE = {
    "relay": """
        TensorType TupleType FuncType RefType TypeVar IncompleteType Any scalar_type Var Constant Tuple TupleGetItem
        Call Let If Function GlobalVar RefCreate RefRead RefWrite Match Clause PatternConstructor PatternVar
        PatternTuple PatternWildcard Constructor TypeData TypeCall GlobalTypeVar TypeRelation TypeKind Span SourceName
        ExprVisitor ExprMutator ExprFunctor TypeVisitor TypeMutator bind var const ScopeBuilder TupleWrapper parse
        parse_expr fromtext astext create_executor build optimize save_param_dict load_param_dict save_json load_json op
        nn transform analysis frontend testing prelude loops ir_pass build_module backend aot vm adt ty expr
    """,
    "relay.transform": """
        InferType gradient PartialEvaluate DeadCodeElimination FoldConstant ForwardFoldScaleAxis BackwardFoldScaleAxis
        FoldScaleAxis ToANormalForm ToGraphNormalForm LazyGradientInit SimplifyInference FuseOps Legalize
        DynamicToStatic PlanDevices Pass Sequential PassContext PrintIR Inline LambdaLift Defunctionalization EtaExpand
        EliminateCommonSubexpr RemoveUnusedFunctions ToBasicBlockNormalForm to_cps un_cps function_pass module_pass
        AlterOpLayout
    """,
    "transform": "Pass Sequential PassContext PassInfo PrintIR module_pass",
    "relay.analysis": """
        free_vars free_type_vars detect_feature Feature well_formed all_vars bound_vars all_type_vars bound_type_vars
        check_kind check_basic_block_normal_form unmatched_cases list_op_freqs CallGraph post_order_visit
    """,
    "relay.backend": "interpreter.RefValue interpreter.ConstructorValue vm.VMCompiler vm.compile Executor Runtime",
    "runtime": "vm.VirtualMachine vm.Executable container.ADT container.tuple_object enabled load_module",
    "contrib.graph_executor": "GraphModule create",
    "relay.prelude": "Prelude",
    "relay.loops": "while_loop",
    "relay.op": """
        register register_stateful register_pattern get register_gradient log add collapse_sum_like transpose multiply
    """,
    "relay.build_module": "build bind_params_by_name",
    "relay.ir_pass": "gradient infer_type",
    "relay.frontend": "from_pytorch from_keras from_onnx",
    "relay.testing": "check_grad rand run_infer_type create_workload mlp resnet lstm make_nat_expr",
    "ir": "structural_hash structural_equal assert_structural_equal save_json load_json Op IRModule Span",
    "target.Target": "canon_multi_target",
    "nd": "array device NDArray",
}

# The gradients that the reference registers, by the names of operators.
GRADIENTS = """
    log log2 log10 tan cos cosh sin sinh acos acosh asin asinh atan atanh exp sqrt sigmoid tanh erf clip abs negative
    add subtract multiply divide max sum mean variance zeros ones zeros_like ones_like dyn.zeros dyn.ones copy cast
    cast_like reshape dyn.reshape reshape_like contrib_reverse_reshape transpose squeeze expand_dims concatenate stack
    strided_slice where take gather_nd one_hot arange shape_of collapse_sum_like collapse_sum_to less_equal not_equal
    nn.relu nn.max_pool2d nn.avg_pool2d nn.global_avg_pool2d nn.conv2d nn.softmax nn.log_softmax nn.bias_add nn.dense
    nn.matmul nn.batch_matmul nn.batch_flatten nn.cross_entropy nn.cross_entropy_with_logits
"""


def found(path: str) -> Any:
    """An attribute, or a module below."""
    value: Any = tvm
    for part in path.split("."):
        if not hasattr(value, part):
            return importlib.import_module(f"pullback.{path}")
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("path", [f"{room}.{name}" for room, names in SURFACE.items() for name in names.split()])
def test_name(path: str) -> None:
    assert found(path) is not None


@pytest.mark.parametrize("name", GRADIENTS.split())
def test_operator_with_gradient(name: str) -> None:
    op = tvm.relay.op.get(name)
    assert op.name == name
    assert op.get_attr("FPrimalGradient") is not None


def test_nat_is_iterated() -> None:
    """``nat_iterate`` of the prelude, once natural numbers are in it."""
    prelude = tvm.relay.prelude.Prelude(tvm.IRModule())
    tvm.relay.testing.add_nat_definitions(prelude)
    assert prelude.nat_iterate.name_hint == "nat_iterate"


def test_names_of_sources() -> None:
    span = tvm.relay.Span(tvm.relay.SourceName("model.py"), 3)
    assert span.source_name == "model.py" and span.source_name.name == "model.py" and span.line == 3


def test_functions_by_name() -> None:
    x, w = tvm.relay.var("x", shape=(2,)), tvm.relay.var("w", shape=(2,))
    bind = tvm.get_global_func("relay.build_module.BindParamsByName")  # whatever of relay is loaded yet
    assert bind(tvm.relay.Function([x, w], x + w), {"w": np.ones(2, np.float32)}).params == (x,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda relay: relay.const([[1], [1, 2]]), "lists of unequal lengths are no constant"),
        (lambda relay: relay.var("x", shape=3), "shape of a variable must be a sequence, got 3"),
        (lambda relay: relay.Match(relay.var("x"), [3]), "int is no clause of a Match"),
    ],
)
def test_what_is_no_expression(build, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build(tvm.relay)


def test_an_operator_explains_itself() -> None:
    assert tvm.relay.nn.dense.__doc__.startswith("nn.dense(data, weight, units=None, out_dtype='')\n\ndata · weightᵀ")
