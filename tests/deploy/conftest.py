"""The trainer written by hand, compiled with threads and files, and without both."""

import ctypes

import pytest

from tests.deploy.fake import Model, compile_fake, open_library

FULL = ("-DPB_PARALLEL_BYTES=1",)  # the trainer's rows are small: all threads are to gather them
BARE = ("-DPB_NO_THREADS", "-DPB_NO_FILES")


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The two libraries, by whether they have threads and files."""
    folder = tmp_path_factory.mktemp("fake")
    return {True: open_library(compile_fake(folder, *FULL)), False: open_library(compile_fake(folder, *BARE))}


@pytest.fixture
def full(built) -> ctypes.CDLL:
    """The library with threads and files."""
    return built[True]


@pytest.fixture(params=[True, False], ids=["full", "bare"])
def library(request, built) -> ctypes.CDLL:
    """Either of them."""
    return built[request.param]


@pytest.fixture
def model(library):
    with Model(library) as made:
        yield made
