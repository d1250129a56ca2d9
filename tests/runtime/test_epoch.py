"""The native loop over batches: gathering, conversion, slices of time. Its C test calls a step too."""

import itertools

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, DTypeError
from pullback.runtime import Tensor, get_num_threads, set_num_threads
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.epoch import Column, Epoch, always_fits, cast

RNG = np.random.default_rng(0)
PAIRS = list(itertools.product(NUMPY_DTYPES, repeat=2))


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


def gathered(source, dtype, order, size, exact=True):
    """All whole batches of ``size`` rows, one after another."""
    batch = Tensor((size, *source.shape[1:]), dtype)
    epoch = Epoch([Column(source, batch, exact)], order, 0, size, len(source) // size)
    found = []
    while epoch.left:
        epoch.gather()
        found.append(batch.numpy())
        epoch.count(0.5)
    assert epoch.loss_sum == 0.5 * epoch.done
    return np.concatenate(found)


def test_what_always_fits_is_what_numpy_casts_safely():
    known = [name for name in NUMPY_DTYPES if name != "bfloat16"]
    for source, wanted in itertools.product(known, repeat=2):
        found = always_fits(NUMPY_DTYPES[source], NUMPY_DTYPES[wanted])
        # NumPy also calls these safe: an int64 becomes a rounded float64
        rounds = (source, wanted) in (("int64", "float64"), ("uint64", "float64"))
        assert found == (np.can_cast(source, wanted, "safe") and not rounds), (source, wanted)
    to_half = [s for s in NUMPY_DTYPES if always_fits(NUMPY_DTYPES[s], NUMPY_DTYPES["bfloat16"])]
    of_half = [w for w in NUMPY_DTYPES if always_fits(NUMPY_DTYPES["bfloat16"], NUMPY_DTYPES[w])]
    assert to_half == ["bool", "int8", "uint8", "bfloat16"] and of_half == ["float32", "float64", "bfloat16"]


def fitting(shape, source, wanted):
    """Numbers of one dtype that another holds, if rounded where both or the other are floats."""
    kind, other = NUMPY_DTYPES[source], NUMPY_DTYPES[wanted]
    data = values(shape, source)
    if "bool" in (source, wanted):
        return (RNG.random(shape) < 0.5).astype(kind)
    if other.kind in "iu":
        limits, own = np.iinfo(other), np.iinfo(kind) if kind.kind in "iu" else None
        low, high = (max(limits.min, own.min), min(limits.max, own.max)) if own else (max(limits.min, -256), 127)
        data = RNG.integers(low, high, shape, np.int64 if low < 0 else np.uint64, endpoint=True)
        data.flat[:2] = low, high
    elif wanted == "float16" and kind.kind in "iu":
        data = np.clip(data, -65504 if kind.kind == "i" else 0, 65504) if kind.itemsize > 2 else data
        data = np.minimum(data, 65504) if source == "uint16" else data
    return data.astype(kind)


@pytest.mark.parametrize(("source", "wanted"), PAIRS)
def test_rows_are_numpys(source, wanted):
    order = RNG.permutation(26)
    for row, rows in itertools.product([(), (3,), (5, 70), (0,)], (None, order)):
        data = fitting((26, *row), source, wanted)
        expected = (data if rows is None else data[rows])[:24].astype(NUMPY_DTYPES[wanted])
        found = gathered(data, wanted, rows, 4, exact=False)
        assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


HALVES = np.arange(2**16, dtype=np.uint16)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half_and_what_lies_around_it(half):
    """Each of the 65536, both ways, and numbers halfway to the next and just beside these."""
    kind = NUMPY_DTYPES[half]
    every = HALVES.view(kind)
    every = every[~np.isnan(every)]
    for wide in ("float32", "float64"):
        found = cast(every, np.dtype(wide), True, "x")
        np.testing.assert_array_equal(found, every.astype(wide))
        assert (np.signbit(found) == np.signbit(every)).all()
        finite = np.sort(found[np.isfinite(found)])
        middle = finite[:-1] + np.diff(finite) / 2
        for around in (finite, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)):
            around = around.astype(wide)
            np.testing.assert_array_equal(cast(around, kind, False, "x"), around.astype(kind))
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-300, -1e-300])
    found, expected = (a.astype(np.float64) for a in (cast(special, kind, False, "x"), special.astype(kind)))
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[1:].all()


