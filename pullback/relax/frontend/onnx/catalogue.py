"""The page ``docs/frontends/onnx.md``: every operator of ONNX, how it is converted, and the backend tests that fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pullback.relax.frontend.converters import Converter
from pullback.relax.frontend.onnx.load import onnx_package
from pullback.relax.frontend.onnx.nodes import has_function
from pullback.relax.frontend.onnx.table import ONNX, VALUES, domain_of, keys_of, name_of

_HEAD = """# Operators of ONNX

Written by `pytest tests/relax/frontend/onnx/test_page.py --update-golden`; a test compares it with the table of
conversions and with the backend tests of onnx. How to import a model: [from_onnx](../howto/from_onnx.md).

*Converted*: by an entry of the table. *By its definition*: the standard defines the operator by others, which are
converted. Of every operator the version of the model's opset is taken. *Values*: the inputs, counted from 0, whose
values decide a shape or an attribute. They must be constants, computed from shapes, or given as `values=`.

Types: bool, integers of 8 to 64 bits, float16, bfloat16, float32 and float64. Strings, optional values,
complex numbers, float8, and numbers of 4 and 2 bits are refused by name. Sequences that a model makes and takes apart
itself are converted where their lengths are known; as inputs and results they are refused.
"""


def _schemas() -> list[Any]:
    """The newest version of each operator that is not deprecated."""
    found = [s for s in onnx_package().defs.get_all_schemas() if not s.deprecated]
    return sorted(found, key=lambda s: (domain_of(s.domain), s.name))


def status(schema: Any) -> str:
    """How an operator is converted, or why not."""
    converter: Converter | None = ONNX.find(*keys_of(schema.domain, schema.name, schema.since_version))
    if converter is not None:
        return "converted" if converter.function is not None else f"refused: {converter.reason}"
    return "by its definition" if has_function(schema, schema.since_version) else "not converted"


def counts() -> dict[str, int]:
    """How many operators there are of each status, in one word."""
    found: dict[str, int] = {}
    for schema in _schemas():
        word = status(schema).partition(":")[0]
        found[word] = found.get(word, 0) + 1
    return found


def markdown(tests: int, failing: Iterable[tuple[str, str]], outside: int) -> str:
    """The page. ``failing``: names and reasons of the tests that do not pass; ``outside``: how many of them are of
    types that there are not here."""
    rows = list(failing)
    lines = [_HEAD, ", ".join(f"{n} operators {word}" for word, n in sorted(counts().items())) + ".", ""]
    lines += ["| operator | newest version | status | values |", "|---|---|---|---|"]
    for schema in _schemas():
        values = ", ".join(map(str, VALUES.get(schema.name, ()))) if not domain_of(schema.domain) else ""
        name = name_of(schema.domain, schema.name)
        lines.append(f"| `{name}` | {schema.since_version} | {status(schema)} | {values} |")
    kept = tests - outside
    passed = tests - len(rows)
    lines += ["", "## Backend tests that do not pass", ""]
    lines += [
        f"{passed} of {tests} pass: those of `onnx.backend.test.case.node` and of the folders simple, pytorch-operator",
        f"and pytorch-converted. {outside} are of strings, sequences, optional values, images, float8, or numbers of 4",
        f"or 2 bits; of the other {kept}, {100 * passed / kept:.1f} % pass.",
        "",
    ]
    by_reason: dict[str, list[str]] = {}
    for name, reason in rows:
        by_reason.setdefault(reason, []).append(name)
    lines += ["| reason | tests |", "|---|---|"]
    for reason, names in sorted(by_reason.items(), key=lambda r: (-len(r[1]), r[0])):
        lines.append(f"| {reason} | {len(names)}: {', '.join(f'`{n}`' for n in sorted(names))} |")
    return "\n".join(lines) + "\n"
