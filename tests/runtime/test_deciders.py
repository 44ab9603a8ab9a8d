"""What a run decides by measuring: once for each round, written with it, the same in a replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_rounds import opened, write

from penstock.figures import SHED_HELD
from penstock.language.scripts import bind_script
from penstock.physical.decisions import NO_DECISIONS, Decided, Decisions
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.meter import SynopsisSize
from penstock.physical.operators.base.contract import Moment
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.decisions.deciders import Decider, Deciders, DecidingOptions, QueryPolicies, RoundMeasures
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.runtime.spark.worker.packets import Signal, decided_packets, read_decided

SCRIPT = """CREATE STREAM s (at BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY q AS SELECT k, COUNT(*) FROM s [RANGE 10 TICKS] GROUP BY k;
CREATE QUERY r AS SELECT k, COUNT(*) FROM s [RANGE 10 TICKS] GROUP BY k HAVING COUNT(*) > 1;"""


def plan() -> Plan:
    return plan_queries(bind_script(SCRIPT.replace("TICKS", "SECONDS").replace("BY at", "BY at UNIT SECOND")).queries)


class Counting:
    """Decides how often it was asked, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[RoundMeasures] = []

    def decide(self, before: Decisions, measured: RoundMeasures) -> Decisions:
        self.given.append(measured)
        return before.with_all(Decided.GRANT, {"q": len(self.given), "gone": 1})


def test_a_decider_is_given_what_was_measured_since_the_last_decision() -> None:
    made, counting = plan(), Counting()
    now = [100.0]

    def maker(given: Plan, options: DecidingOptions) -> Decider:
        assert given is made and options.policies.weights == {"q": 2.0}
        return counting

    deciders = Deciders(made, DecidingOptions(0, QueryPolicies({"q": 2.0})), lambda: now[0], (maker,))
    assert deciders.decide(NO_DECISIONS) == Decisions({Decided.GRANT: {"q": 1}})
    shared = next(step.id for step in made.steps if set(step.queries) == {"q", "r"} and step.stage)
    own = next(step.id for step in made.steps if set(step.queries) == {"r"} and step.stage)
    for shard in range(2):
        state = {shared: {"groups": SynopsisSize("KeyedTable", 1, 100)}}
        seconds = {shared: 1.0, own: 0.25}
        deciders.report(ShardReport(1, shard, {}, seconds, state, figures={shared: {SHED_HELD: 3}}))
    deciders.report(IngestReport(0, {}))
    now[0] += 4
    assert deciders.decide(NO_DECISIONS).of(Decided.GRANT, "q") == 2
    first, second = counting.given
    assert first.seconds is None
    assert (second.seconds, second.cpu) == (4.0, {"q": 1.0, "r": 1.5})
    assert (second.state, second.figures) == ({"q": 100, "r": 100}, {shared: {SHED_HELD: 6}})
    assert deciders.decide(NO_DECISIONS) and counting.given[2].cpu == {"q": 0.0, "r": 0.0}
    deciders.changed(made, DecidingOptions(0, QueryPolicies({"q": 2.0})))
    assert deciders.decide(NO_DECISIONS) and counting.given[3].seconds is None


def test_without_deciders_nothing_is_decided_and_what_is_gone_goes() -> None:
    deciders = Deciders(plan(), registry=(lambda given, options: None,))
    assert deciders.decide(Decisions({Decided.GRANT: {"q": 3, "gone": 1}})) == Decisions({Decided.GRANT: {"q": 3}})
    assert deciders.decide(NO_DECISIONS) is NO_DECISIONS
    # Nobody asks for what was measured, so it is not kept.
    deciders.report(
        ShardReport(1, 0, {}, {1: 1.0}, {1: {"groups": SynopsisSize("KeyedTable", 1, 100)}}, figures={1: {"a": 1}})
    )
    deciders.took(1.0)
    assert not deciders._seconds and not deciders._state and not deciders._figures and deciders._busy is None


def test_decisions_travel_to_every_shard() -> None:
    decided = Decisions({Decided.GRANT: {"q": 2**62 + 1}})
    packets = list(decided_packets(3, decided.as_json()))
    assert [packet.shard for packet in packets] == [0, 1, 2]
    assert all(packet.kind is Signal.DECIDED and read_decided(packet.blob) == decided for packet in packets)


def test_a_round_is_decided_once_and_repeated_after_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "data", number)
    asked: list[Decisions] = []

    def decide(before: Decisions) -> Decisions:
        asked.append(before)
        return Decisions({Decided.GRANT: {"q": len(asked)}})

    rounds = opened(tmp_path)
    rounds._planner.decide = decide
    rounds.delivered(1)
    rounds.stop()
    assert len(asked) == 1
    folder = Folder(tmp_path / "job")

    def decided_in(number: int) -> list[dict[str, object]]:
        files = sorted((rounds.place / f"{number:09d}").glob("*.json"))
        tasks = [task for file in files for task in load_read_tasks(folder, file)]
        # The run itself decides the size of a portion of answers.
        return [{kind: values for kind, values in task.decided.items() if kind != "answer_bytes"} for task in tasks]

    assert decided_in(2) == [{"grant": {"q": 1}}]
    again = opened(tmp_path)
    assert decided_in(2) == [{"grant": {"q": 1}}]
    again._planner.decide = decide
    again.delivered(2)
    again.stop()
    # What was decided before is what the next decision begins with.
    assert asked[1].numbers[Decided.GRANT] == {"q": 1}
    assert decided_in(3) == [{"grant": {"q": 2}}]


def test_a_step_that_follows_decisions_runs_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan()
    moments: list[Moment] = []
    executor = StageExecutor(made, 1, 0, 1, {})
    step = next(one for one in executor._graph.turns if "r" in one.queries)
    monkeypatch.setattr(type(step.spec), "follows_decisions", property(lambda spec: spec is step.spec))

    class Listening:
        def advance(self, moment: Moment) -> list[Elements]:
            moments.append(moment)
            return []

        def rejections(self) -> list[object]:
            return []

        def joint_key(self) -> None:
            return None

        def synopses(self) -> dict[str, object]:
            return {}

    executor._operators[step.id] = Listening()  # type: ignore[assignment]
    first, second = (Decisions({Decided.GRANT: {"gone": 0, "r": grant}}) for grant in (1, 2))
    for decided in (first, first, second):
        executor.run({}, {}, decided=decided)
    assert [moment.decided.least(Decided.GRANT) for moment in moments] == [1, 2]
    assert moments[0].decided.every(Decided.GRANT) == {"r": 1}
