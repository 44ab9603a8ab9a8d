"""Whatever comes and goes, the plan and the records of a run are those that a process makes anew of its epoch."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.errors import PenstockError
from penstock.physical.execution.wall_clock import peers_of
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.changes.planned_epoch import plan_of
from penstock.runtime.spark.checkpoint.epochs import read_epoch
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache
from penstock.runtime.spark.start import start_request

__all__ = ["without_spark"]

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 100 SECONDS;"
    for name in ("S", "T")
)
TEXTS = (
    "SELECT SUM(v) AS s FROM S [RANGE {n} SECONDS]",
    "SELECT SUM(v) AS s FROM S [RANGE {n} SECONDS] WHERE v > 1",
    "SELECT v, COUNT(*) AS s FROM S [RANGE {n} SECONDS] GROUP BY v",
    "RSTREAM(SELECT v, SUM(v) AS s FROM S [RANGE {n} SECONDS SLIDE 5 SECONDS] GROUP BY v)",
    "SELECT S.v FROM S [RANGE {n} SECONDS], T [RANGE 4 SECONDS] WHERE S.v = T.v",
    "SELECT a.v FROM S [RANGE {n} SECONDS] AS a, S [RANGE 2 SECONDS] AS b WHERE a.v = b.v",
    "SELECT SUM(v) AS s FROM S [ROWS {n}]",
    "SELECT DISTINCT v FROM T [RANGE {n} SECONDS]",
    "SELECT v FROM S WHERE v > {n}",
)


def described(plan: Plan) -> list[object]:
    """What a plan is, by the places of its steps in place of their numbers."""
    places = {step.id: place for place, step in enumerate(plan.steps)}
    keys = step_keys(plan)
    steps = [
        (
            step.spec,
            [(places[edge.step], edge.exchange) for edge in step.inputs],
            step.stage,
            step.types,
            step.queries,
            step.birth,
            keys[step.id],
        )
        for step in plan.steps
    ]
    conditions = {name: condition.fingerprint for name, condition in plan.source_predicates.items()}
    shared = {places[number]: step.queries for number, step in plan.shared.items()}
    moved = {places[number]: key for number, key in (plan.keys or {}).items()}
    channels = {(places[one.step], one.exchange): stages for one, stages in plan.receivers.items()}
    return [
        steps,
        {name: query.root.fingerprint for name, query in plan.queries.items()},
        plan.sources,
        plan.statics,
        plan.periods,
        conditions,
        shared,
        moved,
        channels,
        plan.stages,
        plan.births,
        [len(part.steps) for part in plan.pieces],
    ]


def check(server: InlineServer) -> Counter[str]:
    """The run has the plan and the records that its epoch says; return how much of it is shared and referred to."""
    run, folder = server.run, Folder(server.folder / "penstock")
    epoch = read_epoch(folder, run.epoch.number)
    assert epoch == run.epoch
    anew = plan_of(start_request(replace(run.work, cache=PlanningCache()), folder), epoch)
    found, expected = described(run.job.plan), described(anew)
    for mine, other in zip(found, expected, strict=True):
        assert mine == other
    assert [*run.job.plan.by_id.items()] == [(step.id, step) for step in run.job.plan.steps]
    assert run.sinks.keys() == epoch.queries.keys() == run.job.plan.queries.keys()
    assert run.job.intake.peers == peers_of(query.root for query in run.job.plan.queries.values())
    return Counter(shared=len(run.job.plan.shared), merges=len(epoch.merges), near=len(epoch.bases) == 2)


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(4))
def test_a_plan_after_any_history_is_the_one_made_anew(seed: int, tmp_path: Path, without_spark: None) -> None:
    draw = random.Random(seed)
    server = InlineServer(tmp_path)
    server.post(STREAMS)
    states: dict[str, bool] = {}
    counts: Counter[str] = Counter()
    at, number = 0, 0

    def text() -> str:
        return draw.choice(TEXTS).format(n=draw.choice((3, 5, 9)))

    def creation() -> str:
        nonlocal number
        number += 1
        states[f"q{number}"] = True
        start = draw.choice(("", "", "START WARM "))
        return f"CREATE QUERY q{number} INTO RESULTS () {start}AS {text()};"

    def commands() -> str:
        name = draw.choice(sorted(states)) if states else ""
        kind = draw.choice(("create", "create", "many", "drop", "drop", "as", "pause", "swap", "both"))
        if not states or kind == "create":
            return creation()
        if kind == "many":
            return "BEGIN;" + "".join(creation() for _ in range(draw.randint(2, 30))) + "COMMIT;"
        if kind in ("drop", "both"):
            del states[name]
            return f"DROP QUERY {name};" if kind == "drop" else f"BEGIN;DROP QUERY {name};{creation()}COMMIT;"
        if kind == "pause":
            states[name] = not states[name]
            return f"ALTER QUERY {name} {'PAUSE' if not states[name] else 'RESUME START NOW'};"
        running = sorted(name for name, runs in states.items() if runs)
        if kind == "as" and name in running:
            return f"ALTER QUERY {name} AS {text()} START NOW;"
        if kind == "swap" and len(running) > 1:
            return "ALTER QUERY {} SWAP WITH {};".format(*draw.sample(running, 2))
        return creation()

    for _ in range(30):
        before = dict(states)
        script = commands()
        try:
            server.post(script)
        except PenstockError as error:
            # What this test does not know of the queries: results whose columns differ, contents that are not kept.
            counts[error.code] += 1
            states.clear()
            states.update(before)
        counts.update(check(server))
        if draw.random() < 0.6:
            server.insert(draw.choice(("S", "T")), [(at + i, draw.randrange(5)) for i in range(3)])
            at += draw.choice((1, 4))
        if draw.random() < 0.1:
            server.restart()
            counts["restarts"] += 1
    check(server)
    assert counts["shared"] and counts["merges"], counts
    refused = {code: count for code, count in counts.items() if code.startswith("P")}
    assert sum(refused.values()) < 10, refused
    server.close()
