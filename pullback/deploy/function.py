"""A function of the graph IR as a C library: a shared library, a static one, and a header with one C function.

    int NAME(const float *x, const float *w, float *output);

It needs neither Python nor anything else than the C library. The code is for this machine's CPU, for the target's, or
for another platform.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback import codegen
from pullback.deploy.export import flags
from pullback.deploy.header import CTYPES, c_name, check_name
from pullback.deploy.source import functions_in, inlined_source, text
from pullback.deploy.targets import Platform
from pullback.deploy.targets import platform as platform_of
from pullback.deploy.toolchain import Toolchain
from pullback.driver.artifact import Layout
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.errors import ArgumentError, TargetError
from pullback.ir.module import IRModule
from pullback.relax.struct_info import flat_infos, symbolic_vars
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.files import path_of
from pullback.target import Target
from pullback.version import __version__

VERSION = 1  # of the table that loaders read


@dataclass(frozen=True)
class Slot:
    """A tensor that the function takes or gives."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    def __str__(self) -> str:
        return self.dtype + "".join(f"[{size}]" for size in self.shape)


@dataclass(frozen=True)
class FunctionLibrary:
    """A function that is planned for a target: all that its C files say.

    ``values`` are of inputs that have some from the beginning, by number: a loader finds them in the library.
    ``about`` is any JSON that a loader gets.
    """

    name: str
    target: Target
    plan: Plan
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    values: Mapping[int, np.ndarray]
    about: Mapping[str, Any]
    platform: Platform

    @staticmethod
    def of(
        module: IRModule,
        name: str,
        target: Target,
        names: Sequence[str],
        values: Mapping[int, np.ndarray] | None = None,
        about: Mapping[str, Any] | None = None,
        platform: str = "host",
    ) -> FunctionLibrary:
        """The function ``main`` of a module, whose flat inputs have these names.

        ``platform`` is one of those that trainers are exported for; of another than this machine, code is for what
        all of its CPUs can do, and ``target`` does not count.

        Raises ArgumentError where a size is not known, or ``name`` is no name of C, TargetError for a platform without
        threads of POSIX.
        """
        _check_name(name)
        where = platform_of(platform)
        if where.bare or where.shared == "dll":
            hint = "such as aarch64 or android; trainer.export makes libraries for the others"
            raise TargetError(f"a function is not exported for {platform}", hint=hint)
        if platform != "host":
            target = list(where.targets.values())[-1]
        main = module["main"]
        free = sorted({v.name for v in symbolic_vars(main.struct_info)})
        if free:
            hint = "give the parameters types whose sizes are numbers"
            raise ArgumentError(f"a C function has fixed sizes, and {', '.join(free)} is not known", hint=hint)
        plan = plan_function(prepare(module), "main", {}, target)
        layout = Layout.of(plan)
        results = len(flat_infos(main.ret_struct_info))
        own = _distinct([*names, *(["output"] if results == 1 else [f"output{k}" for k in range(results)])], name)
        inputs = tuple(Slot(n, i.shape, i.dtype) for n, i in zip(own, layout.inputs, strict=False))
        outputs = tuple(Slot(n, o.shape, o.dtype) for n, o in zip(own[len(inputs) :], layout.outputs, strict=True))
        return FunctionLibrary(name, target, plan, inputs, outputs, dict(values or {}), dict(about or {}), where)

    # ---- files

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write NAME.h, libNAME.so and libNAME.a into a folder, which is made where there is none; returns it.

        For Android, whose own compiler makes the library, the C sources take the place of the shared one.
        """
        path = Path(path_of(folder))
        path.mkdir(parents=True, exist_ok=True)
        sources = [f"{self.name}.c", "pullback_runtime.c"] if self.platform.sources else [self._shared]
        with self._built() as built:
            for file in (f"{self.name}.h", f"lib{self.name}.a", *sources):
                shutil.copyfile(Path(built) / file, path / file)
        return path

    @property
    def _shared(self) -> str:
        """The file name of the shared library."""
        return f"lib{self.name}.{self.platform.shared}"

    def write_shared(self, file: str | os.PathLike[str]) -> Path:
        """Write the shared library alone."""
        path = Path(path_of(file))
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._built() as built:
            data = (Path(built) / self._shared).read_bytes()
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(data)
        os.replace(beside, path)
        return path

    def _built(self) -> tempfile.TemporaryDirectory[str]:
        """A folder with all files."""
        where, made = self.platform, tempfile.TemporaryDirectory(prefix="pullback-function-")
        work, tools, name = Path(made.name), Toolchain.of(where), self.name
        host = {f"{name}__main": (self.plan.host, self.plan.kernels, self.plan.inner)}
        (work / f"{name}.h").write_text(self.header(), encoding="utf-8")
        (work / f"{name}.c").write_text(self.source(), encoding="utf-8")
        (work / "pullback_runtime.c").write_text(inlined_source("function_one.c"), encoding="utf-8")
        code = codegen.compile_object(codegen.emit_library(host, self.target), self.target)
        (work / "code.o").write_bytes(code)
        objects = ["code.o"] if where.sources else [f"{name}.o", "code.o"]
        if self._blocks():
            data = codegen.compile_object(codegen.emit_data(self._blocks(), self.target), self.target)
            (work / "data.o").write_bytes(data)
            objects.append("data.o")
        if not where.sources:
            tools.compile([f"{name}.c"], objects[0], [*flags(where), "-Wall", "-Wextra"], work)
        tools.archive(objects, f"lib{name}.a", work)
        if not where.sources:
            own = {
                "so": [f"-Wl,-soname,{self._shared}", "-Wl,-z,defs", "-Wl,--gc-sections", "-pthread", "-lm"],
                "dylib": [f"-Wl,-install_name,@rpath/{self._shared}"],
            }[where.shared]
            tools.link(["-shared", *objects, *own, "-o", self._shared], work)
        return made

    def _blocks(self) -> dict[str, bytes]:
        """Read-only data by symbol: constants, and the values of inputs."""
        arrays = {f"{self.name}__constant{k}": a for k, a in enumerate(self.plan.constants)}
        arrays |= {f"{self.name}__value{k}": a for k, a in self.values.items()}
        return {symbol: np.ascontiguousarray(a).tobytes() or b"\0" for symbol, a in arrays.items()}

    # ---- text

    def _parameters(self) -> str:
        taken = [f"const {CTYPES[s.dtype]} *{s.name}" for s in self.inputs]
        return ", ".join([*taken, *(f"{CTYPES[s.dtype]} *{s.name}" for s in self.outputs)]) or "void"

    def header(self) -> str:
        """The text of NAME.h."""
        name = self.name
        lines = [f" *   {s.name:<24} {'result' if s in self.outputs else 'input':<8} {s}" for s in self._slots()]
        return f"""/* {name}: a function that pullback {__version__} has compiled.
 *
{chr(10).join(lines)}
 *
 * Arrays lie in C order and need no alignment but their elements'. The function returns 0, or another number where it
 * fails: {name}_error says why, for the calling thread. Several threads may call it at a time.
 */
