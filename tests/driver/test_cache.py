"""The object cache: what is kept, what is thrown away, and what others may do to it meanwhile."""

import multiprocessing
import os
import shutil
import stat
import warnings

import pytest

from pullback.driver import cache as module
from pullback.driver.cache import ObjectCache, compiler_fingerprint, default_directory


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("PULLBACK_CACHE", "PULLBACK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    module._warn.cache_clear()


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
    assert all(p.parent == tmp_path for p in tmp_path.rglob("*"))


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
    assert cache.directory == tmp_path / "own" and len(list(cache.directory.iterdir())) == 1


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
])  # fmt: skip
def test_damaged_entry_is_a_miss_and_goes_away(tmp_path, damage):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"some code")
    (entry,) = tmp_path.iterdir()
    damage(entry)
    assert cache.get("a") is None
    assert not entry.exists()
    cache.put("a", b"again")
    assert cache.get("a") == b"again"


def test_entry_that_is_a_directory_is_a_miss(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    (entry,) = tmp_path.iterdir()
    entry.unlink()
    entry.mkdir()
    assert cache.get("a") is None
    cache.put("a", b"code")


def test_least_recently_used_goes_first(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=5000)
    for i in range(4):
        cache.put(f"k{i}", bytes(1000))
        os.utime(cache._path(f"k{i}"), (i, i))
    assert cache.get("k0") is not None
    cache.put("new", bytes(1000))
    assert cache.get("k0") is not None and cache.get("new") is not None
    assert cache.get("k1") is None
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 5000


def test_a_cache_of_too_many_entries_becomes_smaller(tmp_path):
    """Every process that adds one looks at all of them."""
    many = ObjectCache(tmp_path)
    for i in range(30):
        many.put(f"k{i}", b"code")
        os.utime(many._path(f"k{i}"), (i, i))
    cache = ObjectCache(tmp_path, limit_entries=20)
    cache.put("new", b"code")
    assert len(list(tmp_path.iterdir())) == 18
    assert cache.get("new") is not None and cache.get("k29") is not None and cache.get("k5") is None
    for i in range(10):
        cache.put(f"more{i}", b"code")
    assert 18 <= len(list(tmp_path.iterdir())) <= 20
    assert cache.get("more9") is not None


def test_entry_larger_than_the_cache_is_not_kept(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=100)
    cache.put("a", bytes(200))
    assert cache.get("a") is None and not list(tmp_path.iterdir())


def test_leftovers_of_dead_writers_go_away(tmp_path):
    cache = ObjectCache(tmp_path, limit_bytes=2000)
    old, young = tmp_path / "old.tmp", tmp_path / "young.tmp"
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
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".tmp"]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 20_000 * 3


def test_fingerprint_is_stable():
    assert compiler_fingerprint() == compiler_fingerprint()
    assert len(compiler_fingerprint()) == 64
