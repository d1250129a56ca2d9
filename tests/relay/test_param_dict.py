"""Parameters as bytes: back as they were, and hostile bytes refused."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback
from pullback import relay
from pullback.ir.errors import ArgumentError, CheckpointError
from pullback.relay.param_dict import load_param_dict, save_param_dict
from pullback.runtime.dtype import NUMPY_DTYPES

PARAMS = {
    "0.weight": np.arange(6, dtype="float32").reshape(2, 3),
    "größe/λ": np.array(3, "int64"),
    "empty": np.zeros((0, 4), "uint8"),
    "": np.array([True, False]),
}


def test_all_of_it_comes_back():
    loaded = load_param_dict(save_param_dict(PARAMS))
    assert list(loaded) == list(PARAMS)
    for name, value in PARAMS.items():
        assert loaded[name].dtype == value.dtype.name
        np.testing.assert_array_equal(loaded[name].numpy(), value)


@pytest.mark.parametrize("dtype", list(NUMPY_DTYPES))
def test_every_dtype(dtype):
    value = np.arange(5).astype(NUMPY_DTYPES[dtype])
    loaded = load_param_dict(save_param_dict({"x": value}))["x"]
    assert loaded.dtype == dtype
    assert loaded.numpy().tobytes() == value.tobytes()


def test_tensors_constants_and_no_parameters():
    held = load_param_dict(save_param_dict({"a": pullback.tensor([1.0, 2.0]), "b": relay.const(3.0)}))
    np.testing.assert_array_equal(held["a"].numpy(), [1, 2])
    assert held["b"].item() == 3.0
    assert load_param_dict(save_param_dict({})) == {}
    assert load_param_dict(bytearray(save_param_dict({"a": np.ones(2)})))["a"].shape == (2,)


def test_equal_parameters_are_equal_bytes():
    assert save_param_dict(PARAMS) == save_param_dict({k: v.copy() for k, v in PARAMS.items()})


@pytest.mark.parametrize("at", [0, 9, 20, 60, -40, -1])
def test_a_changed_byte_is_found(at):
    data = bytearray(save_param_dict(PARAMS))
    data[at] ^= 1
    with pytest.raises(CheckpointError):
        load_param_dict(bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400))
def test_a_piece_of_it_is_refused(length):
    data = save_param_dict(PARAMS)
    with pytest.raises(CheckpointError):
        load_param_dict(data[: min(length, len(data) - 1)])


def sealed(header: object, body: bytes = b"") -> bytes:
    """Bytes whose checksum is right, whatever they say."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = b"PBPARAM1" + len(text).to_bytes(8, "little") + text
    whole += b"\0" * (-len(whole) % 64) + body
    return whole + hashlib.sha256(whole).digest()


@pytest.mark.parametrize(
    "header",
    [
        b"no JSON", b"\xff\xfe", {"x": 1}, [1], [["x"]], [["x", "float32", [2], 3]], [[1, "float32", [2]]],
        [["x", "float33", [2]]], [["x", ["float32"], [2]]], [["x", "float32", "2"]], [["x", "float32", [-1]]],
        [["x", "float32", [2.0]]], [["x", "float32", [True]]], [["x", "float32", [2**60]]],
        [["x", "float32", [2**40, 2**40]]], [["x", "float32", [1] * 65]], [["x", "float32", [1000]]],
        [["x", "float32", [1]], ["x", "float32", [1]]], b"[" * 100_000, [],
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(header):
    with pytest.raises(CheckpointError, match="damaged"):
        load_param_dict(sealed(header, b"\0" * 128))


def test_a_header_longer_than_the_file():
    whole = b"PBPARAM1" + (2**63).to_bytes(8, "little")
    with pytest.raises(CheckpointError, match="header is longer"):
        load_param_dict(whole + hashlib.sha256(whole).digest())


def test_bytes_of_other_systems():
    with pytest.raises(CheckpointError, match="these bytes are no parameters"):
        load_param_dict((0xF7E58D4F05049CB7).to_bytes(8, "little") + b"\0" * 64)


def test_arguments():
    with pytest.raises(ArgumentError, match="loaded from bytes, not from str"):
        load_param_dict("w")
    with pytest.raises(ArgumentError, match="a parameter's name is a string"):
        save_param_dict({3: np.ones(2)})
