"""Checkpoints between C and Python, and files that are none: what is refused changes nothing."""

import ctypes
import json
import struct

import numpy as np
import pytest

from pullback.ir.errors import CheckpointError
from pullback.relax.training.checkpoint_file import digest, open_checkpoint
from pullback.runtime.tensor import Tensor
from tests.deploy import fake
from tests.deploy.fake import (
    ARGUMENT,
    CHECKPOINT,
    FILE,
    KEPT,
    STATE,
    Model,
    Read,
    Refused,
    Write,
    checkpoint,
    data,
    metadata,
)
from tests.deploy.test_model import assert_same_kept

CODES = {
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "bool": "BOOL",
    "int32": "I32",
    "uint8": "U8",
}


def python_reads(path, contents):
    """What Python's reader finds in a file: its record and tensors."""
    path.write_bytes(contents)
    with open_checkpoint(str(path), 1 << 20) as file:
        tensors = {name: Tensor(entry.shape, entry.dtype) for name, entry in file.tensors.items()}
        file.read(tensors)
        return file.record, {name: np.asarray(tensor) for name, tensor in tensors.items()}


def trained(model):
    """Steps, epochs, and half of a random number drawn."""
    x, scale, labels = data(12)
    model.run(x, scale, labels, epochs=3)
    model.call("set_hyperparameter", b"lr", 0.03125)
    return model


# ---- between C and Python --------------------------------------------------------------------------------------------


def test_python_reads_what_c_writes(model, tmp_path):
    contents = trained(model).write()
    record, tensors = python_reads(tmp_path / "file", contents)
    assert_same_kept(model, tensors, exact=True)
    random = fake.generator()
    for _ in range(3):
        random.permutation(12)
    expected = metadata(tensors, random.bit_generator.state, 5)
    assert record.random == random.bit_generator.state
    assert (record.steps, record.epochs) == (model.steps, model.epochs) == (14, 5)
    header = json.loads(contents[8 : 8 + int.from_bytes(contents[:8], "little")])
    checksum = header["__metadata__"].pop("sha256")
    assert header["__metadata__"] == expected and checksum == digest(tensors, expected)
    assert list(header["__metadata__"]) == sorted(expected)


def test_files_of_version_1_are_read(model):
    """Their checksum takes the bytes of tensors themselves."""
    texts = {**metadata(KEPT), "version": "1"}
    contents = checkpoint(KEPT, texts)
    model.read(contents)
    assert_same_kept(model, KEPT, exact=True)
    for place in (-1, len(contents) - 60):
        damaged = bytearray(contents)
        damaged[place] ^= 1
        assert "do not match their SHA-256" in refusal(model, bytes(damaged))
    for version, other in (("1", "2"), ("2", "1")):
        header, body = parts(KEPT, {**texts, "version": version})
        header["__metadata__"]["version"] = other
        assert "do not match their SHA-256" in refusal(model, file_of(header, body))


def test_a_checksum_of_several_parts(library, tmp_path):
    """As it is written, as it is read to its place, and as it is read in chunks that end elsewhere than parts do."""
    program = library.fake_program_with(b"a state of several parts")
    large = np.random.default_rng(3).standard_normal((200_000, 3)).astype(np.float32)
    with Model(library, program=program) as model, Model(library, program=program) as other:
        model.set("empty", large)
        contents = model.write()
        _, tensors = python_reads(tmp_path / "file", contents)
        np.testing.assert_array_equal(tensors["state.empty"], large)
        other.read(contents)
        np.testing.assert_array_equal(other.get("empty"), large)
        other.read(checkpoint(tensors, {**metadata(tensors), "version": "1"}))
        length = 8 + int.from_bytes(contents[:8], "little")
        header = json.loads(contents[8:length])
        end = length + header["state.empty"]["data_offsets"][0]
        for place in (0, 2**20 - 1, 2**20, 2**21 + 5, large.nbytes - 1):
            damaged = bytearray(contents)
            damaged[end + place] ^= 1
            with pytest.raises(Refused, match="do not match their SHA-256"):
                other.read(bytes(damaged))
        np.testing.assert_array_equal(other.get("empty"), large)


