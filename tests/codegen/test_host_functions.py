"""Host functions: calls, arena, checks, traces, conditions; and objects that travel between processes."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from pullback.codegen import called_kernels, compile_object, emit_module, load_object
from pullback.ir.errors import InternalError
from pullback.target import Target
from pullback.tir import (
    Buffer,
    Check,
    HostCall,
    If,
    KernelCall,
    PrimFunc,
    Stop,
    Var,
    While,
    call,
    loop,
    seq,
    store,
)
from pullback.tir.interpreter import run


def kernels(n=20):
    x, y, ok = Buffer("x", (n,)), Buffer("y", (n,)), Buffer("ok", (1,), "bool")
    double = PrimFunc("double", (x, y), loop("i", n, lambda i: store(y, i, x[i] * 2.0), "vectorized"))
    add = PrimFunc("add one", (x, y), loop("i", n, lambda i: store(y, i, x[i] + 1.0), "parallel"))
    test = PrimFunc("test", (x, ok), store(ok, 0, x[0] > 0.0))
    return [double, add, test]


def host(n=20):
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    a, b, ok = Buffer("a", (n,), "float32", "arena", 0), Buffer("b", (n,), "float32", "arena", 128), Buffer(
        "ok", (1,), "bool", "arena", 256)  # fmt: skip
    body = seq(KernelCall("test", (x, ok)), Check(ok, 7), KernelCall("double", (x, a)), KernelCall("add one", (a, b)),
               KernelCall("double", (b, y)))  # fmt: skip
    return PrimFunc("main", (x, y), body, {"kind": "host"})


def test_calls_checks_and_trace(native):
    library = native.load([*kernels(), host()])
    x, y = np.arange(1, 21, dtype=np.float32), np.zeros(20, np.float32)
    native.runtime.clock = 0
    status, times = native.host(library, "main", [x, y], 512, trace=5)
    assert status == 0
    np.testing.assert_array_equal(y, (x * 2 + 1) * 2)
    assert times.tolist() == [1, 2, 3, 4, 5]
    assert called_kernels(host()) == ["test", "double", "add one", "double"]
    status, _ = native.host(library, "main", [x, y], 512)
    assert status == 0

    y[:] = 0
    status, _ = native.host(library, "main", [-x, y], 512)
    assert status == 7 and not y.any()


def test_a_call_computes_the_addresses_that_it_takes():
    """No register holds one from the beginning of the function to its last call."""
    text = emit_module([*kernels(), host()], Target("llvm"))
    entry, body = re.search(r"define i32 @main.*?entry:(.*?)start:(.*?)\n}", text, re.DOTALL).groups()
    assert "%buffers" not in entry and "%arena" not in entry
    for line in body.splitlines():
        for name in re.findall(r"ptr (%t\d+)", line if "call void @kernel" in line else ""):
            before = body[: body.index(line)].splitlines()[-6:]
            assert any(text.strip().startswith(f"{name} =") for text in before), line


@pytest.mark.parametrize("sign, status", [(1, 0), (-1, 7)])
def test_interpreter_agrees(sign, status):
    x, y = sign * np.arange(1, 21, dtype=np.float32), np.zeros(20, np.float32)
    assert run(host(), [x, y], {k.name: k for k in kernels()}) == status
    np.testing.assert_array_equal(y, 0 * x if status else (x * 2 + 1) * 2)


def test_conditions_loops_and_scalars(native):
    n, k = Var("n"), Var("k")
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    scale = PrimFunc("scale", (x, y, n, k), loop("i", n, lambda i: store(y, i, x[i] + y[i]), "vectorized"))
    m = Var("m")
    a, b = Buffer("a", (m,)), Buffer("b", (m,))
    body = loop("t", 3, lambda t: If(a[t] > 0.0, KernelCall("scale", (a, b), (m, t))))
    main = PrimFunc("main", (a, b, m), body, {"kind": "host"})
    library = native.load([scale, main])
    x_array, y_array = np.array([1, -1, 1, 4, 5], np.float32), np.zeros(5, np.float32)
    status, _ = native.host(library, "main", [x_array, y_array, np.array([5], np.int64)])
    assert status == 0
    np.testing.assert_array_equal(y_array, 2 * x_array)
    y_array[:] = 0
    run(main, [x_array, y_array, 5], {"scale": scale})
    np.testing.assert_array_equal(y_array, 2 * x_array)


def test_loads_between_calls_are_fresh(native):
    """A host function's own loads see what kernels wrote, in loops too."""
    x, y = Buffer("x", (1,)), Buffer("y", (1,))
    grow = PrimFunc("grow", (x, y), store(y, 0, y[0] + x[0]))
    a, b, flag = Buffer("a", (1,)), Buffer("b", (1,)), Var("flag", "bool")
    body = loop("t", 10, lambda t: If((b[0] < 3.0) & flag, KernelCall("grow", (a, b))))
    library = native.load([grow, PrimFunc("main", (a, b, flag), body, {"kind": "host"})])
    out = np.zeros(1, np.float32)
    for value, expected in ((True, 3), (False, 3)):
        native.host(library, "main", [np.ones(1, np.float32), out, np.array([value])])
        assert out.tolist() == [expected]


def test_names_of_the_c_library_are_free(native):
    """A kernel and a host function may be called like the functions that their code calls."""
    x, y = Buffer("x", (20,)), Buffer("y", (20,))
    kernel = PrimFunc("acos", (x, y), loop("i", 20, lambda i: store(y, i, call("acos", x[i])), "vectorized"))
    main = PrimFunc("cosh", (x, y), KernelCall("acos", (x, y)), {"kind": "host"})
    values, out = np.linspace(-1, 1, 20).astype(np.float32), np.zeros(20, np.float32)
    assert native.host(native.load([kernel, main]), "cosh", [values, out])[0] == 0
    np.testing.assert_allclose(out, np.arccos(values), rtol=1e-6)
    out[:] = 0
    native(kernel, values, out)
    np.testing.assert_allclose(out, np.arccos(values), rtol=1e-6)


