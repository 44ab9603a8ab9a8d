"""Arithmetic of ticks near the ends of time, and answers there: as the oracle says, which computes without limits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.kernels.ticks import boundary_number, later, lengths, round_down, round_up
from penstock.testing.cases import RUNS
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.types import BEGIN, END, MOST_TICKS

LONGEST = 2**60 - 1
TICKS = (BEGIN, -MOST_TICKS + 1, -(2**40), -7, -1, 0, 1, 5, 2**40, MOST_TICKS - 1, END - 1, END)


@pytest.mark.parametrize("length", [1, 3, 2**30, LONGEST])
def test_what_lies_past_the_end_of_time_is_its_end(length: int) -> None:
    ticks = np.array(TICKS, np.int64)
    assert later(ticks, length).tolist() == [min(END, t + length) for t in TICKS] == [later(t, length) for t in TICKS]
    for align in (0, 1, length - 1):
        rounded = [min(END, -((align - t) // length) * length + align) for t in TICKS]
        assert round_up(ticks, length, align).tolist() == rounded == [round_up(t, length, align) for t in TICKS]
        numbers = [-((align - t) // length) for t in TICKS]
        assert boundary_number(ticks, length, align).tolist() == numbers
        for tick in TICKS:
            last = round_down(tick, length, align)
            assert last <= tick < last + length and (last - align) % length == 0


def test_no_length_is_negative() -> None:
    pairs = [(ts, exp) for ts in TICKS for exp in TICKS if ts < exp]
    ts, exp = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    assert lengths(ts, exp).tolist() == [min(e - t, 2**63 - 1) for t, e in pairs]


QUERIES = (
    "SELECT v FROM S",
    "SELECT v FROM S [RANGE 5 SECOND]",
    f"SELECT v FROM S [RANGE {LONGEST} SECOND]",
    f"SELECT COUNT(*) AS n FROM S [RANGE {LONGEST} SECOND SLIDE {LONGEST - 1} SECOND ALIGN TO 17]",
    "SELECT COUNT(*) AS n, SUM(v) AS s FROM S [RANGE 5 SECOND SLIDE 2 SECOND]",
    "RSTREAM(SELECT k, SUM(v) AS s FROM S [RANGE 5 SECOND SLIDE 2 SECOND] GROUP BY k)",
    f"RSTREAM(SELECT k, SUM(v) AS s FROM S [RANGE {LONGEST} SECOND SLIDE {LONGEST // 2} SECOND] GROUP BY k)",
    f"SELECT v FROM S [PARTITION BY k ROWS 2 RANGE {LONGEST} SECOND]",
    "SELECT v FROM S [PARTITION BY k ROWS 2 RANGE 4 SECOND SLIDE 3 SECOND]",
    f"SELECT v FROM S [RANGE {LONGEST} SECOND SLIDE 2 ROWS]",
    f"SELECT v FROM S [RANGE {LONGEST} SECOND, FREQUENCY 3 TUPLES]",
    f"SELECT COUNT(*) AS n FROM S [RANGE {LONGEST} SECOND, FREQUENCY {LONGEST - 3} SECOND]",
    f"SELECT v FROM S [FREQUENCY {LONGEST - 3} SECOND]",
    "SELECT S.v, R.v AS w FROM S [RANGE 3 SECOND], R WHERE R.v <= S.v",
    "SELECT S.v, R.v AS w FROM S LEFT JOIN R ON R.v BETWEEN S.v - 1 AND S.v",
    f"SELECT a.v, b.v AS w FROM S [RANGE {LONGEST} SECOND] AS a, S [RANGE 2 SECOND] AS b WHERE a.v < b.v",
    "ISTREAM(SELECT DISTINCT v FROM S [RANGE 5 SECOND])",
    "DSTREAM(SELECT MAX(v) AS m FROM S [RANGE 5 SECOND])",
    f"WSTREAM(SELECT v FROM S [RANGE 5 SECOND])[RANGE {LONGEST} SECOND]",
    "SELECT v FROM (ISTREAM(SELECT k, v FROM S [RANGE 4 SECOND])) [RANGE 9 SECOND] AS d",
    f"SELECT v FROM (DSTREAM(SELECT k, v FROM S [RANGE {LONGEST} SECOND])) [RANGE {LONGEST} SECOND] AS d",
    "ISTREAM RESTORE(SELECT v FROM S [RANGE 1 SECOND SLIDE 4 SECOND])",
)


@pytest.mark.spread(3)
@pytest.mark.parametrize("origin", [-MOST_TICKS + 1, -9, MOST_TICKS - 12])
@pytest.mark.parametrize("query", QUERIES)
def test_answers_near_the_ends_of_time_are_those_of_the_oracle(query: str, origin: int) -> None:
    bound = bind_script(
        "CREATE STREAM S (ts BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 2 SECOND;"
        f"CREATE RELATION R (v INT) FROM MEMORY (); CREATE QUERY q AS {query};"
    )
    ticks = [origin + step for step in (0, 1, 1, 4, 3, 9, 11)]
    names, values = ["ts", "k", "v"], [pa.array(range(7), pa.int32()), pa.array([3, 1, 2, 2, 5, 1, 4], pa.int32())]
    inputs = {
        "S": pa.Table.from_arrays([pa.array(ticks), *values], names=names),
        "R": pa.table({"v": pa.array([None, *range(300)], pa.int32())}),
    }
    (asked,) = bound.queries
    for drain in (False, True):
        answer = run_oracle(asked, inputs, drain)
        for run in RUNS[3:6]:
            assert_same(asked, run.answer(bound.queries, inputs, drain).tables["q"], answer)
