"""A relation always begins with its content: what queries answer over updated relations that begin NOW in a running
job, at any round, wherever the run dies."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, InlineRun, cold, declared

from penstock.algebra.nodes.query import Start, StartMode
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.language import bind_script
from penstock.runtime.spark.live_change import hydrate
from penstock.testing.compare import events_of
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.values import event_order

FILES, ROWS = 8, 6
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
        {"ts": pa.array(ts, pa.int64()), "op": signs, "k": pa.array(keys, pa.int32()),
         "v": pa.array(values, pa.int64())}
    )  # fmt: skip


def names(draw: random.Random) -> pa.Table:
    """A row for each key, replaced now and then, in order of time."""
    ts = sorted(draw.randint(0, 25) for _ in range(FILES * ROWS))
    return pa.table(
        {"ts": pa.array(ts, pa.int64()), "k": pa.array([draw.randint(0, 3) for _ in ts], pa.int32()),
         "name": [draw.choice("abc") for _ in ts]}
    )  # fmt: skip


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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("os.fsync", lambda handle: None)
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


def check(tmp: Path, name: str, start: Start, begun: Mapping[str, int]) -> int:
    """Check the result of a query that began when so many rows had been read; return the number of its events."""
    query = bind_script(script(tmp, name)).queries[0]
    expected = run_live([Episode(query, start, begun)], inputs())
    sources = bind_script(script(tmp, name)).catalog.sources.values()
    timely = {source.name: timely_rows(source, inputs()[source.name]) for source in sources}
    of_query = {source.name: source for source in sources if source.name in QUERIES[name].replace("S.", "S ")}
    final = heartbeat(of_query, timely)
    found = [event for event in events_of(query, read_result(str(tmp / "out" / name))) if event[0] <= final]
    assert sorted(found, key=event_order) == [event for event in expected if event[0] <= final], name
    return len(expected)


@pytest.mark.parametrize("rounds", [1, 5, 9, 14, 19])
def test_queries_that_begin_now_have_the_content_of_relations(place: Path, rounds: int) -> None:
    sources = declared(script(place))
    run = InlineRun(script(place), place / "checkpoint", declared=sources, standing=True).go(rounds)
    run.change(script(place, *QUERIES))
    begun = read(run)
    run.run()
    assert sum(begun.values()) >= rounds * ROWS
    counts = {name: check(place, name, NOW, begun) for name in QUERIES}
    assert sum(counts.values()) > 20, counts
