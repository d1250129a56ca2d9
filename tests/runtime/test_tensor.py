"""Tensors: making them, reading them, copying them."""

import copy
import ctypes
import gc
import operator
import os
import pickle
import signal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import pullback.nd
from pullback.ir.errors import ArgumentError, DTypeError, NoAttribute, ShapeError
from pullback.runtime import Tensor, allocated_bytes, allocation_count, cpu, empty, peak_bytes, tensor, zeros
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.memory import ZeroMemory
from pullback.runtime.tensor import allocate_zeros

SHAPES = [(), (0,), (1,), (3,), (2, 3), (2, 0, 3), (1, 1, 4, 5)]


def values(shape, dtype):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(NUMPY_DTYPES[dtype])


def test_numpy_s_methods_are_numpy_s():
    with pytest.raises(NoAttribute, match=r"x\.numpy\(\) is a NumPy array, which has argmax"):
        tensor([1.0, 2.0]).argmax()
    assert not hasattr(tensor([1.0]), "no_such_name")


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [True, False])
def test_a_numpy_array_makes_the_round_trip(shape, dtype, share):
    array = values(shape, dtype)
    made = tensor(array, copy=not share)
    assert (made.shape, made.dtype, made.ndim, made.size) == (shape, dtype, len(shape), array.size)
    assert (made.nbytes, made.device) == (array.nbytes, cpu(0))
    for out in (made.numpy(), made.asnumpy(), np.asarray(made), np.array(made)):
        assert out.dtype == array.dtype and out.shape == shape and out.flags.c_contiguous
        np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_memory_is_aligned(dtype):
    assert all(empty(shape, dtype).data_ptr % 64 == 0 for shape in SHAPES)


@given(
    npst.arrays(
        npst.integer_dtypes(endianness="=") | npst.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
        npst.array_shapes(min_dims=0, min_side=0),
    ),
    st.data(),
)
def test_any_layout_becomes_contiguous(array, data):
    axes = data.draw(st.permutations(range(array.ndim)))
    flips = tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in axes)
    strided = array.transpose(axes)[flips]
    np.testing.assert_array_equal(tensor(strided).numpy(), strided)


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1.5, "float32", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        ([1, 2.5], "float32", (2,)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        ((True, False), "bool", (2,)),
        ([], "float32", (0,)),
        (range(3), "int64", (3,)),
        (np.float64(1), "float64", ()),
        ([np.float64(1), 2.0], "float64", (2,)),
        ([np.zeros(3), np.ones(3)], "float64", (2, 3)),
        ([tensor(1.0), tensor(2.0)], "float32", (2,)),
        (memoryview(b"ab"), "uint8", (2,)),
    ],
)
def test_dtype_of_data(data, dtype, shape):
    made = tensor(data)
    assert (made.dtype, made.shape) == (dtype, shape)
    np.testing.assert_array_equal(made.numpy(), np.asarray(data))


