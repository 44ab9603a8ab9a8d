"""Change the queries of a run while it runs.

Between two rounds, when the answers of the last are delivered, the run takes over another plan: a new epoch in the same
log. Queries that stay the same keep their state and their sinks; their operators stay in the workers' memory
(`StageExecutor.graft`). Writing the epoch's file makes the change: a start after a crash finds the old queries before
that, and the new ones afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import over_sources
from penstock.algebra.properties.need import AwaitedRows
from penstock.connectors.contract import Sink
from penstock.errors import PenstockError, log_internal
from penstock.runtime.live.starts import StartOption
from penstock.runtime.spark.changes.planned_epoch import StartRequest
from penstock.runtime.spark.changes.prefetch import Prefetch, Share
from penstock.runtime.spark.changes.restart_decision import StartKind, decide_change
from penstock.runtime.spark.checkpoint.epochs import Epoch, remove_epoch_on_failure, write_epoch
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.backfill import backfill
from penstock.runtime.spark.hydration.catch_up import check_past
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.hydration.past_input import KnownPast, ReadTicks, delivered_part, past_of_run
from penstock.runtime.spark.hydration.relation_contents import relations_of
from penstock.runtime.spark.hydration.start_options import (
    awaited_of,
    heartbeat_at,
    is_posted,
    start_option,
    start_options,
)
from penstock.runtime.spark.job import SparkRun
from penstock.runtime.spark.output.recorded_sink import opened_sinks
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import WithheldAnswers
from penstock.runtime.spark.start import (
    admitted,
    check_sources,
    closed_on_failure,
    keep_results,
    open_results,
    prepare,
    sources_to_spool,
    start_request,
    state_of_parts,
    warn_of_unbounded,
    withdrawn_on_failure,
    write_seeds,
    write_spool,
)
from penstock.runtime.spark.version import JobChange
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker.job_files import job_kept_on_failure


class RunningJob(Protocol):
    """The properties of a run that a change reads."""

    @property
    def job(self) -> Job:
        """Return the job as it is now."""

    @property
    def epoch(self) -> Epoch:
        """Return the epoch in which it is, as its file has it."""

    @property
    def sinks(self) -> Mapping[str, Sink]:
        """Return the sink of each query."""

    @property
    def relations(self) -> KeptRelations:
        """Return the updated relations that it keeps for readers."""

    @property
    def work(self) -> Work:
        """Return what the run does."""


def change(run: SparkRun, work: Work, overwrite: bool, prepared: Prefetch | None = None) -> None:
    """Continue a live run with `work`.

    Args:
        overwrite: new queries may write into results that exist.
        prepared: what its new queries have read of their past; where it does not fit, it is read again.

    Raises:
        PenstockError: as a start, and P0701 where the run has ended or is not live. The run then continues unchanged.
    """
    folder = Folder(run.checkpoint / "penstock")
    check_sources(work)
    with run.hydration.change():
        ahead = prepared
        if ahead is None and run.is_live:
            ahead = hydrate(folder, run, work)
        try:
            if ahead is not None and ahead is not prepared:
                run.hydration.begin(ahead)
                share = float(work.settings["hydrate_share"])
                ahead.read(Share(share, lambda: run.busy))
            run.change(lambda: begin_change(folder, run, work, overwrite, ahead))
        except BaseException:
            if ahead is not None:
                ahead.discard()
            raise


def options_of_start(run: SparkRun, query: Query) -> list[StartOption]:
    """Return which modes of START the new query `query` could have in a run now."""
    return start_options(_as_read(run, query), _past(run))


def option_of_start(run: SparkRun, query: Query, start: Start) -> StartOption:
    """Return whether the new query `query` could begin with `start` in a run now."""
    return start_option(_as_read(run, query), start, _past(run))


def rows_awaited(run: SparkRun, query: Query, known: ReadTicks) -> AwaitedRows | None:
    """Return for which rows the new query `query` waits that begins WARM WAIT (`awaited_rows`). known: the ticks in
    retained files, by path; those that are read are added."""
    return awaited_of(_as_read(run, query), _past(run), known)


def _as_read(run: SparkRun, query: Query) -> Query:
    """Return `query` over the sources as the run reads them."""
    return replace(query, root=over_sources(query.root, run.work.declared))


def _past(run: SparkRun) -> KnownPast:
    return past_of_run(Folder(run.checkpoint / "penstock"), run.epoch)


def hydrate(folder: Folder, run: RunningJob, work: Work) -> Prefetch | None:
    """Return what reads the past of new queries of `work` before they begin; None where they need none. Raises
    PenstockError as the change.
    """
    if not _may_read_past(run.work, work):
        return None
    for _, source in sources_to_spool(work):
        write_spool(work, source, folder)
    request = _request(folder, run, replace(admitted(work, folder, run.epoch), cache=run.work.cache))
    ahead = Prefetch(folder, lambda: run.epoch, request, work.settings, run.job.intake.parallelism, run.relations)
    return ahead if ahead.catching_up is not None else None


def _request(folder: Folder, run: RunningJob, work: Work) -> StartRequest:
    """Return the request of a change of a run."""
    return replace(start_request(work, folder), former=run.job.plan.queries)


def _may_read_past(before: Work, after: Work) -> bool:
    """Return whether queries that a change adds may begin with a past that is read before it."""
    if any(start.mode is not StartMode.NOW for start in after.all_starts.values()):
        return True
    standing = {id(query.root) for query in before.queries}
    relations = relations_of(query for query in after.queries if id(query.root) not in standing)
    return any(not is_posted(relation) for relation in relations.values())


def leave_out(folder: Folder, run: RunningJob, failed: Collection[str]) -> JobChange | None:
    """Continue a live run without the queries `failed`, whose results stay; None where it does so already."""
    return begin_change(folder, run, replace(run.work.without(failed), moved={}), False)


def _retains_otherwise(job: Job, request: StartRequest) -> bool:
    """Return whether a change makes a stream retain something else, or be measured otherwise: neither is a part of what
    the stream is."""
    declared = request.declared
    return any(
        (one.retain, one.retain_columns, one.is_observed)
        != (declared[one.name].retain, declared[one.name].retain_columns, declared[one.name].is_observed)
        for one in job.intake.sources
        if one.is_stream and one.name in declared
    )


def _check_in_step(work: Work, offset: Offset) -> None:
    """Raise PenstockError P0701 where a query would take the place of one that has not answered all instants which it
    has passed. offset: up to which the sources have been read."""
    if not work.in_step:
        return
    queries = {query.name: query for query in work.queries}
    for name in sorted(work.in_step & queries.keys()):
        # It has the place of the former one, which has its place now.
        new, former = (heartbeat_at(queries[each], offset) for each in (name, work.moved[name]))
        if new > former:
            hint = "try again"
            raise PenstockError("P0701", f"query {name} is ahead of the one whose place it is to take", hint=hint)


def begin_change(
    folder: Folder, run: RunningJob, work: Work, overwrite: bool, ahead: Prefetch | None = None
) -> JobChange | None:
    """Write everything of a change to the checkpoint and open the sinks of new queries; None where nothing changes. No
    round may be outstanding. Where only the commands change, the epoch stays and records them.

    Args:
        ahead: what new queries have read before.
    """
    current = run.epoch
    work = replace(admitted(work, folder, current), cache=run.work.cache)
    work.cache.keep_only(work.queries)
    request = _request(folder, run, work)
    read_ahead = None if ahead is None else ahead.read_ahead
    decision = decide_change(request, folder, current, _retains_otherwise(run.job, request), read_ahead)
    if decision.kind is StartKind.SAME:
        _set_bounds(run.sinks, work)
        if decision.epoch != current:
            write_epoch(folder, decision.epoch)
        if decision.epoch == current:
            return None
        return JobChange(work, decision.epoch, run.job, "", None, run.sinks, ())
    offset = decision.epoch.offset
    assert offset is not None, "an epoch that follows another one begins with an offset"
    _check_in_step(work, delivered_part(folder, offset))
    check_past(folder, decision.epoch, decision.plan)
    kept_sinks = decision.kept_sinks - decision.resumed
    new_queries = [query for query in work.queries if query.name not in kept_sinks]
    new_sinks = opened_sinks(new_queries, folder, work.standing)
    sinks = dict(run.sinks)
    for name in sinks.keys() - decision.epoch.queries.keys():
        del sinks[name]
    sinks |= new_sinks
    begun = tuple(sink for name, sink in new_sinks.items() if name not in decision.kept_sinks)
    with ExitStack() as stack:
        stack.enter_context(closed_on_failure(new_sinks))
        stack.enter_context(job_kept_on_failure(folder))
        stack.enter_context(remove_epoch_on_failure(folder, decision.epoch.number))
        open_results(folder, new_sinks, decision, overwrite, work)
        stack.enter_context(withdrawn_on_failure(begun))
        write_seeds(folder, decision)
        births = {decision.epoch.queries[name].birth for name in decision.fresh}
        state = state_of_parts(request.cache.parts_of(births))
        warn_of_unbounded(state, decision.fresh)
        # Steps of a part that had to be planned again have other numbers.
        births = {record.birth for record in decision.epoch.queries.values()}
        horizons = {**state.horizons, **state_of_parts(request.cache.parts_without_state(births)).horizons}
        job, digest = prepare(work, request, decision, folder, run.job.intake.parallelism)
        # Names begin with the number of the step; those that are shared with standing queries are not the plan's.
        horizons = {name: s for name, s in horizons.items() if int(name.partition(" ")[0]) in job.plan.by_id}
        # Done after everything that can fail, so that a failed change keeps the records of queries that would end.
        ResultParts(folder).keep_only(decision.kept_sinks | decision.epoch.paused.keys())
        fits = ahead is not None and ahead.fits(job, folder.read_tables(job.plan.statics))
        if ahead is not None and not fits:
            ahead.discard()
        reading = ahead.catching_up if ahead is not None and fits else None
        backfill(folder, job, decision.epoch, sinks, reading, run.relations)
        UndeliveredAnswers(folder).keep_only(decision.epoch.paused)
        WithheldAnswers(folder).keep_only(decision.epoch)
        _set_bounds(sinks, work)
    try:
        keep_results(folder, decision.epoch)
        run.relations.keep_only(job.intake.sources, job.intake.births)
    except Exception as error:
        # The change is on disk. The next one forgets what this one has not.
        log_internal(error, "what a change ends cannot be forgotten")
    return JobChange(work, decision.epoch, job, digest, offset, sinks, decision.notices, horizons, begun)


def _set_bounds(sinks: Mapping[str, Sink], work: Work) -> None:
    """Have open sinks go on with the bounds that their queries have now."""
    for query in work.queries:
        sink = sinks.get(query.name)
        if sink is not None and sink.query is not query and sink.query.sink != query.sink:
            sink.set_bounds(query)
