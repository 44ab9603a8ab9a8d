"""Spark's log and our marks tell of the same batches, also after a loss of power; copies of another day are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.spark_log import check_log, mend_log, sync_log, take_back
from penstock.runtime.spark.output.totals import RunTotals
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import FailingCalls


def spark_log(place: Path, offsets: int, commits: int) -> Path:
    """As Spark leaves it behind so many batches: `offsets` begun and `commits` committed."""
    for name, count in (("offsets", offsets), ("commits", commits), ("sources/0", offsets)):
        (place / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (place / name / str(number)).write_text("v1\n{}")
            (place / name / f".{number}.crc").write_text("crc")
    (place / "metadata").write_text("{}")
    return place


def told(folder: Folder, batch: int) -> None:
    folder.begin_run()
    folder.write_mark("delivered", {"round": batch + 1, "batch": batch})


def test_a_log_that_fits(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    told(folder, 4)
    for offsets, commits in ((5, 4), (5, 5), (6, 5)):
        log = spark_log(tmp_path / f"log-{offsets}-{commits}", offsets, commits)
        mend_log(folder, log)
        check_log(folder, log)


def test_a_log_that_lags_behind_or_marks_that_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    told(folder, 4)
    with pytest.raises(PenstockError, match="does not contain batch 4") as lost:
        check_log(folder, spark_log(tmp_path / "older", 4, 4))
    assert lost.value.code == "P0605"
    with pytest.raises(PenstockError, match=r"delivered\.json in the checkpoint is damaged: it is older") as lost:
        check_log(folder, spark_log(tmp_path / "newer", 6, 6))
    assert lost.value.code == "P0605"


def test_what_a_loss_of_power_leaves_is_removed(tmp_path: Path) -> None:
    """Spark would refuse the files it has not waited for; none of them tells of what was delivered."""
    folder = Folder(tmp_path)
    told(folder, 4)
    log = spark_log(tmp_path / "log", 6, 5)
    for name in ("offsets/5", "sources/0/5", "commits/4"):
        (log / name).write_bytes(b"")
    mend_log(folder, log)
    assert sorted(p.name for p in (log / "offsets").iterdir() if p.name.isdigit()) == ["0", "1", "2", "3", "4"]
    assert sorted(p.name for p in (log / "commits").iterdir() if p.name.isdigit()) == ["0", "1", "2", "3"]
    assert not (log / "commits" / ".4.crc").exists() and not (log / "sources" / "0" / "5").exists()
    check_log(folder, log)
    # What was delivered is never taken for that.
    (log / "offsets" / "4").write_bytes(b"")
    mend_log(folder, log)
    assert (log / "offsets" / "4").exists()


def test_batches_of_a_plan_that_is_gone_are_taken_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    told(folder, 8)
    log = spark_log(tmp_path / "log", 10, 9)
    (log / "sources" / "0" / "9").rename(log / "sources" / "0" / "9.compact")
    (log / "sources" / "0" / ".9.crc").rename(log / "sources" / "0" / ".9.compact.crc")
    calls = FailingCalls()
    with replaced_storage(LocalStorage(calls)):
        take_back(folder, log)
    assert calls.counts["fsync"] == 2
    for name in ("offsets", "sources/0"):
        assert sorted(p.name.strip(".").partition(".")[0] for p in (log / name).iterdir()) == sorted("012345678" * 2)
    mend_log(folder, log)
    check_log(folder, log)
    take_back(folder, log)
    assert len(list((log / "commits").iterdir())) == 18


def test_the_log_is_on_disk_before_a_batch_counts_as_delivered(tmp_path: Path) -> None:
    log = spark_log(tmp_path / "log", 3, 2)
    calls = FailingCalls()
    with replaced_storage(LocalStorage(calls)):
        sync_log(log, 2, first=True)
    # Three files and three folders.
    assert calls.counts["fsync"] == 6
    calls = FailingCalls()
    with replaced_storage(LocalStorage(calls)):
        sync_log(log, 2, first=False)
    # What Spark writes once has been synced.
    assert calls.counts["fsync"] == 4
    with replaced_storage(LocalStorage(FailingCalls("fsync", 1))), pytest.raises(PenstockError) as failed:
        sync_log(log, 2, first=True)
    assert failed.value.code == "P0601"


def test_totals_of_another_day_are_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    told(folder, 3)
    folder.write_mark("totals", {"rounds": [], "batch": 3, "sources": {}, "queries": {}})
    assert RunTotals(folder).batches == 4
    folder.write_mark("totals", {"rounds": [], "batch": 2, "sources": {}, "queries": {}})
    with pytest.raises(PenstockError, match=r"totals\.json .* older") as older:
        RunTotals(folder)
    assert older.value.code == "P0605"
    (tmp_path / "totals.json").unlink()
    with pytest.raises(PenstockError, match="or gone"):
        RunTotals(folder)
