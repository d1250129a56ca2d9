"""What LLVM knows of this machine and of others: triples, CPUs, and what a CPU can do."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm

from pullback.codegen import headroom, worker
from pullback.codegen.cpus import figures_of, this_machines_caches
from pullback.ir.errors import TargetError
from pullback.ir.forks import around
from pullback.tir.figures import Figures

lock = threading.RLock()  # held around sequences of LLVM calls that belong together


def _wait_for_llvm() -> None:
    """Before a fork: a child of a thread that does not know where another one left LLVM could never use it again."""
    lock.acquire()
    _llvmlites.__enter__()  # finalizers call LLVM too, and hold only this


def _release_llvm() -> None:
    _llvmlites.__exit__(None, None, None)
    lock.release()


_llvmlites = getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext())  # llvmlite's own lock, around each call of LLVM
around(_wait_for_llvm, _release_llvm)


@dataclass(frozen=True)
class Abilities:
    """What matters of a CPU to code generation."""

    vector_bytes: int
    registers: int  # vector registers
    masks: bool  # masked loads and stores are instructions
    fma: bool  # fused multiply-add is an instruction
    half: bool  # conversion between float16 and float32 is an instruction
    pair_dot: bool = False  # and so is the sum of two products of bfloat16
    small_masks: bool = False  # masked loads and stores of elements of fewer than 4 bytes are instructions too
    scale: bool = False  # x · 2ⁿ is an instruction
    assembler: bool = False  # LLVM can read it: that of this machine's family only
    vectors: bool = True  # else four registers of one number each stand for one
    relaxed_fma: bool = False  # a multiply-add of vectors is an instruction, which may round the product first
    figures: Figures = field(default_factory=Figures)  # how fast it is

    @property
    def fast_pair_dot(self) -> bool:
        """Whether a dot of pairs is an instruction that takes less time than two multiply-adds."""
        return self.pair_dot and self.figures.pair_dot_ns < 2 * self.figures.vector_fma_ns


@functools.cache
def initialize() -> None:
    """Load all of LLVM's targets, once."""
    with lock:
        worker.initialize()


@functools.cache
def triple() -> str:
    return llvm.get_process_triple()


@functools.cache
def cpu() -> str:
    return llvm.get_host_cpu_name()


@functools.cache
def features() -> tuple[str, ...]:
    """The features of this machine's CPU, as ``+name`` and ``-name``, sorted."""
    return tuple(sorted(f for f in llvm.get_host_cpu_features().flatten().split(",") if f))


def whole_triple(name: str) -> str:
    """The triple with its vendor: LLVM takes the ``linux`` of ``armv7-linux-gnueabihf`` for one, and then knows neither
    the system nor its calling convention."""
    arch, *rest = name.split("-")
    return "-".join([arch, "unknown", *rest]) if rest[:1] in (["linux"], ["none"], ["freebsd"]) else name


@functools.cache
def check_triple(name: str) -> None:
    """Raise a TargetError when LLVM has no back end for the triple."""
    initialize()
    try:
        llvm.Target.from_triple(name)
    except RuntimeError as error:
        known = ("x86_64-linux-gnu", "aarch64-linux-gnu", "armv7-linux-gnueabihf", "riscv64-linux-gnu",
                 "wasm32-unknown-unknown")  # fmt: skip
        hint = f"for example {', '.join(known)}"
        raise TargetError(f"unknown target triple {name!r}: {error}", hint=hint) from None


_MAKE_MACHINE = """
import sys, llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, cpu, features = sys.argv[1:]
llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
"""


