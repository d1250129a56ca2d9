"""The object cache: what is kept, what is thrown away, and what others may do to it meanwhile."""

import multiprocessing
import os
import shutil
import socket
import stat
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from pullback.driver import cache as module
from pullback.driver import folder
from pullback.driver.cache import ObjectCache, compiler_fingerprint, default_directory, object_cache
from pullback.driver.folder import MARKER, Files
from pullback.ir.errors import UserError


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("PULLBACK_CACHE", "PULLBACK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    module._warn.cache_clear()


def entries(cache: ObjectCache) -> list[Path]:
    """The files of the cache, but its marker."""
    return sorted(p for p in cache.directory.iterdir() if p.name != MARKER)


def entry(cache: ObjectCache, key: str) -> Path:
    return cache.directory / module._name(key)


def test_put_get(tmp_path):
    cache = ObjectCache(tmp_path / "c")
    assert cache.get("a") is None
    cache.put("a", b"code")
    cache.put("b", b"")
    assert cache.get("a") == b"code"
    assert ObjectCache(tmp_path / "c").get("a") == b"code"
    assert cache.get("b") == b""
    cache.put("a", b"newer")
    assert cache.get("a") == b"newer"
    cache.clear()
    assert cache.get("a") is None


def test_keys_may_be_anything(tmp_path):
    cache = ObjectCache(tmp_path)
    for key in ("../../etc/passwd", "x" * 5000, "", "\0", "ä"):
        cache.put(key, key.encode())
        assert cache.get(key) == key.encode()
    assert [p for p in tmp_path.rglob("*") if p.parent != cache.directory] == [cache.directory]


def test_directory_is_private(tmp_path):
    cache = ObjectCache(tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(cache.directory).st_mode) == 0o700
    os.chmod(cache.directory, 0o755)
    ObjectCache(tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(cache.directory).st_mode) == 0o700


def test_default_directory(monkeypatch, tmp_path):
    assert default_directory() == tmp_path / "home/.cache/pullback/objects"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_directory() == tmp_path / "xdg/pullback/objects"
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"
    cache = ObjectCache()
    cache.put("k", b"v")
    assert cache.directory.parent == tmp_path / "own" and len(entries(cache)) == 1


def test_disabled(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    cache = ObjectCache(tmp_path / "c")
    cache.put("a", b"code")
    assert cache.get("a") is None
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("damage", [
    lambda p: p.write_bytes(b""),
    lambda p: p.write_bytes(p.read_bytes()[:-1]),
    lambda p: p.write_bytes(p.read_bytes()[:40]),
    lambda p: p.write_bytes(p.read_bytes() + b"x"),
    lambda p: p.write_bytes(b"\x7fELF" + p.read_bytes()[4:]),
    lambda p: p.write_bytes(b"pullback object 1\n" + p.read_bytes()[18:]),
])  # fmt: skip
def test_damaged_entry_is_a_miss_and_goes_away(tmp_path, damage):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"some code")
    (damaged,) = entries(cache)
    damage(damaged)
    assert cache.get("a") is None
    assert not damaged.exists()
    cache.put("a", b"again")
    assert cache.get("a") == b"again"


def test_entry_that_is_a_directory_is_a_miss(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    (file,) = entries(cache)
    file.unlink()
    file.mkdir()
    assert cache.get("a") is None
    cache.put("a", b"code")


def test_least_recently_used_goes_first(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=5000)
    for i in range(4):
        cache.put(f"k{i}", bytes(1000))
        os.utime(entry(cache, f"k{i}"), (i, i))
    assert cache.get("k0") is not None
    cache.put("new", bytes(1000))
    assert cache.get("k0") is not None and cache.get("new") is not None
    assert cache.get("k1") is None
    assert sum(p.stat().st_size for p in entries(cache)) <= 5000


def test_a_cache_of_too_many_entries_becomes_smaller(tmp_path):
    """Every process that adds one looks at all of them."""
    many = ObjectCache(tmp_path)
    for i in range(30):
        many.put(f"k{i}", b"code")
        os.utime(entry(many, f"k{i}"), (i, i))
    cache = ObjectCache(tmp_path, limit_entries=20)
    cache.put("new", b"code")
    assert len(entries(cache)) == 18
    assert cache.get("new") is not None and cache.get("k29") is not None and cache.get("k5") is None
    for i in range(10):
        cache.put(f"more{i}", b"code")
    assert 18 <= len(entries(cache)) <= 20
    assert cache.get("more9") is not None


def test_entry_larger_than_the_cache_is_not_kept(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=100)
    cache.put("a", bytes(200))
    assert cache.get("a") is None and not entries(cache)


def test_leftovers_of_dead_writers_go_away(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=2000)
    old, young = (cache.directory / f"{k:016x}.tmp" for k in (1, 2))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.put("a", b"x")
    assert not old.exists() and young.exists()


def test_directory_removed_meanwhile(tmp_path):
    cache = ObjectCache(tmp_path / "c")
    cache.put("a", b"code")
    shutil.rmtree(cache.directory)
    assert cache.get("a") is None
    cache.put("a", b"code")
    assert cache.get("a") == b"code"


def test_unusable_directory_warns_once_and_works(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="kept for this process only"):
        cache = ObjectCache(tmp_path / "file" / "sub")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = ObjectCache(tmp_path / "file" / "sub")
    cache.put("a", b"code")
    assert other.get("a") == b"code"
    assert stat.S_IMODE(os.stat(cache.directory).st_mode) == 0o700


def test_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        cache = ObjectCache(tmp_path / "c")
    assert cache.directory != tmp_path / "c"


def _hammer(directory, seed):
    cache = ObjectCache(directory, limit_bytes=20_000)
    for i in range(100):
        key = f"k{(i * 7 + seed) % 13}"
        content = key.encode() * 300
        cache.put(key, content)
        found = cache.get(key)
        assert found is None or found == content


def test_concurrent_writers(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_hammer, args=(tmp_path, s)) for s in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
        assert w.exitcode == 0
    left = entries(ObjectCache(tmp_path))
    assert left and not [p for p in left if p.suffix == ".tmp"]
    assert sum(p.stat().st_size for p in left) <= 20_000 * 3


def test_fingerprint_is_stable():
    assert compiler_fingerprint() == compiler_fingerprint()
    assert len(compiler_fingerprint()) == 64


def test_every_bit_counts(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    (file,) = entries(cache)
    whole = file.read_bytes()
    for k in range(8 * len(whole)):
        file.write_bytes(bytes(b ^ (1 << k % 8 if i == k // 8 else 0) for i, b in enumerate(whole)))
        assert cache.get("a") is None
        file.write_bytes(whole)
    assert cache.get("a") == b"code"


def test_an_entry_in_another_ones_place_is_a_miss(tmp_path):
    """Whole, and with the right digest: of what it says, under the key that it was put under."""
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code of a")
    cache.put("b", b"code of b")
    shutil.copyfile(entry(cache, "b"), entry(cache, "a"))
    assert cache.get("a") is None and cache.get("b") == b"code of b"


def seen(path: Path) -> tuple[int, int, int, bytes]:
    info = path.stat()
    return info.st_mode, info.st_mtime_ns, info.st_ctime_ns, path.read_bytes()


def test_nothing_of_others_is_touched(tmp_path):
    """Whatever it is called, however old it is; around the cache's folder, and in it."""
    directory = tmp_path / "d"
    directory.mkdir(mode=0o755)
    os.chmod(directory, 0o755)
    cache = ObjectCache(directory, limit_bytes=3000, limit_entries=3)
    names = ("report.tmp", "model.obj", f"{7:016x}.tmp", "0" * 64 + ".obj", MARKER, "tuned-x-123456789012.json")
    foreign = [directory / name for name in names]
    foreign += [cache.directory / name for name in ("report.tmp", "model.obj", "0" * 63 + ".obj", "0" * 64 + ".OBJ")]
    for path in foreign:
        path.write_bytes(bytes(2000))
        os.chmod(path, 0o644)
        os.utime(path, (1, 1))
    before = [seen(p) for p in foreign]
    for k in range(10):
        cache.put(f"k{k}", bytes(100))
    assert cache.get("k9") == bytes(100), "they do not count as entries"
    assert len([p for p in entries(cache) if p not in foreign]) in (2, 3)
    cache.clear()
    assert cache.get("k9") is None
    assert [seen(p) for p in foreign] == before
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_a_directory_for_all_stays_one(tmp_path):
    """As /tmp is."""
    os.chmod(tmp_path, 0o1777)
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777 and cache.get("a") == b"code"
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700


def refused(directory: Path, match: str) -> ObjectCache:
    """A cache that does not use the directory, says why, and works."""
    with pytest.warns(RuntimeWarning, match=f"{match}.*kept for this process only"):
        cache = ObjectCache(directory)
    assert directory not in cache.directory.parents
    cache.put("a", b"code")
    assert cache.get("a") == b"code"
    return cache


def test_links_are_not_followed(tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.mkdir(mode=0o755)
    link.symlink_to(victim)
    refused(link, "link is a symbolic link .name the directory itself")
    assert not list(victim.iterdir()) and stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_a_link_in_the_place_of_the_folder(tmp_path):
    victim = ObjectCache(tmp_path / "victim")
    victim.put("a", b"of the victim")
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / victim.directory.name).symlink_to(victim.directory)
    refused(directory, "something else in the place of its folder")
    assert [p.read_bytes()[-13:] for p in entries(victim)] == [b"of the victim"]


def test_a_file_in_the_place_of_the_folder(tmp_path):
    name = ObjectCache(tmp_path / "other").directory.name
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_text("mine")
    refused(tmp_path / "d", "something else in the place of its folder")
    assert (tmp_path / "d" / name).read_text() == "mine"


def test_a_folder_that_pullback_has_not_made(tmp_path):
    name = ObjectCache(tmp_path / "other").directory.name
    foreign = tmp_path / "d" / name
    foreign.mkdir(parents=True, mode=0o755)
    (foreign / ("0" * 64 + ".obj")).write_bytes(b"mine")
    os.chmod(foreign, 0o755)
    refused(tmp_path / "d", "which pullback has not made")
    assert [p.read_bytes() for p in foreign.iterdir()] == [b"mine"]
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o755


def test_a_marker_that_is_a_link_is_none(tmp_path):
    cache = ObjectCache(tmp_path)
    (cache.directory / MARKER).rename(tmp_path / "marker")
    (cache.directory / MARKER).symlink_to(tmp_path / "marker")
    refused(tmp_path, "which pullback has not made")


def test_a_folder_that_others_can_write(tmp_path):
    """They may have put code into it."""
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    for mode in (0o770, 0o707, 0o777):
        os.chmod(cache.directory, mode)
        assert cache.get("a") is None
        refused(tmp_path, "which can be written by others")
        module._warn.cache_clear()
        assert stat.S_IMODE(cache.directory.stat().st_mode) == mode
    os.chmod(cache.directory, 0o750)
    assert cache.get("a") == b"code" and stat.S_IMODE(cache.directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("change", [
    lambda path, other: os.chmod(path, 0o620),
    lambda path, other: os.chmod(path, 0o606),
    lambda path, other: (path.rename(other), path.symlink_to(other)),
    lambda path, other: os.link(path, other),
    lambda path, other: (path.unlink(), os.mkfifo(path)),
    lambda path, other: (path.unlink(), path.mkdir()),
    lambda path, other: (path.unlink(), socket.socket(socket.AF_UNIX).bind(str(path))),
], ids=["group", "all", "link", "hard link", "FIFO", "directory", "socket"])  # fmt: skip
def test_an_entry_that_is_no_file_of_this_user_alone_is_a_miss(tmp_path, change, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    cache = ObjectCache(Path("d"))
    cache.put("a", b"code")
    (path,) = entries(cache)
    data, other = path.read_bytes(), Path("other")
    change(path, other)
    kind = path.lstat()
    assert cache.get("a") is None
    assert path.lstat() == kind, "and stays as it is"
    cache.put("a", b"code")
    if other.exists():
        assert other.read_bytes() == data


def of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the file to somebody else, or, where this user may not do so, have the system say that it is so."""
    if os.getuid() == 0:
        os.chown(path, 12345, 12345, follow_symlinks=False)
        return
    number, fstat = path.stat().st_ino, os.fstat

    def info(descriptor: int) -> os.stat_result:
        known = fstat(descriptor)
        values = list(known)
        values[stat.ST_UID] += known.st_ino == number
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", info)
    monkeypatch.setattr(Files, "stat", lambda files, name: info(os.open(files._path / name, os.O_RDONLY)))


def test_an_entry_of_another_user_is_neither_run_nor_touched(tmp_path, monkeypatch):
    """With the right name, and the right digest."""
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    (path,) = entries(cache)
    of_another_user(path, monkeypatch)
    content = path.read_bytes()
    assert cache.get("a") is None
    cache.put("a", b"other code")
    cache.clear()
    assert path.read_bytes() == content


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    of_another_user(cache.directory, monkeypatch)
    assert cache.get("a") is None
    refused(tmp_path, "which belongs to another user")


def test_another_user_has_another_folder(tmp_path, monkeypatch):
    mine = ObjectCache(tmp_path).directory
    monkeypatch.setattr(folder, "user", lambda: 4321)
    assert folder.Folder(tmp_path).path.name == "pullback-objects-4321" != mine.name


def test_a_real_other_user(tmp_path):
    """A child that gives up its rights: what it planted is not run, and what is not its own it does not run."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    shared = Path(tempfile.mkdtemp(prefix="pullback-test-"))
    try:
        os.chmod(shared, 0o1777)
        mine = ObjectCache(shared)
        mine.put("a", b"of root")
        child = os.fork()
        if child == 0:
            os._exit(_as_somebody(shared, mine.directory))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        theirs = shared / "pullback-objects-12345"
        assert theirs.stat().st_uid == 12345 and len(list(theirs.iterdir())) == 2
        assert mine.get("a") == b"of root"
    finally:
        shutil.rmtree(shared)


def _as_somebody(shared: Path, of_root: Path) -> int:
    os.setgroups([])
    os.setgid(12345)
    os.setuid(12345)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = ObjectCache(shared)
        cache.put("a", b"of somebody")
    try:
        list(of_root.iterdir())
    except PermissionError:
        return 0 if cache.get("a") == b"of somebody" else 2
    return 3


def test_a_process_whose_files_are_not_its_users_has_no_cache(tmp_path, monkeypatch):
    """As one that was started with another user's rights."""
    monkeypatch.setattr(folder, "user", lambda: os.geteuid() + 1)
    with pytest.warns(RuntimeWarning, match="which belongs to another user"):
        cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    assert cache.get("a") is None and not cache.enabled


@pytest.fixture
def elsewhere(monkeypatch):
    """A system without numbers of users, and without calls relative to an open directory."""
    monkeypatch.setattr(folder, "_RELATIVE", False)
    monkeypatch.setattr(folder, "user", lambda: None)


def test_systems_without_users(tmp_path, elsewhere):
    cache = ObjectCache(tmp_path / "c", limit_bytes=1000)
    assert cache.directory == tmp_path / "c" / "pullback-objects"
    for k in range(20):
        cache.put(f"k{k}", bytes(100))
    assert cache.get("k19") == bytes(100) and ObjectCache(tmp_path / "c").get("k19") == bytes(100)
    assert len(entries(cache)) < 7
    (tmp_path / "c" / "report.tmp").write_bytes(b"")
    cache.clear()
    assert not entries(cache) and (tmp_path / "c" / "report.tmp").exists()
    shutil.rmtree(cache.directory)
    cache.put("a", b"code")
    assert cache.get("a") == b"code"
    refused(tmp_path / "c" / "report.tmp", "is not a directory")


def test_a_folder_exchanged_while_it_is_used(tmp_path):
    """It is opened once: what takes its name then is not written."""
    cache = ObjectCache(tmp_path / "c")
    cache.put("a", b"code")
    with cache.folder.opened() as files:
        cache.directory.rename(tmp_path / "moved")
        cache.directory.mkdir()
        (cache.directory / "mine").write_text("mine")
        files.write("x", b"data")
        assert [p.name for p in cache.directory.iterdir()] == ["mine"]
        assert (tmp_path / "moved" / "x").read_bytes() == b"data"
    with pytest.warns(RuntimeWarning, match="which pullback has not made"):
        cache.put("b", b"code")
    assert cache.get("b") == b"code" and tmp_path not in cache.directory.parents


@pytest.mark.parametrize("word", ["0", "off", "OFF", "false", "no", " off "])
def test_words_that_turn_it_off(tmp_path, monkeypatch, word):
    monkeypatch.setenv("PULLBACK_CACHE", word)
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "c"))
    assert not object_cache().enabled
    object_cache().put("a", b"code")
    assert object_cache().get("a") is None and not (tmp_path / "c").exists()


@pytest.mark.parametrize("word", ["1", "on", "True", "yes", "", " "])
def test_words_that_leave_it_on(tmp_path, monkeypatch, word):
    monkeypatch.setenv("PULLBACK_CACHE", word)
    assert ObjectCache(tmp_path).enabled


@pytest.mark.parametrize("word", ["2", "disabled", "none", "o"])
def test_other_words_are_errors(tmp_path, monkeypatch, word):
    monkeypatch.setenv("PULLBACK_CACHE", word)
    with pytest.raises(UserError, match=f"PULLBACK_CACHE must be on or off, not '{word}'\nhint: 0, off, false or no"):
        object_cache()


def test_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, place in (("~/c", tmp_path / "home/c"), ("c", tmp_path / "c"), (f"{tmp_path}/x/../y", tmp_path / "y")):
        monkeypatch.setenv("PULLBACK_CACHE_DIR", text)
        assert default_directory() == place
        object_cache().put("a", b"code")
        assert object_cache().directory.parent == place and len(entries(object_cache())) == 1
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "")
    assert default_directory() == tmp_path / "home/.cache/pullback/objects"
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "~nobody-of-that-name/c")
    with pytest.raises(UserError, match="there is no home directory ~nobody-of-that-name"):
        object_cache()


def test_a_relative_directory_is_that_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "c")
    monkeypatch.chdir(tmp_path)
    object_cache().put("a", b"code")
    (tmp_path / "sub").mkdir()
    os.chdir(tmp_path / "sub")
    assert object_cache().directory.parent == tmp_path / "sub" / "c" and object_cache().get("a") is None


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file", "file is not a directory")
    refused(tmp_path / "file" / "sub", "can't be used .Not a directory")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(Files, "can_write", lambda files: tmp_path not in files._path.parents)
    refused(tmp_path / "c", "is not writable")


def test_each_part_of_the_fingerprint_counts(monkeypatch):
    compiler_fingerprint.cache_clear()
    before = compiler_fingerprint()
    versions = module.versions()
    assert set(versions) == {"llvmlite", "LLVM", "numpy", "ml_dtypes", "python", "machine", "libc"}
    for name in versions:
        monkeypatch.setattr(module, "versions", lambda name=name: versions | {name: "another"})
        compiler_fingerprint.cache_clear()
        assert compiler_fingerprint() != before, name
    monkeypatch.undo()
    compiler_fingerprint.cache_clear()
    assert compiler_fingerprint() == before


@pytest.mark.parametrize("holder, attribute, part", [
    (module.codegen, "LLVMLITE_VERSION", "llvmlite"), (module.codegen, "LLVM_VERSION", "LLVM"),
    (module.numpy, "__version__", "numpy"), (module.ml_dtypes, "__version__", "ml_dtypes"),
    (sys, "version", "python"),
])  # fmt: skip
def test_the_fingerprint_asks_for_versions(monkeypatch, holder, attribute, part):
    monkeypatch.setattr(holder, attribute, "99.9")
    assert module.versions()[part] == "99.9"


def test_the_fingerprint_holds_every_source(tmp_path, monkeypatch):
    """Of all rooms, C and headers too: each file's text, its name, and that there is one more."""
    package = Path(module.__file__).parent.parent
    known = {Path(f).relative_to(package) for f in module._sources(str(package))}
    files = [getattr(m, "__file__", None) for name, m in sys.modules.items() if name.split(".")[0] == "pullback"]
    loaded = [f for f in files if f]
    assert {Path(f).relative_to(package) for f in loaded} <= known
    assert {Path("target.py"), Path("runtime/native/rt.h"), Path("runtime/native/one.c")} <= known
    monkeypatch.setattr(module, "__file__", str(tmp_path / "driver" / "cache.py"))
    monkeypatch.setattr(module, "_STARTED", float("inf"))
    files = [tmp_path / name for name in ("driver/cache.py", "tir/expr.py", "runtime/native/rt.h")]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    seen = {fingerprint()}
    assert fingerprint() in seen, "the same for the same"
    for path in files:
        path.write_text("y")
        seen.add(fingerprint())
        path.write_text("x")
    files[1].rename(tmp_path / "tir/stmt.py")
    seen.add(fingerprint())
    (tmp_path / "te.py").write_text("")
    seen.add(fingerprint())
    assert len(seen) == 6
    monkeypatch.undo()
    compiler_fingerprint.cache_clear()


def fingerprint() -> str:
    compiler_fingerprint.cache_clear()
    return compiler_fingerprint()


def test_a_source_that_changes_after_it_was_imported(monkeypatch):
    """What this process compiles is not what others would, with the new source."""
    monkeypatch.setattr(module, "_STARTED", 0.0)
    assert fingerprint() != fingerprint()
    monkeypatch.undo()
    assert fingerprint() == fingerprint()