def test_errors():
    target = Target("llvm")
    x = Buffer("x", (4,))
    with pytest.raises(InternalError, match="no kernel 'missing'"):
        emit_module([PrimFunc("m", (x,), KernelCall("missing", (x,)), {"kind": "host"})], target)
    with pytest.raises(InternalError, match="same name"):
        emit_module([kernels()[0], kernels()[0]], target)
    with pytest.raises(InternalError, match="takes 2 arguments"):
        emit_module([*kernels(), PrimFunc("m", (x,), KernelCall("double", (x,)), {"kind": "host"})], target)
    with pytest.raises(InternalError, match="not a statement of a kernel"):
        emit_module([PrimFunc("k", (x,), KernelCall("double", (x, x)))], target)
    library = load_object(compile_object(emit_module([*kernels(), host()], target), target))
    with pytest.raises(InternalError, match="no function 'double'"):
        library.address("double")
    with pytest.raises(InternalError, match="can't be loaded"):
        load_object(b"not an object")


_LOADER = """
import ctypes, sys
import llvmlite.binding as llvm
def refuse(*args): raise AssertionError("LLVM compiled something")
llvm.TargetMachine.emit_object = llvm.TargetMachine._emit_to_memory = llvm.parse_assembly = refuse
llvm.create_mcjit_compiler = refuse
from pullback.codegen import load_object
library = load_object(open(sys.argv[1], "rb").read())
x, y = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(library.address("f"))
function(None, x, y)
print(list(y))
"""


def test_object_loads_in_another_process_without_a_compiler(tmp_path):
    x, y = Buffer("x", (4,)), Buffer("y", (4,))
    func = PrimFunc(
        "f", (x, y), loop("i", 4, lambda i: store(y, i, call("cosh", x[i]) + call("exp", x[i])), "vectorized")
    )
    target = Target("llvm")
    path = tmp_path / "f.o"
    path.write_bytes(compile_object(emit_module([func], target), target))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    out = subprocess.run([sys.executable, "-c", _LOADER, str(path)], capture_output=True, text=True, env=environment)
    assert out.returncode == 0, out.stderr
    values = np.arange(1, 5, dtype=np.float64)
    np.testing.assert_allclose(eval(out.stdout), np.cosh(values) + np.exp(values), rtol=1e-6)


def test_many_libraries_live_and_die(native):
    x, y = Buffer("x", (4,)), Buffer("y", (4,))
    data = np.ones(4, np.float32)
    libraries = []
    for k in range(6):
        func = PrimFunc("f", (x, y), loop("i", 4, lambda i, k=k: store(y, i, x[i] * float(k)), "vectorized"))
        libraries.append((k, func, native.load([func])))
    del libraries[1::2]
    for k, func, library in libraries:
        out = np.zeros(4, np.float32)
        native.call(library, func, (data, out))
        assert out.tolist() == [k] * 4


def counting():
    """``main`` writes twice each row of x to y, the last first, until the count in ``left`` is 0, by calls of ``row``,
    which stops with 5 where the row begins with no positive number; ``main`` stops with 9 for negative counts."""
    x, y, left = Buffer("x", (6, 20)), Buffer("y", (6, 20)), Buffer("left", (), "int64")
    row, result = Buffer("row", (20,)), Buffer("result", (20,))
    ok = Buffer("ok", (1,), "bool", "arena", 0)
    inner = PrimFunc("row", (row, result), seq(KernelCall("test", (row, ok)), Check(ok, 5),
                     KernelCall("double", (row, result))), {"kind": "host", "inner": True})  # fmt: skip
    arena = Buffer("memory", (64,), "uint8", "arena", 64)
    now = left[()] - 1
    step = seq(store(left, (), now), HostCall("row", (x, y), (left[()], left[()]), arena))
    body = seq(If(left[()] < 0, Stop(9)), While(left[()] > 0, step))
    return [*kernels(), inner, PrimFunc("main", (x, y, left), body, {"kind": "host"})]


@pytest.mark.parametrize("count, bad, status", [(4, None, 0), (0, None, 0), (-1, None, 9), (5, 2, 5), (6, 5, 5)])
def test_host_functions_call_others(native, count, bad, status):
    """On pieces of buffers, with an arena that lies in the caller's; statuses go through. As in the interpreter."""
    x = np.arange(1, 121, dtype=np.float32).reshape(6, 20)
    if bad is not None:
        x[bad] *= -1
    wanted = np.zeros_like(x)
    for k in reversed(range(max(0, count))):
        if x[k, 0] < 0:
            break
        wanted[k] = 2 * x[k]
    functions = counting()
    library = native.load(functions)
    results = []
    for is_native in (True, False):
        y, left = np.zeros_like(x), np.array(count)
        if is_native:
            found, _ = native.host(library, "main", [x, y, left], 256)
        else:
            found = run(functions[-1], [x, y, left], {f.name: f for f in functions})
        assert found == status
        np.testing.assert_array_equal(y, wanted)
        results.append(left.item())
    assert results[0] == results[1] == (bad if bad is not None else min(count, 0))


def test_inner_host_functions_are_not_exported():
    text = emit_module(counting(), Target("llvm"))
    assert re.search(r"define internal\s+i32 @row", text) and re.search(r"define i32 @main", text)
    with pytest.raises(InternalError, match="no host function 'other'"):
        body = HostCall("other", ())
        emit_module([*kernels(), PrimFunc("m", (), body, {"kind": "host"})], Target("llvm"))
