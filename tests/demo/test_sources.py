"""The demo's data: where they are looked for, and that no wrong file passes for them."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pullback.demo import fashion_mnist
from pullback.demo.fashion_mnist import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    DataError,
    load,
    read_idx,
    sample,
)
from tests.demo.mirror import serving

IMAGES = np.arange(2 * 28 * 28, dtype=np.int64).reshape(2, 28, 28).astype(np.uint8)
LABELS = np.array([9, 0], np.uint8)


sample_of_nothing = object()


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    header = (0x0800 | array.ndim).to_bytes(4, "big") + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(folder: Path, **contents: bytes) -> Path:
    """The four files, those of ``contents`` (by the names of this module) in place of right ones."""
    files = {TRAIN_IMAGES: idx(IMAGES), TRAIN_LABELS: idx(LABELS), TEST_IMAGES: idx(IMAGES[:1]),
             TEST_LABELS: idx(LABELS[:1])}  # fmt: skip
    names = {"train_images": TRAIN_IMAGES, "train_labels": TRAIN_LABELS}
    for name, data in (files | {names[k]: v for k, v in contents.items()}).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data set on this machine, and no network."""
    monkeypatch.delenv("PULLBACK_DATA", raising=False)
    monkeypatch.setenv("PULLBACK_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")


def test_files_of_a_folder_become_rows_between_0_and_1(tmp_path, monkeypatch):
    (write(tmp_path) / TRAIN_IMAGES).rename(tmp_path / "plain")
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(gzip.compress(idx(IMAGES)))
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path))
    data = load()
    assert data.whole and str(tmp_path) in data.source and "2 training and 1 test images" in data.source
    assert data.x_train.dtype == np.float32 and data.y_train.dtype == np.int64
    np.testing.assert_array_equal(data.x_train, (IMAGES.reshape(2, 784) / 255).astype(np.float32))
    np.testing.assert_array_equal(data.y_train, [9, 0])
    np.testing.assert_array_equal(data.y_test, [9])


def test_a_folder_that_was_named_must_hold_them(tmp_path, monkeypatch):
    (write(tmp_path) / TEST_LABELS).unlink()
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"lacks {TEST_LABELS}"):
        load()


@pytest.mark.parametrize("contents, message", [
    ({"train_images": idx(IMAGES)[:-1]}, r"announces 2 x 28 x 28 = 1568 bytes, but 1567 follow"),
    ({"train_images": idx(IMAGES) + b"0"}, r"but 1569 follow"),
    ({"train_images": idx(IMAGES)[:15]}, r"15 bytes are too few for an IDX header of 16"),
    ({"train_images": idx(IMAGES[0])}, r"with 3 dimensions: expected the magic number 0x00000803, found 0x00000802"),
    ({"train_images": idx(IMAGES[:, 1:])}, r"expected images of 28 x 28 pixels, found 27 x 28"),
    ({"train_images": idx(IMAGES[:, :, 1:])}, r"expected images of 28 x 28 pixels, found 28 x 27"),
    ({"train_images": idx(IMAGES[:1])}, r"holds 1 images, but .* holds 2 labels"),
    ({"train_labels": idx(LABELS + 1)}, r"expected classes 0 to 9, found 10"),
])  # fmt: skip
def test_a_wrong_file_is_an_error(tmp_path, monkeypatch, contents, message):
    monkeypatch.setenv("PULLBACK_DATA", str(write(tmp_path, **contents)))
    with pytest.raises(DataError, match=message):
        load()


def test_a_file_cut_in_its_packing_is_an_error(tmp_path):
    file = tmp_path / "images.gz"
    file.write_bytes(gzip.compress(idx(IMAGES))[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(file, 3)


def test_folders_are_looked_at_in_order(tmp_path, monkeypatch):
    official(monkeypatch, tmp_path)
    monkeypatch.setattr(fashion_mnist, "sample", lambda: sample_of_nothing)
    for name in ("debian", "cache/pullback/fashion-mnist"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name)
    assert "Debian" in load().source
    (tmp_path / "debian" / TRAIN_LABELS).unlink()
    assert str(tmp_path / "cache") in load().source
    (tmp_path / "cache/pullback/fashion-mnist" / TRAIN_LABELS).unlink()
    assert load() is sample_of_nothing


def test_the_sample_is_the_official_test_set_in_two(tmp_path):
    data = sample()
    assert not data.whole and "not the whole data set" in data.source
    assert (len(data.x_train), len(data.y_train), len(data.x_test), len(data.y_test)) == (8000, 8000, 2000, 2000)
    np.testing.assert_array_equal(np.bincount(np.concatenate([data.y_train, data.y_test])), [1000] * 10)
    assert list(data.y_train[:5]) == [9, 2, 1, 1, 6] and data.x_train.max() == 1.0


# -- downloads


def packed(folder: Path) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress((folder / name).read_bytes()) for name in fashion_mnist.SHA256}


def official(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, bytes]:
    """Small files as if they were the official ones."""
    write(folder)
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in fashion_mnist.SHA256}
    monkeypatch.setattr(fashion_mnist, "SHA256", digests)
    return packed(folder)


def test_a_mirror_fills_the_cache_once(tmp_path, monkeypatch):
    files = official(monkeypatch, tmp_path)
    lines: list[str] = []
    with serving(monkeypatch, files) as asked:
        for _ in range(2):
            assert str(tmp_path / "cache") in load(lines.append).source
            assert len(lines) == 1 and len(asked) == 4
    assert sorted(p.name for p in fashion_mnist.cache_folder().iterdir()) == sorted(files)


def test_the_next_mirror_gives_what_the_first_lacks(tmp_path, monkeypatch):
    files = official(monkeypatch, tmp_path)
    name = f"{TRAIN_IMAGES}.gz"
    with serving(monkeypatch, {name: files[name]}, files) as asked:
        assert load(lambda line: None).whole
    assert [path.partition("/")[0] for path in asked] == ["0"] * 2 + ["1"] * 3


def test_no_mirror_answers(tmp_path, monkeypatch):
    official(monkeypatch, tmp_path)
    monkeypatch.setattr(fashion_mnist, "sample", lambda: sample_of_nothing)
    lines: list[str] = []
    with serving(monkeypatch, {}):
        assert load(lines.append) is sample_of_nothing
    assert lines[-1].startswith("The whole data set could not be fetched (404") and len(lines) == 2
    assert not any(fashion_mnist.cache_folder().iterdir())


def test_offline_asks_nobody(monkeypatch):
    lines: list[str] = []
    with serving(monkeypatch, {}) as asked:
        monkeypatch.setenv("PULLBACK_OFFLINE", "1")
        assert "a sample" in load(lines.append).source
    assert not asked and not lines


def test_without_pooch_the_sample_is_taken(monkeypatch):
    lines: list[str] = []
    with serving(monkeypatch, {}) as asked:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert "a sample" in load(lines.append).source
    assert not asked and "pip install 'pullback[demo]'" in lines[0]
