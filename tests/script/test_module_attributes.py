"""Attributes in the text of a module: what cannot be one is an error at its place."""

import pytest

from pullback.ir import UserError
from pullback.script import from_source


@pytest.mark.parametrize(
    "value", ["{[1]: 0}", "{[[1]]: 0}", "{{}: 0}", "3", "[1]", '"ab"', "None", "R", "[(1, 2)]", "{**3}", "{**[1]}"]
)
def test_attributes_that_are_none(value: str) -> None:
    head = f"@I.ir_module\nclass M:\n    I.module_attrs({value})\n"
    text = f"{head}    @R.function\n    def f(x: R.Tensor((2,))):\n        return x\n"
    with pytest.raises(UserError) as caught:
        from_source(text)
    assert caught.value.span is not None and caught.value.span.line == 3
