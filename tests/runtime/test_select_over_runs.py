"""One-time queries over what a run keeps of its input: R at one delivered batch, whatever is delivered meanwhile, and
the run goes on as if nobody had read it."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_run import Crash, InlineRun, cold

from penstock.algebra.nodes.scans import Source
from penstock.connectors.results.result_folder import ResultFolder
from penstock.connectors.sinks.files import read_result
from penstock.control.posted_rows import PostedRows
from penstock.errors import PenstockError
from penstock.language.scripts import Catalog, QueryNames, bind_script, bind_select
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveAnswer, LiveReader
from penstock.results.source_rows import DeclaredRows
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.spark.retention import retention
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.storage import storage
from penstock.testing.compare import events_of
from penstock.testing.one_time import assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle_once, timely_rows

FILES, ROWS = 8, 10
QUERIES = {
    "sums": "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM S [RANGE 12 SECONDS] GROUP BY k",
    "joined": "SELECT S.x, z FROM S [RANGE 9 SECONDS], R WHERE S.k = R.k",
    "last": "SELECT k, x FROM S [PARTITION BY k ROWS 2]",
    "updated": "SELECT k, z FROM R",
    "all": "SELECT COUNT(*) AS n, MAX(x) AS most FROM S",
    "static": "SELECT S.x, name FROM S [RANGE 5 SECONDS], P WHERE S.k = P.k ORDER BY S.x, name LIMIT 3",
    "panes": "SELECT k, APPROX_PERCENTILE(x, 0.5, 1) AS p FROM S [RANGE 12 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "blocks": "SELECT k, APPROX_TOP_K(x, 2, 2) AS p FROM S [ROWS 12 SLIDE 6 ROWS] GROUP BY k",
    "changes": "SELECT x FROM S [RANGE 8 SECONDS] WHERE k NOT IN (SELECT k FROM R WHERE z > 4)",
}
ANSWERS = {"kept": "SELECT k, MAX(x) AS top FROM S [RANGE 20 SECONDS] GROUP BY k",
           "large": "SELECT ISTREAM(k, x) FROM S [NOW] WHERE x > 8"}  # fmt: skip
OF_ANSWERS = {
    "SELECT top, z FROM kept, R WHERE kept.k = R.k": "SELECT MAX(x) AS top, z FROM S [RANGE 20 SECONDS], R "
    "WHERE S.k = R.k GROUP BY S.k, z, R.ts",
    "SELECT large.x FROM large [RANGE 6 SECONDS], S [RANGE 2 SECONDS] WHERE large.k = S.k":
    "SELECT a.x FROM S [RANGE 6 SECONDS] AS a, S [RANGE 2 SECONDS] AS b WHERE a.k = b.k AND a.x > 8",
}  # fmt: skip


def inputs() -> dict[str, pa.Table]:
    """All that the sources give: out of order within the slack, and now and then late; updates with keys."""
    draw = random.Random(5)
    stream = [max(0, i // 2 + draw.randint(-3, 3) - (15 if draw.random() < 0.05 else 0)) for i in range(FILES * ROWS)]
    updates = [max(0, i - (9 if draw.random() < 0.1 else 0)) for i in range(0, FILES * ROWS // 2, 2)]
    return {
        "S": pa.table(
            {
                "ts": pa.array(stream, pa.int64()),
                "k": pa.array([draw.randint(0, 2) for _ in stream], pa.int32()),
                "x": pa.array([draw.randint(0, 16) for _ in stream], pa.int64()),
            }
        ),
        "R": pa.table(
            {
                "ts": pa.array(updates, pa.int64()),
                "op": pa.array(["-" if draw.random() < 0.3 else "+" for _ in updates]),
                "k": pa.array([draw.randint(0, 2) for _ in updates], pa.int32()),
                "z": pa.array([draw.randint(0, 9) for _ in updates], pa.int64()),
            }
        ),
        "P": pa.table({"k": pa.array([0, 1, 1], pa.int32()), "name": ["a", "b", "c"]}),
    }


def script(tmp: Path, retain: str = "RETAIN 1 HOUR") -> str:
    data = {name: f"FROM FILES (path '{tmp / name}', format 'parquet')" for name in "SRP"}
    return f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) {data["S"]}
      TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 4 SECONDS {retain};
    CREATE RELATION R (ts BIGINT, op STRING, k INT, z BIGINT, PRIMARY KEY (k)) {data["R"]}
      TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
    CREATE RELATION P (k INT, name STRING) {data["P"]};
    CREATE QUERY kept INTO RESULTS () AS {ANSWERS["kept"]}; CREATE QUERY large INTO RESULTS () AS {ANSWERS["large"]};
    CREATE QUERY out INTO FILES (path '{tmp / "out"}', format 'parquet') AS {QUERIES["joined"]};"""


