"""Entries that are not what they should be: a miss, and compiled again, whatever their bytes are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.driver import native
from pullback.driver.artifact import Artifact
from pullback.driver.cache import object_cache
from pullback.driver.folder import MARKER
from pullback.driver.keys import function_key
from pullback.driver.pipeline import prepare
from pullback.ir import IRModule
from pullback.script import from_source
from pullback.target import Target
from tests.driver.models import mlp_trainer_module, step_arguments

HOST = Target("llvm")
PROGRAM = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def small(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, R.const([[1.0], [2.0], [NUMBER]], "float32"))
            z = R.nn.softmax(R.exp(y), axis=0)
            R.output(z)
        return z
    @R.function
    def large(x: R.Tensor((200, 300), "float32")):
        y = R.exp(x)
        return y
    @R.function
    def pair(x: R.Tensor((2, 3), "float32")):
        y = R.exp(x)
        return y, x
    @R.function
    def other(x: R.Tensor((2, 3), "float64")):
        y = R.exp(x)
        return y
    @R.function
    def sized(x: R.Tensor(("n", 3), "float32")):
        y = R.exp(x)
        return y
"""
X = np.array([[0.1, 0.2, 0.3], [-0.3, 0.2, 0.1]], "float32")


@pytest.fixture
def program(monkeypatch, tmp_path) -> IRModule:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    return from_source(PROGRAM.replace("NUMBER", "3.0"))


@pytest.fixture
def planned(monkeypatch) -> list[str]:
    """The functions that were compiled, and not read from the cache."""
    names: list[str] = []
    plan_function = native.plan_function

    def plan(module, name, *rest):
        names.append(name)
        return plan_function(module, name, *rest)

    monkeypatch.setattr(native, "plan_function", plan)
    return names


def run(program: IRModule, name: str = "small", x: np.ndarray = X) -> bytes:
    result = pullback.compile(program)[name](x)
    return b"".join(t.numpy().tobytes() for t in (result if isinstance(result, tuple) else (result,)))


def key_of(program: IRModule, name: str, **sizes: int) -> str:
    return function_key(prepare(program), name, sizes, HOST)


def entries() -> list[Path]:
    return [p for p in object_cache().directory.iterdir() if p.name != MARKER]


def test_a_second_time_nothing_is_compiled(program, planned):
    assert run(program) == run(program) and planned == ["small"]


def test_a_second_time_no_function_of_a_trainer_is_compiled(program, planned):
    """Results that take over the memory of parameters, and those that have it of their own, are where they were."""
    module = mlp_trainer_module()
    results = []
    for _ in range(2):
        executable = pullback.compile(module)
        tensors = step_arguments(module)
        loss = relax.VirtualMachine(executable).bind("__step", tensors)()[0]
        results.append([loss.numpy().tobytes(), *(t.numpy().tobytes() for t in tensors)])
    assert results[0] == results[1] and planned == ["__step"]


CHANGES = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "longer": lambda data: data + bytes(1),
    "twice": lambda data: data * 2,
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "of an older format": lambda data: data.replace(b"object 2", b"object 1", 1),
    "text": lambda data: b"{}",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_damaged_files(program, planned, change):
    """All of them: the function's and its kernels'."""
    expected = run(program)
    for path in entries():
        path.write_bytes(change(path.read_bytes()))
    assert run(program) == expected and planned == ["small"] * 2
    assert run(program) == expected and planned == ["small"] * 2, "what was damaged has been replaced"


def test_each_file_in_the_place_of_each_other(program, planned):
    """A kernel for a function, a function for a kernel, another shape's function: whole, and with their own digests."""
    results = {name: run(program, name) for name in ("small", "pair")} | {"sized": run(program, "sized")}
    results["large"] = run(program, "large", np.zeros((200, 300), "float32"))
    whole = {path: path.read_bytes() for path in entries()}
    assert len(whole) > 6
    for shift in range(1, len(whole)):
        paths = list(whole)
        for path, source in zip(paths, paths[shift:] + paths[:shift], strict=True):
            path.write_bytes(whole[source])
        for name in ("small", "pair", "sized"):
            assert run(program, name) == results[name]
        assert run(program, "large", np.zeros((200, 300), "float32")) == results["large"]
    assert planned == ["small", "pair", "sized", "large"] + ["small", "pair", "sized", "large"] * (len(whole) - 1)


def put(program: IRModule, name: str, content: bytes, **sizes: int) -> None:
    """Under the function's key, and with the right digest."""
    object_cache().put(key_of(program, name, **sizes), content)


@pytest.mark.parametrize("other, x", [
    ("large", np.zeros((200, 300), "float32")), ("pair", X), ("other", X.astype("float64")),
    ("sized", np.zeros((5, 3), "float32")),
])  # fmt: skip
def test_another_functions_artifact_under_the_functions_key(program, planned, other, x):
    """The layout is compared with the signature before any code is loaded."""
    expected = run(program)
    run(program, other, x)
    put(program, "small", object_cache().get(key_of(program, other, **({"n": 5} if other == "sized" else {}))))
    assert run(program) == expected and planned == ["small", other, "small"]


def test_other_sizes_under_the_key_of_these(program, planned):
    expected = run(program, "sized")
    run(program, "sized", np.zeros((7, 3), "float32"))
    put(program, "sized", object_cache().get(key_of(program, "sized", n=7)), n=2)
    assert run(program, "sized") == expected and planned == ["sized"] * 3


