"""Spark's log of the files it has read, kept short: what is left is what Spark may ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.runtime.spark.input.source_log import shorten, stamp


def entry(batch: int) -> str:
    return json.dumps({"path": f"file:/rounds/{batch:09d}/00000.json", "timestamp": 1, "batchId": batch})


def compact(place: Path, batch: int, form: str = "v1") -> Path:
    path = place / f"{batch}.compact"
    path.write_text("\n".join([form, *map(entry, range(batch + 1))]))
    return path


def test_the_last_batches_stay(tmp_path: Path) -> None:
    older, newest = compact(tmp_path, 299), compact(tmp_path, 1009)
    (tmp_path / ".1009.compact.crc").write_bytes(b"of what there was")
    before = older.read_bytes()
    assert shorten(tmp_path)
    form, *kept = newest.read_text().splitlines()
    assert form == "v1"
    assert kept == [entry(batch) for batch in range(960, 1010)]
    assert older.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1009.compact", "299.compact"]
    assert not shorten(tmp_path)


@pytest.mark.parametrize("text", ["v2\n" + "\n".join(map(entry, range(500))), "v1\n" + "no entry\n" * 500, "", "v1"])
def test_another_form_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "499.compact"
    path.write_text(text)
    assert not shorten(tmp_path)
    assert path.read_text() == text


def test_no_log_yet(tmp_path: Path) -> None:
    assert not shorten(tmp_path)
    assert not shorten(tmp_path / "none")


def test_files_are_as_old_as_their_rounds(tmp_path: Path) -> None:
    path = tmp_path / "00000.json"
    path.touch()
    stamp(path, 7)
    first = path.stat().st_mtime
    stamp(path, 8)
    assert path.stat().st_mtime == first + 1
