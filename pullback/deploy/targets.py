"""The machines that libraries are made for, by name.

A platform is a system with a C compiler for it, and one or several CPUs: of several, the library
chooses when it starts, or whoever loads it does (``apart``).
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.errors import TargetError, suggestion
from pullback.target import Target


@dataclass(frozen=True)
class Board:
    """What an image for a bare machine is linked for, unless its Makefile is told otherwise: memories, as (where it
    begins, how large it is) in the linker's notation; and the machine of QEMU that runs it."""

    flash: tuple[str, str]
    ram: tuple[str, str]
    emulator: str


@dataclass(frozen=True)
class Platform:
    """``cpus``: a Target's text for each CPU, by a name that is part of symbols, the most capable first. ``system``:
    what clang calls the system; "" is this machine's. ``flags`` for the C compiler, ``bare``: without operating system
    (no threads, no files). ``tools``: how the names of GNU's compiler for it begin; "" is any other compiler's.
    ``board``: where programs have all of the machine, and little memory. ``sources``: the system's headers are in its
    own development kit alone, which compiles NAME.c; the library has the rest. ``apart``: for each CPU but the last a
    macro: no program may hold code for two of the CPUs, as one that lacks an instruction refuses all of it. So NAME.c
    is compiled for one, that whose macro is defined."""

    name: str
    about: str
    cpus: tuple[tuple[str, str], ...]
    system: str = ""
    flags: tuple[str, ...] = ()
    bare: bool = False
    shared: str = "so"  # the suffix of a shared library; "" where there is none
    tools: str = ""
    board: Board | None = None
    sources: bool = False
    beside: str = ""  # what is written besides the library: a name of export.BESIDE
    apart: tuple[str, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        """What a library has code for unless it is said: all, or what takes the least memory."""
        return FUNCTIONS if self.board is None else ("step", "predict_one", "evaluate_one")

    @property
    def targets(self) -> dict[str, Target]:
        """The compiler's targets by the names of CPUs."""
        return {name: Target(text) for name, text in self.cpus}


def _llvm(triple: str, cpu: str = "", features: str = "") -> str:
    options = (("mtriple", triple), ("mcpu", cpu), ("mattr", features))
    return " ".join(["llvm", *(f"-{name}={value}" for name, value in options if value)])


def _x86(triple: str) -> tuple[tuple[str, str], ...]:
    """From the newest CPUs to what every x86-64 is."""
    return (
        ("avx512", _llvm(triple, "x86-64-v4")),
        ("avx2", _llvm(triple, "x86-64-v3")),
        ("sse2", _llvm(triple, "x86-64")),
    )


FUNCTIONS = ("step", "predict", "predict_one", "evaluate", "evaluate_one")
_RISCV = "+m,+a,+f,+d,+c"
_CORTEX = ("-mthumb", "-mfloat-abi=hard")


def _mps(emulator: str, flash: str) -> Board:
    """One of Arm's boards, with as much RAM as a microcontroller has."""
    return Board(("0x00000000", flash), ("0x20000000", "256K"), emulator)


def _cortex(core: str, triple: str, about: str, board: Board, *flags: str) -> Platform:
    cpu = f"cortex-{core}"
    return Platform(
        cpu, f"bare Arm Cortex-{core.upper()} {about}", ((core, _llvm(triple, cpu)),), "thumb-freestanding-eabihf",
        (f"-mcpu={cpu}", *flags, *_CORTEX), bare=True, shared="", tools="arm-none-eabi-", board=board,
    )  # fmt: skip


PLATFORMS = {
    p.name: p
    for p in (
        Platform("host", "this machine, with all that its CPU can do", (("native", "llvm"),)),
        Platform("x86-64", "Linux on x86-64: AVX-512, AVX2 or SSE2, chosen when it starts", _x86("x86_64-linux-gnu"),
                 "x86_64-linux-gnu.2.17"),
        Platform("aarch64", "Linux on 64-bit Arm: Raspberry Pi 3 to 5, servers",
                 (("neon", _llvm("aarch64-linux-gnu", "cortex-a53")),), "aarch64-linux-gnu.2.17"),
        Platform("android", "Android on 64-bit Arm: for the NDK, which compiles the C source",
                 (("neon", _llvm("aarch64-linux-android", "cortex-a53")),), "aarch64-linux-android", shared="",
                 sources=True),
        Platform("armv7", "Linux on 32-bit Arm with NEON: Raspberry Pi 2 and 3",
                 (("neon", _llvm("armv7-linux-gnueabihf", "cortex-a7", "+neon")),), "arm-linux-gnueabihf.2.17",
                 ("-mcpu=cortex_a7",)),
        Platform("riscv64", "Linux on 64-bit RISC-V", (("rv64gc", _llvm("riscv64-linux-gnu", "generic-rv64", _RISCV)),),
                 "riscv64-linux-gnu"),
        Platform("riscv64-v", "Linux on 64-bit RISC-V with vectors",
                 (("rv64gcv", _llvm("riscv64-linux-gnu", "generic-rv64", _RISCV + ",+v")),), "riscv64-linux-gnu"),
        Platform("macos-arm64", "macOS on Apple's CPUs", (("m1", _llvm("arm64-apple-macosx11.0", "apple-m1")),),
                 "aarch64-macos", shared="dylib"),
        Platform("macos-x86-64", "macOS on x86-64", _x86("x86_64-apple-macosx11.0")[1:], "x86_64-macos",
                 shared="dylib"),
        Platform("windows-x86-64", "Windows on x86-64", _x86("x86_64-pc-windows-gnu"), "x86_64-windows-gnu",
                 shared="dll"),
        _cortex("m4", "thumbv7em-none-eabihf", "with its floating-point unit", _mps("mps2-an386", "4M"),
                "-mfpu=fpv4-sp-d16"),
        _cortex("m7", "thumbv7em-none-eabihf", "with its floating-point unit", _mps("mps2-an500", "4M"),
                "-mfpu=fpv5-d16"),
        _cortex("m55", "thumbv8.1m.main-none-eabihf", "with Helium", _mps("mps3-an547", "512K")),
        Platform("wasm32", "WebAssembly with SIMD, for browsers and node: relaxed SIMD where they know it",
                 (("relaxed", _llvm("wasm32-unknown-unknown", "", "+simd128,+relaxed-simd")),
                  ("simd128", _llvm("wasm32-unknown-unknown", "", "+simd128"))), "wasm32-freestanding",
                 ("-msimd128", "-mbulk-memory"), True, "", beside="web",
                 apart=("PB_RELAXED_SIMD",)),
    )
}  # fmt: skip


def platform(name: str) -> Platform:
    """The platform of this name; a TargetError that lists them where there is none."""
    if not isinstance(name, str) or name not in PLATFORMS:
        raise TargetError(
            f"there is no platform {name!r}{suggestion(str(name), PLATFORMS)}",
            hint=f"they are {', '.join(PLATFORMS)}; `python -m pullback targets` says what they are",
        )
    return PLATFORMS[name]
