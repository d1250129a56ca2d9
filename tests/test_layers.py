"""Rooms import only rooms below them: the list of `docs/map.md`, held against the imports of every module.

Imports are read from the source, those inside functions too; what stands under `if TYPE_CHECKING:` does not count.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import NEEDS_TORCH

PACKAGE = Path(__file__).resolve().parent.parent / "pullback"

# From the bottom up. A room is a folder or a file; the longest prefix counts.
ROOMS = (
    ("pullback.ir", "pullback.version"),
    ("pullback.runtime", "pullback.nd"),  # nd: the older face of the tensors
    ("pullback.tir",),
    ("pullback.te",),
    ("pullback.schedule",),
    ("pullback.codegen", "pullback.target"),  # a target asks LLVM about itself
    ("pullback.relax",),
    ("pullback.relax.op",),
    ("pullback.relax.transform",),
    ("pullback.relax.testing",),
    ("pullback.script",),
    ("pullback.driver",),
    ("pullback.relax.training",),
    ("pullback.deploy",),
    ("pullback.scale",),
    ("pullback.optim",),
    ("pullback.nn",),
    ("pullback.sklearn",),
    ("pullback.relax.frontend",),
    ("pullback.relay", "pullback.contrib", "pullback.error", "pullback.parser", "pullback.testing", "pullback.topi"),
    # the package's face
    ("pullback", "pullback.shortcuts", "pullback.func", "pullback.distributed", "pullback.mypy_plugin"),
    ("pullback.demo",),
    ("pullback.cli", "pullback.__main__", "pullback.show", "pullback.command"),
)

# Imports upwards that are wanted: (module, imported module) and the reason.
EXCEPTIONS = {
    ("pullback.relax.training.trainer", "pullback.deploy.export"): "trainer.export is a method of the trainer",
    ("pullback.relax.training.interchange", "pullback.relax.frontend.torch.weights"): (
        "trainer.to_torch and trainer.from_torch are methods of the trainer"
    ),
    ("pullback.relax.transform", "pullback.relax.training.utils"): (
        "relax.transform.AppendLoss is a public name; the pass lives with the losses and is imported on first use"
    ),
}

# Modules that import by name at run time, which the syntax tree does not show, and the reason.
DYNAMIC = {
    "pullback.relax": "relax.training, relax.build and the like are public names; they are found on first use",
    "pullback": "relay and its like are loaded on first use",
    "pullback.ir": "relay's types are public names there; they are found on first use",
    "pullback.relay": "its rooms are loaded on first use",
    "pullback.relay.backend": "executors are loaded on first use",
    "pullback.relay.testing": "models are loaded on first use",
    "pullback.relax.frontend": "importers are loaded on first use, with their tables",
    "pullback.relax.frontend.torch.exporting": "PyTorch, or an error that says how to install it",
    "pullback.runtime.vm": "Executable is what relay.vm.compile returns; it is found on first use",
    "pullback.shortcuts": "short names, pullback.training and the like, are those of other packages",
}

# The folders of ops and the files beside them, from the bottom up. Those of one floor do not import each other.
OP_FLOORS = (
    ("namespace", "sample", "kernel", "primal_gradient"),
    ("family",),
    ("call", "reduction"),
    ("batching", "elementwise", "linear_algebra", "manipulate", "index", "register"),
    ("methods", "nn", "random", "reference"),
    ("distributed", "image", "loss", "vision"),
    ("catalogue",),
)

# Packages that only some rooms may use.
RESERVED = {
    "llvmlite": ("pullback.codegen",),
    "safetensors": ("pullback.relax.training",),
    "rich": ("pullback.relax.training", "pullback.cli", "pullback.runtime.tables"),
    "typer": ("pullback.cli",),
    "matplotlib": ("pullback.demo", "pullback.relax.training"),
    "sklearn": ("pullback.sklearn",),
    "IPython": ("pullback.relax.training.notebook",),
    "pandas": ("pullback.relax.training.history",),
    "tensorboardX": ("pullback.relax.training.callbacks",),
    "filelock": ("pullback.runtime.files",),
    "pooch": ("pullback.demo",),
    "platformdirs": ("pullback.runtime.files",),
    "torch": ("pullback.relax.frontend.torch",),
    "onnx": ("pullback.relax.frontend.onnx",),
    "keras": ("pullback.relax.frontend.keras",),
    "jax": (),
    "mypy": ("pullback.mypy_plugin",),
}


@dataclass(frozen=True)
class Import:
    """`module` imports `name`, a module where there is one of that name."""

    module: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.module} (line {self.line}) imports {self.name}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_in(module: str, tree: ast.Module) -> Iterator[Import]:
    """All imports of a module, with absolute names."""
    for node in _without_type_checking(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: imports are absolute here"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(module, full if full in MODULES else str(node.module), node.lineno)


def _without_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in child.orelse:
                yield statement
                yield from _without_type_checking(statement)
            continue
        yield child
        yield from _without_type_checking(child)


def room_of(module: str) -> int:
    """The number of the room, counted from the bottom."""
    best, room = "", -1
    for number, prefixes in enumerate(ROOMS):
        for prefix in prefixes:
            if (module == prefix or module.startswith(f"{prefix}.")) and len(prefix) > len(best):
                best, room = prefix, number
    return room


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@functools.cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for module in MODULES for found in imports_in(module, tree_of(module)))


def upward(imports: Iterable[Import]) -> list[Import]:
    """Imports of a room above the importing module's own."""
    ours = [i for i in imports if i.name.split(".")[0] == "pullback"]
    return [i for i in ours if room_of(i.name) > room_of(i.module)]


