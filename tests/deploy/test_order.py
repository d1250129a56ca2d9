"""What the exported runtime has in place of libraries, against these: NumPy's random numbers, SHA-256, texts."""

import ctypes
import hashlib

import numpy as np
import pytest

from tests.deploy.fake import Random


def seeded(library, seed):
    random = Random()
    library.pb_random_seed(ctypes.byref(random), seed)
    return random


def permutation(library, random, count):
    order = np.full(count + 1, -7, np.int32)
    library.pb_random_permutation(ctypes.byref(random), order.ctypes.data, count)
    assert order[count] == -7
    return order[:count]


def assert_same_state(random, numpy_state):
    words = [(numpy_state["state"][name] >> 64, numpy_state["state"][name] & (2**64 - 1)) for name in ("state", "inc")]
    assert [tuple(random.state), tuple(random.increment)] == words
    assert (random.has_word, random.word) == (numpy_state["has_uint32"], numpy_state["uinteger"])


SEEDS = [0, 1, 2, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
SEEDS += np.random.default_rng(0).integers(0, 2**64, 490, np.uint64).tolist()


def test_seeds_are_those_of_numpy(library):
    for seed in SEEDS:
        random, expected = seeded(library, seed), np.random.PCG64(seed)
        assert_same_state(random, expected.state)
        numbers = [library.pb_random_next(ctypes.byref(random)) for _ in range(8)]
        assert numbers == expected.random_raw(8).tolist()


def test_permutations_are_those_of_numpy(library):
    """Thousands, of all small sizes and some large ones, each going on where the one before has left the generator."""
    for seed in SEEDS[:20]:
        random, expected = seeded(library, seed), np.random.Generator(np.random.PCG64(seed))
        for count in [*range(200), 255, 256, 257, 1000, 4096, 4097]:
            assert np.array_equal(permutation(library, random, count), expected.permutation(count))
        state = expected.bit_generator.state
        words = random.word if random.has_word else None
        assert words == (state["uinteger"] if state["has_uint32"] else None)
        assert tuple(random.state) == (state["state"]["state"] >> 64, state["state"]["state"] & (2**64 - 1))


@pytest.mark.parametrize("count", [60_000, 1_281_167])
def test_permutations_of_large_data_sets(full, count):
    expected = np.random.Generator(np.random.PCG64(3)).permutation(count)
    assert np.array_equal(permutation(full, seeded(full, 3), count), expected)


def sha256(library, *parts, call="pb_sha256_add"):
    digest, result = ctypes.create_string_buffer(128), ctypes.create_string_buffer(65)
    library.pb_sha256_begin(digest)
    for part in parts:
        assert getattr(library, call)(digest, part, len(part)) in (0, None)
    library.pb_sha256_end_text(digest, result)
    return result.value.decode()


def test_sha256(library):
    assert sha256(library) == hashlib.sha256().hexdigest()
    data = np.random.default_rng(0).bytes(1000)
    for length in range(260):
        assert sha256(library, data[:length]) == hashlib.sha256(data[:length]).hexdigest()
    for cut in range(0, 200, 3):
        assert sha256(library, data[:cut], data[cut:200], b"") == hashlib.sha256(data[:200]).hexdigest()
    assert sha256(library, b"a" * 1_000_000) == hashlib.sha256(b"a" * 1_000_000).hexdigest()


def test_repr_is_that_of_python(library):
    texts = [
        "",
        "plain",
        "it's",
        '"',
        "'\"",
        "\\",
        "a\nb\rc\t",
        "\x00\x1f\x7f\x80\x9f\xa0\xad\xff",
        "Größe",
        "日本語の重み",
    ]
    texts += [chr(code) for code in range(256)] + ["αβγ weight", "слой.вес", "…—→≤²", "\ud800", "\ue000", "\udfff'"]
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        expected = hashlib.sha256(repr(text).encode()).hexdigest()
        assert sha256(library, encoded, call="pb_sha256_add_repr") == expected, ascii(text)


def test_what_is_known_to_be_printable_is_so_in_python(library):
    answers = [library.pb_is_printable(code) for code in range(0x110000)]
    wrong = [
        hex(code) for code, answer in enumerate(answers) if answer >= 0 and chr(code).isprintable() != (answer == 1)
    ]
    assert not wrong
    assert sum(answer >= 0 for answer in answers) > 80_000
    assert all(answer >= 0 for answer in answers[:0x370])


class Text(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("length", ctypes.c_size_t),
        ("is_cut", ctypes.c_int),
    )


def text_of(library, kind, value, size=64):
    buffer = ctypes.create_string_buffer(size)
    text = Text(ctypes.addressof(buffer), size, 0, 0)
    getattr(library, f"pb_text_add_{kind}")(ctypes.byref(text), value)
    assert text.is_cut or text.length == len(buffer.value)
    return buffer.value.decode()


def test_integers_as_text(library):
    for value in (0, 1, -1, 9, 10, 99, 100, 2**31, 2**63 - 1, -(2**63)):
        assert text_of(library, "integer", value) == str(value)
    for value in (0, 9, 10, 2**32 - 1, 2**32, 2**64 - 1, 2**64, 10**19, 10**38, 2**127, 2**128 - 1):
        words = (ctypes.c_uint64 * 2)(value >> 64, value & (2**64 - 1))
        assert text_of(library, "wide", words) == str(value)


def test_numbers_as_text(library):
    values = [0.0, 1.0, -1.0, 0.1, 0.5, 1e-4, 1e-5, 123456, 999999, 999999.5, 1e6, 1234567, 1e22, 1e-300, 5e-324, 1e308]
    values += [
        1.7976931348623157e308,
        2.2250738585072014e-308,
        float("inf"),
        float("-inf"),
        float("nan"),
        0.3,
        9.99999e-5,
    ]
    source = np.random.default_rng(0)
    values += (source.standard_normal(2000) * 10.0 ** source.integers(-300, 300, 2000)).tolist()
    values += source.integers(-(10**6), 10**6, 500).astype(float).tolist()
    for value in values:
        assert text_of(library, "real", value) == f"{value:g}"


def test_a_text_stops_where_its_buffer_ends(library):
    assert text_of(library, "integer", 123456789, size=5) == "1234"
