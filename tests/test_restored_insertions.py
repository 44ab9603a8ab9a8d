"""ISTREAM RESTORE emits every insertion between two boundaries that continual evaluation emits `[golab 3.3.4]`.

The law is stated over the answers of plain queries: those of ISTREAM over the same windows without SLIDE, each
insertion put off to its boundary.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

SLIDE = 4
STREAMS = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION N (k INT, name STRING) FROM MEMORY ();
"""
#: By text; {S} and {T} are windows.
QUERIES = [
    "SELECT k, a FROM {S}",
    "SELECT k, COUNT(*) AS n, SUM(a) AS s FROM {S} GROUP BY k",
    "SELECT DISTINCT k FROM {S}",
    "SELECT k FROM {S} EXCEPT ALL SELECT k FROM {T}",
    "SELECT k FROM {S} EXCEPT SELECT k FROM {T}",
    "SELECT k FROM {S} INTERSECT ALL SELECT k FROM {T}",
    "SELECT x.k FROM {S} AS x, {T} AS y WHERE x.k = y.k",
    "SELECT x.k, y.a FROM {S} AS x LEFT JOIN {T} AS y ON x.k = y.k",
    "SELECT k FROM {S} UNION ALL SELECT k FROM {T}",
    "SELECT x.k FROM {S} AS x WHERE NOT EXISTS (SELECT * FROM {T} AS y WHERE x.k = y.k)",
    "SELECT k, MAX(a) AS m FROM {S} GROUP BY k HAVING COUNT(*) > 1",
    "SELECT k, a FROM {S} ORDER BY a, k LIMIT 2",
    "SELECT x.k, name FROM {S} AS x JOIN N ON x.k = N.k",
]
FIRST = 12


def rows(draw: random.Random) -> pa.Table:
    ticks = sorted(draw.randrange(24) for _ in range(draw.randrange(4, 16)))
    # The first instant is a boundary: there is no result before it.
    columns = [[0, *ticks], *([draw.randrange(3) for _ in range(len(ticks) + 1)] for _ in range(2))]
    return pa.table([pa.array(column, pa.int32()) for column in columns], names=["ts", "k", "a"])


@pytest.mark.spread(2)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_every_insertion_of_continual_evaluation_is_emitted_at_its_boundary(
    number: int, case_count: int | None
) -> None:
    came_back = 0
    for seed in range(case_count or FIRST):
        draw = random.Random(100 * seed + number)
        lengths = [draw.choice((1, 2, 3, 5, 9)) for _ in range(2)]
        windows = [f"{s} [RANGE {n} SECONDS{{}}]" for s, n in zip("ST", lengths, strict=True)]
        text = QUERIES[number].format(S=windows[0], T=windows[1])
        slid, plain = (text.replace("{}", slide) for slide in (f" SLIDE {SLIDE} SECONDS", ""))
        bound = bind_script(
            f"{STREAMS} CREATE QUERY restored AS ISTREAM RESTORE({slid}); CREATE QUERY reported AS ISTREAM({slid});"
            f"CREATE QUERY continual AS ISTREAM({plain});"
        )
        inputs = {
            "S": rows(draw),
            "T": rows(draw),
            "N": pa.table({"k": pa.array([0, 1], pa.int32()), "name": ["n", "o"]}),
        }
        found = {}
        for query in bound.queries:
            wanted = run_oracle(query, inputs, True)
            for shards, cut in ((1, None), (3, seed + 1)):
                table = run_local([query], inputs, shards, True, cut, reload=cut is not None).tables[query.name]
                assert_same(query, table, wanted)
            found[query.name] = Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
        expected: Counter[tuple[object, ...]] = Counter()
        for (ts, *row), count in found["continual"].items():
            expected[(-(-ts // SLIDE) * SLIDE, *row)] += count
        assert found["restored"] == expected, f"{text}, seed {seed}"
        assert not found["reported"] - found["restored"]
        came_back += found["restored"] != found["reported"]
    assert came_back