def test_every_module_has_a_room():
    """A new folder is put in the list on purpose: it must not fall into the package's face."""
    face = room_of("pullback")
    assert [m for m in MODULES if room_of(m) == face] == [
        "pullback", "pullback.distributed", "pullback.func", "pullback.mypy_plugin", "pullback.shortcuts",
    ]  # fmt: skip


def test_rooms_import_only_rooms_below():
    wrong = [i for i in upward(all_imports()) if (i.module, i.name) not in EXCEPTIONS]
    assert not wrong, "\n".join(map(str, wrong))


def test_exceptions_are_still_needed():
    found = {(i.module, i.name) for i in upward(all_imports())}
    assert set(EXCEPTIONS) <= found


def test_folders_of_ops_import_only_floors_below():
    floors = {name: number for number, names in enumerate(OP_FLOORS) for name in names}
    prefix = "pullback.relax.op."
    within = [i for i in all_imports() if i.module.startswith(prefix) and i.name.startswith(prefix)]
    pairs = {i: tuple(name.removeprefix(prefix).split(".")[0] for name in (i.module, i.name)) for i in within}
    assert {name for pair in pairs.values() for name in pair} == set(floors)
    wrong = [i for i, (user, used) in pairs.items() if user != used and floors[used] >= floors[user]]
    assert not wrong, "\n".join(map(str, wrong))


def test_only_known_modules_import_by_name():
    def imports_by_name(tree: ast.Module) -> bool:
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {getattr(function, "attr", getattr(function, "id", None)) for function in called}
        return bool(names & {"import_module", "__import__"})

    assert {module for module in MODULES if imports_by_name(tree_of(module))} == set(DYNAMIC)


def test_lazy_names_of_relax_exist():
    """What `pullback.relax` finds on first use is really there."""
    import pullback.relax

    for name in pullback.relax._ABOVE:
        assert getattr(pullback.relax, name) is not None


@pytest.mark.parametrize("package", RESERVED)
def test_reserved_packages(package):
    users = [i for i in all_imports() if i.name.split(".")[0] == package]
    rooms = RESERVED[package]
    wrong = [i for i in users if not any(i.module == r or i.module.startswith(f"{r}.") for r in rooms)]
    assert not wrong, "\n".join(map(str, wrong))
    assert users or not rooms, f"nobody imports {package} any more: take it off the list"


