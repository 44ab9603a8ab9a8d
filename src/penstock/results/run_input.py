"""What one-time queries read of the input of a run: retained elements of streams, and updates of relations, as of the
round that was delivered last.

Contract: files that are read are pinned from the moment at which the state is fixed, under the lock of the rounds,
until the query has ended; a start of the run removes all pins. A round that is delivered meanwhile, or that is under
way, adds files of later rounds, which are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.properties.promises import PromiseMode
from penstock.connectors.contract import Sink
from penstock.connectors.results.batch_file import BatchFile
from penstock.connectors.results.result_folder import ResultFolder
from penstock.connectors.sources.posted_files import post_of, rows_files
from penstock.errors import PenstockError, as_name
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ResultContents
from penstock.results.live_state import (
    LivePast,
    LiveState,
    LiveUpdates,
    ResultElements,
    answers_at,
    state_of_results,
)
from penstock.results.source_rows import (
    AcceptedUpdates,
    RetainedRows,
    RowsInMemory,
    SourceRows,
    check_declared,
    check_retained,
    elements_between,
    update_rows,
)
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.kept_relations import KeptRelation, KeptRelations
from penstock.runtime.spark.hydration.past_input import KnownPast
from penstock.runtime.spark.hydration.start_options import is_posted
from penstock.runtime.spark.hydration.update_reader import UpdateSource
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.retention.compacted_updates import CompactedUpdates
from penstock.runtime.spark.retention.rejected_log import RejectedLog
from penstock.runtime.spark.retention.retained_log import Pins, RetainedLog
from penstock.types import END


@dataclass(frozen=True)
class RetainedPast:
    """The retained elements of one stream, up to a round.

    Args:
        read_as: the declaration with which the run reads it.
        log: the name of its log in the folder of the run.
        heartbeat: the tick up to which they are complete.
        round: the last round that is read.
    """

    read_as: Source
    root: Path
    log: str
    heartbeat: int
    round: int

    @property
    def dropped(self) -> int | None:
        gone = [log.after for log in self._logs if log.is_begun]
        return max((tick for tick in gone if tick is not None), default=None)

    @property
    def _logs(self) -> list[RetainedLog]:
        """Return the logs that are read: what is retained, and where it is checked what was rejected of that."""
        folder = Folder(self.root)
        rejected = [RejectedLog(folder, self.log).log] if self.read_as.is_checked else []
        return [RetainedLog(folder, self.log), *rejected]

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        check_retained(source, self.read_as, columns)
        logs = self._logs
        if not all(log.is_begun for log in logs):
            raise PenstockError(
                "P0721",
                f"which rows of {source.name} its promises that are CHECKED have rejected is not known",
                hint=f"it is known at a server, from when {source.name} is retained",
            )
        files = [
            tuple(f for f in log.files(0, self.round) if f.low <= up_to and (after is None or f.high > after))
            for log in logs
        ]
        names = tuple(one.name for one in self.read_as.promises if one.mode is PromiseMode.CHECKED)
        rejected = files[1] if names else ()
        return RetainedRows(source, self.root, self.log, files[0], columns, after, up_to, rejected, names)


@dataclass(frozen=True)
class RelationUpdates:
    """The updates of one relation, up to a round.

    Args:
        read_as: the declaration with which the run reads it.
        root: the folder of the run.
        kept: the relation as the run keeps it for all readers.
        known: what had been read when the round was delivered.
    """

    read_as: Source
    root: Folder
    heartbeat: int
    kept: KeptRelation
    known: KnownPast

    def updates(
        self, source: Source, up_to: int, back: int | None, often: bool, check: Callable[[], None]
    ) -> SourceRows:
        check_declared(source, self.read_as)
        high = self.known.offset.high.get(source.name)
        if up_to == NOTHING or high is None:
            return RowsInMemory(update_rows(source, ()))
        if back is not None:
            view = self.kept.view(self.known, min(up_to, high) - back, often, lambda size, seconds: check())
            if view is not None:
                return RowsInMemory(update_rows(source, elements_between(view.parts, None, up_to)))
        compacted = self.known.compacted(self.read_as.name)
        if not compacted.serves(None if back is None else min(up_to, high) - back):
            raise _folded(source, compacted)
        steps = UpdateSource(self.root, self.read_as).unread(self.known, (compacted.round, compacted.splits))
        if steps is None:
            raise PenstockError(
                "P0721",
                f"the updates of {source.name} cannot be read again, and its content is not kept",
                hint=f"CREATE QUERY q AS SELECT * FROM {as_name(source.name)}, and read q",
            )
        tasks = tuple(task for step in steps for task in step.tasks)
        return AcceptedUpdates(source, self.read_as, compacted, tasks, up_to)


class ReadRun(Protocol):
    """A run as far as its input is read."""

    @property
    def checkpoint(self) -> Path: ...

    @property
    def job(self) -> Job:
        """Return the job; it changes under the lock of the rounds."""

    @property
    def rounds(self) -> RoundLog | None:
        """Return its rounds, None where Spark plans them."""

    @property
    def relations(self) -> KeptRelations:
        """Return the updated relations that it keeps for readers."""

    @property
    def sinks(self) -> Mapping[str, Sink]: ...


@dataclass(frozen=True)
class RunInput:
    """What the sources of a run had given when a round was delivered. All names are in lower case.

    Args:
        batch: of the answers of that round, -1 before the first.
        delivered: when it was delivered, in seconds since 1970; None where that is not known.
        answers: the file with the heartbeats of queries then, None without one.
        newest: by source that has rows, the largest tick that had been read of it.
    """

    batch: int
    delivered: float | None = None
    past: Mapping[str, LivePast] = field(default_factory=dict)
    updates: Mapping[str, LiveUpdates] = field(default_factory=dict)
    answers: BatchFile | None = None
    newest: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def pinned_input(run: ReadRun, reader: str, names: Collection[str]) -> Iterator[RunInput]:
    """Give what a one-time query reads of a run, and keep it from being removed while the context lasts.

    Args:
        reader: the id of the query, which no other has while this one runs.
        names: of the sources, in lower case.

    Raises:
        PenstockError: P0605, a file of the run is damaged.
    """
    rounds = run.rounds
    if rounds is None:
        yield RunInput(-1)
        return
    folder, results = Folder(run.checkpoint / "penstock"), _results_of(run)
    with ExitStack() as pins:
        known = None
        while known is None:
            shown = -1 if results is None else results.last

            def begin(offset: Offset, batch: int, shown: int = shown) -> RunInput | None:
                answers = None if results is None else answers_at(results, batch)
                if results is not None and results.last > max(batch, shown):
                    # Another batch has become visible, and files of earlier ones may be gone: it is waited for.
                    return None
                past, updates = _kept_input(folder, run, rounds, offset, reader, names, pins)
                newest = {name.lower(): high for name, high in offset.high.items() if high is not None}
                return RunInput(batch, rounds.delivered_at, past, updates, answers, newest)

            known = rounds.delivered_state(begin, shown)
        yield known


def _results_of(run: ReadRun) -> ResultFolder | None:
    """Return the log of the answers that a run keeps itself, None without one."""
    places = [sink.own_place for sink in run.sinks.values() if sink.own_place is not None]
    return ResultFolder.at(places[0].folder) if places else None


def state_of_run(
    run: ReadRun,
    known: RunInput,
    queries: Mapping[str, tuple[str, Query]],
    contents: ResultContents,
    kept: Mapping[str, ResultElements] = MappingProxyType({}),
) -> LiveState:
    """Return what can be read of a run: its input, and the answers that it keeps, as of the batch of `known`.

    Args:
        queries: by name in lower case, the name in the run and the definition of each.
        contents: the contents of the relations in the folder of the results.
        kept: by name in lower case, what is left of the streams of queries that do not run.
    """
    sinks = {name: sink.own_place for name, sink in run.sinks.items()}
    places = {key: (query, place) for key, (name, query) in queries.items() if (place := sinks.get(name)) is not None}
    state = LiveState(known.batch, known.delivered)
    if places:
        folder = next(place.folder for _, place in places.values())
        ids = {key: (query, place.id) for key, (query, place) in places.items()}
        batch = None if run.rounds is None else known.batch
        state = state_of_results(folder, ids, contents, batch, known.answers)
    delivered = max((at for at in (state.delivered, known.delivered) if at is not None), default=None)
    # A query and a source never have the same name.
    return replace(
        state,
        batch=known.batch,
        delivered=delivered,
        past={**kept, **state.past, **known.past},
        updates=known.updates,
        newest={**known.newest, **newest_of(queries, known.newest)},
    )


def has_read(run: ReadRun, source: int, post: int) -> bool:
    """Return whether a run has delivered the round with a post of a source, and those before it, or reads none of them.
    Both are given by their numbers."""
    rounds, intake = run.rounds, run.job.intake
    for name, posts in intake.heartbeats.items():
        if rounds is not None and posts.option("source") == str(source):
            last = rounds.delivered_state(lambda offset, batch: offset.advanced.get(name, ""))  # noqa: B023 - called here
            return last.startswith(f"{source}.") and int(last.partition(".")[2]) >= post
    posted = (one for one in intake.sources if one.connector == "POSTED")
    found = next((one for one in posted if one.option("source") == str(source)), None)
    splits = None if rounds is None or found is None else rounds.splits(source_file(found.name, intake.births))
    if rounds is None or found is None or found.is_static or splits is None:
        return True
    done = rounds.delivered_state(lambda offset, batch: offset.splits_done(found.name))
    known = [post_of(split.path) for split in splits]
    if known and known[-1] >= post:
        return all(post_of(split.path) > post for split in splits[done:])
    # It has not been found yet, or has been read so long ago that its file is gone.
    files = rows_files(Path(found.option("spool")))
    return not any(max(known, default=-1) < post_of(str(path)) <= post for path in files)


def newest_of(queries: Mapping[str, tuple[str, Query]], newest: Mapping[str, int]) -> dict[str, int]:
    """Return by query the largest tick that has been read of its sources."""
    found: dict[str, int] = {}
    for key, (_, query) in queries.items():
        ticks = [newest[name.lower()] for name in declared_sources(query.root) if name.lower() in newest]
        if ticks:
            found[key] = max(ticks)
    return found


def _kept_input(
    folder: Folder,
    run: ReadRun,
    rounds: RoundLog,
    offset: Offset,
    reader: str,
    names: Collection[str],
    pins: ExitStack,
) -> tuple[dict[str, LivePast], dict[str, LiveUpdates]]:
    """Return what is kept of the sources `names` as of `offset`: elements of streams, and updates of relations."""
    intake = run.job.intake
    past: dict[str, LivePast] = {}
    updates: dict[str, LiveUpdates] = {}
    for source in intake.sources:
        key = source.name.lower()
        if key not in names:
            continue
        heartbeat = _heartbeat(source, offset)
        if not source.is_stream:
            kept = run.relations.of(source, intake.births)
            known = KnownPast(folder, intake.births, offset, rounds.splits)
            if is_posted(source):
                file = source_file(source.name, intake.births)
                pins.enter_context(Pins(folder).pinned(reader, file, known.compacted(source.name).splits))
            updates[key] = RelationUpdates(source, folder, heartbeat, kept, known)
        elif source.retain is not None:
            log = source_file(source.name, intake.births)
            pins.enter_context(Pins(folder).pinned(reader, log, None))
            past[key] = RetainedPast(source, folder.root, log, heartbeat, offset.round)
    return past, updates


def _heartbeat(source: Source, offset: Offset) -> int:
    if source.name in offset.ended:
        return END
    return offset.progress(source.name).heartbeat(source.slack)


def _folded(source: Source, compacted: CompactedUpdates) -> PenstockError:
    """Return the error for updates that are needed and are not kept one by one any more."""
    assert source.domain is not None and compacted.folded is not None, "updates have been folded"
    return PenstockError(
        "P0721",
        f"{source.name} is kept since {source.domain.show(compacted.folded)}, and the query needs it earlier",
        hint="ask for a later instant; relation_retention sets for how long updates are kept one by one",
    )
