"""What does not fit when the sizes are known is told of the op that the user wrote, natively and interpreted alike."""

import textwrap

import numpy as np
import pytest

import pullback
from pullback.ir import ShapeError
from pullback.relax import transform
from pullback.script import from_source

CALLS = {
    "topk": ("R.topk(x, k=2, ret_type='values')", "topk: k must be from 1 to 1, the size of axis 1, got 2"),
    "median of none": ("R.topk(R.sort(x), k=3, axis=-1)[0]", "topk: k must be from 1 to 1, the size of axis 1, got 3"),
}
FORMS = {
    "as written": lambda module: module,
    "for inference": transform.DecomposeOpsForInference(),
    "for training": transform.DecomposeOpsForTraining(),
    "adjoint": lambda module: transform.Gradient("main")(module),
}


@pytest.mark.parametrize("target", ["llvm", "debug"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", CALLS)
def test_message(call, form, target):
    expression, message = CALLS[call]
    text = f"""
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, "n"), "float32")):
            y = R.sum({expression})
            return y
    """
    module = FORMS[form](from_source(textwrap.dedent(text)))
    name = "main_adjoint" if form == "adjoint" else "main"
    with pytest.raises(ShapeError) as caught:
        pullback.compile(module, target).function(name)(np.ones((4, 1), "float32"))
    assert caught.value.message == message
    assert caught.value.span.line == 6
    assert caught.value.hint.startswith("R.topk(data, k=1")


def test_sizes_that_fit_are_as_before():
    module = from_source('@R.function\ndef main(x: R.Tensor((4, "n"), "float32")):\n    return R.topk(x, k=2)[0]')
    x = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype("float32")
    for target in ("llvm", "debug"):
        found = pullback.compile(module, target).function("main")(x).numpy()
        np.testing.assert_array_equal(found, -np.sort(-x, 1)[:, :2])