@functools.cache
def check_cpu(triple_name: str, name: str, features: tuple[str, ...]) -> None:
    """Raise a TargetError for a CPU or feature that LLVM does not know.

    LLVM only prints a warning for those, to the standard error of the process: so it is asked in a process of its own.
    """
    if not all(c.isalnum() or c in "-_.+" for c in name):
        raise TargetError(
            f"{name!r} can't be the name of a CPU of {triple_name}", hint="a name has letters, digits and -"
        )
    if not sys.executable:  # Python inside another program: LLVM's warning has to do
        return
    command = [sys.executable, "-c", _MAKE_MACHINE, triple_name, name, ",".join(features)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    for kind in ("processor", "feature"):
        unknown = re.search(f"'(.*)' is not a recognized {kind}", answer)
        if unknown is not None:
            what = "CPU" if kind == "processor" else "feature"
            listing = "cpus" if what == "CPU" else "extensions"
            hint = f"`clang --target={triple_name} --print-supported-{listing}` lists them"
            raise TargetError(f"there is no {what} {unknown.group(1)!r} for {triple_name}", hint=hint)


def machine(triple_name: str, cpu_name: str, feature_names: tuple[str, ...]) -> llvm.TargetMachine:
    """A target machine for position-independent code that uses the widest vectors there are."""
    initialize()
    return worker.target_machine(whole_triple(triple_name), machine_options(triple_name, cpu_name, feature_names))


def machine_options(triple_name: str, cpu_name: str, feature_names: tuple[str, ...]) -> dict[str, Any]:
    """What makes that machine, besides its triple."""
    names = list(feature_names)
    if triple_name.startswith(("x86_64", "amd64", "i386", "i686")):
        names.append("-prefer-256-bit")
    abi = ""
    if triple_name.startswith("riscv") and "+d" in feature_names:
        abi = "lp64d" if triple_name.startswith("riscv64") else "ilp32d"
    reloc = "static" if triple_name.startswith("wasm") else "pic"
    features = ",".join(names)
    return {"cpu": cpu_name, "features": features, "opt": 2, "reloc": reloc, "codemodel": "default", "abiname": abi}


_PROBE = """
define <16 x float> @add(<16 x float> %a, <16 x float> %b) {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
define float @fma(float %a, float %b, float %c) {
  %d = call float @llvm.fma.f32(float %a, float %b, float %c)
  ret float %d
}
define float @half(i16 %a) {
  %b = bitcast i16 %a to half
  %c = fpext half %b to float
  ret float %c
}
"""
_PROBE_MASKS = """
define <8 x i16> @masked(ptr %a, <8 x i1> %m) {
  %b = call <8 x i16> @llvm.masked.load.v8i16.p0(ptr %a, i32 2, <8 x i1> %m, <8 x i16> zeroinitializer)
  ret <8 x i16> %b
}
declare <8 x i16> @llvm.masked.load.v8i16.p0(ptr, i32, <8 x i1>, <8 x i16>)
"""
_PROBE_BFLOAT16 = """
define <4 x bfloat> @round(<4 x float> %a) {
  %b = fptrunc <4 x float> %a to <4 x bfloat>
  ret <4 x bfloat> %b
}
"""
_ROUND_BFLOAT16 = {"x86_64": "vcvtneps2bf16", "aarch64": "bfcvtn"}  # where that is, the dot of pairs is too


# The instruction that adds floats, a vector or one at a time: the fewer of them 16 additions take, the wider it is.
_ADD = re.compile(
    r"^\s+(v?addps|v?addss|fadds?|fadd\.4s|x?vfadd\.s|vfadd\.vv|fadd\.s|vadd\.f32|f32(x4)?\.add|xvaddsp|xsaddsp|vfasb|aebr)\s",
    re.M,
)
_REGISTERS = {"aarch64": 32, "arm64": 32, "riscv": 32, "powerpc": 32, "ppc": 32, "loongarch": 32, "s390x": 32}
_X86 = ("x86_64", "amd64", "i386", "i686")
_RELAXED = '"relaxed-simd"'  # WebAssembly's assembly lists the features that it uses


@functools.cache
def abilities(triple_name: str, cpu_name: str, feature_names: tuple[str, ...]) -> Abilities:
    """Found by compiling a few tiny functions and reading the assembly: LLVM has no table to ask."""
    check_triple(triple_name)
    headroom.require(headroom.LITTLE, "ask LLVM about the CPU")
    with lock:
        arch = triple_name.split("-")[0]
        probe = _PROBE + (_PROBE_BFLOAT16 if arch in _ROUND_BFLOAT16 else "") + (_PROBE_MASKS if arch in _X86 else "")
        module = llvm.parse_assembly(f'target triple = "{whole_triple(triple_name)}"\n{probe}')
        text = machine(triple_name, cpu_name, feature_names).emit_assembly(module)
    is_host = (triple_name, cpu_name) == (triple(), cpu())
    figures = figures_of(cpu_name, feature_names, this_machines_caches if is_host else None)
    fma = "fmaf" not in text
    half = not any(name in text for name in ("__extendhfsf2", "__gnu_h2f_ieee", "__aeabi_h2f"))
    registers = next((count for name, count in _REGISTERS.items() if arch.startswith(name)), 16)
    additions = len(_ADD.findall(text))
    grouped = re.search(r"vsetivli\s+zero, 16, e32, m(\d)", text)  # RISC-V: one instruction on so many registers
    if grouped:
        return Abilities(64 // int(grouped.group(1)), registers, True, fma, half, small_masks=True, figures=figures)
    if additions not in (1, 2, 4):  # no vectors: four numbers in four registers stand for one
        registers = max(4, (32 if arch.startswith(("arm", "thumb")) else registers) // 4)
        return Abilities(16, registers, False, fma, half, vectors=False, figures=figures)
    vector_bytes = 64 // additions
    if arch in _X86:
        registers = 8 if arch.startswith("i") else 32 if vector_bytes == 64 else 16
    pair_dot = arch in _ROUND_BFLOAT16 and _ROUND_BFLOAT16[arch] in text
    if arch == "x86_64" and vector_bytes < 64:
        pair_dot = False  # AVX-NE-CONVERT rounds, and no more
    assembler = arch == "x86_64" == triple().split("-")[0]
    masks, small_masks = arch in _X86 and vector_bytes > 16, "vmovdqu16" in text
    scale = arch == "x86_64" and small_masks  # both are of AVX-512, for vectors of any width
    known = (pair_dot, small_masks, scale, assembler)
    return Abilities(vector_bytes, registers, masks, fma, half, *known, relaxed_fma=_RELAXED in text, figures=figures)
