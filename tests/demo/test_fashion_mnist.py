"""Data are checked wherever they come from, and what is unpacked has a bound."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.demo import fashion_mnist
from pullback.demo.fashion_mnist import SHA256, DataError, load, read_idx, sample
from tests.demo.mirror import serving


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def images(count: int, seed: int) -> bytes:
    return idx(np.random.default_rng(seed).integers(0, 256, (count, 28, 28), np.uint8))


def labels(count: int) -> bytes:
    return idx((np.arange(count) % 10).astype(np.uint8))


OFFICIAL = dict(zip(SHA256, (images(20, 1), labels(20), images(10, 2), labels(10)), strict=True))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder; small files stand for the official ones, and there is no network."""
    monkeypatch.setattr(fashion_mnist, "SHA256", {n: hashlib.sha256(d).hexdigest() for n, d in OFFICIAL.items()})
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(fashion_mnist, "sample", lambda: "the sample")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PULLBACK_OFFLINE", "1")
    monkeypatch.delenv("PULLBACK_DATA", raising=False)
    folder = fashion_mnist.cache_folder()
    folder.mkdir(parents=True)
    return folder


def fill(folder: Path, packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in OFFICIAL.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


def test_the_sample_is_the_official_one() -> None:
    found = sample()
    assert found.x_train.shape == (8000, 784) and found.y_test.shape == (2000,)


@pytest.mark.parametrize("packed", [True, False])
def test_the_cache_is_read(packed: bool, cache: Path) -> None:
    fill(cache, packed)
    found = load(pytest.fail)
    assert found.x_train.shape == (20, 784) and found.whole and str(cache) in found.source


@pytest.mark.parametrize("name", list(OFFICIAL))
@pytest.mark.parametrize("place", ["debian", "cache"])
def test_what_was_changed_is_passed_over(name: str, place: str, cache: Path, tmp_path: Path) -> None:
    folder = cache if place == "cache" else tmp_path / "debian"
    fill(folder)
    data = bytearray(OFFICIAL[name])
    data[-1] ^= 1  # a pixel, or a label
    (folder / f"{name}.gz").write_bytes(gzip.compress(bytes(data)))
    lines: list[str] = []
    assert load(lines.append) == "the sample"
    assert lines == [f"{folder / name}.gz is not the official file: its checksum differs: it is passed over."]


@pytest.mark.parametrize("packed", [True, False])
def test_what_was_changed_is_fetched_again(packed: bool, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cache, packed)
    name = fashion_mnist.TRAIN_IMAGES
    (cache / (f"{name}.gz" if packed else name)).write_bytes(b"anything")
    lines: list[str] = []
    with serving(monkeypatch, {f"{n}.gz": gzip.compress(d) for n, d in OFFICIAL.items()}) as asked:
        assert load(lines.append).x_train.shape == (20, 784)
        assert asked == [f"0/{name}.gz"] and len(lines) == 2
        assert load(pytest.fail).whole


def test_a_mirror_with_other_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with serving(monkeypatch, {f"{n}.gz": gzip.compress(images(20, 3)) for n in OFFICIAL}):
        assert load(lines.append) == "the sample"
    assert "is not the official file" in lines[-1] and not any(cache.iterdir())


@functools.cache
def bomb() -> bytes:
    """Half a megabyte that unpacks to half a gigabyte."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(512):
            file.write(bytes(1 << 20))
    return packed.getvalue()


@pytest.mark.parametrize("where", ["cache", "mirror", "named folder"])
def test_what_unpacks_to_too_much(where: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    packed = bomb()
    tracemalloc.start()
    try:
        if where == "mirror":
            with serving(monkeypatch, {f"{n}.gz": packed for n in OFFICIAL}):
                assert load(lines.append) == "the sample" and not any(cache.iterdir())
        else:
            fill(cache)
            (cache / f"{fashion_mnist.TRAIN_IMAGES}.gz").write_bytes(packed)
            if where == "cache":
                assert load(lines.append) == "the sample"
            else:
                monkeypatch.setenv("PULLBACK_DATA", str(cache))
                with pytest.raises(DataError, match="it holds more than 64 MiB") as error:
                    load(lines.append)
                lines.append(str(error.value))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "it holds more than 64 MiB" in lines[-1] and peak < 3 * fashion_mnist.MAXIMUM_BYTES


def test_a_named_folder_may_hold_other_data(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "own")
    (tmp_path / "own" / f"{fashion_mnist.TRAIN_IMAGES}.gz").write_bytes(gzip.compress(images(20, 9)))
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path / "own"))
    assert load(pytest.fail).x_train.shape == (20, 784)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too few"),
        (struct.pack(">I3I", 0x0803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "but 0 follow it"),
        (struct.pack(">I3I", 0x0D03, 1, 1, 1) + b"\0", "expected the magic number"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], "but 23 follow it"),
    ],
)
def test_damaged_files(data: bytes, message: str, tmp_path: Path) -> None:
    for name, contents in (("plain", data), ("packed.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(DataError, match=message):
            read_idx(tmp_path / name, 3)


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-9], lambda d: b"\x1f\x8b" + d, lambda d: d[:30] + b"\xff" * 9 + d[39:]]
)
def test_damaged_archives(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(damage(gzip.compress(images(3, 0))))
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, 3)


def test_a_folder_or_device_in_place_of_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(DataError, match="cannot be read"):
            read_idx(path, 3)
