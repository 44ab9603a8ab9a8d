"""INTO RESULTS on Spark: a reader that follows a run, over a stop and a change, gets what FILES hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_change_on_spark import QUERIES, start, write_data

from penstock.connectors.sinks.files import read_result
from penstock.results.reader import ResultReader

SCRIPT = """SET max_batch_bytes = 1; SET shards = 2;
CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY kept INTO RESULTS () AS {query};
CREATE QUERY filed INTO FILES (path '{out}', format 'parquet') AS {query};"""


def result_of(run: Any, name: str) -> ResultReader:
    place = run._job.sinks[name].own_place
    return ResultReader(place.folder, place.id)


@pytest.mark.spark
def test_a_reader_that_follows_gets_what_files_hold(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 10)
    script = SCRIPT.format(data=tmp_path / "data", out=tmp_path / "out", query=QUERIES["best"])
    checkpoint = str(tmp_path / "checkpoint")
    run = start(spark, script, checkpoint=checkpoint, live=True)
    reader = result_of(run, "kept")
    subscription = reader.read(reader.first, progress=True)
    parts = []
    while len(parts) < 4:
        part = subscription.next(timeout=120)
        assert part is not None
        parts.append(part)
    run.stop()
    run = start(spark, script, checkpoint=checkpoint, live=True)
    assert result_of(run, "kept").id == reader.id
    run.change(f"CREATE QUERY late INTO RESULTS () AS {QUERIES['sums']};")
    assert run.wait(200)
    parts += list(result_of(run, "kept").read(parts[-1].cursor, until_now=True, progress=True))
    found = [tuple(row.values()) for part in parts for row in part.rows.to_pylist()]
    rows = [row for row in found if row[1] != "p"]
    expected = [tuple(row.values()) for row in read_result(str(tmp_path / "out")).to_pylist()]
    assert rows == expected and len(found) > len(rows)
    snapshot = result_of(run, "kept").read(snapshot=True, until_now=True)
    content = Counter(tuple(row.values())[2:] for part in snapshot for row in part.rows.to_pylist())
    folded: Counter[tuple[Any, ...]] = Counter()
    for _, op, *items in expected:
        folded[tuple(items)] += 1 if op == "+" else -1
    assert content == +folded and content
    assert result_of(run, "late").record.whole
