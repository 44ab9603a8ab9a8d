"""Statements beside queries: what they declare, and what a script hands on."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.algebra import OnError, Source
from penstock.algebra.nodes.query import SinkSpec
from penstock.language.scripts import BoundScript, Catalog, Explain, SelectOnce, Show, bind_query, bind_script
from penstock.types import CALENDAR, TIMESTAMP, Field, Schema, TimeDomain, Unit


def _source(text: str) -> Source:
    (source,) = bind_script(text).catalog.sources.values()
    return source


def test_a_stream_with_every_clause() -> None:
    source = _source("""CREATE STREAM Flights (Id BIGINT, fare DECIMAL(8,2), code VARCHAR(10), ts TIMESTAMP)
        FROM FILES (path 'data/*.csv', header 'TRUE', delimiter ';', order 'modified', watch 'true')
        ON ERROR SKIP ORDER WITHIN 1.5 MINUTES TIMESTAMP BY TS""")
    assert source.name == "Flights" and source.is_stream
    assert source.columns.names == ("Id", "fare", "code", "ts")
    assert source.columns.types == (pa.int64(), pa.decimal128(8, 2), pa.string(), TIMESTAMP)
    assert source.options == (
        ("path", "data/*.csv"),
        ("header", "true"),
        ("delimiter", ";"),
        ("order", "modified"),
        ("watch", "true"),
        ("format", "csv"),
    )
    assert (source.timestamp, source.domain, source.slack) == (3, CALENDAR, 90_000_000)
    assert source.on_error is OnError.SKIP


@pytest.mark.parametrize(
    ("unit", "expected"), [("", Unit.SECOND), ("UNIT MILLISECOND", Unit.MILLISECOND), ("UNIT us", Unit.MICROSECOND)]
)
def test_domains_of_integers(unit: str, expected: Unit) -> None:
    source = _source(f"CREATE STREAM s (a BIGINT) FROM MEMORY () TIMESTAMP BY a {unit} ORDER WITHIN 2 SECONDS")
    assert source.domain == TimeDomain(expected, False)
    assert source.slack == 2_000_000 // expected.value
    assert source.on_error is OnError.DEAD_LETTER


def test_relations() -> None:
    static = _source("CREATE RELATION r (a INT) FROM FILES (path 'x.parquet')")
    assert static.is_static and static.option("format") == "parquet"
    updated = _source("CREATE RELATION r (a INT, op STRING) FROM MEMORY () TIMESTAMP BY a OPERATION BY op")
    assert (updated.is_static, updated.timestamp, updated.operation) == (False, 0, 1)


@pytest.mark.parametrize(
    ("path", "format_"),
    [("a.csv", "csv"), ("a.csv.gz", "csv"), ("a/*.JSONL", "json"), ("a.feather", "arrow"), ("x/*.parquet", "parquet")],
)
def test_the_path_tells_the_format(path: str, format_: str) -> None:
    assert _source(f"CREATE RELATION r (a INT) FROM FILES (path '{path}')").option("format") == format_


def test_queries_and_their_sinks(catalog: Catalog) -> None:
    bound = bind_script(
        """CREATE QUERY one INTO FILES (path 'out') AS SELECT a FROM s;
           CREATE QUERY two AS SELECT a FROM s;
           CREATE QUERY three INTO memory () AS SELECT a FROM s""",
        catalog,
    )
    assert [(q.name, q.sink) for q in bound.queries] == [
        ("one", SinkSpec("FILES", (("path", "out"), ("format", "csv")))),
        ("two", SinkSpec("CONSOLE")),
        ("three", SinkSpec("MEMORY")),
    ]
    assert bound.queries[1].text == "CREATE QUERY two AS SELECT a FROM s"
    assert set(bound.catalog.queries) == {"one", "two", "three"}


def test_a_query_as_a_statement_of_its_own_declares_nothing(catalog: Catalog) -> None:
    bound = bind_script(
        "SET seed = 7; SELECT b AS c, a FROM s [NOW] ORDER BY x AS OF '2020-01-01'; SET seed = 8", catalog
    )
    assert bound.queries == () and bound.catalog.queries == {}
    (action,) = bound.actions
    assert isinstance(action, SelectOnce) and action.settings.get_int("seed") == 7
    assert (action.query.output_names, action.query.as_of) == (("c", "a"), 1_577_836_800_000_000)
    assert (action.position.line, action.position.column) == (1, 15)


def test_columns_of_one_name_get_numbers(catalog: Catalog) -> None:
    (action,) = bind_script("SELECT a, a AS A, b AS ts FROM s", catalog).actions
    assert isinstance(action, SelectOnce) and action.query.output_names == ("a", "A_1", "ts")


def test_insert_keeps_values_of_the_columns_types() -> None:
    bound = bind_script("""CREATE RELATION r (a INT, d DECIMAL(5,2), t TIMESTAMP, day DATE, b BOOLEAN, s STRING) FROM MEMORY ();
        INSERT INTO r VALUES (1 + 1, 2.5, TIMESTAMP '2020-01-01 10:00:00', '2020-01-02', TRUE, 'it''s'), (-3, 1, NULL, NULL, NULL, 7);
        INSERT INTO R VALUES (NULL, NULL, NULL, NULL, NULL, NULL)""")  # noqa: E501
    first, second, third = bound.catalog.memory["r"]
    assert first[0] == 2 and first[1] == Decimal("2.50") and first[3] == dt.date(2020, 1, 2)
    assert first[2] == dt.datetime(2020, 1, 1, 10, tzinfo=dt.UTC) and first[4:] == (True, "it's")
    assert second[0] == -3 and second[5] == "7"
    assert third == (None,) * 6


def test_show_and_explain_come_in_order(catalog: Catalog) -> None:
    bound = bind_script(
        "SHOW RELATIONS; EXPLAIN SELECT a FROM s; CREATE VIEW v AS SELECT a FROM s; SHOW VIEWS", catalog
    )
    first, explain, last = bound.actions
    assert isinstance(first, Show) and [name for name, _ in first.entries] == ["r", "u"]
    assert isinstance(explain, Explain) and explain.query.root == bind_query("SELECT a FROM s", catalog).root
    assert last == Show("VIEWS", (("v", "CREATE VIEW v AS SELECT a FROM s"),))
    assert bound.queries == ()


def test_drop(catalog: Catalog) -> None:
    bound = bind_script(
        """CREATE QUERY q AS SELECT a FROM s; CREATE VIEW v AS SELECT a FROM s; DROP QUERY q; DROP VIEW V;
           CREATE VIEW v AS SELECT b FROM s; DROP RELATION r""",
        catalog,
    )
    assert bound.queries == () and "q" not in bound.catalog and "r" not in bound.catalog
    assert bound.catalog.views["v"].names == ("b",)
    assert "r" in catalog


def test_a_script_builds_on_a_catalog_and_settings(catalog: Catalog) -> None:
    first: BoundScript = bind_script("SET seed = 7; CREATE VIEW v AS SELECT a FROM s", catalog)
    second = bind_script("CREATE QUERY q AS SELECT a FROM v", first.catalog, first.settings)
    assert second.settings.get_int("seed") == 7 and len(second.queries) == 1


def test_a_source_of_python_takes_part() -> None:
    frame = Source("df", True, Schema((Field("k", pa.int64()), Field("at", TIMESTAMP))), "DATAFRAME", (), 1, CALENDAR)
    catalog = Catalog().with_source(frame)
    assert bind_query("SELECT k FROM DF [RANGE 1 HOUR]", catalog).output_names == ("ts", "op", "k")


def test_settings_of_spark_pass_as_they_are() -> None:
    bound = bind_script("SET spark.sql.shuffle.partitions = 7; SET shards = 3;")
    assert bound.settings.spark == {"spark.sql.shuffle.partitions": "7"}
    assert bound.settings["shards"] == 3
