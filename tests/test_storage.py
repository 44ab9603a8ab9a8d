"""The storage of a run: whole files, private ones, names, locks."""

from __future__ import annotations

import errno
import os
import posix
import random
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import Held, storage
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.storage.names import file_name
from penstock.testing.faults import LOSSES, FailingCalls, PowerCut, PowerLost

DISK = LocalStorage()


@pytest.fixture(autouse=True)
def disks_that_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere no test waits for disks."""
    monkeypatch.setattr(os, "fsync", posix.fsync)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_so_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    DISK.write(tmp_path / "a" / "b" / "file", b"rows")
    with DISK.create(tmp_path / "a" / "c" / "file") as file:
        file.write(b"rows")
    assert {mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "c")} == {0o700}
    assert mode(tmp_path / "a" / "b" / "file") == mode(tmp_path / "a" / "c" / "file") == 0o600
    held = DISK.lock(tmp_path / "lock", "me")
    assert mode(tmp_path / "lock") == 0o600
    held.release()


def test_what_is_not_private_follows_the_umask(tmp_path: Path, umask: int) -> None:
    DISK.write(tmp_path / "results" / "part", b"rows", private=False)
    assert mode(tmp_path / "results") == 0o777 & ~umask
    assert mode(tmp_path / "results" / "part") == 0o666 & ~umask


def test_nothing_is_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where a file is to be, nor where it is made: a name that is guessed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "file").symlink_to(victim)
    DISK.write(tmp_path / "file", b"rows")
    assert victim.read_text() == "precious" and not (tmp_path / "file").is_symlink()
    monkeypatch.setattr("secrets.token_hex", lambda size: "00" * size)
    (tmp_path / ".other.000000000000.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        DISK.write(tmp_path / "other", b"rows")
    (tmp_path / "new").symlink_to(victim)
    with pytest.raises(FileExistsError):
        DISK.create(tmp_path / "new")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        DISK.lock(tmp_path / "lock", "me")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["open", "write", "fsync", "rename"])
def test_a_file_is_whole_or_as_it_was(tmp_path: Path, kind: str) -> None:
    DISK.write(tmp_path / "file", b"before")
    with pytest.raises(OSError, match=r"device|Input"):
        LocalStorage(FailingCalls(kind, 1)).write(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


class NoLinks(SystemCalls):
    """Calls of a file system without hard links."""

    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("calls", [SystemCalls(), NoLinks()])
def test_a_new_file_replaces_none(tmp_path: Path, calls: SystemCalls) -> None:
    disk = LocalStorage(calls)
    disk.write(tmp_path / "a" / "file", b"before", new=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            disk.write(tmp_path / "a" / name, b"after", new=True)
    assert (tmp_path / "a" / "file").read_bytes() == b"before" and mode(tmp_path / "a" / "file") == 0o600
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["file", "link"]
    disk.write(tmp_path / "a" / "file", b"after")
    assert (tmp_path / "a" / "file").read_bytes() == b"after"


@pytest.mark.parametrize("kind", ["open", "write", "fsync", "link"])
def test_a_new_file_is_whole_or_none(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OSError, match=r"device|Input"):
        LocalStorage(FailingCalls(kind, 1)).write(tmp_path / "file", b"after", new=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", LOSSES)
def test_a_new_file_outlasts_a_loss_of_power(tmp_path: Path, how: str) -> None:
    number, is_written = 0, False
    while not is_written:
        number += 1
        folder, spare = tmp_path / str(number), tmp_path / f"spare {number}"
        folder.mkdir()
        spare.mkdir()
        calls = PowerCut(spare, number)
        try:
            LocalStorage(calls).write(folder / "file", b"rows", new=True)
            is_written = True
        except PowerLost:
            pass
        calls.lose(how, random.Random(number), [folder])
        found = [p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")]
        assert found == [b"rows"] or (found == [] and not is_written), number
    assert number > 6


class ShortWrites(FailingCalls):
    def write(self, handle: int, data: memoryview) -> int:
        return super().write(handle, data[:3])


def test_a_write_that_takes_less_goes_on(tmp_path: Path) -> None:
    calls = ShortWrites()
    LocalStorage(calls).write(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789" and calls.counts["write"] == 4


def test_reading_and_removing(tmp_path: Path) -> None:
    assert DISK.list(tmp_path / "none") == [] and not DISK.exists(tmp_path / "none")
    DISK.remove(tmp_path / "none")
    DISK.remove_tree(tmp_path / "none")
    DISK.write(tmp_path / "a" / "empty", b"")
    assert DISK.read(tmp_path / "a" / "empty") == b"" and DISK.map(tmp_path / "a" / "empty").size == 0
    DISK.write(tmp_path / "a" / "b" / "file", lambda file: file.write(b"rows"), stamp=1_000)
    assert DISK.map(tmp_path / "a" / "b" / "file").to_pybytes() == b"rows"
    assert (tmp_path / "a" / "b" / "file").stat().st_mtime == 1_000
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (tmp_path / "a" / "link").symlink_to(outside)
    DISK.remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists() and (outside / "kept").exists()


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    held = DISK.lock(tmp_path / "lock", "the first")
    with pytest.raises(Held) as told:
        DISK.lock(tmp_path / "lock", "the second")
    assert told.value.holder == "the first"
    held.release()
    DISK.lock(tmp_path / "lock", "the second").release()
    assert list(tmp_path.iterdir()) == []


NAMES = st.text(max_size=400) | st.sampled_from(
    ["a/b", "../../../x", "", ".", "..", "a b", "A", "a", "con", "ä", "Ä", "x" * 300]
)


@given(NAMES, NAMES)
def test_names_of_files_are_safe_short_and_different(one: str, other: str) -> None:
    found = [file_name(one), file_name(other)]
    for name in found:
        assert name.isascii() and name[0].isalnum() and len(name) <= 57 and name == name.lower()
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    # Equal for no two texts, also where case and the forms of Unicode are taken for the same.
    folded = [unicodedata.normalize("NFKC", name).casefold() for name in found]
    assert (folded[0] == folded[1]) == (one == other)


def test_plain_names_stay_as_they_are() -> None:
    assert file_name("flights") == "flights" and file_name("a_1") == "a_1"
    assert file_name("\ud800").startswith("name-")
    assert storage() is storage()
