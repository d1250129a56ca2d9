"""Targets, and code for machines other than this one."""

import struct

import numpy as np
import pytest

from pullback.codegen import compile_assembly, compile_object, emit_module, load_object
from pullback.ir.errors import TargetError
from pullback.target import Target
from pullback.tir import (
    Allocate,
    Buffer,
    Check,
    If,
    KernelCall,
    Prefetch,
    PrimFunc,
    Var,
    call,
    cast,
    fma,
    loop,
    seq,
    store,
)
from pullback.tir.expr import FLOATS, INTRINSICS
from pullback.tir.interpreter import run
from tests.codegen.conftest import OF_INTEGERS

TARGETS = {
    "x86-64": "llvm -mtriple=x86_64-linux-gnu",
    "haswell": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "skylake": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
    "znver4": "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4",
    "aarch64": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon",
    "apple": "llvm -mtriple=arm64-apple-macosx11.0 -mcpu=apple-m1",  # whose assembly has another syntax
    "armv7": "llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon",
    "thumb": "llvm -mtriple=thumbv7em-none-eabi -mcpu=cortex-m4",
    "riscv64": "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+m,+a,+f,+d,+v",
    "rv64gc": "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+m,+a,+f,+d,+c",
    "spacemit": "llvm -mtriple=riscv64-linux-gnu -mcpu=spacemit-x60",
    "loongarch64": "llvm -mtriple=loongarch64-linux-gnu -mcpu=la464",
    "s390x": "llvm -mtriple=s390x-linux-gnu -mcpu=z15",
    "wasm32": "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128",
    "wasm32-relaxed": "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+relaxed-simd",
    "wasm32-scalar": "llvm -mtriple=wasm32-unknown-unknown",
    "i686": "llvm -mtriple=i686-linux-gnu",
}
SMALL_MASKS = ("skylake", "znver4", "riscv64", "spacemit")  # of elements of fewer than 4 bytes too
SCALAR = ("thumb", "rv64gc", "wasm32-scalar", "i686")
EXPECTED = {  # vector bytes, registers, masks, fma; of CPUs without vectors, four scalar registers count as one
    "x86-64": (16, 16, False, False), "haswell": (32, 16, True, True), "skylake": (64, 32, True, True),
    "znver4": (64, 32, True, True), "aarch64": (16, 32, False, True),
    "apple": (16, 32, False, True), "armv7": (16, 16, False, False),
    "thumb": (16, 8, False, True), "riscv64": (16, 32, True, True), "rv64gc": (16, 8, False, True),
    "spacemit": (32, 32, True, True), "loongarch64": (32, 32, False, True), "s390x": (16, 32, False, True),
    "wasm32": (16, 16, False, False), "wasm32-relaxed": (16, 16, False, False),
    "wasm32-scalar": (16, 4, False, False), "i686": (16, 4, False, False),
}  # fmt: skip


def everything():
    """A kernel with a tile, a tail, a gather, a condition, functions, half types and a parallel loop; and its host."""
    n = Var("n")
    x, y, at = Buffer("x", (50, 19)), Buffer("y", (50, 19)), Buffer("at", (19,), "int32")
    h, ok = Buffer("h", (19,), "float16"), Buffer("ok", (1,), "bool")
    acc = Buffer("acc", (2, 19), "float32", "local")

    def row(i):
        return Allocate(acc, seq(
            Prefetch(y, (i, 0), "write"),
            loop("j", 19, lambda j: loop("r", 2, lambda r: store(acc, (r, j), 0.0), "unrolled"), "vectorized"),
            loop("k", 50, lambda k: loop("j", 19, lambda j: loop(
                "r", 2, lambda r: store(acc, (r, j), fma(x[k, j], x[i, j], acc[r, j])), "unrolled"), "vectorized")),
            loop("j", 19, lambda j: If(acc[0, j] > 0.0, store(
                y, (i, j), call("tanh", acc[1, j]) + call("asinh", x[i, cast("int64", at[j])])
                + cast("float32", h[j]))), "vectorized"),
        ))  # fmt: skip

    body = seq(loop("i", 50, row, "parallel"), loop("j", n, lambda j: store(y, (0, j), y[0, j] + 1.0), "vectorized"),
               store(ok, 0, True))  # fmt: skip
    kernel = PrimFunc("kernel", (x, y, at, h, ok, n), body)
    flag = Buffer("flag", (1,), "bool", "arena", 0)
    host = PrimFunc("main", (x, y, at, h, n), seq(KernelCall("kernel", (x, y, at, h, flag), (n,)), Check(flag, 1)),
                    {"kind": "host"})  # fmt: skip
    return [kernel, host]


