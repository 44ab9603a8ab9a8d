"""Queries that begin in a running job on Spark: with the content of a posted relation, and with full windows over a
topic and files of another lag."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_kit import send, topic

from penstock.algebra.nodes.query import Start, StartMode
from penstock.connectors.sinks.files import read_result
from penstock.control.live.control import Control
from penstock.engines.spark import SparkEngine
from penstock.language.scripts import bind_script
from penstock.session import Session
from penstock.testing.compare import events_of
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.oracle import timely_rows
from penstock.testing.scalars.values import event_order


def until(what: Callable[[], bool], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def content(path: Path) -> Counter[tuple[Any, ...]]:
    """What the changes of a result add up to."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in read_result(str(path)).to_pylist() if path.exists() else []:
        found[tuple(row.values())[2:]] += 1 if row["op"] == "+" else -1
    return +found


@pytest.mark.spark
def test_a_query_begins_with_the_content_of_a_posted_relation(spark: Any, tmp_path: Path) -> None:
    """Of one that nobody has read, of one that queries read, and after a restart."""
    checkpoint = tmp_path / "checkpoint"

    def created(name: str) -> str:
        into = f"INTO FILES (path '{tmp_path / name}', format 'json')"
        return f"CREATE QUERY {name} {into} AS SELECT k, v FROM R;"

    def posts(first: int, last: int) -> pa.Table:
        return updates("+", range(first, last))

    def updates(sign: str, keys: Sequence[int], tick: int | None = None) -> pa.Table:
        ticks = pa.array(keys if tick is None else [tick] * len(keys), pa.int64())
        values = pa.array([key % 7 for key in keys], pa.int32())
        return pa.table({"ts": ticks, "op": [sign] * len(keys), "k": pa.array(keys, pa.int32()), "v": values})

    engine = SparkEngine(checkpoint, lambda: spark)
    control = Control(checkpoint, engine, {"shards": "2"})
    control.submit(
        "CREATE RELATION R (ts BIGINT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () "
        "TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"
    )
    control.insert("R", posts(0, 5000))
    control.insert("R", updates("-", (1, 2, 3), tick=5000))
    until(lambda: engine.run is not None and engine.run.progress().rows_in >= 5003)
    expected = Counter((number, number % 7) for number in range(5000) if number not in (1, 2, 3))
    control.submit(created("one"))
    control.insert("R", posts(5001, 5003))
    expected[5001, 5001 % 7] += 1
    until(lambda: content(tmp_path / "one") == expected)
    control.submit(created("two"))
    until(lambda: content(tmp_path / "two") == expected)
    control.close()
    engine.close()

    engine = SparkEngine(checkpoint, lambda: spark)
    control = Control(checkpoint, engine, {"shards": "2"})
    control.submit(created("three"))
    control.insert("R", posts(5003, 5005))
    expected[5002, 5002 % 7] += 1
    expected[5003, 5003 % 7] += 1
    for name in ("one", "two", "three"):
        until(lambda name=name: content(tmp_path / name) == expected)  # type: ignore[misc]
    control.close()
    engine.close()


@pytest.mark.spark
def test_a_join_of_a_topic_and_files_of_another_lag_begins_warm(spark: Any, broker: Any, tmp_path: Path) -> None:
    name = topic(broker)
    orders = [{"ts": 10 + i // 2, "k": i % 3, "x": i} for i in range(60)]
    prices = [{"ts": i // 3, "k": i % 3, "y": i * 7 % 11} for i in range(60)]

    def post(number: int, some: Sequence[dict[str, int]]) -> None:
        (tmp_path / "prices").mkdir(exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / "prices" / f"{number}.json").write_text(text)

    text = f"""SET shards = 2;
    CREATE STREAM S (ts BIGINT, k BIGINT, x BIGINT)
      FROM KAFKA (bootstrap '{broker.bootstrap}', topic '{name}', format 'json') TIMESTAMP BY ts UNIT SECOND
      ORDER WITHIN 2 SECONDS;
    CREATE STREAM T (ts BIGINT, k BIGINT, y BIGINT)
      FROM FILES (path '{tmp_path / "prices"}', format 'json', watch 'true') TIMESTAMP BY ts UNIT SECOND;"""
    first = "CREATE QUERY n INTO MEMORY () AS SELECT ISTREAM(COUNT(*) AS n) FROM S [NOW], T [NOW];"
    queries = {
        "joined": "SELECT S.k, x, y FROM S [RANGE 8 SECONDS], T [RANGE 5 SECONDS] WHERE S.k = T.k AND x < 3 * y",
        "latest": "SELECT k, SUM(x) AS s FROM S [RANGE 6 SECONDS] GROUP BY k",
    }
    added = "".join(
        f"CREATE QUERY {query} INTO FILES (path '{tmp_path / query}', format 'parquet') AS {select};"
        for query, select in queries.items()
    )
    send(broker, name, [{"value": json.dumps(row)} for row in orders[:40]])
    post(1, prices[:45])
    session = Session(spark)
    session.execute(text + first, live=True)
    run = session.start(checkpoint=str(tmp_path / "checkpoint"), live=True)
    until(lambda: run.progress().rows_in >= 85)
    run.change(added, start="WARM")
    send(broker, name, [{"value": json.dumps(row)} for row in orders[40:]])
    post(2, prices[45:])
    until(lambda: run.progress().rows_in >= 120)
    whole = {
        "S": pa.table({key: pa.array([row[key] for row in orders], pa.int64()) for key in ("ts", "k", "x")}),
        "T": pa.table({key: pa.array([row[key] for row in prices], pa.int64()) for key in ("ts", "k", "y")}),
    }
    bound = bind_script(text + added, live=True)
    sources = {source.name: source for source in bound.catalog.sources.values()}
    finals = {n: heartbeat({n: source}, {n: timely_rows(source, whole[n])}) for n, source in sources.items()}
    final = {"joined": min(finals.values()), "latest": finals["S"]}
    until(lambda: all(run._job.version().queries.get(query, 0) >= tick for query, tick in final.items()))
    run.stop()
    for query in bound.queries:
        begun = Episode(query, Start(StartMode.WARM), {"S": 40, "T": 45})
        expected = [event for event in run_live([begun], whole) if event[0] <= final[query.name]]
        table = read_result(str(tmp_path / query.name))
        found = [event for event in events_of(query, table) if event[0] <= final[query.name]]
        assert len(expected) > 10 and sorted(found, key=event_order) == expected, query.name
