"""POSTGRES against a real server: snapshots, polls, results, and everything that can go wrong."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.connectors.contract import SourceConnector, Split
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.expressions.evaluation.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.inprocess import answer_here
from penstock.runtime.local.statics import read_relation
from penstock.session import Session
from tests.servers.postgres import PASSWORD, Server, options

pytestmark = pytest.mark.server


def source(text: str) -> SourceConnector:
    return open_source(next(iter(bind_script(text).catalog.sources.values())))


def rows(connector: SourceConnector, columns: tuple[int, ...] | None = None) -> list[tuple[Any, ...]]:
    columns = tuple(range(len(connector.source.columns))) if columns is None else columns
    return [row for path in connector.discover(frozenset()) for row in read(connector, path, columns)]


def read(connector: SourceConnector, path: str, columns: tuple[int, ...] = (0,)) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for split in connector.splits(path):
        for parsed in connector.read(split, columns):
            assert not parsed.rejected, parsed.rejected
            found += [tuple(row.values()) for row in parsed.batch.to_pylist()]
    return found


def refused(code: str, action: Any) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        action()
    assert caught.value.code == code, caught.value
    assert PASSWORD not in str(caught.value)
    return caught.value


# --- snapshots

EVERYTHING = """CREATE TABLE everything (
  yes boolean, small smallint, whole integer, big bigint, single real, "Real" double precision, money numeric(10,2),
  free numeric, word text, short varchar(10), day date, at timestamptz, naive timestamp, raw bytea, id uuid, doc jsonb);
INSERT INTO everything VALUES
  (true, -32768, 7, 9223372036854775807, 0.5, 'Infinity', 12345678.90, 1.25, E'a "b", c\\n', '', '1969-12-31',
   '2024-03-01 11:00:00.123456+01', '2024-03-01 10:00:00', '\\x00ff22', '123e4567-e89b-12d3-a456-426614174000', '[1]'),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (false, 0, -1, 0, -1e10, 1e-300, -0.01, -2, '', 'ä', '9999-12-31', '1999-12-31 23:59:59Z', '1999-01-01', '', NULL,
   '{}');"""
DECLARED = """CREATE RELATION r (yes BOOLEAN, small SMALLINT, whole INT, big BIGINT, single FLOAT, real DOUBLE,
  money DECIMAL(10,2), free DECIMAL(12,4), word STRING, short STRING, day DATE, at TIMESTAMP, naive TIMESTAMP,
  raw BINARY, id STRING, doc STRING) FROM """
UTC = dt.UTC
TABLE, VERSION = "table 't'", ", version 'v'"


def test_a_relation_is_a_snapshot_of_every_type(db: Server) -> None:
    db.execute(EVERYTHING)
    connector = source(DECLARED + options(db, "table 'everything'") + ";")
    connector.check()
    assert connector.bounded
    first, second, third = rows(connector)
    assert first == (
        True,
        -32768,
        7,
        2**63 - 1,
        0.5,
        float("inf"),
        Decimal("12345678.90"),
        Decimal("1.2500"),
        'a "b", c\n',
        "",
        dt.date(1969, 12, 31),
        dt.datetime(2024, 3, 1, 10, 0, 0, 123456, UTC),
        dt.datetime(2024, 3, 1, 10, tzinfo=UTC),
        b"\x00\xff\x22",
        "123e4567-e89b-12d3-a456-426614174000",
        "[1]",
    )
    assert second == (None,) * 16
    assert third[8:14] == (
        "",
        "ä",
        dt.date(9999, 12, 31),
        dt.datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
        dt.datetime(1999, 1, 1, tzinfo=UTC),
        b"",
    )
    assert rows(source(DECLARED + options(db, "table 'public.everything'") + ";"), (13, 2))[0] == (b"\x00\xff\x22", 7)
    assert [len(r) for r in rows(source(DECLARED + options(db, "table 'everything'") + ";"), ())] == [0, 0, 0]


def test_rows_of_a_single_column_that_are_null_are_rows(db: Server) -> None:
    db.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (NULL), (3)")
    assert rows(source(f"CREATE RELATION r (a INT) FROM {options(db, TABLE)};")) == [
        (1,),
        (None,),
        (3,),
    ]


def test_a_query_of_the_server_joins_a_stream_here(db: Server) -> None:
    db.execute("CREATE TABLE c (id int, name text); INSERT INTO c VALUES (1, 'Ada'), (2, 'Grace'), (3, 'Zoe')")
    asked = "query 'SELECT id, upper(name) AS name FROM c WHERE id < 3 -- all but Zoe'"
    numbers = "query 'SELECT i AS at, i AS id FROM generate_series(3, 1, -1) i'"
    script = f"""CREATE RELATION c (id INT, name STRING, PRIMARY KEY (id)) FROM {options(db, asked)};
    CREATE STREAM s (at BIGINT, id INT) FROM {options(db, numbers)}
      TIMESTAMP BY at;
    CREATE QUERY q INTO {options(db, "table 'out'")} AS SELECT s.id, c.name FROM s, c WHERE s.id = c.id;"""
    answer_here(bind_script(script).catalog.queries.values())
    assert db.execute("SELECT * FROM out ORDER BY ts") == [(1, 1, "ADA"), (2, 2, "GRACE")]


def test_values_that_do_not_fit_are_rejected_alone(db: Server) -> None:
    db.execute(
        "CREATE TABLE t (n numeric, at timestamptz); INSERT INTO t VALUES (1, 'now'), ('NaN', 'now'), (2, 'infinity')"
    )
    connector = source(f"CREATE RELATION r (n DECIMAL(5,1), at TIMESTAMP) FROM {options(db, TABLE)};")
    (path,) = connector.discover(frozenset())
    (split,) = connector.splits(path)
    parsed = list(connector.read(split, (0, 1)))
    assert sum(p.batch.num_rows for p in parsed) == 1
    rejected = [r for p in parsed for r in p.rejected]
    assert [r.reason.split("'")[0] for r in rejected] == ["bad number ", "bad timestamp "]
    assert all("table t" in r.path for r in rejected)


WANTED = """CREATE TABLE t (k integer, b boolean, w text, c char(4), m numeric(8,2), f double precision, d date,
  at timestamptz, n timestamp);
