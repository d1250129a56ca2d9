"""What ``python -m pullback show`` finds in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
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


TRAINER = """
import pullback
from pullback.script import ir as I, relax as R

@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return x @ w

trainer = pullback.trainer(Model, "mse", "sgd")
"""
LATER = """
import pathlib, numpy as np
pathlib.Path("trace").write_text("begun")
STEP
trainer.save("model.safetensors")
pathlib.Path("trace").write_text("ended")
Other = Model.with_attrs({"x": 1})
"""
STEPS = {
    "fit": "trainer.fit(np.zeros((8, 3), 'float32'), np.zeros((8, 2), 'float32'))",
    "update": "trainer.update(np.zeros((4, 3), 'float32'), np.zeros((4, 2), 'float32'))",
    "predict": "trainer.predict(np.zeros((4, 3), 'float32'))",
    "a loop by hand": "pullback.compile(trainer.mod)['backbone'](np.zeros((4, 3), 'f4'), np.zeros((3, 2), 'f4'))",
    "the interpreter": "pullback.compile(Model, 'debug')['backbone'](np.zeros((4, 3), 'f4'), np.zeros((3, 2), 'f4'))",
    "a thread": "import threading; t = threading.Thread(target=lambda: trainer.update(np.zeros((4, 3), 'f4'), "
    "np.zeros((4, 2), 'f4'))); t.start(); t.join(); assert trainer.steps == 0; raise SystemExit",
    "except Exception": "try: trainer.predict(np.zeros((4, 3), 'float32'))\nexcept Exception: pass",
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_trained(step, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, TRAINER + LATER.replace("STEP", STEPS[step]))
    notes: list[str] = []
    if step == "a thread":
        with pytest.raises(ArgumentError, match="raised SystemExit"):
            load_module(file, None, notes.append)
    else:
        assert "backbone_loss_adjoint" in load_module(file, "trainer", notes.append)
        line = 1 + next(k for k, text in enumerate(file.read_text().splitlines()) if "np.zeros" in text)
        assert notes == [
            f"{file} was read up to line {line}, where it would compute: names bound after that are not known"
        ]
    assert {p.name for p in tmp_path.iterdir()} == {"model.py", "trace"}
    assert (tmp_path / "trace").read_text() == "begun"


def test_afterwards_everything_runs(tmp_path):
    load_module(written(tmp_path, TRAINER + STEPS["fit"].replace("np.", "__import__('numpy').")))
    values: dict[str, Any] = {}
    exec(TRAINER[: TRAINER.index("@I")], values)
    assert values["pullback"].tensor([1.0]).numpy() == [1.0]
    model = from_source(MODULE.replace("NAME", "A"))
    assert pullback.compile(model)["main"](np.ones(2, "float32")).numpy().tolist() == [1.0, 1.0]


def test_what_stands_under_main_does_not_run(tmp_path):
    text = TRAINER + "if __name__ == '__main__':\n    raise SystemExit('trained')\n"
    notes: list[str] = []
    module = load_module(written(tmp_path, text), None, notes.append)
    assert "backbone_loss_adjoint" in module and notes == ["this is the trainer trainer; --name takes another: Model"]
    assert "backbone_loss_adjoint" not in load_module(written(tmp_path, text), "Model")


def test_of_two_trainers_one_is_named(tmp_path):
    text = TRAINER + "second = pullback.trainer(Model, 'mse', 'adam')"
    with pytest.raises(ArgumentError, match="defines several modules: Model, trainer, second"):
        load_module(written(tmp_path, text))
    text = TRAINER + "alias = trainer"
    assert "backbone_loss_adjoint" in load_module(written(tmp_path, text))


def test_a_program_finds_its_neighbours_and_not_our_arguments(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pullback", "show", "model.py"])
    (tmp_path / "neighbour_of_the_model.py").write_text(MODULE.replace("NAME", "A"))
    text = "import sys\nassert len(sys.argv) == 1\nfrom neighbour_of_the_model import A"
    before = list(sys.path)
    assert list(load_module(written(tmp_path, text))) == ["helper", "main"]
    assert sys.path == before and sys.argv[0] == "pullback" and "pullback_show" not in sys.modules


def test_layers_alone_are_no_module(tmp_path):
    text = "from pullback import nn\nnet = nn.Linear(3, 2)"
    with pytest.raises(ArgumentError, match=r"(?s)defines no module and no trainer.*bind net\.export\(example\)"):
        load_module(written(tmp_path, text))
    text += "\nmodule = net.export(pullback.nd.array([[1.0, 2.0, 3.0]]))"
    assert "backbone" in load_module(written(tmp_path, "import pullback\n" + text))


def test_a_file_that_computes_before_it_defines(tmp_path):
    text = "import numpy as np\n" + TRAINER + STEPS["fit"]
    text = text.replace("trainer = pullback", "_hidden = trainer = pullback") + "\n"
    text = text.replace("class Model", "class _Model").replace("(Model", "(_Model")
    text = text.replace("trainer", "_trainer").replace("pullback._trainer", "pullback.trainer")
    with pytest.raises(
        ArgumentError, match=r"(?s)defines no module.*before line \d+, or let what computes stand under"
    ):
        load_module(written(tmp_path, text))


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
