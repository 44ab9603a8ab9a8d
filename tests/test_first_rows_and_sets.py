"""The counting operators over many rounds and tuples: what is forgotten, what bounds the candidates.

Random elements, of which negative tuples end some early, against plain Python: after each round, what was told so far
gives the answer at every instant that is known.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import SortKey
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.operators import Moment, Operator, make_operator
from penstock.physical.plan.joins.specs import Keep, PartnerCountsSpec
from penstock.physical.plan.sets import CopyRule, DistinctSpec, SetOperationSpec, TopKSpec
from penstock.physical.plan.strategies import Strategy
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.types import END
from tests.element_rows import element_rows

TYPES = (pa.string(), pa.int64())
ROUNDS, TICKS = 12, 10
Row = tuple[str | None, int]
Piece = tuple[int, int, int, Row]


def pieces(draw: random.Random, values: int) -> list[Piece]:
    """(ts, exp, sign, row)"""
    found: list[Piece] = []
    for _ in range(1500):
        number = draw.randrange(values)
        row = (draw.choice([None, f"prefix {number // 3}"]), number)
        ts = draw.randrange(ROUNDS * TICKS)
        exp = draw.choice([END, ts + draw.randint(1, 30)])
        found.append((ts, exp, draw.choice([1, 1, 2]), row))
        if draw.random() < 0.5:
            end = ts + draw.randint(1, 15)
            if end < exp:
                found.append((end, exp, -found[-1][2], row))
    return found


def elements(found: list[Piece]) -> Elements:
    columns = tuple(pa.array([row[i] for _, _, _, row in found], t) for i, t in enumerate(TYPES))
    ts, exp, sign = (np.array([piece[i] for piece in found], np.int64) for i in range(3))
    return Elements(columns, ts, exp, sign)


def bag(found: list[Piece], tau: int) -> Counter[Row]:
    held: Counter[Row] = Counter()
    for ts, exp, sign, row in found:
        if ts <= tau < exp:
            held[row] += sign
    return +held


def answers(operator: Operator, ports: list[list[Piece]]) -> Iterator[tuple[int, Counter[Row]]]:
    """Feeds the pieces round by round; (instant, what the operator says of it)."""
    told: list[Piece] = []
    for number in range(ROUNDS):
        first, last = number * TICKS, number * TICKS + TICKS - 1
        for port, found in enumerate(ports):
            now = [piece for piece in found if first <= piece[0] <= last]
            operator.process(port, elements(now))
        for made in operator.advance(Moment(last, 0)):
            told += [(ts, exp, sign, tuple(row)) for ts, exp, sign, *row in element_rows(made)]  # type: ignore[misc]
        for tau in range(first, last + 1, 3):
            yield tau, bag(told, tau)


@pytest.mark.parametrize("values", [7, 400])
@pytest.mark.parametrize("order", [(SortKey(0), SortKey(1, True)), (SortKey(1, True), SortKey(0, True, False))])
def test_the_first_rows(order: tuple[SortKey, ...], values: int) -> None:
    found = pieces(random.Random(values), values)

    def place(row: Row) -> list[object]:
        keys: list[object] = []
        for key in order:
            value = row[key.column]
            keys.append((value is None) is not key.nulls_first)
            if isinstance(value, int):
                keys.append(-value if key.descending else value)
            else:
                keys.append([(-ord(c) if key.descending else ord(c)) for c in value or ""] + [1] * key.descending)
        return keys

    operator = make_operator(TopKSpec(order, 5, 2, TYPES), {}, 1)
    for tau, told in answers(operator, [found]):
        expected = sorted(bag(found, tau).elements(), key=place)[2:7]
        assert told == Counter(expected), tau


@pytest.mark.parametrize("values", [7, 400])
@pytest.mark.parametrize("kind", list(CopyRule))
def test_set_operations(kind: CopyRule, values: int) -> None:
    left, right = pieces(random.Random(values), values), pieces(random.Random(-values), values)
    meaning = {
        CopyRule.EXCEPT_ALL: lambda a, b: a - b,
        CopyRule.INTERSECT_ALL: lambda a, b: a & b,
        CopyRule.EXCEPT: lambda a, b: Counter(a.keys() - b.keys()),
        CopyRule.INTERSECT: lambda a, b: Counter(a.keys() & b.keys()),
    }
    operator = make_operator(SetOperationSpec(kind, TYPES), {}, 1)
    for tau, told in answers(operator, [left, right]):
        assert told == meaning[kind](bag(left, tau), bag(right, tau)), tau


@pytest.mark.parametrize("values", [7, 400])
def test_duplicates(values: int) -> None:
    found = pieces(random.Random(values), values)
    operator = make_operator(DistinctSpec(TYPES, True), {}, 1)
    for tau, told in answers(operator, [found]):
        assert told == Counter(bag(found, tau).keys()), tau


@pytest.mark.parametrize(
    "spec",
    [DistinctSpec(TYPES, True), TopKSpec((SortKey(1), SortKey(0)), 300, 0, TYPES), PartnerCountsSpec(TYPES, Keep.LONE)],
)
def test_ends_of_what_was_taken_back_and_forgotten_are_no_news(
    spec: DistinctSpec | TopKSpec | PartnerCountsSpec,
) -> None:
    operator = make_operator(spec, {}, 1)
    came: list[Piece] = [(1, 100, 1, ("a", number)) for number in range(200)]
    operator.process(0, elements(came + [(5, 100, -1, row) for _, _, _, row in came]))
    assert sum(len(made) for made in operator.advance(Moment(10, 0))) == 200
    assert operator.advance(Moment(60, 0)) == []
    assert operator.advance(Moment(120, 0)) == []


@pytest.mark.parametrize("of_each", ["", " PER k"])
def test_a_sample_of_a_whole_stream_is_a_reservoir(of_each: str) -> None:
    """Rows behind the last place are forgotten, and the answer is that of the definition."""
    script = f"""CREATE STREAM s (ts INT, k INT, x INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY sampled AS SELECT k, x FROM s [UNBOUNDED] SAMPLE(4 ROWS{of_each});
    CREATE QUERY greatest AS SELECT k, x FROM s ORDER BY x DESC LIMIT 3 OFFSET 2;"""
    draw = random.Random(3)
    rows = [(i // 3, draw.randint(0, 2), draw.choice([None, 1, *range(90)])) for i in range(300)]
    columns = (pa.array(column, pa.int32()) for column in zip(*rows, strict=True))
    given = {"s": pa.table(dict(zip(("ts", "k", "x"), columns, strict=True)))}
    for query in bind_script(script).queries:
        expected = run_oracle(query, given, True)
        for shards, reload in ((1, False), (3, True)):
            run = CaseRun(shards, 9, 17, reload, True, None, Strategy.PATTERN)
            assert_same(query, run.answer([query], given, True, None).tables[query.name], expected)


@pytest.mark.parametrize(("partition", "rows"), [((), 7), ((0,), 21)])
def test_rows_behind_the_last_place_are_forgotten(partition: tuple[int, ...], rows: int) -> None:
    operator = make_operator(TopKSpec((SortKey(1), SortKey(0)), 5, 2, TYPES, partition=partition, lasting=True), {}, 1)
    for tick in range(50):
        operator.process(0, elements([(tick, END, 1, ("abc"[n % 3], n * 50 - tick)) for n in range(60)]))
        operator.advance(Moment(tick, 0))
    tuples = operator.synopses()["tuples"]
    assert tuples.rows == rows and tuples.nbytes < 20_000