def damaged_headers(data: bytes) -> dict[str, bytes]:
    """Artifacts whose header says something else."""
    end = 8 + int.from_bytes(data[:8], "little")
    header, rest = json.loads(data[8:end]), data[end:]

    def written(new: Any) -> bytes:
        text = new if isinstance(new, bytes) else json.dumps(new).encode()
        return len(text).to_bytes(8, "little") + text + rest

    def layout(**changed: Any) -> bytes:
        return written(header | {"layout": header["layout"] | changed})

    whole, first = header["layout"], header["objects"][0]
    return {
        "nothing": b"",
        "an object": rest[-header["objects"][-1] :],
        "a long header": (1 << 63).to_bytes(8, "little") + data[8:],
        "no JSON": written(b"\xff\xfe{"),
        "nested": written(b"[" * 200_000),
        "a list": written([]),
        "a number": written(7),
        "no layout": written({k: v for k, v in header.items() if k != "layout"}),
        "no objects": written({k: v for k, v in header.items() if k != "objects"}),
        "a layout of none": written(header | {"layout": None}),
        "constants of none": written(header | {"constants": None}),
        "constants of other types": written(header | {"constants": [["object", [1]]]}),
        "constants of Python": written(header | {"constants": [["O", [1]]]}),
        "negative constants": written(header | {"constants": [["float32", [-1]]]}),
        "huge constants": written(header | {"constants": [["float32", [1 << 40, 1 << 40]]]}),
        "shorter objects": written(header | {"objects": [first - 1, *header["objects"][1:]]}),
        "negative objects": written(header | {"objects": [-first, *header["objects"][1:]]}),
        "objects of text": written(header | {"objects": ["7"]}),
        "fractions": written(header | {"objects": [float(n) for n in header["objects"]]}),
        "another entry": layout(entry="other"),
        "no entry": layout(entry=None),
        "more inputs": layout(inputs=whole["inputs"] * 2),
        "no inputs": layout(inputs=[]),
        "other inputs": layout(inputs=[{"shape": [3, 2], "dtype": "float32"}]),
        "inputs of another type": layout(inputs=[{"shape": [2, 3], "dtype": "int32"}]),
        "inputs of no shape": layout(inputs=[{"dtype": "float32"}]),
        "negative sizes": layout(outputs=[{"shape": [-2, -1], "dtype": "float32"}]),
        "larger outputs": layout(outputs=[{"shape": [20, 1], "dtype": "float32"}]),
        "no outputs": layout(outputs=[], fresh=[]),
        "no fresh results": layout(fresh=[]),
        "fresh ones that are none": layout(fresh=[1]),
        "donated": layout(donated=[[0, 0]]),
        "donated, three": layout(donated=[[0, 0, 0]]),
        "a negative arena": layout(arena_bytes=-1),
        "an arena of text": layout(arena_bytes="many"),
        "an arena of a fraction": layout(arena_bytes=64.5),
        "places of none": layout(places=None),
        "short places": layout(places=[[1, 2]]),
        "steps of none": layout(steps=None),
    }


def test_artifacts_that_are_none(program, planned):
    expected = run(program)
    whole = object_cache().get(key_of(program, "small"))
    for name, data in damaged_headers(whole).items():
        put(program, "small", data)
        planned.clear()
        assert run(program) == expected, name
        assert planned == ["small"], name
        with pytest.raises(ValueError):
            Artifact.from_bytes(data).check("small", prepare(program)["small"], {})


def test_code_that_is_none(program, planned):
    """Of a function, and of its kernels: with the right digests, so that the linker sees them."""
    expected = run(program)
    key = key_of(program, "small")
    whole = Artifact.from_bytes(object_cache().get(key))
    for change in (lambda code: b"", lambda code: b"no code", lambda code: code[: len(code) // 2]):
        object_cache().put(key, Artifact(whole.layout, whole.constants, tuple(map(change, whole.objects))).to_bytes())
        planned.clear()
        assert run(program) == expected and planned == ["small"]


def test_kernels_that_are_none(program, planned, monkeypatch):
    """Found when the function is linked: then all of them are made again, once."""
    expected = run(program)
    get = object_cache().get
    made = []
    monkeypatch.setattr(object_cache(), "get", lambda key: b"no code" if key.startswith("object ") else None)
    compile_objects = native.codegen.compile_objects

    def recorded(texts, *rest):
        made.append(list(texts))
        return compile_objects(made[-1], *rest)

    monkeypatch.setattr(native.codegen, "compile_objects", recorded)
    assert run(program) == expected and planned == ["small"] * 3
    assert made[0] == [] and len(made[1]) > 1
    monkeypatch.setattr(object_cache(), "get", get)
    assert run(program) == expected and planned == ["small"] * 3, "and they are kept"


def test_a_cache_of_another_program(program, tmp_path, planned, monkeypatch):
    """Copied over this one's, as a whole: its entries have their own keys."""
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "other"))
    run(from_source(PROGRAM.replace("NUMBER", "5.0")))
    theirs = object_cache().directory
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    object_cache()
    shutil.copytree(theirs, object_cache().directory, dirs_exist_ok=True)
    planned.clear()
    expected = run(program)
    assert planned == ["small"]
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    assert run(program) == expected