INSERT INTO t VALUES
  (1, true, 'a', 'a', 1.50, 1, '2024-01-01', '2024-01-01 00:00Z', '2024-01-01'),
  (2, false, 'B', 'b', 2.50, 'NaN', '2024-06-01', '2024-06-01 00:00Z', '2024-06-01'),
  (3, NULL, 'ab', 'ab', 3, 3, 'infinity', '2024-07-01 00:00Z', '2024-07-01'),
  (4, true, '', '', 'NaN', 4, '2024-08-01', '2024-08-01 00:00Z', '2024-08-01'),
  (5, true, 'o''x', 'q', 5, 5, '2024-09-01', '-infinity', '2024-09-01'),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);"""
#: A condition, and how many of the rows the server sends: those that cannot be read come whatever is asked.
ASKED = [
    ("k = 2", 4), ("k > 1 AND k < 3", 4), ("k <> 1", 4), ("NOT (k > 1)", 4), ("k IN (1, 2)", 5),
    ("k NOT IN (1, NULL)", 3), ("k IS NULL", 4), ("k <=> 1", 4), ("k > 2.5", 3), ("k < 3000000000", 5), ("b", 4),
    ("NOT b", 4), ("b IS NOT NULL", 5), ("w = 'a'", 4), ("w = 'o''x'", 3), ("w IN ('B', '')", 4), ("m = 2.5", 4),
    ("m > 1", 5), ("d = DATE '2024-01-01'", 4),
    ("at > TIMESTAMP '2024-02-01'", 4), ("n = TIMESTAMP '2024-01-01'", 4), ("k = 1 OR w = 'B'", 5),
    ("k = NULL", 3), ("k = 1 AND UPPER(w) = 'A'", 4),
    # What the server orders or computes in its own way is not asked.
    ("w < 'b'", 6), ("f > 2", 6), ("c = 'a'", 6), ("k + 1 = 2", 6), ("k = 1 OR UPPER(w) = 'B'", 6), ("k > m", 6),
]  # fmt: skip


def test_the_server_leaves_out_what_no_query_reads(db: Server) -> None:
    db.execute(WANTED)
    declared = f"""CREATE RELATION r (k INT, b BOOLEAN, w STRING, c STRING, m DECIMAL(8,2), f DOUBLE, d DATE,
      at TIMESTAMP, n TIMESTAMP) FROM {options(db, TABLE)};"""
    for condition, sent in ASKED:
        (query,) = bind_script(f"{declared} CREATE QUERY q AS SELECT k, w FROM r WHERE {condition};").queries
        (plan,) = plan_queries([replace(query, root=optimize(query.root))]).statics.values()
        whole, bad, _ = read_relation(plan.sources["r"])
        part, bad_too, passed = read_relation(plan.sources["r"], plan.source_predicates["r"])
        assert (part.num_rows + len(bad_too), passed) == (sent, 0), condition
        assert [r.reason for r in bad_too] == [r.reason for r in bad] and len(bad) == 3
        assert chosen(plan.source_predicates["r"], part) == chosen(plan.source_predicates["r"], whole), condition


def chosen(condition: Expression, table: pa.Table) -> list[str]:
    columns = [column.combine_chunks() for column in table.columns]
    return [repr(row) for row in table.filter(pa.array(mask(condition, columns, table.num_rows))).to_pylist()]


def test_a_relation_with_a_key_is_read_whole(db: Server) -> None:
    """Of two rows with one key the first counts, whether or not it is wanted."""
    db.execute("CREATE TABLE t (k int, w text); INSERT INTO t VALUES (1, 'a'), (1, 'b'), (2, 'b')")
    declared = f"CREATE RELATION r (k INT, w STRING, PRIMARY KEY (k)) FROM {options(db, TABLE)};"
    (query,) = bind_script(f"{declared} CREATE QUERY q AS SELECT k FROM r WHERE w = 'b';").queries
    (plan,) = plan_queries([replace(query, root=optimize(query.root))]).statics.values()
    assert plan.source_predicates == {}


# --- polls

POLLED = "table 'c', version 'changed', poll '1 ms'"


def polling(db: Server, more: str = "") -> SourceConnector:
    return source(
        f"CREATE RELATION c (id INT, name STRING, changed BIGINT, op STRING, PRIMARY KEY (id)) "
        f"FROM {options(db, POLLED + more)} TIMESTAMP BY changed OPERATION BY op;"
        if more
        else f"CREATE RELATION c (id INT, name STRING, changed BIGINT, PRIMARY KEY (id)) "
        f"FROM {options(db, POLLED)} TIMESTAMP BY changed;"
    )


def test_polls_read_what_has_a_higher_version(db: Server, tmp_path: Path) -> None:
    db.execute("CREATE TABLE c (id int PRIMARY KEY, name text, changed bigint)")
    connector = polling(db)
    connector.keep_in(tmp_path / "kept")
    assert not connector.bounded
    known: list[str] = []

    def fresh(at: SourceConnector) -> list[tuple[Any, ...]]:
        time.sleep(0.002)
        paths = at.discover(frozenset(known))
        known.extend(paths)
        return [row for path in paths for row in read(at, path, (2, 0, 1))]

    assert fresh(connector) == []
    db.execute("INSERT INTO c VALUES (1, 'a', 5), (2, 'b', 3), (3, 'c', NULL)")
    assert fresh(connector) == [(3, 2, "b"), (5, 1, "a")]
    assert fresh(connector) == []
    db.execute("UPDATE c SET name = 'B', changed = 6 WHERE id = 2")
    assert fresh(connector) == [(6, 2, "B")]
    db.execute("INSERT INTO c VALUES (4, 'd', 7)")
    # Another process goes on from what is kept, and reads again what nobody has planned yet.
    other = polling(db)
    other.keep_in(tmp_path / "kept")
    last = known.pop()
    assert fresh(other) == [(6, 2, "B")]
    assert known[-1] == last
    assert fresh(other) == [(7, 4, "d")]
    other.forget(known)
    assert fresh(other) == []
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["poll-00000004.json"]
    db.execute("INSERT INTO c VALUES (5, 'e', 8)")
    assert fresh(other) == [(8, 5, "e")]


@pytest.mark.parametrize("suffix", ["json", "csv"])
@pytest.mark.parametrize("how", ["flip", "cut", "lose"])
def test_damage_of_what_is_kept_is_told(db: Server, tmp_path: Path, suffix: str, how: str) -> None:
    db.execute("CREATE TABLE c (id int, name text, changed bigint); INSERT INTO c VALUES (1, 'a', 1), (2, 'b', 2)")
    connector = polling(db)
    connector.keep_in(tmp_path)
    (first,) = connector.discover(frozenset())
    place = Path(first).with_suffix(f".{suffix}")
    data = place.read_bytes()
    place.write_bytes({"flip": data[:-12] + bytes([data[-12] ^ 1]) + data[-11:], "cut": data[:-2], "lose": b""}[how])
    if how == "lose":
        place.unlink()
    again = polling(db)
    again.keep_in(tmp_path)

    def goes_on() -> None:
        again.discover(frozenset([first]))
        list(again.read(Split(first), (0,)))

    refused("P0605", goes_on)


def test_a_flag_tells_deletions(db: Server, tmp_path: Path) -> None:
    db.execute("""CREATE TABLE c (id int PRIMARY KEY, name text, changed bigint, gone boolean);
        INSERT INTO c VALUES (1, 'a', 1, false), (2, 'b', 2, true), (3, 'c', 3, NULL)""")
    connector = polling(db, ", deleted 'gone'")
    assert connector.source.upserts
    connector.keep_in(tmp_path)
    first = connector.discover(frozenset())
    assert read(connector, first[0], (3, 0)) == [("+", 1), ("+", 3)]
    db.execute("UPDATE c SET gone = true, changed = 4 WHERE id = 1")
    time.sleep(0.002)
    (second,) = connector.discover(frozenset(first))
    assert read(connector, second, (3, 0, 2)) == [("-", 1, 4)]


def test_a_server_that_goes_away_between_polls_is_waited_for(running: Server, db: Server, tmp_path: Path) -> None:
    db.execute("CREATE TABLE c (id int PRIMARY KEY, name text, changed bigint); INSERT INTO c VALUES (1, 'a', 1)")
    connector = polling(db)
    connector.keep_in(tmp_path)
    known = connector.discover(frozenset())
    db.execute("INSERT INTO c VALUES (2, 'b', 2)")
    with running.away():
        time.sleep(0.002)
        assert connector.discover(frozenset(known)) == []
    time.sleep(0.002)
    assert read(connector, connector.discover(frozenset(known))[0]) == [(2,)]


def test_a_bounded_source_is_read_once(db: Server, tmp_path: Path) -> None:
    db.execute("CREATE TABLE t (at timestamptz, a int); INSERT INTO t VALUES ('2024-01-02', 2), ('2024-01-01', 1)")
    text = f"CREATE STREAM s (at TIMESTAMP, a INT) FROM {options(db, TABLE)} TIMESTAMP BY at;"
    connector = source(text)
    connector.keep_in(tmp_path)
    first = connector.discover(frozenset())
    db.execute("INSERT INTO t VALUES ('2024-01-03', 3)")
    again = source(text)
    again.keep_in(tmp_path)
    assert again.discover(frozenset()) == first
    assert read(again, first[0], (1,)) == [(1,), (2,)]
    assert connector.discover(frozenset(first)) == []
    copy, split = pickle.loads(pickle.dumps((again, again.splits(first[0])[0])))
    assert [p.batch.num_rows for p in copy.read(split, (0,))] == [2]


# --- results

IN = "CREATE STREAM s (at BIGINT, k INT, v STRING) FROM MEMORY () TIMESTAMP BY at;"
CHANGES = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"
TWO = "SELECT k, v FROM s [RANGE 10 SECONDS]"


def sink(db: Server, query: str, more: str = "") -> Any:
    into = options(db, "table 'out'" + (", " + more if more else ""))
    return open_sink(bind_script(f"{IN} CREATE QUERY q INTO {into} AS {query};").catalog.queries["q"])


def changes(*rows: tuple[int, str, int | None, int]) -> pa.Table:
    names, types = ["ts", "op", "k", "n"], [pa.int64(), pa.string(), pa.int32(), pa.int64()]
    return pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names)


def test_changes_are_appended_once(db: Server) -> None:
    target = sink(db, CHANGES)
    target.open(resume=False, overwrite=False)
    target.write(0, changes((1, "+", None, 1)))
    second = changes((2, "-", None, 1), (2, "+", None, 2))
    target.write(1, second)
    again = sink(db, CHANGES)
    again.open(resume=True, overwrite=False)
    again.write(1, second)
    again.write(2, changes((3, "+", 7, 1)))
    assert db.execute("SELECT * FROM out ORDER BY ts, op DESC") == [
        (1, "+", None, 1),
        (2, "-", None, 1),
        (2, "+", None, 2),
        (3, "+", 7, 1),
    ]
    assert db.execute("SELECT query, target, run, batch FROM penstock_batches") == [("q", "out", 0, 2)]


def test_a_key_keeps_the_relation_as_it_is_now(db: Server) -> None:
    target = sink(db, CHANGES, "key 'k'")
    target.open(resume=False, overwrite=False)
    first = changes((1, "+", 1, 1), (2, "+", 2, 1), (2, "-", 1, 1), (2, "+", 1, 2))
    target.write(0, first)
    target.write(0, first)
    assert db.execute("SELECT * FROM out ORDER BY k") == [(1, 2), (2, 1)]
    target.write(1, changes((3, "-", 2, 1), (3, "-", 1, 2), (3, "+", 1, 5), (3, "+", 4, 1), (4, "-", 4, 1)))
    assert db.execute("SELECT * FROM out ORDER BY k") == [(1, 5)]
    error = refused("P0502", lambda: target.write(2, changes((5, "+", None, 1))))
    assert "NULL in its key" in error.message


def test_two_rows_of_one_key_are_refused_and_nothing_is_written(db: Server) -> None:
    target = sink(db, TWO, "key 'k'")
    target.open(resume=False, overwrite=False)
    rows = pa.table({"ts": [1, 2], "op": ["+", "+"], "k": pa.array([1, 1], pa.int32()), "v": ["a", "b"]})
    assert "k = 1" in refused("P0502", lambda: target.write(0, rows)).message
    target.write(0, rows.slice(0, 1))
    assert "k = 1" in refused("P0502", lambda: target.write(1, rows.slice(1))).message
    assert db.execute("SELECT * FROM out") == [(1, "a")]
    db.execute("ALTER TABLE out ADD UNIQUE (v)")
    other = pa.table({"ts": [3], "op": ["+"], "k": pa.array([2], pa.int32()), "v": ["a"]})
    assert "duplicate key" in refused("P0502", lambda: target.write(1, other)).message
    assert db.execute("SELECT batch FROM penstock_batches") == [(0,)]


def test_every_type_goes_there(db: Server) -> None:
    text = """CREATE STREAM e (at TIMESTAMP, yes BOOLEAN, tiny TINYINT, small SMALLINT, big BIGINT, single FLOAT,
      wide DOUBLE, money DECIMAL(10,2), word STRING, day DATE, raw BINARY) FROM MEMORY () TIMESTAMP BY at;"""
    into = options(db, "table 'out'")
    items = "yes, tiny, small, big, single, wide, money, word, day, raw, NULL AS nothing"
    query = bind_script(f"{text} CREATE QUERY q INTO {into} AS SELECT {items} FROM e;").catalog.queries["q"]
    target = open_sink(query)
    target.open(resume=False, overwrite=False)
    schema = query.root.schema.types
    values = [
        True,
        -128,
        5,
        -(2**63),
        0.5,
        float("nan"),
        Decimal("-0.01"),
        'a,"b"\n',
        dt.date(2024, 1, 1),
        b"\x00\xff",
        None,
    ]
    one = [pa.array([value, None], type_) for value, type_ in zip(values, schema, strict=True)]
    stamp = pa.array([1, 2], pa.int64()).cast(query.domain.type())
    target.write(0, pa.table([stamp, *one], names=list(query.output_names)).slice(0))
    first, second = db.execute("SELECT * FROM out ORDER BY ts")
    assert first[1:6] == (True, -128, 5, -(2**63), 0.5)
    assert str(first[6]) == "nan"
    assert first[7:] == (Decimal("-0.01"), 'a,"b"\n', dt.date(2024, 1, 1), b"\x00\xff", None)
    assert second[1:] == (None,) * 11


def test_what_is_there_is_not_overwritten_unasked(db: Server) -> None:
    for _ in range(2):
        target = sink(db, CHANGES)
        target.open(resume=False, overwrite=False)
    target.write(0, changes((1, "+", 1, 1)))
    assert "has rows" in refused("P0501", lambda: sink(db, CHANGES).open(resume=False, overwrite=False)).message
    sink(db, CHANGES).open(resume=False, overwrite=True)
    assert db.execute("SELECT * FROM out") == []
    assert (
        "is not the table that this run writes"
        in refused("P0502", lambda: target.write(1, changes((1, "+", 1, 1)))).message
    )
    db.execute("INSERT INTO out VALUES (1, '+', 1, 1); DELETE FROM penstock_batches")
    assert "did not write" in refused("P0501", lambda: sink(db, CHANGES).open(resume=False, overwrite=True)).message
    assert (
        "is not the table that this run writes"
        in refused("P0502", lambda: sink(db, CHANGES).open(resume=True, overwrite=False)).message
    )
    appending = sink(db, CHANGES, "mode 'append'")
    appending.open(resume=False, overwrite=False)
    appending.write(0, changes((2, "+", 2, 2)))
    assert db.execute("SELECT count(*) FROM out") == [(2,)]


def test_what_is_withdrawn_is_not_in_the_way(db: Server) -> None:
    target = sink(db, CHANGES)
    target.open(resume=False, overwrite=False)
    target.write(0, changes((1, "+", 1, 1)))
    target.withdraw()
    again = sink(db, CHANGES)
    again.open(resume=False, overwrite=False)
    again.write(0, changes((1, "+", 2, 2)))
    assert db.execute("SELECT count(*) FROM out") == [(1,)]


def test_a_table_that_does_not_fit_is_refused(db: Server) -> None:
    db.execute("CREATE TABLE out (k int, n text)")
    assert "n is text" in refused("P0502", lambda: sink(db, CHANGES, "key 'k'").open(False, False)).message
    db.execute("ALTER TABLE out DROP n")
    assert "no column n" in refused("P0502", lambda: sink(db, CHANGES, "key 'k'").open(False, False)).message
    db.execute("ALTER TABLE out ADD n bigint, ADD extra text")
    assert "unique index on (k)" in refused("P0502", lambda: sink(db, CHANGES, "key 'k'").open(False, False)).message
    db.execute("CREATE UNIQUE INDEX ON out (k)")
    target = sink(db, CHANGES, "key 'k'")
    target.open(False, False)
    target.write(0, changes((1, "+", 1, 1)))
    assert db.execute("SELECT * FROM out") == [(1, 1, None)]


def test_a_server_that_goes_away_while_writing_is_waited_for(running: Server, db: Server) -> None:
    target = sink(db, CHANGES)
    target.open(resume=False, overwrite=False)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            target.write(0, changes((1, "+", 1, 1)))
        except BaseException as error:
            failures.append(error)

    with running.away():
        worker = threading.Thread(target=write)
        worker.start()
        time.sleep(0.3)
        assert worker.is_alive()
    worker.join(30)
    assert not failures and not worker.is_alive()
    assert db.execute("SELECT * FROM out") == [(1, "+", 1, 1)]


# --- what goes wrong


def relation(db: Server, rest: str, columns: str = "a INT") -> SourceConnector:
    return source(f"CREATE RELATION r ({columns}) FROM {options(db, rest)};")


def test_tables_and_columns_that_are_not_there(db: Server) -> None:
    db.execute("CREATE TABLE t (a int, at timestamptz, n numeric)")
    assert "nothing" in refused("P0401", relation(db, "table 'nothing'").check).message
    error = refused("P0402", relation(db, "table 't'", "aa INT").check)
    assert "aa is missing" in error.message and "did you mean a" in (error.hint or "")
    assert "INT4" in refused("P0402", relation(db, "table 't'", "a SMALLINT").check).message
    assert "NUMERIC" in refused("P0402", relation(db, "table 't'", "n DOUBLE").check).message
    assert "syntax error" in refused("P0401", relation(db, "query 'SELEC 1'").check).message
    assert "no_such" in refused("P0402", relation(db, "query 'SELECT no_such FROM t'").check).message
    polled = f"CREATE STREAM s (at TIMESTAMP) FROM {options(db, TABLE + VERSION)} TIMESTAMP BY at;"
    assert "column v is missing" in refused("P0402", source(polled).check).message


def test_without_permission(db: Server) -> None:
    db.execute("CREATE TABLE t (a int)")
    db.execute("DROP ROLE IF EXISTS guest")
    db.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    url = db.url.replace("penstock@", "guest@")
    as_guest = f"POSTGRES (url '{url}', password_env 'PENSTOCK_TEST_PASSWORD', table 't')"
    error = refused("P0401", source(f"CREATE RELATION r (a INT) FROM {as_guest};").check)
    assert "permission denied" in error.message and "grant" in (error.hint or "")
    query = bind_script(f"{IN} CREATE QUERY q INTO {as_guest} AS {CHANGES};").catalog.queries["q"]
    assert "permission denied" in refused("P0502", lambda: open_sink(query).open(False, False)).message
    # A writer needs no more than the rows of what is there.
    db.execute("""CREATE TABLE r (ts bigint, op text, k int, n bigint);
        CREATE TABLE penstock_batches (query text, target text, run bigint, batch bigint, PRIMARY KEY (query, target));
        GRANT SELECT, INSERT, UPDATE ON r, penstock_batches TO guest""")
    into = as_guest.replace("table 't'", "table 'r'")
    query = bind_script(f"{IN} CREATE QUERY q INTO {into} AS {CHANGES};").catalog.queries["q"]
    target = open_sink(query)
    target.open(False, False)
    target.write(0, changes((1, "+", 1, 1)))
    assert db.execute("SELECT * FROM r") == [(1, "+", 1, 1)]


def test_a_server_that_is_not_there(running: Server, db: Server) -> None:
    db.execute("CREATE TABLE t (a int)")
    with running.away():
        gone = f"POSTGRES (url '{db.url}', timeout '300 ms', password_env 'PENSTOCK_TEST_PASSWORD', table 't')"
        error = refused("P0401", source(f"CREATE RELATION r (a INT) FROM {gone};").check)
        assert "cannot be reached" in error.message and "0.3 s" in (error.hint or "")
        query = bind_script(f"{IN} CREATE QUERY q INTO {gone} AS {CHANGES};").catalog.queries["q"]
        assert "cannot be reached" in refused("P0502", lambda: open_sink(query).open(False, False)).message


@pytest.mark.parametrize(
    ("declared", "part"),
    [
        ("RELATION r (a INT) FROM POSTGRES (table 't', query 'SELECT 1')", "one of the options"),
        ("RELATION r (a INT) FROM POSTGRES ()", "one of the options"),
        ("RELATION r (a INT) FROM POSTGRES (table 't', poll '1 second')", "is for a source with a timestamp"),
        ("STREAM s (a INT) FROM POSTGRES (table 't', poll '1 second') TIMESTAMP BY a", "needs the option version"),
        ("STREAM s (a INT) FROM POSTGRES (table 't', version 'a', poll 'often') TIMESTAMP BY a", "length of time"),
        ("STREAM s (a INT) FROM POSTGRES (table 't', deleted 'd') TIMESTAMP BY a", "needs OPERATION BY"),
        ("RELATION r (a INT) FROM POSTGRES (url 'x@y', table 't')", "an address such as"),
        ("RELATION r (a INT) FROM POSTGRES (table 't', colour 'red')", "no option colour"),
    ],
)
def test_options_that_do_not_fit(declared: str, part: str) -> None:
    error = refused("P0208", lambda: source(f"CREATE {declared};"))
    assert part in str(error)


# --- secrets


def test_the_password_is_nowhere(db: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the address, the option, a file or the environment: it opens the door and is seen nowhere else."""
    db.execute("CREATE TABLE t (a int)")
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    in_address = db.url.replace("penstock@", f"penstock:{PASSWORD}@")
    here = f"host '127.0.0.1', port '{db.port}', user 'penstock', dbname 'postgres'"
    ways = [
        f"url '{in_address}'",
        f"url '{db.url}', password '{PASSWORD}'",
        f"url '{db.url}', password_file '{tmp_path}/secret'",
        f"{here}, password_env 'PENSTOCK_TEST_PASSWORD'",
    ]
    for way in ways:
        script = f"""CREATE RELATION r (a INT) FROM POSTGRES ({way}, table 't');
            CREATE QUERY q INTO POSTGRES ({way}, table 'out', mode 'append') AS SELECT a FROM r;
            SHOW QUERIES; SHOW RELATIONS; EXPLAIN SELECT a FROM r;"""
        session = Session()
        texts = "\n".join(session.execute(script).texts)
        query = session.catalog.queries["q"]
        open_source(session.catalog.sources["r"]).check()
        open_sink(query).open(False, False)
        told = [texts, session.explain("q"), repr(query), str(session.catalog.sources["r"]), open_sink(query).place]
        assert not [text for text in told if PASSWORD in text]
        assert PASSWORD.encode() not in pickle.dumps((query, session.catalog.sources["r"]))
        wrong = script.replace(PASSWORD, "wr0ng-one").replace("PENSTOCK_TEST_PASSWORD", "PATH")
        if "password_file" not in way:
            bound = bind_script(wrong)
            error = refused("P0401", open_source(bound.catalog.sources["r"]).check)
            assert "authentication failed" in error.message and "wr0ng" not in str(error)
        with pytest.raises(PenstockError, match="tabel") as caught:
            bind_script(script.replace("table 't'", "tabel 't'"))
        assert PASSWORD not in str(caught.value)
    assert PASSWORD not in "".join(capsys.readouterr())


