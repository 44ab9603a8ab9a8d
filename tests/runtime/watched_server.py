"""A server over a random world whose sources keep different parts of their past, for `test_starts_at_random.py`: it is
fed, dies and restarts, its readings of pasts can be held up, and what its run had read at each change is noted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from inline_engine import InlineServer, SteppedRun, leave_spark
from inline_run import Crash

from penstock.algebra.nodes.query import Query, Start
from penstock.engines import spark
from penstock.physical.execution.progress import timed_sources
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.spark.changes.interrupted_reading import InterruptedReading
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.hydration import catch_up
from penstock.runtime.spark.hydration.past_input import PastStart, past_of_run
from penstock.runtime.spark.retention import retention
from penstock.testing.thresholds import lowered, small
from tests.random_world import RandomWorld


class Gate:
    """Holds the reading of pasts up: so many parts may be read, all where it is None."""

    def __init__(self) -> None:
        self.parts: int | None = None

    def passes(self) -> bool:
        if self.parts is None:
            return True
        self.parts -= 1
        return self.parts >= 0


@dataclass(frozen=True)
class Boundary:
    """A change of the run. births: of the queries in it, by place; read: how many rows of each source had been read;
    lost: up to which tick elements were gone, by query in it that is new."""

    births: dict[int, tuple[int, str]]
    read: dict[str, int]
    lost: dict[int, dict[str, int]]


@dataclass
class Registered:
    """A query, and where it stands. starts: those that were asked for, one for each time it began."""

    query: Query
    place: int
    starts: list[Start]
    is_dropped: bool = False


@dataclass
class WatchedServer(RandomWorld):
    """A server over a random world, and what happens to it."""

    seed: int
    folder: Path
    patch: pytest.MonkeyPatch
    steps: list[str] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    registered: dict[str, Registered] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    results: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.make_world(self.seed)
        self.law = [statement for statement in self.case.statements if "CREATE QUERY" not in statement]
        self.posts: dict[str, list[int]] = {name: [] for name in self.timed}
        #: Ticks for which streams are retained from their declaration on: None not at all, -1 read again from files.
        self.kept: dict[str, int | None] = {}
        self.gate = Gate()
        self.thresholds = small(self.seed) if self.draw.random() < 0.4 else {}
        self.starting: list[dict[str, PastStart]] = []

    # -- the system --------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[WatchedServer]:
        leave_spark(self.patch)
        history = self

        class WatchedRun(SteppedRun):
            def change(self, begin: Callable[[], Any]) -> None:
                with self.between_rounds():
                    super().change(begin)
                    history.note(self)

        self.patch.setattr(spark, "launch", WatchedRun)
        self.patch.setattr(retention, "_EVERY", self.draw.choice((1, 1, 2)))
        original, found = InterruptedReading._go_on, catch_up.past_starts

        def go_on(reading: InterruptedReading) -> None:
            original(reading)
            while not self.gate.passes():
                while self.gate.parts is not None and self.gate.parts <= 0 and not reading._is_interrupted():
                    time.sleep(0.0005)
                original(reading)

        def past_starts(*arguments: Any) -> dict[str, PastStart]:
            self.starting.append(found(*arguments))
            return self.starting[-1]

        self.patch.setattr(InterruptedReading, "_go_on", go_on)
        self.patch.setattr(catch_up, "past_starts", past_starts)
        self.server = InlineServer(self.folder / "checkpoint")
        try:
            with lowered(self.thresholds):
                yield self
        finally:
            self.gate.parts = None
            self.server.close()

    def note(self, run: SteppedRun) -> None:
        """Note what the run had read when it has changed, and what is lost for queries that begin."""
        epoch, past = run.epoch, past_of_run(Folder(run.checkpoint / "penstock"), run.epoch)
        read = {}
        for name in self.timed:
            sizes = [0, *accumulate(self.posts[name])]
            read[name] = sizes[past.offset.splits_done(name)] if name in epoch.births or name in epoch.sources else 0
        births = {int(name[1:]): (record.birth, record.fingerprint) for name, record in epoch.queries.items()}
        before = self.boundaries[-1].births if self.boundaries else {}
        lost: dict[int, dict[str, int]] = {}
        for place in births.keys() - {place for place, birth in before.items() if births.get(place) == birth}:
            query = run.job.plan.queries[f"q{place}"]
            plan = plan_queries([query])
            gone = {n: past.lost(s, plan.needed_columns(n)) for n, s in timed_sources(query.root).items()}
            lost[place] = {name: tick for name, tick in gone.items() if tick is not None}
        self.boundaries.append(Boundary(births, read, lost))

    def declare(self) -> None:
        script = []
        for statement in self.law:
            text = statement.rstrip().rstrip(";")
            name = next((n for n in self.timed if f"STREAM {n} " in text or f"RELATION {n} " in text), None)
            if name is not None:
                text = self.declared(name, text)
            script.append(text + ";")
        self.steps.append("\n".join(script))
        self.server.post("\n".join(script))
        for name, source in self.sources.items():
            if source.is_static:
                self.server.control.insert(name, self.inputs[name])
        self.server.run.round() if self.server.engine.run is not None else None

    def declared(self, name: str, text: str) -> str:
        source, draw = self.sources[name], self.draw
        if draw.random() < 0.2 and self.inputs[name].num_rows and not source.non_retroactive:
            (self.folder / name).mkdir()
            self.kept[name] = -1
            self.feed(name, 1)
            return text.replace(
                "FROM MEMORY ()", f"FROM FILES (path '{self.folder / name}', format 'parquet', watch 'true')", 1
            )
        if not source.is_stream:
            self.kept[name] = -1
            return text
        needs = {ticks for q in self.queries if (ticks := q.root.needs[name].ticks if name in q.root.needs else None)}
        unit = 1_000_000 if source.domain is not None and source.domain.calendar else 1
        some = sorted({max(1, ticks // unit + more) for ticks in needs for more in (-1, 0, 1)} | {3})
        length = draw.choice([None, draw.choice(some), draw.choice(some), 10_000_000])
        self.kept[name] = None if length is None else length * unit
        return text if length is None else f"{text} RETAIN {length} SECOND"

    # -- input -------------------------------------------------------------------------------------------------

    def feed(self, name: str, count: int) -> None:
        """Give a source more rows; the run has not read them yet."""
        given = sum(self.posts[name])
        rows = self.inputs[name].slice(given, count).combine_chunks()
        if not rows.num_rows:
            return
        self.steps.append(f"rows {given} to {given + rows.num_rows} of {name}")
        # The boundary of a change is told by how many of these have been read.
        self.posts[name].append(rows.num_rows)
        if (self.folder / name).exists():
            number = len(self.posts[name])
            hidden = self.folder / f"{name}-{number}.parquet"
            pq.write_table(rows, hidden)
            hidden.rename(self.folder / name / f"part-{number:05d}.parquet")
        else:
            self.server.control.insert(name, rows)

    def feed_some(self) -> None:
        waiting = [name for name in self.timed if sum(self.posts[name]) < self.inputs[name].num_rows]
        for name in self.draw.sample(waiting, min(len(waiting), self.draw.randint(1, 2))):
            self.feed(name, self.draw.randint(1, 3))

    def round(self) -> None:
        crash = self.draw.choice((*(None,) * 12, "state", "sinks", "between", "delivered"))
        try:
            self.server.run.round(crash)
        except Crash:
            self.steps.append(f"died: {crash}")
            self.seen["died"] += 1
            self.restart()
            self.server.run.round()

    def restart(self) -> None:
        self.steps.append("restart")
        self.seen["restarts"] += 1
        self.server.restart()

    @property
    def read(self) -> dict[str, int]:
        """How many rows of each source have been posted, and so read after a round."""
        return {name: sum(sizes) for name, sizes in self.posts.items()}
