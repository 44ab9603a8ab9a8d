"""A windowed query as a chart of Grafana: what its PostgreSQL data source sends, with its macros as it expands them.
And the catalogs of queries agree with what a SELECT of them returns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from penstock.server.roles import AccessRole
from tests.server.fake_service import eventually
from tests.server.pgwire.running import RunningPg, in_process, running_pg

LOAD = """CREATE QUERY load AS RSTREAM(SELECT room, AVG(celsius) AS celsius, COUNT(*) AS n
  FROM readings [RANGE 10 MINUTES SLIDE 10 MINUTES] GROUP BY room);
CREATE QUERY hot AS SELECT ISTREAM(at AS ts, room) FROM readings [NOW] WHERE celsius > 19"""
READINGS = [("2024-03-01 09:01:00", "hall", 19.0), ("2024-03-01 09:02:00", "hall", 20.0),
            ("2024-03-01 09:11:00", "hall", 21.0), ("2024-03-01 09:12:00", "attic", 23.0),
            ("2024-03-01 09:31:00", "hall", 22.0)]  # fmt: skip
FILTER = "ts BETWEEN '2024-03-01T09:00:00Z' AND '2024-03-01T10:00:00Z'"
GROUP = "floor(extract(epoch from ts)/1200)*1200"
#: 09:00 and 09:20, in seconds since 1970.
NINE, TWENTY_PAST = 1_709_283_600, 1_709_284_800


@pytest.fixture
def charted(tmp_path: Path) -> Iterator[RunningPg]:
    service = in_process(tmp_path)
    try:
        with running_pg(tmp_path, service) as pg:
            for one in LOAD.split(";"):
                pg.rows(one)
            pg.post(READINGS)
            eventually(lambda: len(pg.rows("SELECT * FROM load")) == 3)
            yield pg
    finally:
        service.close()


def test_a_chart_of_a_windowed_query(charted: RunningPg) -> None:
    # $__time(ts), $__timeFilter(ts)
    chart = f'SELECT ts AS "time", room AS metric, celsius AS value FROM load WHERE {FILTER} ORDER BY 1, 2'
    series = charted.rows(chart)
    assert [(at.astimezone().timestamp(), *rest) for at, *rest in series] == [
        (NINE + 600, "hall", 19.5),
        (TWENTY_PAST, "attic", 23.0),
        (TWENTY_PAST, "hall", 21.0),
    ]
    # $__timeGroupAlias(ts, 20m), as the editor of queries writes it
    grouped = f'SELECT {GROUP} AS "time", room AS "metric", avg(celsius) AS "value" FROM load WHERE {FILTER}'
    expected = [(NINE, "hall", 19.5), (TWENTY_PAST, "attic", 23.0), (TWENTY_PAST, "hall", 21.0)]
    for behind in (
        f"GROUP BY {GROUP}, room ORDER BY {GROUP}, room",
        "GROUP BY 1, 2 ORDER BY 1, 2",
        'GROUP BY "time", room ORDER BY "time", room',
        "GROUP BY 1, room ORDER BY 1, room",
    ):
        assert charted.rows(f"{grouped} {behind}") == expected, behind
    # $__timeEpoch(ts), $__timeFrom(), $__timeTo()
    between = "ts >= '2024-03-01T09:15:00Z' AND ts <= '2024-03-01T09:25:00Z'"
    epochs = f'SELECT extract(epoch from ts) AS "time", n FROM load WHERE {between} ORDER BY 1'
    assert charted.rows(epochs) == [(TWENTY_PAST, 1), (TWENTY_PAST, 1)]
    # $__unixEpochFilter and $__unixEpochGroup, over seconds since 1970
    seconds = "extract(epoch from ts)"
    within = f"{seconds} >= {NINE} AND {seconds} <= {NINE + 1199}"
    counted = f"SELECT floor(({seconds})/1200)*1200 AS time, count(*) FROM load WHERE {within} GROUP BY 1"
    assert charted.rows(counted) == [(NINE, 1)]
    # What the editor asks to find the column of times and the columns of values
    columns = 'SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns'
    assert charted.rows(f"{columns} WHERE quote_ident(table_name) = 'load'") == [
        ("ts", "timestamp with time zone"),
        ("room", "text"),
        ("celsius", "double precision"),
        ("n", "bigint"),
    ]


@pytest.mark.parametrize("name", ["load", "hot", "warm", "readings", "rooms", "upstairs"])
def test_the_catalogs_list_what_a_select_returns(charted: RunningPg, name: str) -> None:
    pandas, sqlalchemy = pytest.importorskip("pandas"), pytest.importorskip("sqlalchemy")
    columns = []
    if name != "readings":
        # The rows of a stream that is not retained are not there to be read without Spark.
        with charted.connect() as connection:
            columns = [one.name for one in connection.execute(f"SELECT * FROM {name}").description or ()]
    described = charted.rows(
        "SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " WHERE c.relname = %s AND a.attnum > 0 ORDER BY a.attnum",
        name,
    )
    information = charted.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND table_schema = 'public'"
        " ORDER BY ordinal_position",
        name,
    )
    assert described == information
    if name == "readings":
        return
    assert [column for (column,) in described] == columns
    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg://admin:{charted.texts[AccessRole.ADMIN]}@127.0.0.1:{charted.port}/penstock"
    )
    try:
        assert [one["name"] for one in sqlalchemy.inspect(engine).get_columns(name)] == columns
        assert list(pandas.read_sql_table(name, engine).columns) == columns
    finally:
        engine.dispose()


def test_the_columns_of_a_stream_begin_with_its_timestamp(charted: RunningPg) -> None:
    rows = charted.rows("SELECT * FROM hot ORDER BY ts")
    assert len(rows) == 3 and all(isinstance(ts, datetime) and ts == at for ts, at, _ in rows)


def test_a_connection_reads_what_it_has_written(charted: RunningPg) -> None:
    with charted.connect() as connection:
        for number in range(10):
            at = f"2024-03-01 11:{number:02}:00"
            if number % 2:
                with connection.cursor().copy("COPY readings (at, room, celsius) FROM STDIN") as copy:
                    copy.write_row((at, "hall", 20.0))
            else:
                connection.execute(f"INSERT INTO readings VALUES (TIMESTAMP '{at}', 'hall', 20.0)")
            (position,) = connection.execute("SHOW penstock.position").fetchone() or ("",)
            connection.execute(f"SET penstock.after = '{position}'")
            assert connection.execute("SHOW penstock.after").fetchone() == (position,)
            assert connection.execute("SELECT COUNT(*) FROM hot").fetchone() == (4 + number,)
        with pytest.raises(psycopg.Error, match="no position"):
            connection.execute("SET penstock.after = 'x'")
            connection.execute("SELECT COUNT(*) FROM hot")
        connection.execute("RESET penstock.after")
        assert connection.execute("SELECT COUNT(*) FROM hot").fetchone()
