"""The caches of this machine, as the operating system has them.

Linux lists a core's caches in files, one directory each, macOS answers by name:

    /sys/devices/system/cpu/cpu0/cache/index2/{level,type,size,shared_cpu_list}          2, Unified, 1024K, 0
    sysctl -n hw.perflevel0.l2cachesize                                                  12582912

What is not told, as in some containers, stays as the table of CPUs has it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pullback.tir.figures import Figures

SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LEAST, _MOST = 1 << 10, 4 << 30  # bytes of a cache: what is told of others is wrong


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches that a core uses; None where the system does not say."""

    first: int | None = None
    second: int | None = None
    last: int | None = None

    def instead_of(self, figures: Figures) -> Figures:
        """The figures with these sizes. What decides stays: kernels depend on the target and not on who compiles."""
        return replace(
            figures,
            first_cache=self.first or figures.first_cache,
            second_cache=self.second or figures.second_cache,
            last_cache=self.last or figures.last_cache,
        )


def host_caches(platform: str) -> Caches:
    """Those of this machine; ``platform`` is ``sys.platform``."""
    if platform.startswith("linux"):
        return from_sysfs(SYSFS)
    return from_sysctl(_sysctl) if platform == "darwin" else Caches()


def from_sysfs(directory: Path) -> Caches:
    """Those of the core whose directory this is: of each level the data cache, or the one for both."""
    sizes: dict[int, int] = {}
    for index in sorted(directory.glob("index*")):
        level, size = _text(index / "level"), _bytes(_text(index / "size"))
        if level.isdigit() and size is not None and _text(index / "type") in ("Data", "Unified"):
            sizes[int(level)] = size
    last = max((level for level in sizes if level > 1), default=None)
    return Caches(sizes.get(1), sizes.get(2), None if last is None else sizes[last])


def from_sysctl(ask: Callable[[str], str]) -> Caches:
    """Those of a fast core, where cores differ. ``ask(name)`` is the text of a value, "" for one that is not there."""

    def size(cache: str) -> int | None:
        found = (_bytes(ask(f"hw.{level}{cache}")) for level in ("perflevel0.", ""))
        return next((n for n in found if n is not None), None)

    second = size("l2cachesize")
    return Caches(size("l1dcachesize"), second, size("l3cachesize") or second)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _bytes(text: str) -> int | None:
    """``32K``, ``1048576``; None for what is no size of a cache."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text.strip())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    return size if _LEAST <= size <= _MOST else None


def _sysctl(name: str) -> str:
    try:
        command = ["/usr/sbin/sysctl", "-n", name]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()
