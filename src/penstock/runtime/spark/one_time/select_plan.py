"""A one-time query as steps for many processes: the same computation as `runtime/local/one_time.py`, divided by shard.

The contents that plain SQL reads (windows, updated relations, queries that are streams) are computed up to the instant
by the stages of one plan, and what remains of them there by those of a second one, which is plain SQL over static
relations. Both plans run in one go: each stage gets all its input at once, so a shard needs the memory of its part.

Contract: nothing here knows of Spark; `run_here` carries it out in this process. Packets of the second plan pass the
stages of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.scans import OnError, RelationScan, Source, declared_sources
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import as_error
from penstock.expressions.values.shown import shown_row
from penstock.physical.elements import Elements, forever
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.exchange import ExchangeRouter, StageResult
from penstock.physical.execution.executor import IngestExecutor, StageExecutor
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.wall_clock import uses_wall_clock
from penstock.physical.kernels.row_order import sort_order
from penstock.physical.operators import Tables
from penstock.physical.plan.plan import Channel, Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries, plan_static
from penstock.runtime.local.one_time import Contents, in_order, numbered, remaining
from penstock.runtime.local.runtime import compute_statics, static_sources
from penstock.runtime.memory_limit import too_large
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    ChannelRows,
    Packet,
    Signal,
    answer_packets,
    by_shard,
    channel_packets,
    progress_packet,
    read_progress,
)
from penstock.runtime.spark.worker.spill_files import unpacked

#: The name of the answer in packets, as of the one query of a static plan.
_ANSWER = ""
#: Rows that an ingest takes at once.
_ROWS = 1 << 17


class InputRows(Protocol):
    """The rows of a source, or a part of them, which another process can read."""

    def table(self) -> pa.Table:
        """Read the rows, with all declared columns."""


@dataclass(frozen=True)
class InputTask:
    """Rows that one task reads.

    Args:
        source: the source in one of the plans.
        declared: its declaration outside of them.
        number: of the task; rows of a lower number come first.
    """

    source: str
    declared: Source
    number: int
    rows: InputRows


@dataclass(frozen=True)
class SelectPlan:
    """The plans of a one-time query.

    Args:
        contents: of what plain SQL reads; None where that is static.
        plain: of the rest; None where the answer is a content.
        tick: the instant; None without a timed source.
        tables: the static relations that contents read.
        at_zero: the sources of `contents` that are static relations with all their rows at tick 0.
        memory: bytes that a task may take beyond what its process has, and that the answer may have.
    """

    query: OneTimeQuery
    contents: Plan | None
    plain: Plan | None
    tick: int | None
    shards: int
    tables: Tables
    at_zero: frozenset[str]
    memory: int

    @property
    def stages(self) -> int:
        """The number of stages, one behind the other."""
        return sum(plan.stages for plan in (self.contents, self.plain) if plan is not None)

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, task: InputTask) -> Iterator[Packet]:
        """Yield the packets of the rows that a task reads. Raises PenstockError of the source."""
        table = task.rows.table()
        if task.source in self.at_zero or task.declared.is_static:
            table = _keyed(task.declared, table)
        if self.contents is not None and task.source in self.contents.sources:
            yield from self._stamped(task, table)
        if self.plain is not None and task.source in self.plain.sources:
            yield from self._static(task.source, table, task.number)

    def _stamped(self, task: InputTask, table: pa.Table) -> Iterator[Packet]:
        assert self.contents is not None, "there is a plan of contents"
        source = self.contents.sources[task.source]
        if task.source in self.at_zero:
            assert source.domain is not None, "it has a tick"
            zeros = pa.array(np.zeros(table.num_rows, np.int64)).cast(source.domain.type())
            table = table.append_column("tick", zeros)
        executor = IngestExecutor(self.contents, task.source, self.tables)
        columns, progress = read_columns(source, executor.columns), SourceProgress()
        router = ExchangeRouter(self.shards)
        for batch in table.to_batches(_ROWS):
            chosen = pa.RecordBatch.from_arrays([batch.column(c) for c in columns], names=[str(c) for c in columns])
            stamped = stamp(source, chosen, columns, executor.columns, progress, None)
            progress = progress.merge(stamped.progress)
            if stamped.reasons:
                _check_rejected(source, [(shown_row(chosen, int(stamped.unusable[0])), stamped.reasons[0])])
            router.post(executor.run(stamped.elements), task.number)
        yield from _sent(router, task.number)
        yield from by_shard(self.shards, {task.source: progress})

    def _static(self, source: str, table: pa.Table, sender: int) -> Iterator[Packet]:
        """Yield the packets of a static relation of the second plan."""
        assert self.plain is not None, "there is a second plan"
        executor, router = IngestExecutor(self.plain, source, {}), ExchangeRouter(self.shards)
        for batch in table.to_batches(_ROWS):
            router.post(executor.run(forever([batch.column(c) for c in executor.columns], batch.num_rows)), sender)
        yield from (self._behind(packet) for packet in _sent(router, sender))

    def _behind(self, packet: Packet) -> Packet:
        """Return a packet of the second plan as it passes the stages of the first one: its steps have numbers behind
        those of that."""
        assert isinstance(packet.kind, ChannelRows), "it carries elements"
        channel = replace(packet.kind.channel, step=packet.kind.channel.step + self._first_step)
        return replace(packet, kind=replace(packet.kind, channel=channel))

    @property
    def _first_step(self) -> int:
        """The number of the first step of the second plan in packets."""
        return 0 if self.contents is None else 1 + max(step.id for step in self.contents.steps)

    # -- stages ------------------------------------------------------------------------------------------------

    def run_stage(self, number: int, shard: int, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield the packets that a shard of the stage `number`, from 1 on, sends, of those that are sent to it."""
        of_contents = 0 if self.contents is None else self.contents.stages
        if self.contents is not None and number <= of_contents:
            yield from self._run(self.contents, number, 0, number == of_contents, shard, packets)
        elif self.plain is not None:
            yield from self._run(
                self.plain, number - of_contents, self._first_step, number == self.stages, shard, packets
            )

    def _run(
        self, plan: Plan, stage: int, first_step: int, last: bool, shard: int, packets: Iterable[Packet]
    ) -> Iterator[Packet]:
        by_channel: dict[Channel, list[tuple[ChannelRows, Packet]]] = {}
        is_contents, progress = plan is self.contents, self._ended()
        for packet in packets:
            kind = packet.kind
            if kind is Signal.PROGRESS:
                for name, seen in read_progress(packet.blob).items():
                    progress[name] = progress.get(name, SourceProgress()).merge(seen)
                continue
            if isinstance(kind, AnswerOf) or (is_contents and self._is_behind(kind)):
                yield packet
                continue
            assert isinstance(kind, ChannelRows), "it carries elements"
            channel = replace(kind.channel, step=kind.channel.step - first_step)
            if stage in plan.receivers[channel]:
                by_channel.setdefault(channel, []).append((kind, packet))
            if max(plan.receivers[channel]) > stage:
                yield packet
        inputs = {
            channel: [e for _, packet in sorted(sent, key=_sending_order) for e in unpacked(packet.blob)]
            for channel, sent in by_channel.items()
        }
        tables = self.tables if is_contents else {}
        executor = StageExecutor(plan, stage, shard, self.shards, tables)
        result = executor.run(inputs, progress if is_contents else {})
        for one in result.rejected:
            _check_rejected(plan.sources[one.source], [(one.record, one.reason)])
        router = ExchangeRouter(self.shards)
        router.post(StageResult({}, result.onward), shard)
        sent = _sent(router, shard)
        yield from sent if is_contents else (self._behind(packet) for packet in sent)
        yield from self._answers(plan, result.answers, shard)
        # Each shard runs in each stage, also without elements.
        yield progress_packet(shard, progress)

    def _is_behind(self, kind: object) -> bool:
        return isinstance(kind, ChannelRows) and kind.channel.step >= self._first_step

    def _ended(self) -> dict[str, SourceProgress]:
        """Return the progress of the sources of the first plan, which have ended; time advances to the instant."""
        if self.contents is None:
            return {}
        ended = SourceProgress(ended=True) if self.tick is None else SourceProgress(ended=True, beat=self.tick)
        return dict.fromkeys(self.contents.sources, ended)

    def _answers(self, plan: Plan, answers: Mapping[str, Sequence[Elements]], shard: int) -> Iterator[Packet]:
        """Yield what answers are: contents at the instant, as input of the second plan, or rows of the answer."""
        for name, parts in answers.items():
            table = answer_table(plan.queries[name], parts)
            if plan is self.contents:
                table = remaining(table, self.tick or 0, plan.queries[name])
                if self.plain is not None:
                    if name in self.plain.sources:
                        yield from self._static(name, table, shard)
                    continue
            else:
                table = table.select(range(2, table.num_columns))
            if self.query.limit is not None:
                # No row of the answer follows so many others of its shard.
                last = pa.array(sort_order([c.combine_chunks() for c in table.columns], self.query.order))
                table = table.take(last[: self.query.offset + self.query.limit])
            columns = [column.combine_chunks() for column in table.columns]
            yield from answer_packets(shard, _ANSWER, [forever(columns, table.num_rows)])

    # -- the answer --------------------------------------------------------------------------------------------

    def starting(self) -> Iterator[Packet]:
        """Yield packets by which each shard runs, whatever there is to read."""
        return by_shard(self.shards, self._ended())

    def answer(self, packets: Iterable[Packet]) -> pa.Table:
        """Return the rows of the answer, in its order, from the packets that leave the last stage."""
        node = self.query.root
        schema = pa.schema(list(zip(numbered(node.schema), node.schema.types, strict=True)))
        batches: list[pa.RecordBatch] = []
        size = 0
        for part in (e for packet in packets if packet.kind == AnswerOf(_ANSWER) for e in unpacked(packet.blob)):
            batches.append(_typed(part, schema))
            # Packets may be compressed, so the rows themselves are counted.
            size += batches[-1].nbytes
            if size > self.memory:
                raise too_large(self.memory)
        return in_order(self.query, pa.Table.from_batches(batches, schema))


