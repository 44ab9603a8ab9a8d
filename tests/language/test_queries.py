"""What queries mean: the algebra they are bound to."""

from __future__ import annotations

import pyarrow as pa
import pytest
from plans import plan, shown

from penstock.algebra import Join, Project, RelationToStream, Window
from penstock.algebra.properties.update_pattern import Pattern
from penstock.language.scripts import Catalog, bind_query, bind_script, parse_script, print_statement
from penstock.settings import Settings
from penstock.tree import walk


def _lines(text: str) -> str:
    return "\n".join(line[8:] for line in text.strip("\n").splitlines()).rstrip()


def test_a_stream_without_window_is_unbounded_and_its_query_an_istream(catalog: Catalog) -> None:
    assert plan("SELECT a, x * 2 AS y FROM s WHERE a > 5 AND b = 'k'", catalog) == _lines("""
        RelationToStream ISTREAM
          Project a, x * 2 AS y
            Select a > 5 AND b = 'k'
              Window UNBOUNDED
                StreamScan s, a, b, x, ts
        """)


@pytest.mark.parametrize(
    ("window", "meaning"),
    [
        ("[NOW]", "NOW"),
        ("[RANGE 90 SECONDS]", "RANGE 90 SECOND"),
        ("[RANGE 1 DAY PRECEDING]", "RANGE 1 DAY"),
        ("[RANGE UNBOUNDED]", "UNBOUNDED"),
        ("[RANGE 10 MINUTES SLIDE 2 MINUTES]", "RANGE 10 MINUTE SLIDE 2 MINUTE"),
        ("[WINDOW 10 min SLIDE 2 min]", "RANGE 10 MINUTE SLIDE 2 MINUTE"),
        ("RANGE 15 MINUTE SLIDES 1 MINUTE", "RANGE 15 MINUTE SLIDE 1 MINUTE"),
        ("[NOW SLIDE 1 SECOND]", "NOW SLIDE 1 SECOND"),
        (
            "[RANGE 1 HOUR SLIDE 1 HOUR ALIGN TO TIMESTAMP '2020-01-01 00:15:00']",
            "RANGE 1 HOUR SLIDE 1 HOUR ALIGN TO 1970-01-01T00:15:00Z",
        ),
        ("[RANGE 0.5 SECONDS]", "RANGE 500 MILLISECOND"),
    ],
)
def test_windows(window: str, meaning: str, catalog: Catalog) -> None:
    assert f"Window {meaning}\n" in plan(f"RSTREAM(SELECT a FROM s {window})", catalog)


def test_ticks_are_of_the_streams_domain(catalog: Catalog) -> None:
    (window,) = [
        w
        for w in walk(bind_query("SELECT a FROM n [RANGE 2 MINUTES SLIDE 30 SECONDS]", catalog).root)
        if isinstance(w, Window)
    ]
    assert (window.length, window.slide) == (120, 30)


@pytest.mark.parametrize(
    ("text", "is_stream"),
    [
        ("SELECT a FROM s", True),
        ("SELECT a FROM s [RANGE 1 MINUTE]", False),
        ("SELECT DISTINCT a FROM s", True),
        ("SELECT COUNT(*) FROM s", False),
        ("SELECT a FROM r", False),
        ("SELECT a FROM u", False),
        ("SELECT s.a FROM s, r WHERE s.a = r.a", True),
        ("SELECT a FROM s UNION ALL SELECT a FROM t", True),
        ("RSTREAM(SELECT a FROM s [NOW])", True),
    ],
)
def test_what_a_query_without_operator_gives(text: str, is_stream: bool, catalog: Catalog) -> None:
    assert bind_query(text, catalog).root.is_stream is is_stream


