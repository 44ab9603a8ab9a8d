"""A keyed stage in one shard on Spark: state in, packets in, the executor's round, state and packets out.

State lies in files (`state_files.py`) or in Spark's own store (`processor.py`) as immutable chunks and one manifest per
shard; a batch writes the chunks that are new and removes those that are gone. A worker process keeps the executor of a
shard it has just run, and continues with it while the manifest carries the token that it wrote; otherwise it restores
the state from storage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.physical.decisions import NO_DECISIONS
from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import ExchangeRouter, StageResult
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.flow_counts import tapped_ports
from penstock.physical.execution.portions import earliest
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.operators import Operator
from penstock.physical.plan.plan import Channel
from penstock.physical.synopses.contract import StoredSynopsis
from penstock.runtime.monitoring.reports import ShardReport
from penstock.runtime.monitoring.stopwatch import Stopwatch
from penstock.runtime.spark.checkpoint.folder import Job
from penstock.runtime.spark.worker.answer_writer import AnswerWriter
from penstock.runtime.spark.worker.packets import (
    ChannelRows,
    Heartbeats,
    Packet,
    Signal,
    channel_packets,
    failed_packet,
    heartbeats_packet,
    progress_packet,
    reached_packet,
    read_decided,
    read_progress,
    read_reached,
    rejected_packet,
    timings_packet,
)
from penstock.runtime.spark.worker.spill_files import SpillFiles, unpacked
from penstock.runtime.spark.worker.tapped import published_taps
from penstock.runtime.spark.worker.user_code import limited_user_code
from penstock.runtime.state.shard_manifest import ShardManifest


@dataclass(frozen=True)
class _StoredStep:
    """What was written of one step.

    Args:
        synopses: by name in the stage.
        chunks: bytes of each live chunk.
    """

    synopses: Mapping[str, StoredSynopsis]
    chunks: Mapping[str, int]


@dataclass(frozen=True)
class _StoredSteps:
    """What this process has written of the steps of a shard. No one changes it: a round writes what is left of the one
    before, and the steps that ran.

    Args:
        steps: by key.
        synopses, chunks: those of all steps.
    """

    steps: Mapping[str, _StoredStep] = field(default_factory=dict)
    synopses: Mapping[str, StoredSynopsis] = field(default_factory=dict)
    chunks: Mapping[str, int] = field(default_factory=dict)

    def replaced(self, gone: Iterable[str], new: Mapping[str, _StoredStep]) -> _StoredSteps:
        """Return what is written without the steps `gone`, and with `new` ones, which may be there already."""
        steps, synopses, chunks = dict(self.steps), dict(self.synopses), dict(self.chunks)
        for key in (*gone, *(key for key in new if key in steps)):
            step = steps.pop(key)
            for name in step.synopses:
                del synopses[name]
            for name in step.chunks:
                del chunks[name]
        steps.update(new)
        for step in new.values():
            synopses.update(step.synopses)
            chunks.update(step.chunks)
        return _StoredSteps(steps, synopses, chunks)


@dataclass
class _Warm:
    """An executor kept between batches. token: of the state it wrote; stored: what that is; epoch: of the job whose
    plan it runs.
    """

    token: str
    executor: StageExecutor
    stored: _StoredSteps
    epoch: int

    @cached_property
    def bytes(self) -> int:
        """The size of its state."""
        return sum(self.stored.chunks.values())


#: Executors of shards this process ran, by (job folder, stage, shard), least recently used first.
_WARM: dict[tuple[str, int, int], _Warm] = {}


class ShardState(Protocol):
    """Storage of a shard's state between batches."""

    @property
    def token(self) -> str | None:
        """Return the token of the manifest that `save` wrote in the batch before, None for none."""

    def manifest(self) -> ShardManifest | None:
        """Return the manifest that `save` wrote in the batch before, None for none."""

    def chunk(self, name: str) -> pa.RecordBatch:
        """Return a live chunk."""

    def save(self, manifest: ShardManifest, new_chunks: Mapping[str, pa.RecordBatch], dropped_chunks: set[str]) -> None:
        """Write `manifest` and the live chunks: those before without `dropped_chunks`, and `new_chunks`."""