def write_inputs(tmp: Path) -> None:
    for name, rows in inputs().items():
        (tmp / name).mkdir()
        size = rows.num_rows // (1 if name == "P" else FILES)
        for i in range(0, rows.num_rows, size):
            pq.write_table(rows.slice(i, size), tmp / name / f"part-{i:04d}.parquet")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(retention, "_EVERY", 1)
    write_inputs(tmp_path)
    cold()
    return tmp_path


class Selecting:
    """One-time queries over a run. during: is called when the state has been fixed, before anything is read."""

    def __init__(
        self, run: InlineRun, text: str = "", during: Callable[[], object] = lambda: None, name: str = "reader"
    ) -> None:
        self.run = run
        self.name = name
        self.during = during
        self.catalog: Catalog = bind_script(text or script(run.checkpoint.parent), live=True).catalog
        self.contents = ResultContents(run.folder.results)

    def answer(self, text: str) -> LiveAnswer:
        query = bind_select(text, self.catalog, query_names=QueryNames.ANSWER).query
        names = {name.lower() for name in sources_of(query)}
        queries = {name: (name, self.catalog.queries[name]) for name in ANSWERS}
        with pinned_input(self.run, self.name, names) as known:
            state = state_of_run(self.run, known, queries, self.contents)
            static = {name: DeclaredRows(one) for name, one in self.catalog.sources.items() if one.is_static}
            state = replace(state, whole=static)
            self.during()
            return LiveReader(lambda: state).answer(query)

    def check(self, text: str, by_law: str = "") -> LiveAnswer:
        """Check an answer against the oracle, over all input at the instant of the answer."""
        found = self.answer(text)
        law = bind_select(by_law or text, self.catalog).query
        if found.answer.tick is not None:
            expected = run_oracle_once(replace(law, as_of=found.answer.tick), inputs())
            assert_same_rows(law, rows_of(found.answer.table), expected)
        return found


def heartbeat(run: InlineRun, *names: str) -> int:
    """The least heartbeat of sources, as the workers report it."""
    assert run.heartbeats is not None
    return min(run.heartbeats.sources.get(name, NOTHING) for name in names)


def test_the_answer_is_that_of_the_least_heartbeat(place: Path) -> None:
    run = InlineRun(script(place), place / "checkpoint")
    select = Selecting(run)
    assert select.answer(QUERIES["all"]).answer.tick is None
    full = set()
    for _ in range(2 * FILES - 1):
        run.go(1)
        for name, text in QUERIES.items():
            found = select.check(text)
            full |= {name} if found.answer.table.num_rows else set()
            reads = [source for source in ("S", "R") if re.search(rf"(FROM|,) {source}\b", text)]
            complete = heartbeat(run, *reads)
            assert found.answer.tick == (None if complete == NOTHING else complete), name
            assert found.batch == run.batch - 1 and found.staleness is not None and not found.since
        for text, by_law in OF_ANSWERS.items():
            full |= {text} if select.check(text, by_law).answer.table.num_rows else set()
    run.rounds.stop()
    assert full == {*QUERIES, *OF_ANSWERS}


def test_what_is_delivered_meanwhile_is_not_in_the_answer(place: Path) -> None:
    run = InlineRun(script(place, "RETAIN 14 SECONDS"), place / "checkpoint").go(6)
    before = heartbeat(run, "S")
    held = RetainedLog(run.folder, "S").files()
    select = Selecting(run, during=lambda: run.go(3))
    assert select.check(QUERIES["sums"]).answer.tick == before < heartbeat(run, "S")
    # What it read stayed, and goes when it has ended.
    assert storage().list(run.folder.root / "pins") == []
    run.go(3)
    assert not {file.name for file in held} & {file.name for file in RetainedLog(run.folder, "S").files()}
    run.rounds.stop()


def test_an_answer_is_not_before_what_a_subscriber_has_seen(place: Path) -> None:
    """The answers of a round are visible before the round counts as delivered."""
    run = InlineRun(script(place), place / "checkpoint").go(6)
    with pytest.raises(Crash):
        run.step("delivered")
    assert ResultFolder.at(run.folder.results).last == run.batch
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(Selecting(run).answer, "SELECT k, top FROM kept")
        assert not wait([answer], 0.3).done
        run.step()
        assert answer.result(60).batch == run.batch - 1
    run.rounds.stop()