@pytest.mark.parametrize("kind", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_the_three_ways_to_write_an_operator(kind: str, catalog: Catalog) -> None:
    texts = [
        f"{kind}(SELECT a, b FROM s [NOW])",
        f"SELECT {kind}(a, b) FROM s [NOW]",
        f"{kind} SELECT a, b FROM s [NOW]",
    ]
    first, *others = [bind_query(text, catalog).root for text in texts]
    assert isinstance(first, RelationToStream) and first.kind.value == kind
    assert all(other == first for other in others)


def test_grouping(catalog: Catalog) -> None:
    text = """SELECT b, COUNT(*), SUM(x) / COUNT(*) AS mean, COUNT(DISTINCT a) FILTER (WHERE x > 1)
              FROM s [RANGE 1 MINUTE] GROUP BY b HAVING SUM(x) > 1"""
    query = bind_query(text, catalog)
    assert query.output_names == ("ts", "op", "b", "count(*)", "mean", "count(distinct a) filter (where x > 1)")
    assert shown(query.root).splitlines()[1:3] == [
        "  Select sum(x) > 1",
        "    Aggregate b, count(*), sum(x), count(DISTINCT a) FILTER (WHERE x > 1)",
    ]


def test_grouping_by_expressions_aliases_and_positions(catalog: Catalog) -> None:
    texts = ["SELECT a % 10 AS k, MAX(x) FROM s GROUP BY a % 10", "SELECT a % 10 AS k, MAX(x) FROM s GROUP BY k",
             "SELECT a % 10 AS k, MAX(x) FROM s GROUP BY 1"]  # fmt: skip
    first, *others = [bind_query(text, catalog).root for text in texts]
    assert all(other == first for other in others)
    assert bind_query("SELECT a + 1, (a + 1) * COUNT(*) FROM s GROUP BY a + 1", catalog).root.schema.types == (
        pa.int32(),
        pa.int64(),
    )


def test_positions_may_begin_with_zeros(catalog: Catalog) -> None:
    zeros = "SELECT b, COUNT(*) FROM s GROUP BY 00000000000001 ORDER BY 00000000000002 LIMIT 1"
    assert plan(zeros, catalog) == plan("SELECT b, COUNT(*) FROM s GROUP BY 1 ORDER BY 2 LIMIT 1", catalog)


def test_a_column_wins_over_an_alias_in_group_by(catalog: Catalog) -> None:
    text = "SELECT MAX(a) AS b FROM s GROUP BY b"
    assert "Aggregate b, max(a)" in plan(text, catalog)


def test_having_without_group_and_with_an_alias(catalog: Catalog) -> None:
    assert plan("SELECT COUNT(*) AS many FROM s HAVING many > 3", catalog) == _lines("""
        Project count(*) AS many
          Select count(*) > 3
            Aggregate (), count(*)
              Window UNBOUNDED
                StreamScan s, a, b, x, ts
        """)


def test_grouping_without_aggregates_is_distinct(catalog: Catalog) -> None:
    assert "Distinct" in plan("SELECT b FROM s [RANGE 1 MINUTE] GROUP BY b", catalog)
    assert bind_query("SELECT b FROM s [RANGE 1 MINUTE] GROUP BY b", catalog).root.pattern is Pattern.WEAK


def _joins(text: str, catalog: Catalog) -> list[Join]:
    return [node for node in walk(bind_query(text, catalog).root) if isinstance(node, Join)]


def test_equal_pairs_of_where_on_and_using_are_one(catalog: Catalog) -> None:
    comma = _joins("SELECT name FROM s, r WHERE s.a = r.a", catalog)
    on = _joins("SELECT name FROM s JOIN r ON r.a = s.a", catalog)
    using = _joins("SELECT name FROM s JOIN r USING (a)", catalog)
    assert [j.equal for j in comma] == [((0, 0),)]
    assert comma == on == using


def test_what_is_no_equal_pair_is_residual_or_stays_above(catalog: Catalog) -> None:
    text = "SELECT name FROM s [NOW], t [NOW], r WHERE s.a = r.a AND s.x > t.y AND t.y > 2 AND b = name"
    assert plan(text, catalog) == _lines("""
        Project name
          Select y > 2
            Join ((0, 0), (1, 1))
              Join () x > y
                Window NOW
                  StreamScan s, a, b, x, ts
                Window NOW
                  StreamScan t, a, y, ts
              RelationScan r, a, name
        """)


def test_keys_of_different_types_are_cast_below_the_join(catalog: Catalog) -> None:
    (join,) = _joins("SELECT y FROM s [NOW], t [NOW] WHERE s.a = t.a", catalog)
    ((left, right),) = join.equal
    assert join.left.schema[left].type == join.right.schema[right].type == pa.int64()
    assert isinstance(join.left, Project) and isinstance(join.right, Window)


def test_keys_may_be_expressions_of_one_side(catalog: Catalog) -> None:
    (join,) = _joins("SELECT name FROM s, r WHERE s.a + 1 = r.a * 2", catalog)
    assert join.equal == ((4, 2),) and join.residual is None
    (join,) = _joins("SELECT name FROM s, r WHERE s.a + r.a = 2", catalog)
    assert join.equal == () and join.residual is not None


def test_star_of_joins(catalog: Catalog) -> None:
    def names(text: str) -> tuple[str, ...]:
        return bind_query(text, catalog).root.schema.names

    assert names("SELECT * FROM s, r") == ("a", "b", "x", "ts", "a", "name")
    assert names("SELECT r.*, s.x FROM s, r") == ("a", "name", "x")
    assert names("SELECT * FROM t JOIN s USING (ts)") == ("ts", "a", "y", "a", "b", "x")
    assert names("SELECT s.ts, t.ts FROM t JOIN s USING (ts)") == ("ts", "ts")
    assert bind_query("SELECT * FROM s, r", catalog).output_names == ("ts", "a", "b", "x", "ts_1", "a_1", "name")


def test_self_joins_and_brackets(catalog: Catalog) -> None:
    (join,) = _joins("SELECT * FROM s [NOW] AS s1, s [RANGE 30 SECONDS] AS s2 WHERE s1.a = s2.a", catalog)
    assert join.equal == ((0, 0),)
    assert len(_joins("SELECT z.name FROM s, (r JOIN r z ON r.a = z.a) WHERE s.a = r.a", catalog)) == 2


def test_union_all_finds_common_types(catalog: Catalog) -> None:
    query = bind_query(
        "SELECT a, b FROM s UNION ALL SELECT y, 'k' FROM t UNION ALL SELECT a, NULL FROM n_free",
        bind_script("CREATE RELATION n_free (a DOUBLE) FROM MEMORY ()", catalog).catalog,
    )
    assert query.root.schema.types == (pa.float64(), pa.string())
    assert len(query.root.inputs[0].inputs) == 3


def test_streams_in_a_union_are_unbounded(catalog: Catalog) -> None:
    text = "ISTREAM(SELECT a FROM s [NOW]) UNION ALL DSTREAM(SELECT a FROM s [NOW])"
    assert plan(text, catalog).splitlines()[:3] == ["RelationToStream ISTREAM", "  UnionAll", "    Window UNBOUNDED"]


def test_nested_queries(catalog: Catalog) -> None:
    flat = plan("SELECT k FROM (SELECT a AS k FROM s [NOW]) z WHERE k > 1", catalog)
    assert flat.count("Window") == 1 and "Window NOW" in flat
    over = plan("SELECT k FROM (SELECT a AS k FROM s) [RANGE 1 MINUTE] z", catalog)
    assert "Window RANGE 1 MINUTE\n    RelationToStream ISTREAM" in over
    assert plan("SELECT p FROM (SELECT a FROM s) AS z (p)", catalog).startswith("RelationToStream")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a, b, x / 2 AS half FROM s WHERE NOT (a > 1 AND b = 'it''s') OR x IS NULL",
        "SELECT b, COUNT(a) FILTER (WHERE x > 1) FROM s [RANGE 9 HOURS SLIDE 30 SECONDS] GROUP BY b HAVING MAX(x) > 1",
        "RSTREAM(SELECT DISTINCT s.a, r.* FROM s [NOW], r WHERE s.a = r.a AND x BETWEEN 1 AND 2)",
        "SELECT ISTREAM(z.a) FROM (SELECT a FROM s) [RANGE 1 HOUR SLIDE 1 HOUR ALIGN TO '2020-01-01 00:15:00'] z",
        "SELECT CASE a WHEN 1 THEN 'x' END, -a + 2 * (a - 1), ts + INTERVAL 5 MINUTES FROM s JOIN r USING (a)",
        "SELECT POSITION('a' IN b), TRIM(LEADING 'x' FROM b), EXTRACT(YEAR FROM ts), b LIKE 'a%' FROM s",
        "SELECT a FROM s UNION ALL SELECT a FROM t [NOW] UNION ALL (SELECT y FROM t)",
        "WITH v (k) AS (SELECT a FROM s) SELECT k FROM v [RANGE 1 DAY PRECEDING]",
    ],
)  # fmt: skip
def test_the_printed_query_has_the_same_plan(text: str, catalog: Catalog) -> None:
    (statement,) = parse_script(text).statements
    assert bind_query(print_statement(statement), catalog).root == bind_query(text, catalog).root


