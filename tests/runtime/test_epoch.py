"""The native loop over batches: gathering, conversion, slices of time. Its C test calls a step too."""

import itertools

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError
from pullback.runtime import Tensor, get_num_threads, set_num_threads
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.epoch import Column, Epoch, converts

RNG = np.random.default_rng(0)
PAIRS = [pair for pair in itertools.product(NUMPY_DTYPES, repeat=2) if converts(*map(NUMPY_DTYPES.get, pair))]


@pytest.fixture(autouse=True)
def same_threads_after():
    before = get_num_threads()
    yield
    set_num_threads(before)


def values(shape, dtype):
    """Numbers all over the dtype's range, its ends included."""
    kind = NUMPY_DTYPES[dtype]
    if kind.kind not in "iu":
        return RNG.standard_normal(shape).astype(kind) if dtype != "bool" else RNG.random(shape) < 0.5
    limits = np.iinfo(kind)
    result = RNG.integers(limits.min, limits.max, shape, kind, endpoint=True)
    result.flat[:2] = limits.min, limits.max
    return result


def gathered(source, dtype, order, size):
    """All whole batches of ``size`` rows, one after another."""
    batch = Tensor((size, *source.shape[1:]), dtype)
    epoch = Epoch([Column(source, batch)], order, 0, size, len(source) // size)
    found = []
    while epoch.left:
        epoch.gather()
        found.append(batch.numpy())
        epoch.count(0.5)
    assert epoch.loss_sum == 0.5 * epoch.done
    return np.concatenate(found)


def test_what_converts_changes_no_value():
    assert len(PAIRS) == len(NUMPY_DTYPES) + 5 * 3 + 2 * 2
    for source, wanted in PAIRS:
        assert source == wanted or np.can_cast(NUMPY_DTYPES[source], NUMPY_DTYPES[wanted], "safe")


@pytest.mark.parametrize(("source", "wanted"), PAIRS)
@pytest.mark.parametrize("row", [(), (3,), (5, 7), (0,)])
def test_rows_are_numpys(source, wanted, row):
    data, order = values((26, *row), source), RNG.permutation(26)
    for rows in (None, order):
        expected = data if rows is None else data[rows]
        np.testing.assert_array_equal(gathered(data, wanted, rows, 4), expected[:24].astype(NUMPY_DTYPES[wanted]))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_batches_are_gathered_by_all_threads(threads):
    set_num_threads(threads)
    data, order = values((50, 4000), "uint8"), RNG.permutation(50)
    np.testing.assert_array_equal(gathered(data, "float32", order, 17), data[order][:34].astype(np.float32))


def test_several_columns_and_a_later_beginning():
    x, y, order = values((10, 2), "float32"), values((10,), "int64"), RNG.permutation(10)
    tensors = Tensor((3, 2), "float32"), Tensor((3,), "int64")
    epoch = Epoch([Column(x, tensors[0]), Column(y, tensors[1])], order, 4, 3, 2)
    epoch.count(1.0)
    epoch.gather()
    np.testing.assert_array_equal(tensors[0].numpy(), x[order[7:10]])
    np.testing.assert_array_equal(tensors[1].numpy(), y[order[7:10]])
    epoch.count(1.0)
    with pytest.raises(ArgumentError, match="there is no batch 2: the epoch has 2"):
        epoch.gather()


def test_losses_weigh_as_their_divisors():
    epoch = Epoch([Column(values((8, 2), "float32"), Tensor((2, 2), "float32"))], None, 0, 2, 4)
    assert np.isnan(epoch.loss)
    for loss, divisor in ((float("nan"), 0.0), (1.5, 2.0), (0.25, 4.0), (float("inf"), 0.0)):
        epoch.count(loss, divisor)
    assert (epoch.loss, epoch.loss_sum, epoch.divisor_sum, epoch.left) == (0.25, 4.0, 6.0, 0)


def test_what_does_not_fit_is_refused():
    data, batch = values((10, 2), "float32"), Tensor((3, 2), "float32")
    with pytest.raises(ArgumentError, match="row 10 is out of range: the data set has 10 rows"):
        Epoch([Column(data, batch)], np.full(10, 10), 0, 3, 1).gather()
    for first, batches in ((0, 4), (2, 3), (-1, 1), (0, -1)):
        with pytest.raises(ArgumentError, match="do not fit in 10 rows"):
            Epoch([Column(data, batch)], None, first, 3, batches)
    with pytest.raises(ArgumentError, match="different numbers of rows"):
        Epoch([Column(data, batch), Column(data[:5], batch)], None, 0, 3, 1)
    with pytest.raises(ArgumentError, match="cannot be gathered"):
        Column(data[:, :1], batch)
    with pytest.raises(ArgumentError, match="dtype 11 can't become dtype 10"):
        Epoch([Column(data.astype(np.float64), batch)], None, 0, 3, 1).gather()
