"""Rounds as files: one at a time, whole, the same after a restart."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.algebra.nodes.scans import Scan, Source
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.input.look_schedule import Gathering
from penstock.runtime.spark.input.round_log import RoundChange, RoundLog
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.storage import storage
from penstock.tree import walk


def source_of(data: Path, watch: bool = False) -> Source:
    option = ", watch 'true'" if watch else ""
    script = f"""CREATE STREAM S (ts BIGINT) FROM FILES (path '{data}', format 'parquet'{option}) TIMESTAMP BY ts;
    CREATE QUERY q AS SELECT ts FROM S;"""
    (query,) = bind_script(script).queries
    return next(node.source for node in walk(query.root) if isinstance(node, Scan))


def write(data: Path, number: int) -> None:
    data.mkdir(exist_ok=True)
    pq.write_table(pa.table({"ts": pa.array([number], pa.int64())}), data / f"{number:03d}.parquet")


def opened(tmp_path: Path, watch: bool = False, abandoned: Callable[[], bool] = lambda: False) -> RoundLog:
    folder = Folder(tmp_path / "job")
    folder.root.mkdir(exist_ok=True)
    intake = Intake((source_of(tmp_path / "data", watch),), frozenset(), 2, pace=RateControl(max_bytes=1))
    return RoundLog(folder, intake, abandoned=abandoned)


def paths(rounds: RoundLog, number: int) -> list[str]:
    files = sorted((rounds.place / f"{number:09d}").glob("*.json"))
    folder = Folder(rounds.place.parent)
    tasks = [task for file in files for task in load_read_tasks(folder, file)]
    return [Path(split.path).name for task in tasks for split in task.splits]


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_one_round_at_a_time(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    assert [p.name for p in rounds.place.iterdir()] == ["000000001"]
    rounds.delivered(1)
    rounds.delivered(1)
    assert sorted(p.name for p in rounds.place.iterdir()) == ["000000001", "000000002"]
    assert (paths(rounds, 1), paths(rounds, 2)) == (["000.parquet"], ["001.parquet"])
    rounds.stop()


def test_a_restart_goes_on_where_the_last_run_was(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "data", number)
    first = opened(tmp_path)
    first.delivered(1)
    first.stop()
    # Killed between the mark and the folder: the round is made again.
    (first.place / "000000002").rename(tmp_path / "gone")
    again = opened(tmp_path)
    assert paths(again, 2) == ["001.parquet"]
    again.delivered(2)
    assert paths(again, 3) == ["002.parquet"]
    again.stop()


def test_files_that_appear_later_make_a_round(tmp_path: Path) -> None:
    write(tmp_path / "data", 0)
    rounds = opened(tmp_path, watch=True)
    rounds.delivered(1)
    assert not (rounds.place / "000000002").exists()
    write(tmp_path / "data", 1)
    assert eventually(lambda: (rounds.place / "000000002").exists())
    assert paths(rounds, 2) == ["001.parquet"]
    rounds.stop()


def test_a_reader_begins_before_the_round_in_hand_and_nothing_is_delivered_meanwhile(tmp_path: Path) -> None:
    """Where it begins, what is kept of it and the answers are read one after another, and are of one instant."""
    for number in range(3):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    rounds.delivered(1)
    assert rounds.outstanding
    deliver = threading.Thread(target=rounds.delivered, args=(2,))

    def begin(offset: Offset, batch: int) -> tuple[int, int]:
        deliver.start()
        deliver.join(0.3)
        assert deliver.is_alive() and Folder(tmp_path / "job").delivered().round == 1
        return offset.round, batch

    assert rounds.delivered_state(begin) == (1, 0)
    deliver.join(20)
    assert rounds.delivered_state(lambda offset, batch: (offset.round, batch)) == (2, 1)
    rounds.stop()


@pytest.mark.timeout(60)
def test_nobody_waits_for_a_round_that_is_abandoned(tmp_path: Path) -> None:
    """Its query has failed: a change is refused, and a reader gets what was delivered before."""
    for number in range(3):
        write(tmp_path / "data", number)
    over = False
    rounds = opened(tmp_path, abandoned=lambda: over)
    rounds.delivered(1)
    assert rounds.outstanding
    over = True
    with pytest.raises(PenstockError, match="has ended") as caught:
        rounds.change(lambda: None)
    assert caught.value.code == "P0701"
    assert rounds.delivered_state(lambda offset, batch: (offset.round, batch), shown=1) == (1, 0)
    rounds.stop()


def changed_by(rounds: RoundLog, epoch: int, begun: list[int]) -> threading.Thread:
    """Change the plan from a thread of its own, with nothing new to read; note that it has begun."""

    def begin() -> RoundChange:
        begun.append(epoch)
        intake, offset = rounds._planner._intake, replace(rounds._offset.planned(), again=True)
        return RoundChange(intake, epoch, offset, rounds.planner_after(intake))

    thread = threading.Thread(target=rounds.change, args=(begin,))
    thread.start()
    return thread


@pytest.mark.timeout(60)
def test_a_change_waits_for_the_first_round_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What new queries have read joins the state in that round, which therefore waits for nothing itself."""
    write(tmp_path / "data", 0)
    # Input that is expected beside what there is would hold every round back.
    monkeypatch.setattr(Gathering, "holds", lambda *arguments: True)
    rounds = opened(tmp_path, watch=True)
    rounds.delivered(1)
    begun: list[int] = []
    first = changed_by(rounds, 1, begun)
    first.join(20)
    assert begun == [1] and rounds.outstanding
    second = changed_by(rounds, 2, begun)
    third = changed_by(rounds, 3, begun)
    second.join(0.2)
    assert begun == [1]
    rounds.delivered(2)
    assert eventually(lambda: len(begun) == 2 and rounds.outstanding)
    assert second.is_alive() or third.is_alive()
    rounds.delivered(3)
    second.join(20), third.join(20)
    assert sorted(begun) == [1, 2, 3]
    rounds.stop()


