"""The contents of updated relations with which queries begin NOW in a running job.

START NOW cuts streams off, not relations: what the updates up to the query's heartbeat τ0 have made of a relation
happens at τ0, as one change, and later updates keep their instants. The updates are read again from the first one on,
folded while they are read (`live/history.py`), and run through the query when it begins, in one round. Of a relation
whose rows are posted the files that are there are read, when the query begins: a file may stand for all before it.

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
from penstock.connectors.contract import Split
from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import needed_columns
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import NOTHING, SourceProgress, timed_sources
from penstock.physical.planning.planner import part_of
from penstock.runtime.live.history import History
from penstock.runtime.spark.catching_up.past_input import KnownPast, tasks_of
from penstock.runtime.spark.catching_up.start_options import (
    content_not_kept,
    has_content,
    heartbeat_at,
    is_posted,
    progress_at,
)
from penstock.runtime.spark.checkpoint.folder import Folder, Job, round_name
from penstock.runtime.spark.checkpoint.start_provider import group_key
from penstock.runtime.spark.checkpoint.state_files import contents_root
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.round_history import ReadRound
from penstock.runtime.spark.worker.ingest import element_packets
from penstock.runtime.spark.worker.inline import Outcome, run_round
from penstock.runtime.spark.worker.packets import Packet
from penstock.runtime.spark.worker.stage import forget_warm


@dataclass
class _Relation:
    """What has been read of a relation. first: the least timestamp of its updates."""

    source: Source
    history: History
    first: int | None = None

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
    """

    def __init__(
        self, folder: Folder, past: Folder, job: Job, starts: Mapping[str, Start], tables: Mapping[str, Elements]
    ) -> None:
        self._folder = folder
        self._root = str(past.root)
        self._job = job
        self._tables = tables
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

    def begin(self, known: KnownPast, pause: Callable[[float], None] | None) -> None:
        """Read what the run has read of the relations. Raises PenstockError P0703."""
        check_contents(known, self._queries)
        tasks: list[ReadTask] = []
        for name, relation in self._read_ahead.items():
            start = known.start(relation.source, None, range(len(relation.source.columns)))
            assert start is not None, "the relations have been checked"
            if start.splits:
                tasks.append(ReadTask("", 0, name, start.splits))
            tasks += known.tasks(name)
        self._read(tasks, known.offset, pause)

    def read_on(self, rounds: Sequence[ReadRound], offset: Offset, pause: Callable[[float], None] | None) -> None:
        """Read what the run has read meanwhile, in `rounds`, the last of which is that of `offset`."""
        births = self._job.intake.births
        tasks = [task for known in rounds for name in self._read_ahead for task in tasks_of(known, name, births)]
        self._read(tasks, offset, pause)

    def _read(self, tasks: Sequence[ReadTask], offset: Offset, pause: Callable[[float], None] | None) -> None:
        # No query begins before this instant, so the updates up to it may be folded.
        until = min((heartbeat_at(query, offset) for query in self._queries), default=NOTHING)
        self.all_bytes += sum(map(_bytes, tasks))
        for task in tasks:
            began = time.monotonic()
            assert task.source is not None, "it reads a relation"
            relation = self._relations[task.source]
            for elements in _updates(relation.source, task):
                relation.add(elements, until)
            self.bytes += _bytes(task)
            if pause is not None:
                pause(time.monotonic() - began)

    def finish(self, offset: Offset) -> Iterator[Outcome]:
        """Yield what the queries answer that begin at `offset`, and leave their state for the first batch with them.
        Raises PenstockError P0703."""
        self._read_posted(offset)
        for number, group in enumerate(self._groups):
            folder = Folder(contents_root(self._root, number))
            folder.begin_run()
            plan = part_of(self._job.plan, group)
            job = replace(self._job, plan=plan, drain=False, base=0, isolated=False)
            tick = heartbeat_at(plan.queries[group[0]], offset)
            tables = {name: self._tables[name] for name in plan.statics}
            progress = {name: progress_at(name, offset) for name in plan.sources}
            packets: list[Packet] = []
            for name in plan.sources.keys() & self._relations.keys():
                relation = self._relations[name]
                if relation.first is not None:
                    progress[name] = replace(progress[name], first=max(relation.first, tick))
                columns = needed_columns(plan, name)
                parts = relation.history.since(Need(), tick)
                updates = [part.with_columns([part.columns[c] for c in columns]) for part in parts]
                packets += element_packets(job, tables, name, updates, 0)
            yield run_round(folder, job, tables, [ReadTask(round_name(1), 0, None)], 0, progress, packets)
            forget_warm(str(folder.root))

    def _read_posted(self, offset: Offset) -> None:
        known = KnownPast(self._folder, self._job.intake.births, offset)
        for name in self._relations.keys() - self._read_ahead.keys():
            relation = self._relations[name]
            readers = [query for query in self._queries if name in timed_sources(query.root)]
            until = min(heartbeat_at(query, offset) for query in readers)
            if _has_guessed_instants(known, relation.source, until):
                raise content_not_kept(", ".join(query.name for query in readers), [name])
            for elements in _posted_updates(known, relation.source):
                relation.add(elements, until)

    def discard(self) -> None:
        """Forget the executors of the groups."""
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


def _updates(source: Source, task: ReadTask) -> Iterator[Elements]:
    """Yield the updates that a task accepted when it read the source first, with all declared columns."""
    reader = _UpdateReader(source, task.high)
    for split in task.splits:
        yield from reader.read(split, task)


def _has_guessed_instants(known: KnownPast, source: Source, until: int) -> bool:
    """Return whether some updates of a posted relation may be later than the tick `until` without being recorded when:
    one of SYSTEM TIME that was read before the rounds were recorded."""
    clock = known.clock_before(source.name)
    unrecorded = set(known.paths(source.name)) - known.recorded_paths(source.name).keys()
    return source.system_time and bool(unrecorded) and (clock is None or clock > until)


def _posted_updates(known: KnownPast, source: Source) -> Iterator[Elements]:
    """Yield the updates of a relation whose rows are posted, from the files that the run has read."""
    read_by = known.recorded_paths(source.name)
    reader = _UpdateReader(source, None)
    for path in known.paths(source.name):
        # The clock of the first recorded round is after all rounds before it.
        task = read_by.get(path) or ReadTask("", 0, source.name, now=known.clock_before(source.name))
        for split in reader.connector.splits(path):
            yield from reader.read(split, task)


class _UpdateReader:
    """Reads and stamps updates again. high: the largest timestamp before them."""

    def __init__(self, source: Source, high: int | None) -> None:
        self.connector = open_source(source)
        self._source = source
        self._columns = tuple(range(len(source.columns)))
        self._read = read_columns(source, self._columns)
        self._progress = SourceProgress(None, high)

    def read(self, split: Split, task: ReadTask) -> Iterator[Elements]:
        """Yield the updates of a split that were accepted when `task` read it."""
        if task.beat is not None:
            self._progress = self._progress.merge(SourceProgress(beat=task.beat))
        for parsed in self.connector.read(split, self._read):
            if parsed.batch.num_rows:
                stamped = stamp(self._source, parsed.batch, self._read, self._columns, self._progress, task.now)
                self._progress = self._progress.merge(stamped.progress)
                yield stamped.elements


def _bytes(task: ReadTask) -> int:
    return sum(max(1, split.bytes) for split in task.splits)