def test_tensors_of_a_file_are_aligned(model):
    """Readers map them: each begins at a multiple of its element's size."""
    contents = model.write()
    length = int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8 : 8 + length])
    assert length % 8 == 0
    del header["__metadata__"]
    for entry in header.values():
        size = {"F32": 4, "BOOL": 1}.get(entry["dtype"], 8)
        assert entry["data_offsets"][0] % size == 0


def test_c_reads_what_python_writes(model):
    kept = {key: np.array(value) for key, value in KEPT.items()}
    source = np.random.default_rng(5)
    for key, value in kept.items():
        if value.dtype.kind == "f":
            kept[key] = source.random(value.shape).astype(value.dtype).reshape(value.shape)
    kept["optimizer.0"] = np.array(2**40)
    kept["state.flags"] = np.array([False, True, True])
    random = np.random.Generator(np.random.PCG64(99))
    random.permutation(5)
    model.read(checkpoint(kept, metadata(kept, random.bit_generator.state, 77)))
    assert_same_kept(model, kept, exact=True)
    assert (model.steps, model.epochs, model.error) == (2**40, 77, "")
    x, scale, labels = data(9)
    first = model.run(x, scale, labels, epochs=1).loss
    order = random.permutation(9)
    model.read(checkpoint(kept, metadata(kept)))
    assert model.run(x[order], scale, labels[order], epochs=1, in_order=True).loss == first


def test_c_goes_on_from_what_c_wrote(library):
    x, scale, labels = data(12)
    with Model(library) as model, Model(library) as other:
        contents = trained(model).write()
        other.read(contents)
        assert other.snapshot() == contents
        assert other.run(x, scale, labels, epochs=2).loss == model.run(x, scale, labels, epochs=2).loss
        assert other.snapshot() == model.snapshot()


def test_a_tensor_that_is_read_in_parts(library, tmp_path):
    """It is larger than what is free of the arena."""
    program = library.fake_program_with(b"a large state")
    large = np.random.default_rng(3).standard_normal((700, 3)).astype(np.float32)
    with Model(library, program=program) as model, Model(library, program=program) as other:
        model.set("empty", large)
        contents = model.write()
        record, tensors = python_reads(tmp_path / "file", contents)
        np.testing.assert_array_equal(tensors["state.empty"], large)
        assert record.steps == 5
        parts = []

        def read(_, offset, to, count):
            parts.append(count)
            ctypes.memmove(to, contents[offset : offset + count], count)
            return 0

        other.call("read", Read(read), None, len(contents))
        assert parts.count(large.nbytes) == 1 and sum(parts) == 2 * len(contents) - 8 - int.from_bytes(
            contents[:8], "little"
        )
        np.testing.assert_array_equal(other.get("empty"), large)
        assert other.write() == contents
        for place in (-1, -4000, -8000):
            damaged = bytearray(contents)
            damaged[place] ^= 1
            with pytest.raises(Refused, match="do not match their SHA-256"):
                other.read(bytes(damaged))
        assert other.write() == contents


def test_constants_are_part_of_checkpoints(library, tmp_path):
    """A file has all values, whatever of them the code has; one with others than these is refused."""
    with Model(library) as whole, Model(library, program=library.fake_program_with(b"constants")) as model:
        assert model.write() == whole.write()
        kept = {key: np.array(value) for key, value in KEPT.items()}
        kept["param.linear.bias"] = np.array([0.5, 0.25])
        kept["optimizer.0"] = np.array(9)
        contents = checkpoint(kept)
        model.read(contents)
        assert_same_kept(model, kept, exact=True)
        _, tensors = python_reads(tmp_path / "file", model.write())
        assert_same_kept(model, tensors, exact=True)
        whole.read(contents)
        assert whole.write() == model.write()
        for key, name in (("param.linear.weight", "linear.weight"), ("state.flags", "flags")):
            for place in (0, -1):
                other = {k: np.array(v) for k, v in kept.items()}
                flat = other[key].reshape(-1)
                flat[place] = not flat[place] if flat.dtype == bool else flat[place] + 1
                message = refusal(model, checkpoint(other))
                assert message.startswith(f"{name} has other values in the checkpoint than")
        damaged = bytearray(contents)
        damaged[-1] ^= 1
        assert "do not match their SHA-256" in refusal(model, bytes(damaged))


