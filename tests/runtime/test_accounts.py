"""What a run counts: it must not grow with what is in its input."""

from __future__ import annotations

from pathlib import Path

from inline_run import InlineRun

from penstock.connectors.deadletters import DeadLetter, DeadLetters
from penstock.runtime.rejected_rows import MOST_REASONS, OTHER_REASONS
from penstock.runtime.spark.checkpoint.folder import Folder, Seen
from penstock.runtime.spark.output.refused_rows import _RESULT
from penstock.runtime.spark.output.totals import RunTotals, TotalsMark, forget_totals
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import FailingCalls


def test_reasons_of_malformed_records_are_bounded(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    accounts = RunTotals(folder)
    for batch in range(3):
        reasons = {f"{batch * 1000 + n} bytes too many": 2 for n in range(500)} | {"broken": 1}
        folder.write_seen(f"{batch:09d}", 0, [("s", Seen(rows=1001, malformed=reasons))])
        accounts.close_batch()
    found = RunTotals(folder)._totals.sources["s"].malformed
    assert len(found) == MOST_REASONS + 1
    assert found["0 bytes too many"] == 2
    assert sum(found.values()) == 3 * 1001 and found[OTHER_REASONS] > 2 * 1000


def test_a_change_forgets_what_there_is_to_forget(tmp_path: Path) -> None:
    """Of a query that begins and a source that goes on nothing is: the totals of all others are not written again."""
    folder, totals = Folder(tmp_path), TotalsMark()
    totals.queries, totals.refused, totals.backfilled = {"a": 1, "b": 0}, {"a": {"late": 2}}, {"b": 3}
    totals.at_ingest, totals.of("s").rows, totals.of("t").rows = {"b": {"share": 0.5}}, 4, 5
    totals.write(folder)
    for queries, sources, written in (
        (["new"], {"s", "t", "u"}, 0),
        (["a", "new"], {"s", "t"}, 1),
        (["a"], {"s", "t"}, 0),
        (["b"], {"t"}, 1),
    ):
        calls = FailingCalls()
        with replaced_storage(LocalStorage(calls)):
            forget_totals(folder, queries, sources)
        assert calls.counts["rename"] == written
        left = TotalsMark.read(folder)
        assert left is not None
        counts = (left.queries, left.backfilled, left.refused, left.at_ingest)
        assert not any(name in one for one in counts for name in queries) and left.sources.keys() <= sources
    totals = TotalsMark(backfilled_epoch=3)
    totals.write(folder)
    forget_totals(folder, [], set())
    assert TotalsMark.read(folder) == TotalsMark()


def test_the_sums_are_those_of_the_counts_of_each(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,v\n1,1\n2,1\nx,2\n9,9\n")
    run = InlineRun(
        f"""CREATE STREAM S (ts BIGINT, v INT) FROM FILES (path '{tmp_path / "in"}', format 'csv', header 'true')
          TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY a INTO FILES (path '{tmp_path / "a"}') AS SELECT v FROM S [RANGE 4 SECONDS];
        CREATE QUERY b INTO FILES (path '{tmp_path / "b"}') AS ISTREAM(SELECT v FROM S [RANGE 4 SECONDS]);""",
        tmp_path / "checkpoint",
    ).run()
    totals = RunTotals(run.folder)
    assert run.heartbeats is not None
    totals.set_heartbeats(run.heartbeats.queries, run.heartbeats.sources)
    progress = totals.progress(run.job.plan, run.job.all_sources, run.sinks, {}, {})
    sums = totals.sums(run.job.plan, run.job.all_sources)
    assert sums.rows_in == sum(one.rows for one in progress.sources.values()) == 4
    assert sums.rows_out == sum(one.rows for one in progress.queries.values()) > 0
    assert sums.heartbeat == min(one.heartbeat for one in progress.queries.values()) != ""
    assert sums.batches == totals.batches > 0


def test_an_answer_that_is_final_for_ever_says_so(tmp_path: Path) -> None:
    """A drain lets time go on to its last tick for rows whose length depends on the row: no timestamp is that late."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,v\n2013-01-01 10:00:00,1\n2013-01-01 10:00:02,3\n")
    run = InlineRun(
        f"""CREATE STREAM S (ts TIMESTAMP, v INT) FROM FILES (path '{tmp_path / "in"}', format 'csv', header 'true')
          TIMESTAMP BY ts;
        CREATE QUERY q INTO FILES (path '{tmp_path / "q"}') AS
          SELECT v, VALID(s) FROM S (v) VALID FOR v SECONDS AS s WHERE CLOSED(VALID(s));""",
        tmp_path / "checkpoint",
        drain=True,
    ).run()
    totals = RunTotals(run.folder)
    assert run.heartbeats is not None
    totals.set_heartbeats(run.heartbeats.queries, run.heartbeats.sources)
    progress = totals.progress(run.job.plan, run.job.all_sources, run.sinks, {}, {})
    assert progress.queries["q"].heartbeat == progress.heartbeat == "the end"


def test_what_a_sink_refused_is_counted_where_it_was_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "penstock")
    letters = DeadLetters(folder.dead_letters)
    assert letters.folders() == set()
    totals = RunTotals(folder)
    totals.delivered(0, {"q": 2, "odd name": 1}, {})
    letters.write("odd name", 1, 0, [DeadLetter("batch 1", None, "row", "too long")], _RESULT)
    totals.delivered(1, {"q": 2, "odd name": 1}, {})
    totals.close_batch()
    written = folder.read_mark("totals")
    assert written is not None and written["refused"] == {"odd name": {"too long": 1}}


def test_how_far_a_run_was_is_known_when_it_starts_again(tmp_path: Path) -> None:
    """Nothing may come for a long time: until then its queries had no instant, and its sources no heartbeat."""
    folder = Folder(tmp_path)
    totals = RunTotals(folder)
    totals.set_heartbeats({"q1": 7, "q2": 5}, {"s": 7, "t": 5})
    totals.delivered(0, {"q1": 1, "q2": 0}, {})
    totals.close_batch()
    again = RunTotals(folder)
    assert again.heartbeats == ({"q1": 7, "q2": 5}, {"s": 7, "t": 5})
    assert again.rows == {"q1": 1, "q2": 0}
    forget_totals(folder, ["q2"], {"s"})
    assert RunTotals(folder).heartbeats == ({"q1": 7}, {"s": 7})
