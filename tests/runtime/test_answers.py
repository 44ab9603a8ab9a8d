"""Answers of several shards become one table in the order of time, whichever way they are laid together."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution import answers
from penstock.physical.execution.answers import answer_table
from penstock.runtime.spark.worker.packets import answer_packets, read_elements
from penstock.types import END

(QUERY,) = bind_script(
    "CREATE STREAM S (ts BIGINT, k BIGINT, s STRING) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;"
    "CREATE QUERY q INTO MEMORY () AS SELECT RSTREAM(k, s) FROM S [RANGE 10 MILLISECONDS SLIDE 5 MILLISECONDS];"
).queries


def _part(random_: random.Random, instants: int, rows: int) -> Elements:
    """Rows of one shard: `rows` an instant about, not at every instant."""
    ts = [t for t in range(instants) if random_.random() < 0.8 for _ in range(random_.randint(1, 2 * rows))]
    numbers = [random_.randint(0, 9) for _ in ts]
    columns = (pa.array(numbers, pa.int64()), pa.array([f"s{n}" for n in numbers], pa.string()))
    return Elements(columns, np.array(ts, np.int64), np.full(len(ts), END))


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_rows_of_an_instant_come_by_shard(shards: int, rows: int) -> None:
    random_ = random.Random(shards * rows)
    parts = [_part(random_, 20, rows) for _ in range(shards)]
    told = [
        (ts, shard, number, k, s)
        for shard, part in enumerate(parts)
        for number, (ts, k, s) in enumerate(
            zip(part.ts.tolist(), part.columns[0].to_pylist(), part.columns[1].to_pylist(), strict=True)
        )
    ]
    found = answer_table(QUERY, parts)
    found.validate(full=True)
    assert [tuple(row.values())[1:] for row in found.to_pylist()] == [row[3:] for row in sorted(told)]
    travelled = [e for part in parts for packet in answer_packets(0, "q", [part]) for e in read_elements(packet.blob)]
    assert answer_table(QUERY, travelled).equals(found)


def test_rows_out_of_order_and_several_at_once() -> None:
    columns = (pa.array([1, 2, 3], pa.int64()), pa.array(["a", "b", "c"], pa.string()))
    late = Elements(columns, np.array([5, 3, 4]), np.full(3, END), np.array([1, 2, 1]))
    assert answer_table(QUERY, [late]).column("k").to_pylist() == [2, 2, 3, 1]
    assert answer_table(QUERY, []).num_rows == 0


@pytest.mark.parametrize("rows", [1, 64, 65])
def test_few_rows_are_shown_as_many_are(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CREATE STREAM S (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    (relation,) = bind_script(text + "CREATE QUERY q AS SELECT k FROM S [RANGE 5 SECONDS];").queries
    ts = np.repeat(np.arange(rows, dtype=np.int64), 2)
    signs = np.tile(np.array([-1, 1], np.int64), rows)
    part = Elements((pa.array(ts, pa.int32()),), ts, np.full(2 * rows, END), signs).slice(0, rows)
    few = answer_table(relation, [part])
    monkeypatch.setattr(answers, "_FEW", 0)
    many = answer_table(relation, [part])
    assert few.schema.equals(many.schema) and few.equals(many)
    assert few.column("op").to_pylist() == ["-" if number % 2 == 0 else "+" for number in range(rows)]
