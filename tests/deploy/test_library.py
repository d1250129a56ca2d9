"""What an exported library is to a C compiler and a linker: no warnings, no names but its own, the same bytes again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.deploy.header import check_name
from pullback.deploy.source import check_symbols
from pullback.ir.errors import ArgumentError, UserError
from tests.deploy.exported import STRICT, Instance, compiler, run_command

ROOT = Path(__file__).resolve().parents[2]
X = np.zeros((1, 6), np.float32)
FUNCTIONS = """
    add_parameters bytes checkpoint_bytes close describe epochs evaluate find get get_hyperparameter get_parameters init
    last_error load parameter_count predict read reset run save seed set set_hyperparameter set_parameters status_text
    step steps write
""".split()  # noqa: SIM905
LIBS = ("-lm", "-pthread")


def small(**options):
    return pullback.trainer(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), "cross_entropy", "adam",
                            example=X, **options)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two libraries: ``first`` and ``second``, of other sizes."""
    path = tmp_path_factory.mktemp("libraries")
    small().export(path / "first", name="first", batch_size=4)
    pullback.trainer(nn.Linear(4, 2), "mse", "sgd", example=X[:, :4]).export(
        path / "second", name="second", batch_size=2
    )
    return path


def cxx() -> str:
    found = shutil.which(os.environ.get("CXX", "c++"))
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


# ---- warnings


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "second"])
def test_the_header_is_c99_and_the_sources_c11(folder, name, tmp_path):
    unit = tmp_path / "unit.c"
    unit.write_text(f'#include "{name}.h"\n#include "{name}.h"\nint main(void) {{ return {name}_bytes(1) == 0; }}\n')
    at = folder / name
    run_command(*compiler(), "-std=c99", *STRICT, f"-I{at}", "-c", unit, "-o", tmp_path / "unit.o")
    run_command(*compiler(), "-std=c11", "-D_GNU_SOURCE", *STRICT, "-c", f"{name}.c", "-o", tmp_path / "made.o", cwd=at)
    run_command(*compiler(), "-std=c11", *STRICT, f"-I{at}", "-c", at / "example" / "main.c", "-o", tmp_path / "main.o")
    run_command(*compiler(), tmp_path / "unit.o", at / f"lib{name}.a", *LIBS, "-o", tmp_path / "unit")
    run_command(tmp_path / "unit")


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_headers_are_cpp(folder, standard, tmp_path):
    """Both in one file, used in all of their functions."""
    unit = tmp_path / "unit.cpp"
    unit.write_text(CPP)
    more = ("-Wshadow", "-Wconversion", "-Wold-style-cast")
    flags = (f"-std={standard}", *STRICT, *more, f"-I{folder / 'first'}", f"-I{folder / 'second'}")
    archives = [folder / name / f"lib{name}.a" for name in ("first", "second")]
    run_command(cxx(), *flags, unit, *archives, *LIBS, "-o", tmp_path / "unit")
    assert run_command(tmp_path / "unit", cwd=tmp_path).split() == [
        "2",
        "4",
        "1",
        "input",
        "has",
        "3",
        "elements,",
        "24",
        "are",
        "wanted",
    ]


CPP = """
#include "first.hpp"
#include "second.hpp"

#include <array>
#include <cstdio>
#include <vector>

int main()
{
    second_cpp::model other(2);
    const std::array<float, 8> x = {1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<float> wanted(4), found(4);
    other.step(x, wanted);
    other.predict(x, found);
    const second_column columns[] = {{x.data(), SECOND_FLOAT32}, {wanted.data(), SECOND_FLOAT32}};
    second_run_options options = {};
    options.steps = 1;
    other.run(columns, 2, options);
    std::printf("%d ", static_cast<int>(other.steps()));

    first_cpp::model model;
    std::vector<float> rows(4 * 6, 0.5f);
    const std::vector<std::int64_t> labels = {0, 1, 2, 0};
    model.seed(3);
    for (int i = 0; i < 4; i++)
        model.step(rows, labels);
    model.save("first.safetensors");
    first_cpp::model again = std::move(model);
    first_cpp::model loaded;
    loaded.load("first.safetensors");
    const first_column data[] = {{rows.data(), FIRST_FLOAT32}, {labels.data(), FIRST_INT64}};
    std::printf("%d %d ", static_cast<int>(loaded.steps()), loaded.evaluate(data, 4) == again.evaluate(data, 4));
    try {
        loaded.step(std::vector<float>(3), labels);
    } catch (const first_cpp::error &error) {
        std::printf("%s", error.what());
        return error.status == FIRST_ERROR_ARGUMENT ? 0 : 1;
    }
    return 1;
}
"""


# ---- symbols


def defined(path: Path, *options: str) -> set[str]:
    lines = run_command("nm", "--defined-only", *options, path).splitlines()
    return {line.split()[-1] for line in lines if len(line.split()) == 3}


