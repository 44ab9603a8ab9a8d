"""What is said of the state of a query before it runs: bounded or not, by what, and about how large."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Grade, together
from penstock.algebra.properties.statistics import Statistics, observe
from penstock.language.scripts import bind_script
from penstock.physical.execution.meter import StateGauge
from penstock.physical.execution.progress import timed_sources
from penstock.physical.operators import OPERATORS
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.state.state_parts import StateInput
from penstock.physical.planning.planner import planned
from penstock.physical.planning.state_size.parts import StepState
from penstock.physical.planning.state_size.summary import state_of
from penstock.physical.synopses.preferences.result_chances import ResultChances
from penstock.runtime.local.runtime import run_local
from penstock.runtime.monitoring.metrics import RunMetrics

SCRIPT = """CREATE STREAM S (ts BIGINT, k INT, v BIGINT, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
CREATE STREAM T (ts BIGINT, k INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
CREATE STREAM U (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND ORDER WITHIN 2 SECONDS;
CREATE RELATION R (k INT, name STRING, ts BIGINT, PRIMARY KEY (k)) FROM MEMORY ()
    TIMESTAMP BY ts UNIT MILLISECOND;
CREATE RELATION G (k INT, ts BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
CREATE RELATION F (k INT, name STRING) FROM MEMORY ();
CREATE QUERY q AS {query};"""


def states(query: str, statistics: Statistics | None = None) -> tuple[StepState, ...]:
    (bound,) = bind_script(SCRIPT.format(query=query)).queries
    known = statistics or Statistics()
    return state_of(*planned([replace(bound, root=optimize(bound.root))], known), known)


def test_every_operator_says_what_it_keeps() -> None:
    assert not [kind.__name__ for kind in OPERATORS if kind.state is Spec.state]


def test_an_operator_that_says_nothing_is_taken_to_keep_all_its_input() -> None:
    @dataclass(frozen=True)
    class SilentSpec(Spec):
        pass

    (bound,) = bind_script(SCRIPT.format(query="SELECT v FROM S [RANGE 10 SECONDS]")).queries
    node = bound.root
    one = StateInput(node, node.boundedness, estimate(node, Statistics()), node.schema.types)
    (part,) = SilentSpec().state([one], one)
    assert (part.rows, part.bound.grade) == (one.size, Grade.BOUNDED)
    assert SilentSpec().waits and SilentSpec().holds_early and not SilentSpec().forwards_early


MINUTE = "RANGE 10 SECONDS"


@pytest.mark.parametrize(
    ("query", "grade", "said"),
    [
        ("SELECT v FROM S [NOW] WHERE v > 1", Grade.BOUNDED, "NOW of S"),
        (f"SELECT k, SUM(v) FROM S [{MINUTE}] GROUP BY k", Grade.BOUNDED, "RANGE 10 SECOND of S"),
        ("SELECT k, SUM(v) FROM S [UNBOUNDED] GROUP BY k", Grade.KEYS, "the number of groups (k)"),
        ("SELECT SUM(v) FROM S [UNBOUNDED]", Grade.FIXED, "one group"),
        ("SELECT DISTINCT k FROM S [UNBOUNDED]", Grade.KEYS, "the number of different rows (k)"),
        (f"SELECT DISTINCT k FROM S [{MINUTE}]", Grade.BOUNDED, "RANGE 10 SECOND of S"),
        ("SELECT k, COUNT(DISTINCT v) FROM S [UNBOUNDED] GROUP BY k", Grade.KEYS, "different values (k, v)"),
        (f"SELECT S.v FROM S [{MINUTE}], T [UNBOUNDED] WHERE S.k = T.k", Grade.UNBOUNDED, "window UNBOUNDED of T"),
        (f"SELECT S.v FROM S [{MINUTE}], T [RANGE 1 SECOND] WHERE S.k = T.k", Grade.BOUNDED,
         "RANGE 10 SECOND of S and RANGE 1 SECOND of T"),
        ("SELECT v FROM S [ROWS 10]", Grade.BOUNDED, "ROWS 10 of S"),
        ("SELECT v FROM S [PARTITION BY k ROWS 10]", Grade.KEYS, "by the number of partitions (k)"),
        (f"SELECT v, name FROM S [{MINUTE}], R WHERE S.k = R.k", Grade.KEYS, "the primary key of R (k)"),
        (f"SELECT v FROM S [{MINUTE}], G WHERE S.k = G.k", Grade.UNBOUNDED, "all rows of G, which has no key"),
        ("SELECT v FROM S [ROWS 10, FREQUENCY 3 TUPLES], R WHERE S.k = R.k", Grade.KEYS, "the primary key of R (k)"),
        ("SELECT v FROM S [ROWS 10, FREQUENCY 3 TUPLES], G WHERE S.k = G.k", Grade.UNBOUNDED, "all rows of G"),
        (f"SELECT v, name FROM S [{MINUTE}], F WHERE S.k = F.k", Grade.BOUNDED, "RANGE 10 SECOND of S"),
        (f"SELECT v FROM S [{MINUTE}] WHERE k NOT IN (SELECT k FROM T [UNBOUNDED])", Grade.KEYS,
         "different rows (k)"),
        ("SELECT k FROM S [UNBOUNDED] ORDER BY v LIMIT 3", Grade.BOUNDED, "LIMIT 3"),
        ("RSTREAM(SELECT v FROM S [UNBOUNDED])", Grade.UNBOUNDED, "window UNBOUNDED of S"),
        (f"ISTREAM(SELECT k, COUNT(*) FROM T [{MINUTE}] GROUP BY k)", Grade.BOUNDED, "RANGE 10 SECOND of T"),
    ],
)  # fmt: skip
def test_what_bounds_a_query(query: str, grade: Grade, said: str) -> None:
    found = together(state.bound for state in states(query))
    assert found.grade is grade, found
    assert said in found.by
    assert bool(found.hint) or grade is not Grade.UNBOUNDED


def test_every_part_of_an_aggregate_has_its_own_bound() -> None:
    """What bounds the values of one aggregate is not said of the groups and extremes beside it, in either order."""
    items = ("COUNT(DISTINCT v) AS n", "MAX(w) AS m", "MEDIAN(v + k) AS d")
    said = {
        "groups": {"the number of groups (k)"},
        "rows that may become an extreme": {"the number of groups (k)"},
        "values by group": {"the number of different values (k, v)"},
    }
    for order in (items, items[::-1]):
        (aggregate,) = states(f"SELECT k, {', '.join(order)} FROM S [UNBOUNDED] GROUP BY k")
        found: dict[str, set[str]] = {}
        for part in aggregate.parts:
            found.setdefault(part.what, set()).add(part.bound.by)
        assert found == said, order


def test_a_stateless_query_keeps_nothing() -> None:
    assert states("ISTREAM(SELECT v FROM S [UNBOUNDED] WHERE v > 1)") == ()


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        ("SELECT k, COUNT(*) FROM U [RANGE 1 SECOND] GROUP BY k", "Aggregate"),
        ("SELECT DISTINCT k FROM U [RANGE 1 SECOND]", "DistinctChanges"),
        ("SELECT k FROM U [FREQUENCY 3 TUPLES]", "Frequency"),
        ("SELECT k FROM U [RANGE 10 TUPLES, FREQUENCY 3 TUPLES]", "CountTime"),
        ("SELECT k FROM U [RANGE 10 SECONDS, FREQUENCY 3 TUPLES]", "SequenceModel"),
    ],
)
def test_slack_makes_elements_wait(query: str, operator: str) -> None:
    (state,) = [s for s in states(query) if s.name.endswith(operator)]
    assert [p.rows for p in state.parts if "ahead" in p.what] == [2.0]


def stream(rows: int, rate: int, seed: int, **columns: int) -> pa.Table:
    """`rate` rows a second; columns: how many values each has."""
    draw = random.Random(seed)
    table: dict[str, pa.Array] = {"ts": pa.array([i * 1000 // rate for i in range(rows)], pa.int64())}
    for name, values in columns.items():
        table[name] = pa.array([draw.randrange(values) for _ in range(rows)])
    return pa.table(table)


S_ROWS, T_ROWS = 12_000, 6_000
INPUTS = {
    "S": stream(S_ROWS, 400, 1, k=100, v=5000, w=1000),
    "T": stream(T_ROWS, 200, 2, k=100, x=1000),
    "U": stream(T_ROWS, 200, 3, k=50),
}

#: Queries with the state of a run: of S 400 rows a second, 100 groups.
MEASURED = [
    f"SELECT k, SUM(v) AS s FROM S [{MINUTE}] GROUP BY k",
    f"SELECT k, SUM(v) AS s FROM S [{MINUTE} SLIDE 1 SECOND] GROUP BY k",
    "SELECT k, AVG(v) AS a, COUNT(*) AS n FROM S [UNBOUNDED] GROUP BY k",
    f"SELECT k, MAX(v) AS m FROM S [{MINUTE}] GROUP BY k",
    f"SELECT k, COUNT(DISTINCT v) AS n FROM S [{MINUTE}] GROUP BY k",
    f"SELECT k, MEDIAN(v) AS n FROM S [{MINUTE}] GROUP BY k",
    f"SELECT S.v, T.x FROM S [{MINUTE}], T [RANGE 5 SECONDS] WHERE S.k = T.k AND S.v = T.x",
    f"SELECT DISTINCT v FROM S [{MINUTE}]",
    f"SELECT v FROM S [{MINUTE}]",
    "SELECT v FROM S [ROWS 1000]",
    "SELECT v FROM S [PARTITION BY k ROWS 20]",
    f"SELECT v, w FROM S [{MINUTE}] ORDER BY v LIMIT 5",
    f"SELECT k FROM S [{MINUTE}] EXCEPT ALL SELECT k FROM T [{MINUTE}]",
    f"SELECT v FROM S [{MINUTE}] WHERE v NOT IN (SELECT k FROM T [{MINUTE}])",
    "SELECT k, COUNT(*) AS n FROM U [RANGE 5 SECONDS] GROUP BY k",
    f"RSTREAM(SELECT k, SUM(v) AS s FROM S [{MINUTE} SLIDE 1 SECOND] GROUP BY k)",
    f"RSTREAM(SELECT v FROM S [{MINUTE} SLIDE 2 SECONDS])",
    f"SELECT k, ESTIMATE(SUM(v)) AS e FROM S [{MINUTE}] GROUP BY k WITH PREFERENCE WEIGHTED v BUDGET 300 PER SECOND",
]


@pytest.mark.parametrize("query", MEASURED)
def test_the_estimate_is_what_a_run_measures(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateGauge, "_SHARE", 0)
    (bound,) = bind_script(SCRIPT.format(query=query)).queries
    bound = replace(bound, root=optimize(bound.root))
    sources = timed_sources(bound.root)
    inputs = {}
    for name, source in sources.items():
        given = INPUTS[name]
        inputs[name] = pa.table({f.name: given[f.name].cast(f.type) for f in source.columns})
    known = observe(sources, inputs)
    expected = sum(state.nbytes for state in state_of(*planned([bound], known), known))
    found: list[RunMetrics] = []
    run_local([bound], inputs, 1, batch_rows=400, watcher=found.append)
    rounds = min(table.num_rows for table in inputs.values()) // 400
    sizes = sorted(run.state_bytes for run in found[rounds // 2 : rounds])
    measured = sizes[len(sizes) // 2]
    assert measured / 4 <= expected <= measured * 4, f"measured {measured}, expected {expected:.0f}"


@pytest.mark.parametrize("item", ["ESTIMATE(SUM(v))", "UPPER_BOUND(ESTIMATE(SUM(v)))"])
def test_results_whose_chance_may_change_are_state(item: str) -> None:
    """They are predicted as held, within a factor of two, where most of them are done while others wait."""
    query = f"SELECT {item} AS e FROM S [RANGE 1 SECOND] WITH PREFERENCE WEIGHTED v + 1 BUDGET 350 PER SECOND"
    (bound,) = bind_script(SCRIPT.format(query=query)).queries
    bound = replace(bound, root=optimize(bound.root))
    sources = timed_sources(bound.root)
    given = INPUTS["S"].slice(0, 2000)
    inputs = {"S": pa.table({f.name: given[f.name].cast(f.type) for f in sources["S"].columns})}
    parts = [part for state in states(query, observe(sources, inputs)) for part in state.parts]
    (part,) = [one for one in parts if one.what == "results with a probability below 1"]
    held: list[tuple[int, int]] = []
    expire = ResultChances.expire

    def noted(self: ResultChances, heartbeat: int) -> None:
        expire(self, heartbeat)
        held.append((self.rows, self.nbytes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResultChances, "expire", noted)
        run_local([bound], inputs, 1, batch_rows=200)
    rows_held, nbytes = sorted(held)[len(held) // 2]
    assert rows_held > 50 and rows_held / 2 <= part.rows <= 2 * rows_held, (rows_held, part)
    assert nbytes / 2 <= part.nbytes <= 2 * nbytes, (nbytes, part)