COMMON = [
    ("bool", "float32"), ("uint8", "float32"), ("int8", "float32"), ("uint16", "float32"), ("int16", "float32"),
    ("uint8", "int64"), ("int32", "int64"), ("float32", "float64"), ("float64", "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "wanted"), COMMON)
def test_what_data_sets_often_hold_in_rows_of_any_length(source, wanted):
    for length in range(2, 20):
        data = values((3, length), source)
        np.testing.assert_array_equal(
            cast(data, NUMPY_DTYPES[wanted], False, "x"), data.astype(NUMPY_DTYPES[wanted]), strict=True
        )


def test_a_double_that_no_float32_is_as_large_as_in_every_place():
    largest = float(np.finfo(np.float32).max)
    halfway = largest + 2.0**103  # to what would be the next one
    rounded = [halfway * (1 - 1e-16), largest, np.inf, -np.inf, np.nan, 1e-300, -0.0]
    for length, place in ((n, i) for n in (1, 7, 8, 9, 16, 19) for i in range(n)):
        data = np.ones((1, length))
        for value in rounded:
            data[0, place] = value
            found = cast(data, np.dtype(np.float32), False, "x")
            np.testing.assert_array_equal(found, data.astype(np.float32), strict=True)
        for value in (halfway, -halfway, 1e300):
            data[0, place] = value
            with pytest.raises(DTypeError, match=rf"at index \(0, {place}\)"):
                cast(data, np.dtype(np.float32), False, "x")


MISFITS = [
    ("float64", "float32", 1e300), ("float64", "float16", 65520.0), ("float32", "float16", -1e5),
    ("float64", "bfloat16", 3.4e38), ("float32", "bfloat16", -3.4e38), ("int64", "float16", 2**40),
    ("uint64", "float16", 2**64 - 1), ("uint16", "float16", 65535), ("int32", "float16", -65520),
    ("float64", "int64", np.nan), ("float32", "int32", np.inf), ("float64", "int64", 2.0**63),
    ("float64", "uint64", 2.0**64), ("float64", "uint8", -1.0), ("float64", "int8", 0.5), ("float16", "bool", 2.0),
    ("float64", "int64", -(2.0**64)), ("bfloat16", "uint8", 256.0), ("int64", "int32", 2**40),
    ("int64", "uint64", -1), ("uint64", "int64", 2**63), ("int8", "uint8", -1), ("uint8", "int8", 128),
    ("int16", "bool", -1), ("uint64", "bool", 2**63 + 1), ("int64", "uint8", 256), ("uint32", "int32", 2**31),
]  # fmt: skip


@pytest.mark.parametrize(("source", "wanted", "value"), MISFITS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_value_that_does_not_fit_is_named(source, wanted, value, threads):
    set_num_threads(threads)
    data = np.ones((9, 3, 400), NUMPY_DTYPES[source])
    data[5, 1, 300] = data[5, 2, 7] = data[7, 0, 0] = value
    message = rf"^the pixels must be {wanted}, got {source} whose values would change: .* at index \(5, 1, 300\)"
    batch = Tensor((9, 3, 400), wanted)
    columns = [Column(data, batch, False, "the pixels")]
    for order in (None, RNG.permutation(np.r_[:5, 7:9, 5:7])):
        where = message if order is None else message.replace("5, 1, 300", r"\d, \d, \d*")
        with pytest.raises(DTypeError, match=where):
            Epoch(columns, order, 0, 9, 1).gather()
    with pytest.raises(DTypeError, match=message):
        columns[0].copy(0, 9)
    with pytest.raises(DTypeError, match=message):
        cast(data, NUMPY_DTYPES[wanted], False, "the pixels")
    with pytest.raises(DTypeError, match=r"would change: [^\n]*\n"):
        cast(data[5, 1, 300], NUMPY_DTYPES[wanted], False, "the pixels")
    columns[0].copy(0, 5)
    np.testing.assert_array_equal(batch.numpy()[:5], 1)


EXACT = [
    ("float64", "float32", 0.1), ("float32", "float16", 0.1), ("float64", "bfloat16", 257.0),
    ("int32", "float32", 2**24 + 1), ("int64", "float64", 2**53 + 1), ("uint64", "float64", 2**64 - 1),
    ("uint64", "float32", 2**63 + 1), ("int64", "float32", 2**63 - 1), ("int64", "bfloat16", 257),
    ("uint8", "bfloat16", None), ("float16", "bfloat16", 0.1), ("bfloat16", "float16", 1e-30),
]  # fmt: skip


@pytest.mark.parametrize(("source", "wanted", "value"), EXACT)
def test_exactly(source, wanted, value):
    """What is rounded without ``exact`` is refused with it; NaN stays NaN."""
    data = np.ones((4, 300), NUMPY_DTYPES[source])
    if data.dtype.kind not in "iu":
        data[1, 1] = np.nan
    found, expected = gathered(data, wanted, None, 2), data.astype(NUMPY_DTYPES[wanted])
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    if value is None:
        return
    data[2, 299] = value
    found, expected = gathered(data, wanted, None, 2, exact=False), data.astype(NUMPY_DTYPES[wanted])
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    with pytest.raises(DTypeError, match=r"would change: .* at index \(2, 299\)"):
        gathered(data, wanted, None, 2)


@pytest.mark.parametrize("wanted", ["float32", "float64", "float16"])
def test_rows_with_strides(wanted):
    """Views of an array are gathered as they lie, with no copy of the whole."""
    base = values((12, 6, 8, 4), "float32")
    unaligned = np.zeros(12 * 8, np.dtype([("tag", "u1"), ("x", "f4", (2,))]))
    unaligned["x"] = values((96, 2), "float32")
    views = [
        base[::2], base[::-1], base[:, ::2], base[..., 1], base[:, 2, :, ::3], base.transpose(0, 3, 1, 2), base.T,
        base[:, ::-1], base[:, None, :, 1:3], np.broadcast_to(base[0, 0], (5, 8, 4)), np.asfortranarray(base[..., 0]),
        unaligned["x"], base[:, :, :, 0:0], np.broadcast_to(base[:, :1], (12, 6, 8, 4)), base[:, 0, 0, 0],
    ]  # fmt: skip
    for view in views:
        order, size = RNG.permutation(len(view)), 2
        found = gathered(view, wanted, order, size, exact=False)
        np.testing.assert_array_equal(found, view[order][: len(found)].astype(wanted))


def test_rows_are_copied_to_a_place():
    data, batch = values((10, 3), "int16"), Tensor((8, 3), "float32")
    column = Column(data, batch)
    column.copy(4, 2, 6)
    np.testing.assert_array_equal(batch.numpy()[6:], data[4:6])
    for wrong in ((9, 2, 0), (0, 1, 8), (-1, 1, 0), (0, -1, 0), (0, 1, -1)):
        with pytest.raises(ArgumentError, match="cannot be copied"):
            column.copy(*wrong)


def test_a_ring_is_extended():
    """Another thread adds batches while this one goes on, and begins anew at the ring's end."""
    ring, batch = np.zeros((6, 2), np.float32), Tensor((2, 2), "float32")
    epoch = Epoch([Column(ring, batch)], None, 4, 2, 0)
    with pytest.raises(ArgumentError, match="there is no batch 0: the epoch has 0"):
        epoch.gather()
    for number in range(5):
        ring[[4, 0, 2, 4, 0][number] :][:2] = number
        epoch.extend(1)
        assert epoch.left == 1
        epoch.gather()
        np.testing.assert_array_equal(batch.numpy(), number)
        epoch.count(1.0)
        assert epoch.done == number + 1 and epoch.row(1) == [5, 1, 3, 5, 1][number]


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
    with pytest.raises(DTypeError, match="a tensor cannot have elements of dtype"):
        Epoch([Column(data.astype(complex), batch)], None, 0, 3, 1).gather()
