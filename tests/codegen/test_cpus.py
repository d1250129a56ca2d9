"""The table of CPUs: its figures make sense, the operating system's sizes replace those of caches, and nothing else
asks what a CPU is called."""

from __future__ import annotations

import ast
import dataclasses
import math
from pathlib import Path

import pytest

import pullback
from pullback.codegen import caches, cpus, host
from pullback.codegen.caches import Caches, from_sysctl, from_sysfs, host_caches
from pullback.codegen.cpus import CPUS, figures_of
from pullback.driver.pipeline import machine_of
from pullback.schedule.group import Machine
from pullback.target import Target
from pullback.tir.figures import Figures

DECIDING = ("second_bytes", "cached_bytes")
MIB = 1 << 20


@pytest.mark.parametrize("name", [*CPUS, "of no name"])
def test_figures_make_sense(name):
    figures = figures_of(name)
    numbers = dataclasses.asdict(figures).values()
    assert all(isinstance(n, (int, float)) and math.isfinite(n) and n > 0 for n in numbers)
    assert figures.first_cache < figures.second_cache <= figures.last_cache
    assert figures.first_line_ns <= figures.second_line_ns <= figures.last_line_ns <= figures.memory_line_ns
    assert figures.first_cache < figures.tlb_reach and figures.spill_ns < figures.second_line_ns
    assert (
        figures.second_bytes <= max(figures.second_cache, Figures.second_bytes)
        and figures.cached_bytes < figures.last_cache * 1.5
    )
    assert 0.05 < figures.vector_fma_ns < 1  # 1 to 20 vectors a nanosecond
    assert figures.line_ns(1) == figures.first_line_ns and figures.line_ns(1 << 40) == figures.memory_line_ns
    assert figures.memory_ns(64 * 1000) == pytest.approx(1000 * figures.line_ns(64 * 1000))


@pytest.mark.parametrize("name", CPUS)
def test_llvm_knows_the_names(name):
    arch = "aarch64" if name.startswith(("neoverse", "apple")) else "x86_64"
    assert Target(f"llvm -mtriple={arch}-linux-gnu -mcpu={name}").abilities.figures == CPUS[name]


@pytest.mark.parametrize(
    ("name", "features", "second", "cached", "pair_dot"),
    [
        ("znver3", "", 512 << 10, 16 * MIB, False), ("znver4", "", MIB, 16 * MIB, True),
        ("znver5", "", MIB, 16 * MIB, True),
        ("emeraldrapids", "", 2 * MIB, 4 * MIB, False), ("graniterapids", "", 2 * MIB, 8 * MIB, False),
        ("haswell", "", 512 << 10, 8 * MIB, False), ("cooperlake", "", 512 << 10, 8 * MIB, True),
        ("cooperlake", "+amx-tile", 2 * MIB, 8 * MIB, False), ("znver4", "+amx-tile", 2 * MIB, 16 * MIB, False),
        ("x86-64-v4", "", 512 << 10, 8 * MIB, False),
    ],
)  # fmt: skip
def test_what_decides_depends_on_the_target_alone(name, features, second, cached, pair_dot):
    option = f" -mattr={features}" if features else ""
    machine = machine_of(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}{option}"))
    assert (machine.second_bytes, machine.cached_bytes, machine.pair_dot) == (second, cached, pair_dot)


def asked(monkeypatch: pytest.MonkeyPatch, answer: Caches) -> list[str]:
    """What the operating system is asked from now on, as if nobody had asked before."""
    questions: list[str] = []

    def ask(platform: str) -> Caches:
        questions.append(platform)
        return answer

    monkeypatch.setattr(cpus, "host_caches", ask)
    cpus.this_machines_caches.cache_clear()
    host.abilities.cache_clear()
    return questions


@pytest.fixture
def forget():
    yield
    cpus.this_machines_caches.cache_clear()
    host.abilities.cache_clear()


@pytest.mark.usefixtures("forget")
def test_the_system_is_asked_for_this_machine_alone(monkeypatch):
    """Its answer changes the sizes of caches, and nothing that decides."""
    usual = dataclasses.asdict(Target("llvm").abilities.figures)
    questions = asked(monkeypatch, Caches(24 << 10, 3 * MIB, 5 * MIB))
    other = "cortex-a72" if Target("llvm").arch == "aarch64" else "znver3"
    arch = "aarch64" if other == "cortex-a72" else "x86_64"
    assert Target(f"llvm -mtriple={arch}-linux-gnu -mcpu={other}").abilities.figures == figures_of(other)
    assert not questions
    found = dataclasses.asdict(Target("llvm").abilities.figures)
    assert len(questions) == 1
    sizes = {"first_cache": 24 << 10, "second_cache": 3 * MIB, "last_cache": 5 * MIB}
    assert found == usual | sizes
    assert machine_of(Target("llvm")).second_cache == 3 * MIB


@pytest.mark.usefixtures("forget")
def test_what_the_system_does_not_say_is_the_tables(monkeypatch):
    asked(monkeypatch, Caches())
    assert Target("llvm").abilities.figures == figures_of(host.cpu(), host.features())
    assert Caches(second=7 * MIB).instead_of(Figures()) == dataclasses.replace(Figures(), second_cache=7 * MIB)


