"""Queries that begin late read the past of their sources first (`penstock run --backfill`).

The past is what the rounds of the run have read: the splits of each source up to the offset that the epoch begins with.
It is read in this process, in at most as many rounds as the run had batches, so that the answers stand in the sinks
under numbers before the epoch's own. What state comes of it lies under `backfill/` until the first batch of the epoch
takes it up. A start that breaks off in between does all of it again, with the same result.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.connectors.contract import Sink, Stretch
from penstock.connectors.deadletters import DeadLetters
from penstock.physical.answers import answer_table
from penstock.physical.planner import part_of
from penstock.runtime.spark.epochs import Epoch, source_file
from penstock.runtime.spark.feed import Feed, Offset
from penstock.runtime.spark.folder import Folder, Intake, Job, Seen
from penstock.runtime.spark.inline import run_round
from penstock.runtime.spark.pace import Pace
from penstock.runtime.spark.rejections import write_rejections
from penstock.runtime.spark.state_files import past_of


class PastFeed(Feed):
    """Gives what has been read before, and nothing that is new; no source ends in the past."""

    def _discover(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        return {}

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> list[str]:
        return []

    def _told(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        return {}

    def _forget(self, start: Offset) -> None:
        # What is kept of the past is the run's own.
        return

    @property
    def _by_clock(self) -> bool:
        return False


def backfill(folder: Folder, job: Job, epoch: Epoch, sinks: Mapping[str, Sink]) -> None:
    """Let the queries of `epoch` that are to read their past do so, unless they have done it."""
    mark = f"backfilled-{epoch.number}"
    if not epoch.backfill or folder.read_mark(mark):
        return
    past = Folder(past_of(str(folder.root), epoch.number))
    shutil.rmtree(past.root, ignore_errors=True)
    past.root.mkdir(parents=True)
    only = _job_of_the_past(folder, past, job, epoch)
    feed = PastFeed(past, only.intake)
    tables = folder.read_tables(only.plan.statics)
    offset: Offset = feed.start()
    for batch in range(epoch.base):
        after = feed.next(offset)
        if after["done"] == offset["done"]:
            break
        outcome = run_round(past, only, tables, feed.pieces(offset, after), batch)
        for name in epoch.backfill:
            sinks[name].write(batch, answer_table(only.plan.queries[name], outcome.answers.get(name, [])))
        write_rejections(outcome.rejected, only.plan.sources, DeadLetters(folder.dead_letters), batch, epoch.number)
        offset = after
    folder.write_mark(mark, True)


def _job_of_the_past(folder: Folder, past: Folder, job: Job, epoch: Epoch) -> Job:
    """The job of the queries to backfill alone; what its sources have given is noted in `past`."""
    plan = part_of(job.plan, epoch.backfill)
    begun: dict[str, Any] = (epoch.offset or {}).get("before") or epoch.offset or {"done": {}}
    sizes: list[int] = []
    for name in plan.sources:
        file = source_file(name, job.intake.births)
        splits = folder.read_splits(file)[: begun["done"].get(name, 0)]
        past.write_splits(file, splits)
        sizes += [max(1, split.bytes) for split in splits]
    # Every round but the last takes more than the limit less the largest split: that makes fewer than `base` rounds.
    enough = 2 * math.ceil(sum(sizes) / max(1, epoch.base)) + max(sizes, default=0)
    limit = max(job.intake.pace.max_bytes, enough if epoch.base > 1 else sum(sizes))
    intake = Intake(
        tuple(plan.sources.values()), frozenset(), job.intake.parallelism, births=job.intake.births,
        pace=Pace(max_bytes=limit),
    )  # fmt: skip
    return replace(job, plan=plan, intake=intake, drain=False, base=0)
