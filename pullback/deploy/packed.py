"""Functions by registered name in an exported library: whoever uses it registers functions of C.

Only libraries of models that call some have this: a part of the header, and a table in NAME.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pullback.runtime.packed import SYMBOL
from pullback.tir.stmt import PackedCall
from pullback.tir.visitor import statements

if TYPE_CHECKING:
    from pullback.deploy.program import Program

_HEADER = """
/* ---- functions of yours ------------------------------------------------------------------------------------------ */

/* An array that the model gives to a function, or that the function fills. */
typedef struct NAME_array {
    void *data;
    const int64_t *shape;
    int64_t ndim;
    const char *dtype; /* such as "float32" */
} NAME_array;

/* The arrays that it reads come before those that it fills; it returns 0, or anything else where it fails, and then the
 * call that needed it is UPPER_ERROR_STEP and changes nothing. */
typedef int32_t (*NAME_function)(const NAME_array *arrays, int32_t inputs, int32_t outputs);

/* Registers what the model calls by a name: NAMES. A call that needs a function that
 * is not registered fails. It holds for all instances, and is done before any of them is used.
 * UPPER_ERROR_ARGUMENT: the model calls no function of that name. */
UPPER_API NAME_status NAME_register_function(const char *name, NAME_function function);
"""

_SOURCE = """
#define PB_PACKED_COUNT COUNT
static const char *const pb_packed_names[PB_PACKED_COUNT] = {NAMES};
static NAME_function pb_packed_functions[PB_PACKED_COUNT];

static int pb_packed_number(const char *name)
{
    for (int k = 0; k < PB_PACKED_COUNT; k++) {
        const char *a = name, *b = pb_packed_names[k];
        while (*a != 0 && *a == *b)
            a++, b++;
        if (*a == *b)
            return k;
    }
    return -1;
}

PB_PRIVATE int32_t SYMBOL(const char *name, const NAME_array *arrays, int32_t inputs, int32_t outputs);
int32_t SYMBOL(const char *name, const NAME_array *arrays, int32_t inputs, int32_t outputs)
{
    int number = pb_packed_number(name);
    return number < 0 || pb_packed_functions[number] == NULL ? -1
                                                             : pb_packed_functions[number](arrays, inputs, outputs);
}

NAME_status NAME_register_function(const char *name, NAME_function function)
{
    int number = name == NULL ? -1 : pb_packed_number(name);
    if (number < 0)
        return (NAME_status)PB_ERROR_ARGUMENT;
    pb_packed_functions[number] = function;
    return (NAME_status)PB_OK;
}
"""


def called(program: Program) -> list[str]:
    """The names of the functions that a library's code calls, sorted."""
    kernels = [k for v in program.variants for f in v.functions.values() for k in f.planned.kernels.values()]
    return sorted({node.name for k in kernels for node in statements(k.body) if isinstance(node, PackedCall)})


def own_symbol(library: str) -> str:
    """What code of the library calls, in place of what the process has: several libraries can be in one program."""
    return f"{library}__call_packed"


def in_library(text: str, library: str) -> str:
    """LLVM IR whose calls of registered functions are those of the library."""
    return text.replace(f"@{SYMBOL}(", f"@{own_symbol(library)}(")


def header(program: Program, text: Callable[[str], str]) -> str:
    """That part of NAME.h; ``text`` writes a string of C."""
    names = called(program)
    if not names:
        return ""
    listed = ", ".join(text(n) for n in names).replace("*/", "* /")
    return _filled(_HEADER, {"NAMES": listed, "UPPER": program.name.upper(), "NAME": program.name})


def source(program: Program, text: Callable[[str], str]) -> list[str]:
    """That part of NAME.c."""
    names = called(program)
    if not names:
        return []
    values = {"SYMBOL": own_symbol(program.name), "NAMES": ", ".join(text(n) for n in names), "COUNT": str(len(names))}
    return [_filled(_SOURCE, {**values, "NAME": program.name})]


def _filled(template: str, values: dict[str, str]) -> str:
    words = "|".join(sorted(values, key=len, reverse=True))
    return re.sub(f"(?<![A-Z_])(?:{words})", lambda match: values[match[0]], template)
