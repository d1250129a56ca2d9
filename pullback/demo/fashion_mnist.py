"""Fashion-MNIST for the demo: the whole data set where it is to be had, else a labelled sample of it.

`load()` looks in this order and takes the first that is there:

1. the folder named by the environment variable `PULLBACK_DATA` (once set it must be usable: no silent fallback),
2. the folder of Debian's package `dataset-fashion-mnist`,
3. the user's cache, `~/.cache/pullback/fashion-mnist` on Linux,
4. the data set's mirrors, into the cache (unless `PULLBACK_OFFLINE=1`; it takes the package pooch),
5. the sample that comes with pullback: the official 10,000 test images, split 8,000 / 2,000.

Files of 2 to 5 must be the official ones, by the SHA-256 of what they hold: those that are not are passed over with a
line that says so, and replaced by the next download. `PULLBACK_DATA` may name other data in files of that format. No
file takes more than 64 MiB of memory, whatever it unpacks to.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.environment import switch
from pullback.ir.errors import UserError
from pullback.runtime.files import open_regular, user_cache

CLASS_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
SAMPLE_TRAIN = 8_000
SAMPLE_FOLDER = Path(__file__).parent / "data"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
)
TIMEOUT_SECONDS = 5.0
MAXIMUM_BYTES = 64 << 20

# Of the decompressed content: the same whichever way a mirror or a distribution compressed it.
SHA256 = {
    TRAIN_IMAGES: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    TRAIN_LABELS: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    TEST_IMAGES: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    TEST_LABELS: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


class DataError(UserError, ValueError):
    """A data file that was asked for is missing, cut short, or not what its name says."""


@dataclass(frozen=True)
class FashionMNIST:
    """Images as rows of 784 floats in [0, 1], labels as class indices."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: tuple[str, ...]
    source: str  # one line which tells the user what data this is
    whole: bool  # all 70,000 images, or the sample


def load(report: Callable[[str], None] = print) -> FashionMNIST:
    """The data set; `report` gets one line where a download is tried and where it failed."""
    chosen = os.environ.get("PULLBACK_DATA")
    if chosen:
        folder = Path(chosen).expanduser()
        missing = [name for name in SHA256 if _find(folder, name) is None]
        if missing:
            raise DataError(
                f"PULLBACK_DATA is set to {str(folder)!r}, but that folder lacks {', '.join(missing)} (plain or .gz)",
                hint="name a folder with the four Fashion-MNIST files, or unset PULLBACK_DATA",
            )
        return _whole(folder, f"Fashion-MNIST, {{}}, from PULLBACK_DATA ({folder})")
    known = ((DEBIAN_FOLDER, "Debian's package dataset-fashion-mnist"), (cache_folder(), str(cache_folder())))
    for folder, origin in known:
        if all(_find(folder, name) is not None for name in SHA256):
            try:
                return _whole(folder, f"Fashion-MNIST, {{}}, from {origin}", official=True)
            except DataError as error:
                report(f"{error.message}: it is passed over.")
    if _download_quietly(cache_folder(), report):
        return _whole(cache_folder(), f"Fashion-MNIST, {{}}, from {cache_folder()}", official=True)
    return sample()


def sample() -> FashionMNIST:
    """The sample that comes with pullback: the official test images, the first 8,000 to train, the rest to test."""
    x, y = _read_pair(SAMPLE_FOLDER, TEST_IMAGES, TEST_LABELS, official=True)
    cut = SAMPLE_TRAIN
    source = (
        f"a sample of Fashion-MNIST: its official test set of {len(x):,} images, "
        f"split into {cut:,} for training and {len(x) - cut:,} for testing (not the whole data set)"
    )
    return FashionMNIST(x[:cut], y[:cut], x[cut:], y[cut:], CLASS_NAMES, source, whole=False)


def cache_folder() -> Path:
    """Where a downloaded data set is kept for the next run."""
    return user_cache() / "fashion-mnist"


