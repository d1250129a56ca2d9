"""What ``python -m pullback show`` finds in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.ir import ArgumentError, IRModule
from pullback.script import from_source
from pullback.show import load_module, main_function, parse_sizes

MODULE = """
from pullback.script import ir as I, relax as R

@I.ir_module
class NAME:
    @R.function(private=True)
    def helper(x: R.Tensor((2,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return x
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "model.py"
    file.write_text(text)
    return file


def test_the_only_module_of_a_file(tmp_path):
    file = written(
        tmp_path, MODULE.replace("NAME", "Model") + "\n_hidden = IRModule = Model\nassert __name__ != '__main__'"
    )
    assert isinstance(load_module(file), IRModule)
    assert list(load_module(file, "Model")) == ["helper", "main"]
    with pytest.raises(ArgumentError, match=r"defines no module or trainer 'Other'; it has: Model, IRModule"):
        load_module(file, "Other")


def test_of_several_one_is_named(tmp_path):
    file = written(tmp_path, MODULE.replace("NAME", "A") + MODULE.replace("NAME", "B"))
    assert isinstance(load_module(file, "B"), IRModule)
    with pytest.raises(ArgumentError, match="defines several modules: A, B"):
        load_module(file)


def test_a_file_without_a_module(tmp_path):
    with pytest.raises(ArgumentError, match="defines no module and no trainer"):
        load_module(written(tmp_path, "x = 3"))
    with pytest.raises(ArgumentError, match="it has: none"):
        load_module(written(tmp_path, "x = 3"), "x")


def test_the_first_public_function_is_the_main_one():
    module = from_source(MODULE.replace("NAME", "A"))
    assert main_function(module) == "main"
    del module["main"]
    with pytest.raises(ArgumentError, match="the module has no public function"):
        main_function(module)


@pytest.mark.parametrize("text", ["n", "n=", "n=-1", "n=1.5", "=3", "2=3", "n = 3", "n=3=4"])
def test_sizes_are_written_as_names_and_numbers(text):
    assert parse_sizes(["n=64", "m=0"]) == {"n": 64, "m": 0}
    with pytest.raises(ArgumentError, match="a size is written NAME=NUMBER"):
        parse_sizes(["n=64", text])
