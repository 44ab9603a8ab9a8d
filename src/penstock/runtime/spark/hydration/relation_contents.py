"""The contents of updated relations with which queries begin NOW in a running job.

START NOW cuts streams off, not relations: what the updates up to the query's heartbeat τ0 have made of a relation
happens at τ0, as one change, and later updates keep their instants. The updates are read again from the first one on,
folded while they are read (`live/history.py`), and run through the query when it begins, in one round. Of a relation
whose rows are posted, what has been compacted is read when the query begins, and the posts behind that.

Queries over the same sources have the same τ0. They form a group with a plan and a state of its own
(`contents_root`), since other queries that begin with the same change may have another past.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import Need
from penstock.physical.elements import Elements
from penstock.physical.execution.progress import NOTHING, SourceProgress, timed_sources
from penstock.physical.planning.planner import part_of
from penstock.runtime.live.history import History
from penstock.runtime.spark.checkpoint.folder import Folder, Job, round_name
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.start_provider import group_key
from penstock.runtime.spark.checkpoint.state_files import contents_root
from penstock.runtime.spark.hydration.kept_relations import KeptRelation, KeptRelations
from penstock.runtime.spark.hydration.past_input import KnownPast, tasks_of
from penstock.runtime.spark.hydration.start_options import (
    content_not_kept,
    has_content,
    heartbeat_at,
    is_posted,
)
from penstock.runtime.spark.hydration.update_reader import UpdateReader, bytes_of
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.round_history import ReadRound
from penstock.runtime.spark.worker.ingest import element_packets
from penstock.runtime.spark.worker.inline import Outcome, run_round
from penstock.runtime.spark.worker.packets import Packet
from penstock.runtime.spark.worker.stage import forget_warm


@dataclass
class _Relation:
    """What has been read of a relation.

    Args:
        kept: the relation as the run keeps it, where that is used in place of what is read here.
        first: the least timestamp of its updates.
        folded: the tick before which its content is not known.
    """

    source: Source
    history: History
    kept: KeptRelation | None = None
    first: int | None = None
    folded: int = NOTHING

    def add(self, elements: Elements, until: int) -> None:
        """Append updates; those up to the tick `until` may be folded."""
        if len(elements):
            least = int(elements.ts.min())
            self.first = least if self.first is None else min(self.first, least)
            self.history.add(elements)
            self.history.forget(until)


class RelationContents:
    """The contents of the relations that some queries of a job read, as far as they have been read.

    Args:
        folder: of the run.
        past: the folder of what reads its past in this epoch.
        starts: how queries begin; those that begin NOW are taken.
        tables: the static relations of the job.
        kept: the relations that the run keeps, None at its start.
    """

    def __init__(
        self,
        folder: Folder,
        past: Folder,
        job: Job,
        starts: Mapping[str, Start],
        tables: Mapping[str, Elements],
        kept: KeptRelations | None = None,
    ) -> None:
        self._folder = folder
        self._root = str(past.root)
        self._job = job
        self._tables = tables
        self._kept = kept
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, start in starts.items():
            if start.mode is StartMode.NOW:
                groups.setdefault(group_key(job.plan.queries[name]), []).append(name)
        self._groups = [groups[key] for key in sorted(groups)]
        self._queries = [job.plan.queries[name] for group in self._groups for name in group]
        relations = relations_of(self._queries)
        self._relations = {name: _Relation(source, History(source, 0)) for name, source in relations.items()}
        #: The others are read at once when the queries begin.
        self._read_ahead = {name: one for name, one in self._relations.items() if not is_posted(one.source)}
        #: Bytes of updates that are known, and of those that have been read.
        self.all_bytes = 0
        self.bytes = 0

    @property
    def reads_ahead(self) -> bool:
        """Return whether anything is read before the queries begin."""
        return bool(self._read_ahead)

    def begin(self, known: KnownPast, pause: Callable[[float], None] | None) -> None:
        """Read what the run has read of the relations. Raises PenstockError P0703."""
        check_contents(known, self._queries)
        tasks: list[ReadTask] = []
        for relation in self._read_ahead.values():
            if self._holds(relation, known):
                self._read_kept(relation, known, pause)
                continue
            tasks += self._tasks(relation, known)
        self._read(tasks, known.offset, pause)

    def _tasks(self, relation: _Relation, known: KnownPast) -> list[ReadTask]:
        """Return tasks that read all updates of a relation."""
        name = relation.source.name
        start = known.start(relation.source, None, range(len(relation.source.columns)))
        assert start is not None, "the relations have been checked"
        before = [ReadTask("", 0, name, start.splits)] if start.splits else []
        return before + known.tasks(name)

    def read_on(self, rounds: Sequence[ReadRound], offset: Offset, pause: Callable[[float], None] | None) -> None:
        """Read what the run has read meanwhile, in `rounds`, the last of which is that of `offset`."""
        known = KnownPast(self._folder, self._job.intake.births, offset)
        tasks: list[ReadTask] = []
        for name, relation in self._read_ahead.items():
            if relation.kept is not None:
                self._read_kept(relation, known, pause)
            else:
                tasks += [task for read in rounds for task in tasks_of(read, name, known.births)]
        self._read(tasks, offset, pause)

    def _holds(self, relation: _Relation, known: KnownPast) -> bool:
        """Use what the run keeps of a relation, from the instants on at which the queries may begin; return whether it
        is there."""
        if self._kept is None:
            return False
        kept = self._kept.of(relation.source, known.births)
        if kept.hold(self, known, self._least(relation, known.offset)):
            relation.kept = kept
        return relation.kept is not None

    def _least(self, relation: _Relation, offset: Offset) -> int:
        """Return the least heartbeat of the queries that read a relation."""
        readers = [query for query in self._queries if relation.source.name in timed_sources(query.root)]
        return min(heartbeat_at(query, offset) for query in readers)

    def _read_kept(self, relation: _Relation, known: KnownPast, pause: Callable[[float], None] | None) -> None:
        assert relation.kept is not None, "it is kept"

        def on_part(size: int, seconds: float) -> None:
            self.bytes += size
            if pause is not None:
                pause(seconds)

        self.all_bytes += relation.kept.missing_bytes(known)
        relation.kept.read_on(known, on_part)

    def _take_kept(self, relation: _Relation, known: KnownPast) -> bool:
        """Take over what the run keeps of a relation when the queries begin; return whether it keeps what they need."""
        if relation.kept is None and not (is_posted(relation.source) and self._holds(relation, known)):
            return False
        assert relation.kept is not None, "it is kept"
        view = relation.kept.view(known, self._least(relation, known.offset))
        relation.kept.release(self)
        relation.kept = None
        if view is None:
            return False
        relation.history.parts, relation.first = list(view.parts), view.progress.first
        return True

    def _read(self, tasks: Sequence[ReadTask], offset: Offset, pause: Callable[[float], None] | None) -> None:
        # No query begins before this instant, so the updates up to it may be folded.
        until = min((heartbeat_at(query, offset) for query in self._queries), default=NOTHING)
        self.all_bytes += sum(map(bytes_of, tasks))
        for task in tasks:
            began = time.monotonic()
            assert task.source is not None, "it reads a relation"
            relation = self._relations[task.source]
            reader = UpdateReader(relation.source, SourceProgress(None, task.high))
            for elements in reader.read_task(task):
                relation.add(elements, until)
            self.bytes += bytes_of(task)
            if pause is not None:
                pause(time.monotonic() - began)

    def finish(self, offset: Offset) -> Iterator[Outcome]:
        """Yield what the queries answer that begin at `offset`, and leave their state for the first batch with them.
        Raises PenstockError P0703."""
        known = KnownPast(self._folder, self._job.intake.births, offset)
        for relation in self._relations.values():
            was_kept = relation.kept is not None
            if not self._take_kept(relation, known) and (was_kept or is_posted(relation.source)):
                self._read_whole(relation, known)
        for number, group in enumerate(self._groups):
            folder = Folder(contents_root(self._root, number))
            folder.begin_run()
            plan = part_of(self._job.plan, group)
            job = replace(self._job, plan=plan, drain=False, base=0, isolated=False)
            read = {name: self._relations[name] for name in plan.sources.keys() & self._relations.keys()}
            # Its past happens at τ0. That may be earlier than what is known, since a source began later.
            tick = max([heartbeat_at(plan.queries[group[0]], offset), *(one.folded for one in read.values())])
            tables = {name: self._tables[name] for name in plan.statics}
            progress = {name: offset.progress(name) for name in plan.sources}
            packets: list[Packet] = []
            for name, relation in read.items():
                if relation.first is not None:
                    progress[name] = replace(progress[name], first=max(relation.first, tick))
                columns = plan.needed_columns(name)
                parts = relation.history.since(Need(), tick)
                updates = [part.with_columns([part.columns[c] for c in columns]) for part in parts]
                packets += element_packets(job, tables, name, updates, 0)
            yield run_round(folder, job, tables, [[ReadTask(round_name(1), 0, None)]], 0, progress, packets)
            forget_warm(str(folder.root))

    def _read_whole(self, relation: _Relation, known: KnownPast) -> None:
        """Read all updates of a relation when the queries begin."""
        if not is_posted(relation.source):
            self._read(self._tasks(relation, known), known.offset, None)
            return
        until = self._least(relation, known.offset)
        if _has_guessed_instants(known, relation.source, until):
            name = relation.source.name
            readers = [query.name for query in self._queries if name in timed_sources(query.root)]
            raise content_not_kept(", ".join(readers), [name])
        compacted = known.compacted(relation.source.name)
        relation.first = compacted.progress.first
        relation.folded = NOTHING if compacted.folded is None else compacted.folded
        for elements in compacted.read():
            relation.add(elements, until)
        reader = UpdateReader(relation.source, compacted.progress)
        for elements in _posted_updates(known, reader, relation.source):
            relation.add(elements, until)

    def discard(self) -> None:
        """Forget the executors of the groups, and need nothing of the run any more."""
        for relation in self._relations.values():
            if relation.kept is not None:
                relation.kept.release(self)
        for number in range(len(self._groups)):
            forget_warm(contents_root(self._root, number))


def relations_of(queries: Iterable[Query]) -> dict[str, Source]:
    """Return the updated relations that `queries` read."""
    found = {name: source for query in queries for name, source in timed_sources(query.root).items()}
    return {name: source for name, source in found.items() if not source.is_stream}


def check_contents(known: KnownPast, queries: Sequence[Query]) -> None:
    """Check that the contents of the relations can be read that `queries` begin with. Raises PenstockError P0703."""
    for query in queries:
        missing = [name for name, source in relations_of([query]).items() if not has_content(known, source)]
        if missing:
            raise content_not_kept(query.name, missing)


def _has_guessed_instants(known: KnownPast, source: Source, until: int) -> bool:
    """Return whether some updates of a posted relation may be later than the tick `until` without being recorded when:
    one of SYSTEM TIME that was read before the rounds were recorded."""
    if not source.system_time or known.paths(source.name).keys() <= known.recorded_paths(source.name).keys():
        return False
    clock = known.clock_before(source.name)
    return clock is None or clock > until


def _posted_updates(known: KnownPast, reader: UpdateReader, source: Source) -> Iterator[Elements]:
    """Yield the updates of a relation whose rows are posted, from the files that the run has read."""
    clocked = source.system_time or source.idle is not None
    read_by = known.recorded_paths(source.name) if clocked else {}
    # The clock of the first recorded round is after all rounds before it.
    unrecorded = ReadTask("", 0, source.name, now=known.clock_before(source.name) if clocked else None)
    for path, splits in known.paths(source.name).items():
        for split in reader.connector.splits(path) if splits is None else splits:
            yield from reader.read(split, read_by.get(path, unrecorded))
