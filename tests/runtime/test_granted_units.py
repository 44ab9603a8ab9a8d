"""BUDGET AUTO: what a round grants, on a machine whose speed the test sets. No clock is read."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.language import bind_script
from penstock.physical.execution.decisions import NO_DECISIONS, Decided, Decisions
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.preferences.queries import DONE_UNITS
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.deciding.deciders import Deciders, DecidingOptions, RoundMeasures
from penstock.runtime.deciding.granted_units import FIRST, GrantedUnits
from penstock.runtime.local import runtime
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.watching.reports import IngestReport, ShardReport

SCRIPT = """
SET target_latency = '2 s';
CREATE STREAM A (ts INT, k INT, amount INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT A.k, amount FROM A [RANGE 2 MINUTES] AS A, B [RANGE 2 MINUTES] AS B
  WHERE A.k = B.k{clause};
"""
AUTO = " WITH PREFERENCE amount BUDGET AUTO"


class Machine(Deciders):
    """A machine that does `speed` units a second, and needs `other` seconds a round for all else."""

    speed, other, target = 1000.0, 0.5, 2.0

    def __init__(self, plan: Plan, options: DecidingOptions) -> None:
        self.now, self.rounds = 0.0, list[float]()
        self.done: dict[int, float] = {}
        super().__init__(
            plan, replace(options, target_latency=self.target), lambda: self.now, registry=(GrantedUnits.of,)
        )

    def report(self, report: IngestReport | ShardReport) -> None:
        if isinstance(report, IngestReport):
            self.rounds.append(self.other)
            self.now += self.other
            return
        spent: dict[int, float] = {}
        for step, figures in report.figures.items():
            done = float(figures.get(DONE_UNITS, 0))
            spent[step] = (done - self.done.get(step, 0.0)) / self.speed
            self.done[step] = done
        self.now += sum(spent.values())
        self.rounds[-1] += sum(spent.values())
        super().report(replace(report, seconds=spent))


def inputs(rows: int, keys: int) -> dict[str, pa.Table]:
    rng = random.Random(1)
    ts = [i // 10 for i in range(rows)]
    a = {"ts": ts, "k": [rng.randrange(keys) for _ in ts], "amount": [rng.randrange(1000) for _ in ts]}
    b = {"ts": ts, "k": [rng.randrange(keys) for _ in ts]}
    return {name: pa.table({c: pa.array(v, pa.int32()) for c, v in one.items()}) for name, one in (("A", a), ("B", b))}


def run(
    clause: str, monkeypatch: pytest.MonkeyPatch, machine: type[Machine] = Machine, rows: int = 4000, batch: int = 100
) -> tuple[LocalResult, Machine]:
    made: list[Machine] = []

    def keep(plan: Plan, options: DecidingOptions, registry: object) -> Machine:
        made.append(machine(plan, options))
        return made[-1]

    monkeypatch.setattr(runtime, "Deciders", keep)
    queries = bind_script(SCRIPT.format(clause=clause)).queries
    return run_local(queries, inputs(rows, 20), batch_rows=batch), made[0]


def rows_in(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: tuple(map(str, row.values())))


def test_a_round_keeps_its_target_at_four_times_what_the_machine_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    # Once windows are full, 100 rows of either side have 60 partners each: 12,000 units a round. In the 1.5 s that
    # other phases leave, this machine does 3,000.
    class Slow(Machine):
        speed = 2000.0

    result, machine = run(AUTO, monkeypatch, Slow)
    plain, _ = run("", monkeypatch)
    settled = machine.rounds[10:-1]
    assert len(settled) > 20
    assert all(0.8 * machine.target <= seconds <= 1.2 * machine.target for seconds in settled), settled
    told, wanted = result.tables["q"].num_rows, plain.tables["q"].num_rows
    assert 0.1 < told / wanted < 0.6


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
    smaller = run_local(
        queries, inputs(800, 20), batch_rows=40, decide=lambda before: Decisions({Decided.UNITS: {"q": 10}})
    )
    assert smaller.tables["q"].num_rows < result.tables["q"].num_rows


def test_what_is_left_of_the_target_is_shared_equally() -> None:
    decider = GrantedUnits({"q": 1, "r": 2}, 2.0)
    first = decider.decide(NO_DECISIONS, RoundMeasures())
    assert first.every(Decided.UNITS) == {"q": FIRST, "r": FIRST}
    figures = {1: {DONE_UNITS: 0}, 2: {DONE_UNITS: 0}}
    decider.decide(first, RoundMeasures(1.0, {"q": 0.0, "r": 0.0}, {}, figures))
    figures = {1: {DONE_UNITS: 5000}, 2: {DONE_UNITS: 1000}}
    # q does 5,000 a second, r 4,000; other phases took 0.75 s of this round and 1 s of the one before.
    second = decider.decide(first, RoundMeasures(2.0, {"q": 1.0, "r": 0.25}, {}, figures))
    other = (1.0 * 0.5 + 0.75) / 1.5
    assert second.of(Decided.UNITS, "q") == int(5000 * (2 - other) / 2)
    assert second.of(Decided.UNITS, "r") == int(4000 * (2 - other) / 2)


def test_waiting_for_input_takes_no_more_than_three_quarters_of_the_target() -> None:
    decider = GrantedUnits({"q": 1}, 2.0)
    for done in (0, 1000):
        decided = decider.decide(NO_DECISIONS, RoundMeasures(100.0, {"q": 1.0}, {}, {1: {DONE_UNITS: done}}))
    assert decided.of(Decided.UNITS, "q") == 500


def test_only_queries_with_auto_and_a_target_are_granted_units() -> None:
    auto = plan_queries(bind_script(SCRIPT.format(clause=AUTO)).queries)
    assert GrantedUnits.of(auto, DecidingOptions(target_latency=1.0)) is not None
    assert GrantedUnits.of(auto, DecidingOptions()) is None
    counted = plan_queries(bind_script(SCRIPT.format(clause=" WITH PREFERENCE amount BUDGET 1 PER TUPLE")).queries)
    assert GrantedUnits.of(counted, DecidingOptions(target_latency=1.0)) is None
