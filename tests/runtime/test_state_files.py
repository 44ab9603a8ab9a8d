"""The state of a shard in files: what a batch leaves, the next one finds, whatever failed in between."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.physical.execution.marks import StageMarks
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import StateFiles, sweep
from penstock.runtime.state import chunk_files
from penstock.runtime.state.chunk_files import FORMAT
from penstock.runtime.state.shard_manifest import ShardManifest


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"c": pa.array(values, pa.int64())})


def manifest(token: str) -> ShardManifest:
    return ShardManifest(token, 0, StageMarks({}, {}, {}), {})


def save(root: Path, number: int, token: str, new: dict[str, pa.RecordBatch], gone: set[str] | None = None) -> None:
    StateFiles(str(root), 1, 0, number).save(manifest(token), new, gone or set())


def files(root: Path) -> set[str]:
    return {path.name for path in (root / "state" / "1" / "0").iterdir()}


def test_a_batch_finds_what_the_one_before_left(tmp_path: Path) -> None:
    assert StateFiles(str(tmp_path), 1, 0, 0).manifest() is None
    save(tmp_path, 0, "first", {"a": batch(1, 2), "b": batch(3)})
    save(tmp_path, 1, "second", {"c": batch(4)}, {"a"})
    state = StateFiles(str(tmp_path), 1, 0, 2)
    assert state.manifest() == manifest("second")
    assert state.chunk("b").equals(batch(3)) and state.chunk("c").equals(batch(4))


def test_a_batch_that_is_run_again_starts_from_the_same_state(tmp_path: Path) -> None:
    save(tmp_path, 0, "first", {"a": batch(1)})
    save(tmp_path, 1, "failed", {"b": batch(2)}, {"a"})
    again = StateFiles(str(tmp_path), 1, 0, 1)
    assert again.manifest() == manifest("first")
    assert again.chunk("a").equals(batch(1))
    again.save(manifest("done"), {"b": batch(5)}, {"a"})
    assert StateFiles(str(tmp_path), 1, 0, 2).chunk("b").equals(batch(5))


def test_what_nothing_names_is_removed_one_batch_later(tmp_path: Path) -> None:
    save(tmp_path, 0, "one", {"a": batch(1)})
    save(tmp_path, 1, "two", {"b": batch(2)}, {"a"})
    assert any(name.startswith("000000000-one") for name in files(tmp_path))
    save(tmp_path, 2, "three", {})
    assert files(tmp_path) == {"000000001-two.arrow", "000000001.json", "000000002.json"}


def test_what_a_failed_attempt_left_is_swept(tmp_path: Path) -> None:
    save(tmp_path, 0, "lost", {"a": batch(1)})
    save(tmp_path, 0, "kept", {"a": batch(1)})
    sweep(tmp_path)
    assert files(tmp_path) == {"000000000-kept.arrow", "000000000.json"}


def test_files_of_which_little_is_alive_are_rewritten(tmp_path: Path) -> None:
    save(tmp_path, 0, "one", {f"c{i}": batch(*range(i, i + 100)) for i in range(10)})
    save(tmp_path, 1, "two", {"new": batch(1)}, {f"c{i}" for i in range(1, 10)})
    save(tmp_path, 2, "three", {})
    assert not any(name.startswith("000000000-one") for name in files(tmp_path))
    assert StateFiles(str(tmp_path), 1, 0, 3).chunk("c0").equals(batch(*range(100)))


def test_many_small_files_become_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_files, "_MOST_FILES", 8)
    for number in range(40):
        save(tmp_path, number, f"t{number}", {f"c{number}": batch(number)})
    assert len([name for name in files(tmp_path) if name.endswith(".arrow")]) <= 16
    state = StateFiles(str(tmp_path), 1, 0, 40)
    assert [state.chunk(f"c{i}").column(0).to_pylist() for i in range(40)] == [[i] for i in range(40)]


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_file_is_told(tmp_path: Path, cut: bool) -> None:
    save(tmp_path, 0, "one", {"a": batch(1, 2, 3)})
    (path,) = (tmp_path / "state" / "1" / "0").glob("*.arrow")
    data = bytearray(path.read_bytes())
    data[-40] ^= 255
    path.write_bytes(data[:-60] if cut else data)
    with pytest.raises(PenstockError, match="damaged") as caught:
        StateFiles(str(tmp_path), 1, 0, 1).chunk("a")
    assert caught.value.code == "P0605"


def test_a_state_of_another_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 0, "one", {})
    path = tmp_path / "state" / "1" / "0" / "000000000.json"
    folder = Folder(tmp_path)
    folder.write_sealed(path, json.dumps({**json.loads(folder.read_sealed(path)), "format": 99}))
    with pytest.raises(PenstockError, match=f"format 99, this version reads format {FORMAT}") as caught:
        StateFiles(str(tmp_path), 1, 0, 1)
    assert caught.value.code == "P0605"
    path.write_text("{")
    with pytest.raises(PenstockError, match="damaged"):
        StateFiles(str(tmp_path), 1, 0, 1)


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_any_byte_of_a_manifest_that_changes_is_told(tmp_path: Path, place: int) -> None:
    save(tmp_path, 0, "one", {"a": batch(1, 2, 3)})
    path = tmp_path / "state" / "1" / "0" / "000000000.json"
    data = bytearray(path.read_bytes())
    data[place % (len(data) - 1)] ^= 1
    path.write_bytes(data)
    with pytest.raises(PenstockError) as caught:
        StateFiles(str(tmp_path), 1, 0, 1)
    assert caught.value.code == "P0605"
