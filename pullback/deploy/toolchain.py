"""The C compiler, archiver and linker for a platform."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pullback.deploy.targets import Platform
from pullback.ir.errors import CompileError, UserError


@dataclass(frozen=True)
class Toolchain:
    """Commands: ``cc`` compiles and links, ``ar`` makes archives."""

    cc: tuple[str, ...]
    ar: tuple[str, ...]
    name: str

    @staticmethod
    def of(platform: Platform) -> Toolchain:
        """``$CC`` (with ``$AR``) or the system's compiler for this machine, GNU's where the platform names it, else the
        one of the package ziglang, which knows all others. Raises a UserError where there is none."""
        chosen = os.environ.get("CC") if platform.name == "host" else None
        if chosen:
            command = tuple(shlex.split(chosen))
            return Toolchain(command, tuple(shlex.split(os.environ.get("AR", "ar"))), chosen)
        if platform.name == "host" and shutil.which("cc") and shutil.which("ar"):
            return Toolchain(("cc",), ("ar",), "cc")
        if platform.tools:
            return _gnu(platform)
        zig = _zig()
        if zig is None:
            what = "a C compiler" if platform.name == "host" else f"a C compiler for {platform.about}"
            raise UserError(
                f"a library for {platform.name} needs {what}, and there is none",
                hint='pip install "pullback[deploy]" brings one for every platform',
            )
        target = ("-target", platform.system) if platform.system else ()
        return Toolchain((*zig, "cc", *target), (*zig, "ar"), "zig")

    def compile(self, sources: Sequence[str], output: str, flags: Sequence[str], folder: Path) -> None:
        """Compile C files to one object."""
        self.run([*self.cc, "-c", *flags, *sources, "-o", output], folder)

    def archive(self, objects: Sequence[str], output: str, folder: Path) -> None:
        """A static library: with no times or users in it, so equal objects give equal bytes."""
        (folder / output).unlink(missing_ok=True)
        self.run([*self.ar, "rcsD", output, *objects], folder)

    def link(self, arguments: Sequence[str], folder: Path) -> None:
        """Run the compiler as a linker."""
        self.run([*self.cc, *arguments], folder)

    def run(self, command: Sequence[str], folder: Path) -> None:
        """Run a command; a CompileError with what it says where it fails."""
        environment = dict(os.environ, SOURCE_DATE_EPOCH="0", ZERO_AR_DATE="1")
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            raise CompileError(f"{command[0]} cannot be run: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise CompileError(f"{shlex.join(command)} failed with status {done.returncode}:\n{said}")


def _gnu(platform: Platform) -> Toolchain:
    gcc = f"{platform.tools}gcc"
    if not shutil.which(gcc):
        raise UserError(
            f"a library for {platform.name} needs {gcc} with the headers of newlib, and there is none",
            hint="Arm's GNU Toolchain has both; Debian's packages are gcc-arm-none-eabi and libnewlib-arm-none-eabi",
        )
    return Toolchain((gcc,), (f"{platform.tools}ar",), gcc)


def _zig() -> tuple[str, ...] | None:
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang")
    found = shutil.which("zig")
    return (found,) if found else None
