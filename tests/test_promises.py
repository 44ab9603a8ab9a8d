"""What streams promise, by definition [docs/promises.md]: the worked examples, and where each rule ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra import Algebra
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import (
    ClosingGroups,
    JoinResult,
    PromisedJoin,
    unfounded_promises,
    without_promises,
)
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources, scanned_columns
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.promises import Clustered, ForeignKey, Ordered, Promise, Unique, Within
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.testing.compare import assert_same
from penstock.testing.definitions import World
from penstock.testing.oracle import run_oracle
from penstock.testing.promises.closings import Accepted, breaches
from penstock.testing.promises.held import held_rows

Rows = Sequence[tuple[Any, ...]]


def _stream(name: str, columns: str, promises: str = "") -> str:
    """Declare a stream whose timestamp is its first column."""
    return f"CREATE STREAM {name} (t BIGINT, {columns}) FROM MEMORY () TIMESTAMP BY t {promises};"


def _query(declarations: str, text: str) -> Query:
    (query,) = bind_script(f"{declarations} CREATE QUERY q AS {text};").queries
    assert list(unfounded_promises(query.root)) == []
    return query


def _inputs(query: Query, rows: dict[str, Rows]) -> dict[str, pa.Table]:
    tables = {}
    for name, source in declared_sources(query.root).items():
        columns = list(zip(*rows[name], strict=True)) if rows[name] else [()] * len(source.columns)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, source.columns, strict=True)]
        tables[name] = pa.Table.from_arrays(arrays, names=list(source.columns.names))
    return tables


def _answer(query: Query, rows: dict[str, Rows], promised: bool = True, drain: bool = False) -> list[tuple[Any, ...]]:
    """Return the answer as (instant, op, values...), without op for a stream."""
    root = query.root if promised else without_promises(query.root)
    events = run_oracle(query, _inputs(query, rows), optimized_root=root, drain=drain).events
    return [(ts, *row) if op is None else (ts, op, *row) for ts, op, row in events]


def _joins(root: Algebra) -> Iterator[PromisedJoin]:
    return (node for node in operators(root) if isinstance(node, PromisedJoin))


def _rules(query: Query) -> list[str]:
    return [join.describe()["leaving"] for join in _joins(query.root)]


# --- the worked examples

ORDERS = _stream("O", "id BIGINT, item STRING", "UNIQUE (id, item)")
FULFILMENTS = _stream(
    "F", "id BIGINT, item STRING", "FOREIGN KEY (id, item) REFERENCES O CLUSTERED BY (id) WITHIN 1 ROWS"
)
BOTH = "SELECT O.id, O.item FROM O, F WHERE O.id = F.id AND O.item = F.item"
OF_ORDERS = {
    "O": [(1, 1, "a"), (1, 1, "b"), (2, 2, "a"), (5, 3, "a"), (5, 3, "b")],
    "F": [(2, 1, "b"), (3, 2, "a"), (4, 1, "a"), (6, 3, "a"), (6, 3, "b"), (7, 2, "a"), (8, 1, "b"), (8, 3, "b")],
}


def test_orders_and_fulfilments() -> None:
    query = _query(ORDERS + FULFILMENTS, BOTH)
    assert _rules(query) == ["right by FOREIGN KEY of F; right by UNIQUE of O; left by CLUSTERED BY of F"]
    kept = [(2, 1, "b"), (3, 2, "a"), (4, 1, "a"), (6, 3, "a"), (6, 3, "b"), (8, 3, "b")]
    assert _answer(query, OF_ORDERS) == kept
    without = sorted([*kept, (7, 2, "a"), (8, 1, "b")])
    assert _answer(query, OF_ORDERS, promised=False) == without


def test_orders_that_are_held() -> None:
    query = _query(ORDERS + FULFILMENTS, BOTH)
    (join,) = _joins(query.root)
    world = World({name: [(row[0], tuple(row)) for row in rows] for name, rows in OF_ORDERS.items()}, 8)
    assert [held_rows(join, world, t) for t in (1, 2, 5, 6, 8)] == [(2, 0), (3, 0), (5, 0), (2, 0), (2, 0)]


def test_windows_with_boundaries() -> None:
    declared = _stream("P", "k BIGINT") + _stream("C", "k BIGINT", "CLUSTERED BY (k) WITHIN 0 ROWS")
    query = _query(
        declared,
        "SELECT P.k AS p, C.k AS c FROM P [RANGE 20 SECONDS], C [RANGE 6 SECONDS SLIDE 6 SECONDS] WHERE P.k = C.k",
    )
    rows = {"P": [(1, 7), (4, 8)], "C": [(2, 7), (4, 8), (5, 7), (7, 7)]}
    came = [(6, "+", 7, 7), (6, "+", 7, 7), (6, "+", 8, 8)]
    gone = [(12, "-", 7, 7), (12, "-", 7, 7), (12, "-", 8, 8)]
    assert _answer(query, rows, drain=True) == [*came, *gone]
    # Without the promise there is at 12 another (7, 7) until 18, so that one of two is taken away there.
    assert _answer(query, rows, promised=False, drain=True) == [
        *came,
        (12, "-", 7, 7),
        (12, "-", 8, 8),
        (18, "-", 7, 7),
    ]


GROUPS = _stream("S", "k STRING, x BIGINT", "CLUSTERED BY (k) WITHIN 1 ROWS")
OF_GROUPS = {
    "S": [
        (1, "x", 5),
        (2, "x", 1),
        (3, "y", 7),
        (3, "x", 6),
        (4, "y", 1),
        (6, "z", 9),
        (8, None, 4),
        (9, "x", 8),
    ]
}


def test_groups_are_final_when_they_are_closed() -> None:
    query = _query(GROUPS, "SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING CLOSED(k)")
    assert query.root.is_stream
    assert _answer(query, OF_GROUPS) == [(6, "x", 3), (8, "y", 2), (9, "z", 1)]


def test_rows_that_a_selection_drops_still_count() -> None:
    query = _query(GROUPS, "SELECT k, COUNT(*) AS n FROM S WHERE x >= 5 GROUP BY k HAVING CLOSED(k)")
    assert _answer(query, OF_GROUPS) == [(6, "x", 2), (8, "y", 1), (9, "z", 1)]


def test_a_later_row_begins_a_group_again() -> None:
    query = _query(GROUPS, "SELECT k, COUNT(*) AS n FROM S GROUP BY k")
    assert any(isinstance(node, ClosingGroups) and node.keys == frozenset() for node in operators(query.root))
    events = _answer(query, OF_GROUPS)
    assert [event for event in events if event[2] == "x"] == [
        (1, "+", "x", 1),
        (2, "-", "x", 1),
        (2, "+", "x", 2),
        (3, "-", "x", 2),
        (3, "+", "x", 3),
        (9, "+", "x", 1),
    ]


def test_distinct_emits_a_value_again_after_its_closing() -> None:
    query = _query(GROUPS, "SELECT DISTINCT k FROM S")
    assert _answer(query, OF_GROUPS) == [(1, "x"), (3, "y"), (6, "z"), (8, None), (9, "x")]


# --- where each rule ends


def test_the_boundary_of_the_parent_is_waited_for() -> None:
    declared = _stream("P", "k BIGINT", "UNIQUE (k)") + _stream("C", "k BIGINT REFERENCES P")
    query = _query(declared, "SELECT C.k FROM P [RANGE 2 SECONDS SLIDE 3 SECONDS], C WHERE P.k = C.k")
    rows = {"P": [(5, 1)], "C": [(5, 1)]}
    assert _answer(query, rows, drain=True) == _answer(query, rows, promised=False, drain=True)
    assert _answer(query, rows, drain=True) == [(6, "+", 1), (9, "-", 1)]


def test_a_reference_needs_that_its_parent_is_unique() -> None:
    declared = _stream("P", "a BIGINT, b BIGINT") + _stream("C", "a BIGINT REFERENCES P (a)")
    query = _query(declared, "SELECT P.b FROM P, C WHERE P.a = C.a")
    assert _rules(query) == []
    assert _answer(query, {"P": [(0, 0, 1), (3, 0, 0)], "C": [(1, 0)]}) == [(1, 1), (3, 0)]


def test_a_reference_counts_only_where_all_its_columns_are_compared() -> None:
    declared = _stream("P", "a BIGINT, b BIGINT", "UNIQUE (a) UNIQUE (a, b)")
    declared += _stream("C", "a BIGINT, b BIGINT", "FOREIGN KEY (a, b) REFERENCES P (a, b)")
    query = _query(declared, "SELECT P.a FROM P, C WHERE P.a = C.a")
    assert _rules(query) == ["right by UNIQUE of P"]
    assert _answer(query, {"P": [(4, 1, 0)], "C": [(3, 1, None)]}) == [(4, 1)]


def test_a_null_promises_nothing() -> None:
    declared = _stream("P", "a BIGINT, b BIGINT", "UNIQUE (a, b)")
    declared += _stream("C", "a BIGINT, b BIGINT", "FOREIGN KEY (a, b) REFERENCES P (a, b)")
    query = _query(declared, "SELECT P.a FROM P LEFT JOIN C ON P.a = C.a AND P.b = C.b")
    (join,) = _joins(query.root)
    world = World({"P": [(4, (4, 1, 0))], "C": [(3, (3, 1, None)), (3, (3, 1, 0))]}, 4)
    assert held_rows(join, world, 3)[1] == 1


def test_an_outer_join_needs_the_end_of_a_match() -> None:
    declared = _stream("P", "k BIGINT") + _stream("C", "k BIGINT", "CLUSTERED BY (k) WITHIN 0 SECONDS")
    windowed = _query(declared, "SELECT P.k AS p, C.k AS c FROM P LEFT JOIN C [RANGE 4 SECONDS] ON P.k = C.k")
    assert _rules(windowed) == []
    expected = [(0, "+", 0, None), (2, "-", 0, None), (2, "+", 0, 0), (6, "-", 0, 0), (6, "+", 0, None)]
    assert _answer(windowed, {"P": [(0, 0)], "C": [(2, 0)]}, drain=True) == expected
    plain = _query(declared, "SELECT P.k AS p, C.k AS c FROM P LEFT JOIN C ON P.k = C.k")
    assert _rules(plain) == ["left by CLUSTERED BY of C"]
    assert _answer(plain, {"P": [(0, 0)], "C": [(2, 0)]}) == expected[:3]


def test_a_selection_does_not_change_when_a_value_is_closed() -> None:
    declared = _stream("P", "v BIGINT") + _stream("C", "v BIGINT, x BIGINT", "CLUSTERED BY (v) WITHIN 4 SECONDS")
    query = _query(declared, "SELECT P.v FROM P, C WHERE P.v = C.v AND C.x > 0")
    assert _rules(query) == ["left by CLUSTERED BY of C"]
    assert _answer(query, {"P": [(3, 1)], "C": [(0, 1, 1), (2, 1, 0), (5, 1, 1)]}) == [(3, 1), (5, 1)]


def test_promises_of_a_parent_end_at_its_join() -> None:
    declared = _stream("P", "k BIGINT, y BIGINT", "UNIQUE (k) CLUSTERED BY (y) WITHIN 1 SECOND")
    declared += _stream("C", "k BIGINT REFERENCES P") + _stream("D", "y BIGINT")
    query = _query(declared, "SELECT D.y FROM P, C, D WHERE P.k = C.k AND P.y = D.y")
    assert _rules(query) == ["right by FOREIGN KEY of C; right by UNIQUE of P"]
    assert _answer(query, {"P": [(1, 0, 7)], "C": [(8, 0)], "D": [(0, 7)]}) == [(8, 7)]


def test_only_what_is_equal_in_all_columns_is_the_one_partner() -> None:
    declared = _stream("P", "a BIGINT, b BIGINT", "UNIQUE (a)") + _stream("C", "a BIGINT, b BIGINT")
    query = _query(declared, "SELECT C.a, C.b FROM P, C WHERE P.a = C.a AND P.b = C.b")
    assert _rules(query) == ["right by UNIQUE of P"]
    assert _answer(query, {"P": [(1, 0, 1), (3, 0, 0)], "C": [(0, 0, 0)]}) == [(3, 0, 0)]


def test_other_conditions_do_not_keep_a_row_that_found_its_partner() -> None:
    declared = _stream("P", "a BIGINT, b BIGINT", "UNIQUE (a)") + _stream("C", "a BIGINT, b BIGINT")
    query = _query(declared, "SELECT C.a FROM P, C WHERE P.a = C.a AND P.b > C.b")
    breaking = {"P": [(1, 0, 1), (3, 0, 9)], "C": [(0, 0, 5)]}
    assert _answer(query, breaking) == []
    assert _answer(query, breaking, promised=False) == [(3, 0)]


def test_a_row_at_the_bound_still_finds_partners() -> None:
    declared = _stream("P", "v BIGINT") + _stream("C", "v BIGINT", "ORDERED BY (v)")
    query = _query(declared, "SELECT P.v FROM P, C WHERE P.v = C.v")
    assert _rules(query) == ["left by ORDERED BY of C"]
    rows = {"P": [(1, 5), (1, 4)], "C": [(1, 5), (2, 5), (3, 6), (4, 5), (4, 4)]}
    assert _answer(query, rows) == [(1, 5), (2, 5)]
    assert _answer(query, rows, promised=False) == [(1, 5), (2, 5), (4, 4), (4, 5)]


@pytest.mark.parametrize(
    ("within", "found"),
    [
        ("", [3]),
        ("WITHIN 1 ROWS", [3, 5]),
        ("WITHIN 2 ROWS", [3, 5, 6]),
        ("WITHIN 0 SECONDS", [3]),
        ("WITHIN 1 SECOND", [3, 5]),
        ("WITHIN 2 SECONDS", [3, 5, 6]),
    ],
)
def test_k_of_an_order(within: str, found: list[int]) -> None:
    declared = _stream("P", "v BIGINT") + _stream("C", "v BIGINT", f"ORDERED BY (v) DESC {within}")
    query = _query(declared, "SELECT P.v FROM P, C WHERE P.v = C.v")
    rows = {"P": [(1, 5)], "C": [(3, 5), (4, 2), (5, 5), (6, 5), (7, 5)]}
    assert [ts for ts, _ in _answer(query, rows)] == found


# --- which promises a query uses


def test_the_first_two_sources_with_a_rule_are_joined_first() -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT, y BIGINT", "CLUSTERED BY (y)")
    declared += _stream("C", "y BIGINT, z BIGINT", "CLUSTERED BY (z)") + _stream("D", "z BIGINT")
    query = _query(declared, "SELECT A.x, B.y, C.z FROM A, B, C, D WHERE A.x = B.x AND B.y = C.y AND C.z = D.z")
    assert _rules(query) == ["right by CLUSTERED BY of B"]
    rows = {"A": [(1, 1)], "B": [(2, 1, 2)], "C": [(3, 2, 3)], "D": [(4, 3)]}
    assert _answer(query, rows) == [(4, 1, 2, 3)]


def test_equalities_through_a_third_source_count() -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT") + _stream("C", "x BIGINT", "CLUSTERED BY (x)")
    query = _query(declared, "SELECT A.x FROM A, B, C WHERE A.x = B.x AND B.x = C.x")
    assert _rules(query) == ["left by CLUSTERED BY of C"]
    (join,) = _joins(query.root)
    assert join.left.source_names == ("A",) and join.right.source_names == ("C",)
    assert _answer(query, {"A": [(1, 1)], "B": [(1, 1)], "C": [(2, 1), (3, 2), (4, 1)]}) == [(2, 1)]


def test_promises_pass_through_a_join_of_children() -> None:
    declared = _stream("P", "k BIGINT", "UNIQUE (k)")
    declared += _stream("C", "k BIGINT REFERENCES P, v BIGINT", "CLUSTERED BY (v)") + _stream("D", "v BIGINT")
    query = _query(declared, "SELECT D.v FROM P, C, D WHERE P.k = C.k AND C.v = D.v")
    assert _rules(query) == ["right by CLUSTERED BY of C", "right by FOREIGN KEY of C; right by UNIQUE of P"]


def test_widened_numbers_are_compared() -> None:
    declared = _stream("A", "x INT") + _stream("B", "x BIGINT", "CLUSTERED BY (x)")
    query = _query(declared, "SELECT B.x FROM A, B WHERE A.x = B.x")
    assert _rules(query) == ["left by CLUSTERED BY of B"]
    assert _answer(query, {"A": [(1, 1)], "B": [(2, 1), (3, 2), (4, 1)]}) == [(2, 1)]
    narrowed = _query(declared, "SELECT B.x FROM A, B WHERE A.x = CAST(B.x AS INT)")
    assert _rules(narrowed) == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT A.x FROM A [ROWS 3], B WHERE A.x = B.x",
        "SELECT A.x FROM A, B [ROWS 3] WHERE A.x = B.x",
        "SELECT A.x FROM A [SESSION 5 SECONDS], B WHERE A.x = B.x",
        "SELECT A.x FROM A [FREQUENCY 2 TUPLES], B [NOW] WHERE A.x = B.x",
        "SELECT A.x FROM A, B WHERE A.x <=> B.x",
        "SELECT A.x FROM A [RANGE 5 SECONDS INTERNAL], B WHERE A.x = B.x",
        "SELECT A.x FROM A, B WHERE A.x = B.x + 1",
        "SELECT A.x FROM A, (SELECT y, COUNT(*) AS x FROM B GROUP BY y) AS n WHERE A.x = n.x",
        "SELECT A.x FROM A WHERE A.x NOT IN (SELECT B.x FROM B)",
        "SELECT A.x FROM A LEFT JOIN B [RANGE 5 SECONDS] ON A.x = B.x",
        "SELECT A.x FROM A FULL JOIN B [RANGE 5 SECONDS] ON A.x = B.x",
        "SELECT x FROM A EXCEPT SELECT x FROM B",
        "SELECT y, COUNT(*) AS n FROM B GROUP BY y",
        "SELECT x, COUNT(*) AS n FROM B [RANGE 5 SECONDS] GROUP BY x",
    ],
)
def test_no_rule(text: str) -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT, y BIGINT", "CLUSTERED BY (x)")
    query = _query(declared, text)
    assert [
        type(node).__name__ for node in operators(query.root) if isinstance(node, PromisedJoin | ClosingGroups)
    ] == []


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("SELECT A.x FROM A LEFT JOIN B ON A.x = B.x", JoinResult.LEFT),
        ("SELECT A.x FROM B RIGHT JOIN A ON A.x = B.x", JoinResult.LEFT),
        ("SELECT A.x FROM A [RANGE 5 SECONDS] LEFT JOIN B ON A.x = B.x", JoinResult.LEFT),
        ("SELECT A.x FROM A FULL JOIN B ON A.x = B.x", JoinResult.FULL),
        ("SELECT A.x FROM A WHERE A.x IN (SELECT B.x FROM B)", JoinResult.SEMI),
        ("SELECT A.x FROM A WHERE EXISTS (SELECT * FROM B WHERE A.x = B.x)", JoinResult.SEMI),
        ("SELECT A.x FROM A WHERE NOT EXISTS (SELECT * FROM B WHERE A.x = B.x)", JoinResult.ANTI),
        ("SELECT A.x FROM A LEFT SEMI JOIN B ON A.x = B.x", JoinResult.SEMI),
        ("SELECT A.x, EXISTS (SELECT * FROM B WHERE A.x = B.x) AS e FROM A", JoinResult.MARK),
    ],
)
def test_joins_with_absent_rows(text: str, joined: JoinResult) -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT, y BIGINT", "CLUSTERED BY (x)")
    (join,) = _joins(_query(declared, text).root)
    assert (join.joined, [one.side for one in join.leaving]) == (joined, [0])


def test_a_row_that_left_stays_in_the_answer() -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT", "CLUSTERED BY (x)")
    rows = {"A": [(1, 1), (1, 2)], "B": [(2, 1), (3, 3), (4, 1), (5, 9), (6, 2)]}
    outer = _query(declared, "SELECT A.x AS a, B.x AS b FROM A LEFT JOIN B ON A.x = B.x")
    assert _answer(outer, rows) == [
        (1, "+", 1, None),
        (1, "+", 2, None),
        (2, "-", 1, None),
        (2, "+", 1, 1),
        (6, "-", 2, None),
        (6, "+", 2, 2),
    ]
    without = _query(declared, "SELECT A.x FROM A WHERE NOT EXISTS (SELECT * FROM B WHERE A.x = B.x)")
    assert _answer(without, rows) == [(1, "+", 1), (1, "+", 2), (2, "-", 1), (6, "-", 2)]


# --- CLOSED in WHERE


def test_a_pair_is_emitted_at_the_last_closing_of_its_rows() -> None:
    declared = _stream("A", "x BIGINT", "CLUSTERED BY (x)") + _stream("B", "x BIGINT", "CLUSTERED BY (x)")
    query = _query(declared, "SELECT A.x FROM A, B WHERE A.x = B.x AND CLOSED(A.x)")
    assert query.root.is_stream
    assert _answer(query, {"A": [(1, 1), (2, 2)], "B": [(1, 1), (3, 1), (5, 2), (6, 3)]}) == [(5, 1), (5, 1)]


def test_unique_closes_at_once() -> None:
    declared = _stream("A", "x BIGINT", "UNIQUE (x)") + _stream("B", "x BIGINT", "CLUSTERED BY (x)")
    query = _query(declared, "SELECT A.x FROM A, B WHERE A.x = B.x AND CLOSED(B.x)")
    assert _answer(query, {"A": [(9, 1)], "B": [(1, 1), (2, 2)]}) == [(9, 1)]


def test_time_closes_while_time_goes_by() -> None:
    declared = _stream("A", "x BIGINT", "CLUSTERED BY (x) WITHIN 5 SECONDS")
    query = _query(declared, "SELECT x FROM A WHERE CLOSED(x)")
    rows = {"A": [(1, 1), (3, 1), (9, 2)]}
    assert _answer(query, rows) == [(8, 1), (8, 1)]
    assert _answer(query, rows, drain=True) == [(8, 1), (8, 1), (14, 2)]


# --- promises that are kept change nothing

JOINS = (
    "SELECT A.x AS a, A.v AS v, B.w AS w FROM A {a}, B {b} WHERE A.x = B.x",
    "SELECT A.x AS a, B.w AS w FROM A {a}, B {b} WHERE A.x = B.x AND A.v = B.v",
    "SELECT A.x AS a, B.w AS w FROM A {a}, B {b} WHERE A.x = B.x AND A.v > 1 AND B.w < 3 AND A.v <> B.w",
    "SELECT A.x AS a, B.w AS w FROM A {a} LEFT JOIN B ON A.x = B.x AND B.w > A.v",
    "SELECT A.x AS a, B.x AS b FROM A FULL JOIN B ON A.x = B.x",
    "SELECT A.x AS a FROM A {a} WHERE A.x IN (SELECT x FROM B WHERE w > 1)",
    "SELECT A.x AS a FROM A {a} WHERE NOT EXISTS (SELECT * FROM B WHERE A.x = B.x AND B.w > 1)",
    "SELECT A.x AS a, C.w AS w FROM A {a}, B {b}, B AS C WHERE A.x = B.x AND B.v = C.v",
    "SELECT o.x AS a, n.v AS v FROM A AS o, A AS n WHERE o.x = n.x AND o.v < n.v",
    "SELECT x, COUNT(*) AS n, SUM(v) AS s FROM A GROUP BY x",
    "SELECT x, v, COUNT(*) AS n FROM A WHERE v > 0 GROUP BY x, v",
    "SELECT DISTINCT x FROM A WHERE v > 0",
    "SELECT DISTINCT A.x, B.w FROM A, B WHERE A.x = B.x",
)
SLIDING = ("[RANGE 4 SECONDS SLIDE 3 SECONDS]", "[RANGE 2 SECONDS SLIDE 5 SECONDS]")
#: Of A and of B.
WINDOWS = ("", "[RANGE 3 SECONDS]", *SLIDING), ("", "", "[NOW]", "[RANGE 6 SECONDS]", SLIDING[0])
#: The last refers to another stream.
KINDS = ("UNIQUE (x)", "CLUSTERED BY (x)", "ORDERED BY (x)", "ORDERED BY (x) DESC", "FOREIGN KEY (x) REFERENCES A (x)")


def _rows(random: Random, step: int) -> list[tuple[Any, ...]]:
    """Return rows (t, x, v, w) whose values move on with time, so that they keep promises with a small k. Of half of
    the streams no two have one x."""
    rows: list[tuple[Any, ...]] = []
    unique = random.random() < 0.5
    for at in sorted(random.randrange(12) for _ in range(random.randrange(1, 10))):
        x = None if random.random() < 0.1 else at // step + random.randrange(2)
        if not (unique and x in {row[1] for row in rows}):
            rows.append((at, x, random.randrange(3), random.randrange(4)))
    return rows


def _kept(kind: str, rows: Accepted, parents: Accepted, random: Random) -> str | None:
    """Return a promise that data keep with the least k, or one more; None where no k is enough."""
    if kind == "UNIQUE (x)":
        return None if breaches(Unique((1,)), rows) or not _once(rows) else kind
    for k in range(13):
        within = Within(k) if random.random() < 0.5 else Within(None, k)
        made: Promise = Clustered((1,), within)
        made = Ordered((1,), "DESC" in kind, within) if kind.startswith("ORDERED") else made
        made = ForeignKey((1,), "A", (1,), within) if kind.startswith("FOREIGN") else made
        if not breaches(made, rows, parents):
            return f"{kind} WITHIN {k} {'ROWS' if within.ticks is None else 'SECONDS'}"
    return None


def _once(rows: Accepted) -> bool:
    values = [row[1] for _, row in rows if row[1] is not None]
    return len(values) == len(set(values))


@pytest.mark.parametrize("seed", range(40))
def test_promises_that_are_kept_change_no_answer(seed: int) -> None:
    random = Random(seed)
    rows = {name: _rows(random, random.choice((1, 2, 4))) for name in "AB"}
    accepted = {name: [(row[0], row) for row in own] for name, own in rows.items()}
    declared = ""
    for name in "AB":
        chosen = random.sample(KINDS[: 5 if name == "B" else 4], random.randrange(1, 3))
        promises = (_kept(kind, accepted[name], accepted["A"], random) for kind in chosen)
        declared += _stream(name, "x BIGINT, v BIGINT, w BIGINT", " ".join(p for p in promises if p is not None))
    used = 0
    for text in JOINS:
        query = _query(declared, text.format(a=random.choice(WINDOWS[0]), b=random.choice(WINDOWS[1])))
        used += without_promises(query.root) != query.root
        assert _answer(query, rows, drain=True) == _answer(query, rows, promised=False, drain=True), (declared, text)
    assert used > 0 or "BY" not in declared


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_rule_changes_what_promises_end(seed: int) -> None:
    """Over data that break them, a plan that rules have rewritten has the same answer."""
    random = Random(seed)
    for text in JOINS:
        rows = {name: _rows(random, random.choice((1, 2, 4))) for name in "AB"}
        declared = ""
        for name in "AB":
            chosen = random.sample(KINDS[: 5 if name == "B" else 4], random.randrange(1, 3))
            k = random.choice(("", "", " WITHIN 1 ROWS", " WITHIN 2 SECONDS"))
            promises = " ".join(kind if kind == KINDS[0] else kind + k for kind in chosen)
            declared += _stream(name, "x BIGINT, v BIGINT, w BIGINT", promises)
        query = _query(declared, text.format(a=random.choice(WINDOWS[0]), b=random.choice(WINDOWS[1])))
        optimized = optimize(query.root, check=True)
        assert without_promises(optimized) != optimized or without_promises(query.root) == query.root
        events = run_oracle(query, _inputs(query, rows), optimized_root=optimized, drain=True).events
        assert events == run_oracle(query, _inputs(query, rows), drain=True).events, (declared, text)


# --- the engine in one process

MET_AT_ONCE = (
    "SELECT O.id, F.item, F.t FROM O, F WHERE O.id = F.id AND O.item = F.item",
    "SELECT o.a, F.t FROM (SELECT id AS a, item AS b, t FROM O WHERE t < 9) AS o JOIN F ON o.a = F.id AND o.b = F.item"
    " WHERE F.t > 3 AND o.t < F.t + o.a",
    "SELECT O.id, COUNT(*) AS n FROM O, F WHERE O.id = F.id AND O.item = F.item GROUP BY O.id",
    "SELECT O.id, W.x, F.t FROM O, F, W [RANGE 3 SECONDS] WHERE O.id = F.id AND O.item = F.item AND W.x = O.id",
    "SELECT m.a, W.x FROM (SELECT O.id AS a FROM O, F WHERE O.id = F.id AND O.item = F.item) AS m"
    " LEFT JOIN W ON m.a = W.x",
    "SELECT DISTINCT O.id FROM O JOIN F USING (id, item) WHERE O.id NOT IN (SELECT x FROM W)",
    "RSTREAM(SELECT O.id, W.x FROM O, F, W [NOW] WHERE O.id = F.id AND O.item = F.item AND W.x = O.id)",
    "RSTREAM(SELECT O.id, F.t FROM O, F WHERE O.id = F.id AND O.item = F.item)",
)
KEYED = _stream("O", "id BIGINT, item BIGINT", "UNIQUE (id, item)")
KEYED += _stream("F", "id BIGINT, item BIGINT", "FOREIGN KEY (id, item) REFERENCES O WITHIN 0 SECONDS")
KEYED += _stream("W", "x BIGINT, y BIGINT")


@pytest.mark.parametrize("seed", range(10))
def test_children_meet_their_parents_at_once(seed: int) -> None:
    """Over data that break the promises, however they are cut, over shards and with the state reloaded."""
    random = Random(seed)
    for text in MET_AT_ONCE:
        query = _query(KEYED, text)
        instants = {name: sorted(random.choices(range(12), k=12)) for name in "OFW"}
        rows: dict[str, Rows] = {
            name: [(at, random.randrange(3), random.choice((0, 1, None))) for at in own]
            for name, own in instants.items()
        }
        inputs = _inputs(query, rows)
        found = run_local([query], inputs, shards=2, batch_rows=random.randrange(1, 5), reload=random.random() < 0.5)
        assert_same(query, found.tables["q"], run_oracle(query, inputs))


def test_children_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    query = _query(KEYED, MET_AT_ONCE[0])
    rows = {"O": [(0, i, 0) for i in range(5)], "F": [(t, t % 5, 0) for t in range(1, 2001)]}
    most, round_ = [0], LocalJob.round

    def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
        done = round_(job, *given, **named)
        executors = [executor for row in job.stages for executor in row]
        most[0] = max(most[0], sum(s.rows for executor in executors for s in executor.synopses().values()))
        return done

    monkeypatch.setattr(LocalJob, "round", measured)
    found = run_local([query], _inputs(query, rows), shards=1, batch_rows=100).tables["q"]
    assert found.num_rows == 2000
    assert most[0] < 5 + 2 * 100  # the parents, and what waits of one batch


def test_columns_that_are_not_read_are_pruned() -> None:
    columns = "x BIGINT, v BIGINT, w BIGINT"
    declared = _stream("A", columns) + _stream("B", columns, "CLUSTERED BY (x)")
    query = _query(declared, "SELECT A.v FROM A, B WHERE A.x = B.x AND A.w > 1")
    optimized = optimize(query.root, check=True)
    assert scanned_columns(optimized) == {"A": (1, 2, 3), "B": (1,)}
    (join,) = _joins(optimized)
    assert [(one.side, one.columns, one.promise.columns) for one in join.leaving] == [(0, (0,), (0,))]
