"""Functions by registered name: in the interpreter and in native code, of Python and of C, with gradients."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import (
    ArgumentError,
    DifferentiationError,
    IRModule,
    NameNotFound,
    ShapeError,
    UserError,
    assert_structural_equal,
)
from pullback.relax.op import register_packed_gradient
from pullback.relax.transform import DeadCodeElimination, EliminateCommonSubexpr, Gradient
from pullback.runtime.packed import Array
from pullback.runtime.registry import get_global_func, list_global_func_names, register_func, remove_global_func
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R

X, Y = np.arange(6, dtype="float32").reshape(2, 3), np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
TARGETS = ["debug", "llvm"]


@pytest.fixture
def functions():
    """Registers functions for a test."""
    names = []

    def add(name, function):
        names.append(name)
        register_func(name, function, override=True)

    yield add
    for name in names:
        remove_global_func(name)


def module_of(body: str, params: str = "x: R.Tensor((2, 3), 'float32'), y: R.Tensor((2, 3), 'float32')") -> IRModule:
    lines = "\n    ".join(body.splitlines())
    return IRModule({"main": from_source(f"@R.function(pure=False)\ndef main({params}):\n    {lines}\n")})


def run(module: IRModule, target: str, *arrays: np.ndarray, name: str = "main"):
    return pullback.compile(module, target).function(name)(*arrays)


TENSOR = "R.Tensor((2, 3), 'float32')"
SUM = module_of(f"z = R.call_pure_packed('t.f', R.exp(x), y, sinfo_args={TENSOR})\nreturn R.multiply(z, z)")


# -- the registry


def test_the_registry():
    @register_func("partb.double")
    def double(x):
        return 2 * x

    try:
        assert pullback.get_global_func("partb.double") is double and get_global_func("partb.double")(4) == 8
        assert "partb.double" in list_global_func_names()
        with pytest.raises(ArgumentError, match=r"partb.double.*already") as error:
            pullback.register_func("partb.double", abs)
        assert error.value.hint
        register_func("partb.double", abs, override=True)
        assert get_global_func("partb.double") is abs
    finally:
        remove_global_func("partb.double")
    assert get_global_func("partb.double", allow_missing=True) is None
    with pytest.raises(NameNotFound, match=r"no global function 'partb.double'") as error:
        get_global_func("partb.double")
    assert error.value.hint and isinstance(error.value, ValueError)


# -- calls


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_of_python(functions, target):
    seen = []

    def f(a, b):
        assert isinstance(a, pullback.Tensor)
        seen.append((a.shape, b.dtype))
        return a.numpy() + 10 * b.numpy()

    functions("t.f", f)
    np.testing.assert_allclose(run(SUM, target, X, Y).numpy(), (np.exp(X) + 10 * Y) ** 2, rtol=1e-5)
    assert seen == [((2, 3), "float32")]
    functions("t.f", lambda a, b: pullback.tensor(a.numpy() * 0))  # found when it runs, not when it is compiled
    assert not run(SUM, target, X, Y).numpy().any()


@pytest.mark.parametrize("target", TARGETS)
def test_several_results_and_dtypes(functions, target):
    functions("t.split", lambda a: (a.numpy()[0], np.array(a.numpy().sum(), "float64"), a.numpy() > 2))
    infos = "[R.Tensor((3,), 'float32'), R.Tensor((), 'float64'), R.Tensor((2, 3), 'bool')]"
    module = module_of(f"z = R.call_packed('t.split', x, sinfo_args={infos})\nreturn z")
    row, total, large = run(module, target, X, Y)
    np.testing.assert_array_equal(row.numpy(), X[0])
    assert total.dtype == "float64" and float(total.numpy()) == X.sum()
    np.testing.assert_array_equal(large.numpy(), X > 2)


@pytest.mark.parametrize("target", TARGETS)
def test_no_arguments_no_elements_and_symbolic_sizes(functions, target):
    functions("t.seven", lambda: np.full((2,), 7.0, "float32"))
    module = module_of("z = R.call_packed('t.seven', sinfo_args=R.Tensor((2,), 'float32'))\nreturn z")
    np.testing.assert_array_equal(run(module, target, X, Y).numpy(), [7, 7])
    functions("t.rows", lambda a: a.numpy()[:, 0])
    module = module_of(
        "n = T.int64()\nz = R.call_packed('t.rows', x, sinfo_args=R.Tensor((n,), 'float32'))\nreturn z",
        "x: R.Tensor(('n', 3), 'float32')",
    )
    for rows in (2, 0):
        np.testing.assert_array_equal(run(module, target, X[:rows]).numpy(), X[:rows, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_its_arguments_are_its_own(functions, target):
    def spoil(a):
        values = a.numpy()
        if values.flags.writeable:
            values[...] = -1
        return np.ones((2, 3), "float32")

    functions("t.spoil", spoil)
    module = module_of(f"e = R.exp(x)\nz = R.call_packed('t.spoil', e, sinfo_args={TENSOR})\nreturn R.add(z, e)")
    np.testing.assert_allclose(run(module, target, X, Y).numpy(), np.exp(X) + 1, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_calls_with_effects_stay(functions, target):
    log = []

    def note(a):
        log.append(float(a.numpy().sum()))
        return a

    functions("t.note", note)
    call = f"sinfo_args={TENSOR})"
    module = module_of(
        f"a = R.call_packed('t.note', x, {call}\nb = R.call_packed('t.note', x, {call}\n"
        f"c = R.call_packed('t.note', y, {call}\nd = R.call_pure_packed('t.note', y, {call}\nreturn R.exp(x)"
    )
    for pass_ in (DeadCodeElimination(), EliminateCommonSubexpr()):
        work = pass_(module)
        assert sum("call_packed" in str(b.value) for b in work["main"].bindings) == 3
    run(module, target, X, Y)
    expected = [15.0, 15.0, float(Y.sum())]
    if target == "debug":
        assert log[:3] == expected
    else:
        assert log == expected, "the pure call is left out, the others come in their order"


@pytest.mark.parametrize("target", TARGETS)
def test_equal_pure_calls_are_one(functions, target):
    count = []
    functions("t.pure", lambda a: count.append(1) or a)
    call = f"R.call_pure_packed('t.pure', x, sinfo_args={TENSOR})"
    module = module_of(
        f"with R.dataflow():\n    a = {call}\n    b = {call}\n    c = R.add(a, b)\n    R.output(c)\nreturn c"
    )
    np.testing.assert_array_equal(run(module, target, X, Y).numpy(), 2 * X)
    assert len(count) == (2 if target == "debug" else 1)


@pytest.mark.parametrize("target", TARGETS)
def test_in_a_loop(functions, target):
    functions("t.add", lambda a, b: a.numpy() + b.numpy())
    body = f"z = x\nfor i in R.range(3):\n    z = R.call_packed('t.add', z, y, sinfo_args={TENSOR})\nreturn z"
    np.testing.assert_allclose(run(module_of(body), target, X, Y).numpy(), X + Y + Y + Y, rtol=1e-6)


# -- what goes wrong


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (None, NameNotFound, r"no global function 't\.g'"),
        (lambda a, b: np.zeros((3, 2), "float32"), ArgumentError, r"result 0 of the function 't\.g' must be float32"),
        (lambda a, b: np.zeros((2, 3)), ArgumentError, "it is float64"),
        (lambda a, b: (a, b), ArgumentError, "must give 1 results, it gave 2"),
        (lambda a, b: None, ArgumentError, "must give 1 results, it gave 0"),
    ],
)
def test_functions_that_do_not_fit(functions, target, function, error, message):
    if function is not None:
        functions("t.g", function)
    module = module_of(f"z = R.call_packed('t.g', x, y, sinfo_args={TENSOR})\nreturn z")
    with pytest.raises(error, match=message) as caught:
        run(module, target, X, Y)
    assert caught.value.hint


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_that_raises(functions, target):
    def fail(a, b):
        raise ZeroDivisionError("of its own")

    functions("t.g", fail)
    module = module_of(f"z = R.call_packed('t.g', x, y, sinfo_args={TENSOR})\nreturn z")
    with pytest.raises((ZeroDivisionError, ArgumentError), match="of its own"):
        run(module, target, X, Y)
    functions("t.g", lambda a, b: a)  # and the next call is as if nothing had been
    np.testing.assert_array_equal(run(module, target, X, Y).numpy(), X)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: R.call_packed("f", x), ShapeError, "sinfo_args must be tensors of known shape"),
        (lambda x: R.call_packed("f", x, sinfo_args=R.Object()), ShapeError, "sinfo_args must be tensors"),
        (lambda x: R.call_packed("", x, sinfo_args=R.Tensor((1,))), UserError, "takes the name"),
        (lambda x: R.call_pure_packed(len, x, sinfo_args=R.Tensor((1,))), UserError, "takes the name"),
        (lambda x: R.call_packed("f", R.shape([1]), sinfo_args=R.Tensor((1,))), ShapeError, "argument of 'f'"),
    ],
)
def test_calls_that_do_not_fit(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(relax.Var("x", R.Tensor((2,))))
    assert caught.value.hint


def test_text():
    text = SUM.script()
    assert 'R.call_pure_packed("t.f", gv, y, sinfo_args=R.Tensor((2, 3), "float32"))' in text
    assert_structural_equal(from_source(text), SUM)
    several = module_of("z = R.call_packed('t', x, sinfo_args=[R.Tensor((2,)), R.Tensor((), 'int64')])\nreturn z")
    assert_structural_equal(from_source(several.script()), several)


# -- gradients


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["ours", "the reference's"])
def test_a_gradient_by_registration(functions, target, form):
    functions("t.product", lambda a, b: a.numpy() * b.numpy())
    if form == "ours":
        register_packed_gradient("t.product", lambda dy, y, a, b: (dy * b, dy * a))
    else:

        @register_packed_gradient("t.product")
        def rule(orig_var, orig_call, output_grad, ctx):
            a, b = orig_call.args
            assert orig_call.attrs["func"] == "t.product"
            return [ctx.emit(R.multiply(output_grad, b)), R.multiply(output_grad, a)]

    module = module_of(f"z = R.call_pure_packed('t.product', R.exp(x), y, sinfo_args={TENSOR})\nreturn R.sum(z)")
    value, (dx, dy) = run(Gradient("main")(module), target, X, Y, name="main_adjoint")
    np.testing.assert_allclose(value.numpy(), (np.exp(X) * Y).sum(), rtol=1e-5)
    np.testing.assert_allclose(dx.numpy(), np.exp(X) * Y, rtol=1e-5)
    np.testing.assert_allclose(dy.numpy(), np.exp(X), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_gradient_that_is_a_registered_function(functions, target):
    functions("t.square", lambda a: a.numpy() ** 2)
    functions("t.square_adjoint", lambda dy, a: 2 * dy.numpy() * a.numpy())
    register_packed_gradient(
        "t.square", lambda dy, y, a: [R.call_pure_packed("t.square_adjoint", dy, a, sinfo_args=a.struct_info)]
    )
    module = module_of(f"z = R.call_pure_packed('t.square', x, sinfo_args={TENSOR})\nreturn R.sum(z)")
    _, (dx, dy) = run(Gradient("main")(module), target, X, Y, name="main_adjoint")
    np.testing.assert_allclose(dx.numpy(), 2 * X)
    np.testing.assert_array_equal(dy.numpy(), np.zeros((2, 3)))


def test_without_a_gradient():
    module = module_of(f"z = R.call_pure_packed('t.none', x, sinfo_args={TENSOR})\nreturn R.sum(z)")
    with pytest.raises(DifferentiationError, match=r"'t\.none' has no gradient") as error:
        Gradient("main")(module)
    assert "register_packed_gradient" in error.value.hint
    stopped = module_of(f"z = R.call_pure_packed('t.none', R.grad.no_grad(x), sinfo_args={TENSOR})\nreturn R.sum(z)")
    Gradient("main")(stopped)


# -- functions of C

SOURCE = """
#include <stdint.h>
#include <string.h>
typedef struct pb_array { void *data; const int64_t *shape; int64_t ndim; const char *dtype; } pb_array;
int32_t weighted(const pb_array *arrays, int32_t inputs, int32_t outputs)
{
    if (inputs != 2 || outputs != 1 || arrays[0].ndim != 2 || strcmp(arrays[0].dtype, "float32"))
        return 3;
    int64_t rows = arrays[0].shape[0], columns = arrays[0].shape[1];
    const float *a = arrays[0].data, *b = arrays[1].data;
    float *out = arrays[2].data;
    for (int64_t i = 0; i < rows * columns; i++)
        out[i] = a[i] + 10 * b[i];
    return 0;
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_of_c(functions, target, tmp_path):
    path = tmp_path / "weighted.c"
    path.write_text(SOURCE)
    library = tmp_path / "weighted.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, path], check=True)
    functions("t.f", ctypes.CDLL(str(library)).weighted)
    np.testing.assert_allclose(run(SUM, target, X, Y).numpy(), (np.exp(X) + 10 * Y) ** 2, rtol=1e-5)
    module = module_of("z = R.call_packed('t.f', x, sinfo_args=R.Tensor((1,)))\nreturn z")
    with pytest.raises(ArgumentError, match=r"'t\.f' failed with status 3") as error:
        run(module, target, X, Y)
    assert error.value.hint


def test_a_callback_of_ctypes(functions):
    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Array), ctypes.c_int32, ctypes.c_int32)
    def fill(arrays, inputs, outputs):
        arrays[2].view()[...] = arrays[0].view() - arrays[1].view()
        return 0

    functions("t.f", fill)
    np.testing.assert_allclose(run(SUM, "llvm", X, Y).numpy(), (np.exp(X) - Y) ** 2, rtol=1e-4, atol=1e-4)


def test_in_a_module_that_is_trained(functions):
    functions("t.scale", lambda a: 3 * a.numpy())
    register_packed_gradient("t.scale", lambda dy, y, a: [dy * 3.0])

    @I.ir_module
    class Model:
        I.module_attrs({"param_num": 1, "state_num": 0})

        @R.function
        def backbone(x: R.Tensor((4, 2), "float32"), w: R.Tensor((2, 2), "float32")):
            y = R.call_pure_packed("t.scale", R.matmul(x, w), sinfo_args=R.Tensor((4, 2), "float32"))
            return y

    from pullback.relax.training import SetupTrainer, Trainer
    from pullback.relax.training.loss import MSELoss
    from pullback.relax.training.optimizer import SGD

    module = SetupTrainer(MSELoss(), SGD(0.01), [R.Tensor((4, 2)), R.Tensor((4, 2))])(Model)
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module), pullback.cpu()), pullback.cpu())
    x = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
    w = np.ones((2, 2), "float32")
    trainer.load_params([w])
    trainer.update(x, np.zeros((4, 2), "float32"))
    gradient = 2 * 9 * x.T @ (x @ w) / 8
    np.testing.assert_allclose(trainer.params["w"].numpy(), w - 0.01 * gradient, rtol=1e-4)
