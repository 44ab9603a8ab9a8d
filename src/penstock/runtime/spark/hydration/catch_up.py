"""Catching up: queries that begin in a running job first read the past of their sources, in this process.

The past is what the rounds of the run have read up to an offset (`past_input.py`). It is read in rounds of its own,
with the plan of the new queries alone; what they answer is folded or kept (`catch_up.py`), and their state lies
under `backfill/` until the first batch of their epoch loads it. Several queries catch up together.

Much of it happens ahead of the change, beside the rounds of the run: up to the present offset, then again for what the
run has read meanwhile, until that is one round. The change itself, between two rounds, reads the rest. Nothing of this
counts before the change has happened: an interrupted one is thrown away and done again, with the same result.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from penstock.algebra.nodes.promised import closed_by_punctuations
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.physical.elements import Elements, concat, decode, encode, gathered
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.spec import RecordedRejections
from penstock.physical.planning.planner import part_of
from penstock.physical.planning.recorded_checks import with_recorded_checks
from penstock.runtime.live.content import Content, difference
from penstock.runtime.live.results import Track
from penstock.runtime.rejected_rows import write_rejections
from penstock.runtime.spark.checkpoint.epochs import Epoch, source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job, hold, let_go, round_name, write_whole
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.checkpoint.state_files import backfill_root
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.hydration.past_input import (
    KnownPast,
    PastRound,
    PastStart,
    SplitPlanner,
    delivered_part,
    merged,
    tasks_of,
)
from penstock.runtime.spark.hydration.relation_contents import RelationContents, check_contents
from penstock.runtime.spark.hydration.start_options import Bounds, bounds_of, is_posted, not_kept
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.round_history import ReadRound, RoundHistory
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.output.totals import RunTotals
from penstock.runtime.spark.output.withheld import Withheld, WithheldAnswers
from penstock.runtime.spark.retention.compacted_updates import CompactedLog, CompactedUpdates
from penstock.runtime.spark.retention.rejected_log import RejectedLog
from penstock.runtime.spark.retention.retained_log import Pins, RetainedFile, RetainedLog
from penstock.runtime.spark.worker.ingest import retained_packets
from penstock.runtime.spark.worker.inline import Outcome, run_round
from penstock.runtime.spark.worker.packets import Packet
from penstock.runtime.spark.worker.stage import forget_warm
from penstock.storage import storage

# --- The answers of a query over its past: folded up to the instant from which they are emitted, kept in files beyond.
#
# BEGINNING emits all of them. Else a relation begins with its content at the instant τ0, and the answers after it
# follow; a stream begins with the elements after τ0, or at τ0 with NOW. τ0 is the query's heartbeat when the past has
# been read, or the tick of AT.


class PastAnswers:
    """The answers of one query.

    Args:
        place: a folder of its own, for answers that are emitted.
    """

    def __init__(self, query: Query, start: Start, place: Path) -> None:
        self._query = query
        self._start = start
        #: The tick of AT. What waits WARM is withheld until its first instant, which may come later than thought.
        self._at = start.at if start.mode is StartMode.AT else None
        self._place = place
        self._track = Track(query, 0, Content(query.root.schema.types))
        #: Answers beyond the heartbeat that stay when those after them are forgotten.
        self._early: list[Elements] = []
        self._files = 0
        #: The heartbeat up to which answers have been taken.
        self.reached = NOTHING

    def take(self, parts: Iterable[Elements], heartbeat: int) -> None:
        """Accept the answers of a round. heartbeat: of the query after it."""
        self._track.take(parts)
        self.reached = max(self.reached, heartbeat)
        final = self._track.final(self.reached)
        if final is None:
            return
        if self._start.mode is StartMode.BEGINNING or (
            self._start.mode is StartMode.NOW and self._query.root.is_stream
        ):
            self._keep(final)
        elif self._at is None:
            self._fold(final)
        else:
            self._fold(final.filter(final.ts <= self._at))
            self._keep(final.filter(final.ts > self._at))

    def keep_early(self) -> None:
        """Keep the answers beyond the heartbeat that are known by now when those after them are forgotten."""
        self._early = list(self._track.early)

    def forget_early(self) -> None:
        """Leave out the answers beyond the heartbeat, but those that are kept."""
        self._track.early = [part.filter(part.ts > self.reached) for part in self._early]

    def tables(self, most: int) -> list[pa.Table]:
        """Return what is emitted, in at most `most` tables, at least one."""
        parts: list[list[Elements]] = []
        if not self._query.root.is_stream and len(self._track.content.rows()):
            begin = self.reached if self._at is None else self._at
            types = self._query.root.schema.types
            parts.append([difference(Content(types), self._track.content, begin)])
        parts += [[self._read(number)] for number in range(self._files)]
        parts += [[part] for part in self._track.early]
        size = max(1, -(-len(parts) // max(1, most)))
        joined = [list(chain.from_iterable(parts[i : i + size])) for i in range(0, len(parts), size)]
        return [answer_table(self._query, some) for some in joined or [[]]]

    def withheld(self) -> Withheld:
        """Return the answer of a query that is withheld: of a relation its content, and what comes after it."""
        begin = self.reached if self._at is None else self._at
        content = difference(Content(self._query.root.schema.types), self._track.content, begin)
        parts = [content, *(self._read(number) for number in range(self._files)), *self._track.early]
        return Withheld(concat(parts), begin)

    def _fold(self, elements: Elements) -> None:
        if not self._query.root.is_stream and len(elements):
            self._track.content.add(elements)

    def _keep(self, elements: Elements) -> None:
        if len(elements):
            write_whole(self._path(self._files), encode([elements.to_batch()]), durable=False)
            self._files += 1

    def _read(self, number: int) -> Elements:
        (batch,) = decode(storage().map(self._path(number)))
        return Elements.from_batch(batch)

    def _path(self, number: int) -> Path:
        return self._place / f"{number:09d}.arrow"


#: Rows of small files that are processed together.
_AT_ONCE = 2**16
#: Called after each part of the past with the seconds that it took.
Pause = Callable[[float], None]


class CatchUp:
    """The past of some queries of a job, as far as it has been read.

    Args:
        job: with the plan of all queries.
        starts: how those queries begin that read a past.
        tables: the static relations of the job.
        kept: the relations that the run keeps, None at its start.
        answered: of streams whose results continue, after which rounds and up to which ones they received what left
            early.
    """

    def __init__(
        self,
        folder: Folder,
        job: Job,
        starts: Mapping[str, Start],
        tables: Mapping[str, Elements],
        kept: KeptRelations | None = None,
        answered: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> None:
        self._folder = folder
        self._answered = {name: sorted(map(tuple, rounds)) for name, rounds in (answered or {}).items()}
        self._past = Folder(backfill_root(str(folder.root), job.past))
        hold(str(self._past.root))
        storage().remove_tree(self._past.root)
        self._past.begin_run()
        self._contents = RelationContents(folder, self._past, job, starts, tables, kept)
        reading = [name for name, start in starts.items() if start.mode is not StartMode.NOW]
        plan = part_of(job.plan, reading)
        self._declared = plan.sources
        self._births = job.intake.births
        # What is read again is not retained again, nor judged.
        plan = with_recorded_checks(plan, self._verdicts)
        plan = replace(plan, sources={name: replace(source, retain=None) for name, source in plan.sources.items()})
        self.starts = dict(starts)
        self._reading = {name: starts[name] for name in reading}
        self._limit = job.intake.pace.max_bytes
        intake = Intake(
            tuple(plan.sources.values()),
            frozenset(),
            job.intake.parallelism,
            births=self._births,
            pace=RateControl(max_bytes=self._limit),
        )
        self.job = replace(job, plan=plan, intake=intake, drain=False, base=0, isolated=False)
        self._tables = {name: tables[name] for name in plan.statics}
        answers = self._past.root / "answers"
        self._answers = {
            name: PastAnswers(job.plan.queries[name], start, answers / str(number))
            for number, (name, start) in enumerate(starts.items())
        }
        self._starting: dict[str, PastStart] = {}
        #: The progress of sources beside what is read of them, until a round has it.
        self._progress: dict[str, SourceProgress] = {}
        self._bounds: Bounds = {}
        self._pins = ExitStack()
        self._began = False
        #: What is read first, from when that was found until it is read.
        self._found: KnownPast | None = None
        #: The round of the run up to which the past has been read.
        self.reached = 0
        self._rounds = 0
        self._bytes = 0
        self._all_bytes = 0
        self._malformed: dict[str, Counter[str]] = {}

    def _verdicts(self, stream: str, promise: str) -> RecordedRejections:
        """Return what the check of a promise has rejected."""
        return partial(RejectedLog(self._folder, source_file(stream, self._births)).between, promise)

    @property
    def share(self) -> float:
        """Return which part of the past has been read, of what is known."""
        read, known = self._bytes + self._contents.bytes, self._all_bytes + self._contents.all_bytes
        return min(1.0, read / known) if known else float(self._began)

    # -- reading -----------------------------------------------------------------------------------------------

    def read_up_to(self, offset: Offset, pause: Pause | None = None) -> None:
        """Read what the run has read up to the round of `offset`. Raises PenstockError P0703 where that is no longer
        possible."""
        if not self._began:
            self._begin(offset, pause)
            return
        if not self._reads:
            self.reached = offset.round
            return
        rounds = RoundHistory(self._folder).until(offset.round, self.reached)
        if len(rounds) < offset.round - self.reached:
            raise PenstockError(
                "P0703", "the rounds that were read meanwhile are no longer recorded", hint="start the queries again"
            )
        self._contents.read_on(rounds, offset, pause)
        self._read(rounds, dict.fromkeys(self.job.plan.sources, 0), self.reached, offset.round, pause)
        self.reached = offset.round

    @property
    def _reads(self) -> bool:
        """Return whether anything is read before the queries begin."""
        return bool(self._reading) or self._contents.reads_ahead

    def find(self, offset: Offset) -> None:
        """Find from where the past up to the round of `offset` is read, and keep that from being removed. Raises
        PenstockError P0703."""
        self._pin_compacted()
        known = KnownPast(self._folder, self._births, offset)
        declared = replace(self.job.plan, sources=self._declared)
        reading = [self.job.plan.queries[name] for name in self._reading]
        self._bounds = bounds_of(reading, self._reading, known, declared)
        self._starting = past_starts(known, declared, self._reading, self._bounds)
        for name, start in self._starting.items():
            if start.retained is not None:
                self._hold(name, start.retained)
            elif start.compacted is not None:
                # Time began before what is read, where some of it is left out.
                if start.compacted.folded is None:
                    self._progress[name] = SourceProgress(None, start.high)
                else:
                    self._skip(name, start.high)
            elif start.high is not None:
                self._skip(name, start.high)
        self._found = known

    def _begin(self, offset: Offset, pause: Pause | None) -> None:
        if self._found is None:
            self.find(offset)
        known, self._found = self._found, None
        assert known is not None, "it has been found"
        offset = known.offset
        self._began = True
        self.reached = offset.round
        self._contents.begin(known, pause)
        if not self._reads:
            return
        skipped = {name: start.task for name, start in self._starting.items()}
        splits = [split for start in self._starting.values() for split in start.splits]
        self._all_bytes += sum(max(1, split.bytes) for split in splits)
        compacted = {name: start.compacted for name, start in self._starting.items() if start.compacted is not None}
        if compacted:
            size = sum(one.bytes for one in compacted.values())
            self._all_bytes += size
            self._run(PastRound(bytes=size), pause, compacted)
        if splits:
            self._read_splits(pause)
        self._read(known.rounds, skipped, 0, offset.round, pause)

    def _pin_compacted(self) -> None:
        """Keep the posts of relations, and what stands for some of them, from being removed meanwhile."""
        for name in sorted(name for name, source in self._declared.items() if is_posted(source)):
            log = CompactedLog(self._folder, source_file(name, self._births))
            pin = Pins(self._folder).pinned(str(self.job.past), log.file, log.read().splits)
            self._pins.enter_context(pin)

    def _hold(self, source: str, log: RetainedLog) -> None:
        """Keep what is read of a retained stream from being removed meanwhile."""
        skipped = self._skipped(source)
        self._pins.enter_context(Pins(self._folder).pinned(str(self.job.past), log.place.name, skipped))
        if not log.has(skipped):
            raise not_kept(self._reading, self.job.plan, {source: self.job.plan.sources[source]})
        older = skipped is not None and any(file.high <= skipped for file in log.files())
        if older or log.after is not None:
            self._skip(source, None)

    def _skip(self, source: str, high: int | None) -> None:
        """Note that elements of a source are not read: time began before what is. high: the largest of their ticks."""
        bound = self._bounds[source]
        self._progress[source] = SourceProgress(None if bound is None else bound.begin, high)

    def _skipped(self, source: str) -> int | None:
        """Return the tick up to which elements of a source are not needed; None where all are."""
        bound = self._bounds[source]
        return None if bound is None else bound.skipped

    def _read_splits(self, pause: Pause | None) -> None:
        """Read what came before the rounds were recorded."""
        for name, start in self._starting.items():
            splits = KnownSplits(0, start.splits)
            SplitFiles(self._past, source_file(name, self._births)).write(splits, len(splits))
        planner = SplitPlanner(self._past, self.job.intake)
        offset = planner.start()
        offset = replace(offset, high={name: start.high for name, start in self._starting.items()})
        while (after := planner.next(offset)).done != offset.done:
            self._run(PastRound(planner.pieces(offset, after), bytes=after.read), pause)
            offset = after

    def _read(
        self, rounds: list[ReadRound], skipped: Mapping[str, int], after: int, last: int, pause: Pause | None
    ) -> None:
        """Read the recorded `rounds`, and what is retained of the rounds behind `after` up to `last`.

        Args:
            skipped: by source, how many of the recorded tasks are left out.
        """
        left = dict(skipped)
        # What has been emitted early is known when all is read up to the round in which a sink was answered last.
        answered = {number for rounds in self._answered.values() for pair in rounds for number in pair if number}
        ends = sorted({last, *(number for number in answered if number < last)})
        parts: dict[int, PastRound] = {}
        for name, start in self._starting.items():
            if start.retained is None:
                continue
            skipped_until = self._skipped(name)
            for file in start.retained.files(after + 1, last):
                if skipped_until is None or file.high > skipped_until:
                    size = start.retained.size(file)
                    for piece in file.parted(ends):
                        part = parts.setdefault(piece.rounds[0], PastRound())
                        part.add(PastRound(files=[(name, piece)], bytes=size))
                        size = 0
        for known in rounds:
            part = parts.setdefault(known.number, PastRound())
            beats = {name: tick for task in known.tasks for name, tick in task.beats if name in self.job.plan.sources}
            part.add(PastRound(beats=beats))
            for name, start in self._starting.items():
                if start.retained is None and not start.gone:
                    tasks = tasks_of(known, name, self._births)
                    read = tasks[left[name] :]
                    size = sum(max(1, split.bytes) for task in read for split in task.splits)
                    part.add(PastRound(read, bytes=size))
                    left[name] = max(0, left[name] - len(tasks))
        self._all_bytes += sum(part.bytes for part in parts.values())
        for until in ends:
            for some in merged([parts.pop(number) for number in sorted(parts) if number <= until], self._limit):
                self._run(some, pause)
            self._forget_answered(until)

    def _run(
        self, part: PastRound, pause: Pause | None, compacted: Mapping[str, CompactedUpdates] = MappingProxyType({})
    ) -> None:
        """Run a round of the past. compacted: by source, updates that come before it."""
        began = time.monotonic()
        # Rounds of the past are numbered from 1, as those of its planner are.
        tasks = part.numbered(self._rounds + 1)
        retained: dict[str, list[RetainedFile]] = {}
        for name, file in part.files:
            retained.setdefault(name, []).append(file)
        more: Iterator[Packet] = chain.from_iterable(
            self._retained(name, files, len(tasks) + number) for number, (name, files) in enumerate(retained.items())
        )
        first = len(tasks) + len(retained)
        before = chain.from_iterable(
            self._compacted(name, updates, first + number) for number, (name, updates) in enumerate(compacted.items())
        )
        more = chain(before, more)
        each = [(task,) for task in tasks]
        outcome = run_round(self._past, self.job, self._tables, each, self._rounds, self._progress, more)
        self._progress = {}
        self._take(outcome)
        # What a round has seen is needed to plan the one after it.
        self._past.forget_seen(round_name(self._rounds))
        self._rounds += 1
        self._bytes += part.bytes
        if pause is not None:
            pause(time.monotonic() - began)

    def _retained(self, source: str, files: Sequence[RetainedFile], task: int) -> Iterator[Packet]:
        log = self._starting[source].retained
        assert log is not None, "the source is read from its retained elements"
        columns = self.job.plan.needed_columns(source)
        parts = (part for file in files for part in log.read(file, columns))
        return retained_packets(self.job, self._tables, source, gathered(parts, _AT_ONCE), task)

    def _compacted(self, source: str, updates: CompactedUpdates, task: int) -> Iterator[Packet]:
        columns = self.job.plan.needed_columns(source)
        parts = (part.with_columns([part.columns[c] for c in columns]) for part in updates.read())
        return retained_packets(self.job, self._tables, source, parts, task)

    def _take(self, outcome: Outcome) -> None:
        self._take_answers(outcome)
        # The rejections of a relation are counted by the queries whose whole answer is emitted.
        if any(start.mode is StartMode.BEGINNING for start in self.starts.values()):
            letters = DeadLetters(self._folder.dead_letters)
            counts = write_rejections(outcome.rejected, self.job.plan.sources, letters, self._rounds, self.job.epoch)
            for source, reasons in counts.items():
                self._malformed.setdefault(source, Counter()).update(reasons)

    def _forget_answered(self, round_: int) -> None:
        """Leave out what sinks have received that follows from the rounds up to `round_`: beyond the heartbeats too."""
        for name, rounds in self._answered.items():
            if any(after < until <= round_ for after, until in rounds):
                self._answers[name].forget_early()
            if any(after == round_ for after, _ in rounds):
                self._answers[name].keep_early()
            self._answered[name] = [pair for pair in rounds if pair[1] > round_]

    def _take_answers(self, outcome: Outcome) -> None:
        beats = outcome.heartbeats.queries if outcome.heartbeats is not None else {}
        for name in self._answers.keys() & beats.keys():
            self._answers[name].take(outcome.answers.get(name, ()), beats[name])

    # -- the change --------------------------------------------------------------------------------------------

    def finish(self, offset: Offset, base: int, sinks: Mapping[str, Sink], epoch: Epoch) -> None:
        """Read up to `offset`, at which the queries join the others, and write what they answer of the past to their
        sinks, as batches before `base`.

        Args:
            epoch: with which they begin.
        """
        continued = epoch.continued
        self.read_up_to(offset)
        self._advance_to(offset)
        for name, rounds in epoch.answered.items():
            if max(until for _, until in rounds) >= offset.round:
                self._answers[name].forget_early()
        for outcome in self._contents.finish(offset):
            self._take_answers(outcome)
        for name in self._answers.keys() & continued:
            WithheldAnswers(self._folder).add_past(name, base, self._answers[name].withheld())
        tables = {name: answers.tables(base) for name, answers in self._answers.items() if name not in continued}
        batches = min(base, max(map(len, tables.values()), default=0))
        parts = ResultParts(self._folder)
        for batch in range(batches):
            written = {name: some[batch] for name, some in tables.items() if batch < len(some)}
            for name, table in written.items():
                sinks[name].write(batch, table)
            commit_logs({name: sinks[name] for name in written}, batch, {})
            parts.note(batch, {name: table.num_rows for name, table in written.items()}, sinks)
        rows = {name: sum(table.num_rows for table in some) for name, some in tables.items()}
        RunTotals(self._folder).backfilled(epoch.number, rows, self._malformed, batches)
        self._pins.close()
        forget_warm(str(self._past.root))
        let_go(str(self._past.root))

    def _advance_to(self, offset: Offset) -> None:
        """Advance time to what the clock and the sources reported up to `offset`."""
        beats = {name: offset.progress(name).beat for name in self.job.plan.sources}
        own = {name: tick for name, tick in beats.items() if tick != NOTHING}
        for name, start in self._starting.items():
            high = offset.high.get(name)
            # What is retained need not have the largest timestamp; what is gone is not read.
            if (start.retained is not None or start.gone) and high is not None:
                if start.gone and start.high is None:
                    self._skip(name, high)
                self._progress[name] = self._progress.get(name, SourceProgress()).merge(SourceProgress(None, high))
        if own or self._progress:
            self._run(PastRound(beats=own), None)

    def discard(self) -> None:
        """Remove what has been read."""
        self._pins.close()
        self._contents.discard()
        forget_warm(str(self._past.root))
        storage().remove_tree(self._past.root)
        let_go(str(self._past.root))


def past_starts(known: KnownPast, plan: Plan, starts: Mapping[str, Start], bounds: Bounds) -> dict[str, PastStart]:
    """Return from where the past of each source is read.

    Args:
        plan: of the queries that begin with `starts`.
        bounds: what does not matter to them.

    Raises:
        PenstockError: P0607, P0703 where that is not possible.
    """
    skipped = {name: None if bound is None else bound.skipped for name, bound in bounds.items()}
    found = {n: known.start(source, skipped[n], plan.needed_columns(n)) for n, source in plan.sources.items()}
    missing = {name: plan.sources[name] for name, start in found.items() if start is None}
    # When what has been closed was closed is not known any more.
    closed = {name for query in plan.queries.values() for name in closed_by_punctuations(query.root)}
    missing |= {name: plan.sources[name] for name in sorted(closed & known.offset.punctuations.keys())}
    if missing:
        raise not_kept(starts, plan, missing)
    return {name: start for name, start in found.items() if start is not None}


def check_past(folder: Folder, epoch: Epoch, plan: Plan) -> None:
    """Check that the past of the new queries of `epoch` can be read. Raises PenstockError P0607, P0703."""
    if epoch.backfill and epoch.offset is not None:
        offset, started = delivered_part(folder, epoch.offset), epoch.started
        known = KnownPast(folder, epoch.births, offset)
        starts = {name: start for name, start in started.items() if start.mode is not StartMode.NOW}
        part = part_of(plan, starts)
        past_starts(known, part, starts, bounds_of([plan.queries[name] for name in starts], starts, known, part))
        check_contents(known, [plan.queries[name] for name in started.keys() - starts.keys()])
