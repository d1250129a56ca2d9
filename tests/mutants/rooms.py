"""Which tests look after the files of a room: those that a change drawn at random must not pass."""

from __future__ import annotations

_ROOMS = (  # the first that a file's path begins with
    ("ir/", "tests/ir tests/script tests/relax/test_graph_ir.py"),
    ("runtime/", "tests/runtime"),
    ("tir/math", "tests/codegen/test_math.py tests/tir"),
    ("tir/", "tests/tir tests/codegen/test_loops.py"),
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
    ("relax/training/", "tests/relax/training"),
    ("relax/", "tests/relax/test_graph_ir.py tests/relax/transform tests/script"),
    ("script/", "tests/script tests/errors"),
    ("driver/", "tests/driver"),
    ("", "tests/docs tests/examples tests/errors"),
)


def tests_of(file: str) -> str:
    """The arguments of pytest for a file of the package, such as ``relax/op/pad.py``."""
    return next(tests for prefix, tests in _ROOMS if file.startswith(prefix))
