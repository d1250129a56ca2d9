"""``out_dtype=""`` and ``"void"`` mean the inputs' dtype, as if nothing were given."""

from __future__ import annotations

import pytest

from pullback import relax
from pullback.ir import Op, UserError, structural_equal
from pullback.script import from_source
from pullback.script import relax as R

X, W = relax.Var("x", R.Tensor((2, 3, 8, 8))), relax.Var("w", R.Tensor((3, 3, 3, 3)))
M = relax.Var("m", R.Tensor((8, 8)))
CALLS = {
    "matmul": lambda **options: R.matmul(M, M, **options),
    "nn.conv2d": lambda **options: R.nn.conv2d(X, W, **options),
}
WITH_IT = [op.short for op in Op.registry.values() if op.signature.attrs.get("out_dtype", 0) is None]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("word", ["", "void", None])
def test_words_for_the_inputs_dtype(name, word):
    plain, given = CALLS[name](), CALLS[name](out_dtype=word)
    assert structural_equal(plain, given)
    assert given.struct_info.dtype == "float32" and given.attrs["out_dtype"] is None
    assert not structural_equal(plain, CALLS[name](out_dtype="float64"))


def test_every_op_that_has_it_takes_the_words():
    assert {*CALLS, "nn.conv1d", "nn.conv3d", "nn.conv2d_transpose"} <= {*WITH_IT}


def test_an_op_with_a_dtype_of_its_own_does_not_take_them():
    x, scale, zero = (relax.Var(n, R.Tensor((2,), d)) for n, d in (("x", "float32"), ("s", "float32"), ("z", "int8")))
    with pytest.raises(UserError, match="out_dtype must be one of"):
        R.quantize(x, scale, zero, out_dtype="void")


def test_scripts_that_say_void():
    text = """
@R.function
def main(x: R.Tensor((2, 2)), y: R.Tensor((2, 2))):
    z = R.matmul(x, y, out_dtype="void")
    return z
"""
    function = from_source(text)
    assert "void" not in function.script()
    assert structural_equal(function, from_source(text.replace(', out_dtype="void"', "")))
