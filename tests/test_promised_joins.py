"""Joins whose rows leave by promises of streams, in the engine of one process [docs/promises.md]."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.errors import PenstockError, ScriptErrors
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.plan.joins.promised import PromisedJoinSpec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.testing.compare import assert_same
from penstock.testing.definitions import World
from penstock.testing.oracle import run_oracle
from penstock.testing.promises.held import held_rows
from tests.test_promises import (
    BOTH,
    FULFILMENTS,
    JOINS,
    KINDS,
    OF_ORDERS,
    ORDERS,
    SLIDING,
    WINDOWS,
    Rows,
    _answer,
    _inputs,
    _joins,
    _kept,
    _query,
    _rows,
    _stream,
)

COLUMNS = "x BIGINT, v BIGINT, w BIGINT"
WITHIN = ("", "", " WITHIN 1 ROWS", " WITHIN 3 ROWS", " WITHIN 40 ROWS", " WITHIN 0 SECONDS", " WITHIN 2 SECONDS")


def _ways(random: Random) -> dict[str, Any]:
    """Draw how a query is answered: cuts, order between streams, shards, state read back."""
    cut = {"seed": random.randrange(1000)} if random.random() < 0.5 else {"batch_rows": random.choice((1, 2, 3, 50))}
    return {**cut, "shards": random.randrange(1, 4), "reload": random.random() < 0.4}


def _check(query: Query, inputs: Mapping[str, pa.Table], random: Random, what: object) -> None:
    drain = random.random() < 0.7
    strategy = random.choice((Strategy.PATTERN, Strategy.PATTERN, Strategy.NEGATIVE, Strategy.DIRECT))
    found = run_local([query], inputs, drain=drain, strategy=strategy, **_ways(random)).tables["q"]
    try:
        assert_same(query, found, run_oracle(query, inputs, drain=drain))
    except AssertionError as error:
        raise AssertionError(f"{what} {strategy} {inputs}") from error


# --- the worked examples


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("batch_rows", [1, 2, None])
def test_orders_and_fulfilments(shards: int, batch_rows: int | None) -> None:
    query = _query(ORDERS + FULFILMENTS, BOTH)
    found = run_local([query], _inputs(query, OF_ORDERS), shards=shards, batch_rows=batch_rows, reload=True)
    rows = found.tables["q"].to_pylist()
    kept = [(2, 1, "b"), (3, 2, "a"), (4, 1, "a"), (6, 3, "a"), (6, 3, "b"), (8, 3, "b")]
    assert sorted((row["ts"], row["id"], row["item"]) for row in rows) == kept


# --- data that break promises


def random_join(random: Random, text: str) -> tuple[Query, dict[str, Any], str]:
    """Return a join of A and B with random promises and windows, rows of both, and their declarations."""
    rows = {name: _rows(random, random.choice((1, 2, 4))) for name in "AB"}
    declared = ""
    for name in "AB":
        kinds = random.sample(KINDS[: 5 if name == "B" else 4], random.randrange(1, 3))
        promises = " ".join(kind if kind == KINDS[0] else kind + random.choice(WITHIN) for kind in kinds)
        declared += _stream(name, COLUMNS, promises)
    query = _query(declared, text.format(a=random.choice(WINDOWS[0]), b=random.choice(WINDOWS[1])))
    return query, rows, declared


@pytest.mark.parametrize("seed", range(25))
def test_the_engine_answers_as_defined(seed: int) -> None:
    random = Random(seed)
    for text in JOINS[:9]:
        query, rows, declared = random_join(random, text)
        _check(query, _inputs(query, rows), random, (declared, text))


#: By pair of types of the columns that are compared, how their values are made.
TYPES: tuple[tuple[str, str, Callable[[int], Any], Callable[[int], Any]], ...] = (
    ("BIGINT", "INT", int, int),
    ("INT", "DOUBLE", int, float),
    ("DOUBLE", "DOUBLE", float, float),
    ("STRING", "STRING", "order-{:04}".format, "order-{:04}".format),
    ("DECIMAL(10, 2)", "DECIMAL(10, 2)", Decimal, Decimal),
    ("DECIMAL(12, 1)", "DECIMAL(30, 3)", Decimal, Decimal),
    ("INT", "DECIMAL(20, 1)", int, Decimal),
    ("SMALLINT", "FLOAT", int, float),
)
#: Over streams A, B, and A2, which is declared as A is.
QUERIES = (
    "SELECT A.x AS a, B.w AS w FROM A {a}, B {b} WHERE A.x = B.x AND A.v = B.v",
    "SELECT A.x AS a, B.w AS w FROM A, B WHERE A.x = B.x AND CLOSED(A.x)",
    "SELECT A.x AS a, B.w AS w FROM A, B WHERE A.x = B.x AND A.v = B.v AND CLOSED(A.x) AND B.w > 0",
    "SELECT A.x AS a, B.w AS w FROM A, B WHERE A.x = B.x AND A.v = B.v AND CLOSED(A.v) AND CLOSED(A.x)",
    "SELECT A.x AS a, B.w AS w FROM A, B WHERE A.x = B.x AND A.v = B.v AND CLOSED(A.x, A.v)",
    "SELECT A.x AS a, B.w AS w FROM A, B WHERE A.x = B.x AND CLOSED(A.v)",
    "SELECT u.x AS a, B.w AS w FROM (SELECT x, v FROM A WHERE v < 2 UNION ALL SELECT x, w FROM A2) AS u, B {b}"
    " WHERE u.x = B.x",
    "SELECT u.x AS a, B.w AS w FROM B {b}, (SELECT x, v FROM A UNION ALL SELECT x, w FROM A2) AS u"
    " WHERE u.x = B.x AND u.v <> B.v",
    "SELECT d.x AS a, B.w AS w FROM (SELECT DISTINCT x, v FROM A) AS d, B {b} WHERE d.x = B.x",
    "SELECT A.x AS a, COUNT(*) AS n, SUM(B.w) AS s FROM A {a}, B {b} WHERE A.x = B.x GROUP BY A.x",
    "SELECT A.x AS a, B.w AS w FROM A FULL JOIN B ON A.x = B.x AND A.v <= B.w",
    "SELECT A.x AS a, B.w AS w, A.v AS v FROM A {a} LEFT JOIN B ON A.x = B.x AND A.v = B.v",
    "SELECT A.x AS a, EXISTS (SELECT * FROM B WHERE A.x = B.x AND B.w > A.v) AS e FROM A {a}",
    "SELECT A.x AS a, EXISTS (SELECT * FROM B WHERE A.x = B.x) AS e FROM A {a} WHERE v > 0",
    "SELECT A.x AS a FROM A {a} WHERE NOT EXISTS (SELECT * FROM B WHERE A.x = B.x AND A.v = B.v)",
    "SELECT o.x AS a, n.v AS v FROM A {a} AS o, A {b} AS n WHERE o.x = n.x",
    "SELECT o.x AS a, n.v AS v FROM A AS o LEFT JOIN A AS n ON o.x = n.x AND o.v < n.v",
    "SELECT A.x AS a, C.w AS w FROM A, B, B {b} AS C WHERE A.x = B.x AND B.v = C.v",
    "RSTREAM(SELECT A.x AS a, B.w AS w FROM A {a}, B {b} WHERE A.x = B.x)",
    "SELECT DISTINCT A.x, B.w FROM A {a}, B {b} WHERE A.x = B.x",
    "SELECT A.v AS a, COUNT(*) AS n FROM A LEFT JOIN B ON A.x = B.x GROUP BY A.v",
)
OF_COLUMNS = (
    *("UNIQUE (x)", "CLUSTERED BY (x)", "ORDERED BY (x)", "ORDERED BY (x) DESC", "CLUSTERED BY (v)", "ORDERED BY (v)"),
    *("CLUSTERED BY (x, v)", "UNIQUE (x, v)", "UNIQUE (v)"),
)
REFERENCES = ("FOREIGN KEY (x) REFERENCES A (x)", "FOREIGN KEY (x, v) REFERENCES A (x, v)")


def _drawn(random: Random) -> tuple[str, dict[str, list[tuple[Any, ...]]]]:
    """Draw streams with promises of several columns, whose columns are of several types, and their rows."""
    own, other, of_own, of_other = random.choice(TYPES)
    declared, rows = "", {}
    for name in ("A", "B", "A2"):
        type_, make = (other, of_other) if name == "B" else (own, of_own)
        kinds = list(OF_COLUMNS) + ([] if name == "A" or (name == "B" and own != other) else list(REFERENCES))
        drawn = random.sample(kinds, random.randrange(1, 4))
        promises = " ".join(one if "UNIQUE" in one else one + random.choice(WITHIN) for one in drawn)
        declared += _stream(name, f"x {type_}, v BIGINT, w BIGINT", promises)
        rows[name] = []
        for at, x, v, w in _rows(random, random.choice((1, 2, 4))) if random.random() < 0.95 else ():
            value = None if x is None else math.nan if make is float and random.random() < 0.1 else make(x)
            rows[name].append((at, value, None if random.random() < 0.1 else v, w))
    return declared, rows


@pytest.mark.parametrize("seed", range(100, 130))
def test_columns_of_any_type_and_promises_of_several(seed: int) -> None:
    random = Random(seed)
    for text in random.sample(QUERIES, 6):
        declared, rows = _drawn(random)
        windows = ("", "", "[RANGE 3 SECONDS]", "[NOW]", *SLIDING)
        try:
            query = _query(declared, text.format(a=random.choice(windows), b=random.choice(windows)))
        except ScriptErrors as error:
            assert {one.code for one in error.errors} == {"P0373"}
            continue
        try:
            _check(query, _inputs(query, rows), random, (declared, text))
        except PenstockError as error:
            assert error.code == "P0901" and "below another join or a DISTINCT" in error.message


# --- promises that are kept


@pytest.mark.parametrize("seed", range(200, 212))
def test_promises_that_are_kept_change_no_answer(seed: int) -> None:
    random = Random(seed)
    rows = {name: _rows(random, random.choice((1, 2, 4))) for name in "AB"}
    accepted = {name: [(row[0], row) for row in own] for name, own in rows.items()}
    declared = ""
    for name in "AB":
        chosen = random.sample(KINDS[: 5 if name == "B" else 4], random.randrange(1, 3))
        promises = (_kept(kind, accepted[name], accepted["A"], random) for kind in chosen)
        declared += _stream(name, COLUMNS, " ".join(p for p in promises if p is not None))
    for text in JOINS[:9]:
        query = _query(declared, text.format(a=random.choice(WINDOWS[0]), b=random.choice(WINDOWS[1])))
        inputs = _inputs(query, rows)
        found = run_local([query], inputs, drain=True, **_ways(random)).tables["q"]
        without = _answer(query, rows, promised=False, drain=True)
        assert Counter(_shown(query, found)) == Counter(without), (declared, text)


def _shown(query: Query, table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


# --- state


class _Watched:
    """The rows that a run stores of each side of its join, after each round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds: list[tuple[int, tuple[int, int]]] = []
        round_ = LocalJob.round

        def watched(job: LocalJob, *given: Any, **named: Any) -> Any:
            done = round_(job, *given, **named)
            (stage,) = {s.stage for s in job.plan.steps if isinstance(s.spec, PromisedJoinSpec)}
            held = (self._held(job.stages[stage - 1], "left"), self._held(job.stages[stage - 1], "right"))
            self.rounds.append((min(job.stages[stage - 1][0].heartbeats().values()), held))
            return done

        monkeypatch.setattr(LocalJob, "round", watched)

    @staticmethod
    def _held(executors: list[StageExecutor], side: str) -> int:
        found = [(name, synopsis) for one in executors for name, synopsis in one.synopses().items()]
        return sum(synopsis.rows for name, synopsis in found if name.endswith(f"{side}_held"))


