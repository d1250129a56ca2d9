"""Files are replaced in one step, through links, with their modes; a failure leaves the old file, and no other."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pullback.runtime.files import open_regular, write_atomically

ROOT = os.geteuid() == 0
as_somebody = pytest.mark.skipif(not ROOT, reason="root alone can become another user")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def another_file_system(tmp_path: Path) -> Path | None:
    """A folder on another file system than the temporary one, if there is any."""
    for place in ("/dev/shm", "/run", "/var/tmp", str(Path.home())):
        if os.access(place, os.W_OK) and os.stat(place).st_dev != os.stat(tmp_path).st_dev:
            return Path(place)
    return None


@contextmanager
def nobody() -> Iterator[None]:
    """This process as a user without rights."""
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, chain = tmp_path / "there" / "target", tmp_path / "link", tmp_path / "chain"
    target.write_bytes(b"old")
    link.symlink_to(target)
    chain.symlink_to("link")
    for path in (link, chain):
        write_atomically(path, str(path).encode())
        assert path.is_symlink() and target.read_bytes() == str(path).encode()
    assert names(tmp_path) == {"there", "link", "chain"} and names(tmp_path / "there") == {"target"}


def test_through_a_link_to_what_is_not_there_yet(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    write_atomically(link, b"new")
    assert link.is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_through_a_link_to_another_file_system(tmp_path: Path) -> None:
    place = another_file_system(tmp_path)
    if place is None:
        pytest.skip("there is one file system only")
    target = place / f"pullback-test-{os.getpid()}"
    link = tmp_path / "link"
    link.symlink_to(target)
    try:
        for data in (b"first", b"second"):
            write_atomically(link, data)
            assert link.is_symlink() and target.read_bytes() == data
        assert names(tmp_path) == {"link"}
    finally:
        target.unlink(missing_ok=True)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError) as error:
        write_atomically(tmp_path / "a", b"new")
    assert error.value.errno == errno.ELOOP
    assert names(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755, 0o400])
def test_the_mode_stays(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    if os.access(path, os.W_OK):
        write_atomically(path, b"new")
        assert path.read_bytes() == b"new"
    else:
        with pytest.raises(PermissionError):
            write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
    assert mode_of(path) == mode and names(tmp_path) == {"file"}


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_any_other(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "ours", b"")
        (tmp_path / "other").write_bytes(b"")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "ours") == mode_of(tmp_path / "other") == 0o666 & ~mask


@as_somebody
def test_the_owner_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 65534, 65534)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


@as_somebody
@pytest.mark.parametrize("mode", [0o555, 0o333, 0o000])
def test_folders_without_rights(mode: int) -> None:
    with tempfile.TemporaryDirectory() as outer:  # pytest's folders are closed to others
        os.chmod(outer, 0o755)
        check_rights(mode, Path(outer) / "folder")


def check_rights(mode: int, folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    file = folder / "file"
    file.write_bytes(b"old")
    os.chown(file, 65534, 65534)
    folder.chmod(mode)
    with nobody():
        if mode == 0o333:  # what may be written to and not be listed is enough
            write_atomically(file, b"new")
        else:
            with pytest.raises(PermissionError):
                write_atomically(file, b"new")
    folder.chmod(0o755)
    assert file.read_bytes() == (b"new" if mode == 0o333 else b"old") and names(folder) == {"file"}


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "none" / "file", b"")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        write_atomically(tmp_path / "file" / "file", b"")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/full", path)])
def test_no_regular_files(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "it"
    make(path)
    before = path.lstat()
    with pytest.raises(OSError, match="Is a"):
        write_atomically(path, b"")
    with pytest.raises(OSError, match="Is a"):
        open_regular(path)
    assert path.lstat().st_mode == before.st_mode and path.lstat().st_ino == before.st_ino
    assert names(tmp_path) == {"it"}


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files fails in the middle of writing, as a full disk does."""
    path = tmp_path / "file"
    write_atomically(path, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError) as error:
            write_atomically(path, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert error.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old" and names(tmp_path) == {"file"}


@pytest.mark.parametrize("name", ["write", "fsync", "fchmod", "replace"])
def test_a_failure_at_any_moment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if name == "write":
        command = (
            "import os, sys; from pullback.runtime.files import write_atomically as w; os.close(2); w(*sys.argv[1:])"
        )
        found = subprocess.run([sys.executable, "-c", command, path, "text is no bytes"], capture_output=True)
        assert found.returncode
    else:
        monkeypatch.setattr(os, name, fail)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == {"file"}


def test_a_name_in_another_encoding(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff\xfe(new)\nline")
    for _ in range(2):
        write_atomically(os.fsdecode(path), b"new")
    assert Path(os.fsdecode(path)).read_bytes() == b"new" and len(names(tmp_path)) == 1
