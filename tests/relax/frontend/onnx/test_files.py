"""Files that are broken, newer, or hostile; and weights written back into files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.frontend import UnsupportedOps
from pullback.relax.frontend.onnx import to_onnx
from pullback.relax.frontend.onnx.types import UnsupportedType

onnx = pytest.importorskip("onnx")

GENERATOR = np.random.default_rng(1)
LINEAR = (
    '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3] x) => (float[n, 2] y) { h = MatMul(x, w) y = Add(h, b) }'
)


def linear(*arrays: object) -> object:
    """x · w + b, with these initialisers (TensorProtos) or drawn ones."""
    model = onnx.parser.parse_model(LINEAR)
    drawn = [("w", GENERATOR.standard_normal((3, 2))), ("b", GENERATOR.standard_normal(2))]
    given = arrays or [onnx.numpy_helper.from_array(a.astype("float32"), n) for n, a in drawn]
    model.graph.initializer.extend(given)
    return model


def values(model: object, name: str) -> np.ndarray:
    return onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


def external(folder: Path, **fields: str) -> Path:
    """A file whose weight lies in w.bin, as these fields say."""
    model = linear()
    tensor = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(b"\0" * 16 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in ({"location": "w.bin", "offset": "16", "length": "24"} | fields).items():
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


# -- broken


def test_no_model_at_all(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        pullback.from_onnx(tmp_path / "none.onnx")
    for data in (b"", b"\x80\x04\x95junk", b"PK\x03\x04" + b"\0" * 50):
        with pytest.raises(UserError, match="this is no model of ONNX"):
            pullback.from_onnx(data)
    with pytest.raises(ArgumentError, match=r"a model is a path, bytes or an onnx\.ModelProto, got int"):
        pullback.from_onnx(3)


def test_the_package_is_needed_for_models_alone(monkeypatch):
    """The table is there without it; reading a model says what to install."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match="need the package onnx") as error:
        pullback.from_onnx(b"")
    assert "pullback[onnx]" in error.value.hint


def test_truncated_and_flipped_files_raise_user_errors():
    """Whatever is wrong with a file, the error is one that says so."""
    data = linear().SerializeToString()
    for k in range(0, len(data), 7):
        for broken in (data[:k], data[:k] + bytes([data[k] ^ 0x55]) + data[k + 1 :]):
            try:
                net = pullback.from_onnx(broken)
                net.export(*net.example)
            except UserError:
                pass


def test_newer_opsets_are_refused():
    model = linear()
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    with pytest.raises(UserError, match=r"the model uses opset \d+ of ai.onnx, onnx .* knows opsets up to"):
        pullback.from_onnx(model)


def test_names_that_nothing_gives():
    model = onnx.parser.parse_model(LINEAR)
    with pytest.raises(UserError, match="the model is not valid"):
        pullback.from_onnx(model)


def test_types_that_there_are_not():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (string[2] x) => (string[2] y) { y = Identity(x) }'
    )
    with pytest.raises(UnsupportedType, match="input x is string: tensors cannot have this type"):
        pullback.from_onnx(model)
    eight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT8E4M3FN, [2], [1.0, 2.0])
    with pytest.raises(UnsupportedType, match="tensor w is float8e4m3fn"):
        pullback.from_onnx(linear(eight, onnx.numpy_helper.from_array(np.zeros(2, "float32"), "b")))


def test_deprecated_operators_are_refused():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2, 2] x) => (float[2, 2] y) { y = Scatter(x, x, x) }'
    )
    with pytest.raises(UserError, match=r"deprecated|not valid"):
        pullback.from_onnx(model)


@pytest.mark.parametrize("dims, raw", [((3, 2), b"\0" * 20), ((2**40, 2**20), b"\0" * 24), ((-3, -2), b"\0" * 24)])
def test_sizes_are_checked_before_memory_is_taken(dims, raw):
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=dims, raw_data=raw)
    with pytest.raises(UserError):
        pullback.from_onnx(linear(tensor, onnx.numpy_helper.from_array(np.zeros(2, "float32"), "b")))


# -- external data


