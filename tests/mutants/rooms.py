"""Which tests look after the files of a room: those that a change drawn at random must not pass."""

from __future__ import annotations

import re
from pathlib import Path

import pullback  # noqa: F401 - all ops are there
from pullback.ir.op import Op

_PACKAGE = Path(__file__).resolve().parents[2] / "pullback"
_OF_OPS = [f"tests/relax/op/test_{name}.py" for name in ("refusals", "errors", "values", "gradients")]

_ROOMS = (  # the first that a file's path begins with
    ("ir/", "tests/ir tests/relax/test_graph_ir.py tests/script"),
    ("runtime/", "tests/runtime"),
    ("tir/math", "tests/codegen/test_math.py tests/tir"),
    ("tir/", "tests/tir/test_intervals.py tests/tir/test_expr.py tests/tir tests/codegen/test_loops.py"),
    ("te/", "tests/relax/op/test_attention.py tests/schedule/test_schedules.py tests/schedule/test_random.py"),
    (
        "schedule/reduction/",
        "tests/schedule/test_reduction.py tests/schedule/test_pipeline.py tests/schedule/test_products.py",
    ),
    ("schedule/winograd/", "tests/schedule/test_winograd.py"),
    ("schedule/attention", "tests/schedule/test_attention.py"),
    ("schedule/", "tests/schedule"),
    ("codegen/", "tests/codegen"),
    ("relax/op/", "tests/relax/op"),
    ("relax/transform/", "tests/relax/transform"),
    (
        "relax/training/",
        "tests/relax/training/test_refusals.py tests/relax/training/test_optimizer.py"
        " tests/relax/training/test_optimizer_formulas.py tests/relax/training",
    ),
    (
        "relax/",
        "tests/relax/test_well_formed.py tests/relax/test_types.py tests/relax/test_rewriting.py"
        " tests/relax/test_graph_ir.py tests/relax/transform tests/script",
    ),
    ("script/", "tests/script/test_refusals.py tests/script tests/errors"),
    ("driver/", "tests/driver"),
    ("demo/", "tests/demo"),
    ("", "tests/test_show.py tests/docs tests/examples tests/errors"),
)


def tests_of(file: str) -> str:
    """The arguments of pytest for a file of the package, such as ``relax/op/manipulate/pad.py``: of a family of ops,
    the tests of these; else first those that bear its name. The tests of ops lie in one folder."""
    names = _ops_of(file) if file.startswith("relax/op/") else []
    if names:
        return f'{" ".join(_OF_OPS)} -k "{" or ".join(["refused", *names])}"'
    folder = "relax/op" if file.startswith("relax/op/") else Path(file).parent
    path = Path("tests") / folder / f"test_{Path(file).stem}.py"
    mirror = [path.as_posix()] if (_PACKAGE.parent / path).exists() else []
    return " ".join([*mirror, next(tests for prefix, tests in _ROOMS if file.startswith(prefix))])


def _ops_of(file: str) -> list[str]:
    """The ops that a file makes, by their names or its own, as pytest's option -k takes them."""
    shorts = {op.short for op in Op.registry.values()}
    stem = Path(file).stem
    found = set(re.findall(r'\(\n? *"([a-z0-9_.]+)",\n', (_PACKAGE / file).read_text())) & shorts
    return sorted({name.split(".")[-1] for name in found} | {stem for short in shorts if stem in short})
