"""NAME.h: the interface of an exported trainer, for C99 and C++17, made of a template and the trainer's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pullback.deploy import packed
from pullback.ir.errors import ArgumentError

if TYPE_CHECKING:
    from pullback.deploy.program import Program, TensorEntry

NATIVE = Path(__file__).resolve().parent / "native"
CTYPES = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
}  # fmt: skip
# Of C and C++, macros of their headers and compilers, and names that the interface has itself.
_RESERVED = frozenset(
    """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do
    double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not
    operator or private protected public register restrict return short signed sizeof static struct switch template
    this throw true try typedef typeid typename union unsigned using virtual void volatile while xor self loss rows
    nullptr thread_local static_assert noexcept decltype char16_t char32_t wchar_t concept requires
    NULL EOF errno stdin stdout stderr assert linux unix
    """.split()  # noqa: SIM905
)


# A library's name is that of a type, too, which these parameters, and the runtime's own types, would hide.
_TAKEN = _RESERVED | frozenset(
    """
    bytes columns context count data delta dtype epoch epoch_ended epochs given memory name number offset options order
    path progress rank rows scale seed shape size status step steps tensor threads value values write written
    f r w x
    main exit malloc free memcpy memset printf fprintf read remove rename signal std index double_t float_t size_t
    """.split()  # noqa: SIM905
)


def check_name(name: str) -> None:
    """Raise an ArgumentError unless the name can begin those of C functions."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ArgumentError(
            f"the name of a library must be one of C, got {name!r}",
            hint='letters, digits and _, such as name="digits": functions are called digits_step and so on',
        )
    if name in _TAKEN or name.lower().startswith("pb_"):
        raise ArgumentError(
            f"{name} has a meaning in C or in the library's header, so a library cannot have that name",
            hint=f'such as name="{name}_net"' if not name.lower().startswith("pb_") else 'such as name="digits"',
        )


def c_name(name: str) -> str:
    """A name that C takes, like this one."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "x"
    return f"x_{made}" if made[0].isdigit() or made.startswith("pb_") else f"{made}_" if made in _RESERVED else made


def arguments(program: Program) -> tuple[list[str], list[str]]:
    """Names of parameters: of inputs and targets, and of outputs. Each is its own, in capitals too."""
    found: list[str] = []
    taken = {program.name.upper()}
    for tensor in (*program.inputs, *program.targets, *program.outputs):
        name = c_name(tensor.name)
        while name.upper() in taken:
            name += "_"
        found.append(name)
        taken.add(name.upper())
    count = len(program.inputs) + len(program.targets)
    return found[:count], found[count:]


def enum_dtype(dtype: str) -> str:
    """The dtype's constant in the runtime."""
    return f"PB_{dtype.upper()}"


def shape_text(tensor: TensorEntry) -> str:
    """``float32[16][64]``"""
    return tensor.dtype + "".join(f"[{size}]" for size in tensor.shape)


_EXCEPT = """, but for what loops
 * of unknown length keep for the gradient, and functions that call themselves need, from malloc, until the call ends"""


def header(program: Program) -> str:
    """The text of NAME.h."""
    name, inputs, targets, outputs = program.name, program.inputs, program.targets, program.outputs
    names, out_names = arguments(program)

    def typed(tensors: Iterable[TensorEntry], given: Iterable[str], const: str = "const ") -> str:
        return ", ".join(f"{const}{CTYPES[t.dtype]} *{n}" for t, n in zip(tensors, given, strict=True))

    kept = "\n".join(
        f" *   {t.name:<32} {t.kind:<16} {shape_text(t)}{', constant' if t.constant is not None else ''}"
        for t in program.kept
    )
    batch = "\n".join(
        f" *   {n:<32} {t.kind:<16} {shape_text(t)}"
        for n, t in zip([*names, *out_names], (*inputs, *targets, *outputs), strict=True)
    )
    constants = [f"#define {name.upper()}_BATCH {program.batch} /* rows of a step */"]
    for given, tensor in zip([*names, *out_names], (*inputs, *targets, *outputs), strict=True):
        elements = tensor.row_elements or tensor.nbytes
        if tensor.row_elements:
            constants.append(f"#define {name.upper()}_{given.upper()}_ROW {elements} /* elements of a row */")
    if program.platform.bare:
        constants.append(
            f"#define {name.upper()}_NO_FILES /* {name}_save and {name}_load are not part of this library */"
        )
    if program.instance_bytes is not None:
        about = f"what {name}_bytes(1) returns, for static memory"
        constants.append(f"#define {name.upper()}_INSTANCE_BYTES {program.instance_bytes} /* {about} */")
    run_time = ", ".join(f'"{n}"' for n in program.hyperparameters) or "none in this library"
    substitutes = {
        "@NAME@": name,
        "@UPPER@": name.upper(),
        "@CONSTANTS@": "\n".join(constants),
        "@EXCEPT@": _EXCEPT if program.needs_heap else "",
        "@BATCH@": batch,
        "@KEPT@": kept.replace("*/", "* /"),
        "@COLUMNS@": ", ".join(names),
        "@COLUMN_COUNT@": str(len(names)),
        "@STEP_PARAMETERS@": typed((*inputs, *targets), names),
        "@PREDICT_INPUTS@": typed(inputs, names[: len(inputs)]),
        "@PREDICT_OUTPUTS@": typed(outputs, out_names, ""),
        "@RUN_TIME@": run_time,
        "@PACKED@": packed.header(program, lambda word: f'"{word}"'),
    }
    text = (NATIVE / "interface.h.in").read_text(encoding="utf-8")
    return re.sub("@[A-Z_]+@", lambda match: substitutes[match.group()], text)
