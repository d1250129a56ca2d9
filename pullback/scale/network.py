"""Links between ranks: the α–β model, and how people write one.

    100Gb/10us          100 Gbit/s and 10 µs from a send to its receive
    12.5GB/10us         the same in bytes
    100Gb/10us/2us      and 2 µs of a processor for each message, at either end, in place of 0.5 µs

A message of b bytes is there α + b/β seconds after it was sent. Messages of one rank leave one after another, and so
they arrive: α is waited for once, where many are on their way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pullback.ir.errors import ArgumentError

_PREFIXES = {
    None: 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "ki": 2.0**10, "Ki": 2.0**10, "Mi": 2.0**20,
    "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?"
_BANDWIDTH = re.compile(rf"{_NUMBER}\s*([kKMGT]i?)?(bits?|bytes?|b|B)")
_TIME = re.compile(rf"{_NUMBER}\s*([a-zµμ]+)")
MESSAGE = 5e-7  # seconds of a processor, of which nobody says otherwise: what MPI takes on a core of today
_EXAMPLE = "such as 100Gb/10us: 100 Gbit/s and 10 µs; 12.5GB/10us is the same in bytes"


@dataclass(frozen=True)
class Link:
    """One way from a rank to another, and at the same time back.

    ``bandwidth``: bytes a second; ``latency``: seconds from a send to its receive, of a message without content;
    ``message``: seconds of a processor for each message, at either end.
    """

    bandwidth: float
    latency: float
    message: float = MESSAGE

    def seconds(self, nbytes: float, messages: int = 1) -> float:
        """Seconds from the first send until so many messages of so many bytes each are there."""
        return self.latency + messages * nbytes / self.bandwidth

    def __str__(self) -> str:
        parts = [f"{8e-9 * self.bandwidth:.3g}Gb", format_seconds(self.latency)]
        return "/".join([*parts, *([format_seconds(self.message)] if self.message != MESSAGE else [])])


@dataclass(frozen=True)
class Network:
    """What ranks send each other messages by.

    Ranks are numbered node by node, ``ranks_per_node`` on each. ``link`` leads from node to node, and the ranks of a
    node share it; ``local`` is between ranks of one node: their memory, so that it is a processor that moves the bytes.
    ``cores``: of a node, on which its ranks compute; None: enough for all threads and one more for each rank.
    ``addition``, ``copying``: bytes a second at which a processor adds up and packs what is sent. ``polling``: seconds
    until the engine's own thread sees a message; a rank that waits sees it at once.

    >>> Network(Link(12.5e9, 1e-5), ranks_per_node=4)
    """

    link: Link
    local: Link = Link(10e9, 5e-7, 2e-7)
    ranks_per_node: int = 1
    cores: int | None = None
    addition: float = 8e9
    copying: float = 10e9
    polling: float = 5e-5  # half of its longest pause, and of what the system adds to that

    def __post_init__(self) -> None:
        for name in ("ranks_per_node", "cores"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ArgumentError(f"{name} must be an int ≥ 1, got {value!r}")

    def on_node(self, ranks: int) -> int:
        """How many of so many ranks are on one node."""
        return min(self.ranks_per_node, ranks)


def parse_link(text: str) -> Link:
    """``BANDWIDTH/LATENCY`` or ``BANDWIDTH/LATENCY/SECONDS OF A MESSAGE`` as a link. Raises ArgumentError.

    >>> parse_link("100Gb/10us")
    Link(bandwidth=12500000000.0, latency=1e-05, message=5e-07)
    """
    parts = [part.strip() for part in text.split("/")]
    if parts and len(parts) > 1 and parts[1] in ("s", "sec"):  # 100Gb/s/10us
        del parts[1]
    if len(parts) not in (2, 3):
        raise ArgumentError(f"a network is BANDWIDTH/LATENCY, got {text!r}", hint=_EXAMPLE)
    return Link(parse_bandwidth(parts[0]), *(parse_seconds(part) for part in parts[1:]))


def parse_bandwidth(text: str) -> float:
    """``100Gb``, ``12.5GB``, ``10Gbit/s`` as bytes a second. Raises ArgumentError."""
    found = _BANDWIDTH.fullmatch(text.strip().removesuffix("/s").removesuffix("ps"))
    value = 0.0 if found is None else float(found[1] + (found[2] or ""))
    if found is None or not value:
        hint = "Gb is 1e9 bits, GB 1e9 bytes, GiB 2^30 bytes a second"
        raise ArgumentError(f"a bandwidth is a number > 0 of bits or bytes a second, got {text!r}", hint=hint)
    return value * _PREFIXES[found[3]] * (1 / 8 if found[4].startswith("b") and "y" not in found[4] else 1)


def parse_bytes(text: str) -> int:
    """``4MB``, ``25MiB``, ``65536`` as bytes. Raises ArgumentError."""
    plain = text.strip()
    found = _BANDWIDTH.fullmatch(plain if not plain.isdigit() else f"{plain}B")
    if found is None or found[4] in ("b", "bit", "bits"):
        raise ArgumentError(f"a size is a number of bytes, got {text!r}", hint="such as 4MB (4e6 bytes) or 4MiB")
    return int(float(found[1] + (found[2] or "")) * _PREFIXES[found[3]])


def parse_seconds(text: str) -> float:
    """``10us``, ``1.5 ms``, ``0s`` as seconds. Raises ArgumentError."""
    found = _TIME.fullmatch(text.strip())
    if found is None or found[3] not in _SECONDS:
        raise ArgumentError(f"a time is a number with ns, us, ms or s, got {text!r}", hint="such as 10us or 1.5ms")
    return float(found[1] + (found[2] or "")) * _SECONDS[found[3]]


def format_seconds(seconds: float) -> str:
    """In the unit that fits, three digits: ``12.5us``; what :func:`parse_seconds` reads."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * factor:
            return f"{seconds / factor:.3g}{unit}"
    return f"{seconds / 1e-9:.3g}ns"
