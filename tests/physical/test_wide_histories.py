"""Histories of registrations of every kind of window and operator, over values at the limits of their types: every
query answers as it does alone, to the bit."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from penstock.testing.thresholds import lowered
from tests.physical.test_window_stores import alone
from tests.runtime.test_merged_lives import _bits

SOURCES = """
CREATE STREAM S (ts INT, k INT, a INT, d DOUBLE, m DECIMAL(38, 2)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND
 ORDER WITHIN 2 SECONDS;
CREATE STREAM T (ts INT, k INT, a INT, d DOUBLE, m DECIMAL(38, 2)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R0 (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R1 (ts INT, k INT, c INT, op VARCHAR) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
CREATE RELATION R2 (ts INT, k INT, c INT, op VARCHAR, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND
 OPERATION BY op;
"""
TYPES = {"d": pa.float64(), "m": pa.decimal128(38, 2), "op": pa.string()}
COLUMNS = {name: ["ts", "k", "a", "d", "m"] for name in "ST"}
COLUMNS |= {"R0": ["ts", "k", "c"], "R1": ["ts", "k", "c", "op"], "R2": ["ts", "k", "c", "op"]}
LENGTHS, SLIDES = (1, 3, 5, 8, 13), (1, 2, 4)
STARTS = (StartMode.NOW, StartMode.NOW, StartMode.WARM, StartMode.WARM, StartMode.BEGINNING)
DOUBLES = (0.0, -0.0, float("nan"), 0.1, 1e16, -1e16, 5e-324, float("inf"), None)
DECIMALS = (Decimal("9" * 20 + ".99"), -Decimal("9" * 20 + ".99"), Decimal("0.01"), Decimal("-0.01"), None)
#: Among these are merged window stores and joins.
SEEDS, MANY_CASES = (4, 7, 17, 32), 200
#: 0.0 and -0.0 are equal, so which of the two a tuple shows of which both have come is not determined.
POSITIVE, NEGATIVE = _bits(0.0), _bits(-0.0)


def window(draw: random.Random) -> str:
    t, u = draw.choice(LENGTHS), draw.choice(SLIDES)
    return draw.choice(
        (
            f"[RANGE {t} SECONDS]",
            f"[RANGE {t} SECONDS]",
            f"[RANGE {t} SECONDS]",
            "[NOW]",
            "[UNBOUNDED]",
            f"[RANGE {t} SECONDS SLIDE {u} SECONDS]",
            f"[RANGE {2 * u} SECONDS SLIDE {u} SECONDS]",
            f"[RANGE {u} SECONDS SLIDE {u} SECONDS]",
            f"[ROWS {draw.choice((1, 3, 6))}]",
            f"[PARTITION BY k ROWS {draw.choice((1, 2))}]",
            f"[ROWS 4 SLIDE {draw.choice((2, 4))} TUPLES]",
        )
    )


AGGREGATES = (
    "SUM(a) AS v", "MIN(d) AS v", "MAX(d) AS v", "MIN(m) AS v", "MAX(m) AS v", "SUM(m) AS v", "AVG(a) AS v",
    "SUM(d) AS v", "AVG(d) AS v", "QUANTILE(d, 0.5) AS v", "COUNT(DISTINCT d) AS v", "COUNT(DISTINCT a) AS v",
    "SUM(DISTINCT a) AS v", "COUNT(*) AS v", "MIN(a) AS v, MAX(a) AS w", "STDDEV(d) AS v", "BIT_XOR(a) AS v",
)  # fmt: skip


def _aggregate(draw: random.Random) -> str:
    w, what = window(draw), draw.choice(AGGREGATES)
    by = draw.choice((" GROUP BY k", " GROUP BY k", "", f" GROUP BY k HAVING COUNT(*) > {draw.randrange(3)}"))
    key = "k, " if by else ""
    return f"SELECT {key}{what} FROM {draw.choice('SST')} {w}{draw.choice(('', ' WHERE a > 1'))}{by}"


def _relation(draw: random.Random) -> str:
    r, t = draw.randrange(3), draw.choice(LENGTHS)
    s = f"S [RANGE {t} SECONDS]"
    return draw.choice(
        (
            f"SELECT S.k, S.d, R.c FROM {s}, R{r} R WHERE S.k = R.k",
            f"SELECT S.k, S.d, R.c FROM {s}, R{r} R WHERE S.k = R.k",
            f"SELECT S.k, S.a, R.c FROM {s}, R{r} R WHERE S.k = R.k AND S.a < R.c",
            f"SELECT S.k, R.c, T.d FROM {s}, R{r} R, T {window(draw)} WHERE S.k = R.k AND T.k = R.k",
            f"SELECT S.k, S.m, T.a FROM S {window(draw)}, T {window(draw)} WHERE S.k = T.k",
            f"SELECT S.d FROM {s}, T [RANGE {draw.choice(LENGTHS)} SECONDS] WHERE S.d = T.d",
            f"SELECT S.k, S.m, R.c FROM {s} LEFT JOIN R{r} R ON S.k = R.k",
            f"SELECT k, a FROM {s} WHERE {draw.choice(('', 'NOT '))}EXISTS (SELECT * FROM R{r} R WHERE R.k = S.k)",
            f"SELECT k, SUM(c) AS v FROM R{r} GROUP BY k",
            f"SELECT R.k, MIN(R.c) AS v, MAX(S.a) AS w FROM {s}, R{r} R WHERE S.k = R.k GROUP BY R.k",
            f"SELECT k, c FROM R{r}",
            f"SELECT k, d FROM {s} ORDER BY d DESC, k LIMIT 3",
        )
    )


def _sets(draw: random.Random) -> str:
    left, right = (f"SELECT k, {{}} FROM {s} {window(draw)}" for s in "ST")
    column = draw.choice(("a", "d", "m"))
    word = draw.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"))
    return f"{left} {word} {right}".format(column, column)


def _frequent(draw: random.Random) -> str:
    t, u = draw.choice((4, 8, 12)), draw.choice(SLIDES)
    w = f"[RANGE {t} SECONDS SLIDE {u} SECONDS]"
    return f"RSTREAM(SELECT a, COUNT(*) AS n FROM S {w} GROUP BY a FREQUENT {draw.choice((1, 3))})"


def _distinct(draw: random.Random) -> str:
    return f"SELECT DISTINCT {draw.choice(('k', 'd', 'k, d', 'm', 'a'))} FROM S {window(draw)}"


def random_text(draw: random.Random) -> str:
    kind = draw.choice((_aggregate, _aggregate, _relation, _relation, _sets, _frequent, _distinct))
    text = kind(draw)
    if kind is not _frequent:
        stream = draw.choice((None, None, None, "ISTREAM", "DSTREAM", "RSTREAM"))
        text = text if stream is None else f"{stream}({text})"
    return text


def some_query(draw: random.Random, name: str) -> Query:
    return bind_script(f"{SOURCES} CREATE QUERY {name} AS {random_text(draw)};").queries[0]


@dataclass
class WideHistory:
    """A history of registrations, drops and restarts."""

    seed: int
    events: dict[str, list[Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def run(self) -> WideHistory:
        draw = random.Random(self.seed)
        # Without -0.0 every bit is compared.
        doubles = DOUBLES if self.seed % 2 else [value for value in DOUBLES if _bits(value) != NEGATIVE]
        live = LiveEngine(draw.randint(1, 4))
        queries: dict[str, Query] = {}
        everything = bind_script(f"{SOURCES} CREATE QUERY q AS SELECT S.k FROM S [NOW], T [NOW], R0, R1, R2;")
        for leaf in leaves(everything.queries[0].root):
            assert isinstance(leaf, Scan)
            live.declare(leaf.source)

        def take(tables: dict[str, pa.Table]) -> None:
            for name, table in tables.items():
                found = self.events.setdefault(name, [])
                for ts, op, row in events_of(queries[name], table):
                    bits = (POSITIVE if one == NEGATIVE else one for one in map(_bits, row))
                    found.append((ts, op, tuple(bits)))

        for second in range(1, draw.randint(25, 45)):
            for name in COLUMNS:
                # One relation is behind.
                if draw.random() < (0.3 if name == "R2" else 0.9):
                    live.insert(name, self._rows(draw, name, second, doubles))
            if draw.random() < 0.85:
                take(live.round())
            what = draw.random()
            if what < 0.3 and len(queries) < 9:
                name = f"q{len(queries)}"
                # Equal queries, and those that differ in little, share most.
                again = draw.choice(list(queries.values())) if queries and draw.random() < 0.4 else None
                chosen = some_query(draw, name)
                queries[name] = chosen if again is None else replace(again, name=name)
                self.texts[name] = queries[name].text
                take({name: live.register(queries[name], Start(draw.choice(STARTS)))})
            elif what < 0.38 and self.events:
                name = draw.choice(sorted(self.events))
                if name in live._results:
                    live.drop(name)
            elif what < 0.44:
                live = LiveEngine.restored(pickle.loads(pickle.dumps(live.snapshot())))
            steps = live._job.plan.steps
            self.kinds.update(step.spec.title for step in steps if len(step.queries) > 1)
        take(live.round())
        return self

    @staticmethod
    def _rows(draw: random.Random, name: str, second: int, doubles: Sequence[float | None]) -> pa.RecordBatch:
        rows = draw.randint(1, 4) if name in "ST" else draw.choice((1, 1, 2))
        late = draw.randint(0, 2) if name == "S" else 0
        values: dict[str, list[Any]] = {
            "ts": [second - late] * rows,
            "k": [draw.choice((0, 1, 2, None)) for _ in range(rows)],
            "a": [draw.choice((0, 1, 2, 3, 4, 2**31 - 1, None)) for _ in range(rows)],
            "c": [draw.randrange(5) for _ in range(rows)],
            "d": [draw.choice(doubles) for _ in range(rows)],
            "m": [draw.choice(DECIMALS) for _ in range(rows)],
            "op": [draw.choice("++-") for _ in range(rows)],
        }
        names = COLUMNS[name]
        return pa.RecordBatch.from_arrays([pa.array(values[n], TYPES.get(n, pa.int32())) for n in names], names)


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    with lowered({"physical.operators.joins.store_join._SMALLER": (0, 1, 1_000)[seed % 3]}):
        shared = WideHistory(seed).run()
    with alone(monkeypatch):
        expected = WideHistory(seed).run()
    assert shared.texts == expected.texts
    for name, events in expected.events.items():
        assert sorted(shared.events[name]) == sorted(events), f"seed {seed}: {name}: {shared.texts[name]}"
    return shared.kinds


def test_any_wide_history_gives_the_answers_of_each_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += compare(seed, monkeypatch)
    assert counts["WindowStore"] and counts["Join"], counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(MANY_CASES)} - {*SEEDS}))
def test_many_wide_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(seed, monkeypatch)
