"""What is cut short for few rows gives what the long way gives."""

from __future__ import annotations

import decimal
import pickle
import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements, encode, taken
from penstock.physical.execution.answers import content_bytes
from penstock.physical.kernels.compiled import argsort_code_time
from penstock.physical.operators.streams.changes import in_order
from penstock.physical.plan.state.aggregate_layout import plan_lanes
from penstock.physical.planning.planner import plan_queries
from penstock.storage.arrow_streams import small_stream
from penstock.types import END

COLUMNS = (
    pa.array([1, None, -(2**63)], pa.int64()),
    pa.array([True, None, False]),
    pa.array([float("nan"), -0.0, None]),
    pa.array(["", None, "é" * 50]),
    pa.array([b"\0", None, b"ab"]),
    pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-9.0")], pa.decimal128(38, 1)),
    pa.nulls(3),
    pa.array([1, 2, None], pa.timestamp("us", "UTC")),
    pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    pa.array(["a", None, "a"]).dictionary_encode(),
    pa.array([{"a": 1}, None, {"a": None}]),
)


def written(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 200])
def test_a_stream_of_few_rows_is_that_of_a_writer(column: pa.Array, rows: int) -> None:
    whole = pa.concat_arrays([column] * 100)
    for start in (0, 1):
        batch = pa.RecordBatch.from_arrays([whole.slice(start, rows)] * 2, ["c0", "ä"])
        batch = batch.replace_schema_metadata({"a": "b"})
        small = small_stream(batch)
        assert small is None or small == written(batch)
        assert (small is None) == (rows > 64 or column.type.num_fields > 0 or pa.types.is_dictionary(column.type))
        assert encode([batch]) == written(batch)


@pytest.mark.parametrize("size", [1, 3, 64, 65, 200])
def test_values_at_rows(size: int) -> None:
    draw = random.Random(size)
    columns = [pa.array([draw.randint(0, 9) for _ in range(size)]), pa.array([str(i) for i in range(size)])]
    choices = [[], [0], [size - 1], list(range(size)), list(range(size // 2, size))]
    choices += [[draw.randrange(size) for _ in range(draw.choice([1, 2, 3, 70]))] for _ in range(60)]
    for rows in choices:
        chosen = pa.array(rows, pa.int64())
        assert taken(columns, np.array(rows, np.int64)) == [column.take(chosen) for column in columns]


def test_few_events_are_sorted_as_many() -> None:
    draw = random.Random(4)
    for size in [0, 1, 2, 5, 63, 64, 65, 300]:
        codes = np.array([draw.randint(0, 3) for _ in range(size)], np.int64)
        ts = np.array([draw.choice([-(2**62), 0, 1, 2, 2**62]) for _ in range(size)], np.int64)
        expected = sorted(range(size), key=lambda i: (codes[i], ts[i]))
        assert argsort_code_time(codes, ts).tolist() == expected
        signs = np.array([draw.choice([-1, 1, 2]) for _ in range(size)], np.int64)
        for order in (np.arange(size), np.lexsort((signs > 0, ts))):
            events = Elements((pa.array(order),), ts[order], np.full(size, END), signs[order])
            found = in_order(events)
            rows = sorted(range(size), key=lambda i: (events.ts[i], events.signs[i] > 0))
            assert found.columns[0].to_pylist() == [events.columns[0][i].as_py() for i in rows]


def test_bytes_of_texts() -> None:
    texts = pa.array(["", "a", "é", "abc", None], pa.string())
    for part in (texts.slice(1, 3), texts.slice(0, 0), texts.slice(2, 2), texts, texts.slice(4, 1)):
        kept = [t.as_py() or "" for t in part]
        assert content_bytes(pa.table({"a": part})) == 4 * len(part) + sum(len(t.encode()) for t in kept)


def test_what_was_asked_of_a_query_is_not_in_its_pickle() -> None:
    def fresh() -> Query:
        script = "CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        return bind_script(script + "CREATE QUERY q AS SELECT SUM(a) AS s FROM S [RANGE 2 SECONDS];").queries[0]

    asked, silent = fresh(), fresh()
    assert asked.output_schema.names == ["ts", "op", "s"]
    assert pickle.dumps(asked) == pickle.dumps(silent) and pickle.loads(pickle.dumps(asked)) == silent
    (layout,) = {step.spec.plan for step in plan_queries([silent]).steps if hasattr(step.spec, "plan")}
    other = plan_lanes(layout.group, layout.calls, False)
    assert (layout.integers, layout.values_at) == (other.integers, other.values_at)
    assert pickle.dumps(plan_lanes(layout.group, layout.calls, False)) == pickle.dumps(other)
