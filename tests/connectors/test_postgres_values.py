"""Values at the ends of their types in a PostgreSQL server: held as they are, or refused row by row with a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from tests.runtime.inline_run import InlineRun, cold
from tests.servers.postgres import Server, options

pytestmark = pytest.mark.server

_DAY = 86_400_000_000


class Target:
    """An open sink of a relation with the items `k INT` and `v` of some type, and what it has refused by batch."""

    def __init__(self, db: Server, kind: str, more: str = "", item: str = "v") -> None:
        script = f"""CREATE STREAM s (at BIGINT, k INT, v {kind}) FROM MEMORY () TIMESTAMP BY at;
        CREATE QUERY q INTO {options(db, "table 'out'" + more)} AS SELECT k, {item} AS v FROM s [RANGE 10 SECONDS];"""
        self.query = bind_script(script).catalog.queries["q"]
        self.sink = open_sink(self.query)
        self.refused: dict[int, list[str]] = {}
        self.records: list[str] = []
        self.sink.refuse = self._keep
        self.sink.open(resume=False, overwrite=False)

    def _keep(self, batch: int, rows: Sequence[Rejected]) -> None:
        self.refused[batch] = [row.reason for row in rows]
        self.records += [row.record for row in rows]

    def write(self, batch: int, ops: str, keys: Sequence[int | None], values: pa.Array) -> None:
        schema = self.query.output_schema
        ticks = pa.array(range(len(ops)), pa.int64())
        columns = [ticks, pa.array(list(ops)), pa.array(keys, pa.int32()), values]
        self.sink.write(batch, pa.table(columns, schema=schema))


def days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).cast(pa.date32())


def moments(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))


def lengths(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(pa.duration("us"))


def test_dates_of_all_years_that_the_server_knows(db: Server) -> None:
    target = Target(db, "DATE")
    held = [-2_440_588, -719_163, -719_162, 0, 2_932_897, 2_145_031_948]
    target.write(0, "+" * 9, range(9), days(*held, None, -2_440_589, 2_145_031_949))
    stored = db.execute("SELECT v - DATE '1970-01-01' FROM out ORDER BY k")
    assert [row[0] for row in stored] == [*held, None]
    assert target.refused == {0: ["date beyond those of PostgreSQL in column v"] * 2}


def test_timestamps_of_all_years_that_the_server_knows(db: Server) -> None:
    first = -2_440_588 * _DAY
    target = Target(db, "TIMESTAMP")
    held = [first, first + 1, -719_162 * _DAY - 1, -719_162 * _DAY, 1, 2_932_897 * _DAY, 2**63 - 1]
    target.write(0, "+" * 10, range(10), moments(*held, None, first - 1, -(2**63)))
    # Whole seconds and the microseconds in them, as a DOUBLE of an epoch would be rounded.
    stored = db.execute(
        "SELECT floor(extract(epoch FROM v))::numeric, extract(microseconds FROM v)::bigint % 1000000 "
        "FROM out ORDER BY k"
    )
    assert [None if s is None else int(s) * 1_000_000 + int(us) for s, us in stored] == [*held, None]  # type: ignore[call-overload]
    assert target.refused == {0: ["timestamp beyond those of PostgreSQL in column v"] * 2}


def test_intervals_are_held_to_their_ends(db: Server) -> None:
    target = Target(db, "TIMESTAMP", item="v - TIMESTAMP '2000-01-01'")
    held = [0, 1, -1, 90_061_000_001, -_DAY, 2**53 + 1, 2**63 - 1, -(2**63 - 1), -(2**63)]
    target.write(0, "+" * 10, range(10), lengths(*held, None))
    assert db.execute("SELECT data_type FROM information_schema.columns WHERE column_name = 'v'") == [("interval",)]
    stored = db.execute("SELECT (extract(epoch FROM v) * 1000000)::numeric FROM out ORDER BY k")
    assert [None if n is None else int(n) for (n,) in stored] == [*held, None]  # type: ignore[call-overload]
    assert not target.refused


TEXTS = [
    ("text", "a\0b", "the character U+0000 in column v"),
    ("varchar(3)", "abcd", "value too long for type character varying(3)"),
    ("uuid", "abc", "invalid input syntax for type uuid: 'abc' in column v"),
    ("jsonb", "{", "invalid input syntax for type json in column v"),
    ("text CHECK (v <> 'no')", "no", "new row for relation 'out' violates check constraint 'out_v_check'"),
    ("text NOT NULL", None, "null value in column 'v' of relation 'out' violates not-null constraint"),
]
GOOD = {"varchar(3)": "abc", "uuid": "123e4567-e89b-12d3-a456-426614174000", "jsonb": "[1]"}


@pytest.mark.parametrize(("kind", "bad", "reason"), TEXTS)
@pytest.mark.parametrize("key", ["", ", key 'k'"])
def test_a_text_that_the_table_does_not_take(db: Server, kind: str, bad: str | None, reason: str, key: str) -> None:
    changes = "" if key else "ts bigint, op text, "
    db.execute(f"CREATE TABLE out ({changes}k int {'PRIMARY KEY' if key else ''}, v {kind})")
    good = GOOD.get(kind.split(" ")[0], "good")
    target = Target(db, "STRING", key)
    target.write(0, "+" * 7, range(7), pa.array([good, bad, good, good, bad, good, good]))
    assert db.execute("SELECT k FROM out ORDER BY k") == [(0,), (2,), (3,), (5,), (6,)]
    assert [r.startswith(reason) for r in target.refused[0]] == [True, True], target.refused
    assert '"k": 1' in target.records[0] and '"k": 4' in target.records[1]


def test_a_number_that_the_table_does_not_take(db: Server) -> None:
    db.execute("CREATE TABLE out (ts bigint, op text, k int, v numeric(4,1))")
    target = Target(db, "DECIMAL(10,1)")
    target.write(0, "+++", [1, 2, 3], pa.array([1, 12345, 3], pa.decimal128(5, 0)).cast(pa.decimal128(10, 1)))
    assert db.execute("SELECT k FROM out") == [(1,), (3,)]
    assert target.refused == {0: ["numeric field overflow in column v"]} or "overflow" in target.refused[0][0]


def test_infinities_and_nan_are_numbers_there_too(db: Server) -> None:
    target = Target(db, "DOUBLE")
    values = [float("inf"), float("-inf"), float("nan"), 5e-324, -0.0, 1.7976931348623157e308]
    target.write(0, "+" * 6, range(6), pa.array(values))
    assert str([v for (v,) in db.execute("SELECT v FROM out ORDER BY k")]) == str(values)


def test_under_a_key_what_was_there_before_is_removed(db: Server) -> None:
    target = Target(db, "STRING", ", key 'k'")
    target.write(0, "+++", [1, 2, 3], pa.array(["a", "b", "c"]))
    target.write(1, "-+-+", [1, 1, 2, 2], pa.array(["a", "\0", "b", "d"]))
    assert db.execute("SELECT * FROM out ORDER BY k") == [(2, "d"), (3, "c")]
    # The row that was refused goes, and comes back as one that can be held.
    target.write(2, "-+-", [1, 1, 3], pa.array(["\0", "e", "c"]))
    assert db.execute("SELECT * FROM out ORDER BY k") == [(1, "e"), (2, "d")]
    # One that comes and goes within a batch was never to be written.
    target.write(3, "+-", [7, 7], pa.array(["\0", "\0"]))
    assert [*target.refused] == [1]


def test_under_a_key_a_check_of_the_table_removes_too(db: Server) -> None:
    db.execute("CREATE TABLE out (k int PRIMARY KEY, v text CHECK (v <> 'no'))")
    target = Target(db, "STRING", ", key 'k'")
    target.write(0, "++", [1, 2], pa.array(["a", "b"]))
    target.write(1, "-+-+", [1, 1, 2, 2], pa.array(["a", "no", "b", "d"]))
    assert db.execute("SELECT * FROM out ORDER BY k") == [(2, "d")]
    assert "check constraint" in target.refused[1][0]


@pytest.mark.parametrize(("kind", "key"), [("STRING", "a\0"), ("STRING", None), ("DATE", 2**31 - 1)])
def test_a_key_that_cannot_be_held(db: Server, kind: str, key: Any) -> None:
    target = Target(db, kind, ", key 'v'")
    values = pa.array([key], pa.string()) if kind == "STRING" else days(key)
    target.write(0, "+", [1], values)
    target.write(1, "-", [1], values)
    assert db.execute("SELECT * FROM out") == []
    assert [*target.refused] == [0]
    assert target.refused[0][0] in (
        "the character U+0000 in column v",
        "NULL in its key, column v",
        "date beyond those of PostgreSQL in column v",
    )


def test_without_somebody_to_keep_it_the_batch_fails_whole(db: Server) -> None:
    target = Target(db, "STRING")
    target.sink.refuse = target.sink.fail_of
    with pytest.raises(PenstockError, match=r'U\+0000 in column v; the row: .*"k": 2') as caught:
        target.write(0, "++", [1, 2], pa.array(["a", "\0"]))
    assert caught.value.code == "P0502"
    assert db.execute("SELECT * FROM out") == []


@pytest.mark.parametrize("crash", [None, "sinks", "between", "delivered"])
def test_a_run_goes_on_and_counts_what_was_refused(db: Server, tmp_path: Path, crash: str | None) -> None:
    lines = [{"at": i, "k": i, "v": "\0" if i % 4 == 1 else "a"} for i in range(12)]
    (tmp_path / "in").mkdir()
    for part in range(3):
        text = "".join(json.dumps(line) + "\n" for line in lines[4 * part : 4 * part + 4])
        (tmp_path / "in" / f"{part}.json").write_text(text)
    script = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM s (at BIGINT, k INT, v STRING) FROM FILES (path '{tmp_path / "in"}', format 'json') TIMESTAMP BY at;
    CREATE QUERY q INTO {options(db, "table 'out'")} AS SELECT k, v FROM s;
    CREATE QUERY r INTO MEMORY () AS SELECT k, v FROM s;"""
    cold()
    run = InlineRun(script, tmp_path / "checkpoint")
    if crash is not None:
        run.run(1, crash)
        cold()
        run = InlineRun(script, tmp_path / "checkpoint")
    run.run()
    assert db.execute("SELECT k FROM out ORDER BY k") == [(k,) for k in range(12) if k % 4 != 1]
    letters = list(DeadLetters(run.folder.dead_letters).read("q"))
    assert [(x.path, x.reason) for x in letters] == [
        ("PostgreSQL, table out", "the character U+0000 in column v"),
    ] * 3
    assert sorted(json.loads(x.record)["k"] for x in letters) == [1, 5, 9]
    counted = run.accounts.progress(run.job.plan, {}, run.sinks, {}, {}).queries["q"]
    assert counted.refused == {"the character U+0000 in column v": 3}


def test_a_source_declared_to_fail_ends_the_run(db: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at": 1, "v": "\\u0000"}\n')
    script = f"""CREATE STREAM s (at BIGINT, v STRING) FROM FILES (path '{tmp_path / "a.json"}', format 'json')
      TIMESTAMP BY at ON ERROR FAIL;
    CREATE QUERY q INTO {options(db, "table 'out'")} AS SELECT v FROM s;"""
    cold()
    with pytest.raises(PenstockError, match=r"q: a row cannot be written to PostgreSQL, table out: the character"):
        InlineRun(script, tmp_path / "checkpoint").run()
