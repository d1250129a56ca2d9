"""Calling compiled functions: arguments, results, donation, threads, forks, memory."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pullback
from pullback import relax, runtime, tir
from pullback.driver import executable, native
from pullback.ir import ArgumentError, DTypeError, NameNotFound, ShapeError, TargetError
from pullback.script import ir as I
from pullback.script import relax as R
from tests.driver.models import mlp_trainer_module, step_arguments


@I.ir_module
class Module:
    @R.function
    def scale(x: R.Tensor(("n", 4), "float32"), pair: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((), "float32"))):
        with R.dataflow():
            y = R.add(R.multiply(x, pair[0]), pair[1])
            s = R.sum(y)
            R.output(y, s)
        return (y, (s, x))


X = np.arange(12, dtype="float32").reshape(3, 4)
PAIR = (np.ones(4, "float32"), np.float32(2))


@pytest.fixture(params=["debug", "llvm"])
def scale(request):
    return relax.VirtualMachine(pullback.compile(Module, request.param), pullback.cpu())["scale"]


def test_nested_arguments_and_results(scale):
    y, (s, x) = scale(X, PAIR)
    np.testing.assert_array_equal(y.numpy(), X + 2)
    assert float(s) == (X + 2).sum()
    np.testing.assert_array_equal(x.numpy(), X)


def test_symbolic_sizes_specialize(scale):
    for n in (1, 3, 0, 7):
        x = np.ones((n, 4), "float32")
        y, (s, _) = scale(x, PAIR)
        assert y.shape == (n, 4)
        assert float(s) == 12 * n


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_sizes_of_all_arguments_have_to_agree(target):
    builder, n = relax.BlockBuilder(), tir.Var("n")
    sizes = {"x": (n, 4), "twice": (n * 2,), "same": (n,)}
    params = [relax.Var(name, relax.TensorStructInfo(shape, "float32")) for name, shape in sizes.items()]
    with builder.function("main", params), builder.dataflow():
        total = relax.op.sum(params[0]) + relax.op.sum(params[1]) + relax.op.sum(params[2])
        builder.emit_func_output(builder.emit_output(total))
    main = pullback.compile(builder.get(), target).function("main")
    ones = [np.ones(shape, "float32") for shape in ((3, 4), (6,), (3,))]
    assert float(main(*ones)) == 21
    for place, rows in ((0, (4, 4)), (1, (7,)), (1, (5,)), (2, (2,)), (2, (6,))):
        wrong = [np.ones(rows, "float32") if k == place else x for k, x in enumerate(ones)]
        with pytest.raises(ShapeError, match="must have shape"):
            main(*wrong)


def test_results_are_fresh(scale):
    first, (_, same) = scale(X, PAIR)
    before = first.numpy()
    second, _ = scale(X * 3, PAIR)
    assert first.data_ptr != second.data_ptr
    np.testing.assert_array_equal(first.numpy(), before)
    assert same.data_ptr != X.ctypes.data


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X,), ArgumentError, "scale takes 2 arguments, got 1"),
        ((X[0], PAIR), ShapeError, "scale: x must have shape (n, 4), got (4,)"),
        ((X.astype("float64"), PAIR), DTypeError, "scale: x must have dtype float32, got float64"),
        ((X, PAIR[:1]), ArgumentError, "scale: pair must be a tuple of 2 values, got 1 values"),
        ((X, (PAIR[0], np.ones(1, "float32"))), ShapeError, "scale: pair[1] must have shape (), got (1,)"),
    ],
)
def test_wrong_arguments(scale, args, error, message):
    with pytest.raises(error) as caught:
        scale(*args)
    assert message in str(caught.value)


def test_unknown_names():
    executable = pullback.compile(Module)
    with pytest.raises(NameNotFound, match="the executable has no function 'nothing'; it has: scale"):
        relax.VirtualMachine(executable)["nothing"]
    with pytest.raises(TargetError, match="unknown target kind 'vulkan'"):
        pullback.compile(Module, "vulkan")


def test_profile():
    machine = relax.VirtualMachine(pullback.compile(Module), pullback.cpu(), profile=True)
    report = machine.profile("scale", X, PAIR)
    assert report.calls and all(c.microseconds >= 0 for c in report.calls)
    assert "kernel" in str(report)


# -- the joined step


@pytest.fixture(scope="module")
def trainer_module():
    return mlp_trainer_module()


def test_profile_of_a_step(trainer_module):
    """Every kernel call is there, with its time, its arithmetic and its traffic; the arguments stay as they are."""
    machine = relax.VirtualMachine(pullback.compile(trainer_module), profile=True)
    tensors = step_arguments(trainer_module)
    before = [t.numpy().copy() for t in tensors]
    rest = iter(tensors)
    infos = [info for _, info in machine["__step"].signature.params]
    arguments = [[next(rest) for _ in i.fields] if hasattr(i, "fields") else next(rest) for i in infos]
    report = machine.profile("__step", *(tuple(a) if isinstance(a, list) else a for a in arguments))
    for tensor, values in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), values)
    assert len(report.calls) == len(machine["__step"].native().layout.steps)
    assert 0 < report.total <= report.wall
    batch, sizes = 8, (20, 12, 12, 12, 5)
    products = [2 * batch * a * b for a, b in itertools.pairwise(sizes)]
    assert sum(call.flops for call in report.calls) >= 3 * sum(products) - products[0]
    first = next(call for call in report.calls if call.name.startswith("fused_matmul_add_relu"))
    assert first.bytes >= 4 * (batch * 20 + 20 * 12 + 12 + batch * 12)


def test_native_step_is_the_interpreters(trainer_module):
    results = []
    for target in ("debug", "llvm"):
        tensors = step_arguments(trainer_module)
        bound = relax.VirtualMachine(pullback.compile(trainer_module, target)).bind("__step", tensors)
        losses = [float(bound()[0]) for _ in range(3)]
        results.append((losses, [tensors[i].numpy() for i in bound.donated]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_steps_neither_copy_nor_allocate(trainer_module):
    tensors = step_arguments(trainer_module)
    bound = relax.VirtualMachine(pullback.compile(trainer_module)).bind("__step", tensors)
    losses = [bound()[0]]
    pointers = [t.data_ptr for t in tensors]
    allocations = runtime.allocation_count()
    for _ in range(50):
        losses.append(bound()[0])
    assert runtime.allocation_count() - allocations <= 1  # losses share a slab: a new one once in 1,024 steps
    assert [t.data_ptr for t in tensors] == pointers
    values = [float(loss) for loss in losses]
    assert len({loss.data_ptr for loss in losses}) == len(losses)
    assert values == sorted(values, reverse=True)  # each kept its own value, and training goes on


def test_a_failed_check_changes_nothing(trainer_module):
    for target in ("debug", "llvm"):
        tensors = step_arguments(trainer_module)
        bound = relax.VirtualMachine(pullback.compile(trainer_module, target)).bind("__step", tensors)
        bound()
        before = [t.numpy() for t in tensors]
        labels = next(i for i, t in enumerate(tensors) if t.dtype == "int64" and t.shape == (8,))
        bound.set(labels, pullback.tensor(np.array([0, 1, 2, 3, 4, 0, 1, 5])))
        with pytest.raises(ArgumentError, match="class"):
            bound()
        for i, (tensor, old) in enumerate(zip(tensors, before, strict=True)):
            assert i == labels or tensor.numpy().tobytes() == old.tobytes()


def test_overlapping_donated_memory_is_refused(trainer_module):
    tensors = step_arguments(trainer_module)
    same = next(i for i, t in enumerate(tensors) if t.shape == (12, 12))
    other = next(i for i, t in enumerate(tensors) if t.shape == (12, 12) and i != same)
    tensors[other] = tensors[same]
    with pytest.raises(ArgumentError, match="share memory, and one is overwritten"):
        relax.VirtualMachine(pullback.compile(trainer_module)).bind("__step", tensors)


@pytest.mark.parametrize("shift", [-1, 0, 1, 143])
def test_memory_that_overlaps_in_part_is_refused(trainer_module, shift):
    """Two views of one array, of which one is overwritten; of neighbours nothing is said."""
    tensors = step_arguments(trainer_module)
    weights = [i for i, t in enumerate(tensors) if t.shape == (12, 12)]
    large = np.zeros(3 * 144, np.float32)
    first, second = (large[144 + s : 288 + s].reshape(12, 12) for s in (0, shift))
    machine = relax.VirtualMachine(pullback.compile(trainer_module))
    tensors[weights[0]], tensors[weights[1]] = pullback.tensor(first), pullback.tensor(second)
    with pytest.raises(ArgumentError, match=f"inputs {weights[0]} and {weights[1]} share memory"):
        machine.bind("__step", tensors)
    tensors[weights[1]] = pullback.tensor(large[288:].reshape(12, 12))
    bound = machine.bind("__step", tensors)
    with pytest.raises(ArgumentError, match=f"inputs {weights[1]} and {weights[0]} share memory"):
        bound.set(weights[1], pullback.tensor(second))


def test_inputs_are_replaced_by_their_like(trainer_module):
    """A prepared call looks at the type of each new input: the pointer is all that machine code gets."""
    tensors = step_arguments(trainer_module)
    bound = relax.VirtualMachine(pullback.compile(trainer_module)).bind("__step", tensors)
    at = next(i for i, t in enumerate(tensors) if t.shape == (12, 12))
    for wrong in (np.zeros((12, 12), "int32"), np.zeros((12, 12)), np.zeros((12, 11), "float32"), np.zeros(144, "f4")):
        with pytest.raises(ArgumentError, match=rf"input {at} must be Tensor\(\(12, 12\), float32\), got Tensor"):
            bound.set(at, pullback.tensor(wrong))
    for place in (-1, len(tensors)):
        with pytest.raises(ArgumentError, match=f"has {len(tensors)} inputs, there is no input {place}"):
            bound.set(place, tensors[at])
    before = tensors[at].numpy()
    bound.set(at, pullback.tensor(np.zeros((12, 12), "float32")))
    bound()
    np.testing.assert_array_equal(tensors[at].numpy(), before)


def test_read_only_memory_is_not_overwritten(trainer_module):
    tensors = step_arguments(trainer_module)
    weights = next(i for i, t in enumerate(tensors) if t.shape == (12, 12))
    array = tensors[weights].numpy()
    array.flags.writeable = False
    tensors[weights] = pullback.tensor(array)
    with pytest.raises(ArgumentError, match=f"input {weights} is overwritten, but its memory is read-only"):
        relax.VirtualMachine(pullback.compile(trainer_module)).bind("__step", tensors)


PARAMETERS_AFTER_20_STEPS = """
import hashlib, pullback
from pullback import relax
from tests.driver.models import mlp_trainer_module, step_arguments
module = mlp_trainer_module(sizes=(784, 128, 128, 10), batch=64)
tensors = step_arguments(module)
bound = relax.VirtualMachine(pullback.compile(module)).bind("__step", tensors)
for _ in range(20):
    bound()
