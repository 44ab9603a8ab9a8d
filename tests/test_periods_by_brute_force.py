"""All pairs of small periods, with open ends and NULLs: SQL:2011's predicates and Allen's relations against a
definition in Python and one over the bounds in DuckDB, and the joins by ranges that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.oracle import run_oracle

#: Whether p = [b, e) and q = [c, d) are so, and the same in SQL over columns b, e, c, d without NULLs.
PREDICATES: dict[str, tuple[Callable[[Any, Any, Any, Any], bool], str]] = {
    "OVERLAPS": (lambda b, e, c, d: bool({*range(b, _last(e))} & {*range(c, _last(d))}), "b < d AND c < e"),
    "CONTAINS": (lambda b, e, c, d: {*range(b, _last(e))} >= {*range(c, _last(d))}, "b <= c AND d <= e"),
    "EQUALS": (lambda b, e, c, d: (b, e) == (c, d), "b = c AND e = d"),
    "=": (lambda b, e, c, d: (b, e) == (c, d), "b = c AND e = d"),
    "PRECEDES": (lambda b, e, c, d: e <= c, "e <= c"),
    "SUCCEEDS": (lambda b, e, c, d: d <= b, "d <= b"),
    "IMMEDIATELY PRECEDES": (lambda b, e, c, d: e == c, "e = c"),
    "IMMEDIATELY SUCCEEDS": (lambda b, e, c, d: d == b, "d = b"),
    "MEETS": (lambda b, e, c, d: _allen(b, e, c, d) == "meets", "e = c"),
    "MET BY": (lambda b, e, c, d: _allen(b, e, c, d) == "met by", "d = b"),
    "BEFORE": (lambda b, e, c, d: _allen(b, e, c, d) == "before", "e < c"),
    "AFTER": (lambda b, e, c, d: _allen(b, e, c, d) == "after", "d < b"),
    "STARTS": (lambda b, e, c, d: _allen(b, e, c, d) == "starts", "b = c AND e < d"),
    "STARTED BY": (lambda b, e, c, d: _allen(b, e, c, d) == "started by", "b = c AND e > d"),
    "DURING": (lambda b, e, c, d: _allen(b, e, c, d) == "during", "c < b AND e < d"),
    "FINISHES": (lambda b, e, c, d: _allen(b, e, c, d) == "finishes", "c < b AND e = d"),
    "FINISHED BY": (lambda b, e, c, d: _allen(b, e, c, d) == "finished by", "b < c AND e = d"),
}
#: Allen's table, by the signs of b - c, b - d, e - c and e - d.
ALLEN = {
    (-1, -1, -1, -1): "before", (-1, -1, 0, -1): "meets", (-1, -1, 1, -1): "overlaps", (-1, -1, 1, 0): "finished by",
    (-1, -1, 1, 1): "contains", (0, -1, 1, -1): "starts", (0, -1, 1, 0): "equals", (0, -1, 1, 1): "started by",
    (1, -1, 1, -1): "during", (1, -1, 1, 0): "finishes", (1, -1, 1, 1): "overlapped by", (1, 0, 1, 1): "met by",
    (1, 1, 1, 1): "after",
}  # fmt: skip
_BOUNDS = [*range(7), None]
_PAIRS = list(product(_BOUNDS, repeat=4))


def _last(end: float) -> int:
    return 9 if end == inf else int(end)


def _allen(b: float, e: float, c: float, d: float) -> str:
    return ALLEN[tuple((x > y) - (x < y) for x, y in ((b, c), (b, d), (e, c), (e, d)))]  # type: ignore[index]


def period(begin: int | None, end: int | None) -> tuple[int, float] | None:
    """Return a period by its bounds, None where they are none."""
    last = inf if end is None else end
    return None if begin is None or begin >= last else (begin, last)


def expected(name: str) -> list[bool | None]:
    holds = PREDICATES[name][0]
    found = []
    for a, b, c, d in _PAIRS:
        p, q = period(a, b), period(c, d)
        found.append(None if p is None or q is None else holds(*p, *q))
    return found


def table() -> pa.Table:
    columns = [pa.array(column, pa.int64()) for column in zip(*_PAIRS, strict=True)]
    return pa.Table.from_arrays([pa.array(range(len(_PAIRS)), pa.int32()), *columns], names=list("nbecd"))


def answers(items: str, where: str = "") -> list[dict[str, Any]]:
    script = f"""CREATE RELATION r (n INT, b BIGINT, e BIGINT, c BIGINT, d BIGINT) FROM MEMORY ();
    CREATE QUERY q AS SELECT {items} FROM r {where};"""
    rows = run_local(bind_script(script).queries, {"r": table()}).tables["q"].to_pylist()
    return sorted(rows, key=lambda row: row["n"])


def test_every_predicate_is_its_definition_and_what_duckdb_says() -> None:
    items = ", ".join(f"PERIOD(b, e) {name} PERIOD(c, d) AS x{k}" for k, name in enumerate(PREDICATES))
    found = answers(f"n, {items}")
    assert len(found) == len(_PAIRS) == 4096
    connection = duckdb.connect()
    connection.register("pairs", table())
    for k, (name, (_, comparison)) in enumerate(PREDICATES.items()):
        wanted = expected(name)
        assert [row[f"x{k}"] for row in found] == wanted, name
        rows = connection.sql(f"""
            SELECT CASE WHEN b IS NULL OR c IS NULL OR b >= e OR c >= d THEN NULL ELSE {comparison} END
            FROM (SELECT n, b, COALESCE(e, 99) AS e, c, COALESCE(d, 99) AS d FROM pairs) ORDER BY n""")
        assert [row[0] for row in rows.fetchall()] == wanted, name
        assert {True, False, None} == set(wanted)


def test_allen_is_the_one_that_holds() -> None:
    found = answers("n, ALLEN(PERIOD(b, e), PERIOD(c, d)) AS x")
    both = [(period(*row[:2]), period(*row[2:])) for row in _PAIRS]
    wanted = [None if p is None or q is None else _allen(*p, *q) for p, q in both]
    assert [row["x"] for row in found] == wanted
    assert set(wanted) == {*ALLEN.values(), None}


@pytest.mark.parametrize("relation", ALLEN.values())
def test_allen_beside_a_constant_is_the_relation(relation: str) -> None:
    both = [(period(*row[:2]), period(*row[2:])) for row in _PAIRS]
    for wanted, sign in ((True, "="), (False, "<>")):
        rows = answers("n", f"WHERE ALLEN(PERIOD(b, e), PERIOD(c, d)) {sign} '{relation}'")
        chosen = [n for n, (p, q) in enumerate(both) if p and q and (_allen(*p, *q) == relation) is wanted]
        assert [row["n"] for row in rows] == chosen


def test_functions_of_periods() -> None:
    items = (
        "n, BEGIN(PERIOD(b, e)) AS x0, END(PERIOD(b, e)) AS x1, LENGTH(PERIOD(b, e)) AS x2,"
        " BEGIN(INTERSECTION(PERIOD(b, e), PERIOD(c, d))) AS x3, END(INTERSECTION(PERIOD(b, e), PERIOD(c, d))) AS x4,"
        " BEGIN(SPAN(PERIOD(b, e), PERIOD(c, d))) AS x5, END(SPAN(PERIOD(b, e), PERIOD(c, d))) AS x6,"
        " PERIOD(b, e) CONTAINS c AS x7"
    )
    for row, (b, e, c, d) in zip(answers(items), _PAIRS, strict=True):
        p, q = period(b, e), period(c, d)
        common = period(max(p[0], q[0]), _bound(min(p[1], q[1]))) if p and q else None
        least = (min(p[0], q[0]), max(p[1], q[1])) if p and q else None
        wanted = [
            p and p[0], p and _bound(p[1]), p and _bound(p[1] - p[0]), common and common[0],
            common and _bound(common[1]), least and least[0], least and _bound(least[1]),
            None if p is None or c is None else p[0] <= c < p[1],
        ]  # fmt: skip
        assert [row[f"x{k}"] for k in range(8)] == wanted, (b, e, c, d)


def _bound(end: float) -> int | None:
    return None if end == inf else int(end)


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_a_join_has_the_pairs_for_which_it_holds(name: str, negated: str) -> None:
    """Of rows with valid time, in a relation and in a stream under a window: joins by ranges and bands are these."""
    bounds = [(b, e) for b in range(6) for e in (*range(b + 1, 7), None)]
    script = f"""CREATE RELATION p (n INT, a BIGINT, z BIGINT) FROM MEMORY () VALID FROM a TO z;
    CREATE STREAM s (at BIGINT, n INT, a BIGINT, z BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND VALID FROM a TO z;
    CREATE QUERY q AS SELECT x.n AS l, y.n AS r FROM p x, p y WHERE {negated}(VALID(x) {name} VALID(y));
    CREATE QUERY w AS ISTREAM(SELECT x.n AS l, y.n AS r FROM s [UNBOUNDED] x, p y
      WHERE {negated}(VALID(x) {name} VALID(y)));"""
    n, a, z = (list(range(len(bounds))), [b for b, _ in bounds], [e for _, e in bounds])
    rows = {"n": pa.array(n, pa.int32()), "a": pa.array(a, pa.int64()), "z": pa.array(z, pa.int64())}
    inputs = {"p": pa.table(rows), "s": pa.table({"at": pa.array(n, pa.int64()), **rows})}
    queries = bind_script(script).queries
    holds = PREDICATES[name][0]
    wanted = sorted(
        (i, j)
        for (i, (b, e)), (j, (c, d)) in product(enumerate(bounds), repeat=2)
        if holds(b, inf if e is None else e, c, inf if d is None else d) is not bool(negated)
    )
    found = run_local(queries, inputs).tables
    for query in queries:
        assert sorted((row["l"], row["r"]) for row in found[query.name].to_pylist()) == wanted
        assert sorted(row for *_, row in run_oracle(query, inputs, False).events) == wanted