@pytest.mark.parametrize("given_dtype", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_a_given_dtype_converts(given_dtype):
    assert tensor([1, 2], given_dtype).dtype == "bfloat16"
    assert tensor(np.ones(3), dtype=given_dtype).dtype == "bfloat16"
    assert tensor(tensor([1.0]), dtype=given_dtype).dtype == "bfloat16"


def test_a_tensor_of_a_tensor_is_itself_unless_copied():
    made = tensor([1.0])
    assert tensor(made) is made
    assert tensor(made, "float32", cpu(0), copy=False) is made
    assert tensor(made, copy=True).data_ptr != made.data_ptr
    assert tensor(made, "float64").dtype == "float64"


def test_sharing_is_zero_copy_and_shows_changes():
    array = np.arange(4.0)
    made = tensor(array, copy=False)
    assert made.data_ptr == array.ctypes.data
    array[1] = 7
    assert made[1].item() == 7
    made.copyfrom(np.zeros(4))
    assert array.sum() == 0


def test_nd_array_always_copies():
    array = np.arange(4.0)
    made = pullback.nd.array(array, cpu(0))
    array[:] = 0
    np.testing.assert_array_equal(made.asnumpy(), [0, 1, 2, 3])
    assert made.dtype == "float64" and isinstance(made, pullback.nd.NDArray)


def test_copies_between_tensors():
    source, target = tensor([[1.0, 2.0]]), empty((1, 2))
    assert source.copyto(target) is target
    np.testing.assert_array_equal(target.numpy(), [[1, 2]])
    on_device = source.copyto(cpu())
    assert on_device is not source and on_device.data_ptr != source.data_ptr
    assert target.copyfrom([[5, 6]]) is target
    np.testing.assert_array_equal(target.numpy(), [[5, 6]])


def test_overlapping_copy():
    array = np.arange(6.0)
    whole, part = tensor(array[:5]), tensor(array[1:])
    part.copyfrom(whole)
    np.testing.assert_array_equal(array, [0, 0, 1, 2, 3, 4])


def test_scalars():
    assert tensor(2.5).item() == 2.5 and isinstance(tensor([[3]]).item(), int)
    assert float(tensor(3)) == 3.0 and int(tensor(3.7)) == 3 and bool(tensor([0])) is False
    assert isinstance(tensor(1.5, "bfloat16").item(), float)
    assert tensor(True).item() is True


def test_scalars_are_formatted_as_numbers():
    loss = tensor(0.25)
    assert f"{loss:.3f} {loss} {tensor(7):03d}" == "0.250 0.25 007"
    assert round(tensor(2.675, "float64"), 1) == 2.7 and round(tensor(2.5)) == 2 and isinstance(round(loss), int)
    assert f"{tensor([1.0])}" == "tensor([1.], shape=(1,), dtype=float32)"
    raises(TypeError, "only a scalar has the format '.2f'; this tensor has shape (2,)", format, tensor([1, 2]), ".2f")


def test_scalars_are_ordered():
    low, high = tensor(1), tensor([1.5])
    assert low < high and low <= 1 and high > 1 and high >= low and low < 2 and not low > 1.0
    assert min([high, low]) is low and low < np.float32(2)
    np.testing.assert_array_equal(low < np.array([0, 1, 2]), [False, False, True])
    assert (low == 1) is False and low == low and hash(low) == hash(low), "equality is identity"
    message = "only tensors with one element are ordered (<); this one has shape (2,): use np.asarray(tensor)"
    raises(TypeError, message, operator.lt, tensor([1, 2]), 3)
    with pytest.raises(TypeError, match="'<' not supported between instances of 'Tensor' and 'str'"):
        low < "a"  # noqa: B015


def test_there_is_no_arithmetic_but_with_arrays():
    loss = tensor(0.25)
    for symbol, calculate in {
        "+": lambda: sum([loss, loss]), "-": lambda: 1 - loss, "*": lambda: 2 * loss, "/": lambda: loss / 2.0,
        "//": lambda: loss // loss, "%": lambda: loss % 2, "**": lambda: loss**2, "@": lambda: loss @ loss,
        "abs": lambda: abs(loss),
    }.items():  # fmt: skip
        raises(
            TypeError,
            f"tensors do no arithmetic ({symbol}): use float(tensor) of a scalar, such as a loss,"
            " and np.asarray(tensor) of any",
            calculate,
        )
    with pytest.raises(TypeError, match=r"\(-\)"):
        operator.neg(loss)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator.add(loss, "a")
    for both in (loss + np.ones(2), np.ones(2) + loss):
        np.testing.assert_array_equal(both, [1.25, 1.25])
    assert loss + np.float64(1) == 1.25


def test_indexing_copies():
    made = tensor(np.arange(6.0).reshape(2, 3))
    assert len(made) == 2
    row = made[1]
    made.copyfrom(np.zeros((2, 3)))
    np.testing.assert_array_equal(row.numpy(), [3, 4, 5])
    assert made[:, 1:].shape == (2, 2) and made[0, 0].shape == () and made[..., None].shape == (2, 3, 1)
    assert [part.shape for part in made] == [(3,), (3,)]
    with pytest.raises(IndexError):
        made[2]


def test_text():
    assert repr(tensor([1.0, 2.0])) == "tensor([1., 2.], shape=(2,), dtype=float32)"
    assert repr(tensor(True)) == "tensor(True, shape=(), dtype=bool)"


def test_pickle_and_deepcopy_own_their_memory():
    made = tensor([1, 2], "bfloat16")
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.copy(made)):
        assert other.data_ptr != made.data_ptr and other.dtype == "bfloat16" and not other.is_pinned()
        np.testing.assert_array_equal(other.numpy(), made.numpy())


def test_numpy_functions_take_tensors():
    np.testing.assert_array_equal(np.add(tensor([1.0, 2.0]), 1), [2, 3])
    assert np.asarray(tensor([1.0]), dtype="float64").dtype == np.float64


