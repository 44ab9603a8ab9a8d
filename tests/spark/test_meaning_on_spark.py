"""The same answers on Spark as from the oracle: several queries of one script as one job, in many small batches, over
four shards and two keyed stages."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.connectors.sinks.memory import collected
from penstock.language.scripts import bind_script
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

DECLARED = """
SET shards = 4;
SET max_batch_bytes = 1;
CREATE STREAM S (ts BIGINT, k INT, g STRING, x DOUBLE, d DECIMAL(8,2)) FROM FILES (path '{folder}/s', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 3 SECONDS;
CREATE STREAM T (ts BIGINT, k INT, flag BOOLEAN, day DATE) FROM FILES (path '{folder}/t', format 'csv', header 'true')
  TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (k INT, name STRING) FROM FILES (path '{folder}/r', format 'csv', header 'true');
CREATE RELATION U (ts BIGINT, op STRING, k INT, v INT) FROM FILES (path '{folder}/u', format 'json')
  TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
"""

QUERIES = {
    "filtered": "SELECT ts, k, d FROM S WHERE x > 0.5",
    "grouped": """SELECT g, COUNT(*) AS n, SUM(d) AS s, MIN(x) AS m, COUNT(DISTINCT k) AS u
        FROM S [RANGE 5 SECONDS] GROUP BY g""",
    "sliding": "RSTREAM(SELECT k, AVG(x) AS a FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "joined": """ISTREAM(SELECT s.k, s.g, t.flag FROM S [RANGE 4 SECONDS] AS s, T [RANGE 2 SECONDS] AS t
        WHERE s.k = t.k)""",
    "looked_up": "SELECT r.name, s.x FROM S [NOW] AS s JOIN R AS r ON s.k = r.k",
    "unique_pairs": "SELECT DISTINCT g, k FROM S [RANGE 3 SECONDS]",
    "two_stages": """SELECT n, COUNT(*) AS c
        FROM (SELECT k, COUNT(*) AS n FROM S [RANGE 4 SECONDS] GROUP BY k) AS q GROUP BY n""",
    "with_updates": "SELECT s.k, SUM(u.v) AS v FROM S [RANGE 3 SECONDS] AS s, U AS u WHERE s.k = u.k GROUP BY s.k",
    "both": "SELECT k FROM S [RANGE 2 SECONDS] UNION ALL SELECT k FROM T [RANGE 3 SECONDS]",
    "jumping_join": """SELECT s.g, t.day FROM S [RANGE 6 TUPLES, FREQUENCY 3 SECONDS] s, T [RANGE 5 SECONDS] t
        WHERE s.k = t.k""",
    "picked_of_picked": """SELECT k [FREQUENCY 4 SECONDS PARTITIONED BY k]
        FROM (SELECT k, g FROM S [FREQUENCY 2 TUPLES PARTITIONED BY g]) AS x [RANGE 3 TUPLES, FREQUENCY 1 TUPLE]""",
    "whole": "RSTREAM(SELECT COUNT(*) AS n FROM T [RANGE 5 SECONDS])",
}


def write_inputs(folder: Path, seed: int) -> dict[str, pa.Table]:
    """Small files in four formats; returns the same rows as tables."""
    draw = random.Random(seed)
    tables = {"S": _stream_s(draw), "T": _stream_t(draw), "U": _updates(draw)}
    tables["R"] = pa.table({"k": pa.array([0, 1, 2, 2], pa.int32()), "name": ["zero", "one", "two", "deux"]})
    for name in tables:
        (folder / name.lower()).mkdir(parents=True)
    for i, start in enumerate(range(0, 60, 7)):
        pq.write_table(tables["S"].slice(start, 7), folder / "s" / f"part-{i:03d}.parquet")
    for i, start in enumerate(range(0, 30, 11)):
        pacsv.write_csv(tables["T"].slice(start, 11), folder / "t" / f"part-{i:03d}.csv")
    pacsv.write_csv(tables["R"], folder / "r" / "all.csv")
    rows = tables["U"].to_pylist()
    text = "".join(str(r).replace("'", '"') + "\n" for r in rows)
    (folder / "u" / "all.json").write_text(text)
    return tables


def _stream_s(draw: random.Random) -> pa.Table:
    # In order but for at most the slack.
    ts = sorted(draw.randint(0, 40) for _ in range(60))
    ts = [max(0, t - draw.randint(0, 1)) for t in ts]
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([draw.choice([0, 1, 2, None]) for _ in ts], pa.int32()),
            "g": [draw.choice(["a", "b", "", None]) for _ in ts],
            "x": [draw.choice([0.25, 0.75, 1.5, None]) for _ in ts],
            "d": pa.array([draw.choice([Decimal("1.25"), Decimal("2.5"), None]) for _ in ts], pa.decimal128(8, 2)),
        }
    )


def _stream_t(draw: random.Random) -> pa.Table:
    ts = sorted(draw.randint(5, 50) for _ in range(30))
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([draw.choice([0, 1, 2]) for _ in ts], pa.int32()),
            "flag": [draw.choice([True, False]) for _ in ts],
            "day": pa.array([draw.randint(0, 9) for _ in ts], pa.int32()).cast(pa.date32()),
        }
    )


def _updates(draw: random.Random) -> pa.Table:
    live: list[tuple[int, int]] = []
    rows: list[tuple[int, str, int, int]] = []
    for ts in sorted(draw.randint(0, 45) for _ in range(25)):
        if live and draw.random() < 0.4:
            row = live.pop(draw.randrange(len(live)))
            rows.append((ts, "-", *row))
        else:
            row = (draw.randint(0, 2), draw.randint(1, 3))
            live.append(row)
            rows.append((ts, "+", *row))
    columns = list(zip(*rows, strict=True))
    types = [pa.int64(), pa.string(), pa.int32(), pa.int32()]
    return pa.Table.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["ts", "op", "k", "v"]
    )


@pytest.mark.parametrize(("seed", "drain", "store"), [(1, False, "files"), (2, True, "spark")])
def test_one_job_answers_as_the_oracle(spark: Any, tmp_path: Path, seed: int, drain: bool, store: str) -> None:
    tables = write_inputs(tmp_path, seed)
    script = f"SET state_store = '{store}';" + DECLARED.format(folder=tmp_path)
    for name, text in QUERIES.items():
        kind = "parquet" if name == "grouped" else "json" if name == "joined" else "csv"
        script += f"CREATE QUERY {name} INTO FILES (path '{tmp_path}/out/{name}', format '{kind}') AS {text};\n"
    session = Session(spark)
    session.execute(script)
    run = session.start(checkpoint=str(tmp_path / "checkpoint"), drain=drain)
    assert run.wait(500)
    progress = run.progress()
    assert {n: s.rows for n, s in progress.sources.items()} == {"S": 60, "T": 30, "U": 25, "R": 4}
    assert progress.batches > 5
    for query in bind_script(script).queries:
        expected = run_oracle(query, tables, drain=drain)
        found = read_result(str(tmp_path / "out" / query.name))
        assert_same(query, found, expected)
        assert progress.queries[query.name].rows == found.num_rows


def test_a_finished_run_is_left_as_it_is(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    pacsv.write_csv(pa.table({"ts": [1, 2], "a": [5, 6]}), tmp_path / "s" / "a.csv")
    script = f"""CREATE STREAM S (ts INT, a INT) FROM FILES (path '{tmp_path}/s', format 'csv')
        TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY q INTO FILES (path '{tmp_path}/out', format 'csv') AS SELECT a FROM S;"""
    for _ in range(2):
        session = Session(spark)
        session.execute(script)
        run = session.start(checkpoint=str(tmp_path / "checkpoint"))
        assert run.wait(200)
        assert run.progress().rows_in == 2
        assert read_result(str(tmp_path / "out")).to_pydict() == {"ts": [1, 2], "a": [5, 6]}


def test_memory_rows_and_collect(spark: Any) -> None:
    session = Session(spark)
    session.execute(
        """CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
        INSERT INTO S VALUES (1, 5), (2, 6), (4, 5);
        CREATE QUERY q INTO MEMORY () AS ISTREAM(SELECT a, COUNT(*) AS n FROM S [RANGE 2 SECONDS] GROUP BY a);"""
    )
    assert session.start().wait(200)
    assert collected("q").to_pydict() == {"ts": [1, 2, 4], "a": [5, 6, 5], "n": [1, 1, 1]}
    answer = session.query("SELECT a FROM S [RANGE 1 SECOND]").collect(drain=True)
    assert answer.to_pydict() == {
        "ts": [1, 2, 2, 3, 4, 5],
        "op": ["+", "-", "+", "-", "+", "-"],
        "a": [5, 5, 6, 6, 5, 5],
    }
