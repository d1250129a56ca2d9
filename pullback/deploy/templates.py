"""What lies beside a library: the C++ header, an example, and what build systems want to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pullback.deploy.header import CTYPES, arguments
from pullback.deploy.program import Program, TensorEntry
from pullback.version import __version__

NATIVE = Path(__file__).resolve().parent / "native"


def licence() -> str:
    """That of pullback, whose runtime is part of each library."""
    return (NATIVE / "LICENSE").read_text(encoding="utf-8")


def filled(file: str, substitutes: Mapping[str, str]) -> str:
    """A template with its ``@WORDS@`` replaced."""
    return re.sub("@[A-Z_]+@", lambda match: substitutes[match.group()], (NATIVE / file).read_text(encoding="utf-8"))


def words(program: Program) -> dict[str, str]:
    """What templates may ask for."""
    names, output_names = arguments(program)
    count = len(program.inputs)
    pairs = list(zip((*program.inputs, *program.targets), names, strict=True))
    outputs = list(zip(program.outputs, output_names, strict=True))

    def spans(tensors: list, const: str) -> str:
        return ", ".join(f"span<{const}{CTYPES[t.dtype]}> {n}" for t, n in tensors)

    def checks(tensors: list, rows: str) -> str:
        lines = []
        for tensor, given in tensors:
            wanted = f"{tensor.row_elements} * {rows}" if tensor.row_elements else str(_elements(tensor.shape))
            lines.append(f'        model::expect({given}.size(), {wanted}, "{given}");')
        return "\n".join(lines)

    def data(tensors: list) -> str:
        return ", ".join(f"{n}.data()" for _, n in tensors)

    libs = () if program.platform.bare else ("-lm", "-pthread")
    first = program.inputs[0]
    return {
        "@NAME@": program.name,
        "@UPPER@": program.name.upper(),
        "@VERSION@": __version__,
        "@BATCH@": str(program.batch),
        "@STEP_SPANS@": spans(pairs, "const "),
        "@STEP_CHECKS@": checks(pairs, "model::batch"),
        "@STEP_DATA@": data(pairs),
        "@PREDICT_SPANS@": spans([*pairs[:count]], "const ") + ", " + spans(outputs, ""),
        "@PREDICT_CHECKS@": checks([*pairs[:count], *outputs], "rows"),
        "@PREDICT_INPUTS@": data(pairs[:count]),
        "@PREDICT_OUTPUTS@": data(outputs),
        "@ROWS@": f"{names[0]}.size() / {first.row_elements or 1}",
        "@COLUMN_COUNT@": str(len(pairs)),
        "@BATCH_ARRAYS@": "\n".join(
            f"static _Alignas(64) {CTYPES[t.dtype]} batch_{n}[{_elements(t.shape)}];" for t, n in pairs
        ),
        "@BATCH_NAMES@": ", ".join(f"batch_{n}" for n in names),
        "@OUTPUT_ARRAYS@": "\n".join(f"static {CTYPES[t.dtype]} result_{n}[{_elements(t.shape)}];" for t, n in outputs),
        "@INPUT_NAMES@": ", ".join(f"batch_{n}" for n in names[:count]),
        "@OUTPUT_NAMES@": ", ".join(f"result_{n}" for n in output_names),
        "@FILL@": "\n".join(_fill(t, n) for t, n in pairs),
        "@LIBS@": " ".join(libs),
        "@CMAKE_LIBS@": ";".join(libs),
    }


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _fill(tensor: TensorEntry, name: str) -> str:
    """Numbers for the example's batch: labels that are classes, and floats between -1 and 1."""
    shape, dtype = tensor.shape, tensor.dtype
    count = _elements(shape)
    value = "(float)((i * 37) % 101) / 50.0f - 1.0f" if dtype.startswith("float") else "i % 2"
    return f"    for (int i = 0; i < {count}; i++)\n        batch_{name}[i] = ({CTYPES[dtype]})({value});"


def cpp_header(program: Program) -> str:
    """NAME.hpp."""
    return filled("interface.hpp.in", words(program))


def write_project(program: Program, folder: Path) -> None:
    """The example, where there are files to save to, and files for CMake and pkg-config."""
    given = words(program)
    if not program.platform.bare:
        (folder / "example").mkdir()
        (folder / "example" / "main.c").write_text(filled("main.c.in", given), encoding="utf-8")
    cmake = "CMakeLists-sources.txt.in" if program.platform.sources else "CMakeLists.txt.in"
    (folder / "CMakeLists.txt").write_text(filled(cmake, given), encoding="utf-8")
    (folder / f"{program.name}.pc").write_text(filled("library.pc.in", given), encoding="utf-8")
