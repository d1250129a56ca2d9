"""How the runtime of exported trainers is compiled: as one file, in which all is static, and without a C library."""

import shutil
import subprocess

import pytest

from tests.deploy.fake import HERE, compiler

ONE = HERE.parents[1] / "pullback" / "deploy" / "native" / "one.c"
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off"]
BARE = ["-DPB_NO_THREADS", "-DPB_NO_FILES", "-ffreestanding"]

pytestmark = pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")


def symbols(folder, kind, *options):
    """The names that an object of one.c defines for others, or wants from them."""
    target = folder / "one.o"
    subprocess.run([*compiler(), *FLAGS, *options, "-c", str(ONE), "-o", str(target)], check=True)
    done = subprocess.run(["nm", f"--{kind}", str(target)], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def test_nothing_is_seen_from_outside(tmp_path):
    """Two exported libraries can be linked into one program."""
    assert symbols(tmp_path, "extern-only", "-pthread") == symbols(tmp_path, "undefined-only", "-pthread")


def test_six_functions_of_a_c_library_are_all_that_it_needs(tmp_path):
    wanted = symbols(tmp_path, "undefined-only", "-DPB_API=", *BARE)
    assert {"memcpy"} <= wanted <= {"memcmp", "memcpy", "memmove", "memset", "strcmp", "strlen"}


def test_it_needs_no_headers_of_a_c_library(tmp_path):
    """Only the compiler's own."""
    include = subprocess.run([*compiler(), "-print-file-name=include"], check=True, capture_output=True, text=True)
    options = ["-nostdinc", "-isystem", include.stdout.strip(), "-DPB_API=", *BARE]
    assert "strlen" in symbols(tmp_path, "undefined-only", *options)


@pytest.mark.parametrize("option", ["-DPB_NO_THREADS", "-DPB_NO_FILES"])
def test_threads_and_files_can_be_left_out_alone(tmp_path, option):
    wanted = symbols(tmp_path, "undefined-only", "-DPB_API=", option, "-pthread")
    assert ("pthread_create" in wanted, "rename" in wanted) == (option == "-DPB_NO_FILES", option == "-DPB_NO_THREADS")
