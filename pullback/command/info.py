"""`python -m pullback info`: what a report of a mistake should say of the machine and the installation."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from pullback.codegen import host
from pullback.driver.cache import default_directory, is_on, object_cache, versions
from pullback.driver.tuned import tuned_choices
from pullback.ir.environment import VARIABLES
from pullback.runtime import library
from pullback.target import Target

FEATURES = (  # of CPUs, those that change what kernels look like
    "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512bf16", "avx512fp16", "amx-bf16",
    "neon", "fullfp16", "bf16", "i8mm", "sve", "sve2", "v", "zvfh",
)  # fmt: skip
FOR_DEVELOPERS = ("test", "bench", "cross", "wheels")  # extras
USES = ("numpy", "ml_dtypes", "llvmlite", "LLVM")  # of what versions() tells


def rows() -> list[tuple[str, str]]:
    """Names and what there is to say of each."""
    from pullback import __version__

    known = versions()
    return [
        ("pullback", f"{__version__}, in {Path(__file__).parents[1]}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"),
        ("platform", platform.platform()),
        ("CPU", f"{_cpu_name()} ({host.cpu()})"),
        ("CPU features", _features()),
        ("runtime library", _runtime()),
        ("threads", _threads()),
        ("cache", _cache()),
        ("tuned kernels", _tuned()),
        ("uses", ", ".join(f"{name} {known[name]}" for name in USES)),
        *((f"extra {name}", text) for name, text in _extras()),
        ("environment", ", ".join(f"{n}={os.environ[n]}" for n in sorted(VARIABLES) if n in os.environ) or "nothing"),
    ]


def size_of_cache() -> str:
    """``12 entries, 3.4 MB``."""
    count, size = object_cache().size()
    return f"{count:,} {'entry' if count == 1 else 'entries'}, {size / 1e6:.1f} MB"


def _cpu_name() -> str:
    try:
        found = re.search(r"^(?:model name|Model)\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _features() -> str:
    has = set(host.features())
    bits = 8 * Target("llvm").abilities.vector_bytes
    return f"{', '.join(f for f in FEATURES if f'+{f}' in has) or 'none that matters'}; vectors of {bits} bits"


def _runtime() -> str:
    path = library.NATIVE_DIRECTORY / library.LIBRARY_NAME
    try:
        library.library.pb_runtime_get()
    except ImportError as error:
        return str(error)
    return f"{path}, ABI {library.ABI}"


def _threads() -> str:
    try:
        return f"{library.get_num_threads()} of {os.cpu_count()} CPUs"
    except ImportError:
        return "none without the runtime library"


def _cache() -> str:
    if not is_on():
        return "off (PULLBACK_CACHE)"
    cache = object_cache()
    return f"{cache.directory}: {size_of_cache()}" if cache.enabled else f"none: {default_directory()} cannot be used"


def _tuned() -> str:
    count = len(tuned_choices(Target("llvm")).by_key)
    return str(count) if count else "none (python -m pullback tune FILE)"


def _extras() -> list[tuple[str, str]]:
    """Those for users, and which of their packages are there."""
    try:
        about = metadata.metadata("pullback")
    except metadata.PackageNotFoundError:  # a copy that was not installed
        return []
    extras = [e for e in about.get_all("Provides-Extra") or [] if e not in FOR_DEVELOPERS]
    return [(extra, _state(extra, about.get_all("Requires-Dist") or [])) for extra in extras]


def _state(extra: str, requirements: list[str]) -> str:
    pattern = re.compile(rf"""^([\w.-]+).*;.*extra == ['"]{re.escape(extra)}['"]""")
    names = [found[1] for requirement in requirements if (found := pattern.match(requirement))]
    there = {name: _version(name) for name in names}
    texts = [f"{name} {version or 'missing'}" for name, version in there.items()]
    hint = f" (pip install 'pullback[{extra}]')" if None in there.values() else ""
    return ", ".join(texts) + hint


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
