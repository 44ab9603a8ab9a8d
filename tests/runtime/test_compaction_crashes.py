"""Power goes at every call of a compaction: no update is lost or read twice, no key of a post is forgotten."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from compaction_kit import selected_of
from inline_engine import without_spark
from inline_run import InlineRun, cold

from penstock.algebra.nodes.scans import Source
from penstock.control.posted_rows import PostedRows
from penstock.language.scripts import bind_script
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.hydration import compaction
from penstock.runtime.spark.hydration.compaction import Compaction
from penstock.runtime.spark.retention.compacted_updates import CompactedLog
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import KINDS, LOSSES, FailingCalls, PowerCut, PowerLost

__all__ = ["without_spark"]

DECLARED = {
    "timed": "CREATE RELATION R (ts BIGINT, op STRING, k BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND "
    "OPERATION BY op;",
    "clocked": "CREATE RELATION R (op STRING, k BIGINT) FROM MEMORY () SYSTEM TIME OPERATION BY op;",
}


class System:
    """A run that reads a posted relation, one post a round. number: of posts."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place = place
        self.kind = kind
        self.declared: Source = bind_script(DECLARED[kind]).catalog.sources["r"]
        self.posts = 0
        self.open()

    def open(self) -> None:
        cold()
        self.posted = PostedRows(self.place / "kept", 3600.0)
        source = self.posted.source(self.declared, 1)
        self.run = InlineRun(
            "SET shards = 1;", self.place / "checkpoint", declared={"R": source}, standing=True, queries=()
        )

    def post(self, number: int) -> bool:
        """One key comes, and the one three posts before goes."""
        rows = [("+", number), *([("-", number - 3)] if number > 3 else [])]
        ts = {} if self.kind == "clocked" else {"ts": pa.array([number] * len(rows))}
        table = pa.table({**ts, "op": [op for op, _ in rows], "k": [k for _, k in rows]})
        return self.posted.post(self.declared, 1, table, f"key {number}")

    def go(self, count: int) -> None:
        for _ in range(count):
            self.posts += 1
            assert self.post(self.posts)
            self.round()

    def round(self) -> None:
        self.run.rounds._advance()
        while self.run.pending():
            self.run.step()
            self.run.rounds._advance()

    def compact(self) -> None:
        Compaction(self.run.folder, self.run.rounds, lambda: self.run.job.intake, 0, 2**20).compact()

    def check(self) -> None:
        """Everything is there, once; what was posted before is recognized."""
        rows = selected_of(self.run, "SELECT k FROM R", DECLARED[self.kind]).answer.table.to_pylist()
        found = Counter(row["k"] for row in rows)
        # The last instant may not be final yet.
        last = dict.fromkeys(range(max(1, self.posts - 2), self.posts + 1), 1)
        before = dict.fromkeys(range(max(1, self.posts - 3), self.posts), 1)
        assert found in (Counter(last), Counter(before)), found
        assert not any(self.post(number) for number in range(1, self.posts + 1))

    @property
    def left(self) -> int:
        return len(list((self.place / "kept" / "1").glob("*.arrow")))

    @property
    def compacted(self) -> int:
        return CompactedLog(self.run.folder, source_file("R", self.run.job.intake.births)).read().splits


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FEW", 1)


def begun(tmp_path: Path, kind: str) -> System:
    """Of a run of which some posts have been compacted and removed, and others are to be."""
    system = System(tmp_path / "run", kind)
    system.go(5)
    system.compact()
    system.go(4)
    assert system.compacted == 5 and 0 < system.left < 9
    system.run.rounds.stop()
    shutil.copytree(system.place, tmp_path / "before")
    return system


def again(system: System) -> None:
    """Begin as it was before the compaction."""
    system.run.rounds.stop()
    shutil.rmtree(system.place)
    shutil.copytree(system.place.with_name("before"), system.place)
    system.posts = 9
    system.open()
    system.go(5)


@pytest.mark.usefixtures("without_spark", "few")
@pytest.mark.parametrize("kind", DECLARED)
def test_power_goes_at_any_call(tmp_path: Path, kind: str) -> None:
    system, draw, number = begun(tmp_path, kind), random.Random(1), len(kind) % 2
    while True:
        # The other relation gets the other calls.
        number += 2
        again(system)
        spare = tmp_path / f"spare-{number}"
        spare.mkdir()
        calls = PowerCut(spare, number)
        with replaced_storage(LocalStorage(calls)), suppress(PowerLost):
            system.compact()
        if calls.count < number:
            break
        system.run.rounds.stop()
        calls.lose(LOSSES[number % 3], draw, [system.place])
        system.open()
        system.check()
        system.go(5)
        system.compact()
        system.check()
    assert system.compacted == 14 and number > 20


@pytest.mark.usefixtures("without_spark", "few")
def test_any_call_fails(tmp_path: Path) -> None:
    """The run goes on, and what could not be compacted is when more has been posted."""
    system = begun(tmp_path, "timed")
    for kind in KINDS:
        number = -KINDS.index(kind) % 2
        while True:
            number += 2
            again(system)
            calls = FailingCalls(kind, number)
            with replaced_storage(LocalStorage(calls)):
                system.compact()
            system.check()
            if not calls.failed:
                break
    system.go(6)
    system.compact()
    system.check()
    assert system.compacted == 20 and system.left < 12