def test_a_constant_that_is_compared_in_parts(library):
    with Model(library, program=library.fake_program_with(b"a large constant")) as model:
        kept = {**KEPT, "state.empty": np.zeros((700, 3), np.float32), "optimizer.0": np.array(9)}
        kept["state.empty"][0] = (1, 2, 3)
        model.read(checkpoint(kept))
        assert_same_kept(model, kept, exact=True)
        for place in (0, 1000, -1):
            other = {**kept, "state.empty": kept["state.empty"].copy()}
            other["state.empty"].reshape(-1)[place] = -1
            assert "empty has other values" in refusal(model, checkpoint(other))


# ---- files that are none ---------------------------------------------------------------------------------------------


def refusal(model, contents):
    """Why a file is refused; nothing changes."""
    memory = model.state()
    before = model.snapshot()
    with pytest.raises(Refused) as refused:
        model.read(contents)
    assert refused.value.status == CHECKPOINT
    assert model.snapshot() == before
    assert_same_kept(model, memory, exact=True)
    return refused.value.message


@pytest.mark.parametrize("writer", ["c", "python"])
@pytest.mark.parametrize("flip", [1, 0x80, 0xFF])
def test_every_byte_counts(full, writer, flip):
    with Model(full) as model:
        contents = trained(model).write() if writer == "c" else checkpoint(KEPT)
        model.call("reset")
        before = model.snapshot()
        for place in range(len(contents)):
            damaged = bytearray(contents)
            damaged[place] ^= flip
            with pytest.raises(Refused) as refused:
                model.read(bytes(damaged))
            assert refused.value.status == CHECKPOINT, place
            assert place % 50 or model.snapshot() == before
        assert model.snapshot() == before
        model.read(contents)


def test_every_truncation_is_found(model):
    contents = checkpoint(KEPT)
    before = model.snapshot()
    for length in range(len(contents)):
        with pytest.raises(Refused) as refused:
            model.read(contents[:length])
        assert refused.value.status == CHECKPOINT, length
    assert model.snapshot() == before
    assert "bytes of tensors are announced" in refusal(model, contents + b"\0")


def test_random_damage(full):
    """Many bytes at once, and pieces of the file in other places."""
    source = np.random.default_rng(0)
    with Model(full) as model:
        contents = checkpoint(KEPT)
        before = model.snapshot()
        for _ in range(3000):
            damaged = bytearray(contents)
            for _ in range(source.integers(1, 4)):
                begin, end, to = (
                    int(v) for v in (*sorted(source.integers(0, len(damaged), 2)), source.integers(0, len(damaged)))
                )
                piece = source.bytes(end - begin) if source.random() < 0.3 else bytes(damaged[begin : begin + 20])
                damaged[to : to + len(piece)] = piece
            if bytes(damaged) != contents:
                with pytest.raises(Refused):
                    model.read(bytes(damaged))
        assert model.snapshot() == before


