"""The machines that code is tried on: what is compiled for, what links it, and what runs it here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


class ToolMissing(Exception):
    """A tool is not installed; the message says which, and where it comes from."""


@dataclass(frozen=True)
class Machine:
    """``spec`` is a Target's text, ``system`` what zig calls the system that programs are linked for, ``run`` the
    command that runs them."""

    spec: str
    system: str
    run: tuple[str, ...]


_RISCV = "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+m,+a,+f,+d,+c"
_RVV = ("qemu-riscv64", "-cpu")

MACHINES = {
    "sse2": Machine("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", "x86_64-linux-musl", ("qemu-x86_64",)),
    "avx2": Machine(
        "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", "x86_64-linux-musl", ("qemu-x86_64", "-cpu", "max")
    ),
    "neon": Machine("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "aarch64-linux-musl", ("qemu-aarch64",)),
    "bf16": Machine(
        "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+bf16", "aarch64-linux-musl", ("qemu-aarch64", "-cpu", "max")
    ),
    "armv7": Machine(
        "llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon", "arm-linux-musleabihf", ("qemu-arm",)
    ),
    "rvv": Machine(_RISCV + ",+v", "riscv64-linux-musl", (*_RVV, "rv64,v=true,vlen=128,vext_spec=v1.0")),
    "rvv256": Machine(_RISCV + ",+v,+zvl256b", "riscv64-linux-musl", (*_RVV, "rv64,v=true,vlen=256,vext_spec=v1.0")),
    "rv64": Machine(_RISCV, "riscv64-linux-musl", ("qemu-riscv64",)),
    "wasm": Machine("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", "wasm32-wasi", ("node",)),
    "wasm-relaxed": Machine(
        "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+relaxed-simd", "wasm32-wasi", ("node",)
    ),
}


def zig() -> list[str]:
    """The C compiler that knows all systems."""
    found = shutil.which("zig")
    if found:
        return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang"]
    raise ToolMissing("zig is not installed: pip install ziglang")


def runner(machine: Machine) -> list[str]:
    """The command that runs a program, without the program."""
    name, *rest = machine.run
    found = shutil.which(name) or shutil.which(f"{name}-static")
    if found is None:
        package = "nodejs" if name == "node" else "qemu-user"
        raise ToolMissing(f"{name} is not installed: apt-get install {package}")
    return [found, *relaxed_flags(found), str(FOLDER / "wasi.mjs")] if name == "node" else [found, *rest]


def relaxed_flags(node: str) -> list[str]:
    """What node has to be told so that it knows WebAssembly's relaxed SIMD: from version 21 on, nothing."""
    flag = "--experimental-wasm-relaxed-simd"
    known = subprocess.run([node, "--v8-options"], capture_output=True, text=True, check=True).stdout
    return [flag] if flag in known else []


def link(machine: Machine, objects: Sequence[bytes], entries: Sequence[str], folder: Path) -> Path:
    """A program of the harness and these objects, whose host functions are its ``programs``."""
    lines = ["#include <stdint.h>", *(f"int32_t {e}(const void *, void *const *, void *, int64_t *);" for e in entries)]
    lines.append("const void *const programs[] = {" + ", ".join(f"(const void *){e}" for e in entries) + "};")
    (folder / "programs.c").write_text("\n".join(lines))
    names = []
    for k, code in enumerate(objects):
        (folder / f"{k}.o").write_bytes(code)
        names.append(f"{k}.o")
    command = [*zig(), "cc", "-target", machine.system, "-O1", "-w", "programs.c", str(FOLDER / "harness.c"), *names]
    if machine.system.startswith("wasm"):
        command += ["-Wl,-z,stack-size=8388608", "-Wl,--max-memory=4294901760"]
    else:
        command.append("-static")
    environment = dict(os.environ, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [*command, "-lm", "-o", "program"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"linking failed:\n{done.stderr[-2000:]}")
    return folder / "program"


def run(machine: Machine, program: Path, data: bytes) -> tuple[bytes, str]:
    """What the program writes when it reads ``data``, and what is wrong with how it ended ("": nothing)."""
    done = subprocess.run([*runner(machine), str(program)], input=data, capture_output=True, check=False, timeout=3600)
    problem = f"exit status {done.returncode}: {done.stderr.decode()[-500:]}" if done.returncode else ""
    return done.stdout, problem
