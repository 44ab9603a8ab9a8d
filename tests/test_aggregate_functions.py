"""Aggregates of two arguments, of conditions and of texts: over every kind of window, cut into rounds and over shards,
with unusual values, as the oracle; and as DuckDB has them."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.aggregates import AGGREGATES
from penstock.language.scripts import bind_script
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

COLUMNS = "k INT, p BOOLEAN, a STRING, x DOUBLE, y DOUBLE, m DECIMAL(24,2), i BIGINT, j BIGINT"
DECLARED = (
    f"CREATE STREAM S (ts INT, {COLUMNS}) FROM MEMORY () TIMESTAMP BY ts;"
    f"CREATE RELATION U (ts INT, op STRING, {COLUMNS}) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;"
)
ITEMS = {
    "texts": "STRING_AGG(a, '-') AS s, STRING_AGG(DISTINCT a, '') AS d, STRING_AGG(a, ', ') FILTER (WHERE p) AS f,"
    " ARRAY_AGG(a) AS v",
    "by": "MIN_BY(a, x) AS q, MAX_BY(a, x) AS r, MIN_BY(x, a) AS s, MAX_BY(m, a) AS t, MAX_BY(a, m) AS u,"
    " MIN_BY(p, m) FILTER (WHERE x > 0) AS v, MAX_BY(k, p) AS w, MIN_BY(DISTINCT i, j) AS z",
    "ordered": "ARRAY_AGG(a ORDER BY x DESC) AS q, ARRAY_AGG(x ORDER BY a NULLS LAST, m DESC) AS r,"
    " STRING_AGG(a, '-' ORDER BY m DESC NULLS FIRST, p) AS s, STRING_AGG(DISTINCT a, '' ORDER BY a DESC) AS t,"
    " ARRAY_AGG(i ORDER BY p DESC, k) FILTER (WHERE x > 0) AS u, FIRST(a ORDER BY i, x DESC) AS v,"
    " LAST(x ORDER BY a DESC NULLS FIRST) AS w, FIRST(m ORDER BY a DESC, x) FILTER (WHERE p) AS z",
    "within": "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY y DESC) AS q, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY a)"
    " AS r, PERCENTILE_DISC(0.7) WITHIN GROUP (ORDER BY m DESC) AS s, MODE() WITHIN GROUP (ORDER BY a DESC) AS t,"
    " MODE() WITHIN GROUP (ORDER BY p) AS u, LISTAGG(a, '+') WITHIN GROUP (ORDER BY x DESC, i) FILTER (WHERE p) AS v",
    "conditions": "COUNT_IF(p) AS c, COUNT_IF(x > 1) FILTER (WHERE p) AS d, BOOL_AND(p) AS e, BOOL_OR(p) AS o,"
    " BOOL_AND(x < 2) FILTER (WHERE k > 0) AS f, BOOL_OR(DISTINCT p) AS g, ANY_VALUE(a) AS n, BIT_OR(i) AS b,"
    " COUNT(p) AS h",
    "integers": "COVAR_POP(i, j) AS p, COVAR_SAMP(i, j) AS s, CORR(i, j) AS r, COVAR_POP(DISTINCT i, j) AS d,"
    " CORR(k, i) FILTER (WHERE p) AS f",
    "doubles": "COVAR_POP(x, y) AS p, COVAR_SAMP(x, y) AS s, CORR(x, y) AS r, CORR(DISTINCT y, x) AS d,"
    " COVAR_SAMP(x, i) FILTER (WHERE p) AS f, COVAR_POP(m, k) AS m",
}
WINDOWS = (
    "SELECT k, {} FROM S [RANGE 9 SECONDS] GROUP BY k",
    "SELECT {} FROM S [ROWS 3]",
    "SELECT {} FROM S [PARTITION BY k ROWS 2]",
    "SELECT k, {} FROM S GROUP BY k",
    "RSTREAM(SELECT k, {} FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT {} FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS])",
    "ISTREAM(SELECT k, {} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "DSTREAM(SELECT {} FROM S [RANGE 2 SECONDS])",
    "SELECT {} FROM S [RANGE 6 TUPLES, FREQUENCY 2 TUPLES]",
    "SELECT k, {} FROM U GROUP BY k",
)
RUNS = (CaseRun(), CaseRun(batch_rows=7, reload=True), CaseRun(3, seed=5, batch_rows=40))

_TYPES = (pa.int32(), pa.bool_(), pa.string(), pa.float64(), pa.float64(), pa.decimal128(24, 2), pa.int64(), pa.int64())
_NAN, _INF = math.nan, math.inf
#: By column; of doubles: such as are exact beside each other.
ORDINARY = ((0, 1), (True, False, None), ("b", "a", "", "a\0", "aaaaaaaab", "aaaaaaaa", "é", None),
            (0.1, 0.5, -0.0, 0.0, 3.0, 1e3 + 0.1, None), (1.0, 0.1, -7.25, 1e3, None),
            (Decimal("-1.50"), Decimal("0"), Decimal(2**64) / 4, Decimal(2**64) / 4 + 1, None),
            (0, 1, -1, 2**63 - 1, -(2**63), 2**62, None), (2**63 - 1, -(2**63), 5, 6, None))  # fmt: skip
HUGE = (*ORDINARY[:3], (1e308, -1.7e308, 0.5, 1.0, None), (1e308, 0.25, -1e308, -2.0, None), *ORDINARY[5:])
SPECIAL = (*ORDINARY[:3], (_NAN, _INF, -_INF, 0.5, 1.0, 1e308), (_INF, 1.0, 2.0, _NAN, -1e308, None), *ORDINARY[5:])
#: Doubles of which products lie far apart, so that what expires would leave a residue in a pair of doubles.
FAR = (*ORDINARY[:3], (1e9 + 0.1, 1e9, 0.1, 0.7, None), (1e9 + 0.1, 0.1, 1e-3, None), *ORDINARY[5:])
FARTHER = (*ORDINARY[:3], (1e19, 1e-20, 0.7), (0.3, 0.1, 1e15, None), *ORDINARY[5:])
OVERFLOW = (*ORDINARY[:3], (1e300, 0.1, 0.7, None), (-1e300, 0.1, 0.7), *ORDINARY[5:])


def inputs(seed: int, values: tuple[tuple[object, ...], ...], size: int = 45) -> dict[str, pa.Table]:
    """Return rows of the stream, and of the relation: each is taken back, or not."""
    draw = random.Random(seed)
    rows = [tuple(draw.choice(choices) for choices in values) for _ in range(size)]
    ts = sorted(draw.randint(0, 40) for _ in rows)
    changes = [(t, "+", row) for t, row in zip(ts, rows, strict=True)]
    changes += [(t + draw.randint(1, 9), "-", row) for t, _, row in changes if draw.random() < 0.7]
    changes.sort(key=lambda change: change[0])
    return {
        "S": table(ts, None, rows),
        "U": table([c[0] for c in changes], [c[1] for c in changes], [c[2] for c in changes]),
    }


def table(ts: list[int], ops: list[str] | None, rows: list[tuple[object, ...]]) -> pa.Table:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    columns = {"ts": pa.array(ts, pa.int32()), **({} if ops is None else {"op": pa.array(ops)})}
    for place, (name, type_) in enumerate(zip(names, _TYPES, strict=True)):
        columns[name] = pa.array([row[place] for row in rows], type_)
    return pa.table(columns)


@pytest.mark.parametrize(
    ("items", "seed", "values"),
    [
        *((items, 0, ORDINARY) for items in ITEMS),
        *(
            (items, seed, values)
            for items in ("by", "ordered", "doubles")
            for seed, values in ((1, HUGE), (2, SPECIAL))
        ),
        *(("doubles", seed, values) for seed, values in ((3, FAR), (4, FARTHER), (5, OVERFLOW))),
    ],
    ids=[
        *ITEMS,
        *("by-huge", "by-special", "ordered-huge", "ordered-special", "doubles-huge", "doubles-special"),
        *("doubles-far", "doubles-farther", "doubles-overflow"),
    ],
)
@pytest.mark.spread(2)
@pytest.mark.parametrize("run", RUNS[1:], ids=("reloaded", "shards"))
def test_every_window_gives_what_its_rows_give(
    items: str, seed: int, values: tuple[tuple[object, ...], ...], run: CaseRun
) -> None:
    script = DECLARED + "".join(f"CREATE QUERY q{n} AS {q.format(ITEMS[items])};" for n, q in enumerate(WINDOWS))
    queries = bind_script(script).queries
    given = inputs(seed, values)
    answers = {q.name: run_oracle(q, given) for q in queries}
    found = run.answer(queries, given, False, None)
    for query in queries:
        assert_same(query, found.tables[query.name], answers[query.name], tolerance=4e-16 if seed else 1e-14)


#: Ours -> DuckDB's. Its ARG_MIN leaves rows out whose value is NULL, and takes any of equal ones.
DUCKDB = {
    "COUNT_IF(p)": "COUNT_IF(p)",
    "BOOL_AND(p)": "BOOL_AND(p)",
    "BOOL_OR(x > 1)": "BOOL_OR(x > 1)",
    "STRING_AGG(a, '-')": "STRING_AGG(a, '-' ORDER BY ts, a)",
    "STRING_AGG(DISTINCT a, ', ')": "STRING_AGG(DISTINCT a, ', ' ORDER BY a)",
    "MIN_BY(a, x)": "(LIST(a ORDER BY x, a NULLS FIRST) FILTER (WHERE x IS NOT NULL))[1]",
    "MAX_BY(a, x)": "(LIST(a ORDER BY x, a NULLS FIRST) FILTER (WHERE x IS NOT NULL))[-1]",
    "MIN_BY(ts, i)": "ARG_MIN(ts, i)",
    "MAX_BY(x, m)": "(LIST(x ORDER BY m, x NULLS FIRST) FILTER (WHERE m IS NOT NULL))[-1]",
    "BIT_XOR(i)": "BIT_XOR(i)",
    "COVAR_POP(x, y)": "COVAR_POP(x, y)",
    "COVAR_SAMP(y, x)": "COVAR_SAMP(y, x)",
    "COVAR_POP(k, i)": "COVAR_POP(k, i)",
    "CORR(x, y)": "CASE WHEN REGR_SXX(x, y) > 0 AND REGR_SYY(x, y) > 0 THEN CORR(x, y) END",
}


@pytest.mark.parametrize("ours", DUCKDB)
def test_duckdb_says_the_same(ours: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    query = bind_script(f"{DECLARED} CREATE QUERY q AS SELECT k, {ours} AS v FROM S GROUP BY k;").queries[0]
    doubles = ((0.1, 0.5, 3.0, 8.5, None), (1.0, 0.1, -7.25, 2.0, None))
    whole = (tuple(range(-20, 20)), (5, 6, None))
    for seed in range(5):
        values = (*ORDINARY[:3], *doubles, ORDINARY[5], *whole)
        given = inputs(seed, values, 3 + 2 * seed)["S"]
        if "ts, i" in ours:
            given = given.slice(0, 1)
        connection = duckdb.connect()
        connection.register("S", given)
        plain = dict(connection.execute(f"SELECT k, {DUCKDB[ours]} FROM S GROUP BY k").fetchall())
        found = RUNS[0].answer([query], {"S": given}, False, None).tables["q"]
        last = {row["k"]: row["v"] for row in found.to_pylist() if row["op"] == "+"}
        assert last.keys() == plain.keys()
        for key, value in last.items():
            assert value == (pytest.approx(plain[key], rel=1e-9, abs=1e-9) if type(value) is float else plain[key])


def test_sums_recover_when_huge_values_leave() -> None:
    """A covariance beyond the largest double is finite, and exact to the last bits, when what made it so is gone."""
    items = "COVAR_POP(x, y) AS p, CORR(x, y) AS r"
    queries = bind_script(f"{DECLARED} CREATE QUERY q AS SELECT {items} FROM S [RANGE 4 SECONDS];").queries
    small = [(0.1, 0.3), (0.7, 0.2), (1e-3, 5.0)]
    pairs = [*small, (1.7e308, 1.7e308), (1.7e308, -1e308), (1e308, 0.1), *small]
    rows = [(0, None, None, x, y, None, None, None) for x, y in pairs]
    given = {"S": table([0, 0, 1, 2, 2, 3, 5, 6, 6], None, rows)}
    found = RUNS[0].answer(queries, given, True, None).tables["q"]
    assert_same(queries[0], found, run_oracle(queries[0], given, drain=True), tolerance=4e-16)
    assert any(row["p"] is not None and math.isinf(row["p"]) for row in found.to_pylist())


@pytest.mark.parametrize(
    ("item", "code", "column"),
    [
        ("COUNT_IF(DISTINCT p)", "P0204", 8),
        ("COUNT_IF(k)", "P0203", 8),
        ("COUNT_IF(*)", "P0304", 17),
        ("BOOL_AND(a)", "P0203", 8),
        ("STRING_AGG(a)", "P0204", 8),
        ("STRING_AGG(a, a)", "P0203", 8),
        ("STRING_AGG(a, NULL)", "P0203", 8),
        ("ARRAY_AGG(DISTINCT a ORDER BY k)", "P0304", 8),
        ("FIRST(DISTINCT a ORDER BY k)", "P0304", 8),
        ("SUM(k ORDER BY x)", "P0304", 8),
        ("COUNT(* ORDER BY x)", "P0304", 8),
        ("UPPER(a ORDER BY x)", "P0304", 14),
        ("ARRAY_AGG(a ORDER BY ALL)", "P0304", 18),
        ("ARRAY_AGG(a ORDER BY ARRAY_AGG(k))", "P0304", 29),
        ("ARRAY_AGG(a ORDER BY nothing)", "P0202", 29),
        ("STRING_AGG(a ORDER BY x)", "P0204", 8),
        ("PERCENTILE_CONT(0.5)", "P0204", 8),
        ("PERCENTILE_DISC(x, 0.5)", "P0204", 8),
        ("PERCENTILE_CONT(2) WITHIN GROUP (ORDER BY x)", "P0203", 8),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY p)", "P0203", 8),
        ("PERCENTILE_DISC(x) WITHIN GROUP (ORDER BY a)", "P0203", 8),
        ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a, x)", "P0204", 8),
        ("PERCENTILE_DISC(DISTINCT 0.5) WITHIN GROUP (ORDER BY a)", "P0204", 8),
        ("MODE(a) WITHIN GROUP (ORDER BY a)", "P0204", 8),
        ("MODE()", "P0204", 8),
        ("ARRAY_AGG(a) WITHIN GROUP (ORDER BY x)", "P0304", 8),
        ("SUM(x) WITHIN GROUP (ORDER BY x)", "P0304", 8),
        ("LISTAGG(a, '' ORDER BY x) WITHIN GROUP (ORDER BY x)", "P0304", 19),
        ("UPPER(a) WITHIN GROUP (ORDER BY x)", "P0304", 8),
        ("MODE() WITHIN GROUP (a)", "P0101", 29),
        ("MIN_BY(a)", "P0204", 8),
        ("MAX_BY(ARRAY_AGG(a), k)", "P0304", 15),
        ("CORR(x)", "P0204", 8),
        ("COVAR_POP(x, p)", "P0203", 8),
        ("ANY_VALUE(a, x)", "P0204", 8),
        ("SOME(p)", "P0901", 8),
    ],
)
def test_refused(item: str, code: str, column: int) -> None:
    with pytest.raises((PenstockError, ScriptErrors)) as caught:
        bind_script(f"{DECLARED}\nSELECT {item} FROM S [NOW];")
    (error,) = caught.value.errors if isinstance(caught.value, ScriptErrors) else [caught.value]
    assert error.position is not None
    assert (error.code, error.position.line, error.position.column) == (code, 2, column)


def test_no_two_aggregates_have_one_name() -> None:
    names = [name for function in AGGREGATES for name in (function.name, *function.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.upper() for name in names)
