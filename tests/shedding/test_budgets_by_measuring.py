"""Budgets that a run decides by measuring: cores, and a part of `state_limit`."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.session_window import SessionWindow
from penstock.algebra.nodes.shed import NO_BUDGET, Shed
from penstock.errors import PenstockError
from penstock.expressions.draws import draws
from penstock.figures import SHED_HELD, SHED_WEIGHT
from penstock.language.scripts import bind_script
from penstock.physical.decisions import NO_DECISIONS, WHOLE, Decided, Decisions
from penstock.physical.execution.meter import SynopsisSize
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.decisions.deciders import Deciders, DecidingOptions, QueryPolicies, RoundMeasures
from penstock.runtime.decisions.keep_rates import KeepRates
from penstock.runtime.decisions.registry import REGISTRY
from penstock.runtime.decisions.state_budgets import StateBudgets
from penstock.runtime.live import LiveEngine
from penstock.runtime.local.runtime import run_local
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.reports import ShardReport
from penstock.tree import walk

_STREAM = "CREATE STREAM m (at BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"
_FROM = "SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS [RANGE 20 SECONDS] AS s;"


def script(attributes: str, name: str = "q") -> str:
    return f"{_STREAM}CREATE QUERY {name} WITH ({attributes}) AS {_FROM}"


def inputs(rows: int = 3_000, keys: int = 40) -> dict[str, pa.Table]:
    draw = random.Random(5)
    at = [k // 8 for k in range(rows)]
    values = [draw.randrange(keys) for _ in range(rows)]
    return {"m": pa.table({"at": pa.array(at, pa.int64()), "k": pa.array(values, pa.int64())})}


def ranks(keys: int = 40) -> dict[int, int]:
    """The hash of every value."""
    found = draws(0, "", np.zeros(keys, np.int64), [pa.array(range(keys), pa.int64())]) >> np.uint64(1)
    return dict(enumerate(found.astype(np.int64).tolist()))


def falling(thresholds: list[int]) -> Callable[[Decisions], Decisions]:
    """Decide one threshold after the other, and then the last one."""
    left = list(thresholds)

    def decide(before: Decisions) -> Decisions:
        threshold = left.pop(0) if len(left) > 1 else left[0]
        return before.with_all(Decided.KEEP_BELOW, {"q": threshold})

    return decide


def changes(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def came(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter({row: n for row, n in changes(table).items() if row[1] != "-"})


def kept_alone(table: pa.Table, kept: set[int]) -> Counter[tuple[object, ...]]:
    names = table.column_names
    return Counter({row: n for row, n in changes(table).items() if row[names.index("k")] in kept})


@pytest.mark.parametrize("more", ["", ", shed 'random', error_sample '0'", ", memory '1000000 TUPLES'"])
def test_what_is_kept_by_cpu_is_exact(more: str) -> None:
    data, half = inputs(), WHOLE // 2
    exact = run_local(bind_script(_STREAM + f"CREATE QUERY q AS {_FROM}").queries, data).tables["q"]
    given = run_local(bind_script(script(f"cpu '0.5'{more}")).queries, data, decide=falling([half])).tables["q"]
    kept = {key for key, rank in ranks().items() if rank < half}
    assert 10 < len(kept) < 30
    assert changes(given) == kept_alone(exact, kept)


def test_nothing_comes_back_and_what_was_shed_is_retracted_at_the_next_arrival() -> None:
    data = inputs()
    bound = bind_script(script("cpu '0.5'"))
    thresholds = [WHOLE] * 5 + [WHOLE // 2] * 5 + [WHOLE] * 5 + [WHOLE // 4]
    given = run_local(bound.queries, data, batch_rows=160, decide=falling(thresholds)).tables["q"]
    places = ranks()
    ts, op, keys = (given.column(name).to_pylist() for name in ("ts", "op", "k"))
    opened: Counter[int] = Counter()
    last: dict[int, int] = {}
    for at, sign, key in zip(ts, op, keys, strict=True):
        opened[key] += 1 if sign == "+" else -1
        last[key] = at if isinstance(at, int) else int(at.timestamp())
    gone = {key for key, rank in places.items() if rank >= WHOLE // 4}
    assert gone and all(opened[key] == 0 for key in gone)
    assert max(last[key] for key, rank in places.items() if rank >= WHOLE // 2) < max(last[key] for key in gone)


@pytest.mark.parametrize(
    "source",
    [
        "m (k) VALID FOR 3 SECONDS [RANGE 20 SECONDS] AS s",
        "m (k) [RANGE 20 SECONDS SLIDE 2 SECONDS] AS s",
        "m (k) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s))",
        "m [PARTITION BY k SESSION 3 SECONDS] AS s",
    ],
)
def test_estimates_follow_the_threshold_of_cpu(source: str) -> None:
    text = f"CREATE QUERY q WITH (cpu '0.5') AS SELECT COUNT(*) AS kept, ESTIMATE(COUNT(*)) AS n FROM {source};"
    bound = bind_script(_STREAM + text)
    data = inputs(keys=400)

    def weights(thresholds: list[int]) -> list[float]:
        given = run_local(bound.queries, data, batch_rows=160, decide=falling(thresholds)).tables["q"]
        kept, n = (given.column(name).to_pylist() for name in ("kept", "n"))
        return [b / a for a, b in zip(kept, n, strict=True) if a]

    assert set(weights([WHOLE // 2])) == {2.0}
    met = weights([WHOLE] * 5 + [WHOLE // 4])
    assert met[0] == 1.0 and min(met) >= 1.0 and max(met) <= 4.0
    # What was told before stays as it was told, where it is told once.
    assert met[-1] == 4.0 or ("CLOSED" in source and 1.0 < met[-1] < 4.0)


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", ["random", "newest", "value", "cals_v", "cals_i", "cals", "cals_q"])
def test_shards_and_restarts_do_not_change_what_is_shed_under_the_same_decisions(policy: str) -> None:
    data = inputs(1_200)
    bound = bind_script(script(f"cpu '0.5', memory '60 TUPLES', shed '{policy}', error_sample '30%'"))
    thresholds = [WHOLE, WHOLE // 4 * 3, WHOLE // 2, WHOLE // 8]

    def answer(**options: Any) -> Counter[tuple[object, ...]]:
        run = run_local(bound.queries, data, batch_rows=200, decide=falling(thresholds), **options)
        return changes(run.tables["q"])

    expected = answer()
    assert expected and answer(shards=3) == answer(reload=True) == expected


#: Queries of which only what goes on of a value is known.
_GOES_ON = (
    "SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s))",
    "SELECT k, VALID(s) FROM m [PARTITION BY k SESSION 3 SECONDS] AS s",
    "RSTREAM(SELECT k, VALID(s), COUNT(*) AS n FROM m [PARTITION BY k SESSION 3 SECONDS] AS s GROUP BY k, VALID(s))",
    "SELECT k, VALID(s) FROM m (k) [RANGE 20 SECONDS SLIDE 2 SECONDS] AS s",
)


@pytest.mark.spread(2)
@pytest.mark.parametrize("query", _GOES_ON)
def test_of_what_goes_on_whole_values_are_shed_whatever_the_shards_and_restarts(query: str) -> None:
    # Under SLIDE a value may have a run for every other granule of the window.
    most = 60 if "SLIDE" in query else 14
    data = inputs(1_200)
    exact = run_local(bind_script(f"{_STREAM}CREATE QUERY q AS {query};").queries, data).tables["q"]
    bound = bind_script(f"{_STREAM}CREATE QUERY q WITH (cpu '0.5', memory '{most} TUPLES') AS {query};")
    seen: list[RunMetrics] = []

    def answer(thresholds: list[int], **options: Any) -> pa.Table:
        return run_local(bound.queries, data, batch_rows=200, decide=falling(thresholds), **options).tables["q"]

    quarter = WHOLE // 4
    kept = {key for key, rank in ranks().items() if rank < quarter}
    given = answer([quarter], watcher=seen.append)
    assert changes(given) == kept_alone(exact, kept) and given.num_rows
    last = seen[-1].queries["q"].shedding
    assert last is not None and 0 < last.held <= most and last.shed_by_cpu == last.shed > 0 and not last.exact
    falls = [WHOLE, WHOLE // 2, quarter]
    told = answer(falls)
    assert changes(told) == changes(answer(falls, shards=3)) == changes(answer(falls, reload=True))
    assert came(told) - came(exact) == Counter()


def test_the_figures_of_what_cpu_has_shed_do_not_lie() -> None:
    seen: list[RunMetrics] = []
    bound = bind_script(script("cpu '0.5', error_sample '50%'"))
    run_local(
        bound.queries, inputs(6_000, 400), batch_rows=500, watcher=seen.append, decide=falling([WHOLE, WHOLE // 2])
    )
    first, last = seen[0].queries["q"].shedding, seen[-1].queries["q"].shedding
    assert first is not None and first.exact == 1 and first.shed == 0
    assert last is not None and last.exact == 0 and last.budget == 0
    assert last.shed == last.shed_by_cpu > 1_000
    assert last.coverage_at_least < 0.7
    assert last.accuracy is not None and last.accuracy_low is not None and last.accuracy_high is not None
    # Fixed data and hashes; about half of the values are there.
    assert last.accuracy_low < 0.55 and last.accuracy_high > 0.45


def test_the_controller_reaches_what_is_allowed() -> None:
    """A clock of its own: a round takes 2 s, and what it uses is a cost per value that is kept."""
    bound = bind_script(script("cpu '0.25'"))
    plan = plan_queries(bound.queries)
    now = [0.0]
    deciders = Deciders(plan, DecidingOptions(), lambda: now[0], REGISTRY)
    step = next(one.id for one in plan.steps if one.stage)
    decided, used = NO_DECISIONS, []
    for _ in range(40):
        decided = deciders.decide(decided)
        share = decided.share(Decided.KEEP_BELOW, "q")
        used.append(share)
        deciders.report(ShardReport(1, 0, {}, {step: 2.0 * share}))
        now[0] += 2.0
    assert used[:2] == [1.0, 1.0]
    assert used == sorted(used, reverse=True)
    assert used[-1] == pytest.approx(0.25, rel=0.02)


def test_the_controller_leaves_out_its_start_and_waits_for_a_second() -> None:
    one = KeepRates({"q": 0.1})
    busy = RoundMeasures(0.4, {"q": 0.4})
    assert one.decide(NO_DECISIONS, RoundMeasures()) is NO_DECISIONS
    for _ in range(3):
        assert one.decide(NO_DECISIONS, busy) is NO_DECISIONS
    assert one.decide(NO_DECISIONS, busy).of(Decided.KEEP_BELOW, "q") is not None
    assert one.decide(NO_DECISIONS, RoundMeasures(5.0, {"q": 0.4})) is NO_DECISIONS


def test_a_query_without_cpu_has_no_controller() -> None:
    plan = plan_queries(bind_script(script("memory '10 TUPLES'")).queries)
    assert KeepRates.of(plan, DecidingOptions()) is None
    assert StateBudgets.of(plan, DecidingOptions(1_000)) is None


# --- a part of state_limit

_SET = "SET state_limit = '{}';\nSET state_limit_action = 'shed';\n"


def test_a_limit_of_the_state_is_divided_by_weight() -> None:
    queries = "\n".join(
        f"CREATE QUERY {name} AS SELECT k, VALID(s) FROM m (k) VALID FOR {n} SECONDS [RANGE {n} MINUTES] AS s;"
        for name, n in (("light", 3), ("heavy", 4))
    )
    plan = plan_queries(bind_script(_SET.format("1 MB") + _STREAM + queries).queries)
    steps = {min(one.queries): one.id for one in plan.steps if one.spec.title == "Shed"}
    assert set(steps) == {"light", "heavy"}
    deciders = Deciders(plan, DecidingOptions(1_000_000, QueryPolicies({"heavy": 3.0})), lambda: 0.0, REGISTRY)

    def report(held: int, shed: int, size: int | None) -> None:
        state = {step: {"held": SynopsisSize("HeldTuples", 1, size)} for step in steps.values()} if size else None
        figures = {step: {SHED_HELD: held, SHED_WEIGHT: shed} for step in steps.values()}
        deciders.report(ShardReport(1, 0, {}, {}, state, figures=figures))

    report(200_000, 0, 400_000)
    assert not deciders.decide(NO_DECISIONS)
    # What is held is known in each round, the state that it takes now and then.
    report(400_000, 0, None)
    assert not deciders.decide(NO_DECISIONS)
    report(400_000, 0, 1_000_000)
    decided = deciders.decide(NO_DECISIONS)
    assert decided.every(Decided.STATE_BUDGET) == {"heavy": 300_000, "light": 100_000}
    # What was taken is not given back at once, and what is shed is still needed: budgets stay.
    report(200_000, 200_000, 1_000_000)
    again = deciders.decide(decided).every(Decided.STATE_BUDGET)
    assert again == pytest.approx({"heavy": 300_000, "light": 100_000}, rel=0.01)
    report(50_000, 0, 1_000_000)
    assert set(deciders.decide(decided).every(Decided.STATE_BUDGET).values()) == {NO_BUDGET}


def test_a_run_sheds_what_is_beyond_its_limit() -> None:
    seen: list[RunMetrics] = []
    bound = bind_script(_SET.format("30 KB") + _STREAM + f"CREATE QUERY q AS {_FROM}")
    data = inputs(4_000, 2_000)
    exact = run_local(bound.queries, data, batch_rows=200).tables["q"]
    options = DecidingOptions(30_000)
    given = run_local(bound.queries, data, batch_rows=200, watcher=seen.append, deciding=options).tables["q"]
    last = seen[-1].queries["q"].shedding
    assert last is not None and last.shed > 0 and 0 < last.held <= last.budget < 30_000
    assert changes(exact) != changes(given)


def test_only_queries_that_can_shed_have_a_part() -> None:
    """A limit of the whole run refuses no query."""
    others = """CREATE QUERY rows AS SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS [PARTITION BY k ROWS 5] AS s;
    CREATE QUERY open AS SELECT k, VALID(s) FROM m [PARTITION BY k SESSION 3 SECONDS OPEN] AS s;
    CREATE QUERY sessions AS SELECT k, VALID(s) FROM m [PARTITION BY k SESSION 3 SECONDS] AS s;
    CREATE QUERY count AS SELECT COUNT(*) AS n FROM m [RANGE 5 SECONDS];
    CREATE QUERY own WITH (memory '9 TUPLES') AS
    SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s;"""
    bound = bind_script(_SET.format("1 MB") + _STREAM + others + f"CREATE QUERY q AS {_FROM}")
    nodes = {q.name: list(walk(q.root)) for q in bound.queries}
    shed = {name: [n for n in found if isinstance(n, Shed)] for name, found in nodes.items()}
    shed["sessions"] = [n.budget for n in nodes["sessions"] if isinstance(n, SessionWindow) and n.budget is not None]
    assert {name: [one.shares_limit for one in found] for name, found in shed.items()} == {
        "rows": [],
        "open": [],
        "sessions": [True],
        "count": [],
        "own": [False],
        "q": [True],
    }


def test_without_a_limit_nothing_is_shared() -> None:
    (query,) = bind_script(f"SET state_limit_action = 'shed';\n{_STREAM}CREATE QUERY q AS {_FROM}").queries
    assert not [node for node in walk(query.root) if isinstance(node, Shed)]


@pytest.mark.parametrize("cores", ["0", "-1", "nan", "many", "1e9"])
def test_cores_are_a_positive_number(cores: str) -> None:
    with pytest.raises(PenstockError) as refused:
        bind_script(script(f"cpu '{cores}'"))
    assert refused.value.code == "P0104" and "a number of cores such as '0.5'" in refused.value.message


# --- without Spark


def test_an_engine_in_this_process_goes_on_with_what_it_has_decided() -> None:
    decided = NO_DECISIONS.with_all(Decided.KEEP_BELOW, {"q": WHOLE // 2})
    saved = pickle.loads(pickle.dumps(replace(LiveEngine().snapshot(), decided=decided)))
    assert LiveEngine.restored(saved).snapshot().decided == decided
