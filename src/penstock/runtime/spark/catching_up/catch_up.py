"""Catching up: queries that begin in a running job first read the past of their sources, in this process.

The past is what the rounds of the run have read up to an offset (`past_input.py`). It is read in rounds of its own,
with the plan of the new queries alone; what they answer is folded or kept (`past_answers.py`), and their state lies
under `backfill/` until the first batch of their epoch loads it. Several queries catch up together.

Much of it happens ahead of the change, beside the rounds of the run: up to the present offset, then again for what the
run has read meanwhile, until that is one round. The change itself, between two rounds, reads the rest. Nothing of this
counts before the change has happened: an interrupted one is thrown away and done again, with the same result.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.algebra.nodes.query import Start, StartMode
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import part_of
from penstock.runtime.spark.catching_up.past_answers import PastAnswers
from penstock.runtime.spark.catching_up.past_input import (
    KnownPast,
    PastStart,
    SplitPlanner,
    merged,
    numbered,
    tasks_of,
    with_beats,
)
from penstock.runtime.spark.catching_up.start_options import earliest, not_kept
from penstock.runtime.spark.checkpoint.epochs import Epoch, source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job
from penstock.runtime.spark.checkpoint.state_files import backfill_root
from penstock.runtime.spark.checkpoint.totals import RunTotals
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.rate_control import RateControl
from penstock.runtime.spark.input.round_history import ReadRound, RoundHistory
from penstock.runtime.spark.output.rejections import write_rejections
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.worker.inline import Outcome, run_round
from penstock.runtime.spark.worker.stage import forget_warm
from penstock.storage import storage

#: Called after each part of the past with the seconds that it took.
Pause = Callable[[float], None]


class CatchUp:
    """The past of some queries of a job, as far as it has been read.

    Args:
        job: with the plan of all queries.
        starts: how those queries begin that read a past.
        tables: the static relations of the job.
    """

    def __init__(self, folder: Folder, job: Job, starts: Mapping[str, Start], tables: Mapping[str, Elements]) -> None:
        self._folder = folder
        self._past = Folder(backfill_root(str(folder.root), job.epoch))
        storage().remove_tree(self._past.root)
        self._past.begin_run()
        plan = part_of(job.plan, starts)
        self.starts = dict(starts)
        self._births = job.intake.births
        self._limit = job.intake.pace.max_bytes
        intake = Intake(
            tuple(plan.sources.values()), frozenset(), job.intake.parallelism, births=self._births,
            pace=RateControl(max_bytes=self._limit),
        )  # fmt: skip
        self.job = replace(job, plan=plan, intake=intake, drain=False, base=0)
        self._tables = {name: tables[name] for name in plan.statics}
        answers = self._past.root / "answers"
        self._answers = {
            name: PastAnswers(plan.queries[name], start, answers / str(number))
            for number, (name, start) in enumerate(starts.items())
        }
        self._starting: dict[str, PastStart] = {}
        #: The progress of sources of which the beginning is skipped, until a round has it.
        self._skipped: dict[str, SourceProgress] = {}
        self._began = False
        #: The round of the run up to which the past has been read.
        self.reached = 0
        self._rounds = 0
        self._bytes = 0
        self._all_bytes = 0
        self._malformed: dict[str, Counter[str]] = {}

    @property
    def share(self) -> float:
        """Return which part of the past has been read, of what is known."""
        return min(1.0, self._bytes / self._all_bytes) if self._all_bytes else float(self._began)

    # -- reading -----------------------------------------------------------------------------------------------

    def read_up_to(self, offset: Offset, pause: Pause | None = None) -> None:
        """Read what the run has read up to the round of `offset`. Raises PenstockError P0703 where that is no longer
        possible."""
        if not self._began:
            self._begin(offset, pause)
            return
        rounds = RoundHistory(self._folder).until(offset.round, self.reached)
        if len(rounds) < offset.round - self.reached:
            raise PenstockError(
                "P0703", "the rounds that were read meanwhile are no longer recorded", hint="start the queries again"
            )
        self._read(rounds, dict.fromkeys(self.job.plan.sources, 0), pause)
        self.reached = offset.round

    def _begin(self, offset: Offset, pause: Pause | None) -> None:
        known = KnownPast(self._folder, self._births, offset)
        bound = earliest(self.job.plan, self.starts, offset)
        self._starting = past_starts(known, self.job.plan, self.starts, bound)
        for name, start in self._starting.items():
            if start.high is not None:
                assert bound is not None, "only what is older than a bound is skipped"
                self._skipped[name] = SourceProgress(bound, start.high)
        self._began = True
        skipped = {name: start.task for name, start in self._starting.items()}
        splits = [split for start in self._starting.values() for split in start.splits]
        self._all_bytes += sum(max(1, split.bytes) for split in splits)
        if splits:
            self._read_splits(pause)
        self._read(known.rounds, skipped, pause)
        self.reached = offset.round

    def _read_splits(self, pause: Pause | None) -> None:
        """Read what came before the rounds were recorded."""
        for name, start in self._starting.items():
            self._past.write_splits(source_file(name, self._births), start.splits)
        planner = SplitPlanner(self._past, self.job.intake)
        offset = planner.start()
        offset = replace(offset, high={name: start.high for name, start in self._starting.items()})
        while (after := planner.next(offset)).done != offset.done:
            self._run(planner.pieces(offset, after), after.read, pause)
            # What the round has seen goes by its own number.
            offset = after

    def _read(self, rounds: list[ReadRound], skipped: Mapping[str, int], pause: Pause | None) -> None:
        left = dict(skipped)
        chosen: dict[int, list[ReadTask]] = {}
        for known in rounds:
            for name in self.job.plan.sources:
                tasks = tasks_of(known, name, self._births)
                chosen.setdefault(known.number, []).extend(tasks[left[name] :])
                left[name] = max(0, left[name] - len(tasks))
        splits = (split for tasks in chosen.values() for task in tasks for split in task.splits)
        self._all_bytes += sum(max(1, split.bytes) for split in splits)
        for part in merged(rounds, chosen, self._limit, self.job.plan.sources):
            self._run(part.tasks, part.bytes, pause)

    def _run(self, tasks: list[ReadTask], size: int, pause: Pause | None) -> None:
        began = time.monotonic()
        # Rounds of the past are numbered from 1, as those of its planner are.
        pieces = numbered(tasks, self._rounds + 1)
        outcome = run_round(self._past, self.job, self._tables, pieces, self._rounds, self._skipped)
        self._skipped = {}
        self._take(outcome)
        self._past.forget_seen(f"{self._rounds:09d}")
        self._rounds += 1
        self._bytes += size
        if pause is not None:
            pause(time.monotonic() - began)

    def _take(self, outcome: Outcome) -> None:
        beats = outcome.heartbeats.queries if outcome.heartbeats is not None else {}
        for name, answers in self._answers.items():
            answers.take(outcome.answers.get(name, ()), beats.get(name, NOTHING))
        # The rejections of a relation are counted by the queries whose whole answer is emitted.
        if any(start.mode is StartMode.BEGINNING for start in self.starts.values()):
            letters = DeadLetters(self._folder.dead_letters)
            counts = write_rejections(outcome.rejected, self.job.plan.sources, letters, self._rounds, self.job.epoch)
            for source, reasons in counts.items():
                self._malformed.setdefault(source, Counter()).update(reasons)

    # -- the change --------------------------------------------------------------------------------------------

    def finish(self, offset: Offset, base: int, sinks: Mapping[str, Sink]) -> None:
        """Read up to `offset`, at which the queries join the others, and write what they answer of the past to their
        sinks, as batches before `base`."""
        self.read_up_to(offset)
        self._advance_to(offset)
        rows: dict[str, int] = {}
        batches = 0
        parts = ResultParts(self._folder)
        for name, answers in self._answers.items():
            start = self.starts[name]
            if start.at is not None and start.at > answers.reached:
                raise _ahead(name)
            tables = answers.tables(base)
            for batch, table in enumerate(tables[:base]):
                sinks[name].write(batch, table)
                parts.note(batch, {name: table.num_rows}, sinks)
            rows[name] = sum(table.num_rows for table in tables)
            batches = max(batches, len(tables))
        RunTotals(self._folder).backfilled(self.job.epoch, rows, self._malformed, batches)
        forget_warm(str(self._past.root))

    def _advance_to(self, offset: Offset) -> None:
        """Advance time to what the clock and the sources reported up to `offset`."""
        beats = dict(offset.reported)
        for name, tick in (offset.wall.beats if offset.wall is not None else {}).items():
            beats[name] = max(tick, beats.get(name, tick))
        own = {name: tick for name, tick in beats.items() if name in self.job.plan.sources}
        if own or self._skipped:
            self._run(with_beats([], own), 0, None)

    def discard(self) -> None:
        """Remove what has been read."""
        forget_warm(str(self._past.root))
        storage().remove_tree(self._past.root)


def past_starts(known: KnownPast, plan: Plan, starts: Mapping[str, Start], bound: int | None) -> dict[str, PastStart]:
    """Return from where the past of each source is read.

    Args:
        plan: of the queries that begin with `starts`.
        bound: the tick up to which no element matters to them.

    Raises:
        PenstockError: P0607, P0703 where that is not possible.
    """
    found = {name: known.start(source, bound) for name, source in plan.sources.items()}
    missing = {name: plan.sources[name] for name, start in found.items() if start is None}
    if missing:
        raise not_kept(starts, plan, missing)
    return {name: start for name, start in found.items() if start is not None}


def check_past(folder: Folder, epoch: Epoch, plan: Plan) -> None:
    """Check that the past of the new queries of `epoch` can be read. Raises PenstockError P0607, P0703."""
    if epoch.backfill and epoch.offset is not None:
        offset, starts = epoch.offset.before or epoch.offset, epoch.started
        part = part_of(plan, starts)
        past_starts(KnownPast(folder, epoch.births, offset), part, starts, earliest(part, starts, offset))


def _ahead(query: str) -> PenstockError:
    return PenstockError(
        "P0703", f"query {query}: START AT a time that its sources have not reached",
        hint="START WARM begins at the time that they have reached",
    )  # fmt: skip
