"""Docstrings of public names: Google's sections, complete, and examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any

import pytest

from pullback import nn
from pullback.relax import BlockBuilder
from pullback.relax.training import Trainer
from tests.docs.blocks import ROOT

ROOMS = (
    "pullback", "pullback.nn", "pullback.nn.functional", "pullback.nn.init", "pullback.optim", "pullback.callbacks",
    "pullback.relax.training",
    "pullback.relay",
    "pullback.te",
    "pullback.ir",
    "pullback.distributed",
    "pullback.nd",
    "pullback.testing",
    "pullback.sklearn",
    "pullback.relax",
    "pullback.relax.transform",
    "pullback.relax.frontend",
)  # fmt: skip
CLASSES = (Trainer, nn.Module, BlockBuilder)  # whose methods are checked too
SECTION = re.compile(r"^(Args|Returns|Raises|Examples|Deprecated|Yields):\n((?:(?: {4}.*)?\n)*)", re.MULTILINE)
PREAMBLE = compile((ROOT / "docs/site/preamble.py").read_text(encoding="utf-8"), "preamble.py", "exec")
LAYERS = (
    "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm2d", "Buffer", "Conv1d", "Conv2d", "ConvTranspose2d",
    "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "GELU", "GRU",
    "GroupNorm", "LSTM", "LayerNorm", "Linear", "LoRA", "MSELoss",
    "MaxPool2d", "ModuleDict", "ModuleList", "MultiheadAttention", "Parameter", "RMSNorm", "ReLU", "Sequential",
    "Softmax", "TransformerEncoder", "TransformerEncoderLayer", "Upsample",
)  # fmt: skip
MOST_USED = (  # these have an example
    *(f"pullback.{n}" for n in ("compile", "grad", "hvp", "jvp", "tensor", "trainer", "value_and_grad", "vjp", "vmap")),
    *(f"pullback.nn.{n}" for n in LAYERS),
    *(f"pullback.nn.functional.{n}" for n in ("cross_entropy", "linear", "max_pool2d", "pad", "relu", "softmax")),
    *(f"pullback.optim.{n}" for n in ("SGD", "Adam", "AdamW", "RunTime", "ClipByGlobalNorm", "ParameterGroups")),
    *(f"pullback.optim.{n}" for n in ("StepLR", "CosineAnnealingLR", "OneCycleLR", "LinearLR", "SequentialLR")),
    *(f"pullback.callbacks.{n}" for n in ("EarlyStopping", "ModelCheckpoint", "Checkpoint", "CSVLogger")),
    *(f"pullback.relay.{n}" for n in ("Call", "Function", "If", "Let", "Match", "Op", "TensorType", "Tuple")),
    *(f"pullback.relay.{n}" for n in ("FuncType", "TupleType", "TypeData", "Var", "const", "duplicate", "var")),
    *(f"pullback.te.{n}" for n in ("compute", "placeholder", "reduce_axis", "size_var", "sum")),
    *(f"pullback.ir.{n}" for n in ("Op", "assert_structural_equal", "span_scope", "structural_equal")),
    *(f"pullback.distributed.{n}" for n in ("DataParallel", "Distribution", "Mesh", "ZeRO", "exchange", "run_local")),
    *(f"pullback.nd.{n}" for n in ("array", "zeros")),
    *(f"pullback.testing.{n}" for n in ("assert_allclose", "check_numerical_grads", "parametrize_targets")),
    *(f"pullback.sklearn.{n}" for n in ("PullbackClassifier", "PullbackRegressor")),
    *(f"Trainer.{n}" for n in ("evaluate", "fit", "freeze", "predict", "save", "state_dict", "update")),
    *(f"pullback.relax.{n}" for n in ("BlockBuilder", "Call", "ExprMutator", "ExprVisitor", "Function", "Tuple")),
    *(f"pullback.relax.{n}" for n in ("TensorStructInfo", "TupleStructInfo", "Var", "const")),
    "pullback.VirtualMachine",
    *(f"pullback.relax.transform.{n}" for n in ("BindParams", "BindSizes", "FuseOps", "LegalizeOps", "MixedPrecision")),
    *(f"pullback.relax.transform.{n}" for n in ("Gradient", "JVP", "SplitGradient", "VMap", "RebatchInputs")),
    *(f"pullback.relax.transform.{n}" for n in ("FunctionPass", "ModulePass", "Pass", "PassContext", "Sequential")),
    *(f"pullback.relax.transform.{n}" for n in ("AddRandomState", "DeadCodeElimination", "module_pass")),
    "pullback.relax.frontend.register_converter",
)  # fmt: skip


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes of the rooms, and methods of the classes, each once."""
    seen = set()
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
                seen.add(id(value))
                yield f"{room}.{name}", value
    for cls in CLASSES:
        for name in sorted(dir(cls)):
            value = inspect.getattr_static(cls, name)
            if not name.startswith("_") and inspect.isfunction(value):
                yield f"{cls.__name__}.{name}", value


PUBLIC = dict(public())


def docstring(value: Any) -> str:
    """That of a class is read in its source where ``__doc__`` is a property, which its instances have."""
    if not isinstance(value.__doc__, property):
        return inspect.getdoc(value) or ""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return ast.get_docstring(tree) or ""


def sections(value: Any) -> dict[str, str]:
    return dict(SECTION.findall(docstring(value) + "\n"))


def parameters(value: Any) -> list[str]:
    """Names of arguments; none of a class that takes any for its subclasses, of an exception, or of a string."""
    if inspect.isclass(value) and issubclass(value, BaseException | str):
        return []
    names = [n for n in inspect.signature(value).parameters if n != "self"]
    if isinstance(value, EnumMeta) or names == ["args", "kwargs"]:  # members of an enumeration are made once
        return []
    return [n for n in names if not n.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_it_is_documented(name: str) -> None:
    value = PUBLIC[name]
    summary = docstring(value).partition("\n\n")[0]
    assert re.search(r"[.:…]$", summary), f"no sentence: {summary!r}"
    found = sections(value)
    described = re.findall(r"^ {4}(\w+): ", found.get("Args", ""), re.MULTILINE)
    assert described == parameters(value)
    if inspect.isfunction(value):
        gives = inspect.signature(value).return_annotation not in ("None", None, inspect.Signature.empty)
        assert ("Returns" in found) == gives


def test_those_that_are_used_most_have_examples() -> None:
    assert len(MOST_USED) > 60
    assert not [name for name in MOST_USED if "Examples" not in sections(PUBLIC[name])]


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if "Examples" in sections(value)])
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(PREAMBLE, names)
    text = docstring(PUBLIC[name])
    text = text[text.index("\nExamples:\n") :]
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    told: list[str] = []
    runner.run(test, out=told.append)
    assert not runner.failures, "".join(told)
