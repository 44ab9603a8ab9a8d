"""What the answers of a soak must be, worked out in one go by DuckDB over the records; and what is wrong with others.

Contract: results are compared as bags, every query whole. `accounted` says in which place each record came to be.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.soak.records import GOOD, LATE, MALFORMED, Records, number_of
from benchmarks.soak.script import IN_FILES
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks.files import read_result

#: A range of r seconds that slides by s seconds, over the good records: each at every boundary at which it is in.
_WINDOW = """
  (SELECT g.*, b AS ts FROM good g, range(0, {range}, {slide}) AS later(step),
   LATERAL (SELECT (t + {slide} - 1) // {slide} * {slide} + step AS b))
"""
_SUMS = "SELECT ts, k, COUNT(*) AS c, CAST(SUM(x) AS BIGINT) AS total{more} FROM {window} GROUP BY ts, k"

EXPECTED = {
    "passed": "SELECT t AS ts, n, k, x FROM good",
    "sums": _SUMS.format(more=", MAX(x) AS top", window=_WINDOW.format(range=30_000, slide=5_000)),
    "pairs": """
      SELECT a.t AS ts, a.n AS n, b.n AS m FROM good a, good b, range(0, 2) AS earlier(step)
      WHERE a.u = b.u AND b.t // 10000 = a.t // 10000 - step AND b.t <= a.t AND a.t < b.t + 10000 AND a.n <> b.n
    """,
    "users": f"SELECT DISTINCT ts, u FROM {_WINDOW.format(range=10_000, slide=5_000)} WHERE x >= 900",
    "totals": _SUMS.format(more="", window=_WINDOW.format(range=10_000, slide=10_000)),
}


def expected(records: Records) -> dict[str, pa.Table]:
    """Query -> its whole answer."""
    chosen = records.kind == GOOD
    keys = pa.array([f"k{key}" for key in range(int(records.key.max()) + 1)])
    good = pa.table(
        {
            "n": records.number[chosen],
            "k": keys.take(pa.array(records.key[chosen])),
            "u": records.user[chosen],
            "x": records.x[chosen],
            "t": records.at[chosen],
        }
    )
    database = duckdb.connect()
    database.register("good", good)
    return {name: database.sql(text).to_arrow_table() for name, text in EXPECTED.items()}


def found(out: Path, messages: list[Any]) -> dict[str, pa.Table]:
    """What the run has written. messages: the committed ones of the topic of `totals`."""
    tables = {name: read_result(str(out / name)) for name in IN_FILES}
    rows = [json.loads(message.value()) for message in messages]
    types = {"ts": pa.int64(), "k": pa.string(), "c": pa.int64(), "total": pa.int64()}
    return {**tables, "totals": pa.table({n: pa.array([r[n] for r in rows], t) for n, t in types.items()})}


def committed(bootstrap: str, topic: str) -> list[Any]:
    """All messages of a topic that a reader of committed records sees."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": bootstrap, "group.id": "soak", "enable.partition.eof": True, "log_level": "0"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    messages: list[Any] = []
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, f"topic {topic} does not answer"
        if message.error() is None:
            messages.append(message)
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
    consumer.close()
    return messages


def differences(right: dict[str, pa.Table], told: dict[str, pa.Table]) -> Iterator[str]:
    """In words, a line a query that is not as it should be."""
    for name, table in right.items():
        columns = table.column_names
        answer = told[name].select(columns)
        database = duckdb.connect()
        database.register("right_", table)
        database.register("told", answer)
        missing, extra = (
            database.sql(f"SELECT * FROM {a} EXCEPT ALL SELECT * FROM {b}").to_arrow_table()
            for a, b in (("right_", "told"), ("told", "right_"))
        )
        if missing.num_rows or extra.num_rows:
            shown = [f"{what} {t.slice(0, 1).to_pylist()[0]}" for what, t in (("no", missing), ("a", extra)) if len(t)]
            yield (
                f"query {name}: {missing.num_rows} rows of {table.num_rows} are missing, "
                f"{extra.num_rows} are too many: {'; '.join(shown)}"
            )


def accounted(records: Records, passed: pa.Table, letters: Path) -> Iterator[str]:
    """In words, which records are not in exactly the one place where they belong: in a result, or a dead letter that
    says why. The records behind the last counted one only let time go on."""
    places = {GOOD: "a result", LATE: "the late ones", MALFORMED: "the malformed ones"}
    came: dict[int, Counter[int]] = {kind: Counter() for kind in places}
    came[GOOD] = Counter(passed["n"].to_pylist())
    for letter in DeadLetters(str(letters)).read("s"):
        try:
            number = number_of(letter.record)
        except ValueError:
            yield f"a dead letter of no record: {letter.record[:100]}"
            continue
        came[LATE if letter.reason.startswith("late ") else MALFORMED][number] += 1
    for kind, place in places.items():
        right = set(records.number[records.kind == kind].tolist())
        lost, strange = right - came[kind].keys(), came[kind].keys() - right
        twice = [n for n, times in came[kind].items() if times > 1]
        for what, numbers in (("not among", lost), ("wrongly among", strange), ("more than once among", twice)):
            if numbers:
                yield f"{len(numbers)} records are {what} {place}: {sorted(numbers)[:5]}"


def shares(records: Records) -> dict[int, int]:
    """How many records of each kind there are."""
    kinds, counts = np.unique(records.kind, return_counts=True)
    return {int(kind): int(count) for kind, count in zip(kinds, counts, strict=True)}