@pytest.mark.parametrize(("cpu", "fast"), [("znver4", True), ("znver5", True), ("emeraldrapids", False)])
def test_dots_that_take_longer_than_multiply_adds_are_left_alone(cpu, fast):
    """They are an instruction all the same, as is rounding."""
    can = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}").abilities
    assert can.pair_dot and can.fast_pair_dot == fast


def test_a_server_whose_model_is_hidden():
    """Its features tell that it is not what LLVM takes it for."""
    hidden = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=rocketlake -mattr=+avx512bf16,+amx-tile").abilities
    shown = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids").abilities
    assert hidden.pair_dot and not hidden.fast_pair_dot and hidden.figures.second_bytes == shown.figures.second_bytes
    desktop = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=rocketlake").abilities
    assert desktop.figures.second_bytes < shown.figures.second_bytes


@pytest.mark.parametrize("name", TARGETS)
def test_abilities(name):
    target = Target(TARGETS[name])
    can = target.abilities
    assert (target.vector_bytes, target.registers, can.masks, can.fma) == EXPECTED[name]
    assert can.pair_dot == can.fast_pair_dot == (name == "znver4")
    assert can.small_masks == (name in SMALL_MASKS)
    assert can.vectors == (name not in SCALAR)
    assert can.relaxed_fma == (name == "wasm32-relaxed")
    assert target.lanes("float32") == target.vector_bytes // 4


@pytest.mark.parametrize("name", TARGETS)
def test_object(name):
    target = Target(TARGETS[name])
    code = compile_object(emit_module(everything(), target), target)
    magic = b"\0asm" if target.is_wasm else b"\xcf\xfa\xed\xfe" if name == "apple" else b"\x7fELF"
    assert code.startswith(magic) and len(code) > 500


LIBM = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceilf", "cos", "cosh", "erf", "erfc", "exp2",
    "expm1", "floor", "floorf", "fma", "fmaf", "fmod", "log10", "log2", "pow", "rint", "rintf", "sin", "sinh", "tan",
    "trunc", "truncf",
}  # fmt: skip


def undefined_symbols(code):
    """The undefined symbols of a 64-bit little-endian ELF object."""
    offset, count = struct.unpack_from("<Q", code, 0x28)[0], struct.unpack_from("<H", code, 0x3C)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + 64 * i) for i in range(count)]
    names = set()
    for _, kind, _, _, start, size, link, *_ in sections:
        for at in range(start, start + size if kind == 2 else start, 24):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if name and section == 0:
                first = sections[link][4] + name
                names.add(code[first : code.index(b"\0", first)].decode())
    return names


