"""What an exported trainer is for JavaScript: WebAssembly modules without imports, and the class over them.

``NAME.wasm`` and ``NAME.relaxed.wasm``, of which the class loads the one that the engine knows the instructions of, are
linked of the library's objects and ``NAME_module.c``; ``NAME.mjs`` has the functions of NAME.h as methods,
``NAME.worker.mjs`` runs them in a worker, and ``NAME.d.mts`` tells their types.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pullback.deploy.header import arguments
from pullback.deploy.program import Program, TensorEntry, Variant
from pullback.deploy.templates import NATIVE, filled
from pullback.deploy.toolchain import Toolchain
from pullback.version import __version__

_STACK_BYTES = 1 << 20  # compiled code keeps up to 256 KiB in a local buffer
_API = (  # of NAME.h
    "bytes", "init", "close", "reset", "last_error", "status_text", "evaluate", "find", "get", "set", "parameter_count",
    "get_parameters", "set_parameters", "add_parameters", "get_hyperparameter", "set_hyperparameter", "steps",
    "epochs", "seed", "checkpoint_bytes",
)  # fmt: skip
_OWN = ("build", "step_on", "predict_on", "run_bytes", "run_begin", "run_next", "write_to", "read_from")
_OPTIONS = frozenset({"epochs", "steps", "shuffle", "progress", "signal"})  # of a run, beside its columns
# Words that no parameter in TypeScript may be called; those that are C's too have another name already.
_RESERVED = frozenset(
    """
    arguments await debugger eval finally function implements import in instanceof interface let null package super
    typeof var with yield
    """.split()  # noqa: SIM905
)
# What a class may not be called, for the templates use it.
_TAKEN = frozenset(
    """
    AbortController AbortSignal Answers Array ArrayBuffer BatchTensor DataView Error Evaluation HyperparameterName
    KeptArray KeptName KeptTensor Map MessageChannel Number Numbers Object Predicted Progress Promise Response
    RunOptions RunResult Source Status String Symbol Tensor TextDecoder TextEncoder TypeError URL WebAssembly Worker
    """.split()  # noqa: SIM905
)
_ARRAYS = {
    "bool": "Uint8Array", "int8": "Int8Array", "int16": "Int16Array", "int32": "Int32Array", "int64": "BigInt64Array",
    "uint8": "Uint8Array", "uint16": "Uint16Array", "uint32": "Uint32Array", "uint64": "BigUint64Array",
    "float16": "Uint16Array", "bfloat16": "Uint16Array", "float32": "Float32Array", "float64": "Float64Array",
}  # fmt: skip


def class_name(name: str) -> str:
    """``hand_digits`` → ``HandDigits``."""
    made = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return f"{made}Model" if made in _TAKEN else made


def write(program: Program, tools: Toolchain, flags: Sequence[str], objects: Sequence[str], work: Path) -> None:
    """The modules of the library's objects, one for each CPU, and the files for JavaScript. NAME_module.c takes NAME.c
    in, so that its object takes the place of NAME.o."""
    name, given = program.name, words(program)
    bytes_ = (NATIVE / "web" / "bytes.c").read_text()
    (work / f"{name}_module.c").write_text(filled("web/module.c.in", {**given, "@BYTES@": bytes_}))
    for suffix in ("mjs", "worker.mjs", "d.mts", "d.ts"):
        (work / f"{name}.{suffix}").write_text(filled(f"web/model.{suffix}.in", given))
    (work / "example").mkdir()
    (work / "example" / "main.mjs").write_text(filled("web/main.mjs.in", given))
    compiled = f"{name}_module.o"
    exports = [f"-Wl,--export={name}_{function}" for function in (*_API, *_OWN)]
    layout = ["-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,-s", f"-Wl,-z,stack-size={_STACK_BYTES}"]
    code = [f"{name}_{variant.cpu}.o" for variant in program.variants]
    others = [file for file in objects if file not in (f"{name}.o", *code)]
    own_flags = [*([f"-D{macro}"] for macro in program.platform.apart), []]
    for variant, own, kernels in zip(program.variants, own_flags, code, strict=True):
        tools.compile([f"{name}_module.c"], compiled, [*flags, *own], work)
        parts = [compiled, kernels, *others]
        tools.link(["-nostdlib", *parts, *exports, *layout, "-o", file_of(program, variant)], work)
    (work / compiled).unlink()


def file_of(program: Program, variant: Variant) -> str:
    """The module for one CPU: that for the last, which all engines know, has the library's name alone."""
    return f"{program.name}.wasm" if variant is program.variants[-1] else f"{program.name}.{variant.cpu}.wasm"


