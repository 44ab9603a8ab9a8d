"""The class-data archive: mapped when it is whole, written when there is none, never in the way."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.runtime.java import require_java
from penstock.runtime.spark.startup.class_data_archive import archive_options, cache_folder


def options(folder: Path, now: float = 0.0) -> str:
    return " ".join(archive_options(require_java(), folder, now))


def written(folder: Path) -> Path:
    """Where the options tell the JVM to write."""
    (told,) = [o for o in options(folder).split() if o.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(told.partition("=")[2])


def test_the_first_start_writes_and_the_next_one_maps(tmp_path: Path) -> None:
    fresh = written(tmp_path)
    fresh.write_bytes(b"\x01\x02\x03\x04 the rest")
    assert f"-XX:SharedArchiveFile={fresh.with_suffix('.jsa')}" in options(tmp_path)
    assert not fresh.exists()


def test_one_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    fresh = written(tmp_path)
    fresh.write_bytes(bytes(100))
    os.utime(fresh, (1000, 1000))
    assert options(tmp_path, now=1100) == ""
    # Its writer was killed: another one may write.
    assert "ArchiveClassesAtExit" in options(tmp_path, now=2000)
    assert not fresh.exists()


def test_no_cache_no_archive(tmp_path: Path) -> None:
    assert cache_folder({"PENSTOCK_CACHE": ""}) is None
    assert cache_folder({"PENSTOCK_CACHE": str(tmp_path)}) == tmp_path
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "penstock"
    assert archive_options(require_java(), None) == []
    (tmp_path / "file").write_text("")
    assert options(tmp_path / "file") == ""
    assert options(tmp_path / "with space") == ""