def test_a_reader_holds_back_what_is_removed(place: Path) -> None:
    run = InlineRun(script(place, "RETAIN 14 SECONDS"), place / "checkpoint").go(9)
    held = {file.name for file in RetainedLog(run.folder, "S").files()}
    seen: list[set[str]] = []

    def meanwhile() -> None:
        run.go(4)
        seen.append({file.name for file in RetainedLog(run.folder, "S").files()})

    Selecting(run, during=meanwhile).check(QUERIES["sums"])
    assert held <= seen[0]
    run.rounds.stop()
    # A process that was killed leaves its pins; they go with the next start.
    run.folder.write_sealed(run.folder.root / "pins" / "select-1-00000000.json", '{"file": "S", "after": null}')
    again = InlineRun(script(place, "RETAIN 14 SECONDS"), place / "checkpoint")
    assert storage().list(run.folder.root / "pins") == []
    Selecting(again).check(QUERIES["sums"])
    again.rounds.stop()


def test_what_is_kept_is_said_and_what_is_not_is_refused(place: Path) -> None:
    run = InlineRun(script(place, "RETAIN 8 SECONDS (ts, k)"), place / "checkpoint").go(12)
    select = Selecting(run)
    found = select.answer("SELECT ts, k FROM S")
    (since,) = found.since.values()
    source = select.catalog.sources["s"]
    kept = [row for ts, row in timely_rows(source, inputs()["S"]) if since < ts <= (found.answer.tick or 0)]
    assert sorted(rows_of(found.answer.table)) == sorted((row[0], row[1]) for row in kept) and kept
    for text, message in [
        ("SELECT SUM(x) AS s FROM S [RANGE 2 SECONDS]", "column x of S is not retained"),
        ("SELECT k FROM S [RANGE 30 SECONDS]", "kept since .* 30 SECOND before .* are needed"),
        (f"SELECT k FROM S [RANGE 2 SECONDS] AS OF {since}", "is before that"),
        ("SELECT k FROM S AS OF 1000", "complete up to"),
    ]:
        with pytest.raises(PenstockError, match=message) as caught:
            select.answer(text)
        assert caught.value.code == "P0721" and caught.value.hint
    tick = found.answer.tick
    assert tick is not None
    assert select.check(f"SELECT k FROM S [RANGE 2 SECONDS] AS OF {tick - 3}").answer.tick == tick - 3
    run.rounds.stop()


def test_a_stream_that_is_not_retained_is_refused_with_what_helps(place: Path) -> None:
    run = InlineRun(script(place, ""), place / "checkpoint").go(3)
    with pytest.raises(PenstockError, match="no elements of S") as caught:
        Selecting(run).answer(QUERIES["sums"])
    assert caught.value.code == "P0721" and "ALTER STREAM S SET (retain" in str(caught.value.hint)
    run.rounds.stop()


def test_a_stream_is_retained_from_an_alteration_on(place: Path) -> None:
    run = InlineRun(script(place, ""), place / "checkpoint").go(5)
    read = dict(run.rounds._offset.high)["S"]
    run.change(script(place, "RETAIN 1 HOUR")).go(9)
    found = Selecting(run).check("SELECT k FROM S [RANGE 4 SECONDS]")
    assert found.answer.table.num_rows
    since = Selecting(run).answer("SELECT k FROM S").since["S"]
    assert read is not None and since >= read
    epoch = run.job.epoch
    assert run.change(script(place, "RETAIN 1 HOUR")).job.epoch == epoch
    run.run()
    cold()
    again = InlineRun(script(place, "RETAIN 1 HOUR"), place / "checkpoint")
    assert again.job.epoch == epoch
    again.rounds.stop()


def test_times_of_the_clock_are_those_of_the_run(place: Path) -> None:
    """Over a stream of SYSTEM TIME a SELECT gives what the same query has answered in the run."""
    text = f"""SET max_batch_bytes = 1; SET shards = 1;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{place / "S"}', format 'parquet', watch 'true')
      SYSTEM TIME RETAIN 1 HOUR;
    CREATE QUERY kept INTO RESULTS () AS SELECT k, COUNT(*) AS n FROM S GROUP BY k;
    CREATE QUERY large INTO RESULTS () AS SELECT ISTREAM(k) FROM S [NOW];"""
    run = InlineRun(text, place / "checkpoint")
    select = Selecting(run, text)
    full = 0
    for _ in range(FILES):
        run.go(1)
        answered, found = select.answer("SELECT k, n FROM kept"), select.answer("SELECT k, COUNT(*) FROM S GROUP BY k")
        full += found.answer.table.num_rows
        assert found.answer.tick == answered.answer.tick
        assert sorted(rows_of(found.answer.table)) == sorted(rows_of(answered.answer.table))
    run.rounds.stop()
    assert full


def posted_run(place: Path, source: Source) -> InlineRun:
    """A run that nothing but a posted source is declared to."""
    return InlineRun("SET shards = 1", place / "checkpoint", live=True, standing=True, declared={source.name: source})