def columns(program: Program) -> list[str]:
    """The names of inputs and targets in JavaScript."""
    names, _ = arguments(program)
    found: list[str] = []
    for own in names:
        name = own
        while name in _OPTIONS | _RESERVED or name in found or (name != own and name in names):
            name += "_"
        found.append(name)
    return found


def about(program: Program) -> dict[str, Any]:
    """What the class knows of the trainer: the batch, its tensors, and what is kept."""
    names, count = columns(program), len(program.inputs)

    def described(tensors: Iterable[TensorEntry], given: Iterable[str]) -> list[dict[str, Any]]:
        return [
            {"name": n, "dtype": t.dtype, "shape": list(t.shape), "hasRows": t.has_rows}
            for t, n in zip(tensors, given, strict=True)
        ]

    return {
        "name": program.name,
        "version": __version__,
        "batch": program.batch,
        "inputs": described(program.inputs, names[:count]),
        "targets": described(program.targets, names[count:]),
        "outputs": described(program.outputs, arguments(program)[1]),
        "kept": [{"name": t.name, "kind": t.kind, "dtype": t.dtype, "shape": list(t.shape)} for t in program.kept],
        "hyperparameters": list(program.hyperparameters),
    }


def words(program: Program) -> dict[str, str]:
    """What the templates ask for."""
    known = json.dumps(about(program), indent=2)
    # The module's layout follows from these and the runtime's version: a wrong pair of files must not run.
    values = program.initial + b"".join(t.constant.tobytes() for t in program.kept if t.constant is not None)
    build = zlib.crc32(known.encode() + values) & 0x7FFFFFFF
    names, count = columns(program), len(program.inputs)
    outputs = list(zip(program.outputs, arguments(program)[1], strict=True))
    predicted = " ".join(f"{n}: {_ARRAYS[t.dtype]};" for t, n in outputs)
    arrays = [_ARRAYS[t.dtype] for t in program.kept]
    return {
        "@NAME@": program.name,
        "@CLASS@": class_name(program.name),
        "@VERSION@": __version__,
        "@BUILD@": str(build),
        "@ABOUT@": known,
        "@BATCH@": str(program.batch),
        "@COLUMN_COUNT@": str(len(names)),
        "@INPUT_COUNT@": str(count),
        "@STEP_TYPES@": ", ".join(f"{n}: Numbers" for n in names),
        "@PREDICT_TYPES@": ", ".join(f"{n}: Numbers" for n in names[:count]),
        "@COLUMN_FIELDS@": "\n".join(f"  {n}: Numbers;" for n in names),
        "@PREDICTED@": _ARRAYS[outputs[0][0].dtype] if len(outputs) == 1 else f"{{ {predicted} }}",
        "@BATCH_TENSORS@": "\n".join(
            f" *   {n:<24} {t.kind:<8} {t.dtype}[{', '.join(map(str, t.shape))}]"
            for t, n in zip((*program.inputs, *program.targets), names, strict=True)
        ),
        "@KEPT_NAMES@": " | ".join(json.dumps(t.name) for t in program.kept),
        "@KEPT_ARRAYS@": " | ".join(dict.fromkeys(arrays)),
        "@HYPERPARAMETER_NAMES@": " | ".join(map(json.dumps, program.hyperparameters)) or "never",
    }
