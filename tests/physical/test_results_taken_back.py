"""Joins of a window with a relation take their results back themselves: the answers are those of the law, and nothing
is kept of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.plan.joins.specs import TakingBackJoinSpec
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.streams import ChangesSpec
from penstock.physical.planning.planner import Generation, grains_of, plan_part
from penstock.runtime.live import LiveEngine
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.thresholds import lowered

SOURCES = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 2 SECONDS;
CREATE RELATION R (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION B (ts INT, op STRING, k INT, c INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
"""
#: Two joins of S each, since in a script a store is worth it from two on.
QUERIES = """
CREATE QUERY kept AS SELECT S.k, S.a, R.c FROM S [RANGE 5 SECONDS], R WHERE S.k = R.k;
CREATE QUERY turned AS SELECT R.c + S.a AS s, S.k FROM R, S [RANGE 3 SECONDS] WHERE S.k = R.k AND S.a <> R.c;
CREATE QUERY bag AS SELECT S.a, B.c FROM S [RANGE 5 SECONDS], B WHERE S.k = B.k;
CREATE QUERY came AS ISTREAM(SELECT S.a, R.c FROM S [RANGE 4 SECONDS], R WHERE S.k = R.k);
CREATE QUERY went AS DSTREAM(SELECT S.a, R.c FROM S [NOW], R WHERE S.k = R.k);
CREATE QUERY counted AS SELECT j.k, COUNT(*) AS n FROM
  (SELECT S.k, R.c FROM S [RANGE 5 SECONDS], R WHERE S.k = R.k AND S.a > 1) j GROUP BY j.k;
"""


def random_rows(draw: random.Random) -> dict[str, pa.Table]:
    """Rows whose instants often coincide with those at which others leave their window; time also jumps."""
    instants = sorted(draw.choices(range(1, 40), k=30))
    s = [(max(0, at - draw.choice((0, 0, 1, 2))), draw.choice((0, 1, 2, None)), draw.randrange(4)) for at in instants]
    r = [(at, draw.randrange(3), draw.randrange(4)) for at in sorted(draw.choices(range(1, 45), k=20))]
    b = [(at, draw.choice("++-"), draw.randrange(3), draw.randrange(2)) for at in sorted(draw.choices(range(45), k=25))]
    i, t = pa.int32(), pa.string()

    def table(rows: list[tuple[object, ...]], **types: pa.DataType) -> pa.Table:
        columns = zip(*rows, strict=True)
        return pa.table({n: pa.array(c, type_) for (n, type_), c in zip(types.items(), columns, strict=True)})

    return {"S": table(s, ts=i, k=i, a=i), "R": table(r, ts=i, k=i, c=i), "B": table(b, ts=i, op=t, k=i, c=i)}


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(24))
def test_answers_are_those_of_the_law(seed: int) -> None:
    draw = random.Random(seed)
    queries, inputs = bind_script(SOURCES + QUERIES).queries, random_rows(draw)
    # Of what leaves a window and the relation, either looks the other up.
    with lowered({"physical.operators.joins.store_join._SMALLER": (0, 4, 1_000)[seed % 3]}):
        found = run_local(queries, inputs, shards=1 + seed % 3, seed=seed, reload=bool(seed % 2), drain=seed % 5 == 0)
    for query in queries:
        assert_same(query, found.tables[query.name], run_oracle(query, inputs, drain=seed % 5 == 0))


def dear(number: int) -> int:
    return number + 1


def planned(text: str) -> list[Spec]:
    """Return the specs of the steps of a script in a live run."""
    queries = [replace(query, root=optimize(query.root)) for query in bind_script(SOURCES + text).queries]
    chosen = grains_of(queries, Statistics(), Strategy.PATTERN, live=True)
    return [step.spec for step in plan_part(Generation(0, queries, Statistics(), chosen), Strategy.PATTERN).plan.steps]


#: A join that takes its results back where its changes alone are read.
JOIN = "SELECT S.k, S.a, R.c FROM S [RANGE 5 SECONDS], R WHERE S.k = R.k"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"CREATE QUERY q AS {JOIN};", 1),
        (f"CREATE QUERY q AS ISTREAM({JOIN} AND S.a <> R.c);", 1),
        (f"CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM ({JOIN}) j GROUP BY k;", 0),
        (f"CREATE QUERY q AS SELECT DISTINCT k FROM ({JOIN}) j;", 0),
        # Another reader of the same join needs the ends of its rows.
        (f"CREATE QUERY q AS {JOIN}; CREATE QUERY p AS SELECT k, SUM(a + c) AS n FROM ({JOIN}) j GROUP BY k;", 0),
        # It would be called again at the end of a result.
        (
            "CREATE FUNCTION dear (INT) RETURNS INT AS 'tests.physical.test_results_taken_back:dear';"
            " CREATE QUERY q AS SELECT S.k, dear(S.a) AS x FROM S [RANGE 5 SECONDS], R WHERE S.k = R.k;", 0,
        ),
        # Both sides are windows: neither is looked up when the other leaves.
        ("CREATE QUERY q AS SELECT x.k FROM S [RANGE 5 SECONDS] x, S [RANGE 2 SECONDS] y WHERE x.k = y.k;", 0),
    ],
)  # fmt: skip
def test_which_joins_take_their_results_back(text: str, count: int) -> None:
    specs = planned(text)
    assert sum(isinstance(spec, TakingBackJoinSpec) for spec in specs) == count
    assert [spec.taken_back for spec in specs if isinstance(spec, ChangesSpec)].count(True) == count


def test_nothing_is_kept_of_what_was_answered() -> None:
    engine, count = LiveEngine(1), 20
    declared = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    names = [f"R{number}" for number in range(count)]

    def round_(second: int) -> int:
        keys = pa.array(range(100), pa.int32())
        at = pa.array([second] * 100, pa.int32())
        engine.insert("S", pa.RecordBatch.from_arrays([at, keys, keys], ["ts", "k", "a"]))
        for name in names:
            engine.insert(name, pa.RecordBatch.from_arrays([at[:2], keys[:2], at[:2]], ["ts", "k", "c"]))
        return sum(table.num_rows for table in engine.round().values())

    for name in names:
        declared_too = f"CREATE RELATION {name} (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY ()"
        text = f"SELECT S.k, S.a, {name}.c FROM S [RANGE 6 SECONDS], {name} WHERE S.k = {name}.k"
        script = f"{declared} {declared_too} TIMESTAMP BY ts UNIT SECOND; CREATE QUERY q{name} AS {text};"
        query = bind_script(script).queries[0]
        for leaf in leaves(query.root):
            assert isinstance(leaf, Scan)
            if not engine.is_declared(leaf.source.name):
                engine.declare(leaf.source)
        engine.register(query, Start(StartMode.WARM))
    assert sum(map(round_, range(1, 20))) > 100 * count
    rows = {
        name: synopsis.rows
        for step, operator in engine._job.stages[0][0].changed_steps(())
        for name, synopsis in ((f"{step}.{one}", it) for one, it in operator.synopses().items())
        if "live" in name
    }
    assert len(rows) == count and not any(rows.values()), rows
