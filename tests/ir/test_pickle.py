"""Nodes, modules, ops and errors survive pickle and copies; what is shared stays shared."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import IRModule, UserError, assert_structural_equal, errors, structural_hash
from pullback.ir.node import Span
from pullback.ir.op import Op
from pullback.relax import BlockBuilder, TensorStructInfo, Var, const, op
from pullback.script import from_source
from tests.errors.models import counting_trainer, linear

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def again(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", PROTOCOLS[2:])
def test_modules(protocol: int) -> None:
    for module in (linear, counting_trainer().mod, counting_trainer().vm.executable.module):
        found = again(module, protocol)
        assert list(found) == list(module) and type(found.attrs) is type(module.attrs)
        assert_structural_equal(found, module)
        assert structural_hash(found) == structural_hash(module)
        assert found.script() == module.script()


def test_functions_and_expressions_stay_what_they_are() -> None:
    function = linear["backbone"]
    found = again(function)
    assert found.attrs == function.attrs and found.span == function.span
    call = next(iter(found.bindings)).value
    assert call.args[0] is found.params[0], "a variable is one object, wherever it stands"
    assert call.op is Op.get("matmul")


def test_what_is_shared_stays_shared() -> None:
    x, c = Var("x", TensorStructInfo((2,), "float32")), const(np.ones(2, "float32"))
    first, second, (x_again, c_again) = again((op.add(x, c), op.multiply(x, c), (x, c)))
    assert first.args[0] is second.args[0] is x_again and first.args[1] is second.args[1] is c_again
    assert x_again is not x


def test_copies_of_nodes_are_the_nodes() -> None:
    function = linear["backbone"]
    assert copy.copy(function) is copy.deepcopy(function) is function


def test_copies_of_modules_are_modules_of_their_own() -> None:
    for make in (copy.copy, copy.deepcopy):
        found = make(linear)
        found["other"] = found["backbone"]
        found.attrs["param_num"] = 7
        assert "other" not in linear and linear.attrs["param_num"] != 7
        assert found["backbone"] is linear["backbone"]
    nested = IRModule({}, {"list": [1]})
    copy.deepcopy(nested).attrs["list"].append(2)
    assert nested.attrs["list"] == [1]


def test_every_op() -> None:
    assert all(again(value) is value is copy.deepcopy(value) for value in Op.registry.values())


def test_an_op_that_is_not_registered() -> None:
    found = object.__new__(Op)
    vars(found).update(vars(Op.get("add")))
    with pytest.raises(UserError, match=r"operator relax.add cannot be pickled: it is not registered"):
        pickle.dumps(found)
    data = pickle.dumps(Op.get("add")).replace(b"relax.add", b"relax.adx")
    with pytest.raises(UserError, match=r"there is no operator relax.adx in this process") as error:
        pickle.loads(data)
    assert "import the module that registers it" in str(error.value)


def test_kernels() -> None:
    module = from_source(
        """
@I.ir_module
class M:
    @T.prim_func
    def f(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i] + T.float32(1)
"""
    )
    found = again(module)
    assert_structural_equal(found, module)
    assert found["f"].digest == module["f"].digest


def test_executables_are_compiled_again() -> None:
    x = Var("x", TensorStructInfo((3,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.sin(x))
        builder.emit_func_output(out)
    value = np.arange(3, dtype="float32")
    for target in ("llvm", "debug"):
        executable = pullback.compile(builder.get(), target)
        expected = executable.function("main")(value).numpy()
        machine = pullback.VirtualMachine(executable, pullback.cpu())
        for make in (again, copy.deepcopy, copy.copy):
            np.testing.assert_array_equal(make(executable).function("main")(value), expected)
            np.testing.assert_array_equal(make(machine)["main"](value), expected)
            np.testing.assert_array_equal(make(machine["main"])(value), expected)


def test_targets() -> None:
    for text in ("llvm", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"):
        target = pullback.target.Target(text)
        assert again(target) == copy.deepcopy(target) == target
    assert b"x86" not in pickle.dumps(pullback.target.Target("llvm")), "it is that of the machine where it is read"


ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.PullbackError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind: Any) -> None:
    span = Span("model.py", 3, 4, 9, "    x = f(y)")
    given = kind("it failed", span=span, hint="do this") if issubclass(kind, UserError) else kind("it failed")
    given.__cause__ = ValueError("why")
    for make in (again, copy.copy, copy.deepcopy):
        found = make(given)
        assert type(found) is kind and str(found) == str(given) and found.args == given.args
        if isinstance(given, UserError):
            assert (found.message, found.span, found.hint) == (given.message, given.span, given.hint)


def test_an_error_of_another_process() -> None:
    """As ``multiprocessing`` brings it back."""
    program = (
        "import pickle, sys, pullback\n"
        "try: pullback.script.from_source('@R.function\\ndef f(x: R.Tensor((2,), \"float33\")):\\n    return x')\n"
        "except pullback.ir.UserError as error: sys.stdout.buffer.write(pickle.dumps(error))"
    )
    found = pickle.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert isinstance(found, UserError) and found.span is not None and "^" in str(found)
