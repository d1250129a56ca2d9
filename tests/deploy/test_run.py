"""Runs over data sets: which rows come in which order, what is counted, and who ends them."""

import ctypes

import numpy as np
import pytest

from tests.deploy import fake
from tests.deploy.fake import ARGUMENT, STEP, VALUE, Model, Progress, Refused, Run, Twin, data
from tests.deploy.test_model import assert_same_kept


def epoch(twin, order, x, scale, labels):
    """One in NumPy: the losses of its steps, and the mean over the rows that count."""
    losses, counted = [], []
    for begin in range(0, len(order) - 3, 4):
        rows = order[begin : begin + 4]
        losses.append(twin.step(x[rows], scale, labels[rows]))
        counted.append((labels[rows] != -1).sum())
    return losses, float(np.dot(losses, counted) / sum(counted))


@pytest.mark.parametrize("rows", [4, 5, 21])
@pytest.mark.parametrize("in_order", [False, True])
def test_epochs_are_those_of_numpy(model, rows, in_order):
    x, scale, labels = data(rows)
    twin, random = Twin(), fake.generator()
    run = model.run(x, scale, labels, epochs=3, in_order=in_order)
    for _ in range(3):
        order = np.arange(rows) if in_order else random.permutation(rows)
        _, mean = epoch(twin, order, x, scale, labels)
    np.testing.assert_allclose(run.loss, mean, rtol=1e-5)
    assert run.steps_done == 3 * (rows // 4)
    assert model.epochs == 5
    assert_same_kept(model, twin.kept)
    again = fake.checkpoint(twin.kept, fake.metadata(twin.kept, random.bit_generator.state, 5))
    own = model.write()
    random_of = lambda file: file[file.index(b"bit_generator") : file.index(b"uinteger") + 24]  # noqa: E731
    assert random_of(own) == random_of(again)


def test_what_is_told_while_it_runs(model):
    x, scale, labels = data(10)
    told = []
    run = model.run(x, scale, labels, epochs=2, progress=lambda *values: told.append(values) or 0)
    twin, random = Twin(), fake.generator()
    expected, step = [], 5
    for number in (2, 3):
        losses, mean = epoch(twin, random.permutation(10), x, scale, labels)
        for loss in losses:
            step += 1
            expected.append((step, number, 0, loss))
        expected.append((step, number + 1, 1, mean))
    assert [values[:3] for values in told] == [values[:3] for values in expected]
    np.testing.assert_allclose([v[3] for v in told], [v[3] for v in expected], rtol=1e-5)
    assert run.loss == told[-1][3]


def test_so_many_steps(model):
    """Over as many epochs as they take; the last, which is not complete, does not count."""
    x, scale, labels = data(9)
    twin, random = Twin(), fake.generator()
    run = model.run(x, scale, labels, steps=5)
    for steps in (2, 2, 1):
        order = random.permutation(9)
        losses, _ = epoch(twin, order[: 4 * steps], x, scale, labels)
    assert (run.steps_done, model.steps, model.epochs) == (5, 10, 4)
    np.testing.assert_allclose(run.loss, losses[0], rtol=1e-5)
    assert_same_kept(model, twin.kept)


@pytest.mark.parametrize(("end", "steps", "epochs"), [(1, 1, 2), (2, 2, 3), (3, 2, 3), (4, 3, 3)])
def test_the_caller_ends_it(model, end, steps, epochs):
    """At the end-th call; what is complete then counts."""
    calls = []
    run = model.run(*data(8), epochs=3, progress=lambda *told: calls.append(told) or len(calls) == end)
    assert (len(calls), run.steps_done, model.epochs) == (end, steps, epochs)
    assert model.error == ""


def test_the_context_is_handed_on(model):
    found = []
    x, scale, labels = data(4)
    progress = Progress(lambda context, *told: found.append(context) or 0)
    run = Run(fake.columns([x, scale, labels]), 4, 1, 0, 1, None, progress, 4711)
    model.call("run", ctypes.byref(run))
    assert found == [4711, 4711]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 3}, "a step takes 4 rows: the data set must have so many at least, not 3"),
        ({"rows": -1}, "a step takes 4 rows"),
        ({"epochs": 0}, "one of epochs and steps must be a positive number, the other 0, got 0 and 0"),
        ({"steps": 1}, "got 1 and 1"),
        ({"epochs": -1}, "got -1 and 0"),
        ({"epochs": 0, "steps": -2}, "got 0 and -2"),
        ({"order": None}, "there is no memory for the order of rows"),
        ({"rows": 2**31}, "a random order takes up to 2147483647 rows, got 2147483648"),
        ({"rows": 2**62, "in_order": 1}, "4611686018427387904 rows do not fit in memory"),
        ({"columns": None}, "the columns are NULL"),
    ],
)
def test_odd_runs(model, fields, message):
    x, scale, labels = data(8)
    order = np.zeros(8, np.int32)
    run = Run(fake.columns([x, scale, labels]), 8, 1, 0, 0, order.ctypes.data)
    before = model.snapshot()
    for name, value in fields.items():
        setattr(run, name, value)
    with pytest.raises(Refused, match=message) as refused:
        model.call("run", ctypes.byref(run))
    assert refused.value.status == ARGUMENT
    assert run.steps_done == 0 and np.isnan(run.loss)
    assert model.snapshot() == before


def test_no_run(model):
    with pytest.raises(Refused, match="the run is NULL"):
        model.call("run", None)


def test_what_was_trained_before_a_wrong_label_stays(model):
    x, scale, labels = data(12, missing=False)
    labels[9] = 5
    with pytest.raises(Refused, match="step 8: a label is no class") as refused:
        model.run(x, scale, labels, epochs=1, in_order=True)
    assert refused.value.status == STEP and refused.value.run.steps_done == 2
    twin = Twin()
    losses = [twin.step(x[rows], scale, labels[rows]) for rows in (slice(0, 4), slice(4, 8))]
    np.testing.assert_allclose(refused.value.run.loss, np.mean(losses), rtol=1e-5)
    assert_same_kept(model, twin.kept)
    assert model.epochs == 2


def test_a_run_that_fails_at_once_draws_no_random_numbers(model):
    x, scale, _ = data(8)
    before = model.snapshot()
    with pytest.raises(Refused):
        model.run(x, scale, np.full(8, 9), epochs=1)
    assert model.snapshot() == before


def test_rows_are_converted(model):
    x, _, labels = data(8, missing=False)
    pixels = (x * 50).astype(np.int16)
    first = model.run(pixels, np.array(0.5, np.float32), labels.astype(np.uint8), epochs=2)
    kept = model.state()
    model.call("reset")
    second = model.run(pixels.astype(np.float32), np.array(0.5), labels, epochs=2)
    assert first.loss == second.loss
    assert_same_kept(model, kept, exact=True)


def test_which_value_of_a_random_order_does_not_fit(model):
    x, scale, labels = data(8)
    given = labels.astype(np.float64)
    given[6] = 0.25
    with pytest.raises(Refused, match=r"target labels: row 6, element 0 is the float64 0.25, which int64") as refused:
        model.run(x, scale, given, epochs=5)
    assert refused.value.status == VALUE


def test_rows_are_gathered_by_all_threads(full):
    x, scale, labels = data(4096, missing=False)
    results = []
    for threads in (1, 4):
        with Model(full, threads) as model:
            run = model.run(x.astype(np.float64), scale, labels.astype(np.int8), epochs=1)
            results.append((run.loss, model.predict(x, scale).tobytes()))
    assert results[0] == results[1]
