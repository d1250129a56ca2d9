"""Keys of what bindings compute: equal for what does the same, different for whatever makes a difference."""

import numpy as np
import pytest

from pullback import relax
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder, var
from pullback.relax.expr import Constant
from pullback.relax.transform.structure import function_structure, once, structure


def function_of(build, *shapes):
    """The function of fresh parameters of these shapes that returns what ``build`` makes of them."""
    params = [var(f"p{k}", shape) for k, shape in enumerate(shapes)]
    builder = BlockBuilder()
    with builder.function("f", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    return builder.get()["f"]


def key(build, *shapes):
    return function_structure(function_of(build, *shapes))


def test_layers_that_do_the_same_have_one_key():
    def layer(x, w):
        return op.nn.relu(op.matmul(x, w))

    assert key(layer, (4, 8), (8, 8)) == key(layer, (4, 8), (8, 8))


@pytest.mark.parametrize(
    "first, second",
    [
        (lambda x, y: op.subtract(x, y), lambda x, y: op.subtract(y, x)),
        (lambda x, y: op.add(x, y), lambda x, y: op.add(x, x)),
        (lambda x, y: op.add(x, y), lambda x, y: op.multiply(x, y)),
        (lambda x, y: op.sum(x, axis=0), lambda x, y: op.sum(x, axis=1)),
        (lambda x, y: op.sum(x, axis=1), lambda x, y: op.sum(x, axis=1, keepdims=True)),
        (lambda x, y: op.add(x, relax.const(0.0)), lambda x, y: op.add(x, relax.const(-0.0))),
        (lambda x, y: op.add(x, relax.const(1.0)), lambda x, y: op.add(x, Constant(np.ones((1, 1), "float32")))),
        (lambda x, y: op.full((4, 4), 0.0), lambda x, y: op.full((4, 4), -0.0)),
    ],
)
def test_what_makes_a_difference_is_in_the_key(first, second):
    assert key(first, (4, 4), (4, 4)) != key(second, (4, 4), (4, 4))


def test_types_are_in_the_key():
    assert key(op.exp, (4, 4)) != key(op.exp, (2, 8))
    assert key(lambda x: op.astype(x, "float64"), (4,)) != key(lambda x: op.astype(x, "float16"), (4,))


def test_parameters_count_in_their_order_and_outside_a_function_as_they_appear():
    ahead, behind = (function_of(build, (4,), (4,)) for build in (op.subtract, lambda x, y: op.subtract(y, x)))
    assert function_structure(ahead) != function_structure(behind)
    loose = [structure(tuple(f.bindings), [f.body.body]) for f in (ahead, behind)]
    assert loose[0] == loose[1]


def test_a_question_is_asked_once_of_calls_that_do_the_same():
    asked = []
    question = once(lambda call: asked.append(call) or call.op.short)
    calls = [build(var("x", (3,))) for build in (op.exp, op.exp, op.tanh)]
    assert [question(c) for c in (*calls, *calls)] == ["exp", "exp", "tanh"] * 2
    assert asked == [calls[0], calls[2]]