def select_plan(
    query: OneTimeQuery,
    inputs: Mapping[str, Sequence[InputRows]],
    shards: int,
    strategy: Strategy = Strategy.PATTERN,
    memory: int = 2**30,
) -> tuple[SelectPlan, list[InputTask]] | None:
    """Return the plans of a query and the tasks that read its inputs; None where it cannot be divided, since a source
    has the time of the clock.

    Args:
        inputs: by source, its rows in parts, in the order in which they come.
        memory: bytes that a task may take, and the answer.
    """
    if uses_wall_clock(declared_sources(query.root).values()):
        return None
    contents = Contents(query.domain, lambda name: any(rows.table().num_rows for rows in inputs[name]))
    plain = contents.replaced(query.root)
    statistics = Statistics()
    planning = strategy.planning(statistics)
    first = None
    if contents.queries:
        optimized = [replace(one, root=optimize(one.root, planning=planning)) for one in contents.queries]
        first = plan_queries(optimized, statistics, strategy)
    is_content = isinstance(plain, RelationScan) and plain.source.name in contents.names
    second = None if is_content else plan_static(optimize(plain, planning=planning))
    declared = {name: (source, name) for name, source in declared_sources(query.root).items()}
    declared |= {name: (source, source.name) for name, source in contents.timed.items()}
    read = {name for plan in (first, second) if plan is not None for name in plan.sources} - contents.names
    tasks = [
        InputTask(name, source, number, rows)
        for name, (source, key) in sorted(declared.items())
        if name in read
        for number, rows in enumerate(inputs[key])
    ]
    tables = {} if first is None else compute_statics(first, _static_tables(first, inputs))
    at_zero = frozenset(contents.timed)
    return SelectPlan(query, first, second, query.as_of, shards, tables, at_zero, memory), tasks