def test_a_password_that_was_lost_on_the_way_is_asked_for(db: Server) -> None:
    bound = bind_script(f"CREATE RELATION r (a INT) FROM POSTGRES (url '{db.url}', password '{PASSWORD}', table 't');")
    again = pickle.loads(pickle.dumps(bound.catalog.sources["r"]))
    assert "password_env" in (refused("P0409", open_source(again).check).hint or "")


# --- time


def test_polls_by_time_wait_until_changes_have_settled(db: Server, tmp_path: Path) -> None:
    db.execute(
        "CREATE TABLE c (id int PRIMARY KEY, at timestamptz); INSERT INTO c VALUES (1, '2024-01-01'), (2, now())"
    )
    polled = "table 'c', version 'at', poll '1 ms', settle '10 minutes'"
    connector = source(f"CREATE STREAM s (id INT, at TIMESTAMP) FROM {options(db, polled)} TIMESTAMP BY at;")
    connector.keep_in(tmp_path)
    assert connector.reached() is None
    (first,) = connector.discover(frozenset())
    assert read(connector, first) == [(1,)]
    told = connector.reached()
    now = time.time_ns() // 1000
    assert told is not None and now - 1_200_000_000 < told < now - 590_000_000
    time.sleep(0.01)
    assert connector.discover(frozenset([first])) == []
    assert (connector.reached() or 0) > told
    db.execute("UPDATE c SET at = now() - interval '11 minutes' WHERE id = 2")
    time.sleep(0.01)
    assert read(connector, connector.discover(frozenset([first]))[0]) == [(2,)]


def test_polls_by_number_know_time_up_to_the_highest(db: Server, tmp_path: Path) -> None:
    db.execute("CREATE TABLE c (id int PRIMARY KEY, name text, changed bigint); INSERT INTO c VALUES (1, 'a', 5)")
    connector = polling(db)
    connector.keep_in(tmp_path)
    connector.discover(frozenset())
    assert connector.reached() == 5
    settled = (
        "CREATE STREAM s (c BIGINT) FROM POSTGRES (table 'c', version 'c', poll '1 s', settle '1 s') TIMESTAMP BY c;"
    )
    assert "by time" in refused("P0208", lambda: source(settled)).message
