"""Keys of compiled code: whatever it depends on changes them, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback import relax, te
from pullback.driver import keys as module
from pullback.driver import native
from pullback.driver.keys import function_key, object_key
from pullback.driver.options import Options
from pullback.driver.pipeline import prepare
from pullback.ir import IRModule, Op, UserError
from pullback.ir.op import define, is_packaged
from pullback.relax import op
from pullback.relax.op import register_gradient, register_op
from pullback.relax.op.register import _TE_GRADIENTS, register_te_gradient
from pullback.schedule.tuning import Choice, Choices
from pullback.script import from_source
from pullback.target import Target
from pullback.tir import loop, store
from pullback.tir.stmt import FLUSH_SUBNORMALS

HOST = Target("llvm")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The registry of ops and their rules."""
    ops, gradients = dict(Op.registry), dict(_TE_GRADIENTS)
    rules = {o: dict(o.__dict__) for o in ops.values()}
    yield
    Op.registry.clear()
    Op.registry.update(ops)
    _TE_GRADIENTS.clear()
    _TE_GRADIENTS.update(gradients)
    for o, fields in rules.items():
        o.__dict__.update(fields)


def replaced(name: str, function: Any, **options: Any) -> Op:
    """The op of that name, now with this formula: as in a process in which the file was edited."""
    Op.registry.pop(f"relax.{name}", None)
    return register_op(name, **options)(function)


def key_of(make: Any, *types: Any, sizes: dict[str, int] | None = None, function: str = "main") -> str:
    """The key of a function of one expression."""
    params = [relax.Var(f"x{k}", relax.TensorStructInfo(*t)) for k, t in enumerate(types or [((4, 3), "float32")])]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    built = builder.get()
    if function != "main":
        built = relax.transform.Gradient("main")(built)
    return function_key(prepare(built), function, sizes or {}, HOST)


def shifted(number: float) -> Any:
    def shift(x):
        return te.compute(x.shape, lambda *i: x[i] + number, "shift")

    return shift


def helped(number: float) -> Any:
    def helper(value):
        return value * number

    def shift(x):
        return te.compute(x.shape, lambda *i: helper(x[i]), "shift")

    return shift


_number = 1.0


def of_a_global(number: float) -> Any:
    def shift(x):
        globals()["_number"] = number
        return te.compute(x.shape, lambda *i: x[i] + _number, "shift")

    return shift


def of_a_table(number: float) -> Any:
    table = np.array([1.0, 2.0, number])

    def shift(x):
        return te.compute(x.shape, lambda i, j: x[i, j] + float(table[-1]), "shift")

    return shift


def of_a_default(number: float) -> Any:
    def shift(x, *, by=number):
        return te.compute(x.shape, lambda *i: x[i] + by, "shift")

    return shift


def of_two_results(number: float) -> Any:
    def shift(x):
        first = te.compute(x.shape, lambda *i: x[i] + 1.0, "first")
        return first, te.compute(x.shape, lambda *i: x[i] + number, "second")

    return shift


def summed(number: float) -> Any:
    def shift(x):
        k = te.reduce_axis(3)
        return te.compute((4,), lambda i: te.sum(x[i, k.var] * number, k), "sum")

    return shift


@pytest.mark.parametrize(
    "family", [shifted, helped, of_a_global, of_a_table, of_a_default, summed], ids=lambda f: f.__name__
)
def test_the_formula_of_an_own_op(family):
    found = []
    for number in (1.0, 3.0, 1.0):
        own = replaced("own.shift", family(number))
        found.append((key_of(own), key_of(lambda x, own=own: op.exp(own(x)))))
    first, other, again = found
    assert first == again, "the same formula has the same key, whoever defines it"
    assert not set(first) & set(other)


def test_the_second_result_of_an_own_op():
    own = [replaced("own.shift", of_two_results(number)) for number in (1.0, 3.0, 1.0)]
    first, other, again = (key_of(lambda x, o=o: relax.TupleGetItem(o(x), 0)) for o in own)
    assert first == again != other