def test_views_are_expanded_in_place(catalog: Catalog) -> None:
    declared = bind_script(
        """CREATE VIEW big (k, v) AS SELECT a, x FROM s WHERE x > 100;
           CREATE VIEW sums AS SELECT k, SUM(v) AS total FROM big [RANGE 1 HOUR] GROUP BY k""",
        catalog,
    ).catalog
    assert plan("SELECT total, name FROM sums, r WHERE k = r.a", declared) == _lines("""
        Project total, name
          Join ((0, 0),)
            Project a AS k, sum(x) AS total
              Aggregate a, sum(x)
                Window RANGE 1 HOUR
                  RelationToStream ISTREAM
                    Project a, x
                      Select x > 100
                        Window UNBOUNDED
                          StreamScan s, a, b, x, ts
            RelationScan r, a, name
        """)


def test_with_names_queries_for_one_query(catalog: Catalog) -> None:
    declared = bind_script("CREATE VIEW v (k) AS SELECT a FROM s", catalog).catalog
    local = bind_query("WITH v (k) AS (SELECT a FROM s) SELECT k FROM v [NOW]", catalog).root
    assert local == bind_query("SELECT k FROM v [NOW]", declared).root


def test_names_fold_case_unless_quoted(catalog: Catalog) -> None:
    assert bind_query("select A, S.B from S", catalog).root == bind_query("SELECT a, b FROM s", catalog).root
    declared = bind_script("CREATE RELATION q (`My Col` INT, `SELECT` INT) FROM MEMORY ()").catalog
    assert bind_query("SELECT `My Col`, `SELECT` AS `X y` FROM q", declared).output_names == (
        "ts",
        "op",
        "My Col",
        "X y",
    )