@pytest.mark.parametrize("name", ["x86-64", "haswell", "znver4", "aarch64"])
def test_only_libm_is_needed(name):
    """All intrinsics on all float types, casts and divisions, in vectors and in scalars."""
    functions = []
    for kind in ("vectorized", "serial"):
        for dtype in FLOATS:
            x, y, flag = Buffer("x", (100,), dtype), Buffer("y", (100,), dtype), Buffer("flag", (100,), "bool")
            whole = Buffer("whole", (100,), "int64")

            def body(i, x=x, y=y, flag=flag, whole=whole, dtype=dtype):
                calls = [
                    store(flag if n.startswith("is") else y, i, call(n, *[x[i]] * k))
                    for n, k in INTRINSICS.items()
                    if n not in OF_INTEGERS
                ]
                casts = [cast(dtype, whole[i]), x[i] // y[99 - i]]
                wholes = [cast("int64", x[i]), cast("int64", cast("uint64", x[i])) // whole[99 - i]]
                return seq(*calls, *(store(y, i, v) for v in casts), *(store(whole, i, v) for v in wholes))

            functions.append(PrimFunc(f"{kind}_{dtype}", (x, y, flag, whole), loop("i", 100, body, kind)))
    target = Target(TARGETS[name])
    assert undefined_symbols(compile_object(emit_module(functions, target), target)) <= LIBM


@pytest.mark.parametrize(
    "name, register", [("znver4", "%zmm"), ("skylake", "%zmm"), ("haswell", "%ymm"), ("x86-64", "%xmm")]
)
def test_widest_registers_are_used(name, register):
    target = Target(TARGETS[name])
    x, y = Buffer("x", (1024,)), Buffer("y", (1024,))
    func = PrimFunc("f", (x, y), loop("i", 1024, lambda i: store(y, i, x[i] * 2.0), "vectorized"))
    assert register in compile_assembly(emit_module([func], target), target)


@pytest.mark.parametrize(
    "name, read, write",
    [
        ("znver4", "prefetcht0", "prefetchw"),
        ("aarch64", "pldl1keep", "pstl1keep"),
    ],
)
def test_prefetches_are_instructions(name, read, write):
    target = Target(TARGETS[name])
    x, y = Buffer("x", (8, 32)), Buffer("y", (8, 32))
    hints = lambda i: seq(Prefetch(x, (i, 16)), Prefetch(y, (i, 0), "write"))  # noqa: E731
    body = loop("i", 8, lambda i: seq(hints(i), loop("j", 32, lambda j: store(y, (i, j), x[i, j]), "vectorized")))
    text = compile_assembly(emit_module([PrimFunc("f", (x, y), body)], target), target)
    assert read in text and write in text
    if target.arch == "x86_64":  # what goes past the caches is not fetched into them
        streamed = PrimFunc("f", (x, y), body, {"streamed": (1,)})
        assert write not in compile_assembly(emit_module([streamed], target), target)


def test_host_code_for_lesser_cpus_runs(native):
    """Code for a baseline CPU of this machine's architecture gives the same values: no masks, no fma, no half."""
    host = Target("llvm")
    if host.arch != "x86_64":
        pytest.skip("needs x86-64")
    kernel = everything()[0]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 19)).astype(np.float32)
    arguments = lambda: [x, np.zeros_like(x), rng.permutation(19).astype(np.int32) * 0 + 5,  # noqa: E731
                         np.linspace(-1, 1, 19).astype(np.float16), np.zeros(1, bool), 17]  # fmt: skip
    expected = arguments()
    run(kernel, expected)
    cpus = ["x86-64", "x86-64-v2"] + (["haswell"] if host.vector_bytes >= 32 else [])
    for cpu in cpus:
        target = Target(f"llvm -mtriple={host.triple} -mcpu={cpu}")
        ours = arguments()
        native.call(load_object(compile_object(emit_module([kernel], target), target)), kernel, ours)
        np.testing.assert_allclose(ours[1], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", ["llvm", *TARGETS.values(), {"kind": "llvm", "mcpu": "haswell"}])
def test_text_round_trip(spec):
    target = Target(spec)
    assert Target(str(target)) == target and Target(target) == target
    assert hash(Target(str(target))) == hash(target)
    assert eval(repr(target)) == target


def test_host():
    target = Target("llvm")
    assert str(target) == "llvm" and target.is_host
    assert Target({"kind": "llvm"}) == target
    assert target.key != str(target) and target.cpu in target.key
    assert target.features == tuple(sorted(target.features)) and all(f[0] in "+-" for f in target.features)


def test_mapping():
    a = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon"]})
    assert a == Target(TARGETS["aarch64"])
    assert (a.kind, a.triple, a.cpu, a.features) == ("llvm", "aarch64-linux-gnu", "cortex-a72", ("+neon",))


@pytest.mark.parametrize("spec, message", [
    ("cuda", "unknown target kind 'cuda'\nhint: the kinds are llvm"),
    ("", "unknown target kind ''"),
    ({"mcpu": "znver4"}, "unknown target kind None"),
    ("llvm -mcup=znver4", "unknown target option -mcup\nhint: the options are -mtriple, -mcpu, -mattr"),
    ("llvm znver4", "'znver4' is not of the form -name=value"),
    ("llvm -mattr=avx", "feature 'avx' of the target needs a \\+ or -"),
    ("llvm -mtriple=z80-none", "unknown target triple 'z80-none'"),
    ("llvm -mcpu=no/such", "can't be the name of a CPU"),
    (3, "a target is a string or a mapping, not int"),
])  # fmt: skip
def test_errors(spec, message):
    with pytest.raises(TargetError, match=message):
        Target(spec)


def test_the_calling_convention_is_that_of_the_system():
    """Floats of a hard-float system are passed in registers of their own, whether the triple names a vendor or not."""
    x, y = Buffer("x", (8,), "float64"), Buffer("y", (8,), "float64")
    kernel = PrimFunc("f", (x, y), loop("i", 8, lambda i: store(y, i, call("asin", x[i]))))
    texts = []
    for triple in ("armv7-linux-gnueabihf", "armv7-unknown-linux-gnueabihf"):
        target = Target(f"llvm -mtriple={triple} -mcpu=cortex-a9 -mattr=+neon")
        texts.append(compile_assembly(emit_module([kernel], target), target))
    assert texts[0] == texts[1] and "\tasin" in texts[0] and "vmov\tr0, r1, d" not in texts[0]