@pytest.mark.timeout(60)
def test_a_change_after_a_failure_waits_for_no_round(tmp_path: Path) -> None:
    """It is made by the thread that delivers rounds; another change that came first has left out what failed."""
    for number in range(3):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    rounds.delivered(1, failed={"q": QueryFailure("P0601", "it fails")})
    begun: list[int] = []
    changed_by(rounds, 1, begun).join(20)
    assert begun == [1] and rounds.outstanding
    rounds.change(lambda: pytest.fail("nothing is left to be done"), after_failure=True)
    rounds.delivered(2, failed={"q": QueryFailure("P0601", "it fails")})
    rounds.change(lambda: begun.append(2), after_failure=True)
    assert begun == [1, 2]
    rounds.stop()


def test_old_rounds_are_removed(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    for number in range(1, 9):
        rounds.delivered(number)
    assert sorted(p.name for p in rounds.place.iterdir())[0] == "000000005"
    rounds.stop()


def test_a_start_removes_rounds_that_a_crash_has_left(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    for number in range(1, 9):
        if number == 6:
            # Killed between the delivery mark and the removal.
            shutil.copytree(rounds.place / "000000002", tmp_path / "left")
        rounds.delivered(number)
    rounds.stop()
    shutil.copytree(tmp_path / "left", rounds.place / "000000002")
    again = opened(tmp_path)
    assert sorted(p.name for p in again.place.iterdir()) == [f"{number:09d}" for number in range(5, 10)]
    assert paths(again, 9) == ["008.parquet"]
    again.stop()


def test_what_appears_during_a_round_is_recorded_before_its_end(tmp_path: Path) -> None:
    write(tmp_path / "data", 0)
    rounds = opened(tmp_path, watch=True)
    assert paths(rounds, 1) == ["000.parquet"]
    write(tmp_path / "data", 1)
    assert eventually(lambda: len(SplitFiles(Folder(tmp_path / "job"), source_file("S", {})).read()) == 2)
    # The next round reads it, whatever it finds then, and not before the first is delivered.
    assert not (rounds.place / "000000002").exists()
    rounds.delivered(1)
    assert paths(rounds, 2) == ["001.parquet"]
    rounds.stop()


def test_a_look_that_fails_during_a_round_ends_the_run_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", 0)
    rounds = opened(tmp_path, watch=True)
    looks: list[Offset] = []

    def refused(start: Offset) -> None:
        looks.append(start)
        raise PenstockError("P0301", "the folder cannot be listed")

    monkeypatch.setattr(rounds._planner, "discover", refused)
    assert eventually(lambda: bool(looks))
    assert rounds.failure is None
    rounds.delivered(1)
    assert eventually(lambda: rounds.failure is not None and "cannot be listed" in rounds.failure.message)
    assert Folder(tmp_path / "job").delivered().round == 1
    # It is not asked again.
    assert len(looks) == 1
    rounds.stop()


@pytest.mark.parametrize("step", ["utime", "as_json", "rename", "after rename"])
def test_a_round_that_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An exception nobody has foreseen, once, at a step behind the decision on the round."""
    for number in range(3):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path)
    raised: list[str] = []

    def once(former: Callable[..., object], after: bool = False) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            result = former(*arguments, **named) if after else None
            if not raised:
                raised.append(step)
                raise ZeroDivisionError("injected")
            return result if after else former(*arguments, **named)

        return wrapped

    owner, name = {
        "utime": (os, "utime"),
        "as_json": (Offset, "as_json"),
        "rename": (storage(), "rename"),
        "after rename": (storage(), "rename"),
    }[step]
    monkeypatch.setattr(owner, name, once(getattr(owner, name), step == "after rename"))
    rounds.delivered(1)
    assert raised
    assert eventually(lambda: rounds.place.joinpath("000000002").exists()) and rounds.failure is None
    assert paths(rounds, 2) == ["001.parquet"]
    rounds.delivered(2)
    assert eventually(lambda: paths(rounds, 3) == ["002.parquet"])
    rounds.stop()
