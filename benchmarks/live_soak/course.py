"""A soak of a server from beginning to end: what is posted, what becomes of it, and what is wrong at the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.live_soak.feed import BETWEEN, DECLARED, STEP, Feed
from benchmarks.live_soak.lives import NOTHING, Episode, Life, wrong
from benchmarks.live_soak.served import Failed, Killer, Served, Subscriber, finished
from benchmarks.live_soak.shapes import Levelled, Shape, Span, Totals, drawn
from benchmarks.processes import tree
from benchmarks.soak import watch
from penstock.client import connect
from penstock.client.answers import RemoteStatement
from penstock.errors import PenstockError

#: Queries that stand at most, and seconds between two commands at most.
_MOST, PAUSE = 12, 1.5
#: Seconds in which everything that was posted must have been answered at the end.
_DRAIN = 240.0
_SAMPLE_SECONDS = 2.0
ACTIONS = (
    ("register",) * 6
    + ("replace",) * 2
    + ("pause",) * 3
    + ("resume",) * 4
    + (
        "drop",
        "drop",
        "rename",
        "select",
        "select",
        "error",
    )
)
#: What the mistake in a script is refused with: a column that is not there.
_UNKNOWN = "P0202"
#: What a command may be refused with: the query cannot do that, or the past that it needs is not kept.
_REFUSED = frozenset({"P0703"})


@dataclass(frozen=True)
class Settings:
    """seconds: of the commands, which last longer until there were `kills` kills of each kind; rate: rows per second;
    kills_every: seconds between two kills, about, 0 for none; most: queries that stand at most; pause: seconds between
    two commands at most; in_process: the server runs without Spark."""

    seconds: float
    rate: int
    seed: int
    kills_every: float
    most: int = _MOST
    kills: int = 0
    pause: float = PAUSE
    in_process: bool = False


@dataclass
class Report:
    """wrong: in words, empty where every answer was right; actions: how often each was done."""

    wrong: list[str] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    rows: int = 0
    changes: int = 0
    lives: int = 0
    subscriptions: int = 0
    seconds: float = 0.0
    samples: list[watch.Sample] = field(default_factory=list)
    tail: str = ""


class Course:
    """One soak in `folder`. A context: nothing that it started runs on behind it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._draw = random.Random(settings.seed)
        options = ("trigger=200 ms", "spark.driver.memory=768m", "shards=2")
        self._served = Served(folder, () if settings.in_process else options, in_process=settings.in_process)
        self._killer = Killer(
            self._served,
            settings.seed + 1,
            settings.kills_every,
            settings.seconds,
            settings.kills,
            workers=not settings.in_process,
        )
        self._lives: dict[str, Life] = {}
        self._subscribers: dict[int, Subscriber] = {}
        self._feed: Feed | None = None
        self._number = 0
        self._sampled = 0.0
        self.report = Report()

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        self._killer.end()
        self._served.kill()

    def go(self) -> Report:
        """Run the soak; return what came of it."""
        began = time.monotonic()
        report = self.report
        try:
            self._served.start()
            self._client = connect(self._served.url, self._served.token, patience=300)
            self._client.execute(DECLARED)
            feed = self._feed = Feed(self._served.url, self._served.token, self._settings.seed, self._settings.rate)
            feed.start()
            if self._settings.kills_every:
                self._killer.start()
            commanded = time.monotonic()
            while time.monotonic() - commanded < self._settings.seconds or self._kills_are_due():
                self._act(self._draw.choice(ACTIONS))
                self._look()
                time.sleep(self._draw.uniform(0, self._settings.pause))
            self._killer.end()
            feed.end()
            self._finish(feed.posted)
        except (Failed, PenstockError) as why:
            report.wrong.append(f"{type(why).__name__}: {why}")
        report.wrong += [f"{who} failed: {one!r}" for who, one in self._failures()]
        report.wrong += watch.growth(report.samples) if report.samples else []
        if report.wrong:
            report.tail = self._served.tail()
        report.kills, report.starts = self._killer.kills, self._served.starts
        report.rows = 0 if self._feed is None else self._feed.posted
        report.seconds = time.monotonic() - began
        return report

    def _failures(self) -> Iterator[tuple[str, BaseException]]:
        for who, one in (("the feed", self._feed), ("the server", self._killer)):
            if one is not None and one.failure is not None:
                yield who, one.failure

    def _kills_are_due(self) -> bool:
        return min(self._killer.kills.values()) < self._settings.kills

    # -- commands ----------------------------------------------------------------------------------------------

    def _act(self, action: str) -> None:
        standing = [life for life in self._lives.values() if not life.paused]
        paused = [life for life in self._lives.values() if life.paused]
        match action:
            case "register" if len(self._lives) < self._settings.most:
                self._register(drawn(self._draw))
            case "replace" if standing:
                self._replace(self._draw.choice(standing))
            case "pause" if standing:
                self._pause(self._draw.choice(standing))
            case "resume" if paused:
                self._resume(self._draw.choice(paused))
            case "drop" if len(self._lives) > 2:
                self._drop(self._draw.choice(list(self._lives.values())))
            case "rename" if standing:
                self._rename(self._draw.choice(standing))
            case "select" if standing:
                self._select(self._draw.choice(standing))
            case "error":
                self._mistake()
            case _:
                return
        self.report.actions[action] += 1

    def _executed(self, sql: str) -> tuple[RemoteStatement, ...] | None:
        """Execute a script; return None where it was refused. Raises Failed for what must not be refused."""
        self._killer.commanding.set()
        try:
            done = finished(self._client, sql, f"command {self._next()}")
        except PenstockError as error:
            if error.code not in _REFUSED:
                raise
            self.report.refused[f"{error.code} {error.message.partition(': ')[2] or error.message}"] += 1
            return None
        for one in done:
            if one.error is not None and one.error.code in _REFUSED:
                self.report.refused[f"when applied: {one.error.code} {one.error.message.partition(': ')[2]}"] += 1
                return None
            if one.state not in ("RUNNING", "COMPLETED", "DONE"):
                raise Failed(f"{sql}: {one}")
        return done

    def _episode(self, shape: Shape, warm: bool, script: str) -> Episode | None:
        """Begin an episode by a script whose first statement it is; None where it was refused."""
        # Another query shows how far the stream had been read: a join waits for its relation too.
        witness = f"w{self._next()}"
        done = self._executed(f"{script}; CREATE QUERY {witness} AS SELECT n FROM s WHERE n < 0;")
        if done is None:
            return None
        self._executed(f"DROP QUERY {witness};")
        begun, read = (NOTHING if one.instant is None else int(one.instant) for one in done)
        return Episode(shape, warm, begun, (read + 1) // STEP if read != NOTHING else -1)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _register(self, shape: Shape) -> None:
        number, warm = self._next(), self._draw.random() < 0.5
        life = Life(number, f"q{number}")
        start = "START WARM" if warm else "START NOW" if self._draw.random() < 0.5 else ""
        episode = self._episode(shape, warm, f"CREATE QUERY {life.name} {start} AS {shape.text}")
        if episode is None:
            return
        life.episodes.append(episode)
        self._lives[life.name] = life
        subscriber = Subscriber(self._served.url, self._served.token, life, self._settings.seed + number)
        self._subscribers[number] = subscriber
        subscriber.start()

    def _replace(self, life: Life) -> None:
        if not life.shape.is_stream:
            return
        shape, warm = drawn(self._draw, life.shape), self._draw.random() < 0.5
        self._continue(life, shape, warm, f"ALTER QUERY {life.name} AS {shape.text} START {'WARM' if warm else 'NOW'}")

    def _pause(self, life: Life) -> None:
        life.episodes[-1].reached = max(life.episodes[-1].reached, self._instant(life))
        if self._executed(f"ALTER QUERY {life.name} PAUSE;") is not None:
            life.paused = True

    def _resume(self, life: Life) -> None:
        if not life.shape.is_stream:
            self._drop(life)
            return
        warm = self._draw.random() < 0.5
        start = "START WARM" if warm else "START NOW"
        self._continue(life, life.shape, warm, f"ALTER QUERY {life.name} RESUME {start}")

    def _continue(self, life: Life, shape: Shape, warm: bool, script: str) -> None:
        """Go on with a result by a script."""
        reached = NOTHING if life.paused else self._instant(life)
        episode = self._episode(shape, warm, script)
        if episode is None:
            return
        life.episodes[-1].reached = max(life.episodes[-1].reached, reached)
        episode.resumed = life.paused
        life.episodes.append(episode)
        life.paused = False

    def _rename(self, life: Life) -> None:
        former, name = life.name, f"q{self._next()}"
        # Its subscriber asks for the new name when it comes back.
        life.name = name
        if self._executed(f"ALTER QUERY {former} RENAME TO {name};") is None:
            raise Failed(f"{former} cannot be renamed")
        self._lives[name] = self._lives.pop(former)

    def _drop(self, life: Life) -> None:
        self._judge(life, life.episodes[-1].reached if life.paused else self._instant(life))
        self._executed(f"DROP QUERY {life.name};")
        del self._lives[life.name]

    def _mistake(self) -> None:
        """A script with an error changes nothing."""
        name = f"q{self._next()}"
        try:
            self._client.execute(f"CREATE QUERY {name} AS SELECT n FROM s; CREATE QUERY {name}x AS SELECT z FROM s")
        except PenstockError as error:
            if error.code != _UNKNOWN:
                raise
            if name not in {one.name for one in self._client.queries()}:
                return
        raise Failed("a script with an error has changed something")

    def _select(self, life: Life) -> None:
        """A SELECT over a relation's result is its content at the instant that the reply names."""
        shape = life.shape
        if not isinstance(shape, Totals):
            return
        try:
            found = self._client.select(f"SELECT k, c, total FROM {life.name}")
        except PenstockError as error:
            if error.code == "P0711":
                return  # it has not answered yet
            raise
        if found.instant is None:
            return
        tick = int(found.instant)
        episode = life.episodes[-1]
        span = Span(self._settings.seed, 0 if episode.warm else episode.last + 1, tick, tick)
        expected = shape.content(span, tick)
        rows = Counter(tuple(row.values()) for row in found.to_arrow().to_pylist())
        if tick >= episode.begun and rows != expected:
            life.faults.append(f"SELECT as of {tick}: {sorted(rows)}, and not {sorted(expected)}")

    # -- judging -----------------------------------------------------------------------------------------------

    def _instant(self, life: Life) -> int:
        instant = self._client.query(life.name).instant
        return NOTHING if instant is None else int(instant)

    def _judge(self, life: Life, reached: int) -> None:
        """Wait until a subscriber has received what was answered, end it and compare."""
        subscriber = self._subscribers.pop(life.number)
        end = time.monotonic() + _DRAIN
        while life.final < reached and subscriber.is_alive() and time.monotonic() < end:
            self._look()
            time.sleep(0.1)
        if life.final < reached:
            life.faults.append(f"what was answered up to {reached} was received up to {life.final}")
        subscriber.end()
        life.episodes[-1].reached = max(life.episodes[-1].reached, reached)
        self.report.wrong += wrong(life, self._settings.seed, not self._settings.in_process)
        self.report.lives += 1
        self.report.changes += len(life.received)
        self.report.subscriptions += subscriber.begun

    def _finish(self, rows: int) -> None:
        """Wait until all `rows` that were posted have been answered, judge all queries, and end the server."""
        stream = STEP * (rows - 1) - 1
        # A query with levels reads the stream too, whose last instant may have more rows.
        last = {True: min(STEP * BETWEEN * ((rows - 1) // BETWEEN), stream), False: stream}
        end = time.monotonic() + _DRAIN
        standing = [life for life in self._lives.values() if not life.paused]
        while any(self._instant(life) < last[isinstance(life.shape, Levelled)] for life in standing):
            self._look()
            if time.monotonic() > end:
                behind = {life.name: self._instant(life) for life in standing}
                raise Failed(f"{rows} rows were posted, and after {_DRAIN} s the queries are at {behind}")
            time.sleep(0.5)
        for life in list(self._lives.values()):
            self._drop(life)
        if left := self._client.queries():
            self.report.wrong.append(f"queries stand that were dropped: {[one.name for one in left]}")
        self._served.end()

    def _look(self) -> None:
        for who, failure in self._failures():
            raise Failed(f"{who}: {failure!r}")
        now = time.monotonic()
        if now - self._sampled < _SAMPLE_SECONDS or not self._killer.down.acquire(blocking=False):
            return
        try:
            self._sampled = now
            processes = tree(self._served.pid)
            memory = {**watch.memory(processes, self._served.pid), "heap": 0}
            files = watch.files_below(self._served.checkpoint)
            self.report.samples.append(watch.Sample(now, self._served.starts, memory, 0, 0, files))
        finally:
            self._killer.down.release()
