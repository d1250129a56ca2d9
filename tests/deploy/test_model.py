"""The functions of model.h with right and wrong arguments; NumPy computes the same."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.deploy import fake
from tests.deploy.fake import ARGUMENT, BUSY, KEPT, OK, STATE, STEP, VALUE, Column, Model, Refused, Twin, aligned, data

ROOT = Path(__file__).parents[2]


def assert_same_kept(model, kept, exact=False):
    for key, value in model.state().items():
        if exact or value.dtype.kind != "f":
            np.testing.assert_array_equal(value, kept[key], err_msg=key)
        else:
            np.testing.assert_allclose(value, kept[key], rtol=1e-6, atol=1e-7, err_msg=key)


# ---- life ------------------------------------------------------------------------------------------------------------


def test_an_instance_begins_as_the_trainer_was_exported(model):
    assert_same_kept(model, KEPT, exact=True)
    assert (model.steps, model.epochs, model.error) == (5, 2, "")


def test_the_number_of_threads_has_bounds(full, built):
    program = full.fake_program()
    assert all(full.pb_model_bytes(program, threads) == 0 for threads in (-1, 0, 257, 2**31 - 1))
    assert full.pb_model_bytes(program, 256) > full.pb_model_bytes(program, 1) > 0
    assert full.pb_model_bytes(None, 1) == 0
    bare = built[False]
    assert bare.pb_model_bytes(bare.fake_program(), 1) > 0 == bare.pb_model_bytes(bare.fake_program(), 2)


def test_sizes_beyond_the_address_space_are_none(library):
    assert library.pb_model_bytes(library.fake_program_with(b"huge"), 1) == 0


def init(library, memory, size, threads=1, program=...):
    handle = ctypes.c_void_p(1)
    program = library.fake_program() if program is ... else program
    return library.pb_model_init(program, memory, size, threads, ctypes.byref(handle)), handle.value


def test_memory_must_be_enough_and_aligned(library):
    size = library.pb_model_bytes(library.fake_program(), 1)
    memory = aligned(size + 64)
    address = memory.ctypes.data
    assert init(library, address, size - 1) == (ARGUMENT, None)
    assert init(library, address + 32, size) == (ARGUMENT, None)
    assert init(library, address, 0) == (ARGUMENT, None)
    assert init(library, None, size) == (ARGUMENT, None)
    assert init(library, address, size, threads=0) == (ARGUMENT, None)
    assert init(library, address, size, program=None) == (ARGUMENT, None)
    assert library.pb_model_init(library.fake_program(), address, size, 1, None) == ARGUMENT
    status, handle = init(library, address, size)
    assert status == OK and handle is not None
    library.pb_model_close(handle)


def test_nothing_outside_the_memory_given_is_written(library):
    size = library.pb_model_bytes(library.fake_program(), 1)
    memory = aligned(size + 128)
    memory[:] = 0x5A
    status, handle = init(library, memory.ctypes.data + 64, size)
    assert status == OK
    x, scale, labels = data(4)
    loss = ctypes.c_double()
    for _ in range(3):
        inputs, targets = fake.pointers([x, scale]), fake.pointers([labels])
        assert library.pb_model_step(handle, inputs, targets, ctypes.byref(loss)) == OK
    library.pb_model_close(handle)
    assert (memory[:64] == 0x5A).all() and (memory[64 + size :] == 0x5A).all()


def test_functions_of_null(library):
    value, count = ctypes.c_double(), ctypes.c_int64()
    calls = {
        "reset": (), "step": (None, None, None), "run": (None,), "predict": (None, 1, None),
        "evaluate": (None, 1, None, None), "get": (0, None, 0), "set": (0, None, 0), "get_parameters": (None, 8),
        "set_parameters": (None, 8), "add_parameters": (None, 8, 1.0), "seed": (1,),
        "get_hyperparameter": (b"lr", ctypes.byref(value)), "set_hyperparameter": (b"lr", 0.1),
        "write": (fake.Write(), None, ctypes.byref(count)), "read": (fake.Read(), None, 8),
    }  # fmt: skip
    for name, arguments in calls.items():
        assert getattr(library, f"pb_model_{name}")(None, *arguments) == ARGUMENT, name
    assert library.pb_model_find(None, b"lr") == -1 and not library.pb_model_tensor(None, 0)
    assert library.pb_model_steps(None) == library.pb_model_epochs(None) == library.pb_model_parameter_count(None) == 0
    assert b"NULL" in library.pb_model_error(None)
    library.pb_model_close(None)


def test_every_status_has_a_text_of_its_own(library):
    texts = [library.pb_status_text(status) for status in range(10)]
    assert len(set(texts)) == 10
    assert all(library.pb_status_text(status) == b"an unknown status" for status in (-1, 10, 2**31 - 1))


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, and limits the address space")
def test_a_thread_that_cannot_be_started(full, tmp_path):
    """In a process that may have little more memory: the instance is not made, and a smaller one can be."""
    program = tmp_path / "program.py"
    program.write_text(
        "import resource, sys\n"
        "from tests.deploy.fake import MEMORY, Model, aligned, ctypes, data, open_library\n"
        "library = open_library(sys.argv[1])\n"
        "size = library.pb_model_bytes(library.fake_program(), 200)\n"
        "memory, handle = aligned(size), ctypes.c_void_p(1)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))\n"
        "for _ in range(3):\n"
        "    given = memory.ctypes.data, size, 200, ctypes.byref(handle)\n"
        "    assert library.pb_model_init(library.fake_program(), *given) == MEMORY\n"
        "    assert handle.value is None\n"
        "with Model(library, 2) as model:\n"
        "    model.step(*data(4))\n"
    )
    subprocess.run([sys.executable, program, full._name], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_reset_makes_all_as_it_was(model):
    before = model.snapshot()
    x, scale, labels = data(20)
    model.run(x, scale, labels, epochs=2)
    model.call("set_hyperparameter", b"lr", 0.5)
    assert model.snapshot() != before
    model.call("reset")
    assert model.snapshot() == before


def test_without_values_nothing_is_computed_before_a_checkpoint_is_read(library):
    with Model(library, program=library.fake_program_with(b"no values")) as model:
        with pytest.raises(Refused, match="no values yet: no weights are part of the library; read a checkpoint"):
            model.step(*data(4))
        with Model(library) as other:
            checkpoint = other.write()
        model.read(checkpoint)
        model.step(*data(4))
        model.call("reset")
        with pytest.raises(Refused, match="no values yet"):
            model.step(*data(4))


def test_instances_do_not_know_of_each_other(library):
    x, scale, labels = data(4)
    with Model(library) as first, Model(library) as second:
        first.step(x, scale, labels)
        assert_same_kept(second, KEPT, exact=True)
        assert first.steps == second.steps + 1
        with pytest.raises(Refused):
            second.step(x, scale, labels + 7)
        assert second.error and not first.error


# ---- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_train_as_numpy_does(built, threads):
    for library in (built[True], *((built[False],) if threads == 1 else ())):
        with Model(library, threads) as model:
            twin = Twin()
            for seed in range(10):
                x, scale, labels = data(4, seed)
                np.testing.assert_allclose(model.step(x, scale, labels), twin.step(x, scale, labels), rtol=1e-6)
            assert_same_kept(model, twin.kept)
            assert model.steps == 15


def test_tensors_may_lie_anywhere(model, library):
    """Those that are aligned are read in place, others are copied."""
    x, scale, labels = data(4)
    losses = []
    for shift in (0, 1, 4, 8, 63):
        places = [aligned(a.size, a.dtype, shift) for a in (x, scale, labels)]
        for place, array in zip(places, (x, scale, labels), strict=True):
            place[:] = array.reshape(-1)
        model.call("reset")
        losses.append(model.step(*places))
    assert len(set(losses)) == 1


def test_a_refused_step_changes_nothing(model):
    x, scale, labels = data(4)
    model.step(x, scale, labels)
    before = model.snapshot()
    with pytest.raises(Refused, match="a label is no class: they are from 0 to 1, or -1") as refused:
        model.step(x, scale, np.array([0, 1, 2, 0]))
    assert refused.value.status == STEP
    assert model.snapshot() == before
    model.step(x, scale, labels)


@pytest.mark.parametrize("missing", ["x", "scale", "labels"])
def test_a_missing_tensor_is_named(model, missing):
    arrays = {
        name: array if name != missing else None for name, array in zip(("x", "scale", "labels"), data(4), strict=True)
    }
    with pytest.raises(Refused, match=f"(input|target) {missing} is NULL") as refused:
        model.call("step", fake.pointers([arrays["x"], arrays["scale"]]), fake.pointers([arrays["labels"]]), None)
    assert refused.value.status == ARGUMENT
    with pytest.raises(Refused, match="is NULL"):
        model.call("step", None, None, None)


def test_the_loss_need_not_be_asked_for(model):
    x, scale, labels = data(4)
    model.call("step", fake.pointers([x, scale]), fake.pointers([labels]), None)
    assert model.steps == 6


# ---- predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("change", [None, b"single rows"])
def test_predictions_of_any_number_of_rows(library, rows, change):
    program = library.fake_program_with(change) if change else None
    with Model(library, program=program) as model:
        x, scale, _ = data(rows)
        np.testing.assert_allclose(model.predict(x, scale), Twin().outputs(x, scale), rtol=1e-6)
        assert_same_kept(model, KEPT, exact=True)


def test_predictions_of_whole_batches_alone(library):
    with Model(library, program=library.fake_program_with(b"no single rows")) as model:
        x, scale, labels = data(8)
        np.testing.assert_allclose(model.predict(x, scale), Twin().outputs(x, scale), rtol=1e-6)
        with pytest.raises(Refused, match=r"predicts 4 rows at a time: .* a multiple of that, got 7"):
            model.predict(x[:7], scale)
        with pytest.raises(Refused, match="evaluates 4 rows at a time"):
            model.evaluate(x[:7], scale, labels[:7])


def test_what_a_library_was_made_without(library):
    with Model(library, program=library.fake_program_with(b"no functions")) as model:
        x, scale, labels = data(4)
        for call in (
            lambda: model.step(x, scale, labels),
            lambda: model.predict(x, scale),
            lambda: model.evaluate(x, scale, labels),
            lambda: model.run(x, scale, labels, epochs=1),
        ):
            with pytest.raises(Refused, match="was made without code that") as refused:
                call()
            assert refused.value.status == STATE


def test_odd_predictions(model):
    x, scale, _ = data(4)
    y = np.zeros((4, 2), np.float32)
    odd = {
        "must not be negative, got -1": (fake.pointers([x, scale]), -1, fake.pointers([y])),
        "output y is NULL": (fake.pointers([x, scale]), 4, fake.pointers([None])),
        "input scale is NULL": (fake.pointers([x, None]), 4, fake.pointers([y])),
        "do not fit in memory": (fake.pointers([x, scale]), 2**62, fake.pointers([y])),
    }
    for message, arguments in odd.items():
        with pytest.raises(Refused, match=message) as refused:
            model.call("predict", *arguments)
        assert refused.value.status == ARGUMENT


# ---- evaluation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 13])
def test_evaluation(model, rows):
    x, scale, labels = data(rows, seed=3)
    loss, accuracy = model.evaluate(x, scale, labels)
    counted = labels != -1
    if not counted.any():
        assert np.isnan(loss) and np.isnan(accuracy)
        return
    right = Twin().outputs(x, scale).argmax(1) == labels
    np.testing.assert_allclose(loss, Twin().loss(x, scale, labels), rtol=1e-6)
    assert accuracy == right[counted].mean()


def test_evaluation_of_what_does_not_count(model):
    x, scale, labels = data(5)
    assert np.isnan(model.evaluate(x, scale, np.full_like(labels, -1))).all()
    assert np.isnan(model.evaluate(x, scale, labels, rows=0)).all()


def test_a_loss_that_adds_up_is_divided_by_the_rows(library):
    with Model(library, program=library.fake_program_with(b"adds up")) as model:
        x, scale, labels = data(6, missing=False)
        twin = Twin()
        parts = [slice(0, 4), slice(4, 5), slice(5, 6)]  # one batch, and two single rows
        total = sum(twin.loss(x[p], scale, labels[p]) for p in parts)
        np.testing.assert_allclose(model.evaluate(x, scale, labels)[0], total / 6, rtol=1e-6)


def test_without_classes_there_is_no_accuracy(library):
    with Model(library, program=library.fake_program_with(b"no classes")) as model:
        loss, accuracy = model.evaluate(*data(5))
        assert np.isfinite(loss) and np.isnan(accuracy)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("label_dtype", [None, "int64", "int8", "uint8", "uint64", "int32"])
def test_accuracy_compares_the_largest_scores_of_any_dtype(library, dtype, label_dtype):
    """Along an axis within; the first of equal ones counts, and what is no number is the largest, as in NumPy."""
    source = np.random.default_rng(2)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    scores = source.integers(-2, 3, (8, 3, 5)).astype(kind)
    if "float" in dtype:
        scores[0, 1, 2] = scores[3, 2, 0] = np.nan
    places = source.integers(0 if label_dtype in ("uint8", "uint64") else -1, 3, (8, 5))
    wanted = source.integers(-3, 3, (8, 3, 5)).astype(kind) if label_dtype is None else places.astype(label_dtype)
    labels = wanted.astype(np.float64).argmax(1) if label_dtype is None else places
    right = scores.astype(np.float64).argmax(1) == labels
    number = -1 if label_dtype is None else fake.DTYPES.index(label_dtype)
    with Model(library, program=library.fake_scores(fake.DTYPES.index(dtype), number)) as model:
        assert model.evaluate(scores, wanted) == (0.25, right[labels != -1].mean())


def test_an_output_without_rows(library):
    with Model(library, program=library.fake_program_with(b"an output without rows")) as model:
        x, scale, _ = data(8)
        np.testing.assert_allclose(model.predict(x[:4], scale), Twin().outputs(x[:4], scale), rtol=1e-6)
        for rows in (2, 5, 8):
            with pytest.raises(Refused, match=r"those of several batches cannot be joined: predict [14] rows, not"):
                model.predict(x[:rows], scale)


def test_evaluation_may_be_asked_for_nothing(model):
    model.call("evaluate", fake.columns(data(5)), 5, None, None)


def test_evaluation_says_which_label_is_wrong(model):
    x, scale, labels = data(5)
    labels[4] = 9
    with pytest.raises(Refused, match="a label is no class"):
        model.evaluate(x, scale, labels)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "float64", "bool"])
def test_labels_of_other_dtypes(model, dtype):
    x, scale, labels = data(9, missing=False)
    assert model.evaluate(x, scale, labels.astype(dtype)) == model.evaluate(x, scale, labels)


@pytest.mark.parametrize("dtype", fake.DTYPES[:-1])
def test_inputs_of_other_dtypes(model, dtype):
    source = np.random.default_rng(1)
    x = source.integers(0, 2, (9, 3)).astype(dtype)
    _, scale, labels = data(9)
    assert model.evaluate(x, scale, labels) == model.evaluate(x.astype(np.float32), scale, labels)


def test_odd_columns(model):
    x, scale, labels = data(4)
    good = fake.columns([x, scale, labels])
    with pytest.raises(Refused, match="the columns are NULL"):
        model.call("evaluate", None, 4, None, None)
    for dtype in (-1, 13, 2**31 - 1):
        bad = (Column * 3)(*good[:2], Column(labels.ctypes.data, dtype))
        with pytest.raises(Refused, match=f"target labels: there is no dtype {dtype}"):
            model.call("evaluate", bad, 4, None, None)
    with pytest.raises(Refused, match="input x is NULL"):
        model.call("evaluate", (Column * 3)(Column(None, 10), *good[1:]), 4, None, None)


@pytest.mark.parametrize(
    ("name", "dtype", "value", "message"),
    [
        ("x", "float64", 1e39, "input x: row 2, element 1 is the float64 1e.39, which float32 does not hold"),
        ("labels", "float64", 0.5, "target labels: row 2, element 0 is the float64 0.5, which int64 does not hold"),
        ("labels", "uint64", 2**63, "target labels: row 2, element 0 is the uint64 9.22337e.18, which int64"),
        ("labels", "float32", np.nan, "is the float32 nan, which int64 does not hold"),
    ],
)
def test_a_value_that_does_not_fit_is_named(model, name, dtype, value, message):
    arrays = dict(zip(("x", "scale", "labels"), data(5, missing=False), strict=True))
    arrays[name] = arrays[name].astype(dtype) if dtype != "uint64" else np.zeros(5, dtype)
    arrays[name][(2, 1) if name == "x" else 2] = value
    before = model.snapshot()
    for call in (
        lambda: model.evaluate(*arrays.values()),
        lambda: model.run(*arrays.values(), epochs=1, in_order=True),
    ):
        with pytest.raises(Refused, match=message) as refused:
            call()
        assert refused.value.status == VALUE
        assert model.snapshot() == before


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_tensors_are_found_by_name(model, library):
    names = ["linear.weight", "linear.bias", "seen", "flags", "empty", "random", "num_steps", "linear.weight.v"]
    names += ["linear.bias.v", "lr"]
    assert [model.find(name) for name in names] == list(range(10))
    assert model.find("nothing") == model.find("x") == model.find("") == -1
    assert library.pb_model_find(model.handle, None) == -1
    for number in (-1, 10, 2**31 - 1):
        assert not library.pb_model_tensor(model.handle, number)
    weight = library.pb_model_tensor(model.handle, 0).contents
    assert (weight.name, weight.key, weight.bytes, weight.shape[:2]) == (
        b"linear.weight",
        b"param.linear.weight",
        24,
        [3, 2],
    )


def test_tensors_are_set(model):
    new = np.arange(6, dtype=np.float32).reshape(3, 2)
    model.set("linear.weight", new)
    np.testing.assert_array_equal(model.get("linear.weight"), new)
    assert_same_kept(model, {**KEPT, "param.linear.weight": new}, exact=True)


def test_odd_gets_and_sets(model):
    values = np.zeros(6, np.float32)
    for call in ("get", "set"):
        for arguments, message in (
            ((-1, values.ctypes.data, 24), "there is no tensor -1: they are numbered from 0 to 9"),
            ((10, values.ctypes.data, 24), "there is no tensor 10"),
            ((0, values.ctypes.data, 23), "linear.weight has 24 bytes, not 23"),
            ((0, None, 24), "the memory for linear.weight is NULL"),
        ):
            with pytest.raises(Refused, match=message) as refused:
                model.call(call, *arguments)
            assert refused.value.status == ARGUMENT
    model.call("get", 4, None, 0)
    model.call("set", 4, None, 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("flags", np.array([1, 2, 0], np.uint8), "flags holds a byte that is neither true nor false: 2"),
        ("num_steps", np.array(-1), "the optimizer state num_steps, a count, is -1"),
        ("num_steps", np.array(2**63 - 1), "num_steps, a count, is 9.22337e.18: it must be >= 0 and less than 2.62"),
        ("lr", np.array(10.0), "lr must be a finite number >= 0 and < 10, got 10"),
        ("lr", np.array(np.nan), "lr must be a finite number >= 0 and < 10, got nan"),
    ],
)
def test_values_out_of_range_are_refused(model, name, value, message):
    before = model.snapshot()
    with pytest.raises(Refused, match=message) as refused:
        model.set(name, value)
    assert refused.value.status == VALUE
    assert model.snapshot() == before


# ---- all parameters --------------------------------------------------------------------------------------------------


def flat(kept=KEPT):
    return np.concatenate([kept[f"param.linear.{name}"].astype(np.float32).reshape(-1) for name in ("weight", "bias")])


def test_parameters_are_one_vector(model, library):
    assert library.pb_model_parameter_count(model.handle) == 8
    values = np.zeros(8, np.float32)
    model.call("get_parameters", values.ctypes.data, 8)
    np.testing.assert_array_equal(values, flat())
    new = np.arange(8, dtype=np.float32) / 3
    model.call("set_parameters", new.ctypes.data, 8)
    model.call("get_parameters", values.ctypes.data, 8)
    np.testing.assert_array_equal(values, new)
    assert model.get("linear.bias").dtype == np.float64
    delta = np.linspace(-1, 1, 8, dtype=np.float32)
    model.call("add_parameters", delta.ctypes.data, 8, -0.3)
    expected = new.astype(np.float64) - 0.3 * delta.astype(np.float64)
    np.testing.assert_array_equal(model.get("linear.weight").reshape(-1), expected[:6].astype(np.float32))
    np.testing.assert_array_equal(model.get("linear.bias"), expected[6:])
    before = model.snapshot()
    model.call("add_parameters", delta.ctypes.data, 8, 0.0)
    assert model.snapshot() == before


def test_odd_parameters(model):
    values, before = np.zeros(8, np.float32), model.snapshot()
    for name, extra in (("get_parameters", ()), ("set_parameters", ()), ("add_parameters", (1.0,))):
        for count in (-1, 0, 7, 9):
            with pytest.raises(Refused, match=f"the parameters have 8 elements, not {count}"):
                model.call(name, values.ctypes.data, count, *extra)
        with pytest.raises(Refused, match="the memory for the parameters is NULL"):
            model.call(name, None, 8, *extra)
    for scale in (np.nan, np.inf):
        with pytest.raises(Refused, match="the scale must be a finite number"):
            model.call("add_parameters", values.ctypes.data, 8, scale)
    large = np.full(8, 3e38, np.float32)
    with pytest.raises(Refused, match=r"a new value of parameter linear.weight, among elements 0 to 5") as refused:
        model.call("add_parameters", large.ctypes.data, 8, 1e300)
    assert refused.value.status == VALUE
    assert model.snapshot() == before


def test_constants_are_read_and_not_set(library):
    """Of a program whose weight and flags are part of the code: the bias is all that is left of the parameters."""
    with Model(library, program=library.fake_program_with(b"constants")) as model:
        assert_same_kept(model, KEPT, exact=True)
        before = model.snapshot()
        for name in ("linear.weight", "flags"):
            with pytest.raises(Refused, match=f"{name} cannot be set: it is a constant of the library") as refused:
                model.set(name, model.get(name))
            assert refused.value.status == ARGUMENT
        assert library.pb_model_parameter_count(model.handle) == 2
        values = np.zeros(2, np.float32)
        model.call("get_parameters", values.ctypes.data, 2)
        np.testing.assert_array_equal(values, KEPT["param.linear.bias"].astype(np.float32))
        with pytest.raises(Refused, match="the parameters have 2 elements, not 8"):
            model.call("set_parameters", np.zeros(8, np.float32).ctypes.data, 8)
        assert model.snapshot() == before
        model.call("set_parameters", np.array([3, 5], np.float32).ctypes.data, 2)
        model.call("add_parameters", np.array([1, 1], np.float32).ctypes.data, 2, 2.0)
        model.set("seen", np.array([8, 9]))
        changed = {"param.linear.bias": np.array([5.0, 7.0]), "state.seen": np.array([8, 9])}
        assert_same_kept(model, {**KEPT, **changed}, exact=True)
        model.call("reset")
        assert model.snapshot() == before


# ---- run-time values -------------------------------------------------------------------------------------------------


def test_a_hyperparameter_is_set(model):
    value = ctypes.c_double()
    model.call("set_hyperparameter", b"lr", 0.125)
    model.call("get_hyperparameter", b"lr", ctypes.byref(value))
    assert value.value == 0.125 == model.get("lr")
    twin, (x, scale, labels) = Twin(), data(4)
    twin.kept["optimizer.3"][...] = 0.125
    np.testing.assert_allclose(model.step(x, scale, labels), twin.step(x, scale, labels), rtol=1e-6)
    assert_same_kept(model, twin.kept)


def test_odd_hyperparameters(model):
    before = model.snapshot()
    for value in (-1e-9, 10.0, 11.0, np.inf, -np.inf, np.nan):
        with pytest.raises(Refused, match="lr must be a finite number >= 0 and < 10, got") as refused:
            model.call("set_hyperparameter", b"lr", value)
        assert refused.value.status == ARGUMENT
    value = ctypes.c_double()
    for name in (b"momentum", b"", None):
        with pytest.raises(Refused, match=r"the optimizer has no run-time value .*; it has: lr"):
            model.call("set_hyperparameter", name, 0.1)
        with pytest.raises(Refused, match=r"the optimizer has no run-time value .*; it has: lr"):
            model.call("get_hyperparameter", name, ctypes.byref(value))
    with pytest.raises(Refused, match="the memory for lr is NULL"):
        model.call("get_hyperparameter", b"lr", None)
    assert model.snapshot() == before


def test_a_rate_is_within_its_bounds_after_rounding(library):
    with Model(library, program=library.fake_program_with(b"a rate of single precision")) as model:
        with pytest.raises(Refused, match="lr must be a finite number >= 0 and < 10, got 10"):
            model.call("set_hyperparameter", b"lr", 9.999999999)
        model.call("set_hyperparameter", b"lr", 0.1)
        assert model.get("lr") == np.float32(0.1)


def test_a_loss_scale_is_not_negative(library):
    with Model(library, program=library.fake_program_with(b"a loss scale")) as model:
        for value in (-1.0, np.nan):
            with pytest.raises(Refused, match=r"the loss scale is (-1|nan)"):
                model.set("loss_scale", np.array(value))
        model.set("loss_scale", np.array(2.0))


def test_a_message_that_is_too_long_is_cut(library):
    with Model(library, program=library.fake_program_with(b"a long name")) as model:
        with pytest.raises(Refused) as refused:
            model.call("step", None, None, None)
        assert len(refused.value.message) == 511 and refused.value.message.endswith("nnn...")
        with pytest.raises(Refused, match="input scale is NULL"):  # the next is whole again
            model.call("step", fake.pointers([np.zeros(12, np.float32), None]), None, None)


def test_a_long_name_does_not_fill_a_message(model):
    with pytest.raises(Refused) as refused:
        model.call("set_hyperparameter", b"\x01\xff" + b"n" * 10000, 0.1)
    assert "??nnn" in refused.value.message and "..." in refused.value.message
    assert len(refused.value.message) < 512


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_a_second_call_of_an_instance_is_refused(model, library):
    """From a callback, which is as good as another thread, and does not depend on time."""
    x, scale, labels = data(8)
    y, found = np.zeros((8, 2), np.float32), {}

    def progress(step, epoch, ended, loss):
        handle = model.handle
        found["step"] = library.pb_model_step(handle, fake.pointers([x, scale]), fake.pointers([labels]), None)
        found["predict"] = library.pb_model_predict(handle, fake.pointers([x, scale]), 8, fake.pointers([y]))
        found["reset"] = library.pb_model_reset(handle)
        found["seed"] = library.pb_model_seed(handle, 1)
        found["get"] = library.pb_model_get(handle, 0, y.ctypes.data, 24)
        return 0

    run = model.run(x, scale, labels, epochs=1, progress=progress)
    assert run.steps_done == 2
    assert found and set(found.values()) == {BUSY}
    model.step(x[:4], scale, labels[:4])


def test_two_threads_never_share_an_instance(full):
    """Of many calls from two threads, each is done or refused, and the steps that were done are counted."""
    x, scale, labels = data(4)
    with Model(full, 2) as model:
        counts = {OK: 0, BUSY: 0}

        def work(done):
            for _ in range(500):
                status = full.pb_model_step(model.handle, fake.pointers([x, scale]), fake.pointers([labels]), None)
                done[status] += 1

        each = [dict(counts) for _ in range(2)]
        threads = [threading.Thread(target=work, args=(done,)) for done in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(done[OK] + done[BUSY] for done in each) == 1000
        assert model.steps == 5 + sum(done[OK] for done in each)


def test_instances_with_threads_of_their_own_run_side_by_side(full):
    x, scale, labels = data(4)
    models = [Model(full, threads) for threads in (1, 2, 3)]
    losses = [[] for _ in models]

    def work(model, found):
        found.extend(model.step(x, scale, labels) for _ in range(200))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(models, losses, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses[0] == losses[1] == losses[2] and len(losses[0]) == 200
    for model in models:
        model.close()


# ---- seeds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_a_seed_begins_random_numbers_anew(model, seed):
    x, scale, labels = data(12)
    model.run(x, scale, labels, epochs=1)
    model.call("seed", seed)
    np.testing.assert_array_equal(model.get("random"), np.array([seed, 0], np.uint64))
    first = model.run(x, scale, labels, epochs=1).loss
    model.call("reset")
    model.call("seed", seed)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(12)
    again = model.run(x[order], scale, labels[order], epochs=1, in_order=True).loss
    model.call("reset")
    model.call("seed", seed)
    assert model.run(x, scale, labels, epochs=1).loss == again
    assert first != again  # it had trained before
