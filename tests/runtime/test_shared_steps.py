"""Steps that queries of different epochs share: in the files of a run, over restarts, and whoever goes first."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, InlineRun, cold, write_files

from penstock.runtime.spark.checkpoint.state_report import report

FILES = 9
HEAD = """SET max_batch_bytes = 1; SET shards = 2;
CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{data}', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;"""
TEXTS = {
    "sums": "SELECT k, SUM(x) AS s, MAX(x) AS m FROM S [RANGE 30 SECONDS] GROUP BY k",
    "pairs": """SELECT a.x, b.x AS y FROM S [RANGE 9 SECONDS] AS a, S [RANGE 15 SECONDS] AS b
                WHERE a.k = b.k AND a.x < b.x""",
}


def script(tmp: Path, *queries: str, out: str = "out") -> str:
    """queries: as `sums 2`, the text and a number."""
    text = HEAD.format(data=tmp / "data")
    for one in queries:
        kind, _, number = one.partition(" ")
        path = tmp / out / one.replace(" ", "-")
        text += f"CREATE QUERY {kind}{number} INTO FILES (path '{path}', format 'parquet') AS {TEXTS[kind]};"
    return text


def events(tmp: Path, query: str, out: str = "out", after: int = -1) -> list[str]:
    """The changes of a query behind an instant, in order."""
    files = sorted((tmp / out / query.replace(" ", "-")).glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(str(row) for row in rows if int(row["ts"]) > after)


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    cold()
    write_files(tmp_path / "data", range(FILES))
    return tmp_path


@pytest.fixture
def alone(tmp: Path) -> Path:
    InlineRun(script(tmp, "sums 1", "pairs 1", out="alone"), tmp / "alone-checkpoint").run()
    cold()
    return tmp


def count(run: InlineRun, title: str) -> int:
    return sum(step.spec.title == title for step in run.job.plan.steps)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_queries_that_read_their_past_join_the_steps_that_stand(alone: Path, crash: str | None) -> None:
    tmp = alone
    run = InlineRun(script(tmp, "sums 1", "pairs 1"), tmp / "checkpoint").go(3)
    both = script(tmp, "sums 1", "pairs 1", "sums 2", "pairs 2")
    run.change(both, backfilled=True)
    assert (count(run, "Scan"), count(run, "Aggregate"), count(run, "Join")) == (1, 1, 1)
    assert len(run.job.plan.receivers) == len({c.step for c in run.job.plan.receivers})
    if crash is not None:
        run.run(1, crash)
        cold()
        run = InlineRun(both, tmp / "checkpoint")
        assert run.decision.kind.value == "same"
        assert count(run, "Aggregate") == 1
    run.run()
    for kind in TEXTS:
        expected = events(tmp, f"{kind} 1", "alone")
        assert expected
        assert events(tmp, f"{kind} 1") == expected
        assert events(tmp, f"{kind} 2") == expected


@pytest.mark.parametrize("restarts", [False, True])
def test_the_merged_state_stays_when_the_query_ends_with_which_it_began(alone: Path, restarts: bool) -> None:
    tmp = alone
    run = InlineRun(script(tmp, "sums 1", "pairs 1"), tmp / "checkpoint", live=True).go(3)
    run.change(script(tmp, "sums 1", "pairs 1", "sums 2", "pairs 2"), backfilled=True).go(1)
    later = script(tmp, "sums 2", "pairs 2")
    run.change(later).go(1)
    stored = {name.partition(".")[0] for name in _synopses(run)}
    assert stored <= set(run.epoch.merges.values()), "state goes by the keys of the steps that have gone"
    assert {operator.operator for operator in report(tmp / "checkpoint").queries["sums2"]} == {
        "Aggregate",
        "Changes",
        "RowLog",
    }
    if restarts:
        run.rounds.stop()
        cold()
        run = InlineRun(later, tmp / "checkpoint", live=True)
        assert run.decision.kind.value == "same"
    # Others may join what stands, and leave it.
    run.change(script(tmp, "sums 2", "pairs 2", "sums 3"), backfilled=True).go(1)
    assert (count(run, "Aggregate"), count(run, "Join")) == (1, 1)
    run.change(script(tmp, "pairs 2", "sums 3")).run()
    for kind, number in (("pairs", 2), ("sums", 3)):
        assert events(tmp, f"{kind} {number}") == events(tmp, f"{kind} 1", "alone")


def _synopses(run: InlineRun) -> set[str]:
    states = report(run.checkpoint)
    assert all(operators for operators in states.queries.values())
    names: set[str] = set()
    for stage in range(1, run.epoch.stages + 1):
        for shard in range(run.epoch.shards):
            from penstock.runtime.spark.checkpoint.state_files import StateFiles
            from penstock.runtime.state.chunk_files import LAST

            manifest = StateFiles(str(run.folder.root), stage, shard, LAST).manifest()
            assert manifest is not None
            names |= manifest.synopses.keys()
    return names


def test_a_query_that_began_now_is_merged_when_its_window_has_passed(alone: Path) -> None:
    tmp = alone
    run = InlineRun(script(tmp, "sums 1"), tmp / "checkpoint").go(2)
    run.change(script(tmp, "sums 1", "sums 2")).go(1)
    assert (count(run, "Scan"), count(run, "Aggregate")) == (1, 2)
    assert run.epoch.beginnings["1"] == {"ahead": {"S": 59}, "begun": {}}
    # Any other change: its first element has come.
    run.change(script(tmp, "sums 1", "sums 2", "pairs 1")).go(2)
    assert run.epoch.beginnings["1"] == {"ahead": {"S": 59}, "begun": {"S": 99}}
    assert count(run, "Aggregate") == 2
    run.change(script(tmp, "sums 1", "sums 2"))
    assert count(run, "Aggregate") == 1
    run.run()
    assert events(tmp, "sums 1") == events(tmp, "sums 1", "alone")
    # From 60 on its window holds what came since; from 90 on it is full.
    assert events(tmp, "sums 2", after=95) == events(tmp, "sums 1", "alone", after=95)
