"""Exported libraries for other machines, in emulators: ten losses as the trainer's, and checkpoints that it reads.

It takes ziglang and qemu-user: see tools.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pullback.deploy.export import flags
from pullback.deploy.targets import PLATFORMS
from tests.deploy.models import BATCH, MODELS, batches
from tests.deploy.tools import need_program, need_zig

DRIVER = Path(__file__).with_name("driver.c")
EMULATORS = {
    "aarch64": ("qemu-aarch64",),
    "armv7": ("qemu-arm",),
    "riscv64": ("qemu-riscv64",),
    "riscv64-v": ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    "x86-64": ("qemu-x86_64", "-cpu", "qemu64"),  # the program for SSE2
    "x86-64-v3": ("qemu-x86_64", "-cpu", "max"),  # for AVX2
}

# Emulation takes long: one model on every machine, and every model on two kinds of vectors.
FEWER = {"lenet": ("aarch64", "armv7", "x86-64-v3"), "gpt": ("aarch64", "riscv64", "x86-64")}
CASES = [(name, machine) for name in MODELS for machine in FEWER.get(name, EMULATORS)]


@pytest.mark.slow
@pytest.mark.parametrize("name, machine", CASES)
def test_ten_losses_on_another_machine(name: str, machine: str, tmp_path: Path) -> None:
    need_zig()
    need_program(EMULATORS[machine][0])
    platform = PLATFORMS[machine.removesuffix("-v3")]
    trainer, data = MODELS[name]()
    dist = tmp_path / "dist"
    trainer.export(dist, platform.name, name, batch_size=BATCH)
    (tmp_path / "batches").write_bytes(b"".join(a.tobytes() for batch in batches(data) for a in batch))
    x, y = batches(data)[0]
    defines = {"LIB": name, "HEADER": f'"{name}.h"', "STEPS": "10", "X_BYTES": str(x.nbytes), "Y_BYTES": str(y.nbytes)}
    system = platform.system.partition(".")[0].replace("gnueabihf", "musleabihf").replace("gnu", "musl")
    # The library is for glibc; qemu has none, so its C source is compiled with the driver for a static program.
    zig = [sys.executable, "-m", "ziglang"]
    code = shutil.copy(dist / f"lib{name}.a", tmp_path / "code.a")
    subprocess.run([*zig, "ar", "d", str(code), f"{name}.o"], check=True)
    command = [
        *zig, "cc", "-target", system, "-static", *flags(platform), "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        *(f"-D{key}={value}" for key, value in defines.items()), f"-I{dist}", str(DRIVER), str(dist / f"{name}.c"),
        str(code), "-lm", "-o", str(tmp_path / "driver"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    checkpoint = tmp_path / "device.safetensors"
    run = [*EMULATORS[machine], str(tmp_path / "driver"), str(tmp_path / "batches"), "1", str(checkpoint)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split()]
    expected = [float(np.asarray(trainer.update(*batch))) for batch in batches(data)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    other, _ = MODELS[name](seed=5)
    other.load(checkpoint)  # of the fifth step
    assert other.steps == 5
    on = [float(np.asarray(other.update(*batch))) for batch in batches(data)[5:]]
    np.testing.assert_allclose(on, expected[5:], rtol=1e-5)
