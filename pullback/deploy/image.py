"""What makes an image of a library for a bare machine: start, linker script, a program that trains, and its data.

The folder ``image`` beside the library is complete: ``make`` there links it. ``data.c`` has made-up numbers until
:meth:`Exported.write_data` puts a data set in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.deploy.header import CTYPES, arguments
from pullback.deploy.program import Program, TensorEntry
from pullback.deploy.templates import filled, words
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.runtime.dtype import dtype_name
from pullback.tir.expr import nbytes
from pullback.tir.stmt import Allocate, HostCall, PrimFunc
from pullback.tir.visitor import statements

FOLDER, DATA = "image", "data.c"
_FILES = ("Makefile", "link.ld", "start.c", "console.c", "board.h", "data.h", "main.c")
_A_LINE = 16  # numbers
_FRAME = 256  # bytes of stack that a call of a host function takes, beside its arguments
_FRAMES = 3 * 1024  # bytes of stack that calls and registers take, from main() to a kernel

_TRAIN = """
/* ---- training and evaluation ------------------------------------------------------------------------------------- */

static int report(void *context, int64_t step, int64_t epoch, int epoch_ended, double loss)
{
    int64_t *left = context; /* steps whose loss is printed */
    if (epoch_ended || *left > 0) {
        print(epoch_ended ? "epoch " : "step ", (uint64_t)(epoch_ended ? epoch : step), "");
        print_real(": loss ", loss, "\\n");
        *left -= !epoch_ended;
    }
    return 0;
}

static int train(@NAME@ *self)
{
    int64_t left = LOSSES;
    @NAME@_run_options options = {.epochs = EPOCHS, .order = image_train.order, .progress = report, .context = &left};
    uint64_t begin = image_ticks();
    if (has_failed(self, @NAME@_run(self, image_train.columns, image_train.rows, &options)))
        return 1;
    print("a step: ", (image_ticks() - begin) / (uint64_t)options.steps_done, " ticks\\n");
    return 0;
}
"""

_EVALUATE = """
static int evaluate(@NAME@ *self)
{
    double loss = 0, accuracy = 0;
    if (has_failed(self, @NAME@_evaluate(self, image_test.columns, image_test.rows, &loss, &accuracy)))
        return 1;
    print("test: ", (uint64_t)image_test.rows, " rows");
    print_real(", loss ", loss, "");
    print_real(", accuracy ", accuracy, "\\n");
    return 0;
}
"""


def write_image(program: Program, folder: Path) -> None:
    """All that an image for the platform's board is made of, in a folder beside the library."""
    board = program.platform.board
    assert board is not None
    functions = program.variants[0].functions
    name = {"@NAME@": program.name}
    trains, evaluates = "step" in functions, any(f.startswith("evaluate") for f in functions)
    calls = ("    if (image_train.rows > 0 && train(self))\n        return 1;\n" if trains else "") + (
        "    if (image_test.rows > 0 && evaluate(self))\n        return 1;\n" if evaluates else ""
    )
    given = words(program) | {
        "@ABOUT@": program.platform.about,
        "@COLUMNS@": ", ".join(arguments(program)[0]),
        "@FLASH@": board.flash[1],
        "@FLASH_ORIGIN@": board.flash[0],
        "@RAM@": board.ram[1],
        "@RAM_ORIGIN@": board.ram[0],
        "@STACK@": str(stack_bytes(program)),
        "@CROSS@": program.platform.tools,
        "@EMULATOR@": board.emulator,
        "@MACHINE@": " ".join(program.platform.flags),
        "@TRAIN@": _with(_TRAIN, name) if trains else "",
        "@EVALUATE@": _with(_EVALUATE, name) if evaluates else "",
        "@CALLS@": calls,
    }
    place = folder / FOLDER
    place.mkdir()
    for file in _FILES:
        (place / file).write_text(filled(f"image_{file}.in", given))
    columns = [_made_up(t) for t in (*program.inputs, *program.targets)]
    write_data(place / DATA, program.name, (*program.inputs, *program.targets), columns, None)


