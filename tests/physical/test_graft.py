"""Grafting: an executor that goes on with another version of its plan is one that restored its state into a new one.

Random queries come and go at random rounds. Three jobs run beside each other: one is grafted, one is rebuilt from its
snapshot in every round, and of each group of queries that began together one goes on undisturbed.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution import step_graph
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import SourceProgress, timed_sources
from penstock.physical.plan import identity
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, grains_of, part_of, plan_generations, plan_queries
from penstock.runtime.local.runtime import LocalJob, compute_statics, static_sources
from penstock.runtime.local.schedule import rounds
from penstock.testing.cases import case_inputs, made_up, parse_case
from penstock.testing.random.worlds import FLAVOURS, Flavour, random_case, seeded_choices
from penstock.testing.thresholds import lowered, small

CASES = 1
MANY_CASES = 100
NAMES = ("q0", "q1", "q2", "q3")


class History:
    """The queries of a script that run at a time, each with its birth, and the plan of them."""

    def __init__(self, queries: Sequence[Query], draw: random.Random, strategy: Strategy) -> None:
        self._queries = {q.name: q for q in queries}
        self._draw = draw
        self._strategy = strategy
        self._statistics = made_up(queries, draw.randrange(1000)) if draw.random() < 0.5 else Statistics()
        self._grains: dict[int, dict[str, int]] = {}
        self.births: dict[str, int] = {}
        self.version = 0

    def change(self) -> None:
        """Let a query begin, end, or begin anew."""
        self.version += 1
        for name in self._draw.sample(sorted(self._queries), self._draw.randint(1, 2)):
            if self.births.pop(name, None) is None or self._draw.random() < 0.3:
                self.births[name] = self.version

    def plan(self, only: int | None = None) -> Plan:
        """The plan of all queries, or of those of one birth."""
        births = sorted(set(self.births.values())) if only is None else [only]
        return plan_generations([self._generation(b) for b in births], self._strategy)

    def _generation(self, birth: int) -> Generation:
        planning = self._strategy.planning(self._statistics)
        chosen = [
            replace(self._queries[name], root=optimize(self._queries[name].root, planning=planning))
            for name, b in sorted(self.births.items())
            if b == birth
        ]
        if birth not in self._grains:
            self._grains[birth] = grains_of(chosen, self._statistics, self._strategy)
        return Generation(birth, chosen, self._statistics, self._grains[birth])


def restored(job: LocalJob, plan: Plan, tables: Mapping[str, Elements]) -> LocalJob:
    """A new job of `plan` with the state of `job`, as a worker restores it from files."""
    fresh = LocalJob(plan, tables, job.shards, job.drain)
    for old_row, row in zip(job.stages, fresh.stages, strict=False):
        for old, new in zip(old_row, row, strict=True):
            new.restore_marks(old.marks(), plan.sources)
            kept = old.synopses()
            for name, synopsis in new.synopses().items():
                if name in kept:
                    synopsis.restore(*kept[name].snapshot())
    return fresh


@dataclass(frozen=True)
class Input:
    """What a round brings: the elements of each source with all its columns, and the progress of time."""

    elements: dict[str, list[Elements]]
    progress: dict[str, SourceProgress]


def stamped_rounds(sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], seed: int) -> Iterator[Input]:
    seen = {name: SourceProgress() for name in sources}
    for due in rounds(sources, inputs, seed, None):
        elements: dict[str, list[Elements]] = {name: [] for name in sources}
        # The first timestamp of a source is told in the round in which it comes: a later query begins later.
        told = {name: replace(progress, first=None) for name, progress in seen.items()}
        for piece in due.pieces:
            source = sources[piece.source]
            columns = tuple(range(len(source.columns)))
            taken = stamp(source, piece.batch, read_columns(source, columns), columns, seen[piece.source])
            elements[piece.source].append(taken.elements)
            told[piece.source] = told[piece.source].merge(taken.progress)
        for name in due.ended:
            told[name] = replace(told[name], ended=True)
        seen = {name: progress.merge(told[name]) for name, progress in seen.items()}
        yield Input(elements, told)


def run_round(job: LocalJob, given: Input) -> dict[str, str]:
    """The rows that are answered in one round, as text, in which NaN is NaN and -0.0 is not 0.0. They have no order: a
    table that was restored may have another one."""
    elements: dict[str, list[Elements]] = {}
    for name, batches in given.elements.items():
        columns = job.ingests[name].columns if name in job.ingests else ()
        chosen = [one.with_columns([one.columns[c] for c in columns]) for one in batches]
        # A source that is not read still counts: rows go to shards by the number of the source.
        elements[name] = chosen if name in job.ingests else []
    answers = job.round(elements, {name: given.progress[name] for name in job.plan.sources})
    queries = job.plan.queries
    return {
        name: str(sorted(map(repr, answer_table(queries[name], parts).to_pylist())))
        for name, parts in answers.items()
        if parts
    }


def held(executor: StageExecutor) -> dict[str, int]:
    """The rows of every synopsis when its state is written, as a batch does. Equal ones may lie in other chunks: a
    table may write an unchanged row again."""
    for synopsis in executor.synopses().values():
        synopsis.snapshot()
    return {name: synopsis.rows for name, synopsis in executor.synopses().items()}


def check(queries: Sequence[Query], inputs: Mapping[str, pa.Table], seed: int) -> None:
    """Run a random history of `queries`."""
    draw = random.Random(seed)
    history = History(queries, draw, draw.choice((Strategy.PATTERN, Strategy.PATTERN, *Strategy)))
    history.births = {queries[0].name: 0}
    shards = draw.randint(1, 3)

    def job(plan: Plan) -> LocalJob:
        return LocalJob(plan, tables(plan), shards)

    def tables(plan: Plan) -> dict[str, Elements]:
        return compute_statics(plan, {n: keyed(s, inputs[n]) for n, s in static_sources(plan).items()})

    sources = {name: source for query in queries for name, source in timed_sources(query.root).items()}
    plan = history.plan()
    grafted, rebuilt, alone = job(plan), job(plan), {0: job(plan)}
    for given in stamped_rounds(sources, inputs, draw.randrange(1000)):
        if draw.random() < 0.5:
            history.change()
            plan = history.plan()
            grafted.graft(plan, tables(plan), plan.sources)
            alone |= {birth: job(history.plan(birth)) for birth in set(history.births.values()) - alone.keys()}
        rebuilt = restored(rebuilt, plan, tables(plan))
        answers = run_round(grafted, given)
        assert answers == run_round(rebuilt, given)
        for one, two in zip(chain(*grafted.stages), chain(*rebuilt.stages), strict=True):
            assert one.marks() == two.marks()
            assert held(one) == held(two)
        for birth, undisturbed in alone.items():
            expected = run_round(undisturbed, given)
            for name in (name for name, b in history.births.items() if b == birth):
                assert answers.get(name) == expected.get(name), f"{name} of {birth}"


def keyed(source: Source, table: pa.Table) -> pa.Table:
    return keyed_rows(source, table)[0]


def explore(flavour: Flavour, count: int, first: int) -> None:
    for seed in range(first, first + count):
        case = random_case(seeded_choices(seed), flavour, NAMES)
        bound = bind_script("\n".join(case.statements))
        inputs = case_inputs(parse_case(case.render()), bound)
        try:
            with lowered(small(seed) if seed % 2 else {}):
                check(bound.queries, inputs, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}\n{case.render()}") from error


FLAVOURS_WITHOUT_CLOCK = [f for f in FLAVOURS if not f.clock]


@pytest.mark.parametrize("flavour", FLAVOURS_WITHOUT_CLOCK, ids=lambda f: f.name)
def test_a_grafted_executor_is_a_restored_one(flavour: Flavour, case_count: int | None, case_seed: int | None) -> None:
    explore(flavour, case_count or CASES, 10_000 * (case_seed or 0))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flavour", FLAVOURS_WITHOUT_CLOCK, ids=lambda f: f.name)
def test_many_more_histories(flavour: Flavour, case_seed: int | None) -> None:
    explore(flavour, MANY_CASES, 10_000 * (case_seed or dt.date.today().toordinal()))


SUMS = """
CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY short AS RSTREAM(SELECT k, SUM(v) AS s FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k);
CREATE QUERY long AS RSTREAM(SELECT k, SUM(v) AS s FROM S [RANGE 40 SECONDS SLIDE 2 SECONDS] GROUP BY k);
"""


def test_a_store_of_panes_keeps_only_what_the_remaining_readers_read() -> None:
    queries = bind_script(SUMS).queries
    plan = plan_queries(queries)
    assert sum(step.spec.reads for step in plan.steps) == len(queries), "both windows read one store"
    (job, rows) = LocalJob(plan, {}), {"S": pa.table({"ts": range(100), "k": [1] * 100, "v": range(100)})}
    rows = {"S": rows["S"].cast(pa.schema([(f.name, f.type) for f in plan.sources["S"].columns]))}
    given = list(stamped_rounds(plan.sources, rows, 3))
    kept: list[int] = []
    for number, one in enumerate(given):
        if number == len(given) // 2:
            job.graft(part_of(plan, ["short"]), {}, plan.sources)
        run_round(job, one)
        kept.append(max(synopsis.rows for synopsis in job.stages[0][0].synopses().values()))
    assert kept[-1] < max(kept), kept


def test_an_operator_that_cannot_be_made_leaves_the_executor_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = bind_script(SUMS).queries
    plan = plan_generations([Generation(0, queries[:1], Statistics())])
    both = plan_generations([Generation(0, queries[:1], Statistics()), Generation(1, queries[1:], Statistics())])
    rows = {"S": pa.table({"ts": [1, 5, 9], "k": [1, 1, 1], "v": [1, 2, 3]})}
    rows = {"S": rows["S"].cast(pa.schema([(f.name, f.type) for f in plan.sources["S"].columns]))}
    job, other = LocalJob(plan, {}), LocalJob(plan, {})

    def fail(*args: object) -> None:
        raise ValueError("no such function")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="no such function"):
        patch.setattr(step_graph, "make_operator", fail)
        job.graft(both, {}, plan.sources)
    for given in stamped_rounds(plan.sources, rows, 1):
        assert run_round(job, given) == run_round(other, given)


def test_the_keys_of_a_plan_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shard of every stage wants them, in every version of the plan."""
    declared = "CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts;"
    (query,) = bind_script(f"{declared} CREATE QUERY q AS SELECT k, SUM(v) AS s FROM S GROUP BY k;").queries
    digests: list[str] = []
    digest = identity._digest
    monkeypatch.setattr(identity, "_digest", lambda text: digests.append(text) or digest(text))
    plan = plan_queries([query])
    job = LocalJob(plan, {}, 3)
    job.reload()
    assert len(digests) == len(plan.steps)
    assert identity.step_keys(plan) == identity.step_keys(replace(plan))
    assert len(digests) == 2 * len(plan.steps)