def read_idx(path: Path, rank: int, name: str | None = None) -> np.ndarray:
    """The bytes of an IDX file (plain or gzip) as a uint8 array of `rank` dimensions; checks magic number and sizes,
    and the content when the `name` of an official file is given."""
    data = _read(path)
    if name is not None and hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise DataError(f"{path} is not the official file: its checksum differs")
    header = 4 + 4 * rank
    if len(data) < header:
        raise DataError(f"{path}: {len(data)} bytes are too few for an IDX header of {header} bytes")
    magic = int.from_bytes(data[:4], "big")
    expected = 0x0800 | rank
    if magic != expected:
        raise DataError(
            f"{path}: not an IDX file of unsigned bytes with {rank} dimensions: "
            f"expected the magic number {expected:#010x}, found {magic:#010x}"
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", rank, offset=4))
    if len(data) - header != math.prod(shape):
        raise DataError(
            f"{path}: the header announces {' x '.join(map(str, shape))} = {math.prod(shape)} bytes, "
            f"but {len(data) - header} follow it"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _whole(folder: Path, source: str, official: bool = False) -> FashionMNIST:
    x_train, y_train = _read_pair(folder, TRAIN_IMAGES, TRAIN_LABELS, official)
    x_test, y_test = _read_pair(folder, TEST_IMAGES, TEST_LABELS, official)
    sizes = f"{len(x_train):,} training and {len(x_test):,} test images"
    return FashionMNIST(x_train, y_train, x_test, y_test, CLASS_NAMES, source.format(sizes), whole=True)


def _read_pair(folder: Path, images_name: str, labels_name: str, official: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels that belong together, as float32 rows in [0, 1] and int64 class indices."""
    images_path, labels_path = _existing(folder, images_name), _existing(folder, labels_name)
    images = read_idx(images_path, 3, images_name if official else None)
    labels = read_idx(labels_path, 1, labels_name if official else None)
    if images.shape[1:] != (28, 28):
        height, width = images.shape[1:]
        raise DataError(f"{images_path}: expected images of 28 x 28 pixels, found {height} x {width}")
    if len(images) != len(labels):
        raise DataError(f"{images_path} holds {len(images)} images, but {labels_path} holds {len(labels)} labels")
    if labels.size and labels.max() >= len(CLASS_NAMES):
        raise DataError(f"{labels_path}: expected classes 0 to {len(CLASS_NAMES) - 1}, found {labels.max()}")
    return images.reshape(len(images), 784).astype(np.float32) / np.float32(255), labels.astype(np.int64)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _existing(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise DataError(f"{folder} lacks the file {name} (plain or .gz)")
    return path


def _read(path: Path, packed: bool | None = None, shown: str = "") -> bytes:
    """What a file holds, unpacked where it is `packed` (by default: where its name ends in .gz); a DataError when it
    cannot be read or is too large."""
    shown = shown or str(path)
    try:
        with open_regular(path) as file:
            is_packed = path.suffix == ".gz" if packed is None else packed
            content = gzip.GzipFile(fileobj=file) if is_packed else file
            data = content.read(MAXIMUM_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        hint = "check the path, and that the file may be read"
        raise DataError(f"{shown}: cannot be read: {error}", hint=hint) from error
    if len(data) > MAXIMUM_BYTES:
        raise DataError(f"{shown}: it holds more than {MAXIMUM_BYTES >> 20} MiB, too much for Fashion-MNIST")
    return data


def _is_official(path: Path | None, name: str) -> bool:
    """Whether it is the official file of that name."""
    try:
        return path is not None and hashlib.sha256(_read(path)).hexdigest() == SHA256[name]
    except DataError:
        return False


def _download_quietly(folder: Path, report: Callable[[str], None]) -> bool:
    """Whether the whole data set now lies in `folder`; a failure is one line, never an exception."""
    if switch("PULLBACK_OFFLINE"):
        return False
    if importlib.util.find_spec("pooch") is None:
        report("The whole data set is fetched where pooch is installed: pip install 'pullback[demo]'.")
        return False
    problem: Exception | None = None
    report("Fetching Fashion-MNIST (30 MB, once; PULLBACK_OFFLINE=1 turns this off) ...")
    for mirror in MIRRORS:
        try:
            for name in SHA256:
                if not _is_official(_find(folder, name), name):
                    _download(mirror, name, folder)
            return True
        except (OSError, DataError) as error:  # requests' errors are OSErrors
            problem = error
    report(f"The whole data set could not be fetched ({problem}).")
    return False


def _download(mirror: str, name: str, folder: Path) -> None:
    """One file from a mirror, its content checked, moved into place in one step."""
    import pooch

    def checked(url: str, output_file: Any, of: Any) -> None:
        pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS)(url, output_file, of)
        content = _read(Path(output_file), packed=True, shown=url)
        if hashlib.sha256(content).hexdigest() != SHA256[name]:
            raise DataError(f"{url} is not the official file: its checksum differs")

    pooch.get_logger().setLevel("WARNING")
    for old in (folder / name, folder / f"{name}.gz"):  # what is there is not the official one
        old.unlink(missing_ok=True)
    pooch.retrieve(f"{mirror}{name}.gz", known_hash=None, fname=f"{name}.gz", path=folder, downloader=checked)