def test_only_its_own_names_are_defined(folder):
    archive = defined(folder / "first" / "libfirst.a", "-g")
    assert all(re.match("first_", name) for name in archive), archive
    interface = {f"first_{name}" for name in FUNCTIONS}
    assert interface <= archive
    assert defined(folder / "first" / "libfirst.so", "-D") == interface


@pytest.mark.slow
def test_it_needs_the_c_library_and_threads_alone(folder):
    lines = run_command("nm", "-D", "--undefined-only", folder / "first" / "libfirst.so").splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    assert not {n for n in names if "alloc" in n or n in ("free", "printf", "exit", "abort")}, names
    needed = re.findall(r"NEEDED.*\[(.+)\]", run_command("readelf", "-d", folder / "first" / "libfirst.so"))
    assert {n.partition(".")[0].partition("-")[0] for n in needed} <= {"libc", "libm", "libpthread", "ld"}, needed


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "first.h"
#include "second.h"

static _Alignas(64) unsigned char memory[2][1 << 20];

int main(void)
{
    first *a;
    second *b;
    const float x[24] = {1, 2, 3}, y[4] = {0.5f};
    const int64_t labels[4] = {0, 1, 2, 1};
    double loss[2];
    if (first_init(memory[0], sizeof memory[0], 1, &a) != FIRST_OK ||
        second_init(memory[1], sizeof memory[1], 2, &b) != SECOND_OK)
        return 1;
    for (int i = 0; i < 3; i++)
        if (first_step(a, x, labels, &loss[0]) != FIRST_OK || second_step(b, x, y, &loss[1]) != SECOND_OK)
            return 2;
    printf("%.9g %.9g\\n", loss[0], loss[1]);
    first_close(a);
    second_close(b);
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a", "so"])
def test_two_libraries_in_one_program(folder, kind, tmp_path):
    (tmp_path / "main.c").write_text(MAIN)
    found = [folder / name / f"lib{name}.{kind}" for name in ("first", "second")]
    includes = [f"-I{path.parent}" for path in found]
    paths = [f"-Wl,-rpath,{path.parent}" for path in found]
    run_command(
        *compiler(), "-std=c11", *STRICT, "main.c", *includes, *found, *paths, *LIBS, "-o", "both", cwd=tmp_path
    )
    x = np.zeros(24, np.float32)
    x[:3] = 1, 2, 3
    with Instance(folder / "first") as first, Instance(folder / "second") as second:
        losses = [
            (first.step(x, np.array([0, 1, 2, 1])), second.step(x, np.array([0.5, 0, 0, 0], np.float32)))
            for _ in range(3)
        ]
    assert [float(v) for v in run_command(tmp_path / "both").split()] == pytest.approx(losses[-1], rel=1e-8)


@pytest.mark.slow
def test_archives_become_part_of_a_shared_library(folder, tmp_path):
    archives = [folder / name / f"lib{name}.a" for name in ("first", "second")]
    output = tmp_path / "libboth.so"
    whole = ["-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive"]
    run_command(*compiler(), "-shared", "-Wl,-z,defs", "-Wl,-z,text", *whole, *LIBS, "-o", output)
    assert defined(output, "-D") >= {"first_step", "second_step"}
    assert not {n for n in defined(output, "-D") if "__" in n}


# ---- the same bytes


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.deploy.test_library import small
small(seed=5).export(sys.argv[1], name="first", batch_size=4)
"""


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path):
    for place, seed in (("here", "1"), ("there/deeper", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        program = PROGRAM.format(root=str(ROOT))
        run_command(sys.executable, "-c", program, tmp_path / place, env=environment)
    here, there = ({str(p.relative_to(at)): p.read_bytes() for p in at.rglob("*") if p.is_file()}
                   for at in (tmp_path / "here", tmp_path / "there" / "deeper"))  # fmt: skip
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


def test_the_manifest_has_sums_of_all_files(folder):
    at = folder / "first"
    manifest = json.loads((at / "manifest.json").read_text())
    files = {str(p.relative_to(at)): p for p in at.rglob("*") if p.is_file() and p.name != "manifest.json"}
    assert manifest["files"].keys() == files.keys()
    for name, path in files.items():
        data = path.read_bytes()
        assert manifest["files"][name] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


# ---- names


@pytest.mark.parametrize(
    "name", ["", "9x", "a-b", "größe", "int", "class", "self", "memory", "stdin", "pb_x", "x", 3, None]
)
def test_names_that_c_does_not_take(name):
    with pytest.raises(ArgumentError) as error:
        check_name(name)
    assert 'name="' in str(error.value)


@pytest.mark.parametrize("name", ["copy", "compare", "check", "programs"])
def test_names_that_the_runtime_has(name):
    with pytest.raises(ArgumentError, match="of its own, so no library can be called"):
        check_symbols(name)
    with pytest.raises(ArgumentError, match="of its own"):
        small().export("never", name=name)


class Odd(nn.Module):
    """Inputs with names that C, C++ and the header have already."""

    def __init__(self) -> None:
        self.out = nn.Linear(8, 2)

    def forward(self, self_, i, batch, output, model, std, check, X):
        from pullback.nn import functional as F

        return self.out(F.cat([self_, i, batch, output, model, std, check, X], dim=1))


@pytest.mark.parametrize("name", ["model", "error", "span", "expect", "batch", "digits_2"])
def test_names_of_libraries_and_inputs_do_not_clash(name, tmp_path):
    given = tuple(np.zeros((1, 1), np.float32) for _ in range(8))
    pullback.trainer(Odd(), "mse", "sgd", example=given).export(tmp_path / "out", name=name, batch_size=2)
    at = tmp_path / "out"
    run_command(*compiler(), "-std=c99", *STRICT, "-x", "c", "-fsyntax-only", at / f"{name}.h")
    for standard in ("c++17", "c++20"):
        unit = f'#include "{name}.hpp"\nint main() {{ return 0; }}\n'
        (tmp_path / "unit.cpp").write_text(unit)
        run_command(cxx(), f"-std={standard}", *STRICT, f"-I{at}", "-c", tmp_path / "unit.cpp", "-o", tmp_path / "o")
    program = [at / "example" / "main.c", f"-I{at}", at / f"lib{name}.a", *LIBS]
    run_command(*compiler(), "-std=c11", *STRICT, *program, "-o", tmp_path / "program")
    assert run_command(tmp_path / "program", cwd=tmp_path).startswith("step 1: loss ")


# ---- what is refused


def test_a_folder_with_other_files(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="no folder that an export has made"):
        small().export(tmp_path / "out", name="first")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("text", ['{"name": "an app of the web"}', "[]", '{"pullback": 1}', "not JSON", '"pullback"'])
def test_a_folder_with_another_manifest(text, tmp_path):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match="no folder that an export has made"):
        small().export(tmp_path, name="first")
    assert (tmp_path / "manifest.json").read_text() == text


def test_what_others_have_put_into_an_export_stays(tmp_path):
    small().export(tmp_path, name="first")
    (tmp_path / "example" / "mine.c").write_text("int x;")
    (tmp_path / "build").mkdir()
    (tmp_path / "second.h").write_text("mine, too")
    small().export(tmp_path, name="first", batch_size=4)
    assert json.loads((tmp_path / "manifest.json").read_text())["batch"] == 4
    with pytest.raises(UserError, match=r"has a second\.h that no export has made"):
        small().export(tmp_path, name="second")
    assert (tmp_path / "libfirst.a").exists() and (tmp_path / "second.h").read_text() == "mine, too"
    assert (tmp_path / "example" / "mine.c").read_text() == "int x;" and (tmp_path / "build").is_dir()


def test_a_manifest_that_names_files_elsewhere(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text('{"pullback": "1", "files": {"../thesis.tex": {}}}')
    with pytest.raises(UserError, match="no folder that an export has made"):
        small().export(tmp_path / "out", name="first")
    assert (tmp_path / "thesis.tex").exists()


def test_an_export_replaces_an_earlier_one(tmp_path):
    small().export(tmp_path, name="second")
    made = small().export(tmp_path, name="first", batch_size=4)
    assert not (tmp_path / "libsecond.a").exists()
    assert {p.name for p in tmp_path.iterdir()} >= {"libfirst.a", "first.h", "manifest.json"}
    assert made.folder == tmp_path and made.name == "first"
    assert "libfirst.a" in made._repr_html_() and "first for host" in str(made.table())


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("pullback.deploy.toolchain._zig", lambda: None)
    with pytest.raises(UserError, match="needs a C compiler, and there is none") as error:
        small().export(tmp_path / "out", name="first")
    assert "pullback[deploy]" in str(error.value) and not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="a C compiler for Linux on 64-bit Arm"):
        small().export(tmp_path / "out", "aarch64", "first")


@pytest.mark.parametrize("cc", ["no-such-compiler", "false"])
def test_a_compiler_that_fails(cc, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", cc)
    with pytest.raises(UserError, match=cc):
        small().export(tmp_path / "out", name="first")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments(tmp_path):
    trainer = small()
    for problem, arguments in {
        "there is no platform 'arch64': did you mean aarch64?": {"target": "arch64"},
        "batch_size must be an int ≥ 1, got 0": {"batch_size": 0},
        "batch_size must be an int ≥ 1, got True": {"batch_size": True},
        "there is no function stop": {"functions": ("step", "stop")},
        "a library needs predict or predict_one": {"functions": "step"},
        "sizes must be a dict": {"sizes": 3},
        "sizes must be": {"sizes": {"t": 0}},
    }.items():
        with pytest.raises(UserError) as error:
            trainer.export(tmp_path / "out", **{"name": "first", **arguments})
        assert problem in str(error.value), error.value
    assert list(tmp_path.iterdir()) == []
