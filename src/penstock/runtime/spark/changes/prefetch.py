"""Catching up beside the rounds of a run, before the change with which its new queries begin.

It takes at most a share of the time while rounds are running, and more when what is left does not become less. The
result is used only if the change turns out as it was expected: of the same epoch, plan and static relations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from penstock.algebra.nodes.query import StartMode
from penstock.physical.elements import Elements, encode
from penstock.physical.execution.progress import timed_sources
from penstock.physical.plan.identity import step_keys
from penstock.physical.planning.planner import part_of
from penstock.runtime.local.statics import read_statics
from penstock.runtime.spark.changes.planned_epoch import StartRequest
from penstock.runtime.spark.changes.restart_decision import StartKind, decide_change
from penstock.runtime.spark.checkpoint.epochs import Epoch, source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.checkpoint.start_provider import ReadAhead
from penstock.runtime.spark.checkpoint.state_files import backfill_root
from penstock.runtime.spark.hydration.catch_up import CatchUp, Pause, check_past
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.hydration.past_input import delivered_part, offset_at_start
from penstock.runtime.spark.retention.retained_log import Pins
from penstock.settings import Settings

#: Rounds that may be left for the change itself.
_LEFT = 1
#: The share of the time grows by this factor when what is left has not become less.
_FASTER = 1.5
_LOOK_EVERY = 0.02


class Prefetch:
    """What new queries of a run have read before the change with which they begin.

    Args:
        before: returns the epoch in which the run is.
        request: the change.
        parallelism: maximum number of tasks that may read in parallel.
        kept: the relations that the run keeps.

    Raises:
        PenstockError: as the change, where it cannot be made.
    """

    def __init__(
        self,
        folder: Folder,
        before: Callable[[], Epoch],
        request: StartRequest,
        settings: Settings,
        parallelism: int,
        kept: KeptRelations,
    ) -> None:
        self._folder = folder
        self._before = before
        self.catching_up: CatchUp | None = None
        self._tables: dict[str, Elements] = {}
        # Nothing is removed between the decision what is read and its beginning.
        self._pins = ExitStack()
        with ExitStack() as pins:
            for file in _retained(request, before()):
                pins.enter_context(Pins(folder).pinned("deciding", file, None))
            self._decide(request, settings, parallelism, kept)
            self._pins = pins.pop_all()

    def _decide(self, request: StartRequest, settings: Settings, parallelism: int, kept: KeptRelations) -> None:
        """Decide what is read. Raises PenstockError as the change."""
        folder = self._folder
        decision = decide_change(request, folder, self._before())
        # Rounds go on meanwhile. What is lost of a source is known of the offset with which that was decided.
        self._decided = decision.delivered
        self._epoch, self._plan = replace(decision.epoch, offset=self._decided), decision.plan
        births = {name: self._epoch.queries[name].birth for name in decision.fresh}
        statistics = {str(birth): self._epoch.statistics[str(birth)] for birth in births.values()}
        self.read_ahead = ReadAhead(self._epoch.number, births, statistics)
        if decision.kind is StartKind.SAME or not self._epoch.backfill:
            return
        check_past(folder, self._epoch, self._plan)
        request.cache.reserve(self._epoch.number)
        self._tables = self._read_tables()
        intake = Intake(
            tuple(self._plan.sources.values()),
            frozenset(),
            parallelism,
            births=self._epoch.births,
            pace=RateControl.of(settings, len(request.queries)),
        )
        job = Job(
            self._plan,
            self._epoch.shards,
            tuple(range(self._epoch.shards)),
            False,
            intake,
            self._epoch.state_store,
            settings.get_int("state_cache_bytes"),
            self._epoch.number,
            past=self._epoch.number,
        )
        self.catching_up = CatchUp(folder, job, self._epoch.started, self._tables, kept, self._epoch.answered)

    def read(self, pause: Pause) -> None:
        """Read the past until at most one round is left. pause: called after each part of it."""
        reading = self.catching_up
        left: int | None = None
        if reading is not None and self._decided is not None:
            decided, self._decided = self._decided, None
            with self._pins:
                reading.find(decided)
            reading.read_up_to(decided, pause)
        while reading is not None:
            offset = offset_at_start(self._folder, self._before(), self._epoch, self._plan)
            reading.read_up_to(delivered_part(self._folder, offset), pause)
            now = self._folder.delivered().round - reading.reached
            if now <= _LEFT:
                return
            if left is not None and now >= left and isinstance(pause, Share):
                pause.grow()
            left = now

    def fits(self, job: Job, tables: Mapping[str, Elements]) -> bool:
        """Return whether the change turned out as it was expected. tables: the static relations of `job`."""
        own = part_of(self._plan, self.read_ahead.births)
        now = part_of(job.plan, self.read_ahead.births.keys() & job.plan.queries.keys())
        if job.past != self._epoch.number or not set(step_keys(own).values()) <= set(step_keys(now).values()):
            return False
        return all(name in tables and _digest(tables[name]) == _digest(self._tables[name]) for name in own.statics)

    def discard(self) -> None:
        """Remove what has been read."""
        self._pins.close()
        if self.catching_up is not None:
            self.catching_up.discard()

    def _read_tables(self) -> dict[str, Elements]:
        """Return the static relations of the plan; those that the run does not have are read."""
        statics = self._plan.statics
        known = self._folder.read_tables(statics.keys() & self._folder.tables())
        missing = {name: static for name, static in statics.items() if name not in known}
        letters = Folder(backfill_root(str(self._folder.root), self._epoch.number)).dead_letters
        return known | read_statics(replace(self._plan, statics=missing), letters)[0]


class Share:
    """Pauses, so that catching up takes at most a share of the time while rounds are running.

    Args:
        busy: whether a round is running.
    """

    def __init__(self, share: float, busy: Callable[[], bool]) -> None:
        self._share = share
        self._busy = busy

    def __call__(self, seconds: float) -> None:
        until = time.monotonic() + seconds * (1 - self._share) / self._share
        while self._busy() and time.monotonic() < until:
            time.sleep(_LOOK_EVERY)

    def grow(self) -> None:
        """Take more of the time."""
        self._share = min(1.0, self._share * _FASTER)


def _digest(table: Elements) -> int:
    return hash(encode([table.to_batch()]))


def _retained(request: StartRequest, before: Epoch) -> Iterator[str]:
    """Yield the files of retained streams that the new queries of a change read."""
    for query in request.queries:
        start = request.starts.get(query.name)
        if start is not None and start.mode is not StartMode.NOW:
            for name, source in timed_sources(query.root).items():
                if request.declared.get(name, source).retain is not None:
                    yield source_file(name, before.births)