def test_the_formula_for_the_sizes_of_the_call():
    """A function may look at the shape: it is asked for the one that is compiled."""

    def family(number):
        def shift(x):
            by = number if isinstance(x.shape[0], int) and x.shape[0] > 4 else 0.0
            return te.compute(x.shape, lambda *i: x[i] + by, "shift")

        return shift

    n = pullback.tir.Var("n", "int64")
    for size in (4, 5):
        found = [key_of(replaced("own.shift", family(k)), ((n, 3), "float32"), sizes={"n": size}) for k in (1.0, 3.0)]
        assert len(set(found)) == (1 if size == 4 else 2)


def test_an_own_op_in_a_function_that_is_called():
    def key(number: float) -> str:
        own = replaced("own.shift", shifted(number))
        builder = relax.BlockBuilder()
        x, y = (relax.Var(n, relax.TensorStructInfo((4, 3), "float32")) for n in "xy")
        with builder.function("inner", [x]):
            with builder.dataflow():
                out = builder.emit_output(own(x))
            builder.emit_func_output(out)
        with builder.function("main", [y]):
            with builder.dataflow():
                out = builder.emit_output(builder.get().get_global_var("inner")(y))
            builder.emit_func_output(out)
        return function_key(prepare(builder.get()), "main", {}, HOST)

    assert key(1.0) == key(1.0) != key(3.0)


