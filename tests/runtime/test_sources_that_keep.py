"""Sources that cannot be read twice: what they kept is let go when nobody can ask for it, what they know of time is
told, and what goes wrong with them ends the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, ParsedRecords, SourceConnector, Split, Stretch
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.input import input_planner as feed
from penstock.runtime.spark.input.look_schedule import Looks
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.storage.seals import sealed
from penstock.types import Field, Schema, TimeDomain, Unit, parse_type

SOURCE = Source(
    "s", True, Schema((Field("at", parse_type("BIGINT")),)), "POLLED", (), 0, TimeDomain(Unit.SECOND, False)
)


class Polled(SourceConnector):
    """A path a round; nothing after `last`, and then a failure if there is one."""

    made: Polled
    last = 7
    failure: PenstockError | None = None

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.kept: Path | None = None
        self.forgotten: list[str] = []
        self.known = 0
        Polled.made = self

    @property
    def bounded(self) -> bool:
        return False

    def keep_in(self, folder: Path) -> None:
        self.kept = folder

    def forget(self, paths: Sequence[str]) -> None:
        self.forgotten += paths

    def reached(self) -> int | None:
        return 100 * self.known

    def check(self) -> None:
        """Nothing to look at."""

    def discover(self, known: Set[str]) -> list[str]:
        if len(known) >= self.last and Polled.failure is not None:
            raise Polled.failure
        self.known = min(self.last, len(known) + 1)
        return [f"p{len(known)}"] if len(known) < self.last else []

    def splits(self, path: str) -> list[Split]:
        return [Split(path, bytes=1)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        return iter(())


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RoundLog]:
    monkeypatch.setattr(feed, "open_source", Polled)
    monkeypatch.setattr(Looks, "wait", 0.0)
    monkeypatch.setattr(Polled, "failure", None)
    folder = Folder(tmp_path / "job")
    folder.root.mkdir()
    made = RoundLog(folder, Intake((SOURCE,), frozenset(), 1, pace=RateControl(max_bytes=1)))
    yield made
    made.stop()


def pieces(rounds: RoundLog, number: int) -> list[feed.ReadTask]:
    folder = Folder(rounds.place.parent)
    return [
        task for f in sorted((rounds.place / f"{number:09d}").glob("*.json")) for task in load_read_tasks(folder, f)
    ]


def test_what_was_read_long_ago_is_forgotten(rounds: RoundLog, tmp_path: Path) -> None:
    assert Polled.made.kept == tmp_path / "job" / "kept" / "s"
    for number in range(1, 7):
        rounds.delivered(number)
    # The rounds that Spark may still ask for keep theirs.
    assert Polled.made.forgotten == ["p0", "p1"]
    assert [p.splits[0].path for p in pieces(rounds, 7)] == ["p6"]


def test_what_a_source_knows_of_its_time_is_told_and_holds_from_the_next_round_on(
    rounds: RoundLog, tmp_path: Path
) -> None:
    (first,) = pieces(rounds, 1)
    assert (first.beats, first.beat) == ((("s", 100),), None)
    rounds.delivered(1)
    (second,) = pieces(rounds, 2)
    assert (second.beats, second.beat) == ((("s", 200),), 100)
    folder = Folder(tmp_path / "job")
    offset = folder.read_mark("offset")
    assert offset["told"] == {"s": 200}
    path = rounds.place / "000000001" / "00000.json"
    content = sealed(
        json.dumps([{**first.__dict__, "splits": [], "punctuations": first.punctuations.as_json()}]), folder.place(path)
    )
    assert load_read_tasks(folder, f"file:{path}", content) == [replace(first, splits=())]


def test_a_source_that_fails_between_rounds_ends_the_run(rounds: RoundLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 8):
        rounds.delivered(number)
    monkeypatch.setattr(Polled, "failure", PenstockError("P0401", "it is gone"))
    rounds._thread.join(20)
    assert rounds.failure is Polled.failure


class Log(LogConnector):
    """A topic with 25 records, of which a round takes ten."""

    bounded = False

    def check(self) -> None:
        """Nothing to look at."""

    def discover(self, known: Set[str]) -> list[str]:
        return []

    splits = Polled.splits
    read = Polled.read

    def plan(
        self, state: dict[str, Any] | None, positions: Mapping[str, int] | None, limit: int | None = None
    ) -> Stretch:
        at = (state or {"at": 0})["at"]
        stop = min(25, at + 10)
        split = Split("log", bytes=1, rows=stop - at) if stop > at else None
        return Stretch({"at": stop}, split, False, 25 - at)


def test_what_a_round_reads_of_a_log_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "open_source", Log)
    monkeypatch.setattr(Looks, "wait", 0.0)
    folder = Folder(tmp_path / "job")
    folder.root.mkdir()
    made = RoundLog(folder, Intake((SOURCE,), frozenset(), 1))
    found = [made.waiting]
    for number in range(1, 4):
        made.delivered(number)
        found.append(made.waiting)
    made.stop()
    assert found == [{"s": 15}, {"s": 5}, {"s": 0}, {"s": 0}]
