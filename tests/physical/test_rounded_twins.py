"""Queries over sums of doubles that four doubles do not hold, so that what a sum has lost depends on what came before:
queries that began at different times share what they may, and every row that is taken back is one that was there."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from tests.runtime.test_merged_lives import _bits

SOURCES = """
CREATE STREAM S (ts INT, k INT, d DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k INT, d DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
SUMS = (
    "(SELECT k, SUM(d) AS s FROM S [RANGE 5 SECONDS] GROUP BY k)",
    "(SELECT k, AVG(d) AS s FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "(SELECT k, SUM(d) AS s FROM S [PARTITION BY k ROWS 3] GROUP BY k)",
)
#: Consumers that take rows back by value.
CONSUMERS = (
    "SELECT DISTINCT s FROM {} AS u",
    "SELECT s FROM {} AS u EXCEPT SELECT d FROM T [RANGE 3 SECONDS]",
    "SELECT s FROM {0} AS u EXCEPT ALL SELECT s FROM {0} AS v WHERE v.k = 1",
    "SELECT u.k, v.k AS l, u.s FROM {0} AS u, {0} AS v WHERE u.s = v.s",
    "SELECT s, COUNT(*) AS n FROM {} AS u GROUP BY s",
    "SELECT u.k, u.s FROM {} AS u WHERE NOT EXISTS (SELECT * FROM T [RANGE 3 SECONDS] AS t WHERE t.d = u.s)",
    "RSTREAM({})",
)
FAR = (1e300, -1e300, 1e100, -1e100, 1.0, 0.1, 1e-100, 1e-300, 5e-324, 0.0)
TEXTS = tuple(text.format(sums if text[0] == "S" else sums[1:-1]) for sums in SUMS for text in CONSUMERS)


class Told:
    """What a query has told: the bag of rows that are there."""

    def __init__(self, query: Query) -> None:
        self.query, self.content = query, Counter[object]()

    def take(self, table: pa.Table) -> None:
        for ts, op, row in events_of(self.query, table):
            key = tuple(map(_bits, row))
            if op:
                self.content[key] += 1 if op == "+" else -1
                assert self.content[key] >= 0, f"{self.query.text} takes back at {ts} what was not there: {row}"


def run(seed: int) -> Counter[str]:
    draw = random.Random(seed)
    live = LiveEngine(draw.randint(1, 3))
    everything = bind_script(f"{SOURCES} CREATE QUERY q AS SELECT S.k FROM S [NOW], T [NOW];").queries[0]
    for leaf in leaves(everything.root):
        assert isinstance(leaf, Scan)
        live.declare(leaf.source)
    told: dict[str, Told] = {}
    shared: Counter[str] = Counter()

    def insert(second: int, rows: int, values: tuple[float, ...]) -> None:
        for name in "ST":
            columns = {
                "ts": pa.array([second] * rows, pa.int32()),
                "k": pa.array([draw.randrange(3) for _ in range(rows)], pa.int32()),
                "d": pa.array([draw.choice(values) for _ in range(rows)], pa.float64()),
            }
            live.insert(name, pa.RecordBatch.from_pydict(columns))
        for name, table in live.round().items():
            told[name].take(table)

    chosen = draw.sample(TEXTS, 3)
    for second in range(1, 40):
        insert(second, draw.randint(1, 4), FAR)
        if second % 3 == 0:
            name = f"q{len(told)}"
            (query,) = bind_script(f"{SOURCES} CREATE QUERY {name} AS {draw.choice(chosen)};").queries
            told[name] = Told(query)
            mode = draw.choice((StartMode.WARM, StartMode.WARM, StartMode.NOW, StartMode.BEGINNING))
            told[name].take(live.register(query, Start(mode)))
        if draw.random() < 0.1:
            live = LiveEngine.restored(pickle.loads(pickle.dumps(live.snapshot())))
        shared.update(step.spec.title for step in live._job.plan.steps if len(step.queries) > 1)
    # When all groups have been empty, each query is like one that begins then.
    insert(60, 1, (0.5,))
    fresh: dict[str, Told] = {}
    for text in chosen:
        (query,) = bind_script(f"{SOURCES} CREATE QUERY f{len(fresh)} AS {text};").queries
        fresh[text] = told[query.name] = Told(query)
        told[query.name].take(live.register(query, Start(StartMode.NOW)))
    for second in range(80, 90):
        insert(second, 1, (0.5, 0.1))
    for one in told.values():
        if "ROWS" not in one.query.text:
            same = next(found for found in fresh.values() if found.query.root == one.query.root)
            assert +one.content == +same.content, one.query.text
    return shared


def test_nothing_is_taken_back_that_was_not_there() -> None:
    shared: Counter[str] = Counter()
    for seed in range(6):
        shared += run(seed)
    assert shared, "nothing was shared"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 150))
def test_many_such_histories(seed: int) -> None:
    run(seed)
