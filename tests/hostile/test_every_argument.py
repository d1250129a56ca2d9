"""Every argument of every public function, given values of every kind, takes them or says what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax, te, tir
from pullback.ir import UserError
from pullback.ir.op import Op
from pullback.relax.expr import Call
from pullback.relax.training import SetupTrainer, loss, lr_schedule, optimizer
from pullback.script import from_source
from tests.errors.models import linear
from tests.relax.op.backends import call_of
from tests.samples import all_ops, cases

HUGE = 2**70
ODD: list[Any] = [
    np.array([[0.5, 1.5], [2.0, 3.0]], np.float32), np.array([1.0, 2.0]), np.array([1, 2]), np.array(None), [[1]],
    {"a": 1}, {1}, object(), type, np.float32, lambda: 0, "x", b"x", 1.5, -1, HUGE, float("nan"), float("inf"), None,
    True, (), [], (None,), ("a",), 1j, np.float64("nan"), np.datetime64("2020-01-01"), memoryview(b"ab"), range(3),
    Ellipsis, slice(1), NotImplemented, relax.const(1.0), relax.Var("v", relax.TensorStructInfo((2,), "int64")),
    optimizer.SGD, optimizer.SGD(0.1), loss.MSELoss(), lr_schedule.StepLR,
]  # fmt: skip


def tried(what: str, call: Callable[[], Any]) -> Iterator[str]:
    """What a call raises that is no UserError."""
    try:
        call()
    except UserError:
        pass
    except Exception as error:
        yield f"{what}: {type(error).__name__}: {error}"


def of_ops() -> Iterator[str]:
    for op in (op for op in all_ops() if op.family != "own"):  # other tests register ops of their own
        for attr in _call(op).attrs:
            for odd in ODD:
                call = _call(op)
                attrs = {**call.attrs, attr: odd}
                yield from tried(f"{op.short}({attr}={odd!r})", lambda: Op.build(op, list(call.args), attrs))  # noqa: B023


def _call(op: Op) -> Call:
    for dtype in ("float32", "int64", "bool"):
        try:
            for case in cases(op, dtype):
                return call_of(case)[1]
        except UserError:
            continue
    raise AssertionError(f"{op.short} has no sample")


NEEDED: dict[str, Any] = {
    "lr": 0.1, "optimizer": optimizer.SGD(0.1), "every": 2, "max_norm": 1.0, "max_value": 1.0, "decay": 0.9,
    "momentum": 0.9, "step_size": 3, "milestones": [1, 2], "gamma": 0.5, "function": lambda step: 0.1,
    "total_steps": 10, "T_max": 10, "T_0": 3, "max_lr": 1.0, "groups": {"w": {"lr": 0.2}}, "initial": 0.1,
    "schedules": [0.1, 0.2], "outputs": 1,
}  # fmt: skip
PARTS = {
    "optimizer": (optimizer, optimizer.Optimizer),
    "loss": (loss, loss.Loss),
    "schedule": (lr_schedule, lr_schedule.Schedule),
}
VECTORS = [relax.TensorStructInfo((4, 2), "float32")] * 2


def of_classes(part: str) -> Iterator[str]:
    """Optimizers are put into a step too: what they did not look at comes out there."""
    module, base = PARTS[part]
    found = 0
    for name, kind in vars(module).items():
        if not inspect.isclass(kind) or not issubclass(kind, base) or kind is base or inspect.isabstract(kind):
            continue
        parameters = inspect.signature(kind).parameters.values()
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        given = {p.name: NEEDED[p.name] for p in named if p.default is p.empty}
        found += 1
        for parameter in named:
            for odd in ODD:
                arguments = {**given, parameter.name: odd}

                def make() -> None:
                    made = kind(**arguments)  # noqa: B023
                    if part == "optimizer":
                        SetupTrainer(loss.MSELoss(), made, VECTORS)(linear)

                yield from tried(f"{name}({parameter.name}={odd!r})", make)
    assert found > 3


X, Y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)


def of_trainers(folder: Path) -> Iterator[str]:
    trainer = pullback.trainer(linear, loss.MSELoss(), optimizer.SGD(0.1))
    usual: dict[str, dict[str, Any]] = {
        "fit": {"x": X, "y": Y, "verbose": 0},
        "evaluate": {"x": X, "y": Y},
        "update": {"input_instances": X, "targets": Y},
        "save": {"path": folder / "saved"},
        "load": {"path": folder / "saved"},
        "set_hyperparameter": {"name": "lr", "value": 0.1},
        "load_params": {"params": {}},
        "load_states": {"states": {}},
    }
    trainer.save(folder / "saved")
    for name in (n for n in dir(type(trainer)) if not n.startswith("_")):
        method = inspect.getattr_static(trainer, name)
        if not callable(method):
            continue
        bound = getattr(trainer, name)
        for parameter in inspect.signature(bound).parameters.values():
            for odd in ODD:
                if parameter.kind == parameter.VAR_POSITIONAL:
                    yield from tried(f"trainer.{name}({odd!r})", lambda: bound(odd))  # noqa: B023
                elif parameter.kind != parameter.VAR_KEYWORD and not (parameter.name == "epochs" and odd is HUGE):
                    arguments = {**usual.get(name, {}), parameter.name: odd}
                    yield from tried(f"trainer.{name}({parameter.name}={odd!r})", lambda: bound(**arguments))  # noqa: B023


X1 = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
USUAL: dict[Callable[..., Any], dict[str, Any]] = {
    pullback.trainer: {"module": linear, "loss": loss.MSELoss(), "optimizer": optimizer.SGD(0.1)},
    pullback.compile: {"module": linear},
    pullback.tensor: {"data": [1.0]},
    pullback.device: {"target": "llvm"},
    pullback.cpu: {},
    pullback.VirtualMachine: {"executable": pullback.compile(linear, "debug")},
    from_source: {"text": "x = 1"},
    relax.const: {"value": 1.0},
    relax.Var: {"name": "x", "info": X1.struct_info},
    relax.Constant: {"data": np.ones(2)},
    relax.Tuple: {"fields": [X1]},
    relax.TupleGetItem: {"tuple_value": relax.Tuple([X1]), "index": 0},
    relax.TensorStructInfo: {},
    relax.TupleStructInfo: {"fields": []},
    relax.ShapeStructInfo: {"values": (3,)},
    relax.PrimStructInfo: {"dtype": "int64"},
    pullback.IRModule: {},
    te.placeholder: {"shape": (3,)},
    te.compute: {"shape": (3,), "element": lambda i: i},
    te.reduce_axis: {"extent": 3},
    tir.Var: {"name": "i"},
    tir.Buffer: {"name": "a", "shape": (3,)},
}
NEEDED_BY_PASSES = {
    "func_name": "backbone", "params": {}, "sizes": {}, "dtype": "bfloat16", "names": ["backbone"], "rows": 2,
    "function": "backbone", "batch": 2, "num_workers": 2,
}  # fmt: skip


def of_functions() -> Iterator[str]:
    for function, arguments in USUAL.items():
        for parameter in inspect.signature(function).parameters:
            for odd in ODD:
                given = {**arguments, parameter: odd}
                what = f"{function.__name__}({parameter}={odd!r})"
                yield from tried(what, lambda: function(**given))  # noqa: B023


def of_passes() -> Iterator[str]:
    """Passes are run too."""
    for name, kind in vars(relax.transform).items():
        if (
            not inspect.isclass(kind)
            or not issubclass(kind, relax.transform.Pass)
            or kind in (*ABSTRACT, *OF_THE_COMPILER)
        ):
            continue
        parameters = inspect.signature(kind).parameters.values()
        given = {p.name: NEEDED_BY_PASSES[p.name] for p in parameters if p.default is p.empty}
        for parameter in parameters:
            for odd in ODD:
                arguments = {**given, parameter.name: odd}
                yield from tried(f"{name}({parameter.name}={odd!r})", lambda: kind(**arguments)(linear))  # noqa: B023


ABSTRACT = (
    relax.transform.Pass, relax.transform.FunctionPass, relax.transform.ModulePass, relax.transform.PrintIR,
    relax.transform.Sequential,
)  # fmt: skip
OF_THE_COMPILER = (relax.transform.FuseOps, relax.transform.LowerToTir)  # what they take is no user's


@pytest.mark.parametrize("part", ["ops", "trainers", "functions", "passes", *PARTS])
def test_only_errors_of_ours(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of these values are paths
    found = {"ops": of_ops, "trainers": lambda: of_trainers(tmp_path), "functions": of_functions, "passes": of_passes}
    problems = list(found[part]() if part in found else of_classes(part))
    assert not problems, "\n".join(problems)
