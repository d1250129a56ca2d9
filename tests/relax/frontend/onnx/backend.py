"""ONNX's own backend tests: what they are, how one of them is run, and which do not pass.

``python tests/relax/frontend/onnx/backend.py`` writes ``failing.txt`` anew: a line for each test that does not pass,
with the reason. The tests compare with it, so what begins to fail is seen, and what begins to pass too.
"""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import pullback
from pullback.ir.errors import UserError
from pullback.relax import interpreter
from pullback.relax.frontend.onnx import NeedsValue, OnnxModel
from pullback.relax.frontend.onnx.module import as_module

FAILING = Path(__file__).parent / "failing.txt"
FOLDERS = ("simple", "pytorch-operator", "pytorch-converted")
HALVES = {"bfloat16": (2**-6, 2**-8), "float16": (2**-8, 2**-11)}  # a few roundings: the tests' own say less than one
NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}  # of float32, in results that are 0
DRAWN = re.compile(r"test_(bernoulli|training_dropout(_default)?(_mask)?$)")  # by NumPy's generator
DRAWN_REASON = "random numbers are drawn by another generator, and in inference nothing is dropped"
OUTSIDE = ("type: ", "strings", "sequences", "always there", "files of images", "deprecated")  # the reasons left out
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
def cases() -> dict[str, Case]:
    """All tests by name: made once in a process."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    found = {c.name: Case(c.name, c.model, c.data_sets, c.rtol, c.atol) for c in collected}
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in FOLDERS:
        for path in sorted((root / folder).iterdir()):
            model = onnx.load(path / "model.onnx")
            name = f"{folder}/{path.name}"
            sets = [_data_set(model, p) for p in sorted(path.glob("test_data_set*"))]
            found[name] = Case(name, model, sets, 1e-3, 1e-5)
    return found


def _data_set(model: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    return [_read(p) for p in _numbered(folder, "input")], [_read(p) for p in _numbered(folder, "output")]


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))


def _read(path: Path) -> Any:
    """A tensor; None for a file of a sequence, which no model that is imported takes."""
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except Exception:  # protobuf's DecodeError
        return None
    return tensor


def as_array(value: Any) -> np.ndarray:
    """Test data as an array."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def outcome(case: Case, native: bool = False) -> str:
    """ "" for a test that passes, or why it does not: the reason of a refusal, or "wrong: " and where."""
    if DRAWN.match(case.name):
        return DRAWN_REASON
    for inputs, wanted in case.data_sets:
        try:
            found = results(case.model, inputs, native)
        except UserError as error:
            return reason_of(error)
        difference = _difference(found, wanted, case)
        if difference:
            return f"wrong: {difference}"
    return ""


def reason_of(error: UserError) -> str:
    """A refusal in a few words: the type that there is not, or the operators with their reasons."""
    message = error.message.removeprefix("the model (OnnxModel): ")
    name = type(error).__name__
    if name == "UnsupportedType":
        found = re.search(r"is (?:an? )?(\w+)(?:,|:)", message)
        return f"type: {found[1] if found else message}"
    if name == "UnsupportedOps":
        reasons = re.findall(r"^  (\S+?)(?: \((.*?)\))?(?::|$)", message, re.MULTILINE)
        return "; ".join(dict.fromkeys(reason or f"{operator} is not converted" for operator, reason in reasons))
    return message.splitlines()[0]


def results(proto: Any, inputs: list[Any], native: bool = False) -> list[np.ndarray]:
    """What a model gives for inputs; those whose values have to be known are constants of it."""
    held = {t.name for t in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in held]
    names = names if len(names) >= len(inputs) else [v.name for v in proto.graph.input]
    given = dict(zip(names, inputs, strict=False))
    values: dict[str, Any] = {}
    for _ in range(MOST_TRIES):
        try:
            open_names = [k for k in given if k not in values and given[k] is not None and _is_open(proto, k)]
            model = OnnxModel(proto, {k: as_array(given[k]).shape for k in open_names}, values=values)
            module = as_module(model, keep_params_in_input=True)
            break
        except NeedsValue as missing:
            if not missing.inputs or set(missing.inputs) <= set(values):
                raise
            values |= {name: as_array(given[name]) for name in missing.inputs}
    else:
        raise AssertionError("too many inputs have to be known")
    arguments = [*(as_array(given[name]) for name in model.inputs), *module["main"].attrs["params"]]
    if native:
        found = pullback.compile(module).function("main")(*map(pullback.nd.array, arguments))
    else:
        found = interpreter.evaluate(module, "main", arguments)
    return [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]


def _is_open(proto: Any, name: str) -> bool:
    """Whether the file leaves the shape of an input open."""
    entry = next(v for v in proto.graph.input if v.name == name)
    tensor = entry.type.tensor_type
    is_known = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
    return entry.type.WhichOneof("value") == "tensor_type" and not is_known


def _difference(found: list[np.ndarray], wanted: list[Any], case: Case) -> str:
    """Where results are not what is expected, or ""."""
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for k, (mine, theirs) in enumerate(zip(found, map(as_array, wanted), strict=True)):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"result {k} is {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}"
        kind = np.float64 if mine.dtype.kind in "fV" else mine.dtype
        rtol, atol = HALVES.get(mine.dtype.name, (case.rtol, NOISE.get(case.name, case.atol)))
        try:
            np.testing.assert_allclose(mine.astype(kind), theirs.astype(kind), rtol, atol)
        except AssertionError as error:
            return f"result {k}: {' '.join(str(error).split())[:200]}"
    return ""


def failing() -> dict[str, str]:
    """The tests that do not pass, with the reasons, as the file says them."""
    lines = FAILING.read_text().splitlines()
    return {name: reason for name, _, reason in (line.partition(" | ") for line in lines)}


def is_outside(reason: str) -> bool:
    """Whether a test is of types that there are not here."""
    return any(word in reason for word in OUTSIDE)


def main() -> None:
    """Write the file of those that do not pass."""
    found = {name: outcome(case) for name, case in cases().items()}
    wrong = {name: reason for name, reason in found.items() if reason.startswith("wrong")}
    if wrong:
        raise SystemExit("\n".join(f"{name}: {reason}" for name, reason in wrong.items()))
    lines = [f"{name} | {reason}" for name, reason in sorted(found.items()) if reason]
    FAILING.write_text("\n".join(lines) + "\n")
    print(f"{len(found) - len(lines)} of {len(found)} pass")


if __name__ == "__main__":
    main()