print(hashlib.sha256(b"".join(tensors[i].numpy().tobytes() for i in bound.donated)).hexdigest())
"""


def run_python(code: str, **environment: str) -> str:
    """The output of a program in another process."""
    env = os.environ | {"PYTHONPATH": os.getcwd()} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_bits_do_not_depend_on_threads_or_runs():
    digests = [run_python(PARAMETERS_AFTER_20_STEPS, PULLBACK_NUM_THREADS=n) for n in ("1", "2", "3", "2")]
    assert len(set(digests)) == 1


def test_second_process_compiles_nothing(tmp_path):
    patched = (
        "import llvmlite.binding as b\ndef no(*a, **k): raise AssertionError('compiled')\n"
        "b.TargetMachine.emit_object = no\n"
    )
    environment = {"PULLBACK_CACHE_DIR": str(tmp_path)}
    first = run_python(PARAMETERS_AFTER_20_STEPS, **environment)
    assert run_python(patched + PARAMETERS_AFTER_20_STEPS, **environment) == first


def test_cache_may_be_damaged_or_deleted_at_any_time(tmp_path):
    environment = {"PULLBACK_CACHE_DIR": str(tmp_path)}
    first = run_python(PARAMETERS_AFTER_20_STEPS, **environment)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2 :] = b"\0" * (len(data) - len(data) // 2)
            path.write_bytes(data)
    assert run_python(PARAMETERS_AFTER_20_STEPS, **environment) == first
    delete = "import shutil, os\nshutil.rmtree(os.environ['PULLBACK_CACHE_DIR'])\n"
    assert run_python(PARAMETERS_AFTER_20_STEPS.replace("for _", delete + "for _"), **environment) == first


def test_two_trainers_in_two_threads(trainer_module):
    def train() -> str:
        tensors = step_arguments(trainer_module)
        bound = relax.VirtualMachine(executable).bind("__step", tensors)
        for _ in range(30):
            bound()
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()

    executable = pullback.compile(trainer_module)
    expected = train()
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(train())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected, expected]


def test_a_forked_worker_is_correct(trainer_module):
    tensors = step_arguments(trainer_module)
    bound = relax.VirtualMachine(pullback.compile(trainer_module)).bind("__step", tensors)
    bound()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, np.float64(float(bound()[0])).tobytes())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert np.frombuffer(os.read(reader, 8))[0] == float(bound()[0])


def test_zeros_get_their_memory_while_code_is_made(monkeypatch):
    """As the states of an optimizer do: when the code is there, so are they."""
    made = runtime.zeros((4, 4))
    arguments = [made, *(runtime.tensor(a) for a in PAIR)]

    def compile_function(*args):
        deadline = time.monotonic() + 30
        while made._memory.is_untouched:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return native.compile_function(*args)

    monkeypatch.setattr(executable, "compile_function", compile_function)
    result, *_ = relax.VirtualMachine(pullback.compile(Module)).bind("scale", arguments)()
    np.testing.assert_array_equal(np.asarray(result), np.full((4, 4), 2))


@I.ir_module
class Attention:
    @R.function
    def main(x: R.Tensor((70, 60), "float32"), w: R.Tensor((60, 50), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w))
            s = R.nn.softmax(R.matmul(h, R.permute_dims(h)))
            out = R.matmul(s, x)
            R.output(out)
        return out


def test_two_threads_hammer_one_machine():
    """Calls overlap: each has its arena, and results of its own; a bound call serves its callers one by one."""
    vm = pullback.VirtualMachine(pullback.compile(Attention, "llvm"))
    random = np.random.default_rng(0)
    w = random.standard_normal((60, 50)).astype("float32")
    inputs = [random.standard_normal((70, 60)).astype("float32") for _ in range(4)]
    expected = [vm["main"](x, w).numpy() for x in inputs]
    bound = vm.bind("main", [pullback.tensor(inputs[0]), pullback.tensor(w)])
    before, failures = runtime.get_num_threads(), []

    def hammer(first):
        for k in range(first, first + 200):
            wrong = (vm["main"](inputs[k % 4], w).numpy() != expected[k % 4]).any()
            if wrong or (bound()[0].numpy() != expected[0]).any():
                failures.append(k)

    try:
        for count in (1, 2, 3):
            runtime.set_num_threads(count)
            threads = [threading.Thread(target=hammer, args=(k,)) for k in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        runtime.set_num_threads(before)
    assert not failures
