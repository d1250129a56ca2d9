"""The machine that code is made for: a kind, a triple, a CPU and its features.

Target("llvm")                                                          this machine
Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon")  another one
Target({"kind": "llvm", "mcpu": "znver4"})                              options as a mapping
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from pullback.ir.errors import TargetError

KINDS = ("llvm",)
OPTIONS = ("mtriple", "mcpu", "mattr")


@dataclass(frozen=True, init=False)
class Target:
    """What code is compiled for; equal targets give equal code.

    ``features`` are LLVM's, a sorted tuple of ``+name`` and ``-name``; those that the CPU implies need not be listed.
    """

    kind: str
    triple: str
    cpu: str
    features: tuple[str, ...]

    def __init__(self, spec: str | Mapping[str, Any] | Target = "llvm") -> None:
        if isinstance(spec, Target):  # known to be right: LLVM need not be asked again
            for item in fields(spec):
                object.__setattr__(self, item.name, getattr(spec, item.name))
            return
        if isinstance(spec, str):
            kind, options = _parse(spec)
        elif isinstance(spec, Mapping):
            options = dict(spec)
            kind = options.pop("kind", None)
        else:
            hint = 'such as "llvm" or "llvm -mtriple=aarch64-linux-gnu"'
            raise TargetError(f"a target is a string or a mapping, not {type(spec).__name__}", hint=hint)
        if kind not in KINDS:
            raise TargetError(f"unknown target kind {kind!r}", hint=f"the kinds are {', '.join(KINDS)}")
        for option in options:
            if option not in OPTIONS:
                hint = f"the options are {', '.join('-' + o for o in OPTIONS)}"
                raise TargetError(f"unknown target option -{option}", hint=hint)
        for option in ("mtriple", "mcpu"):
            if not isinstance(options.get(option, ""), (str, type(None))):
                raise TargetError(
                    f"{option} of the target must be a string, got {options[option]!r}",
                    hint='write it as text: {"kind": "llvm", "mcpu": "znver4"}',
                )
        triple, cpu, features = _resolve(options.get("mtriple"), options.get("mcpu"), options.get("mattr"))
        for name, value in (("kind", kind), ("triple", triple), ("cpu", cpu), ("features", features)):
            object.__setattr__(self, name, value)

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> list[Target]:
        """The targets of a target, of a list of such, or of a mapping from devices to such; at least one.

        >>> Target.canon_multi_target("llvm")
        [Target('llvm')]
        """
        if isinstance(multi_targets, Mapping) and "kind" not in multi_targets:
            given = list(multi_targets.values())
        else:
            given = list(multi_targets) if isinstance(multi_targets, (list, tuple)) else [multi_targets]
        if not given:
            raise TargetError("there is no target", hint='such as "llvm"')
        return [Target(target) for target in given]

    def get_target_device_type(self) -> int:
        """The ``device_type`` of the device on which code for the target runs: 1, a CPU."""
        return 1

    @property
    def arch(self) -> str:
        """The first part of the triple: x86_64, aarch64, riscv64, wasm32, …"""
        return self.triple.split("-")[0]

    @property
    def is_wasm(self) -> bool:
        """Whether code is WebAssembly, which an engine compiles once more."""
        return self.arch.startswith("wasm")

    @property
    def key(self) -> str:
        """All that is known of the target, for cache keys: unlike ``str``, not relative to this machine."""
        return f"{self.kind} {self.triple} {self.cpu} {','.join(self.features)}"

    @property
    def is_host(self) -> bool:
        """Whether code for this target is made for exactly this machine."""
        return (self.triple, self.cpu, self.features) == _resolve(None, None, None)

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register in bytes: 64, 32 or 16."""
        return self.abilities.vector_bytes

    @property
    def registers(self) -> int:
        """The number of vector registers: 32 or 16; fewer where several scalar registers stand for one."""
        return self.abilities.registers

    @cached_property
    def abilities(self) -> Any:
        """What the CPU can do, as :class:`pullback.codegen.host.Abilities`; asked from LLVM once per target."""
        from pullback.codegen import host

        return host.abilities(self.triple, self.cpu, self.features)

    def lanes(self, dtype: str) -> int:
        """Elements of the dtype in one vector register."""
        from pullback.tir.expr import nbytes

        return self.vector_bytes // nbytes(dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: its text, so that what is for this machine is for the one where it is read."""
        return Target, (str(self),)

    def __str__(self) -> str:
        """The shortest text that gives this target back: ``llvm`` for this machine."""
        if self.is_host:
            return self.kind
        parts = [self.kind, f"-mtriple={self.triple}"]
        if self.cpu:
            parts.append(f"-mcpu={self.cpu}")
        if self.features:
            parts.append(f"-mattr={','.join(self.features)}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"


def _parse(text: str) -> tuple[str | None, dict[str, str]]:
    """``kind -option=value …`` as the kind and the options."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(
            f"{text!r} cannot be read as a target: {error}",
            hint='a target is written "llvm" or "llvm -mcpu=znver4 -mattr=+avx2"',
        ) from None
    options: dict[str, str] = {}
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if not name.startswith("-") or not sign:
            raise TargetError(f"target option {word!r} is not of the form -name=value", hint=f"in {text!r}")
        options[name.lstrip("-")] = value
    return (words[0] if words else ""), options


def _resolve(
    triple: str | None, cpu: str | None, attributes: str | Iterable[str] | None
) -> tuple[str, str, tuple[str, ...]]:
    """Fill in what was not said: nothing at all means this machine; a triple alone means its baseline CPU."""
    if isinstance(attributes, str):
        attributes = [a for a in attributes.split(",") if a]
    if attributes is not None and not isinstance(attributes, (list, tuple)):
        raise TargetError(
            f"mattr of the target must be a string or a list of them, got {attributes!r}",
            hint='write it as text: {"kind": "llvm", "mcpu": "znver4"}',
        )
    for feature in attributes or ():
        if not isinstance(feature, str) or feature[:1] not in ("+", "-"):
            raise TargetError(
                f"feature {feature!r} of the target needs a + or - before its name",
                hint="write -mattr=+avx2 to switch a feature on, -mattr=-avx2 to switch it off",
            )
    features = tuple(sorted(attributes)) if attributes is not None else None
    from pullback.codegen import host

    if triple is None:
        triple = host.triple()
        if cpu in (None, "native", "host"):
            cpu = host.cpu()
            if features is None:
                return triple, cpu, host.features()
    else:
        host.check_triple(triple)
    if cpu or features:
        host.check_cpu(triple, cpu or "", features or ())
    return triple, cpu or "", features or ()
