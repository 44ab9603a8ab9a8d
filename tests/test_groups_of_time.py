"""Groups by columns that never decrease with the timestamp: answers as defined, and only the groups of the present
are stored."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Grade
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

DECLARED = (
    "CREATE AGGREGATE total (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:Total';"
    "CREATE STREAM a (ts TIMESTAMP, k INT, x INT) FROM MEMORY () TIMESTAMP BY ts {slack};"
    "CREATE STREAM b (ts TIMESTAMP, k INT, x INT) FROM MEMORY () TIMESTAMP BY ts;"
    "CREATE STREAM n (ts BIGINT, k INT, x INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
)
#: Columns of a and b that never decrease, with the time in which each has one value.
RISING = {
    "DATE_TRUNC('hour', ts)": "one hour",
    "CAST(ts AS DATE)": "one day",
    "DATE(ts)": "one day",
    "YEAR(ts)": "one year",
    "EXTRACT(YEAR FROM ts)": "one year",
    "DATE_BIN(INTERVAL 20 MINUTES, ts)": None,
    "UNIX_TIMESTAMP(ts) DIV 1800": None,
    "FLOOR(UNIX_SECONDS(ts) / 900)": None,
    "DATE_TRUNC('hour', ts + INTERVAL 30 MINUTES)": "one hour",
    "YEAR(CAST(ts AS DATE))": "one year",
}
#: Those that may come again, or of which it is not known.
OTHERS = (
    "MONTH(ts)",
    "DATE_TRUNC('hour', ts, 'Europe/Berlin')",
    "UNIX_SECONDS(ts) DIV (0 - 60)",
    "UNIX_SECONDS(ts) % 7",
    "UNIX_SECONDS(ts) DIV x",
    "DATE_TRUNC('hour', ts) - ts",
)
QUERIES = (
    "SELECT {g} AS g, k, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM a GROUP BY {g}, k",
    "SELECT {g} AS g, COUNT(DISTINCT x) AS d, MEDIAN(x) AS m, MIN(CAST(x AS STRING)) AS l FROM a GROUP BY {g}",
    "SELECT DISTINCT {g} AS g, k FROM a WHERE x > 0",
    "SELECT {g} AS g, total(x) AS t, COUNT(*) AS n FROM a GROUP BY {g}",
    "SELECT g, k, COUNT(*) AS n FROM (SELECT {g} AS g, k FROM a UNION ALL SELECT {g}, k FROM b) AS u GROUP BY g, k",
    "ISTREAM(SELECT {g} AS g, SUM(x) AS s FROM a GROUP BY {g} HAVING COUNT(*) > 1)",
    "RSTREAM(SELECT {g} AS g, COUNT(*) AS n FROM a GROUP BY {g})",
    "SELECT g, n, COUNT(*) AS m FROM (ISTREAM(SELECT {g} AS g, COUNT(*) AS n FROM a GROUP BY {g})) AS i GROUP BY g, n",
    "SELECT {g} AS g, ts, COUNT(*) AS n FROM a GROUP BY {g}, ts",
    "SELECT g, k FROM (SELECT {g} AS g, k FROM a) AS l UNION SELECT g, k FROM (SELECT {g} AS g, k FROM b) AS r",
    "SELECT p.k, g.n FROM a [NOW] AS p JOIN (SELECT {g} AS g, COUNT(*) AS n FROM a GROUP BY {g}) AS g ON p.x = g.n",
)
MINUTE = 60_000_000


def _query(text: str, slack: str = "") -> Query:
    (query,) = bind_script(DECLARED.format(slack=slack) + f"CREATE QUERY q AS {text};").queries
    return query


def _table(rows: Sequence[tuple[int, ...]], unit: int = MINUTE) -> pa.Table:
    stamp = pa.array([row[0] * unit for row in rows], pa.int64())
    times = stamp.cast(pa.timestamp("us", "UTC")) if unit == MINUTE else stamp
    numbers = [pa.array([row[i] for row in rows], pa.int32()) for i in (1, 2)]
    return pa.table([times, *numbers], names=["ts", "k", "x"])


def _rows(random: Random, late: int) -> list[tuple[int, ...]]:
    """Return rows over some hours, about midnight and the new year, a few of them up to `late` minutes out of order."""
    times = sorted(random.choice((-90, 525_000)) + random.randrange(0, 200) for _ in range(random.randrange(0, 30)))
    moved = [(max(0, i - random.randrange(2)), t) for i, t in enumerate(times)] if late else list(enumerate(times))
    ordered = [t for _, t in sorted(moved, key=lambda one: one[0])]
    return [(t, random.choice((0, 1, 1, 2)), random.randrange(-1, 4)) for t in ordered]


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_as_defined(seed: int) -> None:
    """However rows are cut, over shards, with the state read back, and out of order."""
    random = Random(seed)
    for text in QUERIES:
        slack = random.choice(("", "ORDER WITHIN 300 MINUTES"))
        query = _query(text.format(g=random.choice((*RISING, *OTHERS))), slack)
        tables = {name: _table(_rows(random, len(slack) if name == "a" else 0)) for name in "ab"}
        inputs = {name: tables[name] for name in query.root.source_names}
        drain, shards, reload = random.random() < 0.5, random.randrange(1, 4), random.random() < 0.5
        rows = random.choice((None, 1, 3))
        found = run_local([query], inputs, shards=shards, drain=drain, reload=reload, batch_rows=rows)
        expected = run_oracle(query, inputs, drain=drain)
        try:
            assert_same(query, found.tables["q"], expected)
        except AssertionError as error:
            raise AssertionError(f"{text} {inputs} {shards} {reload} {rows}") from error


@pytest.mark.parametrize("of_time", RISING)
def test_what_bounds_groups(of_time: str) -> None:
    for text in QUERIES[:4]:
        stretch = RISING[of_time]
        root = optimize(_query(text.format(g=of_time)).root)
        (node,) = (one for one in operators(root) if isinstance(one, Aggregate | Distinct))
        (bound,) = node.stored
        assert bound.grade is Grade.BOUNDED
        assert stretch is None or bound.by in (f"the groups of {stretch}", f"the different rows of {stretch}")


@pytest.mark.parametrize("other", OTHERS)
def test_what_comes_again_stays(other: str) -> None:
    for text in QUERIES[:4]:
        nodes = operators(optimize(_query(text.format(g=other)).root))
        assert all(not one.ending for one in nodes if isinstance(one, Aggregate | Distinct))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DATE_TRUNC('hour', ts) AS g, k, SUM(x) AS s FROM a [RANGE 3 HOURS] GROUP BY DATE_TRUNC('hour', ts), k",
        "SELECT YEAR(a.ts) AS g, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY YEAR(a.ts)",
        "SELECT YEAR(ts) AS g, COUNT(*) AS n FROM a [RANGE UNBOUNDED SLIDE 2 HOURS] GROUP BY YEAR(ts)",
    ],
)
def test_rows_that_enter_later_or_leave_end_no_groups(text: str) -> None:
    nodes = [one for one in operators(optimize(_query(text).root)) if isinstance(one, Aggregate)]
    assert nodes
    assert not any(one.ending for one in nodes)


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {g} AS g, k, COUNT(DISTINCT x) AS a, MAX(x) AS b, MEDIAN(x) AS c, SUM(x) AS d FROM n GROUP BY {g}, k",
        "SELECT DISTINCT {g} AS g, x FROM n",
        "SELECT {g} AS g, k, total(x) AS t FROM n GROUP BY {g}, k",
    ],
)
def test_the_state_does_not_grow(text: str, reload: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over streams of three lengths, each four times that before it, the largest state is the same."""
    query, round_ = _query(text.format(g="ts DIV 60")), LocalJob.round
    largest = []
    for hours in (10, 40, 160):
        rows, sizes = [(t * 5, t % 3, t % 5) for t in range(12 * hours)], list[tuple[int, int]]()

        def measured(job: LocalJob, *given: Any, sizes: Any = sizes, **named: Any) -> Any:
            done = round_(job, *given, **named)
            found = [s for row in job.stages for executor in row for s in executor.synopses().values()]
            sizes.append((sum(s.rows for s in found), sum(s.nbytes for s in found)))
            return done

        with monkeypatch.context() as patched:
            patched.setattr(LocalJob, "round", measured)
            run_local([query], {"n": _table(rows, 1)}, shards=1, batch_rows=24, reload=reload)
        largest.append([max(one[i] for one in sizes) for i in (0, 1)])
    # Dead slots are dropped when they outnumber the live ones.
    assert all(long <= 1.2 * short for short, long in zip(largest[1], largest[2], strict=True)), largest
