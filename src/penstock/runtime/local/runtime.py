"""The local runtime: drives the plan and executor of a Spark run in this process.

For tests, examples and tiny jobs. Input can be cut into batches at random and the stages into any number of shards;
answers depend on neither, which the property tests check.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import OnError, Source
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.algebra.properties.statistics import Statistics, observe
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import as_error
from penstock.expressions.values.shown import shown_row
from penstock.physical.decisions import NO_DECISIONS, Decide, Decisions
from penstock.physical.elements import Elements, empty, forever
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.exchange import ExchangeRouter, StageResult
from penstock.physical.execution.executor import IngestExecutor, StageExecutor
from penstock.physical.execution.flow_counts import FlowCounts, TappedPort, tapped_ports
from penstock.physical.execution.ingest import (
    EMPTY_PERIOD,
    NO_BEGIN,
    NULL_KEY,
    PUNCTUATED,
    TOO_FAR_AHEAD,
    StampedRows,
    after_record,
    read_columns,
    shown_record,
    spoken_after,
    stamp,
)
from penstock.physical.execution.meter import Meter
from penstock.physical.execution.portions import HeldAnswers, earliest, with_portions
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import SourceProgress, timed_sources
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.execution.wall_clock import WallClock, advance, begin, peers_of, uses_wall_clock, wall_clock
from penstock.physical.operators import Rejection, Tables
from penstock.physical.operators.checks.first_checks import without_repeats
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.decisions.deciders import Deciders, DecidingOptions
from penstock.runtime.decisions.registry import REGISTRY
from penstock.runtime.local.schedule import Arrivals, Round, ScheduledRows, rounds, rounds_by_clock
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.recorder import Recorder, Totals
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.monitoring.stopwatch import Stopwatch
from penstock.runtime.monitoring.time_jumps import warn_of_jumps


@dataclass
class LocalResult:
    """The result of a local run.

    Args:
        tables: the whole answer of each query.
        late: number of late elements, by source.
        unusable: number of records without a usable timestamp, operation, key or period, by source.
        rejected: by source and reason, stream elements too far ahead, and updates and static rows that their relation
            could not apply.
        final: the last heartbeat of each query.
    """

    tables: dict[str, pa.Table]
    late: dict[str, int] = field(default_factory=dict)
    unusable: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, Counter[str]] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)


class LocalJob:
    """A plan with all its stages and shards in this process. rejected: updates that their relations could not apply."""

    def __init__(
        self, plan: Plan, tables: Tables, shards: int = 1, drain: bool = False, meter: Meter | None = None
    ) -> None:
        self.plan = plan
        self.tables = tables
        self.shards = shards
        self.drain = drain
        self._meter = meter
        self.rejected: list[Rejection] = []
        #: By query that goes on in later rounds, the instant up to which all shards have emitted its answers.
        self.reached: dict[str, int] = {}
        self.watch = Stopwatch()
        self.ingests = {name: IngestExecutor(plan, name, tables, meter, observes=True) for name in plan.sources}
        self.stages = [[self._stage(s, k) for k in range(shards)] for s in range(1, plan.stages + 1)]

    def _stage(self, stage: int, shard: int) -> StageExecutor:
        return StageExecutor(self.plan, stage, shard, self.shards, self.tables, self.drain, self._meter)

    def stamp(self, rows: ScheduledRows, seen: SourceProgress, now: int | None) -> StampedRows:
        """Return the elements of arriving rows.

        Args:
            seen: progress of the source before them.
            now: arrival time, used where `rows` have no stamps of their own and the source needs one.
        """
        ingest, source = self.ingests[rows.source], self.plan.sources[rows.source]
        named = () if seen.punctuations is None else seen.punctuations.columns
        columns = read_columns(source, ingest.columns, named)
        arrays = [rows.batch.column(c) for c in columns]
        chosen = pa.RecordBatch.from_arrays(arrays, names=[str(c) for c in columns])
        with self.watch.phase("ingest"):
            return stamp(source, chosen, columns, ingest.columns, seen, now if rows.stamps is None else rows.stamps)

    def round(
        self,
        stamped: Mapping[str, Sequence[Elements]],
        progress: Mapping[str, SourceProgress],
        decided: Decisions = NO_DECISIONS,
        failures: StepFailures | None = None,
        spoken: Mapping[str, Sequence[Elements]] = MappingProxyType({}),
    ) -> dict[str, list[Elements]]:
        """Process the elements of one round, by source, with the progress of each source; return the answers that
        became final, but those that `reached` holds back.

        Args:
            decided: what was decided before it.
            failures: as for `StageExecutor.run`.
            spoken: by source, punctuations as `StampedRows.spoken` has them.
        """
        router = ExchangeRouter(self.shards)
        for ingest in self.ingests.values():
            ingest.failures = failures
        for task, (name, batches) in enumerate(stamped.items()):
            for elements in batches:
                with self.watch.phase("ingest"):
                    result = self.ingests[name].run(elements)
                self._post(result, router, task)
        for task, (name, punctuations) in enumerate(spoken.items(), len(stamped)):
            for elements in punctuations if name in self.ingests else ():
                self._post(self.ingests[name].run(None, elements), router, task)
        answers: dict[str, list[Elements]] = {}
        rejected: list[Rejection] = []
        self.reached = {}
        for stage in self.stages:
            before, self.reached = self.reached, dict(self.reached)
            for shard, executor in enumerate(stage):
                inputs = router.take(self.plan, executor.stage, shard)
                with self.watch.phase("operators"):
                    result = executor.run(inputs, progress, failures=failures, decided=decided, reached=before)
                self.reached = earliest(self.reached, result.reached)
                self._post(result, router, shard)
                rejected += result.rejected
                for query, parts in result.answers.items():
                    answers.setdefault(query, []).extend(parts)
        self.rejected += without_repeats(rejected)
        failed = frozenset[str]() if failures is None else failures.errors.keys()
        self.reached = {query: tick for query, tick in self.reached.items() if query not in failed}
        return {query: parts for query, parts in answers.items() if query not in failed}

    def _post(self, result: StageResult, router: ExchangeRouter, sender: int) -> None:
        with self.watch.phase("exchange"):
            router.post(result, sender)

    def heartbeats(self) -> dict[str, int]:
        """Return, by query, the tick up to which its answer is final and emitted."""
        return {**self.stages[0][0].heartbeats(), **self.reached}

    def tap(self, taps: Collection[TappedPort]) -> None:
        """Keep rows of some edges in the next round, for its reports."""
        ports = tapped_ports(self.plan, taps)
        for ingest in self.ingests.values():
            ingest.counts.tapped = ports
        for executor in (executor for row in self.stages for executor in row):
            executor.tapped = ports

    def reports(self) -> Iterator[IngestReport | ShardReport]:
        """Yield the measurements of the last round and the present state sizes."""
        phases = self.watch.seconds
        for task, ingest in enumerate(self.ingests.values()):
            # A union before the exchange runs in several of them, as it does in several tasks on Spark.
            counts, ingest.counts = ingest.counts, FlowCounts()
            yield IngestReport(task, {} if task else phases, counts, ingest.added_figures(), ingest.observed())
        for row in self.stages:
            for shard, executor in enumerate(row):
                sizes = executor.state_sizes()
                figures = executor.figures()
                yield ShardReport(executor.stage, shard, {}, executor.spent, sizes, executor.counts, figures)

    def late_sizes(self) -> Iterator[ShardReport]:
        """Yield the sizes of state that `reports` has left out because it was too early; without them, what is shown
        of a job that reads no further row would stay as it was before the last ones."""
        for row in self.stages:
            for shard, executor in enumerate(row):
                if sizes := executor.late_sizes():
                    yield ShardReport(executor.stage, shard, {}, {}, sizes)

    def graft(self, plan: Plan, tables: Tables, unchanged: Container[str]) -> None:
        """Continue, between two rounds, with another version of the plan; see `StageExecutor.graft`."""
        for executor in (executor for row in self.stages[: plan.stages] for executor in row):
            executor.graft(plan, tables, unchanged)
        self.plan, self.tables = plan, tables
        former = self.ingests
        self.ingests = {
            n: IngestExecutor(plan, n, tables, self._meter, before=former.get(n), observes=True) for n in plan.sources
        }
        new_stages = range(len(self.stages) + 1, plan.stages + 1)
        self.stages = self.stages[: plan.stages] + [[self._stage(s, k) for k in range(self.shards)] for s in new_stages]

    def reload(self) -> None:
        """Rebuild every stage from its own snapshot, as a restart does that writes all state again before its first
        round."""
        for row in self.stages:
            for shard, executor in enumerate(row):
                row[shard] = self._restored(self._restored(executor, shard), shard)

    def _restored(self, executor: StageExecutor, shard: int) -> StageExecutor:
        restored = self._stage(executor.stage, shard)
        restored.restore(executor.snapshot())
        return restored


class LocalRecorder:
    """Collects the metrics of a local run. result: holds the counts of late and malformed elements."""

    def __init__(self, job: LocalJob, result: LocalResult) -> None:
        self._job = job
        self._result = result
        self._recorder = Recorder(job.plan, {**job.plan.sources, **static_sources(job.plan)})
        self._rows: Counter[str] = Counter()
        self._batches = 0
        self._round_start = 0.0

    def begin(self) -> None:
        self._job.watch = Stopwatch()
        self._round_start = time.perf_counter()

    def read(self, source: str, rows: int) -> None:
        self._rows[source] += rows

    def end(
        self, answers: Mapping[str, Sequence[pa.Table]], reports: Sequence[IngestReport | ShardReport]
    ) -> RunMetrics:
        """Record the end of a round. answers: those of all rounds; reports: of it."""
        seconds = time.perf_counter() - self._round_start
        self._batches += 1
        for report in reports:
            self._recorder.report(report)
        first = self._job.stages[0][0]
        result = self._result
        malformed = {n: result.unusable.get(n, 0) + sum(result.rejected.get(n, Counter()).values()) for n in self._rows}
        sources = {n: (rows, result.late.get(n, 0), malformed[n]) for n, rows in self._rows.items()}
        queries = {name: sum(t.num_rows for t in tables) for name, tables in answers.items()}
        totals = Totals(self._batches, sources, queries, first.source_heartbeats(), self._job.heartbeats())
        # All work ran sequentially in this process; the time of the sink is part of the measured phases.
        return self._recorder.batch(seconds, 0.0, 1, totals)


def static_sources(plan: Plan) -> dict[str, Source]:
    """Return the static relations that a plan reads, by name."""
    return {name: source for sub in plan.statics.values() for name, source in sub.sources.items()}


def compute_statics(
    plan: Plan, relations: Mapping[str, pa.Table], meters: Mapping[str, Meter] | None = None
) -> dict[str, Elements]:
    """Return the static relations of a plan as elements.

    Args:
        relations: the declared relations, with all their columns.
        meters: by table, records the work of the steps.
    """
    return {name: _compute_static(sub, relations, (meters or {}).get(name)) for name, sub in plan.statics.items()}


def _compute_static(plan: Plan, relations: Mapping[str, pa.Table], meter: Meter | None) -> Elements:
    job = LocalJob(plan, {}, meter=meter)
    stamped: dict[str, list[Elements]] = {}
    for name, ingest in job.ingests.items():
        batches = relations[name].combine_chunks().to_batches()
        stamped[name] = [forever([b.column(c) for c in ingest.columns], b.num_rows) for b in batches]
    parts = job.round(stamped, {}).get("", [])
    if meter is not None:
        meter.sample()
        for step in plan.steps:
            if (source := step.spec.scanned) is not None:
                scan = meter.of(step.id)
                scan.rows_in = scan.rows_out = relations[source.name].num_rows
    query = plan.queries[""]
    if not parts:
        return empty(query.root.schema.types)
    table = answer_table(query, parts)
    columns = [table.column(i).combine_chunks() for i in range(2, table.num_columns)]
    return forever(columns, table.num_rows)


def run_local(
    queries: Sequence[Query],
    inputs: Mapping[str, pa.Table],
    shards: int = 1,
    drain: bool = False,
    seed: int | None = None,
    batch_rows: int | None = None,
    reload: bool = False,
    optimized: bool = True,
    statistics: Statistics | None = None,
    arrivals: Arrivals | None = None,
    clock: Callable[[], int] = wall_clock,
    strategy: Strategy = Strategy.PATTERN,
    watcher: Callable[[RunMetrics], None] | None = None,
    until: int | None = None,
    deciding: DecidingOptions = DecidingOptions(),  # noqa: B008 - immutable
    decide: Decide | None = None,
    plan: Plan | None = None,
    max_answers: int | None = None,
) -> LocalResult:
    """Answer `queries` over bounded inputs (source name -> table of all declared columns, in arrival order).

    Args:
        seed: cut every input at random places and interleave the sources at random.
        batch_rows: cut every input evenly; without this and `seed`, each input is one batch.
        reload: restore all state from its snapshot between batches.
        optimized: optimize the plans first.
        arrivals: arrival time of each row by the wall clock, in microseconds, for SYSTEM TIME and IDLE TIMEOUT; without
            it `clock` is read once a round.
        statistics: what is known of the sources; None observes the inputs themselves.
        strategy: how operators keep state.
        watcher: called with the metrics after every round.
        until: tick up to which time advances after the end of the inputs.
        deciding: options of the deciders.
        decide: decides before each round in place of the deciders.
        plan: what `plan_local` returned for the same queries and inputs; None plans anew.
        max_answers: about how many bytes of answers a round emits; None for any number.
    """
    if plan is None:
        plan = plan_local(queries, inputs, optimized, statistics, strategy)
    result = LocalResult({}, dict.fromkeys(plan.sources, 0), dict.fromkeys(plan.sources, 0))
    statics = compute_statics(plan, _static_rows(plan, inputs, result))
    job = LocalJob(plan, statics, shards, drain)
    progress = {name: SourceProgress() for name in plan.sources}
    answers: dict[str, list[pa.Table]] = {name: [answer_table(query, [])] for name, query in plan.queries.items()}
    wall: WallClock | None = None
    peers = peers_of(query.root for query in plan.queries.values())
    if arrivals is not None:
        progress = {name: SourceProgress(ended=inputs[name].num_rows == 0) for name in plan.sources}
        schedule = rounds_by_clock(plan.sources, inputs, arrivals, seed)
    else:
        schedule = rounds(plan.sources, inputs, seed, batch_rows)
    recorder, deciders, decided = LocalRecorder(job, result), Deciders(plan, deciding, registry=REGISTRY), NO_DECISIONS
    decide = deciders.decide if decide is None else decide
    warned: set[str] = set()
    held = HeldAnswers()
    for round_ in _until_emitted(schedule, job):
        recorder.begin()
        if uses_wall_clock(plan.sources.values()):
            now = clock() if round_.now is None else round_.now
            reading = {rows.source for rows in round_.pieces if rows.batch.num_rows or rows.record is not None}
            before = wall or begin(plan.sources.values(), now)
            wall = advance(before, now, plan.sources, peers, progress, round_.ended, reading)
            progress = wall.on(progress)
            wall = wall.spoken(reading)
        stamped: dict[str, list[Elements]] = {}
        spoken: dict[str, list[Elements]] = {}
        for rows in round_.pieces:
            name = rows.source
            if rows.record is not None:
                punctuations = _take(plan.sources[name], rows.record, progress, result)
                spoken.setdefault(name, []).extend([] if punctuations is None else [punctuations])
            stamped_rows = job.stamp(rows, progress[name], None if wall is None else wall.now)
            recorder.read(name, rows.batch.num_rows)
            progress[name] = progress[name].merge(stamped_rows.progress)
            warn_of_jumps(
                plan.sources, {name: stamped_rows.jump}, [query.root for query in plan.queries.values()], warned
            )
            result.late[name] += len(stamped_rows.late)
            _count_rejected(result, plan.sources[name], stamped_rows, rows)
            stamped.setdefault(name, []).append(stamped_rows.elements)
            spoken.setdefault(name, []).extend([] if stamped_rows.spoken is None else [stamped_rows.spoken])
        for name in round_.ended:
            beat = progress[name].beat if until is None else max(progress[name].beat, until)
            progress[name] = replace(progress[name], ended=True, beat=beat)
        decided = decide(decided)
        if max_answers is not None:
            decided = with_portions(decided, len(plan.queries), max_answers)
        for query, parts in held.until(job.round(stamped, progress, decided, spoken=spoken), job.reached).items():
            with job.watch.phase("sink"):
                answers[query].append(answer_table(plan.queries[query], parts))
        if reload:
            with job.watch.phase("state"):
                job.reload()
        for rejection in job.rejected:
            _reject(
                result,
                plan.sources[rejection.source],
                Rejected(rejection.source, None, rejection.record, rejection.reason),
            )
        job.rejected.clear()
        reports = list(job.reports())
        for report in reports:
            deciders.report(report)
        if watcher is not None:
            watcher(recorder.end(answers, reports))
    result.tables = {name: pa.concat_tables(tables).combine_chunks() for name, tables in answers.items()}
    result.final = job.heartbeats()
    return result


def _until_emitted(schedule: Iterable[Round], job: LocalJob) -> Iterator[Round]:
    """Yield the rounds of a schedule, then rounds without input until all answers are emitted."""
    last = Round([], [])
    for last in schedule:
        yield last
    while job.reached:
        yield replace(last, pieces=[], ended=[])


def plan_local(
    queries: Sequence[Query],
    inputs: Mapping[str, pa.Table],
    optimized: bool = True,
    statistics: Statistics | None = None,
    strategy: Strategy = Strategy.PATTERN,
) -> Plan:
    """Return the plan of a local run, which may be run any number of times; see `run_local`."""
    sources = {name: source for q in queries for name, source in timed_sources(q.root).items()}
    source_statistics = statistics or observe(sources, inputs)
    planning = strategy.planning(source_statistics)
    optimized_queries = [replace(q, root=optimize(q.root, planning=planning)) if optimized else q for q in queries]
    return plan_queries(optimized_queries, source_statistics, strategy)


def _static_rows(plan: Plan, inputs: Mapping[str, pa.Table], result: LocalResult) -> dict[str, pa.Table]:
    """Return the static relations of a plan without the rows that violate their primary keys, which are counted."""
    tables: dict[str, pa.Table] = {}
    for name, source in static_sources(plan).items():
        tables[name], reasons = keyed_rows(source, inputs[name])
        for position, reason in reasons.items():
            record = shown_row(inputs[name], position)
            _reject(result, source, Rejected(name, None, record, reason))
    return tables


def _count_rejected(result: LocalResult, source: Source, stamped: StampedRows, rows: ScheduledRows) -> None:
    """Count those of `rows` that cannot become elements.

    Raises:
        PenstockError: P0403 for the first such row of a source with ON ERROR FAIL.
    """
    if stamped.reasons and source.on_error is OnError.FAIL:
        record = shown_row(rows.batch, int(stamped.unusable[0]))
        raise as_error(Rejected(source.name, None, record, stamped.reasons[0]), source.name)
    counts = Counter(reason for reason in stamped.reasons if reason in (TOO_FAR_AHEAD, PUNCTUATED))
    result.unusable[source.name] += len(stamped.reasons) - counts.total()
    if counts:
        result.rejected.setdefault(source.name, Counter()).update(counts)


def _take(
    source: Source, record: StreamRecord, progress: dict[str, SourceProgress], result: LocalResult
) -> Elements | None:
    """Take a heartbeat or a punctuation that is no row; return what operators get of it. Raises PenstockError P0403 for
    one that has no effect, of a source with ON ERROR FAIL."""
    after = after_record(source, record, progress[source.name])
    if isinstance(after, str):
        _reject(result, source, Rejected(source.name, None, shown_record(source, record), after))
        return None
    before, progress[source.name] = progress[source.name], after
    return spoken_after(record, before)


def _reject(result: LocalResult, source: Source, record: Rejected) -> None:
    if source.on_error is OnError.FAIL:
        raise as_error(record, source.name)
    if record.reason in (NULL_KEY, NO_BEGIN, EMPTY_PERIOD):
        result.unusable[source.name] = result.unusable.get(source.name, 0) + 1
    else:
        result.rejected.setdefault(source.name, Counter())[record.reason] += 1