def stack_bytes(program: Program) -> int:
    """The stack that the compiled functions take, at the most: local buffers of a kernel, some of which may lie in the
    same place, and what calls take besides, those of branches and loops inside each other too."""
    planned = [f.planned for v in program.variants for f in v.functions.values()]
    kernels = max(_local_bytes(k) for p in planned for k in p.kernels.values())
    frames = _FRAMES + max(sum(map(_list_bytes, (p.host, *p.inner.values()))) for p in planned)
    return -(-(kernels + frames) // 1024) * 1024


def _list_bytes(host: PrimFunc) -> int:
    """What a host function that calls others has on the stack: lists of pointers, and registers."""
    calls = [s for s in statements(host.body) if isinstance(s, HostCall)]
    return sum(8 * len(s.buffers) + _FRAME for s in calls)


def _local_bytes(kernel: PrimFunc) -> int:
    buffers = (s.buffer for s in statements(kernel.body) if isinstance(s, Allocate))
    return sum(math.prod(map(int, b.shape)) * nbytes(b.dtype) for b in buffers if b.scope == "local")


def batch_of(manifest: Mapping[str, Any]) -> tuple[TensorEntry, ...]:
    """The inputs and targets of a library, from its manifest."""
    return tuple(
        TensorEntry(t["kind"], t["name"], None, tuple(t["shape"]), t["dtype"], has_rows=t["rows"])
        for t in (*manifest["inputs"], *manifest["targets of the loss"])
    )


def _with(text: str, name: dict[str, str]) -> str:
    for word, value in name.items():
        text = text.replace(word, value)
    return text


def _made_up(tensor: TensorEntry) -> np.ndarray:
    """Of one batch: labels that are classes, and floats between -1 and 1."""
    numbers = np.arange(int(np.prod(tensor.shape)))
    if tensor.dtype.startswith(("float", "bfloat")):
        return (numbers * 37 % 101 / 50 - 1).astype("float32").reshape(tensor.shape)
    return (numbers % 2).astype("uint8").reshape(tensor.shape)


def write_data(
    file: Path, name: str, tensors: Sequence[TensorEntry], train: Sequence[Any] | None, test: Sequence[Any] | None
) -> None:
    """A C file with the data sets of an image: an array for each input and target, whose values keep their dtype."""
    lines = [f"/* Data sets of {name}: written by pullback. */", '#include "data.h"', ""]
    for label, given in (("train", train), ("test", test)):
        arrays = [] if given is None else _checked(label, tensors, given)
        rows = next((len(a) for a, t in zip(arrays, tensors, strict=False) if t.has_rows), 0)
        for k, array in enumerate(arrays):
            lines += _array(f"{label}{k}", array)
        if arrays:
            columns = ", ".join(f"{{{label}{k}, {name.upper()}_{_dtype(a).upper()}}}" for k, a in enumerate(arrays))
            lines += [f"static const {name}_column {label}_columns[] = {{{columns}}};", ""]
        if label == "train" and rows:
            lines += ["#ifdef SHUFFLE", f"static int32_t order[{rows}];", "#else", "#define order 0", "#endif", ""]
        order = "order" if label == "train" and rows else "0"
        columns = f"{label}_columns" if arrays else "0"
        lines += [f"const image_data image_{label} = {{{columns}, {rows}, {order}}};", ""]
    file.write_text("\n".join(lines))


def _dtype(array: np.ndarray) -> str:
    return str(dtype_name(array.dtype))


def _checked(label: str, tensors: Sequence[TensorEntry], given: Sequence[Any]) -> list[np.ndarray]:
    """The arrays of one data set: as many as there are inputs and targets, with shapes that fit."""
    arrays = [np.ascontiguousarray(a) for a in given]
    if len(arrays) != len(tensors):
        names = ", ".join(t.name for t in tensors)
        raise ArgumentError(f"{label} has {len(arrays)} arrays; the library takes {len(tensors)}: {names}")
    rows = {len(a) for a, t in zip(arrays, tensors, strict=True) if t.has_rows and a.ndim}
    for array, tensor in zip(arrays, tensors, strict=True):
        wanted = tensor.shape[1:] if tensor.has_rows else tensor.shape
        got = array.shape[1:] if tensor.has_rows else array.shape
        if got != wanted or (tensor.has_rows and not array.ndim):
            rest = ", ".join(map(str, wanted))
            shape = f"(rows, {rest})" if wanted and tensor.has_rows else "(rows,)" if tensor.has_rows else f"({rest})"
            raise ShapeError(f"{label}: {tensor.name} must have the shape {shape}, got {array.shape}")
        if _dtype(array) not in CTYPES:
            raise DTypeError(f"{label}: {tensor.name} has the dtype {array.dtype}, which C code cannot read")
    if len(rows) > 1:
        raise ShapeError(f"{label}: all arrays must have the same number of rows, got {sorted(rows)}")
    return arrays


def _array(name: str, array: np.ndarray) -> list[str]:
    """A C array in flash: floats of two bytes as their bits."""
    kind, flat = CTYPES[_dtype(array)], array.reshape(-1)
    if kind in ("float", "double"):
        texts = [_SPECIAL.get(str(v), float(v).hex()) for v in flat.astype("float64")]
    else:
        numbers = flat.view(np.uint16) if kind == "uint16_t" else flat
        texts = [_integer(int(v)) for v in numbers]
    rows = [", ".join(texts[k : k + _A_LINE]) for k in range(0, len(texts), _A_LINE)] or ["0"]
    body = ",\n    ".join(rows)
    return [f"static const _Alignas(64) {kind} {name}[] = {{", f"    {body}", "};"]


_SPECIAL = {"nan": '__builtin_nanf("")', "inf": "__builtin_inff()", "-inf": "-__builtin_inff()"}


def _integer(value: int) -> str:
    """A constant of C: the least int64 is none, and what is more than the largest is unsigned."""
    return f"({value + 1} - 1)" if value == -(2**63) else f"{value}{'u' if value >= 2**63 else ''}"
