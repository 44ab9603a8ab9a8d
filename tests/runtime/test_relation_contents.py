"""A relation always begins with its content: what queries answer over updated relations that begin NOW in a running
job, at any round, wherever the run dies."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, Crash, InlineRun, cold, declared, read_beside

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.progress import timed_sources
from penstock.runtime.live.starts import starts_text
from penstock.runtime.spark.checkpoint.epochs import read_epoch
from penstock.runtime.spark.hydration.past_input import past_of_run
from penstock.runtime.spark.hydration.start_options import start_options
from penstock.runtime.spark.live_change import begin_change, hydrate
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.compare import events_of
from penstock.testing.faults import LOSSES, PowerCut, PowerLost
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import event_order

FILES, ROWS = 6, 8
NOW, WARM, BEGINNING = Start(), Start(StartMode.WARM), Start(StartMode.BEGINNING)
QUERIES = {
    "content": "SELECT k, v FROM U",
    "count": "SELECT COUNT(*) AS n, SUM(v) AS s FROM U",
    "pairs": "SELECT ISTREAM(S.k, x, v) FROM S [NOW], U WHERE S.k = U.k",
    "window": "SELECT x, v FROM S [RANGE 9 SECONDS], U WHERE S.k = U.k",
    "new": "SELECT ISTREAM(k, v) FROM U",
    "lately": "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(k, v) FROM U) [RANGE 5 SECONDS] AS i",
    "keyed": "SELECT K.name, COUNT(*) AS n FROM S [RANGE 9 SECONDS], K WHERE S.k = K.k GROUP BY K.name",
    "both": "SELECT U.v, K.name FROM U, K WHERE U.k = K.k",
}


def stream(draw: random.Random) -> pa.Table:
    ts = [max(0, i // 2 + draw.randint(-2, 2) - (15 if draw.random() < 0.05 else 0)) for i in range(FILES * ROWS)]
    keys, values = [draw.randint(0, 3) for _ in ts], [draw.randint(0, 9) for _ in ts]
    return pa.table(
        {"ts": pa.array(ts, pa.int64()), "k": pa.array(keys, pa.int32()), "x": pa.array(values, pa.int64())}
    )


def updates(draw: random.Random) -> pa.Table:
    """Insertions and deletions, of which some delete nothing, and now and then a late one."""
    ts = [max(0, i // 2 - (3 if draw.random() < 0.05 else 0)) for i in range(FILES * ROWS)]
    signs = ["-" if draw.random() < 0.4 else "+" for _ in ts]
    keys, values = [draw.randint(0, 3) for _ in ts], [draw.randint(0, 2) for _ in ts]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "op": signs,
            "k": pa.array(keys, pa.int32()),
            "v": pa.array(values, pa.int64()),
        }
    )


def names(draw: random.Random) -> pa.Table:
    """A row for each key, replaced now and then, in order of time."""
    ts = sorted(draw.randint(0, 25) for _ in range(FILES * ROWS))
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([draw.randint(0, 3) for _ in ts], pa.int32()),
            "name": [draw.choice("abc") for _ in ts],
        }
    )


def inputs() -> dict[str, pa.Table]:
    draw = random.Random(11)
    return {"S": stream(draw), "U": updates(draw), "K": names(draw)}


def script(tmp: Path, *chosen: str, more: str = "", out: str = "out") -> str:
    text = f"""SET max_batch_bytes = 1; SET shards = 2; {more}
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "S"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 3 SECONDS;
    CREATE RELATION U (ts BIGINT, op STRING, k INT, v BIGINT) FROM FILES (path '{tmp / "U"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
    CREATE RELATION K (ts BIGINT, k INT, name STRING, PRIMARY KEY (k))
      FROM FILES (path '{tmp / "K"}', format 'parquet') TIMESTAMP BY ts UNIT SECOND;"""
    for name in chosen:
        into = f"INTO FILES (path '{tmp / out / name}', format 'parquet')"
        text += f"\nCREATE QUERY {name} {into} AS {QUERIES[name]};"
    return text


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, whole in inputs().items():
        write_parts(tmp_path / name, whole, ROWS)
    cold()
    return tmp_path


def write_parts(folder: Path, whole: pa.Table, rows: int) -> None:
    folder.mkdir()
    for number in range(-(-whole.num_rows // rows)):
        pq.write_table(whole.slice(number * rows, rows), folder / f"part-{number:04d}.parquet")


def read(run: InlineRun) -> dict[str, int]:
    """The rows of each source that had been read when the latest change was made."""
    offset = run.rounds._offset
    before = offset if offset.round == run.folder.delivered().round else offset.before
    assert before is not None
    return {name: before.splits_done(name) * ROWS for name in ("S", "U", "K")}


def standing(tmp: Path, text: str, **options: Any) -> InlineRun:
    """A run over all sources, whether or not a query reads them."""
    return InlineRun(text, tmp / "checkpoint", declared=declared(script(tmp)), standing=True, **options)


def check(tmp: Path, name: str, start: Start, begun: Mapping[str, int]) -> int:
    """Check the result of a query that began when so many rows had been read; return the number of its events."""
    return check_query(tmp, bind_script(script(tmp, name)).queries[0], start, begun, inputs())


def check_query(tmp: Path, query: Query, start: Start, begun: Mapping[str, int], whole: Mapping[str, pa.Table]) -> int:
    sources = timed_sources(query.root)
    final = heartbeat(sources, {name: timely_rows(source, whole[name]) for name, source in sources.items()})
    expected = [e for e in run_live([Episode(query, start, begun)], whole) if e[0] <= final]
    found = [e for e in events_of(query, read_result(str(tmp / "out" / query.name))) if e[0] <= final]
    assert sorted(found, key=event_order) == expected, query.name
    return len(expected)


@pytest.mark.parametrize("rounds", [1, 11])
def test_queries_that_begin_now_have_the_content_of_relations(place: Path, rounds: int) -> None:
    run = standing(place, script(place)).go(rounds)
    run.change(script(place, *QUERIES))
    begun = read(run)
    run.run()
    assert sum(begun.values()) >= rounds * ROWS
    counts = {name: check(place, name, NOW, begun) for name in QUERIES}
    assert sum(counts.values()) > 20, counts


KINDS = {
    "non retroactive": ("CREATE NON RETROACTIVE RELATION", ", PRIMARY KEY (k)", "OPERATION BY op", ("pairs",)),
    "keyed": ("CREATE RELATION", ", PRIMARY KEY (k)", "OPERATION BY op", ("content", "pairs")),
    "growing": ("CREATE RELATION", "", "", ("content", "window")),
    "replacing": ("CREATE RELATION", ", PRIMARY KEY (k)", "", ("content", "pairs")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_relation_begins_with_its_content(place: Path, kind: str) -> None:
    head, key, operation, names = KINDS[kind]

    def over(*chosen: str) -> str:
        text = script(place, *chosen)
        former = text[text.index("CREATE RELATION U") : text.index("CREATE RELATION K")]
        files = f"FILES (path '{place / 'U'}', format 'parquet')"
        columns = f"ts BIGINT, op STRING, k INT, v BIGINT{key}"
        return text.replace(former, f"{head} U ({columns}) FROM {files} TIMESTAMP BY ts UNIT SECOND {operation};\n")

    run = InlineRun(over(), place / "checkpoint", declared=declared(over()), standing=True).go(10)
    run.change(over(*names))
    begun = read(run)
    run.run()
    for query in bind_script(over(*names)).queries:
        check_query(place, query, NOW, begun, inputs())


@pytest.mark.parametrize("crash", ["change", CRASHES[0], CRASHES[-1]])
def test_a_crash_repeats_what_was_not_delivered(place: Path, crash: str) -> None:
    names = ["content", "pairs", "keyed"]
    run = standing(place, script(place)).go(8)
    run.change(script(place, *names), crash=crash == "change")
    begun = read(run)
    if crash != "change":
        run.run(0, crash)
    cold()
    again = standing(place, script(place, *names))
    assert again.decision.kind.value == "same"
    again.run()
    for name in names:
        check(place, name, NOW, begun)


def test_power_that_goes_while_a_query_begins(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At calls all over the change: a start with either script goes on, and the query begins where it should."""
    checkpoint, whole, spare = place / "checkpoint", place / "whole", place / "spare"
    text = script(place, "content", "pairs")
    standing(place, script(place)).go(9).rounds.stop()
    checkpoint.rename(whole)
    begun: dict[str, int] = {}

    def attempt(number: int) -> int:
        """Let power go at call `number`, 0 for none; return the number of calls."""
        for folder in (checkpoint, spare, place / "out"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, checkpoint)
        spare.mkdir()
        cold()
        calls = PowerCut(spare, number)

        def cut(*arguments: Any) -> Any:
            with replaced_storage(LocalStorage(calls)):
                try:
                    return begin_change(*arguments)
                except PowerLost:
                    # A process that is gone plans nothing more.
                    run.rounds._pending_changes += 1
                    raise Crash from None

        run = standing(place, script(place))
        monkeypatch.setattr("inline_run.begin_change", cut)
        run.change(text)
        if number:
            calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [checkpoint, place / "out"])
        run.rounds.stop()
        if not number:
            begun.update(read(run))
        return calls.count

    count = attempt(0)
    assert count > 100
    for number in range(9, count, count // 3):
        attempt(number)
        cold()
        again = standing(place, text, overwrite=True).run()
        for name in ("content", "pairs"):
            check(place, name, NOW, begun)
        assert again.job.base == 10, number


def test_contents_are_read_beside_the_rounds(place: Path) -> None:
    """What the run reads of a relation meanwhile is read too."""
    names = ["content", "window", "both"]
    run = standing(place, script(place)).go(5)
    ahead = hydrate(run.folder, run, run.work_of(script(place, *names)))
    read_ahead = read_beside(run, ahead, 9)
    run.change(script(place, *names), ahead=ahead)
    assert read_ahead.epoch == run.job.epoch
    begun = read(run)
    run.run()
    for name in names:
        check(place, name, NOW, begun)


def test_queries_without_a_relation_read_nothing_ahead(place: Path) -> None:
    QUERIES["streams"] = "SELECT SUM(x) AS s FROM S [RANGE 5 SECONDS]"
    run = standing(place, script(place, "content")).go(3)
    assert hydrate(run.folder, run, run.work_of(script(place, "content", "streams"))) is None
    run.change(script(place, "content", "streams"))
    assert not run.epoch.backfill
    run.rounds.stop()


def test_queries_with_different_pasts_share_nothing(place: Path) -> None:
    """One begins NOW, one WARM, and two at different instants, all over the same window and relation."""
    first = {"now": "window", "warm": "window", "alone": "content", "of_both": "both", "whole": "window"}
    starts = {"warm": WARM, "whole": BEGINNING}
    text = script(place)
    for name, query in first.items():
        text += f"CREATE QUERY {name} INTO FILES (path '{place / 'out' / name}', format 'parquet') AS {QUERIES[query]};"
    run = standing(place, script(place)).go(9)
    run.change(text, starts=starts)
    begun = read(run)
    run.run()
    for name, query in first.items():
        (place / "out" / name).rename(place / "out" / query)
        check(place, query, starts.get(name, NOW), begun)
        (place / "out" / query).rename(place / "out" / name)


def test_a_window_that_begins_now_is_empty_beside_one_that_begins_warm(place: Path) -> None:
    text = script(place)
    for name in ("now", "warm"):
        into = f"INTO FILES (path '{place / 'out' / name}', format 'parquet')"
        text += f"CREATE QUERY {name} {into} AS SELECT COUNT(*) AS n FROM S [RANGE 60 SECONDS];"
    run = standing(place, script(place)).go(9)
    run.change(text, starts={"warm": WARM}).run()
    first = {name: read_result(str(place / "out" / name)).to_pylist()[0]["n"] for name in ("now", "warm")}
    assert first["now"] < 8 < first["warm"]


def test_a_relation_of_many_rows(tmp_path: Path) -> None:
    """From 15,000 updates, of which some delete a row, and some are rejected since their key is there."""
    draw = random.Random(3)
    present: dict[int, int] = {}
    rows: list[tuple[int, str, int, int]] = []
    for tick in range(15_000):
        key, value = draw.randrange(6_000), draw.randrange(100)
        sign = "-" if key in present and (draw.random() < 0.1) else "+"
        rows.append((tick, sign, key, value))
        if sign == "+":
            present.setdefault(key, value)
        else:
            del present[key]
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {"ts": pa.array(columns[0], pa.int64()), "op": columns[1], "k": pa.array(columns[2], pa.int32()),
         "v": pa.array(columns[3], pa.int32())}
    )  # fmt: skip
    write_parts(tmp_path / "R", table, 2_000)
    text = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE RELATION R (ts BIGINT, op STRING, k INT, v INT, PRIMARY KEY (k))
      FROM FILES (path '{tmp_path / "R"}', format 'parquet') TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"""
    query = f"CREATE QUERY q INTO FILES (path '{tmp_path / 'q'}', format 'parquet') AS SELECT k, v FROM R;"
    run = InlineRun(text, tmp_path / "checkpoint", declared=declared(text), standing=True).go(7)
    run.change(text + query)
    begun = read_result(str(tmp_path / "q"))
    run.run()
    whole = read_result(str(tmp_path / "q")).to_pylist()
    assert begun.num_rows > 4_500 and set(begun.column("op").to_pylist()) == {"+"}
    content: dict[int, int] = {}
    for row in sorted(whole, key=lambda row: (row["ts"], row["op"] == "+")):
        if row["op"] == "+":
            content[row["k"]] = row["v"]
        else:
            assert content.pop(row["k"]) == row["v"]
    # The last instant may still be followed by others of the same tick.
    last = rows[-1][2]
    assert {k: v for k, v in content.items() if k != last} == {k: v for k, v in present.items() if k != last}


def test_a_relation_that_cannot_be_read_again_is_refused(place: Path) -> None:
    """Nothing changes, and EXPLAIN START says so before."""
    clocked = """SET shards = 2; CREATE RELATION U (op STRING, k INT) FROM MEMORY () SYSTEM TIME OPERATION BY op;
    INSERT INTO U VALUES ('+', 1), ('+', 2), ('-', 1);"""
    query = f"CREATE QUERY q INTO FILES (path '{place}/q', format 'parquet') AS SELECT k FROM U;"
    run = InlineRun(clocked, place / "checkpoint", declared=declared(clocked), standing=True, live=False).go(1)
    (bound,) = bind_script(clocked + query).queries

    def first_option() -> str:
        return starts_text(start_options(bound, past_of_run(run.folder, read_epoch(run.folder, run.job.epoch))))[:50]

    # What rounds read is recorded where it is a relation, also in a run that is not live.
    assert first_option().startswith("NOW: yes; U: its content, from its updates")
    shutil.rmtree(run.folder.root / "history")
    assert first_option().startswith("NOW: no; the updates of U cannot be read again")
    with pytest.raises(PenstockError) as refused:
        run.change(clocked + query)
    assert refused.value.code == "P0703" and "the content of U" in refused.value.message and refused.value.hint
    assert run.job.epoch == 0
    run.rounds.stop()


def test_time_begins_at_the_start_where_everything_was_deleted(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([1, 2, 3, 9], pa.int64()), "op": ["+", "-", "-", "-"], "k": [5, 5, 6, 6]})
    write_parts(tmp_path / "R", table, 1)
    text = f"""SET max_batch_bytes = 1; CREATE RELATION R (ts BIGINT, op STRING, k BIGINT)
      FROM FILES (path '{tmp_path / "R"}', format 'parquet') TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"""
    query = f"CREATE QUERY q INTO FILES (path '{tmp_path / 'q'}', format 'parquet') AS SELECT COUNT(*) AS n FROM R;"
    run = InlineRun(text, tmp_path / "checkpoint", declared=declared(text), standing=True).go(2)
    run.change(text + query).run()
    assert [tuple(row.values()) for row in read_result(str(tmp_path / "q")).to_pylist()] == [(2, "+", 0)]


# -- streams and relations that begin WARM, of different lags --------------------------------------------------------


SECOND = "SELECT S.x, T.y FROM S [RANGE 9 SECONDS], T [RANGE 4 SECONDS] WHERE S.k = T.k"


def behind(draw: random.Random) -> pa.Table:
    """A stream that is further behind the others from file to file."""
    ts = [i // 3 for i in range(FILES * ROWS)]
    columns = {"ts": pa.array(ts, pa.int64()), "k": pa.array([draw.randint(0, 3) for _ in ts], pa.int32())}
    return pa.table({**columns, "y": pa.array([draw.randint(0, 9) for _ in ts], pa.int64())})


@pytest.mark.parametrize(("start", "retained"), [(WARM, "T"), (Start(StartMode.AT, 9), "S")])
def test_streams_of_different_lags_begin_warm(place: Path, start: Start, retained: str) -> None:
    """Each is read from where it matters, from what it retains or from its files."""
    whole = inputs() | {"T": behind(random.Random(4))}
    write_parts(place / "T", whole["T"], ROWS)
    text = script(place) + (
        f"CREATE STREAM T (ts BIGINT, k INT, y BIGINT) FROM FILES (path '{place / 'T'}', format 'parquet') "
        "TIMESTAMP BY ts UNIT SECOND;"
    )
    if retained:
        head, _, tail = text.partition(f"CREATE STREAM {retained}")
        end = tail.index(";")
        text = f"{head}CREATE STREAM {retained}{tail[:end]} RETAIN 1 MINUTE{tail[end:]}"
    queries = {"joined": SECOND, "keyed": QUERIES["keyed"], "window": QUERIES["window"]}
    for name, query in queries.items():
        text += f"CREATE QUERY {name} INTO FILES (path '{place / 'out' / name}', format 'parquet') AS {query};"
    first = text[: text.index("CREATE QUERY")]
    run = InlineRun(first, place / "checkpoint", declared=declared(first), standing=True).go(14)
    before = run.rounds._offset.before
    assert before is not None
    if retained:
        for number in range(before.splits_done(retained)):
            (place / retained / f"part-{number:04d}.parquet").unlink()
    run.change(text, starts=dict.fromkeys(queries, start))
    offset = run.rounds._offset.before
    assert offset is not None
    begun = {name: offset.splits_done(name) * ROWS for name in whole}
    assert 0 < begun["T"] < FILES * ROWS
    run.run()
    for query in bind_script(text, live=True).queries:
        assert check_query(place, query, start, begun, whole) > 3
