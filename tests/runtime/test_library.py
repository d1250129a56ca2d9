"""Loading the C runtime, and building it as one file with other compilers' warnings on."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from pullback.ir.errors import InternalError
from pullback.runtime import library

TEST_PROGRAM = Path(__file__).parent / "native" / "test_rt.c"


def test_a_missing_library_says_how_to_build_it(tmp_path):
    with pytest.raises(
        ImportError, match=r"C runtime is missing: .*none\.so does not exist\. Build it with .*pip install -e \."
    ):
        library.load(tmp_path / "none.so")


def test_a_foreign_library_says_how_to_build_it(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"not a library")
    with pytest.raises(ImportError, match=r"C runtime cannot be used: .*Build it with"):
        library.load(path)


def test_an_unknown_status_is_our_own_mistake():
    with pytest.raises(InternalError, match="unknown status 99"):
        library.check(99)


@pytest.mark.parametrize(("single_file", "macros"), [(True, []), (False, []), (True, ["-DPB_MESSAGE_BYTES=1000"])])
def test_the_c_test_program(tmp_path, single_file, macros):
    native = library.NATIVE_DIRECTORY
    sources = [native / "one.c"] if single_file else sorted(set(native.glob("*.c")) - {native / "one.c"})
    flags = [
        "-O2",
        "-std=c11",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Wstrict-prototypes",
        "-Werror",
        f"-I{native}",
        *macros,
    ]
    program = tmp_path / "test_rt"
    subprocess.run([os.environ.get("CC", "cc"), *flags, TEST_PROGRAM, *sources, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("C runtime: all tests passed\n", "", 0)


def test_a_large_block_lies_in_huge_pages_and_takes_no_more_memory():
    smaps = Path("/proc/self/smaps")
    if not smaps.exists() or not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this system has no huge pages to ask for")

    def mapping(address: int) -> list[str]:
        """The lines of smaps about the mapping of an address."""
        found: list[str] = []
        for line in smaps.read_text().splitlines():
            start, _, end = line.split()[0].partition("-")
            if end:
                found = []
                inside = int(start, 16) <= address < int(end, 16)
            found.append(line)
            if line.startswith("VmFlags:") and inside:
                return found
        return []

    nbytes = 65 << 20  # the last huge page of it is half used
    address = library.allocate(nbytes)
    try:
        ctypes.memset(address + (8 << 20), 1, 8)
        lines = mapping(address + (8 << 20))
        assert "hg" in lines[-1].split(), "the advice was not given"
        assert "hg" not in mapping(address + nbytes - 1)[-1].split(), "a page that is half used would be huge"
        resident = sum(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
        assert resident <= 2 * 2048
    finally:
        library.library.pb_free(address)


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(library, "ABI", library.ABI + 1)
    with pytest.raises(ImportError, match=r"has ABI \d+, expected \d+: it is stale. Build it with"):
        library.load(library.NATIVE_DIRECTORY / library.LIBRARY_NAME)