def test_an_own_op_that_was_legalized():
    def key(number: float) -> str:
        own = replaced("own.shift", shifted(number))
        x = relax.Var("x", relax.TensorStructInfo((4, 3), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                out = builder.emit_output(own(x))
            builder.emit_func_output(out)
        return function_key(prepare(relax.transform.LegalizeOps()(builder.get())), "main", {}, HOST)

    assert key(1.0) == key(1.0) != key(3.0)


def info_of(x):
    return x


@pytest.mark.parametrize("rules", [
    lambda k: {"te": shifted(k)},
    lambda k: {"kernel": lambda ins, outs: loop("i", 4, lambda i: loop("j", 3, lambda j: store(outs[0], (i, j), k)))},
    lambda k: {"decompose": lambda x, training: op.multiply(x, relax.const(np.float32(k)))},
    lambda k: {"te": shifted(1.0), "check": lambda x: te.compute((), lambda: x[0, 0] < k), "check_message": "no"},
    lambda k: {"te": shifted(1.0), "check": lambda x: te.compute((), lambda: x[0, 0] < 1.0), "check_message": f"{k}"},
], ids=["te", "kernel", "decompose", "check", "message"])  # fmt: skip
def test_the_rules_of_an_op_that_somebody_defines(rules):
    """As the package defines its own ops."""

    def key(number: float) -> str:
        Op.registry.pop("relax.own.shift", None)
        return key_of(define("own.shift", "x", infer=info_of, **rules(number)))

    assert key(1.0) == key(1.0) != key(3.0)


def test_an_op_of_the_package_with_another_rule():
    before, untouched = key_of(op.nn.relu), key_of(op.exp)
    object.__setattr__(Op.get("nn.relu"), "te", shifted(1.0))
    assert not is_packaged(Op.get("nn.relu"))
    one = key_of(op.nn.relu)
    object.__setattr__(Op.get("nn.relu"), "te", shifted(3.0))
    assert len({before, one, key_of(op.nn.relu)}) == 3
    assert untouched


def test_an_op_of_the_package_that_was_exchanged():
    """Others are made of it, and ask for it by name."""

    def family(number: float) -> Any:
        def rule(x):
            return te.compute(x.shape, lambda *i: x[i] * number, "negative")

        return rule

    x = ((4, 3), "float32")
    found = {key_of(op.nn.softmin, x)}
    for number in (1.0, 3.0):
        Op.registry.pop("relax.negative")
        define("negative", "x", infer=info_of, te=family(number))
        found.add(key_of(op.nn.softmin, x))
    assert len(found) == 3


def test_a_gradient_that_was_replaced():
    keys = []
    for number in (1.0, 3.0, 1.0):
        register_gradient("nn.relu", lambda dy, y, x, k=number: [op.multiply(dy, relax.const(np.float32(k)))])
        keys.append(key_of(lambda x: op.sum(op.nn.relu(x)), function="main_adjoint"))
    assert keys[0] == keys[2] != keys[1]


def test_the_gradient_of_an_own_op():
    """By rule, and by its loops."""

    def rule(number: float) -> Any:
        return lambda dy, y, x: [op.multiply(dy, relax.const(np.float32(number)))]

    def by_loops(number: float) -> Any:
        def shift(x):
            return te.compute(x.shape, lambda *i: x[i] * number, "shift")

        return shift

    for make in (lambda k: replaced("own.shift", shifted(1.0), gradient=rule(k)),
                 lambda k: replaced("own.shift", by_loops(k))):  # fmt: skip
        keys = [key_of(lambda x, k=k, m=make: op.sum(m(k)(x)), function="main_adjoint") for k in (1.0, 3.0, 1.0)]
        assert keys[0] == keys[2] != keys[1]


WITH_TE_GRADIENT = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(a: T.Buffer((3,), "float32"), b: T.Buffer((3,), "float32")):
        for i in range(3):
            b[i] = a[i] * T.float32(2.0)
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Module
        with R.dataflow():
            y = R.call_tir_with_grad(cls.kernel, (x,), out_sinfo=R.Tensor((3,), "float32"), te_grad_name="own.grad")
            z = R.sum(y)
            R.output(z)
        return z
"""


def test_a_te_gradient():
    keys = []
    for number in (1.0, 3.0, 1.0):
        register_te_gradient("own.grad", lambda dy, x, k=number: te.compute(x.shape, lambda i: dy[i] * k))
        built = relax.transform.Gradient("main")(from_source(WITH_TE_GRADIENT))
        keys.append(function_key(prepare(built), "main_adjoint", {}, HOST))
    assert keys[0] == keys[2] != keys[1]


def test_the_meaning_for_the_interpreter_is_no_part_of_the_code():
    """So nothing is folded by it: the key does not know what it depends on."""
    results = []
    for number in (1.0, 3.0):
        own = replaced("own.shift", shifted(1.0), numpy=lambda x, k=number: x + np.float32(k))
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                out = builder.emit_output(op.add(own(relax.const(np.zeros(2, "float32"))), x))
            builder.emit_func_output(out)
        results.append(pullback.compile(builder.get())["main"](np.zeros(2, "float32")).numpy().tolist())
    assert results == [[1.0, 1.0]] * 2


# ---- constants, sizes, names


@pytest.mark.parametrize("one, other", [
    (np.zeros(3, "float32"), np.zeros(3, "int32")),
    (np.zeros(3, "float32"), np.zeros((3, 1), "float32")),
    (np.array([0.0, 0.0, 0.0], "float32"), np.array([0.0, 0.0, -0.0], "float32")),
    (np.array([1, 0, 1], bool), np.array([1, 0, 1], "uint8")),
    (np.array([1, 0, 1], bool), np.array([1, 1, 1], bool)),
    (np.arange(100_000, dtype="float32"), np.r_[np.arange(99_999, dtype="float32"), np.float32(0)]),
    (np.array([1, 2, 3], "float16"), np.array([1, 2, 3], "float16").view(ml_dtypes.bfloat16)),
    (np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))),
    (np.array([np.nan], "float32"), np.array([0x7FC00001], "uint32").view("float32")),
], ids=str)  # fmt: skip
def test_constants_count_with_type_and_shape_and_every_byte(one, other):
    def key(value: Any) -> str:
        built = from_source("""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = x
        return y, VALUE
""", extra_vars={"VALUE": relax.const(value)})  # fmt: skip
        return function_key(prepare(built), "main", {}, HOST)

    assert key(one) == key(one.copy()) != key(other)


@pytest.mark.parametrize("one, other", [
    (lambda x: op.sum(x, axis=0), lambda x: op.sum(x, axis=1)),
    (lambda x: op.sum(x, axis=0), lambda x: op.sum(x, axis=0, keepdims=True)),
    (lambda x: op.clip(x, 0.0, 1.0), lambda x: op.clip(x, -0.0, 1.0)),
    (lambda x: op.exp(x), lambda x: op.log(x)),
    (lambda x: op.subtract(x, op.exp(x)), lambda x: op.subtract(op.exp(x), x)),
])  # fmt: skip
def test_attributes_and_operands(one, other):
    assert key_of(one) == key_of(one) != key_of(other)


def test_sizes_belong_to_their_variables():
    """Which are known by their places: names alone do not say which of two it is."""

    def key(first: str, second: str, **sizes: int) -> str:
        m, n = (pullback.tir.Var(name, "int64") for name in (first, second))
        return key_of(op.exp, ((m, n), "float32"), sizes=sizes)

    assert key("m", "n", m=2, n=3) != key("n", "m", m=2, n=3)
    assert key("m", "n", m=2, n=3) != key("m", "n", m=3, n=2)
    assert key("m", "n", m=2, n=3) == key("m", "n", n=3, m=2)


def test_names_that_a_report_of_memory_shows():
    def key(name: str) -> str:
        built = prepare(from_source(PROGRAM.replace("x: R", f"{name}: R").replace("exp(x)", f"exp({name})")))
        return function_key(built, "main", {}, HOST)

    assert key("x") == key("x") != key("data")


@pytest.mark.parametrize("call, shown", [("R.take(x, i, 0)", True), ("R.nn.nll_loss(x, i)", True), ("x + x", False)])
def test_places_that_messages_show(call, shown):
    """The place of a call that looks at values is in its message; that of another is nowhere in the code."""

    def key(before: str) -> str:
        text = "@R.function\ndef main(x: R.Tensor((4, 3), 'float32'), i: R.Tensor((4,), 'int64')):\n"
        built = prepare(IRModule({"main": from_source(f"{text}{before}    y = {call}\n    return y\n", file="m.py")}))
        return function_key(built, "main", {}, HOST)

    assert key("") == key("")
    assert (key("") != key("    # another line\n")) is shown


def test_types_of_parameters():
    kinds = [((4, 3), "float32"), ((3, 4), "float32"), ((4, 3), "float64"), ((12,), "float32")]
    assert len({key_of(op.exp, kind) for kind in kinds}) == 4


# ---- everything else


def test_each_option_counts():
    base = Options((), False, Choices())
    others = [
        Options(("Contraction",), False, Choices()),
        Options((), True, Choices()),
        Options((), False, Choices({"k/0": Choice(((0, 3),), 16, (3, 16))})),
        Options((), False, Choices({"k/0": Choice(((0, 3),), 16, (3, 32))})),
        Options((), False, Choices({"k/1": Choice(((0, 3),), 16, (3, 16))})),
    ]
    assert len({o.key for o in (base, *others)}) == 6
    assert set(Options.__dataclass_fields__) == {"without", "poison", "choices"}, "and is here"
    built = prepare(from_source(PROGRAM))
    assert len({function_key(built, "main", {}, HOST, o) for o in (base, *others)}) == 6


PROGRAM = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 3), "float32")):
        y = R.exp(x)
        return y
    @R.function
    def other(x: R.Tensor((4, 3), "float32")):
        y = R.exp(x)
        return y
"""


@pytest.mark.parametrize("name, value, changes", [
    ("PULLBACK_WITHOUT", "Reduction", True),
    ("PULLBACK_POISON", "1", True),
    ("PULLBACK_VERIFY", "0", False),
    ("PULLBACK_DEBUG", "1", False),
    ("PULLBACK_NUM_THREADS", "3", False),
])  # fmt: skip
def test_the_environment(monkeypatch, name, value, changes):
    built = prepare(from_source(PROGRAM))
    before = function_key(built, "main", {}, HOST)
    monkeypatch.setenv(name, value)
    assert (function_key(built, "main", {}, HOST) != before) == changes


def test_the_pipeline_reads_the_environment_in_one_place(monkeypatch):
    """What it reads besides is no part of the code: the ladder, and whether a plan is checked."""
    read = []

    class Environment(dict):
        def get(self, name, default=None):
            read.append(name)
            return super().get(name, default)

    built = prepare(from_source(PROGRAM))
    options = Options.of(HOST)
    monkeypatch.setattr(os, "environ", Environment(os.environ))
    native._make(built, "main", {}, HOST, options)
    assert {name for name in read if name.startswith("PULLBACK")} <= {
        "PULLBACK_DEBUG", "PULLBACK_VERIFY", "PULLBACK_CACHE", "PULLBACK_CACHE_DIR",
    }  # fmt: skip


def test_the_mode_of_numbers_and_nothing_else_of_the_modules_attributes():
    built = prepare(from_source(PROGRAM))

    def key(**attrs: Any) -> str:
        return function_key(built.with_attrs(attrs), "main", {}, HOST)

    assert key(**{FLUSH_SUBNORMALS: True}) != key() == key(author="somebody")


def test_what_is_compiled_is_what_the_key_was_made_of(monkeypatch):
    """The pipeline gets no more of the module."""
    seen: list[IRModule] = []
    plan_function = native.plan_function

    def plan(part, *rest):
        seen.append(part)
        return plan_function(part, *rest)

    monkeypatch.setenv("PULLBACK_CACHE", "off")
    monkeypatch.setattr(native, "plan_function", plan)
    whole = from_source(PROGRAM).with_attrs({"author": "somebody", FLUSH_SUBNORMALS: True})
    pullback.compile(whole)["main"](np.zeros((4, 3), "float32"))
    (part,) = seen
    assert list(part.functions) == ["main"] and part.attrs == {FLUSH_SUBNORMALS: True}


def test_the_target_and_the_name_and_the_compiler(monkeypatch):
    built = prepare(from_source(PROGRAM))
    targets = [HOST, Target("llvm -mtriple=x86_64-linux-gnu"), Target("llvm -mtriple=aarch64-linux-gnu"),
               Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
               Target("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2")]  # fmt: skip
    keys = [function_key(built, "main", {}, t) for t in targets] + [function_key(built, "other", {}, HOST)]
    keys += [object_key("kernel.1", t) for t in targets] + [object_key("kernel.2", HOST)]
    monkeypatch.setattr(module, "compiler_fingerprint", lambda: "another")
    keys += [function_key(built, "main", {}, HOST), object_key("kernel.1", HOST)]
    assert len(set(keys)) == len(keys) == 14


def test_kinds_of_entries_have_their_own_keys():
    built = prepare(from_source(PROGRAM))
    key = function_key(built, "main", {}, HOST)
    assert not object_key(key, HOST).startswith("function") and object_key(key, HOST) != key


EDITED = """
import sys
import numpy as np
import pullback
from pullback import relax, te
from pullback.relax.op import register_op

@register_op("own.shift")
def shift(x):
    return te.compute(x.shape, lambda *i: x[i] + NUMBER, "shift")

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        out = builder.emit_output(shift(x))
    builder.emit_func_output(out)
print(pullback.compile(builder.get())["main"](np.zeros(3, "float32")).numpy().tolist())
"""


def test_an_own_op_in_a_file_that_is_edited(tmp_path):
    file = tmp_path / "program.py"
    environment = os.environ | {"PULLBACK_CACHE_DIR": str(tmp_path / "c"), "PULLBACK_DEBUG": "1"}
    environment["PYTHONPATH"] = os.getcwd()
    for number, source in (("1.0", "compiled"), ("3.0", "compiled"), ("1.0", "read from")):
        file.write_text(EDITED.replace("NUMBER", number))
        done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{[float(number)] * 3}\n" and f"main: {source}" in done.stderr


def test_an_own_op_whose_formula_fails():
    """The error is that of the pipeline."""

    def shift(x):
        if x.shape == (2, 2):
            raise UserError("no squares")
        return te.compute(x.shape, lambda *i: x[i], "shift")

    own = replaced("own.shift", shift)
    with pytest.raises(UserError, match="no squares"):
        key_of(own, ((2, 2), "float32"))
