"""Backfill: queries added to a running job first read the past of their sources (`penstock run --backfill`).

The past is what the rounds of the run have read: the splits of each source up to the offset at which the epoch begins.
It is read in this process, in at most as many rounds as the run had batches, so that the answers have batch numbers
below those of the epoch in the sinks. The resulting state is kept under `backfill/` until the first batch of the epoch
loads it. A start that is interrupted repeats all of the backfill, with the same result.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from penstock.connectors.contract import Sink, Stretch
from penstock.connectors.deadletters import DeadLetters
from penstock.physical.execution.answers import answer_table
from penstock.physical.planning.planner import part_of
from penstock.runtime.spark.checkpoint.epochs import Epoch, source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job, Seen
from penstock.runtime.spark.checkpoint.state_files import backfill_root
from penstock.runtime.spark.checkpoint.totals import RunTotals
from penstock.runtime.spark.input.input_planner import InputPlanner
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.rate_control import RateControl
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.rejections import write_rejections
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.worker.inline import run_round
from penstock.storage import storage


class BackfillInput(InputPlanner):
    """Plans input that was read before, and nothing new; no source ends in the past."""

    def _discover_files(self, start: Offset) -> None:
        return

    def _gathers(self, start: Offset, seconds: float | None) -> bool:
        return False

    def _log_stretches(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        return {}

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> tuple[str, ...]:
        return ()

    def _reported(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        return {}

    def _forget(self, start: Offset) -> None:
        # Records kept of the past belong to the run, so they are not removed here.
        return

    @property
    def _uses_wall_clock(self) -> bool:
        return False


def backfill(folder: Folder, job: Job, epoch: Epoch, sinks: Mapping[str, Sink]) -> None:
    """Run the backfill of `epoch`, unless it is already complete."""
    mark = f"backfilled-{epoch.number}"
    if not epoch.backfill or folder.read_mark(mark):
        return
    past_folder = Folder(backfill_root(str(folder.root), epoch.number))
    storage().remove_tree(past_folder.root)
    past_folder.begin_run()
    past_job = _job_of_the_past(folder, past_folder, job, epoch)
    planner = BackfillInput(past_folder, past_job.intake)
    tables = folder.read_tables(past_job.plan.statics)
    offset = planner.start()
    batches = 0
    rows: Counter[str] = Counter()
    malformed: dict[str, Counter[str]] = {}
    parts = ResultParts(folder)
    for batch in range(epoch.base):
        next_offset = planner.next(offset)
        if next_offset.done == offset.done:
            break
        outcome = run_round(past_folder, past_job, tables, planner.pieces(offset, next_offset), batch)
        row_counts: dict[str, int] = {}
        for name in epoch.backfill:
            table = answer_table(past_job.plan.queries[name], outcome.answers.get(name, []))
            sinks[name].write(batch, table)
            row_counts[name] = table.num_rows
        commit_logs({name: sinks[name] for name in epoch.backfill}, batch, {})
        parts.note(batch, row_counts, sinks)
        rows.update(row_counts)
        letters = DeadLetters(folder.dead_letters)
        counts = write_rejections(outcome.rejected, past_job.plan.sources, letters, batch, epoch.number)
        for source, reasons in counts.items():
            malformed.setdefault(source, Counter()).update(reasons)
        offset, batches = next_offset, batch + 1
    RunTotals(folder).backfilled(epoch.number, rows, malformed, batches)
    folder.write_mark(mark, True)


def _job_of_the_past(folder: Folder, past_folder: Folder, job: Job, epoch: Epoch) -> Job:
    """Return the job of the queries to backfill alone; the splits that its sources have read are written to `past`."""
    plan = part_of(job.plan, epoch.backfill)
    start = (epoch.offset.before or epoch.offset) if epoch.offset is not None else None
    sizes: list[int] = []
    for name in plan.sources:
        file = source_file(name, job.intake.births)
        splits = folder.read_splits(file)[: start.splits_done(name) if start is not None else 0]
        past_folder.write_splits(file, splits)
        sizes += [max(1, split.bytes) for split in splits]
    # Every round but the last reads more than the limit minus the largest split, so there are fewer than `base` rounds.
    limit_for_base = 2 * math.ceil(sum(sizes) / max(1, epoch.base)) + max(sizes, default=0)
    limit = max(job.intake.pace.max_bytes, limit_for_base if epoch.base > 1 else sum(sizes))
    intake = Intake(
        tuple(plan.sources.values()),
        frozenset(),
        job.intake.parallelism,
        births=job.intake.births,
        pace=RateControl(max_bytes=limit),
    )
    # A query that fails over its past does not begin.
    return replace(job, plan=plan, intake=intake, drain=False, base=0, isolated=False)