# -- Linux


def tree(directory: Path, *found: tuple[str, str, str]) -> Path:
    """Files of one core's caches: (level, type, size) each."""
    for number, values in enumerate(found):
        index = directory / f"index{number}"
        index.mkdir()
        for name, text in zip(("level", "type", "size"), values, strict=True):
            (index / name).write_text(f"{text}\n")
    return directory


def test_a_cores_files(tmp_path):
    full = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "60M"))
    assert from_sysfs(tree(tmp_path, *full)) == Caches(48 << 10, 2 * MIB, 60 * MIB)


def test_a_core_without_a_third_cache(tmp_path):
    found = from_sysfs(tree(tmp_path, ("1", "Instruction", "64K"), ("1", "Data", "64K"), ("2", "Unified", "1024K")))
    assert found == Caches(64 << 10, MIB, MIB)


@pytest.mark.parametrize("size", ["", "0K", "-4K", "many", "12 K", "99999999999G", "3", "1e9K"])
def test_what_is_no_size_is_not_told(tmp_path, size):
    assert from_sysfs(tree(tmp_path, ("1", "Data", size), ("2", "Unified", "512K"))) == Caches(
        None, 512 << 10, 512 << 10
    )


def test_files_that_are_not_there_or_no_text(tmp_path):
    assert from_sysfs(tmp_path / "nowhere") == from_sysfs(tmp_path) == Caches()
    (tmp_path / "index0").mkdir()
    assert from_sysfs(tmp_path) == Caches()
    (tmp_path / "index0" / "level").write_bytes(b"\xff\xfe")
    (tmp_path / "index0" / "size").mkdir()
    assert from_sysfs(tmp_path) == Caches()


# -- macOS and others


def test_sysctl_of_a_fast_core():
    answers = {
        "hw.perflevel0.l1dcachesize": "131072", "hw.perflevel0.l2cachesize": "12582912", "hw.l1dcachesize": "65536",
        "hw.l2cachesize": "4194304",
    }  # fmt: skip
    assert from_sysctl(lambda name: answers.get(name, "")) == Caches(128 << 10, 12 * MIB, 12 * MIB)
    older = {"hw.l1dcachesize": "32768", "hw.l2cachesize": "262144", "hw.l3cachesize": "6291456"}
    assert from_sysctl(lambda name: older.get(name, "")) == Caches(32 << 10, 256 << 10, 6 * MIB)
    assert from_sysctl(lambda name: "") == Caches()


def test_platforms(monkeypatch, tmp_path):
    monkeypatch.setattr(caches, "SYSFS", tree(tmp_path, ("1", "Data", "32K")))
    assert host_caches("linux") == Caches(first=32 << 10)
    monkeypatch.setattr(caches, "_sysctl", lambda name: "65536" if name == "hw.l1dcachesize" else "")
    assert host_caches("darwin") == Caches(first=64 << 10)
    assert host_caches("win32") == host_caches("emscripten") == Caches()


def test_a_missing_sysctl_says_nothing(monkeypatch):
    def run(*args: object, **options: object) -> None:
        raise FileNotFoundError("/usr/sbin/sysctl")

    monkeypatch.setattr("subprocess.run", run)
    assert host_caches("darwin") == Caches()


# -- one table


def test_nothing_else_asks_for_a_cpus_name():
    """Platforms of exported libraries say for which CPU code is made: they ask nothing."""
    root = Path(pullback.__file__).parent
    for path in {*root.rglob("*.py")} - {Path(cpus.__file__), root / "deploy" / "targets.py"}:
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in CPUS):
            strings = {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)}
            assert not strings & CPUS.keys(), path


def test_a_machine_has_all_figures():
    """The default is a nominal one, and the driver hands all of a target's on."""
    assert all(getattr(Machine(), f.name) == f.default for f in dataclasses.fields(Figures))
    figures = Target("llvm").abilities.figures
    machine = machine_of(Target("llvm"))
    assert {f.name: getattr(machine, f.name) for f in dataclasses.fields(Figures)} == dataclasses.asdict(figures)


@pytest.mark.parametrize(
    ("options", "gflops"),
    [({}, 192), ({"vector_bytes": 32}, 96), ({"fma": False}, 96), ({"vector_bytes": 16, "vectors": False}, 12)],
)
def test_the_peak_follows_from_the_units(options, gflops):
    """Two multiply-adds a cycle at 3 GHz; half as many with two instructions each, and number by number a quarter."""
    machine = Machine(**options)
    assert 2 / machine.multiply_add_ns(machine.vector_bytes // 4) == pytest.approx(gflops)
    assert 2 / machine.multiply_add_ns(machine.vector_bytes // 8) == pytest.approx(
        gflops / (1 if "vectors" in options else 2)
    )


@pytest.mark.parametrize(("registers", "few"), [(8, True), (15, True), (16, True), (31, False), (32, False)])
def test_few_registers(registers, few):
    assert Machine(64, registers).has_few_registers is few


@pytest.mark.parametrize(("vector_bytes", "narrow"), [(16, True), (32, True), (64, False)])
def test_narrow_vectors(vector_bytes, narrow):
    assert Machine(vector_bytes).has_narrow_vectors is narrow
