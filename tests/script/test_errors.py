"""Mistakes in scripts: one tiny program each, with the message it gets."""

from __future__ import annotations

import textwrap

import pytest

from pullback.ir import ScriptError, UserError
from pullback.script import from_source

PROGRAMS = {
    "undefined name": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), weight: R.Tensor((2, 3), "float32")):
            y = R.add(x, weigth)
            return y
        """,
        """
        the name 'weigth' is not defined
          --> model.py:4:18
            y = R.add(x, weigth)
                         ^^^^^^
        hint: did you mean 'weight'?
        """,
    ),
    "unknown op": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.substract(x, x)
            return y
        """,
        """
        there is no R.substract: did you mean R.subtract?
          --> model.py:4:9
            y = R.substract(x, x)
                ^^^^^^^^^^^
        hint: python -m pullback ops lists the ops
        """,
    ),
    "read before": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.add(x, z)
            z = R.add(x, x)
            return y
        """,
        """
        'z' is read before it is assigned
          --> model.py:4:18
            y = R.add(x, z)
                         ^
        hint: assign it on a line above
        """,
    ),
    "index of a tensor": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.exp(x[2])
            return y
        """,
        """
        index 2 is outside axis 0, whose size is 2
          --> model.py:4:15
            y = R.exp(x[2])
                      ^^^^
        hint: the indices of that axis are -2 to 1
        """,
    ),
    "method of a tensor": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = x.strided_slice([0], [0], [1])
            return y
        """,
        """
        a graph value of type Tensor((2, 3), float32) has no attribute 'strided_slice'
          --> model.py:4:9
            y = x.strided_slice([0], [0], [1])
                ^^^^^^^^^^^^^^^
        hint: ops are functions: R.strided_slice(x, axes, begin, end, strides=None)
        """,
    ),
    "device of a tensor": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = x.cuda()
            return y
        """,
        """
        a graph value of type Tensor((2, 3), float32) has no attribute 'cuda'
          --> model.py:4:9
            y = x.cuda()
                ^^^^^^
        hint: everything runs on the CPU of this machine: leave it out
        """,
    ),
    "attribute of nothing": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = x.nothing
            return y
        """,
        """
        a graph value of type Tensor((2, 3), float32) has no attribute 'nothing'
          --> model.py:4:9
            y = x.nothing
                ^^^^^^^^^
        hint: ops are functions: R.name(x, …)
        """,
    ),
    "shapes": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 5), "float32")):
            y = R.add(x, R.matmul(x, w))
            return y
        """,
        None,  # the op's own words; the place is checked below
    ),
    "no return": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.add(x, x)
        """,
        """
        function main returns nothing
          --> model.py:3:5
            def main(x: R.Tensor((2, 3), "float32")):
                ^^^^
        hint: end it with return and a value
        """,
    ),
    "two returns": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            return x
            return x
        """,
        """
        there is a statement after the return
          --> model.py:5:5
            return x
            ^^^^^^^^
        hint: return once, at the end; return several values as a tuple
        """,
    ),
    "return in dataflow": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                return x
        """,
        """
        return stands inside a dataflow block
          --> model.py:5:9
            return x
            ^^^^^^^^
        hint: move it after the block
        """,
    ),
    "dataflow variable after its block": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                lv = R.add(x, x)
                y = R.add(lv, x)
                R.output(y)
            return lv
        """,
        """
        'lv' is a dataflow variable: it is not visible after its block
          --> model.py:8:12
            return lv
                   ^^
        hint: add it to the block's outputs: R.output(…, lv)
        """,
    ),
    "output of a parameter": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                y = R.add(x, x)
                R.output(x)
            return x
        """,
        """
        'x' is not assigned in this dataflow block
          --> model.py:6:18
            R.output(x)
                     ^
        hint: R.output names variables that the block assigns; others are visible anyway
        """,
    ),
    "if": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            if x:
                y = x
            return x
        """,
        """
        the condition of an if must be a bool scalar, got Tensor((2, 3), float32)
          --> model.py:4:8
            if x:
               ^
        hint: compare: x > 0; R.all and R.any make one bool of many
        """,
    ),
    "for": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            for i in range(3):
                y = x
            return x
        """,
        """
        a loop of a graph function cannot go over range(3)
          --> model.py:4:14
            for i in range(3):
                     ^^^^^^^^
        hint: for i in R.range(n), for x in xs, for x, y in R.rows(xs, ys); a for of Python belongs outside
        """,
    ),
    "lambda": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            f = lambda a: a
            return x
        """,
        """
        a lambda cannot be used in a script
          --> model.py:4:9
            f = lambda a: a
                ^^^^^^^^^^^
        hint: define a Python function outside and call it
        """,
    ),
    "keyword-only parameter": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), *, w: R.Tensor((2, 3), "float32")):
            return x
        """,
        """
        parameters of @R.function are plain: no *, **, / or keyword-only ones
          --> model.py:3:45
            def main(x: R.Tensor((2, 3), "float32"), *, w: R.Tensor((2, 3), "float32")):
                                                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: write each parameter with its type; several tensors can be one R.Tuple
        """,
    ),
    "parameter without a type": (
        """
        @R.function
        def main(x):
            return x
        """,
        """
        parameter 'x' has no type
          --> model.py:3:10
            def main(x):
                     ^
        hint: write x: R.Tensor((64, 784), "float32")
        """,
    ),
    "wrong return type": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 4), "float32"):
            return x
        """,
        """
        the function returns Tensor((2, 3), float32) but declares Tensor((2, 4), float32)
          --> model.py:4:5
            return x
            ^^^^^^^^
        hint: change what stands after ->, or leave it out
        """,
    ),
    "wrong annotation": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y: R.Tensor((2, 4), "float32") = x
            return y
        """,
        """
        y is declared Tensor((2, 4), float32) but is Tensor((2, 3), float32)
          --> model.py:4:38
            y: R.Tensor((2, 4), "float32") = x
                                             ^
        hint: change the annotation, or use R.match_cast when the type is known only at run time
        """,
    ),
    "wrong annotation of a dtype": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y: R.Tensor(ndim=2, dtype="float64") = x
            return y
        """,
        """
        y is declared Tensor((?), float64) but is Tensor((2, 3), float32)
          --> model.py:4:44
            y: R.Tensor(ndim=2, dtype="float64") = x
                                                   ^
        hint: change the annotation, or use R.match_cast when the type is known only at run time
        """,
    ),
    "unused value": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            R.add(x, x)
            return x
        """,
        """
        the value of this expression is not used
          --> model.py:4:5
            R.add(x, x)
            ^^^^^^^^^^^
        hint: assign it to a name, or delete the line
        """,
    ),
    "nested match_cast": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.add(x, R.match_cast(x, R.Tensor(("m", 3), "float32")))
            return y
        """,
        """
        the result of R.match_cast needs a name
          --> model.py:4:9
            y = R.add(x, R.match_cast(x, R.Tensor(("m", 3), "float32")))
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: write y = R.match_cast(…) first, then use y
        """,
    ),
    "call before definition": (
        """
        @I.ir_module
        class Net:
            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                cls = Net
                y = cls.later(x)
                return y

            @R.function
            def later(x: R.Tensor((2, 3), "float32")):
                return x
        """,
        """
        later is called before its definition and has no return type
          --> model.py:7:13
            y = cls.later(x)
                ^^^^^^^^^
        hint: declare what it returns, def later(…) -> R.Tensor(…), or define it earlier
        """,
    ),
    "unknown function": (
        """
        @I.ir_module
        class Net:
            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                cls = Net
                y = cls.mian(x)
                return y
        """,
        """
        Net has no function 'mian': did you mean main?
          --> model.py:7:13
            y = cls.mian(x)
                ^^^^^^^^
        hint: its functions are main
        """,
    ),
    "two functions of one name": (
        """
        @I.ir_module
        class Net:
            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                return x

            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                return x
        """,
        """
        the module has two functions named 'main'
          --> model.py:9:5
            def main(x: R.Tensor((2, 3), "float32")):
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: rename one
        """,
    ),
    "no decorator": (
        """
        @I.ir_module
        class Net:
            def main(x: R.Tensor((2, 3), "float32")):
                return x
        """,
        """
        function main has no decorator
          --> model.py:4:9
            def main(x: R.Tensor((2, 3), "float32")):
                ^^^^
        hint: write @R.function above it
        """,
    ),
    "not Python": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            return return x
        """,
        """
        this is not Python: invalid syntax
          --> model.py:4:12
            return return x
                   ^^^^^^
        hint: a script is the text of Python functions and classes
        """,
    ),
    "unpacking": (
        """
        @R.function
        def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))):
            a, b, c = t
            return a
        """,
        """
        3 names for a tuple of 2
          --> model.py:4:5
            a, b, c = t
            ^^^^^^^
        hint: each item has a name; _ may be the name of several
        """,
    ),
    "a helper that fails": (
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.add(x, int("one"))
            return y
        """,
        """
        calling int raised ValueError: invalid literal for int() with base 10: 'one'
          --> model.py:4:18
            y = R.add(x, int("one"))
                         ^^^^^^^^^^
        hint: this is computed by Python when the text is read; what is computed when the function runs are ops
        """,
    ),
}


def refuses(program: str, message: str | None) -> None:
    """Reading the program raises an error with this message, if one is given."""
    with pytest.raises(UserError) as caught:
        from_source(textwrap.dedent(program), file="model.py")
    if message is not None:
        assert str(caught.value) == textwrap.dedent(message).strip("\n")


@pytest.mark.parametrize("name", PROGRAMS)
def test_message(name: str) -> None:
    refuses(*PROGRAMS[name])


def test_an_error_of_an_op_points_at_its_call() -> None:
    with pytest.raises(UserError) as caught:
        from_source(textwrap.dedent(PROGRAMS["shapes"][0]), file="model.py")
    span = caught.value.span
    assert span is not None
    assert (span.line, span.column, span.end_column) == (4, 17, 31)


def test_several_definitions_need_a_name() -> None:
    text = """
@R.function
def a(x: R.Tensor((2,), "float32")):
    return x

@R.function
def b(x: R.Tensor((3,), "float32")):
    return x
"""
    assert from_source(text, name="b").params[0].shape == (3,)
    with pytest.raises(ScriptError, match="must define one module or function; it defines a, b"):
        from_source(text)
    with pytest.raises(ScriptError, match="the text does not define 'c'; it defines a, b"):
        from_source(text, name="c")