def test_integer_division_is_a_setting(catalog: Catalog) -> None:
    settings = Settings().with_value("integer_division", "true")
    assert bind_query("SELECT a / 2 FROM s", catalog).root.schema.types == (pa.float64(),)
    assert pa.types.is_integer(bind_query("SELECT a / 2 FROM s", catalog, settings).root.schema[0].type)
    bound = bind_script(
        "CREATE QUERY p AS SELECT a / 2 FROM s; SET integer_division = true; CREATE QUERY q AS SELECT a / 2 FROM s",
        catalog,
    )
    assert [pa.types.is_integer(q.root.schema[0].type) for q in bound.queries] == [False, True]


@pytest.mark.parametrize(
    ("item", "name"),
    [("A", "a"), ("SUM(S.x)", "sum(x)"), ("COUNT(*)", "count(*)"), ("A/2", "a / 2"), ("UPPER('Ab')", "upper('Ab')"),
     ("`a`", "a"), ("CAST(a AS INT)", "cast(a as int)"), ("NULL", "null")],
)  # fmt: skip
def test_names_of_items(item: str, name: str, catalog: Catalog) -> None:
    assert bind_query(f"SELECT {item} FROM s GROUP BY a", catalog).root.schema.names == (name,)


@pytest.mark.parametrize(
    ("number", "type_"),
    [("1", pa.int32()), ("3000000000", pa.int64()), ("1.50", pa.decimal128(3, 2)), ("1e3", pa.float64()),
     ("5L", pa.int64()), ("0.05", pa.decimal128(2, 2)), ("99999999999999999999", pa.decimal128(20, 0))],
)  # fmt: skip
def test_types_of_numbers(number: str, type_: pa.DataType, catalog: Catalog) -> None:
    assert bind_query(f"SELECT {number} FROM s", catalog).root.schema.types == (type_,)


EXPRESSIONS = [
    "a <=> 1", "a IS DISTINCT FROM 2", "b IS NOT NULL", "(x > 1) IS TRUE", "a NOT IN (1, 2)", "NOT a BETWEEN 1 AND 2",
    "b LIKE 'a!%' ESCAPE '!'", "b NOT ILIKE 'A%'", "b RLIKE '^a'", "a DIV 2 = 1", "(a & 1) = 1", "b || 'x' = 'ax'",
    "CASE a WHEN 1 THEN TRUE ELSE FALSE END", "CASE WHEN a = 1 THEN TRUE END", "EXTRACT(HOUR FROM ts) = 1",
    "TRIM(BOTH 'x' FROM b) = ''", "SUBSTRING(b FROM 2 FOR 3) = 'b'", "POSITION('a' IN b) = 1", "b::INT = 1",
    "ts + INTERVAL 5 MINUTES > TIMESTAMP '2020-01-01'", "TRY_CAST(b AS INT) = 1", "-a < +a", "NOT NOT TRUE",
    "COALESCE(a, 1) = 1", "a = 1 AND (a = 2 OR a = 3)", "ts > DATE '2020-01-01'", "IF(a > 1, TRUE, FALSE)",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_bind(text: str, catalog: Catalog) -> None:
    assert "Select" in plan(f"SELECT a FROM s WHERE {text}", catalog)
