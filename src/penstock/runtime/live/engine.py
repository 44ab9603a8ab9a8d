"""The live engine: versions of a plan, driven round by round in this process.

Between two rounds queries are registered, dropped, paused, resumed and replaced. Each such change makes a new version
of the plan, to which the running job is grafted (`StageExecutor.graft`): what stays continues with its state. A query
that begins with a past (`Start`) first runs by itself over what is kept of its sources (`history.py`); then its state
joins the job. Positions in the streams belong to the streams: they advance even while no query reads them.

Contract: the results are those that the reference semantics define (`penstock.testing.live`). Names are checked by the
caller: a command names a query that exists, or, where it registers one, that does not. A command that raises changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import RejectedScan, Source, promises_checked
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.algebra.properties.need import AwaitedRows, Need, awaited_rows, first_full_instant, reach
from penstock.algebra.properties.statistics import Statistics
from penstock.connectors.contract import ParsedRecords
from penstock.errors import PenstockError
from penstock.physical.elements import Elements, concat
from penstock.physical.execution.ingest import after_record, read_columns, spoken_after, stamp
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import (
    NOTHING,
    QueryHeartbeats,
    SourceProgress,
    limited,
    query_heartbeat,
    timed_sources,
)
from penstock.physical.execution.step_failures import StepFailures, with_names
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.spec import RecordedRejections
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.merging import merged
from penstock.physical.planning.plan_parts import as_declared, joined
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.planner import Generation, grains_of, plan_part
from penstock.physical.planning.recorded_checks import with_recorded_checks
from penstock.physical.planning.shared_parts import SharedParts, shared_plan
from penstock.physical.planning.sharing import Beginning, Standing
from penstock.runtime.decisions.deciders import DecidingOptions, QueryPolicies
from penstock.runtime.live.content import Content
from penstock.runtime.live.history import History, final_elements
from penstock.runtime.live.measures import LiveFigures, LiveMeasures
from penstock.runtime.live.results import LiveResult, Track
from penstock.runtime.live.snapshot import LiveSnapshot
from penstock.runtime.live.starts import needs_of_start, never_full, not_kept
from penstock.runtime.local.runtime import LocalJob, compute_statics
from penstock.runtime.monitoring.taps import Taps
from penstock.runtime.rejected_rows import RejectedRows, add_counts, by_source
from penstock.types import BEGIN, END

#: The batch of a record that is no row.
_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


@dataclass
class _RoundInput:
    """The input of a round, by source: elements with all declared columns, the progress of the source, and what
    operators get of its punctuations."""

    elements: dict[str, list[Elements]]
    progress: dict[str, SourceProgress] = field(default_factory=dict)
    spoken: dict[str, list[Elements]] = field(default_factory=dict)


class LiveEngine:
    """Queries that are registered and dropped over sources that were declared before them."""

    def __init__(self, shards: int = 1, strategy: Strategy = Strategy.PATTERN) -> None:
        self._shards = shards
        self._strategy = strategy
        self._version = 0
        self._generations: dict[int, Generation] = {}
        #: The plan of each generation by itself, by its birth; it is made once. And the queries of all, by their names.
        self._planned: dict[int, PlannedPart] = {}
        self._queries: dict[str, Query] = {}
        self._next_step = 0
        self._shared = SharedParts()
        self._beginnings: dict[int, Beginning] = {}
        self._merges: dict[str, str] = {}
        self._histories: dict[str, History] = {}
        self._progress: dict[str, SourceProgress] = {}
        self._relations: dict[Source, pa.Table] = {}
        self._tables: dict[str, Elements] = {}
        self._pending: dict[str, list[tuple[ParsedRecords, str]]] = {}
        self._closed: set[str] = set()
        #: None: as many as before.
        self._most_punctuations: int | None = None
        #: By source and reason, the rows read that did not become elements; and those of the last round.
        self.set_apart: dict[str, Counter[str]] = {}
        self.rejected: dict[str, RejectedRows] = {}
        self._results: dict[str, LiveResult] = {}
        #: The errors of the queries that failed in the last round.
        self.failed: dict[str, PenstockError] = {}
        self._job = LocalJob(self._plan(), {}, shards)
        self._measures = LiveMeasures(self._job.plan)

    # -- sources -----------------------------------------------------------------------------------------------

    def declare(self, source: Source, retain: int | None = None) -> None:
        """Begin to read a stream, or a relation with updates.

        Args:
            source: the declaration.
            retain: for how many ticks elements are kept for queries that begin later; None for ever. The content of a
                relation is always kept.
        """
        self._histories[source.name] = History(source, retain)
        self._measure_plan()
        self._progress[source.name] = SourceProgress()
        self._pending[source.name] = []
        self.set_apart[source.name] = Counter()

    def declare_static(self, source: Source, rows: pa.Table) -> None:
        """Declare a relation without time, whose content is `rows`. Queries that run keep what they have read."""
        self._relations[source] = keyed_rows(source, rows)[0]

    def undeclare(self, source: str) -> None:
        """Cease to read a source that no query reads, and forget its past."""
        for known in (self._histories, self._progress, self._pending, self.set_apart):
            known.pop(source, None)
        self._relations = {one: rows for one, rows in self._relations.items() if one.name != source}

    def retain(self, source: str, ticks: int | None) -> None:
        """Keep elements of a source for another length of time from now on."""
        self._histories[source].retain = ticks

    def redeclare(self, source: Source) -> None:
        """Go on with a declaration that differs in what is no part of what a stream is: how it is measured."""
        self._histories[source.name].source = source
        self._graft()

    @property
    def sources(self) -> list[str]:
        """Return the names of the streams and of the relations with updates."""
        return list(self._histories)

    def is_declared(self, source: str) -> bool:
        """Return whether a source has been declared."""
        return source in self._histories or any(one.name == source for one in self._relations)

    def has_read(self, source: Source) -> bool:
        """Return whether a relation without time has been declared exactly so."""
        return source in self._relations

    def insert(self, source: str, rows: pa.RecordBatch | StreamRecord | ParsedRecords, origin: str = "") -> None:
        """Append rows, with all declared columns, or a record that is no row to what the next round reads. origin:
        where they come from, for dead letters."""
        if isinstance(rows, pa.RecordBatch):
            rows = ParsedRecords(rows)
        elif not isinstance(rows, ParsedRecords):
            rows = ParsedRecords(_NO_ROWS, record=rows)
        self._pending[source].append((rows, origin))

    def close(self, source: str) -> None:
        """State that no rows follow those inserted into a source with their largest timestamp or a smaller one."""
        self._closed.add(source)

    # -- commands ----------------------------------------------------------------------------------------------

    def check(self, query: Query, start: Start) -> None:
        """Raise PenstockError P0703 where the past is not kept that `query` would need to begin now."""
        self._past(query, *self._beginning(query, start))

    def register(self, query: Query, start: Start = Start()) -> pa.Table:  # noqa: B008 - immutable
        """Begin to answer `query`; return the answers that are final at once. Raises PenstockError P0703 where the past
        that `start` needs is not kept."""
        result = LiveResult(query, Content(query.root.schema.types))
        table = self._begin(result, query, start)
        self._results[query.name] = result
        return table

    def drop(self, name: str) -> None:
        """End a query."""
        result = self._results.pop(name)
        if result.track is not None:
            self._end(result.track)

    def pause(self, name: str, with_state: bool = False) -> None:
        """Stop answering a query. with_state: its steps continue; otherwise their state is dropped."""
        result = self._results[name]
        if with_state:
            result.mute()
        elif result.track is not None:
            self._end(result.track)
            result.pause()

    def begin_again(self, name: str) -> None:
        """Let the answers of a paused query begin again with what it emits next: those before are gone."""
        query = self._results[name].query
        self._results[name] = LiveResult(query, Content(query.root.schema.types))

    def resume(self, name: str, start: Start = Start(StartMode.WARM)) -> pa.Table:  # noqa: B008 - immutable
        """Answer a paused query again; return the answers that are final at once. One whose steps continued needs no
        past. Raises PenstockError P0703."""
        result = self._results[name]
        if result.track is None:
            return self._begin(result, result.query, start)
        result.show_after(result.track, result.track.reached)
        return result.advance(result.track.reached)

    def replace(self, name: str, query: Query, start: Start = Start(StartMode.WARM)) -> pa.Table:  # noqa: B008
        """Answer `query` in place of another one with the same columns; return the answers that are final at once.
        Raises PenstockError P0703."""
        result = self._results[name]
        before = result.track
        table = self._begin(result, query, start)
        if before is not None:
            self._end(before)
        return table

    def swap(self, one: str, other: str) -> dict[str, pa.Table]:
        """Exchange the results of two running queries; return the answers that are final at once, by result."""
        tracks = {one: self._results[other].track, other: self._results[one].track}
        for name, track in tracks.items():
            assert track is not None, "a paused query has no answers to exchange"
            self._results[name].query = replace(track.query, name=name)
            self._results[name].show_after(track, track.reached)
        return {name: self._results[name].advance(track.reached) for name, track in tracks.items() if track is not None}

    def is_running(self, name: str) -> bool:
        """Return whether the steps of a query run: it is not paused, or paused with its state."""
        return self._results[name].track is not None

    def answered(self, name: str) -> int:
        """Return the instant up to which a query has been answered, NOTHING for none."""
        return self._results[name].answered

    def heartbeat(self, name: str) -> int | None:
        """Return the instant up to which the answers of a query are final; None before its time has begun, and while
        it is paused."""
        track = self._results[name].track
        return None if track is None or track.reached == NOTHING else track.reached

    def first_ahead(self, name: str) -> int | None:
        """Return the first instant that a running query answers; None where that has been reached."""
        result = self._results[name]
        is_ahead = result.track is not None and result.waits and result.first > result.track.reached
        return result.first if is_ahead else None

    def unseen(self, name: str) -> dict[str, int]:
        """Return by source the tick up to which a running query did not see elements, where it began behind some."""
        track = self._results[name].track
        return {} if track is None else dict(self._beginnings[track.birth].ahead)

    def lost(self) -> dict[str, int]:
        """Return by source the tick up to which its elements may be gone, where some are."""
        return {name: h.dropped for name, h in self._histories.items() if h.dropped is not None}

    def awaited(self, query: Query) -> AwaitedRows | None:
        """Return what `query` waits for that begins when its last rows are there, None for nothing (`awaited_rows`)."""
        lost = {name: tick for name, tick in self.lost().items() if name in timed_sources(query.root)}
        return awaited_rows(query.root.needs, lost, final_elements(self._histories, self._progress))

    def source_heartbeats(self) -> dict[str, int]:
        """Return by source up to which tick its elements are complete, where its time has begun."""
        beats = {name: self._progress[name].heartbeat(h.source.slack) for name, h in self._histories.items()}
        return {name: tick for name, tick in beats.items() if NOTHING < tick < END}

    # -- rounds ------------------------------------------------------------------------------------------------

    def round(self, taps: Taps | None = None, failures: StepFailures | None = None) -> dict[str, pa.Table]:
        """Read what has been inserted; return the answers that became final, by query.

        Args:
            taps: of edges.
            failures: receives the errors of steps by the keys of their tracks. Queries that have failed answer nothing
                in this round (`failed`), and are to be paused or dropped before the next one. None lets errors be
                raised.

        Raises:
            PenstockError: P0403, a row was rejected of a source declared ON ERROR FAIL.
        """
        self._measures.begin()
        self._measures.taps = taps or Taps()
        self._job.tap(self._measures.taps.edges)
        read = {
            name: sum(parsed.batch.num_rows + len(parsed.rejected) for parsed, _ in pending)
            for name, pending in self._pending.items()
        }
        self.rejected = {}
        round_input = self._read_pending()
        self._run_round(self._job, round_input, failures)
        for name, rejected in self.rejected.items():
            add_counts(rejected.malformed, self.set_apart[name])
            self.set_apart[name]["late"] += rejected.late
        errors = {} if failures is None else failures.errors
        for name, history in self._histories.items():
            for elements in round_input.elements[name]:
                history.add(elements)
            for punctuations in round_input.spoken[name]:
                history.speak(punctuations)
        self._forget()
        self._beginnings = {birth: one.after(self._progress) for birth, one in self._beginnings.items()}
        beats = self._job.heartbeats()
        tracked = [(name, result, result.track) for name, result in self._results.items() if result.track is not None]
        names = {track.key: name for name, _, track in tracked}
        self.failed = {names[key]: with_names(error, names) for key, error in errors.items() if key in names}
        running = [one for one in tracked if one[0] not in self.failed]
        answers = {name: result.advance(beats[track.key]) for name, result, track in running}
        answered = {track.key: answers[name].num_rows for name, _, track in running}
        self._measures.end(self._job, read, self.set_apart, answered, (self.source_heartbeats(), beats))
        return answers

    @property
    def is_behind(self) -> bool:
        """Return whether answers are due that the last round did not emit, so that another one is."""
        return bool(self._job.reached)

    @property
    def rounds(self) -> int:
        """Return how many rounds there have been, which is the number of the next one."""
        return self._measures.rounds

    def figures(self) -> LiveFigures:
        """Return what was measured up to the last round."""
        tracks = {one.track.key: name for name, one in self._results.items() if one.track is not None}
        return self._measures.figures(self._job, tracks)

    def decide_by(self, options: DecidingOptions) -> None:
        """Decide by `options` from the next round on."""
        names = {name: one.track.key for name, one in self._results.items() if one.track is not None}
        weights, targets = (
            {names[name]: value for name, value in by_name.items() if name in names}
            for by_name in (options.policies.weights, options.policies.latency_targets)
        )
        self._measures.decide_by(replace(options, policies=QueryPolicies(weights, targets)))

    def _forget(self) -> None:
        """Drop what is no longer kept of the past. A relation begins with its content at the heartbeat of its query,
        which may be that of any source."""
        beats = {name: self._progress[name].heartbeat(h.source.slack) for name, h in self._histories.items()}
        for name, history in self._histories.items():
            history.forget(beats[name] if history.source.is_stream else min(beats.values()))

    def keep_punctuations(self, most: int) -> None:
        """Let each stream keep so many punctuations at most from the next round on."""
        self._most_punctuations = most

    def punctuations(self) -> dict[str, int]:
        """Return by stream how many punctuations it keeps, where it keeps some."""
        kept = {name: len(seen.punctuations or ()) for name, seen in self._progress.items()}
        return {name: count for name, count in kept.items() if count}

    def _read_pending(self) -> _RoundInput:
        round_input = _RoundInput({})
        for name, history in self._histories.items():
            source, source_progress = history.source, self._progress[name]
            if self._most_punctuations is not None:
                source_progress = limited(source_progress, self._most_punctuations)
            columns = tuple(range(len(source.columns)))
            # Queries of different births begin at different instants: a round reports only what arrived in it.
            progress = replace(source_progress, first=None)
            round_input.elements[name] = []
            punctuations: list[Elements | None] = []
            rejected = RejectedRows(source)
            for parsed, origin in self._pending[name]:
                if parsed.record is not None:
                    after = after_record(source, parsed.record, source_progress)
                    if isinstance(after, str):
                        rejected.reject_record(parsed.record, after, origin)
                        continue
                    punctuations.append(spoken_after(parsed.record, source_progress))
                    source_progress, progress = after, progress.merge(replace(after, first=None))
                    continue
                rejected.reject_unparsed(parsed)
                if not parsed.batch.num_rows:
                    continue
                stamped = stamp(source, parsed.batch, read_columns(source, columns), columns, source_progress)
                rejected.reject_unusable(stamped, parsed, origin)
                round_input.elements[name].append(stamped.elements)
                punctuations.append(stamped.spoken)
                progress = progress.merge(stamped.progress)
                source_progress = source_progress.merge(stamped.progress)
            if self._pending[name]:
                self.rejected[name] = rejected
            self._pending[name] = []
            if name in self._closed and source_progress.high is not None:
                beat = SourceProgress(beat=source_progress.high)
                source_progress, progress = source_progress.merge(beat), progress.merge(beat)
            self._progress[name] = source_progress
            round_input.progress[name] = progress
            round_input.spoken[name] = [one for one in punctuations if one is not None]
        self._closed.clear()
        return round_input

    def _run_round(self, job: LocalJob, round_input: _RoundInput, failures: StepFailures | None = None) -> None:
        """Run a round of `job`, and pass its answers to the tracks."""
        inputs = _projected(job, round_input.elements)
        results = {one.track.key: one for one in self._results.values() if one.track is not None}
        decided, spoken = self._measures.decided, round_input.spoken
        for key, parts in job.round(inputs, round_input.progress, decided, failures, spoken).items():
            results[key].take(parts)
            root = self._queries[key].root
            if isinstance(root, RejectedScan):
                self._histories[root.source.name].reject(root.check.name, concat(parts))
        for name, rejections in by_source(job.rejected).items():
            rejected = self.rejected.setdefault(name, RejectedRows(self._histories[name].source))
            rejected.reject_by_operators(rejections, self.rounds)
        job.rejected.clear()

    # -- versions of the plan ----------------------------------------------------------------------------------

    def _begin(self, result: LiveResult, query: Query, start: Start) -> pa.Table:
        """Show in `result` a new track of `query`, which has read its past; return the answers final at once."""
        birth = self._version + 1
        begin, start = self._beginning(query, start)
        track = Track(query, birth, Content(query.root.schema.types), start.at)
        past = self._past(query, begin, start)
        generation = self._generation(track)
        part = self._part(generation)
        plan = self._with_tables(joined([with_recorded_checks(part.plan, self._verdicts)]))
        past_job = LocalJob(plan, self._tables, self._shards)
        decided = self._measures.portions(len(self._queries) + 1)
        elements = _projected(past_job, past.elements)
        for parts in past_job.round(elements, past.progress, decided, spoken=past.spoken).values():
            track.take(parts)
        reached = past_job.reached.get(track.key)
        # From here on nothing fails: the command has an effect.
        self._version = birth
        self._generations[birth], self._planned[birth] = generation, part
        self._queries |= part.plan.queries
        # One that is shown later only may have missed what has no bearing on it from then on.
        is_cut_off = start.mode is StartMode.NOW or (start.at is not None and start.at > begin)
        cut_off = timed_sources(query.root) if is_cut_off else {}
        self._beginnings[birth] = Beginning.cut_off(cut_off, self._progress)
        self._graft()
        for row, past_executors in zip(self._job.stages, past_job.stages, strict=False):
            for executor, past_executor in zip(row, past_executors, strict=True):
                executor.restore(past_executor.snapshot())
        self._job.reached |= past_job.reached
        result.query = replace(query, name=result.query.name)
        if start.mode is StartMode.BEGINNING:
            result.show(track, BEGIN)
        elif start.mode is StartMode.NOW and not result.goes_on:
            # A stream too: elements that follow from the contents of relations.
            result.show(track, begin)
        else:
            result.show_after(track, begin if start.at is None else start.at)
        return result.advance(begin if reached is None else min(begin, reached))

    def _end(self, track: Track) -> None:
        self._version += 1
        del self._generations[track.birth], self._planned[track.birth], self._queries[track.key]
        self._graft()

    def _graft(self) -> None:
        """Go on with the queries that there are now. What they have in common, and what has become equal, is shared."""
        parts = self._parts()
        heartbeats = QueryHeartbeats(self._queries, self._progress)
        self._beginnings = {birth: self._beginnings[birth] for birth in self._generations}
        self._merges = merged(parts, self._merges, self._beginnings, Standing(self._progress, heartbeats), self._shared)
        self._job.graft(self._with_tables(self._plan()), self._tables, self._progress)
        self._job.reached = {name: tick for name, tick in self._job.reached.items() if name in self._queries}
        self._measure_plan()

    def _measure_plan(self) -> None:
        self._measures.changed(self._job.plan, {name: one.source for name, one in self._histories.items()})

    def _generation(self, track: Track) -> Generation:
        """Return the generation of one query, optimized and named by its birth."""
        statistics = Statistics()
        root = optimize(track.query.root, planning=self._strategy.planning(statistics))
        ready = replace(track.query, name=track.key, root=root)
        standing = (one.grains for one in self._generations.values() if one.grains is not None)
        grains = grains_of([ready], statistics, self._strategy, live=True, standing=standing)
        return Generation(track.birth, [ready], statistics, grains)

    def _part(self, generation: Generation) -> PlannedPart:
        """Return the plan of a generation by itself. Numbers of steps are never used again."""
        part = plan_part(generation, self._strategy, self._next_step)
        self._next_step += len(part.plan.steps)
        return part

    def _parts(self) -> list[PlannedPart]:
        return [self._planned[birth] for birth in sorted(self._planned)]

    def _plan(self) -> Plan:
        plan = shared_plan(self._parts(), self._merges, self._shared)
        declared = {name: history.source for name, history in self._histories.items()}
        return as_declared(plan, declared) if any(one.is_observed for one in declared.values()) else plan

    def _with_tables(self, plan: Plan) -> Plan:
        """Compute the static relations of `plan` that are new."""
        fresh = {name: static for name, static in plan.statics.items() if name not in self._tables}
        for name, static in fresh.items():
            rows = {source.name: self._relations[source] for source in static.sources.values()}
            self._tables |= compute_statics(replace(plan, statics={name: static}), rows)
        return plan

    # -- the past ----------------------------------------------------------------------------------------------

    def _verdicts(self, stream: str, promise: str) -> RecordedRejections:
        """Return what the check of a promise has rejected, which stands beside the queries since it was declared."""
        return partial(self._histories[stream].rejections, promise)

    def _beginning(self, query: Query, start: Start) -> tuple[int, Start]:
        """Return the heartbeat of a query that begins now, and its start without WAIT: WARM, or AT the instant from
        which nothing is missing. Raises PenstockError P0703 where there is none."""
        begin = query_heartbeat(query.root, timed_sources(query.root), self._progress, drain=False)
        if not start.wait:
            return begin, start
        lost = {name: tick for name, tick in self.lost().items() if name in timed_sources(query.root)}
        tick = first_full_instant(query.root.needs, lost, begin, final_elements(self._histories, self._progress))
        if tick is None:
            raise never_full(query, lost)
        return begin, Start(StartMode.WARM) if tick == begin else Start(StartMode.AT, tick)

    def _past(self, query: Query, begin: int, start: Start) -> _RoundInput:
        """Return what a query reads that begins at the heartbeat `begin`. Raises PenstockError P0703."""
        sources = timed_sources(query.root)
        needs, tick = needs_of_start(query, sources, start, begin)
        from_now = start.mode is StartMode.NOW
        # Updates of a relation up to an instant that is still to come would be out of order with those that come.
        ticks = {name: tick if source.is_stream else min(tick, begin) for name, source in sources.items()}
        read_sources = [name for name, source in sources.items() if not (from_now and source.is_stream)]
        missing = [name for name in read_sources if not self._histories[name].has(needs.get(name, Need()), tick)]
        if missing:
            raise not_kept(query, start, missing)
        elements: dict[str, list[Elements]] = {name: [] for name in sources}
        checked = promises_checked(query.root)
        for name in read_sources:
            need = needs.get(name, Need())
            elements[name] = self._histories[name].since(need, ticks[name], checked.get(name, ()))
        reached = reach(needs)
        progress: dict[str, SourceProgress] = {}
        for name in sources:
            first = self._progress[name].first
            if from_now:
                first = min((int(parts.ts.min()) for parts in elements[name] if len(parts)), default=None)
            elif first is not None and reached is not None:
                first = max(first, tick - reached)
            progress[name] = replace(self._progress[name], first=first)
        return _RoundInput(elements, progress, {name: self._histories[name].spoken for name in read_sources})

    # -- snapshots ---------------------------------------------------------------------------------------------

    def snapshot(self) -> LiveSnapshot:
        """Return the state between two rounds; what is inserted and not yet read stays with its source. What did not
        change since the last snapshot is the same object in both."""
        stages = [[executor.snapshot() for executor in row] for row in self._job.stages]
        histories = {name: history.copy() for name, history in self._histories.items()}
        set_apart = {name: Counter(reasons) for name, reasons in self.set_apart.items()}
        return LiveSnapshot(
            self._shards,
            self._strategy,
            self._version,
            dict(self._generations),
            stages,
            histories,
            dict(self._progress),
            dict(self._relations),
            set_apart,
            {name: result.kept() for name, result in self._results.items()},
            dict(self._beginnings),
            dict(self._merges),
            self._measures.rounds,
            self._measures.decided,
            self._measures.options,
            self._measures.at_ingest,
            dict(self._job.reached),
        )

    @classmethod
    def restored(cls, snapshot: LiveSnapshot) -> LiveEngine:
        """Return an engine that continues from a snapshot. Queries that are paused in it need no state."""
        engine = cls(snapshot.shards, snapshot.strategy)
        engine._version = snapshot.version
        engine._generations = dict(snapshot.generations)
        engine._planned = {birth: engine._part(snapshot.generations[birth]) for birth in sorted(snapshot.generations)}
        engine._queries = {name: query for part in engine._parts() for name, query in part.plan.queries.items()}
        engine._beginnings, engine._merges = dict(snapshot.beginnings), dict(snapshot.merges)
        engine._histories = {name: history.copy() for name, history in snapshot.histories.items()}
        engine._progress, engine._relations = dict(snapshot.progress), dict(snapshot.relations)
        engine.set_apart = {name: Counter(reasons) for name, reasons in snapshot.set_apart.items()}
        engine._pending = {name: [] for name in snapshot.histories}
        engine._results = {name: result.resumed() for name, result in snapshot.results.items()}
        plan = engine._with_tables(engine._plan())
        engine._job = LocalJob(plan, engine._tables, snapshot.shards)
        # Stages that nothing needs any more are behind the others.
        for row, states in zip(engine._job.stages, snapshot.stages, strict=False):
            for executor, state in zip(row, states, strict=True):
                executor.restore(state)
        engine._job.reached = dict(snapshot.reached)
        beats = engine.source_heartbeats(), engine._job.heartbeats()
        engine._measures = LiveMeasures(plan, snapshot.rounds, snapshot.decided, snapshot.at_ingest, beats)
        engine._measures.decide_by(snapshot.deciding)
        engine._measure_plan()
        return engine


def _projected(job: LocalJob, elements: Mapping[str, Sequence[Elements]]) -> dict[str, list[Elements]]:
    """Return, by source, the columns of its elements that a job reads."""
    return {
        name: [one.with_columns([one.columns[c] for c in ingest.columns]) for one in elements.get(name, ())]
        for name, ingest in job.ingests.items()
    }
