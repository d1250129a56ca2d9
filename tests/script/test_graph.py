"""Parsing graph functions and modules."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import relax, tir
from pullback.ir import GlobalVar, IRModule, ScriptError, assert_structural_equal
from pullback.relax import struct_info as info
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from tests.helpers import round_trip

batch_size = 64


def double(x: relax.Expr) -> relax.Expr:
    return R.add(x, x)


@I.ir_module
class MLP:
    """The tutorial's model."""

    I.module_attrs({"param_num": 6, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((batch_size, 784), "float32"),
        w0: R.Tensor((784, 128), "float32"),
        b0: R.Tensor((128,), "float32"),
        w1: R.Tensor((128, 128), "float32"),
        b1: R.Tensor((128,), "float32"),
        w2: R.Tensor((128, 10), "float32"),
        b2: R.Tensor((10,), "float32"),
    ) -> R.Tensor((batch_size, 10), "float32"):
        with R.dataflow():
            lv0 = R.matmul(x, w0)
            lv1 = R.add(lv0, b0)
            lv2 = R.nn.relu(lv1)
            lv3 = R.matmul(lv2, w1)
            lv4 = R.add(lv3, b1)
            lv5 = R.nn.relu(lv4)
            lv6 = R.matmul(lv5, w2)
            out = R.add(lv6, b2)
            R.output(out)
        return out


def test_the_tutorials_model() -> None:
    assert isinstance(MLP, IRModule)
    assert MLP.attrs == {"param_num": 6, "state_num": 0}
    f = MLP["backbone"]
    assert [p.name for p in f.params] == ["x", "w0", "b0", "w1", "b1", "w2", "b2"]
    (block,) = f.body.blocks
    assert isinstance(block, relax.DataflowBlock)
    kinds = [type(b.var) for b in block.bindings]
    assert kinds == [relax.DataflowVar] * 7 + [relax.Var]
    assert f.ret_struct_info == R.Tensor((64, 10), "float32")
    round_trip(MLP)


def test_spans_point_at_the_source() -> None:
    binding = next(iter(MLP["backbone"].bindings))
    span = binding.value.span
    assert span is not None and span.file == __file__
    assert span.source_line().strip() == "lv0 = R.matmul(x, w0)"
    assert span.source_line()[span.column : span.end_column] == "R.matmul(x, w0)"
    assert binding.var.span is not None
    assert span.source_line()[binding.var.span.column : binding.var.span.end_column] == "lv0"


def test_nested_calls_infix_and_helpers_are_flattened() -> None:
    @R.function
    def nested(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            y = double(x * 2.0) - R.add(x, x)
            R.output(y)
        return y

    @R.function
    def flat(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.multiply(x, R.const(2.0, "float32"))
            b = R.add(a, a)
            c = R.add(x, x)
            y = R.subtract(b, c)
            R.output(y)
        return y

    # the helper used `x * 2.0` twice: one object, bound at each use
    assert [b.value.op.short for b in nested.bindings][-2:] == ["add", "subtract"]
    assert relax.analysis.well_formed(nested)
    assert flat.body.struct_info == nested.body.struct_info
    round_trip(nested)


def test_closures_enclosing_locals_and_globals_are_seen() -> None:
    rows = 3

    def make(columns: int) -> relax.Function:
        scale = 2.5

        @R.function
        def f(x: R.Tensor((rows, columns), "float32")):
            y = R.multiply(x, R.const(scale, "float32"))
            z = R.add(y, R.const(np.full((rows, columns), batch_size), "float32"))
            return z

        return f

    assert make(5).ret_struct_info == R.Tensor((3, 5), "float32")
    assert make(7).ret_struct_info == R.Tensor((3, 7), "float32")


def test_two_modules_of_one_name_in_one_function() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y = R.add(x, x)
            return y

    first = Module

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Module
            y = cls.other(x)
            return y

        @R.function(private=True)
        def other(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return x

    assert list(first) == ["main"]
    assert list(Module) == ["main", "other"]
    assert Module["other"].attrs == {"private": True}
    call = next(iter(Module["main"].bindings)).value
    assert call.op == GlobalVar("other")
    round_trip(Module)


def test_symbolic_sizes() -> None:
    @R.function
    def f(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n * 2", "m"), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        k = T.int64()
        flat = R.reshape(x, (n * 4,))
        cast = R.match_cast(flat, R.Tensor((k,), "float32"))
        short = R.match_cast(cast, R.Tensor((n,), "float32"))
        return short

    n = f.params[0].shape[0]
    assert isinstance(n, tir.Var) and n.name == "n"
    assert f.ret_struct_info.shape[0] is n
    assert isinstance(list(f.bindings)[1], relax.MatchCast)
    assert relax.analysis.well_formed(f)
    assert 'R.Tensor(("n * 2", "m"), "float32")' in round_trip(f)


def test_sizes_made_outside() -> None:
    n = T.Var("n", "int64")

    @R.function
    def f(x: R.Tensor((n, 4), "float32")) -> R.Tensor((n, 4), "float32"):
        y = R.add(x, x)
        return y

    assert f.params[0].shape[0] is n
    round_trip(f)


def test_tuples() -> None:
    @R.function
    def f(t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((3,), "float32"), R.Object))):
        a, b = t
        c, d = b
        e = (a, (c,), R.tuple())
        g, h = a, c
        i = t[0]
        return (e, g, h, i, d)

    values = [type(b.value).__name__ for b in f.bindings]
    assert values == ["TupleGetItem"] * 4 + ["Tuple", "Var", "Var", "TupleGetItem"]
    round_trip(f)


def test_types() -> None:
    @R.function
    def f(
        a: R.Tensor(ndim=2, dtype="int8"),
        b: R.Tensor,
        c: R.Shape([2, "n"]),
        d: R.Prim("int64"),
        e: R.Object,
        g: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32")),
        h: R.Tensor((2,), "float32"),
    ):
        y = g(h)
        return (y, R.shape([2, 3]), R.prim_value(7), R.prim_value(1.5))

    assert [type(p.struct_info) for p in f.params[:6]] == [
        info.TensorStructInfo, info.TensorStructInfo, info.ShapeStructInfo, info.PrimStructInfo, info.ObjectStructInfo,
        info.FuncStructInfo,
    ]  # fmt: skip
    assert f.params[0].struct_info.ndim == 2 and f.params[1].struct_info.ndim == -1
    round_trip(f)


def test_a_less_precise_annotation_is_kept() -> None:
    @R.function
    def f(x: R.Tensor((2, 3), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        y: R.Tensor(ndim=2, dtype="float32") = R.add(x, x)
        return y

    assert next(iter(f.bindings)).var.struct_info.shape is None
    assert 'y: R.Tensor(dtype="float32", ndim=2) = R.add(x, x)' in round_trip(f)


def test_python_values_get_names_only() -> None:
    @R.function
    def f(x: R.Tensor((2, 3), "float32")):
        shape = (3, 2)
        half = 1.0 / 2
        y = R.reshape(x * half, shape)
        return y

    assert [b.value.op.short for b in f.bindings] == ["multiply", "reshape"]


def test_blocks() -> None:
    @R.function
    def f(x: R.Tensor((2,), "float32")):
        a = R.add(x, x)
        with R.dataflow():
            b = R.add(a, a)
            R.output(b)
        with R.dataflow():
            c = R.add(b, b)
            d = R.add(c, c)
            R.output(c, d)
        e = R.add(d, c)
        return e

    kinds = [type(b) for b in f.body.blocks]
    assert kinds == [relax.BindingBlock, relax.DataflowBlock, relax.DataflowBlock, relax.BindingBlock]
    round_trip(f)


def test_calls_of_kernels() -> None:
    @I.ir_module
    class Net:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            cls = Net
            n = T.int64()
            y = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((n,), "float32"))
            z = R.call_tir(
                cls.twice,
                (y,),
                [R.Tensor((n,), "float32"), R.Tensor((), "bool")],
                tir_vars=R.shape([n]),
                origin={"op": "relax.add", "attrs": {"axis": (0, 1), "dtype": "float32", "value": None}},
            )
            return z

        @T.prim_func(private=True)
        def twice(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                B[i] = A[i] + A[i]

    text = round_trip(Net)
    assert 'y = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((n,), "float32"))' in text
    assert Net["twice"].attrs == {"private": True}


def test_recursion_and_functions_defined_later() -> None:
    @I.ir_module
    class Net:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Net
            y = cls.main(x)
            z = cls.later(y)
            return z

        @R.function
        def later(a: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return a

    n = Net["main"].params[0].shape[0]
    assert [b.var.shape for b in Net["main"].bindings] == [(n,), (n,)]
    round_trip(Net)


def test_constants_in_the_class_body() -> None:
    @I.ir_module
    class Net:
        width = 4

        @R.function
        def main(x: R.Tensor((width, 2), "float32")):
            return x

    assert Net["main"].params[0].shape == (4, 2)


def test_outside_scripts() -> None:
    assert isinstance(R.Tensor((2, 3)), relax.TensorStructInfo)
    assert R.dtype("float16") == "float16"
    x = relax.Var("x", R.Tensor(("n", 3), "float32"))
    assert R.add(x, x).struct_info == x.struct_info
    assert R.nn.relu(x).op.short == "nn.relu"
    with pytest.raises(AttributeError, match=r"there is no R\.mattmul: did you mean R\.matmul"):
        R.mattmul  # noqa: B018
    with pytest.raises(Exception, match=r"means something only inside @R\.function"):
        R.dataflow()


def test_a_graph_function_in_a_class_that_is_no_module() -> None:
    class Plain:
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            return x

    with pytest.raises(ScriptError, match="belongs to a class that is no module"):
        Plain.f(1)


def test_decorating_by_hand() -> None:
    class Net:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return x

    assert list(I.ir_module(Net)) == ["main"]


def test_text() -> None:
    text = '''
"""A file."""
from pullback.script import ir as I, relax as R
from pullback import tir

rows = 3

@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor((rows, columns), "float32")):
        return x
'''
    module = from_source(text, extra_vars={"columns": 5})
    assert module["main"].params[0].shape == (3, 5)
    with pytest.raises(ScriptError, match="a text imports only from pullback"):
        from_source("import os")


def test_modules_that_share_a_size_are_equal_to_those_that_do_not() -> None:
    n, m = T.Var("n", "int64"), T.Var("m", "int64")

    def identity(size: tir.Var) -> relax.Function:
        x = relax.Var("x", R.Tensor((size,), "float32"))
        return relax.Function((x,), x)

    assert_structural_equal(
        IRModule({"f": identity(n), "g": identity(n)}), IRModule({"f": identity(n), "g": identity(m)})
    )
