"""Sums and averages of doubles of very different size: the exact sum of what is there, rounded once, in every window
and by every way in which sums are kept."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.aggregates.accumulators.double_pairs import UNIT
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, add_row, add_value, nearest
from penstock.expressions.aggregates.accumulators.total import TOTAL, rounded_sum, total_of_doubles
from penstock.physical.operators.aggregates.accumulators import sum_doubles
from penstock.physical.plan.panes import PaneStoreSpec
from penstock.physical.planning.planner import plan_queries
from penstock.testing.cases import CaseRun
from tests.sums_kit import assert_as_the_oracle, bound, spread_over

DECLARED = "CREATE STREAM S (ts INT, k INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 2 SECONDS;"
ITEMS = "SUM(x) AS s, AVG(x) AS a"
#: The ways in which sums are kept: by changes of groups (events), at boundaries, in panes of their own and in panes
#: that several windows share, by look-ups of an instant, in sessions, over values that are counted once, and over rows
#: that are taken back and multiplied.
QUERIES = {
    "rows": f"SELECT {ITEMS} FROM S [ROWS 3]",
    "rows of a group": f"SELECT k, {ITEMS} FROM S [PARTITION BY k ROWS 2] GROUP BY k",
    "jumping rows": f"SELECT {ITEMS} FROM S [ROWS 4 SLIDE 2 TUPLES]",
    "sliding": f"SELECT k, {ITEMS} FROM S [RANGE 3 SECONDS] GROUP BY k",
    "of all": f"SELECT {ITEMS} FROM S [RANGE 3 SECONDS]",
    "unbounded": f"SELECT k, {ITEMS} FROM S [UNBOUNDED] GROUP BY k",
    "now": f"SELECT {ITEMS} FROM S [NOW]",
    "slides": f"SELECT k, {ITEMS} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "panes": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "shared panes": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "tumbling": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k)",
    "beside": "RSTREAM(SELECT k, SUM(x) AS s, MAX(x) AS m FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "distinct": "SELECT SUM(DISTINCT x) AS s FROM S [RANGE 3 SECONDS]",
    "distinct of slides": "RSTREAM(SELECT k, SUM(DISTINCT x) AS s FROM S [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "looked up": "SELECT n.k, a.s, a.a FROM S [NOW] AS n, "
    f"(SELECT k, {ITEMS} FROM S [RANGE 3 SECONDS] GROUP BY k) AS a WHERE n.k = a.k",
    "sessions": f"RSTREAM(SELECT k, {ITEMS} FROM S [PARTITION BY k SESSION 3 SECONDS] AS c GROUP BY k, VALID(c))",
    "taken back": f"SELECT {ITEMS} FROM (SELECT k, MAX(x) AS x FROM S [RANGE 3 SECONDS] GROUP BY k) AS u",
    "multiplied": f"SELECT {ITEMS} FROM (SELECT x FROM S [RANGE 2 SECONDS] UNION ALL "
    "SELECT x FROM S [RANGE 2 SECONDS] UNION ALL SELECT x FROM S [RANGE 2 SECONDS]) AS u",
    "deletions": f"DSTREAM(SELECT k, {ITEMS} FROM S [RANGE 3 SECONDS] GROUP BY k)",
}
RUNS = (CaseRun(), CaseRun(batch_rows=3, reload=True), CaseRun(3, seed=5, batch_rows=4), CaseRun(2, reload=True))
TINY = 5e-324
#: Values that no pair of doubles holds together.
CONTENTS = (
    (1e16, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0),
    (1e16, -1e16, 0.1, TINY, TINY, 0.1, -1e16, 1e16, TINY, 0.0, 0.0, 0.0, 0.0, TINY),
    (0.1, 1e16, 0.1, -0.1, 1e16, 0.3, -1e16, -TINY, 0.1, 0.7, 0.0, 0.0, 0.0, -0.1, 0.1),
    (1e300, 0.1, -1e300, 1e300, -0.1, -1e300, 0.3, 0.0, 0.0, 0.0, 0.0, 1.0),
    (1e308, 0.1, 1e308, -1e308, -1e308, 0.1, 0.0, TINY, 0.0, 1e308, 1e308, 1e308, -1e308, -1e308, -1e308, 0.25),
    (1.0, 2.0**-53, 2.0**-53, TINY, 1.0, 2.0**-53, -(2.0**-106), 0.0, 0.0, 0.0, 0.0, 1.0),
)


def exact(values: Sequence[float]) -> float:
    return as_double(sum(map(Fraction, values), Fraction(0)))


def as_double(whole: Fraction) -> float:
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


@pytest.mark.spread(3)
@pytest.mark.parametrize("values", CONTENTS)
def test_every_way_tells_the_exact_sum(values: Sequence[float]) -> None:
    queries = bound(DECLARED, QUERIES)
    assert any(isinstance(step.spec, PaneStoreSpec) for step in plan_queries(queries).steps)
    for keys, pace in ((1, 1), (2, 2), (1, 3)):
        assert_as_the_oracle(queries, spread_over(values, keys, pace), RUNS, 0.0)


# -- the sums themselves -----------------------------------------------------------------------------------------------


class Sum:
    """The lanes of one group, to which values come and from which they go."""

    def __init__(self) -> None:
        self.integers = np.zeros(3, np.int64)
        self.floats = np.zeros((1, WIDTH))

    def change(self, values: Sequence[float], sign: int) -> None:
        """Add or take away values that are one pane."""
        column, size = pa.array(values, pa.float64()), len(values)
        integers, floats = TOTAL.lanes(column, np.ones(size, np.int64))
        self.integers += [sign * lane.sum() for lane in integers]
        row = np.array([lane[0] for lane in sum_doubles(np.zeros(size, np.int64), floats, 1)]).reshape(1, -1)
        if row[0, 1:].any() or size % 2:
            add_row(self.floats, 0, 0, WIDTH, row, 0, sign)
        else:
            add_value(self.floats, 0, 0, WIDTH, sign * row[0, 0])

    def total(self) -> float:
        lanes = self.floats.T
        marks, down, units = (self.integers[i : i + 1] for i in range(3))
        found = float(total_of_doubles(marks, down, units, *lanes)[0])
        assert float(rounded_sum(int(self.integers[2]), self.floats, 0, 0)) == found
        return found


def totals(draw: random.Random, values: Sequence[float], steps: int) -> Iterator[tuple[float, list[float]]]:
    """Yield a group's sum and its values, which come and go at random, in panes."""
    held, present = Sum(), list[list[float]]()
    for _ in range(steps):
        if present and draw.random() < 0.5:
            held.change(present.pop(draw.randrange(len(present))), -1)
        else:
            present.append([draw.choice((-1, 1)) * draw.choice(values) for _ in range(draw.randint(1, 3))])
            held.change(present[-1], 1)
        yield held.total(), [value for pane in present for value in pane]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(
        [
            (1e16, 0.1, 0.3, 0.7, TINY),
            (1e16, 3e15, 0.1, 1e-8),
            (1e308, 1.7e308, 0.5, TINY),
            (1.7976931348623157e308, 2.0**969, 2.0**970, TINY),
            (2.0**989, 2.0**988, 2.0**990, 2.0**936, 2.0**-1074),
            (1.0, 2.0**-53, 2.0**-106, TINY),
            (1e300, 1e200, 3.0),
        ]
    ),
)
def test_what_is_left_is_exact_while_values_come_and_go(seed: int, values: tuple[float, ...]) -> None:
    for found, present in totals(random.Random(seed), values, 60):
        assert found == exact(present), present


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(-250, 250))
def test_values_within_a_factor_of_ten_to_the_forty_leave_nothing(seed: int, scale: int) -> None:
    draw = random.Random(seed)
    values = [draw.uniform(1, 9) * 10.0 ** (scale + draw.randint(0, 40)) for _ in range(12)]
    for found, present in totals(draw, values, 60):
        assert found == exact(present), present


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64).map(lambda v: v / 2**20), max_size=9))
def test_the_nearest_double_is_that_of_fsum(values: list[float]) -> None:
    assert nearest(np.array([*values, 0.0]), len(values)) == math.fsum(values)


@given(st.sampled_from([1.0, 1.0 + 2.0**-52, 2.0 - 2.0**-52]), st.sampled_from([-1, 0, 1]), st.integers(54, 1074))
def test_what_lies_between_two_doubles_is_rounded_by_its_last_bit(value: float, sign: int, bit: int) -> None:
    terms = [value, 2.0**-53, sign * 2.0**-bit]
    for flip in (-1.0, 1.0):
        found = nearest(np.array([flip * term for term in terms]), 3)
        assert found == flip * math.fsum(terms)


@given(st.integers(-(2**40), 2**40), st.lists(st.sampled_from([1.0, -1.0, 0.0, UNIT, -UNIT, TINY, -TINY, 2.0**970]),
       min_size=WIDTH, max_size=WIDTH))  # fmt: skip
def test_units_are_added_before_the_sum_is_rounded(units: int, lanes: list[float]) -> None:
    whole = units * Fraction(UNIT) + sum(map(Fraction, lanes))
    assert float(rounded_sum(units, np.array([lanes]), 0, 0)) == as_double(whole)
