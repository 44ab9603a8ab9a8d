"""The queries of a run on Spark change while it goes on; it may be stopped and started again at any time."""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_change_on_spark import QUERIES, rows, script, start, write_data

from penstock.algebra.nodes.query import Start
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError, ScriptErrors
from penstock.runtime.spark import assembly, job
from penstock.runtime.spark.launch import launch
from penstock.runtime.spark.live_change import change
from penstock.runtime.spark.work import Work
from penstock.session import Session


def created(tmp: Path, name: str) -> str:
    return f"CREATE QUERY {name} INTO FILES (path '{tmp / 'out' / name}', format 'parquet') AS {QUERIES[name]};"


def after(run: Any, batches: int) -> None:
    """Wait until the run has delivered so many batches."""
    while run.progress().batches < batches and not run.wait(0.05):
        pass


@pytest.mark.spark
def test_queries_come_and_go_while_it_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysed: list[assembly._AnalysedPlan] = []

    class CountedPlan(assembly._AnalysedPlan):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            analysed.append(self)

    monkeypatch.setattr(assembly, "_AnalysedPlan", CountedPlan)
    # Rounds enough that it has not ended when the past of a query has been read, on a busy machine too.
    files = 90
    write_data(tmp_path / "data", files)
    checkpoint = str(tmp_path / "checkpoint")
    run = start(spark, script(tmp_path, "out", "pairs", "sums"), checkpoint=checkpoint, live=True)
    after(run, 2)
    with pytest.raises(ScriptErrors):
        run.change("CREATE QUERY wrong AS SELECT nothing FROM S [NOW];")
    with pytest.raises(PenstockError, match="P0201"):
        run["wrong"]
    assert run.change(f"DROP QUERY pairs; {created(tmp_path, 'best')}", backfill=True) == ("sums", "best")
    assert "reads its past" in run.notices[0] and "dropped" in run.notices[1]
    at = run.progress().batches
    after(run, at + 2)
    assert run.active and set(run.metrics().queries) == {"sums", "best"}
    # Of both versions the first batch alone is analysed operation by operation.
    assert len(analysed) == 2
    # Stopped in the middle, and started with the script as it was changed: the same run goes on.
    run.stop()
    run = start(spark, script(tmp_path, "out", "sums", "best"), checkpoint=checkpoint, live=True)
    assert run.notices == ()
    assert run.change("CREATE QUERY late INTO MEMORY () AS SELECT ISTREAM(COUNT(*) AS n) FROM S [RANGE 5 SECONDS];")
    assert run.wait(200)
    assert 0 < run["late"].to_arrow().num_rows < files * 20
    with pytest.raises(PenstockError, match="P0701"):
        run.change("DROP QUERY late;")
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums", "best"))
    assert calm.wait(200)
    for name in ("sums", "best"):
        assert rows(tmp_path, "out", name) == rows(tmp_path, "calm", name)


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_a_run_that_has_failed_says_so_to_a_change(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails in the driver leaves its round behind: nobody waits for its end."""
    write_data(tmp_path / "data", 14)
    run = start(spark, script(tmp_path, "out", "sums"), checkpoint=str(tmp_path / "checkpoint"), live=True)
    after(run, 2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(job, "commit_logs", full)
        with pytest.raises(PenstockError, match=r"P0701.*the disk is full"):
            run.change(created(tmp_path, "best"))
        with pytest.raises(PenstockError, match="P0601"):
            run.wait(100)
    run = start(spark, script(tmp_path, "out", "sums"), checkpoint=str(tmp_path / "checkpoint"))
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums"))
    assert calm.wait(200) and rows(tmp_path, "out", "sums") == rows(tmp_path, "calm", "sums")


@pytest.mark.spark
def test_only_a_live_run_changes(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 6)
    run = start(spark, script(tmp_path, "out", "sums"))
    with pytest.raises(PenstockError, match="P0701"):
        run.change(created(tmp_path, "best"))
    assert run.wait(200)
    session = Session(spark)
    session.execute("SET state_store = 'spark';" + script(tmp_path, "other", "sums"))
    with session.start(live=True) as run, pytest.raises(PenstockError, match="P0701"):
        run.change("DROP QUERY sums;")


@pytest.mark.spark
def test_a_delivered_batch_that_spark_repeats_is_not_run_again(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 5)
    checkpoint = tmp_path / "checkpoint"
    run = start(spark, script(tmp_path, "out", "sums"), checkpoint=str(checkpoint), live=True)
    assert run.wait(200)
    told = rows(tmp_path, "out", "sums")
    batches = run.progress().batches
    # As after a crash between the delivery and Spark's commit.
    last = max((checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "penstock" / "finished.json").unlink()
    for shard in (checkpoint / "penstock" / "state").glob("*/*/*.arrow"):
        shard.unlink()
    run = start(spark, script(tmp_path, "out", "sums"), checkpoint=str(checkpoint), live=True)
    assert run.wait(200)
    assert run.progress().batches == batches and rows(tmp_path, "out", "sums") == told


@pytest.mark.spark
def test_a_query_begins_with_full_windows_while_the_run_goes_on(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 14)
    run = start(spark, script(tmp_path, "out", "pairs"), checkpoint=str(tmp_path / "checkpoint"), live=True)
    after(run, 3)
    first = min((tmp_path / "data").iterdir())
    first.rename(tmp_path / "away")
    with pytest.raises(PenstockError, match="P0401"):
        run.change(created(tmp_path, "best"), start="BEGINNING")
    (tmp_path / "away").rename(first)
    seen: list[dict[str, float]] = []
    watching = threading.Thread(target=lambda: seen.extend(watch(run)))
    watching.start()
    run.change(created(tmp_path, "best"), start="WARM")
    watching.join()
    assert any("best" in shares for shares in seen) and not run.hydrating()
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "pairs", "best"))
    assert calm.wait(200)
    assert rows(tmp_path, "out", "pairs") == rows(tmp_path, "calm", "pairs")
    warm, whole = (contents(tmp_path, out) for out in ("out", "calm"))
    begun = min(warm)
    # It begins with the content that it would have had.
    assert begun > min(whole) and warm.pop(begun) == whole[max(tick for tick in whole if tick <= begun)]
    assert warm == {tick: content for tick, content in whole.items() if tick > begun}


def watch(run: Any) -> Iterator[dict[str, float]]:
    """What is read of the past, until the change has been made."""
    deadline = time.monotonic() + 100
    while "best" not in run.metrics().queries and time.monotonic() < deadline:
        yield run.hydrating()
        time.sleep(0.002)


def contents(tmp: Path, out: str) -> dict[int, Counter[tuple[Any, ...]]]:
    """The content of the relation `best` after each of its changes."""
    content: Counter[tuple[Any, ...]] = Counter()
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    changes = sorted(read_result(str(tmp / out / "best")).to_pylist(), key=lambda row: row["ts"])
    for row in changes:
        content[tuple(row.values())[2:]] += 1 if row["op"] == "+" else -1
        found[row["ts"]] = +content
    return found


@pytest.mark.spark
def test_a_standing_run_loses_failing_queries_alone(spark: Any, tmp_path: Path) -> None:
    """The commands of a server: none at first, then queries, one of which fails and is resumed when it is mended."""
    write_data(tmp_path / "data", 3)
    header = (
        script(tmp_path, "out").replace("'parquet'", "'parquet', watch 'true'")
        + "CREATE FUNCTION checked RETURNS BIGINT AS 'penstock.testing.samples:checked';"
    )
    text = (
        "CREATE QUERY q INTO FILES (path '{}', format 'parquet') AS SELECT ISTREAM(checked({} - ts) AS y) FROM S [NOW];"
    )

    def work(queries: str, **options: Any) -> Work:
        session = Session(spark)
        session.execute(header + queries)
        bound = session._work(list(session.catalog.queries.values()), False)
        sources = {source.name: source for source in session.catalog.sources.values()}
        return replace(bound, live=True, standing=True, pause_failed=True, declared=sources, **options)

    def more(number: int) -> None:
        write_data(tmp_path / f"data{number}", number + 1)
        (tmp_path / f"data{number}" / f"{number:03d}.parquet").rename(tmp_path / "data" / f"{number:03d}.parquet")

    failed: list[tuple[str, str]] = []
    checkpoint = str(tmp_path / "checkpoint")
    run = launch(work(""), checkpoint, False, lambda name, error: failed.append((name, error.code)))
    both = created(tmp_path, "sums") + text.format(tmp_path / "out" / "q", -1)
    change(run, work(both, command=2), False)
    assert run.version().command == 2
    more(3)
    while not failed and not run.wait(0.05):
        pass
    assert failed == [("q", "P0621")]
    version = run.version()
    assert version.number == 2 and version.failed.keys() == {"q"} and version.command == 2
    assert set(run.job.plan.queries) == {"sums"} and run.active
    mended = created(tmp_path, "sums") + text.format(tmp_path / "out" / "q", 10**9)
    change(run, work(mended, command=3, starts={"q": Start()}), False)
    more(4)
    while run.progress().queries["q"].rows == 0 and not run.wait(0.05):
        pass
    run.stop()
    assert run.error is None
    run = launch(work(mended, command=3), checkpoint, False)
    assert run.version().failed == {} and run.version().number == 3
    assert run.active
    run.stop()


@pytest.mark.spark
def test_a_query_is_silent_for_a_while(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 12)
    header = script(tmp_path, "out")

    def work(**options: Any) -> Work:
        session = Session(spark)
        session.execute(header + created(tmp_path, "sums") + created(tmp_path, "best"))
        return replace(session._work(list(session.catalog.queries.values()), False), live=True, **options)

    run = launch(work(), str(tmp_path / "checkpoint"), False)
    after(run, 3)
    change(run, work(silent=frozenset({"best"})), False)
    begun = run.version().batch
    after(run, begun + 3)
    change(run, work(), False)
    tick = run.version().queries["best"]
    assert run.version().batch >= begun + 3
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums", "best"))
    assert calm.wait(200)
    assert rows(tmp_path, "out", "sums") == rows(tmp_path, "calm", "sums")
    told, whole = (read_result(str(tmp_path / out / "best")).to_pylist() for out in ("out", "calm"))
    assert [r for r in told if r["ts"] > tick] == [r for r in whole if r["ts"] > tick]
    assert len([r for r in told if r["ts"] <= tick]) < len([r for r in whole if r["ts"] <= tick])

    def content(events: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        for event in events:
            counts[event["x"], event["k"]] += 1 if event["op"] == "+" else -1
        return +counts

    assert content([r for r in told if r["ts"] <= tick]) == content([r for r in whole if r["ts"] <= tick])