def test_counters_follow_the_memory():
    gc.collect()  # no earlier test's garbage is counted
    count, held = allocation_count(), allocated_bytes()
    made = empty((1000, 1000))
    assert allocation_count() == count + 1
    assert allocated_bytes() == held + 4_000_000 <= peak_bytes()
    view = np.asarray(made)
    del made
    assert allocated_bytes() == held + 4_000_000
    del view
    assert allocated_bytes() == held


def raises(error, message, function, *arguments, **keywords):
    with pytest.raises(error) as caught:
        function(*arguments, **keywords)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "<U1", "object", "S3", [("a", "i4")]])
def test_element_types_that_no_tensor_has(dtype):
    raises(DTypeError, f"a tensor cannot have elements of dtype {str(np.dtype(dtype))!r}", tensor, np.zeros(1, dtype))


def test_errors_of_making():
    raises(
        DTypeError,
        f"dtype '{np.dtype('f4').newbyteorder().str}' is not in this machine's byte order",
        tensor,
        np.zeros(2, np.dtype("f4").newbyteorder()),
    )
    raises(DTypeError, "unknown dtype 'float33'", empty, (), "float33")
    raises(DTypeError, "a tensor cannot have elements of dtype 'object'", tensor, {"a": 1})
    raises(ArgumentError, "expected a number, lists or an array, got None", tensor, None)
    raises(ShapeError, "a shape has no negative sizes, got (2, -1)", empty, (2, -1))
    raises(ShapeError, "a shape must be a sequence of ints, got (2.0,)", empty, (2.0,))
    raises(MemoryError, f"out of memory: could not allocate {2**66} bytes", empty, (2**32, 2**32))
    raises(ArgumentError, "a tensor has no mask", tensor, np.ma.masked_array([1.0, 2.0], [True, False]))
    raises(ArgumentError, "expected a Device, got 'cpu'", tensor, [1.0], device="cpu")
    raises(ArgumentError, "cannot make a tensor of float32 from this list without a copy", tensor, [1.0], copy=False)
    raises(
        ArgumentError,
        "cannot make a tensor of float64 from this ndarray without a copy",
        tensor,
        np.zeros(4)[::2],
        copy=False,
    )
    with pytest.raises(ShapeError, match="cannot make a tensor of these lists"):
        tensor([[1], [2, 3]])
    with pytest.raises(ArgumentError, match="a value does not fit the dtype"):
        tensor([300], dtype="int8")


def test_errors_of_reading():
    raises(ShapeError, "only a tensor with one element is a number; this one has shape (2,)", tensor([1, 2]).item)
    raises(ShapeError, "only a tensor with one element is a number; this one has shape (0,)", bool, tensor([]))
    raises(TypeError, "a tensor of rank 0 has no length", len, tensor(1))
    raises(TypeError, "a tensor of rank 0 has no length", list, tensor(1))


def test_errors_of_copying():
    target = empty((2,), "int64")
    raises(ShapeError, "cannot copy shape (1,) into a tensor of shape (2,)", target.copyfrom, [1])
    raises(
        DTypeError,
        "cannot copy float32 into a tensor of int64 without losing values",
        target.copyfrom,
        tensor([1.0, 2.0]),
    )
    raises(ArgumentError, "expected a Tensor or a Device to copy to, got list", target.copyto, [1])
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    raises(ArgumentError, "this tensor borrows memory that is read-only", tensor(frozen).copyfrom, [1.0, 2.0])
    raises(
        ArgumentError,
        "a tensor of 8 bytes does not fit in memory of 4 bytes",
        Tensor,
        (2,),
        "float32",
        None,
        empty((1,))._memory,
    )


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (700, 600)])
def test_zeros_are_zeros(shape, dtype):
    for made in (zeros(shape, dtype), zeros(shape, dtype).copy(), tensor(zeros(shape, dtype), copy=True)):
        assert (made.shape, made.dtype, made.writable, made.is_pinned()) == (shape, dtype, True, False)
        np.testing.assert_array_equal(np.asarray(made), np.zeros(shape, NUMPY_DTYPES[dtype]))