class ShardRound:
    """A round of one shard of stage `stage` of `job`, in the folder `root`.

    Args:
        backfilled: the backfilled states of queries, where this is their first batch among the others.
        spill_files: for answers; None where large answers stay in packets.
    """

    def __init__(
        self,
        root: str,
        job: Job,
        tables: dict[str, Elements],
        stage: int,
        state: ShardState,
        backfilled: Sequence[ShardState] = (),
        spill_files: SpillFiles | None = None,
    ) -> None:
        self._root = root
        self._job = job
        self._tables = tables
        self._stage = stage
        self._state = state
        self._backfilled = backfilled
        self._answers = AnswerWriter(spill_files, job.limits, job.shards)
        self._watch = Stopwatch()
        self._failures = StepFailures(*job.limits.between_operators(job.shards)) if job.isolated else None

    def _take(self, query: str, elements: Elements) -> None:
        """Take rows of an answer. One that exceeds its limit ends its query, or all where none fails alone: raises
        PenstockError P0634 then."""
        self._answers.take(query, elements)
        for name, error in self._answers.failed.items():
            if self._failures is None:
                raise PenstockError(error.code, f"query {name}: {error.message}", hint=error.hint)
            self._failures.errors.setdefault(name, error)

    def run(self, shard: int, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Run one round of the shard: read the packets sent to it, yield the packets it sends."""
        job = self._job
        by_channel: dict[Channel, list[tuple[ChannelRows, Packet]]] = {}
        progress: dict[str, SourceProgress] = {}
        forwarded: list[Packet] = []
        decided = NO_DECISIONS
        reached: dict[str, int] = {}
        for packet in packets:
            kind = packet.kind
            if kind is Signal.PROGRESS:
                for name, source_progress in read_progress(packet.blob).items():
                    progress[name] = progress.get(name, SourceProgress()).merge(source_progress)
            elif kind is Signal.DECIDED:
                decided = read_decided(packet.blob)
                if self._stage < job.plan.stages:
                    forwarded.append(packet)
            elif kind is Signal.REACHED:
                reached = earliest(reached, read_reached(packet.blob))
            elif isinstance(kind, ChannelRows):
                receivers = job.plan.receivers[kind.channel]
                if self._stage in receivers:
                    by_channel.setdefault(kind.channel, []).append((kind, packet))
                if max(receivers) > self._stage:
                    forwarded.append(packet)
            else:
                forwarded.append(packet)
        # Sorted by sender, whatever order the shuffle delivered them in: row windows count in this order.
        with self._watch.phase("exchange"):
            inputs = {
                channel: [e for _, packet in sorted(packets_sent, key=_sending_order) for e in unpacked(packet.blob)]
                for channel, packets_sent in by_channel.items()
            }
        with self._watch.phase("state"):
            executor, chunks, stored = self._executor(shard)
        executor.tapped = tapped_ports(job.plan, published_taps(Path(self._root)))
        with self._watch.phase("operators"), limited_user_code(job):
            result = executor.run(inputs, progress, self._take, self._failures, decided, reached)
        with self._watch.phase("state"):
            self._save(shard, executor, chunks, stored)
            sizes = executor.state_sizes()
            figures = executor.figures()
        yield from self._watch.through("exchange", self._packets(job, executor, shard, result, forwarded))
        if self._stage < job.plan.stages:
            # All progress, for a new stage; but the first timestamp of a source only if it arrived in this round.
            stage_progress = {
                n: replace(p, first=progress[n].first if n in progress else None) for n, p in executor.progress.items()
            }
            yield progress_packet(shard, stage_progress)
        executor.counts.bytes_in |= executor.received(inputs)
        report = ShardReport(self._stage, shard, self._watch.seconds, executor.spent, sizes, executor.counts, figures)
        yield timings_packet(shard, report)

    def _packets(
        self, job: Job, executor: StageExecutor, shard: int, result: StageResult, forwarded: list[Packet]
    ) -> Iterator[Packet]:
        yield from forwarded
        yield from self._answers.packets(shard)
        if result.reached:
            receivers = range(job.shards) if self._stage < job.plan.stages else (shard,)
            yield from (reached_packet(receiver, result.reached) for receiver in receivers)
        if result.rejected:
            yield rejected_packet(shard, result.rejected)
        if self._failures is not None and self._failures.errors:
            yield failed_packet(shard, self._failures.errors)
        router = ExchangeRouter(job.shards)
        router.post(result, shard)
        for target, channel, batches in router:
            yield from channel_packets(target, channel, batches, shard)
        if self._stage == job.plan.stages and shard == 0:
            ended = job.ends([name for name, source_progress in executor.progress.items() if source_progress.ended])
            yield heartbeats_packet(shard, Heartbeats(executor.heartbeats(), executor.source_heartbeats(), ended))

    # -- state -------------------------------------------------------------------------------------------------

    def _executor(self, shard: int) -> tuple[StageExecutor, Set[str], _StoredSteps]:
        """Return the executor as the batch before left it, the names of the chunks that hold its state, and what this
        process has written of its steps."""
        job = self._job
        # Removed from the cache: an attempt that fails half way must not be continued.
        warm = _WARM.pop((self._root, self._stage, shard), None)
        if warm is not None and warm.token == self._state.token:
            if warm.executor.plan is not job.plan:
                # Also in the same epoch: the steps of another start have other numbers.
                warm.executor.graft(job.plan, self._tables, _unchanged(job, warm.epoch))
            if warm.epoch < job.epoch:
                self._join_backfilled(warm.executor)
            return warm.executor, warm.stored.chunks.keys(), warm.stored
        manifest = self._state.manifest()
        executor = StageExecutor(
            job.plan, self._stage, shard, job.shards, self._tables, job.drain, isolated=job.isolated
        )
        if manifest is None:
            self._join_backfilled(executor)
            return executor, set(), _StoredSteps()
        restored = restore(executor, manifest, self._state, job)
        if manifest.epoch < job.epoch:
            restored |= self._join_backfilled(executor)
        missing = executor.synopses().keys() - restored
        if missing and manifest.epoch == job.epoch:
            raise PenstockError(
                "P0605",
                f"stage {self._stage}, shard {shard}: the checkpoint holds no state of {min(missing)}",
                hint="restore the checkpoint from a copy, or start afresh with a new --checkpoint",
            )
        return executor, manifest.chunks, _StoredSteps()

    def _join_backfilled(self, executor: StageExecutor) -> set[str]:
        restored: set[str] = set()
        for state in self._backfilled:
            manifest = state.manifest()
            if manifest is not None:
                restored |= restore(executor, manifest, state, self._job)
        return restored

    def _save(self, shard: int, executor: StageExecutor, chunks: Set[str], before: _StoredSteps) -> None:
        """Write the state. Of a step that did not run in this round, what was written before holds still.

        Args:
            chunks: those of the state before.
            before: what this process has written of the steps.
        """
        new: dict[str, pa.RecordBatch] = {}
        steps: dict[str, _StoredStep] = {}
        failed = 0
        for key, operator in executor.changed_steps(before.steps.keys()):
            try:
                steps[key], written = _stored_step(key, operator, chunks, before.steps.get(key))
                new |= written
            except Exception as error:
                if self._failures is None:
                    raise
                executor.fail(key, error, self._failures)
                failed += 1
        if failed and self._failures is not None:
            executor.drop(self._failures)
            steps = {key: steps[key] for key in steps.keys() & executor.step_keys()}
        stored = before.replaced(before.steps.keys() - executor.step_keys(), steps)
        new = {name: chunk for name, chunk in new.items() if name in stored.chunks} if failed else new
        warm = _Warm(uuid.uuid4().hex, executor, stored, self._job.epoch)
        manifest = ShardManifest(warm.token, warm.epoch, executor.marks(), stored.synopses)
        self._state.save(manifest, new, set(chunks - stored.chunks.keys()))
        keep_warm((self._root, self._stage, shard), warm, self._job.cache_bytes)


def _stored_step(
    key: str, operator: Operator, stored: Set[str], before: _StoredStep | None
) -> tuple[_StoredStep, dict[str, pa.RecordBatch]]:
    """Return what is to be written of a step, and the chunks of it that are not `stored`."""
    new: dict[str, pa.RecordBatch] = {}
    synopses: dict[str, StoredSynopsis] = {}
    sizes: dict[str, int] = {}
    known = {} if before is None else before.chunks
    for part, synopsis in operator.synopses().items():
        name = f"{key}.{part}"
        snapshot = synopsis.whole()
        synopses[name] = snapshot.stored()
        for number, batch in snapshot.chunks.items():
            chunk = f"{name}.{number}"
            size = known.get(chunk)
            sizes[chunk] = batch.nbytes if size is None else size
            if chunk not in stored:
                new[chunk] = batch
    return _StoredStep(synopses, sizes), new


def _unchanged(job: Job, epoch: int) -> set[str]:
    """Return the sources of `job` that have been the same since `epoch`."""
    return {name for name in job.plan.sources if job.intake.births.get(name, 0) <= epoch}


def _sending_order(entry: tuple[ChannelRows, Packet]) -> tuple[int, int]:
    """Return what the packets of one channel are sorted by before they are processed."""
    kind, _ = entry
    return kind.sender, kind.number


def restore(executor: StageExecutor, manifest: ShardManifest, state: ShardState, job: Job) -> set[str]:
    """Restore the part of the executor's state that `manifest` has; return the names of those synopses. Raises
    PenstockError P0605 for a state of another format.
    """
    executor.restore_marks(manifest.marks, _unchanged(job, manifest.epoch))
    restored: set[str] = set()
    for name, synopsis in executor.synopses().items():
        stored = manifest.synopses.get(name)
        if stored is None:
            continue
        synopsis.restore_checked(name, stored, partial(_chunk, state, name))
        restored.add(name)
    return restored


def _chunk(state: ShardState, name: str, number: int) -> pa.RecordBatch:
    return state.chunk(f"{name}.{number}")


def keep_warm(key: tuple[str, int, int], warm: _Warm, limit: int) -> None:
    """Keep an executor for the next batch. The least recently used are dropped while the total exceeds `limit` bytes;
    their state is then restored from its storage.
    """
    _WARM.pop(key, None)
    _WARM[key] = warm
    total = sum(w.bytes for w in _WARM.values())
    while total > limit:
        total -= _WARM.pop(next(iter(_WARM))).bytes


def forget_shard(root: str, stage: int, shard: int) -> None:
    """Drop the executor of one shard."""
    _WARM.pop((root, stage, shard), None)


def forget_warm(root: str) -> None:
    """Drop the executors of the job in the folder `root`."""
    for key in [key for key in _WARM if key[0] == root]:
        _WARM.pop(key, None)
