"""The C runtime of exported trainers under sanitizers, and an exported library under valgrind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.exported import STRICT, compiler, run_command
from tests.deploy.models import BATCH, MODELS
from tests.deploy.tools import need_program, need_zig

HERE = Path(__file__).parent
IMAGES = {"mlp": 64, "lenet": 784}


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads(sanitizer, tmp_path):
    """Two instances at once, and two threads in one."""
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-pthread", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    command = [*compiler(), *flags, str(empty), "-o", str(tmp_path / "empty")]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip(f"the C compiler has no -fsanitize={sanitizer}")
    run_command(*compiler(), *flags, *STRICT, HERE / "threads.c", "-lm", "-o", tmp_path / "threads")
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", "LD_PRELOAD": ""}
    assert run_command(tmp_path / "threads", env=environment) == "all is well\n"


@pytest.fixture(scope="module", params=IMAGES)
def everything(request, tmp_path_factory) -> Path:
    """The program that calls all functions of a library for x86-64. Valgrind knows no AVX-512, and not all of AVX2 (in
    LeNet's code, the store of VMOVQ to a register): LeNet's is told that the CPU has neither."""
    need_zig()
    need_program("valgrind")
    name, folder = request.param, tmp_path_factory.mktemp("valgrind")
    MODELS[name]()[0].export(folder, "x86-64", name, batch_size=BATCH)
    source, begin = folder / f"{name}.c", "static unsigned pb_cpu_abilities(void)\n{\n"
    text = source.read_text()
    assert text.count(begin) == 1
    source.write_text(text.replace(begin, f"{begin}    return 0;\n") if name == "lenet" else text)
    run_command("ar", "d", f"lib{name}.a", f"{name}.o", cwd=folder)
    defines = [f"-DLIB={name}", f'-DHEADER="{name}.h"', f"-DIMAGE={IMAGES[name]}", "-DCLASSES=10"]
    defines += [f"-D{dtype}={name.upper()}_{dtype}" for dtype in ("FLOAT32", "INT64")]
    options = ["-std=c11", "-D_GNU_SOURCE", "-g", "-pthread", *STRICT, *defines, f"-I{folder}"]
    program = folder / "everything"
    run_command(*compiler(), *options, HERE / "everything.c", source, folder / f"lib{name}.a", "-lm", "-o", program)
    return program


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the library is for x86-64")
@pytest.mark.parametrize("threads", [1, 2])
def test_valgrind(everything, threads, tmp_path):
    """No read or write beside a block, no value that nobody wrote, no leak."""
    program = [str(everything), str(threads), str(tmp_path / "checkpoint")]
    options = ["--error-exitcode=9", "--leak-check=full", "--fair-sched=yes", "--quiet"]
    found = run_command(need_program("valgrind"), *options, *program, timeout=300)
    loss, score = map(float, found.split())
    expected = run_command(*program)
    assert [loss, score] == pytest.approx([float(value) for value in expected.split()], rel=1e-4)
