"""The sums over operators are those of all reports, whatever part of the sizes each report has."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.execution.meter import StateGauge, SynopsisSize
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.plan_parts import changed_steps
from penstock.physical.planning.planner import Generation, plan_parts, plan_queries
from penstock.physical.planning.shared_parts import SharedParts, shared_plan
from penstock.physical.planning.sharing import MOVED
from penstock.runtime.local.runtime import LocalJob
from penstock.runtime.local.schedule import ScheduledRows
from penstock.runtime.monitoring.operator_sums import OperatorSums
from penstock.runtime.monitoring.recorder import Recorder, Totals
from penstock.runtime.monitoring.reports import ShardReport

STREAM = "CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"


def plan_of(*texts: str) -> Plan:
    script = STREAM + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    return plan_queries(bind_script(script).queries)


SUMS = tuple(f"SELECT k, SUM(v) AS s FROM S [RANGE {i + 1} SECONDS] GROUP BY k" for i in range(4))


def test_sums_of_reports_that_have_what_changed() -> None:
    plan, draw = plan_of(*SUMS), random.Random(1516)
    sums = OperatorSums(plan)
    sizes: dict[tuple[int, int], int] = {}
    seconds: dict[int, float] = {}
    steps = {step.id: step for step in plan.steps}
    for _ in range(30):
        shard = draw.randrange(3)
        chosen = draw.sample(sorted(steps), draw.randrange(4))
        state = {n: draw.randrange(1_000) for n in chosen}
        sizes |= {(shard, n): size for n, size in state.items()}
        for n in chosen:
            seconds[n] = seconds.get(n, 0.0) + 0.5
        kind = "KeyedTable"
        parts = {
            n: {"a": SynopsisSize(kind, 1, size - size // 3), "b": SynopsisSize(kind, 0, size // 3)}
            for n, size in state.items()
        }
        # A number that the plan does not have is of a plan before.
        sums.add(ShardReport(1, shard, {}, dict.fromkeys(chosen, 0.5) | {-1: 1.0}, parts | {-1: parts.get(1, {})}))
        found = {operator.name: operator for operator in sums.operators()}
        assert {n: found[f"{n} {steps[n].spec.title}"].seconds for n in seconds} == seconds
        assert sums.state == (len(sizes), sum(sizes.values()))
        assert [o.state_bytes for o in found.values()] == [
            sum(size for (_, m), size in sizes.items() if m == n) for n in steps if n in seconds
        ]
        for name in plan.queries:
            of_query = sum(size for (_, n), size in sizes.items() if name in steps[n].queries)
            assert sums.state_of(name)[1] == of_query
        touched = {operator.name for operator in sums.take_touched()}
        assert touched == {f"{n} {steps[n].spec.title}" for n in chosen}


def test_steps_that_a_plan_keeps_keep_their_sums() -> None:
    plan = plan_of(*SUMS)
    sums = OperatorSums(plan)
    size = {"groups": SynopsisSize("KeyedTable", 2, 100)}
    sums.add(ShardReport(1, 0, {}, {}, {step.id: size for step in plan.steps}))
    gone = {step.id for step in plan.steps if step.queries == {"q3"}}
    assert gone, "a query has steps of its own"
    without = replace(
        plan,
        steps=tuple(replace(s, queries=s.queries - {"q3"}) for s in plan.steps if s.id not in gone),
        queries={name: query for name, query in plan.queries.items() if name != "q3"},
    )
    names = sums.changed(without, changed_steps(plan, without))
    assert sorted(names) == sorted(f"{n} {plan.by_id[n].spec.title}" for n in gone)
    left = len(plan.steps) - len(gone)
    assert sums.state == (2 * left, 100 * left) and sums.state_of("q3") == (0, 0)
    assert len(sums.operators()) == left
    assert all("q3" not in operator.queries for operator in sums.operators())
    assert sums.state_of("q0")[1] == 100 * sum("q0" in step.queries for step in without.steps)


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_a_plan_that_changes(seed: int) -> None:
    """They are those of the steps that have been there ever since, whatever comes and goes and is shared with others;
    and the figures of a recorder are those of the steps that are there."""
    draw = random.Random(seed)
    texts = [*SUMS, *(f"SELECT k, v FROM S [RANGE 9 SECONDS] WHERE v > {n % 2}" for n in range(4))]
    script = STREAM + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    parts = plan_parts([Generation(n, [q], Statistics()) for n, q in enumerate(bind_script(script).queries)])
    # Sums share a log, those with an even number in this order or the other.
    logs = [key for part in parts for key in part.keeping_keys]
    numbers = SharedParts()
    plan = shared_plan(parts[:1], {}, numbers)
    recorder = Recorder(plan, plan.sources)
    held: dict[int, dict[int, int]] = {}
    for _ in range(40):
        chosen = sorted(draw.sample(range(len(parts)), draw.randint(1, len(parts))))
        merges = dict.fromkeys(logs[:2], logs[0]) | ({MOVED + logs[0]: logs[1]} if draw.random() < 0.5 else {})
        before, plan = plan, shared_plan([parts[n] for n in chosen], merges, numbers)
        names = recorder.changed(plan, plan.sources)
        assert {int(name.split(" ")[0]) for name in names} == before.by_id.keys() - plan.by_id.keys()
        keys = step_keys(plan)
        differ = changed_steps(before, plan)
        same = {n for n in before.by_id.keys() & plan.by_id.keys() if before.by_id[n].queries == plan.by_id[n].queries}
        assert differ >= (before.by_id.keys() | plan.by_id.keys()) - {
            n for n in same if step_keys(before)[n] == keys[n]
        }
        held = {step: sizes for step, sizes in held.items() if step in plan.by_id}
        shard, some = draw.randrange(2), draw.sample(sorted(plan.by_id), 3)
        sizes = {n: draw.randrange(100) for n in some}
        for n, size in sizes.items():
            held.setdefault(n, {})[shard] = size
        state = {n: {"a": SynopsisSize("KeyedTable", 1, size)} for n, size in sizes.items()}
        recorder.report(ShardReport(1, shard, {}, dict.fromkeys(some, 0.5), state))
        run = recorder.metrics(Totals())
        assert run.state_bytes == sum(sum(sizes.values()) for sizes in held.values())
        assert {o.name: (o.state_bytes, set(o.queries)) for o in run.operators} == {
            f"{n} {plan.by_id[n].spec.title}": (sum(sizes.values()), plan.by_id[n].queries) for n, sizes in held.items()
        }
        for name, query in run.queries.items():
            assert query.state_bytes == sum(
                sum(sizes.values()) for n, sizes in held.items() if name in plan.by_id[n].queries
            )
        figures = recorder.figures()
        assert {key for key, _ in figures.work} | {key for key, *_ in figures.synopses} <= set(keys.values())
        assert {keys[n] for n in some} <= {key for key, *_ in figures.synopses}


@pytest.mark.parametrize("every", [1, 3, 1_000])
def test_a_recorder_of_parts_of_sizes_has_the_sizes_of_the_executors(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run rounds of which most concern one stream of two; compare with what the operators hold."""
    monkeypatch.setattr("penstock.physical.execution.executor._ALL_MEASURED", every)
    monkeypatch.setattr(StateGauge, "_SHARE", 0)
    script = (
        STREAM
        + STREAM.replace(" S ", " T ")
        + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(SUMS))
        + "CREATE QUERY other AS SELECT DISTINCT k FROM T [RANGE 3 SECONDS];"
    )
    plan = plan_queries(bind_script(script).queries)
    job = LocalJob(plan, {}, 2)
    recorder = Recorder(plan, plan.sources)
    seen = {name: SourceProgress() for name in ("S", "T")}
    reported: list[int] = []
    for second in range(12):
        source = "T" if second % 3 else "S"
        columns = {"ts": [second] * 3, "k": [second, 1, 2], "v": [1, 2, second]}
        rows = pa.record_batch({name: pa.array(values, pa.int32()) for name, values in columns.items()})
        stamped = job.stamp(ScheduledRows(source, rows), seen[source], None)
        seen[source] = seen[source].merge(stamped.progress)
        job.round({source: [stamped.elements]}, {source: seen[source]})
        for report in job.reports():
            recorder.report(report)
            if isinstance(report, ShardReport):
                reported.append(len(report.state or ()))
        executors = [executor for row in job.stages for executor in row]
        held = dict.fromkeys(recorder._sums._by_step, 0)
        for executor in executors:
            for number, operator in executor._operators.items():
                nbytes = sum(synopsis.nbytes for synopsis in operator.synopses().values())
                held[number] = held.get(number, 0) + nbytes
        run = recorder.metrics(Totals())
        assert run.state_bytes == sum(held.values())
        assert {int(o.name.split()[0]): o.state_bytes for o in run.operators if o.state_bytes} == {
            n: size for n, size in held.items() if size
        }
    assert every == 1 or min(reported[4:]) < max(reported), "a report has what changed"


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (4, 0), (0, 5)])
def test_a_step_that_reads_two_sources_counts_the_rows_of_both(sizes: tuple[int, int]) -> None:
    """A union before the exchange runs once for each source of a round; its rows, and those of the steps behind it, are
    those of all."""
    script = (
        STREAM
        + STREAM.replace(" S ", " T ")
        + "CREATE QUERY q AS SELECT x.v FROM (SELECT v FROM S [RANGE 3 SECONDS] UNION ALL"
        " SELECT v FROM T [RANGE 5 SECONDS]) x WHERE x.v > 0;"
    )
    plan = plan_queries(bind_script(script).queries)
    (union,) = (step for step in plan.steps if len(step.inputs) == 2)
    assert union.stage == 0
    job, recorder = LocalJob(plan, {}, 2), Recorder(plan, plan.sources)
    stamped, progress = {}, {}
    for source, size in zip("ST", sizes, strict=True):
        columns = [pa.array([1] * size, pa.int32()) for _ in range(3)]
        rows = pa.record_batch(columns, ["ts", "k", "v"])
        some = job.stamp(ScheduledRows(source, rows), SourceProgress(), None)
        stamped[source], progress[source] = [some.elements], some.progress
    job.round(stamped, progress)
    for report in job.reports():
        recorder.report(report)
    recorder.batch(0.0, 0.0, 1, Totals())
    work, keys = recorder.figures().work, step_keys(plan)
    behind = [step for step in plan.steps if not step.stage and step.id >= union.id]
    assert len(behind) > 1
    for step in behind:
        (found,) = (one for (key, _), one in work.items() if key == keys[step.id])
        assert (found.rows_in, found.rows_out) == (sum(sizes), sum(sizes)), step
