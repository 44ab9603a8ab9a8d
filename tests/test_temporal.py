"""Laws of periods: coalescing is idempotent and may be done in parts, the islands of DuckDB are the stretches, exactly
one of Allen's relations holds; and operators over periods go on from the state that a checkpoint keeps.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Closing
from penstock.expressions.nodes import AggregateCall, Column
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements, int64s
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.temporal.coalesce import Coalescing
from penstock.physical.operators.temporal.granule_runs import GranuleRuns
from penstock.physical.operators.temporal.grouped_sessions import GroupedSessions, SessionPieces
from penstock.physical.operators.temporal.sessions import Sessions
from penstock.physical.operators.temporal.stretches_in_order import StretchesInOrder, StretchPieces
from penstock.physical.operators.temporal.stretches_of_window import StretchesOfWindow
from penstock.physical.plan.state.aggregate_layout import plan_lanes
from penstock.physical.plan.temporal.coalesce import CoalesceSpec, StretchPiecesSpec
from penstock.physical.plan.temporal.granules import GranuleRunsSpec
from penstock.physical.plan.temporal.grouped_sessions import GroupedSessionsSpec, SessionPiecesSpec
from penstock.physical.plan.temporal.sessions import SessionsSpec
from penstock.physical.plan.temporal.window_stretches import WindowStretchesSpec
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.definitions.coalesce import stretches
from penstock.types import END

Row = tuple[Any, ...]
TYPES = (pa.string(), pa.int64(), pa.int64())


def rows_of(draw: random.Random, count: int) -> list[Row]:
    begins = [draw.randint(-5, 40) for _ in range(count)]
    return [(draw.choice("xyz"), b, END if draw.random() < 0.05 else b + draw.randint(1, 6)) for b in begins]


@pytest.mark.parametrize("seed", range(30))
def test_coalescing_is_idempotent_and_may_be_done_in_parts(seed: int) -> None:
    draw = random.Random(seed)
    one, other = rows_of(draw, draw.randint(0, 20)), rows_of(draw, draw.randint(0, 20))
    whole = sorted(stretches(one + other))
    assert sorted(stretches(whole)) == whole
    assert sorted(stretches(stretches(one) + stretches(other))) == whole


ISLANDS = """
SELECT k, MIN(b), MAX(e) FROM (
  SELECT k, b, e, SUM(new) OVER (PARTITION BY k ORDER BY b, e ROWS UNBOUNDED PRECEDING) AS island FROM (
    SELECT k, b, e, CASE WHEN b <= MAX(e) OVER (
      PARTITION BY k ORDER BY b, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS new FROM t))
GROUP BY k, island
"""


def periods_table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, TYPES, strict=True)]
    return pa.table(arrays, names=["k", "b", "e"])


@pytest.mark.parametrize("seed", range(10))
def test_stretches_are_the_islands_of_another_system(seed: int) -> None:
    rows = rows_of(random.Random(seed), 300)
    with duckdb.connect() as connection:
        connection.register("t", periods_table(rows))
        assert sorted(connection.sql(ISLANDS).fetchall()) == sorted(stretches(rows))


EPOCHS = (0, -40, -11_676_096_000_000_000, 253_402_300_000_000_000, END - 60)


@pytest.mark.parametrize("origin", EPOCHS)
def test_queries_coalesce_as_another_system_does(origin: int) -> None:
    """Periods that touch, nest and share ends, that are open, and that end near the end of time."""
    draw = random.Random(origin)
    rows: list[tuple[int, str | None, int, int | None]] = []
    for at in range(120):
        b = origin + draw.randrange(50)
        e = None if draw.random() < 0.05 else min(b + draw.randrange(-1, 6), END - 1)
        rows.append((at, draw.choice((*"pqrstuvwxyz", None)), b, e))
    types = (pa.int64(), pa.string(), pa.int64(), pa.int64())
    columns = zip(zip(*rows, strict=True), types, strict=True)
    table = pa.table([pa.array(column, type_) for column, type_ in columns], names=["at", "k", "b", "e"])
    script = """CREATE STREAM t (at BIGINT, k STRING, b BIGINT, e BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND
      VALID FROM b TO e ON ERROR SKIP;
    CREATE QUERY q AS SELECT k, VALID(s) FROM t (k) AS s;"""
    answer = run_local(bind_script(script).queries, {"t": table}).tables["q"].to_pylist()
    kept: Counter[tuple[object, ...]] = Counter()
    for row in answer:
        kept[tuple(row.values())[2:]] += 1 if row["op"] == "+" else -1
    said = [(k, b, END if e is None else e) for _, k, b, e in rows if e is None or b < e]
    with duckdb.connect() as connection:
        connection.register("t", periods_table(said))
        expected = connection.sql(ISLANDS).fetchall()
    found = [(k, b, END if e is None else e) for (k, b, e), count in kept.items() for _ in range(count)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(said) < len(rows) and len(found) > 20


SESSIONS = """
SELECT k, MIN("at"), MAX("at") + {gap}, COUNT(*) FROM (
  SELECT k, "at", SUM(new) OVER (PARTITION BY k ORDER BY "at" RANGE UNBOUNDED PRECEDING) AS session FROM (
    SELECT k, "at",
      CASE WHEN "at" - LAG("at") OVER (PARTITION BY k ORDER BY "at") {within} THEN 0 ELSE 1 END AS new FROM t))
GROUP BY k, session
"""


@pytest.mark.parametrize(("gap", "within"), [(1, "<= 1"), (4, "<= 4"), (7, "<= 7"), (3, "< 4"), (6, "< 7")])
def test_sessions_are_those_of_another_system_also_with_pauses_of_exactly_the_gap(gap: int, within: str) -> None:
    """In Spark and Flink a pause of exactly the gap joins; in RisingWave (SESSION WITH GAP) the least begin of the next
    session is the last row plus the gap, so it parts: the sessions of a gap that is one tick shorter."""
    draw = random.Random(gap)
    at, rows = 0, []
    for _ in range(400):
        at += draw.choice((0, 0, gap - 1, gap, gap + 1))
        rows.append((at, draw.choice(("x", "y", None))))
    table = pa.table({
        "at": pa.array([t for t, _ in rows], pa.int64()), "k": pa.array([k for _, k in rows], pa.string()),
    })  # fmt: skip
    script = f"""CREATE STREAM t (at BIGINT, k STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
    CREATE QUERY q AS RSTREAM(SELECT k, VALID(c), COUNT(*) AS n FROM t [PARTITION BY k SESSION {gap} SECONDS] AS c
      GROUP BY k, VALID(c));"""
    answer = run_local(bind_script(script).queries, {"t": table}, drain=True).tables["q"]
    found = [tuple(row.values())[1:] for row in answer.to_pylist()]
    with duckdb.connect() as connection:
        connection.register("t", table)
        expected = connection.sql(SESSIONS.format(gap=gap, within=within)).fetchall()
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(found) > 20


def elements_of(rows: list[Row], times: list[int], ends: list[int], signs: list[int] | None = None) -> Elements:
    columns = tuple(column.combine_chunks() for column in periods_table(rows).columns)
    sign = None if signs is None else np.array(signs, np.int64)
    return Elements(columns, np.array(times, np.int64), np.array(ends, np.int64), sign)


ONE_LENGTH = """CREATE STREAM m (at BIGINT, k STRING, v INT, b BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
CREATE RELATION u (at BIGINT, k STRING, b BIGINT, op STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND OPERATION BY op;
CREATE QUERY q{} AS SELECT k, VALID(s) FROM {};"""


@pytest.mark.parametrize(
    ("source", "chosen"),
    [
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s", True),
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS WHERE v > 1] AS s WHERE k = 'a'", True),
        ("m (k) VALID FOR 3 SECONDS [NOW] AS s", True),
        ("m (k) VALID FOR v SECONDS [RANGE 9 SECONDS] AS s", False),
        ("m (k) VALID FROM at TO b [RANGE 9 SECONDS] AS s", False),
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS SLIDE 2 SECONDS] AS s", True),
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS SLIDE 2 SECONDS] AS s WHERE CLOSED(VALID(s))", True),
        ("m (k) VALID FOR 3 SECONDS [UNBOUNDED SLIDE 2 SECONDS] AS s", False),
        ("m (k) [RANGE 9 SECONDS SLIDE 2 SECONDS] AS s WHERE CLOSED(VALID(s))", False),
        ("m (k) VALID FOR 3 SECONDS [ROWS 9] AS s", False),
        ("m (k) VALID FOR 3 SECONDS AS s", False),
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s WHERE CLOSED(VALID(s))", True),
        ("u (k) VALID FROM at TO b AS s", False),
    ],
)
def test_periods_of_one_length_in_a_window_have_their_strategy(source: str, chosen: bool) -> None:
    plan = plan_queries(bind_script(ONE_LENGTH.format("", source)).queries)
    found = [step.spec for step in plan.steps if isinstance(step.spec, WindowStretchesSpec)]
    assert bool(found) == chosen
    assert not found or found[0].describe()["state"] == "elements of every value in order of time"
    assert not found or ("closed at" in found[0].describe()) == ("CLOSED" in source)


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("m (k) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s))", True),
        ("m (k) [UNBOUNDED SLIDE 3 SECONDS] AS s WHERE CLOSED(VALID(s))", True),
        ("m (k) VALID FOR 3 SECONDS AS s", False),
        ("m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s WHERE CLOSED(VALID(s))", False),
    ],
)
def test_stretches_that_are_told_once_grow_by_pieces(source: str, made: bool) -> None:
    plan = plan_queries(bind_script(ONE_LENGTH.format("", source)).queries)
    assert any(isinstance(step.spec, StretchPiecesSpec) for step in plan.steps) == made
    rows = elements_of([("x", 1, 4), ("x", 3, 6), ("y", 3, 6), ("x", 9, 12), ("x", 6, 9)], [1, 3, 3, 9, 6], [END] * 5)
    pieces = [(*row[:3], row[3]) for row in events(StretchPieces().process(0, rows))]
    assert pieces == [("x", 1, 12, 1), ("y", 3, 6, 3)]


def test_a_budget_goes_below_another_strategy() -> None:
    source = "m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s"
    plan = plan_queries(bind_script(ONE_LENGTH.format(" WITH (memory '5 TUPLES')", source)).queries)
    assert not any(isinstance(step.spec, WindowStretchesSpec) for step in plan.steps)


def _lives(rows: list[Row], stay: int) -> tuple[list[int], list[int]]:
    return [begin for _, begin, _ in rows], [begin + stay for _, begin, _ in rows]


@pytest.mark.parametrize("seed", range(24))
def test_periods_of_one_length_in_a_window_change_as_any_periods_do(seed: int) -> None:
    """The changes at every instant are those of the operator for any periods, whatever the sizes: also beyond the first
    ring, of values that go and come back, and of several rows of one instant."""
    draw = random.Random(seed)
    length, stay, values = (
        draw.randint(1, 9),
        draw.randint(1, 30),
        draw.choice(("x", "xyz", "abcdefghijklmnopqrstuvwxyz")),
    )
    slide, align = draw.choice((1, 1, 3, 20)), draw.randint(-2, 2)
    closing = draw.choice((None, Closing(slide if slide > 1 else None, align if slide > 1 else 0)))
    one, any_ = StretchesOfWindow(WindowStretchesSpec(TYPES, closing)), Coalescing(CoalesceSpec(TYPES, closing))
    at, rows = draw.randint(-5, 0), []
    for _ in range(draw.choice((5, 300, 900))):
        at += draw.choice((0, 0, 0, 1, 1, 2, 40 if draw.random() < 0.05 else length))
        rows.append((draw.choice(values) if draw.random() < 0.9 else None, at, at + length))
    done = 0
    while done < len(rows):
        now = rows[done : done + draw.choice((1, 7, 200))]
        done += len(now)
        latest = now[-1][1]
        draw.shuffle(now)
        times, ends = ([align - (align - t) // slide * slide for t in of] for of in _lives(now, stay))
        lived = [i for i, at in enumerate(times) if at < ends[i]]
        now, times, ends = ([part[i] for i in lived] for part in (now, times, ends))
        # Rows of the last instant may follow: they wait with what is ahead of the heartbeat.
        heartbeat = latest - 1 if done < len(rows) else latest + draw.choice((0, stay, 99))
        for operator in (one, any_):
            operator.process(0, elements_of(now, times, ends))
        assert events(list(one.advance(Moment(heartbeat, 0)))) == events(list(any_.advance(Moment(heartbeat, 0))))


@pytest.mark.parametrize("seed", range(20))
def test_many_periods_of_few_values_are_what_their_definition_says(seed: int) -> None:
    """Rows that leave in any order, some taken back; sums of what came and went, after each of some rounds."""
    draw = random.Random(seed)
    operator = Coalescing(CoalesceSpec(TYPES))
    rows = rows_of(draw, 400)
    times = [draw.randint(0, 60) for _ in rows]
    ends = [at + draw.randint(1, 30) if draw.random() < 0.8 else END for at in times]
    told: dict[Row, int] = {}
    done = -1
    for heartbeat in sorted({draw.randint(0, 100) for _ in range(8)} | {100}):
        now = [i for i, at in enumerate(times) if done < at <= heartbeat]
        if now:
            chosen = [[part[i] for i in now] for part in (rows, times, ends)]
            operator.process(0, elements_of(*chosen))
        for changed in operator.advance(Moment(heartbeat, 0)):
            values = zip(*(column.to_pylist() for column in changed.columns), strict=True)
            for row, sign in zip(values, changed.signs.tolist(), strict=True):
                told[row] = told.get(row, 0) + sign
        done = heartbeat
        live = [row for row, at, end in zip(rows, times, ends, strict=True) if at <= heartbeat < end]
        assert dict.fromkeys(stretches(live), 1) == {row: count for row, count in told.items() if count}


def restored(operator: Operator, fresh: Operator) -> Operator:
    """`fresh` with the state of `operator`, as a checkpoint keeps it."""
    for name, synopsis in operator.synopses().items():
        manifest, chunks = synopsis.snapshot()
        fresh.synopses()[name].restore(manifest, chunks)
    fresh.restore_marks(operator.marks())
    return fresh


def session_elements(draw: random.Random, count: int) -> Elements:
    at = np.sort(np.array([draw.randint(0, 80) for _ in range(count)], np.int64))
    keys = pa.array([draw.choice("xyz") for _ in range(count)])
    gaps = pa.array([draw.choice([None, 0, 1, 2, 4]) for _ in range(count)], pa.int64())
    return Elements((keys, gaps), at, np.full(count, END, np.int64))


#: MIN, COUNT and SUM of a gap, and the sum of it as a double, by the first column.
GAP, HALF = Column(pa.int64(), 1, "gap"), Column(pa.float64(), 2, "half")
CALLS = (
    AggregateCall(pa.int64(), "MIN", (GAP,)), AggregateCall(pa.int64(), "SUM", (GAP,)),
    AggregateCall(pa.float64(), "SUM", (HALF,)),
)  # fmt: skip
LAYOUT = plan_lanes((0,), CALLS, strict=False)
LANES = (*[pa.int64()] * len(LAYOUT.carried[0]), *[pa.float64()] * len(LAYOUT.carried[1]))
PIECES = (pa.string(), *LANES, pa.int64(), pa.int64())


def session_pieces(draw: random.Random, count: int) -> Elements:
    rows = session_elements(draw, count)
    halves = pa.array([draw.choice([None, 0.5, 2.0**-40, 1e300]) for _ in range(count)], pa.float64())
    elements = rows.with_columns((*rows.columns, halves, rows.columns[1]))
    (pieces,) = SessionPieces(SessionPiecesSpec(LAYOUT, False)).process(0, elements)
    return pieces


def granule_elements(draw: random.Random, count: int) -> Elements:
    at = sorted(draw.randint(0, 40) * 2 for _ in range(count // 3))
    rows = [(draw.choice("wxyz"), t - 2, t) for t in at]
    return elements_of(rows, at, [t + 8 for t in at])


def period_elements(draw: random.Random, count: int) -> Elements:
    at = sorted(draw.randint(0, 80) for _ in range(count))
    rows = [(draw.choice("xyz"), t, t + draw.randint(0, 4)) for t in at]
    return elements_of(rows, at, [END] * count)


def window_elements(draw: random.Random, count: int) -> Elements:
    at = sorted(draw.randint(0, 80) for _ in range(count))
    return elements_of([(draw.choice("xyz"), t, t + 2) for t in at], at, [t + 9 for t in at])


MAKERS = {
    "any": (lambda: Coalescing(CoalesceSpec(TYPES)), period_elements),
    "closed": (lambda: Coalescing(CoalesceSpec(TYPES, Closing(3))), period_elements),
    "in order": (lambda: StretchesInOrder(CoalesceSpec(TYPES, None, Closing())), period_elements),
    "once": (lambda: StretchesInOrder(CoalesceSpec(TYPES, Closing(), Closing())), period_elements),
    "in a window": (lambda: StretchesOfWindow(WindowStretchesSpec(TYPES)), window_elements),
    "closed in a window": (lambda: StretchesOfWindow(WindowStretchesSpec(TYPES, Closing(3))), window_elements),
    "sessions": (lambda: Sessions(SessionsSpec(TYPES, (0,), None, False)), session_elements),
    "granules": (lambda: GranuleRuns(GranuleRunsSpec(TYPES, 2, 8)), granule_elements),
    "aggregates of sessions": (
        lambda: GroupedSessions(GroupedSessionsSpec(LAYOUT, PIECES, 1, (0, 1, 2), None, True)), session_pieces,
    ),
    "open": (lambda: Sessions(SessionsSpec(TYPES, (0,), 5, True)), session_elements),
}  # fmt: skip


def events(parts: list[Elements]) -> list[Row]:
    found = []
    for part in parts:
        values = zip(*(column.to_pylist() for column in part.columns), strict=True)
        times = zip(part.ts.tolist(), part.exp.tolist(), part.signs.tolist(), strict=True)
        found += [(*row, *at) for row, at in zip(values, times, strict=True)]
    return sorted(found, key=repr)


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_restored_operator_goes_on_as_the_one_that_was_kept(kind: str, seed: int) -> None:
    make, elements = MAKERS[kind]
    draw = random.Random(seed)
    given = elements(draw, 200)
    kept, other = make(), make()
    done = -1
    for heartbeat in (*sorted(draw.sample(range(80), 6)), 120):
        now = (given.ts > done) & (given.ts <= heartbeat + 3)
        for operator in (kept, other):
            if now.any():
                operator.process(0, given.filter(now))
        assert events(list(kept.advance(Moment(heartbeat, 0)))) == events(list(other.advance(Moment(heartbeat, 0))))
        other, done = restored(other, make()), heartbeat + 3


def test_many_values_are_known_after_a_restart() -> None:
    """More than a table keeps when all of its slots look dead."""
    values, later = range(200), Moment(6, 0)
    kept, fresh = Coalescing(CoalesceSpec(TYPES)), Coalescing(CoalesceSpec(TYPES))
    kept.process(0, elements_of([(f"{k}", 0, 10) for k in values], [0] * 200, [END] * 200))
    assert len(events(list(kept.advance(Moment(1, 0))))) == 200
    other = restored(kept, fresh)
    other.advance(Moment(2, 0))
    for operator in (kept, other):
        operator.process(0, elements_of([(f"{k}", 5, 15) for k in values], [5] * 200, [END] * 200))
    found = events(list(kept.advance(later)))
    assert len(found) == 400 and events(list(other.advance(later))) == found


ALLEN = """
CREATE RELATION p (n INT, a BIGINT, b BIGINT) FROM MEMORY () VALID FROM a TO b;
CREATE QUERY q AS SELECT ALLEN(VALID(x), VALID(y)) AS found, x.a AS xa, x.b AS xb, y.a AS ya, y.b AS yb FROM p x, p y;
"""


def relation_of(a: int, b: int, c: int, d: int) -> str:
    """Allen's table, by the order of the four bounds."""
    if b < c or d < a:
        return "before" if b < c else "after"
    if b == c or d == a:
        return "meets" if b == c else "met by"
    if a == c:
        return "equals" if b == d else "starts" if b < d else "started by"
    if b == d:
        return "finishes" if a > c else "finished by"
    if a < c:
        return "contains" if b > d else "overlaps"
    return "during" if b < d else "overlapped by"


def test_exactly_one_of_allens_relations_holds() -> None:
    bounds = [(a, b) for a in range(4) for b in range(a + 1, 5)]
    rows = pa.table({
        "n": pa.array(range(len(bounds)), pa.int32()), "a": pa.array([a for a, _ in bounds], pa.int64()),
        "b": pa.array([b for _, b in bounds], pa.int64()),
    })  # fmt: skip
    answer = run_local(bind_script(ALLEN).queries, {"p": rows}).tables["q"].to_pylist()
    assert len(answer) == len(bounds) ** 2
    for row in answer:
        assert row["found"] == relation_of(row["xa"], row["xb"], row["ya"], row["yb"])
    assert len({row["found"] for row in answer}) == 13


def test_ten_thousand_stretches_of_one_value() -> None:
    count = 10_000
    operator = Coalescing(CoalesceSpec(TYPES))
    order = list(range(count))
    random.Random(1).shuffle(order)
    operator.process(0, elements_of([("x", 3 * i, 3 * i + 1) for i in order], [0] * count, [9] * count))
    (first,) = operator.advance(Moment(0, 0))
    assert len(first) == count
    operator.process(0, elements_of([("x", 0, 3 * count)], [1], [5]))
    bridge = list(operator.advance(Moment(1, 0)))
    assert sum(len(part) for part in bridge) == count + 1
    assert [int64s(part.columns[-1]).max() for part in bridge] == [3 * count]


@pytest.mark.parametrize("slides", [5, 500])
def test_runs_of_granules_keep_no_granules(slides: int) -> None:
    """The state is a run for every value and gap, however long the window is, and what is shown are its changes."""
    operator = GranuleRuns(GranuleRunsSpec(TYPES, 1, slides))
    for at in range(1, 1_000):
        rows = [("x", at - 1, at)] + ([("y", at - 1, at)] if at % 100 < 50 else [])
        operator.process(0, elements_of(rows, [at] * len(rows), [at + slides] * len(rows)))
        shown = sum(len(part) for part in operator.advance(Moment(at, 0)))
        assert shown <= 2 + slides // 50, "one row for each run that changes"
        rows_kept = {name: synopsis.rows for name, synopsis in operator.synopses().items()}
        assert rows_kept["values"] <= 2 and rows_kept["ended"] <= 1 + slides // 100 and not rows_kept["early"]
