"""A tensor is pinned exactly while somebody else may see its memory."""

import gc
import threading

import numpy as np
import pytest

from pullback.runtime import allocated_bytes, tensor
from pullback.runtime.dtype import NUMPY_DTYPES


@pytest.fixture(autouse=True)
def nothing_left_to_collect():
    """Garbage of earlier tests must not be freed while memory is counted."""
    gc.collect()


def made(dtype="float32"):
    return tensor([[1, 2, 3], [4, 5, 6]], dtype)


VIEWS = {
    "array": np.asarray,
    "part": lambda t: np.asarray(t)[1:],
    "part of a part": lambda t: np.asarray(t)[1:][:, ::2][0],
    "other dtype": lambda t: np.asarray(t).view("uint8"),
    "reshaped": lambda t: np.asarray(t).reshape(3, 2).T,
    "subclass": lambda t: np.asarray(t).view(np.matrix)[0],
    "memoryview": lambda t: memoryview(np.asarray(t)),
    "array of a memoryview": lambda t: np.asarray(memoryview(np.asarray(t))[1:]),
    "frombuffer": lambda t: np.frombuffer(np.asarray(t), "uint8", 4),
    "iterator": lambda t: np.nditer(np.asarray(t)),
    "capsule": lambda t: t.__dlpack__(),
    "versioned capsule": lambda t: t.__dlpack__(max_version=(1, 0)),
    "dlpack": np.from_dlpack,
    "dlpack of a view": lambda t: np.from_dlpack(np.asarray(t)[1:]),
    "tensor of the export": lambda t: tensor(np.from_dlpack(t)),
    "tensor of a view": lambda t: tensor(np.asarray(t)[1]),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_pins_while_it_lives(view):
    subject = made()
    assert not subject.is_pinned()
    seen = view(subject)
    assert subject.is_pinned()
    del seen
    assert not subject.is_pinned()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_outlives_its_tensor(view):
    held = allocated_bytes()
    seen = view(made())
    assert allocated_bytes() == held + 24
    del seen
    assert allocated_bytes() == held


COPIES = {
    "numpy()": lambda t: t.numpy(),
    "np.array": np.array,
    "astype": lambda t: np.asarray(t, dtype="float64"),
    "index": lambda t: t[0],
    "item": lambda t: t[0, 0].item(),
    "repr": repr,
    "copyfrom": lambda t: t.copyfrom(np.zeros((2, 3))),
    "copyto": lambda t: t.copyto(made()),
    "tensor": lambda t: tensor(t, copy=True),
    "dlpack copy": lambda t: t.__dlpack__(copy=True),
    "sum": np.sum,
}


@pytest.mark.parametrize("use", COPIES.values(), ids=COPIES)
def test_a_copy_does_not_pin(use):
    subject = made()
    kept = use(subject)
    assert kept is not None and not subject.is_pinned()


def test_several_views():
    subject = made()
    views = [np.asarray(subject) for _ in range(3)]
    while views:
        assert subject.is_pinned()
        views.pop()
    assert not subject.is_pinned()


def test_borrowed_memory_is_always_pinned():
    array = np.ones(3)
    borrowed = tensor(array)
    assert borrowed.is_pinned()
    del array
    assert borrowed.is_pinned()
    assert not tensor(np.ones(6)[::2]).is_pinned()  # a copy was needed
    assert not tensor([1.0]).is_pinned()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_dlpack_round_trip(dtype):
    subject = made(dtype)
    back = tensor(
        type(
            "Exporter",
            (),
            {
                "dtype": dtype,
                "__dlpack__": lambda self, **keywords: subject.__dlpack__(**keywords),
                "__dlpack_device__": lambda self: subject.__dlpack_device__(),
            },
        )()
    )
    assert (back.dtype, back.shape, back.data_ptr) == (dtype, (2, 3), subject.data_ptr)
    np.testing.assert_array_equal(back.numpy(), subject.numpy())
    assert subject.is_pinned()
    del back
    assert not subject.is_pinned()


def test_read_only_memory_stays_read_only():
    array = np.ones(3)
    array.flags.writeable = False
    borrowed = tensor(array)
    assert not borrowed.writable
    assert not np.asarray(borrowed).flags.writeable
    assert not np.from_dlpack(borrowed).flags.writeable


@pytest.mark.parametrize("keywords", [{"stream": 1}, {"dl_device": (2, 0)}])
def test_exports_that_a_cpu_tensor_cannot_make(keywords):
    with pytest.raises(BufferError, match="a CPU tensor"):
        made().__dlpack__(**keywords)


def test_threads_that_look_at_the_same_tensor_each_pin_it():
    subject, ready, leave = made(), threading.Barrier(5), threading.Barrier(5)

    def look():
        view = np.asarray(subject)
        ready.wait()
        leave.wait()
        del view

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    assert subject.is_pinned()
    leave.wait()
    for thread in threads:
        thread.join()
    assert not subject.is_pinned()


@pytest.mark.parametrize("shape", [(), (1, 1), (3,), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "bfloat16"])
def test_copies_pin_nothing(shape, dtype):
    """Of one element, which is read without a view, as of many."""
    t = tensor(np.ones(shape).astype(NUMPY_DTYPES[dtype]), copy=True)
    array = t.numpy()
    assert array.shape == shape and array.dtype == NUMPY_DTYPES[dtype] and not t.is_pinned()
    array[...] = 0
    assert np.asarray(t).all()
