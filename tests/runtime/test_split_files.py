"""The list of what is known of a source, in files: what is read is what was written, whatever is dropped or lost."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.contract import Split
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.input import split_files
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost


def splits(first: int, count: int) -> list[Split]:
    return [Split(f"{number}.csv", 0, 1, 10) for number in range(first, first + count)]


def opened(root: Path) -> Folder:
    root.mkdir(parents=True, exist_ok=True)
    folder = Folder(root)
    folder.begin_run()
    return folder


def same(found: KnownSplits, expected: KnownSplits) -> bool:
    return len(found) == len(expected) and list(found[expected.dropped :]) == list(expected)


STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), max_size=40)


@given(STEPS, st.integers(1, 5))
def test_what_is_written_is_what_is_read(steps: list[tuple[int, int]], size: int) -> None:
    """Any discoveries and drops, over the size at which another file begins."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_files, "SPLITS_A_FILE", size)
        files = SplitFiles(opened(Path(name)), "s")
        known = KnownSplits()
        for new, dropped in steps:
            known = known.without(min(len(known), known.dropped + dropped)).and_more(splits(len(known), new))
            files.write(known, new)
            assert same(files.read(), known)
            # Nothing is kept that is not needed: at most one file more than the splits that are kept would fill.
            assert len(list((Path(name) / "splits" / "s").iterdir())) <= len(known.kept) // size + 2


def test_a_discovery_writes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_files, "SPLITS_A_FILE", 32)
    files = SplitFiles(opened(tmp_path), "s")
    files.write(known := KnownSplits(0, splits(0, 10_000)), 10_000)
    first = next((tmp_path / "splits" / "s").iterdir())
    before = first.stat()
    for number in range(80):
        known = known.and_more(splits(10_000 + number, 1))
        files.write(known, 1)
    assert same(files.read(), known)
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "splits" / "s").iterdir())
    assert len(sizes) == 4 and sizes[-2] < before.st_size / 10


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_file_that_is_gone_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    monkeypatch.setattr(split_files, "SPLITS_A_FILE", 2)
    files = SplitFiles(opened(tmp_path), "s")
    known = KnownSplits()
    for number in range(8):
        known = known.and_more(splits(number, 1))
        files.write(known, 1)
    paths = sorted((tmp_path / "splits" / "s").iterdir())
    assert len(paths) == 4
    paths[lost].unlink()
    with pytest.raises(PenstockError) as caught:
        files.read()
    assert caught.value.code == "P0605"


def test_files_in_each_others_places_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_files, "SPLITS_A_FILE", 1)
    folder = opened(tmp_path)
    for source in ("s", "r"):
        known = KnownSplits()
        for number in range(3):
            known = known.and_more(splits(number, 1))
            SplitFiles(folder, source).write(known, 1)
    paths = sorted((tmp_path / "splits" / "s").iterdir())
    for other in (paths[1], tmp_path / "splits" / "r" / paths[0].name):
        content = paths[0].read_bytes()
        paths[0].write_bytes(other.read_bytes())
        with pytest.raises(PenstockError) as caught:
            SplitFiles(folder, "s").read()
        assert caught.value.code == "P0605"
        paths[0].write_bytes(content)
    assert len(SplitFiles(folder, "s").read()) == 3


@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_of_power_leaves_the_list_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """At every call of the storage, while files begin, are written again and go."""
    monkeypatch.setattr(split_files, "SPLITS_A_FILE", 2)
    number, cut_off = 0, True
    while cut_off:
        number += 1
        root = tmp_path / str(number)
        folder = opened(root)
        spare = tmp_path / f"spare {number}"
        spare.mkdir()
        calls = PowerCut(spare, number)
        files, before, after = SplitFiles(folder, "s"), KnownSplits(), KnownSplits()
        try:
            with replaced_storage(LocalStorage(calls)):
                for step in range(8):
                    before = after
                    after = before.without(max(0, 2 * step - 4)).and_more(splits(len(before), 2 - step % 2))
                    files.write(after, len(after) - len(before))
                before, cut_off = after, False
        except PowerLost:
            pass
        calls.lose(how, random.Random(number), [root])
        found = files.read()
        assert same(found, before) or same(found, after), f"call {number}"
    assert number > 40
