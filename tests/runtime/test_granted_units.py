"""BUDGET AUTO: what a round grants, on a machine whose speed the test sets. No clock is read."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.query import Start, StartMode
from penstock.figures import UNITS_CHARGED
from penstock.figures.figure import number
from penstock.language.scripts import bind_script
from penstock.physical.decisions import NO_DECISIONS, Decided, Decisions
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.preferences.queries import AT_ONCE
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.decisions.deciders import Deciders, DecidingOptions, QueryPolicies, RoundMeasures
from penstock.runtime.decisions.granted_units import FIRST, GrantedUnits
from penstock.runtime.live import LiveEngine, measures
from penstock.runtime.local import runtime
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.monitoring.reports import IngestReport, ShardReport

SCRIPT = """
SET target_latency = '2 s';
CREATE STREAM A (ts INT, k INT, amount INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT A.k, amount FROM A [RANGE 2 MINUTES] AS A, B [RANGE 2 MINUTES] AS B
  WHERE A.k = B.k{clause};
"""
TARGET = 2.0
AUTO = " WITH PREFERENCE amount BUDGET AUTO"


class Machine(Deciders):
    """A machine that does `speed` units a second in each of `tasks` that run at a time, eight times as many at once. It
    needs `other` seconds a round for all else. rounds: the seconds of all rounds but the last."""

    speed, other, tasks = 250.0, 0.5, 1

    def __init__(self, plan: Plan, target: float) -> None:
        self.now, self.rounds = 0.0, list[float]()
        self._by_shard: dict[tuple[int, int], float] = {}
        self._total: dict[tuple[int, int, int], float] = {}
        super().__init__(plan, DecidingOptions(target_latency=target), lambda: self.now, registry=(GrantedUnits.of,))

    def took(self, seconds: float, tasks: int = 1) -> None:
        """Take no notice of the clock: `decide` says how long a round takes."""

    def decide(self, before: Decisions) -> Decisions:
        if self._by_shard:
            seconds = list(self._by_shard.values())
            self.rounds.append(self.other + max(max(seconds), sum(seconds) / self.tasks))
            self._by_shard = {}
            self.now += self.rounds[-1]
            super().took(self.rounds[-1], self.tasks)
        return super().decide(before)

    def report(self, report: IngestReport | ShardReport) -> None:
        if isinstance(report, IngestReport):
            return
        spent: dict[int, float] = {}
        for step, figures in report.figures.items():
            done, place = float(number(figures, UNITS_CHARGED)), (report.stage, report.shard, step)
            spent[step] = (done - self._total.get(place, 0.0)) / self.speed
            self._total[place] = done
        place = report.stage, report.shard
        self._by_shard[place] = self._by_shard.get(place, 0.0) + sum(spent.values())
        super().report(replace(report, seconds=spent))


def inputs(rows: int, keys: int) -> dict[str, pa.Table]:
    rng = random.Random(1)
    ts = [i // 10 for i in range(rows)]
    a = {"ts": ts, "k": [rng.randrange(keys) for _ in ts], "amount": [rng.randrange(1000) for _ in ts]}
    b = {"ts": ts, "k": [rng.randrange(keys) for _ in ts]}
    return {name: pa.table({c: pa.array(v, pa.int32()) for c, v in one.items()}) for name, one in (("A", a), ("B", b))}


def run(
    clause: str,
    monkeypatch: pytest.MonkeyPatch,
    machine: type[Machine] = Machine,
    rows: int = 4000,
    batch: int = 100,
    shards: int = 1,
) -> tuple[LocalResult, Machine]:
    made: list[Machine] = []

    def keep(plan: Plan, options: DecidingOptions, registry: object) -> Machine:
        made.append(machine(plan, TARGET))
        return made[-1]

    monkeypatch.setattr(runtime, "Deciders", keep)
    queries = bind_script(SCRIPT.format(clause=clause)).queries
    return run_local(queries, inputs(rows, 20), shards, batch_rows=batch), made[0]


def rows_in(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: tuple(map(str, row.values())))


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_round_keeps_its_target_at_four_times_what_the_machine_can_do(
    tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once windows are full, 100 rows of either side have 60 partners each: 12,000 units a round. In the 1.5 s that
    # other phases leave, this machine does 3,000 at once, and 375 by the queue.
    class Slow(Machine):
        speed = 250.0 / tasks

    Slow.tasks = tasks
    result, machine = run(AUTO, monkeypatch, Slow, rows=3000, shards=tasks)
    settled = machine.rounds[10:]
    assert len(settled) == 19
    assert all(0.8 * TARGET <= seconds <= 1.2 * TARGET for seconds in settled), settled
    plain, _ = run("", monkeypatch, rows=3000)
    # The last round does all that waits.
    assert 0.01 < result.tables["q"].num_rows / plain.tables["q"].num_rows < 0.6


def test_the_engine_without_spark_keeps_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Machine] = []

    def keep(plan: Plan, registry: object) -> Machine:
        made.append(Machine(plan, 0.0))
        return made[-1]

    monkeypatch.setattr(measures, "Deciders", keep)
    engine, (query,) = LiveEngine(), bind_script(SCRIPT.format(clause=AUTO)).queries
    tables = inputs(3000, 20)
    for leaf in leaves(query.root):
        assert isinstance(leaf, Scan)
        engine.declare(leaf.source, 0)
    engine.decide_by(DecidingOptions(target_latency=TARGET))
    engine.register(query, Start(StartMode.NOW))
    for start in range(0, 3000, 100):
        if start == 2000:
            first, engine = made[-1], LiveEngine.restored(pickle.loads(pickle.dumps(engine.snapshot())))
            made[-1]._total = dict(first._total)
        for name, table in tables.items():
            engine.insert(name, table.slice(start, 100).combine_chunks().to_batches()[0])
        engine.round()
    # The second process begins with what was granted last.
    for settled in (first.rounds[10:], made[-1].rounds):
        assert len(settled) == 9
        assert all(0.8 * TARGET <= seconds <= 1.2 * TARGET for seconds in settled), settled


def test_a_machine_that_keeps_up_answers_the_plain_query(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(Machine):
        speed = 1e9

    result, _ = run(AUTO, monkeypatch, Fast, rows=600, batch=20)
    plain, _ = run("", monkeypatch, rows=600, batch=20)
    assert rows_in(result.tables["q"]) == rows_in(plain.tables["q"])


def test_grants_repeated_repeat_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that reads the grants of the offsets answers the same, whatever its machine does, also after
    restarts between all rounds."""
    grants: list[Decisions] = []

    class Keeping(Machine):
        def decide(self, before: Decisions) -> Decisions:
            grants.append(super().decide(before))
            return grants[-1]

    result, _ = run(AUTO, monkeypatch, Keeping, rows=800, batch=40)
    monkeypatch.undo()
    given = iter(grants)
    queries = bind_script(SCRIPT.format(clause=AUTO)).queries
    again = run_local(queries, inputs(800, 20), batch_rows=40, reload=True, decide=lambda before: next(given))
    assert again.tables["q"].num_rows > 0
    assert rows_in(again.tables["q"]) == rows_in(result.tables["q"])
    smaller = run_local(queries, inputs(800, 20), batch_rows=40, decide=lambda before: grant(10))
    # What waits at the end is done then: every row lives longer than the input.
    assert smaller.tables["q"].num_rows == result.tables["q"].num_rows
    assert rows_in(smaller.tables["q"]) != rows_in(result.tables["q"])


def grant(units: int) -> Decisions:
    return Decisions({Decided.UNITS: {"q": units}})


def answer(
    clause: str, window: str, rows: int, keys: int, units: int, drain: bool = False, shards: int = 1
) -> pa.Table:
    queries = bind_script(SCRIPT.replace("RANGE 2 MINUTES", window).format(clause=clause)).queries
    result = run_local(queries, inputs(rows, keys), shards, drain, batch_rows=50, decide=lambda before: grant(units))
    return result.tables["q"]


def test_a_grant_covers_more_units_where_nothing_waits() -> None:
    """The rounds ask for 2,500 units and more, 12,500 in the end, which is a part of what 1,600 are charged for."""
    plain = answer("", "RANGE 2 MINUTES", 150, 1, 0)
    assert 1_600 < plain.num_rows / 3 < 1_600 * AT_ONCE
    assert rows_in(answer(AUTO, "RANGE 2 MINUTES", 150, 1, 1_600)) == rows_in(plain)
    assert rows_in(answer(AUTO, "RANGE 2 MINUTES", 150, 1, 100)) != rows_in(plain)


def of_results(table: pa.Table) -> pa.Table:
    """Return the rows without their times, ordered."""
    rows = table.select(["k", "amount"])
    return rows.sort_by([("k", "ascending"), ("amount", "ascending")]).combine_chunks()


@pytest.mark.parametrize(("drain", "shards", "keys"), [(False, 1, 20), (True, 3, 20), (False, 1, 1)])
def test_what_waits_when_all_inputs_have_ended_is_done_then(drain: bool, shards: int, keys: int) -> None:
    """Windows keep everything, so that nothing is lost; with one key the last round has more results than the compiled
    loop returns at a time."""
    told = answer(AUTO, "RANGE UNBOUNDED", 450, keys, 7, drain, shards)
    assert told.num_rows > 200_000 / keys
    assert of_results(told).equals(of_results(answer("", "RANGE UNBOUNDED", 450, keys, 7, drain)))


def test_what_has_ended_before_the_last_round_is_lost() -> None:
    told, wanted = (answer(clause, "RANGE 9 SECONDS", 450, 20, 7) for clause in (AUTO, ""))
    assert 200 < told.num_rows < wanted.num_rows / 2
    # The last rows came in the last round: they have all their partners.
    last = {str(row) for row in wanted.to_pylist() if row["ts"] == wanted["ts"].to_pylist()[-1]}
    assert last and last <= {str(row) for row in told.to_pylist()}


def test_what_is_left_of_the_target_is_shared_equally() -> None:
    decider = GrantedUnits({"q": [1], "r": [2]}, 2.0)
    first = decider.decide(NO_DECISIONS, RoundMeasures())
    assert first.every(Decided.UNITS) == {"q": FIRST, "r": FIRST}
    figures = {1: {UNITS_CHARGED: 0}, 2: {UNITS_CHARGED: 0}}
    decider.decide(first, RoundMeasures(1.0, figures=figures))
    figures = {1: {UNITS_CHARGED: 5000}, 2: {UNITS_CHARGED: 1000}}
    # q does 5,000 a second, r 4,000; other phases took 0.75 s of this round and 1 s of the one before.
    second = decider.decide(first, RoundMeasures(2.0, figures=figures, elapsed={"q": 1.0, "r": 0.25}))
    other = (1.0 * 0.5 + 0.75) / 1.5
    assert second.of(Decided.UNITS, "q") == int(5000 * (2 - other) / 2)
    assert second.of(Decided.UNITS, "r") == int(4000 * (2 - other) / 2)


def test_a_query_with_a_shorter_target_of_its_own_is_granted_less() -> None:
    plan = plan_queries(bind_script(SCRIPT.format(clause=AUTO)).queries)
    (step,) = (step.id for step in plan.steps if step.spec.is_granted_units)
    granted = []
    for own in ({}, {"q": 0.5}, {"q": 9.0}, {"r": 0.5}):
        decider = GrantedUnits.of(plan, DecidingOptions(target_latency=2.0, policies=QueryPolicies({}, own)))
        assert decider is not None
        for done in (0, 1000):
            measured = RoundMeasures(1.0, figures={step: {UNITS_CHARGED: done}}, elapsed={"q": 1.0}, busy=1.0)
            decided = decider.decide(NO_DECISIONS, measured)
        granted.append(decided.of(Decided.UNITS, "q"))
    assert granted == [2000, 500, 2000, 2000]


def test_waiting_for_input_takes_no_more_than_three_quarters_of_the_target() -> None:
    decider = GrantedUnits({"q": [1]}, 2.0)
    for done in (0, 1000):
        measured = RoundMeasures(100.0, figures={1: {UNITS_CHARGED: done}}, elapsed={"q": 1.0})
        decided = decider.decide(NO_DECISIONS, measured)
    assert decided.of(Decided.UNITS, "q") == 500


def test_of_a_round_that_says_how_long_it_took_all_the_rest_is_granted() -> None:
    decider = GrantedUnits({"q": [1]}, 2.0)
    for done in (0, 1000):
        measured = RoundMeasures(100.0, figures={1: {UNITS_CHARGED: done}}, elapsed={"q": 1.0}, busy=1.5)
        decided = decider.decide(NO_DECISIONS, measured)
    assert decided.of(Decided.UNITS, "q") == 1500


def test_only_queries_with_auto_and_a_target_are_granted_units() -> None:
    auto = plan_queries(bind_script(SCRIPT.format(clause=AUTO)).queries)
    assert GrantedUnits.of(auto, DecidingOptions(target_latency=1.0)) is not None
    assert GrantedUnits.of(auto, DecidingOptions()) is None
    counted = plan_queries(bind_script(SCRIPT.format(clause=" WITH PREFERENCE amount BUDGET 1 PER TUPLE")).queries)
    assert GrantedUnits.of(counted, DecidingOptions(target_latency=1.0)) is None