def test_the_check_sees_imports_in_functions_but_not_for_types():
    text = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from pullback.driver import compile\n"
        "else:\n"
        "    import pullback.script\n"
        "def f():\n"
        "    if True:\n"
        "        from pullback.relax import expr\n"
    )
    found = upward(imports_in("pullback.tir.example", ast.parse(text)))
    assert [(i.name, i.line) for i in found] == [("pullback.script", 5), ("pullback.relax.expr", 8)]


def test_only_files_named_for_it_need_pytorch() -> None:
    """`make test` must pass where PyTorch is not installed: `conftest.py` leaves out files of that name."""
    tests = Path(__file__).resolve().parent
    others = [p for p in sorted(tests.rglob("test_*.py")) if not p.name.endswith(NEEDS_TORCH)]
    wrong = [
        f"{path.relative_to(tests)} line {found.lineno}"
        for path in others
        for found in ast.parse(path.read_text()).body
        if isinstance(found, ast.Import | ast.ImportFrom) and re.search(r"\b(import|from) torch\b", ast.unparse(found))
    ]
    assert not wrong, f"rename to …_{NEEDS_TORCH}, or import torch in the test and skip without it: {wrong}"


CONTRACTION = "pullback.schedule.contraction"
WINGS = ("figures", "problem", "plan", "emit")  # from the bottom up
FINISHED = f"{CONTRACTION}.plan.blocking"  # all of plan that emit knows


def wing_of(module: str) -> int | None:
    parts = module.removeprefix(f"{CONTRACTION}.").split(".")
    return WINGS.index(parts[0]) if module.startswith(f"{CONTRACTION}.") else None


def wrong_between_wings(imports: Iterable[Import]) -> list[Import]:
    """Imports of a wing above the module's own; of emit, those of what plan has not finished."""
    wrong = []
    for i in imports:
        own, other = wing_of(i.module), wing_of(i.name)
        asks_plan = own == WINGS.index("emit") and other == WINGS.index("plan") and i.name != FINISHED
        if own is not None and other is not None and (other > own or asks_plan):
            wrong.append(i)
    return wrong


def test_wings_of_contractions():
    assert all(wing_of(m) is not None for m in MODULES if m.startswith(f"{CONTRACTION}."))
    wrong = wrong_between_wings(all_imports())
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    ("module", "imported", "is_wrong"),
    [
        ("problem.memory", "plan.blocking", True),
        ("plan.tasks", "emit.region", True),
        ("emit.lower", "plan.tasks", True),
        ("emit.lower", "plan.blocking", False),
        ("plan.tasks", "problem.memory", False),
    ],
)
def test_the_check_sees_what_a_wing_must_not_ask(module, imported, is_wrong):
    one = Import(f"{CONTRACTION}.{module}", f"{CONTRACTION}.{imported}", 1)
    assert wrong_between_wings([one]) == ([one] if is_wrong else [])


def circle(imports: Iterable[Import]) -> list[str]:
    """Modules each of which imports the next one, and the last one the first; none where there is no such circle."""
    edges: dict[str, set[str]] = {}
    for i in imports:
        if i.name != i.module:
            edges.setdefault(i.module, set()).add(i.name)
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        found = next(filter(None, (search(n, [*path, module]) for n in sorted(edges.get(module, ())))), [])
        done.add(module)
        return found

    return next(filter(None, (search(module, []) for module in sorted(edges))), [])


def test_no_circle_of_imports_in_schedules():
    """A module is understood with those that it imports, and these without it."""
    found = circle(i for i in all_imports() if i.module.startswith("pullback.schedule."))
    assert not found, " -> ".join(found)


def test_the_check_sees_a_circle():
    steps = [Import("a", "b", 1), Import("b", "c", 1), Import("c", "b", 1), Import("a", "d", 1)]
    assert circle(steps) == ["b", "c"] and circle(steps[:2] + steps[3:]) == []