def test_rows_posted_to_a_relation_of_the_clock_are_selected_without_a_query_over_it(place: Path) -> None:
    text = "CREATE RELATION N (k INT, note STRING) FROM MEMORY () SYSTEM TIME;"
    catalog = bind_script(text, live=True).catalog
    posted = PostedRows(place / "kept", 100.0)
    source = posted.source(catalog.sources["n"], 7)
    run = posted_run(place, source)
    posted.post(catalog.sources["n"], 7, pa.table({"k": pa.array([1, 2], pa.int32()), "note": ["a", None]}))
    query = bind_select("SELECT k, note FROM N", catalog).query
    contents, found = ResultContents(run.folder.results), 0
    end = time.monotonic() + 20
    while found < 2:
        assert time.monotonic() < end
        if run.pending():
            run.step()
        with pinned_input(run, "reader", {"n"}) as known:
            state = state_of_run(run, known, {}, contents)
            rows = LiveReader(lambda state=state: state).answer(query).answer.table  # type: ignore[misc]
        found = rows.num_rows
    assert sorted(rows_of(rows), key=str) == [(1, "a"), (2, None)]
    # Once its rows are final no more rounds are run for it.
    rounds = run.folder.delivered().round
    time.sleep(1.2)
    assert not run.pending() and run.folder.delivered().round == rounds
    run.rounds.stop()


def test_at_the_end_the_answer_is_that_of_the_last_element(place: Path) -> None:
    run = InlineRun(script(place), place / "checkpoint").run()
    for text in QUERIES.values():
        found = Selecting(run).check(text)
        source = bind_script(script(place), live=True).catalog.sources["s"]
        last = max(ts for ts, _ in timely_rows(source, inputs()["S"]))
        assert found.answer.tick == last or not re.search(r"(FROM|,) S\b", text)
    assert run.heartbeats is not None and run.heartbeats.ended


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    place = tmp_path_factory.mktemp("undisturbed")
    write_inputs(place)
    cold()
    InlineRun(script(place), place / "checkpoint").run()
    return out(place)


def out(place: Path) -> list[object]:
    query = bind_script(script(place), live=True).catalog.queries["out"]
    return list(events_of(query, read_result(str(place / "out"))))


ACTIONS = st.lists(
    st.one_of(
        st.just("round"), st.just("restart"), st.sampled_from(sorted(QUERIES)), st.sampled_from(sorted(OF_ANSWERS))
    ),
    max_size=24,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    yield lambda: tmp_path_factory.mktemp("run")


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, retain=st.sampled_from(["RETAIN 1 HOUR", "RETAIN 25 SECONDS"]))
def test_any_interleaving_answers_by_the_law(
    actions: list[str],
    retain: str,
    folders: Callable[[], Path],
    undisturbed: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A SELECT is the oracle's answer at its instant, which never goes back, over rounds between and within SELECTs and
    restarts; the run writes the same result as one that nobody has read."""
    monkeypatch.setattr(retention, "_EVERY", 1)
    place = folders()
    write_inputs(place)
    cold()
    run = InlineRun(script(place, retain), place / "checkpoint")
    last: dict[str, int] = {}
    for number, action in enumerate(actions):
        if action == "round":
            run.go(1)
        elif action == "restart":
            run.rounds.stop()
            cold()
            run = InlineRun(script(place, retain), place / "checkpoint")
        else:
            select = Selecting(run, during=(lambda run=run: run.go(1)) if number % 2 else lambda: None)
            text = QUERIES.get(action, action)
            if retain != "RETAIN 1 HOUR" and action in ("last", "all"):
                continue
            found = select.check(text, OF_ANSWERS.get(action, ""))
            if found.answer.tick is not None:
                assert found.answer.tick >= last.get(action, found.answer.tick)
                last[action] = found.answer.tick
    run.run()
    assert out(place) == undisturbed


@pytest.mark.slow
def test_a_thousand_selects_beside_a_run_change_nothing(place: Path, undisturbed: list[object]) -> None:
    """Two threads select while the rounds go on; instants do not go back, and the run writes what it always does."""
    run = InlineRun(script(place, "RETAIN 25 SECONDS"), place / "checkpoint")
    done = threading.Event()

    def select(number: int) -> int:
        reader, last, count = Selecting(run, name=f"reader{number}"), NOTHING, 0
        while not done.is_set() or count < 500:
            tick = reader.answer(QUERIES["sums"]).answer.tick
            assert tick is None or tick >= last
            last, count = tick or last, count + 1
        return count

    with ThreadPoolExecutor(2) as pool:
        selecting = [pool.submit(select, number) for number in range(2)]
        while run.pending() or not run.ended:
            if run.pending():
                run.step()
            time.sleep(0.2)
        done.set()
        assert sum(one.result() for one in selecting) >= 1000
    run.rounds.stop()
    assert out(place) == undisturbed
