"""Windows of several lengths over one stream share one store; every query answers as it does alone, to the bit."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.physical.operators.joins.window_store import StoredRows, StoreReader, WindowStore
from penstock.physical.planning.plan_parts import joined
from penstock.runtime.live import LiveEngine, engine
from penstock.testing.compare import events_of
from penstock.testing.thresholds import lowered
from tests.runtime.test_merged_lives import _bits

SOURCES = """
CREATE STREAM S (ts INT, k INT, a INT, d DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 2 SECONDS;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R0 (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R1 (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R2 (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
COLUMNS = {"S": ["ts", "k", "a", "d"], "T": ["ts", "k", "b"], **{f"R{i}": ["ts", "k", "c"] for i in range(3)}}
LENGTHS = (1, 3, 7, 7, 12, 20)
STARTS = (StartMode.NOW, StartMode.NOW, StartMode.WARM, StartMode.WARM, StartMode.BEGINNING)
CASES, MANY_CASES = 8, 200


def random_text(draw: random.Random) -> str:
    """A query over S: joins of windows of several lengths with relations, streams and itself; MIN and MAX; nested."""
    t, u, r = draw.choice(LENGTHS), draw.choice(LENGTHS), draw.randrange(3)
    kind = draw.randrange(15)
    if kind <= 2:
        where = draw.choice(("", " AND S.a > 2", " AND S.a < R.c"))
        return f"SELECT S.k, S.a, R.c FROM S [RANGE {t} SECONDS], R{r} R WHERE S.k = R.k{where}"
    if kind == 3:
        return f"SELECT S.k, S.a, T.b FROM S [RANGE {t} SECONDS], T [RANGE {u} SECONDS] WHERE S.k = T.k"
    if kind == 4:
        return (
            f"SELECT x.k, x.a, y.a AS b FROM S [RANGE {t} SECONDS] x, S [RANGE {u} SECONDS] y"
            f" WHERE x.k = y.k AND x.a {draw.choice(('<=', '<>'))} y.a"
        )
    if kind == 5:
        return f"ISTREAM(SELECT S.k, S.a, R.c FROM S [NOW], R{r} R WHERE S.k = R.k)"
    if kind == 7:
        return _other_text(draw, t, u, r)
    if kind == 8:
        return f"SELECT k, SUM(d) AS total, COUNT(DISTINCT a) AS n FROM S [RANGE {t} SECONDS] WHERE a > 1 GROUP BY k"
    if kind == 9:
        return f"SELECT MAX(a) AS most, COUNT(*) AS n FROM S [RANGE {t} SECONDS]"
    if kind == 10:
        return f"SELECT DISTINCT k, a FROM S [RANGE {t} SECONDS]"
    if kind >= 13:
        what = draw.choice(("SUM(a) AS s, AVG(d) AS m", "SUM(a) AS s, AVG(d) AS m", "COUNT(*) AS n", "MAX(a) AS m"))
        window = f"[RANGE {draw.choice((4, 6, 8, 12, 20))} SECONDS SLIDE {draw.choice((1, 2, 2, 4, 6))} SECONDS]"
        return f"RSTREAM(SELECT k, {what} FROM S {window} GROUP BY k)"
    if kind in (6, 11):
        return f"SELECT k, MIN(a) AS least, MAX(a) AS most FROM S [RANGE {t} SECONDS] GROUP BY k"
    below = f"SELECT S.k, S.a, R.c FROM S [RANGE {t} SECONDS], R{r} R WHERE S.k = R.k"
    return f"SELECT k, MIN(a) AS least, MAX(c) AS most, COUNT(*) AS n FROM ({below}) j GROUP BY k"


def _other_text(draw: random.Random, t: int, u: int, r: int) -> str:
    """A query of an operator that keeps rows by itself."""
    rows, pairs = f"FROM S [RANGE {t} SECONDS]", f"SELECT k, b AS a FROM T [RANGE {u} SECONDS]"
    return draw.choice(
        (
            f"SELECT k, a {rows} {draw.choice(('EXCEPT', 'EXCEPT ALL', 'INTERSECT', 'INTERSECT ALL'))} {pairs}",
            f"SELECT S.k, S.a, R.c {rows} LEFT JOIN R{r} R ON S.k = R.k AND S.a < R.c",
            f"SELECT k, a {rows} WHERE NOT EXISTS (SELECT * FROM R{r} R WHERE R.k = S.k AND R.c > 2)",
            f"SELECT k, a {rows} WHERE a IN (SELECT c FROM R{r} R)",
            f"SELECT k, a {rows} ORDER BY a DESC, k LIMIT 2",
            f"SELECT k, COUNT(*) AS n {rows} GROUP BY k ORDER BY n DESC, k LIMIT 1",
            f"SELECT k, a FROM S [PARTITION BY k ROWS {draw.choice((1, 3))}]",
            f"SELECT k, a FROM S [ROWS {draw.choice((1, 4))}]",
            f"SELECT COUNT(*) AS n FROM (SELECT DISTINCT k {rows}) d",
        )
    )


@dataclass
class History:
    """A history of registrations. stores: the most stores of S at the end of a round, and the joins that read them."""

    seed: int
    events: dict[str, list[Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def run(self) -> History:
        draw = random.Random(self.seed)
        live = LiveEngine(draw.randint(1, 3))
        queries: dict[str, Query] = {}
        everything = bind_script(
            f"{SOURCES} CREATE QUERY q AS SELECT S.k FROM S [NOW], T [NOW], R0, R1, R2"
            " WHERE S.k = T.k AND S.k = R0.k AND S.k = R1.k AND S.k = R2.k;"
        )
        for leaf in leaves(everything.queries[0].root):
            assert isinstance(leaf, Scan)
            live.declare(leaf.source)

        def take(tables: dict[str, pa.Table]) -> None:
            for name, table in tables.items():
                found = self.events.setdefault(name, [])
                found += [(ts, op, tuple(map(_bits, row))) for ts, op, row in events_of(queries[name], table)]

        last = dict.fromkeys(COLUMNS, 0)
        for second in range(1, draw.randint(30, 70)):
            for name, columns in COLUMNS.items():
                if draw.random() < (0.3 if name == "R2" else 0.9):  # one relation is behind
                    rows = draw.randint(1, 4) if name in "ST" else 1
                    late = draw.randint(0, 2) if name == "S" else 0
                    last[name] = max(last[name], second - late)
                    values = [[last[name] if name != "S" else second - late] * rows]
                    values += [
                        [draw.choice((0, 1, 2, None)) if name == "S" else draw.randrange(3) for _ in range(rows)]
                    ]
                    values += [[draw.randrange(6) for _ in range(rows)] for _ in columns[2:]]
                    types = [pa.float64() if column == "d" else pa.int32() for column in columns]
                    arrays = [pa.array(one, type_) for one, type_ in zip(values, types, strict=True)]
                    live.insert(name, pa.RecordBatch.from_arrays(arrays, columns))
            if draw.random() < 0.9:
                take(live.round())
            what = draw.random()
            if what < 0.2 and len(queries) < 9:
                name, text = f"q{len(queries)}", random_text(draw)
                queries[name] = bind_script(f"{SOURCES} CREATE QUERY {name} AS {text};").queries[0]
                self.texts[name] = text
                take({name: live.register(queries[name], Start(draw.choice(STARTS)))})
            elif what < 0.25 and self.events:
                name = draw.choice(sorted(self.events))
                if name in live._results:
                    live.drop(name)
            elif what < 0.3:
                live = LiveEngine.restored(pickle.loads(pickle.dumps(live.snapshot())))
            self.kinds.update(
                step.spec.title for step in live._job.plan.steps if step.spec.keeps_rows or step.spec.reads
            )
            self.kinds["shared stores"] += sum(
                len(step.queries) > 1 for step in live._job.plan.steps if step.spec.keeps_rows
            )
        take(live.round())
        return self


@contextmanager
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plan every query by itself, without stores."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "merged", lambda parts, *others: {})
        patched.setattr(engine, "shared_plan", lambda parts, *others: joined([part.plan for part in parts]))
        patched.setattr(engine, "grains_of", lambda *args, **named: {})
        yield


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    # Of the new rows of a store and those of another side, either look the other up; new rows stay apart, or do not.
    sizes = {
        "physical.operators.joins.store_join._SMALLER": (0, 1, 1_000)[seed % 3],
        "physical.operators.joins.window_store._FEWEST_APART": (1, 3, 1_000)[seed % 4 % 3],
    }
    with lowered(sizes):
        shared = History(seed).run()
    with alone(monkeypatch):
        expected = History(seed).run()
    assert expected.kinds["WindowStore"] == 0
    for name, events in expected.events.items():
        assert sorted(shared.events[name]) == sorted(events), f"seed {seed}: {name}: {shared.texts[name]}"
    return shared.kinds


def test_any_history_of_registrations_gives_the_answers_of_each_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    meet = StoreReader.meet

    def counted(reader: StoreReader, probes: Any, which: StoredRows = StoredRows.ALL) -> Any:
        counts[f"meets {which.name}"] += 1
        return meet(reader, probes, which)

    monkeypatch.setattr(StoreReader, "meet", counted)
    meet_apart = WindowStore._meet_apart

    def counted_apart(store: WindowStore, *probes: Any) -> Any:
        counts["meets apart"] += 1
        return meet_apart(store, *probes)

    monkeypatch.setattr(WindowStore, "_meet_apart", counted_apart)
    for seed in range(CASES):
        counts += compare(seed, monkeypatch)
    assert min(counts["meets FRESH"], counts["meets OLD"], counts["meets ALL"]) > 100, counts
    assert counts["meets apart"] > 20, counts
    assert counts["shared stores"] > 100 and counts["Join"] > counts["WindowStore"], counts
    assert counts["Aggregate"] > counts["RowLog"] > 0 and counts["WindowSums"] > counts["PaneStore"] > 0, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES, MANY_CASES))
def test_many_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(seed, monkeypatch)
