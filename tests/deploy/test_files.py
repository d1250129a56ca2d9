"""Checkpoints in files: replaced in one step, whatever happens. Each call of the system fails, or ends the process."""

import errno
import fcntl
import os
import platform
import re
import stat
import subprocess

import pytest

from tests.deploy.fake import ARGUMENT, CHECKPOINT, FILE, HERE, KEPT, OK, Model, Refused, checkpoint, compiler, data
from tests.deploy.test_model import assert_same_kept

END_BEFORE, END_AFTER, FAIL, HALF = 1, 2, 3, 4
ENDED = 42  # the status of a process that a fault has ended


@pytest.fixture
def model(full):
    with Model(full) as made:
        yield made


def save(model, path):
    model.call("save", os.fsencode(path))


def load(model, path):
    model.call("load", os.fsencode(path))


def test_a_file_is_saved_and_loaded(model, full, tmp_path):
    path = tmp_path / "model.safetensors"
    x, scale, labels = data(8)
    model.run(x, scale, labels, epochs=2)
    save(model, path)
    assert path.read_bytes() == model.write()
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    with Model(full) as other:
        load(other, path)
        assert other.snapshot() == model.snapshot()


def test_python_writes_the_file(model, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(checkpoint(KEPT))
    load(model, path)
    assert_same_kept(model, KEPT, exact=True)


@pytest.mark.parametrize("call", [save, load])
def test_paths_that_are_none(model, tmp_path, call):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    odd = {
        tmp_path / "missing" / "file": "No such file or directory",
        tmp_path / "folder": "Is a directory",
        tmp_path / "fifo": "Invalid argument",
        tmp_path / ("n" * 300): "File name too long",
        "d/" * 3000 + "file": "File name too long",
        tmp_path / "folder" / ".." / "fifo" / "file": "Not a directory",
    }
    for path, words in odd.items():
        with pytest.raises(Refused, match=f"cannot be (written|read): {words}") as refused:
            call(model, path)
        assert refused.value.status == FILE
    for path, words in ((b"", "the path is empty"), (None, "the path is NULL")):
        with pytest.raises(Refused, match=words) as refused:
            model.call(call.__name__, path)
        assert refused.value.status == ARGUMENT
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fifo", "folder"]


def test_a_message_names_the_file(model):
    for path, shown in (
        (b"/nonexistent/some/file", "/nonexistent/some/file"),
        ("/nonexistent/Größe/文件".encode(), "/nonexistent/Größe/文件"),
        (b"/nonexistent/" + b"a/" * 200 + b"file", "..." + "a/" * 148 + "file"),
        (("/nonexistent/" + "ö/" * 110 + "file").encode(), "..." + "/ö" * 98 + "/file"),
    ):
        for call in ("save", "load"):
            with pytest.raises(Refused) as refused:
                model.call(call, path)
            words = "written" if call == "save" else "read"
            assert refused.value.message == f"{shown}: cannot be {words}: No such file or directory"


def test_a_damaged_file_changes_nothing(model, tmp_path):
    path, before = tmp_path / "file", model.snapshot()
    path.write_bytes(checkpoint(KEPT)[:-1] + b"?")
    with pytest.raises(Refused, match="SHA-256") as refused:
        load(model, path)
    assert refused.value.status == CHECKPOINT
    path.write_bytes(b"")
    with pytest.raises(Refused, match="has 0 bytes"):
        load(model, path)
    assert model.snapshot() == before


def test_a_relative_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(model, "file")
    save(model, "file")
    load(model, "file")
    assert os.listdir() == ["file"]


def test_a_link_is_followed(model, tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "file"
    target.write_bytes(b"old")
    link.symlink_to(target)
    save(model, link)
    assert link.is_symlink() and target.read_bytes() == model.write()
    load(model, link)
    assert os.listdir(tmp_path / "there") == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_the_mode_is_kept(model, tmp_path, mode):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    save(model, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_the_mask_gives(model, tmp_path):
    before = os.umask(0o027)
    try:
        save(model, tmp_path / "file")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


# ---- leftovers -------------------------------------------------------------------------------------------------------


def test_a_leftover_is_replaced(model, tmp_path):
    path, leftover = tmp_path / "file", tmp_path / "file.tmp"
    leftover.write_bytes(b"half of a file" * 1000)
    save(model, path)
    assert not leftover.exists() and path.read_bytes() == model.write()


def test_a_link_in_the_place_of_the_leftover_is_not_followed(model, tmp_path):
    path, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "file.tmp").symlink_to(victim)
    save(model, path)
    assert victim.read_bytes() == b"precious" and path.read_bytes() == model.write()


def test_a_folder_in_the_place_of_the_leftover(model, tmp_path):
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(Refused, match="cannot be written") as refused:
        save(model, tmp_path / "file")
    assert refused.value.status == FILE
    assert (tmp_path / "file.tmp").is_dir()


def test_what_another_process_writes_is_left_alone(model, tmp_path):
    path, other = tmp_path / "file", tmp_path / "file.tmp"
    path.write_bytes(b"old")
    with other.open("wb") as file:
        file.write(b"in progress")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="cannot be written: Device or resource busy"):
            save(model, path)
    assert path.read_bytes() == b"old" and other.read_bytes() == b"in progress"
    save(model, path)
    assert path.read_bytes() == model.write() and not other.exists()


# ---- crashes and full disks ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    """Runs child.c with faults.c; returns its status and what it prints."""
    folder = tmp_path_factory.mktemp("child")
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra"]
    program, faults = folder / "child", folder / "faults.so"
    subprocess.run([*compiler(), *flags, str(HERE / "child.c"), "-pthread", "-ldl", "-o", str(program)], check=True)
    subprocess.run(
        [*compiler(), *flags, "-fPIC", "-shared", str(HERE / "faults.c"), "-ldl", "-o", str(faults)], check=True
    )

    def run(*arguments):
        done = subprocess.run(
            [str(program), *map(str, arguments)],
            env={**os.environ, "LD_PRELOAD": str(faults)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout

    return run


needs_preload = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="faults.c is preloaded, and counts for glibc"
)


@needs_preload
def test_nothing_is_allocated_after_the_beginning(child, tmp_path):
    assert child(tmp_path / "file") == (0, "0 0\n")


def contents_after(child, folder, steps):
    path = folder / f"whole{steps}"
    status, told = child(path, steps, -1, 0, 0)
    assert status == 0 and told.startswith(f"{OK} ")
    return path.read_bytes(), int(told.split()[1])


@needs_preload
def test_contents_reach_the_disk_before_the_name_and_then_the_folder(child, tmp_path):
    """A machine may lose its power: written, synchronised (s), renamed, closed, and then the folder synchronised."""
    for mode in ("", "m"):  # of the second, an old file's mode is kept
        status, told = child(tmp_path / "file", 1, -1, 0, 0)
        assert status == 0
        assert re.fullmatch(f"o{mode}w+srcosc", told.split("\n")[0].split()[2])


@needs_preload
@pytest.mark.parametrize("old_exists", [True, False])
@pytest.mark.parametrize("manner", [END_BEFORE, END_AFTER, HALF])
def test_a_crash_at_any_call_leaves_the_old_file_or_the_new_one(child, tmp_path, full, old_exists, manner):
    old, _ = contents_after(child, tmp_path, 1)
    new, calls = contents_after(child, tmp_path, 2)
    assert calls > 10 and old != new
    folder = tmp_path / "folder"
    folder.mkdir()
    path, found = folder / "file", []
    for call in range(1, calls + 1):
        for file in folder.iterdir():
            file.unlink()
        if old_exists:
            path.write_bytes(old)
        status, _ = child(path, 2, call, manner, 0)
        left = path.read_bytes() if path.exists() else None
        assert status == ENDED or (manner == HALF and left == new)  # half of what is no write is all of it
        if status == ENDED:
            found.append(left)
        with Model(full) as model:  # what is left does not disturb the next
            save(model, path)
            assert path.read_bytes() == model.write()
            assert os.listdir(folder) == ["file"]
    before = [contents for contents in found if contents != new]
    assert before == [old if old_exists else None] * len(before) and len(before) > 5
    assert found[len(before) :] == [new] * (len(found) - len(before))  # first the old one, then the new one
    assert manner == HALF or found[-1] == new


@needs_preload
@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("old_exists", [True, False])
def test_a_call_that_fails_leaves_the_old_file_and_nothing_beside_it(child, tmp_path, old_exists, problem):
    old, _ = contents_after(child, tmp_path, 1)
    new, calls = contents_after(child, tmp_path, 2)
    folder = tmp_path / "folder"
    folder.mkdir()
    path, failures = folder / "file", 0
    for call in range(1, calls + 1):
        for file in folder.iterdir():
            file.unlink()
        if old_exists:
            path.write_bytes(old)
        status, told = child(path, 2, call, FAIL, problem)
        assert status == 0
        result, message = told.split("\n", 1)
        if int(result.split()[0]) == OK:  # closing the file, and synchronising its folder, are after the fact
            assert path.read_bytes() == new
        else:
            failures += 1
            assert int(result.split()[0]) == FILE and os.strerror(problem) in message
            assert (path.read_bytes() if path.exists() else None) == (old if old_exists else None)
        assert [f.name for f in folder.iterdir()] == (["file"] if path.exists() else [])
    assert failures > 8


@needs_preload
@pytest.mark.parametrize("manner", [FAIL, HALF])
def test_a_file_that_cannot_be_read_to_its_end(child, tmp_path, manner):
    """At each read: at first nothing has changed; in the second pass, the values are a mixture."""
    contents_after(child, tmp_path, 1)
    path, found = tmp_path / "whole1", []
    status, told = child(path, -1, -1, 0, 0)
    names = told.split()[2]
    assert (status, told.split()[0]) == (0, str(OK)) and re.fullmatch("op+c", names)
    for call in range(2, len(names)):
        status, told = child(path, -1, call, manner, errno.EIO)
        assert status == 0
        result, message = told.split("\n", 1)
        found.append((int(result.split()[0]), message.strip()))
    first = (FILE, f"{path}: cannot be read: Input/output error")
    if manner == HALF:
        first = (CHECKPOINT, "the checkpoint is truncated: it became shorter while it was read")
    passes = [said == first for said in found]
    assert passes == sorted(passes, reverse=True) and 0.4 < sum(passes) / len(passes) < 0.6
    assert all(said[0] == CHECKPOINT and "holds a mixture" in said[1] for said in found[sum(passes) :])