def test_orders_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = _Watched(monkeypatch)
    query = _query(ORDERS + FULFILMENTS, BOTH)
    run_local([query], _inputs(query, OF_ORDERS), batch_rows=1)
    (join,) = _joins(query.root)
    world = World({name: [(row[0], tuple(row)) for row in rows] for name, rows in OF_ORDERS.items()}, 8)
    assert len(watched.rounds) > 5
    for instant, held in watched.rounds:
        assert held == held_rows(join, world, instant), instant


@pytest.mark.parametrize("seed", range(300, 320))
def test_no_more_is_stored_than_is_held(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """After each round the operator stores the rows that the definition holds, and no other."""
    random = Random(seed)
    watched = _Watched(monkeypatch)
    checked = 0
    for text in (*JOINS[:7], JOINS[8]):
        query, rows, declared = random_join(random, text)
        inputs = _inputs(query, rows)
        plan = plan_queries([query], None, Strategy.PATTERN)
        if not any(isinstance(step.spec, PromisedJoinSpec) for step in plan.steps):
            continue
        watched.rounds = []
        run_local([query], inputs, batch_rows=random.choice((1, 2, 3)), shards=random.randrange(1, 4))
        (join,) = _joins(optimize(query.root))
        world = World({name: [(row[0], row) for row in own] for name, own in rows.items()}, 12)
        for instant, held in watched.rounds:
            allowed = held_rows(join, world, instant)
            assert all(one <= most for one, most in zip(held, allowed, strict=True)), (declared, text, instant)
            checked += 1
    assert checked > 10


def test_state_is_flat_where_orders_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 orders, each complete within ten of the other rows, those are stored that are open."""
    watched = _Watched(monkeypatch)
    declared = _stream("O", "id BIGINT", "UNIQUE (id)") + _stream("F", "id BIGINT", "CLUSTERED BY (id) WITHIN 10 ROWS")
    query = _query(declared, "SELECT O.id, F.t AS at FROM O, F WHERE O.id = F.id")
    rows: dict[str, Rows] = {"O": [(t, t) for t in range(4000)], "F": [(t + 1, t) for t in range(4000)]}
    found = run_local([query], _inputs(query, rows), batch_rows=100, shards=2).tables["q"]
    assert found.num_rows == 4000
    assert len(watched.rounds) == 40
    assert max(left + right for _, (left, right) in watched.rounds) < 20


# --- which shards


def test_rows_lie_by_columns_of_all_clustered() -> None:
    both = _stream("A", COLUMNS, "CLUSTERED BY (x, v)") + _stream("B", COLUMNS, "CLUSTERED BY (x)")
    text = "SELECT A.w FROM A, B WHERE A.x = B.x AND A.v = B.v"
    (join,) = _joins(_query(both, text).root)
    assert join.unused == () and len(join.leaving) == 2
    apart = _stream("A", COLUMNS, "CLUSTERED BY (v) CLUSTERED BY (x)") + _stream("B", COLUMNS, "ORDERED BY (x)")
    (join,) = _joins(_query(apart, text).root)
    assert join.describe()["leaving"] == "right by CLUSTERED BY of A; left by ORDERED BY of B"
    assert join.describe()["not used"] == "CLUSTERED BY of A (x_clustered)"


def test_a_slide_below_another_join_is_refused() -> None:
    declared = _stream("A", COLUMNS) + _stream("B", COLUMNS) + _stream("C", COLUMNS, "CLUSTERED BY (x)")
    inner = "(SELECT A.x FROM A [RANGE 4 SECONDS SLIDE 2 SECONDS], B [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE A.v = B.v)"
    query = _query(declared, f"SELECT i.x FROM {inner} AS i, C WHERE i.x = C.x")
    with pytest.raises(PenstockError, match="below another join or a DISTINCT is not supported yet") as caught:
        run_local([query], {})
    assert caught.value.code == "P0901"


def test_what_a_row_below_another_join_is_closed_by_lies_before_it_enters() -> None:
    """Why that is refused: a row of the join enters at 6, and its value was closed at 4, after the elements of 1 and 2.
    So it leaves after 6; a closing behind 6 would let it meet the row of 7, which breaks the promise."""
    plain = _stream("A", COLUMNS) + _stream("B", COLUMNS) + _stream("C", COLUMNS)
    promised = _stream("A", COLUMNS) + _stream("B", COLUMNS) + _stream("C", COLUMNS, "CLUSTERED BY (x)")
    inner = "(SELECT B.x FROM A [RANGE 6 SECONDS SLIDE 6 SECONDS], B WHERE A.v = B.v)"
    text = f"SELECT C.t FROM {inner} AS i, C WHERE i.x = C.x"
    rows: dict[str, Rows] = {
        "A": [(2, 0, 1, 0), (20, 0, 9, 0)],
        "B": [(1, 7, 1, 0), (20, 0, 8, 0)],
        "C": [(3, 7, 0, 0), (4, 8, 0, 0), (7, 7, 0, 0), (20, 0, 0, 0)],
    }
    answers = []
    for declared in (promised, plain):
        query = _query(declared, text)
        answers.append([(ts, row) for ts, op, row in run_oracle(query, _inputs(query, rows)).events if op == "+"])
    assert answers == [[(6, (3,))], [(6, (3,)), (7, (7,))]]


def _inputs_of_join(declared: str, text: str) -> list[str]:
    """Return the steps from which the one promised join of a query has its rows."""
    plan = plan_queries([_query(declared, text)])
    (join,) = (step for step in plan.steps if isinstance(step.spec, PromisedJoinSpec))
    return [plan.steps[edge.step].spec.title for edge in join.inputs]


def test_rows_that_are_a_whole_stream_are_not_sent_again() -> None:
    """F is read once; how many of its elements an instant has is counted where they are ingested."""
    assert _inputs_of_join(ORDERS + FULFILMENTS, BOTH)[1:] == ["AcceptedScan", "InstantCounts"]


def test_rows_that_are_not_a_whole_stream_need_thin_rows() -> None:
    selected = BOTH.replace("O.id = F.id", "O.id = F.id AND F.item <> 'c'")
    found = _inputs_of_join(ORDERS + FULFILMENTS, selected)
    assert found[2:] == ["AcceptedScan", "InstantCounts"]


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_that_cannot_join_are_last_rows_of_their_values(shards: int) -> None:
    """1 is closed at 5 and not at 4, since a row at 2 has no item."""
    fulfilments: Rows = [(1, 1, "z"), (2, 1, None), (3, 2, "a"), (4, 2, "a"), (5, 2, "a"), (6, 1, "a")]
    declared = _stream("O", "id BIGINT, item STRING") + _stream(
        "F", "id BIGINT, item STRING", "CLUSTERED BY (id) WITHIN 2 ROWS"
    )
    query = _query(declared, "SELECT O.id, F.t AS at FROM O, F WHERE O.id = F.id AND O.item = F.item")
    for ts in (2, 3, 4, 5, 6):
        inputs = _inputs(query, {"O": [(ts, 1, "a")], "F": fulfilments})
        found = run_local([query], inputs, shards=shards, batch_rows=2, reload=True).tables["q"]
        assert_same(query, found, run_oracle(query, inputs))
