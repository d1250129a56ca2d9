"""Adds the C runtime to what pyproject.toml says: one shared library, free of Python's headers, inside the package.

The compiler is $CC, or the system's cc, or, where there is none, the one in the package `ziglang`, which the build then
fetches. `make wheels` has it compile for other machines. On Windows the package is built without the runtime, which
needs POSIX threads.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("pullback/runtime/native")
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"  # as in pullback/runtime/library.py
FLAGS = ["-O3", "-std=c11", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra"]


def system_compiler():
    """The command of the C compiler as a list, or None."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    return ["cc"] if shutil.which("cc") else None


class build_runtime(build_ext):  # noqa: N801 (setuptools names commands so)
    """Compiles the file that includes all others; setuptools places the result, in a wheel or in the checkout."""

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split("."))) + SUFFIX

    def build_extension(self, extension):
        compiler = system_compiler() or [sys.executable, "-m", "ziglang", "cc"]
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.{os.getpid()}")  # a running program may have the old one mapped
        self.spawn([*compiler, *FLAGS, *extension.sources, "-o", str(fresh)])
        fresh.replace(target)


class platform_wheel(bdist_wheel):  # noqa: N801
    """The library depends on the platform, but not on the version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


runtime = Extension(
    "pullback.runtime.native.libpullback_rt",
    sources=[str(NATIVE / "one.c")],
    depends=[str(path) for path in sorted(NATIVE.glob("*.[ch]"))],
)
setup(
    ext_modules=[] if sys.platform == "win32" else [runtime],
    cmdclass={"build_ext": build_runtime, "bdist_wheel": platform_wheel},
    setup_requires=[] if system_compiler() or sys.platform == "win32" else ["ziglang"],
)
