"""Joins by ranges: candidates by binary search, bands spread over shards, trees that hand on what is read."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Call, Column, Literal
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.plan.joins.ranges import RangeSpan, cells, span_keys
from penstock.physical.plan.joins.specs import BandPartitionerSpec, JoinSpec
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.planning.planner import plan_queries
from penstock.physical.synopses.join_indexes import interval_runs as synopsis
from penstock.physical.synopses.join_indexes.interval_runs import IntervalRuns, probe_ranges
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, k INT, x INT, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;\n"
    for name in "STU"
)


def plan(query: str, shards: int = 4) -> Plan:
    (bound,) = bind_script(f"{STREAMS}CREATE QUERY q AS {query};").queries
    return plan_queries([replace(bound, root=optimize(bound.root))], Statistics(shards=shards))


def random_elements(seed: int, size: int, lengths: tuple[int, ...]) -> Elements:
    draw = np.random.default_rng(seed)
    ts = draw.integers(-500, 20_000, size)
    columns = (pa.array(draw.integers(0, 3, size)), pa.array(draw.integers(-300, 300, size)))
    return Elements(columns, ts, ts + draw.choice(lengths, size))


@pytest.mark.parametrize("lengths", [(1,), (50,), (1, 400), (10, 1 << 61)])
@pytest.mark.parametrize("key", [(), (0,)])
def test_a_probe_finds_what_overlaps_in_key_span_and_time(lengths: tuple[int, ...], key: tuple[int, ...]) -> None:
    x = Column(pa.int64(), 1)
    wide = RangeSpan(Call(pa.int64(), "SUB", (x, Literal(pa.int64(), 7))), Call(pa.int64(), "ADD", (x, x)))
    held, asking = random_elements(1, 3000, lengths), random_elements(2, 400, lengths)
    runs = IntervalRuns(key, wide, strict=False)
    for start, stop in ((0, 2500), (2500, 2900), (2900, 2990), (2990, 3000)):
        runs.add(held.slice(start, stop))
    assert len(list(runs)) > 1
    found = set()
    ends = span_keys(RangeSpan(x, x), asking)
    prints = fingerprints([asking.columns[i] for i in key], len(asking))
    for run in runs:
        for probe, rows in probe_ranges(run, asking, *prints, *ends, limit=100):
            assert len(probe) > 0
            for i, j in zip(probe.tolist(), run.elements.take(rows).ts.tolist(), strict=True):
                found.add((i, j))
    k, v = (held.columns[i].to_numpy() for i in (0, 1))
    expected = set()
    for i in range(len(asking)):
        low, mine = asking.columns[1][i].as_py(), asking.columns[0][i].as_py()
        fits = (v - 7 <= low) & (v + v >= low) & (held.ts < asking.exp[i]) & (held.exp > asking.ts[i])
        fits &= (k == mine) if key else True
        expected |= {(i, int(ts)) for ts in held.ts[fits]}
    assert found == expected


def test_long_runs_are_cut_into_stretches_of_time() -> None:
    x = Column(pa.int64(), 1)
    runs = IntervalRuns((), RangeSpan(x, x), strict=False)
    runs.add(random_elements(1, 3000, (1,)))
    (run,) = runs
    assert 1 < len(run.first) <= 3000 // synopsis._STRETCH + 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.0, -0.0, 0.49, 0.5, -0.5, 1e300, float("inf"), float("-inf"), float("nan")]),
        pa.array([Decimal("-0.01"), Decimal("0.00"), Decimal("99.99")], pa.decimal128(6, 2)),
        pa.array([-(2**31), -1, 0, 1, 2**31 - 1], pa.int32()),
        pa.array([-1, 0, 10**15], pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_greater_value_lies_in_no_earlier_cell(column: pa.Array) -> None:
    here = Column(column.type, 0)
    elements = Elements((column,), np.zeros(len(column), np.int64), np.ones(len(column), np.int64))
    lows, _ = span_keys(RangeSpan(here, here), elements)
    first, last = cells(RangeSpan(here, here), elements, 0.5)
    order = np.argsort(lows, kind="stable")
    assert (np.diff(first[order]) >= 0).all()
    assert first.tolist() == last.tolist()
    equal = np.diff(lows[order]) == 0
    assert not np.diff(first[order])[equal].any()


BAND = "SELECT S.w, T.w AS u FROM S [RANGE 9 SECOND], T [RANGE 9 SECOND] WHERE S.x BETWEEN T.x - 3 AND T.x + 3"


def test_a_band_is_cut_into_cells_over_shards() -> None:
    steps = plan(BAND).steps
    assert [s.spec.width for s in steps if isinstance(s.spec, BandPartitionerSpec)] == [6.0, 6.0]
    (join,) = (s for s in steps if isinstance(s.spec, JoinSpec))
    assert all(edge.exchange is not None and edge.exchange.key for edge in join.inputs)
    inputs = {
        name: pa.table(
            {
                "ts": pa.array(np.arange(200) // 20, pa.int32()),
                "k": pa.array(np.zeros(200), pa.int32()),
                "x": pa.array(np.arange(200) * 7 % 100, pa.int32()),
                "w": pa.array([f"{name}{i}" for i in range(200)]),
            }
        )
        for name in "ST"
    }
    (bound,) = bind_script(f"{STREAMS}CREATE QUERY q AS ISTREAM({BAND});").queries
    answers = [CaseRun(shards=n, guesses=None).answer([bound], inputs, False, None) for n in (1, 3)]
    tables = [sorted(map(str, a.tables["q"].to_pylist())) for a in answers]
    assert tables[0] == tables[1]
    ts, xs = (np.abs(v[:, None] - v[None, :]) for v in (np.arange(200) // 20, np.arange(200) * 7 % 100))
    assert len(tables[0]) == int(((xs <= 3) & (ts < 9)).sum())


@pytest.mark.parametrize(
    "condition",
    [
        "S.x < T.x",
        "S.x BETWEEN T.x AND T.x + T.k",
        "S.x BETWEEN T.x - 1 AND T.x + 1 AND S.k = T.k",
        "S.w BETWEEN T.w AND T.w",
    ],
)
def test_what_is_no_band_or_has_a_key_is_not_cut(condition: str) -> None:
    steps = plan(f"SELECT S.x FROM S [RANGE 9 SECOND], T [RANGE 9 SECOND] WHERE {condition}").steps
    assert not [s for s in steps if isinstance(s.spec, BandPartitionerSpec)]
    (join,) = (s.spec for s in steps if isinstance(s.spec, JoinSpec))
    assert join.ranges is not None


def test_one_shard_needs_no_cells() -> None:
    assert not [s for s in plan(BAND, shards=1).steps if isinstance(s.spec, BandPartitionerSpec)]


def test_three_inputs_in_a_band_are_joined_two_by_two() -> None:
    query = (
        "SELECT S.w FROM S [RANGE 9 SECOND], T [RANGE 9 SECOND], U [RANGE 9 SECOND] "
        "WHERE S.x BETWEEN T.x - 1 AND T.x + 1 AND T.k BETWEEN U.k - 1 AND U.k + 1"
    )
    specs = [s.spec for s in plan(query).steps]
    assert sum(isinstance(spec, JoinSpec) for spec in specs) == 2
    assert sum(isinstance(spec, BandPartitionerSpec) for spec in specs) == 4


def test_a_tree_of_joins_hands_on_what_is_read() -> None:
    """Between the joins stand the item and the key of the next join alone."""
    query = "SELECT S.w FROM S [RANGE 9 SECOND], T [RANGE 9 SECOND], U [RANGE 9 SECOND] WHERE S.k = T.k AND T.x = U.x"
    steps = plan(query, shards=64).steps
    joins = [s for s in steps if isinstance(s.spec, JoinSpec)]
    assert len(joins) == 2
    between = [s for s in steps if isinstance(s.spec, ProjectSpec) and s.inputs[0].step == joins[0].id]
    assert [len(s.types) for s in between] == [2]
    assert len(steps[joins[1].inputs[0].step].types) + len(steps[joins[1].inputs[1].step].types) == len(joins[1].types)
    assert len(joins[1].types) == 3


@pytest.mark.parametrize(
    ("condition", "left", "right"),
    [
        ("S.x - T.k < 5", ("x", None), (None, "k + 5")),
        ("T.k - S.x >= -2 AND 3 > T.k - S.x", ("x", "x"), ("k - 3", "k - -2")),
        ("ABS(S.x - T.k) <= 4", ("x", "x"), ("k + -4", "k + 4")),
    ],
)
def test_differences_are_read_as_bounds(
    condition: str, left: tuple[str | None, ...], right: tuple[str | None, ...]
) -> None:
    steps = plan(f"SELECT S.x FROM S [RANGE 9 SECOND], T [RANGE 9 SECOND] WHERE {condition}").steps
    (join,) = (s.spec for s in steps if isinstance(s.spec, JoinSpec))
    assert join.ranges is not None and join.ranges.cell is None
    sides = []
    for span, names in ((join.ranges.left, ("x",)), (join.ranges.right, ("k",))):
        assert span.limit == 1 << 29
        shown = [None if e is None else to_sql(e, names * 4) for e in (span.low, span.high)]
        sides.append(tuple(shown))
    assert [sides[0], sides[1]] == [left, right]


def test_what_is_far_from_zero_overlaps_everything() -> None:
    x = Column(pa.int32(), 0)
    elements = Elements((pa.array([1 << 29, (1 << 29) + 1, -(2**31)], pa.int32()),), *np.array([[0] * 3, [1] * 3]))
    lows, highs = span_keys(RangeSpan(x, None, 1 << 29), elements)
    assert (lows[0], highs[0]) == (1 << 29, 2**63 - 1)
    assert set(lows[1:].tolist()) == {-(2**63)} and set(highs[1:].tolist()) == {2**63 - 1}
    assert span_keys(RangeSpan(x, x), elements)[0].tolist() == elements.columns[0].to_pylist()


FAR = """CREATE STREAM S (ts INT, i INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (j INT, at TIMESTAMP) FROM MEMORY ();
"""


@pytest.mark.parametrize(
    "condition",
    [
        "ABS(S.at - R.at) <= INTERVAL 1 HOUR",
        "S.at - R.at < INTERVAL 1 HOUR",
        "S.at < R.at + INTERVAL 1 HOUR",
        "S.at - R.at BETWEEN INTERVAL 0 SECOND AND INTERVAL 2 HOURS",
        "S.at >= R.at - INTERVAL 1 HOUR AND S.at - R.at <= INTERVAL 1 HOUR",
    ],
)
@pytest.mark.parametrize("kind", ["", "LEFT "])
def test_times_near_the_limits_meet_though_their_sums_overflow(condition: str, kind: str) -> None:
    """The bound of a difference is a sum, which is NULL where it overflows; the difference itself need not be."""
    bound = bind_script(f"{FAR}CREATE QUERY q AS SELECT i, j FROM S [RANGE 2 SECOND] {kind}JOIN R ON {condition};")
    half = 1_800_000_000
    near_ends = [*(2**63 - 1 - half * n for n in range(4)), *(-(2**63) + half * n for n in range(4))]
    ticks = pa.array([*near_ends, 0, half, 2**61, None], pa.int64()).view(pa.timestamp("us", "UTC"))
    count = pa.array(range(len(ticks)), pa.int32())
    many = pa.concat_arrays([ticks] * 30)
    inputs = {
        "S": pa.table({"ts": count, "i": count, "at": ticks}),
        "R": pa.table({"j": pa.array(range(len(many)), pa.int32()), "at": many}),
    }
    (asked,) = bound.queries
    assert_same(asked, CaseRun(2).answer(bound.queries, inputs, False).tables["q"], run_oracle(asked, inputs))


RELATIONS = """CREATE STREAM S (ts INT, k INT, i INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION Few (k INT, i INT) FROM MEMORY (); CREATE RELATION Many (k INT, j INT) FROM MEMORY ();
CREATE RELATION Moving (ts INT, k INT, j INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
SIZES = (3, 256, 257, 700)
AGAINST_A_RELATION = (
    "SELECT i, COUNT(*) AS n FROM Few, Many WHERE j <= i GROUP BY i",
    "SELECT Few.i, j FROM Few LEFT JOIN Many ON j > Few.i",
    "SELECT Few.i, j FROM Few LEFT JOIN Many ON Few.k = Many.k AND j BETWEEN Few.i - 1 AND Few.i",
    "SELECT i FROM S WHERE EXISTS (SELECT 1 FROM Many WHERE j <= i)",
    "SELECT i FROM S [RANGE 2 SECOND] WHERE NOT EXISTS (SELECT 1 FROM Many WHERE j <= i AND Many.k = S.k)",
    "SELECT i FROM S WHERE i < ANY (SELECT j FROM Many)",
    "SELECT i, COUNT(j) AS n FROM S [RANGE 2 SECOND] LEFT JOIN Many ON j < i GROUP BY i",
    "SELECT S.i, COUNT(*) AS n FROM S [RANGE 3 SECOND], Moving WHERE j < S.i GROUP BY S.i",
)


@pytest.mark.spread(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("query", AGAINST_A_RELATION)
def test_a_relation_of_any_size_meets_what_it_should(query: str, size: int) -> None:
    """Rows of a static relation hold from the beginning of time to its end, which is longer than an int64 holds."""
    bound = bind_script(f"{RELATIONS}CREATE QUERY q AS {query};")
    draw = np.random.default_rng(size)

    def numbers(count: int, most: int) -> pa.Array:
        return pa.array(draw.integers(0, most, count), pa.int32())

    few = {"k": numbers(6, 3), "i": numbers(6, 9)}
    many = {"k": numbers(size, 4), "j": numbers(size, 60)}
    ticks = {"ts": pa.array(range(6), pa.int32())}
    moving = {"ts": pa.array([0] * (size // 2) + [2] * (size - size // 2), pa.int32())}
    inputs = {
        name: pa.table(columns)
        for name, columns in {"S": ticks | few, "Few": few, "Many": many, "Moving": moving | many}.items()
    }
    (asked,) = bound.queries
    assert_same(asked, CaseRun(2).answer(bound.queries, inputs, False).tables["q"], run_oracle(asked, inputs))


#: Values of each type: its ends, what a sum with a constant overflows from, fractions of both signs, NaN.
BANDED = {
    "TINYINT": (-128, -127, -3, -1, 0, 1, 2, 3, 126, 127, None),
    "INT": (-(2**31), 5 - 2**31, -3, -1, 0, 1, 2, 7, 2**31 - 6, 2**31 - 1, None),
    "BIGINT": (-(2**63), 2 - 2**63, -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 4, 2**63 - 1, None),
    "DECIMAL(6,2)": ("-9999.99", "-1.50", "-0.01", "0.00", "0.49", "0.50", "1.00", "9999.99", None),
    "DECIMAL(38,0)": (10**38 - 1, 1 - 10**38, 2**64 + 1, 2**64, -1, 0, 1, None),
    "FLOAT": (float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, -0.5, -0.0, 0.0, 1.5, None),
    "DOUBLE": (float("nan"), float("inf"), float("-inf"), 1.7e308, 2.0**53, -0.5, -0.0, 0.0, 0.5, 1.0, None),
    "DATE": (*(dt.date(*d) for d in ((1, 1, 1), (1969, 12, 31), (1970, 1, 1), (1970, 1, 2), (9999, 12, 31))), None),
    "TIMESTAMP": (*(dt.datetime(1970, 1, d, h, tzinfo=dt.UTC) for d in (1, 2) for h in (0, 1, 23)), None),
}
MOMENTS = ("DATE", "TIMESTAMP")
BANDS = (
    "b BETWEEN a AND a + 0.5", "b BETWEEN a - 0.25 AND a", "b > a - 1.5 AND b < a + 1.5",
    "b BETWEEN a - 2 AND a + 0.5e0",
    "b + 0.5 >= a AND b - 1 <= a", "b - 10 <= a - 5 AND a + 5 <= b + 10", "b BETWEEN a + 5 AND a + 7.5",
    "b BETWEEN a - 7.5 AND a - 5", "b BETWEEN a - 5 AND a + 7.5", "b >= a + 5 AND b <= CAST(a AS BIGINT) + 7",
    "b BETWEEN CAST(a AS TINYINT) AND a + 3", "b BETWEEN CAST(a AS INT) AND a + 0.5", "b >= a - 1e38 AND b <= a + 1e38",
    "b >= a AND b < a + 1e308", "b >= a AND b - 1.5 <= a", "b >= a AND ABS(b - a) <= 2", "b < a + 0.5",
)  # fmt: skip
BANDS_OF_MOMENTS = (
    "b BETWEEN a - INTERVAL 1 HOUR AND a", "b >= a AND b < a + INTERVAL 1 DAY", "b > a",
    "b BETWEEN a - INTERVAL 90 MINUTES AND a + INTERVAL 1 DAY",
)  # fmt: skip
JOINED = (
    "SELECT L.n, R.n AS m FROM L{w}, R{w} WHERE {c}",
    "SELECT L.n, R.n AS m FROM L{w} LEFT JOIN R{w} ON {c}",
    "SELECT n FROM L{w} WHERE NOT EXISTS (SELECT 1 FROM R{w} WHERE {c})",
    "SELECT n FROM L{w} WHERE EXISTS (SELECT 1 FROM R{w} WHERE {c} AND L.n <> R.n)",
)


def column_of(kind: str) -> pa.Array:
    arrow = {
        "TINYINT": pa.int8(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "DECIMAL(6,2)": pa.decimal128(6, 2),
        "DECIMAL(38,0)": pa.decimal128(38, 0),
    }[kind]
    values = BANDED[kind]
    return pa.array([Decimal(v) if v is not None and "DEC" in kind else v for v in values], arrow)


@pytest.mark.spread(3)
@pytest.mark.parametrize("other", BANDED)
@pytest.mark.parametrize("kind", BANDED)
def test_bounds_of_another_type_than_the_column(kind: str, other: str, case_count: int | None) -> None:
    """Streams in windows and without, relations, two and three shards: what the oracle joins, and no more cells than
    memory has room for. `--cases 17` tries all conditions of each pair of types."""
    if (kind in MOMENTS) != (other in MOMENTS):
        return
    conditions = BANDS_OF_MOMENTS if kind in MOMENTS else BANDS
    draw = random.Random(f"{kind} {other}")
    declared = "".join(
        f"CREATE STREAM {name} (ts INT, n INT, {column} {type_}) FROM MEMORY () TIMESTAMP BY ts;"
        f"CREATE RELATION {name}_static (n INT, {column} {type_}) FROM MEMORY ();"
        for name, column, type_ in (("L", "a", kind), ("R", "b", other))
    )
    inputs = {}
    for name, column, values in (("L", "a", column_of(kind)), ("R", "b", column_of(other))):
        numbers = pa.array(range(len(values)), pa.int32())
        ts = pa.array(sorted(draw.randint(0, 5) for _ in values), pa.int32())
        inputs[name] = pa.table({"ts": ts, "n": numbers, column: values})
        inputs[f"{name}_static"] = pa.table({"n": numbers, column: values})
    for condition in draw.sample(conditions, min(case_count or 1, len(conditions))):
        shape, window = draw.choice(JOINED), draw.choice(("", " [RANGE 3 SECOND]", " [ROWS 3]"))
        texts = [JOINED[0].format(w="", c=condition), shape.format(w=window, c=condition)]
        texts.append(f"SELECT L.n, R.n AS m FROM L LEFT JOIN R_static AS R ON {condition}")
        script = declared + "".join(f"CREATE QUERY q{n} AS {text};" for n, text in enumerate(texts))
        bound = bind_script(script)
        run = CaseRun(shards=draw.choice((2, 3)), guesses=draw.choice((None, draw.randrange(1000))))
        found = run.answer(bound.queries, inputs, False, None)
        for query in bound.queries:
            assert_same(query, found.tables[query.name], run_oracle(query, inputs))
