"""ONNX's own backend tests: what they are, and how one of them is run."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import pullback
from pullback.relax import interpreter
from pullback.relax.frontend.onnx import NeedsValue, OnnxModel
from pullback.relax.frontend.onnx.module import as_module

FOLDERS = ("simple", "pytorch-operator", "pytorch-converted")
HALVES = {"bfloat16": (2**-6, 2**-8), "float16": (2**-8, 2**-11)}  # a few roundings: the tests' own say less than one
MOST_TRIES = 8  # of inputs that have to be known, one after another


@dataclass(frozen=True)
class Case:
    """A model, and for each of its data sets the inputs and the results that are expected."""

    name: str
    model: Any
    data_sets: Any
    rtol: float
    atol: float


@functools.cache
def node_cases() -> dict[str, Case]:
    """The tests of single operators, by name: made once in a process."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return {c.name: Case(c.name, c.model, c.data_sets, c.rtol, c.atol) for c in found}


@functools.cache
def model_cases() -> dict[str, Case]:
    """The tests that are files, by folder and name."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).iterdir()):
            model = onnx.load(path / "model.onnx")
            sets = [_data_set(model, p) for p in sorted(path.glob("test_data_set*"))]
            found[f"{folder}/{path.name}"] = Case(f"{folder}/{path.name}", model, sets, 1e-3, 1e-5)
    return found


def _data_set(model: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    held = {t.name for t in model.graph.initializer}
    kinds = [v for v in model.graph.input if v.name not in held or len(held) == 0]
    inputs = [_read(p, kinds[k].type if k < len(kinds) else None) for k, p in enumerate(_numbered(folder, "input"))]
    outputs = [_read(p, model.graph.output[k].type) for k, p in enumerate(_numbered(folder, "output"))]
    return inputs, outputs


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))


def _read(path: Path, type_proto: Any) -> Any:
    if type_proto is not None and type_proto.WhichOneof("value") != "tensor_type":
        return None
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor


def as_array(value: Any) -> np.ndarray:
    """Test data as an array."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def run(case: Case, native: bool = False) -> tuple[str, str]:
    """``("passed", "")``, or why not: "refused", with the error's text, or "wrong"."""
    for inputs, wanted in case.data_sets:
        try:
            found, model = _results(case.model, inputs, native)
        except (pullback.ir.errors.UserError, NotImplementedError) as error:
            return "refused", f"{type(error).__name__}: {error.message if hasattr(error, 'message') else error}"
        difference = _difference(found, wanted, case, model)
        if difference:
            return "wrong", difference
    return "passed", ""


def _results(proto: Any, inputs: list[Any], native: bool) -> tuple[list[np.ndarray], Any]:
    held = {t.name for t in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in held]
    if len(names) < len(inputs):
        names = [v.name for v in proto.graph.input]
    given = dict(zip(names, inputs, strict=False))
    values: dict[str, Any] = {}
    for _ in range(MOST_TRIES):
        try:
            shapes = {
                k: as_array(v).shape for k, v in given.items() if k not in values and v is not None and _open(proto, k)
            }
            model = OnnxModel(proto, shapes, values=values)
            module = as_module(model, keep_params_in_input=True)
            break
        except NeedsValue as missing:
            if not missing.inputs or set(missing.inputs) <= set(values):
                raise
            values |= {name: as_array(given[name]) for name in missing.inputs}
    else:
        raise AssertionError("too many inputs have to be known")
    params = list(module["main"].attrs["params"])
    arguments = [as_array(given[name]) for name in model.inputs]
    if native:
        results = pullback.compile(module).function("main")(*map(pullback.nd.array, [*arguments, *params]))
        results = [r.numpy() for r in (results if isinstance(results, tuple) else (results,))]
    else:
        results = interpreter.evaluate(module, "main", [*arguments, *params])
        results = list(results) if isinstance(results, tuple) else [results]
    return [np.asarray(r) for r in results], model


def _open(proto: Any, name: str) -> bool:
    """Whether the file leaves the shape of an input open."""
    entry = next(v for v in proto.graph.input if v.name == name)
    tensor = entry.type.tensor_type
    return entry.type.WhichOneof("value") == "tensor_type" and (
        not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim)
    )


def _difference(found: list[np.ndarray], wanted: list[Any], case: Case, model: Any) -> str:
    """Where results are not what is expected, or ""."""
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for k, (mine, theirs) in enumerate(zip(found, map(as_array, wanted), strict=True)):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"result {k} is {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}"
        kind = np.float64 if mine.dtype.kind in "fV" or mine.dtype.name == "bfloat16" else mine.dtype
        rtol, atol = HALVES.get(mine.dtype.name, (case.rtol, case.atol))
        try:
            np.testing.assert_allclose(mine.astype(kind), theirs.astype(kind), rtol, atol)
        except AssertionError as error:
            return f"result {k}: {' '.join(str(error).split())[:200]}"
    return ""