#ifndef PULLBACK_FUNCTION_{name.upper()}_H
#define PULLBACK_FUNCTION_{name.upper()}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

int {name}({self._parameters()});

/* Why the last call of this thread that failed did so; "" if none has. */
const char *{name}_error(void);

/* How many threads compute, to be set before the first call; as many as there are CPUs, unless it is said. */
int {name}_set_threads(int threads);

#ifdef __cplusplus
}}
#endif

#endif
"""

    def _slots(self) -> tuple[Slot, ...]:
        return self.inputs + self.outputs

    def source(self) -> str:
        """The text of NAME.c."""
        name, plan = self.name, self.plan
        symbols = self._blocks()
        constants = [s for s in symbols if "__constant" in s]
        values = ["NULL"] * len(self.inputs)
        for k in self.values:
            values[k] = f"{name}__value{k}"
        messages = ", ".join(map(text, plan.messages)) or "NULL"
        count = max(1, len(self.inputs) + len(plan.constants) + len(self.outputs))
        inputs = ", ".join(s.name for s in self.inputs) or "NULL"
        outputs = ", ".join(s.name for s in self.outputs) or "NULL"
        about: dict[str, Any] = {"name": name, "inputs": [s.described() for s in self.inputs]}
        about |= {"outputs": [s.described() for s in self.outputs], "about": dict(self.about)}
        heap = "#define PB_WITH_HEAP\n" if plan.needs_heap else ""
        return f"""/* {name}: generated by pullback; {name}.h documents the functions. */
{heap}#include "pullback_runtime.c"
#include "{name}.h"

#define EXPORTED __attribute__((visibility("default")))
#define PRIVATE __attribute__((visibility("hidden")))
{chr(10).join(f"extern PRIVATE const unsigned char {symbol}[];" for symbol in symbols)}
PRIVATE int32_t {name}__main(const pb_runtime *, void *const *, void *, int64_t *);

static void *const constants[] = {{{", ".join(f"(void *){c}" for c in constants) or "NULL"}}};
static const char *const messages[] = {{{messages}}};
static const pb_exported exported = {{
    {name}__main, constants, messages, {len(self.inputs)}, {len(constants)}, {len(self.outputs)},
    {Layout.of(plan).arena_bytes},
}};

static int call(const void *const *inputs, void *const *outputs)
{{
    void *buffers[{count}];
    return call_exported(&exported, buffers, inputs, outputs);
}}

EXPORTED int {name}({self._parameters()})
{{
    const void *const inputs[] = {{{inputs}}};
    void *const outputs[] = {{{outputs}}};
    return call(inputs, outputs);
}}

EXPORTED const char *{name}_error(void)
{{
    return last_error;
}}

EXPORTED int {name}_set_threads(int threads)
{{
    return choose_threads(threads);
}}

/* For loaders, which know no name: in each library one. */
static const void *const values[] = {{{", ".join(values) or "NULL"}}};
static const struct {{
    int64_t version;
    const char *about;
    int (*call)(const void *const *, void *const *);
    const char *(*error)(void);
    const void *const *values;
}} table = {{{VERSION}, {text(json.dumps(about))}, call, {name}_error, values}};

__attribute__((weak)) EXPORTED const void *pullback_function_library(void)
{{
    return &table;
}}
"""


def _check_name(name: str) -> None:
    """Raise an ArgumentError unless the function can have this name in C, beside the runtime's own."""
    check_name(name)
    taken = {"call", "constants", "exported", "last_error", "messages", "pool", "table", "values"}
    if name in taken.union(functions_in(inlined_source("function_one.c"))):
        hint = f'such as name="{name}_net"'
        raise ArgumentError(f"the runtime has a {name} of its own, so no function can be called so", hint=hint)


def _distinct(names: Sequence[str], library: str) -> list[str]:
    """Names of C, each its own."""
    found: list[str] = []
    taken = {library, "call", "inputs", "outputs", "exported", "constants", "messages", "values", "table"}
    for given in names:
        name = c_name(given)
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(name)
    return found