def test_external_data(tmp_path):
    path = external(tmp_path)
    net = pullback.from_onnx(path)
    stored = np.frombuffer((tmp_path / "w.bin").read_bytes()[16:], "float32").reshape(3, 2)
    np.testing.assert_array_equal(net.state_dict()["w"].numpy(), stored)
    with pytest.raises(UserError, match="the model was not read from a file"):
        pullback.from_onnx(path.read_bytes())


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "link.bin", "folder/w.bin", "C:w"]
)
def test_external_data_stays_in_the_folder(tmp_path, location):
    """Neither paths nor links lead out of the folder of the model."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 40)
    os.symlink(tmp_path / "w.bin", inside / "link.bin")
    os.symlink(tmp_path, inside / "folder")
    with pytest.raises(UserError, match="which is not in the folder of the model"):
        pullback.from_onnx(external(inside, location=location))


@pytest.mark.parametrize(
    "fields", [{"offset": "17"}, {"offset": "-1"}, {"length": "20"}, {"length": str(2**50)}, {"offset": "x"}]
)
def test_external_data_of_other_sizes(tmp_path, fields):
    with pytest.raises(UserError, match=r"needs 24 bytes|has the offset"):
        pullback.from_onnx(external(tmp_path, **fields))


def test_missing_external_data(tmp_path):
    path = external(tmp_path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(UserError, match="which is no file"):
        pullback.from_onnx(path)


# -- weights written back


def trained(net: object) -> object:
    trainer = pullback.trainer(net, "mse", optim.SGD(lr=0.1))
    trainer.update(GENERATOR.standard_normal((4, 3)).astype("float32"), np.zeros((4, 2), "float32"))
    return trainer


def test_an_untrained_model_is_the_same_file(tmp_path):
    data = b"\xfa\x3f\x03odd" + linear().SerializeToString()  # an unknown field in front
    to_onnx(pullback.from_onnx(data), tmp_path / "same.onnx")
    assert (tmp_path / "same.onnx").read_bytes() == data


def test_only_weights_are_other_bytes(tmp_path):
    """Fields in another order than protobuf's, and fields that it does not know, stay where they are."""
    data = linear().SerializeToString()
    odd = b"\xfa\x3f\x03odd" + data[: len(data)]  # an unknown field in front
    path = tmp_path / "model.onnx"
    path.write_bytes(odd)
    trainer = trained(pullback.from_onnx(path))
    trainer.to_onnx(tmp_path / "trained.onnx")
    new = (tmp_path / "trained.onnx").read_bytes()
    assert len(new) == len(odd)
    old_model, new_model = onnx.load_from_string(odd), onnx.load_from_string(new)
    for tensor, other in zip(old_model.graph.initializer, new_model.graph.initializer, strict=True):
        np.testing.assert_array_equal(values(new_model, tensor.name), trainer.state_dict()[tensor.name].numpy())
        assert not np.array_equal(values(new_model, tensor.name), values(old_model, tensor.name))
        tensor.raw_data = other.raw_data = b""
    assert old_model == new_model
    assert path.read_bytes() == odd


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_other_forms_of_storage(tmp_path, dtype):
    """Lists of floats, doubles and half-precision numbers are written as such again."""
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    w, b = GENERATOR.standard_normal((3, 2)).astype(dtype), np.zeros(2, dtype)
    tensors = [onnx.helper.make_tensor(n, code, a.shape, a.reshape(-1)) for n, a in (("w", w), ("b", b))]
    model = linear(*tensors)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = code
    net = pullback.from_onnx(model)
    net.load_state_dict({"w": 2 * w, "b": b + 1})
    net.to_onnx(tmp_path / "new.onnx")
    new = onnx.load(tmp_path / "new.onnx")
    np.testing.assert_array_equal(values(new, "w"), 2 * w)
    np.testing.assert_array_equal(values(new, "b"), b + 1)
    assert not new.graph.initializer[0].HasField("raw_data")


def test_external_weights(tmp_path):
    """Data files are written beside the new file; bytes that are no weights stay."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    path = external(tmp_path / "old")
    trainer = trained(pullback.from_onnx(path))
    with pytest.raises(UserError, match="would share its external data"):
        trainer.to_onnx(tmp_path / "old" / "other.onnx")
    trainer.to_onnx(tmp_path / "new" / "model.onnx")
    data = (tmp_path / "new" / "w.bin").read_bytes()
    assert data[:16] == b"\0" * 16 and len(data) == 40
    again = pullback.from_onnx(tmp_path / "new" / "model.onnx").state_dict()
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(again[name].numpy(), value.numpy())
    trainer.to_onnx(path)
    assert (tmp_path / "old" / "w.bin").read_bytes() == data


def test_a_file_that_was_changed_meanwhile(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(linear().SerializeToString())
    net = pullback.from_onnx(path)
    other = onnx.numpy_helper.from_array(np.zeros((3, 5), "float32"), "w")
    path.write_bytes(linear(other, onnx.numpy_helper.from_array(np.zeros(5, "float32"), "b")).SerializeToString())
    with pytest.raises(UserError, match="the initialiser w is float32"):
        net.to_onnx(tmp_path / "new.onnx")


def test_models_of_no_file(tmp_path):
    net = pullback.nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="to_onnx writes models that from_onnx read, got Linear"):
        to_onnx(net, tmp_path / "x.onnx")
    trainer = pullback.trainer(net, "mse", "sgd", example=np.zeros((1, 3), "float32"))
    with pytest.raises(ArgumentError, match="this trainer's model is none of them"):
        trainer.to_onnx(tmp_path / "x.onnx")


def test_refusals_are_errors_of_the_user():
    assert issubclass(UnsupportedOps, UserError) and issubclass(UnsupportedType, UserError)


def test_low_rank_updates_are_written_as_part_of_the_weights(tmp_path):
    net = pullback.from_onnx(linear())
    lora = nn.LoRA(rank=1, targets=["w"], fan_in_fan_out=True)
    trainer = pullback.trainer(net, "mse", optim.SGD(lr=0.01), adapt=lora)
    generator = np.random.default_rng(2)
    x, y = (generator.standard_normal((4, size)).astype("float32") for size in (3, 2))
    trainer.fit(x, y, epochs=3, batch_size=4, verbose=0)
    trainer.to_onnx(tmp_path / "new.onnx")
    new = pullback.from_onnx(tmp_path / "new.onnx")
    np.testing.assert_allclose(new(x).numpy(), trainer.predict(x), atol=1e-6)
    assert not np.array_equal(new.state_dict()["w"], net.state_dict()["w"])