def run_here(plan: SelectPlan, tasks: Sequence[InputTask]) -> pa.Table:
    """Return the answer, computed in this process, one task after the other."""
    packets = [*plan.starting(), *(packet for task in tasks for packet in plan.read(task))]
    for stage in range(1, plan.stages + 1):
        inboxes: dict[int, list[Packet]] = {shard: [] for shard in range(plan.shards)}
        for packet in packets:
            inboxes[packet.shard].append(packet)
        packets = [sent for shard, inbox in inboxes.items() for sent in plan.run_stage(stage, shard, inbox)]
    return plan.answer(packets)


def _static_tables(plan: Plan, inputs: Mapping[str, Sequence[InputRows]]) -> dict[str, pa.Table]:
    tables: dict[str, pa.Table] = {}
    for name, source in static_sources(plan).items():
        tables[name] = _keyed(source, pa.concat_tables([rows.table() for rows in inputs[name]]))
    return tables


def _keyed(source: Source, table: pa.Table) -> pa.Table:
    """Return the rows of a static relation without those that violate its primary key."""
    rows, reasons = keyed_rows(source, table)
    _check_rejected(source, [(shown_row(table, position), reason) for position, reason in reasons.items()])
    return rows


def _check_rejected(source: Source, rejected: Sequence[tuple[str, str]]) -> None:
    """Raise the error for the first of some rejected records, with the reason of each, under ON ERROR FAIL."""
    if rejected and source.on_error is OnError.FAIL:
        record, reason = rejected[0]
        raise as_error(Rejected(source.name, None, record, reason), source.name)


def _sent(router: ExchangeRouter, sender: int) -> Iterator[Packet]:
    for shard, channel, batches in router:
        yield from channel_packets(shard, channel, batches, sender)


def _sending_order(sent: tuple[ChannelRows, Packet]) -> tuple[int, int]:
    return sent[0].sender, sent[0].number


def _typed(part: Elements, schema: pa.Schema) -> pa.RecordBatch:
    columns = [c if c.type == t else c.cast(t) for c, t in zip(part.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