def test_zeros_are_allocated_when_somebody_looks():
    gc.collect()
    held = allocated_bytes()
    made = zeros((1000, 1000))
    other, changed = made.copy(), tensor(made, copy=True)
    assert allocated_bytes() == held
    changed.copyfrom(np.ones((1000, 1000)))
    assert allocated_bytes() == held + 4_000_000
    assert made.data_ptr and np.asarray(made).sum() == 0 and float(changed[999, 999]) == 1
    assert allocated_bytes() == held + 8_000_000
    copied = made.copy()  # somebody knows its address: it may hold anything
    assert allocated_bytes() == held + 12_000_000
    del made, changed, other, copied
    assert allocated_bytes() == held


def test_zeros_are_allocated_all_at_once():
    """Those that nobody has seen, each once; what somebody has written stays."""
    gc.collect()
    held = allocated_bytes()
    seen, lazy, other = zeros((1000,)), zeros((1000, 1000)), zeros((10,), "int64")
    np.asarray(seen)[:] = 3
    allocate_zeros([seen, lazy, tensor(np.ones(3)), lazy, other])
    assert allocated_bytes() == held + 4_004_080
    addresses = {t.data_ptr for t in (seen, lazy, other)}
    assert len(addresses) == 3 and allocated_bytes() == held + 4_004_080
    assert np.asarray(seen).sum() == 3000 and not np.asarray(lazy).any() and not np.asarray(other).any()


def test_zeros_that_no_memory_is_left_for_stay_zeros():
    """Whoever looks at one that fits gets it; the other says so."""
    small, huge = zeros((10,)), zeros((1 << 58,))
    with pytest.raises(MemoryError, match="could not allocate 1152921504606847016 bytes"):
        allocate_zeros([small, huge])
    assert not np.asarray(small).any()
    with pytest.raises(MemoryError, match="could not allocate 1152921504606846976 bytes"):
        np.asarray(huge)


def test_a_child_of_a_fork_gets_zeros_too():
    """Although another thread of its parent was just getting some."""
    with ZeroMemory._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(int(np.asarray(zeros((10,))).any()))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("nbytes", [100_000, 3 << 20, 48 << 20])
def test_a_dropped_tensors_memory_is_used_again(nbytes):
    """Fresh memory costs a fault of each page, which takes longer than most kernels do."""
    gc.collect()
    assert len({empty((nbytes,), "uint8").data_ptr for _ in range(5)}) == 1


@pytest.mark.parametrize("versioned", [False, True])
def test_bfloat16_is_exported_as_such(versioned):
    """The capsule holds DLPack's code of bfloat16, 4, and 16 bits; one lane."""
    kept = tensor(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    capsule = kept.__dlpack__(max_version=(1, 0) if versioned else None)
    text = repr(capsule).partition('"')[2].partition('"')[0]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    offset = {"dltensor": 20, "dltensor_versioned": 52}[text]
    held = (ctypes.c_uint8 * 4).from_address(pointer(capsule, text.encode()) + offset)
    assert (held[0], held[1], held[2]) == (4, 16, 1)


def test_an_array_of_another_dtype_holds_its_numbers():
    array = np.asarray(tensor([1.5, 2.5]), "float64")
    assert array.dtype == np.float64 and array.tolist() == [1.5, 2.5]
    assert np.asarray(tensor([1, 300]), "uint8").tolist() == [1, 44]


def test_the_protocol_of_numpy_casts_itself():
    """NumPy casts what it gets; others who call the protocol look at what it gives."""
    held = pullback.tensor(np.array([1.5, -2.5], "float32"))
    assert held.__array__().dtype == np.float32 and np.shares_memory(held.__array__(), np.asarray(held))
    assert held.__array__(np.float64).dtype == np.float64 and held.__array__("int32").tolist() == [1, -2]
    assert not np.shares_memory(held.__array__(copy=True), np.asarray(held))
    assert np.shares_memory(held.__array__(np.float32, copy=False), np.asarray(held))
    with pytest.raises(ValueError, match="a tensor of float32 cannot become float64 without a copy"):
        held.__array__(np.float64, copy=False)


def test_only_aligned_arrays_are_shared():
    """Machine code reads whole elements: data that begin in the middle of one are copied."""
    memory = np.zeros(4 * 8 + 1, np.uint8)
    for shift, shared in ((0, True), (1, False)):
        array = memory[shift : shift + 32].view(np.float32)
        array[:] = np.arange(8)
        made = tensor(array)
        assert np.shares_memory(np.asarray(made), memory) is shared and made.data_ptr % 4 == 0
        np.testing.assert_array_equal(made.numpy(), np.arange(8))
    with pytest.raises(ArgumentError, match="without a copy"):
        tensor(array, copy=False)