def file_of(header, tensors=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    return struct.pack("<Q", len(text)) + text + tensors


def parts(kept=KEPT, texts=None):
    """A header, as a mapping, and the tensors' bytes."""
    texts = metadata(kept) if texts is None else texts
    header, end, body = {"__metadata__": {**texts, "sha256": digest(kept, texts)}}, 0, b""
    for key, value in kept.items():
        header[key] = {
            "dtype": CODES[value.dtype.name],
            "shape": list(value.shape),
            "data_offsets": [end, end + value.nbytes],
        }
        end += value.nbytes
        body += value.tobytes()
    return header, body


def test_a_header_may_be_written_otherwise(model):
    """Other spaces, order, escapes, and tensors in another order: it says the same."""
    kept = dict(reversed(KEPT.items()))
    header, body = parts(kept)
    model.read(file_of(json.dumps(header, indent=3).encode(), body))
    model.read(file_of(json.dumps(header, ensure_ascii=True).encode() + b" \n\t\r", body))
    escaped = "".join(f"\\u{ord(c):04x}" for c in "format")
    text = json.dumps(dict(reversed(header.items()))).replace('"format"', f'"{escaped}"')
    model.read(file_of(text.encode(), body))
    assert_same_kept(model, KEPT, exact=True)


def test_unknown_metadata_belongs_to_the_checksum(model):
    """Later versions may write more."""
    texts = {**metadata(KEPT), "zebra": "streifen \U0001f600 'quoted'", "Aal": "both ' and \"", "lone": "\ud83d"}
    header, body = parts(KEPT, texts)
    model.read(file_of(json.dumps(header).encode(), body))
    header["__metadata__"]["zebra"] += "!"
    assert "SHA-256" in refusal(model, file_of(json.dumps(header).encode(), body))


def test_all_escapes_of_json(model):
    text = '\b\f\n\r\t/\\"\u2028'
    header, body = parts(KEPT, {**metadata(KEPT), "more": text})
    contents = json.dumps(header)
    assert all(contents.count(escape) for escape in ("\\b", "\\f", "\\n", "\\r", "\\t", "\\\\", '\\"', "/"))
    with pytest.raises(Refused, match="the character number 8232"):
        model.read(file_of(contents.encode(), body))
    header, body = parts(KEPT, {**metadata(KEPT), "more": text[:-1]})
    model.read(file_of(json.dumps(header).replace("/", "\\/").encode(), body))


def test_texts_of_the_library_are_escaped(library, tmp_path):
    with Model(library, program=library.fake_program_with(b"a loss of two lines")) as model:
        record, _ = python_reads(tmp_path / "file", model.write())
        assert record.loss == 'one\ntwo\x01\t"\x7f'
        model.read(model.write())
    with Model(library, program=library.fake_program_with(b"an unknown character")) as model:
        with pytest.raises(Refused, match="the metadata entry loss holds the character number 888") as refused:
            model.write()
        assert refused.value.status == CHECKPOINT


def test_a_header_that_is_longer_than_the_library_allows(library):
    with Model(library, program=library.fake_program_with(b"a small header")) as model:
        with pytest.raises(Refused, match="the header does not fit in the 800 bytes") as refused:
            model.write()
        assert refused.value.status == CHECKPOINT
        with pytest.raises(Refused, match=r"header has .* bytes, that of this trainer has no more than 800"):
            model.read(checkpoint(KEPT))


@pytest.mark.parametrize("text", ["\u0378", "\U000e0001"])
def test_a_character_of_which_nothing_is_known(model, text):
    header, body = parts(KEPT, {**metadata(KEPT), "more": text})
    assert "it is not known here whether Python shows that" in refusal(model, file_of(header, body))


HEADER_PROBLEM = "it is no checkpoint of pullback, or its header is damaged"
NO_HEADERS = {
    "nothing": b"",
    "seven bytes": b"\x01\0\0\0\0\0\0",
    "a length beyond the file": struct.pack("<Q", 9) + b"{}",
    "the longest length": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a negative length": struct.pack("<q", -1) + b"{}",
    "a long header": file_of(b"{}" + b" " * 5000),
    "no JSON": file_of(b"hello"),
    "an empty header": file_of(b""),
    "spaces": file_of(b"   "),
    "null": file_of(b"null"),
    "a list": file_of(b"[]"),
    "no metadata": file_of(b"{}"),
    "metadata that are a list": file_of(b'{"__metadata__":[]}'),
    "metadata that are a number": file_of(b'{"__metadata__":{"format":1}}'),
    "empty metadata": file_of(b'{"__metadata__":{}}'),
    "another format": file_of(b'{"__metadata__":{"format":"pt","version":"1"}}'),
    "another version": file_of(b'{"__metadata__":{"format":"pullback-checkpoint","version":"3"}}'),
    "deep lists": file_of(b"[" * 4000),
    "deep objects": file_of(b'{"a":' * 800),
    "a deep tensor": file_of(b'{"state.seen":{"shape":' + b"[" * 3000),
    "a byte order mark": file_of(b"\xef\xbb\xbf{}"),
    "no UTF-8": file_of(b'{"__metadata__":{"\xff":"a"}}'),
    "an overlong slash": file_of(b'{"__metadata__":{"\xc0\xaf":"a"}}'),
    "half a pair in UTF-8": file_of(b'{"__metadata__":{"\xed\xa0\x80":"a"}}'),
    "beyond Unicode": file_of(b'{"__metadata__":{"\xf4\x90\x80\x80":"a"}}'),
    "a cut character": file_of(b'{"__metadata__":{"\xe2\x82"'),
    "a control character": file_of(b'{"__metadata__":{"a\nb":"a"}}'),
    "a bad escape": file_of(b'{"__metadata__":{"\\x41":"a"}}'),
    "a cut escape": file_of(b'{"__metadata__":{"\\'),
    "a cut code": file_of(b'{"__metadata__":{"\\u00'),
    "no hexadecimal": file_of(b'{"__metadata__":{"\\u00g0":"a"}}'),
    "single quotes": file_of(b"{'__metadata__':{}}"),
    "a comma at the end": file_of(b'{"__metadata__":{"format":"pullback-checkpoint","version":"1",}}'),
    "two values": file_of(b'{"__metadata__":{}}{}'),
    "many entries": file_of(b'{"__metadata__":{' + b",".join(b'"%d":""' % i for i in range(300)) + b"}}"),
}


@pytest.mark.parametrize("contents", NO_HEADERS.values(), ids=NO_HEADERS.keys())
def test_no_header_of_ours(model, contents, tmp_path):
    refusal(model, contents)
    with pytest.raises(CheckpointError):
        python_reads(tmp_path / "file", contents)


def changed_entry(key, **fields):
    def change(header, body):
        header[key].update(fields)
        return header, body

    return change


def without(key):
    def change(header, body):
        del header[key]
        return header, body

    return change


def replaced(old, new):
    """In the text of the header."""

    def change(header, body):
        text = json.dumps(header)
        assert text.count(old) == 1, old
        return text.replace(old, new).encode(), body

    return change


def extra(header, body):
    header["state.more"] = {"dtype": "U8", "shape": [1], "data_offsets": [len(body), len(body) + 1]}
    return header, body + b"\0"


def gap(header, body):
    header["optimizer.3"]["data_offsets"] = [len(body), len(body) + 8]
    return header, body + b"\0" * 8


TABLES = {  # of tensors; those of which Python's file knows nothing are the trainer's
    "a missing tensor": (without("state.empty"), "the checkpoint lacks state.empty", False),
    "a tensor too many": (extra, "holds state.more, which this trainer does not have", False),
    "a gap": (gap, "optimizer.3 does not begin where the tensor before it ends", True),
    "one place for two": (changed_entry("state.seen", data_offsets=[0, 16]), "does not begin where", True),
    "another shape": (
        changed_entry("param.linear.weight", shape=[2, 3]),
        "param.linear.weight is of another shape",
        True,
    ),
    "another rank": (changed_entry("param.linear.weight", shape=[3, 2, 1]), "is of another shape or dtype", True),
    "no rank": (changed_entry("optimizer.0", shape=[1]), "optimizer.0 is of another shape or dtype", False),
    "another dtype": (changed_entry("optimizer.1", dtype="I32"), "optimizer.1 is of another shape or dtype", True),
    "an unknown dtype": (changed_entry("state.seen", dtype="F8"), "is of another shape or dtype", True),
    "a wrong size": (changed_entry("state.seen", data_offsets=[40, 48]), HEADER_PROBLEM, True),
    "an end before the beginning": (changed_entry("state.empty", data_offsets=[8, 0]), HEADER_PROBLEM, True),
    "a negative place": (changed_entry("state.empty", data_offsets=[-1, -1]), HEADER_PROBLEM, True),
    "one place": (changed_entry("state.empty", data_offsets=[0]), HEADER_PROBLEM, True),
    "three places": (changed_entry("state.empty", data_offsets=[0, 0, 0]), HEADER_PROBLEM, True),
    "a place that is no integer": (changed_entry("state.empty", data_offsets=[0.0, 0]), HEADER_PROBLEM, True),
    "a place that is a text": (changed_entry("state.empty", data_offsets=["0", 0]), HEADER_PROBLEM, True),
    "a size that is true": (changed_entry("state.seen", shape=[True]), HEADER_PROBLEM, True),
    "a size with an exponent": (replaced('"shape": [0, 3]', '"shape": [0, 3e0]'), HEADER_PROBLEM, True),
    "a size with a leading zero": (replaced('"shape": [0, 3]', '"shape": [0, 03]'), HEADER_PROBLEM, True),
    "a size of 2^63": (changed_entry("state.empty", shape=[0, 2**63]), HEADER_PROBLEM, True),
    "a size of 2^64": (changed_entry("state.empty", shape=[0, 2**64 + 3]), HEADER_PROBLEM, True),
    "a size of many digits": (replaced('"shape": [0, 3]', f'"shape": [0, {"9" * 900}]'), HEADER_PROBLEM, True),
    "65 axes": (changed_entry("state.empty", shape=[0] * 65), HEADER_PROBLEM, True),
    "no shape": (replaced('"shape": [0, 3], ', ""), HEADER_PROBLEM, True),
    "a field too many": (changed_entry("state.empty", more=1), HEADER_PROBLEM, True),
    "a field twice": (replaced('"shape": [0, 3]', '"shape": [0, 3], "shape": [0, 3]'), HEADER_PROBLEM, True),
    "a tensor twice": (
        replaced('"state.empty"', '"state.empty": {"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}, "state.empty"'),
        HEADER_PROBLEM,
        True,
    ),
    "a tensor that is null": (replaced('"__metadata__"', '"state.more": null, "__metadata__"'), HEADER_PROBLEM, True),
    "metadata twice": (replaced('"__metadata__"', '"__metadata__": {}, "__metadata__"'), HEADER_PROBLEM, True),
    "an entry twice": (replaced('"version": "2"', '"version": "2", "version": "2"'), HEADER_PROBLEM, True),
}


@pytest.mark.parametrize(("change", "message", "in_python"), TABLES.values(), ids=TABLES.keys())
def test_tables_of_tensors_that_are_none(model, tmp_path, change, message, in_python):
    contents = file_of(*change(*parts()))
    assert message in refusal(model, contents)
    if in_python:
        with pytest.raises(CheckpointError):
            python_reads(tmp_path / "file", contents)


def random_text(**changes):
    state = {"bit_generator": "PCG64", "state": {"state": 1, "inc": 3}, "has_uint32": 0, "uinteger": 0}
    for name, value in changes.items():
        (state["state"] if name in ("inc",) else state)[name] = value
    return json.dumps(state)


RANDOM = "random is no state of PCG64"
TEXTS = {
    "a random state of 128 bits and one": ("random", random_text(state={"state": 2**128, "inc": 3}), RANDOM),
    "a negative random state": ("random", random_text(state={"state": -1, "inc": 3}), RANDOM),
    "an even increment": ("random", random_text(inc=2), RANDOM),
    "no increment": ("random", random_text(state={"state": 1}), RANDOM),
    "a state too many": ("random", random_text(state={"state": 1, "inc": 3, "more": 1}), RANDOM),
    "another generator": ("random", random_text(bit_generator="MT19937"), RANDOM),
    "a flag of 2": ("random", random_text(has_uint32=2), RANDOM),
    "a flag that is true": ("random", random_text(has_uint32=True), RANDOM),
    "a word of 33 bits": ("random", random_text(uinteger=2**32), RANDOM),
    "a word that is a text": ("random", random_text(uinteger="1"), RANDOM),
    "more in the random state": ("random", random_text(more=1), RANDOM),
    "a list for a random state": ("random", "[]", RANDOM),
    "an empty random state": ("random", "", RANDOM),
    "a random state and more": ("random", random_text() + "x", RANDOM),
    "a flag twice": ("random", random_text().replace('"uinteger"', '"has_uint32": 0, "uinteger"'), RANDOM),
    "a random state and spaces": ("random", random_text() + " " * 500, None),
    "no epochs": ("epochs", None, "epochs is missing"),
    "no steps": ("steps", None, "steps is missing"),
    "no random state": ("random", None, "random is missing"),
    "no parameters": ("parameters", None, "parameters is missing"),
    "no states": ("states", None, "states is missing"),
    "negative epochs": ("epochs", "-1", "epochs is no number"),
    "epochs with a sign": ("epochs", "+1", "epochs is no number"),
    "epochs with a space": ("epochs", " 1", "epochs is no number"),
    "epochs with a space behind": ("epochs", "1 ", "epochs is no number"),
    "epochs with a zero before": ("epochs", "01", "epochs is no number"),
    "no epochs in the text": ("epochs", "", "epochs is no number"),
    "epochs of 64 bits": ("epochs", str(2**63), "epochs is no number"),
    "epochs of many digits": ("epochs", "9" * 200, "epochs is no number"),
    "epochs in other digits": ("epochs", "٣", "epochs is no number"),
    "real epochs": ("epochs", "1.0", "epochs is no number"),
    "other steps": ("steps", "6", "was saved after 5 steps, its metadata says 6"),
}


@pytest.mark.parametrize(("name", "text", "message"), TEXTS.values(), ids=TEXTS.keys())
def test_metadata_that_are_none(model, tmp_path, name, text, message):
    """With the checksum that belongs to them."""
    texts = metadata(KEPT)
    texts.pop(name)
    if text is not None:
        texts[name] = text
    contents = file_of(*parts(KEPT, texts))
    if message is None:  # spaces at the end of JSON are none
        model.read(contents)
        return
    assert message in refusal(model, contents)
    if "steps, its" not in message:
        with pytest.raises(CheckpointError):
            python_reads(tmp_path / "file", contents)


def test_counts_can_be_increased(model):
    """Those that are read leave room for more; Python's integers have no end."""
    kept = {**KEPT, "optimizer.0": np.array(2**61)}
    assert "epochs is no number from 0 to 2^62 - 1" in refusal(
        model, checkpoint(KEPT, {**metadata(KEPT), "epochs": str(2**63 - 1)})
    )
    model.read(checkpoint(kept, metadata(kept, epochs=2**62 - 1)))
    model.run(*data(8), epochs=2)
    assert (model.steps, model.epochs) == (2**61 + 4, 2**62 + 1)


def test_extreme_generators_are_read(model):
    for state in (0, 2**128 - 1):
        for word in (0, 2**32 - 1):
            value = json.loads(random_text(state={"state": state, "inc": 2**128 - 1}, has_uint32=1, uinteger=word))
            contents = checkpoint(KEPT, metadata(KEPT, value))
            model.read(contents)
            header = json.loads(
                model.write()[8:].decode("latin1").split("}}", 1)[0].split('"random":')[1].split('","')[0] + '"'
            )
            assert json.loads(header) == value


VALUES = {
    "a byte that is no bool": ("state.flags", np.array([1, 2, 0], np.uint8).view(bool), "neither true nor false: 2"),
    "negative steps": ("optimizer.0", np.array(-1), "num_steps, a count, is -1"),
    "more steps than can be counted on": ("optimizer.0", np.array(2**63 - 1), "it must be >= 0 and less than 2^62"),
    "a rate out of its bounds": ("optimizer.3", np.array(10.0), "lr must be a finite number >= 0 and < 10, got 10"),
    "a rate that is no number": ("optimizer.3", np.array(np.nan), "got nan"),
}


@pytest.mark.parametrize(("key", "value", "message"), VALUES.values(), ids=VALUES.keys())
def test_values_out_of_range(model, key, value, message):
    kept = {**KEPT, key: value}
    texts = {**metadata(KEPT), "steps": "5"}
    assert message in refusal(model, file_of(*parts(kept, texts)))


@pytest.mark.parametrize("name", ["parameters", "states", "optimizer", "optimizer_states", "loss", "training"])
def test_another_training(model, name):
    message = refusal(model, checkpoint(KEPT, {**metadata(KEPT), name: "another"}))
    assert f"another training's: its {name} is another, this trainer's is" in message


@pytest.mark.parametrize("name", ["loss", "training", "optimizer_states", "hyperparameters"])
def test_older_files_say_less(model, name):
    texts = metadata(KEPT)
    del texts[name]
    model.read(checkpoint(KEPT, texts))


def test_another_trainers_file(library):
    with Model(library) as model, Model(library, program=library.fake_program_with(b"another loss")) as other:
        assert "its loss is Gr????e\\'s, this trainer's is Other" in refusal(other, model.write())


def test_a_file_of_safetensors_is_none(model):
    import safetensors.numpy

    assert HEADER_PROBLEM in refusal(model, safetensors.numpy.save(KEPT))
    assert "is pt, this trainer's is" in refusal(model, safetensors.numpy.save(KEPT, {"format": "pt", "version": "1"}))


# ---- functions that read and write -----------------------------------------------------------------------------------


def test_functions_that_fail(model):
    """At each of their calls."""
    contents = checkpoint(KEPT)
    before, calls = model.snapshot(), []

    def failing_read(number):
        def read(_, offset, to, count):
            calls.append(count)
            if len(calls) == number:
                return 17
            ctypes.memmove(to, contents[offset : offset + count], count)
            return 0

        return Read(read)

    model.call("read", failing_read(0), None, len(contents))
    total = len(calls)
    assert total > 10
    before = model.snapshot()
    first_pass = 2 + (total - 2) // 2
    for number in range(1, first_pass + 1):
        calls.clear()
        with pytest.raises(Refused, match="the function that reads returned 17") as refused:
            model.call("read", failing_read(number), None, len(contents))
        assert refused.value.status == FILE and len(calls) == number
        assert model.snapshot() == before
    for number in range(1, 20):
        calls.clear()

        @Write
        def write(_, data, count, number=number):
            calls.append(count)
            return 17 if len(calls) == number else 0

        try:
            model.call("write", write, None, None)
        except Refused as refused:
            assert refused.status == FILE and f"returned 17 after {sum(calls[:-1])} bytes" in refused.message
        else:
            assert len(calls) == number - 1 > 8
            break
    assert model.snapshot() == before


def test_a_file_that_changes_while_it_is_read(model):
    """At whichever of the reads of the second pass: the instance refuses work until it is whole again."""
    kept = {**KEPT, "param.linear.bias": np.array([5.0, 6.0])}
    contents, whole = checkpoint(kept), model.snapshot()
    seen = []

    def changing(number, failure):
        def read(_, offset, to, count):
            seen.append(offset)
            part = bytearray(contents[offset : offset + count])
            if len(seen) >= number and offset > 8:
                part[0] ^= 1
                if failure:
                    return 5
            ctypes.memmove(to, bytes(part), count)
            return 0

        return Read(read)

    model.call("read", changing(1000, False), None, len(contents))
    total = len(seen)
    x, scale, labels = data(4)
    for number in range(2 + (total - 2) // 2 + 1, total + 1):
        for failure in (False, True):
            model.call("reset")
            seen.clear()
            with pytest.raises(Refused, match="the instance holds a mixture") as refused:
                model.call("read", changing(number, failure), None, len(contents))
            assert refused.value.status == CHECKPOINT
            for call in (
                lambda: model.step(x, scale, labels),
                lambda: model.predict(x, scale),
                lambda: model.evaluate(x, scale, labels),
                lambda: model.run(x, scale, labels, epochs=1),
                lambda: model.get("lr"),
                lambda: model.write(),
                lambda: model.call("set_hyperparameter", b"lr", 0.1),
            ):
                with pytest.raises(Refused, match="the values are a mixture") as refused:
                    call()
                assert refused.value.status == STATE
            with pytest.raises(Refused):
                model.read(contents[:-1])
            with pytest.raises(Refused, match="the values are a mixture"):
                model.get("lr")
            if failure:
                model.read(contents)
                assert_same_kept(model, kept, exact=True)
            else:
                model.call("reset")
                assert model.snapshot() == whole


def test_odd_reads_and_writes(model):
    for call, arguments, message in (
        ("read", (Read(), None, 8), "the function that reads is NULL"),
        ("write", (Write(), None, None), "the function that writes is NULL"),
        ("read", (Read(lambda *_: 0), None, -1), "the size must not be negative, got -1"),
    ):
        with pytest.raises(Refused, match=message) as refused:
            model.call(call, *arguments)
        assert refused.value.status == ARGUMENT
