"""Change the queries of a run while it goes on.

Between two rounds, when the answers of the last are delivered, the run takes over another plan: a new epoch in the same
log. Queries that stay the same keep their state and their sinks; their operators stay in the workers' memory
(`StageExecutor.graft`). The epoch's file is what makes the change: a start after a crash finds the old queries before
it, and the new ones from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.connectors.contract import Sink
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.backfill import backfill
from penstock.runtime.spark.checkpoint.epochs import read_epoch, taken_back_on_failure
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.checkpoint.restart_decision import StartKind, decide_change
from penstock.runtime.spark.job import Changed, SparkRun
from penstock.runtime.spark.launch import Work, check_sources, closed_on_failure, given, open_results, prepare
from penstock.runtime.spark.output.result_parts import ResultParts


class Running(Protocol):
    """What a change must know of a run."""

    @property
    def job(self) -> Job:
        """Return the job as it is now."""

    @property
    def sinks(self) -> Mapping[str, Sink]:
        """Return the sink of each query."""


def change(run: SparkRun, work: Work, overwrite: bool) -> None:
    """Let a live run go on with `work`.

    Args:
        overwrite: new queries may write into results that exist.

    Raises:
        PenstockError: as a start, and P0701 where the run has ended or is not live. The run goes on as it was then.
    """
    if not work.queries:
        raise PenstockError("P0701", "the last query of a run cannot be dropped", hint="stop the run")
    folder = Folder(run.checkpoint / "penstock")
    check_sources(work)
    run.change(lambda: begin_change(folder, run, work, overwrite))


def begin_change(folder: Folder, run: Running, work: Work, overwrite: bool) -> Changed | None:
    """Write everything of a change to the checkpoint and open the sinks of new queries; None where nothing changes. No
    round may be outstanding.
    """
    before = read_epoch(folder, run.job.epoch)
    request = given(work, folder)
    decision = decide_change(request, folder, before)
    if decision.kind is StartKind.SAME:
        return None
    offset = decision.epoch.offset
    assert offset is not None, "an epoch that follows another one begins with an offset"
    staying = {name: sink for name, sink in run.sinks.items() if name in decision.kept_sinks}
    fresh = {query.name: open_sink(query) for query in work.queries if query.name not in staying}
    sinks = {query.name: (staying | fresh)[query.name] for query in work.queries}
    with closed_on_failure(fresh), taken_back_on_failure(folder, decision.epoch.number):
        open_results(folder, fresh, decision, overwrite, work.settings.get_int("results_max_bytes"))
        job, digest = prepare(work, request, decision, folder, run.job.intake.parallelism)
        # A change that fails before leaves the record of what ends.
        ResultParts(folder).keep_only(decision.kept_sinks)
        backfill(folder, job, decision.epoch, sinks)
    return Changed(job, digest, offset, sinks, decision.notices)
