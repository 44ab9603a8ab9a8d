"""The live engine keeps the law: a random life of a system, each result of which is what the oracle says over its life.

Queries are registered, dropped, paused, resumed, replaced and exchanged while rows come in; now and then the engine
goes on from a snapshot. A failure prints the steps and the case.
"""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from live_machine import EDITS, System, random_life

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.meter import StateGauge
from penstock.physical.planning.planner import Generation
from penstock.runtime.live import LiveEngine
from penstock.runtime.live import engine as engine_module
from penstock.testing.compare import events_of, first_difference
from penstock.testing.live import Episode, run_live


def test_every_result_is_what_the_law_says(case_count: int | None) -> None:
    run_state_machine_as_test(
        System, settings=settings(max_examples=case_count or 12, stateful_step_count=25, derandomize=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_result_is_what_the_law_says_in_many_more_lives(case_count: int | None) -> None:
    run_state_machine_as_test(System, settings=settings(max_examples=case_count or 2000, stateful_step_count=40))


LIVES = 45
MANY_LIVES = 3000
EDITED_LIVES = 15


def test_random_lives(case_count: int | None, case_seed: int | None) -> None:
    emitted = 0
    for seed in range(case_count or LIVES):
        system = random_life(seed + 100_000 * (case_seed or 0))
        emitted += sum(table.num_rows for life in system.lives.values() for table in life.tables)
    assert emitted > 50


def test_random_lives_whose_plans_change(case_count: int | None, case_seed: int | None) -> None:
    edited: Counter[str] = Counter()
    for seed in range(case_count or EDITED_LIVES):
        edited += random_life(seed + 100_000 * (case_seed or 0), commands=EDITS).edited
    assert edited["taken over"] > 3, edited


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_random_lives_whose_plans_change(case_seed: int | None) -> None:
    for seed in range(MANY_LIVES):
        random_life(seed + 100_000 * (case_seed or dt.date.today().toordinal()), commands=EDITS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_random_lives(case_seed: int | None) -> None:
    for seed in range(MANY_LIVES):
        random_life(seed + 100_000 * (case_seed or dt.date.today().toordinal()))


SCRIPT = """
CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY short AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];
CREATE QUERY long AS SELECT SUM(v) AS s FROM S [RANGE 9 SECONDS];
CREATE QUERY pairs AS SELECT ISTREAM(a.v) FROM S [RANGE 3 SECONDS] a, S [RANGE 3 SECONDS] b WHERE a.v = b.v + 1;
"""


def engine_after(ticks: range, retain: int | None) -> tuple[LiveEngine, dict[str, Query]]:
    """An engine that has read one row for each tick."""
    queries = {query.name: query for query in bind_script(SCRIPT).queries}
    (source,) = {leaf.source for leaf in leaves(queries["short"].root) if isinstance(leaf, Scan)}
    engine = LiveEngine()
    engine.declare(source, retain)
    insert(engine, ticks)
    return engine, queries


def insert(engine: LiveEngine, ticks: range) -> None:
    for tick in ticks:
        columns = [pa.array([tick], pa.int32()), pa.array([tick], pa.int32())]
        engine.insert("S", pa.RecordBatch.from_arrays(columns, names=["ts", "v"]))
        engine.round()


def test_what_was_too_early_to_be_measured_is_measured_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> int:
        return sum(size.rows for size in engine.figures().run.synopses.values())

    # A first look that took a minute, as on a machine that is busy, must not hide for good what came behind it.
    now = [0.0]
    monkeypatch.setattr(StateGauge.__init__, "__defaults__", (lambda: now[0],))
    engine, queries = engine_after(range(3), retain=4)
    engine.register(queries["long"])
    gauges = [executor._gauge for stage in engine._job.stages for executor in stage]
    for gauge in gauges:
        gauge._next = now[0] + 60
    insert(engine, range(3, 6))
    early = rows()
    now[0] += 61
    measured = rows()
    looks = [gauge.looks for gauge in gauges]
    assert early < measured and rows() == measured and looks == [gauge.looks for gauge in gauges]


def test_a_past_that_is_not_kept_is_refused_and_changes_nothing() -> None:
    engine, queries = engine_after(range(20), retain=4)
    warm = Start(StartMode.WARM)
    assert engine.register(queries["short"], warm).to_pylist() == [{"ts": 18, "op": "+", "s": 16 + 17 + 18}]
    with pytest.raises(PenstockError, match="query long: START WARM needs elements of S that are no longer kept"):
        engine.register(queries["long"], warm)
    with pytest.raises(PenstockError, match="P0703"):
        engine.replace("short", queries["long"], warm)
    assert engine.register(queries["long"]).num_rows == 0
    columns = [pa.array([20], pa.int32()), pa.array([20], pa.int32())]
    engine.insert("S", pa.RecordBatch.from_arrays(columns, names=["ts", "v"]))
    changes = [{"ts": 19, "op": op, "s": s} for op, s in (("-", 16 + 17 + 18), ("+", 17 + 18 + 19))]
    assert engine.round()["short"].to_pylist() == changes


def test_a_query_waits_for_what_is_not_kept() -> None:
    engine, queries = engine_after(range(20), retain=4)
    wait = Start(StartMode.WARM, wait=True)
    assert engine.register(queries["short"], wait).to_pylist() == [{"ts": 18, "op": "+", "s": 16 + 17 + 18}]
    assert engine.register(queries["long"], wait).num_rows == 0
    # Elements up to 14 are gone.
    assert engine.first_ahead("long") == 14 + 9 and engine.first_ahead("short") is None
    engine.swap("short", "long")
    engine = LiveEngine.restored(pickle.loads(pickle.dumps(engine.snapshot())))
    insert(engine, range(20, 24))
    assert engine.first_ahead("short") == 23 and engine.first_ahead("long") is None
    columns = [pa.array([24], pa.int32()), pa.array([24], pa.int32())]
    engine.insert("S", pa.RecordBatch.from_arrays(columns, names=["ts", "v"]))
    changes = [{"ts": 23, "op": op, "s": s} for op, s in (("-", 16 + 17 + 18), ("+", sum(range(15, 24))))]
    assert engine.round()["short"].to_pylist() == changes
    text = (
        SCRIPT
        + "CREATE QUERY rows AS SELECT v FROM S {}; CREATE STREAM K (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;"
    )
    for window, message in {
        "[PARTITION BY v ROWS 3]": "would wait for ever: elements of S are gone",
        "[ROWS 6 SLIDE 2 ROWS]": "would wait for ever: elements of S are gone",
        "[ROWS 6]": "START WARM WAIT needs the last 6 rows of S, of which fewer are kept",
    }.items():
        (rows,) = bind_script(text.format(window)).queries[3:]
        with pytest.raises(PenstockError, match=message) as refused:
            engine.register(rows, wait)
        assert refused.value.code == "P0703"


def test_the_last_rows_are_there_when_so_many_are_kept() -> None:
    engine, _ = engine_after(range(20), retain=4)
    # 15 to 19 are kept, and 19 is not final yet.
    for count, tick in {3: 18, 4: 18}.items():
        (rows,) = bind_script(SCRIPT + f"CREATE QUERY r{count} AS SELECT SUM(v) AS s FROM S [ROWS {count}];").queries[
            3:
        ]
        for mode in (Start(StartMode.WARM), Start(StartMode.WARM, wait=True)):
            name = f"r{count}{mode.wait}"
            found = engine.register(replace(rows, name=name), mode).to_pylist()
            assert found == [{"ts": tick, "op": "+", "s": sum(range(tick - count + 1, tick + 1))}]
    (five,) = bind_script(SCRIPT + "CREATE QUERY five AS SELECT SUM(v) AS s FROM S [ROWS 5];").queries[3:]
    with pytest.raises(PenstockError, match="fewer are kept"):
        engine.register(five, Start(StartMode.WARM, wait=True))
    nested = "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(v) FROM S [ROWS 2]) [RANGE 5 SECONDS]"
    (late,) = bind_script(SCRIPT + f"CREATE QUERY late AS {nested};").queries[3:]
    engine.register(late, Start(StartMode.WARM, wait=True))
    first = engine.first_ahead("late")
    assert first is not None and first > 18
    insert(engine, range(20, 30))
    assert engine.first_ahead("late") is None


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_registrations_leave_nothing_behind(count: int) -> None:
    engine, queries = engine_after(range(20), retain=4)
    sizes = []
    for number in range(count // len(queries)):
        for query in queries.values():
            engine.register(query)
        insert(engine, range(20 + number, 21 + number))
        for name in queries:
            engine.drop(name)
        sizes.append(len(pickle.dumps(engine.snapshot())))
    assert max(sizes[10:]) < min(sizes[10:]) + 1000


def test_a_registration_plans_its_own_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, queries = engine_after(range(5), retain=None)
    planned: list[str] = []
    plan_part = engine_module.plan_part

    def planning(generation: Generation, *rest: Any) -> Any:
        planned.extend(query.name for query in generation.queries)
        return plan_part(generation, *rest)

    monkeypatch.setattr(engine_module, "plan_part", planning)
    for number in range(12):
        before = {id(part) for part in engine._job.plan.pieces}
        engine.register(replace(queries["short"], name=f"q{number}"), Start(StartMode.WARM))
        assert len(planned) == 1 and len(engine._job.plan.queries) == number + 1
        # The parts of the others are the same objects: a graft does not look into them.
        assert len({id(part) for part in engine._job.plan.pieces} - before) == 1
        planned.clear()
    engine.drop("q3")
    engine.pause("q4")
    assert not planned
    engine.resume("q4")
    assert len(planned) == 1
    restored = LiveEngine.restored(pickle.loads(pickle.dumps(engine.snapshot())))
    assert len(planned) == 12
    for running in (engine, restored):
        insert(running, range(5, 6))
    assert restored.source_heartbeats() == engine.source_heartbeats()


COUNTED = """
CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY few AS SELECT k, v FROM S [ROWS 5 SLIDE 3 ROWS];
CREATE QUERY parts AS SELECT k, SUM(v) AS s FROM S [PARTITION BY k ROWS 3 SLIDE 2 ROWS] GROUP BY k;
CREATE QUERY pairs AS
  SELECT ISTREAM(a.v, b.v AS w) FROM S [ROWS 3 SLIDE 2 ROWS] a, S [ROWS 4 SLIDE 3 ROWS] b WHERE a.k = b.k;
"""


@pytest.mark.parametrize("shards", [1, 3])
def test_a_warm_query_goes_on_counting_rows(shards: int) -> None:
    queries = bind_script(COUNTED).queries
    source = next(leaf.source for leaf in leaves(queries[0].root) if isinstance(leaf, Scan))
    for seed in range(8):
        draw = random.Random(seed)
        ticks = sorted(draw.randint(0, 40) for _ in range(60))
        rows = [ticks, [draw.randint(0, 2) for _ in ticks], [draw.randint(0, 9) for _ in ticks]]
        table = pa.table([pa.array(column, pa.int32()) for column in rows], names=["ts", "k", "v"])
        engine = LiveEngine(shards)
        engine.declare(source)
        read = 0
        found: dict[str, list[pa.Table]] = {query.name: [] for query in queries}
        began: dict[str, int] = {}
        while read < len(ticks):
            part = table.slice(read, draw.randint(1, 9))
            engine.insert("S", part.combine_chunks().to_batches()[0])
            read += part.num_rows
            for name, answers in engine.round().items():
                found[name].append(answers)
            for query in queries:
                if query.name not in began and draw.random() < 0.3:
                    began[query.name] = read
                    found[query.name].append(engine.register(query, Start(StartMode.WARM)))
        for query in (query for query in queries if query.name in began):
            expected = run_live([Episode(query, Start(StartMode.WARM), {"S": began[query.name]})], {"S": table})
            events = [event for answers in found[query.name] for event in events_of(query, answers)]
            assert first_difference(expected, events) is None, f"seed {seed}, {query.name}"
